/* Sorted, disjoint, non-adjacent runs of page numbers: holes of a content, changed ranges of a step. */
#ifndef TWOFOLD_EXTENTS_H
#define TWOFOLD_EXTENTS_H
#include "bytes.h"

struct extent {
	uint64_t first, count; /* pages; count > 0; first + count does not overflow */
};
/* Zero-initialise, extents_fini frees. */
struct extents {
	struct extent *e; /* owned */
	uint32_t n, cap;
};
#define EXTENTS_MAX (1u << 20) /* a parser refuses more */
void extents_fini(struct extents *x);
int extents_copy(struct extents *ret, const struct extents *x); /* ret is overwritten */
/* Room for `extra` more runs: after 0 an add or remove needs none for as many calls. 0 or -ENOMEM. */
int extents_reserve(struct extents *x, uint32_t extra);
/* All: 0 or -ENOMEM with x unchanged. */
int extents_add(struct extents *x, uint64_t first, uint64_t count);
int extents_remove(struct extents *x, uint64_t first, uint64_t count);
int extents_truncate(struct extents *x, uint64_t pages); /* removes all from `pages` on */
bool extents_has(const struct extents *x, uint64_t page);
/* The first run at or after page, clipped to start at page; count 0 where there is none. */
struct extent extents_next(const struct extents *x, uint64_t page);
uint64_t extents_pages(const struct extents *x); /* how many pages in all */
bool extents_eq(const struct extents *a, const struct extents *b);
/* u32 n, then (u64 first, u64 count) each. Read: 0, -EUCLEAN (unsorted, touching, empty or overflowing runs), -ENOMEM. */
void extents_put(struct buf *b, const struct extents *x);
int extents_read(struct reader *r, struct extents *ret);
#endif
