/* Slabs are kept until the pool goes: what was needed once is needed again. */
#include "pool.h"

#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_LEN (64u << 10)

/* Both lie at the start of guarded memory: a link in each slab, and one in each free item. */
struct link {
	struct link *next;
};
#define SLAB_HEAD 64 /* keeps the items' alignment */

struct pool {
	pthread_mutex_t mutex; /* all below */
	size_t item_len;
	struct link *slabs, *free;
	size_t refs; /* the owner's and one an item */
};

struct pool *pool_new(size_t item_len)
{
	struct pool *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	pthread_mutex_init(&p->mutex, NULL);
	p->item_len = item_len;
	p->refs = 1;
	return p;
}

/* Under the mutex. False without memory. */
static bool add_slab(struct pool *p)
{
	size_t n = (SLAB_LEN - SLAB_HEAD) / p->item_len;
	struct link *slab;

	if (!n)
		n = 1;
	slab = sodium_malloc(SLAB_HEAD + n * p->item_len);
	if (!slab)
		return false;
	slab->next = p->slabs;
	p->slabs = slab;
	for (size_t i = 0; i < n; i++) {
		struct link *item = (void *)((char *)slab + SLAB_HEAD + i * p->item_len);
		item->next = p->free;
		p->free = item;
	}
	return true;
}

void *pool_get(struct pool *p)
{
	struct link *item = NULL;

	pthread_mutex_lock(&p->mutex);
	if (p->free || add_slab(p)) {
		item = p->free;
		p->free = item->next;
		p->refs++;
	}
	pthread_mutex_unlock(&p->mutex);
	if (item)
		memset(item, 0, p->item_len);
	return item;
}

/* Unlocks, and frees the pool where that was the last reference. */
static void drop(struct pool *p)
{
	size_t refs = --p->refs;

	pthread_mutex_unlock(&p->mutex);
	if (refs)
		return;
	while (p->slabs) {
		struct link *slab = p->slabs;
		p->slabs = slab->next;
		sodium_free(slab);
	}
	pthread_mutex_destroy(&p->mutex);
	free(p);
}

void pool_put(struct pool *p, void *item)
{
	struct link *l = item;

	sodium_memzero(item, p->item_len);
	pthread_mutex_lock(&p->mutex);
	l->next = p->free;
	p->free = l;
	drop(p);
}

void pool_release(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->mutex);
	drop(p);
}
