/*
 * Reading and writing: pipes, pairs of sockets, TCP; several waiters, deadlines, cancelling, closing.
 * seed: B2 (what waits for a file costs no P), N6
 */
#include "io.h"
#include <linux/net_tstamp.h>

/* ---- Data ---- */

struct stream {
    int fd;
    long bytes;
    unsigned sum;
};

static unsigned char byte_at(long i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7);
}

static void write_stream(void *arg)
{
    struct stream *s = arg;
    unsigned char block[3001];
    long i = 0;
    while (i < s->bytes) {
        long n = s->bytes - i < (long)sizeof block ? s->bytes - i : (long)sizeof block, k;
        for (k = 0; k < n; k++)
            block[k] = byte_at(i + k);
        write_all(s->fd, block, (size_t)n);
        i += n;
    }
    CHECK_EQ(gs_close(s->fd), 0);
}

static void stream_over(make_fn make)
{
    int fds[2];
    long i = 0;
    struct stream s;
    unsigned char block[1777];
    gs_g *writer;
    make(fds);
    s.fd = fds[1];
    s.bytes = 1000000;
    writer = go_ref(write_stream, &s);
    for (;;) {
        ssize_t n = gs_read(fds[0], block, sizeof block, GS_FOREVER), k;
        CHECK_GE(n, 0);
        if (n == 0)
            break;
        for (k = 0; k < n; k++)
            CHECK_EQ(block[k], byte_at(i + k));
        i += n;
    }
    CHECK_EQ(i, s.bytes);
    join(writer);
    CHECK_EQ(gs_close(fds[0]), 0);
}

GO_TEST(bytes_arrive_in_order_up_to_the_end)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++)
        stream_over(all_pairs[i]);
}

GO_TEST(what_is_there_is_read_at_once)
{
    int fds[2];
    char buf[8];
    make_pipe(fds);
    CHECK_EQ(gs_write(fds[1], "abc", 3, GS_NOWAIT), 3);
    CHECK_EQ(gs_read(fds[0], buf, sizeof buf, GS_NOWAIT), 3);
    CHECK_EQ(memcmp(buf, "abc", 3), 0);
    CHECK_EQ(gs_read(fds[0], buf, sizeof buf, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_read(fds[0], buf, 0, GS_FOREVER), 0);
    close_both(fds);
}

GO_TEST(several_buffers)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        char a[2], b[3];
        struct iovec out[3] = {{"he", 2}, {NULL, 0}, {"llo", 3}}, in[2] = {{a, 2}, {b, 3}};
        all_pairs[i](fds);
        CHECK_EQ(gs_writev(fds[1], out, 3, GS_FOREVER), 5);
        CHECK_EQ(gs_readv(fds[0], in, 2, GS_FOREVER), 5);
        CHECK_EQ(memcmp(a, "he", 2), 0);
        CHECK_EQ(memcmp(b, "llo", 3), 0);
        CHECK_EQ(gs_writev(fds[1], out, 0, GS_FOREVER), 0);
        CHECK_EQ(gs_readv(fds[0], in, 0, GS_FOREVER), 0);
        close_both(fds);
    }
}

/* Compilers keep the address of errno, which is another thread's after a wait. */
__attribute__((noinline)) static void set_errno(int e)
{
    errno = e;
}

__attribute__((noinline)) static int get_errno(void)
{
    return errno;
}

/* The goroutine may be on another thread after the wait, and then that thread's errno counts. */
GO_TEST(errno_is_left_alone)
{
    int fds[2], i;
    char c;
    make_pair(fds);
    set_errno(4321);
    for (i = 0; i < 50; i++) {
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_ms(2)), -ETIMEDOUT);
        CHECK_EQ(gs_read(100000, &c, 1, GS_FOREVER), -EBADF);
        CHECK_EQ(gs_close(100000), -EBADF);
        CHECK_EQ(get_errno(), 4321);
    }
    close_both(fds);
}

/* ---- Waiting ---- */

GO_TEST(a_reader_waits_for_a_byte)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        struct reader r;
        gs_g *g;
        all_pairs[i](fds);
        r = reader_of(fds[0], GS_FOREVER);
        g = go_ref(read_byte, &r);
        settle();
        CHECK_EQ(GET(r.done), 0);
        CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
        join(g);
        CHECK_EQ(r.result, 1);
        CHECK_EQ(r.byte, 'x');
        close_both(fds);
    }
}

