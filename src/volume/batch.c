/* A batch as it arrives: records are parsed and sorted out, contents that need bytes are asked for and taken. See batch.h. */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>

#include "content_source.h"
#include "exceptions.h"

/* Smaller contents are not worth a look for what an earlier try has left. */
#define RESUME_MIN_BYTES (1u << 20)

void want_free(struct want *w)
{
	if (!w)
		return;
	transfer_sink_free(w->sink);
	if (w->object)
		object_close(w->object);
	free(w);
}

void arrival_free(struct arrival *a)
{
	if (!a)
		return;
	want_free(a->want);
	part_fini(&a->part);
	buf_fini(&a->record);
	free(a);
}

int batch_new(struct volume *v, uint64_t from_replica, struct batch **ret)
{
	struct batch *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	b->v = v;
	b->from = from_replica;
	*ret = b;
	return 0;
}

/* It has its place in objects/ already, but no record names it: the next open would not find it either, once a commit here went beyond its number. */
static void leave_object(struct batch *b, struct arrival *a)
{
	struct want *w = a->want;

	if (!w || !w->local || a->write_in_place)
		return;
	int e = object_remove(b->v->objects, w->local);
	if (e && e != -ENOENT)
		log_warn("%s: object %016llx, of a batch that was not applied, stays: %s", b->v->path, (unsigned long long)w->local, strerror(-e));
}

void batch_free(struct batch *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->n; i++) {
		if (!b->merged)
			leave_object(b, b->part[i]);
		arrival_free(b->part[i]);
	}
	batch_adopted(b);
	free(b->part);
	free(b);
}

static int refuse(struct batch *b, const struct part *p, int e)
{
	b->refused++;
	if (p)
		log_warn("a record of kind %u, change %016llx:%llu, from replica %016llx was refused: %s", p->kind,
			(unsigned long long)p->stamp.dot.replica, (unsigned long long)p->stamp.dot.counter, (unsigned long long)b->from,
			e == -EBADMSG ? "it does not authenticate" : "it is malformed");
	else
		log_warn("a record from replica %016llx was refused: it is malformed", (unsigned long long)b->from);
	return 0;
}

static int add(struct batch *b, struct part *p, const uint8_t *record, size_t len)
{
	if (b->n == b->cap) {
		uint32_t cap = b->cap ? b->cap * 2 : 64;
		struct arrival **part = reallocarray(b->part, cap, sizeof *part);
		if (!part)
			return -ENOMEM;
		b->part = part;
		b->cap = cap;
	}
	struct arrival *a = calloc(1, sizeof *a);
	if (!a)
		return -ENOMEM;
	buf_put(&a->record, record, len);
	if (a->record.err) {
		free(a);
		return -ENOMEM;
	}
	a->part = *p;
	*p = (struct part){0};
	b->part[b->n++] = a;
	return 0;
}

bool content_needed(const struct vnode *n, const struct part *p)
{
	struct version new = {p->stamp, &p->vector, &p->apart}, held[1];
	bool drop[1];

	if (!n || !n->content_slot.stamp.dot.counter || n->derived)
		return true;
	held[0] = (struct version){n->content_slot.stamp, &n->content_slot.vector, &n->apart};
	if (!set_merge(held, 1, NULL, 0, &new, drop))
		return false;
	for (uint32_t i = 0; i < n->n_extra; i++) {
		if (n->extra[i].gone)
			continue;
		held[0] = (struct version){n->extra[i].slot.stamp, &n->extra[i].slot.vector, &n->extra[i].apart};
		if (!set_merge(held, 1, NULL, 0, &new, drop))
			return false;
	}
	return true;
}

