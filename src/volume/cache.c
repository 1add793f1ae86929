/* Nodes in memory: hashes, least recently used lists, loading from journal.db. All under tree_mu. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "heal.h"
#include "internal.h"

#define HASH_BITS 16
#define CACHE_NODES 32768 /* clean ones kept: about 30 MiB */
#define CACHE_LINKS 49152 /* about 20 MiB */

static uint32_t row_bucket(uint64_t row) { return (uint32_t)((row * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - HASH_BITS)); }
static uint32_t id_bucket(const struct id *id) { return le32_load(id->b) >> (32 - HASH_BITS); }

void slot_fini(struct slot *s)
{
	vector_fini(&s->vector);
	buf_fini(&s->arrived);
	*s = (struct slot){0};
}

int cache_init(struct volume *v)
{
	v->hash_size = 1u << HASH_BITS;
	v->nodes_by_row = calloc(v->hash_size, sizeof *v->nodes_by_row);
	v->nodes_by_id = calloc(v->hash_size, sizeof *v->nodes_by_id);
	v->links_by_row = calloc(v->hash_size, sizeof *v->links_by_row);
	v->links_by_id = calloc(v->hash_size, sizeof *v->links_by_id);
	v->links_by_tag = calloc(v->hash_size, sizeof *v->links_by_tag);
	list_init(&v->clean_nodes);
	list_init(&v->dirty_nodes);
	list_init(&v->clean_links);
	list_init(&v->dirty_links);
	v->node_slab = slab_new(sizeof(struct vnode));
	v->link_slab = slab_new(sizeof(struct vlink));
	if (!v->node_slab || !v->link_slab || !v->nodes_by_row || !v->nodes_by_id || !v->links_by_row || !v->links_by_id || !v->links_by_tag)
		return -ENOMEM;
	return 0;
}

static void extra_fini(struct extra *x)
{
	slot_fini(&x->slot);
	dots_fini(&x->apart);
	content_fini(&x->content);
}

static void vnode_free(struct volume *v, struct vnode *n)
{
	filedata_free(n->data);
	attrs_fini(&n->attrs);
	slot_fini(&n->attrs_slot);
	slot_fini(&n->times_slot);
	content_fini(&n->content);
	dots_fini(&n->apart);
	slot_fini(&n->content_slot);
	for (uint32_t i = 0; i < n->n_extra; i++)
		extra_fini(&n->extra[i]);
	free(n->extra);
	filedata_snapshot_fini(&n->snapshot);
	vector_fini(&n->next_vector);
	dots_fini(&n->next_apart);
	slab_put(v->node_slab, n);
}

/* Also after a cache_init that failed. */
void cache_fini(struct volume *v)
{
	if (v->clean_nodes.next && v->links_by_tag) {
		while (!list_empty(&v->clean_links))
			vlink_drop(v, LIST_OF(v->clean_links.next, struct vlink, at));
		while (!list_empty(&v->dirty_links))
			vlink_drop(v, LIST_OF(v->dirty_links.next, struct vlink, at));
		while (!list_empty(&v->clean_nodes))
			vnode_drop(v, LIST_OF(v->clean_nodes.next, struct vnode, at));
		while (!list_empty(&v->dirty_nodes))
			vnode_drop(v, LIST_OF(v->dirty_nodes.next, struct vnode, at));
	}
	free(v->nodes_by_row);
	free(v->nodes_by_id);
	free(v->links_by_row);
	free(v->links_by_id);
	free(v->links_by_tag);
	slab_free(v->node_slab);
	slab_free(v->link_slab);
}

struct vnode *vnode_cached(struct volume *v, inum row)
{
	struct vnode *n = v->nodes_by_row[row_bucket(row)];

	while (n && n->row != row)
		n = n->next_row;
	return n;
}

static struct vnode *cached_by_id(struct volume *v, const struct id *id)
{
	struct vnode *n = v->nodes_by_id[id_bucket(id)];

	while (n && !id_eq(&n->id, id))
		n = n->next_id;
	return n;
}

void vnode_touch(struct volume *v, struct vnode *n)
{
	if (n->flags & VN_DIRTY)
		return;
	list_del(&n->at);
	list_add(&v->clean_nodes, &n->at);
}

void vnode_dirty(struct volume *v, struct vnode *n)
{
	if (n->flags & VN_DIRTY)
		return;
	n->flags |= VN_DIRTY;
	list_del(&n->at);
	list_add(&v->dirty_nodes, &n->at);
	v->n_dirty_nodes++;
}

/* Commit has written it. */
void vnode_clean(struct volume *v, struct vnode *n)
{
	if (!(n->flags & VN_DIRTY))
		return;
	n->flags &= ~(unsigned)VN_DIRTY;
	list_del(&n->at);
	list_add(&v->clean_nodes, &n->at);
	v->n_dirty_nodes--;
}

