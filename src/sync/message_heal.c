/* NEED and PAGES: see message.h. */
#include "message.h"

#include <errno.h>

void msg_need_encode(const struct heal_need *m, struct buf *out)
{
	buf_put_u8(out, (uint8_t)m->what);
	buf_put(out, m->node.b, ID_LEN);
	buf_put(out, m->object.b, ID_LEN);
	buf_put_u32(out, m->epoch);
	buf_put(out, m->root.b, ROOT_LEN);
	buf_put_u64(out, m->first);
	buf_put_u32(out, m->count);
}

int msg_need_decode(const uint8_t *body, size_t len, struct heal_need *ret)
{
	struct reader r = reader_of(body, len);
	uint8_t what = read_u8(&r);
	const uint8_t *node = read_bytes(&r, ID_LEN), *object = read_bytes(&r, ID_LEN);
	struct heal_need n = {.what = (enum heal_what)what, .epoch = read_u32(&r)};
	const uint8_t *root = read_bytes(&r, ROOT_LEN);

	n.first = read_u64(&r);
	n.count = read_u32(&r);
	if (!reader_done(&r) || !what || what > HEAL_RECORD || !n.count ||
	    n.count > (what == HEAL_PAGES ? HEAL_PAGES_MAX : what == HEAL_ENTRIES ? HEAL_ENTRIES_MAX : 1) || n.first > UINT64_MAX - n.count)
		return -EPROTO;
	memcpy(n.node.b, node, ID_LEN);
	memcpy(n.object.b, object, ID_LEN);
	memcpy(n.root.b, root, ROOT_LEN);
	*ret = n;
	return 0;
}

void msg_pages_encode(const struct buf *pages, struct buf *out)
{
	buf_put_u8(out, pages ? 0 : 1);
	if (pages)
		buf_put(out, pages->p, pages->len);
}

int msg_pages_decode(const uint8_t *body, size_t len, const uint8_t **ret_pages, size_t *ret_len)
{
	if (!len || body[0] > 1 || (body[0] == 1 && len != 1))
		return -EPROTO;
	if (body[0])
		return -ENOENT;
	*ret_pages = body + 1;
	*ret_len = len - 1;
	return 0;
}
