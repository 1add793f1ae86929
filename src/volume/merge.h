/* Merge rules (design-replication 2), pure: no I/O, no locks.
 *
 * Places, attributes, times, members: the larger stamp stays. Contents of a node and deletions of a link are sets: each one held that no
 * other supersedes. `model/knowledge.py` is the specification; tests compare with it. */
#ifndef TWOFOLD_MERGE_H
#define TWOFOLD_MERGE_H
#include "part.h"

/* The clear half of one version in a set. Borrowed pointers. */
struct version {
	struct stamp stamp;
	const struct vector *vector;
	const struct dots *apart; /* NULL: empty */
};
/* Does version p supersede the version named d? d != p's dot, d in p.vector, d not in p.apart. */
bool version_supersedes(const struct version *p, struct dot d);
/* Should `new` be held beside held[0..n)? false: it is held already, or one of held or of `gone` (versions that were merged and superseded,
 * whose vectors still speak; may be NULL/0) supersedes it. ret_drop[i] = held[i] is superseded by it. */
bool set_merge(const struct version *held, uint32_t n, const struct version *gone, uint32_t n_gone, const struct version *new,
	       bool *ret_drop);
/* Index of the version with the largest stamp; n > 0. */
uint32_t set_winner(const struct version *held, uint32_t n);
/* Vector and apart for a new local content of a node: vector = join of the held ones' vectors and dots (and `context`, all dots ever merged
 * for the node); apart = every held one but the winner `base`, plus what their aparts still keep apart. 0 or -ENOMEM. */
int set_next(const struct version *held, uint32_t n, const struct vector *context, uint32_t base, struct vector *ret_vector,
	     struct dots *ret_apart);

/* H(node, d) = BLAKE2b-128("twofold copy" | node | replica u64 | counter u64): node id of the copy that a losing content d is shown as;
 * its link id the same with "twofold copy link". */
void copy_node_id(const struct id *node, struct dot d, struct id *ret);
void copy_link_id(const struct id *node, struct dot d, struct id *ret);

/* STEM.conflict-YYYYMMDD-HHMMSS-REPLICA-XXXXXXXX.EXT (design-replication 3d). hex_digits: 8, or 32 where 8 are taken.
 * ret_name: NAME_LEN_MAX + 1 bytes; returns its length. */
size_t conflict_name(const void *name, size_t len, uint64_t clock_ns, const char *replica_name, const struct id *link,
		     unsigned hex_digits, char *ret_name);

/* Hybrid clock: the next stamp of a replica: larger than `last` and at least the wall clock. */
uint64_t clock_next(uint64_t last_ns, uint64_t wall_ns);
#endif
