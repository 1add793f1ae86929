#include "extents.h"

#include <errno.h>
#include <stdlib.h>

void extents_fini(struct extents *x)
{
	free(x->e);
	*x = (struct extents){0};
}

int extents_reserve(struct extents *x, uint32_t extra)
{
	uint32_t need, cap = x->cap ? x->cap : 4;
	struct extent *e;

	if (__builtin_add_overflow(x->n, extra, &need))
		return -ENOMEM;
	if (need <= x->cap)
		return 0;
	while (cap < need) {
		if (cap > UINT32_MAX / 2)
			return -ENOMEM;
		cap *= 2;
	}
	e = realloc(x->e, cap * sizeof(*e));
	if (!e)
		return -ENOMEM;
	x->e = e;
	x->cap = cap;
	return 0;
}

int extents_copy(struct extents *ret, const struct extents *x)
{
	struct extents c = {0};
	int r = extents_reserve(&c, x->n);

	if (r)
		return r;
	if (x->n)
		memcpy(c.e, x->e, x->n * sizeof(*c.e));
	c.n = x->n;
	*ret = c;
	return 0;
}

static uint64_t end_of(const struct extent *e) { return e->first + e->count; }

/* The end of a run, at the highest page number where it would overflow. */
static uint64_t end_at(uint64_t first, uint64_t count)
{
	uint64_t end;
	return __builtin_add_overflow(first, count, &end) ? UINT64_MAX : end;
}

/* Index of the first run that ends after page (inclusive: at or after). */
static uint32_t find(const struct extents *x, uint64_t page, bool inclusive)
{
	uint32_t lo = 0, hi = x->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		uint64_t end = end_of(&x->e[mid]);
		if (inclusive ? end >= page : end > page)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* Replaces runs [i, j) by the n at with. Room must have been reserved. */
static void splice(struct extents *x, uint32_t i, uint32_t j, const struct extent *with, uint32_t n)
{
	if (j < x->n)
		memmove(x->e + i + n, x->e + j, (x->n - j) * sizeof(*x->e));
	for (uint32_t k = 0; k < n; k++)
		x->e[i + k] = with[k];
	x->n = x->n - (j - i) + n;
}

int extents_add(struct extents *x, uint64_t first, uint64_t count)
{
	uint64_t end = end_at(first, count);
	uint32_t i, j;
	struct extent e;
	int r;

	if (first >= end)
		return 0;
	r = extents_reserve(x, 1);
	if (r)
		return r;
	i = j = find(x, first, true);
	while (j < x->n && x->e[j].first <= end) {
		if (x->e[j].first < first)
			first = x->e[j].first;
		if (end_of(&x->e[j]) > end)
			end = end_of(&x->e[j]);
		j++;
	}
	e = (struct extent){first, end - first};
	splice(x, i, j, &e, 1);
	return 0;
}

int extents_remove(struct extents *x, uint64_t first, uint64_t count)
{
	uint64_t end = end_at(first, count);
	struct extent rest[2];
	uint32_t i, j, n = 0;
	int r;

	if (first >= end || !x->n)
		return 0;
	i = j = find(x, first, false);
	if (i == x->n || x->e[i].first >= end)
		return 0;
	r = extents_reserve(x, 1);
	if (r)
		return r;
	if (x->e[i].first < first)
		rest[n++] = (struct extent){x->e[i].first, first - x->e[i].first};
	while (j < x->n && x->e[j].first < end)
		j++;
	if (end_of(&x->e[j - 1]) > end)
		rest[n++] = (struct extent){end, end_of(&x->e[j - 1]) - end};
	splice(x, i, j, rest, n);
	return 0;
}

int extents_truncate(struct extents *x, uint64_t pages)
{
	uint32_t i = find(x, pages, false);

	if (i < x->n && x->e[i].first < pages) {
		x->e[i].count = pages - x->e[i].first;
		i++;
	}
	x->n = i;
	return 0;
}

bool extents_has(const struct extents *x, uint64_t page)
{
	uint32_t i = find(x, page, false);
	return i < x->n && x->e[i].first <= page;
}

struct extent extents_next(const struct extents *x, uint64_t page)
{
	uint32_t i = find(x, page, false);

	if (i == x->n)
		return (struct extent){0, 0};
	if (x->e[i].first >= page)
		return x->e[i];
	return (struct extent){page, end_of(&x->e[i]) - page};
}

uint64_t extents_pages(const struct extents *x)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < x->n; i++)
		sum += x->e[i].count;
	return sum;
}

bool extents_eq(const struct extents *a, const struct extents *b)
{
	return a->n == b->n && (!a->n || !memcmp(a->e, b->e, a->n * sizeof(*a->e)));
}

void extents_put(struct buf *b, const struct extents *x)
{
	buf_put_u32(b, x->n);
	for (uint32_t i = 0; i < x->n; i++) {
		buf_put_u64(b, x->e[i].first);
		buf_put_u64(b, x->e[i].count);
	}
}

int extents_read(struct reader *r, struct extents *ret)
{
	struct extents x = {0};
	uint32_t n = read_u32(r);
	uint64_t last_end = 0;

	/* 16 bytes a run: a length that the bytes cannot hold is refused before anything is allocated */
	if (r->bad || n > EXTENTS_MAX || n > r->left / 16)
		return -EUCLEAN;
	if (extents_reserve(&x, n))
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct extent e;
		uint64_t end;
		e.first = read_u64(r);
		e.count = read_u64(r);
		if (!e.count || __builtin_add_overflow(e.first, e.count, &end) || (i && e.first <= last_end)) {
			extents_fini(&x);
			return -EUCLEAN;
		}
		x.e[x.n++] = e;
		last_end = end;
	}
	*ret = x;
	return 0;
}
