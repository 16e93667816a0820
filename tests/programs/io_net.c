/*
 * Sockets: accepting and connecting, datagrams and messages, half-closed connections, many of them.
 * seed: N6, N7
 */
#include "io.h"
#include <linux/vm_sockets.h>
#include <sys/inotify.h>

/* ---- Connecting ---- */

GO_TEST(a_connection_that_is_refused)
{
    int listener = listen_on_loopback(), fd;
    uint16_t port = port_of(listener);
    struct sockaddr_in to = loopback(port);
    CHECK_EQ(gs_close(listener), 0);
    CHECK_EQ(gs_tcp_connect("127.0.0.1", port, GS_FOREVER), -ECONNREFUSED);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER), -ECONNREFUSED);
    CHECK_EQ(gs_close(fd), 0);
}

/*
 * The kernel gives each new connection a port, and sooner or later the very port that the connection is to. Go's
 * TestTCPSelfConnect.
 */
GO_TEST(a_connection_is_never_one_to_itself)
{
    int first = 0, last = 0, i, fd, listener = -1;
    uint16_t port = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    if (!f)
        return;
    CHECK_EQ(fscanf(f, "%d %d", &first, &last), 2);
    CHECK_EQ(fclose(f), 0);
    /* The kernel prefers every second port. */
    for (i = first; i <= last && listener < 0; i += 2) {
        port = (uint16_t)i;
        listener = gs_tcp_listen("127.0.0.1", port, 1);
    }
    CHECK_GE(listener, 0);
    CHECK_EQ(gs_close(listener), 0);
    for (i = first; i <= last; i++) {
        fd = gs_tcp_connect("127.0.0.1", port, GS_FOREVER);
        if (fd < 0) {
            /* A reset: another process listened there, and has closed its listener. */
            if (fd != -ECONNRESET)
                CHECK_EQ(fd, -ECONNREFUSED);
            continue;
        }
        /* Another process listens there now. */
        CHECK_EQ(port_of(fd) == port, 0);
        CHECK_EQ(gs_close(fd), 0);
    }
}

/* As by connect(2): no attempt leaves anything behind that the next one reports. */
GO_TEST(each_attempt_to_connect_tells_its_own_result)
{
    int here = listen_on_loopback(), there = listen_on_loopback(), gone = listen_on_loopback(), fd, i;
    struct sockaddr_in to = loopback(port_of(here)), other = loopback(port_of(there)), nowhere = loopback(port_of(gone));
    CHECK_EQ(gs_close(gone), 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (i = 0; i < 4; i++)
        CHECK_EQ(gs_connect(fd, (struct sockaddr *)&nowhere, sizeof nowhere, GS_FOREVER), -ECONNREFUSED);
    CHECK_EQ(gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER), 0);
    for (i = 0; i < 2; i++)
        CHECK_EQ(gs_connect(fd, (struct sockaddr *)&other, sizeof other, GS_FOREVER), -EISCONN);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_close(here), 0);
    CHECK_EQ(gs_close(there), 0);
}

static ssize_t send_first(int call, int fd, uint16_t port, int flags, gs_deadline deadline)
{
    struct sockaddr_in to = loopback(port);
    struct iovec iov = {"first", 5};
    struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &iov, .msg_iovlen = 1};
    return call ? gs_sendmsg(fd, &m, flags | MSG_FASTOPEN, deadline)
                : gs_sendto(fd, "first", 5, flags | MSG_FASTOPEN, (struct sockaddr *)&to, sizeof to, deadline);
}

/* As by sendto(2) on a blocking socket: without a cookie of the server's the kernel connects first. */
GO_TEST(a_message_that_opens_a_connection_waits_for_it)
{
    int call;
    for (call = 0; call < 2; call++) {
        int listener = listen_on_loopback(), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
        uint16_t port = port_of(listener);
        ssize_t sent = send_first(call, fd, port, 0, GS_FOREVER);
        char text[8];
        if (sent == -EOPNOTSUPP) { /* TCP Fast Open is off */
            CHECK_EQ(gs_close(fd), 0);
            CHECK_EQ(gs_close(listener), 0);
            return;
        }
        CHECK_EQ(sent, 5);
        peer = gs_accept(listener, NULL, NULL, GS_FOREVER);
        CHECK_EQ(gs_read(peer, text, sizeof text, GS_FOREVER), 5);
        CHECK_EQ(gs_close(fd), 0);
        CHECK_EQ(gs_close(peer), 0);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(send_first(call, fd, port, MSG_DONTWAIT, GS_FOREVER), -EINPROGRESS);
        CHECK_EQ(gs_close(fd), 0);
        CHECK_EQ(gs_close(listener), 0);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(send_first(call, fd, port, 0, GS_FOREVER), -ECONNREFUSED);
        CHECK_EQ(gs_close(fd), 0);
    }
}

GO_TEST(a_socket_of_the_users_is_connected)
{
    int listener = listen_on_loopback(), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
    struct sockaddr_in to = loopback(port_of(listener)), from;
    socklen_t len = sizeof from;
    char c;
    CHECK_EQ(gs_connect(fd, (struct sockaddr *)&to, sizeof to, 1), -ETIMEDOUT);
    CHECK_EQ(gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER), 0);
    CHECK_EQ(gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER), -EISCONN);
    peer = gs_accept(listener, (struct sockaddr *)&from, &len, GS_FOREVER);
    CHECK_GE(peer, 0);
    CHECK_EQ(len, sizeof from);
    CHECK_EQ(ntohs(from.sin_port), port_of(fd));
    CHECK_EQ(gs_write(fd, "c", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(peer, &c, 1, GS_FOREVER), 1);
    CHECK_EQ(gs_close(peer), 0);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_close(listener), 0);
}

