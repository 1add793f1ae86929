/* A store that was put back from a backup, or copied, has made changes under numbers that another store of the same replica has given to others
 * (design-replication 4). It takes a new identity: replica id, name and static key; what it holds of its changes from the first doubtful number on becomes changes
 * of the new replica, with vectors in which no doubtful dot stands; its knowledge of the old one ends before that number, so that the others' changes come like any
 * that were missed.
 *
 *   meta "renewal": format u8 (1) | nonce and sealed form of record_seal over state u8 (0 prepared, 1 taken) | from u64 | replica u64 | name str |
 *                   static public key 32 | static secret key as sealed in `volume` 72
 * State 1 is written in the transaction that changes the records; the file `volume` follows, at the next open if need be. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "commit.h"

#define RENEWAL_FORMAT 1

static const char aad[15] = "twofold renewal";

struct renewal {
	bool taken;
	uint64_t from;
	struct header h; /* the fields that change */
};

static int read_renewal(struct volume *v, struct renewal *ret)
{
	struct buf row = {0}, plain = {0};
	size_t len = 0;
	int e = journal_meta_get(v->journal, "renewal", &row);

	if (!e && (row.len < 2 || row.p[0] != RENEWAL_FORMAT))
		e = -EUCLEAN;
	e = e ? e : record_open(v->keys, (const uint8_t *)aad, sizeof aad, row.p + 1, row.len - 1, &plain);
	if (!e) {
		struct reader r = reader_of(plain.p, plain.len);
		*ret = (struct renewal){.taken = read_u8(&r) == 1};
		ret->from = read_u64(&r);
		ret->h.replica = read_u64(&r);
		const uint8_t *name = read_str(&r, &len), *key = read_bytes(&r, 32), *sealed = read_bytes(&r, sizeof ret->h.static_sealed);
		if (!reader_done(&r) || len > REPLICA_NAME_MAX) {
			e = -EUCLEAN;
		} else {
			memcpy(ret->h.name, name, len);
			memcpy(ret->h.static_public, key, 32);
			memcpy(ret->h.static_sealed, sealed, sizeof ret->h.static_sealed);
		}
	}
	buf_fini(&row);
	buf_fini(&plain);
	return e == -EBADMSG ? -EUCLEAN : e;
}

static int write_renewal(struct volume *v, const struct renewal *n)
{
	struct buf plain = {0}, sealed = {0};

	buf_put_u8(&plain, n->taken);
	buf_put_u64(&plain, n->from);
	buf_put_u64(&plain, n->h.replica);
	buf_put_str(&plain, n->h.name, strlen(n->h.name));
	buf_put(&plain, n->h.static_public, 32);
	buf_put(&plain, n->h.static_sealed, sizeof n->h.static_sealed);
	buf_put_u8(&sealed, RENEWAL_FORMAT);
	int e = plain.err ? plain.err : record_seal(v->keys, (const uint8_t *)aad, sizeof aad, plain.p, plain.len, &sealed);
	e = e ? e : sealed.err;
	e = e ? e : journal_meta_set(v->journal, "renewal", sealed.p, sealed.len);
	buf_fini(&plain);
	buf_fini(&sealed);
	return e;
}

static void take_fields(struct header *h, const struct header *from)
{
	h->replica = from->replica;
	memcpy(h->name, from->name, sizeof h->name);
	memcpy(h->static_public, from->static_public, sizeof h->static_public);
	memcpy(h->static_sealed, from->static_sealed, sizeof h->static_sealed);
}

int renew_finish(struct volume *v)
{
	struct renewal n;
	int e = read_renewal(v, &n);

	if (e == -ENOENT || (!e && (!n.taken || n.h.replica == v->header.replica)))
		return 0;
	if (e)
		return e;
	log_info("%s: goes on as replica %s (%016llx)", v->path, n.h.name, (unsigned long long)n.h.replica);
	take_fields(&v->header, &n.h);
	v->self = v->header.replica;
	return v->options.read_only ? 0 : header_write(v->dirfd, &v->header);
}

