/* A store in a temporary directory with objects only, for the tests of file data and transfers. Clock and randomness come from a seed. */
#ifndef TWOFOLD_DATA_ENV_H
#define TWOFOLD_DATA_ENV_H
#include "check.h"
#include "filedata.h"
#include "header.h"

#include <errno.h>
#include <ftw.h>
#include <stdatomic.h>
#include <unistd.h>

struct data_env {
	char path[256];
	int dirfd, lockfd;
	struct keyring *keys;
	struct env env;
	_Atomic uint64_t state, mono;
	struct object_store *objects;
	struct filedata_env file;
	uint64_t txn; /* last committed */
};

static inline uint64_t rnd_next(uint64_t *s)
{
	uint64_t z = (*s += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t data_env_now(void *ctx)
{
	struct data_env *d = ctx;
	return atomic_fetch_add(&d->mono, 1000) + 1000000000;
}

static inline void data_env_random(void *ctx, void *buf, size_t len)
{
	struct data_env *d = ctx;
	uint8_t *p = buf;
	for (size_t i = 0; i < len; i++) {
		uint64_t s = atomic_fetch_add(&d->state, 0x9e3779b97f4a7c15u);
		p[i] = (uint8_t)(rnd_next(&s) >> 24);
	}
}

static inline int data_env_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

static inline void data_env_open(struct data_env *d, enum cipher cipher, uint64_t seed)
{
	static const uint8_t master[KEY_LEN] = {1, 2, 3};
	struct id volume = {{42}};
	const char *tmp = getenv("TMPDIR");

	*d = (struct data_env){.state = seed};
	REQUIRE(crypto_init() == 0);
	snprintf(d->path, sizeof d->path, "%s/twofold-data-XXXXXX", tmp ? tmp : "/tmp");
	REQUIRE(mkdtemp(d->path));
	REQUIRE(store_make(d->path) == 0);
	REQUIRE(store_lock(d->path, 0, &d->dirfd, &d->lockfd) == 0);
	d->keys = keyring_new(master, &volume, cipher);
	REQUIRE(d->keys);
	d->env = (struct env){.wall_ns = data_env_now, .mono_ns = data_env_now, .random = data_env_random, .ctx = d};
	REQUIRE(object_store_open(d->dirfd, d->keys, &d->env, NULL, false, &d->objects) == 0);
	object_store_set_txn(d->objects, 1);
	d->file = (struct filedata_env){.objects = d->objects, .keys = d->keys, .env = &d->env};
}

static inline void data_env_close(struct data_env *d)
{
	object_store_close(d->objects);
	keyring_free(d->keys);
	close(d->dirfd);
	close(d->lockfd);
	nftw(d->path, data_env_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* What the volume does at a COMMIT of one file; ret (may be NULL) takes the snapshot. */
static inline uint64_t data_env_commit(struct data_env *d, struct filedata *f, struct filedata_snapshot *ret)
{
	struct filedata_snapshot s;
	uint64_t retired;

	REQUIRE(filedata_snapshot(f, &s) == 0);
	CHECK_EQ(filedata_flush(f), 0);
	CHECK_EQ(object_store_flush_redo(d->objects), 0);
	d->txn++;
	object_store_set_txn(d->objects, d->txn + 1);
	filedata_confirmed(f, &retired);
	CHECK_EQ(object_store_committed(d->objects, d->txn), 0);
	if (ret)
		*ret = s;
	else
		filedata_snapshot_fini(&s);
	return retired;
}
#endif
