/* umount: asks the kernel, then waits until the process that served the mount has committed and let go of its store
 * (umount(2) itself does not wait for a FUSE server). */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "header.h"

static int run_fusermount(const char *mountpoint, bool lazy)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", mountpoint, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

static bool note_there(const char *store)
{
	char path[4096 + sizeof "/" FAILED_NOTE];
	struct stat st;

	snprintf(path, sizeof path, "%s/" FAILED_NOTE, store);
	return stat(path, &st) == 0;
}

/* With the store's lock held: nobody else writes one. */
static void print_note(const char *store, int dirfd)
{
	char why[128] = "";
	int fd = openat(dirfd, FAILED_NOTE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, why, sizeof why - 1) : 0;

	if (n > 0)
		why[strcspn(why, "\n")] = 0;
	if (fd >= 0)
		close(fd);
	fprintf(stderr, "twofold: %s: the last commit failed, the changes since the one before are lost%s%s\n", store, *why ? ": " : "", why);
}

static int unmount(const char *mountpoint, bool lazy)
{
	char store[4096];
	int dirfd, lockfd, r, code = EXIT_DONE;
	bool noted;
	ssize_t n = getxattr(mountpoint, "user.twofold.store", store, sizeof store - 1);

	if (n <= 0 && errno != ENOTCONN) {
		fprintf(stderr, "twofold: %s: not the mountpoint of a twofold volume\n", mountpoint);
		return EXIT_FAILED;
	}
	store[n > 0 ? n : 0] = 0;
	noted = note_there(store); /* of an earlier stop, then this mount is a read-only one */
	if (geteuid() == 0)
		r = umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) ? -errno : 0;
	else
		r = run_fusermount(mountpoint, lazy);
	if (r) {
		fprintf(stderr, "twofold: %s: %s\n", mountpoint, r == -EBUSY ? "programs still use it" : strerror(-r));
		return EXIT_FAILED;
	}
	if (n <= 0 || lazy)
		return EXIT_DONE;
	r = store_lock(store, 60000, &dirfd, &lockfd);
	if (r == -EBUSY) {
		fprintf(stderr, "twofold: %s is unmounted, but its store %s is still being written after 60 s\n", mountpoint, store);
		return EXIT_FAILED;
	}
	if (!r) {
		if (!noted && note_there(store)) {
			print_note(store, dirfd);
			code = EXIT_FAILED;
		}
		close(lockfd);
		close(dirfd);
	}
	return code;
}

int cmd_umount(int argc, char **argv)
{
	if (argc != 2)
		return usage_error("umount: one MOUNTPOINT is needed");
	return unmount(argv[1], false);
}

/* umount(8) calls: umount.TYPE MOUNTPOINT [-nlfvr] [-N namespace] [-t type.subtype] */
int umount_helper(int argc, char **argv)
{
	bool lazy = false;
	int c;

	while ((c = getopt(argc, argv, "nlfvrN:t:")) != -1) {
		if (c == 'l')
			lazy = true;
		if (c == '?')
			return EXIT_USAGE;
	}
	if (argc - optind != 1)
		return usage_error("%s: one MOUNTPOINT is needed", argv[0]);
	return unmount(argv[optind], lazy);
}
