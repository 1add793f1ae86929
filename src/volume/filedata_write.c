/* The bytes of one file: writing. Aligned overwrites of present pages share the lock and go to the object as they are; everything else
 * excludes others and rewrites partial pages in memory first. */
#include "filedata_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SMALL_WRITE (16 * PAGE_LEN) /* most files fit: their last page is written with the others, padded in a copy */
#define APPEND_HOLES_MAX 64 /* the map is copied for a look at it */

/* A page as programs see it: zeros where it is not present and beyond the length. */
static int load_page(struct filedata *f, struct object *o, uint64_t page, uint8_t *buf)
{
	uint64_t start = page * PAGE_LEN, length = f->length, bad;
	int r = 0;

	if (start >= length || extents_has(&f->map.holes, page)) {
		memset(buf, 0, PAGE_LEN);
		return 0;
	}
	r = object_read(o, page, 1, buf, &bad);
	if (r == 0 && length - start < PAGE_LEN)
		memset(buf + (length - start), 0, PAGE_LEN - (length - start));
	return r;
}

/* The gap that a write at page `first` opens becomes a hole; written pages are none. */
static int mirror_write(struct filedata *f, uint64_t first, uint64_t n)
{
	int r = 0;

	if (first > f->map.pages)
		r = extents_add(&f->map.holes, f->map.pages, first - f->map.pages);
	if (r == 0 && first + n > f->map.pages)
		f->map.pages = first + n;
	if (r == 0)
		r = extents_remove(&f->map.holes, first, n);
	if (r < 0)
		f->map_stale = true;
	return r;
}

/* The store writes a group of pages or nothing when it asks for a commit. */
static bool nothing_written(int r, uint64_t first, uint64_t n)
{
	return r == -EAGAIN && first / GROUP_PAGES == (first + n - 1) / GROUP_PAGES;
}

/* Exclusive. Whole pages; keeps the mirror and the list of changes. */
static int write_pages(struct filedata *f, struct object *o, uint64_t first, uint64_t n, const uint8_t *plain, int64_t mtime_ns)
{
	while (n) {
		uint32_t part = n > (1u << 16) ? 1u << 16 : (uint32_t)n;
		struct extent hole = extents_next(&f->map.holes, first);
		bool fresh = first + part > f->map.pages || (hole.count && hole.first < first + part);
		int r = object_write(o, first, part, plain, mtime_ns);

		/* After an error some of them may be there: more marked than changed is never wrong. */
		if (nothing_written(r, first, part))
			return r;
		filedata_mark(f, first, part, fresh || r < 0);
		if (r < 0) {
			f->map_stale = true;
			return r;
		}
		if (fresh)
			mirror_write(f, first, part);
		first += part;
		plain += (size_t)part * PAGE_LEN;
		n -= part;
	}
	return 0;
}

/* Bytes [from, from + len) of one page become data, or zeros where data is NULL. */
static int modify_page(struct filedata *f, struct object *o, uint64_t page, size_t from, const uint8_t *data, size_t len, int64_t mtime_ns)
{
	uint8_t buf[PAGE_LEN];

	if (from == 0 && page * PAGE_LEN + len >= f->length) {
		memset(buf + len, 0, PAGE_LEN - len);
	} else {
		int r = load_page(f, o, page, buf);
		if (r < 0)
			return r;
	}
	if (data)
		memcpy(buf + from, data, len);
	else
		memset(buf + from, 0, len);
	return write_pages(f, o, page, 1, buf, mtime_ns);
}

