/* bench_object [-d DIR] [-c CIPHER] [-m MIB]: what objects and the redo log carry, without a mount. Prints one line a case; the stages' counters
 * follow. DIR (default $TMPDIR or /tmp) should be a tmpfs to measure the code, a disk to measure flushing. A thread commits
 * every second and at once where the log asks for it, as a volume does. */
#include "store_fixture.h"

#include <sys/resource.h>

#define LOCAL 0x34
#define STEP 256 /* pages of 1 MiB */

static const struct id object_a = {{0xaa, 1}};

struct bench {
	struct fixture f;
	struct object *o;
	uint64_t pages;
	_Atomic bool stop;
	_Atomic uint64_t again;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool wanted;
	uint64_t commits;
};

static double now(void) { return (double)stats_now_ns() / 1e9; }

/* Processor time of all threads: on a busy machine this says more than the clock. */
static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double cpu_start;

static double begin(void)
{
	cpu_start = cpu();
	return now();
}

static void commit(struct bench *b)
{
	struct page_map map;
	struct root root;

	if (object_flush(b->o) || object_snapshot(b->o, &map, &root) || object_store_flush_redo(b->f.s))
		abort();
	extents_fini(&map.holes);
	b->f.committed = b->f.txn++;
	object_store_set_txn(b->f.s, b->f.txn);
	if (object_store_committed(b->f.s, b->f.committed))
		abort();
	b->commits++;
}

