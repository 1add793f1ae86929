/* The receiver of one content.
 *
 *   new --first chunk--> WHOLE   pages go into incoming/NAME, each opened by the store before it is written
 *                        RANGES  pages are opened and set aside in an unlinked file; written into an object when the caller says so
 *                        DELTA   transfer_patch.c
 *   --last chunk--> the root decides. Wrong ones are removed, so that they are not resumed. */
#include "transfer_sink_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static void incoming_name(struct transfer_sink *s)
{
	char hex[ID_HEX_LEN + 1];

	id_hex(&s->node, hex);
	snprintf(s->name, sizeof s->name, "%s-%016llx-%llu", hex, (unsigned long long)s->dot.replica, (unsigned long long)s->dot.counter);
}

static int open_incoming(struct transfer_sink *s)
{
	if (s->object)
		return 0;
	return object_incoming(s->e.objects, s->name, &s->target.object, s->target.epoch, &s->object, &s->resume_pages);
}

/* What stands in incoming/ under that name cannot become this content. */
static void discard_incoming(struct transfer_sink *s)
{
	uint64_t local = object_store_next_local(s->e.objects);

	if (s->object && object_adopt(s->object, local) == 0) {
		object_close(s->object);
		object_remove(s->e.objects, local);
	} else if (s->object) {
		object_close(s->object);
	}
	s->object = NULL;
	s->resume_pages = 0;
}

int transfer_sink_new(const struct transfer_env *e, const struct transfer_lookup *l, const struct id *node, struct dot dot, const struct content *target,
		      struct transfer_sink **ret, uint64_t *ret_resume_page)
{
	struct transfer_sink *s;
	struct stat st;
	char path[TRANSFER_NAME_MAX + 16];
	int r;

	if (!target->is_object)
		return -EINVAL;
	s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->e = *e;
	s->l = *l;
	s->node = *node;
	s->dot = dot;
	s->spool.fd = -1;
	r = content_copy(&s->target, target);
	if (r == 0)
		r = page_stream_init(&s->stream, &s->target, NULL);
	if (r == 0) {
		incoming_name(s);
		snprintf(path, sizeof path, "incoming/%s", s->name);
		if (fstatat(e->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
			r = open_incoming(s);
			/* Damaged leftovers are no reason to fail: the object layer refuses them, a fresh one takes the place. */
			if (r == -EUCLEAN || r == -EBADMSG)
				r = unlinkat(e->dirfd, path, 0) < 0 ? -errno : 0;
		}
	}
	if (r == 0 && !s->resume_pages) {
		s->sealer = page_sealer_new(e->keys, &s->target.object, s->target.epoch);
		r = s->sealer ? spool_resume(s) : -ENOMEM;
	}
	if (r < 0) {
		transfer_sink_free(s);
		return r;
	}
	*ret_resume_page = s->resume_pages;
	*ret = s;
	return 0;
}

static void drop_base(struct transfer_sink *s)
{
	delta_fini(s);
	transfer_content_fini(&s->base);
}

void transfer_sink_free(struct transfer_sink *s)
{
	if (!s)
		return;
	drop_base(s);
	spool_close(s, !s->written);
	if (s->object)
		object_close(s->object);
	page_sealer_free(s->sealer);
	page_stream_fini(&s->stream);
	content_fini(&s->target);
	free(s);
}

uint64_t transfer_sink_resume_page(const struct transfer_sink *s) { return s->resume_pages; }

const struct held_content *transfer_sink_resume_ranges(const struct transfer_sink *s, uint64_t *ret_page)
{
	if (s->spool.fd < 0 || s->resume_pages)
		return NULL;
	*ret_page = s->spool.next;
	return &s->spool.base;
}

enum content_form transfer_sink_form(const struct transfer_sink *s) { return s->form; }

struct object *transfer_sink_take_object(struct transfer_sink *s)
{
	struct object *o = s->complete ? s->object : NULL;

