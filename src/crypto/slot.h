/* Key slots: how a passphrase or a key file opens the master key (design-store 2). A slot is a fixed 192 bytes:
 *   id u32 | kind u8 (0 free, 1 Argon2id passphrase, 2 key file) | flags u8 | reserved u16 | opslimit u32 | memlimit_kib u32 |
 *   salt 16 | nonce 24 | sealed master 48 | name 32 (zero padded UTF-8) | reserved to 192.
 * The slot key (Argon2id13 of the passphrase, or keyed BLAKE2b-256(salt; "twofold keyfile" | the key file's bytes)) seals
 * the master with XChaCha20-Poly1305, additional data = volume id | the slot's bytes before the nonce. A key file's slot has
 * a cost of zeros. Parameters are bounded before use: opslimit 1..64, memlimit 8 MiB..4 GiB (limits of Argon2 that a hostile
 * file may not exceed). */
#ifndef TWOFOLD_SLOT_H
#define TWOFOLD_SLOT_H
#include "keys.h"

#define SLOT_LEN 192
#define SLOT_NAME_MAX 32
enum slot_kind { SLOT_FREE = 0, SLOT_PASSPHRASE = 1, SLOT_KEYFILE = 2 };
struct slot_cost {
	uint32_t opslimit, memlimit_kib;
};
/* Interactive default: 3 passes, 256 MiB. $TWOFOLD_ARGON2 ("OPS:MIB", tests) is read by the cli, not here. */
extern const struct slot_cost slot_cost_default;
/* Fills slot (SLOT_LEN bytes), with no name. cost does not matter for a key file. 0, -EINVAL (cost out of bounds, empty
 * secret, kind), -ENOMEM. */
int slot_make(uint8_t *ret_slot, uint32_t slot_id, enum slot_kind kind, struct slot_cost cost, const struct id *volume,
	      const void *secret, size_t secret_len, const uint8_t master[static KEY_LEN]);
/* Tries the secret. 0 and the master in ret (caller's guarded memory), -ENOKEY (wrong secret or other kind), -EUCLEAN, -ENOMEM. */
int slot_open(const uint8_t *slot, const struct id *volume, const void *secret, size_t secret_len, enum slot_kind kind,
	      uint8_t ret_master[static KEY_LEN]);

/* What a slot says in the clear, for listing and for the check of a volume file. */
struct slot_info {
	uint32_t slot_id;
	enum slot_kind kind;
	struct slot_cost cost;
	char name[SLOT_NAME_MAX + 1];
};
/* 0; -EUCLEAN: unknown kind, cost out of bounds, a name that is not zero-padded or reserved bytes that are not zeros. */
int slot_parse(const uint8_t *slot, struct slot_info *ret);
/* The name is not authenticated: it labels the slot in `key list`. 0; -EINVAL: longer than SLOT_NAME_MAX or with control
 * characters. */
int slot_set_name(uint8_t *slot, const char *name);
#endif
