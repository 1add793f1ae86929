/* The channel: messages through any split of the stream, and every way a stream can be wrong. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "channel.h"
#include "check.h"
#include "keys.h"

static uint8_t key_i[32] = {1}, key_r[32] = {2}, psk[32] = {5}, public_i[32], public_r[32];
static uint8_t prologue[CHANNEL_PROLOGUE_LEN];
static const struct channel_psk_id member = {CHANNEL_PSK_MEMBER, {{42}}};
static int accepted; /* calls of accept_member */

static int accept_member(void *ctx, const struct channel_psk_id *psk_id, const uint8_t remote[static 32],
			 uint8_t ret_psk[static 32])
{
	accepted++;
	if (ctx)
		return -EACCES;
	if (psk_id->kind != CHANNEL_PSK_MEMBER || !id_eq(&psk_id->id, &member.id) || memcmp(remote, public_i, 32))
		return -EKEYREJECTED;
	memcpy(ret_psk, psk, 32);
	return 0;
}

/* A clock that the test moves. */
static uint64_t fake_ns;
static uint64_t fake_mono(void *ctx) { return fake_ns; }
static void fake_random(void *ctx, void *p, size_t len) { randombytes_buf(p, len); }
static const struct env env = {fake_mono, fake_mono, fake_random, NULL};

struct pair {
	struct channel *i, *r;
};

static struct pair pair_new(void)
{
	struct pair p;

	REQUIRE(channel_new_initiator(&env, prologue, key_i, public_r, &member, psk, &p.i) == 0);
	REQUIRE(channel_new_responder(&env, prologue, key_r, accept_member, NULL, &p.r) == 0);
	return p;
}

/* Carries what `from` has to `to`, in pieces of at most `piece` bytes. */
static int carry(struct channel *from, struct channel *to, size_t piece)
{
	size_t len;
	int r = 0;

	const uint8_t *p = channel_output(from, &len);
	for (size_t at = 0; r == 0 && at < len; at += piece)
		r = channel_feed(to, p + at, piece < len - at ? piece : len - at);
	channel_sent(from, len);
	return r;
}

static int send_text(struct channel *c, uint8_t type, uint32_t request, const char *text)
{
	struct iovec v = {(void *)text, strlen(text)};
	return channel_send(c, type, request, &v, 1);
}

static bool next_is(struct channel *c, uint8_t type, uint32_t request, const char *text)
{
	struct channel_message m;
	return channel_next_message(c, &m) == 1 && m.type == type && m.request == request && m.len == strlen(text) &&
	       !memcmp(m.body, text, m.len);
}

static int nothing_next(struct channel *c)
{
	struct channel_message m;
	return channel_next_message(c, &m);
}

static void pair_free(struct pair p)
{
	channel_free(p.i);
	channel_free(p.r);
}

static struct pair pair_ready(void)
{
	struct pair p = pair_new();

	REQUIRE(carry(p.i, p.r, 1000) == 0 && carry(p.r, p.i, 1000) == 0 && channel_ready(p.i));
	REQUIRE(send_text(p.i, 1, 0, "hello") == 0 && carry(p.i, p.r, 1000) == 0);
	REQUIRE(next_is(p.r, 1, 0, "hello") && channel_ready(p.r));
	return p;
}

static void test_handshake(void)
{
	struct pair p = pair_new();
	size_t len;

	CHECK_EQ(send_text(p.i, 1, 0, "early"), -ENOTCONN);
	CHECK(!channel_remote_static(p.r) && !channel_handshake_hash(p.i));
	channel_output(p.i, &len);
	CHECK_EQ(len, 2 + 113);
	CHECK_EQ(carry(p.i, p.r, 1), 0);
	CHECK(!memcmp(channel_remote_static(p.r), public_i, 32));
	channel_output(p.r, &len);
	CHECK_EQ(len, 2 + 48);
	/* the responder says no more until the initiator has proved to be there */
	CHECK(!channel_ready(p.r));
	CHECK_EQ(send_text(p.r, 1, 0, "early"), -ENOTCONN);
	CHECK_EQ(carry(p.r, p.i, 7), 0);
	CHECK(channel_ready(p.i) && !channel_ready(p.r));
	CHECK_EQ(send_text(p.i, 9, 77, "hi"), 0);
	CHECK_EQ(carry(p.i, p.r, 100), 0);
	CHECK(channel_ready(p.r));
	CHECK(next_is(p.r, 9, 77, "hi"));
	CHECK_EQ(nothing_next(p.r), 0);
	CHECK_EQ(send_text(p.r, 8, 78, ""), 0);
	CHECK_EQ(carry(p.r, p.i, 100), 0);
	CHECK(next_is(p.i, 8, 78, ""));
	CHECK(!memcmp(channel_handshake_hash(p.i), channel_handshake_hash(p.r), NOISE_HASH_LEN));
	CHECK(!channel_error(p.i) && !channel_error(p.r));
	pair_free(p);
}

