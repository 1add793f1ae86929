/* mount, serve, and the forms that mount(8) calls. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(const char *store, const char *mountpoint, struct run_options *o)
{
	char real_store[PATH_MAX], real_mount[PATH_MAX];
	int r;

	if (!realpath(store, real_store))
		r = complain(-errno, store);
	else if ((r = target_look(real_store)))
		r = complain(r, store);
	else if (mountpoint && !realpath(mountpoint, real_mount) && errno != ENOTCONN)
		r = complain(-errno, mountpoint);
	else if (mountpoint && !strncmp(real_mount, real_store, strlen(real_store)) && strchr("/", real_mount[strlen(real_store)]))
		r = usage_error("%s: the mountpoint lies inside the store", mountpoint);
	else
		r = daemon_run(real_store, mountpoint ? real_mount : NULL, o);
	run_options_fini(o);
	return r;
}

/* Options of mount and serve, then n operands. On failure *ret is left empty. */
static int parse_run(int argc, char **argv, bool mount, int n, const char *wants, struct run_options *ret)
{
	static const struct option options[] = {{"foreground", 0, NULL, 'f'}, {"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'},
		{"extpass", 1, NULL, 'e'}, {0}};
	int c, r = 0;

	while (!r && (c = getopt_long(argc, argv, "fo:", options, NULL)) != -1)
		switch (c) {
		case 'f': ret->foreground = true; break;
		case 'o': r = run_options_parse(ret, optarg, mount); break;
		case 'p': ret->key.passfile = optarg; break;
		case 'k': ret->key.keyfile = optarg; break;
		case 'e': ret->key.extpass = optarg; break;
		default: r = EXIT_USAGE;
		}
	if (!r && argc - optind != n)
		r = usage_error("%s", wants);
	if (r)
		run_options_fini(ret);
	return r;
}

int cmd_mount(int argc, char **argv)
{
	struct run_options o = {0};
	int r = parse_run(argc, argv, true, 2, "mount: STORE and MOUNTPOINT are needed", &o);

	return r ? r : run(argv[optind], argv[optind + 1], &o);
}

int cmd_serve(int argc, char **argv)
{
	struct run_options o = {0};
	int r = parse_run(argc, argv, false, 1, "serve: one STORE is needed", &o);

	return r ? r : run(argv[optind], NULL, &o);
}

/* mount.twofold STORE MOUNTPOINT [-sfnvw] [-N namespace] [-t type] [-o OPTIONS]; mount.fuse.twofold gets the same from mount.fuse(8)
 * or directly. -f is mount(8)'s "fake": do nothing. */
int mount_helper(int argc, char **argv)
{
	struct run_options o = {0};
	bool fake = false, helper = strncmp(strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0], "mount.", 6) == 0;
	int c, r = 0;

	while (!r && (c = getopt(argc, argv, "sfnvwrN:t:o:")) != -1)
		switch (c) {
		case 'o': r = run_options_parse(&o, optarg, true); break;
		case 'f':
			if (helper)
				fake = true;
			else
				o.foreground = true;
			break;
		case 'r': o.ro = true; break;
		case 's': case 'n': case 'v': case 'w': case 'N': case 't': break;
		default: r = EXIT_USAGE;
		}
	if (!r && argc - optind != 2)
		r = usage_error("STORE and MOUNTPOINT are needed");
	if (r || fake) {
		run_options_fini(&o);
		return r;
	}
	return run(argv[optind], argv[optind + 1], &o);
}
