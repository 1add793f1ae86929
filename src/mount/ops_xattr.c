/* Extended attributes: stored ones, ACLs among them, and the virtual tree user.twofold.* (virtual_xattr.h). */
#include "mount_internal.h"

#include <string.h>
#include <sys/stat.h>
#include "virtual_xattr.h"

#define LIST_MAX 65536 /* XATTR_LIST_MAX and XATTR_SIZE_MAX of the kernel */
#define COMMANDS_MAX 16

static struct virtual_extra extra(const struct mount *m)
{
	return (struct virtual_extra){.store = m->o->store, .control = m->o->control, .mountpoint = m->path};
}

/* size 0 asks for the length alone. */
static void reply_value(fuse_req_t req, size_t size, const void *value, size_t len)
{
	if (!size)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

static void get_virtual(fuse_req_t req, uint64_t ino, const char *name, size_t size)
{
	struct mount *m = mount_of(req);
	struct virtual_extra x = extra(m);
	CLEANUP(buf_fini) struct buf out = {0};
	int r = virtual_get(m->v, ino, name, &x, &out);
	if (!r)
		r = out.err;
	if (r)
		mount_fail(req, r);
	else
		reply_value(req, size, out.p, out.len);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	if (virtual_is(name)) {
		get_virtual(req, ino, name, size);
	} else {
		uint8_t *buf = worker_buf(m);
		size_t len = 0;
		int r = buf ? volume_getxattr(m->v, ino, name, buf, size < IO_MAX ? size : IO_MAX, &len) : -ENOMEM;
		if (r)
			mount_fail(req, r);
		else
			reply_value(req, size, buf, len);
	}
	stats_since(m->stats, OP_GETXATTR, t);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	struct virtual_extra x = extra(m);
	CLEANUP(buf_fini) struct buf out = {0};
	uint8_t *buf = worker_buf(m);
	size_t len = 0;
	int r = buf ? volume_listxattr(m->v, ino, (char *)buf, LIST_MAX, &len) : -ENOMEM;
	if (!r)
		buf_put(&out, buf, len);
	if (!r)
		r = virtual_list(m->v, ino, &x, &out);
	if (!r)
		r = out.err;
	if (r)
		mount_fail(req, r);
	else
		reply_value(req, size, out.p, out.len);
	stats_since(m->stats, OP_GETXATTR, t);
}

/* ---- commands: setfattr -n user.twofold.sync|reset ---- */
struct command {
	struct mount *m;
	fuse_req_t req;
	uint64_t start_ns;
	size_t len;
	char value[];
};

static void command_done(struct mount *m)
{
	pthread_mutex_lock(&m->guests_lock);
	m->commands--;
	pthread_cond_broadcast(&m->guests_wake);
	pthread_mutex_unlock(&m->guests_lock);
}

static void *sync_main(void *arg)
{
	struct command *c = arg;
	struct mount *m = c->m;
	int r = m->o->sync ? m->o->sync(m->o->ctx, c->value, c->len) : volume_commit(m->v);
	mount_fail(c->req, r);
	stats_since(m->stats, OP_SETXATTR, c->start_ns);
	free(c);
	command_done(m);
	return NULL;
}

static int start_sync(fuse_req_t req, const char *value, size_t len, uint64_t start_ns)
{
	struct mount *m = mount_of(req);
	if (len > 4096)
		return -EINVAL;
	struct command *c = calloc(1, sizeof(*c) + len + 1);
	if (!c)
		return -ENOMEM;
	*c = (struct command){.m = m, .req = req, .start_ns = start_ns, .len = len};
	memcpy(c->value, value, len);
	pthread_mutex_lock(&m->guests_lock);
	bool room = m->commands < COMMANDS_MAX && !m->closed;
	m->commands += room;
	pthread_mutex_unlock(&m->guests_lock);
	pthread_t thread;
	int r = room ? pthread_create(&thread, NULL, sync_main, c) : EBUSY;
	if (!r) {
		pthread_detach(thread);
		return 0;
	}
	free(c);
	if (room)
		command_done(m);
	return -r;
}

static void command(fuse_req_t req, uint64_t ino, const char *name, const char *value, size_t len, uint64_t start_ns)
{
	struct mount *m = mount_of(req);
	const char *what = name + sizeof(VIRTUAL_PREFIX) - 1;
	int r = -EOPNOTSUPP;
	if (ino == ROOT_INUM && !strcmp(what, "sync")) {
		r = start_sync(req, value, len, start_ns);
		if (!r)
			return; /* its thread replies */
	} else if (ino == ROOT_INUM && !strcmp(what, "reset")) {
		stats_reset(m->stats);
		r = 0;
	}
	mount_fail(req, r);
}

/* Setting an access ACL clears setgid where the caller is not in the group; only then are the groups worth a look into /proc. */
static bool may_keep_setgid(fuse_req_t req, uint64_t ino, const char *name)
{
	struct inode_attr a;
	if (strcmp(name, "system.posix_acl_access") || volume_getattr(mount_of(req)->v, ino, &a) || !(a.mode & S_ISGID))
		return true;
	return mount_in_group(req, a.gid);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	if (virtual_is(name)) {
		command(req, ino, name, value, size, t);
		return;
	}
	struct caller c;
	mount_caller(req, &c);
	c.in_group = may_keep_setgid(req, ino, name);
	int r = volume_setxattr(m->v, ino, name, value, size, flags, &c);
	mount_fail(req, r);
	stats_since(m->stats, OP_SETXATTR, t);
	if (!r)
		volume_push_soon(m->v, ino);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct mount *m = mount_of(req);
	uint64_t t = stats_now_ns();
	int r = virtual_is(name) ? -EPERM : volume_removexattr(m->v, ino, name);
	mount_fail(req, r);
	stats_since(m->stats, OP_SETXATTR, t);
	if (!r)
		volume_push_soon(m->v, ino);
}
