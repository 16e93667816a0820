/*
 * Numbers of files that come back as other files: by gs_close, by close(2) without waiters, by dup2.
 */
#include "io.h"
#include <sys/mman.h>

/* ---- gs_close with a waiter, and the number at once another file ---- */

struct victim {
    int fd;
    int begun;
    ssize_t result;
    char byte;
};

static void be_a_victim(void *arg)
{
    struct victim *v = arg;
    SET(v->begun, 1);
    v->result = gs_read(v->fd, &v->byte, 1, GS_FOREVER);
}

/* The waiter of the old file never gets what is written to the new one with its number. */
GO_TEST(a_closed_waiter_never_meets_the_next_file)
{
    int procs = gs_gomaxprocs(8), i, tries = procs == 8 ? 10000 : 500;
    uint64_t seed = random_seed();
    for (i = 0; i < tries; i++) {
        int old[2], new[2], extra = -1;
        struct victim v;
        gs_g *g;
        char c = 0;
        if (i % 2)
            make_pipe(old);
        else
            make_pair(old);
        memset(&v, 0, sizeof v);
        v.fd = old[0];
        g = go_ref(be_a_victim, &v);
        YIELD_UNTIL(GET(v.begun) && is_in_an_instance(old[0]));
        if (random_next(&seed) % 8 == 0) {
            /* something happens with the old one in the last moment */
            extra = (int)gs_write(old[1], "o", 1, GS_FOREVER);
            CHECK_EQ(extra, 1);
        }
        CHECK_EQ(gs_close(old[0]), 0);
        if (random_next(&seed) % 2)
            make_pipe(new);
        else
            make_pair(new);
        CHECK_EQ(gs_write(new[1], "n", 1, GS_FOREVER), 1);
        join(g);
        if (v.result == 1 && extra == 1)
            CHECK_EQ(v.byte, 'o');
        else
            CHECK_EQ(v.result, -ECANCELED);
        CHECK_EQ(gs_read(new[0], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(c, 'n');
        CHECK_EQ(gs_close(old[1]), 0);
        close_both(new);
    }
    gs_gomaxprocs(procs);
}

/* ---- close(2) without waiters ---- */

/* A goroutine waits for the number once, so that it is known, and then it is another file. */
static void use_once(int fds[2])
{
    char c;
    CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_us(200)), -ETIMEDOUT);
    CHECK_EQ(gs_write(fds[1], "u", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(fds[0], &c, 1, GS_FOREVER), 1);
}

GO_TEST(a_number_that_close_has_freed_is_another_file_later)
{
    size_t i, k;
    for (i = 0; i < LENGTH(all_pairs); i++)
        for (k = 0; k < LENGTH(all_pairs); k++) {
            int old[2], new[2], dir;
            struct reader r;
            gs_g *g;
            all_pairs[i](old);
            use_once(old);
            CHECK_EQ(close(old[0]), 0);
            CHECK_EQ(close(old[1]), 0);
            all_pairs[k](new);
            for (dir = 0; dir < 2; dir++) {
                int from = all_pairs[k] == make_pipe ? 0 : dir;
                r = reader_of(new[from], GS_FOREVER);
                g = go_ref(read_byte, &r);
                settle();
                CHECK_EQ(GET(r.done), 0);
                CHECK_EQ(gs_write(new[!from], "k", 1, GS_FOREVER), 1);
                join(g);
                CHECK_EQ(r.result, 1);
                CHECK_EQ(r.byte, 'k');
            }
            close_both(new);
        }
}

static void write_byte_later(void *fd)
{
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_write(*(int *)fd, "x", 1, GS_FOREVER), 1);
}

/* The next read of a socket whose bytes have all been read need not try before it waits; but it fails if the number is a
   pipe's writing end by then, of which epoll reports nothing. Both the user's socket and the library's. */
