/* The volume against a model of its tree in memory: random namespace and data operations, with commits, clean reopens and kills in between. After a
 * clean stop all is there; after a kill all that was committed. Plus the corners that a random walk seldom meets. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"
#include "replicate.h"
#include "volume.h"

static char dir[200];
static const struct slot_cost cheap = {1, 8192};
static const struct caller root_caller = {.umask = 022, .in_group = true};
static unsigned seed = 1;

static unsigned pick(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

static void remove_store(void)
{
	char cmd[300];
	snprintf(cmd, sizeof cmd, "rm -rf '%s'/s", dir);
	if (system(cmd))
		fprintf(stderr, "could not remove %s\n", dir);
}

static const char *store(void)
{
	static char path[220];
	snprintf(path, sizeof path, "%s/s", dir);
	return path;
}

static void create(void)
{
	uint8_t master[KEY_LEN];
	struct header h = {.cipher = CIPHER_XCHACHA20POLY1305};

	for (int i = 0; i < KEY_LEN; i++)
		master[i] = (uint8_t)i;
	env_random(&env_real, h.volume.b, ID_LEN);
	strcpy(h.name, "here");
	REQUIRE(!slot_make(h.slot[0], 0, SLOT_PASSPHRASE, cheap, &h.volume, "secret", 6, master));
	REQUIRE(!volume_create(store(), &h, master, true, NULL));
}

static struct volume *reopen(bool background)
{
	struct volume_options o = {.background = background, .commit_ms = 50};
	struct volume *v = NULL;

	int e = volume_open(store(), &o, "secret", 6, SLOT_PASSPHRASE, &v);
	if (e)
		fprintf(stderr, "open: %s\n", strerror(-e));
	REQUIRE(!e);
	return v;
}

static inum make(struct volume *v, inum parent, const char *name, uint32_t mode)
{
	struct inode_attr a = {0};
	CHECK_EQ(volume_make(v, parent, name, strlen(name), mode, 0, S_ISLNK(mode) ? "target" : NULL, &root_caller, &a), 0);
	return a.ino;
}

static int lookup(struct volume *v, inum parent, const char *name, struct inode_attr *a)
{
	return volume_lookup(v, parent, name, strlen(name), a);
}

/* ---- the model ---- */
#define NODES 400
#define NAMES 12
struct mnode {
	bool used, is_dir;
	unsigned nlink;
	uint32_t mode;
	size_t len;
	unsigned char *data;
	int xattr; /* value of user.x, -1: none */
	unsigned serial; /* which file it is, over reuse of the entry */
};
struct mentry {
	bool used;
	int parent, node;
	char name[8];
};
struct model {
	struct mnode node[NODES];
	struct mentry entry[NODES * 2];
};

static struct model now, committed;
static unsigned serials;

static void model_copy(struct model *to, const struct model *from)
{
	for (int i = 0; i < NODES; i++)
		free(to->node[i].data);
	*to = *from;
	for (int i = 0; i < NODES; i++) {
		if (!from->node[i].data)
			continue;
		to->node[i].data = malloc(from->node[i].len + 1);
		memcpy(to->node[i].data, from->node[i].data, from->node[i].len);
	}
}

static void model_clear(struct model *m)
{
	for (int i = 0; i < NODES; i++)
		free(m->node[i].data);
	memset(m, 0, sizeof *m);
	for (int i = 0; i < NODES; i++)
		m->node[i].xattr = -1;
	m->node[0] = (struct mnode){.used = true, .is_dir = true, .nlink = 2, .mode = 0755, .xattr = -1};
}

static struct mentry *find(int parent, const char *name)
{
	for (int i = 0; i < NODES * 2; i++)
		if (now.entry[i].used && now.entry[i].parent == parent && !strcmp(now.entry[i].name, name))
			return &now.entry[i];
	return NULL;
}

static int children(int parent)
{
	int n = 0;
	for (int i = 0; i < NODES * 2; i++)
		n += now.entry[i].used && now.entry[i].parent == parent;
	return n;
}

static int some_dir(void)
{
	int all[NODES], n = 0;
	for (int i = 0; i < NODES; i++)
		if (now.node[i].used && now.node[i].is_dir)
			all[n++] = i;
	return all[pick((unsigned)n)];
}

static struct mentry *some_entry(void)
{
	for (int tries = 0; tries < 50; tries++) {
		struct mentry *e = &now.entry[pick(NODES * 2)];
		if (e->used)
			return e;
	}
	for (int i = 0; i < NODES * 2; i++)
		if (now.entry[i].used)
			return &now.entry[i];
	return NULL;
}

static int parent_of(int d)
{
	for (int i = 0; i < NODES * 2; i++)
		if (now.entry[i].used && now.entry[i].node == d)
			return now.entry[i].parent;
	return 0;
}

static bool below(int d, int of)
{
	for (;; d = parent_of(d)) {
		if (d == of)
			return true;
		if (d == 0)
			return false;
	}
}

