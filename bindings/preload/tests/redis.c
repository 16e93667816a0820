/*
 * redis goroutines|threads CROWD CALLS PORT: hiredis as its manual shows it, with calls that block. Each client
 * has a connection, stores values of its own and reads them back.
 */
#include "crowd.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>

static redisReply *must_reply(redisContext *c, void *reply, int type)
{
    redisReply *r = reply;
    MUST(r != NULL, "%s", c->errstr);
    MUST(r->type == type, "type %d, not %d: %s", r->type, type, r->str ? r->str : "");
    return r;
}

/* A server that goes away in the middle of its reply. */
static void reply_half(void *arg)
{
    static const char half[] = "$100\r\nthe beginning";
    char command[100];
    int c = accept(*(int *)arg, NULL, NULL);
    MUST(c >= 0 && read(c, command, sizeof command) > 0, "no command: %s", strerror(errno));
    MUST(write(c, half, sizeof half - 1) == (ssize_t)sizeof half - 1, "write: %s", strerror(errno));
    close(c);
}

static void server_goes_away(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    task server;
    MUST(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, "%s", strerror(errno));
    MUST(getsockname(listener, (struct sockaddr *)&at, &len) == 0, "%s", strerror(errno));
    begin(&server, reply_half, &listener);
    redisContext *c = redisConnect("127.0.0.1", ntohs(at.sin_port));
    MUST(c != NULL && c->err == 0, "%s", c ? c->errstr : "no memory");
    MUST(redisCommand(c, "GET half") == NULL && c->err == REDIS_ERR_EOF, "error %d %s", c->err, c->errstr);
    redisFree(c);
    end(&server);
    close(listener);
    c = redisConnect("127.0.0.1", ntohs(at.sin_port));
    MUST(c != NULL && c->err == REDIS_ERR_IO && strcmp(c->errstr, strerror(ECONNREFUSED)) == 0, "%s", c ? c->errstr : "");
    redisFree(c);
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
        server_goes_away();
    }
    redisFree(c);
}

int main(int argc, char **argv)
{
    return run_crowd(argc, argv, 1, client);
}
