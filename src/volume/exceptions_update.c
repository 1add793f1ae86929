/* From the parts held to the table of exceptions: gathers the links concerned from memory and journal.db, lets the pure rules of
 * shown.h decide, and takes over what differs from the records. See exceptions.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "exceptions.h"
#include "merge.h"

struct gather {
	struct volume *v;
	struct shown_set *set;
	int (*each)(struct gather *g, struct vlink *l);
};

/* ---- one link as the rules see it ---- */
static void replica_name(struct volume *v, uint64_t replica, char ret[static 33])
{
	for (uint32_t i = 0; i < v->n_members; i++)
		if (v->member_replicas[i] == replica) {
			memcpy(ret, v->members[i].name, 33);
			return;
		}
	if (replica == v->self)
		memcpy(ret, v->header.name, sizeof v->header.name);
}

bool link_is_derived(struct volume *v, const struct vlink *l)
{
	struct vnode *n;

	if (l->place.stamp.dot.counter || l->place.dirty || !l->node)
		return false;
	return vnode_get(v, l->node, &n) == 0 && n->derived;
}

/* A change of this transaction is later than all that is held; among themselves they are in the order in which commit will take them. */
static struct stamp pending_stamp(struct volume *v, const struct vlink *l)
{
	uint64_t after = 1;

	for (struct list *i = v->dirty_links.next; i != &v->dirty_links && LIST_OF(i, struct vlink, at) != l; i = i->next)
		after++;
	uint64_t wall = env_wall_ns(v->env), base = wall > v->clock_ns ? wall : v->clock_ns;
	return (struct stamp){base + after, {v->self, v->counter + after}};
}

struct unseen {
	struct volume *v;
	struct vector seen;
	struct dot content;
	bool lives;
};

static int add_seen(void *ctx, struct vlink *l)
{
	struct unseen *u = ctx;
	int e = vlink_deletions(u->v, l);

	if ((l->flags & VL_LIVE) || (!l->n_deletion && link_is_derived(u->v, l)))
		u->lives = true;
	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		if (l->deletion[i].gone)
			continue;
		/* made in this transaction: it has seen what there is */
		if (l->deletion[i].slot.dirty)
			e = vector_add(&u->seen, u->content);
		else
			e = vector_join(&u->seen, &l->deletion[i].contents_seen);
	}
	return e;
}

/* Have the deletions of all links of a dead file together not seen its content? */
static int content_unseen(struct volume *v, struct vnode *n, bool *ret)
{
	struct unseen u = {.v = v, .content = n->content_slot.stamp.dot};

	*ret = false;
	if ((n->type != S_IFREG && n->type != S_IFLNK) || !u.content.counter)
		return 0;
	int e = vnode_links(v, n, add_seen, &u);
	if (!e)
		*ret = !u.lives && !vector_has(&u.seen, u.content);
	vector_fini(&u.seen);
	return e;
}

static bool node_complete(const struct vnode *n)
{
	/* without its bytes a file is shown nowhere: they are asked for (batch.c) */
	if (vnode_lacks_bytes(n))
		return false;
	if (n->type == S_IFREG || n->type == S_IFLNK)
		return n->content_slot.stamp.dot.counter || n->content_slot.dirty || n->derived || (n->flags & VN_CONTENT_NEW);
	return n->type;
}

