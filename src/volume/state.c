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
	bool first = true;
	for (uint32_t i = 0; i < v->n_peers && !e; i++) {
		struct look l = {.v = v, .knowledge = &v->peers[i].knowledge};
		e = look_at_node(&l, n);
		if (e || !l.lacks)
			continue;
		buf_printf(out, first ? "pending: " : ", ");
		put_peer_name(v, v->peers[i].config.replica, out);
		first = false;
	}
	if (first)
		buf_printf(out, "in-sync");
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
