/* The log sink: one line a message, to standard error (with its priority in front where that is the journal of systemd) or to syslog.
 * Control characters are written as octal escapes. Log once, where an error is first seen, with its path or peer. Never a key, a passphrase
 * or a file's content. Callable from every thread. */
#ifndef TWOFOLD_LOG_H
#define TWOFOLD_LOG_H
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
/* From now on to syslog alone, facility daemon, with this program name; for the daemon. */
void log_to_syslog(const char *ident);
void log_set_level(enum log_level most);
void log_msg(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_msg(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_msg(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_LEVEL_DEBUG, __VA_ARGS__)
#endif
