/* The shown tree (design-replication 3), pure: from the links held to what is shown where. No I/O.
 *
 * The input is a set of links that is *closed* for the question asked (see shown_source): either all links of the volume, or the
 * links concerned by something unusual and all that they can collide with. The result lists every link of the input with where it is shown. */
#ifndef TWOFOLD_SHOWN_H
#define TWOFOLD_SHOWN_H
#include "part.h"

/* One link as merged. Untouched copies (derived) come with own = false: their node, `of` (the node whose losing content they are) and the
 * losing content's stamp in `stamp`; parent, name and type are filled in by the rules. */
struct shown_link {
	struct id id, node, parent, parent_before;
	struct stamp stamp; /* of the place; of the content for derived ones */
	uint32_t type;
	bool own;
	bool covered;         /* its deletions have seen its present place (derived: any deletion) */
	bool content_unseen;  /* all deletions of this node's links together have not seen its content (files); the same for all links of a node */
	struct stamp deleted; /* largest stamp of its deletions; zero where there is none */
	bool complete;        /* the node has what it needs to be shown (a file: a content) */
	struct id of;         /* derived: the node */
	uint16_t name_len;
	char name[NAME_LEN_MAX + 1];
	char replica_name[33]; /* of the replica that made `stamp`, for conflict names */
};
enum shown_state { SHOWN_NOT = 0, SHOWN_AS_RECORDED, SHOWN_EXCEPTION };
struct shown_result {
	enum shown_state state;
	struct id parent; /* where it is shown */
	uint16_t name_len;
	char name[NAME_LEN_MAX + 1];
	struct id group_lead; /* node id of the leading directory, where this directory is shown as one with others (the lead too); else zero.
			       * `state` and `parent` say nothing of it: what lies in a member has that member as its parent */
	bool dead;            /* not alive by itself (covered), shown only because of what lies under it or an unseen content */
};
/* Computes ret[i] for link[i], n links, in any order: the same for every order. A parent that is neither ROOT_ID nor in the
 * set is "not here yet": what lies below is SHOWN_NOT. 0 or -ENOMEM. */
int shown_compute(const struct shown_link *link, uint32_t n, struct shown_result *ret);

/* Gathering a closed set without reading the whole volume. The callbacks append to `set` through shown_set_add.
 * The seeds: every link whose place, deletions or completeness changed, all links and copies of a node whose contents changed; and all that is
 * unusual up to now: links with SHOWN_EXCEPTION, those with a group_lead, and those not covered that are SHOWN_NOT. Then every link that
 * is not in the closed set is as recorded (or covered and not shown, or out of reach below something not shown), and those in it have the
 * results that all links of the volume would give. */
struct shown_set;
struct shown_source {
	int (*link)(void *ctx, const struct id *link, struct shown_set *set);                   /* that link, if it is held */
	int (*links_of_node)(void *ctx, const struct id *node, struct shown_set *set);          /* all links and derived copies of it */
	int (*children)(void *ctx, const struct id *parent, struct shown_set *set);             /* all links recorded in that directory, dead ones that matter too */
	int (*named)(void *ctx, const struct id *parent, const void *name, size_t len, struct shown_set *set); /* links recorded there under that name */
	void *ctx;
};
struct shown_set *shown_set_new(void);
void shown_set_free(struct shown_set *s);
int shown_set_add(struct shown_set *s, const struct shown_link *l); /* once per id; later ones are ignored */
const struct shown_link *shown_set_links(const struct shown_set *s, uint32_t *ret_n);
/* Extends the seeds in s until it is closed: links of the same nodes, directories above (recorded, before, shown), names where a displaced link
 * lands, children of directories shown as one, copies' base links, children of dead directories that are brought back. Then computes.
 * ret: array of n results (caller frees), in the order of shown_set_links. Cost: proportional to what is unusual, not to the volume. */
int shown_close_and_compute(struct shown_set *s, const struct shown_source *src, struct shown_result **ret);
#endif
