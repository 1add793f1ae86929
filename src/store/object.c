/* The objects that are open, and the store that holds them. An object that is closed stays here until its pages are in
 * place, flushed and covered by a commit; opening it again meanwhile finds it as it was. */
#include "object_internal.h"

#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define TAG_CACHE_PAGES 2048 /* 8 MiB: the tags of 1 GiB of contents */
#define HEADER_MAGIC "TWFOBJ1"

_Atomic uint64_t object_fork_generation;

static void forked(void) { atomic_fetch_add(&object_fork_generation, 1); }

static void watch_forks(void) { pthread_atfork(NULL, NULL, forked); }

void object_local_name(uint64_t local, char ret[static NAME_MAX_BYTES])
{
	snprintf(ret, NAME_MAX_BYTES, "objects/%02x/%016llx", (unsigned)(local & 255), (unsigned long long)local);
}

static uint32_t fd_limit(void)
{
	struct rlimit l;

	/* a quarter: sockets, FUSE, the journal and other volumes of the process need some too */
	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur / 4 > 4096)
		return 4096;
	return l.rlim_cur / 4 < 16 ? 16 : (uint32_t)(l.rlim_cur / 4);
}

int object_store_open(int dirfd, const struct keyring *k, const struct env *env, struct stats *st, bool read_only,
		      struct object_store **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct object_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	pthread_once(&once, watch_forks);
	s->dirfd = dirfd;
	s->k = k;
	s->env = env;
	s->st = st;
	s->read_only = read_only;
	s->fds_max = fd_limit();
	pthread_mutex_init(&s->table_lock, NULL);
	pthread_mutex_init(&s->apply_lock, NULL);
	pthread_mutex_init(&s->fds_lock, NULL);
	pthread_mutex_init(&s->pool_lock, NULL);
	s->tags = tag_cache_new(TAG_CACHE_PAGES);
	r = s->tags ? redo_open(s) : -ENOMEM;
	if (r) {
		tag_cache_free(s->tags);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void object_store_close(struct object_store *s)
{
	if (!s)
		return;
	redo_worker_stop(s);
	for (uint32_t i = 0; i < TABLE_BUCKETS; i++)
		while (s->table[i]) {
			struct object *o = s->table[i];
			s->table[i] = o->chain;
			object_free(o);
		}
	redo_close(s);
	tag_cache_free(s->tags);
	while (s->free_nodes) {
		struct pending *p = s->free_nodes;
		s->free_nodes = p->next;
		free(p);
	}
	while (s->free_bufs) {
		void *p = s->free_bufs;
		memcpy(&s->free_bufs, p, sizeof(void *));
		free(p);
	}
	pthread_mutex_destroy(&s->table_lock);
	pthread_mutex_destroy(&s->apply_lock);
	pthread_mutex_destroy(&s->fds_lock);
	pthread_mutex_destroy(&s->pool_lock);
	free(s);
}

void object_store_set_txn(struct object_store *s, uint64_t txn) { atomic_store(&s->txn, txn); }

/* The header page */

static void header_put(const struct object *o, uint8_t page[static PAGE_LEN])
{
	memset(page, 0, PAGE_LEN);
	memcpy(page, HEADER_MAGIC, 8);
	le32_store(page + 8, OBJECT_FORMAT);
	le32_store(page + 12, keyring_cipher(o->s->k));
	memcpy(page + 16, keyring_volume(o->s->k)->b, ID_LEN);
	memcpy(page + 32, o->id.b, ID_LEN);
	le32_store(page + 48, o->epoch);
	keyring_header_mac(o->s->k, page, HEADER_PAGE_MAC, page + HEADER_PAGE_MAC);
}

int object_header_write(struct object *o, int fd)
{
	uint8_t page[PAGE_LEN];

	header_put(o, page);
	return full_pwrite(fd, page, PAGE_LEN, 0);
}

static bool mac_equal(const uint8_t *a, const uint8_t *b)
{
	uint8_t diff = 0;
	for (int i = 0; i < 32; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

int object_header_check(const struct object_store *s, int fd, const struct id *object, uint32_t epoch)
{
	uint8_t page[PAGE_LEN], mac[32];
	ssize_t n = full_pread(fd, page, PAGE_LEN, 0);

	if (n < 0)
		return (int)n;
	if (n != PAGE_LEN)
		return -EBADMSG;
	keyring_header_mac(s->k, page, HEADER_PAGE_MAC, mac);
	if (!mac_equal(mac, page + HEADER_PAGE_MAC))
		return -EBADMSG;
	if (memcmp(page, HEADER_MAGIC, 8) || le32_load(page + 8) != OBJECT_FORMAT ||
	    le32_load(page + 12) != (uint32_t)keyring_cipher(s->k) || memcmp(page + 16, keyring_volume(s->k)->b, ID_LEN) ||
	    memcmp(page + 32, object->b, ID_LEN) || le32_load(page + 48) != epoch)
		return -EUCLEAN;
	return 0;
}

/* The table */

static struct object **bucket_of(struct object_store *s, uint64_t local)
{
	return &s->table[(local * 0x9e3779b97f4a7c15u) >> 52];
}

static struct object *table_find(struct object_store *s, uint64_t local)
{
	struct object *o = *bucket_of(s, local);

	while (o && (o->local != local || !local))
		o = o->chain;
	return o;
}

static void table_remove(struct object *o)
{
	struct object **p = bucket_of(o->s, o->local);

	while (*p && *p != o)
		p = &(*p)->chain;
	if (*p)
		*p = o->chain;
}

void object_table_add(struct object *o)
{
	struct object **p = bucket_of(o->s, o->local);

	o->chain = *p;
	*p = o;
}

void object_table_rename(struct object *o, uint64_t local, const char *name)
{
	pthread_mutex_lock(&o->s->table_lock);
	table_remove(o);
	o->local = local;
	object_table_add(o);
	pthread_mutex_lock(&o->s->fds_lock); /* who opens the file reads the name without the table's lock */
	snprintf(o->name, sizeof(o->name), "%s", name);
	pthread_mutex_unlock(&o->s->fds_lock);
	pthread_mutex_unlock(&o->s->table_lock);
}

struct object *object_new(struct object_store *s, uint64_t local, const char *name, const struct id *id, uint32_t epoch)
{
	struct object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->s = s;
	o->local = local;
	o->id = *id;
	o->epoch = epoch;
	o->fd = -1;
	o->users = 1;
	snprintf(o->name, sizeof(o->name), "%s", name);
	o->tag_key = local;
	o->sealer = page_sealer_new(s->k, id, epoch);
	if (!o->sealer) {
		free(o);
		return NULL;
	}
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->changed, NULL);
	return o;
}

void object_free(struct object *o)
{
	fd_close(o);
	pending_fini(o->s, &o->pending);
	extents_fini(&o->map.holes);
	extents_fini(&o->protect);
	extents_fini(&o->next);
	extents_fini(&o->released);
	extents_fini(&o->dirty);
	extents_fini(&o->flushing_pages);
	extents_fini(&o->failed);
	page_sealer_free(o->sealer);
	pthread_mutex_destroy(&o->lock);
	pthread_cond_destroy(&o->changed);
	free(o);
}

/* Nothing is left for which the object would have to stay known. */
static bool settled(struct object *o)
{
	bool yes;

	if (o->removed)
		return true;
	pthread_mutex_lock(&o->lock);
	protect_settle(o);
	yes = !o->pending.n && !o->n_ranges && !o->n_applying && o->written_seq == o->flushed_seq && !o->failed.n &&
	      !o->in_place && !o->shrunk && !o->has_next;
	pthread_mutex_unlock(&o->lock);
	return yes;
}

void object_ref(struct object *o) { o->refs++; }

void object_unref(struct object *o)
{
	struct object_store *s = o->s;
	bool last;

	pthread_mutex_lock(&s->table_lock);
	last = !--o->refs && !o->users && settled(o);
	if (last)
		table_remove(o);
	pthread_mutex_unlock(&s->table_lock);
	if (last)
		object_free(o);
}

uint32_t object_collect(struct object_store *s, uint32_t *from, struct object **ret, uint32_t max)
{
	uint32_t n = 0;

	pthread_mutex_lock(&s->table_lock);
	for (; *from < TABLE_BUCKETS && n < max; (*from)++) {
		uint32_t in_bucket = 0;
		for (struct object *o = s->table[*from]; o; o = o->chain)
			in_bucket++;
		if (n && n + in_bucket > max)
			break; /* a bucket is taken whole, so that going on needs its number only */
		for (struct object *o = s->table[*from]; o && n < max; o = o->chain) {
			object_ref(o);
			ret[n++] = o;
		}
	}
	pthread_mutex_unlock(&s->table_lock);
	return n;
}

void object_sweep(struct object_store *s)
{
	struct object *o[256];
	uint32_t from = 0, n;

	while ((n = object_collect(s, &from, o, 256))) {
		for (uint32_t i = 0; i < n; i++) {
			bool closed;
			pthread_mutex_lock(&s->table_lock);
			closed = !o[i]->users && !o[i]->removed;
			pthread_mutex_unlock(&s->table_lock);
			if (closed && !s->read_only)
				object_flush(o[i]); /* a failure stays noted in the object, which then stays */
			object_unref(o[i]);
		}
	}
}

int object_create(struct object_store *s, uint64_t local, const struct id *object, uint32_t epoch, struct object **ret)
{
	char name[NAME_MAX_BYTES];
	struct object *o;
	int r;

	if (s->read_only)
		return -EROFS;
	if (!local)
		return -EINVAL;
	object_local_name(local, name);
	o = object_new(s, local, name, object, epoch);
	if (!o)
		return -ENOMEM;
	o->fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (o->fd < 0) {
		r = -errno;
		object_free(o);
		return r;
	}
	r = object_header_write(o, o->fd);
	if (r) {
		unlinkat(s->dirfd, name, 0);
		close(o->fd);
		o->fd = -1;
		object_free(o);
		return r;
	}
	o->written_seq = 1; /* the header is not flushed */
	/* hands the descriptor to the cache, pinned */
	close(o->fd);
	o->fd = -1;
	fd_pin(o, true);
	pthread_mutex_lock(&s->table_lock);
	object_table_add(o);
	pthread_mutex_unlock(&s->table_lock);
	*ret = o;
	return 0;
}

/* The object that is known already: closed and not settled, or open a second time. NULL: not known. */
static struct object *reopen(struct object_store *s, uint64_t local)
{
	struct object *o;

	pthread_mutex_lock(&s->table_lock);
	o = table_find(s, local);
	if (o && o->removed)
		o = NULL;
	if (o)
		o->users++;
	pthread_mutex_unlock(&s->table_lock);
	return o;
}

/* Gives a freshly opened or a returning object its map. A returning one may still protect more than map says. */
static int adopt_map(struct object *o, const struct page_map *map, const struct root *root)
{
	struct extents holes = {0}, present = {0};
	int r = extents_copy(&holes, &map->holes);

	if (!r)
		r = map_present(map, &present);
	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; !r && i < present.n; i++)
		r = extents_add(&o->protect, present.e[i].first, present.e[i].count);
	if (!r) {
		extents_fini(&o->map.holes);
		o->map = (struct page_map){map->pages, holes};
		o->root = *root;
		holes = (struct extents){0};
	}
	pthread_mutex_unlock(&o->lock);
	extents_fini(&holes);
	extents_fini(&present);
	return r;
}

int object_open(struct object_store *s, uint64_t local, const struct id *object, uint32_t epoch, const struct page_map *map,
		const struct root *root, struct object **ret)
{
	char name[NAME_MAX_BYTES];
	struct object *o = reopen(s, local);
	bool returning;
	int r, fd;

	if (o) {
		if (!id_eq(&o->id, object) || o->epoch != epoch) {
			object_close(o);
			return -EUCLEAN;
		}
		pthread_mutex_lock(&s->table_lock);
		returning = o->users == 1;
		pthread_mutex_unlock(&s->table_lock);
		r = returning ? adopt_map(o, map, root) : 0;
		if (r)
			object_close(o);
		else
			*ret = o;
		return r;
	}
	object_local_name(local, name);
	o = object_new(s, local, name, object, epoch);
	if (!o)
		return -ENOMEM;
	r = fd_get(o, &fd);
	if (!r) {
		r = object_header_check(s, fd, object, epoch);
		fd_put(o);
	}
	if (!r)
		r = adopt_map(o, map, root);
	if (r) {
		object_free(o);
		return r;
	}
	pthread_mutex_lock(&s->table_lock);
	if (table_find(s, local)) { /* somebody was faster */
		pthread_mutex_unlock(&s->table_lock);
		object_free(o);
		return object_open(s, local, object, epoch, map, root, ret);
	}
	object_table_add(o);
	pthread_mutex_unlock(&s->table_lock);
	*ret = o;
	return 0;
}

void object_close(struct object *o)
{
	struct object_store *s;
	bool last;

	if (!o)
		return;
	s = o->s;
	pthread_mutex_lock(&s->table_lock);
	last = !--o->users && !o->refs && (s->read_only || !o->local || settled(o));
	if (last)
		table_remove(o);
	pthread_mutex_unlock(&s->table_lock);
	if (last)
		object_free(o);
}

bool object_is_there(struct object_store *s, uint64_t local)
{
	char name[NAME_MAX_BYTES];

	object_local_name(local, name);
	return !faccessat(s->dirfd, name, F_OK, 0);
}

int object_remove(struct object_store *s, uint64_t local)
{
	char name[NAME_MAX_BYTES];
	struct object *o;
	bool last = false;

	if (s->read_only)
		return -EROFS;
	object_local_name(local, name);
	pthread_mutex_lock(&s->table_lock);
	o = table_find(s, local);
	if (o) {
		int fd;
		/* whoever holds a handle goes on reading: the name is gone, so the descriptor has to stay */
		if (o->users && !fd_get(o, &fd)) {
			fd_pin(o, true);
			fd_put(o);
		}
		o->removed = true;
		last = !o->users && !o->refs;
		if (last)
			table_remove(o);
	}
	pthread_mutex_unlock(&s->table_lock);
	if (last)
		object_free(o);
	if (unlinkat(s->dirfd, name, 0))
		return errno == ENOENT ? 0 : -errno;
	atomic_fetch_or(&s->removed_in[(local & 255) / 64], UINT64_C(1) << (local & 63));
	return 0;
}

int object_store_sync_removals(struct object_store *s)
{
	char name[16];
	int e = 0;

	for (unsigned i = 0; i < 256; i++) {
		uint64_t bit = UINT64_C(1) << (i & 63);
		if (!(atomic_load(&s->removed_in[i / 64]) & bit))
			continue;
		atomic_fetch_and(&s->removed_in[i / 64], ~bit);
		snprintf(name, sizeof name, "objects/%02x", i);
		int fd = openat(s->dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || fsync(fd)) {
			e = e ? e : -errno;
			atomic_fetch_or(&s->removed_in[i / 64], bit);
		}
		if (fd >= 0)
			close(fd);
	}
	return e;
}

uint64_t object_local(const struct object *o) { return o->local; }
const struct id *object_id(const struct object *o) { return &o->id; }

static uint64_t largest_name(int dirfd)
{
	uint64_t most = 0;

	for (int i = 0; i < 256; i++) {
		char name[16];
		struct dirent *e;
		DIR *d;
		int fd;
		snprintf(name, sizeof(name), "objects/%02x", i);
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		d = fd >= 0 ? fdopendir(fd) : NULL;
		if (!d) {
			if (fd >= 0)
				close(fd);
			continue;
		}
		while ((e = readdir(d))) {
			char *end;
			uint64_t v = strtoull(e->d_name, &end, 16);
			if (strlen(e->d_name) == 16 && !*end && v > most)
				most = v;
		}
		closedir(d);
	}
	return most;
}

uint64_t object_store_next_local(struct object_store *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->table_lock);
	if (!s->next_local) {
		uint64_t most = largest_name(s->dirfd);
		/* a removed object's records may still stand in the log: its number is not given again meanwhile */
		s->next_local = (most > s->redo.max_local ? most : s->redo.max_local) + 1;
	}
	n = s->next_local++;
	pthread_mutex_unlock(&s->table_lock);
	return n;
}
