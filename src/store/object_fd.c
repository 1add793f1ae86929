/* Descriptors of objects: a bounded cache, whole reads and writes, and flushing, which is shared by all that wait. */
#include "object_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* fds_lock held */
static void list_remove(struct object *o)
{
	struct object_store *s = o->s;

	if (o->fd_prev)
		o->fd_prev->fd_next = o->fd_next;
	else
		s->fds_newest = o->fd_next;
	if (o->fd_next)
		o->fd_next->fd_prev = o->fd_prev;
	else
		s->fds_oldest = o->fd_prev;
	o->fd_prev = o->fd_next = NULL;
}

static void list_push(struct object *o)
{
	struct object_store *s = o->s;

	o->fd_prev = NULL;
	o->fd_next = s->fds_newest;
	if (s->fds_newest)
		s->fds_newest->fd_prev = o;
	else
		s->fds_oldest = o;
	s->fds_newest = o;
}

static void evict(struct object_store *s)
{
	struct object *o = s->fds_oldest;

	while (o && s->fds_open > s->fds_max) {
		struct object *prev = o->fd_prev;
		if (!o->fd_users && !o->fd_pinned) {
			list_remove(o);
			close(o->fd);
			o->fd = -1;
			s->fds_open--;
		}
		o = prev;
	}
}

int fd_get(struct object *o, int *ret_fd)
{
	struct object_store *s = o->s;
	int fd = -1;

	pthread_mutex_lock(&s->fds_lock);
	if (o->fd < 0) {
		pthread_mutex_unlock(&s->fds_lock);
		fd = openat(s->dirfd, o->name, (s->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		pthread_mutex_lock(&s->fds_lock);
		if (o->fd < 0) {
			o->fd = fd;
			fd = -1;
			s->fds_open++;
			list_push(o);
			o->fd_users++; /* before evict looks */
			evict(s);
			o->fd_users--;
		}
	} else if (s->fds_newest != o) {
		list_remove(o);
		list_push(o);
	}
	o->fd_users++;
	*ret_fd = o->fd;
	pthread_mutex_unlock(&s->fds_lock);
	if (fd >= 0)
		close(fd);
	return 0;
}

void fd_put(struct object *o)
{
	pthread_mutex_lock(&o->s->fds_lock);
	o->fd_users--;
	pthread_mutex_unlock(&o->s->fds_lock);
}

void fd_pin(struct object *o, bool pinned)
{
	pthread_mutex_lock(&o->s->fds_lock);
	o->fd_pinned = pinned;
	pthread_mutex_unlock(&o->s->fds_lock);
}

void fd_close(struct object *o)
{
	struct object_store *s = o->s;

	pthread_mutex_lock(&s->fds_lock);
	if (o->fd >= 0) {
		list_remove(o);
		s->fds_open--;
		close(o->fd);
		o->fd = -1;
	}
	pthread_mutex_unlock(&s->fds_lock);
}

int full_pwritev(int fd, struct iovec *iov, int n, off_t off)
{
	while (n) {
		ssize_t w = pwritev(fd, iov, n, off);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w ? -errno : -EIO;
		off += w;
		while (n && (size_t)w >= iov->iov_len) {
			w -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n) {
			iov->iov_base = (char *)iov->iov_base + w;
			iov->iov_len -= (size_t)w;
		}
	}
	return 0;
}

int full_pwrite(int fd, const void *p, size_t len, off_t off)
{
	struct iovec iov = {(void *)(uintptr_t)p, len};
	return full_pwritev(fd, &iov, 1, off);
}

ssize_t full_pread(int fd, void *p, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)p + done, len - done, off + (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* A set that only says which pages may be lost: without memory for it, all may be. */
static void add_or_all(struct extents *x, uint64_t first, uint64_t n)
{
	if (!extents_add(x, first, n))
		return;
	if (x->n) {
		x->n = 1;
		x->e[0] = (struct extent){0, PAGES_MAX};
	}
}

void mark_dirty(struct object *o, uint64_t first, uint64_t n)
{
	o->written_seq++;
	add_or_all(&o->dirty, first, n);
	if (o->failed.n)
		extents_remove(&o->failed, first, n);
}

void mark_failed(struct object *o, uint64_t first, uint64_t n) { add_or_all(&o->failed, first, n); }

bool object_is_flushed(struct object *o)
{
	bool yes;

	pthread_mutex_lock(&o->lock);
	yes = o->written_seq == o->flushed_seq && !o->failed.n;
	pthread_mutex_unlock(&o->lock);
	return yes;
}

/* What was written up to now is being flushed; its number is returned. Lock held. */
static uint64_t flush_begin(struct object *o)
{
	o->flushing = true;
	extents_fini(&o->flushing_pages);
	o->flushing_pages = o->dirty;
	o->dirty = (struct extents){0};
	return o->written_seq;
}

static void flush_end(struct object *o, uint64_t seq, int r)
{
	if (r) {
		for (uint32_t i = 0; i < o->flushing_pages.n; i++)
			add_or_all(&o->failed, o->flushing_pages.e[i].first, o->flushing_pages.e[i].count);
		if (!o->flushing_pages.n) /* a header or an empty file: nothing can write it again */
			add_or_all(&o->failed, 0, PAGES_MAX);
	}
	o->flushed_seq = seq;
	o->flushing = false;
	if (o->written_seq == seq && !o->failed.n && !o->n_ranges && !o->n_applying)
		fd_pin(o, false);
	pthread_cond_broadcast(&o->changed);
}

static int flush_file(struct object *o)
{
	uint64_t start = stats_now_ns();
	int fd, r = fd_get(o, &fd);

	if (!r) {
		r = fdatasync(fd) ? -errno : 0;
		fd_put(o);
	}
	stats_since(o->s->st, STAGE_OBJECT_FLUSH, start);
	return r;
}

/* One fdatasync for all that was written up to now. Lock held, dropped meanwhile. */
static void flush_once(struct object *o)
{
	uint64_t seq = flush_begin(o);
	int r;

	pthread_mutex_unlock(&o->lock);
	r = flush_file(o);
	pthread_mutex_lock(&o->lock);
	flush_end(o, seq, r);
}

void object_store_flush_many(struct object_store *s, struct object *const *o, uint32_t n)
{
	uint64_t *seq = calloc(n ? n : 1, sizeof *seq), start = stats_now_ns();
	int failed;

	if (!seq)
		return;
	for (uint32_t i = 0; i < n; i++) {
		pthread_mutex_lock(&o[i]->lock);
		if (!o[i]->flushing && o[i]->flushed_seq < o[i]->written_seq)
			seq[i] = flush_begin(o[i]);
		pthread_mutex_unlock(&o[i]->lock);
	}
	failed = syncfs(s->dirfd);
	stats_since(s->st, STAGE_OBJECT_FLUSH, start);
	for (uint32_t i = 0; i < n; i++) {
		if (!seq[i])
			continue;
		/* syncfs does not say which file failed: then each is asked for itself */
		int r = failed ? flush_file(o[i]) : 0;
		pthread_mutex_lock(&o[i]->lock);
		flush_end(o[i], seq[i], r);
		pthread_mutex_unlock(&o[i]->lock);
	}
	free(seq);
}

int object_flush(struct object *o)
{
	uint64_t target;
	int r;

	pthread_mutex_lock(&o->lock);
	target = o->written_seq;
	while (o->flushed_seq < target) {
		if (o->flushing)
			pthread_cond_wait(&o->changed, &o->lock);
		else
			flush_once(o);
	}
	r = o->failed.n ? -EIO : 0;
	pthread_mutex_unlock(&o->lock);
	return r;
}
