#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine_state.h"
#include "log.h"
#include "wait.h"

static void wake(int fd)
{
	uint64_t one = 1;

	(void)!write(fd, &one, sizeof one);
}

void engine_event(struct engine *e)
{
	e->events++;
	pthread_cond_broadcast(&e->cond);
}

struct peering *engine_find(struct engine *e, uint64_t replica)
{
	for (uint32_t i = 0; i < e->n_peering; i++)
		if (e->peering[i].replica == replica)
			return &e->peering[i];
	return NULL;
}

struct connection *engine_connection_of(struct engine *e, uint64_t replica, bool up_only)
{
	for (struct connection *c = e->connections; c; c = c->next)
		if (c->peer == replica && !c->finished && (c->up || !up_only))
			return c;
	return NULL;
}

/* ---- what a connection reports ---- */

/* Both sides may have dialed at once, or the peer came back before its old connection was noticed to be dead. Both sides keep the same one. */
void engine_connection_up(struct connection *c)
{
	struct engine *e = c->e;
	uint64_t mine = volume_header(e->v)->replica, tag = session_peer_tag(c->session);
	char name[33] = "";

	pthread_mutex_lock(&e->lock);
	c->peer_tag = tag;
	for (struct connection *o = e->connections; o; o = o->next) {
		bool newer, keep_new;

		if (o == c || o->peer != c->peer || !o->up || o->finished || o->stop)
			continue;
		newer = o->peer_tag != tag || o->initiator == c->initiator;
		keep_new = newer || c->initiator == (mine < c->peer);
		connection_stop(keep_new ? o : c, BYE_DUPLICATE, "another connection of the two is in use");
	}
	c->can_heal = session_can_heal(c->session);
	c->up = true;
	struct peering *p = engine_find(e, c->peer);
	if (p) {
		p->refused = false;
		p->last_error[0] = 0;
		snprintf(name, sizeof name, "%s", p->name);
		if (p->paused)
			connection_stop(c, BYE_PAUSED, "the peering is paused there");
	}
	e->refresh = e->refresh || !p;
	engine_event(e);
	pthread_mutex_unlock(&e->lock);
	log_info("peer %s (%016llx): connected, %s", name[0] ? name : "?", (unsigned long long)c->peer, c->initiator ? "by dialing" : "it dialed");
	if (!p)
		wake(e->wake_fd);
}

void engine_poke_others(struct engine *e, const struct connection *but)
{
	pthread_mutex_lock(&e->lock);
	for (struct connection *c = e->connections; c; c = c->next) {
		if (c == but || c->finished)
			continue;
		atomic_store(&c->poked, true);
		connection_wake(c);
	}
	pthread_mutex_unlock(&e->lock);
}

void engine_connection_has(struct connection *c)
{
	struct engine *e = c->e;
	struct vector has;

	if (vector_copy(&has, session_peer_has(c->session)))
		return;
	pthread_mutex_lock(&e->lock);
	struct peering *p = engine_find(e, c->peer);
	if (p)
		p->behind = session_left_replaced(c->session);
	vector_fini(&c->peer_has);
	c->peer_has = has;
	pthread_mutex_unlock(&e->lock);
}

void engine_connection_news(struct connection *c)
{
	struct engine *e = c->e;

	pthread_mutex_lock(&e->lock);
	engine_event(e);
	pthread_mutex_unlock(&e->lock);
	/* what came from this peer goes on to the others */
	engine_poke_others(e, c);
}

static bool is_refusal(uint16_t code) { return code == BYE_VERSION || code == BYE_REMOVED || code == BYE_UNKNOWN || code == BYE_RESTORED; }

static void back_off(struct engine *e, struct peering *p, bool lived, bool refused)
{
	uint64_t most = refused ? BACKOFF_REFUSED_NS : BACKOFF_MAX_NS, jitter;

	if (lived || p->backoff_ns < BACKOFF_MIN_NS)
		p->backoff_ns = BACKOFF_MIN_NS;
	else if (p->backoff_ns < most)
		p->backoff_ns *= 2;
	if (p->backoff_ns > most || refused)
		p->backoff_ns = most;
	env_random(e->env, &jitter, sizeof jitter);
	p->next_dial_ns = env_mono_ns(e->env) + p->backoff_ns / 2 + jitter % (p->backoff_ns / 2);
}

