/* Writing pending pages in place and emptying halves of the log. A half is emptied when
 *   1. nobody who appended to it has still to publish,
 *   2. the log is flushed (a page in place before its record is durable could be torn for good),
 *   3. its newest pages are in place; what newer records cover is left to these, so the log is flushed again,
 *   4. the objects are flushed,
 *   5. the last transaction in it is committed and flushed.
 * A worker thread, started when the first half is full, does this while the other half takes records. Where there is no worker,
 * the committer and writers that find no room do it. */
#include "object_internal.h"

#include "log.h"

#include <errno.h>
#include <stdlib.h>

int redo_write_in_place(struct object *o, struct pending **p, uint32_t n)
{
	struct iovec iov[GROUP_PAGES];
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN];
	uint64_t start = stats_now_ns();
	int fd, r;

	fd_pin(o, true);
	r = fd_get(o, &fd);
	if (r)
		return r;
	for (uint32_t i = 0, end; !r && i < n; i = end) {
		uint64_t first = p[i]->page;
		for (end = i; end < n && p[end]->page == first + (end - i) && group_of(p[end]->page) == group_of(first); end++) {
			iov[end - i] = (struct iovec){p[end]->sealed, PAGE_LEN};
			memcpy(entry + (end - i) * TAG_ENTRY_LEN, p[end]->entry, TAG_ENTRY_LEN);
		}
		r = full_pwritev(fd, iov, (int)(end - i), data_off(first));
		if (!r)
			r = object_write_entries(o, fd, first, end - i, entry);
	}
	fd_put(o);
	stats_since(o->s->st, STAGE_OBJECT_WRITE, start);
	stats_add(o->s->st, COUNT_OBJECT_BYTES_WRITTEN, (uint64_t)n * PAGE_LEN);
	return r;
}

/* What of a page's nodes goes in place for half h; NULL: none. */
static struct pending *due(struct pending *p, uint8_t h, uint64_t committed)
{
	if (p->remote && p->txn > committed)
		p = p->older;
	return p && p->half == h && !p->applying ? p : NULL;
}

