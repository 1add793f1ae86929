/* The shown tree: which links live, what is above them, where they are shown (design-replication 3). Pure, and the same for every order
 * of the input. Cycles are shown_cycles.c's, names shown_names.c's, the gathering of a closed input shown_set.c's. */
#include "shown.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "merge.h"
#include "shown_work.h"

static const struct id root_id = ROOT_ID;

bool shown_is_dir(const struct shown_link *l) { return l->own && (l->type & S_IFMT) == S_IFDIR; }

size_t shown_conflict_name(const struct shown_work *w, uint32_t i, uint64_t later_s, unsigned hex_digits,
			   char ret_name[static NAME_LEN_MAX + 1])
{
	const struct shown_link *l = &w->link[i];
	const struct shown_result *r = &w->ret[i];
	uint64_t clock_ns = l->stamp.clock_ns + later_s * UINT64_C(1000000000);
	char replica[17];

	if (l->replica_name[0])
		return conflict_name(r->name, r->name_len, clock_ns, l->replica_name, &l->id, hex_digits, ret_name);
	/* its member part is not here: the number says who it is */
	snprintf(replica, sizeof replica, "%016llx", (unsigned long long)l->stamp.dot.replica);
	return conflict_name(r->name, r->name_len, clock_ns, replica, &l->id, hex_digits, ret_name);
}

static int by_node_then_id(const void *a, const void *b, void *ctx)
{
	const struct shown_link *link = ctx, *x = &link[*(const uint32_t *)a], *y = &link[*(const uint32_t *)b];
	int c = id_cmp(&x->node, &y->node);
	return c ? c : id_cmp(&x->id, &y->id);
}

struct shown_node *shown_find_node(const struct shown_work *w, const struct id *node)
{
	uint32_t lo = 0, hi = w->n_nodes;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = id_cmp(&w->node[mid].node, node);
		if (!c)
			return &w->node[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

static void group_by_node(struct shown_work *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		w->by_node[i] = i;
	qsort_r(w->by_node, w->n, sizeof *w->by_node, by_node_then_id, (void *)w->link);
	for (uint32_t k = 0; k < w->n; k++) {
		const struct id *node = &w->link[w->by_node[k]].node;
		if (!w->n_nodes || !id_eq(&w->node[w->n_nodes - 1].node, node))
			w->node[w->n_nodes++] = (struct shown_node){.node = *node, .first = k, .dir = NO_LINK};
		w->node[w->n_nodes - 1].count++;
	}
}

/* A directory has one link. More can only come from a broken author: the same one is taken everywhere. */
static uint32_t only_link(const struct shown_work *w, const struct shown_node *nd)
{
	uint32_t best = NO_LINK;

	for (uint32_t k = nd->first; k < nd->first + nd->count; k++) {
		uint32_t i = w->by_node[k];
		if (shown_is_dir(&w->link[i]) && (best == NO_LINK || (w->link[best].covered && !w->link[i].covered)))
			best = i;
	}
	return best;
}

/* Which link of a node was deleted last; the larger id where that says nothing. */
static uint32_t deleted_last(const struct shown_work *w, const struct shown_node *nd)
{
	uint32_t best = w->by_node[nd->first];

	for (uint32_t k = nd->first + 1; k < nd->first + nd->count; k++) {
		uint32_t i = w->by_node[k];
		if (stamp_cmp(w->link[i].deleted, w->link[best].deleted) >= 0)
			best = i;
	}
	return best;
}

static void find_alive_file(struct shown_work *w, const struct shown_node *nd)
{
	bool any = false;
	uint32_t one = w->by_node[nd->first];

	if (!w->link[one].complete)
		return;
	for (uint32_t k = nd->first; k < nd->first + nd->count; k++) {
		uint32_t i = w->by_node[k];
		if (w->link[i].covered)
			continue;
		w->flags[i] |= LINK_ALIVE;
		any = true;
	}
	/* an edit that no deletion saw beats them */
	if (!any && w->link[one].content_unseen)
		w->flags[deleted_last(w, nd)] |= LINK_ALIVE;
}

static void find_alive(struct shown_work *w)
{
	for (uint32_t k = 0; k < w->n_nodes; k++) {
		struct shown_node *nd = &w->node[k];
		uint32_t dir = only_link(w, nd);
		if (dir == NO_LINK) {
			find_alive_file(w, nd);
			continue;
		}
		if (!w->link[dir].complete)
			continue;
		nd->dir = dir;
		if (!w->link[dir].covered)
			w->flags[dir] |= LINK_ALIVE;
	}
}

static uint32_t up_of(const struct shown_work *w, const struct id *parent)
{
	if (id_eq(parent, &root_id))
		return UP_ROOT;
	const struct shown_node *nd = shown_find_node(w, parent);
	return nd ? nd->dir : NO_LINK;
}

/* The link beside which the copies of a node are shown: its live link with the smallest id, else the one deleted last. */
static uint32_t primary(const struct shown_work *w, const struct id *node)
{
	const struct shown_node *nd = shown_find_node(w, node);

	if (!nd)
		return NO_LINK;
	for (uint32_t k = nd->first; k < nd->first + nd->count; k++)
		if (w->flags[w->by_node[k]] & LINK_ALIVE)
			return w->by_node[k];
	return deleted_last(w, nd);
}

static void set_name(struct shown_result *r, const char *name, size_t len)
{
	memcpy(r->name, name, len);
	r->name[len] = 0;
	r->name_len = (uint16_t)len;
}

/* Places an untouched copy, and those that it hangs on, beside their file. */
static void place_copy(struct shown_work *w, uint32_t i)
{
	uint32_t len = 0, base = i;
	char name[NAME_LEN_MAX + 1];

	while (base != NO_LINK && !w->link[base].own && !w->ret[base].name_len && !(w->flags[base] & LINK_ON_PATH)) {
		w->flags[base] |= LINK_ON_PATH;
		w->path[len++] = base;
		base = primary(w, &w->link[base].of);
	}
	bool lost = base == NO_LINK || (w->flags[base] & LINK_ON_PATH) || !w->ret[base].name_len;
	while (len--) {
		uint32_t j = w->path[len];
		w->flags[j] &= (uint8_t)~LINK_ON_PATH;
		if (lost)
			continue;
		set_name(&w->ret[j], w->ret[base].name, w->ret[base].name_len);
		set_name(&w->ret[j], name, shown_conflict_name(w, j, 0, 8, name));
		w->up[j] = w->up[base];
		base = j;
	}
}

/* Recorded places. Copies come after all others: they hang on them. */
static void find_places(struct shown_work *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		const struct shown_link *l = &w->link[i];
		w->up[i] = NO_LINK;
		if (!l->own)
			continue;
		set_name(&w->ret[i], l->name, l->name_len);
		w->up[i] = up_of(w, &l->parent);
	}
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->link[i].own)
			place_copy(w, i);
	for (uint32_t i = 0; i < w->n; i++)
		if (!w->link[i].own && !w->ret[i].name_len)
			w->flags[i] &= (uint8_t)~LINK_ALIVE;
}