GO_TEST(a_connection_without_waiting_is_taken_up_again)
{
    int listener = listen_on_loopback(), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
    struct sockaddr_in to = loopback(port_of(listener));
    r = gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_NOWAIT);
    CHECK(r == 0 || r == -EAGAIN);
    if (r == -EAGAIN) {
        r = gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER);
        CHECK(r == 0 || r == -EISCONN);
    }
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_close(listener), 0);
}

/* The kernel gives no event when the queue of a local socket has room again. */
static int local;

static void accept_later(void *arg)
{
    int fd;
    (void)arg;
    CHECK_EQ(gs_sleep(5 * MS), 0);
    fd = gs_accept(local, NULL, NULL, GS_FOREVER);
    CHECK_GE(fd, 0);
    CHECK_EQ(gs_close(fd), 0);
}

GO_TEST(a_local_socket_with_a_full_queue_is_waited_for)
{
    struct sockaddr_un to = {AF_UNIX, ""};
    socklen_t len;
    int fds[8], n = 0, r;
    gs_g *g;
    local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                      (size_t)snprintf(to.sun_path + 1, 80, "gosched-io-%d", (int)getpid()));
    CHECK_EQ(bind(local, (struct sockaddr *)&to, len), 0);
    CHECK_EQ(listen(local, 1), 0);
    do {
        fds[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        r = gs_connect(fds[n++], (struct sockaddr *)&to, len, GS_NOWAIT);
    } while (r == 0 && n < 8);
    CHECK_EQ(r, -EAGAIN);
    CHECK_EQ(gs_connect(fds[n - 1], (struct sockaddr *)&to, len, gs_after_ms(3)), -ETIMEDOUT);
    g = go_ref(accept_later, NULL);
    CHECK_EQ(gs_connect(fds[n - 1], (struct sockaddr *)&to, len, GS_FOREVER), 0);
    join(g);
    while (n > 0)
        CHECK_EQ(gs_close(fds[--n]), 0);
    CHECK_EQ(gs_close(local), 0);
}

/* ---- Accepting ---- */

