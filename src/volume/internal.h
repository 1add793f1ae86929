/* Inside of the volume layer: the tree in memory, its locks, and who implements what. Nothing outside src/volume includes this.
 *
 * The tree in memory (cache.c) is an overlay on journal.db: nodes (struct vnode) and links (struct vlink) that are cached; what was changed
 * since the last COMMIT is *dirty*, stays in memory and is listed. Namespace operations change memory only. Only commit writes SQL: each
 * dirty part takes its dot there, is sealed and written. So a COMMIT that was rolled back loses nothing: the next one writes it again.
 * A row that is cached counts as memory says; SQL is asked only for what is not cached.
 *
 * Locks, outermost first:
 *   commit_mu -> gate -> vnode's size lock (size_mu[]) -> filedata's own -> tree_mu -> object -> redo
 *   gate: whoever changes anything holds it shared for the whole operation; commit's critical part and apply hold it exclusively. So with the
 *   gate held exclusively nothing changes but caches (loads, evictions), and the dirty lists stand still.
 *   tree_mu: all of struct volume marked (tree), all vnodes and vlinks, journal.db. Never held over filedata calls, disk flushes or observers.
 * Pointers to vnodes and vlinks are valid while tree_mu is held; across unlocking only with a pin (vnode.pins) or while dirty and the gate is
 * held. Eviction happens in tree_unlock only. */
#ifndef TWOFOLD_VOLUME_INTERNAL_H
#define TWOFOLD_VOLUME_INTERNAL_H
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "filedata.h"
#include "journal.h"
#include "log.h"
#include "merge.h"
#include "replicate.h"
#include "shown.h"
#include "slab.h"
#include "volume.h"

/* ---- intrusive lists ---- */
struct list {
	struct list *prev, *next;
};
#define LIST_OF(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
static inline void list_init(struct list *l) { l->prev = l->next = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }
static inline bool list_linked(const struct list *l) { return l->next && l->next != l; }
static inline void list_add(struct list *head, struct list *n) /* at the end */
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	n->prev = n->next = n;
}

/* ---- one versioned part in memory ---- */
struct slot {
	struct stamp stamp;   /* of the version held (zero dot: none yet) */
	struct vector vector; /* owned; that version's vector */
	struct dot stored;    /* dot of the version that stands in journal.db (zero: none) */
	struct buf arrived;   /* p: the version held is a peer's, verbatim, and not in journal.db yet: commit writes it as it is */
	bool dirty;           /* changed here since: commit makes a new version (then arrived is empty) */
	struct stamp taken;   /* inside of a commit only */
};
static inline bool slot_pending(const struct slot *s) { return s->dirty || s->arrived.p; }
void slot_fini(struct slot *s);

/* A content held beside the largest one. */
struct extra {
	struct slot slot;
	struct dots apart;      /* owned */
	struct content content; /* owned, opened */
	uint64_t local;         /* its object, 0: inline */
	inum copy;              /* node row of the derived copy that shows it, 0: none yet */
	bool gone;              /* superseded: commit deletes its row */
};
/* A deletion of a link. */
struct vdeletion {
	struct slot slot;
	struct vector places_seen, contents_seen; /* owned */
	bool gone;
};

