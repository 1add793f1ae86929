/* Links in memory: hashes, loading, moving, living and dying, and what follows from it for counts. All under tree_mu. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

#define HASH_BITS 16
static uint32_t row_bucket(uint64_t row) { return (uint32_t)((row * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - HASH_BITS)); }
static uint32_t bytes_bucket(const uint8_t *b) { return le32_load(b) >> (32 - HASH_BITS); }

static void deletion_fini(struct vdeletion *d)
{
	slot_fini(&d->slot);
	vector_fini(&d->places_seen);
	vector_fini(&d->contents_seen);
}

static void vlink_free(struct volume *v, struct vlink *l)
{
	slot_fini(&l->place);
	for (uint32_t i = 0; i < l->n_deletion; i++)
		deletion_fini(&l->deletion[i]);
	free(l->deletion);
	free(l->name);
	slab_put(v->link_slab, l);
}

static void tag_add(struct volume *v, struct vlink *l)
{
	struct vlink **b = &v->links_by_tag[bytes_bucket(l->tag)];

	l->next_tag = *b;
	*b = l;
}

static void tag_del(struct volume *v, struct vlink *l)
{
	struct vlink **p = &v->links_by_tag[bytes_bucket(l->tag)];

	while (*p != l)
		p = &(*p)->next_tag;
	*p = l->next_tag;
}

static void parent_add(struct volume *v, struct vlink *l)
{
	struct vnode *dir = vnode_cached(v, l->parent);

	if (dir)
		list_add(&dir->dirty_children, &l->at_parent);
	else
		v->unparented++;
}

static void parent_del(struct volume *v, struct vlink *l)
{
	if (list_linked(&l->at_parent))
		list_del(&l->at_parent);
	else
		v->unparented--;
}

static bool in_parent_list(const struct vlink *l) { return (l->flags & VL_DIRTY) && (l->flags & VL_LIVE); }

static void insert(struct volume *v, struct vlink *l)
{
	struct vlink **by_row = &v->links_by_row[row_bucket(l->row)], **by_id = &v->links_by_id[bytes_bucket(l->id.b)];

	l->next_row = *by_row;
	*by_row = l;
	l->next_id = *by_id;
	*by_id = l;
	list_init(&l->at);
	list_init(&l->at_parent);
	list_add(&v->clean_links, &l->at);
	v->n_links++;
	if (l->flags & VL_LIVE)
		tag_add(v, l);
}

void vlink_dirty(struct volume *v, struct vlink *l)
{
	if (l->flags & VL_DIRTY)
		return;
	l->flags |= VL_DIRTY;
	list_del(&l->at);
	list_add(&v->dirty_links, &l->at);
	v->n_dirty_links++;
	if (l->flags & VL_LIVE)
		parent_add(v, l);
}

/* Commit has written it. */
void vlink_clean(struct volume *v, struct vlink *l)
{
	if (!(l->flags & VL_DIRTY))
		return;
	if (l->flags & VL_LIVE)
		parent_del(v, l);
	l->flags &= ~(unsigned)VL_DIRTY;
	list_del(&l->at);
	list_add(&v->clean_links, &l->at);
	v->n_dirty_links--;
}

void vlink_drop(struct volume *v, struct vlink *l)
{
	struct vlink **p = &v->links_by_row[row_bucket(l->row)];

	while (*p != l)
		p = &(*p)->next_row;
	*p = l->next_row;
	p = &v->links_by_id[bytes_bucket(l->id.b)];
	while (*p != l)
		p = &(*p)->next_id;
	*p = l->next_id;
	if (l->flags & VL_LIVE) {
		tag_del(v, l);
		struct vnode *dir = vnode_cached(v, l->parent);
		if (dir)
			dir->flags &= ~(unsigned)VN_COMPLETE;
	}
	if (in_parent_list(l))
		parent_del(v, l);
	if (l->flags & VL_DIRTY)
		v->n_dirty_links--;
	list_del(&l->at);
	v->n_links--;
	vlink_free(v, l);
}

static struct vlink *cached(struct volume *v, uint64_t row)
{
	struct vlink *l = v->links_by_row[row_bucket(row)];

	while (l && l->row != row)
		l = l->next_row;
	return l;
}

static void touch(struct volume *v, struct vlink *l)
{
	if (l->flags & VL_DIRTY)
		return;
	list_del(&l->at);
	list_add(&v->clean_links, &l->at);
}

static int damaged(uint64_t row, int e)
{
	if (e == -EBADMSG || e == -EUCLEAN)
		log_error("journal.db: a record of a name (row %llu) %s", (unsigned long long)row,
			e == -EBADMSG ? "does not authenticate" : "is malformed or belongs elsewhere");
	return e;
}

