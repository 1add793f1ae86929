/* The bytes of one file: making, opening, reading, seeking. Writing is in filedata_write.c, snapshots are in
 * filedata_commit.c. Runs on any thread. */
#include "filedata_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void changes_fini(struct changes *c)
{
	extents_fini(&c->pages);
	*c = (struct changes){0};
}

void changes_add(struct changes *c, uint64_t first, uint64_t n)
{
	c->any = true;
	if (c->whole || !n)
		return;
	if (extents_add(&c->pages, first, n) < 0 || c->pages.n > CHANGED_RUNS_MAX) {
		c->whole = true;
		extents_fini(&c->pages);
		c->pages = (struct extents){0};
	}
}

void filedata_mark(struct filedata *f, uint64_t first, uint64_t n, bool structural)
{
	pthread_mutex_lock(&f->mutex);
	changes_add(&f->changed, first, n);
	f->changed.structural |= structural;
	pthread_mutex_unlock(&f->mutex);
}

void filedata_update_blocks(struct filedata *f)
{
	uint64_t length = f->length;
	if (f->is_object)
		f->blocks = (f->map.pages - extents_pages(&f->map.holes)) * (PAGE_LEN / 512);
	else
		f->blocks = (length + 511) / 512;
}

int filedata_inline_room(struct filedata *f, size_t n)
{
	if (n > f->room) {
		size_t room = (n + 255) / 256 * 256;
		uint8_t *p = realloc(f->bytes, room);
		if (!p)
			return -ENOMEM;
		f->bytes = p;
		f->room = room;
	}
	return 0;
}

static int init_locks(struct filedata *f)
{
	pthread_rwlockattr_t a;
	int r = pthread_rwlockattr_init(&a);
	if (r)
		return -r;
	/* Else a stream of overwrites keeps whoever wants to grow the file waiting for ever. */
	pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	r = pthread_rwlock_init(&f->lock, &a);
	pthread_rwlockattr_destroy(&a);
	if (r)
		return -r;
	r = pthread_mutex_init(&f->mutex, NULL);
	if (r)
		pthread_rwlock_destroy(&f->lock);
	return -r;
}

/* The fields of a content, with nothing allocated before it is known to fit. */
static int take_content(struct filedata *f, const struct content *c, uint64_t local)
{
	uint8_t *bytes = NULL;
	struct extents holes = {0};

	if (c->is_object) {
		uint64_t pages = pages_of(c->length);
		if (c->length > LENGTH_MAX || !local)
			return -EUCLEAN;
		if (c->holes.n) {
			const struct extent *last = &c->holes.e[c->holes.n - 1];
			if (last->first + last->count > pages)
				return -EUCLEAN;
		}
		int r = extents_copy(&holes, &c->holes);
		if (r < 0)
			return r;
		f->object_id = c->object;
		f->epoch = c->epoch;
		f->root = c->root;
		f->local = local;
		f->map.pages = pages;
	} else {
		if (c->length > INLINE_MAX)
			return -EUCLEAN;
		if (c->length) {
			bytes = malloc(c->length);
			if (!bytes)
				return -ENOMEM;
			memcpy(bytes, c->bytes, c->length);
		}
		f->local = 0;
		f->map.pages = 0;
	}
	free(f->bytes);
	f->bytes = bytes;
	f->room = bytes ? c->length : 0;
	extents_fini(&f->map.holes);
	f->map.holes = holes;
	f->is_object = c->is_object;
	f->length = c->length;
	f->tail_clean = false;
	f->map_stale = false;
	f->confirmed_local = f->local;
	filedata_update_blocks(f);
	return 0;
}