enum vnode_flag {
	VN_STORED = 1,      /* has a row in journal.db */
	VN_DIRTY = 2,       /* on volume.dirty_nodes: a part is pending or the row's plain columns changed */
	VN_REPLACED = 4,    /* a name of it replaced another name since the last COMMIT: that name is committed only with this node's content */
	VN_COMPLETE = 8,    /* directory: every live child is cached, so a miss is ENOENT without SQL */
	VN_ORPHAN = 16,     /* no name any more, still referenced: not journalled, removed at forget */
	VN_DAMAGED = 32,    /* a page did not authenticate (cleared by a good read) */
	VN_CONTENT_NEW = 64, /* content must be written though filedata does not call it dirty (fresh node, symlink) */
	VN_DOOMED = 128,    /* orphan without references: commit removes it */
	VN_DATA_DIRTY = 256, /* filedata was changed since the last confirmed snapshot (hint kept under tree_mu) */
	VN_SUPERSEDED = 512 /* orphan that holds for open handles what a peer's content superseded; heir is the file (superseded.c) */
};
struct vnode {
	inum row;
	struct id id;
	uint32_t type; /* S_IFMT bits; 0: placeholder for a node that is not here yet */
	unsigned flags; /* enum vnode_flag */
	unsigned pins;
	uint32_t nlink; /* shown by stat; directories: 2 + subdirectories */
	uint32_t links; /* live links */
	struct vnode *next_row, *next_id; /* hash chains */
	struct list at;                   /* volume.clean_nodes or volume.dirty_nodes */

	struct attrs attrs;
	struct slot attrs_slot;
	struct times times;
	struct slot times_slot;
	struct timespec64 atime; /* not stored: mtime after a reload */
	/* Regular files and symlinks. While data is NULL, content holds the current content; with data it is empty but for is_object/object/epoch/
	 * length of the last committed one (bytes and holes are freed). size and blocks are always current. */
	struct content content;
	struct dots apart; /* of the content held */
	struct slot content_slot;
	uint64_t local; /* object of the committed content, 0: inline or none */
	struct filedata *data;
	uint64_t size, blocks;
	uint64_t damaged_page;
	struct extra *extra; /* owned array; rows of content_extra */
	uint32_t n_extra;
	/* An untouched conflict copy (no parts of its own): the file it is a copy of and which content it shows. */
	inum derived;
	struct dot derived_dot;

	struct list dirty_children; /* directory: dirty vlinks whose parent (in memory) it is (vlink.at_parent) */
	inum dir_parent;            /* directory: row of its shown parent, 0: not known yet (ask vnode_parent) */
	inum heir;                  /* orphan: the node that has its last name now; 0 none. Its content may serve as the base of a delta */
	bool commit_content;        /* inside of a commit: its content is part of it */
	struct filedata_snapshot snapshot; /* inside of a commit */
	bool snapshot_taken;
	struct vector next_vector; /* inside of a commit: of the content written, where others are held beside it */
	struct dots next_apart;
	bool next_set;
	uint64_t stray;  /* without a name: number of an object that no record names */
	uint64_t fetched; /* number of an object that came for it, and that no record names yet */
	uint64_t spoiled; /* number of an object that holds something else than the record that named it */
	uint64_t binned; /* that number stands in the table of what the next open removes; it is taken out where the file gets a name again */
};

enum vlink_flag {
	VL_STORED = 1, /* has a row in journal.db */
	VL_DIRTY = 2,  /* on volume.dirty_links */
	VL_LIVE = 4,   /* no deletion held has seen its present place */
	VL_LIVE_STORED = 8, /* so says its row in journal.db */
	VL_DELETIONS_LOADED = 16
};
struct vlink {
	uint64_t row;
	struct id id;
	inum node, parent;
	struct id node_id, parent_id, parent_before;
	uint32_t type;
	uint64_t rdev;
	char *name; /* owned, NUL-terminated */
	uint16_t name_len;
	uint8_t tag[16]; /* of (parent_id, name) */
	unsigned flags;
	unsigned pins;
	struct slot place;
	struct vdeletion *deletion; /* owned array, valid with VL_DELETIONS_LOADED; see vlink_deletions */
	uint32_t n_deletion;
	struct vlink *next_row, *next_id, *next_tag; /* next_tag only while VL_LIVE */
	struct list at;        /* volume.clean_links or volume.dirty_links */
	struct list at_parent; /* the parent's dirty_children, while dirty and live (volume.unparented counts those whose parent is not cached) */
};

struct exceptions; /* exceptions.c: what is shown otherwise than recorded */
struct ref_table;  /* refs.c: look-up counts */
struct commit_queue; /* commit.c: who waits for a commit */

