/* Objects against plain memory: random writes, truncates and punches with commits, reopening and checkpoints between; damage is noticed
 * page by page; sealed transfer, arriving objects, copies; many threads on one object. */
#include "store_fixture.h"

#include <sys/wait.h>

#define PAGES 700
#define LOCAL 0x1234

static const struct id object_a = {{0xaa, 1}};

struct model {
	uint8_t *bytes; /* PAGES pages; of absent ones nothing is said */
	bool present[PAGES];
	uint64_t pages;
	uint64_t version;
	struct page_map map; /* as committed */
	struct root root;
};

static void commit(struct fixture *f, struct object *o, struct model *m)
{
	CHECK_EQ(object_flush(o), 0);
	CHECK_EQ(object_store_flush_redo(f->s), 0);
	extents_fini(&m->map.holes);
	CHECK_EQ(object_snapshot(o, &m->map, &m->root), 0);
	f->committed = f->txn++;
	object_store_set_txn(f->s, f->txn);
	CHECK_EQ(object_store_committed(f->s, f->committed), 0);
}

static void do_write(struct fixture *f, struct object *o, struct model *m, uint64_t first, uint32_t n)
{
	int r;

	for (uint32_t i = 0; i < n; i++) {
		fixture_fill(m->bytes + (first + i) * PAGE_LEN, first + i, m->version++);
		m->present[first + i] = true;
	}
	if (first + n > m->pages)
		m->pages = first + n;
	r = object_write(o, first, n, m->bytes + first * PAGE_LEN, 5);
	while (r == -EAGAIN) { /* a small log holds less than the longest request */
		commit(f, o, m);
		r = object_write(o, first, n, m->bytes + first * PAGE_LEN, 5);
	}
	CHECK_EQ(r, 0);
}

static void absent(struct model *m, uint64_t first, uint64_t end)
{
	for (uint64_t p = first; p < end && p < PAGES; p++)
		m->present[p] = false;
}

static void compare(const struct fixture *f, struct object *o, const struct model *m, uint64_t first, uint32_t n)
{
	static uint8_t buf[PAGES * PAGE_LEN], zeros[PAGE_LEN];
	uint64_t bad = 0;
	struct page_map map;
	struct root root;

	(void)f;
	CHECK_EQ(object_read(o, first, n, buf, &bad), 0);
	object_map(o, &map, &root);
	CHECK_EQ(map.pages, m->pages);
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *want = m->present[first + i] ? m->bytes + (first + i) * PAGE_LEN : zeros;
		CHECK_EQ(map_has(&map, first + i), m->present[first + i]);
		CHECK(!memcmp(buf + (size_t)i * PAGE_LEN, want, PAGE_LEN));
	}
	extents_fini(&map.holes);
}

static int retry(struct fixture *f, struct object *o, struct model *m, int r, bool punch, uint64_t first, uint64_t n)
{
	if (r != -EAGAIN)
		return r;
	commit(f, o, m);
	return punch ? object_punch(o, first, n) : object_resize(o, first);
}

static void step(struct fixture *f, struct object **o, struct model *m)
{
	uint64_t first = (uint64_t)random() % PAGES;
	uint32_t n = 1 + (uint32_t)random() % (random() % 4 ? 8 : 300);

	if (first + n > PAGES)
		n = (uint32_t)(PAGES - first);
	switch (random() % 16) {
	case 0:
		CHECK_EQ(retry(f, *o, m, object_resize(*o, first), false, first, 0), 0);
		absent(m, first, PAGES);
		m->pages = first;
		break;
	case 1:
	case 2:
		CHECK_EQ(retry(f, *o, m, object_punch(*o, first, n), true, first, n), 0);
		absent(m, first, first + n);
		break;
	case 3:
		commit(f, *o, m);
		CHECK_EQ(object_reclaim(*o), 0);
		break;
	case 4:
		commit(f, *o, m);
		CHECK_EQ(object_store_checkpoint(f->s), 0);
		break;
	case 5: /* closed with everything committed, or with changes that are not */
		commit(f, *o, m);
		if (random() % 2)
			do_write(f, *o, m, first, n);
		struct page_map map;
		struct root root;
		object_map(*o, &map, &root);
		object_close(*o);
		CHECK_EQ(object_open(f->s, LOCAL, &object_a, 0, &map, &root, o), 0);
		extents_fini(&map.holes);
		break;
	case 6: /* a new process */
		commit(f, *o, m);
		object_close(*o);
		CHECK_EQ(object_store_checkpoint(f->s), 0);
		fixture_close_store(f);
		fixture_open_store(f);
		object_store_set_txn(f->s, f->txn);
		object_store_committed(f->s, f->committed);
		CHECK_EQ(object_open(f->s, LOCAL, &object_a, 0, &m->map, &m->root, o), 0);
		break;
	case 7:
	case 8:
		compare(f, *o, m, first, n);
		break;
	default:
		do_write(f, *o, m, first, n);
	}
}

