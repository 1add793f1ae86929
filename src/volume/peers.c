/* Members (replicated), peers and tokens (local). Members and peers are kept in memory: they are few. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#include "commit.h"

static void members_fini(struct volume *v)
{
	free(v->members);
	free(v->member_replicas);
	v->members = NULL;
	v->member_replicas = NULL;
	v->n_members = 0;
}

static int add_member(void *ctx, uint64_t replica, const void *record, size_t len)
{
	struct volume *v = ctx;
	struct part p;
	int e = part_parse(v->keys, record, len, true, &p);

	if (!e && (p.kind != PART_MEMBER || le64_load(p.id.b) != replica)) {
		part_fini(&p);
		e = -EUCLEAN;
	}
	if (e) {
		log_error("%s: a record of a member in journal.db is damaged", v->path);
		return e;
	}
	struct member *m = reallocarray(v->members, v->n_members + 1, sizeof *m);
	if (m)
		v->members = m;
	uint64_t *r = reallocarray(v->member_replicas, v->n_members + 1, sizeof *r);
	if (r)
		v->member_replicas = r;
	if (m && r) {
		m[v->n_members] = p.member;
		r[v->n_members++] = replica;
	}
	part_fini(&p);
	return m && r ? 0 : -ENOMEM;
}

static void set_alone(struct volume *v)
{
	v->alone = !v->n_peers;
	for (uint32_t i = 0; i < v->n_members; i++)
		if (v->member_replicas[i] != v->self && !v->members[i].removed)
			v->alone = false;
}

int members_load(struct volume *v)
{
	members_fini(v);
	int e = journal_members(v->journal, add_member, v);
	set_alone(v);
	return e;
}

static int add_peer(void *ctx, const struct peer_row *row)
{
	struct volume *v = ctx;
	struct peer_row_mem *p = reallocarray(v->peers, v->n_peers + 1, sizeof *p);
	struct reader r = reader_of(row->knowledge.p, row->knowledge.len);

	if (!p)
		return -ENOMEM;
	v->peers = p;
	p = &v->peers[v->n_peers];
	*p = (struct peer_row_mem){.config = {.replica = row->replica, .paused = row->paused}};
	strncpy(p->config.address, row->address, sizeof p->config.address - 1);
	int e = vector_read(&r, &p->knowledge);
	v->n_peers += !e;
	return e;
}

static void peers_drop(struct volume *v)
{
	for (uint32_t i = 0; i < v->n_peers; i++)
		vector_fini(&v->peers[i].knowledge);
	free(v->peers);
	v->peers = NULL;
	v->n_peers = 0;
}

int peers_load(struct volume *v)
{
	peers_drop(v);
	int e = journal_peers(v->journal, add_peer, v);
	return e ? e : members_load(v);
}

void peers_fini(struct volume *v)
{
	peers_drop(v);
	members_fini(v);
	free(v->statuses);
	v->statuses = NULL;
	v->n_statuses = 0;
}

/* ---- members ---- */
int volume_members(struct volume *v, struct member **ret, uint64_t **ret_replicas, uint32_t *ret_n)
{
	tree_lock(v);
	size_t n = v->n_members;
	struct member *m = malloc((n ? n : 1) * sizeof *m);
	uint64_t *r = malloc((n ? n : 1) * sizeof *r);
	if (m && r && n) {
		memcpy(m, v->members, n * sizeof *m);
		memcpy(r, v->member_replicas, n * sizeof *r);
	}
	tree_unlock(v);
	if (!m || !r) {
		free(m);
		free(r);
		return -ENOMEM;
	}
	*ret = m;
	*ret_replicas = r;
	*ret_n = (uint32_t)n;
	return 0;
}

struct set_member {
	struct volume *v;
	uint64_t replica;
	const struct member *m;
};

