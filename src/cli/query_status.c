/* status: per peer state, backlog, rate, lag and last error; exit 0 only where every peer is in sync. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "json.h"
#include "scrub.h"

void put_size(struct buf *out, uint64_t n)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double x = (double)n;
	int u = 0;

	while (x >= 1024 && u < 4) {
		x /= 1024;
		u++;
	}
	buf_printf(out, u ? "%.1f %s" : "%.0f %s", x, unit[u]);
}

/* What --watch remembers of each peer, to show how far it is: the largest backlog since it was empty. */
#define WATCHED_MAX 64u
struct watch {
	uint64_t peak[WATCHED_MAX], replica[WATCHED_MAX];
	uint32_t n;
};

static uint64_t peak_of(struct watch *w, const struct peer_status *s)
{
	uint32_t i = 0;

	while (i < w->n && w->replica[i] != s->replica)
		i++;
	if (i == WATCHED_MAX)
		return s->backlog_bytes;
	if (i == w->n) {
		w->replica[w->n++] = s->replica;
		w->peak[i] = 0;
	}
	if (!s->backlog_bytes || s->backlog_bytes > w->peak[i])
		w->peak[i] = s->backlog_bytes;
	return w->peak[i];
}

static void put_rate(struct buf *out, const struct peer_status *s)
{
	if (!s->rate_bytes)
		return;
	buf_printf(out, ", ");
	put_size(out, s->rate_bytes);
	buf_printf(out, "/s");
	if (s->backlog_bytes)
		buf_printf(out, ", ready in %" PRIu64 " s", s->backlog_bytes / s->rate_bytes + 1);
}

/* Within 80 columns. */
static void put_bar(struct buf *out, const struct peer_status *s, uint64_t peak)
{
	double done = peak ? 1 - (double)s->backlog_bytes / (double)peak : s->backlog_parts ? 0 : 1;
	int full = (int)(done * 30);

	buf_printf(out, "\n      [%.*s%.*s] %3.0f %%", full, "##############################", 30 - full, "..............................", done * 100);
	put_rate(out, s);
}

static void put_peer_text(struct buf *out, const struct peer_status *s, uint64_t now_ns, struct watch *w)
{
	buf_printf(out, "  %-20s %-14s", s->name, peer_state_name(s->state));
	if (s->backlog_files || s->backlog_parts) {
		buf_printf(out, " lacks %" PRIu64 " files, ", s->backlog_files);
		put_size(out, s->backlog_bytes);
		if (s->oldest_ns && s->oldest_ns < now_ns)
			buf_printf(out, ", oldest %" PRIu64 " s", (now_ns - s->oldest_ns) / 1000000000u);
	}
	if (w)
		put_bar(out, s, peak_of(w, s));
	else
		put_rate(out, s);
	buf_printf(out, "\n      sent ");
	put_size(out, s->sent_bytes);
	buf_printf(out, ", received ");
	put_size(out, s->received_bytes);
	buf_printf(out, ", saved ");
	put_size(out, s->saved_bytes);
	buf_printf(out, ", lag %.1f ms\n", (double)s->lag_ns / 1e6);
	if (s->waits)
		buf_printf(out, "      holds up %" PRIu64 " fsync, the oldest for %" PRIu64 " s\n", s->waits, s->waits_ns / 1000000000u);
	if (*s->last_error)
		buf_printf(out, "      last error: %s\n", s->last_error);
}

static void put_peer_json(struct buf *out, const struct peer_status *s)
{
	buf_printf(out, "{\"name\":");
	json_put_string(out, s->name);
	buf_printf(out, ",\"replica\":\"%016" PRIx64 "\",\"address\":", s->replica);
	json_put_string(out, s->address);
	buf_printf(out, ",\"state\":\"%s\",\"backlog_parts\":%" PRIu64 ",\"backlog_files\":%" PRIu64 ",\"backlog_bytes\":%" PRIu64 ",\"oldest_ns\":%" PRIu64
			",\"lag_ns\":%" PRIu64 ",\"rate_bytes\":%" PRIu64 ",\"sent_bytes\":%" PRIu64 ",\"received_bytes\":%" PRIu64 ",\"saved_bytes\":%" PRIu64
			",\"fsync_waits\":%" PRIu64 ",\"fsync_waits_ns\":%" PRIu64 ",\"last_error\":",
		peer_state_name(s->state), s->backlog_parts, s->backlog_files, s->backlog_bytes, s->oldest_ns, s->lag_ns, s->rate_bytes, s->sent_bytes,
		s->received_bytes, s->saved_bytes, s->waits, s->waits_ns);
	json_put_string(out, s->last_error);
	buf_printf(out, "}");
}

