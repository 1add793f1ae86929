/* Asking: look-up, attributes, references, paths, listing. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

void attr_of(struct volume *v, const struct vnode *n, struct inode_attr *ret)
{
	*ret = (struct inode_attr){
		.ino = n->row,
		.mode = n->attrs.mode ? n->attrs.mode : n->type | 0600,
		.uid = n->attrs.uid,
		.gid = n->attrs.gid,
		/* a file brought back, or an untouched conflict copy, has no live link of its own */
		.nlink = n->nlink || (n->flags & VN_ORPHAN) ? n->nlink : 1,
		.rdev = n->attrs.rdev,
		.size = n->size,
		.blocks = n->blocks,
		.atime = n->atime,
		.mtime = n->times.mtime,
		.ctime = n->times.ctime,
	};
	if (n->type == S_IFDIR) {
		ret->size = PAGE_LEN;
		ret->blocks = PAGE_LEN / 512;
	}
}

/* A node that requests may name: -ESTALE where it is none (any more). */
static int node_get(struct volume *v, inum ino, struct vnode **ret)
{
	int e = vnode_get(v, ino, ret);

	if (e)
		return e == -ENOENT ? -ESTALE : e;
	return (*ret)->type && !((*ret)->flags & VN_DOOMED) ? 0 : -ESTALE;
}

/* The node that stands for it: a directory that is shown as one with others answers as their lead. */
static int lead_get(struct volume *v, inum ino, struct vnode **ret)
{
	return node_get(v, v->n_groups ? exceptions_lead(v, ino) : ino, ret);
}

int volume_lookup(struct volume *v, inum parent, const char *name, size_t len, struct inode_attr *ret)
{
	struct vnode *dir, *n;
	struct vlink *l;

	if (len > NAME_LEN_MAX)
		return -ENAMETOOLONG;
	if (!name_valid(name, len))
		return -ENOENT;
	tree_lock(v);
	int e = dir_get(v, parent, &dir);
	e = e ? e : shown_lookup(v, dir, name, len, &l);
	e = e ? e : lead_get(v, l->node, &n);
	if (!e)
		attr_of(v, n, ret);
	tree_unlock(v);
	return e;
}

int volume_lookup_parent(struct volume *v, inum dir, struct inode_attr *ret)
{
	struct vnode *n;
	inum up;

	tree_lock(v);
	int e = dir_get(v, dir, &n);
	e = e ? e : vnode_parent(v, n, &up);
	e = e ? e : lead_get(v, up, &n);
	if (!e)
		attr_of(v, n, ret);
	tree_unlock(v);
	return e;
}

int volume_getattr(struct volume *v, inum ino, struct inode_attr *ret)
{
	struct vnode *n;

	tree_lock(v);
	int e = lead_get(v, ino, &n);
	if (!e)
		attr_of(v, n, ret);
	tree_unlock(v);
	return e;
}

void volume_ref(struct volume *v, inum ino)
{
	tree_lock(v);
	if (refs_add(v, ino))
		log_error("no memory for a look-up count: inode %llu may vanish early", (unsigned long long)ino);
	tree_unlock(v);
}

bool volume_is_referenced(struct volume *v, inum ino)
{
	if (ino == ROOT_INUM)
		return true; /* known from the mount on, without a look-up */
	tree_lock(v);
	bool some = refs_get(v, ino) > 0;
	tree_unlock(v);
	return some;
}

void volume_forget(struct volume *v, inum ino, uint64_t n)
{
	tree_lock(v);
	bool last = refs_drop(v, ino, n);
	struct vnode *node = last ? vnode_cached(v, ino) : NULL;
	bool orphan = node && (node->flags & VN_ORPHAN);
	tree_unlock(v);
	if (!orphan)
		return;
	/* the dirty lists stand still while somebody holds the gate exclusively */
	gate_shared(v);
	tree_lock(v);
	node = vnode_cached(v, ino);
	if (node && (node->flags & VN_ORPHAN) && !refs_get(v, ino)) {
		node->flags |= VN_DOOMED;
		vnode_dirty(v, node);
	}
	tree_unlock(v);
	gate_leave(v);
	committer_kick(v);
}

/* ---- paths ---- */
static int first_live(void *ctx, struct vlink *l)
{
	struct vlink **ret = ctx;

	if (!(l->flags & VL_LIVE))
		return 0;
	*ret = l;
	return 1;
}

/* Where a node is shown: row of the directory and name there. */
static int place_of(struct volume *v, struct vnode *n, inum *ret_parent, char *ret_name, size_t *ret_len)
{
	struct vlink *l = NULL;
	int e = nothing_unusual(v) ? vnode_links(v, n, first_live, &l) : exceptions_shown_link(v, n, &l);

	if (e)
		return e;
	if (!l)
		return -ENOENT;
	if (!nothing_unusual(v))
		return exceptions_shown_place(v, l, ret_parent, ret_name, ret_len);
	*ret_parent = l->parent;
	memcpy(ret_name, l->name, l->name_len);
	*ret_len = l->name_len;
	return 0;
}

