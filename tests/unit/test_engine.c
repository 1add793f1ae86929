/* Two engines on loopback, over volumes in memory: inviting and joining, changes both ways, a peer that stops and comes back, both sides dialing
 * at once, pausing, removing; a token that is used, foreign or of a taken name. */
#include <pthread.h>
#include <sodium.h>
#include <semaphore.h>
#include <unistd.h>

#include "engine.h"
#include "heal.h"
#include "fake_volume.h"
#include "invite.h"

/* ---- the functions of a volume that the engine calls, on a struct fake and a lock ---- */
#define PEERS 4
struct fake_token {
	uint8_t id[16], secret[32];
	uint64_t expires;
	bool used;
};
struct node { /* one replica */
	struct fake f; /* first: struct volume * is struct fake * */
	pthread_mutex_t lock;
	struct header h;
	struct keyring *k;
	struct member member[PEERS];
	uint64_t member_id[PEERS];
	uint32_t n_member;
	struct peer_config peer[PEERS];
	uint32_t n_peer;
	struct fake_token token[PEERS];
	uint32_t n_token;
	struct peer_status status[PEERS];
	uint32_t n_status;
	void (*listener)(void *ctx);
	void *listener_ctx;
};
static struct node *node_of(struct volume *v) { return (struct node *)v; }
static struct node *node_of_const(const struct volume *v) { return (struct node *)(uintptr_t)v; }
static void lock(struct volume *v) { pthread_mutex_lock(&node_of(v)->lock); }
static void unlock(struct volume *v) { pthread_mutex_unlock(&node_of(v)->lock); }
#define LOCKED(type, v, call)                                                                                              \
	do {                                                                                                               \
		lock(v);                                                                                                   \
		type locked_result_ = call;                                                                                \
		unlock(v);                                                                                                 \
		return locked_result_;                                                                                     \
	} while (0)
static struct volume *volume_of_batch(struct batch *b) { return (struct volume *)b->f; }

