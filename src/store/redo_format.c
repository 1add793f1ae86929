/* Records of the redo log as bytes. */
#include "redo.h"

#include <errno.h>
#include <string.h>

#define RECORD_MAGIC "TWFREC1"

static uint32_t item_len(uint32_t kind) { return kind == REDO_CANCEL ? REDO_CANCEL_ITEM : REDO_PAGE_ITEM; }

uint32_t redo_head_len(uint32_t kind, uint32_t count)
{
	uint32_t len = REDO_RECORD_HEAD + count * item_len(kind) + REDO_MAC;
	return (len + REDO_ALIGN - 1) / REDO_ALIGN * REDO_ALIGN;
}

uint32_t redo_record_len(uint32_t kind, uint32_t count)
{
	return redo_head_len(kind, count) + (kind == REDO_CANCEL ? 0 : count * PAGE_LEN);
}

void redo_record_put(const struct keyring *k, const struct redo_record *r, uint8_t *p)
{
	uint32_t items = r->count * item_len(r->kind), mac_at = REDO_RECORD_HEAD + items;

	memcpy(p, RECORD_MAGIC, 8);
	le64_store(p + 8, r->generation);
	le64_store(p + 16, r->txn);
	le64_store(p + 24, r->local);
	le64_store(p + 32, (uint64_t)r->mtime_ns);
	le64_store(p + 40, r->durable_generation);
	le32_store(p + 48, r->durable_off);
	le32_store(p + 52, r->off);
	le16_store(p + 56, (uint16_t)r->kind);
	le16_store(p + 58, (uint16_t)r->count);
	le32_store(p + 60, r->end_before);
	if (r->items != p + REDO_RECORD_HEAD)
		memcpy(p + REDO_RECORD_HEAD, r->items, items);
	keyring_header_mac(k, p, mac_at, p + mac_at);
	memset(p + mac_at + REDO_MAC, 0, redo_head_len(r->kind, r->count) - mac_at - REDO_MAC);
}

int redo_record_parse(const struct keyring *k, const uint8_t *p, size_t len, struct redo_record *ret, uint32_t *ret_len)
{
	struct redo_record r;
	uint8_t mac[REDO_MAC], diff = 0;
	uint32_t mac_at, whole;

	if (len < REDO_RECORD_HEAD || memcmp(p, RECORD_MAGIC, 8))
		return -EUCLEAN;
	r.generation = le64_load(p + 8);
	r.txn = le64_load(p + 16);
	r.local = le64_load(p + 24);
	r.mtime_ns = (int64_t)le64_load(p + 32);
	r.durable_generation = le64_load(p + 40);
	r.durable_off = le32_load(p + 48);
	r.off = le32_load(p + 52);
	r.kind = le16_load(p + 56);
	r.count = le16_load(p + 58);
	r.end_before = le32_load(p + 60);
	if (r.kind < REDO_LOCAL || r.kind > REDO_CANCEL || !r.count || r.count > REDO_PAGES_MAX ||
	    (r.kind == REDO_CANCEL && r.count != 1))
		return -EUCLEAN;
	whole = redo_record_len(r.kind, r.count);
	if (whole > len)
		return -EUCLEAN;
	mac_at = REDO_RECORD_HEAD + r.count * item_len(r.kind);
	if (k) {
		keyring_header_mac(k, p, mac_at, mac);
		for (int i = 0; i < REDO_MAC; i++)
			diff |= mac[i] ^ p[mac_at + i];
		if (diff)
			return -EUCLEAN;
	}
	r.items = p + REDO_RECORD_HEAD;
	*ret = r;
	*ret_len = whole;
	return 0;
}
