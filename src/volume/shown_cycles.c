/* Cycles of directories (design-replication 3b): the place with the newest clock is shown at the parent it had before, if that is
 * shown, else at the root; until there is no cycle. A directory gives way at most twice, so it ends. Cycles have no link in common and
 * breaking one leaves the others as they are, so their order does not matter. */
#include "shown_work.h"

static const struct id root_id = ROOT_ID;

static bool newer(const struct shown_work *w, uint32_t i, uint32_t j)
{
	int c = stamp_cmp(w->link[i].stamp, w->link[j].stamp);
	return c ? c > 0 : id_cmp(&w->link[i].id, &w->link[j].id) > 0;
}

/* The newest place of the cycle that contains i. */
static uint32_t newest(const struct shown_work *w, uint32_t i)
{
	uint32_t best = i;

	for (uint32_t j = w->up[i]; j != i; j = w->up[j])
		if (newer(w, j, best))
			best = j;
	return best;
}

static uint32_t way_out(const struct shown_work *w, uint32_t i)
{
	const struct id *before = &w->link[i].parent_before;

	if ((w->flags[i] & LINK_MOVED_ONCE) || id_is_zero(before) || id_eq(before, &w->link[i].parent) || id_eq(before, &root_id))
		return UP_ROOT;
	const struct shown_node *nd = shown_find_node(w, before);
	if (!nd || nd->dir == NO_LINK || !(w->flags[nd->dir] & LINK_NEEDED))
		return UP_ROOT;
	return nd->dir;
}

/* Is i on a cycle? A walk that runs into another cycle (one not broken yet) ends there. */
static bool on_cycle(struct shown_work *w, uint32_t i)
{
	uint32_t len = 0, j = i;
	bool back;

	do {
		w->flags[j] |= LINK_ON_PATH;
		w->path[len++] = j;
		j = w->up[j];
	} while (j < UP_ROOT && !(w->flags[j] & LINK_ON_PATH));
	back = j == i;
	while (len--)
		w->flags[w->path[len]] &= (uint8_t)~LINK_ON_PATH;
	return back;
}

static void break_at(struct shown_work *w, uint32_t i)
{
	do {
		uint32_t x = newest(w, i);
		w->up[x] = way_out(w, x);
		w->flags[x] |= LINK_MOVED_ONCE;
		i = x;
	} while (w->up[i] != UP_ROOT && on_cycle(w, i));
}

void shown_break_cycles(struct shown_work *w)
{
	/* seen[i]: the walk that came to i first; first_kid is not in use yet */
	uint32_t *seen = w->first_kid;

	for (uint32_t i = 0; i < w->n; i++)
		seen[i] = NO_LINK;
	for (uint32_t i = 0; i < w->n; i++) {
		if (!(w->flags[i] & LINK_NEEDED))
			continue;
		uint32_t j = i;
		while (j < UP_ROOT && seen[j] == NO_LINK) {
			seen[j] = i;
			j = w->up[j];
		}
		/* an end in this walk's own links is a cycle, met here for the first time */
		if (j < UP_ROOT && seen[j] == i)
			break_at(w, j);
	}
}
