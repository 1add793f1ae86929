/* Reading and writing through a node: the node is pinned, the bytes are filedata's, size and times are settled afterwards. */
#include <errno.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "heal.h"
#include "internal.h"
#include "near.h"

#define LOG_FULL_TRIES 64 /* commits made because the redo log was full, before a write gives up */

/* Pins a regular file and gives its bytes. */
static int data_get(struct volume *v, inum ino, bool change, struct vnode **ret, struct filedata **ret_f)
{
	struct vnode *n;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	if (e == -ENOENT || (!e && (!n->type || (n->flags & VN_DOOMED))))
		e = -ESTALE;
	if (!e && n->type != S_IFREG)
		e = n->type == S_IFDIR ? -EISDIR : -EINVAL;
	/* it is shown nowhere any more, until a peer has given them; the kernel may not have heard of that yet */
	if (!e && vnode_lacks_bytes(n))
		e = -ESTALE;
	if (!e && change && (n->flags & VN_SUPERSEDED))
		e = HANDLE_SUPERSEDED;
	if (!e && change && !nothing_unusual(v))
		e = writedown_node(v, n);
	while (!e && change && n->derived) {
		tree_unlock(v);
		e = derived_detach(v, ino);
		tree_lock(v);
		e = e ? e : vnode_get(v, ino, &n);
	}
	e = e ? e : vnode_data(v, n, ret_f);
	if (!e) {
		n->pins++;
		*ret = n;
	}
	tree_unlock(v);
	return e;
}

static void data_put(struct volume *v, struct vnode *n)
{
	tree_lock(v);
	n->pins--;
	tree_unlock(v);
}

int kill_privileges(struct volume *v, struct vnode *n, bool suidgid)
{
	uint32_t mode = n->attrs.mode;
	int e;

	if (suidgid) {
		mode &= ~(uint32_t)S_ISUID;
		if (mode & S_IXGRP)
			mode &= ~(uint32_t)S_ISGID;
	}
	bool capability = n->attrs.n_xattr && attrs_find(&n->attrs, "security.capability");
	if (mode == n->attrs.mode && !capability)
		return 0;
	if ((e = slot_change(&n->attrs_slot)))
		return e;
	n->attrs.mode = mode;
	if (capability)
		attrs_remove(&n->attrs, "security.capability");
	vnode_dirty(v, n);
	return 0;
}

/* After a change of its bytes: length, blocks, times, privileges. Gate shared, the node pinned. */
static int settle(struct volume *v, struct vnode *n, struct filedata *f, bool set_times, bool kill_suidgid)
{
	pthread_mutex_t *m = &v->size_mu[n->row % SIZE_LOCKS];
	int e = 0;

	/* two writers that finish at once must not leave the shorter length behind */
	pthread_mutex_lock(m);
	uint64_t size = filedata_length(f), blocks = filedata_blocks(f);
	tree_lock(v);
	n->size = size;
	n->blocks = blocks;
	n->flags |= VN_DATA_DIRTY;
	vnode_dirty(v, n);
	near_note(v, n, NEAR_WRITTEN);
	if (set_times && !(e = slot_change(&n->times_slot))) {
		now_times(v, &n->times.mtime);
		n->times.ctime = n->times.mtime;
	}
	e = e ? e : kill_privileges(v, n, kill_suidgid);
	tree_unlock(v);
	pthread_mutex_unlock(m);
	return e;
}

static int64_t mtime_for(struct volume *v, struct vnode *n, bool set_times)
{
	struct timespec64 t;

	if (set_times) {
		now_times(v, &t);
	} else {
		tree_lock(v);
		t = n->times.mtime;
		tree_unlock(v);
	}
	return t.sec * 1000000000 + t.nsec;
}

static int read_once(struct volume *v, inum ino, uint64_t off, void *buf, size_t len, size_t *ret_got, uint64_t *ret_bad)
{
	struct vnode *n;
	struct filedata *f;
	size_t got = 0;
	int e = data_get(v, ino, false, &n, &f);

	if (e)
		return e;
	*ret_bad = off / PAGE_LEN;
	e = filedata_read(f, off, buf, len, &got, ret_bad);
	if (e == -ENOENT) /* its object's file is gone */
		e = -EBADMSG;
	if (e == -EBADMSG)
		volume_mark_damaged(v, ino, *ret_bad);
	tree_lock(v);
	if (!e && (n->flags & VN_DAMAGED) && got && n->damaged_page * PAGE_LEN >= off && n->damaged_page * PAGE_LEN < off + got)
		n->flags &= ~(unsigned)VN_DAMAGED;
	near_note(v, n, NEAR_READ);
	n->pins--;
	tree_unlock(v);
	*ret_got = got;
	return e;
}

int volume_read(struct volume *v, inum ino, uint64_t off, void *buf, size_t len, size_t *ret_len)
{
	uint64_t bad = 0, healed = UINT64_MAX;
	size_t got = 0;
	int e = read_once(v, ino, off, buf, len, &got, &bad);

	/* each round gets further: what was healed opens */
	while (e == -EBADMSG && bad != healed && !volume_heal_wait(v, ino, bad, HEAL_WAIT_MS)) {
		healed = bad;
		e = read_once(v, ino, off, buf, len, &got, &bad);
	}
	if (!e || (e == -EBADMSG && got)) {
		*ret_len = got;
		e = 0;
	}
	return e;
}

