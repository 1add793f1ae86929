/* One open replica: its tree, its contents, its journal. Knows neither FUSE nor sockets (I10): the mount, the replication, the
 * command line and the tests all drive it through this header (and replicate.h).
 *
 * Threads: every function may be called from any thread, but for open and close. Locks, outermost first:
 *   commit mutex -> gate (rwlock: what changes something holds it shared, commit's and apply's critical part exclusively)
 *   -> a file's data lock (filedata) -> tree mutex (caches, journal.db) -> object -> redo.
 * No call of an observer is made with any of them held. Errors are negative errno; POSIX's own for tree operations.
 * EIO to a program for data that does not authenticate: functions here return -EBADMSG (damaged), the mount maps it. */
#ifndef TWOFOLD_VOLUME_H
#define TWOFOLD_VOLUME_H
#include <sys/stat.h>
#include <sys/statvfs.h>
#include "env.h"
#include "header.h"
#include "part.h"
#include "stats.h"

struct volume;
enum fsync_mode { FSYNC_LOCAL, FSYNC_PEER, FSYNC_ALL };
struct volume_options {
	const struct env *env; /* NULL: env_real */
	unsigned commit_ms;    /* 0: 1000 */
	bool read_only;
	bool background;       /* a committer thread runs; false: only volume_commit commits (tests, simulation) */
	bool hold_deletions;   /* past half of the names within a day further deletions of peers are held */
	int lock_wait_ms;      /* wait for STORE/lock, e.g. 10,000 at mount */
	enum fsync_mode fsync; /* other than FSYNC_LOCAL: volume_fsync always commits, so that peers can be waited for */
};

/* Makes a new store with a fresh volume (or, for a joiner: the volume given in h and master). h: name, cipher, slots
 * (slot[0] made by the caller) and, where zero, volume id and replica are drawn. The root directory gets mode 0755, uid and gid 0 in
 * a new volume only (first_replica). 0; -EEXIST, -ENOTEMPTY; nothing half-made stays. */
int volume_create(const char *path, struct header *h, const uint8_t master[static KEY_LEN], bool first_replica, const struct env *env);
/* secret: passphrase or key file bytes. 0; -EBUSY (in use); -ENOKEY (wrong); -EUCLEAN (not a store, damaged; logged with what); -EROFS. Replays the redo
 * log and removes what the last stop left. */
int volume_open(const char *path, const struct volume_options *o, const void *secret, size_t secret_len, enum slot_kind kind, struct volume **ret);
/* Commits, checkpoints, closes. The error of the last commit, if any (then the changes since the commit before are lost, which is
 * logged and noted in STORE/failed); -EIO: an earlier flush failed, see volume_is_read_only. */
int volume_close(struct volume *v);
/* As after kill -9: drops everything in memory, closes descriptors, commits nothing (tests). */
void volume_abandon(struct volume *v);

const struct header *volume_header(const struct volume *v);
const struct keyring *volume_keyring(const struct volume *v);
struct stats *volume_stats(const struct volume *v);
const char *volume_path(const struct volume *v);
bool volume_is_read_only(const struct volume *v); /* asked for, or after a failed flush of the journal or the redo log */

/* ---- the tree, by inode number (row number of the node; 1 is the root; never reused) ---- */
typedef uint64_t inum;
#define ROOT_INUM 1
struct inode_attr {
	inum ino;
	uint32_t mode, uid, gid, nlink;
	uint64_t rdev, size, blocks; /* blocks of 512 bytes, holes not counted */
	struct timespec64 atime, mtime, ctime;
};
struct caller {
	uint32_t uid, gid, umask; /* umask only where no default ACL applies */
	bool in_group;            /* of setgid decisions: the caller is in the file's group or has CAP_FSETID */
};
int volume_lookup(struct volume *v, inum parent, const char *name, size_t len, struct inode_attr *ret); /* -ENOENT, -ENAMETOOLONG */
int volume_lookup_parent(struct volume *v, inum dir, struct inode_attr *ret); /* "..": of a directory; the root's is itself */
int volume_getattr(struct volume *v, inum ino, struct inode_attr *ret);       /* -ESTALE: no such inode any more */
/* Looked-up references (FUSE lookup counts). ref: each reply that hands out an inode; forget takes n back. An unlinked node lives until
 * its count is 0 (then its content is removed). */
