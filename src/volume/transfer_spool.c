/* Sealed pages of a RANGES answer, set aside until all are there. The file has no name while it is small; a large one gets incoming/NAME.ranges, so that a connection
 * that ends does not begin anew: magic 8 | base: node 16, dot 16, root 32, all padded to SPOOL_HEAD | (page u64 | tag entry | sealed page) each, pages ascending. Nothing
 * of it is believed when it is opened again: pages must authenticate, and the root of the whole decides at the end as always. */
#include "transfer_sink_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define SPOOL_HEAD 128
#define RECORD_LEN (8 + TAG_ENTRY_LEN + PAGE_LEN)
#define NAMED_FROM 256u /* pages */

static const char magic[8] = "2fRANGE1";

static void spool_path(const struct transfer_sink *s, char path[static TRANSFER_NAME_MAX + 24])
{
	snprintf(path, TRANSFER_NAME_MAX + 24, "incoming/%s" SPOOL_SUFFIX, s->name);
}

static off_t record_at(uint64_t n) { return SPOOL_HEAD + (off_t)(n * RECORD_LEN); }

int spool_open(struct transfer_sink *s)
{
	char path[TRANSFER_NAME_MAX + 24];
	int fd = openat(s->e.dirfd, "incoming", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL)) {
		spool_path(s, path);
		unlinkat(s->e.dirfd, path, 0);
		fd = openat(s->e.dirfd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0)
			unlinkat(s->e.dirfd, path, 0);
	}
	if (fd < 0)
		return -errno;
	s->spool = (struct spool){.fd = fd, .base = s->base_name};
	return 0;
}

/* Without a name it cannot be gone on with; that is all. */
static void give_name(struct transfer_sink *s)
{
	char path[TRANSFER_NAME_MAX + 24], self[40];
	uint8_t zeros[SPOOL_HEAD] = {0};
	struct buf head = {0};

	s->spool.named = true;
	buf_put(&head, magic, sizeof magic);
	base_put(&head, &s->spool.base);
	buf_put(&head, zeros, SPOOL_HEAD - head.len);
	spool_path(s, path);
	snprintf(self, sizeof self, "/proc/self/fd/%d", s->spool.fd);
	if (!head.err && pwrite(s->spool.fd, head.p, head.len, 0) == (ssize_t)head.len && (!unlinkat(s->e.dirfd, path, 0) || errno == ENOENT))
		(void)!linkat(AT_FDCWD, self, s->e.dirfd, path, AT_SYMLINK_FOLLOW);
	buf_fini(&head);
}

/* They stand in the file. */
static int note(struct transfer_sink *s, uint64_t first, uint32_t n, const uint8_t *entries)
{
	struct root term;
	int r = extents_add(&s->spool.pages, first, n);

	if (r)
		return r;
	for (uint32_t i = 0; i < n; i++) {
		keyring_page_term(s->e.keys, first + i, entries + (size_t)i * TAG_ENTRY_LEN, &term);
		root_add(&s->spool.sum, &term);
	}
	s->spool.n += n;
	s->spool.next = first + n;
	return 0;
}

int spool_add(struct transfer_sink *s, uint64_t first, uint32_t n, const uint8_t *entries, const uint8_t *sealed)
{
	uint8_t numbers[TRANSFER_RUN_PAGES][8];
	struct iovec iov[3 * TRANSFER_RUN_PAGES];

	for (uint32_t i = 0; i < n; i++) {
		le64_store(numbers[i], first + i);
		iov[3 * i] = (struct iovec){numbers[i], 8};
		iov[3 * i + 1] = (struct iovec){(void *)(uintptr_t)(entries + (size_t)i * TAG_ENTRY_LEN), TAG_ENTRY_LEN};
		iov[3 * i + 2] = (struct iovec){(void *)(uintptr_t)(sealed + (size_t)i * PAGE_LEN), PAGE_LEN};
	}
	ssize_t put = pwritev(s->spool.fd, iov, (int)(3 * n), record_at(s->spool.n));
	if (put < 0)
		return -errno;
	if (put != (ssize_t)(n * RECORD_LEN))
		return -ENOSPC;
	int r = note(s, first, n, entries);
	if (r)
		return r;
	if (s->spool.n >= NAMED_FROM && !s->spool.named)
		give_name(s);
	return 0;
}

int spool_read(const struct spool *p, uint64_t at, uint32_t n, uint8_t *ret_entries, uint8_t *ret_sealed)
{
	uint8_t numbers[TRANSFER_RUN_PAGES][8];
	struct iovec iov[3 * TRANSFER_RUN_PAGES];

	for (uint32_t i = 0; i < n; i++) {
		iov[3 * i] = (struct iovec){numbers[i], 8};
		iov[3 * i + 1] = (struct iovec){ret_entries + (size_t)i * TAG_ENTRY_LEN, TAG_ENTRY_LEN};
		iov[3 * i + 2] = (struct iovec){ret_sealed + (size_t)i * PAGE_LEN, PAGE_LEN};
	}
	return preadv(p->fd, iov, (int)(3 * n), record_at(at)) == (ssize_t)(n * RECORD_LEN) ? 0 : -EIO;
}

void spool_close(struct transfer_sink *s, bool keep)
{
	char path[TRANSFER_NAME_MAX + 24];

	if (s->spool.fd < 0)
		return;
	close(s->spool.fd);
	extents_fini(&s->spool.pages);
	if (s->spool.named && !keep) {
		spool_path(s, path);
		unlinkat(s->e.dirfd, path, 0);
	}
	s->spool = (struct spool){.fd = -1};
}

/* The next record, where it is one. 1; 0: the end, or what cannot be used. */
static int next_record(struct transfer_sink *s, uint8_t *record, uint8_t *plain)
{
	struct spool *p = &s->spool;
	ssize_t n = pread(p->fd, record, RECORD_LEN, record_at(p->n));

	if (n != RECORD_LEN)
		return 0;
	uint64_t page = le64_load(record);
	if (page < p->next || !content_has_page(&s->target, page) || page_open(s->sealer, page, record + 8, record + 8 + TAG_ENTRY_LEN, plain))
		return 0;
	int r = note(s, page, 1, record + 8);
	return r ? r : 1;
}

int spool_resume(struct transfer_sink *s)
{
	uint8_t head[SPOOL_HEAD], *buf = NULL;
	char path[TRANSFER_NAME_MAX + 24];
	int r = 0;

	spool_path(s, path);
	int fd = openat(s->e.dirfd, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	s->spool = (struct spool){.fd = fd, .named = true};
	struct reader in = reader_of(head, sizeof head);
	if (pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && !memcmp(read_bytes(&in, sizeof magic), magic, sizeof magic)) {
		base_read(&in, &s->spool.base);
		buf = malloc(RECORD_LEN + PAGE_LEN);
		r = buf ? 1 : -ENOMEM;
		while (r == 1)
			r = next_record(s, buf, buf + RECORD_LEN);
		free(buf);
	}
	if (r || !s->spool.n || ftruncate(fd, record_at(s->spool.n)))
		spool_close(s, r < 0);
	return r;
}
