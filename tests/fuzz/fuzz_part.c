/* Parts from disk and wire. First byte 0: the rest is a whole record, of which the clear half is parsed. Else: the kind; the rest is the
 * plaintext of its sealed half. What is accepted must encode to the same bytes again: there is one form of everything. */
#include <stdlib.h>

#include "part_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct part p = {0};
	struct buf again = {0};

	if (!size)
		return 0;
	if (!data[0]) {
		if (!part_parse(NULL, data + 1, size - 1, false, &p))
			part_fini(&p);
		return 0;
	}
	p.kind = data[0];
	if (part_decode_body(&p, data + 1, size - 1))
		return 0;
	if (part_encode_body(&p, &again) || again.len != size - 1 || memcmp(again.p, data + 1, again.len))
		abort();
	buf_fini(&again);
	part_fini(&p);
	return 0;
}
