/* status: per peer state, backlog, rate, lag and last error, as text, as JSON and again and again; the exit code says how it stands. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

/* What --watch remembers: of each peer the largest backlog since it was empty, to show how far it is; and the terminal, where there is one. */
#define WATCHED_MAX 64u
#define BAR 30
struct watch {
	uint64_t peak[WATCHED_MAX], replica[WATCHED_MAX];
	uint32_t n;
	int columns, rows; /* 0: no terminal */
	bool drawn;
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

static void put_seconds(struct buf *out, uint64_t s)
{
	if (s < 120)
		buf_printf(out, "%" PRIu64 " s", s);
	else if (s < 7200)
		buf_printf(out, "%" PRIu64 " min", s / 60);
	else if (s < 172800)
		buf_printf(out, "%" PRIu64 " h", s / 3600);
	else
		buf_printf(out, "%" PRIu64 " days", s / 86400);
}

static void put_backlog(struct buf *out, const struct peer_status *s, uint64_t now_ns)
{
	uint64_t age = peer_age_ns(s, now_ns), eta;

	buf_printf(out, "      lacks %" PRIu64 " file%s, ", s->backlog_files, s->backlog_files == 1 ? "" : "s");
	put_size(out, s->backlog_bytes);
	if (age) {
		buf_printf(out, ", oldest ");
		put_seconds(out, age / 1000000000u);
	}
	if (s->rate_bytes) {
		buf_printf(out, "; ");
		put_size(out, s->rate_bytes);
		buf_printf(out, "/s");
	}
	if (s->backlog_parts && peer_eta_s(s, &eta)) {
		buf_printf(out, ", ready in ");
		put_seconds(out, eta);
	}
	buf_printf(out, "\n");
}

static void put_bar(struct buf *out, const struct peer_status *s, uint64_t peak)
{
	double done = peak ? 1 - (double)s->backlog_bytes / (double)peak : s->backlog_parts ? 0 : 1;
	int full = (int)(done * BAR);

	buf_printf(out, "      [%.*s%.*s] %3.0f %%\n", full, "##############################", BAR - full, "..............................", done * 100);
}

static void put_peer_text(struct buf *out, const struct peer_status *s, bool served, uint64_t now_ns, struct watch *w)
{
	buf_printf(out, "  %s  %s\n", s->name, served || s->state == PEER_PAUSED ? peer_state_name(s->state) : "not served");
	if (s->backlog_files || s->backlog_parts || s->rate_bytes)
		put_backlog(out, s, now_ns);
	if (w)
		put_bar(out, s, peak_of(w, s));
	buf_printf(out, "      sent ");
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

static void put_peer_json(struct buf *out, const struct peer_status *s, uint64_t now_ns)
{
	uint64_t eta;

	buf_printf(out, "{\"name\":");
	json_put_string(out, s->name);
	buf_printf(out, ",\"replica\":\"%016" PRIx64 "\",\"address\":", s->replica);
	json_put_string(out, s->address);
	buf_printf(out, ",\"state\":\"%s\",\"connected\":%s,\"connected_ns\":%" PRIu64 ",\"backlog_parts\":%" PRIu64 ",\"backlog_files\":%" PRIu64
			",\"backlog_bytes\":%" PRIu64 ",\"oldest_ns\":%" PRIu64 ",\"oldest_age_ns\":%" PRIu64 ",\"lag_ns\":%" PRIu64 ",\"rate_bytes\":%" PRIu64,
		peer_state_name(s->state), peer_is_connected(s) ? "true" : "false", s->connected_ns, s->backlog_parts, s->backlog_files, s->backlog_bytes,
		s->oldest_ns, peer_age_ns(s, now_ns), s->lag_ns, s->rate_bytes);
	if (peer_eta_s(s, &eta))
		buf_printf(out, ",\"eta_s\":%" PRIu64, eta);
	else
		buf_printf(out, ",\"eta_s\":null");
	buf_printf(out, ",\"sent_bytes\":%" PRIu64 ",\"received_bytes\":%" PRIu64 ",\"saved_bytes\":%" PRIu64 ",\"fsync_waits\":%" PRIu64
			",\"fsync_waits_ns\":%" PRIu64 ",\"last_error\":", s->sent_bytes, s->received_bytes, s->saved_bytes, s->waits, s->waits_ns);
	json_put_string(out, s->last_error);
	buf_printf(out, "}");
}

/* All that is shown. */
struct status {
	struct peer_status *peers; /* owned */
	uint32_t n, held;
	struct root root;
	struct scrub_status scrub;
	struct heal_status heal;
};

static int gather(struct query *q, struct status *ret)
{
	struct status s = {.held = volume_held(q->volume)};
	int r = query_peers(q, &s.peers, &s.n);

	if (!r)
		r = volume_live_root(q->volume, &s.root);
	if (r) {
		free(s.peers);
		return r;
	}
	volume_scrub_status(q->volume, &s.scrub);
	volume_heal_status(q->volume, &s.heal);
	*ret = s;
	return 0;
}

/* As twofold(1) says; the worst counts. */
static int code_of(const struct status *s)
{
	int code = s->held ? EXIT_FAILED : EXIT_DONE;

	if (s->heal.waiting)
		return EXIT_STORE;
	for (uint32_t i = 0; i < s->n; i++) {
		if (!peer_is_connected(&s->peers[i]) && s->peers[i].state != PEER_PAUSED)
			return EXIT_NETWORK;
		if (s->peers[i].state != PEER_IN_SYNC)
			code = EXIT_FAILED;
	}
	return code;
}

static void put_json(struct query *q, struct buf *out, const struct status *s)
{
	const struct header *h = volume_header(q->volume);
	uint64_t now = env_wall_ns(&env_real);
	char id[ID_HEX_LEN + 1];

	id_hex(&h->volume, id);
	buf_printf(out, "{\"volume\":\"%s\",\"replica\":\"%016" PRIx64 "\",\"name\":\"%s\",\"cipher\":\"%s\",\"store\":", id, h->replica, h->name,
		cipher_name(h->cipher));
	json_put_string(out, volume_path(q->volume));
	buf_printf(out, ",\"read_only\":%s,\"root\":\"", volume_is_read_only(q->volume) ? "true" : "false");
	for (int i = 0; i < ROOT_LEN; i++)
		buf_printf(out, "%02x", s->root.b[i]);
	buf_printf(out, "\",\"in_sync\":%s,\"served\":%s,\"held_deletions\":%" PRIu32 ",\"peers\":[", code_of(s) ? "false" : "true", q->engine ? "true" : "false", s->held);
	for (uint32_t i = 0; i < s->n; i++) {
		buf_printf(out, i ? "," : "");
		put_peer_json(out, &s->peers[i], now);
	}
	buf_printf(out, "],\"healed_pages\":%" PRIu64 ",\"damaged_files\":%" PRIu64 ",\"scrub\":{\"running\":%s,\"ended\":%" PRIu64 ",\"found\":%" PRIu64
			",\"healed\":%" PRIu64 "}}\n", s->heal.healed_pages, s->heal.waiting, s->scrub.running ? "true" : "false", s->scrub.ended_s, s->scrub.found,
		s->scrub.healed);
}

static void put_text(struct query *q, struct buf *out, const struct status *s, struct watch *w)
{
	const struct header *h = volume_header(q->volume);
	uint64_t now = env_wall_ns(&env_real);
	char id[ID_HEX_LEN + 1];

	id_hex(&h->volume, id);
	buf_printf(out, "%s\n  replica %s%s%s\n  volume %s, cipher %s\n", volume_path(q->volume), h->name, volume_is_read_only(q->volume) ? ", READ-ONLY" : "",
		q->engine ? "" : ", not served now", id, cipher_name(h->cipher));
	if (s->held)
		buf_printf(out, "  %" PRIu32 " deletions from peers are held: `twofold deletions %s accept` or `undo`\n", s->held, volume_path(q->volume));
	for (uint32_t i = 0; i < s->n; i++)
		put_peer_text(out, &s->peers[i], q->engine, now, w);
	if (!s->n)
		buf_printf(out, "  no peers; `twofold invite` makes one\n");
	if (s->heal.waiting)
		buf_printf(out, "  %" PRIu64 " damaged files wait for a peer that can heal them\n", s->heal.waiting);
	if (q->engine)
		query_put_scrub(out, &s->scrub);
}

/* The text over what stands on the terminal, nothing of it wider or longer than that. */
static void put_screen(struct buf *out, const struct buf *text, struct watch *w)
{
	const char *p = (const char *)text->p, *end = p + text->len;

	buf_printf(out, w->drawn ? "\033[H" : "\033[H\033[2J");
	w->drawn = true;
	for (int row = 1; p < end && row < w->rows; row++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		int columns = 0;
		for (eol = eol ? eol : end; p < eol; p++) {
			columns += ((uint8_t)*p & 0xc0) != 0x80;
			if (columns <= w->columns)
				buf_put(out, p, 1);
		}
		buf_printf(out, "\033[K\n");
		p = eol + 1;
	}
	buf_printf(out, "\033[J");
}

/* w: of --watch, or NULL. */
static int put_status(struct query *q, bool json, struct watch *w)
{
	struct status s;
	struct buf text = {0};
	int r = gather(q, &s);

	if (r) {
		buf_printf(q->err, "twofold: status: %s\n", strerror(-r));
		return exit_for(r);
	}
	if (json)
		put_json(q, q->out, &s);
	else {
		put_text(q, &text, &s, w);
		if (w && w->columns)
			put_screen(q->out, &text, w);
		else
			buf_put(q->out, text.p, text.len);
	}
	r = code_of(&s);
	buf_fini(&text);
	free(s.peers);
	return r;
}

int query_status(struct query *q, int argc, char **argv)
{
	bool json = false, watch = false;
	struct watch seen = {.n = 0};
	int code;

	for (int i = 2; i < argc; i++) {
		json |= !strcmp(argv[i], "--json");
		watch |= !strcmp(argv[i], "--watch");
		if (sscanf(argv[i], "--terminal=%dx%d", &seen.columns, &seen.rows) == 2)
			continue;
	}
	for (;;) {
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
	char *request[6] = {(char *)"status"}, terminal[48];
	struct winsize size = {0};
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
	/* whoever runs the command in the daemon does not see our terminal */
	if (watch && !json && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size)) {
		snprintf(terminal, sizeof terminal, "--terminal=%dx%d", size.ws_col ? size.ws_col : 80, size.ws_row ? size.ws_row : 24);
		request[n++] = terminal;
	}
	if (argc == optind)
		return status_of_all(n, request, &key);
	request[1] = argv[optind];
	return query_client(n, request, 1, &key);
}
