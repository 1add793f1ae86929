/* Replay of the redo log after an unclean stop (design-store 4), in three passes: find the log's intact part, opening every page in it;
 * put the last page of each that counts in place; tell whose content changed.
 *
 *   record              committed transaction      later transaction
 *   local               page goes in place         page goes in place, root by the difference, `changed`
 *   remote              page goes in place         dropped
 *   cancel              drops older pages          ignored: the committed content has them still
 *
 * The difference of a page is its last entry against the one that its first record of a later transaction names as the one before: that is
 * the committed one, and the file may have lost it already. So replaying again gives the same. */
#include "object_internal.h"

#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct replay_object {
	uint64_t local;
	bool known, changed;
	struct id id;
	uint32_t epoch;
	struct page_map map;
	struct root root;
	struct object *o; /* opened for replay only */
	int64_t mtime_ns;
	struct extents pages;
};
struct item { /* a page of a record, or a cancel */
	uint32_t object, seq;
	uint64_t page;
	uint16_t kind;
	bool later; /* of a transaction that is not committed */
	const uint8_t *before, *entry, *sealed;
	int64_t mtime_ns;
};
struct cancel {
	uint32_t object, seq;
	uint64_t first, count;
};
struct replay {
	struct object_store *s;
	uint64_t committed;
	const struct redo_callbacks *cb;
	uint8_t *half[2];
	struct replay_object *object;
	uint32_t n_objects, cap_objects;
	struct item *item;
	uint32_t n_items, cap_items;
	struct cancel *cancel;
	uint32_t n_cancels, cap_cancels;
	uint32_t seq;
};

static int grow_array(void **p, uint32_t *cap, uint32_t n, size_t size)
{
	void *bigger;

	if (n < *cap)
		return 0;
	bigger = realloc(*p, (*cap ? *cap * 2 : 64) * size);
	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	*cap = *cap ? *cap * 2 : 64;
	return 0;
}

/* Index of the object of a local number. A missing or foreign file is as unknown as a number without a record: the object's
 * own reads will say so. */
static int object_index(struct replay *y, uint64_t local, uint32_t *ret)
{
	struct replay_object *x;
	char name[NAME_MAX_BYTES];
	int r, fd;

	for (uint32_t i = y->n_objects; i-- > 0;)
		if (y->object[i].local == local) {
			*ret = i;
			return 0;
		}
	r = grow_array((void **)&y->object, &y->cap_objects, y->n_objects, sizeof(*y->object));
	if (r)
		return r;
	x = &y->object[y->n_objects];
	*x = (struct replay_object){.local = local};
	*ret = y->n_objects++;
	r = y->cb->object_info(y->cb->ctx, local, &x->id, &x->epoch, &x->map, &x->root);
	if (r)
		return r == -ENOENT ? 0 : r;
	object_local_name(local, name);
	x->o = object_new(y->s, local, name, &x->id, x->epoch);
	if (!x->o)
		return -ENOMEM;
	r = fd_get(x->o, &fd);
	if (!r) {
		r = object_header_check(y->s, fd, &x->id, x->epoch);
		fd_put(x->o);
	}
	if (r == -ENOENT || r == -EBADMSG || r == -EUCLEAN)
		log_error("%s: %s; its overwritten pages are not restored", name, strerror(-r));
	else if (r)
		return r;
	x->known = !r;
	return 0;
}

static bool pages_open(struct replay *y, const struct replay_object *x, const struct redo_record *r, const uint8_t *sealed)
{
	uint8_t plain[PAGE_LEN];
	int ret = 0;

	for (uint32_t i = 0; !ret && x->known && i < r->count; i++) {
		const uint8_t *item = r->items + i * REDO_PAGE_ITEM;
		ret = page_open(x->o->sealer, le64_load(item), item + 8 + TAG_ENTRY_LEN, sealed + (size_t)i * PAGE_LEN, plain);
	}
	explicit_bzero(plain, sizeof(plain));
	return !ret;
}

