/* A volume in a few arrays, for tests of sessions: keyed cells with a dot and a content that follows from the dot. The larger dot stays. */
#ifndef TWOFOLD_FAKE_VOLUME_H
#define TWOFOLD_FAKE_VOLUME_H
#include <errno.h>

#include "check.h"
#include "session.h"

#define CELLS 6000
#define FAKE_PAGE 100u /* bytes */
struct cell {
	struct dot dot;    /* counter 0: empty */
	uint32_t length;   /* of a content that travels apart; 0: none */
};
struct incoming { /* what came of a content before a cut */
	struct dot dot;
	uint32_t have;
};
struct fake {
	uint64_t replica, tag;
	struct cell cell[CELLS];
	struct incoming incoming[64];
	uint32_t cells;    /* in use */
	struct vector knowledge, peer_knowledge[4]; /* by replica id */
	uint32_t applied, refused, resumed, gone, deltas;
	unsigned no_data_in_100, damage_in_100; /* chances */
	uint32_t seed;
	int fail_apply;
};

static inline uint32_t roll(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static inline uint8_t content_byte(struct dot d, uint32_t at) { return (uint8_t)(d.replica * 31 + d.counter * 7 + at * 13 + at / 256); }

static inline struct fake *fake_of(struct volume *v) { return (struct fake *)v; }

static inline void fake_change(struct fake *f, uint32_t key, uint32_t length)
{
	struct dot d = {f->replica, vector_get(&f->knowledge, f->replica) + 1};

	/* a counter that is larger than that of the version before, as clocks are in the real one */
	if (f->cell[key].dot.counter >= d.counter)
		d.counter = f->cell[key].dot.counter + 1;
	f->cell[key] = (struct cell){d, length};
	REQUIRE(!vector_add(&f->knowledge, d));
}

static inline int fake_knowledge(struct volume *v, struct vector *ret) { return vector_copy(ret, &fake_of(v)->knowledge); }
static inline uint64_t fake_start_tag(struct volume *v) { return fake_of(v)->tag; }
static inline int fake_live_root(struct volume *v, struct root *ret)
{
	memset(ret, 0, sizeof *ret);
	return 0;
}

static inline bool lacks(const struct cell *c, const struct vector *have) { return c->dot.counter && !vector_has(have, c->dot); }

static inline int fake_list(struct volume *v, const struct vector *have, const struct vector *upto, struct part_cursor *cursor, uint32_t max_rows,
	size_t max_bytes, struct buf *out, uint32_t *ret_rows)
{
	struct fake *f = fake_of(v);
	uint32_t rows = 0;
	size_t start = out->len;

	for (; cursor->counter < f->cells && rows < max_rows && out->len - start < max_bytes; cursor->counter++) {
		const struct cell *c = &f->cell[cursor->counter];

		if (!lacks(c, have) || !vector_has(upto, c->dot))
			continue;
		buf_put_u32(out, 24);
		buf_put_u32(out, (uint32_t)cursor->counter);
		buf_put_u64(out, c->dot.replica);
		buf_put_u64(out, c->dot.counter);
		buf_put_u32(out, c->length);
		rows++;
	}
	cursor->done = cursor->counter == f->cells;
	*ret_rows = rows;
	return out->err;
}

static inline int fake_backlog(struct volume *v, const struct vector *have, struct backlog *ret)
{
	*ret = (struct backlog){0};
	for (uint32_t i = 0; i < fake_of(v)->cells; i++)
		if (lacks(&fake_of(v)->cell[i], have)) {
			ret->parts++;
			ret->bytes += fake_of(v)->cell[i].length;
		}
	return 0;
}

/* ---- sending a content: chunk = form u8 | offset u32 | bytes ---- */
struct content_source {
	struct fake *f;
	uint32_t key, at;
	struct cell cell;
	enum content_form form;
};

static inline int fake_source_open(struct volume *v, const struct id *node, struct dot dot, const struct held_content *held, uint32_t n_held,
	const struct vector *has, unsigned forms, uint64_t resume_page, struct content_source **ret)
{
	struct fake *f = fake_of(v);
	struct content_source *s;
	uint32_t key = le32_load(node->b);

	if (key >= CELLS || !dot_eq(f->cell[key].dot, dot))
		return -ESTALE;
	if (roll(&f->seed) % 100 < f->damage_in_100)
		return -EBADMSG;
	if (!(s = calloc(1, sizeof *s)))
		return -ENOMEM;
	*s = (struct content_source){f, key, (uint32_t)resume_page * FAKE_PAGE, f->cell[key], forms & FORM_DELTA ? FORM_DELTA : FORM_WHOLE};
	*ret = s;
	return 0;
}

static inline int fake_source_next(struct content_source *s, size_t max, struct buf *out)
{
	uint32_t n = s->cell.length - s->at < 3 * FAKE_PAGE ? s->cell.length - s->at : 3 * FAKE_PAGE;
	uint8_t bytes[3 * FAKE_PAGE];

	if (!dot_eq(s->f->cell[s->key].dot, s->cell.dot))
		return -ESTALE; /* changed while it was sent */
	buf_put_u8(out, (uint8_t)s->form);
	buf_put_u32(out, s->at);
	for (uint32_t i = 0; i < n; i++)
		bytes[i] = content_byte(s->cell.dot, s->at + i);
	buf_put(out, bytes, n);
	s->at += n;
	return s->at < s->cell.length;
}

static inline uint64_t fake_source_saved(const struct content_source *s) { return 1; }
static inline void fake_source_close(struct content_source *s) { free(s); }

/* ---- receiving ---- */
struct staged {
	uint32_t key;
	struct cell cell;
	struct content_want want;
	uint32_t have;
	bool wanted, handed, complete, gone;
};
struct batch {
	struct fake *f;
	struct staged *s[CELLS]; /* pointers, since wants are borrowed */
	uint32_t n, next;
};

static inline int fake_batch_new(struct volume *v, uint64_t from, struct batch **ret)
{
	struct batch *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	b->f = fake_of(v);
	*ret = b;
	return 0;
}

static inline void keep_incoming(struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->s[i]->have)
			b->f->incoming[i % 64] = (struct incoming){b->s[i]->cell.dot, b->s[i]->have};
}

