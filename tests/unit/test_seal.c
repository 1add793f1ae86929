/* Pages and records: what was sealed opens, and nothing else does. */
#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

#include "check.h"
#include "seal.h"

static const uint8_t master[KEY_LEN] = {1}, prefix[NONCE_PREFIX_LEN] = "tenbytes!";
static const struct id volume = {{2}}, object = {{3}};

static void fill(uint8_t *p, uint32_t salt)
{
	for (uint32_t i = 0; i < PAGE_LEN; i++)
		p[i] = (uint8_t)(i * 13 + (i >> 8) + salt);
}

static int open_other(enum cipher c, const struct id *v, const struct id *o, uint32_t epoch, uint64_t page,
		      const uint8_t *entry, const uint8_t *sealed)
{
	struct keyring *k = keyring_new(master, v, c);
	struct page_sealer *s = page_sealer_new(k, o, epoch);
	uint8_t plain[PAGE_LEN];

	REQUIRE(s);
	int r = page_open(s, page, entry, sealed, plain);
	CHECK_EQ(r < 0, sodium_is_zero(plain, PAGE_LEN)); /* what fails leaves zeros */
	page_sealer_free(s);
	keyring_free(k);
	return r;
}

static void test_page(enum cipher c)
{
	struct keyring *k = keyring_new(master, &volume, c);
	struct page_sealer *s = page_sealer_new(k, &object, 7);
	uint8_t plain[PAGE_LEN], sealed[2][PAGE_LEN], entry[2][TAG_ENTRY_LEN], got[PAGE_LEN], zeros[PAGE_LEN] = {0};
	struct id other = {{4}};

	REQUIRE(s);
	fill(plain, 1);
	page_seal(s, prefix, NONCE_COUNTER_MAX, 5, plain, sealed[0], entry[0]);
	page_seal(s, prefix, 9, PAGE_NUMBER_MAX, plain, sealed[1], entry[1]);
	CHECK(!memcmp(entry[0], prefix, NONCE_PREFIX_LEN) && sodium_is_zero(entry[1] + 11, 5) && entry[1][10] == 9);
	CHECK_EQ(!memcmp(sealed[0], plain, PAGE_LEN), c == CIPHER_NONE);
	CHECK_EQ(page_open(s, 5, entry[0], sealed[0], got), 0);
	CHECK(!memcmp(got, plain, PAGE_LEN));
	CHECK_EQ(page_open(s, PAGE_NUMBER_MAX, entry[1], sealed[1], got), 0);
	CHECK(!memcmp(got, plain, PAGE_LEN));

	/* in place, both ways */
	memcpy(got, plain, PAGE_LEN);
	page_seal(s, prefix, NONCE_COUNTER_MAX, 5, got, got, entry[1]);
	CHECK(!memcmp(got, sealed[0], PAGE_LEN) && !memcmp(entry[0], entry[1], TAG_ENTRY_LEN));
	CHECK_EQ(page_open(s, 5, entry[1], got, got), 0);
	CHECK(!memcmp(got, plain, PAGE_LEN));

	/* renumbered, another object, epoch, volume */
	CHECK_EQ(page_open(s, 6, entry[0], sealed[0], got), -EBADMSG);
	CHECK_EQ(page_open(s, PAGE_NUMBER_MAX + 6, entry[0], sealed[0], got), -EBADMSG);
	CHECK_EQ(page_open(s, UINT64_MAX, entry[0], sealed[0], got), -EBADMSG);
	CHECK_EQ(open_other(c, &volume, &object, 7, 5, entry[0], sealed[0]), 0);
	CHECK_EQ(open_other(c, &other, &object, 7, 5, entry[0], sealed[0]), -EBADMSG);
	CHECK_EQ(open_other(c, &volume, &other, 7, 5, entry[0], sealed[0]), -EBADMSG);
	CHECK_EQ(open_other(c, &volume, &object, 8, 5, entry[0], sealed[0]), -EBADMSG);

	/* an entry with another's page, in place of another */
	fill(plain, 2);
	page_seal(s, prefix, 10, 6, plain, sealed[1], entry[1]);
	CHECK_EQ(page_open(s, 5, entry[0], sealed[1], got), -EBADMSG);
	CHECK_EQ(page_open(s, 5, entry[1], sealed[1], got), -EBADMSG);
	CHECK_EQ(page_open(s, 6, entry[1], sealed[0], got), -EBADMSG);
	CHECK_EQ(page_open(s, 6, entry[1], sealed[1], got), 0);

	/* zeroed: never zeros in place of data */
	CHECK_EQ(page_open(s, 5, entry[0], zeros, got), -EBADMSG);
	CHECK_EQ(page_open(s, 5, zeros, sealed[0], got), -EBADMSG);
	CHECK_EQ(page_open(s, 5, zeros, zeros, got), -EBADMSG);

	for (int i = 0; i < TAG_ENTRY_LEN * 8; i++) {
		memcpy(entry[1], entry[0], TAG_ENTRY_LEN);
		entry[1][i / 8] ^= (uint8_t)(1 << i % 8);
		CHECK_EQ(page_open(s, 5, entry[1], sealed[0], got), -EBADMSG);
	}
	for (int i = 0; i < PAGE_LEN * 8; i += 37) {
		sealed[0][i / 8] ^= (uint8_t)(1 << i % 8);
		CHECK_EQ(page_open(s, 5, entry[0], sealed[0], got), -EBADMSG);
		CHECK(sodium_is_zero(got, PAGE_LEN));
		sealed[0][i / 8] ^= (uint8_t)(1 << i % 8);
	}
	CHECK_EQ(page_open(s, 5, entry[0], sealed[0], sealed[0]), 0);
	page_sealer_free(s);
	keyring_free(k);
}

