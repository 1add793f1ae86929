/* The log's file: making, opening, appending, flushing, emptying. What is done with the pages: redo_apply.c, redo_replay.c. */
#include "object_internal.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_MAGIC "TWFREDO1"
#define SLOT_MAC 4064
#define SLOT_FORMAT 1
#define ZERO_STEP (1u << 20)
#define LOG_MAX_BYTES (UINT64_C(1) << 30)

static off_t half_off(const struct redo *l, uint8_t half) { return (off_t)REDO_HEAD + (off_t)half * l->half_len; }

static int slot_write(int fd, const struct keyring *k, uint8_t half, uint8_t slot, uint64_t generation)
{
	uint8_t p[PAGE_LEN] = {0};

	memcpy(p, SLOT_MAGIC, 8);
	le32_store(p + 8, SLOT_FORMAT);
	le32_store(p + 12, half);
	le64_store(p + 16, generation);
	memcpy(p + 24, keyring_volume(k)->b, ID_LEN);
	keyring_header_mac(k, p, SLOT_MAC, p + SLOT_MAC);
	return full_pwrite(fd, p, PAGE_LEN, (off_t)(2 * half + slot) * PAGE_LEN);
}

/* 0 and the generation; -EUCLEAN. */
static int slot_read(int fd, const struct keyring *k, uint8_t half, uint8_t slot, uint64_t *ret_generation)
{
	uint8_t p[PAGE_LEN], mac[32];
	ssize_t n = full_pread(fd, p, PAGE_LEN, (off_t)(2 * half + slot) * PAGE_LEN);

	if (n < 0)
		return (int)n;
	if (n != PAGE_LEN)
		return -EUCLEAN;
	keyring_header_mac(k, p, SLOT_MAC, mac);
	if (memcmp(p, SLOT_MAGIC, 8) || memcmp(mac, p + SLOT_MAC, 32) || le32_load(p + 8) != SLOT_FORMAT ||
	    le32_load(p + 12) != half || memcmp(p + 24, keyring_volume(k)->b, ID_LEN))
		return -EUCLEAN;
	*ret_generation = le64_load(p + 16);
	return 0;
}

static int zero_fill(int fd, uint64_t off, uint64_t len)
{
	uint8_t *zeros = calloc(1, ZERO_STEP);
	int r = zeros ? 0 : -ENOMEM;

	while (!r && len) {
		size_t n = len < ZERO_STEP ? (size_t)len : ZERO_STEP;
		r = full_pwrite(fd, zeros, n, (off_t)off);
		off += n;
		len -= n;
	}
	free(zeros);
	return r;
}

