/* A volume as a whole: making, opening, closing; its small common functions. */
#include "heal.h"
#include "object_heal.h"
#include "scrub.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commit.h"

#define RESERVE_MAX (16u << 20)
#define RESERVE_MIN (1u << 20)
#define SPACE_ONE_OF 16 /* the share of the space that a small disk gives for the reserve */
#define SPACE_ASK_NS 20000000u

void tree_unlock(struct volume *v)
{
	cache_trim(v);
	pthread_mutex_unlock(&v->tree_mu);
}

int change_begin(struct volume *v)
{
	if (v->read_only)
		return -EROFS;
	gate_shared(v);
	return 0;
}

void now_times(struct volume *v, struct timespec64 *ret)
{
	uint64_t ns = env_wall_ns(v->env);

	ret->sec = (int64_t)(ns / 1000000000u);
	ret->nsec = (uint32_t)(ns % 1000000000u);
}

static uint64_t reserve_bytes(uint64_t space)
{
	uint64_t share = space / SPACE_ONE_OF;

	return share < RESERVE_MIN ? RESERVE_MIN : share > RESERVE_MAX ? RESERVE_MAX : share;
}

/* One made when there was much less room grows. */
static void make_reserve(struct volume *v)
{
	struct statvfs s;
	struct stat st;
	int fd = openat(v->dirfd, "reserve", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	if (fstatvfs(fd, &s) || fstat(fd, &st)) {
		close(fd);
		return;
	}
	off_t have = st.st_size, want = (off_t)reserve_bytes(s.f_bavail * s.f_frsize + (uint64_t)have);
	if (want - have >= RESERVE_MIN && posix_fallocate(fd, have, want - have)) {
		if (!have)
			unlinkat(v->dirfd, "reserve", 0);
		else if (ftruncate(fd, have))
			log_warn("%s: reserve: %s", v->path, strerror(errno));
	}
	close(fd);
}

/* A reserve that was given up comes back as soon as it fits. Where a quota is the limit that is the only sign of room: statvfs does not know it. */
static void restore_reserve(struct volume *v)
{
	/* while a commit still waits for it, what became free is the commit's */
	if (!v->reserve_gone || v->commit_full || atomic_exchange(&v->reserve_being_made, true))
		return;
	v->reserve_gone = false; /* first: who gives it up meanwhile says so afterwards */
	make_reserve(v);
	if (faccessat(v->dirfd, "reserve", F_OK, 0))
		v->reserve_gone = true;
	v->reserve_being_made = false;
}

int space_check(struct volume *v)
{
	uint64_t now = stats_now_ns();

	if (now - v->space_asked_ns > SPACE_ASK_NS || !v->space_asked_ns) {
		struct statvfs s;
		if (fstatvfs(v->dirfd, &s))
			return 0;
		/* creates and writes stop before the journal has no room to commit what is in memory */
		uint64_t dirty = (uint64_t)v->n_dirty_nodes + v->n_dirty_links, margin = reserve_bytes(s.f_blocks * s.f_frsize) / 2;
		v->space_full = s.f_bavail * s.f_frsize < margin + dirty * 2048;
		v->space_asked_ns = now;
		restore_reserve(v);
	}
	return v->space_full || v->commit_full || v->reserve_gone ? -ENOSPC : 0;
}

void volume_fail(struct volume *v, const char *what, int e)
{
	if (!atomic_exchange(&v->read_only, true))
		log_error("%s: %s could not be flushed (%s): the volume is read-only until it is mounted again", v->path, what, strerror(-e));
}

static void init_locks(struct volume *v)
{
	pthread_rwlockattr_t a;

	pthread_mutex_init(&v->commit_mu, NULL);
	pthread_mutex_init(&v->tree_mu, NULL);
	for (int i = 0; i < SIZE_LOCKS; i++)
		pthread_mutex_init(&v->size_mu[i], NULL);
	pthread_rwlockattr_init(&a);
	/* else a stream of writers keeps a commit waiting for ever */
	pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&v->gate, &a);
	pthread_rwlockattr_destroy(&a);
	pthread_rwlock_init(&v->observer_lock, NULL);
}

static struct volume *volume_new(const char *path, const struct env *env)
{
	struct volume *v = calloc(1, sizeof *v);
	char real[PATH_MAX];

