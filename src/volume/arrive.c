/* Merging parts that came from peers into the tree in memory (design-replication 2): places, deletions, attributes, times. Under tree_mu, the
 * gate held exclusively, nothing of this replica pending. Commit then writes the records as they came. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "batch.h"
#include "exceptions.h"

/* ---- notices and seeds ---- */
int seeds_add(struct seeds *s, uint64_t row)
{
	if (s->n && s->row[s->n - 1] == row)
		return 0;
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 32;
		uint64_t *p = reallocarray(s->row, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		s->row = p;
		s->cap = cap;
	}
	s->row[s->n++] = row;
	return 0;
}

void seeds_fini(struct seeds *s)
{
	free(s->row);
	*s = (struct seeds){0};
}

static int add_notice(struct apply *a, const struct notice *x)
{
	if (a->n_notice == a->cap_notice) {
		uint32_t cap = a->cap_notice ? a->cap_notice * 2 : 64;
		struct notice *p = reallocarray(a->notice, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		a->notice = p;
		a->cap_notice = cap;
	}
	a->notice[a->n_notice++] = *x;
	return 0;
}

#define LOOK_BACK 8
static bool noted(const struct apply *a, int kind, inum ino, const char *name, size_t len)
{
	for (uint32_t i = a->n_notice, k = 0; i-- > 0 && k < LOOK_BACK; k++) {
		const struct notice *x = &a->notice[i];
		if ((int)x->kind == kind && x->ino == ino && x->name_len == len && (!len || !memcmp(x->name, name, len)))
			return true;
	}
	return false;
}

int note_entry(struct apply *a, inum parent, const char *name, size_t len)
{
	/* a directory that no program knows of has nothing cached */
	if (!refs_get(a->v, parent) && parent != ROOT_INUM)
		return 0;
	if (!noted(a, NOTICE_ENTRY, parent, name, len)) {
		char *copy = malloc(len + 1);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, name, len);
		copy[len] = 0;
		int e = add_notice(a, &(struct notice){.kind = NOTICE_ENTRY, .ino = parent, .name = copy, .name_len = (uint16_t)len});
		if (e) {
			free(copy);
			return e;
		}
	}
	return note_inode(a, NOTICE_DIR, parent);
}

int note_inode(struct apply *a, int kind, inum ino)
{
	if ((!refs_get(a->v, ino) && ino != ROOT_INUM) || noted(a, kind, ino, NULL, 0))
		return 0;
	struct notice x = {.ino = ino};
	x.kind = kind;
	return add_notice(a, &x);
}

int note_content(struct apply *a, inum ino, uint64_t old_size, uint64_t new_size, struct extents *bytes)
{
	int e = 0;

	if (refs_get(a->v, ino))
		e = add_notice(a, &(struct notice){.kind = NOTICE_CONTENT, .ino = ino, .old_size = old_size, .new_size = new_size, .bytes = *bytes});
	else
		extents_fini(bytes);
	*bytes = (struct extents){0};
	return e;
}

int note_replaced(struct apply *a, inum old, inum fresh)
{
	return add_notice(a, &(struct notice){.kind = NOTICE_REPLACED, .ino = old, .other = fresh});
}