static void random_ops(enum cipher cipher, int steps)
{
	struct fixture f;
	struct object *o;
	struct model *m = calloc(1, sizeof(*m));
	uint64_t log_bytes, pending;

	fixture_init(&f, cipher, SMALL_LOG);
	m->bytes = calloc(PAGES, PAGE_LEN);
	CHECK_EQ(object_create(f.s, LOCAL, &object_a, 0, &o), 0);
	for (int i = 0; i < steps; i++) {
		step(&f, &o, m);
		if (i % 50 == 0) {
			compare(&f, o, m, 0, PAGES);
			CHECK(fixture_root_right(&f, o));
		}
		if (check_failures_ > 20)
			break;
	}
	compare(&f, o, m, 0, PAGES);
	CHECK(fixture_root_right(&f, o));
	commit(&f, o, m);
	CHECK_EQ(object_store_checkpoint(f.s), 0);
	object_store_usage(f.s, &log_bytes, &pending);
	CHECK_EQ(log_bytes, 0);
	CHECK_EQ(pending, 0);
	compare(&f, o, m, 0, PAGES);
	object_close(o);
	fixture_fini(&f);
	extents_fini(&m->map.holes);
	free(m->bytes);
	free(m);
}

/* Damage */

static int reread(struct fixture *f, const struct page_map *map, const struct root *root, uint64_t n, uint64_t *ret_bad)
{
	static uint8_t buf[400 * PAGE_LEN];
	struct object *o;
	int r;

	fixture_close_store(f);
	fixture_open_store(f);
	r = object_open(f->s, LOCAL, &object_a, 0, map, root, &o);
	if (r)
		return r;
	memset(buf, 0xee, sizeof(buf));
	*ret_bad = UINT64_MAX;
	r = object_read(o, 0, (uint32_t)n, buf, ret_bad);
	for (uint64_t p = 0; p < n; p++) /* right or zeros, never anything else */
		if (r && p >= *ret_bad) {
			static const uint8_t zeros[PAGE_LEN];
			CHECK(!memcmp(buf + p * PAGE_LEN, zeros, PAGE_LEN));
		} else {
			CHECK_EQ(fixture_version(buf + p * PAGE_LEN, p), 0);
		}
	if (r && *ret_bad + 1 < n) { /* exactly this page */
		uint64_t bad;
		CHECK_EQ(object_read(o, *ret_bad + 1, (uint32_t)(n - *ret_bad - 1), buf, &bad), 0);
	}
	object_close(o);
	return r;
}