int filedata_zero_tail(struct filedata *f, int64_t mtime_ns)
{
	static const uint8_t zeros[PAGE_LEN];
	uint8_t buf[PAGE_LEN];
	uint64_t length = f->length, page = length / PAGE_LEN, bad;
	size_t used = length % PAGE_LEN;
	struct object *o;
	int r;

	if (!f->is_object || !used || f->tail_clean || extents_has(&f->map.holes, page))
		return 0;
	r = filedata_open_object(f, &o);
	if (r == 0)
		r = object_read(o, page, 1, buf, &bad);
	if (r == 0 && memcmp(buf + used, zeros, PAGE_LEN - used)) {
		memset(buf + used, 0, PAGE_LEN - used);
		r = write_pages(f, o, page, 1, buf, mtime_ns);
	}
	if (r == 0)
		f->tail_clean = true;
	return r;
}

int filedata_to_object(struct filedata *f, int64_t mtime_ns)
{
	uint8_t page[PAGE_LEN] = {0};
	struct objref *ref = calloc(1, sizeof *ref);
	struct id id;
	uint64_t local, length = f->length;
	int r;

	if (!ref)
		return -ENOMEM;
	env_random(f->e->env, &id, sizeof id);
	local = object_store_next_local(f->e->objects);
	r = object_create(f->e->objects, local, &id, 0, &ref->object);
	if (r < 0) {
		free(ref);
		return r;
	}
	/* A peer's inline content may be longer than we would make one. */
	for (uint64_t p = 0; r == 0 && p < pages_of(length); p++) {
		size_t n = length - p * PAGE_LEN < PAGE_LEN ? (size_t)(length - p * PAGE_LEN) : PAGE_LEN;
		memset(page, 0, sizeof page);
		memcpy(page, f->bytes + p * PAGE_LEN, n);
		r = object_write(ref->object, p, 1, page, mtime_ns);
	}
	if (r < 0) {
		object_close(ref->object);
		object_remove(f->e->objects, local);
		free(ref);
		return r;
	}
	ref->refs = 1;
	pthread_mutex_lock(&f->mutex);
	f->ref = ref;
	f->changed.any = f->changed.whole = f->changed.structural = true;
	extents_fini(&f->changed.pages);
	f->changed.pages = (struct extents){0};
	pthread_mutex_unlock(&f->mutex);
	free(f->bytes);
	f->bytes = NULL;
	f->room = 0;
	extents_fini(&f->map.holes);
	f->map = (struct page_map){.pages = pages_of(length)};
	f->is_object = true;
	f->object_id = id;
	f->epoch = 0;
	f->local = local;
	f->tail_clean = true;
	f->map_stale = false;
	filedata_update_blocks(f);
	return 0;
}

/* Exclusive, inline before and after. */
static int write_inline(struct filedata *f, uint64_t off, const uint8_t *buf, size_t len)
{
	uint64_t length = f->length;

	if (off + len > length) {
		int r = filedata_inline_room(f, off + len);
		if (r < 0)
			return r;
	}
	if (off > length)
		memset(f->bytes + length, 0, off - length);
	memcpy(f->bytes + off, buf, len);
	if (off + len > length)
		f->length = off + len;
	filedata_mark(f, 0, 0, true);
	filedata_update_blocks(f);
	return 0;
}

