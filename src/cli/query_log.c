/* log: the journal, readable. conflicts: what is shown under another name than it was given. */
#include "cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

static const char *kind_name(uint8_t kind)
{
	static const char *const names[] = {"?", "place", "deletion", "content", "attributes", "times", "member"};

	return kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

static void put_time(struct buf *out, uint64_t ns)
{
	time_t t = (time_t)(ns / 1000000000u);
	struct tm tm;
	char text[32];

	gmtime_r(&t, &tm);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(out, "%s.%03uZ", text, (unsigned)(ns / 1000000u % 1000u));
}

/* A name for a terminal: control characters and backslashes as \\ooo, so that no file name can forge a line or send an escape sequence. */
static void put_name(struct buf *out, const char *name)
{
	for (const uint8_t *p = (const uint8_t *)name; *p; p++)
		if (*p < 0x20 || *p == 0x7f || *p == '\\')
			buf_printf(out, "\\%03o", *p);
		else
			buf_put_u8(out, *p);
}

struct log_run {
	struct query *q;
	bool json;
	uint64_t last_seq;
};

static bool print_entry(void *ctx, const struct journal_entry *e)
{
	struct log_run *l = ctx;
	struct buf *out = l->q->out;
	char id[ID_HEX_LEN + 1];

	id_hex(&e->id, id);
	l->last_seq = e->seq;
	if (l->json) {
		buf_printf(out, "{\"seq\":%" PRIu64 ",\"time\":\"", e->seq);
		put_time(out, e->stamp.clock_ns);
		buf_printf(out, "\",\"replica\":\"%016" PRIx64 "\",\"counter\":%" PRIu64 ",\"kind\":\"%s\",\"id\":\"%s\",\"path\":", e->stamp.dot.replica,
			e->stamp.dot.counter, kind_name(e->kind), id);
		json_put_string(out, e->path);
		buf_printf(out, ",\"detail\":");
		json_put_string(out, e->detail);
		buf_printf(out, "}\n");
	} else {
		put_time(out, e->stamp.clock_ns);
		buf_printf(out, " %016" PRIx64 ":%" PRIu64 " %-10s ", e->stamp.dot.replica, e->stamp.dot.counter, kind_name(e->kind));
		put_name(out, e->path ? e->path : id);
		if (e->detail && *e->detail) {
			buf_printf(out, "  ");
			put_name(out, e->detail);
		}
		buf_printf(out, "\n");
	}
	return out->len < 65536 || l->q->flush(l->q);
}

int query_log(struct query *q, int argc, char **argv)
{
	struct log_run l = {.q = q};
	bool follow = false;

	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--follow"))
			follow = true;
		else if (!strcmp(argv[i], "--json"))
			l.json = true;
		else
			return EXIT_USAGE;
	}
	do {
		int r = volume_log(q->volume, l.last_seq, print_entry, &l);
		if (r) {
			buf_printf(q->err, "twofold: log: %s\n", strerror(-r));
			return exit_for(r);
		}
		if (!q->flush(q))
			break;
		if (follow)
			usleep(200000);
	} while (follow && !*q->stop);
	return EXIT_DONE;
}

static bool print_conflict(void *ctx, const char *shown, const char *of, struct stamp s, const char *replica_name)
{
	struct query *q = ctx;

	put_name(q->out, shown);
	buf_printf(q->out, "\tof ");
	put_name(q->out, of ? of : "?");
	buf_printf(q->out, "\tby %s at ", replica_name);
	put_time(q->out, s.clock_ns);
	buf_printf(q->out, "\n");
	return q->flush(q);
}

int query_conflicts(struct query *q, int argc, char **argv)
{
	int r = volume_conflicts(q->volume, print_conflict, q);

	if (r)
		buf_printf(q->err, "twofold: conflicts: %s\n", strerror(-r));
	return exit_for(r);
}

static int run_client(int argc, char **argv, const char *name, bool with_follow)
{
	static const struct option options[] = {{"follow", 0, NULL, 'f'}, {"json", 0, NULL, 'j'}, {"passfile", 1, NULL, 'p'},
		{"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}, {0}};
	struct key_source key = {0};
	char *request[5] = {(char *)name, NULL, NULL, NULL, NULL};
	int n = 2, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'f':
		case 'j':
			if (!with_follow)
				return usage_error("%s: only STORE or MOUNTPOINT", name);
			if (n < 4)
				request[n++] = (char *)(c == 'f' ? "--follow" : "--json");
			break;
		case 'p': key.passfile = optarg; break;
		case 'k': key.keyfile = optarg; break;
		case 'e': key.extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (argc - optind != 1)
		return usage_error("%s: one STORE or MOUNTPOINT is needed", name);
	request[1] = argv[optind];
	return query_client(n, request, 1, &key);
}

int cmd_log(int argc, char **argv) { return run_client(argc, argv, "log", true); }
int cmd_conflicts(int argc, char **argv) { return run_client(argc, argv, "conflicts", false); }
