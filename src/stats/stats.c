#include "stats.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

static const char *const timer_names[STAT_TIMERS] = {
	"op.lookup", "op.getattr", "op.setattr", "op.create", "op.mkdir", "op.mknod", "op.symlink", "op.link",
	"op.unlink", "op.rmdir", "op.rename", "op.readlink", "op.read", "op.write", "op.fsync", "op.fallocate",
	"op.lseek", "op.copy", "op.readdir", "op.getxattr", "op.setxattr", "op.statfs",
	"stage.seal", "stage.open", "stage.object-read", "stage.object-write", "stage.object-flush",
	"stage.redo-append", "stage.redo-flush", "stage.commit", "stage.wal-flush", "stage.checkpoint", "stage.delta",
	"stage.send", "stage.apply",
};
static const char *const counter_names[STAT_COUNTERS] = {
	"bytes.object-read", "bytes.object-written", "bytes.redo", "bytes.sealed", "bytes.opened",
	"count.auth-failures", "bytes.wire-sent", "bytes.wire-received", "bytes.delta-saved",
	"count.parts-sent", "count.parts-received", "count.batches-applied", "count.conflicts", "count.healed-pages", "count.write-errors",
};

struct stats *stats_new(void)
{
	/* straight from the kernel: zeroed, and pages of which nothing is ever counted take no memory */
	void *s = mmap(NULL, sizeof(struct stats), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return s == MAP_FAILED ? NULL : s;
}

void stats_free(struct stats *s)
{
	if (s)
		munmap(s, sizeof *s);
}

uint64_t stats_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Values below 8 have their own bucket; above, 8 buckets an octave. */
static unsigned bucket_of(uint64_t v)
{
	if (v < 8)
		return (unsigned)v;
	unsigned octave = 63u - (unsigned)__builtin_clzll(v);
	return (octave - 2) * 8 + (unsigned)(v >> (octave - 3) & 7);
}

static uint64_t bucket_top(unsigned b)
{
	if (b < 8)
		return b;
	unsigned octave = b / 8 + 2;
	uint64_t step = (uint64_t)1 << (octave - 3);
	return ((uint64_t)1 << octave) + step * (b % 8) + (step - 1);
}

/* That of the CPU of this moment. Where the thread is moved to another one in between, it is only slower. */
static struct stat_copy *copy_of(struct stats *s) { return &s->copy[(unsigned)sched_getcpu() & (STAT_COPIES - 1)]; }

void stats_time(struct stats *s, enum stat_timer t, uint64_t ns)
{
	if (!s)
		return;
	struct histogram *h = &copy_of(s)->timer[t];
	atomic_fetch_add_explicit(&h->bucket[bucket_of(ns)], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->total_ns, ns, memory_order_relaxed);
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);
	while (ns > max &&
	       !atomic_compare_exchange_weak_explicit(&h->max_ns, &max, ns, memory_order_relaxed, memory_order_relaxed))
		;
}

void stats_since(struct stats *s, enum stat_timer t, uint64_t start_ns)
{
	if (s)
		stats_time(s, t, stats_now_ns() - start_ns);
}

void stats_add(struct stats *s, enum stat_counter c, uint64_t n)
{
	if (s)
		atomic_fetch_add_explicit(&copy_of(s)->counter[c], n, memory_order_relaxed);
}

static void reset_copy(struct stat_copy *s)
{
	for (int t = 0; t < STAT_TIMERS; t++) {
		for (int b = 0; b < STAT_BUCKETS; b++)
			if (atomic_load_explicit(&s->timer[t].bucket[b], memory_order_relaxed))
				atomic_store_explicit(&s->timer[t].bucket[b], 0, memory_order_relaxed);
		atomic_store_explicit(&s->timer[t].total_ns, 0, memory_order_relaxed);
		atomic_store_explicit(&s->timer[t].max_ns, 0, memory_order_relaxed);
	}
	for (int c = 0; c < STAT_COUNTERS; c++)
		atomic_store_explicit(&s->counter[c], 0, memory_order_relaxed);
}

void stats_reset(struct stats *s)
{
	for (int i = 0; s && i < STAT_COPIES; i++)
		reset_copy(&s->copy[i]);
}

static uint64_t quantile(const uint64_t *b, uint64_t count, unsigned permille, uint64_t max)
{
	uint64_t want = (count * permille + 999) / 1000, seen = 0;
	for (unsigned i = 0; i < STAT_BUCKETS; i++) {
		seen += b[i];
		if (seen >= want && seen) {
			uint64_t top = bucket_top(i);
			return top < max ? top : max;
		}
	}
	return max;
}

static void add_copy(const struct histogram *h, uint64_t *buckets, struct stat_summary *r)
{
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	for (unsigned i = 0; i < STAT_BUCKETS; i++) {
		uint64_t n = atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
		buckets[i] += n;
		r->count += n;
	}
	r->total_ns += atomic_load_explicit(&h->total_ns, memory_order_relaxed);
	r->max_ns = max > r->max_ns ? max : r->max_ns;
}

struct stat_summary stats_summary(const struct stats *s, enum stat_timer t)
{
	uint64_t b[STAT_BUCKETS] = {0};
	struct stat_summary r = {0};

	for (int i = 0; s && i < STAT_COPIES; i++)
		add_copy(&s->copy[i].timer[t], b, &r);
	if (r.count) {
		r.p50_ns = quantile(b, r.count, 500, r.max_ns);
		r.p99_ns = quantile(b, r.count, 990, r.max_ns);
	}
	return r;
}

uint64_t stats_count(const struct stats *s, enum stat_counter c)
{
	uint64_t n = 0;

	for (int i = 0; s && i < STAT_COPIES; i++)
		n += atomic_load_explicit(&s->copy[i].counter[c], memory_order_relaxed);
	return n;
}

const char *stats_timer_name(enum stat_timer t) { return timer_names[t]; }
const char *stats_counter_name(enum stat_counter c) { return counter_names[c]; }
