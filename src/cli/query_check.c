/* twofold check and twofold scrub: the volume looks (check_volume.h, scrub.h), this tells. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "progress.h"
#include "scrub.h"

struct telling {
	struct query *q;
	bool json, progress, first;
	uint64_t started_ns, told_ns, at, from;
};

static void on_finding(void *ctx, const char *text)
{
	struct telling *t = ctx;

	if (t->json) {
		buf_printf(t->q->out, t->first ? "" : ",");
		json_put_string(t->q->out, text);
		t->first = false;
	} else {
		if (t->progress)
			progress_wipe(t->q->err);
		t->q->flush(t->q);
		buf_printf(t->q->out, "%s\n", text);
		t->q->flush(t->q);
	}
}

static bool on_progress(void *ctx, uint64_t done, uint64_t total, uint64_t at, uint64_t bytes)
{
	struct telling *t = ctx;
	uint64_t now = env_mono_ns(&env_real);

	t->at = at;
	if (*t->q->stop)
		return false;
	if (now - t->told_ns < 500000000)
		return true;
	t->told_ns = now;
	if (t->json)
		return true;
	if (t->progress && total) {
		double part = (double)done / (double)total;
		char left[PROGRESS_LEFT_MAX];
		progress_put(t->q->err, "%3.0f %%, %.1f MiB read%s", part * 100, (double)bytes / 1048576, progress_left(t->started_ns, part, left));
	}
	return t->q->flush(t->q); /* false: whoever asked is gone */
}

/* Where an interrupted check was: a line in STORE/check-at, worth nothing to anybody. */
static void note_place(struct volume *v, uint64_t at)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/check-at", volume_path(v));
	FILE *f = at ? fopen(path, "we") : NULL;
	if (f) {
		fprintf(f, "%llu\n", (unsigned long long)at);
		fclose(f);
	} else if (!at) {
		unlink(path);
	}
}

static uint64_t noted_place(struct volume *v)
{
	char path[4200];
	unsigned long long at = 0;

	snprintf(path, sizeof path, "%s/check-at", volume_path(v));
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%llu", &at) != 1)
		at = 0;
	if (f)
		fclose(f);
	return at;
}

static void summary(struct query *q, const struct check_result *r, bool sound)
{
	buf_printf(q->out, "%llu records, %llu links, %llu files with %.1f MiB looked at%s\n", (unsigned long long)r->records, (unsigned long long)r->links,
		   (unsigned long long)r->files, (double)r->bytes / 1048576, r->stopped ? "; interrupted, --resume goes on" : "");
	if (r->healed || r->set_aside)
		buf_printf(q->out, "%llu healed from peers, %llu set aside\n", (unsigned long long)r->healed, (unsigned long long)r->set_aside);
	if (!sound)
		buf_printf(q->out, "DAMAGED: %llu records, %llu links, %llu link counts, %llu files with %llu bad pages, %llu orphan objects%s\n",
			   (unsigned long long)r->bad_records, (unsigned long long)r->bad_links, (unsigned long long)r->bad_counts,
			   (unsigned long long)r->bad_files, (unsigned long long)r->bad_pages, (unsigned long long)r->orphans,
			   r->bad_root ? "; records were removed or put back" : "");
	else if (!r->stopped)
		buf_printf(q->out, "sound\n");
}

