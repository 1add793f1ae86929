/* The shown tree by hand: one case a rule of design-replication 3. Random histories are in tests/model. */
#include <sys/stat.h>

#include "check.h"
#include "merge.h"
#include "shown.h"

#define MOST 64

static struct shown_link link_[MOST];
static struct shown_result result[MOST];
static uint32_t n;

static struct id id_of(uint8_t x)
{
	struct id id = {{0}};
	id.b[0] = x;
	id.b[15] = 1;
	return id;
}

static const struct id root = ROOT_ID;

/* Link x with node x + 100 in `parent` (0: the root). Returns it for what is unusual. */
static struct shown_link *add(uint8_t x, bool dir, uint8_t parent, const char *name, uint64_t clock_s)
{
	struct shown_link *l = &link_[n++];

	*l = (struct shown_link){.id = id_of(x), .node = id_of((uint8_t)(x + 100)), .own = true, .complete = true};
	l->parent = parent ? id_of((uint8_t)(parent + 100)) : root;
	l->parent_before = l->parent;
	l->type = dir ? S_IFDIR : S_IFREG;
	l->stamp = (struct stamp){clock_s * UINT64_C(1000000000), {1, x}};
	l->name_len = (uint16_t)strlen(name);
	strcpy(l->name, name);
	strcpy(l->replica_name, "rep");
	return l;
}

static void kill(struct shown_link *l, uint64_t clock_s)
{
	l->covered = true;
	l->deleted = (struct stamp){clock_s * UINT64_C(1000000000), {2, l->id.b[0]}};
}

static void start(void) { n = 0; }

static const struct shown_result *at(uint8_t x)
{
	struct id id = id_of(x);
	for (uint32_t i = 0; i < n; i++)
		if (id_eq(&link_[i].id, &id))
			return &result[i];
	REQUIRE(!"no such link");
	return NULL;
}

/* Computes, then again in the other order, which must give the same. */
static void compute(void)
{
	struct shown_link back[MOST];
	struct shown_result r[MOST];

	REQUIRE(!shown_compute(link_, n, result));
	for (uint32_t i = 0; i < n; i++)
		back[i] = link_[n - 1 - i];
	REQUIRE(!shown_compute(back, n, r));
	for (uint32_t i = 0; i < n; i++) {
		const struct shown_result *a = &result[i], *b = &r[n - 1 - i];
		CHECK(a->state == b->state && a->dead == b->dead && id_eq(&a->parent, &b->parent) && !strcmp(a->name, b->name) &&
		      id_eq(&a->group_lead, &b->group_lead));
	}
}

static void check_at(int line, uint8_t x, enum shown_state state, uint8_t parent, const char *name)
{
	const struct shown_result *r = at(x);
	struct id p = parent ? id_of((uint8_t)(parent + 100)) : root;

	if (r->state != state || (state != SHOWN_NOT && (!id_eq(&r->parent, &p) || strcmp(r->name, name)))) {
		fprintf(stderr, "line %d: link %d: state %d, name %s\n", line, x, (int)r->state, r->name);
		check_failures_++;
	}
	CHECK_EQ(r->name_len, strlen(r->name));
}
#define AT(...) check_at(__LINE__, __VA_ARGS__)

static const char *conflict(uint8_t x, const char *name, uint64_t clock_s, unsigned digits)
{
	static char buf[NAME_LEN_MAX + 1];
	struct id id = id_of(x);
	conflict_name(name, strlen(name), clock_s * UINT64_C(1000000000), "rep", &id, digits, buf);
	return buf;
}

static void test_plain(void)
{
	start();
	REQUIRE(!shown_compute(NULL, 0, NULL));
	add(1, true, 0, "d", 10);
	add(2, false, 1, "f", 11);
	kill(add(3, false, 1, "gone", 12), 13);
	add(4, false, 9, "parent is not here", 14);
	add(5, false, 0, "no content", 15)->complete = false;
	compute();
	AT(1, SHOWN_AS_RECORDED, 0, "d");
	AT(2, SHOWN_AS_RECORDED, 1, "f");
	AT(3, SHOWN_NOT, 0, "");
	AT(4, SHOWN_NOT, 0, "");
	AT(5, SHOWN_NOT, 0, "");
}