static void test_refused(void)
{
	struct channel_psk_id other_id = {CHANNEL_PSK_TOKEN, member.id};
	uint8_t other[32] = {99}, wrong[CHANNEL_PROLOGUE_LEN];
	struct pair p = pair_new();
	size_t len;

	/* another psk id, and an accept that says no: nothing is answered */
	channel_free(p.i);
	REQUIRE(channel_new_initiator(&env, prologue, key_i, public_r, &other_id, psk, &p.i) == 0);
	CHECK_EQ(carry(p.i, p.r, 1000), -EKEYREJECTED);
	channel_output(p.r, &len);
	CHECK_EQ(len, 0);
	CHECK(channel_error(p.r) != NULL);
	pair_free(p);

	p = pair_new();
	channel_free(p.r);
	REQUIRE(channel_new_responder(&env, prologue, key_r, accept_member, &p, &p.r) == 0);
	CHECK_EQ(carry(p.i, p.r, 1000), -EACCES);
	pair_free(p);

	/* another volume: accept is not even asked */
	memcpy(wrong, prologue, sizeof wrong);
	wrong[CHANNEL_PROLOGUE_LEN - 1] ^= 1;
	p = pair_new();
	channel_free(p.i);
	REQUIRE(channel_new_initiator(&env, wrong, key_i, public_r, &member, psk, &p.i) == 0);
	accepted = 0;
	CHECK_EQ(carry(p.i, p.r, 1000), -EBADMSG);
	CHECK_EQ(accepted, 0);
	pair_free(p);

	/* an initiator with another psk learns so at message 2 */
	p = pair_new();
	channel_free(p.i);
	REQUIRE(channel_new_initiator(&env, prologue, key_i, public_r, &member, other, &p.i) == 0);
	CHECK_EQ(carry(p.i, p.r, 1000), 0);
	CHECK_EQ(carry(p.r, p.i, 1000), -EBADMSG);
	CHECK(!channel_ready(p.i));
	pair_free(p);

	uint8_t zero[32] = {0};
	CHECK_EQ(channel_new_initiator(&env, prologue, key_i, zero, &member, psk, &p.i), -EBADMSG);
}

static void test_other_protocols(void)
{
	static const char *const greetings[] = {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x16\x03\x01\x02"};
	struct pair p;

	for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
		p = pair_new();
		/* refused by the length alone, without waiting for so many bytes */
		CHECK_EQ(channel_feed(p.r, greetings[i], 2), -EPROTO);
		CHECK_EQ(channel_feed(p.r, greetings[i] + 2, 2), -EPROTO);
		CHECK_EQ(channel_feed(p.i, greetings[i], 4), -EPROTO);
		pair_free(p);
	}
}

static void test_replayed_message1(void)
{
	struct pair p = pair_new(), q = pair_new();
	uint8_t recorded[2 + 113 + 2 + 25];
	size_t len;

	memcpy(recorded, channel_output(p.i, &len), 115);
	CHECK_EQ(carry(p.i, p.r, 1000), 0);
	CHECK_EQ(carry(p.r, p.i, 1000), 0);
	CHECK_EQ(send_text(p.i, 1, 0, ""), 0);
	const uint8_t *out = channel_output(p.i, &len);
	CHECK_EQ(len, 2 + 25);
	memcpy(recorded + 115, out, len);

	/* the same bytes at another moment: message 1 opens, the transport frame does not, and no message appears */
	CHECK_EQ(channel_feed(q.r, recorded, 115), 0);
	CHECK_EQ(channel_feed(q.r, recorded + 115, 27), -EBADMSG);
	CHECK(!channel_ready(q.r));
	CHECK_EQ(nothing_next(q.r), -EBADMSG);
	pair_free(p);
	pair_free(q);
}

