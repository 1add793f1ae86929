/* A peer's content that cannot be shown in place: the file gets a new inode number, and the kernel's open handles keep the old one with what
 * they had (design-mount: replaced). Under tree_mu, gate exclusive, at the end of merging; journal.db follows in the transaction.
 *
 *   superseded   the old number becomes an orphan that holds the content before, until the kernel forgets it or a program writes to it
 *                (superseded.c). Its object is kept open: the journal does with the file what it would do without anybody reading it
 *   set aside    the content before is a conflict copy now: that copy takes the old number, so that open handles go on with it */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "commit.h"
#include "exceptions.h"

int replace_later(struct apply *a, struct vnode *n, struct vnode *copy)
{
	struct replacement *p = reallocarray(a->replace, a->n_replace + 1, sizeof *p);

	if (!p)
		return -ENOMEM;
	a->replace = p;
	p = &a->replace[a->n_replace++];
	*p = (struct replacement){.node = n->row, .copy = copy ? copy->row : 0, .data = n->data, .local = n->local, .size = n->size,
		.blocks = n->blocks, .stamp = n->content_slot.stamp, .content = n->content, .dirty = n->flags & VN_DATA_DIRTY};
	n->data = NULL;
	n->content = (struct content){0};
	return 0;
}

int replace_unlinked(struct apply *a, struct vnode *n)
{
	for (uint32_t i = 0; i < a->n_replace; i++)
		if (a->replace[i].node == n->row)
			return 0;
	wait_unpinned(a->v, n);
	int e = replace_later(a, n, NULL);
	if (e)
		return e;
	struct replacement *p = &a->replace[a->n_replace - 1];
	if (n->local && filedata_overwritten(p->data, n->local)) { /* what the record names is nowhere here any more */
		n->spoiled = n->local;
		n->local = 0;
	}
	p->unlinked = !n->local; /* else both have one object, which a write through the handle must not change */
	n->flags &= ~(unsigned)VN_DATA_DIRTY;
	return vnode_content_reload(a->v, n);
}

static int note_renumber(struct volume *v, const struct renumber *r)
{
	struct renumber *p = reallocarray(v->renumber, v->n_renumber + 1, sizeof *p);

	if (!p)
		return -ENOMEM;
	v->renumber = p;
	p[v->n_renumber++] = *r;
	return 0;
}

struct relink {
	struct volume *v;
	inum row;
};

static int relink(void *ctx, struct vlink *l)
{
	struct relink *r = ctx;
	struct exc *x = exc_find(r->v, l->row);

	l->node = r->row;
	if (x)
		x->node = r->row;
	vlink_dirty(r->v, l);
	return 0;
}

/* All that names n by its number, in memory. */
static int renumber(struct volume *v, struct vnode *n, inum row)
{
	struct relink r = {v, row};
	int e = vnode_links(v, n, relink, &r);

	for (uint32_t i = 0; i < n->n_extra && !e; i++) {
		struct vnode *copy;
		if (!n->extra[i].copy || vnode_get(v, n->extra[i].copy, &copy) || copy->derived != n->row)
			continue;
		copy->derived = row;
		vnode_dirty(v, copy);
	}
	if (e)
		return e;
	vnode_renumber(v, n, row);
	vnode_dirty(v, n);
	return 0;
}

/* The old number holds what its handles had. */
static int make_orphan(struct volume *v, struct replacement *p, struct vnode *n, struct renumber *r)
{
	struct vnode *o;
	struct attrs attrs;
	int e = attrs_copy(&attrs, &n->attrs);

	e = e ? e : vnode_new_at(v, p->node, n->type, &o);
	if (e)
		return e;
	o->attrs = attrs;
	o->times = n->times;
	o->atime = n->atime;
	o->content = p->content;
	p->content = (struct content){0};
	o->content_slot.stamp = p->stamp;
	o->data = p->data;
	p->data = NULL;
	o->local = p->local;
	o->size = p->size;
	o->blocks = p->blocks;
	o->flags = VN_STORED | VN_ORPHAN | (p->unlinked ? 0 : VN_SUPERSEDED) | (p->dirty ? VN_DATA_DIRTY : 0);
	o->heir = n->row;
	if (p->dirty) /* the next full commit asks which object it has */
		vnode_dirty(v, o);
	o->stray = n->stray;
	o->binned = n->binned;
	n->stray = n->binned = 0;
	*r = (struct renumber){.old = p->node, .fresh = n->row, .orphan = true, .id = o->id, .type = o->type};
	/* what does not open reads as damaged, for those handles alone */
	struct filedata *f;
	e = vnode_data(v, o, &f);
	if (!e)
		filedata_hold(f);
	return e;
}

