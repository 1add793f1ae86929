/* Names from the root down (design-replication 3c, 3d): directories of one name are shown as one; of files of one name the newest keeps
 * it, a directory beats files, the others get conflict names. */
#include <errno.h>
#include <stdlib.h>

#include "shown_work.h"

/* Conflict names given so far, so that no two are the same in one (joined) directory. */
struct given {
	uint32_t *head, *next, *group; /* next and group by link */
	uint32_t mask;
};

struct naming {
	struct shown_work *w;
	uint32_t *kid;   /* the links in the directory at hand, sorted by name */
	uint32_t n_kids;
	uint32_t *loser; /* those that need another name */
	uint32_t n_losers;
	uint32_t *queue; /* directories whose kids need names; shown as one where queue_more is set */
	uint8_t *more;   /* more[q]: the next one in the queue belongs to the same */
	uint32_t n_queue;
	struct given given;
	uint32_t group;
};

static int name_cmp(const struct shown_result *a, const char *name, size_t len)
{
	int c = memcmp(a->name, name, a->name_len < len ? a->name_len : len);
	return c ? c : (a->name_len > len) - (a->name_len < len);
}

/* By name; directories before files; of directories the oldest first, of files the newest. */
static int kid_cmp(const void *a, const void *b, void *ctx)
{
	const struct shown_work *w = ctx;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	int c = name_cmp(&w->ret[i], w->ret[j].name, w->ret[j].name_len);
	bool di = shown_is_dir(&w->link[i]), dj = shown_is_dir(&w->link[j]);

	if (c)
		return c;
	if (di != dj)
		return di ? -1 : 1;
	c = stamp_cmp(w->link[i].stamp, w->link[j].stamp);
	if (!c)
		c = id_cmp(&w->link[i].id, &w->link[j].id);
	return di ? c : -c;
}

static int loser_cmp(const void *a, const void *b, void *ctx)
{
	const struct shown_work *w = ctx;
	return id_cmp(&w->link[*(const uint32_t *)a].id, &w->link[*(const uint32_t *)b].id);
}

/* Is the name one of those recorded in the directory at hand? Losers' own recorded names have a winner, so each of them counts. */
static bool recorded_here(const struct naming *m, const char *name, size_t len)
{
	uint32_t lo = 0, hi = m->n_kids;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct shown_result *r = &m->w->ret[m->kid[mid]];
		int c = name_cmp(r, name, len);
		if (!c)
			return true;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

static uint32_t slot(const struct given *g, uint32_t group, const char *name, size_t len)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ group;
	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)(h ^ h >> 32) & g->mask;
}

/* A given name waits in `fresh` until all of a directory have theirs: the recorded names must stay searchable until then. */
struct fresh {
	uint16_t len;
	char name[NAME_LEN_MAX + 1];
};

static bool given_here(const struct naming *m, const struct fresh *fresh, const uint32_t *at, const char *name, size_t len)
{
	uint32_t i = m->given.head[slot(&m->given, m->group, name, len)];
	for (; i != NO_LINK; i = m->given.next[i])
		if (m->given.group[i] == m->group && fresh[at[i]].len == len && !memcmp(fresh[at[i]].name, name, len))
			return true;
	return false;
}

/* 8 digits of the link's id, all 32 where that name is taken; where even that is (somebody made such a name), a second later. */
static void name_loser(struct naming *m, uint32_t k, struct fresh *fresh, uint32_t *at)
{
	struct given *g = &m->given;
	uint32_t i = m->loser[k];
	struct fresh *f = &fresh[k];
	size_t len = shown_conflict_name(m->w, i, 0, 8, f->name);

	for (uint64_t later = 0; recorded_here(m, f->name, len) || given_here(m, fresh, at, f->name, len); later++)
		len = shown_conflict_name(m->w, i, later, ID_HEX_LEN, f->name);
	f->len = (uint16_t)len;
	at[i] = k;
	uint32_t s = slot(g, m->group, f->name, len);
	g->group[i] = m->group;
	g->next[i] = g->head[s];
	g->head[s] = i;
}

