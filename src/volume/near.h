/* Contents that a file is perhaps much like: what an editor saved it from, what it was copied from. Inside of the volume layer.
 *
 * Known by names (NAME of NAME.new, .NAME.x1y2, NAME~, #NAME#, and NAME~, NAME.bak, NAME.orig of NAME) and by what programs here have read, written and copied lately. Guesses
 * only: transfer_similar.c looks at the bytes before anything is built on one. */
#ifndef TWOFOLD_NEAR_H
#define TWOFOLD_NEAR_H
#include "internal.h"

#define NEAR_MAX 11u          /* contents */
#define NEAR_MIN_BYTES 65536u /* of a file that is worth it */

enum near_use { NEAR_READ, NEAR_WRITTEN };
/* Under tree_mu: notes a use of a regular file. */
void near_note(struct volume *v, const struct vnode *n, enum near_use use);
/* Under tree_mu: the file that has taken over from one which is shown in dir under that name and is about to go; 0: none. */
inum near_heir(struct volume *v, struct vnode *dir, const struct vnode *n, const char *name, size_t len);
/* Committed contents like that of the node that a peer with this knowledge should hold: node and dot of each (roots are not filled in). Takes tree_mu.
 * 0, -ENOMEM or an error of the journal. */
int near_contents(struct volume *v, const struct id *node, const struct vector *has, struct held_content ret[static NEAR_MAX], uint32_t *ret_n);
#endif
