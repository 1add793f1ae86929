/* The small replica as a backend of the histories: local calls with write-down, messages of sealed records filtered by knowledge. */
#ifndef TWOFOLD_TEST_MINI_OPS_H
#define TWOFOLD_TEST_MINI_OPS_H
#include "history.h"
#include "mini.h"

extern const struct history_backend mini_backend;
/* Without it a local call writes nothing down: the histories must then fail, which shows that they can. */
extern bool mini_write_down;
#endif