static struct mentry *add_entry(int parent, const char *name, int node)
{
	for (int i = 0; i < NODES * 2; i++)
		if (!now.entry[i].used) {
			now.entry[i] = (struct mentry){.used = true, .parent = parent, .node = node};
			strcpy(now.entry[i].name, name);
			return &now.entry[i];
		}
	return NULL;
}

static void drop_entry(struct mentry *e)
{
	struct mnode *n = &now.node[e->node];
	e->used = false;
	if (n->is_dir)
		now.node[e->parent].nlink--;
	if (n->is_dir || !--n->nlink) {
		free(n->data);
		*n = (struct mnode){.xattr = -1};
	}
}

/* Inode of a model node, by walking its path. */
static inum resolve(struct volume *v, int node)
{
	struct inode_attr a;

	if (!node)
		return ROOT_INUM;
	for (int i = 0; i < NODES * 2; i++)
		if (now.entry[i].used && now.entry[i].node == node) {
			inum up = resolve(v, now.entry[i].parent);
			if (lookup(v, up, now.entry[i].name, &a))
				return 0;
			return a.ino;
		}
	return 0;
}

/* Every state that a file had since the last commit. */
struct past {
	unsigned serial, n;
	struct {
		unsigned char *data;
		size_t len;
	} state[64];
};
static struct past past[NODES];

static void past_clear(void)
{
	for (int i = 0; i < NODES; i++) {
		for (unsigned j = 0; j < past[i].n; j++)
			free(past[i].state[j].data);
		past[i].n = 0;
	}
}

static void past_add(int i)
{
	struct mnode *n = &now.node[i];
	struct past *p = &past[i];

	if (p->serial != n->serial) {
		for (unsigned j = 0; j < p->n; j++)
			free(p->state[j].data);
		p->n = 0;
		p->serial = n->serial;
	}
	REQUIRE(p->n < 64);
	p->state[p->n].data = malloc(n->len + 1);
	memcpy(p->state[p->n].data, n->data, n->len);
	p->state[p->n++].len = n->len;
}

static bool was_so(const struct past *p, size_t at, unsigned char byte)
{
	for (unsigned j = 0; j < p->n; j++)
		if (at < p->state[j].len && p->state[j].data[at] == byte)
			return true;
	return false;
}

static void some_name(char *name) { sprintf(name, "n%u", pick(NAMES)); }

static void op_make(struct volume *v)
{
	char name[8];
	int d = some_dir(), n = -1;
	bool is_dir = pick(3) == 0;
	struct inode_attr a;

	some_name(name);
	for (int i = 0; i < NODES; i++)
		if (!now.node[i].used) {
			n = i;
			break;
		}
	if (n < 0)
		return;
	int e = volume_make(v, resolve(v, d), name, strlen(name), is_dir ? S_IFDIR | 0755 : S_IFREG | 0644, 0, NULL, &root_caller, &a);
	if (find(d, name)) {
		CHECK_EQ(e, -EEXIST);
		return;
	}
	CHECK_EQ(e, 0);
	now.node[n] = (struct mnode){.used = true, .is_dir = is_dir, .nlink = is_dir ? 2 : 1, .mode = is_dir ? 0755 : 0644, .xattr = -1,
		.serial = ++serials};
	if (is_dir)
		now.node[d].nlink++;
	add_entry(d, name, n);
}

static void op_remove(struct volume *v)
{
	struct mentry *x = some_entry();

	if (!x)
		return;
	inum up = resolve(v, x->parent);
	bool is_dir = now.node[x->node].is_dir;
	CHECK_EQ(is_dir ? volume_unlink(v, up, x->name, strlen(x->name)) : volume_rmdir(v, up, x->name, strlen(x->name)),
		is_dir ? -EISDIR : -ENOTDIR);
	int e = is_dir ? volume_rmdir(v, up, x->name, strlen(x->name)) : volume_unlink(v, up, x->name, strlen(x->name));
	if (is_dir && children(x->node)) {
		CHECK_EQ(e, -ENOTEMPTY);
		return;
	}
	CHECK_EQ(e, 0);
	drop_entry(x);
}

static void op_link(struct volume *v)
{
	struct mentry *x = some_entry();
	char name[8];
	int d = some_dir();
	struct inode_attr a;

	if (!x)
		return;
	some_name(name);
	int e = volume_link(v, resolve(v, x->node), resolve(v, d), name, strlen(name), &a);
	if (now.node[x->node].is_dir) {
		CHECK_EQ(e, -EPERM);
	} else if (find(d, name)) {
		CHECK_EQ(e, -EEXIST);
	} else if (add_entry(d, name, x->node)) {
		CHECK_EQ(e, 0);
		now.node[x->node].nlink++;
	}
}