	if (o)
		s->object = NULL;
	return o;
}

const struct held_content *transfer_sink_base(const struct transfer_sink *s) { return &s->base_name; }
const struct extents *transfer_sink_pages(const struct transfer_sink *s) { return &s->spool.pages; }

static uint64_t pages_of(const struct content *c) { return c->length / PAGE_LEN + (c->length % PAGE_LEN != 0); }

bool content_has_page(const struct content *c, uint64_t page) { return page < pages_of(c) && !extents_has(&c->holes, page); }

/* ---- first chunk ---- */

static int find_base(struct transfer_sink *s)
{
	int r = s->l.find ? s->l.find(s->l.ctx, &s->base_name.node, s->base_name.dot, &s->base) : -ESTALE;

	if (r == -ESTALE || r == -ENOENT)
		return -ENODATA;
	if (r < 0)
		return r;
	if (!s->base.object || !root_eq(&s->base.content.root, &s->base_name.root))
		return -ENODATA;
	if (s->form == FORM_RANGES && (!id_eq(&s->base.content.object, &s->target.object) || s->base.content.epoch != s->target.epoch))
		return -ENODATA;
	return 0;
}

static int check_identity(const struct transfer_sink *s, struct reader *r)
{
	const uint8_t *node = read_bytes(r, ID_LEN);
	uint64_t replica = read_u64(r), counter = read_u64(r);
	const uint8_t *object = read_bytes(r, ID_LEN);
	uint32_t epoch = read_u32(r);
	uint64_t length = read_u64(r);
	const uint8_t *root = read_bytes(r, ROOT_LEN);

	if (r->bad)
		return -EPROTO;
	if (memcmp(node, s->node.b, ID_LEN) || replica != s->dot.replica || counter != s->dot.counter || memcmp(object, s->target.object.b, ID_LEN) ||
	    epoch != s->target.epoch || length != s->target.length || memcmp(root, s->target.root.b, ROOT_LEN))
		return -EPROTO;
	return 0;
}

static bool same_held(const struct held_content *a, const struct held_content *b) { return id_eq(&a->node, &b->node) && dot_eq(a->dot, b->dot) && root_eq(&a->root, &b->root); }

static int start_ranges(struct transfer_sink *s, bool resumed, struct reader *r)
{
	if (!resumed) {
		spool_close(s, false);
		return spool_open(s);
	}
	s->next_page = read_u64(r);
	if (r->bad)
		return -EPROTO;
	return s->spool.fd >= 0 && s->next_page == s->spool.next && same_held(&s->spool.base, &s->base_name) ? 0 : -ENODATA;
}

static int start(struct transfer_sink *s, bool resumed, struct reader *r)
{
	uint8_t form = read_u8(r);
	int e = check_identity(s, r);

	drop_base(s);
	s->complete = false;
	s->writing = NULL;
	s->base_name = (struct held_content){0};
	s->next_page = 0;
	if (e < 0)
		return e;
	if ((form != FORM_WHOLE && form != FORM_RANGES && form != FORM_DELTA) || (resumed && form != FORM_RANGES))
		return -EPROTO;
	s->form = form;
	if (!s->sealer)
		s->sealer = page_sealer_new(s->e.keys, &s->target.object, s->target.epoch);
	if (!s->sealer)
		return -ENOMEM;
	if (form == FORM_WHOLE) {
		uint64_t first = read_u64(r);
		if (r->bad || first > s->resume_pages)
			return -EPROTO;
		spool_close(s, false);
		return open_incoming(s);
	}
	base_read(r, &s->base_name);
	if (r->bad)
		return -EPROTO;
	e = find_base(s);
	if (e < 0)
		return e;
	if (form == FORM_RANGES)
		return start_ranges(s, resumed, r);
	spool_close(s, false);
	e = open_incoming(s);
	return e < 0 ? e : delta_start(s);
}

/* ---- pages ---- */

static int range_pages(struct transfer_sink *s, uint64_t first, uint32_t n, const uint8_t *entries, const uint8_t *sealed)
{
	uint8_t plain[PAGE_LEN];

	for (uint32_t i = 0; i < n; i++) {
		int r = page_open(s->sealer, first + i, entries + (size_t)i * TAG_ENTRY_LEN, sealed + (size_t)i * PAGE_LEN, plain);
		if (r < 0)
			return r;
	}
	return spool_add(s, first, n, entries, sealed);
}

static int pages_item(struct transfer_sink *s, struct reader *r)
{
	uint8_t entries[TRANSFER_RUN_PAGES * TAG_ENTRY_LEN];
	uint64_t first = read_u64(r);
	uint32_t n = read_u8(r);

	if (s->form == FORM_DELTA || r->bad || !n || n > TRANSFER_RUN_PAGES || first < s->next_page)
		return -EPROTO;
	if (first > pages_of(&s->target) || n > pages_of(&s->target) - first)
		return -EPROTO;
	struct extent hole = extents_next(&s->target.holes, first);
	if (hole.count && hole.first < first + n)
		return -EPROTO;
	int e = nonces_read(r, n, entries);
	if (e < 0)
		return e;
	const uint8_t *tags = read_bytes(r, (size_t)n * PAGE_TAG_LEN), *sealed = read_bytes(r, (size_t)n * PAGE_LEN);
	if (!tags || !sealed)
		return -EPROTO;
	for (uint32_t i = 0; i < n; i++)
		memcpy(entries + (size_t)i * TAG_ENTRY_LEN + NONCE_LEN, tags + (size_t)i * PAGE_TAG_LEN, PAGE_TAG_LEN);
	s->next_page = first + n;
	if (s->form == FORM_RANGES)
		return range_pages(s, first, n, entries, sealed);
	return object_write_sealed(s->object, first, n, entries, sealed, 0);
}

/* ---- end ---- */

/* Takes the terms of [first, end) that the base has there out of the root. */
static int sub_base(struct transfer_sink *s, uint64_t first, uint64_t end, struct root *root)
{
	uint64_t base_pages = pages_of(&s->base.content);
	uint8_t entry[TAG_ENTRY_LEN];
	struct root term;

	for (uint64_t p = first; p < end && p < base_pages; p++) {
		struct extent hole = extents_next(&s->base.content.holes, p);
		if (hole.count && hole.first == p) {
			p += hole.count - 1;
			continue;
		}
		int r = object_read_entries(s->base.object, p, 1, entry);
		if (r < 0)
			return r;
		keyring_page_term(s->e.keys, p, entry, &term);
		root_sub(root, &term);
	}
	return 0;
}

static int sub_base_extents(struct transfer_sink *s, const struct extents *x, struct root *root)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < x->n; i++)
		r = sub_base(s, x->e[i].first, x->e[i].first + x->e[i].count, root);
	return r;
}

