/* Every message: what is encoded decodes to the same; each body cut short, made longer or out of bounds is refused. */
#include <errno.h>

#include "check.h"
#include "message.h"

static int decode(uint8_t type, const uint8_t *p, size_t len)
{
	union {
		struct msg_batch batch;
		struct msg_get get;
		struct msg_bye bye;
		struct msg_join join;
		struct msg_welcome welcome;
	} u;
	struct msg_hello hello;
	struct msg_mark mark;
	int r;

	switch (type) {
	case TYPE_HELLO:
		r = msg_hello_decode(p, len, &hello);
		if (!r)
			msg_hello_fini(&hello);
		return r;
	case TYPE_END:
		r = msg_mark_decode(p, len, &mark);
		if (!r)
			vector_fini(&mark.knowledge);
		return r;
	case TYPE_BATCH:
		return msg_batch_decode(p, len, &u.batch);
	case TYPE_GET:
		return msg_get_decode(p, len, &u.get);
	case TYPE_BYE:
		return msg_bye_decode(p, len, &u.bye);
	case TYPE_JOIN:
		return msg_join_decode(p, len, &u.join);
	default:
		return msg_welcome_decode(p, len, &u.welcome);
	}
}

/* Whole it decodes, no shorter and no longer. The copies have exactly their size, for AddressSanitizer. */
static void check_lengths(uint8_t type, const struct buf *b)
{
	CHECK_EQ(b->err, 0);
	CHECK(b->len <= message_body_max(type));
	CHECK_EQ(decode(type, b->p, b->len), 0);
	for (size_t len = 0; len <= b->len + 1; len++) {
		uint8_t *p = calloc(1, len ? len : 1);

		REQUIRE(p);
		memcpy(p, b->p, len < b->len ? len : b->len);
		if (len != b->len)
			CHECK_EQ(decode(type, p, len), -EPROTO);
		free(p);
	}
}

static void test_hello(void)
{
	struct start_tag start = {11, 5, 0x1234};
	struct member_knowledge member = {.replica = 12};
	struct msg_hello m = {.protocol = 1, .features = 2, .replica = 11, .tag = 0x1234, .start = &start, .n_start = 1, .member = &member,
		.n_member = 1}, got;
	struct buf b = {0};

	vector_add(&m.knowledge, (struct dot){11, 4});
	vector_add(&m.knowledge, (struct dot){12, 9});
	vector_add(&member.knowledge, (struct dot){11, 3});
	memset(m.live.b, 7, ROOT_LEN);
	msg_hello_encode(&m, &b);
	check_lengths(TYPE_HELLO, &b);
	REQUIRE(!msg_hello_decode(b.p, b.len, &got));
	CHECK(got.replica == 11 && got.tag == 0x1234 && got.features == 2);
	CHECK(vector_eq(&got.knowledge, &m.knowledge));
	CHECK(got.n_start == 1 && got.start[0].first_counter == 5);
	CHECK(got.n_member == 1 && vector_eq(&got.member[0].knowledge, &member.knowledge));
	CHECK(root_eq(&got.live, &m.live));
	msg_hello_fini(&got);
	le64_store(b.p + 12, 0); /* replica 0 is none */
	CHECK_EQ(decode(TYPE_HELLO, b.p, b.len), -EPROTO);
	buf_fini(&b);
	vector_fini(&m.knowledge);
	vector_fini(&member.knowledge);
}

static void test_batch_and_marks(void)
{
	struct msg_batch batch = {BATCH_CATCHING_UP, 77};
	struct msg_mark mark = {.flags = END_CUT}, got;
	struct buf b = {0};

	msg_batch_encode(&batch, &b);
	check_lengths(TYPE_BATCH, &b);
	b.p[0] = 2;
	CHECK_EQ(decode(TYPE_BATCH, b.p, b.len), -EPROTO);
	buf_fini(&b);
	vector_add(&mark.knowledge, (struct dot){1, 2});
	msg_mark_encode(&mark, &b);
	check_lengths(TYPE_END, &b);
	REQUIRE(!msg_mark_decode(b.p, b.len, &got));
	CHECK(got.flags == END_CUT && vector_eq(&got.knowledge, &mark.knowledge));
	vector_fini(&got.knowledge);
	vector_fini(&mark.knowledge);
	buf_fini(&b);
}

