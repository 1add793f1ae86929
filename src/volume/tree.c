/* Names: make, link, unlink, rmdir, and how a link dies. Memory only: commit writes it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"
#include "near.h"

#define LINKS_MAX 65000
#define TARGET_MAX 4095

int name_check(const void *name, size_t len)
{
	if (len > NAME_LEN_MAX)
		return -ENAMETOOLONG;
	return name_valid(name, len) ? 0 : -EINVAL;
}

int dir_get(struct volume *v, inum ino, struct vnode **ret)
{
	struct vnode *n;

	if (v->n_groups)
		ino = exceptions_lead(v, ino);
	int e = vnode_get(v, ino, &n);
	if (e)
		return e == -ENOENT ? -ESTALE : e;
	if (!n->type)
		return -ESTALE;
	if (n->type != S_IFDIR)
		return -ENOTDIR;
	*ret = n;
	return 0;
}

/* A directory that may get new names: one that was removed may not. */
static int dir_alive(struct volume *v, inum ino, struct vnode **ret)
{
	int e = dir_get(v, ino, ret);

	return e ? e : ((*ret)->flags & VN_ORPHAN) ? -ENOENT : 0;
}

int dir_touched(struct volume *v, struct vnode *dir)
{
	struct timespec64 now;
	int e = slot_change(&dir->times_slot);

	if (e)
		return e;
	now_times(v, &now);
	dir->times.mtime = dir->times.ctime = now;
	vnode_dirty(v, dir);
	return 0;
}

int node_ctime(struct volume *v, struct vnode *n)
{
	int e = slot_change(&n->times_slot);

	if (e)
		return e;
	now_times(v, &n->times.ctime);
	vnode_dirty(v, n);
	return 0;
}

void node_nameless(struct volume *v, struct vnode *n)
{
	/* conflict copies still show contents that hang on it */
	if (n->n_extra && derived_needs(v, n))
		return;
	n->flags |= VN_ORPHAN;
	if (!refs_get(v, n->row))
		n->flags |= VN_DOOMED;
	if (n->type == S_IFDIR)
		n->nlink = 0;
	vnode_dirty(v, n);
}

int link_kill(struct volume *v, struct vlink *l)
{
	struct vnode *n;
	struct vdeletion *d;
	int e = vnode_get(v, l->node, &n);

	e = e ? e : vlink_deletions(v, l);
	if (!e && (l->flags & VL_STORED) && !v->alone && !(e = vlink_deletion_add(l, &d)))
		d->slot.dirty = true;
	e = e ? e : vlink_set_live(v, l, false);
	if (e)
		return e;
	if (!(l->flags & VL_STORED))
		vlink_drop(v, l);
	if (n->links)
		return 0;
	node_nameless(v, n);
	return n->derived ? derived_dies(v, n) : 0;
}