/* Exclusive. Partial pages at both ends are rewritten, what lies between goes through untouched. */
static int write_object(struct filedata *f, uint64_t off, const uint8_t *buf, size_t len, int64_t mtime_ns)
{
	uint64_t end = off + len, length = f->length, first = off / PAGE_LEN, last = (end - 1) / PAGE_LEN;
	uint64_t old_pages = f->map.pages;
	struct object *o;
	int r = filedata_open_object(f, &o);

	if (r == 0 && length % PAGE_LEN && length / PAGE_LEN < first)
		r = filedata_zero_tail(f, mtime_ns);
	if (r == 0 && first > old_pages)
		r = filedata_bound_holes(f, o, mtime_ns);
	if (r == 0 && off % PAGE_LEN) {
		size_t in_page = off % PAGE_LEN, n = PAGE_LEN - in_page < len ? PAGE_LEN - in_page : len;
		r = modify_page(f, o, first, in_page, buf, n, mtime_ns);
		buf += n;
		len -= n;
		first++;
	}
	if (r == 0 && off % PAGE_LEN == 0 && len > PAGE_LEN && len % PAGE_LEN && len <= SMALL_WRITE && end >= length) {
		uint8_t padded[SMALL_WRITE];
		memcpy(padded, buf, len);
		memset(padded + len, 0, pages_of(len) * PAGE_LEN - len);
		r = write_pages(f, o, first, pages_of(len), padded, mtime_ns);
		len = 0;
	}
	if (r == 0 && len >= PAGE_LEN) {
		uint64_t n = len / PAGE_LEN;
		r = write_pages(f, o, first, n, buf, mtime_ns);
		buf += n * PAGE_LEN;
		len -= n * PAGE_LEN;
	}
	if (r == 0 && len)
		r = modify_page(f, o, last, 0, buf, len, mtime_ns);
	if (r == 0 && end > length) {
		/* The pages of a gap are holes now, which is a change of theirs too. */
		filedata_mark(f, old_pages, off / PAGE_LEN > old_pages ? off / PAGE_LEN - old_pages : 0, true);
		f->length = end;
		f->tail_clean = true;
	}
	if (f->map_stale || f->map.pages != pages_of(f->length))
		filedata_sync_map(f);
	filedata_update_blocks(f);
	return r;
}

/* Shared lock held. 1: must be done exclusively; else the result. */
static int overwrite_shared(struct filedata *f, uint64_t off, const uint8_t *buf, size_t len, int64_t mtime_ns)
{
	uint64_t end = off + len, first = off / PAGE_LEN, n = pages_of(len);
	size_t tail = len % PAGE_LEN;
	struct object *o;
	int r;

	if (!f->is_object || f->map_stale || off % PAGE_LEN || end > f->length || (tail && end != f->length) || n > UINT32_MAX)
		return 1;
	struct extent hole = extents_next(&f->map.holes, first);
	if (hole.count && hole.first < first + n)
		return 1;
	r = filedata_open_object(f, &o);
	if (r < 0)
		return r;
	if (n > (tail ? 1 : 0)) {
		uint64_t full = n - (tail ? 1 : 0);
		r = object_write(o, first, (uint32_t)full, buf, mtime_ns);
		if (!nothing_written(r, first, full))
			filedata_mark(f, first, full, r < 0 && r != -EAGAIN);
	}
	if (r == 0 && tail) {
		uint8_t page[PAGE_LEN] = {0};
		memcpy(page, buf + (len - tail), tail);
		r = object_write(o, first + n - 1, 1, page, mtime_ns);
		if (r != -EAGAIN)
			filedata_mark(f, first + n - 1, 1, r < 0);
	}
	return r;
}

/* ---- appending ----
 * What costs time, sealing, is done with the lock shared, so that several requests of one stream run at once; the file grows when that is
 * done, with the lock held exclusively. In between others may come: a truncation can take the pages away again. So it is looked whether they are still
 * there, and where anything is otherwise than expected the write is done once more, the plain way. Nothing shows them before the
 * file has grown: a snapshot waits until no append is between the two. */
struct append {
	uint64_t first, n, local;
	struct object *object;
	bool begun, written;
};

/* Shared lock held. Whole pages at or behind an end that is one of a page. */
static void append_shared(struct filedata *f, uint64_t off, const uint8_t *buf, size_t len, int64_t mtime_ns, struct append *ret)
{
	uint64_t length = f->length;
	struct append a = {.first = off / PAGE_LEN, .n = len / PAGE_LEN, .local = f->local};

	if (!f->is_object || f->map_stale || off < length || (off | length | len) % PAGE_LEN || a.n > UINT32_MAX || f->map.holes.n > APPEND_HOLES_MAX)
		return;
	if (filedata_open_object(f, &a.object) < 0)
		return;
	f->appending++;
	a.begun = true;
	a.written = object_write(a.object, a.first, (uint32_t)a.n, buf, mtime_ns) == 0;
	*ret = a;
}

