/* metrics and report, the client's half: what the query writes goes to standard output or, whole or not at all, to a file. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Runs the query with standard output going to a new file beside `path`, which then takes its name. */
static int query_to_file(const char *path, int n, char **request, const struct key_source *key)
{
	char *temp;
	int code;

	if (asprintf(&temp, "%s.%d.tmp", path, (int)getpid()) < 0)
		return complain(-ENOMEM, path);
	int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) {
		code = complain(-errno, path);
	} else {
		code = query_client(n, request, 1, key);
		if (!code && (fflush(stdout) || fsync(fd) || rename(temp, path)))
			code = complain(-errno, path);
	}
	if (fd >= 0)
		close(fd);
	if (code && fd >= 0)
		unlink(temp);
	free(temp);
	return code;
}

int cmd_metrics(int argc, char **argv)
{
	static const struct option options[] = {{"textfile", 1, NULL, 't'}, {"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'},
		{"extpass", 1, NULL, 'e'}, {0}};
	char *request[] = {(char *)"metrics", NULL, (char *)"--classic", NULL};
	struct key_source key = {0};
	const char *file = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 't': file = optarg; break;
		case 'p': key.passfile = optarg; break;
		case 'k': key.keyfile = optarg; break;
		case 'e': key.extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (argc - optind != 1)
		return usage_error("metrics: one STORE or MOUNTPOINT is needed");
	request[1] = argv[optind];
	return file ? query_to_file(file, 3, request, &key) : query_client(2, request, 1, &key);
}

int cmd_report(int argc, char **argv)
{
	static const struct option options[] = {{"output", 1, NULL, 'o'}, {"passfile", 1, NULL, 'p'}, {"keyfile", 1, NULL, 'k'},
		{"extpass", 1, NULL, 'e'}, {0}};
	char *request[] = {(char *)"report", NULL, NULL};
	struct key_source key = {0};
	const char *file = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "o:", options, NULL)) != -1)
		switch (c) {
		case 'o': file = optarg; break;
		case 'p': key.passfile = optarg; break;
		case 'k': key.keyfile = optarg; break;
		case 'e': key.extpass = optarg; break;
		default: return EXIT_USAGE;
		}
	if (argc - optind != 1 || !file)
		return usage_error("report: one STORE or MOUNTPOINT, and -o FILE.html (or -o - for standard output) are needed");
	request[1] = argv[optind];
	return strcmp(file, "-") ? query_to_file(file, 2, request, &key) : query_client(2, request, 1, &key);
}
