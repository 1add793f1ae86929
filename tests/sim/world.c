/* See world.h. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

/* Nothing here is about power cuts: a history ends before the disk would have to have anything. */
int fsync(int fd)
{
	(void)fd;
	return 0;
}
int fdatasync(int fd)
{
	(void)fd;
	return 0;
}
int syncfs(int fd)
{
	(void)fd;
	return 0;
}

static void must(int e, const char *what)
{
	if (!e)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(-e));
	exit(1);
}

/* ---- clock and randomness ---- */
static uint64_t next(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t world_random(struct world *w, uint64_t below) { return next(&w->rng) % below; }

static uint64_t wall(void *ctx)
{
	struct replica *r = ctx;
	r->w->now_ns += 1000;
	return (uint64_t)((int64_t)(UINT64_C(1700000000000000000) + r->w->now_ns) + r->skew_ns);
}

static uint64_t mono(void *ctx)
{
	struct replica *r = ctx;
	return ++r->w->now_ns;
}

static void fill(void *ctx, void *buf, size_t len)
{
	struct replica *r = ctx;
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)next(&r->rng);
}

/* ---- making ---- */
static void before_change(void *ctx, inum ino)
{
	(void)ctx;
	(void)ino;
}
static void entry_changed(void *ctx, inum parent, const char *name, size_t len)
{
	(void)parent;
	(void)name;
	(void)len;
	((struct replica *)ctx)->entries++;
}
static void dir_changed(void *ctx, inum dir)
{
	(void)dir;
	((struct replica *)ctx)->dirs++;
}
static void attr_changed(void *ctx, inum ino)
{
	(void)ino;
	((struct replica *)ctx)->attrs++;
}
static void content_changed(void *ctx, inum ino, uint64_t old_size, uint64_t new_size, const struct extent *bytes, uint32_t n)
{
	(void)ino;
	(void)old_size;
	(void)new_size;
	(void)bytes;
	(void)n;
	((struct replica *)ctx)->contents++;
}
static void replaced(void *ctx, inum old, inum fresh)
{
	(void)old;
	(void)fresh;
	((struct replica *)ctx)->replaced++;
}

void world_open(struct world *w, unsigned i)
{
	struct replica *r = &w->r[i];
	const struct volume_options o = {.env = &r->env};
	const struct volume_observer observer = {before_change, entry_changed, dir_changed, attr_changed, content_changed, replaced, .ctx = r};

	must(volume_open(r->path, &o, "key", 3, SLOT_KEYFILE, &r->v), "volume_open");
	volume_set_observer(r->v, &observer);
}

static void make_one(struct world *w, unsigned i, const uint8_t *master, struct id *volume)
{
	struct replica *r = &w->r[i];
	struct header h = {.cipher = CIPHER_XCHACHA20POLY1305, .volume = *volume};

	r->w = w;
	r->index = i;
	r->rng = w->seed * 1000 + i;
	r->env = (struct env){.wall_ns = wall, .mono_ns = mono, .random = fill, .ctx = r};
	strcpy(r->path, w->dir);
	strcat(r->path, (char[]){'/', replica_letter(i), 0});
	snprintf(h.name, sizeof h.name, "%c", replica_letter(i));
	r->id = h.replica = 100 + i;
	must(slot_make(h.slot[0], 0, SLOT_KEYFILE, (struct slot_cost){0}, volume, "key", 3, master), "slot_make");
	must(volume_create(r->path, &h, master, i == 0, &r->env), "volume_create");
	world_open(w, i);
}

static void introduce(struct world *w)
{
	uint32_t parts;

	for (unsigned i = 1; i < w->n; i++) {
		struct member m = {0};
		snprintf(m.name, sizeof m.name, "%c", replica_letter(i));
		m.static_public[0] = (uint8_t)i;
		must(volume_set_member(w->r[0].v, w->r[i].id, &m), "volume_set_member");
	}
	for (unsigned i = 1; i < w->n; i++)
		must(world_exchange(w, 0, i, &parts), "first exchange");
}

void world_make(struct world *w, unsigned replicas, uint64_t seed)
{
	const char *tmp = getenv("TWOFOLD_SIM_DIR");
	struct id volume;
	uint8_t master[KEY_LEN];

	*w = (struct world){.seed = seed, .rng = seed, .n = replicas};
	log_set_level(LOG_LEVEL_ERROR);
	must(crypto_init(), "crypto_init");
	snprintf(w->dir, sizeof w->dir, "%s/twofold-sim-XXXXXX", tmp ? tmp : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(w->dir))
		must(-errno, "mkdtemp");
	memset(&volume, 0x5a, sizeof volume);
	memset(master, 0x11, sizeof master);
	for (unsigned i = 0; i < replicas; i++)
		make_one(w, i, master, &volume);
	introduce(w);
}

void world_remove(struct world *w)
{
	char cmd[300];

	for (unsigned i = 0; i < w->n; i++)
		if (w->r[i].v)
			volume_abandon(w->r[i].v);
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", w->dir);
	if (system(cmd))
		fprintf(stderr, "%s stays\n", w->dir);
}

