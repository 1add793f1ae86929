/* -o a,b=c of mount and serve. An option that is not known is refused by name; none is parsed and ignored but those that mount(8) itself
 * carries out or that only speak to it (auto, noauto, user, nofail, _netdev, x-*). */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool speaks_to_mount8(const char *word)
{
	static const char *const words[] = {"auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev", "defaults", "exec", "rw",
		"async", "atime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime", NULL};

	for (int i = 0; words[i]; i++)
		if (!strcmp(word, words[i]))
			return true;
	return !strncmp(word, "x-", 2) || !strncmp(word, "comment=", 8);
}

static int number(const char *word, const char *value, unsigned base, unsigned long max, unsigned long *ret)
{
	char *end;

	errno = 0;
	unsigned long n = strtoul(value, &end, (int)base);
	if (errno || end == value || *end || n > max || *value == '-')
		return usage_error("%s=%s: not a number that it can take", word, value);
	*ret = n;
	return 0;
}

static int set_fsync(struct run_options *o, const char *value)
{
	if (!strcmp(value, "local"))
		o->fsync = FSYNC_LOCAL;
	else if (!strcmp(value, "peer"))
		o->fsync = FSYNC_PEER;
	else if (!strcmp(value, "all"))
		o->fsync = FSYNC_ALL;
	else
		return usage_error("fsync=%s: local, peer or all", value);
	return 0;
}

static int set_value(struct run_options *o, const char *word, char *value, bool mounting)
{
	unsigned long n;
	int r = 0;

	if (!*value)
		return usage_error("%s=: the value is missing", word);
	if (!strcmp(word, "passfile"))
		o->key.passfile = value;
	else if (!strcmp(word, "keyfile"))
		o->key.keyfile = value;
	else if (!strcmp(word, "extpass"))
		o->key.extpass = value;
	else if (!strcmp(word, "listen"))
		o->listen = value;
	else if (!strcmp(word, "scrub")) {
		if (!strcmp(value, "off"))
			o->scrub_s = 0;
		else if (!strcasecmp(value, "weekly"))
			o->scrub_s = 7 * 86400;
		else if (!(r = number(word, value, 10, 3650, &n)) && n)
			o->scrub_s = n * 86400;
		else
			r = r ? r : usage_error("scrub=%s: weekly, a number of days, or off", value);
	} else if (!strcmp(word, "deletions")) {
		o->apply_deletions = !strcmp(value, "apply");
		if (!o->apply_deletions && strcmp(value, "hold"))
			return usage_error("deletions=%s: hold or apply", value);
	} else if (mounting && !strcmp(word, "fsync"))
		r = set_fsync(o, value);
	else if (!strcmp(word, "commit")) {
		r = number(word, value, 10, 3600, &n);
		if (!r && n == 0)
			r = usage_error("commit=0: at least 1 second");
		if (!r)
			o->commit_ms = (unsigned)n * 1000;
	} else if (mounting && !strcmp(word, "fsync_timeout")) {
		r = number(word, value, 10, 86400, &n);
		if (!r && n == 0)
			r = usage_error("fsync_timeout=0: at least 1 second");
		if (!r)
			o->fsync_timeout_ms = (unsigned)n * 1000;
	} else if (mounting && !strcmp(word, "uid")) {
		r = number(word, value, 10, UINT32_MAX - 1, &n);
		o->has_uid = true, o->uid = r ? 0 : (uint32_t)n;
	} else if (mounting && !strcmp(word, "gid")) {
		r = number(word, value, 10, UINT32_MAX - 1, &n);
		o->has_gid = true, o->gid = r ? 0 : (uint32_t)n;
	} else if (mounting && !strcmp(word, "umask")) {
		r = number(word, value, 8, 0777, &n);
		o->has_umask = true, o->umask = r ? 0 : (uint32_t)n;
	} else
		return usage_error("option %s=%s is not known", word, value);
	return r;
}

static int set_flag(struct run_options *o, const char *word, bool mounting)
{
	if (!strcmp(word, "ro"))
		o->ro = true;
	else if (mounting && !strcmp(word, "allow_other"))
		o->allow_other = true;
	else if (mounting && !strcmp(word, "nodev"))
		o->nodev = true;
	else if (mounting && !strcmp(word, "nosuid"))
		o->nosuid = true;
	else if (mounting && !strcmp(word, "noexec"))
		o->noexec = true;
	else if (mounting && !strcmp(word, "noatime"))
		o->noatime = true;
	else if (mounting && !strcmp(word, "dev"))
		o->dev = true;
	else if (mounting && !strcmp(word, "suid"))
		o->suid = true;
	else if (!mounting || !speaks_to_mount8(word))
		return usage_error(!strcmp(word, "remount") ? "%s: a mount cannot be changed; unmount, and mount with the new options" : "option %s is not known", word);
	return 0;
}

/* Cuts at commas; "\," stands for a comma in a value. */
static char *next_word(char **at)
{
	char *start = *at, *out = start, *in = start;

	if (!start)
		return NULL;
	while (*in && *in != ',') {
		if (in[0] == '\\' && (in[1] == ',' || in[1] == '\\'))
			in++;
		*out++ = *in++;
	}
	*at = *in ? in + 1 : NULL;
	*out = 0;
	return start;
}

int run_options_parse(struct run_options *o, const char *list, bool mounting)
{
	/* the strings stay referenced, so each list gets a copy of its own */
	for (int i = 0; i < 3; i++)
		if (!o->lists[i]) {
			char *at = o->lists[i] = strdup(list), *word;
			if (!at)
				return EXIT_FAILED;
			while ((word = next_word(&at))) {
				char *value = strchr(word, '=');
				int r = 0;
				if (!*word)
					continue;
				if (value && !speaks_to_mount8(word)) {
					*value++ = 0;
					r = set_value(o, word, value, mounting);
				} else
					r = set_flag(o, word, mounting);
				if (r)
					return r;
			}
			return 0;
		}
	return usage_error("-o given more than three times");
}

void run_options_fini(struct run_options *o)
{
	for (int i = 0; i < 3; i++)
		free(o->lists[i]);
	*o = (struct run_options){0};
}
