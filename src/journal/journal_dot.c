/* The journal proper (one row a record held), members, peers, tokens, parts of unknown kinds. */
#include <errno.h>

#include "statement.h"

int journal_dot_put(struct journal *j, const struct dot_row *d)
{
	return statement_run(j, ST_DOT_PUT, "iiiii", d->dot.replica, d->dot.counter, (uint64_t)d->kind, d->owner, d->seq);
}

int journal_dot_delete(struct journal *j, struct dot dot)
{
	return statement_run(j, ST_DOT_DELETE, "ii", dot.replica, dot.counter);
}

static struct dot_row dot_columns(sqlite3_stmt *st)
{
	return (struct dot_row){.dot = {column_u64(st, 0), column_u64(st, 1)}, .kind = (uint8_t)column_u64(st, 2),
		.owner = column_u64(st, 3), .seq = column_u64(st, 4)};
}

int journal_dot_get(struct journal *j, struct dot dot, struct dot_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_DOT_GET, &e);

	if (!st || (e = statement_bind(j, st, "ii", dot.replica, dot.counter)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	*ret = dot_columns(st);
	sqlite3_reset(st);
	return 0;
}

static int each_dot(struct journal *j, sqlite3_stmt *st, dot_row_fn *fn, void *ctx)
{
	int n, e = 0;

	while ((n = statement_row(j, st)) > 0) {
		struct dot_row d = dot_columns(st);
		if ((e = fn(ctx, &d)))
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

/* SQLite's integers are signed: an open upper end must stay positive. */
static uint64_t bound(uint64_t counter) { return counter > INT64_MAX ? INT64_MAX : counter; }

int journal_dots(struct journal *j, uint64_t replica, uint64_t after, uint64_t upto, dot_row_fn *fn, void *ctx)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_DOTS, &e);

	if (!st || (e = statement_bind(j, st, "iii", replica, bound(after), bound(upto))))
		return e;
	return each_dot(j, st, fn, ctx);
}

int journal_dots_by_seq(struct journal *j, uint64_t after_seq, dot_row_fn *fn, void *ctx)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_DOTS_BY_SEQ, &e);

	if (!st || (e = statement_bind(j, st, "i", bound(after_seq))))
		return e;
	return each_dot(j, st, fn, ctx);
}

/* In the order of SQLite's signed integers: `after` is compared so. */
int journal_next_replica(struct journal *j, uint64_t after, bool first, uint64_t *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_NEXT_REPLICA, &e);

	if (!st || (e = statement_bind(j, st, "i", first ? (uint64_t)INT64_MIN : after)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	*ret = column_u64(st, 0);
	sqlite3_reset(st);
	return 0;
}

int journal_member_get(struct journal *j, uint64_t replica, struct buf *ret_record)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_MEMBER_GET, &e);

	if (!st || (e = statement_bind(j, st, "i", replica)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	struct blob b = column_blob(st, 0);
	ret_record->len = 0;
	buf_put(ret_record, b.p, b.len);
	sqlite3_reset(st);
	return ret_record->err;
}

int journal_member_put(struct journal *j, uint64_t replica, const void *record, size_t len)
{
	return statement_run(j, ST_MEMBER_PUT, "it", replica, record, len);
}

int journal_members(struct journal *j, record_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_MEMBERS, &e);

	if (!st)
		return e;
	while ((n = statement_row(j, st)) > 0) {
		struct blob b = column_blob(st, 1);
		if ((e = fn(ctx, column_u64(st, 0), b.p, b.len)))
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

static int one_other(struct journal *j, sqlite3_stmt *st, struct other_row *ret)
{
	int n = statement_row(j, st);

	if (n <= 0)
		return n ? n : -ENOENT;
	struct other_row o = {.kind = (uint8_t)column_u64(st, 0), .dot = {column_u64(st, 2), column_u64(st, 3)},
		.record = column_blob(st, 4)};
	if (!column_16(st, 1, o.id.b)) {
		sqlite3_reset(st);
		return row_damaged("other");
	}
	*ret = o;
	return 0;
}

int journal_other_get(struct journal *j, uint8_t kind, const struct id *id, struct other_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_OTHER_GET, &e);

	if (!st || (e = statement_bind(j, st, "it", (uint64_t)kind, (const void *)id->b, (size_t)ID_LEN)))
		return e;
	return one_other(j, st, ret);
}

int journal_other_by_dot(struct journal *j, struct dot dot, struct other_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_OTHER_BY_DOT, &e);

	if (!st || (e = statement_bind(j, st, "ii", dot.replica, dot.counter)))
		return e;
	return one_other(j, st, ret);
}

int journal_other_put(struct journal *j, const struct other_row *o)
{
	return statement_run(j, ST_OTHER_PUT, "itiit", (uint64_t)o->kind, (const void *)o->id.b, (size_t)ID_LEN, o->dot.replica,
		o->dot.counter, o->record.p, o->record.len);
}

int journal_peers(struct journal *j, peer_row_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_PEERS, &e);

	if (!st)
		return e;
	while ((n = statement_row(j, st)) > 0) {
		const char *address = (const char *)sqlite3_column_text(st, 1);
		struct peer_row p = {.replica = column_u64(st, 0), .address = address ? address : "", .paused = column_u64(st, 2),
			.knowledge = column_blob(st, 3)};
		if ((e = fn(ctx, &p)))
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_peer_put(struct journal *j, const struct peer_row *p)
{
	return statement_run(j, ST_PEER_PUT, "isit", p->replica, p->address, (uint64_t)p->paused, p->knowledge.p, p->knowledge.len);
}

int journal_peer_delete(struct journal *j, uint64_t replica) { return statement_run(j, ST_PEER_DELETE, "i", replica); }

int journal_token_put(struct journal *j, const uint8_t id[static 16], const uint8_t *sealed, size_t len, uint64_t expires_ns, bool used)
{
	return statement_run(j, ST_TOKEN_PUT, "ttii", (const void *)id, (size_t)16, (const void *)sealed, len, expires_ns, (uint64_t)used);
}

int journal_token_get(struct journal *j, const uint8_t id[static 16], struct buf *ret_sealed, uint64_t *ret_expires_ns, bool *ret_used)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_TOKEN_GET, &e);

	if (!st || (e = statement_bind(j, st, "t", (const void *)id, (size_t)16)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	struct blob b = column_blob(st, 0);
	ret_sealed->len = 0;
	buf_put(ret_sealed, b.p, b.len);
	*ret_expires_ns = column_u64(st, 1);
	*ret_used = column_u64(st, 2);
	sqlite3_reset(st);
	return ret_sealed->err;
}
