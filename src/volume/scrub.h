/* Scrub: the whole store is looked at in the background, when nothing else wants the disk, and what is damaged is healed from peers. When the last one ended, how
 * far an unfinished one came, and what it found stands in the journal, so that a restart goes on where it was. Any thread. */
#ifndef TWOFOLD_SCRUB_H
#define TWOFOLD_SCRUB_H
#include "check_volume.h"

#define SCRUB_WEEKLY_S (7u * 86400)
struct scrub_status {
	bool running;
	uint64_t done, total;            /* rows of the one that runs */
	uint64_t ended_s;                /* wall clock; 0: never */
	uint64_t found, healed, bytes;   /* of the last one that ended */
	uint64_t period_s;               /* 0: off */
};
int scrub_start(struct volume *v, uint64_t period_s, uint64_t rate); /* its thread; 0: only when asked */
void scrub_stop(struct volume *v);
int volume_scrub_now(struct volume *v); /* -EALREADY: one runs; -ENOSYS: this process scrubs nothing */
void volume_scrub_status(struct volume *v, struct scrub_status *ret);
#endif
