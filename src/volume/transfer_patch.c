/* The receiver's half of a delta: base and delta make plaintext, which is sealed with the sender's nonces in memory, a group of pages
 * at a time. Nothing is written before the group's tags agree with the sender's: the wrong plaintext sealed under nonces that are in use must not get out of
 * memory. */
#include "transfer_sink_internal.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#define GROUP_BYTES ((size_t)TRANSFER_RUN_PAGES * PAGE_LEN)
#define QUEUE_MAX_BYTES (256u << 20)

static rs_result copy_from_base(void *arg, rs_long_t pos, size_t *len, void **buf)
{
	struct transfer_sink *s = arg;
	size_t got = 0;
	int r = pos < 0 ? -EPROTO : page_stream_bytes(&s->base_stream, (uint64_t)pos, *buf, *len, &got);

	if (r < 0) {
		s->read_error = r;
		return RS_IO_ERROR;
	}
	*len = got;
	return got ? RS_DONE : RS_INPUT_ENDED;
}

int delta_start(struct transfer_sink *s)
{
	int r = page_stream_init(&s->base_stream, &s->base.content, s->base.object);

	if (r < 0)
		return r;
	if (s->stream.pages > TRANSFER_DELTA_PAGES_MAX)
		return -EPROTO;
	transfer_quiet_librsync();
	s->plain = malloc(GROUP_BYTES);
	s->job = rs_patch_begin(copy_from_base, s);
	return s->plain && s->job ? 0 : -ENOMEM;
}

void delta_fini(struct transfer_sink *s)
{
	if (s->job)
		rs_job_free(s->job);
	s->job = NULL;
	if (s->plain)
		sodium_memzero(s->plain, GROUP_BYTES);
	free(s->plain);
	s->plain = NULL;
	page_stream_fini(&s->base_stream);
	buf_fini(&s->groups.bytes);
	s->groups = (struct group_queue){0};
	s->rank = s->announced = 0;
	s->filled = 0;
	s->read_error = 0;
	s->patched = false;
}

static uint32_t group_len(const struct transfer_sink *s, uint64_t rank)
{
	uint64_t left = s->stream.pages - rank;

	return left < TRANSFER_RUN_PAGES ? (uint32_t)left : TRANSFER_RUN_PAGES;
}

static int parse_group(struct reader *r, struct delta_group *ret)
{
	ret->count = read_u8(r);
	if (r->bad || !ret->count || ret->count > TRANSFER_RUN_PAGES)
		return -EPROTO;
	int e = nonces_read(r, ret->count, ret->entries);
	if (e < 0)
		return e;
	const uint8_t *hash = read_bytes(r, GROUP_HASH_LEN);
	if (!hash)
		return -EPROTO;
	memcpy(ret->hash, hash, GROUP_HASH_LEN);
	return 0;
}

int delta_group_item(struct transfer_sink *s, struct reader *r)
{
	struct delta_group g;
	const uint8_t *from = r->p;
	int e = parse_group(r, &g);

	if (e < 0)
		return e;
	if (s->announced >= s->stream.pages || g.count != group_len(s, s->announced))
		return -EPROTO;
	s->announced += g.count;
	if (s->groups.at == s->groups.bytes.len)
		s->groups.at = s->groups.bytes.len = 0;
	if (s->groups.bytes.len > QUEUE_MAX_BYTES)
		return -EPROTO;
	buf_put(&s->groups.bytes, from, (size_t)(r->p - from));
	return s->groups.bytes.err;
}

static int write_group(struct transfer_sink *s, struct delta_group *g, const uint8_t *sealed)
{
	uint32_t done = 0;

	while (done < g->count) {
		struct stream_run run = page_stream_at(&s->stream, s->rank + done, g->count - done);
		int r = object_write_sealed(s->object, run.page, (uint32_t)run.count, g->entries + (size_t)done * TAG_ENTRY_LEN,
			sealed + (size_t)done * PAGE_LEN, 0);
		if (r < 0)
			return r;
		done += (uint32_t)run.count;
	}
	return 0;
}

static int seal_group(struct transfer_sink *s)
{
	struct delta_group g;
	uint8_t hash[GROUP_HASH_LEN];
	struct reader r = reader_of(s->groups.bytes.p ? s->groups.bytes.p + s->groups.at : NULL, s->groups.bytes.len - s->groups.at);
	int e = parse_group(&r, &g);

	if (e < 0)
		return e; /* also: none was announced */
	s->groups.at = s->groups.bytes.len - r.left;
	for (uint32_t i = 0; i < g.count; i++) {
		struct stream_run run = page_stream_at(&s->stream, s->rank + i, 1);
		uint8_t *entry = g.entries + (size_t)i * TAG_ENTRY_LEN, nonce[NONCE_LEN];
		memcpy(nonce, entry, NONCE_LEN);
		uint64_t counter = le32_load(nonce + NONCE_PREFIX_LEN) | (uint64_t)le16_load(nonce + NONCE_PREFIX_LEN + 4) << 32;
		page_seal(s->sealer, nonce, counter, run.page, s->plain + (size_t)i * PAGE_LEN, s->plain + (size_t)i * PAGE_LEN, entry);
	}
	tags_hash(g.entries, g.count, hash);
	if (sodium_memcmp(hash, g.hash, sizeof hash)) {
		/* Either side's base is not what it was called, or the delta is wrong. */
		return -ENODATA;
	}
	e = write_group(s, &g, s->plain);
	s->rank += g.count;
	s->filled = 0;
	return e;
}

/* Turns the crank until it wants more input. */
static int patch(struct transfer_sink *s, const uint8_t *p, size_t len, bool eof)
{
	rs_buffers_t b = {.next_in = (char *)(uintptr_t)p, .avail_in = len, .eof_in = eof};
	uint8_t beyond;

	for (;;) {
		bool full = s->rank == s->stream.pages;
		size_t room = full ? 1 : (size_t)group_len(s, s->rank) * PAGE_LEN - s->filled;
		/* One byte too many tells an output that is too long. */
		b.next_out = full ? (char *)&beyond : (char *)s->plain + s->filled;
		b.avail_out = room;
		s->read_error = 0;
		rs_result res = rs_job_iter(s->job, &b);
		size_t made = room - b.avail_out;
		if (s->read_error)
			return s->read_error;
		if (full && made)
			return -EPROTO;
		s->filled += made;
		if (!full && s->filled == (size_t)group_len(s, s->rank) * PAGE_LEN) {
			int r = seal_group(s);
			if (r < 0)
				return r;
		}
		if (res == RS_DONE) {
			s->patched = true;
			return b.avail_in ? -EPROTO : 0;
		}
		if (res != RS_BLOCKED)
			return res == RS_MEM_ERROR ? -ENOMEM : -EPROTO;
		if (made < room && !b.avail_in)
			return 0;
		if (!made && b.avail_in == len && b.avail_in) /* no progress is possible: cannot happen, and must not spin */
			return -EPROTO;
		len = b.avail_in;
	}
}

int delta_bytes_item(struct transfer_sink *s, struct reader *r)
{
	uint32_t len = read_u32(r);
	const uint8_t *p = r->bad || !len || len > TRANSFER_BYTES_MAX ? NULL : read_bytes(r, len);

	if (!p || s->patched)
		return -EPROTO;
	return patch(s, p, len, false);
}

int delta_end(struct transfer_sink *s)
{
	if (!s->patched) {
		int r = patch(s, NULL, 0, true);
		if (r < 0)
			return r;
	}
	return s->patched && s->rank == s->stream.pages && s->announced == s->rank ? 0 : -EPROTO;
}
