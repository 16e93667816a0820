/*
 * Traces and the flight recorder: their errors, and what is written. Whether Go's reader accepts the files is the
 * business of tests/trace/library. seed: W3
 */
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char HEADER[] = "go 1.26 trace\0\0";

static int new_file(void)
{
    char path[] = "/tmp/gosched-trace-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(unlink(path), 0);
    return fd;
}

/* The file begins with the header, and ends with the end of a generation. Returns its size. */
static off_t check_file(int fd)
{
    char head[16];
    unsigned char last;
    off_t size = lseek(fd, 0, SEEK_END);
    CHECK(size > 16);
    CHECK_EQ(pread(fd, head, sizeof head, 0), (ssize_t)sizeof head);
    CHECK_EQ(memcmp(head, HEADER, sizeof head), 0);
    CHECK_EQ(pread(fd, &last, 1, size - 1), 1);
    CHECK_EQ(last, 52);
    return size;
}

TEST(what_is_not_there_cannot_be_ended)
{
    CHECK_EQ(gs_trace_stop(), -EINVAL);
    CHECK_EQ(gs_flight_stop(), -EINVAL);
    CHECK_EQ(gs_flight_write(1), -EINVAL);
}

TEST(bad_arguments_change_nothing)
{
    CHECK_EQ(gs_trace_start(-1), -EBADF);
    CHECK_EQ(gs_trace_start(12345), -EBADF);
    CHECK_EQ(gs_flight_start(0), -EINVAL);
    CHECK_EQ(gs_flight_start(-1), -EINVAL);
    CHECK_EQ(gs_trace_stop(), -EINVAL);
    CHECK_EQ(gs_flight_stop(), -EINVAL);
}

TEST(a_trace_needs_no_runtime)
{
    int fd = new_file();
    CHECK_EQ(gs_trace_start(fd), 0);
    CHECK_EQ(gs_trace_start(fd), -EBUSY);
    CHECK_EQ(gs_trace_stop(), 0);
    CHECK_EQ(gs_trace_stop(), -EINVAL);
    check_file(fd);
    close(fd);
}

static void nothing(void *arg)
{
    gs_waitgroup_done(arg);
}

static void spawn_some(int n)
{
    static gs_waitgroup wg;
    int i;
    CHECK_EQ(gs_waitgroup_add(&wg, n), 0);
    for (i = 0; i < n; i++)
        CHECK_EQ(gs_spawn(nothing, &wg), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
}

GO_TEST(a_goroutine_traces_and_each_trace_is_whole)
{
    int fd = new_file(), round;
    for (round = 0; round < 20; round++) {
        CHECK_EQ(ftruncate(fd, 0), 0);
        CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
        CHECK_EQ(gs_trace_start(fd), 0);
        spawn_some(500);
        CHECK_EQ(gs_trace_stop(), 0);
        CHECK(check_file(fd) > 500);
    }
    close(fd);
}

GO_TEST(the_flight_recorder_can_be_written_again_and_again)
{
    int fd = new_file(), round;
    CHECK_EQ(gs_flight_start(1000000000), 0);
    CHECK_EQ(gs_flight_start(1000000000), -EBUSY);
    for (round = 0; round < 5; round++) {
        spawn_some(200);
        CHECK_EQ(ftruncate(fd, 0), 0);
        CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
        CHECK_EQ(gs_flight_write(fd), 0);
        CHECK(check_file(fd) > 200);
    }
    CHECK_EQ(gs_flight_write(-1), -EBADF);
    CHECK_EQ(gs_flight_stop(), 0);
    close(fd);
}

GO_TEST(a_trace_and_the_flight_recorder_go_together)
{
    int trace = new_file(), flight = new_file();
    CHECK_EQ(gs_flight_start(1000000000), 0);
    spawn_some(100);
    CHECK_EQ(gs_trace_start(trace), 0);
    spawn_some(100);
    CHECK_EQ(gs_flight_write(flight), 0);
    CHECK_EQ(gs_trace_stop(), 0);
    spawn_some(100);
    CHECK_EQ(gs_flight_stop(), 0);
    check_file(trace);
    check_file(flight);
    close(trace);
    close(flight);
}

/* However short the time: a file without a generation is no trace. */
GO_TEST(the_flight_recorder_keeps_a_generation_at_least)
{
    int flight = new_file();
    CHECK_EQ(gs_flight_start(1), 0);
    spawn_some(100);
    CHECK_EQ(gs_flight_write(flight), 0);
    CHECK_EQ(gs_flight_stop(), 0);
    check_file(flight);
    close(flight);
}

GO_TEST(who_has_stopped_the_world_starts_no_trace)
{
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_trace_start(1), -EDEADLK);
    CHECK_EQ(gs_trace_stop(), -EDEADLK);
    CHECK_EQ(gs_start_the_world(), 0);
}

/* ---- The frames of an interpreter ---- */

static int gives; /* how often the hook has given frames */

/* The frames of a goroutine whose data is the name of its function. */
static size_t give_frames(void *ctx, gs_g *g, gs_frame *frames, size_t room)
{
    const char *name = gs_data(g);
    CHECK(ctx == &gives);
    if (!name || room < 2)
        return 0;
    frames[0] = (gs_frame){"waits in the script", "wait.script", 12};
    frames[1] = (gs_frame){name, NULL, 0};
    (void)__atomic_add_fetch(&gives, 1, __ATOMIC_RELAXED);
    return 2;
}