/* Marks i and what is above it as needed, or as broken where the chain ends in nothing. A cycle is whole. */
static void reach_up(struct shown_work *w, uint32_t i)
{
	uint32_t len = 0;

	while (i < UP_ROOT && !(w->flags[i] & (LINK_NEEDED | LINK_BROKEN | LINK_ON_PATH))) {
		w->flags[i] |= LINK_ON_PATH;
		w->path[len++] = i;
		i = w->up[i];
	}
	uint8_t mark = i == NO_LINK || (i != UP_ROOT && (w->flags[i] & LINK_BROKEN)) ? LINK_BROKEN : LINK_NEEDED;
	while (len--)
		w->flags[w->path[len]] = (uint8_t)((w->flags[w->path[len]] & ~LINK_ON_PATH) | mark);
}

/* Shown is what lives, and the directories above it where it is shown (not where it was recorded). */
static void keep_up(struct shown_work *w, uint32_t i)
{
	while (i < UP_ROOT && !(w->flags[i] & LINK_KEPT)) {
		w->flags[i] |= LINK_KEPT;
		i = w->up[i];
	}
}

static void list_kids(struct shown_work *w)
{
	for (uint32_t i = 0; i <= w->n; i++)
		w->first_kid[i] = NO_LINK;
	for (uint32_t i = 0; i < w->n; i++) {
		if (!(w->flags[i] & LINK_KEPT))
			continue;
		uint32_t dir = w->up[i] == UP_ROOT ? w->n : w->up[i];
		w->next_kid[i] = w->first_kid[dir];
		w->first_kid[dir] = i;
	}
}

static void finish(const struct shown_work *w, uint32_t i)
{
	const struct shown_link *l = &w->link[i];
	struct shown_result *r = &w->ret[i];

	if (r->state == SHOWN_NOT) {
		*r = (struct shown_result){0};
		return;
	}
	r->parent = w->up[i] == UP_ROOT ? root_id : w->link[w->up[i]].node;
	r->dead = l->covered;
	bool same = l->own && !l->covered && id_eq(&r->parent, &l->parent) && r->name_len == l->name_len &&
		    !memcmp(r->name, l->name, l->name_len);
	r->state = same ? SHOWN_AS_RECORDED : SHOWN_EXCEPTION;
}

static int compute(struct shown_work *w)
{
	group_by_node(w);
	find_alive(w);
	find_places(w);
	for (uint32_t i = 0; i < w->n; i++)
		if (w->flags[i] & LINK_ALIVE)
			reach_up(w, i);
	shown_break_cycles(w);
	for (uint32_t i = 0; i < w->n; i++)
		if ((w->flags[i] & (LINK_ALIVE | LINK_NEEDED)) == (LINK_ALIVE | LINK_NEEDED))
			keep_up(w, i);
	list_kids(w);
	int e = shown_give_names(w);
	for (uint32_t i = 0; i < w->n && !e; i++)
		finish(w, i);
	return e;
}

int shown_compute(const struct shown_link *link, uint32_t n, struct shown_result *ret)
{
	size_t words = (size_t)n + 1;
	uint32_t *pool = calloc(words, 5 * sizeof *pool);
	struct shown_node *node = calloc(words, sizeof *node);
	uint8_t *flags = calloc(words, 1);
	int e = -ENOMEM;

	if (pool && node && flags) {
		struct shown_work w = {.link = link, .n = n, .ret = ret, .node = node, .flags = flags};
		w.by_node = pool;
		w.up = pool + words;
		w.path = pool + 2 * words;
		w.first_kid = pool + 3 * words;
		w.next_kid = pool + 4 * words;
		if (n)
			memset(ret, 0, n * sizeof *ret);
		e = compute(&w);
	}
	free(flags);
	free(node);
	free(pool);
	return e;
}