/* (a) a file made in a directory that was deleted elsewhere brings it back, with all that is above it, and nothing else */
static void test_brought_back(void)
{
	start();
	kill(add(1, true, 0, "a", 10), 20);
	kill(add(2, true, 1, "b", 11), 20);
	kill(add(3, true, 1, "c", 11), 20);
	kill(add(4, false, 2, "old", 12), 20);
	add(5, false, 2, "new", 19);
	compute();
	AT(1, SHOWN_EXCEPTION, 0, "a");
	AT(2, SHOWN_EXCEPTION, 1, "b");
	AT(3, SHOWN_NOT, 0, "");
	AT(4, SHOWN_NOT, 0, "");
	AT(5, SHOWN_AS_RECORDED, 2, "new");
	CHECK(at(1)->dead && at(2)->dead && !at(5)->dead);
}

/* An edit that no deletion saw: of all links of the file the one deleted last is shown again. */
static void test_unseen(void)
{
	start();
	for (uint8_t x = 1; x <= 3; x++) {
		struct shown_link *l = add(x, false, 0, x == 1 ? "one" : x == 2 ? "two" : "three", 10);
		l->node = id_of(200);
		l->content_unseen = true;
		kill(l, x == 2 ? 30 : 20);
	}
	compute();
	AT(1, SHOWN_NOT, 0, "");
	AT(2, SHOWN_EXCEPTION, 0, "two");
	AT(3, SHOWN_NOT, 0, "");
	/* one that lives is enough: then nothing comes back */
	link_[0].covered = false;
	compute();
	AT(1, SHOWN_AS_RECORDED, 0, "one");
	AT(2, SHOWN_NOT, 0, "");
	/* and seen contents stay deleted */
	link_[0].covered = true;
	for (int i = 0; i < 3; i++)
		link_[i].content_unseen = false;
	compute();
	AT(2, SHOWN_NOT, 0, "");
}

/* (b) */
static void test_cycles(void)
{
	/* a -> b (older), b -> a (newer): b gives way, to the parent it had before */
	start();
	add(1, true, 2, "a", 10)->parent_before = root;
	add(2, true, 1, "b", 11)->parent_before = id_of(103);
	add(3, true, 0, "c", 9);
	add(4, false, 1, "f", 12);
	compute();
	AT(2, SHOWN_EXCEPTION, 3, "b");
	AT(1, SHOWN_AS_RECORDED, 2, "a");
	AT(4, SHOWN_AS_RECORDED, 1, "f");
	/* that parent is not shown: the root */
	kill(&link_[2], 20);
	compute();
	AT(2, SHOWN_EXCEPTION, 0, "b");
	AT(3, SHOWN_NOT, 0, "");
	/* the parent before leads into a cycle again: the next newest gives way, then the same one to the root */
	start();
	add(1, true, 2, "a", 10)->parent_before = root;
	add(2, true, 1, "b", 11)->parent_before = id_of(101); /* as now: of no use */
	add(3, true, 0, "c", 9);
	compute();
	AT(2, SHOWN_EXCEPTION, 0, "b");
	AT(1, SHOWN_AS_RECORDED, 2, "a");
	start();
	add(1, true, 2, "a", 10)->parent_before = root;
	add(2, true, 1, "b", 12)->parent_before = id_of(103);
	add(3, true, 1, "c", 11)->parent_before = root; /* c lies in a: b before c would be a cycle once more */
	compute();
	AT(2, SHOWN_EXCEPTION, 0, "b");
	AT(1, SHOWN_AS_RECORDED, 2, "a");
	AT(3, SHOWN_AS_RECORDED, 1, "c");
	/* two cycles, and a tail that ends in one of them */
	start();
	add(1, true, 2, "a", 10);
	add(2, true, 1, "b", 11);
	add(3, true, 4, "c", 13);
	add(4, true, 3, "d", 12);
	add(5, true, 4, "e", 5);
	add(6, false, 5, "f", 6);
	compute();
	AT(2, SHOWN_EXCEPTION, 0, "b");
	AT(3, SHOWN_EXCEPTION, 0, "c");
	AT(4, SHOWN_AS_RECORDED, 3, "d");
	AT(6, SHOWN_AS_RECORDED, 5, "f");
	/* a cycle of the dead, kept up by one file: only what is above it where it is shown */
	start();
	kill(add(1, true, 2, "a", 10), 20);
	kill(add(2, true, 1, "b", 11), 20);
	add(3, false, 2, "f", 12);
	compute();
	AT(2, SHOWN_EXCEPTION, 0, "b");
	AT(1, SHOWN_NOT, 0, "");
	AT(3, SHOWN_AS_RECORDED, 2, "f");
}

