#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "filedata_internal.h"
#include "internal.h"
#include "object_heal.h"
#include "wait.h"

#define QUEUE_MAX 65536u
#define RETRY_MS 60000
#define ATTEMPTS 8u
#define PAGES_TRACKED (UINT64_C(1) << 28) /* entries of an object are held in memory while they are compared: 8 GiB of them are not */

struct item {
	inum ino;
	uint64_t page;      /* looked at first */
	uint64_t tries;     /* that were over without success */
	uint64_t due_ms;
	bool page_good;     /* the rest goes on */
};
struct healer {
	pthread_t thread;
	pthread_mutex_t mu; /* protects the rest; innermost */
	pthread_cond_t wake, news;
	bool runs, stop;
	struct item *item; /* owned */
	uint32_t n, cap;
	uint64_t rounds;
	pthread_mutex_t fetch_mu; /* held while a peer is asked */
	heal_fetch_fn *fetch;
	void *fetch_ctx;
	struct heal_status status;
};

static uint64_t mono_ms(void) { return mono_ns() / 1000000; }

static void wait_until(struct healer *h, pthread_cond_t *c, uint64_t until_ms) { cond_wait_until(c, &h->mu, until_ms * 1000000); }

size_t heal_answer_len(const struct heal_need *n)
{
	if (n->what == HEAL_RECORD)
		return 0;
	return (size_t)n->count * (n->what == HEAL_PAGES ? TAG_ENTRY_LEN + PAGE_LEN : TAG_ENTRY_LEN);
}

/* ---- a file's object ---- */
struct opened {
	struct volume *v;
	inum ino;
	struct filedata *f;
	struct object *o; /* NULL: inline */
	struct heal_need need;
};

static void opened_close(struct opened *x)
{
	if (x->o)
		object_close(x->o);
	content_unpin(x->v, x->ino);
}

/* heal: makes the object's file again where it is missing or another one. Else -EBADMSG. */
static int opened_get(struct volume *v, inum ino, bool heal, struct opened *ret)
{
	struct opened x = {.v = v, .ino = ino};
	int r = content_pin(v, ino, &x.f);

	if (r)
		return r;
	tree_lock(v);
	struct vnode *n = vnode_cached(v, ino);
	if (n)
		x.need.node = n->id;
	tree_unlock(v);
	pthread_rwlock_rdlock(&x.f->lock);
	bool is_object = x.f->is_object;
	uint64_t local = x.f->local;
	x.need.object = x.f->object_id;
	x.need.epoch = x.f->epoch;
	pthread_rwlock_unlock(&x.f->lock);
	if (is_object)
		r = filedata_object_handle(x.f, &x.o);
	bool lost = !r && x.o && object_lost_file(x.o);
	if (is_object && heal && (r == -EBADMSG || lost)) {
		int e = object_heal_header(v->objects, local, &x.need.object, x.need.epoch);
		r = e ? e : r ? filedata_object_handle(x.f, &x.o) : 0;
	} else if (lost) {
		r = -EBADMSG;
	}
	if (r) {
		opened_close(&x);
		return r;
	}
	*ret = x;
	return 0;
}

static void map_of(const struct opened *x, struct page_map *map, struct root *root) { object_map(x->o, map, root); }

/* ---- answering ---- */
static int serve_entries(struct opened *x, const struct heal_need *n, const struct page_map *map, uint8_t *out)
{
	int r = 0;

	for (uint64_t p = n->first, end = n->first + n->count; !r && p < end;) {
		struct extent hole = extents_next(&map->holes, p);
		uint64_t to = hole.count && hole.first < end ? hole.first : end;
		if (hole.count && hole.first <= p) {
			p = hole.first + hole.count;
			continue;
		}
		r = object_read_entries(x->o, p, (uint32_t)(to - p), out + (p - n->first) * TAG_ENTRY_LEN);
		p = to;
	}
	return r;
}

static int serve_opened(struct opened *x, const struct heal_need *n, uint8_t *out)
{
	struct page_map map;
	struct root root;
	int r = 0;

	if (!x->o || !id_eq(&x->need.object, &n->object) || x->need.epoch != n->epoch)
		return -ENOENT;
	map_of(x, &map, &root);
	if (n->first >= map.pages || n->count > map.pages - n->first || (n->what == HEAL_ENTRIES && !root_eq(&root, &n->root)))
		r = -ENOENT;
	else if (n->what == HEAL_ENTRIES)
		r = serve_entries(x, n, &map, out);
	else
		r = object_read_sealed(x->o, n->first, n->count, out, out + (size_t)n->count * TAG_ENTRY_LEN);
	extents_fini(&map.holes);
	return r == -ENODATA ? -ENOENT : r;
}

