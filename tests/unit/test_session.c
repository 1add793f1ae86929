/* Two sessions on two small volumes, joined by queues in memory: both directions at once, contents that change while they are sent, forms that the receiver
 * cannot use, cuts anywhere and resuming, catching up in steps, a third replica behind; then a peer that breaks the protocol. */
#include "fake_volume.h"

struct wire { /* messages one way */
	struct buf b;
	size_t at;
	uint32_t messages, batches, catching_up, gets, data;
};
struct end {
	struct fake *f;
	struct session *s;
	struct wire *out, *in;
};
struct pair {
	struct end a, b;
	struct wire ab, ba;
};

static uint64_t fake_now = 1000;
static uint64_t mono(void *ctx) { return fake_now; }
static const struct env test_env = {.mono_ns = mono, .wall_ns = mono};

static int wire_send(void *ctx, uint8_t type, uint32_t request, const void *body, size_t len)
{
	struct wire *w = ctx;

	CHECK(len <= message_body_max(type));
	buf_put_u8(&w->b, type);
	buf_put_u32(&w->b, request);
	buf_put_u32(&w->b, (uint32_t)len);
	buf_put(&w->b, body, len);
	w->messages++;
	w->batches += type == TYPE_BATCH;
	w->catching_up += type == TYPE_BATCH && ((const uint8_t *)body)[0] == BATCH_CATCHING_UP;
	w->gets += type == TYPE_GET;
	w->data += type == TYPE_DATA;
	return w->b.err;
}

static size_t wire_queued(void *ctx)
{
	struct wire *w = ctx;

	return w->b.len - w->at;
}

static struct session *new_session(struct fake *f, uint64_t peer, struct wire *out)
{
	struct session_config c = {.volume = fake_table(f), .io = {.send = wire_send, .queued = wire_queued, .ctx = out}, .env = &test_env,
		.replica = f->replica, .peer = peer};
	struct session *s;

	REQUIRE(!session_new(&c, &s));
	return s;
}

static void pair_connect(struct pair *p, struct fake *fa, struct fake *fb)
{
	*p = (struct pair){.a = {.f = fa}, .b = {.f = fb}};
	p->a.out = p->b.in = &p->ab;
	p->b.out = p->a.in = &p->ba;
	p->a.s = new_session(fa, fb->replica, &p->ab);
	p->b.s = new_session(fb, fa->replica, &p->ba);
	CHECK_EQ(session_start(p->a.s), 0);
	CHECK_EQ(session_start(p->b.s), 0);
}

static void pair_cut(struct pair *p)
{
	session_free(p->a.s);
	session_free(p->b.s);
	buf_fini(&p->ab.b);
	buf_fini(&p->ba.b);
}

/* Delivers the next message, if there is one. 1: it did; negative: the session is over. */
static int deliver(struct end *e)
{
	struct wire *w = e->in;
	const uint8_t *p = w->b.p + w->at;
	uint8_t *body;
	uint32_t len;
	int err;

	if (w->at == w->b.len)
		return 0;
	len = le32_load(p + 5);
	/* a copy of exactly that size, so that AddressSanitizer sees what reads beyond */
	body = malloc(len ? len : 1);
	REQUIRE(body);
	memcpy(body, p + 9, len);
	w->at += 9 + len;
	err = session_receive(e->s, p[0], le32_load(p + 1), body, len);
	free(body);
	if (w->at == w->b.len)
		w->at = w->b.len = 0;
	return err ? err : 1;
}

static int step(struct end *e, uint32_t what) { return what % 2 ? deliver(e) : session_work(e->s); }

/* Runs until neither side has anything to do. */
static int settle(struct pair *p)
{
	for (int idle = 0; idle < 2;) {
		int n = 0;

		for (uint32_t i = 0; i < 4; i++) {
			int r = step(i / 2 ? &p->b : &p->a, i);

			if (r < 0)
				return r;
			n |= r;
		}
		idle = n ? 0 : idle + 1;
	}
	return 0;
}

static void check_same(const struct fake *a, const struct fake *b)
{
	uint32_t differ = 0;

	for (uint32_t i = 0; i < CELLS; i++)
		differ += !dot_eq(a->cell[i].dot, b->cell[i].dot) || a->cell[i].length != b->cell[i].length;
	CHECK_EQ(differ, 0);
	CHECK(vector_eq(&a->knowledge, &b->knowledge));
}

