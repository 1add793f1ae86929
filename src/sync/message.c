#include "message.h"

#include <errno.h>
#include <stdlib.h>

size_t message_body_max(uint8_t type)
{
	switch (type) {
	case TYPE_HELLO:
		return HELLO_BODY_MAX;
	case TYPE_PART:
		return PART_BODY_MAX;
	case TYPE_DATA:
		return DATA_BODY_MAX;
	case TYPE_END:
	case TYPE_ACK:
		return 1 + 2 + VECTOR_MAX * 16;
	case TYPE_GET:
		return 16 + 16 + 1 + 8 + 2 + HELD_MAX * 64;
	case TYPE_BATCH:
	case TYPE_GONE:
	case TYPE_PING:
		return 32;
	case TYPE_BYE:
		return 2 + 2 + BYE_TEXT_MAX;
	case TYPE_JOIN:
	case TYPE_WELCOME:
	case TYPE_RENEW:
		return 512;
	case TYPE_NEED:
		return 128;
	case TYPE_PAGES:
		return 1 + HEAL_PAGES_MAX * (4096 + 32);
	case TYPE_STARTS:
		return 2 + STARTS_MAX * 24;
	default:
		return 0;
	}
}

const char *message_name(uint8_t type)
{
	static const char *const name[] = {"?", "HELLO", "BATCH", "PART", "END", "ACK", "GET", "DATA", "GONE", "?", "?",
		"PING", "BYE", "JOIN", "WELCOME"};

	if (type == TYPE_STARTS || type == TYPE_RENEW)
		return type == TYPE_STARTS ? "STARTS" : "RENEW";
	if (type == TYPE_NEED || type == TYPE_PAGES)
		return type == TYPE_NEED ? "NEED" : "PAGES";
	return type < sizeof name / sizeof *name ? name[type] : "?";
}

static void put_dot(struct buf *out, struct dot d)
{
	buf_put_u64(out, d.replica);
	buf_put_u64(out, d.counter);
}

static void put_text(struct buf *out, const char *s) { buf_put_str(out, s, strlen(s)); }

static void copy_bytes(struct reader *r, void *ret, size_t len)
{
	const uint8_t *p = read_bytes(r, len);

	if (p)
		memcpy(ret, p, len);
}

static struct dot take_dot(struct reader *r)
{
	struct dot d = {.replica = read_u64(r)};

	d.counter = read_u64(r);
	return d;
}

/* Copies a string of at most size - 1 bytes, NUL-terminated; a longer one, or one with a NUL in it, makes the reader bad. */
static void take_text(struct reader *r, char *ret, size_t size)
{
	size_t len;
	const uint8_t *p = read_str(r, &len);

	if (!p || len >= size || memchr(p, 0, len)) {
		r->bad = true;
		return;
	}
	memcpy(ret, p, len);
	ret[len] = 0;
}

static int take_vector(struct reader *r, struct vector *ret)
{
	int err;

	if (r->bad)
		return -EPROTO;
	err = vector_read(r, ret);
	return err == -EUCLEAN ? -EPROTO : err;
}

static int done(const struct reader *r) { return reader_done(r) ? 0 : -EPROTO; }

/* ---- HELLO ---- */

void msg_hello_fini(struct msg_hello *m)
{
	vector_fini(&m->knowledge);
	free(m->start);
	for (uint16_t i = 0; i < m->n_member; i++)
		vector_fini(&m->member[i].knowledge);
	free(m->member);
	*m = (struct msg_hello){0};
}

void msg_starts_encode(const struct start_tag *s, uint32_t n, struct buf *out)
{
	buf_put_u16(out, (uint16_t)n);
	for (uint32_t i = 0; i < n; i++) {
		buf_put_u64(out, s[i].replica);
		buf_put_u64(out, s[i].first_counter);
		buf_put_u64(out, s[i].tag);
	}
}

void msg_hello_encode(const struct msg_hello *m, struct buf *out)
{
	buf_put_u32(out, m->protocol);
	buf_put_u64(out, m->features);
	buf_put_u64(out, m->replica);
	buf_put_u64(out, m->tag);
	vector_put(out, &m->knowledge);
	msg_starts_encode(m->start, m->n_start, out);
	buf_put_u16(out, m->n_member);
	for (uint16_t i = 0; i < m->n_member; i++) {
		buf_put_u64(out, m->member[i].replica);
		vector_put(out, &m->member[i].knowledge);
	}
	buf_put(out, m->live.b, ROOT_LEN);
}

static int read_starts(struct reader *r, struct start_tag **ret, uint16_t *ret_n)
{
	uint16_t n = read_u16(r);
	struct start_tag *s = NULL;

	if (r->bad || n > STARTS_MAX || r->left < (size_t)n * 24)
		return -EPROTO;
	if (n && !(s = reallocarray(NULL, n, sizeof *s)))
		return -ENOMEM;
	for (uint16_t i = 0; i < n; i++) {
		s[i].replica = read_u64(r);
		s[i].first_counter = read_u64(r);
		s[i].tag = read_u64(r);
	}
	*ret = s;
	*ret_n = n;
	return 0;
}

