/* bench: programs that it runs. */
#include "cmd_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

#define END_MS 5000     /* how long a program gets between SIGTERM and SIGKILL */
#define TICK_NS 300000000u /* between two calls of a tick */
#define OUTPUT_MAX (1u << 20)

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void exec_it(char *const *argv, int in, int out, int err, int death_signal, pid_t parent)
{
	char *mine[32] = {(char *)"twofold"};

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, death_signal);
	signal(SIGPIPE, SIG_DFL);
	if (getppid() != parent)
		_exit(127);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	if (argv[0])
		execvp(argv[0], argv);
	else {
		for (int i = 1; i < 31 && argv[i]; i++)
			mine[i] = argv[i];
		execv("/proc/self/exe", mine);
	}
	_exit(127);
}

/* Waits, at most until the deadline (0: for ever). 1: it ended; 0: not yet. */
static int wait_until(pid_t pid, uint64_t deadline_ns, int *ret_status)
{
	for (;;) {
		pid_t got = waitpid(pid, ret_status, deadline_ns ? WNOHANG : 0);
		if (got == pid)
			return 1;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (deadline_ns && bench_now_ns() >= deadline_ns)
			return 0;
		if (deadline_ns)
			usleep(2000);
	}
}

static void end(pid_t pid, int *ret_status)
{
	kill(-pid, SIGTERM);
	if (wait_until(pid, bench_now_ns() + END_MS * 1000000ull, ret_status) == 0) {
		kill(-pid, SIGKILL);
		wait_until(pid, 0, ret_status);
	}
}

/* Appends what can be read now. False at the end of the output. */
static bool drain(int fd, struct buf *to)
{
	char bytes[4096];
	ssize_t n = read(fd, bytes, sizeof bytes);

	if (n > 0 && to && to->len + (size_t)n <= OUTPUT_MAX)
		buf_put(to, bytes, (size_t)n);
	return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Reads both outputs until they are closed. -EINTR: stopped; -ETIMEDOUT: the tick had enough. */
static int collect(const struct bench_child *c, int out, int err)
{
	struct pollfd p[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
	uint64_t ticked = bench_now_ns();

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (!c->finish && atomic_load(&bench_stop))
			return -EINTR;
		if (c->tick && bench_now_ns() - ticked > TICK_NS) {
			if (!c->tick(c->ctx))
				return -ETIMEDOUT;
			ticked = bench_now_ns();
		}
		if (poll(p, 2, 100) <= 0)
			continue;
		if (p[0].revents && !drain(out, c->out))
			p[0].fd = -1;
		if (p[1].revents && !drain(err, c->err))
			p[1].fd = -1;
	}
	return 0;
}

static void close_pair(int fd[2])
{
	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	fd[0] = fd[1] = -1;
}

static int follow(const struct bench_child *c, pid_t pid, int in, int out, int err)
{
	int status = 0, r;

	/* what is sent is a line, far smaller than a pipe; who does not read it says why itself */
	if (c->input && write(in, c->input, strlen(c->input)) < 0)
		errno = 0;
	close(in);
	r = collect(c, out, err);
	if (r) {
		end(pid, &status);
		return r;
	}
	r = wait_until(pid, 0, &status);
	return r < 0 ? r : WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

int bench_run(const struct bench_child *c)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, r = 0;
	pid_t parent = getpid(), pid = -1;

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || (pid = fork()) < 0)
		r = -errno;
	else if (pid == 0)
		exec_it(c->argv, in[0], out[1], err[1], c->finish ? SIGTERM : SIGKILL, parent);
	else {
		close(out[1]);
		close(err[1]);
		out[1] = err[1] = -1;
		r = follow(c, pid, in[1], out[0], err[0]);
		in[1] = -1;
	}
	close_pair(in);
	close_pair(out);
	close_pair(err);
	return r;
}

int bench_spawn(char *const *argv, const char *log_path, pid_t *ret)
{
	CLEANUP_CLOSE int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	CLEANUP_CLOSE int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	pid_t parent = getpid(), pid;

	if (log < 0 || null < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		exec_it(argv, null, log, log, SIGTERM, parent);
	*ret = pid;
	return 0;
}
