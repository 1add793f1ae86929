/* Commands that ask about, or steer, an open volume: sent to the daemon that serves it, else the store is opened for them. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	int (*run)(struct query *q, int argc, char **argv);
} queries[] = {
	{"status", query_status}, {"peer", query_peer}, {"log", query_log}, {"conflicts", query_conflicts}, {"deletions", query_deletions}, {"invite", query_invite}, {"sync", query_sync}, {"check", query_check}, {"scrub", query_scrub},
	{"metrics", query_metrics}, {"report", query_report},
};

int query_run(struct query *q, int argc, char **argv)
{
	for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
		if (!strcmp(argv[0], queries[i].name))
			return queries[i].run(q, argc, argv);
	buf_printf(q->err, "twofold: %s: the process that serves this store does not know this command\n", argv[0]);
	return EXIT_USAGE;
}

static bool flush_local(struct query *q)
{
	bool ok = fwrite(q->out->p, 1, q->out->len, stdout) == q->out->len && fflush(stdout) == 0;

	fwrite(q->err->p, 1, q->err->len, stderr);
	q->out->len = q->err->len = 0;
	return ok;
}

/* What only a serving process can do, and why. */
static const char *needs_daemon(int argc, char **argv)
{
	if (!strcmp(argv[0], "sync"))
		return "only a replica that is mounted or served, and not read-only, is in contact with peers";
	if (!strcmp(argv[0], "scrub") && argc == 2)
		return "only a replica that is mounted or served, and not read-only, is scrubbed; `twofold check` looks at a store";
	return NULL;
}

static int run_here(const char *store, int argc, char **argv, const struct key_source *key)
{
	static atomic_bool never;
	struct buf out = {0}, err = {0};
	struct volume *v;
	const char *needs = needs_daemon(argc, argv);
	int r = target_look(store);

	if (!r && needs) {
		fprintf(stderr, "twofold: %s: %s: %s\n", argv[0], store, needs);
		return EXIT_FAILED;
	}
	r = r ? r : target_open(store, key, &v);
	if (r)
		return complain(r, store);
	struct query q = {v, NULL, &out, &err, &never, flush_local, NULL};
	int code = query_run(&q, argc, argv);
	flush_local(&q);
	buf_fini(&out);
	buf_fini(&err);
	r = volume_close(v);
	return r && !code ? complain(r, store) : code;
}

int query_client(int argc, char **argv, int target, const struct key_source *key)
{
	char *store, *sock;
	int r = target_find(argv[target], &store, &sock), code;

	if (r)
		return complain(r, argv[target]);
	if (sock) {
		code = control_call(sock, argc, argv);
		/* a socket that nobody listens on was left by a killed daemon: the store is free */
		if (code == -ECONNREFUSED || code == -ENOENT)
			code = run_here(store, argc, argv, key);
		else if (code < 0)
			code = complain(code, argv[target]);
	} else
		code = run_here(store, argc, argv, key);
	free(store);
	free(sock);
	return code;
}
