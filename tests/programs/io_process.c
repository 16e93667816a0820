/*
 * I/O and the rest of the process: plain threads, start and shutdown, fork, GOMAXPROCS, threads that are
 * locked or in a system call, deadlock.
 */
#include "io.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

/* ---- Plain threads ---- */

TEST(a_plain_thread_needs_no_runtime)
{
    size_t i;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    for (i = 0; i < 2; i++) { /* TCP by name may start it */
        int fds[2];
        struct reader r;
        pthread_t t;
        char c;
        all_pairs[i](fds);
        CHECK_EQ(gs_read(fds[0], &c, 1, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_ms(3)), -ETIMEDOUT);
        r = reader_of(fds[0], i ? GS_FOREVER : gs_after_ms(60000));
        t = start_thread(read_byte_on_thread, &r);
        wait_asleep(&r.tid);
        CHECK_EQ(GET(r.done), 0);
        CHECK_EQ(gs_write(fds[1], "t", 1, GS_FOREVER), 1);
        join_thread(t);
        CHECK_EQ(r.result, 1);
        close_both(fds);
    }
    NAP_UNTIL(count_threads() == 1); /* an ended thread may be listed for a moment */
}

TEST(gs_close_wakes_plain_threads)
{
    int fds[2];
    struct reader r;
    pthread_t t;
    make_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    t = start_thread(read_byte_on_thread, &r);
    wait_asleep(&r.tid);
    CHECK_EQ(gs_close(fds[0]), 0);
    join_thread(t);
    CHECK_EQ(r.result, -ECANCELED);
    CHECK_EQ(gs_close(fds[1]), 0);
}

static void no_handler(int sig)
{
    (void)sig;
}

TEST(signals_dont_end_the_wait_of_a_plain_thread)
{
    int fds[2], i;
    struct reader r;
    struct sigaction act;
    pthread_t t;
    memset(&act, 0, sizeof act);
    act.sa_handler = no_handler; /* without SA_RESTART */
    CHECK_EQ(sigaction(SIGUSR1, &act, NULL), 0);
    make_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    t = start_thread(read_byte_on_thread, &r);
    wait_asleep(&r.tid);
    for (i = 0; i < 20; i++) {
        CHECK_EQ(pthread_kill(t, SIGUSR1), 0);
        nap(200 * US);
    }
    CHECK_EQ(GET(r.done), 0);
    CHECK_EQ(gs_write(fds[1], "s", 1, GS_FOREVER), 1);
    join_thread(t);
    CHECK_EQ(r.result, 1);
    close_both(fds);
}

static void *echo_on_thread(void *arg)
{
    int fd = *(int *)arg;
    char c;
    while (gs_read(fd, &c, 1, GS_FOREVER) == 1)
        CHECK_EQ(gs_write(fd, &c, 1, GS_FOREVER), 1);
    return NULL;
}

GO_TEST(goroutines_and_plain_threads_talk)
{
    int fds[2], i;
    pthread_t t;
    make_tcp(fds);
    t = start_thread(echo_on_thread, &fds[1]);
    for (i = 0; i < 1000; i++) {
        char c = (char)i, d;
        CHECK_EQ(gs_write(fds[0], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[0], &d, 1, GS_FOREVER), 1);
        CHECK_EQ(c, d);
    }
    CHECK_EQ(gs_close(fds[0]), 0);
    go_join_thread(t);
    CHECK_EQ(gs_close(fds[1]), 0);
}

/* ---- Start and shutdown ---- */

static int kept[2];

static void wait_a_little(void *arg)
{
    char c;
    (void)arg;
    CHECK_EQ(gs_read(kept[0], &c, 1, gs_after_ms(1)), -ETIMEDOUT);
}

static void exchange(void *arg)
{
    struct reader r = reader_of(kept[0], GS_FOREVER);
    gs_g *g = go_ref(read_byte, &r);
    (void)arg;
    settle();
    CHECK_EQ(gs_write(kept[1], "e", 1, GS_FOREVER), 1);
    join(g);
    CHECK_EQ(r.result, 1);
}

TEST(files_outlive_the_runtime)
{
    long fds, round;
    size_t i;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    fds = count_fds();
    for (i = 0; i < LENGTH(all_pairs); i++) {
        all_pairs[i](kept);
        for (round = 0; round < 3; round++) {
            char c;
            CHECK_EQ(gs_run(wait_a_little, NULL), 0);
            CHECK_EQ(gs_run(exchange, NULL), 0);
            CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
            CHECK_EQ(count_fds(), fds + 2);
            CHECK_EQ(gs_write(kept[1], "p", 1, GS_FOREVER), 1);
            CHECK_EQ(gs_read(kept[0], &c, 1, GS_FOREVER), 1);
        }
        close_both(kept);
    }
    CHECK_EQ(count_fds(), fds);
}