GO_TEST(what_is_accepted_does_not_block_and_is_closed_on_exec)
{
    int fds[2], i;
    make_tcp(fds);
    for (i = 0; i < 2; i++) {
        CHECK(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    }
    close_both(fds);
}

struct acceptor {
    int fd;
    int result;
    int done;
};

static void accept_one(void *arg)
{
    struct acceptor *a = arg;
    a->result = gs_accept(a->fd, NULL, NULL, GS_FOREVER);
    ADD(a->done, 1);
}

struct connecting {
    int fd;
    struct sockaddr_in to;
    int result;
    int done;
};

static void connect_it(void *arg)
{
    struct connecting *c = arg;
    c->result = gs_connect(c->fd, (struct sockaddr *)&c->to, sizeof c->to, GS_FOREVER);
    SET(c->done, 1);
}

/* The error of a socket is told once: here to this thread, as a rule. */
static void *take_the_error(void *arg)
{
    struct connecting *c = arg;
    int error = 0;
    socklen_t len = sizeof error;
    while (error == 0 && !GET(c->done))
        CHECK_EQ(getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
    return NULL;
}

enum { FULL = 3 };

/* A listener whose queue other connections fill, so that the attempt which connect_it will make lasts. */
static int full_listener(struct connecting *c, int full[FULL])
{
    struct sockaddr_in any = loopback(0);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), i;
    CHECK_EQ(bind(listener, (struct sockaddr *)&any, sizeof any), 0);
    CHECK_EQ(listen(listener, 0), 0);
    c->to = loopback(port_of(listener));
    for (i = 0; i < FULL; i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(full[i], (struct sockaddr *)&c->to, sizeof c->to);
    }
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_GE(c->fd, 0);
    return listener;
}

GO_TEST(an_attempt_to_connect_ends_though_another_one_has_the_error)
{
    struct connecting c = {.fd = -1, .result = 1};
    int full[FULL], listener = full_listener(&c, full), i;
    pthread_t t;
    gs_g *g;
    g = go_ref(connect_it, &c);
    settle();
    t = start_thread(take_the_error, &c);
    /* from now on it is refused */
    CHECK_EQ(close(listener), 0);
    join(g);
    CHECK(c.result == -ECONNREFUSED || c.result == -ECONNABORTED);
    go_join_thread(t);
    CHECK_EQ(gs_close(c.fd), 0);
    for (i = 0; i < FULL; i++)
        CHECK_EQ(close(full[i]), 0);
}

/* Not by another attempt, which connect(2) begins on a socket whose attempt was ended. */
GO_TEST(a_shutdown_ends_an_attempt_to_connect)
{
    struct connecting c = {.fd = -1, .result = 1};
    int full[FULL], listener = full_listener(&c, full), other = listen_on_loopback(), i;
    gs_g *g;
    g = go_ref(connect_it, &c);
    until_waiting(1);
    CHECK_EQ(shutdown(c.fd, SHUT_RDWR), 0);
    join(g);
    CHECK_EQ(c.result, -ECONNABORTED);
    /* Nothing is left of either attempt. */
    c.to = loopback(port_of(other));
    CHECK_EQ(gs_connect(c.fd, (struct sockaddr *)&c.to, sizeof c.to, GS_FOREVER), 0);
    CHECK_EQ(gs_write(c.fd, "c", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_close(c.fd), 0);
    for (i = 0; i < FULL; i++)
        CHECK_EQ(close(full[i]), 0);
    CHECK_EQ(close(listener), 0);
    CHECK_EQ(gs_close(other), 0);
}

/* A virtual machine's socket: as by connect(2) on a blocking socket, the first attempt's error ends the call. */
GO_TEST(an_attempt_to_connect_to_a_virtual_machine_fails_once)
{
    struct sockaddr_vm to = {.svm_family = AF_VSOCK, .svm_port = 1, .svm_cid = 0x7ffffff0};
    struct timeval timeout = {0, 50000};
    int fds[2], i, expected;
    for (i = 0; i < 2; i++) {
        fds[i] = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[i] < 0)
            return; /* the machine has none */
        CHECK_EQ(setsockopt(fds[i], AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &timeout, sizeof timeout), 0);
    }
    expected = connect(fds[0], (struct sockaddr *)&to, sizeof to) == 0 ? 0 : -errno;
    CHECK_EQ(gs_connect(fds[1], (struct sockaddr *)&to, sizeof to, GS_FOREVER), expected);
    close_both(fds);
}

GO_TEST(several_accept_on_one_socket)
{
    enum { N = 10 };
    int listener = listen_on_loopback(), i, fds[N];
    static struct acceptor a[N];
    gs_g *g[N];
    for (i = 0; i < N; i++) {
        a[i].fd = listener;
        a[i].done = 0;
        g[i] = go_ref(accept_one, &a[i]);
    }
    settle();
    for (i = 0; i < N; i++) {
        fds[i] = gs_tcp_connect("127.0.0.1", port_of(listener), GS_FOREVER);
        CHECK_GE(fds[i], 0);
    }
    for (i = 0; i < N; i++) {
        join(g[i]);
        CHECK_GE(a[i].result, 0);
        CHECK_EQ(gs_close(a[i].result), 0);
        CHECK_EQ(gs_close(fds[i]), 0);
    }
    CHECK_EQ(gs_close(listener), 0);
}

GO_TEST(close_ends_an_accept)
{
    struct acceptor a = {listen_on_loopback(), 0, 0};
    gs_g *g = go_ref(accept_one, &a);
    until_waiting(1);
    CHECK_EQ(gs_close(a.fd), 0);
    join(g);
    CHECK_EQ(a.result, -ECANCELED);
    a.fd = listen_on_loopback();
    CHECK_EQ(gs_accept(a.fd, NULL, NULL, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_accept(a.fd, NULL, NULL, gs_after_ms(3)), -ETIMEDOUT);
    CHECK_EQ(gs_close(a.fd), 0);
}

static void accept_without_files(void *arg)
{
    int listener = listen_on_loopback(), client, extra[64], n = 0, fd, i;
    struct sockaddr_in to = loopback(port_of(listener));
    struct rlimit was, few;
    (void)arg;
    CHECK_EQ(gs_accept(listener, NULL, NULL, gs_after_ms(1)), -ETIMEDOUT);
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(gs_connect(client, (struct sockaddr *)&to, sizeof to, GS_FOREVER), 0);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 40;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((fd = dup(client)) >= 0)
        extra[n++] = fd;
    for (i = 0; i < 3; i++)
        CHECK_EQ(gs_accept(listener, NULL, NULL, GS_FOREVER), -EMFILE);
    CHECK_EQ(gs_tcp_connect("127.0.0.1", port_of(listener), GS_FOREVER), -EMFILE);
    /* those who wait go on waiting, and get what there is when there is room */
    CHECK_EQ(close(extra[--n]), 0);
    fd = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(fd, 0);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_accept(listener, NULL, NULL, gs_after_ms(2)), -ETIMEDOUT);
    while (n > 0)
        CHECK_EQ(close(extra[--n]), 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
    CHECK_EQ(gs_close(client), 0);
    CHECK_EQ(gs_close(listener), 0);
}

CHILD(accept_with_few_files)
{
    CHECK_EQ(gs_run(accept_without_files, NULL), 0);
}

TEST(when_no_file_is_free_accept_says_so_and_goes_on_later)
{
    check_child_succeeds("accept_with_few_files");
}

/* ---- Half-closed ---- */

GO_TEST(a_half_closed_connection_still_carries_the_other_half)
{
    int kind;
    for (kind = 0; kind < 2; kind++) {
        int fds[2];
        char c;
        if (kind)
            make_tcp(fds);
        else
            make_pair(fds);
        CHECK_EQ(gs_write(fds[0], "1", 1, GS_FOREVER), 1);
        CHECK_EQ(shutdown(fds[0], SHUT_WR), 0);
        CHECK_EQ(gs_read(fds[1], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[1], &c, 1, GS_FOREVER), 0);
        CHECK_EQ(gs_read(fds[1], &c, 1, GS_FOREVER), 0);
        CHECK_EQ(gs_write(fds[1], "2", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(c, '2');
        CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_ms(2)), -ETIMEDOUT);
        close_both(fds);
    }
}

GO_TEST(a_reset_connection)
{
    int fds[2];
    struct linger now = {1, 0};
    struct reader r;
    gs_g *g;
    make_tcp(fds);
    r = reader_of(fds[0], GS_FOREVER);
    g = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
    join(g);
    CHECK_EQ(r.result, -ECONNRESET);
    CHECK_EQ(gs_close(fds[0]), 0);
}

/* ---- Datagrams and messages ---- */

struct receiver {
    int fd;
    char text[16];
    struct sockaddr_in from;
    ssize_t n;
};

static void receive_datagram(void *arg)
{
    struct receiver *r = arg;
    socklen_t len = sizeof r->from;
    r->n = gs_recvfrom(r->fd, r->text, sizeof r->text, 0, (struct sockaddr *)&r->from, &len, GS_FOREVER);
    CHECK_EQ(len, sizeof r->from);
}

GO_TEST(datagrams)
{
    struct receiver r;
    struct sockaddr_in to = loopback(0);
    socklen_t len = sizeof to;
    int sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    gs_g *g;
    char c;
    memset(&r, 0, sizeof r);
    r.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(r.fd, (struct sockaddr *)&to, len), 0);
    CHECK_EQ(getsockname(r.fd, (struct sockaddr *)&to, &len), 0);
    CHECK_EQ(gs_recv(r.fd, &c, 1, MSG_DONTWAIT, GS_FOREVER), -EAGAIN);
    g = go_ref(receive_datagram, &r);
    settle();
    CHECK_EQ(gs_sendto(sender, "hello", 5, 0, (struct sockaddr *)&to, sizeof to, GS_FOREVER), 5);
    join(g);
    CHECK_EQ(r.n, 5);
    CHECK_EQ(memcmp(r.text, "hello", 5), 0);
    CHECK_EQ(ntohs(r.from.sin_port), port_of(sender));
    /* one without bytes is one too, and reading nothing leaves it there */
    CHECK_EQ(gs_sendto(sender, "", 0, 0, (struct sockaddr *)&to, sizeof to, GS_FOREVER), 0);
    CHECK_EQ(gs_poll_fd(r.fd, POLLIN, GS_FOREVER), POLLIN);
    CHECK_EQ(gs_read(r.fd, &c, 0, GS_FOREVER), 0);
    CHECK_EQ(gs_recv(r.fd, &c, 1, 0, GS_FOREVER), 0);
    CHECK_EQ(gs_recv(r.fd, &c, 1, 0, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_close(r.fd), 0);
    CHECK_EQ(gs_close(sender), 0);
}

/* As readv(2) and writev(2) do: no datagram without bytes is sent, and what can't be written to gives no error. */
GO_TEST(vectors_without_bytes_move_nothing)
{
    struct iovec empty[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    int fds[2], stream[2], watch = inotify_init1(IN_CLOEXEC), i;
    char c;
    CHECK_GE(watch, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0);
    make_pair(stream);
    CHECK_EQ(shutdown(stream[0], SHUT_WR), 0);
    for (i = 0; i <= 3; i++) {
        CHECK_EQ(gs_writev(fds[0], empty, i, GS_FOREVER), 0);
        CHECK_EQ(gs_readv(fds[1], empty, i, GS_FOREVER), 0);
        CHECK_EQ(gs_recv(fds[1], &c, 1, 0, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_writev(stream[0], empty, i, GS_FOREVER), 0);
        /* before the library knows that the kernel can't tell whether a read of this file would wait, and after */
        CHECK_EQ(gs_readv(watch, empty, i, GS_FOREVER), 0);
        CHECK_EQ(gs_read(watch, &c, 0, GS_FOREVER), 0);
        CHECK_EQ(gs_read(watch, &c, 1, GS_NOWAIT), -EAGAIN);
    }
    CHECK_EQ(gs_write(fds[0], "", 0, GS_FOREVER), 0);
    CHECK_EQ(gs_recv(fds[1], &c, 1, 0, GS_NOWAIT), 0);
    close_both(fds);
    close_both(stream);
    CHECK_EQ(gs_close(watch), 0);
}

/* ---- The end of a connection ---- */

static int ends_at_poll = -1, peer_that_ends, bytes_read;

/* Sends the second byte and the end, unless that has happened. `fd`: of the readers. */
static void send_the_rest(int fd)
{
    int expected = fd;
    if (__atomic_compare_exchange_n(&ends_at_poll, &expected, -1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        CHECK_EQ(write(peer_that_ends, "2", 1), 1);
        CHECK_EQ(close(peer_that_ends), 0);
    }
}

/* glibc declares that poll only writes the events. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

/* The library's poll(2), too: data and the end of the connection come just before the library looks for the end. */
int poll(struct pollfd *files, nfds_t n, int timeout)
{
    struct timespec t = {timeout / 1000, timeout % 1000 * MS};
    if (n == 1 && files[0].events == POLLRDHUP)
        send_the_rest(files[0].fd);
    return (int)syscall(SYS_ppoll, files, n, timeout < 0 ? NULL : &t, NULL, 0);
}

#pragma GCC diagnostic pop

static void read_a_byte(void *fd)
{
    char c = 0;
    CHECK_EQ(gs_read(*(int *)fd, &c, 1, GS_FOREVER), 1);
    ADD(bytes_read, 1);
}

/* The second of two readers is mostly woken for nothing, and then checks for the end of the file. */
GO_TEST(what_comes_just_before_the_end_is_read)
{
    int round;
    for (round = 0; round < 20; round++) {
        int fds[2];
        gs_g *g[2];
        char c;
        make_pair(fds);
        SET(bytes_read, 0);
        g[0] = go_ref(read_a_byte, &fds[0]);
        g[1] = go_ref(read_a_byte, &fds[0]);
        CHECK_EQ(gs_sleep(MS), 0);
        peer_that_ends = fds[1];
        SET(ends_at_poll, fds[0]);
        CHECK_EQ(gs_write(fds[1], "1", 1, GS_FOREVER), 1);
        YIELD_UNTIL(GET(bytes_read) > 0);
        CHECK_EQ(gs_sleep(MS), 0);
        send_the_rest(fds[0]);
        join(g[0]);
        join(g[1]);
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_FOREVER), 0);
        CHECK_EQ(gs_close(fds[0]), 0);
    }
}

static int shut[2];

static void shut_it(void *arg)
{
    (void)arg;
    CHECK_EQ(shutdown(shut[0], SHUT_RD), 0);
}

static ssize_t receive_from_shut(int call, gs_deadline deadline)
{
    char text[16];
    struct iovec iov = {text, sizeof text};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    switch (call) {
    case 0: return gs_read(shut[0], text, sizeof text, deadline);
    case 1: return gs_recv(shut[0], text, sizeof text, 0, deadline);
    case 2: return gs_recv(shut[0], text, sizeof text, MSG_PEEK, deadline);
    case 3: return gs_recvfrom(shut[0], text, sizeof text, 0, (struct sockaddr *)&from, &len, deadline);
    default: return gs_recvmsg(shut[0], &m, 0, deadline);
    }
}

static void *receive_from_shut_as_thread(void *arg)
{
    CHECK_EQ(receive_from_shut(*(int *)arg, GS_FOREVER), 0);
    return NULL;
}

/* The kernel has no end for datagrams, only for calls that wait in it. */
GO_TEST(a_shutdown_ends_waits_for_datagrams)
{
    int call, before;
    for (before = 0; before < 2; before++)
        for (call = 0; call < 5; call++) {
            gs_g *g = NULL;
            CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, shut), 0);
            if (before)
                CHECK_EQ(gs_poll_fd(shut[0], POLLIN, gs_now() + MS), -ETIMEDOUT); /* epoll knows the file */
            CHECK_EQ(gs_send(shut[1], "last", 4, 0, GS_FOREVER), 4);
            if (before)
                shut_it(NULL);
            else
                g = go_ref(shut_it, NULL);
            CHECK_EQ(gs_recv(shut[0], (char[8]){0}, 8, 0, GS_FOREVER), 4);
            CHECK_EQ(receive_from_shut(call, GS_FOREVER), 0);
            CHECK_EQ(receive_from_shut(call, GS_FOREVER), 0);
            CHECK_EQ(receive_from_shut(call, GS_NOWAIT), -EAGAIN);
            join_thread(start_thread(receive_from_shut_as_thread, &call));
            if (g)
                join(g);
            close_both(shut);
        }
}

/* As by recvfrom(2) and recvmsg(2): the caller must find no address and no files there, nor what was there before. */
GO_TEST(the_end_by_a_shutdown_has_no_sender_and_no_files)
{
    int before;
    for (before = 0; before < 2; before++) {
        char text[16], space[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {text, sizeof text};
        struct sockaddr_storage from;
        struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1,
                           .msg_control = space, .msg_controllen = sizeof space, .msg_flags = MSG_TRUNC};
        socklen_t len = sizeof from;
        gs_g *g = NULL;
        CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, shut), 0);
        if (before)
            shut_it(NULL);
        else
            g = go_ref(shut_it, NULL);
        CHECK_EQ(gs_recvfrom(shut[0], text, sizeof text, 0, (struct sockaddr *)&from, &len, GS_FOREVER), 0);
        CHECK_EQ(len, 0);
        CHECK_EQ(gs_recvmsg(shut[0], &m, MSG_CMSG_CLOEXEC, GS_FOREVER), 0);
        CHECK_EQ(m.msg_namelen, 0);
        CHECK_EQ(m.msg_controllen, 0);
        CHECK_EQ(m.msg_flags, MSG_CMSG_CLOEXEC);
        CHECK_EQ(gs_recvfrom(shut[0], text, sizeof text, 0, NULL, NULL, GS_FOREVER), 0);
        m = (struct msghdr){.msg_namelen = 7, .msg_iov = &iov, .msg_iovlen = 1};
        CHECK_EQ(gs_recvmsg(shut[0], &m, 0, GS_FOREVER), 0);
        CHECK_EQ(m.msg_namelen, 7);
        if (g)
            join(g);
        close_both(shut);
    }
}

