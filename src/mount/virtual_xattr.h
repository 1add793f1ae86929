/* The tree of user.twofold.*: counters, histograms and peers as names and values in text. Never stored. The same tree feeds the virtual
 * extended attributes, `twofold status`, metrics and the report. */
#ifndef TWOFOLD_VIRTUAL_XATTR_H
#define TWOFOLD_VIRTUAL_XATTR_H
#include "bytes.h"
#include "volume.h"

#define VIRTUAL_PREFIX "user.twofold."
static inline bool virtual_is(const char *name) { return !strncmp(name, VIRTUAL_PREFIX, sizeof(VIRTUAL_PREFIX) - 1); }

/* Calls fn for each (name without the prefix, value) of the volume: op.NAME and stage.NAME ("count=.. total_us=.. p50_us=.. p99_us=..
 * max_us=.."), bytes.NAME and count.NAME (a number), peer.NAME.FIELD. fn returns false to stop. 0 or -ENOMEM. */
typedef bool virtual_fn(void *ctx, const char *name, const char *value);
int virtual_each(struct volume *v, virtual_fn *fn, void *ctx);

/* What the mount adds on its root; NULL: not there. */
struct virtual_extra {
	const char *store, *control, *mountpoint;
};
/* Value of `name` (with the prefix) appended to out. Counters and peers on the root only; state, version, lacking and delta-saved on each file. -ENODATA. */
int virtual_get(struct volume *v, inum ino, const char *name, const struct virtual_extra *x, struct buf *out);
/* The names, each with its closing NUL, appended to out: nothing but for the root. */
int virtual_list(struct volume *v, inum ino, const struct virtual_extra *x, struct buf *out);
#endif