static void test_parts(void)
{
	struct buf b = {0};
	struct reader r;
	const uint8_t *record;
	size_t len;

	buf_put_u32(&b, 3);
	buf_put(&b, "abc", 3);
	buf_put_u32(&b, 1);
	buf_put(&b, "d", 1);
	r = reader_of(b.p, b.len);
	CHECK_EQ(msg_part_next(&r, &record, &len), 1);
	CHECK(len == 3 && !memcmp(record, "abc", 3));
	CHECK_EQ(msg_part_next(&r, &record, &len), 1);
	CHECK(len == 1 && *record == 'd');
	CHECK_EQ(msg_part_next(&r, &record, &len), 0);
	r = reader_of(b.p, b.len - 1);
	CHECK_EQ(msg_part_next(&r, &record, &len), 1);
	CHECK_EQ(msg_part_next(&r, &record, &len), -EPROTO);
	le32_store(b.p, 0);
	r = reader_of(b.p, b.len);
	CHECK_EQ(msg_part_next(&r, &record, &len), -EPROTO);
	le32_store(b.p, UINT32_MAX);
	r = reader_of(b.p, b.len);
	CHECK_EQ(msg_part_next(&r, &record, &len), -EPROTO);
	buf_fini(&b);
}

static void test_get(void)
{
	struct msg_get m = {.dot = {3, 4}, .forms = FORM_WHOLE | FORM_DELTA, .resume_page = 9, .n_held = 2}, got;
	struct buf b = {0};

	memset(m.node.b, 1, ID_LEN);
	m.held[1].dot = (struct dot){5, 6};
	memset(m.held[1].root.b, 8, ROOT_LEN);
	msg_get_encode(&m, &b);
	check_lengths(TYPE_GET, &b);
	REQUIRE(!msg_get_decode(b.p, b.len, &got));
	CHECK(id_eq(&got.node, &m.node) && dot_eq(got.dot, m.dot) && got.resume_page == 9 && got.n_held == 2);
	CHECK(dot_eq(got.held[1].dot, m.held[1].dot) && root_eq(&got.held[1].root, &m.held[1].root));
	b.p[32] = FORM_DELTA; /* whole must always be allowed, or there may be no answer */
	CHECK_EQ(decode(TYPE_GET, b.p, b.len), -EPROTO);
	b.p[32] = FORM_RESUME_RANGES | FORM_WHOLE;
	CHECK_EQ(decode(TYPE_GET, b.p, b.len), 0);
	b.p[32] = 16 | FORM_WHOLE;
	CHECK_EQ(decode(TYPE_GET, b.p, b.len), -EPROTO);
	buf_fini(&b);
}

static void test_data_and_small(void)
{
	struct buf b = {0};
	const uint8_t *chunk;
	size_t len;
	bool flag;
	uint8_t reason;

	msg_data_encode(true, "xyz", 3, &b);
	CHECK_EQ(msg_data_decode(b.p, b.len, &flag, &chunk, &len), 0);
	CHECK(flag && len == 3 && !memcmp(chunk, "xyz", 3));
	CHECK_EQ(msg_data_decode(b.p, 1, &flag, &chunk, &len), 0);
	CHECK_EQ(len, 0);
	CHECK_EQ(msg_data_decode(b.p, 0, &flag, &chunk, &len), -EPROTO);
	b.p[0] = 2;
	CHECK_EQ(msg_data_decode(b.p, b.len, &flag, &chunk, &len), -EPROTO);
	buf_fini(&b);
	CHECK_EQ(msg_gone_decode((const uint8_t *)"\2", 1, &reason), 0);
	CHECK_EQ(reason, GONE_DAMAGED);
	CHECK_EQ(msg_gone_decode((const uint8_t *)"\3", 1, &reason), -EPROTO);
	CHECK_EQ(msg_ping_decode((const uint8_t *)"\1", 1, &flag), 0);
	CHECK_EQ(msg_ping_decode((const uint8_t *)"\1", 0, &flag), -EPROTO);
	for (unsigned type = 0; type < 256; type++)
		CHECK_EQ(message_body_max((uint8_t)type) > 0,
			(type >= TYPE_HELLO && type <= TYPE_GONE) || (type >= TYPE_PING && type <= TYPE_WELCOME) || type == TYPE_STARTS || type == TYPE_RENEW ||
			type == TYPE_NEED || type == TYPE_PAGES);
}

