/* bench replicate: the time until a second replica on this machine has a whole tree, and then a day's edits of it; with encryption and without in
 * turn, the first of the two changing with each pass. Both replicas, the network between them and this program share the machine. */
#include "cmd_bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "progress.h"

#define STALL_MS (300 * 1000ull) /* so long a synchronisation may stand still, as behind a disk that others fill */

enum row { ROW_WRITE, ROW_FIRST, ROW_EDITS, ROW_SENT_FIRST, ROW_SENT_EDITS, ROW_CPU, ROW_MEMORY_A, ROW_MEMORY_B };
static const struct {
	const char *name, *unit;
} rows[] = {
	[ROW_WRITE] = {"writing the tree", "s"},
	[ROW_FIRST] = {"first synchronisation", "s"},
	[ROW_EDITS] = {"a day's edits", "s"},
	[ROW_SENT_FIRST] = {"sent for the tree", "MiB"},
	[ROW_SENT_EDITS] = {"sent for the edits", "MiB"},
	[ROW_CPU] = {"CPU time of both processes", "s"},
	[ROW_MEMORY_A] = {"largest memory, sender", "MiB"},
	[ROW_MEMORY_B] = {"largest memory, receiver", "MiB"},
};

static void add(struct bench_result *r, enum row row, enum bench_side side, double value)
{
	bench_add(bench_row(r, rows[row].name, rows[row].unit, true), side, value);
}

static double since(uint64_t start_ns) { return (double)(bench_now_ns() - start_ns) / 1e9; }

/* A port of 127.0.0.1 that is free now. */
static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || getsockname(fd, (struct sockaddr *)&a, &len))
		return -errno;
	return ntohs(a.sin_port);
}

/* Runs this program; what it says on failure is passed on. */
static int ask(char *const *argv, const char *input, struct buf *out)
{
	struct buf err = {0};
	int r = bench_run(&(struct bench_child){.argv = argv, .input = input, .out = out, .err = &err});

	if (r > 0)
		fwrite(err.p, 1, err.len, stderr);
	buf_fini(&err);
	return r > 0 ? -EIO : r;
}

static int join_second(struct bench_work *w, int port)
{
	char address[32];
	struct buf token = {0};
	char *invite[] = {NULL, (char *)"invite", w->mount[0].path, (char *)"--address", address, NULL};
	char *join[] = {NULL, (char *)"join", (char *)"-", w->mount[1].store, (char *)"--name", (char *)"second", (char *)"--passfile", w->pass, NULL};
	int r;

	snprintf(address, sizeof address, "127.0.0.1:%d", port);
	r = ask(invite, NULL, &token);
	buf_put_u8(&token, 0);
	if (!r)
		r = token.err ? token.err : ask(join, (char *)token.p, NULL);
	buf_fini(&token);
	return r;
}

/* The digest of the tree that the mount shows, from its status; empty where it has none. */
static int root_of(const struct bench_mount *m, char ret[static 65])
{
	char *argv[] = {NULL, (char *)"status", (char *)m->path, (char *)"--json", NULL};
	struct buf out = {0};
	int r = bench_run(&(struct bench_child){.argv = argv, .out = &out});

	buf_put_u8(&out, 0);
	const char *at = r >= 0 && !out.err ? strstr((char *)out.p, "\"root\":\"") : NULL;
	*ret = 0;
	if (at)
		snprintf(ret, 65, "%.*s", (int)strspn(at + 8, "0123456789abcdef"), at + 8);
	buf_fini(&out);
	return r < 0 ? r : 0;
}

static double counter(const struct bench_mount *m, const char *name)
{
	char xattr[96], value[32] = "";

	snprintf(xattr, sizeof xattr, "user.twofold.%s", name);
	return getxattr(m->path, xattr, value, sizeof value - 1) > 0 ? strtod(value, NULL) : 0;
}

static double sent_mib(const struct bench_mount *m) { return counter(m, "bytes.wire-sent") / (1 << 20); }

/* What is shown while two replicas come together, and whether they still do. */
struct waiting {
	struct bench_work *w;
	const char *what;
	double most;  /* the largest backlog seen, bytes */
	double state; /* of all that moves on the way; compared, no more */
	uint64_t start_ns, moved_ns;
};

