/* After an open: what the last stop left. The redo log is replayed, objects that no record names and unlinked files that were in use are removed.
 * Nothing is scanned but what was being written (I6). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "object_heal.h"
#include "batch.h"
#include "commit.h"

#define INCOMING_KEPT_S (7 * 86400) /* what arrived of a content whose transfer was broken off */

static int of_content(const struct content *c, const struct id **ret_id, struct page_map *map)
{
	if (!c->is_object)
		return -ENOENT;
	*ret_id = &c->object;
	map->pages = (c->length + PAGE_LEN - 1) / PAGE_LEN;
	return extents_copy(&map->holes, &c->holes);
}

/* Which content has that object? A node's, or one that is held beside it. */
static int object_info(void *ctx, uint64_t local, struct id *ret_object, uint32_t *ret_epoch, struct page_map *ret_map, struct root *ret_root)
{
	struct volume *v = ctx;
	const struct content *c = NULL;
	const struct id *id;
	struct vnode *n;
	uint64_t row;

	tree_lock(v);
	int e = journal_node_by_local(v->journal, local, &row);
	if (!e && !(e = vnode_get(v, row, &n))) {
		c = &n->content;
	} else if (e == -ENOENT && !(e = journal_extra_by_local(v->journal, local, &row)) && !(e = vnode_get(v, row, &n))) {
		for (uint32_t i = 0; i < n->n_extra; i++)
			if (n->extra[i].local == local)
				c = &n->extra[i].content;
	}
	if (!e && !c)
		e = -ENOENT;
	if (!e && !(e = of_content(c, &id, ret_map))) {
		*ret_object = *id;
		*ret_epoch = c->epoch;
		*ret_root = c->root;
	}
	tree_unlock(v);
	return e;
}

/* Pages that were overwritten after the last COMMIT: the content gets a new part. */
static int changed(void *ctx, uint64_t local, const struct root *root, int64_t mtime_ns, const struct extents *pages)
{
	struct volume *v = ctx;
	struct vnode *n;
	uint64_t row;

	tree_lock(v);
	int e = journal_node_by_local(v->journal, local, &row);
	e = e ? e : vnode_get(v, row, &n);
	if (!e && !(n->flags & VN_ORPHAN)) {
		n->content.root = *root;
		n->content_slot.dirty = true;
		filedata_snapshot_fini(&n->snapshot);
		n->snapshot.local = n->local;
		n->snapshot.change = FILEDATA_RANGES;
		e = content_copy(&n->snapshot.content, &n->content);
		e = e ? e : extents_copy(&n->snapshot.ranges, pages);
		n->snapshot_taken = true;
		e = e ? e : slot_change(&n->times_slot);
		n->times.mtime = n->times.ctime = (struct timespec64){mtime_ns / 1000000000, (uint32_t)(mtime_ns % 1000000000)};
		vnode_dirty(v, n);
	}
	tree_unlock(v);
	return e == -ENOENT ? 0 : e;
}

static int replay(struct volume *v)
{
	const struct redo_callbacks cb = {.object_info = object_info, .changed = changed, .ctx = v};
	int e = object_store_replay(v->objects, v->txn, &cb);

	if (e)
		log_error("%s: the redo log could not be replayed: %s", v->path, strerror(-e));
	/* what is committed from now on must be numbered above all that the log holds: a second replay takes those records as committed */
	if (v->txn < object_store_log_txn(v->objects))
		v->txn = object_store_log_txn(v->objects);
	object_store_set_txn(v->objects, v->txn + 1);
	return e;
}

static int doom_orphans(struct volume *v)
{
	uint64_t row[256], after = 0;
	uint32_t n;
	int e = 0;

	tree_lock(v);
	do {
		e = journal_orphans(v->journal, after, row, 256, &n);
		for (uint32_t i = 0; i < n && !e; i++) {
			struct vnode *o;
			after = row[i];
			if (vnode_get(v, row[i], &o))
				continue; /* it does not open: it stays, and was logged */
			o->flags |= VN_ORPHAN | VN_DOOMED;
			vnode_dirty(v, o);
		}
	} while (!e && n == 256);
	tree_unlock(v);
	return e;
}

/* Files whose removal was committed, but perhaps not done. */
/* 0, or -ENOENT where no record names the object. */
static int object_named(struct volume *v, uint64_t local)
{
	uint64_t row;
	int e = journal_node_by_local(v->journal, local, &row);

	if (e == -ENOENT)
		e = journal_extra_by_local(v->journal, local, &row);
	return e == -ENOENT ? journal_base_by_local(v->journal, local, &row) : e;
}

