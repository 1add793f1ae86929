/* See near.h. */
#include "near.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- by use ---- */
void near_note(struct volume *v, const struct vnode *n, enum near_use use)
{
	struct recent *r = v->recent;
	struct recent was = {n->row, use == NEAR_READ};
	uint32_t i = 0;

	if (n->size < NEAR_MIN_BYTES || (r[0].node == n->row && (r[0].read || use == NEAR_WRITTEN)))
		return;
	while (i < RECENT_FILES - 1 && r[i].node != n->row)
		i++;
	if (r[i].node == n->row)
		was.read |= r[i].read;
	memmove(r + 1, r, i * sizeof *r);
	r[0] = was;
}

/* ---- by name ---- */
struct found {
	struct volume *v;
	const struct vnode *n; /* the file that is to be sent */
	struct vnode *dir;
	inum node[NEAR_MAX];
	uint32_t count;
	bool temporary; /* its name says that it will get another one */
};

static bool add(struct found *f, inum node)
{
	for (uint32_t i = 0; i < f->count; i++)
		if (f->node[i] == node)
			return false;
	if (f->count == NEAR_MAX || node == f->n->row)
		return false;
	f->node[f->count++] = node;
	return true;
}

static int try_name(struct found *f, const char *name, size_t len, const char *suffix)
{
	char full[NAME_LEN_MAX + 1];
	size_t more = strlen(suffix);
	struct vnode *n;
	struct vlink *l;

	if (!len || len + more > NAME_LEN_MAX)
		return 0;
	memcpy(full, name, len);
	memcpy(full + len, suffix, more);
	if (!name_valid(full, len + more))
		return 0;
	int e = shown_lookup(f->v, f->dir, full, len + more, &l);
	e = e ? e : vnode_get(f->v, l->node, &n);
	if (!e && n->type == S_IFREG && n->size >= NEAR_MIN_BYTES)
		add(f, n->row);
	return e == -ENOENT ? 0 : e;
}

static size_t without_extension(const char *name, size_t len)
{
	size_t at = len;

	while (at > 1 && name[at - 1] != '.')
		at--;
	return at > 1 ? at - 1 : 0;
}

/* name is a temporary one, or its older content was put aside. */
static int by_name(struct found *f, const char *name, size_t len)
{
	static const char *const aside[] = {"~", ".bak", ".orig", ".old", ".new", ".tmp"};
	char last = name[len - 1];
	int e = last == '~' || last == '#' ? try_name(f, name, len - 1, "") : 0;

	e = e ? e : try_name(f, name, without_extension(name, len), "");
	if (!e && len > 1 && (name[0] == '.' || name[0] == '#' || name[0] == '~')) {
		/* .NAME.x1y2, .NAME, #NAME#, .NAME~ */
		e = try_name(f, name + 1, without_extension(name + 1, len - 1), "");
		e = e ? e : try_name(f, name + 1, len - 1, "");
		e = e ? e : try_name(f, name + 1, len - 2, "");
	}
	for (uint32_t i = 0; !e && i < sizeof aside / sizeof *aside; i++)
		e = try_name(f, name, len, aside[i]);
	return e;
}

/* A name of a file, copied: nothing may be looked up while links are listed. */
struct named {
	inum dir;
	size_t len;
	char name[NAME_LEN_MAX + 1];
};

static int first_link(void *ctx, struct vlink *l)
{
	struct named *x = ctx;

	if (!(l->flags & VL_LIVE) || !l->name_len)
		return 0;
	x->dir = l->parent;
	x->len = l->name_len;
	memcpy(x->name, l->name, x->len);
	return 1;
}

static bool is_temporary(const char *name, size_t len)
{
	return strchr(".~#", name[0]) || (len > 4 && !memcmp(name + len - 4, ".tmp", 4));
}

static int by_its_name(struct found *f, struct vnode *n)
{
	struct named x = {0};
	int e = vnode_links(f->v, n, first_link, &x);

	if (e || !x.len)
		return e < 0 ? e : 0;
	f->temporary = is_temporary(x.name, x.len);
	e = vnode_get(f->v, x.dir, &f->dir);
	return e ? e : by_name(f, x.name, x.len);
}

inum near_heir(struct volume *v, struct vnode *dir, const struct vnode *n, const char *name, size_t len)
{
	struct found f = {.v = v, .n = n, .dir = dir};

	if (n->type != S_IFREG || n->size < NEAR_MIN_BYTES || v->alone || by_name(&f, name, len) || !f.count)
		return 0;
	return f.node[0];
}

/* ---- both ---- */
static void by_use(struct found *f)
{
	for (uint32_t i = 0; i < RECENT_FILES && f->v->recent[i].node; i++) {
		const struct recent *r = &f->v->recent[i];
		struct vnode *n = vnode_cached(f->v, r->node);
		/* what was only written is worth a look where it is as long, or the kernel may have had it to read: otherwise every tree that is copied here would cost that */
		if (n && n->type == S_IFREG && (r->read || f->temporary || n->size == f->n->size))
			add(f, n->row);
	}
}

int near_contents(struct volume *v, const struct id *node, const struct vector *has, struct held_content ret[static NEAR_MAX], uint32_t *ret_n)
{
	struct found f = {.v = v};
	struct vnode *n;
	struct base_row b;
	struct part p;

	*ret_n = 0;
	tree_lock(v);
	int e = vnode_by_id(v, node, &n);
	if (!e && n->size >= NEAR_MIN_BYTES) {
		f.n = n;
		n->pins++;
		e = by_its_name(&f, n);
		e = e == -ENOENT ? 0 : e;
		by_use(&f);
		n->pins--;
	}
	for (uint32_t i = 0; i < f.count && !e; i++) {
		struct vnode *c;
		if ((e = vnode_get(v, f.node[i], &c)) == 0 && vector_has(has, c->content_slot.stamp.dot) && c->content_slot.stamp.dot.counter)
			ret[(*ret_n)++] = (struct held_content){.node = c->id, .dot = c->content_slot.stamp.dot};
		e = e == -ENOENT ? 0 : e;
	}
	/* the one that is kept for it, though the peer did not think of it */
	if (!e && f.n && *ret_n < NEAR_MAX && !journal_base_get(v->journal, n->row, &b)) {
		struct vnode *c;
		inum row = b.base_node;
		if (!part_parse(v->keys, b.record.p, b.record.len, false, &p)) {
			struct dot d = p.stamp.dot;
			part_fini(&p);
			if (vector_has(has, d) && !vnode_get(v, row, &c))
				ret[(*ret_n)++] = (struct held_content){.node = c->id, .dot = d};
		}
	}
	tree_unlock(v);
	return e == -ENOENT ? 0 : e;
}