/* ---- batches ---- */
static int split(const struct buf *b, struct parcel *p)
{
	struct reader r = reader_of(b->p, b->len);

	while (r.left) {
		uint32_t len = read_u32(&r);
		const uint8_t *bytes = read_bytes(&r, len);
		if (!bytes)
			return -EPROTO;
		p->record = reallocarray(p->record, p->n + 1, sizeof *p->record);
		p->len = reallocarray(p->len, p->n + 1, sizeof *p->len);
		p->record[p->n] = malloc(len);
		memcpy(p->record[p->n], bytes, len);
		p->len[p->n++] = len;
	}
	return 0;
}

int parcel_take(struct world *w, unsigned from, unsigned to, struct parcel *ret)
{
	struct part_cursor c = {0};
	struct vector have = {0};
	struct buf out = {0};
	int e = volume_commit(w->r[from].v);

	*ret = (struct parcel){.from = from, .to = to};
	e = e ? e : volume_knowledge(w->r[to].v, &have);
	e = e ? e : volume_knowledge(w->r[from].v, &ret->end);
	while (!e && !c.done) {
		uint32_t rows;
		e = volume_list_parts(w->r[from].v, &have, &ret->end, &c, 7, 1 << 20, &out, &rows);
	}
	e = e ? e : split(&out, ret);
	buf_fini(&out);
	vector_fini(&have);
	return e;
}

void parcel_free(struct parcel *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		free(p->record[i]);
	free(p->record);
	free(p->len);
	vector_fini(&p->end);
	*p = (struct parcel){0};
}

void parcel_shuffle(struct world *w, struct parcel *p)
{
	for (uint32_t i = p->n; i > 1; i--) {
		uint32_t k = (uint32_t)world_random(w, i);
		uint8_t *record = p->record[i - 1];
		size_t len = p->len[i - 1];
		p->record[i - 1] = p->record[k];
		p->len[i - 1] = p->len[k];
		p->record[k] = record;
		p->len[k] = len;
	}
}

static int fetch_once(struct world *w, struct volume *from, struct batch *b, const struct content_want *want, unsigned forms)
{
	struct content_source *s;
	struct buf chunk = {0};
	int e = content_source_open(from, &want->node, want->dot, want->held, want->n_held, NULL, forms, want->resume_page, &s), more = 1;

	if (e)
		return e;
	while (more > 0 && !e) {
		chunk.len = 0;
		more = content_source_next(s, 20000, &chunk);
		if (more < 0) {
			e = more;
			break;
		}
		w->sent_bytes += chunk.len;
		e = batch_content(b, want, chunk.p, chunk.len, more == 0);
		if (e == 1)
			break;
	}
	content_source_close(s);
	buf_fini(&chunk);
	return e;
}

static int fetch(struct world *w, struct volume *from, struct batch *b, const struct content_want *want)
{
	int e = fetch_once(w, from, b, want, FORM_WHOLE | FORM_RANGES | FORM_DELTA);

	if (e == -ENODATA || e == -EBADMSG)
		e = fetch_once(w, from, b, want, FORM_WHOLE);
	if (e == -ESTALE || e == -ENOENT) {
		w->gone++;
		return batch_content_gone(b, want);
	}
	return e < 0 ? e : 0;
}

static int fetch_all(struct world *w, const struct parcel *p, struct batch *b)
{
	const struct content_want *want;
	int e;

	while ((e = batch_next_want(b, &want)) == 1)
		if ((e = fetch(w, w->r[p->from].v, b, want)))
			return e;
	return e;
}

int parcel_deliver(struct world *w, const struct parcel *p, uint32_t lose_at)
{
	struct volume *v = w->r[p->to].v;
	struct batch *b;
	int e = batch_new(v, w->r[p->from].id, &b);

	for (uint32_t i = 0; i < p->n && !e; i++) {
		if (i == lose_at) {
			batch_free(b);
			return 0;
		}
		e = batch_part(b, p->record[i], p->len[i]);
		if (!e && i % 16 == 15)
			e = fetch_all(w, p, b);
	}
	for (int tries = 0; !e && tries < 4; tries++) {
		e = fetch_all(w, p, b);
		e = e ? e : batch_apply(b, &p->end);
		if (e != -EAGAIN)
			break;
		e = 0;
	}
	batch_free(b);
	return e;
}

int world_exchange(struct world *w, unsigned from, unsigned to, uint32_t *ret_parts)
{
	struct parcel p;
	int e = parcel_take(w, from, to, &p);

	*ret_parts = p.n;
	if (!e)
		e = parcel_deliver(w, &p, UINT32_MAX);
	parcel_free(&p);
	return e;
}

/* ---- trees ---- */
struct seen *tree_add(struct tree *t, const char *path)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 32;
		t->e = reallocarray(t->e, t->cap, sizeof *t->e);
		if (!t->e)
			must(-ENOMEM, "tree");
	}
	t->e[t->n] = (struct seen){.path = strdup(path)};
	return &t->e[t->n++];
}

static int by_path(const void *a, const void *b) { return strcmp(((const struct seen *)a)->path, ((const struct seen *)b)->path); }