/* Exclusive. True: the file has grown by what append_shared wrote. */
static bool append_publish(struct filedata *f, const struct append *a)
{
	struct objref *ref = f->ref;
	struct page_map map;
	struct root root;
	uint64_t old_pages = f->map.pages, end = (a->first + a->n) * PAGE_LEN;

	f->appending--;
	if (!f->is_object || f->local != a->local || !ref || ref->object != a->object)
		return false; /* other content by now: the pages went with it */
	if (f->map_stale || !a->written) {
		f->map_stale = true;
		return false;
	}
	object_map(a->object, &map, &root);
	struct extent hole = extents_next(&map.holes, a->first);
	bool there = map.pages >= a->first + a->n && !(hole.count && hole.first < a->first + a->n);
	extents_fini(&map.holes);
	if (!there || mirror_write(f, a->first, a->n) < 0) {
		f->map_stale = true;
		return false;
	}
	/* The pages of a gap are holes now, which is a change of theirs too. */
	filedata_mark(f, a->first, a->n, true);
	if (a->first > old_pages)
		filedata_mark(f, old_pages, a->first - old_pages, true);
	if (end > f->length) {
		f->length = end;
		f->tail_clean = true;
	}
	filedata_update_blocks(f);
	return true;
}

int filedata_write(struct filedata *f, uint64_t off, const void *buf, size_t len, int64_t mtime_ns)
{
	struct append append = {0};
	int r;

	if (!len)
		return 0;
	if (off > LENGTH_MAX || len > LENGTH_MAX - off)
		return -EFBIG;
	pthread_rwlock_rdlock(&f->lock);
	r = overwrite_shared(f, off, buf, len, mtime_ns);
	if (r == 1)
		append_shared(f, off, buf, len, mtime_ns, &append);
	pthread_rwlock_unlock(&f->lock);
	if (r <= 0)
		return r;

	pthread_rwlock_wrlock(&f->lock);
	if (append.begun && append_publish(f, &append)) {
		r = 0;
	} else if (!f->is_object && off + len <= INLINE_LIMIT) {
		r = write_inline(f, off, buf, len);
	} else {
		r = f->is_object ? 0 : filedata_to_object(f, mtime_ns);
		if (r == 0 && f->map_stale)
			r = filedata_sync_map(f);
		if (r == 0)
			r = write_object(f, off, buf, len, mtime_ns);
	}
	pthread_rwlock_unlock(&f->lock);
	return r;
}

/* ---- zeros and holes ---- */

int filedata_bound_holes(struct filedata *f, struct object *o, int64_t mtime_ns)
{
	static const uint8_t zeros[PAGE_LEN];

	while (f->map.holes.n >= HOLES_MAX) {
		struct extent least = f->map.holes.e[0];
		for (uint32_t i = 1; i < f->map.holes.n && least.count > 1; i++)
			if (f->map.holes.e[i].count < least.count)
				least = f->map.holes.e[i];
		for (uint64_t i = 0; i < least.count; i++) {
			int r = write_pages(f, o, least.first + i, 1, zeros, mtime_ns);
			if (r < 0)
				return r;
		}
		if (f->map_stale)
			return -ENOMEM;
	}
	return 0;
}

/* Exclusive, object; [off, end) lies within the length. Whole pages become holes; the last page counts as whole when all of it
 * that is within the length goes. */
