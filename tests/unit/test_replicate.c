/* Two replicas through replicate.h, one thing after the other: what is made, changed, moved and removed on one arrives on the other, and what
 * was done on both at once is resolved alike. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "internal.h"
#include "world.h"

static const struct caller root_caller = {.umask = 022, .in_group = true};
static struct world w;
static struct volume *A, *B;

static inum at(struct volume *v, const char *path)
{
	struct inode_attr a = {0};
	return volume_resolve(v, path, &a) ? 0 : a.ino;
}

static inum make(struct volume *v, inum dir, const char *name, uint32_t mode)
{
	struct inode_attr a = {0};
	CHECK_EQ(volume_make(v, dir, name, strlen(name), mode, 0, S_ISLNK(mode) ? "target" : NULL, &root_caller, &a), 0);
	return a.ino;
}

static void put(struct volume *v, inum ino, uint64_t off, const void *p, size_t len)
{
	CHECK_EQ(volume_write(v, ino, off, p, len, true, false), 0);
}

static void text(struct volume *v, inum dir, const char *name, const char *s)
{
	put(v, make(v, dir, name, S_IFREG | 0644), 0, s, strlen(s));
}

static void sync_one(unsigned from, unsigned to, uint32_t *ret)
{
	uint32_t parts = 0;
	int e = world_exchange(&w, from, to, &parts);
	if (e)
		fprintf(stderr, "exchange: %s\n", strerror(-e));
	CHECK_EQ(e, 0);
	if (ret)
		*ret = parts;
}

static void same(const char *what)
{
	struct tree x, y;
	struct root p, q;

	CHECK_EQ(tree_look(A, &x), 0);
	CHECK_EQ(tree_look(B, &y), 0);
	const char *d = tree_differs(&x, &y, true);
	if (d)
		fprintf(stderr, "%s: %s\n", what, d);
	CHECK(!d);
	volume_live_root(A, &p);
	volume_live_root(B, &q);
	CHECK(root_eq(&p, &q));
	tree_free(&x);
	tree_free(&y);
}

static void both_ways(const char *what)
{
	uint32_t parts;

	sync_one(0, 1, NULL);
	sync_one(1, 0, NULL);
	sync_one(0, 1, NULL);
	same(what);
	sync_one(1, 0, &parts);
	CHECK_EQ(parts, 0);
	sync_one(0, 1, &parts);
	CHECK_EQ(parts, 0);
}

static bool has(struct volume *v, const char *path, const char *content)
{
	char buf[200] = {0};
	size_t n = 0;
	inum ino = at(v, path);

	return ino && !volume_read(v, ino, 0, buf, sizeof buf - 1, &n) && !strcmp(buf, content);
}

/* Finds the name in the root that starts with stem and holds that content. */
static bool has_copy(struct volume *v, const char *stem, const char *content)
{
	struct tree t;
	bool found = false;

	CHECK_EQ(tree_look(v, &t), 0);
	for (uint32_t i = 0; i < t.n; i++)
		found |= !strncmp(t.e[i].path, stem, strlen(stem)) && strstr(t.e[i].path, ".conflict-") && t.e[i].len == strlen(content) &&
			 !memcmp(t.e[i].data, content, t.e[i].len);
	tree_free(&t);
	return found;
}

static void plain(void)
{
	static uint8_t big[300000];
	inum d = make(A, 1, "dir", S_IFDIR | 0755), f;

	text(A, d, "small", "hello");
	make(A, d, "link", S_IFLNK | 0777);
	make(A, d, "fifo", S_IFIFO | 0600);
	f = make(A, d, "big", S_IFREG | 0600);
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (uint8_t)(i * 7 + i / 4096);
	put(A, f, 0, big, sizeof big);
	CHECK_EQ(volume_link(A, f, 1, "hard", 4, &(struct inode_attr){0}), 0);
	both_ways("fresh files");
	CHECK(has(B, "dir/small", "hello"));
	/* a change of a page sends little */
	uint64_t before = w.sent_bytes;
	put(A, f, 100000, "changed", 7);
	both_ways("a page changed");
	CHECK(w.sent_bytes - before < 20000);
	/* it grows, is cut, moves */
	put(A, f, sizeof big, "more", 4);
	both_ways("grown");
	CHECK_EQ(volume_setattr(A, f, &(struct set_attr){.mask = SET_SIZE, .size = 5000}, &root_caller, &(struct inode_attr){0}), 0);
	both_ways("cut");
	CHECK_EQ(volume_rename(A, d, "big", 3, 1, "moved", 5, 0), 0);
	CHECK_EQ(volume_setattr(A, f, &(struct set_attr){.mask = SET_MODE | SET_UID, .mode = 0640, .uid = 5}, &root_caller, &(struct inode_attr){0}), 0);
	both_ways("moved, attributes");
	CHECK_EQ(volume_setxattr(A, f, "user.x", "y", 1, 0, &root_caller), 0);
	put(B, at(B, "dir/small"), 0, "HELLO from B", 12);
	both_ways("the other way");
	CHECK(has(A, "dir/small", "HELLO from B"));
	CHECK_EQ(volume_unlink(A, 1, "hard", 4), 0);
	CHECK_EQ(volume_unlink(A, d, "fifo", 4), 0);
	both_ways("removed");
	CHECK_EQ(at(B, "hard"), 0);
	CHECK(at(B, "moved"));
}

