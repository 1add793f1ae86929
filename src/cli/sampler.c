/* Takes a sample of every peer each minute and puts it into the journal, for the report. An idle replica writes nothing: a sample that equals the one before
 * is not stored, but once an hour. */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "log.h"

#define PEERS_MAX 64u

struct sampler {
	struct volume *volume;
	pthread_t thread;
	int stop_fd;
	int period_s;
	uint64_t stored_s;
	struct sample last[PEERS_MAX];
	uint32_t n_last;
};

static bool is_same(const struct sample *a, const struct sample *b)
{
	return a->peer == b->peer && a->backlog_files == b->backlog_files && a->backlog_bytes == b->backlog_bytes && a->lag_us == b->lag_us;
}

uint32_t sample_peers(struct volume *v, struct sample *ret, uint32_t max)
{
	uint64_t now_s = env_wall_ns(&env_real) / 1000000000u;
	struct peer_status *p;
	uint32_t n;

	if (volume_peer_statuses(v, &p, &n))
		return 0;
	n = n < max ? n : max;
	for (uint32_t i = 0; i < n; i++)
		ret[i] = (struct sample){.at_s = now_s, .peer = p[i].replica, .backlog_files = p[i].backlog_files, .backlog_bytes = p[i].backlog_bytes,
			.lag_us = p[i].lag_ns / 1000, .sent_bytes = p[i].sent_bytes, .received_bytes = p[i].received_bytes};
	free(p);
	return n;
}

static void take(struct sampler *s)
{
	struct sample now[PEERS_MAX];
	uint32_t n = sample_peers(s->volume, now, PEERS_MAX);
	bool same = n == s->n_last;

	for (uint32_t i = 0; i < n && same; i++)
		same = is_same(&now[i], &s->last[i]);
	if (!n || (same && now[0].at_s < s->stored_s + 3600))
		return;
	/* the line stays level until here: the last equal sample belongs to the picture too */
	int e = volume_put_samples(s->volume, now, n);
	if (e && e != -EROFS)
		log_warn("%s: a sample for the report was not stored: %s", volume_path(s->volume), strerror(-e));
	memcpy(s->last, now, n * sizeof *now);
	s->n_last = n;
	s->stored_s = now[0].at_s;
}

static void *sampler_main(void *arg)
{
	struct sampler *s = arg;
	struct pollfd p = {.fd = s->stop_fd, .events = POLLIN};

	while (poll(&p, 1, s->period_s * 1000) == 0)
		take(s);
	return NULL;
}

struct sampler *sampler_start(struct volume *v)
{
	const char *period = getenv("TWOFOLD_SAMPLE");
	struct sampler *s = volume_is_read_only(v) ? NULL : calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->volume = v;
	s->period_s = period ? atoi(period) : 60;
	if (s->period_s < 1 || s->period_s > 3600)
		s->period_s = 60;
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (s->stop_fd < 0 || pthread_create(&s->thread, NULL, sampler_main, s)) {
		if (s->stop_fd >= 0)
			close(s->stop_fd);
		free(s);
		log_warn("%s: no samples are taken for the report", volume_path(v));
		return NULL;
	}
	return s;
}

void sampler_stop(struct sampler *s)
{
	uint64_t one = 1;

	if (!s)
		return;
	if (write(s->stop_fd, &one, sizeof one) < 0)
		log_error("sampler: %s", strerror(errno));
	pthread_join(s->thread, NULL);
	close(s->stop_fd);
	free(s);
}