static void damage(enum cipher cipher)
{
	struct fixture f;
	struct object *o;
	struct page_map map;
	struct root root;
	char path[5000];
	uint8_t *buf = calloc(300, PAGE_LEN), a[PAGE_LEN], b[PAGE_LEN], zeros[PAGE_LEN] = {0};
	uint64_t bad;
	struct stat st;
	int fd;

	fixture_init(&f, cipher, SMALL_LOG);
	for (uint64_t p = 0; p < 300; p++)
		fixture_fill(buf + p * PAGE_LEN, p, 0);
	CHECK_EQ(object_create(f.s, LOCAL, &object_a, 0, &o), 0);
	CHECK_EQ(object_write(o, 0, 300, buf, 0), 0);
	CHECK_EQ(object_flush(o), 0);
	object_map(o, &map, &root);
	object_close(o);
	snprintf(path, sizeof(path), "%s/objects/34/%016x", f.path, LOCAL);
	fd = open(path, O_RDWR);
	REQUIRE(fd >= 0);
	REQUIRE(!fstat(fd, &st));
	CHECK_EQ(st.st_size, (300 + 3 + 1) * PAGE_LEN);
	CHECK_EQ(reread(&f, &map, &root, 300, &bad), 0);
	/* one bit in each page of the file, in turn */
	for (off_t at = 0; at < st.st_size; at += PAGE_LEN) {
		off_t bit = at + (off_t)(random() % PAGE_LEN);
		uint64_t file_page = (uint64_t)at / PAGE_LEN;
		if (file_page && (file_page - 1) % 129 == 0) /* a tag page: within the entries in use */
			bit = at + random() % (32 * (file_page == 1 + 2 * 129 ? 44 : 128));
		CHECK_EQ(pread(fd, a, 1, bit), 1);
		b[0] = a[0] ^ (uint8_t)(1u << random() % 8);
		CHECK_EQ(pwrite(fd, b, 1, bit), 1);
		CHECK_EQ(reread(&f, &map, &root, 300, &bad), -EBADMSG);
		if (file_page && (file_page - 1) % 129)
			CHECK_EQ(bad, (file_page - 1) / 129 * 128 + (file_page - 1) % 129 - 1);
		else if (file_page)
			CHECK_EQ(bad, (file_page - 1) / 129 * 128 + (uint64_t)(bit - at) / 32);
		CHECK_EQ(pwrite(fd, a, 1, bit), 1);
		if (at > 3 * PAGE_LEN && (at / PAGE_LEN) % 129 < 110)
			at += 17 * PAGE_LEN;
	}
	/* two pages change places, with and without their entries */
	CHECK_EQ(pread(fd, a, PAGE_LEN, data_off(3)), PAGE_LEN);
	CHECK_EQ(pread(fd, b, PAGE_LEN, data_off(7)), PAGE_LEN);
	CHECK_EQ(pwrite(fd, b, PAGE_LEN, data_off(3)), PAGE_LEN);
	CHECK_EQ(pwrite(fd, a, PAGE_LEN, data_off(7)), PAGE_LEN);
	fixture_close_store(&f);
	fixture_open_store(&f);
	CHECK_EQ(object_open(f.s, LOCAL, &object_a, 0, &map, &root, &o), 0);
	CHECK_EQ(object_read(o, 3, 1, buf, &bad), -EBADMSG);
	CHECK_EQ(object_read(o, 7, 1, buf, &bad), -EBADMSG);
	CHECK_EQ(object_read(o, 4, 3, buf, &bad), 0);
	object_close(o);
	uint8_t ea[32], eb[32];
	CHECK_EQ(pread(fd, ea, 32, entry_off(3)), 32);
	CHECK_EQ(pread(fd, eb, 32, entry_off(7)), 32);
	CHECK_EQ(pwrite(fd, eb, 32, entry_off(3)), 32);
	CHECK_EQ(pwrite(fd, ea, 32, entry_off(7)), 32);
	fixture_close_store(&f);
	fixture_open_store(&f);
	CHECK_EQ(object_open(f.s, LOCAL, &object_a, 0, &map, &root, &o), 0);
	CHECK_EQ(object_read(o, 3, 1, buf, &bad), -EBADMSG);
	CHECK_EQ(object_read(o, 7, 1, buf, &bad), -EBADMSG);
	object_close(o);
	CHECK_EQ(pwrite(fd, a, PAGE_LEN, data_off(3)), PAGE_LEN);
	CHECK_EQ(pwrite(fd, b, PAGE_LEN, data_off(7)), PAGE_LEN);
	CHECK_EQ(pwrite(fd, ea, 32, entry_off(3)), 32);
	CHECK_EQ(pwrite(fd, eb, 32, entry_off(7)), 32);
	CHECK_EQ(reread(&f, &map, &root, 300, &bad), 0);
	/* zeroed with its entry; cut off */
	CHECK_EQ(pwrite(fd, zeros, PAGE_LEN, data_off(200)), PAGE_LEN);
	CHECK_EQ(pwrite(fd, zeros, 32, entry_off(200)), 32);
	CHECK_EQ(reread(&f, &map, &root, 300, &bad), -EBADMSG);
	CHECK_EQ(bad, 200);
	CHECK_EQ(ftruncate(fd, data_off(150)), 0);
	fixture_close_store(&f);
	fixture_open_store(&f);
	CHECK_EQ(object_open(f.s, LOCAL, &object_a, 0, &map, &root, &o), 0);
	CHECK_EQ(object_read(o, 100, 100, buf, &bad), -EBADMSG);
	CHECK_EQ(bad, 150);
	object_close(o);
	/* another object's number, another epoch, none */
	CHECK_EQ(object_open(f.s, LOCAL, &(struct id){{1}}, 0, &map, &root, &o), -EUCLEAN);
	CHECK_EQ(object_open(f.s, LOCAL, &object_a, 1, &map, &root, &o), -EUCLEAN);
	CHECK_EQ(object_open(f.s, LOCAL + 1, &object_a, 0, &map, &root, &o), -ENOENT);
	CHECK_EQ(object_remove(f.s, LOCAL), 0);
	CHECK_EQ(object_remove(f.s, LOCAL), 0);
	close(fd);
	extents_fini(&map.holes);
	free(buf);
	fixture_fini(&f);
}

