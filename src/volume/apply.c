/* Applying a batch: everything of it in one transaction (I7).
 *
 *   1  no locks        the kernel's dirty pages of the files concerned come home; whole contents are flushed and get their place in objects/
 *   2  apply_begin     what is pending here is committed; from now on the gate is held exclusively
 *   3  ranges          pages for a node's own object become redo records of kind remote; where it cannot be changed in place, a copy gets them
 *   4  tree_mu         parts are merged in memory, what follows for the shown tree is computed
 *   5  apply_end       one transaction, COMMIT, flush
 *   6  no locks        what programs here must be told
 * An error before 4 leaves everything as it was. After a crash the records of 3 are dropped unless the COMMIT of 5 is there. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"
#include "content_source.h"
#include "exceptions.h"

#define PAGE_IN_LOG (PAGE_LEN + 64) /* bytes of the redo log a page takes, with its share of the record */
#define SYNCFS_OBJECTS 8

/* ---- 1 ---- */
static inum concerned(struct volume *v, const struct part *p)
{
	struct vnode *n;
	struct vlink *l;
	inum row = 0;

	if (p->kind == PART_CONTENT && !vnode_by_id(v, &p->id, &n))
		row = n->row;
	if (p->kind == PART_DELETION && !vlink_by_id(v, &p->id, &l))
		row = l->node;
	return row && refs_get(v, row) ? row : 0;
}

static void bring_home(struct batch *b)
{
	struct volume *v = b->v;

	pthread_rwlock_rdlock(&v->observer_lock);
	const struct volume_observer *o = &v->observer;
	for (uint32_t i = 0; i < b->n && o->before_change; i++) {
		tree_lock(v);
		inum ino = concerned(v, &b->part[i]->part);
		tree_unlock(v);
		if (ino)
			o->before_change(o->ctx, ino);
	}
	pthread_rwlock_unlock(&v->observer_lock);
}

/* Objects that have a number and are named by no record yet: a commit meanwhile must not call all below the next number settled (recover.c). */
static void adopting(struct batch *b)
{
	struct volume *v = b->v;
	uint64_t first = object_store_next_local(v->objects);

	tree_lock(v);
	if (!b->adopting && !v->n_adopting++)
		v->adopting_from = first;
	tree_unlock(v);
	b->adopting = true;
}

void batch_adopted(struct batch *b)
{
	if (!b->adopting)
		return;
	tree_lock(b->v);
	b->v->n_adopting--;
	tree_unlock(b->v);
	b->adopting = false;
}

static int adopt_whole(struct batch *b)
{
	uint32_t objects = 0, n = 0;
	uint64_t *local;
	int e = 0;

	for (uint32_t i = 0; i < b->n; i++)
		objects += b->part[i]->want && b->part[i]->want->object && !b->part[i]->want->local;
	if (!objects)
		return 0;
	if (!(local = calloc(objects, sizeof *local)))
		return -ENOMEM;
	/* one flush of all is cheaper than one of each; those that follow find nothing to do */
	if (objects > SYNCFS_OBJECTS)
		syncfs(b->v->dirfd);
	adopting(b);
	for (uint32_t i = 0; i < b->n && !e; i++) {
		struct want *w = b->part[i]->want;
		if (!w || !w->object || w->local)
			continue;
		uint64_t number = object_store_next_local(b->v->objects);
		if ((e = object_adopt(w->object, number)))
			break;
		local[n++] = w->local = number;
		object_close(w->object);
		w->object = NULL;
	}
	e = e ? e : object_store_flush_names(b->v->objects, local, n);
	free(local);
	return e;
}

/* ---- 3 ---- */
static bool is_ranges(const struct arrival *x) { return x->want && x->want->state == WANT_HERE && x->want->sink && !x->want->local; }

/* Do several contents of that node come? Then each needs an object of its own. */
static bool alone_of_node(const struct batch *b, const struct arrival *x)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->part[i] != x && b->part[i]->part.kind == PART_CONTENT && id_eq(&b->part[i]->part.id, &x->part.id))
			return false;
	return true;
}

