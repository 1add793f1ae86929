/* bench: what encryption costs on this machine. The same work on a sealed volume, on one made with --cipher none, and (where it says something)
 * in a plain directory beside them, in turn in one run.
 *
 *   cmd_bench.c            the command line, the signal flag
 *   cmd_bench_work.c       the private folder, stores and mounts in it, and that nothing of them stays
 *   cmd_bench_child.c      programs that are run: this one again, fio
 *   cmd_bench_io.c, _fio.c the two engines that do I/O
 *   cmd_bench_disk.c       disk and sql
 *   cmd_bench_tree.c       the tree of replicate and a day's edits in it
 *   cmd_bench_replicate.c  replicate
 *   cmd_bench_out.c, _svg.c table, JSON, chart
 *
 * One thread but for the built-in engine's. */
#ifndef TWOFOLD_CMD_BENCH_H
#define TWOFOLD_CMD_BENCH_H
#include <limits.h>
#include <stdatomic.h>
#include <sys/types.h>
#include "bytes.h"

#define BENCH_PASSES_MAX 50
#define BENCH_ROWS_MAX 16

/* Set by SIGINT, SIGTERM, SIGHUP and SIGQUIT: every step ends with -EINTR soon after. */
extern atomic_bool bench_stop;

enum bench_side { SIDE_SEALED, SIDE_NONE, SIDE_PLAIN, BENCH_SIDES };
const char *bench_side_name(enum bench_side s); /* "sealed", "none", "plain" */

struct bench_options {
	const char *dir, *cipher, *svg;
	const char *engine; /* "fio", "builtin" or NULL: fio where it is installed */
	bool json, cached;
	uint64_t size_bytes;
	unsigned passes;
	double seconds, scale;
};

/* ---- results ---- */
struct bench_latency { /* microseconds */
	double p50, p95, p99, p999, max;
};
struct bench_side_result {
	double sample[BENCH_PASSES_MAX];
	unsigned n;
	double iops; /* summed over the passes, as latency: divide by n */
	struct bench_latency latency;
};
struct bench_row {
	const char *name, *unit;
	bool less_is_better, has_latency;
	struct bench_side_result side[BENCH_SIDES];
};
struct bench_result {
	const char *test;     /* "disk", "sql", "replicate" */
	const char *what;     /* what was done, in words */
	char engine[64];      /* who did the I/O; empty: twofold's own tree writer */
	bool direct, mean;    /* mean: the average is shown, else the median */
	struct bench_row row[BENCH_ROWS_MAX];
	unsigned rows;
};
/* The row of this name, made where it is not there yet. At most BENCH_ROWS_MAX. */
struct bench_row *bench_row(struct bench_result *r, const char *name, const char *unit, bool less_is_better);
void bench_add(struct bench_row *row, enum bench_side side, double value);
/* Median or mean; 0 where nothing was measured. */
double bench_centre(const struct bench_result *r, const struct bench_row *row, enum bench_side side);
/* (largest - smallest) / centre of the side that spreads more, of sealed and none. */
double bench_spread(const struct bench_result *r, const struct bench_row *row);
/* sealed / none; 0 where one of them is missing. */
double bench_ratio(const struct bench_result *r, const struct bench_row *row);
void bench_put_table(struct buf *out, const struct bench_result *r, const struct bench_options *o);
void bench_put_json(struct buf *out, const struct bench_result *r, const struct bench_options *o);
void bench_put_svg(struct buf *out, const struct bench_result *r, const struct bench_options *o);
/* CPU, cores, memory, kernel and the filesystem of dir, in one line. */
void bench_machine(const char *dir, char *ret, size_t size);
/* A number with as many decimals as its size needs. */
void bench_number(double x, char *ret, size_t size);

