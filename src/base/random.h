/* Random bytes for ids and nonces, without a system call for each. */
#ifndef TWOFOLD_RANDOM_H
#define TWOFOLD_RANDOM_H
#include <stddef.h>

/* From the kernel's generator; up to 32 bytes come out of a stock of the thread's own, which is thrown away 100 ms after it was drawn and in a
 * forked child: a memory image that is resumed twice goes on with other bytes unless it was in the middle of such a burst. Longer ones
 * (keys) are drawn each time. Cannot fail: without a generator the program ends, since nothing may be sealed then. */
void random_bytes(void *buf, size_t len);
#endif
