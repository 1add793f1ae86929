/* Pages and entries for a peer that has damaged ones, and the other way round (heal.h). An answer is made at once: it is small, and a reader waits for it. */
#include <errno.h>

#include "session_state.h"

int heal_need(struct session *s, uint32_t request, const uint8_t *body, size_t len)
{
	struct session_volume *v = &s->c.volume;
	struct heal_need n;
	struct buf pages = {0}, out = {0};
	int err = msg_need_decode(body, len, &n);

	if (err)
		return session_bad(s, err, TYPE_NEED);
	/* a peer that asks without reading the answers costs no memory: it is told no, and asks again */
	err = v->heal_serve && session_has_room(s) ? v->heal_serve(v->v, &n, &pages) : -ENOENT;
	msg_pages_encode(err ? NULL : &pages, &out);
	err = session_send(s, TYPE_PAGES, request, &out);
	buf_fini(&pages);
	buf_fini(&out);
	return err;
}

int heal_pages(struct session *s, uint32_t request, const uint8_t *body, size_t len)
{
	const uint8_t *pages = NULL;
	size_t n = 0;
	int err = msg_pages_decode(body, len, &pages, &n);

	if (err == -EPROTO || !s->c.io.pages)
		return session_bad(s, -EPROTO, TYPE_PAGES);
	s->c.io.pages(s->c.io.ctx, request, err ? NULL : pages, n);
	return 0;
}

bool session_can_heal(const struct session *s) { return session_is_up(s) && !s->starts.doubtful && s->peer_features & FEATURE_HEAL; }

int session_ask_pages(struct session *s, uint32_t request, const struct heal_need *n)
{
	struct buf out = {0};
	int err;

	if (!session_can_heal(s))
		return -ENOTCONN;
	msg_need_encode(n, &out);
	err = session_send(s, TYPE_NEED, request, &out);
	buf_fini(&out);
	return err;
}
