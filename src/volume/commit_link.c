/* Writing links: places and deletions. Nodes come before them, so that a deletion can say which contents it saw. Under tree_mu, inside of a
 * transaction. */
#include <errno.h>

#include "commit.h"

static struct blob blob_of(const struct buf *b) { return (struct blob){b->p, b->len}; }

static int make_place(struct txn *t, struct vlink *l, struct blob *ret)
{
	struct slot *s = &l->place;

	if (s->arrived.p) {
		*ret = blob_of(&s->arrived);
		return 0;
	}
	int e = s->stamp.dot.counter ? vector_add(&s->vector, s->stamp.dot) : 0;
	if (e)
		return e;
	s->taken = txn_stamp(t);
	struct part p = {.kind = PART_PLACE, .id = l->id, .stamp = s->taken, .vector = s->vector, .opened = true};
	p.place = (struct place){.parent = l->parent_id, .node = l->node_id, .parent_before = l->parent_before, .type = l->type,
		.rdev = l->rdev, .name_len = (uint8_t)l->name_len};
	memcpy(p.place.name, l->name, l->name_len);
	t->record[0].len = 0;
	if (!(e = part_seal(t->v->keys, &p, &t->record[0])))
		*ret = blob_of(&t->record[0]);
	return e;
}

/* fresh: the version made in this transaction too. */
static int saw(struct vector *v, const struct slot *s, bool fresh)
{
	int e = vector_join(v, &s->vector);

	if (!e && s->stamp.dot.counter)
		e = vector_add(v, s->stamp.dot);
	if (!e && fresh && s->taken.dot.counter)
		e = vector_add(v, s->taken.dot);
	return e;
}

/* What a deletion made here has seen: the place, the contents, and all that the deletions held before it saw. */
static int look(struct txn *t, struct vlink *l, struct vdeletion *d)
{
	struct vnode *n;
	int e = saw(&d->places_seen, &l->place, true);

	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		struct vdeletion *o = &l->deletion[i];
		if (o == d || !o->slot.stamp.dot.counter)
			continue;
		e = vector_join(&d->places_seen, &o->places_seen);
		e = e ? e : vector_join(&d->contents_seen, &o->contents_seen);
		e = e ? e : vector_join(&d->slot.vector, &o->slot.vector);
		e = e ? e : vector_add(&d->slot.vector, o->slot.stamp.dot);
	}
	e = e ? e : vnode_get(t->v, l->node, &n);
	/* where the file lives on under another name, what this transaction wrote may have come after this deletion */
	e = e ? e : saw(&d->contents_seen, &n->content_slot, !n->links);
	for (uint32_t i = 0; !e && i < n->n_extra; i++)
		e = saw(&d->contents_seen, &n->extra[i].slot, true);
	return e;
}

static int make_deletion(struct txn *t, struct vlink *l, struct vdeletion *d, struct blob *ret)
{
	if (d->slot.arrived.p) {
		*ret = blob_of(&d->slot.arrived);
		return 0;
	}
	int e = look(t, l, d);
	if (e)
		return e;
	for (uint32_t i = 0; i < l->n_deletion; i++)
		if (&l->deletion[i] != d && l->deletion[i].slot.stored.counter)
			l->deletion[i].gone = true;
	d->slot.taken = txn_stamp(t);
	struct part p = {.kind = PART_DELETION, .id = l->id, .stamp = d->slot.taken, .vector = d->slot.vector, .opened = true};
	p.deletion = (struct deletion){.node = l->node_id, .parent = l->parent_id, .name_len = (uint8_t)l->name_len,
		.places_seen = d->places_seen, .contents_seen = d->contents_seen};
	memcpy(p.deletion.name, l->name, l->name_len);
	t->record[1].len = 0;
	if (!(e = part_seal(t->v->keys, &p, &t->record[1])))
		*ret = blob_of(&t->record[1]);
	return e;
}

static int out_of_root(void *ctx, const struct extra_row *x)
{
	static const struct blob none;

	txn_roots(ctx, x->record, false, none, false);
	return 0;
}

