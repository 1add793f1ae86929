#include "slab.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sanitizer.h"

#define PIECE (2u << 20) /* a huge page */
#define ALIGNMENT 16

/* At the start of each piece, and of each free item. */
struct link {
	struct link *next;
};
struct slab {
	size_t item_len, carved; /* bytes of the newest piece that are items or were */
	struct link *pieces, *free;
};

struct slab *slab_new(size_t item_len)
{
	struct slab *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->item_len = (item_len + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	s->carved = PIECE;
	return s;
}

/* Address sanitizer sees items one by one only where each is an allocation. */
#ifdef UNDER_ADDRESS_SANITIZER
void slab_free(struct slab *s) { free(s); }
void *slab_get(struct slab *s) { return calloc(1, s->item_len); }
void slab_put(struct slab *s, void *item) { free(item); }
#else
void slab_free(struct slab *s)
{
	while (s && s->pieces) {
		struct link *p = s->pieces;
		s->pieces = p->next;
		munmap(p, PIECE);
	}
	free(s);
}

/* A huge page must lie at a multiple of its size. */
static int add_piece(struct slab *s)
{
	char *p = mmap(NULL, 2 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -1;
	size_t before = (PIECE - (uintptr_t)p % PIECE) % PIECE;
	if (before)
		munmap(p, before);
	munmap(p + before + PIECE, PIECE - before);
	madvise(p + before, PIECE, MADV_HUGEPAGE); /* only faster */
	struct link *piece = (struct link *)(p + before);
	piece->next = s->pieces;
	s->pieces = piece;
	s->carved = ALIGNMENT;
	return 0;
}

void *slab_get(struct slab *s)
{
	struct link *item = s->free;

	if (item) {
		s->free = item->next;
		return memset(item, 0, s->item_len);
	}
	if (s->carved + s->item_len > PIECE && add_piece(s))
		return NULL;
	item = (struct link *)((char *)s->pieces + s->carved);
	s->carved += s->item_len;
	return item; /* untouched since it was mapped: zeros */
}

void slab_put(struct slab *s, void *item)
{
	struct link *l = item;

	if (!l)
		return;
	l->next = s->free;
	s->free = l;
}
#endif