int vlink_set_name(struct vlink *l, const void *name, size_t len)
{
	char *copy = malloc(len + 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, len);
	copy[len] = 0;
	free(l->name);
	l->name = copy;
	l->name_len = (uint16_t)len;
	return 0;
}

bool place_is_of(const struct volume *v, const struct part *p, const struct link_row *r)
{
	uint8_t tag[16];

	if (p->kind != PART_PLACE || !id_eq(&p->id, &r->id))
		return false;
	keyring_index_tag(v->keys, &p->place.parent, p->place.name, p->place.name_len, tag);
	return !memcmp(tag, r->tag, sizeof tag);
}

static int take_place(struct volume *v, struct vlink *l, const struct link_row *r)
{
	struct part p;
	int e = part_parse(v->keys, r->place.p, r->place.len, true, &p);

	if (e)
		return e;
	if (!place_is_of(v, &p, r)) {
		part_fini(&p);
		return -EUCLEAN;
	}
	e = vlink_set_name(l, p.place.name, p.place.name_len);
	l->node_id = p.place.node;
	l->parent_id = p.place.parent;
	l->parent_before = p.place.parent_before;
	l->type = p.place.type;
	l->rdev = p.place.rdev;
	l->place.stamp = p.stamp;
	l->place.stored = p.stamp.dot;
	l->place.vector = p.vector;
	p.vector = (struct vector){0};
	part_fini(&p);
	return e;
}

/* A link that is not cached, from its row. */
static int from_row(struct volume *v, const struct link_row *r, struct vlink **ret)
{
	struct vlink *l = slab_get(v->link_slab);
	int e = 0;

	if (!l)
		return -ENOMEM;
	l->row = r->row;
	l->id = r->id;
	l->node = r->node;
	l->parent = r->parent;
	memcpy(l->tag, r->tag, sizeof l->tag);
	l->flags = VL_STORED | (r->live ? VL_LIVE | VL_LIVE_STORED : 0) | (r->deletions ? 0 : VL_DELETIONS_LOADED);
	l->n_deletion = 0;
	if (r->place.p)
		e = take_place(v, l, r);
	else if (!(e = vlink_set_name(l, "", 0)) && r->live)
		e = -EUCLEAN;
	if (e) {
		vlink_free(v, l);
		return damaged(r->row, e);
	}
	insert(v, l);
	struct vnode *copy;
	if (!r->place.p && l->node && !vnode_get(v, l->node, &copy)) {
		/* an untouched conflict copy: its node says what a place would */
		l->node_id = copy->id;
		l->type = copy->type;
	}
	*ret = l;
	return 0;
}

int vlink_get(struct volume *v, uint64_t row, struct vlink **ret)
{
	struct vlink *l = cached(v, row);
	struct link_row r;

	if (l) {
		touch(v, l);
		*ret = l;
		return 0;
	}
	int e = journal_link_get(v->journal, row, &r);
	return e ? e : from_row(v, &r, ret);
}

int vlink_by_id(struct volume *v, const struct id *id, struct vlink **ret)
{
	uint64_t row;

	for (struct vlink *l = v->links_by_id[bytes_bucket(id->b)]; l; l = l->next_id)
		if (id_eq(&l->id, id)) {
			touch(v, l);
			*ret = l;
			return 0;
		}
	int e = journal_link_by_id(v->journal, id, &row);
	return e ? e : vlink_get(v, row, ret);
}

struct find {
	struct volume *v;
	struct vnode *dir;
	const void *name;
	size_t len;
	bool skip_hidden;
	struct vlink *best;
	uint32_t found;
};

static void consider(struct find *f, struct vlink *l)
{
	if (l->parent != f->dir->row || l->name_len != f->len || memcmp(l->name, f->name, f->len))
		return;
	if (f->skip_hidden && exceptions_hide(f->v, l->row))
		return;
	f->found++;
	if (!f->best || stamp_cmp(l->place.stamp, f->best->place.stamp) > 0)
		f->best = l;
}

static int find_row(void *ctx, const struct link_row *r)
{
	struct find *f = ctx;
	struct vlink *l;

	if (cached(f->v, r->row))
		return 0; /* memory says where it is; it was considered there */
	int e = from_row(f->v, r, &l);
	if (e)
		return e;
	/* what was opened must be what was asked for (design-store 1) */
	if (!id_eq(&l->parent_id, &f->dir->id) || l->parent != f->dir->row)
		return damaged(r->row, -EUCLEAN);
	consider(f, l);
	return 0;
}

