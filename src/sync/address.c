#include "address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine.h"

static int put_port(const char *text, struct address *a)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n > UINT16_MAX)
		return -EINVAL;
	snprintf(a->port, sizeof a->port, "%lu", n);
	return 0;
}

int address_parse(const char *text, struct address *ret)
{
	const char *host = text, *host_end, *port = NULL;
	const char *colon = strrchr(text, ':');
	struct address a = {0};

	if (*text == '[') {
		host = text + 1;
		host_end = strchr(host, ']');
		if (!host_end || (host_end[1] && host_end[1] != ':'))
			return -EINVAL;
		if (host_end[1])
			port = host_end + 2;
	} else if (colon && strchr(text, ':') == colon) {
		host_end = colon;
		port = colon + 1;
	} else {
		/* none, or an IPv6 address without brackets, which then has no port */
		host_end = text + strlen(text);
	}
	if (host_end - host == 1 && *host == '*')
		host = host_end;
	if (host_end - host >= (long)sizeof a.host || (host == host_end && !port))
		return -EINVAL;
	for (const char *p = host; p < host_end; p++)
		if (*p <= ' ' || *p == 127 || *p == '/')
			return -EINVAL;
	memcpy(a.host, host, (size_t)(host_end - host));
	if (port) {
		if (put_port(port, &a))
			return -EINVAL;
	} else {
		snprintf(a.port, sizeof a.port, "%d", TWOFOLD_PORT);
	}
	*ret = a;
	return 0;
}

static int resolve_error(int gai)
{
	switch (gai) {
	case EAI_SYSTEM:
		return errno ? -errno : -EHOSTUNREACH;
	case EAI_MEMORY:
		return -ENOMEM;
	default:
		return -EHOSTUNREACH;
	}
}

static int resolve(const struct address *a, int flags, struct addrinfo **ret)
{
	struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
	int gai = getaddrinfo(a->host[0] ? a->host : NULL, a->port, &hint, ret);

	return gai ? resolve_error(gai) : 0;
}

static void set_int(int fd, int level, int option, int value) { (void)setsockopt(fd, level, option, &value, sizeof value); }

void socket_tune(int fd)
{
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
	set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
	set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
	/* The buffers are left to the kernel, which sizes them by the path's delay; a size set here would stop that. */
}

bool socket_is_silent(int fd, unsigned ms)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_unacked && info.tcpi_last_ack_recv > ms;
}

static int finish_connect(int fd, int timeout_ms, int wake_fd)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLOUT}, {.fd = wake_fd, .events = POLLIN}};
	int err = 0;
	socklen_t len = sizeof err;
	int n = poll(p, 2, timeout_ms);

	if (n < 0)
		return errno == EINTR ? -ECANCELED : -errno;
	if (p[1].revents)
		return -ECANCELED;
	if (n == 0)
		return -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	return -err;
}

int address_dial(const struct address *a, int timeout_ms, int wake_fd, int *ret_fd)
{
	struct addrinfo *list = NULL;
	int err = resolve(a, 0, &list);

	if (err)
		return err;
	err = -EHOSTUNREACH;
	for (struct addrinfo *i = list; i && err && err != -ECANCELED; i = i->ai_next) {
		int fd = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, i->ai_protocol);

		if (fd < 0) {
			err = -errno;
			continue;
		}
		socket_tune(fd);
		err = connect(fd, i->ai_addr, i->ai_addrlen) ? -errno : 0;
		if (err == -EINPROGRESS)
			err = finish_connect(fd, timeout_ms, wake_fd);
		if (err)
			close(fd);
		else
			*ret_fd = fd;
	}
	freeaddrinfo(list);
	return err;
}

static uint16_t port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a = {0};
	socklen_t len = sizeof a;

	if (getsockname(fd, &a.any, &len))
		return 0;
	return ntohs(a.any.sa_family == AF_INET6 ? a.in6.sin6_port : a.in.sin_port);
}

static int listen_one(const struct addrinfo *i, int *ret_fd)
{
	int fd = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, i->ai_protocol);
	int err;

	if (fd < 0)
		return -errno;
	set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (i->ai_family == AF_INET6)
		set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (bind(fd, i->ai_addr, i->ai_addrlen) || listen(fd, 64)) {
		err = -errno;
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int address_listen(const struct address *a, int ret_fd[static LISTEN_MAX], int *ret_n, uint16_t *ret_port)
{
	struct addrinfo *list = NULL;
	int n = 0, err = resolve(a, AI_PASSIVE, &list), last = -EADDRNOTAVAIL;

	if (err)
		return err;
	for (struct addrinfo *i = list; i && n < LISTEN_MAX; i = i->ai_next) {
		err = listen_one(i, &ret_fd[n]);
		if (!err)
			n++;
		else if (err != -EAFNOSUPPORT && !(i->ai_family == AF_INET6 && err == -EADDRNOTAVAIL))
			last = err; /* a host without IPv6 resolves "any" to it all the same */
		if (n && !strcmp(a->port, "0"))
			break; /* two sockets would get two ports */
	}
	freeaddrinfo(list);
	if (!n || (last != -EADDRNOTAVAIL && !a->host[0])) {
		while (n)
			close(ret_fd[--n]);
		return last;
	}
	*ret_n = n;
	*ret_port = port_of(ret_fd[0]);
	return 0;
}