/* Dirty links whose parent was not in memory when they became dirty. */
static void adopt_dirty_children(struct volume *v, struct vnode *dir)
{
	for (struct list *i = v->dirty_links.next; v->unparented && i != &v->dirty_links; i = i->next) {
		struct vlink *l = LIST_OF(i, struct vlink, at);
		if (l->parent != dir->row || !(l->flags & VL_LIVE) || list_linked(&l->at_parent))
			continue;
		list_add(&dir->dirty_children, &l->at_parent);
		v->unparented--;
	}
}

static void insert(struct volume *v, struct vnode *n)
{
	struct vnode **by_row = &v->nodes_by_row[row_bucket(n->row)], **by_id = &v->nodes_by_id[id_bucket(&n->id)];

	n->next_row = *by_row;
	*by_row = n;
	n->next_id = *by_id;
	*by_id = n;
	list_init(&n->at);
	list_init(&n->dirty_children);
	list_add(&v->clean_nodes, &n->at);
	v->n_nodes++;
	if (v->unparented)
		adopt_dirty_children(v, n);
}

void vnode_drop(struct volume *v, struct vnode *n)
{
	struct vnode **p = &v->nodes_by_row[row_bucket(n->row)];

	while (*p != n)
		p = &(*p)->next_row;
	*p = n->next_row;
	p = &v->nodes_by_id[id_bucket(&n->id)];
	while (*p != n)
		p = &(*p)->next_id;
	*p = n->next_id;
	list_del(&n->at);
	if (n->flags & VN_DIRTY)
		v->n_dirty_nodes--;
	v->n_nodes--;
	while (!list_empty(&n->dirty_children)) {
		list_del(n->dirty_children.next);
		v->unparented++;
	}
	vnode_free(v, n);
}

static bool evictable(const struct vnode *n)
{
	return !n->pins && !(n->flags & (VN_DIRTY | VN_ORPHAN | VN_DATA_DIRTY)) && list_empty(&n->dirty_children) && n->row != ROOT_INUM;
}

void cache_trim(struct volume *v)
{
	uint32_t clean_nodes = v->n_nodes - v->n_dirty_nodes, clean_links = v->n_links - v->n_dirty_links, tries = 0;

	for (struct list *i = v->clean_links.next; clean_links > CACHE_LINKS && i != &v->clean_links && tries < 256; tries++) {
		struct vlink *l = LIST_OF(i, struct vlink, at);
		i = i->next;
		if (l->pins)
			continue;
		vlink_drop(v, l);
		clean_links--;
	}
	tries = 0;
	for (struct list *i = v->clean_nodes.next; clean_nodes > CACHE_NODES && i != &v->clean_nodes && tries < 256; tries++) {
		struct vnode *n = LIST_OF(i, struct vnode, at);
		i = i->next;
		if (!evictable(n))
			continue;
		vnode_drop(v, n);
		clean_nodes--;
	}
}

/* ---- loading ---- */
static int damaged(inum row, const char *what, int e)
{
	if (e == -EBADMSG || e == -EUCLEAN)
		log_error("journal.db: %s of inode %llu %s", what, (unsigned long long)row,
			e == -EBADMSG ? "does not authenticate" : "is malformed or belongs elsewhere");
	return e;
}

/* Opens a record and checks that it is this node's part of that kind. */
static int open_part(struct volume *v, const struct vnode *n, struct blob b, uint8_t kind, struct part *ret)
{
	int e = part_parse(v->keys, b.p, b.len, true, ret);

	if (!e && (ret->kind != kind || !ret->opened || !id_eq(&ret->id, &n->id))) {
		part_fini(ret);
		e = -EUCLEAN;
	}
	return e;
}

/* What a slot keeps of a part that stands in journal.db; the vector moves. */
static void slot_take(struct slot *s, struct part *p)
{
	s->stamp = p->stamp;
	s->stored = p->stamp.dot;
	s->vector = p->vector;
	p->vector = (struct vector){0};
}

void vnode_set_size(struct vnode *n, const struct content *c)
{
	n->size = c->length;
	if (!c->is_object) {
		n->blocks = (c->length + 511) / 512;
		return;
	}
	uint64_t pages = (c->length + PAGE_LEN - 1) / PAGE_LEN, holes = extents_pages(&c->holes);
	n->blocks = (pages - (holes < pages ? holes : pages)) * (PAGE_LEN / 512);
}

void vnode_default_attrs(struct vnode *n)
{
	if (n->type && !n->attrs_slot.stamp.dot.counter && !n->attrs_slot.dirty)
		n->attrs.mode = n->type | (n->type == S_IFDIR ? 0700 : 0600);
}

