/*
 * server.h: what echod.c, httpd.c, proxy.c and respd.c share: listening, a goroutine for each connection,
 * a graceful stop.
 *
 * The program fills in a `server` and calls server_run, which serves until SIGTERM or SIGINT. Then
 * nothing more is accepted and every connection reads an end of file once its data is used up, so
 * that each finishes what it is at. After GRACE_S seconds, or at a second signal, those that are
 * left are cut off. SIGUSR1 prints the numbers.
 */
#ifndef SERVER_H
#define SERVER_H

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gosched.h"

enum { GRACE_S = 5, LINGER_S = 2 };

/* An open connection. It lives on the stack of its goroutine. */
typedef struct connection {
    struct connection *next, *prev;
    int fd;
    int peer; /* the socket on its other side, if there is one (server_set_peer); else -1 */
} connection;

typedef struct server {
    /* Set by the program. */
    const char *name;
    const char *host;              /* to listen on; "" for every address of the machine */
    uint16_t port;                 /* 0: the system chooses one */
    void (*greet)(const char *address); /* prints that it listens there */
    void (*serve)(connection *c);  /* on a goroutine of its own; c->fd is closed after it */
    void (*print_more)(void);      /* or NULL: prints numbers of the program's own */

    int listener, signals;
    gs_g *acceptor;
    gs_mutex lock;                 /* of the list */
    connection all;                /* its head */
    gs_waitgroup connections;
    atomic_int open;
    atomic_uint_fast64_t accepted;
    atomic_bool stopping, cut;
} server;

static server the_server;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", the_server.name, what, why);
    exit(1);
}

static void must(int result, const char *what)
{
    if (result < 0)
        fail(what, gs_strerror(result));
}

/* The option's argument as a number; ends the program if it isn't one from least to most. */
static long number(char option, const char *text, long least, long most)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < least || n > most) {
        fprintf(stderr, "%s: -%c takes a number from %ld to %ld, not '%s'\n", the_server.name,
                option, least, most, text);
        exit(2);
    }
    return n;
}

/* For a wrong command line: says what is wrong and ends the program. */
static _Noreturn void misuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", the_server.name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry '%s --help'.\n", the_server.name);
    va_end(args);
    exit(2);
}

static int64_t after_s(long seconds)
{
    return gs_after_ms(seconds * 1000);
}

/* Sends everything, unless the deadline comes first. flags as for send(2). 0, or the error. */
static __attribute__((unused)) int send_all(int fd, const void *data, size_t n, int flags,
                                            int64_t deadline)
{
    for (const char *p = data; n > 0;) {
        ssize_t sent = gs_send(fd, p, n, flags, deadline);
        if (sent < 0)
            return (int)sent;
        p += sent;
        n -= (size_t)sent;
    }
    return 0;
}

