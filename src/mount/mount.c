/* A mount's life: options, mounting, the loop, the way down. */
#include "mount_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Requests wake the worker that has slept longest: each more than are needed at once costs cold caches (17,700 entries unpacked on 2 cores:
 * 8 workers took 8.5 s of processor time, 4 took 7.2 s). More than one a core, since an fsync keeps its worker until the disk has it. */
#define THREADS_LEAST 4
#define THREADS_MOST 10

#define KERNEL_6_1 37 /* the protocol's minor version of the first kernel that counts fallocate as a change (fs/fuse/file.c, file_modified) */

static void want(struct fuse_conn_info *c, unsigned cap) { c->want |= c->capable & cap; }

static void op_init(void *userdata, struct fuse_conn_info *c)
{
	struct mount *m = userdata;
	/* What libfuse sets by itself and we cannot use: ATOMIC_O_TRUNC would, with OPEN at ENOSYS, truncate in the kernel's head only; the others
	 * are for filesystems with other writers, or of protocol parts that kernel_io.c asks for instead. */
	c->want &= ~(unsigned)(FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_HANDLE_KILLPRIV |
			       FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_READDIRPLUS_AUTO |
			       FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS);
	want(c, FUSE_CAP_READDIRPLUS | FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_DONT_MASK | FUSE_CAP_POSIX_ACL |
			FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |
			FUSE_CAP_ASYNC_DIO);
	if (!m->read_only)
		want(c, FUSE_CAP_WRITEBACK_CACHE);
	m->writeback = c->want & FUSE_CAP_WRITEBACK_CACHE;
	m->fallocate_times = m->writeback && c->proto_minor >= KERNEL_6_1;
	m->no_open = c->capable & FUSE_CAP_NO_OPEN_SUPPORT;
	m->no_opendir = c->capable & FUSE_CAP_NO_OPENDIR_SUPPORT;
	c->max_write = IO_MAX;
	c->time_gran = 1;
}

static const struct fuse_lowlevel_ops operations = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.symlink = op_symlink,
	.create = op_create,
	.link = op_link,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.fsyncdir = op_fsyncdir,
	.open = op_open,
	.opendir = op_opendir,
	.release = op_release,
	.releasedir = op_release,
	.flush = op_flush,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.setxattr = op_setxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
};

/* In libfuse's option lists a comma ends a value, unless a backslash stands before it. */
static int add_fsname(struct fuse_args *args, const char *fsname)
{
	CLEANUP(buf_fini) struct buf b = {0};
	buf_printf(&b, "-ofsname=");
	for (; *fsname; fsname++) {
		if (*fsname == ',' || *fsname == '\\')
			buf_put_u8(&b, '\\');
		buf_put_u8(&b, (uint8_t)*fsname);
	}
	buf_put_u8(&b, 0);
	return b.err || fuse_opt_add_arg(args, (const char *)b.p) ? -ENOMEM : 0;
}

/* What the list of mounts shows as the device. */
static const char *fsname_of(const struct mount *m) { return m->o->fsname ? m->o->fsname : volume_path(m->v); }

static int build_args(const struct mount *m, struct fuse_args *args)
{
	const struct mount_options *o = m->o;
	bool root = geteuid() == 0;
	/* libfuse asks for nodev and nosuid by itself; what only root may undo is undone where root mounts. */
	const struct { bool on; const char *arg; } all[] = {
		{true, "twofold"},
		{true, "-odefault_permissions,subtype=twofold"},
		{o->allow_other, "-oallow_other"},
		{m->read_only, "-oro"},
		{o->noexec, "-onoexec"},
		{o->noatime, "-onoatime"},
		{root && !o->nodev, "-odev"},
		{root && !o->nosuid, "-osuid"},
		{o->debug, "-odebug"},
	};
	int r = 0;
	for (size_t i = 0; !r && i < sizeof(all) / sizeof(*all); i++)
		if (all[i].on && fuse_opt_add_arg(args, all[i].arg))
			r = -ENOMEM;
	return r ? r : add_fsname(args, fsname_of(m));
}

/* Is what is mounted there, on top, a mount of this store? Its process is at its end then: this one holds the store's lock. The kernel answers from its cache for a moment. */
static bool is_former_mount(const char *path, const char *fsname)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	const struct mntent *e;
	bool is = false;
	while (f && (e = getmntent(f)))
		if (!strcmp(e->mnt_dir, path))
			is = !strcmp(e->mnt_type, "fuse.twofold") && !strcmp(e->mnt_fsname, fsname);
	if (f)
		endmntent(f);
	return is;
}

/* A killed process leaves a mount that answers ENOTCONN: taken away, as it can serve nobody. */
static int clear_dead_mount(const char *path, const char *fsname)
{
	struct stat st;
	for (int tries = 0; tries < 16; tries++) {
		int r = stat(path, &st) ? -errno : S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
		if (r != -ENOTCONN && r != -ECONNABORTED && !is_former_mount(path, fsname))
			return r;
		log_info("%s: taking away the dead mount of a process that was killed", path);
		if (unmount_path(path, true))
			return -ENOTCONN;
	}
	return -ENOTCONN;
}

