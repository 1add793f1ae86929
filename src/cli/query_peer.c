/* peer, invite, sync. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "invite.h"
#include "progress.h"
#include "wait.h"

/* "90", "90s", "5m", "1h", "2d" in ms. */
static int parse_duration(const char *text, uint64_t *ret_ms)
{
	char *end;
	double n = strtod(text, &end), unit = 1000;

	if (end == text || n <= 0 || n > 1e9)
		return -EINVAL;
	switch (*end) {
	case 0: break;
	case 's': unit = 1000; break;
	case 'm': unit = end[1] == 's' ? 1 : 60000; end += end[1] == 's'; break;
	case 'h': unit = 3600000; break;
	case 'd': unit = 86400000; break;
	default: return -EINVAL;
	}
	if (*end && end[1])
		return -EINVAL;
	*ret_ms = (uint64_t)(n * unit);
	return *ret_ms ? 0 : -EINVAL;
}

int query_invite(struct query *q, int argc, char **argv)
{
	const char *address = argc > 2 ? argv[2] : "";
	uint64_t ms = 0;
	char *token;

	if (argc != 4 || parse_duration(argv[3], &ms))
		return EXIT_USAGE;
	int r = invite_create(q->volume, address, ms * 1000000, &token);
	if (r) {
		buf_printf(q->err, "twofold: invite: %s: %s\n", address, r == -EINVAL ? "not HOST:PORT" : strerror(-r));
		return r == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	}
	buf_printf(q->out, "%s\n", token);
	free(token);
	if (!q->engine || !engine_port(q->engine))
		buf_printf(q->err, "twofold: this store is not listening now: mount or serve it with -o listen= before the token is used\n");
	return EXIT_DONE;
}

int query_peers(struct query *q, struct peer_status **ret, uint32_t *ret_n)
{
	return q->engine ? volume_peer_statuses(q->volume, ret, ret_n) : peering_statuses(q->volume, ret, ret_n);
}

static int peer_list(struct query *q)
{
	struct peer_status *s;
	uint32_t n;
	int r = query_peers(q, &s, &n);

	if (r) {
		buf_printf(q->err, "twofold: peer list: %s\n", strerror(-r));
		return EXIT_FAILED;
	}
	for (uint32_t i = 0; i < n; i++)
		buf_printf(q->out, "%s\t%016" PRIx64 "\t%s\t%s%s%s\n", s[i].name, s[i].replica,
			q->engine || s[i].state == PEER_PAUSED ? peer_state_name(s[i].state) : "not served", *s[i].address ? s[i].address : "-",
			*s[i].last_error ? "\t" : "", s[i].last_error);
	free(s);
	return EXIT_DONE;
}