/* Mode, owner and group of a fresh node, as the kernel does it for local filesystems. */
static int fresh_attrs(struct vnode *dir, uint32_t mode, uint64_t rdev, const struct caller *c, struct attrs *a)
{
	bool is_dir = S_ISDIR(mode);

	a->uid = c->uid;
	a->gid = c->gid;
	a->rdev = S_ISCHR(mode) || S_ISBLK(mode) ? rdev : 0;
	a->mode = mode & (S_IFMT | 07777);
	if (dir->attrs.mode & S_ISGID) {
		a->gid = dir->attrs.gid;
		if (is_dir)
			a->mode |= S_ISGID;
		else if ((a->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && !c->in_group)
			a->mode &= ~(uint32_t)S_ISGID;
	}
	return S_ISLNK(mode) ? 0 : acl_inherit(&dir->attrs, a, c->umask);
}

/* A node with all its parts pending. */
static int fresh_node(struct volume *v, struct vnode *dir, uint32_t mode, uint64_t rdev, const char *target, const struct caller *c,
	struct vnode **ret)
{
	struct vnode *n;
	int e = vnode_new(v, NULL, mode & S_IFMT, &n);

	if (e)
		return e;
	if ((e = fresh_attrs(dir, mode, rdev, c, &n->attrs)))
		goto fail;
	if (S_ISLNK(mode)) {
		size_t len = strlen(target);
		if (!(n->content.bytes = malloc(len + 1))) {
			e = -ENOMEM;
			goto fail;
		}
		memcpy(n->content.bytes, target, len + 1);
		n->content.length = len;
		vnode_set_size(n, &n->content);
	}
	now_times(v, &n->times.mtime);
	n->times.ctime = n->atime = n->times.mtime;
	n->attrs_slot.dirty = n->times_slot.dirty = true;
	if (S_ISREG(mode) || S_ISLNK(mode))
		n->flags |= VN_CONTENT_NEW;
	if (S_ISDIR(mode))
		n->flags |= VN_COMPLETE;
	*ret = n;
	return 0;
fail:
	vnode_drop(v, n);
	return e;
}

static int make(struct volume *v, inum parent, const char *name, size_t len, uint32_t mode, uint64_t rdev, const char *target,
	const struct caller *c, struct inode_attr *ret)
{
	struct vnode *dir, *n;
	struct vlink *l;
	int e = dir_alive(v, parent, &dir);

	if (!e && !nothing_unusual(v))
		e = writedown_name(v, dir, name, len);
	if (e)
		return e;
	e = shown_lookup(v, dir, name, len, &l);
	if (e != -ENOENT)
		return e ? e : -EEXIST;
	if ((e = dir_touched(v, dir)) || (e = fresh_node(v, dir, mode, rdev, target, c, &n)))
		return e;
	if ((e = vlink_new(v, NULL, n, dir, name, len, &l))) {
		vnode_drop(v, n);
		return e;
	}
	v->node_count++;
	attr_of(v, n, ret);
	return 0;
}

int volume_make(struct volume *v, inum parent, const char *name, size_t len, uint32_t mode, uint64_t rdev, const char *target,
	const struct caller *c, struct inode_attr *ret)
{
	int e = name_check(name, len);

	if (!e && S_ISLNK(mode))
		e = !target || !*target ? -ENOENT : strlen(target) > TARGET_MAX ? -ENAMETOOLONG : 0;
	if (e)
		return e;
	if ((e = change_begin(v)))
		return e;
	if (!(e = space_check(v))) {
		tree_lock(v);
		e = make(v, parent, name, len, mode, rdev, target, c, ret);
		tree_unlock(v);
	}
	change_end(v);
	committer_kick(v);
	return e;
}

static int link_node(struct volume *v, inum ino, inum parent, const char *name, size_t len, struct inode_attr *ret)
{
	struct vnode *n, *dir;
	struct vlink *l;
	int e = dir_alive(v, parent, &dir);

	if (e)
		return e;
	if ((e = vnode_get(v, ino, &n)))
		return e == -ENOENT ? -ESTALE : e;
	if (n->type == S_IFDIR)
		return -EPERM;
	if (!nothing_unusual(v) && ((e = writedown_node(v, n)) || (e = writedown_name(v, dir, name, len))))
		return e;
	if (!n->links)
		return -ENOENT;
	if (n->nlink >= LINKS_MAX)
		return -EMLINK;
	e = shown_lookup(v, dir, name, len, &l);
	if (e != -ENOENT)
		return e ? e : -EEXIST;
	if ((e = dir_touched(v, dir)) || (e = node_ctime(v, n)) || (e = vlink_new(v, NULL, n, dir, name, len, &l)))
		return e;
	attr_of(v, n, ret);
	return 0;
}

int volume_link(struct volume *v, inum ino, inum parent, const char *name, size_t len, struct inode_attr *ret)
{
	int e = name_check(name, len);

	if (e || (e = change_begin(v)))
		return e;
	if (!(e = space_check(v))) {
		tree_lock(v);
		e = link_node(v, ino, parent, name, len, ret);
		tree_unlock(v);
	}
	change_end(v);
	committer_kick(v);
	return e;
}

static bool is_empty(struct volume *v, struct vnode *dir, int *ret_e)
{
	bool some = false;

	if (nothing_unusual(v)) {
		*ret_e = vnode_has_children(v, dir, &some);
	} else {
		static const uint32_t one = 1;
		struct shown_child *c = malloc(sizeof *c);
		uint32_t n = 0;
		*ret_e = c ? exceptions_children(v, dir, 0, c, one, &n) : -ENOMEM;
		some = n > 0;
		free(c);
	}
	return !*ret_e && !some;
}

/* 0 where dir (a directory) may be removed or replaced. */
int dir_removable(struct volume *v, struct vnode *dir)
{
	int e = 0;

	return is_empty(v, dir, &e) ? 0 : e ? e : -ENOTEMPTY;
}

static int remove_name(struct volume *v, inum parent, const char *name, size_t len, bool directory)
{
	struct vnode *dir, *n;
	struct vlink *l;
	int e = dir_get(v, parent, &dir);

	if (!e && !nothing_unusual(v))
		e = writedown_name(v, dir, name, len);
	e = e ? e : shown_lookup(v, dir, name, len, &l);
	e = e ? e : vnode_get(v, l->node, &n);
	if (e)
		return e;
	if (directory && n->type != S_IFDIR)
		return -ENOTDIR;
	if (!directory && n->type == S_IFDIR)
		return -EISDIR;
	if (directory && (e = dir_removable(v, n)))
		return e;
	if (!nothing_unusual(v)) {
		/* writing down may have moved things: look again */
		if ((e = writedown_node(v, n)) || (e = shown_lookup(v, dir, name, len, &l)))
			return e;
	}
	inum heir = near_heir(v, dir, n, name, len);
	if ((e = dir_touched(v, dir)) || (e = node_ctime(v, n)) || (e = shown_kill(v, l)))
		return e;
	if (!n->links && v->node_count)
		v->node_count--;
	if (!n->links)
		n->heir = heir;
	return 0;
}

static int volume_remove(struct volume *v, inum parent, const char *name, size_t len, bool directory)
{
	if (len > NAME_LEN_MAX)
		return -ENAMETOOLONG;
	int e = change_begin(v);
	if (e)
		return e;
	tree_lock(v);
	e = remove_name(v, parent, name, len, directory);
	tree_unlock(v);
	change_end(v);
	committer_kick(v);
	return e;
}

int volume_unlink(struct volume *v, inum parent, const char *name, size_t len) { return volume_remove(v, parent, name, len, false); }

int volume_rmdir(struct volume *v, inum parent, const char *name, size_t len) { return volume_remove(v, parent, name, len, true); }
