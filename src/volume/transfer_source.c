/* The sender of one content. Choice of the form, cheapest first:
 *   ranges  the receiver holds the version at which our step began, or one that our own changes made after it
 *   delta   it holds the base that we keep for this node, or another content that is much like it (transfer_similar.c)
 *   whole   from the page it has not got yet
 * A content that changes while it is sent must not be mixed: every change of a page changes the object's root, for good, since nonces
 * never repeat. So the root is compared before each chunk leaves; -ESTALE where it is not that of the record. */
#include "transfer_internal.h"

#include <errno.h>
#include <librsync.h>
#include <stdlib.h>

#define GROUP_BYTES ((size_t)TRANSFER_RUN_PAGES * PAGE_LEN)
#define DELTA_OUT_BYTES 32768
#define SIGNATURE_BLOCKS 262144
#define STRONG_LEN 16
#define NEAR_PAGES_MIN 16u    /* smaller contents are not worth a look for what they are like */
#define NEAR_RANGES_MIN 256u  /* nor are fewer pages that ranges would send */

struct transfer_source {
	struct transfer_env e;
	enum content_form form;
	struct id node;
	struct dot dot;
	struct transfer_content c, base;
	struct held_content held; /* base as the receiver holds it; RANGES, DELTA */
	struct page_stream stream, base_stream;
	uint64_t next; /* WHOLE: rank of the next page in the stream; DELTA: of the next group; RANGES: page */
	uint64_t first_page;
	struct extents ranges;
	bool started, finished;
	uint64_t sent_bytes, content_bytes;
	/* DELTA */
	rs_signature_t *signature;
	rs_job_t *job;
	uint8_t *in; /* owned: plaintext of one group */
	size_t in_at, in_len;
};

enum content_form transfer_source_form(const struct transfer_source *s) { return s->form; }

uint64_t transfer_source_saved(const struct transfer_source *s)
{
	if (s->form == FORM_WHOLE || s->content_bytes < s->sent_bytes)
		return 0;
	return s->content_bytes - s->sent_bytes;
}

void transfer_source_close(struct transfer_source *s)
{
	if (!s)
		return;
	if (s->finished)
		stats_add(s->e.stats, COUNT_DELTA_BYTES_SAVED, transfer_source_saved(s));
	if (s->job)
		rs_job_free(s->job);
	if (s->signature)
		rs_free_sumset(s->signature);
	page_stream_fini(&s->stream);
	page_stream_fini(&s->base_stream);
	extents_fini(&s->ranges);
	transfer_content_fini(&s->c);
	transfer_content_fini(&s->base);
	free(s->in);
	free(s);
}

static int check_root(const struct transfer_content *c)
{
	struct page_map map;
	struct root root;

	object_map(c->object, &map, &root);
	extents_fini(&map.holes);
	return root_eq(&root, &c->content.root) ? 0 : -ESTALE;
}

/* Does the receiver hold something that the step's ranges build on? */
static const struct held_content *find_step_base(const struct transfer_source *s, struct dot from, struct dot to, const struct held_content *held,
						 uint32_t n)
{
	const struct held_content *best = NULL;

	for (uint32_t i = 0; i < n; i++) {
		struct dot d = held[i].dot;
		if (!id_eq(&held[i].node, &s->node))
			continue;
		if (dot_eq(d, from))
			return &held[i];
		/* One replica's versions of a content follow one another; where a peer's came between, the root will tell. */
		if (d.replica == from.replica && d.replica == to.replica && d.counter > from.counter && d.counter < to.counter)
			best = &held[i];
	}
	return best;
}

/* 1: taken. */
static int try_ranges(struct transfer_source *s, const struct transfer_lookup *l, const struct held_content *held, uint32_t n)
{
	struct extents step = {0};
	struct dot from, to;
	const struct held_content *h = NULL;
	uint64_t pages = 0;
	int r = l->step ? l->step(l->ctx, &s->node, &from, &to, &step) : -ENOENT;

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (dot_eq(to, s->dot))
		h = find_step_base(s, from, to, held, n);
	for (uint32_t i = 0; h && i < s->stream.n; i++) {
		uint64_t at = s->stream.run[i].page, end = at + s->stream.run[i].count;
		struct extent x;
		while (at < end && (x = extents_next(&step, at)).count && x.first < end) {
			uint64_t stop = x.first + x.count < end ? x.first + x.count : end;
			r = extents_add(&s->ranges, x.first, stop - x.first);
			if (r < 0) {
				extents_fini(&step);
				return r;
			}
			pages += stop - x.first;
			at = stop;
		}
	}
	extents_fini(&step);
	if (!h || (pages && pages >= s->stream.pages))
		return 0;
	s->form = FORM_RANGES;
	s->held = *h;
	return 1;
}

