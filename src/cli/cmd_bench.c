/* bench: its command line; see cmd_bench.h. */
#include "cmd_bench.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"
#include "progress.h"
#include "seal.h"

atomic_bool bench_stop;

static const struct {
	const char *name;
	int (*run)(const struct bench_options *o, struct bench_result *ret);
	uint64_t size_bytes;
	unsigned passes, seconds;
} tests[] = {
	{"disk", bench_disk, 1ull << 30, 5, 5},
	{"sql", bench_sql, 4ull << 30, 1, 60},
	{"replicate", bench_replicate, 0, 3, 0},
};

static void on_signal(int sig)
{
	atomic_store(&bench_stop, true);
}

static void catch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal};

	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	sigaction(SIGHUP, &a, NULL);
	sigaction(SIGQUIT, &a, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* "512K", "64M", "1G" in bytes. */
static int parse_size(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGT";
	char *end;
	double n = strtod(text, &end);
	const char *u = *end ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
	int shift = u ? 10 * (int)(u - units + 1) : 0;

	if (end == text || (*end && (!u || end[1])) || !(n > 0) || n * (double)(1ull << shift) > 1e15)
		return usage_error("--size %s: a number with K, M, G or T", text);
	*ret = (uint64_t)(n * (double)(1ull << shift)) & ~(uint64_t)((1 << 20) - 1);
	return *ret ? 0 : usage_error("--size %s: at least 1M", text);
}

static int parse_count(const char *option, const char *text, unsigned max, unsigned *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end || n < 1 || n > max || *text == '-')
		return usage_error("--%s %s: 1 to %u", option, text, max);
	*ret = (unsigned)n;
	return 0;
}

static int parse_number(const char *option, const char *text, double min, double max, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end == text || *end || !(*ret >= min) || *ret > max ? usage_error("--%s %s: %g to %g", option, text, min, max) : 0;
}

static int parse_cipher(const char *text, const char **ret)
{
	enum cipher c;

	if (cipher_parse(text, &c) || c == CIPHER_NONE)
		return usage_error("--cipher %s: xchacha20poly1305 or aes256gcm; it is measured against none", text);
	if (!cipher_available(c))
		return usage_error("--cipher %s: this CPU lacks the AES instructions for it", text);
	*ret = text;
	return 0;
}

static int parse_engine(const char *text, const char **ret)
{
	*ret = text;
	return strcmp(text, "fio") && strcmp(text, "builtin") ? usage_error("--engine %s: fio or builtin", text) : 0;
}

static int parse(int argc, char **argv, struct bench_options *o)
{
	static const struct option options[] = {{"dir", 1, NULL, 'd'}, {"size", 1, NULL, 's'}, {"passes", 1, NULL, 'p'}, {"seconds", 1, NULL, 't'},
		{"scale", 1, NULL, 'x'}, {"cipher", 1, NULL, 'c'}, {"engine", 1, NULL, 'e'}, {"cached", 0, NULL, 'C'}, {"json", 0, NULL, 'j'},
		{"svg", 1, NULL, 'v'}, {0}};
	int c, r = 0;

	while (!r && (c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'd': o->dir = optarg; break;
		case 's': r = parse_size(optarg, &o->size_bytes); break;
		case 'p': r = parse_count("passes", optarg, BENCH_PASSES_MAX, &o->passes); break;
		case 't': r = parse_number("seconds", optarg, 0.1, 3600, &o->seconds); break;
		case 'x': r = parse_number("scale", optarg, 0.0005, 20, &o->scale); break;
		case 'c': r = parse_cipher(optarg, &o->cipher); break;
		case 'e': r = parse_engine(optarg, &o->engine); break;
		case 'C': o->cached = true; break;
		case 'j': o->json = true; break;
		case 'v': o->svg = optarg; break;
		default: r = EXIT_USAGE;
		}
	return r;
}

static int write_svg(const struct bench_result *result, const struct bench_options *o)
{
	struct buf svg = {0};
	FILE *f = fopen(o->svg, "we");
	int r = f ? 0 : -errno;

	bench_put_svg(&svg, result, o);
	if (!r && (svg.err || fwrite(svg.p, 1, svg.len, f) != svg.len))
		r = svg.err ? svg.err : -EIO;
	if (f && fclose(f) && !r)
		r = -errno;
	buf_fini(&svg);
	return r ? complain(r, o->svg) : EXIT_DONE;
}

static int show(const struct bench_result *result, const struct bench_options *o)
{
	struct buf out = {0};
	int code = EXIT_DONE;

	if (o->json)
		bench_put_json(&out, result, o);
	else
		bench_put_table(&out, result, o);
	if (out.err || fwrite(out.p, 1, out.len, stdout) != out.len || fflush(stdout))
		code = complain(out.err ? out.err : -errno, "standard output");
	buf_fini(&out);
	return o->svg && !code ? write_svg(result, o) : code;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_options o = {.dir = ".", .cipher = "xchacha20poly1305", .scale = 1};
	const char *name = argc > 1 ? argv[1] : "";
	size_t t = 0;
	int r;

	while (t < sizeof tests / sizeof *tests && strcmp(tests[t].name, name))
		t++;
	if (t == sizeof tests / sizeof *tests)
		return usage_error("bench disk, bench sql or bench replicate");
	o.size_bytes = tests[t].size_bytes;
	o.passes = tests[t].passes;
	o.seconds = tests[t].seconds;
	r = parse(argc - 1, argv + 1, &o);
	if (r)
		return r;
	if (optind < argc - 1)
		return usage_error("bench %s: %s: takes no such argument", name, argv[optind + 1]);
	catch_signals();
	struct bench_result *result = calloc(1, sizeof *result);
	if (!result)
		return complain(-ENOMEM, "bench");
	result->test = name;
	r = tests[t].run(&o, result);
	progress_end();
	if (r == -EINTR)
		fprintf(stderr, "twofold: bench: interrupted; nothing is left mounted\n");
	/* other failures were named where they were seen */
	r = r ? EXIT_FAILED : show(result, &o);
	free(result);
	return r;
}
