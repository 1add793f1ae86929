#include "env.h"

#include <time.h>

#include "random.h"

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The clock that the kernel stamps written files with: with the finer one a file that is made after another is written could look older than it, by a tick. */
static uint64_t real_wall(void *ctx) { return clock_ns(CLOCK_REALTIME_COARSE); }
static uint64_t real_mono(void *ctx) { return clock_ns(CLOCK_MONOTONIC); }

static void real_random(void *ctx, void *buf, size_t len)
{
	random_bytes(buf, len);
}

const struct env env_real = {real_wall, real_mono, real_random, NULL};
