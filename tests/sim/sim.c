/* sim [-n SEEDS] [-s FIRST] [-r REPLICAS] [-o STEPS] [-t mesh|star|chain] [-v] [-k]: random histories on real volumes; -k: those that once failed.
 *
 * Local operations of all kinds on 2 to 50 replicas with clocks that are wrong by up to a day, each connected with all, with the first, or with its neighbours;
 * batches on their way are lost, doubled, broken off, shuffled and overtaken; replicas are killed, committed or not, and opened again. Checked: after every
 * local operation the tree is what POSIX says; after every kill and at the end all that a store holds agrees with its roots (check.h); after everything was
 * handed over all trees and roots `live` are the same, no edit that was committed is lost, and once it is quiet nobody makes new parts. A failing seed
 * prints how to run it again; -v tells each step, and checks every store after it. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_volume.h"
#include "world.h"

#define FLYING 6
#define REFS 8
#define TOKENS 4096
#define TOKEN_LEN 12 /* "<token 0001>" */
enum { TOKEN_MADE = 1, TOKEN_CONSUMED = 2, TOKEN_REMOVED = 4 };

struct sim {
	struct world w;
	struct parcel flying[FLYING];
	unsigned n_flying, n_token, ops;
	uint8_t token[TOKENS];
	unsigned fresh[REPLICAS_MAX][TOKENS], n_fresh[REPLICAS_MAX]; /* edits since the replica's last commit */
	enum topology { MESH, STAR, CHAIN } topology;
	inum ref[REPLICAS_MAX][REFS];
	unsigned n_ref[REPLICAS_MAX];
	bool verbose, failed, patient; /* patient: an hour passes before each exchange */
	char why[5000];
};
static const struct caller caller = {.umask = 022, .in_group = true};

#define SAY(s, ...)                                                                                \
	do {                                                                                       \
		if ((s)->verbose)                                                                  \
			fprintf(stderr, __VA_ARGS__);                                              \
	} while (0)

static void fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof s->why, fmt, ap);
	va_end(ap);
}

static unsigned pick(struct sim *s, unsigned n) { return n ? (unsigned)world_random(&s->w, n) : 0; }

/* ---- tokens: each edit can be recognised ---- */
static unsigned new_token(struct sim *s, unsigned at, char text[static TOKEN_LEN + 1])
{
	unsigned t = ++s->n_token % TOKENS;

	if (s->n_fresh[at] < TOKENS)
		s->fresh[at][s->n_fresh[at]++] = t;
	snprintf(text, TOKEN_LEN + 1, "<token %04u>", t);
	s->token[t] = TOKEN_MADE;
	return t;
}

static unsigned token_of(const struct seen *f)
{
	unsigned t;

	if (f->len < TOKEN_LEN || !S_ISREG(f->mode))
		return 0;
	char text[TOKEN_LEN + 1] = {0};
	memcpy(text, f->data, TOKEN_LEN);
	return sscanf(text, "<token %u>", &t) == 1 && t < TOKENS ? t : 0;
}

static void mark(struct sim *s, const struct seen *f, uint8_t how)
{
	unsigned t = f ? token_of(f) : 0;
	if (t)
		s->token[t] |= how;
}

/* ---- local operations on what is seen and on the expected tree alike ---- */
struct op {
	struct sim *s;
	struct replica *r;
	struct volume *v;
	struct tree now, expect;
	bool attrs; /* link counts and modes are compared too */
	char what[400];
};

static const char *const names[] = {"a", "b", "c.t", "d", "e"};

static unsigned depth_of(const char *path)
{
	unsigned n = *path != 0;
	for (; *path; path++)
		n += *path == '/';
	return n;
}

static const char *base_of(const char *path)
{
	const char *p = strrchr(path, '/');
	return p ? p + 1 : path;
}

static void dir_of(const char *path, char ret[static 4096])
{
	const char *p = strrchr(path, '/');
	snprintf(ret, 4096, "%.*s", p ? (int)(p - path) : 0, path);
}

