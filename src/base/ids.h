/* Ids, dots and vectors: the words of replication (design: parts, dots, knowledge).
 *
 * A dot names one change of one part: (replica, counter). A vector says, for each replica, up to which counter its dots
 * are contained. The same type serves as a part's version vector, a content's set `apart` (see struct dots) and as
 * knowledge. */
#ifndef TWOFOLD_IDS_H
#define TWOFOLD_IDS_H
#include "bytes.h"

#define ID_LEN 16
#define ID_HEX_LEN 32

/* Random 128-bit id of a volume, node, link or object. All zeros: none. The root directory's node id is all ones (0xff). */
struct id {
	uint8_t b[ID_LEN];
};
#define ROOT_ID ((struct id){{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}})

static inline bool id_eq(const struct id *a, const struct id *b) { return !memcmp(a->b, b->b, ID_LEN); }
static inline int id_cmp(const struct id *a, const struct id *b) { return memcmp(a->b, b->b, ID_LEN); }
bool id_is_zero(const struct id *a);
void id_hex(const struct id *a, char ret_hex[static ID_HEX_LEN + 1]);
/* 0, or -EINVAL where hex is not 32 hex digits. */
int id_parse(const char *hex, struct id *ret);

/* A replica is named by 64 random bits, never 0. Counters start at 1. */
struct dot {
	uint64_t replica, counter;
};
static inline bool dot_eq(struct dot a, struct dot b) { return a.replica == b.replica && a.counter == b.counter; }
int dot_cmp(struct dot a, struct dot b);

/* Hybrid clock: nanoseconds since 1970, larger than that of everything merged before. Clock order of two parts:
 * (clock, replica, counter). */
struct stamp {
	uint64_t clock_ns;
	struct dot dot;
};
int stamp_cmp(struct stamp a, struct stamp b);

/* Sorted by replica, one entry a replica. Zero-initialise, vector_fini frees. */
#define VECTOR_MAX 4096 /* entries; a parser refuses more */
struct vector {
	struct dot *e; /* owned */
	uint32_t n, cap;
};
void vector_fini(struct vector *v);
uint64_t vector_get(const struct vector *v, uint64_t replica); /* 0 where it has none */
static inline bool vector_has(const struct vector *v, struct dot d) { return vector_get(v, d.replica) >= d.counter; }
bool vector_covers(const struct vector *v, const struct vector *w); /* w <= v */
bool vector_eq(const struct vector *v, const struct vector *w);
/* Raises the entry of d.replica to at least d.counter. 0 or -ENOMEM (v unchanged). */
int vector_add(struct vector *v, struct dot d);
/* Lowers the entry of a replica to at most counter (0: takes it out). */
void vector_lower(struct vector *v, uint64_t replica, uint64_t counter);
int vector_join(struct vector *v, const struct vector *w); /* entrywise maximum */
int vector_copy(struct vector *ret, const struct vector *v); /* ret is overwritten, not freed */
void vector_put(struct buf *b, const struct vector *v);      /* u16 count, then (u64 replica, u64 counter) each */
/* 0; -EUCLEAN where truncated, unsorted, too long or with a zero; -ENOMEM. ret is overwritten. */
int vector_read(struct reader *r, struct vector *ret);

/* A small sorted set of dots (a content's `apart`). Encoded like a vector, but a replica may stand in it more than once. */
struct dots {
	struct dot *e; /* owned */
	uint32_t n, cap;
};
void dots_fini(struct dots *s);
bool dots_has(const struct dots *s, struct dot d);
int dots_add(struct dots *s, struct dot d);
int dots_copy(struct dots *ret, const struct dots *s);
void dots_put(struct buf *b, const struct dots *s);
int dots_read(struct reader *r, struct dots *ret);
#endif
