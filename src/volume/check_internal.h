/* Shared by check.c and check_records.c. */
#ifndef TWOFOLD_CHECK_INTERNAL_H
#define TWOFOLD_CHECK_INTERNAL_H
#include "check_volume.h"
#include "internal.h"

struct check {
	struct volume *v;
	const struct check_options *o;
	struct check_result *r;
	uint64_t row, rows, started_ns, paced;
	uint64_t txn;    /* of the volume when it began: counts are compared only while nothing was committed since */
	uint32_t *count, *subdirs; /* owned; live links seen by node row; those of directories, by the row of their directory. Both or none */
	uint64_t n_count;
	uint32_t step;
};
void check_say(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int check_records(struct check *c); /* check_records.c */
#endif