/* Tables for the names given: only made where there is a loser at all. */
static int given_init(struct given *g, uint32_t n)
{
	uint32_t size = 16;

	while (size < n && size < UINT32_C(1) << 30)
		size *= 2;
	g->mask = size - 1;
	g->head = malloc(size * sizeof *g->head);
	g->next = calloc(n, 2 * sizeof *g->next);
	if (!g->head || !g->next) {
		free(g->head);
		free(g->next);
		*g = (struct given){0};
		return -ENOMEM;
	}
	g->group = g->next + n;
	for (uint32_t i = 0; i < size; i++)
		g->head[i] = NO_LINK;
	return 0;
}

static int name_losers(struct naming *m)
{
	struct shown_work *w = m->w;
	uint32_t *at = w->path; /* not in use any more; at[i]: where link i's fresh name is */

	if (!m->n_losers)
		return 0;
	if (!m->given.head && given_init(&m->given, w->n))
		return -ENOMEM;
	struct fresh *fresh = calloc(m->n_losers, sizeof *fresh);
	if (!fresh)
		return -ENOMEM;
	qsort_r(m->loser, m->n_losers, sizeof *m->loser, loser_cmp, w);
	for (uint32_t k = 0; k < m->n_losers; k++)
		name_loser(m, k, fresh, at);
	for (uint32_t k = 0; k < m->n_losers; k++) {
		struct shown_result *r = &w->ret[m->loser[k]];
		memcpy(r->name, fresh[k].name, (size_t)fresh[k].len + 1);
		r->name_len = fresh[k].len;
		r->state = SHOWN_EXCEPTION;
		/* the chain of a slot is only ever compared within one directory: at[] may be used again */
	}
	free(fresh);
	return 0;
}

/* kid[from .. to) have one name: the directories are shown as one, or the newest file keeps it. */
static void settle_name(struct naming *m, uint32_t from, uint32_t to)
{
	struct shown_work *w = m->w;
	uint32_t dirs = 0;

	while (from + dirs < to && shown_is_dir(&w->link[m->kid[from + dirs]]))
		dirs++;
	for (uint32_t k = from; k < from + dirs; k++) {
		struct shown_result *r = &w->ret[m->kid[k]];
		r->state = SHOWN_AS_RECORDED;
		if (dirs > 1)
			r->group_lead = w->link[m->kid[from]].node;
		m->more[m->n_queue] = k + 1 < from + dirs;
		m->queue[m->n_queue++] = m->kid[k];
	}
	uint32_t k = from + dirs;
	if (!dirs)
		w->ret[m->kid[k++]].state = SHOWN_AS_RECORDED;
	for (; k < to; k++)
		m->loser[m->n_losers++] = m->kid[k];
}

static void add_kids(struct naming *m, uint32_t dir)
{
	for (uint32_t i = m->w->first_kid[dir]; i != NO_LINK; i = m->w->next_kid[i])
		m->kid[m->n_kids++] = i;
}

static bool same_name(const struct shown_work *w, uint32_t i, uint32_t j)
{
	return !name_cmp(&w->ret[i], w->ret[j].name, w->ret[j].name_len);
}

/* Gives names to all that was gathered in kid. */
static int settle_directory(struct naming *m)
{
	struct shown_work *w = m->w;

	m->n_losers = 0;
	m->group++;
	qsort_r(m->kid, m->n_kids, sizeof *m->kid, kid_cmp, w);
	for (uint32_t from = 0, to; from < m->n_kids; from = to) {
		for (to = from + 1; to < m->n_kids && same_name(w, m->kid[from], m->kid[to]); to++)
			;
		settle_name(m, from, to);
	}
	return name_losers(m);
}

int shown_give_names(struct shown_work *w)
{
	size_t words = (size_t)w->n + 1;
	uint32_t *pool = calloc(words, 3 * sizeof *pool);
	uint8_t *more = calloc(words, 1);
	int e = -ENOMEM;

	if (pool && more) {
		struct naming m = {.w = w, .kid = pool, .loser = pool + words, .queue = pool + 2 * words, .more = more};
		add_kids(&m, w->n);
		e = settle_directory(&m);
		for (uint32_t q = 0; q < m.n_queue && !e; q++) {
			m.n_kids = 0;
			add_kids(&m, m.queue[q]);
			for (; m.more[q]; q++)
				add_kids(&m, m.queue[q + 1]);
			e = settle_directory(&m);
		}
		free(m.given.head);
		free(m.given.next);
	}
	free(more);
	free(pool);
	return e;
}
