/* Encoding and decoding of the sealed half of parts. Both directions check the same rules, so that nothing is sealed here which
 * another replica would refuse. Pure. */
#include "part_body.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "seal.h"

#define LENGTH_MAX ((uint64_t)INT64_MAX)
#define NSEC_PER_SEC 1000000000u

bool part_kind_known(uint8_t kind) { return kind >= PART_PLACE && kind <= PART_CONSENT; }

bool name_valid(const void *name, size_t len)
{
	const char *s = name;

	if (len < 1 || len > NAME_LEN_MAX || memchr(s, '/', len) || memchr(s, 0, len))
		return false;
	return !(s[0] == '.' && (len == 1 || (len == 2 && s[1] == '.')));
}

static bool type_valid(uint32_t type)
{
	switch (type) {
	case S_IFDIR:
	case S_IFREG:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return true;
	}
	return false;
}

/* A node that a link may name: the root has no link, and no id is zero. */
static bool node_valid(const struct id *node)
{
	static const struct id root = ROOT_ID;
	return !id_is_zero(node) && !id_eq(node, &root);
}

static bool replica_name_valid(const char *name, size_t len)
{
	if (len < 1 || len > 32)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];
		bool ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
		if (!ok)
			return false;
	}
	return true;
}

static bool place_valid(const struct place *p)
{
	return name_valid(p->name, p->name_len) && node_valid(&p->node) && !id_is_zero(&p->parent) &&
	       !id_eq(&p->parent, &p->node) && type_valid(p->type);
}

static bool deletion_valid(const struct deletion *d)
{
	return name_valid(d->name, d->name_len) && node_valid(&d->node) && !id_is_zero(&d->parent);
}

static bool content_valid(const struct content *c)
{
	if (!c->is_object)
		return c->length <= INLINE_MAX;
	if (c->length > LENGTH_MAX || id_is_zero(&c->object))
		return false;
	uint64_t pages = c->length / PAGE_LEN + (c->length % PAGE_LEN != 0);
	if (!c->holes.n)
		return true;
	const struct extent *last = &c->holes.e[c->holes.n - 1];
	return last->first <= pages && last->count <= pages - last->first;
}

static bool attrs_valid(const struct attrs *a)
{
	size_t total = 0;

	if (!type_valid(a->mode & S_IFMT) || (a->mode & ~(uint32_t)(S_IFMT | 07777)))
		return false;
	for (uint16_t i = 0; i < a->n_xattr; i++) {
		const struct xattr *x = &a->xattr[i];
		size_t len = strlen(x->name);
		if (len < 1 || len > NAME_LEN_MAX || x->value_len > XATTR_VALUE_MAX)
			return false;
		if (i && strcmp(a->xattr[i - 1].name, x->name) >= 0)
			return false;
		total += len + x->value_len; /* at most 65,535 * 66 KiB: no overflow */
	}
	return total <= XATTRS_MAX_BYTES;
}

static bool times_valid(const struct times *t) { return t->mtime.nsec < NSEC_PER_SEC && t->ctime.nsec < NSEC_PER_SEC; }

static bool member_valid(const struct member *m)
{
	if (!replica_name_valid(m->name, strnlen(m->name, sizeof m->name)))
		return false;
	for (size_t i = 0; m->address[i]; i++)
		if (m->address[i] <= ' ' || m->address[i] == 127)
			return false;
	return true;
}

static bool body_valid(const struct part *p)
{
	switch (p->kind) {
	case PART_PLACE:
		return place_valid(&p->place);
	case PART_DELETION:
		return deletion_valid(&p->deletion);
	case PART_CONTENT:
		return content_valid(&p->content);
	case PART_ATTRS:
		return attrs_valid(&p->attrs);
	case PART_TIMES:
		return times_valid(&p->times);
	case PART_MEMBER:
		return member_valid(&p->member);
	case PART_CONSENT:
		return true;
	}
	return false;
}

static void put_id(struct buf *b, const struct id *id) { buf_put(b, id->b, ID_LEN); }

