/* The parts of the small replica: what is held, and which links follow from it. */
#include "mini.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define NO_MEMORY(p)                                \
	do {                                        \
		if (!(p)) {                         \
			perror("out of memory");    \
			exit(2);                    \
		}                                   \
	} while (0)

void mini_init(struct mini *m, uint64_t replica) { *m = (struct mini){.replica = replica}; }

void mini_fini(struct mini *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		part_fini(m->part[i]);
		free(m->part[i]);
	}
	free(m->part);
	free(m->before);
	free(m->unusual);
	vector_fini(&m->known);
}

void mini_replica_name(uint64_t replica, char ret_name[static 33]) { snprintf(ret_name, 33, "%c", (char)('A' + (int)(replica - 1) % 26)); }

static int part_cmp(const struct part *p, uint8_t kind, const struct id *id)
{
	return p->kind != kind ? (p->kind < kind ? -1 : 1) : id_cmp(&p->id, id);
}

/* First part that is not before (kind, id). */
static uint32_t lower(const struct mini *m, uint8_t kind, const struct id *id)
{
	uint32_t lo = 0, hi = m->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (part_cmp(m->part[mid], kind, id) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static uint32_t count(const struct mini *m, uint32_t at, uint8_t kind, const struct id *id)
{
	uint32_t n = 0;

	while (at + n < m->n && !part_cmp(m->part[at + n], kind, id))
		n++;
	return n;
}

static void insert(struct mini *m, uint32_t at, struct part *p)
{
	if (m->n == m->cap) {
		m->cap = m->cap ? m->cap * 2 : 64;
		NO_MEMORY(m->part = reallocarray(m->part, m->cap, sizeof *m->part));
	}
	memmove(m->part + at + 1, m->part + at, (m->n - at) * sizeof *m->part);
	m->part[at] = p;
	m->n++;
}

static void drop(struct mini *m, uint32_t at)
{
	part_fini(m->part[at]);
	free(m->part[at]);
	memmove(m->part + at, m->part + at + 1, (m->n - at - 1) * sizeof *m->part);
	m->n--;
}

static struct version version_of(const struct part *p)
{
	return (struct version){.stamp = p->stamp, .vector = &p->vector, .apart = &p->apart};
}

static void merge_set(struct mini *m, uint32_t at, uint32_t n, struct part *p)
{
	struct version *held = calloc(n + 1, sizeof *held);
	bool *dropped = calloc(n + 1, sizeof *dropped);
	struct version new = version_of(p);

	NO_MEMORY(held && dropped ? held : NULL);
	for (uint32_t i = 0; i < n; i++)
		held[i] = version_of(m->part[at + i]);
	if (set_merge(held, n, NULL, 0, &new, dropped)) {
		for (uint32_t i = n; i-- > 0;)
			if (dropped[i])
				drop(m, at + i);
		insert(m, at, p);
	} else {
		part_fini(p);
		free(p);
	}
	free(held);
	free(dropped);
}

static void merge_maximum(struct mini *m, uint32_t at, uint32_t n, struct part *p)
{
	if (n && stamp_cmp(m->part[at]->stamp, p->stamp) >= 0) {
		part_fini(p);
		free(p);
		return;
	}
	if (n)
		drop(m, at);
	insert(m, at, p);
}

void mini_merge(struct mini *m, struct part *p)
{
	uint32_t at = lower(m, p->kind, &p->id), n = count(m, at, p->kind, &p->id);

	if (m->last_ns < p->stamp.clock_ns)
		m->last_ns = p->stamp.clock_ns;
	if (p->kind == PART_CONTENT || p->kind == PART_DELETION)
		merge_set(m, at, n, p);
	else
		merge_maximum(m, at, n, p);
}

const struct part *mini_place(const struct mini *m, const struct id *link)
{
	uint32_t at = lower(m, PART_PLACE, link);
	return count(m, at, PART_PLACE, link) ? m->part[at] : NULL;
}

/* ---- contents and their copies ---- */

/* The contents of one file: own parts, and where it is a copy the losing content that it is of. */
struct file {
	struct id node, of, copy_link;
	bool is_copy; /* it holds a derived content */
	const struct part **held;
	uint32_t n, own; /* held[0 .. own) are its own parts */
};
struct files {
	struct file *f;
	uint32_t n, cap;
};
static const struct vector no_vector;

static struct file *file_of(struct files *fs, const struct mini *m, const struct id *node)
{
	for (uint32_t i = 0; i < fs->n; i++)
		if (id_eq(&fs->f[i].node, node))
			return &fs->f[i];
	if (fs->n == fs->cap) {
		fs->cap = fs->cap ? fs->cap * 2 : 64;
		NO_MEMORY(fs->f = reallocarray(fs->f, fs->cap, sizeof *fs->f));
	}
	struct file *f = &fs->f[fs->n++];
	uint32_t at = lower(m, PART_CONTENT, node);
	*f = (struct file){.node = *node, .own = count(m, at, PART_CONTENT, node)};
	NO_MEMORY(f->held = calloc(f->own + 8, sizeof *f->held));
	for (; f->n < f->own; f->n++)
		f->held[f->n] = m->part[at + f->n];
	return f;
}

static struct version file_version(const struct file *f, uint32_t i)
{
	struct version v = {.stamp = f->held[i]->stamp, .vector = &no_vector};
	return i < f->own ? version_of(f->held[i]) : v;
}

static uint32_t file_winner(const struct file *f)
{
	struct version v[64];
	uint32_t n = f->n < 64 ? f->n : 64;

	for (uint32_t i = 0; i < n; i++)
		v[i] = file_version(f, i);
	return set_winner(v, n);
}

/* Adds content d of `node` to its copy, unless the copy's own contents supersede it. */
static void derive(struct files *fs, const struct mini *m, const struct id *node, const struct part *d, bool *changed)
{
	struct id copy, of = *node;

	copy_node_id(&of, d->stamp.dot, &copy);
	struct file *f = file_of(fs, m, &copy);
	for (uint32_t i = 0; i < f->n; i++) {
		struct version v = file_version(f, i);
		if (dot_eq(v.stamp.dot, d->stamp.dot) || version_supersedes(&v, d->stamp.dot))
			return;
	}
	f->held[f->n++] = d; /* one a copy: the dot is in its id */
	f->is_copy = true;
	f->of = of;
	copy_link_id(&of, d->stamp.dot, &f->copy_link);
	*changed = true;
}

static void all_files(const struct mini *m, struct files *fs)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (m->part[i]->kind == PART_CONTENT)
			file_of(fs, m, &m->part[i]->id);
	for (bool changed = true; changed;) {
		changed = false;
		for (uint32_t i = 0; i < fs->n; i++) {
			uint32_t w = fs->f[i].n ? file_winner(&fs->f[i]) : 0, n = fs->f[i].n;
			struct id node = fs->f[i].node;
			for (uint32_t k = 0; k < n; k++)
				if (k != w)
					derive(fs, m, &node, fs->f[i].held[k], &changed);
		}
	}
}

static void files_fini(struct files *fs)
{
	for (uint32_t i = 0; i < fs->n; i++)
		free(fs->f[i].held);
	free(fs->f);
}

static const struct file *find_file(const struct files *fs, const struct id *node)
{
	for (uint32_t i = 0; i < fs->n; i++)
		if (id_eq(&fs->f[i].node, node))
			return fs->f[i].n ? &fs->f[i] : NULL;
	return NULL;
}

void mini_contents_seen(const struct mini *m, const struct id *node, struct vector *ret)
{
	struct files fs = {0};
	const struct file *f;

	all_files(m, &fs);
	*ret = (struct vector){0};
	f = find_file(&fs, node);
	for (uint32_t i = 0; f && i < f->n; i++) {
		struct version v = file_version(f, i);
		if (vector_join(ret, v.vector) || vector_add(ret, v.stamp.dot))
			NO_MEMORY(NULL);
	}
	files_fini(&fs);
}

/* Vector and apart of the next version of p's set. */
static void next_version(const struct mini *m, struct part *p)
{
	struct files fs = {0};
	struct version v[64];
	uint32_t n = 0, base = 0;

	if (p->kind == PART_CONTENT) {
		all_files(m, &fs);
		const struct file *f = find_file(&fs, &p->id);
		for (; f && n < f->n && n < 64; n++)
			v[n] = file_version(f, n);
		base = n ? set_winner(v, n) : 0;
		if (set_next(v, n, NULL, base, &p->vector, &p->apart))
			NO_MEMORY(NULL);
	} else {
		struct dots apart = {0};
		uint32_t at = lower(m, p->kind, &p->id), all = count(m, at, p->kind, &p->id);
		for (; n < all && n < 64; n++)
			v[n] = version_of(m->part[at + n]);
		if (set_next(v, n, NULL, base, &p->vector, &apart))
			NO_MEMORY(NULL);
		dots_fini(&apart); /* a deletion supersedes all that came before */
	}
	files_fini(&fs);
}

void mini_change_as(struct mini *m, struct part *p, uint64_t clock_ns, uint64_t counter)
{
	next_version(m, p);
	m->last_ns = clock_ns;
	m->counter = counter;
	p->stamp = (struct stamp){clock_ns, {m->replica, counter}};
	p->opened = true;
	if (vector_add(&m->known, p->stamp.dot))
		NO_MEMORY(NULL);
	mini_merge(m, p);
}

void mini_change(struct mini *m, struct part *p, uint64_t now_ns)
{
	mini_change_as(m, p, clock_next(m->last_ns, now_ns), m->counter + 1);
}

/* ---- links ---- */

static void apply_deletions(const struct mini *m, struct shown_link *l)
{
	uint32_t at = lower(m, PART_DELETION, &l->id), n = count(m, at, PART_DELETION, &l->id);

	l->covered = false;
	for (uint32_t i = at; i < at + n; i++) {
		const struct part *d = m->part[i];
		if (stamp_cmp(d->stamp, l->deleted) > 0)
			l->deleted = d->stamp;
		if (!l->own || vector_has(&d->deletion.places_seen, l->stamp.dot))
			l->covered = true;
	}
}

/* Have all deletions of the node's links together not seen the content that the file has now? */
static bool content_unseen(const struct mini *m, const struct shown_link *l, uint32_t n, const struct id *node, struct dot content)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!id_eq(&l[i].node, node))
			continue;
		uint32_t at = lower(m, PART_DELETION, &l[i].id), k = count(m, at, PART_DELETION, &l[i].id);
		for (uint32_t d = at; d < at + k; d++)
			if (vector_has(&m->part[d]->deletion.contents_seen, content))
				return false;
	}
	return true;
}