static void shut_listener(void *arg)
{
    CHECK_EQ(shutdown(*(int *)arg, SHUT_RD), 0);
}

GO_TEST(a_shutdown_ends_accept)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    gs_g *g;
    CHECK_EQ(bind(listener, (struct sockaddr *)&at, sizeof(sa_family_t)), 0); /* any abstract name */
    CHECK_EQ(listen(listener, 1), 0);
    g = go_ref(shut_listener, &listener);
    CHECK_EQ(gs_accept(listener, NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_accept(listener, NULL, NULL, GS_FOREVER), -EINVAL);
    join(g);
    CHECK_EQ(gs_close(listener), 0);
}

GO_TEST(messages_carry_files)
{
    int fds[2], sent[2], got;
    char c = 'm', space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&c, 1};
    struct msghdr m;
    struct cmsghdr *h;
    memset(&m, 0, sizeof m);
    memset(space, 0, sizeof space);
    make_pair(fds);
    make_pipe(sent);
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = space;
    m.msg_controllen = sizeof space;
    h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &sent[1], sizeof(int));
    CHECK_EQ(gs_sendmsg(fds[0], &m, 0, GS_FOREVER), 1);
    memset(space, 0, sizeof space);
    CHECK_EQ(gs_recvmsg(fds[1], &m, MSG_CMSG_CLOEXEC, GS_FOREVER), 1);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    CHECK_EQ(gs_write(got, "f", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(sent[0], &c, 1, GS_FOREVER), 1);
    CHECK_EQ(c, 'f');
    CHECK_EQ(gs_close(got), 0);
    close_both(sent);
    close_both(fds);
}

