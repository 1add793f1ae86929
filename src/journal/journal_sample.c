/* Samples: the bounded history that the report draws. One row a peer and minute; what is older than a day is thinned to one in a quarter of an hour, what is
 * older than 30 days goes: at most 4,320 rows a peer. Counters only, no names: the table tells no more than the sizes and times of the store do. */
#include <errno.h>

#include "statement.h"

#define DAY_S 86400u
#define THIN_S 900u
#define KEEP_S (30u * DAY_S)

int journal_sample_put(struct journal *j, const struct sample_row *s)
{
	if (!j->has_samples)
		return 0;
	return statement_run(j, ST_SAMPLE_PUT, "iiiiiii", s->at_s, s->peer, s->backlog_files, s->backlog_bytes, s->lag_us, s->sent_bytes, s->received_bytes);
}

int journal_sample_thin(struct journal *j, uint64_t now_s)
{
	if (!j->has_samples || now_s < KEEP_S)
		return 0;
	return statement_run(j, ST_SAMPLE_THIN, "iiii", now_s - KEEP_S, now_s - DAY_S, (uint64_t)THIN_S, (uint64_t)60);
}

int journal_samples(struct journal *j, uint64_t after_s, sample_row_fn *fn, void *ctx)
{
	int e = 0, r;

	if (!j->has_samples)
		return 0;
	sqlite3_stmt *st = statement(j, ST_SAMPLES, &e);
	if (!st || (e = statement_bind(j, st, "i", after_s)))
		return e;
	while ((r = statement_row(j, st)) > 0) {
		const struct sample_row s = {.at_s = column_u64(st, 0), .peer = column_u64(st, 1), .backlog_files = column_u64(st, 2),
			.backlog_bytes = column_u64(st, 3), .lag_us = column_u64(st, 4), .sent_bytes = column_u64(st, 5), .received_bytes = column_u64(st, 6)};
		if ((r = fn(ctx, &s))) {
			sqlite3_reset(st);
			break;
		}
	}
	return r < 0 ? r : 0;
}
