#include "virtual_xattr.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "cleanup.h"

struct each {
	virtual_fn *fn;
	void *ctx;
	bool stopped;
};

static void tell(struct each *e, const char *name, const char *value)
{
	if (!e->stopped && !e->fn(e->ctx, name, value))
		e->stopped = true;
}

static void each_stat(struct each *e, const struct stats *s)
{
	char value[160];
	for (unsigned t = 0; s && t < STAT_TIMERS; t++) {
		struct stat_summary x = stats_summary(s, (enum stat_timer)t);
		snprintf(value, sizeof(value), "count=%llu total_us=%llu p50_us=%.1f p99_us=%.1f max_us=%.1f",
			(unsigned long long)x.count, (unsigned long long)(x.total_ns / 1000), (double)x.p50_ns / 1e3,
			(double)x.p99_ns / 1e3, (double)x.max_ns / 1e3);
		tell(e, stats_timer_name((enum stat_timer)t), value);
	}
	for (unsigned c = 0; s && c < STAT_COUNTERS; c++) {
		snprintf(value, sizeof(value), "%llu", (unsigned long long)stats_count(s, (enum stat_counter)c));
		tell(e, stats_counter_name((enum stat_counter)c), value);
	}
}

static void tell_peer(struct each *e, const struct peer_status *p, const char *field, const char *value)
{
	char name[80];
	snprintf(name, sizeof(name), "peer.%s.%s", p->name, field);
	tell(e, name, value);
}

static void each_peer(struct each *e, const struct peer_status *p)
{
	uint64_t now = env_wall_ns(&env_real), eta = 0;
	const struct { const char *field; uint64_t value; } numbers[] = {
		{"backlog-files", p->backlog_files},
		{"backlog-bytes", p->backlog_bytes},
		{"backlog-parts", p->backlog_parts},
		{"oldest-age-ms", peer_age_ns(p, now) / 1000000},
		{"lag-us", p->lag_ns / 1000},
		{"rate-bytes-per-s", p->rate_bytes},
		{"sent-bytes", p->sent_bytes},
		{"received-bytes", p->received_bytes},
		{"saved-bytes", p->saved_bytes},
		{"fsync-waits", p->waits},
		{"connected-s", p->connected_ns && p->connected_ns < now ? (now - p->connected_ns) / 1000000000u : 0},
	};
	char value[32];
	tell_peer(e, p, "state", peer_state_name(p->state));
	tell_peer(e, p, "address", p->address);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		snprintf(value, sizeof(value), "%llu", (unsigned long long)numbers[i].value);
		tell_peer(e, p, numbers[i].field, value);
	}
	bool known = peer_eta_s(p, &eta);
	snprintf(value, sizeof(value), "%llu", (unsigned long long)eta);
	tell_peer(e, p, "eta-s", known ? value : "unknown");
	tell_peer(e, p, "last-error", p->last_error);
}

int virtual_each(struct volume *v, virtual_fn *fn, void *ctx)
{
	struct each e = {.fn = fn, .ctx = ctx};
	const struct header *h = volume_header(v);
	char hex[ID_HEX_LEN + 1], replica[17];
	id_hex(&h->volume, hex);
	snprintf(replica, sizeof(replica), "%016llx", (unsigned long long)h->replica);
	tell(&e, "volume", hex);
	tell(&e, "replica", replica);
	tell(&e, "name", h->name);
	each_stat(&e, volume_stats(v));
	CLEANUP_FREE struct peer_status *peers = NULL;
	uint32_t n = 0;
	int r = volume_peer_statuses(v, &peers, &n);
	for (uint32_t i = 0; !r && i < n; i++)
		each_peer(&e, &peers[i]);
	return r;
}

static void each_extra(struct each *e, const struct virtual_extra *x)
{
	const struct { const char *name, *value; } all[] = {
		{"store", x->store}, {"control", x->control}, {"mountpoint", x->mountpoint},
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].value)
			tell(e, all[i].name, all[i].value);
}

struct search {
	const char *name;
	struct buf *out;
	bool found;
};

static bool match(void *ctx, const char *name, const char *value)
{
	struct search *s = ctx;
	if (strcmp(name, s->name))
		return true;
	buf_put(s->out, value, strlen(value));
	s->found = true;
	return false;
}

int virtual_get(struct volume *v, inum ino, const char *name, const struct virtual_extra *x, struct buf *out)
{
	struct search s = {.name = name + sizeof(VIRTUAL_PREFIX) - 1, .out = out};
	int r = 0;
	if (!strcmp(s.name, "state"))
		return volume_file_state(v, ino, out);
	if (!strcmp(s.name, "version"))
		return volume_file_version(v, ino, out);
	if (!strcmp(s.name, "lacking"))
		return volume_file_lacking(v, ino, out);
	if (!strcmp(s.name, "delta-saved"))
		return volume_file_delta(v, ino, out);
	if (ino != ROOT_INUM)
		return -ENODATA;
	each_extra(&(struct each){.fn = match, .ctx = &s}, x);
	if (!s.found)
		r = virtual_each(v, match, &s);
	return r ? r : s.found ? out->err : -ENODATA;
}

static bool append_name(void *ctx, const char *name, const char *value)
{
	struct buf *out = ctx;
	buf_put(out, VIRTUAL_PREFIX, sizeof(VIRTUAL_PREFIX) - 1);
	buf_put(out, name, strlen(name) + 1);
	return true;
}

int virtual_list(struct volume *v, inum ino, const struct virtual_extra *x, struct buf *out)
{
	if (ino != ROOT_INUM)
		return 0;
	static const char *const of_files[] = {"state", "version", "lacking", "delta-saved"};
	for (size_t i = 0; i < sizeof(of_files) / sizeof(*of_files); i++)
		append_name(out, of_files[i], NULL);
	each_extra(&(struct each){.fn = append_name, .ctx = out}, x);
	int r = virtual_each(v, append_name, out);
	return r ? r : out->err;
}