/* Under tree_mu: is there any use for it? A part that our knowledge contains was merged, or was superseded by what was merged. */
static int judge(struct batch *b, const struct part *p, bool *ret_use)
{
	struct volume *v = b->v;
	struct dot_row d;

	*ret_use = false;
	if (vector_has(&v->knowledge, p->stamp.dot))
		return 0;
	if (p->stamp.dot.replica == v->self) {
		log_error("replica %016llx sent change %llu of this replica, which has only made %llu: this store was put back from an older copy",
			(unsigned long long)b->from, (unsigned long long)p->stamp.dot.counter, (unsigned long long)v->counter);
		return -EPROTO;
	}
	/* steps of a catching-up that was broken off are listed again */
	int e = journal_dot_get(v->journal, p->stamp.dot, &d);
	if (e != -ENOENT)
		return e;
	if (p->kind == PART_CONTENT) {
		struct vnode *n = NULL;
		e = vnode_by_id(v, &p->id, &n);
		if (e && e != -ENOENT)
			return e;
		if (!content_needed(n, p))
			return 0;
	}
	*ret_use = true;
	return 0;
}

int batch_part(struct batch *b, const uint8_t *record, size_t len)
{
	struct part p = {0};
	bool use;
	int e = part_parse(b->v->keys, record, len, false, &p);

	if (e == -ENOMEM)
		return e;
	if (e)
		return refuse(b, NULL, e);
	tree_lock(b->v);
	e = judge(b, &p, &use);
	tree_unlock(b->v);
	if (e || !use) {
		part_fini(&p);
		return e;
	}
	/* opened only now: most of what is sent twice never is */
	struct part whole = {0};
	e = part_parse(b->v->keys, record, len, true, &whole);
	if (e) {
		e = e == -ENOMEM ? e : refuse(b, &p, e);
		part_fini(&p);
		return e;
	}
	part_fini(&p);
	e = add(b, &whole, record, len);
	part_fini(&whole);
	return e;
}

/* ---- wants ---- */

static int make_sink(struct batch *b, struct want *w)
{
	struct transfer_env env = content_env(b->v);
	struct transfer_lookup look = content_lookup(b->v);
	struct part *p = &w->arrival->part;

	if (w->sink)
		return 0;
	return transfer_sink_new(&env, &look, &p->id, p->stamp.dot, &p->content, &w->sink, &w->w.resume_page);
}

static void hold(struct want *w, const struct id *node, struct dot dot, const struct root *root)
{
	for (uint32_t i = 0; i < w->w.n_held; i++)
		if (dot_eq(w->held[i].dot, dot) && id_eq(&w->held[i].node, node))
			return;
	if (w->w.n_held < WANT_HELD_MAX)
		w->held[w->w.n_held++] = (struct held_content){*node, dot, *root};
}

/* A committed content of n that is an object; its root is in the snapshot's record. */
static int hold_current(struct volume *v, struct want *w, struct vnode *n)
{
	struct content_at at = {0};
	struct id id = n->id;
	struct dot dot = n->content_slot.stamp.dot;

	if (n->type != S_IFREG || !dot.counter)
		return 0;
	tree_unlock(v);
	int e = content_find(v, &id, dot, &at);
	if (!e && at.content.is_object)
		hold(w, &id, dot, &at.content.root);
	content_at_fini(&at);
	tree_lock(v);
	return e == -ESTALE || e == -ENOENT ? 0 : e;
}

/* The file whose name a new node of this batch takes: a rename over it is a new version of it in all but identity. */
static int hold_replaced(struct batch *b, struct want *w)
{
	const struct id *node = &w->arrival->part.id;

	for (uint32_t i = 0; i < b->n; i++) {
		const struct part *p = &b->part[i]->part;
		struct vnode *dir, *n;
		struct vlink *l;
		if (p->kind != PART_PLACE || !p->opened || !id_eq(&p->place.node, node))
			continue;
		int e = vnode_by_id(b->v, &p->place.parent, &dir);
		e = e ? e : shown_lookup(b->v, dir, p->place.name, p->place.name_len, &l);
		e = e ? e : vnode_get(b->v, l->node, &n);
		if (e == -ENOENT)
			continue;
		e = e ? e : hold_current(b->v, w, n);
		if (e)
			return e;
	}
	return 0;
}

