#include "ids.h"

#include <errno.h>
#include <stdlib.h>

bool id_is_zero(const struct id *a)
{
	static const struct id zero;
	return id_eq(a, &zero);
}

void id_hex(const struct id *a, char ret_hex[static ID_HEX_LEN + 1])
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < ID_LEN; i++) {
		ret_hex[2 * i] = digits[a->b[i] >> 4];
		ret_hex[2 * i + 1] = digits[a->b[i] & 15];
	}
	ret_hex[ID_HEX_LEN] = 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int id_parse(const char *hex, struct id *ret)
{
	struct id id;

	if (strlen(hex) != ID_HEX_LEN)
		return -EINVAL;
	for (int i = 0; i < ID_LEN; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
		if (hi < 0 || lo < 0)
			return -EINVAL;
		id.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*ret = id;
	return 0;
}

static int u64_cmp(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

int dot_cmp(struct dot a, struct dot b)
{
	int c = u64_cmp(a.replica, b.replica);
	return c ? c : u64_cmp(a.counter, b.counter);
}

int stamp_cmp(struct stamp a, struct stamp b)
{
	int c = u64_cmp(a.clock_ns, b.clock_ns);
	return c ? c : dot_cmp(a.dot, b.dot);
}

/* First position whose dot is not smaller than d. */
static uint32_t lower_bound(const struct dot *e, uint32_t n, struct dot d)
{
	uint32_t lo = 0, hi = n;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (dot_cmp(e[mid], d) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int insert_at(struct dot **e, uint32_t *n, uint32_t *cap, uint32_t at, struct dot d)
{
	if (*n == *cap) {
		uint32_t want = *cap ? *cap * 2 : 2;
		struct dot *p = reallocarray(*e, want, sizeof *p);
		if (!p)
			return -ENOMEM;
		*e = p;
		*cap = want;
	}
	memmove(*e + at + 1, *e + at, (*n - at) * sizeof **e);
	(*e)[at] = d;
	(*n)++;
	return 0;
}

static int copy_array(struct dot **ret_e, uint32_t *ret_n, uint32_t *ret_cap, const struct dot *e, uint32_t n)
{
	struct dot *p = NULL;
	if (n) {
		p = reallocarray(NULL, n, sizeof *p);
		if (!p)
			return -ENOMEM;
		memcpy(p, e, n * sizeof *p);
	}
	*ret_e = p;
	*ret_n = *ret_cap = n;
	return 0;
}

static void put_array(struct buf *b, const struct dot *e, uint32_t n)
{
	buf_put_u16(b, (uint16_t)n);
	for (uint32_t i = 0; i < n; i++) {
		buf_put_u64(b, e[i].replica);
		buf_put_u64(b, e[i].counter);
	}
}

/* Reads a strictly ascending array; `one` = no replica twice. */
static int read_array(struct reader *r, bool one, struct dot **ret_e, uint32_t *ret_n, uint32_t *ret_cap)
{
	uint32_t n = read_u16(r);
	if (r->bad || n > VECTOR_MAX || r->left < (size_t)n * 16)
		return -EUCLEAN;
	struct dot *e = NULL;
	if (n && !(e = reallocarray(NULL, n, sizeof *e)))
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		e[i].replica = read_u64(r);
		e[i].counter = read_u64(r);
		bool ok = e[i].replica && e[i].counter &&
			  (i == 0 || (one ? e[i - 1].replica < e[i].replica : dot_cmp(e[i - 1], e[i]) < 0));
		if (!ok) {
			free(e);
			return -EUCLEAN;
		}
	}
	*ret_e = e;
	*ret_n = *ret_cap = n;
	return 0;
}

void vector_fini(struct vector *v)
{
	free(v->e);
	*v = (struct vector){0};
}

uint64_t vector_get(const struct vector *v, uint64_t replica)
{
	uint32_t i = lower_bound(v->e, v->n, (struct dot){replica, 0});
	return i < v->n && v->e[i].replica == replica ? v->e[i].counter : 0;
}

bool vector_covers(const struct vector *v, const struct vector *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (!vector_has(v, w->e[i]))
			return false;
	return true;
}

bool vector_eq(const struct vector *v, const struct vector *w)
{
	if (v->n != w->n)
		return false;
	for (uint32_t i = 0; i < v->n; i++)
		if (!dot_eq(v->e[i], w->e[i]))
			return false;
	return true;
}

int vector_add(struct vector *v, struct dot d)
{
	uint32_t i = lower_bound(v->e, v->n, (struct dot){d.replica, 0});
	if (i < v->n && v->e[i].replica == d.replica) {
		if (v->e[i].counter < d.counter)
			v->e[i].counter = d.counter;
		return 0;
	}
	return insert_at(&v->e, &v->n, &v->cap, i, d);
}

void vector_lower(struct vector *v, uint64_t replica, uint64_t counter)
{
	uint32_t i = lower_bound(v->e, v->n, (struct dot){replica, 0});

	if (i == v->n || v->e[i].replica != replica || v->e[i].counter <= counter)
		return;
	v->e[i].counter = counter;
	if (!counter)
		memmove(v->e + i, v->e + i + 1, (--v->n - i) * sizeof *v->e);
}

int vector_join(struct vector *v, const struct vector *w)
{
	for (uint32_t i = 0; i < w->n; i++) {
		int r = vector_add(v, w->e[i]);
		if (r)
			return r;
	}
	return 0;
}

int vector_copy(struct vector *ret, const struct vector *v)
{
	return copy_array(&ret->e, &ret->n, &ret->cap, v->e, v->n);
}

void vector_put(struct buf *b, const struct vector *v) { put_array(b, v->e, v->n); }

int vector_read(struct reader *r, struct vector *ret) { return read_array(r, true, &ret->e, &ret->n, &ret->cap); }

void dots_fini(struct dots *s)
{
	free(s->e);
	*s = (struct dots){0};
}

bool dots_has(const struct dots *s, struct dot d)
{
	uint32_t i = lower_bound(s->e, s->n, d);
	return i < s->n && dot_eq(s->e[i], d);
}

int dots_add(struct dots *s, struct dot d)
{
	uint32_t i = lower_bound(s->e, s->n, d);
	if (i < s->n && dot_eq(s->e[i], d))
		return 0;
	return insert_at(&s->e, &s->n, &s->cap, i, d);
}

int dots_copy(struct dots *ret, const struct dots *s) { return copy_array(&ret->e, &ret->n, &ret->cap, s->e, s->n); }

void dots_put(struct buf *b, const struct dots *s) { put_array(b, s->e, s->n); }

int dots_read(struct reader *r, struct dots *ret) { return read_array(r, false, &ret->e, &ret->n, &ret->cap); }
