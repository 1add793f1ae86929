/* The handshake. Names follow the specification (CipherState, SymmetricState, HandshakeState: sections 5.1 to 5.3).
 *
 *	state	initiator		responder
 *	0	writes 1 -> 1		reads 1 -> 1
 *	1	reads 2 -> done		writes 2 -> done
 *	done	split -> dead		split -> dead
 *	any error -> dead */
#include "noise.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#define BLOCK_LEN 128
static const char protocol_name[] = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2b";
_Static_assert(sizeof protocol_name - 1 <= NOISE_HASH_LEN, "a longer name would be hashed");

enum state { STATE_MESSAGE1, STATE_MESSAGE2, STATE_DONE, STATE_DEAD };

struct noise {
	/* SymmetricState */
	uint8_t chaining_key[NOISE_HASH_LEN];
	uint8_t hash[NOISE_HASH_LEN];
	struct noise_cipher cipher;
	/* HandshakeState */
	uint8_t s[NOISE_KEY_LEN], s_public[NOISE_KEY_LEN];
	uint8_t e[NOISE_KEY_LEN], e_public[NOISE_KEY_LEN];
	uint8_t rs[NOISE_KEY_LEN], re[NOISE_KEY_LEN];
	uint8_t psk[NOISE_KEY_LEN];
	uint8_t scratch[3 * NOISE_HASH_LEN]; /* results of DH and HKDF, so that they stay in guarded memory */
	enum noise_role role;
	enum state state;
	bool has_rs, has_psk;
};

static void transport_nonce(uint64_t counter, uint8_t ret[static 12])
{
	memset(ret, 0, 4);
	for (int i = 0; i < 8; i++)
		ret[4 + i] = (uint8_t)(counter >> 8 * i);
}

