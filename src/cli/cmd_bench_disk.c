/* bench disk: the set of tests of CrystalDiskMark. bench sql: one large file under 16 threads, as Diskspd is run to judge a disk for a database.
 * Each test runs on the sealed mount, on the unsealed one and in the plain directory one after the other, and who is first changes with each
 * pass: what the machine does beside it meets all three. */
#include "cmd_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "progress.h"

#define FIXED_BYTES (256u << 20) /* journals, redo logs, and a margin */

struct io_test {
	const char *name;
	unsigned block_bytes, depth, threads, write_percent;
	bool random;
};

static const struct io_test disk_tests[] = {
	{"SEQ1M Q8T1 read", 1 << 20, 8, 1, 0, false},
	{"SEQ1M Q1T1 read", 1 << 20, 1, 1, 0, false},
	{"RND4K Q32T16 read", 4096, 32, 16, 0, true},
	{"RND4K Q1T1 read", 4096, 1, 1, 0, true},
	{"SEQ1M Q8T1 write", 1 << 20, 8, 1, 100, false},
	{"SEQ1M Q1T1 write", 1 << 20, 1, 1, 100, false},
	{"RND4K Q32T16 write", 4096, 32, 16, 100, true},
	{"RND4K Q1T1 write", 4096, 1, 1, 100, true},
	{0},
};

static const struct io_test sql_tests[] = {
	{"RND128K Q1T16 read", 128 << 10, 1, 16, 0, true},
	{"RND128K Q1T16 write", 128 << 10, 1, 16, 100, true},
	{"RND128K Q1T16 70/30", 128 << 10, 1, 16, 30, true},
	{0},
};

struct run {
	const struct bench_options *o;
	const struct io_test *tests;
	struct bench_work work;
	struct bench_result *result;
	bool fio, direct;
	char file[BENCH_SIDES][PATH_MAX], below[BENCH_SIDES][PATH_MAX]; /* the file, and the folder that its bytes lie in */
};

static int pick_engine(struct run *run)
{
	char version[32] = "";
	const char *want = run->o->engine;

	run->fio = (!want || !strcmp(want, "fio")) && bench_fio_version(version, sizeof version);
	if (want && !strcmp(want, "fio") && !run->fio) {
		fprintf(stderr, "twofold: bench: fio is not installed; --engine builtin does without it\n");
		return -ENOENT;
	}
	if (run->fio)
		snprintf(run->result->engine, sizeof run->result->engine, "%s, %s", version, run->direct ? "libaio" : "psync");
	else
		snprintf(run->result->engine, sizeof run->result->engine, "built-in loop, threads");
	return 0;
}

/* Not every filesystem knows direct I/O; where one side lacks it, none uses it. */
static bool can_be_direct(const char *path)
{
	void *page;
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0 || posix_memalign(&page, 4096, 4096))
		return false;
	ssize_t n = pread(fd, page, 4096, 0);
	free(page);
	return n == 4096;
}

static int prepare(struct run *run)
{
	struct bench_work *w = &run->work;
	int r;

	progress_show("making two volumes");
	for (unsigned i = 0; i < BENCH_SIDES; i++) {
		if (i == SIDE_PLAIN) {
			snprintf(run->below[i], PATH_MAX, "%s/plain", w->path);
			snprintf(run->file[i], PATH_MAX, "%s/plain/file", w->path);
			if (mkdir(run->below[i], 0700))
				return -errno;
		} else {
			r = bench_init(w, i, bench_side_name(i), i == SIDE_NONE ? "none" : run->o->cipher);
			if (!r)
				r = bench_mount(w, i, NULL);
			if (r)
				return r;
			snprintf(run->below[i], PATH_MAX, "%s", w->mount[i].store);
			snprintf(run->file[i], PATH_MAX, "%.*s/file", PATH_MAX - 32, w->mount[i].path);
		}
		progress_show("writing the test file, %s", bench_side_name(i));
		r = bench_fill_file(run->file[i], run->o->size_bytes);
		if (r && r != -EINTR)
			complain(r, run->file[i]);
		if (r)
			return r;
		run->direct &= can_be_direct(run->file[i]);
	}
	return pick_engine(run);
}

/* What an earlier step left in memory must neither help nor hinder this one. */
static int settle(struct run *run, enum bench_side side)
{
	int r = 0;

	if (!run->direct && side != SIDE_PLAIN) {
		r = bench_umount(&run->work, side);
		if (!r)
			r = bench_mount(&run->work, side, NULL);
	}
	bench_forget_pages(run->below[side]);
	return r;
}

static int measure(struct run *run, const struct io_test *t, enum bench_side side)
{
	struct bench_job job = {run->file[side], run->o->size_bytes, t->block_bytes, t->depth, t->threads, t->write_percent, run->o->seconds, t->random, run->direct};
	struct bench_row *row = bench_row(run->result, t->name, "MiB/s", false);
	struct bench_side_result *s = &row->side[side];
	struct bench_io io = {0};
	int r = settle(run, side);

	if (!r)
		r = run->fio ? bench_job_fio(&job, &io) : bench_job_builtin(&job, &io);
	if (r && r != -EINTR && !run->fio)
		complain(r, run->file[side]);
	if (r)
		return r;
	bench_add(row, side, io.mib_per_s);
	row->has_latency = true;
	s->iops += io.iops;
	s->latency.p50 += io.latency.p50;
	s->latency.p95 += io.latency.p95;
	s->latency.p99 += io.latency.p99;
	s->latency.p999 += io.latency.p999;
	if (io.latency.max > s->latency.max)
		s->latency.max = io.latency.max;
	return 0;
}

static int measure_all(struct run *run)
{
	unsigned tests = 0, done = 0, all;
	char left[PROGRESS_LEFT_MAX];
	uint64_t start = bench_now_ns();
	int r = 0;

	while (run->tests[tests].name)
		tests++;
	all = tests * BENCH_SIDES * run->o->passes;
	for (unsigned p = 0; p < run->o->passes; p++)
		for (unsigned t = 0; t < tests; t++)
			for (unsigned i = 0; i < BENCH_SIDES; i++) {
				enum bench_side side = (enum bench_side)((p + i) % BENCH_SIDES);
				progress_show("pass %u of %u, %s: %s%s", p + 1, run->o->passes, bench_side_name(side), run->tests[t].name,
					progress_left(start, (double)done / all, left));
				if (!r)
					r = atomic_load(&bench_stop) ? -EINTR : measure(run, &run->tests[t], side);
				done++;
			}
	return r;
}

static int bench_io_tests(const struct bench_options *o, const struct io_test *tests, struct bench_result *ret)
{
	struct run *run = calloc(1, sizeof *run);
	int r, closed;

	if (!run)
		return complain(-ENOMEM, "bench"), -ENOMEM;
	run->o = o;
	run->tests = tests;
	run->result = ret;
	run->direct = !o->cached;
	r = bench_work_open(o->dir, BENCH_SIDES * o->size_bytes + o->size_bytes / 8 + FIXED_BYTES, &run->work);
	if (!r)
		r = prepare(run);
	if (!r)
		r = measure_all(run);
	ret->direct = run->direct;
	closed = bench_work_close(&run->work);
	free(run);
	return r ? r : closed;
}

int bench_disk(const struct bench_options *o, struct bench_result *ret)
{
	ret->what = "CrystalDiskMark's set";
	return bench_io_tests(o, disk_tests, ret);
}

int bench_sql(const struct bench_options *o, struct bench_result *ret)
{
	ret->what = "one large file, as Diskspd is run for SQL Server";
	return bench_io_tests(o, sql_tests, ret);
}