static int into_root(void *ctx, const struct extra_row *x)
{
	static const struct blob none;

	txn_roots(ctx, none, false, x->record, false);
	return 0;
}

static bool deletions_change(const struct vlink *l)
{
	for (uint32_t i = 0; i < l->n_deletion; i++)
		if (slot_pending(&l->deletion[i].slot) || l->deletion[i].gone)
			return true;
	return false;
}

static int write_deletions(struct txn *t, struct vlink *l)
{
	struct journal *j = t->v->journal;
	int e = journal_deletions(j, l->row, out_of_root, t);

	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		struct vdeletion *d = &l->deletion[i];
		struct blob record;
		if (d->gone || !slot_pending(&d->slot))
			continue;
		if ((e = make_deletion(t, l, d, &record)))
			break;
		struct dot dot = d->slot.arrived.p ? d->slot.stamp.dot : d->slot.taken.dot;
		const struct extra_row row = {.owner = l->row, .dot = dot, .record = record};
		e = journal_deletion_put(j, &row);
		e = e ? e : txn_dot(t, PART_DELETION, l->row, dot, (struct dot){0});
	}
	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		struct vdeletion *d = &l->deletion[i];
		if (!d->gone || !d->slot.stored.counter)
			continue;
		e = journal_deletion_delete(j, l->row, d->slot.stored);
		e = e ? e : journal_dot_delete(j, d->slot.stored);
	}
	return e ? e : journal_deletions(j, l->row, into_root, t);
}

static uint32_t deletions_left(const struct vlink *l)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < l->n_deletion; i++)
		left += !l->deletion[i].gone;
	return left;
}

/* Dead, and nobody needs to hear of it. What was not loaded is not none. */
static bool forgotten(const struct txn *t, const struct vlink *l)
{
	bool none = !l->n_deletion && (!(l->flags & VL_STORED) || (l->flags & VL_DELETIONS_LOADED));

	return !(l->flags & VL_LIVE) && (t->v->alone || none) && !link_is_derived(t->v, l);
}

static int forget(struct txn *t, struct vlink *l, const struct link_row *old)
{
	static const struct blob none;
	struct journal *j = t->v->journal;
	int e = 0;

	if (!(l->flags & VL_STORED))
		return 0;
	if (old->place.p)
		txn_roots(t, old->place, old->live, none, false);
	if (l->place.stored.counter)
		e = journal_dot_delete(j, l->place.stored);
	if (old->deletions)
		e = e ? e : journal_deletions(j, l->row, out_of_root, t);
	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		struct dot d = l->deletion[i].slot.stored;
		if (!d.counter)
			continue;
		e = journal_deletion_delete(j, l->row, d);
		e = e ? e : journal_dot_delete(j, d);
	}
	return e ? e : journal_link_delete(j, l->row);
}

/* The directory of a dead name may have come and gone in this transaction: whoever brings the name back finds it by its row. Nodes are written before links. */
static int keep_parent(struct txn *t, const struct vlink *l)
{
	struct node_row n;
	int e = journal_node_get(t->v->journal, l->parent, &n);

	if (e != -ENOENT)
		return e;
	n = (struct node_row){.row = l->parent, .id = l->parent_id, .type = S_IFDIR};
	return journal_node_insert(t->v->journal, &n);
}

/* Moved and removed in one transaction: nobody hears of the place between, whose directory may be gone with it. Who brings the name back finds it where
 * all knew it. */
static int unmove(struct txn *t, struct vlink *l, const struct link_row *old)
{
	struct part p;
	int e = part_parse(t->v->keys, old->place.p, old->place.len, true, &p);

	if (e)
		return e == -ENOMEM ? e : 0; /* damaged: it stays where it was moved to */
	e = p.kind == PART_PLACE ? vlink_set_name(l, p.place.name, p.place.name_len) : -EUCLEAN;
	if (!e) {
		l->parent = old->parent;
		l->parent_id = p.place.parent;
		l->parent_before = p.place.parent_before;
		memcpy(l->tag, old->tag, sizeof l->tag);
		l->place.dirty = false;
	}
	part_fini(&p);
	return e;
}