/* All other files can be reached only through it: it shows what a new root has until a peer has given its record. */
static int root_by_default(struct vnode *n, int e)
{
	if (e != -EBADMSG && e != -EUCLEAN)
		return e;
	n->flags |= VN_DAMAGED;
	return 0;
}

static int load_parts(struct volume *v, struct vnode *n, const struct node_row *r)
{
	struct part p;
	int e;

	vnode_default_attrs(n);
	if (r->attrs.p) {
		if ((e = open_part(v, n, r->attrs, PART_ATTRS, &p))) {
			damaged(n->row, "a record of attributes", e);
			return n->row == ROOT_INUM ? root_by_default(n, e) : e;
		}
		n->attrs = p.attrs;
		p.attrs = (struct attrs){0};
		slot_take(&n->attrs_slot, &p);
		part_fini(&p);
		if ((n->attrs.mode & S_IFMT) != n->type)
			return damaged(n->row, "the type", -EUCLEAN);
	}
	if (r->times.p) {
		if ((e = open_part(v, n, r->times, PART_TIMES, &p)))
			return n->row == ROOT_INUM ? root_by_default(n, damaged(n->row, "a record of times", e)) : damaged(n->row, "a record of times", e);
		n->times = p.times;
		n->atime = p.times.mtime;
		slot_take(&n->times_slot, &p);
		part_fini(&p);
	}
	if (r->content.p) {
		if ((e = open_part(v, n, r->content, PART_CONTENT, &p)))
			return damaged(n->row, "a record of content", e);
		n->content = p.content;
		p.content = (struct content){0};
		n->apart = p.apart;
		p.apart = (struct dots){0};
		slot_take(&n->content_slot, &p);
		part_fini(&p);
		vnode_set_size(n, &n->content);
	}
	return 0;
}

int vnode_content_reload(struct volume *v, struct vnode *n)
{
	struct node_row r;
	struct part p;
	int e = journal_node_get(v->journal, n->row, &r);

	content_fini(&n->content);
	n->content = (struct content){0};
	if (!e && r.content.p) {
		if ((e = open_part(v, n, r.content, PART_CONTENT, &p)))
			return damaged(n->row, "a record of content", e);
		n->content = p.content;
		p.content = (struct content){0};
		part_fini(&p);
	}
	vnode_set_size(n, &n->content);
	return e;
}

int vnode_extra_add(struct vnode *n, struct extra **ret)
{
	struct extra *x = reallocarray(n->extra, n->n_extra + 1, sizeof *x);

	if (!x)
		return -ENOMEM;
	n->extra = x;
	*ret = &x[n->n_extra++];
	**ret = (struct extra){0};
	return 0;
}

struct extra_load {
	struct volume *v;
	struct vnode *n;
};

static int load_extra(void *ctx, const struct extra_row *row)
{
	struct extra_load *l = ctx;
	struct extra *x;
	struct part p;
	int e = open_part(l->v, l->n, row->record, PART_CONTENT, &p);

	if (e)
		return damaged(l->n->row, "a record of a second content", e);
	if (!(e = vnode_extra_add(l->n, &x))) {
		x->content = p.content;
		p.content = (struct content){0};
		x->apart = p.apart;
		p.apart = (struct dots){0};
		x->local = row->local;
		x->copy = row->copy;
		slot_take(&x->slot, &p);
	}
	part_fini(&p);
	return e;
}

/* Copies are found by their ids: their numbers may have changed since the row of the content was written. */
static int find_copies(struct volume *v, struct vnode *n)
{
	int e = 0;

	for (uint32_t i = 0; i < n->n_extra && !e; i++) {
		struct extra *x = &n->extra[i];
		struct id id;
		uint64_t row = 0;
		copy_node_id(&n->id, x->slot.stamp.dot, &id);
		struct vnode *copy = cached_by_id(v, &id);
		e = copy ? 0 : journal_node_by_id(v->journal, &id, &row);
		x->copy = copy ? copy->row : e ? 0 : row;
		e = e == -ENOENT ? 0 : e;
	}
	return e;
}

static int count_live(void *ctx, const struct link_row *l)
{
	*(uint32_t *)ctx += l->live;
	return 0;
}

/* Both columns say the same of what is no directory. Where they do not, one was changed from outside: the links tell. */
static int recount(struct volume *v, struct vnode *n)
{
	uint32_t live = 0;

	if (!n->type || n->type == S_IFDIR || n->nlink == n->links)
		return 0;
	log_error("journal.db: the link count of inode %llu is not that of its links", (unsigned long long)n->row);
	int e = journal_links_of_node(v->journal, n->row, count_live, &live);
	n->nlink = n->links = live;
	return e;
}

