/* Contents on their way from one store to another: all forms, resuming, bases that are not what they are called, damaged chunks, sizes. */
#include <dirent.h>
#include <fcntl.h>

#include "data_env.h"
#include "transfer.h"

#define HISTORY 8
static const struct transfer_bases no_bases;
static const struct id the_node = {{7}}, other_node = {{8}};

/* What a volume would know: versions of contents by (node, dot), a step and a base. */
struct version_at {
	struct id node;
	struct dot dot;
	struct content content;
	uint64_t local;
};
struct side {
	struct data_env d;
	struct version_at at[HISTORY];
	uint32_t n;
	bool has_step, has_base;
	struct dot from, to;
	struct extents ranges;
	uint32_t base; /* index */
	struct filedata *live; /* of the last version */
	struct held_content near[4]; /* offered beside what the receiver names */
	uint32_t n_near;
};

static int open_version(struct side *s, const struct version_at *v, struct transfer_content *ret)
{
	struct content c;
	struct page_map map = {.pages = (v->content.length + PAGE_LEN - 1) / PAGE_LEN, .holes = v->content.holes};
	struct object *o = NULL;
	int r = content_copy(&c, &v->content);

	if (r == 0 && c.is_object)
		r = object_open(s->d.objects, v->local, &c.object, c.epoch, &map, &c.root, &o);
	if (r == 0)
		*ret = (struct transfer_content){.content = c, .object = o};
	return r;
}

static int find(void *ctx, const struct id *node, struct dot dot, struct transfer_content *ret)
{
	struct side *s = ctx;

	for (uint32_t i = 0; i < s->n; i++)
		if (id_eq(&s->at[i].node, node) && dot_eq(s->at[i].dot, dot))
			return open_version(s, &s->at[i], ret);
	return -ESTALE;
}

static int find_step(void *ctx, const struct id *node, struct dot *ret_from, struct dot *ret_to, struct extents *ret_ranges)
{
	struct side *s = ctx;

	if (!s->has_step)
		return -ENOENT;
	*ret_from = s->from;
	*ret_to = s->to;
	return extents_copy(ret_ranges, &s->ranges);
}

static int find_base(void *ctx, const struct id *node, struct id *ret_base_node, struct dot *ret_dot, struct transfer_content *ret)
{
	struct side *s = ctx;

	if (!s->has_base)
		return -ENOENT;
	*ret_base_node = s->at[s->base].node;
	*ret_dot = s->at[s->base].dot;
	return open_version(s, &s->at[s->base], ret);
}

static struct transfer_env env_of(struct side *s)
{
	return (struct transfer_env){.objects = s->d.objects, .keys = s->d.keys, .dirfd = s->d.dirfd};
}
static struct transfer_lookup lookup_of(struct side *s)
{
	return (struct transfer_lookup){.find = find, .step = find_step, .base = find_base, .ctx = s};
}

static void side_open(struct side *s, uint64_t seed)
{
	*s = (struct side){0};
	data_env_open(&s->d, CIPHER_XCHACHA20POLY1305, seed);
}

static void side_close(struct side *s)
{
	filedata_free(s->live);
	for (uint32_t i = 0; i < s->n; i++)
		content_fini(&s->at[i].content);
	extents_fini(&s->ranges);
	data_env_close(&s->d);
}

static struct version_at *add(struct side *s, const struct id *node, uint64_t counter, const struct content *c, uint64_t local)
{
	REQUIRE(s->n < HISTORY);
	struct version_at *v = &s->at[s->n++];
	*v = (struct version_at){.node = *node, .dot = {1, counter}, .local = local};
	REQUIRE(content_copy(&v->content, c) == 0);
	return v;
}

/* Commits what was written and names it; the step of a real journal is made where the object stayed. */
static struct version_at *commit(struct side *s, struct filedata *f, const struct id *node, uint64_t counter)
{
	struct filedata_snapshot snap;