int filedata_new(const struct filedata_env *e, const struct content *c, uint64_t local, struct filedata **ret)
{
	struct filedata *f = calloc(1, sizeof *f);
	int r;

	if (!f)
		return -ENOMEM;
	f->e = e;
	r = init_locks(f);
	if (r < 0) {
		free(f);
		return r;
	}
	if (c) {
		r = take_content(f, c, local);
	} else {
		f->changed.any = true;
		f->changed.structural = true;
		f->changed.whole = true;
	}
	if (r < 0) {
		filedata_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

void filedata_put_ref(struct filedata *f, struct objref *r)
{
	bool last;

	if (!r)
		return;
	pthread_mutex_lock(&f->mutex);
	last = --r->refs == 0;
	pthread_mutex_unlock(&f->mutex);
	if (!last)
		return;
	uint64_t local = object_local(r->object);
	object_close(r->object);
	if (r->remove_after)
		object_remove(f->e->objects, local);
	free(r);
}

void filedata_hold(struct filedata *f)
{
	struct object *o;

	pthread_rwlock_rdlock(&f->lock);
	if (f->is_object)
		filedata_open_object(f, &o);
	pthread_rwlock_unlock(&f->lock);
}

void filedata_free(struct filedata *f)
{
	if (!f)
		return;
	filedata_put_ref(f, f->snap_ref);
	filedata_put_ref(f, f->ref);
	changes_fini(&f->changed);
	changes_fini(&f->in_flight);
	extents_fini(&f->map.holes);
	free(f->bytes);
	pthread_mutex_destroy(&f->mutex);
	pthread_rwlock_destroy(&f->lock);
	free(f);
}

int filedata_replace(struct filedata *f, const struct content *c, uint64_t local)
{
	int r = 0;

	pthread_rwlock_wrlock(&f->lock);
	bool same = f->is_object && c->is_object && f->local == local;
	struct objref *old = f->ref;
	uint64_t old_confirmed = f->confirmed_local, old_local = f->local;

	if (!same) {
		pthread_mutex_lock(&f->mutex);
		filedata_note_left(f);
		pthread_mutex_unlock(&f->mutex);
	}
	if (same && old) {
		struct page_map map;
		struct root root;
		/* The pages came through filedata_object; holes and length are still those of before. */
		r = object_resize(old->object, pages_of(c->length));
		for (uint32_t i = 0; r == 0 && i < c->holes.n; i++)
			r = object_punch(old->object, c->holes.e[i].first, c->holes.e[i].count);
		if (r == 0)
			r = object_snapshot(old->object, &map, &root);
		if (r == 0) {
			extents_fini(&map.holes);
			if (!root_eq(&root, &c->root))
				r = -EBADMSG;
		}
	}
	if (r == 0)
		r = take_content(f, c, local);
	if (r == 0) {
		pthread_mutex_lock(&f->mutex);
		changes_fini(&f->changed);
		changes_fini(&f->in_flight);
		if (!same) {
			f->ref = NULL;
			if (old && old_local != old_confirmed && old_local != f->snap_local)
				old->remove_after = true;
		}
		f->snapshot_open = false;
		f->snap_local = 0;
		struct objref *snap = f->snap_ref;
		f->snap_ref = NULL;
		pthread_mutex_unlock(&f->mutex);
		filedata_put_ref(f, snap);
		if (!same)
			filedata_put_ref(f, old);
	} else if (same) {
		f->map_stale = true;
	}
	pthread_rwlock_unlock(&f->lock);
	return r;
}

int filedata_open_object(struct filedata *f, struct object **ret)
{
	struct objref *ref = f->ref;
	int r = 0;

	if (!ref) {
		pthread_mutex_lock(&f->mutex);
		ref = f->ref;
		if (!ref) {
			ref = calloc(1, sizeof *ref);
			if (!ref)
				r = -ENOMEM;
			else
				r = object_open(f->e->objects, f->local, &f->object_id, f->epoch, &f->map, &f->root, &ref->object);
			/* A missing object, or another one in its place, is damage like a page that does not open. */
			if (r == -ENOENT || r == -EUCLEAN || r == -EBADMSG) {
				stats_add(f->e->stats, COUNT_AUTH_FAILURES, 1);
				r = -EBADMSG;
			}
			if (r < 0) {
				free(ref);
			} else {
				ref->refs = 1;
				f->ref = ref;
			}
		}
		pthread_mutex_unlock(&f->mutex);
		if (r < 0)
			return r;
	}
	*ret = ref->object;
	return 0;
}

int filedata_object(struct filedata *f, struct object **ret)
{
	int r = 0;

	pthread_rwlock_rdlock(&f->lock);
	if (f->is_object)
		r = filedata_open_object(f, ret);
	else
		*ret = NULL;
	pthread_rwlock_unlock(&f->lock);
	return r;
}

int filedata_object_handle(struct filedata *f, struct object **ret)
{
	struct object *o = NULL;
	int r = 0;

	pthread_rwlock_rdlock(&f->lock);
	if (f->is_object)
		r = filedata_open_object(f, &o);
	if (r == 0 && o)
		/* It is open: the store gives another handle of the same state, whatever map is named here. */
		r = object_open(f->e->objects, f->local, &f->object_id, f->epoch, &f->map, &f->root, &o);
	pthread_rwlock_unlock(&f->lock);
	if (r == 0)
		*ret = o;
	return r;
}

int filedata_sync_map(struct filedata *f)
{
	struct page_map map;
	struct root root;
	struct object *o;
	int r = filedata_open_object(f, &o);

	f->map_stale = true;
	if (r < 0)
		return r;
	object_map(o, &map, &root);
	if (map.pages != pages_of(f->length)) {
		extents_fini(&map.holes);
		r = object_resize(o, pages_of(f->length));
		if (r < 0)
			return r;
		object_map(o, &map, &root);
	}
	extents_fini(&f->map.holes);
	f->map = map;
	f->map_stale = false;
	filedata_update_blocks(f);
	return 0;
}

void filedata_note_left(struct filedata *f)
{
	if (f->is_object && f->changed.any && (f->local == f->confirmed_local || f->local == f->snap_local))
		f->spoiled_local = f->local;
	f->changed.logged |= f->ref && object_logged(f->ref->object);
}

bool filedata_overwritten(struct filedata *f, uint64_t local)
{
	pthread_mutex_lock(&f->mutex);
	bool r = local == f->spoiled_local || (f->is_object && local == f->local && f->changed.any);
	pthread_mutex_unlock(&f->mutex);
	return r;
}

void filedata_drop_object(struct filedata *f)
{
	struct objref *ref = f->ref;
	uint64_t never_named = 0;

	pthread_mutex_lock(&f->mutex);
	filedata_note_left(f);
	if (f->local != f->confirmed_local && f->local != f->snap_local) {
		if (ref)
			ref->remove_after = true;
		else
			never_named = f->local; /* a copy that was made for this file, and not opened since */
	}
	f->ref = NULL;
	pthread_mutex_unlock(&f->mutex);
	if (never_named)
		object_remove(f->e->objects, never_named);
	filedata_put_ref(f, ref);
	extents_fini(&f->map.holes);
	f->map = (struct page_map){0};
	f->is_object = false;
	f->local = 0;
	f->length = 0;
	f->map_stale = false;
	filedata_update_blocks(f);
}

uint64_t filedata_length(struct filedata *f) { return f->length; }

uint64_t filedata_blocks(struct filedata *f) { return f->blocks; }

/* Bytes [off, off + len) of one page. */
static int read_part(struct object *o, uint64_t off, uint8_t *buf, size_t len)
{
	uint8_t page[PAGE_LEN];
	uint64_t bad;
	int r = object_read(o, off / PAGE_LEN, 1, page, &bad);

	if (r == 0)
		memcpy(buf, page + off % PAGE_LEN, len);
	return r;
}

/* len > 0, within the length; room: bytes that buf has, at least len. */
static int read_object(struct filedata *f, uint64_t off, uint8_t *buf, size_t len, size_t room, size_t *ret_len, uint64_t *ret_bad)
{
	struct object *o;
	size_t done = 0;
	int r = filedata_open_object(f, &o);

	while (r == 0 && done < len) {
		uint64_t at = off + done;
		size_t in_page = at % PAGE_LEN, left = len - done, n;
		/* The last page of the file goes straight into a buffer that has room for all of it. */
		uint64_t pages = room - done >= pages_of(left) * PAGE_LEN ? pages_of(left) : left / PAGE_LEN;

		if (in_page || !pages) {
			n = PAGE_LEN - in_page < left ? PAGE_LEN - in_page : left;
			r = read_part(o, at, buf + done, n);
			if (r == -EBADMSG)
				*ret_bad = at / PAGE_LEN;
		} else {
			if (pages > UINT32_MAX / PAGE_LEN)
				pages = UINT32_MAX / PAGE_LEN;
			n = pages * PAGE_LEN < left ? pages * PAGE_LEN : left;
			r = object_read(o, at / PAGE_LEN, (uint32_t)pages, buf + done, ret_bad);
			if (r == -EBADMSG && *ret_bad > at / PAGE_LEN)
				done += (size_t)(*ret_bad - at / PAGE_LEN) * PAGE_LEN;
		}
		if (r == 0)
			done += n;
	}
	*ret_len = done;
	return r;
}

int filedata_read(struct filedata *f, uint64_t off, void *buf, size_t len, size_t *ret_len, uint64_t *ret_bad_page)
{
	size_t room = len;
	int r = 0;

	*ret_len = 0;
	pthread_rwlock_rdlock(&f->lock);
	uint64_t length = f->length;
	if (off < length && len) {
		if (len > length - off)
			len = (size_t)(length - off);
		if (f->is_object) {
			r = read_object(f, off, buf, len, room, ret_len, ret_bad_page);
		} else {
			memcpy(buf, f->bytes + off, len);
			*ret_len = len;
		}
	}
	pthread_rwlock_unlock(&f->lock);
	return r;
}

/* First hole or first data at or after off, both bounded by the length. */
static uint64_t seek_in_map(const struct filedata *f, uint64_t off, uint64_t length, bool data)
{
	struct extent h = extents_next(&f->map.holes, off / PAGE_LEN);
	bool in_hole = h.count && h.first == off / PAGE_LEN;
	uint64_t to;

	if (data)
		to = in_hole ? (h.first + h.count) * PAGE_LEN : off;
	else
		to = in_hole ? off : h.count ? h.first * PAGE_LEN : length;
	return to < length ? to : length;
}

int filedata_seek(struct filedata *f, uint64_t off, int whence, uint64_t *ret)
{
	int r = 0;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	pthread_rwlock_rdlock(&f->lock);
	uint64_t length = f->length, to;
	if (off >= length) {
		r = -ENXIO;
	} else {
		to = f->is_object ? seek_in_map(f, off, length, whence == SEEK_DATA) : whence == SEEK_DATA ? off : length;
		if (whence == SEEK_DATA && to >= length)
			r = -ENXIO;
		else
			*ret = to;
	}
	pthread_rwlock_unlock(&f->lock);
	return r;
}
