/* The keyring: subkeys apart from each other, roots as sums, small sealed secrets. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "check.h"
#include "keys.h"

static const uint8_t master[KEY_LEN] = "0123456789abcdef0123456789abcde";
static const struct id volume = {{1, 2, 3}};

static void test_ciphers(void)
{
	enum cipher c;

	for (int i = CIPHER_XCHACHA20POLY1305; i <= CIPHER_NONE; i++) {
		CHECK(cipher_parse(cipher_name((enum cipher)i), &c) == 0 && (int)c == i);
	}
	CHECK_EQ(cipher_parse("AES256GCM", &c), -EINVAL);
	CHECK(!cipher_name((enum cipher)0) && !cipher_name((enum cipher)4));
	CHECK(!cipher_available((enum cipher)4) && cipher_available(CIPHER_XCHACHA20POLY1305));
}

/* The derivation written out once more: formats hang on it. */
static void test_derivation(const struct keyring *k)
{
	uint8_t content[KEY_LEN], want[KEY_LEN], got[KEY_LEN], other[KEY_LEN], tag[INDEX_TAG_LEN], index[KEY_LEN];
	uint8_t in[ID_LEN + 4] = {9, 9};
	struct id object = {{9, 9}};

	crypto_generichash(content, KEY_LEN, (const uint8_t *)"twofold content\0\0\0\0", 19, master, KEY_LEN);
	le32_store(in + ID_LEN, 5);
	crypto_generichash(want, KEY_LEN, in, sizeof in, content, KEY_LEN);
	keyring_object_key(k, &object, 5, got);
	CHECK(!memcmp(want, got, KEY_LEN));
	keyring_object_key(k, &object, 6, other);
	CHECK(memcmp(got, other, KEY_LEN));

	crypto_generichash(index, KEY_LEN, (const uint8_t *)"twofold index\0\0\0\0", 17, master, KEY_LEN);
	memcpy(in + ID_LEN, "name", 4);
	crypto_generichash(want, INDEX_TAG_LEN, in, sizeof in, index, KEY_LEN);
	keyring_index_tag(k, &object, "name", 4, tag);
	CHECK(!memcmp(want, tag, INDEX_TAG_LEN));

	keyring_psk(k, got);
	keyring_header_mac(k, "psk", 3, other);
	CHECK(memcmp(got, other, KEY_LEN));
	CHECK(!memcmp(keyring_master(k), master, KEY_LEN));
	CHECK(id_eq(keyring_volume(k), &volume) && keyring_cipher(k) == CIPHER_NONE);
}

static void test_header_secret(const struct keyring *k)
{
	uint8_t sealed[24 + 32 + 16], secret[32] = "a secret of thirty-two bytes...", got[32];

	keyring_seal_header(k, "aad", 3, secret, sizeof secret, sealed);
	CHECK_EQ(keyring_open_header(k, "aad", 3, sealed, sizeof sealed, got), 0);
	CHECK(!memcmp(secret, got, sizeof got));
	CHECK_EQ(keyring_open_header(k, "aae", 3, sealed, sizeof sealed, got), -EBADMSG);
	for (size_t i = 0; i < sizeof sealed; i++) {
		sealed[i] ^= 1;
		CHECK_EQ(keyring_open_header(k, "aad", 3, sealed, sizeof sealed, got), -EBADMSG);
		sealed[i] ^= 1;
		CHECK_EQ(keyring_open_header(k, "aad", 3, sealed, i, got), -EBADMSG);
	}
}

static void test_roots(const struct keyring *k)
{
	struct root empty = {{0}}, r = {{0}}, one = {{1}}, terms[50], ones;

	/* carry and borrow run through all 32 bytes */
	memset(&ones, 0xff, sizeof ones);
	root_sub(&r, &one);
	CHECK(root_eq(&r, &ones));
	root_add(&r, &one);
	CHECK(root_eq(&r, &empty));
	/* a borrow into a word of zeros, from one that is subtracted from itself */
	struct root a = {{0}}, b = {{0}}, back;
	memset(a.b + 8, 0xaa, 8);
	b.b[0] = 1;
	memset(b.b + 8, 0xaa, 8);
	back = a;
	root_sub(&a, &b);
	CHECK(a.b[0] == 0xff && a.b[8] == 0xff && a.b[31] == 0xff);
	root_add(&a, &b);
	CHECK(root_eq(&a, &back));

	for (uint64_t i = 0; i < 50; i++) {
		uint8_t entry[32] = {(uint8_t)(i + 1)};
		keyring_page_term(k, i, entry, &terms[i]);
		root_add(&r, &terms[i]);
	}
	/* in any order */
	for (int i = 0; i < 50; i++)
		root_sub(&r, &terms[(i * 7) % 50]);
	CHECK(root_eq(&r, &empty));

	uint8_t entry[32] = {1};
	keyring_page_term(k, 0, entry, &r);
	CHECK(root_eq(&r, &terms[0]));
	keyring_page_term(k, 1, entry, &r);
	CHECK(!root_eq(&r, &terms[0])); /* the same page elsewhere counts differently */
	keyring_record_term(k, entry, sizeof entry, &r);
	CHECK(!root_eq(&r, &terms[0]));
}

int main(void)
{
	REQUIRE(crypto_init() == 0);
	struct keyring *k = keyring_new(master, &volume, CIPHER_NONE);
	REQUIRE(k);
	test_ciphers();
	test_derivation(k);
	test_header_secret(k);
	test_roots(k);
	keyring_free(k);
	keyring_free(NULL);
	return check_result();
}
