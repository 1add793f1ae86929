/* filedata against a plain array of bytes: random operations, snapshots that are confirmed or not, opening again from what a snapshot says,
 * and many threads. */
#include "data_env.h"

#include <fcntl.h>
#include <pthread.h>

#define MODEL_MAX (3u << 20)

struct model {
	uint8_t *bytes; /* MODEL_MAX, zeros beyond the length */
	uint64_t length;
};

static int64_t clock_ns = 1;

static void commit_if(struct data_env *d, struct filedata *f, int r)
{
	if (r == -EAGAIN)
		data_env_commit(d, f, NULL);
	else
		CHECK_EQ(r, 0);
}
#define RETRY(d, f, call)                                                                          \
	do {                                                                                       \
		int r_;                                                                            \
		while ((r_ = (call)) == -EAGAIN)                                                   \
			commit_if(d, f, r_);                                                       \
		CHECK_EQ(r_, 0);                                                                   \
	} while (0)

static void compare(struct filedata *f, const struct model *m, uint64_t off, size_t len)
{
	uint8_t *buf = malloc(len + 1);
	size_t got = 0, want = off >= m->length ? 0 : m->length - off < len ? m->length - off : len;
	uint64_t bad = 0;

	REQUIRE(buf);
	CHECK_EQ(filedata_read(f, off, buf, len, &got, &bad), 0);
	CHECK_EQ(got, want);
	if (got == want && memcmp(buf, m->bytes + off, want)) {
		size_t i = 0;
		while (buf[i] == m->bytes[off + i])
			i++;
		fprintf(stderr, "byte %llu of %llu: %u instead of %u\n", (unsigned long long)(off + i), (unsigned long long)m->length, buf[i],
			m->bytes[off + i]);
		CHECK(!"same bytes");
	}
	free(buf);
}

static void check_seek(struct filedata *f, const struct model *m, uint64_t off)
{
	uint64_t data = 0, hole = 0;
	int rd = filedata_seek(f, off, SEEK_DATA, &data), rh = filedata_seek(f, off, SEEK_HOLE, &hole);

	if (off >= m->length) {
		CHECK_EQ(rd, -ENXIO);
		CHECK_EQ(rh, -ENXIO);
		return;
	}
	CHECK_EQ(rh, 0);
	CHECK(hole >= off && hole <= m->length);
	if (rd == 0)
		CHECK(data >= off && data < m->length);
	else
		CHECK_EQ(rd, -ENXIO);
	/* What is called a hole is zeros. */
	for (uint64_t i = off; i < (rd == 0 ? data : m->length); i++)
		if (m->bytes[i]) {
			CHECK(!"zeros in a hole");
			break;
		}
}

static uint64_t pick(uint64_t *seed, uint64_t length)
{
	switch (rnd_next(seed) % 5) {
	case 0:
		return rnd_next(seed) % 9000;
	case 1:
		return length;
	case 2:
		return (rnd_next(seed) % (MODEL_MAX / 2)) / PAGE_LEN * PAGE_LEN;
	case 3:
		return length ? length - 1 - rnd_next(seed) % (length < 5000 ? length : 5000) : 0;
	default:
		return rnd_next(seed) % (MODEL_MAX / 2);
	}
}

static void zero_model(struct model *m, uint64_t off, uint64_t end, bool grow)
{
	if (grow && end > m->length)
		m->length = end;
	if (end > m->length)
		end = m->length;
	if (off < end)
		memset(m->bytes + off, 0, end - off);
}

