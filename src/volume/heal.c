/* Healing: a peer is asked for what does not open, and what it sends is verified and written back. */
#include <errno.h>
#include <stdlib.h>

#include "check_volume.h"
#include "heal_internal.h"
#include "object_heal.h"

#define ATTEMPTS 8u
#define PAGES_TRACKED (UINT64_C(1) << 28) /* entries of an object are held in memory while they are compared: 8 GiB of them are not */

static int ask(struct healer *h, const struct heal_need *n, unsigned attempt, struct buf *ret)
{
	int r;

	ret->len = 0;
	pthread_mutex_lock(&h->fetch_mu);
	r = h->fetch ? h->fetch(h->fetch_ctx, n, attempt, ret) : -ENOTCONN;
	pthread_mutex_unlock(&h->fetch_mu);
	return r;
}

int heal_fetch_record(struct volume *v, struct dot dot, struct buf *ret)
{
	struct heal_need n = {.what = HEAL_RECORD, .first = dot.counter, .count = 1};

	if (!v->healer)
		return -ENOTCONN;
	le64_store(n.object.b, dot.replica);
	return ask(v->healer, &n, 0, ret);
}

static int heal_entries_from(struct healer *h, struct opened *x, unsigned attempt)
{
	struct heal_need n = x->need;
	struct page_map map;
	struct buf all = {0}, some = {0};
	int r = 0;

	object_map(x->o, &map, &n.root);
	extents_fini(&map.holes);
	n.what = HEAL_ENTRIES;
	if (map.pages > PAGES_TRACKED)
		return -EFBIG;
	for (n.first = 0; !r && n.first < map.pages; n.first += n.count) {
		uint64_t left = map.pages - n.first;
		n.count = left < HEAL_ENTRIES_MAX ? (uint32_t)left : HEAL_ENTRIES_MAX;
		r = ask(h, &n, attempt, &some);
		if (!r)
			buf_put(&all, some.p, some.len);
		r = r ? r : all.err;
	}
	r = r ? r : object_heal_entries(x->o, all.p, map.pages);
	buf_fini(&all);
	buf_fini(&some);
	return r;
}

/* The entries do not add up to the root: those of a peer that holds the same content do. */
static int heal_entries(struct healer *h, struct opened *x)
{
	int r = -EBADMSG;

	for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
		r = heal_entries_from(h, x, attempt);
		if (!r) {
			log_info("%s: the page tags of inode %llu did not add up to its content and were healed from a peer", x->v->path,
				 (unsigned long long)x->ino);
			return 0;
		}
		if (r == -ENOENT || r == -ENOTCONN || r == -ESHUTDOWN)
			return r;
	}
	return r;
}

/* A run of damaged pages. */
static int heal_run(struct healer *h, struct opened *x, uint64_t first, uint32_t count, uint64_t *fixed)
{
	struct heal_need n = x->need;
	struct buf b = {0};
	uint32_t left = count;
	int r = 0;

	n.what = HEAL_PAGES;
	n.first = first;
	n.count = count;
	for (unsigned attempt = 0; left && attempt < ATTEMPTS; attempt++) {
		r = ask(h, &n, attempt, &b);
		if (r)
			break;
		left = 0;
		for (uint32_t i = 0; i < count; i++) {
			int e = object_heal_page(x->o, first + i, b.p + i * TAG_ENTRY_LEN, b.p + (size_t)count * TAG_ENTRY_LEN + (size_t)i * PAGE_LEN);
			if (e) {
				left++;
				r = e;
			} else {
				++*fixed;
			}
		}
	}
	buf_fini(&b);
	return left ? r ? r : -EBADMSG : 0;
}

/* Pages [first, first + n) of one group. What cannot be had is left, and said at the end. */
static int heal_group(struct healer *h, struct opened *x, uint64_t first, uint32_t n, uint64_t *fixed)
{
	bool bad[GROUP_PAGES];
	int r = object_damaged(x->o, first, n, bad), e = 0;

	for (uint32_t i = 0, end; !r && i < n; i = end) {
		end = i + 1;
		if (!bad[i])
			continue;
		while (end < n && bad[end] && end - i < HEAL_PAGES_MAX)
			end++;
		int k = heal_run(h, x, first + i, end - i, fixed);
		if (k == -ENOTCONN || k == -ESHUTDOWN)
			return k;
		e = k ? k : e;
	}
	return r ? r : e;
}

