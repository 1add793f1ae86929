/* What status shows of each peer, connected or not. */
#include <stdlib.h>
#include <string.h>

#include "engine_state.h"
#include "peering.h"

static void publish_peering(struct peer_status *st, const struct peering *p)
{
	st->replica = p->replica;
	memcpy(st->name, p->name, sizeof st->name);
	memcpy(st->address, p->address, sizeof st->address);
	memcpy(st->last_error, p->last_error, sizeof st->last_error);
	st->sent_bytes += p->sent_bytes;
	st->received_bytes += p->received_bytes;
	st->saved_bytes += p->saved_bytes;
}

static void publish_waits(struct engine *e, struct peer_status *st, const struct peering *p, const struct vector *has)
{
	if (!p->paused && !p->removed)
		durable_held_up(e, has, p->behind, &st->waits, &st->waits_ns);
}

void engine_publish(struct engine *e, uint64_t replica, const struct peer_status *live)
{
	struct peer_status st = *live;
	struct peering *p;

	pthread_mutex_lock(&e->lock);
	p = engine_find(e, replica);
	if (p) {
		const struct connection *c = engine_connection_of(e, replica, true);

		p->live = *live;
		publish_peering(&st, p);
		if (c)
			publish_waits(e, &st, p, &c->peer_has);
	}
	pthread_mutex_unlock(&e->lock);
	if (p)
		volume_set_peer_status(e->v, &st);
}

/* Peers without a connection: what they lack is known from what they acknowledged. */
void engine_publish_absent(struct engine *e)
{
	struct peer_status *list = NULL;
	uint32_t n = 0;

	pthread_mutex_lock(&e->lock);
	if (e->n_peering)
		list = calloc(e->n_peering, sizeof *list);
	for (uint32_t i = 0; list && i < e->n_peering; i++) {
		struct peering *p = &e->peering[i];

		if (engine_connection_of(e, p->replica, true))
			continue;
		p->live = (struct peer_status){0};
		publish_peering(&list[n], p);
		list[n].state = p->paused ? PEER_PAUSED : p->refused ? PEER_REFUSED :
				engine_connection_of(e, p->replica, false) ? PEER_CONNECTING : PEER_DISCONNECTED;
		n++;
	}
	pthread_mutex_unlock(&e->lock);
	for (uint32_t i = 0; i < n; i++) {
		struct vector has = {0};

		if (!peering_backlog(e->v, &list[i], &has)) {
			pthread_mutex_lock(&e->lock);
			const struct peering *p = engine_find(e, list[i].replica);
			if (p)
				publish_waits(e, &list[i], p, &has);
			pthread_mutex_unlock(&e->lock);
		}
		vector_fini(&has);
		volume_set_peer_status(e->v, &list[i]);
	}
	free(list);
}
