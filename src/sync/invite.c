/* Tokens, and the inviter's side of a join. */
#include "invite.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "address.h"
#include "cleanup.h"
#include "engine.h"
#include "invite_serve.h"
#include "log.h"

#define TOKEN_PREFIX "twofold1:"
#define TOKEN_VERSION 1
#define TOKEN_BYTES_MAX 512

void key_fingerprint(const uint8_t static_public[static 32], char ret_text[static 20])
{
	uint8_t long_hash[crypto_generichash_BYTES_MIN], *h = long_hash;

	crypto_generichash(long_hash, sizeof long_hash, static_public, 32, NULL, 0);
	snprintf(ret_text, 20, "%02x%02x-%02x%02x-%02x%02x-%02x%02x", h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]);
}

void replica_name_default(char ret_name[static 33])
{
	char host[256] = "";
	size_t n = 0;

	gethostname(host, sizeof host - 1);
	for (const char *p = host; *p && *p != '.' && n < REPLICA_NAME_MAX; p++)
		if (isalnum((unsigned char)*p) || *p == '-' || *p == '_')
			ret_name[n++] = *p;
	ret_name[n] = 0;
	if (!replica_name_valid(ret_name))
		strcpy(ret_name, "replica");
}

/* ---- the token ---- */

static int token_encode(const struct invite_token *t, char **ret)
{
	struct buf b = {0};
	size_t cap, prefix = strlen(TOKEN_PREFIX);
	char *text = NULL;

	buf_put_u8(&b, TOKEN_VERSION);
	buf_put(&b, t->volume.b, ID_LEN);
	buf_put(&b, t->id, sizeof t->id);
	buf_put(&b, t->secret, sizeof t->secret);
	buf_put(&b, t->static_public, sizeof t->static_public);
	buf_put_u64(&b, t->expires_wall_ns);
	buf_put_str(&b, t->address, strlen(t->address));
	cap = sodium_base64_encoded_len(b.len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	if (!b.err)
		text = malloc(prefix + cap);
	if (text) {
		memcpy(text, TOKEN_PREFIX, prefix);
		sodium_bin2base64(text + prefix, cap, b.p, b.len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	}
	if (b.p)
		sodium_memzero(b.p, b.len);
	buf_fini(&b);
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

static void copy_bytes(struct reader *r, void *ret, size_t len)
{
	const uint8_t *p = read_bytes(r, len);

	if (p)
		memcpy(ret, p, len);
}

static int token_decode(const uint8_t *p, size_t len, struct invite_token *ret)
{
	struct reader r = reader_of(p, len);
	struct address a;
	size_t n;
	const uint8_t *address;

	if (read_u8(&r) != TOKEN_VERSION)
		return -EINVAL;
	copy_bytes(&r, ret->volume.b, ID_LEN);
	copy_bytes(&r, ret->id, sizeof ret->id);
	copy_bytes(&r, ret->secret, sizeof ret->secret);
	copy_bytes(&r, ret->static_public, sizeof ret->static_public);
	ret->expires_wall_ns = read_u64(&r);
	address = read_str(&r, &n);
	if (!reader_done(&r) || n >= sizeof ret->address || memchr(address, 0, n))
		return -EINVAL;
	memcpy(ret->address, address, n);
	ret->address[n] = 0;
	return address_parse(ret->address, &a);
}

int invite_parse(const char *text, struct invite_token *ret)
{
	uint8_t bytes[TOKEN_BYTES_MAX];
	struct invite_token t = {0};
	size_t len, n, prefix = strlen(TOKEN_PREFIX);
	int err = -EINVAL;

	while (isspace((unsigned char)*text))
		text++;
	for (n = strlen(text); n && isspace((unsigned char)text[n - 1]);)
		n--;
	if (n >= TOKEN_TEXT_MAX || strncmp(text, TOKEN_PREFIX, prefix))
		return -EINVAL;
	if (!sodium_base642bin(bytes, sizeof bytes, text + prefix, n - prefix, NULL, &len, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING))
		err = token_decode(bytes, len, &t);
	if (!err)
		*ret = t;
	sodium_memzero(bytes, sizeof bytes);
	sodium_memzero(&t, sizeof t);
	return err;
}

/* ---- the member list ---- */

struct member_list {
	struct member *m;
	uint64_t *replica;
	uint32_t n;
};

static void member_list_fini(struct member_list *l)
{
	free(l->m);
	free(l->replica);
}

int invite_create(struct volume *v, const char *address, uint64_t ttl_ns, char **ret_token)
{
	struct invite_token t = {.volume = *keyring_volume(volume_keyring(v))};
	struct address a;
	int err;

	if (strlen(address) >= sizeof t.address || address_parse(address, &a) || !a.host[0])
		return -EINVAL;
	if (volume_is_read_only(v))
		return -EROFS;
	if ((err = peering_publish(v, address, true)))
		return err;
	strcpy(t.address, address);
	memcpy(t.static_public, volume_header(v)->static_public, sizeof t.static_public);
	randombytes_buf(t.id, sizeof t.id);
	randombytes_buf(t.secret, sizeof t.secret);
	t.expires_wall_ns = env_wall_ns(&env_real) + ttl_ns;
	err = volume_token_add(v, t.id, t.secret, t.expires_wall_ns);
	if (!err)
		err = token_encode(&t, ret_token);
	sodium_memzero(&t, sizeof t);
	return err;
}

/* ---- the inviter's side ---- */

static int queue(struct channel *c, uint8_t type, struct buf *body)
{
	struct iovec v = {body->p, body->len};
	int err = body->err ? body->err : channel_send(c, type, 0, &v, 1);

	if (body->p)
		sodium_memzero(body->p, body->len);
	buf_fini(body);
	return err;
}

static int refuse(struct channel *c, int err, enum bye_code code, const char *why, const char *which)
{
	struct msg_bye m = {.code = (uint16_t)code};
	struct buf body = {0};

	snprintf(m.text, sizeof m.text, "%s%s", why, which);
	log_warn("a replica that wants to join is refused: %s", m.text);
	msg_bye_encode(&m, &body);
	queue(c, TYPE_BYE, &body);
	return err;
}

/* Is there anything that speaks against this joiner, before its token is spent? */
static int examine(struct volume *v, const struct msg_join *j, const uint8_t *joiner_static, struct channel *c)
{
	CLEANUP(member_list_fini) struct member_list l = {0};
	const struct header *h = volume_header(v);
	int err = volume_members(v, &l.m, &l.replica, &l.n);

	if (err)
		return refuse(c, err, BYE_ERROR, "the inviter cannot read its members: ", strerror(-err));
	if (!(j->ciphers >> h->cipher & 1))
		return refuse(c, -ENOTSUP, BYE_CIPHER, "the volume's cipher does not work on the joining machine: ", cipher_name(h->cipher));
	if (j->replica == h->replica || !strcmp(j->name, h->name))
		return refuse(c, -EEXIST, BYE_NAME, "the inviter itself has this replica name; choose another with --name: ", j->name);
	for (uint32_t i = 0; i < l.n; i++) {
		if (!strcmp(l.m[i].name, j->name) && !l.m[i].removed)
			return refuse(c, -EEXIST, BYE_NAME, "a member has this replica name; choose another with --name: ", j->name);
		if (l.replica[i] == j->replica || !memcmp(l.m[i].static_public, joiner_static, 32))
			return refuse(c, -EEXIST, BYE_NAME, "a member has this replica id or key: ", l.m[i].name);
	}
	return 0;
}

static int admit(struct volume *v, const struct id *token, const struct msg_join *j, const uint8_t *joiner_static, struct channel *c)
{
	struct member m = {0};
	struct peer_config p = {.replica = j->replica};
	int err = volume_token_use(v, token->b);

	if (err)
		return refuse(c, err, err == -ETIME ? BYE_TOKEN_EXPIRED : err == -EALREADY ? BYE_TOKEN_USED : BYE_TOKEN, "the token is ",
			err == -ETIME ? "expired" : err == -EALREADY ? "used up" : "not known to the inviter");
	memcpy(m.name, j->name, sizeof m.name);
	memcpy(m.address, j->address, sizeof m.address);
	memcpy(m.static_public, joiner_static, sizeof m.static_public);
	memcpy(p.address, j->address, sizeof p.address);
	if ((err = peering_publish(v, "", true)) || (err = volume_set_member(v, j->replica, &m)) || (err = volume_set_peer(v, &p)))
		return refuse(c, err, BYE_ERROR, "the inviter cannot write the new member down: ", strerror(-err));
	return 0;
}

int invite_serve(struct volume *v, const struct id *token, const uint8_t joiner_static[static 32], const uint8_t *body, size_t len,
		 struct channel *c)
{
	const struct header *h = volume_header(v);
	struct msg_join j;
	struct msg_welcome w = {.cipher = (uint32_t)h->cipher, .replica = h->replica};
	struct buf out = {0};
	char print[20];
	struct address a;
	int err;

	if (len >= 4 && le32_load(body) != PROTOCOL_VERSION)
		return refuse(c, -EPROTO, BYE_VERSION, "the inviter speaks another version of the protocol", "");
	if (len > message_body_max(TYPE_JOIN) || msg_join_decode(body, len, &j) || (j.address[0] && address_parse(j.address, &a)))
		return refuse(c, -EPROTO, BYE_PROTOCOL, "malformed JOIN", "");
	if ((err = examine(v, &j, joiner_static, c)) || (err = admit(v, token, &j, joiner_static, c)))
		return err;
	memcpy(w.master, keyring_master(volume_keyring(v)), KEY_LEN);
	memcpy(w.name, h->name, sizeof w.name);
	memcpy(w.static_public, h->static_public, sizeof w.static_public);
	/* grown at once, so that no half-filled copy of the key is left behind by a bigger allocation */
	if (buf_grow(&out, 512))
		out.len = 0;
	msg_welcome_encode(&w, &out);
	sodium_memzero(&w, sizeof w);
	err = queue(c, TYPE_WELCOME, &out);
	key_fingerprint(joiner_static, print);
	log_info("replica %s (%016llx, key %s) has joined", j.name, (unsigned long long)j.replica, print);
	return err;
}
