/*
 * proxy: passes TCP connections on to another host, two goroutines for each.
 *
 * It shows one goroutine for each direction, and a join: an end of file from one side is passed on
 * as one (a half-closed connection goes on in the other direction), an error ends both directions.
 * server.h does the rest.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/proxy.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o proxy
 *   ./proxy -p 8081 example.org:80 & curl -sI -H 'Host: example.org' http://127.0.0.1:8081/; kill $!
 *
 * It prints:
 *
 *   proxy: 127.0.0.1:8081 leads to example.org port 80
 *   HTTP/1.1 200 OK
 *   ...
 *   proxy: stopped: 0 connections open, 1 accepted, 74 bytes there, 311 bytes back
 */
#define _GNU_SOURCE
#include <getopt.h>

#include "server.h"

static const char help[] =
    "usage: proxy [-p PORT] [-b ADDRESS] [-t SECONDS] TARGETHOST:PORT\n"
    "Passes TCP connections on to a port of another host.\n\n"
    "  -p PORT      listen on this port; 0: a free one, which is printed (8081)\n"
    "  -b ADDRESS   listen on this address (127.0.0.1); '' is all of this machine's\n"
    "  -t SECONDS   end a connection on which nothing moves for so long (300)\n"
    "  -h, --help   print this\n\n"
    "An IPv6 address as TARGETHOST is put in brackets: [::1]:80.\n"
    "SIGTERM and SIGINT: what has come is passed on, and the target's answer waited for, for 5 s\n"
    "at most. SIGUSR1 prints the numbers.\n\n"
    "Exit status: 0; 1 if it can't listen; 2 for a wrong option.\n";

enum { BLOCK = 32 * 1024, CONNECT_S = 10 };

static struct {
    char *host;
    uint16_t port;
    long idle_s;
    atomic_uint_fast64_t there, back;
} app;

/* A connection and its direction from one socket to the other. */
typedef struct direction {
    int from, to;
    _Atomic int64_t *last_move; /* of both directions */
    atomic_uint_fast64_t *bytes;
} direction;

/* The time at which the connection has been idle for too long, as far as is known by now. */
static int64_t idle_end(const direction *d)
{
    return *d->last_move + app.idle_s * 1000000000;
}

/* Moves what comes until its end. An end of file is passed on; after an error, or when nothing has
 * moved in either direction for too long, both sockets are shut, which ends the other goroutine. */
static void move(void *arg)
{
    const direction *d = arg;
    char block[BLOCK];
    for (;;) {
        int64_t until = idle_end(d);
        ssize_t n = gs_read(d->from, block, sizeof block, until);
        if (n == -ETIMEDOUT && until != idle_end(d))
            continue; /* the other direction is busy */
        if (n == 0) {
            shutdown(d->to, SHUT_WR);
            return;
        }
        if (n < 0)
            break;
        *d->last_move = gs_now();
        if (send_all(d->to, block, (size_t)n, 0, idle_end(d)) != 0)
            break;
        *d->last_move = gs_now();
        *d->bytes += (uint64_t)n;
    }
    shutdown(d->from, SHUT_RDWR);
    shutdown(d->to, SHUT_RDWR);
}

static void serve(connection *c)
{
    int target = gs_tcp_connect(app.host, app.port, after_s(CONNECT_S));
    if (target < 0) {
        fprintf(stderr, "proxy: %s port %u: %s\n", app.host, (unsigned)app.port,
                gs_strerror(target));
        return;
    }
    server_set_peer(c, target);

    _Atomic int64_t last_move = gs_now();
    direction there = {c->fd, target, &last_move, &app.there};
    direction back = {target, c->fd, &last_move, &app.back};
    gs_g *other;
    int err = gs_spawn_with(move, &back, NULL, &other);
    if (err == 0) {
        move(&there);
        must(gs_join(other, GS_FOREVER), "join");
        gs_release(other);
    } else {
        fprintf(stderr, "proxy: %s\n", gs_strerror(err));
    }
    server_set_peer(c, -1);
    gs_close(target);
}

static void greet(const char *address)
{
    printf("proxy: %s leads to %s port %u\n", address, app.host, (unsigned)app.port);
}

static void print_bytes(void)
{
    printf(", %" PRIu64 " bytes there, %" PRIu64 " bytes back", (uint64_t)app.there,
           (uint64_t)app.back);
}

/* HOST:PORT or [ADDRESS]:PORT. The text is taken apart. */
static void parse_target(char *text)
{
    char *colon = strrchr(text, ':');
    if (!colon || colon == text || colon[1] == '\0')
        misuse("'%s' is not TARGETHOST:PORT", text);
    char *end;
    errno = 0;
    long port = strtol(colon + 1, &end, 10);
    if (errno != 0 || *end != '\0' || port < 1 || port > 65535)
        misuse("the port in '%s' is not a number from 1 to 65535", text);
    app.port = (uint16_t)port;
    if (*text == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        app.host = text + 1;
    } else if (strchr(text, ':') != colon) {
        misuse("an IPv6 address is put in brackets: [ADDRESS]:PORT");
    } else {
        *colon = '\0';
        app.host = text;
    }
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    app.idle_s = 300;
    the_server = (server){.name = "proxy", .host = "127.0.0.1", .port = 8081,
                          .greet = greet, .serve = serve, .print_more = print_bytes};
    for (int c; (c = getopt_long(argc, argv, "p:b:t:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'p': the_server.port = (uint16_t)number('p', optarg, 0, 65535); break;
        case 'b': the_server.host = optarg; break;
        case 't': app.idle_s = number('t', optarg, 1, 1000 * 1000); break;
        case 'h': fputs(help, stdout); return 0;
        default: fprintf(stderr, "Try 'proxy --help'.\n"); return 2;
        }
    }
    if (optind == argc)
        misuse("no TARGETHOST:PORT given");
    if (argc - optind > 1)
        misuse("one TARGETHOST:PORT, not %d", argc - optind);
    parse_target(argv[optind]);
    server_run();
    return 0;
}
