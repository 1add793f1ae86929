/* Sealing of records (design-store 5): small, rare next to pages, always XChaCha20-Poly1305 with a random nonce. */
#include <errno.h>
#include <sodium.h>

#include "cleanup.h"
#include "derive.h"
#include "random.h"
#include "seal.h"

#define NONCE_LEN crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_LEN crypto_aead_xchacha20poly1305_ietf_ABYTES
#define LENGTH_LEN 4
#define PAD 64

static size_t padded(size_t len) { return (LENGTH_LEN + len + PAD - 1) / PAD * PAD; }

/* volume id | aad, the additional data of a record. */
static int make_aad(const struct keyring *k, const void *aad, size_t aad_len, struct buf *ret)
{
	buf_put(ret, keyring_volume(k)->b, ID_LEN);
	buf_put(ret, aad, aad_len);
	return ret->err;
}

int record_seal(const struct keyring *k, const void *aad, size_t aad_len, const void *plain, size_t len, struct buf *out)
{
	struct buf full CLEANUP(buf_fini) = {0};
	uint8_t *p;
	int r;

	if (len > RECORD_MAX)
		return -EMSGSIZE;
	r = make_aad(k, aad, aad_len, &full);
	if (r < 0)
		return r;
	p = buf_grow(out, NONCE_LEN + padded(len) + TAG_LEN);
	if (!p)
		return out->err;
	random_bytes(p, NONCE_LEN);
	le32_store(p + NONCE_LEN, (uint32_t)len);
	if (len)
		memcpy(p + NONCE_LEN + LENGTH_LEN, plain, len);
	crypto_aead_xchacha20poly1305_ietf_encrypt(p + NONCE_LEN, NULL, p + NONCE_LEN, padded(len), full.p, full.len, NULL,
						   p, keyring_record_key(k));
	return 0;
}

int record_open(const struct keyring *k, const void *aad, size_t aad_len, const uint8_t *sealed, size_t sealed_len,
		struct buf *ret)
{
	struct buf full CLEANUP(buf_fini) = {0}, plain = {0};
	size_t n, len;
	int r;

	if (sealed_len < NONCE_LEN + PAD + TAG_LEN || sealed_len > NONCE_LEN + padded(RECORD_MAX) + TAG_LEN)
		return -EBADMSG;
	n = sealed_len - NONCE_LEN - TAG_LEN;
	if (n % PAD)
		return -EBADMSG;
	r = make_aad(k, aad, aad_len, &full);
	if (r < 0)
		return r;
	if (!buf_grow(&plain, n))
		return plain.err;
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(plain.p, NULL, NULL, sealed + NONCE_LEN, n + TAG_LEN, full.p,
						       full.len, sealed, keyring_record_key(k)) != 0) {
		buf_fini(&plain);
		return -EBADMSG;
	}
	len = le32_load(plain.p);
	/* one encoding for one record: neither more padding than needed nor anything in it */
	if (len > RECORD_MAX || padded(len) != n ||
	    !sodium_is_zero(plain.p + LENGTH_LEN + len, n - LENGTH_LEN - len)) {
		buf_fini(&plain);
		return -EUCLEAN;
	}
	memmove(plain.p, plain.p + LENGTH_LEN, len);
	plain.len = len;
	buf_fini(ret);
	*ret = plain;
	return 0;
}