static inum ino_of(struct op *o, const char *path)
{
	struct seen *f = *path ? tree_find(&o->now, path) : NULL;
	return *path ? f ? f->ino : 0 : ROOT_INUM;
}

static struct seen *any(struct op *o, bool (*fit)(const struct seen *f))
{
	unsigned n = 0;

	for (uint32_t i = 0; i < o->now.n; i++)
		n += fit(&o->now.e[i]);
	if (!n)
		return NULL;
	unsigned k = pick(o->s, n);
	for (uint32_t i = 0; i < o->now.n; i++)
		if (fit(&o->now.e[i]) && !k--)
			return &o->now.e[i];
	return NULL;
}

static bool is_file(const struct seen *f) { return S_ISREG(f->mode); }
static bool is_leaf(const struct seen *f) { return !S_ISDIR(f->mode); }
static bool is_dir(const struct seen *f) { return S_ISDIR(f->mode); }
static bool is_any(const struct seen *f) { return f; }

/* A directory (the root too) and a name in it. */
static void any_place(struct op *o, char dir[static 4096], char path[static 4400])
{
	unsigned dirs = 1;
	struct seen *d = NULL;

	for (uint32_t i = 0; i < o->now.n; i++)
		dirs += is_dir(&o->now.e[i]);
	if (pick(o->s, dirs))
		d = any(o, is_dir);
	snprintf(dir, 4096, "%s", d ? d->path : "");
	snprintf(path, 4400, "%s%s%s", dir, *dir ? "/" : "", names[pick(o->s, 5)]);
}

static void set_data(struct seen *f, const uint8_t *p, size_t len)
{
	free(f->data);
	f->data = malloc(len + 1);
	memcpy(f->data, p, len);
	f->len = len;
}

/* All names of one inode have the same bytes. */
static void set_all(struct op *o, inum ino, const uint8_t *p, size_t len)
{
	for (uint32_t i = 0; i < o->expect.n; i++)
		if (o->expect.e[i].ino == ino)
			set_data(&o->expect.e[i], p, len);
}

static size_t any_length(struct op *o)
{
	static const size_t lengths[] = {TOKEN_LEN, 40, 3000, 4096, 5000, 12288, 20000, 70000};
	return lengths[pick(o->s, 8)];
}

static void fill(uint8_t *p, size_t len, const char *token)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)token[(i * 7) % TOKEN_LEN];
	memcpy(p, token, TOKEN_LEN);
}

static int op_create(struct op *o)
{
	char dir[4096], path[4400], token[TOKEN_LEN + 1];
	struct inode_attr a;
	uint8_t *data;

	any_place(o, dir, path);
	if (tree_find(&o->now, path) || depth_of(path) > 5)
		return 1;
	size_t len = any_length(o);
	new_token(o->s, o->r->index, token);
	data = malloc(len);
	fill(data, len, token);
	snprintf(o->what, sizeof o->what, "create %.200s %zu %s", path, len, token);
	int e = volume_make(o->v, ino_of(o, dir), base_of(path), strlen(base_of(path)), S_IFREG | 0644, 0, NULL, &caller, &a);
	e = e ? e : volume_write(o->v, a.ino, 0, data, len, true, false);
	struct seen *f = tree_add(&o->expect, path);
	f->mode = S_IFREG | 0644;
	f->nlink = 1;
	set_data(f, data, len);
	free(data);
	return e;
}

static int op_special(struct op *o)
{
	static const uint32_t modes[] = {S_IFDIR | 0755, S_IFDIR | 0755, S_IFDIR | 0755, S_IFLNK | 0777, S_IFIFO | 0644};
	char dir[4096], path[4400];
	struct inode_attr a;
	uint32_t mode = modes[pick(o->s, 5)];

	any_place(o, dir, path);
	if (tree_find(&o->now, path) || depth_of(path) > 4)
		return 1;
	snprintf(o->what, sizeof o->what, "make %o %.200s", mode, path);
	struct seen *f = tree_add(&o->expect, path);
	f->mode = mode;
	f->nlink = 1;
	if (S_ISLNK(mode))
		set_data(f, (const uint8_t *)"target", 6);
	return volume_make(o->v, ino_of(o, dir), base_of(path), strlen(base_of(path)), mode, 0, S_ISLNK(mode) ? "target" : NULL, &caller, &a);
}

