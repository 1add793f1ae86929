/* The starts of all replicas, as far as known: which tag each range of a replica's counters was made under (replicate.h).
 *
 *   meta "starts": format u8 (1) | nonce and sealed form of record_seal over count u32, (replica u64, first counter u64, tag u64) each
 * Additional data: "twofold starts". Written in the same transaction as the knowledge that it belongs to. Of each replica only the newest STARTS_KEPT are
 * kept; what was made before the first of them has no known start and contradicts nothing. */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

#define STARTS_FORMAT 1
#define STARTS_KEPT 32

static const char aad[14] = "twofold starts";

static int order(const void *a, const void *b)
{
	const struct start_tag *x = a, *y = b;

	if (x->replica != y->replica)
		return x->replica < y->replica ? -1 : 1;
	return x->first_counter < y->first_counter ? -1 : x->first_counter > y->first_counter;
}

/* More than STARTS_KEPT of a replica: the oldest goes. */
static void trim(struct volume *v, uint64_t replica)
{
	uint32_t first = 0, n = 0;

	while (first < v->n_starts && v->starts[first].replica < replica)
		first++;
	while (first + n < v->n_starts && v->starts[first + n].replica == replica)
		n++;
	if (n <= STARTS_KEPT && v->n_starts < STARTS_MAX)
		return;
	if (n > 1)
		memmove(v->starts + first, v->starts + first + 1, (--v->n_starts - first) * sizeof *v->starts);
}

static int add(struct volume *v, struct start_tag s)
{
	for (uint32_t i = 0; i < v->n_starts; i++)
		if (v->starts[i].replica == s.replica && v->starts[i].first_counter == s.first_counter)
			return 0;
	struct start_tag *p = reallocarray(v->starts, v->n_starts + 1, sizeof *p);
	if (!p)
		return -ENOMEM;
	v->starts = p;
	p[v->n_starts++] = s;
	qsort(p, v->n_starts, sizeof *p, order);
	trim(v, s.replica);
	v->starts_changed = true;
	return 0;
}

void starts_forget(struct volume *v, uint64_t replica, uint64_t from)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < v->n_starts; i++)
		if (v->starts[i].replica != replica || v->starts[i].first_counter < from)
			v->starts[k++] = v->starts[i];
	v->starts_changed |= k != v->n_starts;
	v->n_starts = k;
}

int starts_renew(struct volume *v, uint64_t was, uint64_t from)
{
	starts_forget(v, was, from);
	env_random(v->env, &v->start_tag, sizeof v->start_tag);
	return add(v, (struct start_tag){v->self, 1, v->start_tag});
}

static int read_rows(struct volume *v, const struct buf *plain)
{
	struct reader r = reader_of(plain->p, plain->len);
	uint32_t n = read_u32(&r);
	int e = r.bad || n > STARTS_MAX || r.left != (size_t)n * 24 ? -EUCLEAN : 0;

	for (uint32_t i = 0; i < n && !e; i++) {
		struct start_tag s = {.replica = read_u64(&r)};
		s.first_counter = read_u64(&r);
		s.tag = read_u64(&r);
		e = add(v, s);
	}
	return e;
}

int starts_load(struct volume *v)
{
	struct buf row = {0}, plain = {0};
	int e = journal_meta_get(v->journal, "starts", &row);
	bool none = e == -ENOENT;

	if (!e && (row.len < 2 || row.p[0] != STARTS_FORMAT))
		e = -EUCLEAN;
	e = e ? e : record_open(v->keys, (const uint8_t *)aad, sizeof aad, row.p + 1, row.len - 1, &plain);
	e = e ? e : read_rows(v, &plain);
	buf_fini(&row);
	buf_fini(&plain);
	if (e && !none) {
		log_error("%s: the list of starts in journal.db is damaged", v->path);
		return e == -EBADMSG ? -EUCLEAN : e;
	}
	v->starts_changed = false;
	do
		env_random(v->env, &v->start_tag, sizeof v->start_tag);
	while (!v->start_tag);
	if (v->options.read_only)
		return 0;
	/* a start that changed nothing has left no trace anywhere */
	starts_forget(v, v->self, v->counter + 1);
	return add(v, (struct start_tag){v->self, v->counter + 1, v->start_tag});
}

