/* The inside of the engine: engine.c (life, connections that come and go, API), keeper.c, peer_status.c, connection.c (one socket), durable.c, heal_calls.c.
 *
 * Lock order: engine's mutex is innermost and is never held across a call of the volume, the channel or a socket: the commit listener takes it
 * on the committer's thread. */
#ifndef TWOFOLD_ENGINE_STATE_H
#define TWOFOLD_ENGINE_STATE_H
#include <pthread.h>
#include <stdatomic.h>

#include "address.h"
#include "channel.h"
#include "engine.h"
#include "session.h"

#define HALF_OPEN_MAX 64        /* accepted connections that have not shown who they are */
#define HANDSHAKE_MS 10000
#define CONNECT_MS 5000
#define BACKOFF_MIN_NS (200ull * 1000000)
#define BACKOFF_MAX_NS (8ull * 1000000000)      /* of an unreachable peer */
#define BACKOFF_REFUSED_NS (30ull * 1000000000) /* of one that turned us away */

struct peering {
	uint64_t replica;
	char name[33], address[256];
	uint8_t static_public[32];
	bool is_member, removed, paused, refused, seen;
	bool behind; /* lacks contents that were replaced while they were sent, whatever it has acknowledged */
	uint64_t next_dial_ns, backoff_ns;
	uint64_t sent_bytes, received_bytes, saved_bytes; /* of connections that are over */
	struct peer_status live;                          /* as its connection last said it */
	char last_error[200];
};

struct connection {
	struct engine *e;
	struct connection *next; /* e->lock */
	pthread_t thread;
	int fd, wake_fd;
	bool initiator;
	uint64_t peer;             /* replica id; 0 while unknown; set by its thread under e->lock */
	uint8_t peer_static[32];   /* initiator: whom we expect */
	char address[256];         /* initiator: whom to dial */
	char remote[80];           /* for the log */

	bool half_open;            /* e->lock, as all to the blank line */
	bool up, finished;
	bool stop;
	enum bye_code stop_code;
	const char *stop_text;     /* static */
	struct vector peer_has;    /* owned */
	uint64_t peer_tag;
	bool can_heal;
	_Atomic bool poked;

	struct channel *channel;   /* its thread only, as all below */
	struct session *session;
	bool changed, was_up;
	uint8_t psk_kind;
	struct id psk_id;
	uint64_t sent_bytes, received_bytes, counted_bytes, rate_bytes, connected_ns, published_ns, ticked_ns;
	unsigned silent_ticks;
	char error[200];
};

/* One question to one peer; the volume asks one at a time. */
struct heal_call {
	struct connection *asked; /* NULL: none is under way */
	bool sent, over;
	uint32_t request;
	struct heal_need need;
	struct buf *answer; /* borrowed; filled before over */
	int err;
};

struct engine {
	struct volume *v;
	const struct env *env;
	struct address listen_at;
	bool listens, started, stopping;
	int listen_fd[LISTEN_MAX], n_listen;
	uint16_t port;
	int wake_fd, accept_wake_fd;
	pthread_t keeper, acceptor, waiter;
	uint8_t *static_secret; /* sodium_malloc, 32 bytes */
	uint8_t prologue[CHANNEL_PROLOGUE_LEN];

	pthread_mutex_t lock; /* protects what follows and the fields of connections that say so */
	pthread_cond_t cond;  /* CLOCK_MONOTONIC; a peer has more, or a connection came or went */
	uint64_t events;      /* counts the broadcasts */
	struct connection *connections;
	struct peering *peering; /* owned */
	uint32_t n_peering;
	unsigned half_open;
	bool refresh;
	bool renew, renewing; /* a peer knows our new identity; it is being taken, and no connection may start */
	struct heal_call call;
	struct durable_wait *waits; /* owned; durable.c */
	bool give_up;
};

void *connection_main(void *c);
int connection_spawn(struct engine *e, int fd, const struct peering *to_dial); /* takes fd, even on failure */
void connection_wake(struct connection *c);
/* All with e->lock held. */
void connection_stop(struct connection *c, enum bye_code code, const char *static_text);
struct peering *engine_find(struct engine *e, uint64_t replica); /* NULL; valid while locked */
void engine_event(struct engine *e);
struct connection *engine_connection_of(struct engine *e, uint64_t replica, bool up_only); /* NULL; one that is not over */

/* Called by a connection's thread, unlocked. */
void engine_connection_up(struct connection *c);   /* HELLO came: one connection a peer stays */
void engine_connection_has(struct connection *c);  /* what the peer has changed: that is noted, */
void engine_connection_news(struct connection *c); /* and told to who waits for it and to other peers */
void engine_connection_over(struct connection *c, int err);
void engine_poke_others(struct engine *e, const struct connection *but);

/* keeper.c */
void *keeper_main(void *e);
void keeper_reap(struct engine *e, bool all); /* unlocked: joins the threads of connections that are over, or of all */

/* peer_status.c; unlocked */
void engine_publish(struct engine *e, uint64_t replica, const struct peer_status *live);
void engine_publish_absent(struct engine *e); /* peers without a connection: what they lack is known from what they acknowledged */

/* heal_calls.c */
int engine_heal_fetch(void *e, const struct heal_need *n, unsigned attempt, struct buf *ret); /* a heal_fetch_fn */
int heal_call_send(struct connection *c);    /* unlocked, by its thread: what it is to ask, if anything */
void heal_call_answer(void *c, uint32_t request, const uint8_t *pages, size_t len); /* session_io.pages */
void heal_call_lost(struct connection *c);   /* locked: it is over */

/* durable.c */
void *durable_main(void *e);
/* Locked: how many wait for a peer that has so much, and how long the oldest has. */
void durable_held_up(struct engine *e, const struct vector *has, bool behind, uint64_t *ret_waits, uint64_t *ret_oldest_ns);
#endif
