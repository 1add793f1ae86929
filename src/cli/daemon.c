/* One process serves one mount or, headless, one store (I11): opens the volume, starts replication and the control socket, and ends in the
 * reverse order, however it is asked to: unmount, SIGTERM, SIGINT.
 *
 * Unless in the foreground the process forks first; the parent waits until the mount answers (or says why not) and passes the exit code on. */
#include "cli.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "engine.h"
#include "heap.h"
#include "log.h"
#include "mount.h"
#include "scrub.h"

#define SCRUB_RATE (50u << 20) /* bytes a second: far below what a disk gives, a terabyte in six hours */
#define FSYNC_TIMEOUT_MS 30000
#define LOCK_WAIT_MS 10000 /* a mount that is just ending holds the lock for its last commit */

struct daemon_run {
	struct daemon_state state;
	struct engine *engine;
	int ready_fd; /* to the waiting parent; -1: foreground, or told already */
	_Atomic(struct mount *) mount;
	_Atomic bool stopping;
	char *control;
	bool said; /* why it failed was said where it was known */
};

/* Lets the waiting parent go with this exit code; on success standard error goes to the log alone from then on. */
static void tell_parent(struct daemon_run *d, int code)
{
	uint8_t byte = (uint8_t)code;

	if (d->ready_fd < 0)
		return;
	if (write(d->ready_fd, &byte, 1) != 1)
		log_error("cannot tell the calling process: %s", strerror(errno));
	close(d->ready_fd);
	d->ready_fd = -1;
	if (code == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		log_to_syslog("twofold");
		if (null >= 0) {
			dup2(null, 0);
			dup2(null, 1);
			dup2(null, 2);
			close(null);
		}
	}
}

static void on_ready(void *ctx, struct mount *m)
{
	struct daemon_run *d = ctx;

	atomic_store(&d->mount, m);
	if (atomic_load(&d->stopping))
		mount_stop(m);
	utab_note(volume_path(d->state.volume), d->state.mountpoint);
	tell_parent(d, EXIT_DONE);
}

static int on_sync(void *ctx, const char *value, size_t len)
{
	struct daemon_run *d = ctx;

	if (!d->engine)
		return volume_commit(d->state.volume);
	int r = engine_wait_in_sync(d->engine, 60000, NULL, NULL);
	return r == -ENOTCONN ? 0 : r; /* committed; nobody to wait for */
}

static int on_fsync(void *ctx, void (*done)(void *arg, int err), void *arg)
{
	struct daemon_run *d = ctx;

	return engine_when_durable(d->engine, d->state.fsync, d->state.fsync_timeout_ms, done, arg);
}

static void on_give_up(void *ctx) { engine_give_up_waits(((struct daemon_run *)ctx)->engine); }

static void *signal_loop(void *arg)
{
	struct daemon_run *d = arg;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	while (sigwait(&set, &sig) == 0) {
		uint64_t one = 1;
		struct mount *m;
		atomic_store(&d->stopping, true);
		m = atomic_load(&d->mount);
		if (m)
			mount_stop(m);
		if (d->state.stop_fd >= 0 && write(d->state.stop_fd, &one, sizeof one) < 0)
			log_error("stopping: %s", strerror(errno));
	}
	return NULL;
}

static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}

static int start_engine(struct daemon_run *d, const struct run_options *o)
{
	struct engine_options eo = {.listen = o->listen};
	int r;

	if (o->ro) {
		if (o->listen)
			log_warn("%s: read-only: nothing is replicated, listen= has no effect", volume_path(d->state.volume));
		return 0;
	}
	r = engine_new(d->state.volume, &eo, &d->engine);
	if (r) {
		log_error("listen=%s: %s", o->listen ? o->listen : "", r == -EINVAL ? "not ADDR:PORT" : strerror(-r));
		d->said = true;
		return r;
	}
	r = engine_start(d->engine);
	d->state.engine = d->engine;
	return r;
}

static int serve_mount(struct daemon_run *d, const char *mountpoint, const struct run_options *o)
{
	struct mount_options mo = {
		.allow_other = o->allow_other, .ro = o->ro, .nodev = o->nodev, .nosuid = o->nosuid, .noexec = o->noexec, .noatime = o->noatime,
		.set_uid = o->has_uid, .set_gid = o->has_gid, .set_umask = o->has_umask, .uid = o->uid, .gid = o->gid, .umask = o->umask,
		.commit_ms = o->commit_ms, .store = volume_path(d->state.volume), .control = d->control,
		.ready = on_ready, .sync = on_sync, .ctx = d,
	};

	if (d->engine && o->fsync != FSYNC_LOCAL) {
		mo.durable = on_fsync;
		mo.give_up = on_give_up;
	}
	int r = mount_run(d->state.volume, mountpoint, &mo);

	if (atomic_exchange(&d->mount, NULL))
		utab_forget(mountpoint);
	return r;
}