/* ---- preparing ---- */
/* NAME-XXXX, with some of the new id; of a name that has such an end already the end changes. */
static void fresh_name(const char *old, uint64_t replica, char ret[static REPLICA_NAME_MAX + 1])
{
	size_t len = strlen(old);

	if (len > 5 && old[len - 5] == '-' && strspn(old + len - 4, "0123456789abcdef") == 4)
		len -= 5;
	if (len > REPLICA_NAME_MAX - 5)
		len = REPLICA_NAME_MAX - 5;
	snprintf(ret, REPLICA_NAME_MAX + 1, "%.*s-%04x", (int)len, old, (unsigned)(replica & 0xffff));
}

static int draw(struct volume *v, struct renewal *n)
{
	uint8_t *secret = sodium_malloc(32);

	if (!secret)
		return -ENOMEM;
	n->taken = false;
	n->h = v->header;
	do {
		env_random(v->env, &n->h.replica, sizeof n->h.replica);
		n->h.replica &= INT64_MAX;
	} while (!n->h.replica || n->h.replica == v->self);
	fresh_name(v->header.name, n->h.replica, n->h.name);
	env_random(v->env, secret, 32);
	header_set_static(&n->h, v->keys, secret);
	sodium_free(secret);
	return 0;
}

static int prepare(struct volume *v, void *ctx)
{
	struct renewal *n = ctx, before;
	uint64_t from = n->from;
	int e = read_renewal(v, &before);

	if (!e && !before.taken) {
		*n = before;
		if (n->from <= from)
			return 0;
		n->from = from;
	} else if (e && e != -ENOENT) {
		return e;
	} else if ((e = draw(v, n))) {
		return e;
	}
	return write_renewal(v, n);
}

int volume_renew_prepare(struct volume *v, uint64_t from, struct identity *ret)
{
	struct renewal n = {.from = from};
	int e = commit_rows(v, prepare, &n);

	if (e)
		return e;
	*ret = (struct identity){.replica = n.h.replica};
	memcpy(ret->name, n.h.name, sizeof ret->name);
	memcpy(ret->static_public, n.h.static_public, sizeof ret->static_public);
	return 0;
}

/* ---- changing dots ---- */
struct redot {
	struct volume *v;
	uint64_t replica, from;   /* doubtful: its dots from this counter on */
	struct dot_row *row;      /* owned: the parts concerned */
	uint32_t n, cap;
	struct renewal *renewal;  /* NULL: of another replica */
	struct member me;
	uint32_t left;            /* parts that could not be changed */
};

static int collect(void *ctx, const struct dot_row *d)
{
	struct redot *r = ctx;

	if (r->n == r->cap) {
		uint32_t cap = r->cap ? r->cap * 2 : 64;
		struct dot_row *p = reallocarray(r->row, cap, sizeof *p);
		if (!p)
			return -ENOMEM;
		r->row = p;
		r->cap = cap;
	}
	r->row[r->n++] = *d;
	return 0;
}

static bool is_doubtful(const struct redot *r, struct dot d) { return d.replica == r->replica && d.counter >= r->from; }

static bool has_seen_doubtful(const struct redot *r, const struct part *p)
{
	if (vector_get(&p->vector, r->replica) >= r->from)
		return true;
	if (p->opened && p->kind == PART_DELETION)
		return vector_get(&p->deletion.places_seen, r->replica) >= r->from || vector_get(&p->deletion.contents_seen, r->replica) >= r->from;
	for (uint32_t i = 0; i < p->apart.n; i++)
		if (is_doubtful(r, p->apart.e[i]))
			return true;
	return false;
}

/* Parts of other authors that build on a doubtful one: would they keep it in their vectors, they would supersede what they have never seen. */
static int collect_others(struct redot *r)
{
	struct volume *v = r->v;
	uint64_t replica = 0;
	int e;

	for (bool first = true; !(e = journal_next_replica(v->journal, replica, first, &replica)); first = false) {
		uint32_t start = r->n, kept;
		if (replica == r->replica)
			continue;
		if ((e = journal_dots(v->journal, replica, 0, UINT64_MAX >> 1, collect, r)))
			return e;
		kept = start;
		for (uint32_t i = start; i < r->n; i++) {
			struct buf record = {0};
			struct part p = {0};
			bool has = !record_by_dot(v, &r->row[i], &record) && !part_parse(v->keys, record.p, record.len, r->row[i].kind == PART_DELETION, &p) && has_seen_doubtful(r, &p);
			part_fini(&p);
			buf_fini(&record);
			if (has)
				r->row[kept++] = r->row[i];
		}
		r->n = kept;
	}
	return e == -ENOENT ? 0 : e;
}

