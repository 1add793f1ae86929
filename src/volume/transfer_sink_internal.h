/* Inside transfer_sink*.c. */
#ifndef TWOFOLD_TRANSFER_SINK_INTERNAL_H
#define TWOFOLD_TRANSFER_SINK_INTERNAL_H
#include "transfer_internal.h"
#include <librsync.h>

#define TRANSFER_NAME_MAX 96

/* A group of a delta that was announced and whose pages are not there yet. */
struct delta_group {
	uint8_t entries[TRANSFER_RUN_PAGES * TAG_ENTRY_LEN]; /* nonces; tags are filled in by sealing */
	uint8_t hash[GROUP_HASH_LEN];
	uint8_t count;
};
/* The announced groups, kept as they came (runs, not entries): a copy that spans the file announces all of it. */
struct group_queue {
	struct buf bytes;
	size_t at;
};

#define SPOOL_SUFFIX ".ranges"
/* Sealed pages of a RANGES answer, see transfer_spool.c. */
struct spool {
	int fd;        /* -1: none */
	uint64_t n;    /* pages */
	uint64_t next; /* page after the last */
	struct extents pages;
	struct root sum; /* of the pages' terms */
	struct held_content base;
	bool named; /* it has a name, or cannot have one */
};

struct transfer_sink {
	struct transfer_env e;
	struct transfer_lookup l;
	struct id node;
	struct dot dot;
	struct content target; /* owned */
	struct page_stream stream; /* of the target; not readable */
	char name[TRANSFER_NAME_MAX];
	struct object *object; /* incoming, WHOLE and DELTA */
	uint64_t resume_pages;
	enum content_form form;
	bool started, complete, written;
	uint64_t next_page; /* items ascend */
	struct held_content base_name;
	struct transfer_content base;
	struct page_sealer *sealer;
	struct spool spool;
	const struct object *writing; /* ranges are (half) written into it; only compared */
	/* DELTA */
	struct page_stream base_stream;
	rs_job_t *job;
	uint64_t rank, announced; /* pages of the stream written; pages that groups were announced for */
	struct group_queue groups;
	uint8_t *plain; /* owned: pages of the group being rebuilt */
	size_t filled;
	int read_error; /* of the base, from inside librsync */
	bool patched;
};

/* transfer_spool.c */
int spool_open(struct transfer_sink *s);   /* an empty one, on base_name */
int spool_resume(struct transfer_sink *s); /* what an earlier try left, if anything: then spool.fd >= 0. 0, -ENOMEM, -EIO. The sealer must be there. */
int spool_add(struct transfer_sink *s, uint64_t first, uint32_t n, const uint8_t *entries, const uint8_t *sealed);
int spool_read(const struct spool *p, uint64_t at, uint32_t n, uint8_t *ret_entries, uint8_t *ret_sealed); /* at: counted in pages of the spool; n <= 64 */
void spool_close(struct transfer_sink *s, bool keep); /* keep: for the next try */
bool content_has_page(const struct content *c, uint64_t page); /* within its length and in no hole */

/* transfer_patch.c */
int delta_start(struct transfer_sink *s);
int delta_group_item(struct transfer_sink *s, struct reader *r);
int delta_bytes_item(struct transfer_sink *s, struct reader *r);
int delta_end(struct transfer_sink *s);
void delta_fini(struct transfer_sink *s);
#endif