int member_write(struct volume *v, uint64_t replica, const struct member *m)
{
	static const struct blob none;
	struct buf old = {0}, record = {0};
	struct part p = {.kind = PART_MEMBER, .opened = true, .member = *m}, before = {0};
	int e = journal_member_get(v->journal, replica, &old);
	bool had = !e;

	le64_store(p.id.b, replica);
	e = had ? part_parse(v->keys, old.p, old.len, false, &before) : e == -ENOENT ? 0 : e;
	if (!e && had) {
		p.vector = before.vector; /* borrowed */
		before.vector = (struct vector){0};
		e = vector_add(&p.vector, before.stamp.dot);
	}
	p.stamp = txn_stamp(v->writing);
	e = e ? e : part_seal(v->keys, &p, &record);
	if (!e) {
		txn_roots(v->writing, had ? (struct blob){old.p, old.len} : none, false, (struct blob){record.p, record.len}, false);
		e = txn_dot(v->writing, PART_MEMBER, replica, p.stamp.dot, before.stamp.dot);
	}
	e = e ? e : journal_member_put(v->journal, replica, record.p, record.len);
	vector_fini(&p.vector);
	part_fini(&before);
	buf_fini(&old);
	buf_fini(&record);
	return e;
}

static int write_member(void *ctx)
{
	struct set_member *s = ctx;

	return member_write(s->v, s->replica, s->m);
}

int volume_set_member(struct volume *v, uint64_t replica, const struct member *m)
{
	struct set_member s = {v, replica, m};
	int e = apply_begin(v);

	if (e)
		return e;
	/* nothing that dies from now on may be forgotten before the new member heard of it */
	bool alone = v->alone;
	if (replica != v->self && !m->removed)
		v->alone = false;
	e = apply_end(v, NULL, write_member, &s);
	tree_lock(v);
	int loaded = e ? e : members_load(v);
	if (e)
		v->alone = alone;
	tree_unlock(v);
	return e ? e : loaded;
}

int volume_member_by_key(struct volume *v, const uint8_t static_public[static 32], uint64_t *ret_replica, struct member *ret)
{
	int e = -ENOENT;

	tree_lock(v);
	for (uint32_t i = 0; i < v->n_members; i++) {
		if (memcmp(v->members[i].static_public, static_public, 32))
			continue;
		*ret_replica = v->member_replicas[i];
		*ret = v->members[i];
		e = v->members[i].removed ? -EACCES : 0;
		if (!e)
			break;
	}
	tree_unlock(v);
	return e;
}

/* ---- peers ---- */
int volume_peers(struct volume *v, struct peer_config **ret, uint32_t *ret_n)
{
	tree_lock(v);
	uint32_t n = v->n_peers;
	struct peer_config *p = calloc(n ? n : 1, sizeof *p);
	for (uint32_t i = 0; p && i < n; i++)
		p[i] = v->peers[i].config;
	tree_unlock(v);
	if (!p)
		return -ENOMEM;
	*ret = p;
	*ret_n = n;
	return 0;
}

static struct peer_row_mem *find_peer(struct volume *v, uint64_t replica)
{
	for (uint32_t i = 0; i < v->n_peers; i++)
		if (v->peers[i].config.replica == replica)
			return &v->peers[i];
	return NULL;
}

static int put_peer(struct volume *v, const struct peer_row_mem *p)
{
	struct buf b = {0};

	vector_put(&b, &p->knowledge);
	const struct peer_row row = {.replica = p->config.replica, .address = p->config.address, .paused = p->config.paused,
		.knowledge = {b.p, b.len}};
	int e = b.err ? b.err : journal_peer_put(v->journal, &row);
	buf_fini(&b);
	return e;
}

int peers_write(struct volume *v)
{
	int e = 0;

	for (uint32_t i = 0; i < v->n_peers && !e; i++)
		e = put_peer(v, &v->peers[i]);
	return e;
}

static int write_peer(struct volume *v, void *ctx)
{
	const struct peer_config *c = ctx;
	struct peer_row_mem *p = find_peer(v, c->replica);

	if (!p) {
		if (!(p = reallocarray(v->peers, v->n_peers + 1, sizeof *p)))
			return -ENOMEM;
		v->peers = p;
		p = &v->peers[v->n_peers++];
		*p = (struct peer_row_mem){0};
	}
	p->config = *c;
	v->alone = false;
	return put_peer(v, p);
}

int volume_set_peer(struct volume *v, const struct peer_config *p)
{
	struct peer_config copy = *p;

	copy.address[sizeof copy.address - 1] = 0;
	return commit_rows(v, write_peer, &copy);
}

