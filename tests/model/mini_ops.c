/* Local calls of the small replica. What a call touches is written down first, as it is shown (design-replication 3, "write-down"):
 * displaced or brought-back links on its paths, the other claimants of a name that it frees, the untouched copies of a file that it links,
 * moves or removes. */
#include "mini_ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "seal.h"

bool mini_write_down = true;

struct mini_replica {
	struct mini m;
	uint64_t wall_ns, ids;
	struct keyring *keys;
};

static void *must(void *p)
{
	if (!p) {
		perror("out of memory");
		exit(2);
	}
	return p;
}

static void *backend_open(unsigned index)
{
	static const uint8_t master[KEY_LEN] = {1, 2, 3};
	struct id volume = {{7}};
	struct mini_replica *r = must(calloc(1, sizeof *r));

	mini_init(&r->m, index + 1);
	r->keys = must(keyring_new(master, &volume, CIPHER_XCHACHA20POLY1305));
	return r;
}

static void backend_close(void *replica)
{
	struct mini_replica *r = replica;
	keyring_free(r->keys);
	mini_fini(&r->m);
	free(r);
}

static void set_clock(void *replica, uint64_t wall_ns) { ((struct mini_replica *)replica)->wall_ns = wall_ns; }

static uint64_t parts(void *replica) { return ((struct mini_replica *)replica)->m.counter; }

/* Ids that look random but are the same in each run: the order of link ids must not follow from the replica. */
static struct id fresh_id(struct mini_replica *r)
{
	struct id seed = {{0}}, id;
	copy_node_id(&seed, (struct dot){r->m.replica, ++r->ids}, &id);
	return id;
}

/* ---- changes ---- */

static void change_place(struct mini_replica *r, const struct id *link, const struct id *node, uint32_t type, const struct id *parent,
			 const char *name, const struct id *before)
{
	struct part *p = must(calloc(1, sizeof *p));

	p->kind = PART_PLACE;
	p->id = *link;
	p->place = (struct place){.parent = *parent, .node = *node, .parent_before = *before, .type = type};
	p->place.name_len = (uint8_t)strlen(name);
	memcpy(p->place.name, name, p->place.name_len);
	mini_change(&r->m, p, r->wall_ns);
}

static void change_content(struct mini_replica *r, const struct id *node, uint64_t token)
{
	struct part *p = must(calloc(1, sizeof *p));

	p->kind = PART_CONTENT;
	p->id = *node;
	p->content.length = 8;
	p->content.bytes = must(malloc(8));
	le64_store(p->content.bytes, token);
	mini_change(&r->m, p, r->wall_ns);
}

static void change_deletion(struct mini_replica *r, const struct mini_view *v, uint32_t i)
{
	struct part *p = must(calloc(1, sizeof *p));
	const struct part *place = mini_place(&r->m, &v->link[i].id);

	p->kind = PART_DELETION;
	p->id = v->link[i].id;
	p->deletion.node = v->link[i].node;
	p->deletion.parent = v->result[i].parent;
	p->deletion.name_len = (uint8_t)v->result[i].name_len;
	memcpy(p->deletion.name, v->result[i].name, v->result[i].name_len);
	if (place && vector_add(&p->deletion.places_seen, place->stamp.dot))
		must(NULL);
	if (!S_ISDIR(v->link[i].type))
		mini_contents_seen(&r->m, &v->link[i].node, &p->deletion.contents_seen);
	mini_change(&r->m, p, r->wall_ns);
}

/* ---- write-down ---- */

static void write_link(struct mini_replica *r, const struct mini_view *v, uint32_t i)
{
	const struct shown_link *l = &v->link[i];
	const struct shown_result *s = &v->result[i];

	if (!mini_write_down || s->state != SHOWN_EXCEPTION)
		return;
	/* a second time in one call would only be another dot for the same */
	const struct part *now = mini_place(&r->m, &l->id);
	if (now && stamp_cmp(now->stamp, l->stamp) > 0)
		return;
	change_place(r, &l->id, &l->node, l->own ? l->type : S_IFREG, &s->parent, s->name, l->own ? &l->parent : &s->parent);
}

static void write_at(struct mini_replica *r, const struct mini_view *v, const char *path)
{
	for (uint32_t i = mini_at(v, path, 0); i < v->n; i = mini_at(v, path, i + 1))
		write_link(r, v, i);
}

/* Every link on the path, its last included. */
static void write_path(struct mini_replica *r, const struct mini_view *v, const char *path)
{
	char *p = must(strdup(path));

	for (size_t k = 1; *p && k <= strlen(path); k++) {
		if (path[k] && path[k] != '/')
			continue;
		p[k] = 0;
		write_at(r, v, p);
		p[k] = path[k];
	}
	free(p);
}

static size_t dir_len(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? (size_t)(slash - path) : 0;
}

