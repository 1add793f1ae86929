/* One connection between two replicas as a passive, single-threaded state machine: messages, pokes and ticks in, messages and calls of the
 * volume out. It knows neither sockets nor threads nor the real clock, so that tests and the simulation drive it as the engine does.
 *
 * Both sides send and receive at once:
 *   sender    idle -> BATCH, PART.., END (a step), again .., END with the cut's knowledge -> ACK of each -> idle
 *             at most one batch at a time; of a catching-up batch one step may be sent before the step before is acknowledged
 *   contents  GET opens a source; up to SERVE_ACTIVE sources take turns in giving DATA, the last chunk closes; GONE instead
 *   receiver  BATCH -> records and wants -> GETs (at most ASKED_MAX, ASKED_BIG_MAX of them big) -> END seen and complete -> apply -> ACK;
 *             what comes of the next step meanwhile is kept aside (one step, bounded)
 *             between batches it asks for contents that are held without their bytes, after HELLO, after each cut and each LOOK_NS
 *   starts    compared at HELLO, and where STARTS came, at END (session_starts.c). Where they contradict, nothing more is sent or taken but RENEW: the restored
 *             or copied side says as whom it goes on, the other one notes that and says BYE
 * Everything the peer says is bounded; what breaks the protocol ends the session with BYE and leaves the volume as it was. Output is made only
 * while less than OUTPUT_MAX bytes wait in the channel, so that a peer that stops reading costs no memory. */
#ifndef TWOFOLD_SESSION_H
#define TWOFOLD_SESSION_H
#include "message.h"

#define STEP_ROWS 4096u            /* parts in a step of a catching-up batch */
#define STEP_BYTES (8u << 20)
#define LIVE_ROWS 1000u            /* beyond: the peer is catching up */
#define LIVE_BYTES (64u << 20)
#define BATCH_ROWS_MAX 65536u      /* a receiver refuses more in one batch or step */
#define BATCH_BYTES_MAX (64u << 20)
#define SERVE_MAX 2048u            /* GETs of a peer that wait here */
#define SERVE_ACTIVE 16u
#define ASKED_MAX 1024u            /* our GETs under way */
#define ASKED_BIG_MAX 4u
#define ASKED_BIG_BYTES (1u << 20) /* longer contents are big */
#define CHUNK_BYTES (128u << 10)
#define OUTPUT_MAX (4u << 20)
#define PING_NS (15ull * 1000000000)
#define SILENCE_NS (120ull * 1000000000) /* nothing heard for so long: dead (a long apply is silent; the network's death shows earlier) */
#define LOOK_NS (1000ull * 1000000)      /* between looks for contents that are held without their bytes; the volume says which are due */
#define REPLACED_NS (60ull * 1000000000) /* for so long at most a content that changed while it was sent holds up who waits for the peer */
#define DOUBT_NS (60ull * 1000000000) /* a restored or copied peer has so long to say RENEW */
#define RETRY_NS (30ull * 1000000000)    /* after a batch of which the peer could not take all */

/* What a session calls of the volume: the functions of replicate.h, or a test's. */
struct session_volume {
	struct volume *v;
	int (*knowledge)(struct volume *v, struct vector *ret);
	uint64_t (*start_tag)(struct volume *v);
	int (*live_root)(struct volume *v, struct root *ret);
	int (*list_parts)(struct volume *v, const struct vector *have, const struct vector *upto, struct part_cursor *cursor, uint32_t max_rows,
			  size_t max_bytes, struct buf *out, uint32_t *ret_rows);
	int (*backlog)(struct volume *v, const struct vector *have, struct backlog *ret);
	int (*source_open)(struct volume *v, const struct id *node, struct dot dot, const struct held_content *held, uint32_t n_held,
			   const struct vector *has, unsigned forms, uint64_t resume_page, struct content_source **ret);
	int (*source_next)(struct content_source *s, size_t max, struct buf *out);
	uint64_t (*source_saved)(const struct content_source *s);
	void (*source_close)(struct content_source *s);
	int (*batch_new)(struct volume *v, uint64_t from_replica, struct batch **ret);
	void (*batch_free)(struct batch *b);
	int (*batch_part)(struct batch *b, const uint8_t *record, size_t len);
	int (*batch_next_want)(struct batch *b, const struct content_want **ret);
	int (*batch_content)(struct batch *b, const struct content_want *w, const uint8_t *chunk, size_t len, bool last);
	int (*batch_content_gone)(struct batch *b, const struct content_want *w);
	bool (*batch_complete)(const struct batch *b);
	int (*batch_apply)(struct batch *b, const struct vector *end);
	int (*set_peer_knowledge)(struct volume *v, uint64_t replica, const struct vector *k);
	int (*heal_serve)(struct volume *v, const struct heal_need *n, struct buf *out); /* or NULL */
	struct stats *stats; /* or NULL */
	/* NULL, all six: starts are not compared */
	int (*starts)(struct volume *v, const struct vector *upto, struct start_tag **ret, uint32_t *ret_n);
	int (*starts_learn)(struct volume *v, const struct start_tag *s, uint32_t n);
	int (*starts_check)(struct volume *v, uint64_t peer, const struct vector *knowledge, const struct start_tag *s, uint32_t n, struct doubt *ret);
	int (*renew_prepare)(struct volume *v, uint64_t from, struct identity *ret);
	int (*disown)(struct volume *v, uint64_t replica, uint64_t from);
	int (*peer_renewed)(struct volume *v, uint64_t peer, const struct identity *fresh);
};
void session_volume_real(struct volume *v, struct session_volume *ret); /* session_volume.c */

