/* bench replicate: a tree with the numbers of the published DFSR test's sample data, 51,614 files in 5,680 folders with 5,432,323,831 bytes, and a
 * day's edits in it. Sizes are lognormal (sigma 2), folders hang preferably below young ones, contents are half noise and half repeated text. All
 * of it follows from one seed. */
#include "cmd_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "progress.h"

#define FILES 51614
#define FOLDERS 5680
#define BYTES 5432323831.0
#define DEPTH_MAX 12
#define YOUNG 400
#define NOISE_LEN (4u << 20)
#define PIECE 65536u

struct bench_tree_dir {
	uint32_t parent; /* index; the root is 0 */
	uint16_t depth;
};
struct bench_tree_file {
	uint32_t dir;
	uint32_t number; /* its name */
	uint64_t size;
};

static uint32_t below(struct bench_tree *t, uint32_t n) { return n ? (uint32_t)(bench_random(&t->state) % n) : 0; }

static double unit(struct bench_tree *t) { return ((double)(bench_random(&t->state) >> 11) + 0.5) / 9007199254740992.0; }

static double lognormal(struct bench_tree *t)
{
	double u = unit(t), v = unit(t);

	return exp(9.0 + 2.0 * sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v)); /* Box and Muller */
}

static void plan_dirs(struct bench_tree *t)
{
	for (uint32_t i = 1; i <= t->folders; i++) {
		uint32_t young = i > YOUNG ? YOUNG : i, parent = unit(t) < .7 ? i - young + below(t, young) : below(t, i);
		if (t->dir[parent].depth >= DEPTH_MAX)
			parent = 0;
		t->dir[i] = (struct bench_tree_dir){parent, (uint16_t)(t->dir[parent].depth + 1)};
	}
}

static int plan_files(struct bench_tree *t)
{
	CLEANUP_FREE double *size = calloc(t->files, sizeof *size);
	double sum = 0;
	uint64_t given = 0;

	if (!size)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->files; i++)
		sum += size[i] = lognormal(t);
	for (uint32_t i = 0; i < t->files; i++) {
		t->file[i] = (struct bench_tree_file){below(t, t->folders + 1), i, (uint64_t)(size[i] / sum * (double)t->bytes)};
		given += t->file[i].size;
	}
	t->file[0].size += t->bytes - given; /* what rounding left */
	return 0;
}

int bench_tree_plan(double scale, struct bench_tree *ret)
{
	struct bench_tree t = {.files = (uint32_t)(FILES * scale), .folders = (uint32_t)(FOLDERS * scale), .bytes = (uint64_t)(BYTES * scale), .state = 4102};
	int r;

	/* a day's new files are one in 200 */
	t.dir = calloc(t.folders + 2, sizeof *t.dir);
	t.file = calloc(t.files + t.files / 100 + 16, sizeof *t.file);
	r = t.dir && t.file ? 0 : -ENOMEM;
	if (!r) {
		plan_dirs(&t);
		r = plan_files(&t);
	}
	if (r) {
		bench_tree_fini(&t);
		return r;
	}
	*ret = t;
	return 0;
}

void bench_tree_fini(struct bench_tree *t)
{
	free(t->dir);
	free(t->file);
	*t = (struct bench_tree){0};
}

static void dir_path(const struct bench_tree *t, uint32_t d, char *ret)
{
	uint32_t chain[DEPTH_MAX + 1], n = 0;

	for (; d && n <= DEPTH_MAX; d = t->dir[d].parent)
		chain[n++] = d;
	ret += sprintf(ret, ".");
	while (n)
		ret += sprintf(ret, "/dir%05u", chain[--n]);
}

#define REL_MAX (16 * (DEPTH_MAX + 2))

static void file_path(const struct bench_tree *t, const struct bench_tree_file *f, char ret[static REL_MAX])
{
	dir_path(t, f->dir, ret);
	sprintf(ret + strlen(ret), "/file%06u.bin", f->number);
}

static int put(int fd, const uint8_t *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno != EINTR)
			return -errno;
		p += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

struct contents {
	uint8_t *noise, *text;
};

static void contents_fini(struct contents *c)
{
	free(c->noise);
	free(c->text);
}

static int contents_init(struct contents *c)
{
	static const char line[] = "minutes of the meeting, the order of the day and who was there\n";

	c->noise = malloc(NOISE_LEN);
	c->text = malloc(PIECE);
	if (!c->noise || !c->text)
		return -ENOMEM;
	bench_noise(4102, c->noise, NOISE_LEN);
	for (size_t i = 0; i < PIECE; i++)
		c->text[i] = (uint8_t)line[i % (sizeof line - 1)];
	return 0;
}

static int write_bytes(struct bench_tree *t, const struct contents *c, int fd, uint64_t len, uint32_t mark)
{
	uint8_t head[8] = {0};
	size_t n = len < sizeof head ? (size_t)len : sizeof head;
	int r;

	le32_store(head, mark);
	r = put(fd, head, n);
	for (len -= n; len && !r; len -= n) {
		n = len < PIECE ? (size_t)len : PIECE;
		r = put(fd, bench_random(&t->state) & 1 ? c->text : c->noise + below(t, NOISE_LEN - PIECE), n);
		if (!r && atomic_load(&bench_stop))
			r = -EINTR;
	}
	return r;
}

