/* Bytes as a half of the redo log: as replay walks it, once with the MAC (what is accepted must encode to the same bytes again) and once
 * without, so that the bounds behind it are reached too. */
#include "redo.h"

#include <stdlib.h>

static void must(int true_)
{
	if (!true_)
		abort();
}

static void walk(const struct keyring *k, const uint8_t *data, size_t size)
{
	uint8_t head[REDO_HEAD_MAX];
	struct redo_record r;
	uint32_t len;
	size_t pos = 0;

	while (pos + REDO_RECORD_HEAD <= size) {
		const uint8_t *p = data + pos;
		uint8_t sum = 0;
		if (redo_record_parse(k, p, size - pos, &r, &len)) {
			pos += REDO_ALIGN;
			continue;
		}
		must(len && len % REDO_ALIGN == 0 && len <= size - pos);
		must(len == redo_record_len(r.kind, r.count) && redo_head_len(r.kind, r.count) <= sizeof(head));
		for (uint32_t i = 0; i < len; i++)
			sum ^= p[i];
		(void)*(volatile uint8_t *)&sum;
		if (k) {
			redo_record_put(k, &r, head);
			must(!memcmp(head, p, redo_head_len(r.kind, r.count) - REDO_ALIGN));
		}
		pos += len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t master[KEY_LEN] = {1, 2, 3};
	static const struct id volume = {{7, 7, 7}};
	struct keyring *k;

	must(!crypto_init());
	k = keyring_new(master, &volume, CIPHER_XCHACHA20POLY1305);
	must(k != NULL);
	walk(k, data, size);
	walk(NULL, data, size);
	keyring_free(k);
	return 0;
}
