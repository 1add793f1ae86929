/* bench: results as a table and as JSON. */
#include "cmd_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cleanup.h"
#include "json.h"

const char *bench_side_name(enum bench_side s)
{
	static const char *const names[BENCH_SIDES] = {"sealed", "none", "plain"};

	return names[s];
}

struct bench_row *bench_row(struct bench_result *r, const char *name, const char *unit, bool less_is_better)
{
	for (unsigned i = 0; i < r->rows; i++)
		if (!strcmp(r->row[i].name, name))
			return &r->row[i];
	struct bench_row *row = &r->row[r->rows < BENCH_ROWS_MAX ? r->rows++ : BENCH_ROWS_MAX - 1];
	*row = (struct bench_row){.name = name, .unit = unit, .less_is_better = less_is_better};
	return row;
}

void bench_add(struct bench_row *row, enum bench_side side, double value)
{
	struct bench_side_result *s = &row->side[side];

	if (s->n < BENCH_PASSES_MAX)
		s->sample[s->n++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void sorted(const struct bench_side_result *s, double ret[static BENCH_PASSES_MAX])
{
	memcpy(ret, s->sample, sizeof s->sample);
	qsort(ret, s->n, sizeof *ret, by_value);
}

double bench_centre(const struct bench_result *r, const struct bench_row *row, enum bench_side side)
{
	const struct bench_side_result *s = &row->side[side];
	double v[BENCH_PASSES_MAX], sum = 0;

	if (!s->n)
		return 0;
	sorted(s, v);
	if (!r->mean)
		return (v[(s->n - 1) / 2] + v[s->n / 2]) / 2;
	for (unsigned i = 0; i < s->n; i++)
		sum += v[i];
	return sum / s->n;
}

double bench_spread(const struct bench_result *r, const struct bench_row *row)
{
	double most = 0, v[BENCH_PASSES_MAX];

	for (int side = SIDE_SEALED; side <= SIDE_NONE; side++) {
		const struct bench_side_result *s = &row->side[side];
		double centre = bench_centre(r, row, (enum bench_side)side);
		sorted(s, v);
		if (s->n && centre > 0 && (v[s->n - 1] - v[0]) / centre > most)
			most = (v[s->n - 1] - v[0]) / centre;
	}
	return most;
}

double bench_ratio(const struct bench_result *r, const struct bench_row *row)
{
	double none = bench_centre(r, row, SIDE_NONE);

	return none > 0 ? bench_centre(r, row, SIDE_SEALED) / none : 0;
}

void bench_number(double x, char *ret, size_t size) { snprintf(ret, size, "%.*f", x >= 100 || x == 0 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 3, x); }

/* "model name" of the first CPU, or the architecture. */
static void cpu_name(const char *machine, char *ret, size_t size)
{
	char line[512];
	FILE *f = fopen("/proc/cpuinfo", "re");

	snprintf(ret, size, "%s", machine);
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "model name", 10) && strchr(line, ':')) {
			line[strcspn(line, "\n")] = 0;
			snprintf(ret, size, "%s", strchr(line, ':') + 2);
			break;
		}
	if (f)
		fclose(f);
}

/* The type of the mount that dir lies in: the one of /proc/self/mountinfo with its device. */
static void filesystem_name(const char *dir, char *ret, size_t size)
{
	char real[PATH_MAX], line[2048], point[1024], type[64];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	size_t longest = 0;

	snprintf(ret, size, "unknown");
	if (!realpath(dir, real))
		strcpy(real, "/");
	while (f && fgets(line, sizeof line, f)) {
		const char *dash = strstr(line, " - ");
		size_t n;
		if (!dash || sscanf(line, "%*s %*s %*s %*s %1023s", point) != 1 || sscanf(dash + 3, "%63s", type) != 1)
			continue;
		n = strcmp(point, "/") ? strlen(point) : 0;
		if (n >= longest && !strncmp(real, point, n) && (real[n] == '/' || !real[n])) {
			longest = n;
			snprintf(ret, size, "%s", type);
		}
	}
	if (f)
		fclose(f);
}

void bench_machine(const char *dir, char *ret, size_t size)
{
	char cpu[128], fs[64];
	struct utsname u;
	struct sysinfo s;

	uname(&u);
	sysinfo(&s);
	cpu_name(u.machine, cpu, sizeof cpu);
	filesystem_name(dir, fs, sizeof fs);
	snprintf(ret, size, "%s, %ld CPUs, %.0f GiB of memory, Linux %s, %s", cpu, sysconf(_SC_NPROCESSORS_ONLN),
		(double)s.totalram * s.mem_unit / (1 << 30), u.release, fs);
}

static bool has_side(const struct bench_result *r, enum bench_side side)
{
	for (unsigned i = 0; i < r->rows; i++)
		if (r->row[i].side[side].n)
			return true;
	return false;
}

static void put_head(struct buf *out, const struct bench_result *r, const struct bench_options *o)
{
	char machine[512];

	bench_machine(o->dir, machine, sizeof machine);
	buf_printf(out, "twofold bench %s: %s\n%s\n", r->test, r->what, machine);
	if (*r->engine)
		buf_printf(out, "%s, %s, file of %.4g GiB, %u pass%s of %g s\n", r->engine, r->direct ? "direct I/O" : "through the page cache",
			(double)o->size_bytes / (1 << 30), o->passes, o->passes == 1 ? "" : "es", o->seconds);
	else
		buf_printf(out, "scale %.4g, %u time%s each\n", o->scale, o->passes, o->passes == 1 ? "" : "s");
	buf_printf(out, "sealed: %s; none: --cipher none%s; %s of the passes\n\n", o->cipher,
		has_side(r, SIDE_PLAIN) ? "; plain: the directory itself, without twofold" : "", r->mean ? "averages" : "medians");
}

