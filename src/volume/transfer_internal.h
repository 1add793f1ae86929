/* What sender and receiver of contents share. */
#ifndef TWOFOLD_TRANSFER_INTERNAL_H
#define TWOFOLD_TRANSFER_INTERNAL_H
#include "object.h"
#include "transfer.h"

enum { CHUNK_FIRST = 1, CHUNK_LAST = 2, CHUNK_RESUMED = 4 };
enum { ITEM_PAGES = 1, ITEM_GROUP = 2, ITEM_BYTES = 3 };
#define NONCE_LEN 16 /* prefix and counter, as they stand in a tag entry */
#define PAGE_TAG_LEN (TAG_ENTRY_LEN - NONCE_LEN)
#define GROUP_HASH_LEN 32

/* The present pages of a content as one row: where page n of the stream lies. */
struct stream_run {
	uint64_t rank, page, count;
};
struct page_stream {
	struct stream_run *run; /* owned */
	uint32_t n;
	uint64_t pages; /* present */
	struct object *object; /* borrowed; NULL: not readable */
	uint8_t *window;       /* owned: plaintext of the last pages read at random */
	uint64_t window_rank;
	uint32_t window_pages;
};
/* 0, -ENOMEM, -EUCLEAN (holes beyond the length). */
int page_stream_init(struct page_stream *s, const struct content *c, struct object *o);
void page_stream_fini(struct page_stream *s);
/* The run that holds rank, cut to start there and to at most max pages. rank < pages. */
struct stream_run page_stream_at(const struct page_stream *s, uint64_t rank, uint64_t max);
/* Plaintext of n pages from rank on (n <= what is left). */
int page_stream_read(struct page_stream *s, uint64_t rank, uint32_t n, uint8_t *buf);
int page_stream_entries(struct page_stream *s, uint64_t rank, uint32_t n, uint8_t *ret_entries);
/* Bytes from a place in the stream, through the window; short at the end. */
int page_stream_bytes(struct page_stream *s, uint64_t pos, uint8_t *buf, size_t len, size_t *ret_len);

/* The one of base[0..n), n <= SIMILAR_MAX, that shares most with the stream from rank on, by samples: its index, or -1 where none shares much. 0, -ENOMEM, or what
 * reading the stream says. */
#define SIMILAR_MAX 12u
int similar_choose(struct page_stream *stream, uint64_t rank, struct page_stream *base, uint32_t n, int *ret);

/* Nonces of n entries as runs, and back into the first 16 bytes of n entries (the tags are left alone). */
void nonces_put(struct buf *out, const uint8_t *entries, uint32_t n);
int nonces_read(struct reader *r, uint32_t n, uint8_t *ret_entries); /* 0 or -EPROTO */
void tags_hash(const uint8_t *entries, uint32_t n, uint8_t ret[static GROUP_HASH_LEN]);

void base_put(struct buf *out, const struct held_content *b);
void base_read(struct reader *r, struct held_content *ret);
/* librsync prints to standard error otherwise. */
void transfer_quiet_librsync(void);
#endif
