/* The joiner's side: fetches the volume's key with a token, and makes the store. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "address.h"
#include "channel.h"
#include "invite.h"
#include "message.h"

struct talk {
	int fd;
	struct channel *channel;
	uint64_t end_ns; /* monotonic */
	char *error;     /* 256 bytes */
};

static int say(struct talk *t, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int say(struct talk *t, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->error, 256, fmt, ap);
	va_end(ap);
	return err;
}

static int left_ms(const struct talk *t)
{
	uint64_t now = env_mono_ns(&env_real);

	return now >= t->end_ns ? 0 : (int)((t->end_ns - now) / 1000000);
}

/* Writes what is queued, then waits for bytes and feeds them. 0; -ETIMEDOUT; -EPIPE: closed; what the channel says. */
static int turn(struct talk *t)
{
	struct pollfd p = {.fd = t->fd, .events = POLLIN};
	uint8_t space[4096];
	const uint8_t *out;
	size_t len;
	ssize_t n;

	while ((out = channel_output(t->channel, &len)), len) {
		n = send(t->fd, out, len, MSG_NOSIGNAL);
		if (n < 0)
			break;
		channel_sent(t->channel, (size_t)n);
	}
	if (channel_unsent(t->channel))
		p.events |= POLLOUT;
	if (poll(&p, 1, left_ms(t)) == 0)
		return -ETIMEDOUT;
	n = recv(t->fd, space, sizeof space, 0);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	return n == 0 ? -EPIPE : channel_feed(t->channel, space, (size_t)n);
}

static int shake_hands(struct talk *t, const struct invite_token *token)
{
	int err = 0;

	while (!err && !channel_ready(t->channel))
		err = turn(t);
	if (err == -EPIPE || err == -ECONNRESET) {
		/* a responder that does not know the token says nothing */
		if (token->expires_wall_ns < env_wall_ns(&env_real))
			return say(t, -ETIME, "the token has expired; ask for a new one (twofold invite)");
		return say(t, -EACCES, "%s does not accept the token: it is used up, expired, or of another volume; ask for a new one (twofold invite)",
			token->address);
	}
	if (err == -EBADMSG || err == -EPROTO)
		return say(t, err, "%s answers, but not with the key that the token names: another program or another store listens there", token->address);
	if (err)
		return say(t, err, "%s: %s during the handshake", token->address, strerror(-err));
	return 0;
}

static int bye_errno(uint16_t code)
{
	switch (code) {
	case BYE_TOKEN:
	case BYE_TOKEN_USED:
		return -EACCES;
	case BYE_TOKEN_EXPIRED:
		return -ETIME;
	case BYE_NAME:
		return -EEXIST;
	case BYE_CIPHER:
		return -ENOTSUP;
	default:
		return -EPROTO;
	}
}

static int take_welcome(struct talk *t, const struct invite_token *token, const struct channel_message *m, struct join_result *j)
{
	struct msg_welcome *w;
	int err;

	if (m->type != TYPE_WELCOME || m->len > message_body_max(TYPE_WELCOME))
		return say(t, -EPROTO, "%s does not answer as an inviter does", token->address);
	if (!(w = sodium_malloc(sizeof *w)))
		return say(t, -ENOMEM, "out of memory");
	err = msg_welcome_decode(m->body, m->len, w);
	if (!err && memcmp(w->static_public, token->static_public, sizeof w->static_public))
		err = -EPROTO;
	if (!err && (!cipher_name((enum cipher)w->cipher) || !cipher_available((enum cipher)w->cipher)))
		err = -ENOTSUP;
	if (!err) {
		j->header.cipher = (enum cipher)w->cipher;
		memcpy(j->master, w->master, KEY_LEN);
		j->inviter = w->replica;
		memcpy(j->inviter_member.name, w->name, sizeof j->inviter_member.name);
		memcpy(j->inviter_member.static_public, w->static_public, 32);
		memcpy(j->inviter_member.address, token->address, sizeof j->inviter_member.address);
	}
	sodium_free(w);
	if (err == -ENOTSUP)
		return say(t, err, "the volume's cipher does not work on this machine");
	return err ? say(t, -EPROTO, "%s sends a WELCOME that is malformed", token->address) : 0;
}

static uint32_t ciphers_here(void)
{
	uint32_t mask = 0;

	for (int c = CIPHER_XCHACHA20POLY1305; c <= CIPHER_NONE; c++)
		if (cipher_available((enum cipher)c))
			mask |= 1u << c;
	return mask;
}

static int ask(struct talk *t, const struct invite_token *token, const char *listen, struct join_result *j)
{
	struct msg_join m = {.protocol = PROTOCOL_VERSION, .ciphers = ciphers_here(), .replica = j->header.replica};
	struct channel_message got;
	struct buf body = {0};
	struct iovec v;
	int err, more;

	memcpy(m.name, j->header.name, sizeof m.name);
	if (listen)
		snprintf(m.address, sizeof m.address, "%s", listen);
	msg_join_encode(&m, &body);
	v = (struct iovec){body.p, body.len};
	err = body.err ? body.err : channel_send(t->channel, TYPE_JOIN, 0, &v, 1);
	buf_fini(&body);
	if (err)
		return say(t, err, "cannot send: %s", strerror(-err));
	while (!(more = channel_next_message(t->channel, &got))) {
		err = turn(t);
		if (err == -ETIMEDOUT || err == -EPIPE)
			return say(t, err, "%s did not answer; the token may be used up now, ask for a new one if it fails again", token->address);
		if (err)
			return say(t, err, "%s: %s", token->address, strerror(-err));
	}
	if (more < 0)
		return say(t, more, "%s breaks the protocol", token->address);
	if (got.type == TYPE_BYE) {
		struct msg_bye b;

		if (got.len > message_body_max(TYPE_BYE) || msg_bye_decode(got.body, got.len, &b))
			return say(t, -EPROTO, "%s breaks the protocol", token->address);
		return say(t, bye_errno(b.code), "%s refuses: %s", token->address, b.text);
	}
	return take_welcome(t, token, &got, j);
}

