/* Gathering a set of links that is closed for the shown tree, starting from seeds (see shown.h for what the seeds must hold).
 *
 * Two steps alternate until nothing is added. Asking: for each new link all links of its node, those of the directories above it
 * (recorded and before) and of the file that a copy hangs on; for a dead directory what is in it, because something living there
 * brings it back. Looking: the set is computed as it stands, and whatever is recorded where a link of the set is shown is asked for, as are
 * the children of directories shown as one. At the end every name that a link of the set is shown under has all its claimants in the set. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#include "shown.h"
#include "shown_work.h"

/* A set of ids; open addressing, at most half full. A zero id is never put in: it names nothing. */
struct id_set {
	struct id *slot;
	uint32_t n, cap;
};

struct shown_set {
	struct shown_link *link;
	uint32_t n, cap;
	struct id_set links, nodes, children, names; /* held; asked for */
	uint32_t expanded; /* links before it have been expanded */
};

static uint32_t id_hash(const struct id *id)
{
	uint64_t h = (le64_load(id->b) ^ le64_load(id->b + 8)) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(h >> 32);
}

static struct id *find(const struct id_set *s, const struct id *id)
{
	uint32_t i = id_hash(id) & (s->cap - 1);

	while (!id_is_zero(&s->slot[i]) && !id_eq(&s->slot[i], id))
		i = (i + 1) & (s->cap - 1);
	return &s->slot[i];
}

static int grow(struct id_set *s)
{
	struct id_set t = {.n = s->n, .cap = s->cap ? s->cap * 2 : 64};

	if (t.cap < s->cap || !(t.slot = calloc(t.cap, sizeof *t.slot)))
		return -ENOMEM;
	for (uint32_t i = 0; i < s->cap; i++)
		if (!id_is_zero(&s->slot[i]))
			*find(&t, &s->slot[i]) = s->slot[i];
	free(s->slot);
	*s = t;
	return 0;
}

/* 1: it is new; 0: it was in (or is zero); -ENOMEM. */
static int put(struct id_set *s, const struct id *id)
{
	if (id_is_zero(id))
		return 0;
	if (s->n >= s->cap / 2) {
		int e = grow(s);
		if (e)
			return e;
	}
	struct id *at = find(s, id);
	if (!id_is_zero(at))
		return 0;
	*at = *id;
	s->n++;
	return 1;
}

struct shown_set *shown_set_new(void) { return calloc(1, sizeof(struct shown_set)); }

void shown_set_free(struct shown_set *s)
{
	if (!s)
		return;
	free(s->links.slot);
	free(s->nodes.slot);
	free(s->children.slot);
	free(s->names.slot);
	free(s->link);
	free(s);
}

int shown_set_add(struct shown_set *s, const struct shown_link *l)
{
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 16;
		struct shown_link *p = cap > s->cap && cap < UP_ROOT ? reallocarray(s->link, cap, sizeof *p) : NULL;
		if (!p)
			return -ENOMEM;
		s->link = p;
		s->cap = cap;
	}
	int r = put(&s->links, &l->id);
	if (r == 1)
		s->link[s->n++] = *l;
	return r < 0 ? r : 0;
}

const struct shown_link *shown_set_links(const struct shown_set *s, uint32_t *ret_n)
{
	*ret_n = s->n;
	return s->link;
}

static int ask_node(struct shown_set *s, const struct shown_source *src, const struct id *node)
{
	static const struct id root = ROOT_ID;

	if (id_eq(node, &root))
		return 0;
	int r = put(&s->nodes, node);
	return r == 1 ? src->links_of_node(src->ctx, node, s) : r;
}

static int ask_children(struct shown_set *s, const struct shown_source *src, const struct id *dir)
{
	int r = put(&s->children, dir);
	return r == 1 ? src->children(src->ctx, dir, s) : r;
}

static int ask_named(struct shown_set *s, const struct shown_source *src, const struct id *parent, const char *name, size_t len)
{
	crypto_generichash_state h;
	struct id key;

	crypto_generichash_init(&h, NULL, 0, ID_LEN);
	crypto_generichash_update(&h, parent->b, ID_LEN);
	crypto_generichash_update(&h, (const uint8_t *)name, len);
	crypto_generichash_final(&h, key.b, ID_LEN);
	int r = put(&s->names, &key);
	return r == 1 ? src->named(src->ctx, parent, name, len, s) : r;
}

/* Callbacks may move the array of links: what is needed of one is copied first. */
static int expand(struct shown_set *s, const struct shown_source *src, uint32_t i)
{
	struct id node = s->link[i].node, parent = s->link[i].parent, before = s->link[i].parent_before, of = s->link[i].of;
	bool own = s->link[i].own, dir = shown_is_dir(&s->link[i]), dead = s->link[i].covered;

	int e = ask_node(s, src, &node);
	if (!e)
		e = ask_node(s, src, own ? &parent : &of);
	if (!e && dir)
		e = ask_node(s, src, &before);
	if (!e && dir && dead)
		e = ask_children(s, src, &node);
	return e;
}

static int expand_all(struct shown_set *s, const struct shown_source *src)
{
	while (s->expanded < s->n) {
		int e = expand(s, src, s->expanded);
		if (e)
			return e;
		s->expanded++;
	}
	return 0;
}

/* Who else claims what the first n links are shown under? */
static int look(struct shown_set *s, const struct shown_source *src, const struct shown_result *r, uint32_t n)
{
	int e = 0;

	for (uint32_t i = 0; i < n && !e; i++) {
		if (r[i].state == SHOWN_NOT)
			continue;
		e = ask_named(s, src, &r[i].parent, r[i].name, r[i].name_len);
		struct id node = s->link[i].node;
		if (!e && !id_is_zero(&r[i].group_lead))
			e = ask_children(s, src, &node);
	}
	return e;
}

int shown_close_and_compute(struct shown_set *s, const struct shown_source *src, struct shown_result **ret)
{
	struct shown_result *r = NULL;
	uint32_t n;
	int e;

	do {
		if ((e = expand_all(s, src)))
			break;
		n = s->n;
		free(r);
		if (!(r = calloc((size_t)n + 1, sizeof *r))) {
			e = -ENOMEM;
			break;
		}
		if (!(e = shown_compute(s->link, n, r)))
			e = look(s, src, r, n);
	} while (!e && s->n > n);
	if (e) {
		free(r);
		return e;
	}
	*ret = r;
	return 0;
}