/* ---- Many connections ---- */

enum { CLIENTS = 1000, ROUNDS = 5 };
static long served, clients_done;
static uint16_t echo_port;

static void serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buf[256];
    ssize_t n;
    while ((n = gs_read(fd, buf, sizeof buf, GS_FOREVER)) > 0)
        write_all(fd, buf, (size_t)n);
    CHECK_EQ(n, 0);
    CHECK_EQ(gs_close(fd), 0);
    ADD(served, 1);
}

static void accept_all(void *arg)
{
    int listener = *(int *)arg, fd;
    while ((fd = gs_accept(listener, NULL, NULL, GS_FOREVER)) >= 0)
        go(serve, (void *)(intptr_t)fd);
    CHECK_EQ(fd, -ECANCELED);
}

static void be_a_client(void *arg)
{
    int i, fd = gs_tcp_connect("127.0.0.1", echo_port, GS_FOREVER);
    char out[100], in[100];
    CHECK_GE(fd, 0);
    for (i = 0; i < ROUNDS; i++) {
        memset(out, (int)(intptr_t)arg + i, sizeof out);
        write_all(fd, out, sizeof out);
        read_full(fd, in, sizeof in);
        CHECK_EQ(memcmp(in, out, sizeof in), 0);
    }
    CHECK_EQ(gs_close(fd), 0);
    ADD(clients_done, 1);
}

