/* report: the health of one replica as a single HTML page: no script, nothing from elsewhere, light and dark, for a phone as well as a desktop. Pictures are
 * inline SVG (report_chart.c); report_health.c says what is wrong; labels are HTML, so that they stay readable at every width. */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

static const char style[] =
	":root{color-scheme:light dark;--bg:#f5f6f8;--card:#fff;--ink:#18202b;--soft:#5a6675;--line:#dfe4ea;--good:#14794a;--warn:#9a5b00;--bad:#b3261e;"
	"--c0:#2563c9;--c1:#c2571a;--c2:#14794a;--c3:#8b3fc7;--c4:#0f7c8c;--c5:#b02a63}"
	"@media(prefers-color-scheme:dark){:root{--bg:#11151b;--card:#1a2029;--ink:#e8edf3;--soft:#a0acba;--line:#2d3643;--good:#4cc38a;--warn:#f0b354;"
	"--bad:#ff8a80;--c0:#79aaff;--c1:#ff9e63;--c2:#5fd39b;--c3:#c99bff;--c4:#5ecfdf;--c5:#ff8fb8}}"
	"*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}"
	"main{max-width:1120px;margin:0 auto;padding:28px 16px 48px}header p{margin:2px 0 0;color:var(--soft)}h1{font-size:28px;line-height:1.2;margin:0}"
	"h2{font-size:18px;margin:0 0 4px}h2+p{margin:0 0 14px;color:var(--soft);font-size:14px}"
	".health{display:flex;gap:16px;align-items:flex-start;margin:22px 0 16px;padding:20px;border-radius:14px;background:var(--card);"
	"border:1px solid var(--line);border-left:6px solid var(--tone)}.health svg{flex:none;width:40px;height:40px}.health b{font-size:21px;line-height:1.3;color:var(--tone)}"
	".health ul{margin:6px 0 0;padding-left:18px}.health li{margin:4px 0}.health small{display:block;color:var(--soft);font-size:14px}code{font-size:.92em;background:var(--line);border-radius:5px;padding:0 4px}.good{--tone:var(--good)}.warn{--tone:var(--warn)}.bad{--tone:var(--bad)}"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:12px;margin-bottom:16px}"
	".tile,.card{background:var(--card);border:1px solid var(--line);border-radius:14px}.tile{padding:14px 16px}.tile span{display:block;color:var(--soft);font-size:13px}"
	".tile b{display:block;font-size:23px;line-height:1.3;font-variant-numeric:tabular-nums}.tile b.tone{color:var(--tone)}"
	".card{padding:20px;margin-bottom:16px;min-width:0}.two{display:grid;grid-template-columns:1fr;gap:0 16px}@media(min-width:860px){.two{grid-template-columns:1fr 1fr}}"
	"@media(min-width:860px){.peer dl{grid-template-columns:repeat(5,1fr)}}.peer{padding:14px 0;border-top:1px solid var(--line)}.peer:first-of-type{border-top:0;padding-top:4px}.peer h3{font-size:16px;margin:0 0 6px;display:flex;flex-wrap:wrap;gap:6px 10px;align-items:center}"
	".pill{font-size:13px;font-weight:600;color:var(--tone);border:1px solid var(--tone);border-radius:99px;padding:0 10px}"
	"dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));gap:10px 16px;margin:0}dt{color:var(--soft);font-size:13px}dd{margin:0;font-variant-numeric:tabular-nums}"
	"dl.wide{grid-template-columns:repeat(auto-fill,minmax(260px,1fr))}.error{color:var(--bad);margin:8px 0 0}"
	".plot{display:grid;grid-template-columns:auto minmax(0,1fr);gap:0 10px;font-size:12px;color:var(--soft);font-variant-numeric:tabular-nums}"
	".plot .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;line-height:1;min-width:52px}"
	".plot svg{display:block;width:100%;height:170px;overflow:visible}.plot .x{grid-column:2;display:flex;justify-content:space-between;padding-top:6px}"
	".grid{stroke:var(--line);fill:none;vector-effect:non-scaling-stroke}.curve{fill:none;stroke-width:2;stroke-linejoin:round;vector-effect:non-scaling-stroke}.area{opacity:.14;stroke:none}"
	".legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:12px 0 0;padding:0;list-style:none;font-size:14px}.legend i{display:inline-block;width:14px;height:4px;border-radius:2px;margin-right:7px;vertical-align:middle}"
	".lat{display:grid;grid-template-columns:minmax(86px,auto) minmax(0,1fr) auto;gap:8px 12px;align-items:center;font-size:14px;font-variant-numeric:tabular-nums}"
	".lat svg{display:block;width:100%;height:16px}.lat .n{text-align:right;line-height:1.25}.lat small{display:block;color:var(--soft);font-size:12px}.lat .axis{color:var(--soft);font-size:12px;display:flex;justify-content:space-between}"
	".track{fill:var(--line);opacity:.55}.lat .split{height:14px;border-radius:7px}.peer:last-child{padding-bottom:0}ol.files{margin:0;padding-left:22px}ol.files li{margin:4px 0}.files small{color:var(--soft)}.none{color:var(--soft);margin:0}"
	"footer{color:var(--soft);font-size:13px}@media(max-width:480px){.lat .axis span:nth-child(2),.lat .axis span:nth-child(3){display:none}.tiles{grid-template-columns:1fr 1fr}.card{padding:16px}.health{padding:16px;gap:12px}h1{font-size:24px}.health svg{width:30px;height:30px}}"
	"@media print{body{background:#fff}.card,.tile,.health{break-inside:avoid}}";

