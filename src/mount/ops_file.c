/* Attributes and contents. No state is kept between an open and a close: the kernel sends neither (see op_open). */
#include "mount_internal.h"

#include <linux/fuse.h>
#include <sys/stat.h>
#include <time.h>

static struct timespec64 time_of(struct timespec t)
{
	return (struct timespec64){.sec = t.tv_sec, .nsec = (uint32_t)t.tv_nsec};
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct inode_attr a;
	int r = volume_getattr(m->v, ino, &a);
	if (r) {
		mount_fail(req, r);
	} else {
		struct stat st;
		mount_stat(m, &a, &st);
		fuse_reply_attr(req, &st, CACHE_SECONDS);
	}
	stats_since(m->stats, OP_GETATTR, t);
}

#define TIME_BITS (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME)
#define CHANGE_BITS (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_SIZE | TIME_BITS)

static void translate(const struct mount *m, int to_set, const struct stat *st, struct set_attr *ret)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	*ret = (struct set_attr){
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.atime = time_of(to_set & FUSE_SET_ATTR_ATIME_NOW ? now : st->st_atim),
		.mtime = time_of(to_set & FUSE_SET_ATTR_MTIME_NOW ? now : st->st_mtim),
		.ctime = time_of(st->st_ctim),
	};
	static const struct { int fuse; unsigned ours; } bits[] = {
		{FUSE_SET_ATTR_MODE, SET_MODE}, {FUSE_SET_ATTR_UID, SET_UID}, {FUSE_SET_ATTR_GID, SET_GID},
		{FUSE_SET_ATTR_SIZE, SET_SIZE}, {FUSE_SET_ATTR_ATIME, SET_ATIME}, {FUSE_SET_ATTR_MTIME, SET_MTIME},
		{FUSE_SET_ATTR_CTIME, SET_CTIME},
	};
	for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++)
		if (to_set & bits[i].fuse)
			ret->mask |= bits[i].ours;
	/* The same bit on the wire (FATTR_KILL_SUIDGID); libfuse has another name for it. */
	if (to_set & FATTR_KILL_SUIDGID)
		ret->mask |= SET_KILL_SUIDGID;
	/* With KILLPRIV_V2 a chown says nothing of the bits that it clears, and chown(-1, -1), which clears them too, sends the ctime alone. */
	if (m->killpriv_v2 && (to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) || (to_set & CHANGE_BITS) == FUSE_SET_ATTR_CTIME))
		ret->mask |= SET_KILL_SUIDGID;
}

/* The kernel hands over the times that it kept; what it says is already so after a change that we made ourselves. */
static bool tells_nothing_new(int to_set, const struct set_attr *s, const struct inode_attr *now)
{
	return (to_set & CHANGE_BITS) == (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME) && !(s->mask & SET_KILL_SUIDGID) &&
	       s->mtime.sec == now->mtime.sec && s->mtime.nsec == now->mtime.nsec && S_ISREG(now->mode);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct set_attr s;
	struct caller c;
	struct inode_attr a;
	mount_caller(req, &c);
	translate(m, to_set, st, &s);
	int r = volume_getattr(m->v, ino, &a);
	if (!r && S_ISDIR(a.mode))
		s.mask &= ~(unsigned)SET_KILL_SUIDGID;
	bool own = self_is(req, ino);
	if (!r && own && to_set & FUSE_SET_ATTR_SIZE && a.size != s.size)
		r = -EAGAIN;
	else if (!r && !own && !tells_nothing_new(to_set, &s, &a))
		r = volume_setattr(m->v, ino, &s, &c, &a);
	if (r) {
		mount_fail(req, r);
	} else {
		struct stat shown;
		mount_stat(m, &a, &shown);
		fuse_reply_attr(req, &shown, CACHE_SECONDS);
	}
	stats_since(m->stats, OP_SETATTR, t);
	/* Times sent by the kernel mean that a close, an fsync or a write-back is done: the file is worth pushing now. */
	if (!r)
		volume_push_soon(m->v, ino);
}

/* Answered ENOSYS once, so that no OPEN, FLUSH or RELEASE is ever sent again; close() writes dirty pages back all the same. A kernel
 * that does not know this gets a plain answer each time. */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (mount_of(req)->no_open) {
		fuse_reply_err(req, ENOSYS);
	} else {
		fi->keep_cache = 1;
		fuse_reply_open(req, fi);
	}
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) { fuse_reply_err(req, 0); }

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_err(req, ENOSYS);
}

/* All of the range, or up to the end of the file, or an error. The volume's short answer may mean that the next page is damaged, which must
 * never reach the kernel as a short read: it would fill the rest with zeros. */
