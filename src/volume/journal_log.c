/* The journal, readable: what `twofold log` prints. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

#define STEP 128 /* entries taken under the lock at a time */

struct line {
	struct journal_entry e;
	struct dot_row row;
	char *path, *detail; /* owned */
};
struct step {
	struct volume *v;
	struct line line[STEP];
	uint32_t n;
};

static int collect(void *ctx, const struct dot_row *d)
{
	struct step *s = ctx;

	if (s->n == STEP || d->seq > s->v->seq)
		return 1;
	s->line[s->n++].row = *d;
	return 0;
}

static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *format, ...)
{
	va_list ap;
	char *s = NULL;

	va_start(ap, format);
	if (vasprintf(&s, format, ap) < 0)
		s = NULL;
	va_end(ap);
	return s;
}

/* Directory's path and a name; NULL where the directory is not shown. */
static char *path_under(struct volume *v, const struct id *parent, const char *name)
{
	struct vnode *dir;
	char *up;

	if (vnode_by_id(v, parent, &dir) || node_path(v, dir->row, &up))
		return NULL;
	char *path = *up ? text("%s/%s", up, name) : text("%s", name);
	free(up);
	return path;
}

static void describe_content(struct volume *v, struct line *l, const struct part *p)
{
	struct step_row s;
	const struct content *c = &p->content;

	if (c->is_object && !journal_step_get(v->journal, l->row.owner, &s) && dot_eq(s.to, p->stamp.dot)) {
		struct extents x;
		struct reader r = reader_of(s.ranges.p, s.ranges.len);
		if (!extents_read(&r, &x)) {
			l->detail = text("content %llu bytes, %llu pages changed", (unsigned long long)c->length,
				(unsigned long long)extents_pages(&x));
			extents_fini(&x);
			return;
		}
	}
	l->detail = text("content %llu bytes", (unsigned long long)c->length);
}

static void describe(struct volume *v, struct line *l, const struct part *p)
{
	switch (p->kind) {
	case PART_PLACE:
		l->path = path_under(v, &p->place.parent, p->place.name);
		l->detail = text(p->vector.n ? "rename" : "create");
		return;
	case PART_DELETION:
		l->path = path_under(v, &p->deletion.parent, p->deletion.name);
		l->detail = text("delete");
		return;
	case PART_CONTENT:
		describe_content(v, l, p);
		break;
	case PART_ATTRS:
		l->detail = text("attributes mode %04o uid %u gid %u", p->attrs.mode & 07777, p->attrs.uid, p->attrs.gid);
		break;
	case PART_TIMES:
		l->detail = text("times");
		break;
	case PART_MEMBER:
		l->detail = text("member %s%s", p->member.name, p->member.removed ? " removed" : "");
		return;
	case PART_CONSENT:
		l->detail = text("held deletions are carried out");
		return;
	default:
		l->detail = text("kind %u, unknown here", p->kind);
		return;
	}
	if (node_path(v, l->row.owner, &l->path))
		l->path = NULL;
}

static void fill(struct volume *v, struct line *l)
{
	struct buf record = {0};
	struct part p;

	l->e = (struct journal_entry){.seq = l->row.seq, .kind = l->row.kind, .stamp = {.dot = l->row.dot}};
	if (!record_by_dot(v, &l->row, &record) && !part_parse(v->keys, record.p, record.len, true, &p)) {
		l->e.id = p.id;
		l->e.stamp = p.stamp;
		describe(v, l, &p);
		part_fini(&p);
	}
	buf_fini(&record);
	l->e.path = l->path;
	l->e.detail = l->detail ? l->detail : "";
}

int volume_log(struct volume *v, uint64_t after_seq, journal_fn *fn, void *ctx)
{
	struct step *s = calloc(1, sizeof *s);
	bool more = true;
	int e = 0;

	if (!s)
		return -ENOMEM;
	s->v = v;
	while (more && !e) {
		s->n = 0;
		tree_lock(v);
		e = journal_dots_by_seq(v->journal, after_seq, collect, s);
		for (uint32_t i = 0; i < s->n && !e; i++)
			fill(v, &s->line[i]);
		tree_unlock(v);
		if (!s->n)
			more = false;
		for (uint32_t i = 0; i < s->n; i++) {
			struct line *l = &s->line[i];
			if (more && !e)
				more = fn(ctx, &l->e);
			after_seq = l->row.seq;
			free(l->path);
			free(l->detail);
			*l = (struct line){0};
		}
	}
	free(s);
	return e;
}