GO_TEST(a_thousand_connections_at_once)
{
    int listener = listen_on_loopback();
    intptr_t i;
    gs_g *g = go_ref(accept_all, &listener);
    SET(served, 0);
    SET(clients_done, 0);
    echo_port = port_of(listener);
    for (i = 0; i < CLIENTS; i++)
        go(be_a_client, (void *)i);
    WAIT_UNTIL(GET(clients_done) == CLIENTS && GET(served) == CLIENTS);
    CHECK_EQ(gs_close(listener), 0);
    join(g);
}

/* ---- Names ---- */

GO_TEST(hosts_by_name_and_by_address)
{
    int any = gs_tcp_listen(NULL, 0, 5), fd, peer;
    CHECK_GE(any, 0);
    fd = gs_tcp_connect("127.0.0.1", port_of(any), GS_FOREVER);
    CHECK_GE(fd, 0);
    peer = gs_accept(any, NULL, NULL, GS_FOREVER);
    CHECK_GE(peer, 0);
    CHECK_EQ(gs_close(peer), 0);
    CHECK_EQ(gs_close(fd), 0);
    fd = gs_tcp_connect("localhost", port_of(any), GS_FOREVER);
    CHECK_GE(fd, 0);
    CHECK_EQ(gs_close(fd), 0);
    fd = gs_tcp_listen("127.0.0.1", port_of(any), 5);
    CHECK_EQ(fd, -EADDRINUSE);
    CHECK_EQ(gs_close(any), 0);
    CHECK_EQ(gs_tcp_connect("127.0.0.1", 1, 1), -ETIMEDOUT);
    CHECK_EQ(gs_tcp_connect("localhost", 1, 1), -ETIMEDOUT);
}

/* A socket for all addresses is not one for IPv4 alone, where only the port of IPv6 is taken. */
GO_TEST(a_port_that_is_taken_for_one_family_is_taken)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    size_t i;
    for (i = 0; i < LENGTH(types); i++) {
        struct sockaddr_in6 any = {.sin6_family = AF_INET6};
        int one = 1, fd = socket(AF_INET6, types[i] | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return; /* the machine has no IPv6 */
        CHECK_EQ(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one), 0);
        if (bind(fd, (struct sockaddr *)&any, sizeof any) == 0) {
            int taken;
            if (types[i] == SOCK_STREAM)
                CHECK_EQ(listen(fd, 1), 0);
            taken = types[i] == SOCK_STREAM ? gs_tcp_listen(NULL, port_of(fd), 1) : gs_udp_bind(NULL, port_of(fd));
            CHECK_EQ(taken, -EADDRINUSE);
        }
        CHECK_EQ(gs_close(fd), 0);
    }
}

struct asked {
    const char *node, *service;
    int64_t deadline;
    int code, error;
};

/* A code: one of those that gs_eai knows, whatever it is. */
enum { OF_GETADDRINFO = 1 };

static void ask(void *arg)
{
    struct asked *a = arg;
    struct addrinfo *res = (struct addrinfo *)a;
    a->code = gs_getaddrinfo(a->node, a->service, NULL, &res, a->deadline);
    a->error = gs_eai(a->code);
    CHECK_EQ(gs_last_error(), a->code);
    CHECK_EQ(a->code == 0, res != NULL);
    if (res)
        freeaddrinfo(res);
}

