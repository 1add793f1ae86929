/* The master key of a volume and what derives from it (design-store 2).
 *
 * Subkeys: keyed BLAKE2b-256(master; label | epoch u32) with the labels "twofold content", "twofold record",
 * "twofold index", "twofold root", "twofold header", "twofold membership". All secrets lie in sodium_malloc memory. */
#ifndef TWOFOLD_KEYS_H
#define TWOFOLD_KEYS_H
#include "ids.h"

#define KEY_LEN 32
#define INDEX_TAG_LEN 16
#define ROOT_LEN 32

enum cipher { CIPHER_XCHACHA20POLY1305 = 1, CIPHER_AES256GCM = 2, CIPHER_NONE = 3 };
/* "xchacha20poly1305", "aes256gcm", "none"; NULL for another number. */
const char *cipher_name(enum cipher c);
int cipher_parse(const char *name, enum cipher *ret); /* -EINVAL */
bool cipher_available(enum cipher c);                 /* aes256gcm needs the CPU's AES */

/* Once per process, before all else: sodium_init, no core dumps (PR_SET_DUMPABLE, RLIMIT_CORE). 0 or -EIO. */
int crypto_init(void);

struct keyring; /* immutable after keyring_new: usable from every thread */
/* master is copied into guarded memory; the caller wipes its own. NULL without memory. */
struct keyring *keyring_new(const uint8_t master[static KEY_LEN], const struct id *volume, enum cipher cipher);
void keyring_free(struct keyring *k);
const struct id *keyring_volume(const struct keyring *k);
enum cipher keyring_cipher(const struct keyring *k);
/* For handing the volume to a joiner and for key slots. Borrowed, guarded. */
const uint8_t *keyring_master(const struct keyring *k);
/* The psk of the channel between members: keyed BLAKE2b(membership key, "psk"). */
void keyring_psk(const struct keyring *k, uint8_t ret_psk[static KEY_LEN]);
/* tag = keyed BLAKE2b-128(index key; parent id | name): how a name is looked up without being stored. */
void keyring_index_tag(const struct keyring *k, const struct id *parent, const void *name, size_t len,
		       uint8_t ret_tag[static INDEX_TAG_LEN]);
/* Seal and open small secrets of the volume file (this replica's static key): XChaCha20-Poly1305 under the header key.
 * ret_sealed: 24 + len + 16 bytes. open: 0 or -EBADMSG. */
void keyring_seal_header(const struct keyring *k, const void *aad, size_t aad_len, const void *p, size_t len, uint8_t *ret_sealed);
int keyring_open_header(const struct keyring *k, const void *aad, size_t aad_len, const uint8_t *sealed, size_t sealed_len, uint8_t *ret);
/* MAC of an object's header page and of redo records: keyed BLAKE2b-256(header key; bytes). */
void keyring_header_mac(const struct keyring *k, const void *p, size_t len, uint8_t ret_mac[static 32]);

/* A root: a sum mod 2^256 of keyed BLAKE2b terms (root key), little-endian. Zero-initialised is the empty root. */
struct root {
	uint8_t b[ROOT_LEN];
};
void root_add(struct root *r, const struct root *term);
void root_sub(struct root *r, const struct root *term);
static inline bool root_eq(const struct root *a, const struct root *b) { return !memcmp(a->b, b->b, ROOT_LEN); }
/* Term of one page of a content: keyed BLAKE2b-256(root key; "page" | page number u64 | tag entry 32). */
void keyring_page_term(const struct keyring *k, uint64_t page, const uint8_t entry[static 32], struct root *ret);
/* Term of one record held, for the volume roots: keyed BLAKE2b-256(root key; "record" | record bytes). */
void keyring_record_term(const struct keyring *k, const void *record, size_t len, struct root *ret);

/* Object key: keyed BLAKE2b-256(content key; object id | epoch u32). */
void keyring_object_key(const struct keyring *k, const struct id *object, uint32_t epoch, uint8_t ret_key[static KEY_LEN]);
#endif
