/* The volume as transfers see it: which content is where. For content_source.c and for the batch that receives. */
#ifndef TWOFOLD_CONTENT_SOURCE_H
#define TWOFOLD_CONTENT_SOURCE_H
#include "transfer.h"

/* Borrow the volume. Their functions take the tree mutex and a file's lock themselves: call them with neither held. */
struct transfer_env content_env(struct volume *v);
struct transfer_lookup content_lookup(struct volume *v);
#endif
