/* One connection: a thread with a socket, a channel and a session. It dials or was accepted, shakes hands, serves a joiner or runs the
 * session until either side ends it, and goes. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine_state.h"
#include "invite_serve.h"
#include "log.h"

#define READ_BYTES (256u << 10)
#define WRITE_AT (512u << 10) /* so much is made before the socket is asked */
#define TICK_NS 1000000000ull
#define PUBLISH_NS 50000000ull
#define SILENT_MS 1500u
#define SILENT_TICKS 12u

static uint64_t now_ns(const struct connection *c) { return env_mono_ns(c->e->env); }

void connection_wake(struct connection *c)
{
	uint64_t one = 1;

	(void)!write(c->wake_fd, &one, sizeof one);
}

void connection_stop(struct connection *c, enum bye_code code, const char *static_text)
{
	if (c->stop)
		return;
	c->stop = true;
	c->stop_code = code;
	c->stop_text = static_text;
	connection_wake(c);
}

/* ---- bytes ---- */

static int flush(struct connection *c)
{
	const uint8_t *p;
	size_t len;

	while ((p = channel_output(c->channel, &len)), len) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		channel_sent(c->channel, (size_t)n);
		c->sent_bytes += (uint64_t)n;
		stats_add(volume_stats(c->e->v), COUNT_WIRE_BYTES_SENT, (uint64_t)n);
	}
	return 0;
}

/* Reads once and feeds the channel. 1: something came; 0: nothing now; -EPIPE: the peer closed. */
static int fill(struct connection *c, uint8_t *space)
{
	ssize_t n = recv(c->fd, space, READ_BYTES, 0);
	int err;

	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	c->received_bytes += (uint64_t)n;
	stats_add(volume_stats(c->e->v), COUNT_WIRE_BYTES_RECEIVED, (uint64_t)n);
	err = channel_feed(c->channel, space, (size_t)n);
	return err ? err : 1;
}