int note_step(struct apply *a, inum node, struct dot from, struct dot to, struct extents *ranges)
{
	if (a->n_step == a->cap_step) {
		uint32_t cap = a->cap_step ? a->cap_step * 2 : 16;
		struct step_note *p = reallocarray(a->step, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		a->step = p;
		a->cap_step = cap;
	}
	struct step_note *s = &a->step[a->n_step++];
	*s = (struct step_note){.node = node, .from = from, .to = to, .whole = !ranges};
	if (ranges) {
		s->ranges = *ranges;
		*ranges = (struct extents){0};
	}
	return 0;
}

int note_link(struct apply *a, struct vlink *l)
{
	char name[NAME_LEN_MAX + 1];
	size_t len;
	inum parent;
	int e = exceptions_shown_place(a->v, l, &parent, name, &len);

	return e == -ENOENT ? 0 : e ? e : note_entry(a, parent, name, len);
}

/* ---- places ---- */
/* A name makes a node a node again: it had none, or only dead ones. */
static int revive(struct apply *a, struct vnode *n)
{
	struct vlink *l[64];
	uint64_t after = 0;
	uint32_t count = 64;

	if (!(n->flags & (VN_ORPHAN | VN_DOOMED)) && (n->type != S_IFDIR || n->nlink >= 2))
		return 0;
	int replaced = n->type == S_IFREG && n->data && (n->flags & VN_DATA_DIRTY) && (n->flags & VN_STORED) ? replace_unlinked(a, n) : 0;
	if (replaced)
		return replaced;
	n->flags &= ~(unsigned)(VN_ORPHAN | VN_DOOMED);
	vnode_dirty(a->v, n);
	if (n->type != S_IFDIR)
		return 0;
	n->nlink = 2;
	while (count == 64) {
		int e = vnode_children(a->v, n, after, l, 64, &count);
		if (e)
			return e;
		for (uint32_t i = 0; i < count; i++) {
			after = l[i]->row;
			n->nlink += l[i]->type == S_IFDIR;
		}
	}
	return 0;
}

static int place_nodes(struct apply *a, const struct place *p, struct vnode **ret_node, struct vnode **ret_parent)
{
	int e = vnode_refer(a->v, &p->node, ret_node);

	e = e ? e : vnode_refer(a->v, &p->parent, ret_parent);
	if (e)
		return e;
	struct vnode *n = *ret_node;
	if (!n->type) {
		n->type = p->type;
		if (n->type == S_IFDIR)
			n->nlink += 2; /* directories in it may have come first */
		vnode_default_attrs(n);
		vnode_dirty(a->v, n);
	}
	/* a node's type never changes, and what lies in something is in a directory: others are no honest author's */
	if (n->type != p->type || ((*ret_parent)->type && (*ret_parent)->type != S_IFDIR))
		return -EUCLEAN;
	return 0;
}

static int place_taken(struct apply *a, struct vlink *l, struct arrival *x)
{
	const struct place *p = &x->part.place;

	l->type = p->type;
	l->rdev = p->rdev;
	l->parent_before = p->parent_before;
	int e = slot_arrive(&l->place, &x->part, x->record.p, x->record.len);
	return e ? e : seeds_add(&a->seeds, l->row);
}

static int place_new(struct apply *a, struct arrival *x, struct vnode *n, struct vnode *parent)
{
	const struct place *p = &x->part.place;
	struct vlink *l;
	int e = revive(a, n);

	e = e ? e : vlink_new(a->v, &x->part.id, n, parent, p->name, p->name_len, &l);
	if (e)
		return e;
	if (n->links == 1)
		a->v->node_count++;
	e = place_taken(a, l, x);
	return e ? e : note_entry(a, parent->row, p->name, p->name_len);
}

/* What else has that place now must be looked at again: it may come back to its name. */
static int seed_named(void *ctx, struct vlink *l)
{
	struct apply *a = ctx;
	return seeds_add(&a->seeds, l->row);
}

static int place_moves(struct apply *a, struct arrival *x, struct vlink *l, struct vnode *n, struct vnode *parent)
{
	const struct place *p = &x->part.place;
	bool had = l->place.stamp.dot.counter;
	int e = vlink_deletions(a->v, l);

	if (had && !e && (l->flags & VL_LIVE)) {
		struct vnode *from;
		e = vnode_get(a->v, l->parent, &from);
		e = e ? e : vlinks_named(a->v, from, l->name, l->name_len, seed_named, a);
	}
	e = e ? e : note_link(a, l);
	e = e ? e : vlink_set_live(a->v, l, false);
	if (e)
		return e;
	l->node = n->row;
	l->node_id = p->node;
	l->type = p->type;
	e = vlink_move(a->v, l, parent, p->name, p->name_len);
	e = e ? e : place_taken(a, l, x);
	if (!e && !vlink_covered(l)) {
		e = revive(a, n);
		e = e ? e : vlink_set_live(a->v, l, true);
		e = e ? e : note_entry(a, parent->row, p->name, p->name_len);
	}
	if (!e && n->type != S_IFDIR)
		e = note_inode(a, NOTICE_ATTR, n->row);
	return e;
}

int arrive_place(struct apply *a, struct arrival *x)
{
	const struct place *p = &x->part.place;
	struct vnode *n, *parent;
	struct vlink *l;
	int e = vlink_by_id(a->v, &x->part.id, &l);

	if (e && e != -ENOENT)
		return e;
	bool fresh = e == -ENOENT;
	if (!fresh && l->place.stamp.dot.counter && stamp_cmp(l->place.stamp, x->part.stamp) >= 0)
		return 0;
	if (!fresh && l->node && !id_eq(&l->node_id, &p->node))
		return -EUCLEAN;
	if ((e = place_nodes(a, p, &n, &parent)))
		return e;
	x->taken = true;
	return fresh ? place_new(a, x, n, parent) : place_moves(a, x, l, n, parent);
}

/* ---- deletions ---- */
static int merge_deletion(struct vlink *l, const struct part *p, bool *ret_held)
{
	struct version new = {p->stamp, &p->vector, NULL};
	struct version *held = calloc(l->n_deletion + 1, sizeof *held);
	bool *drop = calloc(l->n_deletion + 1, sizeof *drop);
	uint32_t *at = calloc(l->n_deletion + 1, sizeof *at), n = 0;
	int e = held && drop && at ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		if (l->deletion[i].gone)
			continue;
		at[n] = i;
		held[n++] = (struct version){l->deletion[i].slot.stamp, &l->deletion[i].slot.vector, NULL};
	}
	if (!e)
		*ret_held = set_merge(held, n, NULL, 0, &new, drop);
	for (uint32_t i = 0; i < n && !e && *ret_held; i++)
		if (drop[i])
			l->deletion[at[i]].gone = true;
	free(held);
	free(drop);
	free(at);
	return e;
}