/* Deletions of peers that are held (hold.c): known, but shown as if not there. All under tree_mu. */
struct hold {
	uint64_t *row; /* owned: links that live though a deletion has seen their place */
	uint32_t n, cap;
	uint64_t looked_seq;      /* volume.seq when all of them were looked at */
	uint64_t since_ns, count; /* deletions received since then that took a name */
	struct vector confirmed;  /* owned: deletions inside are not held */
	bool changed;
};

/* Files that programs here used lately, newest first (near.c). */
#define RECENT_FILES 16u
struct recent {
	inum node; /* 0: none, nor after it */
	bool read;
};

#define SIZE_LOCKS 64
struct volume {
	char *path; /* absolute */
	int dirfd, lockfd;
	struct header header;
	struct keyring *keys;
	const struct env *env;
	struct stats *stats;
	struct object_store *objects;
	struct filedata_env data_env;
	struct volume_options options;
	atomic_bool read_only; /* asked for, or after a failed flush */
	uint64_t start_tag;
	struct hold hold;
	struct start_tag *starts; /* (tree) owned, sorted by replica and counter; see replicate.h */
	uint32_t n_starts;
	bool starts_changed; /* (tree) */
	uint64_t self; /* header.replica */

	pthread_mutex_t commit_mu;
	pthread_rwlock_t gate;
	pthread_mutex_t size_mu[SIZE_LOCKS]; /* by inode number: keeps a length that was read and vnode.size in step */
	pthread_mutex_t tree_mu;

	/* (tree) from here on */
	struct journal *journal;
	struct vnode **nodes_by_row, **nodes_by_id;
	struct vlink **links_by_row, **links_by_id, **links_by_tag;
	uint32_t n_nodes, n_links, hash_size;
	struct slab *node_slab, *link_slab; /* where they lie */
	struct list clean_nodes, dirty_nodes, clean_links, dirty_links; /* clean ones: least recently used first */
	_Atomic uint32_t n_dirty_nodes, n_dirty_links; /* read without tree_mu as a hint */
	uint32_t unparented;
	struct ref_table *refs;
	struct recent recent[RECENT_FILES];
	struct exceptions *exceptions;
	uint32_t n_exceptions, n_groups; /* both 0: nothing unusual is shown, no look-up asks exceptions.c */
	uint64_t next_node, next_link;   /* rows; written at each COMMIT */
	uint64_t node_count;             /* f_files; about */

	/* As of the last COMMIT; changed under commit_mu + gate exclusively + tree */
	uint64_t txn;      /* number of the last committed transaction; txn + 1 is open */
	uint64_t counter;  /* of this replica's last dot */
	uint64_t clock_ns; /* hybrid clock: largest merged or made */
	uint64_t seq;
	struct root root_all, root_live;
	struct vector knowledge;         /* own counter included */
	struct vector knowledge_flushed; /* the same as of the last flushed COMMIT: a cut */
	struct vector pending_knowledge; /* joined by the next COMMIT (apply) */
	struct member *members;          /* cached, with member_replicas */
	uint64_t *member_replicas;
	uint32_t n_members;
	atomic_bool alone; /* no other member that was not removed: deletions are forgotten at once, no steps and bases are kept */
	struct peer_row_mem *peers;
	uint32_t n_peers;
	struct peer_status *statuses;
	uint32_t n_statuses;
	uint64_t base_bytes; /* of kept bases */
	bool peers_changed;  /* what peers have acknowledged: written with the next commit, not worth one of its own */
	struct renumber *renumber; /* owned */
	uint32_t n_renumber;
	bool others_changed; /* members, peers, tokens changed: the next commit is not empty */

	/* listeners (tree) */
	void (*commit_fn)(void *ctx);
	void *commit_ctx;
	struct volume_observer observer; /* .ctx and functions NULL: none */
	pthread_rwlock_t observer_lock;  /* shared while an observer is called, before any other lock: setting another waits for that */