static int try_delta(struct transfer_source *s, const struct transfer_lookup *l, const struct held_content *held, uint32_t n)
{
	struct id base_node;
	struct dot dot;
	int r;

	if (s->stream.pages < TRANSFER_DELTA_PAGES_MIN || s->stream.pages > TRANSFER_DELTA_PAGES_MAX)
		return 0;
	r = l->base ? l->base(l->ctx, &s->node, &base_node, &dot, &s->base) : -ENOENT;
	if (r < 0)
		return r == -ENOENT || r == -ESTALE ? 0 : r;
	for (uint32_t i = 0; i < n && s->base.object; i++) {
		if (!id_eq(&held[i].node, &base_node) || !dot_eq(held[i].dot, dot) || !root_eq(&held[i].root, &s->base.content.root))
			continue;
		if (check_root(&s->base) < 0)
			break;
		r = page_stream_init(&s->base_stream, &s->base.content, s->base.object);
		if (r < 0)
			return r;
		if (s->base_stream.pages < TRANSFER_DELTA_PAGES_MIN || s->base_stream.pages > TRANSFER_DELTA_PAGES_MAX)
			break;
		s->form = FORM_DELTA;
		s->held = held[i];
		return 1;
	}
	page_stream_fini(&s->base_stream);
	transfer_content_fini(&s->base);
	return 0;
}

/* ---- other bases ---- */
struct nearby {
	struct held_content name[SIMILAR_MAX];
	struct transfer_content c[SIMILAR_MAX]; /* owned */
	struct page_stream stream[SIMILAR_MAX]; /* owned */
	uint32_t n;
};

static void nearby_fini(struct nearby *x)
{
	for (uint32_t i = 0; i < x->n; i++) {
		page_stream_fini(&x->stream[i]);
		transfer_content_fini(&x->c[i]);
	}
}

static bool nearby_has(const struct nearby *x, const struct held_content *h)
{
	for (uint32_t i = 0; i < x->n; i++)
		if (dot_eq(x->name[i].dot, h->dot) && id_eq(&x->name[i].node, &h->node))
			return true;
	return false;
}

/* Adds a content if it is here, and is what the receiver calls so. */
static int nearby_add(struct transfer_source *s, const struct transfer_lookup *l, const struct held_content *h, bool by_root, struct nearby *x)
{
	struct transfer_content *c = &x->c[x->n];
	struct page_stream *p = &x->stream[x->n];

	if (x->n == SIMILAR_MAX || nearby_has(x, h) || (dot_eq(h->dot, s->dot) && id_eq(&h->node, &s->node)))
		return 0;
	int r = l->find(l->ctx, &h->node, h->dot, c);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	*p = (struct page_stream){0};
	if (!c->object || (by_root && !root_eq(&h->root, &c->content.root)) || check_root(c) < 0)
		r = -ESTALE;
	r = r ? r : page_stream_init(p, &c->content, c->object);
	/* all of a base is read: one that is far longer than what it could save does not pay */
	if (!r && (p->pages < NEAR_PAGES_MIN || p->pages > TRANSFER_DELTA_PAGES_MAX || p->pages / 16 > s->stream.pages + NEAR_RANGES_MIN))
		r = -ESTALE;
	if (r) {
		page_stream_fini(p);
		transfer_content_fini(c);
		return r == -ENOMEM ? r : 0;
	}
	x->name[x->n] = (struct held_content){h->node, h->dot, c->content.root};
	x->n++;
	return 0;
}

/* From a page on, where it is in no hole. */
static uint64_t rank_of(const struct page_stream *s, uint64_t page)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (page < s->run[i].page + s->run[i].count)
			return s->run[i].rank + (page > s->run[i].page ? page - s->run[i].page : 0);
	return s->pages;
}

