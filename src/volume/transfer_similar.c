/* Which of some contents is much like the one that is to be sent? A few blocks of each candidate are looked for at every byte of a window of the new
 * content, so an insertion does not hide what stands behind it. A look costs the candidates' blocks (at most 64 pages each) and one pass over
 * the window, whatever the length; a delta of the whole follows only where that says that it pays. */
#include <errno.h>
#include <stdlib.h>

#include "transfer_internal.h"

#define WINDOW_PAGES 1024u
#define BLOCK_LEN 2048u
#define BLOCKS_MAX 64u
#define HITS_MIN 2u
#define MULTIPLIER 0x9e3779b1u
#define BUCKETS 4096u /* a power of two, well above all blocks of all candidates */
#define FILTER_BITS 65536u

struct block {
	uint32_t hash, candidate, next; /* next: index + 1 of the next one in the bucket */
	bool hit;
	uint8_t bytes[BLOCK_LEN];
};
struct similar {
	struct block *block; /* owned */
	uint32_t n_block, bucket[BUCKETS];
	uint8_t filter[FILTER_BITS / 8];
	uint32_t blocks[SIMILAR_MAX], hits[SIMILAR_MAX];
};

static uint32_t hash_of(const uint8_t *p)
{
	uint32_t h = 0;

	for (uint32_t i = 0; i < BLOCK_LEN; i++)
		h = h * MULTIPLIER + p[i] + 1;
	return h;
}

static uint32_t bucket_of(uint32_t hash) { return hash >> 20; }

static void add_block(struct similar *s, uint32_t candidate, const uint8_t *page)
{
	/* blocks of one byte only (zeros, mostly) are like those of anything */
	if (!memcmp(page, page + 1, BLOCK_LEN - 1))
		return;
	struct block *b = &s->block[s->n_block++];
	*b = (struct block){.hash = hash_of(page), .candidate = candidate, .next = s->bucket[bucket_of(hash_of(page))]};
	memcpy(b->bytes, page, BLOCK_LEN);
	s->bucket[bucket_of(b->hash)] = s->n_block;
	s->filter[b->hash >> 19] |= (uint8_t)(1u << (b->hash >> 16 & 7));
	s->blocks[candidate]++;
}

/* Blocks of a candidate, evenly spaced over as much as the window is long. */
static int sample(struct similar *s, uint32_t candidate, struct page_stream *base, uint64_t rank)
{
	uint8_t page[PAGE_LEN];
	uint64_t span = base->pages > rank ? base->pages - rank : 0;
	int r = 0;

	if (span > WINDOW_PAGES)
		span = WINDOW_PAGES;
	uint64_t step = span / BLOCKS_MAX > 1 ? span / BLOCKS_MAX : 1;
	for (uint64_t at = 0, n = 0; !r && at < span && n < BLOCKS_MAX; at += step, n++) {
		r = page_stream_read(base, rank + at, 1, page);
		if (!r)
			add_block(s, candidate, page);
	}
	/* damaged here or changed meanwhile: another one, or none */
	return r == -ENOMEM ? r : 0;
}

/* True once a candidate has shown that it is nearly the same. */
static bool look_up(struct similar *s, uint32_t hash, const uint8_t *p)
{
	if (!(s->filter[hash >> 19] & 1u << (hash >> 16 & 7)))
		return false;
	for (uint32_t i = s->bucket[bucket_of(hash)]; i; i = s->block[i - 1].next) {
		struct block *b = &s->block[i - 1];
		if (b->hit || b->hash != hash || memcmp(b->bytes, p, BLOCK_LEN))
			continue;
		b->hit = true;
		if (++s->hits[b->candidate] >= HITS_MIN && s->hits[b->candidate] * 4 >= s->blocks[b->candidate] * 3)
			return true;
	}
	return false;
}

static void scan(struct similar *s, const uint8_t *p, size_t len)
{
	uint32_t out = 1;

	if (len < BLOCK_LEN)
		return;
	for (uint32_t i = 0; i < BLOCK_LEN; i++)
		out *= MULTIPLIER;
	uint32_t h = hash_of(p);
	for (size_t i = 0; !look_up(s, h, p + i) && i + BLOCK_LEN < len; i++)
		h = h * MULTIPLIER + p[i + BLOCK_LEN] + 1 - out * (p[i] + 1u);
}

static int choice(const struct similar *s, uint32_t n)
{
	int best = -1;

	for (uint32_t i = 0; i < n; i++)
		if (s->hits[i] >= HITS_MIN && s->hits[i] * 8 >= s->blocks[i] && (best < 0 || s->hits[i] > s->hits[best]))
			best = (int)i;
	return best;
}

int similar_choose(struct page_stream *stream, uint64_t rank, struct page_stream *base, uint32_t n, int *ret)
{
	uint64_t left = stream->pages > rank ? stream->pages - rank : 0;
	uint32_t pages = left < WINDOW_PAGES ? (uint32_t)left : WINDOW_PAGES;
	struct similar *s = calloc(1, sizeof *s);
	uint8_t *window = malloc((size_t)pages * PAGE_LEN + 1);
	int r = s && window ? 0 : -ENOMEM;

	*ret = -1;
	if (!r && !(s->block = malloc(sizeof *s->block * BLOCKS_MAX * SIMILAR_MAX)))
		r = -ENOMEM;
	for (uint32_t i = 0; !r && i < n; i++)
		r = sample(s, i, &base[i], rank);
	if (!r && s->n_block && !(r = page_stream_read(stream, rank, pages, window))) {
		scan(s, window, (size_t)pages * PAGE_LEN);
		*ret = choice(s, n);
	}
	if (s)
		free(s->block);
	free(s);
	free(window);
	return r;
}