	data_env_commit(&s->d, f, &snap);
	struct version_at *v = add(s, node, counter, &snap.content, snap.local);
	if (snap.change == FILEDATA_RANGES && s->n > 1) {
		s->has_step = true;
		s->from = s->at[s->n - 2].dot;
		s->to = v->dot;
		extents_fini(&s->ranges);
		REQUIRE(extents_copy(&s->ranges, &snap.ranges) == 0);
	}
	filedata_snapshot_fini(&snap);
	return v;
}

static void fill(uint8_t *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = rnd_next(&seed);
		memcpy(p + i, &v, len - i < 8 ? len - i : 8);
	}
}

/* The chunks of an answer. */
struct answer {
	struct buf chunk[512];
	uint32_t n;
	size_t bytes;
	enum content_form form;
};
static void answer_fini(struct answer *a)
{
	for (uint32_t i = 0; i < a->n; i++)
		buf_fini(&a->chunk[i]);
	a->n = 0;
}

static int make_answer(struct side *from, const struct id *node, struct dot dot, const struct held_content *held, uint32_t n_held, unsigned forms,
		       uint64_t resume, size_t max, struct answer *ret)
{
	struct transfer_env e = env_of(from);
	struct transfer_lookup l = lookup_of(from);
	struct transfer_source *src;
	struct transfer_bases b = {.held = held, .n_held = n_held, .near = from->near, .n_near = from->n_near};
	int r = transfer_source_open(&e, &l, node, dot, &b, forms, resume, &src);

	*ret = (struct answer){0};
	if (r < 0)
		return r;
	ret->form = transfer_source_form(src);
	do {
		REQUIRE(ret->n < 512);
		struct buf *c = &ret->chunk[ret->n++];
		r = transfer_source_next(src, max, c);
		CHECK(c->len <= max + 65536);
		ret->bytes += c->len;
	} while (r == 1);
	transfer_source_close(src);
	return r;
}

/* The node's bytes at the receiver equal those at the sender. */
static void same_content(struct side *a, const struct version_at *va, struct side *b, const struct version_at *vb)
{
	struct filedata *fa, *fb;
	size_t na, nb, step = 1 << 20;
	uint8_t *pa = malloc(step), *pb = malloc(step);
	uint64_t bad;

	CHECK(root_eq(&va->content.root, &vb->content.root));
	REQUIRE(filedata_new(&a->d.file, &va->content, va->local, &fa) == 0 && filedata_new(&b->d.file, &vb->content, vb->local, &fb) == 0);
	for (uint64_t off = 0; off < va->content.length; off += step) {
		uint64_t data;
		if (filedata_seek(fa, off, SEEK_DATA, &data) == -ENXIO)
			break;
		off = data / step * step;
		CHECK_EQ(filedata_read(fa, off, pa, step, &na, &bad), 0);
		CHECK_EQ(filedata_read(fb, off, pb, step, &nb, &bad), 0);
		CHECK(na == nb && !memcmp(pa, pb, na));
	}
	filedata_free(fa);
	filedata_free(fb);
	free(pa);
	free(pb);
}

/* Takes an arrived content in as the volume would and names it. */
static struct version_at *take(struct side *to, struct transfer_sink *sink, const struct version_at *what)
{
	uint64_t local;

	if (transfer_sink_form(sink) == FORM_RANGES) {
		struct transfer_content c;
		const struct held_content *base = transfer_sink_base(sink);
		REQUIRE(find(to, &base->node, base->dot, &c) == 0);
		local = object_local(c.object);
		CHECK_EQ(transfer_sink_write_ranges(sink, c.object, 1), 0);
		CHECK_EQ(object_protect(c.object), 0);
		CHECK_EQ(object_flush(c.object), 0);
		CHECK_EQ(object_store_flush_redo(to->d.objects), 0);
		to->d.txn++;
		object_store_set_txn(to->d.objects, to->d.txn + 1);
		CHECK_EQ(object_store_committed(to->d.objects, to->d.txn), 0);
		transfer_content_fini(&c);
	} else {
		struct object *o = transfer_sink_take_object(sink);
		REQUIRE(o);
		local = object_store_next_local(to->d.objects);
		CHECK_EQ(object_adopt(o, local), 0);
		CHECK_EQ(object_protect(o), 0);
		object_close(o);
	}
	return add(to, &what->node, what->dot.counter, &what->content, local);
}

