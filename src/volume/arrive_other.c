/* Parts without a form in the tree: members, and kinds that are not known here, which are kept and passed on unread. Of each the largest
 * stays. Under tree_mu, inside of the transaction of an apply. */
#include <errno.h>

#include "batch.h"
#include "commit.h"

static const struct blob none;

static int stamp_of(struct volume *v, const struct blob *record, struct stamp *ret)
{
	struct part p;
	int e = part_parse(v->keys, record->p, record->len, false, &p);

	if (e)
		return e;
	*ret = p.stamp;
	part_fini(&p);
	return 0;
}

static int member_arrives(struct volume *v, const struct part *p, const void *record, size_t len)
{
	struct txn *t = v->writing;
	struct buf old = {0};
	struct stamp had = {0};
	uint64_t replica = le64_load(p->id.b);
	int e = journal_member_get(v->journal, replica, &old);

	if (!e)
		e = stamp_of(v, &(struct blob){old.p, old.len}, &had);
	else if (e == -ENOENT)
		e = 0;
	if (!e && stamp_cmp(had, p->stamp) < 0) {
		txn_roots(t, (struct blob){old.p, old.len}, false, (struct blob){record, len}, false);
		e = journal_member_put(v->journal, replica, record, len);
		e = e ? e : txn_dot(t, PART_MEMBER, replica, p->stamp.dot, had.dot);
	}
	buf_fini(&old);
	return e;
}

static int unknown_arrives(struct volume *v, const struct part *p, const void *record, size_t len)
{
	struct txn *t = v->writing;
	struct other_row row = {0};
	struct stamp had = {0};
	int e = journal_other_get(v->journal, p->kind, &p->id, &row);

	if (!e)
		e = stamp_of(v, &row.record, &had);
	else if (e == -ENOENT)
		e = 0;
	if (e || stamp_cmp(had, p->stamp) >= 0)
		return e;
	txn_roots(t, had.dot.counter ? row.record : none, false, (struct blob){record, len}, false);
	const struct other_row fresh = {.kind = p->kind, .id = p->id, .dot = p->stamp.dot, .record = {record, len}};
	e = journal_other_put(v->journal, &fresh);
	return e ? e : txn_dot(t, p->kind, 0, p->stamp.dot, had.dot);
}

int other_arrives(struct volume *v, const struct part *p, const void *record, size_t len)
{
	return p->kind == PART_MEMBER ? member_arrives(v, p, record, len) : unknown_arrives(v, p, record, len);
}