/* Transfer */

static void transfer(void)
{
	struct fixture f;
	struct object *a, *b, *c;
	struct page_map map;
	struct root ra, rb;
	uint8_t *buf = calloc(300, PAGE_LEN), *sealed = calloc(300, PAGE_LEN), *entries = calloc(300, 32), *back = calloc(300, PAGE_LEN);
	uint64_t pages, bad, local;

	fixture_init(&f, CIPHER_XCHACHA20POLY1305, SMALL_LOG);
	for (uint64_t p = 0; p < 300; p++)
		fixture_fill(buf + p * PAGE_LEN, p, 9);
	CHECK_EQ(object_create(f.s, LOCAL, &object_a, 0, &a), 0);
	CHECK_EQ(object_create(f.s, LOCAL, &object_a, 0, &b), -EEXIST);
	CHECK_EQ(object_write(a, 0, 300, buf, 0), 0);
	CHECK_EQ(object_read_sealed(a, 0, 300, entries, sealed), 0);
	CHECK_EQ(object_incoming(f.s, "part-1", &object_a, 0, &b, &pages), 0);
	CHECK_EQ(pages, 0);
	CHECK_EQ(object_write_sealed(b, 0, 150, entries, sealed, 0), 0);
	object_close(b);
	/* resumed after what had come; a page that does not open is refused */
	CHECK_EQ(object_incoming(f.s, "part-1", &object_a, 0, &b, &pages), 0);
	CHECK_EQ(pages, 150);
	sealed[200 * PAGE_LEN + 17] ^= 1;
	CHECK_EQ(object_write_sealed(b, 150, 150, entries + 150 * 32, sealed + 150 * PAGE_LEN, 0), -EBADMSG);
	sealed[200 * PAGE_LEN + 17] ^= 1;
	object_map(b, &map, &rb);
	CHECK_EQ(map.pages, 150);
	CHECK_EQ(object_write_sealed(b, 150, 150, entries + 150 * 32, sealed + 150 * PAGE_LEN, 0), 0);
	object_map(a, &map, &ra);
	object_map(b, &map, &rb);
	CHECK(root_eq(&ra, &rb));
	local = object_store_next_local(f.s);
	CHECK(local > LOCAL);
	CHECK_EQ(object_adopt(b, local), 0);
	CHECK_EQ(object_read(b, 0, 300, back, &bad), 0);
	CHECK(!memcmp(back, buf, 300 * PAGE_LEN));
	object_close(b);
	CHECK_EQ(object_open(f.s, local, &object_a, 0, &map, &rb, &b), 0);
	CHECK_EQ(object_read(b, 0, 300, back, &bad), 0);
	CHECK(!memcmp(back, buf, 300 * PAGE_LEN));
	/* copies: as they are, with pending pages; and sealed anew */
	CHECK_EQ(object_punch(b, 10, 20), 0);
	fixture_fill(buf, 0, 10);
	CHECK_EQ(object_write(b, 0, 1, buf, 0), 0);
	CHECK_EQ(object_copy(b, object_store_next_local(f.s), NULL, &c), 0);
	object_map(b, &map, &rb);
	extents_fini(&map.holes);
	object_map(c, &map, &ra);
	extents_fini(&map.holes);
	CHECK(root_eq(&ra, &rb));
	CHECK(fixture_root_right(&f, c));
	memset(buf + 10 * PAGE_LEN, 0, 20 * PAGE_LEN);
	CHECK_EQ(object_read(c, 0, 300, back, &bad), 0);
	CHECK(!memcmp(back, buf, 300 * PAGE_LEN));
	object_close(c);
	CHECK_EQ(object_copy(b, object_store_next_local(f.s), &(struct id){{5}}, &c), 0);
	CHECK_EQ(object_read(c, 0, 300, back, &bad), 0);
	CHECK(!memcmp(back, buf, 300 * PAGE_LEN));
	CHECK(fixture_root_right(&f, c));
	CHECK_EQ(object_read_sealed(c, 9, 2, entries, sealed), -ENODATA);
	object_close(c);
	object_close(b);
	object_close(a);
	CHECK_EQ(object_incoming(f.s, "x/y", &object_a, 0, &b, &pages), -EINVAL);
	CHECK_EQ(object_incoming(f.s, "part-2", &object_a, 0, &b, &pages), 0);
	object_close(b);
	CHECK_EQ(object_incoming_clear(f.s, NULL), 0);
	free(buf);
	free(sealed);
	free(entries);
	free(back);
	fixture_fini(&f);
}