/* Not the bytes on the wire: two replicas that only ask each other whether they are there come no further. */
static bool on_tick(void *ctx)
{
	struct waiting *a = ctx;
	const struct bench_mount *from = &a->w->mount[0], *to = &a->w->mount[1];
	double files = counter(from, "peer.second.backlog-files"), bytes = counter(from, "peer.second.backlog-bytes"), part;
	double state = files + bytes + counter(from, "count.parts-sent") + counter(to, "count.batches-applied") + counter(to, "bytes.object-written");
	char left[PROGRESS_LEFT_MAX];

	a->most = bytes > a->most ? bytes : a->most;
	part = a->most > 0 ? 1 - bytes / a->most : 0;
	progress_show("%s: %s, %.0f files, %.0f MiB to go; %.0f %%%s", a->w->where, a->what, files, bytes / (1 << 20), part * 100,
		progress_left(a->start_ns, part, left));
	if (state != a->state)
		a->moved_ns = bench_now_ns();
	a->state = state;
	return bench_now_ns() - a->moved_ns < STALL_MS * 1000000;
}

static void show_status(const struct bench_work *w)
{
	for (int i = 0; i < BENCH_MOUNTS; i++) {
		char *argv[] = {NULL, (char *)"status", (char *)w->mount[i].path, NULL};
		struct buf out = {0};
		if (bench_run(&(struct bench_child){.argv = argv, .out = &out}) >= 0)
			fwrite(out.p, 1, out.len, stderr);
		buf_fini(&out);
	}
}

/* Until both show the same. `sync` waits without asking again and again; the digests say that it was true. -ETIMEDOUT: nothing moves any more. */
static int wait_equal(struct bench_work *w, const char *what)
{
	char *sync[] = {NULL, (char *)"sync", w->mount[0].path, (char *)"--timeout", (char *)"24h", NULL};
	char a[65], b[65];
	struct waiting wait = {.w = w, .what = what, .start_ns = bench_now_ns(), .moved_ns = bench_now_ns()};

	for (;;) {
		int r = bench_run(&(struct bench_child){.argv = sync, .tick = on_tick, .ctx = &wait});
		if (r >= 0)
			r = root_of(&w->mount[0], a);
		if (r >= 0)
			r = root_of(&w->mount[1], b);
		if (r >= 0 && *a && !strcmp(a, b))
			return 0;
		if (r >= 0 && !on_tick(&wait))
			r = -ETIMEDOUT;
		if (r == -ETIMEDOUT) {
			progress_end();
			fprintf(stderr, "twofold: bench: %s, %s: nothing has moved for %llu s\n", w->where, what, STALL_MS / 1000);
			show_status(w);
		}
		if (r < 0)
			return r;
		usleep(20000);
	}
}

