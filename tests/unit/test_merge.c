/* Merge rules by hand, conflict names, ids of copies. Random histories are in tests/model. */
#include <errno.h>

#include "check.h"
#include "merge.h"

struct made {
	struct vector vector;
	struct dots apart;
	struct version v;
};

static void make(struct made *m, uint64_t clock, uint64_t replica, uint64_t counter)
{
	*m = (struct made){0};
	m->v = (struct version){.stamp = {clock, {replica, counter}}, .vector = &m->vector, .apart = &m->apart};
}

static void saw(struct made *m, uint64_t replica, uint64_t counter) { REQUIRE(!vector_add(&m->vector, (struct dot){replica, counter})); }

static void fini(struct made *m)
{
	vector_fini(&m->vector);
	dots_fini(&m->apart);
}

static void test_supersedes(void)
{
	struct made a;

	make(&a, 10, 1, 4);
	saw(&a, 1, 3);
	saw(&a, 2, 7);
	REQUIRE(!dots_add(&a.apart, (struct dot){2, 5}));
	CHECK(version_supersedes(&a.v, (struct dot){1, 3}));
	CHECK(!version_supersedes(&a.v, (struct dot){1, 4}));
	CHECK(version_supersedes(&a.v, (struct dot){2, 7}));
	CHECK(!version_supersedes(&a.v, (struct dot){2, 5}));
	CHECK(!version_supersedes(&a.v, (struct dot){2, 8}));
	CHECK(!version_supersedes(&a.v, (struct dot){3, 1}));
	a.v.apart = NULL;
	CHECK(version_supersedes(&a.v, (struct dot){2, 5}));
	fini(&a);
}

/* Two concurrent contents are both held; a third that started from one of them replaces only that one. */
static void test_set(void)
{
	struct made a, b, c;
	bool drop[2];

	make(&a, 10, 1, 1);
	make(&b, 20, 2, 1);
	make(&c, 30, 1, 2);
	CHECK(set_merge(&a.v, 1, NULL, 0, &b.v, drop) && !drop[0]);
	CHECK(!set_merge(&a.v, 1, NULL, 0, &a.v, drop));

	struct version held[2] = {a.v, b.v};
	CHECK_EQ(set_winner(held, 2), 1);
	struct vector vector;
	struct dots apart;
	/* the author starts from the older one */
	REQUIRE(!set_next(held, 2, NULL, 0, &vector, &apart));
	CHECK(vector_get(&vector, 1) == 1 && vector_get(&vector, 2) == 1);
	CHECK(apart.n == 1 && dots_has(&apart, (struct dot){2, 1}));
	c.v.vector = &vector;
	c.v.apart = &apart;
	CHECK(set_merge(held, 2, NULL, 0, &c.v, drop) && drop[0] && !drop[1]);

	/* old news is not held again, whether what beat it is held or gone */
	struct version after[2] = {c.v, b.v};
	CHECK(!set_merge(after, 2, NULL, 0, &a.v, drop));
	CHECK(!set_merge(&b.v, 1, &c.v, 1, &a.v, drop));
	CHECK(set_merge(&b.v, 1, NULL, 0, &a.v, drop));

	/* what c keeps apart, a writer on c who does not hold it keeps apart further; one who holds what superseded it does not */
	struct vector v2;
	struct dots a2;
	struct made d;
	REQUIRE(!set_next(&c.v, 1, NULL, 0, &v2, &a2));
	CHECK(dots_has(&a2, (struct dot){2, 1}) && vector_has(&v2, (struct dot){1, 2}));
	vector_fini(&v2);
	dots_fini(&a2);
	make(&d, 25, 2, 2);
	saw(&d, 2, 1);
	struct version both[2] = {c.v, d.v};
	REQUIRE(!set_next(both, 2, NULL, 0, &v2, &a2));
	CHECK(a2.n == 1 && dots_has(&a2, (struct dot){2, 2}));
	vector_fini(&v2);
	dots_fini(&a2);
	fini(&d);

	/* one who holds what another keeps apart, and starts from it, replaces it */
	struct version with_b[2] = {c.v, b.v};
	REQUIRE(!set_next(with_b, 2, NULL, 1, &v2, &a2));
	CHECK(a2.n == 1 && dots_has(&a2, (struct dot){1, 2}));
	vector_fini(&v2);
	dots_fini(&a2);

	/* the context is in the vector */
	struct vector context = {0};
	REQUIRE(!vector_add(&context, (struct dot){9, 9}));
	REQUIRE(!set_next(NULL, 0, &context, 0, &v2, &a2));
	CHECK(vector_eq(&v2, &context) && a2.n == 0);
	vector_fini(&v2);
	dots_fini(&a2);
	vector_fini(&context);
	vector_fini(&vector);
	dots_fini(&apart);
	fini(&a);
	fini(&b);
	fini(&c);
}

