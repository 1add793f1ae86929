/* metrics: the counters as OpenMetrics text, or (for node_exporter's textfile collector) in the older Prometheus text format, which differs in
 * where a counter's _total stands, has no UNIT and no EOF. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

struct metrics {
	struct buf *out;
	bool classic;
	struct peer_status *peers;
	uint32_t n_peers;
};

static void put_label(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "%s=\"", name);
	for (const char *p = value; *p; p++) {
		if (*p == '\n')
			buf_printf(out, "\\n");
		else if (*p == '"' || *p == '\\')
			buf_printf(out, "\\%c", *p);
		else
			buf_put(out, p, 1);
	}
	buf_printf(out, "\"");
}

/* type: gauge, counter or summary; unit may be NULL, else the name ends in it. */
static void family(struct metrics *m, const char *name, const char *type, const char *unit, const char *help)
{
	const char *suffix = m->classic && !strcmp(type, "counter") ? "_total" : "";

	buf_printf(m->out, "# TYPE %s%s %s\n", name, suffix, type);
	if (unit && !m->classic)
		buf_printf(m->out, "# UNIT %s %s\n", name, unit);
	buf_printf(m->out, "# HELP %s%s %s\n", name, suffix, help);
}

static void put_number(struct metrics *m, const char *name, const char *type, const char *help, uint64_t value)
{
	family(m, name, type, strstr(name, "_bytes") ? "bytes" : NULL, help);
	buf_printf(m->out, "%s%s %" PRIu64 "\n", name, strcmp(type, "counter") ? "" : "_total", value);
}

static void put_info(struct metrics *m, struct volume *v)
{
	const struct header *h = volume_header(v);
	char hex[ID_HEX_LEN + 1];

	id_hex(&h->volume, hex);
	family(m, "twofold_replica", "gauge", NULL, "Always 1; its labels say which replica this is.");
	buf_printf(m->out, "twofold_replica{");
	put_label(m->out, "name", h->name);
	buf_printf(m->out, ",volume=\"%s\",cipher=\"%s\",version=\"%s\"} 1\n", hex, cipher_name(h->cipher), TWOFOLD_VERSION);
}

static void put_timers(struct metrics *m, const struct stats *s, const char *prefix, const char *name, const char *label, const char *help)
{
	char max[64], max_help[128];
	size_t skip = strlen(prefix);

	snprintf(max, sizeof max, "twofold_%s_max_seconds", label);
	snprintf(max_help, sizeof max_help, "Longest %s since the counters were set to zero.", label);
	family(m, name, "summary", "seconds", help);
	for (unsigned t = 0; t < STAT_TIMERS; t++) {
		const char *is = stats_timer_name((enum stat_timer)t);
		if (strncmp(is, prefix, skip))
			continue;
		struct stat_summary x = stats_summary(s, (enum stat_timer)t);
		buf_printf(m->out, "%s{%s=\"%s\",quantile=\"0.5\"} %.9f\n", name, label, is + skip, (double)x.p50_ns / 1e9);
		buf_printf(m->out, "%s{%s=\"%s\",quantile=\"0.99\"} %.9f\n", name, label, is + skip, (double)x.p99_ns / 1e9);
		buf_printf(m->out, "%s_sum{%s=\"%s\"} %.9f\n", name, label, is + skip, (double)x.total_ns / 1e9);
		buf_printf(m->out, "%s_count{%s=\"%s\"} %" PRIu64 "\n", name, label, is + skip, x.count);
	}
	family(m, max, "gauge", "seconds", max_help);
	for (unsigned t = 0; t < STAT_TIMERS; t++)
		if (!strncmp(stats_timer_name((enum stat_timer)t), prefix, skip))
			buf_printf(m->out, "%s{%s=\"%s\"} %.9f\n", max, label, stats_timer_name((enum stat_timer)t) + skip,
				(double)stats_summary(s, (enum stat_timer)t).max_ns / 1e9);
}

/* "bytes.object-read" is twofold_object_read_bytes, "count.conflicts" twofold_conflicts_made. */
static void put_counters(struct metrics *m, const struct stats *s)
{
	for (unsigned c = 0; c < STAT_COUNTERS; c++) {
		const char *is = stats_counter_name((enum stat_counter)c), *dot = strchr(is, '.');
		bool bytes = !strncmp(is, "bytes.", 6);
		char name[64], help[160];
		snprintf(name, sizeof name, "twofold_%s_%s", dot + 1, bytes ? "bytes" : "events");
		for (char *p = name; *p; p++)
			if (*p == '-')
				*p = '_';
		snprintf(help, sizeof help, "%s since the counters were set to zero; %s in twofold-xattr(7).", bytes ? "Bytes" : "Number", is);
		put_number(m, name, "counter", help, stats_count(s, (enum stat_counter)c));
	}
}

static void peer_line(struct metrics *m, const char *name, const struct peer_status *p, double value, const char *suffix)
{
	buf_printf(m->out, "%s%s{", name, suffix);
	put_label(m->out, "peer", p->name);
	buf_printf(m->out, ",replica=\"%016" PRIx64 "\"} %.17g\n", p->replica, value);
}

