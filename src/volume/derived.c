/* Conflict copies: a content held beside the largest one is shown as a file of its own, whose node and link ids derive from it, so that
 * every replica shows the same without anything travelling (design-replication 2 and 3).
 *
 * In journal.db a copy has a node row (`derived`: the file's row) and a link row without a place; its content stays the file's extra and is
 * filled in when the node is loaded. What it gets of its own comes by local changes (writedown.c, derived_detach) or from peers that made
 * them: a place, attributes, times, and at its first write a content, which supersedes the derived one: then `derived` is 0. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "exceptions.h"
#include "filedata_internal.h"

static struct extra *extra_of_copy(struct vnode *file, inum copy)
{
	for (uint32_t i = 0; i < file->n_extra; i++)
		if (file->extra[i].copy == copy && !file->extra[i].gone)
			return &file->extra[i];
	return NULL;
}

/* It shows its file's attributes, and as its times when the content was made, until it has its own. */
static int fill(struct vnode *copy, const struct vnode *file, const struct extra *x)
{
	struct content c;
	int e = content_copy(&c, &x->content);

	if (e)
		return e;
	if (!copy->attrs_slot.stamp.dot.counter && !copy->attrs_slot.dirty) {
		struct attrs a;
		if ((e = attrs_copy(&a, &file->attrs))) {
			content_fini(&c);
			return e;
		}
		attrs_fini(&copy->attrs);
		copy->attrs = a;
	}
	if (!copy->times_slot.stamp.dot.counter && !copy->times_slot.dirty) {
		copy->times.mtime.sec = (int64_t)(x->slot.stamp.clock_ns / 1000000000);
		copy->times.mtime.nsec = (uint32_t)(x->slot.stamp.clock_ns % 1000000000);
		copy->times.ctime = copy->atime = copy->times.mtime;
	}
	content_fini(&copy->content);
	copy->content = c;
	copy->local = x->local;
	copy->derived = file->row;
	copy->derived_dot = x->slot.stamp.dot;
	/* the next content of it has seen this one */
	copy->content_slot.stamp = x->slot.stamp;
	copy->type = file->type;
	vnode_set_size(copy, &c);
	return 0;
}

int derived_load(struct volume *v, struct vnode *n)
{
	struct vnode *file;
	int e = vnode_get(v, n->derived, &file);
	struct extra *x = e ? NULL : extra_of_copy(file, n->row);

	if (e && e != -ENOENT)
		return e;
	if (!x) {
		n->derived = 0;
		return 0;
	}
	return fill(n, file, x);
}

static bool has_own_content(const struct vnode *n)
{
	return !n->derived && (n->content_slot.stamp.dot.counter || n->content_slot.dirty);
}

static int copy_node(struct volume *v, struct vnode *file, const struct extra *x, struct vnode **ret)
{
	struct id id;

	copy_node_id(&file->id, x->slot.stamp.dot, &id);
	int e = vnode_by_id(v, &id, ret);
	return e == -ENOENT ? vnode_new(v, &id, file->type, ret) : e;
}

int derived_make(struct volume *v, struct vnode *n, uint32_t extra, struct vlink **ret)
{
	struct extra *x = &n->extra[extra];
	struct vnode *copy;
	struct vlink *l;
	struct id id;
	int e = copy_node(v, n, x, &copy);

	copy_link_id(&n->id, x->slot.stamp.dot, &id);
	e = e ? e : vlink_refer(v, &id, &l);
	if (e)
		return e;
	if (l->node != copy->row) {
		l->node = copy->row;
		l->node_id = copy->id;
		l->type = n->type;
		vlink_dirty(v, l);
	}
	if (!x->copy)
		stats_add(v->stats, COUNT_CONFLICTS, 1);
	x->copy = copy->row;
	vnode_dirty(v, n);
	vnode_dirty(v, copy);
	if (!has_own_content(copy) && (e = fill(copy, n, x)))
		return e;
	*ret = l;
	return 0;
}

static int seed(void *ctx, struct vlink *l)
{
	struct apply *a = ctx;
	int e = note_link(a, l);
	return e ? e : seeds_add(&a->seeds, l->row);
}

int derived_gone(struct apply *a, struct vnode *n, inum row)
{
	struct vnode *copy;
	int e = vnode_get(a->v, row, &copy);

	if (e)
		return e == -ENOENT ? 0 : e;
	if (copy->derived != n->row)
		return 0; /* it has a content of its own */
	if ((e = vnode_links(a->v, copy, seed, a)))
		return e;
	content_fini(&copy->content);
	copy->content = (struct content){0};
	slot_fini(&copy->content_slot);
	copy->derived = 0;
	copy->local = 0;
	copy->size = copy->blocks = 0;
	/* who has it open keeps what it reads: the object's file goes with the last handle */
	if (copy->data && !copy->pins && !refs_get(a->v, row)) {
		filedata_free(copy->data);
		copy->data = NULL;
	}
	vnode_dirty(a->v, copy);
	return 0;
}