static char *dir_of(const char *path) { return must(strndup(path, dir_len(path))); }

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Would link i, shown in the same directory, rather have this name? */
static bool waits_for(const struct mini_view *v, uint32_t i, const char *name)
{
	const struct shown_link *l = &v->link[i];
	const struct shown_result *s = &v->result[i];
	char other[NAME_LEN_MAX + 1];

	if (s->state != SHOWN_EXCEPTION || !strcmp(s->name, name))
		return false;
	if (l->own && !strcmp(l->name, name))
		return true;
	conflict_name(s->name, s->name_len, l->stamp.clock_ns, l->replica_name, &l->id, 8, other);
	return !strcmp(other, name);
}

/* Is i an untouched copy of node's file, or a copy of such a copy? */
static bool copy_of(const struct mini_view *v, uint32_t i, const struct id *node)
{
	for (unsigned depth = 0; depth < 100 && i < v->n && !v->link[i].own; depth++) {
		if (id_eq(&v->link[i].of, node))
			return true;
		uint32_t up = 0;
		while (up < v->n && !(id_eq(&v->link[up].node, &v->link[i].of) && !v->link[up].own))
			up++;
		i = up;
	}
	return false;
}

/* The name is going to be free, or its file goes elsewhere. */
static void write_name(struct mini_replica *r, const struct mini_view *v, const char *path)
{
	size_t dir = dir_len(path);

	for (uint32_t j = 0; j < v->n; j++)
		if (v->path[j] && dir_len(v->path[j]) == dir && !strncmp(v->path[j], path, dir) && waits_for(v, j, base_of(path)))
			write_link(r, v, j);
	for (uint32_t i = mini_at(v, path, 0); i < v->n; i = mini_at(v, path, i + 1))
		for (uint32_t j = 0; j < v->n; j++)
			if (v->path[j] && !v->link[j].own && copy_of(v, j, &v->link[i].node))
				write_link(r, v, j);
}

static void write_dir_of(struct mini_replica *r, const struct mini_view *v, const char *path)
{
	char *dir = dir_of(path);
	write_path(r, v, dir);
	free(dir);
}

static struct id parent_of(const struct mini_view *v, const char *path)
{
	char *dir = dir_of(path);
	struct id id = mini_dir(v, dir);
	free(dir);
	return id;
}

/* ---- calls ---- */

static int make(struct mini_replica *r, const char *path, uint32_t type, uint64_t token)
{
	struct mini_view v;
	struct id node = fresh_id(r), link = fresh_id(r);

	mini_view(&r->m, &v);
	write_dir_of(r, &v, path);
	if (type == S_IFREG)
		change_content(r, &node, token);
	struct id parent = parent_of(&v, path);
	change_place(r, &link, &node, type, &parent, base_of(path), &parent);
	mini_view_fini(&v);
	return 0;
}

static int backend_create(void *replica, const char *path, uint64_t token) { return make(replica, path, S_IFREG, token); }

static int backend_mkdir(void *replica, const char *path) { return make(replica, path, S_IFDIR, 0); }

static int backend_write(void *replica, const char *path, uint64_t token)
{
	struct mini_replica *r = replica;
	struct mini_view v;

	mini_view(&r->m, &v);
	uint32_t i = mini_at(&v, path, 0);
	if (i < v.n) {
		write_path(r, &v, path);
		change_content(r, &v.link[i].node, token);
	}
	int e = i < v.n ? 0 : -ENOENT;
	mini_view_fini(&v);
	return e;
}

static int backend_link(void *replica, const char *from, const char *to)
{
	struct mini_replica *r = replica;
	struct mini_view v;
	struct id link = fresh_id(r);

	mini_view(&r->m, &v);
	uint32_t i = mini_at(&v, from, 0);
	if (i < v.n) {
		write_dir_of(r, &v, to);
		write_name(r, &v, from);
		write_path(r, &v, from);
		struct id parent = parent_of(&v, to);
		change_place(r, &link, &v.link[i].node, S_IFREG, &parent, base_of(to), &parent);
	}
	int e = i < v.n ? 0 : -ENOENT;
	mini_view_fini(&v);
	return e;
}

static int backend_remove(void *replica, const char *path)
{
	struct mini_replica *r = replica;
	struct mini_view v;

	mini_view(&r->m, &v);
	uint32_t i = mini_at(&v, path, 0);
	int e = i < v.n ? 0 : -ENOENT;
	if (!e) {
		write_dir_of(r, &v, path);
		write_name(r, &v, path);
	}
	for (; i < v.n; i = mini_at(&v, path, i + 1))
		change_deletion(r, &v, i);
	mini_view_fini(&v);
	return e;
}

/* All links shown at `from` go to `to`: directories shown as one move together. */
static void move(struct mini_replica *r, const struct mini_view *v, const char *from, const char *to)
{
	struct id parent = parent_of(v, to);

	for (uint32_t i = mini_at(v, from, 0); i < v->n; i = mini_at(v, from, i + 1))
		change_place(r, &v->link[i].id, &v->link[i].node, v->link[i].own ? v->link[i].type : S_IFREG, &parent, base_of(to),
			     &v->result[i].parent);
}