int redo_make(int dirfd, const struct keyring *k, const struct env *env, uint64_t len_bytes)
{
	int fd, r;

	fd = openat(dirfd, "redo.new", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Preallocated, so that no space is missing later; where the filesystem cannot, by writing it. */
	r = fallocate(fd, 0, 0, (off_t)len_bytes) ? -errno : 0;
	if (r == -EOPNOTSUPP || r == -ENOSYS)
		r = zero_fill(fd, 0, len_bytes);
	for (uint8_t h = 0; !r && h < 2; h++)
		r = slot_write(fd, k, h, 0, 1 + h);
	if (!r && fsync(fd))
		r = -errno;
	if (!r && renameat(dirfd, "redo.new", dirfd, "redo"))
		r = -errno;
	if (!r && fsync(dirfd))
		r = -errno;
	if (r)
		unlinkat(dirfd, "redo.new", 0);
	close(fd);
	return r;
}

static int read_start(struct object_store *s, uint8_t half, uint32_t len, uint8_t **ret_bytes)
{
	uint8_t *p = malloc(len);
	ssize_t n;

	if (!p)
		return -ENOMEM;
	n = full_pread(s->redo.fd, p, len, half_off(&s->redo, half));
	if (n != (ssize_t)len) {
		free(p);
		return n < 0 ? (int)n : -EUCLEAN;
	}
	*ret_bytes = p;
	return 0;
}

int redo_half_read(struct object_store *s, uint8_t half, uint8_t **ret_bytes)
{
	return read_start(s, half, s->redo.half_len, ret_bytes);
}

void redo_half_scan(struct object_store *s, const uint8_t *p, uint64_t generation, uint32_t *ret_end, uint64_t *ret_max_txn,
		    uint64_t *ret_max_local)
{
	struct redo_record r;
	uint32_t len, pos = 0;

	while (!redo_record_parse(s->k, p + pos, s->redo.half_len - pos, &r, &len) && r.generation == generation &&
	       r.off == pos) {
		if (r.txn > *ret_max_txn)
			*ret_max_txn = r.txn;
		if (r.local > *ret_max_local)
			*ret_max_local = r.local;
		pos += len;
	}
	*ret_end = pos;
}

/* Whether a record of the half's generation stands in its first bytes. Not only at the start: that one may be damaged, which replay has
 * to judge; two of the largest records in a row that are both damaged pass for an empty log. */
static int half_in_use(struct object_store *s, uint8_t h, bool *ret)
{
	struct redo *l = &s->redo;
	uint32_t len, n = 2 * redo_record_len(REDO_LOCAL, REDO_PAGES_MAX);
	struct redo_record r;
	uint8_t *p = NULL;
	int e;

	n = n < l->half_len ? n : l->half_len;
	e = read_start(s, h, n, &p);
	if (e)
		return e;
	*ret = false;
	for (uint32_t at = 0; !*ret && at + REDO_RECORD_HEAD <= n; at += REDO_ALIGN)
		*ret = !redo_record_parse(s->k, p + at, n - at, &r, &len) && r.generation == l->half[h].generation && r.off == at;
	free(p);
	return 0;
}

/* Most logs are empty when they are opened: only one that is not is read whole. */
static int half_open(struct object_store *s, uint8_t h)
{
	struct redo *l = &s->redo;
	struct redo_half *half = &l->half[h];
	bool in_use;
	uint8_t *p = NULL;
	int r = half_in_use(s, h, &in_use);

	if (r || !in_use)
		return r;
	r = redo_half_read(s, h, &p);
	if (r)
		return r;
	redo_half_scan(s, p, half->generation, &half->pos, &half->last_txn, &l->max_local);
	if (!half->pos)
		half->pos = REDO_ALIGN; /* not empty, and replay says whether it may be so */
	if (half->last_txn > l->max_txn)
		l->max_txn = half->last_txn;
	free(p);
	return 0;
}

/* An empty log may hold leftovers of its present generation beyond a start that never reached the disk: they must not follow on what is
 * appended now. */
static int outdate_leftovers(struct object_store *s)
{
	struct redo *l = &s->redo;
	int r = 0;

	for (uint8_t i = 0; !r && i < 2; i++) {
		uint8_t h = l->half[0].generation > l->half[1].generation;
		if (l->half[0].zeroed || l->half[1].zeroed)
			r = redo_empty(s, h);
	}
	return r;
}

static void find_zeroed(struct redo *l, uint8_t h)
{
	off_t start = half_off(l, h), hole = lseek(l->fd, start, SEEK_HOLE);

	if (hole < 0 || hole > start + (off_t)l->half_len)
		hole = start + (off_t)l->half_len;
	l->half[h].zeroed = (uint32_t)(hole - start) & ~(uint32_t)(PAGE_LEN - 1);
}

static int halves_open(struct object_store *s)
{
	struct redo *l = &s->redo;
	struct stat st;
	int r = 0;

	if (fstat(l->fd, &st))
		return -errno;
	if (st.st_size < REDO_MIN_BYTES || (uint64_t)st.st_size > LOG_MAX_BYTES)
		return -EUCLEAN;
	l->half_len = (uint32_t)((st.st_size - REDO_HEAD) / 2) & ~(uint32_t)(PAGE_LEN - 1);
	for (uint8_t h = 0; h < 2; h++) {
		bool any = false;
		for (uint8_t slot = 0; slot < 2; slot++) {
			uint64_t g;
			r = slot_read(l->fd, s->k, h, slot, &g);
			if (r == -EUCLEAN)
				continue;
			if (r)
				return r;
			if (!any || g > l->half[h].generation) {
				l->half[h].generation = g;
				l->half[h].slot = slot;
			}
			any = true;
		}
		if (!any)
			return -EUCLEAN;
		r = 0;
		find_zeroed(l, h);
	}
	for (uint8_t h = 0; !r && h < 2; h++)
		r = half_open(s, h);
	l->need_replay = l->half[0].pos || l->half[1].pos;
	if (!r && !l->need_replay && !s->read_only)
		r = outdate_leftovers(s);
	l->active = l->half[0].generation > l->half[1].generation;
	return r;
}

int redo_open(struct object_store *s)
{
	struct redo *l = &s->redo;
	int r;

	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	l->fd = openat(s->dirfd, "redo", (s->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (l->fd < 0 && errno != ENOENT)
		return -errno;
	if (l->fd < 0) {
		if (s->read_only)
			return 0;
		r = redo_make(s->dirfd, s->k, s->env, REDO_BYTES);
		if (r)
			return r;
		l->fd = openat(s->dirfd, "redo", O_RDWR | O_CLOEXEC);
		if (l->fd < 0)
			return -errno;
	}
	r = halves_open(s);
	if (r) {
		log_error("redo: %s", r == -EUCLEAN ? "damaged or of another volume" : strerror(-r));
		redo_close(s);
	}
	return r;
}

void redo_close(struct object_store *s)
{
	if (s->redo.fd >= 0)
		close(s->redo.fd);
	s->redo.fd = -1;
	pthread_mutex_destroy(&s->redo.lock);
	pthread_cond_destroy(&s->redo.changed);
}

/* Unwritten extents cost a change of metadata with the first write to each block, which would make every fdatasync of a new
 * log slow: whole steps are written ahead once. Lock held. */
static int write_ahead(struct redo *l, struct redo_half *half, uint32_t upto)
{
	while (half->zeroed < upto) {
		uint32_t n = l->half_len - half->zeroed < ZERO_STEP ? l->half_len - half->zeroed : ZERO_STEP;
		int r = zero_fill(l->fd, (uint64_t)half_off(l, (uint8_t)(half - l->half)) + half->zeroed, n);
		if (r)
			return r;
		half->zeroed += n;
	}
	return 0;
}

void redo_switch(struct redo *l)
{
	l->active ^= 1;
}

/* Gives the record its place. Lock held. */
static int reserve(struct object_store *s, struct redo_record *r, uint32_t len, struct redo_append *a)
{
	struct redo *l = &s->redo;
	struct redo_half *half = &l->half[l->active];
	int ret;

	if (l->error)
		return l->error;
	if (l->need_replay || l->replayed)
		return -EAGAIN;
	if (half->pos + len > l->half_len) {
		if (l->half[l->active ^ 1].pos)
			return -EAGAIN;
		redo_switch(l);
		redo_worker_start(s);
		pthread_cond_broadcast(&l->changed); /* the other half can be written in place now */
		half = &l->half[l->active];
	}
	ret = write_ahead(l, half, half->pos + len);
	if (ret)
		return ret;
	r->generation = half->generation;
	r->off = half->pos;
	r->durable_generation = l->durable_generation;
	r->durable_off = l->durable_off;
	r->end_before = l->half[l->active ^ 1].pos;
	*a = (struct redo_append){l->writing, l->lsn, l->active, half->generation};
	l->writing = a;
	half->pos += len;
	half->users++;
	if (r->txn > half->last_txn)
		half->last_txn = r->txn;
	l->lsn += len;
	return 0;
}

/* Lock held. */
static void written(struct redo *l, struct redo_append *a)
{
	struct redo_append **p = &l->writing;

	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	if (l->flushing)
		pthread_cond_broadcast(&l->changed);
}

int redo_append(struct object_store *s, struct redo_record *r, uint8_t *head, struct iovec *pages, int n_iov,
		struct redo_append *ret)
{
	struct redo *l = &s->redo;
	uint32_t len = redo_record_len(r->kind, r->count);
	struct iovec iov[1 + REDO_PAGES_MAX];
	uint64_t start = stats_now_ns();
	int ret_code;

	if (s->read_only)
		return -EROFS;
	pthread_mutex_lock(&l->lock);
	ret_code = reserve(s, r, len, ret);
	pthread_mutex_unlock(&l->lock);
	if (ret_code)
		return ret_code;
	redo_record_put(s->k, r, head);
	iov[0] = (struct iovec){head, redo_head_len(r->kind, r->count)};
	for (int i = 0; i < n_iov; i++)
		iov[1 + i] = pages[i];
	ret_code = full_pwritev(l->fd, iov, 1 + n_iov, half_off(l, ret->half) + r->off);

	pthread_mutex_lock(&l->lock);
	written(l, ret);
	if (ret_code) {
		log_error("redo: writing failed: %s; nothing is overwritten until the store is opened again", strerror(-ret_code));
		l->error = -EIO;
		l->half[ret->half].users--;
		pthread_cond_broadcast(&l->changed);
	}
	pthread_mutex_unlock(&l->lock);
	stats_since(s->st, STAGE_REDO_APPEND, start);
	stats_add(s->st, COUNT_REDO_BYTES, len);
	return ret_code;
}

void redo_published(struct object_store *s, struct redo_append *a)
{
	struct redo *l = &s->redo;

	pthread_mutex_lock(&l->lock);
	if (!--l->half[a->half].users)
		pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

bool redo_has_generation(struct object_store *s, uint64_t generation)
{
	struct redo *l = &s->redo;
	bool yes;

	pthread_mutex_lock(&l->lock);
	yes = (l->half[0].pos && l->half[0].generation == generation) ||
	      (l->half[1].pos && l->half[1].generation == generation);
	pthread_mutex_unlock(&l->lock);
	return yes;
}

static bool writing_before(const struct redo *l, uint64_t lsn)
{
	for (const struct redo_append *a = l->writing; a; a = a->next)
		if (a->lsn < lsn)
			return true;
	return false;
}

/* Lock held, dropped meanwhile. */
static void flush_once(struct object_store *s)
{
	struct redo *l = &s->redo;
	uint64_t lsn = l->lsn, generation = l->half[l->active].generation, start;
	uint32_t off = l->half[l->active].pos;
	int r;

	l->flushing = true;
	while (writing_before(l, lsn))
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
	start = stats_now_ns();
	r = fdatasync(l->fd) ? -errno : 0;
	stats_since(s->st, STAGE_REDO_FLUSH, start);
	pthread_mutex_lock(&l->lock);
	if (r) {
		log_error("redo: flushing failed: %s; nothing is overwritten until the store is opened again", strerror(-r));
		l->error = -EIO;
	} else {
		l->durable = lsn;
		l->durable_generation = generation;
		l->durable_off = off;
	}
	l->flushing = false;
	pthread_cond_broadcast(&l->changed);
}

int redo_flush(struct object_store *s)
{
	struct redo *l = &s->redo;
	uint64_t target;
	int r;

	if (l->fd < 0)
		return 0;
	pthread_mutex_lock(&l->lock);
	target = l->lsn;
	while (!l->error && l->durable < target) {
		if (l->flushing)
			pthread_cond_wait(&l->changed, &l->lock);
		else
			flush_once(s);
	}
	r = l->durable < target ? l->error : 0;
	pthread_mutex_unlock(&l->lock);
	return r;
}

uint64_t object_store_log_txn(struct object_store *s) { return s->redo.max_txn; }

int object_store_flush_redo(struct object_store *s) { return redo_flush(s); }

int redo_empty(struct object_store *s, uint8_t h)
{
	struct redo *l = &s->redo;
	uint64_t a = l->half[0].generation, b = l->half[1].generation, next = (a > b ? a : b) + 1;
	uint8_t slot = l->half[h].slot ^ 1;
	int r = slot_write(l->fd, s->k, h, slot, next);

	if (!r && fdatasync(l->fd))
		r = -errno;
	pthread_mutex_lock(&l->lock);
	if (r) {
		log_error("redo: emptying failed: %s", strerror(-r));
		l->error = -EIO;
	} else {
		l->half[h].generation = next;
		l->half[h].slot = slot;
		l->half[h].pos = 0;
		l->half[h].last_txn = 0;
	}
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	return r;
}

void object_store_usage(struct object_store *s, uint64_t *ret_log_bytes, uint64_t *ret_pending_bytes)
{
	pthread_mutex_lock(&s->redo.lock);
	*ret_log_bytes = (uint64_t)s->redo.half[0].pos + s->redo.half[1].pos;
	pthread_mutex_unlock(&s->redo.lock);
	*ret_pending_bytes = atomic_load(&s->nodes_used) * PAGE_LEN;
}
