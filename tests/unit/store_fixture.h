/* A store's directory for the tests of objects and the redo log, with one object, its contents in plain memory beside it, and as much
 * of a journal as commits need: the map and root that the last one named. */
#ifndef TWOFOLD_STORE_FIXTURE_H
#define TWOFOLD_STORE_FIXTURE_H
#include "check.h"
#include "object_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL_LOG (REDO_HEAD + 2u * (1u << 20))

struct fixture {
	char path[4096];
	int dirfd;
	struct keyring *k;
	struct stats *st;
	struct object_store *s;
	uint64_t txn, committed;
};

static int fixture_rm_(const char *p, const struct stat *st, int type, struct FTW *f)
{
	(void)st, (void)type, (void)f;
	return remove(p);
}

static inline void fixture_rmtree(const char *path) { nftw(path, fixture_rm_, 16, FTW_DEPTH | FTW_PHYS); }

static inline void fixture_dir(char ret[static 4096])
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	snprintf(ret, 4096, "%s/twofold-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	REQUIRE(mkdtemp(ret));
	fd = open(ret, O_RDONLY | O_DIRECTORY);
	REQUIRE(fd >= 0);
	REQUIRE(!mkdirat(fd, "objects", 0700) && !mkdirat(fd, "incoming", 0700));
	for (int i = 0; i < 256; i++) {
		char name[32];
		snprintf(name, sizeof(name), "objects/%02x", i);
		REQUIRE(!mkdirat(fd, name, 0700));
	}
	close(fd);
}

static inline void fixture_open_store(struct fixture *f)
{
	f->dirfd = open(f->path, O_RDONLY | O_DIRECTORY);
	REQUIRE(f->dirfd >= 0);
	REQUIRE(!object_store_open(f->dirfd, f->k, &env_real, f->st, false, &f->s));
}

static inline void fixture_close_store(struct fixture *f)
{
	object_store_close(f->s);
	close(f->dirfd);
}

static inline void fixture_init(struct fixture *f, enum cipher cipher, uint64_t log_bytes)
{
	static const uint8_t master[KEY_LEN] = {1, 2, 3};
	static const struct id volume = {{7, 7, 7}};

	memset(f, 0, sizeof(*f));
	fixture_dir(f->path);
	f->k = keyring_new(master, &volume, cipher);
	f->st = stats_new();
	REQUIRE(f->k && f->st);
	f->dirfd = open(f->path, O_RDONLY | O_DIRECTORY);
	REQUIRE(!redo_make(f->dirfd, f->k, &env_real, log_bytes));
	close(f->dirfd);
	fixture_open_store(f);
	f->txn = 1;
	object_store_set_txn(f->s, f->txn);
}

static inline void fixture_fini(struct fixture *f)
{
	fixture_close_store(f);
	fixture_rmtree(f->path);
	keyring_free(f->k);
	stats_free(f->st);
}

/* The root as the entries give it. */
static inline struct root fixture_root(const struct fixture *f, struct object *o)
{
	struct page_map m;
	struct root sum = {0}, kept, term;
	uint8_t entry[TAG_ENTRY_LEN];

	object_map(o, &m, &kept);
	for (uint64_t p = 0; p < m.pages; p++) {
		if (!map_has(&m, p))
			continue;
		CHECK_EQ(object_read_entries(o, p, 1, entry), 0);
		keyring_page_term(f->k, p, entry, &term);
		root_add(&sum, &term);
	}
	extents_fini(&m.holes);
	return sum;
}

static inline bool fixture_root_right(const struct fixture *f, struct object *o)
{
	struct page_map m;
	struct root kept, sum = fixture_root(f, o);

	object_map(o, &m, &kept);
	extents_fini(&m.holes);
	return root_eq(&sum, &kept);
}

/* What a page is filled with: its number and a version, so that a page tells where it belongs and how old it is. */
static inline void fixture_fill(uint8_t *p, uint64_t page, uint64_t version)
{
	for (size_t i = 0; i < PAGE_LEN; i += 16) {
		le64_store(p + i, page);
		le64_store(p + i + 8, version);
	}
}

/* The version of a page filled so; UINT64_MAX where it is anything else. */
static inline uint64_t fixture_version(const uint8_t *p, uint64_t page)
{
	uint8_t q[PAGE_LEN];

	fixture_fill(q, page, le64_load(p + 8));
	return memcmp(p, q, PAGE_LEN) ? UINT64_MAX : le64_load(p + 8);
}

/* Copies one file of a store to the same place of another. */
static inline void fixture_copy(const char *from, const char *to, const char *name)
{
	static char buf[1 << 20];
	char path[5000];
	ssize_t n;
	int in, out;

	snprintf(path, sizeof(path), "%s/%s", from, name);
	in = open(path, O_RDONLY);
	snprintf(path, sizeof(path), "%s/%s", to, name);
	out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	REQUIRE(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		REQUIRE(write(out, buf, (size_t)n) == n);
	close(in);
	close(out);
}
#endif
