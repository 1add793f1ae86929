/* The receiver's half of a session: takes batches, asks for contents, applies, acknowledges. */
#include "session_state.h"

#include <errno.h>
#include <stdlib.h>

#include "log.h"

void receive_fini(struct session *s)
{
	struct receiving *r = &s->rx;

	if (r->batch)
		s->c.volume.batch_free(r->batch);
	r->batch = NULL;
	free(r->waiting);
	r->waiting = NULL;
	vector_fini(&r->end.knowledge);
	buf_fini(&r->ahead);
}

/* ---- wants ---- */

static int add_waiting(struct session *s, const struct content_want *w, uint8_t forms)
{
	struct receiving *r = &s->rx;

	if (r->n_waiting == r->cap_waiting) {
		uint32_t cap = r->cap_waiting ? r->cap_waiting * 2 : 64;
		struct waiting *p = reallocarray(r->waiting, cap, sizeof *p);

		if (!p)
			return session_bad(s, -ENOMEM, TYPE_PART);
		r->waiting = p;
		r->cap_waiting = cap;
	}
	r->waiting[r->n_waiting++] = (struct waiting){w, forms};
	return 0;
}

static int collect_wants(struct session *s)
{
	const struct content_want *w;
	int more;

	while ((more = s->c.volume.batch_next_want(s->rx.batch, &w)) > 0) {
		int err = add_waiting(s, w, FORM_WHOLE | FORM_RANGES | FORM_DELTA);
		if (err)
			return err;
	}
	return more < 0 ? session_bad(s, more, TYPE_PART) : 0;
}

static int ask(struct session *s, const struct waiting *w)
{
	struct receiving *r = &s->rx;
	const struct content_want *c = w->want;
	struct msg_get *m = calloc(1, sizeof *m);
	struct asked *a = &r->asked[r->n_asked];
	struct buf body = {0};
	int err;

	if (!m)
		return session_bad(s, -ENOMEM, TYPE_PART);
	m->node = c->node;
	m->dot = c->dot;
	m->forms = w->forms;
	if (c->resume_ranges && s->peer_features & FEATURE_RESUME_RANGES)
		m->forms |= FORM_RESUME_RANGES;
	m->resume_page = c->resume_ranges && !(m->forms & FORM_RESUME_RANGES) ? 0 : c->resume_page;
	m->n_held = (uint16_t)(c->n_held < HELD_MAX ? c->n_held : HELD_MAX);
	for (uint16_t i = 0; i < m->n_held; i++)
		m->held[i] = c->held[i];
	msg_get_encode(m, &body);
	free(m);
	*a = (struct asked){.want = c, .request = r->next_request++, .forms = w->forms, .big = c->length > ASKED_BIG_BYTES};
	r->n_asked++;
	r->n_asked_big += a->big;
	err = session_send(s, TYPE_GET, a->request, &body);
	buf_fini(&body);
	return err;
}

/* Asks for what waits, in order; big contents that find no place now are passed over by small ones. */
static int ask_waiting(struct session *s)
{
	struct receiving *r = &s->rx;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->n_waiting; i++) {
		struct waiting w = r->waiting[i];
		bool big = w.want->length > ASKED_BIG_BYTES;
		int err;

		if (r->n_asked == ASKED_MAX || !session_has_room(s)) {
			memmove(r->waiting + kept, r->waiting + i, (r->n_waiting - i) * sizeof *r->waiting);
			kept += r->n_waiting - i;
			break;
		}
		if (big && r->n_asked_big >= ASKED_BIG_MAX) {
			r->waiting[kept++] = w;
			continue;
		}
		if ((err = ask(s, &w)))
			return err;
	}
	r->n_waiting = kept;
	return 0;
}

static struct asked *find_asked(struct session *s, uint32_t request)
{
	for (uint32_t i = 0; i < s->rx.n_asked; i++)
		if (s->rx.asked[i].request == request)
			return &s->rx.asked[i];
	return NULL;
}

static void drop_asked(struct session *s, struct asked *a)
{
	s->rx.n_asked_big -= a->big;
	*a = s->rx.asked[--s->rx.n_asked];
}

/* Even as a whole it is not what its record says: damaged at the sender, which does not know it. The rest of the batch is none the worse for it. */
static int leave_out(struct session *s, struct asked *a, bool last)
{
	const struct content_want *w = a->want;

	log_error("content %016llx:%llu as %016llx sends it does not agree with its root: it is left out", (unsigned long long)w->dot.replica,
		(unsigned long long)w->dot.counter, (unsigned long long)s->c.peer);
	s->rx.left_out = true;
	a->want = NULL;
	if (last)
		drop_asked(s, a);
	int err = s->c.volume.batch_content_gone(s->rx.batch, w);
	return err ? session_bad(s, err, TYPE_DATA) : collect_wants(s);
}

