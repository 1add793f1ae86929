/* Little-endian loads and stores, a growable output buffer and a bounded reader: every format of disk and wire is
 * written and parsed with these. No struct is ever overlaid on bytes. */
#ifndef TWOFOLD_BYTES_H
#define TWOFOLD_BYTES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t le16_load(const void *p)
{
	const uint8_t *b = p;
	return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t le32_load(const void *p)
{
	const uint8_t *b = p;
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t le64_load(const void *p)
{
	const uint8_t *b = p;
	return (uint64_t)le32_load(b) | (uint64_t)le32_load(b + 4) << 32;
}
static inline void le16_store(void *p, uint16_t v)
{
	uint8_t *b = p;
	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}
static inline void le32_store(void *p, uint32_t v)
{
	uint8_t *b = p;
	le16_store(b, (uint16_t)v);
	le16_store(b + 2, (uint16_t)(v >> 16));
}
static inline void le64_store(void *p, uint64_t v)
{
	uint8_t *b = p;
	le32_store(b, (uint32_t)v);
	le32_store(b + 4, (uint32_t)(v >> 32));
}

/* A growable byte buffer. Zero-initialise; free with buf_fini. A failed allocation sets err to -ENOMEM, later puts do
 * nothing: check err once at the end. */
struct buf {
	uint8_t *p; /* owned */
	size_t len, cap;
	int err;
};
void buf_fini(struct buf *b);
/* Appends len zero bytes and returns where they start, NULL (and err) where there is no memory. Valid until the next put. */
void *buf_grow(struct buf *b, size_t len);
void buf_put(struct buf *b, const void *p, size_t len);
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_u16(struct buf *b, uint16_t v);
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);
/* A string with its length in a u16 before it. Longer than 65,535: err = -EOVERFLOW. */
void buf_put_str(struct buf *b, const void *p, size_t len);
/* printf onto the end, without the closing NUL. */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A reader over borrowed bytes. Reading past the end sets bad, returns zeros (NULL for bytes) and stays bad: check it
 * once, after the last read and before using what was read. */
struct reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};
static inline struct reader reader_of(const void *p, size_t len)
{
	return (struct reader){.p = p, .left = len};
}
const uint8_t *read_bytes(struct reader *r, size_t len); /* borrowed from the reader's bytes */
uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
const uint8_t *read_str(struct reader *r, size_t *ret_len); /* as buf_put_str wrote it; borrowed */
/* True where all was read and nothing is left over. */
static inline bool reader_done(const struct reader *r) { return !r->bad && r->left == 0; }

/* Checked arithmetic on lengths from disk and wire: true and *ret set, or false on overflow. */
static inline bool add_size(size_t a, size_t b, size_t *ret) { return !__builtin_add_overflow(a, b, ret); }
static inline bool mul_size(size_t a, size_t b, size_t *ret) { return !__builtin_mul_overflow(a, b, ret); }
#endif
