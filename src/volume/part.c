/* Records: the clear half of a part and its seal. What is in the clear is bounded and checked before anything is opened. Pure; the
 * sealed plaintexts are part_body.c's. */
#include "part.h"

#include <errno.h>
#include <stdlib.h>

#include "log.h"
#include "part_body.h"
#include "seal.h"

#define RECORD_FORMAT 1
/* nonce 24 | u32 length | bytes | zeros up to a multiple of 64 | tag 16 (seal.h) */
#define SEALED_EXTRA (24 + 16)
#define SEALED_MIN (SEALED_EXTRA + 64)
#define SEALED_MAX (SEALED_EXTRA + RECORD_MAX + 64)

void part_fini(struct part *p)
{
	vector_fini(&p->vector);
	dots_fini(&p->apart);
	if (p->opened)
		part_body_fini(p);
	*p = (struct part){0};
}

static size_t sealed_len(size_t plain_len) { return SEALED_EXTRA + (plain_len + 4 + 63) / 64 * 64; }

/* Rules of the clear half. A vector that contains its own dot would let a part supersede itself, and `apart` speaks only of
 * what the vector contains. */
static bool clear_valid(const struct part *p)
{
	if (!p->kind || id_is_zero(&p->id) || !p->stamp.dot.replica || !p->stamp.dot.counter || !p->stamp.clock_ns)
		return false;
	if (vector_has(&p->vector, p->stamp.dot))
		return false;
	if (p->apart.n && part_kind_known(p->kind) && p->kind != PART_CONTENT)
		return false;
	for (uint32_t i = 0; i < p->apart.n; i++)
		if (!vector_has(&p->vector, p->apart.e[i]))
			return false;
	return p->kind != PART_MEMBER || !le64_load(p->id.b + 8);
}

static void put_clear(struct buf *b, const struct part *p)
{
	buf_put_u8(b, RECORD_FORMAT);
	buf_put_u8(b, p->kind);
	buf_put(b, p->id.b, ID_LEN);
	buf_put_u64(b, p->stamp.dot.replica);
	buf_put_u64(b, p->stamp.dot.counter);
	buf_put_u64(b, p->stamp.clock_ns);
	vector_put(b, &p->vector);
	dots_put(b, &p->apart);
}

/* Appends clear half, length and sealed half; on failure `out` holds some of it. */
static int seal(const struct keyring *k, const struct part *p, const struct buf *body, struct buf *out)
{
	size_t start = out->len, want = sealed_len(body->len);

	put_clear(out, p);
	buf_put_u32(out, (uint32_t)want);
	if (out->err)
		return out->err;
	/* the additional data may move when out grows: seal from a copy */
	size_t aad_len = out->len - start;
	struct buf aad = {0};
	buf_put(&aad, out->p + start, aad_len);
	int e = aad.err ? aad.err : record_seal(k, aad.p, aad_len, body->p, body->len, out);
	buf_fini(&aad);
	if (!e && out->len - start - aad_len != want)
		e = -EINVAL;
	return e ? e : out->err;
}

int part_seal(const struct keyring *k, const struct part *p, struct buf *out)
{
	struct buf body = {0};
	size_t start = out->len;
	int e;

	if (out->err)
		return out->err;
	if (!part_kind_known(p->kind) || !clear_valid(p) || p->vector.n > VECTOR_MAX || p->apart.n > VECTOR_MAX)
		return -EINVAL;
	e = part_encode_body(p, &body);
	if (e == -EINVAL)
		log_error("a part of kind %u, of %016llx, is not sealed: no honest author makes such a one", p->kind, (unsigned long long)le64_load(p->id.b));
	if (!e && body.len > RECORD_MAX)
		e = -EMSGSIZE;
	if (!e)
		e = seal(k, p, &body, out);
	if (e) {
		out->len = start;
		out->err = 0;
	}
	buf_fini(&body);
	return e;
}

/* Everything up to the sealed half, whose length is checked against what is left. */
static int parse_clear(struct reader *r, struct part *p)
{
	uint8_t format = read_u8(r);
	p->kind = read_u8(r);
	const uint8_t *id = read_bytes(r, ID_LEN);
	p->stamp.dot.replica = read_u64(r);
	p->stamp.dot.counter = read_u64(r);
	p->stamp.clock_ns = read_u64(r);
	if (r->bad || format != RECORD_FORMAT)
		return -EUCLEAN;
	memcpy(p->id.b, id, ID_LEN);
	int e = vector_read(r, &p->vector);
	if (!e)
		e = dots_read(r, &p->apart);
	if (e)
		return e;
	size_t sealed = read_u32(r);
	if (r->bad || sealed < SEALED_MIN || sealed > SEALED_MAX || (sealed - SEALED_EXTRA) % 64 || sealed != r->left)
		return -EUCLEAN;
	return clear_valid(p) ? 0 : -EUCLEAN;
}

int part_parse(const struct keyring *k, const uint8_t *record, size_t len, bool open, struct part *ret)
{
	struct reader r = reader_of(record, len);
	struct part p = {0};
	struct buf body = {0};
	int e = parse_clear(&r, &p);

	if (!e && open && part_kind_known(p.kind)) {
		e = record_open(k, record, len - r.left, r.p, r.left, &body);
		if (!e)
			e = part_decode_body(&p, body.p, body.len);
	}
	buf_fini(&body);
	if (e)
		part_fini(&p);
	*ret = p; /* empty where it failed */
	return e;
}