static void step(struct data_env *d, struct filedata *f, struct model *m, uint64_t *seed)
{
	static uint8_t data[300000];
	uint64_t off = pick(seed, m->length), len = rnd_next(seed) % 4 ? 1 + rnd_next(seed) % 9000 : 1 + rnd_next(seed) % 200000;

	switch (rnd_next(seed) % 10) {
	case 0:
	case 1:
	case 2:
	case 3:
		if (rnd_next(seed) % 2) {
			off = off / PAGE_LEN * PAGE_LEN;
			len = (len + PAGE_LEN - 1) / PAGE_LEN * PAGE_LEN;
		}
		for (size_t i = 0; i < len; i += 8)
			le64_store(data + i, rnd_next(seed));
		RETRY(d, f, filedata_write(f, off, data, len, clock_ns++));
		memcpy(m->bytes + off, data, len);
		if (off + len > m->length)
			m->length = off + len;
		break;
	case 4:
		if (rnd_next(seed) % 12 == 0)
			off = 0;
		RETRY(d, f, filedata_truncate(f, off, clock_ns++));
		if (off < m->length)
			memset(m->bytes + off, 0, m->length - off);
		m->length = off;
		break;
	case 5:
		RETRY(d, f, filedata_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len, clock_ns++));
		zero_model(m, off, off + len, false);
		break;
	case 6: {
		int mode = rnd_next(seed) % 2 ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
		RETRY(d, f, filedata_fallocate(f, mode, off, len, clock_ns++));
		zero_model(m, off, off + len, !(mode & FALLOC_FL_KEEP_SIZE));
		break;
	}
	case 7: {
		int mode = rnd_next(seed) % 2 ? 0 : FALLOC_FL_KEEP_SIZE;
		RETRY(d, f, filedata_fallocate(f, mode, off, len, clock_ns++));
		if (!mode && off + len > m->length)
			m->length = off + len;
		break;
	}
	default:
		compare(f, m, off, len);
		check_seek(f, m, off);
	}
	CHECK_EQ(filedata_length(f), m->length);
	CHECK(filedata_blocks(f) <= (m->length + 2 * PAGE_LEN) / 512);
}

/* Pages that differ between two snapshots' contents must be in the ranges: their entries tell. */
static void check_ranges(const struct model *before, const struct model *now, const struct filedata_snapshot *s)
{
	if (s->change == FILEDATA_WHOLE)
		return;
	for (uint64_t p = 0; p * PAGE_LEN < now->length; p++) {
		uint64_t n = now->length - p * PAGE_LEN < PAGE_LEN ? now->length - p * PAGE_LEN : PAGE_LEN;
		if (memcmp(before->bytes + p * PAGE_LEN, now->bytes + p * PAGE_LEN, n) && !extents_has(&s->ranges, p)) {
			CHECK(!"a changed page is in the ranges");
			return;
		}
	}
	if (s->change == FILEDATA_SAME)
		CHECK_EQ(before->length, now->length);
	CHECK(s->ranges.n <= 256);
}

static void remove_object(struct data_env *d, uint64_t local)
{
	if (local)
		CHECK_EQ(object_remove(d->objects, local), 0);
}

static void test_random(uint64_t seed, int steps)
{
	struct data_env d;
	struct model m = {.bytes = calloc(1, MODEL_MAX)}, before = {.bytes = calloc(1, MODEL_MAX)};
	struct filedata *f;
	bool opened_from_content = false;

	REQUIRE(m.bytes && before.bytes);
	data_env_open(&d, seed % 2 ? CIPHER_XCHACHA20POLY1305 : CIPHER_NONE, seed);
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	CHECK(filedata_dirty(f));
	for (int i = 0; i < steps && !check_failures_; i++) {
		step(&d, f, &m, &seed);
		if (rnd_next(&seed) % 12)
			continue;
		struct filedata_snapshot s;
		if (rnd_next(&seed) % 4 == 0) { /* a commit that fails */
			REQUIRE(filedata_snapshot(f, &s) == 0);
			if (rnd_next(&seed) % 2)
				step(&d, f, &m, &seed);
			filedata_not_confirmed(f);
			filedata_snapshot_fini(&s);
			CHECK(filedata_dirty(f) || s.change == FILEDATA_SAME);
			continue;
		}
		uint64_t retired = data_env_commit(&d, f, &s);
		CHECK(!filedata_dirty(f));
		if (opened_from_content)
			check_ranges(&before, &m, &s);
		CHECK_EQ(s.content.length, m.length);
		CHECK_EQ(s.content.is_object, s.local != 0);
		remove_object(&d, retired);
		memcpy(before.bytes, m.bytes, MODEL_MAX);
		before.length = m.length;
		opened_from_content = true;
		if (rnd_next(&seed) % 3 == 0) { /* closed and opened again */
			filedata_free(f);
			REQUIRE(filedata_new(&d.file, &s.content, s.local, &f) == 0);
			CHECK(!filedata_dirty(f));
			compare(f, &m, 0, m.length + 10);
			CHECK_EQ(filedata_length(f), m.length);
		}
		filedata_snapshot_fini(&s);
	}
	compare(f, &m, 0, m.length + 100);
	filedata_free(f);
	data_env_close(&d);
	free(m.bytes);
	free(before.bytes);
}