static int rename_result(struct mentry *x, struct mentry *to, int d, unsigned flags)
{
	struct mnode *n = &now.node[x->node], *t = to ? &now.node[to->node] : NULL;

	if ((flags & RENAME_NOREPLACE) && to)
		return -EEXIST;
	if (flags & RENAME_EXCHANGE) {
		if (!to)
			return -ENOENT;
		if ((n->is_dir && below(d, x->node)) || (t->is_dir && below(x->parent, to->node)))
			return -EINVAL;
		return 0;
	}
	if (n->is_dir && below(d, x->node))
		return -EINVAL;
	if (!to || to->node == x->node)
		return 0;
	if (t->is_dir && !n->is_dir)
		return -EISDIR;
	if (t->is_dir && children(to->node))
		return -ENOTEMPTY;
	if (n->is_dir && !t->is_dir)
		return -ENOTDIR;
	return 0;
}

static void move_entry(struct mentry *x, int d, const char *name)
{
	if (now.node[x->node].is_dir) {
		now.node[x->parent].nlink--;
		now.node[d].nlink++;
	}
	x->parent = d;
	memmove(x->name, name, strlen(name) + 1);
}

static void op_rename(struct volume *v)
{
	struct mentry *x = some_entry(), *to;
	char name[8];
	int d = some_dir();
	unsigned f = pick(6), flags = f == 0 ? RENAME_NOREPLACE : f == 1 ? RENAME_EXCHANGE : 0;

	if (!x)
		return;
	some_name(name);
	to = find(d, name);
	int e = volume_rename(v, resolve(v, x->parent), x->name, strlen(x->name), resolve(v, d), name, strlen(name), flags);
	int want = rename_result(x, to, d, flags);
	CHECK_EQ(e, want);
	if (e || want || to == x || (to && to->node == x->node && !(flags & RENAME_EXCHANGE)))
		return;
	if (flags & RENAME_EXCHANGE) {
		int xp = x->parent;
		char xn[8];
		strcpy(xn, x->name);
		move_entry(x, d, name);
		move_entry(to, xp, xn);
		return;
	}
	if (to)
		drop_entry(to);
	move_entry(x, d, name);
}

static void op_write(struct volume *v)
{
	struct mentry *x = some_entry();
	static unsigned char buf[30000];

	if (!x || now.node[x->node].is_dir)
		return;
	struct mnode *n = &now.node[x->node];
	size_t off = pick(20000), len = pick(4) ? pick(300) + 1 : pick(20000) + 1;
	for (size_t i = 0; i < len; i++)
		buf[i] = (unsigned char)pick(256);
	CHECK_EQ(volume_write(v, resolve(v, x->node), off, buf, len, true, false), 0);
	if (off + len > n->len) {
		n->data = realloc(n->data, off + len);
		memset(n->data + n->len, 0, off + len - n->len);
		n->len = off + len;
	}
	memcpy(n->data + off, buf, len);
	past_add(x->node);
}

static void op_attr(struct volume *v)
{
	struct mentry *x = some_entry();
	struct inode_attr a;

	if (!x)
		return;
	struct mnode *n = &now.node[x->node];
	inum ino = resolve(v, x->node);
	struct set_attr s = {.mask = SET_MODE, .mode = pick(0777 + 1)};
	CHECK_EQ(volume_setattr(v, ino, &s, &root_caller, &a), 0);
	n->mode = s.mode;
	if (!n->is_dir && pick(2)) {
		s = (struct set_attr){.mask = SET_SIZE, .size = pick(3) ? pick(15000) : 0};
		CHECK_EQ(volume_setattr(v, ino, &s, &root_caller, &a), 0);
		CHECK_EQ(a.size, s.size);
		n->data = realloc(n->data, s.size + 1);
		if (s.size > n->len)
			memset(n->data + n->len, 0, s.size - n->len);
		n->len = s.size;
		past_add(x->node);
	}
	if (pick(2)) {
		uint8_t value = (uint8_t)pick(200);
		CHECK_EQ(volume_setxattr(v, ino, "user.x", &value, 1, 0, &root_caller), 0);
		n->xattr = value;
	} else {
		CHECK_EQ(volume_removexattr(v, ino, "user.x"), n->xattr < 0 ? -ENODATA : 0);
		n->xattr = -1;
	}
}

struct listing {
	int n, parent;
	uint64_t last;
};

static bool on_entry(void *ctx, const char *name, size_t len, uint64_t cookie, const struct inode_attr *a)
{
	struct listing *l = ctx;

	CHECK(cookie > l->last);
	l->last = cookie;
	CHECK(find(l->parent, name) != NULL);
	CHECK(a->ino != 0);
	l->n++;
	return true;
}

/* After a kill: what was overwritten within a committed content without a commit may have survived, page by page; never anything that the file did not
 * contain at some time. Takes over what is there. */