static uint32_t seed = 12345;
static uint32_t rnd(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (uint32_t)(((uint64_t)seed * below) >> 32);
}

static void fill(uint8_t *p, size_t len, uint32_t salt)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 31 + salt + (i >> 8));
}

/* Fetches what is there and compares with what message number *next must be. */
static void drain(struct channel *c, const size_t *lens, size_t n, size_t *next, uint8_t *scratch)
{
	struct channel_message m;

	while (channel_next_message(c, &m) == 1) {
		REQUIRE(*next < n);
		CHECK_EQ(m.type, (uint8_t)*next);
		CHECK_EQ(m.request, *next * 1000003u);
		CHECK_EQ(m.len, lens[*next]);
		fill(scratch, m.len, (uint32_t)*next);
		CHECK(!memcmp(m.body, scratch, m.len));
		(*next)++;
	}
}

static void test_splits(void)
{
	/* around the sizes of header, frame and message */
	static const size_t sizes[] = {0, 1, 8, 9, 10, 100, 4096, 65500, 65509, 65510, 65511, 65519, 65520, 131020, 131029, 200000,
				       CHANNEL_BODY_MAX};
	enum { N = 60 };
	size_t lens[N], next = 0, sent = 0;
	struct pair p = pair_ready();
	uint8_t *body = malloc(CHANNEL_BODY_MAX), *scratch = malloc(CHANNEL_BODY_MAX);

	REQUIRE(body && scratch);
	while (next < N) {
		for (uint32_t burst = 1 + rnd(8); burst && sent < N; burst--, sent++) {
			size_t len = sent < sizeof sizes / sizeof *sizes ? sizes[sent] : rnd(3) ? rnd(500) : rnd(300000);
			size_t cut = len ? rnd((uint32_t)len) : 0;
			fill(body, len, (uint32_t)sent);
			struct iovec v[3] = {{body, cut}, {NULL, 0}, {body + cut, len - cut}};
			REQUIRE(channel_send(p.i, (uint8_t)sent, (uint32_t)(sent * 1000003u), v, 3) == 0);
			lens[sent] = len;
		}
		/* a part of the output only, in pieces of any size; the rest waits behind new messages */
		size_t len, take;
		const uint8_t *out = channel_output(p.i, &len);
		take = rnd(4) ? len : rnd((uint32_t)len);
		for (size_t at = 0; at < take;) {
			size_t piece = 1 + rnd(rnd(2) ? 20 : 100000);
			piece = piece < take - at ? piece : take - at;
			REQUIRE(channel_feed(p.r, out + at, piece) == 0);
			at += piece;
			if (rnd(3))
				drain(p.r, lens, sent, &next, scratch);
		}
		channel_sent(p.i, take);
		drain(p.r, lens, sent, &next, scratch);
	}
	CHECK_EQ(channel_unsent(p.i), 0);
	free(body);
	free(scratch);
	pair_free(p);
}

/* The output moves in memory while part of it is sent and a frame stands open at its end. */
static void test_moved_output(void)
{
	struct pair p = pair_ready();
	uint8_t *big = calloc(1, 4u << 20), first[1000];
	struct iovec v = {big, 3000};
	struct channel_message m;
	size_t len;

	REQUIRE(big && channel_send(p.i, 1, 1, &v, 1) == 0);
	memcpy(first, channel_output(p.i, &len), sizeof first);
	channel_sent(p.i, sizeof first);
	REQUIRE(send_text(p.i, 2, 2, "in the open frame") == 0);
	v.iov_len = 4u << 20;
	memset(big, 7, v.iov_len);
	REQUIRE(channel_send(p.i, 3, 3, &v, 1) == 0);
	CHECK_EQ(channel_feed(p.r, first, sizeof first), 0);
	CHECK_EQ(carry(p.i, p.r, 10000), 0);
	CHECK(channel_next_message(p.r, &m) == 1 && m.type == 1 && m.len == 3000);
	CHECK(next_is(p.r, 2, 2, "in the open frame"));
	CHECK(channel_next_message(p.r, &m) == 1 && m.type == 3 && m.len == v.iov_len && !memcmp(m.body, big, m.len));
	free(big);
	pair_free(p);
}

