/* Goal: the same random histories as the pure rules get (history.h), on whole volumes: real journal, store and batches; the clock of each is set.
 * Arguments: first seed, seeds, replicas, steps (default: 12 histories of 3 replicas). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <linux/fs.h>

#include "history.h"
#include "world.h"

static struct world w;
static unsigned replicas = 3, n_open, next_seed;
static const struct caller caller = {.umask = 022, .in_group = true};

static void *whole_open(unsigned i)
{
	if (i == 0)
		world_make(&w, replicas, next_seed);
	n_open++;
	return &w.r[i];
}

static void whole_close(void *replica)
{
	(void)replica;
	if (--n_open == 0)
		world_remove(&w);
}

static void set_clock(void *replica, uint64_t wall_ns)
{
	struct replica *r = replica;
	r->skew_ns = (int64_t)wall_ns - (int64_t)(UINT64_C(1700000000000000000) + w.now_ns);
}

/* The directory that a path lies in, and its last component. */
static int place_of(struct volume *v, const char *path, inum *ret_dir, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	struct inode_attr a = {.ino = ROOT_INUM};
	char dir[4096];
	int e = 0;

	if (slash) {
		snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
		e = volume_resolve(v, dir, &a);
	}
	*ret_dir = a.ino;
	*ret_name = slash ? slash + 1 : path;
	return e;
}

static int make(void *replica, const char *path, uint32_t mode, inum *ret)
{
	struct volume *v = ((struct replica *)replica)->v;
	struct inode_attr a = {0};
	const char *name;
	inum dir;
	int e = place_of(v, path, &dir, &name);

	e = e ? e : volume_make(v, dir, name, strlen(name), mode, 0, NULL, &caller, &a);
	*ret = a.ino;
	return e;
}

static int put(void *replica, inum ino, uint64_t token)
{
	return volume_write(((struct replica *)replica)->v, ino, 0, &token, sizeof token, true, false);
}

static int whole_create(void *replica, const char *path, uint64_t token)
{
	inum ino;
	int e = make(replica, path, S_IFREG | 0644, &ino);
	return e ? e : put(replica, ino, token);
}

static int whole_mkdir(void *replica, const char *path)
{
	inum ino;
	return make(replica, path, S_IFDIR | 0755, &ino);
}

static int whole_write(void *replica, const char *path, uint64_t token)
{
	struct inode_attr a;
	int e = volume_resolve(((struct replica *)replica)->v, path, &a);
	return e ? e : put(replica, a.ino, token);
}

static int whole_link(void *replica, const char *from, const char *to)
{
	struct volume *v = ((struct replica *)replica)->v;
	struct inode_attr a, got;
	const char *name;
	inum dir;
	int e = volume_resolve(v, from, &a);

	e = e ? e : place_of(v, to, &dir, &name);
	return e ? e : volume_link(v, a.ino, dir, name, strlen(name), &got);
}

static int whole_unlink(void *replica, const char *path)
{
	struct volume *v = ((struct replica *)replica)->v;
	const char *name;
	inum dir;
	int e = place_of(v, path, &dir, &name);
	return e ? e : volume_unlink(v, dir, name, strlen(name));
}

static int whole_rmdir(void *replica, const char *path)
{
	struct volume *v = ((struct replica *)replica)->v;
	const char *name;
	inum dir;
	int e = place_of(v, path, &dir, &name);
	return e ? e : volume_rmdir(v, dir, name, strlen(name));
}

static int whole_rename(void *replica, const char *from, const char *to, bool exchange)
{
	struct volume *v = ((struct replica *)replica)->v;
	const char *name, *new_name;
	inum dir, new_dir;
	int e = place_of(v, from, &dir, &name);

	e = e ? e : place_of(v, to, &new_dir, &new_name);
	return e ? e : volume_rename(v, dir, name, strlen(name), new_dir, new_name, strlen(new_name), exchange ? RENAME_EXCHANGE : 0);
}

static int whole_list(void *replica, struct history_tree *ret)
{
	struct tree t;
	int e = tree_look(((struct replica *)replica)->v, &t);

	*ret = (struct history_tree){0};
	if (!e && t.n && !(ret->e = calloc(t.n, sizeof *ret->e)))
		e = -ENOMEM;
	for (uint32_t i = 0; i < t.n && !e; i++) {
		struct history_entry *x = &ret->e[ret->n++];
		*x = (struct history_entry){.path = strdup(t.e[i].path), .is_dir = S_ISDIR(t.e[i].mode), .file = t.e[i].ino};
		if (!x->is_dir && t.e[i].len != sizeof x->token)
			e = -EILSEQ;
		else if (!x->is_dir)
			memcpy(&x->token, t.e[i].data, sizeof x->token);
	}
	tree_free(&t);
	return e;
}

static int whole_send(void *from, void *to, bool partial, unsigned seed, void **ret_message)
{
	struct parcel *p = calloc(1, sizeof *p);

	(void)partial;
	(void)seed;
	*ret_message = p;
	return p ? parcel_take(&w, ((struct replica *)from)->index, ((struct replica *)to)->index, p) : -ENOMEM;
}

static int whole_receive(void *to, void *message, unsigned seed)
{
	(void)to;
	(void)seed;
	parcel_shuffle(&w, message);
	return parcel_deliver(&w, message, UINT32_MAX);
}

static void whole_drop(void *message)
{
	parcel_free(message);
	free(message);
}

static uint64_t parts(void *replica)
{
	struct replica *r = replica;
	struct vector k = {0};
	uint64_t n = 0;

	if (!volume_commit(r->v) && !volume_knowledge(r->v, &k))
		for (uint32_t i = 0; i < k.n; i++)
			if (k.e[i].replica == r->id)
				n = k.e[i].counter;
	vector_fini(&k);
	return n;
}

static const struct history_backend whole_backend = {
	.open = whole_open,
	.close = whole_close,
	.set_clock = set_clock,
	.create = whole_create,
	.mkdir = whole_mkdir,
	.write = whole_write,
	.link = whole_link,
	.unlink = whole_unlink,
	.rmdir = whole_rmdir,
	.rename = whole_rename,
	.list = whole_list,
	.send = whole_send,
	.receive = whole_receive,
	.drop = whole_drop,
	.parts = parts,
};

int main(int argc, char **argv)
{
	unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 0, seeds = argc > 2 ? (unsigned)atoi(argv[2]) : 12, failed = 0;
	struct history_counts c = {0};

	replicas = argc > 3 ? (unsigned)atoi(argv[3]) : 3;
	if (replicas < 2 || replicas > REPLICAS_MAX)
		return 2;
	const struct history_options o = {replicas, argc > 4 ? (unsigned)atoi(argv[4]) : 60, false};
	for (unsigned seed = first; seed < first + seeds; seed++) {
		next_seed = seed;
		if (!history_run(&whole_backend, seed, &o, &c))
			continue;
		fprintf(stderr, "again: %s %u 1 %u %u\n", argv[0], seed, o.replicas, o.steps);
		failed++;
	}
	printf("%u histories on whole volumes, %u failed; %llu calls, %llu shown at the end, %llu of them conflict copies\n", seeds, failed,
	       (unsigned long long)c.calls, (unsigned long long)c.shown, (unsigned long long)c.conflicts);
	return failed != 0;
}