static int backend_rename(void *replica, const char *from, const char *to, bool exchange)
{
	struct mini_replica *r = replica;
	struct mini_view v;

	mini_view(&r->m, &v);
	uint32_t at = mini_at(&v, to, 0);
	write_dir_of(r, &v, from);
	write_dir_of(r, &v, to);
	write_name(r, &v, from);
	if (at < v.n)
		write_name(r, &v, to);
	if (exchange)
		move(r, &v, to, from);
	else if (at < v.n)
		change_deletion(r, &v, at);
	move(r, &v, from, to);
	mini_view_fini(&v);
	return 0;
}

static int backend_list(void *replica, struct history_tree *ret)
{
	struct mini_replica *r = replica;
	struct mini_view v;

	mini_view(&r->m, &v);
	*ret = (struct history_tree){.e = must(calloc((size_t)v.n + 1, sizeof *ret->e))};
	for (uint32_t i = 0; i < v.n; i++) {
		/* of directories shown as one only the first link found */
		if (!v.path[i] || mini_at(&v, v.path[i], 0) < i)
			continue;
		uint32_t file = 0;
		while (!id_eq(&v.link[file].node, &v.link[i].node))
			file++;
		ret->e[ret->n++] =
			(struct history_entry){must(strdup(v.path[i])), v.link[i].own && S_ISDIR(v.link[i].type), v.token[i], file};
	}
	mini_view_fini(&v);
	return 0;
}

/* ---- messages ---- */

struct mini_message {
	struct buf records; /* u32 length + bytes each */
	struct vector known;
	bool partial;
};

static int backend_send(void *from, void *to, bool partial, unsigned seed, void **ret_message)
{
	struct mini_replica *r = from;
	struct mini_message *msg = must(calloc(1, sizeof *msg));
	struct buf one = {0};

	for (uint32_t i = 0; i < r->m.n; i++) {
		if (partial && rand_r(&seed) % 2)
			continue;
		one.len = 0;
		int e = part_seal(r->keys, r->m.part[i], &one);
		if (e) {
			fprintf(stderr, "a part was not sealed: %d\n", e);
			exit(2);
		}
		buf_put_u32(&msg->records, (uint32_t)one.len);
		buf_put(&msg->records, one.p, one.len);
	}
	buf_fini(&one);
	msg->partial = partial;
	if (msg->records.err || vector_copy(&msg->known, &r->m.known))
		must(NULL);
	*ret_message = msg;
	return 0;
}

/* Merges one record if its dot is not known. */
static int receive_record(struct mini_replica *r, const uint8_t *record, size_t len)
{
	struct part p;
	int e = part_parse(r->keys, record, len, false, &p);

	if (e)
		return e;
	bool known = vector_has(&r->m.known, p.stamp.dot);
	part_fini(&p);
	if (known)
		return 0;
	if ((e = part_parse(r->keys, record, len, true, &p)))
		return e;
	struct part *taken = must(malloc(sizeof *taken));
	*taken = p;
	mini_merge(&r->m, taken);
	return 0;
}

static int backend_receive(void *to, void *message, unsigned seed)
{
	struct mini_replica *r = to;
	const struct mini_message *msg = message;
	struct reader in = reader_of(msg->records.p, msg->records.len);
	const uint8_t **record = NULL;
	uint32_t n = 0, *len = NULL;
	int e = 0;

	while (in.left) {
		record = must(reallocarray(record, n + 1, sizeof *record));
		len = must(reallocarray(len, n + 1, sizeof *len));
		len[n] = read_u32(&in);
		record[n] = read_bytes(&in, len[n]);
		n++;
	}
	/* in any order */
	for (uint32_t i = n; i > 0 && !e; i--) {
		uint32_t j = (uint32_t)rand_r(&seed) % i;
		e = receive_record(r, record[j], len[j]);
		record[j] = record[i - 1];
		len[j] = len[i - 1];
	}
	if (!e && !msg->partial)
		e = vector_join(&r->m.known, &msg->known);
	free(record);
	free(len);
	return e;
}

static void backend_drop(void *message)
{
	struct mini_message *msg = message;
	buf_fini(&msg->records);
	vector_fini(&msg->known);
	free(msg);
}

static int backend_check(void *replica, unsigned seed) { return mini_check_closing(&((struct mini_replica *)replica)->m, seed); }

const struct history_backend mini_backend = {
	.open = backend_open,
	.close = backend_close,
	.set_clock = set_clock,
	.create = backend_create,
	.mkdir = backend_mkdir,
	.write = backend_write,
	.link = backend_link,
	.unlink = backend_remove,
	.rmdir = backend_remove,
	.rename = backend_rename,
	.list = backend_list,
	.send = backend_send,
	.receive = backend_receive,
	.drop = backend_drop,
	.parts = parts,
	.check = backend_check,
};
