/* What the small replica shows, by path; and the check that closing a set of seeds gives what computing everything gives. */
#include <stdio.h>
#include <stdlib.h>

#include "mini.h"

static const struct id root_id = ROOT_ID;

static void *must(void *p)
{
	if (!p) {
		perror("out of memory");
		exit(2);
	}
	return p;
}

static uint32_t dir_link(const struct mini_view *v, const struct id *node)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (v->result[i].state != SHOWN_NOT && id_eq(&v->link[i].node, node))
			return i;
	return v->n;
}

static const char *path_of(struct mini_view *v, uint32_t i)
{
	if (v->path[i] || v->result[i].state == SHOWN_NOT)
		return v->path[i];
	const char *above = "";
	if (!id_eq(&v->result[i].parent, &root_id)) {
		uint32_t up = dir_link(v, &v->result[i].parent);
		above = up < v->n ? path_of(v, up) : NULL;
	}
	if (!above || asprintf(&v->path[i], "%s%s%s", above, *above ? "/" : "", v->result[i].name) < 0) {
		fprintf(stderr, "a shown link has no path\n");
		exit(2);
	}
	return v->path[i];
}

void mini_view(const struct mini *m, struct mini_view *ret)
{
	*ret = (struct mini_view){0};
	ret->link = mini_links(m, &ret->n, &ret->token);
	ret->result = must(calloc((size_t)ret->n + 1, sizeof *ret->result));
	ret->path = must(calloc((size_t)ret->n + 1, sizeof *ret->path));
	if (shown_compute(ret->link, ret->n, ret->result))
		must(NULL);
	for (uint32_t i = 0; i < ret->n; i++)
		path_of(ret, i);
}

void mini_view_fini(struct mini_view *v)
{
	for (uint32_t i = 0; i < v->n; i++)
		free(v->path[i]);
	free(v->path);
	free(v->link);
	free(v->result);
	free(v->token);
}

uint32_t mini_at(const struct mini_view *v, const char *path, uint32_t from)
{
	while (from < v->n && (!v->path[from] || strcmp(v->path[from], path)))
		from++;
	return from;
}

struct id mini_dir(const struct mini_view *v, const char *path)
{
	uint32_t i = mini_at(v, path, 0);

	if (!*path || i == v->n)
		return root_id;
	return id_is_zero(&v->result[i].group_lead) ? v->link[i].node : v->result[i].group_lead;
}

/* ---- closing ---- */

struct all_links {
	const struct shown_link *l;
	uint32_t n;
};

static int add_if(const struct all_links *a, uint32_t i, bool yes, struct shown_set *set)
{
	return yes ? shown_set_add(set, &a->l[i]) : 0;
}

static int source_link(void *ctx, const struct id *link, struct shown_set *set)
{
	const struct all_links *a = ctx;
	int e = 0;
	for (uint32_t i = 0; i < a->n && !e; i++)
		e = add_if(a, i, id_eq(&a->l[i].id, link), set);
	return e;
}

static int source_node(void *ctx, const struct id *node, struct shown_set *set)
{
	const struct all_links *a = ctx;
	int e = 0;
	for (uint32_t i = 0; i < a->n && !e; i++)
		e = add_if(a, i, id_eq(&a->l[i].node, node) || (!a->l[i].own && id_eq(&a->l[i].of, node)), set);
	return e;
}

static int source_children(void *ctx, const struct id *parent, struct shown_set *set)
{
	const struct all_links *a = ctx;
	int e = 0;
	for (uint32_t i = 0; i < a->n && !e; i++)
		e = add_if(a, i, a->l[i].own && id_eq(&a->l[i].parent, parent), set);
	return e;
}

static int source_named(void *ctx, const struct id *parent, const void *name, size_t len, struct shown_set *set)
{
	const struct all_links *a = ctx;
	int e = 0;
	for (uint32_t i = 0; i < a->n && !e; i++)
		e = add_if(a, i, a->l[i].own && id_eq(&a->l[i].parent, parent) && a->l[i].name_len == len && !memcmp(a->l[i].name, name, len),
			   set);
	return e;
}

static bool same_result(const struct shown_result *a, const struct shown_result *b)
{
	return a->state == b->state && a->dead == b->dead && id_eq(&a->parent, &b->parent) && id_eq(&a->group_lead, &b->group_lead) &&
	       a->name_len == b->name_len && !memcmp(a->name, b->name, a->name_len);
}

