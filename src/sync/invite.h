/* Inviting and joining (design: membership). One line, the token, makes a new replica a member of the volume and a peer of the inviter.
 *
 * Token: "twofold1:" and base64url, without padding, of
 *   version u8 (1) | volume id 16 | token id 16 | secret 32 | inviter's static public key 32 | expires u64 (wall ns) | address str
 * The joiner dials the address with the token's secret as psk (psk id kind TOKEN), says JOIN, gets WELCOME. The inviter marks the token
 * used, flushed, before the master key leaves. A token shows in the arguments of a process: `-` reads it from standard input. */
#ifndef TWOFOLD_INVITE_H
#define TWOFOLD_INVITE_H
#include "replicate.h"

#define TOKEN_SECRET_LEN 32
#define TOKEN_TEXT_MAX 1024
struct invite_token {
	struct id volume;
	uint8_t id[16];
	uint8_t secret[TOKEN_SECRET_LEN];
	uint8_t static_public[32];
	uint64_t expires_wall_ns;
	char address[256];
};
/* Makes a token, stores it in the volume (flushed), writes its line (no newline) to *ret_token, malloc'ed. address: "HOST:PORT" or "HOST" (default
 * port) as the joiner will dial it. 0; -EINVAL: the address cannot be read; -EROFS; -ENOMEM. */
int invite_create(struct volume *v, const char *address, uint64_t ttl_ns, char **ret_token);
/* Leading and trailing white space is skipped. 0; -EINVAL: not a token, or damaged. Wipe ret with sodium_memzero after use. */
int invite_parse(const char *text, struct invite_token *ret);

/* What a joiner got. Allocated by join_fetch, wiped and freed by join_result_free. */
struct join_result {
	struct header header;        /* volume, cipher, replica, name; static keys and slots are still empty */
	uint8_t master[KEY_LEN];     /* in guarded memory, as the whole struct is */
	uint8_t static_secret[32], static_public[32];
	uint64_t inviter;            /* replica id */
	struct member inviter_member; /* name, static key, address to dial */
};
/* Does the network part: dials, handshakes, JOIN, WELCOME. Check before that the store's place is free and ask for the passphrase: the token is used
 * up once this succeeds. name: this replica's (NULL: the host name, made valid). listen: address under which the peer can
 * dial us, or NULL. token: the line. timeout_ms for all.
 * On failure error_text (a sentence that names what to do; always set) and: -EINVAL not a token; -ETIME expired; -EACCES the inviter does not know the token,
 * or it was used; -EEXIST the name is taken; -ENOTSUP cipher not available here; -EPROTO, -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, ... network. */
int join_fetch(const char *token, const char *name, const char *listen, int timeout_ms, struct join_result **ret, char error_text[static 256]);
void join_result_free(struct join_result *r); /* NULL is legal */
/* Makes the store at path with one key slot of this secret and sets the peering; closes it again. Nothing half-made stays. 0; -ENOTEMPTY, -EEXIST, what
 * slot_make, volume_create and volume_open say. */
int join_finish(const char *path, const struct join_result *r, const void *secret, size_t secret_len, enum slot_kind kind, struct slot_cost cost);
/* A replica name from the host name: cut and made of [A-Za-z0-9_-]; "replica" where nothing is left. */
void replica_name_default(char ret_name[static 33]);
/* The fingerprint of a static key that inviter and joiner print: 16 hex digits in groups of 4 of BLAKE2b-64(key). */
void key_fingerprint(const uint8_t static_public[static 32], char ret_text[static 20]);
#endif