static int find_recorded(struct volume *v, struct vnode *dir, const void *name, size_t len, bool skip_hidden, struct vlink **ret,
	bool *ret_more)
{
	struct find f = {.v = v, .dir = dir, .name = name, .len = len, .skip_hidden = skip_hidden};
	uint8_t tag[16];

	keyring_index_tag(v->keys, &dir->id, name, len, tag);
	for (struct vlink *l = v->links_by_tag[bytes_bucket(tag)]; l; l = l->next_tag)
		if (!memcmp(l->tag, tag, sizeof tag))
			consider(&f, l);
	bool enough = (dir->flags & VN_COMPLETE) || (f.best && !ret_more && nothing_unusual(v));
	if (!enough) {
		int e = journal_links_by_tag(v->journal, tag, find_row, &f);
		if (e)
			return e;
	}
	if (!f.best)
		return -ENOENT;
	touch(v, f.best);
	*ret = f.best;
	if (ret_more)
		*ret_more = f.found > 1;
	return 0;
}

int vlink_recorded(struct volume *v, struct vnode *dir, const void *name, size_t len, struct vlink **ret, bool *ret_more)
{
	return find_recorded(v, dir, name, len, false, ret, ret_more);
}

struct named {
	uint64_t *row;
	uint32_t n, cap;
};