	struct commit_queue *queue;
	struct txn *writing;              /* inside of a transaction (commit.h) */
	uint64_t *trash_pending, *trash_gone; /* objects to name in the trash with the next COMMIT; files gone, rows left */
	uint32_t n_trash_pending, n_trash_gone;
	uint32_t n_adopting;    /* batches with objects that have a number but no record yet */
	uint64_t adopting_from; /* their numbers start here */
	uint64_t local_floor; /* objects below are named by the journal or in the trash */
	struct healer *healer;       /* heal.c; NULL: none */
	bool heal_records;           /* (tree) a record did not open: healer looks for those that it can mend */
	struct scrubber *scrubber;   /* scrub.c; NULL: none */
	struct committer *committer; /* committer.c: the background thread, its own mutex inside; NULL: none */
	atomic_bool unflushed;       /* a COMMIT is not flushed yet */
	_Atomic uint64_t space_asked_ns;
	atomic_bool space_full;
	atomic_bool reserve_gone, reserve_being_made; /* it was given up, by a commit that found no room, and has not come back */
	atomic_bool commit_full; /* the last transaction found no room for itself */
	bool no_background_work; /* being closed */
};
/* A file that gets another inode number with the next COMMIT; journal.db is changed before anything else is written there. */
struct renumber {
	inum old, fresh;
	bool orphan; /* the old number stays, as an orphan with that id and type */
	struct id id;
	uint32_t type;
};
struct peer_row_mem {
	struct peer_config config;
	struct vector knowledge;
};

/* ---- volume.c: locks ---- */
static inline void tree_lock(struct volume *v) { pthread_mutex_lock(&v->tree_mu); }
void tree_unlock(struct volume *v); /* evicts what the caches hold too much */
static inline void gate_shared(struct volume *v) { pthread_rwlock_rdlock(&v->gate); }
static inline void gate_leave(struct volume *v) { pthread_rwlock_unlock(&v->gate); }
static inline void gate_exclusive(struct volume *v) { pthread_rwlock_wrlock(&v->gate); }
/* Gate shared + writable check: 0 and the gate held, -EROFS. */
int change_begin(struct volume *v);
static inline void change_end(struct volume *v) { gate_leave(v); }
/* The store's free space allows new data (reserve and margin untouched): 0 or -ENOSPC. Asks statvfs at most every few ms. */
int space_check(struct volume *v);
void now_times(struct volume *v, struct timespec64 *ret);
/* The journal or redo could not be flushed: read-only from now on, logged once. */
void volume_fail(struct volume *v, const char *what, int e);

/* ---- cache.c, load.c: the overlay (all under tree_mu) ---- */
int cache_init(struct volume *v);
void cache_fini(struct volume *v); /* frees everything, dirty or not */
void cache_trim(struct volume *v);
/* From cache or journal. -ENOENT: no such row; -EBADMSG, -EUCLEAN: the row does not authenticate (logged). */
int vnode_get(struct volume *v, inum row, struct vnode **ret);
int vnode_by_id(struct volume *v, const struct id *id, struct vnode **ret);
/* As vnode_by_id, but makes a placeholder (type 0, dirty, stored by the next commit) where it is not here. */
int vnode_refer(struct volume *v, const struct id *id, struct vnode **ret);
/* A fresh node with the next row number, in the cache, dirty, no links yet. id NULL: drawn. -ENOMEM. */
int vnode_new(struct volume *v, const struct id *id, uint32_t type, struct vnode **ret);
/* replace.c: a node with random id under a number that became free, clean; a node gets another number (its links are the caller's). */
int vnode_new_at(struct volume *v, inum row, uint32_t type, struct vnode **ret);
void vnode_renumber(struct volume *v, struct vnode *n, inum row);
struct vnode *vnode_cached(struct volume *v, inum row); /* NULL where it is not in memory */
void vnode_dirty(struct volume *v, struct vnode *n);    /* lists it; cannot fail */
void vnode_clean(struct volume *v, struct vnode *n);
void vnode_touch(struct volume *v, struct vnode *n);    /* most recently used */
void vnode_drop(struct volume *v, struct vnode *n);     /* out of the cache and freed, whatever it was */
/* Loads vnode.extra of a node whose row says that it has some (vnode_get does it itself). Adds one: array grows, *ret points into it until the next. */
int vnode_extra_add(struct vnode *n, struct extra **ret);
int vlink_get(struct volume *v, uint64_t row, struct vlink **ret);
int vlink_by_id(struct volume *v, const struct id *id, struct vlink **ret); /* -ENOENT */
/* The live link recorded in directory dir under that name (no exceptions looked at). -ENOENT. More than one (a collision): the one with the largest
 * place stamp, and *ret_more true where ret_more is not NULL. */
