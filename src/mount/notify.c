/* Telling the kernel what peers changed, on threads of the mount that hold no lock.
 *
 * A notification may wait in the kernel for a directory's lock or for WRITEs that a worker must answer; so none is made by a worker. Order:
 * the volume has made the change visible before it calls the observer. A parent that the kernel never looked up is skipped.
 * notify_delete is never used: it would take names from programs that have them open as working directory. */
#include "mount_internal.h"
#include "wait.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLOW_NS 5000000000ull

/* ---- jobs ---- */
static void job_free(struct job *j)
{
	extents_fini(&j->ranges);
	free(j);
}

static void *queue_main(void *arg)
{
	struct job_queue *q = arg;
	atomic_store(&q->tid, (int)syscall(SYS_gettid));
	pthread_mutex_lock(&q->lock);
	for (;;) {
		while (!q->head && !q->closing)
			pthread_cond_wait(&q->wake, &q->lock);
		struct job *j = q->head;
		if (!j)
			break;
		q->head = j->next;
		if (!q->head)
			q->tail = NULL;
		pthread_mutex_unlock(&q->lock);
		uint64_t t = stats_now_ns();
		j->run(q->m, j);
		if (stats_now_ns() - t > SLOW_NS)
			log_warn("%s: telling the kernel of a change of inode %llu took %llu ms", q->m->path,
				(unsigned long long)j->ino, (unsigned long long)((stats_now_ns() - t) / 1000000));
		job_free(j);
		pthread_mutex_lock(&q->lock);
		q->finished++;
		pthread_cond_broadcast(&q->done);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int queue_start(struct job_queue *q, struct mount *m)
{

	q->m = m;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->wake, NULL);
	cond_init(&q->done);
	int r = pthread_create(&q->thread, NULL, queue_main, q);
	q->started = r == 0;
	return -r;
}

void queue_stop(struct job_queue *q)
{
	if (!q->started)
		return;
	pthread_mutex_lock(&q->lock);
	bool first = !q->closing;
	q->closing = true;
	pthread_cond_signal(&q->wake);
	pthread_mutex_unlock(&q->lock);
	if (first)
		pthread_join(q->thread, NULL);
}

/* The same notification is often asked for many times in a row (each new name of a directory). */
static bool repeats(const struct job *last, const struct job *j)
{
	return last && !j->req && last->run == j->run && last->ino == j->ino && last->other == j->other && !last->ranges.n &&
	       !j->ranges.n && last->new_size == j->new_size && last->name_len == j->name_len &&
	       !memcmp(last->name, j->name, j->name_len);
}

int queue_push(struct job_queue *q, struct job *j)
{
	pthread_mutex_lock(&q->lock);
	bool closing = q->closing, known = !closing && repeats(q->tail, j);
	if (!closing && !known) {
		j->next = NULL;
		if (q->tail)
			q->tail->next = j;
		else
			q->head = j;
		q->tail = j;
		q->pushed++;
		pthread_cond_signal(&q->wake);
	}
	pthread_mutex_unlock(&q->lock);
	if (closing && j->req)
		fuse_reply_err(j->req, EIO);
	if (closing || known)
		job_free(j);
	return closing ? -ESHUTDOWN : 0;
}

void queue_drain(struct job_queue *q, int timeout_ms)
{
	uint64_t end = mono_ns_in((uint64_t)timeout_ms);

	pthread_mutex_lock(&q->lock);
	uint64_t target = q->pushed;
	while (q->started && q->finished < target && cond_wait_until(&q->done, &q->lock, end))
		;
	pthread_mutex_unlock(&q->lock);
}

static void push(struct mount *m, const struct job *what, const struct extent *ranges, uint32_t n)
{
	struct job *j = malloc(sizeof(*j));
	int r = j ? 0 : -ENOMEM;
	if (j)
		*j = *what;
	for (uint32_t i = 0; !r && i < n; i++)
		r = extents_add(&j->ranges, ranges[i].first, ranges[i].count);
	if (r) {
		log_error("%s: no memory to tell the kernel of a change of inode %llu; it may show the old one", m->path,
			(unsigned long long)what->ino);
		if (j)
			job_free(j);
		return;
	}
	queue_push(&m->notifier, j);
}

/* ---- guests ---- */
bool guest_enter(struct mount *m)
{
	pthread_mutex_lock(&m->guests_lock);
	bool open = !m->closed;
	m->guests += open;
	pthread_mutex_unlock(&m->guests_lock);
	return open;
}

void guest_leave(struct mount *m)
{
	pthread_mutex_lock(&m->guests_lock);
	if (--m->guests == 0)
		pthread_cond_broadcast(&m->guests_wake);
	pthread_mutex_unlock(&m->guests_lock);
}

void guests_close(struct mount *m)
{
	pthread_mutex_lock(&m->guests_lock);
	m->closed = true;
	while (m->guests)
		pthread_cond_wait(&m->guests_wake, &m->guests_lock);
	pthread_mutex_unlock(&m->guests_lock);
}

/* ---- what the notifier does ---- */
/* ENOENT: the kernel does not know the inode or name. ENOSYS: not even the filesystem yet (no INIT so far). ENODEV, ENOTCONN: unmounted meanwhile. */
static void check_notified(struct mount *m, const char *what, uint64_t ino, int r)
{
	if (r && r != -ENOENT && r != -ENOSYS && r != -ENODEV && r != -ENOTCONN && r != -ENOTDIR && !atomic_load(&m->loop_ended))
		log_warn("%s: %s of inode %llu: %s", m->path, what, (unsigned long long)ino, strerror(-r));
}

void notify_inval_pages(struct mount *m, uint64_t ino, int64_t off, int64_t len)
{
	check_notified(m, "fetching dirty pages", ino, fuse_lowlevel_notify_inval_inode(m->se, ino, off, len));
}

static void run_entry(struct mount *m, struct job *j)
{
	check_notified(m, "dropping a name", j->ino, fuse_lowlevel_notify_inval_entry(m->se, j->ino, j->name, j->name_len));
}

static void run_dir(struct mount *m, struct job *j)
{
	/* Offset 0 drops the cached listing too. */
	notify_inval_pages(m, j->ino, 0, 0);
}

static void run_attr(struct mount *m, struct job *j) { self_apply(m, j, false); }
static void run_content(struct mount *m, struct job *j) { self_apply(m, j, true); }

/* All names must show the new inode. The volume names each in entry_changed as well; this one is for the name that it has. */
static void run_replaced(struct mount *m, struct job *j)
{
	CLEANUP_FREE char *path = NULL;
	struct inode_attr dir;
	if (volume_path_of(m->v, j->other, &path) || !*path)
		return;
	char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	if (slash)
		*slash = 0;
	if (volume_resolve(m->v, slash ? path : "", &dir) || !volume_is_referenced(m->v, dir.ino))
		return;
	check_notified(m, "dropping a name", dir.ino, fuse_lowlevel_notify_inval_entry(m->se, dir.ino, name, strlen(name)));
	notify_inval_pages(m, dir.ino, 0, 0);
}

/* Logged here, where failures that come in a row have become one job. The kernel keeps the size that programs wanted until it forgets the inode. */
static void run_write_failed(struct mount *m, struct job *j)
{
	char *path = NULL;

	if (volume_path_of(m->v, j->ino, &path))
		path = NULL;
	log_error("%s/%s: data could not be written: %s; what programs wrote there since is lost", m->path, path ? path : "(a file without a name)",
		strerror(-j->whence));
	free(path);
	stats_add(m->stats, COUNT_WRITE_ERRORS, 1);
	/* who reads it sees what is there, not what the kernel kept */
	notify_inval_pages(m, j->ino, 0, 0);
}

void notify_write_failed(struct mount *m, uint64_t ino, int err)
{
	push(m, &(struct job){.run = run_write_failed, .ino = ino, .whence = err}, NULL, 0);
}

/* ---- the observer ---- */
static void before_change(void *ctx, inum ino)
{
	struct mount *m = ctx;
	if (!m->writeback || !volume_is_referenced(m->v, ino) || !guest_enter(m))
		return;
	notify_inval_pages(m, ino, 0, 0);
	guest_leave(m);
}

static void entry_changed(void *ctx, inum parent, const char *name, size_t len)
{
	struct mount *m = ctx;
	struct job j = {.run = run_entry, .ino = parent, .name_len = len};
	if (len >= sizeof(j.name) || !volume_is_referenced(m->v, parent))
		return;
	memcpy(j.name, name, len);
	push(m, &j, NULL, 0);
}

static void dir_changed(void *ctx, inum dir)
{
	struct mount *m = ctx;
	if (volume_is_referenced(m->v, dir))
		push(m, &(struct job){.run = run_dir, .ino = dir}, NULL, 0);
}

static void attr_changed(void *ctx, inum ino)
{
	struct mount *m = ctx;
	if (volume_is_referenced(m->v, ino))
		push(m, &(struct job){.run = run_attr, .ino = ino}, NULL, 0);
}

static void content_changed(void *ctx, inum ino, uint64_t old_size, uint64_t new_size, const struct extent *bytes, uint32_t n)
{
	struct mount *m = ctx;
	if (volume_is_referenced(m->v, ino))
		push(m, &(struct job){.run = run_content, .ino = ino, .old_size = old_size, .new_size = new_size}, bytes, n);
}

static void replaced(void *ctx, inum old, inum fresh)
{
	push(ctx, &(struct job){.run = run_replaced, .ino = old, .other = fresh}, NULL, 0);
}

/* Bounded: a notification may wait for a lock that a program holds which waits, by fsync, for a peer that waits for us. */
#define TOLD_MS 1000
static void told(void *ctx)
{
	struct mount *m = ctx;
	queue_drain(&m->notifier, TOLD_MS);
}

void notify_observe(struct mount *m)
{
	struct volume_observer o = {
		.before_change = before_change,
		.entry_changed = entry_changed,
		.dir_changed = dir_changed,
		.attr_changed = attr_changed,
		.content_changed = content_changed,
		.replaced = replaced,
		.told = told,
		.ctx = m,
	};
	volume_set_observer(m->v, &o);
}