static int feed_all(struct transfer_sink *sink, const struct answer *a)
{
	int r = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		r = transfer_sink_feed(sink, a->chunk[i].p, a->chunk[i].len);
		if (r != 0)
			break;
	}
	return r;
}

/* Everything once: from -> to. Returns the bytes sent. */
static size_t transfer(struct side *from, const struct version_at *what, struct side *to, const struct held_content *held, uint32_t n_held, unsigned forms,
		       enum content_form want)
{
	static struct answer a;
	struct transfer_env e = env_of(to);
	struct transfer_lookup l = lookup_of(to);
	struct transfer_sink *sink;
	uint64_t resume = 99;

	CHECK_EQ(transfer_sink_new(&e, &l, &what->node, what->dot, &what->content, &sink, &resume), 0);
	CHECK_EQ(make_answer(from, &what->node, what->dot, held, n_held, forms, 0, 1 << 18, &a), 0);
	CHECK_EQ(a.form, want);
	CHECK_EQ(feed_all(sink, &a), 1);
	size_t bytes = a.bytes;
	if (!check_failures_)
		same_content(from, what, to, take(to, sink, what));
	transfer_sink_free(sink);
	answer_fini(&a);
	return bytes;
}

static struct held_content held_of(const struct version_at *v)
{
	return (struct held_content){.node = v->node, .dot = v->dot, .root = v->content.root};
}

#define ALL (FORM_WHOLE | FORM_RANGES | FORM_DELTA)

static void write_all(struct filedata *f, uint64_t off, const uint8_t *p, size_t len)
{
	CHECK_EQ(filedata_write(f, off, p, len, 1), 0);
}

/* whole, then ranges on it (holes, growth and cuts included), then a delta of a rewritten file */
static void test_forms(void)
{
	struct side a, b;
	static uint8_t data[900000];

	side_open(&a, 1);
	side_open(&b, 2);
	fill(data, sizeof data, 1);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0);
	write_all(a.live, 0, data, sizeof data);
	write_all(a.live, 3 << 20, data, 5000);
	struct version_at *v1 = commit(&a, a.live, &the_node, 1);
	transfer(&a, v1, &b, NULL, 0, ALL, FORM_WHOLE);

	struct held_content h1 = held_of(v1);
	write_all(a.live, 4096 * 10 + 7, data + 50, 100);
	CHECK_EQ(filedata_fallocate(a.live, 3, 4096 * 20, 4096 * 5, 1), 0);
	write_all(a.live, 2 << 20, data, 4096);
	write_all(a.live, 5 << 20, data, 10);
	struct version_at *v2 = commit(&a, a.live, &the_node, 2);
	size_t bytes = transfer(&a, v2, &b, &h1, 1, ALL, FORM_RANGES);
	CHECK(bytes < 5 * 4300 + 200);

	struct held_content h2 = held_of(v2);
	CHECK_EQ(filedata_truncate(a.live, 800001, 1), 0);
	struct version_at *v3 = commit(&a, a.live, &the_node, 3);
	bytes = transfer(&a, v3, &b, &h2, 1, ALL, FORM_RANGES);
	CHECK(bytes < 300);
	/* the last page keeps what was cut off inside it, on both sides; a delta of it must agree all the same */
	struct held_content h3 = held_of(v3);
	a.has_step = false;
	a.has_base = true;
	a.base = 2;
	struct filedata *fresh;
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &fresh) == 0);
	write_all(fresh, 0, (const uint8_t *)"inserted", 8);
	write_all(fresh, 8, data, 700000);
	CHECK_EQ(filedata_truncate(fresh, 700003, 1), 0);
	struct version_at *v4 = commit(&a, fresh, &other_node, 4);
	bytes = transfer(&a, v4, &b, &h3, 1, ALL, FORM_DELTA);
	CHECK(bytes < 200000);
	filedata_free(fresh);
	side_close(&a);
	side_close(&b);
}