static int add_deletion(struct vlink *l, struct arrival *x)
{
	struct vdeletion *d;
	int e = vlink_deletion_add(l, &d);

	e = e ? e : slot_arrive(&d->slot, &x->part, x->record.p, x->record.len);
	if (e)
		return e;
	d->places_seen = x->part.deletion.places_seen;
	d->contents_seen = x->part.deletion.contents_seen;
	x->part.deletion.places_seen = x->part.deletion.contents_seen = (struct vector){0};
	return 0;
}

/* The other links of a node that is dead now: the one deleted last may be shown. */
static int seed_links(struct apply *a, struct vnode *n) { return vnode_links(a->v, n, seed_named, a); }

int arrive_deletion(struct apply *a, struct arrival *x)
{
	struct vlink *l;
	struct vnode *n;
	bool held = false;
	int e = vlink_refer(a->v, &x->part.id, &l);

	e = e ? e : vlink_deletions(a->v, l);
	e = e ? e : merge_deletion(l, &x->part, &held);
	if (e || !held)
		return e;
	x->taken = true;
	vlink_dirty(a->v, l);
	e = add_deletion(l, x);
	e = e ? e : seeds_add(&a->seeds, l->row);
	if (e || !l->node)
		return e;
	e = vnode_get(a->v, l->node, &n);
	if (e == -ENOENT) {
		l->node = 0; /* a copy that went before anybody saw it */
		return 0;
	}
	if (e || !vlink_covered(l))
		return e ? e : seed_links(a, n);
	if ((l->flags & VL_LIVE) && (e = hold_deletion(a, l, x->part.stamp.dot)))
		return e < 0 ? e : seed_links(a, n);
	return arrive_kill(a, l, n);
}