/* Sends all parts, one behind the other; changes them. 0, or the error. */
static __attribute__((unused)) int send_parts(int fd, struct iovec *parts, int count, int64_t deadline)
{
    for (;;) {
        while (count > 0 && parts->iov_len == 0)
            parts++, count--;
        while (count > 0 && parts[count - 1].iov_len == 0)
            count--;
        if (count == 0)
            return 0;
        ssize_t sent = count == 1 ? gs_write(fd, parts->iov_base, parts->iov_len, deadline)
                                  : gs_writev(fd, parts, count, deadline);
        if (sent < 0)
            return (int)sent;
        for (int i = 0; i < count; i++) {
            size_t part = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
}

/* Lets the client read the end of the answer: closing a socket that has unread data in it resets
 * the connection. */
static __attribute__((unused)) void linger(int fd)
{
    char unread[4096];
    if (shutdown(fd, SHUT_WR) != 0)
        return;
    int64_t deadline = after_s(LINGER_S);
    while (gs_read(fd, unread, sizeof unread, deadline) > 0)
        ;
}

static void server_print(const char *when)
{
    printf("%s: %s: %d connections open, %" PRIu64 " accepted", the_server.name, when,
           (int)the_server.open, (uint64_t)the_server.accepted);
    if (!the_server.stopping)
        printf(", %zu goroutines", gs_num_goroutines());
    if (the_server.print_more)
        the_server.print_more();
    printf("\n");
    fflush(stdout);
}

/* Ends what the connections read (SHUT_RD), or all of them with their peers (SHUT_RDWR). Their
 * goroutines see that in what they are doing; the file numbers stay theirs to close. */
static void shut_all(int how)
{
    must(gs_mutex_lock(&the_server.lock, GS_FOREVER), "lock");
    for (connection *c = the_server.all.next; c != &the_server.all; c = c->next) {
        shutdown(c->fd, how);
        if (how == SHUT_RDWR && c->peer >= 0)
            shutdown(c->peer, how);
    }
    must(gs_mutex_unlock(&the_server.lock), "unlock");
}

static void cut_all(void)
{
    the_server.cut = true;
    shut_all(SHUT_RDWR);
}

/* What shut_all would have done to a socket that wasn't in the list yet. Called with the lock. */
static void catch_up(const connection *c)
{
    if (the_server.stopping)
        shutdown(c->fd, SHUT_RD);
    if (the_server.cut) {
        shutdown(c->fd, SHUT_RDWR);
        if (c->peer >= 0)
            shutdown(c->peer, SHUT_RDWR);
    }
}

/* Sets the socket that is cut off together with the connection, or -1 before it is closed. */
static __attribute__((unused)) void server_set_peer(connection *c, int fd)
{
    must(gs_mutex_lock(&the_server.lock, GS_FOREVER), "lock");
    c->peer = fd;
    catch_up(c);
    must(gs_mutex_unlock(&the_server.lock), "unlock");
}

static void run_connection(void *arg)
{
    connection c = {.fd = (int)(intptr_t)arg, .peer = -1};
    connection *head = &the_server.all;

    must(gs_mutex_lock(&the_server.lock, GS_FOREVER), "lock");
    c.next = head;
    c.prev = head->prev;
    c.prev->next = head->prev = &c;
    catch_up(&c);
    must(gs_mutex_unlock(&the_server.lock), "unlock");

    the_server.serve(&c);

    must(gs_mutex_lock(&the_server.lock, GS_FOREVER), "lock");
    c.prev->next = c.next;
    c.next->prev = c.prev;
    must(gs_mutex_unlock(&the_server.lock), "unlock");
    gs_close(c.fd);
    the_server.open--;
    must(gs_waitgroup_done(&the_server.connections), "done");
}

/* 0, or why there is none; then fd is closed. */
static int start_connection(int fd)
{
    the_server.open++;
    the_server.accepted++;
    must(gs_waitgroup_add(&the_server.connections, 1), "add");
    int err = gs_spawn(run_connection, (void *)(intptr_t)fd);
    if (err < 0) {
        the_server.open--;
        must(gs_waitgroup_done(&the_server.connections), "done");
        gs_close(fd);
    }
    return err;
}

/* Accepts until it is cancelled. If there is no file or memory left, those who want to connect
 * wait in the listener's queue; it tries again after a while, when others may have left. */
static void accept_all(void *arg)
{
    (void)arg;
    bool warned = false;
    while (!the_server.stopping) {
        int fd = gs_accept(the_server.listener, NULL, NULL, GS_FOREVER);
        int err = fd < 0 ? fd : start_connection(fd);
        if (err == 0 || err == -ECANCELED)
            continue;
        if (!warned)
            fprintf(stderr, "%s: accept: %s\n", the_server.name, gs_strerror(err));
        warned = true;
        gs_sleep(20 * 1000000);
    }
    /* Those in the queue have come before the stop; closing the listener would reset them. */
    for (int i = 0, fd; i < SOMAXCONN; i++)
        if ((fd = gs_accept(the_server.listener, NULL, NULL, GS_NOWAIT)) < 0 ||
            start_connection(fd) != 0)
            break;
}

/* Reads the signals like any other file. Ends when it is cancelled. */
static void handle_signals(void *arg)
{
    (void)arg;
    struct signalfd_siginfo info;
    while (gs_read(the_server.signals, &info, sizeof info, GS_FOREVER) == sizeof info) {
        if (info.ssi_signo == SIGUSR1) {
            server_print("now");
        } else if (!the_server.stopping) {
            the_server.stopping = true;
            must(gs_cancel(the_server.acceptor), "cancel");
        } else {
            cut_all();
        }
    }
}

/* The listener's address and port as people write them; IPv6 in brackets. */
static void address_of(int fd, char *text, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[64] = "?", port[8] = "?";
    if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(text, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static void server_main(void *arg)
{
    (void)arg;
    server *s = &the_server;
    s->listener = gs_tcp_listen(s->host, s->port, 0);
    if (s->listener < 0) {
        char where[300];
        snprintf(where, sizeof where, "listen on '%s', port %u", s->host, (unsigned)s->port);
        fail(where, gs_strerror(s->listener));
    }
    char address[80];
    address_of(s->listener, address, sizeof address);
    s->greet(address);
    fflush(stdout);

    gs_g *signal_handler;
    must(gs_spawn_with(accept_all, NULL, NULL, &s->acceptor), "spawn");
    must(gs_spawn_with(handle_signals, NULL, NULL, &signal_handler), "spawn");
    must(gs_join(s->acceptor, GS_FOREVER), "join");
    gs_close(s->listener);

    shut_all(SHUT_RD);
    if (gs_waitgroup_wait(&s->connections, after_s(GRACE_S)) == -ETIMEDOUT) {
        cut_all();
        must(gs_waitgroup_wait(&s->connections, GS_FOREVER), "wait");
    }
    must(gs_cancel(signal_handler), "cancel");
    must(gs_join(signal_handler, GS_FOREVER), "join");
    gs_release(signal_handler);
    gs_release(s->acceptor);
    server_print("stopped");
}

/* Serves until a signal says to stop. Called by main; the fields of the_server are set. */
static void server_run(void)
{
    /* Goroutines run on the library's threads, which leave all signals to the host, and on this
     * one. Blocked here, they come out of the signalfd only. */
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGPIPE, SIG_IGN); /* sendfile(2) raises it */
    the_server.signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (the_server.signals < 0)
        fail("signalfd", strerror(errno));

    /* As many connections as the hard limit allows. */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    the_server.all.next = the_server.all.prev = &the_server.all;
    must(gs_run(server_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown");
    close(the_server.signals);
    if (ferror(stdout))
        fail("standard output", "can't be written");
}

#endif
