/* Attributes, entries and callers: between FUSE's structs and the volume's. */
#include "mount_internal.h"

#include <sys/stat.h>

void mount_fail(fuse_req_t req, int err)
{
	int e = -err;
	switch (e) {
	case EBADMSG: /* does not authenticate */
	case EUCLEAN:
	case ENOKEY:
	case EPROTO:
		e = EIO;
	}
	fuse_reply_err(req, e);
}

void mount_stat(const struct mount *m, const struct inode_attr *a, struct stat *ret)
{
	const struct mount_options *o = m->o;
	*ret = (struct stat){
		.st_ino = a->ino,
		.st_mode = a->mode,
		.st_nlink = a->nlink,
		.st_uid = o->set_uid ? o->uid : a->uid,
		.st_gid = o->set_gid ? o->gid : a->gid,
		.st_rdev = (dev_t)a->rdev,
		.st_size = (off_t)a->size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)a->blocks,
		.st_atim = {(time_t)a->atime.sec, (long)a->atime.nsec},
		.st_mtim = {(time_t)a->mtime.sec, (long)a->mtime.nsec},
		.st_ctim = {(time_t)a->ctime.sec, (long)a->ctime.nsec},
	};
	if (o->set_umask && !S_ISLNK(a->mode))
		ret->st_mode = (a->mode & ~07777u) | (0777 & ~o->umask);
}

void mount_entry(const struct mount *m, const struct inode_attr *a, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){.ino = a->ino, .attr_timeout = CACHE_SECONDS, .entry_timeout = CACHE_SECONDS};
	mount_stat(m, a, &ret->attr);
}

void mount_reply_entry(fuse_req_t req, const struct inode_attr *a)
{
	struct mount *m = mount_of(req);
	struct fuse_entry_param e;
	mount_entry(m, a, &e);
	inum ino = a->ino;
	/* Before the reply: the kernel may use and forget the entry before fuse_reply_entry returns. */
	volume_ref(m->v, ino);
	if (fuse_reply_entry(req, &e))
		volume_forget(m->v, ino, 1);
}

void mount_caller(fuse_req_t req, struct caller *ret)
{
	const struct fuse_ctx *c = fuse_req_ctx(req);
	/* The kernel clears setgid itself in creating and in chmod (default_permissions). */
	*ret = (struct caller){.uid = c->uid, .gid = c->gid, .umask = c->umask, .in_group = true};
}

bool mount_in_group(fuse_req_t req, uint32_t gid)
{
	const struct fuse_ctx *c = fuse_req_ctx(req);
	if (c->uid == 0 || c->gid == gid)
		return true;
	gid_t some[64], *list = some;
	CLEANUP_FREE gid_t *more = NULL;
	int n = fuse_req_getgroups(req, 64, some);
	if (n > 64) {
		more = calloc((size_t)n, sizeof(*more));
		if (!more)
			return false;
		int got = fuse_req_getgroups(req, n, more);
		n = got < n ? got : n;
		list = more;
	}
	for (int i = 0; i < n; i++)
		if (list[i] == gid)
			return true;
	return false;
}