int vlink_recorded(struct volume *v, struct vnode *dir, const void *name, size_t len, struct vlink **ret, bool *ret_more);
/* All live links recorded in dir under that name. fn may not add or drop links; 1 from fn stops. */
typedef int vlink_fn(void *ctx, struct vlink *l);
int vlinks_named(struct volume *v, struct vnode *dir, const void *name, size_t len, vlink_fn *fn, void *ctx);
/* A fresh link, in the cache, dirty, live, counted in node (links, nlink) and parent (nlink of directories). id NULL: drawn. */
int vlink_set_name(struct vlink *l, const void *name, size_t len); /* memory alone */
int vlink_new(struct volume *v, const struct id *id, struct vnode *node, struct vnode *parent, const void *name, size_t len, struct vlink **ret);
/* A link row without a valid place yet (a deletion came before its place): not live, not counted. */
int vlink_refer(struct volume *v, const struct id *id, struct vlink **ret);
void vlink_dirty(struct volume *v, struct vlink *l);
void vlink_clean(struct volume *v, struct vlink *l); /* commit has written it */
void vlink_drop(struct volume *v, struct vlink *l);
/* Changes parent and name (hashes, dirty lists and counts of subdirectories follow); marks it dirty but touches no slot. */
int vlink_move(struct volume *v, struct vlink *l, struct vnode *parent, const void *name, size_t len);
/* Sets or clears VL_LIVE with all that hangs on it (counts, tag hash, dirty_children); marks link and node dirty. Touches no slot. */
int vlink_set_live(struct volume *v, struct vlink *l, bool live);
int vlink_deletions(struct volume *v, struct vlink *l); /* loads vlink.deletion */
int vlink_deletion_add(struct vlink *l, struct vdeletion **ret);
/* Is it covered: has one of its deletions (loaded) seen its present place? */
bool vlink_covered(const struct vlink *l);
/* Is this opened part the place of that row: its link, and the name and directory that the row's tag says? */
bool place_is_of(const struct volume *v, const struct part *p, const struct link_row *r);
/* Calls fn for each link of a node, dead ones too (memory and journal merged). fn may not add or drop links. 1 from fn stops. */
int vnode_links(struct volume *v, struct vnode *n, vlink_fn *fn, void *ctx);
/* Live links recorded in directory dir with row > after, in row order, at most max; pointers valid until tree_unlock. */
int vnode_children(struct volume *v, struct vnode *dir, uint64_t after, struct vlink **ret, uint32_t max, uint32_t *ret_n);
/* Is there a live link recorded in it? */
int vnode_has_children(struct volume *v, struct vnode *dir, bool *ret);
/* Row of the directory in which a directory is shown; the root's is itself. -ENOENT. */
int vnode_parent(struct volume *v, struct vnode *n, inum *ret);
/* vnode.data, made where it is not there yet. Pinned by the caller before tree_mu is released. */
int vnode_data(struct volume *v, struct vnode *n, struct filedata **ret);
/* A content whose bytes went when its last name did, and are needed again since a rename that had not seen that beat it. */
bool content_lacks_bytes(const struct content *c, uint64_t local);
bool vnode_lacks_bytes(const struct vnode *n);
/* Its attributes have not come yet: nobody but root may use it meanwhile, and whoever changes it must not make an attributes part without a type. */
void vnode_default_attrs(struct vnode *n);
/* The content as its committed record has it, while n->data is NULL. */
int vnode_content_reload(struct volume *v, struct vnode *n);
void vnode_set_size(struct vnode *n, const struct content *c); /* size and blocks from a content */
/* Sealed name for exception rows: appended to out; and back. */
int name_seal(struct volume *v, const void *name, size_t len, struct buf *out);
int name_open(struct volume *v, const void *sealed, size_t len, char *ret_name, size_t *ret_len); /* ret_name: NAME_LEN_MAX + 1 */

