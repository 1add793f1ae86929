/* The `volume` file and the key slots in it. Nothing here keeps state; the store's lock keeps writers apart. */
#include "header.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include "cleanup.h"

#define HEADER_LEN 4096
#define CIPHER_AT 12
#define VOLUME_AT 16
#define REPLICA_AT 32
#define NAME_AT 40
#define PUBLIC_AT 72
#define SEALED_AT 104
#define SLOTS_AT 176
#define ZEROS_AT (SLOTS_AT + 4 + HEADER_SLOTS * SLOT_LEN)
#define HASH_AT 4064
#define HASH_LEN 32

static const char magic[8] = "TWOFOLD1";

bool replica_name_valid(const char *name)
{
	size_t len = strnlen(name, REPLICA_NAME_MAX + 1);

	return len >= 1 && len <= REPLICA_NAME_MAX &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

/* What stands before the sealed secret, and is its additional data. */
static void put_clear(const struct header *h, uint8_t page[static SEALED_AT])
{
	memset(page, 0, SEALED_AT);
	memcpy(page, magic, sizeof magic);
	le32_store(page + 8, FORMAT_VERSION);
	le32_store(page + CIPHER_AT, (uint32_t)h->cipher);
	memcpy(page + VOLUME_AT, h->volume.b, ID_LEN);
	le64_store(page + REPLICA_AT, h->replica);
	memcpy(page + NAME_AT, h->name, strnlen(h->name, REPLICA_NAME_MAX));
	memcpy(page + PUBLIC_AT, h->static_public, sizeof h->static_public);
}

static bool slots_valid(const uint8_t *p)
{
	struct slot_info info;

	for (int i = 0; i < HEADER_SLOTS; i++)
		if (slot_parse(p + i * SLOT_LEN, &info) < 0)
			return false;
	return true;
}

int header_parse(const uint8_t *page, size_t len, struct header *ret)
{
	uint8_t hash[HASH_LEN];
	struct header h = {0};
	size_t name_len;

	if (len != HEADER_LEN || memcmp(page, magic, sizeof magic) || le32_load(page + 8) != FORMAT_VERSION)
		return -EUCLEAN;
	crypto_generichash(hash, sizeof hash, page, HASH_AT, NULL, 0);
	if (memcmp(hash, page + HASH_AT, HASH_LEN))
		return -EUCLEAN;

	h.cipher = (enum cipher)le32_load(page + CIPHER_AT);
	memcpy(h.volume.b, page + VOLUME_AT, ID_LEN);
	h.replica = le64_load(page + REPLICA_AT);
	memcpy(h.name, page + NAME_AT, REPLICA_NAME_MAX);
	memcpy(h.static_public, page + PUBLIC_AT, sizeof h.static_public);
	memcpy(h.static_sealed, page + SEALED_AT, sizeof h.static_sealed);
	memcpy(h.slot, page + SLOTS_AT + 4, sizeof h.slot);

	/* a checksum anybody can compute proves nothing about the fields */
	name_len = strlen(h.name);
	if (!cipher_name(h.cipher) || id_is_zero(&h.volume) || !h.replica || !replica_name_valid(h.name) ||
	    !sodium_is_zero(page + NAME_AT + name_len, REPLICA_NAME_MAX - name_len) ||
	    le32_load(page + SLOTS_AT) != HEADER_SLOTS || !slots_valid(page + SLOTS_AT + 4) ||
	    !sodium_is_zero(page + ZEROS_AT, HASH_AT - ZEROS_AT))
		return -EUCLEAN;
	*ret = h;
	return 0;
}

int header_read(int dirfd, struct header *ret)
{
	uint8_t page[HEADER_LEN + 1]; /* one byte more shows a file that is too long */
	size_t len = 0;
	int fd CLEANUP_CLOSE = openat(dirfd, "volume", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ELOOP ? -EUCLEAN : -errno;
	while (len < sizeof page) {
		ssize_t n = read(fd, page + len, sizeof page - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	return header_parse(page, len, ret);
}

static int write_new(int dirfd, const char *name, const uint8_t *p, size_t len)
{
	int fd CLEANUP_CLOSE = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, p + at, len - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		at += (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

int header_write(int dirfd, const struct header *h)
{
	static const char temporary[] = "volume.new";
	uint8_t page[HEADER_LEN] = {0};
	struct header check;
	int r;

	put_clear(h, page);
	memcpy(page + SEALED_AT, h->static_sealed, sizeof h->static_sealed);
	le32_store(page + SLOTS_AT, HEADER_SLOTS);
	memcpy(page + SLOTS_AT + 4, h->slot, sizeof h->slot);
	crypto_generichash(page + HASH_AT, HASH_LEN, page, HASH_AT, NULL, 0);
	/* never replace a good file by one that would not open */
	if (header_parse(page, sizeof page, &check) < 0)
		return -EINVAL;

	r = write_new(dirfd, temporary, page, sizeof page);
	if (r == 0 && renameat(dirfd, temporary, dirfd, "volume") < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, temporary, 0);
		return r;
	}
	return fsync(dirfd) < 0 ? -errno : 0;
}

int header_unlock(const struct header *h, const void *secret, size_t len, enum slot_kind kind,
		  uint8_t ret_master[static KEY_LEN])
{
	int result = -ENOKEY;

	for (int i = 0; i < HEADER_SLOTS; i++) {
		int r = slot_open(h->slot[i], &h->volume, secret, len, kind, ret_master);
		if (r == 0)
			return 0;
		if (r == -ENOMEM)
			result = r;
	}
	return result;
}

int header_static_secret(const struct header *h, const struct keyring *k, uint8_t ret_secret[static 32])
{
	uint8_t aad[SEALED_AT];

	put_clear(h, aad);
	return keyring_open_header(k, aad, sizeof aad, h->static_sealed, sizeof h->static_sealed, ret_secret);
}

void header_set_static(struct header *h, const struct keyring *k, const uint8_t secret[static 32])
{
	uint8_t aad[SEALED_AT];

	/* fails for no secret: the base point's multiples are never zero */
	(void)!crypto_scalarmult_base(h->static_public, secret);
	put_clear(h, aad);
	keyring_seal_header(k, aad, sizeof aad, secret, 32, h->static_sealed);
}
