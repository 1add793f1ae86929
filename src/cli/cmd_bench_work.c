/* bench: a private folder with stores and mounts in it. All of it goes away at the end, however that comes; a mount also ends when this process
 * is killed (bench_spawn). */
#include "cmd_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "progress.h"

#define READY_MS 60000
#define GONE_MS 60000

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	return remove(path) && errno != ENOENT ? -errno : 0;
}

int bench_remove(const char *path)
{
	int r = nftw(path, remove_one, 64, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);

	return r < 0 && r != -1 ? r : r && errno != ENOENT ? -errno : 0;
}

static int forget_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	if (kind == FTW_F) {
		CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME);
		if (fd >= 0)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	return 0;
}

void bench_forget_pages(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		syncfs(fd);
	nftw(path, forget_one, 64, FTW_PHYS | FTW_MOUNT);
}

static int write_pass(const char *path)
{
	uint8_t key[16];
	char text[2 * sizeof key + 2] = "";
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	env_random(&env_real, key, sizeof key);
	for (size_t i = 0; i < sizeof key; i++)
		sprintf(text + 2 * i, "%02x", key[i]);
	strcat(text, "\n");
	return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ? -errno : 0;
}

int bench_work_open(const char *dir, uint64_t need_bytes, struct bench_work *w)
{
	char real[PATH_MAX];
	struct statvfs vfs;
	int r;

	*w = (struct bench_work){0};
	if (!realpath(dir, real) || statvfs(real, &vfs)) {
		r = -errno;
		complain(r, dir);
		return r;
	}
	if ((uint64_t)vfs.f_bavail * vfs.f_frsize < need_bytes) {
		fprintf(stderr, "twofold: %s: %.1f GiB are needed and %.1f are free; a smaller --size or --scale, or another --dir\n", dir,
			(double)need_bytes / (1 << 30), (double)vfs.f_bavail * (double)vfs.f_frsize / (1 << 30));
		return -ENOSPC;
	}
	if ((size_t)snprintf(w->path, sizeof w->path, "%s/twofold-bench.XXXXXX", real) >= sizeof w->path || !mkdtemp(w->path)) {
		r = errno ? -errno : -ENAMETOOLONG;
		w->path[0] = 0;
		complain(r, dir);
		return r;
	}
	/* the time of deriving a key is no part of what is measured */
	setenv("TWOFOLD_ARGON2", "1:8", 1);
	snprintf(w->pass, sizeof w->pass, "%s/passphrase", w->path);
	r = write_pass(w->pass);
	if (r)
		complain(r, w->pass);
	return r;
}

int bench_init(struct bench_work *w, unsigned i, const char *name, const char *cipher)
{
	struct bench_mount *m = &w->mount[i];
	struct buf err = {0};
	char in[BENCH_PATH_MAX];
	int r;

	memcpy(in, w->path, sizeof in);
	snprintf(m->store, sizeof m->store, "%s/%.32s.store", in, name);
	snprintf(m->path, sizeof m->path, "%s/%.32s", in, name);
	if (mkdir(m->path, 0700) && errno != EEXIST) {
		r = -errno;
		complain(r, m->path);
		return r;
	}
	if (!cipher)
		return 0;
	char *argv[] = {NULL, (char *)"init", m->store, (char *)"--name", (char *)name, (char *)"--cipher", (char *)cipher, (char *)"--passfile", w->pass, NULL};
	r = bench_run(&(struct bench_child){.argv = argv, .err = &err});
	if (r > 0) {
		fwrite(err.p, 1, err.len, stderr);
		r = -EIO;
	}
	buf_fini(&err);
	return r;
}

static void show_log(const char *path)
{
	char line[512];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof line, f))
		fputs(line, stderr);
	if (f)
		fclose(f);
}

int bench_mount(struct bench_work *w, unsigned i, const char *more_options)
{
	struct bench_mount *m = &w->mount[i];
	char options[PATH_MAX + 128], log[PATH_MAX], value[PATH_MAX];
	char *argv[] = {NULL, (char *)"mount", (char *)"-f", m->store, m->path, (char *)"-o", options, NULL};
	uint64_t deadline = bench_now_ns() + READY_MS * 1000000ull;
	int status, r;

	/* a comma would end the option's value */
	char *out = options + sprintf(options, "passfile=");
	for (const char *in = w->pass; *in && out < options + PATH_MAX; in++) {
		if (*in == ',' || *in == '\\')
			*out++ = '\\';
		*out++ = *in;
	}
	snprintf(out, sizeof options - (size_t)(out - options), "%s%s", more_options ? "," : "", more_options ? more_options : "");
	snprintf(log, sizeof log, "%.*s.log", PATH_MAX - 8, m->path);
	r = bench_spawn(argv, log, &m->pid);
	while (!r && getxattr(m->path, "user.twofold.store", value, sizeof value) <= 0) {
		if (waitpid(m->pid, &status, WNOHANG) == m->pid) {
			m->pid = 0;
			r = -EIO;
		} else if (bench_now_ns() > deadline)
			r = -ETIMEDOUT;
		else
			usleep(2000);
	}
	if (r) {
		show_log(log);
		fprintf(stderr, "twofold: bench: %s cannot be mounted: %s\n", m->store, strerror(-r));
	}
	return r;
}

static bool gone_within(struct bench_mount *m, unsigned ms)
{
	uint64_t deadline = bench_now_ns() + ms * 1000000ull;
	int status;

	while (waitpid(m->pid, &status, WNOHANG) == 0) {
		if (bench_now_ns() > deadline)
			return false;
		usleep(2000);
	}
	m->pid = 0;
	return true;
}

int bench_umount(struct bench_work *w, unsigned i)
{
	struct bench_mount *m = &w->mount[i];
	char *argv[] = {NULL, (char *)"umount", m->path, NULL};
	int r = -EBUSY;

	if (!m->pid)
		return 0;
	for (int tries = 0; r && tries < 20; tries++) {
		if (tries)
			usleep(100000);
		r = bench_run(&(struct bench_child){.argv = argv, .finish = true});
	}
	if (!r && gone_within(m, GONE_MS))
		return 0;
	/* something of another program's is open in there: the process itself, then the kernel, is told to let go */
	kill(m->pid, SIGTERM);
	if (!gone_within(m, 10000)) {
		kill(m->pid, SIGKILL);
		gone_within(m, 10000);
	}
	umount2(m->path, MNT_DETACH | UMOUNT_NOFOLLOW);
	return 0;
}

int bench_work_close(struct bench_work *w)
{
	int r;

	if (!w->path[0])
		return 0;
	progress_show("cleaning up");
	for (unsigned i = 0; i < BENCH_MOUNTS; i++)
		bench_umount(w, i);
	r = bench_remove(w->path);
	if (r)
		fprintf(stderr, "twofold: bench: %s cannot be removed: %s\n", w->path, strerror(-r));
	return r;
}