static void settle(struct volume *v)
{
	static unsigned char buf[60000];

	for (int i = 0; i < NODES; i++) {
		struct mnode *n = &now.node[i];
		size_t got = 0;
		if (!n->used || n->is_dir || !n->len || past[i].serial != n->serial)
			continue;
		if (volume_read(v, resolve(v, i), 0, buf, sizeof buf, &got) || got != n->len)
			continue; /* compare says so */
		for (size_t j = 0; j < got; j++)
			if (was_so(&past[i], j, buf[j]))
				n->data[j] = buf[j];
	}
	model_copy(&committed, &now);
	past_clear();
}

static void compare(struct volume *v)
{
	static unsigned char buf[60000];

	for (int i = 0; i < NODES; i++) {
		struct mnode *n = &now.node[i];
		struct inode_attr a;
		if (!n->used)
			continue;
		inum ino = resolve(v, i);
		CHECK(ino != 0);
		if (!ino || volume_getattr(v, ino, &a)) {
			CHECK(!"getattr");
			continue;
		}
		CHECK_EQ(a.mode & 07777, n->mode);
		CHECK_EQ(a.nlink, n->nlink);
		if (n->is_dir) {
			struct listing l = {.parent = i};
			CHECK_EQ(volume_readdir(v, ino, 0, true, on_entry, &l), 0);
			CHECK_EQ(l.n, children(i));
			CHECK_EQ(volume_lookup_parent(v, ino, &a), 0);
			CHECK_EQ(a.ino, resolve(v, parent_of(i)));
			continue;
		}
		CHECK_EQ(a.size, n->len);
		size_t got = 0;
		CHECK_EQ(volume_read(v, ino, 0, buf, sizeof buf, &got), 0);
		CHECK_EQ(got, n->len);
		CHECK(got == n->len && !memcmp(buf, n->data ? n->data : buf, got));
		for (size_t j = 0; j < got && n->data; j++)
			if (buf[j] != n->data[j]) {
				fprintf(stderr, "inode %llu of %zu bytes: first difference at %zu\n", (unsigned long long)ino, n->len, j);
				break;
			}
		uint8_t value = 0;
		size_t value_len = 0;
		int e = volume_getxattr(v, ino, "user.x", &value, 1, &value_len);
		CHECK_EQ(e, n->xattr < 0 ? -ENODATA : 0);
		CHECK(n->xattr < 0 || value == n->xattr);
	}
}

static void random_ops(struct volume *v, int n)
{
	for (int i = 0; i < n; i++) {
		switch (pick(12)) {
		case 0: case 1: case 2: case 3:
			op_make(v);
			break;
		case 4: case 5:
			op_remove(v);
			break;
		case 6:
			op_link(v);
			break;
		case 7: case 8:
			op_rename(v);
			break;
		case 9: case 10:
			op_write(v);
			break;
		default:
			op_attr(v);
		}
	}
}

static void test_random(unsigned s, int rounds, bool peers)
{
	struct root live, again;

	seed = s;
	model_clear(&now);
	model_clear(&committed);
	create();
	struct volume *v = reopen(false);
	if (peers) { /* then deletions are kept, and steps and bases too */
		struct member m = {.name = "there"};
		CHECK_EQ(volume_set_member(v, 77, &m), 0);
	}
	for (int r = 0; r < rounds; r++) {
		random_ops(v, 60);
		if (pick(2)) {
			CHECK_EQ(volume_commit(v), 0);
			model_copy(&committed, &now);
			past_clear();
		}
		if (pick(4) == 0)
			compare(v);
		switch (pick(6)) {
		case 0:
			CHECK_EQ(volume_close(v), 0);
			model_copy(&committed, &now);
			past_clear();
			v = reopen(false);
			compare(v);
			break;
		case 1:
			volume_abandon(v);
			model_copy(&now, &committed);
			v = reopen(false);
			settle(v);
			compare(v);
			break;
		}
	}
	CHECK_EQ(volume_commit(v), 0);
	past_clear();
	CHECK_EQ(volume_live_root(v, &live), 0);
	CHECK_EQ(volume_close(v), 0);
	v = reopen(false);
	compare(v);
	CHECK_EQ(volume_live_root(v, &again), 0);
	CHECK(root_eq(&live, &again));
	/* with everything removed, what is alive is the root's parts alone */
	CHECK_EQ(volume_close(v), 0);
	remove_store();
}

