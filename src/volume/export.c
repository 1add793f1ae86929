/* What a peer lacks: parts outside of its knowledge, read from the index of dots. A range scan for each replica, in steps under the tree
 * mutex that are short enough for everybody else; nothing is kept between calls but the cursor. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

#define STEP 32 /* records read under one hold of the lock: well below a millisecond */

struct rows {
	struct dot_row row[STEP];
	uint32_t n, max;
};

static int collect(void *ctx, const struct dot_row *d)
{
	struct rows *r = ctx;

	r->row[r->n++] = *d;
	return r->n == r->max;
}

/* The replica of `upto` that comes next, from `replica` on. */
static const struct dot *next_replica(const struct vector *upto, uint64_t replica)
{
	for (uint32_t i = 0; i < upto->n; i++)
		if (upto->e[i].replica >= replica)
			return &upto->e[i];
	return NULL;
}

static int append(struct volume *v, const struct dot_row *d, struct buf *out)
{
	struct buf record = {0};
	int e = record_by_dot(v, d, &record);

	if (!e) {
		buf_put_u32(out, (uint32_t)record.len);
		buf_put(out, record.p, record.len);
		e = out->err;
	}
	buf_fini(&record);
	return e;
}

/* One step of one replica. *ret_more: it may have more. */
static int list_step(struct volume *v, uint64_t replica, uint64_t after, uint64_t upto, uint32_t max_rows, size_t max_bytes,
	struct part_cursor *cursor, struct buf *out, size_t start, uint32_t *rows, bool *ret_more)
{
	struct rows r = {.max = max_rows - *rows < STEP ? max_rows - *rows : STEP};
	int e = journal_dots(v->journal, replica, after, upto, collect, &r);

	*ret_more = r.n == r.max;
	for (uint32_t i = 0; i < r.n && !e; i++) {
		if (*rows && out->len - start >= max_bytes) {
			*ret_more = true;
			break;
		}
		e = append(v, &r.row[i], out);
		if (!e)
			++*rows;
		e = e == -ENOENT ? 0 : e;
		if (!e)
			cursor->counter = r.row[i].dot.counter;
	}
	return e;
}

int volume_list_parts(struct volume *v, const struct vector *have, const struct vector *upto, struct part_cursor *cursor, uint32_t max_rows,
		      size_t max_bytes, struct buf *out, uint32_t *ret_rows)
{
	size_t start = out->len;
	uint32_t rows = 0;
	int e = 0;

	while (!e && !cursor->done && rows < max_rows && (!rows || out->len - start < max_bytes)) {
		const struct dot *d = next_replica(upto, cursor->replica);
		bool more = false;
		if (!d) {
			cursor->done = true;
			break;
		}
		if (d->replica != cursor->replica)
			*cursor = (struct part_cursor){.replica = d->replica};
		uint64_t had = vector_get(have, d->replica), after = cursor->counter > had ? cursor->counter : had;
		if (after < d->counter) {
			tree_lock(v);
			e = list_step(v, d->replica, after, d->counter, max_rows, max_bytes, cursor, out, start, &rows, &more);
			tree_unlock(v);
		}
		if (e || more)
			continue;
		if (d->replica == UINT64_MAX)
			cursor->done = true;
		else
			*cursor = (struct part_cursor){.replica = d->replica + 1};
	}
	if (e)
		return e;
	*ret_rows = rows;
	return 0;
}

/* ---- backlog ---- */
#define COUNT_STEP 256
#define COUNT_MAX 20000  /* rows counted a call; what is beyond is estimated from the counters */
#define SIZES_MAX 64     /* contents whose size is looked up where it is not in memory; the others count as the average */

struct counting {
	struct volume *v;
	struct backlog *b;
	uint64_t last;
	uint32_t step, rows, loaded;
	uint64_t sized_files, sized_bytes;
	struct dot_row first;
	inum file[COUNT_STEP];
	uint32_t n_file;
};

static int count_row(void *ctx, const struct dot_row *d)
{
	struct counting *c = ctx;

	if (!c->rows)
		c->first = *d;
	c->last = d->dot.counter;
	c->rows++;
	c->b->parts++;
	if (d->kind == PART_CONTENT) {
		c->b->files++;
		c->file[c->n_file++] = d->owner;
	}
	return ++c->step == COUNT_STEP;
}

static void add_sizes(struct counting *c)
{
	for (uint32_t i = 0; i < c->n_file; i++) {
		struct vnode *n = vnode_cached(c->v, c->file[i]);
		if (!n && (c->loaded == SIZES_MAX || vnode_get(c->v, c->file[i], &n)))
			continue;
		c->loaded++;
		c->sized_files++;
		c->sized_bytes += n->size;
	}
	c->n_file = 0;
}

static uint64_t clock_of(struct volume *v, const struct dot_row *d)
{
	struct buf record = {0};
	struct part p = {0};
	uint64_t clock = 0;

	if (!record_by_dot(v, d, &record) && !part_parse(v->keys, record.p, record.len, false, &p))
		clock = p.stamp.clock_ns;
	part_fini(&p);
	buf_fini(&record);
	return clock;
}

static int count_replica(struct counting *c, uint64_t replica, uint64_t after, uint64_t upto)
{
	struct volume *v = c->v;
	int e = 0;

	c->rows = 0;
	do {
		c->step = 0;
		tree_lock(v);
		e = journal_dots(v->journal, replica, after, upto, count_row, c);
		if (!e)
			add_sizes(c);
		if (!e && c->rows && c->rows == c->step) {
			uint64_t clock = clock_of(v, &c->first);
			if (clock && (!c->b->oldest_ns || clock < c->b->oldest_ns))
				c->b->oldest_ns = clock;
		}
		tree_unlock(v);
		after = c->last;
	} while (!e && c->step == COUNT_STEP && c->b->parts < COUNT_MAX);
	if (!e && c->step == COUNT_STEP && upto > after)
		c->b->parts += upto - after;
	return e;
}

int volume_backlog(struct volume *v, const struct vector *have, struct backlog *ret)
{
	struct vector upto;
	struct backlog b = {0};
	struct counting *c = calloc(1, sizeof *c);
	int e = c ? volume_knowledge(v, &upto) : -ENOMEM;

	if (e) {
		free(c);
		return e;
	}
	c->v = v;
	c->b = &b;
	for (uint32_t i = 0; i < upto.n && !e; i++) {
		uint64_t had = vector_get(have, upto.e[i].replica);
		if (had < upto.e[i].counter)
			e = count_replica(c, upto.e[i].replica, had, upto.e[i].counter);
	}
	if (!e) {
		b.bytes = c->sized_files ? (uint64_t)((double)c->sized_bytes / (double)c->sized_files * (double)b.files) : 0;
		*ret = b;
	}
	vector_fini(&upto);
	free(c);
	return e;
}