static int connect_and_ask(struct talk *t, const struct invite_token *token, const char *listen, struct join_result *j)
{
	struct channel_psk_id id = {.kind = CHANNEL_PSK_TOKEN};
	uint8_t prologue[CHANNEL_PROLOGUE_LEN];
	struct address a;
	int err = address_parse(token->address, &a);

	if (err)
		return say(t, err, "the token's address cannot be read");
	err = address_dial(&a, left_ms(t), -1, &t->fd);
	if (err)
		return say(t, err, "cannot reach %s: %s; is a mount or serve with listen= running there?", token->address, strerror(-err));
	memcpy(id.id.b, token->id, ID_LEN);
	channel_prologue(&token->volume, prologue);
	err = channel_new_initiator(&env_real, prologue, j->static_secret, token->static_public, &id, token->secret, &t->channel);
	if (err)
		return say(t, err, "the token is damaged");
	err = shake_hands(t, token);
	return err ? err : ask(t, token, listen, j);
}

static struct join_result *new_result(const struct invite_token *token, const char *name)
{
	struct join_result *j = sodium_malloc(sizeof *j);

	if (!j)
		return NULL;
	memset(j, 0, sizeof *j);
	j->header.volume = token->volume;
	if (name)
		snprintf(j->header.name, sizeof j->header.name, "%s", name);
	else
		replica_name_default(j->header.name);
	while (!j->header.replica) {
		randombytes_buf(&j->header.replica, sizeof j->header.replica);
		j->header.replica &= INT64_MAX; /* as volume_create draws them, which keeps this one */
	}
	randombytes_buf(j->static_secret, sizeof j->static_secret);
	if (crypto_scalarmult_base(j->static_public, j->static_secret)) {
		sodium_free(j);
		return NULL;
	}
	return j;
}

int join_fetch(const char *token, const char *name, const char *listen, int timeout_ms, struct join_result **ret, char error_text[static 256])
{
	struct talk t = {.fd = -1, .error = error_text, .end_ns = env_mono_ns(&env_real) + (uint64_t)timeout_ms * 1000000};
	struct invite_token *k = sodium_malloc(sizeof *k);
	struct join_result *j = NULL;
	struct address a;
	int err = -ENOMEM;

	if (!k)
		return say(&t, -ENOMEM, "out of memory");
	if (name && !replica_name_valid(name))
		err = say(&t, -EINVAL, "replica name %s: 1 to 32 of A-Z a-z 0-9 _ -", name);
	else if (listen && (address_parse(listen, &a) || !a.host[0] || strlen(listen) >= 256))
		err = say(&t, -EINVAL, "address %s: HOST:PORT is needed, as the inviter would dial it", listen);
	else if (invite_parse(token, k))
		err = say(&t, -EINVAL, "this is not a token, or it is incomplete; it is one line that begins with twofold1:");
	else if (!(j = new_result(k, name)))
		err = say(&t, -ENOMEM, "out of memory");
	else
		err = connect_and_ask(&t, k, listen, j);
	sodium_free(k);
	channel_free(t.channel);
	if (t.fd >= 0)
		close(t.fd);
	if (err)
		join_result_free(j);
	else
		*ret = j;
	return err;
}

void join_result_free(struct join_result *r) { sodium_free(r); }

static int set_peering(const char *path, const struct join_result *r, const void *secret, size_t secret_len, enum slot_kind kind)
{
	struct volume_options o = {0};
	struct peer_config p = {.replica = r->inviter};
	struct volume *v;
	int err = volume_open(path, &o, secret, secret_len, kind, &v), closed;

	if (err)
		return err;
	memcpy(p.address, r->inviter_member.address, sizeof p.address);
	err = volume_set_member(v, r->inviter, &r->inviter_member);
	if (!err)
		err = volume_set_peer(v, &p);
	closed = volume_close(v);
	return err ? err : closed;
}

int join_finish(const char *path, const struct join_result *r, const void *secret, size_t secret_len, enum slot_kind kind, struct slot_cost cost)
{
	struct header h = r->header;
	struct keyring *k = keyring_new(r->master, &h.volume, h.cipher);
	int err;

	if (!k)
		return -ENOMEM;
	header_set_static(&h, k, r->static_secret);
	keyring_free(k);
	err = slot_make(h.slot[0], 1, kind, cost, &h.volume, secret, secret_len, r->master);
	if (!err)
		err = volume_create(path, &h, r->master, false, NULL);
	if (err)
		return err;
	err = set_peering(path, r, secret, secret_len, kind);
	if (err)
		store_unmake(path);
	return err;
}
