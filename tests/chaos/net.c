/* The network in memory of a bubble, with its faults: what comes back is the beginning of what was sent. */
#include "chaos.h"

#include <poll.h>
#include <sys/socket.h>

enum { ECHO_PORT = 7001, NOBODY = 7002, FIRST_PORT = 20000, ANY_LENGTH = 300 };

static int listener;
static gs_g *acceptor;
static int servers, next_port, next_name;
static bool closing;

/* Whether connections may break, or calls give up for lack of memory. */
static bool may_fail(void)
{
    return net_faults.cut || net_faults.reset || net_faults.refuse || memory_is_refused;
}

/* After this time whatever has fallen silent is given up. */
static int64_t patiently(void)
{
    return gs_now() + 100 * SEC;
}

static unsigned char nth_byte(unsigned start, size_t n)
{
    return (unsigned char)(start + n * 7 + n / 256);
}

static bool is_broken(long r)
{
    return r == -ECONNRESET || r == -EPIPE || r == -ETIMEDOUT || r == -ENOMEM || r == -ECONNREFUSED;
}

/* ---- Streams ---- */

static void serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char bytes[100];
    ssize_t n, w = 0;
    while ((n = gs_read(fd, bytes, sizeof bytes, patiently())) > 0) {
        for (ssize_t done = 0; done < n; done += w)
            if ((w = gs_write(fd, bytes + done, (size_t)(n - done), patiently())) < 0)
                break;
        if (w < 0)
            break;
    }
    if (w < 0 || n < 0)
        MUST(is_broken(w < 0 ? w : n));
    MUST_BE(gs_close(fd), 0);
    servers--;
}

static void accept_all(void *arg)
{
    (void)arg;
    MUST_BE(gs_cancel_disable(), 0);
    for (;;) {
        int fd = gs_accept(listener, NULL, NULL, GS_FOREVER);
        if (fd == -ENOMEM && memory_is_refused)
            continue;
        if (fd < 0) {
            MUST(closing);
            MUST_BE(fd, -ECANCELED, -EBADF);
            return;
        }
        servers++;
        MUST_BE(AGAIN(gs_spawn(serve, (void *)(intptr_t)fd)), 0);
    }
}

/* Sends n bytes and reads what comes back; the two overlap if there is a second goroutine. */
struct exchange {
    int fd;
    unsigned start;
    size_t n, sent, got;
    long wrote; /* the last result */
    gs_waitgroup wg;
};

static void write_exchange(void *arg)
{
    struct exchange *e = arg;
    unsigned char bytes[ANY_LENGTH];
    e->wrote = 0;
    while (e->sent < e->n) {
        for (size_t i = e->sent; i < e->n; i++)
            bytes[i] = nth_byte(e->start, i);
        if ((e->wrote = gs_write(e->fd, bytes + e->sent, e->n - e->sent, patiently())) < 0)
            break;
        e->sent += (size_t)e->wrote;
    }
}

static void write_beside(void *arg)
{
    struct exchange *e = arg;
    write_exchange(e);
    MUST_BE(gs_waitgroup_done(&e->wg), 0);
}

static void op_net_tcp(struct actor *a)
{
    struct exchange e = {.start = (unsigned)rnd(a, 256), .n = 1 + (size_t)rnd(a, ANY_LENGTH - 1)};
    unsigned char back[ANY_LENGTH];
    bool beside = one_in(a, 2);
    long r = 1;
    e.fd = gs_tcp_connect("127.0.0.1", ECHO_PORT, one_in(a, 8) ? soon(a, 2000) : patiently());
    if (e.fd < 0) {
        MUST_BE(e.fd, -ECANCELED, -ETIMEDOUT, -EAGAIN, net_faults.refuse ? -ECONNREFUSED : -ECANCELED,
                net_faults.reset ? -ECONNRESET : -ECANCELED);
        return;
    }
    if (beside) {
        MUST_BE(gs_waitgroup_add(&e.wg, 1), 0);
        MUST_BE(AGAIN(gs_spawn(write_beside, &e)), 0);
    } else {
        write_exchange(&e);
    }
    while (e.got < e.n && (beside || e.got < e.sent)) {
        if (one_in(a, 6) && (r = gs_poll_fd(e.fd, POLLIN, patiently())) < 0)
            break;
        if ((r = gs_read(e.fd, back + e.got, sizeof back - e.got, patiently())) <= 0)
            break;
        for (size_t i = e.got; i < e.got + (size_t)r; i++)
            if (back[i] != nth_byte(e.start, i))
                WRONG("byte %zu of %zu comes back as %d, not %d", i, e.n, back[i], nth_byte(e.start, i));
        e.got += (size_t)r;
    }
    if (beside)
        while (gs_waitgroup_wait(&e.wg, GS_FOREVER) == -ECANCELED)
            before_it_waits_again(a);
    MUST(e.got <= e.sent);
    if (e.got < e.n && r != -ECANCELED && e.wrote != -ECANCELED && !may_fail())
        WRONG("%zu bytes of %zu were sent and %zu came back; write gives %ld, read %ld", e.sent, e.n, e.got, e.wrote, r);
    if (r < 0)
        MUST(r == -ECANCELED || is_broken(r));
    MUST_BE(gs_close(e.fd), 0);
}