void html_put(struct buf *out, const char *s)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
			buf_printf(out, "&#%u;", c);
		else if ((c < 32 || c == 127))
			buf_printf(out, "\\%03o", c);
		else
			buf_put(out, s, 1);
	}
}

void html_size(struct buf *out, double bytes)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int u = 0;

	for (; bytes >= 1024 && u < 4; u++)
		bytes /= 1024;
	buf_printf(out, u && bytes < 100 ? "%.1f&nbsp;%s" : "%.0f&nbsp;%s", bytes, unit[u]);
}

void html_duration(struct buf *out, double s)
{
	if (s <= 0)
		buf_printf(out, "0&nbsp;s");
	else if (s < 1e-3)
		buf_printf(out, s < 1e-5 ? "%.1f&nbsp;µs" : "%.0f&nbsp;µs", s * 1e6);
	else if (s < 1)
		buf_printf(out, s < 1e-2 ? "%.1f&nbsp;ms" : "%.0f&nbsp;ms", s * 1e3);
	else if (s < 120)
		buf_printf(out, s < 10 ? "%.1f&nbsp;s" : "%.0f&nbsp;s", s);
	else if (s < 7200)
		buf_printf(out, "%.0f&nbsp;min", s / 60);
	else if (s < 172800)
		buf_printf(out, "%.0f&nbsp;h", s / 3600);
	else
		buf_printf(out, "%.0f&nbsp;days", s / 86400);
}

static void term(struct buf *o, const char *what) { buf_printf(o, "<div><dt>%s</dt><dd>", what); }
static void term_end(struct buf *o) { buf_printf(o, "</dd></div>"); }

static void term_size(struct buf *o, const char *what, uint64_t n)
{
	term(o, what);
	html_size(o, (double)n);
	term_end(o);
}

static void put_peer(struct buf *o, const struct peer_status *p, uint64_t now)
{
	uint64_t eta;

	buf_printf(o, "<div class=\"peer %s\"><h3>", report_tone_class(report_peer_tone(p)));
	html_put(o, p->name);
	buf_printf(o, "<span class=\"pill\">%s</span></h3><dl>", peer_state_name(p->state));
	term(o, "Backlog");
	buf_printf(o, "%" PRIu64 " file%s, ", p->backlog_files, p->backlog_files == 1 ? "" : "s");
	html_size(o, (double)p->backlog_bytes);
	term_end(o);
	term(o, "Oldest change");
	if (peer_age_ns(p, now))
		html_duration(o, (double)peer_age_ns(p, now) / 1e9);
	else
		buf_printf(o, "none");
	term_end(o);
	term(o, "Lag");
	html_duration(o, (double)p->lag_ns / 1e9);
	term_end(o);
	term(o, "Rate");
	html_size(o, (double)p->rate_bytes);
	buf_printf(o, "/s");
	term_end(o);
	term(o, "Time left");
	if (peer_eta_s(p, &eta))
		html_duration(o, (double)eta);
	else
		buf_printf(o, "unknown");
	term_end(o);
	term(o, "Connected for");
	if (peer_is_connected(p) && p->connected_ns < now)
		html_duration(o, (double)(now - p->connected_ns) / 1e9);
	else
		buf_printf(o, "not now");
	term_end(o);
	term_size(o, "Sent", p->sent_bytes);
	term_size(o, "Received", p->received_bytes);
	term_size(o, "Saved by deltas", p->saved_bytes);
	term(o, "Address");
	html_put(o, *p->address ? p->address : "it calls us");
	term_end(o);
	buf_printf(o, "</dl>");
	if (*p->last_error) {
		buf_printf(o, "<p class=\"error\">Last error: ");
		html_put(o, p->last_error);
		buf_printf(o, "</p>");
	}
	buf_printf(o, "</div>");
}

