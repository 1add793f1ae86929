/* What the volume knows of other replicas, read together; inside of sync. */
#ifndef TWOFOLD_PEERING_H
#define TWOFOLD_PEERING_H
#include "volume.h"
#include "replicate.h"

/* Its members, and which of them are peers here. All owned. */
struct known {
	struct peer_config *peers;
	struct member *members;
	uint64_t *replicas; /* of the members */
	uint32_t n_peers, n_members;
};
int known_read(struct volume *v, struct known *ret); /* ret is overwritten; to be finished also where it fails */
void known_fini(struct known *k);
const struct member *known_member(const struct known *k, uint64_t replica); /* NULL: it is none */
/* Every member whose address is known and that is no peer here yet becomes one (to be dialed); k is read anew then. */
int known_mesh(struct volume *v, struct known *k);

/* What a peer without a connection lacks, from what it acknowledged: fills backlog_* and oldest_ns. *ret_has (owned by the caller, also where it fails): its knowledge. */
int peering_backlog(struct volume *v, struct peer_status *st, struct vector *ret_has);
#endif