static void fill_and_write(void *arg)
{
    int fd = *(int *)arg;
    CHECK_EQ(gs_write(fd, "y", 1, GS_FOREVER), 1);
}

GO_TEST(a_writer_waits_for_room)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        static char block[65536];
        size_t left;
        gs_g *g;
        all_pairs[i](fds);
        left = fill(fds[1]) + 1;
        g = go_ref(fill_and_write, &fds[1]);
        settle();
        while (left > 0) {
            ssize_t n = gs_read(fds[0], block, left < sizeof block ? left : sizeof block, GS_FOREVER);
            CHECK_GE(n, 1);
            left -= (size_t)n;
        }
        join(g);
        close_both(fds);
    }
}

static long others;

static void run_beside(void *arg)
{
    (void)arg;
    ADD(others, 1);
}

/* seed: B2 */
GO_TEST(whoever_waits_keeps_no_p)
{
    enum { N = 100 };
    static int fds[N][2];
    static struct reader r[N];
    gs_g *g[N];
    int i;
    SET(others, 0);
    for (i = 0; i < N; i++) {
        make_pipe(fds[i]);
        r[i] = reader_of(fds[i][0], GS_FOREVER);
        g[i] = go_ref(read_byte, &r[i]);
    }
    settle();
    for (i = 0; i < 1000; i++)
        go(run_beside, NULL);
    WAIT_UNTIL(GET(others) == 1000);
    for (i = 0; i < N; i++) {
        CHECK_EQ(GET(r[i].done), 0);
        CHECK_EQ(gs_write(fds[i][1], "z", 1, GS_FOREVER), 1);
    }
    for (i = 0; i < N; i++) {
        join(g[i]);
        CHECK_EQ(r[i].result, 1);
        close_both(fds[i]);
    }
}

static void bounce(void *arg)
{
    int *fds = arg;
    char c;
    while (gs_read(fds[0], &c, 1, GS_FOREVER) == 1)
        CHECK_EQ(gs_write(fds[1], &c, 1, GS_FOREVER), 1);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
}

