/* Sealing pages and records (design-store 3 and 5).
 *
 * A page is 4096 bytes, its tag entry 32: [prefix 10 | counter u48 | tag 16].
 *   xchacha20poly1305: nonce = prefix | counter | page number u64 (24 bytes), key = object key.
 *   aes256gcm: key = keyed BLAKE2b-256(object key; "gcm" | prefix), nonce = counter u48 | page number u48.
 *     (page numbers are below 2^48.) The schedule of the last prefix is kept in struct page_sealer.
 *   none: ciphertext = plaintext, tag = Poly1305(one-time key; page), one-time key = keyed BLAKE2b-256(object key; "none" |
 *     nonce | aad), nonce as with xchacha20poly1305. (BLAKE2b over the page would cost twice what sealing costs: 7.5 us
 *     against 3.5, so that `none` could not show the price of sealing. This is 1.7 us.)
 * Additional data: "twofold page" | volume | object id | page number u64 | epoch u32 | format u8: a page that was moved, swapped
 * or renumbered does not open (I2). */
#ifndef TWOFOLD_SEAL_H
#define TWOFOLD_SEAL_H
#include "keys.h"

#define PAGE_LEN 4096
#define TAG_ENTRY_LEN 32
#define NONCE_PREFIX_LEN 10
#define NONCE_COUNTER_MAX ((UINT64_C(1) << 48) - 1)
#define PAGE_NUMBER_MAX ((UINT64_C(1) << 48) - 1) /* callers bound offsets (EFBIG): page_seal ends the process beyond it */

/* Key and constants of one object; immutable after init but for an internal cache that is thread-safe. In guarded
 * memory that the volume's sealers share, so that thousands of objects can be open. */
struct page_sealer;
/* NULL without memory, or where cipher_available says that the volume's cipher does not run here. */
struct page_sealer *page_sealer_new(const struct keyring *k, const struct id *object, uint32_t epoch);
void page_sealer_free(struct page_sealer *s);
/* sealed and plain may be the same buffer. entry: 32 bytes out. */
void page_seal(const struct page_sealer *s, const uint8_t prefix[static NONCE_PREFIX_LEN], uint64_t counter, uint64_t page,
	       const uint8_t *plain, uint8_t *ret_sealed, uint8_t *ret_entry);
/* 0 or -EBADMSG (plain is then zeroed). plain and sealed may be the same buffer. An entry of zeros never opens. */
int page_open(const struct page_sealer *s, uint64_t page, const uint8_t *entry, const uint8_t *sealed, uint8_t *ret_plain);

/* Records: XChaCha20-Poly1305 under the record key, whatever the volume's cipher (with `none` too), 24 random bytes of nonce.
 * Sealed form: nonce 24 | ciphertext | tag 16, where the plaintext is u32 length | bytes | zeros up to a multiple of 64.
 * aad: what stands in the clear before it; the volume id is added here. */
#define RECORD_MAX (1u << 20) /* bytes of plaintext; more is refused with -EMSGSIZE */
/* Appends the sealed form to out. 0, -EMSGSIZE, -ENOMEM. */
int record_seal(const struct keyring *k, const void *aad, size_t aad_len, const void *plain, size_t len, struct buf *out);
/* Replaces *ret (zero-initialised or in use) by the plaintext. 0, -EBADMSG, -EUCLEAN (length field), -ENOMEM. */
int record_open(const struct keyring *k, const void *aad, size_t aad_len, const uint8_t *sealed, size_t sealed_len, struct buf *ret);
#endif
