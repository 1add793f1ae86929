#include "session_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

static uint64_t now_ns(const struct session *s) { return env_mono_ns(s->c.env); }

int session_new(const struct session_config *c, struct session **ret)
{
	struct session *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->c = *c;
	s->left_replaced = c->left_replaced;
	s->replaced_ns = now_ns(s);
	s->last_sent_ns = s->last_heard_ns = now_ns(s);
	s->tx.number = s->tx.acked = 1;
	s->rx.next_request = 1;
	*ret = s;
	return 0;
}

void session_free(struct session *s)
{
	if (!s)
		return;
	send_fini(s);
	receive_fini(s);
	session_starts_fini(s);
	vector_fini(&s->peer_has);
	free(s);
}

bool session_has_room(const struct session *s) { return s->c.io.queued(s->c.io.ctx) < OUTPUT_MAX; }

int session_send(struct session *s, uint8_t type, uint32_t request, const struct buf *body)
{
	int err;

	if (body && body->err)
		return session_fail(s, body->err, BYE_ERROR, "out of memory");
	err = s->c.io.send(s->c.io.ctx, type, request, body ? body->p : NULL, body ? body->len : 0);
	if (err) {
		s->over = true;
		if (!s->error[0])
			snprintf(s->error, sizeof s->error, "cannot send: %s", strerror(-err));
		return err;
	}
	s->last_sent_ns = now_ns(s);
	return 0;
}

void session_bye(struct session *s, enum bye_code code, const char *text)
{
	struct msg_bye m = {.code = (uint16_t)code};
	struct buf body = {0};

	if (s->over)
		return;
	s->over = true;
	s->bye_code = m.code;
	snprintf(m.text, sizeof m.text, "%s", text);
	if (!s->error[0])
		snprintf(s->error, sizeof s->error, "%s", text);
	msg_bye_encode(&m, &body);
	if (!body.err)
		s->c.io.send(s->c.io.ctx, TYPE_BYE, 0, body.p, body.len);
	buf_fini(&body);
}