/* The base's root, with the pages that came in place of its own, without what is in holes or beyond the end. */
static int end_ranges(struct transfer_sink *s)
{
	struct root root = s->base.content.root;

	root_add(&root, &s->spool.sum);
	int r = sub_base_extents(s, &s->spool.pages, &root);
	r = r ? r : sub_base_extents(s, &s->target.holes, &root);
	r = r ? r : sub_base(s, pages_of(&s->target), pages_of(&s->base.content), &root);
	if (r < 0)
		return r;
	/* Something else than pages that fit: we hold it differently than the sender believes. */
	return root_eq(&root, &s->target.root) ? 0 : -ENODATA;
}

static int end_object(struct transfer_sink *s)
{
	struct page_map map;
	struct root root;
	int r = s->form == FORM_DELTA ? delta_end(s) : 0;

	if (r == 0)
		r = object_resize(s->object, pages_of(&s->target));
	if (r < 0)
		return r;
	object_map(s->object, &map, &root);
	bool good = extents_eq(&map.holes, &s->target.holes) && root_eq(&root, &s->target.root);
	extents_fini(&map.holes);
	if (good)
		return 0;
	discard_incoming(s);
	return -EBADMSG;
}

static int feed(struct transfer_sink *s, const uint8_t *chunk, size_t len)
{
	struct reader r = reader_of(chunk, len);
	uint8_t version = read_u8(&r), flags = read_u8(&r);
	int e = 0;

	if (r.bad || version != TRANSFER_VERSION || flags & ~(CHUNK_FIRST | CHUNK_LAST | CHUNK_RESUMED) || (flags & CHUNK_RESUMED && !(flags & CHUNK_FIRST)))
		return -EPROTO;
	if (flags & CHUNK_FIRST)
		e = start(s, flags & CHUNK_RESUMED, &r);
	else if (!s->started)
		return -EPROTO;
	s->started = e == 0;
	while (e == 0 && r.left) {
		uint8_t kind = read_u8(&r);
		if (s->complete)
			e = -EPROTO;
		else if (kind == ITEM_PAGES)
			e = pages_item(s, &r);
		else if (s->form == FORM_DELTA && kind == ITEM_GROUP)
			e = delta_group_item(s, &r);
		else if (s->form == FORM_DELTA && kind == ITEM_BYTES)
			e = delta_bytes_item(s, &r);
		else
			e = -EPROTO;
	}
	if (e == 0 && flags & CHUNK_LAST) {
		e = s->form == FORM_RANGES ? end_ranges(s) : end_object(s);
		s->complete = e == 0;
		s->started = false;
		return e == 0 ? 1 : e;
	}
	if (e < 0)
		s->started = false;
	return e;
}

