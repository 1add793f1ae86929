/* A replica shown as a filesystem: volume.h behind FUSE's low-level protocol.
 *
 * One struct mount per mount point, made and freed by mount_run. Threads: libfuse's workers answer requests; the notifier tells the
 * kernel what peers changed and answers parked requests; the syncer brings dirty pages home each commit_ms and carries out mount_stop; a command
 * (setfattr of user.twofold.sync) has a thread of its own. No worker waits for another request, the network or a notification. */
#ifndef TWOFOLD_MOUNT_H
#define TWOFOLD_MOUNT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "volume.h"

struct mount;

struct mount_options {
	/* Taken by the kernel. dev and suid files work unless switched off (and only where root mounts). */
	bool allow_other, ro, nodev, nosuid, noexec, noatime;
	const char *fsname; /* first column of /proc/mounts; NULL: the path of the store */

	/* Shown instead of what is stored; the stored values stay. */
	bool set_uid, set_gid, set_umask;
	uint32_t uid, gid, umask;

	unsigned commit_ms; /* how often dirty pages are fetched from the kernel; 0: 1000 */
	unsigned threads;   /* workers; 0: a default by measurement */
	bool debug;         /* libfuse logs each request to standard error */

	/* Values of user.twofold.store and user.twofold.control on the root, NULL: none. Borrowed for the time of mount_run. */
	const char *store, *control;

	/* Called once, on a thread of the mount, when the filesystem answers. m is valid until mount_run returns. */
	void (*ready)(void *ctx, struct mount *m);
	/* setfattr -n user.twofold.sync -v VALUE: on a thread of its own; the result is the caller's. value is not terminated (len 0: none
	 * given). Must return soon after mount_stop or an unmount: mount_run waits for it. NULL: the volume is committed. */
	int (*sync)(void *ctx, const char *value, size_t len);
	/* fsync=peer|all: called after an fsync is done here; durable must call done(arg, err) once, later or at once, from any thread but not on this one
	 * (0: peers hold it too), or return an error and never call it. give_up: all of them are to be called now. NULL: fsync is done when it is done here. */
	int (*durable)(void *ctx, void (*done)(void *arg, int err), void *arg);
	void (*give_up)(void *ctx);
	void *ctx;
};

/* Mounts v at mountpoint, serves until it is unmounted (by anybody) or mount_stop, unmounts. A dead mount that a killed process left at
 * mountpoint is taken away first. The caller opens and closes v, and no other mount_run may run on v. Installs no signal handler but
 * one for SIGUSR2 that does nothing. 0; -ENOENT, -ENOTDIR, -EACCES, -EBUSY (mountpoint), -ENODEV (no /dev/fuse), -ENOMEM, -EIO; logged. */
int mount_run(struct volume *v, const char *mountpoint, const struct mount_options *o);

/* Asks mount_run to end: dirty pages are written back, then unmounted; where programs still use the mount it is detached, and they get
 * ENOTCONN. Returns at once; callable from any thread and from a signal handler, more than once. */
void mount_stop(struct mount *m);

/* The mount's absolute path; valid as long as m. */
const char *mount_point(const struct mount *m);
#endif