/* ---- corners ---- */
static void test_orphans(void)
{
	struct inode_attr a;
	char buf[16];
	size_t got;

	create();
	struct volume *v = reopen(false);
	inum f = make(v, ROOT_INUM, "f", S_IFREG | 0644);
	volume_ref(v, f);
	CHECK_EQ(volume_write(v, f, 0, "hello", 5, true, false), 0);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(volume_unlink(v, ROOT_INUM, "f", 1), 0);
	CHECK_EQ(lookup(v, ROOT_INUM, "f", &a), -ENOENT);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(volume_write(v, f, 5, " you", 4, true, false), 0);
	CHECK_EQ(volume_fsync(v, f, false), 0);
	CHECK_EQ(volume_read(v, f, 0, buf, sizeof buf, &got), 0);
	CHECK(got == 9 && !memcmp(buf, "hello you", 9));
	CHECK_EQ(volume_getattr(v, f, &a), 0);
	CHECK_EQ(a.nlink, 0);
	CHECK_EQ(volume_link(v, f, ROOT_INUM, "back", 4, &a), -ENOENT);
	volume_abandon(v);
	v = reopen(false);
	CHECK_EQ(volume_getattr(v, f, &a), -ESTALE); /* removed at the open */
	inum g = make(v, ROOT_INUM, "g", S_IFREG | 0644);
	CHECK(g > f);
	volume_ref(v, g);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(volume_unlink(v, ROOT_INUM, "g", 1), 0);
	volume_forget(v, g, 1);
	CHECK_EQ(volume_getattr(v, g, &a), -ESTALE);
	CHECK_EQ(volume_commit(v), 0);
	/* made, used and removed in one transaction: nothing stays */
	inum h = make(v, ROOT_INUM, "h", S_IFREG | 0644);
	static char big[200000];
	CHECK_EQ(volume_write(v, h, 0, big, sizeof big, true, false), 0);
	CHECK_EQ(volume_unlink(v, ROOT_INUM, "h", 1), 0);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(volume_close(v), 0);
	remove_store();
}

struct stable {
	char seen[300];
	int n;
	uint64_t last;
};

static bool a_few(void *ctx, const char *name, size_t len, uint64_t cookie, const struct inode_attr *a)
{
	struct stable *s = ctx;
	static int step;

	if (++step % 7 == 0)
		return false;
	int i = atoi(name + 1);
	if (name[0] == 'f') {
		CHECK(!s->seen[i]);
		s->seen[i] = 1;
	}
	s->last = cookie;
	s->n++;
	return true;
}

/* A listing in steps, while names come, go and move: what stays is listed exactly once. */
static void test_readdir(void)
{
	struct stable s = {0};
	char name[20], other[24];

	create();
	struct volume *v = reopen(false);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "f%d", i);
		make(v, ROOT_INUM, name, S_IFREG | 0644);
		if (i == 100)
			CHECK_EQ(volume_commit(v), 0);
	}
	for (int round = 0; round < 200; round++) {
		int before = s.n;
		CHECK_EQ(volume_readdir(v, ROOT_INUM, s.last, false, a_few, &s), 0);
		if (round % 3 == 0) {
			snprintf(name, sizeof name, "x%d", round);
			make(v, ROOT_INUM, name, S_IFDIR | 0755);
		}
		snprintf(name, sizeof name, "f%d", round);
		snprintf(other, sizeof other, "g%d", round);
		if (round % 5 == 0 && s.seen[round])
			CHECK_EQ(volume_rename(v, ROOT_INUM, name, strlen(name), ROOT_INUM, other, strlen(other), 0), 0);
		if (round % 11 == 0)
			CHECK_EQ(volume_commit(v), 0);
		if (s.n == before && round > 100)
			break;
	}
	for (int i = 0; i < 300; i++)
		CHECK(s.seen[i]);
	CHECK_EQ(volume_close(v), 0);
	remove_store();
}

static size_t put_acl(uint8_t *p, unsigned user, unsigned named, unsigned group, unsigned mask, unsigned other)
{
	const unsigned entry[5][3] = {{1, user, ~0u}, {2, named, 1000}, {4, group, ~0u}, {16, mask, ~0u}, {32, other, ~0u}};

	le32_store(p, 2);
	for (int i = 0; i < 5; i++) {
		le16_store(p + 4 + 8 * i, (uint16_t)entry[i][0]);
		le16_store(p + 6 + 8 * i, (uint16_t)entry[i][1]);
		le32_store(p + 8 + 8 * i, entry[i][2]);
	}
	return 44;
}

