/* System calls by the library: files, copies within the kernel, children, signals, UDP and Unix sockets. */
#include "io.h"
#include <spawn.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

static char dir[64];

static const char *path_of(const char *name)
{
    static __thread char path[160];
    if (!dir[0]) {
        strcpy(dir, "/tmp/gosched-calls-XXXXXX");
        CHECK(mkdtemp(dir) != NULL);
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void remove_dir(void)
{
    CHECK_EQ(rmdir(dir), 0);
    dir[0] = 0;
}

static void sleep_and_cancel(gs_g *g)
{
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

/* ---- gs_syscall ---- */

static void make_system_calls(void *arg)
{
    char p[2], text[8] = "";
    int fds[2];
    (void)arg;
    (void)p;
    errno = 12345;
    CHECK_EQ(gs_syscall(SYS_getpid), getpid());
    CHECK_EQ(gs_syscall(SYS_close, -1), -EBADF);
    CHECK_EQ(gs_syscall(99999L), -ENOSYS);
    CHECK_EQ(errno, 12345);
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(gs_syscall(SYS_write, fds[1], "abc", 3), 3);
    CHECK_EQ(gs_syscall(SYS_read, fds[0], text, 8), 3);
    CHECK_EQ(strcmp(text, "abc"), 0);
    /* Six arguments. */
    {
        void *at = (void *)gs_syscall(SYS_mmap, NULL, 8192UL, 3L, 0x22L, -1L, 0L);
        CHECK_GE((intptr_t)at, 4096);
        memset(at, 1, 8192);
        CHECK_EQ(gs_syscall(SYS_munmap, at, 8192UL), 0);
        CHECK_EQ(gs_syscall(SYS_mmap, NULL, 8192UL, 3L, 0x22L, -1L, 77L), -EINVAL);
    }
    close(fds[0]);
    close(fds[1]);
}

static int others_ran;

static void run_beside(void *fd)
{
    SET(others_ran, 1);
    CHECK_EQ(write(*(int *)fd, "x", 1), 1);
}

GO_TEST(a_system_call_by_number)
{
    int fds[2];
    char c;
    make_system_calls(NULL);
    CHECK_EQ(pipe(fds), 0);
    SET(others_ran, 0);
    go(run_beside, &fds[1]);
    CHECK_EQ(gs_syscall(SYS_read, fds[0], &c, 1), 1); /* with one P too */
    CHECK_EQ(GET(others_ran), 1);
    close(fds[0]);
    close(fds[1]);
}

TEST(a_system_call_of_a_plain_thread)
{
    make_system_calls(NULL);
}

/* ---- Files ---- */

static void use_a_file(void)
{
    char text[8] = "";
    int fd, again;
    CHECK_EQ(gs_open(NULL, O_RDONLY, 0, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_open(path_of("none"), O_RDONLY, 0, GS_FOREVER), -ENOENT);
    CHECK_EQ(gs_open(path_of("f"), O_RDWR | O_CREAT, 0600, 1), -ETIMEDOUT);
    CHECK_EQ(access(path_of("f"), F_OK), -1);
    CHECK_GE(fd = gs_open(path_of("f"), O_RDWR | O_CREAT | O_EXCL, 0600, GS_FOREVER), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(gs_open(path_of("f"), O_RDWR | O_CREAT | O_EXCL, 0600, GS_FOREVER), -EEXIST);
    CHECK_EQ(gs_write(fd, "0123", 4, GS_FOREVER), 4);
    CHECK_EQ(gs_fsync(fd, GS_FOREVER), 0);
    CHECK_EQ(gs_fdatasync(fd, gs_after_ms(60000)), 0);
    CHECK_EQ(gs_fsync(fd, 1), -ETIMEDOUT);
    CHECK_EQ(gs_fdatasync(-1, GS_FOREVER), -EBADF);
    CHECK_GE(again = gs_open(path_of("f"), O_RDONLY, 0, GS_NOWAIT), 0);
    CHECK_EQ(gs_read(again, text, 8, GS_FOREVER), 4);
    CHECK_EQ(strcmp(text, "0123"), 0);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_close(again), 0);
    CHECK_EQ(unlink(path_of("f")), 0);
    remove_dir();
}

GO_TEST(a_file_is_opened_and_brought_to_the_disk)
{
    use_a_file();
}

TEST(a_plain_thread_opens_a_file)
{
    use_a_file();
}

static void open_the_other_end(void *fd)
{
    CHECK_GE(*(int *)fd = gs_open(path_of("fifo"), O_WRONLY, 0, GS_FOREVER), 0);
}

/* With one P too. */
GO_TEST(an_open_that_waits_for_the_other_end_keeps_no_P)
{
    int reads, writes = -1;
    char c;
    gs_g *g;
    CHECK_EQ(mkfifo(path_of("fifo"), 0600), 0);
    CHECK_EQ(gs_open(path_of("fifo"), O_WRONLY, 0, GS_NOWAIT), -ENXIO);
    g = go_ref(open_the_other_end, &writes);
    CHECK_GE(reads = gs_open(path_of("fifo"), O_RDONLY, 0, GS_FOREVER), 0);
    join(g);
    CHECK_EQ(gs_write(writes, "x", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(reads, &c, 1, GS_FOREVER), 1);
    CHECK_EQ(gs_close(reads), 0);
    CHECK_EQ(gs_close(writes), 0);
    CHECK_EQ(unlink(path_of("fifo")), 0);
    remove_dir();
}

/* ---- Copies within the kernel ---- */

enum { LARGE = 3 << 20 };

static unsigned char *large_text(void)
{
    unsigned char *text = malloc(LARGE);
    size_t i;
    CHECK(text != NULL);
    for (i = 0; i < LARGE; i++)
        text[i] = (unsigned char)(i * 7 + i / 251);
    return text;
}

static int large_file(const unsigned char *text)
{
    int fd = gs_open(path_of("large"), O_RDWR | O_CREAT, 0600, GS_FOREVER);
    size_t n = 0;
    CHECK_GE(fd, 0);
    while (n < LARGE) {
        ssize_t r = gs_write(fd, text + n, LARGE - n, GS_FOREVER);
        CHECK_GE(r, 1);
        n += (size_t)r;
    }
    CHECK_EQ(unlink(path_of("large")), 0);
    remove_dir();
    return fd;
}

struct copy {
    int from, to, result;
    int by_splice;
    int pipe[2];
};

static void send_large(void *arg)
{
    struct copy *c = arg;
    off_t at = 0;
    while (at < LARGE) {
        off_t before = at;
        ssize_t r = gs_sendfile(c->to, c->from, &at, LARGE - (size_t)at, GS_FOREVER);
        CHECK_GE(r, 1);
        CHECK_EQ(at - before, r);
    }
    CHECK_EQ(gs_sendfile(c->to, c->from, &at, 10, GS_FOREVER), 0);
    CHECK_EQ(gs_close(c->to), 0);
}

/* From a file through a pipe to a socket. */
static void splice_large(void *arg)
{
    struct copy *c = arg;
    loff_t at = 0;
    while (at < LARGE) {
        ssize_t n = gs_splice(c->from, &at, c->pipe[1], NULL, LARGE, SPLICE_F_MOVE, GS_FOREVER), r;
        CHECK_GE(n, 1);
        for (; n > 0; n -= r)
            CHECK_GE(r = gs_splice(c->pipe[0], NULL, c->to, NULL, (size_t)n, 0, GS_FOREVER), 1);
    }
    CHECK_EQ(gs_close(c->to), 0);
}

static void check_copy(gs_fn fn, int own_pair)
{
    unsigned char *text = large_text(), *got = malloc(LARGE + 1);
    struct copy c;
    int fds[2];
    size_t n = 0;
    ssize_t r;
    gs_g *g;
    CHECK(got != NULL);
    c.from = large_file(text);
    make_pipe(c.pipe);
    if (own_pair)
        CHECK_EQ(gs_unix_pair(fds), 0);
    else
        make_pair(fds); /* it blocks at first */
    c.to = fds[1];
    g = go_ref(fn, &c);
    while ((r = gs_read(fds[0], got + n, LARGE + 1 - n, GS_FOREVER)) > 0)
        n += (size_t)r;
    CHECK_EQ(r, 0);
    CHECK_EQ(n, LARGE);
    CHECK_EQ(memcmp(got, text, LARGE), 0);
    join(g);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(c.from), 0);
    close_both(c.pipe);
    free(text);
    free(got);
}

GO_TEST(a_file_is_sent_to_a_socket)
{
    check_copy(send_large, 0);
    check_copy(send_large, 1);
}

GO_TEST(a_file_is_spliced_through_a_pipe)
{
    check_copy(splice_large, 0);
    check_copy(splice_large, 1);
}

static void splice_for_ever(void *arg)
{
    struct copy *c = arg;
    c->result = (int)gs_splice(c->from, NULL, c->to, NULL, 10, 0, GS_FOREVER);
}

GO_TEST(copies_give_the_errors_of_other_calls)
{
    int fds[2], pair[2];
    unsigned char *text = large_text();
    int fd = large_file(text);
    off_t at = 0;
    ssize_t r;
    struct copy c;
    gs_g *g;
    make_pipe(fds);
    CHECK_EQ(gs_unix_pair(pair), 0);
    CHECK_EQ(gs_unix_pair(NULL), -EINVAL);
    CHECK_EQ(gs_sendfile(pair[0], -1, NULL, 1, GS_FOREVER), -EBADF);
    CHECK_EQ(gs_sendfile(-1, fd, NULL, 1, GS_FOREVER), -EBADF);
    CHECK_EQ(gs_sendfile(pair[0], fd, NULL, SIZE_MAX, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sendfile(pair[0], fd, &at, 1, 1), -ETIMEDOUT);
    CHECK_EQ(gs_splice(fd, NULL, pair[0], NULL, 1, 0, GS_FOREVER), -EINVAL); /* no pipe */
    CHECK_EQ(gs_splice(fds[0], NULL, pair[0], NULL, 1, 0, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_splice(fds[0], NULL, pair[0], NULL, 1, SPLICE_F_NONBLOCK, GS_FOREVER), -EAGAIN);
    CHECK_EQ(gs_splice(fds[0], NULL, pair[0], NULL, 1, 0, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_splice(fds[0], NULL, pair[0], NULL, SIZE_MAX, 0, GS_FOREVER), -EINVAL);
    c.from = fds[0];
    c.to = pair[0];
    g = go_ref(splice_for_ever, &c);
    sleep_and_cancel(g);
    CHECK_EQ(c.result, -ECANCELED);
    /* Until there is no room. */
    while ((r = gs_sendfile(pair[0], fd, &at, 100000, GS_NOWAIT)) > 0)
        at = 0;
    CHECK_EQ(r, -EAGAIN);
    CHECK_EQ(gs_sendfile(pair[0], fd, &at, 100000, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_close(pair[1]), 0);
    CHECK_EQ(gs_sendfile(pair[0], fd, &at, 100000, GS_FOREVER), -EPIPE); /* and no SIGPIPE */
    CHECK_EQ(gs_close(pair[0]), 0);
    CHECK_EQ(gs_close(fd), 0);
    close_both(fds);
    free(text);
}

static void splice_once(void *arg)
{
    struct copy *c = arg;
    c->result = (int)gs_splice(c->from, NULL, c->to, NULL, 10, 0, GS_FOREVER);
}

static void send_once(void *arg)
{
    struct copy *c = arg;
    off_t at = 0;
    c->result = (int)gs_sendfile(c->to, c->from, &at, 10, GS_FOREVER);
}

static gs_g *go_and_wait_for_file(gs_fn fn, struct copy *c)
{
    gs_g *g = go_ref(fn, c);
    gs_g_info info;
    do {
        gs_yield();
        CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    } while (info.wait_reason == NULL || strcmp(info.wait_reason, "IO wait") != 0);
    return g;
}

/* Closes fd, and makes other the file with that number. */
static void close_and_give(int fd, int other)
{
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
    CHECK_EQ(dup2(other, fd), fd);
}

/* A goroutine that waits for bytes in a new pipe, to move them to another new one. */
static gs_g *splice_between(int in[2], int out[2], struct copy *c)
{
    make_pipe(in);
    make_pipe(out);
    c->from = in[0];
    c->to = out[1];
    return go_and_wait_for_file(splice_once, c);
}

/* A copy that waits for one file must not move anything to or from the file that gets the number of the other. */
GO_TEST(a_copy_ends_when_one_of_its_files_is_closed)
{
    unsigned char *text = large_text();
    int file = large_file(text);
    int in[2], out[2], next[2], pair[2], number;
    struct copy c = {0};
    char byte;
    ssize_t r;
    gs_g *g;

    for (int i = 0; i < 20; i++) {
        /* The output, while it waits for input. */
        make_pipe(next);
        g = splice_between(in, out, &c);
        close_and_give(number = c.to, next[1]);
        CHECK_EQ(gs_write(in[1], "secret", 6, GS_FOREVER), 6);
        join(g);
        CHECK_EQ(c.result, -ECANCELED);
        CHECK_EQ(gs_read(next[0], &byte, 1, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_read(in[0], &byte, 1, GS_NOWAIT), 1); /* nothing was moved */
        CHECK_EQ(gs_close(number), 0);
        CHECK_EQ(gs_close(out[0]), 0);
        close_both(in);
        close_both(next);

        /* What it waits for. */
        make_pipe(next);
        g = splice_between(in, out, &c);
        close_and_give(number = c.from, next[0]);
        CHECK_EQ(gs_write(next[1], "other", 5, GS_FOREVER), 5);
        join(g);
        CHECK_EQ(c.result, -ECANCELED);
        CHECK_EQ(gs_read(out[0], &byte, 1, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_close(number), 0);
        CHECK_EQ(gs_close(in[1]), 0);
        close_both(out);
        close_both(next);

        /* The file on a disk, while it waits for room in the socket. */
        CHECK_EQ(gs_unix_pair(pair), 0);
        while ((r = gs_write(pair[0], text, LARGE, GS_NOWAIT)) > 0)
            ;
        CHECK_EQ(r, -EAGAIN);
        CHECK_GE(number = dup(file), 0);
        c.from = number;
        c.to = pair[0];
        g = go_and_wait_for_file(send_once, &c);
        WAIT_UNTIL(is_in_an_instance(pair[0])); /* its first call, on another thread, is over */
        close_and_give(number, file);
        do { /* room, until it tries again */
            CHECK_GE(gs_read(pair[1], text, LARGE, GS_FOREVER), 1);
        } while (gs_join(g, GS_NOWAIT) == -EAGAIN && gs_poll_fd(pair[1], POLLIN, GS_NOWAIT) > 0);
        join(g);
        CHECK_EQ(c.result, -ECANCELED);
        CHECK_EQ(gs_close(number), 0);
        close_both(pair);
    }
    CHECK_EQ(gs_close(file), 0);
    free(text);
}

/* ---- Children ---- */

static pid_t start_sh(const char *script)
{
    extern char **environ;
    char sh[] = "/bin/sh", c[] = "-c", *argv[4];
    char text[100];
    pid_t pid = 0;
    snprintf(text, sizeof text, "%s", script);
    argv[0] = sh;
    argv[1] = c;
    argv[2] = text;
    argv[3] = NULL;
    CHECK_EQ(posix_spawn(&pid, sh, NULL, NULL, argv, environ), 0);
    return pid;
}

static void wait_for_child(void *arg)
{
    char script[40];
    int status = -1;
    pid_t pid;
    snprintf(script, sizeof script, "exit %d", (int)(intptr_t)arg);
    pid = start_sh(script);
    CHECK_EQ(gs_waitpid(pid, &status, 0, GS_FOREVER), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), (int)(intptr_t)arg);
    CHECK_EQ(gs_waitpid(pid, &status, 0, GS_FOREVER), -ECHILD);
}

GO_TEST(a_hundred_children_are_waited_for_at_once)
{
    gs_g *g[100];
    int i;
    for (i = 0; i < 100; i++)
        g[i] = go_ref(wait_for_child, (void *)(intptr_t)i);
    for (i = 0; i < 100; i++)
        join(g[i]);
}

struct waiting {
    pid_t pid, result;
};

static void wait_for_it(void *arg)
{
    struct waiting *w = arg;
    w->result = gs_waitpid(w->pid, NULL, 0, GS_FOREVER);
}

static void wait_for_children(void)
{
    int status = -1, options;
    pid_t pid;
    CHECK_EQ(gs_waitpid(-1, &status, 0, GS_FOREVER), -ECHILD);
    CHECK_EQ(gs_waitpid(getpid(), &status, 0, GS_FOREVER), -ECHILD);
    CHECK_EQ(gs_waitpid(-1, &status, 1 << 20, GS_FOREVER), -EINVAL);
    pid = start_sh("exec sleep 1000");
    CHECK_EQ(kill(pid, SIGSTOP), 0);
    CHECK_EQ(gs_waitpid(pid, &status, WUNTRACED, GS_FOREVER), pid);
    CHECK(WIFSTOPPED(status));
    for (options = 0; options <= WUNTRACED; options += WUNTRACED) {
        CHECK_EQ(gs_waitpid(pid, &status, options | WNOHANG, GS_FOREVER), 0);
        CHECK_EQ(gs_waitpid(pid, &status, options, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_waitpid(pid, &status, options, 1), -ETIMEDOUT);
        CHECK_EQ(gs_waitpid(pid, &status, options, gs_after_ms(2)), -ETIMEDOUT);
        CHECK_EQ(gs_waitpid(-1, &status, options, gs_after_ms(2)), -ETIMEDOUT);
    }
    if (gs_self()) {
        struct waiting one = {pid, 0}, any = {-1, 0};
        sleep_and_cancel(go_ref(wait_for_it, &one));
        sleep_and_cancel(go_ref(wait_for_it, &any));
        CHECK(one.result == -ECANCELED && any.result == -ECANCELED);
    }
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(gs_waitpid(-1, &status, 0, GS_FOREVER), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    /* What can be done at once is done, though the deadline has passed. */
    pid = start_sh("exit 0");
    {
        siginfo_t info;
        CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    }
    CHECK_EQ(gs_waitpid(pid, NULL, 0, 1), pid);
}

GO_TEST(children_are_waited_for_in_all_ways)
{
    wait_for_children();
}

TEST(a_plain_thread_waits_for_children)
{
    wait_for_children();
}

/* Of several who wait for one child one gets it. */
GO_TEST(several_wait_for_one_child)
{
    int i, k;
    for (i = 0; i < 10; i++) {
        struct waiting w[4];
        gs_g *g[4];
        int got = 0;
        pid_t pid = start_sh("exit 0");
        for (k = 0; k < 4; k++) {
            w[k].pid = pid;
            g[k] = go_ref(wait_for_it, &w[k]);
        }
        for (k = 0; k < 4; k++) {
            join(g[k]);
            CHECK(w[k].result == pid || w[k].result == -ECHILD);
            got += w[k].result == pid;
        }
        CHECK_EQ(got, 1);
    }
}

/* ---- Signals ---- */

static void set_of(sigset_t *set, int a, int b)
{
    sigemptyset(set);
    sigaddset(set, a);
    if (b)
        sigaddset(set, b);
}

static int signals_taken;

static void take_signals(void *arg)
{
    sigset_t set;
    siginfo_t info;
    int n = (int)(intptr_t)arg;
    set_of(&set, SIGUSR1, SIGRTMIN + 3);
    for (; n > 0; n--) {
        memset(&info, 0, sizeof info);
        CHECK_EQ(gs_signal_wait(&set, &info, GS_FOREVER), SIGRTMIN + 3);
        CHECK_EQ(info.si_signo, SIGRTMIN + 3);
        CHECK_EQ(info.si_code, SI_QUEUE);
        CHECK_EQ(info.si_pid, getpid());
        CHECK_EQ(info.si_uid, getuid());
        CHECK_EQ(info.si_value.sival_int, 4711);
        ADD(signals_taken, 1);
    }
}

static void signals_in_goroutines(void *arg)
{
    sigset_t set, empty;
    siginfo_t info;
    gs_g *g[4];
    int i;
    pid_t pid;
    union sigval v;
    (void)arg;
    sigemptyset(&empty);
    set_of(&set, SIGUSR1, SIGCHLD);
    CHECK_EQ(gs_signal_wait(NULL, &info, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_signal_wait(&empty, &info, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_signal_wait(&set, &info, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_signal_wait(&set, &info, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(gs_signal_wait(&set, &info, 1), SIGUSR1); /* it is there */
    CHECK_EQ(info.si_code, SI_USER);
    CHECK_EQ(info.si_pid, getpid());
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(gs_signal_wait(&set, NULL, GS_NOWAIT), SIGUSR1);
    pid = start_sh("exit 5");
    CHECK_EQ(gs_signal_wait(&set, &info, GS_FOREVER), SIGCHLD);
    CHECK_EQ(info.si_code, CLD_EXITED);
    CHECK_EQ(info.si_pid, pid);
    CHECK_EQ(info.si_status, 5);
    CHECK_EQ(gs_waitpid(pid, NULL, 0, GS_FOREVER), pid);
    set_of(&set, SIGURG, 0);
    if (!getenv("GOSCHED_PREEMPT_SIGNAL"))
        CHECK_EQ(gs_signal_wait(&set, &info, GS_NOWAIT), -EINVAL);
    /* Each signal goes to one of several. */
    SET(signals_taken, 0);
    for (i = 0; i < 4; i++)
        g[i] = go_ref(take_signals, (void *)(intptr_t)25);
    v.sival_int = 4711;
    for (i = 0; i < 100; i++) {
        CHECK_EQ(sigqueue(getpid(), SIGRTMIN + 3, v), 0);
        if (i % 3 == 0)
            gs_yield();
    }
    for (i = 0; i < 4; i++)
        join(g[i]);
    CHECK_EQ(GET(signals_taken), 100);
}

/* A process of its own, whose threads all begin with the signals blocked. */
CHILD(block_and_wait_for_signals)
{
    sigset_t set;
    long files;
    set_of(&set, SIGUSR1, SIGCHLD);
    sigaddset(&set, SIGRTMIN + 3);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    files = count_fds();
    CHECK_EQ(gs_run(signals_in_goroutines, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(count_fds(), files);
    /* A plain thread. */
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    CHECK_EQ(gs_signal_wait(&set, NULL, GS_FOREVER), SIGUSR1);
    CHECK_EQ(gs_signal_wait(&set, NULL, gs_after_ms(2)), -ETIMEDOUT);
}

TEST(signals_are_waited_for)
{
    check_child_succeeds("block_and_wait_for_signals");
}

/* ---- UDP and sockets of the machine's own ---- */

static void echo_datagrams(void *fd)
{
    struct sockaddr_storage from;
    char text[100];
    for (;;) {
        socklen_t len = sizeof from;
        ssize_t n = gs_recvfrom(*(int *)fd, text, sizeof text, 0, (struct sockaddr *)&from, &len, GS_FOREVER);
        if (n < 0) {
            CHECK(n == -ECANCELED || n == -EBADF);
            return;
        }
        CHECK_EQ(gs_sendto(*(int *)fd, text, (size_t)n, 0, (struct sockaddr *)&from, len, GS_FOREVER), n);
    }
}

static void ask_by_udp(const char *listen_at, const char *host)
{
    int server = gs_udp_bind(listen_at, 0), client, i;
    gs_g *g;
    if (server == -EADDRNOTAVAIL || server == -EAFNOSUPPORT)
        return;
    CHECK_GE(server, 0);
    CHECK_EQ(fcntl(server, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(gs_udp_bind(listen_at, port_of(server)), -EADDRINUSE);
    g = go_ref(echo_datagrams, &server);
    CHECK_GE(client = gs_udp_connect(host, port_of(server), gs_after_ms(60000)), 0);
    for (i = 0; i < 50; i++) {
        char text[100] = "", word[20];
        ssize_t n;
        snprintf(word, sizeof word, "word %d", i);
        CHECK_EQ(gs_write(client, word, strlen(word), GS_FOREVER), (ssize_t)strlen(word));
        CHECK_EQ(n = gs_read(client, text, sizeof text, GS_FOREVER), (ssize_t)strlen(word));
        CHECK_EQ(strcmp(text, word), 0);
    }
    CHECK_EQ(gs_close(client), 0);
    CHECK_EQ(gs_close(server), 0);
    join(g);
}

GO_TEST(datagrams_come_back)
{
    ask_by_udp("127.0.0.1", "127.0.0.1");
    ask_by_udp("localhost", "localhost");
    ask_by_udp(NULL, "127.0.0.1"); /* both families */
    ask_by_udp("", "127.0.0.1");
    ask_by_udp("::1", "::1");
    CHECK_EQ(gs_udp_connect(NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_udp_connect("127.0.0.1", 1, 1), -ETIMEDOUT);
}

static void echo_streams(void *fd)
{
    int c;
    while ((c = gs_accept(*(int *)fd, NULL, NULL, GS_FOREVER)) >= 0) {
        char text[100];
        ssize_t n;
        while ((n = gs_read(c, text, sizeof text, GS_FOREVER)) > 0)
            CHECK_EQ(gs_write(c, text, (size_t)n, GS_FOREVER), n);
        CHECK_EQ(gs_close(c), 0);
    }
    CHECK(c == -ECANCELED || c == -EBADF); /* closed, maybe before it waits again */
}

static void ask_by_path(const char *path)
{
    int server = gs_unix_listen(path, 0), i;
    gs_g *g;
    CHECK_GE(server, 0);
    CHECK_EQ(gs_unix_listen(path, 0), -EADDRINUSE);
    g = go_ref(echo_streams, &server);
    for (i = 0; i < 20; i++) {
        char text[8] = "";
        int client = gs_unix_connect(path, GS_FOREVER);
        CHECK_GE(client, 0);
        CHECK_EQ(gs_write(client, "abc", 3, GS_FOREVER), 3);
        CHECK_EQ(gs_read(client, text, 8, GS_FOREVER), 3);
        CHECK_EQ(strcmp(text, "abc"), 0);
        CHECK_EQ(gs_close(client), 0);
    }
    CHECK_EQ(gs_close(server), 0);
    join(g);
}

GO_TEST(streams_by_a_path_and_by_an_abstract_name)
{
    char name[200], path[200];
    snprintf(name, sizeof name, "@gosched-%d", getpid());
    ask_by_path(name);
    ask_by_path(name); /* it has gone with the socket */
    CHECK_EQ(gs_unix_connect(name, GS_FOREVER), -ECONNREFUSED);
    strcpy(path, path_of("s"));
    CHECK_EQ(gs_unix_connect(path, GS_FOREVER), -ENOENT);
    ask_by_path(path);
    CHECK_EQ(gs_unix_listen(path, 0), -EADDRINUSE); /* a stale one stays */
    CHECK_EQ(gs_unix_connect(path, GS_FOREVER), -ECONNREFUSED);
    CHECK_EQ(unlink(path), 0);
    ask_by_path(path);
    CHECK_EQ(unlink(path), 0);
    remove_dir();
    memset(name, 'x', sizeof name);
    name[108] = 0;
    CHECK_EQ(gs_unix_listen(name, 0), -ENAMETOOLONG);
    CHECK_EQ(gs_unix_connect(name, GS_FOREVER), -ENAMETOOLONG);
    CHECK_EQ(gs_unix_listen(NULL, 0), -EINVAL);
    CHECK_EQ(gs_unix_listen("", 0), -EINVAL);
    CHECK_EQ(gs_unix_listen("@", 0), -EINVAL);
    CHECK_EQ(gs_unix_connect(NULL, 0), -EINVAL);
    CHECK_EQ(gs_unix_connect("", 0), -EINVAL);
    CHECK_EQ(gs_unix_connect("@none", 1), -ETIMEDOUT);
}

static struct sockaddr_un crowded;
static socklen_t crowded_len;

static void connect_to_crowded(void *arg)
{
    struct copy *c = arg;
    c->result = gs_connect(c->to, (struct sockaddr *)&crowded, crowded_len, GS_FOREVER);
}

static int connect_now(int fd)
{
    return connect(fd, (struct sockaddr *)&crowded, crowded_len);
}

static int new_unix_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK_GE(fd, 0);
    return fd;
}

/* A goroutine waits until a server has room for its connection. The socket that gets the number meanwhile, after gs_close
 * or by gs_adopt, must not be connected in its place. */
GO_TEST(a_connect_that_waits_for_room_ends_when_its_socket_is_closed)
{
    int server, client, clients[8], n = 0;

    crowded.sun_family = AF_UNIX;
    snprintf(crowded.sun_path + 1, sizeof crowded.sun_path - 1, "gosched-crowd-%d", getpid());
    crowded_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(crowded.sun_path + 1));
    server = new_unix_socket();
    CHECK_EQ(bind(server, (struct sockaddr *)&crowded, crowded_len), 0);
    CHECK_EQ(listen(server, 0), 0);
    do {
        CHECK_LE(n, 7);
        clients[n] = new_unix_socket();
    } while (connect_now(clients[n++]) == 0);
    CHECK_EQ(errno, EAGAIN);

    for (int i = 0; i < 5; i++) {
        struct copy c = {.to = new_unix_socket()};
        gs_g *g = go_and_wait_for_file(connect_to_crowded, &c);
        if (i % 2) {
            close_and_give(c.to, clients[n - 1]);
        } else {
            CHECK_EQ(dup2(clients[n - 1], c.to), c.to);
            CHECK_EQ(gs_adopt(c.to), 0);
        }
        CHECK_GE(client = accept(server, NULL, NULL), 0);
        join(g);
        CHECK_EQ(c.result, -ECANCELED);
        close(client);
        CHECK_EQ(gs_close(c.to), 0);
        /* There is room still, and then there is none. */
        client = new_unix_socket();
        CHECK_EQ(connect_now(client), 0);
        close(client);
    }
    for (int i = 0; i < n; i++)
        close(clients[i]);
    close(server);
}

struct dial {
    char name[40];
    int fd;
};

static void dial(void *arg)
{
    struct dial *d = arg;
    int fd = gs_unix_connect(d->name, GS_FOREVER);
    SET(d->fd, fd);
}

/* How many of them are connected. */
static int connected(struct dial *d, int n)
{
    int sum = 0;
    while (n-- > 0)
        sum += GET(d[n].fd) >= 0;
    return sum;
}

/* The other side's queue is full: it waited for ever, because the kernel tells nothing. */
GO_TEST(a_connection_waits_until_there_is_room)
{
    struct dial d[5], late = {.fd = -1};
    int server, i, accepted[5];
    gs_g *g[5];
    snprintf(late.name, sizeof late.name, "@gosched-full-%d", getpid());
    CHECK_GE(server = gs_unix_listen(late.name, 1), 0);
    for (i = 0; i < 5; i++) {
        d[i] = late;
        g[i] = go_ref(dial, &d[i]);
    }
    WAIT_UNTIL(connected(d, 5) == 2); /* one more than the backlog: now it is full */
    CHECK_EQ(gs_unix_connect(late.name, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_unix_connect(late.name, gs_after_ms(3)), -ETIMEDOUT);
    {
        gs_g *l = go_ref(dial, &late);
        sleep_and_cancel(l);
        CHECK_EQ(late.fd, -ECANCELED);
    }
    for (i = 0; i < 5; i++)
        CHECK_GE(accepted[i] = gs_accept(server, NULL, NULL, GS_FOREVER), 0);
    for (i = 0; i < 5; i++) {
        join(g[i]);
        CHECK_GE(d[i].fd, 0);
        CHECK_EQ(gs_close(d[i].fd), 0);
        CHECK_EQ(gs_close(accepted[i]), 0);
    }
    CHECK_EQ(gs_close(server), 0);
}

/* ---- Files of two goroutines that talk to each other ---- */

static void echo_bytes(void *arg)
{
    int fd = *(int *)arg;
    char c;
    while (gs_read(fd, &c, 1, GS_FOREVER) == 1)
        CHECK_EQ(gs_write(fd, &c, 1, GS_FOREVER), 1);
}

/* Wherever the two begin, their files end up with one P. */
GO_TEST(files_of_goroutines_that_talk_come_together)
{
    int fds[2], i;
    gs_g *g;
    make_pair(fds);
    g = go_ref(echo_bytes, &fds[1]);
    do {
        for (i = 0; i < 500; i++) {
            char c = (char)i;
            CHECK_EQ(gs_write(fds[0], &c, 1, GS_FOREVER), 1);
            CHECK_EQ(gs_read(fds[0], &c, 1, GS_FOREVER), 1);
            CHECK_EQ(c, (char)i);
        }
    } while (gs_numa_nodes() == 1 && !are_in_one_instance(fds[0], fds[1]));
    CHECK_EQ(gs_close(fds[0]), 0);
    join(g);
    CHECK_EQ(gs_close(fds[1]), 0);
}