static int named_add(struct named *x, uint64_t row)
{
	if (x->n == x->cap) {
		uint32_t cap = x->cap ? x->cap * 2 : 8;
		uint64_t *p = reallocarray(x->row, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		x->row = p;
		x->cap = cap;
	}
	x->row[x->n++] = row;
	return 0;
}

static int named_row(void *ctx, const struct link_row *r) { return named_add(ctx, r->row); }

int vlinks_named(struct volume *v, struct vnode *dir, const void *name, size_t len, vlink_fn *fn, void *ctx)
{
	struct named x = {0};
	uint8_t tag[16];
	int e = 0;

	keyring_index_tag(v->keys, &dir->id, name, len, tag);
	for (struct vlink *l = v->links_by_tag[bytes_bucket(tag)]; l && !e; l = l->next_tag)
		if (!memcmp(l->tag, tag, sizeof tag))
			e = named_add(&x, l->row);
	uint32_t in_memory = x.n;
	if (!e && (dir->flags & VN_STORED))
		e = journal_links_by_tag(v->journal, tag, named_row, &x);
	for (uint32_t i = 0; i < x.n && !e; i++) {
		struct vlink *l = cached(v, x.row[i]);
		if (i >= in_memory && l)
			continue; /* memory says where it is */
		e = l ? 0 : vlink_get(v, x.row[i], &l);
		if (!e && (l->flags & VL_LIVE) && l->parent == dir->row && l->name_len == len && !memcmp(l->name, name, len))
			e = fn(ctx, l);
		if (e == 1) {
			e = 0;
			break;
		}
	}
	free(x.row);
	return e;
}

int shown_lookup(struct volume *v, struct vnode *dir, const void *name, size_t len, struct vlink **ret)
{
	if (nothing_unusual(v))
		return find_recorded(v, dir, name, len, false, ret, NULL);
	int e = exceptions_lookup(v, dir, name, len, ret);
	return e == -ENOENT ? find_recorded(v, dir, name, len, true, ret, NULL) : e;
}

/* What a link that lives adds to its node's and its parent's counts. */
static void count(struct volume *v, struct vnode *node, struct vnode *parent, int by)
{
	node->links = (uint32_t)((int)node->links + by);
	if (node->type == S_IFDIR) {
		if (by > 0 && parent->type == S_IFDIR && parent->nlink < 2)
			parent->nlink = 2; /* it was removed, empty */
		parent->nlink = (uint32_t)((int)parent->nlink + by);
		vnode_dirty(v, parent);
	} else {
		node->nlink = (uint32_t)((int)node->nlink + by);
	}
	vnode_dirty(v, node);
}

int vlink_new(struct volume *v, const struct id *id, struct vnode *node, struct vnode *parent, const void *name, size_t len, struct vlink **ret)
{
	struct vlink *l = slab_get(v->link_slab);

	if (!l)
		return -ENOMEM;
	if (vlink_set_name(l, name, len)) {
		slab_put(v->link_slab, l);
		return -ENOMEM;
	}
	if (id)
		l->id = *id;
	else
		env_random(v->env, l->id.b, ID_LEN);
	l->row = v->next_link++;
	l->node = node->row;
	l->node_id = node->id;
	l->parent = parent->row;
	l->parent_id = parent->id;
	l->parent_before = parent->id;
	l->type = node->type;
	l->rdev = node->attrs.rdev;
	l->flags = VL_LIVE | VL_DELETIONS_LOADED;
	l->place.dirty = true;
	keyring_index_tag(v->keys, &parent->id, name, len, l->tag);
	insert(v, l);
	vlink_dirty(v, l);
	count(v, node, parent, 1);
	if (node->type == S_IFDIR)
		node->dir_parent = parent->row;
	*ret = l;
	return 0;
}

int vlink_refer(struct volume *v, const struct id *id, struct vlink **ret)
{
	int e = vlink_by_id(v, id, ret);

	if (e != -ENOENT)
		return e;
	struct vlink *l = slab_get(v->link_slab);
	if (!l || vlink_set_name(l, "", 0)) {
		slab_put(v->link_slab, l);
		return -ENOMEM;
	}
	l->id = *id;
	l->row = v->next_link++;
	l->flags = VL_DELETIONS_LOADED;
	insert(v, l);
	vlink_dirty(v, l);
	*ret = l;
	return 0;
}

int vlink_move(struct volume *v, struct vlink *l, struct vnode *parent, const void *name, size_t len)
{
	struct vnode *old = NULL;
	bool dir = l->type == S_IFDIR && (l->flags & VL_LIVE), other = l->parent != parent->row;
	int e = dir && other ? vnode_get(v, l->parent, &old) : 0;

	if (!e)
		e = vlink_set_name(l, name, len);
	if (e)
		return e;
	vlink_dirty(v, l);
	if (l->flags & VL_LIVE) {
		tag_del(v, l);
		parent_del(v, l);
	}
	if (other) {
		l->parent = parent->row;
		l->parent_id = parent->id;
	}
	keyring_index_tag(v->keys, &parent->id, name, len, l->tag);
	if (l->flags & VL_LIVE) {
		tag_add(v, l);
		parent_add(v, l);
	}
	if (dir && other) {
		old->nlink--;
		parent->nlink = parent->type == S_IFDIR && parent->nlink < 2 ? 3 : parent->nlink + 1;
		vnode_dirty(v, old);
		vnode_dirty(v, parent);
	}
	struct vnode *node = l->type == S_IFDIR ? vnode_cached(v, l->node) : NULL;
	if (node)
		node->dir_parent = nothing_unusual(v) ? parent->row : 0;
	return 0;
}

int vlink_set_live(struct volume *v, struct vlink *l, bool live)
{
	struct vnode *node, *parent;

	if (live == !!(l->flags & VL_LIVE))
		return 0;
	int e = vnode_get(v, l->node, &node);
	e = e ? e : vnode_get(v, l->parent, &parent);
	if (e)
		return e;
	vlink_dirty(v, l);
	if (live) {
		l->flags |= VL_LIVE;
		tag_add(v, l);
		parent_add(v, l);
	} else {
		tag_del(v, l);
		parent_del(v, l);
		l->flags &= ~(unsigned)VL_LIVE;
	}
	count(v, node, parent, live ? 1 : -1);
	if (node->type == S_IFDIR)
		node->dir_parent = live && nothing_unusual(v) ? parent->row : 0;
	return 0;
}

int vlink_deletion_add(struct vlink *l, struct vdeletion **ret)
{
	struct vdeletion *d = reallocarray(l->deletion, l->n_deletion + 1, sizeof *d);

	if (!d)
		return -ENOMEM;
	l->deletion = d;
	*ret = &d[l->n_deletion++];
	**ret = (struct vdeletion){0};
	return 0;
}

struct deletion_load {
	struct volume *v;
	struct vlink *l;
};

static int load_deletion(void *ctx, const struct extra_row *row)
{
	struct deletion_load *x = ctx;
	struct vdeletion *d;
	struct part p;
	int e = part_parse(x->v->keys, row->record.p, row->record.len, true, &p);

	if (e)
		return damaged(x->l->row, e);
	if (p.kind != PART_DELETION || !id_eq(&p.id, &x->l->id)) {
		part_fini(&p);
		return damaged(x->l->row, -EUCLEAN);
	}
	if (!(e = vlink_deletion_add(x->l, &d))) {
		d->slot.stamp = p.stamp;
		d->slot.stored = p.stamp.dot;
		d->slot.vector = p.vector;
		d->places_seen = p.deletion.places_seen;
		d->contents_seen = p.deletion.contents_seen;
		p.vector = p.deletion.places_seen = p.deletion.contents_seen = (struct vector){0};
	}
	part_fini(&p);
	return e;
}

int vlink_deletions(struct volume *v, struct vlink *l)
{
	struct deletion_load x = {v, l};

	if (l->flags & VL_DELETIONS_LOADED)
		return 0;
	int e = journal_deletions(v->journal, l->row, load_deletion, &x);
	if (e) {
		for (uint32_t i = 0; i < l->n_deletion; i++)
			deletion_fini(&l->deletion[i]);
		l->n_deletion = 0;
		return e;
	}
	l->flags |= VL_DELETIONS_LOADED;
	return 0;
}

bool vlink_covered(const struct vlink *l)
{
	for (uint32_t i = 0; i < l->n_deletion; i++)
		if (!l->deletion[i].gone && vector_has(&l->deletion[i].places_seen, l->place.stamp.dot))
			return true;
	return false;
}