/* Nothing under one key twice: not in one open, not after a fork, not after reopening. */
static void nonces(void)
{
	struct fixture f;
	struct object *o;
	uint8_t page[PAGE_LEN] = {1}, e[3][32], child[32];
	int p[2];
	pid_t pid;

	fixture_init(&f, CIPHER_XCHACHA20POLY1305, SMALL_LOG);
	CHECK_EQ(object_create(f.s, LOCAL, &object_a, 0, &o), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(object_write(o, 0, 1, page, 0), 0);
		CHECK_EQ(object_read_entries(o, 0, 1, e[i]), 0);
	}
	CHECK(!memcmp(e[0], e[1], 10)); /* one prefix, the counter goes on */
	CHECK(memcmp(e[0] + 10, e[1] + 10, 6));
	REQUIRE(!pipe(p));
	pid = fork();
	if (!pid) {
		int r = object_write(o, 0, 1, page, 0);
		r |= object_read_entries(o, 0, 1, child);
		_exit(r || write(p[1], child, 32) != 32);
	}
	CHECK_EQ(read(p[0], child, 32), 32);
	waitpid(pid, NULL, 0);
	CHECK_EQ(object_write(o, 0, 1, page, 0), 0);
	CHECK_EQ(object_read_entries(o, 0, 1, e[2]), 0);
	CHECK(memcmp(child, e[2], 10));
	close(p[0]);
	close(p[1]);
	object_close(o);
	fixture_fini(&f);
}

/* Threads: writers of overlapping ranges, each page uniform; readers never see anything else or an error. */

struct stress {
	struct fixture f;
	struct object *o;
	_Atomic bool stop;
	_Atomic uint64_t version, wrote, read, again;
	pthread_mutex_t commit_lock;
};

static void stress_commit(struct stress *t)
{
	struct page_map map;
	struct root root;

	pthread_mutex_lock(&t->commit_lock);
	CHECK_EQ(object_flush(t->o), 0);
	CHECK_EQ(object_snapshot(t->o, &map, &root), 0);
	CHECK_EQ(object_store_flush_redo(t->f.s), 0);
	extents_fini(&map.holes);
	t->f.committed = t->f.txn++;
	object_store_set_txn(t->f.s, t->f.txn);
	CHECK_EQ(object_store_committed(t->f.s, t->f.committed), 0);
	pthread_mutex_unlock(&t->commit_lock);
}