static int describe(struct volume *v, struct vlink *l, struct vnode *n, struct shown_link *ret)
{
	struct vnode *of;
	int e = vlink_deletions(v, l);

	*ret = (struct shown_link){.id = l->id, .node = n->id, .type = n->type, .own = l->place.stamp.dot.counter || l->place.dirty};
	e = e ? e : content_unseen(v, n, &ret->content_unseen);
	if (e)
		return e;
	for (uint32_t i = 0; i < l->n_deletion; i++)
		if (!l->deletion[i].gone) {
			struct stamp s = l->deletion[i].slot.dirty ? pending_stamp(v, l) : l->deletion[i].slot.stamp;
			if (stamp_cmp(s, ret->deleted) > 0)
				ret->deleted = s;
			ret->covered |= !ret->own;
		}
	ret->complete = node_complete(n);
	if (ret->own) {
		ret->covered = !(l->flags & VL_LIVE);
		ret->parent = l->parent_id;
		ret->parent_before = l->parent_before;
		ret->stamp = l->place.dirty ? pending_stamp(v, l) : l->place.stamp;
		ret->name_len = l->name_len;
		memcpy(ret->name, l->name, (size_t)l->name_len + 1);
	} else {
		if ((e = vnode_get(v, n->derived, &of)))
			return e;
		ret->of = of->id;
		ret->stamp = n->content_slot.stamp;
	}
	replica_name(v, ret->stamp.dot.replica, ret->replica_name);
	return 0;
}

static int add_link(struct gather *g, struct vlink *l)
{
	struct vnode *n;
	struct shown_link s;
	bool own = l->place.stamp.dot.counter || l->place.dirty;

	if (!l->node)
		return 0; /* a deletion that came before its place */
	int e = vnode_get(g->v, l->node, &n);
	if (e == -ENOENT || (!e && !own && !n->derived))
		return 0;
	if (!e && !own) {
		/* a copy that was deleted untouched and whose content went later has nothing to show */
		struct vnode *of;
		e = vnode_get(g->v, n->derived, &of);
		if (e == -ENOENT)
			return 0;
	}
	e = e ? e : describe(g->v, l, n, &s);
	return e ? e : shown_set_add(g->set, &s);
}

size_t exceptions_short_name(struct volume *v, const struct vlink *l, const struct exc *x, char *ret_name)
{
	bool own = l->place.stamp.dot.counter || l->place.dirty;
	struct stamp stamp = l->place.stamp;
	char by[33] = {0};
	struct vnode *n;

	if (l->place.dirty || (!own && vnode_get(v, l->node, &n)))
		return 0;
	if (!own)
		stamp = n->content_slot.stamp;
	replica_name(v, stamp.dot.replica, by);
	if (!by[0])
		snprintf(by, sizeof by, "%016llx", (unsigned long long)stamp.dot.replica);
	/* a copy has no name of its own: it is in what is shown, before the mark */
	return conflict_name(own ? l->name : x->name, own ? l->name_len : x->name_len, stamp.clock_ns, by, &l->id, 8, ret_name);
}

/* ---- shown_source ---- */
static int source_link(void *ctx, const struct id *link, struct shown_set *set)
{
	struct gather *g = ctx;
	struct vlink *l;
	int e = vlink_by_id(g->v, link, &l);

	(void)set;
	return e == -ENOENT ? 0 : e ? e : add_link(g, l);
}

static int each_link(void *ctx, struct vlink *l) { return add_link(ctx, l); }

static int source_node(void *ctx, const struct id *node, struct shown_set *set)
{
	struct gather *g = ctx;
	struct vnode *n;
	int e = vnode_by_id(g->v, node, &n);

	(void)set;
	if (e)
		return e == -ENOENT ? 0 : e;
	e = vnode_links(g->v, n, each_link, g);
	for (uint32_t i = 0; i < n->n_extra && !e; i++) {
		struct vnode *copy;
		if (n->extra[i].gone || !n->extra[i].copy)
			continue;
		e = vnode_get(g->v, n->extra[i].copy, &copy);
		e = e ? e : vnode_links(g->v, copy, each_link, g);
		e = e == -ENOENT ? 0 : e;
	}
	return e;
}

struct rows_of {
	struct seeds rows;
};

static int dead_row(void *ctx, const struct link_row *r)
{
	struct rows_of *x = ctx;
	return seeds_add(&x->rows, r->row);
}