/* Is the base still the node's content, and may its object be changed? Gives that object, its node pinned, where it may; NULL otherwise. */
static int judge(struct batch *b, struct arrival *x, struct vnode **ret, struct object **ret_object)
{
	struct volume *v = b->v;
	const struct held_content *base = transfer_sink_base(x->want->sink);
	const struct part *p = &x->part;
	struct vnode *n;

	tree_lock(v);
	int e = vnode_by_id(v, &p->id, &n);
	bool fits = !e && n->type == S_IFREG && !n->derived && !(n->flags & VN_DATA_DIRTY) && !vnode_lacks_bytes(n) &&
		    dot_eq(n->content_slot.stamp.dot, base->dot) && id_eq(&base->node, &n->id);
	bool seen = fits && vector_has(&p->vector, base->dot) && !dots_has(&p->apart, base->dot) && content_needed(n, p);
	*ret = NULL;
	*ret_object = NULL;
	x->base_fits = fits && seen;
	if (seen && alone_of_node(b, x) && !(n->flags & VN_ORPHAN) && (p->content.length >= n->size || !refs_get(v, n->row))) {
		struct filedata *f;
		if (!(e = vnode_data(v, n, &f))) {
			n->pins++;
			*ret = n;
		}
	}
	tree_unlock(v);
	if (e || !*ret)
		return e == -ENOENT ? 0 : e;
	e = filedata_object(n->data, ret_object);
	return e == -EBADMSG ? 0 : e; /* damaged here: a copy says what to do */
}

static int64_t mtime_of(const struct part *p) { return (int64_t)(p->stamp.clock_ns & INT64_MAX); }

static bool fits_log(struct volume *v, uint64_t pages)
{
	uint64_t log, pending, need = pages * PAGE_IN_LOG;

	object_store_usage(v->objects, &log, &pending);
	if (log + need > REDO_BYTES / 4 * 3 || pending + need > PENDING_MAX_BYTES / 4 * 3) {
		if (object_store_checkpoint(v->objects))
			return false;
		object_store_usage(v->objects, &log, &pending);
	}
	return log + need <= REDO_BYTES / 4 * 3 && pending + need <= PENDING_MAX_BYTES / 4 * 3;
}

/* -EAGAIN: the base is not here any more; the content must be asked for as a whole. */
static int write_copy(struct volume *v, struct arrival *x)
{
	const struct held_content *base = transfer_sink_base(x->want->sink);
	struct transfer_lookup look = content_lookup(v);
	struct transfer_content c = {0};
	struct object *copy;
	uint64_t local = object_store_next_local(v->objects);
	int e = look.find(look.ctx, &base->node, base->dot, &c);

	if (!e && (!c.object || !root_eq(&c.content.root, &base->root)))
		e = -ESTALE;
	if (!e && !(e = object_copy(c.object, local, NULL, &copy))) {
		e = transfer_sink_write_ranges(x->want->sink, copy, mtime_of(&x->part));
		e = e ? e : object_flush(copy);
		object_close(copy);
		if (e)
			object_remove(v->objects, local);
		else
			x->want->local = local;
	}
	transfer_content_fini(&c);
	if (e == -ESTALE || e == -ENOENT || e == -EBADMSG) {
		x->want->whole_only = true;
		return -EAGAIN;
	}
	return e;
}

/* Nothing that a record names is changed here: what can be written in place is only noted, all else becomes a copy. An error leaves all as it was. */
static int plan_ranges(struct batch *b, struct arrival *x, uint64_t *pages)
{
	struct volume *v = b->v;
	uint64_t mine = extents_pages(transfer_sink_pages(x->want->sink));
	struct object *o;
	struct vnode *n;
	int e = judge(b, x, &n, &o);

	if (!e && n && o && transfer_sink_fits(x->want->sink, o) && fits_log(v, *pages + mine)) {
		*pages += mine;
		x->in_place = n->row;
	}
	if (n) {
		tree_lock(v);
		n->pins--;
		tree_unlock(v);
	}
	return e || x->in_place ? e : write_copy(v, x);
}

static int write_in_place(struct volume *v, struct arrival *x)
{
	struct filedata *f;
	struct object *o = NULL;
	int e = content_pin(v, x->in_place, &f);

	if (e)
		return e;
	e = filedata_object(f, &o);
	e = e ? e : !o ? -EUCLEAN : transfer_sink_write_ranges(x->want->sink, o, mtime_of(&x->part));
	e = e ? e : object_flush(o);
	if (!e) {
		x->write_in_place = true;
		x->want->local = object_local(o);
	}
	content_unpin(v, x->in_place);
	return e;
}

static int all_ranges(struct batch *b)
{
	struct volume *v = b->v;
	uint64_t pages = 0;
	bool some = false;
	int e = 0;

	for (uint32_t i = 0; i < b->n; i++)
		b->part[i]->in_place = 0;
	for (uint32_t i = 0; i < b->n && !e; i++)
		if (is_ranges(b->part[i])) {
			e = plan_ranges(b, b->part[i], &pages);
			some = true;
		}
	if (e || !some)
		return e;
	for (uint32_t i = 0; i < b->n && !e; i++)
		if (b->part[i]->in_place)
			e = write_in_place(v, b->part[i]);
	e = e ? e : object_store_flush_redo(v->objects);
	/* in memory an object may hold pages now that its record does not name; on disk they are dropped by the next open, as long as nothing is committed */
	if (e)
		volume_fail(v, "a change of a peer", e);
	return e;
}

