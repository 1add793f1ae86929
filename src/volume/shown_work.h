/* What the steps of shown_compute share; inside of the volume layer. Links are spoken of by their index in the input. */
#ifndef TWOFOLD_SHOWN_WORK_H
#define TWOFOLD_SHOWN_WORK_H
#include "shown.h"

#define NO_LINK UINT32_MAX
#define UP_ROOT (UINT32_MAX - 1) /* shown in the root */

enum {
	LINK_ALIVE = 1,   /* shown for its own sake */
	LINK_NEEDED = 2,  /* alive or above something alive, and its recorded chain is whole or a cycle */
	LINK_BROKEN = 4,  /* its recorded chain ends in a directory that is not here */
	LINK_ON_PATH = 8, /* being walked */
	LINK_KEPT = 16,   /* shown */
	LINK_MOVED_ONCE = 32,
};

/* One node of the input: its links are by_node[first .. first + count), in the order of their ids. */
struct shown_node {
	struct id node;
	uint32_t first, count;
	uint32_t dir; /* a directory's link; NO_LINK: not a directory, or not complete */
};

struct shown_work {
	const struct shown_link *link;
	uint32_t n;
	struct shown_result *ret; /* its name is the recorded one until the names are given */
	uint32_t *by_node;
	struct shown_node *node; /* sorted by id */
	uint32_t n_nodes;
	uint32_t *up;    /* the directory that it is in: a link, UP_ROOT or NO_LINK */
	uint32_t *path;  /* scratch, n + 1 */
	uint32_t *first_kid, *next_kid; /* first_kid[n] is the root's */
	uint8_t *flags;
};

bool shown_is_dir(const struct shown_link *l);
/* The node, or NULL. */
struct shown_node *shown_find_node(const struct shown_work *w, const struct id *node);
/* The conflict name of link i made from the name in `ret`; returns its length. */
size_t shown_conflict_name(const struct shown_work *w, uint32_t i, uint64_t later_s, unsigned hex_digits,
			   char ret_name[static NAME_LEN_MAX + 1]);
/* Breaks cycles among the needed directories by changing `up`. */
void shown_break_cycles(struct shown_work *w);
/* From the root down: gives every kept link its name and its group. 0 or -ENOMEM. */
int shown_give_names(struct shown_work *w);
#endif
