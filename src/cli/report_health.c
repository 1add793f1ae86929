/* The report's upper end: what is wrong and what to do about it, then the numbers that say most. */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "scrub.h"

#define OLD_NS (600 * 1000000000ull) /* a change that a connected peer has lacked so long is worth a word */
#define FREE_LOW 0.05                /* of the store's filesystem; at less than 0.01 it is bad */

enum tone report_peer_tone(const struct peer_status *p)
{
	if (p->state == PEER_REFUSED)
		return BAD;
	return peer_is_connected(p) ? GOOD : WARN;
}

const char *report_tone_class(enum tone t) { return t == BAD ? "bad" : t == WARN ? "warn" : "good"; }

/* Begins a finding; the caller writes it as HTML and ends it with say_end. */
static struct buf *say(struct report *r, enum tone t)
{
	r->tone = t > r->tone ? t : r->tone;
	buf_printf(&r->findings, "<li>");
	return &r->findings;
}

static void say_end(struct report *r, const char *advice)
{
	if (advice)
		buf_printf(&r->findings, "<small>%s</small>", advice);
	buf_printf(&r->findings, "</li>");
}

static void say_text(struct report *r, enum tone t, const char *text, const char *advice)
{
	buf_printf(say(r, t), "%s", text);
	say_end(r, advice);
}

static void say_number(struct report *r, enum tone t, uint64_t n, const char *one, const char *many, const char *advice)
{
	if (!n)
		return;
	buf_printf(say(r, t), "%" PRIu64 " %s", n, n == 1 ? one : many);
	say_end(r, advice);
}

static void put_lack(struct buf *o, const struct peer_status *p, uint64_t now_ns)
{
	if (!p->backlog_parts)
		return;
	buf_printf(o, " It lacks %" PRIu64 " file%s, ", p->backlog_files, p->backlog_files == 1 ? "" : "s");
	html_size(o, (double)p->backlog_bytes);
	if (peer_age_ns(p, now_ns)) {
		buf_printf(o, "; the oldest change is ");
		html_duration(o, (double)peer_age_ns(p, now_ns) / 1e9);
		buf_printf(o, " old");
	}
	buf_printf(o, ".");
}

static void judge_peer(struct report *r, const struct peer_status *p)
{
	static const char *const advice[] = {
		[PEER_DISCONNECTED] = "Is it running, and can one of the two reach the other's address? Changes wait here until then.",
		[PEER_CONNECTING] = "It is being called.",
		[PEER_PAUSED] = "<code>twofold peer resume</code> goes on.",
		[PEER_REFUSED] = "It was removed, belongs to another volume, or speaks another version of the protocol.",
	};
	bool late = peer_is_connected(p) && peer_age_ns(p, r->now_ns) > OLD_NS;
	struct buf *o;

	if (report_peer_tone(p) == GOOD && !late)
		return;
	o = say(r, late ? WARN : report_peer_tone(p));
	buf_printf(o, "Peer ");
	html_put(o, p->name);
	buf_printf(o, late ? " is connected, but late." : r->q->engine ? " is %s." : " is not served from here.", peer_state_name(p->state));
	put_lack(o, p, r->now_ns);
	if (*p->last_error && !late) {
		buf_printf(o, " Last error: ");
		html_put(o, p->last_error);
		buf_printf(o, ".");
	}
	say_end(r, late ? "The link may be too slow for what is written, or fsync waits at the other side: see its lag and rate below." :
			r->q->engine && p->state < sizeof advice / sizeof *advice ? advice[p->state] : NULL);
}

static void judge_disk(struct report *r)
{
	struct statvfs f;

	r->disk_known = !statvfs(volume_path(r->q->volume), &f) && f.f_blocks;
	if (!r->disk_known)
		return;
	r->disk_free = (double)f.f_bavail * (double)f.f_frsize;
	r->disk_size = (double)f.f_blocks * (double)f.f_frsize;
	r->disk_tone = r->disk_free < r->disk_size * 0.01 ? BAD : r->disk_free < r->disk_size * FREE_LOW ? WARN : GOOD;
	if (r->disk_tone == GOOD)
		return;
	buf_printf(say(r, r->disk_tone), "The store's filesystem is nearly full: ");
	html_size(&r->findings, r->disk_free);
	buf_printf(&r->findings, " are left.");
	say_end(r, "What peers send is not taken once nothing is left.");
}

