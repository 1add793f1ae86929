/* The keeper: one thread that dials peers when it is time, reads who they are, ends what is over, and takes a new identity where this store was restored. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "engine_state.h"
#include "log.h"
#include "peering.h"

#define KEEP_MS 1000
#define REFRESH_ROUNDS 5       /* rounds of the keeper after which peers and members are read again unasked */

static void free_connection(struct connection *c)
{
	session_free(c->session);
	channel_free(c->channel);
	vector_fini(&c->peer_has);
	if (c->fd >= 0)
		close(c->fd);
	close(c->wake_fd);
	free(c);
}

void keeper_reap(struct engine *e, bool all)
{
	struct connection *over = NULL, **at;

	pthread_mutex_lock(&e->lock);
	for (at = &e->connections; *at;) {
		struct connection *c = *at;

		if (!c->finished && !all) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->next = over;
		over = c;
	}
	pthread_mutex_unlock(&e->lock);
	while (over) {
		struct connection *c = over;

		over = c->next;
		pthread_join(c->thread, NULL);
		free_connection(c);
	}
}

static void merge_peer(struct engine *e, const struct peer_config *g, const struct member *m)
{
	struct peering *p = engine_find(e, g->replica);

	if (!p) {
		struct peering *grown = reallocarray(e->peering, e->n_peering + 1, sizeof *grown);

		if (!grown)
			return;
		e->peering = grown;
		p = &grown[e->n_peering++];
		*p = (struct peering){.replica = g->replica};
	}
	p->seen = true;
	if (p->paused && !g->paused)
		p->next_dial_ns = p->backoff_ns = 0;
	p->paused = g->paused;
	memcpy(p->address, g->address, sizeof p->address);
	p->is_member = m != NULL;
	if (!m) {
		snprintf(p->name, sizeof p->name, "%016llx", (unsigned long long)g->replica);
		return;
	}
	memcpy(p->name, m->name, sizeof p->name);
	memcpy(p->static_public, m->static_public, sizeof p->static_public);
	if (!p->address[0])
		memcpy(p->address, m->address, sizeof p->address);
	p->removed = m->removed;
}

/* What the settings say now is done to the connections. Locked. */
static void heed_settings(struct engine *e, const struct known *k)
{
	for (struct connection *c = e->connections; c; c = c->next) {
		const struct member *of = c->up ? known_member(k, c->peer) : NULL;
		const struct peering *p = c->up ? engine_find(e, c->peer) : NULL;

		if (of && of->removed)
			connection_stop(c, BYE_REMOVED, "this replica was removed from the volume");
		else if (p && p->paused)
			connection_stop(c, BYE_PAUSED, "the peering is paused there");
	}
}

static void refresh(struct engine *e)
{
	CLEANUP(known_fini) struct known k = {0};
	CLEANUP_FREE uint64_t *gone = NULL;
	uint32_t n_gone = 0;
	int err = known_read(e->v, &k);

	err = err ? err : known_mesh(e->v, &k);
	if (err) {
		log_error("peers cannot be read: %s", strerror(-err));
		return;
	}
	pthread_mutex_lock(&e->lock);
	for (uint32_t i = 0; i < e->n_peering; i++)
		e->peering[i].seen = false;
	for (uint32_t i = 0; i < k.n_peers; i++)
		merge_peer(e, &k.peers[i], known_member(&k, k.peers[i].replica));
	gone = calloc(e->n_peering + 1, sizeof *gone);
	for (uint32_t i = 0; i < e->n_peering;) {
		if (e->peering[i].seen || !gone) {
			i++;
			continue;
		}
		gone[n_gone++] = e->peering[i].replica;
		e->peering[i] = e->peering[--e->n_peering];
	}
	heed_settings(e, &k);
	engine_event(e); /* who waits for all peers may wait for fewer now */
	pthread_mutex_unlock(&e->lock);
	for (uint32_t i = 0; i < n_gone; i++)
		volume_drop_peer_status(e->v, gone[i]);
}

/* Dials whom it is time to dial; returns how long until the next one, at most KEEP_MS. */
static int dial(struct engine *e)
{
	uint64_t now = env_mono_ns(e->env), next = now + KEEP_MS * 1000000ull;
	struct peering *todo = NULL;
	uint32_t n = 0;

	pthread_mutex_lock(&e->lock);
	if (e->n_peering)
		todo = calloc(e->n_peering, sizeof *todo);
	for (uint32_t i = 0; todo && i < e->n_peering; i++) {
		struct peering *p = &e->peering[i];

		if (!p->address[0] || p->paused || !p->is_member || p->removed || engine_connection_of(e, p->replica, false))
			continue;
		if (p->next_dial_ns <= now)
			todo[n++] = *p;
		else if (p->next_dial_ns < next)
			next = p->next_dial_ns;
	}
	pthread_mutex_unlock(&e->lock);
	for (uint32_t i = 0; i < n; i++)
		connection_spawn(e, -1, &todo[i]);
	free(todo);
	return (int)((next - now) / 1000000) + 1;
}

/* This store was restored or copied, and a peer has noted as whom it goes on. */
static void renew(struct engine *e)
{
	int err;

	pthread_mutex_lock(&e->lock);
	e->renew = false;
	e->renewing = true;
	for (struct connection *c = e->connections; c; c = c->next)
		connection_stop(c, BYE_RENEW, "this replica takes a new identity");
	pthread_mutex_unlock(&e->lock);
	keeper_reap(e, true);
	err = volume_renew(e->v);
	if (!err)
		err = header_static_secret(volume_header(e->v), volume_keyring(e->v), e->static_secret);
	if (err && err != -ENOENT)
		log_error("the new identity of this replica cannot be taken: %s", strerror(-err));
	pthread_mutex_lock(&e->lock);
	e->renewing = false;
	e->refresh = true;
	for (uint32_t i = 0; i < e->n_peering; i++)
		e->peering[i].next_dial_ns = e->peering[i].backoff_ns = 0;
	pthread_mutex_unlock(&e->lock);
}

void *keeper_main(void *arg)
{
	struct engine *e = arg;
	uint64_t published = 0, count;
	int round = 0, wait_ms;

	for (;;) {
		bool stop, now, anew;
		struct pollfd p = {.fd = e->wake_fd, .events = POLLIN};

		pthread_mutex_lock(&e->lock);
		stop = e->stopping;
		now = e->refresh || round % REFRESH_ROUNDS == 0;
		e->refresh = false;
		anew = e->renew;
		pthread_mutex_unlock(&e->lock);
		if (stop)
			return NULL;
		if (anew)
			renew(e);
		keeper_reap(e, false);
		if (now)
			refresh(e);
		wait_ms = dial(e);
		if (now || env_mono_ns(e->env) - published >= KEEP_MS * 1000000ull) {
			engine_publish_absent(e);
			published = env_mono_ns(e->env);
			round++;
		}
		if (poll(&p, 1, wait_ms) > 0)
			(void)!read(e->wake_fd, &count, sizeof count);
	}
}
