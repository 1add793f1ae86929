/* The keyring: every subkey is derived once, when the volume is opened, and lies in one guarded, read-only allocation.
 * Runs on every thread without locks: nothing changes after keyring_new. */
#include "keys.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "derive.h"
#include "sanitizer.h"

/* The epoch that every subkey is derived for. Later epochs get keyrings of their own; objects and records carry theirs. */
#define KEY_EPOCH 0

struct keyring {
	struct id volume;
	enum cipher cipher;
	uint8_t master[KEY_LEN];
	uint8_t content[KEY_LEN];
	uint8_t record[KEY_LEN];
	uint8_t index[KEY_LEN];
	uint8_t root[KEY_LEN];
	uint8_t header[KEY_LEN];
	uint8_t membership[KEY_LEN];
	struct pool *sealers; /* owned, but for what sealers still hold */
};

static const struct {
	enum cipher cipher;
	const char *name;
} ciphers[] = {
	{CIPHER_XCHACHA20POLY1305, "xchacha20poly1305"},
	{CIPHER_AES256GCM, "aes256gcm"},
	{CIPHER_NONE, "none"},
};

const char *cipher_name(enum cipher c)
{
	for (size_t i = 0; i < sizeof ciphers / sizeof *ciphers; i++)
		if (ciphers[i].cipher == c)
			return ciphers[i].name;
	return NULL;
}

int cipher_parse(const char *name, enum cipher *ret)
{
	for (size_t i = 0; i < sizeof ciphers / sizeof *ciphers; i++) {
		if (!strcmp(ciphers[i].name, name)) {
			*ret = ciphers[i].cipher;
			return 0;
		}
	}
	return -EINVAL;
}

bool cipher_available(enum cipher c)
{
	if (c == CIPHER_AES256GCM)
		return crypto_aead_aes256gcm_is_available() == 1;
	return cipher_name(c) != NULL;
}

int crypto_init(void)
{
	if (sodium_init() < 0)
		return -EIO;
#ifndef UNDER_ADDRESS_SANITIZER /* the leak check at exit traces the process, which an undumpable one refuses */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return -EIO;
#endif
	if (setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) < 0)
		return -EIO;
	return 0;
}

void derive(const uint8_t key[static KEY_LEN], const void *a, size_t a_len, const void *b, size_t b_len, const void *c,
	    size_t c_len, uint8_t *ret, size_t ret_len)
{
	crypto_generichash_state st;

	assert(ret_len >= crypto_generichash_BYTES_MIN && ret_len <= crypto_generichash_BYTES_MAX);
	crypto_generichash_init(&st, key, KEY_LEN, ret_len);
	crypto_generichash_update(&st, a, a_len);
	if (b_len)
		crypto_generichash_update(&st, b, b_len);
	if (c_len)
		crypto_generichash_update(&st, c, c_len);
	crypto_generichash_final(&st, ret, ret_len);
	sodium_memzero(&st, sizeof st);
}

static void subkey(const struct keyring *k, const char *label, uint8_t ret[static KEY_LEN])
{
	uint8_t epoch[4];

	le32_store(epoch, KEY_EPOCH);
	derive(k->master, label, strlen(label), epoch, sizeof epoch, NULL, 0, ret, KEY_LEN);
}

struct keyring *keyring_new(const uint8_t master[static KEY_LEN], const struct id *volume, enum cipher cipher)
{
	struct keyring *k = sodium_malloc((sizeof *k + 15) & ~(size_t)15);

	if (!k)
		return NULL;
	k->sealers = pool_new(page_sealer_len(cipher));
	if (!k->sealers) {
		sodium_free(k);
		return NULL;
	}
	k->volume = *volume;
	k->cipher = cipher;
	memcpy(k->master, master, KEY_LEN);
	subkey(k, "twofold content", k->content);
	subkey(k, "twofold record", k->record);
	subkey(k, "twofold index", k->index);
	subkey(k, "twofold root", k->root);
	subkey(k, "twofold header", k->header);
	subkey(k, "twofold membership", k->membership);
	sodium_mprotect_readonly(k);
	return k;
}

