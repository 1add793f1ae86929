/* Names: look-up, making, linking, removing, renaming, listing. Each operation replies exactly once. */
#include "mount_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static void names_changed(struct mount *m) { volume_push_soon(m->v, 0); }

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct inode_attr a;
	int r;
	/* "." and "..": file handles (NFS, open_by_handle_at) after the kernel dropped the inode. */
	if (!strcmp(name, "."))
		r = volume_getattr(m->v, parent, &a);
	else if (!strcmp(name, ".."))
		r = volume_lookup_parent(m->v, parent, &a);
	else
		r = volume_lookup(m->v, parent, name, strlen(name), &a);
	if (r == -ENOENT) {
		struct fuse_entry_param none = {.entry_timeout = CACHE_SECONDS};
		fuse_reply_entry(req, &none);
	} else if (r) {
		mount_fail(req, r);
	} else {
		mount_reply_entry(req, &a);
	}
	stats_since(m->stats, OP_LOOKUP, t);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	volume_forget(mount_of(req)->v, ino, n);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *f)
{
	for (size_t i = 0; i < count; i++)
		volume_forget(mount_of(req)->v, f[i].ino, f[i].nlookup);
	fuse_reply_none(req);
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, uint32_t mode, uint64_t rdev, const char *target,
		 enum stat_timer op)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct caller c;
	struct inode_attr a;
	mount_caller(req, &c);
	int r = volume_make(m->v, parent, name, strlen(name), mode, rdev, target, &c, &a);
	/* A peer made it just now. ESTALE makes the kernel look the name up anew: open(2) with O_CREAT alone then opens what is there. */
	if (r == -EEXIST && op == OP_CREATE)
		r = -ESTALE;
	if (r)
		mount_fail(req, r);
	else
		mount_reply_entry(req, &a);
	stats_since(m->stats, op, t);
	if (!r)
		names_changed(m);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	bool regular = !(mode & S_IFMT) || S_ISREG(mode);
	make(req, parent, name, mode & S_IFMT ? mode : mode | S_IFREG, rdev, NULL, regular && mount_of(req)->no_open ? OP_CREATE : OP_MKNOD);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	make(req, parent, name, (mode & 07777) | S_IFDIR, 0, NULL, OP_MKDIR);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	make(req, parent, name, S_IFLNK | 0777, 0, target, OP_SYMLINK);
}

/* The name exists, though the kernel thought that it did not: a peer made it just now. */
static int create_existing(struct mount *m, fuse_ino_t parent, const char *name, int flags, struct inode_attr *ret)
{
	if (flags & O_EXCL)
		return -EEXIST;
	int r = volume_lookup(m->v, parent, name, strlen(name), ret);
	if (r)
		return r == -ENOENT ? -ESTALE : r;
	if (!S_ISREG(ret->mode))
		return -ESTALE; /* the kernel looks the name up anew and decides itself */
	if (!(flags & O_TRUNC))
		return 0;
	struct caller c = {.in_group = true};
	return volume_setattr(m->v, ret->ino, &(struct set_attr){.mask = SET_SIZE}, &c, ret);
}

/* Where no OPEN is needed, CREATE is answered ENOSYS once: the kernel then makes files by MKNOD and opens them by itself, which saves the RELEASE
 * that follows each CREATE. */
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	if (m->no_open) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	uint64_t t = stats_now_ns();
	struct caller c;
	struct inode_attr a;
	mount_caller(req, &c);
	int r = volume_make(m->v, parent, name, strlen(name), (mode & 07777) | S_IFREG, 0, NULL, &c, &a);
	if (r == -EEXIST)
		r = create_existing(m, parent, name, fi->flags, &a);
	if (r) {
		mount_fail(req, r);
	} else {
		struct fuse_entry_param e;
		mount_entry(m, &a, &e);
		fi->keep_cache = 1;
		volume_ref(m->v, e.ino);
		if (fuse_reply_create(req, &e, fi))
			volume_forget(m->v, e.ino, 1);
	}
	stats_since(m->stats, OP_CREATE, t);
	if (!r)
		names_changed(m);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct inode_attr a;
	int r = volume_link(m->v, ino, parent, name, strlen(name), &a);
	if (r)
		mount_fail(req, r);
	else
		mount_reply_entry(req, &a);
	stats_since(m->stats, OP_LINK, t);
	if (!r)
		names_changed(m);
}

