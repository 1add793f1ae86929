/* The redo log: what a process that was killed and a power cut leave comes back, page by page, with a root that fits; torn and damaged
 * logs; pages of peers; cancelled pages; a full log. */
#include "store_fixture.h"

#define LOCAL 0x77
#define PAGES 200
#define OBJECT_FILE "objects/77/0000000000000077"

static const struct id object_a = {{0xaa, 1}};

/* The journal's side of one object */
struct content {
	struct page_map map;
	struct root root;
	bool changed;
	int64_t mtime_ns;
	struct extents pages;
	bool gone; /* no record of it */
};

static int object_info(void *ctx, uint64_t local, struct id *ret_object, uint32_t *ret_epoch, struct page_map *ret_map,
		       struct root *ret_root)
{
	struct content *c = ctx;

	if (local != LOCAL || c->gone)
		return -ENOENT;
	*ret_object = object_a;
	*ret_epoch = 0;
	*ret_root = c->root;
	ret_map->pages = c->map.pages;
	return extents_copy(&ret_map->holes, &c->map.holes);
}

static int changed(void *ctx, uint64_t local, const struct root *root, int64_t mtime_ns, const struct extents *pages)
{
	struct content *c = ctx;

	CHECK_EQ(local, LOCAL);
	CHECK(!c->changed);
	c->changed = true;
	c->root = *root;
	c->mtime_ns = mtime_ns;
	return extents_copy(&c->pages, pages);
}

static void content_copy(struct content *to, const struct content *from)
{
	*to = (struct content){.root = from->root, .map = {.pages = from->map.pages}};
	CHECK_EQ(extents_copy(&to->map.holes, &from->map.holes), 0);
}

static void content_fini(struct content *c)
{
	extents_fini(&c->map.holes);
	extents_fini(&c->pages);
}

static int replay(struct fixture *f, struct content *c)
{
	struct redo_callbacks cb = {object_info, changed, c};
	return object_store_replay(f->s, f->committed, &cb);
}

/* A second store: a copy of f's directory as it is now, opened. */
static void crash(const struct fixture *f, struct fixture *g)
{
	*g = *f;
	fixture_dir(g->path);
	fixture_copy(f->path, g->path, "redo");
	fixture_copy(f->path, g->path, OBJECT_FILE);
	g->st = stats_new();
	fixture_open_store(g);
}

static void crash_fini(struct fixture *g)
{
	fixture_close_store(g);
	fixture_rmtree(g->path);
	stats_free(g->st);
}

static void commit(struct fixture *f, struct object *o, struct content *c)
{
	CHECK_EQ(object_flush(o), 0);
	extents_fini(&c->map.holes);
	CHECK_EQ(object_snapshot(o, &c->map, &c->root), 0);
	CHECK_EQ(object_store_flush_redo(f->s), 0);
	f->committed = f->txn++;
	object_store_set_txn(f->s, f->txn);
	CHECK_EQ(object_store_committed(f->s, f->committed), 0);
}

/* The same with time between the snapshot and the commit of it, in which writing goes on. */
static void snapshot_only(struct object *o, struct content *ret)
{
	memset(ret, 0, sizeof(*ret));
	CHECK_EQ(object_flush(o), 0);
	CHECK_EQ(object_snapshot(o, &ret->map, &ret->root), 0);
}

static void commit_snapshot(struct fixture *f, struct content *c, struct content *snapshot)
{
	CHECK_EQ(object_store_flush_redo(f->s), 0);
	content_fini(c);
	*c = *snapshot;
	f->committed = f->txn++;
	object_store_set_txn(f->s, f->txn);
	CHECK_EQ(object_store_committed(f->s, f->committed), 0);
}

static int put(struct object *o, uint64_t first, uint32_t n, uint64_t version)
{
	static uint8_t buf[PAGES * PAGE_LEN];

	for (uint32_t i = 0; i < n; i++)
		fixture_fill(buf + (size_t)i * PAGE_LEN, first + i, version);
	return object_write(o, first, n, buf, (int64_t)version);
}