/* Unusual: what the seeds of the next closing must hold (shown.h). */
static bool is_unusual(const struct shown_link *l, const struct shown_result *r)
{
	return r->state == SHOWN_EXCEPTION || !id_is_zero(&r->group_lead) || (r->state == SHOWN_NOT && !l->covered);
}

/* Below something that is not shown: nobody gets there. */
static bool out_of_reach(const struct all_links *a, const struct shown_result *full, uint32_t i)
{
	for (uint32_t k = 0; k < a->n; k++)
		if (id_eq(&a->l[k].node, &a->l[i].parent))
			return full[k].state == SHOWN_NOT;
	return false;
}

static uint32_t compare_closed(const struct all_links *a, const struct shown_result *full, const struct shown_set *set,
			       const struct shown_result *closed)
{
	uint32_t n, bad = 0;
	const struct shown_link *l = shown_set_links(set, &n);

	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t k = 0;
		while (k < n && !id_eq(&l[k].id, &a->l[i].id))
			k++;
		if (k < n)
			bad += !same_result(&full[i], &closed[k]);
		else
			bad += is_unusual(&a->l[i], &full[i]) && !(full[i].state == SHOWN_NOT && out_of_reach(a, full, i));
	}
	return bad;
}

/* Computes a shuffled copy of the input. */
static uint32_t compare_shuffled(const struct all_links *a, const struct shown_result *full, unsigned seed)
{
	struct shown_link *l = must(calloc((size_t)a->n + 1, sizeof *l));
	struct shown_result *r = must(calloc((size_t)a->n + 1, sizeof *r));
	uint32_t *at = must(calloc((size_t)a->n + 1, sizeof *at)), bad = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t j = (uint32_t)rand_r(&seed) % (i + 1);
		at[i] = at[j];
		at[j] = i;
	}
	for (uint32_t i = 0; i < a->n; i++)
		l[i] = a->l[at[i]];
	if (shown_compute(l, a->n, r))
		must(NULL);
	for (uint32_t i = 0; i < a->n; i++)
		bad += !same_result(&r[i], &full[at[i]]);
	free(l);
	free(r);
	free(at);
	return bad;
}

static bool same_link(const struct shown_link *a, const struct shown_link *b)
{
	return !stamp_cmp(a->stamp, b->stamp) && !stamp_cmp(a->deleted, b->deleted) && a->own == b->own && a->covered == b->covered &&
	       a->content_unseen == b->content_unseen && a->complete == b->complete;
}

static void seed_changed(const struct mini *m, const struct all_links *a, struct shown_set *set)
{
	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t k = 0;
		while (k < m->n_before && !id_eq(&m->before[k].id, &a->l[i].id))
			k++;
		if (add_if(a, i, k == m->n_before || !same_link(&m->before[k], &a->l[i]), set))
			must(NULL);
	}
}

static void keep_unusual(struct mini *m, const struct shown_set *set, const struct shown_result *closed)
{
	uint32_t n;
	const struct shown_link *l = shown_set_links(set, &n);

	free(m->unusual);
	m->unusual = must(calloc((size_t)n + 1, sizeof *m->unusual));
	m->n_unusual = 0;
	for (uint32_t i = 0; i < n; i++)
		if (is_unusual(&l[i], &closed[i]))
			m->unusual[m->n_unusual++] = l[i].id;
}

int mini_check_closing(struct mini *m, unsigned seed)
{
	struct shown_source src = {source_link, source_node, source_children, source_named, NULL};
	struct mini_view v;
	struct shown_result *closed = NULL;
	struct shown_set *set = must(shown_set_new());

	mini_view(m, &v);
	struct all_links a = {v.link, v.n};
	src.ctx = &a;
	seed_changed(m, &a, set);
	for (uint32_t i = 0; i < m->n_unusual; i++)
		if (source_link(&a, &m->unusual[i], set))
			must(NULL);
	if (shown_close_and_compute(set, &src, &closed))
		must(NULL);
	uint32_t bad = compare_closed(&a, v.result, set, closed) + compare_shuffled(&a, v.result, seed);
	keep_unusual(m, set, closed);
	free(m->before);
	m->before = v.link;
	m->n_before = v.n;
	v.link = NULL;
	free(closed);
	shown_set_free(set);
	for (uint32_t i = 0; i < v.n; i++)
		free(v.path[i]);
	v.n = 0;
	mini_view_fini(&v);
	return (int)bad;
}
