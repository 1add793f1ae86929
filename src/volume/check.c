#include "check_volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check_internal.h"

#define SEEK_LINKS_MAX 64 /* of a node with more names not each is looked for among all */
#define STEP_ROWS 32 /* between two moments in which others get the tree */

void check_say(struct check *c, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	if (!c->o->say)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->o->say(c->o->ctx, text);
}

static uint64_t now_ns(void) { return env_mono_ns(&env_real); }

/* Keeps to the rate, tells how far it is; false: stop. */
static bool pace(void *ctx, uint64_t bytes)
{
	struct check *c = ctx;

	c->r->bytes += bytes;
	c->paced += bytes;
	while (c->o->rate && !c->r->stopped && now_ns() - c->started_ns < c->paced * 1000000000.0 / (double)c->o->rate) {
		const struct timespec t = {.tv_nsec = 10000000};
		nanosleep(&t, NULL);
		if (c->o->progress && !c->o->progress(c->o->ctx, c->row, c->rows, c->row - 1, c->r->bytes))
			c->r->stopped = true;
	}
	if (c->o->progress && !c->r->stopped && !c->o->progress(c->o->ctx, c->row, c->rows, c->row ? c->row - 1 : 0, c->r->bytes))
		c->r->stopped = true;
	return !c->r->stopped;
}

/* ---- links ---- */
/* Rows are found by columns and indexes that no seal covers; a place's record says what they must be. */
struct seek {
	uint64_t row;
	bool found;
};

static int is_it(void *ctx, const struct link_row *l)
{
	struct seek *s = ctx;

	s->found = l->row == s->row;
	return s->found;
}

static int first_is_it(void *ctx, const struct link_row *l)
{
	is_it(ctx, l);
	return 1;
}

/* -ENOENT: an index does not lead to it. */
static int find_by_indexes(struct check *c, const struct link_row *l, const struct node_row *n)
{
	struct journal *j = c->v->journal;
	struct seek by_tag = {.row = l->row}, by_parent = by_tag, by_node = by_tag;
	bool few = n->links <= SEEK_LINKS_MAX;
	uint64_t row = 0;
	int e = journal_link_by_id(j, &l->id, &row);

	if (!e && row != l->row)
		e = -ENOENT;
	if (!e && l->live)
		e = journal_links_by_tag(j, l->tag, is_it, &by_tag);
	if (!e && l->live)
		e = journal_links_of_parent(j, l->parent, l->row - 1, first_is_it, &by_parent);
	if (!e && few)
		e = journal_links_of_node(j, l->node, is_it, &by_node);
	if (!e && ((l->live && (!by_tag.found || !by_parent.found)) || (few && !by_node.found)))
		e = -ENOENT;
	return e;
}

/* -EUCLEAN: not what its record says. A record that does not open is counted with the records. */
static int agrees(struct check *c, const struct link_row *l, const struct id *parent, const struct id *node)
{
	struct part p;
	int e = part_parse(c->v->keys, l->place.p, l->place.len, true, &p);

	if (e)
		return e == -ENOMEM ? e : 0;
	if (!place_is_of(c->v, &p, l) || !id_eq(&p.place.parent, parent) || !id_eq(&p.place.node, node) || (!l->live && !l->deletions))
		e = -EUCLEAN;
	part_fini(&p);
	return e;
}

static int look_at_link(void *ctx, const struct link_row *l)
{
	struct check *c = ctx;
	struct volume *v = c->v;
	struct node_row n;
	struct id parent = {0};
	const char *why = NULL;
	bool copy = !l->place.len; /* of a conflict that only this replica shows so: it has no place of its own */
	int e = 0;

	c->row = l->row;
	c->r->links++;
	if (!copy && !(e = journal_node_get(v->journal, l->parent, &n))) {
		parent = n.id;
		why = n.type && n.type != S_IFDIR ? "its directory is of another kind" : NULL;
	}
	e = e ? e : journal_node_get(v->journal, l->node, &n);
	if (!e && !why && !copy && (e = agrees(c, l, &parent, &n.id)) == -EUCLEAN)
		why = "it does not agree with its record";
	if (!e && !why && (e = find_by_indexes(c, l, &n)) == -ENOENT)
		why = "an index does not lead to it";
	if (!why && e == -ENOENT)
		why = "its node or directory is missing";
	if (e && !why)
		return e;
	if (why) {
		c->r->bad_links++;
		check_say(c, "link %llu: %s", (unsigned long long)l->row, why);
	} else if (l->live && c->count) {
		if (l->node < c->n_count)
			c->count[l->node]++;
		if (n.type == S_IFDIR && l->parent < c->n_count)
			c->subdirs[l->parent]++;
	}
	return ++c->step >= STEP_ROWS;
}