#define PATH_DEPTH_MAX 4096
/* Under tree_mu. The path is built from its end. */
int node_path(struct volume *v, inum ino, char **ret)
{
	char name[NAME_LEN_MAX + 1], *path = calloc(1, 1);
	size_t len = 0, name_len;
	int e = path ? 0 : -ENOMEM;

	for (unsigned depth = 0; !e && ino != ROOT_INUM; depth++) {
		struct vnode *n;
		if (depth == PATH_DEPTH_MAX) {
			e = -ELOOP;
			break;
		}
		e = vnode_get(v, ino, &n);
		e = e ? e : place_of(v, n, &ino, name, &name_len);
		if (e)
			break;
		char *longer = malloc(len + name_len + 2);
		if (!longer) {
			e = -ENOMEM;
			break;
		}
		memcpy(longer, name, name_len);
		if (len)
			longer[name_len++] = '/';
		memcpy(longer + name_len, path, len + 1);
		len += name_len;
		free(path);
		path = longer;
	}
	if (e) {
		free(path);
		return e;
	}
	*ret = path;
	return 0;
}

int volume_path_of(struct volume *v, inum ino, char **ret)
{
	tree_lock(v);
	int e = node_path(v, ino, ret);
	tree_unlock(v);
	return e;
}

int volume_resolve(struct volume *v, const char *path, struct inode_attr *ret)
{
	struct inode_attr a;
	int e = volume_getattr(v, ROOT_INUM, &a);

	while (!e) {
		while (*path == '/')
			path++;
		if (!*path)
			break;
		size_t len = strcspn(path, "/");
		if (len == 2 && !memcmp(path, "..", 2))
			e = volume_lookup_parent(v, a.ino, &a);
		else if (len != 1 || *path != '.')
			e = volume_lookup(v, a.ino, path, len, &a);
		path += len;
	}
	if (!e)
		*ret = a;
	return e;
}

/* ---- listing ---- */
#define STEP 64 /* entries taken under the lock at a time: less than a millisecond */
struct entry {
	struct inode_attr attr;
	uint64_t cookie;
	uint16_t len;
	char name[NAME_LEN_MAX + 1];
};

static int add_entry(struct volume *v, struct vlink *l, const char *name, size_t len, bool with_attr, struct entry *x)
{
	x->cookie = l->row;
	x->len = (uint16_t)len;
	memcpy(x->name, name, len);
	x->name[len] = 0;
	x->attr = (struct inode_attr){.ino = v->n_groups ? exceptions_lead(v, l->node) : l->node, .mode = l->type};
	if (!with_attr)
		return 0;
	struct vnode *n;
	int e = lead_get(v, l->node, &n);
	if (!e)
		attr_of(v, n, &x->attr);
	return e;
}

static int take_step(struct volume *v, inum ino, uint64_t after, bool with_attr, struct entry *x, uint32_t *ret_n)
{
	struct vnode *dir;
	struct vlink *l[STEP];
	uint32_t n = 0, kept = 0;
	struct shown_child *c = NULL;
	int e = dir_get(v, ino, &dir);

	if (e)
		return e;
	if (nothing_unusual(v)) {
		e = vnode_children(v, dir, after, l, STEP, &n);
	} else if ((c = calloc(STEP, sizeof *c))) {
		e = exceptions_children(v, dir, after, c, STEP, &n);
	} else {
		e = -ENOMEM;
	}
	for (uint32_t i = 0; i < n && !e; i++) {
		struct vlink *k = c ? c[i].link : l[i];
		int bad = add_entry(v, k, c ? c[i].name : k->name, c ? c[i].name_len : k->name_len, with_attr, &x[kept]);
		/* a node that does not open keeps its name in the listing: its attributes fail when they are asked for */
		if (bad)
			x[kept].attr.ino = 0;
		kept++;
	}
	free(c);
	*ret_n = kept;
	return e;
}

int volume_readdir(struct volume *v, inum dir, uint64_t cookie, bool with_attr, readdir_fn *fn, void *ctx)
{
	struct entry *x = malloc(STEP * sizeof *x);
	int e = x ? 0 : -ENOMEM;

	for (bool more = true; !e && more;) {
		uint32_t n = 0;
		tree_lock(v);
		e = take_step(v, dir, cookie, with_attr, x, &n);
		tree_unlock(v);
		for (uint32_t i = 0; i < n && more && !e; i++) {
			more = fn(ctx, x[i].name, x[i].len, x[i].cookie, &x[i].attr);
			cookie = x[i].cookie;
		}
		if (n < STEP)
			break;
	}
	free(x);
	return e;
}
