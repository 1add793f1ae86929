/* What sender and receiver of contents share: streams of present pages, runs of nonces. */
#include "transfer_internal.h"

#include <errno.h>
#include <librsync.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>

#define WINDOW_PAGES 16

void transfer_content_fini(struct transfer_content *c)
{
	if (c->object)
		object_close(c->object);
	content_fini(&c->content);
	*c = (struct transfer_content){0};
}

int page_stream_init(struct page_stream *s, const struct content *c, struct object *o)
{
	uint64_t pages = c->length / PAGE_LEN + (c->length % PAGE_LEN != 0), at = 0;

	*s = (struct page_stream){.object = o};
	s->run = calloc((size_t)c->holes.n + 1, sizeof *s->run);
	if (!s->run)
		return -ENOMEM;
	for (uint32_t i = 0; i <= c->holes.n; i++) {
		uint64_t end = i < c->holes.n ? c->holes.e[i].first : pages;
		if (end < at || end > pages) {
			page_stream_fini(s);
			return -EUCLEAN;
		}
		if (end > at) {
			s->run[s->n++] = (struct stream_run){.rank = s->pages, .page = at, .count = end - at};
			s->pages += end - at;
		}
		if (i < c->holes.n)
			at = c->holes.e[i].first + c->holes.e[i].count;
	}
	if (at > pages) {
		page_stream_fini(s);
		return -EUCLEAN;
	}
	return 0;
}

void page_stream_fini(struct page_stream *s)
{
	free(s->run);
	if (s->window)
		sodium_memzero(s->window, WINDOW_PAGES * PAGE_LEN);
	free(s->window);
	*s = (struct page_stream){0};
}

struct stream_run page_stream_at(const struct page_stream *s, uint64_t rank, uint64_t max)
{
	uint32_t lo = 0, hi = s->n;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (s->run[mid].rank <= rank)
			lo = mid;
		else
			hi = mid;
	}
	struct stream_run r = s->run[lo];
	r.page += rank - r.rank;
	r.count -= rank - r.rank;
	r.rank = rank;
	if (r.count > max)
		r.count = max;
	return r;
}

int page_stream_read(struct page_stream *s, uint64_t rank, uint32_t n, uint8_t *buf)
{
	uint64_t bad;

	while (n) {
		struct stream_run run = page_stream_at(s, rank, n);
		int r = object_read(s->object, run.page, (uint32_t)run.count, buf, &bad);
		if (r < 0)
			return r;
		buf += run.count * PAGE_LEN;
		rank += run.count;
		n -= (uint32_t)run.count;
	}
	return 0;
}

int page_stream_entries(struct page_stream *s, uint64_t rank, uint32_t n, uint8_t *ret_entries)
{
	while (n) {
		struct stream_run run = page_stream_at(s, rank, n);
		int r = object_read_entries(s->object, run.page, (uint32_t)run.count, ret_entries);
		if (r < 0)
			return r;
		ret_entries += run.count * TAG_ENTRY_LEN;
		rank += run.count;
		n -= (uint32_t)run.count;
	}
	return 0;
}

int page_stream_bytes(struct page_stream *s, uint64_t pos, uint8_t *buf, size_t len, size_t *ret_len)
{
	size_t done = 0;

	if (!s->window && !(s->window = malloc(WINDOW_PAGES * PAGE_LEN)))
		return -ENOMEM;
	while (done < len && (pos + done) / PAGE_LEN < s->pages) {
		uint64_t at = pos + done, rank = at / PAGE_LEN;
		if (!s->window_pages || rank < s->window_rank || rank >= s->window_rank + s->window_pages) {
			uint64_t left = s->pages - rank;
			uint32_t n = left < WINDOW_PAGES ? (uint32_t)left : WINDOW_PAGES;
			s->window_pages = 0;
			int r = page_stream_read(s, rank, n, s->window);
			if (r < 0)
				return r;
			s->window_rank = rank;
			s->window_pages = n;
		}
		size_t in = (size_t)(at - s->window_rank * PAGE_LEN), n = (size_t)s->window_pages * PAGE_LEN - in;
		if (n > len - done)
			n = len - done;
		memcpy(buf + done, s->window + in, n);
		done += n;
	}
	*ret_len = done;
	return 0;
}

static uint64_t counter_of(const uint8_t *entry)
{
	return le32_load(entry + NONCE_PREFIX_LEN) | (uint64_t)le16_load(entry + NONCE_PREFIX_LEN + 4) << 32;
}

void nonces_put(struct buf *out, const uint8_t *entries, uint32_t n)
{
	size_t at = out->len;
	uint8_t runs = 0;

	buf_put_u8(out, 0);
	for (uint32_t i = 0; i < n; runs++) {
		const uint8_t *first = entries + (size_t)i * TAG_ENTRY_LEN;
		uint32_t k = 1;
		while (i + k < n && !memcmp(first, first + (size_t)k * TAG_ENTRY_LEN, NONCE_PREFIX_LEN) &&
		       counter_of(first) + k == counter_of(first + (size_t)k * TAG_ENTRY_LEN))
			k++;
		buf_put(out, first, NONCE_LEN);
		buf_put_u8(out, (uint8_t)k);
		i += k;
	}
	if (!out->err)
		out->p[at] = runs;
}

int nonces_read(struct reader *r, uint32_t n, uint8_t *ret_entries)
{
	uint32_t runs = read_u8(r), done = 0;

	for (uint32_t i = 0; i < runs; i++) {
		const uint8_t *nonce = read_bytes(r, NONCE_LEN);
		uint32_t count = read_u8(r);
		if (r->bad || !count || count > n - done)
			return -EPROTO;
		uint64_t counter = counter_of(nonce);
		if (counter > NONCE_COUNTER_MAX - (count - 1))
			return -EPROTO;
		for (uint32_t k = 0; k < count; k++, done++) {
			uint8_t *e = ret_entries + (size_t)done * TAG_ENTRY_LEN;
			memcpy(e, nonce, NONCE_PREFIX_LEN);
			le32_store(e + NONCE_PREFIX_LEN, (uint32_t)(counter + k));
			le16_store(e + NONCE_PREFIX_LEN + 4, (uint16_t)((counter + k) >> 32));
		}
	}
	return r->bad || done != n ? -EPROTO : 0;
}

void tags_hash(const uint8_t *entries, uint32_t n, uint8_t ret[static GROUP_HASH_LEN])
{
	crypto_generichash_state h;

	crypto_generichash_init(&h, NULL, 0, GROUP_HASH_LEN);
	for (uint32_t i = 0; i < n; i++)
		crypto_generichash_update(&h, entries + (size_t)i * TAG_ENTRY_LEN + NONCE_LEN, PAGE_TAG_LEN);
	crypto_generichash_final(&h, ret, GROUP_HASH_LEN);
}

void base_put(struct buf *out, const struct held_content *b)
{
	buf_put(out, b->node.b, ID_LEN);
	buf_put_u64(out, b->dot.replica);
	buf_put_u64(out, b->dot.counter);
	buf_put(out, b->root.b, ROOT_LEN);
}

void base_read(struct reader *r, struct held_content *ret)
{
	const uint8_t *p = read_bytes(r, ID_LEN);

	if (p)
		memcpy(ret->node.b, p, ID_LEN);
	ret->dot.replica = read_u64(r);
	ret->dot.counter = read_u64(r);
	p = read_bytes(r, ROOT_LEN);
	if (p)
		memcpy(ret->root.b, p, ROOT_LEN);
}

static void set_quiet(void) { rs_trace_set_level(RS_LOG_EMERG); }

void transfer_quiet_librsync(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, set_quiet);
}