static void lower(const struct redot *r, struct vector *x) { vector_lower(x, r->replica, r->from - 1); }

static void lower_dots(const struct redot *r, struct dots *x)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < x->n; i++)
		if (!is_doubtful(r, x->e[i]))
			x->e[k++] = x->e[i];
	x->n = k;
}

/* The version in memory becomes the new one. */
static int follow_slot(struct slot *s, const struct part *p)
{
	struct vector copy;
	int e = vector_copy(&copy, &p->vector);

	if (e)
		return e;
	vector_fini(&s->vector);
	s->vector = copy;
	s->stamp = p->stamp;
	s->stored = p->stamp.dot;
	return 0;
}

static int put_node_part(struct redot *r, const struct dot_row *d, const struct part *p, const struct buf *old, const struct buf *fresh)
{
	struct volume *v = r->v;
	struct node_row row, now;
	struct vnode *n;
	int e = vnode_get(v, d->owner, &n);

	if (e || (e = journal_node_get(v->journal, d->owner, &now)))
		return e;
	bool live = now.links || d->owner == ROOT_INUM;
	row = now;
	row.attrs = row.times = row.content = (struct blob){0};
	*(p->kind == PART_ATTRS ? &row.attrs : p->kind == PART_TIMES ? &row.times : &row.content) = (struct blob){fresh->p, fresh->len};
	txn_roots(v->writing, (struct blob){old->p, old->len}, live, (struct blob){fresh->p, fresh->len}, live);
	if ((e = journal_node_update(v->journal, &row)))
		return e;
	struct slot *s = p->kind == PART_ATTRS ? &n->attrs_slot : p->kind == PART_TIMES ? &n->times_slot : &n->content_slot;
	if (p->kind == PART_CONTENT) {
		lower_dots(r, &n->apart);
		e = journal_step_delete(v->journal, n->row);
	}
	return e ? e : follow_slot(s, p);
}

static int put_place(struct redot *r, const struct dot_row *d, const struct part *p, const struct buf *old, const struct buf *fresh)
{
	struct volume *v = r->v;
	struct link_row row;
	struct vlink *l;
	int e = vlink_get(v, d->owner, &l);

	if (e || (e = journal_link_get(v->journal, d->owner, &row)))
		return e;
	txn_roots(v->writing, (struct blob){old->p, old->len}, row.live, (struct blob){fresh->p, fresh->len}, row.live);
	row.place = (struct blob){fresh->p, fresh->len};
	e = journal_link_update(v->journal, &row);
	return e ? e : follow_slot(&l->place, p);
}

static int put_deletion(struct redot *r, const struct dot_row *d, const struct part *p, const struct buf *old, const struct buf *fresh)
{
	struct volume *v = r->v;
	const struct extra_row row = {.owner = d->owner, .dot = p->stamp.dot, .record = {fresh->p, fresh->len}};
	struct vlink *l;
	int e = vlink_get(v, d->owner, &l);

	e = e ? e : vlink_deletions(v, l);
	if (e)
		return e;
	txn_roots(v->writing, (struct blob){old->p, old->len}, false, (struct blob){fresh->p, fresh->len}, false);
	e = journal_deletion_delete(v->journal, d->owner, d->dot);
	e = e ? e : journal_deletion_put(v->journal, &row);
	for (uint32_t i = 0; i < l->n_deletion && !e; i++) {
		struct vdeletion *x = &l->deletion[i];
		if (!dot_eq(x->slot.stored, d->dot))
			continue;
		vector_fini(&x->places_seen);
		vector_fini(&x->contents_seen);
		e = vector_copy(&x->places_seen, &p->deletion.places_seen);
		e = e ? e : vector_copy(&x->contents_seen, &p->deletion.contents_seen);
		e = e ? e : follow_slot(&x->slot, p);
	}
	return e;
}

static int put_member(struct redot *r, const struct dot_row *d, const struct buf *old, const struct buf *fresh)
{
	txn_roots(r->v->writing, (struct blob){old->p, old->len}, false, (struct blob){fresh->p, fresh->len}, false);
	return journal_member_put(r->v->journal, d->owner, fresh->p, fresh->len);
}