static double value_of(const struct peer_status *p, int which)
{
	switch (which) {
	case 0: return p->state == PEER_IN_SYNC;
	case 1: return peer_is_connected(p);
	case 2: return (double)p->backlog_files;
	case 3: return (double)p->backlog_bytes;
	case 4: return (double)peer_age_ns(p, env_wall_ns(&env_real)) / 1e9;
	case 5: return (double)p->lag_ns / 1e9;
	case 6: return (double)p->rate_bytes;
	case 7: return (double)p->sent_bytes;
	case 8: return (double)p->received_bytes;
	case 9: return (double)p->saved_bytes;
	case 10: return (double)p->waits;
	default: return *p->last_error != 0;
	}
}

static void put_peers(struct metrics *m)
{
	static const struct { const char *name, *type, *unit, *help; } f[] = {
		{"twofold_peer_in_sync", "gauge", NULL, "1 where the peer has all that this replica has."},
		{"twofold_peer_connected", "gauge", NULL, "1 where the peer is connected."},
		{"twofold_peer_backlog_files", "gauge", NULL, "Files of which the peer lacks something."},
		{"twofold_peer_backlog_bytes", "gauge", "bytes", "Bytes that the peer lacks, as far as known."},
		{"twofold_peer_oldest_change_age_seconds", "gauge", "seconds", "Age of the oldest change that the peer lacks."},
		{"twofold_peer_lag_seconds", "gauge", "seconds", "From commit to acknowledgement of the last batch."},
		{"twofold_peer_rate_bytes_per_second", "gauge", NULL, "Bytes a second sent and received, over the last seconds."},
		{"twofold_peer_sent_bytes", "counter", "bytes", "Bytes sent to the peer."},
		{"twofold_peer_received_bytes", "counter", "bytes", "Bytes received from the peer."},
		{"twofold_peer_delta_saved_bytes", "counter", "bytes", "Bytes that deltas left out of what was sent to the peer."},
		{"twofold_peer_fsync_waits", "gauge", NULL, "Calls of fsync that wait for the peer."},
		{"twofold_peer_error", "gauge", NULL, "1 where the last connection ended with an error; twofold status says which."},
	};

	for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
		family(m, f[i].name, f[i].type, f[i].unit, f[i].help);
		for (uint32_t k = 0; k < m->n_peers; k++)
			peer_line(m, f[i].name, &m->peers[k], value_of(&m->peers[k], (int)i), strcmp(f[i].type, "counter") ? "" : "_total");
	}
	family(m, "twofold_peer_state", "gauge", NULL, "1 for the state that the peer is in.");
	for (uint32_t k = 0; k < m->n_peers; k++)
		for (int s = PEER_DISCONNECTED; s <= PEER_REFUSED; s++) {
			buf_printf(m->out, "twofold_peer_state{");
			put_label(m->out, "peer", m->peers[k].name);
			buf_printf(m->out, ",replica=\"%016" PRIx64 "\",state=\"%s\"} %d\n", m->peers[k].replica, peer_state_name((enum peer_state)s), m->peers[k].state == (enum peer_state)s);
		}
}

static bool count_conflict(void *ctx, const char *shown, const char *of, struct stamp s, const char *replica)
{
	++*(uint64_t *)ctx;
	return true;
}

static bool count_damaged(void *ctx, const char *path)
{
	++*(uint64_t *)ctx;
	return true;
}

int query_metrics(struct query *q, int argc, char **argv)
{
	struct metrics m = {.out = q->out, .classic = argc > 2 && !strcmp(argv[2], "--classic")};
	uint64_t conflicts = 0, damaged = 0;
	int r = query_peers(q, &m.peers, &m.n_peers);

	if (!r)
		r = volume_conflicts(q->volume, count_conflict, &conflicts);
	if (!r)
		r = volume_damaged(q->volume, count_damaged, &damaged);
	if (r) {
		buf_printf(q->err, "twofold: metrics: %s\n", strerror(-r));
		free(m.peers);
		return EXIT_FAILED;
	}
	const struct stats *s = volume_stats(q->volume);
	put_info(&m, q->volume);
	put_number(&m, "twofold_served", "gauge", "1 where a process serves the store.", q->engine != NULL);
	put_number(&m, "twofold_read_only", "gauge", "1 where the store is read-only, asked for or after a failed flush.", volume_is_read_only(q->volume));
	put_number(&m, "twofold_peers", "gauge", "Peers of this replica.", m.n_peers);
	put_number(&m, "twofold_conflict_files", "gauge", "Conflict copies and displaced names that are shown.", conflicts);
	put_number(&m, "twofold_damaged_files", "gauge", "Files known to be damaged (1000: that many or more).", damaged);
	put_number(&m, "twofold_held_deletions", "gauge", "Deletions of peers that are held.", volume_held(q->volume));
	put_peers(&m);
	put_timers(&m, s, "op.", "twofold_operation_seconds", "operation", "Duration of requests of the kernel.");
	put_timers(&m, s, "stage.", "twofold_stage_seconds", "stage", "Duration of the stages that requests and replication go through.");
	put_counters(&m, s);
	if (!m.classic)
		buf_printf(q->out, "# EOF\n");
	free(m.peers);
	return EXIT_DONE;
}
