/* Inside of the report: what is gathered, and its charts. */
#ifndef TWOFOLD_REPORT_H
#define TWOFOLD_REPORT_H
#include "cli.h"

#define LIST_SHOWN 20
enum tone { GOOD, WARN, BAD };
struct report {
	struct query *q;
	uint64_t now_ns;
	struct peer_status *peers; /* owned, as all below */
	uint32_t n_peers, n_conflicts, n_damaged;
	struct buf findings, conflicts, damaged; /* list items */
	struct sample *samples;                  /* in order of time; the last ones are of now */
	size_t n_samples;
	enum tone tone, disk_tone;
	bool disk_known;
	double disk_free, disk_size; /* bytes, of the store's filesystem */
};

void html_put(struct buf *out, const char *s);      /* escaped */
void html_size(struct buf *out, double bytes);
void html_duration(struct buf *out, double seconds);

/* report_health.c */
enum tone report_peer_tone(const struct peer_status *p);
const char *report_tone_class(enum tone t);
void report_judge(struct report *r);                 /* fills findings, tone, disk_* */
void report_put_health(struct report *r);
void report_put_tiles(struct report *r);

/* report_chart.c */
int report_collect(struct report *r);                /* fills samples; 0, -ENOMEM */
void report_history(struct report *r);               /* two cards: backlog and lag over time */
/* A card of the timers whose name begins with prefix: a bar from p50 to p99 and a mark at the longest, on one logarithmic axis. */
void report_latencies(struct report *r, const char *prefix, const char *id, const char *title, const char *what);
#endif