static uint64_t get(struct object *o, uint64_t page)
{
	uint8_t p[PAGE_LEN];
	uint64_t bad;
	int r = object_read(o, page, 1, p, &bad);

	CHECK_EQ(r, 0);
	return r ? UINT64_MAX : fixture_version(p, page);
}

static void start(struct fixture *f, struct content *c, struct object **o)
{
	memset(c, 0, sizeof(*c));
	fixture_init(f, CIPHER_XCHACHA20POLY1305, SMALL_LOG);
	CHECK_EQ(object_create(f->s, LOCAL, &object_a, 0, o), 0);
	CHECK_EQ(put(*o, 0, PAGES, 1), 0);
	commit(f, *o, c);
}

/* Replays g and opens the object; its root must fit. */
static struct object *recovered(struct fixture *g, struct content *c)
{
	struct object *o;

	CHECK_EQ(replay(g, c), 0);
	REQUIRE(!object_open(g->s, LOCAL, &object_a, 0, &c->map, &c->root, &o));
	CHECK(fixture_root_right(g, o));
	return o;
}

/* Random histories; at each crash all that had reached the kernel (or, with cut, only what was flushed) is there. */
struct history {
	uint64_t committed[PAGES], now[PAGES]; /* versions; 0: absent */
	uint64_t durable[PAGES];               /* as of the last flush of the log or commit */
};

/* What a power cut may do to what was not flushed: any 4 KiB of the log's unflushed end is old or missing, pages outside of what is
 * committed are anything. */