static int find_held(struct batch *b, struct want *w)
{
	struct vnode *n;

	w->w.held = w->held;
	w->w.n_held = 0;
	if (w->whole_only)
		return 0;
	tree_lock(b->v);
	int e = vnode_by_id(b->v, &w->arrival->part.id, &n);
	e = e == -ENOENT ? 0 : e ? e : hold_current(b->v, w, n);
	e = e ? e : hold_replaced(b, w);
	tree_unlock(b->v);
	return e;
}

static int want_new(struct batch *b, struct arrival *a)
{
	struct want *w = calloc(1, sizeof *w);

	if (!w)
		return -ENOMEM;
	w->arrival = a;
	w->w.node = a->part.id;
	w->w.dot = a->part.stamp.dot;
	w->w.length = a->part.content.length;
	a->want = w;
	b->open++;
	return 0;
}

/* Ranges that an earlier try has left count on the content that they build on: it comes first, if it is still held. */
static void resume_ranges(struct want *w)
{
	uint64_t page;
	const struct held_content *base = w->sink ? transfer_sink_resume_ranges(w->sink, &page) : NULL;

	for (uint32_t i = 0; base && i < w->w.n_held; i++) {
		struct held_content h = w->held[i];
		if (!id_eq(&h.node, &base->node) || !dot_eq(h.dot, base->dot) || !root_eq(&h.root, &base->root))
			continue;
		w->held[i] = w->held[0];
		w->held[0] = h;
		w->w.resume_ranges = true;
		w->w.resume_page = page;
	}
}

static int hand_out(struct batch *b, struct want *w, const struct content_want **ret)
{
	int e = find_held(b, w);

	if (!e && w->w.length >= RESUME_MIN_BYTES)
		e = make_sink(b, w);
	if (e)
		return e;
	resume_ranges(w);
	w->state = WANT_OUT;
	*ret = &w->w;
	return 1;
}

/* ---- bytes that are needed again ---- */
static bool comes_already(const struct batch *b, struct dot dot)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->part[i]->part.kind == PART_CONTENT && dot_eq(b->part[i]->part.stamp.dot, dot))
			return true;
	return false;
}

static int refetch(struct batch *b, const void *record, size_t len)
{
	struct part p = {0};
	int e = part_parse(b->v->keys, record, len, true, &p);

	if (!e && p.content.is_object && !comes_already(b, p.stamp.dot) && !(e = add(b, &p, record, len)))
		b->part[b->n - 1]->refetch = true;
	part_fini(&p);
	return e;
}

static int refetch_extra(void *ctx, const struct extra_row *x)
{
	return x->local ? 0 : refetch(ctx, x->record.p, x->record.len);
}

/* Under tree_mu. */
static int refetch_node(struct batch *b, struct vnode *n)
{
	struct node_row r;
	int e = 0;

	if (n->derived && (e = vnode_get(b->v, n->derived, &n)))
		return e == -ENOENT ? 0 : e;
	if (n->type != S_IFREG || !(n->flags & VN_STORED))
		return 0;
	if (vnode_lacks_bytes(n)) {
		e = journal_node_get(b->v->journal, n->row, &r);
		if (!e && r.content.p)
			e = refetch(b, r.content.p, r.content.len);
	}
	for (uint32_t i = 0; i < n->n_extra && !e; i++)
		if (content_lacks_bytes(&n->extra[i].content, n->extra[i].local))
			return journal_extras(b->v->journal, n->row, refetch_extra, b);
	return e;
}

/* A name that comes for a node which has lost its bytes. */
static int refetch_named(struct batch *b, const struct part *p)
{
	struct vnode *n;

	if (!p->opened || p->place.type != S_IFREG)
		return 0;
	tree_lock(b->v);
	int e = vnode_by_id(b->v, &p->place.node, &n);
	e = e ? e : refetch_node(b, n);
	tree_unlock(b->v);
	return e == -ENOENT ? 0 : e;
}

#define REFETCH_MAX 1024
#define REFETCH_FIRST_NS (250ull * 1000000)
#define REFETCH_TRIES 6 /* the last pause is 4^6 times the first: 17 minutes */

