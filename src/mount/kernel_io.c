/* Reads requests and writes replies in libfuse's place, for two things that its API cannot say:
 *   - INIT: HANDLE_KILLPRIV_V2 (without it each write(2) asks for security.capability first) and PARALLEL_DIROPS, which libfuse 3.14 knows
 *     but does not pass on. Both only where the kernel offers them.
 *   - WRITE: the raw flag that says that setuid and setgid must go. */
#include "mount_internal.h"

#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>

struct worker *worker_self(struct mount *m)
{
	struct worker *w = pthread_getspecific(m->worker_key);
	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (w && pthread_setspecific(m->worker_key, w)) {
		free(w);
		w = NULL;
	}
	return w;
}

uint8_t *worker_buf(struct mount *m)
{
	struct worker *w = worker_self(m);
	if (w && !w->buf && posix_memalign((void **)&w->buf, 4096, IO_MAX))
		w->buf = NULL;
	return w ? w->buf : NULL;
}

static void note_request(struct mount *m, const uint8_t *p, size_t len)
{
	struct fuse_in_header h;
	memcpy(&h, p, sizeof(h));
	if (h.opcode == FUSE_WRITE && len >= sizeof(h) + sizeof(struct fuse_write_in)) {
		struct fuse_write_in w;
		memcpy(&w, p + sizeof(h), sizeof(w));
		struct worker *self = worker_self(m);
		if (self)
			self->write_flags = w.write_flags;
	} else if (h.opcode == FUSE_INIT && len >= sizeof(h) + offsetof(struct fuse_init_in, flags) + 4) {
		m->init_unique = h.unique;
		memcpy(&m->init_offered, p + sizeof(h) + offsetof(struct fuse_init_in, flags), 4);
	}
}

static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
	ssize_t n = read(fd, buf, len);
	if (n >= (ssize_t)sizeof(struct fuse_in_header))
		note_request(userdata, buf, (size_t)n);
	return n;
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	struct mount *m = userdata;
	struct fuse_out_header h;
	if (!m->init_unique || count != 2 || iov[0].iov_len != sizeof(h))
		return writev(fd, iov, count);
	memcpy(&h, iov[0].iov_base, sizeof(h));
	struct fuse_init_out out;
	size_t len = iov[1].iov_len;
	if (h.unique != m->init_unique || h.error || len < offsetof(struct fuse_init_out, flags) + 4 || len > sizeof(out))
		return writev(fd, iov, count);
	m->init_unique = 0;
	memcpy(&out, iov[1].iov_base, len);
	out.flags |= m->init_offered & (FUSE_HANDLE_KILLPRIV_V2 | FUSE_PARALLEL_DIROPS);
	out.flags &= ~(uint32_t)FUSE_HANDLE_KILLPRIV;
	m->killpriv_v2 = out.flags & FUSE_HANDLE_KILLPRIV_V2;
	struct iovec patched[2] = {iov[0], {.iov_base = &out, .iov_len = len}};
	return writev(fd, patched, 2);
}

const struct fuse_custom_io mount_io = {.read = read_request, .writev = write_reply};
