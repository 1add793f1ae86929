/* Writing pages, a group at a time: seal outside the lock; protected pages become a record of the redo log and pending, all others
 * go straight into the file; then map, root and pending pages are published together. */
#include "object_internal.h"

#include "log.h"

#include <errno.h>
#include <stdlib.h>

struct job { /* one group's worth of a request */
	struct object *o;
	uint64_t first;
	uint32_t n;
	const uint8_t *plain;   /* NULL: entries and sealed as a peer made them */
	const uint8_t *sealed;
	int64_t mtime_ns;
	bool remote;
	struct range range;
	uint8_t prefix[NONCE_PREFIX_LEN];
	uint64_t counter, txn;
	uint32_t n_protected, n_old;
	bool protect[GROUP_PAGES], present[GROUP_PAGES], has_old[GROUP_PAGES];
	struct pending *node[GROUP_PAGES];
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN], old[GROUP_PAGES * TAG_ENTRY_LEN];
	struct root plus, minus;
	uint8_t *direct; /* group buffer for the pages that go into the file */
	bool logged;
	struct redo_append append;
};

static uint8_t *entry_of(uint8_t *entries, uint32_t i) { return entries + i * TAG_ENTRY_LEN; }

/* A group of which no page is in use, pending or being written by somebody else. */
static bool group_is_fresh(struct object *o, const struct job *j)
{
	uint64_t start = group_of(j->first) * GROUP_PAGES, end = start + GROUP_PAGES;
	struct extent e;

	if (start < o->map.pages) {
		/* all of it a hole, as far as the map goes */
		uint64_t in_map = end < o->map.pages ? end : o->map.pages;
		e = extents_next(&o->map.holes, start);
		if (e.first != start || e.count < in_map - start)
			return false;
	}
	e = extents_next(&o->protect, start);
	if (e.count && e.first < end)
		return false;
	for (struct range *r = o->ranges; r; r = r->next)
		if (r != &j->range && r->first < end && start < r->end)
			return false;
	return true;
}

/* Under the lock: which pages are protected, what their old entries are as far as memory knows, nonces. */
static int plan(struct job *j)
{
	struct object *o = j->o;
	int r = extents_reserve(&o->map.holes, 2 + 2 * (o->n_ranges + 1));

	protect_settle(o);
	if (!r)
		r = pending_reserve(&o->pending, j->n);
	if (!r)
		r = extents_reserve(&o->protect, GROUP_PAGES * o->n_ranges);
	if (!r)
		r = extents_reserve(&o->next, GROUP_PAGES * o->n_ranges);
	if (r)
		return r;
	for (uint32_t i = 0; i < j->n; i++) {
		uint64_t page = j->first + i;
		struct pending *p = pending_find(&o->pending, page);
		j->present[i] = map_has(&o->map, page);
		j->protect[i] = extents_has(&o->protect, page) || (p && j->present[i]);
		j->n_protected += j->protect[i];
		if (p) {
			memcpy(entry_of(j->old, i), p->entry, TAG_ENTRY_LEN);
			j->has_old[i] = true;
		}
		if (!j->has_old[i] && (j->protect[i] || j->present[i]))
			j->n_old++;
		if (p && !j->protect[i]) /* no content needs it any more, and it must not be put over the new page */
			pending_drop(o, pending_take(&o->pending, page));
	}
	if (j->n_protected < j->n && group_is_fresh(o, j))
		tags_fresh(o, group_of(j->first));
	if (j->plain)
		nonces_take(o, j->n, j->prefix, &j->counter);
	j->txn = record_txn(o);
	return 0;
}

static int read_old(struct job *j)
{
	uint8_t file[GROUP_PAGES * TAG_ENTRY_LEN];
	int r;

	if (!j->n_old)
		return 0;
	r = tags_read(j->o, j->first, j->n, file);
	if (r)
		return r;
	for (uint32_t i = 0; i < j->n; i++)
		if (!j->has_old[i] && (j->protect[i] || j->present[i])) {
			memcpy(entry_of(j->old, i), entry_of(file, i), TAG_ENTRY_LEN);
			j->has_old[i] = true;
		}
	return 0;
}

