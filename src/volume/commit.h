/* One transaction while it is written. Inside of the volume: commit.c orders it, commit_txn.c is step 2's transaction, commit_node.c and commit_link.c write rows.
 *
 *   1  (gate open)      flush of the objects concerned and of the redo log
 *   2  gate exclusive   snapshots of contents, flush of what is left, BEGIN, rows, head, COMMIT, memory follows
 *   3  (gate open)      fdatasync of the WAL; only then contents are confirmed, objects removed, listeners told
 * Until COMMIT succeeded nothing in memory says that it did: dots, roots and counters are taken in struct txn. */
#ifndef TWOFOLD_COMMIT_H
#define TWOFOLD_COMMIT_H
#include "internal.h"

struct txn {
	struct volume *v;
	uint64_t number; /* of this transaction */
	uint64_t counter, clock_ns, seq, wall_ns;
	struct root all, live;
	struct buf record[3]; /* scratch */
	uint64_t *trash;      /* objects to remove after the flush */
	uint32_t n_trash;
	struct vnode **confirm; /* pinned: their snapshot is in it */
	uint32_t n_confirm;
	struct vnode **dead; /* pinned: doomed and written; dropped after the flush */
	uint32_t n_dead;
	uint64_t base_budget, base_bytes;
	uint32_t n_gone; /* rows of the trash table whose files are gone for good: the first of volume.trash_gone */
	bool strays_known; /* nodes without a name say which object they have that no record names */
};
/* What else belongs into the transaction. */
struct txn_hook {
	int (*fn)(void *ctx); /* under tree_mu, volume.writing is set; may be NULL */
	void *ctx;
	const struct vector *knowledge; /* joined; may be NULL */
};
/* Writes all that is pending. 0, or an error after which all is pending as before. A full disk takes the reserve, once. */
int txn_write(struct txn *t, const struct txn_hook *h);
/* Takes the next dot. */
struct stamp txn_stamp(struct txn *t);
/* Row of the journal proper for a part that is written now, in place of the one with dot `old` (counter 0: none). */
int txn_dot(struct txn *t, uint8_t kind, uint64_t owner, struct dot dot, struct dot old);
/* A record comes in place of another (p NULL: none) in the root `all`, and in `live` where the flags say so. */
void txn_roots(struct txn *t, struct blob old, bool old_live, struct blob fresh, bool fresh_live);
int txn_trash(struct txn *t, uint64_t local); /* 0: nothing */
int txn_list(struct vnode ***list, uint32_t *n, struct vnode *x);

/* Is it shown anywhere? What programs still write to a file that is not, through open handles, is no version of it: the deletion that they have seen would not cover
 * it, and every other replica would bring the file back. Under tree_mu. */
bool node_has_name(struct volume *v, struct vnode *n);
int write_node(struct txn *t, struct vnode *n);
void node_written(struct txn *t, struct vnode *n); /* after COMMIT: memory follows */
int write_link(struct txn *t, struct vlink *l);
void slot_written(struct slot *s); /* commit_link.c: what the transaction wrote of it is what is stored */
void link_written(struct txn *t, struct vlink *l);
/* Nothing of it was committed. */
void node_not_written(struct vnode *n);
void link_not_written(struct vlink *l);

int renumber_write(struct txn *t); /* replace.c: before all rows */

/* commit_content.c: what becomes of a replaced object, of steps and bases. */
int retire(struct txn *t, struct vnode *n, uint64_t local, struct blob record, inum heir);
int write_step(struct txn *t, struct vnode *n, struct dot from, struct dot to, const struct filedata_snapshot *s);
int drop_base(struct txn *t, inum node);
int bases_expire(struct txn *t); /* those whose new content every peer has, and the oldest beyond the budget */

/* head.c: counters, roots and knowledge as one sealed row. */
int head_write(struct txn *t, const struct vector *knowledge);
int head_read(struct volume *v);
#endif