void volume_ref(struct volume *v, inum ino);
void volume_forget(struct volume *v, inum ino, uint64_t n);
/* Is its look-up count 0? Then the kernel knows nothing of it. */
bool volume_is_referenced(struct volume *v, inum ino);

enum set_mask { SET_MODE = 1, SET_UID = 2, SET_GID = 4, SET_SIZE = 8, SET_ATIME = 16, SET_MTIME = 32, SET_CTIME = 64, SET_KILL_SUIDGID = 128 };
struct set_attr {
	unsigned mask;
	uint32_t mode, uid, gid;
	uint64_t size;
	struct timespec64 atime, mtime, ctime; /* "now" is resolved by the caller */
};
/* chmod, chown, truncate, utimens as one. Updates the ACL mask on chmod, drops security.capability on chown and truncate. */
int volume_setattr(struct volume *v, inum ino, const struct set_attr *s, const struct caller *c, struct inode_attr *ret);
/* create, mkdir, mknod, symlink (target NULL but for symlinks). mode with type. Inherits a default ACL, the group of a setgid directory.
 * -EEXIST, -ENOENT (parent removed), -ENOSPC, -EROFS, ... */
int volume_make(struct volume *v, inum parent, const char *name, size_t len, uint32_t mode, uint64_t rdev, const char *target,
		const struct caller *c, struct inode_attr *ret);
int volume_link(struct volume *v, inum ino, inum parent, const char *name, size_t len, struct inode_attr *ret); /* -EMLINK past 65,000 */
int volume_unlink(struct volume *v, inum parent, const char *name, size_t len); /* -EISDIR */
int volume_rmdir(struct volume *v, inum parent, const char *name, size_t len);  /* -ENOTDIR, -ENOTEMPTY */
/* flags: 0, RENAME_NOREPLACE, RENAME_EXCHANGE (others -EINVAL). */
int volume_rename(struct volume *v, inum parent, const char *name, size_t len, inum new_parent, const char *new_name, size_t new_len, unsigned flags);
int volume_readlink(struct volume *v, inum ino, char *buf, size_t size, size_t *ret_len);
/* Entries after `cookie` (0: from the start) in the order of their cookies, without "." and "..". fn returns false to stop (that entry counts as
 * not delivered). attr is filled where with_attr. fn runs outside all locks. */
typedef bool readdir_fn(void *ctx, const char *name, size_t len, uint64_t cookie, const struct inode_attr *attr);
int volume_readdir(struct volume *v, inum dir, uint64_t cookie, bool with_attr, readdir_fn *fn, void *ctx);

/* Reads up to len bytes; *ret_len is short only at the end. -EBADMSG: a damaged page in it (what comes before it was read if *ret_len > 0). */
int volume_read(struct volume *v, inum ino, uint64_t off, void *buf, size_t len, size_t *ret_len);
/* set_times: mtime and ctime become now (false: write-back from the kernel's cache, which sends times itself). kill_suidgid: FUSE_WRITE_KILL_SUIDGID.
 * All or nothing but for -ENOSPC and -EIO. */
int volume_write(struct volume *v, inum ino, uint64_t off, const void *buf, size_t len, bool set_times, bool kill_suidgid);
int volume_fallocate(struct volume *v, inum ino, int mode, uint64_t off, uint64_t len, bool set_times); /* 0, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE; others -EOPNOTSUPP */
int volume_seek(struct volume *v, inum ino, uint64_t off, int whence, uint64_t *ret);   /* SEEK_DATA, SEEK_HOLE; -ENXIO */
int volume_copy_range(struct volume *v, inum from, uint64_t off_from, inum to, uint64_t off_to, uint64_t len, bool set_times,
		      uint64_t *ret_len);

