/* Inside the journal layer: the connection, its prepared statements, and how a statement is bound, stepped and reset. */
#ifndef TWOFOLD_STATEMENT_H
#define TWOFOLD_STATEMENT_H
#include <sqlite3.h>

#include "journal.h"

enum statement {
	ST_META_GET, ST_META_SET,
	ST_NODE_GET, ST_NODE_BY_ID, ST_NODE_BY_LOCAL, ST_NODE_INSERT, ST_NODE_UPDATE, ST_NODE_DELETE, ST_NODE_RENUMBER, ST_EXTRA_RENUMBER, ST_BASE_RENUMBER,
	ST_BASE_NODE_RENUMBER, ST_ORPHANS, ST_COUNT_NODES, ST_MAX_LOCAL, ST_NODES_FROM,
	ST_LINK_GET, ST_LINK_BY_ID, ST_LINKS_BY_TAG, ST_LINKS_OF_PARENT, ST_DEAD_OF_PARENT, ST_LINKS_OF_NODE, ST_LINKS_FROM,
	ST_LINK_INSERT, ST_LINK_UPDATE, ST_LINK_DELETE,
	ST_DELETIONS, ST_DELETION_PUT, ST_DELETION_DELETE, ST_EXTRAS, ST_EXTRA_PUT, ST_EXTRA_DELETE, ST_EXTRAS_DROP, ST_EXTRA_BY_LOCAL,
	ST_DOT_PUT, ST_DOT_DELETE, ST_DOT_GET, ST_DOTS, ST_DOTS_BY_SEQ, ST_NEXT_REPLICA,
	ST_STEP_GET, ST_STEP_PUT, ST_STEP_DELETE,
	ST_BASE_GET, ST_BASE_PUT, ST_BASE_DELETE, ST_BASES, ST_BASE_BY_LOCAL,
	ST_TRASH_PUT, ST_TRASH_DELETE, ST_TRASH_LIST,
	ST_MEMBER_GET, ST_MEMBER_PUT, ST_MEMBERS, ST_OTHER_GET, ST_OTHER_BY_DOT, ST_OTHER_PUT,
	ST_PEERS, ST_PEER_PUT, ST_PEER_DELETE, ST_TOKEN_PUT, ST_TOKEN_GET,
	ST_EXCEPTIONS, ST_EXCEPTION_PUT, ST_EXCEPTION_DELETE, ST_GROUPS, ST_GROUP_PUT, ST_GROUP_DELETE,
	ST_SAMPLES, ST_SAMPLE_PUT, ST_SAMPLE_THIN,
	STATEMENTS
};

struct journal {
	sqlite3 *db;
	int wal_fd; /* kept: fdatasync of it makes commits durable; -1: read-only */
	bool read_only;
	bool has_samples; /* false: a journal from before samples, opened read-only */
	_Atomic uint64_t wal_bytes;
	sqlite3_stmt *st[STATEMENTS]; /* prepared at first use */
};

/* SQL of each statement, by number. */
extern const char *const statement_sql[STATEMENTS];

/* Negative errno of an SQLite result; logs what is damage or a failing disk. */
int journal_error(struct journal *j, int rc);
/* The statement, reset and unbound; NULL (and *ret_e) where it cannot be prepared. */
sqlite3_stmt *statement(struct journal *j, enum statement s, int *ret_e);

/* Binds by position from the format, one letter an argument: i uint64_t, t (const void *, size_t) bytes (NULL: SQL NULL), s text. */
int statement_bind(struct journal *j, sqlite3_stmt *st, const char *format, ...);
/* Prepares, binds and steps a statement that returns no row. */
#define statement_run(j, s, ...)                                                                   \
	({                                                                                         \
		int e_ = 0;                                                                        \
		sqlite3_stmt *st_ = statement((j), (s), &e_);                                      \
		if (st_)                                                                           \
			e_ = statement_bind((j), st_, __VA_ARGS__);                                \
		e_ ? e_ : statement_finish((j), st_);                                              \
	})
int statement_finish(struct journal *j, sqlite3_stmt *st); /* steps to the end, resets */
/* Steps once: 1 a row (stays open until the next use), 0 none (reset), negative. */
int statement_row(struct journal *j, sqlite3_stmt *st);

static inline uint64_t column_u64(sqlite3_stmt *st, int c) { return (uint64_t)sqlite3_column_int64(st, c); }
struct blob column_blob(sqlite3_stmt *st, int c);
/* 16 fixed bytes; false where the column has another length. */
bool column_16(sqlite3_stmt *st, int c, uint8_t ret[static 16]);
/* A row whose columns have impossible sizes or values. */
int row_damaged(const char *table);
#endif