static void summary_json(struct query *q, const struct check_result *r, bool sound)
{
	buf_printf(q->out, "],\"sound\":%s,\"complete\":%s", sound ? "true" : "false", r->stopped ? "false" : "true");
	const struct { const char *name; uint64_t n; } all[] = {{"records", r->records}, {"bad_records", r->bad_records}, {"links", r->links},
		{"bad_links", r->bad_links}, {"bad_counts", r->bad_counts}, {"files", r->files}, {"bytes", r->bytes}, {"bad_files", r->bad_files},
		{"bad_pages", r->bad_pages}, {"orphans", r->orphans}, {"healed", r->healed}, {"set_aside", r->set_aside}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		buf_printf(q->out, ",\"%s\":%llu", all[i].name, (unsigned long long)all[i].n);
	buf_printf(q->out, ",\"records_rolled_back\":%s}\n", r->bad_root ? "true" : "false");
}

int query_check(struct query *q, int argc, char **argv)
{
	struct telling t = {.q = q, .first = true, .started_ns = env_mono_ns(&env_real)};
	struct check_options o = {.deep = true, .say = on_finding, .progress = on_progress, .ctx = &t};
	struct check_result r;

	for (int i = 2; i < argc; i++) {
		o.repair |= !strcmp(argv[i], "--repair");
		t.json |= !strcmp(argv[i], "--json");
		t.progress |= !strcmp(argv[i], "--progress");
		if (!strcmp(argv[i], "--resume"))
			o.after = noted_place(q->volume);
		if (!strncmp(argv[i], "--rate=", 7))
			o.rate = strtoull(argv[i] + 7, NULL, 10);
	}
	if (t.json)
		buf_printf(q->out, "{\"found\":[");
	/* what was written a moment ago belongs to it; if it cannot be committed, that was said, and what stands there is checked all the same */
	if (!volume_is_read_only(q->volume))
		volume_commit(q->volume);
	int e = volume_check(q->volume, &o, &r);
	bool sound = !e && check_is_sound(&r);
	if (t.progress && !t.json)
		progress_wipe(q->err);
	if (t.json)
		summary_json(q, &r, sound);
	else
		summary(q, &r, sound);
	if (!volume_is_read_only(q->volume))
		note_place(q->volume, r.stopped ? t.at : 0);
	if (e) {
		buf_printf(q->err, "twofold: check: %s\n", strerror(-e));
		return EXIT_FAILED;
	}
	return !sound ? EXIT_STORE : r.stopped ? EXIT_FAILED : EXIT_DONE;
}

int query_scrub(struct query *q, int argc, char **argv)
{
	struct scrub_status s;
	bool show = argc > 2 && !strcmp(argv[2], "status");
	int e = show ? 0 : volume_scrub_now(q->volume);

	if (e == -ENOSYS) {
		buf_printf(q->err, "twofold: scrub: this replica is %s; `twofold check` looks at it\n", volume_is_read_only(q->volume) ? "read-only" : "not served");
		return EXIT_FAILED;
	}
	if (e == -EALREADY)
		buf_printf(q->out, "a scrub runs already\n");
	else if (!show)
		buf_printf(q->out, "scrub started\n");
	if (!show)
		return EXIT_DONE;
	volume_scrub_status(q->volume, &s);
	query_put_scrub(q->out, &s);
	return s.found > s.healed ? EXIT_STORE : EXIT_DONE;
}

void query_put_scrub(struct buf *out, const struct scrub_status *s)
{
	char when[32] = "never";
	time_t ended = (time_t)s->ended_s;
	struct tm tm;

	if (s->ended_s && gmtime_r(&ended, &tm))
		strftime(when, sizeof when, "%Y-%m-%d %H:%M:%SZ", &tm);
	buf_printf(out, "  scrub: last %s", when);
	if (s->ended_s)
		buf_printf(out, ", %llu found, %llu healed", (unsigned long long)s->found, (unsigned long long)s->healed);
	if (s->running)
		buf_printf(out, "; running, %llu of %llu", (unsigned long long)s->done, (unsigned long long)s->total);
	else if (!s->period_s)
		buf_printf(out, "; off");
	buf_printf(out, "\n");
}

/* 500K, 20M, 1G, or bytes. */
static int parse_rate(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' || *end == 'k' ? 10 : *end == 'M' || *end == 'm' ? 20 : *end == 'G' || *end == 'g' ? 30 : 0;
	if (errno || end == text || *text == '-' || (*end && (!shift || end[1])) || !n || n > UINT64_MAX >> (shift + 1))
		return -EINVAL;
	*ret = (uint64_t)n << shift;
	return 0;
}

int cmd_check(int argc, char **argv)
{
	static const struct option options[] = {{"repair", 0, NULL, 'r'}, {"rate", 1, NULL, 'R'}, {"json", 0, NULL, 'j'}, {"resume", 0, NULL, 's'},
		{"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}, {0}};
	struct key_source key = {0};
	char *request[8] = {(char *)"check"}, rate[40];
	uint64_t bytes;
	int n = 2, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'r': request[n++] = (char *)"--repair"; break;
		case 'j': request[n++] = (char *)"--json"; break;
		case 's': request[n++] = (char *)"--resume"; break;
		case 'R':
			if (parse_rate(optarg, &bytes))
				return usage_error("--rate %s: bytes a second, like 500K or 20M", optarg);
			snprintf(rate, sizeof rate, "--rate=%llu", (unsigned long long)bytes);
			request[n++] = rate;
			break;
		case 'p': key.passfile = optarg; break;
		case 'k': key.keyfile = optarg; break;
		case 'e': key.extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (n > 6)
		return usage_error("check: each option once");
	if (argc - optind != 1)
		return usage_error("check: one STORE or MOUNTPOINT is needed");
	if (progress_wanted())
		request[n++] = (char *)"--progress";
	request[1] = argv[optind];
	return query_client(n, request, 1, &key);
}

int cmd_scrub(int argc, char **argv)
{
	struct key_source key = {0};
	bool show = argc == 3 && !strcmp(argv[2], "status");

	if (argc != 2 && !show)
		return usage_error("scrub MOUNTPOINT [status]");
	char *request[] = {(char *)"scrub", argv[1], (char *)"status", NULL};
	return query_client(show ? 3 : 2, request, 1, &key);
}