void engine_connection_over(struct connection *c, int err)
{
	struct engine *e = c->e;
	uint16_t code = c->session ? session_bye_code(c->session) : 0;
	bool quiet = code == BYE_DUPLICATE || code == BYE_RENEW || code == BYE_RENEWED || err == -ECANCELED;
	bool refused = is_refusal(code) || err == -EACCES;
	bool news = false, known = false;
	char name[33] = "?";

	pthread_mutex_lock(&e->lock);
	if (c->half_open)
		e->half_open--;
	c->half_open = c->up = false;
	c->finished = true;
	heal_call_lost(c);
	struct peering *p = c->peer ? engine_find(e, c->peer) : NULL;
	if (p) {
		known = true;
		snprintf(name, sizeof name, "%s", p->name);
		p->sent_bytes += c->sent_bytes;
		p->received_bytes += c->received_bytes;
		p->saved_bytes += p->live.saved_bytes;
		p->live = (struct peer_status){0};
		if (!quiet && !e->stopping) {
			news = strcmp(p->last_error, c->error) != 0;
			memcpy(p->last_error, c->error, sizeof p->last_error);
			p->refused = refused && !engine_connection_of(e, c->peer, true);
		}
		if (code == BYE_RENEW || code == BYE_RENEWED)
			p->next_dial_ns = 0;
		else
			back_off(e, p, c->was_up, refused);
	}
	e->renew |= c->session && session_wants_renewal(c->session);
	e->refresh = true; /* its state shows at once */
	engine_event(e);
	pthread_mutex_unlock(&e->lock);
	if (c->was_up && known)
		log_info("peer %s: disconnected: %s", name, c->error);
	else if (err && !quiet && (news || !known))
		log_warn("peer %s%s%s: %s", known ? name : "(not known yet)", c->remote[0] ? " at " : "", c->remote, c->error);
	wake(e->wake_fd);
}

/* ---- the acceptor ---- */

static void accept_one(struct engine *e, int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	bool full;

	if (fd < 0)
		return;
	pthread_mutex_lock(&e->lock);
	full = e->half_open >= HALF_OPEN_MAX;
	pthread_mutex_unlock(&e->lock);
	if (full) {
		close(fd);
		return;
	}
	socket_tune(fd);
	connection_spawn(e, fd, NULL);
}

static void *acceptor_main(void *arg)
{
	struct engine *e = arg;
	struct pollfd p[LISTEN_MAX + 1];

	for (int i = 0; i < e->n_listen; i++)
		p[i] = (struct pollfd){.fd = e->listen_fd[i], .events = POLLIN};
	p[e->n_listen] = (struct pollfd){.fd = e->accept_wake_fd, .events = POLLIN};
	for (;;) {
		if (poll(p, (nfds_t)e->n_listen + 1, -1) < 0 && errno != EINTR)
			return NULL;
		if (p[e->n_listen].revents)
			return NULL;
		for (int i = 0; i < e->n_listen; i++)
			if (p[i].revents)
				accept_one(e, e->listen_fd[i]);
	}
}

/* ---- life ---- */

/* Where it listens on one address, others can dial it there. */
static void publish(struct engine *e)
{
	const char *host = e->listen_at.host;
	char address[300];

	if (!e->port || !host[0])
		return;
	snprintf(address, sizeof address, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, e->port);
	int err = peering_publish(e->v, address, false);
	if (err)
		log_warn("the address %s could not be told to other members: %s", address, strerror(-err));
}

static void on_commit(void *ctx) { engine_poke_others(ctx, NULL); }

