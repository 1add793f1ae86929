/* Looking at all that a store holds (twofold check, scrub): records, links, contents, and whether they agree with the roots that authenticate them.
 * Runs beside everything else, in small steps; any thread. */
#ifndef TWOFOLD_CHECK_VOLUME_H
#define TWOFOLD_CHECK_VOLUME_H
#include "heal.h"

struct check_options {
	bool repair;        /* heal from peers what can be healed; set aside what belongs to nothing */
	bool deep;          /* open every page; else page tags alone */
	uint64_t rate;      /* bytes per second, 0: as fast as it goes */
	uint64_t after;     /* resume: contents of nodes after this one */
	/* One finding, in words. May be NULL. */
	void (*say)(void *ctx, const char *text);
	/* Now and then: false ends the check. done and total are rows; at: to resume from. May be NULL. */
	bool (*progress)(void *ctx, uint64_t done, uint64_t total, uint64_t at, uint64_t bytes);
	void *ctx;
};
struct check_result {
	uint64_t records, bad_records; /* missing, old, or not opening */
	uint64_t links, bad_links;     /* without their node or directory */
	uint64_t bad_counts;           /* nodes whose links were counted otherwise */
	uint64_t files, bytes;         /* contents that are objects */
	uint64_t bad_files, bad_pages, lacking; /* lacking: no bytes here yet, peers are asked */
	uint64_t orphans;              /* files in objects/ that nothing names */
	uint64_t healed, set_aside;
	bool bad_root;                 /* the records do not add up to what was last committed: one was removed or put back */
	bool stopped;
};
static inline bool check_is_sound(const struct check_result *r)
{
	return !r->bad_records && !r->bad_links && !r->bad_counts && !r->bad_files && !r->orphans && !r->bad_root;
}
/* 0 (also where damage was found), -ENOMEM, -EIO. What was healed or set aside is not counted as bad any more. */
int volume_check(struct volume *v, const struct check_options *o, struct check_result *ret);
/* Looks at all records and heals from peers those that are bad: how many are left. */
int volume_check_records(struct volume *v, const struct check_options *o, struct check_result *ret);
#endif
