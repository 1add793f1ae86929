/* The bytes of one file: inline or an object, byte-addressed, holes and partial pages handled (design-store 3, 4).
 *
 * A filedata is the *current* content of one node in this process. It knows nothing of nodes, names or the journal: the volume asks it for
 * a snapshot when it commits and tells it when that is durable. Thread-safe: a rwlock inside (readers and aligned overwrites
 * within the length share it, all that changes length, holes or partial pages excludes).
 * Up to INLINE_LIMIT bytes stay inline; past it the content moves into a new object (new object id, new local number); back only by truncate to 0. */
#ifndef TWOFOLD_FILEDATA_H
#define TWOFOLD_FILEDATA_H
#include "object.h"
#include "part.h"

#define INLINE_LIMIT 4096
struct filedata_env { /* one a volume, borrowed */
	struct object_store *objects;
	const struct keyring *keys;
	const struct env *env;
	struct stats *stats;
};
struct filedata;
/* From a committed content (copied) and, for an object, its local number; the object is opened at first use. Its pages are protected. NULL content:
 * empty and not committed yet, so dirty. -EUCLEAN: a content that no honest author makes; -ENOMEM. */
int filedata_new(const struct filedata_env *e, const struct content *c, uint64_t local, struct filedata **ret);
/* Opens its object now, so that its bytes stay readable here when its file is removed. Errors show at the first read. */
void filedata_hold(struct filedata *f);
void filedata_free(struct filedata *f); /* closes the object; removes nothing */

uint64_t filedata_length(struct filedata *f);
uint64_t filedata_blocks(struct filedata *f); /* of 512 bytes, without holes */
/* *ret_len short only at the end; -EBADMSG with *ret_bad_page where a page does not open (*ret_len bytes before it are good). */
int filedata_read(struct filedata *f, uint64_t off, void *buf, size_t len, size_t *ret_len, uint64_t *ret_bad_page);
/* All of these change the content and add to the changed ranges. -EAGAIN: the redo log is full, commit and try again. -EFBIG past 2^48 pages. */
int filedata_write(struct filedata *f, uint64_t off, const void *buf, size_t len, int64_t mtime_ns);
int filedata_truncate(struct filedata *f, uint64_t length, int64_t mtime_ns);
int filedata_fallocate(struct filedata *f, int mode, uint64_t off, uint64_t len, int64_t mtime_ns); /* 0 and KEEP_SIZE reserve nothing in holes beyond the length; 0 grows */
int filedata_seek(struct filedata *f, uint64_t off, int whence, uint64_t *ret);
/* May a range of `from` be copied without opening pages? No: nonces and ids differ. Copies through memory, holes stay holes. */
int filedata_copy(struct filedata *from, uint64_t off_from, struct filedata *to, uint64_t off_to, uint64_t len, int64_t mtime_ns, uint64_t *ret_len);

/* ---- commit ---- */
enum filedata_change { FILEDATA_SAME, FILEDATA_RANGES, FILEDATA_WHOLE };
struct filedata_snapshot {
	struct content content; /* owned: content_fini */
	uint64_t local;         /* 0: inline */
	enum filedata_change change; /* since the last snapshot that was confirmed */
	struct extents ranges;  /* changed pages, for FILEDATA_RANGES; at most 256 runs, else WHOLE */
};
bool filedata_dirty(struct filedata *f); /* changed since the last confirmed snapshot */
bool filedata_logged(struct filedata *f); /* see object_logged; takes no lock of order */
/* Was the object `local` written over after the snapshot that the journal's record of it is from? Then its bytes are no longer those of that
 * record, and nothing may be made from them: it is no base of a delta. Nobody changes the file meanwhile (the gate is held). */
bool filedata_overwritten(struct filedata *f, uint64_t local);
/* Content as it is now; protects its pages. The caller has excluded writers of this file (the gate) or accepts that later writes are not in it. */
int filedata_snapshot(struct filedata *f, struct filedata_snapshot *ret);
void filedata_snapshot_fini(struct filedata_snapshot *s);
/* Only overwritten within the confirmed content (so fdatasync of the redo log is enough for fsync)? */
bool filedata_only_overwritten(struct filedata *f);
/* filedata_flush of many at once, by one syncfs; a failure is returned by filedata_flush later. n > 0. */
void filedata_flush_many(struct filedata *const *f, uint32_t n);
int filedata_flush(struct filedata *f); /* data of the snapshot is on disk: object flush; the redo log is flushed by the caller once for all */
/* The snapshot's COMMIT is flushed: changed ranges up to it are forgotten, blocks no longer needed are given back, objects that it replaced are *retired*:
 * *ret_retired (0: none) is the local number of the object that the content before used; the caller keeps it as a base or removes it. */
void filedata_confirmed(struct filedata *f, uint64_t *ret_retired);
/* The snapshot did not get committed (error): changed ranges are kept for the next. */
void filedata_not_confirmed(struct filedata *f);
/* A peer's content takes its place (the caller holds the gate exclusively; ranges were already written through filedata_object). */
int filedata_replace(struct filedata *f, const struct content *c, uint64_t local);
/* The object behind it (opened, borrowed), or NULL with 0 for inline. */
int filedata_object(struct filedata *f, struct object **ret);
/* A handle of the object of its own (object_close), good also when the file gets another content meanwhile; NULL with 0 for inline. */
int filedata_object_handle(struct filedata *f, struct object **ret);
#endif
