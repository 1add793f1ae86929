/* Charts of the report. The SVGs hold only shapes and are stretched to the width there is (preserveAspectRatio="none", strokes do not scale);
 * text stands beside them. */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COLOURS 6
#define W 600.0
#define H 160.0
#define SAMPLES_MAX 400000u

struct collect {
	struct report *r;
	size_t room;
	int err;
};

static bool add_sample(void *ctx, const struct sample *s)
{
	struct collect *c = ctx;
	struct report *r = c->r;

	if (r->n_samples == c->room) {
		size_t room = c->room ? c->room * 2 : 1024;
		struct sample *p = room <= SAMPLES_MAX ? reallocarray(r->samples, room, sizeof *p) : NULL;
		if (!p) {
			c->err = room <= SAMPLES_MAX ? -ENOMEM : 0;
			return false;
		}
		r->samples = p;
		c->room = room;
	}
	r->samples[r->n_samples++] = *s;
	return true;
}

int report_collect(struct report *r)
{
	struct sample now[64];
	struct collect c = {.r = r};
	int e = volume_samples(r->q->volume, 0, add_sample, &c);
	uint32_t n = sample_peers(r->q->volume, now, 64);

	for (uint32_t i = 0; i < n && !e && !c.err; i++)
		add_sample(&c, &now[i]);
	return e ? e : c.err;
}

static double value_of(const struct sample *s, bool lag) { return lag ? (double)s->lag_us / 1e6 : (double)s->backlog_bytes; }