static int dead_children(struct gather *g, struct vnode *dir)
{
	struct rows_of x = {0};
	int e = (dir->flags & VN_STORED) ? journal_dead_links_of_parent(g->v->journal, dir->row, dead_row, &x) : 0;

	for (struct list *i = g->v->dirty_links.next; i != &g->v->dirty_links && !e; i = i->next) {
		struct vlink *l = LIST_OF(i, struct vlink, at);
		if (l->parent == dir->row && !(l->flags & VL_LIVE))
			e = seeds_add(&x.rows, l->row);
	}
	for (uint32_t i = 0; i < x.rows.n && !e; i++) {
		struct vlink *l;
		e = vlink_get(g->v, x.rows.row[i], &l);
		if (!e && l->parent == dir->row && !(l->flags & VL_LIVE))
			e = add_link(g, l);
		e = e == -ENOENT ? 0 : e;
	}
	seeds_fini(&x.rows);
	return e;
}

#define STEP 64
static int source_children(void *ctx, const struct id *parent, struct shown_set *set)
{
	struct gather *g = ctx;
	struct vnode *dir;
	struct vlink *l[STEP];
	uint32_t n = STEP;
	uint64_t after = 0;
	int e = vnode_by_id(g->v, parent, &dir);

	(void)set;
	if (e)
		return e == -ENOENT ? 0 : e;
	while (!e && n == STEP) {
		e = vnode_children(g->v, dir, after, l, STEP, &n);
		for (uint32_t i = 0; i < n && !e; i++) {
			after = l[i]->row;
			e = add_link(g, l[i]);
		}
	}
	return e ? e : dead_children(g, dir);
}

static int source_named(void *ctx, const struct id *parent, const void *name, size_t len, struct shown_set *set)
{
	struct gather *g = ctx;
	struct vnode *dir;
	int e = vnode_by_id(g->v, parent, &dir);

	(void)set;
	return e == -ENOENT ? 0 : e ? e : vlinks_named(g->v, dir, name, len, each_link, g);
}

/* ---- taking over ---- */
static int take_link(struct volume *v, const struct shown_link *s, const struct shown_result *r, struct apply *a)
{
	struct vlink *l;
	struct vnode *dir;
	struct exc *x;
	int e = vlink_by_id(v, &s->id, &l);

	if (e)
		return e;
	x = exc_find(v, l->row);
	bool had = x;
	/* dead, but to be brought back as soon as its bytes are here: it stands in the table so that they are asked for (batch.c) */
	bool waits = s->covered && s->content_unseen && !s->complete;
	if (r->state == SHOWN_NOT ? s->covered && !waits : r->state == SHOWN_AS_RECORDED) {
		bool note = x && a; /* the place that it leaves, and the one that it comes to */
		if (note)
			e = note_link(a, l);
		e = e ? e : exc_remove(v, l->row);
		if (!e && note)
			e = note_link(a, l);
	} else if (r->state == SHOWN_NOT) {
		if (x)
			x->keep = true;
		if (a && (!x || x->parent))
			e = note_link(a, l);
		e = e ? e : exc_put(v, l->row, l->node, 0, "", 0);
	} else {
		e = vnode_by_id(v, &r->parent, &dir);
		if (e)
			return e;
		bool same = x && x->parent == dir->row && x->name_len == r->name_len && !memcmp(x->name, r->name, r->name_len);
		if (!same && a)
			e = note_link(a, l);
		e = e ? e : exc_put(v, l->row, l->node, dir->row, r->name, r->name_len);
		if (!e && !same && a)
			e = note_entry(a, dir->row, r->name, r->name_len);
	}
	if (!e && (x = exc_find(v, l->row)))
		x->keep = true;
	/* its node may live by this alone now, or not any more */
	if (!e && a && (x || had))
		e = seeds_add(&a->seeds, l->row);
	return e;
}

struct joined {
	struct id lead;
	struct stamp stamp;
	struct id id;
};

static int by_lead_and_age(const void *a, const void *b)
{
	const struct joined *x = a, *y = b;
	int c = id_cmp(&x->lead, &y->lead);

	if (c)
		return c;
	bool x_leads = id_eq(&x->lead, &x->id), y_leads = id_eq(&y->lead, &y->id);
	if (x_leads != y_leads)
		return x_leads ? -1 : 1;
	return stamp_cmp(x->stamp, y->stamp);
}