bool derived_needs(struct volume *v, struct vnode *n)
{
	for (uint32_t i = 0; i < n->n_extra; i++) {
		struct vnode *copy;
		struct vlink *l;
		if (n->extra[i].gone || !n->extra[i].copy || vnode_get(v, n->extra[i].copy, &copy) || copy->derived != n->row)
			continue;
		if (copy->links || !exceptions_shown_link(v, copy, &l) || derived_needs(v, copy))
			return true;
	}
	return false;
}

void derived_bytes_gone(struct volume *v, const struct vnode *n)
{
	for (uint32_t i = 0; i < n->n_extra; i++) {
		struct vnode *copy = n->extra[i].copy ? vnode_cached(v, n->extra[i].copy) : NULL;
		if (!copy || copy->derived != n->row)
			continue;
		copy->local = 0;
		if (copy->pins)
			continue;
		filedata_free(copy->data);
		copy->data = NULL;
		/* what was taken out of it when it was opened */
		struct content c;
		if (!content_copy(&c, &n->extra[i].content)) {
			content_fini(&copy->content);
			copy->content = c;
		}
	}
}

int derived_dies(struct volume *v, struct vnode *copy)
{
	struct vnode *file;
	struct vlink *l;
	int e = vnode_get(v, copy->derived, &file);

	if (e)
		return e == -ENOENT ? 0 : e;
	if (!file->links && !(file->flags & VN_ORPHAN) && file->type && exceptions_shown_link(v, file, &l) == -ENOENT)
		node_nameless(v, file);
	return 0;
}

/* ---- the first write to a copy ---- */
struct detach {
	struct content content; /* owned */
	uint64_t old_local, local;
	struct object *object;
};

/* A whole copy of the object under a new id: the losing content keeps its bytes. Without tree_mu. */
static int copy_object(struct volume *v, struct detach *d)
{
	struct page_map map = {.pages = (d->content.length + PAGE_LEN - 1) / PAGE_LEN, .holes = d->content.holes};
	struct object *old, *fresh;
	struct id id;
	struct root root;
	int e = object_open(v->objects, d->old_local, &d->content.object, d->content.epoch, &map, &d->content.root, &old);

	if (e)
		return e;
	env_random(v->env, id.b, ID_LEN);
	d->local = object_store_next_local(v->objects);
	e = object_copy(old, d->local, &id, &fresh);
	object_close(old);
	if (e)
		return e;
	e = object_flush(fresh);
	if (!e) {
		struct page_map m;
		object_map(fresh, &m, &root);
		extents_fini(&m.holes);
		d->content.object = id;
		d->content.root = root;
	}
	object_close(fresh);
	if (e)
		object_remove(v->objects, d->local);
	return e;
}

static int take_own(struct volume *v, struct vnode *n, struct detach *d)
{
	struct filedata *f;
	int e = filedata_new(&v->data_env, &d->content, d->local, &f);

	if (e)
		return e;
	/* no record names it yet, so the next commit writes the whole of it as a new content, whether the write succeeds or not */
	f->confirmed_local = 0;
	filedata_mark(f, 0, 0, true);
	f->changed.whole = true;
	struct filedata *old = n->data;
	n->data = f;
	n->derived = 0;
	n->local = 0;
	n->flags |= VN_DATA_DIRTY;
	content_fini(&n->content);
	n->content = (struct content){.is_object = d->content.is_object, .object = d->content.object, .epoch = d->content.epoch,
		.length = d->content.length};
	vnode_dirty(v, n);
	filedata_free(old);
	return 0;
}

int derived_detach(struct volume *v, inum ino)
{
	struct detach d = {0};
	struct vnode *n, *file;
	struct extra *x = NULL;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	e = e ? e : !n->derived ? -EALREADY : vnode_get(v, n->derived, &file);
	if (!e && !(x = extra_of_copy(file, ino)))
		e = -ESTALE;
	e = e ? e : content_copy(&d.content, &x->content);
	if (!e)
		d.old_local = x->local;
	tree_unlock(v);
	if (!e && d.content.is_object)
		e = copy_object(v, &d);
	if (e)
		goto out;
	tree_lock(v);
	e = vnode_get(v, ino, &n);
	/* somebody else was quicker, or it is being read: then once more */
	e = e ? e : !n->derived ? -EALREADY : n->pins ? -EAGAIN : take_own(v, n, &d);
	tree_unlock(v);
	if (e && d.local)
		object_remove(v->objects, d.local);
out:
	content_fini(&d.content);
	if (e == -EAGAIN)
		sched_yield();
	return e == -EALREADY ? 0 : e;
}