static void check_name(const char *name, unsigned digits, const char *want)
{
	struct id link = {{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}};
	char got[NAME_LEN_MAX + 1];
	/* 2026-11-30 22:04:05 UTC */
	size_t len = conflict_name(name, strlen(name), UINT64_C(1796076245999999999), "my_laptop", &link, digits, got);

	if (len != strlen(want) || strcmp(got, want)) {
		fprintf(stderr, "%s became %s, not %s\n", name, got, want);
		CHECK(0);
	}
}

static void test_names(void)
{
#define M ".conflict-20261130-220405-my_laptop-01234567"
	check_name("a", 8, "a" M);
	check_name("a.txt", 8, "a" M ".txt");
	check_name("a.tar.gz", 8, "a.tar" M ".gz");
	check_name(".profile", 8, ".profile" M);
	check_name(".a.b", 8, ".a" M ".b");
	check_name("a.", 8, "a." M);
	check_name("a.0123456789abcdef", 8, "a" M ".0123456789abcdef");
	check_name("a.0123456789abcdefg", 8, "a.0123456789abcdefg" M);
	check_name("a.txt", 32, "a" M "89abcdef0123456789abcdef.txt");
	/* a mark that is there is replaced, with few and with all digits */
	check_name("a.conflict-20010101-000000-other-deadbeef.txt", 8, "a" M ".txt");
	check_name("a.conflict-20010101-000000-o-t-deadbeef", 8, "a" M);
	check_name("a.conflict-20010101-000000-o-00000000000000000000000000000000.b", 8, "a" M ".b");
	check_name("a.conflict-of-interest.pdf", 8, "a.conflict-of-interest" M ".pdf");
	check_name("a.conflict-20010101-000000-o-deadbeeg", 8, "a.conflict-20010101-000000-o-deadbeeg" M);
	check_name(".conflict-20010101-000000-o-deadbeef", 8, ".conflict-20010101-000000-o-deadbeef" M);

	char name[NAME_LEN_MAX + 1], got[NAME_LEN_MAX + 1];
	struct id link = {{1}};
	memset(name, 'x', sizeof name);
	name[NAME_LEN_MAX] = 0;
	memcpy(name + NAME_LEN_MAX - 4, ".txt", 4);
	CHECK_EQ(conflict_name(name, NAME_LEN_MAX, 0, "r", &link, 8, got), NAME_LEN_MAX);
	CHECK(!strcmp(got + NAME_LEN_MAX - 4, ".txt") && strlen(got) == NAME_LEN_MAX);
	/* two-byte characters: the cut falls between them, at both parities */
	for (int odd = 0; odd < 2; odd++) {
		size_t len = 0;
		if (odd)
			name[len++] = 'x';
		while (len + 2 <= NAME_LEN_MAX) {
			name[len++] = (char)0xc3;
			name[len++] = (char)0xa9;
		}
		size_t n = conflict_name(name, len, 0, "r", &link, 8, got);
		char *mark = strstr(got, ".conflict-");
		CHECK(n <= NAME_LEN_MAX && n >= NAME_LEN_MAX - 1 && mark && (uint8_t)mark[-1] == 0xa9);
	}
	/* nothing but continuation bytes, the longest tail: still a name */
	memset(name, 0x80, NAME_LEN_MAX);
	size_t n = conflict_name(name, NAME_LEN_MAX, UINT64_MAX, "01234567890123456789012345678901", &link, 32, got);
	CHECK(n <= NAME_LEN_MAX && name_valid(got, n));
}

static void test_ids(void)
{
	struct id node = {{5}}, a, b, c;
	char hex[ID_HEX_LEN + 1];

	copy_node_id(&node, (struct dot){1, 2}, &a);
	copy_node_id(&node, (struct dot){2, 1}, &b);
	copy_link_id(&node, (struct dot){1, 2}, &c);
	CHECK(!id_eq(&a, &b) && !id_eq(&a, &c));
	/* fixed for ever: python3 -c "import hashlib, struct; print(hashlib.blake2b(b'twofold copy' + b'\5' + b'\0' * 15 +
	 * struct.pack('<QQ', 1, 2), digest_size=16).hexdigest())" */
	id_hex(&a, hex);
	CHECK(!strcmp(hex, "8e70b69e4e54c0968b49104169ad7651"));
}

static void test_clock(void)
{
	CHECK_EQ(clock_next(5, 3), 6);
	CHECK_EQ(clock_next(5, 9), 9);
	CHECK_EQ(clock_next(5, 5), 6);
	CHECK(clock_next(UINT64_MAX, 9) == UINT64_MAX);
}

int main(void)
{
	test_supersedes();
	test_set();
	test_names();
	test_ids();
	test_clock();
	return check_result();
}