/* Writes what is there and waits for the socket or a wake. *ret_readable: bytes may be there. */
static int wait_io(struct connection *c, int timeout_ms, bool *ret_readable)
{
	struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN}, {.fd = c->wake_fd, .events = POLLIN}};
	uint64_t count;
	int err = flush(c);

	*ret_readable = false;
	if (err)
		return err;
	if (channel_unsent(c->channel))
		p[0].events |= POLLOUT;
	if (poll(p, 2, timeout_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	if (p[1].revents)
		(void)!read(c->wake_fd, &count, sizeof count);
	*ret_readable = p[0].revents & (POLLIN | POLLHUP | POLLERR);
	return 0;
}

static bool told_to_stop(struct connection *c)
{
	bool stop;

	pthread_mutex_lock(&c->e->lock);
	stop = c->stop;
	pthread_mutex_unlock(&c->e->lock);
	return stop;
}

static int error_of_channel(struct connection *c, int err)
{
	const char *why = channel_error(c->channel);

	if (why && !c->error[0])
		snprintf(c->error, sizeof c->error, "%s", why);
	return err;
}

/* Sends what is queued, BYE above all, before the socket closes; reads on for a moment, since closing with bytes unread would throw
 * away what the peer has not read yet. */
static void linger(struct connection *c, uint8_t *space)
{
	uint64_t end = now_ns(c) + 2000000000ull;
	size_t len;

	while (!flush(c) && channel_output(c->channel, &len) && len && now_ns(c) < end) {
		struct pollfd p = {.fd = c->fd, .events = POLLOUT};

		if (poll(&p, 1, 500) <= 0)
			break;
	}
	shutdown(c->fd, SHUT_WR);
	for (int i = 0; i < 64; i++) {
		struct pollfd p = {.fd = c->fd, .events = POLLIN};

		if (poll(&p, 1, 200) <= 0 || recv(c->fd, space, READ_BYTES, 0) <= 0 || now_ns(c) > end)
			break;
	}
}

/* ---- handshake ---- */

static int choose_psk(void *ctx, const struct channel_psk_id *id, const uint8_t *remote_static, uint8_t *ret_psk)
{
	struct connection *c = ctx;
	const struct keyring *k = volume_keyring(c->e->v);
	int err = -ENOENT;

	c->psk_kind = id->kind;
	c->psk_id = id->id;
	if (id->kind == CHANNEL_PSK_MEMBER) {
		if (!id_eq(&id->id, keyring_volume(k))) {
			snprintf(c->error, sizeof c->error, "it asks for another volume");
			return -ENOENT;
		}
		keyring_psk(k, ret_psk);
		return 0;
	}
	if (id->kind == CHANNEL_PSK_TOKEN)
		err = volume_token_secret(c->e->v, id->id.b, ret_psk);
	if (err)
		snprintf(c->error, sizeof c->error, "it shows a token that is %s",
			err == -ETIME ? "expired" : err == -EALREADY ? "used up" : "not known here");
	return err;
}

static int make_channel(struct connection *c)
{
	struct engine *e = c->e;
	const struct keyring *k = volume_keyring(e->v);
	struct channel_psk_id id = {.kind = CHANNEL_PSK_MEMBER, .id = *keyring_volume(k)};
	uint8_t *psk;
	int err;

	if (!c->initiator)
		return channel_new_responder(e->env, e->prologue, e->static_secret, choose_psk, c, &c->channel);
	if (!(psk = sodium_malloc(KEY_LEN)))
		return -ENOMEM;
	keyring_psk(k, psk);
	c->psk_kind = id.kind;
	err = channel_new_initiator(e->env, e->prologue, e->static_secret, c->peer_static, &id, psk, &c->channel);
	sodium_free(psk);
	return err;
}

/* An initiator's first transport message is what makes the responder ready, so it says HELLO before: see run. */
static int shake_hands(struct connection *c, uint8_t *space)
{
	uint64_t end = now_ns(c) + HANDSHAKE_MS * 1000000ull;

	while (!channel_ready(c->channel)) {
		bool readable;
		int err;

		if (now_ns(c) >= end)
			return -ETIMEDOUT;
		if ((err = wait_io(c, 1000, &readable)))
			return err;
		if (told_to_stop(c))
			return -ECANCELED;
		if (!readable)
			continue;
		err = fill(c, space);
		if (err == -EPIPE || err == -ECONNRESET) {
			snprintf(c->error, sizeof c->error,
				c->initiator ? "it closed the connection during the handshake (another volume, key or protocol version?)" :
					       "the connection was closed during the handshake");
			return err;
		}
		if (err < 0)
			return error_of_channel(c, err);
	}
	pthread_mutex_lock(&c->e->lock);
	if (c->half_open)
		c->e->half_open--;
	c->half_open = false;
	pthread_mutex_unlock(&c->e->lock);
	return 0;
}

static int send_bye(struct connection *c, enum bye_code code, const char *text)
{
	struct msg_bye m = {.code = (uint16_t)code};
	struct buf body = {0};
	struct iovec v;
	int err;

	snprintf(m.text, sizeof m.text, "%s", text);
	msg_bye_encode(&m, &body);
	v = (struct iovec){body.p, body.len};
	err = body.err ? body.err : channel_send(c->channel, TYPE_BYE, 0, &v, 1);
	buf_fini(&body);
	return err;
}

/* ---- a joiner ---- */

static int serve_join(struct connection *c, uint8_t *space)
{
	uint64_t end = now_ns(c) + HANDSHAKE_MS * 1000000ull;
	struct channel_message m;
	bool readable = false;
	int more, err;

	while (!(more = channel_next_message(c->channel, &m))) {
		if (now_ns(c) >= end || told_to_stop(c))
			return -ETIMEDOUT;
		if ((err = wait_io(c, 1000, &readable)))
			return err;
		if (readable && (err = fill(c, space)) < 0)
			return error_of_channel(c, err);
	}
	if (more < 0)
		return error_of_channel(c, more);
	if (m.type != TYPE_JOIN) {
		send_bye(c, BYE_PROTOCOL, "a token serves for JOIN only");
		return -EPROTO;
	}
	/* what it refuses it has logged and told the joiner */
	(void)invite_serve(c->e->v, &c->psk_id, channel_remote_static(c->channel), m.body, m.len, c->channel);
	engine_poke(c->e);
	return 0;
}

/* ---- the session ---- */

static int io_send(void *ctx, uint8_t type, uint32_t request, const void *body, size_t len)
{
	struct connection *c = ctx;
	struct iovec v = {(void *)body, len};

	return channel_send(c->channel, type, request, &v, 1);
}

static size_t io_queued(void *ctx)
{
	struct connection *c = ctx;

	return channel_unsent(c->channel);
}

static void io_changed(void *ctx)
{
	struct connection *c = ctx;

	c->changed = true;
}

/* The static key that the handshake proved must be a member's. */
static int identify(struct connection *c)
{
	struct member m = {0};
	const struct peering *p;
	uint64_t replica = 0;
	bool paused;
	int err = volume_member_by_key(c->e->v, channel_remote_static(c->channel), &replica, &m);

	if (err == -EACCES) {
		send_bye(c, BYE_REMOVED, "this replica was removed from the volume");
		snprintf(c->error, sizeof c->error, "%s was removed from the volume and is refused", m.name[0] ? m.name : "the replica");
	} else if (err) {
		send_bye(c, BYE_UNKNOWN, "this replica's key is not in the list of members");
		snprintf(c->error, sizeof c->error, "its key is not in the list of members");
	}
	if (err)
		return err;
	pthread_mutex_lock(&c->e->lock);
	c->peer = replica;
	p = engine_find(c->e, replica);
	paused = p && p->paused;
	pthread_mutex_unlock(&c->e->lock);
	if (paused) {
		send_bye(c, BYE_PAUSED, "the peering is paused there");
		return -ECANCELED;
	}
	/* a member that was invited elsewhere and knows our address is a peer from now on */
	return p ? 0 : peering_ensure(c->e->v, replica);
}

static int start_session(struct connection *c)
{
	struct session_config g = {
		.io = {.send = io_send, .queued = io_queued, .changed = io_changed, .pages = heal_call_answer, .ctx = c},
		.env = c->e->env,
		.replica = volume_header(c->e->v)->replica,
		.peer = c->peer,
	};
	const struct peering *p;
	int err;

	pthread_mutex_lock(&c->e->lock);
	if ((p = engine_find(c->e, c->peer)))
		g.left_replaced = p->behind;
	pthread_mutex_unlock(&c->e->lock);
	session_volume_real(c->e->v, &g.volume);
	err = session_new(&g, &c->session);
	return err ? err : session_start(c->session);
}

static void publish(struct connection *c)
{
	struct peer_status st = {.rate_bytes = c->rate_bytes, .sent_bytes = c->sent_bytes, .received_bytes = c->received_bytes,
		.connected_ns = c->connected_ns};

	session_status(c->session, &st);
	engine_publish(c->e, c->peer, &st);
	c->published_ns = now_ns(c);
	c->changed = false;
}

static int tick(struct connection *c)
{
	uint64_t now = now_ns(c), bytes = c->sent_bytes + c->received_bytes;
	uint64_t rate = (bytes - c->counted_bytes) * 1000000000ull / (now - c->ticked_ns ? now - c->ticked_ns : 1);
	int err = session_tick(c->session);

	c->rate_bytes = (c->rate_bytes * 3 + rate) / 4;
	c->counted_bytes = bytes;
	c->ticked_ns = now;
	c->silent_ticks = socket_is_silent(c->fd, SILENT_MS) ? c->silent_ticks + 1 : 0;
	if (!err && c->silent_ticks >= SILENT_TICKS) {
		snprintf(c->error, sizeof c->error, "nothing that was sent is acknowledged any more");
		return -ETIMEDOUT;
	}
	if (c->was_up)
		publish(c);
	return err;
}

static int take_messages(struct connection *c)
{
	struct channel_message m;
	int more;

	while ((more = channel_next_message(c->channel, &m)) > 0) {
		int err = session_receive(c->session, m.type, m.request, m.body, m.len);

		if (err)
			return err;
	}
	return more < 0 ? error_of_channel(c, more) : 0;
}

/* Works until nothing is left to do or the socket should have some. 1: more is left. */
static int work(struct connection *c)
{
	size_t before = channel_unsent(c->channel);
	int more;

	do
		more = session_work(c->session);
	while (more > 0 && channel_unsent(c->channel) < before + WRITE_AT);
	return more;
}

static int heed_wake(struct connection *c)
{
	struct engine *e = c->e;
	bool stop;
	enum bye_code code = BYE_STOPPING;
	const char *text = NULL;

	pthread_mutex_lock(&e->lock);
	if ((stop = c->stop)) {
		code = c->stop_code;
		text = c->stop_text;
	}
	pthread_mutex_unlock(&e->lock);
	if (stop) {
		session_bye(c->session, code, text);
		return -ECANCELED;
	}
	if (atomic_exchange(&c->poked, false))
		session_poke(c->session);
	return heal_call_send(c);
}

static void heed_news(struct connection *c, int more)
{
	if (!c->was_up && session_is_up(c->session)) {
		c->was_up = true;
		c->connected_ns = env_wall_ns(c->e->env);
		engine_connection_up(c);
		volume_heal_poke(c->e->v);
	}
	if (!c->changed || !c->was_up)
		return;
	engine_connection_has(c);
	/* while there is more to do, the next tick is soon enough for the status; who waited for the peer is to see that it is in sync */
	if (!more && (now_ns(c) - c->published_ns > PUBLISH_NS || session_in_sync(c->session)))
		publish(c);
	engine_connection_news(c);
}

static int wait_ms(const struct connection *c, int more)
{
	uint64_t now = now_ns(c), due = c->ticked_ns + TICK_NS;

	if (more)
		return 0;
	if (c->changed && c->published_ns + PUBLISH_NS < due)
		due = c->published_ns + PUBLISH_NS;
	return due > now ? (int)((due - now) / 1000000 + 1) : 0;
}

/* Nothing can be written any more. What the peer sent before is still good, megabytes of contents that need not come again. */
static void take_rest(struct connection *c, uint8_t *space)
{
	while (fill(c, space) > 0 && !take_messages(c))
		;
}

static int run(struct connection *c, uint8_t *space)
{
	int err = start_session(c), more = 0;
	bool readable;

	c->ticked_ns = now_ns(c);
	/* a responder has the peer's first messages from the frame that ended its handshake */
	if (!err)
		err = take_messages(c);
	while (!err) {
		if ((more = work(c)) < 0)
			return more;
		heed_news(c, more);
		if ((err = wait_io(c, wait_ms(c, more), &readable)) || (err = heed_wake(c)))
			break;
		if (readable) {
			int got = fill(c, space);

			/* what came before the end is still good: above all a BYE */
			err = take_messages(c);
			if (!err && got < 0)
				err = got == -EPIPE ? got : error_of_channel(c, got);
		}
		if (!err && now_ns(c) - c->ticked_ns >= TICK_NS)
			err = tick(c);
		if (!err && c->initiator && !more && channel_wants_rehandshake(c->channel)) {
			session_bye(c->session, BYE_RENEW, "fresh keys");
			err = -ECANCELED;
		}
	}
	if (err == -EPIPE || err == -ECONNRESET)
		take_rest(c, space);
	return err;
}

/* ---- the thread ---- */

static int open_and_run(struct connection *c, uint8_t *space)
{
	int err;

	if (c->initiator) {
		struct address a;

		if ((err = address_parse(c->address, &a))) {
			snprintf(c->error, sizeof c->error, "address \"%.100s\" cannot be read", c->address);
			return err;
		}
		if ((err = address_dial(&a, CONNECT_MS, c->wake_fd, &c->fd)))
			return err;
	}
	if ((err = make_channel(c)) || (err = shake_hands(c, space)))
		return err;
	if (c->psk_kind == CHANNEL_PSK_TOKEN)
		err = serve_join(c, space);
	else if (!(err = identify(c)))
		err = run(c, space);
	if (c->session && session_error(c->session)[0])
		snprintf(c->error, sizeof c->error, "%s", session_error(c->session));
	linger(c, space);
	return err;
}

void *connection_main(void *arg)
{
	struct connection *c = arg;
	uint8_t *space = malloc(READ_BYTES);
	int err = space ? open_and_run(c, space) : -ENOMEM;

	free(space);
	if (!c->error[0] && err)
		snprintf(c->error, sizeof c->error, "%s", err == -EPIPE ? "the peer closed the connection" : strerror(-err));
	engine_connection_over(c, err);
	return NULL;
}

int connection_spawn(struct engine *e, int fd, const struct peering *to_dial)
{
	struct connection *c = calloc(1, sizeof *c);
	int err = -ENOMEM;

	if (!c)
		goto fail;
	c->e = e;
	c->fd = fd;
	c->initiator = to_dial != NULL;
	if (to_dial) {
		c->peer = to_dial->replica;
		memcpy(c->peer_static, to_dial->static_public, sizeof c->peer_static);
		memcpy(c->address, to_dial->address, sizeof c->address);
		snprintf(c->remote, sizeof c->remote, "%.79s", to_dial->address);
	}
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake_fd < 0) {
		err = -errno;
		goto fail;
	}
	pthread_mutex_lock(&e->lock);
	if (!to_dial) {
		c->half_open = true;
		e->half_open++;
	}
	err = e->stopping || e->renewing ? -ECANCELED : -pthread_create(&c->thread, NULL, connection_main, c);
	if (!err) {
		c->next = e->connections;
		e->connections = c;
	} else if (c->half_open) {
		e->half_open--;
	}
	pthread_mutex_unlock(&e->lock);
	if (!err)
		return 0;
	close(c->wake_fd);
fail:
	free(c);
	if (fd >= 0)
		close(fd);
	return err;
}