static void test_attributes(void)
{
	uint8_t acl[64], back[64];
	size_t len;
	struct inode_attr a;
	struct caller c = {.uid = 5, .gid = 6, .umask = 077};

	create();
	struct volume *v = reopen(false);
	inum d = make(v, ROOT_INUM, "d", S_IFDIR | 0755);
	size_t n = put_acl(acl, 7, 5, 5, 7, 0);
	CHECK_EQ(volume_setxattr(v, d, "system.posix_acl_default", acl, n, 0, &root_caller), 0);
	CHECK_EQ(volume_setxattr(v, d, "system.posix_acl_default", acl, 5, 0, &root_caller), -EINVAL);
	CHECK_EQ(volume_make(v, d, "f", 1, S_IFREG | 0664, 0, NULL, &c, &a), 0);
	CHECK_EQ(a.mode, S_IFREG | 0660); /* the default ACL instead of the umask: mask 7 & 6, other 0 */
	CHECK_EQ(a.uid, 5);
	CHECK_EQ(volume_getxattr(v, a.ino, "system.posix_acl_access", back, sizeof back, &len), 0);
	CHECK_EQ(len, 44);
	struct set_attr s = {.mask = SET_MODE, .mode = 0640};
	CHECK_EQ(volume_setattr(v, a.ino, &s, &c, &a), 0);
	CHECK_EQ(volume_getxattr(v, a.ino, "system.posix_acl_access", back, sizeof back, &len), 0);
	CHECK_EQ(le16_load(back + 4 + 8 * 3 + 2), 4); /* the mask follows chmod */
	CHECK_EQ(volume_make(v, ROOT_INUM, "g", 1, S_IFREG | 06777, 0, NULL, &c, &a), 0);
	CHECK_EQ(a.mode & 07777, 06700);
	inum g = a.ino;
	CHECK_EQ(volume_setxattr(v, g, "security.capability", "x", 1, 0, &root_caller), 0);
	CHECK_EQ(volume_setxattr(v, g, "user.a", "x", 1, XATTR_REPLACE, &root_caller), -ENODATA);
	CHECK_EQ(volume_setxattr(v, g, "user.a", "x", 1, XATTR_CREATE, &root_caller), 0);
	CHECK_EQ(volume_setxattr(v, g, "user.a", "y", 1, XATTR_CREATE, &root_caller), -EEXIST);
	CHECK_EQ(volume_write(v, g, 0, "1", 1, true, true), 0);
	CHECK_EQ(volume_getxattr(v, g, "security.capability", NULL, 0, &len), -ENODATA);
	CHECK_EQ(volume_getattr(v, g, &a), 0);
	CHECK_EQ(a.mode & 07777, 02700); /* setgid without group execute is no set-id bit */
	CHECK_EQ(volume_listxattr(v, g, (char *)back, sizeof back, &len), 0);
	CHECK_EQ(len, 7);
	CHECK_EQ(volume_listxattr(v, g, (char *)back, 3, &len), -ERANGE);
	s = (struct set_attr){.mask = SET_MODE | SET_GID, .mode = 02775, .gid = 33};
	CHECK_EQ(volume_setattr(v, d, &s, &root_caller, &a), 0);
	CHECK_EQ(volume_removexattr(v, d, "system.posix_acl_default"), 0);
	CHECK_EQ(volume_make(v, d, "sub", 3, S_IFDIR | 0755, 0, NULL, &c, &a), 0);
	CHECK_EQ(a.gid, 33);
	CHECK_EQ(a.mode & 07777, 02700);
	CHECK_EQ(volume_make(v, d, "dev", 3, S_IFBLK | 0600, 0x801, NULL, &root_caller, &a), 0);
	CHECK_EQ(volume_close(v), 0);
	v = reopen(false);
	CHECK_EQ(volume_resolve(v, "d/dev", &a), 0);
	CHECK_EQ(a.rdev, 0x801);
	CHECK_EQ(a.mode & S_IFMT, S_IFBLK);
	CHECK_EQ(volume_resolve(v, "d/../d/sub/..", &a), 0);
	CHECK_EQ(a.ino, d);
	char *path = NULL;
	CHECK_EQ(volume_resolve(v, "d/sub", &a), 0);
	CHECK_EQ(volume_path_of(v, a.ino, &path), 0);
	CHECK(path && !strcmp(path, "d/sub"));
	free(path);
	CHECK_EQ(volume_close(v), 0);
	remove_store();
}

/* Replaced by rename without fsync, then killed: the old content or the new one, never none. */
static void test_rename_over(void)
{
	static char big[100000], back[100001];
	struct inode_attr a;
	size_t got;

	create();
	struct volume *v = reopen(false);
	inum f = make(v, ROOT_INUM, "f", S_IFREG | 0644), other = make(v, ROOT_INUM, "other", S_IFREG | 0644);
	memset(big, 'a', sizeof big);
	CHECK_EQ(volume_write(v, f, 0, big, sizeof big, true, false), 0);
	CHECK_EQ(volume_commit(v), 0);
	inum g = make(v, ROOT_INUM, "f.new", S_IFREG | 0644);
	memset(big, 'b', sizeof big);
	CHECK_EQ(volume_write(v, g, 0, big, sizeof big, true, false), 0);
	CHECK_EQ(volume_rename(v, ROOT_INUM, "f.new", 5, ROOT_INUM, "f", 1, 0), 0);
	/* an fsync of another file commits the names, this one's content with it */
	CHECK_EQ(volume_write(v, other, 0, "x", 1, true, false), 0);
	CHECK_EQ(volume_fsync(v, other, false), 0);
	volume_abandon(v);
	v = reopen(false);
	CHECK_EQ(lookup(v, ROOT_INUM, "f", &a), 0);
	CHECK_EQ(a.ino, g);
	CHECK_EQ(a.size, sizeof big);
	CHECK_EQ(volume_read(v, a.ino, 0, back, sizeof back, &got), 0);
	CHECK(got == sizeof big && !memcmp(big, back, got));
	/* an overwrite with fsync needs no commit, and survives */
	memset(big, 'c', 8192);
	CHECK_EQ(volume_write(v, g, 4096, big, 8192, true, false), 0);
	CHECK_EQ(volume_fsync(v, g, false), 0);
	volume_abandon(v);
	v = reopen(false);
	CHECK_EQ(volume_read(v, g, 0, back, sizeof back, &got), 0);
	CHECK(got == sizeof big && back[4095] == 'b' && back[4096] == 'c' && back[12287] == 'c' && back[12288] == 'b');
	CHECK_EQ(volume_close(v), 0);
	remove_store();
}

