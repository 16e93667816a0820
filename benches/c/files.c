/* files: goroutines read and write files that are in memory, and two hand bytes to each other through pipes. */
#include "bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 8, BLOCK = 4096, BLOCKS = 256, SMALL = 512, WHOLE = 4 };

struct desk {
    const char *path;
    int fd, each;
    gs_waitgroup done;
};

static int temporary(char *path, size_t size, const char *dir)
{
    snprintf(path, size, "%s/gosbench.XXXXXX", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    CHECK(fd >= 0);
    char block[BLOCK];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < BLOCKS; i++)
        CHECK(write(fd, block, BLOCK) == BLOCK);
    return fd;
}

static void read_blocks(void *arg)
{
    struct desk *desk = arg;
    char block[BLOCK];

    for (int i = 0; i < desk->each; i++)
        CHECK(gs_pread(desk->fd, block, BLOCK, (int64_t)(i % BLOCKS) * BLOCK, GS_FOREVER) == BLOCK);
    MUST(gs_waitgroup_done(&desk->done));
}

static void write_blocks(void *arg)
{
    struct desk *desk = arg;
    char block[SMALL] = {'y'};

    for (int i = 0; i < desk->each; i++)
        CHECK(gs_pwrite(desk->fd, block, SMALL, (int64_t)(i % BLOCKS) * BLOCK, GS_FOREVER) == SMALL);
    MUST(gs_waitgroup_done(&desk->done));
}

/* Opens a file of WHOLE blocks, reads it to its end, and closes it. */
static void read_whole(void *arg)
{
    struct desk *desk = arg;
    char block[BLOCK];

    for (int i = 0; i < desk->each; i++) {
        int fd = MUST(gs_open(desk->path, O_RDONLY, 0, GS_FOREVER));
        int64_t total = 0;
        ssize_t n;
        while ((n = gs_read(fd, block, BLOCK, GS_FOREVER)) > 0)
            total += n;
        CHECK(n == 0 && total == WHOLE * BLOCK);
        MUST(gs_close(fd));
    }
    MUST(gs_waitgroup_done(&desk->done));
}

/* Lets WORKERS do fn, n times together. */
static void let_all(const char *figure, gs_fn fn, struct desk *desk, int64_t n)
{
    desk->each = (int)share(n, WORKERS);
    report_all(figure, WORKERS, fn, desk, &desk->done, (int64_t)desk->each * WORKERS);
}

struct table {
    int there[2], back[2];
};

static void bat(void *arg)
{
    struct table *table = arg;
    char byte;
    ssize_t n;

    while ((n = gs_read(table->there[0], &byte, 1, GS_FOREVER)) == 1)
        CHECK(gs_write(table->back[1], &byte, 1, GS_FOREVER) == 1);
    CHECK(n == 0);
    MUST(gs_close(table->there[0]));
    MUST(gs_close(table->back[1]));
}

static void through_pipes(int64_t n)
{
    struct table table;
    char byte = 'z';

    CHECK(pipe2(table.there, O_CLOEXEC) == 0 && pipe2(table.back, O_CLOEXEC) == 0);
    MUST(gs_spawn(bat, &table));
    int64_t start = gs_now();
    for (int64_t i = 0; i < n; i++) {
        CHECK(gs_write(table.there[1], &byte, 1, GS_FOREVER) == 1);
        CHECK(gs_read(table.back[0], &byte, 1, GS_FOREVER) == 1);
    }
    report_ns_each("files.pipe", start, n);
    MUST(gs_close(table.there[1]));
    CHECK(gs_read(table.back[0], &byte, 1, GS_FOREVER) == 0);
    MUST(gs_close(table.back[0]));
}

void files(int64_t n)
{
    const char *dir = getenv("TMPDIR");
    char path[4096];
    struct desk desk = {.path = path};

    desk.fd = temporary(path, sizeof path, dir != NULL ? dir : "/tmp");
    let_all("files.read", read_blocks, &desk, n);
    let_all("files.write", write_blocks, &desk, n);
    CHECK(ftruncate(desk.fd, WHOLE * BLOCK) == 0);
    let_all("files.whole", read_whole, &desk, n / 4);
    CHECK(unlink(path) == 0 && close(desk.fd) == 0);

    desk.fd = temporary(path, sizeof path, "/dev/shm");
    let_all("files.tmpfs", read_blocks, &desk, n);
    CHECK(unlink(path) == 0 && close(desk.fd) == 0);

    through_pipes(n / 4);
}
