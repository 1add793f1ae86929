/* Contents of a volume on their way out: replicate.h's content_source_* over the transfer of contents.
 *
 * A content that is a node's current one is read through a second handle of the very object that programs write to, so that the transfer sees in the object's root
 * that it changed. Others (further contents of a node, bases) change for nobody. */
#include "content_source.h"
#include "internal.h"
#include "near.h"

#include <errno.h>
#include <stdlib.h>

struct content_source {
	struct transfer_source *t; /* owned */
};

/* The object of the current content of a node, if that still is what `at` says. */
static int open_winner(struct volume *v, const struct content_at *at, struct object **ret)
{
	struct filedata *f;
	struct object *o = NULL;
	int r = content_pin(v, at->node, &f);

	if (r < 0)
		return r;
	r = filedata_object_handle(f, &o);
	content_unpin(v, at->node);
	if (r < 0)
		return r;
	if (!o)
		return -ESTALE;
	if (object_local(o) != at->local) {
		object_close(o);
		return -ESTALE;
	}
	*ret = o;
	return 0;
}

static int open_other(struct volume *v, const struct content_at *at, struct object **ret)
{
	struct page_map map = {.pages = at->content.length / PAGE_LEN + (at->content.length % PAGE_LEN != 0), .holes = at->content.holes};

	return object_open(v->objects, at->local, &at->content.object, at->content.epoch, &map, &at->content.root, ret);
}

/* Moves the content out of at. */
static int open_at(struct volume *v, struct content_at *at, struct transfer_content *ret)
{
	struct object *o = NULL;
	int r = 0;

	if (at->content.is_object)
		r = at->winner ? open_winner(v, at, &o) : open_other(v, at, &o);
	if (r < 0)
		return r == -ENOENT ? -ESTALE : r;
	*ret = (struct transfer_content){.content = at->content, .object = o};
	at->content = (struct content){0};
	return 0;
}

static int find(void *ctx, const struct id *node, struct dot dot, struct transfer_content *ret)
{
	struct content_at at = {0};
	int r = content_find(ctx, node, dot, &at);

	if (r < 0)
		return r;
	r = open_at(ctx, &at, ret);
	content_at_fini(&at);
	return r;
}

static int row_of(struct volume *v, const struct id *node, inum *ret)
{
	struct vnode *n;

	tree_lock(v);
	int r = vnode_by_id(v, node, &n);
	if (r == 0)
		*ret = n->row;
	tree_unlock(v);
	return r;
}

static int step(void *ctx, const struct id *node, struct dot *ret_from, struct dot *ret_to, struct extents *ret_ranges)
{
	inum row = 0;
	int r = row_of(ctx, node, &row);

	return r < 0 ? r : content_step(ctx, row, ret_from, ret_to, ret_ranges);
}

static int base(void *ctx, const struct id *node, struct id *ret_base_node, struct dot *ret_dot, struct transfer_content *ret)
{
	struct content_at at = {0};
	inum row = 0;
	int r = row_of(ctx, node, &row);

	if (r == 0)
		r = content_base(ctx, row, ret_base_node, &at);
	if (r < 0)
		return r;
	*ret_dot = at.stamp.dot;
	r = open_at(ctx, &at, ret);
	content_at_fini(&at);
	return r;
}

struct transfer_env content_env(struct volume *v)
{
	return (struct transfer_env){.objects = v->objects, .keys = v->keys, .stats = v->stats, .dirfd = v->dirfd};
}

struct transfer_lookup content_lookup(struct volume *v)
{
	return (struct transfer_lookup){.find = find, .step = step, .base = base, .ctx = v};
}

int content_source_open(struct volume *v, const struct id *node, struct dot dot, const struct held_content *held, uint32_t n_held,
			const struct vector *has, unsigned forms, uint64_t resume_page, struct content_source **ret)
{
	struct held_content near[NEAR_MAX];
	struct transfer_env e = content_env(v);
	struct transfer_lookup l = content_lookup(v);
	struct content_source *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return -ENOMEM;
	struct transfer_bases b = {.held = held, .n_held = n_held, .near = near};
	r = has && forms & FORM_DELTA ? near_contents(v, node, has, near, &b.n_near) : 0;
	r = r < 0 ? r : transfer_source_open(&e, &l, node, dot, &b, forms, resume_page, &s->t);
	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int content_source_next(struct content_source *s, size_t max, struct buf *out) { return transfer_source_next(s->t, max, out); }

enum content_form content_source_form(const struct content_source *s) { return transfer_source_form(s->t); }

uint64_t content_source_saved(const struct content_source *s) { return transfer_source_saved(s->t); }

void content_source_close(struct content_source *s)
{
	if (!s)
		return;
	transfer_source_close(s->t);
	free(s);
}
