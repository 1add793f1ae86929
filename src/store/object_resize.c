/* Truncate, punch, and giving blocks back. */
#include "object_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The sum of the terms of all pages of x, which are in use and held. */
static int sum_terms(struct object *o, const struct extents *x, struct root *ret)
{
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN];
	struct root sum = {0}, term;

	for (uint32_t i = 0; i < x->n; i++) {
		uint64_t page = x->e[i].first, left = x->e[i].count;
		while (left) {
			uint32_t room = GROUP_PAGES - (uint32_t)(page % GROUP_PAGES), n = left < room ? (uint32_t)left : room;
			int r = object_entries_held(o, page, n, entry);
			if (r)
				return r;
			for (uint32_t k = 0; k < n; k++) {
				keyring_page_term(o->s->k, page + k, entry + k * TAG_ENTRY_LEN, &term);
				root_add(&sum, &term);
			}
			page += n;
			left -= n;
		}
	}
	*ret = sum;
	return 0;
}

/* The present pages within and outside of [first, first + n). Lock held. */
static int split_present(struct object *o, uint64_t first, uint64_t n, struct extents *ret_dropped, struct extents *ret_kept)
{
	struct extents kept = {0}, dropped = {0};
	uint64_t end = n > UINT64_MAX - first ? UINT64_MAX : first + n;
	int r = map_present(&o->map, &kept);

	if (!r)
		r = extents_copy(&dropped, &kept);
	if (!r)
		r = extents_remove(&kept, first, end - first);
	if (!r)
		r = extents_remove(&dropped, 0, first);
	if (!r)
		r = extents_truncate(&dropped, end);
	if (r) {
		extents_fini(&kept);
		extents_fini(&dropped);
		return r;
	}
	*ret_dropped = dropped;
	*ret_kept = kept;
	return 0;
}

/* Root without the dropped pages: by subtracting these, or from those that stay where they are fewer and all held. */
static int root_without(struct object *o, const struct extents *dropped, const struct extents *kept, bool all_held,
			struct root before, struct root *ret)
{
	struct root sum;
	int r;

	if (all_held && extents_pages(kept) < extents_pages(dropped))
		return sum_terms(o, kept, ret);
	r = sum_terms(o, dropped, &sum);
	if (!r) {
		root_sub(&before, &sum);
		*ret = before;
	}
	return r;
}

static int append_cancel(struct object *o, uint64_t first, uint64_t n, uint64_t txn, struct redo_append *ret, bool *ret_logged)
{
	struct object_store *s = o->s;
	uint8_t head[REDO_HEAD_MAX];
	struct redo_record rec = {.local = o->local, .txn = txn, .items = head + REDO_RECORD_HEAD, .kind = REDO_CANCEL, .count = 1};
	int r;

	le64_store(head + REDO_RECORD_HEAD, first);
	le64_store(head + REDO_RECORD_HEAD + 8, n);
	do {
		r = redo_append(s, &rec, head, NULL, 0, ret);
		if (r == -EAGAIN)
			r = redo_make_room(s);
		else if (!r)
			*ret_logged = true;
	} while (!r && !*ret_logged);
	return r;
}

/* Pages that no content needs any more are not put in place. Lock held. */
static void drop_pending(struct object *o, uint64_t first, uint64_t n)
{
	struct pending_table *t = &o->pending;

	for (uint32_t i = 0; t->n && i < t->n_buckets; i++) {
		struct pending **p = &t->bucket[i];
		while (*p) {
			struct pending *q = *p;
			if (q->page < first || q->page - first >= n || extents_has(&o->protect, q->page)) {
				p = &q->next;
				continue;
			}
			*p = q->next;
			t->n--;
			pending_drop(o, q);
		}
	}
}

/* Drops what is present in [first, first + n). end: where the map ends afterwards. */
static int drop_range(struct object *o, uint64_t first, uint64_t n, bool truncate, uint64_t end)
{
	struct extents dropped = {0}, kept = {0};
	struct redo_append append;
	struct range range;
	struct root root;
	bool logged = false, in_log;
	uint64_t txn;
	int r;

	pthread_mutex_lock(&o->lock);
	range_take(o, &range, truncate ? 0 : first, truncate ? UINT64_MAX : n);
	protect_settle(o);
	r = split_present(o, first, n, &dropped, &kept);
	if (!r)
		r = extents_reserve(&o->map.holes, 4 + 2 * o->n_ranges);
	if (!r)
		r = extents_reserve(&o->released, dropped.n);
	root = o->root;
	txn = record_txn(o);
	in_log = (o->log_generation[0] && redo_has_generation(o->s, o->log_generation[0])) ||
		 (o->log_generation[1] && redo_has_generation(o->s, o->log_generation[1]));
	pthread_mutex_unlock(&o->lock);
	struct root before = root;
	if (!r && dropped.n)
		r = root_without(o, &dropped, &kept, truncate, root, &root);
	if (!r && in_log)
		r = append_cancel(o, first, n, txn, &append, &logged);
	pthread_mutex_lock(&o->lock);
	if (!r) {
		/* others may have written elsewhere meanwhile: the difference counts */
		root_sub(&o->root, &before);
		root_add(&o->root, &root);
		for (uint32_t i = 0; i < dropped.n; i++)
			extents_add(&o->released, dropped.e[i].first, dropped.e[i].count);
		o->shrunk |= dropped.n && o->protect.n;
		if (truncate) {
			extents_truncate(&o->map.holes, end);
			o->map.pages = end;
		} else {
			uint64_t upto = first + n < o->map.pages ? first + n : o->map.pages;
			if (first < upto)
				extents_add(&o->map.holes, first, upto - first);
		}
		drop_pending(o, first, n);
		if (logged) {
			o->log_generation[append.half] = append.generation;
			atomic_store(&o->logged, true);
		}
	}
	range_give(o, &range);
	pthread_mutex_unlock(&o->lock);
	if (logged)
		redo_published(o->s, &append);
	extents_fini(&dropped);
	extents_fini(&kept);
	return r;
}