static int serve_record(struct volume *v, const struct heal_need *n, struct buf *out)
{
	struct dot dot = {le64_load(n->object.b), n->first};
	struct dot_row d;
	struct buf record = {0};

	tree_lock(v);
	int r = journal_dot_get(v->journal, dot, &d);
	r = r ? r : record_by_dot(v, &d, &record);
	tree_unlock(v);
	if (!r && record.len <= HEAL_RECORD_MAX)
		buf_put(out, record.p, record.len);
	else if (!r)
		r = -ENOENT;
	buf_fini(&record);
	return r ? -ENOENT : out->err;
}

int volume_heal_serve(struct volume *v, const struct heal_need *n, struct buf *out)
{
	struct opened x;
	struct vnode *node;
	inum ino = 0;
	uint8_t *p;

	if (n->what == HEAL_RECORD)
		return serve_record(v, n, out);

	tree_lock(v);
	int r = vnode_by_id(v, &n->node, &node);
	if (!r)
		ino = node->row;
	tree_unlock(v);
	r = r ? -ENOENT : opened_get(v, ino, false, &x);
	if (r)
		return -ENOENT;
	p = calloc(1, heal_answer_len(n));
	r = p ? serve_opened(&x, n, p) : -ENOMEM;
	opened_close(&x);
	if (!r)
		buf_put(out, p, heal_answer_len(n));
	free(p);
	return r ? r : out->err;
}

/* ---- asking ---- */
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

	map_of(x, &map, &n.root);
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

static bool stops(struct healer *h)
{
	pthread_mutex_lock(&h->mu);
	bool stop = h->stop;
	pthread_mutex_unlock(&h->mu);
	return stop;
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
	map_of(x, &map, &root);
	extents_fini(&map.holes);
	for (uint64_t p = 0; p < map.pages && !stops(h); p += GROUP_PAGES) {
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

	map_of(x, &map, &root);
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

static void page_is_good(struct healer *h, inum ino)
{
	pthread_mutex_lock(&h->mu);
	for (uint32_t i = 0; i < h->n; i++)
		if (h->item[i].ino == ino)
			h->item[i].page_good = true;
	pthread_cond_broadcast(&h->news);
	pthread_mutex_unlock(&h->mu);
}

/* Item 0: some record did not open. */
static int heal_records(struct volume *v)
{
	const struct check_options o = {.repair = true};
	struct check_result r;
	int e = volume_check_records(v, &o, &r);

	return e ? e : r.bad_records ? -ENOENT : 0;
}

static int heal_item(struct volume *v, inum ino, uint64_t page, bool queued)
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
			page_is_good(h, ino);
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

/* ---- looking ---- */
int volume_verify_file(struct volume *v, inum ino, bool deep, bool (*pace)(void *ctx, uint64_t bytes), void *ctx, struct verify_result *ret)
{
	struct opened x;
	struct page_map map;
	struct root root;
	bool bad[GROUP_PAGES];
	int r = opened_get(v, ino, false, &x);

	*ret = (struct verify_result){0};
	if (r == -EBADMSG) {
		ret->missing = true;
		ret->bad_pages = 1;
		return 0;
	}
	if (r)
		return r;
	if (!x.o) {
		opened_close(&x);
		return 0;
	}
	map_of(&x, &map, &root);
	extents_fini(&map.holes);
	r = object_check_entries(x.o);
	ret->bytes += map.pages * TAG_ENTRY_LEN;
	if (r == -EBADMSG) {
		ret->bad_entries = true;
		r = 0;
	}
	for (uint64_t p = 0; !r && deep && !ret->stopped && p < map.pages; p += GROUP_PAGES) {
		uint32_t n = map.pages - p < GROUP_PAGES ? (uint32_t)(map.pages - p) : GROUP_PAGES;
		r = object_damaged(x.o, p, n, bad);
		for (uint32_t i = 0; !r && i < n; i++)
			if (bad[i] && !ret->bad_pages++)
				ret->first_bad = p + i;
		ret->bytes += (uint64_t)n * PAGE_LEN;
		if (pace && !pace(ctx, (uint64_t)n * PAGE_LEN))
			ret->stopped = true;
	}
	opened_close(&x);
	return r;
}

/* ---- the queue ---- */
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
