/* journal.db: typed functions over prepared statements (design-store 1, 5, 6). No semantics, no keys, no locks of its own: the
 * volume's tree mutex covers every call but journal_flush. Records are opaque bytes here.
 *
 * SQLite runs with locking_mode=EXCLUSIVE, WAL, synchronous=NORMAL, wal_autocheckpoint=0: a COMMIT flushes nothing, and
 * journal_flush (fdatasync of the -wal through a descriptor kept from the start) makes all COMMITs before it durable. Nobody else in this
 * process may open and close journal.db or its -wal: SQLite's POSIX locks would go.
 *
 * Errors: -ENOSPC, -EIO, -ENOMEM, -EROFS; damage that SQLite reports is -EUCLEAN, logged here. When a statement or COMMIT fails with
 * -ENOSPC, -EIO or -ENOMEM SQLite may have rolled the whole transaction back: callers roll back and start over.
 *
 * Tables (twofold-format(5) has them in words):
 *   node      row, id, type, nlink, links, local, orphan, derived, extras, attrs, times, content
 *             row is the inode number (1 the root, never used again); the last three are records, NULL: not here. type 0: a placeholder for
 *             a node that something refers to.
 *   link      row, id, node, parent, tag, live, deletions, place      row is the directory cookie; parent and node are node rows
 *   deletion  link, replica, counter, record        the deletions held of a link
 *   content_extra node, replica, counter, record, local, copy    contents held beside the largest; copy: node row of the derived copy
 *   dot       replica, counter, kind, owner, seq     one row a record held; owner: node row, link row (place, deletion), 0 else
 *   step, base, trash, member, other, peer, token, exception, grp, meta */
#ifndef TWOFOLD_JOURNAL_H
#define TWOFOLD_JOURNAL_H
#include "ids.h"

struct journal;
struct blob {
	const void *p; /* NULL: SQL NULL */
	size_t len;
};

/* path: absolute, of the store. create: the file must not exist, tables are made. 0; -ENOENT; -EUCLEAN (not ours, damaged, another version);
 * -EROFS: its filesystem is read-only, and read_only was not asked for or the last stop was not clean (logged). */
int journal_open(const char *path, bool create, bool read_only, struct journal **ret);
void journal_close(struct journal *j);   /* checkpoints nothing; rolls back what is open */
void journal_abandon(struct journal *j); /* as if the process had been killed: the -wal stays as it is (tests) */
int journal_begin(struct journal *j);
int journal_commit(struct journal *j);
void journal_rollback(struct journal *j); /* also where nothing is open any more */
bool journal_in_txn(const struct journal *j);
/* Makes every COMMIT that returned before durable. Callable from any thread, without the tree mutex. */
int journal_flush(struct journal *j);
/* Moves the WAL into journal.db. The caller has flushed the WAL. */
int journal_checkpoint(struct journal *j);
uint64_t journal_wal_bytes(struct journal *j);

/* ---- meta: key -> bytes ---- */
int journal_meta_get(struct journal *j, const char *key, struct buf *ret); /* -ENOENT; replaces what ret held */
int journal_meta_set(struct journal *j, const char *key, const void *p, size_t len);

/* ---- nodes ---- */
struct node_row {
	uint64_t row;
	struct id id;
	uint32_t type;    /* S_IFMT bits, 0: placeholder */
	uint32_t nlink;   /* what stat shows */
	uint32_t links;   /* live links (for the root `live`) */
	uint64_t local;   /* object number of the content, 0: inline or none */
	bool orphan;      /* no name, but referenced when last written: removed at the next open */
	uint64_t derived; /* an untouched conflict copy: row of the file it is a copy of */
	uint32_t extras;  /* rows in content_extra */
	struct blob attrs, times, content;
};
/* Blobs are borrowed until the next call of the same function. -ENOENT. */
int journal_node_get(struct journal *j, uint64_t row, struct node_row *ret);
int journal_node_by_id(struct journal *j, const struct id *id, uint64_t *ret_row);
int journal_node_by_local(struct journal *j, uint64_t local, uint64_t *ret_row);
int journal_node_insert(struct journal *j, const struct node_row *n);
int journal_node_update(struct journal *j, const struct node_row *n); /* blobs with p NULL stay as they are */
int journal_node_delete(struct journal *j, uint64_t row);
/* A node gets another number, with its object, further contents and bases; its step goes. Links and dots are the caller's. */
int journal_node_renumber(struct journal *j, uint64_t row, uint64_t fresh);
/* Rows > after in order, at most max (<= 256): *ret_n. */
int journal_orphans(struct journal *j, uint64_t after, uint64_t *ret_rows, uint32_t max, uint32_t *ret_n);
int journal_nodes_from(struct journal *j, uint64_t after, uint64_t *ret_rows, uint32_t max, uint32_t *ret_n); /* all of them, as journal_orphans */
int journal_max_local(struct journal *j, uint64_t *ret); /* the largest object number named anywhere; 0: none */
int journal_count_nodes(struct journal *j, uint64_t *ret); /* a scan */

