/* The volume file and the store's folder: round trip, damage at each byte, making and undoing, the lock. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "header.h"

static const uint8_t master[KEY_LEN] = "the master key of a test volume", secret[32] = {8, 9};
static const struct slot_cost cheap = {1, 8u << 10};
static char base[256], store[300];

static struct header make_header(const struct keyring *k)
{
	struct header h = {.volume = {{1}}, .cipher = CIPHER_AES256GCM, .replica = 77, .name = "laptop"};

	header_set_static(&h, k, secret);
	REQUIRE(slot_make(h.slot[0], 1, SLOT_PASSPHRASE, cheap, &h.volume, "pass", 4, master) == 0);
	REQUIRE(slot_make(h.slot[5], 2, SLOT_KEYFILE, cheap, &h.volume, "file", 4, master) == 0);
	return h;
}

static void read_page(int dir, uint8_t page[4096])
{
	int fd = openat(dir, "volume", O_RDONLY);
	REQUIRE(fd >= 0 && read(fd, page, 4096) == 4096);
	close(fd);
}

static void test_round_trip(int dir, const struct keyring *k)
{
	struct header h = make_header(k), got;
	uint8_t m[KEY_LEN], s[32], want[32];
	struct stat st;

	CHECK_EQ(header_read(dir, &got), -ENOENT);
	CHECK_EQ(header_write(dir, &h), 0);
	CHECK(fstatat(dir, "volume", &st, 0) == 0 && st.st_size == 4096 && (st.st_mode & 0777) == 0600);
	CHECK(fstatat(dir, "volume.new", &st, 0) < 0);
	CHECK_EQ(header_read(dir, &got), 0);
	CHECK(id_eq(&got.volume, &h.volume) && got.cipher == h.cipher && got.replica == 77 && !strcmp(got.name, "laptop"));
	CHECK(!memcmp(got.slot, h.slot, sizeof h.slot));
	CHECK_EQ(header_unlock(&got, "pass", 4, SLOT_PASSPHRASE, m), 0);
	CHECK(!memcmp(m, master, KEY_LEN));
	CHECK_EQ(header_unlock(&got, "file", 4, SLOT_KEYFILE, m), 0);
	CHECK_EQ(header_unlock(&got, "file", 4, SLOT_PASSPHRASE, m), -ENOKEY);
	CHECK_EQ(header_static_secret(&got, k, s), 0);
	CHECK(!memcmp(s, secret, 32));
	REQUIRE(crypto_scalarmult_base(want, secret) == 0);
	CHECK(!memcmp(got.static_public, want, 32));

	/* the secret belongs to this replica: under another name or number it does not open */
	got.replica++;
	CHECK_EQ(header_static_secret(&got, k, s), -EBADMSG);

	/* what would not be read is not written, and the old file stays */
	got = h;
	got.name[0] = '/';
	CHECK_EQ(header_write(dir, &got), -EINVAL);
	got = h;
	got.replica = 0;
	CHECK_EQ(header_write(dir, &got), -EINVAL);
	got = h;
	got.slot[3][4] = 99;
	CHECK_EQ(header_write(dir, &got), -EINVAL);
	CHECK_EQ(header_read(dir, &got), 0);
}

static void test_damage(int dir)
{
	uint8_t page[4096 + 1];
	struct header h;

	read_page(dir, page);
	for (size_t i = 0; i < 4096; i++) {
		page[i] ^= 1;
		CHECK_EQ(header_parse(page, 4096, &h), -EUCLEAN);
		page[i] ^= 1;
	}
	CHECK_EQ(header_parse(page, 4095, &h), -EUCLEAN);
	CHECK_EQ(header_parse(page, 4097, &h), -EUCLEAN);
	CHECK_EQ(header_parse(page, 0, &h), -EUCLEAN);
	CHECK_EQ(header_parse(page, 4096, &h), 0);
}

/* The checksum is no secret: fields are checked though it is right. */
static void test_hostile(int dir)
{
	static const struct {
		size_t at;
		uint8_t value;
	} changes[] = {{8, 2}, {12, 0}, {12, 4}, {15, 1}, {32, 0}, {16, 0}, {40, 0}, {40, '/'}, {50, 'x'}, {176, 7}, {176, 9},
		       {180 + 4, 3}, {180 + 8, 65}, {180 + 8, 0}, {180 + 15, 1}, {1716, 1}, {4063, 1}};
	uint8_t page[4096];
	struct header h;

	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		read_page(dir, page);
		page[changes[i].at] = changes[i].value;
		crypto_generichash(page + 4064, 32, page, 4064, NULL, 0);
		CHECK_EQ(header_parse(page, sizeof page, &h), -EUCLEAN);
	}
}

