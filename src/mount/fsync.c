/* fsync=peer|all: an fsync is answered once peers hold what it covers. It waits on no worker and with no lock: the request is kept, and a thread of the replication
 * answers it. The kernel holds the file's (or directory's) lock meanwhile, as for any fsync. */
#include "mount_internal.h"

#include <stdlib.h>

struct parked {
	struct mount *m;
	fuse_req_t req;
	uint64_t start_ns;
};

static void answer(void *arg, int err)
{
	struct parked *p = arg;
	struct mount *m = p->m;

	mount_fail(p->req, err);
	stats_since(m->stats, OP_FSYNC, p->start_ns);
	free(p);
	pthread_mutex_lock(&m->guests_lock);
	if (--m->parked == 0)
		pthread_cond_broadcast(&m->guests_wake);
	pthread_mutex_unlock(&m->guests_lock);
}

void fsync_answer(struct mount *m, fuse_req_t req, uint64_t start_ns, int err)
{
	struct parked *p = !err && m->o->durable ? malloc(sizeof *p) : NULL;
	int r = err;

	if (!err && m->o->durable)
		r = p ? 0 : -ENOMEM;
	if (!p) {
		mount_fail(req, r);
		stats_since(m->stats, OP_FSYNC, start_ns);
		return;
	}
	*p = (struct parked){m, req, start_ns};
	pthread_mutex_lock(&m->guests_lock);
	m->parked++;
	pthread_mutex_unlock(&m->guests_lock);
	r = m->o->durable(m->o->ctx, answer, p);
	if (r)
		answer(p, r);
}

void fsync_give_up(struct mount *m)
{
	if (!m->o->give_up)
		return;
	m->o->give_up(m->o->ctx);
	pthread_mutex_lock(&m->guests_lock);
	while (m->parked)
		pthread_cond_wait(&m->guests_wake, &m->guests_lock);
	pthread_mutex_unlock(&m->guests_lock);
}