/* ---- links ---- */
struct link_row {
	uint64_t row;
	struct id id;
	uint64_t node, parent;
	uint8_t tag[16]; /* of the recorded place */
	bool live;       /* no deletion has seen its present place */
	uint32_t deletions;
	struct blob place;
};
/* Iteration: fn returns 0 to go on, 1 to stop (the function returns 0), negative: returned. Blobs are borrowed during the call. fn must not call the
 * same iterating function again, nothing that writes the table, and may call others. */
typedef int link_row_fn(void *ctx, const struct link_row *l);
int journal_link_get(struct journal *j, uint64_t row, struct link_row *ret); /* blob until the next call; -ENOENT */
int journal_link_by_id(struct journal *j, const struct id *id, uint64_t *ret_row);
int journal_links_by_tag(struct journal *j, const uint8_t tag[static 16], link_row_fn *fn, void *ctx); /* live ones */
int journal_links_of_parent(struct journal *j, uint64_t parent, uint64_t after, link_row_fn *fn, void *ctx); /* live ones, row > after, in order */
int journal_dead_links_of_parent(struct journal *j, uint64_t parent, link_row_fn *fn, void *ctx);
int journal_links_of_node(struct journal *j, uint64_t node, link_row_fn *fn, void *ctx); /* all, dead ones too */
int journal_links_from(struct journal *j, uint64_t after, link_row_fn *fn, void *ctx);   /* all of the volume, row > after (check, simulation) */
int journal_link_insert(struct journal *j, const struct link_row *l);
int journal_link_update(struct journal *j, const struct link_row *l); /* place.p NULL stays */
int journal_link_delete(struct journal *j, uint64_t row);

/* ---- deletions of a link, further contents of a node ---- */
struct extra_row {
	uint64_t owner; /* link row, or node row */
	struct dot dot;
	struct blob record;
	uint64_t local, copy; /* contents only */
};
typedef int extra_row_fn(void *ctx, const struct extra_row *x);
int journal_deletions(struct journal *j, uint64_t link, extra_row_fn *fn, void *ctx);
int journal_deletion_put(struct journal *j, const struct extra_row *x);
int journal_deletion_delete(struct journal *j, uint64_t link, struct dot dot);
int journal_extras(struct journal *j, uint64_t node, extra_row_fn *fn, void *ctx);
int journal_extra_put(struct journal *j, const struct extra_row *x); /* inserts or replaces */
int journal_extra_delete(struct journal *j, uint64_t node, struct dot dot);
int journal_extras_drop_locals(struct journal *j, uint64_t node); /* their objects are gone */
int journal_extra_by_local(struct journal *j, uint64_t local, uint64_t *ret_node); /* a scan of a small table; -ENOENT */

/* ---- the journal proper ---- */
struct dot_row {
	struct dot dot;
	uint8_t kind;
	uint64_t owner, seq;
};
typedef int dot_row_fn(void *ctx, const struct dot_row *d);
int journal_dot_put(struct journal *j, const struct dot_row *d); /* inserts or replaces */
int journal_dot_delete(struct journal *j, struct dot dot);
int journal_dot_get(struct journal *j, struct dot dot, struct dot_row *ret); /* -ENOENT */
int journal_dots(struct journal *j, uint64_t replica, uint64_t after, uint64_t upto, dot_row_fn *fn, void *ctx); /* counters in (after, upto], in order */
int journal_dots_by_seq(struct journal *j, uint64_t after_seq, dot_row_fn *fn, void *ctx);
/* Replicas that have rows, ascending, after `after`: -ENOENT at the end. */
int journal_next_replica(struct journal *j, uint64_t after, bool first, uint64_t *ret);

/* One step of changed pages of a node's content: between two of its dots. */
struct step_row {
	uint64_t node;
	struct dot from, to;
	struct blob ranges; /* extents_put */
};
int journal_step_get(struct journal *j, uint64_t node, struct step_row *ret); /* blob until the next call; -ENOENT */
int journal_step_put(struct journal *j, const struct step_row *s);
int journal_step_delete(struct journal *j, uint64_t node);