static int get_memory(struct job *j)
{
	struct object_store *s = j->o->s;

	for (uint32_t i = 0; i < j->n; i++)
		if (j->protect[i]) {
			j->node[i] = node_get(s);
			if (!j->node[i])
				return -EAGAIN;
		}
	/* pages of a peer that all go straight into the file need no copy */
	if (j->n_protected < j->n && j->plain) {
		j->direct = group_buf_get(s);
		if (!j->direct)
			return -ENOMEM;
	}
	return 0;
}

static void seal_all(struct job *j)
{
	uint64_t start = stats_now_ns();

	for (uint32_t i = 0; i < j->n; i++) {
		uint8_t *to = j->node[i] ? j->node[i]->sealed : j->direct ? j->direct + (size_t)i * PAGE_LEN : NULL;
		if (j->plain)
			page_seal(j->o->sealer, j->prefix, j->counter + i, j->first + i, j->plain + (size_t)i * PAGE_LEN, to,
				  entry_of(j->entry, i));
		else if (j->node[i])
			memcpy(to, j->sealed + (size_t)i * PAGE_LEN, PAGE_LEN);
	}
	if (j->plain) {
		stats_since(j->o->s->st, STAGE_SEAL, start);
		stats_add(j->o->s->st, COUNT_SEALED_BYTES, (uint64_t)j->n * PAGE_LEN);
	}
}

static void root_terms(struct job *j)
{
	const struct keyring *k = j->o->s->k;
	struct root t;

	for (uint32_t i = 0; i < j->n; i++) {
		keyring_page_term(k, j->first + i, entry_of(j->entry, i), &t);
		root_add(&j->plus, &t);
		if (j->present[i]) {
			keyring_page_term(k, j->first + i, entry_of(j->old, i), &t);
			root_add(&j->minus, &t);
		}
	}
}

/* The protected pages of the group as one record. */
static int append_record(struct job *j)
{
	struct object_store *s = j->o->s;
	uint8_t head[REDO_HEAD_MAX], *item = head + REDO_RECORD_HEAD;
	struct iovec pages[GROUP_PAGES];
	struct redo_record r = {.local = j->o->local, .mtime_ns = j->mtime_ns, .txn = j->txn, .items = item,
				.kind = j->remote ? REDO_REMOTE : REDO_LOCAL};
	int ret;

	for (uint32_t i = 0; i < j->n; i++) {
		if (!j->protect[i])
			continue;
		le64_store(item, j->first + i);
		memcpy(item + 8, entry_of(j->old, i), TAG_ENTRY_LEN);
		memcpy(item + 8 + TAG_ENTRY_LEN, entry_of(j->entry, i), TAG_ENTRY_LEN);
		item += REDO_PAGE_ITEM;
		pages[r.count++] = (struct iovec){j->node[i]->sealed, PAGE_LEN};
	}
	do {
		ret = redo_append(s, &r, head, pages, (int)r.count, &j->append);
		if (ret == -EAGAIN)
			ret = redo_make_room(s);
		else if (!ret)
			j->logged = true;
	} while (!ret && !j->logged);
	return ret;
}

int object_write_entries(struct object *o, int fd, uint64_t first, uint32_t n, const uint8_t *entries)
{
	int r = full_pwrite(fd, entries, n * TAG_ENTRY_LEN, entry_off(first));

	if (r)
		tags_forget(o, group_of(first));
	else
		tags_written(o, first, n, entries);
	return r;
}

static const uint8_t *direct_page(const struct job *j, uint32_t i)
{
	return (j->plain ? j->direct : j->sealed) + (size_t)i * PAGE_LEN;
}

