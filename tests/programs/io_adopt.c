/*
 * gs_adopt: files that the program has made, and leaves to the library. Whatever becomes of their numbers,
 * waits end.
 */
#include "io.h"

/* As make_tcp, with system calls of the program's own; neither end blocks. */
static void make_own_tcp(int fds[2])
{
    struct sockaddr_in a;
    int listener;
    make_user_sockets(&listener, &fds[0], &a);
    CHECK_EQ(connect(fds[0], (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK_GE(fds[1], 0);
    CHECK_EQ(close(listener), 0);
}

static void make_own_pair(int fds[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

static void make_own_pipe(int fds[2])
{
    CHECK_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
}

static const make_fn own_pairs[] = {make_own_tcp, make_own_pair, make_own_pipe};

static void adopt_both(const int fds[2])
{
    CHECK_EQ(gs_adopt(fds[0]), 0);
    CHECK_EQ(gs_adopt(fds[1]), 0);
}

/* A byte goes from [1] to [0], where a goroutine waits already. */
static void pass_byte(const int fds[2], char byte)
{
    struct reader r = reader_of(fds[0], GS_FOREVER);
    gs_g *g = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(gs_write(fds[1], &byte, 1, GS_FOREVER), 1);
    join(g);
    CHECK_EQ(r.result, 1);
    CHECK_EQ(r.byte, byte);
}

GO_TEST(an_adopted_file_wakes_its_readers)
{
    size_t i;
    for (i = 0; i < LENGTH(own_pairs); i++) {
        int fds[2], round;
        own_pairs[i](fds);
        adopt_both(fds);
        for (round = 0; round < 50; round++)
            pass_byte(fds, (char)round);
        close_both(fds);
    }
}

/* It is known already, and so is what a read said of it; then it is adopted, and once more. */
GO_TEST(a_file_in_use_is_adopted)
{
    size_t i;
    for (i = 0; i < LENGTH(own_pairs); i++) {
        int fds[2];
        own_pairs[i](fds);
        pass_byte(fds, 'a');
        adopt_both(fds);
        pass_byte(fds, 'b');
        adopt_both(fds);
        pass_byte(fds, 'c');
        close_both(fds);
    }
}

static void read_to_the_end(void *arg)
{
    struct reader *r = arg;
    char buf[16];
    do
        r->result = gs_recv(r->fd, buf, sizeof buf, 0, GS_FOREVER);
    while (r->result > 0);
    SET(r->done, 1);
}

/* The end of the stream is told after a read that left nothing. */
GO_TEST(the_end_of_an_adopted_connection)
{
    int i;
    for (i = 0; i < 50; i++) {
        int fds[2];
        struct reader r;
        gs_g *g;
        make_own_tcp(fds);
        adopt_both(fds);
        r = reader_of(fds[0], GS_FOREVER);
        g = go_ref(read_to_the_end, &r);
        CHECK_EQ(gs_write(fds[1], "end", 3, GS_FOREVER), 3);
        if (i % 2)
            settle();
        CHECK_EQ(gs_close(fds[1]), 0);
        join(g);
        CHECK_EQ(r.result, 0);
        CHECK_EQ(gs_close(fds[0]), 0);
    }
}

/* close(2) behind the library's back: the next file of the number is adopted, is not, or is only polled. */
GO_TEST(an_adopted_file_is_lost)
{
    size_t i, k;
    int how;
    for (how = 0; how < 3; how++)
        for (i = 0; i < LENGTH(own_pairs); i++)
            for (k = 0; k < LENGTH(own_pairs); k++) {
                int old[2], new[2];
                own_pairs[i](old);
                adopt_both(old);
                pass_byte(old, 'o');
                CHECK_EQ(close(old[0]), 0);
                CHECK_EQ(close(old[1]), 0);
                own_pairs[k](new);
                if (how == 0)
                    adopt_both(new);
                if (how == 2) {
                    CHECK_EQ(gs_poll_fd(new[0], POLLIN, gs_after_us(100)), -ETIMEDOUT);
                    CHECK_EQ(gs_write(new[1], "p", 1, GS_FOREVER), 1);
                    CHECK_EQ(gs_poll_fd(new[0], POLLIN, GS_FOREVER), POLLIN);
                    CHECK_EQ(gs_read(new[0], (char[1]){0}, 1, GS_FOREVER), 1);
                }
                pass_byte(new, 'n');
                close_both(new);
            }
}

/* A file that is refused stays as it was. */
GO_TEST(what_cannot_be_adopted)
{
    int fds[2], disk;
    struct reader r;
    gs_g *g;
    CHECK_EQ(gs_adopt(-1), -EBADF);
    CHECK_EQ(gs_adopt(1 << 20), -EBADF);
    make_pair(fds);
    CHECK_EQ(gs_adopt(fds[0]), -EINVAL);
    close_both(fds);
    disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK_GE(disk, 0);
    CHECK_EQ(gs_adopt(disk), -EPERM);
    CHECK_EQ(close(disk), 0);
    make_own_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    g = go_ref(read_byte, &r);
    YIELD_UNTIL(is_in_an_instance(fds[0]));
    CHECK_EQ(gs_adopt(fds[0]), -EBUSY);
    CHECK_EQ(gs_write(fds[1], "w", 1, GS_FOREVER), 1);
    join(g);
    CHECK_EQ(r.result, 1);
    CHECK_EQ(gs_adopt(fds[0]), 0);
    close_both(fds);
}
