/* Rows of nodes, of further contents, steps, bases and the trash. */
#include <errno.h>
#include <sys/stat.h>

#include "statement.h"

static bool type_valid(uint64_t type)
{
	return type == 0 || type == S_IFREG || type == S_IFDIR || type == S_IFLNK || type == S_IFIFO || type == S_IFSOCK ||
	       type == S_IFCHR || type == S_IFBLK;
}

int journal_node_get(struct journal *j, uint64_t row, struct node_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_NODE_GET, &e);

	if (!st || (e = statement_bind(j, st, "i", row)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	struct node_row r = {.row = column_u64(st, 0), .type = (uint32_t)column_u64(st, 2), .nlink = (uint32_t)column_u64(st, 3),
		.links = (uint32_t)column_u64(st, 4), .local = column_u64(st, 5), .orphan = column_u64(st, 6),
		.derived = column_u64(st, 7), .extras = (uint32_t)column_u64(st, 8), .attrs = column_blob(st, 9),
		.times = column_blob(st, 10), .content = column_blob(st, 11)};
	if (!column_16(st, 1, r.id.b) || !type_valid(column_u64(st, 2))) {
		sqlite3_reset(st);
		return row_damaged("node");
	}
	*ret = r;
	return 0;
}

static int one_number(struct journal *j, sqlite3_stmt *st, uint64_t *ret)
{
	int n = statement_row(j, st);

	if (n <= 0)
		return n ? n : -ENOENT;
	*ret = column_u64(st, 0);
	sqlite3_reset(st);
	return 0;
}

int journal_node_by_id(struct journal *j, const struct id *id, uint64_t *ret_row)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_NODE_BY_ID, &e);

	if (!st || (e = statement_bind(j, st, "t", (const void *)id->b, (size_t)ID_LEN)))
		return e;
	return one_number(j, st, ret_row);
}

static int by_number(struct journal *j, enum statement s, uint64_t number, uint64_t *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, s, &e);

	if (!st || (e = statement_bind(j, st, "i", number)))
		return e;
	return one_number(j, st, ret);
}

int journal_node_by_local(struct journal *j, uint64_t local, uint64_t *ret_row)
{
	return by_number(j, ST_NODE_BY_LOCAL, local, ret_row);
}

int journal_node_insert(struct journal *j, const struct node_row *n)
{
	return statement_run(j, ST_NODE_INSERT, "itiiiiiiittt", n->row, (const void *)n->id.b, (size_t)ID_LEN, (uint64_t)n->type,
		(uint64_t)n->nlink, (uint64_t)n->links, n->local, (uint64_t)n->orphan, n->derived, (uint64_t)n->extras, n->attrs.p,
		n->attrs.len, n->times.p, n->times.len, n->content.p, n->content.len);
}

int journal_node_update(struct journal *j, const struct node_row *n)
{
	return statement_run(j, ST_NODE_UPDATE, "iiiiiiiittt", n->row, (uint64_t)n->type, (uint64_t)n->nlink, (uint64_t)n->links,
		n->local, (uint64_t)n->orphan, n->derived, (uint64_t)n->extras, n->attrs.p, n->attrs.len, n->times.p, n->times.len,
		n->content.p, n->content.len);
}

int journal_node_renumber(struct journal *j, uint64_t row, uint64_t fresh)
{
	int e = statement_run(j, ST_NODE_RENUMBER, "ii", row, fresh);

	e = e ? e : statement_run(j, ST_EXTRA_RENUMBER, "ii", row, fresh);
	e = e ? e : statement_run(j, ST_BASE_RENUMBER, "ii", row, fresh);
	e = e ? e : statement_run(j, ST_BASE_NODE_RENUMBER, "ii", row, fresh);
	return e ? e : journal_step_delete(j, row);
}

int journal_node_delete(struct journal *j, uint64_t row) { return statement_run(j, ST_NODE_DELETE, "i", row); }

static int numbers(struct journal *j, sqlite3_stmt *st, uint64_t *ret, uint32_t max, uint32_t *ret_n)
{
	uint32_t n = 0;
	int got = 0;

	while (n < max && (got = statement_row(j, st)) > 0)
		ret[n++] = column_u64(st, 0);
	if (got < 0)
		return got;
	sqlite3_reset(st);
	*ret_n = n;
	return 0;
}

static int rows_after(struct journal *j, enum statement s, uint64_t after, uint64_t *ret_rows, uint32_t max, uint32_t *ret_n)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, s, &e);

	if (!st || (e = statement_bind(j, st, "ii", after, (uint64_t)max)))
		return e;
	return numbers(j, st, ret_rows, max, ret_n);
}

int journal_orphans(struct journal *j, uint64_t after, uint64_t *ret_rows, uint32_t max, uint32_t *ret_n)
{
	return rows_after(j, ST_ORPHANS, after, ret_rows, max, ret_n);
}