static int check_links(struct check *c)
{
	int e = 0;

	for (bool more = true; !e && more && !c->r->stopped;) {
		c->step = 0;
		tree_lock(c->v);
		e = journal_links_from(c->v->journal, c->row, look_at_link, c);
		tree_unlock(c->v);
		more = c->step >= STEP_ROWS;
		pace(c, 0);
	}
	c->row = 0;
	return e;
}

/* ---- contents ---- */
static void file_is_bad(struct check *c, inum ino, const struct verify_result *x)
{
	char *path = NULL;

	tree_lock(c->v);
	if (node_path(c->v, ino, &path))
		path = NULL;
	tree_unlock(c->v);
	if (x->missing)
		check_say(c, "%s (inode %llu): its object is missing or another one", path ? path : "no name", (unsigned long long)ino);
	else if (x->bad_pages)
		check_say(c, "%s (inode %llu): %llu pages do not open, the first is %llu", path ? path : "no name", (unsigned long long)ino,
			  (unsigned long long)x->bad_pages, (unsigned long long)x->first_bad);
	else
		check_say(c, "%s (inode %llu): its page tags do not add up to its content: old pages were put back", path ? path : "no name",
			  (unsigned long long)ino);
	volume_mark_damaged(c->v, ino, x->first_bad);
	if (c->o->repair && !volume_heal_file(c->v, ino)) {
		c->r->healed++;
		check_say(c, "%s: healed from a peer", path ? path : "no name");
	} else {
		c->r->bad_files++;
		c->r->bad_pages += x->bad_pages;
		volume_heal_note(c->v, ino, x->first_bad);
	}
	free(path);
}

/* Whether the object that its row names is a file: read through a handle that is open already, one that was removed looks whole. */
static bool object_is_missing(struct volume *v, inum ino)
{
	struct node_row n;

	tree_lock(v);
	bool missing = !journal_node_get(v->journal, ino, &n) && n.local && !object_is_there(v->objects, n.local);
	tree_unlock(v);
	return missing;
}

static int check_file(struct check *c, inum ino)
{
	struct verify_result x;
	int e;

	c->r->files++;
	e = volume_verify_file(c->v, ino, c->o->deep, pace, c, &x);
	if (!c->o->deep)
		pace(c, x.bytes);
	if (e == -ESTALE || e == -EINVAL || e == -EISDIR || e == -ENOENT)
		return 0; /* went meanwhile */
	if (!e)
		x.missing = x.missing || object_is_missing(c->v, ino);
	if (!e && (x.bad_pages || x.missing || x.bad_entries))
		file_is_bad(c, ino, &x);
	return e == -EBADMSG ? 0 : e; /* its record does not open: counted there */
}

/* One row: 1 and whether its bytes are to be looked at. */
static int look_at_node(struct check *c, uint64_t row, bool *ret_file)
{
	struct node_row n;
	int e = journal_node_get(c->v->journal, row, &n);

	*ret_file = false;
	if (e)
		return e == -ENOENT ? 0 : e;
	*ret_file = n.type == S_IFREG && (n.local || n.derived);
	uint64_t found;
	if ((e = journal_node_by_id(c->v->journal, &n.id, &found)) || found != row) {
		if (e && e != -ENOENT)
			return e;
		c->r->bad_links++;
		check_say(c, "inode %llu: an index does not lead to it", (unsigned long long)row);
	}
	if (!c->count || row >= c->n_count || n.derived || c->v->txn != c->txn || c->v->writing)
		return 0;
	bool removed = !c->count[row] && row != ROOT_INUM; /* kept for its deletion's sake: counted 0 here, or as it came from a peer */
	uint32_t shown = n.type != S_IFDIR ? c->count[row] : removed && !n.nlink ? 0 : 2 + c->subdirs[row];
	if ((row != ROOT_INUM && c->count[row] != n.links) || (n.type && shown != n.nlink)) {
		c->r->bad_counts++;
		check_say(c, "inode %llu: %u links (link count %u) are recorded, %u (%u) are there", (unsigned long long)row, n.links, n.nlink, c->count[row], shown);
	}
	return 0;
}