static int op_write(struct op *o)
{
	struct seen *f = any(o, is_file);
	char token[TOKEN_LEN + 1];
	int e = 0;

	if (!f)
		return 1;
	size_t len = f->len;
	unsigned how = pick(o->s, 4);
	if (how == 0)
		len = any_length(o); /* written anew */
	else if (how == 1)
		len = f->len + 1 + pick(o->s, 9000); /* and it grows */
	if (len < TOKEN_LEN)
		len = TOKEN_LEN;
	mark(o->s, f, TOKEN_CONSUMED);
	new_token(o->s, o->r->index, token);
	uint8_t *data = calloc(1, len);
	memcpy(data, f->data, f->len < len ? f->len : len);
	memcpy(data, token, TOKEN_LEN);
	snprintf(o->what, sizeof o->what, "write %.200s how %u, %zu -> %zu %s", f->path, how, f->len, len, token);
	if (how == 0) {
		const struct set_attr cut = {.mask = SET_SIZE};
		struct inode_attr a;
		fill(data, len, token);
		e = volume_setattr(o->v, f->ino, &cut, &caller, &a);
		e = e ? e : volume_write(o->v, f->ino, 0, data, len, true, false);
	} else {
		e = volume_write(o->v, f->ino, 0, token, TOKEN_LEN, true, false);
		if (!e && how == 1)
			e = volume_write(o->v, f->ino, len - 1, "", 1, true, false);
	}
	set_all(o, f->ino, data, len);
	free(data);
	return e;
}

/* Anywhere behind the token: overwritten, cut, or made a hole. */
static int op_inside(struct op *o)
{
	struct seen *f = any(o, is_file);
	uint8_t data[9000];
	int e;

	if (!f || f->len <= TOKEN_LEN)
		return 1;
	size_t at = TOKEN_LEN + pick(o->s, (unsigned)(f->len - TOKEN_LEN)), n = 1 + pick(o->s, sizeof data);
	if (at + n > f->len)
		n = f->len - at;
	if (pick(o->s, 2) && (at & ~(size_t)4095) >= TOKEN_LEN)
		at &= ~(size_t)4095;
	uint8_t *all = malloc(f->len);
	memcpy(all, f->data, f->len);
	size_t len = f->len;
	unsigned how = pick(o->s, 4);
	snprintf(o->what, sizeof o->what, "inside %.200s how %u, %zu+%zu of %zu", f->path, how, at, n, len);
	if (how == 0) {
		const struct set_attr cut = {.mask = SET_SIZE, .size = at};
		struct inode_attr a;
		e = volume_setattr(o->v, f->ino, &cut, &caller, &a);
		len = at;
	} else if (how == 1) {
		e = volume_fallocate(o->v, f->ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n, true);
		memset(all + at, 0, n);
	} else {
		for (size_t i = 0; i < n; i++)
			data[i] = (uint8_t)pick(o->s, 256);
		e = volume_write(o->v, f->ino, at, data, n, true, false);
		memcpy(all + at, data, n);
	}
	set_all(o, f->ino, all, len);
	free(all);
	return e;
}

/* Commits its names, and its content alone. */
static int op_fsync(struct op *o)
{
	struct seen *f = any(o, is_file);

	if (!f)
		return 1;
	snprintf(o->what, sizeof o->what, "fsync %.200s", f->path);
	return volume_fsync(o->v, f->ino, false);
}

static void count_links(struct op *o, inum ino, int by)
{
	for (uint32_t i = 0; i < o->expect.n; i++)
		if (o->expect.e[i].ino == ino && ino)
			o->expect.e[i].nlink = (uint32_t)((int)o->expect.e[i].nlink + by);
}