static void test_files(int dir)
{
	struct header h;

	REQUIRE(renameat(dir, "volume", dir, "good") == 0);
	REQUIRE(symlinkat("good", dir, "volume") == 0);
	CHECK_EQ(header_read(dir, &h), -EUCLEAN);
	REQUIRE(unlinkat(dir, "volume", 0) == 0 && renameat(dir, "good", dir, "volume") == 0);
	int fd = openat(dir, "volume", O_WRONLY | O_APPEND);
	REQUIRE(write(fd, "x", 1) == 1);
	CHECK_EQ(header_read(dir, &h), -EUCLEAN);
	REQUIRE(ftruncate(fd, 100) == 0);
	CHECK_EQ(header_read(dir, &h), -EUCLEAN);
	close(fd);
}

static void test_folder(void)
{
	struct stat st;
	char path[400];

	CHECK_EQ(store_make(store), 0);
	snprintf(path, sizeof path, "%s/objects/fe", store);
	CHECK(stat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700);
	CHECK_EQ(store_make(store), -ENOTEMPTY);
	/* what came into it meanwhile goes with it, what is not ours stays */
	snprintf(path, sizeof path, "%s/objects/fe/00000000000000fe", store);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	snprintf(path, sizeof path, "%s/foreign", store);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	store_unmake(store);
	CHECK(stat(path, &st) == 0);
	unlink(path);
	CHECK_EQ(rmdir(store), 0); /* nothing else was left */

	/* an empty directory may be used */
	REQUIRE(mkdir(store, 0700) == 0);
	CHECK_EQ(store_make(store), 0);
	store_unmake(store);
	CHECK(stat(store, &st) < 0);
	close(open(store, O_CREAT | O_WRONLY, 0600));
	CHECK_EQ(store_make(store), -EEXIST);
	unlink(store);
	snprintf(path, sizeof path, "%s/missing/store", base);
	CHECK_EQ(store_make(path), -ENOENT);
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_lock(void)
{
	int dir, lock, dir2, lock2;

	CHECK_EQ(store_lock(store, 0, &dir, &lock), -ENOENT);
	REQUIRE(mkdir(store, 0700) == 0);
	CHECK_EQ(store_lock(store, 0, &dir, &lock), -EUCLEAN);
	REQUIRE(rmdir(store) == 0 && store_make(store) == 0);
	CHECK_EQ(store_lock(store, 0, &dir, &lock), 0);
	/* an OFD lock keeps out even the same process */
	CHECK_EQ(store_lock(store, 0, &dir2, &lock2), -EBUSY);
	uint64_t start = now_ms();
	CHECK_EQ(store_lock(store, 150, &dir2, &lock2), -EBUSY);
	CHECK(now_ms() - start >= 150 && now_ms() - start < 5000);
	close(lock);
	close(dir);
	CHECK_EQ(store_lock(store, 0, &dir, &lock), 0);
	close(lock);
	close(dir);
	store_unmake(store);
}

int main(void)
{
	static const struct id volume = {{1}};
	const char *tmp = getenv("TMPDIR");
	int dir;

	REQUIRE(crypto_init() == 0);
	snprintf(base, sizeof base, "%s/twofold-header-XXXXXX", tmp ? tmp : "/tmp");
	REQUIRE(mkdtemp(base));
	snprintf(store, sizeof store, "%s/store", base);
	struct keyring *k = keyring_new(master, &volume, CIPHER_XCHACHA20POLY1305);
	REQUIRE(k);

	REQUIRE((dir = open(base, O_RDONLY | O_DIRECTORY)) >= 0);
	test_round_trip(dir, k);
	test_damage(dir);
	test_hostile(dir);
	test_files(dir);
	unlinkat(dir, "volume", 0);
	close(dir);
	test_folder();
	test_lock();
	CHECK(replica_name_valid("a") && replica_name_valid("Home-server_2") && !replica_name_valid("") &&
	      !replica_name_valid("a b") && !replica_name_valid("0123456789012345678901234567890123"));

	keyring_free(k);
	CHECK_EQ(rmdir(base), 0);
	return check_result();
}
