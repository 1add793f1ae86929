/* Key slots: the layout and what opens one. Stateless; callable from every thread. */
#include "slot.h"

#include <errno.h>
#include <sodium.h>

#define KIND_AT 4
#define FLAGS_AT 5
#define COST_AT 8
#define SALT_AT 16
#define NONCE_AT 32
#define SEALED_AT 56
#define NAME_AT 104

#define SALT_LEN 16
#define NONCE_LEN 24
#define SEALED_LEN (KEY_LEN + 16)
#define AAD_LEN (ID_LEN + NONCE_AT)

#define OPSLIMIT_MAX 64
#define MEMLIMIT_KIB_MIN (8u << 10)
#define MEMLIMIT_KIB_MAX (4u << 20)

_Static_assert(SALT_LEN == crypto_pwhash_argon2id_SALTBYTES, "salt of Argon2id");
_Static_assert(SEALED_AT + SEALED_LEN == NAME_AT, "layout");

const struct slot_cost slot_cost_default = {.opslimit = 3, .memlimit_kib = 256u << 10};

static bool cost_valid(struct slot_cost c)
{
	return c.opslimit >= 1 && c.opslimit <= OPSLIMIT_MAX && c.memlimit_kib >= MEMLIMIT_KIB_MIN &&
	       c.memlimit_kib <= MEMLIMIT_KIB_MAX;
}

static int slot_key(enum slot_kind kind, struct slot_cost cost, const uint8_t *salt, const void *secret,
		    size_t secret_len, uint8_t *ret_key)
{
	static const char label[] = "twofold keyfile";
	crypto_generichash_state st;

	if (kind == SLOT_PASSPHRASE)
		return crypto_pwhash(ret_key, KEY_LEN, secret, secret_len, salt, cost.opslimit,
				     (size_t)cost.memlimit_kib * 1024, crypto_pwhash_ALG_ARGON2ID13) == 0
			       ? 0
			       : -ENOMEM;
	crypto_generichash_init(&st, salt, SALT_LEN, KEY_LEN);
	crypto_generichash_update(&st, (const uint8_t *)label, sizeof label - 1);
	crypto_generichash_update(&st, secret, secret_len);
	crypto_generichash_final(&st, ret_key, KEY_LEN);
	sodium_memzero(&st, sizeof st);
	return 0;
}

static void make_aad(const uint8_t *slot, const struct id *volume, uint8_t ret[static AAD_LEN])
{
	memcpy(ret, volume->b, ID_LEN);
	memcpy(ret + ID_LEN, slot, NONCE_AT);
}

int slot_make(uint8_t *ret_slot, uint32_t slot_id, enum slot_kind kind, struct slot_cost cost, const struct id *volume,
	      const void *secret, size_t secret_len, const uint8_t master[static KEY_LEN])
{
	uint8_t slot[SLOT_LEN] = {0}, aad[AAD_LEN], *key;
	int r;

	if (kind == SLOT_KEYFILE)
		cost = (struct slot_cost){0};
	else if (kind != SLOT_PASSPHRASE || !cost_valid(cost))
		return -EINVAL;
	if (!secret_len)
		return -EINVAL;
	le32_store(slot, slot_id);
	slot[KIND_AT] = (uint8_t)kind;
	le32_store(slot + COST_AT, cost.opslimit);
	le32_store(slot + COST_AT + 4, cost.memlimit_kib);
	randombytes_buf(slot + SALT_AT, SALT_LEN + NONCE_LEN);
	make_aad(slot, volume, aad);

	key = sodium_malloc(KEY_LEN);
	if (!key)
		return -ENOMEM;
	r = slot_key(kind, cost, slot + SALT_AT, secret, secret_len, key);
	if (r == 0) {
		crypto_aead_xchacha20poly1305_ietf_encrypt(slot + SEALED_AT, NULL, master, KEY_LEN, aad, sizeof aad, NULL,
							   slot + NONCE_AT, key);
		memcpy(ret_slot, slot, SLOT_LEN);
	}
	sodium_free(key);
	return r;
}

int slot_open(const uint8_t *slot, const struct id *volume, const void *secret, size_t secret_len, enum slot_kind kind,
	      uint8_t ret_master[static KEY_LEN])
{
	struct slot_info info;
	uint8_t aad[AAD_LEN], *key;
	int r;

	r = slot_parse(slot, &info);
	if (r < 0)
		return r;
	if (info.kind == SLOT_FREE || info.kind != kind || !secret_len)
		return -ENOKEY;
	key = sodium_malloc(2 * KEY_LEN); /* the slot's key, and the master until it has proved right */
	if (!key)
		return -ENOMEM;
	make_aad(slot, volume, aad);
	r = slot_key(kind, info.cost, slot + SALT_AT, secret, secret_len, key);
	if (r == 0 && crypto_aead_xchacha20poly1305_ietf_decrypt(key + KEY_LEN, NULL, NULL, slot + SEALED_AT, SEALED_LEN,
								 aad, sizeof aad, slot + NONCE_AT, key) != 0)
		r = -ENOKEY;
	if (r == 0)
		memcpy(ret_master, key + KEY_LEN, KEY_LEN);
	sodium_free(key);
	return r;
}

int slot_parse(const uint8_t *slot, struct slot_info *ret)
{
	struct slot_info info = {.slot_id = le32_load(slot), .kind = slot[KIND_AT]};
	size_t name_len = strnlen((const char *)slot + NAME_AT, SLOT_NAME_MAX);

	info.cost = (struct slot_cost){le32_load(slot + COST_AT), le32_load(slot + COST_AT + 4)};
	switch (info.kind) {
	case SLOT_FREE:
		if (!sodium_is_zero(slot, SLOT_LEN))
			return -EUCLEAN;
		break;
	case SLOT_PASSPHRASE:
		if (!cost_valid(info.cost))
			return -EUCLEAN;
		break;
	case SLOT_KEYFILE:
		if (info.cost.opslimit || info.cost.memlimit_kib)
			return -EUCLEAN;
		break;
	default:
		return -EUCLEAN;
	}
	if (!sodium_is_zero(slot + FLAGS_AT, COST_AT - FLAGS_AT) ||
	    !sodium_is_zero(slot + NAME_AT + name_len, SLOT_LEN - NAME_AT - name_len))
		return -EUCLEAN;
	memcpy(info.name, slot + NAME_AT, name_len);
	*ret = info;
	return 0;
}

int slot_set_name(uint8_t *slot, const char *name)
{
	size_t len = strlen(name);

	if (len > SLOT_NAME_MAX)
		return -EINVAL;
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return -EINVAL;
	memset(slot + NAME_AT, 0, SLOT_NAME_MAX);
	memcpy(slot + NAME_AT, name, len);
	return 0;
}