static void scripted(void *arg)
{
    CHECK_EQ(gs_sleep(1000000), 0);
    CHECK_EQ(gs_waitgroup_done(arg), 0);
}

static bool file_has(int fd, const char *text)
{
    size_t size = (size_t)lseek(fd, 0, SEEK_END);
    char *all = malloc(size);
    bool has;
    CHECK(all != NULL);
    CHECK_EQ(pread(fd, all, size, 0), (ssize_t)size);
    has = memmem(all, size, text, strlen(text)) != NULL;
    free(all);
    return has;
}

GO_TEST(an_interpreter_gives_the_frames_of_its_goroutines)
{
    static gs_waitgroup wg;
    static char name[] = "function of the script";
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int fd = new_file(), i;
    CHECK_EQ(gs_add_frames(scripted, NULL, NULL), -EINVAL);
    CHECK_EQ(gs_add_frames(scripted, give_frames, &gives), 0);
    CHECK_EQ(gs_add_frames(scripted, give_frames, &gives), 0);
    opts.data = name;
    CHECK_EQ(gs_trace_start(fd), 0);
    spawn_some(10);
    CHECK_EQ(GET(gives), 0);
    CHECK_EQ(gs_waitgroup_add(&wg, 10), 0);
    for (i = 0; i < 10; i++) {
        if (i == 9)
            opts.data = NULL; /* gives none */
        CHECK_EQ(gs_spawn_with(scripted, &wg, &opts, NULL), 0);
    }
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(gs_trace_stop(), 0);
    CHECK_GE(GET(gives), 9);
    CHECK(file_has(fd, "waits in the script") && file_has(fd, "wait.script") && file_has(fd, name));
    check_file(fd);
    close(fd);
}

/* The reader of a pipe may be a goroutine of the program itself. */

static gs_waitgroup read_all_of_it;
static long bytes_read;

static void read_trace(void *arg)
{
    char buffer[4096];
    ssize_t n;
    while ((n = gs_read((int)(intptr_t)arg, buffer, sizeof buffer, GS_FOREVER)) > 0)
        bytes_read += n;
    CHECK_EQ(n, 0);
    CHECK_EQ(gs_waitgroup_done(&read_all_of_it), 0);
}

GO_TEST(a_goroutine_reads_the_trace)
{
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(gs_waitgroup_add(&read_all_of_it, 1), 0);
    CHECK_EQ(gs_spawn(read_trace, (void *)(intptr_t)fds[0]), 0);
    CHECK_EQ(gs_trace_start(fds[1]), 0);
    spawn_some(20000);
    CHECK_EQ(gs_trace_stop(), 0);
    close(fds[1]);
    CHECK_EQ(gs_waitgroup_wait(&read_all_of_it, GS_FOREVER), 0);
    CHECK(bytes_read > 100000);
    gs_close(fds[0]);
}

GO_TEST(an_error_of_write_is_told_at_the_end)
{
    int fds[2], full = open("/dev/full", O_WRONLY);
    CHECK_EQ(pipe(fds), 0);
    close(fds[0]);
    CHECK_EQ(gs_trace_start(fds[1]), 0);
    spawn_some(100);
    CHECK_EQ(gs_trace_stop(), -EPIPE);
    CHECK_EQ(gs_trace_start(full), 0);
    spawn_some(100);
    CHECK_EQ(gs_trace_stop(), -ENOSPC);
    close(fds[1]);
    close(full);
}

/* The child has neither the trace nor the recorder, and can begin its own. */
GO_TEST(a_fork_leaves_the_trace_to_the_parent)
{
    int fd = new_file(), status;
    pid_t pid;
    CHECK_EQ(gs_trace_start(fd), 0);
    spawn_some(100);
    pid = fork();
    if (pid == 0) {
        int own = new_file();
        CHECK_EQ(gs_trace_stop(), -EINVAL);
        CHECK_EQ(gs_trace_start(own), 0);
        CHECK_EQ(gs_trace_stop(), 0);
        check_file(own);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    spawn_some(100);
    CHECK_EQ(gs_trace_stop(), 0);
    check_file(fd);
    close(fd);
}

static void receive_for_ever(void *arg)
{
    (void)gs_chan_recv(chan_of_ints(0), NULL, GS_FOREVER);
    (void)arg;
}

CHILD(a_deadlock_with_a_flight_recorder)
{
    (void)gs_run(receive_for_ever, NULL);
}

TEST(a_failure_writes_the_flight_recorder)
{
#ifdef __SANITIZE_THREAD__
    fputs("skip a_failure_writes_the_flight_recorder: the sanitizer's own thread might end the deadlock\n", stderr);
#else
    static struct outcome out;
    char path[] = "/tmp/gosched-flight-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(setenv("GOSCHED_FLIGHT", path, 1), 0);
    check_child_dies("a_deadlock_with_a_flight_recorder", SIGABRT, &out);
    CHECK_EQ(unsetenv("GOSCHED_FLIGHT"), 0);
    check_file(fd);
    CHECK_EQ(unlink(path), 0);
    close(fd);
#endif
}