static int delete_peer(struct volume *v, void *ctx)
{
	uint64_t replica = *(uint64_t *)ctx;
	struct peer_row_mem *p = find_peer(v, replica);
	int e = journal_peer_delete(v->journal, replica);

	if (e || !p)
		return e;
	vector_fini(&p->knowledge);
	*p = v->peers[--v->n_peers];
	set_alone(v);
	return 0;
}

int volume_drop_peer(struct volume *v, uint64_t replica)
{
	int e = commit_rows(v, delete_peer, &replica);

	if (!e)
		volume_drop_peer_status(v, replica);
	return e;
}

int volume_peer_knowledge(struct volume *v, uint64_t replica, struct vector *ret)
{
	tree_lock(v);
	const struct peer_row_mem *p = find_peer(v, replica);
	int e = p ? vector_copy(ret, &p->knowledge) : -ENOENT;
	tree_unlock(v);
	return e;
}

int volume_set_peer_knowledge(struct volume *v, uint64_t replica, const struct vector *k)
{
	tree_lock(v);
	struct peer_row_mem *p = find_peer(v, replica);
	int e = p ? vector_join(&p->knowledge, k) : -ENOENT;
	if (!e)
		v->peers_changed = true;
	tree_unlock(v);
	return e;
}

static bool was_removed(const struct volume *v, uint64_t replica)
{
	for (uint32_t i = 0; i < v->n_members; i++)
		if (v->member_replicas[i] == replica)
			return v->members[i].removed;
	return false;
}

int volume_peers_have(struct volume *v, enum fsync_mode mode, const struct vector *upto, const uint64_t *behind, uint32_t n_behind)
{
	bool any = false, all = true;

	tree_lock(v);
	for (uint32_t i = 0; i < v->n_peers; i++) {
		const struct peer_row_mem *p = &v->peers[i];
		bool has = vector_covers(&p->knowledge, upto);

		for (uint32_t j = 0; j < n_behind; j++)
			has &= behind[j] != p->config.replica;
		if (was_removed(v, p->config.replica))
			continue;
		any |= has;
		if (!has && !p->config.paused)
			all = false;
	}
	tree_unlock(v);
	return mode == FSYNC_LOCAL ? 1 : mode == FSYNC_ALL ? all : any;
}

/* ---- tokens ---- */
struct token {
	uint8_t id[16], sealed[24 + 32 + 16];
	uint64_t expires_ns;
	bool used;
};

static int write_token(struct volume *v, void *ctx)
{
	const struct token *t = ctx;
	return journal_token_put(v->journal, t->id, t->sealed, sizeof t->sealed, t->expires_ns, t->used);
}

int volume_token_add(struct volume *v, const uint8_t id[static 16], const uint8_t secret[static 32], uint64_t expires_wall_ns)
{
	struct token t = {.expires_ns = expires_wall_ns > INT64_MAX ? INT64_MAX : expires_wall_ns};

	memcpy(t.id, id, sizeof t.id);
	keyring_seal_header(v->keys, id, 16, secret, 32, t.sealed);
	return commit_rows(v, write_token, &t);
}

static int read_token(struct volume *v, const uint8_t id[static 16], struct token *ret)
{
	struct buf sealed = {0};

	tree_lock(v);
	int e = journal_token_get(v->journal, id, &sealed, &ret->expires_ns, &ret->used);
	tree_unlock(v);
	if (!e && sealed.len != sizeof ret->sealed)
		e = -EUCLEAN;
	if (!e) {
		memcpy(ret->id, id, sizeof ret->id);
		memcpy(ret->sealed, sealed.p, sealed.len);
	}
	buf_fini(&sealed);
	if (!e && ret->used)
		e = -EALREADY;
	if (!e && ret->expires_ns < env_wall_ns(v->env))
		e = -ETIME;
	return e;
}

int volume_token_secret(struct volume *v, const uint8_t id[static 16], uint8_t ret_secret[static 32])
{
	struct token t;
	int e = read_token(v, id, &t);

	return e ? e : keyring_open_header(v->keys, id, 16, t.sealed, sizeof t.sealed, ret_secret);
}

int volume_token_use(struct volume *v, const uint8_t id[static 16])
{
	struct token t;
	int e = read_token(v, id, &t);

	if (e)
		return e;
	t.used = true;
	return commit_rows(v, write_token, &t);
}