static bool count_line(void *ctx, const struct journal_entry *e)
{
	int *n = ctx;
	CHECK(e->seq > 0 && e->detail);
	++*n;
	return true;
}

static void test_peers(void)
{
	struct peer_config p = {.replica = 9, .address = "host:7420"}, *all;
	uint8_t id[16] = {1}, secret[32] = {2}, back[32];
	struct vector k = {0};
	uint32_t n;
	int lines = 0;
	struct buf out = {0};

	create();
	struct volume *v = reopen(true);
	CHECK_EQ(volume_set_peer(v, &p), 0);
	CHECK_EQ(volume_token_add(v, id, secret, UINT64_MAX), 0);
	CHECK_EQ(volume_token_secret(v, id, back), 0);
	CHECK(!memcmp(secret, back, 32));
	inum f = make(v, ROOT_INUM, "f", S_IFREG | 0644);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(volume_file_state(v, f, &out), 0);
	CHECK(out.len > 8 && !memcmp(out.p, "pending:", 8));
	CHECK_EQ(volume_knowledge(v, &k), 0);
	CHECK_EQ(volume_peers_have(v, FSYNC_ALL, &k, NULL, 0), 0);
	CHECK_EQ(volume_peers_have(v, FSYNC_PEER, &k, NULL, 0), 0);
	CHECK_EQ(volume_set_peer_knowledge(v, 9, &k), 0);
	CHECK_EQ(volume_peers_have(v, FSYNC_ALL, &k, NULL, 0), 1);
	CHECK_EQ(volume_peers_have(v, FSYNC_PEER, &k, NULL, 0), 1);
	CHECK_EQ(volume_peers_have(v, FSYNC_PEER, &k, &p.replica, 1), 0);
	out.len = 0;
	CHECK_EQ(volume_file_state(v, f, &out), 0);
	CHECK(out.len == 7 && !memcmp(out.p, "in-sync", 7));
	vector_fini(&k);
	CHECK_EQ(volume_log(v, 0, count_line, &lines), 0);
	CHECK(lines >= 7); /* member, root's two and the file's four, the root's times anew */
	CHECK_EQ(volume_token_use(v, id), 0);
	CHECK_EQ(volume_close(v), 0);
	v = reopen(false);
	CHECK_EQ(volume_token_use(v, id), -EALREADY);
	CHECK_EQ(volume_peers(v, &all, &n), 0);
	CHECK_EQ(n, 1);
	CHECK(n == 1 && !strcmp(all[0].address, "host:7420"));
	free(all);
	CHECK_EQ(volume_peer_knowledge(v, 9, &k), 0);
	CHECK(k.n > 0);
	vector_fini(&k);
	CHECK_EQ(volume_drop_peer(v, 9), 0);
	CHECK_EQ(volume_close(v), 0);
	buf_fini(&out);
	remove_store();
}

static void test_refusals(void)
{
	struct volume_options o = {0};
	struct volume *v, *w;
	struct inode_attr a;
	char name[300];

	create();
	CHECK_EQ(volume_open(store(), &o, "wrong", 5, SLOT_PASSPHRASE, &v), -ENOKEY);
	v = reopen(false);
	CHECK_EQ(volume_open(store(), &o, "secret", 6, SLOT_PASSPHRASE, &w), -EBUSY);
	memset(name, 'x', sizeof name);
	CHECK_EQ(volume_make(v, ROOT_INUM, name, 256, S_IFREG, 0, NULL, &root_caller, &a), -ENAMETOOLONG);
	CHECK_EQ(volume_make(v, ROOT_INUM, name, 255, S_IFREG, 0, NULL, &root_caller, &a), 0);
	CHECK_EQ(volume_make(v, ROOT_INUM, "a/b", 3, S_IFREG, 0, NULL, &root_caller, &a), -EINVAL);
	CHECK_EQ(volume_make(v, a.ino, "x", 1, S_IFREG, 0, NULL, &root_caller, &a), -ENOTDIR);
	CHECK_EQ(volume_make(v, 12345, "x", 1, S_IFREG, 0, NULL, &root_caller, &a), -ESTALE);
	inum d = make(v, ROOT_INUM, "d", S_IFDIR | 0755);
	volume_ref(v, d);
	CHECK_EQ(volume_rmdir(v, ROOT_INUM, "d", 1), 0);
	CHECK_EQ(volume_make(v, d, "x", 1, S_IFREG, 0, NULL, &root_caller, &a), -ENOENT);
	CHECK_EQ(volume_close(v), 0);
	o.read_only = true;
	CHECK_EQ(volume_open(store(), &o, "secret", 6, SLOT_PASSPHRASE, &v), 0);
	CHECK_EQ(volume_make(v, ROOT_INUM, "y", 1, S_IFREG, 0, NULL, &root_caller, &a), -EROFS);
	CHECK_EQ(volume_lookup(v, ROOT_INUM, name, 255, &a), 0);
	CHECK_EQ(volume_close(v), 0);
	remove_store();
}

