/* The line in libmount's table (/run/mount/utab) that makes plain umount(8) wait. As root it takes a filesystem's type from statfs(2), which knows only "fuse",
 * and calls no helper; where the table names the mountpoint it looks the type up and calls umount.fuse.twofold (util-linux, libmount/src/context_umount.c). The
 * table is written by mount(8) and umount(8) alone, under their own lock: --fake does all but the system call. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TABLE "/run/mount/utab"
#define HELPER "/sbin/umount.fuse.twofold"

extern char **environ;

/* Runs it and waits. What it prints is of no use to anybody: a missing line costs a umount that returns a little early. */
static void run_quiet(const char *const *argv)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	if (!posix_spawnp(&pid, argv[0], &files, &attr, (char *const *)argv, environ))
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
}

void utab_forget(const char *mountpoint)
{
	if (geteuid() == 0 && !access(TABLE, W_OK))
		run_quiet((const char *const[]){"umount", "--fake", "--internal-only", "--", mountpoint, NULL});
}

void utab_note(const char *store, const char *mountpoint)
{
	if (geteuid() || access(HELPER, X_OK))
		return;
	utab_forget(mountpoint); /* of a process that was killed */
	run_quiet((const char *const[]){"mount", "--fake", "--internal-only", "-t", "fuse.twofold", "-o", "uhelper=fuse.twofold", "--", store, mountpoint, NULL});
}
