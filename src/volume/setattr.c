/* chmod, chown, truncate, utimens as one. */
#include <errno.h>
#include <sys/stat.h>

#include "internal.h"

/* Mode, owner and group of n as asked, with what chown and chmod take along. */
static int change_own_attrs(struct volume *v, struct vnode *n, const struct set_attr *s, const struct caller *c)
{
	int e = slot_change(&n->attrs_slot);

	if (e)
		return e;
	vnode_dirty(v, n);
	if (s->mask & SET_UID)
		n->attrs.uid = s->uid;
	if (s->mask & SET_GID)
		n->attrs.gid = s->gid;
	if (s->mask & (SET_UID | SET_GID) && n->attrs.n_xattr)
		attrs_remove(&n->attrs, "security.capability");
	if (s->mask & SET_MODE) {
		n->attrs.mode = (n->attrs.mode & S_IFMT) | (s->mode & 07777);
		if (n->type != S_IFDIR && (n->attrs.mode & S_ISGID) && !c->in_group)
			n->attrs.mode &= ~(uint32_t)S_ISGID;
		return acl_chmod(&n->attrs);
	}
	return 0;
}

/* Attributes are the file's, whichever content a handle has. Times are not: the kernel sends those of what was written through it. */
static int change_attrs(struct volume *v, struct vnode *n, const struct set_attr *s, const struct caller *c)
{
	struct vnode *heir = n->flags & VN_SUPERSEDED ? superseded_heir(v, n) : NULL;
	int e = heir ? change_own_attrs(v, heir, s, c) : 0;

	return e ? e : change_own_attrs(v, n, s, c);
}

static int change_times(struct volume *v, struct vnode *n, const struct set_attr *s)
{
	int e = 0;

	if (s->mask & SET_ATIME)
		n->atime = s->atime;
	if (s->mask & ~(unsigned)SET_ATIME) {
		if ((e = slot_change(&n->times_slot)))
			return e;
		vnode_dirty(v, n);
	}
	if (s->mask & SET_MTIME)
		n->times.mtime = s->mtime;
	if (s->mask & SET_CTIME)
		n->times.ctime = s->ctime;
	else if (s->mask & ~(unsigned)SET_ATIME)
		now_times(v, &n->times.ctime);
	/* a truncate is a change of content: its mtime comes along, or is now */
	if ((s->mask & SET_SIZE) && !(s->mask & SET_MTIME))
		now_times(v, &n->times.mtime);
	return e;
}

static int setattr_locked(struct volume *v, inum ino, const struct set_attr *s, const struct caller *c, struct inode_attr *ret)
{
	struct vnode *n;
	int e = vnode_get(v, v->n_groups ? exceptions_lead(v, ino) : ino, &n);

	if (e == -ENOENT || (!e && (!n->type || (n->flags & VN_DOOMED))))
		return -ESTALE;
	if (!e && !nothing_unusual(v))
		e = writedown_node(v, n);
	if (!e && (s->mask & (SET_MODE | SET_UID | SET_GID)))
		e = change_attrs(v, n, s, c);
	if (!e && n->type != S_IFDIR && (s->mask & (SET_KILL_SUIDGID | SET_SIZE)))
		e = kill_privileges(v, n, s->mask & SET_KILL_SUIDGID);
	e = e ? e : change_times(v, n, s);
	if (!e)
		attr_of(v, n, ret);
	return e;
}

int volume_setattr(struct volume *v, inum ino, const struct set_attr *s, const struct caller *c, struct inode_attr *ret)
{
	int e = 0;

	if (s->mask & SET_SIZE && (e = data_truncate(v, ino, s->size)))
		return e;
	if ((e = change_begin(v)))
		return e;
	tree_lock(v);
	e = setattr_locked(v, ino, s, c, ret);
	tree_unlock(v);
	change_end(v);
	committer_kick(v);
	return e;
}