int starts_write(struct volume *v)
{
	struct buf plain = {0}, sealed = {0};

	buf_put_u32(&plain, v->n_starts);
	for (uint32_t i = 0; i < v->n_starts; i++) {
		buf_put_u64(&plain, v->starts[i].replica);
		buf_put_u64(&plain, v->starts[i].first_counter);
		buf_put_u64(&plain, v->starts[i].tag);
	}
	buf_put_u8(&sealed, STARTS_FORMAT);
	int e = plain.err ? plain.err : record_seal(v->keys, (const uint8_t *)aad, sizeof aad, plain.p, plain.len, &sealed);
	e = e ? e : sealed.err;
	e = e ? e : journal_meta_set(v->journal, "starts", sealed.p, sealed.len);
	buf_fini(&plain);
	buf_fini(&sealed);
	return e;
}

void starts_fini(struct volume *v)
{
	free(v->starts);
	v->starts = NULL;
	v->n_starts = 0;
}

int volume_starts(struct volume *v, const struct vector *upto, struct start_tag **ret, uint32_t *ret_n)
{
	uint32_t n = 0;

	tree_lock(v);
	struct start_tag *s = malloc((v->n_starts + 1) * sizeof *s);
	for (uint32_t i = 0; s && i < v->n_starts; i++)
		if (v->starts[i].first_counter <= vector_get(upto, v->starts[i].replica))
			s[n++] = v->starts[i];
	tree_unlock(v);
	if (!s)
		return -ENOMEM;
	*ret = s;
	*ret_n = n;
	return 0;
}

int volume_starts_learn(struct volume *v, const struct start_tag *s, uint32_t n)
{
	int e = 0;

	tree_lock(v);
	for (uint32_t i = 0; i < n && !e; i++)
		if (s[i].replica != v->self && s[i].replica && s[i].first_counter && s[i].tag)
			e = add(v, s[i]);
	tree_unlock(v);
	return e;
}

/* The tag under which that change was made; 0: not known. */
static uint64_t tag_of(const struct start_tag *s, uint32_t n, uint64_t replica, uint64_t counter)
{
	uint64_t best = 0, tag = 0;

	for (uint32_t i = 0; i < n; i++)
		if (s[i].replica == replica && s[i].first_counter <= counter && s[i].first_counter > best) {
			best = s[i].first_counter;
			tag = s[i].tag;
		}
	return tag;
}

/* The first change of a replica that the two lists put under different starts; 0: none. Where they agree on a range's beginning they agree on the range. */
static uint64_t contradiction(const struct start_tag *a, uint32_t n_a, const struct start_tag *b, uint32_t n_b, uint64_t replica, uint64_t upto)
{
	uint64_t first = 0;

	for (uint32_t i = 0; i < n_a + n_b; i++) {
		const struct start_tag *s = i < n_a ? &a[i] : &b[i - n_a];
		if (s->replica != replica || s->first_counter > upto)
			continue;
		uint64_t x = tag_of(a, n_a, replica, s->first_counter), y = tag_of(b, n_b, replica, s->first_counter);
		if (x && y && x != y && (!first || s->first_counter < first))
			first = s->first_counter;
	}
	return first;
}

static uint64_t least(uint64_t a, uint64_t b) { return !a || (b && b < a) ? b : a; }

/* Of a replica that one of the two is: the owner has had every change of it. */
static uint64_t own_doubt(struct volume *v, uint64_t owner, const struct vector *owners, const struct vector *others, const struct start_tag *s,
			  uint32_t n)
{
	uint64_t has = vector_get(owners, owner), heard = vector_get(others, owner);
	uint64_t from = contradiction(v->starts, v->n_starts, s, n, owner, has < heard ? has : heard);

	return heard > has ? least(from, has + 1) : from;
}

int volume_starts_check(struct volume *v, uint64_t peer, const struct vector *knowledge, const struct start_tag *s, uint32_t n, struct doubt *ret)
{
	struct doubt d = {0};

	tree_lock(v);
	const struct vector *mine = &v->knowledge_flushed;
	if ((d.from = own_doubt(v, v->self, mine, knowledge, s, n)))
		d.replica = v->self;
	else if ((d.from = own_doubt(v, peer, knowledge, mine, s, n)))
		d.replica = peer;
	for (uint32_t i = 0; i < mine->n && !d.from; i++) {
		uint64_t r = mine->e[i].replica, theirs = vector_get(knowledge, r), upto = mine->e[i].counter < theirs ? mine->e[i].counter : theirs;
		if (r == v->self || r == peer || !(d.from = contradiction(v->starts, v->n_starts, s, n, r, upto)))
			continue;
		d.replica = r;
		d.give_way = tag_of(v->starts, v->n_starts, r, d.from) < tag_of(s, n, r, d.from);
	}
	tree_unlock(v);
	if (!d.from)
		return 0;
	*ret = d;
	return 1;
}
