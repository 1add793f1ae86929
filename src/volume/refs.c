/* Look-up counts: an open-addressing table of (inode number, count), 16 bytes an entry, so that a kernel that remembers a million
 * inodes costs this process little. Under tree_mu. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

struct ref {
	inum ino; /* 0: free */
	uint64_t count;
};
struct ref_table {
	struct ref *e;
	uint32_t n, cap; /* cap: a power of two */
};

static uint32_t slot_of(inum ino, uint32_t cap) { return (uint32_t)((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (cap - 1); }

int refs_init(struct volume *v)
{
	struct ref_table *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	t->cap = 1024;
	if (!(t->e = calloc(t->cap, sizeof *t->e))) {
		free(t);
		return -ENOMEM;
	}
	v->refs = t;
	return 0;
}

void refs_fini(struct volume *v)
{
	if (v->refs)
		free(v->refs->e);
	free(v->refs);
	v->refs = NULL;
}

static struct ref *find(struct ref_table *t, inum ino)
{
	uint32_t i = slot_of(ino, t->cap);

	while (t->e[i].ino && t->e[i].ino != ino)
		i = (i + 1) & (t->cap - 1);
	return &t->e[i];
}

static int grow(struct ref_table *t)
{
	struct ref_table bigger = {.cap = t->cap * 2};

	if (!(bigger.e = calloc(bigger.cap, sizeof *bigger.e)))
		return -ENOMEM;
	for (uint32_t i = 0; i < t->cap; i++)
		if (t->e[i].ino)
			*find(&bigger, t->e[i].ino) = t->e[i];
	free(t->e);
	t->e = bigger.e;
	t->cap = bigger.cap;
	return 0;
}

uint64_t refs_get(struct volume *v, inum ino)
{
	const struct ref *r = find(v->refs, ino);
	return r->ino ? r->count : 0;
}

int refs_add(struct volume *v, inum ino)
{
	struct ref_table *t = v->refs;
	struct ref *r = find(t, ino);

	if (!r->ino) {
		/* a table that cannot grow must still keep one entry free */
		if (t->n * 4 >= t->cap * 3 && grow(t) && t->n + 2 >= t->cap)
			return -ENOMEM;
		r = find(t, ino);
		*r = (struct ref){.ino = ino};
		t->n++;
	}
	r->count++;
	return 0;
}

/* Takes the entry out and moves up what was displaced by it. */
static void erase(struct ref_table *t, struct ref *r)
{
	uint32_t hole = (uint32_t)(r - t->e), i = hole;

	for (;;) {
		i = (i + 1) & (t->cap - 1);
		if (!t->e[i].ino)
			break;
		uint32_t home = slot_of(t->e[i].ino, t->cap);
		if (((i - home) & (t->cap - 1)) >= ((i - hole) & (t->cap - 1))) {
			t->e[hole] = t->e[i];
			hole = i;
		}
	}
	t->e[hole] = (struct ref){0};
	t->n--;
}

bool refs_drop(struct volume *v, inum ino, uint64_t n)
{
	struct ref *r = find(v->refs, ino);

	if (!r->ino)
		return true;
	if (r->count > n) {
		r->count -= n;
		return false;
	}
	erase(v->refs, r);
	return true;
}