static int serve_headless(struct daemon_run *d)
{
	uint64_t n;

	tell_parent(d, EXIT_DONE);
	while (!atomic_load(&d->stopping))
		if (read(d->state.stop_fd, &n, sizeof n) < 0 && errno != EINTR)
			return -errno;
	return 0;
}

static int serve(struct daemon_run *d, const char *mountpoint, const struct run_options *o)
{
	struct control *control = NULL;
	struct sampler *sampler = NULL;
	pthread_t signals;
	int r = start_engine(d, o), closed;

	if (!r && !o->ro)
		r = scrub_start(d->state.volume, o->scrub_s, SCRUB_RATE);
	d->control = control_path(volume_path(d->state.volume));
	if (!r && !d->control)
		r = -ENOMEM;
	if (!r && !(o->ro && access(volume_path(d->state.volume), W_OK)))
		r = control_start(&d->state, &control);
	if (!r)
		r = -pthread_create(&signals, NULL, signal_loop, d);
	if (!r) {
		sampler = sampler_start(d->state.volume);
		r = mountpoint ? serve_mount(d, mountpoint, o) : serve_headless(d);
		pthread_cancel(signals);
		pthread_join(signals, NULL);
	}
	sampler_stop(sampler);
	control_stop(control);
	scrub_stop(d->state.volume);
	if (d->engine) {
		engine_stop(d->engine);
		engine_free(d->engine);
	}
	closed = volume_close(d->state.volume);
	free(d->control);
	return r ? r : closed;
}

static int run(const char *store, const char *mountpoint, const struct run_options *o, struct secret *s, int ready_fd)
{
	struct daemon_run d = {.ready_fd = ready_fd};
	struct volume_options vo = {.commit_ms = o->commit_ms, .read_only = o->ro, .background = true, .lock_wait_ms = LOCK_WAIT_MS, .fsync = o->fsync,
		.hold_deletions = !o->apply_deletions};
	struct rlimit files;
	int r, code;

	heap_prepare();
	block_signals();
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	d.state.mountpoint = mountpoint;
	d.state.listen = o->listen;
	d.state.fsync = o->fsync;
	d.state.fsync_timeout_ms = o->fsync_timeout_ms ? (int)o->fsync_timeout_ms : FSYNC_TIMEOUT_MS;
	d.state.stop_fd = eventfd(0, EFD_CLOEXEC);
	r = volume_open(store, &vo, s->p, s->len, s->kind, &d.state.volume);
	secret_fini(s);
	if (r)
		code = complain(r, store);
	else {
		r = serve(&d, mountpoint, o);
		code = !r ? EXIT_DONE : d.said ? exit_for(r) : complain(r, mountpoint ? mountpoint : store);
		if (r && d.ready_fd < 0 && !o->foreground) /* nobody reads standard error any more */
			log_error("%s: ended: %s", mountpoint ? mountpoint : store, strerror(-r));
	}
	tell_parent(&d, code);
	close(d.state.stop_fd);
	return code;
}

/* The calling process's half: waits for the byte, or for the child's end without one. */
static int wait_ready(pid_t child, int fd)
{
	uint8_t code;
	int status;

	for (;;) {
		ssize_t n = read(fd, &code, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 1)
			return code;
		break;
	}
	if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "twofold: the serving process ended before it was ready\n");
	return EXIT_FAILED;
}

int daemon_run(const char *store, const char *mountpoint, const struct run_options *o)
{
	struct secret s = {0};
	int fds[2], r = secret_get(&o->key, false, &s);

	if (r)
		return r == -EINVAL ? EXIT_USAGE : EXIT_KEY;
	if (o->foreground)
		return run(store, mountpoint, o, &s, -1);
	if (pipe2(fds, O_CLOEXEC)) {
		secret_fini(&s);
		return complain(-errno, "pipe");
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		setsid();
		if (chdir("/"))
			_exit(EXIT_FAILED);
		_exit(run(store, mountpoint, o, &s, fds[1]));
	}
	secret_fini(&s);
	close(fds[1]);
	r = pid < 0 ? complain(-errno, "fork") : wait_ready(pid, fds[0]);
	close(fds[0]);
	return r;
}
