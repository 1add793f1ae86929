/* Mass deletion (design-replication 5): past half of a volume of HOLD_NAMES names or more, what peers delete further within a day is held: the deletions
 * are known here and go on to others, but their links live on, and with them the contents. Somebody then carries them out, which a part says to all replicas, or
 * writes the names down again, which all replicas see as places that the deletions have not seen.
 *
 *   meta "held": format u8 (1) | nonce and sealed form of record_seal over since u64 | count u64 | n u32 | link row u64 each
 * Additional data: "twofold held". The consent is a record of kind 7 in the table `other`. */
#include <errno.h>
#include <stdlib.h>

#include "batch.h"
#include "commit.h"

#define HELD_FORMAT 1
#define HOLD_NAMES 100
#define DAY_NS (86400ull * 1000000000)

static const char aad[12] = "twofold held";
static const struct id consent_id = {{'m', 'a', 's', 's', ' ', 'd', 'e', 'l', 'e', 't', 'i', 'o', 'n', 's', 0, 0}};

void hold_fini(struct volume *v)
{
	free(v->hold.row);
	vector_fini(&v->hold.confirmed);
	v->hold = (struct hold){0};
}

static int list(struct volume *v, uint64_t row)
{
	struct hold *h = &v->hold;

	if (h->n == h->cap) {
		uint32_t cap = h->cap ? h->cap * 2 : 64;
		uint64_t *p = reallocarray(h->row, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		h->row = p;
		h->cap = cap;
	}
	h->row[h->n++] = row;
	h->changed = true;
	return 0;
}

static int load_consent(struct volume *v)
{
	struct other_row row;
	struct part p;
	int e = journal_other_get(v->journal, PART_CONSENT, &consent_id, &row);

	if (e)
		return e == -ENOENT ? 0 : e;
	if ((e = part_parse(v->keys, row.record.p, row.record.len, true, &p)))
		return e;
	vector_fini(&v->hold.confirmed);
	v->hold.confirmed = p.vector;
	p.vector = (struct vector){0};
	part_fini(&p);
	return 0;
}

int hold_load(struct volume *v)
{
	struct buf row = {0}, plain = {0};
	int e = journal_meta_get(v->journal, "held", &row);

	if (e == -ENOENT) {
		buf_fini(&row);
		return load_consent(v);
	}
	if (!e && (row.len < 2 || row.p[0] != HELD_FORMAT))
		e = -EUCLEAN;
	e = e ? e : record_open(v->keys, (const uint8_t *)aad, sizeof aad, row.p + 1, row.len - 1, &plain);
	if (!e) {
		struct reader r = reader_of(plain.p, plain.len);
		v->hold.since_ns = read_u64(&r);
		v->hold.count = read_u64(&r);
		uint32_t n = read_u32(&r);
		e = r.bad || r.left != (size_t)n * 8 ? -EUCLEAN : 0;
		for (uint32_t i = 0; i < n && !e; i++)
			e = list(v, read_u64(&r));
	}
	buf_fini(&row);
	buf_fini(&plain);
	v->hold.changed = false;
	e = e ? e : load_consent(v);
	if (e)
		log_error("%s: the list of held deletions in journal.db is damaged", v->path);
	return e == -EBADMSG ? -EUCLEAN : e;
}

int hold_write(struct volume *v)
{
	struct buf plain = {0}, sealed = {0};

	buf_put_u64(&plain, v->hold.since_ns);
	buf_put_u64(&plain, v->hold.count);
	buf_put_u32(&plain, v->hold.n);
	for (uint32_t i = 0; i < v->hold.n; i++)
		buf_put_u64(&plain, v->hold.row[i]);
	buf_put_u8(&sealed, HELD_FORMAT);
	int e = plain.err ? plain.err : record_seal(v->keys, (const uint8_t *)aad, sizeof aad, plain.p, plain.len, &sealed);
	e = e ? e : sealed.err;
	e = e ? e : journal_meta_set(v->journal, "held", sealed.p, sealed.len);
	buf_fini(&plain);
	buf_fini(&sealed);
	return e;
}

/* ---- while a batch is applied ---- */
int hold_deletion(struct apply *a, struct vlink *l, struct dot dot)
{
	struct volume *v = a->v;
	struct hold *h = &v->hold;
	uint64_t now = env_wall_ns(v->env);

	if (!v->options.hold_deletions || vector_has(&h->confirmed, dot))
		return 0;
	if (!h->since_ns || now - h->since_ns > DAY_NS) {
		h->since_ns = now;
		h->count = 0;
	}
	h->changed = true;
	/* names present, and those that went in this time */
	uint64_t gone = h->count, before = v->node_count + gone;
	if (!h->n && (before < HOLD_NAMES || (gone + 1) * 2 <= before)) {
		h->count++;
		return 0;
	}
	if (!h->n)
		log_warn("%s: peers have deleted %llu of %llu names within a day: what they delete further is held (`twofold deletions`)", v->path,
			(unsigned long long)gone, (unsigned long long)before);
	for (uint32_t i = 0; i < h->n; i++)
		if (h->row[i] == l->row)
			return 1;
	int e = list(v, l->row);
	return e ? e : 1;
}

static bool confirmed(const struct volume *v, const struct vlink *l)
{
	for (uint32_t i = 0; i < l->n_deletion; i++) {
		const struct vdeletion *d = &l->deletion[i];
		if (!d->gone && vector_has(&d->places_seen, l->place.stamp.dot) && vector_has(&v->hold.confirmed, d->slot.stamp.dot))
			return true;
	}
	return false;
}

/* Is it still as it was held? Somebody may have moved or deleted it since. */
static int held_link(struct apply *a, uint64_t row, struct vlink **ret, struct vnode **ret_node)
{
	int e = vlink_get(a->v, row, ret);

	e = e ? e : vlink_deletions(a->v, *ret);
	if (!e && (!((*ret)->flags & VL_LIVE) || !vlink_covered(*ret)))
		e = -ENOENT;
	return e ? e : vnode_get(a->v, (*ret)->node, ret_node);
}

static int carry_out(struct apply *a)
{
	struct hold *h = &a->v->hold;
	uint32_t k = 0;
	int e = 0;

	for (uint32_t i = 0; i < h->n; i++) {
		struct vlink *l;
		struct vnode *n;
		bool keep = e;
		if (!e && !(e = held_link(a, h->row[i], &l, &n)) && !(keep = !confirmed(a->v, l))) {
			e = seeds_add(&a->seeds, l->row);
			e = e ? e : arrive_kill(a, l, n);
		}
		e = e == -ENOENT ? 0 : e;
		if (keep)
			h->row[k++] = h->row[i];
	}
	h->changed |= k != h->n;
	h->n = k;
	if (!k)
		h->count = h->since_ns = 0;
	return e;
}

int arrive_consent(struct apply *a, struct arrival *x)
{
	int e = id_eq(&x->part.id, &consent_id) ? vector_join(&a->v->hold.confirmed, &x->part.vector) : -EUCLEAN;

	x->taken = !e;
	return e ? e : carry_out(a);
}

/* ---- what somebody says ---- */
/* Links that were moved or deleted since, here or elsewhere, are held no more. */
static void look_again(struct volume *v)
{
	struct apply a = {.v = v};
	struct hold *h = &v->hold;
	uint32_t k = 0;

	for (uint32_t i = 0; i < h->n; i++) {
		struct vlink *l;
		struct vnode *n;
		if (held_link(&a, h->row[i], &l, &n) != -ENOENT)
			h->row[k++] = h->row[i];
	}
	h->changed |= k != h->n;
	h->n = k;
	if (!k)
		h->count = h->since_ns = 0;
	h->looked_seq = v->seq;
}

uint32_t volume_held(struct volume *v)
{
	tree_lock(v);
	if (v->hold.n && v->hold.looked_seq != v->seq)
		look_again(v);
	uint32_t n = v->hold.n;
	tree_unlock(v);
	return n;
}

/* Inside of the transaction: the part that carries the consent to all replicas. */
static int write_consent(void *ctx)
{
	struct volume *v = ctx;
	struct buf record = {0};
	struct part p = {.kind = PART_CONSENT, .id = consent_id, .opened = true}, had = {0};
	struct other_row old = {0};
	int e = journal_other_get(v->journal, PART_CONSENT, &consent_id, &old);

	e = e == -ENOENT ? 0 : e ? e : part_parse(v->keys, old.record.p, old.record.len, false, &had);
	e = e ? e : vector_copy(&p.vector, &v->knowledge);
	e = e ? e : vector_join(&p.vector, &v->hold.confirmed);
	p.stamp = txn_stamp(v->writing);
	e = e ? e : part_seal(v->keys, &p, &record);
	if (!e) {
		const struct other_row row = {.kind = PART_CONSENT, .id = consent_id, .dot = p.stamp.dot, .record = {record.p, record.len}};
		txn_roots(v->writing, old.record, false, row.record, false);
		e = journal_other_put(v->journal, &row);
		e = e ? e : txn_dot(v->writing, PART_CONSENT, 0, p.stamp.dot, had.stamp.dot);
	}
	if (!e) {
		vector_fini(&v->hold.confirmed);
		v->hold.confirmed = p.vector;
		p.vector = (struct vector){0};
	}
	vector_fini(&p.vector);
	part_fini(&had);
	buf_fini(&record);
	return e;
}

/* A new version of each place, which no deletion has seen. */
static int write_down(struct apply *a)
{
	struct hold *h = &a->v->hold;
	int e = 0;

	for (uint32_t i = 0; i < h->n && !e; i++) {
		struct vlink *l;
		struct vnode *n;
		e = held_link(a, h->row[i], &l, &n);
		e = e ? e : slot_change(&l->place);
		if (!e) {
			vlink_dirty(a->v, l);
			e = seeds_add(&a->seeds, l->row);
		}
		e = e == -ENOENT ? 0 : e;
	}
	if (!e) {
		h->n = 0;
		h->count = h->since_ns = 0;
		h->changed = true;
	}
	return e;
}

int volume_held_end(struct volume *v, bool undo)
{
	int e;

	if (!volume_held(v))
		return -ENOENT;
	if (!undo) {
		e = apply_begin(v);
		e = e ? e : apply_end(v, NULL, write_consent, v);
		if (e)
			return e;
	}
	e = apply_links(v, undo ? write_down : carry_out);
	if (!e)
		log_info("%s: held deletions were %s", v->path, undo ? "undone" : "carried out");
	return e;
}
