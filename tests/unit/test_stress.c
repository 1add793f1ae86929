/* Goal: threads that write, truncate, rename, unlink, read and fsync on two volumes, with the committer's thread running, while batches go both
 * ways, do not disturb one another: in its own directory each thread finds exactly what it did, and both trees are the same at the end.
 * Argument: rounds of each thread (default 400). */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "world.h"

#define WORKERS 4
#define FILES 6
#define LEN_MAX 40000

struct worker {
	struct volume *v;
	unsigned index, rounds, seed;
	inum own, shared;
	bool there[FILES];
	size_t len[FILES];
	uint8_t data[FILES][LEN_MAX];
	const char *wrong; /* what was not as expected */
	int error;
};
static struct world w;
static struct worker worker[WORKERS];
static atomic_uint running;
static const struct caller caller = {.umask = 022, .in_group = true};

static unsigned draw(struct worker *k, unsigned below) { return (unsigned)rand_r(&k->seed) % below; }

static void expect(struct worker *k, int e, const char *what)
{
	if (!e || k->wrong)
		return;
	k->wrong = what;
	k->error = e;
}

static void own_write(struct worker *k, unsigned i, const char *name, inum ino)
{
	struct inode_attr a;
	size_t off = draw(k, LEN_MAX / 2), len = 1 + draw(k, LEN_MAX / 2 - 1);

	if (!k->there[i]) {
		expect(k, volume_make(k->v, k->own, name, 2, S_IFREG | 0644, 0, NULL, &caller, &a), "make");
		if (k->wrong)
			return;
		ino = a.ino;
		k->there[i] = true;
		k->len[i] = 0;
	}
	if (off > k->len[i])
		memset(k->data[i] + k->len[i], 0, off - k->len[i]);
	memset(k->data[i] + off, (int)draw(k, 256), len);
	k->len[i] = off + len > k->len[i] ? off + len : k->len[i];
	expect(k, volume_write(k->v, ino, off, k->data[i] + off, len, true, false), "write");
}

static void own_truncate(struct worker *k, unsigned i, inum ino)
{
	struct set_attr s = {.mask = SET_SIZE, .size = draw(k, LEN_MAX)};
	struct inode_attr a;

	if (s.size > k->len[i])
		memset(k->data[i] + k->len[i], 0, s.size - k->len[i]);
	k->len[i] = s.size;
	expect(k, volume_setattr(k->v, ino, &s, &caller, &a), "truncate");
}

static void own_rename(struct worker *k, unsigned i, const char *name)
{
	unsigned to = draw(k, FILES);
	char fresh[3] = {'f', (char)('0' + to), 0};

	if (to == i)
		return;
	expect(k, volume_rename(k->v, k->own, name, 2, k->own, fresh, 2, 0), "rename");
	memcpy(k->data[to], k->data[i], k->len[i]);
	k->len[to] = k->len[i];
	k->there[to] = true;
	k->there[i] = false;
}

static void own_check(struct worker *k, struct volume *v, inum dir, unsigned i)
{
	char name[3] = {'f', (char)('0' + i), 0};
	uint8_t got[LEN_MAX + 1];
	struct inode_attr a;
	size_t n = 0;
	int e = volume_lookup(v, dir, name, 2, &a);

	if (!k->there[i]) {
		expect(k, e == -ENOENT ? 0 : -EEXIST, "a removed name is there");
		return;
	}
	expect(k, e, "look-up");
	if (e)
		return;
	expect(k, volume_read(v, a.ino, 0, got, sizeof got, &n), "read");
	expect(k, n == k->len[i] && !memcmp(got, k->data[i], n) ? 0 : -EILSEQ, "content");
}

static void own_step(struct worker *k)
{
	unsigned i = draw(k, FILES), what = draw(k, 12);
	char name[3] = {'f', (char)('0' + i), 0};
	struct inode_attr a = {0};

	if (k->there[i])
		expect(k, volume_lookup(k->v, k->own, name, 2, &a), "look-up");
	if (k->wrong)
		return;
	if (what < 5)
		own_write(k, i, name, a.ino);
	else if (!k->there[i] || what < 7)
		own_check(k, k->v, k->own, i);
	else if (what == 7)
		own_truncate(k, i, a.ino);
	else if (what == 8)
		own_rename(k, i, name);
	else if (what == 9)
		expect(k, volume_fsync(k->v, a.ino, draw(k, 2)), "fsync");
	else if (what == 10) {
		expect(k, volume_unlink(k->v, k->own, name, 2), "unlink");
		k->there[i] = false;
	} else
		expect(k, volume_fsync(k->v, k->own, false), "fsync of a directory");
}

