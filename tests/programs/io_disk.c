/*
 * Files on disks: read and written off the P, at offsets and in order, by many at once.
 */
#include "io.h"

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

/* ---- Calls that wait for the disk, whatever is in memory ---- */

#define READERS 96
#define PAGE 4096

static void read_directly(void *arg)
{
    static unsigned char blocks[READERS][PAGE] __attribute__((aligned(PAGE)));
    intptr_t me = (intptr_t)arg;
    int i, k;
    for (i = 0; i < 10; i++) {
        int block = (int)(me * 7 + i) % BLOCKS;
        CHECK_EQ(gs_pread(file, blocks[me], PAGE, (off_t)block * PAGE, GS_FOREVER), PAGE);
        for (k = 0; k < PAGE; k++)
            CHECK_EQ(blocks[me][k], block % 251);
    }
    ADD(written, 1);
}

GO_TEST(many_that_wait_for_the_disk_leave_the_p_to_others)
{
    static unsigned char block[PAGE] __attribute__((aligned(PAGE)));
    char path[64];
    intptr_t i;
    long pool;
    int plain = temporary();
    snprintf(path, sizeof path, "/proc/self/fd/%d", plain);
    file = open(path, O_RDWR | O_DIRECT | O_DSYNC | O_CLOEXEC);
    if (file < 0) {
        printf("skipped: no O_DIRECT in /tmp: %s\n", strerror(errno));
        CHECK_EQ(gs_close(plain), 0);
        return;
    }
    for (i = 0; i < BLOCKS; i++) {
        memset(block, (int)(i % 251), PAGE);
        CHECK_EQ(gs_pwrite(file, block, PAGE, i * PAGE, GS_FOREVER), PAGE);
    }
    CHECK_EQ(gs_pread(file, block, PAGE, 0, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_pread(file, block, PAGE, 0, 1), -ETIMEDOUT);
    SET(written, 0);
    for (i = 0; i < READERS; i++)
        go(read_directly, (void *)i);
    WAIT_UNTIL(GET(written) == READERS);
    /* A goroutine whose thread loses its CPU in a call loses its P, too, and another thread runs the P: beside 13 threads
     * that compute there are 15 such threads instead of 2. */
    pool = count_threads_named("gosched-disk");
    CHECK_GE(pool, 1);
    CHECK_LE(pool, 64);
    CHECK_LE(count_threads() - pool, READERS / 2 + 2 * gs_gomaxprocs(0));
    CHECK_EQ(gs_close(file), 0);
    CHECK_EQ(gs_close(plain), 0);
}

/* ---- The pool of threads that wait for the disk, and others ---- */

/* A file whose reads and writes wait for the disk, or at least its writes where /tmp has no O_DIRECT. */
static int slow_file(void)
{
    static unsigned char block[PAGE] __attribute__((aligned(PAGE)));
    char path[64];
    int fd, i, plain = temporary();
    for (i = 0; i < 16; i++)
        CHECK_EQ(write(plain, block, PAGE), PAGE);
    snprintf(path, sizeof path, "/proc/self/fd/%d", plain);
    fd = open(path, O_RDWR | O_DIRECT | O_DSYNC | O_CLOEXEC);
    if (fd < 0)
        fd = open(path, O_RDWR | O_DSYNC | O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_EQ(close(plain), 0);
    return fd;
}

static int keep_on;

static void write_slowly(void *arg)
{
    static unsigned char blocks[128][PAGE] __attribute__((aligned(PAGE)));
    intptr_t me = (intptr_t)arg;
    do
        CHECK_EQ(gs_pwrite(file, blocks[me], PAGE, me % 16 * PAGE, GS_FOREVER), PAGE);
    while (GET(keep_on));
    ADD(written, 1);
}

/* The child begins with all places free, though the parent has all taken, and nothing else of this room was used. */
TEST(a_child_of_fork_reads_and_writes_too)
{
    intptr_t i;
    int k, status;
    file = slow_file();
    SET(written, 0);
    SET(keep_on, 1);
    for (i = 0; i < 100; i++)
        go(write_slowly, (void *)i);
    nap(30 * MS);
    for (k = 0; k < 4; k++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            SET(keep_on, 0);
            SET(written, 0);
            for (i = 0; i < 8; i++)
                go(write_slowly, (void *)i);
            NAP_UNTIL(GET(written) == 8);
            _exit(0);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    }
    SET(keep_on, 0);
    NAP_UNTIL(GET(written) == 100);
    CHECK_EQ(close(file), 0);
}

static gs_chan *there, *back;

static void answer_locked(void *arg)
{
    int i;
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    for (i = 0; i < 10; i++)
        send_int(back, recv_int(there));
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

/* Threads that have waited for the disk leave those that goroutines need. */
GO_TEST(the_pool_leaves_threads_to_goroutines)
{
    static const int limits[] = {3, 5, 9, 16};
    int former = gs_set_max_threads(0);
    size_t k;
    intptr_t i;
    file = slow_file();
    there = chan_of_ints(0);
    back = chan_of_ints(0);
    for (k = 0; k < LENGTH(limits); k++) {
        (void)gs_set_max_threads(limits[k] + gs_gomaxprocs(0));
        SET(written, 0);
        SET(keep_on, 0);
        for (i = 0; i < 32; i++)
            go(write_slowly, (void *)i);
        WAIT_UNTIL(GET(written) == 32);
        go(answer_locked, NULL);
        for (i = 0; i < 10; i++) {
            send_int(there, i);
            CHECK_EQ(recv_int(back), i);
        }
    }
    (void)gs_set_max_threads(former);
    free_chan(there);
    free_chan(back);
    CHECK_EQ(gs_close(file), 0);
}

/* ---- A file that is closed while a call on it waits for its turn ---- */

enum { TURNS = 64, CHUNK = 1 << 20, VICTIMS = 16 };

static char *chunk;
static int stop_keeping;

static void keep_turns(void *arg)
{
    int fd = (int)(intptr_t)arg;
    while (!GET(stop_keeping)) {
        CHECK_EQ(gs_pwrite(fd, chunk, CHUNK, 0, GS_FOREVER), CHUNK);
        CHECK_EQ(gs_fsync(fd, GS_FOREVER), 0);
    }
    CHECK_EQ(gs_close(fd), 0);
}

struct victim {
    int fd, kind, has_begun;
    ssize_t result;
};

static void use_file(void *arg)
{
    struct victim *v = arg;
    SET(v->has_begun, 1);
    if (v->kind % 2 == 0)
        v->result = gs_pwrite(v->fd, "secret", 6, 0, GS_FOREVER);
    else
        v->result = gs_write(v->fd, "secret", 6, GS_FOREVER);
}

/* True: it waits for its turn. False: it has ended, or not waited so far. */
static int waits_for_turn(gs_g *g)
{
    gs_g_info info;
    CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    return info.wait_reason != NULL && strcmp(info.wait_reason, "semacquire") == 0;
}

/* It must not write to the file that gets the number next. */
GO_TEST(a_file_is_closed_before_its_turn)
{
    gs_g *keepers[2 * TURNS], *g;
    int files[2 * TURNS], i, next;
    CHECK((chunk = calloc(1, CHUNK)) != NULL);
    SET(stop_keeping, 0);
    for (i = 0; i < 2 * TURNS; i++)
        files[i] = temporary(); /* here, so that no keeper gets a victim's number */
    for (i = 0; i < 2 * TURNS; i++)
        keepers[i] = go_ref(keep_turns, (void *)(intptr_t)files[i]);
    for (i = 0; i < VICTIMS; i++) {
        struct victim v = {temporary(), i, 0, 0};
        int waited = 0;
        g = go_ref(use_file, &v);
        while (!waited && gs_join(g, GS_NOWAIT) == -EAGAIN) {
            gs_yield();
            waited = GET(v.has_begun) && waits_for_turn(g);
        }
        if (waited) {
            CHECK_EQ(gs_close(v.fd), 0);
            if ((next = temporary()) != v.fd) {
                CHECK_EQ(dup2(next, v.fd), v.fd);
                CHECK_EQ(gs_close(next), 0);
            }
        }
        join(g);
        if (waited) {
            CHECK_EQ(lseek(v.fd, 0, SEEK_END), 0);
            CHECK(v.result == -ECANCELED || v.result == 6); /* 6: its turn came first */
        } else {
            CHECK_EQ(v.result, 6);
        }
        CHECK_EQ(gs_close(v.fd), 0);
    }
    SET(stop_keeping, 1);
    for (i = 0; i < 2 * TURNS; i++)
        join(keepers[i]);
    free(chunk);
}