static void put_peers(struct report *r)
{
	struct buf *o = r->q->out;

	buf_printf(o, "<section class=\"card\"><h2>Peers</h2>");
	for (uint32_t i = 0; i < r->n_peers; i++)
		put_peer(o, &r->peers[i], r->now_ns);
	if (!r->n_peers)
		buf_printf(o, "<p class=\"none\">None. <code>twofold invite</code> makes one.</p>");
	buf_printf(o, "</section>\n");
}

static void put_saving(struct buf *o, const char *name, uint64_t sent, uint64_t saved)
{
	double all = (double)(sent + saved), part = all > 0 ? (double)sent / all * 100 : 0;

	buf_printf(o, "<span>");
	html_put(o, name);
	buf_printf(o, "</span><svg class=\"split\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%.0f percent sent\"><rect width=\"100\" height=\"10\" class=\"track\"/>"
		"<rect width=\"%.2f\" height=\"10\" fill=\"var(--c0)\"/><rect x=\"%.2f\" width=\"%.2f\" height=\"10\" fill=\"var(--c2)\"/></svg><span class=\"n\">",
		part, part, part, all > 0 ? 100 - part : 0);
	html_size(o, (double)saved);
	buf_printf(o, "<small>%.0f&nbsp;%% of ", all > 0 ? 100 - part : 0);
	html_size(o, all);
	buf_printf(o, "</small></span>");
}

static void put_savings(struct report *r)
{
	struct buf *o = r->q->out;
	uint64_t sent = 0, saved = 0;

	buf_printf(o, "<section class=\"card\" id=\"savings\"><h2>Delta savings</h2><p>What was sent, and what needed not be because the peer had it already.</p><div class=\"lat\">");
	for (uint32_t i = 0; i < r->n_peers; i++) {
		put_saving(o, r->peers[i].name, r->peers[i].sent_bytes, r->peers[i].saved_bytes);
		sent += r->peers[i].sent_bytes;
		saved += r->peers[i].saved_bytes;
	}
	if (r->n_peers != 1)
		put_saving(o, "together", sent, saved);
	buf_printf(o, "</div><ul class=\"legend\"><li><i style=\"background:var(--c0)\"></i>sent</li><li><i style=\"background:var(--c2)\"></i>saved</li></ul></section>\n");
}

static bool add_conflict(void *ctx, const char *shown, const char *of, struct stamp s, const char *replica)
{
	struct report *r = ctx;

	if (r->n_conflicts++ >= LIST_SHOWN)
		return true;
	buf_printf(&r->conflicts, "<li>");
	html_put(&r->conflicts, shown);
	buf_printf(&r->conflicts, "<br><small>beside ");
	html_put(&r->conflicts, of);
	buf_printf(&r->conflicts, ", written by ");
	html_put(&r->conflicts, replica);
	buf_printf(&r->conflicts, "</small></li>");
	return true;
}

static bool add_damaged(void *ctx, const char *path)
{
	struct report *r = ctx;

	if (r->n_damaged++ >= LIST_SHOWN)
		return true;
	buf_printf(&r->damaged, "<li>");
	html_put(&r->damaged, *path ? path : "(a file without a name)");
	buf_printf(&r->damaged, "</li>");
	return true;
}