static void *committer(void *arg)
{
	struct bench *b = arg;

	pthread_mutex_lock(&b->lock);
	while (!atomic_load(&b->stop)) {
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_sec++;
		while (!b->wanted && !pthread_cond_timedwait(&b->cond, &b->lock, &t))
			;
		pthread_mutex_unlock(&b->lock);
		commit(b);
		pthread_mutex_lock(&b->lock);
		b->wanted = false;
		pthread_cond_broadcast(&b->cond);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void want_commit(struct bench *b, bool wait)
{
	pthread_mutex_lock(&b->lock);
	b->wanted = true;
	pthread_cond_broadcast(&b->cond);
	while (wait && b->wanted)
		pthread_cond_wait(&b->cond, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

static void write_one(struct bench *b, uint64_t first, uint32_t n, const uint8_t *buf)
{
	int r;

	while ((r = object_write(b->o, first, n, buf, 1)) == -EAGAIN) {
		atomic_fetch_add(&b->again, 1);
		want_commit(b, true);
	}
	if (r)
		abort();
	if (object_store_wants_commit(b->f.s))
		want_commit(b, false);
}

static void report(struct bench *b, const char *what, double start, double mib)
{
	double s = now() - start, c = cpu() - cpu_start;

	printf("  %-28s %8.0f MiB/s, %8.0f a processor second (%.2f s", what, mib / s, mib / c, s);
	if (b->again)
		printf(", %llu waits for a commit", (unsigned long long)b->again);
	printf(")\n");
	b->again = 0;
}

static void sequential(struct bench *b, uint8_t *buf)
{
	double mib = (double)b->pages / STEP, t = begin();
	uint64_t bad;

	for (uint64_t p = 0; p < b->pages; p += STEP)
		write_one(b, p, STEP, buf);
	report(b, "write, 1 MiB, new", t, mib);
	t = begin();
	for (uint64_t p = 0; p < b->pages; p += STEP)
		if (object_read(b->o, p, STEP, buf, &bad))
			abort();
	report(b, "read, 1 MiB", t, mib);
	commit(b); /* all of it is protected from here on */
}

static void random_4k(struct bench *b, uint8_t *buf, int n)
{
	double t = begin();
	uint64_t bad;

	for (int i = 0; i < n; i++)
		write_one(b, (uint64_t)random() % b->pages, 1, buf);
	report(b, "overwrite, 4 KiB, random", t, n / 256.0);
	t = begin();
	for (int i = 0; i < n; i++)
		if (object_read(b->o, (uint64_t)random() % b->pages, 1, buf, &bad))
			abort();
	report(b, "read, 4 KiB, random", t, n / 256.0);
	t = begin();
	for (int i = 0; i < 1000; i++) {
		write_one(b, (uint64_t)random() % b->pages, 1, buf);
		object_store_flush_redo(b->f.s);
	}
	printf("  %-28s %8.1f us each\n", "overwrite 4 KiB and fsync", (now() - t) * 1e6 / 1000);
}

struct part {
	struct bench *b;
	unsigned seed;
	int kind; /* 0 write 128 KiB, 1 read 128 KiB */
	int n;
};

static void *many(void *arg)
{
	struct part *p = arg;
	uint8_t *buf = calloc(32, PAGE_LEN);
	uint64_t bad;

	for (int i = 0; i < p->n; i++) {
		uint64_t first = (uint64_t)rand_r(&p->seed) % (p->b->pages / 32) * 32;
		if (!p->kind)
			write_one(p->b, first, 32, buf);
		else if (object_read(p->b->o, first, 32, buf, &bad))
			abort();
	}
	free(buf);
	return NULL;
}

static void threads(struct bench *b, int kind, const char *name, int n)
{
	pthread_t t[16];
	struct part p[16];
	double start = begin();

	for (int i = 0; i < 16; i++) {
		p[i] = (struct part){b, (unsigned)i, kind, n};
		pthread_create(&t[i], NULL, many, &p[i]);
	}
	for (int i = 0; i < 16; i++)
		pthread_join(t[i], NULL);
	report(b, name, start, 16.0 * n / 8);
}

static void counters(struct bench *b)
{
	static const enum stat_timer t[] = {STAGE_SEAL, STAGE_OPEN, STAGE_OBJECT_READ, STAGE_OBJECT_WRITE, STAGE_OBJECT_FLUSH,
					    STAGE_REDO_APPEND, STAGE_REDO_FLUSH, STAGE_CHECKPOINT};

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct stat_summary s = stats_summary(b->f.st, t[i]);
		printf("  %-22s %9llu times %9.1f ms, p50 %8.1f us, p99 %8.1f us\n", stats_timer_name(t[i]),
		       (unsigned long long)s.count, (double)s.total_ns / 1e6, (double)s.p50_ns / 1e3, (double)s.p99_ns / 1e3);
	}
}

static void run(enum cipher cipher, int mib)
{
	static struct bench b;
	uint8_t *buf = malloc(STEP * PAGE_LEN);
	pthread_t t;

	memset(&b, 0, sizeof(b));
	memset(buf, 0x33, STEP * PAGE_LEN);
	printf("%s\n", cipher_name(cipher));
	fixture_init(&b.f, cipher, REDO_BYTES);
	pthread_mutex_init(&b.lock, NULL);
	pthread_cond_init(&b.cond, NULL);
	b.pages = (uint64_t)mib * STEP;
	if (object_create(b.f.s, LOCAL, &object_a, 0, &b.o))
		abort();
	sequential(&b, buf);
	pthread_create(&t, NULL, committer, &b);
	double s = begin();
	for (uint64_t p = 0; p < b.pages; p += STEP)
		write_one(&b, p, STEP, buf);
	report(&b, "overwrite, 1 MiB", s, mib);
	random_4k(&b, buf, mib * 64);
	threads(&b, 0, "overwrite, 128 KiB, 16 thr.", mib / 4);
	threads(&b, 1, "read, 128 KiB, 16 threads", mib / 4);
	atomic_store(&b.stop, true);
	want_commit(&b, false);
	pthread_join(t, NULL);
	commit(&b);
	object_store_checkpoint(b.f.s);
	counters(&b);
	object_close(b.o);
	fixture_fini(&b.f);
	free(buf);
}

int main(int argc, char **argv)
{
	enum cipher only = 0;
	int opt, mib = 512;

	while ((opt = getopt(argc, argv, "d:c:m:")) != -1) {
		if (opt == 'd')
			setenv("TMPDIR", optarg, 1);
		else if (opt == 'm')
			mib = atoi(optarg);
		else if (opt != 'c' || cipher_parse(optarg, &only)) {
			fprintf(stderr, "usage: bench_object [-d DIR] [-c CIPHER] [-m MIB]\n");
			return 2;
		}
	}
	if (crypto_init())
		return 1;
	for (int c = CIPHER_XCHACHA20POLY1305; c <= CIPHER_NONE; c++)
		if ((!only || only == (enum cipher)c) && cipher_available((enum cipher)c))
			run((enum cipher)c, mib);
	return 0;
}
