#include "random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define STOCK 512
#define SMALL 32
#define STALE_NS 100000000u

struct stock {
	uint64_t drawn_ns, generation;
	size_t left;
	unsigned char bytes[STOCK];
};
static _Thread_local struct stock stock;
static _Atomic uint64_t fork_generation = 1;

static void forked(void) { atomic_fetch_add(&fork_generation, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

static void draw(unsigned char *p, size_t len)
{
	while (len) {
		ssize_t n = getrandom(p, len, 0);
		if (n <= 0)
			abort();
		p += n;
		len -= (size_t)n;
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t); /* goes on while the machine is suspended */
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void random_bytes(void *buf, size_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct stock *s = &stock;

	if (len > SMALL) {
		draw(buf, len);
		return;
	}
	pthread_once(&once, watch_forks);
	uint64_t now = now_ns(), generation = atomic_load(&fork_generation);
	if (s->left < len || s->generation != generation || now - s->drawn_ns > STALE_NS) {
		draw(s->bytes, STOCK);
		s->left = STOCK;
		s->drawn_ns = now;
		s->generation = generation;
	}
	s->left -= len;
	memcpy(buf, s->bytes + s->left, len);
	memset(s->bytes + s->left, 0, len);
}
