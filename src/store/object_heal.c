#include "object_heal.h"
#include "object_internal.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int object_heal_header(struct object_store *s, uint64_t local, const struct id *object, uint32_t epoch)
{
	char name[NAME_MAX_BYTES], folder[16];
	struct object *o;
	int fd, r;

	if (s->read_only)
		return -EROFS;
	object_local_name(local, name);
	snprintf(folder, sizeof folder, "objects/%02x", (unsigned)(local & 255));
	if ((mkdirat(s->dirfd, "objects", 0700) && errno != EEXIST) || (mkdirat(s->dirfd, folder, 0700) && errno != EEXIST))
		return -errno;
	fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = object_header_check(s, fd, object, epoch);
	if (r == -EBADMSG || r == -EUCLEAN) {
		o = object_new(s, local, name, object, epoch);
		r = o ? object_header_write(o, fd) : -ENOMEM;
		if (o)
			object_free(o);
		if (!r && fdatasync(fd))
			r = -errno;
	}
	close(fd);
	fd = openat(s->dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		if (!r && fsync(fd))
			r = -errno;
		close(fd);
	}
	return r;
}

int object_heal_folders(struct object_store *s)
{
	static const char *const outer[] = {"objects", "incoming", "outgoing"};
	char name[16];
	int made = 0;

	for (unsigned i = 0; i < 256 + 3; i++) {
		if (i < 3)
			snprintf(name, sizeof name, "%s", outer[i]);
		else
			snprintf(name, sizeof name, "objects/%02x", i - 3);
		if (!mkdirat(s->dirfd, name, 0700))
			made++;
		else if (errno != EEXIST)
			return -errno;
	}
	if (made)
		log_error("%d folders of the store were missing: what they held is lacking here and is fetched from peers", made);
	return made && syncfs(s->dirfd) ? -errno : 0;
}

bool object_lost_file(struct object *o)
{
	struct stat at, open_one;
	bool lost = false;

	pthread_mutex_lock(&o->s->fds_lock);
	if (o->fd >= 0 && !fstat(o->fd, &open_one))
		lost = fstatat(o->s->dirfd, o->name, &at, AT_SYMLINK_NOFOLLOW) ? errno == ENOENT :
			at.st_ino != open_one.st_ino || at.st_dev != open_one.st_dev;
	bool busy = o->fd_users || o->fd_pinned;
	pthread_mutex_unlock(&o->s->fds_lock);
	/* what is not flushed yet has only the old file: later */
	if (!lost || busy || o->removed)
		return false;
	fd_close(o);
	return true;
}

static void take_all(struct object *o, struct range *r)
{
	pthread_mutex_lock(&o->lock);
	range_take(o, r, 0, UINT64_MAX);
	pthread_mutex_unlock(&o->lock);
}

static void give(struct object *o, struct range *r)
{
	pthread_mutex_lock(&o->lock);
	range_give(o, r);
	pthread_mutex_unlock(&o->lock);
}

/* Present pages of [first, first + n), n <= GROUP_PAGES. */
static void present_of(struct object *o, uint64_t first, uint32_t n, bool *ret)
{
	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; i < n; i++)
		ret[i] = map_has(&o->map, first + i);
	pthread_mutex_unlock(&o->lock);
}

static uint32_t group_len(const struct object *o, uint64_t group)
{
	uint64_t left = o->map.pages - group * GROUP_PAGES;
	return left < GROUP_PAGES ? (uint32_t)left : GROUP_PAGES;
}

int object_check_entries(struct object *o)
{
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN];
	bool present[GROUP_PAGES];
	struct root sum = {0}, term;
	struct range range;
	int r = 0;

	take_all(o, &range);
	for (uint64_t g = 0; !r && g * GROUP_PAGES < o->map.pages; g++) {
		uint32_t n = group_len(o, g);
		tags_forget(o, g);
		present_of(o, g * GROUP_PAGES, n, present);
		r = object_entries_held(o, g * GROUP_PAGES, n, entry);
		for (uint32_t i = 0; !r && i < n; i++)
			if (present[i]) {
				keyring_page_term(o->s->k, g * GROUP_PAGES + i, entry + i * TAG_ENTRY_LEN, &term);
				root_add(&sum, &term);
			}
	}
	if (!r && !root_eq(&sum, &o->root))
		r = -EBADMSG;
	give(o, &range);
	return r;
}

