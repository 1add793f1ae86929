/* Reading pages, a group at a time: pending ones are copied under the lock, all others are read straight into the caller's buffer;
 * then all are opened there. What does not open is read once more with its writers kept out, since a writer may have been
 * between its data and its entries. */
#include "object_internal.h"

#include "log.h"

#include <errno.h>

enum where { NOWHERE, IN_MEMORY, IN_FILE };

struct read_job {
	struct object *o;
	uint64_t first;
	uint32_t n;
	uint8_t *buf;
	enum where where[GROUP_PAGES];
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN];
	uint32_t n_file;
};

/* Lock held. */
static void look(struct read_job *j)
{
	struct object *o = j->o;

	j->n_file = 0;
	for (uint32_t i = 0; i < j->n; i++) {
		struct pending *p;
		j->where[i] = NOWHERE;
		if (!map_has(&o->map, j->first + i))
			continue;
		p = pending_find(&o->pending, j->first + i);
		if (p) {
			memcpy(j->buf + (size_t)i * PAGE_LEN, p->sealed, PAGE_LEN);
			memcpy(j->entry + i * TAG_ENTRY_LEN, p->entry, TAG_ENTRY_LEN);
			j->where[i] = IN_MEMORY;
		} else {
			j->where[i] = IN_FILE;
			j->n_file++;
		}
	}
}

static int read_run(struct read_job *j, int fd, uint32_t i, uint32_t end)
{
	size_t len = (size_t)(end - i) * PAGE_LEN;
	uint8_t *to = j->buf + (size_t)i * PAGE_LEN;
	ssize_t n = full_pread(fd, to, len, data_off(j->first + i));

	if (n < 0)
		return (int)n;
	/* a file that is too short: these pages will not open */
	memset(to + n, 0, len - (size_t)n);
	return 0;
}

static int read_file(struct read_job *j)
{
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN];
	uint64_t start;
	int fd, r;

	if (!j->n_file)
		return 0;
	r = tags_read(j->o, j->first, j->n, entry);
	if (!r)
		r = fd_get(j->o, &fd);
	if (r)
		return r;
	start = stats_now_ns();
	for (uint32_t i = 0, end; !r && i < j->n; i = end) {
		end = i + 1;
		if (j->where[i] != IN_FILE)
			continue;
		while (end < j->n && j->where[end] == IN_FILE)
			end++;
		memcpy(j->entry + i * TAG_ENTRY_LEN, entry + i * TAG_ENTRY_LEN, (end - i) * TAG_ENTRY_LEN);
		r = read_run(j, fd, i, end);
	}
	fd_put(j->o);
	stats_since(j->o->s->st, STAGE_OBJECT_READ, start);
	stats_add(j->o->s->st, COUNT_OBJECT_BYTES_READ, (uint64_t)j->n_file * PAGE_LEN);
	return r;
}

/* 0, or -EBADMSG and the first page that does not open; from that on buf is zeros. */
static int open_group(struct read_job *j, uint32_t *ret_bad)
{
	uint64_t start = stats_now_ns();
	uint32_t i, opened = 0;
	int r = 0;

	for (i = 0; !r && i < j->n; i++) {
		uint8_t *p = j->buf + (size_t)i * PAGE_LEN;
		if (j->where[i] == NOWHERE) {
			memset(p, 0, PAGE_LEN);
			continue;
		}
		r = page_open(j->o->sealer, j->first + i, j->entry + i * TAG_ENTRY_LEN, p, p);
		opened++;
	}
	if (r) {
		*ret_bad = i - 1;
		memset(j->buf + (size_t)(i - 1) * PAGE_LEN, 0, (size_t)(j->n - (i - 1)) * PAGE_LEN);
	}
	if (opened) {
		stats_since(j->o->s->st, STAGE_OPEN, start);
		stats_add(j->o->s->st, COUNT_OPENED_BYTES, (uint64_t)opened * PAGE_LEN);
	}
	return r;
}

static int read_again(struct read_job *j, uint32_t *ret_bad)
{
	struct object *o = j->o;
	struct range range;
	int r;

	pthread_mutex_lock(&o->lock);
	range_take(o, &range, j->first, j->n);
	look(j);
	pthread_mutex_unlock(&o->lock);
	r = read_file(j);
	pthread_mutex_lock(&o->lock);
	range_give(o, &range);
	pthread_mutex_unlock(&o->lock);
	return r ? r : open_group(j, ret_bad);
}