static void no_io(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(MS), 0);
}

TEST(without_io_there_are_no_files)
{
    long fds;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    fds = count_fds();
    CHECK_EQ(gs_run(no_io, NULL), 0);
    CHECK_EQ(count_fds(), fds);
}

/* More than the numbers of the library's own files in this program. */
enum { LARGEST_FD = 1000 };

static void look_at_files(void *arg)
{
    int fd;
    (void)arg;
    wait_a_little(NULL);
    for (fd = 3; fd < LARGEST_FD; fd++) {
        int flags = fcntl(fd, F_GETFD);
        CHECK(flags < 0 || flags & FD_CLOEXEC);
    }
}

CHILD(every_file_is_closed_on_exec)
{
    int fd;
    for (fd = 3; fd < LARGEST_FD; fd++)
        close(fd);
    make_pipe(kept);
    CHECK_EQ(gs_run(look_at_files, NULL), 0);
    close_both(kept);
}

TEST(every_file_of_the_library_is_closed_on_exec)
{
    check_child_succeeds("every_file_is_closed_on_exec");
}

/* ---- fork ---- */

static void exchange_in_child(void)
{
    char c;
    while (gs_read(kept[0], &c, 1, GS_NOWAIT) == 1)
        ;
    CHECK_EQ(gs_run(wait_a_little, NULL), 0);
    CHECK_EQ(gs_run(exchange, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    _exit(0);
}

static void fork_and_go_on(void *arg)
{
    int status, mine[2], round;
    (void)arg;
    for (round = 0; round < 3; round++) {
        struct reader r;
        gs_g *g;
        pid_t child;
        make_pair(mine);
        make_pair(kept);
        r = reader_of(mine[0], GS_FOREVER);
        g = go_ref(read_byte, &r);
        wait_a_little(NULL);
        settle();
        child = fork();
        CHECK_GE(child, 0);
        if (child == 0) {
            alarm(20);
            /* what the child closes is the parent's still */
            close(mine[0]);
            close(mine[1]);
            exchange_in_child();
        }
        CHECK_EQ(gs_write(mine[1], "f", 1, GS_FOREVER), 1);
        join(g);
        CHECK_EQ(r.result, 1);
        CHECK_EQ(gs_entersyscallblock(), 0);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(gs_exitsyscall(), 0);
        CHECK_EQ(status, 0);
        exchange(NULL);
        close_both(mine);
        close_both(kept);
    }
}

GO_TEST(parent_and_child_of_a_fork_have_pollers_of_their_own)
{
    fork_and_go_on(NULL);
}

static void try_once(void *arg)
{
    (void)arg;
    exchange(NULL);
}

TEST(a_child_forked_by_a_plain_thread)
{
    int status;
    pid_t child;
    make_pair(kept);
    CHECK_EQ(gs_run(try_once, NULL), 0);
    child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        alarm(20);
        exchange_in_child();
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(gs_run(try_once, NULL), 0);
    close_both(kept);
}

/* ---- Fewer P's and more ---- */

GO_TEST(files_of_ps_that_are_gone)
{
    enum { N = 40 };
    static int fds[N][2];
    static struct reader r[N];
    gs_g *g[N];
    int i, round, procs = gs_gomaxprocs(0);
    for (round = 0; round < 5; round++) {
        gs_gomaxprocs(8);
        for (i = 0; i < N; i++) {
            if (round == 0)
                make_pair(fds[i]);
            r[i] = reader_of(fds[i][0], GS_FOREVER);
            g[i] = go_ref(read_byte, &r[i]);
            if (i % 4 == 0)
                CHECK_EQ(gs_sleep(200 * US), 0);
        }
        settle();
        gs_gomaxprocs(round % 2 + 1);
        for (i = 0; i < N; i++)
            CHECK_EQ(gs_write(fds[i][1], "g", 1, GS_FOREVER), 1);
        for (i = 0; i < N; i++) {
            join(g[i]);
            CHECK_EQ(r[i].result, 1);
        }
    }
    gs_gomaxprocs(procs);
    for (i = 0; i < N; i++)
        close_both(fds[i]);
}

/* ---- Threads that do something else ---- */

static void read_locked(void *arg)
{
    int i;
    struct reader *r = arg;
    pid_t tid;
    CHECK_EQ(gs_lock_os_thread(), 0);
    tid = thread_id();
    for (i = 0; i < 50; i++) {
        CHECK_EQ(gs_read(r->fd, &r->byte, 1, GS_FOREVER), 1);
        CHECK_EQ(thread_id(), tid);
        ADD(r->done, 1);
    }
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

GO_TEST(a_locked_goroutine_waits)
{
    int fds[2], i;
    struct reader r;
    gs_g *g;
    make_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    g = go_ref(read_locked, &r);
    for (i = 1; i <= 50; i++) {
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(gs_write(fds[1], "l", 1, GS_FOREVER), 1);
        WAIT_UNTIL(GET(r.done) == i);
    }
    join(g);
    close_both(fds);
}

static int echo_fds[2];

static void *talk_to_goroutine(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 100; i++) {
        char c;
        nap(i % 10 * 20 * US);
        CHECK_EQ(write(echo_fds[1], "q", 1), 1);
        CHECK_EQ(read(echo_fds[1], &c, 1), 1);
    }
    return NULL;
}

static void echo_locked(void *arg)
{
    char c;
    int i;
    if (arg)
        CHECK_EQ(gs_lock_os_thread(), 0);
    for (i = 0; i < 100; i++) {
        CHECK_EQ(gs_read(echo_fds[0], &c, 1, GS_FOREVER), 1);
        CHECK_EQ(gs_write(echo_fds[0], &c, 1, GS_FOREVER), 1);
    }
    if (arg)
        CHECK_EQ(gs_unlock_os_thread(), 0);
}

/* All P's are idle, and only the kernel can wake a goroutine: a thread must watch, whichever goroutine waits. */
TEST(some_thread_always_watches)
{
    int locked;
    for (locked = 0; locked < 2; locked++) {
        pthread_t t;
        make_pair(echo_fds);
        t = start_thread(talk_to_goroutine, NULL);
        CHECK_EQ(gs_run(echo_locked, locked ? echo_fds : NULL), 0);
        join_thread(t);
        close_both(echo_fds);
    }
}

static void *block_in_c(void *arg)
{
    while (!GET(*(int *)arg))
        nap(MS);
    return NULL;
}

static int release_blocked;

static void block(void *arg)
{
    (void)arg;
    (void)gs_blocking(block_in_c, &release_blocked);
}

GO_TEST(goroutines_in_system_calls_keep_no_reader_waiting)
{
    enum { N = 10 };
    int fds[2], i;
    gs_g *g[N];
    struct reader r;
    gs_g *reader;
    SET(release_blocked, 0);
    make_pair(fds);
    for (i = 0; i < N; i++)
        g[i] = go_ref(block, NULL);
    for (i = 0; i < 20; i++) {
        r = reader_of(fds[0], GS_FOREVER);
        reader = go_ref(read_byte, &r);
        CHECK_EQ(gs_sleep(300 * US), 0);
        CHECK_EQ(gs_write(fds[1], "b", 1, GS_FOREVER), 1);
        join(reader);
        CHECK_EQ(r.result, 1);
    }
    SET(release_blocked, 1);
    for (i = 0; i < N; i++)
        join(g[i]);
    close_both(fds);
}

/* ---- After a long sleep of everything ---- */

TEST(an_event_after_a_long_time)
{
    struct reader r;
    int i;
    for (i = 0; i < 2; i++) {
        make_pair(kept);
        r = reader_of(kept[0], GS_FOREVER);
        go(read_byte, &r);
        nap(200 * MS); /* sysmon sleeps too by now, and looks for a deadlock now and then */
        CHECK_EQ(GET(r.done), 0);
        CHECK_EQ(write(kept[1], "d", 1), 1);
        NAP_UNTIL(GET(r.done));
        CHECK_EQ(r.result, 1);
        close_both(kept);
    }
}

/* ---- No number is free for an epoll instance ---- */

static void wait_without_a_number(void *arg)
{
    int *fds = arg;
    struct rlimit before, none;
    struct reader r = reader_of(fds[0], gs_after_ms(5));
    gs_g *g;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    read_byte(&r);
    CHECK_EQ(r.result, -ETIMEDOUT);
    r = reader_of(fds[0], GS_FOREVER);
    g = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(gs_write(fds[1], "n", 1, GS_FOREVER), 1);
    join(g);
    CHECK_EQ(r.result, 1);
    g = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
    CHECK_EQ(r.result, -ECANCELED);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

CHILD(goroutines_wait_without_a_number)
{
    int fds[2];
    make_pipe(fds);
    CHECK_EQ(gs_run(wait_without_a_number, fds), 0);
    close_both(fds);
}

TEST(without_a_free_number_goroutines_wait_all_the_same)
{
    check_child_succeeds("goroutines_wait_without_a_number");
}

/* ---- A filter of system calls that refuses eventfd2 ---- */

static void refuse(int call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {LENGTH(code), code};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

static void pass_on_byte(void *arg)
{
    int *fds = arg;
    char c;
    while (gs_read(fds[0], &c, 1, GS_FOREVER) == 1)
        CHECK_EQ(gs_write(fds[3], &c, 1, GS_FOREVER), 1);
}

/* The M's sleep in the poller, and goroutines that plain threads spawn wake them, and bytes do. */
static void wake_sleepers(void *arg)
{
    int fds[4], i;
    struct reader r;
    gs_g *g, *reader;
    char c;
    (void)arg;
    make_pair(fds);
    make_pair(fds + 2);
    g = go_ref(pass_on_byte, fds);
    for (i = 0; i < 1000; i++) {
        CHECK_EQ(gs_write(fds[1], "e", 1, GS_FOREVER), 1);
        CHECK_EQ(gs_read(fds[2], &c, 1, gs_after_ms(60000)), 1);
    }
    r = reader_of(fds[2], gs_after_ms(5));
    read_byte(&r);
    CHECK_EQ(r.result, -ETIMEDOUT);
    r = reader_of(fds[2], GS_FOREVER);
    reader = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(gs_cancel(reader), 0);
    join(reader);
    CHECK_EQ(r.result, -ECANCELED);
    CHECK_EQ(gs_close(fds[0]), 0);
    join(g);
    close_both(fds + 2);
    CHECK_EQ(gs_close(fds[1]), 0);
}

static void return_now(void *arg)
{
    (void)arg;
}

static void *spawn_and_join(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 3000; i++)
        join(go_ref(return_now, NULL));
    return NULL;
}

static void wait_beside_spawners(void *arg)
{
    int fds[2];
    struct reader r;
    pthread_t t;
    gs_g *g;
    (void)arg;
    make_pipe(fds);
    r = reader_of(fds[0], GS_FOREVER);
    g = go_ref(read_byte, &r);
    settle();
    t = start_thread(spawn_and_join, NULL);
    go_join_thread(t);
    CHECK_EQ(gs_write(fds[1], "s", 1, GS_FOREVER), 1);
    join(g);
    close_both(fds);
}

CHILD(files_without_eventfds)
{
    int before = (int)count_fds(), fds[2];
    struct reader r;
    pthread_t t;
    pid_t pid;
    int status;
    refuse(SYS_eventfd2, atoi(getenv("REFUSED_WITH")));
    CHECK_EQ(eventfd(0, EFD_CLOEXEC), -1); /* without flags musl tries SYS_eventfd next */
    CHECK_EQ(gs_run(wake_sleepers, NULL), 0);
    CHECK_EQ(gs_run(wait_beside_spawners, NULL), 0);
    make_pair(fds);
    r = reader_of(fds[0], GS_FOREVER);
    t = start_thread(read_byte_on_thread, &r);
    wait_asleep(&r.tid);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        CHECK_EQ(gs_run(wake_sleepers, NULL), 0);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(GET(r.done), 0);
    CHECK_EQ(gs_close(fds[0]), 0);
    join_thread(t);
    CHECK_EQ(r.result, -ECANCELED);
    CHECK_EQ(gs_close(fds[1]), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(count_fds(), before);
}

TEST(without_eventfds_pipes_wake_those_that_wait)
{
    static const char *const errors[] = {"1", "38"}; /* EPERM, ENOSYS */
    size_t i;
    for (i = 0; i < LENGTH(errors); i++) {
        CHECK_EQ(setenv("REFUSED_WITH", errors[i], 1), 0);
        check_child_succeeds("files_without_eventfds");
    }
}

/* ---- A filter that refuses the calls which read and write without a wait ---- */

static void exchange_bytes(void *arg)
{
    int fds[2];
    struct reader r;
    gs_g *g;
    (void)arg;
    make_pipe(fds);
    r = reader_of(fds[0], gs_after_ms(60000));
    g = go_ref(read_byte, &r);
    settle();
    CHECK_EQ(gs_write(fds[1], "b", 1, GS_FOREVER), 1);
    join(g);
    CHECK_EQ(r.result, 1);
    CHECK_EQ(gs_read(fds[0], &r, 1, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_write(fds[1], "b", 1, GS_FOREVER), -EPIPE);
    CHECK_EQ(gs_close(fds[1]), 0);
}

CHILD(files_without_preadv2)
{
    int error = atoi(getenv("REFUSED_WITH"));
    refuse(SYS_preadv2, error);
    refuse(SYS_pwritev2, error);
    CHECK_EQ(gs_run(exchange_bytes, NULL), 0);
    exchange_bytes(NULL);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(a_filter_may_refuse_the_calls_that_do_not_wait)
{
    static const char *const errors[] = {"1", "13", "38"}; /* EPERM, EACCES, ENOSYS */
    size_t i;
    for (i = 0; i < LENGTH(errors); i++) {
        CHECK_EQ(setenv("REFUSED_WITH", errors[i], 1), 0);
        check_child_succeeds("files_without_preadv2");
    }
}

/* ---- pthread_cancel of plain threads that use files ---- */

struct user {
    int fd;
    int deadline; /* in us; negative: for ever */
    ssize_t (*use)(int fd, int64_t deadline);
    pid_t tid;
    int rounds;
    ssize_t result;
};

static ssize_t use_read(int fd, int64_t deadline)
{
    char c;
    return gs_read(fd, &c, 1, deadline);
}

static ssize_t use_recv(int fd, int64_t deadline)
{
    char c;
    return gs_recv(fd, &c, 1, 0, deadline);
}

static ssize_t use_recvmsg(int fd, int64_t deadline)
{
    char c;
    struct iovec v = {&c, 1};
    struct msghdr m;
    memset(&m, 0, sizeof m);
    m.msg_iov = &v;
    m.msg_iovlen = 1;
    return gs_recvmsg(fd, &m, 0, deadline);
}

static ssize_t use_readv(int fd, int64_t deadline)
{
    char c[2];
    struct iovec v[2] = {{c, 1}, {c + 1, 1}};
    return gs_readv(fd, v, 2, deadline);
}

static ssize_t use_poll(int fd, int64_t deadline)
{
    return gs_poll_fd(fd, POLLIN, deadline);
}

static ssize_t (*const uses[])(int fd, int64_t deadline) = {use_read, use_recv, use_recvmsg, use_readv, use_poll};

static void *use_until_cancelled(void *arg)
{
    struct user *u = arg;
    SET(u->tid, thread_id());
    do {
        pthread_testcancel();
        u->result = u->use(u->fd, u->deadline < 0 ? GS_FOREVER : gs_after_us(u->deadline));
        ADD(u->rounds, 1);
    } while (u->result == -ETIMEDOUT);
    pthread_testcancel();
    return arg;
}

/* The cancelled thread would stay counted in the file, and gs_close wait for it for ever. */
TEST(a_cancelled_thread_waits_on_until_its_call_returns)
{
    size_t i;
    int fds[2];
    for (i = 0; i < LENGTH(uses); i++) {
        struct user u = {0, -1, uses[i], 0, 0, 0};
        void *left;
        pthread_t t;
        make_pair(fds);
        u.fd = fds[0];
        t = start_thread(use_until_cancelled, &u);
        wait_asleep(&u.tid);
        CHECK_EQ(pthread_cancel(t), 0);
        nap(MS);
        CHECK_EQ(GET(u.rounds), 0);
        close_both(fds);
        CHECK_EQ(pthread_join(t, &left), 0);
        CHECK(left == PTHREAD_CANCELED);
        CHECK_EQ(u.result, -ECANCELED);
    }
}

TEST(threads_cancelled_anywhere_in_a_call_leave_the_file)
{
    size_t i;
    int fds[2];
    for (i = 0; i < 20 * LENGTH(uses); i++) {
        struct user u = {0, (int)(i % 7) * 5, uses[i % LENGTH(uses)], 0, 0, 0};
        pthread_t t;
        make_pair(fds);
        u.fd = fds[0];
        t = start_thread(use_until_cancelled, &u);
        NAP_UNTIL(GET(u.rounds) > 0);
        CHECK_EQ(pthread_cancel(t), 0);
        join_thread(t);
        close_both(fds);
    }
}