/* 1: a delta against one of them is chosen. page: the first that would have to be sent otherwise. */
static int try_near(struct transfer_source *s, const struct transfer_lookup *l, const struct transfer_bases *b, uint64_t page)
{
	struct nearby *x;
	int r = 0, best = -1;

	if (!(b->n_held + b->n_near) || s->stream.pages < NEAR_PAGES_MIN || s->stream.pages > TRANSFER_DELTA_PAGES_MAX)
		return 0;
	if (!(x = calloc(1, sizeof *x)))
		return -ENOMEM;
	uint64_t began = stats_now_ns();
	for (uint32_t i = 0; !r && i < b->n_held; i++)
		r = nearby_add(s, l, &b->held[i], true, x);
	for (uint32_t i = 0; !r && i < b->n_near; i++)
		r = nearby_add(s, l, &b->near[i], false, x);
	if (!r && x->n)
		r = similar_choose(&s->stream, rank_of(&s->stream, page), x->stream, x->n, &best);
	if (!r && best >= 0) {
		s->form = FORM_DELTA;
		s->held = x->name[best];
		s->base = x->c[best];
		s->base_stream = x->stream[best];
		x->c[best] = (struct transfer_content){0};
		x->stream[best] = (struct page_stream){0};
		r = 1;
	}
	nearby_fini(x);
	free(x);
	stats_since(s->e.stats, STAGE_DELTA, began);
	return r;
}

static int choose(struct transfer_source *s, const struct transfer_lookup *l, const struct transfer_bases *b, unsigned forms, uint64_t resume_page)
{
	uint64_t ranges_page = forms & FORM_RESUME_RANGES ? resume_page : 0, whole_page = resume_page - ranges_page;
	/* What is there already beats building it anew, where it is much. */
	bool delta = forms & FORM_DELTA && whole_page < s->stream.pages / 2;
	int r = 0;

	if (forms & FORM_RANGES)
		r = try_ranges(s, l, b->held, b->n_held);
	if (r == 1 && ranges_page && id_eq(&s->held.node, &b->held[0].node) && dot_eq(s->held.dot, b->held[0].dot)) {
		s->next = s->first_page = ranges_page;
		return 0;
	}
	/* Much is to be sent: the next piece of a file that is being written. It may be like another file as well. */
	if (r == 1 && delta && extents_pages(&s->ranges) >= NEAR_RANGES_MIN) {
		int near = try_near(s, l, b, s->ranges.e[0].first);
		if (near)
			return near < 0 ? near : 0;
	}
	if (r == 0 && delta)
		r = try_delta(s, l, b->held, b->n_held);
	if (r == 0 && delta)
		r = try_near(s, l, b, 0);
	if (r)
		return r < 0 ? r : 0;
	if (!(forms & FORM_WHOLE))
		return -EOPNOTSUPP;
	s->form = FORM_WHOLE;
	/* Leading pages are counted up to the first hole: there a page number is its rank. */
	s->next = s->stream.n && s->stream.run[0].page == 0 ? whole_page : 0;
	if (s->next > (s->stream.n ? s->stream.run[0].count : 0))
		s->next = s->stream.n ? s->stream.run[0].count : 0;
	s->first_page = s->next;
	return 0;
}

int transfer_source_open(const struct transfer_env *e, const struct transfer_lookup *l, const struct id *node, struct dot dot,
			 const struct transfer_bases *bases, unsigned forms, uint64_t resume_page, struct transfer_source **ret)
{
	struct transfer_source *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return -ENOMEM;
	transfer_quiet_librsync();
	s->e = *e;
	s->node = *node;
	s->dot = dot;
	r = l->find(l->ctx, node, dot, &s->c);
	if (r == 0 && !s->c.object)
		r = -EINVAL;
	if (r == 0)
		r = check_root(&s->c);
	if (r == 0)
		r = page_stream_init(&s->stream, &s->c.content, s->c.object);
	if (r == 0)
		r = choose(s, l, bases, forms, resume_page);
	if (r < 0) {
		transfer_source_close(s);
		return r;
	}
	s->content_bytes = s->stream.pages * PAGE_LEN;
	*ret = s;
	return 0;
}

static bool goes_on(const struct transfer_source *s) { return s->form == FORM_RANGES && s->first_page; }

static void put_header(struct transfer_source *s, struct buf *out)
{
	const struct content *c = &s->c.content;

	buf_put_u8(out, (uint8_t)s->form);
	buf_put(out, s->node.b, ID_LEN);
	buf_put_u64(out, s->dot.replica);
	buf_put_u64(out, s->dot.counter);
	buf_put(out, c->object.b, ID_LEN);
	buf_put_u32(out, c->epoch);
	buf_put_u64(out, c->length);
	buf_put(out, c->root.b, ROOT_LEN);
	if (s->form == FORM_WHOLE)
		buf_put_u64(out, s->first_page);
	else
		base_put(out, &s->held);
	if (goes_on(s))
		buf_put_u64(out, s->first_page);
}