static int read_group(struct read_job *j, uint32_t *ret_bad)
{
	int r;

	pthread_mutex_lock(&j->o->lock);
	look(j);
	pthread_mutex_unlock(&j->o->lock);
	r = read_file(j);
	if (!r)
		r = open_group(j, ret_bad);
	if (r == -EBADMSG)
		r = read_again(j, ret_bad);
	if (r == -EBADMSG)
		stats_add(j->o->s->st, COUNT_AUTH_FAILURES, 1);
	return r;
}

int object_read(struct object *o, uint64_t first, uint32_t n, uint8_t *buf, uint64_t *ret_bad)
{
	while (n) {
		uint32_t room = GROUP_PAGES - (uint32_t)(first % GROUP_PAGES), now = n < room ? n : room, bad = 0;
		struct read_job j;
		int r;
		j.o = o;
		j.first = first;
		j.n = now;
		j.buf = buf;
		r = read_group(&j, &bad);
		if (r) {
			if (r == -EBADMSG) {
				*ret_bad = first + bad;
				log_error("%s: page %llu does not authenticate", o->name, (unsigned long long)*ret_bad);
			} else {
				bad = 0; /* what was read may be there unopened */
			}
			memset(buf + (size_t)bad * PAGE_LEN, 0, (size_t)(n - bad) * PAGE_LEN);
			return r;
		}
		first += now;
		n -= now;
		buf += (size_t)now * PAGE_LEN;
	}
	return 0;
}

int object_entries_held(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries)
{
	uint8_t file[GROUP_PAGES * TAG_ENTRY_LEN];
	bool pending[GROUP_PAGES];
	uint32_t n_file = 0;
	int r;

	/* Memory before the file: the other way round a page could go in place between the two looks and be seen in neither. */
	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; i < n; i++) {
		struct pending *p = pending_find(&o->pending, first + i);
		pending[i] = p;
		if (p)
			memcpy(ret_entries + i * TAG_ENTRY_LEN, p->entry, TAG_ENTRY_LEN);
		else
			n_file++;
	}
	pthread_mutex_unlock(&o->lock);
	if (!n_file)
		return 0;
	r = tags_read(o, first, n, file);
	for (uint32_t i = 0; !r && i < n; i++)
		if (!pending[i])
			memcpy(ret_entries + i * TAG_ENTRY_LEN, file + i * TAG_ENTRY_LEN, TAG_ENTRY_LEN);
	return r;
}

/* Entries and, where asked for, pages as they stand, writers kept out. One group. */
static int read_sealed_group(struct read_job *j, bool with_pages)
{
	struct object *o = j->o;
	struct range range;
	int r = 0;

	pthread_mutex_lock(&o->lock);
	range_take(o, &range, j->first, j->n);
	for (uint32_t i = 0; i < j->n; i++)
		if (!map_has(&o->map, j->first + i))
			r = -ENODATA;
	if (!r && with_pages)
		look(j);
	pthread_mutex_unlock(&o->lock);
	if (!r)
		r = with_pages ? read_file(j) : object_entries_held(o, j->first, j->n, j->entry);
	pthread_mutex_lock(&o->lock);
	range_give(o, &range);
	pthread_mutex_unlock(&o->lock);
	return r;
}

int object_read_sealed(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries, uint8_t *ret_sealed)
{
	while (n) {
		uint32_t room = GROUP_PAGES - (uint32_t)(first % GROUP_PAGES), now = n < room ? n : room;
		struct read_job j;
		int r;
		j.o = o;
		j.first = first;
		j.n = now;
		j.buf = ret_sealed;
		r = read_sealed_group(&j, ret_sealed != NULL);
		if (r)
			return r;
		memcpy(ret_entries, j.entry, now * TAG_ENTRY_LEN);
		ret_entries += now * TAG_ENTRY_LEN;
		if (ret_sealed)
			ret_sealed += (size_t)now * PAGE_LEN;
		first += now;
		n -= now;
	}
	return 0;
}

int object_read_entries(struct object *o, uint64_t first, uint32_t n, uint8_t *ret_entries)
{
	return object_read_sealed(o, first, n, ret_entries, NULL);
}
