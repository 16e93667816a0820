/*
 * echod: sends back whatever it gets. A TCP server with a goroutine for each connection.
 *
 * It shows that blocking code is enough: each goroutine reads and writes one connection in a plain
 * loop, and parks where a thread would block; thousands of them share a few threads. server.h does
 * the rest: accepting, the stop at SIGTERM or SIGINT, the numbers at SIGUSR1.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/echod.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o echod
 *   ./echod -p 7007 & (echo hello; sleep 1) | nc -N 127.0.0.1 7007; kill $!
 *
 * It prints:
 *
 *   echod: listening on 127.0.0.1:7007
 *   hello
 *   echod: stopped: 0 connections open, 1 accepted, 6 bytes echoed
 */
#define _GNU_SOURCE
#include <getopt.h>

#include "server.h"

static const char help[] =
    "usage: echod [-p PORT] [-t SECONDS] [HOST]\n"
    "Sends back what it gets, to any number of TCP connections at a time.\n\n"
    "  -p PORT      listen on this port; 0: a free one, which is printed (7007)\n"
    "  -t SECONDS   end a connection that is idle, or takes nothing, for so long (300)\n"
    "  -h, --help   print this\n\n"
    "HOST is the name or address to listen on (127.0.0.1); '' is all of this machine's.\n"
    "SIGTERM and SIGINT: what has come is sent back, then it ends. SIGUSR1 prints the numbers.\n\n"
    "Exit status: 0; 1 if it can't listen; 2 for a wrong option.\n";

enum { BLOCK = 16 * 1024 };

static long idle_s = 300;
static atomic_uint_fast64_t echoed;

static void echo(connection *c)
{
    char block[BLOCK];
    ssize_t n;
    /* 0: the other side has said all; an error: idle for too long, or gone. */
    while ((n = gs_read(c->fd, block, sizeof block, after_s(idle_s))) > 0) {
        if (send_all(c->fd, block, (size_t)n, 0, after_s(idle_s)) != 0)
            return;
        echoed += (uint64_t)n;
    }
}

static void greet(const char *address)
{
    printf("echod: listening on %s\n", address);
}

static void print_echoed(void)
{
    printf(", %" PRIu64 " bytes echoed", (uint64_t)echoed);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    the_server = (server){.name = "echod", .host = "127.0.0.1", .port = 7007,
                          .greet = greet, .serve = echo, .print_more = print_echoed};
    for (int c; (c = getopt_long(argc, argv, "p:t:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'p': the_server.port = (uint16_t)number('p', optarg, 0, 65535); break;
        case 't': idle_s = number('t', optarg, 1, 1000 * 1000); break;
        case 'h': fputs(help, stdout); return 0;
        default: fprintf(stderr, "Try 'echod --help'.\n"); return 2;
        }
    }
    if (argc - optind > 1)
        misuse("one HOST, not %d", argc - optind);
    if (optind < argc)
        the_server.host = argv[optind];
    server_run();
    return 0;
}