/* Starts: what each was made under, what contradicts, and a new identity that keeps what is held. */
static void test_starts(void)
{
	struct start_tag *s = NULL, other[1];
	struct identity id = {0};
	struct doubt d = {0};
	struct vector k = {0}, more = {0};
	struct inode_attr a;
	char text[8];
	size_t len = 0;
	uint32_t n = 0;

	create();
	struct volume *v = reopen(true);
	struct peer_config peer = {.replica = 9, .address = "host:7420"};
	uint64_t self = volume_header(v)->replica;
	CHECK_EQ(volume_set_peer(v, &peer), 0);
	inum f = make(v, ROOT_INUM, "f", S_IFREG | 0644);
	CHECK_EQ(volume_write(v, f, 0, "hello", 5, true, false), 0);
	make(v, ROOT_INUM, "gone", S_IFREG | 0644);
	CHECK_EQ(volume_commit(v), 0);
	CHECK_EQ(volume_knowledge(v, &k), 0);
	CHECK_EQ(volume_starts(v, &k, &s, &n), 0);
	REQUIRE(n >= 1 && s[n - 1].replica == self && s[n - 1].tag == volume_start_tag(v));
	CHECK_EQ(volume_starts_check(v, 9, &k, s, n, &d), 0);
	/* another store of ours made the same changes under another start */
	other[0] = s[n - 1];
	other[0].tag++;
	CHECK_EQ(volume_starts_check(v, 9, &k, other, 1, &d), 1);
	CHECK(d.replica == self && d.from == other[0].first_counter);
	/* somebody has more of us than we */
	CHECK_EQ(vector_copy(&more, &k), 0);
	CHECK_EQ(vector_add(&more, (struct dot){self, vector_get(&k, self) + 5}), 0);
	CHECK_EQ(volume_starts_check(v, 9, &more, s, n, &d), 1);
	CHECK(d.replica == self && d.from == vector_get(&k, self) + 1);
	/* of a start that nothing was made under yet */
	other[0] = (struct start_tag){self, vector_get(&k, self) + 1, 5};
	CHECK_EQ(volume_starts_check(v, 9, &k, other, 1, &d), 0);
	/* it goes on as another replica */
	CHECK_EQ(volume_unlink(v, ROOT_INUM, "gone", 4), 0);
	CHECK_EQ(volume_renew_prepare(v, s[n - 1].first_counter, &id), 0);
	CHECK(id.replica && id.replica != self);
	CHECK_EQ(volume_renew(v), 0);
	CHECK_EQ(volume_renew(v), -ENOENT);
	CHECK_EQ(volume_header(v)->replica, id.replica);
	vector_fini(&k);
	CHECK_EQ(volume_knowledge(v, &k), 0);
	CHECK_EQ(vector_get(&k, self), s[n - 1].first_counter - 1);
	CHECK(vector_get(&k, id.replica) > 0);
	free(s);
	CHECK_EQ(volume_close(v), 0);
	v = reopen(true);
	CHECK_EQ(volume_header(v)->replica, id.replica);
	CHECK_EQ(volume_resolve(v, "f", &a), 0);
	CHECK_EQ(volume_read(v, a.ino, 0, text, sizeof text, &len), 0);
	CHECK(len == 5 && !memcmp(text, "hello", 5));
	CHECK_EQ(volume_resolve(v, "gone", &a), -ENOENT);
	make(v, ROOT_INUM, "after", S_IFREG | 0644);
	CHECK_EQ(volume_close(v), 0);
	vector_fini(&k);
	vector_fini(&more);
	remove_store();
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");

	REQUIRE(!crypto_init());
	snprintf(dir, sizeof dir, "%s/twofold-volume-XXXXXX", tmp ? tmp : "/tmp");
	REQUIRE(mkdtemp(dir));
	if (argc > 1) {
		for (int s = atoi(argv[1]); s < atoi(argv[2]) && !check_failures_; s++) {
			printf("seed %d\n", s);
			test_random((unsigned)s, 40, s & 1);
		}
	} else {
		test_refusals();
		test_orphans();
		test_attributes();
		test_readdir();
		test_rename_over();
		test_peers();
		test_starts();
		for (unsigned s = 1; s <= 4; s++)
			test_random(s, 15, s & 1);
	}
	model_clear(&now);
	model_clear(&committed);
	rmdir(dir);
	return check_result();
}
