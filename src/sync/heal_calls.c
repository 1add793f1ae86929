/* Asking peers for pages on behalf of the volume's healing: its thread waits here, the connection's thread asks and hands the answer over. */
#include <errno.h>

#include "engine_state.h"
#include "wait.h"

#define ANSWER_MS 5000

/* The attempt'th peer that can be asked. */
static struct connection *candidate(struct engine *e, unsigned attempt, bool *ret_any)
{
	*ret_any = false;
	for (struct connection *c = e->connections; c; c = c->next) {
		if (!c->up || c->finished || c->stop || !c->can_heal)
			continue;
		*ret_any = true;
		if (!attempt--)
			return c;
	}
	return NULL;
}

static int wait_answer(struct engine *e)
{
	uint64_t end = mono_ns_in(ANSWER_MS);

	while (!e->call.over && !e->stopping && cond_wait_until(&e->cond, &e->lock, end))
		;
	return e->call.over ? e->call.err : e->stopping ? -ESHUTDOWN : -ENOENT;
}

int engine_heal_fetch(void *ctx, const struct heal_need *n, unsigned attempt, struct buf *ret)
{
	struct engine *e = ctx;
	bool any = false;
	int err = -ENOENT;

	pthread_mutex_lock(&e->lock);
	/* one that does not have it is passed over */
	while (err == -ENOENT && !e->stopping) {
		struct connection *c = candidate(e, attempt++, &any);

		if (!c)
			break;
		ret->len = 0;
		e->call = (struct heal_call){.asked = c, .request = e->call.request + 1, .need = *n, .answer = ret};
		connection_wake(c);
		err = wait_answer(e);
		e->call.asked = NULL;
		e->call.answer = NULL;
	}
	if (e->stopping)
		err = -ESHUTDOWN;
	pthread_mutex_unlock(&e->lock);
	return err == -ENOENT && !any ? -ENOTCONN : err;
}

int heal_call_send(struct connection *c)
{
	struct engine *e = c->e;
	struct heal_need n;
	uint32_t request = 0;

	pthread_mutex_lock(&e->lock);
	c->can_heal = session_can_heal(c->session);
	bool mine = e->call.asked == c && !e->call.sent;
	if (mine) {
		e->call.sent = true;
		n = e->call.need;
		request = e->call.request;
	}
	pthread_mutex_unlock(&e->lock);
	return mine ? session_ask_pages(c->session, request, &n) : 0;
}

void heal_call_answer(void *ctx, uint32_t request, const uint8_t *pages, size_t len)
{
	struct connection *c = ctx;
	struct engine *e = c->e;

	pthread_mutex_lock(&e->lock);
	struct heal_call *k = &e->call;
	/* what comes late was asked for anew, elsewhere */
	if (k->asked == c && k->sent && !k->over && k->request == request) {
		k->err = pages ? 0 : -ENOENT;
		size_t want = heal_answer_len(&k->need);
		if (pages && (want ? len != want : len > HEAL_RECORD_MAX))
			k->err = -ENOENT;
		if (!k->err) {
			buf_put(k->answer, pages, len);
			k->err = k->answer->err;
		}
		k->over = true;
		engine_event(e);
	}
	pthread_mutex_unlock(&e->lock);
}

void heal_call_lost(struct connection *c)
{
	if (c->e->call.asked != c || c->e->call.over)
		return;
	c->e->call.over = true;
	c->e->call.err = -ENOENT;
	engine_event(c->e);
}
