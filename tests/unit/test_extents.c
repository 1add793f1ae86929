/* Runs of pages against a plain bitmap: random adds, removes and truncates, and the encoding with damaged forms. */
#include "check.h"
#include "extents.h"

#include <errno.h>

#define N 300
static bool model[N];

static void compare(const struct extents *x)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < x->n; i++) {
		CHECK(x->e[i].count > 0);
		if (i)
			CHECK(x->e[i].first > x->e[i - 1].first + x->e[i - 1].count);
	}
	for (uint64_t p = 0; p < N; p++) {
		struct extent e = extents_next(x, p);
		uint64_t q = p;
		CHECK_EQ(extents_has(x, p), model[p]);
		sum += model[p];
		while (q < N && !model[q])
			q++;
		if (q == N) {
			CHECK_EQ(e.count, 0);
		} else {
			uint64_t end = q;
			while (end < N && model[end])
				end++;
			CHECK_EQ(e.first, q);
			CHECK_EQ(e.count, end - q);
		}
	}
	CHECK_EQ(extents_pages(x), sum);
}

static void random_ops(void)
{
	struct extents x = {0}, y = {0};

	srandom(1);
	for (int i = 0; i < 4000; i++) {
		uint64_t first = (uint64_t)random() % N, n = (uint64_t)random() % 20;
		int op = (int)(random() % 20);
		if (first + n > N)
			n = N - first;
		if (op == 0) {
			CHECK_EQ(extents_truncate(&x, first), 0);
			for (uint64_t p = first; p < N; p++)
				model[p] = false;
		} else {
			CHECK_EQ(op & 1 ? extents_add(&x, first, n) : extents_remove(&x, first, n), 0);
			for (uint64_t p = first; p < first + n; p++)
				model[p] = op & 1;
		}
		if (i % 10 == 0)
			compare(&x);
	}
	CHECK_EQ(extents_copy(&y, &x), 0);
	CHECK(extents_eq(&x, &y));
	CHECK_EQ(extents_add(&y, 1000, 1), 0);
	CHECK(!extents_eq(&x, &y));
	extents_fini(&x);
	extents_fini(&y);
}

static int parse(const struct buf *b, size_t len, struct extents *ret)
{
	struct reader r = reader_of(b->p, len);
	return extents_read(&r, ret);
}

static void encoding(void)
{
	struct extents x = {0}, y = {0};
	struct buf b = {0};

	CHECK_EQ(extents_add(&x, 0, 3), 0);
	CHECK_EQ(extents_add(&x, 5, 2), 0);
	CHECK_EQ(extents_add(&x, UINT64_MAX - 4, 4), 0);
	extents_put(&b, &x);
	CHECK_EQ(b.err, 0);
	CHECK_EQ(parse(&b, b.len, &y), 0);
	CHECK(extents_eq(&x, &y));
	extents_fini(&y);
	for (size_t len = 0; len < b.len; len++)
		CHECK_EQ(parse(&b, len, &y), -EUCLEAN);
	le64_store(b.p + 4 + 16, 3); /* touches the first */
	CHECK_EQ(parse(&b, b.len, &y), -EUCLEAN);
	le64_store(b.p + 4 + 16, 5);
	le64_store(b.p + 4 + 24, 0); /* empty */
	CHECK_EQ(parse(&b, b.len, &y), -EUCLEAN);
	le64_store(b.p + 4 + 24, UINT64_MAX); /* overflows */
	CHECK_EQ(parse(&b, b.len, &y), -EUCLEAN);
	le32_store(b.p, UINT32_MAX);
	CHECK_EQ(parse(&b, b.len, &y), -EUCLEAN);
	buf_fini(&b);
	extents_fini(&x);
}

static void edges(void)
{
	struct extents x = {0};

	CHECK_EQ(extents_add(&x, 10, UINT64_MAX), 0); /* clamped, no overflow */
	CHECK(extents_has(&x, UINT64_MAX - 1));
	CHECK_EQ(extents_remove(&x, 20, UINT64_MAX - 20), 0);
	CHECK_EQ(extents_pages(&x), 10);
	CHECK_EQ(extents_remove(&x, 12, 2), 0);
	CHECK_EQ(x.n, 2);
	CHECK_EQ(extents_add(&x, 12, 2), 0);
	CHECK_EQ(x.n, 1);
	CHECK_EQ(extents_add(&x, 7, 0), 0);
	CHECK_EQ(x.n, 1);
	extents_fini(&x);
}

int main(void)
{
	random_ops();
	encoding();
	edges();
	return check_result();
}
