/* Histograms: quantiles are as exact as promised, what threads record at once adds up, and a reset leaves nothing. */
#include <pthread.h>
#include <string.h>

#include "check.h"
#include "stats.h"

#define THREADS 8
#define EACH 20000

static void test_quantiles(void)
{
	struct stats *s = stats_new();
	struct stat_summary x;

	CHECK(s);
	for (uint64_t ns = 1; ns <= 100000; ns++)
		stats_time(s, OP_READ, ns);
	x = stats_summary(s, OP_READ);
	CHECK_EQ(x.count, 100000);
	CHECK_EQ(x.total_ns, 100000ull * 100001 / 2);
	CHECK_EQ(x.max_ns, 100000);
	CHECK(x.p50_ns >= 50000 && x.p50_ns <= 50000 * 1.125);
	CHECK(x.p99_ns >= 99000 && x.p99_ns <= 100000);
	CHECK_EQ(stats_summary(s, OP_WRITE).count, 0);
	/* one value is its own median, also the smallest and the largest that there are */
	const uint64_t one[] = {0, 7, 8, 1000, UINT64_MAX};
	for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
		stats_reset(s);
		stats_time(s, OP_WRITE, one[i]);
		x = stats_summary(s, OP_WRITE);
		CHECK(x.count == 1 && x.p50_ns == one[i] && x.p99_ns == one[i] && x.max_ns == one[i]);
	}
	stats_free(s);
}

static void *record(void *arg)
{
	for (int i = 0; i < EACH; i++) {
		stats_time(arg, STAGE_SEAL, (uint64_t)i);
		stats_add(arg, COUNT_SEALED_BYTES, 3);
	}
	return NULL;
}

static void test_threads(void)
{
	struct stats *s = stats_new();
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, record, s), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	struct stat_summary x = stats_summary(s, STAGE_SEAL);
	CHECK_EQ(x.count, THREADS * EACH);
	CHECK_EQ(x.total_ns, (uint64_t)THREADS * EACH * (EACH - 1) / 2);
	CHECK_EQ(x.max_ns, EACH - 1);
	CHECK_EQ(stats_count(s, COUNT_SEALED_BYTES), 3u * THREADS * EACH);
	stats_reset(s);
	x = stats_summary(s, STAGE_SEAL);
	CHECK(!x.count && !x.total_ns && !x.max_ns && !x.p50_ns && !stats_count(s, COUNT_SEALED_BYTES));
	stats_free(s);
}

/* Layers that are given no stats record nothing. */
static void test_none(void)
{
	stats_time(NULL, OP_READ, 1);
	stats_since(NULL, OP_READ, 0);
	stats_add(NULL, COUNT_SEALED_BYTES, 1);
	stats_reset(NULL);
	CHECK_EQ(stats_summary(NULL, OP_READ).count, 0);
	CHECK_EQ(stats_count(NULL, COUNT_SEALED_BYTES), 0);
	stats_free(NULL);
}

static void test_names(void)
{
	for (int t = 0; t < STAT_TIMERS; t++)
		CHECK(!strncmp(stats_timer_name((enum stat_timer)t), "op.", 3) || !strncmp(stats_timer_name((enum stat_timer)t), "stage.", 6));
	for (int c = 0; c < STAT_COUNTERS; c++)
		CHECK(!strncmp(stats_counter_name((enum stat_counter)c), "bytes.", 6) || !strncmp(stats_counter_name((enum stat_counter)c), "count.", 6));
}

int main(void)
{
	test_quantiles();
	test_threads();
	test_none();
	test_names();
	return check_result();
}