int query_peer(struct query *q, int argc, char **argv)
{
	uint64_t replica = 0;
	int r;

	if (argc == 3 && !strcmp(argv[1], "list"))
		return peer_list(q);
	if (argc != 4)
		return EXIT_USAGE;
	r = peering_find(q->volume, argv[3], &replica);
	if (!r && !strcmp(argv[1], "remove"))
		r = q->engine ? engine_peer_remove(q->engine, replica) : peering_remove(q->volume, replica);
	else if (!r) {
		bool pause = !strcmp(argv[1], "pause");
		r = q->engine ? engine_peer_pause(q->engine, replica, pause) : peering_pause(q->volume, replica, pause);
	}
	if (r) {
		buf_printf(q->err, "twofold: peer %s %s: %s\n", argv[1], argv[3],
			r == -ENOENT ? "no peer of this name or id" : r == -ENOTUNIQ ? "several peers have this name; give the id" : strerror(-r));
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

/* What sync shows while it waits. */
struct sync_wait {
	struct query *q;
	bool progress;
	uint64_t started_ns, most_bytes; /* most: the largest backlog seen */
};

static void show_backlog(struct sync_wait *w)
{
	struct peer_status *s;
	uint64_t files = 0, bytes = 0;
	uint32_t n, lacking = 0;
	char left[PROGRESS_LEFT_MAX];
	struct buf size = {0};

	if (volume_peer_statuses(w->q->volume, &s, &n))
		return;
	for (uint32_t i = 0; i < n; i++) {
		if (!s[i].connected_ns || !s[i].backlog_parts)
			continue;
		lacking++;
		files += s[i].backlog_files;
		bytes += s[i].backlog_bytes;
	}
	free(s);
	w->most_bytes = bytes > w->most_bytes ? bytes : w->most_bytes;
	double part = w->most_bytes ? 1 - (double)bytes / (double)w->most_bytes : 0;
	put_size(&size, bytes);
	buf_put_u8(&size, 0);
	if (!lacking || size.err)
		progress_put(w->q->err, "waiting for the peers' answer");
	else
		progress_put(w->q->err, "%u peer%s lack%s %llu files, %s; %.0f %%%s", lacking, lacking == 1 ? "" : "s", lacking == 1 ? "s" : "",
			(unsigned long long)files, (char *)size.p, part * 100, progress_left(w->started_ns, part, left));
	buf_fini(&size);
}

/* False also where whoever asked is gone: nobody else would end this wait before its time. */
static bool on_sync_tick(void *ctx)
{
	struct sync_wait *w = ctx;

	if (*w->q->stop)
		return false;
	if (w->progress)
		show_backlog(w);
	return w->q->flush(w->q);
}

int query_sync(struct query *q, int argc, char **argv)
{
	struct sync_wait w = {.q = q, .progress = argc == 4 && !strcmp(argv[3], "--progress"), .started_ns = mono_ns()};
	uint64_t ms = 60000;

	if (argc < 3 || parse_duration(argv[2], &ms) || ms > INT32_MAX)
		return EXIT_USAGE;
	if (!q->engine) {
		buf_printf(q->err, "twofold: sync: this replica is %s\n", volume_is_read_only(q->volume) ? "read-only: it exchanges nothing with peers" : "not served");
		return EXIT_FAILED;
	}
	int r = engine_wait_in_sync(q->engine, (int)ms, on_sync_tick, &w);
	if (w.progress)
		progress_wipe(q->err);
	if (r)
		buf_printf(q->err, "twofold: sync: %s\n", r == -ETIMEDOUT ? "time is up, and a peer still lacks changes; see twofold status" :
			r == -ENOTCONN ? "no peer is connected" : r == -ECANCELED ? "the replica is being unmounted or stopped" : strerror(-r));
	return exit_for(r == -ENOTCONN ? -ETIMEDOUT : r);
}

/* ---- the client halves ---- */

static int with_key_option(int c, struct key_source *key)
{
	if (c == 'p')
		key->passfile = optarg;
	else if (c == 'k')
		key->keyfile = optarg;
	else if (c == 'e')
		key->extpass = optarg;
	else
		return EXIT_USAGE;
	return 0;
}

#define KEY_OPTIONS {"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}

int cmd_invite(int argc, char **argv)
{
	static const struct option options[] = {{"address", 1, NULL, 'a'}, {"expires", 1, NULL, 'x'}, KEY_OPTIONS, {0}};
	struct key_source key = {0};
	char *address = NULL, *expires = (char *)"1h";
	uint64_t ms;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (c == 'a')
			address = optarg;
		else if (c == 'x')
			expires = optarg;
		else if (with_key_option(c, &key))
			return EXIT_USAGE;
	if (argc - optind != 1 || !address)
		return usage_error("invite: one STORE or MOUNTPOINT and --address HOST:PORT (where the new member reaches this one) are needed");
	if (parse_duration(expires, &ms))
		return usage_error("--expires %s: a time like 30m, 1h, 2d", expires);
	char *request[] = {(char *)"invite", argv[optind], address, expires, NULL};
	return query_client(4, request, 1, &key);
}

int cmd_peer(int argc, char **argv)
{
	static const struct option options[] = {KEY_OPTIONS, {0}};
	struct key_source key = {0};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (with_key_option(c, &key))
			return EXIT_USAGE;
	int n = argc - optind;
	char **a = argv + optind;
	bool list = n == 2 && !strcmp(a[0], "list");
	bool act = n == 3 && (!strcmp(a[0], "remove") || !strcmp(a[0], "pause") || !strcmp(a[0], "resume"));
	if (!list && !act)
		return usage_error("peer list STORE|MOUNTPOINT, or peer remove|pause|resume STORE|MOUNTPOINT PEER");
	char *request[] = {(char *)"peer", a[0], a[1], act ? a[2] : NULL, NULL};
	return query_client(list ? 3 : 4, request, 2, &key);
}

int cmd_sync(int argc, char **argv)
{
	static const struct option options[] = {{"timeout", 1, NULL, 't'}, {0}};
	struct key_source key = {0};
	char *timeout = (char *)"60s";
	uint64_t ms;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (c == 't')
			timeout = optarg;
		else
			return EXIT_USAGE;
	if (argc - optind != 1)
		return usage_error("sync: one MOUNTPOINT is needed");
	if (parse_duration(timeout, &ms))
		return usage_error("--timeout %s: a time like 500ms, 60s, 5m", timeout);
	char *request[] = {(char *)"sync", argv[optind], timeout, (char *)"--progress", NULL};
	return query_client(progress_wanted() ? 4 : 3, request, 1, &key);
}