static inline void empty_batch(struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		free(b->s[i]);
	b->n = b->next = 0;
}

static inline void fake_batch_free(struct batch *b)
{
	keep_incoming(b);
	empty_batch(b);
	free(b);
}

static inline int fake_batch_part(struct batch *b, const uint8_t *record, size_t len)
{
	struct staged *s;
	struct fake *f = b->f;

	REQUIRE(len == 24 && b->n < CELLS);
	s = calloc(1, sizeof *s);
	REQUIRE(s);
	s->key = le32_load(record);
	s->cell = (struct cell){{le64_load(record + 4), le64_load(record + 12)}, le32_load(record + 20)};
	if (vector_has(&f->knowledge, s->cell.dot) || dot_eq(f->cell[s->key].dot, s->cell.dot)) {
		free(s);
		return 0;
	}
	s->wanted = s->cell.length > 0;
	s->complete = !s->wanted;
	s->want.dot = s->cell.dot;
	le32_store(s->want.node.b, s->key);
	s->want.length = s->cell.length;
	for (uint32_t i = 0; i < 64; i++)
		if (s->wanted && dot_eq(f->incoming[i].dot, s->cell.dot) && f->incoming[i].have < s->cell.length) {
			s->have = f->incoming[i].have;
			s->want.resume_page = s->have / FAKE_PAGE;
			f->resumed++;
		}
	b->s[b->n++] = s;
	return 0;
}

static inline int fake_next_want(struct batch *b, const struct content_want **ret)
{
	for (; b->next < b->n; b->next++)
		if (b->s[b->next]->wanted) {
			*ret = &b->s[b->next++]->want;
			return 1;
		}
	return 0;
}

static inline struct staged *staged_of(struct batch *b, const struct content_want *w)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (&b->s[i]->want == w)
			return b->s[i];
	REQUIRE(!"a want of this batch");
	return NULL;
}

static inline int fake_content(struct batch *b, const struct content_want *w, const uint8_t *chunk, size_t len, bool last)
{
	struct staged *s = staged_of(b, w);
	uint32_t at;

	CHECK(!s->complete);
	if (len < 5)
		return -EPROTO;
	if (chunk[0] == FORM_DELTA) {
		if (roll(&b->f->seed) % 100 < b->f->no_data_in_100)
			return -ENODATA;
		b->f->deltas++;
	}
	at = le32_load(chunk + 1);
	if (at > s->have)
		return -EPROTO;
	for (uint32_t i = 0; i < len - 5; i++)
		if (chunk[5 + i] != content_byte(s->cell.dot, at + i))
			return -EBADMSG;
	s->have = at + (uint32_t)(len - 5);
	s->complete = s->have == s->cell.length;
	s->want.resume_page = s->have / FAKE_PAGE;
	CHECK(!s->complete || last);
	return s->complete;
}

static inline int fake_gone(struct batch *b, const struct content_want *w)
{
	struct staged *s = staged_of(b, w);

	s->gone = s->complete = true;
	b->f->gone++;
	return 0;
}

static inline bool fake_complete(const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (!b->s[i]->complete)
			return false;
	return true;
}

static inline int fake_apply(struct batch *b, const struct vector *end)
{
	struct fake *f = b->f;

	CHECK(fake_complete(b));
	if (f->fail_apply)
		return f->fail_apply;
	for (uint32_t i = 0; i < b->n; i++) {
		struct staged *s = b->s[i];
		struct dot mine = f->cell[s->key].dot, new = s->cell.dot;

		if (!s->gone && (new.counter > mine.counter || (new.counter == mine.counter && new.replica > mine.replica)))
			f->cell[s->key] = s->cell;
	}
	empty_batch(b);
	f->applied++;
	return end ? vector_join(&f->knowledge, end) : 0;
}

static inline int fake_set_peer_knowledge(struct volume *v, uint64_t replica, const struct vector *k)
{
	struct fake *f = fake_of(v);

	REQUIRE(replica < 4);
	CHECK(vector_covers(k, &f->peer_knowledge[replica]));
	vector_fini(&f->peer_knowledge[replica]);
	return vector_copy(&f->peer_knowledge[replica], k);
}

static inline struct session_volume fake_table(struct fake *f)
{
	return (struct session_volume){(struct volume *)f, fake_knowledge, fake_start_tag, fake_live_root, fake_list, fake_backlog, fake_source_open,
		fake_source_next, fake_source_saved, fake_source_close, fake_batch_new, fake_batch_free, fake_batch_part, fake_next_want,
		fake_content, fake_gone, fake_complete, fake_apply, fake_set_peer_knowledge, NULL};
}

static inline struct fake *fake_new(uint64_t replica)
{
	struct fake *f = calloc(1, sizeof *f);

	REQUIRE(f);
	f->replica = replica;
	f->seed = (uint32_t)replica;
	f->cells = CELLS;
	return f;
}

static inline void fake_free(struct fake *f)
{
	vector_fini(&f->knowledge);
	for (int i = 0; i < 4; i++)
		vector_fini(&f->peer_knowledge[i]);
	free(f);
}
#endif
