/* The encrypted channel between two replicas: messages over a byte stream, as a passive state machine. Bytes from the
 * stream are fed in, messages come out; messages are sent in, bytes for the stream come out. No I/O, no threads: one
 * thread at a time uses a channel.
 *
 * On the stream, in both directions, numbers little-endian:
 *
 *	frame = length u16 | sealed (length bytes)
 *
 * The first frame of each side is its handshake message (noise.h). Prologue: "twofold" 7 | protocol version u16 |
 * volume id 16.
 *
 *	initiator -> responder   113: message 1, payload = psk kind u8 | psk id 16
 *	responder -> initiator    48: message 2, payload empty
 *
 * Psk kinds: 1 member (id: the volume's; psk: keyring_psk), 2 token (id: the token's; psk: the token's secret).
 * All further frames are transport messages: length 17..65,535, so 1 to 65,519 bytes of plaintext. The plaintexts of one
 * direction, one after another, are one stream of messages; frames and messages begin and end independently of each other:
 * small messages share a frame, a large one spans several.
 *
 *	message = type u8 | request u32 | body length u32 | body
 *
 * A body is at most CHANNEL_BODY_MAX bytes: a longer one ends the channel before anything is allocated.
 *
 * The initiator speaks first. The responder sends nothing but message 2, and hands out and accepts no message, before the
 * initiator's first transport frame has opened: before, message 1 may be a replay (psk and static key do not count yet).
 * Frames carry their number in the nonce: one that is repeated, left out or moved does not open. A stream that is cut at a
 * frame's end is not noticed here: what must be complete says so in a message.
 *
 * An error is final; channel_error says it in words that may be shown. */
#ifndef TWOFOLD_CHANNEL_H
#define TWOFOLD_CHANNEL_H
#include <sys/uio.h>

#include "env.h"
#include "ids.h"
#include "noise.h"

#define CHANNEL_PROTOCOL_VERSION 1
#define CHANNEL_PROLOGUE_LEN (7 + 2 + ID_LEN)
#define CHANNEL_FRAME_PLAIN_MAX (65535 - NOISE_TAG_LEN)
#define CHANNEL_MESSAGE_HEADER_LEN 9
#define CHANNEL_BODY_MAX ((4u << 20) + (64u << 10))
#define CHANNEL_OUTPUT_MAX (32u << 20) /* unsent bytes above which channel_send refuses */
#define CHANNEL_REHANDSHAKE_NS (UINT64_C(3600) * 1000000000)
#define CHANNEL_REHANDSHAKE_BYTES (UINT64_C(64) << 30)

enum channel_psk_kind { CHANNEL_PSK_MEMBER = 1, CHANNEL_PSK_TOKEN = 2 };
/* Which pre-shared key the initiator uses: message 1's payload. */
struct channel_psk_id {
	uint8_t kind; /* unknown ones reach the callback, which refuses them */
	struct id id;
};

void channel_prologue(const struct id *volume, uint8_t ret[static CHANNEL_PROLOGUE_LEN]);

struct channel; /* keys in sodium_malloc memory; wiped by channel_free */
/* Makes the initiator's side; message 1 is ready in channel_output. env: clock and the ephemeral key's randomness, borrowed
 * for the channel's life. All else is copied. 0; -ENOMEM; -EBADMSG: remote_static is a point of low order. */
int channel_new_initiator(const struct env *env, const uint8_t prologue[static CHANNEL_PROLOGUE_LEN],
			  const uint8_t static_secret[static NOISE_KEY_LEN],
			  const uint8_t remote_static[static NOISE_KEY_LEN], const struct channel_psk_id *psk_id,
			  const uint8_t psk[static NOISE_KEY_LEN], struct channel **ret);
/* Called within channel_feed when message 1 has been read: 0 and the psk in ret_psk (guarded memory), or a negative errno
 * that refuses the peer and becomes the channel's error; nothing is then sent. Message 1 may be a replay: look up, change
 * nothing. */
typedef int (*channel_accept_fn)(void *ctx, const struct channel_psk_id *psk_id,
				 const uint8_t remote_static[static NOISE_KEY_LEN],
				 uint8_t ret_psk[static NOISE_KEY_LEN]);
/* The responder's side. 0; -ENOMEM. */
int channel_new_responder(const struct env *env, const uint8_t prologue[static CHANNEL_PROLOGUE_LEN],
			  const uint8_t static_secret[static NOISE_KEY_LEN], channel_accept_fn accept, void *ctx,
			  struct channel **ret);
void channel_free(struct channel *c);

/* Takes bytes from the stream, split anywhere, all of them. Fetch the messages after each call: what was fed and not fetched
 * is kept in memory. 0, or the channel's error: -EBADMSG: does not authenticate; -EPROTO: breaks the format; -EMSGSIZE: a
 * body over the maximum; -ENOMEM; what accept said. */
int channel_feed(struct channel *c, const void *p, size_t len);

struct channel_message {
	uint8_t type;
	uint32_t request;
	const uint8_t *body; /* borrowed until the next channel_feed or channel_free */
	size_t len;
};
/* 1 and the next complete message; 0: none yet; the channel's error, once the messages before it are fetched. */
int channel_next_message(struct channel *c, struct channel_message *ret);

/* The handshake is over and, for a responder, the initiator's first transport frame has opened. */
bool channel_ready(const struct channel *c);
/* Queues a message; body is the n parts one after another, copied once, into the frame in which it is sealed in place.
 * 0; -ENOTCONN: not ready yet; -EMSGSIZE; -EAGAIN: CHANNEL_OUTPUT_MAX reached, send what is there first; -ENOMEM; the
 * channel's error. Nothing was queued then. */
int channel_send(struct channel *c, uint8_t type, uint32_t request, const struct iovec *body, int n);
/* Bytes to write to the stream, *ret_len 0 where there are none. Seals the frame that was being filled: call it when the
 * stream can take bytes, not after each message. Borrowed until the next channel_send, channel_feed or channel_sent. Works
 * after an error too: what was queued before it. */
const uint8_t *channel_output(struct channel *c, size_t *ret_len);
void channel_sent(struct channel *c, size_t len); /* the first len of them are written */
/* Bytes queued and not yet sent, for flow control; does not seal. */
size_t channel_unsent(const struct channel *c);

/* True once an hour or 64 GiB (in one direction) are over: the connection layer connects anew and drops this channel. */
bool channel_wants_rehandshake(const struct channel *c);
/* NULL before message 1 was read. Borrowed. Not proven before channel_ready. */
const uint8_t *channel_remote_static(const struct channel *c);
/* Names this very session on both sides (Noise's h, NOISE_HASH_LEN bytes): for binding other proofs to it. NULL before message 2. */
const uint8_t *channel_handshake_hash(const struct channel *c);
/* Why the channel is broken, NULL while it is not. Borrowed. */
const char *channel_error(const struct channel *c);
#endif