static int put_pages(struct transfer_source *s, uint64_t first, uint32_t n, struct buf *out)
{
	uint8_t entries[TRANSFER_RUN_PAGES * TAG_ENTRY_LEN];
	size_t tags = out->len, at;
	int r;

	buf_put_u8(out, ITEM_PAGES);
	buf_put_u64(out, first);
	buf_put_u8(out, (uint8_t)n);
	/* The sealed pages are read to where they stay, the nonces only known then: room for the longest form of those is kept before them. */
	size_t head_max = 1 + (size_t)n * (NONCE_LEN + 1) + (size_t)n * PAGE_TAG_LEN;
	at = out->len;
	uint8_t *p = buf_grow(out, head_max + (size_t)n * PAGE_LEN);
	if (!p) {
		out->len = tags;
		return out->err;
	}
	r = object_read_sealed(s->c.object, first, n, entries, p + head_max);
	if (r < 0) {
		out->len = tags;
		return r;
	}
	out->len = at;
	nonces_put(out, entries, n);
	for (uint32_t i = 0; i < n; i++)
		buf_put(out, entries + (size_t)i * TAG_ENTRY_LEN + NONCE_LEN, PAGE_TAG_LEN);
	memmove(out->p + out->len, out->p + at + head_max, (size_t)n * PAGE_LEN);
	out->len += (size_t)n * PAGE_LEN;
	return 0;
}

static uint32_t pages_that_fit(const struct buf *out, size_t start, size_t max)
{
	size_t used = out->len - start, n = used < max ? (max - used) / (PAGE_LEN + TAG_ENTRY_LEN) : 0;

	return n < 1 ? 1 : n > TRANSFER_RUN_PAGES ? TRANSFER_RUN_PAGES : (uint32_t)n;
}

static int next_whole(struct transfer_source *s, size_t start, size_t max, struct buf *out)
{
	while (s->next < s->stream.pages && out->len - start < max) {
		struct stream_run run = page_stream_at(&s->stream, s->next, pages_that_fit(out, start, max));
		int r = put_pages(s, run.page, (uint32_t)run.count, out);
		if (r < 0)
			return r;
		s->next += run.count;
	}
	return s->next < s->stream.pages;
}

static int next_ranges(struct transfer_source *s, size_t start, size_t max, struct buf *out)
{
	struct extent x;

	while ((x = extents_next(&s->ranges, s->next)).count && out->len - start < max) {
		uint32_t fit = pages_that_fit(out, start, max), n = x.count < fit ? (uint32_t)x.count : fit;
		int r = put_pages(s, x.first, n, out);
		if (r < 0)
			return r;
		s->next = x.first + n;
	}
	return x.count != 0;
}

/* Everything that the signature job makes goes straight into the job that loads it. */
static int make_signature(struct transfer_source *s)
{
	size_t block = 2048;
	uint64_t bytes = s->base_stream.pages * PAGE_LEN, rank = 0, start = stats_now_ns();
	char mid[16384];
	rs_buffers_t in = {0}, load = {0};
	rs_result made = RS_BLOCKED, loaded = RS_BLOCKED;
	int r = 0;

	while (bytes / block > SIGNATURE_BLOCKS)
		block *= 2;
	rs_job_t *sig = rs_sig_begin(block, STRONG_LEN, RS_RK_BLAKE2_SIG_MAGIC), *loader = rs_loadsig_begin(&s->signature);
	if (!sig || !loader)
		r = -ENOMEM;
	while (r == 0 && loaded == RS_BLOCKED) {
		if (!in.avail_in && rank < s->base_stream.pages) {
			struct stream_run run = page_stream_at(&s->base_stream, rank, TRANSFER_RUN_PAGES);
			r = page_stream_read(&s->base_stream, rank, (uint32_t)run.count, s->in);
			if (r < 0)
				break;
			in.next_in = (char *)s->in;
			in.avail_in = run.count * PAGE_LEN;
			rank += run.count;
		}
		in.eof_in = rank == s->base_stream.pages;
		in.next_out = mid;
		in.avail_out = sizeof mid;
		if (made == RS_BLOCKED)
			made = rs_job_iter(sig, &in);
		if (made != RS_BLOCKED && made != RS_DONE)
			r = made == RS_MEM_ERROR ? -ENOMEM : -EIO;
		load.next_in = mid;
		load.avail_in = sizeof mid - in.avail_out;
		load.eof_in = made == RS_DONE;
		if (r == 0)
			loaded = rs_job_iter(loader, &load);
		if (r == 0 && loaded != RS_BLOCKED && loaded != RS_DONE)
			r = loaded == RS_MEM_ERROR ? -ENOMEM : -EIO;
	}
	if (sig)
		rs_job_free(sig);
	if (loader)
		rs_job_free(loader);
	if (r == 0 && rs_build_hash_table(s->signature) != RS_DONE)
		r = -ENOMEM;
	stats_since(s->e.stats, STAGE_DELTA, start);
	return r;
}