static void put_list(struct buf *o, const char *title, const char *none, const struct buf *list, uint32_t n)
{
	buf_printf(o, "<section class=\"card\"><h2>%s</h2>", title);
	if (n) {
		buf_printf(o, "<ol class=\"files\">");
		buf_put(o, list->p, list->len);
		buf_printf(o, "</ol>");
		if (n > LIST_SHOWN)
			buf_printf(o, "<p class=\"none\">and %" PRIu32 " more</p>", n - LIST_SHOWN);
	} else
		buf_printf(o, "<p class=\"none\">%s</p>", none);
	buf_printf(o, "</section>");
}

static void put_configuration(struct report *r)
{
	struct buf *o = r->q->out;
	const struct header *h = volume_header(r->q->volume);
	char hex[ID_HEX_LEN + 1];

	id_hex(&h->volume, hex);
	buf_printf(o, "<section class=\"card\"><h2>Configuration</h2><dl class=\"wide\">");
	term(o, "Store");
	html_put(o, volume_path(r->q->volume));
	term_end(o);
	term(o, "Replica");
	html_put(o, h->name);
	buf_printf(o, " (%016" PRIx64 ")", h->replica);
	term_end(o);
	term(o, "Volume");
	buf_printf(o, "%s", hex);
	term_end(o);
	term(o, "Cipher");
	buf_printf(o, "%s", cipher_name(h->cipher));
	term_end(o);
	term(o, "Writable");
	buf_printf(o, volume_is_read_only(r->q->volume) ? "no" : "yes");
	term_end(o);
	term(o, "Disk of the store");
	if (r->disk_known) {
		html_size(o, r->disk_free);
		buf_printf(o, " free of ");
		html_size(o, r->disk_size);
	} else
		buf_printf(o, "unknown");
	term_end(o);
	term(o, "Listening on port");
	if (r->q->engine && engine_port(r->q->engine))
		buf_printf(o, "%u", (unsigned)engine_port(r->q->engine));
	else
		buf_printf(o, "none");
	term_end(o);
	term(o, "Version");
	buf_printf(o, TWOFOLD_VERSION);
	term_end(o);
	buf_printf(o, "</dl></section>\n");
}

static void put_page(struct report *r)
{
	struct buf *o = r->q->out;
	const struct header *h = volume_header(r->q->volume);
	time_t now = (time_t)(r->now_ns / 1000000000u);
	char when[64];
	struct tm tm;

	strftime(when, sizeof when, "%A, %-d %B %Y, %H:%M:%S %Z", localtime_r(&now, &tm));
	buf_printf(o, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>twofold: ");
	html_put(o, h->name);
	buf_printf(o, "</title><style>%s</style></head><body><main><header><h1>Replica ", style);
	html_put(o, h->name);
	buf_printf(o, "</h1><p>%s</p></header>\n", when);
	report_put_health(r);
	report_put_tiles(r);
	put_peers(r);
	buf_printf(o, "<div class=\"two\">");
	report_history(r);
	buf_printf(o, "</div>\n");
	put_savings(r);
	buf_printf(o, "<div class=\"two\">");
	report_latencies(r, "op.", "operations", "Operations", "What programs waited for.");
	report_latencies(r, "stage.", "stages", "Stages", "Where the time went inside.");
	buf_printf(o, "</div>\n<div class=\"two\">");
	put_list(o, "Conflicts", "None.", &r->conflicts, r->n_conflicts);
	put_list(o, "Damaged files", "None known.", &r->damaged, r->n_damaged);
	buf_printf(o, "</div>\n");
	put_configuration(r);
	buf_printf(o, "<footer>Latencies count since the mount or the last <code>setfattr -n user.twofold.reset</code>. Backlog and lag are sampled each minute.</footer></main></body></html>\n");
}

int query_report(struct query *q, int argc, char **argv)
{
	struct report r = {.q = q, .now_ns = env_wall_ns(&env_real)};
	int e = query_peers(q, &r.peers, &r.n_peers);

	e = e ? e : volume_conflicts(q->volume, add_conflict, &r);
	e = e ? e : volume_damaged(q->volume, add_damaged, &r);
	e = e ? e : report_collect(&r);
	if (!e) {
		report_judge(&r);
		put_page(&r);
		e = q->out->err;
	}
	if (e)
		buf_printf(q->err, "twofold: report: %s\n", strerror(-e));
	buf_fini(&r.findings);
	buf_fini(&r.conflicts);
	buf_fini(&r.damaged);
	free(r.samples);
	free(r.peers);
	return e ? EXIT_FAILED : EXIT_DONE;
}
