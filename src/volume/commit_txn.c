/* One transaction: rows, head, COMMIT, and memory that follows it. Gate exclusive; commit.c orders what comes before and after. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "commit.h"

#define YIELD_ITEMS 128 /* rows written before others get the tree for a moment */

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
	for (uint32_t i = 0; i < t->n_gone && !e; i++)
		e = journal_trash_delete(v->journal, v->trash_gone[i]);
	return e;
}

static int next_knowledge(struct txn *t, const struct txn_hook *h, struct vector *ret)
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
	v->n_trash_pending = v->n_renumber = 0;
	v->n_trash_gone -= t->n_gone;
	if (t->n_gone)
		memmove(v->trash_gone, v->trash_gone + t->n_gone, v->n_trash_gone * sizeof *v->trash_gone);
	v->others_changed = v->peers_changed = v->starts_changed = v->hold.changed = false;
	v->unflushed = true;
	object_store_set_txn(v->objects, v->txn + 1);
}

/* Under tree_mu, gate exclusive. 0 or what SQLite said; then all is as before. */
static int transaction(struct txn *t, const struct txn_hook *h)
{
	struct volume *v = t->v;
	struct vector knowledge = {0};
	int e;

	txn_start(t);
	v->writing = t;
	e = journal_begin(v->journal);
	e = e ? e : renumber_write(t);
	e = e ? e : write_rows(t);
	if (!e && h->fn)
		e = h->fn(h->ctx);
	e = e ? e : bases_expire(t);
	e = e ? e : write_trash(t);
	if (!e && v->peers_changed)
		e = peers_write(v);
	if (!e && v->hold.changed)
		e = hold_write(v);
	if (!e && v->starts_changed)
		e = starts_write(v);
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

static bool something_to_write(const struct volume *v, const struct txn_hook *h)
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
	v->reserve_gone = true;
	log_warn("%s: the disk is full, the reserve was given up", v->path);
	return true;
}

/* Gate exclusive. */
int txn_write(struct txn *t, const struct txn_hook *h)
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
	/* a quota does not show in the free space of the filesystem: until a transaction succeeds, no more is taken on that it would have to carry */
	v->commit_full = e == -ENOSPC;
	tree_unlock(v);
	if (e)
		log_error("%s: the journal's transaction failed and will be tried again: %s", v->path, strerror(-e));
	return e;
}