static int op_unlink(struct op *o)
{
	struct seen *f = any(o, is_leaf);
	char dir[4096];

	if (!f)
		return 1;
	dir_of(f->path, dir);
	snprintf(o->what, sizeof o->what, "unlink %.200s", f->path);
	mark(o->s, f, TOKEN_REMOVED);
	count_links(o, f->ino, -1);
	tree_remove(&o->expect, f->path);
	return volume_unlink(o->v, ino_of(o, dir), base_of(f->path), strlen(base_of(f->path)));
}

static int op_link(struct op *o)
{
	struct seen *f = any(o, is_leaf);
	char dir[4096], path[4400];
	struct inode_attr a;

	any_place(o, dir, path);
	if (!f || tree_find(&o->now, path) || depth_of(path) > 5)
		return 1;
	snprintf(o->what, sizeof o->what, "link %.150s %.150s", f->path, path);
	struct seen *k = tree_add(&o->expect, path);
	k->mode = f->mode;
	k->ino = f->ino;
	k->nlink = f->nlink;
	if (f->data)
		set_data(k, f->data, f->len);
	count_links(o, f->ino, 1);
	return volume_link(o->v, f->ino, ino_of(o, dir), base_of(path), strlen(base_of(path)), &a);
}

/* Paths at and below `from` in the expected tree move to `to`. */
static void move_paths(struct tree *t, const char *from, const char *to)
{
	size_t n = strlen(from);

	for (uint32_t i = 0; i < t->n; i++) {
		char *p = t->e[i].path, *moved = NULL;
		if (strncmp(p, from, n) || (p[n] && p[n] != '/'))
			continue;
		if (asprintf(&moved, "%s%s", to, p + n) < 0)
			exit(1);
		free(p);
		t->e[i].path = moved;
	}
}

static int op_rename(struct op *o)
{
	struct seen *f = any(o, is_any), *there;
	char dir[4096], from_dir[4096], path[4400];

	any_place(o, dir, path);
	if (!f || !strcmp(path, f->path) || (!strncmp(path, f->path, strlen(f->path)) && path[strlen(f->path)] == '/') || depth_of(path) > 4)
		return 1;
	there = tree_find(&o->now, path);
	if (there && (is_dir(there) || is_dir(f) || there->ino == f->ino))
		return 1;
	dir_of(f->path, from_dir);
	snprintf(o->what, sizeof o->what, "rename %.150s %.150s%s", f->path, path, there ? " (replaces)" : "");
	if (there) {
		mark(o->s, there, TOKEN_REMOVED);
		count_links(o, there->ino, -1);
		tree_remove(&o->expect, path);
	}
	move_paths(&o->expect, f->path, path);
	return volume_rename(o->v, ino_of(o, from_dir), base_of(f->path), strlen(base_of(f->path)), ino_of(o, dir), base_of(path),
		strlen(base_of(path)), 0);
}

static int op_exchange(struct op *o)
{
	struct seen *f = any(o, is_leaf), *g = any(o, is_leaf);
	char fd[4096], gd[4096];

	if (!f || f == g || f->ino == g->ino)
		return 1;
	dir_of(f->path, fd);
	dir_of(g->path, gd);
	snprintf(o->what, sizeof o->what, "exchange %.150s %.150s", f->path, g->path);
	move_paths(&o->expect, f->path, "//x");
	move_paths(&o->expect, g->path, f->path);
	move_paths(&o->expect, "//x", g->path);
	return volume_rename(o->v, ino_of(o, fd), base_of(f->path), strlen(base_of(f->path)), ino_of(o, gd), base_of(g->path),
		strlen(base_of(g->path)), RENAME_EXCHANGE);
}

