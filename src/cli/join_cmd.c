/* join: the whole way from a pasted token to a store that has a peer. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "header.h"
#include "invite.h"
#include "progress.h"

/* The token is used up by the network part: see before it whether the store can be made. */
static bool place_is_free(const char *store)
{
	DIR *d = opendir(store);
	struct dirent *e;
	bool empty = true;

	if (!d)
		return errno == ENOENT;
	while (empty && (e = readdir(d)))
		empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	return empty;
}

static int read_token(const char *arg, char ret[static TOKEN_TEXT_MAX])
{
	if (strcmp(arg, "-")) {
		if (strlen(arg) >= TOKEN_TEXT_MAX)
			return -EINVAL;
		strcpy(ret, arg);
		return 0;
	}
	return fgets(ret, TOKEN_TEXT_MAX, stdin) ? 0 : -EINVAL;
}

static int join(const char *token, const char *store, const char *name, const char *listen, const struct key_source *key)
{
	struct join_result *j = NULL;
	struct secret s = {0};
	struct progress_wait wait;
	char text[256] = "", fingerprint[20];
	int r;

	if (!place_is_free(store)) {
		fprintf(stderr, "twofold: %s: exists and is not empty; join needs an empty or a new directory, so that it can delete nothing\n", store);
		return EXIT_FAILED;
	}
	r = secret_get(key, true, &s);
	if (r)
		return r == -ENOKEY ? EXIT_KEY : EXIT_USAGE;
	progress_wait_begin(&wait, "asking the inviting replica");
	r = join_fetch(token, name, listen, 30000, &j, text);
	progress_wait_end(&wait);
	if (r) {
		secret_fini(&s);
		fprintf(stderr, "twofold: join: %s\n", text);
		return r == -EINVAL ? EXIT_USAGE : r == -ENOTSUP || r == -EEXIST ? EXIT_FAILED : EXIT_NETWORK;
	}
	progress_wait_begin(&wait, "deriving the key and making the store");
	r = join_finish(store, j, s.p, s.len, s.kind, slot_cost_from_env());
	progress_wait_end(&wait);
	secret_fini(&s);
	if (r)
		r = complain(r, store);
	else {
		key_fingerprint(j->static_public, fingerprint);
		printf("joined as %s (key %s), peer %s at %s: %s\n", j->header.name, fingerprint, j->inviter_member.name, j->inviter_member.address, store);
		printf("Mount or serve it, and the contents arrive.\n");
	}
	join_result_free(j);
	return r;
}

int cmd_join(int argc, char **argv)
{
	static const struct option options[] = {{"name", 1, NULL, 'n'}, {"listen", 1, NULL, 'l'}, {"passfile", 1, NULL, 'p'},
		{"keyfile", 1, NULL, 'k'}, {"extpass", 1, NULL, 'e'}, {0}};
	struct key_source key = {0};
	const char *name = NULL, *listen = NULL;
	char token[TOKEN_TEXT_MAX];
	int c, r;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'n':
			if (!replica_name_valid(optarg))
				return usage_error("--name %s: 1 to 32 of A-Z a-z 0-9 _ -", optarg);
			name = optarg;
			break;
		case 'l':
			listen = optarg;
			break;
		case 'p':
			key.passfile = optarg;
			break;
		case 'k':
			key.keyfile = optarg;
			break;
		case 'e':
			key.extpass = optarg;
			break;
		default:
			return EXIT_USAGE;
		}
	if (argc - optind != 2)
		return usage_error("join: TOKEN (or - for standard input) and STORE are needed");
	if (read_token(argv[optind], token))
		return usage_error("join: no token on standard input, or it is too long");
	r = join(token, argv[optind + 1], name, listen, &key);
	sodium_memzero(token, sizeof token);
	return r;
}
