/* The bytes of one file: what the commit asks for.
 *
 *   changed    since the last snapshot          --snapshot-->      in_flight   of snapshots that are not confirmed
 *   in_flight  --confirmed--> forgotten         --not_confirmed--> joined back into changed
 * A snapshot reports both, so that what is once reported and lost is reported again. */
#include "filedata_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

/* to := to | from, from is emptied. */
static void changes_move(struct changes *to, struct changes *from)
{
	to->any |= from->any;
	to->structural |= from->structural;
	to->reclaim |= from->reclaim;
	to->whole |= from->whole;
	to->logged |= from->logged;
	for (uint32_t i = 0; i < from->pages.n && !to->whole; i++)
		changes_add(to, from->pages.e[i].first, from->pages.e[i].count);
	if (to->whole) {
		extents_fini(&to->pages);
		to->pages = (struct extents){0};
	}
	changes_fini(from);
}

bool filedata_dirty(struct filedata *f)
{
	pthread_mutex_lock(&f->mutex);
	bool r = f->changed.any || f->in_flight.any;
	pthread_mutex_unlock(&f->mutex);
	return r;
}

bool filedata_logged(struct filedata *f)
{
	pthread_mutex_lock(&f->mutex);
	bool r = f->changed.logged || f->in_flight.logged || (f->ref && object_logged(f->ref->object));
	pthread_mutex_unlock(&f->mutex);
	return r;
}

bool filedata_only_overwritten(struct filedata *f)
{
	pthread_rwlock_rdlock(&f->lock);
	pthread_mutex_lock(&f->mutex);
	bool r = f->is_object && f->local == f->confirmed_local && !f->changed.structural && !f->in_flight.structural;
	pthread_mutex_unlock(&f->mutex);
	pthread_rwlock_unlock(&f->lock);
	return r;
}

void filedata_snapshot_fini(struct filedata_snapshot *s)
{
	content_fini(&s->content);
	extents_fini(&s->ranges);
	*s = (struct filedata_snapshot){0};
}

static int snapshot_inline(struct filedata *f, struct content *c)
{
	uint64_t length = f->length;

	c->length = length;
	if (!length)
		return 0;
	c->bytes = malloc(length);
	if (!c->bytes)
		return -ENOMEM;
	memcpy(c->bytes, f->bytes, length);
	return 0;
}

static int snapshot_object(struct filedata *f, struct content *c)
{
	struct objref *ref = f->ref;
	int r;

	c->is_object = true;
	c->length = f->length;
	c->object = f->object_id;
	c->epoch = f->epoch;
	if (!ref) { /* not opened: it is as it was committed */
		c->root = f->root;
		return extents_copy(&c->holes, &f->map.holes);
	}
	if (f->map_stale) {
		r = filedata_sync_map(f);
		if (r < 0)
			return r;
	}
	struct page_map map;
	r = object_snapshot(ref->object, &map, &c->root);
	if (r < 0)
		return r;
	c->holes = map.holes;
	return 0;
}

int filedata_snapshot(struct filedata *f, struct filedata_snapshot *ret)
{
	struct filedata_snapshot s = {0};
	struct objref *old;
	int r;

	pthread_rwlock_wrlock(&f->lock);
	while (f->appending) { /* between two moments of taking this lock: it comes right after */
		pthread_rwlock_unlock(&f->lock);
		sched_yield();
		pthread_rwlock_wrlock(&f->lock);
	}
	r = f->is_object ? snapshot_object(f, &s.content) : snapshot_inline(f, &s.content);
	pthread_mutex_lock(&f->mutex);
	if (r == 0) {
		struct changes both = {0};
		/* Joined in a copy first: a failure leaves all as it was. */
		if (!f->in_flight.whole && f->in_flight.pages.n)
			r = extents_copy(&both.pages, &f->in_flight.pages);
		both.any = f->in_flight.any;
		both.whole = f->in_flight.whole;
		for (uint32_t i = 0; r == 0 && i < f->changed.pages.n; i++)
			changes_add(&both, f->changed.pages.e[i].first, f->changed.pages.e[i].count);
		both.any |= f->changed.any;
		both.whole |= f->changed.whole;
		if (both.any && f->local != f->confirmed_local)
			both.whole = true;
		if (both.any && !f->is_object)
			both.whole = true;
		s.change = !both.any ? FILEDATA_SAME : both.whole ? FILEDATA_WHOLE : FILEDATA_RANGES;
		if (s.change == FILEDATA_RANGES) {
			/* Pages of a snapshot before that were cut off since. */
			if (extents_truncate(&both.pages, pages_of(f->length)) < 0)
				s.change = FILEDATA_WHOLE;
		}
		if (s.change == FILEDATA_RANGES) {
			s.ranges = both.pages;
			both.pages = (struct extents){0};
		}
		extents_fini(&both.pages);
	}
	if (r < 0) {
		pthread_mutex_unlock(&f->mutex);
		pthread_rwlock_unlock(&f->lock);
		filedata_snapshot_fini(&s);
		return r;
	}
	s.local = f->local;
	changes_move(&f->in_flight, &f->changed);
	old = f->snap_ref;
	if (old && old != f->ref && f->snap_local != f->confirmed_local)
		old->remove_after = true;
	f->snap_ref = f->ref;
	if (f->snap_ref)
		f->snap_ref->refs++;
	f->snap_local = f->local;
	f->snapshot_open = true;
	pthread_mutex_unlock(&f->mutex);
	pthread_rwlock_unlock(&f->lock);
	filedata_put_ref(f, old);
	*ret = s;
	return 0;
}

