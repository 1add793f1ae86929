/* A batch while it arrives, and the steps of applying it (design-replication 2 and 5). Inside of the volume layer.
 *
 *   batch.c     takes records, hands out wants, takes contents (no locks of the volume but tree_mu for short looks)
 *   apply.c     one transaction: merges the parts into the tree in memory, and notices afterwards
 *   arrive.c    merges one part that is not a content;   arrive_content.c  one that is;   arrive_other.c  members, unknown kinds
 *   exceptions*.c, derived.c  what follows for the shown tree
 *
 * Nothing of a batch is visible before batch_apply; contents that came are objects in incoming/ (or, ranges, an unlinked file). */
#ifndef TWOFOLD_BATCH_H
#define TWOFOLD_BATCH_H
#include "internal.h"
#include "transfer.h"

#define WANT_HELD_MAX 4

enum want_state {
	WANT_NEW,  /* not handed out yet */
	WANT_OUT,  /* asked for */
	WANT_HERE, /* complete and verified */
	WANT_GONE  /* the sender has it no more */
};
struct arrival;
struct apply;
struct want {
	struct content_want w; /* what is handed out; first */
	struct held_content held[WANT_HELD_MAX];
	enum want_state state;
	struct arrival *arrival;
	struct transfer_sink *sink; /* owned; NULL until the first chunk or where something is resumed */
	struct object *object;      /* owned: the whole object, in incoming/, or in objects/ as `local` */
	uint64_t local;             /* it was adopted under this number; 0: not */
	bool whole_only;            /* its base changed here meanwhile: ranges and deltas would not fit again */
};

/* One part of a batch. */
struct arrival {
	struct part part;
	struct buf record; /* verbatim */
	struct want *want; /* owned; a content that needs bytes */
	bool refetch; /* not a part of the batch: a content that is held here without its bytes, which are asked for again */
	/* While it is applied: */
	bool taken;      /* it was merged and is held now */
	bool base_fits;  /* ranges: the node's present content is the base */
	inum in_place;   /* ranges: the node whose object they will be written into; 0: none */
	bool write_in_place; /* they were */
};

struct batch {
	struct volume *v;
	uint64_t from;
	struct arrival **part; /* owned */
	uint32_t n, cap;
	uint32_t next; /* parts before it were looked at for wants */
	uint32_t open; /* wants that are not HERE or GONE */
	uint64_t refused;
	bool adopting; /* counted in volume.n_adopting */
	bool looked; /* for contents that are held without their bytes */
	bool merged; /* its objects are in records in memory, which the next commit writes where that of the apply failed */
};
void batch_adopted(struct batch *b); /* its objects are named by records now, or gone */
int arrive_bytes(struct apply *a, struct arrival *x); /* of a refetch */
void want_free(struct want *w);
void arrival_free(struct arrival *a);

/* ---- what one apply gathers ---- */
struct notice {
	enum { NOTICE_ENTRY, NOTICE_DIR, NOTICE_ATTR, NOTICE_CONTENT, NOTICE_REPLACED } kind;
	inum ino, other;
	char *name; /* owned */
	uint16_t name_len;
	uint64_t old_size, new_size;
	struct extents bytes; /* owned */
};
struct seeds { /* links (rows) whose showing may have changed; a set */
	uint64_t *row;
	uint32_t n, cap;
};
int seeds_add(struct seeds *s, uint64_t row);
void seeds_fini(struct seeds *s);

struct step_note {
	inum node;
	struct dot from, to;
	struct extents ranges; /* owned */
	bool whole;
};
struct replacement { /* a node that gets another inode number once all is merged */
	inum node, copy; /* copy: the conflict copy that shows the content before; 0: superseded */
	struct filedata *data;  /* owned: what is open of the content before */
	struct content content; /* owned; that content */
	struct stamp stamp;
	uint64_t local, size, blocks;
	bool dirty;
	bool unlinked; /* its handles wrote on after its last name went: that stays theirs alone */
};
struct apply {
	struct volume *v;
	struct replacement *replace; /* owned */
	uint32_t n_replace;
	struct batch *b;
	struct seeds seeds;
	struct seeds nameless; /* node rows: to be removed once their parts are written */
	struct notice *notice; /* owned */
	uint32_t n_notice, cap_notice;
	struct step_note *step; /* owned */
	uint32_t n_step, cap_step;
	bool members_changed;
	bool recompute; /* something unusual may be shown or may have ended */
};
/* Leaves tree_mu for moments. */
void wait_unpinned(struct volume *v, struct vnode *n);
/* A file without a name that is to have one again, and was written after it lost the last: its handles keep what they wrote under the old number, the
 * file is what its record says. */
int replace_unlinked(struct apply *a, struct vnode *n);
/* Notices are collected under locks and given afterwards. -ENOMEM loses a notice only together with the whole apply. */
int note_entry(struct apply *a, inum parent, const char *name, size_t len);
int note_inode(struct apply *a, int kind, inum ino);
int note_content(struct apply *a, inum ino, uint64_t old_size, uint64_t new_size, struct extents *bytes); /* bytes move */
int note_replaced(struct apply *a, inum old, inum fresh);
int note_step(struct apply *a, inum node, struct dot from, struct dot to, struct extents *ranges); /* ranges move; NULL: whole */
/* The names under which a link is shown now, and its directory, must be looked at anew. */
int note_link(struct apply *a, struct vlink *l);

/* ---- merging, under tree_mu with the gate held exclusively ---- */
int arrive_place(struct apply *a, struct arrival *x);
int arrive_deletion(struct apply *a, struct arrival *x);
int arrive_attrs(struct apply *a, struct arrival *x);
int arrive_times(struct apply *a, struct arrival *x);
/* A live link's deletion is carried out. */
int arrive_kill(struct apply *a, struct vlink *l, struct vnode *n);
/* hold.c: whether the deletion of a live link is held (then it is listed); 0 or 1. */
int hold_deletion(struct apply *a, struct vlink *l, struct dot dot);
int arrive_consent(struct apply *a, struct arrival *x);
/* apply.c: changes links outside of a batch, with all that follows: fn under tree_mu with the gate held exclusively. */
int apply_links(struct volume *v, int (*fn)(struct apply *a));
/* Members and unknown kinds; inside of the transaction. */
int other_arrives(struct volume *v, const struct part *p, const void *record, size_t len);
/* Would a content with this clear half be held beside what n holds? n NULL: yes. */
bool content_needed(const struct vnode *n, const struct part *p);
int arrive_content(struct apply *a, struct arrival *x);
/* replace.c: takes what is open of n out of it; all of them at the end of merging. */
int replace_later(struct apply *a, struct vnode *n, struct vnode *copy);
int replace_all(struct apply *a);
void replace_fini(struct apply *a);
/* Nodes whose last name went: what becomes of them, once the exceptions are known. */
int settle_node(struct apply *a, struct vnode *n);
#endif