/* Contents that must be asked for once more: see batch_apply in replicate.h. */
static void reopen(struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		struct want *w = b->part[i]->want;
		if (!w || !w->whole_only || w->state != WANT_HERE)
			continue;
		transfer_sink_free(w->sink);
		w->sink = NULL;
		w->state = WANT_NEW;
		b->open++;
		if (i < b->next)
			b->next = i;
	}
}

/* ---- 4 ---- */
static int arrive_member(struct apply *a, struct arrival *x)
{
	(void)x;
	a->members_changed = true; /* they have no form in memory: see write_rows */
	return 0;
}

static int arrive(struct apply *a, struct arrival *x)
{
	switch (x->part.opened ? x->part.kind : 0) {
	case PART_PLACE:
		return arrive_place(a, x);
	case PART_DELETION:
		return arrive_deletion(a, x);
	case PART_CONTENT:
		return x->refetch ? arrive_bytes(a, x) : arrive_content(a, x);
	case PART_ATTRS:
		return arrive_attrs(a, x);
	case PART_TIMES:
		return arrive_times(a, x);
	case PART_MEMBER:
		return arrive_member(a, x);
	case PART_CONSENT:
		return arrive_consent(a, x);
	}
	return 0;
}

/* Copies of contents whose name came after them, and what untouched copies show of their file's attributes. */
static int make_copies(struct apply *a, struct vnode *n)
{
	int e = 0;

	for (uint32_t i = 0; i < n->n_extra && n->type && !e; i++) {
		struct vlink *l;
		if (n->extra[i].gone)
			continue;
		e = derived_make(a->v, n, i, &l);
		e = e ? e : seeds_add(&a->seeds, l->row);
	}
	return e;
}

static int each_node(struct apply *a, int (*fn)(struct apply *a, struct vnode *n))
{
	int e = 0;

	for (uint32_t i = 0; i < a->seeds.n && !e; i++) {
		struct vlink *l;
		struct vnode *n;
		e = vlink_get(a->v, a->seeds.row[i], &l);
		e = e || !l->node ? e : vnode_get(a->v, l->node, &n);
		if (!e && l->node)
			e = fn(a, n);
		e = e == -ENOENT ? 0 : e;
	}
	return e;
}

static int follow(struct apply *a)
{
	bool needed = a->members_changed && !nothing_unusual(a->v);
	int e = each_node(a, make_copies);

	e = e || needed ? e : exceptions_needed(a->v, &a->seeds, &needed);
	if (!e && needed)
		e = exceptions_update(a->v, &a->seeds, a);
	e = e ? e : each_node(a, settle_node);
	return e ? e : replace_all(a);
}

static int merge_all(struct apply *a)
{
	struct volume *v = a->v;
	int e = 0;

	for (uint32_t i = 0; i < a->b->n && !e; i++) {
		struct arrival *x = a->b->part[i];
		e = arrive(a, x);
		if (e == -EUCLEAN || e == -EBADMSG) {
			log_warn("a record of kind %u, change %016llx:%llu, does not fit to what it belongs to and is ignored", x->part.kind,
				(unsigned long long)x->part.stamp.dot.replica, (unsigned long long)x->part.stamp.dot.counter);
			e = 0;
		}
		if (!e && x->part.stamp.clock_ns > v->clock_ns)
			v->clock_ns = x->part.stamp.clock_ns;
	}
	return e ? e : follow(a);
}

/* ---- 5: rows without a form in memory ---- */
static int write_rows(void *ctx)
{
	struct apply *a = ctx;
	struct volume *v = a->v;
	int e = 0;

	for (uint32_t i = 0; i < a->n_step && !e; i++) {
		struct step_note *s = &a->step[i];
		e = step_put(v, s->node, s->from, s->to, s->whole ? NULL : &s->ranges);
	}
	for (uint32_t i = 0; i < a->b->n && !e; i++) {
		struct arrival *x = a->b->part[i];
		if (!x->part.opened || x->part.kind == PART_MEMBER || x->part.kind == PART_CONSENT)
			e = other_arrives(v, &x->part, x->record.p, x->record.len);
	}
	return e ? e : exceptions_write(v);
}

/* ---- 6 ---- */
static void tell(const struct volume_observer *o, const struct notice *x)
{
	if (x->kind == NOTICE_ENTRY && o->entry_changed)
		o->entry_changed(o->ctx, x->ino, x->name, x->name_len);
	else if (x->kind == NOTICE_DIR && o->dir_changed)
		o->dir_changed(o->ctx, x->ino);
	else if (x->kind == NOTICE_ATTR && o->attr_changed)
		o->attr_changed(o->ctx, x->ino);
	else if (x->kind == NOTICE_CONTENT && o->content_changed)
		o->content_changed(o->ctx, x->ino, x->old_size, x->new_size, x->bytes.e, x->bytes.n);
	else if (x->kind == NOTICE_REPLACED && o->replaced)
		o->replaced(o->ctx, x->ino, x->other);
}

