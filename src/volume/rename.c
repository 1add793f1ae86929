/* rename, with its flags. Memory only: commit writes it. */
#include <errno.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "internal.h"

struct move {
	struct vnode *dir;
	const char *name;
	size_t len;
	struct vlink *link;
	struct vnode *node;
};

static int find(struct volume *v, inum parent, struct move *m)
{
	int e = dir_get(v, parent, &m->dir);

	if (!e && !nothing_unusual(v))
		e = writedown_name(v, m->dir, m->name, m->len);
	e = e ? e : shown_lookup(v, m->dir, m->name, m->len, &m->link);
	return e ? e : vnode_get(v, m->link->node, &m->node);
}

/* Is dir the directory n or below it? */
static int is_below(struct volume *v, struct vnode *dir, const struct vnode *n, bool *ret)
{
	inum at = dir->row, up;

	for (unsigned depth = 0; depth < 1u << 20; depth++) {
		if (at == n->row) {
			*ret = true;
			return 0;
		}
		if (at == ROOT_INUM)
			break;
		struct vnode *d;
		int e = vnode_get(v, at, &d);
		e = e ? e : vnode_parent(v, d, &up);
		if (e == -ENOENT)
			break; /* a removed directory is below nothing */
		if (e)
			return e;
		at = up;
	}
	*ret = false;
	return 0;
}

static int check_loop(struct volume *v, const struct move *from, struct vnode *into)
{
	bool below;

	if (from->node->type != S_IFDIR)
		return 0;
	int e = is_below(v, into, from->node, &below);
	return e ? e : below ? -EINVAL : 0;
}

/* The place's record names the parent that the last committed place had (design-replication 3b). */
static void remember_parent(struct vlink *l, const struct vnode *into)
{
	if (l->parent != into->row && !l->place.dirty)
		l->parent_before = l->parent_id;
	else if (!(l->flags & VL_STORED))
		l->parent_before = into->id;
}

static int put(struct volume *v, struct vlink *l, struct vnode *node, struct vnode *dir, const char *name, size_t len)
{
	remember_parent(l, dir);
	int e = vlink_move(v, l, dir, name, len);
	e = e ? e : slot_change(&l->place);
	if (!e && v->n_groups)
		e = shown_move_others(v, l, dir, name, len);
	return e ? e : node_ctime(v, node);
}

static int touch_both(struct volume *v, struct vnode *a, struct vnode *b)
{
	int e = dir_touched(v, a);

	return e || a == b ? e : dir_touched(v, b);
}

/* Is there something under the new name that must go first? 0, 1 (nothing to do at all), negative. */
static int replace(struct volume *v, struct move *from, struct move *to)
{
	int e;

	if (to->link == from->link || to->node == from->node)
		return 1;
	if (to->node->type == S_IFDIR) {
		if (from->node->type != S_IFDIR)
			return -EISDIR;
		if ((e = dir_removable(v, to->node)))
			return e;
	} else if (from->node->type == S_IFDIR) {
		return -ENOTDIR;
	}
	if ((e = node_ctime(v, to->node)) || (e = shown_kill(v, to->link)))
		return e;
	from->node->flags |= VN_REPLACED;
	if (!to->node->links && v->node_count)
		v->node_count--;
	if (!to->node->links && to->node->type == S_IFREG)
		to->node->heir = from->node->row;
	return 0;
}

static int exchange(struct volume *v, struct move *from, struct move *to)
{
	int e = check_loop(v, from, to->dir);

	e = e ? e : check_loop(v, to, from->dir);
	e = e ? e : touch_both(v, from->dir, to->dir);
	if (e || from->link == to->link)
		return e;
	e = put(v, from->link, from->node, to->dir, to->name, to->len);
	return e ? e : put(v, to->link, to->node, from->dir, from->name, from->len);
}

static int rename_locked(struct volume *v, inum parent, inum new_parent, struct move *from, struct move *to, unsigned flags)
{
	int e = find(v, parent, from), found;

	if (e)
		return e;
	found = find(v, new_parent, to);
	if (found && (found != -ENOENT || !to->dir))
		return found;
	if (!nothing_unusual(v)) {
		if ((e = writedown_node(v, from->node)) || (!found && (e = writedown_node(v, to->node))))
			return e;
		if ((e = find(v, parent, from)))
			return e;
		found = find(v, new_parent, to);
		if (found && found != -ENOENT)
			return found;
	}
	if (to->dir->flags & VN_ORPHAN)
		return -ENOENT;
	if ((flags & RENAME_NOREPLACE) && !found)
		return -EEXIST;
	if (flags & RENAME_EXCHANGE)
		return found ? found : exchange(v, from, to);
	if ((e = check_loop(v, from, to->dir)))
		return e;
	if (!found && (e = replace(v, from, to)))
		return e < 0 ? e : 0;
	if ((e = touch_both(v, from->dir, to->dir)))
		return e;
	return put(v, from->link, from->node, to->dir, to->name, to->len);
}

int volume_rename(struct volume *v, inum parent, const char *name, size_t len, inum new_parent, const char *new_name, size_t new_len,
	unsigned flags)
{
	struct move from = {.name = name, .len = len}, to = {.name = new_name, .len = new_len};
	int e = name_check(new_name, new_len);

	if (len > NAME_LEN_MAX)
		e = -ENAMETOOLONG;
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) || flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
		e = -EINVAL;
	if (e || (e = change_begin(v)))
		return e;
	tree_lock(v);
	e = rename_locked(v, parent, new_parent, &from, &to, flags);
	tree_unlock(v);
	change_end(v);
	committer_kick(v);
	return e;
}