static void contents_conflict(void)
{
	text(A, 1, "both.txt", "base");
	both_ways("base");
	put(A, at(A, "both.txt"), 0, "from A", 6);
	put(B, at(B, "both.txt"), 0, "from B!", 7);
	both_ways("two contents");
	CHECK((has(A, "both.txt", "from A") && has_copy(A, "both", "from B!")) || (has(A, "both.txt", "from B!") && has_copy(A, "both", "from A")));
}

static uint64_t counted(struct volume *v, enum stat_counter c) { return stats_count(volume_stats(v), c); }

static void statistics(void)
{
	uint64_t applies = stats_summary(volume_stats(B), STAGE_APPLY).count, batches = counted(B, COUNT_BATCHES_APPLIED);
	uint64_t conflicts[2] = {counted(A, COUNT_CONFLICTS), counted(B, COUNT_CONFLICTS)};

	text(A, 1, "counted", "base");
	sync_one(0, 1, NULL);
	CHECK_EQ(stats_summary(volume_stats(B), STAGE_APPLY).count, applies + 1);
	CHECK_EQ(counted(B, COUNT_BATCHES_APPLIED), batches + 1);
	CHECK_EQ(counted(B, COUNT_CONFLICTS), conflicts[1]);
	put(A, at(A, "counted"), 0, "from A", 6);
	put(B, at(B, "counted"), 0, "from B", 6);
	both_ways("counted");
	CHECK_EQ(counted(A, COUNT_CONFLICTS), conflicts[0] + 1);
	CHECK_EQ(counted(B, COUNT_CONFLICTS), conflicts[1] + 1);
}

static unsigned objects_n;
static int count_object(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path, (void)st, (void)ftw;
	objects_n += type == FTW_F;
	return 0;
}

static unsigned objects_of(unsigned replica)
{
	char path[300];

	snprintf(path, sizeof path, "%s/objects", w.r[replica].path);
	objects_n = 0;
	CHECK_EQ(nftw(path, count_object, 16, FTW_PHYS), 0);
	return objects_n;
}

/* What came for a batch that could not be applied leaves nothing in objects/. */
static void apply_fails(void)
{
	static uint8_t big[100000];
	uint32_t parts;

	both_ways("before");
	unsigned before = objects_of(1);
	memset(big, 'b', sizeof big);
	put(A, make(A, 1, "not_yet", S_IFREG | 0644), 0, big, sizeof big);
	atomic_store(&B->read_only, true);
	CHECK_EQ(world_exchange(&w, 0, 1, &parts), -EROFS);
	atomic_store(&B->read_only, false);
	CHECK_EQ(objects_of(1), before);
	both_ways("tried again");
	CHECK_EQ(objects_of(1), before + 1);
}

static void names_conflict(void)
{
	text(A, 1, "name.c", "made by A");
	text(B, 1, "name.c", "made by B");
	make(A, 1, "folder", S_IFDIR | 0755);
	make(B, 1, "folder", S_IFDIR | 0755);
	text(A, at(A, "folder"), "a", "a");
	text(B, at(B, "folder"), "b", "b");
	both_ways("one name twice");
	CHECK(has(A, "folder/a", "a") && has(A, "folder/b", "b"));
	/* removing the one that has the name leaves the other where it is shown */
	CHECK_EQ(volume_unlink(A, 1, "name.c", 6), 0);
	CHECK_EQ(at(A, "name.c"), 0);
	both_ways("the winner removed");
	CHECK_EQ(at(B, "name.c"), 0);
	CHECK(has_copy(B, "name", "made by A") || has_copy(B, "name", "made by B"));
	CHECK_EQ(volume_rename(B, 1, "folder", 6, 1, "other", 5, 0), 0);
	both_ways("directories shown as one, moved");
	CHECK(has(A, "other/a", "a") && has(A, "other/b", "b") && !at(A, "folder"));
	CHECK_EQ(volume_unlink(A, at(A, "other"), "a", 1), 0);
	CHECK_EQ(volume_unlink(A, at(A, "other"), "b", 1), 0);
	CHECK_EQ(volume_rmdir(A, 1, "other", 5), 0);
	CHECK_EQ(at(A, "other"), 0);
	both_ways("directories shown as one, removed");
	CHECK_EQ(at(B, "other"), 0);
}

