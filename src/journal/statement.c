/* All SQL of the journal, and the few lines that run it. */
#include "statement.h"

#include <errno.h>
#include <stdarg.h>

#include "log.h"

#define NODE_COLUMNS "row, id, type, nlink, links, local, orphan, derived, extras, attrs, times, content"
#define LINK_COLUMNS "row, id, node, parent, tag, live, deletions, place"

const char *const statement_sql[STATEMENTS] = {
	[ST_META_GET] = "SELECT value FROM meta WHERE key=?1",
	[ST_META_SET] = "INSERT INTO meta(key, value) VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET value=?2",

	[ST_NODE_GET] = "SELECT " NODE_COLUMNS " FROM node WHERE row=?1",
	[ST_NODE_BY_ID] = "SELECT row FROM node WHERE id=?1",
	[ST_NODE_BY_LOCAL] = "SELECT row FROM node WHERE local=?1 AND local!=0",
	[ST_NODE_INSERT] = "INSERT INTO node(" NODE_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
	[ST_NODE_UPDATE] = "UPDATE node SET type=?2, nlink=?3, links=?4, local=?5, orphan=?6, derived=?7, extras=?8,"
			   " attrs=coalesce(?9, attrs), times=coalesce(?10, times), content=coalesce(?11, content) WHERE row=?1",
	[ST_NODE_DELETE] = "DELETE FROM node WHERE row=?1",
	[ST_NODE_RENUMBER] = "UPDATE node SET row=?2 WHERE row=?1",
	[ST_EXTRA_RENUMBER] = "UPDATE content_extra SET node=?2 WHERE node=?1",
	[ST_BASE_RENUMBER] = "UPDATE base SET node=?2 WHERE node=?1",
	[ST_BASE_NODE_RENUMBER] = "UPDATE base SET base_node=?2 WHERE base_node=?1",
	[ST_ORPHANS] = "SELECT row FROM node WHERE orphan!=0 AND row>?1 ORDER BY row LIMIT ?2",
	[ST_COUNT_NODES] = "SELECT count(*) FROM node",
	[ST_NODES_FROM] = "SELECT row FROM node WHERE row>?1 ORDER BY row LIMIT ?2",
	[ST_MAX_LOCAL] = "SELECT max(l) FROM (SELECT max(local) l FROM node WHERE local!=0 UNION ALL SELECT max(local) FROM content_extra"
			 " UNION ALL SELECT max(local) FROM base UNION ALL SELECT max(local) FROM trash)",

	[ST_LINK_GET] = "SELECT " LINK_COLUMNS " FROM link WHERE row=?1",
	[ST_LINK_BY_ID] = "SELECT row FROM link WHERE id=?1",
	[ST_LINKS_BY_TAG] = "SELECT " LINK_COLUMNS " FROM link WHERE tag=?1 AND live=1",
	[ST_LINKS_OF_PARENT] = "SELECT " LINK_COLUMNS " FROM link WHERE parent=?1 AND live=1 AND row>?2 ORDER BY row",
	[ST_DEAD_OF_PARENT] = "SELECT " LINK_COLUMNS " FROM link WHERE parent=?1 AND live=0 ORDER BY row",
	[ST_LINKS_OF_NODE] = "SELECT " LINK_COLUMNS " FROM link WHERE node=?1 ORDER BY row",
	[ST_LINKS_FROM] = "SELECT " LINK_COLUMNS " FROM link WHERE row>?1 ORDER BY row",
	[ST_LINK_INSERT] = "INSERT INTO link(" LINK_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8)",
	[ST_LINK_UPDATE] = "UPDATE link SET node=?2, parent=?3, tag=?4, live=?5, deletions=?6, place=coalesce(?7, place) WHERE row=?1",
	[ST_LINK_DELETE] = "DELETE FROM link WHERE row=?1",

	[ST_DELETIONS] = "SELECT link, replica, counter, record FROM deletion WHERE link=?1",
	[ST_DELETION_PUT] = "INSERT OR REPLACE INTO deletion(link, replica, counter, record) VALUES(?1,?2,?3,?4)",
	[ST_DELETION_DELETE] = "DELETE FROM deletion WHERE link=?1 AND replica=?2 AND counter=?3",
	[ST_EXTRAS] = "SELECT node, replica, counter, record, local, copy FROM content_extra WHERE node=?1",
	[ST_EXTRA_PUT] = "INSERT OR REPLACE INTO content_extra(node, replica, counter, record, local, copy) VALUES(?1,?2,?3,?4,?5,?6)",
	[ST_EXTRA_DELETE] = "DELETE FROM content_extra WHERE node=?1 AND replica=?2 AND counter=?3",
	[ST_EXTRAS_DROP] = "UPDATE content_extra SET local=0 WHERE node=?1",
	[ST_EXTRA_BY_LOCAL] = "SELECT node FROM content_extra WHERE local=?1 AND local!=0",

	[ST_DOT_PUT] = "INSERT OR REPLACE INTO dot(replica, counter, kind, owner, seq) VALUES(?1,?2,?3,?4,?5)",
	[ST_DOT_DELETE] = "DELETE FROM dot WHERE replica=?1 AND counter=?2",
	[ST_DOT_GET] = "SELECT replica, counter, kind, owner, seq FROM dot WHERE replica=?1 AND counter=?2",
	[ST_DOTS] = "SELECT replica, counter, kind, owner, seq FROM dot WHERE replica=?1 AND counter>?2 AND counter<=?3 ORDER BY counter",
	[ST_DOTS_BY_SEQ] = "SELECT replica, counter, kind, owner, seq FROM dot WHERE seq>?1 ORDER BY seq",
	[ST_NEXT_REPLICA] = "SELECT replica FROM dot WHERE replica>?1 ORDER BY replica LIMIT 1",

	[ST_STEP_GET] = "SELECT node, from_replica, from_counter, to_replica, to_counter, ranges FROM step WHERE node=?1",
	[ST_STEP_PUT] = "INSERT OR REPLACE INTO step(node, from_replica, from_counter, to_replica, to_counter, ranges) VALUES(?1,?2,?3,?4,?5,?6)",
	[ST_STEP_DELETE] = "DELETE FROM step WHERE node=?1",
	[ST_BASE_GET] = "SELECT node, base_node, local, bytes, record FROM base WHERE node=?1",
	[ST_BASE_PUT] = "INSERT OR REPLACE INTO base(node, base_node, local, bytes, record) VALUES(?1,?2,?3,?4,?5)",
	[ST_BASE_DELETE] = "DELETE FROM base WHERE node=?1",
	[ST_BASES] = "SELECT node, base_node, local, bytes, record FROM base ORDER BY age",
	[ST_BASE_BY_LOCAL] = "SELECT node FROM base WHERE local=?1",
	[ST_TRASH_PUT] = "INSERT OR IGNORE INTO trash(local) VALUES(?1)",
	[ST_TRASH_DELETE] = "DELETE FROM trash WHERE local=?1",
	[ST_TRASH_LIST] = "SELECT local FROM trash ORDER BY local LIMIT ?1",

	[ST_MEMBER_GET] = "SELECT record FROM member WHERE replica=?1",
	[ST_MEMBER_PUT] = "INSERT OR REPLACE INTO member(replica, record) VALUES(?1,?2)",
	[ST_MEMBERS] = "SELECT replica, record FROM member ORDER BY replica",
	[ST_OTHER_GET] = "SELECT kind, id, replica, counter, record FROM other WHERE kind=?1 AND id=?2",
	[ST_OTHER_BY_DOT] = "SELECT kind, id, replica, counter, record FROM other WHERE replica=?1 AND counter=?2",
	[ST_OTHER_PUT] = "INSERT OR REPLACE INTO other(kind, id, replica, counter, record) VALUES(?1,?2,?3,?4,?5)",
	[ST_PEERS] = "SELECT replica, address, paused, knowledge FROM peer ORDER BY replica",
	[ST_PEER_PUT] = "INSERT OR REPLACE INTO peer(replica, address, paused, knowledge) VALUES(?1,?2,?3,?4)",
	[ST_PEER_DELETE] = "DELETE FROM peer WHERE replica=?1",
	[ST_TOKEN_PUT] = "INSERT OR REPLACE INTO token(id, sealed, expires, used) VALUES(?1,?2,?3,?4)",
	[ST_TOKEN_GET] = "SELECT sealed, expires, used FROM token WHERE id=?1",

	[ST_EXCEPTIONS] = "SELECT link, parent, tag, name FROM exception",
	[ST_EXCEPTION_PUT] = "INSERT OR REPLACE INTO exception(link, parent, tag, name) VALUES(?1,?2,?3,?4)",
	[ST_EXCEPTION_DELETE] = "DELETE FROM exception WHERE link=?1",
	[ST_GROUPS] = "SELECT member, lead FROM grp",
	[ST_GROUP_PUT] = "INSERT OR REPLACE INTO grp(member, lead) VALUES(?1,?2)",
	[ST_GROUP_DELETE] = "DELETE FROM grp WHERE member=?1",

	[ST_SAMPLES] = "SELECT at, peer, files, bytes, lag, sent, received FROM sample WHERE at>?1 ORDER BY at, peer",
	[ST_SAMPLE_PUT] = "INSERT OR REPLACE INTO sample(at, peer, files, bytes, lag, sent, received) VALUES(?1,?2,?3,?4,?5,?6,?7)",
	[ST_SAMPLE_THIN] = "DELETE FROM sample WHERE at<?1 OR (at<?2 AND at%?3>=?4)",
};