static int take_record(struct replay *y, const struct redo_record *r, uint32_t object, const uint8_t *sealed)
{
	bool later = r->txn > y->committed;
	int ret;

	if (r->kind == REDO_CANCEL) {
		ret = grow_array((void **)&y->cancel, &y->cap_cancels, y->n_cancels, sizeof(*y->cancel));
		if (!ret && !later)
			y->cancel[y->n_cancels++] =
				(struct cancel){object, y->seq, le64_load(r->items), le64_load(r->items + 8)};
		return ret;
	}
	for (uint32_t i = 0; i < r->count; i++) {
		const uint8_t *p = r->items + i * REDO_PAGE_ITEM;
		ret = grow_array((void **)&y->item, &y->cap_items, y->n_items, sizeof(*y->item));
		if (ret)
			return ret;
		y->item[y->n_items++] = (struct item){object, y->seq, le64_load(p), (uint16_t)r->kind, later, p + 8,
						      p + 8 + TAG_ENTRY_LEN, sealed + (size_t)i * PAGE_LEN, r->mtime_ns};
	}
	return 0;
}

/* Takes the intact records of a half. *ret_end is where the first one that is not intact would be, *ret_before where the older half ended
 * (UINT32_MAX: no record says so). */
static int take_half(struct replay *y, uint8_t h, uint32_t *ret_end, uint32_t *ret_before)
{
	struct redo *l = &y->s->redo;
	const uint8_t *p = y->half[h];
	struct redo_record r;
	uint32_t pos = 0, len, object;
	int ret;

	*ret_before = UINT32_MAX;
	while (!redo_record_parse(y->s->k, p + pos, l->half_len - pos, &r, &len) && r.generation == l->half[h].generation &&
	       r.off == pos) {
		const uint8_t *sealed = p + pos + redo_head_len(r.kind, r.count);
		ret = object_index(y, r.local, &object);
		if (ret)
			return ret;
		if (r.kind != REDO_CANCEL && !pages_open(y, &y->object[object], &r, sealed))
			break;
		if (!pos)
			*ret_before = r.end_before;
		ret = take_record(y, &r, object, sealed);
		if (ret)
			return ret;
		y->seq++;
		pos += len;
	}
	*ret_end = pos;
	return 0;
}

/* Whether a record after `from` in half h says that the log was flushed beyond (generation, off). ret_before as in take_half. */
static bool durable_beyond(struct replay *y, uint8_t h, uint32_t from, uint64_t generation, uint32_t off, uint32_t *ret_before)
{
	struct redo *l = &y->s->redo;
	const uint8_t *p = y->half[h];
	struct redo_record r;
	uint32_t len;

	for (uint32_t pos = from; pos < l->half_len; pos += REDO_ALIGN) {
		if (redo_record_parse(y->s->k, p + pos, l->half_len - pos, &r, &len) ||
		    r.generation != l->half[h].generation || r.off != pos)
			continue;
		*ret_before = r.end_before;
		if (r.durable_generation > generation || (r.durable_generation == generation && r.durable_off > off))
			return true;
	}
	return false;
}

static int read_log(struct replay *y)
{
	struct redo *l = &y->s->redo;
	uint8_t old = l->half[0].generation > l->half[1].generation, young = old ^ 1;
	uint32_t end, before;
	int r = redo_half_read(y->s, old, &y->half[old]);

	if (!r)
		r = redo_half_read(y->s, young, &y->half[young]);
	if (!r)
		r = take_half(y, old, &end, &before);
	if (r)
		return r;
	if (durable_beyond(y, old, end, l->half[old].generation, end, &before))
		return -EUCLEAN;
	/* Does the younger half go on where this one ended? */
	before = UINT32_MAX;
	if (durable_beyond(y, young, 0, l->half[old].generation, end, &before) && before != end)
		return -EUCLEAN;
	if (before != UINT32_MAX && before != end)
		return 0; /* what is missing was not flushed, nor was anything after it */
	r = take_half(y, young, &end, &before);
	if (!r && durable_beyond(y, young, end, l->half[young].generation, end, &before))
		r = -EUCLEAN;
	return r;
}