static int empty_trash(struct volume *v)
{
	uint64_t local[256];
	uint32_t n;
	int e;

	tree_lock(v);
	e = journal_begin(v->journal);
	do {
		n = 0;
		e = e ? e : journal_trash_list(v->journal, local, 256, &n);
		for (uint32_t i = 0; i < n && !e; i++) {
			/* one that a record names is not trash, whatever the table says */
			if ((e = object_named(v, local[i])) == -ENOENT)
				object_remove(v->objects, local[i]);
			if (!e || e == -ENOENT)
				e = journal_trash_delete(v->journal, local[i]);
		}
	} while (!e && n == 256);
	e = e ? e : object_store_sync_removals(v->objects);
	e = e ? e : journal_commit(v->journal);
	if (e)
		journal_rollback(v->journal);
	tree_unlock(v);
	return e;
}

/* Objects made since the last full commit that no record names. */
static int remove_strays(struct volume *v)
{
	uint64_t end, most = 0;
	int e;

	tree_lock(v);
	/* objects/ may have lost files that the journal names: their numbers are not given again */
	e = journal_max_local(v->journal, &most);
	/* nor one below the floor, where nobody looks for strays */
	if (!e && v->local_floor > most)
		most = v->local_floor - 1;
	if (!e)
		object_store_used_local(v->objects, most);
	end = object_store_next_local(v->objects);
	for (uint64_t local = v->local_floor ? v->local_floor : 1; local < end && !e; local++) {
		if ((e = object_named(v, local)) == -ENOENT)
			e = object_remove(v->objects, local);
	}
	tree_unlock(v);
	return e;
}

/* ---- incoming/ ---- */
/* The name of what a transfer has left: NODE-REPLICA-COUNTER, see transfer_sink.c, or that with .ranges, see transfer_spool.c. */
static bool parse_incoming(const char *name, struct id *ret_node, struct dot *ret_dot)
{
	unsigned long long replica, counter;
	char hex[ID_HEX_LEN + 1] = "";
	int end = 0;

	if (strlen(name) <= ID_HEX_LEN || sscanf(name + ID_HEX_LEN, "-%16llx-%llu%n", &replica, &counter, &end) != 2)
		return false;
	const char *rest = name + ID_HEX_LEN + end;
	if (*rest && strcmp(rest, ".ranges"))
		return false;
	memcpy(hex, name, ID_HEX_LEN);
	*ret_dot = (struct dot){replica, counter};
	return id_parse(hex, ret_node) == 0;
}

/* Held, but without its bytes: they are asked for again. */
static bool lacks_bytes(struct volume *v, const struct id *node, struct dot dot)
{
	struct vnode *n;

	if (vnode_by_id(v, node, &n))
		return false;
	if (dot_eq(n->content_slot.stamp.dot, dot))
		return vnode_lacks_bytes(n);
	for (uint32_t i = 0; i < n->n_extra; i++)
		if (dot_eq(n->extra[i].slot.stamp.dot, dot))
			return content_lacks_bytes(&n->extra[i].content, n->extra[i].local);
	return false;
}

/* Will nobody go on with it? What our knowledge contains came whole, or was superseded before it did. */
static bool is_leftover(struct volume *v, const char *name, const struct stat *st)
{
	struct id node;
	struct dot dot;

	if (st->st_mtim.tv_sec < time(NULL) - INCOMING_KEPT_S)
		return true;
	return parse_incoming(name, &node, &dot) && vector_has(&v->knowledge, dot) && !lacks_bytes(v, &node, dot);
}

/* A failure leaves them to the next open. */
static void clear_incoming(struct volume *v)
{
	int fd = openat(v->dirfd, "incoming", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *i;
	struct stat st;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	tree_lock(v);
	while ((i = readdir(d)))
		if (!fstatat(fd, i->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) && is_leftover(v, i->d_name, &st))
			unlinkat(fd, i->d_name, 0);
	tree_unlock(v);
	closedir(d);
}

int recover(struct volume *v)
{
	if (v->options.read_only) {
		int e = replay(v);
		if (e == -EROFS)
			log_error("%s: the last stop was not clean: mount it writable once", v->path);
		return e;
	}
	int e = replay(v);
	e = e ? e : doom_orphans(v);
	e = e ? e : empty_trash(v);
	e = e ? e : remove_strays(v);
	if (!e)
		clear_incoming(v);
	if (!e && v->n_dirty_nodes)
		e = commit_run(v, 0);
	tree_lock(v);
	for (struct list *i = v->clean_nodes.next; i != &v->clean_nodes; i = i->next) {
		struct vnode *n = LIST_OF(i, struct vnode, at);
		filedata_snapshot_fini(&n->snapshot);
		n->snapshot_taken = false;
	}
	tree_unlock(v);
	return e ? e : object_store_checkpoint(v->objects);
}
