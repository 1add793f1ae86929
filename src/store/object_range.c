/* What a writer settles under the object's lock before it works outside of it: its pages, its nonces, which of its pages
 * are protected; and snapshots of the map. */
#include "object_internal.h"

#include <errno.h>

static bool range_free(struct object *o, uint64_t first, uint64_t end)
{
	for (struct range *r = o->ranges; r; r = r->next)
		if (r->first < end && first < r->end)
			return false;
	if (o->n_orphans)
		return false;
	if (!o->n_applying)
		return true;
	if (end - first <= GROUP_PAGES) {
		for (uint64_t p = first; p < end; p++) {
			struct pending *n = pending_find(&o->pending, p);
			if (n && (n->applying || (n->older && n->older->applying)))
				return false;
		}
		return true;
	}
	return false; /* a long range waits for all that is being written in place: rare and short */
}

void range_take(struct object *o, struct range *r, uint64_t first, uint64_t n)
{
	uint64_t end = n > UINT64_MAX - first ? UINT64_MAX : first + n;

	while (o->snapshots_waiting || !range_free(o, first, end))
		pthread_cond_wait(&o->changed, &o->lock);
	*r = (struct range){o->ranges, first, end};
	o->ranges = r;
	o->n_ranges++;
}

void range_give(struct object *o, struct range *r)
{
	struct range **p = &o->ranges;

	while (*p != r)
		p = &(*p)->next;
	*p = r->next;
	o->n_ranges--;
	pthread_cond_broadcast(&o->changed);
}

void nonces_take(struct object *o, uint32_t n, uint8_t ret_prefix[static NONCE_PREFIX_LEN], uint64_t *ret_counter)
{
	struct nonces *c = &o->nonces;
	uint64_t now = env_mono_ns(o->s->env), generation = atomic_load(&object_fork_generation);

	/* Quiet: a machine that was suspended, or a memory image that was resumed twice, most likely was quiet before. */
	if (!c->drawn || c->used + n > NONCE_RUN_MAX || now - c->last_ns > NONCE_QUIET_NS ||
	    c->fork_generation != generation) {
		env_random(o->s->env, c->prefix, NONCE_PREFIX_LEN);
		c->used = 0;
		c->drawn = true;
		c->fork_generation = generation;
	}
	memcpy(ret_prefix, c->prefix, NONCE_PREFIX_LEN);
	*ret_counter = c->used;
	c->used += n;
	c->last_ns = now;
}

bool map_has(const struct page_map *m, uint64_t page) { return page < m->pages && !extents_has(&m->holes, page); }

int map_present(const struct page_map *m, struct extents *ret)
{
	struct extents x = {0};
	int r = extents_reserve(&x, m->holes.n + 1);
	uint64_t at = 0;

	if (r)
		return r;
	for (uint32_t i = 0; i < m->holes.n && m->holes.e[i].first < m->pages; i++) {
		const struct extent *h = &m->holes.e[i];
		extents_add(&x, at, h->first - at);
		at = h->first + h->count;
	}
	if (at < m->pages)
		extents_add(&x, at, m->pages - at);
	*ret = x;
	return 0;
}

/* What only an older content needed is free once the commit that no longer names it is flushed. */
void protect_settle(struct object *o)
{
	if (!o->has_next || o->next_txn > atomic_load(&o->s->committed))
		return;
	extents_fini(&o->protect);
	o->protect = o->next;
	o->next = (struct extents){0};
	o->has_next = false;
}

/* A change after the snapshot for transaction T belongs to a later one, although T may still be open when it is made:
 * else replay would take it for a part of what T committed. */
uint64_t record_txn(struct object *o)
{
	uint64_t txn = atomic_load(&o->s->txn);
	return txn > o->min_txn ? txn : o->min_txn;
}

static int protect_present(struct object *o)
{
	struct extents present = {0};
	uint64_t txn = atomic_load(&o->s->txn);
	int r = map_present(&o->map, &present);

	for (uint32_t i = 0; !r && i < present.n; i++)
		r = extents_add(&o->protect, present.e[i].first, present.e[i].count);
	if (r) {
		extents_fini(&present);
		return r;
	}
	extents_fini(&o->next);
	o->next = present;
	o->next_txn = txn;
	o->has_next = true;
	o->shrunk = false;
	if (o->min_txn < txn + 1)
		o->min_txn = txn + 1;
	return 0;
}

int object_snapshot(struct object *o, struct page_map *ret, struct root *ret_root)
{
	struct extents holes = {0};
	int r;

	pthread_mutex_lock(&o->lock);
	o->snapshots_waiting++;
	while (o->ranges)
		pthread_cond_wait(&o->changed, &o->lock);
	protect_settle(o);
	r = ret ? extents_copy(&holes, &o->map.holes) : 0;
	if (!r)
		r = protect_present(o);
	if (!r && ret) {
		*ret = (struct page_map){o->map.pages, holes};
		*ret_root = o->root;
		atomic_store(&o->logged, false);
	} else {
		extents_fini(&holes);
	}
	o->snapshots_waiting--;
	pthread_cond_broadcast(&o->changed);
	pthread_mutex_unlock(&o->lock);
	return r;
}

bool object_logged(const struct object *o) { return atomic_load(&o->logged); }

void object_not_committed(struct object *o) { atomic_store(&o->logged, true); }

int object_protect(struct object *o) { return object_snapshot(o, NULL, NULL); }

void object_map(struct object *o, struct page_map *ret, struct root *ret_root)
{
	struct extents holes = {0};

	pthread_mutex_lock(&o->lock);
	if (extents_copy(&holes, &o->map.holes))
		holes = (struct extents){0};
	*ret = (struct page_map){o->map.pages, holes};
	*ret_root = o->root;
	pthread_mutex_unlock(&o->lock);
}