/* A whole group is one write, tag page included. */
static int write_whole_group(struct job *j, int fd)
{
	struct iovec iov[2] = {{j->entry, PAGE_LEN}, {(void *)(uintptr_t)direct_page(j, 0), (size_t)GROUP_PAGES * PAGE_LEN}};
	int r;

	_Static_assert(GROUP_PAGES * TAG_ENTRY_LEN == PAGE_LEN, "a group's entries fill its tag page");
	r = full_pwritev(fd, iov, 2, tags_off(group_of(j->first)));
	if (r)
		tags_forget(j->o, group_of(j->first));
	else
		tags_written(j->o, j->first, j->n, j->entry);
	return r;
}

static int write_direct(struct job *j)
{
	struct object *o = j->o;
	uint64_t start = stats_now_ns();
	int fd, r;

	if (j->n_protected == j->n)
		return 0;
	fd_pin(o, true);
	r = fd_get(o, &fd);
	if (r)
		return r;
	if (j->n == GROUP_PAGES && !j->n_protected) {
		r = write_whole_group(j, fd);
	} else {
		for (uint32_t i = 0, end; !r && i < j->n; i = end) {
			end = i + 1;
			if (j->protect[i])
				continue;
			while (end < j->n && !j->protect[end])
				end++;
			r = full_pwrite(fd, direct_page(j, i), (size_t)(end - i) * PAGE_LEN, data_off(j->first + i));
			if (!r)
				r = object_write_entries(o, fd, j->first + i, end - i, entry_of(j->entry, i));
		}
	}
	fd_put(o);
	stats_since(o->s->st, STAGE_OBJECT_WRITE, start);
	stats_add(o->s->st, COUNT_OBJECT_BYTES_WRITTEN, (uint64_t)(j->n - j->n_protected) * PAGE_LEN);
	return r;
}

/* A node goes on top of its page's older one. What a page of a peer covers is still needed until that is committed. */
static void publish_node(struct job *j, struct pending *p)
{
	struct object *o = j->o;
	struct pending *before = pending_put(&o->pending, p);

	if (p->remote && before) {
		p->older = before->remote ? before->older : before;
		if (before->remote) {
			before->older = NULL;
			pending_drop(o, before);
		}
	} else if (before) {
		pending_drop(o, before);
	}
}

/* A page that the log names goes on through the log: written directly, it would be overwritten by replay. So a commit of a content in
 * which it was a hole does not free it. */
static void protect_logged(struct object *o, uint64_t page)
{
	if (!extents_has(&o->protect, page))
		extents_add(&o->protect, page, 1);
	if (o->has_next && !extents_has(&o->next, page))
		extents_add(&o->next, page, 1);
}

/* Under the lock. failed: only what the log has is published, the rest counts as lost. */
static void publish(struct job *j, bool failed)
{
	struct object *o = j->o;
	uint64_t end = j->first + j->n;

	for (uint32_t i = 0; i < j->n; i++) {
		struct pending *p = j->node[i];
		if (!p)
			continue;
		p->page = j->first + i;
		p->txn = j->txn;
		p->half = j->append.half;
		p->remote = j->remote;
		memcpy(p->entry, entry_of(j->entry, i), TAG_ENTRY_LEN);
		publish_node(j, p);
		protect_logged(o, p->page);
		j->node[i] = NULL;
	}
	if (j->logged) {
		o->log_generation[j->append.half] = j->append.generation;
		if (!j->remote)
			atomic_store(&o->logged, true);
	}
	if (j->first > o->map.pages)
		extents_add(&o->map.holes, o->map.pages, j->first - o->map.pages);
	extents_remove(&o->map.holes, j->first, j->n);
	if (end > o->map.pages)
		o->map.pages = end;
	root_add(&o->root, &j->plus);
	root_sub(&o->root, &j->minus);
	if (j->n_protected < j->n)
		mark_dirty(o, j->first, j->n);
	if (failed)
		mark_failed(o, j->first, j->n);
}

/* A direct write that failed may have left a mix in pages that the map shows: those read as damaged, and flushing fails, until
 * they are written again. Fresh pages only stay unseen. */
