/* A file's object, opened to be compared: for a peer that asks for pages, and for who looks whether all of it opens. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "check_volume.h"
#include "heal_internal.h"
#include "object_heal.h"

size_t heal_answer_len(const struct heal_need *n)
{
	if (n->what == HEAL_RECORD)
		return 0;
	return (size_t)n->count * (n->what == HEAL_PAGES ? TAG_ENTRY_LEN + PAGE_LEN : TAG_ENTRY_LEN);
}

void opened_close(struct opened *x)
{
	if (x->o)
		object_close(x->o);
	content_unpin(x->v, x->ino);
}

int opened_get(struct volume *v, inum ino, bool heal, struct opened *ret)
{
	struct opened x = {.v = v, .ino = ino};
	int r = content_pin(v, ino, &x.f);

	if (r)
		return r;
	tree_lock(v);
	struct vnode *n = vnode_cached(v, ino);
	if (n)
		x.need.node = n->id;
	tree_unlock(v);
	pthread_rwlock_rdlock(&x.f->lock);
	bool is_object = x.f->is_object;
	uint64_t local = x.f->local;
	x.need.object = x.f->object_id;
	x.need.epoch = x.f->epoch;
	pthread_rwlock_unlock(&x.f->lock);
	if (is_object)
		r = filedata_object_handle(x.f, &x.o);
	bool lost = !r && x.o && object_lost_file(x.o);
	if (is_object && heal && (r == -EBADMSG || lost)) {
		int e = object_heal_header(v->objects, local, &x.need.object, x.need.epoch);
		r = e ? e : r ? filedata_object_handle(x.f, &x.o) : 0;
	} else if (lost) {
		r = -EBADMSG;
	}
	if (r) {
		opened_close(&x);
		return r;
	}
	*ret = x;
	return 0;
}

/* ---- answering ---- */
static int serve_entries(struct opened *x, const struct heal_need *n, const struct page_map *map, uint8_t *out)
{
	int r = 0;

	for (uint64_t p = n->first, end = n->first + n->count; !r && p < end;) {
		struct extent hole = extents_next(&map->holes, p);
		uint64_t to = hole.count && hole.first < end ? hole.first : end;
		if (hole.count && hole.first <= p) {
			p = hole.first + hole.count;
			continue;
		}
		r = object_read_entries(x->o, p, (uint32_t)(to - p), out + (p - n->first) * TAG_ENTRY_LEN);
		p = to;
	}
	return r;
}

static int serve_opened(struct opened *x, const struct heal_need *n, uint8_t *out)
{
	struct page_map map;
	struct root root;
	int r = 0;

	if (!x->o || !id_eq(&x->need.object, &n->object) || x->need.epoch != n->epoch)
		return -ENOENT;
	object_map(x->o, &map, &root);
	if (n->first >= map.pages || n->count > map.pages - n->first || (n->what == HEAL_ENTRIES && !root_eq(&root, &n->root)))
		r = -ENOENT;
	else if (n->what == HEAL_ENTRIES)
		r = serve_entries(x, n, &map, out);
	else
		r = object_read_sealed(x->o, n->first, n->count, out, out + (size_t)n->count * TAG_ENTRY_LEN);
	extents_fini(&map.holes);
	return r == -ENODATA ? -ENOENT : r;
}

static int serve_record(struct volume *v, const struct heal_need *n, struct buf *out)
{
	struct dot dot = {le64_load(n->object.b), n->first};
	struct dot_row d;
	struct buf record = {0};

	tree_lock(v);
	int r = journal_dot_get(v->journal, dot, &d);
	r = r ? r : record_by_dot(v, &d, &record);
	tree_unlock(v);
	if (!r && record.len <= HEAL_RECORD_MAX)
		buf_put(out, record.p, record.len);
	else if (!r)
		r = -ENOENT;
	buf_fini(&record);
	return r ? -ENOENT : out->err;
}

int volume_heal_serve(struct volume *v, const struct heal_need *n, struct buf *out)
{
	struct opened x;
	struct vnode *node;
	inum ino = 0;
	uint8_t *p;

	if (n->what == HEAL_RECORD)
		return serve_record(v, n, out);

	tree_lock(v);
	int r = vnode_by_id(v, &n->node, &node);
	if (!r)
		ino = node->row;
	tree_unlock(v);
	r = r ? -ENOENT : opened_get(v, ino, false, &x);
	if (r)
		return -ENOENT;
	p = calloc(1, heal_answer_len(n));
	r = p ? serve_opened(&x, n, p) : -ENOMEM;
	opened_close(&x);
	if (!r)
		buf_put(out, p, heal_answer_len(n));
	free(p);
	return r ? r : out->err;
}

/* ---- looking ---- */
int volume_verify_file(struct volume *v, inum ino, bool deep, bool (*pace)(void *ctx, uint64_t bytes), void *ctx, struct verify_result *ret)
{
	struct opened x;
	struct page_map map;
	struct root root;
	bool bad[GROUP_PAGES];
	int r = opened_get(v, ino, false, &x);

	*ret = (struct verify_result){0};
	if (r == -EBADMSG) {
		ret->missing = true;
		ret->bad_pages = 1;
		return 0;
	}
	if (r)
		return r;
	if (!x.o) {
		opened_close(&x);
		return 0;
	}
	object_map(x.o, &map, &root);
	extents_fini(&map.holes);
	r = object_check_entries(x.o);
	ret->bytes += map.pages * TAG_ENTRY_LEN;
	if (r == -EBADMSG) {
		ret->bad_entries = true;
		r = 0;
	}
	for (uint64_t p = 0; !r && deep && !ret->stopped && p < map.pages; p += GROUP_PAGES) {
		uint32_t n = map.pages - p < GROUP_PAGES ? (uint32_t)(map.pages - p) : GROUP_PAGES;
		r = object_damaged(x.o, p, n, bad);
		for (uint32_t i = 0; !r && i < n; i++)
			if (bad[i] && !ret->bad_pages++)
				ret->first_bad = p + i;
		ret->bytes += (uint64_t)n * PAGE_LEN;
		if (pace && !pace(ctx, (uint64_t)n * PAGE_LEN))
			ret->stopped = true;
	}
	opened_close(&x);
	return r;
}