static void op_net_nobody(struct actor *a)
{
    int r = gs_tcp_connect(one_in(a, 2) ? "127.0.0.1" : "::1", NOBODY, patiently());
    MUST_BE(r, -ECONNREFUSED, -ECANCELED, net_faults.cut ? -ETIMEDOUT : -ECANCELED);
    r = gs_tcp_connect("10.0.0.1", NOBODY, patiently());
    MUST_BE(r, -ENETUNREACH, -ECANCELED);
}

/* More connections than the listener keeps, and none is accepted; then the listener closes. */
static void op_net_backlog(struct actor *a)
{
    int fds[5], port = FIRST_PORT + next_port++, n = 1 + rnd(a, LENGTH(fds)), accepted = -1;
    int own = (int)AGAIN(gs_tcp_listen("127.0.0.1", (uint16_t)port, 1 + rnd(a, 3)));
    MUST(own >= 0);
    MUST_BE(gs_tcp_listen("127.0.0.1", (uint16_t)port, 1), -EADDRINUSE, -ECANCELED);
    for (int i = 0; i < n; i++) {
        fds[i] = gs_tcp_connect("127.0.0.1", (uint16_t)port, gs_after_ms(300));
        if (fds[i] < 0)
            MUST_BE(fds[i], -ECONNREFUSED, -ECANCELED, -ETIMEDOUT, net_faults.reset ? -ECONNRESET : -ECANCELED);
    }
    if (one_in(a, 2)) {
        accepted = gs_accept(own, NULL, NULL, soon(a, 1000));
        if (accepted < 0)
            MUST_BE(accepted, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    }
    MUST_BE(gs_close(own), 0);
    if (accepted >= 0)
        MUST_BE(gs_close(accepted), 0);
    for (int i = 0; i < n; i++) {
        char c;
        if (fds[i] < 0)
            continue;
        long r = gs_read(fds[i], &c, 1, gs_after_ms(2000));
        MUST(r == 0 || r == -ECANCELED || is_broken(r));
        MUST_BE(gs_close(fds[i]), 0);
    }
}

static void op_net_unix(struct actor *a)
{
    char name[40], bytes[80];
    int server, client, peer, n = 1 + rnd(a, 80), got = 0, sent = 0;
    long r = 0;
    snprintf(name, sizeof name, one_in(a, 2) ? "@chaos-%d" : "/tmp/chaos-%d", next_name++);
    MUST((server = (int)AGAIN(gs_unix_listen(name, 1))) >= 0);
    client = gs_unix_connect(name, patiently());
    if (client >= 0) {
        peer = gs_accept(server, NULL, NULL, patiently());
        if (peer >= 0) {
            memset(bytes, 'u', sizeof bytes);
            while (sent < n && (r = gs_write(client, bytes, (size_t)(n - sent), patiently())) > 0)
                sent += (int)r;
            MUST_BE(gs_close(client), 0);
            while ((r = AGAIN(gs_read(peer, bytes, sizeof bytes, patiently()))) > 0)
                got += (int)r;
            MUST_BE(r, 0, -ECANCELED);
            if (r == 0)
                MUST_BE(got, sent);
            client = peer;
        } else {
            MUST_BE(peer, -ECANCELED, -ETIMEDOUT);
        }
        MUST_BE(gs_close(client), 0);
    } else {
        MUST_BE(client, -ECANCELED, -ETIMEDOUT);
    }
    MUST_BE(gs_close(server), 0);
    client = gs_unix_connect(name, patiently());
    MUST_BE(client, -ECONNREFUSED, -ENOENT, -ECANCELED);
}

/* ---- Datagrams ---- */

static void op_net_udp(struct actor *a)
{
    enum { MOST = 6 };
    int port = FIRST_PORT + next_port++, n = 1 + rnd(a, MOST), sent = 0, seen[MOST] = {0}, got = 0, last = -1;
    int server = (int)AGAIN(gs_udp_bind("127.0.0.1", (uint16_t)port)), client;
    long r = 0;
    MUST(server >= 0);
    MUST((client = (int)AGAIN(gs_udp_connect("127.0.0.1", (uint16_t)port, GS_NOWAIT))) >= 0 || client == -ECANCELED);
    if (client >= 0) {
        for (int i = 0; i < n; i++) {
            r = gs_send(client, &i, sizeof i, 0, patiently());
            MUST_BE(r, sizeof i, -ECANCELED, -ETIMEDOUT);
            if (r < 0)
                break;
            sent++;
        }
        for (;;) {
            int i = -1;
            r = gs_recvfrom(server, &i, sizeof i, 0, NULL, NULL, gs_after_ms(3000));
            if (r < 0)
                break;
            MUST(r == sizeof i && i >= 0 && i < sent);
            got++;
            MUST(++seen[i] == 1 || net_faults.duplicate);
            MUST(i > last || net_faults.jitter || net_faults.duplicate);
            last = i;
        }
        MUST_BE(r, -ETIMEDOUT, -ECANCELED);
        if (r == -ETIMEDOUT && !net_faults.loss)
            MUST(got >= sent);
        MUST_BE(gs_close(client), 0);
    }
    MUST_BE(gs_close(server), 0);
}

/* ---- A file that is closed under those who use it ---- */

static void waits_to_accept(void *arg)
{
    MUST_BE(gs_accept((int)(intptr_t)arg, NULL, NULL, GS_FOREVER), -ECANCELED, -ENOMEM);
}

static void op_net_close(struct actor *a)
{
    int fd = (int)AGAIN(gs_tcp_listen("127.0.0.1", 0, 0)), n = 1 + rnd(a, 3);
    gs_g *g[3];
    MUST(fd >= 0);
    for (int i = 0; i < n; i++)
        MUST_BE(AGAIN(gs_spawn_with(waits_to_accept, (void *)(intptr_t)fd, NULL, &g[i])), 0);
    /* One that comes later may meet another file with this number. */
    for (int i = 0; i < n; i++)
        until_it_waits(g[i]);
    MUST_BE(gs_close(fd), 0);
    for (int i = 0; i < n; i++) {
        while (gs_join(g[i], GS_FOREVER) == -ECANCELED)
            before_it_waits_again(a);
        gs_release(g[i]);
    }
}

void net_begin(void)
{
    servers = next_port = next_name = 0;
    closing = false;
    MUST((listener = (int)AGAIN(gs_tcp_listen("127.0.0.1", ECHO_PORT, 0))) >= 0);
    MUST_BE(AGAIN(gs_spawn_with(accept_all, NULL, NULL, &acceptor)), 0);
}

void net_end(void)
{
    while (servers > 0)
        (void)gs_sleep(10 * SEC);
    closing = true;
    MUST_BE(gs_close(listener), 0);
    MUST_BE(gs_join(acceptor, GS_FOREVER), 0);
    gs_release(acceptor);
}

const struct op ops_net[] = {
    {"net_tcp", op_net_tcp, 5, 0},
    {"net_nobody", op_net_nobody, 1, 0},
    {"net_backlog", op_net_backlog, 2, 0},
    {"net_unix", op_net_unix, 2, 0},
    {"net_udp", op_net_udp, 3, 0},
    {"net_close", op_net_close, 2, 0},
    {NULL, NULL, 0, 0},
};