static double cpu_seconds(pid_t pid)
{
	char path[64], line[1024] = "";
	unsigned long user = 0, system = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	char *at = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
	if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
		user = system = 0;
	if (f)
		fclose(f);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double peak_mib(pid_t pid)
{
	char path[64], line[256];
	unsigned long kib = 0;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return (double)kib / 1024;
}

/* A result is none where the second replica does not show the tree. */
static int verify(const struct bench_work *w, const struct bench_tree *t)
{
	char *paths[] = {(char *)w->mount[1].path, NULL};
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	uint64_t files = 0, bytes = 0;
	FTSENT *e;

	while (fts && (e = fts_read(fts)))
		if (e->fts_info == FTS_F) {
			files++;
			bytes += (uint64_t)e->fts_statp->st_size;
		}
	if (fts)
		fts_close(fts);
	if (files == t->files && bytes == t->bytes)
		return 0;
	fprintf(stderr, "twofold: bench: the second replica shows %llu files and %llu bytes instead of %u and %llu\n", (unsigned long long)files,
		(unsigned long long)bytes, t->files, (unsigned long long)t->bytes);
	return -EIO;
}

static int sync_fs(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || syncfs(fd) ? -errno : 0;
}

static int edit_and_wait(struct bench_work *w, struct bench_tree *t, enum bench_side side, struct bench_result *ret)
{
	double before = sent_mib(&w->mount[0]);
	uint64_t start = bench_now_ns();
	uint32_t changes;
	int r = bench_tree_edit(t, w->mount[0].path, &changes);

	if (!r)
		r = wait_equal(w, "a day's edits");
	if (r)
		return r;
	add(ret, ROW_EDITS, side, since(start));
	add(ret, ROW_SENT_EDITS, side, sent_mib(&w->mount[0]) - before);
	return verify(w, t);
}

static int first_sync(struct bench_work *w, struct bench_tree *t, enum bench_side side, struct bench_result *ret)
{
	uint64_t start = bench_now_ns();
	int r = bench_mount(w, 1, NULL);

	if (!r)
		r = wait_equal(w, "first sync");
	if (r)
		return r;
	add(ret, ROW_FIRST, side, since(start));
	add(ret, ROW_SENT_FIRST, side, sent_mib(&w->mount[0]));
	return verify(w, t);
}

static int run_steps(struct bench_work *w, struct bench_tree *t, const char *cipher, enum bench_side side, struct bench_result *ret)
{
	char listen[48];
	int port = free_port(), r = port < 0 ? port : bench_init(w, 0, "first", cipher);
	uint64_t start;

	snprintf(listen, sizeof listen, "listen=127.0.0.1:%d", port);
	if (!r)
		r = bench_mount(w, 0, listen);
	start = bench_now_ns();
	if (!r)
		r = bench_tree_write(t, w->mount[0].path);
	if (!r)
		r = sync_fs(w->mount[0].path);
	if (r)
		return r;
	add(ret, ROW_WRITE, side, since(start));
	r = bench_init(w, 1, "second", NULL);
	if (!r)
		r = join_second(w, port);
	if (!r)
		r = first_sync(w, t, side, ret);
	if (!r)
		r = edit_and_wait(w, t, side, ret);
	if (r)
		return r;
	add(ret, ROW_CPU, side, cpu_seconds(w->mount[0].pid) + cpu_seconds(w->mount[1].pid));
	add(ret, ROW_MEMORY_A, side, peak_mib(w->mount[0].pid));
	add(ret, ROW_MEMORY_B, side, peak_mib(w->mount[1].pid));
	return 0;
}

static int one_run(struct bench_work *w, const struct bench_options *o, enum bench_side side, struct bench_result *ret)
{
	struct bench_tree t = {0};
	int r = bench_tree_plan(o->scale, &t);

	t.where = w->where;
	if (!r)
		r = run_steps(w, &t, side == SIDE_NONE ? "none" : o->cipher, side, ret);
	bench_tree_fini(&t);
	progress_show("%s: removing it", w->where);
	for (unsigned i = 0; i < BENCH_MOUNTS; i++) {
		bench_umount(w, i);
		if (w->mount[i].store[0])
			bench_remove(w->mount[i].store);
	}
	progress_show("%s: waiting for the disk", w->where);
	/* the next run must not pay for writing this one's pages */
	sync_fs(w->path);
	return r;
}

/* The same tree written to a plain directory: what the writing itself costs here. */
static int plain_run(struct bench_work *w, const struct bench_options *o, struct bench_result *ret)
{
	char path[PATH_MAX];
	struct bench_tree t = {0};
	int r = bench_tree_plan(o->scale, &t);
	uint64_t start;

	t.where = w->where;
	snprintf(path, sizeof path, "%s/plain", w->path);
	if (!r && mkdir(path, 0700))
		r = -errno;
	start = bench_now_ns();
	if (!r)
		r = bench_tree_write(&t, path);
	if (!r)
		r = sync_fs(path);
	if (!r)
		add(ret, ROW_WRITE, SIDE_PLAIN, since(start));
	bench_tree_fini(&t);
	bench_remove(path);
	return r;
}

int bench_replicate(const struct bench_options *o, struct bench_result *ret)
{
	struct bench_work *w = calloc(1, sizeof *w);
	int r = w ? bench_work_open(o->dir, (uint64_t)(o->scale * 5432323831.0 * 2.4) + (256u << 20), w) : -ENOMEM, closed;

	ret->what = "a tree like the DFSR test's, to a second replica on this machine";
	ret->mean = true;
	for (unsigned p = 0; p < o->passes && !r; p++)
		for (unsigned i = 0; i < BENCH_SIDES && !r; i++) {
			/* sealed and none change places with each pass */
			enum bench_side side = i == 2 ? SIDE_PLAIN : (i ^ p) & 1 ? SIDE_NONE : SIDE_SEALED;
			snprintf(w->where, sizeof w->where, "pass %u/%u, %s", p + 1, o->passes, bench_side_name(side));
			r = side == SIDE_PLAIN ? plain_run(w, o, ret) : one_run(w, o, side, ret);
		}
	if (r && r != -EINTR)
		complain(r, "bench replicate");
	closed = w ? bench_work_close(w) : 0;
	free(w);
	return r ? r : closed;
}
