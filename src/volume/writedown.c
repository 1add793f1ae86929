/* Write-down (design-replication 3): before a local change, what it touches is recorded as it is shown, in the same transaction. So a
 * local call changes exactly what POSIX says, whatever was displaced, brought back or copied around it. Under tree_mu, gate shared.
 *
 * A link that was written down is as plain as any: its row in the table of exceptions goes with it. Nothing else changes where it is
 * shown by that, so the table needs no new computation. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "exceptions.h"

#define DEPTH_MAX 4096

static int own_parts(struct volume *v, struct vlink *l)
{
	struct vnode *n;
	int e = vnode_get(v, l->node, &n);

	if (e)
		return e;
	n->flags &= ~(unsigned)(VN_ORPHAN | VN_DOOMED);
	if (l->place.stamp.dot.counter || l->place.dirty || !n->derived)
		return 0;
	/* an untouched copy: from now on it has attributes and times of its own */
	vnode_dirty(v, n);
	e = n->attrs_slot.stamp.dot.counter ? 0 : slot_change(&n->attrs_slot);
	return e ? e : n->times_slot.stamp.dot.counter ? 0 : slot_change(&n->times_slot);
}

/* One link, where it is shown otherwise than recorded. */
static int write_link(struct volume *v, struct vlink *l)
{
	struct exc *x = exc_find(v, l->row);
	struct vnode *dir;

	if (!x || !x->parent)
		return 0;
	int e = own_parts(v, l);
	e = e ? e : vnode_get(v, x->parent, &dir);
	if (e)
		return e;
	struct id before = l->place.stamp.dot.counter || l->place.dirty ? l->parent_id : dir->id;
	e = vlink_move(v, l, dir, x->name, x->name_len);
	e = e ? e : slot_change(&l->place);
	e = e ? e : vlink_set_live(v, l, true);
	if (e)
		return e;
	l->parent_before = before;
	return exc_remove(v, l->row);
}

/* A directory, those shown as one with it, and all above. */
static int write_dirs(struct volume *v, inum dir)
{
	for (unsigned depth = 0; dir != ROOT_INUM && depth < DEPTH_MAX && !nothing_unusual(v); depth++) {
		const struct group *g = v->n_groups ? group_of(v, dir) : NULL;
		inum up = ROOT_INUM;
		for (uint32_t i = 0; i < (g ? g->n : 1); i++) {
			struct vnode *n;
			struct vlink *l;
			int e = vnode_get(v, g ? g->member[i] : dir, &n);
			e = e ? e : exceptions_shown_link(v, n, &l);
			e = e ? e : write_link(v, l);
			if (e)
				return e == -ENOENT ? 0 : e; /* a directory that was removed has nothing above */
			if (!i)
				up = exceptions_lead(v, l->parent);
		}
		dir = up;
	}
	return 0;
}

/* A loser would rather have its recorded name, and with all 32 digits the name with 8; so would an untouched copy. */
static bool waits_for(struct volume *v, const struct vlink *l, const struct exc *x, const void *name, size_t len)
{
	char other[NAME_LEN_MAX + 1];

	if (x->name_len == len && !memcmp(x->name, name, len))
		return false;
	if ((l->place.stamp.dot.counter || l->place.dirty) && l->name_len == len && !memcmp(l->name, name, len))
		return true;
	return exceptions_short_name(v, l, x, other) == len && !memcmp(other, name, len);
}

/* Who waits for the name keeps the one under which it is shown now. */
static int write_claimants(struct volume *v, struct vnode *dir, const void *name, size_t len)
{
	const struct group *g = v->n_groups ? group_of(v, dir->row) : NULL;

	for (struct list *i = v->exceptions->all.next, *next; i != &v->exceptions->all; i = next) {
		struct exc *x = LIST_OF(i, struct exc, at);
		struct vlink *l;
		bool here = x->parent == dir->row;
		next = i->next;
		for (uint32_t k = 0; g && k < g->n; k++)
			here |= x->parent == g->member[k];
		if (!here)
			continue;
		int e = vlink_get(v, x->link, &l);
		if (e)
			return e;
		if (!waits_for(v, l, x, name, len))
			continue;
		if ((e = write_link(v, l)))
			return e;
	}
	return 0;
}

