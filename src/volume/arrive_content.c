/* Merging a content that came from a peer: the contents of a node are a set (design-replication 2). Its bytes are here already: inline in the
 * record, in an object with a local number, or written into the node's own object. Under tree_mu (left for calls of filedata), gate
 * exclusive. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "batch.h"
#include "exceptions.h"

static int seed_link(void *ctx, struct vlink *l)
{
	struct apply *a = ctx;
	return seeds_add(&a->seeds, l->row);
}

/* A copy that showed a derived content gets one of its own. */
static void end_derived(struct vnode *n)
{
	content_fini(&n->content);
	n->content = (struct content){0};
	slot_fini(&n->content_slot);
	n->derived = 0;
	n->local = 0;
}

struct merged {
	bool held, had_winner, winner_dropped, wins, extras_changed;
};

static int merge(struct apply *a, struct vnode *n, const struct part *p, struct merged *ret)
{
	struct version new = {p->stamp, &p->vector, &p->apart};
	struct version *held = calloc(n->n_extra + 2, sizeof *held);
	bool *drop = calloc(n->n_extra + 2, sizeof *drop);
	uint32_t k = 0;
	int e = held && drop ? 0 : -ENOMEM;

	*ret = (struct merged){.had_winner = n->content_slot.stamp.dot.counter};
	if (!e && ret->had_winner)
		held[k++] = (struct version){n->content_slot.stamp, &n->content_slot.vector, &n->apart};
	for (uint32_t i = 0; i < n->n_extra && !e; i++)
		if (!n->extra[i].gone)
			held[k++] = (struct version){n->extra[i].slot.stamp, &n->extra[i].slot.vector, &n->extra[i].apart};
	if (!e)
		ret->held = set_merge(held, k, NULL, 0, &new, drop);
	if (!e && ret->held) {
		ret->winner_dropped = ret->had_winner && drop[0];
		ret->wins = !ret->had_winner || ret->winner_dropped || stamp_cmp(p->stamp, n->content_slot.stamp) > 0;
		k = ret->had_winner;
		for (uint32_t i = 0; i < n->n_extra && !e; i++) {
			if (n->extra[i].gone || !drop[k++])
				continue;
			n->extra[i].gone = ret->extras_changed = true;
			e = n->extra[i].copy ? derived_gone(a, n, n->extra[i].copy) : 0;
		}
	}
	free(held);
	free(drop);
	return e;
}

/* ---- beside the largest one ---- */
static int add_extra(struct apply *a, struct vnode *n, const struct part *p, const void *record, size_t len, uint64_t local)
{
	struct extra *x;
	struct vlink *l;
	int e = vnode_extra_add(n, &x);

	e = e ? e : slot_arrive(&x->slot, p, record, len);
	e = e ? e : dots_copy(&x->apart, &p->apart);
	e = e ? e : content_copy(&x->content, &p->content);
	if (e)
		return e;
	x->local = local;
	vnode_dirty(a->v, n);
	if (!n->type)
		return 0; /* its name is not here yet: see derived_missing */
	e = derived_make(a->v, n, n->n_extra - 1, &l);
	return e ? e : seeds_add(&a->seeds, l->row);
}

/* The record of the content that is the largest so far. */
static int winner_record(struct volume *v, struct vnode *n, struct buf *ret)
{
	struct node_row r;

	if (n->content_slot.arrived.p) {
		buf_put(ret, n->content_slot.arrived.p, n->content_slot.arrived.len);
		return ret->err;
	}
	int e = journal_node_get(v->journal, n->row, &r);
	if (!e && !r.content.p)
		e = -EUCLEAN;
	if (!e)
		buf_put(ret, r.content.p, r.content.len);
	return e ? e : ret->err;
}

