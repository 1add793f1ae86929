/* HOST:PORT as users write it, and the sockets behind it. */
#ifndef TWOFOLD_ADDRESS_H
#define TWOFOLD_ADDRESS_H
#include <stdbool.h>
#include <stdint.h>

#define LISTEN_MAX 8
struct address {
	char host[256]; /* empty: any, for listening */
	char port[6];   /* digits */
};
/* "HOST:PORT", "HOST", "[ADDR6]:PORT", "[ADDR6]", "ADDR6", ":PORT", "*:PORT". Without a port: TWOFOLD_PORT. -EINVAL. */
int address_parse(const char *text, struct address *ret);

/* Connects, without blocking longer than timeout_ms past the name's resolution; returns early with -ECANCELED when wake_fd (or -1) becomes readable.
 * 0 and a non-blocking socket, tuned; what resolving (-EHOSTUNREACH) and connect say, -ETIMEDOUT. */
int address_dial(const struct address *a, int timeout_ms, int wake_fd, int *ret_fd);
/* Listens on every address that the host has, at most LISTEN_MAX. 0 and non-blocking sockets, and the port. */
int address_listen(const struct address *a, int ret_fd[static LISTEN_MAX], int *ret_n, uint16_t *ret_port);
void socket_tune(int fd); /* no delay, keep-alive; failures do no harm */
/* Is data that we sent unacknowledged, with nothing acknowledged for more than ms? A peer that lives and does not read is not silent. */
bool socket_is_silent(int fd, unsigned ms);
#endif
