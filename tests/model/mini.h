/* A replica in memory, made of the pure parts of the volume only: records, merge rules, shown tree. No journal, no contents but one number a
 * file. The tests of the rules drive it; tests/model/history.h is the border to whatever else shall be driven in the same way. */
#ifndef TWOFOLD_TEST_MINI_H
#define TWOFOLD_TEST_MINI_H
#include "merge.h"
#include "shown.h"

struct mini {
	uint64_t replica, counter, last_ns;
	struct vector known;
	struct part **part; /* sorted by (kind, id, dot); owned */
	uint32_t n, cap;
	struct shown_link *before; /* the links at the last mini_check_closing; owned */
	uint32_t n_before;
	struct id *unusual; /* which of them were unusual then; owned */
	uint32_t n_unusual;
};
void mini_init(struct mini *m, uint64_t replica);
void mini_fini(struct mini *m);
/* "A" for replica 1 and so on. */
void mini_replica_name(uint64_t replica, char ret_name[static 33]);

/* Merges p, which is taken. Does nothing about knowledge. */
void mini_merge(struct mini *m, struct part *p);
/* A change made here: gives p stamp, vector and apart, and merges it. now_ns is this replica's wall clock. */
void mini_change(struct mini *m, struct part *p, uint64_t now_ns);
/* The same with clock and counter given. */
void mini_change_as(struct mini *m, struct part *p, uint64_t clock_ns, uint64_t counter);
const struct part *mini_place(const struct mini *m, const struct id *link);
/* All contents of a file as they are shown: own parts and derived copies; the vector of what was ever held. */
void mini_contents_seen(const struct mini *m, const struct id *node, struct vector *ret);

/* The links that there are; derived copies included. Caller frees. token[i]: the number in the content of link i's node. */
struct shown_link *mini_links(const struct mini *m, uint32_t *ret_n, uint64_t **ret_token);

/* What is shown, by path ("a/b", the root is ""). */
struct mini_view {
	uint32_t n;
	struct shown_link *link;
	struct shown_result *result;
	uint64_t *token;
	char **path; /* NULL: not shown */
};
void mini_view(const struct mini *m, struct mini_view *ret);
void mini_view_fini(struct mini_view *v);
/* The first link at or after `from` that is shown at path; v->n where there is none. */
uint32_t mini_at(const struct mini_view *v, const char *path, uint32_t from);
/* The directory node that a new name in path is recorded in. */
struct id mini_dir(const struct mini_view *v, const char *path);

/* Does closing from what has changed since the last call and what was unusual then find the same as computing everything? And any order
 * of the input? Returns how many links came out differently. */
int mini_check_closing(struct mini *m, unsigned seed);
#endif