static void test_starts(void)
{
	struct start_tag s[2] = {{1, 2, 3}, {4, 5, 6}}, *got;
	struct identity m = {9, "desk-0001", {1, 2, 3}}, back;
	struct buf b = {0};
	uint32_t n = 0;

	msg_starts_encode(s, 2, &b);
	CHECK_EQ(msg_starts_decode(b.p, b.len, &got, &n), 0);
	CHECK(n == 2 && !memcmp(got, s, sizeof s));
	free(got);
	CHECK_EQ(msg_starts_decode(b.p, b.len - 1, &got, &n), -EPROTO);
	b.p[1] = 255; /* more than there are bytes, and more than the maximum */
	CHECK_EQ(msg_starts_decode(b.p, b.len, &got, &n), -EPROTO);
	buf_fini(&b);
	msg_renew_encode(&m, &b);
	CHECK_EQ(msg_renew_decode(b.p, b.len, &back), 0);
	CHECK(back.replica == 9 && !strcmp(back.name, m.name) && !memcmp(back.static_public, m.static_public, 32));
	CHECK_EQ(msg_renew_decode(b.p, b.len - 1, &back), -EPROTO);
	b.p[10] = '/';
	CHECK_EQ(msg_renew_decode(b.p, b.len, &back), -EPROTO);
	buf_fini(&b);
}

static void test_bye(void)
{
	struct msg_bye m = {.code = BYE_NAME, .text = "taken\n\033[31m"}, got;
	struct buf b = {0};

	msg_bye_encode(&m, &b);
	check_lengths(TYPE_BYE, &b);
	REQUIRE(!msg_bye_decode(b.p, b.len, &got));
	CHECK_EQ(got.code, BYE_NAME);
	CHECK(!strcmp(got.text, "taken??[31m"));
	buf_fini(&b);
}

static void test_join(void)
{
	struct msg_join j = {.protocol = 1, .ciphers = 10, .replica = 5, .name = "laptop", .address = "h:1"}, got_j;
	struct msg_welcome w = {.cipher = 1, .replica = 6, .name = "desk", .address = ""}, got_w;
	struct buf b = {0};

	msg_join_encode(&j, &b);
	check_lengths(TYPE_JOIN, &b);
	REQUIRE(!msg_join_decode(b.p, b.len, &got_j));
	CHECK(got_j.replica == 5 && got_j.ciphers == 10 && !strcmp(got_j.name, "laptop") && !strcmp(got_j.address, "h:1"));
	b.p[18] = '/'; /* the name's first byte */
	CHECK_EQ(decode(TYPE_JOIN, b.p, b.len), -EPROTO);
	b.p[18] = 0;
	CHECK_EQ(decode(TYPE_JOIN, b.p, b.len), -EPROTO);
	buf_fini(&b);
	memset(w.master, 3, KEY_LEN);
	memset(w.static_public, 4, 32);
	msg_welcome_encode(&w, &b);
	check_lengths(TYPE_WELCOME, &b);
	REQUIRE(!msg_welcome_decode(b.p, b.len, &got_w));
	CHECK(!memcmp(got_w.master, w.master, KEY_LEN) && !strcmp(got_w.name, "desk") && got_w.replica == 6);
	buf_fini(&b);
}

static void test_need(void)
{
	struct heal_need n = {.what = HEAL_PAGES, .first = 9, .count = HEAL_PAGES_MAX}, got;
	struct buf b = {0};
	const uint8_t *pages;
	size_t len;

	msg_need_encode(&n, &b);
	CHECK(b.len <= message_body_max(TYPE_NEED));
	CHECK_EQ(msg_need_decode(b.p, b.len, &got), 0);
	CHECK(got.what == HEAL_PAGES && got.first == 9 && got.count == HEAL_PAGES_MAX);
	for (size_t i = 0; i < b.len; i++)
		CHECK_EQ(msg_need_decode(b.p, i, &got), -EPROTO);
	n.count++;
	b.len = 0;
	msg_need_encode(&n, &b);
	CHECK_EQ(msg_need_decode(b.p, b.len, &got), -EPROTO);
	n = (struct heal_need){.what = HEAL_RECORD, .count = 2};
	b.len = 0;
	msg_need_encode(&n, &b);
	CHECK_EQ(msg_need_decode(b.p, b.len, &got), -EPROTO);
	buf_fini(&b);
	CHECK_EQ(msg_pages_decode((const uint8_t *)"", 0, &pages, &len), -EPROTO);
	CHECK_EQ(msg_pages_decode((const uint8_t *)"\2", 1, &pages, &len), -EPROTO);
	CHECK_EQ(msg_pages_decode((const uint8_t *)"\1x", 2, &pages, &len), -EPROTO);
	CHECK_EQ(msg_pages_decode((const uint8_t *)"\1", 1, &pages, &len), -ENOENT);
	CHECK_EQ(msg_pages_decode((const uint8_t *)"\0abc", 4, &pages, &len), 0);
	CHECK(len == 3 && !memcmp(pages, "abc", 3));
}

int main(void)
{
	test_hello();
	test_batch_and_marks();
	test_parts();
	test_get();
	test_data_and_small();
	test_bye();
	test_starts();
	test_join();
	test_need();
	return check_result();
}