struct session_io {
	/* Queues a message (copied). 0 or -ENOMEM, or what the channel says; then the session is over. */
	int (*send)(void *ctx, uint8_t type, uint32_t request, const void *body, size_t len);
	size_t (*queued)(void *ctx);  /* bytes that wait to go out */
	/* The answer to session_ask_pages, borrowed; NULL: the peer does not hold them. May be NULL: nothing is asked for. */
	void (*pages)(void *ctx, uint32_t request, const uint8_t *pages, size_t len);
	void (*changed)(void *ctx);   /* what the peer has, or our knowledge by a batch, grew; may be NULL */
	void *ctx;
};
struct session_config {
	struct session_volume volume;
	struct session_io io;
	const struct env *env;  /* mono_ns is used */
	bool left_replaced;     /* what session_left_replaced was at the end of the session with it before */
	uint64_t replica, peer; /* ours, and the one whose static key the channel has proved */
};
struct session;
int session_new(const struct session_config *c, struct session **ret);
void session_free(struct session *s); /* NULL is legal */
/* Sends HELLO. All that follow: 0, or a negative errno: the session is over (BYE was queued where there is something to say), session_error says why;
 * flush the channel and close it. */
int session_start(struct session *s);
/* One message came in. The body is borrowed for the call. -ECONNRESET: the peer said BYE. */
int session_receive(struct session *s, uint8_t type, uint32_t request, const uint8_t *body, size_t len);
/* Does one bounded piece of work. 1: there is more to do now; 0: wait for a message, room in the output, a poke or a tick. */
int session_work(struct session *s);
void session_poke(struct session *s); /* something was committed here */
int session_tick(struct session *s);  /* call once a second or so */
/* Asks the peer for pages or entries of a content (heal.h): io.pages has the answer. -ENOTCONN: it cannot be asked. */
int session_ask_pages(struct session *s, uint32_t request, const struct heal_need *n);
bool session_can_heal(const struct session *s);
/* Queues a BYE; the session is over. */
void session_bye(struct session *s, enum bye_code code, const char *text);

bool session_is_up(const struct session *s);                      /* HELLO has come */
const struct vector *session_peer_has(const struct session *s);   /* borrowed; what the peer has said it holds durably */
uint64_t session_peer_tag(const struct session *s);               /* drawn at the peer's start */
/* Has the peer acknowledged contents whose bytes it did not get, as they changed meanwhile? They come with a later batch. Then what it has said that it
 * holds is no promise of durability. */
bool session_left_replaced(const struct session *s);
/* The peer knows the identity that was prepared (volume_renew_prepare): it may be taken once all sessions are over. */
bool session_wants_renewal(const struct session *s);
const char *session_error(const struct session *s);               /* "" while all is well */
uint16_t session_bye_code(const struct session *s);               /* that the peer or we said; 0 */
bool session_in_sync(struct session *s);                          /* neither side lacks anything of the other */
/* Fills state, backlog_*, oldest_ns, lag_ns, saved_bytes; leaves the rest. Asks the volume: once a second is fine. */
void session_status(struct session *s, struct peer_status *ret);
#endif