int object_damaged(struct object *o, uint64_t first, uint32_t n, bool *ret_bad)
{
	uint8_t entry[GROUP_PAGES * TAG_ENTRY_LEN], *buf = group_buf_get(o->s);
	bool present[GROUP_PAGES];
	int r = buf ? 0 : -ENOMEM;

	present_of(o, first, n, present);
	memset(ret_bad, 0, n);
	for (uint32_t i = 0, end; !r && i < n; i = end) {
		end = i + 1;
		if (!present[i])
			continue;
		while (end < n && present[end])
			end++;
		r = object_read_sealed(o, first + i, end - i, entry, buf);
		for (uint32_t k = 0; !r && k < end - i; k++) {
			uint8_t *p = buf + (size_t)k * PAGE_LEN;
			ret_bad[i + k] = page_open(o->sealer, first + i + k, entry + k * TAG_ENTRY_LEN, p, p) != 0;
		}
		if (r == -ENODATA) /* cut off or punched meanwhile */
			r = 0;
	}
	if (buf)
		explicit_bzero(buf, (size_t)GROUP_PAGES * PAGE_LEN);
	group_buf_put(o->s, buf);
	return r;
}

static int sum_matches(struct object *o, const uint8_t *entries)
{
	struct root sum = {0}, term;
	bool present[GROUP_PAGES];

	for (uint64_t first = 0; first < o->map.pages; first += GROUP_PAGES) {
		uint32_t n = group_len(o, first / GROUP_PAGES);
		present_of(o, first, n, present);
		for (uint32_t i = 0; i < n; i++)
			if (present[i]) {
				keyring_page_term(o->s->k, first + i, entries + (first + i) * TAG_ENTRY_LEN, &term);
				root_add(&sum, &term);
			}
	}
	return root_eq(&sum, &o->root) ? 0 : -EBADMSG;
}

/* Entries of one group; those of pages that are pending or not there stay. */
static int heal_group(struct object *o, int fd, uint64_t first, uint32_t n, const uint8_t *entries)
{
	bool want[GROUP_PAGES];
	int r = 0;

	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; i < n; i++)
		want[i] = map_has(&o->map, first + i) && !pending_find(&o->pending, first + i);
	pthread_mutex_unlock(&o->lock);
	for (uint32_t i = 0, end; !r && i < n; i = end) {
		end = i + 1;
		if (!want[i])
			continue;
		while (end < n && want[end])
			end++;
		r = object_write_entries(o, fd, first + i, end - i, entries + i * TAG_ENTRY_LEN);
	}
	pthread_mutex_lock(&o->lock);
	mark_dirty(o, first, n);
	pthread_mutex_unlock(&o->lock);
	return r;
}

int object_heal_entries(struct object *o, const uint8_t *entries, uint64_t pages)
{
	struct range range;
	int fd, r = 0;

	if (o->s->read_only)
		return -EROFS;
	take_all(o, &range);
	if (pages != o->map.pages)
		r = -ESTALE;
	if (!r)
		r = sum_matches(o, entries);
	fd_pin(o, true);
	if (!r)
		r = fd_get(o, &fd);
	if (!r) {
		for (uint64_t first = 0; !r && first < pages; first += GROUP_PAGES)
			r = heal_group(o, fd, first, group_len(o, first / GROUP_PAGES), entries + first * TAG_ENTRY_LEN);
		fd_put(o);
	}
	give(o, &range);
	return r;
}

int object_heal_page(struct object *o, uint64_t page, const uint8_t entry[static TAG_ENTRY_LEN], const uint8_t sealed[static PAGE_LEN])
{
	uint8_t plain[PAGE_LEN], held[TAG_ENTRY_LEN];
	struct range range;
	bool pending;
	int fd, r;

	if (o->s->read_only)
		return -EROFS;
	r = page_open(o->sealer, page, entry, sealed, plain);
	explicit_bzero(plain, sizeof plain);
	if (r)
		return r;
	pthread_mutex_lock(&o->lock);
	range_take(o, &range, page, 1);
	pending = pending_find(&o->pending, page) || !map_has(&o->map, page);
	pthread_mutex_unlock(&o->lock);
	r = pending ? -ESTALE : object_entries_held(o, page, 1, held);
	if (!r && memcmp(held, entry, TAG_ENTRY_LEN))
		r = -ESTALE;
	fd_pin(o, true);
	if (!r)
		r = fd_get(o, &fd);
	if (!r) {
		r = full_pwrite(fd, sealed, PAGE_LEN, data_off(page));
		fd_put(o);
		pthread_mutex_lock(&o->lock);
		mark_dirty(o, page, 1);
		pthread_mutex_unlock(&o->lock);
	}
	give(o, &range);
	return r;
}

void object_store_used_local(struct object_store *s, uint64_t local)
{
	object_store_next_local(s);
	pthread_mutex_lock(&s->table_lock);
	if (s->next_local <= local)
		s->next_local = local + 1;
	pthread_mutex_unlock(&s->table_lock);
}