	if (!v)
		return NULL;
	init_locks(v);
	v->env = env ? env : &env_real;
	v->dirfd = v->lockfd = -1;
	v->path = strdup(realpath(path, real) ? real : path);
	v->stats = stats_new();
	v->next_node = v->next_link = 1;
	if (!v->path || !v->stats || cache_init(v) || refs_init(v) || commit_init(v)) {
		volume_abandon(v);
		return NULL;
	}
	return v;
}

static void volume_free(struct volume *v)
{
	exceptions_free(v);
	cache_fini(v);
	refs_fini(v);
	commit_fini(v);
	peers_fini(v);
	starts_fini(v);
	hold_fini(v);
	vector_fini(&v->knowledge);
	vector_fini(&v->knowledge_flushed);
	vector_fini(&v->pending_knowledge);
	if (v->objects)
		object_store_close(v->objects);
	keyring_free(v->keys);
	stats_free(v->stats);
	if (v->lockfd >= 0)
		close(v->lockfd);
	if (v->dirfd >= 0)
		close(v->dirfd);
	pthread_mutex_destroy(&v->commit_mu);
	pthread_mutex_destroy(&v->tree_mu);
	for (int i = 0; i < SIZE_LOCKS; i++)
		pthread_mutex_destroy(&v->size_mu[i]);
	pthread_rwlock_destroy(&v->gate);
	pthread_rwlock_destroy(&v->observer_lock);
	free(v->path);
	free(v);
}

void volume_abandon(struct volume *v)
{
	if (!v)
		return;
	scrub_stop(v);
	healer_stop(v);
	committer_stop(v);
	journal_abandon(v->journal);
	v->journal = NULL;
	volume_free(v);
}

static int open_objects(struct volume *v)
{
	int e = object_store_open(v->dirfd, v->keys, v->env, v->stats, v->options.read_only, &v->objects);

	if (!e && !v->options.read_only)
		e = object_heal_folders(v->objects);
	v->data_env = (struct filedata_env){.objects = v->objects, .keys = v->keys, .env = v->env, .stats = v->stats};
	return e;
}

/* ---- making ---- */
static void draw_identity(struct volume *v, struct header *h)
{
	if (id_is_zero(&h->volume))
		env_random(v->env, h->volume.b, ID_LEN);
	while (!h->replica || h->replica > INT64_MAX) {
		env_random(v->env, &h->replica, sizeof h->replica);
		h->replica &= INT64_MAX; /* SQLite's integers are signed: so they sort alike everywhere */
	}
}

static int draw_static(struct volume *v, struct header *h)
{
	static const uint8_t none[32];

	if (sodium_memcmp(h->static_public, none, sizeof none))
		return 0;
	uint8_t *secret = sodium_malloc(32);
	if (!secret)
		return -ENOMEM;
	env_random(v->env, secret, 32);
	header_set_static(h, v->keys, secret);
	sodium_free(secret);
	return 0;
}

/* The root has no link; a joiner's comes without parts, the first batch brings them. */
static int make_root(struct volume *v, bool first)
{
	static const struct id root_id = ROOT_ID;
	struct vnode *root;
	int e = vnode_new(v, &root_id, S_IFDIR, &root);

	if (e || !first)
		return e;
	root->attrs.mode = S_IFDIR | 0755;
	now_times(v, &root->times.mtime);
	root->times.ctime = root->times.mtime;
	root->attrs_slot.dirty = root->times_slot.dirty = true;
	return 0;
}

static int make_contents(struct volume *v, bool first)
{
	int e = journal_open(v->path, true, false, &v->journal);

	e = e ? e : open_objects(v);
	if (e)
		return e;
	v->alone = true;
	object_store_set_txn(v->objects, 1);
	tree_lock(v);
	e = make_root(v, first);
	tree_unlock(v);
	e = e ? e : commit_run(v, 0);
	if (!e && first) {
		struct member me = {0};
		memcpy(me.name, v->header.name, sizeof me.name);
		memcpy(me.static_public, v->header.static_public, sizeof me.static_public);
		e = volume_set_member(v, v->self, &me);
	}
	e = e ? e : object_store_checkpoint(v->objects);
	tree_lock(v);
	e = e ? e : journal_checkpoint(v->journal);
	tree_unlock(v);
	return e;
}