static int op_rmrf(struct op *o)
{
	struct seen *d = any(o, is_dir);
	int e = 0;

	if (!d)
		return 1;
	snprintf(o->what, sizeof o->what, "rm -r %.200s", d->path);
	size_t n = strlen(d->path);
	/* sorted by path: from the end, what is in a directory comes before it */
	for (uint32_t i = o->now.n; i-- > 0 && !e;) {
		struct seen *f = &o->now.e[i];
		char dir[4096];
		if (strncmp(f->path, d->path, n) || (f->path[n] && f->path[n] != '/'))
			continue;
		dir_of(f->path, dir);
		mark(o->s, f, TOKEN_REMOVED);
		count_links(o, is_dir(f) ? 0 : f->ino, -1);
		tree_remove(&o->expect, f->path);
		e = is_dir(f) ? volume_rmdir(o->v, ino_of(o, dir), base_of(f->path), strlen(base_of(f->path)))
			      : volume_unlink(o->v, ino_of(o, dir), base_of(f->path), strlen(base_of(f->path)));
		if (e)
			snprintf(o->what, sizeof o->what, "rm of %.200s", f->path);
	}
	return e;
}

static int op_chmod(struct op *o)
{
	struct seen *f = any(o, is_any);
	struct set_attr s = {.mask = SET_MODE, .mode = 0600 + pick(o->s, 64)};
	struct inode_attr a;

	if (!f)
		return 1;
	snprintf(o->what, sizeof o->what, "chmod %.200s %o", f->path, s.mode);
	inum ino = f->ino;
	for (uint32_t i = 0; i < o->expect.n; i++)
		if (o->expect.e[i].ino == ino)
			o->expect.e[i].mode = (o->expect.e[i].mode & S_IFMT) | s.mode;
	return volume_setattr(o->v, ino, &s, &caller, &a);
}

static int one(struct op *o)
{
	static int (*const ops[])(struct op *o) = {op_create, op_create, op_create, op_special, op_special, op_write, op_write, op_write, op_inside, op_inside, op_inside, op_fsync,
		op_unlink, op_unlink, op_rename, op_rename, op_rename, op_rename, op_link, op_rmrf, op_exchange, op_chmod};
	return ops[pick(o->s, sizeof ops / sizeof *ops)](o);
}

static void check_tree(struct op *o)
{
	struct tree got;
	int e = tree_look(o->v, &got);

	tree_sort(&o->expect);
	const char *d = e ? strerror(-e) : tree_differs(&o->expect, &got, false);
	if (d)
		fail(o->s, "on %c, %s: not what POSIX says (expected, got): %s", replica_letter(o->r->index), o->what, d);
	for (uint32_t i = 0; i < o->expect.n && !d; i++)
		if (o->expect.e[i].mode != got.e[i].mode)
			fail(o->s, "on %c, %s: mode of %s is %o, not %o", replica_letter(o->r->index), o->what, got.e[i].path, got.e[i].mode,
				o->expect.e[i].mode);
	tree_free(&got);
}

/* Programs have files open: their inodes are referenced for a while. */
static void reference(struct op *o)
{
	unsigned r = o->r->index;
	struct seen *f = any(o, is_any);

	if (pick(o->s, 2) && f && o->s->n_ref[r] < REFS) {
		volume_ref(o->v, f->ino);
		o->s->ref[r][o->s->n_ref[r]++] = f->ino;
	} else if (!pick(o->s, 3) && o->s->n_ref[r]) {
		volume_forget(o->v, o->s->ref[r][--o->s->n_ref[r]], 1);
	}
}

static void local(struct sim *s)
{
	struct op o = {.s = s, .r = &s->w.r[pick(s, s->w.n)]};

	o.v = o.r->v;
	s->w.now_ns += pick(s, 4) * UINT64_C(1000000000);
	int e = tree_look(o.v, &o.now);
	if (e)
		fail(s, "on %c: cannot look at the tree: %s", replica_letter(o.r->index), strerror(-e));
	tree_copy(&o.expect, &o.now);
	if (!e)
		reference(&o);
	e = s->failed ? 1 : one(&o);
	if (!e) {
		s->ops++;
		SAY(s, "%c: %s\n", replica_letter(o.r->index), o.what);
		check_tree(&o);
	} else if (e < 0) {
		fail(s, "on %c, %s: %s", replica_letter(o.r->index), o.what, strerror(-e));
	}
	tree_free(&o.now);
	tree_free(&o.expect);
}

