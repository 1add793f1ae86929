/* Merge rules: which version of a set stays, what a new local content says, the ids of copies. Pure. */
#include "merge.h"

#include <errno.h>
#include <sodium.h>

static bool has_apart(const struct version *p, struct dot d) { return p->apart && dots_has(p->apart, d); }

bool version_supersedes(const struct version *p, struct dot d)
{
	return !dot_eq(p->stamp.dot, d) && vector_has(p->vector, d) && !has_apart(p, d);
}

static bool any_supersedes(const struct version *v, uint32_t n, struct dot d)
{
	for (uint32_t i = 0; i < n; i++)
		if (version_supersedes(&v[i], d))
			return true;
	return false;
}

bool set_merge(const struct version *held, uint32_t n, const struct version *gone, uint32_t n_gone, const struct version *new,
	       bool *ret_drop)
{
	for (uint32_t i = 0; i < n; i++)
		if (dot_eq(held[i].stamp.dot, new->stamp.dot))
			return false;
	if (any_supersedes(held, n, new->stamp.dot) || any_supersedes(gone, n_gone, new->stamp.dot))
		return false;
	for (uint32_t i = 0; i < n; i++)
		ret_drop[i] = version_supersedes(new, held[i].stamp.dot);
	return true;
}

uint32_t set_winner(const struct version *held, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (stamp_cmp(held[i].stamp, held[best].stamp) > 0)
			best = i;
	return best;
}

static bool holds(const struct version *held, uint32_t n, struct dot d)
{
	for (uint32_t i = 0; i < n; i++)
		if (dot_eq(held[i].stamp.dot, d))
			return true;
	return false;
}

/* What version q keeps apart is kept apart further, unless it is held (then the caller decides) or superseded by now. */
static int inherit_apart(const struct version *held, uint32_t n, const struct version *q, struct dots *apart)
{
	for (uint32_t i = 0; q->apart && i < q->apart->n; i++) {
		struct dot d = q->apart->e[i];
		if (holds(held, n, d) || any_supersedes(held, n, d))
			continue;
		int e = dots_add(apart, d);
		if (e)
			return e;
	}
	return 0;
}

int set_next(const struct version *held, uint32_t n, const struct vector *context, uint32_t base, struct vector *ret_vector,
	     struct dots *ret_apart)
{
	struct vector vector = {0};
	struct dots apart = {0};
	int e = context ? vector_copy(&vector, context) : 0;

	for (uint32_t i = 0; i < n && !e; i++) {
		e = vector_join(&vector, held[i].vector);
		if (!e)
			e = vector_add(&vector, held[i].stamp.dot);
		if (!e && i != base)
			e = dots_add(&apart, held[i].stamp.dot);
		if (!e)
			e = inherit_apart(held, n, &held[i], &apart);
	}
	if (e) {
		vector_fini(&vector);
		dots_fini(&apart);
		return e;
	}
	*ret_vector = vector;
	*ret_apart = apart;
	return 0;
}

/* An id from a node and a dot, apart by label. Fixed for ever: every replica must come to the same id. */
static void derive_id(const char *label, const struct id *node, struct dot d, struct id *ret)
{
	crypto_generichash_state s;
	uint8_t dot[16];

	le64_store(dot, d.replica);
	le64_store(dot + 8, d.counter);
	crypto_generichash_init(&s, NULL, 0, ID_LEN);
	crypto_generichash_update(&s, (const uint8_t *)label, strlen(label));
	crypto_generichash_update(&s, node->b, ID_LEN);
	crypto_generichash_update(&s, dot, sizeof dot);
	crypto_generichash_final(&s, ret->b, ID_LEN);
}

void copy_node_id(const struct id *node, struct dot d, struct id *ret) { derive_id("twofold copy", node, d, ret); }

void copy_link_id(const struct id *node, struct dot d, struct id *ret) { derive_id("twofold copy link", node, d, ret); }

uint64_t clock_next(uint64_t last_ns, uint64_t wall_ns)
{
	/* a clock at its end stays there: the counter still orders this replica's changes */
	uint64_t next = last_ns == UINT64_MAX ? last_ns : last_ns + 1;
	return wall_ns > next ? wall_ns : next;
}
