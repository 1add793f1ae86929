/* Inside the crypto layer only: the one key derivation, and what of a keyring does not leave the layer. */
#ifndef TWOFOLD_DERIVE_H
#define TWOFOLD_DERIVE_H
#include "keys.h"
#include "pool.h"

/* ret_len bytes (16..64) of keyed BLAKE2b(key; a | b | c). A part of length 0 may be NULL. */
void derive(const uint8_t key[static KEY_LEN], const void *a, size_t a_len, const void *b, size_t b_len, const void *c,
	    size_t c_len, uint8_t *ret, size_t ret_len);
/* The key of records. Borrowed, guarded. */
const uint8_t *keyring_record_key(const struct keyring *k);
/* Where the volume's page sealers lie: items of page_sealer_len. */
struct pool *keyring_sealer_pool(const struct keyring *k);
size_t page_sealer_len(enum cipher c); /* a multiple of 64 */
#endif
