#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <syslog.h>

static _Atomic int most_verbose = LOG_LEVEL_INFO;
static _Atomic bool use_syslog;

void log_to_syslog(const char *ident)
{
	openlog(ident, LOG_PID, LOG_DAEMON);
	atomic_store(&use_syslog, true);
}

void log_set_level(enum log_level most) { atomic_store(&most_verbose, (int)most); }

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	static const char *const word[] = {"error: ", "warning: ", "", "debug: "};
	char line[2048];
	va_list ap;

	if ((int)level > atomic_load(&most_verbose))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	if (atomic_load(&use_syslog))
		syslog(priority[level], "%s", line);
	fprintf(stderr, "twofold: %s%s\n", word[level], line);
}