/* The copy gives up its own number, which nobody has seen. */
static int copy_takes(struct volume *v, struct replacement *p, struct vnode *n, struct vnode *copy)
{
	int e = renumber(v, copy, p->node);

	if (e)
		return e;
	for (uint32_t i = 0; i < n->n_extra; i++)
		if (n->extra[i].copy == p->copy)
			n->extra[i].copy = p->node;
	filedata_free(copy->data);
	copy->data = p->data;
	p->data = NULL;
	if (copy->data) {
		free(copy->content.bytes);
		copy->content.bytes = NULL;
		extents_fini(&copy->content.holes);
		copy->content.holes = (struct extents){0};
	}
	return 0;
}

/* Does the copy show what is open of n? Not where that was written on after its last name went. */
static bool shows_it(const struct vnode *n, const struct replacement *p)
{
	for (uint32_t i = 0; i < n->n_extra; i++)
		if (n->extra[i].copy == p->copy && !n->extra[i].gone)
			return n->extra[i].local == p->local;
	return false;
}

static int note_name(void *ctx, struct vlink *l) { return note_link(ctx, l); }

static int replace_one(struct apply *a, struct replacement *p)
{
	struct volume *v = a->v;
	struct vnode *n, *copy = NULL;
	struct renumber r = {.old = p->node};
	int e = vnode_get(v, p->node, &n);

	bool shared = !e && p->copy && !p->dirty && shows_it(n, p);
	if (shared && !vnode_get(v, p->copy, &copy) && ((copy->flags & VN_STORED) || copy->pins || copy->derived != n->row))
		copy = NULL;
	inum fresh = v->next_node++;
	e = e ? e : vnode_links(v, n, note_name, a);
	e = e ? e : renumber(v, n, fresh);
	if (e)
		return e;
	for (uint32_t i = 0; i < a->n_step; i++)
		if (a->step[i].node == p->node)
			a->step[i].node = fresh;
	if (copy) {
		r.fresh = fresh;
		e = copy_takes(v, p, n, copy);
	} else {
		e = make_orphan(v, p, n, &r);
	}
	e = e ? e : note_renumber(v, &r);
	return e ? e : note_replaced(a, p->node, fresh);
}

int replace_all(struct apply *a)
{
	int e = 0;

	for (uint32_t i = 0; i < a->n_replace && !e; i++)
		e = replace_one(a, &a->replace[i]);
	return e;
}

void replace_fini(struct apply *a)
{
	for (uint32_t i = 0; i < a->n_replace; i++) {
		filedata_free(a->replace[i].data);
		content_fini(&a->replace[i].content);
	}
	free(a->replace);
}

/* ---- in the transaction ---- */
static int move_dot(struct txn *t, struct dot d, inum owner)
{
	struct dot_row row;
	int e = d.counter ? journal_dot_get(t->v->journal, d, &row) : -ENOENT;

	if (e)
		return e == -ENOENT ? 0 : e;
	row.owner = owner;
	return journal_dot_put(t->v->journal, &row);
}

static int write_one(struct txn *t, const struct renumber *r)
{
	struct volume *v = t->v;
	struct vnode *n = NULL;
	int e = journal_node_renumber(v->journal, r->old, r->fresh);

	e = e ? e : vnode_get(v, r->fresh, &n);
	e = e ? e : move_dot(t, n->attrs_slot.stored, n->row);
	e = e ? e : move_dot(t, n->times_slot.stored, n->row);
	e = e ? e : move_dot(t, n->content_slot.stored, n->row);
	for (uint32_t i = 0; i < n->n_extra && !e; i++)
		e = move_dot(t, n->extra[i].slot.stored, n->row);
	if (!e && r->orphan) {
		const struct node_row o = {.row = r->old, .id = r->id, .type = r->type, .orphan = true};
		e = journal_node_insert(v->journal, &o);
	}
	return e;
}

int renumber_write(struct txn *t)
{
	int e = 0;

	for (uint32_t i = 0; i < t->v->n_renumber && !e; i++)
		e = write_one(t, &t->v->renumber[i]);
	return e;
}
