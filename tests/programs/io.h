/* What the programs about I/O share: pairs of files, sockets on the loopback, and waiting goroutines. */
#ifndef IO_H
#define IO_H

#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>

/* An empty file on a disk, without a name. */
static inline int temporary(void)
{
    char name[] = "/tmp/gosched-io-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_EQ(unlink(name), 0);
    return fd;
}

/* Two connected ends: reads come from [0], writes go to [1]. */
static inline void make_pipe(int fds[2])
{
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
}

static inline void make_pair(int fds[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
}

static inline void close_both(const int fds[2])
{
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
}

static inline uint16_t port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

static inline struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static inline int listen_on_loopback(void)
{
    int fd = gs_tcp_listen("127.0.0.1", 0, 0);
    CHECK_GE(fd, 0);
    return fd;
}

/* A TCP connection over the loopback. */
static inline void make_tcp(int fds[2])
{
    int listener = listen_on_loopback();
    fds[0] = gs_tcp_connect("127.0.0.1", port_of(listener), GS_FOREVER);
    CHECK_GE(fds[0], 0);
    fds[1] = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(fds[1], 0);
    CHECK_EQ(gs_close(listener), 0);
}

/* A listening TCP socket on the loopback and one to be connected to it, at the address `a`, made with system calls of the
   program's own. */
static inline void make_user_sockets(int *listener, int *client, struct sockaddr_in *a)
{
    *a = loopback(0);
    *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_GE(*listener, 0);
    CHECK_EQ(bind(*listener, (struct sockaddr *)a, sizeof *a), 0);
    CHECK_EQ(listen(*listener, 1), 0);
    *a = loopback(port_of(*listener));
    *client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_GE(*client, 0);
}

/* Whether the epoll instance with this number has the file. */
static inline int instance_has(const char *instance, int fd)
{
    char path[64], text[8192], want[32];
    ssize_t len;
    int info;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%s", instance);
    info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return 0;
    len = read(info, text, sizeof text - 1);
    close(info);
    text[len < 0 ? 0 : len] = 0;
    snprintf(want, sizeof want, "tfd: %8d ", fd);
    return strstr(text, want) != NULL;
}

/* Whether one epoll instance has both files. */
static inline int are_in_one_instance(int fd, int other)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *e;
    int found = 0;
    CHECK(dir != NULL);
    while (!found && (e = readdir(dir))) {
        char kind[64];
        ssize_t len = readlinkat(dirfd(dir), e->d_name, kind, sizeof kind);
        if (len > 0 && memmem(kind, (size_t)len, "eventpoll", 9))
            found = instance_has(e->d_name, fd) && instance_has(e->d_name, other);
    }
    closedir(dir);
    return found;
}

/* Whether a goroutine is about to wait for the file, or waits: it is in an epoll instance then. */
static inline int is_in_an_instance(int fd)
{
    return are_in_one_instance(fd, fd);
}

typedef void (*make_fn)(int fds[2]);
static const make_fn all_pairs[] = {make_pipe, make_pair, make_tcp};

static inline void write_all(int fd, const void *data, size_t n)
{
    const char *at = data;
    while (n > 0) {
        ssize_t r = gs_write(fd, at, n, GS_FOREVER);
        CHECK_GE(r, 1);
        at += r;
        n -= (size_t)r;
    }
}

static inline void read_full(int fd, void *data, size_t n)
{
    char *at = data;
    while (n > 0) {
        ssize_t r = gs_read(fd, at, n, GS_FOREVER);
        CHECK_GE(r, 1);
        at += r;
        n -= (size_t)r;
    }
}

/* Writes until there is no more room; gives how much went in. */
static inline size_t fill(int fd)
{
    static char block[65536];
    size_t total = 0;
    ssize_t r;
    while ((r = gs_write(fd, block, sizeof block, GS_NOWAIT)) > 0)
        total += (size_t)r;
    while ((r = gs_write(fd, block, 1, GS_NOWAIT)) > 0)
        total += (size_t)r;
    CHECK_EQ(r, -EAGAIN);
    return total;
}

/* A goroutine or thread that reads one byte; result is what gs_read gave. */
struct reader {
    int fd;
    int64_t deadline;
    char byte;
    int begun;
    ssize_t result;
    int done;
    pid_t tid;
};

static inline void read_byte(void *arg)
{
    struct reader *r = arg;
    ADD(r->begun, 1);
    r->result = gs_read(r->fd, &r->byte, 1, r->deadline);
    ADD(r->done, 1);
}

static inline void *read_byte_on_thread(void *arg)
{
    SET(((struct reader *)arg)->tid, thread_id());
    read_byte(arg);
    return NULL;
}

static inline struct reader reader_of(int fd, int64_t deadline)
{
    struct reader r;
    memset(&r, 0, sizeof r);
    r.fd = fd;
    r.deadline = deadline;
    r.result = 12345;
    return r;
}

/* In a goroutine: lets time pass in which others most likely begin to wait. Surely: until_waiting. */
static inline void settle(void)
{
    CHECK_EQ(gs_sleep(5 * MS), 0);
}

static inline void count_waiting(const gs_g_info *g, void *waiting)
{
    *(int *)waiting += g->state == GS_G_WAITING;
}

/* Until this number of goroutines are parked, however long they take to get there. */
static inline void until_waiting(int goroutines)
{
    int waiting = -1;
    while (waiting < goroutines) {
        CHECK_EQ(gs_sleep(MS), 0);
        waiting = 0;
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_foreach_g(count_waiting, &waiting), 0);
        CHECK_EQ(gs_start_the_world(), 0);
    }
}

#endif
