/* The table of what is shown otherwise than recorded; inside of the volume layer. Its callers outside use internal.h's functions.
 *
 * In memory only the table decides. journal.db keeps which links and directories stand in it: at open they are the seeds from which it is
 * computed again (the shown tree is a function of the parts), so a row too many there does no harm, and one too few is the only
 * damage possible. Rows are added in the transaction that makes them necessary. All under tree_mu. */
#ifndef TWOFOLD_EXCEPTIONS_H
#define TWOFOLD_EXCEPTIONS_H
#include "batch.h"
#include "internal.h"

struct exc {
	uint64_t link; /* row */
	inum node;
	inum parent; /* where it is shown; 0: nowhere, though no deletion says so (something is not here yet) */
	char *name;  /* owned */
	uint16_t name_len;
	bool stored; /* journal.db has it like this */
	bool keep;   /* inside of a computation */
	uint32_t tries; /* shown nowhere for lack of its bytes: how often peers were asked for them, and when they are next */
	uint64_t try_ns; /* monotonic */
	struct exc *next_link, *next_name;
	struct list at;
};
struct group { /* directories shown as one */
	inum *member; /* owned; the oldest, the lead, first */
	uint32_t n;
};
struct exceptions {
	struct exc *by_link[1024], *by_name[1024];
	struct list all;
	uint64_t *gone; /* owned: links whose rows must go */
	uint32_t n_gone, cap_gone;
	struct group *group; /* owned */
	uint32_t n_group;
	inum *stored_member; /* owned: members that journal.db names */
	uint32_t n_stored_member;
	bool groups_changed;
};

struct exc *exc_find(struct volume *v, uint64_t link);
/* Inserts or changes. -ENOMEM. */
int exc_put(struct volume *v, uint64_t link, inum node, inum parent, const char *name, size_t len);
int exc_remove(struct volume *v, uint64_t link); /* nothing where there is none */
/* The group of a directory, NULL: it stands alone. */
const struct group *group_of(struct volume *v, inum dir);
int group_set(struct volume *v, const struct group *group, uint32_t n); /* copied; all groups at once */
void group_leave(struct volume *v, inum dir); /* it is removed; the group of one that is left ends */
/* Writes what changed to journal.db; inside of an open transaction. Repeatable where that is rolled back: call exceptions_written after COMMIT. */
int exceptions_write(struct volume *v);
void exceptions_written(struct volume *v);

/* exceptions_update.c: computes the table anew around the seeds and all that stands in it. a may be NULL (at open): no notices. */
int exceptions_update(struct volume *v, const struct seeds *seeds, struct apply *a);
/* Is everything about these links as plain as can be, so that the table (which is empty) need not be computed? */
int exceptions_needed(struct volume *v, const struct seeds *seeds, bool *ret);

/* The conflict name with 8 digits that this link, shown as x, has or would have where that is free. Returns its length; 0: none (it was changed in this
 * transaction, or does not open). ret_name: NAME_LEN_MAX + 1. */
size_t exceptions_short_name(struct volume *v, const struct vlink *l, const struct exc *x, char *ret_name);

/* derived.c: the copy that shows content x of n, with its node and its link; made where it is not there yet. x may move. */
int derived_make(struct volume *v, struct vnode *n, uint32_t extra, struct vlink **ret);
/* Content `dot` of n is superseded: an untouched copy of it goes. */
int derived_gone(struct apply *a, struct vnode *n, inum copy);
#endif
