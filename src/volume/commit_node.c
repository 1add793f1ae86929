/* Writing nodes: each pending part takes its dot, is sealed and written; roots and the journal's rows follow. Under tree_mu, inside of a
 * transaction. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "commit.h"

enum { ATTRS, TIMES, CONTENT, PARTS };
static const uint8_t kind_of[PARTS] = {PART_ATTRS, PART_TIMES, PART_CONTENT};

static struct slot *slot_of(struct vnode *n, int i) { return i == ATTRS ? &n->attrs_slot : i == TIMES ? &n->times_slot : &n->content_slot; }

static struct blob blob_of(const struct buf *b) { return (struct blob){b->p, b->len}; }

bool node_has_name(struct volume *v, struct vnode *n)
{
	struct vlink *l;

	return n->links || n->row == ROOT_INUM || (!nothing_unusual(v) && exceptions_shown_link(v, n, &l) != -ENOENT); /* a damaged row is no reason to lose what was written */
}

/* Contents are written where a snapshot was taken, and for fresh nodes (an empty one, while their data are not flushed). */
static bool content_due(const struct vnode *n)
{
	if (n->content_slot.arrived.p || (n->flags & VN_CONTENT_NEW))
		return true;
	if (n->content_slot.dirty && (n->snapshot_taken || !n->data))
		return true;
	return n->snapshot_taken && n->snapshot.change != FILEDATA_SAME;
}

static bool due(const struct vnode *n, int i)
{
	if (i == CONTENT)
		return content_due(n);
	return slot_pending(i == ATTRS ? &n->attrs_slot : &n->times_slot);
}

/* Vector and apart of a new content where others are held beside the largest one. */
static int next_of_set(struct vnode *n)
{
	struct version *held = calloc(n->n_extra + 1, sizeof *held);
	uint32_t k = 0;

	if (!held)
		return -ENOMEM;
	held[k++] = (struct version){n->content_slot.stamp, &n->content_slot.vector, &n->apart};
	for (uint32_t i = 0; i < n->n_extra; i++)
		if (!n->extra[i].gone)
			held[k++] = (struct version){n->extra[i].slot.stamp, &n->extra[i].slot.vector, &n->extra[i].apart};
	vector_fini(&n->next_vector);
	dots_fini(&n->next_apart);
	int e = set_next(held, k, NULL, 0, &n->next_vector, &n->next_apart);
	free(held);
	n->next_set = !e;
	return e;
}

/* Fills the body; what it points to is borrowed. */
static int body(struct vnode *n, int i, struct part *p)
{
	if (i == ATTRS) {
		p->attrs = n->attrs;
	} else if (i == TIMES) {
		p->times = n->times;
	} else if (n->snapshot_taken) {
		p->content = n->snapshot.content;
	} else if (n->type == S_IFLNK || n->content_slot.dirty) {
		p->content = n->content;
	}
	if (i != CONTENT || (!n->n_extra && !n->apart.n))
		return 0;
	int e = next_of_set(n);
	if (!e) {
		p->vector = n->next_vector;
		p->apart = n->next_apart;
	}
	return e;
}

/* The record of a pending part: a peer's as it came, or a new version. */
static int make_record(struct txn *t, struct vnode *n, int i, struct blob *ret)
{
	struct slot *s = slot_of(n, i);

	if (s->arrived.p) {
		*ret = blob_of(&s->arrived);
		return 0;
	}
	/* a version's own dot in its vector in memory is harmless, should this transaction fail */
	int e = s->stamp.dot.counter ? vector_add(&s->vector, s->stamp.dot) : 0;
	if (e)
		return e;
	s->taken = txn_stamp(t);
	struct part p = {.kind = kind_of[i], .id = n->id, .stamp = s->taken, .vector = s->vector, .opened = true};
	if ((e = body(n, i, &p)))
		return e;
	t->record[i].len = 0;
	if ((e = part_seal(t->v->keys, &p, &t->record[i])))
		return e;
	*ret = blob_of(&t->record[i]);
	return 0;
}

struct terms {
	struct txn *t;
	bool live;
	int sign;
};

static int extra_term(void *ctx, const struct extra_row *x)
{
	struct terms *k = ctx;
	static const struct blob none;

	if (k->sign < 0)
		txn_roots(k->t, x->record, k->live, none, false);
	else
		txn_roots(k->t, none, false, x->record, k->live);
	return 0;
}

