/* Opening journal.db, transactions, flush and checkpoint, meta. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"
#include "statement.h"

#define APPLICATION_ID 0x5457464f /* "TWFO" */
#define SCHEMA_VERSION 1

static const char schema[] =
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;"
	"CREATE TABLE node(row INTEGER PRIMARY KEY, id BLOB NOT NULL, type INTEGER NOT NULL, nlink INTEGER NOT NULL,"
	" links INTEGER NOT NULL, local INTEGER NOT NULL, orphan INTEGER NOT NULL, derived INTEGER NOT NULL, extras INTEGER NOT NULL,"
	" attrs BLOB, times BLOB, content BLOB);"
	"CREATE UNIQUE INDEX node_id ON node(id);"
	"CREATE INDEX node_local ON node(local) WHERE local!=0;"
	"CREATE INDEX node_orphan ON node(row) WHERE orphan!=0;"
	"CREATE TABLE link(row INTEGER PRIMARY KEY, id BLOB NOT NULL, node INTEGER NOT NULL, parent INTEGER NOT NULL,"
	" tag BLOB NOT NULL, live INTEGER NOT NULL, deletions INTEGER NOT NULL, place BLOB);"
	"CREATE UNIQUE INDEX link_id ON link(id);"
	"CREATE INDEX link_tag ON link(tag) WHERE live=1;"
	"CREATE INDEX link_parent ON link(parent, row) WHERE live=1;"
	"CREATE INDEX link_dead ON link(parent, row) WHERE live=0;"
	"CREATE INDEX link_node ON link(node);"
	"CREATE TABLE deletion(link INTEGER, replica INTEGER, counter INTEGER, record BLOB NOT NULL,"
	" PRIMARY KEY(link, replica, counter)) WITHOUT ROWID;"
	"CREATE TABLE content_extra(node INTEGER, replica INTEGER, counter INTEGER, record BLOB NOT NULL, local INTEGER NOT NULL,"
	" copy INTEGER NOT NULL, PRIMARY KEY(node, replica, counter)) WITHOUT ROWID;"
	"CREATE TABLE dot(replica INTEGER, counter INTEGER, kind INTEGER NOT NULL, owner INTEGER NOT NULL, seq INTEGER NOT NULL,"
	" PRIMARY KEY(replica, counter)) WITHOUT ROWID;"
	"CREATE INDEX dot_seq ON dot(seq);"
	"CREATE TABLE step(node INTEGER PRIMARY KEY, from_replica INTEGER NOT NULL, from_counter INTEGER NOT NULL,"
	" to_replica INTEGER NOT NULL, to_counter INTEGER NOT NULL, ranges BLOB NOT NULL);"
	"CREATE TABLE base(age INTEGER PRIMARY KEY AUTOINCREMENT, node INTEGER NOT NULL UNIQUE, base_node INTEGER NOT NULL,"
	" local INTEGER NOT NULL, bytes INTEGER NOT NULL, record BLOB NOT NULL);"
	"CREATE TABLE trash(local INTEGER PRIMARY KEY);"
	"CREATE TABLE member(replica INTEGER PRIMARY KEY, record BLOB NOT NULL);"
	"CREATE TABLE other(kind INTEGER, id BLOB, replica INTEGER NOT NULL, counter INTEGER NOT NULL, record BLOB NOT NULL,"
	" PRIMARY KEY(kind, id)) WITHOUT ROWID;"
	"CREATE INDEX other_dot ON other(replica, counter);"
	"CREATE TABLE peer(replica INTEGER PRIMARY KEY, address TEXT NOT NULL, paused INTEGER NOT NULL, knowledge BLOB NOT NULL);"
	"CREATE TABLE token(id BLOB PRIMARY KEY, sealed BLOB NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE exception(link INTEGER PRIMARY KEY, parent INTEGER NOT NULL, tag BLOB NOT NULL, name BLOB NOT NULL);"
	"CREATE TABLE grp(member INTEGER PRIMARY KEY, lead INTEGER NOT NULL);";