/* ---- the net ---- */
static void drop(struct sim *s, unsigned i)
{
	parcel_free(&s->flying[i]);
	s->flying[i] = s->flying[--s->n_flying];
}

static bool connected(const struct sim *s, unsigned a, unsigned b)
{
	if (a == b)
		return false;
	return s->topology == STAR ? !a || !b : s->topology == CHAIN ? a + 1 == b || b + 1 == a : true;
}

static void committed(struct sim *s, unsigned i) { s->n_fresh[i] = 0; }

static void send(struct sim *s)
{
	unsigned from = pick(s, s->w.n), to = pick(s, s->w.n);

	if (!connected(s, from, to))
		return;
	if (s->n_flying == FLYING)
		drop(s, 0);
	int e = parcel_take(&s->w, from, to, &s->flying[s->n_flying]);
	if (e) {
		fail(s, "taking a batch: %s", strerror(-e));
		return;
	}
	committed(s, from);
	SAY(s, "   %c -> %c: %u parts leave\n", replica_letter(from), replica_letter(to), s->flying[s->n_flying].n);
	s->n_flying++;
}

static void deliver(struct sim *s)
{
	if (!s->n_flying)
		return;
	unsigned i = pick(s, s->n_flying), x = pick(s, 100);
	struct parcel *p = &s->flying[i];
	if (x < 90) {
		uint32_t lose = pick(s, 10) ? UINT32_MAX : pick(s, p->n + 1);
		if (pick(s, 2))
			parcel_shuffle(&s->w, p);
		int e = parcel_deliver(&s->w, p, lose);
		if (!e && lose >= p->n)
			committed(s, p->to);
		SAY(s, "   %c -> %c: %u parts arrive%s\n", replica_letter(p->from), replica_letter(p->to), p->n, lose < p->n ? ", broken off" : "");
		if (e)
			fail(s, "%c -> %c: a batch of %u parts: %s", replica_letter(p->from), replica_letter(p->to), p->n, strerror(-e));
	}
	if (x >= 25)
		drop(s, i);
}

static void found(void *ctx, const char *text) { fail(ctx, "check says: %s", text); }

static void check_store(struct sim *s, unsigned i, const char *when)
{
	const struct check_options o = {.deep = true, .say = found, .ctx = s};
	struct check_result r;
	int e = volume_check(s->w.r[i].v, &o, &r);

	if (e || !check_is_sound(&r))
		fail(s, "the store of %c is not sound %s", replica_letter(i), when);
}

/* Edits that were not committed may be gone. */
static void kill_one(struct sim *s)
{
	unsigned i = pick(s, s->w.n);
	bool commit = pick(s, 2);

	if (commit && volume_commit(s->w.r[i].v))
		fail(s, "commit before a kill");
	for (unsigned k = 0; k < s->n_fresh[i] && !commit; k++)
		s->token[s->fresh[i][k]] |= TOKEN_REMOVED;
	committed(s, i);
	volume_abandon(s->w.r[i].v);
	world_open(&s->w, i);
	s->n_ref[i] = 0;
	SAY(s, "%c: killed%s, opened\n", replica_letter(i), commit ? "" : " without a commit");
	check_store(s, i, "after a kill");
}

static void show(struct sim *s, unsigned i)
{
	struct tree t;

	if (tree_look(s->w.r[i].v, &t))
		return;
	fprintf(stderr, "%c:\n", replica_letter(i));
	for (uint32_t k = 0; k < t.n; k++)
		fprintf(stderr, "   %o %s ino %llu nlink %u len %zu %.12s\n", t.e[k].mode, t.e[k].path, (unsigned long long)t.e[k].ino,
			t.e[k].nlink, t.e[k].len, t.e[k].data ? (char *)t.e[k].data : "");
	tree_free(&t);
}