static int check_nodes(struct check *c)
{
	uint64_t row[STEP_ROWS];
	uint32_t n;
	int e = 0;

	c->row = c->o->after;
	do {
		bool file[STEP_ROWS];
		tree_lock(c->v);
		e = journal_nodes_from(c->v->journal, c->row, row, STEP_ROWS, &n);
		for (uint32_t i = 0; i < n && !e; i++)
			e = look_at_node(c, row[i], &file[i]);
		tree_unlock(c->v);
		for (uint32_t i = 0; i < n && !e && !c->r->stopped; i++) {
			c->row = row[i];
			if (file[i])
				e = check_file(c, row[i]);
		}
		pace(c, 0);
	} while (!e && n == STEP_ROWS && !c->r->stopped);
	return e;
}

/* ---- objects that nothing names ---- */
static int named(struct volume *v, uint64_t local)
{
	uint64_t row, trash[256];
	uint32_t n = 0;
	int e = journal_node_by_local(v->journal, local, &row);

	if (e == -ENOENT)
		e = journal_extra_by_local(v->journal, local, &row);
	if (e == -ENOENT)
		e = journal_base_by_local(v->journal, local, &row);
	if (e == -ENOENT && !journal_trash_list(v->journal, trash, 256, &n)) {
		if (n == 256)
			return 1;
		for (uint32_t i = 0; i < n; i++)
			if (trash[i] == local)
				return 1;
	}
	return e == -ENOENT ? 0 : e ? e : 1;
}

/* Kept, not removed: nobody knows what it was. */
static void set_aside(struct check *c, int folder, const char *name)
{
	int to;

	if ((mkdirat(c->v->dirfd, "set-aside", 0700) && errno != EEXIST) ||
	    (to = openat(c->v->dirfd, "set-aside", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		return;
	if (!renameat(folder, name, to, name)) {
		c->r->set_aside++;
		c->r->orphans--;
		check_say(c, "object %s: moved to set-aside/ in the store", name);
	}
	close(to);
}

static int check_folder(struct check *c, int folder, DIR *d)
{
	struct dirent *i;
	int e = 0;

	while (e >= 0 && (i = readdir(d))) {
		char *end;
		uint64_t local = strtoull(i->d_name, &end, 16);
		if (*i->d_name == '.')
			continue;
		tree_lock(c->v);
		bool settled = local < c->v->local_floor;
		e = settled ? named(c->v, local) : 1;
		tree_unlock(c->v);
		if (e)
			continue;
		c->r->orphans++;
		check_say(c, "object %s: nothing names it", i->d_name);
		if (c->o->repair)
			set_aside(c, folder, i->d_name);
	}
	return e < 0 ? e : 0;
}

static int check_objects(struct check *c)
{
	char name[16];
	int e = 0;

	for (int i = 0; i < 256 && !e && !c->r->stopped; i++) {
		snprintf(name, sizeof name, "objects/%02x", i);
		int fd = openat(c->v->dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
		if (d) {
			e = check_folder(c, fd, d);
			closedir(d);
		} else if (fd >= 0) {
			close(fd);
		}
		pace(c, 0);
	}
	return e;
}

static void begin(struct check *c, struct volume *v, const struct check_options *o, struct check_result *ret)
{
	*ret = (struct check_result){0};
	*c = (struct check){.v = v, .o = o, .r = ret, .started_ns = now_ns()};
	tree_lock(v);
	c->txn = v->txn;
	c->rows = v->next_node;
	tree_unlock(v);
}

int volume_check_records(struct volume *v, const struct check_options *o, struct check_result *ret)
{
	struct check c;

	begin(&c, v, o, ret);
	return check_records(&c);
}

int volume_check(struct volume *v, const struct check_options *o, struct check_result *ret)
{
	struct check c;
	int e;

	begin(&c, v, o, ret);
	c.n_count = c.rows;
	if (!o->after) {
		c.count = calloc(c.n_count + 1, sizeof *c.count);
		c.subdirs = calloc(c.n_count + 1, sizeof *c.subdirs);
	}
	if (!c.subdirs) { /* without memory for counts they are not compared */
		free(c.count);
		c.count = NULL;
	}
	e = check_records(&c);
	tree_lock(v);
	c.txn = v->txn;
	tree_unlock(v);
	e = e ? e : check_links(&c);
	if (!e && !ret->stopped)
		e = check_nodes(&c);
	if (!e && !ret->stopped)
		e = check_objects(&c);
	free(c.count);
	free(c.subdirs);
	return e;
}