/* Came after the first release of format 1: added where it is missing. A program that does not know it leaves it alone. */
static const char sample_schema[] =
	"CREATE TABLE IF NOT EXISTS sample(at INTEGER, peer INTEGER, files INTEGER NOT NULL, bytes INTEGER NOT NULL, lag INTEGER NOT NULL,"
	" sent INTEGER NOT NULL, received INTEGER NOT NULL, PRIMARY KEY(at, peer)) WITHOUT ROWID;";

static int run(struct journal *j, const char *sql) { return journal_error(j, sqlite3_exec(j->db, sql, NULL, NULL, NULL)); }

static int on_wal(void *ctx, sqlite3 *db, const char *name, int pages)
{
	struct journal *j = ctx;

	j->wal_bytes = (uint64_t)pages * 4096;
	return SQLITE_OK;
}

static int pragma_number(struct journal *j, const char *sql, int64_t *ret)
{
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(j->db, sql, -1, &st, NULL);

	if (rc != SQLITE_OK)
		return journal_error(j, rc);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return rc == SQLITE_ROW ? 0 : journal_error(j, rc);
}

static int find_samples(struct journal *j)
{
	int64_t n = 0;
	int e = j->read_only ? 0 : run(j, sample_schema);

	e = e ? e : pragma_number(j, "SELECT count(*) FROM sqlite_master WHERE type='table' AND name='sample'", &n);
	j->has_samples = !e && n == 1;
	return e;
}

static int configure(struct journal *j, bool create)
{
	int64_t version = 0, id = 0;
	char sql[128];
	int e = run(j, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY;"
		       "PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-32768; PRAGMA trusted_schema=OFF; PRAGMA foreign_keys=OFF;");

	if (e)
		return e;
	if (create) {
		snprintf(sql, sizeof sql, "PRAGMA application_id=%d; PRAGMA user_version=%d;", APPLICATION_ID, SCHEMA_VERSION);
		e = run(j, "BEGIN");
		e = e ? e : run(j, sql);
		e = e ? e : run(j, schema);
		return e ? e : run(j, "COMMIT");
	}
	e = pragma_number(j, "PRAGMA application_id", &id);
	e = e ? e : pragma_number(j, "PRAGMA user_version", &version);
	if (e)
		return e;
	if (id != APPLICATION_ID) {
		log_error("journal.db is not a journal of twofold");
		return -EUCLEAN;
	}
	if (version != SCHEMA_VERSION) {
		log_error("journal.db has format %lld, this program knows %d", (long long)version, SCHEMA_VERSION);
		return -EUCLEAN;
	}
	return 0;
}

/* A first write makes the -wal exist, so that a descriptor of it can be kept. */
static int keep_wal(struct journal *j, const char *db_path)
{
	char wal[4200];
	int e = run(j, "BEGIN IMMEDIATE");

	e = e ? e : journal_meta_set(j, "opened", "", 0);
	e = e ? e : run(j, "COMMIT");
	if (e)
		return e;
	snprintf(wal, sizeof wal, "%s-wal", db_path);
	j->wal_fd = open(wal, O_RDWR | O_CLOEXEC);
	return j->wal_fd < 0 ? -errno : 0;
}

