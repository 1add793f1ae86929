/* Objects that arrive and whole copies. */
#include "object_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define INCOMING_KEYS (UINT64_C(1) << 63) /* tag cache keys apart from local numbers */

/* How many leading pages of a group of the file open. */
static int leading_pages(struct object *o, int fd, uint64_t group, uint8_t *buf, uint32_t *ret_n)
{
	uint8_t entry[PAGE_LEN];
	ssize_t n = full_pread(fd, entry, PAGE_LEN, tags_off(group)), m;
	uint32_t i, have;

	*ret_n = 0;
	if (n < 0)
		return (int)n;
	if (n < PAGE_LEN)
		memset(entry + n, 0, PAGE_LEN - (size_t)n);
	m = full_pread(fd, buf, (size_t)GROUP_PAGES * PAGE_LEN, data_off(group * GROUP_PAGES));
	if (m < 0)
		return (int)m;
	stats_add(o->s->st, COUNT_OBJECT_BYTES_READ, (uint64_t)(n + m));
	have = (uint32_t)(m / PAGE_LEN);
	for (i = 0; i < have; i++) {
		uint8_t *p = buf + (size_t)i * PAGE_LEN;
		if (page_open(o->sealer, group * GROUP_PAGES + i, entry + i * TAG_ENTRY_LEN, p, p))
			break;
	}
	/* the root of what is kept */
	for (uint32_t k = 0; k < i; k++) {
		struct root term;
		keyring_page_term(o->s->k, group * GROUP_PAGES + k, entry + k * TAG_ENTRY_LEN, &term);
		root_add(&o->root, &term);
	}
	*ret_n = i;
	return 0;
}

static int resume(struct object *o, int fd)
{
	uint8_t *buf = group_buf_get(o->s);
	uint64_t group = 0;
	uint32_t n = 0;
	int r = buf ? 0 : -ENOMEM;

	while (!r) {
		r = leading_pages(o, fd, group, buf, &n);
		o->map.pages += n;
		group++;
		if (n < GROUP_PAGES)
			break;
	}
	group_buf_put(o->s, buf);
	return r;
}

int object_incoming(struct object_store *s, const char *name, const struct id *object, uint32_t epoch, struct object **ret,
		    uint64_t *ret_pages)
{
	char path[NAME_MAX_BYTES];
	struct object *o;
	struct stat st;
	int r, fd = -1, len = snprintf(path, sizeof(path), "incoming/%s", name);

	if (s->read_only)
		return -EROFS;
	if (len < 0 || (size_t)len >= sizeof(path) || strchr(name, '/') || !*name || *name == '.')
		return -EINVAL;
	o = object_new(s, 0, path, object, epoch);
	if (!o)
		return -ENOMEM;
	pthread_mutex_lock(&s->table_lock);
	o->tag_key = INCOMING_KEYS | ++s->incoming_count;
	pthread_mutex_unlock(&s->table_lock);
	fd = openat(s->dirfd, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	r = fd < 0 || fstat(fd, &st) ? -errno : 0;
	/* What does not belong to this object, or was cut before its header was whole, starts again. */
	if (!r && (!st.st_size || object_header_check(s, fd, object, epoch))) {
		r = ftruncate(fd, 0) ? -errno : object_header_write(o, fd);
	} else if (!r) {
		r = resume(o, fd);
	}
	if (fd >= 0)
		close(fd);
	if (r) {
		object_free(o);
		return r;
	}
	o->written_seq = 1; /* who wrote it last may not have flushed it */
	extents_add(&o->dirty, 0, o->map.pages);
	fd_pin(o, true);
	*ret_pages = o->map.pages;
	pthread_mutex_lock(&s->table_lock);
	object_table_add(o);
	pthread_mutex_unlock(&s->table_lock);
	*ret = o;
	return 0;
}

#define SYNCFS_NAMES 8 /* more folders than this are flushed with the whole filesystem */

static int sync_folder(int dirfd, const char *name)
{
	int r, fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	r = fsync(fd) ? -errno : 0;
	close(fd);
	return r;
}

int object_adopt(struct object *o, uint64_t local)
{
	struct object_store *s = o->s;
	char name[NAME_MAX_BYTES];
	int r, fd;

	if (o->local || !local)
		return -EINVAL;
	r = object_flush(o);
	if (!r)
		r = fd_get(o, &fd); /* kept over the change of its name */
	if (r)
		return r;
	object_local_name(local, name);
	if (renameat2(s->dirfd, o->name, s->dirfd, name, RENAME_NOREPLACE)) {
		r = -errno;
		if (r == -EINVAL || r == -ENOSYS) /* not every filesystem has the flag; local numbers are not used twice */
			r = renameat(s->dirfd, o->name, s->dirfd, name) ? -errno : 0;
	}
	if (!r)
		object_table_rename(o, local, name);
	fd_put(o);
	return r;
}

int object_store_flush_names(struct object_store *s, const uint64_t *local, uint32_t n)
{
	uint8_t done[256] = {0};
	char folder[16];
	int r = 0;

	if (n > SYNCFS_NAMES)
		return syncfs(s->dirfd) ? -errno : 0;
	for (uint32_t i = 0; i < n && !r; i++) {
		unsigned f = (unsigned)(local[i] & 255);

		if (done[f]++)
			continue;
		snprintf(folder, sizeof(folder), "objects/%02x", f);
		r = sync_folder(s->dirfd, folder);
	}
	return r || !n ? r : sync_folder(s->dirfd, "incoming");
}

int object_incoming_clear(struct object_store *s, const char *keep_prefix)
{
	int r = 0, fd = openat(s->dirfd, "incoming", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		close(fd);
		return r;
	}
	while ((e = readdir(d))) {
		if (*e->d_name == '.' || (keep_prefix && !strncmp(e->d_name, keep_prefix, strlen(keep_prefix))))
			continue;
		if (unlinkat(fd, e->d_name, 0) && errno != ENOENT && !r)
			r = -errno;
	}
	closedir(d);
	return r;
}

/* The bytes of a file, by whatever is cheapest: shared blocks, a copy in the kernel, reading and writing. */
static int copy_file(struct object_store *s, int from, int to, off_t len)
{
	uint8_t *buf;
	off_t done = 0;
	int r = 0;

	if (!ioctl(to, FICLONE, from))
		return 0;
	while (done < len) {
		loff_t a = done, b = done;
		ssize_t n = copy_file_range(from, &a, to, &b, (size_t)(len - done), 0);
		if (n <= 0)
			break;
		stats_add(s->st, COUNT_OBJECT_BYTES_READ, (uint64_t)n);
		done += n;
	}
	buf = done < len ? group_buf_get(s) : NULL;
	if (done < len && !buf)
		return -ENOMEM;
	while (!r && done < len) {
		ssize_t n = full_pread(from, buf, (size_t)GROUP_PAGES * PAGE_LEN, done);
		if (n <= 0) {
			r = (int)n;
			break;
		}
		stats_add(s->st, COUNT_OBJECT_BYTES_READ, (uint64_t)n);
		r = full_pwrite(to, buf, (size_t)n, done);
		done += n;
	}
	group_buf_put(s, buf);
	return r;
}

static int copy_pending(struct object *o, struct object *c, int to)
{
	int r = 0;

	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; !r && i < o->pending.n_buckets; i++)
		for (struct pending *p = o->pending.bucket[i]; !r && p; p = p->next) {
			if (!map_has(&o->map, p->page))
				continue;
			r = full_pwrite(to, p->sealed, PAGE_LEN, data_off(p->page));
			if (!r)
				r = object_write_entries(c, to, p->page, 1, p->entry);
		}
	pthread_mutex_unlock(&o->lock);
	return r;
}

