/* What a commit does with replaced objects: trash or base of a delta; and the step of changed pages. Under tree_mu, inside of a transaction. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "commit.h"

#define STEP_RUNS_MAX 256

int txn_trash(struct txn *t, uint64_t local)
{
	if (!local)
		return 0;
	uint64_t *p = reallocarray(t->trash, t->n_trash + 1, sizeof *p);
	if (!p)
		return -ENOMEM;
	t->trash = p;
	t->trash[t->n_trash++] = local;
	return journal_trash_put(t->v->journal, local);
}

int drop_base(struct txn *t, inum node)
{
	struct base_row b;
	int e = journal_base_get(t->v->journal, node, &b);

	if (e)
		return e == -ENOENT ? 0 : e;
	uint64_t local = b.local, bytes = b.bytes;
	e = journal_base_delete(t->v->journal, node);
	e = e ? e : txn_trash(t, local);
	if (!e)
		t->base_bytes -= bytes < t->base_bytes ? bytes : t->base_bytes;
	return e;
}

static uint64_t object_bytes(struct volume *v, const struct blob *record)
{
	struct part p;
	uint64_t bytes = 0;

	if (part_parse(v->keys, record->p, record->len, true, &p))
		return 0;
	if (p.kind == PART_CONTENT && p.content.is_object)
		bytes = p.content.length - extents_pages(&p.content.holes) * PAGE_LEN;
	part_fini(&p);
	return bytes > INT64_MAX ? 0 : bytes;
}

/* The object of n's content before is not needed for n any more. heir: the node whose new content may be sent as a delta against it. */
int retire(struct txn *t, struct vnode *n, uint64_t local, struct blob record, inum heir)
{
	struct volume *v = t->v;

	if (!local)
		return 0;
	struct vnode *h = heir ? vnode_cached(v, heir) : NULL;
	/* what was written over after its last commit, or after its last name went, is not what the record says */
	if (local == n->spoiled || (n->data && filedata_overwritten(n->data, local)))
		return txn_trash(t, local);
	if (v->alone || !record.p || !h || h->type != S_IFREG || (h->flags & (VN_ORPHAN | VN_DOOMED)))
		return txn_trash(t, local);
	uint64_t bytes = object_bytes(v, &record);
	if (!bytes || bytes > t->base_budget / 4)
		return txn_trash(t, local);
	/* a base that is kept already is nearer to what the peers hold than what came between */
	struct base_row b;
	int e = journal_base_get(v->journal, heir, &b);
	if (e != -ENOENT)
		return e ? e : txn_trash(t, local);
	const struct base_row fresh = {.node = heir, .base_node = n->row, .local = local, .bytes = bytes, .record = record};
	t->base_bytes += bytes;
	return journal_base_put(v->journal, &fresh);
}

int step_put(struct volume *v, inum node, struct dot from, struct dot to, const struct extents *ranges)
{
	struct buf b = {0};

	if (!ranges || v->alone)
		return journal_step_delete(v->journal, node);
	extents_put(&b, ranges);
	const struct step_row row = {.node = node, .from = from, .to = to, .ranges = {b.p, b.len}};
	int e = b.err ? b.err : journal_step_put(v->journal, &row);
	buf_fini(&b);
	return e;
}

static bool all_peers_have(const struct volume *v, struct dot d)
{
	for (uint32_t i = 0; i < v->n_peers; i++)
		if (!vector_has(&v->peers[i].knowledge, d))
			return false;
	return true;
}

/* The step before, if it ends where this one starts and somebody still needs it. */
static int join_step(struct txn *t, inum node, struct dot *from, struct extents *ranges)
{
	struct step_row s;
	struct extents before = {0};
	int e = journal_step_get(t->v->journal, node, &s);

	if (e)
		return e == -ENOENT ? 0 : e;
	if (!dot_eq(s.to, *from) || all_peers_have(t->v, *from))
		return 0;
	struct dot first = s.from;
	struct reader r = reader_of(s.ranges.p, s.ranges.len);
	if ((e = extents_read(&r, &before)))
		return e;
	for (uint32_t i = 0; i < before.n && !e; i++)
		e = extents_add(ranges, before.e[i].first, before.e[i].count);
	extents_fini(&before);
	if (!e)
		*from = first;
	return e;
}

int write_step(struct txn *t, struct vnode *n, struct dot from, struct dot to, const struct filedata_snapshot *s)
{
	struct extents ranges;

	if (t->v->alone)
		return 0;
	if (!s || s->change != FILEDATA_RANGES || !from.counter)
		return journal_step_delete(t->v->journal, n->row);
	int e = extents_copy(&ranges, &s->ranges);
	if (e)
		return e;
	e = join_step(t, n->row, &from, &ranges);
	/* a file that was cut: pages of an older step beyond the end are no pages any more */
	e = e ? e : extents_truncate(&ranges, (s->content.length + PAGE_LEN - 1) / PAGE_LEN);
	if (!e)
		e = step_put(t->v, n->row, from, to, ranges.n <= STEP_RUNS_MAX ? &ranges : NULL);
	extents_fini(&ranges);
	return e;
}

struct expiry {
	struct txn *t;
	uint64_t node[64];
	uint32_t n;
	uint64_t over; /* bytes beyond the budget */
};

static int consider(void *ctx, const struct base_row *b)
{
	struct expiry *x = ctx;
	struct node_row r;
	struct part p;

	if (x->n == 64)
		return 1;
	bool drop = x->over > 0;
	if (!drop && !journal_node_get(x->t->v->journal, b->node, &r)) {
		drop = !r.content.p || !part_parse(x->t->v->keys, r.content.p, r.content.len, false, &p);
		if (drop && r.content.p) {
			drop = all_peers_have(x->t->v, p.stamp.dot);
			part_fini(&p);
		}
	}
	if (!drop)
		return 0;
	x->over -= b->bytes < x->over ? b->bytes : x->over;
	x->node[x->n++] = b->node;
	return 0;
}

int bases_expire(struct txn *t)
{
	struct expiry x = {.t = t, .over = t->base_bytes > t->base_budget ? t->base_bytes - t->base_budget : 0};

	if (!t->base_bytes)
		return 0;
	int e = journal_bases(t->v->journal, consider, &x);
	for (uint32_t i = 0; i < x.n && !e; i++)
		e = drop_base(t, x.node[i]);
	return e;
}
