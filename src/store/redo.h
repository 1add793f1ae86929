/* The redo log: format, appending, flushing, halves (design-store 4).
 *
 * STORE/redo, preallocated. Four slots of 4096 bytes, then zeros up to REDO_HEAD, then two halves of equal length.
 * Slots 2*h and 2*h + 1 name the generation of half h, written in turn; the valid one with the larger generation counts:
 *   magic "TWFREDO1" | format u32 | half u32 | generation u64 | volume 16 | zeros | at 4064 keyed MAC.
 * A half's records stand back to back from its start, each at a multiple of 64:
 *   magic "TWFREC1\0" | generation u64 | txn u64 | local u64 | mtime s64 | durable generation u64 | durable offset u32 |
 *   own offset u32 | kind u16 | count u16 | end before u32 | count items | keyed MAC 32 over all before it | zeros up to a multiple of 64 |
 *   count sealed pages.
 * Item of a page: page u64, entry before 32, entry 32. Item of a cancel record: first u64, count u64.
 *
 * The generation makes emptying a half one small write: records of another generation are not there. While one half is
 * written in place the other takes records; generations only grow, so the halves are replayed in their order.
 *
 * The MAC is keyed because replay changes a content's root by the differences that records name: an unkeyed checksum
 * would let anybody who can write to the store put an old page back and have the root follow it. It covers
 * header and entries, not the sealed pages: these are authenticated by their entries, and replay opens each.
 *
 * "end before": where the half of the generation before ended, so that records missing at its end show.
 *
 * "durable" is the place up to which the log was flushed when the record was appended: damage before it is damage
 * (-EUCLEAN); damage after the last such place is what a power cut leaves of a log that was not flushed, and ends it. */
#ifndef TWOFOLD_REDO_H
#define TWOFOLD_REDO_H
#include "object.h"

#include <pthread.h>
#include <sys/uio.h>

#define REDO_HEAD (32u << 10)
#define REDO_ALIGN 64
#define REDO_RECORD_HEAD 64
#define REDO_PAGE_ITEM 72
#define REDO_CANCEL_ITEM 16
#define REDO_MAC 32
#define REDO_PAGES_MAX GROUP_PAGES /* of one record */
#define REDO_HEAD_MAX (REDO_RECORD_HEAD + REDO_PAGES_MAX * REDO_PAGE_ITEM + REDO_MAC + REDO_ALIGN)
#define REDO_MIN_BYTES (REDO_HEAD + 2u * (1u << 20)) /* two records of the largest size fit a half */

enum redo_kind { REDO_LOCAL = 1, REDO_REMOTE = 2, REDO_CANCEL = 3 };

struct redo_record {
	uint64_t generation, txn, local;
	int64_t mtime_ns;
	uint64_t durable_generation;
	uint32_t durable_off, off;
	uint32_t kind, count, end_before;
	const uint8_t *items; /* borrowed */
};
/* Bytes before the sealed pages, and of the whole record. */
uint32_t redo_head_len(uint32_t kind, uint32_t count);
uint32_t redo_record_len(uint32_t kind, uint32_t count);
/* Writes the head (redo_head_len bytes, items included from r->items, which may already stand at their place in p). */
void redo_record_put(const struct keyring *k, const struct redo_record *r, uint8_t *p);
/* Parses what stands at p. 0 and the length of the whole record, which lies within len; -EUCLEAN. k NULL: without the MAC, for
 * the fuzz target. */
int redo_record_parse(const struct keyring *k, const uint8_t *p, size_t len, struct redo_record *ret, uint32_t *ret_len);

struct redo_half {
	uint64_t generation;
	uint32_t pos;      /* where the next record goes; 0: empty */
	uint32_t users;    /* appended, not published yet */
	uint64_t last_txn; /* largest of its records */
	uint32_t zeroed;   /* up to here its blocks have been written once */
	uint8_t slot;      /* the valid one; the other one is written next, so that a torn write costs nothing */
};
struct redo_append { /* in flight; lives in the appender's frame */
	struct redo_append *next;
	uint64_t lsn; /* where it starts */
	uint8_t half;
	uint64_t generation;
};
struct redo {
	int fd; /* -1: read-only and not there */
	uint32_t half_len;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t changed;
	struct redo_half half[2];
	uint8_t active;
	bool flushing;
	bool need_replay;    /* had records when opened; nothing is appended */
	bool replayed;       /* they were replayed: nothing is appended until the checkpoint */
	int error;           /* sticky */
	uint64_t lsn;        /* bytes ever appended in this open */
	uint64_t durable;    /* of these, flushed */
	uint64_t durable_generation;
	uint32_t durable_off; /* the same as a place */
	uint64_t max_txn, max_local; /* largest in the log when it was opened */
	struct redo_append *writing;
};

void redo_switch(struct redo *l); /* the empty half takes records now; lock held */
void redo_worker_start(struct object_store *s); /* lock held */
int redo_open(struct object_store *s);
void redo_close(struct object_store *s);
/* Makes the empty log of the given length at STORE/redo. */
int redo_make(int dirfd, const struct keyring *k, const struct env *env, uint64_t len_bytes);
/* Reads a half whole: *ret_bytes malloc'ed. */
int redo_half_read(struct object_store *s, uint8_t half, uint8_t **ret_bytes);
/* The intact records at the start of a half: their end, what they hold at most. *ret_end is where the first one that is not intact
 * would stand. */
void redo_half_scan(struct object_store *s, const uint8_t *p, uint64_t generation, uint32_t *ret_end, uint64_t *ret_max_txn,
		    uint64_t *ret_max_local);
/* Appends one record: items stand at head + REDO_RECORD_HEAD, pages are n_iov pieces. r->generation and the places are filled in.
 * 0: redo_published must follow; -EAGAIN: no room; -EROFS, -EIO, ... */
int redo_append(struct object_store *s, struct redo_record *r, uint8_t *head, struct iovec *pages, int n_iov,
		struct redo_append *ret);
void redo_published(struct object_store *s, struct redo_append *a);
bool redo_has_generation(struct object_store *s, uint64_t generation);
int redo_flush(struct object_store *s);
/* Gives half a new generation and flushes that. Its records must be in place, synced and committed. */
int redo_empty(struct object_store *s, uint8_t half);
#endif