/* The one name in the root that starts with stem and is a conflict's. */
static void conflict_of(struct volume *v, const char *stem, char ret[static 300])
{
	struct tree t;
	unsigned found = 0;

	CHECK_EQ(tree_look(v, &t), 0);
	for (uint32_t i = 0; i < t.n; i++)
		if (!strncmp(t.e[i].path, stem, strlen(stem)) && strstr(t.e[i].path, ".conflict-")) {
			snprintf(ret, 300, "%s", t.e[i].path);
			found++;
		}
	CHECK_EQ(found, 1);
	tree_free(&t);
}

/* What is shown with all digits, since somebody has the name with 8, stays so when that one goes. */
static void short_name_taken(const char *stem)
{
	char taken[300] = "";

	sync_one(0, 1, NULL);
	conflict_of(B, stem, taken);
	CHECK(!at(A, taken));
	text(A, 1, taken, "in the way");
	both_ways("the short name taken");
	CHECK(has(B, taken, "in the way"));
	CHECK_EQ(volume_unlink(A, 1, taken, strlen(taken)), 0);
	both_ways("the short name free again");
	CHECK(!at(A, taken) && !at(B, taken));
	conflict_of(A, stem, taken);
}

static void short_names(void)
{
	text(A, 1, "short1", "made by A");
	text(B, 1, "short1", "made by B");
	short_name_taken("short1");
	text(A, 1, "short2", "base");
	both_ways("base");
	put(A, at(A, "short2"), 0, "from A", 6);
	put(B, at(B, "short2"), 0, "from B", 6);
	short_name_taken("short2");
}

static void edit_beats_delete(void)
{
	make(A, 1, "gone", S_IFDIR | 0755);
	text(A, at(A, "gone"), "f", "one");
	both_ways("base");
	CHECK_EQ(volume_unlink(A, at(A, "gone"), "f", 1), 0);
	CHECK_EQ(volume_rmdir(A, 1, "gone", 4), 0);
	put(B, at(B, "gone/f"), 0, "two", 3);
	both_ways("edit against delete");
	CHECK(has(A, "gone/f", "two"));
	/* removed by someone who has seen it: gone */
	CHECK_EQ(volume_unlink(B, at(B, "gone"), "f", 1), 0);
	CHECK_EQ(volume_rmdir(B, 1, "gone", 4), 0);
	both_ways("removed again");
	CHECK_EQ(at(A, "gone"), 0);
}

static void rename_beats_delete(void)
{
	static uint8_t big[20000];
	inum f = make(A, 1, "wanted", S_IFREG | 0644);

	memset(big, 'w', sizeof big);
	put(A, f, 0, big, sizeof big);
	both_ways("base");
	CHECK_EQ(volume_unlink(A, 1, "wanted", 6), 0);
	CHECK_EQ(volume_rename(B, 1, "wanted", 6, 1, "kept", 4, 0), 0);
	both_ways("rename against delete");
	CHECK(at(A, "kept"));
}

static void cycle(void)
{
	make(A, 1, "x", S_IFDIR | 0755);
	make(A, 1, "y", S_IFDIR | 0755);
	text(A, at(A, "x"), "in_x", "x");
	text(A, at(A, "y"), "in_y", "y");
	both_ways("base");
	CHECK_EQ(volume_rename(A, 1, "x", 1, at(A, "y"), "x", 1, 0), 0);
	CHECK_EQ(volume_rename(B, 1, "y", 1, at(B, "x"), "y", 1, 0), 0);
	both_ways("cycle");
}

static bool reads(struct volume *v, inum ino, const char *content)
{
	char buf[200] = {0};
	size_t n = 0;

	return !volume_read(v, ino, 0, buf, sizeof buf - 1, &n) && !strcmp(buf, content);
}

