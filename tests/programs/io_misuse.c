/*
 * Every function of I/O with arguments that make no sense: an error, and nothing else.
 */
#include "io.h"

/* An address in the page that is never mapped. */
#define UNREADABLE ((struct sockaddr *)16)

#define EACH_FD(fd, want)                                                        \
    do {                                                                         \
        CHECK_EQ(gs_read(fd, buf, 1, GS_FOREVER), want);                         \
        CHECK_EQ(gs_write(fd, buf, 1, GS_FOREVER), want);                        \
        CHECK_EQ(gs_readv(fd, &iov, 1, GS_FOREVER), want);                       \
        CHECK_EQ(gs_writev(fd, &iov, 1, GS_FOREVER), want);                      \
        CHECK_EQ(gs_recv(fd, buf, 1, 0, GS_FOREVER), want);                      \
        CHECK_EQ(gs_send(fd, buf, 1, 0, GS_FOREVER), want);                      \
        CHECK_EQ(gs_recvfrom(fd, buf, 1, 0, NULL, NULL, GS_FOREVER), want);      \
        CHECK_EQ(gs_sendto(fd, buf, 1, 0, NULL, 0, GS_FOREVER), want);           \
        CHECK_EQ(gs_recvmsg(fd, &msg, 0, GS_FOREVER), want);                     \
        CHECK_EQ(gs_sendmsg(fd, &msg, 0, GS_FOREVER), want);                     \
        CHECK_EQ(gs_accept(fd, NULL, NULL, GS_FOREVER), want);                   \
        CHECK_EQ(gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER), want); \
        CHECK_EQ(gs_poll_fd(fd, POLLIN, GS_FOREVER), want);                      \
        CHECK_EQ(gs_pread(fd, buf, 1, 0, GS_FOREVER), want);                     \
        CHECK_EQ(gs_pwrite(fd, buf, 1, 0, GS_FOREVER), want);                    \
        CHECK_EQ(gs_close(fd), want);                                            \
    } while (0)

static void try_numbers(void)
{
    static const int wrong[] = {-1, INT_MIN, 19999, 1000000, INT_MAX};
    char buf[4] = "";
    struct iovec iov = {buf, 1};
    struct sockaddr_in to = loopback(1);
    struct msghdr msg;
    size_t i;
    memset(&msg, 0, sizeof msg);
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    for (i = 0; i < LENGTH(wrong); i++)
        EACH_FD(wrong[i], -EBADF);
}

static void try_pointers(void)
{
    int fds[2];
    char buf[4];
    struct iovec iov = {NULL, 4}, too_long[2] = {{buf, SIZE_MAX / 2}, {buf, SIZE_MAX / 2}};
    struct sockaddr_in a = loopback(1);
    struct addrinfo *res = NULL;
    make_pair(fds);
    CHECK_EQ(gs_read(fds[0], NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_write(fds[0], NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_read(fds[0], buf, SIZE_MAX, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_write(fds[0], buf, SIZE_MAX, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_read(fds[0], NULL, 0, GS_FOREVER), 0);
    CHECK_EQ(gs_write(fds[0], NULL, 0, GS_FOREVER), 0);
    CHECK_EQ(gs_readv(fds[0], NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_writev(fds[0], NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_readv(fds[0], &iov, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_writev(fds[0], &iov, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_readv(fds[0], &iov, -1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_writev(fds[0], &iov, 1025, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_writev(fds[0], too_long, 2, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_recv(fds[0], NULL, 1, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_send(fds[0], NULL, 1, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_recvfrom(fds[0], NULL, 1, 0, NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_recvfrom(fds[0], buf, 1, 0, (struct sockaddr *)&a, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sendto(fds[0], NULL, 1, 0, NULL, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sendto(fds[0], buf, 1, 0, NULL, 8, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_recvmsg(fds[0], NULL, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sendmsg(fds[0], NULL, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_accept(fds[0], (struct sockaddr *)&a, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_accept(fds[0], NULL, NULL, GS_FOREVER), -EINVAL); /* it doesn't listen */
    CHECK_EQ(gs_connect(fds[0], NULL, sizeof a, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_connect(fds[0], UNREADABLE, sizeof a, GS_FOREVER), -EFAULT);
    CHECK_EQ(gs_poll_fd(fds[0], -1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_poll_fd(fds[0], 1 << 20, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_poll_fd(fds[0], POLLNVAL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_pread(fds[0], NULL, 1, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_pread(fds[0], buf, 1, -1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_pwrite(fds[0], NULL, 1, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_pwrite(fds[0], buf, 1, -1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_tcp_connect(NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_getaddrinfo("localhost", NULL, NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK(gs_getaddrinfo("no such host!", NULL, NULL, &res, GS_FOREVER) != 0);
    CHECK(res == NULL);
    CHECK_EQ(gs_tcp_listen("no such host!", 0, 0) < 0, 1);
    /* nothing has been sent or taken */
    CHECK_EQ(gs_read(fds[1], buf, 1, GS_NOWAIT), -EAGAIN);
    close_both(fds);
}

static void try_kinds(void)
{
    int fds[2];
    char buf[4];
    struct msghdr msg;
    memset(&msg, 0, sizeof msg);
    make_pipe(fds);
    CHECK_EQ(gs_recv(fds[0], buf, 1, 0, GS_FOREVER), -ENOTSOCK);
    CHECK_EQ(gs_send(fds[1], buf, 1, 0, GS_FOREVER), -ENOTSOCK);
    CHECK_EQ(gs_recvmsg(fds[0], &msg, 0, GS_FOREVER), -ENOTSOCK);
    CHECK_EQ(gs_accept(fds[0], NULL, NULL, GS_FOREVER), -ENOTSOCK);
    CHECK_EQ(gs_read(fds[1], buf, 1, GS_FOREVER), -EBADF);
    CHECK_EQ(gs_write(fds[0], buf, 1, GS_FOREVER), -EBADF);
    close_both(fds);
}

GO_TEST(numbers_that_are_no_files)
{
    try_numbers();
}

TEST(numbers_that_are_no_files_on_a_plain_thread)
{
    try_numbers();
}

GO_TEST(pointers_and_sizes_that_make_no_sense)
{
    try_pointers();
}

TEST(pointers_and_sizes_that_make_no_sense_on_a_plain_thread)
{
    try_pointers();
}

GO_TEST(files_of_the_wrong_kind)
{
    try_kinds();
}
