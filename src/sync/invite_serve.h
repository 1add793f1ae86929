/* The inviter's side of a join, between the handshake with a token's psk and the end of the connection. */
#ifndef TWOFOLD_INVITE_SERVE_H
#define TWOFOLD_INVITE_SERVE_H
#include "channel.h"
#include "message.h"

/* Answers JOIN (body) with WELCOME, or with BYE where it refuses; both are queued in the channel. The token is marked used, flushed, and the joiner
 * is a member and a peer, before the master key is queued: a joiner that does not get the answer needs a new token. 0; -EPROTO, -EEXIST (name), -ENOTSUP
 * (cipher), -EALREADY, -ETIME, -ENOENT (token), what the volume says; logged. */
int invite_serve(struct volume *v, const struct id *token, const uint8_t joiner_static[static 32], const uint8_t *body, size_t len,
		 struct channel *c);
#endif
