#include "bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buf_fini(struct buf *b)
{
	free(b->p);
	*b = (struct buf){0};
}

void *buf_grow(struct buf *b, size_t len)
{
	size_t want, cap;

	if (b->err)
		return NULL;
	if (!add_size(b->len, len, &want)) {
		b->err = -EOVERFLOW;
		return NULL;
	}
	if (want > b->cap || !b->p) {
		cap = b->cap ? b->cap : 64;
		while (cap < want)
			cap = cap > SIZE_MAX / 2 ? want : cap * 2;
		uint8_t *p = realloc(b->p, cap);
		if (!p) {
			b->err = -ENOMEM;
			return NULL;
		}
		b->p = p;
		b->cap = cap;
	}
	void *at = b->p + b->len;
	memset(at, 0, len);
	b->len = want;
	return at;
}

void buf_put(struct buf *b, const void *p, size_t len)
{
	void *at = buf_grow(b, len);
	if (at && len)
		memcpy(at, p, len);
}

void buf_put_u8(struct buf *b, uint8_t v) { buf_put(b, &v, 1); }

void buf_put_u16(struct buf *b, uint16_t v)
{
	uint8_t t[2];
	le16_store(t, v);
	buf_put(b, t, sizeof t);
}

void buf_put_u32(struct buf *b, uint32_t v)
{
	uint8_t t[4];
	le32_store(t, v);
	buf_put(b, t, sizeof t);
}

void buf_put_u64(struct buf *b, uint64_t v)
{
	uint8_t t[8];
	le64_store(t, v);
	buf_put(b, t, sizeof t);
}

void buf_put_str(struct buf *b, const void *p, size_t len)
{
	if (len > UINT16_MAX) {
		if (!b->err)
			b->err = -EOVERFLOW;
		return;
	}
	buf_put_u16(b, (uint16_t)len);
	buf_put(b, p, len);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	char small[256];

	va_start(ap, fmt);
	int n = vsnprintf(small, sizeof small, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n < sizeof small) {
		buf_put(b, small, (size_t)n);
		return;
	}
	char *at = buf_grow(b, (size_t)n + 1);
	if (!at)
		return;
	va_start(ap, fmt);
	vsnprintf(at, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len--;
}

const uint8_t *read_bytes(struct reader *r, size_t len)
{
	if (r->bad || len > r->left) {
		r->bad = true;
		return NULL;
	}
	const uint8_t *p = r->p;
	r->p += len;
	r->left -= len;
	return p;
}

uint8_t read_u8(struct reader *r)
{
	const uint8_t *p = read_bytes(r, 1);
	return p ? *p : 0;
}

uint16_t read_u16(struct reader *r)
{
	const uint8_t *p = read_bytes(r, 2);
	return p ? le16_load(p) : 0;
}

uint32_t read_u32(struct reader *r)
{
	const uint8_t *p = read_bytes(r, 4);
	return p ? le32_load(p) : 0;
}

uint64_t read_u64(struct reader *r)
{
	const uint8_t *p = read_bytes(r, 8);
	return p ? le64_load(p) : 0;
}

const uint8_t *read_str(struct reader *r, size_t *ret_len)
{
	size_t len = read_u16(r);
	const uint8_t *p = read_bytes(r, len);
	*ret_len = p ? len : 0;
	return p;
}