GO_TEST(ping_pong_over_pipes)
{
    int there[2], back[2], ends[2], i;
    gs_g *g;
    make_pipe(there);
    make_pipe(back);
    ends[0] = there[0];
    ends[1] = back[1];
    g = go_ref(bounce, ends);
    for (i = 0; i < 5000; i++) {
        char c = (char)i, d;
        CHECK_EQ(gs_write(there[1], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(back[0], &d, 1, GS_FOREVER), 1);
        CHECK_EQ(c, d);
    }
    CHECK_EQ(gs_close(there[1]), 0);
    join(g);
    CHECK_EQ(gs_close(back[0]), 0);
}

/* A goroutine that computes doesn't keep those waiting whose files are of its P. */
static int stop_computing;

static void compute(void *arg)
{
    (void)arg;
    while (!GET(stop_computing))
        gs_yield();
}

GO_TEST(busy_ps_look_at_their_files)
{
    int there[2], back[2], ends[2], i, n = gs_gomaxprocs(0) + 1;
    gs_g *g;
    gs_g *busy[17];
    make_pipe(there);
    make_pipe(back);
    ends[0] = there[0];
    ends[1] = back[1];
    SET(stop_computing, 0);
    g = go_ref(bounce, ends);
    n = n > 17 ? 17 : n;
    for (i = 0; i < n; i++)
        busy[i] = go_ref(compute, NULL);
    for (i = 0; i < 50; i++) {
        char c;
        CHECK_EQ(gs_write(there[1], "b", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(back[0], &c, 1, GS_FOREVER), 1);
    }
    SET(stop_computing, 1);
    for (i = 0; i < n; i++)
        join(busy[i]);
    CHECK_EQ(gs_close(there[1]), 0);
    join(g);
    CHECK_EQ(gs_close(back[0]), 0);
}

/* ---- Several waiters for one file ---- */

GO_TEST(one_byte_wakes_one_of_several_readers)
{
    enum { N = 20 };
    int fds[2], i, k;
    static struct reader r[N];
    gs_g *g[N];
    make_pair(fds);
    for (i = 0; i < N; i++) {
        r[i] = reader_of(fds[0], GS_FOREVER);
        g[i] = go_ref(read_byte, &r[i]);
    }
    settle();
    for (i = 1; i <= N; i++) {
        int done = 0;
        CHECK_EQ(gs_write(fds[1], "1", 1, GS_FOREVER), 1);
        do {
            CHECK_EQ(gs_sleep(100 * US), 0);
            for (done = 0, k = 0; k < N; k++)
                done += GET(r[k].done);
        } while (done < i);
        CHECK_EQ(done, i);
    }
    for (i = 0; i < N; i++)
        join(g[i]);
    close_both(fds);
}

GO_TEST(all_bytes_at_once_wake_all_readers)
{
    enum { N = 50 };
    size_t kind;
    for (kind = 0; kind < LENGTH(all_pairs); kind++) {
        int fds[2], i;
        static struct reader r[N];
        gs_g *g[N];
        char bytes[N];
        memset(bytes, 'a', N);
        all_pairs[kind](fds);
        for (i = 0; i < N; i++) {
            r[i] = reader_of(fds[0], GS_FOREVER);
            g[i] = go_ref(read_byte, &r[i]);
        }
        settle();
        write_all(fds[1], bytes, N);
        for (i = 0; i < N; i++) {
            join(g[i]);
            CHECK_EQ(r[i].result, 1);
        }
        close_both(fds);
    }
}

GO_TEST(the_end_of_a_file_wakes_all_readers)
{
    enum { N = 10 };
    size_t kind;
    for (kind = 0; kind < LENGTH(all_pairs); kind++) {
        int fds[2], i;
        static struct reader r[N];
        gs_g *g[N];
        all_pairs[kind](fds);
        for (i = 0; i < N; i++) {
            r[i] = reader_of(fds[0], GS_FOREVER);
            g[i] = go_ref(read_byte, &r[i]);
        }
        settle();
        CHECK_EQ(gs_close(fds[1]), 0);
        for (i = 0; i < N; i++) {
            join(g[i]);
            CHECK_EQ(r[i].result, 0);
        }
        CHECK_EQ(gs_close(fds[0]), 0);
    }
}

/* A waiter that is woken and then leaves for another reason passes on what it was woken for. */
GO_TEST(a_reader_that_gives_up_keeps_no_byte_from_others)
{
    int round;
    for (round = 0; round < 200; round++) {
        int fds[2];
        struct reader quick, slow;
        gs_g *a, *b;
        make_pair(fds);
        quick = reader_of(fds[0], gs_after_us(round % 50 * 10 + 1));
        slow = reader_of(fds[0], GS_FOREVER);
        a = go_ref(read_byte, &quick);
        b = go_ref(read_byte, &slow);
        CHECK_EQ(gs_sleep(round % 7 * 50 * US), 0);
        CHECK_EQ(gs_write(fds[1], "1", 1, GS_FOREVER), 1);
        join(a);
        if (quick.result == 1)
            CHECK_EQ(gs_write(fds[1], "2", 1, GS_FOREVER), 1);
        else
            CHECK_EQ(quick.result, -ETIMEDOUT);
        join(b);
        CHECK_EQ(slow.result, 1);
        close_both(fds);
    }
}

/* ---- Deadlines ---- */

GO_TEST(a_passed_deadline_comes_first)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        char c;
        all_pairs[i](fds);
        CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[0], &c, 1, 1), -ETIMEDOUT);
        CHECK_EQ(gs_read(fds[0], &c, 1, -5), -ETIMEDOUT);
        CHECK_EQ(gs_write(fds[1], "x", 1, 1), -ETIMEDOUT);
        CHECK_EQ(gs_poll_fd(fds[0], POLLIN, 1), -ETIMEDOUT);
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), 1);
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), -EAGAIN);
        close_both(fds);
    }
}

GO_TEST(a_wait_ends_at_its_deadline)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        char c;
        ssize_t written;
        int64_t until = gs_after_ms(10);
        all_pairs[i](fds);
        CHECK_EQ(gs_read(fds[0], &c, 1, until), -ETIMEDOUT);
        CHECK_GE(gs_now(), until);
        fill(fds[1]);
        /* TCP has room again when the receiver's side has taken what is under way. */
        do {
            until = gs_after_ms(10);
            written = gs_write(fds[1], "x", 1, until);
        } while (written == 1);
        CHECK_EQ(written, -ETIMEDOUT);
        CHECK_GE(gs_now(), until);
        /* it is as good as before */
        CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_ms(60000)), 1);
        close_both(fds);
    }
}

