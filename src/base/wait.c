#include "wait.h"

#include <time.h>

#include "env.h"

#define NS_PER_S 1000000000u

uint64_t mono_ns(void) { return env_mono_ns(&env_real); }

void cond_init(pthread_cond_t *c)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(c, &a);
	pthread_condattr_destroy(&a);
}

bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns)
{
	const struct timespec t = {.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};

	return pthread_cond_timedwait(c, m, &t) == 0;
}
