/* bench: the built-in engine, for machines without fio. As many threads as requests are to be under way at once, each doing one after the other. */
#include "cmd_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cleanup.h"

#define FILL_LEN (4u << 20)
#define ALIGN 4096
#define THREADS_MAX 1024
/* Log-linear: 16 steps for each power of two, of nanoseconds. */
#define STEPS 16
#define BUCKETS (64 * STEPS)

void bench_noise(uint64_t seed, void *p, size_t len)
{
	uint8_t *out = p;

	for (; len >= 8; out += 8, len -= 8)
		le64_store(out, bench_random(&seed));
	for (uint64_t last = bench_random(&seed); len; len--, last >>= 8)
		*out++ = (uint8_t)last;
}

int bench_fill_file(const char *path, uint64_t size_bytes)
{
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CLEANUP_FREE uint8_t *bytes = malloc(FILL_LEN);
	uint64_t at = 0;

	if (fd < 0 || !bytes)
		return fd < 0 ? -errno : -ENOMEM;
	bench_noise(1, bytes, FILL_LEN);
	while (at < size_bytes) {
		size_t len = size_bytes - at < FILL_LEN ? (size_t)(size_bytes - at) : FILL_LEN;
		/* no two pages of the file are the same */
		for (size_t i = 0; i + 8 <= len; i += 4096)
			le64_store(bytes + i, at + i);
		ssize_t n = write(fd, bytes, len);
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (uint64_t)n : 0;
		if (atomic_load(&bench_stop))
			return -EINTR;
	}
	return fsync(fd) ? -errno : 0;
}

struct loop {
	const struct bench_job *job;
	int fd;
	uint64_t end_ns;
	_Atomic uint64_t next;  /* sequential: the next block */
	_Atomic uint64_t seed, done, max_ns;
	_Atomic int err;
	_Atomic uint32_t bucket[BUCKETS];
};

static unsigned bucket_of(uint64_t ns)
{
	unsigned log = ns ? 63 - (unsigned)__builtin_clzll(ns) : 0;

	return log < 4 ? (unsigned)ns : log * STEPS + (unsigned)(ns >> (log - 4) & (STEPS - 1));
}

static double bucket_us(unsigned b)
{
	unsigned log = b / STEPS;

	return (log < 4 ? (double)b : (double)((uint64_t)(STEPS + b % STEPS) << (log - 4))) / 1000;
}

static void note(struct loop *l, uint64_t ns)
{
	uint64_t max = atomic_load_explicit(&l->max_ns, memory_order_relaxed);

	atomic_fetch_add_explicit(&l->bucket[bucket_of(ns)], 1, memory_order_relaxed);
	while (ns > max && !atomic_compare_exchange_weak(&l->max_ns, &max, ns))
		;
	atomic_fetch_add_explicit(&l->done, 1, memory_order_relaxed);
}

static void *work(void *arg)
{
	struct loop *l = arg;
	const struct bench_job *j = l->job;
	uint64_t blocks = j->size_bytes / j->block_bytes, seed = atomic_fetch_add(&l->seed, 0x1234567), start = bench_now_ns();
	uint8_t *bytes = NULL;

	if (posix_memalign((void **)&bytes, ALIGN, j->block_bytes)) {
		atomic_store(&l->err, -ENOMEM);
		return NULL;
	}
	bench_noise(seed, bytes, j->block_bytes);
	while (start < l->end_ns && !atomic_load(&l->err) && !atomic_load_explicit(&bench_stop, memory_order_relaxed)) {
		uint64_t block = (j->random ? bench_random(&seed) : atomic_fetch_add(&l->next, 1)) % blocks, now;
		off_t off = (off_t)(block * j->block_bytes);
		bool writes = bench_random(&seed) % 100 < j->write_percent;
		if (writes)
			le64_store(bytes, seed);
		ssize_t n = writes ? pwrite(l->fd, bytes, j->block_bytes, off) : pread(l->fd, bytes, j->block_bytes, off);
		if (n != (ssize_t)j->block_bytes) {
			atomic_store(&l->err, n < 0 ? -errno : -EIO);
			break;
		}
		now = bench_now_ns();
		note(l, now - start);
		start = now;
	}
	free(bytes);
	return NULL;
}

static double percentile(const struct loop *l, double part)
{
	uint64_t want = (uint64_t)(part * (double)l->done), seen = 0;

	for (unsigned b = 0; b < BUCKETS; b++) {
		seen += l->bucket[b];
		if (seen > want)
			return bucket_us(b);
	}
	return (double)l->max_ns / 1000;
}

static int run_threads(struct loop *l, unsigned n)
{
	CLEANUP_FREE pthread_t *thread = calloc(n, sizeof *thread);
	pthread_attr_t attr;
	unsigned made = 0;
	int r = thread ? 0 : -ENOMEM;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	while (!r && made < n) {
		r = -pthread_create(&thread[made], &attr, work, l);
		made += !r;
	}
	pthread_attr_destroy(&attr);
	if (r)
		atomic_store(&l->err, r);
	for (unsigned i = 0; i < made; i++)
		pthread_join(thread[i], NULL);
	return atomic_load(&l->err);
}

int bench_job_builtin(const struct bench_job *j, struct bench_io *ret)
{
	unsigned threads = j->threads * j->depth;
	CLEANUP_FREE struct loop *l = calloc(1, sizeof *l);
	CLEANUP_CLOSE int fd = open(j->path, (j->write_percent ? O_RDWR : O_RDONLY) | O_CLOEXEC | (j->direct ? O_DIRECT : 0));

	if (!l || fd < 0)
		return !l ? -ENOMEM : -errno;
	if (threads < 1 || threads > THREADS_MAX || j->size_bytes < j->block_bytes)
		return -EINVAL;
	uint64_t start = bench_now_ns();
	l->job = j;
	l->fd = fd;
	l->seed = start;
	l->end_ns = start + (uint64_t)(j->seconds * 1e9);
	int r = run_threads(l, threads);
	double took = (double)(bench_now_ns() - start) / 1e9;
	if (atomic_load(&bench_stop))
		return -EINTR;
	if (r)
		return r;
	ret->iops = (double)l->done / took;
	ret->mib_per_s = ret->iops * j->block_bytes / (1 << 20);
	ret->latency = (struct bench_latency){percentile(l, .5), percentile(l, .95), percentile(l, .99), percentile(l, .999), (double)l->max_ns / 1000};
	return 0;
}
