/* POSIX ACLs as the kernel stores them in xattrs (linux/posix_acl_xattr.h): u32 version 2, then entries (u16 tag, u16 perm, u32 id).
 * What follows from them for the mode, and inheritance, as fs/posix_acl.c's rules say (acl(5)). */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "internal.h"

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"
#define VERSION 2
#define ENTRIES_MAX 1024

enum { TAG_USER_OBJ = 0x01, TAG_USER = 0x02, TAG_GROUP_OBJ = 0x04, TAG_GROUP = 0x08, TAG_MASK = 0x10, TAG_OTHER = 0x20 };

struct acl {
	uint8_t *entry; /* 8 bytes each, inside of the xattr's value */
	uint32_t n;
};

static uint16_t tag_of(const struct acl *a, uint32_t i) { return le16_load(a->entry + 8 * (size_t)i); }
static uint16_t perm_of(const struct acl *a, uint32_t i) { return le16_load(a->entry + 8 * (size_t)i + 2); }
static void set_perm(struct acl *a, uint32_t i, uint32_t perm) { le16_store(a->entry + 8 * (size_t)i + 2, (uint16_t)(perm & 7)); }

/* Index of the entry with that tag (of the kinds that occur once), or -1. */
static int find(const struct acl *a, uint16_t tag)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (tag_of(a, i) == tag)
			return (int)i;
	return -1;
}

/* Well formed: known tags in order, the three basic ones once, a mask where somebody is named. */
static int parse(uint8_t *value, size_t len, struct acl *ret)
{
	struct acl a = {.entry = value + 4};
	unsigned seen[64] = {0}, last = 0;

	if (len < 4 || (len - 4) % 8 || le32_load(value) != VERSION || (len - 4) / 8 > ENTRIES_MAX)
		return -EINVAL;
	a.n = (uint32_t)((len - 4) / 8);
	for (uint32_t i = 0; i < a.n; i++) {
		uint16_t tag = tag_of(&a, i);
		if (perm_of(&a, i) > 7 || tag < last)
			return -EINVAL;
		if (tag != TAG_USER_OBJ && tag != TAG_USER && tag != TAG_GROUP_OBJ && tag != TAG_GROUP && tag != TAG_MASK && tag != TAG_OTHER)
			return -EINVAL;
		if (seen[tag]++ && tag != TAG_USER && tag != TAG_GROUP)
			return -EINVAL;
		last = tag;
	}
	if (!seen[TAG_USER_OBJ] || !seen[TAG_GROUP_OBJ] || !seen[TAG_OTHER])
		return -EINVAL;
	if ((seen[TAG_USER] || seen[TAG_GROUP]) && !seen[TAG_MASK])
		return -EINVAL;
	*ret = a;
	return 0;
}

/* Nothing beyond the mode is said. */
static bool is_minimal(const struct acl *a) { return a->n == 3; }

static uint32_t mode_of(const struct acl *a)
{
	int group = find(a, TAG_MASK);

	if (group < 0)
		group = find(a, TAG_GROUP_OBJ);
	return (uint32_t)perm_of(a, (uint32_t)find(a, TAG_USER_OBJ)) << 6 | (uint32_t)perm_of(a, (uint32_t)group) << 3 |
	       perm_of(a, (uint32_t)find(a, TAG_OTHER));
}

static int get(const struct attrs *at, const char *name, struct acl *ret)
{
	const struct xattr *x = attrs_find(at, name);

	return x ? parse(x->value, x->value_len, ret) : -ENODATA;
}

int acl_chmod(struct attrs *a)
{
	struct acl acl;

	if (!a->n_xattr || get(a, ACCESS, &acl))
		return 0;
	int group = find(&acl, TAG_MASK);
	if (group < 0)
		group = find(&acl, TAG_GROUP_OBJ);
	set_perm(&acl, (uint32_t)find(&acl, TAG_USER_OBJ), a->mode >> 6);
	set_perm(&acl, (uint32_t)group, a->mode >> 3);
	set_perm(&acl, (uint32_t)find(&acl, TAG_OTHER), a->mode);
	return 0;
}

/* The mode asked for and the inherited ACL limit each other. */
static uint32_t masked(struct acl *a, uint32_t mode)
{
	int user = find(a, TAG_USER_OBJ), other = find(a, TAG_OTHER), group = find(a, TAG_MASK);

	if (group < 0)
		group = find(a, TAG_GROUP_OBJ);
	set_perm(a, (uint32_t)user, perm_of(a, (uint32_t)user) & mode >> 6);
	set_perm(a, (uint32_t)group, perm_of(a, (uint32_t)group) & mode >> 3);
	set_perm(a, (uint32_t)other, perm_of(a, (uint32_t)other) & mode);
	return (mode & ~(uint32_t)0777) | mode_of(a);
}

int acl_inherit(const struct attrs *dir, struct attrs *a, uint32_t umask)
{
	const struct xattr *x = dir->n_xattr ? attrs_find(dir, DEFAULT) : NULL;
	struct acl acl;
	int e = 0;

	if (!x || parse(x->value, x->value_len, &acl)) {
		a->mode &= ~(umask & 0777);
		return 0;
	}
	uint8_t *copy = malloc(x->value_len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, x->value, x->value_len);
	parse(copy, x->value_len, &acl);
	a->mode = masked(&acl, a->mode);
	if (!is_minimal(&acl))
		e = attrs_set(a, ACCESS, copy, x->value_len);
	if (!e && S_ISDIR(a->mode))
		e = attrs_set(a, DEFAULT, x->value, x->value_len);
	free(copy);
	return e;
}

int acl_set(struct attrs *a, const char *name, const void *value, size_t len)
{
	bool access = !strcmp(name, ACCESS);
	struct acl acl;
	int e;

	if (!access && !S_ISDIR(a->mode))
		return len ? -EACCES : 0;
	uint8_t *copy = malloc(len ? len : 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, value, len);
	e = parse(copy, len, &acl);
	if (!e && access) {
		a->mode = (a->mode & ~(uint32_t)0777) | mode_of(&acl);
		/* what the mode says alone is not kept twice */
		e = is_minimal(&acl) ? attrs_remove(a, name) : attrs_set(a, name, copy, len);
		if (e == -ENODATA)
			e = 0;
	} else if (!e) {
		e = attrs_set(a, name, copy, len);
	}
	free(copy);
	return e;
}