int volume_knowledge(struct volume *v, struct vector *ret) { LOCKED(int, v, fake_knowledge(v, ret)); }
uint64_t volume_start_tag(struct volume *v) { return node_of(v)->f.tag; }
int volume_live_root(struct volume *v, struct root *ret) { return fake_live_root(v, ret); }
int volume_list_parts(struct volume *v, const struct vector *have, const struct vector *upto, struct part_cursor *cursor, uint32_t max_rows,
	size_t max_bytes, struct buf *out, uint32_t *ret_rows)
{
	LOCKED(int, v, fake_list(v, have, upto, cursor, max_rows, max_bytes, out, ret_rows));
}
int volume_backlog(struct volume *v, const struct vector *have, struct backlog *ret) { LOCKED(int, v, fake_backlog(v, have, ret)); }
int content_source_open(struct volume *v, const struct id *node, struct dot dot, const struct held_content *held, uint32_t n_held,
	const struct vector *has, unsigned forms, uint64_t resume_page, struct content_source **ret)
{
	LOCKED(int, v, fake_source_open(v, node, dot, held, n_held, has, forms, resume_page, ret));
}
int content_source_next(struct content_source *s, size_t max, struct buf *out)
{
	struct volume *v = (struct volume *)s->f;

	LOCKED(int, v, fake_source_next(s, max, out));
}
uint64_t content_source_saved(const struct content_source *s) { return fake_source_saved(s); }
void content_source_close(struct content_source *s) { fake_source_close(s); }
int batch_new(struct volume *v, uint64_t from, struct batch **ret) { return fake_batch_new(v, from, ret); }
void batch_free(struct batch *b)
{
	struct volume *v = volume_of_batch(b);

	lock(v);
	fake_batch_free(b);
	unlock(v);
}
int batch_part(struct batch *b, const uint8_t *record, size_t len) { LOCKED(int, volume_of_batch(b), fake_batch_part(b, record, len)); }
int batch_next_want(struct batch *b, const struct content_want **ret) { LOCKED(int, volume_of_batch(b), fake_next_want(b, ret)); }
int batch_content(struct batch *b, const struct content_want *w, const uint8_t *chunk, size_t len, bool last)
{
	LOCKED(int, volume_of_batch(b), fake_content(b, w, chunk, len, last));
}
int batch_content_gone(struct batch *b, const struct content_want *w) { LOCKED(int, volume_of_batch(b), fake_gone(b, w)); }
bool batch_complete(const struct batch *b) { return fake_complete(b); }
int batch_apply(struct batch *b, const struct vector *end)
{
	struct node *n = node_of(volume_of_batch(b));
	int err;

	pthread_mutex_lock(&n->lock);
	err = fake_apply(b, end);
	pthread_mutex_unlock(&n->lock);
	if (n->listener)
		n->listener(n->listener_ctx);
	return err;
}
int volume_set_peer_knowledge(struct volume *v, uint64_t replica, const struct vector *k)
{
	LOCKED(int, v, fake_set_peer_knowledge(v, replica, k));
}
int volume_peer_knowledge(struct volume *v, uint64_t replica, struct vector *ret)
{
	static const struct vector none;

	LOCKED(int, v, vector_copy(ret, replica < PEERS ? &node_of(v)->f.peer_knowledge[replica] : &none));
}
int volume_peers_have(struct volume *v, enum fsync_mode mode, const struct vector *upto, const uint64_t *behind, uint32_t n_behind)
{
	struct node *n = node_of(v);

	LOCKED(int, v, vector_covers(&n->f.peer_knowledge[n->peer[0].replica], upto) && !n_behind);
}
/* nor is it ever damaged */
int volume_heal_serve(struct volume *v, const struct heal_need *n, struct buf *out) { return -ENOENT; }
void volume_heal_set_fetch(struct volume *v, heal_fetch_fn *fn, void *ctx) {}
void volume_heal_poke(struct volume *v) {}
size_t heal_answer_len(const struct heal_need *n) { return 0; }
/* a fake volume was never copied */
int volume_starts(struct volume *v, const struct vector *upto, struct start_tag **ret, uint32_t *ret_n)
{
	*ret_n = 0;
	return (*ret = malloc(1)) ? 0 : -ENOMEM;
}
int volume_starts_learn(struct volume *v, const struct start_tag *s, uint32_t n) { return 0; }
int volume_starts_check(struct volume *v, uint64_t peer, const struct vector *knowledge, const struct start_tag *s, uint32_t n, struct doubt *ret)
{
	return 0;
}
int volume_renew_prepare(struct volume *v, uint64_t from, struct identity *ret) { return -ENOSYS; }
int volume_renew(struct volume *v) { return -ENOENT; }
int volume_disown(struct volume *v, uint64_t replica, uint64_t from) { return -ENOSYS; }
int volume_peer_renewed(struct volume *v, uint64_t peer, const struct identity *fresh) { return -EEXIST; }
const struct header *volume_header(const struct volume *v) { return &node_of_const(v)->h; }
const struct keyring *volume_keyring(const struct volume *v) { return node_of_const(v)->k; }
struct stats *volume_stats(const struct volume *v) { return NULL; }
bool volume_is_read_only(const struct volume *v) { return false; }
int volume_commit(struct volume *v) { return 0; }
bool volume_awaits_contents(struct volume *v) { (void)v; return false; }
void volume_set_commit_listener(struct volume *v, void (*fn)(void *ctx), void *ctx)
{
	node_of(v)->listener_ctx = ctx;
	node_of(v)->listener = fn;
}

