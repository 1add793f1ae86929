/* Waiting with an end, on the clock that nobody sets. */
#ifndef TWOFOLD_WAIT_H
#define TWOFOLD_WAIT_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t mono_ns(void); /* CLOCK_MONOTONIC; since an unspecified time in the past */
static inline uint64_t mono_ns_in(uint64_t ms) { return mono_ns() + ms * 1000000; }
void cond_init(pthread_cond_t *c); /* for cond_wait_until */
/* Until it is signalled (or, as always, for no reason) or until_ns of mono_ns has come: then false. m is held. */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns);
#endif
