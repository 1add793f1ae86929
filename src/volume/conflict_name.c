/* Names of conflict copies (design-replication 3d). The result is a function of its arguments alone: every replica must come to the
 * same name. */
#include <stdio.h>
#include <time.h>

#include "merge.h"

#define MARK ".conflict-"
#define MARK_LEN (sizeof MARK - 1)
#define EXT_MAX 16
#define REPLICA_NAME_MAX 32
#define NS_PER_SEC UINT64_C(1000000000)

static bool digits(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] < '0' || s[i] > '9')
			return false;
	return true;
}

static bool hex_only(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return false;
	return true;
}

static bool replica_chars(const char *s, size_t n)
{
	if (n < 1 || n > REPLICA_NAME_MAX)
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
			return false;
	}
	return true;
}

/* Is s, n bytes, YYYYMMDD-HHMMSS-REPLICA-HEX with 8 or 32 digits of hex? */
static bool is_mark_tail(const char *s, size_t n)
{
	if (n < 15 + 1 + 1 + 1 + 8 || !digits(s, 8) || s[8] != '-' || !digits(s + 9, 6) || s[15] != '-')
		return false;
	for (size_t hex = 8; hex <= ID_HEX_LEN; hex += ID_HEX_LEN - 8) {
		if (n < 16 + 1 + 1 + hex || s[n - hex - 1] != '-')
			continue;
		if (hex_only(s + n - hex, hex) && replica_chars(s + 16, n - hex - 1 - 16))
			return true;
	}
	return false;
}

/* Length of the stem without a conflict mark that it ends in. Only a whole mark counts: "report.conflict-of-interest" is a name like
 * any other. Something must be left before it. */
static size_t without_mark(const char *s, size_t len)
{
	for (size_t i = len; i-- > 1;)
		if (len - i > MARK_LEN && !memcmp(s + i, MARK, MARK_LEN) && is_mark_tail(s + i + MARK_LEN, len - i - MARK_LEN))
			return i;
	return len;
}

/* Length of what stands before the extension; the whole length where there is none. */
static size_t stem_len(const char *s, size_t len)
{
	for (size_t i = len; i-- > 1;)
		if (s[i] == '.')
			return len - i - 1 >= 1 && len - i - 1 <= EXT_MAX ? i : len;
	return len;
}

size_t conflict_name(const void *name, size_t len, uint64_t clock_ns, const char *replica_name, const struct id *link,
		     unsigned hex_digits, char *ret_name)
{
	const char *s = name;
	char hex[ID_HEX_LEN + 1], tail[128];
	time_t sec = (time_t)(clock_ns / NS_PER_SEC);
	size_t stem = stem_len(s, len), ext = len - stem;
	struct tm tm;

	id_hex(link, hex);
	gmtime_r(&sec, &tm);
	int n = snprintf(tail, sizeof tail, MARK "%04d%02d%02d-%02d%02d%02d-%.*s-%.*s", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
			 tm.tm_hour, tm.tm_min, tm.tm_sec, REPLICA_NAME_MAX, replica_name, (int)hex_digits, hex);
	size_t tail_len = n < 0 ? 0 : (size_t)n;
	stem = without_mark(s, stem);
	size_t most = NAME_LEN_MAX - tail_len - ext;
	if (stem > most) {
		stem = most;
		/* not in the middle of a UTF-8 character */
		while (stem && ((unsigned char)s[stem] & 0xc0) == 0x80)
			stem--;
	}
	memcpy(ret_name, s, stem);
	memcpy(ret_name + stem, tail, tail_len);
	memcpy(ret_name + stem + tail_len, s + len - ext, ext);
	ret_name[stem + tail_len + ext] = 0;
	return stem + tail_len + ext;
}
