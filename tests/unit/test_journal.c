/* The journal layer: rows come back as they went in, a rolled-back transaction leaves nothing, what was committed is there after a kill, and damage is
 * -EUCLEAN, never a wrong row. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "journal.h"

static char dir[200];

static struct blob blob(const char *s) { return (struct blob){s, strlen(s)}; }

static struct id id_of(uint8_t n)
{
	struct id id = {{n, 1}};
	return id;
}

static struct node_row node(uint64_t row)
{
	return (struct node_row){.row = row, .id = id_of((uint8_t)row), .type = S_IFREG, .nlink = 1, .links = 1, .local = row * 10,
		.attrs = blob("attrs"), .times = blob("times")};
}

static struct link_row link_of(uint64_t row, uint64_t parent)
{
	struct link_row l = {.row = row, .id = id_of((uint8_t)(100 + row)), .node = row, .parent = parent, .live = true, .place = blob("place")};
	memset(l.tag, (int)row, sizeof l.tag);
	return l;
}

static int count(void *ctx, const struct link_row *l)
{
	uint64_t *last = ctx;
	CHECK(l->row > *last);
	*last = l->row;
	return 0;
}

static int stop(void *ctx, const struct link_row *l)
{
	++*(int *)ctx;
	return 1;
}

static void test_rows(struct journal *j)
{
	struct node_row r;
	struct link_row l;
	uint64_t row, last = 0;
	int n = 0;

	CHECK_EQ(journal_begin(j), 0);
	for (uint64_t i = 1; i <= 5; i++) {
		struct node_row in = node(i);
		struct link_row k = link_of(i, 1);
		CHECK_EQ(journal_node_insert(j, &in), 0);
		CHECK_EQ(journal_link_insert(j, &k), 0);
	}
	CHECK_EQ(journal_commit(j), 0);
	CHECK_EQ(journal_node_get(j, 3, &r), 0);
	CHECK(r.local == 30 && r.attrs.len == 5 && !memcmp(r.attrs.p, "attrs", 5) && !r.content.p);
	struct id id = id_of(4);
	CHECK_EQ(journal_node_by_id(j, &id, &row), 0);
	CHECK_EQ(row, 4);
	CHECK_EQ(journal_node_by_local(j, 50, &row), 0);
	CHECK_EQ(row, 5);
	CHECK_EQ(journal_node_by_local(j, 51, &row), -ENOENT);
	struct node_row change = {.row = 3, .type = S_IFREG, .local = 31, .orphan = true, .content = blob("")};
	CHECK_EQ(journal_node_update(j, &change), 0);
	CHECK_EQ(journal_node_get(j, 3, &r), 0);
	CHECK(r.local == 31 && r.times.len == 5 && r.content.p && r.content.len == 0); /* what was NULL stays; empty is not NULL */
	uint32_t found;
	CHECK_EQ(journal_orphans(j, 0, &row, 1, &found), 0);
	CHECK(found == 1 && row == 3);

	CHECK_EQ(journal_links_of_parent(j, 1, 2, count, &last), 0);
	CHECK_EQ(last, 5);
	CHECK_EQ(journal_links_of_parent(j, 1, 0, stop, &n), 0);
	CHECK_EQ(n, 1);
	l = link_of(2, 1);
	l.live = false;
	l.place = (struct blob){0};
	CHECK_EQ(journal_link_update(j, &l), 0);
	CHECK_EQ(journal_links_by_tag(j, l.tag, stop, &n), 0);
	CHECK_EQ(n, 1); /* dead ones are not looked up */
	n = 0;
	CHECK_EQ(journal_dead_links_of_parent(j, 1, stop, &n), 0);
	CHECK_EQ(n, 1);
	CHECK_EQ(journal_link_get(j, 2, &l), 0);
	CHECK(l.place.len == 5 && !l.live);
}

static int sum(void *ctx, const struct dot_row *d)
{
	*(uint64_t *)ctx += d->dot.counter;
	return 0;
}

