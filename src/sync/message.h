/* The messages between two replicas (design: channel and membership): what stands in their bodies.
 *
 * The channel carries each as type u8 | request u32 | length u32 | body. `request` is the number of the batch (BATCH, PART, END, ACK), the
 * number that the asker chose (GET, DATA, GONE), and 0 in the others. Integers are little-endian; str is u16 length + bytes; vector as in ids.h.
 *   HELLO    protocol u32 | features u64 | replica u64 | start tag u64 | knowledge vector |
 *            count u16, (replica u64, first counter u64, tag u64) each | count u16, (replica u64, vector) each | live root 32
 *   BATCH    flags u8 (1: catching up) | count u32 (parts in all of it as far as known, 0: unknown)
 *   PART     (u32 length, record as sealed) once or more
 *   END      flags u8 (1: the cut is reached, its knowledge follows) | vector
 *   ACK      flags u8 (1: something was left out, nothing was joined) | knowledge durable here vector
 *   GET      node 16 | dot 16 | forms u8 | resume page u64 | count u16, held (node 16, dot 16, root 32) each
 *   DATA     last u8 | chunk (replicate.h: content_source_next)
 *   GONE     reason u8 (1: no such dot any more, 2: damaged here)
 *   PING     answer u8 (0: please answer, 1: the answer)
 *   BYE      code u16 | text str
 *   JOIN     protocol u32 | replica u64 | ciphers u32 (bit n: cipher n works here) | name str | address str
 *   WELCOME  cipher u32 | master key 32 | replica u64 | name str | static public key 32 | address str
 *   STARTS   count u16, (replica u64, first counter u64, tag u64) each
 *   RENEW    replica u64 | name str | static public key 32
 *   NEED     what u8 (1: sealed pages, 2: entries, 3: a record, see heal.h) | node 16 | object 16 | epoch u32 | root 32 | first page u64 | count u32
 *   PAGES    status u8 (0: here, 1: not held here) | where here: count entries of 32 bytes, then for sealed pages count pages of 4096; of a record all its bytes
 * NEED and PAGES only between peers whose features have FEATURE_HEAL; `request` is the number that the asker chose.
 * A body that is too short, too long or has a value out of bounds is -EPROTO, and the receiver says BYE. The encoders append to `out`, whose err
 * says whether memory lasted; the decoders allocate only what the bytes at hand fill. No state, any thread. */
#ifndef TWOFOLD_MESSAGE_H
#define TWOFOLD_MESSAGE_H
#include "heal.h"
#include "replicate.h"

#define PROTOCOL_VERSION 1
enum message_type {
	TYPE_HELLO = 1, TYPE_BATCH, TYPE_PART, TYPE_END, TYPE_ACK, TYPE_GET, TYPE_DATA, TYPE_GONE, TYPE_PING = 11, TYPE_BYE,
	TYPE_JOIN, TYPE_WELCOME,
	TYPE_STARTS = 40, TYPE_RENEW,
	TYPE_NEED = 50, TYPE_PAGES
};
#define FEATURE_HEAL UINT64_C(1)
#define FEATURE_RESUME_RANGES UINT64_C(2)
enum { BATCH_CATCHING_UP = 1 };
enum { END_CUT = 1 };
enum { ACK_LEFT_OUT = 1 };
enum { GONE_REPLACED = 1, GONE_DAMAGED = 2 };
enum bye_code {
	BYE_STOPPING = 1, BYE_PROTOCOL, BYE_VERSION, BYE_REMOVED, BYE_UNKNOWN, BYE_DUPLICATE, BYE_PAUSED, BYE_RESTORED, BYE_ERROR,
	BYE_TOKEN, BYE_TOKEN_USED, BYE_TOKEN_EXPIRED, BYE_NAME, BYE_CIPHER, BYE_RENEW, BYE_RENEWED
};
#define HELD_MAX 64       /* contents named in one GET */
#define MEMBERS_MAX 1024  /* entries of HELLO's list of members */
#define BYE_TEXT_MAX 200
#define PART_BODY_MAX (4u << 20) /* fits what the channel takes */
#define HELLO_BODY_MAX (1u << 20)
#define DATA_BODY_MAX (1u << 20)

/* Largest body of this type; 0: no such type. The channel asks before it allocates. */
size_t message_body_max(uint8_t type);
const char *message_name(uint8_t type); /* "HELLO", ...; "?" */