/* Many threads and more prefixes than the sealer keeps schedules for. */
struct work {
	const struct page_sealer *s;
	unsigned n;
	int bad;
};

static void *seal_and_open(void *arg)
{
	struct work *w = arg;
	uint8_t plain[PAGE_LEN], sealed[PAGE_LEN], got[PAGE_LEN], entry[TAG_ENTRY_LEN], p[NONCE_PREFIX_LEN] = {0};

	fill(plain, w->n);
	for (unsigned i = 0; i < 3000; i++) {
		p[0] = (uint8_t)(i / 3 % 7);
		p[9] = (uint8_t)(i / 21 % 2); /* same first eight bytes, another prefix */
		page_seal(w->s, p, i, i, plain, sealed, entry);
		if (page_open(w->s, i, entry, sealed, got) < 0 || memcmp(plain, got, PAGE_LEN))
			w->bad++;
	}
	return NULL;
}

static void test_threads(enum cipher c)
{
	struct keyring *k = keyring_new(master, &volume, c);
	struct page_sealer *s = page_sealer_new(k, &object, 0);
	struct work w[4];
	pthread_t t[4];

	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct work){s, i, 0};
		REQUIRE(pthread_create(&t[i], NULL, seal_and_open, &w[i]) == 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		CHECK_EQ(w[i].bad, 0);
	}
	page_sealer_free(s);
	keyring_free(k);
}

/* Thousands of objects may be open: their sealers share guarded memory, and may be freed after the keyring. */
static void test_many(enum cipher c)
{
	enum { N = 2000 };
	static struct page_sealer *s[N];
	struct keyring *k = keyring_new(master, &volume, c);
	uint8_t plain[PAGE_LEN], sealed[PAGE_LEN], got[PAGE_LEN], entry[TAG_ENTRY_LEN];

	fill(plain, 4);
	for (uint32_t i = 0; i < N; i++)
		REQUIRE((s[i] = page_sealer_new(k, &object, i)));
	for (uint32_t i = 0; i < N; i += 2) {
		page_sealer_free(s[i]);
		REQUIRE((s[i] = page_sealer_new(k, &object, i + N)));
	}
	page_sealer_free(page_sealer_new(k, &object, 1));
	keyring_free(k);
	for (uint32_t i = 0; i < N; i++) {
		page_seal(s[i], prefix, i, 1, plain, sealed, entry);
		CHECK_EQ(page_open(s[i], 1, entry, sealed, got), 0);
		CHECK_EQ(page_open(s[(i + 1) % N], 1, entry, sealed, got), -EBADMSG);
	}
	for (uint32_t i = 0; i < N; i++)
		page_sealer_free(s[i]);
	page_sealer_free(NULL);
}

/* The formats written out once more with the library's plain calls. */
static void test_format(void)
{
	uint8_t aad[57], nonce[24], want[PAGE_LEN + 16], key[KEY_LEN], in[13] = "gcm", gcm_key[KEY_LEN];
	uint8_t plain[PAGE_LEN], sealed[PAGE_LEN], entry[TAG_ENTRY_LEN];

	fill(plain, 3);
	memcpy(aad, "twofold page", 12);
	memcpy(aad + 12, volume.b, 16);
	memcpy(aad + 28, object.b, 16);
	le64_store(aad + 44, UINT64_C(0x123456789a));
	le32_store(aad + 52, 7);
	aad[56] = 1;
	memcpy(nonce, prefix, 10);
	memcpy(nonce + 10, "\x06\x05\x04\x03\x02\x01", 6);
	le64_store(nonce + 16, UINT64_C(0x123456789a));

	for (int c = CIPHER_XCHACHA20POLY1305; c <= CIPHER_AES256GCM; c++) {
		if (!cipher_available((enum cipher)c))
			continue;
		struct keyring *k = keyring_new(master, &volume, (enum cipher)c);
		struct page_sealer *s = page_sealer_new(k, &object, 7);
		keyring_object_key(k, &object, 7, key);
		page_seal(s, prefix, UINT64_C(0x010203040506), UINT64_C(0x123456789a), plain, sealed, entry);
		if (c == CIPHER_XCHACHA20POLY1305) {
			crypto_aead_xchacha20poly1305_ietf_encrypt(want, NULL, plain, PAGE_LEN, aad, sizeof aad, NULL, nonce, key);
		} else {
			memcpy(in + 3, prefix, 10);
			crypto_generichash(gcm_key, KEY_LEN, in, sizeof in, key, KEY_LEN);
			crypto_aead_aes256gcm_encrypt(want, NULL, plain, PAGE_LEN, aad, sizeof aad, NULL,
						      (const uint8_t *)"\x06\x05\x04\x03\x02\x01\x9a\x78\x56\x34\x12\x00", gcm_key);
		}
		CHECK(!memcmp(want, sealed, PAGE_LEN) && !memcmp(want + PAGE_LEN, entry + 16, 16));
		CHECK(!memcmp(entry, nonce, 16));
		page_sealer_free(s);
		keyring_free(k);
	}
}

