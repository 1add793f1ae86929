/* What the replication layer needs of a volume: knowledge, parts to send, contents to send, batches to apply, members and peers.
 * Nothing here knows a socket. Threads: any. */
#ifndef TWOFOLD_REPLICATE_H
#define TWOFOLD_REPLICATE_H
#include "volume.h"

/* Called (on the committer's thread, no locks held) after each flushed COMMIT: there may be something to send. */
void volume_set_commit_listener(struct volume *v, void (*fn)(void *ctx), void *ctx);
/* Knowledge as of the last flushed COMMIT: a cut (I7). ret is overwritten; vector_fini. */
int volume_knowledge(struct volume *v, struct vector *ret);
uint64_t volume_start_tag(struct volume *v); /* drawn at each start */

/* ---- starts (starts.c): is a store the only one that makes a replica's changes? ----
 * Each start of a replica draws a tag; the first change made under it gives the pair (first counter, tag). The pairs travel with the knowledge. Where two
 * replicas name different starts for one change, or somebody has more changes of a replica than that replica itself, a store was put back from a backup
 * or copied, and its changes from that one on are ambiguous. */
#define STARTS_MAX 4096u
struct start_tag {
	uint64_t replica, first_counter, tag;
};
struct doubt {
	uint64_t replica, from; /* its changes from this counter on */
	bool give_way;          /* of a third replica: it is us whose changes get new dots */
};
/* The pairs whose first change is inside of upto; malloc'ed. */
int volume_starts(struct volume *v, const struct vector *upto, struct start_tag **ret, uint32_t *ret_n);
/* Adds what a peer says; written with the next commit. -ENOMEM. */
int volume_starts_learn(struct volume *v, const struct start_tag *s, uint32_t n);
/* Compares a peer's knowledge and pairs with ours. 1 and *ret where they contradict (of us first, then of the peer), 0, -ENOMEM. */
int volume_starts_check(struct volume *v, uint64_t peer, const struct vector *knowledge, const struct start_tag *s, uint32_t n, struct doubt *ret);

/* ---- a new identity (renew.c) ---- */
struct identity {
	uint64_t replica;
	char name[33];
	uint8_t static_public[32];
};
/* This store was restored or copied: draws the identity that it is to take (flushed; asked again, the same one, with the smaller `from`). */
int volume_renew_prepare(struct volume *v, uint64_t from, struct identity *ret);
/* Takes the identity that was prepared: what is held of our own changes from the doubtful one on becomes changes of the new replica, and our knowledge ends before
 * it. No session may run. The header changes. 0; -ENOENT: nothing is prepared. */
int volume_renew(struct volume *v);
/* What is held of another replica's changes from `from` on becomes our own, and our knowledge of it ends before. */
int volume_disown(struct volume *v, uint64_t replica, uint64_t from);
/* A peer says that it goes on as another replica: makes that a member and a peer. 0 also where it is known already; -EEXIST: id or key belong to another. */
int volume_peer_renewed(struct volume *v, uint64_t peer, const struct identity *fresh);

/* ---- sending ---- */
/* Lists parts outside `have` and inside `upto` as of now, records verbatim, each as u32 length + bytes appended to out; parents before children, a
 * node's parts near its place. `*cursor` starts at 0 and is opaque; *ret_more says whether to call again. Up to max_rows / max_bytes a call.
 * A part that was replaced since `upto` was taken is left out (its newer version is outside `upto` and comes with the next batch). */
struct part_cursor {
	uint64_t replica, counter;
	bool done;
};
int volume_list_parts(struct volume *v, const struct vector *have, const struct vector *upto, struct part_cursor *cursor, uint32_t max_rows,
		      size_t max_bytes, struct buf *out, uint32_t *ret_rows);
/* What a peer with this knowledge lacks: parts, files (contents), bytes of contents, oldest clock. Cheap enough to call each second. */
struct backlog {
	uint64_t parts, files, bytes, oldest_ns;
};
int volume_backlog(struct volume *v, const struct vector *have, struct backlog *ret);

/* A content to send. `held`: what the receiver holds and could build on: the node's own contents or others named by it. */
struct held_content {
	struct id node;
	struct dot dot;
	struct root root; /* its content root */
};
enum content_form { FORM_WHOLE = 1, FORM_RANGES = 2, FORM_DELTA = 4 };
#define FORM_RESUME_RANGES 8u /* beside the forms allowed: of ranges on held[0] the receiver has those before the resume page; of other forms nothing */
struct content_source;
/* Chooses the cheapest allowed form (mask of content_form). has: the receiver's knowledge, NULL where it is not known: contents inside of it may serve as the base of a
 * delta though `held` does not name them; a receiver that lacks that one asks again. 0; -ESTALE: no such content here any more (GONE); -EBADMSG: it is damaged here. */
int content_source_open(struct volume *v, const struct id *node, struct dot dot, const struct held_content *held, uint32_t n_held,
			const struct vector *has, unsigned forms, uint64_t resume_page, struct content_source **ret);
