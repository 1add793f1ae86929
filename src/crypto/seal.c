/* Sealing of pages: the hot path. A page costs one pass of the cipher, no allocation, no lock and no random bytes.
 *
 * AES-GCM takes its key from the nonce's prefix, and deriving key and schedule costs about a seventh of a page. So the
 * sealer keeps the schedules of the last prefixes. A slot is read by many at once and replaced only while nobody reads
 * it; who finds it busy or of another prefix computes a schedule on its own stack. Nobody ever waits. */
#include "seal.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdatomic.h>

#include "derive.h"

#define PAGE_FORMAT 1
#define TAG_LEN 16
#define COUNTER_LEN 6
#define NONCE_LEN 24
#define GCM_NONCE_LEN 12
#define AAD_LABEL "twofold page"
#define AAD_PAGE_AT (sizeof AAD_LABEL - 1 + ID_LEN + ID_LEN)
#define AAD_LEN (AAD_PAGE_AT + 8 + 4 + 1)

#define SCHEDULES 4
#define REPLACING (-(1 << 30)) /* added to users while a slot is written */

struct schedule {
	crypto_aead_aes256gcm_state aes;
	/* The first bytes of prefix, readable without taking the slot: tells most other slots away. */
	_Atomic uint64_t hint;
	_Atomic int users;                /* who reads it now; negative: being replaced */
	uint8_t prefix[NONCE_PREFIX_LEN]; /* read while counted in users, written while REPLACING */
	bool filled;                      /* the same */
};

struct page_sealer {
	uint8_t key[KEY_LEN];
	uint8_t aad[AAD_LEN]; /* the page number in it is zeros */
	enum cipher cipher;
	struct pool *pool;     /* where it lies */
	_Atomic unsigned next; /* slot to replace */
	/* SCHEDULES of them with AES-GCM, else none. */
	_Alignas(64) struct schedule schedule[];
};

size_t page_sealer_len(enum cipher c)
{
	size_t n = c == CIPHER_AES256GCM ? SCHEDULES : 0;

	return (sizeof(struct page_sealer) + n * sizeof(struct schedule) + 63) & ~(size_t)63;
}

struct page_sealer *page_sealer_new(const struct keyring *k, const struct id *object, uint32_t epoch)
{
	struct page_sealer *s;

	if (!cipher_available(keyring_cipher(k)))
		return NULL;
	s = pool_get(keyring_sealer_pool(k));
	if (!s)
		return NULL;
	s->pool = keyring_sealer_pool(k);
	s->cipher = keyring_cipher(k);
	keyring_object_key(k, object, epoch, s->key);

	uint8_t *p = s->aad;
	memcpy(p, AAD_LABEL, sizeof AAD_LABEL - 1);
	p += sizeof AAD_LABEL - 1;
	memcpy(p, keyring_volume(k)->b, ID_LEN);
	memcpy(p + ID_LEN, object->b, ID_LEN);
	le32_store(s->aad + AAD_PAGE_AT + 8, epoch);
	s->aad[AAD_LEN - 1] = PAGE_FORMAT;
	return s;
}

void page_sealer_free(struct page_sealer *s)
{
	if (s)
		pool_put(s->pool, s);
}

static void make_aad(const struct page_sealer *s, uint64_t page, uint8_t ret[static AAD_LEN])
{
	memcpy(ret, s->aad, AAD_LEN);
	le64_store(ret + AAD_PAGE_AT, page);
}

/* entry's first 16 bytes are prefix | counter. */
static void make_nonce(const uint8_t *entry, uint64_t page, uint8_t ret[static NONCE_LEN])
{
	memcpy(ret, entry, NONCE_PREFIX_LEN + COUNTER_LEN);
	le64_store(ret + NONCE_PREFIX_LEN + COUNTER_LEN, page);
}

static void make_gcm_nonce(const uint8_t *entry, uint64_t page, uint8_t ret[static GCM_NONCE_LEN])
{
	memcpy(ret, entry + NONCE_PREFIX_LEN, COUNTER_LEN);
	le32_store(ret + 6, (uint32_t)page);
	le16_store(ret + 10, (uint16_t)(page >> 32));
}