static int take_starts(struct reader *r, struct msg_hello *m) { return read_starts(r, &m->start, &m->n_start); }

static int take_members(struct reader *r, struct msg_hello *m)
{
	uint16_t n = read_u16(r);
	int err;

	if (r->bad || n > MEMBERS_MAX || r->left < (size_t)n * 10)
		return -EPROTO;
	if (n && !(m->member = calloc(n, sizeof *m->member)))
		return -ENOMEM;
	for (m->n_member = 0; m->n_member < n; m->n_member++) {
		struct member_knowledge *k = &m->member[m->n_member];

		k->replica = read_u64(r);
		if ((err = take_vector(r, &k->knowledge)))
			return err;
	}
	return 0;
}

int msg_hello_decode(const uint8_t *body, size_t len, struct msg_hello *ret)
{
	struct reader r = reader_of(body, len);
	struct msg_hello m = {0};
	int err;

	m.protocol = read_u32(&r);
	m.features = read_u64(&r);
	m.replica = read_u64(&r);
	m.tag = read_u64(&r);
	if (!(err = take_vector(&r, &m.knowledge)) && !(err = take_starts(&r, &m)) && !(err = take_members(&r, &m))) {
		copy_bytes(&r, m.live.b, ROOT_LEN);
		err = m.replica ? done(&r) : -EPROTO;
	}
	if (err) {
		msg_hello_fini(&m);
		return err;
	}
	*ret = m;
	return 0;
}

/* ---- batches ---- */

void msg_batch_encode(const struct msg_batch *m, struct buf *out)
{
	buf_put_u8(out, m->flags);
	buf_put_u32(out, m->count);
}

int msg_batch_decode(const uint8_t *body, size_t len, struct msg_batch *ret)
{
	struct reader r = reader_of(body, len);
	struct msg_batch m;

	m.flags = read_u8(&r);
	m.count = read_u32(&r);
	if (!reader_done(&r) || m.flags > BATCH_CATCHING_UP)
		return -EPROTO;
	*ret = m;
	return 0;
}

int msg_part_next(struct reader *body, const uint8_t **ret_record, size_t *ret_len)
{
	const uint8_t *p;
	uint32_t len;

	if (!body->bad && !body->left)
		return 0;
	len = read_u32(body);
	p = read_bytes(body, len);
	if (!p || !len)
		return -EPROTO;
	*ret_record = p;
	*ret_len = len;
	return 1;
}

void msg_mark_encode(const struct msg_mark *m, struct buf *out)
{
	buf_put_u8(out, m->flags);
	vector_put(out, &m->knowledge);
}

int msg_mark_decode(const uint8_t *body, size_t len, struct msg_mark *ret)
{
	struct reader r = reader_of(body, len);
	struct msg_mark m = {.flags = read_u8(&r)};
	int err;

	if (m.flags > 1)
		return -EPROTO;
	if ((err = take_vector(&r, &m.knowledge)))
		return err;
	if ((err = done(&r))) {
		vector_fini(&m.knowledge);
		return err;
	}
	*ret = m;
	return 0;
}

/* ---- contents ---- */

void msg_get_encode(const struct msg_get *m, struct buf *out)
{
	buf_put(out, m->node.b, ID_LEN);
	put_dot(out, m->dot);
	buf_put_u8(out, m->forms);
	buf_put_u64(out, m->resume_page);
	buf_put_u16(out, m->n_held);
	for (uint16_t i = 0; i < m->n_held; i++) {
		buf_put(out, m->held[i].node.b, ID_LEN);
		put_dot(out, m->held[i].dot);
		buf_put(out, m->held[i].root.b, ROOT_LEN);
	}
}

int msg_get_decode(const uint8_t *body, size_t len, struct msg_get *ret)
{
	struct reader r = reader_of(body, len);

	copy_bytes(&r, ret->node.b, ID_LEN);
	ret->dot = take_dot(&r);
	ret->forms = read_u8(&r);
	ret->resume_page = read_u64(&r);
	ret->n_held = read_u16(&r);
	if (r.bad || ret->n_held > HELD_MAX || !ret->dot.replica || !ret->dot.counter || !(ret->forms & FORM_WHOLE) ||
		ret->forms > (FORM_WHOLE | FORM_RANGES | FORM_DELTA | FORM_RESUME_RANGES))
		return -EPROTO;
	for (uint16_t i = 0; i < ret->n_held; i++) {
		struct held_content *h = &ret->held[i];

		copy_bytes(&r, h->node.b, ID_LEN);
		h->dot = take_dot(&r);
		copy_bytes(&r, h->root.b, ROOT_LEN);
	}
	return done(&r);
}