static void check_in_sync(struct end *e, uint64_t peer)
{
	struct peer_status st = {0};

	session_status(e->s, &st);
	CHECK_EQ(st.state, PEER_IN_SYNC);
	CHECK_EQ(st.backlog_parts, 0);
	CHECK(vector_eq(session_peer_has(e->s), &e->f->knowledge));
	CHECK(vector_eq(&e->f->peer_knowledge[peer], &e->f->knowledge));
}

static void test_simple(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;
	uint32_t before;

	for (uint32_t i = 0; i < 10; i++)
		fake_change(a, i, i % 3 ? 1000 : 0);
	for (uint32_t i = 5; i < 15; i++)
		fake_change(b, i, 500);
	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	check_in_sync(&p.a, 2);
	check_in_sync(&p.b, 1);
	CHECK_EQ(p.ab.batches, 1);
	CHECK_EQ(p.ba.batches, 1);
	CHECK_EQ(p.ab.catching_up, 0);
	/* what came does not go back, and what nothing follows is quiet */
	before = p.ab.messages + p.ba.messages;
	session_poke(p.a.s);
	session_poke(p.b.s);
	CHECK_EQ(settle(&p), 0);
	CHECK_EQ(p.ab.messages + p.ba.messages, before);
	fake_change(a, 20, 0);
	session_poke(p.a.s);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	CHECK_EQ(p.ab.batches, 2);
	CHECK_EQ(p.ba.batches, 1);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

/* A content that changes while it is sent: what the peer acknowledges meanwhile does not count as durable there, until the newer one has come. */
static void test_replaced(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;

	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	fake_change(a, 1, 5000);
	session_poke(p.a.s);
	/* the record is out before the content is asked for */
	for (int i = 0; i < 20 && !p.ab.batches; i++)
		CHECK(session_work(p.a.s) >= 0);
	struct dot old = a->cell[1].dot;
	fake_change(a, 1, 6000);
	for (uint32_t i = 0; i < 200 && !vector_has(session_peer_has(p.a.s), old); i++)
		CHECK(step(i / 2 % 2 ? &p.b : &p.a, i) >= 0);
	CHECK(vector_has(session_peer_has(p.a.s), old));
	CHECK(session_left_replaced(p.a.s));
	session_poke(p.a.s);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	CHECK(!session_left_replaced(p.a.s));
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

/* More than a live batch: in steps, flagged, and joined at the end only. */
static void test_catch_up(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;
	uint32_t i, seen_steps = 0;

	for (i = 0; i < CELLS; i++)
		fake_change(a, i, i % 50 ? 0 : 700);
	pair_connect(&p, a, b);
	for (i = 0; i < 1000000; i++) {
		int r = step(i & 2 ? &p.a : &p.b, i);

		REQUIRE(r >= 0);
		if (b->applied == 1 && !vector_get(&b->knowledge, 1))
			seen_steps = 1;
		if (vector_get(&b->knowledge, 1))
			break;
	}
	CHECK_EQ(seen_steps, 1);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	CHECK(p.ab.batches > 1 && p.ab.batches == p.ab.catching_up);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

/* Cut in the middle of a content: what had come is not asked for again. */
static void test_resume(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;

	fake_change(a, 3, 10 * 3 * FAKE_PAGE);
	pair_connect(&p, a, b);
	while (p.ab.data < 5)
		for (uint32_t i = 0; i < 4; i++)
			REQUIRE(step(i / 2 ? &p.b : &p.a, i) >= 0);
	while (deliver(&p.b) > 0)
		;
	pair_cut(&p);
	CHECK_EQ(vector_get(&b->knowledge, 1), 0);
	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	CHECK_EQ(b->resumed, 1);
	CHECK(p.ab.data <= 6);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

static void test_forms(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;

	b->no_data_in_100 = 50;
	for (uint32_t i = 0; i < 400; i++)
		fake_change(a, i, 900);
	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	CHECK(p.ab.data > 400 && p.ba.gets > 400 && b->deltas > 0);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

/* A content that is damaged at the sender: the rest arrives, the cut is not joined, and it is tried again later, not in a loop. */
static void test_damaged(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;
	uint32_t batches;

	fake_change(a, 1, 500);
	fake_change(a, 2, 0);
	a->damage_in_100 = 100;
	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	CHECK_EQ(vector_get(&b->knowledge, 1), 0);
	CHECK(dot_eq(b->cell[2].dot, a->cell[2].dot));
	batches = p.ab.batches;
	CHECK_EQ(batches, 1);
	a->damage_in_100 = 0;
	fake_now += RETRY_NS + 1;
	CHECK_EQ(session_tick(p.a.s), 0);
	CHECK_EQ(settle(&p), 0);
	CHECK_EQ(p.ab.batches, batches + 1);
	check_same(a, b);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

/* A failed apply ends the session by name and leaves the volume; the next try goes through. */
static void test_failed_apply(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;

	fake_change(a, 1, 500);
	b->fail_apply = -ENOSPC;
	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), -ENOSPC);
	CHECK(strstr(session_error(p.b.s), "No space"));
	CHECK_EQ(deliver(&p.a) < 0 || deliver(&p.a) < 0 || deliver(&p.a) < 0 || settle(&p) < 0, 1);
	CHECK_EQ(session_bye_code(p.a.s), BYE_ERROR);
	CHECK_EQ(vector_get(&b->knowledge, 1), 0);
	pair_cut(&p);
	b->fail_apply = 0;
	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	check_same(a, b);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

static uint32_t random_gone, random_resumed;
/* Random changes on three replicas, connected two at a time, with cuts: after quiet, all are equal. */
static void test_random(uint32_t seed)
{
	struct fake *f[3] = {fake_new(1), fake_new(2), fake_new(3)};

	for (int i = 0; i < 3; i++) {
		f[i]->cells = 200;
		f[i]->no_data_in_100 = 20;
		f[i]->seed = seed + (uint32_t)i;
	}
	for (int round = 0; round < 12; round++) {
		uint32_t x = roll(&seed) % 3, y = (x + 1 + roll(&seed) % 2) % 3;
		uint32_t steps = roll(&seed) % 1500;
		struct pair p;

		pair_connect(&p, f[x], f[y]);
		for (uint32_t i = 0; i < steps; i++) {
			uint32_t who = roll(&seed);

			if (roll(&seed) % 10 == 0) {
				fake_change(f[who % 3], roll(&seed) % 200, roll(&seed) % 2 * roll(&seed) % 3000);
				session_poke(p.a.s);
				session_poke(p.b.s);
			}
			REQUIRE(step(who & 4 ? &p.a : &p.b, roll(&seed)) >= 0);
		}
		pair_cut(&p);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 3; i++) {
			struct pair p;

			pair_connect(&p, f[i], f[(i + 1) % 3]);
			CHECK_EQ(settle(&p), 0);
			check_in_sync(&p.a, f[(i + 1) % 3]->replica);
			pair_cut(&p);
		}
	check_same(f[0], f[1]);
	check_same(f[1], f[2]);
	for (int i = 0; i < 3; i++) {
		random_gone += f[i]->gone;
		random_resumed += f[i]->resumed;
		fake_free(f[i]);
	}
}

/* ---- a peer that breaks the protocol ---- */

static void put_hello(struct buf *out, uint64_t replica, struct dot knows)
{
	struct msg_hello m = {.protocol = PROTOCOL_VERSION, .replica = replica, .tag = 1};

	if (knows.replica)
		vector_add(&m.knowledge, knows);
	msg_hello_encode(&m, out);
	vector_fini(&m.knowledge);
}

/* One session that is up (if hello) gets one message, which it must refuse with this BYE code. */
static void refuses(bool hello, uint8_t type, uint32_t request, const void *body, size_t len, int code)
{
	struct fake *f = fake_new(1);
	struct wire w = {0};
	struct session *s = new_session(f, 2, &w);
	struct buf h = {0};

	fake_change(f, 1, 0);
	REQUIRE(!session_start(s));
	if (hello) {
		put_hello(&h, 2, (struct dot){0});
		CHECK_EQ(session_receive(s, TYPE_HELLO, 0, h.p, h.len), 0);
	}
	CHECK(session_receive(s, type, request, body, len) < 0);
	CHECK_EQ(session_bye_code(s), code);
	CHECK(session_error(s)[0]);
	CHECK(session_work(s) < 0);
	session_free(s);
	buf_fini(&h);
	buf_fini(&w.b);
	fake_free(f);
}

static void test_refusals(void)
{
	static const uint8_t part[] = {1, 0, 0, 0, 'x'}, end[] = {1, 0, 0}, zero[64];
	struct buf h = {0};

	refuses(false, TYPE_PING, 0, "\0", 1, BYE_PROTOCOL);          /* before HELLO */
	refuses(false, TYPE_HELLO, 0, "\1\0\0\0", 4, BYE_PROTOCOL);   /* cut short */
	refuses(false, TYPE_HELLO, 0, "\2\0\0\0", 4, BYE_VERSION);
	refuses(true, 99, 0, NULL, 0, BYE_PROTOCOL);
	refuses(true, TYPE_JOIN, 0, zero, 64, BYE_PROTOCOL);
	refuses(true, TYPE_PART, 1, part, sizeof part, BYE_PROTOCOL); /* no batch */
	refuses(true, TYPE_END, 1, end, sizeof end, BYE_PROTOCOL);
	refuses(true, TYPE_ACK, 1, end, sizeof end, BYE_PROTOCOL);    /* nothing was sent */
	refuses(true, TYPE_DATA, 7, "\1x", 2, BYE_PROTOCOL);          /* not asked for */
	refuses(true, TYPE_GONE, 7, "\1", 1, BYE_PROTOCOL);
	refuses(true, TYPE_GET, 7, zero, 64, BYE_PROTOCOL);
	refuses(true, TYPE_PING, 0, zero, 33, BYE_PROTOCOL);
	put_hello(&h, 2, (struct dot){0});
	refuses(true, TYPE_HELLO, 0, h.p, h.len, BYE_PROTOCOL);       /* twice */
	buf_fini(&h);
	put_hello(&h, 3, (struct dot){0});
	refuses(false, TYPE_HELLO, 0, h.p, h.len, BYE_PROTOCOL);      /* not whose key it is */
	buf_fini(&h);
	put_hello(&h, 1, (struct dot){0});
	refuses(false, TYPE_HELLO, 0, h.p, h.len, BYE_DUPLICATE);     /* ourselves */
	buf_fini(&h);
	refuses(true, TYPE_STARTS, 0, "\1\0xx", 4, BYE_PROTOCOL);
	refuses(true, TYPE_RENEW, 0, zero, 42, BYE_PROTOCOL);
	refuses(true, 9, 0, zero, 17, BYE_PROTOCOL);                  /* numbers that mean nothing */
	refuses(true, 10, 0, zero, 8, BYE_PROTOCOL);
}

/* Starts that contradict: the restored side says RENEW and takes nothing else; the other one notes the new identity and says BYE. */
static struct doubt fake_doubt;
static uint32_t renewed;
static int fake_starts(struct volume *v, const struct vector *upto, struct start_tag **ret, uint32_t *ret_n)
{
	if (!(*ret = calloc(1, sizeof **ret)))
		return -ENOMEM;
	**ret = (struct start_tag){fake_of(v)->replica, 1, 7};
	*ret_n = 1;
	return 0;
}
static int fake_learn(struct volume *v, const struct start_tag *s, uint32_t n) { return 0; }
static int fake_check(struct volume *v, uint64_t peer, const struct vector *k, const struct start_tag *s, uint32_t n, struct doubt *ret)
{
	*ret = fake_doubt;
	return fake_doubt.from != 0;
}
static int fake_prepare(struct volume *v, uint64_t from, struct identity *ret)
{
	CHECK_EQ(from, 3);
	*ret = (struct identity){77, "a-004d", {1}};
	return 0;
}
static int fake_disown(struct volume *v, uint64_t replica, uint64_t from) { return 0; }
static int fake_renewed(struct volume *v, uint64_t peer, const struct identity *fresh)
{
	CHECK(peer == 1 && fresh->replica == 77 && !strcmp(fresh->name, "a-004d"));
	renewed++;
	return 0;
}

static struct session *session_with_starts(struct fake *f, uint64_t peer, struct wire *out)
{
	struct session_config c = {.volume = fake_table(f), .io = {.send = wire_send, .queued = wire_queued, .ctx = out}, .env = &test_env,
		.replica = f->replica, .peer = peer};
	struct session *s;

	c.volume.starts = fake_starts;
	c.volume.starts_learn = fake_learn;
	c.volume.starts_check = fake_check;
	c.volume.renew_prepare = fake_prepare;
	c.volume.disown = fake_disown;
	c.volume.peer_renewed = fake_renewed;
	REQUIRE(!session_new(&c, &s));
	return s;
}

static void test_starts(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p = {.a = {.f = a}, .b = {.f = b}};
	int ra = 0, rb = 0;

	p.a.out = p.b.in = &p.ab;
	p.b.out = p.a.in = &p.ba;
	fake_change(a, 1, 100);
	fake_change(b, 2, 100);
	p.a.s = session_with_starts(a, 2, &p.ab);
	p.b.s = session_with_starts(b, 1, &p.ba);
	CHECK(!session_start(p.a.s) && !session_start(p.b.s));
	fake_doubt = (struct doubt){.replica = 1, .from = 3};
	for (uint32_t i = 0; i < 200 && !ra; i++) {
		ra = step(&p.a, i);
		rb = rb < 0 ? rb : step(&p.b, i);
		ra = ra > 0 ? 0 : ra;
	}
	CHECK_EQ(renewed, 1);
	CHECK_EQ(ra, -ECONNRESET);
	CHECK(rb < 0);
	CHECK(session_wants_renewal(p.a.s) && !session_wants_renewal(p.b.s));
	CHECK_EQ(session_bye_code(p.a.s), BYE_RENEWED);
	CHECK_EQ(p.ab.batches + p.ba.batches, 0);
	fake_doubt = (struct doubt){0};
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

/* A peer that asks and never reads: the queue stays bounded, and too many requests are refused. */
static void test_bounds(void)
{
	struct fake *f = fake_new(1);
	struct wire w = {0};
	struct session *s = new_session(f, 2, &w);
	struct msg_get g = {.dot = {1, 1}, .forms = FORM_WHOLE};
	struct buf h = {0}, body = {0};
	uint32_t n;

	f->cell[0] = (struct cell){{1, 1}, 1u << 30};
	REQUIRE(!vector_add(&f->knowledge, (struct dot){1, 1}));
	REQUIRE(!session_start(s));
	put_hello(&h, 2, (struct dot){1, 1});
	REQUIRE(!session_receive(s, TYPE_HELLO, 0, h.p, h.len));
	msg_get_encode(&g, &body);
	CHECK_EQ(session_receive(s, TYPE_GET, 1, body.p, body.len), 0);
	for (n = 0; n < 1000000 && session_work(s) > 0; n++)
		;
	CHECK(wire_queued(&w) >= OUTPUT_MAX && wire_queued(&w) < OUTPUT_MAX + (1u << 20));
	for (n = 0; n < 100000; n++)
		REQUIRE(!session_receive(s, TYPE_PING, 0, (const uint8_t *)"", 1));
	CHECK(wire_queued(&w) < OUTPUT_MAX + (1u << 20));
	for (n = 2; n <= SERVE_MAX; n++)
		REQUIRE(!session_receive(s, TYPE_GET, n, body.p, body.len));
	CHECK(session_receive(s, TYPE_GET, n, body.p, body.len) < 0);
	session_free(s);
	buf_fini(&h);
	buf_fini(&body);
	buf_fini(&w.b);
	fake_free(f);
}

static void test_time(void)
{
	struct fake *a = fake_new(1), *b = fake_new(2);
	struct pair p;
	uint32_t before;

	pair_connect(&p, a, b);
	CHECK_EQ(settle(&p), 0);
	before = p.ab.messages;
	CHECK_EQ(session_tick(p.a.s), 0);
	CHECK_EQ(p.ab.messages, before);
	fake_now += PING_NS;
	CHECK_EQ(session_tick(p.a.s), 0);
	CHECK_EQ(p.ab.messages, before + 1);
	CHECK_EQ(settle(&p), 0);
	fake_now += SILENCE_NS + 1;
	CHECK_EQ(session_tick(p.a.s), -ETIMEDOUT);
	pair_cut(&p);
	fake_free(a);
	fake_free(b);
}

int main(void)
{
	test_simple();
	test_replaced();
	test_catch_up();
	test_resume();
	test_forms();
	test_damaged();
	test_failed_apply();
	for (uint32_t seed = 1; seed <= 40; seed++)
		test_random(seed);
	CHECK(random_gone > 0 && random_resumed > 0); /* or the histories are too tame */
	test_refusals();
	test_starts();
	test_bounds();
	test_time();
	return check_result();
}