/* ---- slots (slot.c) ---- */
/* A local change: the slot becomes dirty; its version held goes into the vector of the next. arrived is dropped. 0 or -ENOMEM. */
int slot_change(struct slot *s);
/* A peer's version takes its place (record copied). The vector becomes the part's. 0 or -ENOMEM. */
int slot_arrive(struct slot *s, const struct part *p, const void *record, size_t len);

/* ---- tree.c, rename.c, lookup.c, readdir.c, attr.c, xattr.c, acl.c, data.c: volume.h ---- */
int node_path(struct volume *v, inum ino, char **ret); /* volume_path_of, under tree_mu */
/* The link shown under that name (exceptions first). -ENOENT. */
int shown_lookup(struct volume *v, struct vnode *dir, const void *name, size_t len, struct vlink **ret);
void attr_of(struct volume *v, const struct vnode *n, struct inode_attr *ret);
/* Marks a local change of names in dir: mtime and ctime now, times part pending. */
int dir_touched(struct volume *v, struct vnode *dir);
int node_ctime(struct volume *v, struct vnode *n);
/* A directory by inode number, the lead of its group: -ESTALE, -ENOTDIR. */
int dir_get(struct volume *v, inum ino, struct vnode **ret);
/* -ENAMETOOLONG, -EINVAL, 0 */
int name_check(const void *name, size_t len);
int dir_removable(struct volume *v, struct vnode *dir); /* 0, -ENOTEMPTY */
/* What a node without a live link becomes: an orphan while it is referenced, else doomed. */
void node_nameless(struct volume *v, struct vnode *n);
/* data.c: drops security.capability, and set-id bits where asked (FUSE_HANDLE_KILLPRIV_V2). */
int kill_privileges(struct volume *v, struct vnode *n, bool suidgid);
int data_truncate(struct volume *v, inum ino, uint64_t size); /* takes the gate itself */
/* A link dies here: makes its deletion part pending (what it saw included), or drops it where it was never committed; node's counts follow, an unreferenced node
 * without names is doomed. */
int link_kill(struct volume *v, struct vlink *l);

/* acl.c: the default ACL of dir for a fresh node (a->mode holds the asked mode; without a default ACL the umask is applied). */
int acl_inherit(const struct attrs *dir, struct attrs *a, uint32_t umask);
int acl_chmod(struct attrs *a);                     /* a->mode was changed: the access ACL follows */
int acl_set(struct attrs *a, const char *name, const void *value, size_t len); /* checks, updates the mode; -EINVAL, -EOPNOTSUPP, -EACCES */

/* committer.c */
void committer_kick(struct volume *v); /* much is dirty: commit now; no locks needed */
int committer_start(struct volume *v);
void committer_stop(struct volume *v);

/* recover.c: after the journal and the objects are open: redo log, trash, orphans, objects that no record names. */
int recover(struct volume *v);
/* peers.c */
int peers_load(struct volume *v); /* members, peers; sets alone */
int members_load(struct volume *v); /* after member rows changed; under tree_mu */
int peers_write(struct volume *v); /* all peer rows; inside of a transaction */
void peers_fini(struct volume *v);
int member_write(struct volume *v, uint64_t replica, const struct member *m); /* inside of a transaction: a new version of its part */

