/*
 * redis goroutines|threads CROWD CALLS PORT: hiredis as its manual shows it, with calls that block. Each client
 * has a connection, stores values of its own and reads them back.
 */
#include "crowd.h"

#include <hiredis/hiredis.h>

static redisReply *must_reply(redisContext *c, void *reply, int type)
{
    redisReply *r = reply;
    MUST(r != NULL, "%s", c->errstr);
    MUST(r->type == type, "type %d, not %d: %s", r->type, type, r->str ? r->str : "");
    return r;
}

static void client(int i)
{
    struct timeval timeout = {60, 0};
    redisContext *c = redisConnectWithTimeout("127.0.0.1", atoi(arguments[0]), timeout);
    MUST(c != NULL && c->err == 0, "%s", c ? c->errstr : "no memory");
    MUST(redisSetTimeout(c, timeout) == REDIS_OK, "%s", c->errstr);
    char value[300];
    int length = snprintf(value, sizeof value, "%d:%*s", i, i % 250, "");
    freeReplyObject(must_reply(c, redisCommand(c, "SET preload:%d %b", i, value, (size_t)length), REDIS_REPLY_STATUS));
    meet();
    for (int n = 0; n < calls; n++) {
        redisReply *r = must_reply(c, redisCommand(c, "GET preload:%d", i), REDIS_REPLY_STRING);
        MUST((int)r->len == length && memcmp(r->str, value, (size_t)length) == 0, "client %d got '%s'", i, r->str);
        freeReplyObject(r);
        if (i == 0 && n == calls / 2)
            note_threads();
    }
    finish();
    if (i == 0) {
        /* A reply that comes later than the timeout: the error is libc's. */
        timeout = (struct timeval){0, 50000};
        redisSetTimeout(c, timeout);
        void *late = redisCommand(c, "BLPOP preload:nobody 5");
        MUST(late == NULL && c->err == REDIS_ERR_IO, "error %d %s", c->err, c->errstr);
        MUST(strcmp(c->errstr, strerror(EAGAIN)) == 0, "%s", c->errstr);
    }
    redisFree(c);
}

int main(int argc, char **argv)
{
    return run_crowd(argc, argv, 1, client);
}
