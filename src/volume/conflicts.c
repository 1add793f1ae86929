/* The list of what conflicts left: copies of contents, and names that are shown otherwise than recorded. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exceptions.h"

struct conflict {
	char *shown, *of; /* owned */
	struct stamp stamp;
	char replica[33];
};

static void name_of(struct volume *v, uint64_t replica, char ret[static 33])
{
	snprintf(ret, 33, "%016llx", (unsigned long long)replica);
	if (replica == v->self)
		memcpy(ret, v->header.name, sizeof v->header.name);
	for (uint32_t i = 0; i < v->n_members; i++)
		if (v->member_replicas[i] == replica)
			memcpy(ret, v->members[i].name, 33);
}

static int path_in(struct volume *v, inum dir, const char *name, size_t len, char **ret)
{
	char *up;
	int e = node_path(v, dir, &up);

	if (e)
		return e;
	int n = asprintf(ret, "%s%s%.*s", up, *up ? "/" : "", (int)len, name);
	free(up);
	return n < 0 ? -ENOMEM : 0;
}

/* 1: nothing to say of it. */
static int describe(struct volume *v, const struct exc *x, struct conflict *ret)
{
	struct vlink *l;
	struct vnode *n;
	int e = !x->parent ? 1 : vlink_get(v, x->link, &l);

	e = e ? e : vnode_get(v, l->node, &n);
	if (e)
		return e == -ENOENT ? 1 : e;
	bool copy = link_is_derived(v, l);
	ret->stamp = copy ? n->content_slot.stamp : l->place.stamp;
	name_of(v, ret->stamp.dot.replica, ret->replica);
	if ((e = path_in(v, x->parent, x->name, x->name_len, &ret->shown)))
		return e == -ENOENT ? 1 : e;
	e = copy ? node_path(v, n->derived, &ret->of) : path_in(v, l->parent, l->name, l->name_len, &ret->of);
	if (e == -ENOENT)
		e = (ret->of = strdup("")) ? 0 : -ENOMEM;
	return e;
}

static void conflicts_free(struct conflict *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		free(c[i].shown);
		free(c[i].of);
	}
	free(c);
}

int volume_conflicts(struct volume *v, conflict_fn *fn, void *ctx)
{
	uint32_t n = 0;
	int e = 0;

	tree_lock(v);
	struct conflict *c = calloc(v->n_exceptions + 1, sizeof *c);
	if (!c)
		e = -ENOMEM;
	for (struct list *i = v->exceptions->all.next; i != &v->exceptions->all && !e; i = i->next) {
		e = describe(v, LIST_OF(i, struct exc, at), &c[n]);
		if (!e)
			n++;
		e = e == 1 ? 0 : e;
	}
	tree_unlock(v);
	for (uint32_t i = 0; i < n && !e; i++)
		if (!fn(ctx, c[i].shown, c[i].of, c[i].stamp, c[i].replica))
			break;
	conflicts_free(c, n);
	return e;
}
