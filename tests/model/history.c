/* Draws the histories and checks them (see history.h). */
#include "history.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLICAS_MAX 8
#define IN_FLIGHT_MAX 6
#define TOKENS_MAX 4096
#define PATHS_MAX 4096

enum { TOKEN_MADE = 1, TOKEN_OVERWRITTEN = 2, TOKEN_REMOVED = 4 };

struct message {
	unsigned to;
	void *m;
};
struct history {
	const struct history_backend *b;
	const struct history_options *o;
	struct history_counts *counts;
	unsigned seed, random, failed;
	void *replica[REPLICAS_MAX];
	int64_t skew_ns[REPLICAS_MAX];
	uint64_t now_ns;
	uint64_t token;
	uint8_t fate[TOKENS_MAX];
	struct message flight[IN_FLIGHT_MAX + 1];
	unsigned n_flight;
};

static unsigned draw(struct history *h, unsigned below)
{
	/* xorshift: the same histories on every C library */
	unsigned x = h->random;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	h->random = x;
	return x % below;
}

__attribute__((format(printf, 2, 3))) static void fail(struct history *h, const char *fmt, ...)
{
	va_list ap;

	if (h->failed++ > 4)
		return;
	fprintf(stderr, "seed %u, %u replicas: ", h->seed, h->o->replicas);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void history_tree_fini(struct history_tree *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		free(t->e[i].path);
	free(t->e);
	*t = (struct history_tree){0};
}

static int entry_cmp(const void *a, const void *b)
{
	return strcmp(((const struct history_entry *)a)->path, ((const struct history_entry *)b)->path);
}

static void sort(struct history_tree *t)
{
	if (t->n)
		qsort(t->e, t->n, sizeof *t->e, entry_cmp);
}

static bool list(struct history *h, unsigned r, struct history_tree *ret)
{
	int e = h->b->list(h->replica[r], ret);
	if (e) {
		fail(h, "listing: %s", strerror(-e));
		*ret = (struct history_tree){0};
		return false;
	}
	sort(ret);
	return true;
}

static struct history_entry *find(const struct history_tree *t, const char *path)
{
	struct history_entry key = {.path = (char *)path};
	return t->n ? bsearch(&key, t->e, t->n, sizeof *t->e, entry_cmp) : NULL;
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	return !n || (!strncmp(path, dir, n) && path[n] == '/');
}

static unsigned depth(const char *path)
{
	unsigned n = *path != 0;
	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* ---- the expected tree ---- */

static void add(struct history_tree *t, const char *path, bool is_dir, uint64_t token, uint64_t file)
{
	struct history_entry *e = reallocarray(t->e, t->n + 1, sizeof *e);
	char *p = strdup(path);
	if (!e || !p)
		abort();
	t->e = e;
	t->e[t->n++] = (struct history_entry){p, is_dir, token, file};
	sort(t);
}

static void take_out(struct history_tree *t, const char *path)
{
	struct history_entry *e = find(t, path);
	if (!e)
		return;
	free(e->path);
	memmove(e, e + 1, (size_t)(t->e + t->n - e - 1) * sizeof *e);
	t->n--;
}

static void move_all(struct history_tree *t, const char *from, const char *to)
{
	for (uint32_t i = 0; i < t->n; i++) {
		char *p = t->e[i].path, *q;
		if (strcmp(p, from) && !below(p, from))
			continue;
		if (asprintf(&q, "%s%s", to, p + strlen(from)) < 0)
			abort();
		free(p);
		t->e[i].path = q;
	}
	sort(t);
}

static void compare(struct history *h, const char *what, const struct history_tree *want, const struct history_tree *got)
{
	for (uint32_t i = 0, j = 0; i < want->n || j < got->n;) {
		const struct history_entry *w = i < want->n ? &want->e[i] : NULL, *g = j < got->n ? &got->e[j] : NULL;
		int c = !w ? 1 : !g ? -1 : strcmp(w->path, g->path);
		if (c < 0)
			fail(h, "%s: %s is missing", what, w->path);
		else if (c > 0)
			fail(h, "%s: %s is new", what, g->path);
		else if (w->is_dir != g->is_dir || (!w->is_dir && w->token != g->token))
			fail(h, "%s: %s is another (%llu, %llu)", what, w->path, (unsigned long long)w->token, (unsigned long long)g->token);
		i += c <= 0;
		j += c >= 0;
	}
}

/* ---- one call ---- */

struct call {
	unsigned r;
	struct history_tree now; /* becomes what is expected */
	const char *path[PATHS_MAX];
	unsigned n;
	char target[1024];
	char what[2300];
};

static void choose_kind(struct call *c, bool dirs, bool files)
{
	c->n = 0;
	if (dirs && !files)
		c->path[c->n++] = "";
	for (uint32_t i = 0; i < c->now.n && c->n < PATHS_MAX; i++)
		if (c->now.e[i].is_dir ? dirs : files)
			c->path[c->n++] = c->now.e[i].path;
}

/* A new name in some directory; false where it would be too deep. */
static bool draw_target(struct history *h, struct call *c, unsigned deepest)
{
	static const char *const names[] = {"a", "b", "c.t", "d", "e"};
	choose_kind(c, true, false);
	const char *dir = c->path[draw(h, c->n)];
	snprintf(c->target, sizeof c->target, "%s%s%s", dir, *dir ? "/" : "", names[draw(h, 5)]);
	return depth(c->target) <= deepest;
}

static uint64_t new_token(struct history *h)
{
	uint64_t t = ++h->token;
	if (t >= TOKENS_MAX)
		abort();
	h->fate[t] = TOKEN_MADE;
	return t;
}

/* Runs after the call: the tree is as expected, and nothing else has changed. */
static void after(struct history *h, struct call *c, int e)
{
	struct history_tree got;

	h->counts->calls++;
	if (e)
		fail(h, "%s: %s", c->what, strerror(-e));
	if (!list(h, c->r, &got))
		return;
	compare(h, c->what, &c->now, &got);
	history_tree_fini(&got);
	if (h->b->check && h->b->check(h->replica[c->r], draw(h, 1u << 30)))
		fail(h, "%s: check", c->what);
}

static void call_make(struct history *h, struct call *c, bool dir)
{
	if (!draw_target(h, c, 5) || find(&c->now, c->target))
		return;
	uint64_t token = dir ? 0 : new_token(h);
	snprintf(c->what, sizeof c->what, "%s %s", dir ? "mkdir" : "create", c->target);
	int e = dir ? h->b->mkdir(h->replica[c->r], c->target) : h->b->create(h->replica[c->r], c->target, token);
	add(&c->now, c->target, dir, token, UINT64_MAX);
	after(h, c, e);
}

static void call_write(struct history *h, struct call *c)
{
	choose_kind(c, false, true);
	if (!c->n)
		return;
	struct history_entry *f = find(&c->now, c->path[draw(h, c->n)]);
	uint64_t token = new_token(h), file = f->file;
	h->fate[f->token] |= TOKEN_OVERWRITTEN;
	snprintf(c->what, sizeof c->what, "write %s", f->path);
	int e = h->b->write(h->replica[c->r], f->path, token);
	for (uint32_t i = 0; i < c->now.n; i++)
		if (!c->now.e[i].is_dir && c->now.e[i].file == file)
			c->now.e[i].token = token;
	after(h, c, e);
}

static void call_unlink(struct history *h, struct call *c)
{
	choose_kind(c, false, true);
	if (!c->n)
		return;
	snprintf(c->target, sizeof c->target, "%s", c->path[draw(h, c->n)]);
	h->fate[find(&c->now, c->target)->token] |= TOKEN_REMOVED;
	snprintf(c->what, sizeof c->what, "unlink %s", c->target);
	int e = h->b->unlink(h->replica[c->r], c->target);
	take_out(&c->now, c->target);
	after(h, c, e);
}

static void call_link(struct history *h, struct call *c)
{
	choose_kind(c, false, true);
	if (!c->n)
		return;
	struct history_entry f = *find(&c->now, c->path[draw(h, c->n)]);
	if (!draw_target(h, c, 5) || find(&c->now, c->target))
		return;
	snprintf(c->what, sizeof c->what, "link %s %s", f.path, c->target);
	int e = h->b->link(h->replica[c->r], f.path, c->target);
	add(&c->now, c->target, false, f.token, f.file);
	after(h, c, e);
}

static void call_rename(struct history *h, struct call *c)
{
	choose_kind(c, true, true);
	if (!c->n)
		return;
	struct history_entry *f = find(&c->now, c->path[draw(h, c->n)]);
	if (!draw_target(h, c, 4) || !strcmp(c->target, f->path) || below(c->target, f->path))
		return;
	struct history_entry *z = find(&c->now, c->target);
	if (z && (z->is_dir || f->is_dir || z->file == f->file))
		return;
	if (z)
		h->fate[z->token] |= TOKEN_REMOVED;
	char *from = strdup(f->path);
	snprintf(c->what, sizeof c->what, "rename %s %s", from, c->target);
	int e = h->b->rename(h->replica[c->r], from, c->target, false);
	take_out(&c->now, c->target);
	move_all(&c->now, from, c->target);
	free(from);
	after(h, c, e);
}

static void call_exchange(struct history *h, struct call *c)
{
	choose_kind(c, false, true);
	if (c->n < 2)
		return;
	struct history_entry *f = find(&c->now, c->path[draw(h, c->n)]), *z = find(&c->now, c->path[draw(h, c->n)]);
	if (f->file == z->file)
		return;
	snprintf(c->what, sizeof c->what, "exchange %s %s", f->path, z->path);
	int e = h->b->rename(h->replica[c->r], f->path, z->path, true);
	uint64_t token = f->token;
	f->token = z->token;
	z->token = token;
	after(h, c, e);
}

/* rm -r: deepest first, each its own call. */
static void call_remove_all(struct history *h, struct call *c)
{
	choose_kind(c, true, false);
	if (c->n < 2)
		return;
	snprintf(c->target, sizeof c->target, "%s", c->path[1 + draw(h, c->n - 1)]);
	for (uint32_t i = c->now.n; i-- > 0;) {
		struct history_entry *f = &c->now.e[i];
		if (strcmp(f->path, c->target) && !below(f->path, c->target))
			continue;
		if (!f->is_dir)
			h->fate[f->token] |= TOKEN_REMOVED;
		snprintf(c->what, sizeof c->what, "rm -r %s: %s", c->target, f->path);
		int e = f->is_dir ? h->b->rmdir(h->replica[c->r], f->path) : h->b->unlink(h->replica[c->r], f->path);
		char *path = strdup(f->path);
		take_out(&c->now, path);
		free(path);
		if (e)
			fail(h, "%s: %s", c->what, strerror(-e));
	}
	after(h, c, 0);
}

static void one_call(struct history *h)
{
	/* create, mkdir, write, unlink, rename, link, rm -r, exchange; of each three histories one is full of directories that move
	 * (cycles), one of writes (sets of contents) */
	static const unsigned weights[3][9] = {{10, 8, 12, 6, 16, 4, 3, 2, 61}, {2, 12, 2, 2, 28, 2, 2, 1, 51}, {6, 2, 28, 2, 4, 4, 1, 1, 48}};
	const unsigned *weight = weights[h->seed % 3];
	struct call *c = calloc(1, sizeof *c);
	unsigned x = draw(h, weight[8]), kind = 0;

	if (!c)
		abort();
	for (; x >= weight[kind]; kind++)
		x -= weight[kind];
	c->r = draw(h, h->o->replicas);
	h->now_ns += draw(h, 4) * 1000000000ull;
	h->b->set_clock(h->replica[c->r], h->now_ns + (uint64_t)h->skew_ns[c->r]);
	if (list(h, c->r, &c->now)) {
		void (*const calls[])(struct history *, struct call *) = {NULL, NULL, call_write, call_unlink, call_rename,
									   call_link, call_remove_all, call_exchange};
		if (kind < 2)
			call_make(h, c, kind == 1);
		else
			calls[kind](h, c);
	}
	history_tree_fini(&c->now);
	free(c);
}

/* ---- exchange ---- */

static void forget(struct history *h, unsigned i)
{
	h->b->drop(h->flight[i].m);
	h->flight[i] = h->flight[--h->n_flight];
}

static void send(struct history *h)
{
	unsigned from = draw(h, h->o->replicas), to = draw(h, h->o->replicas - 1);
	bool partial = h->o->partial && draw(h, 2);

	to += to >= from;
	struct message m = {.to = to};
	int e = h->b->send(h->replica[from], h->replica[to], partial, draw(h, 1u << 30), &m.m);
	if (e) {
		fail(h, "send: %s", strerror(-e));
		return;
	}
	h->flight[h->n_flight++] = m;
	if (h->n_flight > IN_FLIGHT_MAX)
		forget(h, 0);
}

static void receive(struct history *h, unsigned i)
{
	struct message *m = &h->flight[i];
	int e = h->b->receive(h->replica[m->to], m->m, draw(h, 1u << 30));
	if (e)
		fail(h, "receive: %s", strerror(-e));
	if (h->b->check && h->b->check(h->replica[m->to], draw(h, 1u << 30)))
		fail(h, "check after receiving");
}

/* Some are lost, some arrive twice. */
static void deliver(struct history *h)
{
	if (!h->n_flight)
		return;
	unsigned i = draw(h, h->n_flight), x = draw(h, 100);
	if (x < 90)
		receive(h, i);
	if (x >= 25)
		forget(h, i);
}

static void heal(struct history *h)
{
	while (h->n_flight)
		forget(h, 0);
	for (unsigned round = 0; round < h->o->replicas; round++)
		for (unsigned a = 0; a < h->o->replicas; a++)
			for (unsigned b = 0; b < h->o->replicas; b++) {
				struct message m = {.to = b};
				if (a == b || h->b->send(h->replica[a], h->replica[b], false, draw(h, 1u << 30), &m.m))
					continue;
				h->flight[h->n_flight++] = m;
				receive(h, 0);
				forget(h, 0);
			}
}

static void check_end(struct history *h)
{
	struct history_tree first, t;
	uint64_t made[REPLICAS_MAX];

	heal(h);
	for (unsigned r = 0; r < h->o->replicas; r++)
		made[r] = h->b->parts(h->replica[r]);
	heal(h);
	for (unsigned r = 0; r < h->o->replicas; r++)
		if (h->b->parts(h->replica[r]) != made[r])
			fail(h, "resolving does not end");
	if (!list(h, 0, &first))
		return;
	for (unsigned r = 1; r < h->o->replicas; r++) {
		if (!list(h, r, &t))
			continue;
		compare(h, "trees differ", &first, &t);
		history_tree_fini(&t);
	}
	for (uint32_t i = 0; i < first.n; i++) {
		h->counts->shown++;
		h->counts->conflicts += strstr(first.e[i].path, ".conflict-") != NULL;
		if (!first.e[i].is_dir)
			h->fate[first.e[i].token] = 0;
	}
	for (uint64_t k = 1; k <= h->token; k++)
		if (h->fate[k] == TOKEN_MADE)
			fail(h, "edit %llu is lost", (unsigned long long)k);
	history_tree_fini(&first);
}

int history_run(const struct history_backend *b, unsigned seed, const struct history_options *o, struct history_counts *counts)
{
	static const int skew_s[] = {0, 0, 50, -50, 400};
	struct history *h = calloc(1, sizeof *h);

	if (!h || o->replicas < 2 || o->replicas > REPLICAS_MAX)
		abort();
	h->b = b;
	h->o = o;
	h->counts = counts;
	h->seed = seed;
	h->random = seed * 2654435761u + 88172645u;
	if (!h->random)
		h->random = 1;
	h->now_ns = 1790000000ull * 1000000000ull;
	for (unsigned r = 0; r < o->replicas; r++) {
		h->replica[r] = b->open(r);
		h->skew_ns[r] = skew_s[draw(h, 5)] * INT64_C(1000000000);
		if (!h->replica[r])
			abort();
	}
	for (unsigned i = 0; i < o->steps && !h->failed; i++) {
		unsigned x = draw(h, 10);
		if (x < 6)
			one_call(h);
		else if (x < 8)
			send(h);
		else
			deliver(h);
	}
	if (!h->failed)
		check_end(h);
	while (h->n_flight)
		forget(h, 0);
	for (unsigned r = 0; r < o->replicas; r++)
		b->close(h->replica[r]);
	int failed = h->failed != 0;
	free(h);
	return failed;
}
