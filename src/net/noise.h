/* Noise_IKpsk2_25519_ChaChaPoly_BLAKE2b (Noise Protocol Framework, revision 34) as a passive state machine: bytes in,
 * bytes out, no I/O, one thread at a time.
 *
 *	pre   <- s                          the initiator knows the responder's static key
 *	 1    -> e, es, s, ss, payload      ephemeral 32 | sealed static key 32+16 | sealed payload n+16
 *	 2    <- e, ee, se, psk, payload    ephemeral 32 | sealed payload n+16
 *
 * Hash: BLAKE2b-512, HMAC's block 128 bytes. Nonce: 4 zero bytes | counter u64 little-endian. Keys derived as 64 bytes are
 * cut to 32.
 *
 * What message 1 proves: nothing yet. It can be replayed by whoever saw it, and is not secret from whoever gets the
 * responder's static key later. Only when the first transport message opens has the initiator proved to be there and
 * to know the psk: until then nothing of it may be acted upon. */
#ifndef TWOFOLD_NOISE_H
#define TWOFOLD_NOISE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOISE_KEY_LEN 32
#define NOISE_HASH_LEN 64
#define NOISE_TAG_LEN 16
#define NOISE_MESSAGE_MAX 65535
#define NOISE_MESSAGE1_LEN(payload_len) (32 + 32 + NOISE_TAG_LEN + (payload_len) + NOISE_TAG_LEN)
#define NOISE_MESSAGE2_LEN(payload_len) (32 + (payload_len) + NOISE_TAG_LEN)

enum noise_role { NOISE_INITIATOR, NOISE_RESPONDER };

/* One direction of the transport. Lies in the caller's guarded memory. */
struct noise_cipher {
	uint8_t key[NOISE_KEY_LEN];
	uint64_t counter; /* of the next message */
};
/* Seal and open one transport message, empty additional data. ret: len + NOISE_TAG_LEN and len - NOISE_TAG_LEN bytes; may
 * be the input's place. 0; -EOVERFLOW: the counter is used up; open: -EBADMSG (the counter stays). */
int noise_cipher_seal(struct noise_cipher *c, const void *plain, size_t len, uint8_t *ret);
int noise_cipher_open(struct noise_cipher *c, const uint8_t *sealed, size_t len, uint8_t *ret);

struct noise; /* a handshake; sodium_malloc'ed, wiped by noise_free */
/* static_secret and prologue are copied. remote_static: the initiator's knowledge of the responder, NULL for a responder.
 * ephemeral_secret: 32 fresh random bytes, copied; the caller wipes its own. NULL without memory. */
struct noise *noise_new(enum noise_role role, const void *prologue, size_t prologue_len,
			const uint8_t static_secret[static NOISE_KEY_LEN], const uint8_t *remote_static,
			const uint8_t ephemeral_secret[static NOISE_KEY_LEN]);
void noise_free(struct noise *n);
/* Before message 2 is written or read: the responder may choose it by message 1's payload and noise_remote_static. */
void noise_set_psk(struct noise *n, const uint8_t psk[static NOISE_KEY_LEN]);

/* Writes this side's message. ret: NOISE_MESSAGE1_LEN or NOISE_MESSAGE2_LEN of len bytes.
 * 0; -EPROTO: not this side's turn, or no psk; -EMSGSIZE; -EBADMSG: a key of the peer is a point of low order. After an
 * error the handshake is dead: everything returns -EPROTO. */
int noise_write(struct noise *n, const void *payload, size_t len, uint8_t *ret);
/* Reads the peer's message. ret_payload has room for len bytes and does not overlap message; *ret_len of them are set.
 * 0; -EPROTO: not its turn, too short, no psk; -EMSGSIZE; -EBADMSG: does not authenticate, or low order. */
int noise_read(struct noise *n, const uint8_t *message, size_t len, uint8_t *ret_payload, size_t *ret_len);
/* The peer's static key; NULL where a responder has not read message 1. Borrowed. */
const uint8_t *noise_remote_static(const struct noise *n);
bool noise_done(const struct noise *n); /* message 2 was written or read */
/* After noise_done, once: the transport ciphers of this side. -EPROTO otherwise. */
int noise_split(struct noise *n, struct noise_cipher *ret_send, struct noise_cipher *ret_receive,
		uint8_t ret_handshake_hash[static NOISE_HASH_LEN]);
#endif