static int read_whole(struct mount *m, uint64_t ino, uint64_t off, uint8_t *buf, size_t size, size_t *ret_len)
{
	size_t len = 0, got;
	do {
		got = 0;
		int r = volume_read(m->v, ino, off + len, buf + len, size - len, &got);
		if (r)
			return r;
		len += got;
	} while (got && len < size);
	*ret_len = len;
	return 0;
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	uint8_t *buf = worker_buf(m);
	size_t len = 0;
	int r = buf ? read_whole(m, ino, (uint64_t)off, buf, size < IO_MAX ? size : IO_MAX, &len) : -ENOMEM;
	if (r)
		mount_fail(req, r);
	else
		fuse_reply_buf(req, (const char *)buf, len);
	stats_since(m->stats, OP_READ, t);
}

static bool runs_as_another(struct mount *m, uint64_t ino)
{
	struct inode_attr a;
	return !volume_getattr(m->v, ino, &a) && a.mode & (S_ISUID | S_ISGID);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	const struct worker *w = worker_self(m);
	bool from_cache = fi->writepage;
	bool kill = w && w->write_flags & FUSE_WRITE_KILL_SUIDGID;
	bool privileged = kill && runs_as_another(m, ino);
	int r = volume_write(m->v, ino, (uint64_t)off, buf, size, !m->writeback, kill);
	/* past the cache the kernel leaves it at the flag and goes on showing the old mode. Attributes alone: takes no lock that this write holds. */
	if (privileged)
		fuse_lowlevel_notify_inval_inode(m->se, ino, -1, 0);
	if (r)
		mount_fail(req, r);
	else
		fuse_reply_write(req, size);
	stats_since(m->stats, OP_WRITE, t);
	if (r && from_cache)
		notify_write_failed(m, ino, r);
	else if (!r && !from_cache)
		syncer_direct_change(m);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	int r = volume_fsync(m->v, ino, datasync);
	fsync_answer(m, req, t, r);
	if (!r)
		volume_push_soon(m->v, ino);
}

/* The kernel is to learn a size that the volume has already: only where it still has it. */
static int grown(struct mount *m, uint64_t ino, uint64_t size)
{
	struct inode_attr a;
	int r = volume_getattr(m->v, ino, &a);
	return r ? r : a.size == size ? 0 : -EAGAIN;
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	bool own = self_is(req, ino);
	int r = own ? grown(m, ino, (uint64_t)off + (uint64_t)len)
		    : volume_fallocate(m->v, ino, mode, (uint64_t)off, (uint64_t)len, !m->fallocate_times);
	mount_fail(req, r);
	stats_since(m->stats, OP_FALLOCATE, t);
	if (!r && !own)
		syncer_direct_change(m);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t off_from, struct fuse_file_info *fi_from, fuse_ino_t to,
			off_t off_to, struct fuse_file_info *fi_to, size_t len, int flags)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	uint64_t done = 0;
	int r = flags ? -EINVAL
		      : volume_copy_range(m->v, from, (uint64_t)off_from, to, (uint64_t)off_to, len < COPY_MAX ? len : COPY_MAX, !m->writeback, &done);
	if (r)
		mount_fail(req, r);
	else
		fuse_reply_write(req, (size_t)done);
	stats_since(m->stats, OP_COPY, t);
	if (!r)
		syncer_direct_change(m);
}

static void reply_seek(struct mount *m, fuse_req_t req, int r, uint64_t at, uint64_t start_ns)
{
	if (r)
		mount_fail(req, r);
	else
		fuse_reply_lseek(req, (off_t)at);
	stats_since(m->stats, OP_LSEEK, start_ns);
}

static void seek_again(struct mount *m, struct job *j)
{
	uint64_t at = 0;
	notify_inval_pages(m, j->ino, j->off & ~(int64_t)4095, 0);
	int r = volume_seek(m->v, j->ino, (uint64_t)j->off, j->whence, &at);
	reply_seek(m, j->req, r, at, j->start_ns);
}

/* Dirty data in the kernel is a hole to us. Data at the asked offset is certain; before any other answer the dirty pages are brought
 * home, which waits for WRITEs that workers answer: so not here. */
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns(), at = 0;
	int r = volume_seek(m->v, ino, (uint64_t)off, whence, &at);
	bool certain = r == 0 && whence == SEEK_DATA && at == (uint64_t)off;
	if (certain || !m->writeback || (r && r != -ENXIO)) {
		reply_seek(m, req, r, at, t);
		return;
	}
	struct job *j = calloc(1, sizeof(*j));
	if (!j) {
		reply_seek(m, req, -ENOMEM, 0, t);
		return;
	}
	*j = (struct job){.run = seek_again, .req = req, .ino = ino, .off = off, .whence = whence, .start_ns = t};
	queue_push(&m->seeker, j);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct statvfs s;
	int r = volume_statfs(m->v, &s);
	if (r)
		mount_fail(req, r);
	else
		fuse_reply_statfs(req, &s);
	stats_since(m->stats, OP_STATFS, t);
}