/* What the kernel has open keeps its inode number and its content, where a peer's cannot be shown in place. */
static void open_elsewhere(void)
{
	const struct set_attr cut = {.mask = SET_SIZE};
	static uint8_t big[30000];
	inum b;

	text(A, 1, "opened", "a long content");
	both_ways("base");
	b = at(B, "opened");
	volume_ref(B, b);
	unsigned before = w.r[1].replaced;
	CHECK_EQ(volume_setattr(A, at(A, "opened"), &cut, &root_caller, &(struct inode_attr){0}), 0);
	put(A, at(A, "opened"), 0, "short", 5);
	both_ways("rewritten, shorter");
	CHECK_EQ(w.r[1].replaced, before + 1);
	CHECK(has(B, "opened", "short") && at(B, "opened") != b && reads(B, b, "a long content"));
	volume_forget(B, b, 1);
	CHECK_EQ(volume_commit(B), 0);
	CHECK_EQ(volume_getattr(B, b, &(struct inode_attr){0}), -ESTALE);
	/* an object, too */
	memset(big, 'x', sizeof big);
	put(A, at(A, "opened"), 0, big, sizeof big);
	both_ways("long again");
	b = at(B, "opened");
	volume_ref(B, b);
	CHECK_EQ(volume_setattr(A, at(A, "opened"), &(struct set_attr){.mask = SET_SIZE, .size = 9000}, &root_caller, &(struct inode_attr){0}), 0);
	both_ways("cut");
	CHECK(at(B, "opened") != b);
	struct inode_attr a = {0};
	CHECK(!volume_getattr(B, b, &a) && a.size == sizeof big);
	uint8_t last[10];
	size_t n = 0;
	CHECK(!volume_read(B, b, sizeof big - 10, last, 10, &n) && n == 10 && last[9] == 'x');
	volume_forget(B, b, 1);
	both_ways("forgotten");
	/* written on both sides while it is open: the handle goes on with what became the copy */
	b = at(B, "opened");
	inum c = at(A, "opened");
	volume_ref(B, b);
	volume_ref(A, c);
	put(A, c, 0, "edit of A", 9);
	put(B, b, 0, "edit of B", 9);
	both_ways("both written");
	char begins[2][10] = {{0}};
	CHECK(!volume_read(A, c, 0, begins[0], 9, &n) && !volume_read(B, b, 0, begins[1], 9, &n));
	CHECK(!strcmp(begins[0], "edit of A") && !strcmp(begins[1], "edit of B"));
	put(A, c, 0, "EDIT of A", 9);
	put(B, b, 0, "EDIT of B", 9);
	both_ways("written further");
	CHECK(!volume_read(A, c, 0, begins[0], 9, &n) && !volume_read(B, b, 0, begins[1], 9, &n));
	CHECK(!strcmp(begins[0], "EDIT of A") && !strcmp(begins[1], "EDIT of B"));
	volume_forget(B, b, 1);
	volume_forget(A, c, 1);
	both_ways("closed");
}

static void kill_and_reopen(void)
{
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(volume_commit(w.r[i].v), 0);
		volume_abandon(w.r[i].v);
		world_open(&w, i);
	}
	A = w.r[0].v;
	B = w.r[1].v;
	same("after a kill");
}

static void rewrite(struct volume *v, const char *path, const char *content)
{
	CHECK_EQ(volume_setattr(v, at(v, path), &(struct set_attr){.mask = SET_SIZE}, &root_caller, &(struct inode_attr){0}), 0);
	put(v, at(v, path), 0, content, strlen(content));
}

