/* Finding and mending what does not agree inside of an object: for check, scrub and healing.
 *
 * What is mended is damaged, so it has no good state that a power cut could take away: pages and entries are written in place. A page
 * that is pending in the redo log is left alone: it is read from there and goes in place by itself. All functions are thread-safe; the
 * pages concerned are kept from writers meanwhile. */
#ifndef TWOFOLD_OBJECT_HEAL_H
#define TWOFOLD_OBJECT_HEAL_H
#include "object.h"

/* Gives an object's file its header page (and its folder) again where it is missing or does not authenticate; pages that are in the file stay.
 * It must not be open. 0, -EROFS, -ENOSPC, -EIO. */
int object_heal_header(struct object_store *s, uint64_t local, const struct id *object, uint32_t epoch);
/* Makes the folders of objects that are missing. 0, -ENOSPC, -EIO, ... */
int object_heal_folders(struct object_store *s);
/* Lets go of a descriptor whose file is not the one that the object's name leads to. True: the file was lost, what was opened is. */
bool object_lost_file(struct object *o);
/* The entries of all present pages, read from the file anew, add up to the object's root: 0; -EBADMSG: they do not; -ENOMEM, -EIO. */
int object_check_entries(struct object *o);
/* Which of n pages (of one group) are present and do not open, read from the file itself; nothing is logged. 0, -ENOMEM, -EIO. */
int object_damaged(struct object *o, uint64_t first, uint32_t n, bool *ret_bad);
/* Replaces the entries of all present pages by these (of a peer whose content has the same root): 32 * pages bytes, those of holes are not looked
 * at. 0; -EBADMSG: they do not add up to the root (nothing was written); -EIO, ... */
int object_heal_entries(struct object *o, const uint8_t *entries, uint64_t pages);
/* Writes a sealed page back. 0; -ESTALE: the page has another entry here (it was written, or the entry is damaged); -EBADMSG: does not open. */
int object_heal_page(struct object *o, uint64_t page, const uint8_t entry[static TAG_ENTRY_LEN], const uint8_t sealed[static PAGE_LEN]);
/* Numbers up to `local` are in use, whatever lies in objects/. */
void object_store_used_local(struct object_store *s, uint64_t local);
#endif