/* Looking for the step after which something is wrong. */
static void check_all(struct sim *s, const char *when)
{
	for (unsigned i = 0; i < s->w.n && s->verbose && !s->failed; i++)
		check_store(s, i, when);
}

static bool exchange_all(struct sim *s)
{
	bool quiet = true;

	for (unsigned a = 0; a < s->w.n && !s->failed; a++)
		for (unsigned b = 0; b < s->w.n && !s->failed; b++) {
			uint32_t parts = 0;
			s->w.now_ns += s->patient ? UINT64_C(3600) * 1000000000 : 0;
			int e = connected(s, a, b) ? world_exchange(&s->w, a, b, &parts) : 0;
			if (e)
				fail(s, "%c -> %c while healing: %s", replica_letter(a), replica_letter(b), strerror(-e));
			quiet &= !parts;
			check_all(s, "after an exchange");
			if (s->verbose && parts) {
				SAY(s, "   healing: %c -> %c: %u parts\n", replica_letter(a), replica_letter(b), parts);
				show(s, b);
			}
		}
	return quiet;
}

static void check_lost(struct sim *s, const struct tree *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		unsigned k = token_of(&t->e[i]);
		if (k)
			s->token[k] = 0;
	}
	for (unsigned k = 1; k < TOKENS; k++)
		if (s->token[k] == TOKEN_MADE)
			fail(s, "the edit <token %04u> is lost", k);
}

static void heal(struct sim *s)
{
	struct tree first, t;
	struct root root, other;
	int rounds = 0;

	while (!s->failed && !exchange_all(s))
		if (++rounds > 8 + (s->topology == CHAIN ? (int)s->w.n : 0))
			fail(s, "it never gets quiet: new parts in every round");
	/* bytes that nobody had in time are asked for again, after ever longer pauses; they may have to come over a neighbour */
	s->patient = true;
	for (unsigned i = 0; i < (s->topology == CHAIN ? s->w.n : 2) && !s->failed; i++)
		exchange_all(s);
	for (unsigned i = 0; i < s->w.n && !s->failed; i++)
		check_store(s, i, "at the end");
	if (s->failed)
		return;
	int e = tree_look(s->w.r[0].v, &first);
	volume_live_root(s->w.r[0].v, &root);
	for (unsigned i = 1; i < s->w.n && !e; i++) {
		if ((e = tree_look(s->w.r[i].v, &t)))
			break;
		const char *d = tree_differs(&first, &t, true);
		volume_live_root(s->w.r[i].v, &other);
		if (d)
			fail(s, "trees of A and %c differ: %s", replica_letter(i), d);
		else if (!root_eq(&root, &other))
			fail(s, "roots of A and %c differ", replica_letter(i));
		tree_free(&t);
	}
	if (e)
		fail(s, "cannot look at a tree: %s", strerror(-e));
	else
		check_lost(s, &first);
	/* and what is on disk is what memory showed */
	for (unsigned i = 0; i < s->w.n && !s->failed; i++) {
		if ((e = volume_close(s->w.r[i].v)))
			fail(s, "closing %c: %s", replica_letter(i), strerror(-e));
		world_open(&s->w, i);
		s->n_ref[i] = 0;
		check_store(s, i, "opened again");
		if (s->failed || (e = tree_look(s->w.r[i].v, &t)))
			break;
		const char *d = tree_differs(&first, &t, true);
		if (d)
			fail(s, "%c shows something else when it is opened again: %s", replica_letter(i), d);
		tree_free(&t);
	}
	for (unsigned i = 0; i < s->w.n && s->verbose && s->failed; i++)
		show(s, i);
	tree_free(&first);
}

/* ---- one history ---- */
static const char *const topologies[] = {"mesh", "star", "chain"};