static void own_link(const struct part *p, struct shown_link *l)
{
	*l = (struct shown_link){.id = p->id,
				 .node = p->place.node,
				 .parent = p->place.parent,
				 .parent_before = p->place.parent_before,
				 .stamp = p->stamp,
				 .type = p->place.type,
				 .own = true,
				 .name_len = p->place.name_len};
	memcpy(l->name, p->place.name, sizeof l->name);
}

struct shown_link *mini_links(const struct mini *m, uint32_t *ret_n, uint64_t **ret_token)
{
	struct files fs = {0};
	uint32_t n = 0;

	all_files(m, &fs);
	struct shown_link *l = calloc((size_t)m->n + fs.n + 1, sizeof *l);
	uint64_t *token = calloc((size_t)m->n + fs.n + 1, sizeof *token);
	NO_MEMORY(l && token ? l : NULL);
	for (uint32_t i = 0; i < m->n; i++)
		if (m->part[i]->kind == PART_PLACE)
			own_link(m->part[i], &l[n++]);
	for (uint32_t i = 0; i < fs.n; i++) {
		const struct file *f = &fs.f[i];
		if (!f->is_copy || mini_place(m, &f->copy_link))
			continue;
		l[n++] = (struct shown_link){.id = f->copy_link, .node = f->node, .stamp = f->held[f->n - 1]->stamp, .of = f->of};
	}
	for (uint32_t i = 0; i < n; i++) {
		mini_replica_name(l[i].stamp.dot.replica, l[i].replica_name);
		apply_deletions(m, &l[i]);
		l[i].complete = l[i].own && S_ISDIR(l[i].type);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct file *f = find_file(&fs, &l[i].node);
		if (l[i].complete || !f)
			continue;
		const struct part *w = f->held[file_winner(f)];
		l[i].complete = true;
		l[i].content_unseen = content_unseen(m, l, n, &l[i].node, w->stamp.dot);
		token[i] = le64_load(w->content.bytes);
	}
	files_fini(&fs);
	*ret_n = n;
	if (ret_token)
		*ret_token = token;
	else
		free(token);
	return l;
}
