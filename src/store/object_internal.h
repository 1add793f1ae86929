/* What the files of the store's objects and redo log share; nobody else includes it.
 *
 * Locks, in this order: apply_lock > table_lock > object.lock > redo.lock; leaves, never held with one another:
 * tags.lock, fds.lock, pool.lock.
 *
 * Exclusion of pages: a writer holds the range of pages that it changes (object.ranges) from before it takes nonces until
 * its pages are published; no other writer of one of these pages runs meanwhile, and none starts while one of them is being
 * written in place (pending.applying). The other way round a page may go in place while its range is held; the writer
 * then leaves an orphan, and nobody starts before that is gone. So old entries are stable for a writer, and data, entry and root of a page always
 * belong together. Readers take no range at first: a page that does not open is read again under its range before it is
 * called damaged. object_snapshot waits until no range is held. */
#ifndef TWOFOLD_OBJECT_INTERNAL_H
#define TWOFOLD_OBJECT_INTERNAL_H
#include "object.h"
#include "redo.h"

#include <pthread.h>
#include <stdatomic.h>

#define HEADER_PAGE_MAC 4064
#define OBJECT_FORMAT 1
#define GROUP_FILE_PAGES (GROUP_PAGES + 1)
#define PAGES_MAX (UINT64_C(1) << 47) /* page numbers are 48 bits in a nonce, and file offsets have to fit */
#define NONCE_RUN_MAX 65536           /* pages under one prefix */
#define NONCE_QUIET_NS 1000000000u
#define NAME_MAX_BYTES 128
/* Pages are freed when they are in place; those being sealed come on top of what the log can name. */
#define PENDING_NODES_MAX (PENDING_MAX_BYTES / PAGE_LEN + 16 * GROUP_PAGES)

static inline uint64_t group_of(uint64_t page) { return page / GROUP_PAGES; }
static inline off_t tags_off(uint64_t group) { return (off_t)((1 + group * GROUP_FILE_PAGES) * PAGE_LEN); }
static inline off_t entry_off(uint64_t page)
{
	return tags_off(group_of(page)) + (off_t)(page % GROUP_PAGES * TAG_ENTRY_LEN);
}
static inline off_t data_off(uint64_t page)
{
	return tags_off(group_of(page)) + (off_t)((1 + page % GROUP_PAGES) * PAGE_LEN);
}

/* A sealed page that stands in the log and waits for being written in place. */
struct pending {
	struct pending *next;  /* hash chain, or free list */
	struct pending *older; /* page of this replica that an uncommitted remote one covers; owned */
	uint64_t page, txn;
	uint8_t half;
	bool remote, applying;
	uint8_t entry[TAG_ENTRY_LEN];
	uint8_t sealed[PAGE_LEN];
};

struct pending_table { /* protected by the object's lock */
	struct pending **bucket;
	uint32_t n_buckets, n;
};

struct range { /* lives on its holder's stack */
	struct range *next;
	uint64_t first, end;
};

struct nonces {
	uint8_t prefix[NONCE_PREFIX_LEN];
	uint32_t used;
	uint64_t last_ns, fork_generation;
	bool drawn;
};

struct object {
	struct object_store *s;
	struct object *chain; /* table_lock */
	uint32_t users;      /* handles; table_lock */
	uint32_t refs;       /* of apply and sweep; table_lock */
	bool removed;        /* its file is unlinked: nothing of it is written or flushed any more; table_lock */
	struct id id;
	uint32_t epoch;
	uint64_t local; /* 0: incoming */
	uint64_t tag_key;
	char name[NAME_MAX_BYTES]; /* below the store's directory */
	struct page_sealer *sealer;

	pthread_mutex_t lock; /* all below, but the fd's */
	pthread_cond_t changed;
	struct range *ranges;
	uint32_t n_ranges, n_applying, snapshots_waiting;
	uint32_t n_orphans; /* being written in place and replaced meanwhile */
	struct page_map map;
	struct root root;
	struct extents protect;   /* pages that a committed or soon committed content needs */
	struct extents next;      /* what remains protected once next_txn is committed */
	uint64_t next_txn;
	bool has_next, shrunk;    /* shrunk: the map lost pages since the last snapshot */
	uint64_t min_txn;         /* redo records carry at least this: see object_snapshot */
	_Atomic bool logged;      /* the log holds local records of it since its last snapshot */
	struct pending_table pending;
	uint64_t log_generation[2]; /* of the halves that hold a record of it */
	struct nonces nonces;
	struct extents released; /* dropped from the map and perhaps still in the file */
	/* flush */
	uint64_t written_seq, flushed_seq;
	bool flushing;
	bool in_place; /* was written in place since a half was emptied: flushed before the next one is */
	struct extents dirty, flushing_pages, failed;

	/* descriptor; fds.lock */
	int fd;
	uint32_t fd_users;
	bool fd_pinned; /* something is not flushed: a descriptor opened later would not hear of its failure */
	struct object *fd_prev, *fd_next;
};

#define TABLE_BUCKETS 4096
struct tag_cache;

struct object_store {
	int dirfd; /* borrowed */
	const struct keyring *k;
	const struct env *env;
	struct stats *st;
	bool read_only;
	_Atomic uint64_t txn, committed;
	_Atomic uint64_t removed_in[4]; /* a bit for each folder of objects/ that lost a file since it was last synced */