/* (c) */
static void test_as_one(void)
{
	start();
	add(1, true, 0, "d", 20);
	add(2, true, 0, "d", 10);
	add(3, true, 0, "d", 30);
	add(4, true, 0, "other", 5);
	add(5, false, 1, "f", 40);
	add(6, false, 2, "f", 41);
	add(7, true, 1, "s", 42);
	add(8, true, 3, "s", 43);
	add(9, false, 8, "deep", 44);
	add(10, false, 3, "g", 45);
	compute();
	struct id lead = id_of(102), sub = id_of(107);
	for (uint8_t x = 1; x <= 3; x++) {
		AT(x, SHOWN_AS_RECORDED, 0, "d");
		CHECK(id_eq(&at(x)->group_lead, &lead));
	}
	CHECK(id_is_zero(&at(4)->group_lead) && id_eq(&at(7)->group_lead, &sub) && id_eq(&at(8)->group_lead, &sub));
	AT(6, SHOWN_AS_RECORDED, 2, "f");
	AT(5, SHOWN_EXCEPTION, 1, conflict(5, "f", 40, 8));
	AT(9, SHOWN_AS_RECORDED, 8, "deep");
	AT(10, SHOWN_AS_RECORDED, 3, "g");
}

/* (d) */
static void test_names(void)
{
	start();
	add(1, false, 0, "f.txt", 10);
	add(2, false, 0, "f.txt", 30);
	add(3, false, 0, "f.txt", 20);
	add(4, false, 0, "g", 50);
	add(5, true, 0, "g", 40);
	add(6, false, 0, "f.txt2", 5);
	link_[2].replica_name[0] = 0;
	compute();
	AT(2, SHOWN_AS_RECORDED, 0, "f.txt");
	AT(1, SHOWN_EXCEPTION, 0, conflict(1, "f.txt", 10, 8));
	AT(5, SHOWN_AS_RECORDED, 0, "g");
	AT(4, SHOWN_EXCEPTION, 0, conflict(4, "g", 50, 8));
	AT(6, SHOWN_AS_RECORDED, 0, "f.txt2");
	/* a replica whose member part is not here goes by its number */
	CHECK(strstr(at(3)->name, "-0000000000000001-03000000.txt"));
}

/* Taken names: by a recorded one, by a loser with a smaller id, and even with all digits. */
static void test_taken(void)
{
	char with_8[NAME_LEN_MAX + 1], with_32[NAME_LEN_MAX + 1];

	start();
	strcpy(with_8, conflict(1, "f", 10, 8));
	strcpy(with_32, conflict(1, "f", 10, 32));
	add(1, false, 0, "f", 10);
	add(2, false, 0, "f", 20);
	add(3, false, 0, with_8, 5);
	compute();
	AT(1, SHOWN_EXCEPTION, 0, with_32);
	AT(3, SHOWN_AS_RECORDED, 0, with_8);
	add(4, false, 0, with_32, 6);
	compute();
	AT(1, SHOWN_EXCEPTION, 0, conflict(1, "f", 11, 32));
	AT(4, SHOWN_AS_RECORDED, 0, with_32);

	/* the first 8 digits are the same: the smaller id gets the short name */
	start();
	add(1, false, 0, "f", 10);
	add(2, false, 0, "f", 10)->id = id_of(1);
	link_[1].id.b[14] = 1;
	link_[1].stamp.dot.counter = 9;
	add(3, false, 0, "f", 20);
	compute();
	AT(1, SHOWN_EXCEPTION, 0, with_8);
	CHECK(strlen(result[1].name) == strlen(with_32) && result[1].state == SHOWN_EXCEPTION);
}