static void *stress_writer(void *arg)
{
	struct stress *t = arg;
	unsigned seed = (unsigned)atomic_fetch_add(&t->version, 1);
	uint8_t *buf = malloc(64 * PAGE_LEN);

	while (!atomic_load(&t->stop)) {
		uint64_t first = (uint64_t)rand_r(&seed) % 400;
		uint32_t n = 1 + (uint32_t)rand_r(&seed) % 40;
		uint64_t v = atomic_fetch_add(&t->version, 1);
		int r;
		for (uint32_t i = 0; i < n; i++)
			fixture_fill(buf + (size_t)i * PAGE_LEN, first + i, v);
		if (rand_r(&seed) % 50 == 0)
			r = object_punch(t->o, first, n);
		else
			r = object_write(t->o, first, n, buf, 0);
		if (r == -EAGAIN) {
			atomic_fetch_add(&t->again, 1);
			stress_commit(t);
		} else {
			CHECK_EQ(r, 0);
		}
		atomic_fetch_add(&t->wrote, 1);
	}
	free(buf);
	return NULL;
}

static void *stress_reader(void *arg)
{
	struct stress *t = arg;
	unsigned seed = (unsigned)atomic_fetch_add(&t->version, 1);
	uint8_t *buf = malloc(64 * PAGE_LEN), zeros[PAGE_LEN] = {0};

	while (!atomic_load(&t->stop)) {
		uint64_t first = (uint64_t)rand_r(&seed) % 400, bad;
		uint32_t n = 1 + (uint32_t)rand_r(&seed) % 40;
		CHECK_EQ(object_read(t->o, first, n, buf, &bad), 0);
		for (uint32_t i = 0; i < n; i++)
			CHECK(!memcmp(buf + (size_t)i * PAGE_LEN, zeros, PAGE_LEN) ||
			      fixture_version(buf + (size_t)i * PAGE_LEN, first + i) != UINT64_MAX);
		atomic_fetch_add(&t->read, 1);
	}
	free(buf);
	return NULL;
}

static void threads(int ms)
{
	static struct stress t;
	pthread_t th[8];

	fixture_init(&t.f, CIPHER_XCHACHA20POLY1305, SMALL_LOG);
	pthread_mutex_init(&t.commit_lock, NULL);
	CHECK_EQ(object_create(t.f.s, LOCAL, &object_a, 0, &t.o), 0);
	for (int i = 0; i < 8; i++)
		pthread_create(&th[i], NULL, i < 5 ? stress_writer : stress_reader, &t);
	for (int i = 0; i < ms / 20; i++) {
		usleep(20000);
		stress_commit(&t);
		if (i % 10 == 9) {
			int r = object_store_checkpoint(t.f.s);
			CHECK(!r || r == -EAGAIN);
			CHECK_EQ(object_reclaim(t.o), 0);
		}
	}
	atomic_store(&t.stop, true);
	for (int i = 0; i < 8; i++)
		pthread_join(th[i], NULL);
	CHECK(fixture_root_right(&t.f, t.o));
	stress_commit(&t);
	CHECK_EQ(object_store_checkpoint(t.f.s), 0);
	CHECK(fixture_root_right(&t.f, t.o));
	CHECK(atomic_load(&t.wrote) > 50 && atomic_load(&t.read) > 50);
	printf("%llu writes, %llu reads, %llu waits for a commit\n", (unsigned long long)t.wrote, (unsigned long long)t.read,
	       (unsigned long long)t.again);
	object_close(t.o);
	fixture_fini(&t.f);
}

int main(int argc, char **argv)
{
	srandom(argc > 1 ? (unsigned)atoi(argv[1]) : 7);
	REQUIRE(!crypto_init());
	setvbuf(stdout, NULL, _IOLBF, 0);
	random_ops(CIPHER_XCHACHA20POLY1305, 600);
	random_ops(CIPHER_NONE, 600);
	if (cipher_available(CIPHER_AES256GCM))
		random_ops(CIPHER_AES256GCM, 300);
	damage(CIPHER_XCHACHA20POLY1305);
	damage(CIPHER_NONE);
	transfer();
	nonces();
	threads(1500);
	return check_result();
}