static void test_sizes(void)
{
	struct side a, b;
	size_t len = 64 << 20;
	uint8_t *data = malloc(len + 1024);

	REQUIRE(data);
	fill(data, len + 1024, 5);
	side_open(&a, 3);
	side_open(&b, 4);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0);
	for (size_t off = 0; off < len; off += 1 << 20)
		write_all(a.live, off, data + 1024 + off, 1 << 20);
	struct version_at *v1 = commit(&a, a.live, &the_node, 1);
	transfer(&a, v1, &b, NULL, 0, ALL, FORM_WHOLE);
	struct held_content h = held_of(v1);
	CHECK_EQ(filedata_truncate(a.live, 0, 1), 0);
	for (size_t off = 0; off < len + 1024; off += 1 << 20)
		write_all(a.live, off, data + off, len + 1024 - off < 1 << 20 ? len + 1024 - off : 1 << 20);
	struct version_at *v2 = commit(&a, a.live, &the_node, 2);
	a.has_step = false;
	a.has_base = true;
	a.base = 0;
	size_t bytes = transfer(&a, v2, &b, &h, 1, ALL, FORM_DELTA);
	printf("1 KiB inserted at the start of 64 MiB: %zu bytes\n", bytes);
	CHECK(bytes < 256 << 10);

	/* sparse */
	struct filedata *f;
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &f) == 0);
	write_all(f, 0, data, 1 << 20);
	write_all(f, (1 << 30) - 4096, data, 4096);
	struct version_at *v3 = commit(&a, f, &other_node, 3);
	transfer(&a, v3, &b, NULL, 0, ALL, FORM_WHOLE);
	h = held_of(v3);
	write_all(f, 4096 * 100, data + 77, 4096);
	struct version_at *v4 = commit(&a, f, &other_node, 4);
	bytes = transfer(&a, v4, &b, &h, 1, ALL, FORM_RANGES);
	printf("4 KiB overwritten in 1 GiB: %zu bytes\n", bytes);
	CHECK(bytes < 16 << 10);
	filedata_free(f);
	side_close(&a);
	side_close(&b);
	free(data);
}

/* A new file that is much like another one: a delta of that, where the samples say so. */
static void test_near(void)
{
	struct side a, b;
	static uint8_t data[6 << 20], other[1 << 20];
	static struct answer ans;
	struct filedata *copy, *next;
	struct transfer_sink *sink;
	uint64_t resume;
	struct id third = {{9}};

	side_open(&a, 21);
	side_open(&b, 22);
	fill(data, sizeof data, 31);
	fill(other, sizeof other, 32);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0 && filedata_new(&a.d.file, NULL, 0, &copy) == 0 &&
		filedata_new(&a.d.file, NULL, 0, &next) == 0);
	write_all(a.live, 0, data, sizeof data);
	struct version_at *v1 = commit(&a, a.live, &the_node, 1);
	transfer(&a, v1, &b, NULL, 0, ALL, FORM_WHOLE);
	a.near[0] = (struct held_content){.node = other_node, .dot = {1, 77}}; /* not here any more */
	a.near[1] = (struct held_content){.node = the_node, .dot = {1, 1}};
	a.n_near = 2;
	/* something was inserted at an odd place */
	write_all(copy, 0, other, 12345);
	write_all(copy, 12345, data, 2 << 20);
	struct version_at *v2 = commit(&a, copy, &other_node, 2);
	a.has_step = false;
	CHECK(transfer(&a, v2, &b, NULL, 0, ALL, FORM_DELTA) < 24000);
	/* and more of it was written, which the peer lacks: not as pages */
	struct held_content h2 = held_of(v2);
	write_all(copy, 12345 + (2 << 20), data + (2 << 20), 3 << 20);
	struct version_at *v3 = commit(&a, copy, &other_node, 3);
	CHECK(a.has_step);
	CHECK(transfer(&a, v3, &b, &h2, 1, ALL, FORM_DELTA) < 40000);
	/* another one is like none of them */
	write_all(next, 0, other, sizeof other);
	struct version_at *v4 = commit(&a, next, &third, 4);
	a.has_step = false;
	transfer(&a, v4, &b, NULL, 0, ALL, FORM_WHOLE);
	/* the peer has it no more */
	b.n = 0;
	REQUIRE(transfer_sink_new(&(struct transfer_env){.objects = b.d.objects, .keys = b.d.keys, .dirfd = b.d.dirfd}, &(struct transfer_lookup){.find = find, .ctx = &b},
			&v2->node, v2->dot, &v2->content, &sink, &resume) == 0);
	CHECK_EQ(make_answer(&a, &v2->node, v2->dot, NULL, 0, ALL, 0, 1 << 18, &ans), -ESTALE); /* it has changed since */
	answer_fini(&ans);
	transfer_sink_free(sink);
	REQUIRE(transfer_sink_new(&(struct transfer_env){.objects = b.d.objects, .keys = b.d.keys, .dirfd = b.d.dirfd}, &(struct transfer_lookup){.find = find, .ctx = &b},
			&v3->node, v3->dot, &v3->content, &sink, &resume) == 0);
	CHECK_EQ(make_answer(&a, &v3->node, v3->dot, NULL, 0, ALL, 0, 1 << 18, &ans), 0);
	CHECK_EQ(ans.form, FORM_DELTA);
	CHECK_EQ(feed_all(sink, &ans), -ENODATA);
	answer_fini(&ans);
	transfer_sink_free(sink);
	filedata_free(copy);
	filedata_free(next);
	side_close(&a);
	side_close(&b);
}