/* The next 1, 2 or 5 times a power of the unit's base: a top line that can be read. */
static double round_up(double x, bool lag)
{
	double step = lag ? 1e-6 : 1;

	if (x <= step)
		return step;
	if (!lag) {
		while (step * 1024 <= x)
			step *= 1024;
		x /= step;
	} else
		step = 1;
	double ten = pow(10, floor(log10(x)));
	double m = x / ten;
	return step * ten * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void put_value(struct buf *o, double v, bool lag)
{
	if (lag)
		html_duration(o, v);
	else
		html_size(o, v);
}

/* A curve keeps its level until the next sample: equal samples are not stored. Points closer than half a unit across are one, the highest. */
static void put_curve(struct report *r, uint64_t peer, unsigned colour, uint64_t from, uint64_t to, double top, bool lag)
{
	struct buf *o = r->q->out, line = {0};
	double x0 = 0, last_x = -1, y = H, held = 0;
	bool any = false;

	for (size_t i = 0; i < r->n_samples; i++) {
		const struct sample *s = &r->samples[i];
		if (s->peer != peer || s->at_s < from)
			continue;
		double x = (double)(s->at_s - from) / (double)(to - from) * W, v = value_of(s, lag);
		if (any && x - last_x < 0.5 && v <= held)
			continue;
		y = H - v / top * (H - 4);
		if (!any)
			x0 = x;
		buf_printf(&line, any ? "H%.1fV%.1f" : "M%.1f %.1f", x, y);
		any = true;
		last_x = x;
		held = v;
	}
	if (any) {
		buf_printf(o, "<path class=\"area\" fill=\"var(--c%u)\" d=\"", colour);
		buf_put(o, line.p, line.len);
		buf_printf(o, "H%.0fV%.0fH%.1fZ\"/><path class=\"curve\" stroke=\"var(--c%u)\" d=\"", W, H, x0, colour);
		buf_put(o, line.p, line.len);
		buf_printf(o, "H%.0f\"/>", W);
	}
	buf_fini(&line);
}

static void put_time(struct buf *o, uint64_t s, uint64_t span)
{
	time_t t = (time_t)s;
	struct tm tm;
	char text[32];

	strftime(text, sizeof text, span < 600 ? "%H:%M:%S" : span < 86400 ? "%H:%M" : "%-d %b %H:%M", localtime_r(&t, &tm));
	buf_printf(o, "<span>%s</span>", text);
}

static void put_plot(struct report *r, bool lag)
{
	struct buf *o = r->q->out;
	uint64_t from = r->samples[0].at_s, to = r->now_ns / 1000000000u;
	double top = 0;

	if (to <= from)
		from = to - 1;
	for (size_t i = 0; i < r->n_samples; i++)
		top = fmax(top, value_of(&r->samples[i], lag));
	top = round_up(top, lag);
	buf_printf(o, "<div class=\"plot\"><div class=\"y\"><span>");
	put_value(o, top, lag);
	buf_printf(o, "</span><span>");
	put_value(o, top / 2, lag);
	buf_printf(o, "</span><span>0</span></div><svg viewBox=\"0 0 600 160\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s over time\">"
		"<path class=\"grid\" d=\"M0 4H600M0 82H600M0 160H600\"/>", lag ? "lag" : "backlog");
	for (uint32_t i = 0; i < r->n_peers; i++)
		put_curve(r, r->peers[i].replica, i % COLOURS, from, to, top, lag);
	buf_printf(o, "</svg><div class=\"x\">");
	put_time(o, from, to - from);
	if (to - from > 2)
		put_time(o, from + (to - from) / 2, to - from);
	put_time(o, to, to - from);
	buf_printf(o, "</div></div><ul class=\"legend\">");
	for (uint32_t i = 0; i < r->n_peers; i++) {
		buf_printf(o, "<li><i style=\"background:var(--c%u)\"></i>", i % COLOURS);
		html_put(o, r->peers[i].name);
		buf_printf(o, "</li>");
	}
	buf_printf(o, "</ul>");
}

void report_history(struct report *r)
{
	for (int lag = 0; lag < 2; lag++) {
		buf_printf(r->q->out, "<section class=\"card\" id=\"%s\"><h2>%s</h2><p>%s</p>", lag ? "lag" : "backlog", lag ? "Lag" : "Backlog",
			lag ? "From a commit here to the peer's acknowledgement." : "What each peer still has to get.");
		if (r->n_samples && r->n_peers)
			put_plot(r, lag);
		else
			buf_printf(r->q->out, "<p class=\"none\">No samples yet.</p>");
		buf_printf(r->q->out, "</section>");
	}
}

/* 100 ns to 100 s */
static double place(uint64_t ns)
{
	double x = ns ? (log10((double)ns) - 2) / 9 * 100 : 0;
	return x < 0 ? 0 : x > 100 ? 100 : x;
}

static void put_timer(struct buf *o, const char *name, const struct stat_summary *x)
{
	double a = place(x->p50_ns), b = place(x->p99_ns), m = place(x->max_ns);

	buf_printf(o, "<span>%s<small>%" PRIu64 "&#215;</small></span><svg viewBox=\"0 0 100 16\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s\"><title>%" PRIu64 " times: median %.1f µs, p99 %.1f µs, longest %.1f µs</title>"
		"<rect class=\"track\" y=\"6\" width=\"100\" height=\"4\"/><rect x=\"%.2f\" y=\"3\" width=\"%.2f\" height=\"10\" fill=\"var(--c0)\"/>"
		"<rect x=\"%.2f\" width=\"0.8\" height=\"16\" fill=\"var(--c1)\"/></svg><span class=\"n\">",
		name, x->count, name, x->count, (double)x->p50_ns / 1e3, (double)x->p99_ns / 1e3, (double)x->max_ns / 1e3, a, fmax(b - a, 0.8), fmin(m, 99.2));
	html_duration(o, (double)x->p50_ns / 1e9);
	buf_printf(o, "<small>p99 ");
	html_duration(o, (double)x->p99_ns / 1e9);
	buf_printf(o, "</small></span>");
}

void report_latencies(struct report *r, const char *prefix, const char *id, const char *title, const char *what)
{
	struct buf *o = r->q->out;
	const struct stats *s = volume_stats(r->q->volume);
	int n = 0;

	buf_printf(o, "<section class=\"card\" id=\"%s\"><h2>%s</h2><p>%s Bar: median to p99; mark: the longest.</p><div class=\"lat\">", id, title, what);
	for (unsigned t = 0; t < STAT_TIMERS; t++) {
		const char *name = stats_timer_name((enum stat_timer)t);
		struct stat_summary x = stats_summary(s, (enum stat_timer)t);
		if (strncmp(name, prefix, strlen(prefix)) || !x.count)
			continue;
		put_timer(o, name + strlen(prefix), &x);
		n++;
	}
	if (n)
		buf_printf(o, "<span></span><span class=\"axis\"><span>100&nbsp;ns</span><span>100&nbsp;µs</span><span>100&nbsp;ms</span><span>100&nbsp;s</span></span><span></span>");
	buf_printf(o, "</div>");
	if (!n)
		buf_printf(o, "<p class=\"none\">Nothing was counted.</p>");
	buf_printf(o, "</section>");
}