void report_judge(struct report *r)
{
	struct volume *v = r->q->volume;
	const struct stats *s = volume_stats(v);

	if (!r->q->engine)
		say_text(r, WARN, "Nobody replicates this store now.", "<code>twofold mount</code> or <code>twofold serve</code> does.");
	if (volume_is_read_only(v))
		say_text(r, WARN, "The store is read-only.", "Asked for, or after a write to its disk that failed: the log says which.");
	say_number(r, BAD, r->n_damaged, "file is damaged.", "files are damaged.",
		"Reading the damaged pages fails until a peer that holds the same version is connected; <code>twofold check --repair</code> asks for all of them.");
	say_number(r, BAD, stats_count(s, COUNT_WRITE_ERRORS), "write failed.", "writes failed.", "The programs were told at fsync; the log names the files.");
	say_number(r, WARN, r->n_damaged ? 0 : stats_count(s, COUNT_AUTH_FAILURES), "page or record did not authenticate.",
		"pages or records did not authenticate.", "Nothing is known to be damaged now: it was healed or written anew. Look at the disk.");
	judge_disk(r);
	say_number(r, WARN, volume_held(v), "deletion of a peer is held.", "deletions of peers are held.",
		"More than half of the volume was deleted elsewhere: <code>twofold deletions accept</code> or <code>undo</code>.");
	for (uint32_t i = 0; i < r->n_peers; i++)
		judge_peer(r, &r->peers[i]);
	say_number(r, WARN, r->n_conflicts, "conflict waits for somebody to choose.", "conflicts wait for somebody to choose.",
		"Both versions are kept: <code>twofold conflicts</code> lists them, <code>keep</code> and <code>restore</code> choose.");
	if (!r->n_peers)
		say_text(r, WARN, "There is no peer: this is the only replica.", "<code>twofold invite</code> makes one.");
}

void report_put_health(struct report *r)
{
	static const char *const mark[] = {"M11 21l6 6 12-14", "M20 11v12M20 28v1", "M13 13l14 14M27 13l-14 14"};
	static const char *const words[] = {"All is well", "Needs a look", "Needs help"};
	struct buf *o = r->q->out;

	buf_printf(o, "<section class=\"health %s\"><svg viewBox=\"0 0 40 40\" aria-hidden=\"true\"><circle cx=\"20\" cy=\"20\" r=\"18\" fill=\"none\" stroke=\"var(--tone)\" stroke-width=\"3\"/>"
		"<path d=\"%s\" fill=\"none\" stroke=\"var(--tone)\" stroke-width=\"3.5\" stroke-linecap=\"round\" stroke-linejoin=\"round\"/></svg><div><b>%s</b>",
		report_tone_class(r->tone), mark[r->tone], words[r->tone]);
	if (r->findings.len) {
		buf_printf(o, "<ul>");
		buf_put(o, r->findings.p, r->findings.len);
		buf_printf(o, "</ul>");
	} else
		buf_printf(o, "<div>Every peer is connected, nothing is damaged, nothing is in conflict.</div>");
	buf_printf(o, "</div></section>\n");
}

static struct buf *tile(struct report *r, const char *what, enum tone t)
{
	buf_printf(r->q->out, "<div class=\"tile %s\"><span>%s</span><b%s>", report_tone_class(t), what, t == GOOD ? "" : " class=\"tone\"");
	return r->q->out;
}

static void tile_end(struct report *r) { buf_printf(r->q->out, "</b></div>"); }

static void tile_number(struct report *r, const char *what, enum tone t, uint64_t n)
{
	buf_printf(tile(r, what, t), "%" PRIu64, n);
	tile_end(r);
}

static void put_scrub_tile(struct report *r)
{
	struct scrub_status s;

	volume_scrub_status(r->q->volume, &s);
	struct buf *o = tile(r, "Last check of all bytes", s.found > s.healed ? BAD : GOOD);
	if (s.running)
		buf_printf(o, "running");
	else if (s.ended_s && s.ended_s <= r->now_ns / 1000000000u) {
		html_duration(o, (double)(r->now_ns / 1000000000u - s.ended_s + 1));
		buf_printf(o, " ago");
	} else
		buf_printf(o, "never");
	tile_end(r);
}

void report_put_tiles(struct report *r)
{
	uint64_t in_sync = 0, bytes = 0, saved = 0, lag = 0;

	for (uint32_t i = 0; i < r->n_peers; i++) {
		in_sync += r->peers[i].state == PEER_IN_SYNC;
		bytes += r->peers[i].backlog_bytes;
		saved += r->peers[i].saved_bytes;
		lag = r->peers[i].lag_ns > lag ? r->peers[i].lag_ns : lag;
	}
	buf_printf(r->q->out, "<div class=\"tiles\">");
	buf_printf(tile(r, "Peers in sync", r->n_peers && in_sync == r->n_peers ? GOOD : WARN), "%" PRIu64 " of %" PRIu32, in_sync, r->n_peers);
	tile_end(r);
	html_size(tile(r, "Backlog", GOOD), (double)bytes);
	tile_end(r);
	html_duration(tile(r, "Longest lag", GOOD), (double)lag / 1e9);
	tile_end(r);
	html_size(tile(r, "Saved by deltas", GOOD), (double)saved);
	tile_end(r);
	tile_number(r, "Conflicts", r->n_conflicts ? WARN : GOOD, r->n_conflicts);
	tile_number(r, "Damaged files", r->n_damaged ? BAD : GOOD, r->n_damaged);
	put_scrub_tile(r);
	if (r->disk_known) {
		html_size(tile(r, "Free for the store", r->disk_tone), r->disk_free);
		tile_end(r);
	}
	buf_printf(r->q->out, "</div>\n");
}
