#include "scrub.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "wait.h"

#define STATE_FORMAT 1
#define SAVE_NS (30ull * 1000000000)
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_IDLE (3 << 13)

struct scrubber {
	pthread_t thread;
	pthread_mutex_t mu; /* protects the rest */
	pthread_cond_t wake;
	bool stop, now;
	uint64_t rate, at, saved_ns;
	struct scrub_status st;
};

/* meta "scrub": format u8 | ended s u64 | resume row u64 | found u64 | healed u64 | bytes u64. */
static void load_state(struct volume *v, struct scrubber *s)
{
	struct buf b = {0};

	tree_lock(v);
	int e = journal_meta_get(v->journal, "scrub", &b);
	tree_unlock(v);
	struct reader r = reader_of(b.p, b.len);
	if (!e && read_u8(&r) == STATE_FORMAT) {
		s->st.ended_s = read_u64(&r);
		s->at = read_u64(&r);
		s->st.found = read_u64(&r);
		s->st.healed = read_u64(&r);
		s->st.bytes = read_u64(&r);
		if (r.bad)
			s->st.ended_s = s->at = 0;
	}
	buf_fini(&b);
}

static void save_state(struct volume *v, struct scrubber *s)
{
	struct buf b = {0};
	int e;

	pthread_mutex_lock(&s->mu);
	buf_put_u8(&b, STATE_FORMAT);
	buf_put_u64(&b, s->st.ended_s);
	buf_put_u64(&b, s->at);
	buf_put_u64(&b, s->st.found);
	buf_put_u64(&b, s->st.healed);
	buf_put_u64(&b, s->st.bytes);
	pthread_mutex_unlock(&s->mu);
	pthread_mutex_lock(&v->commit_mu);
	tree_lock(v);
	e = b.err || v->read_only ? -EROFS : journal_begin(v->journal);
	if (!e) {
		e = journal_meta_set(v->journal, "scrub", b.p, b.len);
		e = e ? e : journal_commit(v->journal);
		if (e)
			journal_rollback(v->journal);
	}
	tree_unlock(v);
	pthread_mutex_unlock(&v->commit_mu);
	buf_fini(&b);
}

static bool on_progress(void *ctx, uint64_t done, uint64_t total, uint64_t at, uint64_t bytes)
{
	struct volume *v = ctx;
	struct scrubber *s = v->scrubber;
	uint64_t now = env_mono_ns(&env_real);

	pthread_mutex_lock(&s->mu);
	s->st.done = done;
	s->st.total = total;
	s->at = at;
	bool stop = s->stop, save = !stop && now - s->saved_ns > SAVE_NS;
	if (save)
		s->saved_ns = now;
	pthread_mutex_unlock(&s->mu);
	if (save)
		save_state(v, s);
	return !stop;
}

static void on_finding(void *ctx, const char *text)
{
	struct volume *v = ctx;
	log_warn("%s: scrub: %s", v->path, text);
}

static void scrub_once(struct volume *v)
{
	struct scrubber *s = v->scrubber;
	struct check_options o = {.repair = true, .deep = true, .rate = s->rate, .after = s->at, .say = on_finding, .progress = on_progress, .ctx = v};
	struct check_result r;

	log_info("%s: scrub begins%s", v->path, s->at ? " where it was interrupted" : "");
	int e = volume_check(v, &o, &r);
	pthread_mutex_lock(&s->mu);
	s->st.running = false;
	if (!e && !r.stopped) {
		s->at = 0;
		s->st.ended_s = env_wall_ns(&env_real) / 1000000000;
		s->st.found = r.bad_records + r.bad_links + r.bad_counts + r.bad_files + r.orphans + r.bad_root + r.healed + r.set_aside;
		s->st.healed = r.healed;
		s->st.bytes = r.bytes;
	}
	pthread_mutex_unlock(&s->mu);
	save_state(v, s);
	if (e)
		log_error("%s: scrub: %s", v->path, strerror(-e));
	else if (!r.stopped)
		log_info("%s: scrub ended: %llu records, %llu files, %llu bytes; %llu found, %llu healed", v->path, (unsigned long long)r.records,
			 (unsigned long long)r.files, (unsigned long long)r.bytes, (unsigned long long)s->st.found, (unsigned long long)s->st.healed);
}

static void *scrubber_main(void *arg)
{
	struct volume *v = arg;
	struct scrubber *s = v->scrubber;
	const struct sched_param p = {0};

	/* whatever else there is to do goes first; where that cannot be had it runs all the same */
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &p);
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
	pthread_mutex_lock(&s->mu);
	while (!s->stop) {
		uint64_t wall_s = env_wall_ns(&env_real) / 1000000000;
		bool due = s->now || (s->st.period_s && (s->at || wall_s >= s->st.ended_s + s->st.period_s || wall_s < s->st.ended_s));
		if (!due) {
			cond_wait_until(&s->wake, &s->mu, mono_ns_in(60000));
			continue;
		}
		s->now = false;
		s->st.running = true;
		pthread_mutex_unlock(&s->mu);
		scrub_once(v);
		pthread_mutex_lock(&s->mu);
	}
	pthread_mutex_unlock(&s->mu);
	return NULL;
}

int scrub_start(struct volume *v, uint64_t period_s, uint64_t rate)
{
	struct scrubber *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->st.period_s = period_s;
	s->rate = rate;
	s->saved_ns = env_mono_ns(&env_real);
	load_state(v, s);
	pthread_mutex_init(&s->mu, NULL);
	cond_init(&s->wake);
	v->scrubber = s;
	int e = -pthread_create(&s->thread, NULL, scrubber_main, v);
	if (e) {
		v->scrubber = NULL;
		free(s);
	}
	return e;
}

void scrub_stop(struct volume *v)
{
	struct scrubber *s = v->scrubber;

	if (!s)
		return;
	pthread_mutex_lock(&s->mu);
	s->stop = true;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->mu);
	pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->mu);
	pthread_cond_destroy(&s->wake);
	free(s);
	v->scrubber = NULL;
}

int volume_scrub_now(struct volume *v)
{
	struct scrubber *s = v->scrubber;
	int e;

	if (!s)
		return -ENOSYS;
	pthread_mutex_lock(&s->mu);
	e = s->st.running ? -EALREADY : 0;
	s->now = true;
	if (!e) {
		s->at = 0;
		s->st.running = true;
		s->st.done = 0;
	}
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mu);
	return e;
}

void volume_scrub_status(struct volume *v, struct scrub_status *ret)
{
	struct scrubber *s = v->scrubber;

	*ret = (struct scrub_status){0};
	if (!s)
		return;
	pthread_mutex_lock(&s->mu);
	*ret = s->st;
	pthread_mutex_unlock(&s->mu);
}