/* A quota that is reached is an input/output error to SQLite, and by the time that it says so errno is another call's: the database file and its log keep theirs. */
static bool past_quota(sqlite3 *db)
{
	int last = 0;
	sqlite3_file *log = NULL;

	if (sqlite3_system_errno(db) == EDQUOT)
		return true;
	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &last) == SQLITE_OK && last == EDQUOT)
		return true;
	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) != SQLITE_OK || !log || !log->pMethods)
		return false;
	return log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &last) == SQLITE_OK && last == EDQUOT;
}

int journal_error(struct journal *j, int rc)
{
	int primary = rc & 0xff, sys = j->db ? sqlite3_system_errno(j->db) : 0;

	switch (primary) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CANTOPEN:
		return sys ? -sys : -ENOENT;
	case SQLITE_IOERR:
		if (rc == SQLITE_IOERR_NOMEM)
			return -ENOMEM;
		if (sys == ENOSPC || (j->db && past_quota(j->db)))
			return -ENOSPC;
		log_error("journal.db: input/output error: %s", sqlite3_errmsg(j->db));
		return -EIO;
	default:
		log_error("journal.db is damaged: %s", sqlite3_errmsg(j->db));
		return -EUCLEAN;
	}
}

sqlite3_stmt *statement(struct journal *j, enum statement s, int *ret_e)
{
	if (!j->st[s]) {
		int rc = sqlite3_prepare_v3(j->db, statement_sql[s], -1, SQLITE_PREPARE_PERSISTENT, &j->st[s], NULL);
		if (rc != SQLITE_OK) {
			*ret_e = journal_error(j, rc);
			return NULL;
		}
		return j->st[s];
	}
	sqlite3_reset(j->st[s]);
	return j->st[s];
}

