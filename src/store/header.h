/* The store's directory, its lock and its `volume` file (design-store 1).
 *
 * volume, 4096 bytes: magic "TWOFOLD1" 8 | format u32 (1) | cipher u32 | volume id 16 | replica u64 | replica name 32 (zero padded) |
 * static public key 32 | static secret key sealed 24+32+16 (keyring_seal_header, aad = the bytes before) |
 * slot count u32 (8) | 8 slots of SLOT_LEN | ... zeros | at 4064: BLAKE2b-256 of the 4064 bytes before (unkeyed: damage shows
 * before a passphrase is asked for).
 * Replaced by write + fsync + rename + fsync of the folder. */
#ifndef TWOFOLD_HEADER_H
#define TWOFOLD_HEADER_H
#include "slot.h"

#define HEADER_SLOTS 8
#define REPLICA_NAME_MAX 32
#define FORMAT_VERSION 1
struct header {
	struct id volume;
	enum cipher cipher;
	uint64_t replica;
	char name[REPLICA_NAME_MAX + 1];
	uint8_t static_public[32];
	uint8_t static_sealed[24 + 32 + 16];
	uint8_t slot[HEADER_SLOTS][SLOT_LEN];
};
/* A file in the store: the last commit of whoever had it open failed; says why, or nothing. Gone after the next successful open. */
#define FAILED_NOTE "failed"
bool replica_name_valid(const char *name); /* [A-Za-z0-9_-]{1,32} */
/* Makes the empty store at path (which must not exist or be an empty directory): folders objects/00..ff, incoming, outgoing,
 * lock, all fsynced. No volume file yet: header_write does that last. On failure nothing half-made stays.
 * 0; -ENOTEMPTY, -EEXIST, or what mkdir and fsync say. */
int store_make(const char *path);
/* Removes what store_make made, for undoing an init or join that failed later. */
void store_unmake(const char *path);
/* Opens the directory and takes its lock (OFD write lock on STORE/lock, waiting up to wait_ms).
 * 0 and a directory descriptor and the lock's; -EBUSY: in use; -ENOENT, -ENOTDIR; -EUCLEAN: no lock file, not a store. */
int store_lock(const char *path, int wait_ms, int *ret_dirfd, int *ret_lockfd);
/* 0; -ENOENT: no volume file; -EUCLEAN: damaged, another magic or an unknown format. */
int header_read(int dirfd, struct header *ret);
int header_parse(const uint8_t *page, size_t len, struct header *ret); /* what the fuzz target calls */
/* 0; -EINVAL: a field that header_parse would refuse; or what the file operations say. The old file stays where it fails. */
int header_write(int dirfd, const struct header *h);
/* Tries the secret on every slot. 0, -ENOKEY, -ENOMEM. */
int header_unlock(const struct header *h, const void *secret, size_t len, enum slot_kind kind, uint8_t ret_master[static KEY_LEN]);
/* The replica's static secret key (Noise). 0 or -EBADMSG. */
int header_static_secret(const struct header *h, const struct keyring *k, uint8_t ret_secret[static 32]);
/* Seals the secret key (the caller's 32 random bytes) into h and sets its public key. Needs volume, cipher, replica and name
 * set: they are its additional data, so it is sealed anew when one of them changes. */
void header_set_static(struct header *h, const struct keyring *k, const uint8_t secret[static 32]);
#endif
