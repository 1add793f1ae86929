/* log: the journal, readable. conflicts: what is shown under another name than it was given. */
#include "cli.h"

#include <errno.h>
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

/* keep PATH, restore PATH: path below the root of the volume. */
static int settle(struct query *q, const char *how, const char *path)
{
	uint32_t removed = 0;
	bool keep = !strcmp(how, "keep");
	int r = keep ? volume_conflict_keep(q->volume, path, &removed) : volume_conflict_restore(q->volume, path);

	if (r)
		buf_printf(q->err, "twofold: conflicts: %s: %s\n", path, r == -ENOENT ? "no conflict has this path; `twofold conflicts` lists them" : strerror(-r));
	else if (keep)
		buf_printf(q->out, "kept; %" PRIu32 " other version%s removed\n", removed, removed == 1 ? "" : "s");
	else
		buf_printf(q->out, "restored; the version that had the name stands where the copy was\n");
	return r == -ENOENT ? EXIT_FAILED : exit_for(r);
}

int query_conflicts(struct query *q, int argc, char **argv)
{
	if (argc == 4)
		return settle(q, argv[2], argv[3]);
	int r = volume_conflicts(q->volume, print_conflict, q);

	if (r)
		buf_printf(q->err, "twofold: conflicts: %s\n", strerror(-r));
	return exit_for(r);
}

int query_deletions(struct query *q, int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "show";
	uint32_t n = volume_held(q->volume);

	if (!strcmp(what, "show")) {
		buf_printf(q->out, n ? "%" PRIu32 " deletions from peers are held: their names are shown as if nothing had happened\n" : "no deletions are held\n", n);
		return EXIT_DONE;
	}
	if (strcmp(what, "accept") && strcmp(what, "undo")) {
		buf_printf(q->err, "twofold: deletions: show, accept or undo\n");
		return EXIT_USAGE;
	}
	int r = volume_held_end(q->volume, !strcmp(what, "undo"));
	if (r)
		buf_printf(q->err, "twofold: deletions: %s\n", r == -ENOENT ? "none are held" : strerror(-r));
	else
		buf_printf(q->out, "%" PRIu32 " deletions %s; replicas that are not connected follow when they are\n", n, strcmp(what, "undo") ? "carried out" : "undone");
	return r == -ENOENT ? EXIT_FAILED : exit_for(r);
}

int cmd_log(int argc, char **argv)
{
	static const struct option options[] = {{"follow", 0, NULL, 'f'}, {"json", 0, NULL, 'j'}, {"passfile", 1, NULL, 'p'},
		{"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}, {0}};
	struct key_source key = {0};
	char *request[5] = {(char *)"log", NULL, NULL, NULL, NULL};
	int n = 2, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'f':
		case 'j':
			if (n < 4)
				request[n++] = (char *)(c == 'f' ? "--follow" : "--json");
			break;
		case 'p': key.passfile = optarg; break;
		case 'k': key.keyfile = optarg; break;
		case 'e': key.extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (argc - optind != 1)
		return usage_error("log: one STORE or MOUNTPOINT is needed");
	request[1] = argv[optind];
	return query_client(n, request, 1, &key);
}


/* Key options, STORE or MOUNTPOINT, and up to two words after it: sent as `name` and these. */
static int simple_client(int argc, char **argv, const char *name, int *ret_n, char **request, struct key_source *key)
{
	static const struct option options[] = {{"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}, {0}};
	int n = 0, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'p': key->passfile = optarg; break;
		case 'k': key->keyfile = optarg; break;
		case 'e': key->extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (argc - optind < 1 || argc - optind > 3)
		return usage_error("%s: one STORE or MOUNTPOINT is needed, and what to do", name);
	request[n++] = (char *)name;
	while (optind < argc)
		request[n++] = argv[optind++];
	*ret_n = n;
	return 0;
}

int cmd_conflicts(int argc, char **argv)
{
	struct key_source key = {0};
	char *request[5] = {NULL}, root[4096];
	int n = 0, r = simple_client(argc, argv, "conflicts", &n, request, &key);

	if (r)
		return r;
	if (n > 2 && strcmp(request[2], "list") && strcmp(request[2], "keep") && strcmp(request[2], "restore"))
		return usage_error("conflicts: list, keep PATH or restore PATH");
	if (n > 2 && (!strcmp(request[2], "list") ? n != 3 : n != 4))
		return usage_error("conflicts: %s", n == 3 ? "a PATH is needed" : "list takes no PATH");
	if (n == 4) {
		/* as a program sees it, or below the root */
		size_t len = (size_t)snprintf(root, sizeof root, "%s/", request[1]);
		while (len > 1 && len < sizeof root && root[len - 2] == '/')
			root[--len] = 0;
		if (len < sizeof root && !strncmp(request[3], root, len))
			request[3] += len;
	}
	return query_client(n == 3 ? 2 : n, request, 1, &key);
}

int cmd_deletions(int argc, char **argv)
{
	struct key_source key = {0};
	char *request[5] = {NULL};
	int n = 0, r = simple_client(argc, argv, "deletions", &n, request, &key);

	if (r)
		return r;
	if (n > 3)
		return usage_error("deletions: show, accept or undo");
	return query_client(n, request, 1, &key);
}