/* The answer did not fit: asks again in a form that needs less here. why: -ENODATA or -EBADMSG. */
static int ask_again(struct session *s, struct asked *a, int why, bool last)
{
	const struct content_want *w = a->want;
	uint8_t forms = why == -ENODATA && (a->forms & FORM_DELTA) ? FORM_WHOLE | FORM_RANGES : FORM_WHOLE;

	if (a->forms == FORM_WHOLE)
		return leave_out(s, a, last);
	a->want = NULL;
	if (last)
		drop_asked(s, a);
	return add_waiting(s, w, forms);
}

int receive_data(struct session *s, uint32_t request, const uint8_t *body, size_t len)
{
	struct asked *a = find_asked(s, request);
	const uint8_t *chunk;
	bool last;
	size_t n;
	int err = a ? msg_data_decode(body, len, &last, &chunk, &n) : -EPROTO;

	if (err)
		return session_bad(s, err, TYPE_DATA);
	if (!a->want) {
		if (last)
			drop_asked(s, a);
		return 0;
	}
	err = s->c.volume.batch_content(s->rx.batch, a->want, chunk, n, last);
	if (err == 0 && !last)
		return 0;
	if (err == 0)
		err = -EBADMSG; /* ended before it was whole */
	if (err == -ENODATA || err == -EBADMSG)
		return ask_again(s, a, err, last);
	if (err < 0)
		return session_bad(s, err, TYPE_DATA);
	/* whole and verified; a sender that goes on after it is listened to no more */
	a->want = NULL;
	if (last)
		drop_asked(s, a);
	return collect_wants(s);
}

int receive_gone(struct session *s, uint32_t request, const uint8_t *body, size_t len)
{
	struct asked *a = find_asked(s, request);
	uint8_t reason = 0;
	int err = a ? msg_gone_decode(body, len, &reason) : -EPROTO;

	if (!err && a->want) {
		if (reason == GONE_DAMAGED)
			s->rx.left_out = true;
		err = s->c.volume.batch_content_gone(s->rx.batch, a->want);
	}
	if (err)
		return session_bad(s, err, TYPE_GONE);
	drop_asked(s, a);
	return collect_wants(s);
}

/* ---- batches ---- */

static int take_batch(struct session *s, uint32_t number, const uint8_t *body, size_t len)
{
	struct receiving *r = &s->rx;
	struct msg_batch m;
	int err = r->open ? -EPROTO : msg_batch_decode(body, len, &m);

	if (!err && !r->batch)
		err = s->c.volume.batch_new(s->c.volume.v, s->c.peer, &r->batch);
	if (err)
		return session_bad(s, err, TYPE_BATCH);
	r->open = true;
	r->end_seen = false;
	r->catching_up = m.flags & BATCH_CATCHING_UP;
	r->number = r->ahead_number = number;
	r->rows = 0;
	r->bytes = 0;
	return 0;
}

static int take_parts(struct session *s, uint32_t number, const uint8_t *body, size_t len)
{
	struct receiving *r = &s->rx;
	struct reader in = reader_of(body, len);
	const uint8_t *record;
	size_t n;
	uint32_t rows = 0;
	int more;

	if (!r->open || r->end_seen || number != r->number)
		return session_bad(s, -EPROTO, TYPE_PART);
	r->bytes += len;
	while ((more = msg_part_next(&in, &record, &n)) > 0) {
		int err = ++r->rows > BATCH_ROWS_MAX || r->bytes > BATCH_BYTES_MAX ? -EPROTO : 0;

		if (!err)
			err = s->c.volume.batch_part(r->batch, record, n);
		if (err)
			return session_bad(s, err, TYPE_PART);
		rows++;
	}
	if (more < 0)
		return session_bad(s, more, TYPE_PART);
	stats_add(s->c.volume.stats, COUNT_PARTS_RECEIVED, rows);
	return collect_wants(s);
}

static int take_end(struct session *s, uint32_t number, const uint8_t *body, size_t len)
{
	struct receiving *r = &s->rx;
	struct msg_mark m;
	int err = !r->open || r->end_seen || number != r->number ? -EPROTO : msg_mark_decode(body, len, &m);

	if (err)
		return session_bad(s, err, TYPE_END);
	vector_fini(&r->end.knowledge);
	r->end = m;
	r->end_seen = true;
	if ((m.flags & END_CUT) && (err = starts_at_end(s, &m.knowledge)))
		return err;
	return collect_wants(s);
}

/* The sender is one step ahead while this one's contents still come: kept as it came. */
static int keep_ahead(struct session *s, uint8_t type, uint32_t number, const uint8_t *body, size_t len)
{
	struct receiving *r = &s->rx;
	bool starts = type == TYPE_BATCH, fits = r->ahead_open != starts && r->ahead.len + len <= BATCH_BYTES_MAX;

	if (starts)
		fits &= r->ahead_steps < (r->own ? 2 : 1) && ((r->own && !r->ahead_steps) || number == r->ahead_number + 1);
	else
		fits &= number == r->ahead_number;
	if (!fits)
		return session_bad(s, -EPROTO, type);
	r->ahead_number = number;
	r->ahead_steps += starts;
	r->ahead_open = type != TYPE_END;
	buf_put_u8(&r->ahead, type);
	buf_put_u32(&r->ahead, number);
	buf_put_u32(&r->ahead, (uint32_t)len);
	buf_put(&r->ahead, body, len);
	return r->ahead.err ? session_bad(s, r->ahead.err, type) : 0;
}