static struct shown_link *add_copy(uint8_t x, struct id of, uint64_t clock_s)
{
	struct shown_link *l = add(x, false, 0, "", clock_s);
	l->own = false;
	l->parent = l->parent_before = (struct id){{0}};
	l->type = 0;
	l->of = of;
	return l;
}

/* Untouched copies are beside their file: its live link with the smallest id, else the one deleted last. */
static void test_copies(void)
{
	start();
	add(1, true, 0, "d", 5);
	add(4, false, 1, "f.c", 10);
	add(3, false, 0, "g", 11)->node = id_of(104);
	add_copy(9, id_of(104), 20);
	compute();
	AT(9, SHOWN_EXCEPTION, 0, conflict(9, "g", 20, 8));
	kill(&link_[2], 30);
	compute();
	AT(9, SHOWN_EXCEPTION, 1, conflict(9, "f.c", 20, 8));
	/* the file is dead, its directory too: the copy lives and brings the directory back */
	kill(&link_[1], 40);
	kill(&link_[0], 41);
	compute();
	AT(9, SHOWN_EXCEPTION, 1, conflict(9, "f.c", 20, 8));
	AT(1, SHOWN_EXCEPTION, 0, "d");
	AT(4, SHOWN_NOT, 0, "");
	/* deleted itself */
	kill(&link_[3], 50);
	compute();
	AT(9, SHOWN_NOT, 0, "");
	AT(1, SHOWN_NOT, 0, "");
	/* a copy of a copy; and one whose file is not here */
	start();
	add(4, false, 0, "f.c", 10);
	add_copy(9, id_of(104), 20);
	add_copy(8, id_of(109), 21);
	add_copy(7, id_of(50), 22);
	compute();
	AT(9, SHOWN_EXCEPTION, 0, conflict(9, "f.c", 20, 8));
	AT(8, SHOWN_EXCEPTION, 0, conflict(8, "f.c", 21, 8));
	AT(7, SHOWN_NOT, 0, "");
	/* copies of each other cannot come from an honest author; they end all the same */
	start();
	add_copy(8, id_of(109), 21);
	add_copy(9, id_of(108), 21);
	compute();
	AT(8, SHOWN_NOT, 0, "");
}

/* What only a broken author writes has one meaning everywhere. */
static void test_odd(void)
{
	start();
	add(1, true, 0, "d", 10);
	add(2, true, 0, "e", 11)->node = id_of(101); /* a second link of a directory */
	add(3, false, 0, "f", 12)->node = id_of(101); /* which is also a file */
	add(4, false, 3, "below a file", 13)->parent = id_of(150);
	add(50, false, 0, "file", 14);
	add(6, true, 6, "in itself", 15);
	add(7, true, 0, "not complete", 16)->complete = false;
	add(8, false, 7, "below it", 17);
	compute();
	AT(1, SHOWN_AS_RECORDED, 0, "d");
	AT(2, SHOWN_NOT, 0, "");
	AT(3, SHOWN_NOT, 0, "");
	AT(4, SHOWN_NOT, 0, "");
	AT(6, SHOWN_EXCEPTION, 0, "in itself");
	AT(7, SHOWN_NOT, 0, "");
	AT(8, SHOWN_NOT, 0, "");
}

/* ---- closing reads what it needs and not the volume ---- */

static unsigned asked;