static int zero_object(struct filedata *f, uint64_t off, uint64_t end, int64_t mtime_ns)
{
	uint64_t first = (off + PAGE_LEN - 1) / PAGE_LEN, past = end == f->length ? f->map.pages : end / PAGE_LEN;
	size_t head = off % PAGE_LEN;
	struct object *o;
	int r = filedata_open_object(f, &o);

	if (r == 0 && head) {
		uint64_t page = off / PAGE_LEN;
		size_t n = end - off < PAGE_LEN - head ? (size_t)(end - off) : PAGE_LEN - head;
		if (!extents_has(&f->map.holes, page))
			r = modify_page(f, o, page, head, NULL, n, mtime_ns);
	}
	if (r == 0 && first < past) {
		r = filedata_bound_holes(f, o, mtime_ns);
		if (r == 0)
			r = object_punch(o, first, past - first);
		if (r == 0) {
			filedata_mark(f, first, past - first, true);
			pthread_mutex_lock(&f->mutex);
			f->changed.reclaim = true;
			pthread_mutex_unlock(&f->mutex);
			if (extents_add(&f->map.holes, first, past - first) < 0)
				f->map_stale = true;
		}
	}
	/* A partial last page that is not the one done as head. */
	if (r == 0 && past * PAGE_LEN < end && end / PAGE_LEN >= first && !extents_has(&f->map.holes, end / PAGE_LEN))
		r = modify_page(f, o, end / PAGE_LEN, 0, NULL, end % PAGE_LEN, mtime_ns);
	if (f->map_stale)
		filedata_sync_map(f);
	filedata_update_blocks(f);
	return r;
}

/* Exclusive. [off, end), clipped to the length, reads as zeros afterwards. */
static int zero_range(struct filedata *f, uint64_t off, uint64_t end, int64_t mtime_ns)
{
	uint64_t length = f->length;

	if (end > length)
		end = length;
	if (off >= end)
		return 0;
	if (f->is_object)
		return zero_object(f, off, end, mtime_ns);
	memset(f->bytes + off, 0, end - off);
	filedata_mark(f, 0, 0, true);
	return 0;
}

/* Exclusive, object: to a length that is not 0. */
static int resize_object(struct filedata *f, uint64_t length, int64_t mtime_ns)
{
	uint64_t old = f->length, old_pages = f->map.pages, pages = pages_of(length);
	struct object *o;
	int r = filedata_open_object(f, &o);

	if (r == 0 && length > old) {
		r = filedata_zero_tail(f, mtime_ns);
		if (r == 0 && pages > old_pages)
			r = filedata_bound_holes(f, o, mtime_ns);
	}
	if (r == 0 && pages != old_pages)
		r = object_resize(o, pages);
	if (r < 0)
		return r;

	pthread_mutex_lock(&f->mutex);
	f->changed.any = f->changed.structural = true;
	if (length < old) {
		f->changed.reclaim = true;
		if (!f->changed.whole && extents_truncate(&f->changed.pages, pages) < 0)
			f->changed.whole = true;
	}
	pthread_mutex_unlock(&f->mutex);
	if (pages > old_pages) {
		filedata_mark(f, old_pages, pages - old_pages, true);
		r = extents_add(&f->map.holes, old_pages, pages - old_pages);
	} else if (pages < old_pages) {
		r = extents_truncate(&f->map.holes, pages);
	}
	f->map.pages = pages;
	f->length = length;
	/* What is cut off inside a page stays in it, see filedata_internal.h. Growing: zeros up to the old page's end, or a hole. */
	f->tail_clean = length > old || length % PAGE_LEN == 0;
	if (r < 0)
		filedata_sync_map(f);
	filedata_update_blocks(f);
	return 0;
}

/* Exclusive, inline before and after. */
static int resize_inline(struct filedata *f, uint64_t length)
{
	uint64_t old = f->length;

	if (length > old) {
		int r = filedata_inline_room(f, length);
		if (r < 0)
			return r;
	}
	if (length > old)
		memset(f->bytes + old, 0, length - old);
	f->length = length;
	filedata_mark(f, 0, 0, true);
	filedata_update_blocks(f);
	return 0;
}

