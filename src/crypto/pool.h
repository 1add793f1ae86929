/* Inside the crypto layer only: many small secrets of one size in guarded memory.
 *
 * A sodium_malloc costs 25 us and three mappings, of which a process may have 65,530: one each for thousands of open
 * objects would use them up. So items share guarded slabs. Thread-safe. */
#ifndef TWOFOLD_POOL_H
#define TWOFOLD_POOL_H
#include <stddef.h>

struct pool;
/* item_len: a multiple of 64; items are aligned to that. NULL without memory. The caller holds a reference. */
struct pool *pool_new(size_t item_len);
/* Drops the caller's reference: the pool goes when the last item is put back. NULL is legal. */
void pool_release(struct pool *p);
/* An item of zeros, or NULL without memory. */
void *pool_get(struct pool *p);
void pool_put(struct pool *p, void *item); /* wipes it */
#endif