static void test_batching(void)
{
	struct pair p = pair_ready();
	size_t len;

	for (uint32_t i = 0; i < 100; i++)
		CHECK_EQ(send_text(p.i, 3, i, "0123456789"), 0);
	CHECK_EQ(channel_unsent(p.i), 2 + 100 * 19);
	channel_output(p.i, &len);
	CHECK_EQ(len, 2 + 100 * 19 + 16); /* one frame */
	CHECK_EQ(carry(p.i, p.r, len), 0);
	for (uint32_t i = 0; i < 100; i++)
		CHECK(next_is(p.r, 3, i, "0123456789"));
	CHECK_EQ(nothing_next(p.r), 0);
	pair_free(p);
}

static void test_changed_frames(void)
{
	enum { LEN = 2 + 9 + 4 + 16 };
	uint8_t frame[LEN], changed[LEN];
	size_t len;

	for (size_t at = 0; at < LEN; at++) {
		struct pair p = pair_ready();
		REQUIRE(send_text(p.i, 2, 5, "body") == 0);
		const uint8_t *out = channel_output(p.i, &len);
		REQUIRE(len == LEN);
		memcpy(changed, out, LEN);
		changed[at] ^= 0x10;
		int r = channel_feed(p.r, changed, LEN);
		/* a longer length waits for more bytes, all else is seen at once */
		if (at < 2)
			CHECK(r <= 0);
		else
			CHECK_EQ(r, -EBADMSG);
		CHECK(nothing_next(p.r) <= 0);
		CHECK_EQ(!r, !channel_error(p.r));
		pair_free(p);
	}

	/* repeated, left out, in another order, sent back, cut short */
	struct pair p = pair_ready();
	REQUIRE(send_text(p.i, 2, 5, "body") == 0);
	memcpy(frame, channel_output(p.i, &len), LEN);
	CHECK_EQ(channel_feed(p.r, frame, LEN), 0);
	CHECK_EQ(channel_feed(p.r, frame, LEN), -EBADMSG);
	CHECK(next_is(p.r, 2, 5, "body")); /* what opened before stays */
	CHECK_EQ(nothing_next(p.r), -EBADMSG);
	CHECK_EQ(send_text(p.r, 1, 1, ""), -EBADMSG);
	pair_free(p);

	p = pair_ready();
	REQUIRE(send_text(p.i, 2, 5, "left out") == 0);
	channel_output(p.i, &len);
	channel_sent(p.i, len);
	REQUIRE(send_text(p.i, 2, 6, "next") == 0);
	CHECK_EQ(carry(p.i, p.r, 1000), -EBADMSG);
	pair_free(p);

	p = pair_ready();
	REQUIRE(send_text(p.i, 2, 5, "body") == 0);
	memcpy(frame, channel_output(p.i, &len), LEN);
	CHECK_EQ(channel_feed(p.i, frame, LEN), -EBADMSG);
	CHECK_EQ(channel_feed(p.r, frame, LEN - 1), 0);
	CHECK_EQ(nothing_next(p.r), 0);
	CHECK_EQ(channel_feed(p.r, frame + LEN - 1, 1), 0);
	CHECK(next_is(p.r, 2, 5, "body"));
	pair_free(p);
}

/* An initiator whose peer is an authenticated replica that sends what it likes: ret_send is the peer's cipher. */
static struct channel *with_raw_peer(struct noise_cipher *ret_send)
{
	uint8_t ephemeral[32] = {7}, m1[2 + 113], payload[113], m2[2 + 48] = {48, 0}, h[NOISE_HASH_LEN];
	struct noise *n = noise_new(NOISE_RESPONDER, prologue, sizeof prologue, key_r, NULL, ephemeral);
	struct noise_cipher receive;
	struct channel *i;
	size_t len;

