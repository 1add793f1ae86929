#include "json.h"

/* Length of the UTF-8 sequence at s, 0 where it is none (RFC 3629). */
static unsigned utf8_length(const uint8_t *s)
{
	unsigned n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

void json_put_string(struct buf *out, const char *text)
{
	const uint8_t *s = (const uint8_t *)text;

	if (!s) {
		buf_put(out, "null", 4);
		return;
	}
	buf_put_u8(out, '"');
	while (*s) {
		unsigned n = utf8_length(s);
		if (n == 0) {
			buf_printf(out, "\\udc%02x", *s++);
		} else if (n == 1 && (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7f)) {
			buf_printf(out, "\\u%04x", *s++);
		} else {
			buf_put(out, s, n);
			s += n;
		}
	}
	buf_put_u8(out, '"');
}
