/* Files of all kinds: streams whose bytes are counted, sockets closed under their users, TCP, disk files. */
#include "chaos.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { STREAMS = 8, BLOCK = 512, BLOCKS = 256, VICTIMS = 24, SERVED_AT_ONCE = 32 };

/* The even ones are socketpairs, the odd ones pipes: written at [1], read at [0]. */
static int streams[STREAMS][2];
static atomic_long written[STREAMS], read_back[STREAMS];
static _Atomic uint64_t written_sum[STREAMS], read_sum[STREAMS];
static int disk = -1;
static atomic_bool block_used[BLOCKS];
static int listener = -1;
static uint16_t port;
static gs_g *acceptor;
static atomic_int clients, servers, victims;

/* ---- Streams ---- */

static void op_write(struct actor *a)
{
    int i = rnd(a, STREAMS), fd = streams[i][1];
    bool is_socket = i % 2 == 0;
    unsigned char bytes[64];
    struct iovec iov[2] = {{bytes, 1 + (size_t)rnd(a, 30)}, {bytes + 32, 1 + (size_t)rnd(a, 30)}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    int64_t deadline = soon(a, 500);
    ssize_t r;
    for (int k = 0; k < 64; k++)
        bytes[k] = (unsigned char)rnd(a, 256);
    switch (rnd(a, is_socket ? 5 : 2)) {
    case 0: iov[1].iov_len = 0, r = gs_write(fd, bytes, iov[0].iov_len, deadline); break;
    case 1: r = gs_writev(fd, iov, 2, deadline); break;
    case 2: iov[1].iov_len = 0, r = gs_send(fd, bytes, iov[0].iov_len, 0, deadline); break;
    case 3: iov[1].iov_len = 0, r = gs_sendto(fd, bytes, iov[0].iov_len, 0, NULL, 0, deadline); break;
    default: r = gs_sendmsg(fd, &msg, 0, deadline);
    }
    if (r < 0) {
        MUST_BE(r, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        return;
    }
    MUST(r > 0 && (size_t)r <= iov[0].iov_len + iov[1].iov_len);
    atomic_fetch_add(&written[i], r);
    for (size_t k = 0; k < (size_t)r; k++)
        atomic_fetch_add(&written_sum[i], k < iov[0].iov_len ? bytes[k] : bytes[32 + k - iov[0].iov_len]);
}

static void op_read(struct actor *a)
{
    int i = rnd(a, STREAMS), fd = streams[i][0];
    bool is_socket = i % 2 == 0;
    unsigned char bytes[64];
    struct iovec iov[2] = {{bytes, 1 + (size_t)rnd(a, 30)}, {bytes + 32, 1 + (size_t)rnd(a, 30)}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    int64_t deadline = soon(a, 1000);
    ssize_t r;
    switch (rnd(a, is_socket ? 5 : 2)) {
    case 0: iov[1].iov_len = 0, r = gs_read(fd, bytes, iov[0].iov_len, deadline); break;
    case 1: r = gs_readv(fd, iov, 2, deadline); break;
    case 2: iov[1].iov_len = 0, r = gs_recv(fd, bytes, iov[0].iov_len, 0, deadline); break;
    case 3: iov[1].iov_len = 0, r = gs_recvfrom(fd, bytes, iov[0].iov_len, 0, NULL, NULL, deadline); break;
    default: r = gs_recvmsg(fd, &msg, 0, deadline);
    }
    if (r < 0) {
        MUST_BE(r, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        return;
    }
    MUST(r > 0 && (size_t)r <= iov[0].iov_len + iov[1].iov_len);
    atomic_fetch_add(&read_back[i], r);
    for (size_t k = 0; k < (size_t)r; k++)
        atomic_fetch_add(&read_sum[i], k < iov[0].iov_len ? bytes[k] : bytes[32 + k - iov[0].iov_len]);
}

static void op_poll(struct actor *a)
{
    int i = rnd(a, STREAMS), end = rnd(a, 2), events = end ? POLLOUT : POLLIN;
    int r = gs_poll_fd(streams[i][end], events, soon(a, 500));
    if (r < 0)
        MUST_BE(r, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    else
        MUST_BE(r, events);
    MUST_BE(gs_poll_fd(streams[i][end], 1 << 30, GS_NOWAIT), -EINVAL);
}

/* ---- Files that are closed while others use them ---- */

/* Their numbers are theirs alone, and only gs_close closes them: a late user may wait for the next victim,
   but not for a file that another operation closes by close(2). */
enum { VICTIM_FD = 600 };

struct victim {
    int fd;
    bool by_poll;
};

static void reads_victim(void *arg)
{
    struct victim *v = arg;
    char c = 0;
    int r;
    if (v->by_poll)
        r = gs_poll_fd(v->fd, POLLPRI | POLLRDHUP, gs_after_ms(50));
    else
        r = (int)gs_recv(v->fd, &c, 1, MSG_PEEK, gs_after_ms(50));
    if (r < 0)
        MUST_BE(r, -EBADF, -ECANCELED, -ETIMEDOUT, -ENOTSOCK);
    free(v);
    atomic_fetch_sub(&victims, 1);
}

static void op_close_file(struct actor *a)
{
    int fds[2], fd;
    gs_g *g = NULL;
    char c = 'c';
    struct victim *v;
    if (atomic_fetch_add(&victims, 1) >= VICTIMS) {
        atomic_fetch_sub(&victims, 1);
        return;
    }
    if (in_bubble) {
        MUST_BE(AGAIN(gs_unix_pair(fds)), 0);
        fd = fds[0];
    } else {
        MUST((one_in(a, 3) ? pipe2(fds, O_CLOEXEC) : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)) == 0);
        MUST((fd = fcntl(fds[0], F_DUPFD_CLOEXEC, VICTIM_FD)) >= 0);
        MUST(close(fds[0]) == 0);
    }
    v = malloc(sizeof *v);
    *v = (struct victim){fd, one_in(a, 3)};
    MUST_BE(AGAIN(gs_spawn_with(reads_victim, v, NULL, in_bubble ? &g : NULL)), 0);
    /* In a bubble any socket may have the number next, and a late reader would take its error. */
    if (in_bubble)
        until_it_waits(g);
    if (one_in(a, 2))
        gs_yield();
    if (one_in(a, 3))
        (void)gs_sleep(rnd(a, 300) * US);
    if (one_in(a, 2))
        MUST_BE(gs_write(fds[1], &c, 1, GS_FOREVER), 1, -ECANCELED);
    gs_release(g);
    MUST_BE(gs_close(fd), 0);
    MUST_BE(gs_close(fds[1]), 0);
}

/* close(2) is allowed while there are no waiters: the number's next file is a different one. */
static void op_reuse(struct actor *a)
{
    int fds[2];
    char c = (char)rnd(a, 100), back = -1;
    for (int i = 0; i < 3; i++) {
        ssize_t r;
        /* An adopted file is closed by gs_close only. */
        bool adopted = one_in(a, 3);
        int type = SOCK_STREAM | SOCK_CLOEXEC | (adopted ? SOCK_NONBLOCK : 0);
        int flags = O_CLOEXEC | (adopted ? O_NONBLOCK : 0);
        MUST((one_in(a, 2) ? pipe2(fds, flags) : socketpair(AF_UNIX, type, 0, fds)) == 0);
        for (int end = 0; adopted && end < 2; end++)
            MUST_BE(gs_adopt(fds[end]), 0);
        MUST_BE(r = gs_read(fds[0], &back, 1, soon(a, 100)), -EAGAIN, -ETIMEDOUT, -ECANCELED);
        MUST_BE(gs_write(fds[1], &c, 1, gs_after_ms(100)), 1, -ETIMEDOUT);
        r = gs_read(fds[0], &back, 1, gs_after_ms(100));
        MUST_BE(r, 1, -ETIMEDOUT, -ECANCELED);
        if (r == 1)
            MUST_BE(back, c);
        if (!adopted && one_in(a, 2)) {
            MUST(close(fds[0]) == 0 && close(fds[1]) == 0);
        } else {
            MUST_BE(gs_close(fds[0]), 0);
            MUST_BE(gs_close(fds[1]), 0);
        }
    }
}

/* ---- TCP ---- */

static void serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char bytes[256];
    ssize_t n;
    while ((n = gs_read(fd, bytes, sizeof bytes, gs_after_ms(10000))) > 0)
        for (ssize_t done = 0; done < n;) {
            ssize_t r = gs_write(fd, bytes + done, (size_t)(n - done), gs_after_ms(10000));
            if (r < 0)
                break;
            done += r;
        }
    MUST_BE(n, 0, -ECONNRESET, -EPIPE);
    MUST_BE(gs_close(fd), 0);
    atomic_fetch_sub(&servers, 1);
}

static void accept_all(void *arg)
{
    (void)arg;
    for (;;) {
        struct sockaddr_storage from;
        uint32_t size = sizeof from;
        int fd = gs_accept(listener, (struct sockaddr *)&from, &size, GS_FOREVER);
        if (fd < 0) {
            MUST_BE(fd, -ECANCELED, -EBADF);
            return;
        }
        MUST(size > 0);
        atomic_fetch_add(&servers, 1);
        MUST_BE(gs_spawn(serve, (void *)(intptr_t)fd), 0);
    }
}

static int connect_to(struct actor *a)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)}, name;
    socklen_t size = sizeof name;
    int fd, r;
    if (one_in(a, 2))
        return gs_tcp_connect("127.0.0.1", port, gs_after_ms(5000));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST((fd = gs_socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    r = gs_connect(fd, (struct sockaddr *)&to, sizeof to, gs_after_ms(5000));
    if (r == 0) {
        MUST_BE(gs_getpeername(fd, (struct sockaddr *)&name, &size), 0);
        MUST(size == sizeof name && name.sin_port == to.sin_port);
        return fd;
    }
    MUST_BE(gs_close(fd), 0);
    return r;
}

/* A socket that listens for a while, and is shut down while others accept. */
static void op_listen(struct actor *a)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    int fd = gs_socket(AF_INET, SOCK_STREAM, 0), value = 1;
    MUST(fd >= 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MUST_BE(gs_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value), 0);
    MUST_BE(gs_bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    MUST_BE(gs_listen(fd, 0), 0);
    MUST_BE(gs_getsockname(fd, (struct sockaddr *)&at, &size), 0);
    MUST(at.sin_port != 0);
    MUST_BE(gs_accept(fd, NULL, NULL, soon(a, 500)), -EAGAIN, -ETIMEDOUT, -ECANCELED);
    size = sizeof value;
    MUST_BE(gs_getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size), 0);
    MUST(value == 1);
    MUST_BE(gs_shutdown_fd(fd, SHUT_RDWR), 0);
    MUST_BE(gs_accept(fd, NULL, NULL, soon(a, 500)), -EINVAL, -ETIMEDOUT, -ECANCELED);
    MUST_BE(gs_close(fd), 0);
}

static void op_tcp(struct actor *a)
{
    char bytes[100], back[100];
    size_t n = 1 + (size_t)rnd(a, 100), got = 0;
    int fd;
    if (atomic_fetch_add(&clients, 1) < SERVED_AT_ONCE) {
        fd = connect_to(a);
        if (fd < 0) {
            MUST_BE(fd, -ECANCELED, -ETIMEDOUT);
        } else {
            for (size_t i = 0; i < n; i++)
                bytes[i] = (char)rnd(a, 256);
            /* A cancelled goroutine can't wait for the answer. */
            ssize_t r = gs_write(fd, bytes, n, gs_after_ms(10000));
            MUST_BE(r, (long)n, -ECANCELED);
            while (r > 0 && got < n && (r = gs_read(fd, back + got, n - got, gs_after_ms(10000))) > 0)
                got += (size_t)r;
            if (r != -ECANCELED && (got != n || memcmp(bytes, back, n) != 0))
                WRONG("sent %zu bytes, got %zu back; gs_read gives %zd", n, got, r);
            MUST_BE(gs_close(fd), 0);
        }
    }
    atomic_fetch_sub(&clients, 1);
}

static void op_getaddrinfo(struct actor *a)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *res = NULL;
    bool by_name = one_in(a, 4);
    int r = gs_getaddrinfo(by_name ? "localhost" : "127.0.0.1", "80", &hints, &res, soon(a, 20000));
    if (r == 0) {
        MUST(res != NULL && res->ai_addr != NULL);
        freeaddrinfo(res);
    } else if (gs_eai(r) == 0) {
        MUST_BE(r, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        MUST(res == NULL && gs_last_error() == r);
    } else {
        MUST(by_name && res == NULL); /* a machine that doesn't know localhost */
    }
}

/* ---- Files on a disk ---- */

static void op_disk(struct actor *a)
{
    char block[BLOCK], back[BLOCK];
    int i = rnd(a, BLOCKS);
    ssize_t r;
    if (atomic_exchange(&block_used[i], true))
        return;
    memset(block, rnd(a, 256), sizeof block);
    r = gs_pwrite(disk, block, BLOCK, (off_t)i * BLOCK, gs_after_ms(1000));
    MUST_BE(r, BLOCK, -ETIMEDOUT, -ECANCELED);
    if (r == BLOCK) {
        r = gs_pread(disk, back, BLOCK, (off_t)i * BLOCK, gs_after_ms(1000));
        MUST_BE(r, BLOCK, -ETIMEDOUT, -ECANCELED);
        if (r == BLOCK)
            MUST(memcmp(block, back, BLOCK) == 0);
    }
    MUST_BE(gs_pread(disk, NULL, 1, 0, GS_NOWAIT), -EINVAL);
    MUST_BE(gs_poll_fd(disk, POLLIN, GS_NOWAIT), POLLIN);
    if (a->go)
        MUST_BE(gs_poll_fd(disk, POLLPRI, GS_FOREVER), -EPERM, -ECANCELED);
    atomic_store(&block_used[i], false);
}

/* Within the kernel: from the disk through a pipe to a socket, and back to the disk. */
static void op_copy(struct actor *a)
{
    char path[64], block[BLOCK];
    off_t at = 0;
    ssize_t r, n;
    int fd, fds[2], pair[2];
    snprintf(path, sizeof path, "/tmp/gosched-chaos-%d-%p", (int)getpid(), (void *)a);
    fd = gs_open(path, O_RDWR | O_CREAT | O_EXCL, 0600, GS_FOREVER);
    MUST(fd >= 0 && unlink(path) == 0 && ftruncate(fd, BLOCK) == 0);
    MUST_BE(gs_unix_pair(pair), 0);
    MUST(pipe(fds) == 0);
    r = gs_sendfile(pair[0], fd, &at, BLOCK, soon(a, 5000));
    MUST(r == at || r == -EAGAIN || r == -ETIMEDOUT || r == -ECANCELED);
    if (r > 0) {
        n = gs_splice(pair[1], NULL, fds[1], NULL, BLOCK, 0, soon(a, 5000));
        MUST((n > 0 && n <= r) || n == -EAGAIN || n == -ETIMEDOUT || n == -ECANCELED);
        at = 0;
        if (n > 0)
            MUST_BE(gs_splice(fds[0], NULL, fd, &at, (size_t)n, 0, GS_FOREVER), n, -ECANCELED);
        MUST(at == n || at == 0);
    }
    MUST_BE(gs_fsync(fd, soon(a, 5000)), 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    MUST_BE(gs_fdatasync(fd, GS_FOREVER), 0, -ECANCELED);
    r = gs_pread(fd, block, BLOCK, 0, GS_FOREVER);
    MUST_BE(r, BLOCK, -ECANCELED);
    for (int i = 0; i < r; i++)
        MUST_BE(block[i], 0);
    for (int i = 0; i < 2; i++) {
        MUST_BE(gs_close(fds[i]), 0);
        MUST_BE(gs_close(pair[i]), 0);
    }
    MUST_BE(gs_close(fd), 0);
}

/* Datagrams to oneself, and a stream by an abstract name. */
static void op_local(struct actor *a)
{
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    static atomic_int names;
    char name[64];
    int server = gs_udp_bind("127.0.0.1", 0), client, peer, v = rnd(a, 1000), got = -1;
    ssize_t r;
    MUST(server >= 0 && getsockname(server, (struct sockaddr *)&to, &len) == 0);
    client = gs_udp_connect("127.0.0.1", ntohs(to.sin_port), gs_after_ms(10000));
    MUST(client >= 0);
    MUST_BE(gs_write(client, &v, sizeof v, GS_FOREVER), sizeof v);
    r = gs_read(server, &got, sizeof got, soon(a, 5000));
    MUST_BE(r, sizeof v, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    MUST(r < 0 || got == v);
    MUST_BE(gs_close(client), 0);
    MUST_BE(gs_close(server), 0);
    /* Another name each time: a forked child may have the last socket still. */
    snprintf(name, sizeof name, "@gosched-chaos-%d-%d", (int)getpid(), atomic_fetch_add(&names, 1));
    server = gs_unix_listen(name, 1);
    MUST(server >= 0);
    client = gs_unix_connect(name, gs_after_ms(10000));
    MUST(client >= 0);
    peer = gs_accept(server, NULL, NULL, GS_FOREVER);
    MUST(peer >= 0);
    MUST_BE(gs_write(client, "x", 1, GS_FOREVER), 1);
    MUST_BE(gs_close(peer), 0);
    MUST_BE(gs_close(client), 0);
    MUST_BE(gs_close(server), 0);
}

/* A file of its own, read by gs_read, closed by either. */
static void op_open(struct actor *a)
{
    char bytes[64];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t r;
    MUST(fd >= 0);
    for (int n = rnd(a, 3); n >= 0; n--) {
        r = gs_read(fd, bytes, sizeof bytes, gs_after_ms(1000));
        MUST_BE(r, sizeof bytes, -ETIMEDOUT, -ECANCELED);
    }
    if (one_in(a, 2))
        MUST(close(fd) == 0);
    else
        MUST_BE(gs_close(fd), 0);
    MUST_BE(gs_close(-1), -EBADF);
}

/* ---- The round ---- */

void files_begin(void)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    static const char zeros[BLOCK * BLOCKS];
    char path[] = "/tmp/chaos-XXXXXX";
    victims = 0;
    for (int i = 0; i < STREAMS; i++) {
        written[i] = read_back[i] = 0;
        written_sum[i] = read_sum[i] = 0;
        if (in_bubble) {
            int pair[2];
            MUST_BE(AGAIN(gs_unix_pair(pair)), 0);
            streams[i][0] = pair[0];
            streams[i][1] = pair[1];
        } else if (i % 2 == 0)
            MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, streams[i]) == 0);
        else
            MUST(pipe2(streams[i], O_CLOEXEC) == 0);
    }
    if (in_bubble)
        return;
    MUST((disk = mkostemp(path, O_CLOEXEC)) >= 0);
    unlink(path);
    MUST(write(disk, zeros, sizeof zeros) == (ssize_t)sizeof zeros);
    MUST((listener = gs_tcp_listen("127.0.0.1", 0, 0)) >= 0);
    MUST(getsockname(listener, (struct sockaddr *)&at, &size) == 0);
    port = ntohs(at.sin_port);
    MUST_BE(gs_spawn_with(accept_all, NULL, NULL, &acceptor), 0);
}

