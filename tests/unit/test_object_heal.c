/* Mending objects: what is damaged is found, a sealed page of the same version mends it, another one does not; entries have to add up. */
#include "store_fixture.h"

#include "object_heal.h"

#define N 300
static const struct id object_a = {{0xab, 2}};

static uint8_t plain[N * PAGE_LEN], entries[N * TAG_ENTRY_LEN], sealed[N * PAGE_LEN];

static void scribble(struct fixture *f, off_t off, size_t len)
{
	static const uint8_t zeros[PAGE_LEN];
	int fd = openat(f->dirfd, "objects/34/0000000000001234", O_WRONLY);

	CHECK(fd >= 0);
	CHECK_EQ(pwrite(fd, zeros, len, off), (ssize_t)len);
	close(fd);
}

static uint32_t damaged(struct object *o)
{
	bool bad[GROUP_PAGES];
	uint32_t n = 0;

	for (uint32_t p = 0; p < N; p += GROUP_PAGES) {
		uint32_t k = N - p < GROUP_PAGES ? N - p : GROUP_PAGES;
		CHECK_EQ(object_damaged(o, p, k, bad), 0);
		for (uint32_t i = 0; i < k; i++)
			n += bad[i];
	}
	return n;
}

int main(void)
{
	struct fixture f;
	struct object *o;
	struct page_map map;
	struct root root;

	CHECK_EQ(crypto_init(), 0);
	fixture_init(&f, CIPHER_XCHACHA20POLY1305, SMALL_LOG);
	CHECK_EQ(object_create(f.s, 0x1234, &object_a, 0, &o), 0);
	for (uint32_t i = 0; i < N; i++)
		fixture_fill(plain + i * PAGE_LEN, i, 1);
	CHECK_EQ(object_write(o, 0, N, plain, 1), 0);
	CHECK_EQ(object_read_sealed(o, 0, N, entries, sealed), 0);
	CHECK_EQ(object_flush(o), 0);
	CHECK_EQ(damaged(o), 0);
	CHECK_EQ(object_check_entries(o), 0);

	/* two pages; another page or another version does not mend them */
	scribble(&f, data_off(5), PAGE_LEN);
	scribble(&f, data_off(200), 16);
	CHECK_EQ(damaged(o), 2);
	CHECK_EQ(object_heal_page(o, 5, entries + 6 * TAG_ENTRY_LEN, sealed + 6 * PAGE_LEN), -EBADMSG);
	CHECK_EQ(object_heal_page(o, 5, entries + 5 * TAG_ENTRY_LEN, sealed + 5 * PAGE_LEN), 0);
	CHECK_EQ(object_heal_page(o, 200, entries + 200 * TAG_ENTRY_LEN, sealed + 200 * PAGE_LEN), 0);
	CHECK_EQ(damaged(o), 0);

	/* a page of tags: wrong entries are refused, nothing is written */
	scribble(&f, tags_off(1), PAGE_LEN);
	CHECK_EQ(object_check_entries(o), -EBADMSG);
	entries[7] ^= 1;
	CHECK_EQ(object_heal_entries(o, entries, N), -EBADMSG);
	CHECK_EQ(object_check_entries(o), -EBADMSG);
	entries[7] ^= 1;
	CHECK_EQ(object_heal_entries(o, entries, N - 1), -ESTALE);
	CHECK_EQ(object_heal_entries(o, entries, N), 0);
	CHECK_EQ(object_check_entries(o), 0);
	CHECK_EQ(damaged(o), 0);
	/* the old version of a page that was written since is not put back */
	fixture_fill(plain, 0, 2);
	CHECK_EQ(object_write(o, 0, 1, plain, 1), 0);
	CHECK_EQ(object_heal_page(o, 0, entries, sealed), -ESTALE);

	/* the file is gone */
	CHECK_EQ(object_flush(o), 0);
	object_map(o, &map, &root);
	object_close(o);
	CHECK_EQ(unlinkat(f.dirfd, "objects/34/0000000000001234", 0), 0);
	CHECK_EQ(object_heal_header(f.s, 0x1234, &object_a, 0), 0);
	CHECK_EQ(object_open(f.s, 0x1234, &object_a, 0, &map, &root, &o), 0);
	object_lost_file(o);
	CHECK(damaged(o) >= N - 1);
	extents_fini(&map.holes);
	object_close(o);
	fixture_fini(&f);
	return check_result();
}
