/* Clock and randomness behind one small interface, so that a simulation or a test owns both. */
#ifndef TWOFOLD_ENV_H
#define TWOFOLD_ENV_H
#include <stddef.h>
#include <stdint.h>

struct env {
	uint64_t (*wall_ns)(void *ctx);                  /* nanoseconds since 1970 */
	uint64_t (*mono_ns)(void *ctx);                  /* monotonic nanoseconds */
	void (*random)(void *ctx, void *buf, size_t len); /* ids, nonces' prefixes */
	void *ctx;
};
/* The real clock and the kernel's random bytes. */
extern const struct env env_real;

static inline uint64_t env_wall_ns(const struct env *e) { return e->wall_ns(e->ctx); }
static inline uint64_t env_mono_ns(const struct env *e) { return e->mono_ns(e->ctx); }
static inline void env_random(const struct env *e, void *buf, size_t len) { e->random(e->ctx, buf, len); }
#endif
