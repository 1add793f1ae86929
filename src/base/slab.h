/* Many items of one size, which come and go: carved from large pieces that ask for huge pages, since the first touch of each page is what small
 * allocations cost most. Pieces are given back only with the whole slab: it keeps the most that was ever needed at once. Not thread-safe. */
#ifndef TWOFOLD_SLAB_H
#define TWOFOLD_SLAB_H
#include <stddef.h>

struct slab;
struct slab *slab_new(size_t item_len); /* NULL without memory; slab_free */
void slab_free(struct slab *s);         /* and all items with it; NULL is legal */
void *slab_get(struct slab *s);         /* zeros, aligned as malloc's; NULL without memory */
void slab_put(struct slab *s, void *item); /* NULL is legal */
#endif