int arrive_kill(struct apply *a, struct vlink *l, struct vnode *n)
{
	int e;
	bool was = l->flags & VL_LIVE;
	e = note_link(a, l);
	if (!e && was) {
		struct vnode *from;
		e = vnode_get(a->v, l->parent, &from);
		e = e ? e : vlinks_named(a->v, from, l->name, l->name_len, seed_named, a);
	}
	e = e ? e : vlink_set_live(a->v, l, false);
	e = e ? e : n->type != S_IFDIR ? note_inode(a, NOTICE_ATTR, n->row) : 0;
	if (!e && was && !n->links && a->v->node_count)
		a->v->node_count--;
	return e ? e : seed_links(a, n);
}

/* ---- attributes and times ---- */
int arrive_attrs(struct apply *a, struct arrival *x)
{
	struct vnode *n;
	int e = vnode_refer(a->v, &x->part.id, &n);

	if (e)
		return e;
	if (n->attrs_slot.stamp.dot.counter && stamp_cmp(n->attrs_slot.stamp, x->part.stamp) >= 0)
		return 0;
	if (n->type && (x->part.attrs.mode & S_IFMT) != n->type)
		return -EUCLEAN;
	if ((e = slot_arrive(&n->attrs_slot, &x->part, x->record.p, x->record.len)))
		return e;
	/* the journal takes attributes and type as one: a node that is not here yet gets its type from the first that says it */
	if (!n->type) {
		n->type = x->part.attrs.mode & S_IFMT;
		if (n->type == S_IFDIR)
			n->nlink += 2;
	}
	attrs_fini(&n->attrs);
	n->attrs = x->part.attrs;
	x->part.attrs = (struct attrs){0};
	x->taken = true;
	vnode_dirty(a->v, n);
	/* its untouched copies show them too */
	if (n->n_extra && (e = vnode_links(a->v, n, seed_named, a)))
		return e;
	return note_inode(a, NOTICE_ATTR, n->row);
}

int arrive_times(struct apply *a, struct arrival *x)
{
	struct vnode *n;
	int e = vnode_refer(a->v, &x->part.id, &n);

	if (e)
		return e;
	if (n->times_slot.stamp.dot.counter && stamp_cmp(n->times_slot.stamp, x->part.stamp) >= 0)
		return 0;
	if ((e = slot_arrive(&n->times_slot, &x->part, x->record.p, x->record.len)))
		return e;
	n->times = x->part.times;
	x->taken = true;
	vnode_dirty(a->v, n);
	return note_inode(a, n->type == S_IFDIR ? NOTICE_DIR : NOTICE_ATTR, n->row);
}

/* ---- afterwards ---- */
static bool parts_pending(const struct vnode *n)
{
	bool some = n->attrs_slot.arrived.p || n->times_slot.arrived.p || n->content_slot.arrived.p;

	for (uint32_t i = 0; i < n->n_extra; i++)
		some |= n->extra[i].slot.arrived.p || n->extra[i].gone;
	return some;
}

struct unsettled {
	struct volume *v;
	bool found;
};

static int unsettled(void *ctx, struct vlink *l)
{
	struct unsettled *u = ctx;

	u->found = exc_find(u->v, l->row);
	return u->found;
}

int settle_node(struct apply *a, struct vnode *n)
{
	struct unsettled u = {.v = a->v};

	if (!n->type || n->row == ROOT_INUM)
		return 0;
	if (n->links)
		return revive(a, n);
	/* brought back, a copy, or not shown only because something is not here yet */
	int e = vnode_links(a->v, n, unsettled, &u);
	if (e)
		return e;
	if (u.found)
		return revive(a, n);
	if ((n->flags & VN_ORPHAN) && n->n_extra && derived_needs(a->v, n))
		return revive(a, n); /* not by a name, but for its copies */
	if (n->flags & VN_ORPHAN)
		return 0;
	node_nameless(a->v, n);
	struct vnode *file;
	if (n->derived && !vnode_get(a->v, n->derived, &file) && !file->links && (e = settle_node(a, file)))
		return e;
	if (!(n->flags & VN_ORPHAN) || !parts_pending(n))
		return 0;
	n->flags &= ~(unsigned)VN_DOOMED;
	return seeds_add(&a->nameless, n->row);
}