void keyring_free(struct keyring *k)
{
	if (!k)
		return;
	pool_release(k->sealers);
	sodium_free(k); /* makes the pages writable and wipes them itself */
}

const struct id *keyring_volume(const struct keyring *k) { return &k->volume; }

enum cipher keyring_cipher(const struct keyring *k) { return k->cipher; }

const uint8_t *keyring_master(const struct keyring *k) { return k->master; }

const uint8_t *keyring_record_key(const struct keyring *k) { return k->record; }

struct pool *keyring_sealer_pool(const struct keyring *k) { return k->sealers; }

void keyring_psk(const struct keyring *k, uint8_t ret_psk[static KEY_LEN])
{
	derive(k->membership, "psk", 3, NULL, 0, NULL, 0, ret_psk, KEY_LEN);
}

void keyring_index_tag(const struct keyring *k, const struct id *parent, const void *name, size_t len,
		       uint8_t ret_tag[static INDEX_TAG_LEN])
{
	derive(k->index, parent->b, ID_LEN, name, len, NULL, 0, ret_tag, INDEX_TAG_LEN);
}

#define HEADER_NONCE_LEN crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define HEADER_TAG_LEN crypto_aead_xchacha20poly1305_ietf_ABYTES

void keyring_seal_header(const struct keyring *k, const void *aad, size_t aad_len, const void *p, size_t len,
			 uint8_t *ret_sealed)
{
	randombytes_buf(ret_sealed, HEADER_NONCE_LEN);
	crypto_aead_xchacha20poly1305_ietf_encrypt(ret_sealed + HEADER_NONCE_LEN, NULL, p, len, aad, aad_len, NULL,
						   ret_sealed, k->header);
}

int keyring_open_header(const struct keyring *k, const void *aad, size_t aad_len, const uint8_t *sealed,
			size_t sealed_len, uint8_t *ret)
{
	if (sealed_len < HEADER_NONCE_LEN + HEADER_TAG_LEN ||
	    crypto_aead_xchacha20poly1305_ietf_decrypt(ret, NULL, NULL, sealed + HEADER_NONCE_LEN,
						       sealed_len - HEADER_NONCE_LEN, aad, aad_len, sealed,
						       k->header) != 0)
		return -EBADMSG;
	return 0;
}

void keyring_header_mac(const struct keyring *k, const void *p, size_t len, uint8_t ret_mac[static 32])
{
	derive(k->header, p, len, NULL, 0, NULL, 0, ret_mac, 32);
}

void root_add(struct root *r, const struct root *term)
{
	unsigned __int128 sum = 0;

	for (int i = 0; i < ROOT_LEN; i += 8) {
		sum += (unsigned __int128)le64_load(r->b + i) + le64_load(term->b + i);
		le64_store(r->b + i, (uint64_t)sum);
		sum >>= 64;
	}
}

void root_sub(struct root *r, const struct root *term)
{
	bool borrow = false;

	for (int i = 0; i < ROOT_LEN; i += 8) {
		uint64_t a = le64_load(r->b + i), b = le64_load(term->b + i), d;
		bool under = __builtin_sub_overflow(a, b, &d);
		borrow = __builtin_sub_overflow(d, (uint64_t)borrow, &d) || under;
		le64_store(r->b + i, d);
	}
}

void keyring_page_term(const struct keyring *k, uint64_t page, const uint8_t entry[static 32], struct root *ret)
{
	uint8_t in[4 + 8 + 32] = "page";

	le64_store(in + 4, page);
	memcpy(in + 12, entry, 32);
	derive(k->root, in, sizeof in, NULL, 0, NULL, 0, ret->b, ROOT_LEN);
}

void keyring_record_term(const struct keyring *k, const void *record, size_t len, struct root *ret)
{
	derive(k->root, "record", 6, record, len, NULL, 0, ret->b, ROOT_LEN);
}

void keyring_object_key(const struct keyring *k, const struct id *object, uint32_t epoch, uint8_t ret_key[static KEY_LEN])
{
	uint8_t e[4];

	le32_store(e, epoch);
	derive(k->content, object->b, ID_LEN, e, sizeof e, NULL, 0, ret_key, KEY_LEN);
}