/* What a deletion saw under a doubtful dot it has seen under the new one. */
static int see_again(struct redot *r, const struct dot_row *d, struct part *p)
{
	struct volume *v = r->v;
	bool place = vector_get(&p->deletion.places_seen, r->replica) >= r->from, content = vector_get(&p->deletion.contents_seen, r->replica) >= r->from;
	struct vlink *l;
	struct vnode *n;
	int e = 0;

	lower(r, &p->deletion.places_seen);
	lower(r, &p->deletion.contents_seen);
	if (place && !(e = vlink_get(v, d->owner, &l)) && l->place.stamp.dot.replica == v->self)
		e = vector_add(&p->deletion.places_seen, l->place.stamp.dot);
	if (content && !e && !(e = vlink_get(v, d->owner, &l)) && !(e = vnode_get(v, l->node, &n)) && n->content_slot.stamp.dot.replica == v->self)
		e = vector_add(&p->deletion.contents_seen, n->content_slot.stamp.dot);
	return e == -ENOENT ? 0 : e;
}

static bool is_extra(struct volume *v, const struct dot_row *d)
{
	struct vnode *n;

	return d->kind == PART_CONTENT && (vnode_get(v, d->owner, &n) || !dot_eq(n->content_slot.stored, d->dot));
}

static int change(struct redot *r, const struct dot_row *d)
{
	struct volume *v = r->v;
	struct buf old = {0}, fresh = {0};
	struct part p = {0};
	int e = record_by_dot(v, d, &old);

	e = e ? e : part_parse(v->keys, old.p, old.len, true, &p);
	/* a conflict copy hangs on its content's dot; unknown kinds cannot be sealed anew */
	if (e || !p.opened || p.kind == PART_CONSENT || is_extra(v, d)) {
		r->left++;
		goto out;
	}
	lower(r, &p.vector);
	lower_dots(r, &p.apart);
	if (p.kind == PART_DELETION && (e = see_again(r, d, &p)))
		goto out;
	p.stamp = txn_stamp(v->writing);
	if ((e = part_seal(v->keys, &p, &fresh)))
		goto out;
	if (p.kind == PART_PLACE)
		e = put_place(r, d, &p, &old, &fresh);
	else if (p.kind == PART_DELETION)
		e = put_deletion(r, d, &p, &old, &fresh);
	else if (p.kind == PART_MEMBER)
		e = put_member(r, d, &old, &fresh);
	else
		e = put_node_part(r, d, &p, &old, &fresh);
	e = e ? e : txn_dot(v->writing, p.kind, d->owner, p.stamp.dot, d->dot);
out:
	part_fini(&p);
	buf_fini(&old);
	buf_fini(&fresh);
	return e == -ENOENT ? 0 : e;
}

/* Inside of the transaction. Deletions come last: they name the new dots of what they have seen. */
static int change_all(void *ctx)
{
	struct redot *r = ctx;
	struct volume *v = r->v;
	int e = journal_dots(v->journal, r->replica, r->from - 1, UINT64_MAX >> 1, collect, r);

	e = e ? e : collect_others(r);
	for (int deletions = 0; deletions < 2; deletions++)
		for (uint32_t i = 0; i < r->n && !e; i++)
			if ((r->row[i].kind == PART_DELETION) == deletions)
				e = change(r, &r->row[i]);
	if (!e && r->renewal) {
		e = member_write(v, v->self, &r->me);
		e = e ? e : write_renewal(v, r->renewal);
	}
	v->peers_changed = true;
	return e ? e : peers_write(v);
}

static void lower_knowledge(struct redot *r)
{
	struct volume *v = r->v;

	lower(r, &v->knowledge);
	lower(r, &v->pending_knowledge);
	for (uint32_t i = 0; i < v->n_peers; i++)
		lower(r, &v->peers[i].knowledge);
}