/* The root of a content does not depend on how often it was opened. */
static void test_root(void)
{
	struct data_env d;
	struct filedata *f;
	struct filedata_snapshot a, b;
	uint8_t data[3 * PAGE_LEN];

	data_env_open(&d, CIPHER_XCHACHA20POLY1305, 3);
	memset(data, 7, sizeof data);
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	CHECK_EQ(filedata_write(f, 0, data, sizeof data, 1), 0);
	CHECK_EQ(filedata_write(f, 10 * PAGE_LEN + 5, data, 100, 1), 0);
	data_env_commit(&d, f, &a);
	CHECK_EQ(a.content.holes.n, 1);
	CHECK_EQ(a.content.holes.e[0].first, 3);
	CHECK_EQ(a.content.holes.e[0].count, 7);
	filedata_free(f);
	REQUIRE(filedata_new(&d.file, &a.content, a.local, &f) == 0);
	data_env_commit(&d, f, &b);
	CHECK_EQ(b.change, FILEDATA_SAME);
	CHECK(root_eq(&a.content.root, &b.content.root));
	filedata_snapshot_fini(&b);

	/* an overwrite within the content: the redo log is enough for fsync; growing is more */
	CHECK_EQ(filedata_write(f, 4090, data, 10, 2), 0);
	CHECK(filedata_only_overwritten(f));
	CHECK_EQ(filedata_write(f, 11 * PAGE_LEN, data, 10, 2), 0);
	CHECK(!filedata_only_overwritten(f));
	data_env_commit(&d, f, &b);
	CHECK_EQ(b.change, FILEDATA_RANGES);
	CHECK(extents_has(&b.ranges, 0) && extents_has(&b.ranges, 1) && !extents_has(&b.ranges, 2) && extents_has(&b.ranges, 11));
	CHECK(!root_eq(&a.content.root, &b.content.root));
	CHECK(filedata_only_overwritten(f));
	filedata_snapshot_fini(&a);
	filedata_snapshot_fini(&b);
	filedata_free(f);
	data_env_close(&d);
}

/* Bytes that were cut off never come back, whatever way the file grows again; a page that goes to zeros on disk is an error. */
static void test_tail(void)
{
	struct data_env d;
	struct filedata *f;
	struct filedata_snapshot s;
	uint8_t data[2 * PAGE_LEN], got[3 * PAGE_LEN];
	size_t n;
	uint64_t bad;

	data_env_open(&d, CIPHER_XCHACHA20POLY1305, 4);
	for (int way = 0; way < 4; way++) {
		memset(data, 9, sizeof data);
		REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
		CHECK_EQ(filedata_write(f, 0, data, sizeof data, 1), 0);
		CHECK_EQ(filedata_truncate(f, 5000, 1), 0);
		data_env_commit(&d, f, &s);
		filedata_free(f);
		REQUIRE(filedata_new(&d.file, &s.content, s.local, &f) == 0);
		if (way == 0)
			CHECK_EQ(filedata_truncate(f, 6000, 1), 0);
		else if (way == 1)
			CHECK_EQ(filedata_write(f, 5999, "", 1, 1), 0);
		else if (way == 2)
			CHECK_EQ(filedata_fallocate(f, 0, 5500, 500, 1), 0);
		else
			CHECK_EQ(filedata_truncate(f, 3 * PAGE_LEN, 1) | filedata_truncate(f, 6000, 1), 0);
		CHECK_EQ(filedata_read(f, 5000, got, 1000, &n, &bad), 0);
		CHECK_EQ(n, 1000);
		for (int i = 0; i < 1000; i++)
			if (got[i]) {
				CHECK(!"zeros beyond the old length");
				break;
			}
		data_env_commit(&d, f, NULL);
		filedata_free(f);
		filedata_snapshot_fini(&s);
	}
	/* limits */
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	CHECK_EQ(filedata_truncate(f, (UINT64_C(1) << 60) + 1, 1), -EFBIG);
	CHECK_EQ(filedata_write(f, UINT64_MAX - 5, data, 4, 1), -EFBIG);
	CHECK_EQ(filedata_fallocate(f, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE_LEN, 1), -EOPNOTSUPP);
	CHECK_EQ(filedata_fallocate(f, 0, 0, 0, 1), -EINVAL);
	CHECK_EQ(filedata_truncate(f, UINT64_C(1) << 40, 1), 0);
	CHECK_EQ(filedata_blocks(f), 0);
	uint64_t to = 0;
	CHECK_EQ(filedata_seek(f, 0, SEEK_DATA, &to), -ENXIO);
	CHECK_EQ(filedata_seek(f, 0, SEEK_HOLE, &to), 0);
	CHECK_EQ(to, 0);
	CHECK_EQ(filedata_write(f, (UINT64_C(1) << 39) + 3, "x", 1, 1), 0);
	CHECK_EQ(filedata_seek(f, 0, SEEK_DATA, &to), 0);
	CHECK_EQ(to, UINT64_C(1) << 39);
	CHECK_EQ(filedata_blocks(f), 8);
	filedata_free(f);
	data_env_close(&d);
}