/* The largest one so far was overtaken by one that has not seen it: it stays, as a copy. */
static int set_aside(struct apply *a, struct vnode *n)
{
	struct buf record = {0};
	struct part p = {0};
	int e = winner_record(a->v, n, &record);

	e = e ? e : part_parse(a->v->keys, record.p, record.len, true, &p);
	/* written on after its last name went: that is in the object, but in no record */
	bool overwritten = n->flags & VN_DATA_DIRTY;
	if (!e)
		e = add_extra(a, n, &p, record.p, record.len, overwritten ? 0 : n->local);
	part_fini(&p);
	buf_fini(&record);
	return e;
}

/* ---- the largest one ---- */
static int replace_data(struct volume *v, struct vnode *n, const struct content *c, uint64_t local)
{
	if (!n->data)
		return 0;
	n->pins++;
	tree_unlock(v);
	int e = filedata_replace(n->data, c, local);
	tree_lock(v);
	n->pins--;
	return e;
}

/* Bytes that differ, for the kernel's pages. */
static int changed_bytes(struct arrival *x, uint64_t old_size, uint64_t new_size, struct extents *ret)
{
	struct extents pages = {0};
	uint64_t most = old_size > new_size ? old_size : new_size;
	int e;

	*ret = (struct extents){0};
	if (!x->write_in_place)
		return most ? extents_add(ret, 0, most) : 0;
	e = transfer_sink_changed(x->want->sink, &pages);
	for (uint32_t i = 0; i < pages.n && !e; i++)
		e = extents_add(ret, pages.e[i].first * PAGE_LEN, pages.e[i].count * PAGE_LEN);
	extents_fini(&pages);
	if (!e && new_size > old_size)
		e = extents_add(ret, old_size, new_size - old_size);
	return e;
}

static int steps(struct apply *a, struct vnode *n, struct arrival *x, struct dot from)
{
	struct extents pages = {0};
	int e;

	if (!x->base_fits)
		return note_step(a, n->row, from, x->part.stamp.dot, NULL);
	e = transfer_sink_changed(x->want->sink, &pages);
	e = e ? e : note_step(a, n->row, from, x->part.stamp.dot, pages.n <= 256 ? &pages : NULL);
	extents_fini(&pages);
	return e;
}

static bool being_replaced(const struct apply *a, inum row)
{
	for (uint32_t i = 0; i < a->n_replace; i++)
		if (a->replace[i].node == row)
			return true;
	return false;
}

/* A shorter content cannot be shown in place by the kernel; and where what it had was set aside, or the new one came without its bytes, open handles go on
 * with what they had. */
static bool needs_number(struct apply *a, const struct vnode *n, const struct part *p, uint64_t local, bool aside)
{
	return refs_get(a->v, n->row) && n->type == S_IFREG && n->content_slot.stamp.dot.counter &&
	       (aside || p->content.length < n->size || content_lacks_bytes(&p->content, local)) && !being_replaced(a, n->row);
}

/* Readers pin a node without the gate, for as long as one read takes. */
void wait_unpinned(struct volume *v, struct vnode *n)
{
	for (n->pins++; n->pins > 1;) {
		tree_unlock(v);
		sched_yield();
		tree_lock(v);
	}
	n->pins--;
}

static int become(struct apply *a, struct vnode *n, struct arrival *x, uint64_t local, struct vnode *copy, bool aside)
{
	struct volume *v = a->v;
	struct part *p = &x->part;
	struct extents bytes;
	struct dots apart;
	uint64_t old_size = n->size;
	int e = steps(a, n, x, n->content_slot.stamp.dot);
	bool number = !x->write_in_place && needs_number(a, n, p, local, aside);

	if (!e && number) {
		wait_unpinned(v, n);
		e = replace_later(a, n, copy);
	}
	e = e ? e : replace_data(v, n, &p->content, local);
	e = e ? e : dots_copy(&apart, &p->apart);
	if (e)
		return e;
	dots_fini(&n->apart);
	n->apart = apart;
	if ((e = slot_arrive(&n->content_slot, p, x->record.p, x->record.len)))
		return e;
	vnode_set_size(n, &p->content);
	content_fini(&n->content);
	n->content = p->content;
	p->content = (struct content){0};
	n->local = local;
	if (n->data) {
		free(n->content.bytes);
		n->content.bytes = NULL;
		extents_fini(&n->content.holes);
		n->content.holes = (struct extents){0};
	}
	n->flags &= ~(unsigned)(VN_DAMAGED | VN_DATA_DIRTY);
	vnode_dirty(v, n);
	if (number)
		return 0;
	e = changed_bytes(x, old_size, n->size, &bytes);
	return e ? e : note_content(a, n->row, old_size, n->size, &bytes);
}

