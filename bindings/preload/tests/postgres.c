/*
 * postgres goroutines|threads CROWD CALLS CONNINFO: libpq with PQexec, which blocks, in transactions that wait for each
 * other's locks, and with errors of all kinds.
 */
#include "crowd.h"

#include <libpq-fe.h>

static PGresult *must_exec(PGconn *c, const char *command, ExecStatusType status)
{
    PGresult *r = PQexec(c, command);
    MUST(PQresultStatus(r) == status, "%s: %s", command, PQerrorMessage(c));
    return r;
}

static void client(int i)
{
    PGconn *c = PQconnectdb(arguments[0]);
    MUST(PQstatus(c) == CONNECTION_OK, "%s", PQerrorMessage(c));
    char command[200];
    /* One creates what all use; the others wait for its lock. */
    PQclear(must_exec(c, "BEGIN", PGRES_COMMAND_OK));
    PQclear(must_exec(c, "SELECT pg_advisory_xact_lock(4711)", PGRES_TUPLES_OK));
    PQclear(must_exec(c, "SET LOCAL client_min_messages = error", PGRES_COMMAND_OK));
    PQclear(must_exec(c, "CREATE TABLE IF NOT EXISTS preload (who int primary key, n int not null)", PGRES_COMMAND_OK));
    PQclear(must_exec(c, "COMMIT", PGRES_COMMAND_OK));
    snprintf(command, sizeof command, "INSERT INTO preload VALUES (%d, 0) ON CONFLICT (who) DO UPDATE SET n = 0", i);
    PQclear(must_exec(c, command, PGRES_COMMAND_OK));
    meet();
    for (int n = 1; n <= calls; n++) {
        snprintf(command, sizeof command, "UPDATE preload SET n = n + 1 WHERE who = %d RETURNING n", i);
        PGresult *r = must_exec(c, command, PGRES_TUPLES_OK);
        MUST(atoi(PQgetvalue(r, 0, 0)) == n, "client %d counts %s, not %d", i, PQgetvalue(r, 0, 0), n);
        PQclear(r);
        if (i == 0 && n == calls / 2)
            note_threads();
    }
    finish();
    PGresult *r = PQexec(c, "SELECT nonsense");
    MUST(PQresultStatus(r) == PGRES_FATAL_ERROR, "it understands nonsense");
    PQclear(r);
    /* More than the socket's buffers hold, both ways. */
    if (i % 16 == 0) {
        char *big = malloc(2000000 + 1);
        memset(big, 'x', 2000000);
        big[2000000] = 0;
        const char *values[1] = {big};
        r = PQexecParams(c, "SELECT $1::text || 'y'", 1, NULL, values, NULL, NULL, 0);
        MUST(PQresultStatus(r) == PGRES_TUPLES_OK, "%s", PQerrorMessage(c));
        MUST(PQgetlength(r, 0, 0) == 2000001, "%d bytes", PQgetlength(r, 0, 0));
        PQclear(r);
        free(big);
    }
    PQfinish(c);
}

int main(int argc, char **argv)
{
    return run_crowd(argc, argv, 1, client);
}