TEST(a_wait_of_a_plain_thread_ends_at_its_deadline)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        char c;
        int64_t until = gs_after_ms(10);
        all_pairs[i](fds);
        CHECK_EQ(gs_read(fds[0], &c, 1, until), -ETIMEDOUT);
        CHECK_GE(gs_now(), until);
        close_both(fds);
    }
}

/* ---- Cancelling and closing ---- */

GO_TEST(a_cancelled_reader_leaves)
{
    int fds[2];
    struct reader r;
    gs_g *g;
    make_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    g = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
    CHECK_EQ(r.result, -ECANCELED);
    close_both(fds);
}

static void read_what_is_there(void *arg)
{
    int fd = *(int *)arg;
    char c;
    CHECK_EQ(gs_sleep(SEC), -ECANCELED);
    CHECK_EQ(gs_read(fd, &c, 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(fd, &c, 1, GS_FOREVER), -ECANCELED);
}

GO_TEST(a_cancelled_goroutine_reads_what_is_there)
{
    int fds[2];
    gs_g *g;
    make_pair(fds);
    CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
    g = go_ref(read_what_is_there, &fds[0]);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
    close_both(fds);
}

/* A duplicate of the file under a number that nothing else gets when it is free: others get the lowest. */
static int moved_up(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 700);
    CHECK_GE(high, 700);
    CHECK_EQ(gs_close(fd), 0);
    return high;
}

GO_TEST(close_wakes_every_waiter)
{
    enum { N = 10 };
    size_t kind;
    for (kind = 0; kind < LENGTH(all_pairs); kind++) {
        int fds[2], i;
        static struct reader r[2 * N];
        gs_g *g[N];
        pthread_t t[N];
        all_pairs[kind](fds);
        fds[0] = moved_up(fds[0]);
        for (i = 0; i < N; i++) {
            r[i] = reader_of(fds[0], i % 2 ? GS_FOREVER : gs_after_ms(60000));
            r[N + i] = r[i];
            g[i] = go_ref(read_byte, &r[i]);
            t[i] = start_thread(read_byte_on_thread, &r[N + i]);
        }
        for (i = 0; i < N; i++)
            WAIT_UNTIL(GET(r[N + i].begun));
        until_waiting(N);
        CHECK_EQ(gs_close(fds[0]), 0);
        for (i = 0; i < N; i++) {
            join(g[i]);
            go_join_thread(t[i]);
            CHECK_EQ(r[i].result, -ECANCELED);
            CHECK(r[N + i].result == -ECANCELED || r[N + i].result == -EBADF);
        }
        CHECK_EQ(gs_close(fds[0]), -EBADF);
        CHECK_EQ(gs_close(fds[1]), 0);
    }
}

static void wait_to_write(void *arg)
{
    struct reader *r = arg;
    r->result = gs_write(r->fd, "w", 1, r->deadline);
}

GO_TEST(close_wakes_writers_too)
{
    int fds[2];
    struct reader r;
    gs_g *g;
    make_pair(fds);
    fill(fds[1]);
    r = reader_of(fds[1], GS_FOREVER);
    g = go_ref(wait_to_write, &r);
    until_waiting(1);
    CHECK_EQ(gs_close(fds[1]), 0);
    join(g);
    CHECK_EQ(r.result, -ECANCELED);
    CHECK_EQ(gs_close(fds[0]), 0);
}

/* ---- Other kinds of files ---- */

static void raise_event(void *arg)
{
    uint64_t n = 3;
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_write(*(int *)arg, &n, 8, GS_FOREVER), 8);
}

GO_TEST(eventfds_and_timerfds)
{
    struct itimerspec in = {{0, 0}, {0, 2000000}};
    int event = eventfd(0, EFD_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    uint64_t n = 0;
    gs_g *g = go_ref(raise_event, &event);
    CHECK_EQ(gs_read(event, &n, 8, GS_FOREVER), 8);
    CHECK_EQ(n, 3);
    join(g);
    CHECK_EQ(timerfd_settime(timer, 0, &in, NULL), 0);
    CHECK_EQ(gs_read(timer, &n, 8, GS_FOREVER), 8);
    CHECK_EQ(n, 1);
    CHECK_EQ(gs_close(event), 0);
    CHECK_EQ(gs_close(timer), 0);
}

GO_TEST(an_epoll_instance_of_the_user_can_be_waited_for)
{
    int ep = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC);
    struct epoll_event e = {EPOLLIN, {0}};
    gs_g *g;
    CHECK_EQ(epoll_ctl(ep, EPOLL_CTL_ADD, event, &e), 0);
    g = go_ref(raise_event, &event);
    CHECK_EQ(gs_poll_fd(ep, POLLIN, GS_FOREVER), POLLIN);
    CHECK_EQ(epoll_wait(ep, &e, 1, 0), 1);
    join(g);
    CHECK_EQ(gs_close(ep), 0);
    CHECK_EQ(gs_close(event), 0);
}

