/* The file of an object after somebody wrote to it: header page, tag page and sealed pages are changed, exchanged, cut and put back as the input says.
 * Whatever it says, a page reads as what was written to it or not at all. */
#include "store_fixture.h"

#include <stdlib.h>

#define LOCAL 0x77
#define PAGES 6
#define HOLE 3
#define FILE_PAGES (2 + PAGES)

static struct fixture f;
static uint8_t plain[PAGES][PAGE_LEN], good[FILE_PAGES * PAGE_LEN];
static struct page_map map;
static struct root root;
static const struct id object = {{9, 9}};
static char name[NAME_MAX_BYTES];

static void done(void)
{
	extents_fini(&map.holes);
	fixture_close_store(&f);
	stats_free(f.st);
	keyring_free(f.k);
	fixture_rmtree(f.path);
}

static void must(bool true_)
{
	if (!true_)
		abort();
}

static void start(void)
{
	struct object *o;

	must(!crypto_init());
	fixture_init(&f, CIPHER_XCHACHA20POLY1305, SMALL_LOG);
	atexit(done);
	for (uint32_t i = 0; i < PAGES; i++)
		for (uint32_t k = 0; k < PAGE_LEN; k++)
			plain[i][k] = (uint8_t)(i * 31 + k * 7);
	must(!object_create(f.s, LOCAL, &object, 0, &o) && !object_write(o, 0, PAGES, plain[0], 1) && !object_punch(o, HOLE, 1));
	must(!object_flush(o) && !object_snapshot(o, &map, &root));
	f.committed = f.txn++;
	object_store_set_txn(f.s, f.txn);
	must(!object_store_committed(f.s, f.committed));
	object_close(o);
	object_local_name(LOCAL, name);
	int fd = openat(f.dirfd, name, O_RDONLY);
	must(fd >= 0 && pread(fd, good, sizeof good, 0) == (ssize_t)sizeof good);
	close(fd);
}

/* Changes as the input says: op u8, a u8, b u8, c u8. Returns the length of the file. */
static size_t change(uint8_t file[static sizeof good], const uint8_t *data, size_t size)
{
	size_t len = sizeof good;

	for (; size >= 4; data += 4, size -= 4) {
		size_t a = data[1] % FILE_PAGES * PAGE_LEN, b = data[2] % FILE_PAGES * PAGE_LEN, c = data[3];
		size_t from = PAGE_LEN + data[1] % PAGES * TAG_ENTRY_LEN, to = PAGE_LEN + data[2] % PAGES * TAG_ENTRY_LEN;
		switch (data[0] % 6) {
		case 0:
			file[a + (data[2] * 16 + c % 16) % PAGE_LEN] ^= (uint8_t)(c | 1);
			break;
		case 1:
			memmove(file + a, file + b, PAGE_LEN);
			break;
		case 2:
			memset(file + a, c, PAGE_LEN);
			break;
		case 3:
			memmove(file + to, file + from, TAG_ENTRY_LEN);
			break;
		case 4:
			len = (size_t)data[1] * 256 + data[2] < len ? (size_t)data[1] * 256 + data[2] : len;
			break;
		default: /* the rest stands there as it is */
			memcpy(file + a, data + 4, size - 4 < sizeof good - a ? size - 4 : sizeof good - a);
			return len;
		}
	}
	return len;
}

static void read_all(struct object *o)
{
	uint8_t buf[PAGES * PAGE_LEN], zeros[PAGE_LEN] = {0};

	for (uint32_t i = 0; i < PAGES; i++)
		for (uint32_t n = 1; i + n <= PAGES; n++) {
			uint64_t bad = UINT64_MAX;
			int r = object_read(o, i, n, buf, &bad);
			must(r == 0 || r == -EBADMSG);
			uint32_t read = r ? (uint32_t)(bad - i) : n;
			must(!r || (bad >= i && bad < i + n));
			for (uint32_t k = 0; k < read; k++)
				must(!memcmp(buf + k * PAGE_LEN, i + k == HOLE ? zeros : plain[i + k], PAGE_LEN));
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[sizeof good];
	struct object *o;

	if (!f.s)
		start();
	memcpy(file, good, sizeof good);
	size_t len = change(file, data, size);
	/* a store that knows nothing of before */
	fixture_close_store(&f);
	int fd = openat(f.dirfd = open(f.path, O_RDONLY | O_DIRECTORY), name, O_WRONLY | O_TRUNC);
	must(fd >= 0 && pwrite(fd, file, len, 0) == (ssize_t)len);
	close(fd);
	close(f.dirfd);
	fixture_open_store(&f);
	int r = object_open(f.s, LOCAL, &object, 0, &map, &root, &o);
	must(r == 0 || r == -EBADMSG || r == -EUCLEAN);
	if (r)
		return 0;
	must(!memcmp(file, good, PAGE_LEN) || len < PAGE_LEN); /* only the header that was made opens */
	read_all(o);
	object_close(o);
	return 0;
}