static void test_record(void)
{
	struct keyring *k = keyring_new(master, &volume, CIPHER_NONE);
	struct id other_volume = {{77}};
	struct keyring *other = keyring_new(master, &other_volume, CIPHER_NONE);
	static uint8_t big[RECORD_MAX + 1];
	static const size_t sizes[] = {0, 1, 59, 60, 61, 124, 125, 5000, RECORD_MAX};
	struct buf out = {0}, back = {0};

	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (uint8_t)(i * 3 + 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t len = sizes[i], at = out.len;
		CHECK_EQ(record_seal(k, "clear", 5, big, len, &out), 0); /* appends */
		CHECK_EQ(out.len - at, 24 + (4 + len + 63) / 64 * 64 + 16);
		CHECK_EQ(record_open(k, "clear", 5, out.p + at, out.len - at, &back), 0);
		CHECK(back.len == len && (!len || !memcmp(back.p, big, len)));
		CHECK_EQ(record_open(k, "cleaR", 5, out.p + at, out.len - at, &back), -EBADMSG);
		CHECK_EQ(record_open(k, "clea", 4, out.p + at, out.len - at, &back), -EBADMSG);
		CHECK_EQ(record_open(other, "clear", 5, out.p + at, out.len - at, &back), -EBADMSG);
		CHECK(back.len == len); /* untouched by failures */
	}
	CHECK_EQ(record_seal(k, "clear", 5, big, RECORD_MAX + 1, &out), -EMSGSIZE);
	buf_fini(&out);

	CHECK_EQ(record_seal(k, NULL, 0, big, 100, &out), 0);
	for (size_t i = 0; i < out.len; i++) {
		out.p[i] ^= 0x40;
		CHECK_EQ(record_open(k, NULL, 0, out.p, out.len, &back), -EBADMSG);
		out.p[i] ^= 0x40;
		CHECK_EQ(record_open(k, NULL, 0, out.p, i, &back), -EBADMSG);
	}
	CHECK_EQ(record_open(k, NULL, 0, out.p, out.len, &back), 0);
	/* twice the same plaintext: never the same bytes */
	CHECK_EQ(record_seal(k, NULL, 0, big, 100, &out), 0);
	CHECK(memcmp(out.p, out.p + out.len / 2, out.len / 2));
	buf_fini(&out);
	buf_fini(&back);
	keyring_free(k);
	keyring_free(other);
}

/* Authentic, but not what record_seal writes: a length that is too long or too short, padding that is not zeros. */
static void test_record_framing(void)
{
	static const struct {
		uint32_t len;
		uint8_t pad;
		int want;
	} cases[] = {{60, 0, 0}, {0, 0, 0}, {61, 0, -EUCLEAN}, {UINT32_MAX, 0, -EUCLEAN}, {59, 1, -EUCLEAN}, {RECORD_MAX + 1, 0, -EUCLEAN}};
	struct keyring *k = keyring_new(master, &volume, CIPHER_NONE);
	uint8_t key[KEY_LEN], sealed[24 + 64 + 16], plain[64];
	struct buf back = {0};

	crypto_generichash(key, KEY_LEN, (const uint8_t *)"twofold record\0\0\0\0", 18, master, KEY_LEN);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memset(sealed, 1, 24);
		memset(plain, 0, sizeof plain);
		le32_store(plain, cases[i].len);
		plain[63] = cases[i].pad;
		crypto_aead_xchacha20poly1305_ietf_encrypt(sealed + 24, NULL, plain, 64, volume.b, ID_LEN, NULL, sealed, key);
		CHECK_EQ(record_open(k, NULL, 0, sealed, sizeof sealed, &back), cases[i].want);
	}
	buf_fini(&back);
	keyring_free(k);
}

int main(void)
{
	REQUIRE(crypto_init() == 0);
	for (int c = CIPHER_XCHACHA20POLY1305; c <= CIPHER_NONE; c++) {
		if (!cipher_available((enum cipher)c)) {
			printf("%s is not available on this processor\n", cipher_name((enum cipher)c));
			continue;
		}
		test_page((enum cipher)c);
		test_threads((enum cipher)c);
		test_many((enum cipher)c);
	}
	test_format();
	test_record();
	test_record_framing();
	return check_result();
}
