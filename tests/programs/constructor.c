/*
 * Calls from a constructor of the program. It runs before the constructors of a static library that the
 * program links, and after those of a shared one.
 */
#include "check.h"

static int pipe_fds[2];
static ssize_t bytes_read;
static int status_of_child = -1;

static void read_byte(void *arg)
{
    char byte;
    (void)arg;
    bytes_read = gs_read(pipe_fds[0], &byte, 1, GS_FOREVER);
}

static void write_byte(void *arg)
{
    (void)arg;
    /* The reader waits by then, and no P has anything to do. */
    nap(2 * MS);
    CHECK_EQ(write(pipe_fds[1], "x", 1), 1);
}

static void wait_for_a_file(void)
{
    CHECK_EQ(pipe(pipe_fds), 0);
    go(read_byte, NULL);
    go(write_byte, NULL);
}

static void use_the_library(void *arg)
{
    (void)arg;
    gs_yield();
}

static void fork_beside_the_runtime(void)
{
    pid_t child = fork();
    if (child == 0) {
        CHECK_EQ(gs_run(use_the_library, NULL), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        _exit(0);
    }
    CHECK_GE(child, 1);
    CHECK_EQ(waitpid(child, &status_of_child, 0), child);
}

/* A child that hangs is ended by its alarm: the watchdog of the tests begins later. */
__attribute__((constructor(101))) static void call_the_library(void)
{
    current_test = "constructor";
    alarm(20);
    wait_for_a_file();
    fork_beside_the_runtime();
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    alarm(0);
}

TEST(a_goroutine_waits_for_a_file_in_a_constructor)
{
    CHECK_EQ(bytes_read, 1);
}

TEST(a_constructor_forks_beside_the_runtime)
{
    CHECK_EQ(status_of_child, 0);
}