int volume_members(struct volume *v, struct member **ret, uint64_t **ret_replicas, uint32_t *ret_n)
{
	struct node *n = node_of(v);

	lock(v);
	*ret = calloc(PEERS, sizeof **ret);
	*ret_replicas = calloc(PEERS, sizeof **ret_replicas);
	memcpy(*ret, n->member, n->n_member * sizeof **ret);
	memcpy(*ret_replicas, n->member_id, n->n_member * sizeof **ret_replicas);
	*ret_n = n->n_member;
	unlock(v);
	return 0;
}
int volume_set_member(struct volume *v, uint64_t replica, const struct member *m)
{
	struct node *n = node_of(v);
	uint32_t i;

	lock(v);
	for (i = 0; i < n->n_member && n->member_id[i] != replica; i++)
		;
	REQUIRE(i < PEERS);
	n->member[i] = *m;
	n->member_id[i] = replica;
	if (i == n->n_member)
		n->n_member++;
	unlock(v);
	return 0;
}
int volume_member_by_key(struct volume *v, const uint8_t key[static 32], uint64_t *ret_replica, struct member *ret)
{
	struct node *n = node_of(v);
	int err = -ENOENT;

	lock(v);
	for (uint32_t i = 0; i < n->n_member; i++)
		if (!memcmp(n->member[i].static_public, key, 32)) {
			*ret_replica = n->member_id[i];
			*ret = n->member[i];
			err = ret->removed ? -EACCES : 0;
		}
	unlock(v);
	return err;
}
int volume_peers(struct volume *v, struct peer_config **ret, uint32_t *ret_n)
{
	struct node *n = node_of(v);

	lock(v);
	*ret = calloc(PEERS, sizeof **ret);
	memcpy(*ret, n->peer, n->n_peer * sizeof **ret);
	*ret_n = n->n_peer;
	unlock(v);
	return 0;
}
int volume_set_peer(struct volume *v, const struct peer_config *p)
{
	struct node *n = node_of(v);
	uint32_t i;

	lock(v);
	for (i = 0; i < n->n_peer && n->peer[i].replica != p->replica; i++)
		;
	REQUIRE(i < PEERS);
	n->peer[i] = *p;
	if (i == n->n_peer)
		n->n_peer++;
	unlock(v);
	return 0;
}
int volume_drop_peer(struct volume *v, uint64_t replica)
{
	struct node *n = node_of(v);
	int err = -ENOENT;

	lock(v);
	for (uint32_t i = 0; i < n->n_peer && err; i++)
		if (n->peer[i].replica == replica) {
			n->peer[i] = n->peer[--n->n_peer];
			err = 0;
		}
	unlock(v);
	return err;
}
void volume_set_peer_status(struct volume *v, const struct peer_status *s)
{
	struct node *n = node_of(v);
	uint32_t i;

	lock(v);
	for (i = 0; i < n->n_status && n->status[i].replica != s->replica; i++)
		;
	REQUIRE(i < PEERS);
	n->status[i] = *s;
	if (i == n->n_status)
		n->n_status++;
	unlock(v);
}
void volume_drop_peer_status(struct volume *v, uint64_t replica)
{
	struct node *n = node_of(v);

	lock(v);
	for (uint32_t i = 0; i < n->n_status; i++)
		if (n->status[i].replica == replica)
			n->status[i] = n->status[--n->n_status];
	unlock(v);
}

int volume_token_add(struct volume *v, const uint8_t id[static 16], const uint8_t secret[static 32], uint64_t expires)
{
	struct node *n = node_of(v);
	struct fake_token *t;

	lock(v);
	t = &n->token[n->n_token++];
	memcpy(t->id, id, 16);
	memcpy(t->secret, secret, 32);
	t->expires = expires;
	unlock(v);
	return 0;
}
static struct fake_token *find_token(struct volume *v, const uint8_t *id)
{
	for (uint32_t i = 0; i < node_of(v)->n_token; i++)
		if (!memcmp(node_of(v)->token[i].id, id, 16))
			return &node_of(v)->token[i];
	return NULL;
}
static int token_state(const struct fake_token *t)
{
	return !t ? -ENOENT : t->used ? -EALREADY : t->expires < env_wall_ns(&env_real) ? -ETIME : 0;
}
int volume_token_secret(struct volume *v, const uint8_t id[static 16], uint8_t ret[static 32])
{
	struct fake_token *t;
	int err;

	lock(v);
	t = find_token(v, id);
	if (t)
		memcpy(ret, t->secret, 32);
	err = token_state(t);
	unlock(v);
	return err;
}
int volume_token_use(struct volume *v, const uint8_t id[static 16])
{
	struct fake_token *t;
	int err;

	lock(v);
	t = find_token(v, id);
	err = token_state(t);
	if (!err)
		t->used = true;
	unlock(v);
	return err;
}
/* join_finish is not tested here: it needs a store */
int volume_create(const char *path, struct header *h, const uint8_t master[static KEY_LEN], bool first, const struct env *env) { return -ENOSYS; }
int volume_open(const char *path, const struct volume_options *o, const void *secret, size_t len, enum slot_kind kind, struct volume **ret)
{
	return -ENOSYS;
}
int volume_close(struct volume *v) { return 0; }

/* ---- replicas ---- */

static uint8_t master[KEY_LEN] = {1, 2, 3};

