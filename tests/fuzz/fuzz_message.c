/* The bodies of all messages: the first byte is the type. What decodes must encode to the same bytes. */
#include <stdlib.h>

#include "message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_equal(const struct buf *b, const uint8_t *p, size_t len)
{
	if (b->err || b->len != len || (len && memcmp(b->p, p, len)))
		abort();
}

static void try_hello(const uint8_t *p, size_t len, struct buf *out)
{
	struct msg_hello m;

	if (msg_hello_decode(p, len, &m))
		return;
	msg_hello_encode(&m, out);
	must_equal(out, p, len);
	msg_hello_fini(&m);
}

static void try_parts(const uint8_t *p, size_t len, struct buf *out)
{
	struct reader r = reader_of(p, len);
	const uint8_t *record;
	size_t n;
	int more;

	while ((more = msg_part_next(&r, &record, &n)) > 0) {
		buf_put_u32(out, (uint32_t)n);
		buf_put(out, record, n);
	}
	if (!more)
		must_equal(out, p, len);
}

static void try_mark(const uint8_t *p, size_t len, struct buf *out)
{
	struct msg_mark m;

	if (msg_mark_decode(p, len, &m))
		return;
	msg_mark_encode(&m, out);
	must_equal(out, p, len);
	vector_fini(&m.knowledge);
}

static void try_small(uint8_t type, const uint8_t *p, size_t len, struct buf *out)
{
	struct msg_batch batch;
	struct msg_get get;
	struct msg_bye bye;
	struct msg_join join;
	struct msg_welcome welcome;
	const uint8_t *chunk;
	struct start_tag *starts;
	struct identity renew;
	struct heal_need need;
	uint32_t n_starts;
	uint8_t kind;
	bool flag;
	size_t n;
	int err = -1;

	switch (type) {
	case TYPE_BATCH:
		if (!(err = msg_batch_decode(p, len, &batch)))
			msg_batch_encode(&batch, out);
		break;
	case TYPE_GET:
		if (!(err = msg_get_decode(p, len, &get)))
			msg_get_encode(&get, out);
		break;
	case TYPE_DATA:
		if (!(err = msg_data_decode(p, len, &flag, &chunk, &n)))
			msg_data_encode(flag, chunk, n, out);
		break;
	case TYPE_BYE:
		if (!msg_bye_decode(p, len, &bye) && strlen(bye.text) > BYE_TEXT_MAX)
			abort();
		break;
	case TYPE_JOIN:
		if (!(err = msg_join_decode(p, len, &join)))
			msg_join_encode(&join, out);
		break;
	case TYPE_WELCOME:
		if (!(err = msg_welcome_decode(p, len, &welcome)))
			msg_welcome_encode(&welcome, out);
		break;
	case TYPE_GONE:
		msg_gone_decode(p, len, &kind);
		break;
	case TYPE_STARTS:
		if (!(err = msg_starts_decode(p, len, &starts, &n_starts))) {
			msg_starts_encode(starts, n_starts, out);
			free(starts);
		}
		break;
	case TYPE_RENEW:
		if (!(err = msg_renew_decode(p, len, &renew)))
			msg_renew_encode(&renew, out);
		break;
	case TYPE_NEED:
		if (!(err = msg_need_decode(p, len, &need)))
			msg_need_encode(&need, out);
		break;
	case TYPE_PAGES:
		if (!(err = msg_pages_decode(p, len, &chunk, &n)) && n) {
			buf_put_u8(out, 0);
			buf_put(out, chunk, n);
		} else {
			err = -1;
		}
		break;
	case TYPE_PING:
		msg_ping_decode(p, len, &flag);
		break;
	}
	if (!err)
		must_equal(out, p, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf out = {0};

	if (!size || size - 1 > message_body_max(data[0]))
		return 0;
	if (data[0] == TYPE_HELLO)
		try_hello(data + 1, size - 1, &out);
	else if (data[0] == TYPE_PART)
		try_parts(data + 1, size - 1, &out);
	else if (data[0] == TYPE_END || data[0] == TYPE_ACK)
		try_mark(data + 1, size - 1, &out);
	else
		try_small(data[0], data + 1, size - 1, &out);
	buf_fini(&out);
	return 0;
}
