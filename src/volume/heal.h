/* Healing: what is damaged in this store is taken from a peer that holds the same, verified, and written back (design-store 3: I2, I4).
 *
 * Nothing is guessed and nothing is believed: a page has to open under the entry that stands here; entries have to add up to the root that the content
 * record names. One thread of the volume works off a queue of files; a reader that met a damaged page waits for it, bounded. What cannot be
 * healed now (no peer, or none that has it) is tried again when a peer comes and every minute. Any thread. */
#ifndef TWOFOLD_HEAL_H
#define TWOFOLD_HEAL_H
#include "volume.h"
#include "replicate.h"

#define HEAL_PAGES_MAX 64u     /* pages in one answer */
#define HEAL_ENTRIES_MAX 8192u /* entries in one answer */
#define HEAL_WAIT_MS 10000
#define HEAL_RECORD_MAX 262144u
enum heal_what { HEAL_PAGES = 1, HEAL_ENTRIES = 2, HEAL_RECORD = 3 };
/* What is asked of a peer. Answer: count entries of 32 bytes (those of holes: zeros), then, for pages, count sealed pages. A record is
 * asked for by its dot: replica in the first 8 bytes of `object` (little-endian), counter in `first`, count 1; answer: the record. */
struct heal_need {
	enum heal_what what;
	struct id node, object;
	uint32_t epoch;
	struct root root; /* of the content; for entries the peer's has to be the same */
	uint64_t first;
	uint32_t count;
};
/* Of a record: 0, it has any length up to HEAL_RECORD_MAX. */
size_t heal_answer_len(const struct heal_need *n);
/* Answers a peer: appends to out. 0; -ENOENT: not held here; -EIO, ... Nothing is verified here: the asker does. */
int volume_heal_serve(struct volume *v, const struct heal_need *n, struct buf *out);

/* How peers are asked: blocks until one answered (0, ret filled to the exact length); -ENOTCONN: none is there; -ENOENT: none of them has it. attempt: counts
 * up from 0 as answers turn out to be of no use; -ENOENT where no further peer is left. NULL: nobody can be asked any more; returns when none is being asked. */
typedef int heal_fetch_fn(void *ctx, const struct heal_need *n, unsigned attempt, struct buf *ret);
void volume_heal_set_fetch(struct volume *v, heal_fetch_fn *fn, void *ctx);
void volume_heal_poke(struct volume *v); /* a peer has come: try again what could not be healed */

/* Queues a file. page: the one that is waited for. */
void volume_heal_note(struct volume *v, inum ino, uint64_t page);
/* Queues it and waits until the page was healed (0) or cannot be now (-EBADMSG). */
int volume_heal_wait(struct volume *v, inum ino, uint64_t page, int timeout_ms);
struct heal_status {
	uint64_t healed_pages, healed_files, waiting; /* files that could not be healed yet */
};
void volume_heal_status(struct volume *v, struct heal_status *ret);

/* Looks at a file's bytes and returns how many pages are damaged (entries that do not add up count as one). deep: opens every page, else entries alone. The
 * bytes read are added to *ret_bytes. 0; -ESTALE: no such file any more; -EIO. pace (may be NULL) is called after each group of pages. */
struct verify_result {
	uint64_t bytes, bad_pages, first_bad;
	bool missing;      /* its object's file is not there, or is another one */
	bool bad_entries;  /* old pages put back, or damaged tags */
	bool stopped;
};
int volume_verify_file(struct volume *v, inum ino, bool deep, bool (*pace)(void *ctx, uint64_t bytes), void *ctx, struct verify_result *ret);
/* Heals a file now, in the calling thread: 0: all of it is sound; -ENOTCONN, -ENOENT, -EBADMSG: what is left cannot be healed now. */
int volume_heal_file(struct volume *v, inum ino);

int heal_fetch_record(struct volume *v, struct dot dot, struct buf *ret); /* not verified */
int healer_start(struct volume *v);
void healer_stop(struct volume *v);
#endif
