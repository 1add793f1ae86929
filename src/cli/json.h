/* The little of JSON that the command line writes. */
#ifndef TWOFOLD_JSON_H
#define TWOFOLD_JSON_H
#include "bytes.h"

/* A quoted string, or null for NULL. Bytes that are not UTF-8 come as \udcXX (as Python's surrogateescape has it). */
void json_put_string(struct buf *out, const char *s);
#endif