int filedata_set_length(struct filedata *f, uint64_t length, int64_t mtime_ns)
{
	int r;

	if (length > LENGTH_MAX)
		return -EFBIG;
	if (length == f->length)
		return 0;
	if (f->is_object && length == 0) {
		filedata_drop_object(f);
		pthread_mutex_lock(&f->mutex);
		bool logged = f->changed.logged;
		changes_fini(&f->changed);
		f->changed.logged = logged;
		f->changed.any = f->changed.whole = f->changed.structural = true;
		pthread_mutex_unlock(&f->mutex);
		return 0;
	}
	if (!f->is_object && length <= (f->length > INLINE_LIMIT ? f->length : INLINE_LIMIT))
		return resize_inline(f, length);
	r = f->is_object ? 0 : filedata_to_object(f, mtime_ns);
	if (r == 0 && f->map_stale)
		r = filedata_sync_map(f);
	return r < 0 ? r : resize_object(f, length, mtime_ns);
}

int filedata_truncate(struct filedata *f, uint64_t length, int64_t mtime_ns)
{
	pthread_rwlock_wrlock(&f->lock);
	int r = filedata_set_length(f, length, mtime_ns);
	pthread_rwlock_unlock(&f->lock);
	return r;
}

int filedata_fallocate(struct filedata *f, int mode, uint64_t off, uint64_t len, int64_t mtime_ns)
{
	bool keep = mode & FALLOC_FL_KEEP_SIZE;
	int what = mode & ~FALLOC_FL_KEEP_SIZE, r = 0;

	if (!len)
		return -EINVAL;
	if (what != 0 && what != FALLOC_FL_ZERO_RANGE && !(what == FALLOC_FL_PUNCH_HOLE && keep))
		return -EOPNOTSUPP;
	if (off > LENGTH_MAX || len > LENGTH_MAX - off)
		return -EFBIG;
	pthread_rwlock_wrlock(&f->lock);
	if (f->map_stale)
		r = filedata_sync_map(f);
	if (r == 0 && what != 0)
		r = zero_range(f, off, off + len, mtime_ns);
	if (r == 0 && !keep && off + len > f->length)
		r = filedata_set_length(f, off + len, mtime_ns);
	pthread_rwlock_unlock(&f->lock);
	return r;
}

#define COPY_BYTES (1u << 20)
int filedata_copy(struct filedata *from, uint64_t off_from, struct filedata *to, uint64_t off_to, uint64_t len, int64_t mtime_ns, uint64_t *ret_len)
{
	uint8_t *buf = NULL;
	uint64_t done = 0, length = filedata_length(from), bad;
	int r = 0;

	if (off_from >= length)
		len = 0;
	else if (len > length - off_from)
		len = length - off_from;
	if (off_to > LENGTH_MAX || len > LENGTH_MAX - off_to)
		return -EFBIG;
	if (len) {
		buf = malloc(COPY_BYTES);
		if (!buf)
			return -ENOMEM;
	}
	while (done < len) {
		uint64_t at = off_from + done, next;
		size_t n, got;

		r = filedata_seek(from, at, SEEK_DATA, &next);
		if (r == -ENXIO) /* only a hole is left, or the file was cut */
			next = off_from + len;
		else if (r < 0)
			break;
		if (next > off_from + len)
			next = off_from + len;
		if (next > at) {
			r = filedata_fallocate(to, FALLOC_FL_ZERO_RANGE, off_to + done, next - at, mtime_ns);
			if (r < 0)
				break;
			done += next - at;
			continue;
		}
		r = filedata_seek(from, at, SEEK_HOLE, &next);
		if (r < 0)
			break;
		n = next - at < len - done ? (size_t)(next - at < COPY_BYTES ? next - at : COPY_BYTES)
					   : (size_t)(len - done < COPY_BYTES ? len - done : COPY_BYTES);
		r = filedata_read(from, at, buf, n, &got, &bad);
		if (r == 0 && got)
			r = filedata_write(to, off_to + done, buf, got, mtime_ns);
		if (r < 0 || !got)
			break;
		done += got;
	}
	free(buf);
	*ret_len = done;
	return done ? 0 : r;
}
