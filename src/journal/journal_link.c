/* Rows of links and their deletions, and the exceptions of the shown tree. */
#include <errno.h>

#include "statement.h"

static int link_columns(sqlite3_stmt *st, struct link_row *ret)
{
	struct link_row l = {.row = column_u64(st, 0), .node = column_u64(st, 2), .parent = column_u64(st, 3),
		.live = column_u64(st, 5), .deletions = (uint32_t)column_u64(st, 6), .place = column_blob(st, 7)};

	if (!column_16(st, 1, l.id.b) || !column_16(st, 4, l.tag))
		return row_damaged("link");
	*ret = l;
	return 0;
}

int journal_link_get(struct journal *j, uint64_t row, struct link_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_LINK_GET, &e);

	if (!st || (e = statement_bind(j, st, "i", row)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	if ((e = link_columns(st, ret)))
		sqlite3_reset(st);
	return e;
}

int journal_link_by_id(struct journal *j, const struct id *id, uint64_t *ret_row)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_LINK_BY_ID, &e);

	if (!st || (e = statement_bind(j, st, "t", (const void *)id->b, (size_t)ID_LEN)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	*ret_row = column_u64(st, 0);
	sqlite3_reset(st);
	return 0;
}

static int each_link(struct journal *j, sqlite3_stmt *st, link_row_fn *fn, void *ctx)
{
	struct link_row l;
	int n, e = 0;

	while ((n = statement_row(j, st)) > 0)
		if ((e = link_columns(st, &l)) || (e = fn(ctx, &l)))
			break;
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_links_by_tag(struct journal *j, const uint8_t tag[static 16], link_row_fn *fn, void *ctx)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_LINKS_BY_TAG, &e);

	if (!st || (e = statement_bind(j, st, "t", (const void *)tag, (size_t)16)))
		return e;
	return each_link(j, st, fn, ctx);
}

int journal_links_of_parent(struct journal *j, uint64_t parent, uint64_t after, link_row_fn *fn, void *ctx)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_LINKS_OF_PARENT, &e);

	if (!st || (e = statement_bind(j, st, "ii", parent, after)))
		return e;
	return each_link(j, st, fn, ctx);
}

static int links_by_number(struct journal *j, enum statement s, uint64_t number, link_row_fn *fn, void *ctx)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, s, &e);

	if (!st || (e = statement_bind(j, st, "i", number)))
		return e;
	return each_link(j, st, fn, ctx);
}

int journal_dead_links_of_parent(struct journal *j, uint64_t parent, link_row_fn *fn, void *ctx)
{
	return links_by_number(j, ST_DEAD_OF_PARENT, parent, fn, ctx);
}

int journal_links_of_node(struct journal *j, uint64_t node, link_row_fn *fn, void *ctx)
{
	return links_by_number(j, ST_LINKS_OF_NODE, node, fn, ctx);
}

int journal_links_from(struct journal *j, uint64_t after, link_row_fn *fn, void *ctx)
{
	return links_by_number(j, ST_LINKS_FROM, after, fn, ctx);
}

int journal_link_insert(struct journal *j, const struct link_row *l)
{
	return statement_run(j, ST_LINK_INSERT, "itiitiit", l->row, (const void *)l->id.b, (size_t)ID_LEN, l->node, l->parent,
		(const void *)l->tag, (size_t)16, (uint64_t)l->live, (uint64_t)l->deletions, l->place.p, l->place.len);
}

int journal_link_update(struct journal *j, const struct link_row *l)
{
	return statement_run(j, ST_LINK_UPDATE, "iiitiit", l->row, l->node, l->parent, (const void *)l->tag, (size_t)16,
		(uint64_t)l->live, (uint64_t)l->deletions, l->place.p, l->place.len);
}

int journal_link_delete(struct journal *j, uint64_t row) { return statement_run(j, ST_LINK_DELETE, "i", row); }

int journal_deletions(struct journal *j, uint64_t link, extra_row_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_DELETIONS, &e);

	if (!st || (e = statement_bind(j, st, "i", link)))
		return e;
	while ((n = statement_row(j, st)) > 0) {
		struct extra_row x = {.owner = column_u64(st, 0), .dot = {column_u64(st, 1), column_u64(st, 2)},
			.record = column_blob(st, 3)};
		if ((e = fn(ctx, &x)))
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_deletion_put(struct journal *j, const struct extra_row *x)
{
	return statement_run(j, ST_DELETION_PUT, "iiit", x->owner, x->dot.replica, x->dot.counter, x->record.p, x->record.len);
}

int journal_deletion_delete(struct journal *j, uint64_t link, struct dot dot)
{
	return statement_run(j, ST_DELETION_DELETE, "iii", link, dot.replica, dot.counter);
}

int journal_exceptions(struct journal *j, exception_row_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_EXCEPTIONS, &e);

	if (!st)
		return e;
	while ((n = statement_row(j, st)) > 0) {
		struct exception_row x = {.link = column_u64(st, 0), .parent = column_u64(st, 1), .name = column_blob(st, 3)};
		e = column_16(st, 2, x.tag) ? fn(ctx, &x) : row_damaged("exception");
		if (e)
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_exception_put(struct journal *j, const struct exception_row *x)
{
	return statement_run(j, ST_EXCEPTION_PUT, "iitt", x->link, x->parent, (const void *)x->tag, (size_t)16, x->name.p, x->name.len);
}

int journal_exception_delete(struct journal *j, uint64_t link) { return statement_run(j, ST_EXCEPTION_DELETE, "i", link); }

int journal_groups(struct journal *j, group_row_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_GROUPS, &e);

	if (!st)
		return e;
	while ((n = statement_row(j, st)) > 0)
		if ((e = fn(ctx, column_u64(st, 0), column_u64(st, 1))))
			break;
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_group_put(struct journal *j, uint64_t member, uint64_t lead)
{
	return statement_run(j, ST_GROUP_PUT, "ii", member, lead);
}

int journal_group_delete(struct journal *j, uint64_t member) { return statement_run(j, ST_GROUP_DELETE, "i", member); }
