/* Commit: who waits, what is flushed first, the transaction, what follows it. The table is in commit.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commit.h"
#include "seal.h"

#define RESULTS 64
#define SYNCFS_OBJECTS 8
#define WAL_MAX_BYTES (64u << 20)

/* Those that come while a commit runs share the next one. */
struct commit_queue {
	pthread_mutex_t mu; /* protects the rest */
	uint64_t gathering, done; /* generations */
	inum *want;               /* inodes whose content the generation that gathers has to commit */
	uint32_t n_want;
	bool all;
	int result[RESULTS];
};

int commit_init(struct volume *v)
{
	struct commit_queue *q = calloc(1, sizeof *q);

	if (!q)
		return -ENOMEM;
	pthread_mutex_init(&q->mu, NULL);
	q->gathering = 1;
	v->queue = q;
	return 0;
}

void commit_fini(struct volume *v)
{
	if (v->queue) {
		pthread_mutex_destroy(&v->queue->mu);
		free(v->queue->want);
	}
	free(v->queue);
	v->queue = NULL;
	free(v->renumber);
	free(v->trash_pending);
	free(v->trash_gone);
	v->trash_pending = v->trash_gone = NULL;
}

/* ---- whose content ---- */
struct concern {
	const inum *want;
	uint32_t n_want;
	bool all;
};

static bool wanted(const struct concern *c, const struct vnode *n)
{
	if (c->all || (n->flags & VN_REPLACED) || n->content_slot.dirty)
		return true;
	/* a fresh small file needs no flush: its name need not be committed with an empty content first */
	if ((n->flags & VN_CONTENT_NEW) && n->size <= INLINE_LIMIT)
		return true;
	/* a conflict copy that was written to: its row is one of its own from now on, with nothing in it before this */
	if (!n->derived && n->content_slot.stamp.dot.counter && !n->content_slot.stored.counter)
		return true;
	for (uint32_t i = 0; i < c->n_want; i++)
		if (c->want[i] == n->row)
			return true;
	/* nobody asks for it, but this transaction makes committed pages of what the redo log holds of it */
	return filedata_logged(n->data);
}

static bool has_change(const struct vnode *n) { return n->data && ((n->flags & VN_DATA_DIRTY) || n->content_slot.dirty); }

/* Pins the nodes whose content the commit takes along. */
static int gather(struct volume *v, const struct concern *c, struct vnode ***ret, uint32_t *ret_n)
{
	int e = 0;

	*ret = NULL;
	*ret_n = 0;
	tree_lock(v);
	for (struct list *i = v->dirty_nodes.next; i != &v->dirty_nodes && !e; i = i->next) {
		struct vnode *n = LIST_OF(i, struct vnode, at);
		if (!has_change(n) || (n->flags & VN_ORPHAN) || n->snapshot_taken || !wanted(c, n) || !node_has_name(v, n))
			continue;
		if (!(e = txn_list(ret, ret_n, n)))
			n->pins++;
	}
	tree_unlock(v);
	return e;
}

static void release(struct volume *v, struct vnode **list, uint32_t n)
{
	tree_lock(v);
	for (uint32_t i = 0; i < n; i++)
		list[i]->pins--;
	tree_unlock(v);
	free(list);
}

static int redo_flush(struct volume *v)
{
	int e = object_store_flush_redo(v->objects);

	if (e)
		volume_fail(v, "the redo log", e);
	return e;
}

/* The long part of flushing, while everybody goes on working. */
static int flush_early(struct volume *v, const struct concern *c)
{
	struct vnode **list;
	uint32_t n;
	int e = gather(v, c, &list, &n);

	struct filedata **data = n > SYNCFS_OBJECTS ? calloc(n, sizeof *data) : NULL;
	for (uint32_t i = 0; i < n; i++) /* a failure shows again below, where it counts */
		if (data)
			data[i] = list[i]->data;
		else
			filedata_flush(list[i]->data);
	if (data)
		filedata_flush_many(data, n);
	free(data);
	release(v, list, n);
	return e ? e : redo_flush(v);
}

static void take_snapshot(struct vnode *n, int *ret_e)
{
	int e = filedata_snapshot(n->data, &n->snapshot);

	if (!e && (e = filedata_flush(n->data))) {
		filedata_snapshot_fini(&n->snapshot);
		filedata_not_confirmed(n->data);
	}
	if (e) {
		log_error("the content of inode %llu could not be flushed, its last committed state stays: %s", (unsigned long long)n->row,
			strerror(-e));
		*ret_e = e;
		return;
	}
	n->snapshot_taken = true;
}

/* Gate exclusive: contents as they are now, on disk. A file whose flush fails keeps its committed content, and the error is returned once all
 * others are through. */
