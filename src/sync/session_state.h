/* The inside of a session, shared by session.c (life, HELLO, timers), session_send.c and session_receive.c only. */
#ifndef TWOFOLD_SESSION_STATE_H
#define TWOFOLD_SESSION_STATE_H
#include "session.h"

struct sending {
	bool poked;       /* look whether there is something to send */
	bool active;      /* from the first BATCH to the ACK of the last END */
	bool step_open;   /* BATCH is out, its END is not */
	bool listed;      /* the END with the cut is out */
	bool catching_up;
	uint32_t number;  /* of the next BATCH, or of the open step */
	uint32_t acked;   /* number of the next ACK */
	uint32_t step_rows;
	size_t step_bytes;
	struct vector have, upto; /* owned while active */
	struct part_cursor cursor;
	bool replaced; /* a content of this batch was answered GONE, as it has changed */
	uint64_t poked_ns, started_ns, retry_ns, lag_ns; /* monotonic, but lag */
};

struct serve {
	uint32_t request;
	struct content_source *source; /* owned; NULL: not opened yet */
	uint8_t *get;                  /* owned: the body of GET, which decoded well */
	size_t get_len;
};
struct serving {
	struct serve *queue[SERVE_MAX]; /* owned; the first SERVE_ACTIVE take turns */
	uint32_t n, turn;
	uint64_t saved_bytes;
	uint64_t batch_files, batch_bytes; /* that the peer got since the open batch began, what a delta saved among them */
};

struct asked {
	const struct content_want *want; /* borrowed of the batch; NULL: given up, its DATA is thrown away */
	uint32_t request;
	uint8_t forms;
	bool big;
};
struct waiting {
	const struct content_want *want;
	uint8_t forms;
};
struct receiving {
	struct batch *batch; /* owned; NULL before the first BATCH */
	bool open;           /* BATCH came, not applied yet */
	bool end_seen;
	bool catching_up;
	bool own;            /* opened by ourselves, for contents that are held here without their bytes: it has no END and no ACK */
	bool look;           /* whether there are such contents */
	uint64_t looked_ns;
	bool left_out;       /* a content was damaged at the sender: the cut of this batch is not joined */
	uint32_t number, rows;
	size_t bytes;
	struct msg_mark end;
	struct asked asked[ASKED_MAX];
	uint32_t n_asked, n_asked_big, next_request;
	struct waiting *waiting; /* owned; wants not asked for yet, in order */
	uint32_t n_waiting, cap_waiting;
	struct buf ahead;    /* messages of the next step, beside an own batch of the next two: type u8, request u32, length u32, body */
	bool ahead_open;     /* BATCH of the last one is in it, its END is not */
	uint32_t ahead_steps, ahead_number;
};

struct starts {
	struct start_tag *told, *heard; /* owned; told: all that the peer has of us; heard: since HELLO, not learned yet */
	uint32_t n_told, n_heard;
	bool doubtful;       /* see session.h; only RENEW and BYE are taken */
	bool renew_sent, confirmed;
	uint64_t doubt_ns;
};

struct session {
	struct session_config c;
	bool hello_seen, over;
	struct vector peer_has;
	bool left_replaced; /* see session_left_replaced */
	uint64_t peer_features;
	uint64_t peer_tag, last_sent_ns, last_heard_ns, replaced_ns;
	struct sending tx;
	struct serving serving;
	struct receiving rx;
	struct starts starts;
	uint16_t bye_code;
	char error[BYE_TEXT_MAX + 1];
};

/* Both note the error, queue BYE, end the session and return err. */
int session_fail(struct session *s, int err, enum bye_code code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
int session_bad(struct session *s, int err, uint8_t type); /* a malformed or unexpected message, or no memory for it */
int session_send(struct session *s, uint8_t type, uint32_t request, const struct buf *body);
bool session_has_room(const struct session *s);
int session_learn(struct session *s, const struct vector *k); /* the peer has this durably */

/* session_starts.c */
int starts_hello(struct session *s, const struct vector *knowledge, struct msg_hello *m); /* fills m->start, owned by it */
int starts_take_hello(struct session *s, const struct msg_hello *m);
int starts_take(struct session *s, const uint8_t *body, size_t len);
int starts_take_renew(struct session *s, const uint8_t *body, size_t len);
int starts_before_end(struct session *s, const struct vector *cut);       /* sends those that the peer has not heard of */
int starts_at_end(struct session *s, const struct vector *end);           /* compares and learns what came; s->starts.doubtful says how it went */
int starts_tick(struct session *s, uint64_t now_ns);
void session_starts_fini(struct session *s);
/* session_heal.c */
int heal_need(struct session *s, uint32_t request, const uint8_t *body, size_t len);
int heal_pages(struct session *s, uint32_t request, const uint8_t *body, size_t len);
/* session_send.c */
int send_work(struct session *s);
int send_ack(struct session *s, uint32_t number, const uint8_t *body, size_t len);
int send_get(struct session *s, uint32_t request, const uint8_t *body, size_t len);
void send_tick(struct session *s, uint64_t now_ns);
void send_fini(struct session *s);
/* session_receive.c */
int receive_work(struct session *s);
void receive_tick(struct session *s, uint64_t now_ns);
int receive_batch_message(struct session *s, uint8_t type, uint32_t request, const uint8_t *body, size_t len); /* BATCH, PART, END */
int receive_data(struct session *s, uint32_t request, const uint8_t *body, size_t len);
int receive_gone(struct session *s, uint32_t request, const uint8_t *body, size_t len);
void receive_fini(struct session *s);
#endif