int arrive_bytes(struct apply *a, struct arrival *x)
{
	uint64_t local = x->want->state == WANT_HERE ? x->want->local : 0;
	struct dot dot = x->part.stamp.dot;
	struct vnode *n;
	bool taken = false;
	int e = vnode_by_id(a->v, &x->part.id, &n);

	if (e && e != -ENOENT)
		return e;
	bool named = !e && !(n->flags & (VN_ORPHAN | VN_DOOMED)); /* else nothing of it is written any more */
	if (named && local && dot_eq(n->content_slot.stamp.dot, dot) && vnode_lacks_bytes(n)) {
		n->local = n->fetched = local;
		taken = true;
	}
	for (uint32_t i = 0; !e && local && !taken && i < n->n_extra; i++) {
		struct extra *k = &n->extra[i];
		if (k->gone || !dot_eq(k->slot.stamp.dot, dot) || !content_lacks_bytes(&k->content, k->local))
			continue;
		k->local = local;
		if (!k->slot.arrived.p)
			buf_put(&k->slot.arrived, x->record.p, x->record.len); /* its row is written again */
		if (k->slot.arrived.err)
			return k->slot.arrived.err;
		taken = true;
	}
	if (!taken)
		return local ? object_trash(a->v, local) : 0;
	vnode_dirty(a->v, n);
	return vnode_links(a->v, n, seed_link, a);
}

/* The sender had no bytes any more: the content is held without them, and what was open of the one before is let go. */
static void drop_data(struct volume *v, struct vnode *n)
{
	struct filedata *f = n->data;

	if (!f)
		return;
	wait_unpinned(v, n);
	n->data = NULL;
	n->pins++;
	tree_unlock(v);
	filedata_free(f);
	tree_lock(v);
	n->pins--;
}

int arrive_content(struct apply *a, struct arrival *x)
{
	struct volume *v = a->v;
	struct vnode *n;
	struct merged m;
	uint64_t local = x->want ? x->want->local : 0;
	int e = vnode_refer(v, &x->part.id, &n);

	if (e)
		return e;
	if (x->part.content.is_object && n->type && n->type != S_IFREG)
		return -EUCLEAN;
	if (n->derived)
		end_derived(n);
	if ((e = merge(a, n, &x->part, &m)))
		return e;
	if (!m.held)
		return local && local != n->local ? object_trash(v, local) : 0;
	x->taken = true;
	if (m.wins && content_lacks_bytes(&x->part.content, local) && !needs_number(a, n, &x->part, local, false))
		drop_data(v, n);
	bool aside = m.wins && m.had_winner && !m.winner_dropped;
	if (aside)
		e = set_aside(a, n);
	struct vnode *copy = NULL;
	if (!e && aside && n->extra[n->n_extra - 1].copy)
		e = vnode_get(v, n->extra[n->n_extra - 1].copy, &copy);
	if (!e && m.wins)
		e = become(a, n, x, local, copy, aside);
	else if (!e)
		e = add_extra(a, n, &x->part, x->record.p, x->record.len, local);
	if (!e && (!m.had_winner || aside || !m.wins || m.extras_changed || !n->links || n->n_extra || vnode_lacks_bytes(n)))
		e = vnode_links(v, n, seed_link, a);
	return e;
}
