/* The UNIX socket STORE/control: the command line talks to the process that serves the store (I11).
 *
 * Request: u32 length | argv as NUL-terminated strings. Answer: frames u8 type | u32 length | bytes, where type is 'O' (to standard
 * output), 'E' (to standard error) or 'X' (u32 exit code, the last one). Only the daemon's own user and root may connect (mode 0600 and
 * SO_PEERCRED). One thread a connection, at most CONTROL_MAX of them. */
#include "cli.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"

#define REQUEST_MAX 65536
#define CONTROL_MAX 16

struct control {
	struct daemon_state *daemon;
	char *path;
	int listen_fd, stop_fd;
	pthread_t thread;
	atomic_bool stop;
	_Atomic int running; /* connection threads */
};

struct connection {
	struct control *control;
	int fd;
	struct buf out, err;
};

/* A UNIX address has 108 bytes: go through the directory's descriptor where the path is longer. */
static int address_of(const char *path, struct sockaddr_un *ret, int *ret_dirfd)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	*ret_dirfd = -1;
	if (strlen(path) < sizeof ret->sun_path) {
		strcpy(ret->sun_path, path);
		return 0;
	}
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *dir = slash ? strndup(path, (size_t)(slash - path)) : NULL;
	if (!dir || (*ret_dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
		return -ENAMETOOLONG;
	snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d%s", *ret_dirfd, slash);
	return 0;
}

static bool write_all(int fd, const void *p, size_t len)
{
	const char *at = p;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static bool read_all(int fd, void *p, size_t len)
{
	char *at = p;

	while (len) {
		ssize_t n = read(fd, at, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static bool send_frame(int fd, char type, const void *p, size_t len)
{
	uint8_t head[5] = {(uint8_t)type};

	le32_store(head + 1, (uint32_t)len);
	return write_all(fd, head, sizeof head) && write_all(fd, p, len);
}

static bool flush_query(struct query *q)
{
	struct connection *c = q->ctx;
	bool ok = (!c->out.len || send_frame(c->fd, 'O', c->out.p, c->out.len)) && (!c->err.len || send_frame(c->fd, 'E', c->err.p, c->err.len));
	struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};

	c->out.len = c->err.len = 0;
	return ok && !(poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static int split_request(char *p, size_t len, char **argv, int max)
{
	int argc = 0;

	if (!len || p[len - 1])
		return -EPROTO;
	for (char *at = p; at < p + len; at += strlen(at) + 1) {
		if (argc == max - 1)
			return -E2BIG;
		argv[argc++] = at;
	}
	argv[argc] = NULL;
	return argc;
}

static void *serve_connection(void *arg)
{
	struct connection *c = arg;
	struct daemon_state *d = c->control->daemon;
	uint8_t head[4];
	char *argv[64];
	CLEANUP_FREE char *request = NULL;
	size_t len = 0;

	if (read_all(c->fd, head, 4) && (len = le32_load(head)) <= REQUEST_MAX && (request = malloc(len + 1)) && read_all(c->fd, request, len)) {
		int argc = split_request(request, len, argv, 64);
		if (argc > 0) {
			struct query q = {d->volume, d->engine, &c->out, &c->err, &c->control->stop, flush_query, c};
			uint8_t code[4];
			le32_store(code, (uint32_t)query_run(&q, argc, argv));
			if (flush_query(&q))
				send_frame(c->fd, 'X', code, 4);
		}
	}
	close(c->fd);
	buf_fini(&c->out);
	buf_fini(&c->err);
	atomic_fetch_sub(&c->control->running, 1);
	free(c);
	return NULL;
}

static bool is_allowed(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && (cred.uid == 0 || cred.uid == geteuid());
}

static void accept_one(struct control *ctl)
{
	int fd = accept4(ctl->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	pthread_t t;

	if (fd < 0)
		return;
	struct connection *c = calloc(1, sizeof *c);
	if (!c || !is_allowed(fd) || atomic_load(&ctl->running) >= CONTROL_MAX) {
		free(c);
		close(fd);
		return;
	}
	c->control = ctl;
	c->fd = fd;
	atomic_fetch_add(&ctl->running, 1);
	if (pthread_create(&t, NULL, serve_connection, c)) {
		atomic_fetch_sub(&ctl->running, 1);
		free(c);
		close(fd);
		return;
	}
	pthread_detach(t);
}

static void *control_loop(void *arg)
{
	struct control *c = arg;
	struct pollfd p[2] = {{.fd = c->listen_fd, .events = POLLIN}, {.fd = c->stop_fd, .events = POLLIN}};

	while (!c->stop)
		if (poll(p, 2, -1) > 0 && p[0].revents & POLLIN)
			accept_one(c);
	return NULL;
}

int control_start(struct daemon_state *d, struct control **ret)
{
	struct control *c = calloc(1, sizeof *c);
	struct sockaddr_un a;
	int dirfd = -1, r;

	if (!c)
		return -ENOMEM;
	c->daemon = d;
	c->listen_fd = c->stop_fd = -1;
	c->path = control_path(volume_path(d->volume));
	r = c->path ? address_of(c->path, &a, &dirfd) : -ENOMEM;
	if (r)
		goto fail;
	unlink(c->path); /* the store's lock is held: what is left there is a dead daemon's */
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->stop_fd < 0 || c->listen_fd < 0 || bind(c->listen_fd, (struct sockaddr *)&a, sizeof a) || chmod(c->path, 0600) || listen(c->listen_fd, 16)) {
		r = -errno;
		goto fail;
	}
	r = -pthread_create(&c->thread, NULL, control_loop, c);
	if (r)
		goto fail;
	if (dirfd >= 0)
		close(dirfd);
	*ret = c;
	return 0;
fail:
	if (dirfd >= 0)
		close(dirfd);
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	if (c->stop_fd >= 0)
		close(c->stop_fd);
	free(c->path);
	free(c);
	return r;
}

void control_stop(struct control *c)
{
	if (!c)
		return;
	uint64_t one = 1;
	c->stop = true;
	if (write(c->stop_fd, &one, sizeof one) < 0)
		log_error("control socket: %s", strerror(errno));
	pthread_join(c->thread, NULL);
	unlink(c->path);
	/* commands under way see `stop`; a volume must not be closed below them */
	while (atomic_load(&c->running))
		usleep(2000);
	close(c->listen_fd);
	close(c->stop_fd);
	free(c->path);
	free(c);
}

int control_call(const char *socket_path, int argc, char **argv)
{
	struct sockaddr_un a;
	struct buf req = {0};
	uint8_t head[5];
	int dirfd = -1, code = -ECONNRESET, r = address_of(socket_path, &a, &dirfd);
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!r && (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)))
		r = -errno;
	if (dirfd >= 0)
		close(dirfd);
	if (r)
		return r;
	buf_put_u32(&req, 0);
	for (int i = 0; i < argc; i++)
		buf_put(&req, argv[i], strlen(argv[i]) + 1);
	if (req.err || req.len - 4 > REQUEST_MAX) {
		buf_fini(&req);
		return -E2BIG;
	}
	le32_store(req.p, (uint32_t)(req.len - 4));
	bool ok = write_all(fd, req.p, req.len);
	buf_fini(&req);
	while (ok && read_all(fd, head, 5)) {
		size_t len = le32_load(head + 1);
		CLEANUP_FREE char *body = malloc(len + 1);
		if (!body || !read_all(fd, body, len))
			break;
		if (head[0] == 'X') {
			code = len == 4 ? (int)le32_load(body) : -EPROTO;
			break;
		}
		ok = fwrite(body, 1, len, head[0] == 'O' ? stdout : stderr) == len && fflush(head[0] == 'O' ? stdout : stderr) == 0;
	}
	return code;
}