int session_fail(struct session *s, int err, enum bye_code code, const char *fmt, ...)
{
	char text[BYE_TEXT_MAX + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	session_bye(s, code, text);
	return err;
}

int session_bad(struct session *s, int err, uint8_t type)
{
	if (err == -EPROTO)
		return session_fail(s, err, BYE_PROTOCOL, "unexpected or malformed %s", message_name(type));
	return session_fail(s, err, BYE_ERROR, "cannot take %s: %s", message_name(type), strerror(-err));
}

int session_learn(struct session *s, const struct vector *k)
{
	int err;

	if (vector_covers(&s->peer_has, k))
		return 0;
	err = vector_join(&s->peer_has, k);
	if (!err)
		err = s->c.volume.set_peer_knowledge(s->c.volume.v, s->c.peer, &s->peer_has);
	if (err)
		return session_fail(s, err, BYE_ERROR, "cannot note what the peer has: %s", strerror(-err));
	if (s->c.io.changed)
		s->c.io.changed(s->c.io.ctx);
	return 0;
}

int session_start(struct session *s)
{
	struct session_volume *v = &s->c.volume;
	struct msg_hello m = {.protocol = PROTOCOL_VERSION, .features = FEATURE_HEAL | FEATURE_RESUME_RANGES, .replica = s->c.replica, .tag = v->start_tag(v->v)};
	struct buf body = {0};
	int err = v->knowledge(v->v, &m.knowledge);

	if (!err)
		err = v->live_root(v->v, &m.live);
	if (!err)
		err = starts_hello(s, &m.knowledge, &m);
	if (err) {
		msg_hello_fini(&m);
		return session_fail(s, err, BYE_ERROR, "cannot read what this replica has: %s", strerror(-err));
	}
	msg_hello_encode(&m, &body);
	msg_hello_fini(&m);
	err = session_send(s, TYPE_HELLO, 0, &body);
	buf_fini(&body);
	return err;
}

static int take_hello(struct session *s, const uint8_t *body, size_t len)
{
	struct msg_hello m;
	int err;

	/* The version comes first and is looked at first: the rest may differ. */
	if (len >= 4 && le32_load(body) != PROTOCOL_VERSION)
		return session_fail(s, -EPROTO, BYE_VERSION, "protocol version %u here, %u there", PROTOCOL_VERSION, le32_load(body));
	if ((err = msg_hello_decode(body, len, &m)))
		return session_bad(s, err, TYPE_HELLO);
	if (m.replica == s->c.replica)
		err = session_fail(s, -EPROTO, BYE_DUPLICATE, "the peer is this replica itself, or a copy of its store");
	else if (m.replica != s->c.peer)
		err = session_fail(s, -EPROTO, BYE_PROTOCOL, "the peer's key and replica id do not belong together");
	else if (!(err = starts_take_hello(s, &m)) && s->starts.doubtful)
		s->hello_seen = true;
	if (!err && !s->starts.doubtful) {
		s->hello_seen = true;
		s->rx.look = true;
		s->peer_tag = m.tag;
		s->peer_features = m.features;
		s->tx.poked = true;
		s->tx.poked_ns = now_ns(s);
		err = session_learn(s, &m.knowledge);
		if (!err && s->c.io.changed)
			s->c.io.changed(s->c.io.ctx);
	}
	msg_hello_fini(&m);
	return err;
}

static int take_ping(struct session *s, const uint8_t *body, size_t len)
{
	struct buf out = {0};
	bool answer;
	int err = msg_ping_decode(body, len, &answer);

	if (err)
		return session_bad(s, err, TYPE_PING);
	/* a peer that asks without reading does not make the queue grow */
	if (answer || !session_has_room(s))
		return 0;
	buf_put_u8(&out, 1);
	err = session_send(s, TYPE_PING, 0, &out);
	buf_fini(&out);
	return err;
}

static int take_bye(struct session *s, const uint8_t *body, size_t len)
{
	struct msg_bye m;

	if (msg_bye_decode(body, len, &m))
		snprintf(m.text, sizeof m.text, "closed"), m.code = BYE_PROTOCOL;
	s->over = true;
	s->bye_code = m.code;
	s->starts.confirmed = s->starts.renew_sent && m.code == BYE_RENEWED;
	snprintf(s->error, sizeof s->error, "%s", m.text);
	return -ECONNRESET;
}

int session_receive(struct session *s, uint8_t type, uint32_t request, const uint8_t *body, size_t len)
{
	if (s->over)
		return -ECONNRESET;
	s->last_heard_ns = now_ns(s);
	if (!message_body_max(type) || len > message_body_max(type))
		return session_fail(s, -EPROTO, BYE_PROTOCOL, "message of type %u and %zu bytes", type, len);
	if (type == TYPE_BYE)
		return take_bye(s, body, len);
	if ((type == TYPE_HELLO) == s->hello_seen)
		return session_bad(s, -EPROTO, type);
	/* what was under way when the contradiction was seen */
	if (s->starts.doubtful && type != TYPE_RENEW)
		return 0;
	switch (type) {
	case TYPE_HELLO:
		return take_hello(s, body, len);
	case TYPE_BATCH:
	case TYPE_PART:
	case TYPE_END:
		return receive_batch_message(s, type, request, body, len);
	case TYPE_ACK:
		return send_ack(s, request, body, len);
	case TYPE_GET:
		return send_get(s, request, body, len);
	case TYPE_DATA:
		return receive_data(s, request, body, len);
	case TYPE_GONE:
		return receive_gone(s, request, body, len);
	case TYPE_STARTS:
		return starts_take(s, body, len);
	case TYPE_RENEW:
		return starts_take_renew(s, body, len);
	case TYPE_NEED:
		return heal_need(s, request, body, len);
	case TYPE_PAGES:
		return heal_pages(s, request, body, len);
	case TYPE_PING:
		return take_ping(s, body, len);
	default:
		return session_bad(s, -EPROTO, type);
	}
}

int session_work(struct session *s)
{
	int more_in, more_out;

	if (s->over)
		return -ECONNRESET;
	if (!s->hello_seen || s->starts.doubtful)
		return 0;
	more_in = receive_work(s);
	if (more_in < 0)
		return more_in;
	more_out = send_work(s);
	if (more_out < 0)
		return more_out;
	return more_in || more_out;
}

void session_poke(struct session *s)
{
	if (!s->tx.poked)
		s->tx.poked_ns = now_ns(s);
	s->tx.poked = true;
}

int session_tick(struct session *s)
{
	uint64_t now = now_ns(s);
	struct buf out = {0};
	int err;

	if (s->over)
		return -ECONNRESET;
	if (now - s->last_heard_ns > SILENCE_NS) {
		s->over = true;
		snprintf(s->error, sizeof s->error, "nothing heard for %llu seconds", SILENCE_NS / 1000000000ull);
		return -ETIMEDOUT;
	}
	if ((err = starts_tick(s, now)))
		return err;
	send_tick(s, now);
	receive_tick(s, now);
	if (now - s->last_sent_ns < PING_NS || !session_has_room(s))
		return 0;
	buf_put_u8(&out, 0);
	err = session_send(s, TYPE_PING, 0, &out);
	buf_fini(&out);
	return err;
}

bool session_is_up(const struct session *s) { return s->hello_seen && !s->over; }

const struct vector *session_peer_has(const struct session *s) { return &s->peer_has; }

uint64_t session_peer_tag(const struct session *s) { return s->peer_tag; }

bool session_left_replaced(const struct session *s) { return s->left_replaced; }

const char *session_error(const struct session *s) { return s->error; }

uint16_t session_bye_code(const struct session *s) { return s->bye_code; }

static enum peer_state state_of(const struct session *s, const struct vector *mine)
{
	if (!s->hello_seen || s->starts.doubtful)
		return PEER_CONNECTING;
	if ((s->tx.active && s->tx.catching_up) || (s->rx.open && s->rx.catching_up))
		return PEER_CATCHING_UP;
	if (s->tx.active || !vector_covers(&s->peer_has, mine))
		return PEER_SENDING;
	if (s->rx.open || !vector_covers(mine, &s->peer_has))
		return PEER_RECEIVING;
	return PEER_IN_SYNC;
}

bool session_in_sync(struct session *s)
{
	struct vector mine = {0};
	bool is = !s->c.volume.knowledge(s->c.volume.v, &mine) && state_of(s, &mine) == PEER_IN_SYNC;

	vector_fini(&mine);
	return is;
}

void session_status(struct session *s, struct peer_status *ret)
{
	struct session_volume *v = &s->c.volume;
	struct vector mine = {0};
	struct backlog b = {0};

	if (v->knowledge(v->v, &mine))
		return;
	ret->state = state_of(s, &mine);
	if (s->hello_seen && !vector_covers(&s->peer_has, &mine) && v->backlog(v->v, &s->peer_has, &b))
		log_debug("backlog of peer %016llx unknown", (unsigned long long)s->c.peer);
	/* A batch is acknowledged as a whole: what of it was sent counts, so that one of a day shows how far it is. The parts stay, until the peer has it durably. */
	if (s->tx.active) {
		b.files -= s->serving.batch_files < b.files ? s->serving.batch_files : b.files;
		b.bytes -= s->serving.batch_bytes < b.bytes ? s->serving.batch_bytes : b.bytes;
	}
	ret->backlog_parts = b.parts;
	ret->backlog_files = b.files;
	ret->backlog_bytes = b.bytes;
	ret->oldest_ns = b.oldest_ns;
	ret->lag_ns = s->tx.lag_ns;
	ret->saved_bytes = s->serving.saved_bytes;
	vector_fini(&mine);
}