static struct volume *new_node(uint64_t replica, const char *name, const uint8_t *secret, uint8_t volume)
{
	struct node *n = calloc(1, sizeof *n);

	REQUIRE(n);
	n->f.replica = replica;
	n->f.tag = replica * 100;
	n->f.cells = 300;
	pthread_mutex_init(&n->lock, NULL);
	memset(n->h.volume.b, volume, ID_LEN);
	n->h.cipher = CIPHER_XCHACHA20POLY1305;
	n->h.replica = replica;
	strcpy(n->h.name, name);
	n->k = keyring_new(master, &n->h.volume, n->h.cipher);
	REQUIRE(n->k);
	header_set_static(&n->h, n->k, secret);
	return (struct volume *)n;
}

static void free_node(struct volume *v)
{
	struct node *n = node_of(v);

	keyring_free(n->k);
	vector_fini(&n->f.knowledge);
	for (int i = 0; i < 4; i++)
		vector_fini(&n->f.peer_knowledge[i]);
	free(n);
}

static struct engine *start(struct volume *v, const char *listen)
{
	struct engine_options o = {.listen = listen};
	struct engine *e;

	node_of(v)->f.tag++;
	REQUIRE(!engine_new(v, &o, &e));
	REQUIRE(!engine_start(e));
	return e;
}

static void stop(struct engine *e)
{
	engine_stop(e);
	engine_stop(e);
	engine_free(e);
}

static void change(struct volume *v, uint32_t key, uint32_t length)
{
	struct node *n = node_of(v);

	lock(v);
	fake_change(&n->f, key, length);
	unlock(v);
	if (n->listener)
		n->listener(n->listener_ctx);
}

static bool same(struct volume *a, struct volume *b)
{
	struct fake *fa = fake_of(a), *fb = fake_of(b);
	bool eq;

	lock(a);
	lock(b);
	eq = !memcmp(fa->cell, fb->cell, sizeof fa->cell) && vector_eq(&fa->knowledge, &fb->knowledge);
	unlock(b);
	unlock(a);
	return eq;
}

static bool becomes_same(struct volume *a, struct volume *b, int ms)
{
	while (!same(a, b) && ms-- > 0)
		usleep(1000);
	return same(a, b);
}

static enum peer_state state_of(struct volume *v, struct peer_status *ret)
{
	enum peer_state s = PEER_DISCONNECTED;

	lock(v);
	if (node_of(v)->n_status) {
		s = node_of(v)->status[0].state;
		if (ret)
			*ret = node_of(v)->status[0];
	}
	unlock(v);
	return s;
}

static bool becomes(struct volume *v, enum peer_state s, int ms)
{
	while (state_of(v, NULL) != s && ms-- > 0)
		usleep(1000);
	if (state_of(v, NULL) != s)
		fprintf(stderr, "state is %d instead of %d\n", state_of(v, NULL), s);
	return state_of(v, NULL) == s;
}

static uint64_t now_ms(void) { return env_mono_ns(&env_real) / 1000000; }

/* ---- the tests ---- */

static void test_tokens(struct volume *a, const char *token)
{
	struct invite_token t;
	char text[TOKEN_TEXT_MAX], *other;

	CHECK_EQ(invite_parse(token, &t), 0);
	CHECK(!strcmp(t.address, "127.0.0.1:1"));
	snprintf(text, sizeof text, "  %s\n", token);
	CHECK_EQ(invite_parse(text, &t), 0);
	text[strlen(token)] = 0; /* two of the spaces, less two at the end */
	CHECK_EQ(invite_parse(text, &t), -EINVAL);
	CHECK_EQ(invite_parse("", &t), -EINVAL);
	CHECK_EQ(invite_parse("twofold1:", &t), -EINVAL);
	CHECK_EQ(invite_parse("twofold1:AAAA", &t), -EINVAL);
	CHECK_EQ(invite_create(a, "", 1, &other), -EINVAL);
	CHECK_EQ(invite_create(a, "host:port", 1, &other), -EINVAL);
	CHECK_EQ(invite_create(a, ":7420", 1, &other), -EINVAL);
}

static char *invite(struct volume *a, struct engine *e, uint64_t ttl_ns)
{
	char address[64], *token = NULL;

	snprintf(address, sizeof address, "127.0.0.1:%u", engine_port(e));
	REQUIRE(!invite_create(a, address, ttl_ns, &token));
	return token;
}