static bool run(uint64_t seed, unsigned replicas, unsigned steps, enum topology topology, bool verbose, unsigned *ret_ops)
{
	static const int64_t skews[] = {0, 0, 50, -50, 400, -4000, 20000, -86400};
	struct sim *s = calloc(1, sizeof *s);

	s->verbose = verbose;
	s->topology = topology;
	world_make(&s->w, replicas, seed);
	for (unsigned i = 0; i < replicas; i++)
		s->w.r[i].skew_ns = skews[pick(s, 8)] * 1000000000;
	for (unsigned i = 0; i < steps && !s->failed; i++) {
		unsigned x = pick(s, 100);
		if (x < 60)
			local(s);
		else if (x < 78)
			send(s);
		else if (x < 97)
			deliver(s);
		else
			kill_one(s);
		check_all(s, "after this step");
	}
	if (!s->failed)
		heal(s);
	if (s->failed)
		printf("seed %llu: %s\n  again: sim -n 1 -s %llu -r %u -o %u -t %s -v\n", (unsigned long long)seed, s->why, (unsigned long long)seed,
			replicas, steps, topologies[topology]);
	while (s->n_flying)
		drop(s, 0);
	world_remove(&s->w);
	*ret_ops += s->ops;
	bool ok = !s->failed;
	free(s);
	return ok;
}

/* Histories of 150 steps that once failed, and what they found. */
static const struct {
	uint64_t seed;
	unsigned replicas;
	enum topology topology;
} known[] = {
	{5016, 2, STAR},  /* the object of an unlinked file that was open at a kill was forgotten */
	{5018, 4, STAR},  /* what an open handle wrote after the last name went was shown where a peer brought the file back */
	{5092, 3, CHAIN}, /* link count of a directory that came back with two directories in it */
	{5129, 4, CHAIN}, /* a dead name in a directory that came and went in one transaction */
	{5167, 3, MESH},  /* bytes asked for again, for a file that the same batch left without a name */
	{7137, 2, MESH},  /* a hole in a file that was unlinked in the same transaction went into its committed object */
	{7142, 4, STAR},  /* a deletion that was not loaded was taken for none, and its link forgotten */
	{30303, 2, MESH},  /* as 9185, of a conflict copy */
	{30030, 2, CHAIN}, /* an object was removed that a file brought back still had */
	{9185, 4, STAR},  /* a directory moved into one of which nobody ever heard, and removed: an edit in it stayed hidden */
	{9189, 2, MESH},  /* a conflict copy that was written to, lost by an fsync of another file and a kill */
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	unsigned seeds = 20, first = 1, replicas = 0, steps = 60, bad = 0, ops = 0, topology = 3;
	bool verbose = false, again = false;
	int c;

	while ((c = getopt(argc, argv, "n:s:r:o:t:vk")) != -1) {
		unsigned n = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;
		if (c == 't') {
			for (topology = 0; topology < 3 && strcmp(optarg, topologies[topology]);)
				topology++;
			if (topology == 3)
				return 2;
			continue;
		}
		if (c == 'n')
			seeds = n;
		else if (c == 's')
			first = n;
		else if (c == 'r')
			replicas = n;
		else if (c == 'o')
			steps = n;
		else if (c == 'v')
			verbose = true;
		else if (c == 'k')
			again = true;
		else
			return 2;
	}
	if (replicas > REPLICAS_MAX)
		return 2;
	for (unsigned i = 0; again && i < sizeof known / sizeof *known; i++)
		bad += !run(known[i].seed, known[i].replicas, 150, known[i].topology, verbose, &ops);
	seeds = again ? sizeof known / sizeof *known : seeds;
	for (unsigned i = 0; i < seeds && !again; i++)
		bad += !run(first + i, replicas ? replicas : 2 + (first + i) % 3, steps, topology < 3 ? topology : (first + i) / 3 % 3, verbose, &ops);
	printf("%u histories, %u local operations, %u failed\n", seeds, ops, bad);
	return bad ? 1 : 0;
}