	REQUIRE(n && channel_new_initiator(&env, prologue, key_i, public_r, &member, psk, &i) == 0);
	memcpy(m1, channel_output(i, &len), sizeof m1);
	REQUIRE(noise_read(n, m1 + 2, 113, payload, &len) == 0);
	noise_set_psk(n, psk);
	REQUIRE(noise_write(n, NULL, 0, m2 + 2) == 0 && noise_split(n, ret_send, &receive, h) == 0);
	REQUIRE(channel_feed(i, m2, sizeof m2) == 0 && channel_ready(i));
	noise_free(n);
	return i;
}

static int feed_header(struct channel *c, struct noise_cipher *send, uint32_t body_len)
{
	uint8_t frame[2 + 9 + 16] = {25, 0}, header[9] = {1};

	le32_store(header + 5, body_len);
	noise_cipher_seal(send, header, 9, frame + 2);
	return channel_feed(c, frame, sizeof frame);
}

static void test_hostile_lengths(void)
{
	struct noise_cipher send;
	struct channel *c = with_raw_peer(&send);

	CHECK_EQ(channel_feed(c, (uint8_t[]){16, 0}, 2), -EPROTO); /* a frame with nothing in it */
	channel_free(c);

	c = with_raw_peer(&send);
	CHECK_EQ(feed_header(c, &send, CHANNEL_BODY_MAX), 0); /* the largest is waited for */
	CHECK_EQ(nothing_next(c), 0);
	channel_free(c);

	/* more is refused before the body comes, also behind a good message */
	c = with_raw_peer(&send);
	CHECK_EQ(feed_header(c, &send, CHANNEL_BODY_MAX + 1), -EMSGSIZE);
	CHECK(channel_error(c) != NULL);
	channel_free(c);
	c = with_raw_peer(&send);
	CHECK_EQ(feed_header(c, &send, 0), 0);
	CHECK_EQ(feed_header(c, &send, UINT32_MAX), -EMSGSIZE);
	CHECK(next_is(c, 1, 0, ""));
	CHECK_EQ(nothing_next(c), -EMSGSIZE);
	channel_free(c);
}

static void test_bounds(void)
{
	struct pair p = pair_ready();
	uint8_t *big = calloc(1, CHANNEL_BODY_MAX + 1);
	struct iovec v = {big, CHANNEL_BODY_MAX + 1}, overflow[2] = {{big, SIZE_MAX}, {big, 2}};
	int n = 0, r;

	REQUIRE(big);
	CHECK_EQ(channel_send(p.i, 1, 1, &v, 1), -EMSGSIZE);
	CHECK_EQ(channel_send(p.i, 1, 1, overflow, 2), -EMSGSIZE);
	v.iov_len = CHANNEL_BODY_MAX;
	while ((r = channel_send(p.i, 1, 1, &v, 1)) == 0)
		n++;
	CHECK_EQ(r, -EAGAIN);
	CHECK_EQ(n, CHANNEL_OUTPUT_MAX / CHANNEL_BODY_MAX);
	CHECK_EQ(carry(p.i, p.r, 1 << 20), 0);
	CHECK_EQ(channel_send(p.i, 1, 1, &v, 1), 0);
	free(big);
	pair_free(p);
}

static void test_rehandshake(void)
{
	struct pair p = pair_new();

	fake_ns += CHANNEL_REHANDSHAKE_NS;
	CHECK(!channel_wants_rehandshake(p.i));
	pair_free(p);
	p = pair_ready();
	CHECK(!channel_wants_rehandshake(p.i) && !channel_wants_rehandshake(p.r));
	fake_ns += CHANNEL_REHANDSHAKE_NS - 1;
	CHECK(!channel_wants_rehandshake(p.i));
	fake_ns++;
	CHECK(channel_wants_rehandshake(p.i) && channel_wants_rehandshake(p.r));
	pair_free(p);
}

int main(void)
{
	REQUIRE(crypto_init() == 0);
	REQUIRE(crypto_scalarmult_base(public_r, key_r) == 0 && crypto_scalarmult_base(public_i, key_i) == 0);
	channel_prologue(&member.id, prologue);
	test_handshake();
	test_refused();
	test_other_protocols();
	test_replayed_message1();
	test_splits();
	test_moved_output();
	test_batching();
	test_changed_frames();
	test_hostile_lengths();
	test_bounds();
	test_rehandshake();
	return check_result();
}
