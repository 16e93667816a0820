/*
 * postgres PORT WAY CLIENTS CALLS: goroutines with a connection each use libpq, which blocks, against a
 * PostgreSQL server. What each has stored it reads back, and all count together in one row.
 */
#include "clients.h"

#include <libpq-fe.h>

struct job {
    PGconn *c;
    const char *text;
    int n;
    const char *const *values;
};

static char target[200];

static void *do_connect(void *arg)
{
    (void)arg;
    return PQconnectdb(target);
}

static void *do_query(void *arg)
{
    struct job *q = arg;
    return PQexecParams(q->c, q->text, q->n, NULL, q->values, NULL, NULL, 0);
}

static void *do_finish(void *arg)
{
    PQfinish(arg);
    return NULL;
}

static PGconn *connect_polled(void)
{
    PGconn *c = PQconnectStart(target);
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    MUST(c != NULL, "no memory");
    while (state != PGRES_POLLING_OK) {
        MUST(state != PGRES_POLLING_FAILED, "%s", PQerrorMessage(c));
        wait_for(PQsocket(c), state == PGRES_POLLING_READING ? POLLIN : POLLOUT);
        state = PQconnectPoll(c);
    }
    MUST(PQsetnonblocking(c, 1) == 0, "%s", PQerrorMessage(c));
    return c;
}

static PGresult *query_polled(struct job *q)
{
    PGresult *r = NULL, *next;
    int left;
    MUST(PQsendQueryParams(q->c, q->text, q->n, NULL, q->values, NULL, NULL, 0), "%s", PQerrorMessage(q->c));
    while ((left = PQflush(q->c)) == 1)
        wait_for(PQsocket(q->c), POLLOUT);
    MUST(left == 0, "%s", PQerrorMessage(q->c));
    do {
        while (PQisBusy(q->c)) {
            wait_for(PQsocket(q->c), POLLIN);
            MUST(PQconsumeInput(q->c), "%s", PQerrorMessage(q->c));
        }
        next = PQgetResult(q->c);
        if (next) {
            PQclear(r);
            r = next;
        }
    } while (next);
    return r;
}

static PGconn *connection(void)
{
    PGconn *c = way == POLLED ? connect_polled() : call(do_connect, NULL);
    MUST(PQstatus(c) == CONNECTION_OK, "%s", PQerrorMessage(c));
    return c;
}

static PGresult *query(PGconn *c, const char *text, int n, const char *const *values)
{
    struct job q = {c, text, n, values};
    PGresult *r = way == POLLED ? query_polled(&q) : call(do_query, &q);
    ExecStatusType status = PQresultStatus(r);
    MUST(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s: %s", text, PQerrorMessage(c));
    return r;
}

static void use_postgres(int client)
{
    PGconn *c = connection();
    char name[16], number[16], value[600];
    const char *values[] = {name, number, value};
    for (int n = 0; n < calls; n++) {
        PGresult *r;
        snprintf(name, sizeof name, "%d", client);
        snprintf(number, sizeof number, "%d", n);
        value_of(value, sizeof value, client, n);
        PQclear(query(c, "INSERT INTO kept VALUES ($1::int, $2::int, $3)", 3, values));
        r = query(c, "SELECT value, $1::int + $2::int FROM kept WHERE client = $1::int AND number = $2::int", 2, values);
        MUST(PQntuples(r) == 1 && strcmp(PQgetvalue(r, 0, 0), value) == 0, "client %d, number %d: got \"%s\" for \"%s\"",
             client, n, PQntuples(r) ? PQgetvalue(r, 0, 0) : "nothing", value);
        MUST(atoi(PQgetvalue(r, 0, 1)) == client + n, "client %d, number %d", client, n);
        PQclear(r);
    }
    PQclear(query(c, "UPDATE counter SET n = n + 1", 0, NULL));
    (void)(way == POLLED ? do_finish(c) : call(do_finish, c));
}

static void body(void *arg)
{
    PGconn *c = connection();
    PGresult *r;
    (void)arg;
    PQclear(query(c, "DROP TABLE IF EXISTS kept", 0, NULL));
    PQclear(query(c, "DROP TABLE IF EXISTS counter", 0, NULL));
    PQclear(query(c, "CREATE TABLE kept (client int, number int, value text, PRIMARY KEY (client, number))", 0, NULL));
    PQclear(query(c, "CREATE TABLE counter AS SELECT 0 AS n", 0, NULL));
    all_clients(use_postgres);
    r = query(c, "SELECT count(*), (SELECT n FROM counter) FROM kept", 0, NULL);
    MUST(atol(PQgetvalue(r, 0, 0)) == (long)clients * calls, "%s values are kept, not %ld", PQgetvalue(r, 0, 0),
         (long)clients * calls);
    MUST(atoi(PQgetvalue(r, 0, 1)) == clients, "all have counted to %s, not %d", PQgetvalue(r, 0, 1), clients);
    PQclear(r);
    (void)(way == POLLED ? do_finish(c) : call(do_finish, c));
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    snprintf(target, sizeof target, "host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable "
             "gssencmode=disable connect_timeout=60", port);
    MUST(gs_run(body, NULL) == 0, "gs_run");
    MUST(gs_shutdown(gs_after_ms(30000)) == 0, "gs_shutdown");
    printf("ok postgres %s: %d clients, %d calls each\n", way_names[way], clients, 2 * calls + 1);
    return 0;
}