/* Broken in the middle: the pages that came are not asked for again. */
static void test_resume(void)
{
	struct side a, b;
	static uint8_t data[2 << 20];
	static struct answer ans;
	struct transfer_sink *sink;
	uint64_t resume;

	side_open(&a, 5);
	side_open(&b, 6);
	fill(data, sizeof data, 9);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0);
	write_all(a.live, 0, data, sizeof data);
	write_all(a.live, 4 << 20, data, 4096);
	struct version_at *v = commit(&a, a.live, &the_node, 1);
	struct transfer_env e = env_of(&b);
	struct transfer_lookup l = lookup_of(&b);
	REQUIRE(transfer_sink_new(&e, &l, &the_node, v->dot, &v->content, &sink, &resume) == 0);
	CHECK_EQ(make_answer(&a, &the_node, v->dot, NULL, 0, ALL, 0, 1 << 18, &ans), 0);
	size_t all = ans.bytes;
	CHECK_EQ(transfer_sink_feed(sink, ans.chunk[0].p, ans.chunk[0].len), 0);
	CHECK_EQ(transfer_sink_feed(sink, ans.chunk[1].p, ans.chunk[1].len), 0);
	transfer_sink_free(sink);
	answer_fini(&ans);
	REQUIRE(transfer_sink_new(&e, &l, &the_node, v->dot, &v->content, &sink, &resume) == 0);
	CHECK(resume > 100 && resume < 512);
	CHECK_EQ(make_answer(&a, &the_node, v->dot, NULL, 0, ALL, resume, 1 << 18, &ans), 0);
	CHECK(ans.bytes < all - resume * PAGE_LEN + 1000);
	CHECK_EQ(feed_all(sink, &ans), 1);
	if (!check_failures_)
		same_content(&a, v, &b, take(&b, sink, v));
	transfer_sink_free(sink);
	answer_fini(&ans);
	side_close(&a);
	side_close(&b);
}

/* The file that ranges were set aside in, or -1. */
static int spool_of(struct side *x)
{
	int fd = openat(x->d.dirfd, "incoming", O_RDONLY | O_DIRECTORY), found = -1;
	DIR *d = fdopendir(fd);
	struct dirent *e;

	REQUIRE(d);
	while ((e = readdir(d)))
		if (strstr(e->d_name, ".ranges"))
			found = openat(fd, e->d_name, O_RDWR);
	closedir(d);
	return found;
}