void tree_sort(struct tree *t)
{
	if (t->n)
		qsort(t->e, t->n, sizeof *t->e, by_path);
}

struct walk {
	struct volume *v;
	struct tree *t;
	const char *dir;
	int e;
	char names[512][256];
	unsigned n;
};

static bool name(void *ctx, const char *name, size_t len, uint64_t cookie, const struct inode_attr *attr)
{
	struct walk *k = ctx;

	(void)cookie;
	(void)attr;
	if (k->n == 512) {
		k->e = -E2BIG;
		return false;
	}
	memcpy(k->names[k->n], name, len);
	k->names[k->n++][len] = 0;
	return true;
}

static int read_data(struct volume *v, const struct inode_attr *a, struct seen *s)
{
	size_t got = 0;

	s->len = a->size;
	s->data = malloc(s->len + 1);
	if (S_ISLNK(a->mode))
		return volume_readlink(v, a->ino, (char *)s->data, s->len + 1, &s->len);
	int e = s->len ? volume_read(v, a->ino, 0, s->data, s->len, &got) : 0;
	return e ? e : got == s->len ? 0 : -EIO;
}

static int walk(struct volume *v, inum dir, const char *path, struct tree *t)
{
	struct walk *k = calloc(1, sizeof *k);
	int e;

	k->v = v;
	e = volume_readdir(v, dir, 0, true, name, k);
	e = e ? e : k->e;
	for (unsigned i = 0; i < k->n && !e; i++) {
		char full[4096];
		struct inode_attr a;
		snprintf(full, sizeof full, "%s%s%s", path, *path ? "/" : "", k->names[i]);
		if ((e = volume_lookup(v, dir, k->names[i], strlen(k->names[i]), &a))) {
			fprintf(stderr, "%s is listed, but look-up says %s\n", full, strerror(-e));
			break;
		}
		struct seen *s = tree_add(t, full);
		s->ino = a.ino;
		s->mode = a.mode;
		s->uid = a.uid;
		s->nlink = a.nlink;
		s->mtime = a.mtime;
		if (S_ISDIR(a.mode))
			e = walk(v, a.ino, full, t);
		else if (S_ISREG(a.mode) || S_ISLNK(a.mode))
			e = read_data(v, &a, s);
		if (e)
			fprintf(stderr, "%s: %s\n", full, strerror(-e));
	}
	free(k);
	return e;
}

int tree_look(struct volume *v, struct tree *ret)
{
	*ret = (struct tree){0};
	int e = walk(v, ROOT_INUM, "", ret);
	tree_sort(ret);
	return e;
}

void tree_free(struct tree *t)
{
	for (uint32_t i = 0; i < t->n; i++) {
		free(t->e[i].path);
		free(t->e[i].data);
	}
	free(t->e);
	*t = (struct tree){0};
}

struct seen *tree_find(const struct tree *t, const char *path)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (!strcmp(t->e[i].path, path))
			return &t->e[i];
	return NULL;
}

void tree_remove(struct tree *t, const char *path)
{
	struct seen *s = tree_find(t, path);

	if (!s)
		return;
	free(s->path);
	free(s->data);
	memmove(s, s + 1, (size_t)(&t->e[t->n] - (s + 1)) * sizeof *s);
	t->n--;
}

int tree_copy(struct tree *ret, const struct tree *t)
{
	*ret = (struct tree){0};
	for (uint32_t i = 0; i < t->n; i++) {
		struct seen *s = tree_add(ret, t->e[i].path);
		char *path = s->path;
		*s = t->e[i];
		s->path = path;
		if (t->e[i].data) {
			s->data = malloc(s->len + 1);
			memcpy(s->data, t->e[i].data, s->len);
		}
	}
	return 0;
}

static char differs[4096];

static const char *entry_differs(const struct seen *x, const struct seen *y, bool attrs)
{
	if ((x->mode & S_IFMT) != (y->mode & S_IFMT))
		return "kind";
	if (!!x->data != !!y->data || x->len != y->len || (x->len && memcmp(x->data, y->data, x->len)))
		return "content";
	if (!attrs)
		return NULL;
	if (x->mode != y->mode)
		return "mode";
	if (x->uid != y->uid)
		return "owner";
	if (x->mtime.sec != y->mtime.sec || x->mtime.nsec != y->mtime.nsec)
		return "mtime";
	return !S_ISDIR(x->mode) && x->nlink != y->nlink ? "link count" : NULL;
}

const char *tree_differs(const struct tree *a, const struct tree *b, bool attrs)
{
	for (uint32_t i = 0, k = 0; i < a->n || k < b->n; i++, k++) {
		int c = i == a->n ? 1 : k == b->n ? -1 : strcmp(a->e[i].path, b->e[k].path);
		if (c) {
			snprintf(differs, sizeof differs, "%s only in the %s", c < 0 ? a->e[i].path : b->e[k].path, c < 0 ? "first" : "second");
			return differs;
		}
		const char *what = entry_differs(&a->e[i], &b->e[k], attrs);
		if (what) {
			snprintf(differs, sizeof differs, "%s: %s", a->e[i].path, what);
			return differs;
		}
	}
	return NULL;
}