/* starts.c */
int starts_load(struct volume *v);  /* at open; adds this start */
int starts_write(struct volume *v); /* inside of a transaction */
void starts_fini(struct volume *v);
int starts_renew(struct volume *v, uint64_t was, uint64_t from); /* own starts from there on are the new replica's */
void starts_forget(struct volume *v, uint64_t replica, uint64_t from);
/* hold.c */
int hold_load(struct volume *v);
int hold_write(struct volume *v); /* inside of a transaction */
void hold_fini(struct volume *v);
/* renew.c: before the head is read: a change of identity whose transaction was committed is brought to the end. */
int renew_finish(struct volume *v);

/* ---- commit.c ---- */
int commit_init(struct volume *v);
void commit_fini(struct volume *v);
/* Commits everything (only == 0) or names and this inode's content (fsync). Takes commit_mu itself; group commit. */
int commit_run(struct volume *v, inum only);
/* Apply of a batch: takes commit_mu, commits all local changes (not flushed yet), returns with commit_mu and the gate held exclusively and nothing dirty.
 * On error nothing is held. */
int apply_begin(struct volume *v);
/* Writes all that is pending (slots with arrived, gone, moved), joins `knowledge` (may be NULL), calls in_txn (may be NULL; under tree_mu inside the open transaction, for exception rows
 * etc.), COMMIT, leaves the gate, flushes, releases commit_mu. On error the changes stay pending in memory and the next commit writes them. */
int apply_end(struct volume *v, const struct vector *knowledge, int (*in_txn)(void *ctx), void *ctx);
/* Nothing was changed, or an error before anything was: releases. */
void apply_cancel(struct volume *v);
/* Writes rows of tables without a memory form (peers, tokens, members) in a transaction of its own and flushes it. Called without locks. */
int commit_rows(struct volume *v, int (*fn)(struct volume *v, void *ctx), void *ctx);
/* An object that no content names any more since the transaction that is being written (in_txn) or the next one: goes into the trash and is removed after the flush. */
int object_trash(struct volume *v, uint64_t local);

/* ---- records, for transfer and list (records.c) ---- */
/* Where the content named by (node, dot) is held now: as the winner, an extra or a kept base. -ESTALE where it is not. */
struct content_at {
	inum node;            /* row whose content it is (base: the base's former node) */
	bool winner;          /* vnode.data may be used: it is the current content of that node and unchanged since the COMMIT */
	struct stamp stamp;
	uint64_t local;
	struct content content; /* owned */
};
int content_find(struct volume *v, const struct id *node, struct dot dot, struct content_at *ret); /* takes tree_mu itself */
void content_at_fini(struct content_at *c);
/* The step row of a node: changed pages between two dots. -ENOENT. Takes tree_mu itself. */
int content_step(struct volume *v, inum node, struct dot *ret_from, struct dot *ret_to, struct extents *ret_ranges);
/* The base kept for a node's new content: its dot, its own node id and content. -ENOENT. Takes tree_mu itself. */
int content_base(struct volume *v, inum node, struct id *ret_base_node, struct content_at *ret);
/* Pins a node and gives its filedata (current content). content_unpin releases. Take tree_mu themselves. */
int content_pin(struct volume *v, inum node, struct filedata **ret);
void content_unpin(struct volume *v, inum node);
/* The record of a part by dot, copied. -ENOENT: not held any more. Under tree_mu. */
int record_by_dot(struct volume *v, const struct dot_row *d, struct buf *ret);
/* Makes the step row of a node after an arrived content (ranges NULL: whole, the row goes). Under tree_mu, in_txn of apply_end. */
int step_put(struct volume *v, inum node, struct dot from, struct dot to, const struct extents *ranges);