static int write_file(struct bench_tree *t, const struct contents *c, int rootfd, const struct bench_tree_file *f)
{
	char path[REL_MAX];

	file_path(t, f, path);
	CLEANUP_CLOSE int fd = openat(rootfd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	return fd < 0 ? -errno : write_bytes(t, c, fd, f->size, f->number);
}

int bench_tree_write(struct bench_tree *t, const char *root)
{
	CLEANUP_CLOSE int rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP(contents_fini) struct contents c = {0};
	char path[REL_MAX], left[PROGRESS_LEFT_MAX];
	uint64_t start = bench_now_ns();
	int r = rootfd < 0 ? -errno : contents_init(&c);

	for (uint32_t i = 1; i <= t->folders && !r; i++) {
		dir_path(t, i, path);
		if (mkdirat(rootfd, path, 0755))
			r = -errno;
	}
	for (uint32_t i = 0; i < t->files && !r; i++) {
		if (i % 64 == 0)
			progress_show("%s: writing the tree, %u of %u files%s", t->where, i, t->files, progress_left(start, (double)i / t->files, left));
		r = atomic_load(&bench_stop) ? -EINTR : write_file(t, &c, rootfd, &t->file[i]);
	}
	return r;
}

enum edit { EDIT_OVERWRITE, EDIT_APPEND, EDIT_INSERT, EDIT_RENAME, EDIT_CHMOD, EDITS };

/* As programs that save a document do it: a new file beside it, renamed over it. */
static int insert_at_start(int rootfd, const char *path)
{
	CLEANUP_FREE uint8_t *bytes = malloc(PIECE);
	CLEANUP_CLOSE int in = openat(rootfd, path, O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int out = openat(rootfd, "new-version", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t n = 0;
	int r = !bytes ? -ENOMEM : in < 0 || out < 0 ? -errno : 0;

	if (!r) {
		memset(bytes, 'n', 1024);
		r = put(out, bytes, 1024);
	}
	while (!r && (n = read(in, bytes, PIECE)) > 0)
		r = put(out, bytes, (size_t)n);
	if (!r && (n < 0 || renameat(rootfd, "new-version", rootfd, path)))
		r = -errno;
	return r;
}

static int overwrite(struct bench_tree *t, int rootfd, const struct bench_tree_file *f, const char *path, bool append)
{
	CLEANUP_CLOSE int fd = openat(rootfd, path, O_WRONLY | O_CLOEXEC | (append ? O_APPEND : 0));
	uint8_t bytes[4096];

	if (fd < 0)
		return -errno;
	bench_noise(bench_random(&t->state), bytes, sizeof bytes);
	/* never behind the end: of a small file as much as there is */
	size_t len = append || f->size >= sizeof bytes ? sizeof bytes : (size_t)f->size;
	if (!append && lseek(fd, (off_t)((f->size - len) / 2), SEEK_SET) < 0)
		return -errno;
	return put(fd, bytes, len);
}

static void grow(struct bench_tree *t, struct bench_tree_file *f, uint64_t by)
{
	f->size += by;
	t->bytes += by;
}

static int edit_one(struct bench_tree *t, int rootfd, struct bench_tree_file *f, enum edit e)
{
	char path[REL_MAX], to[REL_MAX];
	int r = 0;

	file_path(t, f, path);
	switch (e) {
	case EDIT_OVERWRITE:
		return overwrite(t, rootfd, f, path, false);
	case EDIT_APPEND:
		r = overwrite(t, rootfd, f, path, true);
		grow(t, f, r ? 0 : 4096);
		return r;
	case EDIT_INSERT:
		if (f->size > (64u << 20))
			return 0; /* documents, no archives */
		r = insert_at_start(rootfd, path);
		grow(t, f, r ? 0 : 1024);
		return r;
	case EDIT_RENAME:
		f->dir = below(t, t->folders + 1);
		file_path(t, f, to);
		return renameat(rootfd, path, rootfd, to) ? -errno : 0;
	case EDIT_CHMOD:
	default:
		return fchmodat(rootfd, path, 0640, 0) ? -errno : 0;
	}
}

static int add_file(struct bench_tree *t, const struct contents *c, int rootfd)
{
	struct bench_tree_file f = {below(t, t->folders + 1), t->files + 500000, 4096 + below(t, 200000)};
	int r = write_file(t, c, rootfd, &f);

	if (!r) {
		t->file[t->files++] = f;
		t->bytes += f.size;
	}
	return r;
}

static int delete_file(struct bench_tree *t, int rootfd)
{
	char path[REL_MAX];
	uint32_t i = below(t, t->files);

	file_path(t, &t->file[i], path);
	if (unlinkat(rootfd, path, 0))
		return -errno;
	t->bytes -= t->file[i].size;
	t->file[i] = t->file[--t->files];
	return 0;
}

int bench_tree_edit(struct bench_tree *t, const char *root, uint32_t *ret_changes)
{
	/* one file in so many */
	static const uint32_t every[EDITS] = {[EDIT_OVERWRITE] = 100, [EDIT_APPEND] = 200, [EDIT_INSERT] = 200, [EDIT_RENAME] = 200, [EDIT_CHMOD] = 500};
	CLEANUP_CLOSE int rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP(contents_fini) struct contents c = {0};
	uint32_t before = t->files, changes = 0;
	int r = rootfd < 0 ? -errno : contents_init(&c);

	for (int e = 0; e < EDITS && !r; e++)
		for (uint32_t i = 0; i < before / every[e] + 1 && !r; i++, changes++)
			r = atomic_load(&bench_stop) ? -EINTR : edit_one(t, rootfd, &t->file[below(t, t->files)], (enum edit)e);
	for (uint32_t i = 0; i < before / 200 + 1 && !r; i++, changes++)
		r = add_file(t, &c, rootfd);
	for (uint32_t i = 0; i < before / 500 + 1 && !r; i++, changes++)
		r = delete_file(t, rootfd);
	*ret_changes = changes;
	return r;
}
