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
#define YIELD_ITEMS 128 /* rows written before others get the tree for a moment */
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
	free(v->trash_pending);
	free(v->trash_gone);
	v->trash_pending = v->trash_gone = NULL;
}

struct stamp txn_stamp(struct txn *t)
{
	t->clock_ns = clock_next(t->clock_ns, t->wall_ns);
	return (struct stamp){t->clock_ns, {t->v->self, ++t->counter}};
}

int txn_dot(struct txn *t, uint8_t kind, uint64_t owner, struct dot dot, struct dot old)
{
	const struct dot_row row = {.dot = dot, .kind = kind, .owner = owner, .seq = ++t->seq};
	int e = old.counter && !dot_eq(old, dot) ? journal_dot_delete(t->v->journal, old) : 0;

	return e ? e : journal_dot_put(t->v->journal, &row);
}

void txn_roots(struct txn *t, struct blob old, bool old_live, struct blob fresh, bool fresh_live)
{
	struct root term;

	if (old.p) {
		keyring_record_term(t->v->keys, old.p, old.len, &term);
		root_sub(&t->all, &term);
		if (old_live)
			root_sub(&t->live, &term);
	}
	if (fresh.p) {
		if (fresh.p != old.p)
			keyring_record_term(t->v->keys, fresh.p, fresh.len, &term);
		root_add(&t->all, &term);
		if (fresh_live)
			root_add(&t->live, &term);
	}
}

int txn_list(struct vnode ***list, uint32_t *n, struct vnode *x)
{
	if (!(*n & (*n - 1))) { /* grows at powers of two */
		struct vnode **p = reallocarray(*list, *n ? *n * 2 : 1, sizeof(struct vnode *));
		if (!p)
			return -ENOMEM;
		*list = p;
	}
	(*list)[(*n)++] = x;
	return 0;
}

int object_trash(struct volume *v, uint64_t local)
{
	if (v->writing)
		return txn_trash(v->writing, local);
	uint64_t *p = reallocarray(v->trash_pending, v->n_trash_pending + 1, sizeof *p);
	if (!p)
		return -ENOMEM;
	v->trash_pending = p;
	p[v->n_trash_pending++] = local;
	return 0;
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
	for (uint32_t i = 0; i < c->n_want; i++)
		if (c->want[i] == n->row)
			return true;
	return false;
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
		if (!has_change(n) || (n->flags & VN_ORPHAN) || n->snapshot_taken || !wanted(c, n))
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

	if (n > SYNCFS_OBJECTS)
		syncfs(v->dirfd);
	for (uint32_t i = 0; i < n; i++)
		filedata_flush(list[i]->data); /* a failure shows again below, where it counts */
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
	/* doomed nodes: which object do they have that was never committed? (filedata's lock comes before the tree's) */
	struct vnode **doomed = NULL;
	uint32_t n = 0;
	tree_lock(v);
	for (struct list *i = v->dirty_nodes.next; i != &v->dirty_nodes && !e; i = i->next) {
		struct vnode *d = LIST_OF(i, struct vnode, at);
		if ((d->flags & VN_DOOMED) && d->data && (d->flags & VN_DATA_DIRTY) && !d->pins)
			e = txn_list(&doomed, &n, d);
	}
	tree_unlock(v);
	for (uint32_t i = 0; i < n; i++) {
		struct object *o = NULL;
		if (!filedata_object(doomed[i]->data, &o) && o && object_local(o) != doomed[i]->local)
			doomed[i]->stray = object_local(o);
	}
	free(doomed);
	return e ? e : redo_flush(v);
}

/* ---- the transaction ---- */
static int write_rows(struct txn *t)
{
	struct volume *v = t->v;
	uint32_t done = 0;
	int e = 0;

	for (struct list *i = v->dirty_nodes.next; i != &v->dirty_nodes && !e; i = i->next) {
		e = write_node(t, LIST_OF(i, struct vnode, at));
		if (++done % YIELD_ITEMS == 0) {
			tree_unlock(v);
			tree_lock(v);
		}
	}
	for (struct list *i = v->dirty_links.next; i != &v->dirty_links && !e; i = i->next) {
		e = write_link(t, LIST_OF(i, struct vlink, at));
		if (++done % YIELD_ITEMS == 0) {
			tree_unlock(v);
			tree_lock(v);
		}
	}
	return e;
}

static int write_trash(struct txn *t)
{
	struct volume *v = t->v;
	int e = 0;

	for (uint32_t i = 0; i < v->n_trash_pending && !e; i++)
		e = txn_trash(t, v->trash_pending[i]);
	for (uint32_t i = 0; i < v->n_trash_gone && !e; i++)
		e = journal_trash_delete(v->journal, v->trash_gone[i]);
	return e;
}

struct hook {
	int (*fn)(void *ctx);
	void *ctx;
	const struct vector *knowledge;
};

static int next_knowledge(struct txn *t, const struct hook *h, struct vector *ret)
{
	struct volume *v = t->v;
	int e = vector_copy(ret, &v->knowledge);

	e = e ? e : vector_join(ret, &v->pending_knowledge);
	if (!e && h->knowledge)
		e = vector_join(ret, h->knowledge);
	if (!e && t->counter)
		e = vector_add(ret, (struct dot){v->self, t->counter});
	return e;
}

