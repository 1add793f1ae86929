/* Parts: the unit of versions, of the journal and of the wire (design-replication 1, design-store 5).
 *
 * Record, as its author made it, never changed or re-sealed by anybody:
 *   format u8 (1) | kind u8 | id 16 | replica u64 | counter u64 | clock_ns u64 | vector | apart | sealed length u32 | sealed
 * Everything before `sealed` is in the clear and authenticated as additional data (record_seal adds the volume id).
 * The sealed plaintexts:
 *   place    parent 16 | name str | node 16 | mode type u32 (S_IFMT bits) | rdev u64 | parent before 16
 *   deletion node 16 | parent 16 | name str | places seen: vector | contents seen: vector
 *   content  form u8 | length u64 | form 0 (inline): bytes to the end; form 1 (object): object 16 | epoch u32 | root 32 | holes extents
 *   attrs    mode u32 (with type) | uid u32 | gid u32 | rdev u64 | count u16 | (name str | value u32 length + bytes) each, sorted by name
 *   times    mtime sec i64 nsec u32 | ctime sec i64 nsec u32
 *   member   removed u8 | name str | static public key 32 | address str
 *   consent  what u8 (1: mass deletions); its vector is the knowledge of who said it: deletions inside are not held any more
 * A kind that is not known is kept and passed on unread: part_parse gives its clear half only. */
#ifndef TWOFOLD_PART_H
#define TWOFOLD_PART_H
#include "extents.h"
#include "ids.h"
#include "keys.h"

enum part_kind { PART_PLACE = 1, PART_DELETION, PART_CONTENT, PART_ATTRS, PART_TIMES, PART_MEMBER, PART_CONSENT };
#define NAME_LEN_MAX 255
#define XATTRS_MAX_BYTES (512u << 10) /* names and values of one node */
#define XATTR_VALUE_MAX 65536
#define INLINE_MAX 8192 /* a longer inline content is refused by the parser; what is written stays below INLINE_LIMIT */

struct timespec64 {
	int64_t sec;
	uint32_t nsec;
};
struct place {
	struct id parent, node, parent_before;
	uint32_t type; /* S_IFDIR, S_IFREG, ... */
	uint64_t rdev;
	uint8_t name_len;
	char name[NAME_LEN_MAX + 1]; /* NUL after it for printing; never '/', "." or ".." */
};
struct deletion {
	struct id node, parent;
	uint8_t name_len;
	char name[NAME_LEN_MAX + 1];
	struct vector places_seen, contents_seen;
};
struct content {
	bool is_object;
	uint64_t length; /* bytes */
	uint8_t *bytes;  /* inline: owned, length bytes */
	struct id object;
	uint32_t epoch;
	struct root root;
	struct extents holes;
};
struct xattr {
	char *name; /* owned, NUL-terminated */
	uint8_t *value;
	uint32_t value_len;
};
struct attrs {
	uint32_t mode, uid, gid;
	uint64_t rdev;
	struct xattr *xattr; /* owned, sorted by name */
	uint16_t n_xattr;
};
struct times {
	struct timespec64 mtime, ctime;
};
struct member {
	bool removed;
	char name[33];
	uint8_t static_public[32];
	char address[256]; /* HOST:PORT or empty */
};
/* Zero-initialise; part_fini frees all that it owns. */
struct part {
	uint8_t kind;
	struct id id; /* of the link (place, deletion), the node (content, attrs, times) or the replica (member: u64 LE, zeros) */
	struct stamp stamp;
	struct vector vector; /* all dots of this part that its author had merged, its own not included */
	struct dots apart;    /* content only */
	union {
		struct place place;
		struct deletion deletion;
		struct content content;
		struct attrs attrs;
		struct times times;
		struct member member;
	};
	bool opened; /* false: only the clear half is filled in (unknown kind or not asked for) */
};
void part_fini(struct part *p);
/* Seals and appends the record. 0, -EMSGSIZE, -ENOMEM, -EINVAL (a name or length out of bounds: our own bug, refused). */
int part_seal(const struct keyring *k, const struct part *p, struct buf *out);
/* Parses; opens where the kind is known and `open`. *ret is overwritten. 0; -EUCLEAN (malformed, or a name, mode, count that no
 * honest author writes: refused for its own bytes alone, the same everywhere); -EBADMSG; -ENOMEM. */
int part_parse(const struct keyring *k, const uint8_t *record, size_t len, bool open, struct part *ret);
/* The sealed plaintext's encoding alone, for the fuzz target. */
int part_decode_body(struct part *p, const uint8_t *body, size_t len);
bool name_valid(const void *name, size_t len); /* 1..255 bytes, no '/', no NUL, not "." or ".." */

/* What is locally kept of a clear half where the rest is not needed. */
struct part_ref {
	struct stamp stamp;
	struct vector vector; /* owned */
};
void content_fini(struct content *c);
int content_copy(struct content *ret, const struct content *c);
void attrs_fini(struct attrs *a);
int attrs_copy(struct attrs *ret, const struct attrs *a);
const struct xattr *attrs_find(const struct attrs *a, const char *name);
int attrs_set(struct attrs *a, const char *name, const void *value, size_t len); /* -ENOSPC past XATTRS_MAX_BYTES */
int attrs_remove(struct attrs *a, const char *name);                             /* -ENODATA */
#endif
