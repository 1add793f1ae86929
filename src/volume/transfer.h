/* How the content of one node travels: the chunks, who makes them and who takes them apart.
 *
 * Only contents that are objects travel like this (inline ones stand in their record). Both sides hold the content record, so the receiver knows
 * length, holes, object id, epoch and root before the first byte arrives, and nothing of it is believed from a chunk.
 *
 * Format 1 (little-endian). The chunks of one answer arrive in order:
 *   chunk   = version u8 (1) | flags u8 (1: first, 2: last, 4: goes on with ranges; only in the first) | [header, where first] | item*
 *   header  = form u8 | node 16 | replica u64 | counter u64 | object 16 | epoch u32 | length u64 | root 32 |
 *             WHOLE:  first page u64: those before it are there already
 *             RANGES, DELTA: base = node 16 | replica u64 | counter u64 | root 32 | [first page u64, where it goes on: those before it are there already]
 *   item    = kind u8 | body:
 *     1 pages  first u64 | count u8 (1..64) | nonces | tag 16 * count | sealed page 4096 * count     (WHOLE, RANGES)
 *     2 group  count u8 (1..64) | nonces | BLAKE2b-256 of the count tags                             (DELTA)
 *     3 bytes  length u32 (1..65,536) | that much of a librsync delta                                (DELTA)
 *   nonces  = runs u8 (1..count) | (prefix 10 | counter u48 | count u8) * runs: page i of a run has counter + i
 *
 * Pages of items ascend and are neither in holes nor beyond the end. WHOLE: all present pages from `first page` on. RANGES: the base's pages stay but for those that
 * are sent, in holes or beyond the end.
 * DELTA: the *stream* of a content is all of its present pages, whole (4096 bytes, the last with whatever stands beyond the length), one after the
 * other. The delta makes the new stream from that of the base. A group stands before the delta's bytes that make its pages, each of 64 pages of the
 * stream, the last one shorter. The receiver seals rebuilt pages with the nonces in memory; only when the hash of their tags agrees is anything
 * written: another plaintext sealed under a used nonce must never reach a disk.
 * At the end the content root must be that of the record. */
#ifndef TWOFOLD_TRANSFER_H
#define TWOFOLD_TRANSFER_H
#include "replicate.h"

#define TRANSFER_VERSION 1
#define TRANSFER_RUN_PAGES 64
#define TRANSFER_BYTES_MAX 65536u
/* A delta needs memory for signatures (sender) and pending groups (receiver). */
#define TRANSFER_DELTA_PAGES_MIN 4
#define TRANSFER_DELTA_PAGES_MAX (UINT64_C(1) << 22) /* 16 GiB present */

struct object_store;
struct object;
struct transfer_env { /* borrowed */
	struct object_store *objects;
	const struct keyring *keys;
	struct stats *stats; /* may be NULL */
	int dirfd;           /* of the store */
};
/* A content and its object. */
struct transfer_content {
	struct content content; /* owned */
	struct object *object;  /* owned handle; NULL: inline */
};
void transfer_content_fini(struct transfer_content *c);
/* What a transfer asks of the volume. Results are owned by the asker. */
struct transfer_lookup {
	/* The content named by (node, dot) as it is held now. -ESTALE: it is not. */
	int (*find)(void *ctx, const struct id *node, struct dot dot, struct transfer_content *ret);
	/* The step that led to the node's present content. -ENOENT. NULL where never needed (receiver). */
	int (*step)(void *ctx, const struct id *node, struct dot *ret_from, struct dot *ret_to, struct extents *ret_ranges);
	/* The replaced content that is kept for deltas of this node. -ENOENT. NULL where never needed. */
	int (*base)(void *ctx, const struct id *node, struct id *ret_base_node, struct dot *ret_dot, struct transfer_content *ret);
	void *ctx;
};

/* ---- sending: as content_source_* of replicate.h, which is this on a volume ---- */
struct transfer_source;
/* What a delta may build on beside the base that is kept: contents that the receiver says it holds, and others that it should hold by its knowledge (near; their
 * roots are not looked at). Which of them is worth it is found out by samples. */
struct transfer_bases {
	const struct held_content *held, *near;
	uint32_t n_held, n_near;
};
int transfer_source_open(const struct transfer_env *e, const struct transfer_lookup *l, const struct id *node, struct dot dot,
			 const struct transfer_bases *bases, unsigned forms, uint64_t resume_page, struct transfer_source **ret);
int transfer_source_next(struct transfer_source *s, size_t max, struct buf *out);
enum content_form transfer_source_form(const struct transfer_source *s);
uint64_t transfer_source_saved(const struct transfer_source *s);
void transfer_source_close(struct transfer_source *s);

/* ---- receiving ---- */
/* One content that arrives. Used by one thread at a time. WHOLE and DELTA build incoming/NAME, RANGES keeps the sealed pages in a file of their own until
 * they are written into an object. Nothing that is held is touched before the caller says so. */
struct transfer_sink;
/* target: the content of the record (copied); must be an object. *ret_resume_page: leading pages that an earlier try has left in incoming/; or see resume_ranges.
 * 0, -EINVAL (inline), -ENOMEM, -EIO. */
int transfer_sink_new(const struct transfer_env *e, const struct transfer_lookup *l, const struct id *node, struct dot dot, const struct content *target,
		      struct transfer_sink **ret, uint64_t *ret_resume_page);
/* The next chunk. 0: go on; 1: that was the last, everything agrees (root included); -EPROTO: malformed; -EBADMSG: does not verify; -ENODATA: it
 * builds on what we do not hold, or hold differently: ask again for another form; -ENOSPC, -EIO, -ENOMEM. After an error only transfer_sink_free, or
 * a new answer from its first chunk (all but -ENOMEM and disk errors). */
int transfer_sink_feed(struct transfer_sink *s, const uint8_t *chunk, size_t len);
/* Leading pages that need not be asked for; 0 after what had arrived was found wrong. */
uint64_t transfer_sink_resume_page(const struct transfer_sink *s);
/* What an earlier try has left of ranges: the content that they build on (borrowed), and the page from which on they are missing. NULL: nothing. */
const struct held_content *transfer_sink_resume_ranges(const struct transfer_sink *s, uint64_t *ret_page);
enum content_form transfer_sink_form(const struct transfer_sink *s);
/* After feed returned 1. WHOLE, DELTA: the complete object, still in incoming/ (object_adopt it); the caller's from now on. NULL for RANGES. */
struct object *transfer_sink_take_object(struct transfer_sink *s);
/* After feed returned 1, RANGES: the base (its content must still have that root when the pages are written), the pages that came, and writing
 * them into an object that holds the base's pages: the node's own, or a copy. The object is then also resized and punched as the record
 * says. -EAGAIN: the redo log is full; call again after a commit. -EBADMSG: the object is not the base (nothing was written), or its root is not
 * the record's afterwards. */
const struct held_content *transfer_sink_base(const struct transfer_sink *s);
const struct extents *transfer_sink_pages(const struct transfer_sink *s); /* borrowed; pages sent */
/* Pages that differ from the base: sent ones and new holes; for notices and the step. ret is overwritten. */
int transfer_sink_changed(const struct transfer_sink *s, struct extents *ret);
bool transfer_sink_fits(struct transfer_sink *s, struct object *o); /* Is o the base, or half written already? */
int transfer_sink_write_ranges(struct transfer_sink *s, struct object *o, int64_t mtime_ns);
/* Closes; what arrived stays in incoming/ for the next try, unless it was found wrong or was written (of RANGES: where it is a MiB or more). */
void transfer_sink_free(struct transfer_sink *s);
#endif