/* realpath(3) fails on a dead mount; its folder is alive. */
static int absolute(const char *path, char **ret)
{
	char *p = realpath(path, NULL);
	if (p) {
		*ret = p;
		return 0;
	}
	if (errno != ENOTCONN && errno != ECONNABORTED)
		return -errno;
	CLEANUP_FREE char *copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = 0;
	char *slash = strrchr(copy, '/');
	CLEANUP_FREE char *dir = NULL;
	if (slash == copy)
		dir = strdup("");
	else if (slash)
		*slash = 0, dir = realpath(copy, NULL);
	else
		dir = realpath(".", NULL);
	const char *name = slash ? slash + 1 : copy;
	if (!dir)
		return -errno;
	return asprintf(ret, "%s/%s", dir, name) < 0 ? -ENOMEM : 0;
}

static int mount_session(struct mount *m)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int r = build_args(m, &args);
	if (!r) {
		m->se = fuse_session_new(&args, &operations, sizeof(operations), m);
		r = m->se ? 0 : -ENOMEM;
	}
	fuse_opt_free_args(&args);
	if (r)
		return r;
	errno = 0;
	if (fuse_session_mount(m->se, m->path))
		return errno == ENOENT || errno == ENODEV ? -ENODEV : errno == EPERM || errno == EACCES ? -EACCES : errno == EBUSY ? -EBUSY : -EIO;
	if (fuse_session_custom_io(m->se, &mount_io, fuse_session_fd(m->se))) {
		fuse_session_unmount(m->se);
		return -ENOMEM;
	}
	return 0;
}

static void ignore_signal(int sig) {}

static unsigned threads_default(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	return cores < THREADS_LEAST ? THREADS_LEAST : cores > THREADS_MOST ? THREADS_MOST : (unsigned)cores;
}

static int serve(struct mount *m)
{
	unsigned threads = m->o->threads ? m->o->threads : threads_default();
	struct fuse_loop_config *c = fuse_loop_cfg_create();
	if (!c)
		return -ENOMEM;
	/* As many idle as there are at most: ending and starting threads costs more than keeping them. */
	fuse_loop_cfg_set_max_threads(c, threads);
	fuse_loop_cfg_set_idle_threads(c, threads);
	fuse_loop_cfg_set_clone_fd(c, 0);
	struct sigaction sa = {.sa_handler = ignore_signal}, old;
	sigaction(SIGUSR2, &sa, &old);
	sigset_t usr2, old_mask;
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	pthread_sigmask(SIG_UNBLOCK, &usr2, &old_mask);
	int r = fuse_session_loop_mt(m->se, c);
	atomic_store(&m->loop_ended, true);
	fuse_loop_cfg_destroy(c);
	uint64_t one = 1;
	ssize_t n = write(m->wake_fd, &one, sizeof(one));
	(void)n;
	pthread_join(m->syncer_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
	sigaction(SIGUSR2, &old, NULL);
	return r < 0 ? r : 0;
}

static void worker_free(void *p)
{
	struct worker *w = p;
	free(w->buf);
	free(w);
}

/* Everything that needs undoing only once the filesystem answers no more. */
static void end_threads(struct mount *m)
{
	fsync_give_up(m);
	guests_close(m);
	queue_stop(&m->notifier);
	queue_stop(&m->seeker);
	pthread_mutex_lock(&m->guests_lock);
	while (m->commands)
		pthread_cond_wait(&m->guests_wake, &m->guests_lock);
	pthread_mutex_unlock(&m->guests_lock);
}

static int run(struct mount *m)
{
	int r = clear_dead_mount(m->path, fsname_of(m));
	if (!r)
		r = mount_session(m);
	if (r)
		return r;
	m->loop_thread = pthread_self();
	r = queue_start(&m->notifier, m);
	if (!r)
		r = queue_start(&m->seeker, m);
	if (!r)
		r = -pthread_create(&m->syncer_thread, NULL, syncer_main, m);
	if (!r) {
		notify_observe(m);
		r = serve(m);
		volume_set_observer(m->v, NULL);
	}
	/* Closes the connection first: whatever still waits for an answer gets ENOTCONN. */
	fuse_session_unmount(m->se);
	end_threads(m);
	return r;
}

int mount_run(struct volume *v, const char *mountpoint, const struct mount_options *o)
{
	struct mount *m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->v = v;
	m->o = o;
	m->stats = volume_stats(v);
	m->read_only = o->ro || volume_is_read_only(v);
	m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&m->guests_lock, NULL);
	pthread_cond_init(&m->guests_wake, NULL);
	int r = m->wake_fd < 0 ? -errno : absolute(mountpoint, &m->path);
	bool key = !r && !(r = -pthread_key_create(&m->worker_key, worker_free));
	if (!r)
		r = run(m);
	if (r)
		log_error("%s: mounting: %s", mountpoint, strerror(-r));
	if (m->se)
		fuse_session_destroy(m->se);
	if (key) {
		struct worker *w = pthread_getspecific(m->worker_key);
		if (w)
			worker_free(w);
		pthread_key_delete(m->worker_key);
	}
	if (m->wake_fd >= 0)
		close(m->wake_fd);
	free(m->path);
	free(m);
	return r;
}

void mount_stop(struct mount *m)
{
	uint64_t one = 1;
	int saved = errno;
	atomic_store(&m->stopping, true);
	ssize_t n = write(m->wake_fd, &one, sizeof(one));
	(void)n; /* full: it wakes anyway */
	errno = saved;
}

const char *mount_point(const struct mount *m) { return m->path; }
