/* Brings dirty pages home: the kernel keeps them up to 30 s while a file is open, so each commit_ms a syncfs of our own mount writes
 * them back to us (10 to 140 us where there are none). The same thread announces that the filesystem answers, pushes what changed
 * without a SETATTR behind it, and carries out mount_stop. */
#include "mount_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIET_NS 100000000ull
#define QUIET_MOST_NS 5000000000ull
#define READ_AHEAD_KB "1024"
#define MAX_RATIO "20" /* per cent of the dirty limit; at the default of 1 a writer is throttled early */

static void tune_one(const struct mount *m, const char *file, const char *value)
{
	char path[96];
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/%s", major(m->dev), minor(m->dev), file);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		log_debug("%s: %s", path, strerror(errno));
}

static void announce(struct mount *m)
{
	struct stat st;
	if (stat(m->path, &st))
		return; /* unmounted already */
	m->dev = st.st_dev;
	tune_one(m, "read_ahead_kb", READ_AHEAD_KB);
	tune_one(m, "max_ratio", MAX_RATIO);
	if (m->o->ready)
		m->o->ready(m->o->ctx, m);
}

static void fetch_dirty(struct mount *m)
{
	if (!m->writeback)
		return;
	CLEANUP_CLOSE int fd = self_root(m);
	if (fd < 0)
		return;
	if (syncfs(fd))
		log_debug("%s: syncfs: %s", m->path, strerror(errno)); /* each failed write was logged where it failed */
}

void syncer_direct_change(struct mount *m)
{
	uint64_t now = stats_now_ns(), none = 0;
	atomic_compare_exchange_strong(&m->direct_first_ns, &none, now);
	if (atomic_exchange(&m->direct_ns, now) == 0) {
		uint64_t one = 1;
		ssize_t n = write(m->wake_fd, &one, sizeof(one));
		(void)n; /* full: it wakes anyway */
	}
}

/* Pushes where it is time; how long until then, or -1. */
static int direct_wait_ms(struct mount *m)
{
	uint64_t last = atomic_load(&m->direct_ns), first = atomic_load(&m->direct_first_ns), now = stats_now_ns();
	if (!last)
		return -1;
	uint64_t due = last + QUIET_NS < first + QUIET_MOST_NS ? last + QUIET_NS : first + QUIET_MOST_NS;
	if (due > now)
		return (int)((due - now) / 1000000) + 1;
	atomic_store(&m->direct_first_ns, 0);
	atomic_store(&m->direct_ns, 0);
	volume_push_soon(m->v, 0);
	return -1;
}

/* ---- stopping ---- */
int unmount_path(const char *path, bool lazily)
{
	if (geteuid() == 0)
		return umount2(path, UMOUNT_NOFOLLOW | (lazily ? MNT_DETACH : 0)) ? -errno : 0;
	const char *const plain[] = {"fusermount3", "-u", "-q", "--", path, NULL};
	const char *const lazy[] = {"fusermount3", "-u", "-q", "-z", "--", path, NULL};
	pid_t pid;
	int status;
	int r = posix_spawnp(&pid, "fusermount3", NULL, NULL, (char *const *)(lazily ? lazy : plain), environ);
	if (r)
		return -r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status ? -EBUSY : 0;
}

/* Ends the loop though programs still use the mount: they get ENOTCONN. Nothing may wait for a worker any more by then. */
static void end_loop(struct mount *m)
{
	fsync_give_up(m);
	guests_close(m);
	queue_stop(&m->notifier);
	queue_stop(&m->seeker);
	fuse_session_exit(m->se);
	while (!atomic_load(&m->loop_ended)) {
		pthread_kill(m->loop_thread, SIGUSR2); /* out of its sem_wait */
		poll(NULL, 0, 20);
	}
}

static void stop(struct mount *m)
{
	int root = self_root(m), r = root < 0 ? root : 0;
	if (root >= 0) {
		close(root);
		r = unmount_path(m->path, false);
	}
	if (r == -EBUSY) {
		log_warn("%s: still in use; programs that have it open lose it", m->path);
		fetch_dirty(m); /* while workers still answer */
	}
	/* The connection ends with the last unmount, and with it the loop; another namespace may still hold the filesystem. */
	for (int i = 0; r == 0 && i < 100 && !atomic_load(&m->loop_ended); i++)
		poll(NULL, 0, 10);
	if (!atomic_load(&m->loop_ended))
		end_loop(m);
}

void *syncer_main(void *arg)
{
	struct mount *m = arg;
	int period_ms = m->o->commit_ms ? (int)m->o->commit_ms : 1000;
	uint64_t next = stats_now_ns() + (uint64_t)period_ms * 1000000u;
	announce(m);
	while (!atomic_load(&m->loop_ended)) {
		if (atomic_load(&m->stopping)) {
			stop(m);
			break;
		}
		uint64_t now = stats_now_ns();
		if (now >= next) {
			fetch_dirty(m);
			next = stats_now_ns() + (uint64_t)period_ms * 1000000u;
			continue;
		}
		int wait_ms = (int)((next - now) / 1000000) + 1, direct_ms = direct_wait_ms(m);
		if (direct_ms >= 0 && direct_ms < wait_ms)
			wait_ms = direct_ms;
		struct pollfd p = {.fd = m->wake_fd, .events = POLLIN};
		if (poll(&p, 1, wait_ms) > 0) {
			uint64_t drop;
			ssize_t n = read(m->wake_fd, &drop, sizeof(drop));
			(void)n;
		}
	}
	return NULL;
}