/* As much of an answer as n chunks; then the connection ends. */
static void feed_some(struct side *b, struct version_at *v, const struct answer *ans, uint32_t n)
{
	struct transfer_env e = env_of(b);
	struct transfer_lookup l = lookup_of(b);
	struct transfer_sink *sink;
	uint64_t resume;

	REQUIRE(transfer_sink_new(&e, &l, &the_node, v->dot, &v->content, &sink, &resume) == 0);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(transfer_sink_feed(sink, ans->chunk[i].p, ans->chunk[i].len), 0);
	transfer_sink_free(sink);
}

static uint64_t ranges_left(struct side *b, struct version_at *v, const struct held_content *base, struct transfer_sink **ret)
{
	struct transfer_env e = env_of(b);
	struct transfer_lookup l = lookup_of(b);
	uint64_t resume, page = 0;

	REQUIRE(transfer_sink_new(&e, &l, &the_node, v->dot, &v->content, ret, &resume) == 0);
	CHECK_EQ(resume, 0);
	const struct held_content *h = transfer_sink_resume_ranges(*ret, &page);
	CHECK(!h == !page);
	if (h)
		CHECK(dot_eq(h->dot, base->dot) && root_eq(&h->root, &base->root));
	return page;
}

/* Ranges that broke off are gone on with, as far as what was set aside authenticates and builds on the same content. */
static void test_resume_ranges(void)
{
	struct side a, b;
	static uint8_t data[8 << 20];
	static struct answer ans;
	struct transfer_sink *sink;

	side_open(&a, 5);
	side_open(&b, 6);
	fill(data, sizeof data, 9);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0);
	write_all(a.live, 0, data, sizeof data);
	struct version_at *v1 = commit(&a, a.live, &the_node, 1);
	transfer(&a, v1, &b, NULL, 0, ALL, FORM_WHOLE);
	struct held_content h = held_of(v1);
	fill(data, sizeof data, 10);
	write_all(a.live, 50 * PAGE_LEN, data, 900 * PAGE_LEN);
	write_all(a.live, 1500 * PAGE_LEN, data, 700 * PAGE_LEN);
	struct version_at *v2 = commit(&a, a.live, &the_node, 2);
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL, 0, 1 << 18, &ans), 0);
	CHECK_EQ(ans.form, FORM_RANGES);
	size_t all = ans.bytes;

	/* little is not kept */
	feed_some(&b, v2, &ans, 2);
	CHECK_EQ(spool_of(&b), -1);
	CHECK_EQ(ranges_left(&b, v2, &h, &sink), 0);
	transfer_sink_free(sink);

	/* a flipped bit in what was set aside: the pages before it count */
	feed_some(&b, v2, &ans, 9);
	uint64_t page = ranges_left(&b, v2, &h, &sink);
	CHECK(page > 400 && page < 700);
	transfer_sink_free(sink);
	int fd = spool_of(&b);
	uint8_t byte;
	REQUIRE(fd >= 0 && pread(fd, &byte, 1, 1200000) == 1);
	byte ^= 16;
	REQUIRE(pwrite(fd, &byte, 1, 1200000) == 1);
	close(fd);
	page = ranges_left(&b, v2, &h, &sink);
	CHECK(page > 50 + 200 && page < 50 + 300);
	transfer_sink_free(sink);

	/* across the gap, then from there; what was there is not sent */
	answer_fini(&ans);
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL | FORM_RESUME_RANGES, page, 1 << 18, &ans), 0);
	CHECK_EQ(ans.form, FORM_RANGES);
	CHECK(ans.bytes < all - (page - 50) * PAGE_LEN + 1000);
	feed_some(&b, v2, &ans, ans.n - 3);
	answer_fini(&ans);
	page = ranges_left(&b, v2, &h, &sink);
	CHECK(page > 1500);
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL | FORM_RESUME_RANGES, page, 1 << 18, &ans), 0);
	CHECK(ans.bytes < 3 * (1 << 18) + 70000);
	/* an answer that goes on from elsewhere does not fit */
	struct answer other;
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL | FORM_RESUME_RANGES, page - 1, 1 << 18, &other), 0);
	CHECK_EQ(transfer_sink_feed(sink, other.chunk[0].p, other.chunk[0].len), -ENODATA);
	CHECK_EQ(spool_of(&b), -1);
	answer_fini(&other);
	answer_fini(&ans);
	/* nor is one that begins anew mixed with what is there */
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL, 0, 1 << 18, &ans), 0);
	CHECK_EQ(feed_all(sink, &ans), 1);
	transfer_sink_free(sink); /* complete, but the batch was dropped */
	page = ranges_left(&b, v2, &h, &sink);
	CHECK_EQ(page, 2200);
	answer_fini(&ans);
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL | FORM_RESUME_RANGES, page, 1 << 18, &ans), 0);
	CHECK(ans.bytes < 1000);
	CHECK_EQ(feed_all(sink, &ans), 1);
	if (!check_failures_)
		same_content(&a, v2, &b, take(&b, sink, v2));
	transfer_sink_free(sink);
	CHECK_EQ(spool_of(&b), -1);
	answer_fini(&ans);
	side_close(&a);
	side_close(&b);
}