static void make_schedule(const struct page_sealer *s, const uint8_t *prefix, crypto_aead_aes256gcm_state *ret)
{
	uint8_t key[KEY_LEN];

	derive(s->key, "gcm", 3, prefix, NONCE_PREFIX_LEN, NULL, 0, key, sizeof key);
	crypto_aead_aes256gcm_beforenm(ret, key);
	sodium_memzero(key, sizeof key);
}

/* The slot that holds prefix's schedule, counted as used, or NULL. */
static struct schedule *find_schedule(const struct page_sealer *const_s, const uint8_t *prefix)
{
	struct page_sealer *s = (struct page_sealer *)const_s;
	uint64_t hint = le64_load(prefix);

	for (int i = 0; i < SCHEDULES; i++) {
		struct schedule *c = &s->schedule[i];
		if (atomic_load_explicit(&c->hint, memory_order_relaxed) != hint)
			continue;
		if (atomic_fetch_add_explicit(&c->users, 1, memory_order_acquire) >= 0 && c->filled &&
		    !memcmp(c->prefix, prefix, NONCE_PREFIX_LEN))
			return c;
		atomic_fetch_sub_explicit(&c->users, 1, memory_order_release);
	}
	return NULL;
}

static void keep_schedule(const struct page_sealer *const_s, const uint8_t *prefix,
			  const crypto_aead_aes256gcm_state *aes)
{
	struct page_sealer *s = (struct page_sealer *)const_s;
	struct schedule *c = &s->schedule[atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed) % SCHEDULES];
	int unused = 0;

	if (!atomic_compare_exchange_strong_explicit(&c->users, &unused, REPLACING, memory_order_acquire,
						     memory_order_relaxed))
		return;
	memcpy(&c->aes, aes, sizeof *aes);
	memcpy(c->prefix, prefix, NONCE_PREFIX_LEN);
	c->filled = true;
	atomic_store_explicit(&c->hint, le64_load(prefix), memory_order_relaxed);
	atomic_fetch_sub_explicit(&c->users, REPLACING, memory_order_release);
}

/* The schedule of prefix: a slot, or computed into own. put_schedule gives it back. */
static const crypto_aead_aes256gcm_state *get_schedule(const struct page_sealer *s, const uint8_t *prefix,
						       crypto_aead_aes256gcm_state *own, struct schedule **ret_slot)
{
	*ret_slot = find_schedule(s, prefix);
	if (*ret_slot)
		return &(*ret_slot)->aes;
	make_schedule(s, prefix, own);
	keep_schedule(s, prefix, own);
	return own;
}

static void put_schedule(struct schedule *slot, crypto_aead_aes256gcm_state *own)
{
	if (slot)
		atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
	else
		sodium_memzero(own, sizeof *own);
}

static void none_tag(const struct page_sealer *s, const uint8_t *nonce, const uint8_t *aad, const uint8_t *page,
		     uint8_t ret_tag[static TAG_LEN])
{
	uint8_t key[crypto_onetimeauth_KEYBYTES];

	derive(s->key, "none", 4, nonce, NONCE_LEN, aad, AAD_LEN, key, sizeof key);
	crypto_onetimeauth(ret_tag, page, PAGE_LEN, key);
	sodium_memzero(key, sizeof key);
}

static void seal_gcm(const struct page_sealer *s, const uint8_t *aad, uint64_t page, const uint8_t *plain,
		     uint8_t *ret_sealed, uint8_t *entry)
{
	crypto_aead_aes256gcm_state own;
	struct schedule *slot;
	uint8_t nonce[GCM_NONCE_LEN];

	make_gcm_nonce(entry, page, nonce);
	crypto_aead_aes256gcm_encrypt_detached_afternm(ret_sealed, entry + NONCE_PREFIX_LEN + COUNTER_LEN, NULL, plain,
						       PAGE_LEN, aad, AAD_LEN, NULL, nonce,
						       get_schedule(s, entry, &own, &slot));
	put_schedule(slot, &own);
}