int volume_create(const char *path, struct header *h, const uint8_t master[static KEY_LEN], bool first_replica, const struct env *env)
{
	int e = store_make(path);

	if (e)
		return e;
	struct volume *v = volume_new(path, env);
	if (!v) {
		store_unmake(path);
		return -ENOMEM;
	}
	e = store_lock(path, 0, &v->dirfd, &v->lockfd);
	draw_identity(v, h);
	if (!e && !(v->keys = keyring_new(master, &h->volume, h->cipher)))
		e = -ENOMEM;
	e = e ? e : draw_static(v, h);
	v->header = *h;
	v->self = h->replica;
	e = e ? e : make_contents(v, first_replica);
	if (!e) {
		make_reserve(v);
		journal_close(v->journal);
		v->journal = NULL;
		fsync(v->dirfd);
		e = header_write(v->dirfd, h);
	}
	volume_abandon(v);
	if (e)
		store_unmake(path);
	return e;
}

/* ---- opening ---- */
static int unlock(struct volume *v, const void *secret, size_t len, enum slot_kind kind)
{
	uint8_t *master = sodium_malloc(KEY_LEN);

	if (!master)
		return -ENOMEM;
	int e = header_unlock(&v->header, secret, len, kind, master);
	if (!e && !cipher_available(v->header.cipher)) {
		log_error("%s: this processor cannot run the volume's cipher %s", v->path, cipher_name(v->header.cipher));
		e = -EOPNOTSUPP;
	}
	if (!e && !(v->keys = keyring_new(master, &v->header.volume, v->header.cipher)))
		e = -ENOMEM;
	sodium_free(master);
	return e;
}

/* The write-ahead log of the journal goes with a clean stop; where it is there, the redo log may hold what nothing else does. */
static bool redo_is_lost(struct volume *v)
{
	struct stat st;

	return fstatat(v->dirfd, "redo", &st, AT_SYMLINK_NOFOLLOW) && errno == ENOENT && !fstatat(v->dirfd, "journal.db-wal", &st, AT_SYMLINK_NOFOLLOW) &&
	       st.st_size;
}

static int open_journal(struct volume *v)
{
	if (redo_is_lost(v)) {
		log_error("%s: the redo log (the file `redo`) is missing, and the last stop was not clean: what was written last may lie in it alone. Put it back, or join anew "
			  "from a peer",
			  v->path);
		return -EUCLEAN;
	}
	int e = journal_open(v->path, false, v->options.read_only, &v->journal);

	if (e == -ENOENT) {
		log_error("%s: journal.db is missing", v->path);
		e = -EUCLEAN;
	}
	e = e ? e : renew_finish(v);
	e = e ? e : head_read(v);
	e = e ? e : starts_load(v);
	e = e ? e : hold_load(v);
	e = e ? e : peers_load(v);
	return e ? e : exceptions_load(v);
}

static int open_all(struct volume *v, const void *secret, size_t len, enum slot_kind kind)
{
	int e = store_lock(v->path, v->options.lock_wait_ms, &v->dirfd, &v->lockfd);

	if (e) {
		if (e == -EUCLEAN)
			log_error("%s: not a store of twofold", v->path);
		return e;
	}
	e = header_read(v->dirfd, &v->header);
	if (e == -ENOENT)
		e = -EUCLEAN;
	if (e) {
		log_error("%s: the file `volume` is missing, damaged or of an unknown format", v->path);
		return e;
	}
	v->self = v->header.replica;
	e = unlock(v, secret, len, kind);
	e = e ? e : open_journal(v);
	e = e ? e : open_objects(v);
	e = e ? e : recover(v);
	if (!e && !v->options.read_only) {
		make_reserve(v);
		unlinkat(v->dirfd, FAILED_NOTE, 0);
	}
	return e;
}

int volume_open(const char *path, const struct volume_options *o, const void *secret, size_t secret_len, enum slot_kind kind, struct volume **ret)
{
	struct volume *v = volume_new(path, o->env);

	if (!v)
		return -ENOMEM;
	v->options = *o;
	v->options.env = v->env;
	if (!v->options.commit_ms)
		v->options.commit_ms = 1000;
	v->read_only = o->read_only;
	int e = open_all(v, secret, secret_len, kind);
	struct inode_attr root;
	if (!e && (e = volume_getattr(v, ROOT_INUM, &root))) {
		/* nothing could be reached: said here, not by a mount that never answers */
		log_error("%s: the record of the root directory does not authenticate", v->path);
		e = -EUCLEAN;
	}
	if (!e && o->background && !o->read_only)
		e = committer_start(v);
	if (!e && o->background && !o->read_only)
		e = healer_start(v);
	if (e) {
		volume_abandon(v);
		return e;
	}
	*ret = v;
	return 0;
}