GO_TEST(a_pipe_for_writing_in_place_of_a_socket_without_more_bytes)
{
    struct sockaddr_in to;
    int listener, ends[2], fds[2], i;
    char bytes[2];
    make_user_sockets(&listener, &ends[0], &to);
    CHECK_EQ(gs_connect(ends[0], (struct sockaddr *)&to, sizeof to, GS_FOREVER), 0);
    ends[1] = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(ends[1], 0);
    make_pipe(fds);
    for (i = 0; i < 2; i++) {
        gs_g *g = go_ref(write_byte_later, &ends[!i]);
        CHECK_EQ(gs_read(ends[i], bytes, 2, GS_FOREVER), 1);
        join(g);
    }
    for (i = 0; i < 2; i++) {
        CHECK_EQ(dup2(fds[1], ends[i]), ends[i]);
        CHECK_EQ(gs_read(ends[i], bytes, 2, GS_FOREVER), -EBADF);
    }
    close_both(ends);
    CHECK_EQ(gs_close(listener), 0);

    /* No read of the library's socket has waited before, so the library has never asked epoll for it. */
    make_tcp(ends);
    CHECK_EQ(gs_write(ends[0], "x", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(ends[1], bytes, 2, GS_FOREVER), 1);
    CHECK_EQ(dup2(fds[1], ends[1]), ends[1]);
    CHECK_EQ(gs_read(ends[1], bytes, 2, GS_FOREVER), -EBADF);
    close_both(ends);
    close_both(fds);
}

/* A datagram without bytes goes out, though the number was that of a file to which nothing would be written. */
GO_TEST(a_datagram_without_bytes_in_place_of_a_pipe)
{
    int old[2], new[2], round;
    char c;
    for (round = 0; round < 2; round++) {
        make_pipe(old);
        CHECK_EQ(gs_write(old[0], "", 0, GS_FOREVER), -EBADF);
        CHECK_EQ(gs_write(old[1], "", 0, GS_FOREVER), 0);
        CHECK_EQ(gs_write(old[1], "p", 1, GS_FOREVER), 1);
        CHECK_EQ(close(old[0]), 0);
        CHECK_EQ(close(old[1]), 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, new), 0);
        CHECK_EQ(new[1], old[1]);
        CHECK_EQ(gs_write(new[1], "", 0, GS_FOREVER), 0);
        CHECK_EQ(gs_recv(new[0], &c, 1, 0, GS_NOWAIT), 0);
        close_both(new);
    }
}

/* A file that the library has made itself is closed behind its back. */
GO_TEST(a_socket_of_the_library_that_close_has_freed)
{
    int round;
    for (round = 0; round < 20; round++) {
        int old[2], new[2], ends[2], i;
        struct reader r;
        gs_g *g;
        make_tcp(old);
        use_once(old);
        ends[0] = old[0] < old[1] ? old[0] : old[1];
        ends[1] = old[0] < old[1] ? old[1] : old[0];
        CHECK_EQ(close(old[0]), 0);
        CHECK_EQ(close(old[1]), 0);
        make_pair(new);
        i = new[0] == ends[0] || new[0] == ends[1] ? 0 : 1;
        CHECK(new[i] == ends[0] || new[i] == ends[1]);
        r = reader_of(new[i], GS_FOREVER);
        g = go_ref(read_byte, &r);
        CHECK_EQ(gs_sleep(round % 10 * 2 * MS), 0);
        CHECK_EQ(gs_write(new[!i], "s", 1, GS_FOREVER), 1);
        join(g);
        CHECK_EQ(r.result, 1);
        CHECK_EQ(r.byte, 's');
        close_both(new);
    }
}

/* A blocking pipe in place of a pipe that was made non-blocking must not block a P. */
/* It would wait for the former file for ever. */
GO_TEST(a_plain_thread_leaves_when_the_library_makes_another_file_of_its_number)
{
    struct reader r;
    int fds[2];
    pthread_t t;
    make_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    t = start_thread(read_byte_on_thread, &r);
    WAIT_UNTIL(GET(r.begun));
    wait_asleep(&r.tid);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(gs_tcp_listen("127.0.0.1", 0, 0), fds[0]);
    go_join_thread(t);
    CHECK_EQ(r.result, -ECANCELED);
    close_both(fds);
}

GO_TEST(a_new_file_does_not_block)
{
    int round;
    for (round = 0; round < 10; round++) {
        int fds[2];
        char c;
        make_pipe(fds);
        CHECK(!(fcntl(fds[0], F_GETFL) & O_NONBLOCK));
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(close(fds[0]), 0);
        CHECK_EQ(close(fds[1]), 0);
    }
}