/* Appends the next chunk (a body of DATA, at most max + 64 KiB bytes) to out. 1: more follows, 0: that was the last, negative: -ESTALE, -EBADMSG, -EIO. */
int content_source_next(struct content_source *s, size_t max, struct buf *out);
enum content_form content_source_form(const struct content_source *s);
uint64_t content_source_saved(const struct content_source *s); /* bytes of content that did not need to be sent */
void content_source_close(struct content_source *s);

/* ---- receiving ---- */
/* A batch as it arrives. One per connection at a time. Nothing becomes visible before batch_apply. */
struct batch;
int batch_new(struct volume *v, uint64_t from_replica, struct batch **ret);
void batch_free(struct batch *b); /* drops what was not applied; contents that arrived whole stay in incoming/ for the next try */
/* A content that the batch needs bytes for. */
struct content_want {
	struct id node;
	struct dot dot;
	uint64_t length;
	uint64_t resume_page;       /* that many leading pages are here already, */
	bool resume_ranges;         /* or those of ranges on held[0] */
	struct held_content *held;  /* owned by the batch */
	uint32_t n_held;
};
/* Takes one record (copied). Old (its dot is in our knowledge) or beaten ones are dropped silently, invalid ones refused: logged, counted,
 * and 0 is returned (the rest of the batch goes on, I8). -ENOMEM, -EIO. */
int batch_part(struct batch *b, const uint8_t *record, size_t len);
/* Is something not shown here for lack of its bytes, for which peers are still being asked? False where all of them had to say that they have none. */
bool volume_awaits_contents(struct volume *v);
/* Hands out wants one after the other: 1 and *ret (valid until batch_apply or batch_free), 0: none (now). */
int batch_next_want(struct batch *b, const struct content_want **ret);
/* One chunk of an answer, in order; last: that was the end. 0: go on; 1: complete and verified (root agrees); -EPROTO: malformed; -EBADMSG: does not
 * verify; -ENODATA: it builds on something that we do not hold (ask again for FORM_RANGES or FORM_WHOLE only); -ENOSPC, -EIO. */
int batch_content(struct batch *b, const struct content_want *w, const uint8_t *chunk, size_t len, bool last);
/* The sender has it no more (GONE): the part is left out of this batch. */
int batch_content_gone(struct batch *b, const struct content_want *w);
bool batch_complete(const struct batch *b); /* no want is open */
/* Applies all parts in one transaction and flushes. end: the sender's knowledge at its cut, joined into ours (NULL: a step of a catching-up batch, nothing
 * is joined). After it the batch is empty and can take more. 0, or an error after which nothing of it was applied. -EAGAIN: the base of a content changed
 * here since it was asked for; batch_next_want hands such contents out again (as a whole), then apply once more. */
int batch_apply(struct batch *b, const struct vector *end);

/* ---- members and peers ---- */
int volume_members(struct volume *v, struct member **ret, uint64_t **ret_replicas, uint32_t *ret_n); /* malloc'ed arrays */
int volume_set_member(struct volume *v, uint64_t replica, const struct member *m); /* a part; commits */
/* By static key: 0 and the replica; -ENOENT: unknown; -EACCES: removed. */
int volume_member_by_key(struct volume *v, const uint8_t static_public[static 32], uint64_t *ret_replica, struct member *ret);
/* Local settings of a peering (not replicated). */
struct peer_config {
	uint64_t replica;
	char address[256]; /* to dial; empty: it dials us */
	bool paused;
};
int volume_peers(struct volume *v, struct peer_config **ret, uint32_t *ret_n);
int volume_set_peer(struct volume *v, const struct peer_config *p); /* commits */
int volume_drop_peer(struct volume *v, uint64_t replica);
/* What a peer has acknowledged (durable there), kept over restarts, for state, backlog, bases. */
int volume_peer_knowledge(struct volume *v, uint64_t replica, struct vector *ret);
int volume_set_peer_knowledge(struct volume *v, uint64_t replica, const struct vector *k);
/* Tokens of invitations: made by invite, used once. 0; -ENOENT unknown; -ETIME expired; -EALREADY used. use marks it used and flushes before it returns. */
int volume_token_add(struct volume *v, const uint8_t id[static 16], const uint8_t secret[static 32], uint64_t expires_wall_ns);
int volume_token_secret(struct volume *v, const uint8_t id[static 16], uint8_t ret_secret[static 32]);
int volume_token_use(struct volume *v, const uint8_t id[static 16]);
/* fsync=peer|all: 1 if a peer (FSYNC_PEER) or every one that is not paused and was not removed (FSYNC_ALL) has acknowledged all of upto, else 0. Peers
 * named in `behind` count as not having it. */
int volume_peers_have(struct volume *v, enum fsync_mode mode, const struct vector *upto, const uint64_t *behind, uint32_t n_behind);
#endif