/* ---- refs.c (under tree_mu) ---- */
uint64_t refs_get(struct volume *v, inum ino);
int refs_init(struct volume *v);
void refs_fini(struct volume *v);
int refs_add(struct volume *v, inum ino);
bool refs_drop(struct volume *v, inum ino, uint64_t n); /* true: the count is 0 now */

/* ---- exceptions.c (H8): shown otherwise than recorded; all under tree_mu ---- */
int exceptions_load(struct volume *v);  /* at open, after the journal */
void exceptions_free(struct volume *v);
/* The link shown in dir (row of the lead or a member of its group) under that name because of an exception or a group. -ENOENT: ask the recorded ones of dir. */
int exceptions_lookup(struct volume *v, struct vnode *dir, const void *name, size_t len, struct vlink **ret);
/* The recorded place of this link is not where it is shown. */
bool exceptions_hide(struct volume *v, uint64_t link);
/* Where a link is shown: its own place, or the exception's. -ENOENT: nowhere. name: NAME_LEN_MAX + 1 bytes. */
int exceptions_shown_place(struct volume *v, struct vlink *l, inum *ret_parent, char *ret_name, size_t *ret_len);
/* As vnode_children with exceptions and groups: names come with them. */
struct shown_child {
	struct vlink *link;
	char name[NAME_LEN_MAX + 1];
	uint16_t name_len;
};
int exceptions_children(struct volume *v, struct vnode *dir, uint64_t after, struct shown_child *ret, uint32_t max, uint32_t *ret_n);
inum exceptions_lead(struct volume *v, inum dir); /* of the group that dir belongs to; dir itself otherwise */
/* The link under which a node is shown; any where there are several. -ENOENT. */
int exceptions_shown_link(struct volume *v, struct vnode *n, struct vlink **ret);
/* Fills a derived copy's vnode (content, attributes of its file). Called by vnode_get. */
int derived_load(struct volume *v, struct vnode *n);
/* Before the first write to a copy whose content is derived (vnode.derived): gives it a content of its own. Gate shared, without tree_mu: copies an object. */
int derived_detach(struct volume *v, inum ino);
/* superseded.c. Before a change through a handle of VN_SUPERSEDED: it becomes a file of its own beside its heir. No lock held. 0: look again. */
#define HANDLE_SUPERSEDED (-EOWNERDEAD) /* what changing such a node answers inside of this layer */
int superseded_keep(struct volume *v, inum ino);
/* The file that took its name, NULL where that has none any more. Under tree_mu. */
struct vnode *superseded_heir(struct volume *v, const struct vnode *n);
bool derived_needs(struct volume *v, struct vnode *n); /* is a content of n shown by a copy? Then its bytes stay, whatever becomes of n */
void derived_bytes_gone(struct volume *v, const struct vnode *n); /* n's contents lose their bytes: its copies in memory too */
int derived_dies(struct volume *v, struct vnode *copy); /* a copy has no name any more: its file may not be needed either */
bool link_is_derived(struct volume *v, const struct vlink *l); /* no place of its own: that of an untouched copy */

/* ---- writedown.c (H8): before a local change, what it touches becomes recorded as it is shown. Gate shared, under tree_mu; returns at once where
 * nothing unusual is shown (the callers check n_exceptions and n_groups). ---- */
int writedown_name(struct volume *v, struct vnode *dir, const void *name, size_t len); /* a name that is made, removed, moved away or replaced in dir */
int writedown_node(struct volume *v, struct vnode *n);                                /* a node that is written, changed, linked or moved */
/* link_kill, and after vlink_move of a directory's link: the same with the directories shown as one with it. */
int shown_kill(struct volume *v, struct vlink *l);
int shown_move_others(struct volume *v, struct vlink *l, struct vnode *dir, const void *name, size_t len);
static inline bool nothing_unusual(const struct volume *v) { return !v->n_exceptions && !v->n_groups; }

/* ---- filedata*.c, transfer*.c (H5): filedata.h, content_source_*. The receiving decoder that batch.c (H8) drives is in transfer.h. ---- */
#endif