static void removed(fuse_req_t req, enum stat_timer op, uint64_t start_ns, int r)
{
	struct mount *m = mount_of(req);
	mount_fail(req, r);
	stats_since(m->stats, op, start_ns);
	if (!r)
		names_changed(m);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	uint64_t t = stats_now_ns();
	removed(req, OP_UNLINK, t, volume_unlink(mount_of(req)->v, parent, name, strlen(name)));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	uint64_t t = stats_now_ns();
	removed(req, OP_RMDIR, t, volume_rmdir(mount_of(req)->v, parent, name, strlen(name)));
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
	       unsigned flags)
{
	uint64_t t = stats_now_ns();
	int r = -EINVAL;
	if (!(flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)))
		r = volume_rename(mount_of(req)->v, parent, name, strlen(name), new_parent, new_name, strlen(new_name), flags);
	removed(req, OP_RENAME, t, r);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	char target[4097];
	size_t len = 0;
	int r = volume_readlink(m->v, ino, target, sizeof(target) - 1, &len);
	if (r) {
		mount_fail(req, r);
	} else {
		target[len < sizeof(target) ? len : sizeof(target) - 1] = 0;
		fuse_reply_readlink(req, target);
	}
	stats_since(m->stats, OP_READLINK, t);
}

/* ---- listing: offset 1 is after ".", 2 after "..", then the link's row number + 2 ---- */
#define DOTS 2
#define INO_UNKNOWN 0xffffffffu
struct listing {
	struct mount *m;
	fuse_req_t req;
	char *buf;
	size_t size, used;
	bool plus;
};

static bool list_one(struct listing *l, const char *name, const struct inode_attr *a, uint64_t off, bool count)
{
	size_t left = l->size - l->used, need;
	struct fuse_entry_param e;
	mount_entry(l->m, a, &e);
	if (!count)
		e.ino = 0; /* "." and "..": no look-up is counted */
	if (!a->ino)
		e.attr.st_ino = INO_UNKNOWN; /* a damaged node keeps its name; readdir(3) drops number 0 */
	if (l->plus)
		need = fuse_add_direntry_plus(l->req, l->buf + l->used, left, name, &e, (off_t)off);
	else
		need = fuse_add_direntry(l->req, l->buf + l->used, left, name, &e.attr, (off_t)off);
	if (need > left)
		return false;
	l->used += need;
	if (l->plus && e.ino)
		volume_ref(l->m->v, a->ino);
	return true;
}

static bool list_entry(void *ctx, const char *name, size_t len, uint64_t cookie, const struct inode_attr *a)
{
	char copy[256];
	if (len >= sizeof(copy))
		return true;
	memcpy(copy, name, len);
	copy[len] = 0;
	return list_one(ctx, copy, a, cookie + DOTS, true);
}

static int list_dots(struct listing *l, fuse_ino_t dir, off_t *off)
{
	struct inode_attr a;
	int r = 0;
	if (*off == 0) {
		r = volume_getattr(l->m->v, dir, &a);
		if (!r && list_one(l, ".", &a, 1, false))
			*off = 1;
	}
	if (!r && *off == 1) {
		r = volume_lookup_parent(l->m->v, dir, &a);
		if (r == -ENOENT || r == -ESTALE) /* removed while it is open */
			return 0;
		if (!r && list_one(l, "..", &a, DOTS, false))
			*off = DOTS;
	}
	return r;
}

/* Takes back the look-ups of a reply that did not reach the kernel. */
static void uncount(struct listing *l)
{
	struct reader r = reader_of(l->buf, l->used);
	while (l->plus && r.left) {
		/* fuse_entry_out (128 bytes, node id first), then fuse_dirent: ino, off, namelen, type, name padded to 8. */
		const uint8_t *p = read_bytes(&r, 128);
		read_bytes(&r, 16);
		uint32_t len = 0;
		const uint8_t *l32 = read_bytes(&r, 4);
		if (l32)
			memcpy(&len, l32, 4);
		read_bytes(&r, 4 + (((size_t)len + 7) & ~(size_t)7));
		if (r.bad)
			return;
		uint64_t ino;
		memcpy(&ino, p, 8);
		if (ino)
			volume_forget(l->m->v, ino, 1);
	}
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct listing l = {.m = m, .req = req, .buf = (char *)worker_buf(m), .size = size < IO_MAX ? size : IO_MAX, .plus = plus};
	int r = l.buf ? list_dots(&l, ino, &off) : -ENOMEM;
	if (!r && off >= DOTS)
		r = volume_readdir(m->v, ino, (uint64_t)off - DOTS, true, list_entry, &l);
	/* An error after some entries comes with the next call. */
	if (r && !l.used)
		mount_fail(req, r == -ESTALE ? -ENOENT : r);
	else if (fuse_reply_buf(req, l.buf, l.used))
		uncount(&l);
	stats_since(m->stats, OP_READDIR, t);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(req, ino, size, off, true);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	int r = volume_fsync(m->v, ino, datasync);
	fsync_answer(m, req, t, r);
	if (!r)
		names_changed(m);
}

/* As op_open: without OPENDIR the kernel keeps listings too. */
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (mount_of(req)->no_opendir)
		fuse_reply_err(req, ENOSYS);
	else
		fuse_reply_open(req, fi);
}
