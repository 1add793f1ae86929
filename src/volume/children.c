/* Listing what hangs together: the links of a node, the children of a directory. Journal and memory merged. All under tree_mu. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

/* Rows are collected first: loading them while the statement runs would use the same statement again. */
struct rows {
	uint64_t *row;
	uint32_t n, cap, max;
};

static int rows_add(struct rows *r, uint64_t row)
{
	if (r->n == r->cap) {
		uint32_t cap = r->cap ? r->cap * 2 : 64;
		uint64_t *p = reallocarray(r->row, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		r->row = p;
		r->cap = cap;
	}
	r->row[r->n++] = row;
	return 0;
}

static int collect(void *ctx, const struct link_row *l)
{
	struct rows *r = ctx;

	if (r->n == r->max)
		return 1;
	return rows_add(r, l->row);
}

static int compare_rows(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void sort_unique(struct rows *r)
{
	uint32_t n = 0;

	qsort(r->row, r->n, sizeof *r->row, compare_rows);
	for (uint32_t i = 0; i < r->n; i++)
		if (!n || r->row[n - 1] != r->row[i])
			r->row[n++] = r->row[i];
	r->n = n;
}

int vnode_links(struct volume *v, struct vnode *n, vlink_fn *fn, void *ctx)
{
	struct rows r = {.max = UINT32_MAX};
	int e = (n->flags & VN_STORED) ? journal_links_of_node(v->journal, n->row, collect, &r) : 0;

	for (struct list *i = v->dirty_links.next; i != &v->dirty_links && !e; i = i->next) {
		struct vlink *l = LIST_OF(i, struct vlink, at);
		if (l->node == n->row)
			e = rows_add(&r, l->row);
	}
	if (!e && r.n)
		sort_unique(&r);
	for (uint32_t i = 0; i < r.n && !e; i++) {
		struct vlink *l;
		e = vlink_get(v, r.row[i], &l);
		/* memory may say that it belongs to another one */
		e = e || l->node != n->row ? e : fn(ctx, l);
	}
	free(r.row);
	return e < 0 ? e : 0;
}

/* The first of what the journal has after `after`, and of the directory's dirty links; beyond the last row that the journal gave
 * (if it was cut) nothing of the dirty ones may be listed yet. */
static int child_rows(struct volume *v, struct vnode *dir, uint64_t after, uint32_t max, struct rows *r, uint64_t *ret_last)
{
	int e = 0;

	r->max = max;
	if (dir->flags & VN_STORED)
		e = journal_links_of_parent(v->journal, dir->row, after, collect, r);
	if (e)
		return e;
	uint64_t last = r->n == max ? r->row[r->n - 1] : UINT64_MAX;
	for (struct list *i = dir->dirty_children.next; i != &dir->dirty_children && !e; i = i->next) {
		struct vlink *l = LIST_OF(i, struct vlink, at_parent);
		if (l->row > after && l->row <= last)
			e = rows_add(r, l->row);
	}
	if (!e && r->n)
		sort_unique(r);
	*ret_last = last;
	return e;
}

int vnode_children(struct volume *v, struct vnode *dir, uint64_t after, struct vlink **ret, uint32_t max, uint32_t *ret_n)
{
	uint32_t n = 0;

	while (n < max) {
		struct rows r = {0};
		uint64_t last = 0;
		int e = child_rows(v, dir, after, max, &r, &last);
		for (uint32_t i = 0; i < r.n && n < max && !e; i++) {
			struct vlink *l;
			e = vlink_get(v, r.row[i], &l);
			if (!e && (l->flags & VL_LIVE) && l->parent == dir->row)
				ret[n++] = l;
		}
		free(r.row);
		if (e)
			return e;
		if (last == UINT64_MAX)
			break;
		after = last; /* rows that moved or died in memory thinned this step out: go on */
	}
	*ret_n = n;
	return 0;
}

int vnode_has_children(struct volume *v, struct vnode *dir, bool *ret)
{
	struct vlink *l;
	uint32_t n;
	int e = vnode_children(v, dir, 0, &l, 1, &n);

	if (!e)
		*ret = n > 0;
	return e;
}

static int first_live(void *ctx, struct vlink *l)
{
	struct vlink **ret = ctx;

	if (!(l->flags & VL_LIVE))
		return 0;
	*ret = l;
	return 1;
}

int vnode_parent(struct volume *v, struct vnode *n, inum *ret)
{
	struct vlink *l = NULL;

	if (n->row == ROOT_INUM) {
		*ret = ROOT_INUM;
		return 0;
	}
	if (n->dir_parent && nothing_unusual(v)) {
		*ret = n->dir_parent;
		return 0;
	}
	int e = nothing_unusual(v) ? vnode_links(v, n, first_live, &l) : exceptions_shown_link(v, n, &l);
	if (e)
		return e;
	if (!l)
		return -ENOENT;
	if (nothing_unusual(v)) {
		n->dir_parent = *ret = l->parent;
		return 0;
	}
	char name[NAME_LEN_MAX + 1];
	size_t len;
	return exceptions_shown_place(v, l, ret, name, &len);
}

/* ---- sealed names of exception rows ---- */
static const char name_aad[] = "twofold shown name";

int name_seal(struct volume *v, const void *name, size_t len, struct buf *out)
{
	return record_seal(v->keys, name_aad, sizeof name_aad, name, len, out);
}

int name_open(struct volume *v, const void *sealed, size_t len, char *ret_name, size_t *ret_len)
{
	struct buf plain = {0};
	int e = record_open(v->keys, name_aad, sizeof name_aad, sealed, len, &plain);

	if (!e && plain.len > NAME_LEN_MAX)
		e = -EUCLEAN;
	if (!e) {
		memcpy(ret_name, plain.p, plain.len);
		ret_name[plain.len] = 0;
		*ret_len = plain.len;
	}
	buf_fini(&plain);
	return e;
}
