/* The channel. States (each frame's length is checked as soon as its two bytes are there):
 *
 *	state	frame awaited		then
 *	RESPOND	message 1, 113 bytes	accept, message 2 is queued -> CONFIRM
 *	INITIATE	message 2, 48 bytes	-> READY
 *	CONFIRM	transport		opens -> READY
 *	READY	transport		READY
 *	any	(error)			error is set, nothing more is read
 *
 * Input: a frame that lies whole in the bytes fed is opened straight into `in`; only a frame cut by the feed is put
 * together in `partial`. Output: bodies are copied into the open frame at the end of `out`, sealed there in place. */
#include "channel.h"

#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH_LEN 2
#define FRAME_MAX (LENGTH_LEN + NOISE_MESSAGE_MAX)
#define FRAME_OVERHEAD (LENGTH_LEN + NOISE_TAG_LEN)
#define PSK_ID_LEN (1 + ID_LEN)
#define KEEP_BYTES (1u << 20) /* an empty buffer above this size is given back */

enum state { STATE_RESPOND, STATE_INITIATE, STATE_CONFIRM, STATE_READY };

/* Owned bytes [start, end) of cap. */
struct queue {
	uint8_t *p;
	size_t start, end, cap;
};

struct channel {
	const struct env *env;
	enum state state;
	struct noise *noise; /* until message 2 */
	struct noise_cipher send, receive;
	uint8_t psk[NOISE_KEY_LEN]; /* where accept writes */
	uint8_t remote_static[NOISE_KEY_LEN];
	uint8_t handshake_hash[NOISE_HASH_LEN];
	bool has_remote, has_hash;
	channel_accept_fn accept;
	void *accept_ctx;
	uint64_t ready_ns, sent_bytes, received_bytes;

	struct queue in;      /* opened bytes not fetched yet */
	size_t checked;       /* offset in `in` from its start of the first header not looked at yet */
	struct queue out;     /* sealed frames, then at most one open frame */
	size_t open_at;       /* where in out.p the open frame starts; its plaintext ends at out.end. SIZE_MAX: none */
	uint8_t *partial;     /* owned, FRAME_MAX: a frame cut by the feed */
	size_t partial_len;

	int err;
	char error[160];
};

void channel_prologue(const struct id *volume, uint8_t ret[static CHANNEL_PROLOGUE_LEN])
{
	memcpy(ret, "twofold", 7);
	le16_store(ret + 7, CHANNEL_PROTOCOL_VERSION);
	memcpy(ret + 9, volume->b, ID_LEN);
}

static int fail(struct channel *c, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct channel *c, int err, const char *fmt, ...)
{
	va_list ap;

	if (c->err)
		return c->err;
	va_start(ap, fmt);
	vsnprintf(c->error, sizeof c->error, fmt, ap);
	va_end(ap);
	c->err = err;
	return err;
}

/* Makes room for len bytes after end. A move wipes the old place: it may have held keys on their way to a joiner. */
static int queue_reserve(struct queue *q, size_t len)
{
	size_t used = q->end - q->start, want, cap;
	uint8_t *p;

	if (q->cap - q->end >= len)
		return 0;
	/* moving down costs nothing extra as long as at least as much lies free before it */
	if (q->start >= used && q->cap - used >= len) {
		memcpy(q->p, q->p + q->start, used);
		q->start = 0;
		q->end = used;
		return 0;
	}
	if (!add_size(used, len, &want))
		return -ENOMEM;
	/* half as much again stays free, so that what was copied here is not copied again soon */
	cap = q->cap ? q->cap : 4096;
	while (cap < want + want / 2)
		cap *= 2;
	p = malloc(cap);
	if (!p)
		return -ENOMEM;
	if (used)
		memcpy(p, q->p + q->start, used);
	if (q->p)
		sodium_memzero(q->p, q->cap);
	free(q->p);
	*q = (struct queue){.p = p, .end = used, .cap = cap};
	return 0;
}

static void queue_take(struct queue *q, size_t len)
{
	q->start += len;
	if (q->start < q->end || !q->p)
		return;
	q->start = q->end = 0;
	if (q->cap > KEEP_BYTES) {
		sodium_memzero(q->p, q->cap);
		free(q->p);
		*q = (struct queue){0};
	}
}

static void queue_fini(struct queue *q)
{
	if (q->p)
		sodium_memzero(q->p, q->cap);
	free(q->p);
}

static struct channel *new_channel(const struct env *env)
{
	struct channel *c = sodium_malloc((sizeof *c + 15) & ~(size_t)15);

	if (!c)
		return NULL;
	memset(c, 0, sizeof *c);
	c->env = env;
	c->open_at = SIZE_MAX;
	c->partial = malloc(FRAME_MAX);
	if (!c->partial) {
		sodium_free(c);
		return NULL;
	}
	return c;
}

