/* Objects (sealed contents) and the redo log (design-store 3 and 4).
 *
 * An object is a file objects/XX/LOCAL16HEX: header page, then groups of one tag page and 128 data pages. Page p lies in
 * group p/128: tag page at file page 1 + 129*(p/128), data at 1 + 129*(p/128) + 1 + p%128.
 * Header page: magic "TWFOBJ1\0" | format u32 | cipher u32 | volume 16 | object id 16 | epoch u32 | zeros | at 4064 keyed MAC.
 *
 * What is where: an object has a *map*: pages [0, pages) without `holes` are present. The *durable* map is the one that a
 * committed content record names (or is about to name): its present pages are protected: overwriting them goes through the
 * redo log and stays in memory as pending until the log is flushed, then it is written in place (I1). Pages that are not protected are
 * written directly. Reads see pending pages first.
 *
 * All functions are thread-safe; sealing and opening run outside the object's lock. Locks inside: object, then store-wide redo. */
#ifndef TWOFOLD_OBJECT_H
#define TWOFOLD_OBJECT_H
#include "env.h"
#include "extents.h"
#include "seal.h"
#include "stats.h"

#define GROUP_PAGES 128
#define REDO_BYTES (64u << 20)      /* preallocated length of STORE/redo */
#define PENDING_MAX_BYTES (64u << 20)

struct object_store;
/* dirfd is borrowed and must stay open; k, env, st too. Opens (or makes and preallocates) STORE/redo; replay is separate.
 * read_only: nothing is written, replay is refused with -EROFS where the log is not empty. */
int object_store_open(int dirfd, const struct keyring *k, const struct env *env, struct stats *st, bool read_only,
		      struct object_store **ret);
void object_store_close(struct object_store *s); /* all objects must be closed */
/* Name of the transaction that is open now: redo records carry it. The volume sets it at open and after each commit. */
void object_store_set_txn(struct object_store *s, uint64_t txn);

struct page_map {
	uint64_t pages;
	struct extents holes;
};

struct object;
/* Creates objects/../local (must not exist) with an empty map. Nothing is flushed. 0, -EEXIST, -ENOSPC, ... */
int object_create(struct object_store *s, uint64_t local, const struct id *object, uint32_t epoch, struct object **ret);
/* Opens it; its map and durable map become `map` (copied), its root `root`. 0; -ENOENT; -EBADMSG (header does not authenticate);
 * -EUCLEAN (another volume, object id, format or cipher than asked). */
int object_open(struct object_store *s, uint64_t local, const struct id *object, uint32_t epoch, const struct page_map *map,
		const struct root *root, struct object **ret);
/* Drops the handle. An object with pages that are pending, not flushed, failed or not covered by a commit stays known inside the store
 * until that is settled; opening it again meanwhile returns it with what it still protects (its map becomes `map`). Opened
 * twice at once, both handles are the same object, and the second open's map is not looked at. */
void object_close(struct object *o);
bool object_is_there(struct object_store *s, uint64_t local); /* its file; what still has it open may not notice that it is gone */
int object_remove(struct object_store *s, uint64_t local); /* unlink; 0 also where it is not there */
/* Removals so far outlast a power cut: until then nothing may forget that these files were to go. 0 or -errno. */
int object_store_sync_removals(struct object_store *s);
uint64_t object_local(const struct object *o);
const struct id *object_id(const struct object *o);
uint64_t object_store_next_local(struct object_store *s); /* never used before (scans names at open, then counts) */

/* Plaintext of present pages [first, first+n): n*PAGE_LEN bytes. Holes and pages beyond the map are zeros in buf (the caller
 * decides from the map whether that is right; a zeroed page that the map says is present is -EBADMSG, never zeros).
 * 0; -EBADMSG (auth failure: *ret_bad = first bad page; pages before it are good); -EIO and other errno of pread. */
int object_read(struct object *o, uint64_t first, uint32_t n, uint8_t *buf, uint64_t *ret_bad);
/* Seals and writes n whole pages of plaintext (the last one already padded). Extends the map (pages between the old end and
 * first become holes), takes holes away, keeps the root. mtime_ns goes into redo records.
 * Works in steps of a group (128 pages): of a longer request that fails the first groups may be written; writing them again does no harm.
 * 0; -EAGAIN: the redo log is full, commit (object_store_committed) and try again; -ENOSPC, -EIO. */
int object_write(struct object *o, uint64_t first, uint32_t n, const uint8_t *plain, int64_t mtime_ns);
/* Map to `pages` pages; dropped pages leave the root, their pending ones are cancelled (a cancel record in the log). Nothing is cut
 * off the file now: see object_reclaim. Growing makes a hole at the end. 0, -EAGAIN, -ENOMEM. */
int object_resize(struct object *o, uint64_t pages);
int object_punch(struct object *o, uint64_t first, uint64_t n); /* the same, making holes */
void object_map(struct object *o, struct page_map *ret, struct root *ret_root); /* copies; ret->holes is the caller's */
/* object_map and object_protect at one moment, which is what a content record needs: a write between the two would be in neither. The
 * redo records of the object carry a transaction after the open one from here on, so every transaction in which the object was written
 * must contain a snapshot of it, or an earlier one. 0, -ENOMEM. ret NULL: as object_protect. */
