/* What is shown of state: per file, per peer. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

const char *peer_state_name(enum peer_state s)
{
	static const char *const name[] = {[PEER_DISCONNECTED] = "disconnected", [PEER_CONNECTING] = "connecting",
		[PEER_IN_SYNC] = "in-sync", [PEER_SENDING] = "sending", [PEER_RECEIVING] = "receiving",
		[PEER_CATCHING_UP] = "catching-up", [PEER_PAUSED] = "paused", [PEER_REFUSED] = "refused"};

	return (unsigned)s < sizeof name / sizeof name[0] ? name[s] : "unknown";
}

bool peer_is_connected(const struct peer_status *s)
{
	return s->state == PEER_IN_SYNC || s->state == PEER_SENDING || s->state == PEER_RECEIVING || s->state == PEER_CATCHING_UP;
}

uint64_t peer_age_ns(const struct peer_status *s, uint64_t now_wall_ns)
{
	return s->backlog_parts && s->oldest_ns && s->oldest_ns < now_wall_ns ? now_wall_ns - s->oldest_ns : 0;
}

bool peer_eta_s(const struct peer_status *s, uint64_t *ret)
{
	if (s->backlog_parts && (!s->rate_bytes || !peer_is_connected(s)))
		return false;
	*ret = s->backlog_parts ? s->backlog_bytes / s->rate_bytes + 1 : 0;
	return true;
}

static struct peer_status *find_status(struct volume *v, uint64_t replica)
{
	for (uint32_t i = 0; i < v->n_statuses; i++)
		if (v->statuses[i].replica == replica)
			return &v->statuses[i];
	return NULL;
}

void volume_set_peer_status(struct volume *v, const struct peer_status *s)
{
	tree_lock(v);
	struct peer_status *p = find_status(v, s->replica);
	if (!p && (p = reallocarray(v->statuses, v->n_statuses + 1, sizeof *p))) {
		v->statuses = p;
		p = &v->statuses[v->n_statuses++];
	}
	if (p)
		*p = *s;
	tree_unlock(v);
}

void volume_drop_peer_status(struct volume *v, uint64_t replica)
{
	tree_lock(v);
	struct peer_status *p = find_status(v, replica);
	if (p)
		*p = v->statuses[--v->n_statuses];
	tree_unlock(v);
}

int volume_peer_statuses(struct volume *v, struct peer_status **ret, uint32_t *ret_n)
{
	tree_lock(v);
	uint32_t n = v->n_statuses;
	struct peer_status *p = malloc((n ? n : 1) * sizeof *p);
	if (p && n)
		memcpy(p, v->statuses, n * sizeof *p);
	tree_unlock(v);
	if (!p)
		return -ENOMEM;
	*ret = p;
	*ret_n = n;
	return 0;
}

static void put_peer_name(struct volume *v, uint64_t replica, struct buf *out)
{
	for (uint32_t i = 0; i < v->n_members; i++)
		if (v->member_replicas[i] == replica) {
			buf_printf(out, "%s", v->members[i].name);
			return;
		}
	buf_printf(out, "%016llx", (unsigned long long)replica);
}

struct look {
	struct volume *v;
	const struct vector *knowledge;
	bool lacks, unusual;
};

static void look_at(struct look *l, const struct slot *s)
{
	if (slot_pending(s) || (s->stamp.dot.counter && !vector_has(l->knowledge, s->stamp.dot)))
		l->lacks = true;
}

static int look_at_link(void *ctx, struct vlink *l)
{
	struct look *k = ctx;

	if (l->flags & VL_LIVE)
		look_at(k, &l->place);
	if (!nothing_unusual(k->v) && exceptions_hide(k->v, l->row))
		k->unusual = true;
	return 0;
}

static int look_at_node(struct look *l, struct vnode *n)
{
	look_at(l, &n->attrs_slot);
	look_at(l, &n->times_slot);
	look_at(l, &n->content_slot);
	if (n->flags & (VN_DATA_DIRTY | VN_CONTENT_NEW))
		l->lacks = true;
	return vnode_links(l->v, n, look_at_link, l);
}

static int put_lacking(struct volume *v, struct vnode *n, const char *before, struct buf *out)
{
	int e = 0;

	for (uint32_t i = 0; i < v->n_peers && !e; i++) {
		struct look l = {.v = v, .knowledge = &v->peers[i].knowledge};
		e = look_at_node(&l, n);
		if (e || !l.lacks)
			continue;
		buf_printf(out, "%s", before);
		put_peer_name(v, v->peers[i].config.replica, out);
		before = ", ";
	}
	return e;
}

static int state_of(struct volume *v, struct vnode *n, struct buf *out)
{
	static const struct vector none;
	struct look own = {.v = v, .knowledge = &none};
	int e = look_at_node(&own, n);

	if (e)
		return e;
	if (n->flags & VN_DAMAGED) {
		buf_printf(out, "damaged");
		return 0;
	}
	if (n->derived || own.unusual) {
		buf_printf(out, "conflict");
		return 0;
	}
	size_t before = out->len;
	e = put_lacking(v, n, "pending: ", out);
	if (!e && out->len == before)
		buf_printf(out, "in-sync");
	return e;
}

int volume_file_lacking(struct volume *v, inum ino, struct buf *out)
{
	struct vnode *n;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	e = e == -ENOENT ? -ESTALE : e ? e : put_lacking(v, n, "", out);
	tree_unlock(v);
	return e ? e : out->err;
}

int volume_file_delta(struct volume *v, inum ino, struct buf *out)
{
	struct step_row s;
	struct vnode *n;
	uint64_t saved = 0;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	if (!e && S_ISREG(n->type) && !journal_step_get(v->journal, ino, &s) && dot_eq(s.to, n->content_slot.stamp.dot)) {
		struct extents x;
		struct reader r = reader_of(s.ranges.p, s.ranges.len);
		if (!extents_read(&r, &x)) {
			uint64_t pages = extents_pages(&x), all = (n->size + PAGE_LEN - 1) / PAGE_LEN;
			if (pages < all)
				saved = n->size - pages * PAGE_LEN < n->size ? n->size - pages * PAGE_LEN : 0;
			extents_fini(&x);
		}
	}
	if (!e)
		buf_printf(out, "%llu of %llu", (unsigned long long)saved, (unsigned long long)n->size);
	tree_unlock(v);
	return e == -ENOENT ? -ESTALE : e ? e : out->err;
}

#define DAMAGED_MAX 1000

static uint32_t collect_damaged(struct list *all, inum *rows, uint32_t n)
{
	for (struct list *i = all->next; i != all && n < DAMAGED_MAX; i = i->next) {
		struct vnode *x = LIST_OF(i, struct vnode, at);
		if (x->flags & VN_DAMAGED)
			rows[n++] = x->row;
	}
	return n;
}

int volume_damaged(struct volume *v, damaged_fn *fn, void *ctx)
{
	inum *rows = calloc(DAMAGED_MAX, sizeof *rows);
	bool more = true;

	if (!rows)
		return -ENOMEM;
	/* Looking up paths moves nodes in the lists: rows first. */
	tree_lock(v);
	uint32_t n = collect_damaged(&v->clean_nodes, rows, 0);
	n = collect_damaged(&v->dirty_nodes, rows, n);
	tree_unlock(v);
	for (uint32_t i = 0; i < n && more; i++) {
		char *path = NULL;
		if (volume_path_of(v, rows[i], &path))
			path = NULL;
		more = fn(ctx, path ? path : "");
		free(path);
	}
	free(rows);
	return 0;
}

