/* What the subcommands share. One file a noun or subcommand; main.c is a table and a loop. */
#ifndef TWOFOLD_CLI_H
#define TWOFOLD_CLI_H
#include <stdatomic.h>
#include "volume.h"

/* Exit codes, documented in twofold(1) and stable. */
enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_KEY = 3, EXIT_STORE = 4, EXIT_IN_USE = 5, EXIT_NETWORK = 6 };
/* The code for a negative errno of volume_open and friends. */
int exit_for(int err);
/* "what: reason" for a negative errno, in words a user can act on; returns exit_for(err). */
int complain(int err, const char *what);
int usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* prints, returns EXIT_USAGE */

struct command {
	const char *name;
	int (*run)(int argc, char **argv); /* argv[0] is the command's name */
	const char *synopsis;
};
extern const struct command commands[]; /* ends with name NULL */

int cmd_init(int argc, char **argv);
int cmd_mount(int argc, char **argv);
int cmd_umount(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_invite(int argc, char **argv);
int cmd_join(int argc, char **argv);
int cmd_peer(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_sync(int argc, char **argv);
int cmd_log(int argc, char **argv);
int cmd_conflicts(int argc, char **argv);
int cmd_deletions(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_scrub(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_report(int argc, char **argv);
int mount_helper(int argc, char **argv); /* STORE MOUNTPOINT [-o OPTIONS] as mount(8) calls it */
int umount_helper(int argc, char **argv);

/* ---- key.c: where a passphrase or key comes from ---- */
struct key_source {
	const char *passfile, *keyfile, *extpass; /* at most one */
};
#define SECRET_MAX 4096
/* A secret in guarded memory; secret_fini wipes it. */
struct secret {
	char *p; /* sodium_malloc */
	size_t len;
	enum slot_kind kind;
};
/* Reads it from the source, $CREDENTIALS_DIRECTORY/twofold, or the terminal (asked twice where `confirm`). One newline at the end is cut off a
 * passphrase. 0; -EINVAL: two sources, empty or too long; -ENOKEY: no source and no terminal; errno of the file. Says why. */
int secret_get(const struct key_source *src, bool confirm, struct secret *ret);
void secret_fini(struct secret *s);
/* $TWOFOLD_ARGON2 = "PASSES:MIB" lowers the cost for tests. */
struct slot_cost slot_cost_from_env(void);

/* ---- options.c: -o a,b=c ---- */
struct run_options { /* of mount and serve */
	struct key_source key;
	char *listen;
	bool allow_other, ro, foreground;
	bool nodev, nosuid, noexec, noatime, dev, suid;
	unsigned commit_ms;
	enum fsync_mode fsync;
	unsigned fsync_timeout_ms; /* 0: the default */
	uint64_t scrub_s;          /* scrub=: seconds between two, 0: off */
	bool apply_deletions;      /* deletions=apply: nothing is held */
	bool has_uid, has_gid, has_umask;
	uint32_t uid, gid, umask;
	char *lists[3]; /* copies of the -o lists, which the strings above point into */
};
/* 0 or a usage error already printed, naming the option. Call once per -o; zero-initialise before. */
int run_options_parse(struct run_options *o, const char *list, bool mounting);
void run_options_fini(struct run_options *o);

/* ---- target.c: a STORE or MOUNTPOINT argument ---- */
/* If a daemon serves it: its control socket (malloc'ed) in *ret_socket and the store in *ret_store; else *ret_socket NULL and the store is arg. */
int target_find(const char *arg, char **ret_store, char **ret_socket);
/* Is there a store at this path? 0; -ENOENT, -ENOTDIR, -EACCES; -EUCLEAN: a directory, but no store. To be asked before a passphrase is. */
int target_look(const char *store);
/* Opens the store itself (asks for the key). */
int target_open(const char *store, const struct key_source *key, struct volume **ret);

/* ---- control.c: the UNIX socket of a daemon (STORE/control) ----
 * A request is argv as NUL-terminated strings behind a u32 length; the answer: lines "O..." to standard output, "E..." to standard error, "X<code>" last. */
struct control;
struct daemon_state;
int control_start(struct daemon_state *d, struct control **ret);
void control_stop(struct control *c);
char *control_path(const char *store); /* malloc'ed */
/* Sends argv, prints what comes, returns the exit code, or -errno where nobody answers. */
int control_call(const char *socket_path, int argc, char **argv);

/* ---- daemon.c: one store served, mounted or headless (I11) ---- */
struct engine;
struct mount;
struct daemon_state {
	struct volume *volume;
	struct engine *engine;
	struct mount *mount; /* NULL: headless */
	const char *mountpoint;
	const char *listen;
	enum fsync_mode fsync;
	int fsync_timeout_ms;
	int stop_fd; /* eventfd: headless stop */
};
int daemon_run(const char *store, const char *mountpoint, const struct run_options *o);

/* ---- utab.c: what makes plain umount(8) wait, where it can be had (root, the helper installed) ---- */
void utab_note(const char *store, const char *mountpoint); /* once mounted; a few ms */
void utab_forget(const char *mountpoint);

/* ---- sampler.c: history for the report, in the journal ---- */
struct sampler;
/* One thread; $TWOFOLD_SAMPLE: seconds between samples (60). NULL: none (read-only, or no memory, which is logged). */
struct sampler *sampler_start(struct volume *v);
void sampler_stop(struct sampler *s); /* NULL is legal */
uint32_t sample_peers(struct volume *v, struct sample *ret, uint32_t max); /* how it stands now */

/* ---- query.c: commands that run beside an open volume: in the daemon (engine may be set) or in the command itself. They write to out/err. ---- */
struct query {
	struct volume *volume;
	struct engine *engine; /* NULL: store opened by the command */
	struct buf *out, *err;
	atomic_bool *stop; /* for --follow, --watch */
	/* Sends what is in out and err so far. false: the reader is gone. */
	bool (*flush)(struct query *q);
	void *ctx;
};
int query_run(struct query *q, int argc, char **argv); /* exit code */
void put_size(struct buf *out, uint64_t bytes); /* "12.3 MiB" */
int query_status(struct query *q, int argc, char **argv);
/* Copies of what is known of each peer, also where nobody serves the store (then none is connected). Owned by the caller. */
int query_peers(struct query *q, struct peer_status **ret, uint32_t *ret_n);
int query_peer(struct query *q, int argc, char **argv);
int query_log(struct query *q, int argc, char **argv);
int query_deletions(struct query *q, int argc, char **argv);
int query_conflicts(struct query *q, int argc, char **argv);
int query_invite(struct query *q, int argc, char **argv);
int query_check(struct query *q, int argc, char **argv);
int query_scrub(struct query *q, int argc, char **argv);
struct scrub_status;
void query_put_scrub(struct buf *out, const struct scrub_status *s); /* a line */
int query_sync(struct query *q, int argc, char **argv);
int query_metrics(struct query *q, int argc, char **argv);
int query_report(struct query *q, int argc, char **argv);
/* The client half for all of them: arg is a STORE or MOUNTPOINT in argv[target]; asks the daemon or opens the store. */
int query_client(int argc, char **argv, int target, const struct key_source *key);
#endif