int object_snapshot(struct object *o, struct page_map *ret, struct root *ret_root);
/* The redo log holds pages or cuts of it that no snapshot has: the next COMMIT, whatever it is for, must take one along. Else replay would put these
 * pages in place as committed ones, and the root of the content would not count them. Callable without any lock. */
bool object_logged(const struct object *o);
void object_not_committed(struct object *o); /* the last snapshot went into no COMMIT: as if it had not been taken */
/* The map that is about to be committed is protected from now on: called with the snapshot that goes into a record, before its flush. */
int object_protect(struct object *o);
/* Direct writes are on disk when it returns 0 (fdatasync; shared by all that wait). Sticky error: after a failure every later call fails
 * with -EIO until the pages concerned are written again. */
int object_flush(struct object *o);
/* The same for many objects (no one twice) with one syncfs of the store's filesystem: an fdatasync of each costs the disk a flush of its own. Errors
 * stay noted in the objects: object_flush returns them. The handles are borrowed. */
void object_store_flush_many(struct object_store *s, struct object *const *o, uint32_t n);
bool object_is_flushed(struct object *o); /* nothing direct was written since the last flush */
/* Gives blocks of the file back that the durable map no longer needs (ftruncate, FALLOC_FL_PUNCH_HOLE): only after the COMMIT that
 * no longer names them is flushed. */
int object_reclaim(struct object *o);

/* Redo. Flush: one fdatasync of the log shared by all that wait. Also before every COMMIT that names overwritten, cut or punched
 * contents (cheap where nothing was appended). */
int object_store_flush_redo(struct object_store *s);
/* COMMIT of transaction txn is flushed: records up to it may be emptied after an fdatasync of their objects. Called by the volume
 * after each commit; does the in-place writing when the log or the pending memory is half full or idle says so. */
int object_store_committed(struct object_store *s, uint64_t txn);
/* In place now, objects synced, log emptied (unmount, idle). -EAGAIN: the log's last transaction is not committed, all else was done;
 * -EUCLEAN: the log was not empty at open and was not replayed. */
int object_store_checkpoint(struct object_store *s);
/* True where a full half of the log waits for nothing but a commit: the sooner it comes the less writers wait. Cheap. */
bool object_store_wants_commit(struct object_store *s);
/* The largest transaction in the log as found at open, 0 where it was empty. Transactions that are committed from now on must be
 * numbered above it: what `changed` told is applied a second time where replay meets it again as not committed. */
uint64_t object_store_log_txn(struct object_store *s);
/* Bytes in the log, pending bytes. */
void object_store_usage(struct object_store *s, uint64_t *ret_log_bytes, uint64_t *ret_pending_bytes);

struct redo_callbacks {
	/* What the journal says of a local number. 0, or -ENOENT: its records are dropped. ret_map->holes is freed by the caller of it. */
	int (*object_info)(void *ctx, uint64_t local, struct id *ret_object, uint32_t *ret_epoch, struct page_map *ret_map,
			   struct root *ret_root);
	/* Records of an uncommitted transaction changed the pages of this object: its content needs a new part with this root and
	 * mtime; changed pages are listed. 0, or an error that ends the replay. */
	int (*changed)(void *ctx, uint64_t local, const struct root *root, int64_t mtime_ns, const struct extents *pages);
	void *ctx;
};
/* Replays the log in order onto the objects (idempotent), syncs them, calls `changed` for those of transactions > committed_txn.
 * Records of kind remote of transactions > committed_txn are dropped, as are a torn last record, records of unknown objects,
 * cancelled pages and pages beyond the committed map. The log is emptied by object_store_checkpoint, which the volume calls after it
 * has committed what `changed` told it. 0 or a negative errno (-EUCLEAN: damaged before the end). */
int object_store_replay(struct object_store *s, uint64_t committed_txn, const struct redo_callbacks *cb);

/* Sealed transfer (replication). entries: n*32 bytes, sealed: n*4096. Pages must be present. Not opened here. */
int object_read_sealed(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries, uint8_t *ret_sealed);
int object_read_entries(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries);
/* Stores pages as a peer sealed them, after each was opened (so -EBADMSG: nothing written). Not protected ones go directly into the file;
 * protected ones become redo records of kind remote in transaction txn: in memory visible at once, in place only after
 * object_store_committed(txn). Extends the map like object_write. */
int object_write_sealed(struct object *o, uint64_t first, uint32_t n, const uint8_t *entries, const uint8_t *sealed, int64_t mtime_ns);
/* An object that is arriving: incoming/NAME (no slash), same format. opened = it was there already: *ret_pages leading pages that
 * open are kept for resuming, its map is set to them. */
int object_incoming(struct object_store *s, const char *name, const struct id *object, uint32_t epoch, struct object **ret,
		    uint64_t *ret_pages);
int object_adopt(struct object *o, uint64_t local); /* flush, rename into objects/; its name is durable after object_store_flush_names */
/* The names that these adopted objects got. One flush for all. */
int object_store_flush_names(struct object_store *s, const uint64_t *local, uint32_t n);
int object_incoming_clear(struct object_store *s, const char *keep_prefix); /* removes what is in incoming/; NULL: all */
/* A whole copy under a new local number and, where new_object is not NULL, a new object id (pages are then sealed anew). Same
 * object id: sealed pages as they are, FICLONE where the filesystem can. */
int object_copy(struct object *o, uint64_t local, const struct id *new_object, struct object **ret);
#endif