static int take(struct session *s, uint8_t type, uint32_t number, const uint8_t *body, size_t len)
{
	if (type == TYPE_BATCH)
		return take_batch(s, number, body, len);
	return type == TYPE_PART ? take_parts(s, number, body, len) : take_end(s, number, body, len);
}

int receive_batch_message(struct session *s, uint8_t type, uint32_t request, const uint8_t *body, size_t len)
{
	if (s->rx.open && s->rx.end_seen)
		return keep_ahead(s, type, request, body, len);
	return take(s, type, request, body, len);
}

static int replay_ahead(struct session *s)
{
	struct buf kept = s->rx.ahead;
	struct reader in = reader_of(kept.p, kept.len);
	int err = 0;

	s->rx.ahead = (struct buf){0};
	s->rx.ahead_open = false;
	s->rx.ahead_steps = 0;
	while (!err && in.left) {
		uint8_t type = read_u8(&in);
		uint32_t number = read_u32(&in), len = read_u32(&in);

		err = receive_batch_message(s, type, number, read_bytes(&in, len), len);
	}
	buf_fini(&kept);
	return err;
}

/* Contents that are held without their bytes: looked for between batches, asked for as those of a batch. 1: there are some. */
static int open_own(struct session *s)
{
	struct receiving *r = &s->rx;
	int err;

	r->look = false;
	r->looked_ns = env_mono_ns(s->c.env);
	if (!r->batch && (err = s->c.volume.batch_new(s->c.volume.v, s->c.peer, &r->batch)))
		return session_bad(s, err, TYPE_BATCH);
	if ((err = collect_wants(s)))
		return err;
	if (!r->n_waiting) { /* a batch looks once */
		s->c.volume.batch_free(r->batch);
		r->batch = NULL;
		return 0;
	}
	r->open = r->end_seen = r->own = true;
	r->catching_up = false;
	return 1;
}

void receive_tick(struct session *s, uint64_t now_ns)
{
	if (now_ns - s->rx.looked_ns > LOOK_NS)
		s->rx.look = true;
}

static int apply_own(struct session *s)
{
	struct receiving *r = &s->rx;
	int err = s->c.volume.batch_apply(r->batch, NULL);

	if (err == -EAGAIN)
		return collect_wants(s);
	if (err)
		return session_fail(s, err, BYE_ERROR, "cannot apply contents: %s", strerror(-err));
	r->open = r->end_seen = r->own = r->left_out = false;
	if (s->c.io.changed)
		s->c.io.changed(s->c.io.ctx);
	return replay_ahead(s);
}

static int apply(struct session *s)
{
	struct receiving *r = &s->rx;
	struct session_volume *v = &s->c.volume;
	bool cut = (r->end.flags & END_CUT) && !r->left_out;
	struct msg_mark ack = {.flags = r->left_out ? ACK_LEFT_OUT : 0};
	struct buf body = {0};
	int err = v->batch_apply(r->batch, cut ? &r->end.knowledge : NULL);

	/* a file changed here while its ranges came: they are asked for as a whole */
	if (err == -EAGAIN)
		return collect_wants(s);
	if (err)
		return session_fail(s, err, BYE_ERROR, "cannot apply a batch: %s", strerror(-err));
	r->open = r->end_seen = false;
	if ((err = v->knowledge(v->v, &ack.knowledge)))
		return session_fail(s, err, BYE_ERROR, "cannot read what this replica has: %s", strerror(-err));
	msg_mark_encode(&ack, &body);
	vector_fini(&ack.knowledge);
	err = session_send(s, TYPE_ACK, r->number, &body);
	buf_fini(&body);
	if (r->end.flags & END_CUT) {
		r->left_out = false;
		r->look = true;
		/* what it sent up to its cut it has: nothing of it goes back */
		if (!err)
			err = session_learn(s, &r->end.knowledge);
	}
	if (!err && s->c.io.changed)
		s->c.io.changed(s->c.io.ctx);
	return err ? err : replay_ahead(s);
}

int receive_work(struct session *s)
{
	struct receiving *r = &s->rx;
	int err;

	if (!r->open && (!r->look || (err = open_own(s)) <= 0))
		return r->look ? err : 0;
	if ((err = ask_waiting(s)))
		return err;
	if (!r->end_seen || r->n_waiting)
		return 0;
	for (uint32_t i = 0; i < r->n_asked; i++)
		if (r->asked[i].want)
			return 0;
	if (!s->c.volume.batch_complete(r->batch))
		return session_fail(s, -EIO, BYE_ERROR, "a batch lacks contents that nothing asks for");
	err = r->own ? apply_own(s) : apply(s);
	return err ? err : 1;
}