GO_TEST(poll_says_which_events_there_are)
{
    int fds[2];
    make_pair(fds);
    CHECK_EQ(gs_poll_fd(fds[0], POLLIN | POLLOUT, GS_FOREVER), POLLOUT);
    CHECK_EQ(gs_poll_fd(fds[0], POLLIN, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_poll_fd(fds[0], POLLIN, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_poll_fd(fds[0], POLLIN | POLLOUT, GS_FOREVER), POLLIN | POLLOUT);
    CHECK_EQ(gs_poll_fd(fds[0], POLLIN, 1), -ETIMEDOUT);
    CHECK_EQ(shutdown(fds[1], SHUT_WR), 0);
    CHECK_EQ(gs_poll_fd(fds[0], POLLRDHUP, GS_FOREVER), POLLRDHUP);
    CHECK_EQ(gs_close(fds[1]), 0);
    CHECK(gs_poll_fd(fds[0], 0, GS_FOREVER) & POLLHUP);
    CHECK_EQ(gs_close(fds[0]), 0);
}

static void wait_for_either(void *arg)
{
    struct reader *r = arg;
    r->result = gs_poll_fd(r->fd, POLLIN | POLLOUT, r->deadline);
    ADD(r->done, 1);
}

/* ---- Those who wait for something else than others do ---- */

struct poller {
    int fd;
    int events;
    int flags; /* not 0: it receives with these instead */
    int result;
};

static void poll_or_receive(void *arg)
{
    struct poller *p = arg;
    char byte, control[256];
    struct iovec iov = {&byte, 1};
    struct msghdr msg;
    memset(&msg, 0, sizeof msg);
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    p->result = p->flags ? (int)gs_recvmsg(p->fd, &msg, p->flags, GS_FOREVER)
                         : gs_poll_fd(p->fd, p->events, GS_FOREVER);
}

static const struct poller pollers[] = {
    {-1, POLLRDHUP, 0, 0}, {-1, POLLPRI, 0, 0}, {-1, 0, 0, 0}, {-1, 0, MSG_ERRQUEUE, 0},
};

/* Each of them has begun to wait before the reader, and gets nothing of what the reader gets. */
GO_TEST(whoever_waits_for_something_else_keeps_nothing_from_a_reader)
{
    size_t i, k;
    for (k = 1; k < LENGTH(all_pairs); k++)
        for (i = 0; i < LENGTH(pollers); i++) {
            struct poller p = pollers[i];
            struct reader r;
            int fds[2];
            gs_g *gp, *gr;
            if (all_pairs[k] == make_pair && p.flags)
                continue; /* a local socket has no such queue */
            all_pairs[k](fds);
            p.fd = fds[0];
            gp = go_ref(poll_or_receive, &p);
            until_waiting(1);
            r = reader_of(fds[0], GS_FOREVER);
            gr = go_ref(read_byte, &r);
            until_waiting(2);
            CHECK_EQ(gs_write(fds[1], "r", 1, GS_FOREVER), 1);
            join(gr);
            CHECK_EQ(r.result, 1);
            CHECK_EQ(r.byte, 'r');
            CHECK_EQ(gs_close(fds[0]), 0);
            join(gp);
            CHECK_EQ(p.result, -ECANCELED);
            CHECK_EQ(gs_close(fds[1]), 0);
        }
}

/* The other way round: after a time stamp of what was sent a reader finds nothing, and others do. */
GO_TEST(a_reader_keeps_nothing_from_whoever_waits_for_something_else)
{
    enum { STAMPS = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE };
    struct poller error = {-1, 0, MSG_ERRQUEUE, 0}, data = {-1, POLLIN, 0, 0};
    struct sockaddr_in a = loopback(0);
    struct reader r;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), stamps = STAMPS, sender;
    gs_g *gr, *ge, *gd;
    CHECK_GE(fd, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps), 0);
    r = reader_of(fd, GS_FOREVER);
    gr = go_ref(read_byte, &r);
    settle();
    error.fd = data.fd = fd;
    ge = go_ref(poll_or_receive, &error);
    gd = go_ref(poll_or_receive, &data);
    settle();
    sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(sender, (struct sockaddr *)&a, sizeof a), 0);
    a = loopback(port_of(sender));
    CHECK_EQ(gs_sendto(fd, "s", 1, 0, (struct sockaddr *)&a, sizeof a, GS_FOREVER), 1);
    join(ge);
    CHECK_GE(error.result, 0);
    CHECK_EQ(GET(r.done), 0);
    /* two: the reader takes one, and the poller sees the other */
    a = loopback(port_of(fd));
    CHECK_EQ(gs_sendto(sender, "1", 1, 0, (struct sockaddr *)&a, sizeof a, GS_FOREVER), 1);
    CHECK_EQ(gs_sendto(sender, "2", 1, 0, (struct sockaddr *)&a, sizeof a, GS_FOREVER), 1);
    join(gr);
    CHECK_EQ(r.result, 1);
    join(gd);
    CHECK_GE(data.result, 1);
    CHECK_EQ(gs_close(sender), 0);
    CHECK_EQ(gs_close(fd), 0);
}

