/* Key slots: the right secret opens, all else does not, and a hostile slot costs nothing. */
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "slot.h"

static const struct slot_cost cheap = {1, 8u << 10};
static const struct id volume = {{1}}, other_volume = {{2}};
static const uint8_t master[KEY_LEN] = "the master key of a test volume";

static void test_open(enum slot_kind kind)
{
	enum slot_kind other = kind == SLOT_PASSPHRASE ? SLOT_KEYFILE : SLOT_PASSPHRASE;
	uint8_t slot[SLOT_LEN], got[KEY_LEN] = {0};

	CHECK_EQ(slot_make(slot, 3, kind, cheap, &volume, "secret", 6, master), 0);
	CHECK_EQ(slot_open(slot, &volume, "secreT", 6, kind, got), -ENOKEY);
	CHECK_EQ(slot_open(slot, &volume, "secre", 5, kind, got), -ENOKEY);
	CHECK_EQ(slot_open(slot, &volume, "", 0, kind, got), -ENOKEY);
	CHECK_EQ(slot_open(slot, &volume, "secret", 6, other, got), -ENOKEY);
	CHECK_EQ(slot_open(slot, &other_volume, "secret", 6, kind, got), -ENOKEY);
	CHECK(sodium_is_zero(got, sizeof got)); /* untouched by failures */
	CHECK_EQ(slot_open(slot, &volume, "secret", 6, kind, got), 0);
	CHECK(!memcmp(got, master, KEY_LEN));

	/* one bit of each authenticated byte: id and all from the salt to the sealed key */
	for (int i = 0; i < 104; i += i < 3 ? 1 : 9) {
		uint8_t changed[SLOT_LEN];
		memcpy(changed, slot, SLOT_LEN);
		changed[i] ^= 1;
		CHECK(slot_open(changed, &volume, "secret", 6, kind, got) < 0);
	}
}

static void test_cost(void)
{
	static const struct slot_cost bad[] = {{0, 8u << 10}, {65, 8u << 10}, {1, (8u << 10) - 1}, {1, (4u << 20) + 1},
					       {UINT32_MAX, UINT32_MAX}, {1, 0}};
	uint8_t slot[SLOT_LEN], got[KEY_LEN];

	REQUIRE(slot_make(slot, 1, SLOT_PASSPHRASE, cheap, &volume, "x", 1, master) == 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		uint8_t out[SLOT_LEN], hostile[SLOT_LEN];
		struct rusage before, after;
		CHECK_EQ(slot_make(out, 1, SLOT_PASSPHRASE, bad[i], &volume, "x", 1, master), -EINVAL);
		memcpy(hostile, slot, SLOT_LEN);
		le32_store(hostile + 8, bad[i].opslimit);
		le32_store(hostile + 12, bad[i].memlimit_kib);
		getrusage(RUSAGE_SELF, &before);
		CHECK_EQ(slot_open(hostile, &volume, "x", 1, SLOT_PASSPHRASE, got), -EUCLEAN);
		getrusage(RUSAGE_SELF, &after);
		CHECK(after.ru_maxrss - before.ru_maxrss < 1024); /* KiB: refused before anything was allocated */
	}
	CHECK_EQ(slot_make(slot, 1, SLOT_PASSPHRASE, cheap, &volume, "", 0, master), -EINVAL);
	CHECK_EQ(slot_make(slot, 1, SLOT_FREE, cheap, &volume, "x", 1, master), -EINVAL);
	CHECK_EQ(slot_make(slot, 1, (enum slot_kind)7, cheap, &volume, "x", 1, master), -EINVAL);
}

static void test_parse(void)
{
	uint8_t slot[SLOT_LEN] = {0}, got[KEY_LEN];
	struct slot_info info;

	CHECK(slot_parse(slot, &info) == 0 && info.kind == SLOT_FREE);
	CHECK_EQ(slot_open(slot, &volume, "x", 1, SLOT_PASSPHRASE, got), -ENOKEY);
	CHECK_EQ(slot_open(slot, &volume, "x", 1, SLOT_FREE, got), -ENOKEY);
	slot[100] = 1;
	CHECK_EQ(slot_parse(slot, &info), -EUCLEAN);
	slot[100] = 0;
	slot[4] = 3;
	CHECK_EQ(slot_parse(slot, &info), -EUCLEAN);

	REQUIRE(slot_make(slot, 12, SLOT_PASSPHRASE, cheap, &volume, "x", 1, master) == 0);
	CHECK_EQ(slot_set_name(slot, "0123456789012345678901234567890123"), -EINVAL);
	CHECK_EQ(slot_set_name(slot, "two\nlines"), -EINVAL);
	CHECK_EQ(slot_set_name(slot, "01234567890123456789012345678901"), 0);
	CHECK_EQ(slot_set_name(slot, "B\xc3\xbcro"), 0);
	CHECK_EQ(slot_parse(slot, &info), 0);
	CHECK(info.slot_id == 12 && info.kind == SLOT_PASSPHRASE && info.cost.opslimit == 1 &&
	      info.cost.memlimit_kib == 8u << 10 && !strcmp(info.name, "B\xc3\xbcro"));
	CHECK_EQ(slot_open(slot, &volume, "x", 1, SLOT_PASSPHRASE, got), 0); /* a name does not lock */
	static const int zeros[] = {5, 6, 7, 120, 136, SLOT_LEN - 1};
	for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
		slot[zeros[i]] ^= 1;
		CHECK_EQ(slot_parse(slot, &info), -EUCLEAN);
		slot[zeros[i]] ^= 1;
	}
}

int main(void)
{
	REQUIRE(crypto_init() == 0);
	test_open(SLOT_PASSPHRASE);
	test_open(SLOT_KEYFILE);
	test_cost();
	test_parse();
	return check_result();
}
