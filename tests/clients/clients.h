/* What the client programs share: the ways to make a call that blocks, the watchdog, the crowd. */
#ifndef CLIENTS_H
#define CLIENTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gosched.h>

/* How a goroutine makes a call of a library that blocks. */
enum way {
    ANNOUNCED,   /* between gs_entersyscall and gs_exitsyscall */
    UNANNOUNCED, /* just so: its P is taken back while it blocks */
    BLOCKING,    /* through gs_blocking */
    POLLED,      /* the library doesn't block; gs_poll_fd waits for its socket */
};

static const char *const way_names[] = {"announced", "unannounced", "blocking", "polled"};
static enum way way;
static int port, clients, calls;

#define WRONG(...)                                              \
    do {                                                        \
        fprintf(stderr, "WRONG: %s:%d: ", __FILE__, __LINE__);  \
        fprintf(stderr, __VA_ARGS__);                           \
        fprintf(stderr, "\n");                                  \
        _exit(1);                                               \
    } while (0)
#define MUST(cond, ...) ((cond) ? (void)0 : ({ WRONG(#cond ": " __VA_ARGS__); }))

/* Calls f(arg) in this run's way; POLLED callers don't come here. */
static inline void *call(void *(*f)(void *), void *arg)
{
    void *r;
    if (way == BLOCKING)
        return gs_blocking(f, arg);
    if (way == ANNOUNCED)
        gs_entersyscall();
    r = f(arg);
    if (way == ANNOUNCED)
        gs_exitsyscall();
    return r;
}

static inline void wait_for(int fd, int events)
{
    int r = gs_poll_fd(fd, events, gs_after_ms(60000));
    MUST(r > 0, "gs_poll_fd gives %d, %s", r, gs_strerror(r));
}

/* A value that tells client and number, of a length that differs. */
static inline int value_of(char *value, size_t size, int client, int n)
{
    int length = snprintf(value, size, "value %d of client %d ", n, client);
    int filled = (client * 31 + n * 7919) % ((int)size - length - 1);
    memset(value + length, 'a' + (client + n) % 26, (size_t)filled);
    value[length + filled] = 0;
    return length + filled;
}

static gs_waitgroup crowd;
static void (*client_body)(int client);

static inline void one_client(void *arg)
{
    client_body((int)(intptr_t)arg);
    gs_waitgroup_done(&crowd);
}

static inline void all_clients(void (*body)(int client))
{
    client_body = body;
    gs_waitgroup_add(&crowd, clients);
    for (intptr_t i = 0; i < clients; i++)
        MUST(gs_spawn(one_client, (void *)i) == 0, "no goroutine");
    MUST(gs_waitgroup_wait(&crowd, GS_FOREVER) == 0, "cancelled");
}

/* PORT WAY CLIENTS CALLS; SIGALRM ends a run that hangs. */
static inline void read_arguments(int argc, char **argv)
{
    struct rlimit files;
    if (argc != 5) {
        fprintf(stderr, "usage: %s PORT announced|unannounced|blocking|polled CLIENTS CALLS\n", argv[0]);
        exit(2);
    }
    port = atoi(argv[1]);
    while (strcmp(way_names[way], argv[2]) != 0)
        if (++way > POLLED)
            exit(2);
    clients = atoi(argv[3]);
    calls = atoi(argv[4]);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    alarm(getenv("CLIENTS_SECONDS") ? (unsigned)atoi(getenv("CLIENTS_SECONDS")) : 150);
}

#endif