static int set_groups(struct volume *v, const struct joined *m, uint32_t n)
{
	struct group *g = calloc(n + 1, sizeof *g);
	inum *rows = calloc(n + 1, sizeof *rows);
	uint32_t groups = 0;
	int e = g && rows ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && !e; i++) {
		struct vnode *node;
		if (!(e = vnode_by_id(v, &m[i].id, &node)))
			rows[i] = node->row;
		if (!i || !id_eq(&m[i].lead, &m[i - 1].lead))
			g[groups++] = (struct group){.member = &rows[i]};
		g[groups - 1].n++;
	}
	e = e ? e : group_set(v, g, groups);
	free(g);
	free(rows);
	return e;
}

static int take_groups(struct volume *v, const struct shown_link *s, const struct shown_result *r, uint32_t n)
{
	struct joined *m = calloc((size_t)n + 1, sizeof *m);
	uint32_t members = 0;

	if (!m)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		if (r[i].state != SHOWN_NOT && !id_is_zero(&r[i].group_lead))
			m[members++] = (struct joined){r[i].group_lead, s[i].stamp, s[i].node};
	if (members)
		qsort(m, members, sizeof *m, by_lead_and_age);
	int e = set_groups(v, m, members);
	free(m);
	return e;
}

/* ---- the whole ---- */
static int add_row(struct gather *g, uint64_t row)
{
	struct vlink *l;
	int e = vlink_get(g->v, row, &l);

	return e == -ENOENT ? 0 : e ? e : add_link(g, l);
}

static int add_seeds(struct gather *g, const struct seeds *seeds)
{
	struct exceptions *t = g->v->exceptions;
	int e = 0;

	for (uint32_t i = 0; i < seeds->n && !e; i++)
		e = add_row(g, seeds->row[i]);
	for (struct list *i = t->all.next; i != &t->all && !e; i = i->next) {
		struct exc *x = LIST_OF(i, struct exc, at);
		x->keep = false;
		e = add_row(g, x->link);
	}
	for (uint32_t i = 0; i < t->n_group && !e; i++)
		for (uint32_t k = 0; k < t->group[i].n && !e; k++) {
			struct vnode *n;
			e = vnode_get(g->v, t->group[i].member[k], &n);
			e = e ? e : vnode_links(g->v, n, each_link, g);
			e = e == -ENOENT ? 0 : e;
		}
	return e;
}

/* What stood in the table and is not among the links any more (its copy is gone). */
static int sweep(struct volume *v)
{
	struct exceptions *t = v->exceptions;
	int e = 0;

	for (struct list *i = t->all.next, *next; i != &t->all && !e; i = next) {
		struct exc *x = LIST_OF(i, struct exc, at);
		next = i->next;
		if (!x->keep)
			e = exc_remove(v, x->link);
	}
	return e;
}

/* A lead that changes is another inode under the same name. */
static int note_groups(struct volume *v, struct apply *a)
{
	struct exceptions *t = v->exceptions;
	int e = 0;

	for (uint32_t i = 0; i < t->n_group && !e; i++)
		for (uint32_t k = 0; k < t->group[i].n && !e; k++) {
			struct vnode *n;
			struct vlink *l;
			e = vnode_get(v, t->group[i].member[k], &n);
			e = e ? e : exceptions_shown_link(v, n, &l);
			e = e ? e : note_link(a, l);
			e = e ? e : note_inode(a, NOTICE_DIR, t->group[i].member[k]);
			e = e == -ENOENT ? 0 : e;
		}
	return e;
}