static int by_page(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Sorted page numbers of the object that are due. *ret NULL where there are none. */
static int due_pages(struct object *o, uint8_t h, uint64_t committed, uint64_t **ret, uint32_t *ret_n)
{
	uint64_t *pages = NULL;
	uint32_t n = 0;

	pthread_mutex_lock(&o->lock);
	if (o->pending.n) {
		pages = malloc(o->pending.n * sizeof(*pages));
		if (!pages) {
			pthread_mutex_unlock(&o->lock);
			return -ENOMEM;
		}
		for (uint32_t i = 0; i < o->pending.n_buckets; i++)
			for (struct pending *p = o->pending.bucket[i]; p; p = p->next)
				if (due(p, h, committed))
					pages[n++] = p->page;
	}
	pthread_mutex_unlock(&o->lock);
	if (n)
		qsort(pages, n, sizeof(*pages), by_page);
	*ret = pages;
	*ret_n = n;
	return 0;
}

/* Lock held: marks the nodes of these pages that are still due; those that no content needs are dropped. */
static uint32_t mark(struct object *o, uint8_t h, uint64_t committed, const uint64_t *pages, uint32_t n, struct pending **ret)
{
	uint32_t found = 0;

	protect_settle(o);
	for (uint32_t i = 0; i < n; i++) {
		struct pending *top = pending_find(&o->pending, pages[i]), *p = top ? due(top, h, committed) : NULL;
		if (!p)
			continue;
		if (!extents_has(&o->protect, p->page) && !map_has(&o->map, p->page)) {
			pending_drop(o, pending_take(&o->pending, p->page));
			continue;
		}
		p->applying = true;
		o->n_applying++;
		ret[found++] = p;
	}
	return found;
}

/* Lock held. A node that is neither on top of its page nor below that is an orphan: its page was written or dropped meanwhile. */
static void unmark(struct object *o, struct pending **p, uint32_t n, bool done)
{
	for (uint32_t i = 0; i < n; i++) {
		struct pending *top = pending_find(&o->pending, p[i]->page);
		bool below = top && top->older == p[i];
		p[i]->applying = false;
		o->n_applying--;
		if (done) {
			mark_dirty(o, p[i]->page, 1);
			o->in_place = true;
		}
		if (top != p[i] && !below) {
			o->n_orphans--;
			node_put(o->s, p[i]);
		} else if (done && below) {
			top->older = NULL;
			node_put(o->s, p[i]);
		} else if (done) {
			pending_drop(o, pending_take(&o->pending, p[i]->page));
		}
	}
	pthread_cond_broadcast(&o->changed);
}

static void drop_all(struct object *o)
{
	pthread_mutex_lock(&o->lock);
	pending_fini(o->s, &o->pending);
	o->in_place = false;
	pthread_mutex_unlock(&o->lock);
}

static int apply_object(struct object *o, uint8_t h, uint64_t committed)
{
	struct pending *batch[GROUP_PAGES];
	uint64_t *pages = NULL;
	uint32_t n = 0;
	int r = due_pages(o, h, committed, &pages, &n);

	for (uint32_t i = 0; !r && i < n;) {
		uint32_t now = n - i < GROUP_PAGES ? n - i : GROUP_PAGES, found;
		pthread_mutex_lock(&o->lock);
		found = mark(o, h, committed, pages + i, now, batch);
		pthread_mutex_unlock(&o->lock);
		if (found)
			r = redo_write_in_place(o, batch, found);
		pthread_mutex_lock(&o->lock);
		unmark(o, batch, found, !r);
		pthread_mutex_unlock(&o->lock);
		i += now;
	}
	free(pages);
	return r;
}

static bool is_removed(struct object *o)
{
	bool yes;

	pthread_mutex_lock(&o->s->table_lock);
	yes = o->removed && !o->users;
	pthread_mutex_unlock(&o->s->table_lock);
	return yes;
}

enum step { STEP_APPLY, STEP_FLUSH };

static int for_object(struct object *o, enum step step, uint8_t h, uint64_t committed)
{
	bool in_place;
	int r;

	if (is_removed(o)) {
		drop_all(o);
		return 0;
	}
	if (step == STEP_APPLY)
		return apply_object(o, h, committed);
	pthread_mutex_lock(&o->lock);
	in_place = o->in_place;
	o->in_place = false; /* what comes in place from now on is flushed next time */
	pthread_mutex_unlock(&o->lock);
	r = in_place ? object_flush(o) : 0;
	if (r) {
		pthread_mutex_lock(&o->lock);
		o->in_place = true;
		pthread_mutex_unlock(&o->lock);
	}
	return r;
}

static int for_all(struct object_store *s, enum step step, uint8_t h, uint64_t committed)
{
	struct object *o[256];
	uint32_t from = 0, n;
	int r = 0;

	while (!r && (n = object_collect(s, &from, o, 256)))
		for (uint32_t i = 0; i < n; i++) {
			if (!r) {
				r = for_object(o[i], step, h, committed);
				if (r)
					log_error("%s: writing in place: %s", o[i]->name, strerror(-r));
			}
			object_unref(o[i]);
		}
	return r;
}

static void wait_published(struct redo *l, uint8_t h)
{
	pthread_mutex_lock(&l->lock);
	while (l->half[h].users)
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

/* Half h takes no records now. 0: it is empty; -EAGAIN: its last transaction is not committed, all else is done. apply_lock held. */
static int empty_half(struct object_store *s, uint8_t h)
{
	struct redo *l = &s->redo;
	uint64_t start = stats_now_ns(), committed = atomic_load(&s->committed), last;
	int r;

	wait_published(l, h);
	r = redo_flush(s);
	if (!r)
		r = for_all(s, STEP_APPLY, h, committed);
	pthread_mutex_lock(&l->lock);
	last = l->half[h].last_txn;
	pthread_mutex_unlock(&l->lock);
	if (!r && last > committed)
		r = -EAGAIN;
	if (!r)
		r = redo_flush(s);
	if (!r)
		r = for_all(s, STEP_FLUSH, h, committed);
	if (!r)
		r = redo_empty(s, h);
	stats_since(s->st, STAGE_CHECKPOINT, start);
	return r;
}

/* Which half is full and waits; -1: none, or nothing may be done. Lock held. */
static int full_half(const struct redo *l)
{
	if (l->fd < 0 || l->need_replay || l->replayed || !l->half[l->active ^ 1].pos)
		return -1;
	return l->active ^ 1;
}

static void *worker(void *arg)
{
	struct object_store *s = arg;
	struct redo *l = &s->redo;
	uint64_t tried = UINT64_MAX, generation = 0; /* committed at the last try, and of which half */

	pthread_mutex_lock(&l->lock);
	while (!s->worker_stops) {
		int h = full_half(l);
		uint64_t committed = atomic_load(&s->committed);
		/* before its last commit a half is tried once, for what can be done without */
		if (h < 0 || l->error ||
		    (l->half[h].generation == generation && (committed == tried || l->half[h].last_txn > committed))) {
			pthread_cond_wait(&l->changed, &l->lock);
			continue;
		}
		generation = l->half[h].generation;
		tried = committed;
		pthread_mutex_unlock(&l->lock);
		pthread_mutex_lock(&s->apply_lock);
		pthread_mutex_lock(&l->lock);
		h = full_half(l);
		pthread_mutex_unlock(&l->lock);
		if (h >= 0)
			empty_half(s, (uint8_t)h);
		pthread_mutex_unlock(&s->apply_lock);
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* Lock held. */
void redo_worker_start(struct object_store *s)
{
	uint64_t generation = atomic_load(&object_fork_generation);

	/* a thread of the process that forked does not run here */
	if (s->worker_runs && s->worker_fork_generation == generation)
		return;
	s->worker_runs = !pthread_create(&s->worker, NULL, worker, s);
	s->worker_fork_generation = generation;
}

void redo_worker_stop(struct object_store *s)
{
	bool runs;

	pthread_mutex_lock(&s->redo.lock);
	runs = s->worker_runs && s->worker_fork_generation == atomic_load(&object_fork_generation);
	s->worker_stops = true;
	s->worker_runs = false;
	pthread_cond_broadcast(&s->redo.changed);
	pthread_mutex_unlock(&s->redo.lock);
	if (runs)
		pthread_join(s->worker, NULL);
}

int redo_make_room(struct object_store *s)
{
	struct redo *l = &s->redo;
	int r = 0, h;

	pthread_mutex_lock(&s->apply_lock);
	pthread_mutex_lock(&l->lock);
	h = full_half(l);
	if (l->error)
		r = l->error;
	else if (l->need_replay || l->replayed)
		r = -EAGAIN;
	else if (h >= 0 && l->half[h].last_txn > atomic_load(&s->committed))
		r = -EAGAIN; /* at once: a commit is what is missing */
	pthread_mutex_unlock(&l->lock);
	if (!r && h >= 0)
		r = empty_half(s, (uint8_t)h);
	pthread_mutex_unlock(&s->apply_lock);
	return r;
}

bool object_store_wants_commit(struct object_store *s)
{
	struct redo *l = &s->redo;
	bool yes;
	int h;

	pthread_mutex_lock(&l->lock);
	h = full_half(l);
	yes = h >= 0 && l->half[h].last_txn > atomic_load(&s->committed);
	pthread_mutex_unlock(&l->lock);
	return yes;
}

int object_store_committed(struct object_store *s, uint64_t txn)
{
	struct redo *l = &s->redo;
	bool runs, replayed;
	int r = 0, h;

	pthread_mutex_lock(&l->lock);
	if (txn > atomic_load(&s->committed))
		atomic_store(&s->committed, txn);
	h = full_half(l);
	runs = s->worker_runs;
	replayed = l->replayed;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (replayed)
		return object_store_checkpoint(s);
	if (h >= 0 && !runs)
		r = redo_make_room(s);
	object_sweep(s);
	return r == -EAGAIN ? 0 : r;
}

/* After replay everything is in place and flushed, and the volume has committed what was changed. apply_lock held. */
static int empty_replayed(struct object_store *s)
{
	struct redo *l = &s->redo;
	int r = 0;

	for (uint8_t i = 0; !r && i < 2; i++) {
		/* the older half first: a crash between the two must not leave old records without the newer ones */
		uint8_t h = (l->half[0].generation > l->half[1].generation) ? 1 : 0;
		r = redo_empty(s, h);
	}
	if (r)
		return r;
	pthread_mutex_lock(&l->lock);
	l->active = l->half[0].generation > l->half[1].generation;
	l->replayed = false;
	pthread_mutex_unlock(&l->lock);
	return 0;
}

static int checkpoint_locked(struct object_store *s)
{
	struct redo *l = &s->redo;
	bool need_replay, replayed, any;
	int r = 0, h;

	pthread_mutex_lock(&l->lock);
	need_replay = l->need_replay;
	replayed = l->replayed;
	h = full_half(l);
	pthread_mutex_unlock(&l->lock);
	if (need_replay)
		return -EUCLEAN;
	if (replayed)
		return empty_replayed(s);
	if (h >= 0)
		r = empty_half(s, (uint8_t)h);
	if (r)
		return r;
	pthread_mutex_lock(&l->lock);
	any = l->half[l->active].pos;
	if (any)
		redo_switch(l);
	h = l->active ^ 1;
	pthread_mutex_unlock(&l->lock);
	return any ? empty_half(s, (uint8_t)h) : 0;
}

int object_store_checkpoint(struct object_store *s)
{
	int r;

	if (s->read_only)
		return -EROFS;
	pthread_mutex_lock(&s->apply_lock);
	r = checkpoint_locked(s);
	pthread_mutex_unlock(&s->apply_lock);
	object_sweep(s);
	if (!r)
		nodes_trim(s);
	return r;
}
