/* bench: fio as the engine, where it is installed. Only a few numbers of its JSON are needed: they are looked for by name in the one section
 * "mixed" that unified_rw_reporting makes. */
#include "cmd_bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool bench_fio_version(char *ret_name, size_t size)
{
	char *argv[] = {(char *)"fio", (char *)"--version", NULL};
	struct buf out = {0};
	bool found = bench_run(&(struct bench_child){.argv = argv, .out = &out}) == 0 && out.len > 0;

	buf_put_u8(&out, 0);
	found = found && !out.err;
	if (found)
		snprintf(ret_name, size, "%.*s", (int)strcspn((char *)out.p, "\n"), (char *)out.p);
	buf_fini(&out);
	return found;
}

/* The number behind "name" : in text, the first one. */
static bool number_of(const char *text, const char *name, double *ret)
{
	char key[64], *end;
	const char *at;

	snprintf(key, sizeof key, "\"%s\" :", name);
	at = text ? strstr(text, key) : NULL;
	if (!at)
		return false;
	at += strlen(key);
	*ret = strtod(at, &end);
	return end != at;
}

static int parse(const char *json, struct bench_io *ret)
{
	const char *mixed = strstr(json, "\"mixed\" : {"), *clat = mixed ? strstr(mixed, "\"clat_ns\" : {") : NULL;
	struct bench_latency *l = &ret->latency;
	double bytes = 0, error = 1;

	if (!number_of(json, "error", &error) || error != 0)
		return -EIO;
	if (!number_of(mixed, "bw_bytes", &bytes) || !number_of(mixed, "iops", &ret->iops) || !number_of(clat, "max", &l->max))
		return -EPROTO;
	/* no request may have ended within the time: then there are no percentiles */
	number_of(clat, "50.000000", &l->p50);
	number_of(clat, "95.000000", &l->p95);
	number_of(clat, "99.000000", &l->p99);
	number_of(clat, "99.900000", &l->p999);
	ret->mib_per_s = bytes / (1 << 20);
	*l = (struct bench_latency){l->p50 / 1e3, l->p95 / 1e3, l->p99 / 1e3, l->p999 / 1e3, l->max / 1e3};
	return 0;
}

int bench_job_fio(const struct bench_job *j, struct bench_io *ret)
{
	char file[PATH_MAX + 16], size[48], block[32], rw[24], mix[24], depth[24], jobs[24], runtime[24];
	/* queues need an asynchronous engine, and that one needs direct I/O */
	char *argv[] = {(char *)"fio", (char *)"--name=twofold", file, size, block, rw, mix, depth, jobs, runtime, (char *)"--time_based", (char *)"--thread",
		(char *)"--group_reporting", (char *)"--unified_rw_reporting=1", (char *)"--randrepeat=0", (char *)"--norandommap", (char *)"--fallocate=none",
		(char *)"--eta=never", (char *)"--output-format=json", (char *)"--percentile_list=50:95:99:99.9",
		(char *)(j->direct ? "--ioengine=libaio" : "--ioengine=psync"), (char *)(j->direct ? "--direct=1" : "--direct=0"), NULL};
	struct buf out = {0}, err = {0};
	int r;

	/* fio takes ':' in a name as the end of the name */
	char *to = file + sprintf(file, "--filename=");
	for (const char *from = j->path; *from && to < file + sizeof file - 3; from++) {
		if (*from == ':' || *from == '\\')
			*to++ = '\\';
		*to++ = *from;
	}
	*to = 0;
	snprintf(size, sizeof size, "--size=%llu", (unsigned long long)j->size_bytes);
	snprintf(block, sizeof block, "--bs=%u", j->block_bytes);
	snprintf(rw, sizeof rw, "--rw=%s%s", j->random ? "rand" : "", j->write_percent == 0 ? "read" : j->write_percent == 100 ? "write" : "rw");
	snprintf(mix, sizeof mix, "--rwmixwrite=%u", j->write_percent);
	/* without an asynchronous engine, as many threads as requests are to be under way */
	snprintf(depth, sizeof depth, "--iodepth=%u", j->direct ? j->depth : 1);
	snprintf(jobs, sizeof jobs, "--numjobs=%u", j->direct ? j->threads : j->threads * j->depth);
	snprintf(runtime, sizeof runtime, "--runtime=%.0fms", j->seconds * 1000);
	*ret = (struct bench_io){0};
	r = bench_run(&(struct bench_child){.argv = argv, .out = &out, .err = &err});
	buf_put_u8(&out, 0);
	if (!r)
		r = out.err ? out.err : parse((char *)out.p, ret);
	if (r && r != -EINTR) {
		fwrite(err.p, 1, err.len, stderr);
		fprintf(stderr, "twofold: bench: fio failed on %s; --engine builtin does without it\n", j->path);
		r = r > 0 ? -EIO : r;
	}
	buf_fini(&out);
	buf_fini(&err);
	return r;
}
