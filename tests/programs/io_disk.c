/*
 * Files on disks: read and written off the P, at offsets and in order, by many at once.
 */
#include "io.h"

static int temporary(void)
{
    char name[] = "/tmp/gosched-io-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_EQ(unlink(name), 0);
    return fd;
}

static void write_and_read(void)
{
    int fd = temporary();
    char buf[64];
    struct iovec iov[2] = {{"wo", 2}, {"rld", 3}};
    CHECK_EQ(gs_write(fd, "hello ", 6, GS_FOREVER), 6);
    CHECK_EQ(gs_writev(fd, iov, 2, GS_FOREVER), 5);
    CHECK_EQ(gs_read(fd, buf, sizeof buf, GS_FOREVER), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(gs_read(fd, buf, sizeof buf, GS_FOREVER), 11);
    CHECK_EQ(memcmp(buf, "hello world", 11), 0);
    CHECK_EQ(gs_pread(fd, buf, 5, 6, GS_FOREVER), 5);
    CHECK_EQ(memcmp(buf, "world", 5), 0);
    CHECK_EQ(gs_pwrite(fd, "W", 1, 6, GS_FOREVER), 1);
    CHECK_EQ(gs_pread(fd, buf, 64, 4, GS_FOREVER), 7);
    CHECK_EQ(memcmp(buf, "o World", 7), 0);
    CHECK_EQ(gs_pread(fd, buf, 5, 1000, GS_FOREVER), 0);
    CHECK_EQ(gs_pwrite(fd, "x", 1, 100000, GS_FOREVER), 1);
    CHECK_EQ(gs_pread(fd, buf, 5, 100000, GS_FOREVER), 1);
    CHECK_EQ(gs_pread(fd, buf, 0, 0, GS_FOREVER), 0);
    /* a passed deadline comes first here too */
    CHECK_EQ(gs_read(fd, buf, 5, 1), -ETIMEDOUT);
    CHECK_EQ(gs_write(fd, buf, 5, 1), -ETIMEDOUT);
    CHECK_EQ(gs_pread(fd, buf, 5, 0, 1), -ETIMEDOUT);
    CHECK_EQ(gs_pwrite(fd, buf, 5, 0, 1), -ETIMEDOUT);
    CHECK_EQ(gs_pread(fd, buf, 5, 0, GS_NOWAIT), 5);
    CHECK(gs_poll_fd(fd, POLLIN, GS_FOREVER) & POLLIN);
    CHECK_EQ(gs_close(fd), 0);
}

GO_TEST(goroutines_read_and_write_files)
{
    write_and_read();
}

TEST(plain_threads_read_and_write_files)
{
    write_and_read();
}

GO_TEST(other_errors_of_files)
{
    int fd = open("/", O_RDONLY | O_CLOEXEC), fds[2];
    char c;
    CHECK_EQ(gs_read(fd, &c, 1, GS_FOREVER), -EISDIR);
    CHECK_EQ(gs_write(fd, "x", 1, GS_FOREVER), -EBADF);
    CHECK_EQ(gs_close(fd), 0);
    make_pipe(fds);
    CHECK_EQ(gs_pread(fds[0], &c, 1, 0, GS_FOREVER), -ESPIPE);
    CHECK_EQ(gs_pwrite(fds[1], "x", 1, 0, GS_FOREVER), -ESPIPE);
    close_both(fds);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK_EQ(gs_read(fd, &c, 1, GS_FOREVER), 0);
    CHECK_EQ(gs_write(fd, "x", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_close(fd), 0);
}

enum { BLOCK = 4096, BLOCKS = 300 };
static int file;
static long written;

static void write_block(void *arg)
{
    char block[BLOCK], back[BLOCK];
    intptr_t i = (intptr_t)arg;
    memset(block, (int)(i % 251), sizeof block);
    CHECK_EQ(gs_pwrite(file, block, BLOCK, i * BLOCK, GS_FOREVER), BLOCK);
    CHECK_EQ(gs_pread(file, back, BLOCK, i * BLOCK, GS_FOREVER), BLOCK);
    CHECK_EQ(memcmp(block, back, BLOCK), 0);
    ADD(written, 1);
}

GO_TEST(many_at_once_use_few_threads)
{
    intptr_t i;
    file = temporary();
    SET(written, 0);
    for (i = 0; i < BLOCKS; i++)
        go(write_block, (void *)i);
    WAIT_UNTIL(GET(written) == BLOCKS);
    CHECK_LE(count_threads(), 64 + 2 * gs_gomaxprocs(0) + 8);
    CHECK_EQ(gs_close(file), 0);
}

GO_TEST(what_is_not_in_memory_is_read_from_the_disk)
{
    char block[BLOCK];
    int i;
    file = temporary();
    memset(block, 7, sizeof block);
    for (i = 0; i < 64; i++)
        CHECK_EQ(gs_write(file, block, BLOCK, GS_FOREVER), BLOCK);
    CHECK_EQ(fdatasync(file), 0);
    for (i = 0; i < 5; i++) {
        static char all[64 * BLOCK];
        CHECK_EQ(posix_fadvise(file, 16 * BLOCK * i, 0, POSIX_FADV_DONTNEED), 0);
        CHECK_EQ(gs_pread(file, all, sizeof all, 0, GS_FOREVER), sizeof all);
        CHECK_EQ(all[sizeof all - 1], 7);
        CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
        CHECK_EQ(posix_fadvise(file, 16 * BLOCK * i, 0, POSIX_FADV_DONTNEED), 0);
        CHECK_EQ(gs_read(file, all, sizeof all, GS_FOREVER), sizeof all);
    }
    CHECK_EQ(gs_close(file), 0);
}