/* o is held whole: nobody writes it meanwhile. */
static int copy_sealed(struct object *o, struct object *c)
{
	int from, to, r = fd_get(o, &from);
	struct extents holes = {0};
	struct stat st;

	if (r)
		return r;
	r = fd_get(c, &to);
	if (!r) {
		r = fstat(from, &st) ? -errno : copy_file(o->s, from, to, st.st_size);
		if (!r)
			r = copy_pending(o, c, to);
		fd_put(c);
	}
	fd_put(o);
	if (!r)
		r = extents_copy(&holes, &o->map.holes);
	if (r)
		return r;
	c->map = (struct page_map){o->map.pages, holes};
	c->root = o->root;
	pthread_mutex_lock(&c->lock);
	mark_dirty(c, 0, PAGES_MAX);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static int copy_anew(struct object *o, struct object *c)
{
	struct extents present = {0};
	uint8_t *buf = group_buf_get(o->s);
	struct page_map map;
	struct root root;
	uint64_t bad;
	int r = buf ? 0 : -ENOMEM;

	object_map(o, &map, &root);
	if (!r)
		r = map_present(&map, &present);
	for (uint32_t i = 0; !r && i < present.n; i++) {
		uint64_t page = present.e[i].first, left = present.e[i].count;
		while (!r && left) {
			uint32_t room = GROUP_PAGES - (uint32_t)(page % GROUP_PAGES), n = left < room ? (uint32_t)left : room;
			r = object_read(o, page, n, buf, &bad);
			if (!r)
				r = object_write(c, page, n, buf, 0);
			page += n;
			left -= n;
		}
	}
	if (!r)
		r = object_resize(c, map.pages);
	extents_fini(&map.holes);
	extents_fini(&present);
	if (buf)
		explicit_bzero(buf, (size_t)GROUP_PAGES * PAGE_LEN);
	group_buf_put(o->s, buf);
	return r;
}

int object_copy(struct object *o, uint64_t local, const struct id *new_object, struct object **ret)
{
	struct object *c;
	int r = object_create(o->s, local, new_object ? new_object : &o->id, o->epoch, &c);

	if (r)
		return r;
	if (new_object && !id_eq(new_object, &o->id)) {
		r = copy_anew(o, c);
	} else {
		struct range range;
		pthread_mutex_lock(&o->lock);
		range_take(o, &range, 0, UINT64_MAX);
		pthread_mutex_unlock(&o->lock);
		r = copy_sealed(o, c);
		pthread_mutex_lock(&o->lock);
		range_give(o, &range);
		pthread_mutex_unlock(&o->lock);
	}
	if (r) {
		object_remove(o->s, local);
		object_close(c);
		return r;
	}
	*ret = c;
	return 0;
}