void msg_data_encode(bool last, const void *chunk, size_t len, struct buf *out)
{
	buf_put_u8(out, last);
	buf_put(out, chunk, len);
}

int msg_data_decode(const uint8_t *body, size_t len, bool *ret_last, const uint8_t **ret_chunk, size_t *ret_len)
{
	if (len < 1 || body[0] > 1)
		return -EPROTO;
	*ret_last = body[0];
	*ret_chunk = body + 1;
	*ret_len = len - 1;
	return 0;
}

int msg_gone_decode(const uint8_t *body, size_t len, uint8_t *ret_reason)
{
	if (len != 1 || body[0] < GONE_REPLACED || body[0] > GONE_DAMAGED)
		return -EPROTO;
	*ret_reason = body[0];
	return 0;
}

int msg_ping_decode(const uint8_t *body, size_t len, bool *ret_answer)
{
	if (len != 1 || body[0] > 1)
		return -EPROTO;
	*ret_answer = body[0];
	return 0;
}

/* ---- the end, and joining ---- */

void msg_bye_encode(const struct msg_bye *m, struct buf *out)
{
	buf_put_u16(out, m->code);
	put_text(out, m->text);
}

int msg_bye_decode(const uint8_t *body, size_t len, struct msg_bye *ret)
{
	struct reader r = reader_of(body, len);
	size_t text_len;
	const uint8_t *text;

	ret->code = read_u16(&r);
	text = read_str(&r, &text_len);
	if (!reader_done(&r) || text_len > BYE_TEXT_MAX)
		return -EPROTO;
	for (size_t i = 0; i < text_len; i++)
		ret->text[i] = text[i] >= ' ' && text[i] < 127 ? (char)text[i] : '?';
	ret->text[text_len] = 0;
	return 0;
}

void msg_join_encode(const struct msg_join *m, struct buf *out)
{
	buf_put_u32(out, m->protocol);
	buf_put_u64(out, m->replica);
	buf_put_u32(out, m->ciphers);
	put_text(out, m->name);
	put_text(out, m->address);
}

int msg_join_decode(const uint8_t *body, size_t len, struct msg_join *ret)
{
	struct reader r = reader_of(body, len);

	ret->protocol = read_u32(&r);
	ret->replica = read_u64(&r);
	ret->ciphers = read_u32(&r);
	take_text(&r, ret->name, sizeof ret->name);
	take_text(&r, ret->address, sizeof ret->address);
	if (!reader_done(&r) || !ret->replica || ret->replica > INT64_MAX || !replica_name_valid(ret->name))
		return -EPROTO;
	return 0;
}

void msg_welcome_encode(const struct msg_welcome *m, struct buf *out)
{
	buf_put_u32(out, m->cipher);
	buf_put(out, m->master, KEY_LEN);
	buf_put_u64(out, m->replica);
	put_text(out, m->name);
	buf_put(out, m->static_public, sizeof m->static_public);
	put_text(out, m->address);
}

int msg_welcome_decode(const uint8_t *body, size_t len, struct msg_welcome *ret)
{
	struct reader r = reader_of(body, len);

	ret->cipher = read_u32(&r);
	copy_bytes(&r, ret->master, KEY_LEN);
	ret->replica = read_u64(&r);
	take_text(&r, ret->name, sizeof ret->name);
	copy_bytes(&r, ret->static_public, sizeof ret->static_public);
	take_text(&r, ret->address, sizeof ret->address);
	if (!reader_done(&r) || !ret->replica || !replica_name_valid(ret->name))
		return -EPROTO;
	return 0;
}

/* ---- STARTS, RENEW ---- */

int msg_starts_decode(const uint8_t *body, size_t len, struct start_tag **ret, uint32_t *ret_n)
{
	struct reader r = reader_of(body, len);
	struct start_tag *s = NULL;
	uint16_t n = 0;
	int err = read_starts(&r, &s, &n);

	if (!err && (err = done(&r)))
		free(s);
	if (err)
		return err;
	*ret = s;
	*ret_n = n;
	return 0;
}

void msg_renew_encode(const struct identity *m, struct buf *out)
{
	buf_put_u64(out, m->replica);
	buf_put_str(out, m->name, strlen(m->name));
	buf_put(out, m->static_public, sizeof m->static_public);
}

int msg_renew_decode(const uint8_t *body, size_t len, struct identity *ret)
{
	struct reader r = reader_of(body, len);
	struct identity m = {.replica = read_u64(&r)};
	const uint8_t *key;

	take_text(&r, m.name, sizeof m.name);
	key = read_bytes(&r, sizeof m.static_public);
	if (done(&r) || !m.replica || m.replica > INT64_MAX || !replica_name_valid(m.name))
		return -EPROTO;
	memcpy(m.static_public, key, sizeof m.static_public);
	*ret = m;
	return 0;
}