/* All extras leave the roots before their rows change and enter them afterwards: they are few and rare. */
static int extras_terms(struct txn *t, inum row, bool live, int sign)
{
	struct terms k = {t, live, sign};

	return journal_extras(t->v->journal, row, extra_term, &k);
}

static bool local_in_use(const struct vnode *n, uint64_t local, uint64_t now)
{
	if (local == now)
		return true;
	for (uint32_t i = 0; i < n->n_extra; i++)
		if (!n->extra[i].gone && n->extra[i].local == local)
			return true;
	return false;
}

static int write_extras(struct txn *t, struct vnode *n, uint64_t local)
{
	for (uint32_t i = 0; i < n->n_extra; i++) {
		struct extra *x = &n->extra[i];
		int e = 0;
		if (x->gone) {
			if (x->slot.stored.counter) {
				e = journal_extra_delete(t->v->journal, n->row, x->slot.stored);
				e = e ? e : journal_dot_delete(t->v->journal, x->slot.stored);
			}
			if (!e && x->local && !local_in_use(n, x->local, local))
				e = txn_trash(t, x->local);
		} else if (x->slot.arrived.p) {
			const struct extra_row r = {.owner = n->row, .dot = x->slot.stamp.dot, .record = blob_of(&x->slot.arrived),
				.local = x->local, .copy = x->copy};
			e = journal_extra_put(t->v->journal, &r);
			e = e ? e : txn_dot(t, PART_CONTENT, n->row, x->slot.stamp.dot, (struct dot){0});
		}
		if (e)
			return e;
	}
	return 0;
}

static uint32_t extras_left(const struct vnode *n)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < n->n_extra; i++)
		left += !n->extra[i].gone;
	return left;
}

static int forget_dots(struct txn *t, struct vnode *n)
{
	for (int i = 0; i < PARTS; i++) {
		struct dot d = slot_of(n, i)->stored;
		int e = d.counter ? journal_dot_delete(t->v->journal, d) : 0;
		if (e)
			return e;
	}
	for (uint32_t i = 0; i < n->n_extra; i++) {
		struct dot d = n->extra[i].slot.stored;
		int e = d.counter ? journal_dot_delete(t->v->journal, d) : 0;
		e = e || !d.counter ? e : journal_extra_delete(t->v->journal, n->row, d);
		if (e)
			return e;
	}
	return 0;
}

static int any_link(void *ctx, struct vlink *l)
{
	*(bool *)ctx = true;
	return 1;
}

/* A node that came and went in one transaction: dead names that stay for others, and what comes for it later, find it by its row. */
static int keep_number(struct txn *t, struct vnode *n)
{
	const struct node_row row = {.row = n->row, .id = n->id, .type = n->type, .derived = n->derived};
	bool named = false;
	int e = t->v->alone ? 0 : vnode_links(t->v, n, any_link, &named);

	return e || !named ? e : journal_node_insert(t->v->journal, &row);
}

/* Bytes that came from a peer for a node which the same batch left without a name: its row does not have them yet, and never will. */
static int bytes_in_vain(struct txn *t, struct vnode *n, uint64_t recorded)
{
	uint64_t fetched = n->fetched;

	if (!fetched || fetched == recorded)
		return 0;
	if (n->local == fetched)
		n->local = recorded;
	return txn_trash(t, fetched);
}