static void txn_start(struct txn *t)
{
	struct volume *v = t->v;

	t->number = v->txn + 1;
	t->counter = v->counter;
	t->clock_ns = v->clock_ns;
	t->seq = v->seq;
	t->wall_ns = env_wall_ns(v->env);
	t->all = v->root_all;
	t->live = v->root_live;
	t->base_bytes = v->base_bytes;
	t->n_trash = t->n_dead = 0;
}

static void txn_undo(struct txn *t)
{
	struct volume *v = t->v;

	journal_rollback(v->journal);
	for (struct list *i = v->dirty_nodes.next; i != &v->dirty_nodes; i = i->next)
		node_not_written(LIST_OF(i, struct vnode, at));
	for (struct list *i = v->dirty_links.next; i != &v->dirty_links; i = i->next)
		link_not_written(LIST_OF(i, struct vlink, at));
	for (uint32_t i = 0; i < t->n_dead; i++)
		t->dead[i]->pins--;
	t->n_dead = 0;
}

static void memory_follows(struct txn *t, struct vector *knowledge)
{
	struct volume *v = t->v;

	for (struct list *i = v->dirty_nodes.next, *next; i != &v->dirty_nodes; i = next) {
		next = i->next;
		node_written(t, LIST_OF(i, struct vnode, at));
	}
	for (struct list *i = v->dirty_links.next, *next; i != &v->dirty_links; i = next) {
		next = i->next;
		link_written(t, LIST_OF(i, struct vlink, at));
	}
	v->txn = t->number;
	v->counter = t->counter;
	v->clock_ns = t->clock_ns;
	v->seq = t->seq;
	v->root_all = t->all;
	v->root_live = t->live;
	v->base_bytes = t->base_bytes;
	vector_fini(&v->knowledge);
	v->knowledge = *knowledge;
	*knowledge = (struct vector){0};
	vector_fini(&v->pending_knowledge);
	v->n_trash_pending = v->n_trash_gone = 0;
	v->others_changed = v->peers_changed = false;
	v->unflushed = true;
	object_store_set_txn(v->objects, v->txn + 1);
}

/* Under tree_mu, gate exclusive. 0 or what SQLite said; then all is as before. */
static int transaction(struct txn *t, const struct hook *h)
{
	struct volume *v = t->v;
	struct vector knowledge = {0};
	int e;

	txn_start(t);
	v->writing = t;
	e = journal_begin(v->journal);
	e = e ? e : write_rows(t);
	if (!e && h->fn)
		e = h->fn(h->ctx);
	e = e ? e : bases_expire(t);
	e = e ? e : write_trash(t);
	if (!e && v->peers_changed)
		e = peers_write(v);
	e = e ? e : next_knowledge(t, h, &knowledge);
	e = e ? e : head_write(t, &knowledge);
	e = e ? e : journal_commit(v->journal);
	v->writing = NULL;
	if (e)
		txn_undo(t);
	else
		memory_follows(t, &knowledge);
	vector_fini(&knowledge);
	return e;
}

static bool something_to_write(const struct volume *v, const struct hook *h)
{
	return v->n_dirty_nodes || v->n_dirty_links || v->n_trash_pending || v->pending_knowledge.n || v->others_changed || h->fn ||
	       h->knowledge;
}

static uint64_t base_budget(struct volume *v)
{
	struct statvfs s;

	if (v->alone || fstatvfs(v->dirfd, &s))
		return 0;
	uint64_t size = s.f_blocks * s.f_frsize / 20, spare = s.f_bavail * s.f_frsize / 4;
	return size < spare ? size : spare;
}

/* Gives up what was set aside, once. */
static bool give_reserve(struct volume *v)
{
	if (unlinkat(v->dirfd, "reserve", 0))
		return false;
	log_warn("%s: the disk is full, the reserve was given up", v->path);
	return true;
}

/* Gate exclusive. */
static int write_all(struct txn *t, const struct hook *h)
{
	struct volume *v = t->v;
	uint64_t start = stats_now_ns();
	int e = 0;

	t->base_budget = base_budget(v);
	tree_lock(v);
	if (something_to_write(v, h)) {
		e = transaction(t, h);
		if (e == -ENOSPC && give_reserve(v))
			e = transaction(t, h);
		stats_since(v->stats, STAGE_COMMIT, start);
	}
	tree_unlock(v);
	if (e)
		log_error("%s: the journal's transaction failed and will be tried again: %s", v->path, strerror(-e));
	return e;
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
	static const struct hook none;
	struct txn t = {.v = v};
	int data_error = 0, e = writable(v);

	if (e)
		return v->options.read_only ? 0 : e;
	e = flush_early(v, c);
	if (e)
		return e;
	gate_exclusive(v);
	e = snapshots(&t, c, &data_error);
	if (!e && c->all && !data_error)
		v->local_floor = object_store_next_local(v->objects);
	e = e ? e : write_all(&t, &none);
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
	static const struct hook none;
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
	e = e ? e : write_all(&t, &none);
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
	const struct hook h = {.fn = in_txn, .ctx = ctx, .knowledge = knowledge};
	struct txn t = {.v = v};
	int e = write_all(&t, &h);

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
