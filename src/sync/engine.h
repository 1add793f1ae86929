/* Replication of one open volume: listens, dials, keeps one connection to each peer, and runs a session (session.h) on it.
 *
 * Threads: one that listens and accepts, one that keeps the peerings (dials with back-off and jitter, 100 ms to 30 s; status once a
 * second), one for each connection. All functions may be called from any thread, but for engine_free. The volume is borrowed: it
 * must stay open until engine_stop has returned, which is before volume_close. The engine sets the volume's commit listener. */
#ifndef TWOFOLD_ENGINE_H
#define TWOFOLD_ENGINE_H
#include "replicate.h"

#define TWOFOLD_PORT 7420
struct engine;
struct engine_options {
	const char *listen; /* "ADDR:PORT", "[ADDR6]:PORT", "ADDR", ":PORT", "*:PORT" (port 0: any); NULL: only dials. Copied. */
};
/* 0; -EINVAL: the address cannot be read; -ENOMEM. Nothing runs yet. */
int engine_new(struct volume *v, const struct engine_options *o, struct engine **ret);
/* Binds, listens and starts the threads. 0, or what resolving and bind say (-EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EHOSTUNREACH); logged
 * with the address. */
int engine_start(struct engine *e);
/* Says BYE to all peers, ends all connections and threads. Idempotent; blocks until a batch that is being applied is done. */
void engine_stop(struct engine *e);
void engine_free(struct engine *e); /* after engine_stop; NULL is legal */
uint16_t engine_port(const struct engine *e); /* that it listens on; 0: none */

/* There may be something to send, or settings of peers changed: look at once. Cheap; never blocks. */
void engine_poke(struct engine *e);
/* Commits, then waits until every connected peer has acknowledged all that this replica had then (`twofold sync`). Peers that are not connected
 * (or paused, refused) are not waited for. tick, where it is not NULL, is called a few times a second, without locks; false gives up. 0; -ETIMEDOUT;
 * -ECANCELED: tick or the end of the engine; -ENOTCONN: there are peers, but none is connected; what the commit says. */
typedef bool engine_tick_fn(void *ctx);
int engine_wait_in_sync(struct engine *e, int timeout_ms, engine_tick_fn *tick, void *ctx);
/* fsync=peer|all: calls done once, on a thread of the engine, when one peer (FSYNC_PEER) or every one that is not paused (FSYNC_ALL) holds durably all
 * up to the last COMMIT here (0), or the time is over or the engine stops (-ETIMEDOUT). Does not commit and does not wait. done must not call the engine.
 * 0; -ESHUTDOWN: the engine does not run; -ENOMEM: then done is not called. */
typedef void engine_done_fn(void *arg, int err);
int engine_when_durable(struct engine *e, enum fsync_mode mode, int timeout_ms, engine_done_fn *done, void *arg);
/* Answers all that wait now with -ETIMEDOUT; what is asked for later is answered at once too. */
void engine_give_up_waits(struct engine *e);

/* Settings of a peering; replica from peering_find. The engine's forms act at once; the volume's are for a store that nobody has open.
 * 0; -ENOENT: no such peer. Remove makes it no member any more (replicated) and forgets the peering here. */
int engine_peer_pause(struct engine *e, uint64_t replica, bool paused);
int engine_peer_remove(struct engine *e, uint64_t replica);
int peering_ensure(struct volume *v, uint64_t replica); /* a peering without an address, if there is none */
int peering_pause(struct volume *v, uint64_t replica, bool paused);
int peering_remove(struct volume *v, uint64_t replica);
/* Tells the other members at which address this replica can be dialed ("": not known), where it has told none yet. enter: also where it is no member yet (of an
 * invited or joined volume). 0; -ENAMETOOLONG. */
int peering_publish(struct volume *v, const char *address, bool enter);
/* Its peers as a store that nobody serves knows them: disconnected or paused, with what they have not acknowledged. Owned by the caller. */
int peering_statuses(struct volume *v, struct peer_status **ret, uint32_t *ret_n);
/* A peer by its replica name, or by its replica id as 16 hex digits. 0; -ENOENT; -ENOTUNIQ: several of this name. */
int peering_find(struct volume *v, const char *name, uint64_t *ret_replica);
#endif