static void tell_all(struct apply *a)
{
	struct volume *v = a->v;

	pthread_rwlock_rdlock(&v->observer_lock);
	for (uint32_t i = 0; i < a->n_notice; i++)
		tell(&v->observer, &a->notice[i]);
	if (a->n_notice && v->observer.told)
		v->observer.told(v->observer.ctx);
	pthread_rwlock_unlock(&v->observer_lock);
}

static void apply_fini(struct apply *a)
{
	for (uint32_t i = 0; i < a->n_notice; i++) {
		free(a->notice[i].name);
		extents_fini(&a->notice[i].bytes);
	}
	for (uint32_t i = 0; i < a->n_step; i++)
		extents_fini(&a->step[i].ranges);
	replace_fini(a);
	free(a->notice);
	free(a->step);
	seeds_fini(&a->seeds);
	seeds_fini(&a->nameless);
}

static void empty(struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		arrival_free(b->part[i]);
	batch_adopted(b);
	b->n = b->next = b->open = 0;
	b->looked = b->merged = false;
}

/* Nodes without a name whose parts had to be written first. */
static void doom(struct apply *a)
{
	struct volume *v = a->v;

	if (!a->nameless.n)
		return;
	gate_shared(v);
	tree_lock(v);
	for (uint32_t i = 0; i < a->nameless.n; i++) {
		struct vnode *n;
		if (vnode_get(v, a->nameless.row[i], &n) || n->links || !(n->flags & VN_ORPHAN) || refs_get(v, n->row))
			continue;
		n->flags |= VN_DOOMED;
		vnode_dirty(v, n);
	}
	tree_unlock(v);
	gate_leave(v);
}

/* Is what was written in place what the nodes show now? See plan_ranges: anything else is an error of ours, and must not be committed. */
static int all_taken(const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->part[i]->write_in_place && !b->part[i]->taken)
			return -EUCLEAN;
	return 0;
}

static int apply(struct batch *b, const struct vector *end, struct apply *a)
{
	struct volume *v = b->v;
	int e = apply_begin(v);

	if (e)
		return e;
	if ((e = all_ranges(b))) {
		apply_cancel(v);
		return e;
	}
	b->merged = true;
	tree_lock(v);
	e = merge_all(a);
	tree_unlock(v);
	if (e) {
		/* no memory, or a damaged row of ours: what was merged so far is true, and the next commit writes it; the rest comes again */
		log_error("%s: a batch could not be merged: %s", v->path, strerror(-e));
		if (all_taken(b))
			volume_fail(v, "a change of a peer", e);
		apply_cancel(v);
		return e;
	}
	if ((e = all_taken(b))) {
		volume_fail(v, "a change of a peer", e);
		apply_cancel(v);
		return e;
	}
	e = apply_end(v, end, write_rows, a);
	if (!e) {
		tree_lock(v);
		exceptions_written(v);
		if (a->members_changed)
			e = members_load(v);
		tree_unlock(v);
		doom(a);
	}
	return e;
}

int batch_apply(struct batch *b, const struct vector *end)
{
	struct apply a = {.v = b->v, .b = b};
	uint64_t start = stats_now_ns();

	if (!batch_complete(b))
		return -EINVAL;
	bring_home(b);
	int e = adopt_whole(b);
	e = e ? e : apply(b, end, &a);
	if (e == -EAGAIN)
		reopen(b);
	if (!e) {
		tell_all(&a);
		empty(b);
		stats_since(b->v->stats, STAGE_APPLY, start);
		stats_add(b->v->stats, COUNT_BATCHES_APPLIED, 1);
	}
	apply_fini(&a);
	return e;
}

int apply_links(struct volume *v, int (*fn)(struct apply *a))
{
	struct batch none = {.v = v};
	struct apply a = {.v = v, .b = &none};
	int e = apply_begin(v);

	if (e)
		return e;
	tree_lock(v);
	e = fn(&a);
	e = e ? e : follow(&a);
	tree_unlock(v);
	if (e) {
		apply_cancel(v);
		apply_fini(&a);
		return e;
	}
	e = apply_end(v, NULL, write_rows, &a);
	if (!e) {
		tree_lock(v);
		exceptions_written(v);
		tree_unlock(v);
		doom(&a);
		tell_all(&a);
	}
	apply_fini(&a);
	return e;
}
