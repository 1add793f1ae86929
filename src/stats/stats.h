/* Counters and log-linear histograms of durations, lock-free to record, usable from every layer.
 *
 * One struct stats per open volume. A histogram has 64 octaves of nanoseconds split in 8: a quantile is exact to 12.5 %.
 * Recording is two relaxed atomic adds and one compare: no lock, no allocation, no system call. There are several copies of everything, and a thread
 * records in that of the CPU on which it runs: threads that record at once do not take a cache line from each other, which costs ten times the adding.
 * Reading adds the copies up. */
#ifndef TWOFOLD_STATS_H
#define TWOFOLD_STATS_H
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

enum stat_timer { /* names in stats.c: op.NAME or stage.NAME */
	OP_LOOKUP, OP_GETATTR, OP_SETATTR, OP_CREATE, OP_MKDIR, OP_MKNOD, OP_SYMLINK, OP_LINK, OP_UNLINK, OP_RMDIR,
	OP_RENAME, OP_READLINK, OP_READ, OP_WRITE, OP_FSYNC, OP_FALLOCATE, OP_LSEEK, OP_COPY, OP_READDIR, OP_GETXATTR,
	OP_SETXATTR, OP_STATFS,
	STAGE_SEAL, STAGE_OPEN, STAGE_OBJECT_READ, STAGE_OBJECT_WRITE, STAGE_OBJECT_FLUSH, STAGE_REDO_APPEND,
	STAGE_REDO_FLUSH, STAGE_COMMIT, STAGE_WAL_FLUSH, STAGE_CHECKPOINT, STAGE_DELTA, STAGE_SEND, STAGE_APPLY,
	STAT_TIMERS
};
enum stat_counter {
	COUNT_OBJECT_BYTES_READ, COUNT_OBJECT_BYTES_WRITTEN, COUNT_REDO_BYTES, COUNT_SEALED_BYTES, COUNT_OPENED_BYTES,
	COUNT_AUTH_FAILURES, COUNT_WIRE_BYTES_SENT, COUNT_WIRE_BYTES_RECEIVED, COUNT_DELTA_BYTES_SAVED,
	COUNT_PARTS_SENT, COUNT_PARTS_RECEIVED, COUNT_BATCHES_APPLIED, COUNT_CONFLICTS, COUNT_HEALED_PAGES, COUNT_WRITE_ERRORS, STAT_COUNTERS
};

#define STAT_BUCKETS 512
struct histogram {
	_Atomic uint64_t bucket[STAT_BUCKETS];
	_Atomic uint64_t total_ns, max_ns;
};
#define STAT_COPIES 8 /* a power of two */
struct stat_copy {
	alignas(64) struct histogram timer[STAT_TIMERS];
	_Atomic uint64_t counter[STAT_COUNTERS];
};
struct stats {
	struct stat_copy copy[STAT_COPIES];
};
struct stat_summary {
	uint64_t count, total_ns, p50_ns, p99_ns, max_ns;
};

struct stats *stats_new(void); /* NULL without memory; stats_free */
void stats_free(struct stats *s);
uint64_t stats_now_ns(void);   /* monotonic */
/* s may be NULL in all of these: then nothing is recorded, and 0 is read. */
void stats_time(struct stats *s, enum stat_timer t, uint64_t duration_ns);
void stats_since(struct stats *s, enum stat_timer t, uint64_t start_ns);
void stats_add(struct stats *s, enum stat_counter c, uint64_t n);
void stats_reset(struct stats *s);
uint64_t stats_count(const struct stats *s, enum stat_counter c);
struct stat_summary stats_summary(const struct stats *s, enum stat_timer t);
const char *stats_timer_name(enum stat_timer t);     /* "op.lookup", "stage.seal" */
const char *stats_counter_name(enum stat_counter c); /* "bytes.object-read" */
#endif