/* One change of a file's bytes, tried again after a commit while the redo log is full. */
struct change {
	int (*fn)(struct filedata *f, const struct change *c, int64_t mtime_ns);
	uint64_t off, len;
	const void *buf;
	int mode;
	bool set_times, kill_suidgid, grows;
};

static int change_once(struct volume *v, inum ino, const struct change *c)
{
	struct vnode *n;
	struct filedata *f;
	int e = change_begin(v);

	if (e)
		return e;
	if ((c->grows && (e = space_check(v))) || (e = data_get(v, ino, true, &n, &f))) {
		change_end(v);
		return e;
	}
	e = c->fn(f, c, mtime_for(v, n, c->set_times));
	/* what failed half-way may have changed something too */
	int settled = e == -EAGAIN && !filedata_dirty(f) ? 0 : settle(v, n, f, c->set_times && !e, c->kill_suidgid);
	data_put(v, n);
	change_end(v);
	return e ? e : settled;
}

/* Removes what stood in the way of a change of ino; false where its result stands. */
static bool try_again(struct volume *v, inum ino, int *e)
{
	if (*e == -EAGAIN)
		*e = commit_run(v, 0);
	else if (*e == HANDLE_SUPERSEDED)
		*e = superseded_keep(v, ino);
	else
		return false;
	return !*e;
}

static int change(struct volume *v, inum ino, const struct change *c)
{
	int e = change_once(v, ino, c);

	for (int i = 0; try_again(v, ino, &e) && i < LOG_FULL_TRIES; i++)
		e = change_once(v, ino, c);
	committer_kick(v);
	return e;
}

static int do_write(struct filedata *f, const struct change *c, int64_t mtime_ns)
{
	return filedata_write(f, c->off, c->buf, c->len, mtime_ns);
}

int volume_write(struct volume *v, inum ino, uint64_t off, const void *buf, size_t len, bool set_times, bool kill_suidgid)
{
	const struct change c = {.fn = do_write, .off = off, .buf = buf, .len = len, .set_times = set_times,
		.kill_suidgid = kill_suidgid, .grows = true};

	if (!len)
		return 0;
	return change(v, ino, &c);
}

static int do_truncate(struct filedata *f, const struct change *c, int64_t mtime_ns) { return filedata_truncate(f, c->len, mtime_ns); }

int data_truncate(struct volume *v, inum ino, uint64_t size)
{
	const struct change c = {.fn = do_truncate, .len = size};

	return change(v, ino, &c);
}

static int do_fallocate(struct filedata *f, const struct change *c, int64_t mtime_ns)
{
	return filedata_fallocate(f, c->mode, c->off, c->len, mtime_ns);
}

int volume_fallocate(struct volume *v, inum ino, int mode, uint64_t off, uint64_t len, bool set_times)
{
	const struct change c = {.fn = do_fallocate, .mode = mode, .off = off, .len = len, .set_times = set_times, .kill_suidgid = true,
		.grows = !(mode & FALLOC_FL_PUNCH_HOLE)};

	return change(v, ino, &c);
}

int volume_seek(struct volume *v, inum ino, uint64_t off, int whence, uint64_t *ret)
{
	struct vnode *n;
	struct filedata *f;
	int e = data_get(v, ino, false, &n, &f);

	if (e)
		return e;
	e = filedata_seek(f, off, whence, ret);
	data_put(v, n);
	return e;
}

static int copy_once(struct volume *v, inum from, uint64_t off_from, inum to, uint64_t off_to, uint64_t len, bool set_times, uint64_t *ret_len)
{
	struct vnode *a, *b;
	struct filedata *fa, *fb;
	int e = change_begin(v);

	if (e)
		return e;
	if ((e = space_check(v)) || (e = data_get(v, from, false, &a, &fa)))
		goto out;
	if (!(e = data_get(v, to, true, &b, &fb))) {
		e = filedata_copy(fa, off_from, fb, off_to, len, mtime_for(v, b, set_times), ret_len);
		int settled = settle(v, b, fb, set_times, true);
		e = e ? e : settled;
		data_put(v, b);
		tree_lock(v);
		near_note(v, a, NEAR_READ);
		tree_unlock(v);
	}
	data_put(v, a);
out:
	change_end(v);
	return e;
}

int volume_copy_range(struct volume *v, inum from, uint64_t off_from, inum to, uint64_t off_to, uint64_t len, bool set_times, uint64_t *ret_len)
{
	int e = copy_once(v, from, off_from, to, off_to, len, set_times, ret_len);

	for (int i = 0; try_again(v, to, &e) && i < LOG_FULL_TRIES; i++)
		e = copy_once(v, from, off_from, to, off_to, len, set_times, ret_len);
	committer_kick(v);
	return e;
}

int volume_readlink(struct volume *v, inum ino, char *buf, size_t size, size_t *ret_len)
{
	struct vnode *n;

	tree_lock(v);
	int e = vnode_get(v, ino, &n);
	if (e == -ENOENT)
		e = -ESTALE;
	if (!e && n->type != S_IFLNK)
		e = -EINVAL;
	if (!e) {
		size_t len = n->content.length < size ? n->content.length : size;
		if (len)
			memcpy(buf, n->content.bytes, len);
		*ret_len = len;
	}
	tree_unlock(v);
	return e;
}

int content_pin(struct volume *v, inum node, struct filedata **ret)
{
	struct vnode *n;
	return data_get(v, node, false, &n, ret);
}

void content_unpin(struct volume *v, inum node)
{
	tree_lock(v);
	struct vnode *n = vnode_cached(v, node);
	if (n && n->pins)
		n->pins--;
	tree_unlock(v);
}