/* Truncate to 0 and writing anew: another object; the old one is handed out once the new one is confirmed, and not before. */
static void test_retired(void)
{
	struct data_env d;
	struct filedata *f;
	struct filedata_snapshot a, b;
	static uint8_t data[100000];

	data_env_open(&d, CIPHER_XCHACHA20POLY1305, 5);
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	CHECK_EQ(filedata_write(f, 0, data, sizeof data, 1), 0);
	CHECK_EQ(data_env_commit(&d, f, &a), 0);
	CHECK_EQ(a.change, FILEDATA_WHOLE);
	for (int i = 0; i < 3; i++) { /* objects between the commits go without a trace */
		CHECK_EQ(filedata_truncate(f, 0, 1), 0);
		CHECK_EQ(filedata_write(f, 0, data, sizeof data, 1), 0);
	}
	uint64_t retired = data_env_commit(&d, f, &b);
	CHECK_EQ(retired, a.local);
	CHECK_EQ(b.change, FILEDATA_WHOLE);
	CHECK(!id_eq(&a.content.object, &b.content.object));
	/* the base is still readable as it was */
	struct filedata *base;
	REQUIRE(filedata_new(&d.file, &a.content, a.local, &base) == 0);
	size_t n;
	uint64_t bad;
	static uint8_t got[100000];
	CHECK_EQ(filedata_read(base, 0, got, sizeof got, &n, &bad), 0);
	CHECK_EQ(n, sizeof got);
	filedata_free(base);
	remove_object(&d, retired);
	filedata_snapshot_fini(&a);
	/* back to inline */
	CHECK_EQ(filedata_truncate(f, 0, 1), 0);
	CHECK_EQ(filedata_write(f, 0, "abc", 3, 1), 0);
	CHECK_EQ(data_env_commit(&d, f, &a), b.local);
	CHECK_EQ(a.local, 0);
	CHECK_EQ(a.content.length, 3);
	remove_object(&d, b.local);
	filedata_snapshot_fini(&a);
	filedata_snapshot_fini(&b);
	filedata_free(f);
	data_env_close(&d);
}

static void test_copy(void)
{
	struct data_env d;
	struct filedata *a, *b;
	static uint8_t data[70000], got[70000];
	uint64_t n, at;
	size_t len;

	data_env_open(&d, CIPHER_XCHACHA20POLY1305, 6);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7 + 1);
	REQUIRE(filedata_new(&d.file, NULL, 0, &a) == 0 && filedata_new(&d.file, NULL, 0, &b) == 0);
	CHECK_EQ(filedata_write(a, 1 << 20, data, sizeof data, 1), 0);
	CHECK_EQ(filedata_truncate(a, 4 << 20, 1), 0);
	CHECK_EQ(filedata_copy(a, 0, b, 100, 8 << 20, 1, &n), 0);
	CHECK_EQ(n, 4 << 20);
	CHECK_EQ(filedata_length(b), (4 << 20) + 100);
	CHECK_EQ(filedata_read(b, (1 << 20) + 100, got, sizeof got, &len, &at), 0);
	CHECK(len == sizeof got && !memcmp(got, data, sizeof data));
	CHECK(filedata_blocks(b) < 20 * 8);
	filedata_free(a);
	filedata_free(b);
	data_env_close(&d);
}