int volume_getxattr(struct volume *v, inum ino, const char *name, void *buf, size_t size, size_t *ret_len); /* size 0: length only; -ERANGE, -ENODATA */
int volume_setxattr(struct volume *v, inum ino, const char *name, const void *value, size_t len, int flags, const struct caller *c); /* ACLs too */
int volume_removexattr(struct volume *v, inum ino, const char *name);
int volume_listxattr(struct volume *v, inum ino, char *buf, size_t size, size_t *ret_len);
int volume_statfs(struct volume *v, struct statvfs *ret);

/* Durability. fsync: this file's content, its names and its journal entry survive a power cut (I5); fsync of a directory: its names.
 * A failed flush is reported once to each waiting caller. */
int volume_fsync(struct volume *v, inum ino, bool datasync);
int volume_commit(struct volume *v); /* everything, flushed (sync, unmount) */
/* The file was (probably) closed or is quiet: commit and announce it soon (within 20 ms), coalesced. For 0: names changed. */
void volume_push_soon(struct volume *v, inum ino);

/* ---- what programs here must be told ---- */
struct volume_observer {
	/* Before a peer's content or deletion of this inode is applied: bring the kernel's dirty pages home (may block). No locks held. */
	void (*before_change)(void *ctx, inum ino);
	/* After it is visible to requests. Names added, removed or replaced in a directory: */
	void (*entry_changed)(void *ctx, inum parent, const char *name, size_t len);
	void (*dir_changed)(void *ctx, inum dir);                      /* its listing and attributes */
	void (*attr_changed)(void *ctx, inum ino);                     /* attributes only */
	/* Content changed in place: ranges of bytes (n extents in bytes); the size may have grown. times are those of the peer. */
	void (*content_changed)(void *ctx, inum ino, uint64_t old_size, uint64_t new_size, const struct extent *bytes, uint32_t n);
	/* The names of `old` show `fresh` from now on (a new inode number); open handles of `old` keep the old content. */
	void (*replaced)(void *ctx, inum old, inum fresh);
	/* After all of one batch: returns once programs see what was said, or after a bounded time. Only then the batch is acknowledged, so that who
	 * waits for it (sync) finds it in the peer's mount. */
	void (*told)(void *ctx);
	void *ctx;
};
/* NULL: none; copied. Waits for calls of the one before: not from inside of one. */
void volume_set_observer(struct volume *v, const struct volume_observer *o);

/* Shown path of an inode below the root ("a/b", "" for the root), malloc'ed. -ENOENT where it has none. */
int volume_path_of(struct volume *v, inum ino, char **ret);
/* Walks a path. */
int volume_resolve(struct volume *v, const char *path, struct inode_attr *ret);

/* ---- what is shown of state ---- */
enum file_state { FILE_IN_SYNC, FILE_PENDING, FILE_CONFLICT, FILE_DAMAGED };
/* Text for user.twofold.state: "in-sync", "pending: NAME, NAME", "conflict", "damaged". Appended to out. */
int volume_file_state(struct volume *v, inum ino, struct buf *out);
int volume_file_version(struct volume *v, inum ino, struct buf *out); /* "REPLICA:COUNTER" of content (or attributes), hex replica */
/* Names of the peers that lack something of this file, joined by ", "; empty where none does. */
int volume_file_lacking(struct volume *v, inum ino, struct buf *out);
/* What the delta of its last change need not send: "BYTES of LENGTH" ("0 of LENGTH" where the whole content goes). */
int volume_file_delta(struct volume *v, inum ino, struct buf *out);
/* Files that are known to be damaged now; path "" where one has no name. At most 1000. fn returns false to stop. */
typedef bool damaged_fn(void *ctx, const char *path);
int volume_damaged(struct volume *v, damaged_fn *fn, void *ctx);
void volume_mark_damaged(struct volume *v, inum ino, uint64_t page); /* logs; shown as damaged until a read of the page succeeds */

