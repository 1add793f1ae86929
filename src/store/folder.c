/* The store's directory: making, undoing and locking it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "header.h"

#define LOCK_POLL_MS 20

static const char *const folders[] = {"objects", "incoming", "outgoing"};
/* All that a store may hold beside its folders, for undoing. */
static const char *const files[] = {"lock", "volume", "volume.new", "journal.db", "journal.db-wal", "journal.db-shm",
				    "journal.db-journal", "redo", "reserve", FAILED_NOTE};

static int open_folder(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int sync_folder(int at, const char *name)
{
	int fd CLEANUP_CLOSE = open_folder(at, name);

	if (fd < 0)
		return fd;
	return fsync(fd) < 0 ? -errno : 0;
}

static void object_folder(int i, char ret[static 3]) { snprintf(ret, 3, "%02x", i & 255); }

static bool is_dot(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

/* 0 where the directory has no entries, else -ENOTEMPTY. */
static int check_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int r = 0;

	if (!d)
		return errno == ENOTDIR ? -EEXIST : -errno;
	while (r == 0 && (e = readdir(d)))
		if (!is_dot(e->d_name))
			r = -ENOTEMPTY;
	closedir(d);
	return r;
}

static int make_object_folders(int dirfd)
{
	int fd CLEANUP_CLOSE = open_folder(dirfd, "objects");
	char name[3];
	int r = 0;

	if (fd < 0)
		return fd;
	for (int i = 0; i < 256; i++) {
		object_folder(i, name);
		if (mkdirat(fd, name, 0700) < 0)
			return -errno;
	}
	for (int i = 0; r == 0 && i < 256; i++) {
		object_folder(i, name);
		r = sync_folder(fd, name);
	}
	return r;
}

static int make_inside(int dirfd)
{
	int r = 0;

	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		if (mkdirat(dirfd, folders[i], 0700) < 0)
			return -errno;
	r = make_object_folders(dirfd);
	for (size_t i = 0; r == 0 && i < sizeof folders / sizeof *folders; i++)
		r = sync_folder(dirfd, folders[i]);
	if (r < 0)
		return r;
	/* the lock comes last: a store without it is not one */
	int lock CLEANUP_CLOSE = openat(dirfd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (lock < 0 || fsync(lock) < 0 || fsync(dirfd) < 0)
		return -errno;
	return 0;
}

/* The files directly inside a folder, then the folder. What cannot be removed stays. */
static void remove_folder(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(d)))
		if (!is_dot(e->d_name))
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	unlinkat(at, name, AT_REMOVEDIR);
}

static void unmake_inside(int dirfd)
{
	int objects CLEANUP_CLOSE = openat(dirfd, "objects", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char name[3];

	for (int i = 0; objects >= 0 && i < 256; i++) {
		object_folder(i, name);
		remove_folder(objects, name);
	}
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		remove_folder(dirfd, folders[i]);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		unlinkat(dirfd, files[i], 0);
}

int store_make(const char *path)
{
	bool made = mkdir(path, 0700) == 0;
	int r = 0;

	if (!made)
		r = errno == EEXIST ? check_empty(path) : -errno;
	if (r < 0)
		return r;
	int fd CLEANUP_CLOSE = open_folder(AT_FDCWD, path);
	r = fd < 0 ? fd : make_inside(fd);
	if (r == 0 && made) {
		r = sync_folder(fd, "..");
		if (r == -EACCES) /* a parent that may be searched but not read */
			r = 0;
	}
	if (r < 0) {
		if (fd >= 0)
			unmake_inside(fd);
		if (made)
			rmdir(path);
	}
	return r;
}

void store_unmake(const char *path)
{
	int fd CLEANUP_CLOSE = open_folder(AT_FDCWD, path);

	if (fd < 0)
		return;
	unmake_inside(fd);
	rmdir(path);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int take_lock(int fd, short type, int wait_ms)
{
	uint64_t end = now_ms() + (wait_ms > 0 ? (uint64_t)wait_ms : 0);
	struct flock l = {.l_type = type, .l_whence = SEEK_SET};

	for (;;) {
		if (fcntl(fd, F_OFD_SETLK, &l) == 0)
			return 0;
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		if (now_ms() >= end)
			return -EBUSY;
		/* the blocking form has no time limit but a signal's */
		nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL_MS * 1000000L}, NULL);
	}
}

int store_lock(const char *path, int wait_ms, int *ret_dirfd, int *ret_lockfd)
{
	short type = F_WRLCK;
	int r;
	int dir CLEANUP_CLOSE = open_folder(AT_FDCWD, path);

	if (dir < 0)
		return dir;
	int lock CLEANUP_CLOSE = openat(dir, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (lock < 0 && errno == EROFS) {
		/* nobody can write there: readers only have to keep off one another's writers */
		type = F_RDLCK;
		lock = openat(dir, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (lock < 0)
		return errno == ENOENT || errno == ELOOP || errno == EISDIR ? -EUCLEAN : -errno;
	r = take_lock(lock, type, wait_ms);
	if (r < 0)
		return r;
	*ret_dirfd = dir;
	*ret_lockfd = lock;
	dir = lock = -1;
	return 0;
}