static int src_link(void *ctx, const struct id *id, struct shown_set *set) { return 0; }
static int src_node(void *ctx, const struct id *node, struct shown_set *set)
{
	int e = 0;
	asked++;
	for (uint32_t i = 0; i < n && !e; i++)
		if (id_eq(&link_[i].node, node) || (!link_[i].own && id_eq(&link_[i].of, node)))
			e = shown_set_add(set, &link_[i]);
	return e;
}
static int src_children(void *ctx, const struct id *parent, struct shown_set *set)
{
	int e = 0;
	asked++;
	for (uint32_t i = 0; i < n && !e; i++)
		if (link_[i].own && id_eq(&link_[i].parent, parent))
			e = shown_set_add(set, &link_[i]);
	return e;
}
static int src_named(void *ctx, const struct id *parent, const void *name, size_t len, struct shown_set *set)
{
	int e = 0;
	asked++;
	for (uint32_t i = 0; i < n && !e; i++)
		if (link_[i].own && id_eq(&link_[i].parent, parent) && link_[i].name_len == len && !memcmp(link_[i].name, name, len))
			e = shown_set_add(set, &link_[i]);
	return e;
}
static const struct shown_source source = {src_link, src_node, src_children, src_named, NULL};

/* Closes from link number `seed`; its result must be that of computing all. Returns how many links were read. */
static uint32_t close_from(uint32_t seed)
{
	struct shown_set *set = shown_set_new();
	struct shown_result *r;
	uint32_t got;

	REQUIRE(set && !shown_set_add(set, &link_[seed]) && !shown_set_add(set, &link_[seed]));
	asked = 0;
	REQUIRE(!shown_close_and_compute(set, &source, &r));
	const struct shown_link *l = shown_set_links(set, &got);
	for (uint32_t k = 0; k < got; k++)
		for (uint32_t i = 0; i < n; i++)
			if (id_eq(&l[k].id, &link_[i].id))
				CHECK(r[k].state == result[i].state && id_eq(&r[k].parent, &result[i].parent) &&
				      !strcmp(r[k].name, result[i].name) && id_eq(&r[k].group_lead, &result[i].group_lead));
	free(r);
	shown_set_free(set);
	return got;
}

static void test_closing(void)
{
	start();
	add(1, true, 0, "a", 10);
	add(2, true, 1, "b", 11);
	for (uint8_t x = 3; x < 33; x++) {
		char name[] = "f@";
		name[1] = (char)('@' + x);
		add(x, false, x % 2 ? 1 : 2, name, x + 20u);
	}
	compute();
	CHECK_EQ(close_from(2), 2);  /* f in a: itself and a */
	CHECK_EQ(close_from(3), 3);  /* f in b: itself, b, a */
	CHECK(asked < 10);
	/* a second file of that name, and a copy of it */
	add(40, false, 2, "fD", 90);
	add_copy(41, id_of(140), 80);
	compute();
	CHECK_EQ(close_from(3), 5);
	CHECK_EQ(close_from(n - 1), 5);
	AT(4, SHOWN_EXCEPTION, 2, conflict(4, "fD", 24, 8));
	/* b is deleted: all that is in it is looked at */
	kill(&link_[1], 100);
	compute();
	CHECK_EQ(close_from(1), 19);
	/* a cycle through the parent before: the way there is read */
	start();
	add(1, true, 2, "a", 10)->parent_before = root;
	add(2, true, 1, "b", 11)->parent_before = id_of(103);
	add(3, true, 4, "c", 9);
	add(4, true, 0, "d", 8);
	add(5, true, 3, "b", 7);
	add(6, false, 5, "in the other b", 7);
	add(7, false, 4, "not concerned", 7);
	compute();
	struct id lead = id_of(105);
	CHECK(id_eq(&at(2)->group_lead, &lead));
	CHECK_EQ(close_from(0), 6);
}

int main(void)
{
	test_plain();
	test_brought_back();
	test_unseen();
	test_cycles();
	test_as_one();
	test_names();
	test_taken();
	test_copies();
	test_odd();
	test_closing();
	return check_result();
}
