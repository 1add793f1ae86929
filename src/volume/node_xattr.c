/* Extended attributes, POSIX ACLs among them. The kernel checks who may. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "internal.h"

static bool is_acl(const char *name) { return !strcmp(name, "system.posix_acl_access") || !strcmp(name, "system.posix_acl_default"); }

static int node(struct volume *v, inum ino, struct vnode **ret)
{
	int e = vnode_get(v, v->n_groups ? exceptions_lead(v, ino) : ino, ret);

	if (e == -ENOENT || (!e && (!(*ret)->type || ((*ret)->flags & VN_DOOMED))))
		return -ESTALE;
	return e;
}

int volume_getxattr(struct volume *v, inum ino, const char *name, void *buf, size_t size, size_t *ret_len)
{
	struct vnode *n;

	tree_lock(v);
	int e = node(v, ino, &n);
	if (!e) {
		const struct xattr *x = n->attrs.n_xattr ? attrs_find(&n->attrs, name) : NULL;
		if (!x) {
			e = -ENODATA;
		} else if (size && size < x->value_len) {
			e = -ERANGE;
		} else {
			if (size)
				memcpy(buf, x->value, x->value_len);
			*ret_len = x->value_len;
		}
	}
	tree_unlock(v);
	return e;
}

static int set(struct volume *v, struct vnode *n, const char *name, const void *value, size_t len, int flags, const struct caller *c)
{
	bool there = n->attrs.n_xattr && attrs_find(&n->attrs, name);
	int e = 0;

	if ((flags & XATTR_CREATE) && there)
		return -EEXIST;
	if ((flags & XATTR_REPLACE) && !there)
		return -ENODATA;
	if (is_acl(name)) {
		e = acl_set(&n->attrs, name, value, len);
		if (!e && !strcmp(name, "system.posix_acl_access") && (n->attrs.mode & S_ISGID) && !c->in_group)
			n->attrs.mode &= ~(uint32_t)S_ISGID;
	} else {
		e = attrs_set(&n->attrs, name, value, len);
	}
	e = e ? e : slot_change(&n->attrs_slot);
	return e ? e : node_ctime(v, n);
}

int volume_setxattr(struct volume *v, inum ino, const char *name, const void *value, size_t len, int flags, const struct caller *c)
{
	struct vnode *n;
	size_t name_len = strlen(name);

	if (name_len < 1 || name_len > NAME_LEN_MAX)
		return -ERANGE;
	if (len > XATTR_VALUE_MAX)
		return -E2BIG;
	int e = change_begin(v);
	if (e)
		return e;
	if (!(e = space_check(v))) {
		tree_lock(v);
		e = node(v, ino, &n);
		if (!e && !nothing_unusual(v))
			e = writedown_node(v, n);
		struct vnode *heir = !e && n->flags & VN_SUPERSEDED ? superseded_heir(v, n) : NULL;
		if (heir)
			e = set(v, heir, name, value, len, flags, c);
		e = e ? e : set(v, n, name, value, len, flags, c);
		tree_unlock(v);
	}
	change_end(v);
	committer_kick(v);
	return e;
}

static int take_away(struct volume *v, struct vnode *n, const char *name)
{
	int e = attrs_remove(&n->attrs, name);

	e = e ? e : slot_change(&n->attrs_slot);
	return e ? e : node_ctime(v, n);
}

int volume_removexattr(struct volume *v, inum ino, const char *name)
{
	struct vnode *n;
	int e = change_begin(v);

	if (e)
		return e;
	tree_lock(v);
	e = node(v, ino, &n);
	if (!e && !nothing_unusual(v))
		e = writedown_node(v, n);
	struct vnode *heir = !e && n->flags & VN_SUPERSEDED ? superseded_heir(v, n) : NULL;
	if (heir)
		e = take_away(v, heir, name);
	e = e ? e : take_away(v, n, name);
	tree_unlock(v);
	change_end(v);
	committer_kick(v);
	return e;
}

int volume_listxattr(struct volume *v, inum ino, char *buf, size_t size, size_t *ret_len)
{
	struct vnode *n;
	size_t len = 0;

	tree_lock(v);
	int e = node(v, ino, &n);
	for (uint16_t i = 0; !e && i < n->attrs.n_xattr; i++) {
		size_t one = strlen(n->attrs.xattr[i].name) + 1;
		if (size && len + one > size)
			e = -ERANGE;
		else if (size)
			memcpy(buf + len, n->attrs.xattr[i].name, one);
		len += one;
	}
	if (!e)
		*ret_len = len;
	tree_unlock(v);
	return e;
}