static int cipher_seal(struct noise_cipher *c, const uint8_t *ad, size_t ad_len, const uint8_t *plain, size_t len,
		       uint8_t *ret)
{
	uint8_t nonce[12];

	if (c->counter == UINT64_MAX)
		return -EOVERFLOW;
	transport_nonce(c->counter++, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt(ret, NULL, plain, len, ad, ad_len, NULL, nonce, c->key);
	return 0;
}

static int cipher_open(struct noise_cipher *c, const uint8_t *ad, size_t ad_len, const uint8_t *sealed, size_t len,
		       uint8_t *ret)
{
	uint8_t nonce[12];

	if (c->counter == UINT64_MAX)
		return -EOVERFLOW;
	if (len < NOISE_TAG_LEN)
		return -EBADMSG;
	transport_nonce(c->counter, nonce);
	if (crypto_aead_chacha20poly1305_ietf_decrypt(ret, NULL, NULL, sealed, len, ad, ad_len, nonce, c->key) != 0)
		return -EBADMSG;
	c->counter++;
	return 0;
}

int noise_cipher_seal(struct noise_cipher *c, const void *plain, size_t len, uint8_t *ret)
{
	return cipher_seal(c, NULL, 0, plain, len, ret);
}

int noise_cipher_open(struct noise_cipher *c, const uint8_t *sealed, size_t len, uint8_t *ret)
{
	return cipher_open(c, NULL, 0, sealed, len, ret);
}

/* HMAC (RFC 2104) with BLAKE2b-512 of a | b. */
static void hmac(const uint8_t key[static NOISE_HASH_LEN], const uint8_t *a, size_t a_len, const uint8_t *b,
		 size_t b_len, uint8_t ret[static NOISE_HASH_LEN])
{
	crypto_generichash_state st;
	uint8_t pad[BLOCK_LEN], inner[NOISE_HASH_LEN];

	memset(pad, 0x36, sizeof pad);
	for (int i = 0; i < NOISE_HASH_LEN; i++)
		pad[i] ^= key[i];
	crypto_generichash_init(&st, NULL, 0, NOISE_HASH_LEN);
	crypto_generichash_update(&st, pad, sizeof pad);
	if (a_len)
		crypto_generichash_update(&st, a, a_len);
	if (b_len)
		crypto_generichash_update(&st, b, b_len);
	crypto_generichash_final(&st, inner, sizeof inner);

	for (int i = 0; i < BLOCK_LEN; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	crypto_generichash_init(&st, NULL, 0, NOISE_HASH_LEN);
	crypto_generichash_update(&st, pad, sizeof pad);
	crypto_generichash_update(&st, inner, sizeof inner);
	crypto_generichash_final(&st, ret, NOISE_HASH_LEN);
	sodium_memzero(&st, sizeof st);
	sodium_memzero(pad, sizeof pad);
	sodium_memzero(inner, sizeof inner);
}

/* HKDF(chaining key, input): count (2 or 3) outputs of NOISE_HASH_LEN into scratch; input may lie there too. */
static void hkdf(struct noise *n, const uint8_t *input, size_t len, int count)
{
	uint8_t temp[NOISE_HASH_LEN], *out = n->scratch;

	hmac(n->chaining_key, input, len, NULL, 0, temp);
	for (uint8_t i = 1; i <= count; i++, out += NOISE_HASH_LEN)
		hmac(temp, i > 1 ? out - NOISE_HASH_LEN : NULL, i > 1 ? NOISE_HASH_LEN : 0, &i, 1, out);
	sodium_memzero(temp, sizeof temp);
}

static void mix_hash(struct noise *n, const void *p, size_t len)
{
	crypto_generichash_state st;

	crypto_generichash_init(&st, NULL, 0, NOISE_HASH_LEN);
	crypto_generichash_update(&st, n->hash, NOISE_HASH_LEN);
	if (len)
		crypto_generichash_update(&st, p, len);
	crypto_generichash_final(&st, n->hash, NOISE_HASH_LEN);
}

static void set_cipher(struct noise_cipher *c, const uint8_t *key)
{
	memcpy(c->key, key, NOISE_KEY_LEN);
	c->counter = 0;
}

static void mix_key(struct noise *n, const uint8_t *input, size_t len)
{
	hkdf(n, input, len, 2);
	memcpy(n->chaining_key, n->scratch, NOISE_HASH_LEN);
	set_cipher(&n->cipher, n->scratch + NOISE_HASH_LEN);
	sodium_memzero(n->scratch, sizeof n->scratch);
}

static void mix_key_and_hash(struct noise *n, const uint8_t *input, size_t len)
{
	hkdf(n, input, len, 3);
	memcpy(n->chaining_key, n->scratch, NOISE_HASH_LEN);
	mix_hash(n, n->scratch + NOISE_HASH_LEN, NOISE_HASH_LEN);
	set_cipher(&n->cipher, n->scratch + 2 * NOISE_HASH_LEN);
	sodium_memzero(n->scratch, sizeof n->scratch);
}

static int mix_dh(struct noise *n, const uint8_t *secret, const uint8_t *public)
{
	/* an all-zero result comes of a point of low order: the key would not depend on the secret */
	if (crypto_scalarmult(n->scratch, secret, public) != 0 || sodium_is_zero(n->scratch, NOISE_KEY_LEN))
		return -EBADMSG;
	mix_key(n, n->scratch, NOISE_KEY_LEN);
	return 0;
}

/* With a psk in the handshake the ephemeral keys also go into the chaining key (section 9.2). */
static void mix_ephemeral(struct noise *n, const uint8_t *public)
{
	mix_hash(n, public, NOISE_KEY_LEN);
	mix_key(n, public, NOISE_KEY_LEN);
}

static int encrypt_and_hash(struct noise *n, const uint8_t *plain, size_t len, uint8_t *ret)
{
	int r = cipher_seal(&n->cipher, n->hash, NOISE_HASH_LEN, plain, len, ret);

	if (r == 0)
		mix_hash(n, ret, len + NOISE_TAG_LEN);
	return r;
}

static int decrypt_and_hash(struct noise *n, const uint8_t *sealed, size_t len, uint8_t *ret)
{
	int r = cipher_open(&n->cipher, n->hash, NOISE_HASH_LEN, sealed, len, ret);

	if (r == 0)
		mix_hash(n, sealed, len);
	return r;
}

struct noise *noise_new(enum noise_role role, const void *prologue, size_t prologue_len,
			const uint8_t static_secret[static NOISE_KEY_LEN], const uint8_t *remote_static,
			const uint8_t ephemeral_secret[static NOISE_KEY_LEN])
{
	struct noise *n = sodium_malloc((sizeof *n + 15) & ~(size_t)15);

	if (!n)
		return NULL;
	memset(n, 0, sizeof *n);
	n->role = role;
	memcpy(n->s, static_secret, NOISE_KEY_LEN);
	memcpy(n->e, ephemeral_secret, NOISE_KEY_LEN);
	if (crypto_scalarmult_base(n->s_public, n->s) != 0 || crypto_scalarmult_base(n->e_public, n->e) != 0) {
		noise_free(n);
		return NULL;
	}
	memcpy(n->hash, protocol_name, sizeof protocol_name - 1);
	memcpy(n->chaining_key, n->hash, NOISE_HASH_LEN);
	mix_hash(n, prologue, prologue_len);
	if (role == NOISE_INITIATOR) {
		memcpy(n->rs, remote_static, NOISE_KEY_LEN);
		n->has_rs = true;
		mix_hash(n, n->rs, NOISE_KEY_LEN);
	} else {
		mix_hash(n, n->s_public, NOISE_KEY_LEN);
	}
	return n;
}

void noise_free(struct noise *n) { sodium_free(n); }

void noise_set_psk(struct noise *n, const uint8_t psk[static NOISE_KEY_LEN])
{
	memcpy(n->psk, psk, NOISE_KEY_LEN);
	n->has_psk = true;
}

/* -> e, es, s, ss, payload */
static int write_message1(struct noise *n, const uint8_t *payload, size_t len, uint8_t *ret)
{
	int r;

	memcpy(ret, n->e_public, NOISE_KEY_LEN);
	mix_ephemeral(n, n->e_public);
	r = mix_dh(n, n->e, n->rs);
	if (r < 0)
		return r;
	r = encrypt_and_hash(n, n->s_public, NOISE_KEY_LEN, ret + 32);
	if (r < 0)
		return r;
	r = mix_dh(n, n->s, n->rs);
	if (r < 0)
		return r;
	return encrypt_and_hash(n, payload, len, ret + 32 + 32 + NOISE_TAG_LEN);
}

static int read_message1(struct noise *n, const uint8_t *m, size_t len, uint8_t *ret_payload)
{
	int r;

	memcpy(n->re, m, NOISE_KEY_LEN);
	mix_ephemeral(n, n->re);
	r = mix_dh(n, n->s, n->re);
	if (r < 0)
		return r;
	r = decrypt_and_hash(n, m + 32, 32 + NOISE_TAG_LEN, n->rs);
	if (r < 0)
		return r;
	r = mix_dh(n, n->s, n->rs);
	if (r < 0)
		return r;
	r = decrypt_and_hash(n, m + 80, len - 80, ret_payload);
	n->has_rs = r == 0;
	return r;
}

/* <- e, ee, se, psk, payload */
static int write_message2(struct noise *n, const uint8_t *payload, size_t len, uint8_t *ret)
{
	int r;

	memcpy(ret, n->e_public, NOISE_KEY_LEN);
	mix_ephemeral(n, n->e_public);
	r = mix_dh(n, n->e, n->re);
	if (r < 0)
		return r;
	r = mix_dh(n, n->e, n->rs);
	if (r < 0)
		return r;
	mix_key_and_hash(n, n->psk, NOISE_KEY_LEN);
	return encrypt_and_hash(n, payload, len, ret + 32);
}

static int read_message2(struct noise *n, const uint8_t *m, size_t len, uint8_t *ret_payload)
{
	int r;

	memcpy(n->re, m, NOISE_KEY_LEN);
	mix_ephemeral(n, n->re);
	r = mix_dh(n, n->e, n->re);
	if (r < 0)
		return r;
	r = mix_dh(n, n->s, n->re);
	if (r < 0)
		return r;
	mix_key_and_hash(n, n->psk, NOISE_KEY_LEN);
	return decrypt_and_hash(n, m + 32, len - 32, ret_payload);
}

/* Moves on, or dies of the error. */
static int advance(struct noise *n, int r)
{
	if (r < 0) {
		sodium_memzero(n, sizeof *n);
		n->state = STATE_DEAD;
		return r;
	}
	n->state++;
	return 0;
}

int noise_write(struct noise *n, const void *payload, size_t len, uint8_t *ret)
{
	if (len > NOISE_MESSAGE_MAX - NOISE_MESSAGE1_LEN(0))
		return advance(n, -EMSGSIZE);
	if (n->role == NOISE_INITIATOR && n->state == STATE_MESSAGE1)
		return advance(n, write_message1(n, payload, len, ret));
	if (n->role == NOISE_RESPONDER && n->state == STATE_MESSAGE2 && n->has_psk)
		return advance(n, write_message2(n, payload, len, ret));
	return advance(n, -EPROTO);
}

int noise_read(struct noise *n, const uint8_t *message, size_t len, uint8_t *ret_payload, size_t *ret_len)
{
	size_t least = n->role == NOISE_RESPONDER ? NOISE_MESSAGE1_LEN(0) : NOISE_MESSAGE2_LEN(0);
	int r = -EPROTO;

	if (len > NOISE_MESSAGE_MAX)
		return advance(n, -EMSGSIZE);
	if (len < least)
		return advance(n, -EPROTO);
	if (n->role == NOISE_RESPONDER && n->state == STATE_MESSAGE1)
		r = advance(n, read_message1(n, message, len, ret_payload));
	else if (n->role == NOISE_INITIATOR && n->state == STATE_MESSAGE2 && n->has_psk)
		r = advance(n, read_message2(n, message, len, ret_payload));
	else
		return advance(n, -EPROTO);
	if (r == 0)
		*ret_len = len - least;
	return r;
}

const uint8_t *noise_remote_static(const struct noise *n) { return n->has_rs ? n->rs : NULL; }

bool noise_done(const struct noise *n) { return n->state == STATE_DONE; }

int noise_split(struct noise *n, struct noise_cipher *ret_send, struct noise_cipher *ret_receive,
		uint8_t ret_handshake_hash[static NOISE_HASH_LEN])
{
	bool initiator = n->role == NOISE_INITIATOR;

	if (n->state != STATE_DONE)
		return -EPROTO;
	memcpy(ret_handshake_hash, n->hash, NOISE_HASH_LEN);
	hkdf(n, NULL, 0, 2);
	set_cipher(initiator ? ret_send : ret_receive, n->scratch);
	set_cipher(initiator ? ret_receive : ret_send, n->scratch + NOISE_HASH_LEN);
	sodium_memzero(n, sizeof *n);
	n->state = STATE_DEAD;
	return 0;
}