static int by_place(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	if (x->page != y->page)
		return x->page < y->page ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static bool cancelled(const struct replay *y, const struct item *it)
{
	for (uint32_t i = y->n_cancels; i-- > 0 && y->cancel[i].seq > it->seq;)
		if (y->cancel[i].object == it->object && it->page >= y->cancel[i].first &&
		    it->page - y->cancel[i].first < y->cancel[i].count)
			return true;
	return false;
}

/* All items of one page of one object, in order: which goes in place, and what that does to the root. */
static int take_page(struct replay *y, const struct item *it, uint32_t n, const struct item **ret)
{
	struct replay_object *x = &y->object[it->object];
	const uint8_t *before = NULL;
	const struct item *last = NULL;
	struct root term;

	*ret = NULL;
	if (!x->known || !map_has(&x->map, it->page))
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		if (cancelled(y, &it[i]))
			continue;
		if (it[i].later && !before)
			before = it[i].before;
		if (!it[i].later || it[i].kind == REDO_LOCAL)
			last = &it[i];
	}
	*ret = last;
	if (!last || !last->later)
		return 0;
	keyring_page_term(y->s->k, last->page, before, &term);
	root_sub(&x->root, &term);
	keyring_page_term(y->s->k, last->page, last->entry, &term);
	root_add(&x->root, &term);
	x->changed = true;
	if (last->mtime_ns > x->mtime_ns || !x->pages.n)
		x->mtime_ns = last->mtime_ns;
	return extents_add(&x->pages, last->page, 1);
}

static int put_in_place(struct object *o, const struct item *it)
{
	int fd, r = fd_get(o, &fd);

	if (r)
		return r;
	r = full_pwrite(fd, it->sealed, PAGE_LEN, data_off(it->page));
	if (!r)
		r = object_write_entries(o, fd, it->page, 1, it->entry);
	fd_put(o);
	return r;
}

static int apply_items(struct replay *y)
{
	int r = 0;

	if (y->n_items)
		qsort(y->item, y->n_items, sizeof(*y->item), by_place);
	for (uint32_t i = 0, end; !r && i < y->n_items; i = end) {
		const struct item *it = &y->item[i], *last;
		for (end = i + 1; end < y->n_items && y->item[end].object == it->object && y->item[end].page == it->page;)
			end++;
		r = take_page(y, it, end - i, &last);
		if (!r && last)
			r = put_in_place(y->object[it->object].o, last);
	}
	return r;
}

static int finish_objects(struct replay *y)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < y->n_objects; i++) {
		struct replay_object *x = &y->object[i];
		int fd;
		if (!x->known)
			continue;
		r = fd_get(x->o, &fd);
		if (r)
			break;
		if (fdatasync(fd))
			r = -errno;
		fd_put(x->o);
	}
	for (uint32_t i = 0; !r && i < y->n_objects; i++) {
		struct replay_object *x = &y->object[i];
		if (x->changed)
			r = y->cb->changed(y->cb->ctx, x->local, &x->root, x->mtime_ns, &x->pages);
	}
	return r;
}

static void replay_fini(struct replay *y)
{
	for (uint32_t i = 0; i < y->n_objects; i++) {
		extents_fini(&y->object[i].map.holes);
		extents_fini(&y->object[i].pages);
		if (y->object[i].o)
			object_free(y->object[i].o);
	}
	free(y->object);
	free(y->item);
	free(y->cancel);
	free(y->half[0]);
	free(y->half[1]);
}

int object_store_replay(struct object_store *s, uint64_t committed_txn, const struct redo_callbacks *cb)
{
	struct replay y = {.s = s, .committed = committed_txn, .cb = cb};
	struct redo *l = &s->redo;
	int r;

	atomic_store(&s->committed, committed_txn);
	if (!l->need_replay)
		return 0;
	if (s->read_only)
		return -EROFS;
	r = read_log(&y);
	if (r == -EUCLEAN)
		log_error("redo: damaged in a part that was flushed");
	if (!r)
		r = apply_items(&y);
	if (!r)
		r = finish_objects(&y);
	if (!r) {
		log_debug("redo: %u pages of %u objects looked at", y.n_items, y.n_objects);
		pthread_mutex_lock(&l->lock);
		l->need_replay = false;
		l->replayed = true;
		pthread_mutex_unlock(&l->lock);
	}
	replay_fini(&y);
	return r;
}
