/* Handshake messages. The first byte says what the rest is:
 *	0 message 1 for a responder    1 changes (xor) to a good message 1    2 payload of a good message 1
 *	3 message 2 for an initiator   4 changes to a good message 2 */
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "noise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* key_r's public key, written down because computing it is the slowest part of a run */
static const uint8_t key_i[32] = {1}, key_r[32] = {2}, eph_i[32] = {3}, eph_r[32] = {4}, psk[32] = {5};
static const uint8_t public_r[32] = {
	0x2f, 0xe5, 0x7d, 0xa3, 0x47, 0xcd, 0x62, 0x43, 0x15, 0x28, 0xda, 0xac, 0x5f, 0xbb, 0x29, 0x07,
	0x30, 0xff, 0xf6, 0x84, 0xaf, 0xc4, 0xcf, 0xc2, 0xed, 0x90, 0x99, 0x5f, 0x58, 0xcb, 0x3b, 0x74,
};

static struct noise *make(enum noise_role role)
{
	struct noise *n = role == NOISE_INITIATOR ? noise_new(role, "fuzz", 4, key_i, public_r, eph_i)
						  : noise_new(role, "fuzz", 4, key_r, NULL, eph_r);
	if (!n)
		abort();
	noise_set_psk(n, psk);
	return n;
}

/* True where it changed something. */
static int change(uint8_t *m, size_t len, const uint8_t *data, size_t size)
{
	int changed = 0;

	for (size_t i = 0; i < len && i < size; i++) {
		m[i] ^= data[i];
		changed |= data[i];
	}
	return changed;
}

static void responder(uint8_t mode, const uint8_t *data, size_t size)
{
	struct noise *i = make(NOISE_INITIATOR), *r = make(NOISE_RESPONDER);
	size_t payload_len = mode == 2 ? size : 17, len = NOISE_MESSAGE1_LEN(payload_len), got_len = 0;
	uint8_t *m = calloc(1, len), *got = malloc(len > size ? len : size + 1), m2[NOISE_MESSAGE2_LEN(0)];
	int changed = 0, result;

	if (!m || !got)
		abort();
	if (mode == 0) {
		result = noise_read(r, data, size, got, &got_len);
		changed = 1; /* nobody guesses a message that authenticates */
	} else {
		if (noise_write(i, mode == 2 ? data : m, payload_len, m) < 0)
			goto out; /* too long a payload */
		if (mode == 1)
			changed = change(m, len, data, size);
		result = noise_read(r, m, len, got, &got_len);
	}
	if ((result == 0) == !!changed)
		abort();
	if (result == 0 && (got_len != payload_len || (mode == 2 && memcmp(got, data, size))))
		abort();
	if ((noise_write(r, NULL, 0, m2) == 0) != (result == 0))
		abort();
out:
	free(m);
	free(got);
	noise_free(i);
	noise_free(r);
}

static void initiator(uint8_t mode, const uint8_t *data, size_t size)
{
	struct noise *i = make(NOISE_INITIATOR), *r = make(NOISE_RESPONDER);
	uint8_t m1[NOISE_MESSAGE1_LEN(0)], m2[NOISE_MESSAGE2_LEN(0)], *got = malloc(size + sizeof m1);
	size_t len;
	int changed = 1, result;

	if (!got || noise_write(i, NULL, 0, m1) < 0 || noise_read(r, m1, sizeof m1, got, &len) < 0 ||
	    noise_write(r, NULL, 0, m2) < 0)
		abort();
	if (mode == 3) {
		result = noise_read(i, data, size, got, &len);
	} else {
		changed = change(m2, sizeof m2, data, size);
		result = noise_read(i, m2, sizeof m2, got, &len);
	}
	/* mode 3 may well hold the good message, which is the same every time */
	if (mode == 4 && (result == 0) == !!changed)
		abort();
	if (noise_done(i) != (result == 0))
		abort();
	free(got);
	noise_free(i);
	noise_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (crypto_init() < 0)
		abort();
	if (!size)
		return 0;
	uint8_t mode = data[0] % 5;
	if (mode < 3)
		responder(mode, data + 1, size - 1);
	else
		initiator(mode, data + 1, size - 1);
	return 0;
}
