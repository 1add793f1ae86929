/* The sender's half of a session: batches from the peer's knowledge to a cut, and the contents it asks for. */
#include "session_state.h"

#include <errno.h>
#include <stdlib.h>

#include "log.h"

#define LIST_ROWS 512u
#define LIST_BYTES (256u << 10)
#define STEPS_AHEAD 2u /* steps of a catching-up batch that may be without their ACK */

static uint64_t now_ns(const struct session *s) { return env_mono_ns(s->c.env); }

static void serve_free(struct session *s, struct serve *v)
{
	if (v->source) {
		uint64_t saved = s->c.volume.source_saved(v->source);
		s->serving.saved_bytes += saved;
		s->serving.batch_bytes += saved;
		s->c.volume.source_close(v->source);
	}
	free(v->get);
	free(v);
}

void send_fini(struct session *s)
{
	for (uint32_t i = 0; i < s->serving.n; i++)
		serve_free(s, s->serving.queue[i]);
	s->serving.n = 0;
	vector_fini(&s->tx.have);
	vector_fini(&s->tx.upto);
}

void send_tick(struct session *s, uint64_t now)
{
	if (s->tx.retry_ns && now >= s->tx.retry_ns) {
		s->tx.retry_ns = 0;
		s->tx.poked = true;
	}
	if (s->left_replaced && !s->tx.active && now - s->replaced_ns > REPLACED_NS) {
		s->left_replaced = false;
		if (s->c.io.changed)
			s->c.io.changed(s->c.io.ctx);
	}
}

/* ---- batches ---- */

static void finish_batch(struct session *s)
{
	struct sending *t = &s->tx;

	if (s->left_replaced != t->replaced && s->c.io.changed)
		s->c.io.changed(s->c.io.ctx);
	s->left_replaced = t->replaced;
	if (vector_covers(&s->peer_has, &t->upto)) {
		t->lag_ns = now_ns(s) - t->started_ns;
		session_poke(s); /* its knowledge may hold less than ours by now */
	} else {
		/* the peer could not take all of it: again with what is committed next, but not in a loop */
		t->retry_ns = now_ns(s) + RETRY_NS;
	}
	vector_fini(&t->have);
	vector_fini(&t->upto);
	t->active = t->catching_up = false;
}

static int start_batch(struct session *s)
{
	struct sending *t = &s->tx;
	struct session_volume *v = &s->c.volume;
	struct backlog b;
	int err;

	t->poked = false;
	err = v->knowledge(v->v, &t->upto);
	if (!err && vector_covers(&s->peer_has, &t->upto)) {
		vector_fini(&t->upto);
		return 0;
	}
	if (!err)
		err = vector_copy(&t->have, &s->peer_has);
	if (!err)
		err = v->backlog(v->v, &t->have, &b);
	if (err)
		return session_fail(s, err, BYE_ERROR, "cannot read the journal: %s", strerror(-err));
	t->active = true;
	t->listed = t->step_open = t->replaced = false;
	t->cursor = (struct part_cursor){0};
	t->catching_up = b.parts > LIVE_ROWS || b.bytes > LIVE_BYTES;
	t->started_ns = t->poked_ns;
	s->serving.batch_files = s->serving.batch_bytes = 0;
	return 1;
}

static int send_end(struct session *s, bool cut)
{
	struct sending *t = &s->tx;
	struct msg_mark m = {.flags = cut ? END_CUT : 0};
	struct buf body = {0};
	int err;

	if (cut && (err = starts_before_end(s, &t->upto)))
		return err;
	if (cut)
		m.knowledge = t->upto;
	msg_mark_encode(&m, &body);
	err = session_send(s, TYPE_END, t->number, &body);
	buf_fini(&body);
	t->number++;
	t->step_open = false;
	t->listed = cut;
	return err;
}

static int open_step(struct session *s)
{
	struct sending *t = &s->tx;
	struct msg_batch m = {.flags = t->catching_up ? BATCH_CATCHING_UP : 0};
	struct buf body = {0};
	int err;

	msg_batch_encode(&m, &body);
	err = session_send(s, TYPE_BATCH, t->number, &body);
	buf_fini(&body);
	t->step_open = true;
	t->step_rows = 0;
	t->step_bytes = 0;
	return err;
}

/* Sends some more of the batch: 1 if it did, 0 where it waits for an ACK. */
static int send_parts(struct session *s)
{
	struct sending *t = &s->tx;
	struct session_volume *v = &s->c.volume;
	struct buf body = {0};
	uint32_t rows = 0;
	uint64_t start = stats_now_ns();
	int err;

	if (t->listed)
		return 0;
	if (!t->step_open) {
		if (t->number - t->acked >= STEPS_AHEAD)
			return 0;
		if ((err = open_step(s)))
			return err;
	}
	err = v->list_parts(v->v, &t->have, &t->upto, &t->cursor, LIST_ROWS, LIST_BYTES, &body, &rows);
	if (err || body.err) {
		buf_fini(&body);
		return session_fail(s, err ? err : -ENOMEM, BYE_ERROR, "cannot read the journal");
	}
	if (rows)
		err = session_send(s, TYPE_PART, t->number, &body);
	t->step_rows += rows;
	t->step_bytes += body.len;
	buf_fini(&body);
	stats_add(v->stats, COUNT_PARTS_SENT, rows);
	stats_since(v->stats, STAGE_SEND, start);
	if (!err && t->cursor.done)
		err = send_end(s, true);
	else if (!err && (t->step_rows >= STEP_ROWS || t->step_bytes >= STEP_BYTES))
		err = send_end(s, false);
	return err ? err : 1;
}