/* A content that changes while it is sent is not mixed; a base that is not what it is called is not built on. */
static void test_stale(void)
{
	struct side a, b;
	static uint8_t data[1 << 20];
	struct transfer_source *src;
	struct transfer_sink *sink;
	static struct answer ans;
	struct buf chunk = {0};
	uint64_t resume;

	side_open(&a, 7);
	side_open(&b, 8);
	fill(data, sizeof data, 9);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0);
	write_all(a.live, 0, data, sizeof data);
	struct version_at *v1 = commit(&a, a.live, &the_node, 1);
	transfer(&a, v1, &b, NULL, 0, ALL, FORM_WHOLE);
	struct transfer_env e = env_of(&a), eb = env_of(&b);
	struct transfer_lookup l = lookup_of(&a), lb = lookup_of(&b);
	REQUIRE(transfer_source_open(&e, &l, &the_node, v1->dot, &no_bases, ALL, 0, &src) == 0);
	CHECK_EQ(transfer_source_next(src, 100000, &chunk), 1);
	write_all(a.live, 0, data + 4096, 4096);
	size_t before = chunk.len;
	CHECK_EQ(transfer_source_next(src, 100000, &chunk), -ESTALE);
	CHECK_EQ(chunk.len, before);
	transfer_source_close(src);
	buf_fini(&chunk);
	CHECK_EQ(transfer_source_open(&e, &l, &the_node, v1->dot, &no_bases, ALL, 0, &src), -ESTALE);
	CHECK_EQ(transfer_source_open(&e, &l, &the_node, (struct dot){1, 77}, &no_bases, ALL, 0, &src), -ESTALE);

	struct version_at *v2 = commit(&a, a.live, &the_node, 2);
	/* the receiver overwrote its own meanwhile */
	struct held_content h = held_of(v1);
	REQUIRE(filedata_new(&b.d.file, &b.at[0].content, b.at[0].local, &b.live) == 0);
	write_all(b.live, 8 * 4096, data, 4096);
	REQUIRE(transfer_sink_new(&eb, &lb, &the_node, v2->dot, &v2->content, &sink, &resume) == 0);
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL, 0, 1 << 18, &ans), 0);
	CHECK_EQ(ans.form, FORM_RANGES);
	CHECK_EQ(feed_all(sink, &ans), 1); /* page 8 is neither sent nor gone: only writing it can tell */
	struct transfer_content c;
	REQUIRE(find(&b, &the_node, v1->dot, &c) == 0);
	CHECK_EQ(transfer_sink_write_ranges(sink, c.object, 1), -EBADMSG);
	transfer_content_fini(&c);
	answer_fini(&ans);
	/* another base by the same name */
	b.at[0].content.root.b[3] ^= 1;
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL, 0, 1 << 18, &ans), 0);
	CHECK_EQ(feed_all(sink, &ans), -ENODATA);
	answer_fini(&ans);
	transfer_sink_free(sink);
	side_close(&a);
	side_close(&b);
}