/* A node that nothing names and nobody uses. Alone, all of it goes; else its parts stay for those who have not heard of the deletion, its bytes go. */
static int destroy(struct txn *t, struct vnode *n)
{
	static const struct blob none;
	struct journal *j = t->v->journal;
	struct node_row old;
	bool forget = t->v->alone;
	int e = txn_list(&t->dead, &t->n_dead, n);

	n->pins += !e;
	e = e ? e : txn_trash(t, n->stray);
	if (!e && !(n->flags & VN_STORED))
		return keep_number(t, n);
	if (e)
		return e;
	if ((e = journal_node_get(j, n->row, &old)))
		return e;
	const struct blob part[PARTS] = {old.attrs, old.times, old.content};
	/* what only kept an old inode number has nothing that anybody must hear of */
	if (!forget && old.orphan && !old.attrs.p && !old.times.p && !old.content.p && !old.extras) {
		bool named = false;
		if ((e = vnode_links(t->v, n, any_link, &named)))
			return e;
		forget = !named;
		if ((e = journal_node_get(j, n->row, &old)))
			return e;
	}
	for (int i = 0; i < PARTS; i++)
		if (part[i].p)
			txn_roots(t, part[i], old.links > 0, forget ? none : part[i], false);
	if (old.extras) {
		e = extras_terms(t, n->row, old.links > 0, -1);
		e = e || forget ? e : extras_terms(t, n->row, false, 1);
	}
	for (uint32_t i = 0; i < n->n_extra && !e; i++)
		e = txn_trash(t, n->extra[i].local);
	derived_bytes_gone(t->v, n);
	e = e ? e : retire(t, n, old.local, old.content, n->heir);
	e = e ? e : bytes_in_vain(t, n, old.local);
	e = e ? e : drop_base(t, n->row);
	e = e ? e : journal_step_delete(j, n->row);
	if (e)
		return e;
	if (forget) {
		e = forget_dots(t, n);
		return e ? e : journal_node_delete(j, n->row);
	}
	old = (struct node_row){.row = n->row, .type = n->type, .extras = old.extras, .derived = n->derived};
	e = old.extras ? journal_extras_drop_locals(j, n->row) : 0;
	return e ? e : journal_node_update(j, &old);
}

/* Numbers below the floor for strays are not looked at again, and the one of an object that a node without a name has may soon be. */
static int bin_stray(struct txn *t, struct vnode *n)
{
	if (!n->stray)
		return 0;
	int e = n->binned && n->binned != n->stray ? journal_trash_delete(t->v->journal, n->binned) : 0;
	e = e ? e : journal_trash_put(t->v->journal, n->stray);
	n->binned = n->stray;
	return e;
}

/* Its last name went, but it is in use: the next open removes it if we do not. Its changes are not journalled. */
static int write_orphan(struct txn *t, struct vnode *n)
{
	struct node_row old;
	int e = bin_stray(t, n);

	if (e || !(n->flags & VN_STORED))
		return e;
	e = journal_node_get(t->v->journal, n->row, &old);
	e = e ? e : bytes_in_vain(t, n, old.local);
	if (e || old.orphan)
		return e;
	const struct blob part[PARTS] = {old.attrs, old.times, old.content};
	for (int i = 0; i < PARTS; i++)
		if (part[i].p)
			txn_roots(t, part[i], old.links > 0, part[i], false);
	if (old.extras) {
		e = extras_terms(t, n->row, old.links > 0, -1);
		e = e ? e : extras_terms(t, n->row, false, 1);
	}
	struct node_row row = {.row = n->row, .type = n->type, .local = old.local, .orphan = true, .derived = n->derived, .extras = old.extras};
	return e ? e : journal_node_update(t->v->journal, &row);
}

static int put_row(struct txn *t, struct vnode *n, const struct blob fresh[PARTS], uint64_t local)
{
	struct node_row row = {.row = n->row, .id = n->id, .type = n->type, .nlink = n->nlink, .links = n->links, .orphan = n->flags & VN_ORPHAN, .local = n->derived ? 0 : local, /* a copy's object is its file's extra's */
		.derived = n->derived, .extras = extras_left(n), .attrs = fresh[ATTRS], .times = fresh[TIMES], .content = fresh[CONTENT]};

	return (n->flags & VN_STORED) ? journal_node_update(t->v->journal, &row) : journal_node_insert(t->v->journal, &row);
}

static bool parts_arrived(const struct vnode *n)
{
	bool arrived = n->attrs_slot.arrived.p || n->times_slot.arrived.p || n->content_slot.arrived.p;

	for (uint32_t i = 0; i < n->n_extra; i++)
		arrived |= n->extra[i].slot.arrived.p || n->extra[i].gone;
	return arrived;
}

/* Local changes of a node without a name are not journalled; what peers made of it is, whatever becomes of it here. */
static bool ends_here(const struct vnode *n) { return (n->flags & VN_ORPHAN) && !parts_arrived(n); }

