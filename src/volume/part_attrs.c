/* What a part owns besides plain fields: contents and attributes with their xattrs. */
#include <errno.h>
#include <stdlib.h>

#include "part.h"

void content_fini(struct content *c)
{
	free(c->bytes);
	extents_fini(&c->holes);
	*c = (struct content){0};
}

int content_copy(struct content *ret, const struct content *c)
{
	struct content copy = *c;

	copy.bytes = NULL;
	copy.holes = (struct extents){0};
	if (!c->is_object) {
		if (!(copy.bytes = malloc(c->length ? c->length : 1)))
			return -ENOMEM;
		if (c->length)
			memcpy(copy.bytes, c->bytes, c->length);
	} else {
		int e = extents_copy(&copy.holes, &c->holes);
		if (e)
			return e;
	}
	*ret = copy;
	return 0;
}

static void xattr_fini(struct xattr *x)
{
	free(x->name);
	free(x->value);
	*x = (struct xattr){0};
}

static int xattr_init(struct xattr *x, const char *name, const void *value, uint32_t len)
{
	struct xattr t = {.name = strdup(name), .value = malloc(len ? len : 1), .value_len = len};

	if (!t.name || !t.value) {
		xattr_fini(&t);
		return -ENOMEM;
	}
	if (len)
		memcpy(t.value, value, len);
	*x = t;
	return 0;
}

void attrs_fini(struct attrs *a)
{
	for (uint16_t i = 0; i < a->n_xattr; i++)
		xattr_fini(&a->xattr[i]);
	free(a->xattr);
	*a = (struct attrs){0};
}

int attrs_copy(struct attrs *ret, const struct attrs *a)
{
	struct attrs copy = *a;

	copy.n_xattr = 0;
	copy.xattr = NULL;
	if (a->n_xattr && !(copy.xattr = calloc(a->n_xattr, sizeof *copy.xattr)))
		return -ENOMEM;
	for (; copy.n_xattr < a->n_xattr; copy.n_xattr++) {
		const struct xattr *x = &a->xattr[copy.n_xattr];
		if (xattr_init(&copy.xattr[copy.n_xattr], x->name, x->value, x->value_len)) {
			attrs_fini(&copy);
			return -ENOMEM;
		}
	}
	*ret = copy;
	return 0;
}

/* First position whose name is not smaller. */
static uint16_t position(const struct attrs *a, const char *name)
{
	uint16_t lo = 0, hi = a->n_xattr;
	while (lo < hi) {
		uint16_t mid = (uint16_t)(lo + (hi - lo) / 2);
		if (strcmp(a->xattr[mid].name, name) < 0)
			lo = (uint16_t)(mid + 1);
		else
			hi = mid;
	}
	return lo;
}

const struct xattr *attrs_find(const struct attrs *a, const char *name)
{
	uint16_t i = position(a, name);
	return i < a->n_xattr && !strcmp(a->xattr[i].name, name) ? &a->xattr[i] : NULL;
}

int attrs_set(struct attrs *a, const char *name, const void *value, size_t len)
{
	const struct xattr *old = attrs_find(a, name);
	size_t name_len = strlen(name), total = name_len + len;
	struct xattr x;

	if (name_len < 1 || name_len > NAME_LEN_MAX || len > XATTR_VALUE_MAX)
		return -EINVAL;
	for (uint16_t i = 0; i < a->n_xattr; i++)
		if (&a->xattr[i] != old)
			total += strlen(a->xattr[i].name) + a->xattr[i].value_len;
	if (total > XATTRS_MAX_BYTES || a->n_xattr == UINT16_MAX)
		return -ENOSPC;
	if (xattr_init(&x, name, value, (uint32_t)len))
		return -ENOMEM;
	uint16_t at = position(a, name);
	if (old) {
		xattr_fini(&a->xattr[at]);
		a->xattr[at] = x;
		return 0;
	}
	struct xattr *p = reallocarray(a->xattr, (size_t)a->n_xattr + 1, sizeof *p);
	if (!p) {
		xattr_fini(&x);
		return -ENOMEM;
	}
	memmove(p + at + 1, p + at, (size_t)(a->n_xattr - at) * sizeof *p);
	p[at] = x;
	a->xattr = p;
	a->n_xattr++;
	return 0;
}

int attrs_remove(struct attrs *a, const char *name)
{
	uint16_t at = position(a, name);

	if (at == a->n_xattr || strcmp(a->xattr[at].name, name))
		return -ENODATA;
	xattr_fini(&a->xattr[at]);
	memmove(a->xattr + at, a->xattr + at + 1, (size_t)(a->n_xattr - at - 1) * sizeof *a->xattr);
	a->n_xattr--;
	return 0;
}
