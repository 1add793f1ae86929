/* Records and contents as the replication asks for them. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

struct find {
	struct dot dot;
	struct buf *ret;
	uint64_t local;
	bool found;
};

static int match(void *ctx, const struct extra_row *x)
{
	struct find *f = ctx;

	if (!dot_eq(x->dot, f->dot))
		return 0;
	f->ret->len = 0;
	buf_put(f->ret, x->record.p, x->record.len);
	f->local = x->local;
	f->found = true;
	return f->ret->err ? f->ret->err : 1;
}

/* Does a record carry that dot? Its clear half says so without opening it. */
static bool carries(const struct blob *b, struct dot dot)
{
	/* format u8 | kind u8 | id 16 | replica u64 | counter u64 (part.h) */
	const uint8_t *p = b->p;

	return p && b->len >= 34 && le64_load(p + 18) == dot.replica && le64_load(p + 26) == dot.counter;
}

static int copy(const struct blob *b, struct dot dot, struct buf *ret)
{
	if (!carries(b, dot))
		return -ENOENT;
	ret->len = 0;
	buf_put(ret, b->p, b->len);
	return ret->err;
}

static int of_node(struct volume *v, const struct dot_row *d, struct buf *ret, uint64_t *ret_local)
{
	struct node_row n;
	int e = journal_node_get(v->journal, d->owner, &n);

	if (e)
		return e;
	e = copy(d->kind == PART_ATTRS ? &n.attrs : d->kind == PART_TIMES ? &n.times : &n.content, d->dot, ret);
	*ret_local = n.local;
	if (e != -ENOENT || d->kind != PART_CONTENT || !n.extras)
		return e;
	struct find f = {.dot = d->dot, .ret = ret};
	e = journal_extras(v->journal, d->owner, match, &f);
	*ret_local = f.local;
	return e ? e : f.found ? 0 : -ENOENT;
}

static int of_link(struct volume *v, const struct dot_row *d, struct buf *ret)
{
	struct link_row l;

	if (d->kind == PART_PLACE) {
		int e = journal_link_get(v->journal, d->owner, &l);
		return e ? e : copy(&l.place, d->dot, ret);
	}
	struct find f = {.dot = d->dot, .ret = ret};
	int e = journal_deletions(v->journal, d->owner, match, &f);
	return e ? e : f.found ? 0 : -ENOENT;
}

int record_by_dot(struct volume *v, const struct dot_row *d, struct buf *ret)
{
	struct other_row o;
	uint64_t local;
	int e;

	switch (d->kind) {
	case PART_PLACE:
	case PART_DELETION:
		return of_link(v, d, ret);
	case PART_CONTENT:
	case PART_ATTRS:
	case PART_TIMES:
		return of_node(v, d, ret, &local);
	case PART_MEMBER:
		return journal_member_get(v->journal, d->owner, ret);
	}
	if ((e = journal_other_by_dot(v->journal, d->dot, &o)))
		return e;
	return copy(&o.record, d->dot, ret);
}

void content_at_fini(struct content_at *c) { content_fini(&c->content); }

/* From a content record. */
static int at_record(struct volume *v, const void *record, size_t len, struct content_at *ret)
{
	struct part p;
	int e = part_parse(v->keys, record, len, true, &p);

	if (e)
		return e;
	if (p.kind != PART_CONTENT) {
		part_fini(&p);
		return -EUCLEAN;
	}
	ret->stamp = p.stamp;
	ret->content = p.content;
	p.content = (struct content){0};
	part_fini(&p);
	return 0;
}

static int find_content(struct volume *v, const struct id *node, struct dot dot, struct content_at *ret)
{
	struct dot_row d;
	struct vnode *n;
	struct buf record = {0};
	int e = journal_dot_get(v->journal, dot, &d);

	if (!e && d.kind != PART_CONTENT)
		e = -ENOENT;
	e = e ? e : vnode_get(v, d.owner, &n);
	if (!e && !id_eq(&n->id, node))
		e = -ENOENT;
	e = e ? e : of_node(v, &d, &record, &ret->local);
	e = e ? e : at_record(v, record.p, record.len, ret);
	buf_fini(&record);
	if (e)
		return e;
	ret->node = n->row;
	ret->winner = ret->content.is_object && n->type == S_IFREG && dot_eq(n->content_slot.stamp.dot, dot);
	if (ret->content.is_object && !ret->local)
		return -ENOENT; /* its bytes went with its last name */
	/* what was written since is not this content: it comes with the next commit */
	if (ret->winner && (n->flags & VN_DATA_DIRTY))
		return -ENOENT;
	return 0;
}

static int find_base(struct volume *v, inum node, struct content_at *ret, struct id *ret_base_node)
{
	struct base_row b;
	struct node_row n;
	int e = journal_base_get(v->journal, node, &b);

	if (e)
		return e;
	ret->node = b.base_node;
	ret->local = b.local;
	if ((e = at_record(v, b.record.p, b.record.len, ret)))
		return e;
	if ((e = journal_node_get(v->journal, ret->node, &n)))
		return e;
	*ret_base_node = n.id;
	return 0;
}

struct base_search {
	struct volume *v;
	struct dot dot;
	inum node;
};

static int base_with_dot(void *ctx, const struct base_row *b)
{
	struct base_search *s = ctx;

	if (!carries(&b->record, s->dot))
		return 0;
	s->node = b->node;
	return 1;
}

int content_find(struct volume *v, const struct id *node, struct dot dot, struct content_at *ret)
{
	struct content_at at = {0};
	struct id id;

	tree_lock(v);
	int e = find_content(v, node, dot, &at);
	if (e == -ENOENT) {
		struct base_search s = {v, dot, 0};
		content_at_fini(&at);
		at = (struct content_at){0};
		e = journal_bases(v->journal, base_with_dot, &s);
		if (!e)
			e = s.node ? find_base(v, s.node, &at, &id) : -ENOENT;
		if (!e && !id_eq(&id, node))
			e = -ENOENT;
	}
	tree_unlock(v);
	if (e) {
		content_at_fini(&at);
		return e == -ENOENT ? -ESTALE : e;
	}
	*ret = at;
	return 0;
}

int content_step(struct volume *v, inum node, struct dot *ret_from, struct dot *ret_to, struct extents *ret_ranges)
{
	struct step_row s;

	tree_lock(v);
	int e = journal_step_get(v->journal, node, &s);
	if (!e) {
		struct reader r = reader_of(s.ranges.p, s.ranges.len);
		if (!(e = extents_read(&r, ret_ranges))) {
			*ret_from = s.from;
			*ret_to = s.to;
		}
	}
	tree_unlock(v);
	return e;
}

int content_base(struct volume *v, inum node, struct id *ret_base_node, struct content_at *ret)
{
	struct content_at at = {0};

	tree_lock(v);
	int e = find_base(v, node, &at, ret_base_node);
	tree_unlock(v);
	if (e) {
		content_at_fini(&at);
		return e;
	}
	*ret = at;
	return 0;
}