/* ---- cmd_bench_child.c ---- */
struct bench_child {
	char *const *argv;     /* argv[0] NULL: this program */
	const char *input;     /* for its standard input; NULL: none */
	struct buf *out, *err; /* collected; NULL: thrown away */
	bool finish;           /* is not ended when bench_stop comes: what it does must not be left half-done */
	bool (*tick)(void *ctx); /* NULL, or called a few times a second; false ends the program, and bench_run returns -ETIMEDOUT */
	void *ctx;
};
/* Runs it to its end in a process group of its own, so that Ctrl-C reaches only us. Its exit code, or -errno; -EINTR where bench_stop ended it. */
int bench_run(const struct bench_child *c);
/* Starts it in the background; it gets SIGTERM when this process dies. Both outputs go to the file log_path. */
int bench_spawn(char *const *argv, const char *log_path, pid_t *ret);

/* ---- cmd_bench_work.c ---- */
#define BENCH_MOUNTS 2
#define BENCH_PATH_MAX (PATH_MAX - 256) /* of the private folder: leaves room for the names in it */
struct bench_mount {
	char store[PATH_MAX], path[PATH_MAX];
	pid_t pid; /* 0: not mounted */
};
struct bench_work {
	char path[BENCH_PATH_MAX]; /* the private folder */
	char where[48]; /* "pass 1/3, sealed", for the terminal */
	char pass[PATH_MAX];
	struct bench_mount mount[BENCH_MOUNTS];
};
/* Makes the folder in dir. -ENOSPC where need_bytes are not free, with a message. */
int bench_work_open(const char *dir, uint64_t need_bytes, struct bench_work *w);
/* Unmounts and removes all of it; says what it could not take away. */
int bench_work_close(struct bench_work *w);
/* Mount number i, with the folders NAME.store and NAME; the store is made. */
int bench_init(struct bench_work *w, unsigned i, const char *name, const char *cipher);
int bench_mount(struct bench_work *w, unsigned i, const char *more_options);
int bench_umount(struct bench_work *w, unsigned i);
/* Removes what lies at path, never crossing into another filesystem. */
int bench_remove(const char *path);
/* Writes the filesystem of path to disk and gives up the kernel's cached pages of the files below it. */
void bench_forget_pages(const char *path);

/* ---- engines ---- */
struct bench_job {
	const char *path;
	uint64_t size_bytes;
	unsigned block_bytes, depth, threads; /* depth: requests under way in each thread */
	unsigned write_percent;
	double seconds;
	bool random, direct;
};
struct bench_io {
	double mib_per_s, iops;
	struct bench_latency latency;
};
int bench_job_builtin(const struct bench_job *j, struct bench_io *ret);
/* False where fio is not installed. name: its version, at most size bytes. */
bool bench_fio_version(char *ret_name, size_t size);
int bench_job_fio(const struct bench_job *j, struct bench_io *ret);
/* Writes a file of incompressible bytes and syncs it. */
int bench_fill_file(const char *path, uint64_t size_bytes);
/* Pseudo-random bytes, the same for the same seed. */
void bench_noise(uint64_t seed, void *p, size_t len);
static inline uint64_t bench_random(uint64_t *state) /* splitmix64 (Steele, Lea, Flood 2014) */
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}
uint64_t bench_now_ns(void);

/* ---- the tree of replicate ---- */
struct bench_tree {
	uint32_t files, folders;
	uint64_t bytes;
	const char *where; /* as in struct bench_work; borrowed */
	struct bench_tree_dir *dir;
	struct bench_tree_file *file;
	uint64_t state; /* of the random numbers */
};
/* Plans a tree: 51,614 files, 5,680 folders and 5,432,323,831 bytes, times scale; the same for the same scale. Frees with bench_tree_fini. */
int bench_tree_plan(double scale, struct bench_tree *ret);
void bench_tree_fini(struct bench_tree *t);
/* Writes it below root. */
int bench_tree_write(struct bench_tree *t, const char *root);
/* A day's edits in the tree at root, which twofold(1) lists; afterwards t is what lies there. */
int bench_tree_edit(struct bench_tree *t, const char *root, uint32_t *ret_changes);

/* ---- the three ---- */
int bench_disk(const struct bench_options *o, struct bench_result *ret);
int bench_sql(const struct bench_options *o, struct bench_result *ret);
int bench_replicate(const struct bench_options *o, struct bench_result *ret);
#endif
