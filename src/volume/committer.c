/* The background thread: commits every commit_ms where something is dirty, at once where much is, soon after a file was closed; writes the WAL
 * back when it is quiet. And fsync. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"
#include "wait.h"

#define PUSH_MS 5      /* from a close to the commit, where it was quiet before: what belongs together mostly comes together */
#define PUSH_GAP_MS 60 /* between commits that closes ask for: each costs the disk a flush, and a peer hears of it within 100 ms */
#define DIRTY_MANY 8192            /* nodes and links: a commit of them takes about 0.2 s */
#define IDLE_MS 5000               /* without a commit: write back */
#define WAL_IDLE_BYTES (1u << 20)

struct committer {
	pthread_t thread;
	pthread_mutex_t mu; /* protects the rest */
	pthread_cond_t wake;
	bool stop, now;
	uint64_t push_at_ms; /* 0: none asked for */
	uint64_t committed_ms; /* end of the last commit */
};

static uint64_t mono_ms(void) { return mono_ns() / 1000000; }

static void wait_until(struct committer *c, uint64_t until_ms) { cond_wait_until(&c->wake, &c->mu, until_ms * 1000000); }

static bool is_dirty(struct volume *v)
{
	tree_lock(v);
	bool dirty = v->n_dirty_nodes || v->n_dirty_links || v->n_trash_pending || v->others_changed || v->unflushed;
	tree_unlock(v);
	return dirty;
}

static void write_back(struct volume *v)
{
	uint64_t log, pending;

	object_store_usage(v->objects, &log, &pending);
	if (log)
		object_store_checkpoint(v->objects);
	if (journal_wal_bytes(v->journal) < WAL_IDLE_BYTES || v->unflushed)
		return;
	uint64_t start = stats_now_ns();
	tree_lock(v);
	journal_checkpoint(v->journal);
	tree_unlock(v);
	stats_since(v->stats, STAGE_CHECKPOINT, start);
}

static void *loop(void *arg)
{
	struct volume *v = arg;
	struct committer *c = v->committer;
	uint64_t looked = mono_ms();
	bool idle = false;

	c->committed_ms = looked;
	pthread_mutex_lock(&c->mu);
	while (!c->stop) {
		uint64_t due = looked + v->options.commit_ms;
		if (c->push_at_ms && c->push_at_ms < due)
			due = c->push_at_ms;
		if (!c->now && mono_ms() < due) {
			wait_until(c, due);
			continue;
		}
		c->now = false;
		c->push_at_ms = 0;
		pthread_mutex_unlock(&c->mu);
		looked = mono_ms();
		if (is_dirty(v)) {
			/* an error is logged where it arises, and reported to whoever asks for durability */
			commit_run(v, 0);
			__atomic_store_n(&c->committed_ms, mono_ms(), __ATOMIC_RELAXED);
			idle = false;
		} else if (!idle && looked - c->committed_ms >= IDLE_MS && !v->read_only) {
			write_back(v);
			idle = true;
		}
		pthread_mutex_lock(&c->mu);
	}
	pthread_mutex_unlock(&c->mu);
	return NULL;
}

int committer_start(struct volume *v)
{
	struct committer *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	pthread_mutex_init(&c->mu, NULL);
	cond_init(&c->wake);
	v->committer = c;
	int e = pthread_create(&c->thread, NULL, loop, v);
	if (e) {
		v->committer = NULL;
		pthread_cond_destroy(&c->wake);
		pthread_mutex_destroy(&c->mu);
		free(c);
	}
	return -e;
}

void committer_stop(struct volume *v)
{
	struct committer *c = v->committer;

	if (!c)
		return;
	pthread_mutex_lock(&c->mu);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->mu);
	pthread_join(c->thread, NULL);
	v->committer = NULL;
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->mu);
	free(c);
}

void committer_kick(struct volume *v)
{
	struct committer *c = v->committer;

	/* read without the lock: it is only a hint */
	uint32_t dirty = atomic_load_explicit(&v->n_dirty_nodes, memory_order_relaxed) + atomic_load_explicit(&v->n_dirty_links, memory_order_relaxed);
	if (!c || (dirty < DIRTY_MANY && !object_store_wants_commit(v->objects)))
		return;
	pthread_mutex_lock(&c->mu);
	if (!c->now) {
		c->now = true;
		pthread_cond_signal(&c->wake);
	}
	pthread_mutex_unlock(&c->mu);
}

void volume_push_soon(struct volume *v, inum ino)
{
	struct committer *c = v->committer;

	(void)ino; /* a commit takes all along: that is cheaper than finding out what belongs together */
	/* nobody to push to: the regular commits do (`alone` is read without the lock: it is only a hint) */
	if (!c || atomic_load_explicit(&v->alone, memory_order_relaxed))
		return;
	pthread_mutex_lock(&c->mu);
	if (!c->push_at_ms) {
		uint64_t soon = mono_ms() + PUSH_MS, next = __atomic_load_n(&c->committed_ms, __ATOMIC_RELAXED) + PUSH_GAP_MS;
		c->push_at_ms = soon > next ? soon : next;
		pthread_cond_signal(&c->wake);
	}
	pthread_mutex_unlock(&c->mu);
}

/* ---- fsync ---- */
#define NAMES_LOOKED_AT 64

/* Is a name of it changed and not committed? Where there are many: yes. */
static bool names_pending(struct volume *v, inum ino)
{
	if (v->n_dirty_links > NAMES_LOOKED_AT)
		return true;
	for (struct list *i = v->dirty_links.next; i != &v->dirty_links; i = i->next)
		if (LIST_OF(i, struct vlink, at)->node == ino)
			return true;
	return false;
}

enum need { NEED_NOTHING, NEED_REDO, NEED_COMMIT };

/* What an fsync of that inode needs. Where it may be the redo log alone, the node is pinned in *ret. */
static enum need what_is_needed(struct volume *v, inum ino, struct vnode **ret)
{
	struct vnode *n = vnode_cached(v, ino);

	if (v->unflushed || (n && n->type == S_IFDIR))
		return NEED_COMMIT;
	if (!n)
		return NEED_NOTHING;
	if (names_pending(v, ino))
		return NEED_COMMIT;
	if (!(n->flags & VN_DIRTY))
		return NEED_NOTHING;
	if (!(n->flags & VN_STORED) || (n->flags & VN_CONTENT_NEW) || slot_pending(&n->attrs_slot) || !n->data)
		return NEED_COMMIT;
	n->pins++;
	*ret = n;
	return NEED_REDO;
}

int volume_fsync(struct volume *v, inum ino, bool datasync)
{
	struct vnode *n = NULL;
	int e;

	(void)datasync; /* times ride along: there is nothing to save */
	tree_lock(v);
	enum need need = what_is_needed(v, ino, &n);
	tree_unlock(v);
	if (need == NEED_NOTHING)
		return 0;
	if (need == NEED_COMMIT)
		return commit_run(v, ino);
	/* only what is committed goes to peers */
	bool local = v->options.fsync == FSYNC_LOCAL;
	bool overwritten = local && filedata_only_overwritten(n->data);
	e = overwritten && !v->read_only ? object_store_flush_redo(v->objects) : 0;
	tree_lock(v);
	n->pins--;
	tree_unlock(v);
	if (!overwritten)
		return commit_run(v, ino);
	if (e)
		volume_fail(v, "the redo log", e);
	return e;
}
