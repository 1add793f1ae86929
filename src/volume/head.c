/* The head of the journal: one sealed row, written with each COMMIT.
 *
 *   meta "head": format u8 (1) | nonce and sealed form of record_seal over
 *     txn u64 | counter u64 | clock_ns u64 | seq u64 | next node u64 | next link u64 | object floor u64 | base bytes u64 |
 *     root all 32 | root live 32 | nodes u64 | knowledge: vector
 * Additional data: "twofold head" | replica u64. So a row of another replica, or an edited one, does not open. */
#include <errno.h>

#include "commit.h"

#define HEAD_FORMAT 1

static void aad(const struct volume *v, uint8_t ret[20])
{
	memcpy(ret, "twofold head", 12);
	le64_store(ret + 12, v->self);
}

int head_write(struct txn *t, const struct vector *knowledge)
{
	struct volume *v = t->v;
	struct buf plain = {0}, sealed = {0};
	uint8_t a[20];

	aad(v, a);
	buf_put_u64(&plain, t->number);
	buf_put_u64(&plain, t->counter);
	buf_put_u64(&plain, t->clock_ns);
	buf_put_u64(&plain, t->seq);
	buf_put_u64(&plain, v->next_node);
	buf_put_u64(&plain, v->next_link);
	buf_put_u64(&plain, v->local_floor);
	buf_put_u64(&plain, t->base_bytes);
	buf_put(&plain, t->all.b, ROOT_LEN);
	buf_put(&plain, t->live.b, ROOT_LEN);
	buf_put_u64(&plain, v->node_count);
	vector_put(&plain, knowledge);
	buf_put_u8(&sealed, HEAD_FORMAT);
	int e = plain.err ? plain.err : record_seal(v->keys, a, sizeof a, plain.p, plain.len, &sealed);
	e = e ? e : sealed.err;
	e = e ? e : journal_meta_set(v->journal, "head", sealed.p, sealed.len);
	buf_fini(&plain);
	buf_fini(&sealed);
	return e;
}

static int parse(struct volume *v, const struct buf *plain)
{
	struct reader r = reader_of(plain->p, plain->len);
	const uint8_t *all, *live;

	v->txn = read_u64(&r);
	v->counter = read_u64(&r);
	v->clock_ns = read_u64(&r);
	v->seq = read_u64(&r);
	v->next_node = read_u64(&r);
	v->next_link = read_u64(&r);
	v->local_floor = read_u64(&r);
	v->base_bytes = read_u64(&r);
	all = read_bytes(&r, ROOT_LEN);
	live = read_bytes(&r, ROOT_LEN);
	v->node_count = read_u64(&r);
	if (r.bad)
		return -EUCLEAN;
	memcpy(v->root_all.b, all, ROOT_LEN);
	memcpy(v->root_live.b, live, ROOT_LEN);
	vector_fini(&v->knowledge);
	int e = vector_read(&r, &v->knowledge);
	return e ? e : reader_done(&r) && v->next_node > ROOT_INUM ? 0 : -EUCLEAN;
}

int head_read(struct volume *v)
{
	struct buf row = {0}, plain = {0};
	uint8_t a[20];
	int e = journal_meta_get(v->journal, "head", &row);

	aad(v, a);
	if (e == -ENOENT || (!e && (row.len < 2 || row.p[0] != HEAD_FORMAT)))
		e = -EUCLEAN;
	e = e ? e : record_open(v->keys, a, sizeof a, row.p + 1, row.len - 1, &plain);
	e = e ? e : parse(v, &plain);
	e = e ? e : vector_copy(&v->knowledge_flushed, &v->knowledge);
	if (e == -EBADMSG || e == -EUCLEAN) {
		log_error("%s: the head of journal.db %s", v->path, e == -EBADMSG ? "does not authenticate" : "is missing or malformed");
		e = -EUCLEAN;
	}
	buf_fini(&row);
	buf_fini(&plain);
	return e;
}