static int snapshots(struct txn *t, const struct concern *c, int *ret_data_error)
{
	struct volume *v = t->v;
	int e = gather(v, c, &t->confirm, &t->n_confirm);

	for (uint32_t i = 0; i < t->n_confirm && !e; i++)
		take_snapshot(t->confirm[i], ret_data_error);
	/* nodes without a name: which object do they have that was never committed? (filedata's lock comes before the tree's) */
	struct vnode **doomed = NULL;
	uint32_t n = 0;
	tree_lock(v);
	for (struct list *i = v->dirty_nodes.next; i != &v->dirty_nodes && !e; i = i->next) {
		struct vnode *d = LIST_OF(i, struct vnode, at);
		if (d->data && (d->flags & VN_DATA_DIRTY) && ((d->flags & VN_ORPHAN) || ((d->flags & VN_DOOMED) && !d->pins) || !node_has_name(v, d)))
			e = txn_list(&doomed, &n, d);
	}
	tree_unlock(v);
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = NULL;
		if (!filedata_object(doomed[i]->data, &o) && o && object_local(o) != doomed[i]->local)
			doomed[i]->stray = object_local(o);
	}
	free(doomed);
	t->strays_known = !e;
	return e ? e : redo_flush(v);
}

/* ---- after the flush ---- */
static void confirm(struct txn *t, bool committed)
{
	struct volume *v = t->v;

	for (uint32_t i = 0; i < t->n_confirm; i++) {
		struct vnode *n = t->confirm[i];
		uint64_t retired;
		if (!n->snapshot_taken)
			continue;
		if (committed)
			filedata_confirmed(n->data, &retired);
		else
			filedata_not_confirmed(n->data);
		bool dirty = filedata_dirty(n->data);
		tree_lock(v);
		filedata_snapshot_fini(&n->snapshot);
		n->snapshot_taken = false;
		if (dirty) { /* it was written meanwhile */
			n->flags |= VN_DATA_DIRTY;
			vnode_dirty(v, n);
		}
		tree_unlock(v);
	}
	release(v, t->confirm, t->n_confirm);
	t->confirm = NULL;
	t->n_confirm = 0;
}

static void bury(struct txn *t)
{
	struct volume *v = t->v;

	for (uint32_t i = 0; i < t->n_dead; i++) {
		struct vnode *n = t->dead[i];
		filedata_free(n->data);
		tree_lock(v);
		n->data = NULL;
		vnode_drop(v, n);
		tree_unlock(v);
	}
	for (uint32_t i = 0; i < t->n_trash; i++)
		object_remove(v->objects, t->trash[i]);
	if (!t->n_trash)
		return;
	tree_lock(v);
	uint64_t *p = reallocarray(v->trash_gone, v->n_trash_gone + t->n_trash, sizeof *p);
	if (p) { /* else the rows stay until the next open */
		memcpy(p + v->n_trash_gone, t->trash, t->n_trash * sizeof *p);
		v->trash_gone = p;
		v->n_trash_gone += t->n_trash;
	}
	tree_unlock(v);
}

static int flush_wal(struct volume *v)
{
	uint64_t start = stats_now_ns();

	if (!v->unflushed)
		return 0;
	int e = journal_flush(v->journal);
	stats_since(v->stats, STAGE_WAL_FLUSH, start);
	if (e) {
		volume_fail(v, "journal.db", e);
		return e;
	}
	v->unflushed = false;
	struct vector k;
	tree_lock(v);
	if (!(e = vector_copy(&k, &v->knowledge))) {
		vector_fini(&v->knowledge_flushed);
		v->knowledge_flushed = k;
	}
	tree_unlock(v);
	return e;
}

static int checkpoint_if_long(struct volume *v)
{
	if (journal_wal_bytes(v->journal) < WAL_MAX_BYTES)
		return 0;
	uint64_t start = stats_now_ns();
	tree_lock(v);
	int e = journal_checkpoint(v->journal);
	tree_unlock(v);
	stats_since(v->stats, STAGE_CHECKPOINT, start);
	return e;
}

/* After the gate was left: makes it durable and lets go what waited for that. */
static int finish(struct txn *t, int e)
{
	struct volume *v = t->v;

	if (!e)
		e = flush_wal(v);
	confirm(t, !e);
	if (!e) {
		bury(t);
		e = object_store_committed(v->objects, v->txn);
		if (!e)
			e = checkpoint_if_long(v);
	}
	for (int i = 0; i < 3; i++)
		buf_fini(&t->record[i]);
	free(t->dead);
	free(t->trash);
	return e;
}

static int writable(struct volume *v) { return v->read_only ? -EROFS : 0; }

