/*
 * sqlite goroutines|threads CROWD CALLS DIRECTORY: SQLite with goroutines in place of threads: a connection each, to
 * a database with a write-ahead log and one with a rollback journal, with busy timeouts, which sleep; and one
 * connection that all share, whose mutex is a recursive one.
 */
#include "crowd.h"

#include <sqlite3.h>

static sqlite3 *shared;

static void must_do(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    int r = sqlite3_exec(db, sql, NULL, NULL, &message);
    MUST(r == SQLITE_OK, "%s: %d %s", sql, r, message ? message : "");
}

static int one_number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *s;
    MUST(sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    int r = sqlite3_step(s);
    MUST(r == SQLITE_ROW, "%s: %d %s", sql, r, sqlite3_errmsg(db));
    int n = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return n;
}

static sqlite3 *opened(const char *name)
{
    char path[4000];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/%s", arguments[0], name);
    MUST(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL) == SQLITE_OK,
         "%s: %s", path, sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, 120000);
    must_do(db, "PRAGMA synchronous = NORMAL");
    return db;
}

static void client(int i)
{
    sqlite3 *wal = opened("wal.db"), *journal = opened("journal.db");
    char sql[200];
    meet();
    for (int n = 0; n < calls; n++) {
        must_do(wal, "BEGIN IMMEDIATE; UPDATE counter SET n = n + 1; COMMIT");
        must_do(journal, "BEGIN IMMEDIATE; UPDATE counter SET n = n + 1; COMMIT");
        snprintf(sql, sizeof sql, "INSERT INTO lines VALUES (%d, %d)", i, n);
        must_do(shared, sql);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM lines WHERE who = %d", i);
        int seen = one_number(shared, sql);
        MUST(seen == n + 1, "client %d sees %d of its lines, not %d", i, seen, n + 1);
        if (i == 0 && n == calls / 2)
            note_threads();
    }
    finish();
    sqlite3_close(wal);
    sqlite3_close(journal);
}

static void prepare(const char *name, const char *mode)
{
    sqlite3 *db = opened(name);
    char sql[100];
    snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", mode);
    must_do(db, sql);
    must_do(db, "CREATE TABLE counter (n INTEGER); INSERT INTO counter VALUES (0)");
    sqlite3_close(db);
}

static void must_count(const char *name)
{
    sqlite3 *db = opened(name);
    int n = one_number(db, "SELECT n FROM counter");
    MUST(n == crowd * calls, "%s: %d updates of %d are there", name, n, crowd * calls);
    sqlite3_close(db);
}

int main(int argc, char **argv)
{
    arguments = argv + 4;
    if (argc > 4) {
        prepare("wal.db", "wal");
        prepare("journal.db", "delete");
        MUST(sqlite3_open_v2(":memory:", &shared, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL)
                 == SQLITE_OK, "no database in memory");
        must_do(shared, "CREATE TABLE lines (who INTEGER, n INTEGER)");
    }
    int r = run_crowd(argc, argv, 1, client);
    if (r == 0) {
        must_count("wal.db");
        must_count("journal.db");
    }
    return r;
}