/* ---- threads: each owns every n-th page; everybody reads everything ---- */
#define SHARED_PAGES 512
struct worker {
	pthread_t thread;
	struct data_env *d;
	struct filedata *f;
	unsigned number;
	_Atomic int *stop;
	int failed;
};

static void *overwrite(void *arg)
{
	struct worker *w = arg;
	uint8_t page[PAGE_LEN];
	uint64_t seed = w->number + 1, last[SHARED_PAGES] = {0};

	for (int i = 0; i < 1500; i++) {
		uint64_t p = rnd_next(&seed) % (SHARED_PAGES / 8) * 8 + w->number, bad;
		size_t n;
		if (rnd_next(&seed) % 2) {
			uint64_t v = rnd_next(&seed);
			for (int k = 0; k < PAGE_LEN; k += 8)
				le64_store(page + k, v);
			int r = filedata_write(w->f, p * PAGE_LEN, page, PAGE_LEN, 1);
			if (r == 0)
				last[p] = v;
			else if (r != -EAGAIN)
				w->failed = r;
		} else {
			if (filedata_read(w->f, p * PAGE_LEN, page, PAGE_LEN, &n, &bad) || n != PAGE_LEN || le64_load(page) != last[p] ||
			    memcmp(page, page + 8, PAGE_LEN - 8))
				w->failed = 1;
		}
		if (i % 100 == 0) { /* partial pages and growing go between */
			int r = filedata_write(w->f, (SHARED_PAGES + w->number) * PAGE_LEN + 100, page, 50, 1);
			if (r < 0 && r != -EAGAIN)
				w->failed = r;
		}
	}
	return NULL;
}

static void *commits(void *arg)
{
	struct worker *w = arg;

	while (!*w->stop) {
		data_env_commit(w->d, w->f, NULL);
		usleep(2000);
	}
	return NULL;
}

static void test_threads(void)
{
	struct data_env d;
	struct filedata *f;
	struct filedata_snapshot s;
	struct worker w[8], c;
	_Atomic int stop = 0;
	static uint8_t zeros[SHARED_PAGES * PAGE_LEN];

	data_env_open(&d, CIPHER_XCHACHA20POLY1305, 8);
	REQUIRE(filedata_new(&d.file, NULL, 0, &f) == 0);
	CHECK_EQ(filedata_write(f, 0, zeros, sizeof zeros, 1), 0);
	c = (struct worker){.d = &d, .f = f, .stop = &stop};
	REQUIRE(pthread_create(&c.thread, NULL, commits, &c) == 0);
	for (unsigned i = 0; i < 8; i++) {
		w[i] = (struct worker){.d = &d, .f = f, .number = i};
		REQUIRE(pthread_create(&w[i].thread, NULL, overwrite, &w[i]) == 0);
	}
	for (unsigned i = 0; i < 8; i++) {
		pthread_join(w[i].thread, NULL);
		CHECK_EQ(w[i].failed, 0);
	}
	stop = 1;
	pthread_join(c.thread, NULL);
	data_env_commit(&d, f, &s);
	filedata_free(f);
	/* everything opens under the root that the last snapshot named */
	REQUIRE(filedata_new(&d.file, &s.content, s.local, &f) == 0);
	size_t n;
	uint64_t bad;
	CHECK_EQ(filedata_read(f, 0, zeros, sizeof zeros, &n, &bad), 0);
	filedata_free(f);
	filedata_snapshot_fini(&s);
	data_env_close(&d);
}

/* ---- one stream in many requests at once, commits and, in the second round, truncations between them ---- */
#define PIECE_PAGES 40
#define PIECES 96
struct appender {
	pthread_t thread;
	struct filedata *f;
	_Atomic unsigned *next, *stop;
	bool cuts;
	int failed;
};

