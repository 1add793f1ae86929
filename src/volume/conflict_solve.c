/* Settling a conflict by ordinary changes, which go to all replicas: one of the versions is kept and the others are removed, or a copy changes places with the file. */
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

struct version_of {
	char *shown; /* owned */
	char *of;    /* owned */
};
struct versions {
	struct version_of *x; /* owned */
	uint32_t n, cap;
	int err;
};

static bool collect(void *ctx, const char *shown, const char *of, struct stamp s, const char *replica_name)
{
	struct versions *c = ctx;

	if (c->n == c->cap) {
		uint32_t cap = c->cap ? c->cap * 2 : 16;
		struct version_of *p = reallocarray(c->x, cap, sizeof *p);
		if (!p) {
			c->err = -ENOMEM;
			return false;
		}
		c->x = p;
		c->cap = cap;
	}
	struct version_of v = {strdup(shown), strdup(of)};
	if (!v.shown || !v.of) {
		free(v.shown);
		free(v.of);
		c->err = -ENOMEM;
		return false;
	}
	c->x[c->n++] = v;
	return true;
}

static void versions_fini(struct versions *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		free(c->x[i].shown);
		free(c->x[i].of);
	}
	free(c->x);
}

struct where {
	inum dir;
	const char *name; /* points into path */
	char *path;       /* owned */
};

static int where_is(struct volume *v, const char *path, struct where *ret)
{
	struct inode_attr a;
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	char *slash = strrchr(copy, '/');
	if (slash)
		*slash = 0;
	int e = volume_resolve(v, slash ? copy : "", &a);
	if (e) {
		free(copy);
		return e;
	}
	*ret = (struct where){a.ino, slash ? slash + 1 : copy, copy};
	return 0;
}

/* What programs wrote to the file and the kernel still has belongs to it, under whatever name. */
static void bring_home(struct volume *v, const char *path)
{
	struct inode_attr a;

	if (volume_resolve(v, path, &a))
		return;
	pthread_rwlock_rdlock(&v->observer_lock);
	if (v->observer.before_change)
		v->observer.before_change(v->observer.ctx, a.ino);
	pthread_rwlock_unlock(&v->observer_lock);
}

static void tell(struct volume *v, const struct where *w)
{
	const struct volume_observer *o = &v->observer;

	pthread_rwlock_rdlock(&v->observer_lock);
	if (o->entry_changed)
		o->entry_changed(o->ctx, w->dir, w->name, strlen(w->name));
	if (o->dir_changed)
		o->dir_changed(o->ctx, w->dir);
	pthread_rwlock_unlock(&v->observer_lock);
}

static int change_names(struct volume *v, const char *from, const char *to, unsigned flags)
{
	struct where a = {0}, b = {0};

	bring_home(v, from);
	bring_home(v, to);
	int e = where_is(v, from, &a);
	e = e ? e : where_is(v, to, &b);
	e = e ? e : volume_rename(v, a.dir, a.name, strlen(a.name), b.dir, b.name, strlen(b.name), flags);
	if (!e) {
		tell(v, &a);
		tell(v, &b);
	}
	free(a.path);
	free(b.path);
	return e;
}

static int take_away(struct volume *v, const char *path)
{
	struct where w = {0};
	int e = where_is(v, path, &w);

	e = e ? e : volume_unlink(v, w.dir, w.name, strlen(w.name));
	if (!e)
		tell(v, &w);
	free(w.path);
	return e;
}

static int load(struct volume *v, struct versions *c)
{
	int e = volume_conflicts(v, collect, c);

	return e ? e : c->err;
}

/* The file that path is a copy of; NULL where it is none. */
static const char *file_of(const struct versions *c, const char *path)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (!strcmp(c->x[i].shown, path))
			return c->x[i].of;
	return NULL;
}

int volume_conflict_keep(struct volume *v, const char *path, uint32_t *ret_removed)
{
	struct versions c = {0};
	uint32_t removed = 0;
	int e = load(v, &c);
	const char *of = e ? NULL : file_of(&c, path), *file = of ? of : path;
	bool known = of;

	for (uint32_t i = 0; i < c.n && !e; i++) {
		if (strcmp(c.x[i].of, file) || !strcmp(c.x[i].shown, path))
			continue;
		known = true;
		if (!(e = take_away(v, c.x[i].shown)))
			removed++;
	}
	if (!e && (!known || !*file))
		e = -ENOENT;
	if (!e && of && !(e = change_names(v, path, file, 0)))
		removed++;
	versions_fini(&c);
	e = e ? e : volume_commit(v);
	if (!e)
		*ret_removed = removed;
	return e;
}

int volume_conflict_restore(struct volume *v, const char *path)
{
	struct versions c = {0};
	struct inode_attr a;
	int e = load(v, &c);
	const char *of = e ? NULL : file_of(&c, path);

	if (!e && (!of || !*of))
		e = -ENOENT;
	if (!e) {
		e = volume_resolve(v, of, &a);
		e = change_names(v, path, of, e == -ENOENT ? 0 : RENAME_EXCHANGE);
	}
	versions_fini(&c);
	return e ? e : volume_commit(v);
}
