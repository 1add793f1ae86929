/* Starts of replicas in a session: pairs told and heard, and what follows where they contradict (replicate.h). */
#include "session_state.h"

#include <errno.h>
#include <stdlib.h>

#include "log.h"

void session_starts_fini(struct session *s)
{
	free(s->starts.told);
	free(s->starts.heard);
	s->starts.told = s->starts.heard = NULL;
}

int starts_hello(struct session *s, const struct vector *knowledge, struct msg_hello *m)
{
	uint32_t n = 0;
	int err;

	if (!s->c.volume.starts)
		return 0;
	if ((err = s->c.volume.starts(s->c.volume.v, knowledge, &m->start, &n)))
		return err;
	m->n_start = (uint16_t)(n < STARTS_MAX ? n : STARTS_MAX);
	free(s->starts.told);
	s->starts.n_told = 0;
	if (!(s->starts.told = malloc((n + 1u) * sizeof *m->start)))
		return -ENOMEM;
	memcpy(s->starts.told, m->start, n * sizeof *m->start);
	s->starts.n_told = n;
	return 0;
}

static int say_renew(struct session *s, uint64_t from)
{
	struct identity fresh;
	struct buf body = {0};
	int err = s->c.volume.renew_prepare(s->c.volume.v, from, &fresh);

	if (err)
		return session_fail(s, err, BYE_ERROR, "a new identity cannot be prepared: %s", strerror(-err));
	log_warn("peer %016llx has other changes of this replica from number %llu on: this store was restored from a backup or copied; it goes on as %s",
		(unsigned long long)s->c.peer, (unsigned long long)from, fresh.name);
	msg_renew_encode(&fresh, &body);
	err = session_send(s, TYPE_RENEW, 0, &body);
	buf_fini(&body);
	s->starts.renew_sent = true;
	return err;
}

static int heed(struct session *s, const struct doubt *d)
{
	int err;

	s->starts.doubtful = true;
	s->starts.doubt_ns = env_mono_ns(s->c.env);
	if (d->replica == s->c.replica)
		return say_renew(s, d->from);
	log_warn("replica %016llx exists twice, as a store restored from a backup or copied: its changes from number %llu on are ambiguous",
		(unsigned long long)d->replica, (unsigned long long)d->from);
	if (d->replica == s->c.peer || !d->give_way)
		return 0;
	if ((err = s->c.volume.disown(s->c.volume.v, d->replica, d->from)))
		return session_fail(s, err, BYE_ERROR, "doubtful changes cannot be given new numbers: %s", strerror(-err));
	return session_fail(s, -ECANCELED, BYE_RENEW, "doubtful changes have new numbers");
}

static int compare(struct session *s, const struct vector *knowledge, const struct start_tag *list, uint32_t n)
{
	struct session_volume *v = &s->c.volume;
	struct doubt d = {0};
	int r;

	if (!v->starts)
		return 0;
	r = v->starts_check(v->v, s->c.peer, knowledge, list, n, &d);
	if (r > 0)
		return heed(s, &d);
	if (!r)
		r = v->starts_learn(v->v, list, n);
	return r ? session_fail(s, r, BYE_ERROR, "starts cannot be compared: %s", strerror(-r)) : 0;
}

int starts_take_hello(struct session *s, const struct msg_hello *m) { return compare(s, &m->knowledge, m->start, m->n_start); }

int starts_take(struct session *s, const uint8_t *body, size_t len)
{
	struct starts *t = &s->starts;
	struct start_tag *list = NULL, *p;
	uint32_t n = 0;
	int err = msg_starts_decode(body, len, &list, &n);

	if (!err && t->n_heard + n > STARTS_MAX)
		err = -EPROTO;
	if (!err && !(p = reallocarray(t->heard, t->n_heard + n + 1, sizeof *p)))
		err = -ENOMEM;
	if (err) {
		free(list);
		return session_bad(s, err, TYPE_STARTS);
	}
	t->heard = p;
	if (n)
		memcpy(p + t->n_heard, list, n * sizeof *p);
	t->n_heard += n;
	free(list);
	return 0;
}

static bool was_told(const struct starts *t, const struct start_tag *x)
{
	for (uint32_t i = 0; i < t->n_told; i++)
		if (t->told[i].replica == x->replica && t->told[i].first_counter == x->first_counter && t->told[i].tag == x->tag)
			return true;
	return false;
}

int starts_before_end(struct session *s, const struct vector *cut)
{
	struct starts *t = &s->starts;
	struct start_tag *all = NULL, *fresh;
	struct buf body = {0};
	uint32_t n = 0, k = 0;
	int err;

	if (!s->c.volume.starts)
		return 0;
	if ((err = s->c.volume.starts(s->c.volume.v, cut, &all, &n)))
		return session_fail(s, err, BYE_ERROR, "starts cannot be read: %s", strerror(-err));
	if (!(fresh = malloc((n + 1u) * sizeof *fresh))) {
		free(all);
		return session_fail(s, -ENOMEM, BYE_ERROR, "out of memory");
	}
	for (uint32_t i = 0; i < n; i++)
		if (!was_told(t, &all[i]))
			fresh[k++] = all[i];
	if (k) {
		msg_starts_encode(fresh, k, &body);
		err = session_send(s, TYPE_STARTS, 0, &body);
		buf_fini(&body);
		free(t->told);
		t->told = all;
		t->n_told = n;
	} else {
		free(all);
	}
	free(fresh);
	return err;
}

int starts_at_end(struct session *s, const struct vector *end)
{
	struct starts *t = &s->starts;
	int err = t->n_heard ? compare(s, end, t->heard, t->n_heard) : 0;

	t->n_heard = 0;
	return err;
}

int starts_take_renew(struct session *s, const uint8_t *body, size_t len)
{
	struct identity fresh;
	int err = s->c.volume.peer_renewed ? msg_renew_decode(body, len, &fresh) : -EPROTO;

	if (err)
		return session_bad(s, err, TYPE_RENEW);
	if ((err = s->c.volume.peer_renewed(s->c.volume.v, s->c.peer, &fresh)))
		return session_fail(s, err, BYE_RESTORED, "the new identity of a restored or copied store is refused: %s", strerror(-err));
	return session_fail(s, -ECANCELED, BYE_RENEWED, "the new identity is known");
}

int starts_tick(struct session *s, uint64_t now_ns)
{
	if (!s->starts.doubtful || now_ns - s->starts.doubt_ns < DOUBT_NS)
		return 0;
	return session_fail(s, -ESTALE, BYE_RESTORED, "a store was restored from an older copy or copied, and says nothing of a new identity");
}

bool session_wants_renewal(const struct session *s) { return s->starts.confirmed; }
