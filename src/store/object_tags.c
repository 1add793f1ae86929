/* Tag pages in memory: a bounded set for the whole store, the least recently used one goes first. What is in it is what the file has:
 * writers change the file first. A page that changes while it is being read in is read again. */
#include "object_internal.h"

#include <errno.h>
#include <stdlib.h>

struct tag_page {
	struct tag_page *next;         /* hash chain */
	struct tag_page *newer, *older; /* all but those being loaded */
	uint64_t key, group;
	bool loading, stale;
	uint8_t bytes[PAGE_LEN];
};

struct tag_cache {
	pthread_mutex_t lock; /* everything */
	pthread_cond_t loaded;
	struct tag_page **bucket;
	uint32_t n_buckets, n, max;
	struct tag_page *newest, *oldest;
};

struct tag_cache *tag_cache_new(uint32_t pages)
{
	struct tag_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->max = pages;
	c->n_buckets = 1;
	while (c->n_buckets < pages)
		c->n_buckets *= 2;
	c->bucket = calloc(c->n_buckets, sizeof(*c->bucket));
	if (!c->bucket) {
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->loaded, NULL);
	return c;
}

void tag_cache_free(struct tag_cache *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->n_buckets; i++)
		while (c->bucket[i]) {
			struct tag_page *t = c->bucket[i];
			c->bucket[i] = t->next;
			free(t);
		}
	free(c->bucket);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->loaded);
	free(c);
}

static struct tag_page **bucket_of(struct tag_cache *c, uint64_t key, uint64_t group)
{
	uint64_t h = (key * 0x9e3779b97f4a7c15u) ^ (group * 0xc2b2ae3d27d4eb4fu);
	return &c->bucket[(h >> 24) & (c->n_buckets - 1)];
}

static struct tag_page *find(struct tag_cache *c, uint64_t key, uint64_t group)
{
	struct tag_page *t = *bucket_of(c, key, group);

	while (t && (t->key != key || t->group != group))
		t = t->next;
	return t;
}

static void list_remove(struct tag_cache *c, struct tag_page *t)
{
	if (t->newer)
		t->newer->older = t->older;
	else
		c->newest = t->older;
	if (t->older)
		t->older->newer = t->newer;
	else
		c->oldest = t->newer;
}

static void list_push(struct tag_cache *c, struct tag_page *t)
{
	t->newer = NULL;
	t->older = c->newest;
	if (c->newest)
		c->newest->newer = t;
	else
		c->oldest = t;
	c->newest = t;
}

static void drop(struct tag_cache *c, struct tag_page *t)
{
	struct tag_page **p = bucket_of(c, t->key, t->group);

	while (*p != t)
		p = &(*p)->next;
	*p = t->next;
	if (!t->loading)
		list_remove(c, t);
	c->n--;
	free(t);
}

static void used(struct tag_cache *c, struct tag_page *t)
{
	if (c->newest != t) {
		list_remove(c, t);
		list_push(c, t);
	}
}

/* A page in state loading, not in the list; NULL without memory. */
static struct tag_page *add(struct tag_cache *c, uint64_t key, uint64_t group)
{
	struct tag_page **p = bucket_of(c, key, group), *t;

	while (c->n >= c->max && c->oldest)
		drop(c, c->oldest);
	p = bucket_of(c, key, group);
	t = malloc(sizeof(*t));
	if (!t)
		return NULL;
	t->key = key;
	t->group = group;
	t->loading = true;
	t->stale = false;
	t->next = *p;
	*p = t;
	c->n++;
	return t;
}

static int read_page(struct object *o, uint64_t group, uint8_t *ret)
{
	ssize_t n;
	int fd, r = fd_get(o, &fd);

	if (r)
		return r;
	n = full_pread(fd, ret, PAGE_LEN, tags_off(group));
	fd_put(o);
	if (n < 0)
		return (int)n;
	stats_add(o->s->st, COUNT_OBJECT_BYTES_READ, (uint64_t)n);
	memset(ret + n, 0, PAGE_LEN - (size_t)n);
	return 0;
}

/* Lock held, dropped while reading. */
static int load(struct object *o, struct tag_cache *c, struct tag_page *t)
{
	int r;

	do {
		t->stale = false;
		pthread_mutex_unlock(&c->lock);
		r = read_page(o, t->group, t->bytes);
		pthread_mutex_lock(&c->lock);
	} while (!r && t->stale);
	pthread_cond_broadcast(&c->loaded);
	if (r) {
		drop(c, t);
		return r;
	}
	t->loading = false;
	list_push(c, t);
	return 0;
}

int tags_read(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries)
{
	struct tag_cache *c = o->s->tags;
	uint64_t group = group_of(first);
	struct tag_page *t;
	int r = 0;

	pthread_mutex_lock(&c->lock);
	while ((t = find(c, o->tag_key, group)) && t->loading)
		pthread_cond_wait(&c->loaded, &c->lock);
	if (t) {
		used(c, t);
	} else {
		t = add(c, o->tag_key, group);
		r = t ? load(o, c, t) : -ENOMEM;
	}
	if (!r)
		memcpy(ret_entries, t->bytes + first % GROUP_PAGES * TAG_ENTRY_LEN, n * TAG_ENTRY_LEN);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void tags_written(struct object *o, uint64_t first, uint32_t n, const uint8_t *entries)
{
	struct tag_cache *c = o->s->tags;
	uint64_t group = group_of(first);
	struct tag_page *t;

	pthread_mutex_lock(&c->lock);
	t = find(c, o->tag_key, group);
	if (t && t->loading)
		t->stale = true;
	else if (t)
		memcpy(t->bytes + first % GROUP_PAGES * TAG_ENTRY_LEN, entries, n * TAG_ENTRY_LEN);
	pthread_mutex_unlock(&c->lock);
}

void tags_fresh(struct object *o, uint64_t group)
{
	struct tag_cache *c = o->s->tags;
	struct tag_page *t;

	pthread_mutex_lock(&c->lock);
	if (!find(c, o->tag_key, group) && (t = add(c, o->tag_key, group))) {
		memset(t->bytes, 0, PAGE_LEN);
		t->loading = false;
		list_push(c, t);
	}
	pthread_mutex_unlock(&c->lock);
}

void tags_forget(struct object *o, uint64_t group)
{
	struct tag_cache *c = o->s->tags;
	struct tag_page *t;

	pthread_mutex_lock(&c->lock);
	t = find(c, o->tag_key, group);
	if (t && t->loading)
		t->stale = true;
	else if (t)
		drop(c, t);
	pthread_mutex_unlock(&c->lock);
}