static bool must_publish_failure(const struct job *j)
{
	if (j->logged)
		return true;
	for (uint32_t i = 0; i < j->n; i++)
		if (j->present[i] && !j->protect[i])
			return true;
	return false;
}

static int write_group(struct job *j)
{
	struct object *o = j->o;
	bool planned, direct_failed = false;
	int r;

	pthread_mutex_lock(&o->lock);
	range_take(o, &j->range, j->first, j->n);
	r = plan(j);
	pthread_mutex_unlock(&o->lock);
	planned = !r;
	if (!r)
		r = read_old(j);
	if (!r)
		r = get_memory(j);
	if (!r) {
		seal_all(j);
		root_terms(j);
		if (j->n_protected)
			r = append_record(j);
	}
	if (!r) {
		r = write_direct(j);
		direct_failed = r;
	}
	pthread_mutex_lock(&o->lock);
	if (planned && (!r || (direct_failed && must_publish_failure(j))))
		publish(j, r);
	range_give(o, &j->range);
	pthread_mutex_unlock(&o->lock);
	if (j->logged)
		redo_published(o->s, &j->append);
	for (uint32_t i = 0; i < j->n; i++)
		node_put(o->s, j->node[i]);
	group_buf_put(o->s, j->direct);
	return r;
}

static int write_pages(struct object *o, uint64_t first, uint32_t n, const uint8_t *plain, const uint8_t *entries,
		       const uint8_t *sealed, int64_t mtime_ns)
{
	if (o->s->read_only)
		return -EROFS;
	if (first >= PAGES_MAX || n > PAGES_MAX - first)
		return -EFBIG;
	while (n) {
		uint32_t room = GROUP_PAGES - (uint32_t)(first % GROUP_PAGES), now = n < room ? n : room;
		struct job j;
		int r;
		memset(&j, 0, offsetof(struct job, entry));
		memset(&j.plus, 0, sizeof(j) - offsetof(struct job, plus));
		j.o = o;
		j.first = first;
		j.n = now;
		j.plain = plain;
		j.sealed = sealed;
		j.mtime_ns = mtime_ns;
		j.remote = !plain;
		if (entries)
			memcpy(j.entry, entries, now * TAG_ENTRY_LEN);
		r = write_group(&j);
		if (r)
			return r;
		first += now;
		n -= now;
		if (plain)
			plain += (size_t)now * PAGE_LEN;
		if (sealed)
			sealed += (size_t)now * PAGE_LEN;
		if (entries)
			entries += now * TAG_ENTRY_LEN;
	}
	return 0;
}

int object_write(struct object *o, uint64_t first, uint32_t n, const uint8_t *plain, int64_t mtime_ns)
{
	return write_pages(o, first, n, plain, NULL, NULL, mtime_ns);
}

static int open_all(struct object *o, uint64_t first, uint32_t n, const uint8_t *entries, const uint8_t *sealed)
{
	uint8_t plain[PAGE_LEN];
	int r = 0;

	for (uint32_t i = 0; !r && i < n; i++)
		r = page_open(o->sealer, first + i, entries + i * TAG_ENTRY_LEN, sealed + (size_t)i * PAGE_LEN, plain);
	explicit_bzero(plain, sizeof(plain));
	return r;
}

int object_write_sealed(struct object *o, uint64_t first, uint32_t n, const uint8_t *entries, const uint8_t *sealed,
			int64_t mtime_ns)
{
	uint64_t start = stats_now_ns();
	int r = open_all(o, first, n, entries, sealed);

	stats_since(o->s->st, STAGE_OPEN, start);
	stats_add(o->s->st, COUNT_OPENED_BYTES, (uint64_t)n * PAGE_LEN);
	if (r) {
		stats_add(o->s->st, COUNT_AUTH_FAILURES, 1);
		return r;
	}
	return write_pages(o, first, n, NULL, entries, sealed, mtime_ns);
}