int transfer_sink_feed(struct transfer_sink *s, const uint8_t *chunk, size_t len)
{
	int e = feed(s, chunk, len);

	/* what does not agree is not gone on with */
	if (e == -EBADMSG || e == -ENODATA || e == -EPROTO)
		spool_close(s, false);
	return e;
}

/* ---- writing ranges ---- */

int transfer_sink_changed(const struct transfer_sink *s, struct extents *ret)
{
	struct extents x;
	uint64_t base_pages = pages_of(&s->base.content);
	int r = extents_copy(&x, &s->spool.pages);

	if (r < 0)
		return r;
	for (uint32_t i = 0; r == 0 && i < s->target.holes.n; i++) {
		struct extent h = s->target.holes.e[i];
		/* What was a hole in both did not change. */
		for (uint64_t p = h.first; r == 0 && p < h.first + h.count;) {
			struct extent was = extents_next(&s->base.content.holes, p);
			uint64_t end = h.first + h.count;
			if (p < base_pages && was.count && was.first == p) {
				p += was.count;
				continue;
			}
			if (p < base_pages && was.count && was.first < end)
				end = was.first;
			r = extents_add(&x, p, end - p);
			p = end;
		}
	}
	if (r < 0) {
		extents_fini(&x);
		return r;
	}
	*ret = x;
	return 0;
}

static int write_run(struct transfer_sink *s, struct object *o, struct extent x, uint64_t at, uint8_t *buf, int64_t mtime_ns)
{
	uint8_t entries[TRANSFER_RUN_PAGES * TAG_ENTRY_LEN];

	for (uint64_t done = 0; done < x.count;) {
		uint32_t n = x.count - done < TRANSFER_RUN_PAGES ? (uint32_t)(x.count - done) : TRANSFER_RUN_PAGES;
		int r = spool_read(&s->spool, at + done, n, entries, buf);
		if (r == 0)
			r = object_write_sealed(o, x.first + done, n, entries, buf, mtime_ns);
		if (r < 0)
			return r;
		done += n;
	}
	return 0;
}

bool transfer_sink_fits(struct transfer_sink *s, struct object *o)
{
	struct page_map map;
	struct root root;

	if (s->writing == o)
		return true;
	object_map(o, &map, &root);
	extents_fini(&map.holes);
	return root_eq(&root, &s->base_name.root);
}

int transfer_sink_write_ranges(struct transfer_sink *s, struct object *o, int64_t mtime_ns)
{
	struct page_map map;
	struct root root;
	uint8_t *buf;
	uint64_t at = 0;
	int r = 0;

	if (!s->complete || s->form != FORM_RANGES)
		return -EINVAL;
	/* Anything else than the base would be spoiled. A call after -EAGAIN goes on with what is half written. */
	if (!transfer_sink_fits(s, o))
		return -EBADMSG;
	s->writing = o;
	buf = malloc((size_t)TRANSFER_RUN_PAGES * PAGE_LEN);
	if (!buf)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < s->spool.pages.n; i++) {
		r = write_run(s, o, s->spool.pages.e[i], at, buf, mtime_ns);
		at += s->spool.pages.e[i].count;
	}
	free(buf);
	if (r == 0)
		r = object_resize(o, pages_of(&s->target));
	for (uint32_t i = 0; r == 0 && i < s->target.holes.n; i++)
		r = object_punch(o, s->target.holes.e[i].first, s->target.holes.e[i].count);
	if (r < 0)
		return r;
	object_map(o, &map, &root);
	extents_fini(&map.holes);
	s->written = root_eq(&root, &s->target.root);
	return s->written ? 0 : -EBADMSG;
}