#define HOUR_NS (3600ull * 1000000000)

static struct volume *join_b(struct volume *a, struct engine *ea)
{
	struct join_result *j = NULL;
	struct volume *b;
	struct peer_config p = {0};
	char error[256] = "", *token = invite(a, ea, HOUR_NS);

	CHECK_EQ(join_fetch(token, "desk", NULL, 5000, &j, error), -EEXIST);
	CHECK(strstr(error, "desk"));
	CHECK_EQ(join_fetch(token, "not valid", NULL, 5000, &j, error), -EINVAL);
	REQUIRE(!join_fetch(token, "laptop", NULL, 5000, &j, error));
	CHECK(!memcmp(j->master, master, KEY_LEN));
	CHECK(j->inviter == 1 && !strcmp(j->inviter_member.name, "desk"));
	CHECK(id_eq(&j->header.volume, &volume_header(a)->volume) && j->header.cipher == CIPHER_XCHACHA20POLY1305);
	b = new_node(2, "laptop", j->static_secret, 9);
	/* the fakes have small replica ids: the one that was drawn is exchanged for 2 */
	lock(a);
	for (uint32_t i = 0; i < node_of(a)->n_member; i++)
		if (node_of(a)->member_id[i] == j->header.replica) {
			CHECK(!strcmp(node_of(a)->member[i].name, "laptop"));
			CHECK(!memcmp(node_of(a)->member[i].static_public, j->static_public, 32));
			node_of(a)->member_id[i] = 2;
		}
	CHECK(node_of(a)->n_peer == 1 && node_of(a)->peer[0].replica == j->header.replica);
	node_of(a)->peer[0].replica = 2;
	unlock(a);
	volume_set_member(b, 1, &j->inviter_member);
	p.replica = j->inviter;
	strcpy(p.address, j->inviter_member.address);
	volume_set_peer(b, &p);
	join_result_free(j);
	/* once only */
	j = NULL;
	CHECK_EQ(join_fetch(token, "other", NULL, 5000, &j, error), -EACCES);
	CHECK(error[0] && !j);
	free(token);
	token = invite(a, ea, 0);
	usleep(50000); /* the wall clock moves by ticks */
	CHECK_EQ(join_fetch(token, "other", NULL, 5000, &j, error), -ETIME);
	free(token);
	engine_poke(ea);
	return b;
}

static void test_foreign_token(struct engine *ea)
{
	uint8_t secret[32] = {77};
	struct volume *x = new_node(3, "foreign", secret, 5);
	struct join_result *j = NULL;
	char error[256] = "", *token = invite(x, ea, HOUR_NS);

	/* another store's key: nothing that listens here can answer */
	CHECK(join_fetch(token, "other", NULL, 5000, &j, error) < 0);
	CHECK(error[0] && !j);
	free(token);
	free_node(x);
}

static sem_t answered;
static int answer;

static void on_durable(void *ctx, int err)
{
	answer = err;
	sem_post(&answered);
}

static int wait_durable(struct engine *e, int timeout_ms)
{
	int err;

	sem_init(&answered, 0, 0);
	if ((err = engine_when_durable(e, FSYNC_PEER, timeout_ms, on_durable, NULL)))
		return err;
	sem_wait(&answered);
	return answer;
}

static void test_flow(struct volume *a, struct engine *ea, struct volume *b, struct engine *eb)
{
	struct peer_status st = {0};
	uint64_t worst = 0;

	CHECK(becomes_same(a, b, 5000));
	CHECK(becomes(a, PEER_IN_SYNC, 3000));
	CHECK(becomes(b, PEER_IN_SYNC, 3000));
	for (uint32_t i = 0; i < 50; i++) {
		uint64_t start = now_ms(), took;

		change(i % 2 ? a : b, i, i % 3 * 1000);
		CHECK(becomes_same(a, b, 2000));
		took = now_ms() - start;
		worst = took > worst ? took : worst;
	}
	if (worst > 100)
		fprintf(stderr, "note: the slowest of 50 changes took %llu ms\n", (unsigned long long)worst);
	for (uint32_t i = 0; i < 300; i++)
		change(i % 2 ? a : b, i, 2000);
	CHECK_EQ(engine_wait_in_sync(ea, 5000, NULL, NULL), 0);
	CHECK_EQ(engine_wait_in_sync(eb, 5000, NULL, NULL), 0);
	CHECK_EQ(wait_durable(ea, 5000), 0);
	CHECK(becomes_same(a, b, 2000));
	CHECK(becomes(b, PEER_IN_SYNC, 3000));
	state_of(b, &st);
	CHECK(st.sent_bytes > 0 && st.received_bytes > 0 && st.connected_ns && !strcmp(st.name, "desk") && !st.last_error[0]);
}