/* Knowledge is only lowered: where the transaction fails, what is missing comes again, and is old. */
static int redot(struct redot *r)
{
	struct volume *v = r->v;
	struct vector knowledge_flushed;

	tree_lock(v);
	lower_knowledge(r);
	int e = vector_copy(&knowledge_flushed, &v->knowledge);
	if (!e) {
		vector_fini(&v->knowledge_flushed);
		v->knowledge_flushed = knowledge_flushed;
	}
	tree_unlock(v);
	if (e) {
		apply_cancel(v);
		return e;
	}
	e = apply_end(v, NULL, change_all, r);
	free(r->row);
	tree_lock(v);
	int loaded = members_load(v);
	tree_unlock(v);
	/* memory is ahead of what is stored where it failed */
	if (e)
		volume_fail(v, "the new numbers of changes", e);
	else if (r->left)
		log_warn("%s: %u conflict copies of doubtful changes stay as they are", v->path, r->left);
	return e ? e : loaded;
}

int volume_disown(struct volume *v, uint64_t replica, uint64_t from)
{
	struct redot r = {.v = v, .replica = replica, .from = from};
	int e = apply_begin(v);

	if (e)
		return e;
	log_warn("%s: replica %016llx exists twice (restored or copied); its changes from %llu on that are held here are kept as changes made here", v->path,
		(unsigned long long)replica, (unsigned long long)from);
	tree_lock(v);
	starts_forget(v, replica, from);
	tree_unlock(v);
	return redot(&r);
}

int volume_renew(struct volume *v)
{
	struct renewal n;
	struct redot r = {.v = v, .replica = v->self, .renewal = &n};
	int e = apply_begin(v);

	if (e)
		return e;
	tree_lock(v);
	e = read_renewal(v, &n);
	if (!e && n.taken)
		e = -ENOENT;
	if (!e) {
		n.taken = true;
		r.from = n.from;
		memcpy(r.me.name, n.h.name, sizeof r.me.name);
		memcpy(r.me.static_public, n.h.static_public, sizeof r.me.static_public);
		for (uint32_t i = 0; i < v->n_members; i++)
			if (v->member_replicas[i] == v->self)
				memcpy(r.me.address, v->members[i].address, sizeof r.me.address);
		v->self = n.h.replica;
		e = starts_renew(v, r.replica, r.from);
	}
	uint64_t counter = v->counter;
	if (e)
		v->self = v->header.replica;
	else
		v->counter = 0;
	tree_unlock(v);
	if (e) {
		apply_cancel(v);
		return e;
	}
	if ((e = redot(&r))) {
		v->self = v->header.replica;
		v->counter = counter;
		return e;
	}
	take_fields(&v->header, &n.h);
	log_warn("%s: this store was restored from a backup or copied: it goes on as replica %s (%016llx); the old replica stays a member until it is removed", v->path,
		v->header.name, (unsigned long long)v->self);
	return header_write(v->dirfd, &v->header);
}

int volume_peer_renewed(struct volume *v, uint64_t peer, const struct identity *fresh)
{
	struct member m = {0};
	struct peer_config c = {.replica = fresh->replica};
	bool known = false, taken = fresh->replica == v->self;
	char old[33] = "?";

	tree_lock(v);
	for (uint32_t i = 0; i < v->n_members; i++) {
		bool id = v->member_replicas[i] == fresh->replica, key = !memcmp(v->members[i].static_public, fresh->static_public, 32);
		known |= id && key;
		taken |= id != key || (!id && !v->members[i].removed && !strcmp(v->members[i].name, fresh->name));
		if (v->member_replicas[i] == peer) {
			memcpy(old, v->members[i].name, sizeof old);
			memcpy(m.address, v->members[i].address, sizeof m.address);
		}
	}
	for (uint32_t i = 0; i < v->n_peers; i++)
		if (v->peers[i].config.replica == peer)
			memcpy(c.address, v->peers[i].config.address, sizeof c.address);
	tree_unlock(v);
	if (taken)
		return -EEXIST;
	memcpy(m.name, fresh->name, sizeof m.name);
	memcpy(m.static_public, fresh->static_public, sizeof m.static_public);
	int e = known ? 0 : volume_set_member(v, fresh->replica, &m);
	e = e ? e : volume_set_peer(v, &c);
	if (!e && !known)
		log_warn("%s: the store of replica %s was restored from a backup or copied; it goes on as %s (`twofold peer remove` forgets %s, once no store of it is left)",
			v->path, old, fresh->name, old);
	return e;
}