/* Where all write, only that nothing but the errors of a lost race come back. */
static void shared_step(struct worker *k)
{
	char name[2] = {(char)('a' + draw(k, 4)), 0}, other[2] = {(char)('a' + draw(k, 4)), 0};
	uint8_t buf[5000];
	struct inode_attr a;
	size_t n;
	int e = volume_lookup(k->v, k->shared, name, 1, &a);

	memset(buf, (int)draw(k, 256), sizeof buf);
	switch (draw(k, 5)) {
	case 0: e = volume_make(k->v, k->shared, name, 1, S_IFREG | 0644, 0, NULL, &caller, &a); break;
	case 1: e = e ? e : volume_write(k->v, a.ino, draw(k, 9000), buf, 1 + draw(k, 4999), true, false); break;
	case 2: e = volume_rename(k->v, k->shared, name, 1, k->shared, other, 1, 0); break;
	case 3: e = volume_unlink(k->v, k->shared, name, 1); break;
	default: e = e ? e : volume_read(k->v, a.ino, 0, buf, sizeof buf, &n); break;
	}
	expect(k, e == -ENOENT || e == -EEXIST || e == -ESTALE ? 0 : e, "in the shared directory");
}

static void *work(void *arg)
{
	struct worker *k = arg;

	for (unsigned i = 0; i < k->rounds && !k->wrong; i++) {
		own_step(k);
		shared_step(k);
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void reopen(unsigned i)
{
	const struct volume_options o = {.background = true, .commit_ms = 3};

	CHECK_EQ(volume_close(w.r[i].v), 0);
	w.r[i].v = NULL;
	CHECK_EQ(volume_open(w.r[i].path, &o, "key", 3, SLOT_KEYFILE, &w.r[i].v), 0);
}

static void prepare(unsigned rounds)
{
	struct inode_attr a = {0};
	uint32_t n;

	world_make(&w, 2, 7);
	reopen(0);
	reopen(1);
	CHECK_EQ(volume_make(w.r[0].v, ROOT_INUM, "s", 1, S_IFDIR | 0755, 0, NULL, &caller, &a), 0);
	CHECK_EQ(world_exchange(&w, 0, 1, &n), 0);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *k = &worker[i];
		char name[3] = {'t', (char)('0' + i), 0};
		*k = (struct worker){.v = w.r[i == WORKERS - 1].v, .index = i, .rounds = rounds, .seed = 100 + i};
		CHECK_EQ(volume_make(k->v, ROOT_INUM, name, 2, S_IFDIR | 0755, 0, NULL, &caller, &a), 0);
		k->own = a.ino;
		CHECK_EQ(volume_lookup(k->v, ROOT_INUM, "s", 1, &a), 0);
		k->shared = a.ino;
	}
}

static void compare(void)
{
	struct tree t[2];
	struct root root[2];

	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(tree_look(w.r[i].v, &t[i]), 0);
		CHECK_EQ(volume_live_root(w.r[i].v, &root[i]), 0);
	}
	const char *d = tree_differs(&t[0], &t[1], true);
	if (d)
		fprintf(stderr, "%s\n", d);
	CHECK(!d);
	CHECK(!memcmp(&root[0], &root[1], sizeof root[0]));
	for (unsigned i = 0; i < 2; i++)
		tree_free(&t[i]);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *k = &worker[i];
		for (unsigned r = 0; r < 2 && !k->wrong; r++) {
			char name[3] = {'t', (char)('0' + i), 0};
			struct inode_attr a;
			CHECK_EQ(volume_lookup(w.r[r].v, ROOT_INUM, name, 2, &a), 0);
			for (unsigned f = 0; f < FILES; f++)
				own_check(k, w.r[r].v, a.ino, f);
		}
		if (k->wrong)
			fprintf(stderr, "thread %u: %s: %s\n", i, k->wrong, strerror(-k->error));
		CHECK(!k->wrong);
	}
}

int main(int argc, char **argv)
{
	pthread_t t[WORKERS];
	uint32_t n;

	prepare(argc > 1 ? (unsigned)atoi(argv[1]) : 400);
	atomic_store(&running, WORKERS);
	for (unsigned i = 0; i < WORKERS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, work, &worker[i]), 0);
	unsigned rounds = 0;
	do {
		CHECK_EQ(world_exchange(&w, rounds % 2, !(rounds % 2), &n), 0);
		rounds++;
	} while (atomic_load(&running));
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(t[i], NULL);
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(world_exchange(&w, i % 2, !(i % 2), &n), 0);
	printf("%u batches meanwhile\n", rounds);
	compare();
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(volume_close(w.r[i].v), 0);
		w.r[i].v = NULL;
	}
	world_remove(&w);
	return check_result();
}