static int heal_all(struct healer *h, struct opened *x, uint64_t *fixed)
{
	struct page_map map;
	struct root root;
	int r = object_check_entries(x->o), e = 0;

	if (r == -EBADMSG)
		r = heal_entries(h, x);
	if (r == -ENOTCONN || r == -ESHUTDOWN)
		return r;
	object_map(x->o, &map, &root);
	extents_fini(&map.holes);
	for (uint64_t p = 0; p < map.pages && !healer_stops(h); p += GROUP_PAGES) {
		uint32_t n = map.pages - p < GROUP_PAGES ? (uint32_t)(map.pages - p) : GROUP_PAGES;
		int k = heal_group(h, x, p, n, fixed);
		if (k == -ENOTCONN || k == -ESHUTDOWN)
			return k;
		e = k ? k : e;
	}
	return r ? r : e;
}

static void clear_mark(struct volume *v, inum ino)
{
	struct vnode *n;

	tree_lock(v);
	n = vnode_cached(v, ino);
	if (n)
		n->flags &= ~(unsigned)VN_DAMAGED;
	tree_unlock(v);
}

static void told(struct healer *h, struct opened *x, uint64_t fixed, int r)
{
	char *path = NULL;

	if (!fixed)
		return;
	stats_add(x->v->stats, COUNT_HEALED_PAGES, fixed);
	pthread_mutex_lock(&h->mu);
	h->status.healed_pages += fixed;
	h->status.healed_files += !r;
	pthread_mutex_unlock(&h->mu);
	tree_lock(x->v);
	if (node_path(x->v, x->ino, &path))
		path = NULL;
	tree_unlock(x->v);
	log_info("%s: %llu page%s of inode %llu (%s) healed from a peer%s", x->v->path, (unsigned long long)fixed, fixed == 1 ? "" : "s",
		 (unsigned long long)x->ino, path ? path : "no name", r ? ", others are still damaged" : "");
	free(path);
}

/* The page that somebody waits for, and what is damaged near it. */
static int heal_page(struct healer *h, struct opened *x, uint64_t page, uint64_t *fixed)
{
	struct page_map map;
	struct root root;

	object_map(x->o, &map, &root);
	extents_fini(&map.holes);
	if (page >= map.pages)
		return 0;
	uint64_t group_end = (page / GROUP_PAGES + 1) * GROUP_PAGES, end = map.pages < group_end ? map.pages : group_end;
	uint32_t n = end - page < HEAL_PAGES_MAX ? (uint32_t)(end - page) : HEAL_PAGES_MAX;
	int r = heal_group(h, x, page, n, fixed);
	if (r == -ESTALE && object_check_entries(x->o) == -EBADMSG) {
		r = heal_entries(h, x);
		r = r ? r : heal_group(h, x, page, n, fixed);
	}
	bool bad = false;
	return r && !object_damaged(x->o, page, 1, &bad) && !bad ? 0 : r;
}

/* Item 0: some record did not open. */
static int heal_records(struct volume *v)
{
	const struct check_options o = {.repair = true};
	struct check_result r;
	int e = volume_check_records(v, &o, &r);

	return e ? e : r.bad_records ? -ENOENT : 0;
}

int heal_item(struct volume *v, inum ino, uint64_t page, bool queued)
{
	if (!ino) {
		int e = heal_records(v);
		if (!e)
			clear_mark(v, ROOT_INUM);
		return e;
	}
	struct healer *h = v->healer;
	struct opened x;
	uint64_t fixed = 0;
	int r = opened_get(v, ino, true, &x);

	if (r)
		return r;
	if (x.o) {
		r = queued ? heal_page(h, &x, page, &fixed) : 0;
		if (!r && queued)
			healer_page_is_good(h, ino);
		r = r == -ENOTCONN ? r : heal_all(h, &x, &fixed);
		if (fixed)
			object_flush(x.o);
	}
	told(h, &x, fixed, r);
	opened_close(&x);
	if (!r)
		clear_mark(v, ino);
	return r;
}

int volume_heal_file(struct volume *v, inum ino) { return v->healer ? heal_item(v, ino, 0, false) : -ENOTCONN; }
