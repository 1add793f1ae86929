/* Where a passphrase or key comes from: a file, a command, a systemd credential, or the terminal. */
#include "cli.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "cleanup.h"

void secret_fini(struct secret *s)
{
	sodium_free(s->p);
	*s = (struct secret){0};
}

/* Fills s from fd up to its end. */
static int read_secret(int fd, struct secret *s)
{
	for (;;) {
		ssize_t n = read(fd, s->p + s->len, SECRET_MAX + 1 - s->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		s->len += (size_t)n;
		if (s->len > SECRET_MAX)
			return -EINVAL;
	}
}

static int from_file(const char *path, struct secret *s)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : read_secret(fd, s);

	if (r)
		fprintf(stderr, "twofold: %s: %s\n", path, r == -EINVAL ? "longer than 4,096 bytes" : strerror(-r));
	return r;
}

static int from_command(const char *command, struct secret *s)
{
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], 1);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	int r = pid < 0 ? -errno : read_secret(fds[0], s);
	close(fds[0]);
	if (pid > 0 && (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))) {
		fprintf(stderr, "twofold: the command of extpass failed\n");
		return -EIO;
	}
	return r;
}

static int ask_once(FILE *tty, const char *prompt, struct secret *s)
{
	struct termios old, quiet;
	int fd = fileno(tty), r = 0;

	if (tcgetattr(fd, &old))
		return -errno;
	quiet = old;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	fputs(prompt, tty);
	fflush(tty);
	tcsetattr(fd, TCSAFLUSH, &quiet);
	for (s->len = 0;;) {
		char c;
		ssize_t n = read(fd, &c, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || c == '\n')
			break;
		if (s->len == SECRET_MAX) {
			r = -EINVAL;
			break;
		}
		s->p[s->len++] = c;
	}
	tcsetattr(fd, TCSAFLUSH, &old);
	fputs("\n", tty);
	return r;
}

static int from_terminal(bool confirm, struct secret *s)
{
	FILE *tty = fopen("/dev/tty", "r+e");
	struct secret again = {0};
	int r;

	if (!tty) {
		fprintf(stderr, "twofold: no passphrase: there is no terminal to ask on; use passfile=, keyfile= or extpass=\n");
		return -ENOKEY;
	}
	r = ask_once(tty, "Passphrase: ", s);
	if (!r && confirm) {
		again.p = sodium_malloc(SECRET_MAX + 1);
		r = again.p ? ask_once(tty, "The same again: ", &again) : -ENOMEM;
		if (!r && (again.len != s->len || sodium_memcmp(again.p, s->p, s->len))) {
			fprintf(stderr, "twofold: the two passphrases differ\n");
			r = -EINVAL;
		}
		secret_fini(&again);
	}
	fclose(tty);
	return r;
}

static int from_credentials(struct secret *s, bool *ret_found)
{
	const char *dir = getenv("CREDENTIALS_DIRECTORY");
	char path[4096];

	*ret_found = false;
	if (!dir || (size_t)snprintf(path, sizeof path, "%s/twofold", dir) >= sizeof path || access(path, F_OK))
		return 0;
	*ret_found = true;
	return from_file(path, s);
}

int secret_get(const struct key_source *src, bool confirm, struct secret *ret)
{
	struct secret s = {.kind = src->keyfile ? SLOT_KEYFILE : SLOT_PASSPHRASE};
	int given = !!src->passfile + !!src->keyfile + !!src->extpass, r;
	bool found = true;

	if (given > 1) {
		fprintf(stderr, "twofold: give only one of passfile, keyfile and extpass\n");
		return -EINVAL;
	}
	s.p = sodium_malloc(SECRET_MAX + 1);
	if (!s.p)
		return -ENOMEM;
	if (src->passfile || src->keyfile)
		r = from_file(src->passfile ? src->passfile : src->keyfile, &s);
	else if (src->extpass)
		r = from_command(src->extpass, &s);
	else {
		r = from_credentials(&s, &found);
		if (!r && !found)
			r = from_terminal(confirm, &s);
	}
	if (!r && s.kind == SLOT_PASSPHRASE && s.len && s.p[s.len - 1] == '\n')
		s.len--;
	if (!r && s.len == 0) {
		fprintf(stderr, "twofold: the passphrase or key is empty\n");
		r = -EINVAL;
	}
	if (r) {
		secret_fini(&s);
		return r;
	}
	*ret = s;
	return 0;
}

struct slot_cost slot_cost_from_env(void)
{
	const char *e = getenv("TWOFOLD_ARGON2");
	unsigned ops, mib;

	if (e && sscanf(e, "%u:%u", &ops, &mib) == 2 && ops && mib && mib <= 4096)
		return (struct slot_cost){ops, mib * 1024};
	return slot_cost_default;
}
