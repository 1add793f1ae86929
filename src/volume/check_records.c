/* Every record that the journal names by its dot: is it there, is it that one, does it open; and do all add up to the sealed root of the last COMMIT?
 * A bad one is asked for at peers: a record is sealed once, by its author, and is the same bytes everywhere. */
#include <errno.h>
#include <stdlib.h>

#include "check_internal.h"
#include "commit.h"

#define STEP_DOTS 64
#define BAD_MAX 4096

struct dots_step {
	struct check *c;
	struct dot_row *bad; /* owned, BAD_MAX */
	uint32_t n_bad, n;
	uint64_t last;
	struct root sum;
	bool open; /* else only added up */
};

static int look_at(void *ctx, const struct dot_row *d)
{
	struct dots_step *s = ctx;
	struct volume *v = s->c->v;
	struct buf record = {0};
	struct root term;
	struct part p;
	int e = record_by_dot(v, d, &record);

	s->last = d->dot.counter;
	if (!e) {
		keyring_record_term(v->keys, record.p, record.len, &term);
		root_add(&s->sum, &term);
	}
	if (!e && s->open) {
		e = part_parse(v->keys, record.p, record.len, true, &p);
		if (!e && !dot_eq(p.stamp.dot, d->dot))
			e = -EBADMSG;
		part_fini(&p);
	}
	if (s->open) {
		s->c->r->records++;
		if (e && e != -ENOMEM && s->n_bad < BAD_MAX)
			s->bad[s->n_bad++] = *d;
	}
	buf_fini(&record);
	return e == -ENOMEM ? e : ++s->n >= STEP_DOTS;
}

static int all_dots(struct dots_step *s)
{
	struct volume *v = s->c->v;
	uint64_t replica = 0;
	bool first = true;
	int e;

	for (;; first = false) {
		tree_lock(v);
		e = journal_next_replica(v->journal, replica, first, &replica);
		tree_unlock(v);
		if (e)
			return e == -ENOENT ? 0 : e;
		for (s->last = 0, s->n = STEP_DOTS; s->n >= STEP_DOTS && !e;) {
			s->n = 0;
			tree_lock(v);
			e = journal_dots(v->journal, replica, s->last, INT64_MAX, look_at, s);
			tree_unlock(v);
			if (s->c->o->progress && !s->c->o->progress(s->c->o->ctx, 0, s->c->rows, 0, 0))
				s->c->r->stopped = true;
			if (s->c->r->stopped)
				return 0;
		}
		if (e)
			return e;
	}
}

/* Commits are kept out: it is a sum over all rows, a few microseconds each. */
static int check_root(struct check *c)
{
	struct dots_step s = {.c = c};
	struct volume *v = c->v;

	pthread_mutex_lock(&v->commit_mu);
	int e = all_dots(&s);
	tree_lock(v);
	bool same = root_eq(&s.sum, &v->root_all);
	tree_unlock(v);
	pthread_mutex_unlock(&v->commit_mu);
	if (!e && !c->r->stopped && !same) {
		c->r->bad_root = true;
		check_say(c, "the records do not add up to the root of the last commit: one was removed or put back");
	}
	return e;
}

static const char *kind_name(uint8_t kind)
{
	switch (kind) {
	case PART_PLACE: return "place of a link";
	case PART_DELETION: return "deletion of a link";
	case PART_CONTENT: return "content";
	case PART_ATTRS: return "attributes";
	case PART_TIMES: return "times";
	case PART_MEMBER: return "member";
	default: return "unknown kind";
	}
}

/* ---- mending ---- */
static void slot_is(struct slot *s, const struct part *p)
{
	struct vector x;

	if (vector_copy(&x, &p->vector))
		return;
	vector_fini(&s->vector);
	s->vector = x;
	s->stamp = p->stamp;
	s->stored = p->stamp.dot;
}

