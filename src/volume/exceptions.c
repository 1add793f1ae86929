/* Look-up in what is shown otherwise than recorded. See exceptions.h. */
#include "exceptions.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BUCKETS 1024
static uint32_t link_bucket(uint64_t link) { return (uint32_t)((link * UINT64_C(0x9e3779b97f4a7c15)) >> 54); }

static uint32_t name_bucket(inum parent, const char *name, size_t len)
{
	uint64_t h = parent * UINT64_C(0x9e3779b97f4a7c15);

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	return (uint32_t)((h ^ h >> 32) % BUCKETS);
}

struct exc *exc_find(struct volume *v, uint64_t link)
{
	struct exc *x = v->exceptions->by_link[link_bucket(link)];

	while (x && x->link != link)
		x = x->next_link;
	return x;
}

static void name_add(struct exceptions *t, struct exc *x)
{
	struct exc **b = &t->by_name[name_bucket(x->parent, x->name, x->name_len)];

	x->next_name = *b;
	*b = x;
}

static void name_del(struct exceptions *t, struct exc *x)
{
	struct exc **p = &t->by_name[name_bucket(x->parent, x->name, x->name_len)];

	while (*p != x)
		p = &(*p)->next_name;
	*p = x->next_name;
}

static int gone_add(struct exceptions *t, uint64_t link)
{
	if (t->n_gone == t->cap_gone) {
		uint32_t cap = t->cap_gone ? t->cap_gone * 2 : 16;
		uint64_t *p = reallocarray(t->gone, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		t->gone = p;
		t->cap_gone = cap;
	}
	t->gone[t->n_gone++] = link;
	return 0;
}

static char *copy_name(const char *name, size_t len)
{
	char *p = malloc(len + 1);

	if (p) {
		memcpy(p, name, len);
		p[len] = 0;
	}
	return p;
}

int exc_put(struct volume *v, uint64_t link, inum node, inum parent, const char *name, size_t len)
{
	struct exceptions *t = v->exceptions;
	struct exc *x = exc_find(v, link);

	if (x && x->parent == parent && x->name_len == len && !memcmp(x->name, name, len))
		return 0;
	char *copy = copy_name(name, len);
	if (!copy)
		return -ENOMEM;
	if (x) {
		name_del(t, x);
		free(x->name);
	} else {
		if (!(x = calloc(1, sizeof *x))) {
			free(copy);
			return -ENOMEM;
		}
		x->link = link;
		x->next_link = t->by_link[link_bucket(link)];
		t->by_link[link_bucket(link)] = x;
		list_init(&x->at);
		list_add(&t->all, &x->at);
		v->n_exceptions++;
	}
	x->node = node;
	x->parent = parent;
	x->name = copy;
	x->name_len = (uint16_t)len;
	x->stored = false;
	name_add(t, x);
	return 0;
}

static void exc_free(struct volume *v, struct exc *x)
{
	struct exc **p = &v->exceptions->by_link[link_bucket(x->link)];

	while (*p != x)
		p = &(*p)->next_link;
	*p = x->next_link;
	name_del(v->exceptions, x);
	list_del(&x->at);
	v->n_exceptions--;
	free(x->name);
	free(x);
}

int exc_remove(struct volume *v, uint64_t link)
{
	struct exc *x = exc_find(v, link);

	if (!x)
		return 0;
	int e = gone_add(v->exceptions, link);
	if (!e)
		exc_free(v, x);
	return e;
}

/* ---- groups ---- */
static void groups_free(struct exceptions *t)
{
	for (uint32_t i = 0; i < t->n_group; i++)
		free(t->group[i].member);
	free(t->group);
	t->group = NULL;
	t->n_group = 0;
}

const struct group *group_of(struct volume *v, inum dir)
{
	struct exceptions *t = v->exceptions;

	for (uint32_t i = 0; i < t->n_group; i++)
		for (uint32_t k = 0; k < t->group[i].n; k++)
			if (t->group[i].member[k] == dir)
				return &t->group[i];
	return NULL;
}

static bool groups_eq(const struct exceptions *t, const struct group *g, uint32_t n)
{
	if (t->n_group != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (t->group[i].n != g[i].n || memcmp(t->group[i].member, g[i].member, g[i].n * sizeof *g[i].member))
			return false;
	return true;
}

int group_set(struct volume *v, const struct group *g, uint32_t n)
{
	struct exceptions *t = v->exceptions;

	if (groups_eq(t, g, n))
		return 0;
	struct group *copy = calloc(n + 1, sizeof *copy);
	bool ok = copy;
	for (uint32_t i = 0; i < n && ok; i++) {
		copy[i].n = g[i].n;
		ok = (copy[i].member = malloc(g[i].n * sizeof *g[i].member));
		if (ok)
			memcpy(copy[i].member, g[i].member, g[i].n * sizeof *g[i].member);
	}
	if (!ok) {
		for (uint32_t i = 0; copy && i < n; i++)
			free(copy[i].member);
		free(copy);
		return -ENOMEM;
	}
	groups_free(t);
	t->group = copy;
	t->n_group = v->n_groups = n;
	t->groups_changed = true;
	return 0;
}

void group_leave(struct volume *v, inum dir)
{
	struct exceptions *t = v->exceptions;
	struct group *g = (struct group *)group_of(v, dir);

	if (!g)
		return;
	uint32_t n = 0;
	for (uint32_t k = 0; k < g->n; k++)
		if (g->member[k] != dir)
			g->member[n++] = g->member[k];
	g->n = n;
	if (n < 2) {
		free(g->member);
		*g = t->group[--t->n_group];
		v->n_groups = t->n_group;
	}
	t->groups_changed = true;
}

inum exceptions_lead(struct volume *v, inum dir)
{
	const struct group *g = v->n_groups ? group_of(v, dir) : NULL;
	return g ? g->member[0] : dir;
}

/* ---- journal.db ---- */
int exceptions_write(struct volume *v)
{
	struct exceptions *t = v->exceptions;
	int e = 0;

	for (uint32_t i = 0; i < t->n_gone && !e; i++)
		e = journal_exception_delete(v->journal, t->gone[i]);
	for (struct list *i = t->all.next; i != &t->all && !e; i = i->next) {
		struct exc *x = LIST_OF(i, struct exc, at);
		struct exception_row r = {.link = x->link, .parent = x->parent};
		struct buf sealed = {0};
		struct vnode *dir;
		if (x->stored)
			continue;
		if (x->parent && !(e = vnode_get(v, x->parent, &dir)))
			keyring_index_tag(v->keys, &dir->id, x->name, x->name_len, r.tag);
		e = e ? e : name_seal(v, x->name, x->name_len, &sealed);
		r.name = (struct blob){sealed.p, sealed.len};
		e = e ? e : journal_exception_put(v->journal, &r);
		buf_fini(&sealed);
	}
	for (uint32_t i = 0; i < t->n_stored_member && t->groups_changed && !e; i++)
		e = journal_group_delete(v->journal, t->stored_member[i]);
	for (uint32_t i = 0; i < t->n_group && t->groups_changed && !e; i++)
		for (uint32_t k = 0; k < t->group[i].n && !e; k++)
			e = journal_group_put(v->journal, t->group[i].member[k], t->group[i].member[0]);
	return e;
}

void exceptions_written(struct volume *v)
{
	struct exceptions *t = v->exceptions;
	uint32_t n = 0;

	t->n_gone = 0;
	for (struct list *i = t->all.next; i != &t->all; i = i->next)
		LIST_OF(i, struct exc, at)->stored = true;
	if (!t->groups_changed)
		return;
	for (uint32_t i = 0; i < t->n_group; i++)
		n += t->group[i].n;
	inum *m = malloc((n + 1) * sizeof *m);
	if (!m)
		return; /* rows stay that name no group any more: harmless */
	free(t->stored_member);
	t->stored_member = m;
	t->n_stored_member = n;
	for (uint32_t i = 0; i < t->n_group; i++)
		for (uint32_t k = 0; k < t->group[i].n; k++)
			*m++ = t->group[i].member[k];
	t->groups_changed = false;
}

struct load {
	struct volume *v;
	struct seeds links;
	struct seeds members;
};

static int load_exception(void *ctx, const struct exception_row *r)
{
	struct load *l = ctx;
	return seeds_add(&l->links, r->link);
}

static int load_group(void *ctx, uint64_t member, uint64_t lead)
{
	struct load *l = ctx;
	(void)lead;
	return seeds_add(&l->members, member);
}

static int seed_link(void *ctx, struct vlink *l)
{
	struct load *x = ctx;
	return seeds_add(&x->links, l->row);
}

int exceptions_load(struct volume *v)
{
	struct load l = {.v = v};
	struct exceptions *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	list_init(&t->all);
	v->exceptions = t;
	int e = journal_exceptions(v->journal, load_exception, &l);
	e = e ? e : journal_groups(v->journal, load_group, &l);
	for (uint32_t i = 0; i < l.members.n && !e; i++) {
		struct vnode *n;
		e = vnode_get(v, l.members.row[i], &n);
		e = e ? e : vnode_links(v, n, seed_link, &l);
		e = e == -ENOENT ? 0 : e;
	}
	if (!e && l.links.n)
		e = exceptions_update(v, &l.links, NULL);
	if (!e) {
		/* what stands there now is known: the next transaction that writes the table cleans it up */
		for (uint32_t i = 0; i < l.links.n && !e; i++) {
			struct exc *x = exc_find(v, l.links.row[i]);
			if (x)
				x->stored = true;
			else
				e = gone_add(t, l.links.row[i]);
		}
		t->stored_member = l.members.row;
		t->n_stored_member = l.members.n;
		l.members = (struct seeds){0};
	}
	seeds_fini(&l.links);
	seeds_fini(&l.members);
	return e;
}

void exceptions_free(struct volume *v)
{
	struct exceptions *t = v->exceptions;

	if (!t)
		return;
	while (!list_empty(&t->all))
		exc_free(v, LIST_OF(t->all.next, struct exc, at));
	groups_free(t);
	free(t->gone);
	free(t->stored_member);
	free(t);
	v->exceptions = NULL;
}

/* ---- asking ---- */
bool exceptions_hide(struct volume *v, uint64_t link) { return v->n_exceptions && exc_find(v, link); }

int exceptions_shown_place(struct volume *v, struct vlink *l, inum *ret_parent, char *ret_name, size_t *ret_len)
{
	struct exc *x = v->n_exceptions ? exc_find(v, l->row) : NULL;

	if (x ? !x->parent : !(l->flags & VL_LIVE))
		return -ENOENT;
	*ret_parent = exceptions_lead(v, x ? x->parent : l->parent);
	*ret_len = x ? x->name_len : l->name_len;
	memcpy(ret_name, x ? x->name : l->name, *ret_len);
	return 0;
}

/* A directory's members, the directory itself where it stands alone. */
static const inum *members_of(struct volume *v, const struct vnode *dir, uint32_t *ret_n)
{
	const struct group *g = v->n_groups ? group_of(v, dir->row) : NULL;

	*ret_n = g ? g->n : 1;
	return g ? g->member : &dir->row;
}

struct find {
	struct volume *v;
	struct vlink *best;
};

/* Of directories shown as one the lead stands for all. */
static int consider(void *ctx, struct vlink *l)
{
	struct find *f = ctx;
	bool lead = l->type != S_IFDIR || exceptions_lead(f->v, l->node) == l->node;

	if (lead || !f->best)
		f->best = l;
	return lead;
}

static int consider_recorded(void *ctx, struct vlink *l)
{
	struct find *f = ctx;
	return exc_find(f->v, l->row) ? 0 : consider(ctx, l);
}

static int look_in(struct volume *v, inum member, const char *name, size_t len, struct find *f)
{
	struct vnode *dir;

	for (struct exc *x = v->exceptions->by_name[name_bucket(member, name, len)]; x; x = x->next_name) {
		struct vlink *l;
		if (x->parent != member || x->name_len != len || memcmp(x->name, name, len))
			continue;
		int e = vlink_get(v, x->link, &l);
		if (e)
			return e;
		if (consider(f, l))
			return 1;
	}
	int e = vnode_get(v, member, &dir);
	e = e ? e : vlinks_named(v, dir, name, len, consider_recorded, f);
	return e;
}

int exceptions_lookup(struct volume *v, struct vnode *dir, const void *name, size_t len, struct vlink **ret)
{
	struct find f = {.v = v};
	uint32_t n;
	const inum *member = members_of(v, dir, &n);

	for (uint32_t i = 0; i < n; i++) {
		int e = look_in(v, member[i], name, len, &f);
		if (e < 0)
			return e;
		if (f.best && (f.best->type != S_IFDIR || exceptions_lead(v, f.best->node) == f.best->node))
			break;
	}
	if (!f.best)
		return -ENOENT;
	*ret = f.best;
	return 0;
}

/* ---- listing ---- */
struct listing {
	struct shown_child *c; /* owned */
	uint32_t n, cap;
};

static int list_add_child(struct volume *v, struct listing *l, struct vlink *k, const char *name, size_t len)
{
	if (k->type == S_IFDIR && exceptions_lead(v, k->node) != k->node)
		return 0;
	if (l->n == l->cap) {
		uint32_t cap = l->cap ? l->cap * 2 : 64;
		struct shown_child *p = reallocarray(l->c, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		l->c = p;
		l->cap = cap;
	}
	struct shown_child *c = &l->c[l->n++];
	c->link = k;
	c->name_len = (uint16_t)len;
	memcpy(c->name, name, len);
	c->name[len] = 0;
	return 0;
}

#define STEP 64
/* At least max entries of one member, or all that there are. */
static int list_recorded(struct volume *v, struct vnode *dir, uint64_t after, uint32_t max, struct listing *out)
{
	struct vlink *l[STEP];
	uint32_t had = out->n, n = STEP;
	int e = 0;

	while (!e && n == STEP && out->n - had < max) {
		e = vnode_children(v, dir, after, l, STEP, &n);
		for (uint32_t i = 0; i < n && !e; i++) {
			after = l[i]->row;
			if (!exc_find(v, l[i]->row))
				e = list_add_child(v, out, l[i], l[i]->name, l[i]->name_len);
		}
	}
	return e;
}

static int by_row(const void *a, const void *b)
{
	const struct shown_child *x = a, *y = b;
	return x->link->row < y->link->row ? -1 : x->link->row > y->link->row;
}

int exceptions_children(struct volume *v, struct vnode *dir, uint64_t after, struct shown_child *ret, uint32_t max, uint32_t *ret_n)
{
	struct listing out = {0};
	uint32_t n;
	const inum *member = members_of(v, dir, &n);
	int e = 0;

	for (uint32_t i = 0; i < n && !e; i++) {
		struct vnode *m;
		e = vnode_get(v, member[i], &m);
		e = e ? e : list_recorded(v, m, after, max, &out);
	}
	for (struct list *i = v->exceptions->all.next; i != &v->exceptions->all && !e; i = i->next) {
		struct exc *x = LIST_OF(i, struct exc, at);
		struct vlink *l;
		bool here = false;
		for (uint32_t k = 0; k < n; k++)
			here |= x->parent == member[k];
		if (!here || x->link <= after)
			continue;
		e = vlink_get(v, x->link, &l);
		e = e ? e : list_add_child(v, &out, l, x->name, x->name_len);
	}
	if (!e && out.n)
		qsort(out.c, out.n, sizeof *out.c, by_row);
	*ret_n = out.n < max ? out.n : max;
	if (!e && *ret_n)
		memcpy(ret, out.c, *ret_n * sizeof *ret);
	free(out.c);
	return e;
}
