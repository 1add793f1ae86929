/* Who waits until peers hold what was committed here: `sync`, in its own thread; and programs under fsync=peer|all. Each wait of these is a target
 * (our knowledge at its commit), a deadline and a function to call. One thread looks at all of them whenever a peer has acknowledged something; it alone takes waits off the list, so it may read them unlocked. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "engine_state.h"
#include "wait.h"

#define TICK_NS 200000000u   /* between two calls of a tick */
#define CONNECT_WAIT_MS 3000 /* engine_wait_in_sync gives a first connection so long */

struct durable_wait {
	struct durable_wait *next; /* e->lock */
	struct vector target; /* owned */
	enum fsync_mode mode;
	uint64_t since_ns, end_ns; /* monotonic */
	engine_done_fn *done;
	void *arg;
	int result;
};

/* Unlocked. 0: it may go on; -ETIMEDOUT; -EAGAIN: not yet. */
static int look(struct engine *e, const struct durable_wait *w, const uint64_t *behind, uint32_t n_behind, bool give_up)
{
	int has = volume_peers_have(e->v, w->mode, &w->target, behind, n_behind);

	return has ? 0 : give_up || env_mono_ns(e->env) >= w->end_ns ? -ETIMEDOUT : -EAGAIN;
}

static uint32_t peers_behind(struct engine *e, uint64_t **ret)
{
	uint32_t n = 0;

	*ret = e->n_peering ? calloc(e->n_peering, sizeof **ret) : NULL;
	for (uint32_t i = 0; *ret && i < e->n_peering; i++)
		if (e->peering[i].behind)
			(*ret)[n++] = e->peering[i].replica;
	return n;
}

/* Takes off what is decided and answers it; returns the earliest deadline of the others. */
static uint64_t look_at_all(struct engine *e, bool give_up)
{
	struct durable_wait *first, *decided = NULL;
	uint64_t *behind, next_ns = UINT64_MAX;
	uint32_t n_behind;

	pthread_mutex_lock(&e->lock);
	first = e->waits;
	n_behind = peers_behind(e, &behind);
	pthread_mutex_unlock(&e->lock);
	for (struct durable_wait *w = first, *next; w; w = next) {
		int err = look(e, w, behind, n_behind, give_up);

		next = w->next;
		if (err == -EAGAIN) {
			next_ns = w->end_ns < next_ns ? w->end_ns : next_ns;
			continue;
		}
		pthread_mutex_lock(&e->lock);
		struct durable_wait **at = &e->waits;
		while (*at != w)
			at = &(*at)->next;
		*at = w->next;
		pthread_mutex_unlock(&e->lock);
		w->next = decided;
		decided = w;
		w->result = err;
	}
	free(behind);
	while (decided) {
		struct durable_wait *w = decided;

		decided = w->next;
		w->done(w->arg, w->result);
		vector_fini(&w->target);
		free(w);
	}
	return next_ns;
}

void *durable_main(void *arg)
{
	struct engine *e = arg;
	bool stopping, give_up;

	do {
		uint64_t seen, next_ns;

		pthread_mutex_lock(&e->lock);
		seen = e->events;
		stopping = e->stopping;
		give_up = stopping || e->give_up;
		pthread_mutex_unlock(&e->lock);
		next_ns = look_at_all(e, give_up);
		pthread_mutex_lock(&e->lock);
		while (seen == e->events && !e->stopping) {
			if (next_ns == UINT64_MAX)
				pthread_cond_wait(&e->cond, &e->lock);
			else if (!cond_wait_until(&e->cond, &e->lock, next_ns))
				break;
		}
		pthread_mutex_unlock(&e->lock);
	} while (!stopping);
	return NULL;
}

int engine_when_durable(struct engine *e, enum fsync_mode mode, int timeout_ms, engine_done_fn *done, void *arg)
{
	struct durable_wait *w = calloc(1, sizeof *w);
	int err = w ? volume_knowledge(e->v, &w->target) : -ENOMEM;

	if (err) {
		free(w);
		return err;
	}
	w->mode = mode;
	w->since_ns = env_mono_ns(e->env);
	w->end_ns = w->since_ns + (uint64_t)timeout_ms * 1000000u;
	w->done = done;
	w->arg = arg;
	pthread_mutex_lock(&e->lock);
	err = e->started && !e->stopping ? 0 : -ESHUTDOWN;
	if (!err) {
		w->next = e->waits;
		e->waits = w;
		engine_event(e);
	}
	pthread_mutex_unlock(&e->lock);
	if (err) {
		vector_fini(&w->target);
		free(w);
	}
	return err;
}

void engine_give_up_waits(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->give_up = true;
	engine_event(e);
	pthread_mutex_unlock(&e->lock);
}

void durable_held_up(struct engine *e, const struct vector *has, bool behind, uint64_t *ret_waits, uint64_t *ret_oldest_ns)
{
	uint64_t now = env_mono_ns(e->env);

	*ret_waits = *ret_oldest_ns = 0;
	for (const struct durable_wait *w = e->waits; w; w = w->next) {
		if (!behind && vector_covers(has, &w->target))
			continue;
		++*ret_waits;
		if (now - w->since_ns > *ret_oldest_ns)
			*ret_oldest_ns = now - w->since_ns;
	}
}

/* ---- sync ---- */
/* Locked. 0: all connected peers have it; -EAGAIN: one has not; -ENOTCONN: none is connected; 0 also without peers. */
static int look_in_sync(struct engine *e, const struct vector *target)
{
	bool connected = false;

	for (struct connection *c = e->connections; c; c = c->next) {
		if (!c->up || c->finished || c->stop)
			continue;
		connected = true;
		if (!vector_covers(&c->peer_has, target))
			return -EAGAIN;
	}
	return connected || !e->n_peering ? 0 : -ENOTCONN;
}

/* Until all have it, the time is over (connect_end where nobody is connected), or tick says no. */
static int wait_for_peers(struct engine *e, const struct vector *target, uint64_t connect_end, uint64_t end, engine_tick_fn *tick, void *ctx)
{
	int err;

	for (;;) {
		pthread_mutex_lock(&e->lock);
		err = e->stopping ? -ECANCELED : look_in_sync(e, target);
		uint64_t until = err == -ENOTCONN ? connect_end : end, now = mono_ns();
		bool waits = (err == -EAGAIN || err == -ENOTCONN) && now < until;
		if (waits)
			cond_wait_until(&e->cond, &e->lock, tick && until > now + TICK_NS ? now + TICK_NS : until);
		pthread_mutex_unlock(&e->lock);
		if (!waits)
			return err == -EAGAIN ? -ETIMEDOUT : err;
		if (tick && !tick(ctx))
			return -ECANCELED;
	}
}

int engine_wait_in_sync(struct engine *e, int timeout_ms, engine_tick_fn *tick, void *ctx)
{
	uint64_t end = mono_ns_in((uint64_t)timeout_ms), connect_end = mono_ns_in(timeout_ms < CONNECT_WAIT_MS ? (uint64_t)timeout_ms : CONNECT_WAIT_MS);
	struct vector target = {0};
	int err = volume_commit(e->v);

	if (!err)
		err = volume_knowledge(e->v, &target);
	if (err)
		return err;
	engine_poke(e);
	err = wait_for_peers(e, &target, connect_end, end, tick, ctx);
	vector_fini(&target);
	/* what peers have sent is known here by now, but perhaps not all of its bytes have come */
	while (!err && volume_awaits_contents(e->v) && mono_ns() < end) {
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		if (tick && !tick(ctx))
			err = -ECANCELED;
	}
	return err;
}