struct member_knowledge {
	uint64_t replica;
	struct vector knowledge;
};
struct msg_hello {
	uint32_t protocol;
	uint64_t features, replica, tag;
	struct vector knowledge;
	struct start_tag *start; /* owned, as all below */
	uint16_t n_start;
	struct member_knowledge *member;
	uint16_t n_member;
	struct root live;
};
void msg_hello_fini(struct msg_hello *m);
void msg_hello_encode(const struct msg_hello *m, struct buf *out);
int msg_hello_decode(const uint8_t *body, size_t len, struct msg_hello *ret); /* msg_hello_fini on success */

/* Pairs that came to be known since HELLO. *ret: malloc'ed. */
void msg_starts_encode(const struct start_tag *s, uint32_t n, struct buf *out);
int msg_starts_decode(const uint8_t *body, size_t len, struct start_tag **ret, uint32_t *ret_n);
/* The sender will go on as this replica. */
void msg_renew_encode(const struct identity *m, struct buf *out);
int msg_renew_decode(const uint8_t *body, size_t len, struct identity *ret); /* -EPROTO also for a name that is none, or replica 0 */

struct msg_batch {
	uint8_t flags;
	uint32_t count;
};
void msg_batch_encode(const struct msg_batch *m, struct buf *out);
int msg_batch_decode(const uint8_t *body, size_t len, struct msg_batch *ret);

/* Takes the next record off a body of PART: 1 and it (borrowed), 0 at the end, -EPROTO. */
int msg_part_next(struct reader *body, const uint8_t **ret_record, size_t *ret_len);

/* END and ACK. */
struct msg_mark {
	uint8_t flags;
	struct vector knowledge; /* owned */
};
void msg_mark_encode(const struct msg_mark *m, struct buf *out);
int msg_mark_decode(const uint8_t *body, size_t len, struct msg_mark *ret); /* vector_fini(&ret->knowledge) on success */

struct msg_get {
	struct id node;
	struct dot dot;
	uint8_t forms;
	uint64_t resume_page;
	uint16_t n_held;
	struct held_content held[HELD_MAX];
};
void msg_get_encode(const struct msg_get *m, struct buf *out);
int msg_get_decode(const uint8_t *body, size_t len, struct msg_get *ret);

void msg_data_encode(bool last, const void *chunk, size_t len, struct buf *out);
int msg_data_decode(const uint8_t *body, size_t len, bool *ret_last, const uint8_t **ret_chunk, size_t *ret_len); /* borrowed */
int msg_gone_decode(const uint8_t *body, size_t len, uint8_t *ret_reason);
int msg_ping_decode(const uint8_t *body, size_t len, bool *ret_answer);

/* message_heal.c. A request within bounds: what, count, first. */
void msg_need_encode(const struct heal_need *m, struct buf *out);
int msg_need_decode(const uint8_t *body, size_t len, struct heal_need *ret);
/* pages NULL: not held. */
void msg_pages_encode(const struct buf *pages, struct buf *out);
int msg_pages_decode(const uint8_t *body, size_t len, const uint8_t **ret_pages, size_t *ret_len); /* borrowed; -ENOENT: not held there; -EPROTO */

struct msg_bye {
	uint16_t code;
	char text[BYE_TEXT_MAX + 1]; /* bytes that are not printable ASCII are '?' after decoding */
};
void msg_bye_encode(const struct msg_bye *m, struct buf *out);
int msg_bye_decode(const uint8_t *body, size_t len, struct msg_bye *ret);

struct msg_join {
	uint32_t protocol, ciphers;
	uint64_t replica;
	char name[33], address[256];
};
void msg_join_encode(const struct msg_join *m, struct buf *out);
int msg_join_decode(const uint8_t *body, size_t len, struct msg_join *ret); /* -EPROTO also for a name that is none, or replica 0 */

/* The body holds the master key: whoever encodes or decodes it wipes the bytes. */
struct msg_welcome {
	uint32_t cipher;
	uint8_t master[KEY_LEN];
	uint64_t replica;
	char name[33], address[256];
	uint8_t static_public[32];
};
void msg_welcome_encode(const struct msg_welcome *m, struct buf *out);
int msg_welcome_decode(const uint8_t *body, size_t len, struct msg_welcome *ret);
#endif