static int run(struct volume *v, const struct concern *c)
{
	static const struct txn_hook none;
	struct txn t = {.v = v};
	int data_error = 0, e = writable(v);

	if (e)
		return v->options.read_only ? 0 : e;
	e = flush_early(v, c);
	if (e)
		return e;
	gate_exclusive(v);
	e = snapshots(&t, c, &data_error);
	if (!e && c->all && !data_error) {
		uint64_t next = object_store_next_local(v->objects);
		tree_lock(v);
		uint32_t gone = v->n_trash_gone;
		tree_unlock(v);
		/* else a power cut brings files back of which nothing says any more that they were to go */
		bool synced = !object_store_sync_removals(v->objects);
		t.n_gone = synced ? gone : 0;
		tree_lock(v);
		if (synced)
			v->local_floor = v->n_adopting && v->adopting_from < next ? v->adopting_from : next;
		tree_unlock(v);
	}
	e = e ? e : txn_write(&t, &none);
	gate_leave(v);
	e = finish(&t, e);
	return e ? e : data_error;
}

static uint64_t enqueue(struct commit_queue *q, inum only)
{
	pthread_mutex_lock(&q->mu);
	uint64_t generation = q->gathering;
	if (!only) {
		q->all = true;
	} else {
		inum *p = reallocarray(q->want, q->n_want + 1, sizeof *p);
		if (p) {
			q->want = p;
			p[q->n_want++] = only;
		} else {
			q->all = true;
		}
	}
	pthread_mutex_unlock(&q->mu);
	return generation;
}

static void tell_listener(struct volume *v)
{
	tree_lock(v);
	void (*fn)(void *ctx) = v->commit_fn;
	void *ctx = v->commit_ctx;
	tree_unlock(v);
	if (fn)
		fn(ctx);
}

int commit_run(struct volume *v, inum only)
{
	struct commit_queue *q = v->queue;
	uint64_t mine = enqueue(q, only);

	pthread_mutex_lock(&v->commit_mu);
	pthread_mutex_lock(&q->mu);
	if (q->done >= mine) {
		int e = q->result[mine % RESULTS];
		pthread_mutex_unlock(&q->mu);
		pthread_mutex_unlock(&v->commit_mu);
		return e;
	}
	struct concern c = {.want = q->want, .n_want = q->n_want, .all = q->all};
	inum *want = q->want;
	q->want = NULL;
	q->n_want = 0;
	q->all = false;
	mine = q->gathering++;
	pthread_mutex_unlock(&q->mu);
	uint64_t before = v->txn;
	int e = run(v, &c);
	bool wrote = v->txn != before;
	pthread_mutex_lock(&q->mu);
	q->done = mine;
	q->result[mine % RESULTS] = e;
	pthread_mutex_unlock(&q->mu);
	pthread_mutex_unlock(&v->commit_mu);
	free(want);
	if (wrote)
		tell_listener(v);
	return e;
}

int volume_commit(struct volume *v) { return commit_run(v, 0); }

/* ---- apply ---- */
int apply_begin(struct volume *v)
{
	static const struct txn_hook none;
	const struct concern all = {.all = true};
	struct txn t = {.v = v};
	int data_error = 0, e;

	pthread_mutex_lock(&v->commit_mu);
	e = writable(v);
	e = e ? e : flush_early(v, &all);
	if (e) {
		pthread_mutex_unlock(&v->commit_mu);
		return e;
	}
	gate_exclusive(v);
	e = snapshots(&t, &all, &data_error);
	e = e ? e : txn_write(&t, &none);
	e = finish(&t, e);
	if (e) {
		gate_leave(v);
		pthread_mutex_unlock(&v->commit_mu);
	}
	return e;
}

void apply_cancel(struct volume *v)
{
	gate_leave(v);
	pthread_mutex_unlock(&v->commit_mu);
	tell_listener(v);
}

int apply_end(struct volume *v, const struct vector *knowledge, int (*in_txn)(void *ctx), void *ctx)
{
	const struct txn_hook h = {.fn = in_txn, .ctx = ctx, .knowledge = knowledge};
	struct txn t = {.v = v};
	int e = txn_write(&t, &h);

	gate_leave(v);
	e = finish(&t, e);
	pthread_mutex_unlock(&v->commit_mu);
	if (!e)
		tell_listener(v);
	return e;
}

int commit_rows(struct volume *v, int (*fn)(struct volume *v, void *ctx), void *ctx)
{
	pthread_mutex_lock(&v->commit_mu);
	int e = writable(v);
	if (!e) {
		tree_lock(v);
		e = journal_begin(v->journal);
		e = e ? e : fn(v, ctx);
		e = e ? e : journal_commit(v->journal);
		if (e)
			journal_rollback(v->journal);
		else
			v->unflushed = true;
		tree_unlock(v);
		e = e ? e : flush_wal(v);
	}
	pthread_mutex_unlock(&v->commit_mu);
	return e;
}