int statement_bind(struct journal *j, sqlite3_stmt *st, const char *format, ...)
{
	va_list ap;
	int rc = SQLITE_OK;

	va_start(ap, format);
	for (int i = 0; format[i] && rc == SQLITE_OK; i++) {
		switch (format[i]) {
		case 'i':
			rc = sqlite3_bind_int64(st, i + 1, (sqlite3_int64)va_arg(ap, uint64_t));
			break;
		case 's':
			rc = sqlite3_bind_text(st, i + 1, va_arg(ap, const char *), -1, SQLITE_STATIC);
			break;
		default: {
			const void *p = va_arg(ap, const void *);
			size_t len = va_arg(ap, size_t);
			if (p)
				rc = len ? sqlite3_bind_blob64(st, i + 1, p, len, SQLITE_STATIC) : sqlite3_bind_zeroblob(st, i + 1, 0);
			else
				rc = sqlite3_bind_null(st, i + 1);
		}
		}
	}
	va_end(ap);
	return journal_error(j, rc);
}

int statement_finish(struct journal *j, sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);
	int e = journal_error(j, rc);

	sqlite3_reset(st);
	return e;
}

int statement_row(struct journal *j, sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	if (rc == SQLITE_ROW)
		return 1;
	int e = journal_error(j, rc);
	sqlite3_reset(st);
	return e;
}

struct blob column_blob(sqlite3_stmt *st, int c)
{
	struct blob b = {0};

	if (sqlite3_column_type(st, c) == SQLITE_NULL)
		return b;
	b.p = sqlite3_column_blob(st, c);
	b.len = (size_t)sqlite3_column_bytes(st, c);
	if (!b.p)
		b.p = ""; /* an empty blob is not NULL */
	return b;
}

bool column_16(sqlite3_stmt *st, int c, uint8_t ret[static 16])
{
	const void *p = sqlite3_column_blob(st, c);

	if (!p || sqlite3_column_bytes(st, c) != 16)
		return false;
	memcpy(ret, p, 16);
	return true;
}

int row_damaged(const char *table)
{
	log_error("journal.db is damaged: a row of table %s has impossible columns", table);
	return -EUCLEAN;
}
