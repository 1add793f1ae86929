/* Inside filedata*.c: the state of one file's bytes, and what its parts share.
 *
 * Invariants, whenever the lock is free:
 *   - an object's map has exactly pages_of(length) pages; `map` here mirrors it (the object keeps its own). Only while `appending` is not 0 may
 *     the object's have more.
 *   - bytes of the last page beyond the length may be anything (a write that was replayed after a cut leaves them; cutting a file
 *     inside a page leaves the rest as it is, so that a cut that never got committed has destroyed nothing). They are never
 *     shown, and whatever grows the file zeroes them first (I3). tail_clean says that they are known to be zeros.
 *   - a page inside a hole is never read. */
#ifndef TWOFOLD_FILEDATA_INTERNAL_H
#define TWOFOLD_FILEDATA_INTERNAL_H
#include "filedata.h"
#include <pthread.h>
#include <stdatomic.h>

#define LENGTH_MAX (UINT64_C(1) << 60) /* bytes: 2^48 pages */
#define CHANGED_RUNS_MAX 256
#define HOLES_MAX 32768 /* hole runs: they must fit into one record (RECORD_MAX) */

/* An open object and who needs it: the current content, a snapshot that is being committed, a flush that runs. */
struct objref {
	struct object *object;
	unsigned refs;     /* under changes.mutex */
	bool remove_after; /* no record ever named it: its file goes with the last reference */
};

/* What was changed since a point in time. */
struct changes {
	bool any;        /* the content differs, if only by its length */
	bool whole;      /* another object, inline bytes, or too many runs */
	bool structural; /* more than overwrites of present pages within the length */
	bool reclaim;    /* blocks can be given back once it is committed */
	bool logged;     /* an object was left of which the redo log holds something: see object_logged */
	struct extents pages;
};

struct filedata {
	const struct filedata_env *e;

	/* Readers and aligned overwrites of present pages share it; it protects all down to `mutex`. */
	pthread_rwlock_t lock;
	_Atomic uint64_t length, blocks; /* written with the lock held exclusively, read without it */
	uint8_t *bytes;                  /* inline content, owned, `room` bytes; NULL while an object or empty */
	size_t room;
	bool is_object;
	bool tail_clean, map_stale;
	struct id object_id;
	uint32_t epoch;
	uint64_t local;
	struct page_map map;
	struct root root; /* of the object while it is not open */
	_Atomic uint32_t appending; /* appends whose pages may be in the object's map and not in ours yet: see append_shared */

	/* Protects what follows; taken after lock. */
	pthread_mutex_t mutex;
	struct objref *_Atomic ref; /* NULL: not opened yet. Set under mutex, cleared with lock held exclusively */
	struct objref *snap_ref;    /* object of the snapshot in flight */
	struct changes changed;     /* since the last snapshot */
	struct changes in_flight;   /* of snapshots that are not confirmed yet */
	bool snapshot_open;
	uint64_t snap_local, confirmed_local;
	uint64_t spoiled_local; /* the last object of a record that was left after it was written over */
};

static inline uint64_t pages_of(uint64_t length) { return length / PAGE_LEN + (length % PAGE_LEN != 0); }

/* Shared or exclusive lock held. Opens the object where that was not done. */
int filedata_open_object(struct filedata *f, struct object **ret);
/* Drops a reference; may be NULL. */
void filedata_put_ref(struct filedata *f, struct objref *r);
/* Exclusive lock: replaces the mirror of the map by the object's own, and the length of the object's map by that of the file, as after a
 * failed write. */
int filedata_sync_map(struct filedata *f);
/* At least n bytes of room for inline content. 0 or -ENOMEM. */
int filedata_inline_room(struct filedata *f, size_t n);
void filedata_update_blocks(struct filedata *f);
/* Exclusive lock: the current object is not the content any more; it is removed where nobody can need it. The content becomes inline, empty. */
void filedata_drop_object(struct filedata *f);
/* Mutex held: the current object is left; notes whether its bytes are other ones than its record's. */
void filedata_note_left(struct filedata *f);
/* Pages [first, first + n) changed (n may be 0: only the length). Lock held, shared or exclusive. */
void filedata_mark(struct filedata *f, uint64_t first, uint64_t n, bool structural);
void changes_fini(struct changes *c);
void changes_add(struct changes *c, uint64_t first, uint64_t n);

/* filedata_write.c, all with the exclusive lock held. */
int filedata_zero_tail(struct filedata *f, int64_t mtime_ns);
int filedata_to_object(struct filedata *f, int64_t mtime_ns);
/* Makes room for one more hole in a list that is as long as a record can hold: the smallest are filled with zeros. */
int filedata_bound_holes(struct filedata *f, struct object *o, int64_t mtime_ns);
int filedata_set_length(struct filedata *f, uint64_t length, int64_t mtime_ns);
#endif