static int put_group(struct transfer_source *s, uint32_t n, struct buf *out)
{
	uint8_t entries[TRANSFER_RUN_PAGES * TAG_ENTRY_LEN], hash[GROUP_HASH_LEN];
	int r = page_stream_entries(&s->stream, s->next, n, entries);

	if (r < 0)
		return r;
	tags_hash(entries, n, hash);
	buf_put_u8(out, ITEM_GROUP);
	buf_put_u8(out, (uint8_t)n);
	nonces_put(out, entries, n);
	buf_put(out, hash, sizeof hash);
	return out->err;
}

static int start_delta(struct transfer_source *s)
{
	int r;

	s->in = malloc(GROUP_BYTES);
	if (!s->in)
		return -ENOMEM;
	r = make_signature(s);
	/* What the base was read from may have been overwritten meanwhile. */
	if (r == 0)
		r = check_root(&s->base);
	if (r < 0)
		return r;
	s->job = rs_delta_begin(s->signature);
	return s->job ? 0 : -ENOMEM;
}

static int next_delta(struct transfer_source *s, size_t start, size_t max, struct buf *out)
{
	rs_result res = RS_BLOCKED;
	uint64_t began = stats_now_ns();
	int r = 0;

	if (!s->job)
		r = start_delta(s);
	while (r == 0 && res == RS_BLOCKED && out->len - start < max) {
		if (s->in_at == s->in_len && s->next < s->stream.pages) {
			uint64_t left = s->stream.pages - s->next;
			uint32_t n = left < TRANSFER_RUN_PAGES ? (uint32_t)left : TRANSFER_RUN_PAGES;
			r = put_group(s, n, out);
			if (r == 0)
				r = page_stream_read(&s->stream, s->next, n, s->in);
			if (r < 0)
				break;
			s->next += n;
			s->in_at = 0;
			s->in_len = (size_t)n * PAGE_LEN;
		}
		size_t item = out->len;
		buf_put_u8(out, ITEM_BYTES);
		buf_put_u32(out, 0);
		uint8_t *p = buf_grow(out, DELTA_OUT_BYTES);
		if (!p) {
			r = out->err;
			break;
		}
		rs_buffers_t b = {.next_in = (char *)s->in + s->in_at,
			.avail_in = s->in_len - s->in_at,
			.eof_in = s->next == s->stream.pages,
			.next_out = (char *)p,
			.avail_out = DELTA_OUT_BYTES};
		res = rs_job_iter(s->job, &b);
		s->in_at = s->in_len - b.avail_in;
		size_t made = DELTA_OUT_BYTES - b.avail_out;
		out->len = made ? item + 5 + made : item;
		le32_store(out->p + item + 1, (uint32_t)made);
		if (res != RS_BLOCKED && res != RS_DONE)
			r = res == RS_MEM_ERROR ? -ENOMEM : -EIO;
	}
	stats_since(s->e.stats, STAGE_DELTA, began);
	return r < 0 ? r : res == RS_BLOCKED;
}

int transfer_source_next(struct transfer_source *s, size_t max, struct buf *out)
{
	size_t start = out->len;
	int r;

	if (s->finished)
		return -EINVAL;
	buf_put_u8(out, TRANSFER_VERSION);
	buf_put_u8(out, s->started ? 0 : goes_on(s) ? CHUNK_FIRST | CHUNK_RESUMED : CHUNK_FIRST);
	if (!s->started)
		put_header(s, out);
	s->started = true;
	if (out->err)
		return out->err;
	switch (s->form) {
	case FORM_WHOLE:
		r = next_whole(s, start, max, out);
		break;
	case FORM_RANGES:
		r = next_ranges(s, start, max, out);
		break;
	default:
		r = next_delta(s, start, max, out);
		break;
	}
	if (r >= 0 && out->err)
		r = out->err;
	if (r >= 0) {
		int changed = check_root(&s->c);
		if (changed < 0)
			r = changed;
	}
	if (r < 0) {
		out->len = start;
		return r;
	}
	if (r == 0) {
		out->p[start + 1] |= CHUNK_LAST;
		s->finished = true;
	}
	s->sent_bytes += out->len - start;
	return r;
}