static void put_content(struct buf *b, const struct content *c)
{
	buf_put_u8(b, c->is_object);
	buf_put_u64(b, c->length);
	if (!c->is_object) {
		buf_put(b, c->bytes, c->length);
		return;
	}
	put_id(b, &c->object);
	buf_put_u32(b, c->epoch);
	buf_put(b, c->root.b, ROOT_LEN);
	extents_put(b, &c->holes);
}

static void put_attrs(struct buf *b, const struct attrs *a)
{
	buf_put_u32(b, a->mode);
	buf_put_u32(b, a->uid);
	buf_put_u32(b, a->gid);
	buf_put_u64(b, a->rdev);
	buf_put_u16(b, a->n_xattr);
	for (uint16_t i = 0; i < a->n_xattr; i++) {
		buf_put_str(b, a->xattr[i].name, strlen(a->xattr[i].name));
		buf_put_u32(b, a->xattr[i].value_len);
		buf_put(b, a->xattr[i].value, a->xattr[i].value_len);
	}
}

static void put_time(struct buf *b, const struct timespec64 *t)
{
	buf_put_u64(b, (uint64_t)t->sec);
	buf_put_u32(b, t->nsec);
}

static void put_body(struct buf *b, const struct part *p)
{
	switch (p->kind) {
	case PART_PLACE:
		put_id(b, &p->place.parent);
		buf_put_str(b, p->place.name, p->place.name_len);
		put_id(b, &p->place.node);
		buf_put_u32(b, p->place.type);
		buf_put_u64(b, p->place.rdev);
		put_id(b, &p->place.parent_before);
		break;
	case PART_DELETION:
		put_id(b, &p->deletion.node);
		put_id(b, &p->deletion.parent);
		buf_put_str(b, p->deletion.name, p->deletion.name_len);
		vector_put(b, &p->deletion.places_seen);
		vector_put(b, &p->deletion.contents_seen);
		break;
	case PART_CONTENT:
		put_content(b, &p->content);
		break;
	case PART_ATTRS:
		put_attrs(b, &p->attrs);
		break;
	case PART_TIMES:
		put_time(b, &p->times.mtime);
		put_time(b, &p->times.ctime);
		break;
	case PART_CONSENT:
		buf_put_u8(b, 1);
		break;
	case PART_MEMBER:
		buf_put_u8(b, p->member.removed);
		buf_put_str(b, p->member.name, strlen(p->member.name));
		buf_put(b, p->member.static_public, sizeof p->member.static_public);
		buf_put_str(b, p->member.address, strlen(p->member.address));
		break;
	}
}

int part_encode_body(const struct part *p, struct buf *out)
{
	if (!body_valid(p))
		return -EINVAL;
	put_body(out, p);
	return out->err;
}

static void get_id(struct reader *r, struct id *ret)
{
	const uint8_t *b = read_bytes(r, ID_LEN);
	if (b)
		memcpy(ret->b, b, ID_LEN);
}

/* A string that fits into ret with a NUL after it and has none inside. */
static uint16_t get_str(struct reader *r, char *ret, size_t cap)
{
	size_t len;
	const uint8_t *s = read_str(r, &len);

	if (!s || len >= cap || memchr(s, 0, len)) {
		r->bad = true;
		return 0;
	}
	memcpy(ret, s, len);
	ret[len] = 0;
	return (uint16_t)len;
}

static void get_time(struct reader *r, struct timespec64 *ret)
{
	ret->sec = (int64_t)read_u64(r);
	ret->nsec = read_u32(r);
}

static int get_content(struct reader *r, struct content *c)
{
	uint8_t form = read_u8(r);
	c->length = read_u64(r);
	if (r->bad || form > 1)
		return -EUCLEAN;
	c->is_object = form;
	if (c->is_object) {
		get_id(r, &c->object);
		c->epoch = read_u32(r);
		const uint8_t *root = read_bytes(r, ROOT_LEN);
		if (!root)
			return -EUCLEAN;
		memcpy(c->root.b, root, ROOT_LEN);
		return extents_read(r, &c->holes);
	}
	if (c->length > INLINE_MAX || c->length != r->left)
		return -EUCLEAN;
	if (!(c->bytes = malloc(c->length ? c->length : 1)))
		return -ENOMEM;
	if (c->length)
		memcpy(c->bytes, read_bytes(r, c->length), c->length);
	return 0;
}