/* What the bytes of x are needed for was asked for: if nobody has them, again later. Deleted contents that came back with a concurrent edit may be nowhere. */
static void note_try(struct exc *x, uint64_t now)
{
	x->try_ns = now + (REFETCH_FIRST_NS << (2 * x->tries));
	x->tries += x->tries < REFETCH_TRIES;
}

#define AWAITED_TRIES 2
bool volume_awaits_contents(struct volume *v)
{
	bool some = false;

	tree_lock(v);
	for (struct list *i = v->exceptions->all.next; i != &v->exceptions->all && !some; i = i->next) {
		const struct exc *x = LIST_OF(i, struct exc, at);
		struct vnode *n;
		if (x->parent || x->tries > AWAITED_TRIES || vnode_get(v, x->node, &n))
			continue;
		some = vnode_lacks_bytes(n);
	}
	tree_unlock(v);
	return some;
}

/* Those that are not shown since no peer has given them up to now. */
static int refetch_hidden(struct batch *b)
{
	struct volume *v = b->v;
	uint32_t before = b->n;
	uint64_t now = env_mono_ns(v->env);
	int e = 0;

	b->looked = true;
	tree_lock(v);
	for (struct list *i = v->exceptions->all.next; i != &v->exceptions->all && !e && b->n - before < REFETCH_MAX; i = i->next) {
		struct exc *x = LIST_OF(i, struct exc, at);
		struct vnode *n;
		uint32_t had = b->n;
		if (x->parent || x->try_ns > now)
			continue;
		e = vnode_get(v, x->node, &n);
		e = e ? e : refetch_node(b, n);
		e = e == -ENOENT ? 0 : e;
		if (b->n > had)
			note_try(x, now);
	}
	tree_unlock(v);
	return e;
}

int batch_next_want(struct batch *b, const struct content_want **ret)
{
	int hidden = b->looked ? 0 : refetch_hidden(b);

	if (hidden)
		return hidden;
	for (; b->next < b->n; b->next++) {
		struct arrival *a = b->part[b->next];
		if (a->part.kind == PART_PLACE) {
			int e = refetch_named(b, &a->part);
			if (e)
				return e;
		}
		if (a->part.kind != PART_CONTENT || !a->part.opened || !a->part.content.is_object)
			continue;
		int e = a->want ? 0 : want_new(b, a);
		if (e)
			return e;
		if (a->want->state != WANT_NEW)
			continue;
		return hand_out(b, a->want, ret);
	}
	return 0;
}

int batch_content(struct batch *b, const struct content_want *cw, const uint8_t *chunk, size_t len, bool last)
{
	struct want *w = (struct want *)cw;

	if (w->state != WANT_OUT)
		return -EPROTO;
	int e = make_sink(b, w);
	e = e ? e : transfer_sink_feed(w->sink, chunk, len);
	if (e < 0 && w->sink) { /* asked again, it is asked from what is left */
		w->w.resume_page = transfer_sink_resume_page(w->sink);
		w->w.resume_ranges = false;
	}
	if (e <= 0)
		return e == 0 && last ? -EPROTO : e;
	if (transfer_sink_form(w->sink) != FORM_RANGES) {
		w->object = transfer_sink_take_object(w->sink);
		transfer_sink_free(w->sink);
		w->sink = NULL;
		if (!w->object)
			return -EIO;
	}
	w->state = WANT_HERE;
	b->open--;
	return 1;
}

int batch_content_gone(struct batch *b, const struct content_want *cw)
{
	struct want *w = (struct want *)cw;

	if (w->state != WANT_OUT)
		return -EPROTO;
	w->state = WANT_GONE;
	b->open--;
	return 0;
}

bool batch_complete(const struct batch *b)
{
	for (uint32_t i = b->next; i < b->n; i++) {
		const struct part *p = &b->part[i]->part;
		if (p->kind == PART_CONTENT && p->opened && p->content.is_object)
			return false;
	}
	return b->open == 0;
}