/* Puts the record into its row, if that is there. Tree locked, commit_mu held. */
static int put_record(struct volume *v, const struct dot_row *d, const struct part *p, const struct buf *record)
{
	struct blob b = {record->p, record->len};
	struct node_row n;
	struct link_row l;
	struct vnode *cached;
	int e = -ENOENT;

	switch (d->kind) {
	case PART_PLACE:
		e = journal_link_get(v->journal, d->owner, &l);
		if (!e && !id_eq(&l.id, &p->id))
			return -EBADMSG;
		l.place = b;
		return e ? e : journal_link_update(v->journal, &l);
	case PART_CONTENT:
	case PART_ATTRS:
	case PART_TIMES:
		e = journal_node_get(v->journal, d->owner, &n);
		if (!e && !id_eq(&n.id, &p->id))
			return -EBADMSG;
		n.attrs = d->kind == PART_ATTRS ? b : (struct blob){0};
		n.times = d->kind == PART_TIMES ? b : (struct blob){0};
		n.content = d->kind == PART_CONTENT ? b : (struct blob){0};
		e = e ? e : journal_node_update(v->journal, &n);
		cached = vnode_cached(v, d->owner);
		if (!e && cached && d->kind == PART_ATTRS && !slot_pending(&cached->attrs_slot)) {
			struct attrs a;
			if (!(e = attrs_copy(&a, &p->attrs))) {
				attrs_fini(&cached->attrs);
				cached->attrs = a;
				slot_is(&cached->attrs_slot, p);
			}
		}
		if (!e && cached && d->kind == PART_TIMES && !slot_pending(&cached->times_slot)) {
			cached->times = p->times;
			slot_is(&cached->times_slot, p);
		}
		return e;
	case PART_DELETION:
		return journal_deletion_put(v->journal, &(struct extra_row){.owner = d->owner, .dot = d->dot, .record = b});
	case PART_MEMBER:
		return journal_member_put(v->journal, d->owner, b.p, b.len);
	}
	return e;
}

static int heal_record(struct check *c, const struct dot_row *d)
{
	struct volume *v = c->v;
	struct buf record = {0};
	struct part p;
	int e = heal_fetch_record(v, d->dot, &record);

	if (e)
		return e;
	e = part_parse(v->keys, record.p, record.len, true, &p);
	if (e) {
		buf_fini(&record);
		return e;
	}
	if (!dot_eq(p.stamp.dot, d->dot) || p.kind != d->kind)
		e = -EBADMSG;
	pthread_mutex_lock(&v->commit_mu);
	tree_lock(v);
	e = e ? e : journal_begin(v->journal);
	if (!e) {
		e = put_record(v, d, &p, &record);
		e = e ? e : journal_commit(v->journal);
		if (e)
			journal_rollback(v->journal);
	}
	tree_unlock(v);
	e = e ? e : journal_flush(v->journal);
	pthread_mutex_unlock(&v->commit_mu);
	part_fini(&p);
	buf_fini(&record);
	return e;
}

int check_records(struct check *c)
{
	struct dots_step s = {.c = c, .open = true, .bad = calloc(BAD_MAX, sizeof *s.bad)};
	int e = s.bad ? all_dots(&s) : -ENOMEM;

	for (uint32_t i = 0; !e && i < s.n_bad && !c->r->stopped; i++) {
		struct dot_row now;
		tree_lock(c->v);
		bool held = !journal_dot_get(c->v->journal, s.bad[i].dot, &now);
		tree_unlock(c->v);
		if (!held)
			continue; /* replaced meanwhile */
		check_say(c, "record %016llx:%llu (%s): it is missing, an old one, or does not authenticate", (unsigned long long)s.bad[i].dot.replica,
			  (unsigned long long)s.bad[i].dot.counter, kind_name(s.bad[i].kind));
		if (c->o->repair && !heal_record(c, &s.bad[i])) {
			c->r->healed++;
			log_info("%s: record %016llx:%llu healed from a peer", c->v->path, (unsigned long long)s.bad[i].dot.replica,
				 (unsigned long long)s.bad[i].dot.counter);
			check_say(c, "healed from a peer");
		} else {
			c->r->bad_records++;
		}
	}
	free(s.bad);
	if (!e && !c->r->stopped)
		e = check_root(c);
	return e;
}
