/* A few real volumes in one process: stores in a temporary directory, clock and randomness from one seed, batches handed over through
 * replicate.h without a network. For the simulation and for unit tests of replication. */
#ifndef TWOFOLD_WORLD_H
#define TWOFOLD_WORLD_H
#include "replicate.h"

#define REPLICAS_MAX 50
static inline char replica_letter(unsigned i) { return (char)(i < 26 ? 'A' + i : 'a' + i - 26); }
struct world;
struct replica {
	struct world *w;
	unsigned index;
	char path[256];
	uint64_t id;
	int64_t skew_ns;
	uint64_t rng;
	struct env env;
	struct volume *v; /* NULL: closed */
	/* What a mount would have been told, counted. */
	unsigned entries, dirs, attrs, contents, replaced;
};
struct world {
	char dir[200];
	uint64_t seed, rng, now_ns;
	unsigned n;
	struct replica r[REPLICAS_MAX];
	uint64_t sent_bytes; /* of contents */
	unsigned gone;       /* contents that the sender had no more */
};
/* Ends the process where something cannot be made. */
void world_make(struct world *w, unsigned replicas, uint64_t seed);
void world_remove(struct world *w);
void world_open(struct world *w, unsigned i);
uint64_t world_random(struct world *w, uint64_t below);

/* A batch on its way: what a had that b lacked when it was taken. */
struct parcel {
	unsigned from, to;
	uint8_t **record; /* owned */
	size_t *len;
	uint32_t n;
	struct vector end;
};
int parcel_take(struct world *w, unsigned from, unsigned to, struct parcel *ret);
void parcel_free(struct parcel *p);
void parcel_shuffle(struct world *w, struct parcel *p);
/* Parts, contents, apply. keep: the parcel may be delivered again. lose_at: breaks off before that many parts were handed over (UINT32_MAX: not). */
int parcel_deliver(struct world *w, const struct parcel *p, uint32_t lose_at);
/* Take and deliver. *ret_parts: how many. */
int world_exchange(struct world *w, unsigned from, unsigned to, uint32_t *ret_parts);

/* ---- the tree as a user sees it ---- */
struct seen {
	char *path; /* owned, "a/b" */
	inum ino;
	uint32_t mode, uid, nlink;
	struct timespec64 mtime;
	uint8_t *data; /* owned: content, or a symlink's target */
	size_t len;
};
struct tree {
	struct seen *e; /* sorted by path */
	uint32_t n, cap;
};
int tree_look(struct volume *v, struct tree *ret);
void tree_free(struct tree *t);
struct seen *tree_find(const struct tree *t, const char *path);
int tree_copy(struct tree *ret, const struct tree *t);
void tree_remove(struct tree *t, const char *path);
struct seen *tree_add(struct tree *t, const char *path);
void tree_sort(struct tree *t);
/* NULL: the same names, kinds and contents (attrs too where asked); else what differs, static. */
const char *tree_differs(const struct tree *a, const struct tree *b, bool attrs);
#endif