static bool give_up(void *ctx) { return false; }

static void test_settings(struct volume *a, struct engine *ea, struct volume *b)
{
	uint64_t replica = 0;

	CHECK_EQ(peering_find(a, "nobody", &replica), -ENOENT);
	CHECK_EQ(peering_find(a, "0000000000000002", &replica), 0);
	CHECK_EQ(peering_find(a, "laptop", &replica), 0);
	CHECK_EQ(replica, 2);
	CHECK_EQ(engine_peer_pause(ea, 2, true), 0);
	CHECK(becomes(a, PEER_PAUSED, 3000));
	change(a, 1, 10);
	usleep(200000);
	CHECK(!same(a, b));
	CHECK_EQ(engine_wait_in_sync(ea, 100, NULL, NULL), -ENOTCONN);
	CHECK_EQ(engine_wait_in_sync(ea, 60000, give_up, NULL), -ECANCELED);
	CHECK_EQ(wait_durable(ea, 50), -ETIMEDOUT);
	/* what waits when the peer comes back goes on at once */
	uint64_t start = now_ms();
	sem_init(&answered, 0, 0);
	CHECK_EQ(engine_when_durable(ea, FSYNC_ALL, 20000, on_durable, NULL), 0);
	CHECK_EQ(engine_peer_pause(ea, 2, false), 0);
	CHECK(becomes_same(a, b, 15000));
	sem_wait(&answered);
	CHECK_EQ(answer, 0);
	CHECK(now_ms() - start < 15000);
	CHECK_EQ(engine_peer_pause(ea, 3, false), -ENOENT);
}

static void test_removed(struct volume *a, struct engine *ea, struct volume *b)
{
	struct peer_status st = {0};

	CHECK_EQ(engine_peer_remove(ea, 2), 0);
	CHECK(becomes(b, PEER_REFUSED, 5000));
	state_of(b, &st);
	CHECK(strstr(st.last_error, "removed"));
	change(a, 5, 10);
	usleep(100000);
	CHECK(!same(a, b));
}

int main(void)
{
	uint8_t secret[32] = {42};
	struct volume *a, *b;
	struct engine *ea, *eb;
	char address[64], *token = NULL;

	alarm(100);
	REQUIRE(!crypto_init());
	a = new_node(1, "desk", secret, 9);
	REQUIRE(!invite_create(a, "127.0.0.1:1", 1, &token));
	test_tokens(a, token);
	free(token);
	ea = start(a, "127.0.0.1:0");
	b = join_b(a, ea);
	test_foreign_token(ea);
	for (uint32_t i = 0; i < 100; i++)
		change(a, i, i * 10);
	eb = start(b, NULL);
	test_flow(a, ea, b, eb);

	/* b goes and comes back, with changes on both sides meanwhile */
	stop(eb);
	CHECK(becomes(a, PEER_DISCONNECTED, 3000));
	change(a, 7, 100);
	change(b, 8, 100);
	eb = start(b, "127.0.0.1:0");
	CHECK(becomes_same(a, b, 5000));

	/* both sides can dial */
	stop(eb);
	eb = start(b, "127.0.0.1:0");
	snprintf(address, sizeof address, "127.0.0.1:%u", engine_port(eb));
	lock(a);
	strcpy(node_of(a)->peer[0].address, address);
	unlock(a);
	engine_poke(ea);
	for (uint32_t i = 0; i < 20; i++) {
		change(a, i, 300);
		change(b, i + 50, 300);
		usleep(10000);
	}
	CHECK(becomes_same(a, b, 5000));
	CHECK_EQ(engine_wait_in_sync(ea, 5000, NULL, NULL), 0);

	test_settings(a, ea, b);
	test_removed(a, ea, b);
	stop(ea);
	stop(eb);
	free_node(a);
	free_node(b);
	return check_result();
}