/* w: of --watch, or NULL. */
static int put_status(struct query *q, bool json, struct watch *w)
{
	const struct header *h = volume_header(q->volume);
	struct peer_status *s;
	struct root root = {0};
	char id[ID_HEX_LEN + 1];
	uint32_t n, held = volume_held(q->volume);
	bool all = !held;
	int r = volume_peer_statuses(q->volume, &s, &n);

	if (!r)
		r = volume_live_root(q->volume, &root);
	if (r) {
		buf_printf(q->err, "twofold: status: %s\n", strerror(-r));
		return EXIT_FAILED;
	}
	id_hex(&h->volume, id);
	if (json) {
		buf_printf(q->out, "{\"volume\":\"%s\",\"replica\":\"%016" PRIx64 "\",\"name\":\"%s\",\"cipher\":\"%s\",\"read_only\":%s,\"root\":\"", id, h->replica,
			h->name, cipher_name(h->cipher), volume_is_read_only(q->volume) ? "true" : "false");
		for (int i = 0; i < ROOT_LEN; i++)
			buf_printf(q->out, "%02x", root.b[i]);
		buf_printf(q->out, "\",\"served\":%s,\"held_deletions\":%" PRIu32 ",\"peers\":[", q->engine ? "true" : "false", held);
	} else
		buf_printf(q->out, "%s: replica %s of volume %s, cipher %s%s%s\n", volume_path(q->volume), h->name, id, cipher_name(h->cipher),
			volume_is_read_only(q->volume) ? ", READ-ONLY" : "", q->engine ? "" : ", not served now");
	if (!json && held)
		buf_printf(q->out, "  %" PRIu32 " deletions from peers are held: `twofold deletions %s accept` or `undo`\n", held, volume_path(q->volume));
	for (uint32_t i = 0; i < n; i++) {
		if (json) {
			buf_printf(q->out, i ? "," : "");
			put_peer_json(q->out, &s[i]);
		} else
			put_peer_text(q->out, &s[i], env_wall_ns(&env_real), w);
		all &= s[i].state == PEER_IN_SYNC;
	}
	struct scrub_status scrub;
	volume_scrub_status(q->volume, &scrub);
	struct heal_status heal;
	volume_heal_status(q->volume, &heal);
	if (json)
		buf_printf(q->out, "],\"healed_pages\":%" PRIu64 ",\"damaged_files\":%" PRIu64 ",\"scrub\":{\"running\":%s,\"ended\":%" PRIu64 ",\"found\":%" PRIu64
			",\"healed\":%" PRIu64 "}}\n", heal.healed_pages, heal.waiting, scrub.running ? "true" : "false", scrub.ended_s, scrub.found, scrub.healed);
	else if (!n)
		buf_printf(q->out, "  no peers; `twofold invite` makes one\n");
	if (!json && heal.waiting)
		buf_printf(q->out, "  %" PRIu64 " damaged files wait for a peer that can heal them\n", heal.waiting);
	if (!json && q->engine)
		query_put_scrub(q, &scrub);
	free(s);
	return all ? EXIT_DONE : EXIT_FAILED;
}

int query_status(struct query *q, int argc, char **argv)
{
	bool json = false, watch = false;
	struct watch seen = {.n = 0};
	int code;

	for (int i = 2; i < argc; i++) {
		json |= !strcmp(argv[i], "--json");
		watch |= !strcmp(argv[i], "--watch");
	}
	for (;;) {
		if (watch && !json)
			buf_printf(q->out, "\033[H\033[2J");
		code = put_status(q, json, watch ? &seen : NULL);
		if (!watch || *q->stop || !q->flush(q))
			return code;
		for (int i = 0; i < 10 && !*q->stop; i++)
			usleep(100000);
	}
}

/* Every twofold mount of this machine. */
static int status_of_all(int n, char **request, const struct key_source *key)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	int code = EXIT_DONE, seen = 0;

	if (!f)
		return complain(-errno, "/proc/self/mounts");
	while ((m = getmntent(f)))
		if (!strcmp(m->mnt_type, "fuse.twofold")) {
			int one;
			request[1] = m->mnt_dir;
			one = query_client(n, request, 1, key);
			if (one > code)
				code = one;
			seen++;
		}
	endmntent(f);
	if (!seen)
		fprintf(stderr, "twofold: nothing is mounted\n");
	return seen ? code : EXIT_FAILED;
}

int cmd_status(int argc, char **argv)
{
	static const struct option options[] = {{"watch", 0, NULL, 'w'}, {"json", 0, NULL, 'j'}, {"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'},
		{"extpass", 1, NULL, 'e'}, {0}};
	struct key_source key = {0};
	char *request[5] = {(char *)"status", NULL, NULL, NULL, NULL};
	bool watch = false, json = false;
	int n = 2, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'w': watch = true; break;
		case 'j': json = true; break;
		case 'p': key.passfile = optarg; break;
		case 'k': key.keyfile = optarg; break;
		case 'e': key.extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (argc - optind > 1 || (argc == optind && watch))
		return usage_error("status: one STORE or MOUNTPOINT is needed");
	if (watch)
		request[n++] = (char *)"--watch";
	if (json)
		request[n++] = (char *)"--json";
	if (argc == optind)
		return status_of_all(n, request, &key);
	request[1] = argv[optind];
	return query_client(n, request, 1, &key);
}
