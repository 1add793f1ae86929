/* Sealed records and pages: bytes that nobody sealed, and authentic records whose framing is anything. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t master[KEY_LEN] = {1};
static const struct id volume = {{2}};

/* Seals data as if it were length, bytes and padding. */
static void authentic(const struct keyring *k, const uint8_t *data, size_t size)
{
	static uint8_t plain[4096], sealed[24 + 4096 + 16];
	size_t n = size > sizeof plain ? sizeof plain : size;
	struct buf out = {0};
	uint8_t key[KEY_LEN];

	memset(plain, 0, sizeof plain);
	memcpy(plain, data, n);
	n = (n + 63) / 64 * 64;
	crypto_generichash(key, KEY_LEN, (const uint8_t *)"twofold record\0\0\0\0", 18, master, KEY_LEN);
	crypto_aead_xchacha20poly1305_ietf_encrypt(sealed + 24, NULL, plain, n, volume.b, ID_LEN, NULL, sealed, key);
	if (record_open(k, NULL, 0, sealed, 24 + n + 16, &out) == 0) {
		struct buf again = {0};
		if (out.len != le32_load(plain) || memcmp(out.p, plain + 4, out.len))
			abort();
		/* one encoding only: sealing it again gives as many bytes */
		if (record_seal(k, NULL, 0, out.p, out.len, &again) < 0 || again.len != 24 + n + 16)
			abort();
		buf_fini(&again);
	}
	buf_fini(&out);
}

static struct keyring *k;
static struct page_sealer *s;

/* Secrets lie in memory that the leak checker does not look into, and what they point to would look lost. */
static void free_keys(void)
{
	page_sealer_free(s);
	keyring_free(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf out = {0};
	uint8_t plain[PAGE_LEN];

	if (!k) {
		static const struct id object = {{3}};
		if (crypto_init() < 0 || !(k = keyring_new(master, &volume, CIPHER_XCHACHA20POLY1305)) ||
		    !(s = page_sealer_new(k, &object, 0)))
			abort();
		atexit(free_keys);
	}
	if (record_open(k, data, size < 8 ? size : 8, data, size, &out) == 0)
		abort();
	buf_fini(&out);
	if (size >= TAG_ENTRY_LEN + PAGE_LEN && page_open(s, data[0], data, data + TAG_ENTRY_LEN, plain) == 0)
		abort();
	authentic(k, data, size);
	return 0;
}