GO_TEST(dup2_puts_another_file_in_place)
{
    int a[2], b[2], round;
    char c;
    make_pair(a);
    make_pair(b);
    for (round = 0; round < 10; round++) {
        int *with = round % 2 ? a : b, place = a[0], keep;
        struct reader r;
        gs_g *g;
        keep = fcntl(round % 2 ? b[0] : a[0], F_DUPFD_CLOEXEC, 200);
        CHECK_GE(keep, 200);
        (void)with;
        /* the number now is the other pair's end, then its own again */
        CHECK_EQ(dup2(b[0], place), place);
        r = reader_of(place, GS_FOREVER);
        g = go_ref(read_byte, &r);
        settle();
        CHECK_EQ(gs_write(b[1], "2", 1, GS_FOREVER), 1);
        join(g);
        CHECK_EQ(r.result, 1);
        if (round % 2 == 0) {
            CHECK_EQ(dup2(keep, place), place);
            CHECK_EQ(gs_write(a[1], "a", 1, GS_FOREVER), 1);
            CHECK_EQ(gs_read(place, &c, 1, GS_FOREVER), 1);
            CHECK_EQ(gs_read(place, &c, 1, gs_after_us(300)), -ETIMEDOUT);
        } else {
            CHECK_EQ(gs_read(place, &c, 1, gs_after_us(300)), -ETIMEDOUT);
            close(place);
            close(a[1]);
            make_pair(a);
        }
        CHECK_EQ(close(keep), 0);
    }
    CHECK_EQ(gs_close(a[1]), 0);
    CHECK_EQ(gs_close(b[1]), 0);
    CHECK_EQ(gs_close(b[0]), 0);
    CHECK_EQ(gs_close(a[0]), 0);
}

