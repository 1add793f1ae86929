/* Writing through a handle of a file whose content a peer's has superseded (design-mount: replaced).
 *
 * The handle's inode number belongs to an orphan with the content before (replace.c). A write to it has not seen the peer's content, so both
 * are kept: before its first change the orphan becomes a file of its own beside the one that took its name, under a conflict name. That is an
 * ordinary new file: nothing has to be merged, and its number stays the one that the handle has. Where the name went away meanwhile, the
 * orphan is like any file that was unlinked while it was open. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "exceptions.h"
#include "filedata_internal.h"

struct vnode *superseded_heir(struct volume *v, const struct vnode *n)
{
	struct vnode *heir = NULL;
	inum row = n->heir;

	/* the heir's number may have been superseded again */
	while (row && (n->flags & (VN_ORPHAN | VN_SUPERSEDED)) == (VN_ORPHAN | VN_SUPERSEDED)) {
		if (vnode_get(v, row, &heir))
			return NULL;
		n = heir;
		row = n->heir;
	}
	return heir && (heir->flags & VN_ORPHAN) ? NULL : heir;
}

/* All bytes of `from` in a content that no record names yet. */
static int copy_data(struct volume *v, struct filedata *from, struct filedata **ret)
{
	uint64_t length = filedata_length(from), done = 0;
	struct filedata *f;
	int e = filedata_new(&v->data_env, NULL, 0, &f);

	while (!e && done < length) {
		uint64_t n = 0;
		e = filedata_copy(from, done, f, done, length - done, 0, &n);
		if (!e && !n)
			e = -EIO;
		done += n;
	}
	if (e && f) {
		filedata_truncate(f, 0, 0); /* its object goes with it */
		filedata_free(f);
		return e;
	}
	*ret = f;
	return e;
}

struct spot {
	struct vnode *dir;
	char name[NAME_LEN_MAX + 1];
	size_t len;
	struct id link;
};

/* A free name beside the file's. */
static int find_spot(struct volume *v, struct vnode *heir, struct spot *ret)
{
	struct timespec64 now;
	char name[NAME_LEN_MAX + 1];
	struct vlink *l, *there;
	inum parent;
	size_t len;
	int e = exceptions_shown_link(v, heir, &l);

	e = e ? e : exceptions_shown_place(v, l, &parent, name, &len);
	e = e ? e : vnode_get(v, parent, &ret->dir);
	if (e)
		return e;
	env_random(v->env, ret->link.b, ID_LEN);
	now_times(v, &now);
	for (unsigned digits = 8; digits <= ID_HEX_LEN; digits += ID_HEX_LEN - 8) {
		ret->len = conflict_name(name, len, (uint64_t)now.sec * 1000000000, v->header.name, &ret->link, digits, ret->name);
		e = shown_lookup(v, ret->dir, ret->name, ret->len, &there);
		if (e == -ENOENT)
			return 0;
		if (e)
			return e;
	}
	return -EEXIST;
}

/* The orphan takes the copy and gets a name. */
static int become_file(struct volume *v, struct vnode *n, struct filedata *f, struct spot *at)
{
	struct vlink *l;
	struct vnode *heir = superseded_heir(v, n);
	int e = heir ? find_spot(v, heir, at) : -ENOENT;

	if (e == -ENOENT) { /* it has no name any more */
		n->flags &= ~(unsigned)VN_SUPERSEDED;
		return -EALREADY;
	}
	if (!e && !nothing_unusual(v))
		e = writedown_name(v, at->dir, at->name, at->len);
	e = e ? e : dir_touched(v, at->dir);
	e = e ? e : vlink_new(v, &at->link, n, at->dir, at->name, at->len, &l);
	if (e)
		return e;
	v->node_count++;
	filedata_free(n->data);
	n->data = f;
	content_fini(&n->content);
	n->content = (struct content){0};
	slot_fini(&n->content_slot);
	n->content_slot = (struct slot){0};
	n->local = 0;
	n->heir = 0;
	n->flags &= ~(unsigned)(VN_ORPHAN | VN_DOOMED | VN_SUPERSEDED);
	n->flags |= VN_CONTENT_NEW | VN_DATA_DIRTY;
	n->attrs_slot.dirty = n->times_slot.dirty = true;
	vnode_dirty(v, n);
	stats_add(v->stats, COUNT_CONFLICTS, 1);
	return 0;
}

static void tell(struct volume *v, inum dir, const struct spot *at)
{
	pthread_rwlock_rdlock(&v->observer_lock);
	if (v->observer.entry_changed)
		v->observer.entry_changed(v->observer.ctx, dir, at->name, at->len);
	if (v->observer.dir_changed)
		v->observer.dir_changed(v->observer.ctx, dir);
	pthread_rwlock_unlock(&v->observer_lock);
}

int superseded_keep(struct volume *v, inum ino)
{
	struct vnode *n;
	struct filedata *from, *f = NULL;
	struct spot at = {0};
	inum dir = 0;

	int e = change_begin(v);
	if (e)
		return e;
	if ((e = space_check(v))) {
		change_end(v);
		return e;
	}
	tree_lock(v);
	e = vnode_get(v, ino, &n);
	e = e ? e : !(n->flags & VN_SUPERSEDED) ? -EALREADY : vnode_data(v, n, &from);
	if (!e)
		n->pins++;
	tree_unlock(v);
	if (e) {
		change_end(v);
		return e == -EALREADY ? 0 : e;
	}
	e = copy_data(v, from, &f);
	tree_lock(v);
	n->pins--;
	/* somebody else was quicker, or it is being read: then once more */
	e = e ? e : !(n->flags & VN_SUPERSEDED) ? -EALREADY : n->pins ? -EAGAIN : become_file(v, n, f, &at);
	if (!e)
		dir = at.dir->row;
	tree_unlock(v);
	change_end(v);
	if (!e) {
		log_warn("%.*s keeps what is written through a handle that was opened before a peer's version came", (int)at.len, at.name);
		tell(v, dir, &at);
		return 0;
	}
	if (f) {
		filedata_truncate(f, 0, 0);
		filedata_free(f);
	}
	if (e == -EAGAIN)
		sched_yield();
	return e == -EALREADY || e == -EAGAIN ? 0 : e;
}