static int grow(struct object *o, uint64_t pages)
{
	struct range range;
	int r = 0;

	pthread_mutex_lock(&o->lock);
	range_take(o, &range, 0, UINT64_MAX);
	if (pages > o->map.pages) {
		r = extents_add(&o->map.holes, o->map.pages, pages - o->map.pages);
		if (!r)
			o->map.pages = pages;
	}
	range_give(o, &range);
	pthread_mutex_unlock(&o->lock);
	return r;
}

int object_resize(struct object *o, uint64_t pages)
{
	uint64_t now;

	if (o->s->read_only)
		return -EROFS;
	if (pages > PAGES_MAX)
		return -EFBIG;
	pthread_mutex_lock(&o->lock);
	now = o->map.pages;
	pthread_mutex_unlock(&o->lock);
	if (pages >= now)
		return grow(o, pages);
	return drop_range(o, pages, UINT64_MAX - pages, true, pages);
}

int object_punch(struct object *o, uint64_t first, uint64_t n)
{
	if (o->s->read_only)
		return -EROFS;
	if (first >= PAGES_MAX || !n)
		return 0;
	if (n > PAGES_MAX - first)
		n = PAGES_MAX - first;
	return drop_range(o, first, n, false, 0);
}

/* Blocks of data pages; tag pages stay. A filesystem that cannot keeps the blocks. */
static void punch_file(int fd, uint64_t first, uint64_t n)
{
	while (n) {
		uint32_t room = GROUP_PAGES - (uint32_t)(first % GROUP_PAGES), now = n < room ? (uint32_t)n : room;
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data_off(first), (off_t)now * PAGE_LEN))
			return;
		first += now;
		n -= now;
	}
}

/* Takes what may go from released, leaving what is still protected. Lock held. ret_end: pages that the file has to hold. */
static int take_released(struct object *o, struct extents *ret, uint64_t *ret_end)
{
	struct extents go = {0}, present = {0};
	const struct extent *last = o->protect.n ? &o->protect.e[o->protect.n - 1] : NULL;
	int r = extents_copy(&go, &o->released);

	if (!r)
		r = map_present(&o->map, &present);
	for (uint32_t i = 0; !r && i < present.n; i++)
		r = extents_remove(&go, present.e[i].first, present.e[i].count);
	for (uint32_t i = 0; !r && i < o->protect.n; i++)
		r = extents_remove(&go, o->protect.e[i].first, o->protect.e[i].count);
	for (uint32_t i = 0; !r && i < go.n; i++)
		r = extents_remove(&o->released, go.e[i].first, go.e[i].count);
	*ret_end = present.n ? present.e[present.n - 1].first + present.e[present.n - 1].count : 0;
	if (last && last->first + last->count > *ret_end)
		*ret_end = last->first + last->count;
	extents_fini(&present);
	if (r)
		extents_fini(&go);
	else
		*ret = go;
	return r;
}

int object_reclaim(struct object *o)
{
	struct extents go = {0};
	struct range range;
	struct stat st;
	uint64_t end;
	off_t len;
	int r, fd;

	if (o->s->read_only)
		return -EROFS;
	pthread_mutex_lock(&o->lock);
	protect_settle(o);
	if (!o->released.n) {
		pthread_mutex_unlock(&o->lock);
		return 0;
	}
	range_take(o, &range, 0, UINT64_MAX);
	r = take_released(o, &go, &end);
	pthread_mutex_unlock(&o->lock);
	if (!r && go.n)
		r = fd_get(o, &fd);
	if (!r && go.n) {
		len = end ? data_off(end - 1) + PAGE_LEN : PAGE_LEN;
		if (!fstat(fd, &st) && st.st_size > len && ftruncate(fd, len))
			r = -errno;
		extents_truncate(&go, end);
		for (uint32_t i = 0; i < go.n; i++)
			punch_file(fd, go.e[i].first, go.e[i].count);
		fd_put(o);
	}
	pthread_mutex_lock(&o->lock);
	range_give(o, &range);
	pthread_mutex_unlock(&o->lock);
	extents_fini(&go);
	return r;
}
