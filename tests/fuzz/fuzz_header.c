/* The volume file: as it is, and with the checksum made right, so that the fields behind it are reached. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct header *h)
{
	uint8_t secret[32], master[KEY_LEN];
	struct keyring *k = keyring_new((const uint8_t[KEY_LEN]){1}, &h->volume, h->cipher);
	struct slot_info info;

	/* what parses has a valid name and slots that can be listed; none opens with a key file never used */
	if (!k || !replica_name_valid(h->name) || header_unlock(h, "no such key", 11, SLOT_KEYFILE, master) == 0)
		abort();
	for (int i = 0; i < HEADER_SLOTS; i++)
		if (slot_parse(h->slot[i], &info) < 0)
			abort();
	if (header_static_secret(h, k, secret) == 0)
		abort();
	keyring_free(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t page[4096] = {0};
	struct header h;

	if (crypto_init() < 0)
		abort();
	if (header_parse(data, size, &h) == 0)
		use(&h);
	memcpy(page, data, size < 4064 ? size : 4064);
	crypto_generichash(page + 4064, 32, page, 4064, NULL, 0);
	if (header_parse(page, sizeof page, &h) == 0)
		use(&h);
	return 0;
}
