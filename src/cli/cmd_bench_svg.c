/* bench: the chart. One group of bars for each row, each group on its own scale (rows have different units and sizes), numbers beside the bars. No
 * script, no font or picture from elsewhere, colours for light and dark: it can stand alone or be put into a page as it is. */
#include "cmd_bench.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 760
#define LEFT 230   /* where bars begin */
#define BAR_MAX 360
#define BAR 14
#define GAP 16
#define TOP 82

static void put_escaped(struct buf *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '&': buf_printf(out, "&amp;"); break;
		case '<': buf_printf(out, "&lt;"); break;
		case '>': buf_printf(out, "&gt;"); break;
		case '"': buf_printf(out, "&quot;"); break;
		default: buf_put_u8(out, (uint8_t)*text >= 0x20 ? (uint8_t)*text : '?');
		}
}

static void put_style(struct buf *out)
{
	buf_printf(out, "<style>\n"
			".tb{--bg:#fff;--fg:#1c2330;--soft:#5a6475;--sealed:#1f5fbf;--none:#c8741a;--plain:#8a94a6}\n"
			"@media (prefers-color-scheme:dark){.tb{--bg:#14181f;--fg:#e6eaf0;--soft:#a3adbd;--sealed:#6aa7ff;--none:#f0a550;--plain:#7d8798}}\n"
			".tb text{font:12px system-ui,sans-serif;fill:var(--fg)}.tb .soft{fill:var(--soft)}.tb .head{font-weight:600;font-size:15px}\n"
			".tb .name{font-weight:600}.tb .bg{fill:var(--bg)}.tb .sealed{fill:var(--sealed)}.tb .none{fill:var(--none)}.tb .plain{fill:var(--plain)}\n"
			"</style>\n");
}

static unsigned sides_of(const struct bench_row *row)
{
	unsigned n = 0;

	for (int s = 0; s < BENCH_SIDES; s++)
		n += row->side[s].n > 0;
	return n;
}

static double largest(const struct bench_result *r, const struct bench_row *row)
{
	double most = 0;

	for (int s = 0; s < BENCH_SIDES; s++)
		if (bench_centre(r, row, (enum bench_side)s) > most)
			most = bench_centre(r, row, (enum bench_side)s);
	return most;
}

static unsigned put_row(struct buf *out, const struct bench_result *r, const struct bench_row *row, unsigned y)
{
	double most = largest(r, row), ratio = bench_ratio(r, row);
	char number[24];

	buf_printf(out, "<text class=\"name\" x=\"16\" y=\"%u\">", y + 11);
	put_escaped(out, row->name);
	buf_printf(out, "</text><text class=\"soft\" x=\"16\" y=\"%u\">%s, %s is better", y + 27, row->unit, row->less_is_better ? "less" : "more");
	if (ratio > 0)
		buf_printf(out, "; ratio %.3f", ratio);
	buf_printf(out, "</text>\n");
	for (int s = 0; s < BENCH_SIDES; s++) {
		double v = bench_centre(r, row, (enum bench_side)s), w = most > 0 ? BAR_MAX * v / most : 0;
		if (!row->side[s].n)
			continue;
		bench_number(v, number, sizeof number);
		buf_printf(out, "<rect class=\"%s\" x=\"%u\" y=\"%u\" width=\"%.1f\" height=\"%u\" rx=\"2\"/><text x=\"%.1f\" y=\"%u\">%s <tspan class=\"soft\">%s</tspan></text>\n",
			bench_side_name((enum bench_side)s), LEFT, y, w < 1 ? 1 : w, BAR - 2, LEFT + w + 6, y + 10, number, bench_side_name((enum bench_side)s));
		y += BAR;
	}
	return y;
}

void bench_put_svg(struct buf *out, const struct bench_result *r, const struct bench_options *o)
{
	char machine[512];
	unsigned height = TOP, y = TOP;

	for (unsigned i = 0; i < r->rows; i++) {
		unsigned bars = sides_of(&r->row[i]) * BAR;
		height += (bars > 2 * BAR ? bars : 2 * BAR) + GAP;
	}
	bench_machine(o->dir, machine, sizeof machine);
	buf_printf(out, "<svg class=\"tb\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" width=\"100%%\" style=\"max-width:%upx\" role=\"img\">\n"
			"<title>twofold bench %s: sealed against --cipher none</title>\n",
		WIDTH, height + 8, WIDTH, r->test);
	put_style(out);
	buf_printf(out, "<rect class=\"bg\" width=\"%u\" height=\"%u\"/>\n<text class=\"head\" x=\"16\" y=\"26\">twofold bench %s: ", WIDTH, height + 8, r->test);
	put_escaped(out, r->what);
	buf_printf(out, "</text>\n<text class=\"soft\" x=\"16\" y=\"45\">");
	put_escaped(out, machine);
	buf_printf(out, "</text>\n<text class=\"soft\" x=\"16\" y=\"62\">sealed: %s; none: --cipher none; ratio: sealed to none; %s of %u pass%s", o->cipher,
		r->mean ? "averages" : "medians", o->passes, o->passes == 1 ? "" : "es");
	if (*r->engine) {
		buf_printf(out, "; ");
		put_escaped(out, r->engine);
	}
	buf_printf(out, "</text>\n");
	for (unsigned i = 0; i < r->rows; i++) {
		unsigned end = put_row(out, r, &r->row[i], y);
		y = (end > y + 2 * BAR ? end : y + 2 * BAR) + GAP;
	}
	buf_printf(out, "</svg>\n");
}