static void free_journal(struct journal *j)
{
	for (int i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(j->st[i]);
	if (j->db && sqlite3_close(j->db) != SQLITE_OK)
		log_error("journal.db could not be closed: %s", sqlite3_errmsg(j->db));
	if (j->wal_fd >= 0)
		close(j->wal_fd);
	free(j);
}

/* On a filesystem that nobody can write SQLite cannot make its -shm, and need not: nothing changes under it. It is told so in a URI. A -wal it would then
 * not read; there is none after a clean stop. */
static int open_unchanging(struct journal *j, const char *db_path)
{
	static const char hex[] = "0123456789abcdef";
	char wal[4200], uri[3 * 4100 + 32];
	struct stat st;
	size_t n = (size_t)snprintf(uri, sizeof uri, "file:");

	snprintf(wal, sizeof wal, "%s-wal", db_path);
	if (stat(wal, &st) == 0 && st.st_size) {
		log_error("journal.db has changes in its -wal: the last stop was not clean, and its filesystem is read-only; mount it writable once");
		return -EROFS;
	}
	for (const char *p = db_path; *p; p++) {
		if (strchr("%?#", *p)) {
			uri[n++] = '%';
			uri[n++] = hex[*p >> 4 & 15];
			uri[n++] = hex[*p & 15];
		} else {
			uri[n++] = *p;
		}
	}
	snprintf(uri + n, sizeof uri - n, "?immutable=1");
	return journal_error(j, sqlite3_open_v2(uri, &j->db,
		SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE, NULL));
}

static int open_db(struct journal *j, const char *db_path, bool create)
{
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;

	if (!create && access(db_path, W_OK) && errno == EROFS)
		return j->read_only ? open_unchanging(j, db_path) : -EROFS;
	/* SQLite would make it as the umask says, and the -wal file like it */
	CLEANUP_CLOSE int fd = create ? open(db_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
	if (create && fd < 0)
		return -errno;
	return journal_error(j, sqlite3_open_v2(db_path, &j->db, flags | (create ? SQLITE_OPEN_CREATE : 0), NULL));
}

int journal_open(const char *path, bool create, bool read_only, struct journal **ret)
{
	char db_path[4100];
	struct journal *j = calloc(1, sizeof *j);

	if (!j)
		return -ENOMEM;
	j->wal_fd = -1;
	j->read_only = read_only;
	if ((size_t)snprintf(db_path, sizeof db_path, "%s/journal.db", path) >= sizeof db_path) {
		free(j);
		return -ENAMETOOLONG;
	}
	int e = open_db(j, db_path, create);
	e = e ? e : configure(j, create);
	e = e ? e : find_samples(j);
	if (!e) {
		sqlite3_wal_hook(j->db, on_wal, j);
		if (read_only)
			sqlite3_db_config(j->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
		else
			e = keep_wal(j, db_path);
	}
	if (e) {
		free_journal(j);
		return e;
	}
	*ret = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	journal_rollback(j);
	free_journal(j);
}

void journal_abandon(struct journal *j)
{
	if (!j)
		return;
	sqlite3_db_config(j->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	journal_rollback(j);
	free_journal(j);
}

int journal_begin(struct journal *j) { return run(j, "BEGIN IMMEDIATE"); }

int journal_commit(struct journal *j) { return run(j, "COMMIT"); }

bool journal_in_txn(const struct journal *j) { return !sqlite3_get_autocommit(j->db); }

void journal_rollback(struct journal *j)
{
	/* open statements would keep a rollback from ending cleanly */
	for (int i = 0; i < STATEMENTS; i++)
		if (j->st[i])
			sqlite3_reset(j->st[i]);
	if (journal_in_txn(j))
		sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL);
}

int journal_flush(struct journal *j)
{
	if (j->wal_fd < 0)
		return 0;
	return fdatasync(j->wal_fd) ? -errno : 0;
}

int journal_checkpoint(struct journal *j)
{
	if (j->read_only)
		return 0;
	for (int i = 0; i < STATEMENTS; i++)
		if (j->st[i])
			sqlite3_reset(j->st[i]);
	int rc = sqlite3_wal_checkpoint_v2(j->db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	if (rc == SQLITE_OK)
		j->wal_bytes = 0;
	return journal_error(j, rc);
}

uint64_t journal_wal_bytes(struct journal *j) { return j->wal_bytes; }

int journal_meta_get(struct journal *j, const char *key, struct buf *ret)
{
	int e = 0;
	sqlite3_stmt *st = statement(j, ST_META_GET, &e);

	if (!st || (e = statement_bind(j, st, "s", key)))
		return e;
	int n = statement_row(j, st);
	if (n <= 0)
		return n ? n : -ENOENT;
	struct blob b = column_blob(st, 0);
	ret->len = 0;
	ret->err = 0;
	buf_put(ret, b.p, b.len);
	sqlite3_reset(st);
	return ret->err;
}

int journal_meta_set(struct journal *j, const char *key, const void *p, size_t len)
{
	return statement_run(j, ST_META_SET, "st", key, p, len);
}