/* The object that a flush concerns, kept open while it goes on: it may be dropped meanwhile, and writers must not wait for the disk. */
static struct objref *flush_ref(struct filedata *f)
{
	struct objref *ref;

	pthread_mutex_lock(&f->mutex);
	ref = f->snapshot_open ? f->snap_ref : f->ref;
	if (ref)
		ref->refs++;
	pthread_mutex_unlock(&f->mutex);
	return ref;
}

int filedata_flush(struct filedata *f)
{
	struct objref *ref = flush_ref(f);
	int r;

	if (!ref)
		return 0;
	r = object_flush(ref->object);
	filedata_put_ref(f, ref);
	return r;
}

void filedata_flush_many(struct filedata *const *f, uint32_t n)
{
	struct objref **ref = calloc(n, sizeof *ref);
	struct object **o = calloc(n, sizeof *o);
	uint32_t n_objects = 0;

	for (uint32_t i = 0; ref && o && i < n; i++)
		if ((ref[i] = flush_ref(f[i])))
			o[n_objects++] = ref[i]->object;
	if (n_objects)
		object_store_flush_many(f[0]->e->objects, o, n_objects);
	for (uint32_t i = 0; ref && o && i < n; i++)
		if (ref[i])
			filedata_put_ref(f[i], ref[i]);
	free(ref);
	free(o);
}

void filedata_confirmed(struct filedata *f, uint64_t *ret_retired)
{
	struct objref *snap;
	bool reclaim;

	*ret_retired = 0;
	pthread_mutex_lock(&f->mutex);
	if (!f->snapshot_open) {
		pthread_mutex_unlock(&f->mutex);
		return;
	}
	if (f->confirmed_local && f->confirmed_local != f->snap_local)
		*ret_retired = f->confirmed_local;
	f->confirmed_local = f->snap_local;
	f->snap_local = 0;
	f->snapshot_open = false;
	reclaim = f->in_flight.reclaim;
	changes_fini(&f->in_flight);
	snap = f->snap_ref;
	f->snap_ref = NULL;
	pthread_mutex_unlock(&f->mutex);
	if (snap && reclaim)
		object_reclaim(snap->object); /* only space is lost where it fails */
	filedata_put_ref(f, snap);
}

void filedata_not_confirmed(struct filedata *f)
{
	struct objref *snap;

	pthread_mutex_lock(&f->mutex);
	if (!f->snapshot_open) {
		pthread_mutex_unlock(&f->mutex);
		return;
	}
	changes_move(&f->in_flight, &f->changed);
	f->changed = f->in_flight;
	f->in_flight = (struct changes){0};
	snap = f->snap_ref;
	if (snap)
		object_not_committed(snap->object);
	if (snap && snap != f->ref && f->snap_local != f->confirmed_local)
		snap->remove_after = true;
	f->snap_ref = NULL;
	f->snap_local = 0;
	f->snapshot_open = false;
	pthread_mutex_unlock(&f->mutex);
	filedata_put_ref(f, snap);
}