struct sample_list {
	const struct sample *s;
	uint32_t n;
};

static int write_samples(struct volume *v, void *ctx)
{
	const struct sample_list *l = ctx;
	int e = 0;

	for (uint32_t i = 0; i < l->n && !e; i++) {
		const struct sample *s = &l->s[i];
		const struct sample_row row = {.at_s = s->at_s, .peer = s->peer, .backlog_files = s->backlog_files, .backlog_bytes = s->backlog_bytes,
			.lag_us = s->lag_us, .sent_bytes = s->sent_bytes, .received_bytes = s->received_bytes};
		e = journal_sample_put(v->journal, &row);
	}
	return e || !l->n ? e : journal_sample_thin(v->journal, l->s[0].at_s);
}

int volume_put_samples(struct volume *v, const struct sample *s, uint32_t n)
{
	struct sample_list l = {s, n};

	return volume_is_read_only(v) ? -EROFS : commit_rows(v, write_samples, &l);
}

struct sample_reader {
	sample_fn *fn;
	void *ctx;
};

static int read_sample(void *ctx, const struct sample_row *row)
{
	const struct sample_reader *r = ctx;
	const struct sample s = {.at_s = row->at_s, .peer = row->peer, .backlog_files = row->backlog_files, .backlog_bytes = row->backlog_bytes,
		.lag_us = row->lag_us, .sent_bytes = row->sent_bytes, .received_bytes = row->received_bytes};

	return r->fn(r->ctx, &s) ? 0 : 1;
}

int volume_samples(struct volume *v, uint64_t after_s, sample_fn *fn, void *ctx)
{
	struct sample_reader r = {fn, ctx};

	tree_lock(v);
	int e = journal_samples(v->journal, after_s, read_sample, &r);
	tree_unlock(v);
	return e;
}

int volume_file_state(struct volume *v, inum ino, struct buf *out)
{
	struct vnode *n;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	e = e == -ENOENT ? -ESTALE : e ? e : state_of(v, n, out);
	tree_unlock(v);
	return e ? e : out->err;
}

int volume_file_version(struct volume *v, inum ino, struct buf *out)
{
	struct vnode *n;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	if (!e) {
		struct dot d = n->derived ? n->derived_dot : n->content_slot.stamp.dot;
		if (!d.counter)
			d = n->attrs_slot.stamp.dot;
		buf_printf(out, "%016llx:%llu", (unsigned long long)d.replica, (unsigned long long)d.counter);
	}
	tree_unlock(v);
	return e == -ENOENT ? -ESTALE : e ? e : out->err;
}

void volume_mark_damaged(struct volume *v, inum ino, uint64_t page)
{
	struct vnode *n;
	char *path = NULL;

	tree_lock(v);
	bool fresh = !vnode_get(v, ino, &n) && !((n->flags & VN_DAMAGED) && n->damaged_page == page);
	if (fresh) {
		n->flags |= VN_DAMAGED;
		n->damaged_page = page;
		if (node_path(v, ino, &path))
			path = NULL;
	}
	tree_unlock(v);
	if (fresh)
		log_error("%s: page %llu of inode %llu (%s) does not authenticate", v->path, (unsigned long long)page,
			(unsigned long long)ino, path ? path : "no name");
	free(path);
}
