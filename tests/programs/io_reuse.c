/*
 * Numbers of files that come back as other files: by gs_close, by close(2) while nobody waits, by dup2.
 */
#include "io.h"

/* ---- gs_close while somebody waits, and the number at once another file ---- */

/* Whether a goroutine is about to wait for the file, or waits: it is in an epoll instance then. */
static int is_in_an_instance(int fd)
{
    int n;
    for (n = 0; n < 64; n++) {
        char path[64], text[8192], want[32], *at;
        ssize_t len;
        snprintf(path, sizeof path, "/proc/self/fd/%d", n);
        len = readlink(path, text, sizeof text - 1);
        if (len < 0 || !memmem(text, (size_t)len, "eventpoll", 9))
            continue;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", n);
        len = open(path, O_RDONLY | O_CLOEXEC);
        if (len < 0)
            continue;
        n = (int)len;
        len = read(n, text, sizeof text - 1);
        close(n);
        if (len < 0)
            continue;
        text[len] = 0;
        sscanf(path, "/proc/self/fdinfo/%d", &n);
        snprintf(want, sizeof want, "tfd: %8d ", fd);
        at = strstr(text, want);
        if (at)
            return 1;
    }
    return 0;
}

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

/* The one that waited for the old file never gets what is written to the new one with its number. */
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

/* ---- close(2) while nobody waits ---- */

/* Somebody waits for the number once, so that it is known, and then it is another file. */
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

/* The same when what the library has made itself is closed behind its back. */
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

/* A blocking pipe in place of one that was made non-blocking must not block a P. */
GO_TEST(a_new_file_is_made_nonblocking_too)
{
    int round;
    for (round = 0; round < 10; round++) {
        int fds[2];
        char c;
        make_pipe(fds);
        CHECK(!(fcntl(fds[0], F_GETFL) & O_NONBLOCK));
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), -EAGAIN);
        CHECK(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
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
GO_TEST(a_copy_of_a_closed_file_disturbs_nobody)
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