/* A write through a handle from before a peer's version came has not seen it: both are kept. */
static void superseded_handle(void)
{
	static uint8_t big[300000], got[sizeof big];
	struct inode_attr a = {0};
	char value[4];
	size_t n = 0;

	text(A, 1, "kept.txt", "what both had at first");
	both_ways("base");
	inum b = at(B, "kept.txt");
	volume_ref(B, b);
	rewrite(A, "kept.txt", "peer's");
	both_ways("superseded");
	/* attributes are the file's, whoever sets them */
	CHECK_EQ(volume_setattr(B, b, &(struct set_attr){.mask = SET_MODE, .mode = 0604}, &root_caller, &a), 0);
	CHECK_EQ(volume_setxattr(B, b, "user.h", "v", 1, 0, &root_caller), 0);
	CHECK(!volume_getattr(B, at(B, "kept.txt"), &a) && (a.mode & 07777) == 0604);
	CHECK(!volume_getxattr(B, at(B, "kept.txt"), "user.h", value, sizeof value, &n) && n == 1);
	both_ways("attributes through the handle");
	CHECK(!volume_getattr(A, at(A, "kept.txt"), &a) && (a.mode & 07777) == 0604);
	put(B, b, 5, "BOTH", 4);
	CHECK(reads(B, b, "what BOTH had at first"));
	put(B, b, 5, "Both", 4);
	both_ways("written through the handle");
	CHECK(has(A, "kept.txt", "peer's") && has_copy(A, "kept", "what Both had at first") && has_copy(B, "kept", "what Both had at first"));
	CHECK(!volume_getattr(B, b, &a) && a.nlink == 1 && (a.mode & 07777) == 0604);
	volume_forget(B, b, 1);
	kill_and_reopen();
	CHECK(has_copy(A, "kept", "what Both had at first") && has_copy(B, "kept", "what Both had at first"));

	/* an object with a hole that nobody had read; the file is superseded twice before it is written to, and cut */
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = (uint8_t)(i * 3 + i / 4096);
	make(A, 1, "big", S_IFREG | 0600);
	put(A, at(A, "big"), 1 << 20, big, sizeof big);
	both_ways("an object");
	kill_and_reopen();
	b = at(B, "big");
	volume_ref(B, b);
	rewrite(A, "big", "second");
	both_ways("superseded");
	inum second = at(B, "big");
	volume_ref(B, second);
	rewrite(A, "big", "3rd");
	both_ways("superseded again");
	CHECK_EQ(volume_commit(B), 0);
	CHECK(b != second && second != at(B, "big") && reads(B, second, "second"));
	CHECK(!volume_read(B, b, 1 << 20, got, sizeof got, &n) && n == sizeof got && !memcmp(got, big, sizeof big));
	CHECK_EQ(volume_setattr(B, b, &(struct set_attr){.mask = SET_SIZE, .size = (1 << 20) + 5000}, &root_caller, &a), 0);
	both_ways("cut through the handle");
	CHECK(!volume_getattr(B, b, &a) && a.size == (1 << 20) + 5000 && a.blocks == 16 && a.nlink == 1);
	CHECK(!volume_read(B, b, 1 << 20, got, sizeof got, &n) && n == 5000 && !memcmp(got, big, 5000));
	/* without a name any more: as unlinked while it is open */
	CHECK_EQ(volume_unlink(A, 1, "big", 3), 0);
	both_ways("unlinked");
	put(B, second, 0, "SECOND", 6);
	CHECK(reads(B, second, "SECOND") && !has_copy(B, "big", "SECOND"));
	CHECK(!volume_getattr(B, second, &a) && a.nlink == 0);
	volume_forget(B, b, 1);
	volume_forget(B, second, 1);
	both_ways("closed");
	kill_and_reopen();
}

static void incoming_file(const char *name, bool old)
{
	char path[400];
	const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 8 * 86400}};

	snprintf(path, sizeof path, "%s/incoming/%s", w.r[1].path, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(old ? futimens(fd, t) : 0, 0);
	close(fd);
}

static bool incoming_has(const char *name)
{
	char path[400];

	snprintf(path, sizeof path, "%s/incoming/%s", w.r[1].path, name);
	return access(path, F_OK) == 0;
}

/* An open removes what arrived of contents that nobody will send any more. */
static void leftovers(void)
{
	static const char node[] = "00112233445566778899aabbccddeeff";
	char known[100], wanted[100], old[100];

	snprintf(known, sizeof known, "%s-%016llx-1", node, (unsigned long long)w.r[0].id);
	snprintf(wanted, sizeof wanted, "%s-%016llx-4000000000", node, (unsigned long long)w.r[0].id);
	snprintf(old, sizeof old, "%s-%016llx-4000000001", node, (unsigned long long)w.r[0].id);
	incoming_file(known, false);
	incoming_file(wanted, false);
	incoming_file(old, true);
	incoming_file("foreign-name", false);
	kill_and_reopen();
	CHECK(!incoming_has(known) && !incoming_has(old));
	CHECK(incoming_has(wanted) && incoming_has("foreign-name"));
}

int main(void)
{
	world_make(&w, 2, 1);
	A = w.r[0].v;
	B = w.r[1].v;
	both_ways("empty");
	plain();
	contents_conflict();
	statistics();
	apply_fails();
	names_conflict();
	short_names();
	edit_beats_delete();
	rename_beats_delete();
	cycle();
	open_elsewhere();
	superseded_handle();
	kill_and_reopen();
	leftovers();
	world_remove(&w);
	return check_result();
}
