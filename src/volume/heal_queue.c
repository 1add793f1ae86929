/* What waits for healing, and the thread that does it. */
#include <errno.h>
#include <stdlib.h>

#include "heal_internal.h"
#include "wait.h"

#define QUEUE_MAX 65536u
#define RETRY_MS 60000

static uint64_t mono_ms(void) { return mono_ns() / 1000000; }

static void wait_until(struct healer *h, pthread_cond_t *c, uint64_t until_ms) { cond_wait_until(c, &h->mu, until_ms * 1000000); }

bool healer_stops(struct healer *h)
{
	pthread_mutex_lock(&h->mu);
	bool stop = h->stop;
	pthread_mutex_unlock(&h->mu);
	return stop;
}

void healer_page_is_good(struct healer *h, inum ino)
{
	pthread_mutex_lock(&h->mu);
	for (uint32_t i = 0; i < h->n; i++)
		if (h->item[i].ino == ino)
			h->item[i].page_good = true;
	pthread_cond_broadcast(&h->news);
	pthread_mutex_unlock(&h->mu);
}

static struct item *find_item(struct healer *h, inum ino)
{
	for (uint32_t i = 0; i < h->n; i++)
		if (h->item[i].ino == ino)
			return &h->item[i];
	return NULL;
}

/* Under mu. NULL: no room. */
static struct item *queue(struct healer *h, inum ino, uint64_t page)
{
	struct item *i = find_item(h, ino);

	if (!i && h->n < QUEUE_MAX) {
		if (h->n == h->cap) {
			uint32_t cap = h->cap ? 2 * h->cap : 16;
			struct item *p = reallocarray(h->item, cap, sizeof *p);
			if (!p)
				return NULL;
			h->item = p;
			h->cap = cap;
		}
		i = &h->item[h->n++];
		*i = (struct item){.ino = ino};
	}
	if (i) {
		i->page = page;
		i->due_ms = 0;
		i->page_good = false;
		pthread_cond_signal(&h->wake);
	}
	return i;
}

void volume_heal_note(struct volume *v, inum ino, uint64_t page)
{
	struct healer *h = v->healer;

	if (!h)
		return;
	pthread_mutex_lock(&h->mu);
	if (!find_item(h, ino))
		queue(h, ino, page);
	pthread_mutex_unlock(&h->mu);
}

int volume_heal_wait(struct volume *v, inum ino, uint64_t page, int timeout_ms)
{
	struct healer *h = v->healer;
	uint64_t until = mono_ms() + (uint64_t)timeout_ms;
	int r = -EBADMSG;

	if (!h)
		return r;
	pthread_mutex_lock(&h->mu);
	struct item *i = queue(h, ino, page);
	uint64_t tries = i ? i->tries : 0;
	while (i && mono_ms() < until && !h->stop) {
		wait_until(h, &h->news, until);
		i = find_item(h, ino);
		if (!i || (i->page_good && i->page == page)) {
			r = 0;
			break;
		}
		/* one try may have been under way before this page was asked for */
		if (i->tries >= tries + 2 || (i->tries > tries && i->due_ms))
			break;
	}
	pthread_mutex_unlock(&h->mu);
	return r;
}

/* Under mu: the item that is due, or NULL and when to look again. */
static struct item *next_item(struct healer *h, uint64_t *ret_until)
{
	uint64_t now = mono_ms();
	struct item *best = NULL;

	*ret_until = now + RETRY_MS;
	for (uint32_t i = 0; i < h->n; i++) {
		if (!best || h->item[i].due_ms < best->due_ms)
			best = &h->item[i];
	}
	if (best && best->due_ms > now) {
		*ret_until = best->due_ms;
		return NULL;
	}
	return best;
}

static void item_over(struct healer *h, const struct item *was, int r)
{
	struct item *i = find_item(h, was->ino);

	if (!i)
		return;
	if (!r || r == -ESTALE || r == -EISDIR || r == -EINVAL) {
		*i = h->item[--h->n];
	} else {
		i->tries++;
		if (i->page == was->page)
			i->due_ms = mono_ms() + RETRY_MS;
	}
	h->status.waiting = h->n;
	h->rounds++;
	pthread_cond_broadcast(&h->news);
}

static void *healer_main(void *arg)
{
	struct volume *v = arg;
	struct healer *h = v->healer;
	uint64_t until;

	pthread_mutex_lock(&h->mu);
	while (!h->stop) {
		struct item *i = next_item(h, &until), was;
		if (!i) {
			wait_until(h, &h->wake, until);
			continue;
		}
		was = *i;
		pthread_mutex_unlock(&h->mu);
		int r = heal_item(v, was.ino, was.page, true);
		pthread_mutex_lock(&h->mu);
		item_over(h, &was, r);
	}
	pthread_mutex_unlock(&h->mu);
	return NULL;
}

void volume_heal_poke(struct volume *v)
{
	struct healer *h = v->healer;

	if (!h)
		return;
	pthread_mutex_lock(&h->mu);
	for (uint32_t i = 0; i < h->n; i++)
		h->item[i].due_ms = 0;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->mu);
}

void volume_heal_set_fetch(struct volume *v, heal_fetch_fn *fn, void *ctx)
{
	struct healer *h = v->healer;

	if (!h)
		return;
	pthread_mutex_lock(&h->fetch_mu);
	h->fetch = fn;
	h->fetch_ctx = ctx;
	pthread_mutex_unlock(&h->fetch_mu);
}

void volume_heal_status(struct volume *v, struct heal_status *ret)
{
	struct healer *h = v->healer;

	*ret = (struct heal_status){0};
	if (!h)
		return;
	pthread_mutex_lock(&h->mu);
	*ret = h->status;
	pthread_mutex_unlock(&h->mu);
}

int healer_start(struct volume *v)
{
	struct healer *h = calloc(1, sizeof *h);

	if (!h)
		return -ENOMEM;
	pthread_mutex_init(&h->mu, NULL);
	pthread_mutex_init(&h->fetch_mu, NULL);
	cond_init(&h->wake);
	cond_init(&h->news);
	v->healer = h;
	tree_lock(v);
	if (v->heal_records)
		queue(h, 0, 0);
	tree_unlock(v);
	int e = -pthread_create(&h->thread, NULL, healer_main, v);
	h->runs = !e;
	if (e)
		healer_stop(v);
	return e;
}

void healer_stop(struct volume *v)
{
	struct healer *h = v->healer;

	if (!h)
		return;
	pthread_mutex_lock(&h->mu);
	h->stop = true;
	pthread_cond_broadcast(&h->wake);
	pthread_cond_broadcast(&h->news);
	pthread_mutex_unlock(&h->mu);
	if (h->runs)
		pthread_join(h->thread, NULL);
	pthread_mutex_destroy(&h->mu);
	pthread_mutex_destroy(&h->fetch_mu);
	pthread_cond_destroy(&h->wake);
	pthread_cond_destroy(&h->news);
	free(h->item);
	free(h);
	v->healer = NULL;
}