static void ask_in_vain(void *n)
{
    struct asked a = {"localhost", NULL, GS_NOWAIT, 0, 0};
    CHECK_EQ(gs_last_error(), 0);
    ask(&a);
    CHECK_EQ(a.code, -EAGAIN);
    ADD(*(int *)n, 1);
}

/* Not the error of a goroutine that had its descriptor before. */
GO_TEST(a_new_goroutine_has_no_error)
{
    int i, n = 0;
    for (i = 0; i < 100; i += 2) {
        go(ask_in_vain, &n);
        WAIT_UNTIL(GET(n) == i + 1);
        join(go_ref(ask_in_vain, &n));
    }
}

static void *ask_on_thread(void *arg)
{
    ask(arg);
    return NULL;
}

static void ask_all(void)
{
    static const struct asked questions[] = {
        {"127.0.0.1", "80", GS_FOREVER, 0, 0},
        {"localhost", NULL, GS_FOREVER, 0, 0},
        {"localhost", NULL, INT64_MAX, 0, 0},
        {"127.0.0.1", "80", GS_NOWAIT, 0, 0},
        {"::1", NULL, GS_NOWAIT, 0, 0},
        {"localhost", NULL, GS_NOWAIT, -EAGAIN, 0},
        {"localhost", NULL, 1, -ETIMEDOUT, 0},
        {NULL, NULL, GS_FOREVER, OF_GETADDRINFO, EAI_NONAME},
    };
    size_t i;
    for (i = 0; i < LENGTH(questions); i++) {
        struct asked goroutine = questions[i], thread = questions[i];
        join(go_ref(ask, &goroutine));
        if (questions[i].code != OF_GETADDRINFO)
            CHECK_EQ(goroutine.code, questions[i].code);
        CHECK_EQ(goroutine.error, questions[i].error);
        go_join_thread(start_thread(ask_on_thread, &thread));
        CHECK_EQ(thread.code, goroutine.code);
        CHECK_EQ(thread.error, questions[i].error);
    }
}

GO_TEST(names_are_looked_up)
{
    ask_all();
}

/* What any gs_ function returns gs_strerror explains, and nothing is taken for something else. */
TEST(errors_of_lookups_and_of_the_system_are_told_apart)
{
    static const int codes[] = {EAI_NONAME, EAI_AGAIN, EAI_FAIL, EAI_FAMILY, EAI_SOCKTYPE, EAI_SERVICE, EAI_BADFLAGS};
    struct addrinfo hints, *res = NULL;
    const char *of_system = gs_strerror(-4000);
    int r, i;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = 0x40000000;
    r = gs_getaddrinfo("127.0.0.1", NULL, &hints, &res, GS_FOREVER);
    CHECK_EQ(gs_eai(r), EAI_BADFLAGS);
    CHECK(r < -4095 && strcmp(gs_strerror(r), of_system) != 0);
    hints.ai_flags = AI_NUMERICHOST;
    r = gs_getaddrinfo("no number", NULL, &hints, &res, GS_FOREVER);
    CHECK_EQ(gs_eai(r), EAI_NONAME);
    CHECK_HAS(gs_strerror(r), "No such host");
    hints.ai_flags = 0;
    hints.ai_family = 12345;
    CHECK_EQ(gs_eai(gs_getaddrinfo("127.0.0.1", NULL, &hints, &res, GS_FOREVER)), EAI_FAMILY);
    for (i = 0; i < (int)LENGTH(codes); i++) {
        int shifted = r - EAI_NONAME + codes[i];
        CHECK_EQ(gs_eai(shifted), codes[i]);
        CHECK(strcmp(gs_strerror(shifted), of_system) != 0);
    }
    for (i = -5000; i <= 5000; i++)
        CHECK_EQ(gs_eai(i), 0);
    CHECK(gs_eai(INT_MIN) == 0 && gs_eai(INT_MAX) == 0 && gs_eai(-r) == 0);
}

/* A name that is unknown, however the machine looks names up: longer than one may be. */
static const char *unknown_host(void)
{
    static char name[400];
    memset(name, 'x', sizeof name - 1);
    return name;
}