void files_end(void)
{
    while (atomic_load(&servers) > 0 || atomic_load(&victims) > 0)
        gs_sleep(MS);
    if (!in_bubble) {
        MUST_BE(gs_close(listener), 0);
        MUST_BE(gs_join(acceptor, GS_FOREVER), 0);
        gs_release(acceptor);
        MUST_BE(gs_close(disk), 0);
    }
    for (int i = 0; i < STREAMS; i++) {
        unsigned char c;
        ssize_t r;
        MUST_BE(gs_close(streams[i][1]), 0);
        while ((r = AGAIN(gs_read(streams[i][0], &c, 1, gs_after_ms(5000)))) == 1) {
            read_back[i]++;
            read_sum[i] += c;
        }
        MUST_BE(r, 0);
        MUST_BE(gs_close(streams[i][0]), 0);
        if (written[i] != read_back[i] || written_sum[i] != read_sum[i])
            WRONG("stream %d: %ld bytes written, %ld read, their sums differ by %lld", i, written[i], read_back[i],
                  (long long)(written_sum[i] - read_sum[i]));
    }
}

const struct op ops_files[] = {
    {"write", op_write, 4, NO_LOCKS},
    {"read", op_read, 5, NO_LOCKS},
    {"poll", op_poll, 3, NO_LOCKS},
    {"close_file", op_close_file, 2, SHALLOW},
    {"reuse", op_reuse, 2, REAL},
    {"tcp", op_tcp, 2, REAL},
    {"listen", op_listen, 1, REAL},
    {"getaddrinfo", op_getaddrinfo, 1, REAL},
    {"disk", op_disk, 2, REAL},
    {"copy", op_copy, 1, REAL},
    {"local", op_local, 1, REAL},
    {"open", op_open, 1, REAL},
    {NULL, NULL, 0, 0},
};