/* poll(2) says nothing of a file on a disk that isn't wanted, and never would. */
static void poll_a_disk(void)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_EQ(gs_poll_fd(fd, POLLPRI, GS_FOREVER), -EPERM);
    CHECK_EQ(gs_poll_fd(fd, POLLRDHUP, GS_FOREVER), -EPERM);
    CHECK_EQ(gs_poll_fd(fd, POLLPRI, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_close(fd), 0);
}

GO_TEST(no_goroutine_waits_for_a_file_on_a_disk)
{
    poll_a_disk();
}

TEST(no_plain_thread_waits_for_a_file_on_a_disk)
{
    poll_a_disk();
}

GO_TEST(one_may_wait_for_both_directions)
{
    int fds[2], round;
    for (round = 0; round < 2; round++) {
        struct reader r;
        gs_g *g;
        static char block[65536];
        make_pair(fds);
        fill(fds[0]);
        r = reader_of(fds[0], GS_FOREVER);
        g = go_ref(wait_for_either, &r);
        settle();
        CHECK_EQ(GET(r.done), 0);
        if (round == 0)
            CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
        else
            while (gs_read(fds[1], block, sizeof block, GS_NOWAIT) > 0)
                ;
        join(g);
        CHECK_EQ(r.result, round == 0 ? POLLIN : POLLOUT);
        close_both(fds);
    }
}

/* ---- The reader has gone ---- */

static void write_without_a_reader(void *arg)
{
    size_t i;
    (void)arg;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2], k;
        ssize_t r = 0;
        all_pairs[i](fds);
        CHECK_EQ(gs_close(fds[0]), 0);
        for (k = 0; k < 100 && r >= 0; k++) {
            r = gs_write(fds[1], "x", 1, GS_FOREVER);
            (void)gs_sleep(100 * US);
        }
        CHECK(r == -EPIPE || r == -ECONNRESET);
        CHECK(gs_write(fds[1], "x", 1, GS_FOREVER) == -EPIPE);
        CHECK_EQ(gs_close(fds[1]), 0);
    }
}

static void *write_without_a_reader_on_thread(void *arg)
{
    sigset_t set, before;
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    write_without_a_reader(arg);
    /* neither has it left a signal behind, nor changed the mask */
    CHECK_EQ(sigpending(&set), 0);
    CHECK_EQ(sigismember(&set, SIGPIPE), 0);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
    CHECK_EQ(sigismember(&set, SIGPIPE), sigismember(&before, SIGPIPE));
    return NULL;
}

GO_TEST(sigpipe_is_never_raised)
{
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    write_without_a_reader(NULL);
    join(go_ref(write_without_a_reader, NULL));
    go_join_thread(start_thread(write_without_a_reader_on_thread, NULL));
}

TEST(a_sigpipe_that_waits_already_stays)
{
    sigset_t set, before;
    struct timespec none = {0, 0};
    int fds[2];
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
    CHECK_EQ(pthread_kill(pthread_self(), SIGPIPE), 0);
    make_pipe(fds);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), -EPIPE);
    CHECK_EQ(gs_close(fds[1]), 0);
    CHECK_EQ(sigtimedwait(&set, NULL, &none), SIGPIPE);
    CHECK_EQ(sigtimedwait(&set, NULL, &none), -1);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}