/* Does what came equal the record's content? */
static void check_result_object(struct transfer_sink *sink, const struct version_at *what)
{
	struct object *o = transfer_sink_take_object(sink);
	struct page_map map;
	struct root root;

	if (!o) {
		CHECK_EQ(transfer_sink_form(sink), FORM_RANGES);
		return;
	}
	object_map(o, &map, &root);
	CHECK(root_eq(&root, &what->content.root));
	extents_fini(&map.holes);
	object_close(o);
}

/* With any byte changed an answer is refused, or the very content of the record comes out. So with one cut short. */
static void flip(struct side *b, const struct version_at *what, struct answer *a)
{
	struct transfer_env e = env_of(b);
	struct transfer_lookup l = lookup_of(b);
	struct transfer_sink *sink;
	uint64_t resume, seed = 3;
	uint32_t good = 0;

	for (uint32_t i = 0; i < a->n; i++) {
		struct buf *c = &a->chunk[i];
		for (size_t at = 0; at < c->len; at += at < 400 || at + 60 > c->len ? 1 : 397) {
			uint8_t was = c->p[at];
			REQUIRE(transfer_sink_new(&e, &l, &what->node, what->dot, &what->content, &sink, &resume) == 0);
			c->p[at] ^= (uint8_t)(1 << rnd_next(&seed) % 8);
			int r = feed_all(sink, a);
			c->p[at] = was;
			if (r == 1) {
				good++;
				check_result_object(sink, what);
			} else {
				CHECK(r == -EPROTO || r == -EBADMSG || r == -ENODATA || (r == 0 && at == 1));
			}
			transfer_sink_free(sink);
			size_t len = c->len;
			REQUIRE(transfer_sink_new(&e, &l, &what->node, what->dot, &what->content, &sink, &resume) == 0);
			c->len = at;
			r = feed_all(sink, a);
			c->len = len;
			if (r == 1) /* what was cut off had been there from the try before */
				check_result_object(sink, what);
			transfer_sink_free(sink);
		}
	}
	CHECK(good < 20);
}

static void test_damage(void)
{
	struct side a, b;
	static uint8_t data[40000];
	static struct answer ans;

	side_open(&a, 9);
	side_open(&b, 10);
	fill(data, sizeof data, 9);
	REQUIRE(filedata_new(&a.d.file, NULL, 0, &a.live) == 0);
	write_all(a.live, 0, data, 30000);
	struct version_at *v1 = commit(&a, a.live, &the_node, 1);
	CHECK_EQ(make_answer(&a, &the_node, v1->dot, NULL, 0, ALL, 0, 20000, &ans), 0);
	flip(&b, v1, &ans);
	answer_fini(&ans);
	transfer(&a, v1, &b, NULL, 0, ALL, FORM_WHOLE);

	struct held_content h = held_of(v1);
	write_all(a.live, 5000, data, 5000);
	struct version_at *v2 = commit(&a, a.live, &the_node, 2);
	CHECK_EQ(make_answer(&a, &the_node, v2->dot, &h, 1, ALL, 0, 20000, &ans), 0);
	CHECK_EQ(ans.form, FORM_RANGES);
	flip(&b, v2, &ans);
	answer_fini(&ans);
	a.has_step = false;
	transfer(&a, v2, &b, &h, 1, ALL, FORM_WHOLE);

	h = held_of(v2);
	CHECK_EQ(filedata_truncate(a.live, 0, 1), 0);
	write_all(a.live, 0, data + 100, 35000);
	struct version_at *v3 = commit(&a, a.live, &the_node, 3);
	a.has_step = false;
	a.has_base = true;
	a.base = 1;
	CHECK_EQ(make_answer(&a, &the_node, v3->dot, &h, 1, ALL, 0, 20000, &ans), 0);
	CHECK_EQ(ans.form, FORM_DELTA);
	flip(&b, v3, &ans);
	answer_fini(&ans);
	side_close(&a);
	side_close(&b);
}

int main(void)
{
	test_forms();
	test_near();
	test_resume();
	test_resume_ranges();
	test_stale();
	test_damage();
	test_sizes();
	return check_result();
}
