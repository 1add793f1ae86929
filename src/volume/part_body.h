/* The sealed plaintext of each kind of part; inside of the volume layer, used by part.c. The layouts stand in part.h. */
#ifndef TWOFOLD_PART_BODY_H
#define TWOFOLD_PART_BODY_H
#include "part.h"

bool part_kind_known(uint8_t kind);
/* Appends the plaintext of p, whose kind is known. 0, -EINVAL (what the parser would refuse), -ENOMEM. */
int part_encode_body(const struct part *p, struct buf *out);
void part_body_fini(struct part *p);
#endif
