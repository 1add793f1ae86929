/* How far a long command is: one line on a terminal, drawn anew in place; nothing in a pipe. The line is at most 79 columns wide, so that it never
 * wraps and can be wiped. A command that runs in the daemon puts the same line into what it sends to standard error (progress_put), where the
 * command line asked for it because its own standard error is a terminal. */
#ifndef TWOFOLD_PROGRESS_H
#define TWOFOLD_PROGRESS_H
#include <pthread.h>
#include <stdarg.h>
#include "bytes.h"

bool progress_wanted(void); /* standard error is a terminal */
/* Appends the line, behind what wipes the one before. */
void progress_put(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_wipe(struct buf *out);
/* The same on this process's own standard error. progress_end wipes it, where something was shown. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

/* How much longer, from the part that is done (0 to 1) since started_ns of mono_ns: ", about 12 s left", or "" where that cannot be told yet. */
#define PROGRESS_LEFT_MAX 40
const char *progress_left(uint64_t started_ns, double part, char ret[static PROGRESS_LEFT_MAX]);

/* For one call that cannot say how far it is, as the derivation of a key: shows `what` and the seconds since, from a thread of its own, until
 * progress_wait_end. `what` is borrowed until then. */
struct progress_wait {
	const char *what; /* NULL: nothing is shown */
	pthread_t thread;
	pthread_mutex_t lock; /* protects done */
	pthread_cond_t wake;
	bool done;
};
void progress_wait_begin(struct progress_wait *w, const char *what);
void progress_wait_end(struct progress_wait *w);
#endif