static int get_xattr(struct reader *r, struct xattr *x)
{
	size_t len;
	const uint8_t *name = read_str(r, &len);
	uint32_t value_len = read_u32(r);
	const uint8_t *value = value_len <= XATTR_VALUE_MAX ? read_bytes(r, value_len) : NULL;

	if (!name || !value || len < 1 || len > NAME_LEN_MAX || memchr(name, 0, len))
		return -EUCLEAN;
	x->name = strndup((const char *)name, len);
	x->value = malloc(value_len ? value_len : 1);
	if (!x->name || !x->value)
		return -ENOMEM;
	memcpy(x->value, value, value_len);
	x->value_len = value_len;
	return 0;
}

static int get_attrs(struct reader *r, struct attrs *a)
{
	a->mode = read_u32(r);
	a->uid = read_u32(r);
	a->gid = read_u32(r);
	a->rdev = read_u64(r);
	uint16_t n = read_u16(r);
	/* 7 bytes is the shortest entry: the bytes at hand bound what is allocated */
	if (r->bad || n > r->left / 7)
		return -EUCLEAN;
	if (n && !(a->xattr = calloc(n, sizeof *a->xattr)))
		return -ENOMEM;
	for (uint16_t i = 0; i < n; i++) {
		a->n_xattr = (uint16_t)(i + 1);
		int e = get_xattr(r, &a->xattr[i]);
		if (e)
			return e;
	}
	return 0;
}

static int get_deletion(struct reader *r, struct deletion *d)
{
	get_id(r, &d->node);
	get_id(r, &d->parent);
	d->name_len = (uint8_t)get_str(r, d->name, sizeof d->name);
	int e = vector_read(r, &d->places_seen);
	return e ? e : vector_read(r, &d->contents_seen);
}

static void get_place(struct reader *r, struct place *p)
{
	get_id(r, &p->parent);
	p->name_len = (uint8_t)get_str(r, p->name, sizeof p->name);
	get_id(r, &p->node);
	p->type = read_u32(r);
	p->rdev = read_u64(r);
	get_id(r, &p->parent_before);
}

static void get_member(struct reader *r, struct member *m)
{
	uint8_t removed = read_u8(r);
	r->bad |= removed > 1;
	m->removed = removed;
	get_str(r, m->name, sizeof m->name);
	const uint8_t *key = read_bytes(r, sizeof m->static_public);
	if (key)
		memcpy(m->static_public, key, sizeof m->static_public);
	get_str(r, m->address, sizeof m->address);
}

static int get_body(struct reader *r, struct part *p)
{
	switch (p->kind) {
	case PART_PLACE:
		get_place(r, &p->place);
		return 0;
	case PART_DELETION:
		return get_deletion(r, &p->deletion);
	case PART_CONTENT:
		return get_content(r, &p->content);
	case PART_ATTRS:
		return get_attrs(r, &p->attrs);
	case PART_TIMES:
		get_time(r, &p->times.mtime);
		get_time(r, &p->times.ctime);
		return 0;
	case PART_MEMBER:
		get_member(r, &p->member);
		return 0;
	case PART_CONSENT:
		return read_u8(r) == 1 ? 0 : -EUCLEAN;
	}
	return -EUCLEAN;
}

void part_body_fini(struct part *p)
{
	if (p->kind == PART_DELETION) {
		vector_fini(&p->deletion.places_seen);
		vector_fini(&p->deletion.contents_seen);
	} else if (p->kind == PART_CONTENT) {
		content_fini(&p->content);
	} else if (p->kind == PART_ATTRS) {
		attrs_fini(&p->attrs);
	}
}

int part_decode_body(struct part *p, const uint8_t *body, size_t len)
{
	struct reader r = reader_of(body, len);
	int e = get_body(&r, p);

	if (!e && (!reader_done(&r) || !body_valid(p)))
		e = -EUCLEAN;
	if (e)
		part_body_fini(p);
	p->opened = !e;
	return e;
}