/* Per peer, set by the replication layer, read by xattrs, status and metrics. */
enum peer_state { PEER_DISCONNECTED, PEER_CONNECTING, PEER_IN_SYNC, PEER_SENDING, PEER_RECEIVING, PEER_CATCHING_UP, PEER_PAUSED, PEER_REFUSED };
struct peer_status {
	uint64_t replica;
	char name[33];
	char address[256];
	enum peer_state state;
	uint64_t backlog_parts, backlog_files, backlog_bytes; /* what it lacks, as far as known; files and bytes without what was sent */
	uint64_t oldest_ns;  /* wall clock of the oldest change it lacks; 0: none */
	uint64_t lag_ns;     /* of the last acknowledged batch: from commit to ACK */
	uint64_t rate_bytes; /* per second, sent and received, over the last seconds */
	uint64_t sent_bytes, received_bytes, saved_bytes;
	uint64_t connected_ns; /* wall clock since when; 0 */
	uint64_t waits, waits_ns; /* calls of fsync that wait for it, and for how long the oldest of them does */
	char last_error[200];
};
const char *peer_state_name(enum peer_state s);
bool peer_is_connected(const struct peer_status *s);
/* Age of the oldest change that it lacks, at this time of the wall clock; 0: it lacks nothing. */
uint64_t peer_age_ns(const struct peer_status *s, uint64_t now_wall_ns);
/* Seconds until it has all, at the rate of the last seconds. False: that cannot be told, as nothing moves. */
bool peer_eta_s(const struct peer_status *s, uint64_t *ret);
void volume_set_peer_status(struct volume *v, const struct peer_status *s);
void volume_drop_peer_status(struct volume *v, uint64_t replica);
/* Copies of all, malloc'ed array. */
int volume_peer_statuses(struct volume *v, struct peer_status **ret, uint32_t *ret_n);

/* History for the report: one sample a peer and minute, bounded (a day by the minute, 30 days by the quarter of an hour). */
struct sample {
	uint64_t at_s; /* wall clock */
	uint64_t peer;
	uint64_t backlog_files, backlog_bytes, lag_us, sent_bytes, received_bytes;
};
typedef bool sample_fn(void *ctx, const struct sample *s);
int volume_put_samples(struct volume *v, const struct sample *s, uint32_t n); /* commits */
int volume_samples(struct volume *v, uint64_t after_s, sample_fn *fn, void *ctx); /* in order of time; fn runs under the tree lock: it only copies */

/* The journal, readable: calls fn for each record with local sequence > after, in order, up to the last COMMIT. */
struct journal_entry {
	uint64_t seq;
	uint8_t kind;
	struct id id;
	struct stamp stamp;
	const char *path;   /* shown path, or NULL */
	const char *detail; /* "create", "rename from ...", "content 3 pages", ... */
};
typedef bool journal_fn(void *ctx, const struct journal_entry *e);
int volume_log(struct volume *v, uint64_t after_seq, journal_fn *fn, void *ctx);
/* Conflict copies and displaced names now shown: fn gets path shown and path recorded. */
typedef bool conflict_fn(void *ctx, const char *shown, const char *of, struct stamp s, const char *replica_name);
int volume_conflicts(struct volume *v, conflict_fn *fn, void *ctx);
/* path: a copy, or a file that has copies (below the root). keep: it is the file from now on, the other versions are removed (*ret_removed of them). restore: a copy
 * and its file change names, both stay. They commit. -ENOENT: no such conflict; what rename and unlink say. */
int volume_conflict_keep(struct volume *v, const char *path, uint32_t *ret_removed);
int volume_conflict_restore(struct volume *v, const char *path);
/* Deletions of peers that are held: known here, but shown as if they were not there, until volume_held_end. */
uint32_t volume_held(struct volume *v);
/* Carries them out here and, by a part that says so, everywhere; or (undo) writes the names down again, everywhere. -ENOENT: none are held. */
int volume_held_end(struct volume *v, bool undo);
/* 32 bytes that are equal on two replicas exactly where their trees are (root `live`). */
int volume_live_root(struct volume *v, struct root *ret);
#endif