void channel_free(struct channel *c)
{
	if (!c)
		return;
	noise_free(c->noise);
	queue_fini(&c->in);
	queue_fini(&c->out);
	free(c->partial);
	sodium_free(c);
}

static int start_noise(struct channel *c, enum noise_role role, const uint8_t *prologue, const uint8_t *static_secret,
		       const uint8_t *remote_static)
{
	/* the psk's place is guarded and not in use yet */
	env_random(c->env, c->psk, sizeof c->psk);
	c->noise = noise_new(role, prologue, CHANNEL_PROLOGUE_LEN, static_secret, remote_static, c->psk);
	sodium_memzero(c->psk, sizeof c->psk);
	return c->noise ? 0 : -ENOMEM;
}

/* Appends a frame that holds this side's handshake message. */
static int queue_handshake(struct channel *c, const void *payload, size_t len, size_t message_len)
{
	int r = queue_reserve(&c->out, LENGTH_LEN + message_len);

	if (r < 0)
		return r;
	r = noise_write(c->noise, payload, len, c->out.p + c->out.end + LENGTH_LEN);
	if (r < 0)
		return r;
	le16_store(c->out.p + c->out.end, (uint16_t)message_len);
	c->out.end += LENGTH_LEN + message_len;
	return 0;
}

int channel_new_initiator(const struct env *env, const uint8_t prologue[static CHANNEL_PROLOGUE_LEN],
			  const uint8_t static_secret[static NOISE_KEY_LEN],
			  const uint8_t remote_static[static NOISE_KEY_LEN], const struct channel_psk_id *psk_id,
			  const uint8_t psk[static NOISE_KEY_LEN], struct channel **ret)
{
	struct channel *c = new_channel(env);
	uint8_t payload[PSK_ID_LEN];
	int r;

	if (!c)
		return -ENOMEM;
	c->state = STATE_INITIATE;
	memcpy(c->remote_static, remote_static, NOISE_KEY_LEN);
	c->has_remote = true;
	payload[0] = psk_id->kind;
	memcpy(payload + 1, psk_id->id.b, ID_LEN);
	r = start_noise(c, NOISE_INITIATOR, prologue, static_secret, remote_static);
	if (r == 0) {
		noise_set_psk(c->noise, psk);
		r = queue_handshake(c, payload, sizeof payload, NOISE_MESSAGE1_LEN(PSK_ID_LEN));
	}
	if (r < 0) {
		channel_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

int channel_new_responder(const struct env *env, const uint8_t prologue[static CHANNEL_PROLOGUE_LEN],
			  const uint8_t static_secret[static NOISE_KEY_LEN], channel_accept_fn accept, void *ctx,
			  struct channel **ret)
{
	struct channel *c = new_channel(env);
	int r;

	if (!c)
		return -ENOMEM;
	c->state = STATE_RESPOND;
	c->accept = accept;
	c->accept_ctx = ctx;
	r = start_noise(c, NOISE_RESPONDER, prologue, static_secret, NULL);
	if (r < 0) {
		channel_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

static int finish_handshake(struct channel *c, enum state next)
{
	int r = noise_split(c->noise, &c->send, &c->receive, c->handshake_hash);

	if (r < 0)
		return fail(c, r, "the handshake did not end");
	c->has_hash = true;
	noise_free(c->noise);
	c->noise = NULL;
	c->state = next;
	c->ready_ns = env_mono_ns(c->env);
	return 0;
}

static int read_message1(struct channel *c, const uint8_t *m, size_t len)
{
	uint8_t payload[NOISE_MESSAGE1_LEN(PSK_ID_LEN)];
	struct channel_psk_id psk_id;
	size_t payload_len;
	int r;

	r = noise_read(c->noise, m, len, payload, &payload_len);
	if (r < 0)
		return fail(c, r, "the peer's first message does not open: it expects another replica, volume or version");
	memcpy(c->remote_static, noise_remote_static(c->noise), NOISE_KEY_LEN);
	c->has_remote = true;
	psk_id.kind = payload[0];
	memcpy(psk_id.id.b, payload + 1, ID_LEN);
	r = c->accept(c->accept_ctx, &psk_id, c->remote_static, c->psk);
	if (r < 0) {
		sodium_memzero(c->psk, sizeof c->psk);
		return fail(c, r, "the peer's key or token is not accepted here");
	}
	noise_set_psk(c->noise, c->psk);
	sodium_memzero(c->psk, sizeof c->psk);
	r = queue_handshake(c, NULL, 0, NOISE_MESSAGE2_LEN(0));
	if (r < 0)
		return fail(c, r, "answering the peer's first message: %s", strerror(-r));
	return finish_handshake(c, STATE_CONFIRM);
}

static int read_message2(struct channel *c, const uint8_t *m, size_t len)
{
	uint8_t payload[NOISE_MESSAGE2_LEN(0)];
	size_t payload_len;
	int r = noise_read(c->noise, m, len, payload, &payload_len);

	if (r < 0)
		return fail(c, r, "the peer's answer does not open: its key is another, or it does not know this volume's");
	return finish_handshake(c, STATE_READY);
}

/* Looks at each header as soon as it is there: a length that is too large ends the channel, a large one gets its room at
 * once instead of by doublings. */
static int check_headers(struct channel *c)
{
	while (c->in.end - c->in.start >= c->checked + CHANNEL_MESSAGE_HEADER_LEN) {
		size_t have = c->in.end - c->in.start, body = le32_load(c->in.p + c->in.start + c->checked + 5), all;

		if (body > CHANNEL_BODY_MAX)
			return fail(c, -EMSGSIZE, "a message of %zu bytes, more than the largest of %u", body,
				    CHANNEL_BODY_MAX);
		all = c->checked + CHANNEL_MESSAGE_HEADER_LEN + body;
		if (all > have) {
			/* and for what the last frame brings beyond it */
			if (queue_reserve(&c->in, all - have + CHANNEL_FRAME_PLAIN_MAX) < 0)
				return fail(c, -ENOMEM, "no memory for a message of %zu bytes", body);
			return 0;
		}
		c->checked = all;
	}
	return 0;
}

static int read_transport(struct channel *c, const uint8_t *sealed, size_t len)
{
	int r;

	if (queue_reserve(&c->in, len - NOISE_TAG_LEN) < 0)
		return fail(c, -ENOMEM, "no memory for what the peer sends");
	r = noise_cipher_open(&c->receive, sealed, len, c->in.p + c->in.end);
	if (r < 0 && c->state == STATE_CONFIRM)
		return fail(c, r, "the peer's first frame does not open: it does not know the key, or repeats another's message");
	if (r < 0)
		return fail(c, r, "a frame does not open: changed or repeated on the way");
	c->in.end += len - NOISE_TAG_LEN;
	c->received_bytes += len;
	c->state = STATE_READY;
	return 0;
}

static int read_frame(struct channel *c, const uint8_t *sealed, size_t len)
{
	switch (c->state) {
	case STATE_RESPOND:
		return read_message1(c, sealed, len);
	case STATE_INITIATE:
		return read_message2(c, sealed, len);
	case STATE_CONFIRM:
	case STATE_READY:
		break;
	}
	int r = read_transport(c, sealed, len);
	return r < 0 ? r : check_headers(c);
}

static int check_length(struct channel *c, size_t len)
{
	switch (c->state) {
	case STATE_RESPOND:
		if (len == NOISE_MESSAGE1_LEN(PSK_ID_LEN))
			return 0;
		return fail(c, -EPROTO, "the peer does not speak this protocol");
	case STATE_INITIATE:
		if (len == NOISE_MESSAGE2_LEN(0))
			return 0;
		return fail(c, -EPROTO, "the peer does not speak this protocol");
	case STATE_CONFIRM:
	case STATE_READY:
		break;
	}
	return len > NOISE_TAG_LEN ? 0 : fail(c, -EPROTO, "a frame of %zu bytes is too short", len);
}

/* Takes from p what the frame in partial still lacks, at most *len bytes; reads the frame when it is whole. */
static int feed_partial(struct channel *c, const uint8_t **p, size_t *len)
{
	while (*len) {
		size_t want = LENGTH_LEN, take;

		if (c->partial_len >= LENGTH_LEN) {
			size_t frame = le16_load(c->partial);
			if (check_length(c, frame) < 0)
				return c->err;
			want += frame;
		}
		take = want - c->partial_len < *len ? want - c->partial_len : *len;
		memcpy(c->partial + c->partial_len, *p, take);
		c->partial_len += take;
		*p += take;
		*len -= take;
		if (c->partial_len == want && want > LENGTH_LEN) {
			c->partial_len = 0;
			return read_frame(c, c->partial + LENGTH_LEN, want - LENGTH_LEN);
		}
	}
	/* do not wait for a frame that will be refused */
	return c->partial_len >= LENGTH_LEN ? check_length(c, le16_load(c->partial)) : 0;
}

int channel_feed(struct channel *c, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	queue_take(&c->in, 0); /* no body is borrowed any more */
	while (len && !c->err) {
		size_t frame;

		if (c->partial_len || len < LENGTH_LEN || len < LENGTH_LEN + (frame = le16_load(p))) {
			feed_partial(c, &p, &len);
			continue;
		}
		if (check_length(c, frame) < 0 || read_frame(c, p + LENGTH_LEN, frame) < 0)
			break;
		p += LENGTH_LEN + frame;
		len -= LENGTH_LEN + frame;
	}
	return c->err;
}

int channel_next_message(struct channel *c, struct channel_message *ret)
{
	const uint8_t *p = c->in.p ? c->in.p + c->in.start : NULL;
	size_t len;

	/* checked counts whole messages only, so a message before it is complete and its length good */
	if (!c->checked)
		return c->err;
	len = le32_load(p + 5);
	*ret = (struct channel_message){
		.type = p[0], .request = le32_load(p + 1), .body = p + CHANNEL_MESSAGE_HEADER_LEN, .len = len};
	c->checked -= CHANNEL_MESSAGE_HEADER_LEN + len;
	c->in.start += CHANNEL_MESSAGE_HEADER_LEN + len;
	return 1;
}

bool channel_ready(const struct channel *c) { return c->state == STATE_READY && !c->err; }

static void seal_open_frame(struct channel *c)
{
	size_t len;
	uint8_t *p;

	if (c->open_at == SIZE_MAX)
		return;
	p = c->out.p + c->open_at;
	len = c->out.end - c->open_at - LENGTH_LEN;
	if (noise_cipher_seal(&c->send, p + LENGTH_LEN, len, p + LENGTH_LEN) < 0) {
		c->out.end = c->open_at;
		fail(c, -EOVERFLOW, "the channel's nonces are used up");
	} else {
		le16_store(p, (uint16_t)(len + NOISE_TAG_LEN));
		c->out.end += NOISE_TAG_LEN;
		c->sent_bytes += len + NOISE_TAG_LEN;
	}
	c->open_at = SIZE_MAX;
}

/* Into the open frame and following ones; the room is reserved. */
static void put_plain(struct channel *c, const uint8_t *p, size_t len)
{
	while (len) {
		size_t room, take;

		if (c->open_at == SIZE_MAX) {
			c->open_at = c->out.end;
			c->out.end += LENGTH_LEN;
		}
		room = CHANNEL_FRAME_PLAIN_MAX - (c->out.end - c->open_at - LENGTH_LEN);
		take = len < room ? len : room;
		memcpy(c->out.p + c->out.end, p, take);
		c->out.end += take;
		p += take;
		len -= take;
		if (take == room)
			seal_open_frame(c);
	}
}

/* Room for len more bytes of plaintext, their frames, and the tag of the open one. */
static int reserve_plain(struct channel *c, size_t len)
{
	size_t frames = len / CHANNEL_FRAME_PLAIN_MAX + 2;
	size_t open = c->open_at == SIZE_MAX ? 0 : c->open_at - c->out.start;

	if (queue_reserve(&c->out, len + frames * FRAME_OVERHEAD) < 0)
		return -ENOMEM;
	if (c->open_at != SIZE_MAX)
		c->open_at = c->out.start + open;
	return 0;
}

int channel_send(struct channel *c, uint8_t type, uint32_t request, const struct iovec *body, int n)
{
	uint8_t header[CHANNEL_MESSAGE_HEADER_LEN];
	size_t len = 0;

	if (c->err)
		return c->err;
	if (c->state != STATE_READY)
		return -ENOTCONN;
	for (int i = 0; i < n; i++)
		if (!add_size(len, body[i].iov_len, &len) || len > CHANNEL_BODY_MAX)
			return -EMSGSIZE;
	if (channel_unsent(c) + len > CHANNEL_OUTPUT_MAX)
		return -EAGAIN;
	if (reserve_plain(c, sizeof header + len) < 0)
		return -ENOMEM;
	header[0] = type;
	le32_store(header + 1, request);
	le32_store(header + 5, (uint32_t)len);
	put_plain(c, header, sizeof header);
	for (int i = 0; i < n; i++)
		put_plain(c, body[i].iov_base, body[i].iov_len);
	return 0;
}

const uint8_t *channel_output(struct channel *c, size_t *ret_len)
{
	seal_open_frame(c);
	*ret_len = c->out.end - c->out.start;
	return c->out.p ? c->out.p + c->out.start : NULL;
}

void channel_sent(struct channel *c, size_t len)
{
	if (len)
		queue_take(&c->out, len);
}

size_t channel_unsent(const struct channel *c) { return c->out.end - c->out.start; }

bool channel_wants_rehandshake(const struct channel *c)
{
	return c->has_hash && (env_mono_ns(c->env) - c->ready_ns >= CHANNEL_REHANDSHAKE_NS ||
			       c->sent_bytes >= CHANNEL_REHANDSHAKE_BYTES ||
			       c->received_bytes >= CHANNEL_REHANDSHAKE_BYTES);
}

const uint8_t *channel_remote_static(const struct channel *c) { return c->has_remote ? c->remote_static : NULL; }

const uint8_t *channel_handshake_hash(const struct channel *c) { return c->has_hash ? c->handshake_hash : NULL; }

const char *channel_error(const struct channel *c) { return c->err ? c->error : NULL; }