/* A replaced content that is kept as the base of a delta for `node`. */
struct base_row {
	uint64_t node;      /* whose new content is built on it */
	uint64_t base_node; /* whose content it was (may be the same) */
	uint64_t local;     /* object; 0: inline, the record says all */
	uint64_t bytes;     /* of the budget */
	struct blob record; /* content record of the base, dot inside */
};
typedef int base_row_fn(void *ctx, const struct base_row *b);
int journal_base_get(struct journal *j, uint64_t node, struct base_row *ret); /* -ENOENT */
int journal_base_put(struct journal *j, const struct base_row *b);
int journal_base_delete(struct journal *j, uint64_t node);
int journal_bases(struct journal *j, base_row_fn *fn, void *ctx); /* oldest first */
int journal_base_by_local(struct journal *j, uint64_t local, uint64_t *ret_node);

/* Objects whose COMMIT of removal is (about to be) there, but whose files perhaps are not gone. */
int journal_trash_put(struct journal *j, uint64_t local);
int journal_trash_delete(struct journal *j, uint64_t local);
int journal_trash_list(struct journal *j, uint64_t *ret_locals, uint32_t max, uint32_t *ret_n);

/* ---- members, unknown kinds, peers, tokens ---- */
typedef int record_fn(void *ctx, uint64_t replica, const void *record, size_t len);
int journal_member_get(struct journal *j, uint64_t replica, struct buf *ret_record);
int journal_member_put(struct journal *j, uint64_t replica, const void *record, size_t len);
int journal_members(struct journal *j, record_fn *fn, void *ctx);
/* Parts of kinds that are not known here: by kind and id, one (the largest) each. */
struct other_row {
	uint8_t kind;
	struct id id;
	struct dot dot;
	struct blob record;
};
int journal_other_get(struct journal *j, uint8_t kind, const struct id *id, struct other_row *ret); /* -ENOENT */
int journal_other_by_dot(struct journal *j, struct dot dot, struct other_row *ret);
int journal_other_put(struct journal *j, const struct other_row *o);
struct peer_row {
	uint64_t replica;
	const char *address;
	bool paused;
	struct blob knowledge; /* vector_put */
};
typedef int peer_row_fn(void *ctx, const struct peer_row *p);
int journal_peers(struct journal *j, peer_row_fn *fn, void *ctx);
int journal_peer_put(struct journal *j, const struct peer_row *p);
int journal_peer_delete(struct journal *j, uint64_t replica);
int journal_token_put(struct journal *j, const uint8_t id[static 16], const uint8_t *sealed, size_t len, uint64_t expires_ns, bool used);
int journal_token_get(struct journal *j, const uint8_t id[static 16], struct buf *ret_sealed, uint64_t *ret_expires_ns, bool *ret_used);

/* ---- shown tree's exceptions ---- */
struct exception_row {
	uint64_t link;   /* link row: shown elsewhere than recorded, under another name, or not at all (parent 0) */
	uint64_t parent; /* node row where it is shown */
	uint8_t tag[16]; /* of the shown name there */
	struct blob name; /* sealed shown name */
};
typedef int exception_row_fn(void *ctx, const struct exception_row *x);
int journal_exceptions(struct journal *j, exception_row_fn *fn, void *ctx);
int journal_exception_put(struct journal *j, const struct exception_row *x);
int journal_exception_delete(struct journal *j, uint64_t link);
typedef int group_row_fn(void *ctx, uint64_t member, uint64_t lead);
int journal_groups(struct journal *j, group_row_fn *fn, void *ctx);
int journal_group_put(struct journal *j, uint64_t member, uint64_t lead);
int journal_group_delete(struct journal *j, uint64_t member);

/* ---- samples: history for the report (journal_sample.c) ---- */
struct sample_row {
	uint64_t at_s; /* wall clock */
	uint64_t peer; /* replica */
	uint64_t backlog_files, backlog_bytes, lag_us, sent_bytes, received_bytes;
};
typedef int sample_row_fn(void *ctx, const struct sample_row *s);
/* In a journal that cannot hold samples (older, opened read-only) these do nothing and return 0. */
int journal_sample_put(struct journal *j, const struct sample_row *s);
int journal_sample_thin(struct journal *j, uint64_t now_s); /* keeps the table within its bound */
int journal_samples(struct journal *j, uint64_t after_s, sample_row_fn *fn, void *ctx); /* in order of time */
#endif
