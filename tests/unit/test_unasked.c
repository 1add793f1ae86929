/* Files that are written, and not fsynced, while others are: a commit that is made for one file makes committed pages of all that the redo log holds. After
 * a kill every content must agree with its root, and what was fsynced must be as it was then. Random overwrites, appends, cuts and holes. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "check_volume.h"

#define FILES 5
#define MOST 300000

static char dir[200];
static const struct caller root_caller = {.umask = 022, .in_group = true};
static unsigned seed;

static struct file {
	inum ino;
	size_t len;
	unsigned char *p;
	bool safe; /* not touched since its last fsync or a commit */
} file[FILES];

static unsigned pick(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

static const char *store(void)
{
	static char path[220];
	snprintf(path, sizeof path, "%s/s", dir);
	return path;
}

static void create(void)
{
	static const struct slot_cost cheap = {1, 8192};
	uint8_t master[KEY_LEN] = {1};
	struct header h = {.cipher = CIPHER_XCHACHA20POLY1305, .name = "here"};

	env_random(&env_real, h.volume.b, ID_LEN);
	REQUIRE(!slot_make(h.slot[0], 0, SLOT_PASSPHRASE, cheap, &h.volume, "secret", 6, master));
	REQUIRE(!volume_create(store(), &h, master, true, NULL));
}

static struct volume *reopen(void)
{
	struct volume_options o = {.commit_ms = 1000};
	struct volume *v = NULL;

	REQUIRE(!volume_open(store(), &o, "secret", 6, SLOT_PASSPHRASE, &v));
	return v;
}

static void say(void *ctx, const char *text) { fprintf(stderr, "check: %s\n", text); }

static void is_sound(struct volume *v)
{
	const struct check_options o = {.deep = true, .say = say};
	struct check_result r;

	CHECK_EQ(volume_check(v, &o, &r), 0);
	CHECK(check_is_sound(&r));
}

/* What is safe is there to the byte; of the rest only the length is known to be one that it had, so it is taken as it is. */
static void compare(struct volume *v)
{
	static unsigned char buf[MOST + 1];

	for (int i = 0; i < FILES; i++) {
		struct file *f = &file[i];
		size_t got = 0;
		CHECK_EQ(volume_read(v, f->ino, 0, buf, sizeof buf, &got), 0);
		if (f->safe)
			CHECK(got == f->len && !memcmp(buf, f->p, got));
		memcpy(f->p, buf, got);
		f->len = got;
		f->safe = true;
	}
}

static void write_some(struct volume *v, struct file *f)
{
	static unsigned char buf[40000];
	size_t off = pick(3) ? pick((unsigned)f->len + 1) : f->len, n = 1 + pick(pick(2) ? 40000 : 300);

	if (pick(2))
		off &= ~(size_t)4095;
	if (off + n > MOST)
		n = MOST - off;
	for (size_t i = 0; i < n; i++)
		buf[i] = (unsigned char)pick(256);
	CHECK_EQ(volume_write(v, f->ino, off, buf, n, true, false), 0);
	memcpy(f->p + off, buf, n);
	f->len = off + n > f->len ? off + n : f->len;
}

static void change(struct volume *v, struct file *f)
{
	struct inode_attr a;
	size_t at = pick((unsigned)f->len + 1), n = 1 + pick(30000);

	f->safe = false;
	switch (pick(6)) {
	case 0: {
		const struct set_attr s = {.mask = SET_SIZE, .size = at};
		CHECK_EQ(volume_setattr(v, f->ino, &s, &root_caller, &a), 0);
		memset(f->p + at, 0, MOST - at);
		f->len = at;
		break;
	}
	case 1:
		n = at + n > f->len ? f->len - at : n;
		if (!n)
			break;
		CHECK_EQ(volume_fallocate(v, f->ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n, true), 0);
		memset(f->p + at, 0, n);
		break;
	default:
		write_some(v, f);
	}
}

static void run(unsigned s, int rounds)
{
	struct inode_attr a;

	seed = s;
	create();
	struct volume *v = reopen();
	for (int i = 0; i < FILES; i++) {
		char name[2] = {(char)('a' + i), 0};
		CHECK_EQ(volume_make(v, ROOT_INUM, name, 1, S_IFREG | 0644, 0, NULL, &root_caller, &a), 0);
		file[i] = (struct file){.ino = a.ino, .p = calloc(1, MOST + 1)};
		REQUIRE(file[i].p);
	}
	for (int r = 0; r < rounds && !check_failures_; r++) {
		for (unsigned n = 1 + pick(12); n; n--)
			change(v, &file[pick(FILES)]);
		struct file *f = &file[pick(FILES)];
		if (pick(8)) {
			CHECK_EQ(volume_fsync(v, f->ino, false), 0);
			f->safe = true;
		} else {
			CHECK_EQ(volume_commit(v), 0);
			for (int i = 0; i < FILES; i++)
				file[i].safe = true;
		}
		if (pick(3))
			continue;
		volume_abandon(v);
		v = reopen();
		is_sound(v);
		compare(v);
	}
	if (check_failures_) /* as it is: to be looked at */
		exit(check_result());
	CHECK_EQ(volume_close(v), 0);
	for (int i = 0; i < FILES; i++)
		free(file[i].p);
	char cmd[300];
	snprintf(cmd, sizeof cmd, "rm -rf '%s'/s", dir);
	CHECK_EQ(system(cmd), 0);
}

/* test_unasked [FIRST END]: seeds */
int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	unsigned first = argc > 2 ? (unsigned)atoi(argv[1]) : 1, end = argc > 2 ? (unsigned)atoi(argv[2]) : 3;

	REQUIRE(!crypto_init());
	snprintf(dir, sizeof dir, "%s/twofold-unasked-XXXXXX", tmp ? tmp : "/tmp");
	REQUIRE(mkdtemp(dir));
	if (argc < 3)
		run(107, 60); /* a number below the floor for strays was given again, and its object forgotten */
	for (unsigned s = first; s < end && !check_failures_; s++) {
		printf("seed %u\n", s);
		run(s, 60);
	}
	rmdir(dir);
	return check_result();
}
