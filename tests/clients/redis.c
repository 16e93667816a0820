/*
 * redis PORT WAY CLIENTS CALLS: goroutines with a connection each use hiredis, which blocks, against a
 * redis-server. What each has stored it reads back, and all count together.
 */
#include "clients.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>

enum { IN_A_ROW = 50 };

struct job {
    redisContext *c;
    const char *format;
    va_list args;
};

static void *do_connect(void *arg)
{
    (void)arg;
    return redisConnect("127.0.0.1", port);
}

static void *do_command(void *arg)
{
    struct job *job = arg;
    return redisvCommand(job->c, job->format, job->args);
}

static void *polled_command(struct job *job)
{
    void *reply = NULL;
    int done = 0;
    MUST(redisvAppendCommand(job->c, job->format, job->args) == REDIS_OK, "%s", job->c->errstr);
    while (!done) {
        MUST(redisBufferWrite(job->c, &done) == REDIS_OK, "%s", job->c->errstr);
        if (!done)
            wait_for(job->c->fd, POLLOUT);
    }
    for (;;) {
        MUST(redisGetReplyFromReader(job->c, &reply) == REDIS_OK, "%s", job->c->errstr);
        if (reply)
            return reply;
        wait_for(job->c->fd, POLLIN);
        MUST(redisBufferRead(job->c) == REDIS_OK, "%s", job->c->errstr);
    }
}

static redisContext *connection(void)
{
    redisContext *c;
    if (way == POLLED) {
        int error = 0;
        socklen_t size = sizeof error;
        c = redisConnectNonBlock("127.0.0.1", port);
        MUST(c && !c->err, "%s", c ? c->errstr : "no memory");
        wait_for(c->fd, POLLOUT);
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        MUST(error == 0, "connect: %s", strerror(error));
    } else {
        c = call(do_connect, NULL);
        MUST(c && !c->err, "%s", c ? c->errstr : "no memory");
    }
    return c;
}

static redisReply *command(redisContext *c, const char *format, ...)
{
    struct job job = {.c = c, .format = format};
    redisReply *r;
    va_start(job.args, format);
    r = way == POLLED ? polled_command(&job) : call(do_command, &job);
    va_end(job.args);
    MUST(r != NULL, "%s: %s", format, c->errstr);
    MUST(r->type != REDIS_REPLY_ERROR, "%s: %s", format, r->str);
    return r;
}

static void use_redis(int client)
{
    redisContext *c = connection();
    char value[600];
    for (int n = 0; n < calls; n++) {
        int length = value_of(value, sizeof value, client, n);
        redisReply *r = command(c, "SET k:%d %b", client, value, (size_t)length);
        freeReplyObject(r);
        r = command(c, "GET k:%d", client);
        MUST(r->type == REDIS_REPLY_STRING && r->len == (size_t)length && memcmp(r->str, value, r->len) == 0,
             "client %d, number %d: got \"%s\" for \"%s\"", client, n, r->str ? r->str : "nothing", value);
        freeReplyObject(r);
        r = command(c, "INCR own:%d", client);
        MUST(r->integer == n + 1, "client %d has counted to %lld, not %d", client, r->integer, n + 1);
        freeReplyObject(r);
        /* One call right after another: the next begins while others still look at the one before. */
        for (int i = 0; i < IN_A_ROW; i++)
            freeReplyObject(command(c, "INCR all"));
    }
    redisFree(c);
}

static void body(void *arg)
{
    redisContext *c = connection();
    redisReply *r;
    (void)arg;
    freeReplyObject(command(c, "FLUSHALL"));
    all_clients(use_redis);
    r = command(c, "GET all");
    MUST(atol(r->str) == (long)clients * calls * IN_A_ROW, "all have counted to %s, not %ld", r->str,
         (long)clients * calls * IN_A_ROW);
    freeReplyObject(r);
    redisFree(c);
}

int main(int argc, char **argv)
{
    read_arguments(argc, argv);
    MUST(gs_run(body, NULL) == 0, "gs_run");
    MUST(gs_shutdown(gs_after_ms(30000)) == 0, "gs_shutdown");
    printf("ok redis %s: %d clients, %d calls each\n", way_names[way], clients, (3 + IN_A_ROW) * calls);
    return 0;
}