static void put_latencies(struct buf *out, const struct bench_result *r)
{
	bool any = false;

	for (unsigned i = 0; i < r->rows; i++)
		for (int side = 0; r->row[i].has_latency && side < BENCH_SIDES; side++) {
			const struct bench_side_result *s = &r->row[i].side[side];
			char n[6][24];
			if (!s->n)
				continue;
			if (!any)
				buf_printf(out, "\n%-37s %9s %8s %8s %8s %8s %8s\n", "latency in microseconds", "IOPS", "p50", "p95", "p99", "p99.9", "max");
			any = true;
			const double v[6] = {s->iops / s->n, s->latency.p50 / s->n, s->latency.p95 / s->n, s->latency.p99 / s->n, s->latency.p999 / s->n, s->latency.max};
			for (int k = 0; k < 6; k++)
				bench_number(v[k], n[k], sizeof n[k]);
			buf_printf(out, "%-30s %6s %9s %8s %8s %8s %8s %8s\n", side ? "" : r->row[i].name, bench_side_name((enum bench_side)side), n[0], n[1], n[2],
				n[3], n[4], n[5]);
		}
}

void bench_put_table(struct buf *out, const struct bench_result *r, const struct bench_options *o)
{
	put_head(out, r, o);
	buf_printf(out, "%-30s %-5s %9s %9s %9s %12s %7s\n", "", "", "sealed", "none", "plain", "sealed/none", "spread");
	for (unsigned i = 0; i < r->rows; i++) {
		const struct bench_row *row = &r->row[i];
		char n[BENCH_SIDES][24], ratio[24] = "-", spread[24];
		for (int s = 0; s < BENCH_SIDES; s++) {
			strcpy(n[s], "-");
			if (row->side[s].n)
				bench_number(bench_centre(r, row, (enum bench_side)s), n[s], sizeof n[s]);
		}
		if (bench_ratio(r, row) > 0)
			snprintf(ratio, sizeof ratio, "%.3f", bench_ratio(r, row));
		snprintf(spread, sizeof spread, "%.0f %%", 100 * bench_spread(r, row));
		buf_printf(out, "%-30s %-5s %9s %9s %9s %12s %7s\n", row->name, row->unit, n[0], n[1], n[2], ratio, spread);
	}
	put_latencies(out, r);
	buf_printf(out, "\nspread: largest less smallest result, of the side where that is more\n");
}

static void put_side_json(struct buf *out, const struct bench_result *r, const struct bench_row *row, enum bench_side side)
{
	const struct bench_side_result *s = &row->side[side];

	buf_printf(out, ",\"%s\":{\"%s\":%.6g,\"samples\":[", bench_side_name(side), r->mean ? "mean" : "median", bench_centre(r, row, side));
	for (unsigned i = 0; i < s->n; i++)
		buf_printf(out, i ? ",%.6g" : "%.6g", s->sample[i]);
	buf_printf(out, "]");
	if (row->has_latency)
		buf_printf(out, ",\"iops\":%.6g,\"latency_us\":{\"p50\":%.6g,\"p95\":%.6g,\"p99\":%.6g,\"p99.9\":%.6g,\"max\":%.6g}", s->iops / s->n,
			s->latency.p50 / s->n, s->latency.p95 / s->n, s->latency.p99 / s->n, s->latency.p999 / s->n, s->latency.max);
	buf_printf(out, "}");
}

void bench_put_json(struct buf *out, const struct bench_result *r, const struct bench_options *o)
{
	char machine[512];

	bench_machine(o->dir, machine, sizeof machine);
	buf_printf(out, "{\"bench\":\"%s\",\"version\":\"%s\",\"machine\":", r->test, TWOFOLD_VERSION);
	json_put_string(out, machine);
	buf_printf(out, ",\"cipher\":\"%s\",\"passes\":%u", o->cipher, o->passes);
	if (*r->engine) {
		buf_printf(out, ",\"engine\":");
		json_put_string(out, r->engine);
		buf_printf(out, ",\"direct\":%s,\"size_bytes\":%llu,\"seconds\":%g", r->direct ? "true" : "false", (unsigned long long)o->size_bytes, o->seconds);
	} else
		buf_printf(out, ",\"scale\":%.6g", o->scale);
	buf_printf(out, ",\"results\":[");
	for (unsigned i = 0; i < r->rows; i++) {
		const struct bench_row *row = &r->row[i];
		buf_printf(out, "%s\n{\"name\":\"%s\",\"unit\":\"%s\",\"less_is_better\":%s", i ? "," : "", row->name, row->unit, row->less_is_better ? "true" : "false");
		for (int s = 0; s < BENCH_SIDES; s++)
			if (row->side[s].n)
				put_side_json(out, r, row, (enum bench_side)s);
		if (bench_ratio(r, row) > 0)
			buf_printf(out, ",\"sealed_to_none\":%.4f", bench_ratio(r, row));
		buf_printf(out, ",\"spread\":%.4f}", bench_spread(r, row));
	}
	buf_printf(out, "\n]}\n");
}