static void find_unknown_hosts(void)
{
    struct addrinfo *res = NULL;
    const char *host = unknown_host();
    int r = gs_getaddrinfo(host, NULL, NULL, &res, GS_FOREVER);
    CHECK(gs_eai(r) != 0);
    CHECK_EQ(gs_tcp_connect(host, 80, GS_FOREVER), r);
    CHECK_EQ(gs_tcp_connect(host, 80, gs_after_ms(60000)), r);
    CHECK_EQ(gs_udp_connect(host, 80, GS_FOREVER), r);
    CHECK_EQ(gs_tcp_listen(host, 80, 5), r);
    CHECK_EQ(gs_udp_bind(host, 80), r);
    /* An address has to be looked for in no list. */
    CHECK_EQ(gs_tcp_connect(host, 80, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_tcp_connect(host, 80, 1), -ETIMEDOUT);
    CHECK_EQ(gs_eai(gs_tcp_connect("", 80, GS_FOREVER)), EAI_NONAME);
}

static void *find_unknown_hosts_on_thread(void *arg)
{
    (void)arg;
    find_unknown_hosts();
    return NULL;
}

GO_TEST(an_unknown_host_is_the_same_error_for_all_who_look_it_up)
{
    find_unknown_hosts();
    go_join_thread(start_thread(find_unknown_hosts_on_thread, NULL));
}

/* A cancelled goroutine does what needs no waiting: an address is understood without a helper. */
static void ask_after_a_cancel(void *arg)
{
    struct addrinfo *res = NULL;
    (void)arg;
    CHECK_EQ(gs_park(NULL, NULL, GS_FOREVER), -ECANCELED);
    CHECK_EQ(gs_getaddrinfo("127.0.0.1", "80", NULL, &res, GS_FOREVER), 0);
    CHECK(res != NULL);
    freeaddrinfo(res);
}

GO_TEST(an_address_is_understood_after_a_cancel)
{
    gs_g *g = go_ref(ask_after_a_cancel, NULL);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

static void ask_and_be_cancelled(void *arg)
{
    struct addrinfo *res = NULL;
    int code = gs_getaddrinfo("localhost", NULL, NULL, &res, GS_FOREVER);
    (void)arg;
    CHECK(code == 0 || code == -ECANCELED);
    if (res)
        freeaddrinfo(res);
}

GO_TEST(an_answer_whose_asker_has_gone_is_dropped)
{
    int i;
    for (i = 0; i < 50; i++) {
        gs_g *g = go_ref(ask_and_be_cancelled, NULL);
        struct asked a = {"localhost", NULL, 0, 0, 0};
        a.deadline = gs_after_us(i * 4);
        ask(&a);
        CHECK(a.code == 0 || a.code == -ETIMEDOUT);
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
    }
}

/* ---- A read that relies on the last one having taken all there was ---- */

static int ends[2];

static void *send_one_more(void *arg)
{
    CHECK_EQ(send(ends[1], "y", 1, 0), 1);
    return arg;
}

static void keep_busy(void *arg)
{
    int64_t end = clock_now() + 5 * MS;
    (void)arg;
    gs_preempt_disable();
    while (clock_now() < end)
        continue;
    gs_preempt_enable();
}

/* How often goroutines were switched to. */
static uint64_t switches(void)
{
    gs_stats s = {.size = sizeof s};
    CHECK_EQ(gs_stats_read(&s), 0);
    return s.switches;
}

/* A call gets data that was there before it, even if its deadline has passed. */
GO_TEST(a_deadline_hides_nothing_that_was_there)
{
    int i, late = 0;
    for (i = 0; i < 20 + late; i++) {
        char c[100];
        struct pollfd is_there;
        uint64_t before;
        int64_t got;
        gs_g *g;
        make_tcp(ends);
        CHECK_EQ(gs_write(ends[1], "x", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(ends[0], c, sizeof c, GS_FOREVER), 1);
        CHECK_EQ(gs_poll_fd(ends[0], POLLIN, gs_now() + MS), -ETIMEDOUT);
        join_thread(start_thread(send_one_more, NULL));
        is_there = (struct pollfd){.fd = ends[0], .events = POLLIN};
        CHECK_EQ(poll(&is_there, 1, 10000), 1);
        before = switches();
        gs_preempt_disable();
        g = go_ref(keep_busy, NULL);
        got = gs_read(ends[0], c, sizeof c, gs_now() + 2 * MS);
        if (got == -ETIMEDOUT && switches() - before < 2) {
            /* It never waited: the kernel had taken the CPU away until the deadline had
             * passed, and then a call tries nothing. */
            late++;
            got = gs_read(ends[0], c, sizeof c, GS_FOREVER);
        }
        gs_preempt_enable();
        CHECK_EQ(got, 1);
        CHECK_EQ(c[0], 'y');
        join(g);
        close_both(ends);
    }
}

/* The end, an error and urgent data come though a read has taken all before them. */
GO_TEST(what_is_no_data_comes_after_a_short_read_too)
{
    char c[100];
    int way;
    for (way = 0; way < 4; way++) {
        struct linger at_once = {.l_onoff = 1, .l_linger = 0};
        make_tcp(ends);
        CHECK_EQ(gs_write(ends[1], "x", 1, GS_FOREVER), 1);
        if (way == 0)
            CHECK_EQ(shutdown(ends[1], SHUT_WR), 0); /* with the data */
        CHECK_EQ(gs_read(ends[0], c, sizeof c, GS_FOREVER), 1);
        if (way == 1)
            CHECK_EQ(shutdown(ends[1], SHUT_WR), 0);
        if (way == 2) {
            CHECK_EQ(send(ends[1], "u", 1, MSG_OOB), 1);
            CHECK_EQ(gs_write(ends[1], "b", 1, GS_FOREVER), 1);
            CHECK_EQ(gs_read(ends[0], c, sizeof c, gs_after_ms(20000)), 1);
            CHECK_EQ(c[0], 'b');
        } else if (way == 3) {
            CHECK_EQ(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
            CHECK_EQ(gs_close(ends[1]), 0);
            CHECK_EQ(gs_read(ends[0], c, sizeof c, gs_after_ms(20000)), -ECONNRESET);
            CHECK_EQ(gs_close(ends[0]), 0);
            continue;
        } else {
            CHECK_EQ(gs_read(ends[0], c, sizeof c, gs_after_ms(20000)), 0);
            CHECK_EQ(gs_read(ends[0], c, sizeof c, gs_after_ms(20000)), 0);
        }
        close_both(ends);
    }
}