	pthread_mutex_t table_lock;
	struct object *table[TABLE_BUCKETS];
	uint64_t next_local; /* 0: not known yet */
	uint64_t incoming_count;

	pthread_mutex_t apply_lock; /* one at a time writes in place or empties a half */
	bool worker_runs, worker_stops; /* redo.lock */
	uint64_t worker_fork_generation;
	pthread_t worker;
	struct redo redo;

	struct tag_cache *tags;

	pthread_mutex_t fds_lock;
	struct object *fds_newest, *fds_oldest;
	uint32_t fds_open, fds_max;

	pthread_mutex_t pool_lock;
	struct pending *free_nodes;
	uint32_t n_free_nodes;
	_Atomic uint64_t nodes_used;
	void *free_bufs; /* each GROUP_PAGES * PAGE_LEN; the first word links */
	uint32_t n_free_bufs;
};

/* object.c */
extern _Atomic uint64_t object_fork_generation;
void object_ref(struct object *o);        /* table_lock held */
void object_unref(struct object *o);      /* table_lock not held */
void object_sweep(struct object_store *s); /* frees closed objects that are settled */
int object_header_write(struct object *o, int fd);
int object_header_check(const struct object_store *s, int fd, const struct id *object, uint32_t epoch);
struct object *object_new(struct object_store *s, uint64_t local, const char *name, const struct id *id, uint32_t epoch);
void object_table_add(struct object *o); /* table_lock held */
void object_table_rename(struct object *o, uint64_t local, const char *name);
void object_local_name(uint64_t local, char ret[static NAME_MAX_BYTES]);
void object_free(struct object *o); /* not in the table any more, no user */
/* Collects up to max objects that may have pending or unsynced pages, each with a reference. from: bucket to go on with. */
uint32_t object_collect(struct object_store *s, uint32_t *from, struct object **ret, uint32_t max);

/* object_range.c: all with the object's lock held */
void range_take(struct object *o, struct range *r, uint64_t first, uint64_t n);
void range_give(struct object *o, struct range *r);
void nonces_take(struct object *o, uint32_t n, uint8_t ret_prefix[static NONCE_PREFIX_LEN], uint64_t *ret_counter);
void protect_settle(struct object *o);
uint64_t record_txn(struct object *o);
bool map_has(const struct page_map *m, uint64_t page);
int map_present(const struct page_map *m, struct extents *ret);

/* object_fd.c */
int fd_get(struct object *o, int *ret_fd); /* until fd_put */
void fd_put(struct object *o);
void fd_pin(struct object *o, bool pinned);
void fd_close(struct object *o);
int full_pwritev(int fd, struct iovec *iov, int n, off_t off); /* iov is changed */
int full_pwrite(int fd, const void *p, size_t len, off_t off);
ssize_t full_pread(int fd, void *p, size_t len, off_t off); /* bytes, short only at the end of the file; or -errno */
void mark_dirty(struct object *o, uint64_t first, uint64_t n); /* lock held */

void mark_failed(struct object *o, uint64_t first, uint64_t n);

/* object_tags.c */
struct tag_cache *tag_cache_new(uint32_t pages);
void tag_cache_free(struct tag_cache *c);
/* Entries of n pages of one group; entries beyond the file are zeros. */
int tags_read(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries);
/* After the entries were written to the file. */
void tags_written(struct object *o, uint64_t first, uint32_t n, const uint8_t *entries);
/* No page of the group is in use or being written: its tag page need not be read from the file. Called before the first of its writers
 * starts, under the object's lock, so that those who come after it find the page and change it. */
void tags_fresh(struct object *o, uint64_t group);
void tags_forget(struct object *o, uint64_t group);

/* object_pending.c */
struct pending *node_get(struct object_store *s);
void node_put(struct object_store *s, struct pending *p); /* with its older ones; NULL is legal */
void nodes_trim(struct object_store *s); /* most of the free ones go back to the system */
struct pending *pending_find(const struct pending_table *t, uint64_t page);
int pending_reserve(struct pending_table *t, uint32_t extra);
/* Takes p; returns the node of the same page that it replaces, or NULL. */
struct pending *pending_put(struct pending_table *t, struct pending *p);
struct pending *pending_take(struct pending_table *t, uint64_t page);
/* Frees a node that was taken out of the object's table; what is being written in place is left to who does that. */
void pending_drop(struct object *o, struct pending *p);
void pending_fini(struct object_store *s, struct pending_table *t);
void *group_buf_get(struct object_store *s);
void group_buf_put(struct object_store *s, void *p);

/* object_write.c */
int object_write_entries(struct object *o, int fd, uint64_t first, uint32_t n, const uint8_t *entries);

/* object_read.c: entries of pages of one group that are all in use, their range held */
int object_entries_held(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries);

/* redo_apply.c */
int redo_make_room(struct object_store *s); /* 0: try again; -EAGAIN: needs a commit; or an error */
void redo_worker_stop(struct object_store *s);
/* Writes n sealed pages in place: sorted by page. */
int redo_write_in_place(struct object *o, struct pending **p, uint32_t n);
#endif