static void test_dots(struct journal *j)
{
	uint64_t total = 0, replica;
	struct dot_row d;

	CHECK_EQ(journal_begin(j), 0);
	for (uint64_t i = 1; i <= 9; i++) {
		const struct dot_row row = {.dot = {i % 2 ? 5 : 7, i}, .kind = 1, .owner = i, .seq = 100 + i};
		CHECK_EQ(journal_dot_put(j, &row), 0);
	}
	CHECK_EQ(journal_commit(j), 0);
	CHECK_EQ(journal_dots(j, 5, 3, UINT64_MAX, sum, &total), 0);
	CHECK_EQ(total, 5 + 7 + 9);
	total = 0;
	CHECK_EQ(journal_dots(j, 7, 0, 4, sum, &total), 0);
	CHECK_EQ(total, 2 + 4);
	total = 0;
	CHECK_EQ(journal_dots_by_seq(j, 107, sum, &total), 0);
	CHECK_EQ(total, 8 + 9);
	CHECK_EQ(journal_dot_get(j, (struct dot){7, 8}, &d), 0);
	CHECK_EQ(d.owner, 8);
	CHECK_EQ(journal_dot_delete(j, (struct dot){7, 8}), 0);
	CHECK_EQ(journal_dot_get(j, (struct dot){7, 8}, &d), -ENOENT);
	CHECK_EQ(journal_next_replica(j, 0, true, &replica), 0);
	CHECK_EQ(replica, 5);
	CHECK_EQ(journal_next_replica(j, 5, false, &replica), 0);
	CHECK_EQ(replica, 7);
	CHECK_EQ(journal_next_replica(j, 7, false, &replica), -ENOENT);
}

static struct journal *test_transactions(struct journal *j)
{
	struct node_row n = node(50), r;

	CHECK_EQ(journal_begin(j), 0);
	CHECK(journal_in_txn(j));
	CHECK_EQ(journal_node_insert(j, &n), 0);
	journal_rollback(j);
	CHECK(!journal_in_txn(j));
	CHECK_EQ(journal_node_get(j, 50, &r), -ENOENT);
	CHECK_EQ(journal_begin(j), 0);
	CHECK_EQ(journal_node_insert(j, &n), 0);
	CHECK_EQ(journal_commit(j), 0);
	CHECK_EQ(journal_flush(j), 0);
	CHECK(journal_wal_bytes(j) > 0);
	n = node(51);
	CHECK_EQ(journal_begin(j), 0);
	CHECK_EQ(journal_node_insert(j, &n), 0);
	journal_abandon(j); /* a kill in the middle of a transaction */
	CHECK_EQ(journal_open(dir, false, false, &j), 0);
	CHECK_EQ(journal_node_get(j, 50, &r), 0);
	CHECK_EQ(journal_node_get(j, 51, &r), -ENOENT);
	CHECK_EQ(journal_checkpoint(j), 0);
	CHECK_EQ(journal_wal_bytes(j), 0);
	CHECK_EQ(journal_node_get(j, 50, &r), 0);
	return j;
}

/* Bytes of the file are overwritten, a few at a time: every answer is a row as it was, -ENOENT or -EUCLEAN; the journal itself does not authenticate
 * (records do), so a changed row may come back, but nothing crashes. */
static void test_damage(void)
{
	char path[230];
	struct journal *j;
	struct stat st;

	snprintf(path, sizeof path, "%s/journal.db", dir);
	REQUIRE(!stat(path, &st));
	for (off_t at = 0; at < st.st_size; at += 4096) {
		int fd = open(path, O_RDWR);
		REQUIRE(fd >= 0 && pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, at) == 8);
		close(fd);
		int e = journal_open(dir, false, true, &j);
		if (e) {
			CHECK(e == -EUCLEAN || e == -ENOENT);
			continue;
		}
		for (uint64_t row = 1; row <= 6; row++) {
			struct node_row r;
			struct link_row l;
			uint64_t last = 0;
			e = journal_node_get(j, row, &r);
			CHECK(!e || e == -ENOENT || e == -EUCLEAN);
			e = journal_link_get(j, row, &l);
			CHECK(!e || e == -ENOENT || e == -EUCLEAN);
			e = journal_links_of_parent(j, 1, 0, count, &last);
			CHECK(!e || e == -EUCLEAN);
		}
		journal_abandon(j);
	}
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");
	struct journal *j;
	char cmd[220];

	snprintf(dir, sizeof dir, "%s/twofold-journal-XXXXXX", tmp ? tmp : "/tmp");
	REQUIRE(mkdtemp(dir));
	CHECK_EQ(journal_open(dir, false, false, &j), -ENOENT);
	REQUIRE(!journal_open(dir, true, false, &j));
	test_rows(j);
	test_dots(j);
	j = test_transactions(j);
	journal_close(j);
	test_damage();
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
	return system(cmd) || check_result();
}