int engine_new(struct volume *v, const struct engine_options *o, struct engine **ret)
{
	struct engine *e = calloc(1, sizeof *e);
	int err = -ENOMEM;

	if (!e)
		return -ENOMEM;
	e->v = v;
	e->env = &env_real;
	e->wake_fd = e->accept_wake_fd = -1;
	pthread_mutex_init(&e->lock, NULL);
	cond_init(&e->cond);
	if (o && o->listen) {
		e->listens = true;
		if ((err = address_parse(o->listen, &e->listen_at)))
			goto fail;
	}
	err = -ENOMEM;
	if (!(e->static_secret = sodium_malloc(32)))
		goto fail;
	if ((err = header_static_secret(volume_header(v), volume_keyring(v), e->static_secret)))
		goto fail;
	e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	e->accept_wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->wake_fd < 0 || e->accept_wake_fd < 0) {
		err = -errno;
		goto fail;
	}
	channel_prologue(keyring_volume(volume_keyring(v)), e->prologue);
	*ret = e;
	return 0;
fail:
	engine_free(e);
	return err;
}

static void close_listeners(struct engine *e)
{
	while (e->n_listen)
		close(e->listen_fd[--e->n_listen]);
	e->port = 0;
}

static void end_acceptor(struct engine *e)
{
	if (!e->listens)
		return;
	wake(e->accept_wake_fd);
	pthread_join(e->acceptor, NULL);
	close_listeners(e);
}

static void end_keeper(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->stopping = true;
	engine_event(e);
	pthread_mutex_unlock(&e->lock);
	wake(e->wake_fd);
	pthread_join(e->keeper, NULL);
}

int engine_start(struct engine *e)
{
	int err;

	if (e->listens) {
		err = address_listen(&e->listen_at, e->listen_fd, &e->n_listen, &e->port);
		if (err) {
			log_error("cannot listen on %s:%s: %s", e->listen_at.host[0] ? e->listen_at.host : "*", e->listen_at.port, strerror(-err));
			return err;
		}
		if ((err = -pthread_create(&e->acceptor, NULL, acceptor_main, e))) {
			close_listeners(e);
			return err;
		}
	}
	e->refresh = true;
	if ((err = -pthread_create(&e->keeper, NULL, keeper_main, e))) {
		end_acceptor(e);
		return err;
	}
	if ((err = -pthread_create(&e->waiter, NULL, durable_main, e))) {
		end_keeper(e);
		end_acceptor(e);
		return err;
	}
	e->started = true;
	volume_set_commit_listener(e->v, on_commit, e);
	volume_heal_set_fetch(e->v, engine_heal_fetch, e);
	publish(e);
	return 0;
}

void engine_stop(struct engine *e)
{
	if (!e->started)
		return;
	volume_set_commit_listener(e->v, NULL, NULL);
	pthread_mutex_lock(&e->lock);
	for (struct connection *c = e->connections; c; c = c->next)
		connection_stop(c, BYE_STOPPING, "the replica is being unmounted");
	e->stopping = true;
	engine_event(e);
	pthread_mutex_unlock(&e->lock);
	volume_heal_set_fetch(e->v, NULL, NULL);
	end_keeper(e);
	end_acceptor(e);
	pthread_join(e->waiter, NULL);
	keeper_reap(e, true);
	e->started = false;
}

void engine_free(struct engine *e)
{
	if (!e)
		return;
	if (e->wake_fd >= 0)
		close(e->wake_fd);
	if (e->accept_wake_fd >= 0)
		close(e->accept_wake_fd);
	sodium_free(e->static_secret);
	free(e->peering);
	pthread_cond_destroy(&e->cond);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

uint16_t engine_port(const struct engine *e) { return e->port; }

void engine_poke(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	e->refresh = true;
	pthread_mutex_unlock(&e->lock);
	engine_poke_others(e, NULL);
	wake(e->wake_fd);
}

/* ---- settings ---- */

int engine_peer_pause(struct engine *e, uint64_t replica, bool paused)
{
	int err = peering_pause(e->v, replica, paused);

	engine_poke(e);
	return err;
}

int engine_peer_remove(struct engine *e, uint64_t replica)
{
	int err = peering_remove(e->v, replica);

	engine_poke(e);
	return err;
}