static int load(struct volume *v, inum row, struct vnode **ret)
{
	struct node_row r;
	int e = journal_node_get(v->journal, row, &r);

	if (e)
		return e;
	struct vnode *n = slab_get(v->node_slab);
	if (!n)
		return -ENOMEM;
	n->row = row;
	n->id = r.id;
	n->type = r.type;
	n->nlink = r.nlink;
	n->links = r.links;
	n->local = r.local;
	n->derived = r.derived;
	n->flags = VN_STORED | (r.orphan ? VN_ORPHAN : 0);
	e = recount(v, n);
	e = e ? e : load_parts(v, n, &r);
	if (!e && r.extras) {
		struct extra_load x = {v, n};
		e = journal_extras(v->journal, row, load_extra, &x);
		e = e ? e : find_copies(v, n);
	}
	if (e == -EBADMSG || e == -EUCLEAN || (n->flags & VN_DAMAGED)) {
		v->heal_records = true;
		volume_heal_note(v, 0, 0);
	}
	if (e) {
		vnode_free(v, n);
		return e;
	}
	insert(v, n);
	if (n->derived && (e = derived_load(v, n))) {
		vnode_drop(v, n);
		return e;
	}
	*ret = n;
	return 0;
}

int vnode_get(struct volume *v, inum row, struct vnode **ret)
{
	struct vnode *n = vnode_cached(v, row);

	if (!n)
		return load(v, row, ret);
	vnode_touch(v, n);
	*ret = n;
	return 0;
}

int vnode_by_id(struct volume *v, const struct id *id, struct vnode **ret)
{
	struct vnode *n = cached_by_id(v, id);
	uint64_t row;

	if (n) {
		vnode_touch(v, n);
		*ret = n;
		return 0;
	}
	int e = journal_node_by_id(v->journal, id, &row);
	return e ? e : load(v, row, ret);
}

int vnode_new(struct volume *v, const struct id *id, uint32_t type, struct vnode **ret)
{
	struct vnode *n = slab_get(v->node_slab);

	if (!n)
		return -ENOMEM;
	if (id)
		n->id = *id;
	else
		env_random(v->env, n->id.b, ID_LEN);
	n->row = v->next_node++;
	n->type = type;
	n->nlink = type == S_IFDIR ? 2 : 0;
	vnode_default_attrs(n);
	insert(v, n);
	vnode_dirty(v, n);
	*ret = n;
	return 0;
}

int vnode_new_at(struct volume *v, inum row, uint32_t type, struct vnode **ret)
{
	struct vnode *n = slab_get(v->node_slab);

	if (!n)
		return -ENOMEM;
	env_random(v->env, n->id.b, ID_LEN);
	n->row = row;
	n->type = type;
	insert(v, n);
	*ret = n;
	return 0;
}

void vnode_renumber(struct volume *v, struct vnode *n, inum row)
{
	struct vnode **p = &v->nodes_by_row[row_bucket(n->row)];

	while (*p != n)
		p = &(*p)->next_row;
	*p = n->next_row;
	n->row = row;
	p = &v->nodes_by_row[row_bucket(row)];
	n->next_row = *p;
	*p = n;
}

int vnode_refer(struct volume *v, const struct id *id, struct vnode **ret)
{
	int e = vnode_by_id(v, id, ret);

	return e == -ENOENT ? vnode_new(v, id, 0, ret) : e;
}

bool content_lacks_bytes(const struct content *c, uint64_t local) { return c->is_object && !local; }

bool vnode_lacks_bytes(const struct vnode *n)
{
	return n->type == S_IFREG && n->content_slot.stamp.dot.counter && !n->data && content_lacks_bytes(&n->content, n->local);
}

int vnode_data(struct volume *v, struct vnode *n, struct filedata **ret)
{
	if (!n->data) {
		int e = filedata_new(&v->data_env, n->content_slot.stamp.dot.counter ? &n->content : NULL, n->local, &n->data);
		if (e)
			return e;
		free(n->content.bytes);
		n->content.bytes = NULL;
		extents_fini(&n->content.holes);
	}
	*ret = n->data;
	return 0;
}

int slot_change(struct slot *s)
{
	if (s->arrived.p) {
		/* never stored: the next version still has to say that it had seen it */
		int e = vector_add(&s->vector, s->stamp.dot);
		if (e)
			return e;
		buf_fini(&s->arrived);
	}
	s->dirty = true;
	return 0;
}

int slot_arrive(struct slot *s, const struct part *p, const void *record, size_t len)
{
	struct vector vector;
	struct buf copy = {0};

	buf_put(&copy, record, len);
	int e = copy.err ? copy.err : vector_copy(&vector, &p->vector);
	if (e) {
		buf_fini(&copy);
		return e;
	}
	buf_fini(&s->arrived);
	vector_fini(&s->vector);
	s->arrived = copy;
	s->vector = vector;
	s->stamp = p->stamp;
	s->dirty = false;
	return 0;
}