static void cut_power(const struct fixture *f, const struct fixture *g, const struct content *c)
{
	const struct redo *l = &f->s->redo;
	uint8_t h = l->active, junk[PAGE_LEN];
	uint32_t from = l->durable_generation == l->half[h].generation ? l->durable_off : 0;
	char path[5000];
	int fd;

	memset(junk, 0x5a, sizeof(junk));
	snprintf(path, sizeof(path), "%s/redo", g->path);
	fd = open(path, O_RDWR);
	for (uint32_t at = from & ~4095u; at < l->half[h].pos; at += 4096) {
		uint32_t a = at < from ? from : at;
		if (random() % 3 == 0)
			CHECK(pwrite(fd, junk, at + 4096 - a, REDO_HEAD + (off_t)h * l->half_len + a) > 0);
	}
	if (l->half[h ^ 1].pos && l->durable_generation < l->half[h].generation &&
	    l->durable_generation == l->half[h ^ 1].generation)
		for (uint32_t at = l->durable_off; at < l->half[h ^ 1].pos; at += 4096)
			if (random() % 3 == 0)
				CHECK(pwrite(fd, junk, 64, REDO_HEAD + (off_t)(h ^ 1) * l->half_len + at) > 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/" OBJECT_FILE, g->path);
	fd = open(path, O_RDWR);
	for (uint64_t p = 0; p < PAGES; p++)
		if (!map_has(&c->map, p) && random() % 2)
			CHECK(pwrite(fd, junk, PAGE_LEN, data_off(p)) == PAGE_LEN);
	close(fd);
}

static void check_crash(struct fixture *f, const struct content *c, const struct history *h, bool cut)
{
	struct fixture g;
	struct content d;
	struct object *o;

	pthread_mutex_lock(&f->s->apply_lock); /* the worker stands still, so that one moment is copied */
	crash(f, &g);
	content_copy(&d, c);
	if (cut) {
		fixture_close_store(&g);
		cut_power(f, &g, c);
		fixture_open_store(&g);
	}
	pthread_mutex_unlock(&f->s->apply_lock);
	for (int again = 0; again < 2; again++) { /* and once more, as if killed before the checkpoint */
		struct content e;
		content_copy(&e, c);
		o = recovered(&g, &e);
		for (uint64_t p = 0; p < PAGES; p++) {
			uint64_t v;
			if (!map_has(&e.map, p))
				continue;
			v = get(o, p);
			if (v == UINT64_MAX) {
				CHECK(!"a page that was never written so");
				continue;
			}
			CHECK(v >= h->committed[p]);
			if (h->now[p]) { /* not dropped since */
				CHECK(v <= h->now[p]);
				if (cut)
					CHECK(v >= h->durable[p]);
				else
					CHECK_EQ(v, h->now[p]);
			}
			CHECK(!(v > h->committed[p] && !extents_has(&e.pages, p)));
		}
		object_close(o);
		if (again)
			CHECK_EQ(object_store_checkpoint(g.s), 0);
		content_fini(&e);
		fixture_close_store(&g);
		fixture_open_store(&g);
	}
	CHECK_EQ(replay(&g, &d), 0); /* empty now */
	CHECK(!d.changed);
	content_fini(&d);
	crash_fini(&g);
}

static void histories(int steps, bool cut)
{
	struct fixture f;
	struct content c;
	struct object *o;
	struct history h;
	struct content snapshot;
	uint64_t version = 2, at_snapshot[PAGES];
	bool under_way = false;

	start(&f, &c, &o);
	for (int p = 0; p < PAGES; p++)
		h.committed[p] = h.now[p] = h.durable[p] = 1;
	for (int i = 0; i < steps && check_failures_ < 20; i++) {
		uint64_t first = (uint64_t)random() % PAGES;
		uint32_t n = 1 + (uint32_t)random() % (random() % 3 ? 4 : 130);
		int r = 0, op = (int)(random() % 20);
		if (first + n > PAGES)
			n = (uint32_t)(PAGES - first);
		if (op == 0) {
			r = object_punch(o, first, n);
			for (uint64_t p = first; !r && p < first + n; p++)
				h.now[p] = 0;
		} else if (op == 1) {
			r = object_resize(o, first);
			for (uint64_t p = first; !r && p < PAGES; p++)
				h.now[p] = 0;
		} else if (op == 2) {
			CHECK_EQ(object_store_flush_redo(f.s), 0);
			memcpy(h.durable, h.now, sizeof(h.now));
		} else if (op < 14) {
			r = put(o, first, n, version);
			for (uint64_t p = first; !r && p < first + n; p++)
				h.now[p] = version;
			/* the first group of it may have been written */
			for (uint64_t p = first; r == -EAGAIN && p < first + n; p++)
				h.now[p] = get(o, p);
			version++;
		}
		if (under_way && (random() % 4 == 0 || op >= 14 || r == -EAGAIN)) {
			if (op >= 18)
				check_crash(&f, &c, &h, cut);
			commit_snapshot(&f, &c, &snapshot);
			memcpy(h.committed, at_snapshot, sizeof(h.now));
			memcpy(h.durable, h.now, sizeof(h.now));
			under_way = false;
		}
		if (op == 14) {
			snapshot_only(o, &snapshot);
			memcpy(at_snapshot, h.now, sizeof(h.now));
			under_way = true;
		}
		if (op == 15 || r == -EAGAIN) {
			commit(&f, o, &c);
			memcpy(h.committed, h.now, sizeof(h.now));
			memcpy(h.durable, h.now, sizeof(h.now));
			if (random() % 2)
				CHECK_EQ(object_reclaim(o), 0);
			r = 0;
		}
		CHECK_EQ(r, 0);
		if (op == 16 && random() % 3 == 0) {
			r = object_store_checkpoint(f.s);
			CHECK(!r || r == -EAGAIN);
			memcpy(h.durable, h.now, sizeof(h.now));
		}
		if (op >= 18)
			check_crash(&f, &c, &h, cut);
	}
	if (under_way)
		content_fini(&snapshot);
	object_close(o);
	content_fini(&c);
	fixture_fini(&f);
}

/* A log of three records, cut at every byte: the intact ones count. */
static void torn(bool flushed)
{
	struct fixture f, g;
	struct content c, d;
	struct object *o;
	uint32_t len = redo_record_len(REDO_LOCAL, 1);
	uint8_t *whole, *log = malloc(3 * len), slots[4 * PAGE_LEN];
	char path[5000];
	int fd;

	start(&f, &c, &o);
	for (uint64_t i = 0; i < 3; i++) {
		CHECK_EQ(put(o, i, 1, 2), 0);
		if (flushed)
			CHECK_EQ(object_store_flush_redo(f.s), 0);
	}
	crash(&f, &g);
	snprintf(path, sizeof(path), "%s/redo", g.path);
	fd = open(path, O_RDWR);
	whole = log;
	CHECK_EQ(pread(fd, whole, 3 * len, REDO_HEAD), 3 * len);
	fixture_copy(f.path, g.path, "redo"); /* with the generations as they were before g was opened */
	CHECK_EQ(pread(fd, slots, sizeof(slots), 0), sizeof(slots));
	for (uint32_t at = 0; at < 3 * len; at += (at % len < 200 ? (at < len ? 1 : 23) : at % len > len - 9 ? 1 : 997)) {
		uint8_t *zeros = calloc(1, 3 * len - at);
		uint64_t versions = 0;
		fixture_close_store(&g);
		CHECK_EQ(pwrite(fd, slots, sizeof(slots), 0), sizeof(slots));
		CHECK_EQ(pwrite(fd, whole, 3 * len, REDO_HEAD), 3 * len);
		CHECK_EQ(pwrite(fd, zeros, 3 * len - at, REDO_HEAD + at), 3 * len - at);
		fixture_open_store(&g);
		content_copy(&d, &c);
		o = recovered(&g, &d);
		for (uint64_t p = 0; p < 3; p++)
			versions += get(o, p) - 1;
		/* what ends a record may be zeros already */
		CHECK(versions == at / len || (versions == at / len + 1 && at % len > 200));
		object_close(o);
		content_fini(&d);
		free(zeros);
		/* pages of this round must not show in the next */
		fixture_copy(f.path, g.path, OBJECT_FILE);
	}
	/* damage in the middle: of a log that was flushed it is damage, else the end */
	for (uint32_t at = 3; at < 3 * len; at += 331) {
		uint8_t b = whole[at] ^ 0x10;
		int r;
		fixture_close_store(&g);
		fixture_copy(f.path, g.path, OBJECT_FILE);
		CHECK_EQ(pwrite(fd, slots, sizeof(slots), 0), sizeof(slots));
		CHECK_EQ(pwrite(fd, whole, 3 * len, REDO_HEAD), 3 * len);
		if (at % len >= redo_head_len(REDO_LOCAL, 1) - 64 && at % len < redo_head_len(REDO_LOCAL, 1))
			at += 64; /* padding */
		b = whole[at] ^ 0x10;
		CHECK_EQ(pwrite(fd, &b, 1, REDO_HEAD + at), 1);
		fixture_open_store(&g);
		content_copy(&d, &c);
		r = replay(&g, &d);
		/* the third record says that the second is flushed; nothing says it of the third */
		CHECK_EQ(r, flushed && at < 2 * len ? -EUCLEAN : 0);
		if (r)
			CHECK_EQ(object_store_checkpoint(g.s), -EUCLEAN);
		content_fini(&d);
	}
	close(fd);
	crash_fini(&g);
	content_fini(&c);
	fixture_fini(&f);
	free(log);
}

static void remote(void)
{
	struct fixture f, g;
	struct content c, d;
	struct object *o, *peer, *p;
	uint8_t entries[4 * 32], sealed[4 * PAGE_LEN];

	start(&f, &c, &o);
	CHECK_EQ(put(o, 10, 2, 2), 0); /* pending pages below the peer's */
	CHECK_EQ(object_create(f.s, LOCAL + 1, &object_a, 0, &peer), 0);
	CHECK_EQ(put(peer, 10, 4, 50), 0);
	CHECK_EQ(object_read_sealed(peer, 10, 4, entries, sealed), 0);
	CHECK_EQ(object_write_sealed(o, 10, 4, entries, sealed, 0), 0);
	CHECK_EQ(get(o, 11), 50); /* visible at once */
	CHECK_EQ(put(o, 13, 1, 60), 0);
	CHECK_EQ(object_store_flush_redo(f.s), 0);
	CHECK_EQ(object_store_checkpoint(f.s), -EAGAIN); /* in place: ours, not the peer's */
	CHECK(fixture_root_right(&f, o));

	crash(&f, &g); /* not committed: the peer's pages are gone, ours have stayed */
	content_copy(&d, &c);
	p = recovered(&g, &d);
	CHECK_EQ(get(p, 10), 2);
	CHECK_EQ(get(p, 11), 2);
	CHECK_EQ(get(p, 12), 1);
	CHECK_EQ(get(p, 13), 60);
	CHECK(d.changed && d.mtime_ns == 60);
	CHECK(extents_has(&d.pages, 11) && !extents_has(&d.pages, 12) && extents_has(&d.pages, 13));
	object_close(p);
	content_fini(&d);
	crash_fini(&g);

	commit(&f, o, &c);
	crash(&f, &g); /* committed and not in place yet */
	content_copy(&d, &c);
	p = recovered(&g, &d);
	CHECK_EQ(get(p, 10), 50);
	CHECK_EQ(get(p, 12), 50);
	CHECK_EQ(get(p, 13), 60);
	CHECK(!d.changed);
	object_close(p);
	content_fini(&d);
	crash_fini(&g);

	CHECK_EQ(object_store_checkpoint(f.s), 0);
	CHECK_EQ(get(o, 12), 50);
	CHECK(fixture_root_right(&f, o));
	object_close(o);
	object_close(peer);
	content_fini(&c);
	fixture_fini(&f);
}

static void cancel(void)
{
	struct fixture f, g;
	struct content c, d;
	struct object *o, *p;

	start(&f, &c, &o);
	CHECK_EQ(put(o, 5, 3, 2), 0);
	commit(&f, o, &c);
	CHECK_EQ(object_punch(o, 5, 1), 0);

	crash(&f, &g); /* the punch is not committed: the content of before is whole, with a page that only the log has */
	content_copy(&d, &c);
	p = recovered(&g, &d);
	CHECK_EQ(get(p, 5), 2);
	CHECK(!d.changed);
	object_close(p);
	content_fini(&d);
	crash_fini(&g);

	commit(&f, o, &c);
	CHECK_EQ(put(o, 5, 1, 3), 0); /* into the hole, straight into the file */
	commit(&f, o, &c);
	crash(&f, &g); /* the log's older page 5 must not come over it */
	content_copy(&d, &c);
	p = recovered(&g, &d);
	CHECK_EQ(get(p, 5), 3);
	CHECK_EQ(get(p, 6), 2);
	CHECK(!d.changed);
	object_close(p);
	content_fini(&d);

	/* an object that the journal does not know */
	fixture_close_store(&g);
	fixture_open_store(&g);
	content_copy(&d, &c);
	d.gone = true;
	CHECK_EQ(replay(&g, &d), 0);
	CHECK(!d.changed);
	content_fini(&d);
	crash_fini(&g);
	object_close(o);
	content_fini(&c);
	fixture_fini(&f);
}

/* A page that is written while the commit of a hole in its place is under way. */
static void hole_under_way(void)
{
	struct fixture f, g;
	struct content c, d, snapshot;
	struct object *o, *p;

	start(&f, &c, &o);
	CHECK_EQ(object_punch(o, 5, 2), 0);
	snapshot_only(o, &snapshot);
	CHECK_EQ(put(o, 5, 1, 2), 0);
	commit_snapshot(&f, &c, &snapshot);
	CHECK_EQ(object_store_checkpoint(f.s), -EAGAIN); /* in place, and still in the log */
	CHECK_EQ(put(o, 5, 1, 3), 0);
	CHECK_EQ(put(o, 6, 1, 3), 0);
	CHECK_EQ(get(o, 5), 3);
	CHECK(fixture_root_right(&f, o));
	/* committed, but the store has not heard of it, so the log has everything still */
	snapshot_only(o, &snapshot);
	CHECK_EQ(object_store_flush_redo(f.s), 0);
	crash(&f, &g);
	g.committed = f.txn;
	content_copy(&d, &snapshot);
	content_fini(&snapshot);
	p = recovered(&g, &d);
	CHECK_EQ(get(p, 5), 3);
	CHECK_EQ(get(p, 6), 3);
	CHECK(!d.changed);
	object_close(p);
	content_fini(&d);
	crash_fini(&g);
	object_close(o);
	content_fini(&c);
	fixture_fini(&f);
}

static void full(void)
{
	struct fixture f;
	struct content c;
	struct object *o;
	uint64_t bytes, pending;
	int r = 0, wrote = 0;

	start(&f, &c, &o);
	for (int i = 0; i < 10000 && !r; i++) {
		r = put(o, (uint64_t)i % 190, 10, 2);
		wrote += !r;
	}
	CHECK_EQ(r, -EAGAIN);
	CHECK(wrote > 20);
	CHECK(object_store_wants_commit(f.s));
	object_store_usage(f.s, &bytes, &pending);
	CHECK(bytes > SMALL_LOG / 2 && bytes < SMALL_LOG);
	CHECK_EQ(put(o, 0, 10, 3), -EAGAIN);
	CHECK_EQ(get(o, 0), 2); /* nothing was written */
	CHECK(fixture_root_right(&f, o));
	commit(&f, o, &c);
	for (int i = 0; i < 50; i++) {
		r = put(o, 0, 100, 3);
		if (r == -EAGAIN) {
			commit(&f, o, &c);
			r = put(o, 0, 100, 3);
		}
		CHECK_EQ(r, 0);
	}
	CHECK_EQ(get(o, 99), 3);
	/* closed and forgotten by its user, it is still put in place */
	object_close(o);
	CHECK_EQ(object_store_checkpoint(f.s), -EAGAIN);
	CHECK_EQ(object_store_committed(f.s, f.txn), 0);
	CHECK_EQ(object_store_checkpoint(f.s), 0);
	object_store_usage(f.s, &bytes, &pending);
	CHECK_EQ(bytes, 0);
	CHECK_EQ(pending, 0);
	content_fini(&c);
	fixture_fini(&f);
}

/* What was found at open bars overwriting until it is replayed and committed; read-only nothing is replayed. */
static void order(void)
{
	struct fixture f, g;
	struct content c, d;
	struct object *o, *p;
	struct object_store *ro;

	start(&f, &c, &o);
	CHECK_EQ(put(o, 0, 1, 2), 0);
	crash(&f, &g);
	CHECK_EQ(object_store_log_txn(g.s), 2);
	CHECK(object_store_next_local(g.s) > LOCAL);
	CHECK_EQ(object_open(g.s, LOCAL, &object_a, 0, &c.map, &c.root, &p), 0);
	CHECK_EQ(put(p, 0, 1, 3), -EAGAIN);
	object_close(p);
	CHECK_EQ(object_store_checkpoint(g.s), -EUCLEAN);
	fixture_close_store(&g);
	g.dirfd = open(g.path, O_RDONLY | O_DIRECTORY);
	CHECK_EQ(object_store_open(g.dirfd, g.k, &env_real, g.st, true, &ro), 0);
	g.s = ro;
	content_copy(&d, &c);
	CHECK_EQ(replay(&g, &d), -EROFS);
	CHECK_EQ(object_open(ro, LOCAL, &object_a, 0, &c.map, &c.root, &p), 0);
	CHECK_EQ(put(p, 0, 1, 3), -EROFS);
	CHECK_EQ(object_resize(p, 3), -EROFS);
	CHECK_EQ(get(p, 0), 1);
	object_close(p);
	fixture_close_store(&g);
	fixture_open_store(&g);
	p = recovered(&g, &d);
	CHECK_EQ(get(p, 0), 2);
	CHECK_EQ(put(p, 0, 1, 3), -EAGAIN);
	object_store_set_txn(g.s, 4);
	CHECK_EQ(object_store_committed(g.s, 3), 0); /* empties the log */
	CHECK_EQ(put(p, 0, 1, 3), 0);
	object_close(p);
	content_fini(&d);
	crash_fini(&g);
	object_close(o);
	content_fini(&c);
	fixture_fini(&f);
}

int main(int argc, char **argv)
{
	srandom(argc > 1 ? (unsigned)atoi(argv[1]) : 3);
	REQUIRE(!crypto_init());
	torn(false);
	torn(true);
	remote();
	cancel();
	hole_under_way();
	full();
	order();
	histories(200, false);
	histories(200, true);
	return check_result();
}