int journal_nodes_from(struct journal *j, uint64_t after, uint64_t *ret_rows, uint32_t max, uint32_t *ret_n)
{
	return rows_after(j, ST_NODES_FROM, after, ret_rows, max, ret_n);
}

int journal_max_local(struct journal *j, uint64_t *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_MAX_LOCAL, &e);

	return st ? one_number(j, st, ret) : e;
}

int journal_count_nodes(struct journal *j, uint64_t *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_COUNT_NODES, &e);

	return st ? one_number(j, st, ret) : e;
}

int journal_extras(struct journal *j, uint64_t node, extra_row_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_EXTRAS, &e);

	if (!st || (e = statement_bind(j, st, "i", node)))
		return e;
	while ((n = statement_row(j, st)) > 0) {
		struct extra_row x = {.owner = column_u64(st, 0), .dot = {column_u64(st, 1), column_u64(st, 2)},
			.record = column_blob(st, 3), .local = column_u64(st, 4), .copy = column_u64(st, 5)};
		if ((e = fn(ctx, &x)))
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_extra_put(struct journal *j, const struct extra_row *x)
{
	return statement_run(j, ST_EXTRA_PUT, "iiitii", x->owner, x->dot.replica, x->dot.counter, x->record.p, x->record.len,
		x->local, x->copy);
}

int journal_extra_delete(struct journal *j, uint64_t node, struct dot dot)
{
	return statement_run(j, ST_EXTRA_DELETE, "iii", node, dot.replica, dot.counter);
}

int journal_extras_drop_locals(struct journal *j, uint64_t node) { return statement_run(j, ST_EXTRAS_DROP, "i", node); }

int journal_extra_by_local(struct journal *j, uint64_t local, uint64_t *ret_node)
{
	return by_number(j, ST_EXTRA_BY_LOCAL, local, ret_node);
}

int journal_step_get(struct journal *j, uint64_t node, struct step_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_STEP_GET, &e);

	if (!st || (e = statement_bind(j, st, "i", node)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	*ret = (struct step_row){.node = column_u64(st, 0), .from = {column_u64(st, 1), column_u64(st, 2)},
		.to = {column_u64(st, 3), column_u64(st, 4)}, .ranges = column_blob(st, 5)};
	return 0;
}

int journal_step_put(struct journal *j, const struct step_row *s)
{
	return statement_run(j, ST_STEP_PUT, "iiiiit", s->node, s->from.replica, s->from.counter, s->to.replica, s->to.counter,
		s->ranges.p, s->ranges.len);
}

int journal_step_delete(struct journal *j, uint64_t node) { return statement_run(j, ST_STEP_DELETE, "i", node); }

static struct base_row base_columns(sqlite3_stmt *st)
{
	return (struct base_row){.node = column_u64(st, 0), .base_node = column_u64(st, 1), .local = column_u64(st, 2),
		.bytes = column_u64(st, 3), .record = column_blob(st, 4)};
}

int journal_base_get(struct journal *j, uint64_t node, struct base_row *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_BASE_GET, &e);

	if (!st || (e = statement_bind(j, st, "i", node)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	*ret = base_columns(st);
	return 0;
}

int journal_base_put(struct journal *j, const struct base_row *b)
{
	return statement_run(j, ST_BASE_PUT, "iiiit", b->node, b->base_node, b->local, b->bytes, b->record.p, b->record.len);
}

int journal_base_delete(struct journal *j, uint64_t node) { return statement_run(j, ST_BASE_DELETE, "i", node); }

int journal_bases(struct journal *j, base_row_fn *fn, void *ctx)
{
	int e = 0, n;
	sqlite3_stmt *st = statement(j, ST_BASES, &e);

	if (!st)
		return e;
	while ((n = statement_row(j, st)) > 0) {
		struct base_row b = base_columns(st);
		if ((e = fn(ctx, &b)))
			break;
	}
	sqlite3_reset(st);
	return n < 0 ? n : e < 0 ? e : 0;
}

int journal_base_by_local(struct journal *j, uint64_t local, uint64_t *ret_node)
{
	return by_number(j, ST_BASE_BY_LOCAL, local, ret_node);
}

int journal_trash_put(struct journal *j, uint64_t local) { return statement_run(j, ST_TRASH_PUT, "i", local); }

int journal_trash_delete(struct journal *j, uint64_t local) { return statement_run(j, ST_TRASH_DELETE, "i", local); }

int journal_trash_list(struct journal *j, uint64_t *ret_locals, uint32_t max, uint32_t *ret_n)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_TRASH_LIST, &e);

	if (!st || (e = statement_bind(j, st, "i", (uint64_t)max)))
		return e;
	return numbers(j, st, ret_locals, max, ret_n);
}
