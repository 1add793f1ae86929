/* What the files of the mount share. Not for other layers. */
#ifndef TWOFOLD_MOUNT_INTERNAL_H
#define TWOFOLD_MOUNT_INTERNAL_H
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include "cleanup.h"
#include "log.h"
#include "mount.h"

/* We are the only writer, and tell the kernel what peers change: it may keep entries and attributes for a day. */
#define CACHE_SECONDS 86400.0
#define IO_MAX (1u << 20)
#define COPY_MAX (1ull << 30) /* the answer of COPY_FILE_RANGE has 32 bits */

/* What a worker thread keeps between requests; freed when the thread ends. */
struct worker {
	uint32_t write_flags; /* raw flags of the WRITE being answered: libfuse passes on only one of them */
	uint8_t *buf;         /* IO_MAX bytes, owned */
};

/* One request or notification that must not run on a worker. */
struct job {
	struct job *next;
	void (*run)(struct mount *m, struct job *j);
	fuse_req_t req; /* parked request, or NULL */
	uint64_t ino, other, old_size, new_size;
	int64_t off;
	int whence; /* of a parked LSEEK; the error of a failed WRITE */
	uint64_t start_ns;
	struct extents ranges; /* bytes; owned */
	size_t name_len;
	char name[256];
};
/* A thread and its jobs, done in order. lock protects head, tail, closing, busy. */
struct job_queue {
	struct mount *m;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t wake, done; /* done: of the monotonic clock */
	struct job *head, *tail;
	uint64_t pushed, finished; /* jobs */
	bool closing;
	atomic_int tid; /* of the thread, as FUSE requests name it */
};

/* The inode that the notifier has open through our own mount (see self_open.c), 0: none. Written by the notifier before the system
 * call, read by workers that answer it; the requests of other threads never match its tid. */
struct self_change {
	_Atomic uint64_t ino;
};

struct mount {
	struct volume *v;
	struct stats *stats;
	const struct mount_options *o;
	struct fuse_session *se;
	char *path; /* absolute */
	dev_t dev;  /* set by the syncer before it calls ready */
	atomic_bool writeback; /* settled by INIT, on a thread of its own. Times of regular files are the kernel's then: it sends them by SETATTR */
	bool read_only, no_open, no_opendir;
	bool fallocate_times; /* the kernel counts a FALLOCATE as a change, as it does others under writeback */

	pthread_key_t worker_key;
	uint64_t init_unique;  /* unique of INIT while its reply is awaited, then 0; INIT is alone on the wire */
	uint32_t init_offered; /* flags the kernel offered */
	bool killpriv_v2;

	struct job_queue notifier; /* entries, attributes, contents: may wait for a directory's or a file's lock in the kernel */
	struct job_queue seeker;   /* parked LSEEKs: their callers hold the file's lock, so they never wait behind the notifier */
	struct self_change self;

	/* Calls that other threads make into the mount and that need workers to finish. */
	pthread_mutex_t guests_lock; /* protects guests, closed, commands, parked */
	pthread_cond_t guests_wake;
	unsigned guests, commands, parked; /* parked: fsyncs that wait for peers */
	bool closed;

	pthread_t loop_thread, syncer_thread;
	int wake_fd; /* eventfd: wakes the syncer */
	atomic_bool loop_ended, stopping;
	atomic_uint_least64_t direct_ns; /* when something changed that no SETATTR of the kernel will follow; 0: nothing */
	atomic_uint_least64_t direct_first_ns;
};

static inline struct mount *mount_of(fuse_req_t req) { return fuse_req_userdata(req); }
/* Replies exactly once with a negative errno; damage shows as EIO. */
void mount_fail(fuse_req_t req, int err);
/* The thread's own; NULL without memory. worker_buf: IO_MAX bytes. */
struct worker *worker_self(struct mount *m);
uint8_t *worker_buf(struct mount *m);

/* attr.c: struct stat as the options want it shown. */
void mount_stat(const struct mount *m, const struct inode_attr *a, struct stat *ret);
/* Replies with an entry and counts the look-up; taken back where the reply fails. */
void mount_reply_entry(fuse_req_t req, const struct inode_attr *a);
void mount_entry(const struct mount *m, const struct inode_attr *a, struct fuse_entry_param *ret);
/* The caller of a request as volume.h wants it; in_group is asked only where `gid` decides something. */
void mount_caller(fuse_req_t req, struct caller *ret);
bool mount_in_group(fuse_req_t req, uint32_t gid);

/* kernel_io.c */
extern const struct fuse_custom_io mount_io;

/* notify.c */
int queue_start(struct job_queue *q, struct mount *m);
void queue_stop(struct job_queue *q); /* finishes what is queued, joins; legal when never started */
/* Takes j. -ESHUTDOWN after queue_stop (j is then freed, a parked request answered with EIO). */
int queue_push(struct job_queue *q, struct job *j);
/* Waits until what is queued now has been done, at most so long. */
void queue_drain(struct job_queue *q, int timeout_ms);
void notify_observe(struct mount *m);
/* Fetches dirty pages and drops cached ones of ino from off on. Never on a worker. */
void notify_inval_pages(struct mount *m, uint64_t ino, int64_t off, int64_t len);
void notify_write_failed(struct mount *m, uint64_t ino, int err);
bool guest_enter(struct mount *m); /* false: the mount is ending */
void guest_leave(struct mount *m);
void guests_close(struct mount *m); /* no more, and waits for those inside */

/* self_open.c */
/* A descriptor of the mount's root that does not keep umount(2) from working, for a short time: as long as it is open, the filesystem
 * lives. Negative errno; -ENODEV where it is unmounted. */
int self_root(struct mount *m);
void self_apply(struct mount *m, const struct job *j, bool content);
bool self_is(fuse_req_t req, uint64_t ino);

/* syncer.c */
void *syncer_main(void *arg);
/* umount(2), or fusermount3 where we are not root. -EBUSY and others. */
int unmount_path(const char *path, bool lazily);
/* Something changed and the kernel will not tell when it is done: push after 100 ms of quiet, after 5 s at the latest. */
void syncer_direct_change(struct mount *m);

/* fsync.c: answers an fsync that is done here (err 0) or failed; parks it where peers are to have it first. */
void fsync_answer(struct mount *m, fuse_req_t req, uint64_t start_ns, int err);
void fsync_give_up(struct mount *m); /* answers those that are parked, and waits until they are */

/* ops_*.c */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *f);
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
	       unsigned flags);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t off_from, struct fuse_file_info *fi_from, fuse_ino_t to,
			off_t off_to, struct fuse_file_info *fi_to, size_t len, int flags);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
#endif