/* A second copy keeps the file open, and its events must go nowhere. */
GO_TEST(a_copy_of_a_closed_file_disturbs_no_goroutine)
{
    int i;
    for (i = 0; i < 200; i++) {
        int old[2], new[2], copy;
        char c;
        make_pair(old);
        use_once(old);
        copy = fcntl(old[0], F_DUPFD_CLOEXEC, 200);
        CHECK_EQ(i % 2 ? gs_close(old[0]) : close(old[0]), 0);
        make_pair(new);
        CHECK_EQ(new[0], old[0]);
        CHECK_EQ(gs_write(old[1], "o", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(new[0], &c, 1, gs_after_us(300)), -ETIMEDOUT);
        CHECK_EQ(gs_write(new[1], "n", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(new[0], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(c, 'n');
        CHECK_EQ(gs_read(copy, &c, 1, GS_FOREVER), 1);
        CHECK_EQ(c, 'o');
        CHECK_EQ(gs_close(copy), 0);
        CHECK_EQ(gs_close(old[1]), 0);
        close_both(new);
    }
}

/* ---- Closing while many use it ---- */

static int shared;
static int closed;

static void use_until_closed(void *arg)
{
    char c;
    (void)arg;
    while (!GET(closed)) {
        ssize_t r = gs_read(shared, &c, 1, gs_after_us(100));
        CHECK(r == 1 || r == -ETIMEDOUT || r == -ECANCELED || r == -EBADF);
        if (r < 0 && r != -ETIMEDOUT)
            break;
    }
}

GO_TEST(close_among_many_users)
{
    int round;
    for (round = 0; round < 100; round++) {
        enum { N = 8 };
        int fds[2], i;
        gs_g *g[N];
        make_pair(fds);
        shared = fds[0];
        SET(closed, 0);
        for (i = 0; i < N; i++)
            g[i] = go_ref(use_until_closed, NULL);
        for (i = 0; i < 20; i++) {
            CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
            gs_yield();
        }
        CHECK_EQ(gs_close(fds[0]), 0);
        SET(closed, 1);
        for (i = 0; i < N; i++)
            join(g[i]);
        CHECK_EQ(gs_close(fds[1]), 0);
    }
}

/* ---- A number is its next file's as soon as the kernel has freed it ---- */

static int open_eventfd(void)
{
    return eventfd(0, EFD_CLOEXEC);
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int open_disk(void)
{
    return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

static int (*const openers[])(void) = {open_eventfd, open_socket, open_disk};

struct opener {
    int (*open)(void);
    int rounds;
};

static void open_and_close(void *arg)
{
    struct opener *o = arg;
    int i;
    for (i = 0; i < o->rounds; i++) {
        int fd = o->open();
        CHECK_GE(fd, 0);
        CHECK_EQ(gs_close(fd), 0);
        if (i % 64 == 0)
            gs_yield();
    }
}

static void *open_and_close_on_thread(void *arg)
{
    open_and_close(arg);
    return NULL;
}

GO_TEST(whoever_gets_a_number_next_closes_it)
{
    int fds[2];
    size_t k;
    make_pipe(fds);
    use_once(fds);
    close_both(fds);
    for (k = 0; k < LENGTH(openers); k++) {
        struct opener o = {openers[k], 4000};
        pthread_t t[2];
        gs_g *g[2];
        int i;
        for (i = 0; i < 2; i++) {
            g[i] = go_ref(open_and_close, &o);
            t[i] = start_thread(open_and_close_on_thread, &o);
        }
        for (i = 0; i < 2; i++) {
            join(g[i]);
            go_join_thread(t[i]);
        }
    }
}

static void read_eventfds(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 3000; i++) {
        uint64_t n = 0;
        int fd = eventfd(1, EFD_CLOEXEC);
        CHECK_GE(fd, 0);
        CHECK_EQ(gs_read(fd, &n, sizeof n, GS_FOREVER), sizeof n);
        CHECK_EQ(n, 1);
        CHECK_EQ(gs_close(fd), 0);
        gs_yield();
    }
}

/* Whoever closes a file on a disk may have lost its P when the number is used again. */
GO_TEST(a_number_of_a_file_on_a_disk_is_used_at_once)
{
    struct opener o = {open_disk, 3000};
    gs_g *g[6];
    int i;
    for (i = 0; i < 6; i++)
        g[i] = go_ref(i % 2 ? open_and_close : read_eventfds, &o);
    for (i = 0; i < 6; i++)
        join(g[i]);
}

struct closing {
    int fd;
    int done;
};

static void close_it(void *arg)
{
    struct closing *c = arg;
    CHECK_EQ(gs_close(c->fd), 0);
    SET(c->done, 1);
}

/* Close(2) itself takes long, and the number is free all that time. */
GO_TEST(a_close_that_lingers_keeps_neither_its_number_nor_a_p)
{
    static char block[1 << 16];
    struct linger linger = {1, 1};
    struct closing c = {-1, 0};
    int listener = listen_on_loopback(), peer, fds[2];
    char byte = 0;
    gs_g *g;
    c.fd = gs_tcp_connect("127.0.0.1", port_of(listener), GS_FOREVER);
    CHECK_GE(c.fd, 0);
    peer = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(peer, 0);
    while (gs_write(c.fd, block, sizeof block, GS_NOWAIT) > 0)
        ;
    CHECK_EQ(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    g = go_ref(close_it, &c);
    WAIT_UNTIL(fcntl(c.fd, F_GETFD) < 0);
    make_pipe(fds);
    CHECK_EQ(fds[0], c.fd);
    CHECK_EQ(gs_write(fds[1], "l", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(fds[0], &byte, 1, GS_FOREVER), 1);
    CHECK_EQ(byte, 'l');
    CHECK_EQ(gs_read(fds[0], &byte, 1, gs_after_us(500)), -ETIMEDOUT);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(GET(c.done), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
    join(g);
    CHECK_EQ(gs_close(peer), 0);
    CHECK_EQ(gs_close(listener), 0);
}

/* ---- The numbers of the library's own files ---- */

static void check_lowest_is(int lowest)
{
    int fd = open_eventfd();
    CHECK_EQ(fd, lowest);
    CHECK_EQ(close(fd), 0);
}

/* Waits on a file, so that the P or the thread that runs this gets what it needs for that. */
static void wait_on_a_pipe(void *arg)
{
    int fds[2];
    char c;
    (void)arg;
    make_pipe(fds);
    CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_us(500)), -ETIMEDOUT);
    close_both(fds);
}

static void *wait_on_a_pipe_on_thread(void *arg)
{
    wait_on_a_pipe(arg);
    return NULL;
}

/* A program counts on getting the lowest free number, and a late caller of a closed file must not meet the library's. */
GO_TEST(the_library_leaves_the_low_numbers_to_the_program)
{
    enum { MANY = 100 };
    gs_g *g[MANY];
    int i, lowest = open_eventfd(), before = gs_gomaxprocs(0);
    CHECK_EQ(close(lowest), 0);
    gs_gomaxprocs(before + 3);
    for (i = 0; i < MANY; i++)
        g[i] = go_ref(wait_on_a_pipe, NULL);
    for (i = 0; i < MANY; i++)
        join(g[i]);
    go_join_thread(start_thread(wait_on_a_pipe_on_thread, NULL));
    check_lowest_is(lowest);
    gs_gomaxprocs(before);
}

/* ---- Calls that begin beside gs_close ---- */

static int begin_now;

static void read_when_told(void *arg)
{
    struct reader *r = arg;
    while (!GET(begin_now))
        gs_yield();
    read_byte(r);
}

static void *read_when_told_on_thread(void *arg)
{
    struct reader *r = arg;
    while (!GET(begin_now))
        sched_yield();
    read_byte(r);
    return NULL;
}

/* Whoever calls in the middle of gs_close leaves in any case. A late caller meets no file of the library. */
GO_TEST(whoever_calls_beside_gs_close_leaves)
{
    uint64_t seed = random_seed();
    int round;
    for (round = 0; round < 150; round++) {
        int fds[2], i, n;
        struct reader on_thread, r[3];
        pthread_t t;
        gs_g *g[3];
        if (round % 2)
            make_pipe(fds);
        else
            make_pair(fds);
        SET(begin_now, 0);
        on_thread = reader_of(fds[0], GS_FOREVER);
        t = start_thread(read_when_told_on_thread, &on_thread);
        for (i = 0; i < 3; i++) {
            r[i] = reader_of(fds[0], GS_FOREVER);
            g[i] = go_ref(read_when_told, &r[i]);
        }
        SET(begin_now, 1);
        for (n = (int)(random_next(&seed) % 40); n > 0; n--)
            gs_yield();
        CHECK_EQ(gs_close(fds[0]), 0);
        for (i = 0; i < 3; i++) {
            join(g[i]);
            CHECK_LE(r[i].result, -1);
        }
        go_join_thread(t);
        CHECK_LE(on_thread.result, -1);
        CHECK_EQ(gs_close(fds[1]), 0);
    }
}

/* The library's close(2), too: it stops before it closes the file with this number, until it is allowed. */
static int stopped_close = -1;
static int close_has_begun;
static int close_may_end;

int close(int fd)
{
    if (fd == GET(stopped_close)) {
        SET(stopped_close, -1);
        SET(close_has_begun, 1);
        NAP_UNTIL(GET(close_may_end));
    }
    return (int)syscall(SYS_close, fd);
}

/* Those who call between the two parts of gs_close may still meet the old file, of which nothing will be told. */
GO_TEST(whoever_waits_for_a_file_that_is_just_closed_leaves)
{
    size_t k;
    for (k = 0; k < LENGTH(all_pairs); k++) {
        int fds[2];
        struct reader r, on_thread;
        struct closing c;
        pthread_t t;
        gs_g *gc, *gr;
        all_pairs[k](fds);
        c.fd = fds[0];
        c.done = 0;
        SET(close_has_begun, 0);
        SET(close_may_end, 0);
        SET(stopped_close, fds[0]);
        gc = go_ref(close_it, &c);
        WAIT_UNTIL(GET(close_has_begun));
        r = reader_of(fds[0], GS_FOREVER);
        gr = go_ref(read_byte, &r);
        on_thread = reader_of(fds[0], GS_FOREVER);
        t = start_thread(read_byte_on_thread, &on_thread);
        settle();
        SET(close_may_end, 1);
        join(gc);
        join(gr);
        CHECK(r.result == -EBADF || r.result == -ECANCELED);
        go_join_thread(t);
        CHECK(on_thread.result == -EBADF || on_thread.result == -ECANCELED);
        CHECK_EQ(gs_close(fds[1]), 0);
    }
}

/* ---- What was known of a number that close(2) has freed ---- */

/* Files that keep lower numbers from being free. */
static int fillers[64];
static int n_fillers;

static void fill_numbers_below(int number)
{
    int fd;
    while ((fd = open_eventfd()) < number) {
        CHECK(n_fillers < (int)LENGTH(fillers));
        fillers[n_fillers++] = fd;
    }
    CHECK_EQ(close(fd), 0);
}

static void close_fillers(void)
{
    while (n_fillers > 0)
        CHECK_EQ(close(fillers[--n_fillers]), 0);
}

/* The number of a socket that the library has made and close(2) has freed, which the next file gets.
   used: 0 not at all, 1 read from, 2 waited for and read from. */
static int freed_number(int used)
{
    int fds[2], low;
    char buf[8];
    make_tcp(fds);
    if (used == 2)
        CHECK_EQ(gs_read(fds[0], buf, sizeof buf, gs_after_us(200)), -ETIMEDOUT);
    if (used) {
        CHECK_EQ(gs_write(fds[1], "u", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[0], buf, sizeof buf, GS_FOREVER), 1);
        CHECK_EQ(gs_write(fds[0], "u", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[1], buf, sizeof buf, GS_FOREVER), 1);
    }
    low = fds[0] < fds[1] ? fds[0] : fds[1];
    fill_numbers_below(low);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    return low;
}

GO_TEST(a_blocking_pipe_in_place_of_a_socket_of_the_library)
{
    int used;
    for (used = 0; used < 3; used++) {
        int number = freed_number(used), fds[2];
        struct reader r;
        gs_g *g;
        make_pipe(fds);
        CHECK_EQ(fds[0], number);
        r = reader_of(fds[0], gs_after_ms(5));
        g = go_ref(read_byte, &r);
        join(g);
        CHECK_EQ(r.result, -ETIMEDOUT);
        r = reader_of(fds[0], GS_FOREVER);
        g = go_ref(read_byte, &r);
        settle();
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
        CHECK_EQ(r.result, -ECANCELED);
        close_both(fds);
        close_fillers();
    }
}

static void poll_for_input(void *arg)
{
    struct reader *r = arg;
    r->result = gs_poll_fd(r->fd, POLLIN, r->deadline);
}

/* A goroutine waits for the pipe before any call has shown that the number is no socket now. */
GO_TEST(a_wait_lasts_until_another_call_finds_a_pipe_in_place_of_a_socket)
{
    int used;
    for (used = 0; used < 3; used++) {
        int number = freed_number(used), fds[2];
        struct reader r;
        gs_g *g;
        char c;
        make_pipe(fds);
        CHECK_EQ(fds[0], number);
        r = reader_of(fds[0], GS_FOREVER);
        g = go_ref(poll_for_input, &r);
        settle();
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_write(fds[1], "p", 1, GS_FOREVER), 1);
        join(g);
        CHECK_EQ(r.result, POLLIN);
        close_both(fds);
        close_fillers();
    }
}

static void accept_one(void *arg)
{
    struct reader *r = arg;
    r->result = gs_accept(r->fd, NULL, NULL, r->deadline);
}

GO_TEST(a_blocking_listener_in_place_of_a_socket_of_the_library)
{
    int used;
    for (used = 0; used < 3; used++) {
        int number = freed_number(used), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
        struct sockaddr_in a = loopback(0);
        struct reader r;
        gs_g *g;
        CHECK_EQ(fd, number);
        CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
        CHECK_EQ(listen(fd, 5), 0);
        r = reader_of(fd, gs_after_ms(5));
        g = go_ref(accept_one, &r);
        join(g);
        CHECK_EQ(r.result, -ETIMEDOUT);
        r = reader_of(fd, GS_FOREVER);
        g = go_ref(accept_one, &r);
        settle();
        peer = gs_tcp_connect("127.0.0.1", port_of(fd), GS_FOREVER);
        CHECK_GE(peer, 0);
        join(g);
        CHECK_GE(r.result, 0);
        CHECK_EQ(gs_close((int)r.result), 0);
        CHECK_EQ(gs_close(peer), 0);
        CHECK_EQ(gs_close(fd), 0);
        close_fillers();
    }
}

GO_TEST(a_file_on_a_disk_in_place_of_a_socket_of_the_library)
{
    int used;
    for (used = 0; used < 3; used++) {
        int number = freed_number(used), fd = open_disk();
        char buf[4] = "";
        CHECK_EQ(fd, number);
        CHECK_EQ(gs_read(fd, buf, sizeof buf, GS_FOREVER), sizeof buf);
        CHECK_EQ(memcmp(buf, "\177ELF", 4), 0);
        CHECK_EQ(gs_close(fd), 0);
        close_fillers();
    }
}

/* A socket of the user's in place of a pipe stays blocking, and a file on a disk is read as one. */
GO_TEST(other_files_in_place_of_a_pipe)
{
    int fds[2], new[2], fd;
    char c;
    make_pipe(fds);
    use_once(fds);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    make_pair(new);
    CHECK_EQ(new[0], fds[0]);
    CHECK_EQ(gs_read(new[0], &c, 1, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_write(new[1], "p", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(new[0], &c, 1, GS_FOREVER), 1);
    CHECK(!(fcntl(new[0], F_GETFL) & O_NONBLOCK));
    CHECK(!(fcntl(new[1], F_GETFL) & O_NONBLOCK));
    close_both(new);
    make_pipe(fds);
    use_once(fds);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    fd = open_disk();
    CHECK_EQ(fd, fds[0]);
    CHECK_EQ(gs_read(fd, &c, 1, GS_FOREVER), 1);
    CHECK_EQ(c, '\177');
    CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
    CHECK_EQ(gs_close(fd), 0);
}

/* ---- In place of a file on a disk ---- */

/* The kernel can't tell what is in the memory of such a file. */
static int open_memory(void)
{
    int fd = memfd_create("gosched-io", MFD_CLOEXEC);
    CHECK_GE(fd, 0);
    return fd;
}

static int open_timerfd(void)
{
    return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
}

/* Something is known of the number from its former file, which close(2) has closed. */
static int number_of_a_disk_file(int (*open_it)(void))
{
    char block[100];
    int fd = open_it();
    CHECK_EQ(gs_write(fd, "to be read", 10, GS_FOREVER), 10);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(gs_read(fd, block, sizeof block, GS_FOREVER), 10);
    CHECK_EQ(gs_read(fd, block, sizeof block, GS_FOREVER), 0);
    CHECK_EQ(gs_pread(fd, block, sizeof block, 3, GS_FOREVER), 7);
    CHECK_EQ(close(fd), 0);
    return fd;
}

/* Calls on files that block don't block the thread: deadlines count. */
static void wait_in_place_of_a_disk_file(int (*open_it)(void))
{
    static int (*const waiting[])(void) = {open_eventfd, open_timerfd};
    static char block[1 << 20];
    char c[8];
    int fds[2], other[2], number, fd;
    size_t i;
    for (i = 0; i < LENGTH(waiting); i++) {
        number = number_of_a_disk_file(open_it);
        fd = waiting[i]();
        CHECK_EQ(fd, number);
        CHECK_EQ(gs_read(fd, c, sizeof c, gs_now() + 2 * MS), -ETIMEDOUT);
        CHECK_EQ(gs_close(fd), 0);
    }
    number = number_of_a_disk_file(open_it);
    make_pipe(fds);
    CHECK_EQ(fds[0], number);
    CHECK_EQ(gs_read(fds[0], c, sizeof c, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_read(fds[0], c, sizeof c, gs_now() + 2 * MS), -ETIMEDOUT);
    CHECK_EQ(gs_pread(fds[0], c, sizeof c, 0, gs_now() + 2 * MS), -ESPIPE);
    CHECK_EQ(gs_write(fds[1], "piped", 5, GS_FOREVER), 5);
    CHECK_EQ(gs_read(fds[0], c, sizeof c, GS_FOREVER), 5);
    CHECK_EQ(memcmp(c, "piped", 5), 0);
    close_both(fds);
    /* The writing end, which is full soon. */
    make_pipe(other);
    number = number_of_a_disk_file(open_it);
    CHECK_EQ(dup2(other[1], number), number);
    CHECK_LE(gs_write(number, block, sizeof block, gs_now() + 2 * MS), (ssize_t)sizeof block - 1);
    CHECK_EQ(gs_write(number, block, sizeof block, gs_now() + 2 * MS), -ETIMEDOUT);
    CHECK_EQ(gs_close(number), 0);
    close_both(other);
    number = number_of_a_disk_file(open_it);
    make_pair(fds);
    CHECK_EQ(fds[0], number);
    CHECK_EQ(gs_read(fds[0], c, sizeof c, gs_now() + 2 * MS), -ETIMEDOUT);
    CHECK_EQ(gs_write(fds[0], "paired", 6, GS_FOREVER), 6);
    CHECK_EQ(gs_read(fds[1], c, sizeof c, GS_FOREVER), 6);
    close_both(fds);
}

GO_TEST(files_that_wait_in_place_of_a_file_on_a_disk)
{
    wait_in_place_of_a_disk_file(temporary);
}

GO_TEST(files_that_wait_in_place_of_a_file_in_memory)
{
    wait_in_place_of_a_disk_file(open_memory);
}

/* Each is read and written as what it is. */
GO_TEST(files_on_disks_in_place_of_each_other)
{
    static char page[4096] __attribute__((aligned(4096)));
    char name[] = "/tmp/gosched-io-XXXXXX";
    int plain, direct, i;
    plain = mkostemp(name, O_CLOEXEC);
    CHECK_GE(plain, 0);
    for (i = 0; i < 16; i++) {
        memset(page, i, sizeof page);
        CHECK_EQ(gs_write(plain, page, sizeof page, GS_FOREVER), sizeof page);
    }
    for (i = 0; i < 16; i++) {
        int number = number_of_a_disk_file(i % 2 ? temporary : open_memory);
        direct = open(name, O_RDWR | O_CLOEXEC | (i % 4 < 2 ? O_DIRECT : 0));
        CHECK_EQ(direct, number);
        CHECK_EQ(gs_pread(direct, page, sizeof page, i * 4096, GS_FOREVER), sizeof page);
        CHECK_EQ(page[4095], i);
        CHECK_EQ(gs_pwrite(direct, page, sizeof page, i * 4096, GS_FOREVER), sizeof page);
        CHECK_EQ(gs_close(direct), 0);
    }
    CHECK_EQ(unlink(name), 0);
    CHECK_EQ(gs_close(plain), 0);
}

/* Each read takes one message. */
static void messages_in_place_of_a_disk_file(int (*open_it)(void))
{
    char message[100];
    int fds[2], number = number_of_a_disk_file(open_it);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0);
    CHECK_EQ(fds[0], number);
    CHECK_EQ(send(fds[1], "first", 5, 0), 5);
    CHECK_EQ(send(fds[1], "second", 6, 0), 6);
    CHECK_EQ(gs_read(fds[0], message, sizeof message, GS_FOREVER), 5);
    CHECK_EQ(gs_read(fds[0], message, sizeof message, GS_FOREVER), 6);
    CHECK_EQ(memcmp(message, "second", 6), 0);
    close_both(fds);
}

GO_TEST(messages_in_place_of_files_on_disks)
{
    messages_in_place_of_a_disk_file(temporary);
    messages_in_place_of_a_disk_file(open_memory);
}

/* Reads of a file with O_DIRECT never find anything in memory. */
GO_TEST(files_in_place_of_one_that_waits_for_the_disk)
{
    static char page[4096] __attribute__((aligned(4096)));
    char name[] = "/tmp/gosched-io-XXXXXX";
    int plain = mkostemp(name, O_CLOEXEC), direct = open(name, O_RDWR | O_DIRECT | O_CLOEXEC), fds[2], flags;
    CHECK_GE(plain, 0);
    if (direct < 0) {
        printf("skipped: no O_DIRECT in /tmp: %s\n", strerror(errno));
        CHECK_EQ(unlink(name), 0);
        CHECK_EQ(gs_close(plain), 0);
        return;
    }
    CHECK_EQ(gs_write(direct, page, sizeof page, GS_FOREVER), sizeof page);
    CHECK_EQ(gs_pread(direct, page, sizeof page, 0, GS_FOREVER), sizeof page);
    CHECK_EQ(gs_pread(direct, page, sizeof page, 0, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(close(direct), 0);
    make_pipe(fds);
    CHECK_EQ(fds[0], direct);
    CHECK_EQ(gs_read(fds[0], page, sizeof page, GS_NOWAIT), -EAGAIN);
    close_both(fds);
    direct = open(name, O_RDWR | O_DIRECT | O_CLOEXEC);
    CHECK_EQ(gs_pread(direct, page, sizeof page, 0, GS_FOREVER), sizeof page);
    CHECK_EQ(close(direct), 0);
    make_pipe(fds);
    CHECK_EQ(fds[0], direct);
    CHECK_EQ(gs_write(fds[1], "piped", 5, GS_FOREVER), 5);
    CHECK_EQ(gs_read(fds[0], page, sizeof page, GS_NOWAIT), 5);
    close_both(fds);
    /* The same file, of which memory has everything. */
    direct = open(name, O_RDWR | O_DIRECT | O_CLOEXEC);
    CHECK_EQ(gs_pread(direct, page, sizeof page, 0, GS_FOREVER), sizeof page);
    flags = fcntl(direct, F_GETFL);
    CHECK_EQ(fcntl(direct, F_SETFL, flags & ~O_DIRECT), 0);
    WAIT_UNTIL(pread(direct, page, sizeof page, 0) == sizeof page
               && gs_pread(direct, page, sizeof page, 0, GS_NOWAIT) == sizeof page);
    CHECK_EQ(unlink(name), 0);
    CHECK_EQ(gs_close(direct), 0);
    CHECK_EQ(gs_close(plain), 0);
}

/* ---- Numbers that the library takes ---- */

static int stop_blocking;
static int blocked_on[2];

static void block_unannounced(void *arg)
{
    char c;
    (void)arg;
    while (!GET(stop_blocking))
        CHECK_EQ(read(blocked_on[0], &c, 1), 1);
}

static void compute_until_stopped(void *arg)
{
    (void)arg;
    while (!GET(stop_blocking))
        ;
}

/* Whatever sysmon looks at, and while plain threads wait again and again: no number is taken for a moment. */
TEST(a_number_that_is_closed_comes_back_at_once)
{
    gs_g *g[6];
    int waits_on[2], i;
    struct reader r;
    make_pipe(blocked_on);
    make_pipe(waits_on);
    r = reader_of(waits_on[0], 0);
    SET(stop_blocking, 0);
    for (i = 0; i < 6; i++)
        g[i] = go_ref(i % 2 ? block_unannounced : compute_until_stopped, NULL);
    nap(20 * MS);
    for (i = 0; i < 200; i++) {
        int fd = open_disk(), k;
        CHECK_GE(fd, 0);
        for (k = 0; k < 50; k++) {
            CHECK_EQ(close(fd), 0);
            if (k % 10 == 0)
                nap(10 * US);
            CHECK_EQ(open_disk(), fd);
        }
        CHECK_EQ(close(fd), 0);
        r.deadline = gs_after_us(50);
        read_byte(&r);
        CHECK_EQ(r.result, -ETIMEDOUT);
        CHECK_EQ(write(blocked_on[1], "b", 1), 1);
    }
    SET(stop_blocking, 1);
    CHECK_EQ(write(blocked_on[1], "bbb", 3), 3);
    for (i = 0; i < 6; i++)
        join(g[i]);
    CHECK_EQ(close(blocked_on[0]), 0);
    CHECK_EQ(close(blocked_on[1]), 0);
    close_both(waits_on);
}