static void *append_pieces(void *arg)
{
	struct appender *a = arg;
	uint8_t *piece = malloc(PIECE_PAGES * PAGE_LEN);
	unsigned k;

	while ((k = (*a->next)++) < PIECES) {
		uint64_t off = (uint64_t)k * PIECE_PAGES * PAGE_LEN;
		for (size_t i = 0; i < PIECE_PAGES * PAGE_LEN; i += 8)
			le64_store(piece + i, off + i / PAGE_LEN * PAGE_LEN + 1);
		int r = filedata_write(a->f, off, piece, PIECE_PAGES * PAGE_LEN, 1);
		if (r < 0 && r != -EAGAIN)
			a->failed = r;
	}
	free(piece);
	return NULL;
}

static void *truncations(void *arg)
{
	struct appender *a = arg;
	uint64_t seed = 5;

	while (!*a->stop) {
		uint64_t length = filedata_length(a->f), cut = rnd_next(&seed) % (2 * PIECE_PAGES * PAGE_LEN);
		int r = filedata_truncate(a->f, rnd_next(&seed) % 2 && length > cut ? length - cut : length + cut, 1);
		if (r < 0 && r != -EAGAIN)
			a->failed = r;
		usleep(500);
	}
	return NULL;
}

static void test_appends(bool cuts)
{
	struct data_env d;
	struct filedata *f;
	struct filedata_snapshot s;
	struct appender w[4], t;
	struct worker c;
	_Atomic unsigned next = 0, stop = 0;
	_Atomic int stop_commits = 0;
	uint8_t *all = malloc((size_t)PIECES * PIECE_PAGES * PAGE_LEN);
	size_t n = 0, whole = 0;
	uint64_t bad;

	data_env_open(&d, CIPHER_XCHACHA20POLY1305, 8);
	REQUIRE(all && filedata_new(&d.file, NULL, 0, &f) == 0);
	CHECK_EQ(filedata_write(f, 0, all, 2 * PAGE_LEN, 1), 0);
	c = (struct worker){.d = &d, .f = f, .stop = &stop_commits};
	t = (struct appender){.f = f, .stop = &stop};
	REQUIRE(pthread_create(&c.thread, NULL, commits, &c) == 0);
	REQUIRE(!cuts || pthread_create(&t.thread, NULL, truncations, &t) == 0);
	for (int i = 0; i < 4; i++) {
		w[i] = (struct appender){.f = f, .next = &next};
		REQUIRE(pthread_create(&w[i].thread, NULL, append_pieces, &w[i]) == 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(w[i].thread, NULL);
		CHECK_EQ(w[i].failed, 0);
	}
	stop = 1;
	if (cuts) {
		pthread_join(t.thread, NULL);
		CHECK_EQ(t.failed, 0);
	}
	stop_commits = 1;
	pthread_join(c.thread, NULL);
	data_env_commit(&d, f, &s);
	filedata_free(f);
	REQUIRE(filedata_new(&d.file, &s.content, s.local, &f) == 0);
	CHECK_EQ(filedata_read(f, 0, all, (size_t)PIECES * PIECE_PAGES * PAGE_LEN, &n, &bad), 0);
	for (size_t at = 0; at + PAGE_LEN <= n; at += PAGE_LEN) {
		uint64_t v = le64_load(all + at);
		CHECK(v == at + 1 || (cuts && v == 0));
		whole += !memcmp(all + at, all + at + 8, PAGE_LEN - 8);
	}
	CHECK(cuts || n == (size_t)PIECES * PIECE_PAGES * PAGE_LEN);
	CHECK(cuts || whole == n / PAGE_LEN);
	filedata_free(f);
	filedata_snapshot_fini(&s);
	data_env_close(&d);
	free(all);
}

int main(void)
{
	test_root();
	test_tail();
	test_retired();
	test_copy();
	for (uint64_t seed = 1; seed <= 6 && !check_failures_; seed++)
		test_random(seed, 600);
	test_threads();
	test_appends(false);
	test_appends(true);
	return check_result();
}
