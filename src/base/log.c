#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

static _Atomic int most_verbose = LOG_LEVEL_INFO;
static _Atomic bool use_syslog;

void log_to_syslog(const char *ident)
{
	openlog(ident, LOG_PID, LOG_DAEMON);
	atomic_store(&use_syslog, true);
}

void log_set_level(enum log_level most) { atomic_store(&most_verbose, (int)most); }

/* Names of files and words of peers come from others: no line feed of theirs begins a line of its own, and no terminal obeys them. */
static void escape(char *out, size_t size, const char *in)
{
	size_t n = 0;

	for (; *in && n + 5 <= size; in++)
		if ((unsigned char)*in < 0x20 || *in == 0x7f)
			n += (size_t)snprintf(out + n, size - n, "\\%03o", (unsigned)(unsigned char)*in);
		else
			out[n++] = *in;
	out[n] = 0;
}

/* Standard error is the journal of systemd (the variable names the device and inode of its socket): a line may begin with its priority. */
static bool stderr_is_journal(void)
{
	const char *e = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return e && sscanf(e, "%llu:%llu", &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	static const char *const word[] = {"error: ", "warning: ", "", "debug: "};
	char raw[2048], line[3072];
	va_list ap;

	if ((int)level > atomic_load(&most_verbose))
		return;
	va_start(ap, fmt);
	vsnprintf(raw, sizeof raw, fmt, ap);
	va_end(ap);
	escape(line, sizeof line, raw);
	if (atomic_load(&use_syslog))
		syslog(priority[level], "%s", line);
	else if (stderr_is_journal())
		fprintf(stderr, "<%d>%s\n", priority[level], line);
	else
		fprintf(stderr, "twofold: %s%s\n", word[level], line);
}