/* The same for one that has no place yet, as a conflict copy that nobody had touched: where it was before, else in the root. */
static int out_of_vanished(struct txn *t, struct vlink *l)
{
	struct volume *v = t->v;
	struct vnode *dir = vnode_cached(v, l->parent);

	if (!dir || (dir->flags & VN_STORED) || !(dir->flags & VN_DOOMED))
		return 0;
	int e = vnode_by_id(v, &l->parent_before, &dir);
	if (e == -ENOENT || (!e && (!(dir->flags & VN_STORED) || dir->type != S_IFDIR)))
		e = vnode_get(v, ROOT_INUM, &dir);
	if (e)
		return e;
	l->parent = dir->row;
	l->parent_id = dir->id;
	keyring_index_tag(v->keys, &dir->id, l->name, l->name_len, l->tag);
	return 0;
}

int write_link(struct txn *t, struct vlink *l)
{
	struct journal *j = t->v->journal;
	struct link_row old = {0};
	struct blob fresh = {0};
	bool live = l->flags & VL_LIVE;
	int e = 0;

	if ((l->flags & VL_STORED) && (e = journal_link_get(j, l->row, &old)))
		return e;
	if (forgotten(t, l))
		return forget(t, l, &old);
	if (!live && l->place.dirty && !l->place.arrived.p && (e = old.place.p ? unmove(t, l, &old) : out_of_vanished(t, l)))
		return e;
	if (slot_pending(&l->place)) {
		if ((e = make_place(t, l, &fresh)))
			return e;
		txn_roots(t, old.place, old.live, fresh, live);
		e = txn_dot(t, PART_PLACE, l->row, l->place.arrived.p ? l->place.stamp.dot : l->place.taken.dot, l->place.stored);
	} else if (old.place.p && old.live != live) {
		txn_roots(t, old.place, old.live, old.place, live);
	}
	if (!e && deletions_change(l))
		e = write_deletions(t, l);
	struct link_row row = {.row = l->row, .id = l->id, .node = l->node, .parent = l->parent, .live = live,
		.deletions = (l->flags & VL_DELETIONS_LOADED) ? deletions_left(l) : old.deletions, .place = fresh};
	memcpy(row.tag, l->tag, sizeof row.tag);
	if (!e && !live && !link_is_derived(t->v, l))
		e = keep_parent(t, l);
	if (e)
		return e;
	return (l->flags & VL_STORED) ? journal_link_update(j, &row) : journal_link_insert(j, &row);
}

void slot_written(struct slot *s)
{
	if (s->arrived.p) {
		s->stored = s->stamp.dot;
		buf_fini(&s->arrived);
	} else if (s->taken.dot.counter) {
		s->stamp = s->taken;
		s->stored = s->taken.dot;
		s->dirty = false;
	}
	s->taken = (struct stamp){0};
}

void link_written(struct txn *t, struct vlink *l)
{
	uint32_t k = 0;

	if (forgotten(t, l)) {
		vlink_drop(t->v, l);
		return;
	}
	slot_written(&l->place);
	for (uint32_t i = 0; i < l->n_deletion; i++) {
		struct vdeletion *d = &l->deletion[i];
		if (d->gone) {
			slot_fini(&d->slot);
			vector_fini(&d->places_seen);
			vector_fini(&d->contents_seen);
			continue;
		}
		slot_written(&d->slot);
		l->deletion[k++] = *d;
	}
	l->n_deletion = k;
	l->flags |= VL_STORED;
	l->flags = (l->flags & ~(unsigned)VL_LIVE_STORED) | ((l->flags & VL_LIVE) ? VL_LIVE_STORED : 0);
	vlink_clean(t->v, l);
}

void link_not_written(struct vlink *l)
{
	l->place.taken = (struct stamp){0};
	for (uint32_t i = 0; i < l->n_deletion; i++)
		l->deletion[i].slot.taken = (struct stamp){0};
}
