/* bench_stats: what recording one duration costs, in processor time a thread: one thread, and two at once on the same timer. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "stats.h"

#define SAMPLES 20000000u

static struct stats *shared;

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *record(void *ret_ns)
{
	double start = cpu_ns();

	for (unsigned i = 0; i < SAMPLES; i++)
		stats_time(shared, OP_WRITE, (i * 2654435761u) >> 12);
	*(double *)ret_ns = (cpu_ns() - start) / SAMPLES;
	return NULL;
}

int main(void)
{
	double ns[2];
	pthread_t t[2];

	if (!(shared = stats_new()))
		return 1;
	record(&ns[0]);
	printf("one thread: %.1f ns a sample\n", ns[0]);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, record, &ns[i]))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("two threads at once, one timer: %.1f and %.1f ns a sample\n", ns[0], ns[1]);
	stats_free(shared);
	return 0;
}