int writedown_name(struct volume *v, struct vnode *dir, const void *name, size_t len)
{
	int e = write_dirs(v, dir->row);
	return e ? e : v->n_exceptions ? write_claimants(v, dir, name, len) : 0;
}

static int collect(void *ctx, struct vlink *l)
{
	struct seeds *s = ctx;
	return seeds_add(s, l->row);
}

/* The untouched copies that hang on a file, and theirs. */
static int write_copies(struct volume *v, struct vnode *n, unsigned depth)
{
	int e = 0;

	for (uint32_t i = 0; i < n->n_extra && !e && depth < 16; i++) {
		struct vnode *copy;
		struct seeds links = {0};
		if (n->extra[i].gone || !n->extra[i].copy)
			continue;
		e = vnode_get(v, n->extra[i].copy, &copy);
		e = e ? e : write_copies(v, copy, depth + 1);
		e = e ? e : vnode_links(v, copy, collect, &links);
		for (uint32_t k = 0; k < links.n && !e; k++) {
			struct vlink *l;
			e = vlink_get(v, links.row[k], &l);
			if (!e && link_is_derived(v, l))
				e = write_link(v, l);
		}
		seeds_fini(&links);
		e = e == -ENOENT ? 0 : e;
	}
	return e;
}

int writedown_node(struct volume *v, struct vnode *n)
{
	const struct group *g = v->n_groups && n->type == S_IFDIR ? group_of(v, n->row) : NULL;
	struct seeds links = {0};

	if (n->row == ROOT_INUM)
		return 0;
	if (g)
		return write_dirs(v, n->row);
	int e = write_copies(v, n, 0);
	e = e ? e : vnode_links(v, n, collect, &links);
	for (uint32_t i = 0; i < links.n && !e; i++) {
		struct vlink *l;
		struct exc *x;
		e = vlink_get(v, links.row[i], &l);
		if (e)
			break;
		x = exc_find(v, l->row);
		if (x ? !x->parent : !(l->flags & VL_LIVE))
			continue;
		e = write_link(v, l);
		e = e ? e : write_dirs(v, exceptions_lead(v, l->parent));
	}
	seeds_fini(&links);
	return e;
}

/* ---- directories shown as one: what is done to the lead is done to all ---- */
int shown_kill(struct volume *v, struct vlink *l)
{
	const struct group *g = v->n_groups && l->type == S_IFDIR ? group_of(v, l->node) : NULL;
	inum lead = l->node;
	int e = 0;

	while (g && g->n > 1 && !e) {
		inum other = g->member[g->n - 1] == lead ? g->member[0] : g->member[g->n - 1];
		struct vnode *n;
		struct vlink *k;
		e = vnode_get(v, other, &n);
		e = e ? e : exceptions_shown_link(v, n, &k);
		e = e ? e : link_kill(v, k);
		group_leave(v, other);
		g = group_of(v, lead);
	}
	return e ? e : link_kill(v, l);
}

int shown_move_others(struct volume *v, struct vlink *l, struct vnode *dir, const void *name, size_t len)
{
	const struct group *g = v->n_groups && l->type == S_IFDIR ? group_of(v, l->node) : NULL;
	int e = 0;

	for (uint32_t i = 0; g && i < g->n && !e; i++) {
		struct vnode *n;
		struct vlink *k;
		if (g->member[i] == l->node)
			continue;
		e = vnode_get(v, g->member[i], &n);
		e = e ? e : exceptions_shown_link(v, n, &k);
		if (e)
			break;
		if (k->parent != dir->row && !k->place.dirty)
			k->parent_before = k->parent_id;
		e = vlink_move(v, k, dir, name, len);
		e = e ? e : slot_change(&k->place);
	}
	return e;
}