/* The kernel is gone: nobody refers to an unlinked file any more. */
static void doom_orphans(struct volume *v)
{
	struct list *heads[] = {&v->clean_nodes, &v->dirty_nodes};

	tree_lock(v);
	for (int h = 0; h < 2; h++)
		for (struct list *i = heads[h]->next, *next; i != heads[h]; i = next) {
			struct vnode *n = LIST_OF(i, struct vnode, at);
			next = i->next;
			if (!(n->flags & VN_ORPHAN))
				continue;
			n->flags |= VN_DOOMED;
			vnode_dirty(v, n);
		}
	tree_unlock(v);
}

/* For whoever asks after this process is gone. Its being there says it all: a full disk may have no room for the reason. */
static void leave_note(struct volume *v, int e)
{
	int fd = openat(v->dirfd, FAILED_NOTE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || dprintf(fd, "%s\n", strerror(-e)) < 0)
		log_error("%s/" FAILED_NOTE ": %s", v->path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static int last_commit(struct volume *v)
{
	doom_orphans(v);
	v->others_changed |= v->peers_changed;
	int e = commit_run(v, 0);
	if (v->n_trash_gone) { /* the rows of what that commit removed */
		v->others_changed = true;
		e = e ? e : commit_run(v, 0);
	}
	if (e)
		log_error("%s: the last commit failed, changes since the one before are lost: %s", v->path, strerror(-e));
	return e;
}

/* What was committed stays in the logs where this fails, and the next open finds it there. */
static int last_write_back(struct volume *v)
{
	int e = object_store_checkpoint(v->objects);

	tree_lock(v);
	e = e ? e : journal_checkpoint(v->journal);
	tree_unlock(v);
	if (e)
		log_warn("%s: writing the logs back is left to the next mount: %s", v->path, strerror(-e));
	return e;
}

int volume_close(struct volume *v)
{
	bool clean = false;
	int e = 0;

	scrub_stop(v);
	healer_stop(v);
	committer_stop(v);
	if (!v->read_only) {
		e = last_commit(v);
		clean = !e && !last_write_back(v);
	}
	if (!e && v->read_only && !v->options.read_only)
		e = -EIO; /* see volume_fail */
	if (clean)
		journal_close(v->journal);
	else
		journal_abandon(v->journal);
	v->journal = NULL;
	if (e)
		leave_note(v, e);
	volume_free(v);
	return e;
}

/* ---- small ---- */
const struct header *volume_header(const struct volume *v) { return &v->header; }
const struct keyring *volume_keyring(const struct volume *v) { return v->keys; }
struct stats *volume_stats(const struct volume *v) { return v->stats; }
const char *volume_path(const struct volume *v) { return v->path; }
bool volume_is_read_only(const struct volume *v) { return v->read_only; }
uint64_t volume_start_tag(struct volume *v) { return v->start_tag; }

void volume_set_observer(struct volume *v, const struct volume_observer *o)
{
	pthread_rwlock_wrlock(&v->observer_lock);
	v->observer = o ? *o : (struct volume_observer){0};
	pthread_rwlock_unlock(&v->observer_lock);
}

void volume_set_commit_listener(struct volume *v, void (*fn)(void *ctx), void *ctx)
{
	tree_lock(v);
	v->commit_fn = fn;
	v->commit_ctx = ctx;
	tree_unlock(v);
}

int volume_knowledge(struct volume *v, struct vector *ret)
{
	tree_lock(v);
	int e = vector_copy(ret, &v->knowledge_flushed);
	tree_unlock(v);
	return e;
}

int volume_live_root(struct volume *v, struct root *ret)
{
	tree_lock(v);
	*ret = v->root_live;
	tree_unlock(v);
	return 0;
}

int volume_statfs(struct volume *v, struct statvfs *ret)
{
	if (fstatvfs(v->dirfd, ret))
		return -errno;
	tree_lock(v);
	ret->f_files = v->node_count + ret->f_ffree;
	tree_unlock(v);
	ret->f_namemax = NAME_LEN_MAX;
	return 0;
}
