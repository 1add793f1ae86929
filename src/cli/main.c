/* twofold: a table of subcommands and a loop. Also called as mount.twofold, mount.fuse.twofold, umount.twofold and
 * umount.fuse.twofold by mount(8) and umount(8). */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keys.h"

#ifndef TWOFOLD_VERSION
#define TWOFOLD_VERSION "unknown"
#endif

const struct command commands[] = {
	{"init", cmd_init, "init STORE [--name REPLICA] [--cipher NAME] [--passfile F | --keyfile F | --extpass CMD]"},
	{"mount", cmd_mount, "mount STORE MOUNTPOINT [-f] [-o OPTIONS]"},
	{"umount", cmd_umount, "umount MOUNTPOINT"},
	{"serve", cmd_serve, "serve STORE [-f] [-o OPTIONS]"},
	{"invite", cmd_invite, "invite STORE|MOUNTPOINT --address HOST:PORT [--expires 1h]"},
	{"join", cmd_join, "join TOKEN|- STORE [--name REPLICA] [--passfile F | --keyfile F | --extpass CMD]"},
	{"peer", cmd_peer, "peer list|remove|pause|resume STORE|MOUNTPOINT [PEER]"},
	{"status", cmd_status, "status [STORE|MOUNTPOINT] [--watch] [--json]"},
	{"sync", cmd_sync, "sync MOUNTPOINT [--timeout 60s]"},
	{"metrics", cmd_metrics, "metrics STORE|MOUNTPOINT [--textfile FILE]"},
	{"report", cmd_report, "report STORE|MOUNTPOINT -o FILE.html"},
	{"log", cmd_log, "log STORE|MOUNTPOINT [--follow] [--json]"},
	{"conflicts", cmd_conflicts, "conflicts STORE|MOUNTPOINT [list | keep PATH | restore PATH]"},
	{"deletions", cmd_deletions, "deletions STORE|MOUNTPOINT [show|accept|undo]"},
	{"check", cmd_check, "check STORE|MOUNTPOINT [--repair] [--rate BYTES] [--resume] [--json]"},
	{"scrub", cmd_scrub, "scrub MOUNTPOINT [status]"},
	{"key", cmd_key, "key list|add|remove STORE ..."},
	{"bench", cmd_bench, "bench disk|sql|replicate [--dir DIR] [--size 1G] [--scale 1] [--passes N] [--seconds N] [--cipher NAME]\n"
			     "          [--engine fio|builtin] [--cached] [--json] [--svg FILE]"},
	{NULL, NULL, NULL},
};

static void help(FILE *f)
{
	fputs("twofold: an encrypted folder that stays in step on two or more machines\n\n", f);
	for (const struct command *c = commands; c->name; c++)
		fprintf(f, "  twofold %s\n", c->synopsis);
	fputs("  twofold STORE MOUNTPOINT [-o OPTIONS]     the form that mount(8) uses\n"
	      "\nSee twofold(1) and mount.twofold(8).\n",
		f);
}

int usage_error(const char *fmt, ...)
{
	va_list ap;

	fputs("twofold: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\n", stderr);
	return EXIT_USAGE;
}

int exit_for(int err)
{
	switch (err) {
	case 0:
		return EXIT_DONE;
	case -ENOKEY:
		return EXIT_KEY;
	case -EUCLEAN:
	case -EBADMSG:
		return EXIT_STORE;
	case -EBUSY:
		return EXIT_IN_USE;
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ENETUNREACH:
	case -EHOSTUNREACH:
	case -ETIMEDOUT:
	case -EPROTO:
		return EXIT_NETWORK;
	default:
		return EXIT_FAILED;
	}
}

int complain(int err, const char *what)
{
	const char *why = strerror(-err);

	if (err == -ENOKEY)
		why = "wrong passphrase or key";
	else if (err == -EUCLEAN)
		why = "not a twofold store, or damaged";
	else if (err == -EBADMSG)
		why = "damaged: it does not authenticate";
	else if (err == -EBUSY)
		why = "in use: it is mounted or served already";
	fprintf(stderr, "twofold: %s: %s\n", what, why);
	return exit_for(err);
}

int main(int argc, char **argv)
{
	const char *base = strrchr(argv[0], '/');
	base = base ? base + 1 : argv[0];

	if (crypto_init()) {
		fputs("twofold: the cryptographic library cannot be initialised\n", stderr);
		return EXIT_FAILED;
	}
	if (!strcmp(base, "mount.twofold") || !strcmp(base, "mount.fuse.twofold"))
		return mount_helper(argc, argv);
	if (!strcmp(base, "umount.twofold") || !strcmp(base, "umount.fuse.twofold"))
		return umount_helper(argc, argv);
	if (argc < 2) {
		help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		help(stdout);
		return EXIT_DONE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("twofold " TWOFOLD_VERSION);
		return EXIT_DONE;
	}
	for (const struct command *c = commands; c->name; c++)
		if (!strcmp(argv[1], c->name)) {
			if (argc > 2 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h"))) {
				printf("twofold %s\n", c->synopsis);
				return EXIT_DONE;
			}
			return c->run(argc - 1, argv + 1);
		}
	/* a store stands in the current directory or has a slash in its path; else it is a command mistyped */
	if (argc >= 3 && argv[1][0] != '-' && (strchr(argv[1], '/') || !access(argv[1], F_OK)))
		return mount_helper(argc, argv);
	return usage_error("%s: no such command; 'twofold --help' lists them", argv[1]);
}
