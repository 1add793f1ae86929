/* A peer's change made visible in a file that the kernel knows.
 *
 * With the write-back cache the kernel owns size and times of a regular file and ignores what GETATTR says of them. So a thread of ours (the notifier)
 * opens the file through our own mount and does what a local program would have done: fallocate of the last byte where it grew (not
 * ftruncate: it silently drops an append that is still dirty; only where it shrank), invalidation of the changed ranges, futimens. Workers recognise these requests
 * by thread and inode and answer without changing anything: the volume has the change already. Open handles, mappings, locks
 * and inotify see it. The file is opened by its handle: no path, no race with a rename; where that is not allowed, by its path. */
#include "mount_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RANGES_MAX 64 /* more ranges than this: drop all pages */

int self_root(struct mount *m)
{
	/* A clone of the mount, so that umount(2) of the real one never sees it busy. */
	CLEANUP_CLOSE int tree = (int)syscall(SYS_open_tree, AT_FDCWD, m->path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int fd = tree >= 0 ? openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			   : open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_dev != m->dev) { /* unmounted, or covered by another mount */
		close(fd);
		return -ENODEV;
	}
	return fd;
}

static int open_handle(int root, uint64_t ino, int flags)
{
	/* The kernel's handle of a FUSE inode: type 0x81, node id (high, low), generation (ours are all 0). */
	union {
		struct file_handle h;
		uint8_t room[sizeof(struct file_handle) + 12];
	} u;
	uint32_t words[3] = {(uint32_t)(ino >> 32), (uint32_t)ino, 0};
	memset(&u, 0, sizeof(u));
	u.h.handle_bytes = sizeof(words);
	u.h.handle_type = 0x81;
	memcpy(u.room + sizeof(struct file_handle), words, sizeof(words));
	int fd = open_by_handle_at(root, &u.h, flags);
	return fd < 0 ? -errno : fd;
}

static int open_self(struct mount *m, uint64_t ino, int flags)
{
	CLEANUP_CLOSE int root = self_root(m);
	if (root < 0)
		return root;
	flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd = open_handle(root, ino, flags);
	if (fd != -EPERM)
		return fd;
	CLEANUP_FREE char *path = NULL;
	int r = volume_path_of(m->v, ino, &path);
	if (r)
		return r;
	fd = openat(root, path, flags);
	return fd < 0 ? -errno : fd;
}

bool self_is(fuse_req_t req, uint64_t ino)
{
	struct mount *m = mount_of(req);
	return fuse_req_ctx(req)->pid == atomic_load(&m->notifier.tid) && atomic_load(&m->self.ino) == ino;
}

static void drop_pages(struct mount *m, const struct job *j)
{
	if (!j->ranges.n || j->ranges.n > RANGES_MAX) {
		notify_inval_pages(m, j->ino, 0, 0);
		return;
	}
	for (uint32_t i = 0; i < j->ranges.n; i++)
		notify_inval_pages(m, j->ino, (int64_t)j->ranges.e[i].first, (int64_t)j->ranges.e[i].count);
}

/* The kernel's size becomes the volume's. Where a peer made the file shorter there is no way but ftruncate: dirty pages have come home just before,
 * so only an append of the microseconds between is at risk. A worker refuses with EAGAIN where the volume's size is another by then. */
static int resize(struct mount *m, int fd, const struct job *j)
{
	for (int tries = 0; tries < 8; tries++) {
		struct inode_attr a;
		struct stat st;
		bool shrank = j->new_size < j->old_size;
		if (shrank)
			notify_inval_pages(m, j->ino, 0, 0);
		if (volume_getattr(m->v, j->ino, &a) || fstat(fd, &st))
			return 0; /* gone */
		if ((uint64_t)st.st_size == a.size || ((uint64_t)st.st_size > a.size && !shrank))
			return 0;
		if (!((uint64_t)st.st_size < a.size ? fallocate(fd, 0, (off_t)a.size - 1, 1) : ftruncate(fd, (off_t)a.size)))
			return 0;
		if (errno != EAGAIN)
			return -errno;
	}
	return 0; /* programs here change its size all the time: they know it */
}

void self_apply(struct mount *m, const struct job *j, bool content)
{
	struct inode_attr a;
	if (volume_getattr(m->v, j->ino, &a))
		return;
	if (!m->writeback || !S_ISREG(a.mode)) {
		notify_inval_pages(m, j->ino, content ? 0 : -1, 0);
		return;
	}
	atomic_store(&m->self.ino, j->ino);
	int err = 0;
	CLEANUP_CLOSE int fd = open_self(m, j->ino, content ? O_RDWR : O_RDONLY);
	if (fd < 0 && content) {
		err = fd;
		fd = open_self(m, j->ino, O_RDONLY);
	}
	if (content && !err)
		err = resize(m, fd, j);
	if (content)
		drop_pages(m, j);
	else
		fuse_lowlevel_notify_inval_inode(m->se, j->ino, -1, 0);
	if (fd >= 0 && !volume_getattr(m->v, j->ino, &a)) {
		struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {(time_t)a.mtime.sec, (long)a.mtime.nsec}};
		if (futimens(fd, t))
			err = -errno;
	} else if (fd < 0) {
		err = fd;
	}
	if (err && err != -ENODEV && err != -ESTALE && err != -ENOENT)
		log_warn("%s: size or time of inode %llu may be shown late: %s", m->path, (unsigned long long)j->ino, strerror(-err));
	if (fd >= 0) {
		close(fd); /* while the requests it causes are still recognised */
		fd = -1;
	}
	atomic_store(&m->self.ino, 0);
}
