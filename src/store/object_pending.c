/* Sealed pages that wait in memory for being written in place, and the store's pools of them and of group buffers: at a gigabyte
 * a second fresh memory from the kernel would cost as much as sealing. */
#include "object_internal.h"

#include <errno.h>
#include <stdlib.h>

#define IDLE_NODES_MAX 256 /* kept by a store that has nothing pending */
#define FREE_BUFS_MAX 16

struct pending *node_get(struct object_store *s)
{
	struct pending *p;

	if (atomic_fetch_add(&s->nodes_used, 1) >= PENDING_NODES_MAX) {
		atomic_fetch_sub(&s->nodes_used, 1);
		return NULL;
	}
	pthread_mutex_lock(&s->pool_lock);
	p = s->free_nodes;
	if (p) {
		s->free_nodes = p->next;
		s->n_free_nodes--;
	}
	pthread_mutex_unlock(&s->pool_lock);
	if (!p)
		p = malloc(sizeof(*p));
	if (!p) {
		atomic_fetch_sub(&s->nodes_used, 1);
		return NULL;
	}
	p->next = p->older = NULL;
	p->applying = p->remote = false;
	return p;
}

void node_put(struct object_store *s, struct pending *p)
{
	while (p) {
		struct pending *older = p->older;
		bool kept;
		atomic_fetch_sub(&s->nodes_used, 1);
		pthread_mutex_lock(&s->pool_lock);
		kept = s->n_free_nodes < PENDING_NODES_MAX;
		if (kept) {
			p->next = s->free_nodes;
			s->free_nodes = p;
			s->n_free_nodes++;
		}
		pthread_mutex_unlock(&s->pool_lock);
		if (!kept)
			free(p);
		p = older;
	}
}

void nodes_trim(struct object_store *s)
{
	struct pending *go = NULL;

	pthread_mutex_lock(&s->pool_lock);
	while (s->n_free_nodes > IDLE_NODES_MAX) {
		struct pending *p = s->free_nodes;
		s->free_nodes = p->next;
		s->n_free_nodes--;
		p->next = go;
		go = p;
	}
	pthread_mutex_unlock(&s->pool_lock);
	while (go) {
		struct pending *p = go;
		go = p->next;
		free(p);
	}
}

static uint32_t bucket_of(const struct pending_table *t, uint64_t page)
{
	return (uint32_t)(page * 0x9e3779b97f4a7c15u >> 32) & (t->n_buckets - 1);
}

struct pending *pending_find(const struct pending_table *t, uint64_t page)
{
	struct pending *p;

	if (!t->n)
		return NULL;
	p = t->bucket[bucket_of(t, page)];
	while (p && p->page != page)
		p = p->next;
	return p;
}

int pending_reserve(struct pending_table *t, uint32_t extra)
{
	struct pending_table bigger = {.n_buckets = t->n_buckets ? t->n_buckets : 16};

	if (t->n_buckets && t->n + extra <= 2 * t->n_buckets)
		return 0;
	while (bigger.n_buckets < t->n + extra)
		bigger.n_buckets *= 2;
	bigger.bucket = calloc(bigger.n_buckets, sizeof(*bigger.bucket));
	if (!bigger.bucket)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n_buckets; i++)
		while (t->bucket[i]) {
			struct pending *p = t->bucket[i], **to = &bigger.bucket[bucket_of(&bigger, p->page)];
			t->bucket[i] = p->next;
			p->next = *to;
			*to = p;
		}
	bigger.n = t->n;
	free(t->bucket);
	*t = bigger;
	return 0;
}

struct pending *pending_take(struct pending_table *t, uint64_t page)
{
	struct pending **at, *p;

	if (!t->n)
		return NULL;
	at = &t->bucket[bucket_of(t, page)];
	while (*at && (*at)->page != page)
		at = &(*at)->next;
	p = *at;
	if (p) {
		*at = p->next;
		p->next = NULL;
		t->n--;
	}
	return p;
}

struct pending *pending_put(struct pending_table *t, struct pending *p)
{
	struct pending *replaced = pending_take(t, p->page);
	struct pending **at = &t->bucket[bucket_of(t, p->page)];

	p->next = *at;
	*at = p;
	t->n++;
	return replaced;
}

void pending_drop(struct object *o, struct pending *p)
{
	struct pending *older = p->older;

	p->older = NULL;
	if (older && older->applying)
		o->n_orphans++;
	else
		node_put(o->s, older);
	if (p->applying)
		o->n_orphans++;
	else
		node_put(o->s, p);
}

void pending_fini(struct object_store *s, struct pending_table *t)
{
	for (uint32_t i = 0; i < t->n_buckets; i++)
		while (t->bucket[i]) {
			struct pending *p = t->bucket[i];
			t->bucket[i] = p->next;
			node_put(s, p);
		}
	free(t->bucket);
	*t = (struct pending_table){0};
}

void *group_buf_get(struct object_store *s)
{
	void *p;

	pthread_mutex_lock(&s->pool_lock);
	p = s->free_bufs;
	if (p) {
		memcpy(&s->free_bufs, p, sizeof(void *));
		s->n_free_bufs--;
	}
	pthread_mutex_unlock(&s->pool_lock);
	if (!p && posix_memalign(&p, PAGE_LEN, (size_t)GROUP_PAGES * PAGE_LEN))
		return NULL;
	return p;
}

void group_buf_put(struct object_store *s, void *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&s->pool_lock);
	if (s->n_free_bufs < FREE_BUFS_MAX) {
		memcpy(p, &s->free_bufs, sizeof(void *));
		s->free_bufs = p;
		s->n_free_bufs++;
		p = NULL;
	}
	pthread_mutex_unlock(&s->pool_lock);
	free(p);
}