static bool open_gcm(const struct page_sealer *s, const uint8_t *aad, uint64_t page, const uint8_t *entry,
		     const uint8_t *sealed, uint8_t *ret_plain)
{
	crypto_aead_aes256gcm_state own;
	struct schedule *slot;
	uint8_t nonce[GCM_NONCE_LEN];
	int r;

	make_gcm_nonce(entry, page, nonce);
	r = crypto_aead_aes256gcm_decrypt_detached_afternm(ret_plain, NULL, sealed, PAGE_LEN,
							   entry + NONCE_PREFIX_LEN + COUNTER_LEN, aad, AAD_LEN, nonce,
							   get_schedule(s, entry, &own, &slot));
	put_schedule(slot, &own);
	return r == 0;
}

void page_seal(const struct page_sealer *s, const uint8_t prefix[static NONCE_PREFIX_LEN], uint64_t counter,
	       uint64_t page, const uint8_t *plain, uint8_t *ret_sealed, uint8_t *ret_entry)
{
	uint8_t aad[AAD_LEN], nonce[NONCE_LEN], entry[TAG_ENTRY_LEN];
	uint8_t *tag = entry + NONCE_PREFIX_LEN + COUNTER_LEN;

	/* past either bound a nonce would repeat: nothing may go on from there */
	assert(counter <= NONCE_COUNTER_MAX && page <= PAGE_NUMBER_MAX);
	memcpy(entry, prefix, NONCE_PREFIX_LEN);
	le32_store(entry + NONCE_PREFIX_LEN, (uint32_t)counter);
	le16_store(entry + NONCE_PREFIX_LEN + 4, (uint16_t)(counter >> 32));
	make_aad(s, page, aad);
	switch (s->cipher) {
	case CIPHER_XCHACHA20POLY1305:
		make_nonce(entry, page, nonce);
		crypto_aead_xchacha20poly1305_ietf_encrypt_detached(ret_sealed, tag, NULL, plain, PAGE_LEN, aad, AAD_LEN,
								    NULL, nonce, s->key);
		break;
	case CIPHER_AES256GCM:
		seal_gcm(s, aad, page, plain, ret_sealed, entry);
		break;
	case CIPHER_NONE:
		make_nonce(entry, page, nonce);
		none_tag(s, nonce, aad, plain, tag);
		if (ret_sealed != plain)
			memcpy(ret_sealed, plain, PAGE_LEN);
		break;
	}
	memcpy(ret_entry, entry, TAG_ENTRY_LEN);
}

int page_open(const struct page_sealer *s, uint64_t page, const uint8_t *entry, const uint8_t *sealed,
	      uint8_t *ret_plain)
{
	const uint8_t *tag = entry + NONCE_PREFIX_LEN + COUNTER_LEN;
	uint8_t aad[AAD_LEN], nonce[NONCE_LEN], want[TAG_LEN];
	bool good = false;

	if (page > PAGE_NUMBER_MAX || sodium_is_zero(entry, TAG_ENTRY_LEN))
		goto out;
	make_aad(s, page, aad);
	switch (s->cipher) {
	case CIPHER_XCHACHA20POLY1305:
		make_nonce(entry, page, nonce);
		good = crypto_aead_xchacha20poly1305_ietf_decrypt_detached(ret_plain, NULL, sealed, PAGE_LEN, tag, aad,
									   AAD_LEN, nonce, s->key) == 0;
		break;
	case CIPHER_AES256GCM:
		good = open_gcm(s, aad, page, entry, sealed, ret_plain);
		break;
	case CIPHER_NONE:
		make_nonce(entry, page, nonce);
		none_tag(s, nonce, aad, sealed, want);
		good = sodium_memcmp(tag, want, TAG_LEN) == 0;
		if (good && ret_plain != sealed)
			memcpy(ret_plain, sealed, PAGE_LEN);
		break;
	}
out:
	if (!good)
		memset(ret_plain, 0, PAGE_LEN);
	return good ? 0 : -EBADMSG;
}