int exceptions_update(struct volume *v, const struct seeds *seeds, struct apply *a)
{
	struct gather g = {.v = v, .set = shown_set_new()};
	struct shown_source src = {source_link, source_node, source_children, source_named, &g};
	struct shown_result *r = NULL;
	uint32_t n = 0, had_groups = v->n_groups;

	if (!g.set)
		return -ENOMEM;
	int e = a && had_groups ? note_groups(v, a) : 0;
	e = e ? e : add_seeds(&g, seeds);
	e = e ? e : shown_close_and_compute(g.set, &src, &r);
	const struct shown_link *s = e ? NULL : shown_set_links(g.set, &n);
	for (uint32_t i = 0; i < n && !e; i++)
		e = take_link(v, &s[i], &r[i], a);
	e = e ? e : sweep(v);
	e = e ? e : take_groups(v, s, r, n);
	if (!e && a && (had_groups || v->n_groups))
		e = note_groups(v, a);
	free(r);
	shown_set_free(g.set);
	return e;
}

/* ---- is there anything unusual? ---- */
struct one_shown {
	struct volume *v;
	struct vlink *shown;
};

static int is_shown(void *ctx, struct vlink *l)
{
	struct one_shown *o = ctx;
	struct exc *x = exc_find(o->v, l->row);

	if (x ? !x->parent : !(l->flags & VL_LIVE))
		return 0;
	o->shown = l;
	return 1;
}

int exceptions_shown_link(struct volume *v, struct vnode *n, struct vlink **ret)
{
	struct one_shown o = {.v = v};
	int e = vnode_links(v, n, is_shown, &o);

	if (!e && !o.shown)
		e = -ENOENT;
	if (!e)
		*ret = o.shown;
	return e;
}

#define DEPTH_MAX 4096
/* From a directory up to the root by records alone; what was walked before ends it. */
static int plain_above(struct volume *v, inum dir, struct seeds *walked, bool *ret)
{
	struct vnode *n;
	inum up;

	*ret = false;
	for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
		if (dir == ROOT_INUM) {
			*ret = true;
			return 0;
		}
		for (uint32_t i = walked->n; i-- > 0;)
			if (walked->row[i] == dir) {
				*ret = true;
				return 0;
			}
		int e = vnode_get(v, dir, &n);
		e = e ? e : n->type != S_IFDIR ? -ENOENT : vnode_parent(v, n, &up);
		if (e)
			return e == -ENOENT ? 0 : e;
		dir = up;
	}
	return 0;
}

static int plain_live(struct volume *v, struct vlink *l, struct vnode *n, struct seeds *walked, bool *ret)
{
	struct vnode *dir;
	struct vlink *other;
	bool more = false;

	*ret = false;
	if (!node_complete(n) || n->n_extra || n->derived)
		return 0;
	int e = vnode_get(v, l->parent, &dir);
	e = e ? e : vlink_recorded(v, dir, l->name, l->name_len, &other, &more);
	if (e || more)
		return e == -ENOENT ? 0 : e;
	inum parent = l->parent;
	e = plain_above(v, parent, walked, ret);
	if (!e && *ret && (!walked->n || walked->row[walked->n - 1] != parent))
		e = seeds_add(walked, parent);
	return e;
}

static int plain_dead(struct volume *v, struct vnode *n, bool *ret)
{
	bool some = false;

	*ret = false;
	if (n->n_extra || n->derived)
		return 0;
	if (n->type == S_IFDIR) {
		int e = vnode_has_children(v, n, &some);
		*ret = !some;
		return e;
	}
	int e = content_unseen(v, n, &some);
	*ret = !some;
	return e;
}

int exceptions_needed(struct volume *v, const struct seeds *seeds, bool *ret)
{
	struct seeds walked = {0};
	bool plain = nothing_unusual(v);
	int e = 0;

	for (uint32_t i = 0; i < seeds->n && plain && !e; i++) {
		struct vlink *l;
		struct vnode *n;
		e = vlink_get(v, seeds->row[i], &l);
		if (e == -ENOENT || (!e && !l->node)) {
			e = 0;
			continue;
		}
		e = e ? e : vnode_get(v, l->node, &n);
		if (!e)
			e = (l->flags & VL_LIVE) ? plain_live(v, l, n, &walked, &plain) : plain_dead(v, n, &plain);
	}
	seeds_fini(&walked);
	*ret = !plain;
	return e;
}