int send_ack(struct session *s, uint32_t number, const uint8_t *body, size_t len)
{
	struct sending *t = &s->tx;
	struct msg_mark m;
	int err;

	if (!t->active || number != t->acked || t->acked == t->number)
		return session_bad(s, -EPROTO, TYPE_ACK);
	if ((err = msg_mark_decode(body, len, &m)))
		return session_bad(s, err, TYPE_ACK);
	t->acked++;
	err = session_learn(s, &m.knowledge);
	vector_fini(&m.knowledge);
	if (err)
		return err;
	if (m.flags & ACK_LEFT_OUT)
		log_warn("peer %016llx could not get every content that it lacks; it is tried again", (unsigned long long)s->c.peer);
	if (t->listed && t->acked == t->number)
		finish_batch(s);
	return 0;
}

/* ---- contents ---- */

int send_get(struct session *s, uint32_t request, const uint8_t *body, size_t len)
{
	struct serving *g = &s->serving;
	struct msg_get m;
	struct serve *v;
	int err = g->n == SERVE_MAX ? -EPROTO : msg_get_decode(body, len, &m);

	for (uint32_t i = 0; !err && i < g->n; i++)
		if (g->queue[i]->request == request)
			err = -EPROTO;
	if (err)
		return session_bad(s, err, TYPE_GET);
	v = calloc(1, sizeof *v);
	if (!v || !(v->get = malloc(len))) {
		free(v);
		return session_bad(s, -ENOMEM, TYPE_GET);
	}
	memcpy(v->get, body, len);
	v->get_len = len;
	v->request = request;
	g->queue[g->n++] = v;
	return 0;
}

static void drop_serve(struct session *s, uint32_t at)
{
	struct serving *g = &s->serving;

	serve_free(s, g->queue[at]);
	memmove(g->queue + at, g->queue + at + 1, (g->n - at - 1) * sizeof *g->queue);
	g->n--;
}

static int send_gone(struct session *s, uint32_t at, int why)
{
	struct serve *v = s->serving.queue[at];
	struct buf body = {0};
	struct msg_get m;
	int err;

	if (why != -ESTALE && !msg_get_decode(v->get, v->get_len, &m))
		log_error("content %016llx:%llu cannot be read for peer %016llx: %s", (unsigned long long)m.dot.replica,
			(unsigned long long)m.dot.counter, (unsigned long long)s->c.peer,
			why == -EBADMSG ? "it does not authenticate" : strerror(-why));
	if (why == -ESTALE && s->tx.active) {
		s->tx.replaced = s->left_replaced = true;
		s->replaced_ns = now_ns(s);
		if (s->c.io.changed)
			s->c.io.changed(s->c.io.ctx);
	}
	buf_put_u8(&body, why == -ESTALE ? GONE_REPLACED : GONE_DAMAGED);
	err = session_send(s, TYPE_GONE, v->request, &body);
	buf_fini(&body);
	drop_serve(s, at);
	return err;
}

/* One chunk of the source whose turn it is. */
static int send_chunk(struct session *s)
{
	struct serving *g = &s->serving;
	struct session_volume *v = &s->c.volume;
	uint32_t active = g->n < SERVE_ACTIVE ? g->n : SERVE_ACTIVE;
	uint32_t at = g->turn % active;
	struct serve *q = g->queue[at];
	struct buf body = {0};
	uint64_t start = stats_now_ns();
	int more, err;

	g->turn = at + 1;
	if (!q->source) {
		struct msg_get m;

		err = msg_get_decode(q->get, q->get_len, &m);
		if (!err)
			err = v->source_open(v->v, &m.node, m.dot, m.held, m.n_held, &s->peer_has, m.forms, m.resume_page, &q->source);
		if (err) {
			q->source = NULL;
			return send_gone(s, at, err);
		}
	}
	buf_put_u8(&body, 0);
	more = v->source_next(q->source, CHUNK_BYTES, &body);
	if (more < 0 || body.err || body.len > DATA_BODY_MAX) {
		buf_fini(&body);
		return send_gone(s, at, more < 0 ? more : -ENOMEM);
	}
	body.p[0] = more == 0;
	err = session_send(s, TYPE_DATA, q->request, &body);
	g->batch_bytes += body.len;
	buf_fini(&body);
	stats_since(v->stats, STAGE_SEND, start);
	if (!more) {
		g->batch_files++;
		drop_serve(s, at);
		g->turn = at;
	}
	return err;
}

int send_work(struct session *s)
{
	struct sending *t = &s->tx;
	int did = 0, err;

	if (!session_has_room(s))
		return 0; /* woken when the channel has written some */
	if (!t->active && t->poked) {
		if ((err = start_batch(s)) < 0)
			return err;
		did |= err;
	}
	if (t->active) {
		if ((err = send_parts(s)) < 0)
			return err;
		did |= err;
	}
	if (s->serving.n) {
		if ((err = send_chunk(s)))
			return err;
		did = 1;
	}
	return did;
}