int write_node(struct txn *t, struct vnode *n)
{
	struct node_row old = {0};
	struct blob fresh[PARTS] = {0};
	int e = 0;

	if ((n->flags & VN_DOOMED) && !n->pins && !parts_arrived(n))
		return destroy(t, n);
	if (ends_here(n))
		return write_orphan(t, n);
	if ((n->flags & VN_STORED) && (e = journal_node_get(t->v->journal, n->row, &old)))
		return e;
	const struct blob before[PARTS] = {old.attrs, old.times, old.content};
	bool was_live = (n->flags & VN_STORED) && (old.links || n->row == ROOT_INUM), is_live = n->links || n->row == ROOT_INUM;
	bool content = due(n, CONTENT);
	uint64_t local = content && n->snapshot_taken && !n->content_slot.arrived.p ? n->snapshot.local : n->local;

	if (n->binned && n->binned == local)
		e = journal_trash_delete(t->v->journal, local);
	else if (!node_has_name(t->v, n))
		e = bin_stray(t, n);
	if (!e && old.extras)
		e = extras_terms(t, n->row, was_live, -1);
	for (int i = 0; i < PARTS && !e; i++) {
		if (!due(n, i)) {
			if (before[i].p && was_live != is_live)
				txn_roots(t, before[i], was_live, before[i], is_live);
			continue;
		}
		struct slot *s = slot_of(n, i);
		if ((e = make_record(t, n, i, &fresh[i])))
			break;
		txn_roots(t, before[i], was_live, fresh[i], is_live);
		e = txn_dot(t, kind_of[i], n->row, s->arrived.p ? s->stamp.dot : s->taken.dot, s->stored);
	}
	if (!e && content && n->type == S_IFREG && !n->content_slot.arrived.p)
		e = write_step(t, n, n->content_slot.stamp.dot, n->content_slot.taken.dot, n->snapshot_taken ? &n->snapshot : NULL);
	if (!e && old.local && !local_in_use(n, old.local, local))
		e = retire(t, n, old.local, old.content, n->row);
	if (!e && n->fetched && !local_in_use(n, n->fetched, local))
		e = bytes_in_vain(t, n, old.local);
	e = e ? e : write_extras(t, n, local);
	e = e ? e : put_row(t, n, fresh, local);
	if (!e && extras_left(n))
		e = extras_terms(t, n->row, is_live, 1);
	return e;
}

/* ---- afterwards ---- */
static void extras_written(struct vnode *n)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n->n_extra; i++) {
		struct extra *x = &n->extra[i];
		if (x->gone) {
			slot_fini(&x->slot);
			dots_fini(&x->apart);
			content_fini(&x->content);
			continue;
		}
		if (x->slot.arrived.p)
			slot_written(&x->slot);
		n->extra[k++] = *x;
	}
	n->n_extra = k;
}

static void content_written(struct vnode *n)
{
	if (n->next_set) {
		vector_fini(&n->content_slot.vector);
		dots_fini(&n->apart);
		n->content_slot.vector = n->next_vector;
		n->apart = n->next_apart;
		n->next_vector = (struct vector){0};
		n->next_apart = (struct dots){0};
		n->next_set = false;
	}
	n->flags &= ~(unsigned)VN_CONTENT_NEW;
	if (!n->snapshot_taken)
		return;
	n->local = n->snapshot.local;
	content_fini(&n->content);
	n->content = n->snapshot.content;
	n->snapshot.content = (struct content){0};
	if (n->data) { /* the bytes are there */
		free(n->content.bytes);
		n->content.bytes = NULL;
		extents_fini(&n->content.holes);
	}
}

void node_written(struct txn *t, struct vnode *n)
{
	bool orphan = ends_here(n);

	/* it is dropped after the flush; or a reader has it pinned still, and the next commit takes it */
	if (n->flags & VN_DOOMED)
		return;
	if (!orphan) {
		n->fetched = 0;
		if (!(n->flags & VN_ORPHAN) && node_has_name(t->v, n))
			n->stray = 0;
		if (n->content_slot.arrived.p || n->content_slot.taken.dot.counter)
			content_written(n);
		slot_written(&n->attrs_slot);
		slot_written(&n->times_slot);
		slot_written(&n->content_slot);
		extras_written(n);
		if (n->snapshot_taken)
			n->flags &= ~(unsigned)VN_DATA_DIRTY;
		n->binned = n->binned == n->local ? 0 : n->binned;
		n->flags |= VN_STORED;
		n->flags &= ~(unsigned)VN_REPLACED;
	}
	if (!(n->flags & VN_DATA_DIRTY) || (t->strays_known && (orphan || !node_has_name(t->v, n))))
		vnode_clean(t->v, n);
}

void node_not_written(struct vnode *n)
{
	n->attrs_slot.taken = n->times_slot.taken = n->content_slot.taken = (struct stamp){0};
	n->next_set = false;
}
