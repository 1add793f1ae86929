/* The channel's input. The first byte says what the rest is:
 *	0 a stream for a fresh responder           1 a stream for a fresh initiator
 *	2 a stream for an initiator after the handshake
 *	3 plaintext that an authenticated peer seals: cut into frames and fed in pieces, sizes taken from the data */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t key_i[32] = {1}, key_r[32] = {2}, eph_r[32] = {4}, psk[32] = {5};
static const uint8_t public_r[32] = {
	0x2f, 0xe5, 0x7d, 0xa3, 0x47, 0xcd, 0x62, 0x43, 0x15, 0x28, 0xda, 0xac, 0x5f, 0xbb, 0x29, 0x07,
	0x30, 0xff, 0xf6, 0x84, 0xaf, 0xc4, 0xcf, 0xc2, 0xed, 0x90, 0x99, 0x5f, 0x58, 0xcb, 0x3b, 0x74,
};
static const struct channel_psk_id psk_id = {CHANNEL_PSK_MEMBER, {{6}}};

static uint64_t no_time(void *ctx) { return 0; }
static void no_random(void *ctx, void *p, size_t len) { memset(p, 3, len); }
static const struct env env = {no_time, no_time, no_random, NULL};

static int accept_all(void *ctx, const struct channel_psk_id *id, const uint8_t remote[static 32],
		      uint8_t ret_psk[static 32])
{
	memcpy(ret_psk, psk, 32);
	return 0;
}

/* Messages are only whole ones: their bodies are summed so that a sanitizer sees every byte. */
static void drain(struct channel *c)
{
	static volatile unsigned sum __attribute__((unused));
	struct channel_message m;

	while (channel_next_message(c, &m) == 1) {
		if (m.len > CHANNEL_BODY_MAX)
			abort();
		for (size_t i = 0; i < m.len; i++)
			sum += m.body[i];
	}
}

static struct channel *fresh(enum noise_role role)
{
	uint8_t prologue[CHANNEL_PROLOGUE_LEN];
	struct channel *c;

	channel_prologue(&psk_id.id, prologue);
	int r = role == NOISE_INITIATOR
			? channel_new_initiator(&env, prologue, key_i, public_r, &psk_id, psk, &c)
			: channel_new_responder(&env, prologue, key_r, accept_all, NULL, &c);
	if (r < 0)
		abort();
	return c;
}

/* An initiator after the handshake with a peer whose cipher is ret_send. */
static struct channel *connected(struct noise_cipher *ret_send)
{
	struct channel *c = fresh(NOISE_INITIATOR);
	uint8_t prologue[CHANNEL_PROLOGUE_LEN], payload[113], m2[2 + 48] = {48, 0}, h[NOISE_HASH_LEN];
	struct noise_cipher receive;
	struct noise *n;
	size_t len;

	channel_prologue(&psk_id.id, prologue);
	n = noise_new(NOISE_RESPONDER, prologue, sizeof prologue, key_r, NULL, eph_r);
	const uint8_t *m1 = channel_output(c, &len);
	if (!n || len != 115 || noise_read(n, m1 + 2, 113, payload, &len) < 0)
		abort();
	noise_set_psk(n, psk);
	if (noise_write(n, NULL, 0, m2 + 2) < 0 || noise_split(n, ret_send, &receive, h) < 0 ||
	    channel_feed(c, m2, sizeof m2) < 0 || !channel_ready(c))
		abort();
	noise_free(n);
	return c;
}

static void feed_pieces(struct channel *c, const uint8_t *p, size_t len, size_t piece)
{
	for (size_t at = 0; at < len; at += piece) {
		int r = channel_feed(c, p + at, piece < len - at ? piece : len - at);
		if ((r < 0) != (channel_error(c) != NULL))
			abort();
		drain(c);
	}
}

static void authentic(const uint8_t *data, size_t size)
{
	static uint8_t frame[2 + 65535];
	struct noise_cipher send;
	struct channel *c = connected(&send);

	while (size > 2) {
		/* two bytes of sizes before each frame's plaintext */
		size_t len = 1 + data[0], piece = 1 + data[1];
		data += 2;
		size -= 2;
		len = len < size ? len : size;
		le16_store(frame, (uint16_t)(len + NOISE_TAG_LEN));
		if (noise_cipher_seal(&send, data, len, frame + 2) < 0)
			abort();
		feed_pieces(c, frame, 2 + len + NOISE_TAG_LEN, piece);
		/* every frame is authentic: only a message's length can be wrong */
		if (channel_error(c) && channel_feed(c, frame, 1) != -EMSGSIZE)
			abort();
		data += len;
		size -= len;
	}
	channel_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct noise_cipher send;
	struct channel *c;

	if (crypto_init() < 0)
		abort();
	if (size < 2)
		return 0;
	switch (data[0] % 4) {
	case 0:
		c = fresh(NOISE_RESPONDER);
		break;
	case 1:
		c = fresh(NOISE_INITIATOR);
		break;
	case 2:
		c = connected(&send);
		break;
	default:
		authentic(data + 1, size - 1);
		return 0;
	}
	feed_pieces(c, data + 2, size - 2, 1 + data[1]);
	channel_free(c);
	return 0;
}
