/*
 * Goroutines that don't call the library: loops without calls, and blocking calls that were not announced. None of
 * them keeps a P from the others. seed: R2, B8
 */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#define HOGS 4

static int stop;
static long turns[16];

/* Until stop: nothing but memory is touched. */
static void hog(void *n)
{
    while (!GET(stop))
        turns[(long)n]++;
}

/* A loop mostly within malloc, with its lock held for large blocks. */
static void hog_malloc(void *n)
{
    while (!GET(stop)) {
        char *a = malloc(100), *b = malloc(300000);
        CHECK(a != NULL && b != NULL);
        *(volatile char *)a = *(volatile char *)b = 1;
        free(a);
        free(b);
        turns[(long)n]++;
    }
}

static void start_hogs(gs_fn fn, int n)
{
    long i;
    SET(stop, 0);
    for (i = 0; i < n; i++) {
        turns[i] = 0;
        go(fn, (void *)i);
    }
}

/* Waits until all other goroutines have ended. */
static void stop_hogs(void)
{
    SET(stop, 1);
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

/* Without preemption the first loop would never end. */
GO_TEST(a_loop_that_calls_nothing_keeps_no_goroutine_waiting)
{
    int i;
    start_hogs(hog, HOGS);
    for (i = 0; i < 50; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    stop_hogs();
}

static void stop_and_start_the_world(void *unused)
{
    (void)unused;
    while (!GET(stop)) {
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_start_the_world(), 0);
    }
}

/* Such a loop is in the library almost all of the time, where the signal does nothing. With 400 sleeps the watchdog ends
 * a test in which only a lucky signal preempts the loop. */
GO_TEST(a_loop_that_stops_the_world_keeps_no_goroutine_waiting)
{
    int i, procs = gs_gomaxprocs(1), sleeps = procs == 1 ? 400 : 20; /* the settings differ in their P's, unused here */
    start_hogs(stop_and_start_the_world, 1);
    for (i = 0; i < sleeps; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    stop_hogs();
    CHECK_EQ(gs_gomaxprocs(procs), 1);
}

static int answers[8];

static void call_and_hog(void *ch)
{
    gs_waitgroup wg = {0};
    gs_case odd = {.ch = ch, .op = 77}, receive = {.ch = ch, .op = GS_RECV};
    int i = 0, item = 1;
    answers[i++] = gs_chan_send(NULL, &item, GS_FOREVER);
    answers[i++] = gs_chan_send(ch, NULL, GS_FOREVER);
    answers[i++] = gs_chan_send(ch, &item, 0);
    answers[i++] = gs_chan_recv(NULL, &item, GS_FOREVER);
    answers[i++] = gs_chan_recv(ch, &item, gs_now() - 1);
    answers[i++] = gs_select(&odd, 1, GS_FOREVER);
    answers[i++] = gs_select(&receive, 1, 0);
    CHECK_EQ(gs_waitgroup_add(&wg, 1), 0);
    answers[i++] = gs_waitgroup_wait(&wg, gs_now() - 1);
    hog(0);
}

/* What returns at once lets go of the P as what has waited does. */
GO_TEST(a_loop_after_calls_that_have_failed_keeps_no_goroutine_waiting)
{
    static const int expected[] = {-EINVAL, -EINVAL,    -EAGAIN, -EINVAL,
                                   -ETIMEDOUT, -EINVAL, -EAGAIN, -ETIMEDOUT};
    gs_chan *ch = chan_of_ints(0);
    int i;
    start_hogs(hog, HOGS);
    go(call_and_hog, ch);
    WAIT_UNTIL(GET(answers[7]) != 0);
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    stop_hogs();
    for (i = 0; i < 8; i++)
        CHECK_EQ(answers[i], expected[i]);
    free_chan(ch);
}

GO_TEST(loops_that_call_nothing_take_turns)
{
    int i;
    start_hogs(hog, 16);
    for (i = 0; i < 16; i++)
        WAIT_UNTIL(GET(turns[i]) > 0);
    stop_hogs();
}

static gs_sem flood;

/* An event every 300 us: more often than the monitor thread looks at a P. */
static void *release_flood(void *arg)
{
    const struct timespec pause = {.tv_nsec = 300000};
    while (!GET(stop)) {
        CHECK_EQ(nanosleep(&pause, NULL), 0);
        CHECK_EQ(gs_sem_release(&flood, 1), 0);
    }
    return arg;
}

static void take_flood(void *arg)
{
    (void)arg;
    while (!GET(stop))
        CHECK_EQ(gs_sem_acquire(&flood, 1, GS_FOREVER), 0);
}

/* Holds a mutex for most of the time. A goroutine that waits for it blocks its thread. */
static void hog_mutex(void *n)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    while (!GET(stop)) {
        volatile int i;
        CHECK_EQ(pthread_mutex_lock(&mutex), 0);
        for (i = 0; i < 300000; i++)
            ;
        CHECK_EQ(pthread_mutex_unlock(&mutex), 0);
        turns[(long)n]++;
        for (i = 0; i < 30000; i++)
            ;
    }
}

/* Each event borrows a P from a loop and gives it back. The loops that wait for a P must not be forgotten meanwhile. */
static void loops_take_turns_beside_events(gs_fn fn)
{
    int i, round, n = gs_gomaxprocs(0) + 1;
    pthread_t t;

    CHECK(n <= (int)LENGTH(turns));
    CHECK_EQ(gs_sem_init(&flood, 0), 0);
    start_hogs(fn, n);
    go(take_flood, NULL);
    t = start_thread(release_flood, NULL);
    for (round = 0; round < 3; round++)
        for (i = 0; i < n; i++) {
            long before = GET(turns[i]);
            WAIT_UNTIL(GET(turns[i]) != before);
        }
    SET(stop, 1);
    go_join_thread(t);
    CHECK_EQ(gs_sem_release(&flood, 1), 0);
    stop_hogs();
}

GO_TEST(loops_take_turns_beside_a_flood_of_events)
{
    loops_take_turns_beside_events(hog);
}

GO_TEST(loops_that_block_on_a_mutex_take_turns_beside_a_flood_of_events)
{
    loops_take_turns_beside_events(hog_mutex);
}

#define SHORT_TURN 100000 /* ns */

/* How long the kernel's turns of a thread are, in ns; 0: Linux before 6.12, which doesn't say. */
static uint64_t turn_of(int tid)
{
    /* sched_attr(2), which glibc has from 2.41 on. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes};
    return syscall(SYS_sched_getattr, tid, &attributes, sizeof attributes, 0) == 0 ? attributes.runtime : 0;
}

/* How many of the library's threads for goroutines have short turns; `all`: how many there are. */
static int short_turns(int *all)
{
    int n = 0;
    DIR *threads = opendir("/proc/self/task");
    struct dirent *thread;
    CHECK(threads != NULL);
    *all = 0;
    while ((thread = readdir(threads)) != NULL) {
        char path[300], name[20] = "";
        FILE *f;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
        if ((f = fopen(path, "r")) == NULL)
            continue;
        if (fgets(name, sizeof name, f) && strcmp(name, "gosched\n") == 0) {
            ++*all;
            n += turn_of(atoi(thread->d_name)) == SHORT_TURN;
        }
        fclose(f);
    }
    closedir(threads);
    return n;
}

/* The kernel runs such a thread at once, although loops compute on all CPUs. */
GO_TEST(threads_that_serve_events_beside_loops_have_short_turns)
{
    int all;
    pthread_t t;
    if (turn_of(0) == 0)
        SKIP("this kernel knows no turns of threads (Linux before 6.12)");
    CHECK_EQ(gs_sem_init(&flood, 0), 0);
    start_hogs(hog, gs_gomaxprocs(0) + 1);
    go(take_flood, NULL);
    t = start_thread(release_flood, NULL);
    WAIT_UNTIL(short_turns(&all) > 0);
    SET(stop, 1);
    go_join_thread(t);
    CHECK_EQ(gs_sem_release(&flood, 1), 0);
    stop_hogs();
}

static void call_often(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        CHECK_EQ(gs_entersyscall(), 0);
        nap(200 * US);
        CHECK_EQ(gs_exitsyscall(), 0);
    }
}

/* With short turns they would take the CPU from the program that they talk to as soon as it has answered one of them. */
GO_TEST(threads_in_announced_calls_have_usual_turns)
{
    int i, all, n = 32;
    if (turn_of(0) == 0)
        SKIP("this kernel knows no turns of threads (Linux before 6.12)");
    SET(stop, 0);
    for (i = 0; i < n; i++)
        go(call_often, NULL);
    WAIT_UNTIL(((void)short_turns(&all), all >= n / 2));
    for (i = 0; i < 20; i++) {
        int found;
        CHECK_EQ(gs_sleep(10 * MS), 0);
        found = short_turns(&all);
        CHECK_LE(found, all / 2);
    }
    stop_hogs();
}

GO_TEST(a_loop_in_malloc_keeps_no_goroutine_waiting)
{
    int i;
    start_hogs(hog_malloc, HOGS);
    for (i = 0; i < 100; i++) {
        void *p = malloc(200000);
        CHECK(p != NULL);
        CHECK_EQ(gs_sleep(1 * MS), 0);
        free(p);
    }
    stop_hogs();
}

/* Everything that belongs to the interrupted code is as it was. */
static void compute(void *sum)
{
    double x = 1;
    long i, n = 0;
    int e = 0;
    errno = 77;
    for (i = 0; i < 60000000; i++) {
        x = x * 1.0000001 + 0.5 / (double)(i + 1);
        n += i & 7;
        e |= errno ^ 77;
    }
    CHECK_EQ(e, 0);
    CHECK_EQ(n, 210000000);
    *(double *)sum = x;
}

GO_TEST(what_is_interrupted_goes_on_as_if_nothing_had_been)
{
    double alone, sums[4] = {0, 0, 0, 0};
    gs_g *g[4];
    int i;
    compute(&alone);
    for (i = 0; i < 4; i++)
        g[i] = go_ref(compute, &sums[i]);
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    for (i = 0; i < 4; i++) {
        join(g[i]);
        CHECK(sums[i] == alone);
    }
}

/* It stays on its thread while it is away, and leaves when it next calls. */
static void same_thread(void *arg)
{
    pid_t me = thread_id();
    long i, n = *(long *)arg;
    for (i = 0; i < n; i++)
        CHECK_EQ(thread_id(), me);
}

GO_TEST(an_interrupted_goroutine_stays_on_its_thread)
{
    long n = 200000;
    int i;
    gs_g *g[HOGS];
    for (i = 0; i < HOGS; i++)
        g[i] = go_ref(same_thread, &n);
    for (i = 0; i < HOGS; i++)
        join(g[i]);
}

/* A goroutine that asks for it is left alone. */
static int order[2], place;

static void after(void *arg)
{
    (void)arg;
    order[1] = ADD(place, 1);
}

static void steady(void *arg)
{
    long i;
    (void)arg;
    gs_preempt_disable();
    gs_preempt_disable();
    gs_preempt_enable();
    go(after, NULL);
    for (i = 0; i < 100000000; i++)
        __asm__ volatile("");
    order[0] = ADD(place, 1);
    gs_preempt_enable();
}

static void end_with_preemption_off(void *arg)
{
    (void)arg;
    gs_preempt_disable();
}

/* The descriptors of those that have ended are used again. */
GO_TEST(a_goroutine_that_ends_with_preemption_off_leaves_it_to_no_other)
{
    int procs = gs_gomaxprocs(1), i;
    for (i = 0; i < 2 * HOGS; i++) {
        go(end_with_preemption_off, NULL);
        join(go_ref(end_with_preemption_off, NULL));
    }
    WAIT_UNTIL(gs_num_goroutines() == 1);
    start_hogs(hog, HOGS);
    for (i = 0; i < 5; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    stop_hogs();
    gs_gomaxprocs(procs);
}

GO_TEST(with_preemption_off_it_runs_to_its_end)
{
    int procs = gs_gomaxprocs(1);
    place = 0;
    join(go_ref(steady, NULL));
    WAIT_UNTIL(GET(place) == 2);
    CHECK_EQ(order[0], 1);
    CHECK_EQ(order[1], 2);
    CHECK_EQ(gs_gomaxprocs(procs), 1);
    /* A surplus one does nothing. */
    gs_preempt_enable();
}

/* ---- A goroutine that inherits a turn which has ended already ---- */

static gs_chan *baton;

static void hog_once_woken(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_chan_recv(baton, NULL, GS_FOREVER), 0);
    while (!GET(stop))
        ;
}

/* The P is asked to end the turn, the request is answered without effect, and the woken goroutine inherits the turn. */
static void outlast_its_slice_and_wake(void *arg)
{
    int64_t end = clock_now() + 30 * MS;
    (void)arg;
    while (clock_now() < end)
        ;
    gs_preempt_check();
    CHECK_EQ(gs_chan_send(baton, NULL, GS_FOREVER), 0);
}

GO_TEST(a_loop_that_inherits_an_unpreemptible_turn_keeps_no_sleeper_waiting)
{
    int procs = gs_gomaxprocs(1), i;
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_NOPREEMPT;
    SET(stop, 0);
    baton = gs_chan_make(0, 0);
    CHECK(baton != NULL);
    go(hog_once_woken, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_spawn_with(outlast_its_slice_and_wake, NULL, &o, NULL), 0);
    for (i = 0; i < 3; i++)
        CHECK_EQ(gs_sleep(100 * MS), 0);
    stop_hogs();
    gs_chan_free(baton);
    CHECK_EQ(gs_gomaxprocs(procs), 1);
}

/* ---- Goroutines that no signal stops ---- */

static void compute_unstopped(void *arg)
{
    volatile int i;
    (void)arg;
    go(after, NULL);
    for (i = 0; i < 100000000; i++)
        ;
    order[0] = ADD(place, 1);
}

static int unblocked;

static void block_unstopped(void *fds)
{
    char c = 0;
    CHECK_EQ(read(*(int *)fds, &c, 1), 1);
    gs_yield();
    SET(unblocked, 1);
}

GO_TEST(no_signal_stops_a_goroutine_that_wants_none_but_its_p_is_taken)
{
    int procs = gs_gomaxprocs(1), fds[2], i;
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    o.flags = GS_SPAWN_NOSIGNAL;
    place = 0;
    join(go_opts(compute_unstopped, NULL, &o));
    WAIT_UNTIL(GET(place) == 2);
    CHECK_EQ(order[0], 1);
    CHECK_EQ(order[1], 2);
    CHECK_EQ(pipe(fds), 0);
    unblocked = 0;
    g = go_opts(block_unstopped, fds, &o);
    /* The only P is not kept. */
    for (i = 0; i < 10; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(GET(unblocked), 0);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    join(g);
    CHECK_EQ(GET(unblocked), 1);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    CHECK_EQ(gs_gomaxprocs(procs), 1);
}

TEST(a_plain_thread_is_never_preempted)
{
    gs_preempt_disable();
    gs_preempt_check();
    gs_preempt_enable();
}

/* One load and a branch, and it gives way to whoever waits. */
static void polite(void *n)
{
    while (!GET(stop)) {
        gs_preempt_check();
        turns[(long)n]++;
    }
}

GO_TEST(a_loop_that_checks_gives_way)
{
    int i;
    start_hogs(polite, 8);
    for (i = 0; i < 8; i++)
        WAIT_UNTIL(GET(turns[i]) > 0);
    stop_hogs();
}

/* ---- Blocks that were not announced ---- */

static int pipes[64][2];
static int woken;

static void block_in_read(void *n)
{
    char c = 0;
    CHECK_EQ(read(pipes[(long)n][0], &c, 1), 1);
    CHECK_EQ(c, 'x');
    /* The first call after it: it needs a P again. */
    CHECK_EQ(gs_sleep(0), 0);
    ADD(woken, 1);
}

GO_TEST(goroutines_that_block_in_read_keep_no_p)
{
    long i;
    long n = 0;
    SET(woken, 0);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(pipe(pipes[i]), 0);
        go(block_in_read, (void *)i);
    }
    /* All of them are in read(2); others still run. */
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    start_hogs(hog, 1);
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    SET(stop, 1);
    n = GET(turns[0]);
    CHECK_GE(n, 1);
    for (i = 0; i < 64; i++)
        CHECK_EQ(write(pipes[i][1], "x", 1), 1);
    WAIT_UNTIL(GET(woken) == 64);
    for (i = 0; i < 64; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock_and_unlock(void *arg)
{
    (void)arg;
    CHECK_EQ(pthread_mutex_lock(&mutex), 0);
    CHECK_EQ(pthread_mutex_unlock(&mutex), 0);
    ADD(woken, 1);
}

static void lock_and_sleep(void *arg)
{
    (void)arg;
    CHECK_EQ(pthread_mutex_lock(&mutex), 0);
    nap(20 * MS);
    CHECK_EQ(pthread_mutex_unlock(&mutex), 0);
    ADD(woken, 1);
}

GO_TEST(a_pthread_mutex_and_nanosleep_block_threads_only)
{
    int i;
    SET(woken, 0);
    for (i = 0; i < 4; i++) {
        go(lock_and_sleep, NULL);
        go(lock_and_unlock, NULL);
    }
    WAIT_UNTIL(GET(woken) == 8);
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

static void flock_it(void *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_GE(fd, 0);
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(gs_sleep(2 * MS), 0);
    CHECK_EQ(flock(fd, LOCK_UN), 0);
    close(fd);
    ADD(woken, 1);
}

GO_TEST(file_locks_are_waited_for_by_threads_only)
{
    char path[] = "/tmp/gosched-preempt-XXXXXX";
    int fd = mkstemp(path), i;
    CHECK_GE(fd, 0);
    SET(woken, 0);
    for (i = 0; i < 4; i++)
        go(flock_it, path);
    WAIT_UNTIL(GET(woken) == 4);
    close(fd);
    unlink(path);
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

/* Timers go on when every thread is blocked. */
static void block_announced(void *n)
{
    char c;
    CHECK_EQ(gs_entersyscall(), 0);
    CHECK_EQ(read(pipes[(long)n][0], &c, 1), 1);
    CHECK_EQ(gs_exitsyscall(), 0);
    ADD(woken, 1);
}

GO_TEST(timers_fire_though_every_thread_is_blocked)
{
    long i;
    SET(woken, 0);
    for (i = 0; i < 32; i++) {
        CHECK_EQ(pipe(pipes[i]), 0);
        go(i % 2 ? block_announced : block_in_read, (void *)i);
    }
    CHECK_EQ(gs_sleep(150 * MS), 0);
    for (i = 0; i < 32; i++)
        CHECK_EQ(write(pipes[i][1], "x", 1), 1);
    WAIT_UNTIL(GET(woken) == 32);
    for (i = 0; i < 32; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

/* ---- The signal ---- */

static int caught;

static void on_signal(int sig)
{
    (void)sig;
    ADD(caught, 1);
}

static void on_alarm_thread(int sig)
{
    (void)sig;
    /* On a thread of the host's: those of the library let no other signal in. */
    ADD(caught, thread_id() == getpid() ? 1 : 1000);
}

TEST(handlers_of_the_host_run_on_its_threads)
{
    struct sigaction sa;
    int i;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_alarm_thread;
    SET(caught, 0);
    CHECK_EQ(sigaction(SIGALRM, &sa, NULL), 0);
    start_hogs(hog, 4);
    for (i = 0; i < 20; i++) {
        CHECK_EQ(kill(getpid(), SIGALRM), 0);
        nap(1 * MS);
    }
    SET(stop, 1);
    NAP_UNTIL(gs_num_goroutines() == 0);
    CHECK_GE(GET(caught), 1);
    CHECK_LE(GET(caught), 20);
}

CHILD(the_hosts_handler_gets_what_others_send)
{
    struct sigaction sa;
    int i;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_signal;
    CHECK_EQ(sigaction(SIGURG, &sa, NULL), 0);
    start_hogs(hog, 8);
    for (i = 0; i < 30; i++)
        nap(1 * MS);
    /* Preemption's own signals don't get there. */
    CHECK_EQ(GET(caught), 0);
    CHECK_EQ(kill(getpid(), SIGURG), 0);
    NAP_UNTIL(GET(caught) == 1);
    SET(stop, 1);
    NAP_UNTIL(gs_num_goroutines() == 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    puts("passed on");
}

TEST(a_host_may_use_the_signal_too)
{
    struct outcome out;
    run_child("the_hosts_handler_gets_what_others_send", &out);
    CHECK_HAS(out.text, "passed on");
}

static void init_with(int signal, uint32_t flags)
{
    gs_config c = GS_CONFIG_INIT;
    c.preempt_signal = signal;
    c.flags = flags;
    c.time_slice_ns = 1 * MS;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_init(&c), 0);
}

TEST(the_signal_can_be_another)
{
    int i;
    init_with(SIGUSR2, 0);
    start_hogs(hog, 8);
    for (i = 0; i < 8; i++)
        NAP_UNTIL(GET(turns[i]) > 0);
    SET(stop, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* At the limit of threads each one may wait in the handler: the P goes to one of them. */
TEST(loops_take_turns_at_the_limit_of_threads)
{
    gs_config c = GS_CONFIG_INIT;
    int i;
    c.max_threads = 3;
    c.time_slice_ns = 1 * MS;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_init(&c), 0);
    start_hogs(hog, 3);
    for (i = 0; i < 20; i++) {
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_start_the_world(), 0);
        nap(1 * MS);
    }
    for (i = 0; i < 3; i++)
        NAP_UNTIL(GET(turns[i]) > 0);
    SET(stop, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* A goroutine that has lost its P in a block, and computes after it. */
enum { BLOCKS = 1, COMPUTES, IS_SEEN };
static int stage, counter, wakes[2];
static long counted;

static void block_and_compute(void *arg)
{
    char c;
    (void)arg;
    do {
        SET(counter, gettid());
        SET(stage, BLOCKS);
        CHECK_EQ(read(wakes[0], &c, 1), 1);
        SET(stage, COMPUTES);
        while (GET(stage) == COMPUTES)
            ADD(counted, 1);
        gs_yield();
    } while (!GET(stop));
}

static bool is_read(void)
{
    int left;
    CHECK_EQ(ioctl(wakes[0], FIONREAD, &left), 0);
    return left == 0;
}

static void wait_until_it_has_lost_its_p(void)
{
    NAP_UNTIL(GET(stage) == BLOCKS && thread_state(GET(counter)) == 'S');
    nap(5 * MS);
}

/* Ends its block, and waits until its thread sleeps again. */
static void come_back_beside_the_stopped_world(void)
{
    CHECK_EQ(write(wakes[1], "c", 1), 1);
    NAP_UNTIL(is_read() && thread_state(GET(counter)) == 'S');
}

/* Gives how far it has counted. */
static long check_it_stands_still(void)
{
    long before = GET(counted);
    nap(20 * MS);
    CHECK_EQ(GET(counted), before);
    return before;
}

static void stop_beside_a_goroutine_without_p(void)
{
    int i, rounds = 10;
    SET(stop, 0);
    CHECK_EQ(pipe2(wakes, O_CLOEXEC), 0);
    go(block_and_compute, NULL);
    for (i = 0; i < rounds; i++) {
        bool computes = i % 2 == 0;
        wait_until_it_has_lost_its_p();
        if (computes) {
            CHECK_EQ(write(wakes[1], "c", 1), 1);
            NAP_UNTIL(GET(stage) == COMPUTES);
        }
        CHECK_EQ(gs_stop_the_world(), 0);
        if (!computes) {
            /* It comes back beside the stopped world, and is stopped soon. */
            come_back_beside_the_stopped_world();
        }
        (void)check_it_stands_still();
        CHECK_EQ(gs_start_the_world(), 0);
        NAP_UNTIL(GET(stage) == COMPUTES);
        SET(stop, i == rounds - 1);
        SET(stage, IS_SEEN);
    }
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(close(wakes[0]), 0);
    CHECK_EQ(close(wakes[1]), 0);
}

TEST(a_goroutine_without_p_stops_with_the_world)
{
    stop_beside_a_goroutine_without_p();
}

/* There a thread that another one checks is never on the CPU. */
CHILD(a_goroutine_without_p_on_one_cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    stop_beside_a_goroutine_without_p();
}
TEST(a_goroutine_without_p_stops_with_the_world_on_one_cpu)
{
    check_child_succeeds("a_goroutine_without_p_on_one_cpu");
}

/* On all threads, those of the library included. */
static void refuse_membarrier(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {LENGTH(code), code};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter), 0);
}

static pid_t reader;
static int others;

static void run_beside_it(void *arg)
{
    (void)arg;
    SET(others, 1);
}

/*
 * The other goroutine comes when the reader is blocked, and is looked for before the reader is woken: a reader that
 * waits for a CPU may lose its P to the signal.
 */
static void *write_later(void *fd)
{
    wait_asleep(&reader);
    go(run_beside_it, NULL);
    nap(100 * MS);
    CHECK_EQ(GET(others), 0);
    CHECK_EQ(write((int)(intptr_t)fd, "w", 1), 1);
    return NULL;
}

static void block_with_the_only_p(void *arg)
{
    int fds[2];
    char c;
    pthread_t t;
    (void)arg;
    (void)gs_gomaxprocs(1);
    CHECK_EQ(pipe(fds), 0);
    t = start_thread(write_later, (void *)(intptr_t)fds[1]);
    SET(reader, thread_id());
    CHECK_EQ(read(fds[0], &c, 1), 1);
    YIELD_UNTIL(GET(others));
    go_join_thread(t);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
}

/* Without the barrier the thread that takes a P could miss that its M has come back. */
CHILD(no_p_is_taken_once_membarrier_is_refused)
{
    (void)gs_gomaxprocs(0);
    refuse_membarrier();
    CHECK_EQ(gs_run(block_with_the_only_p, NULL), 0);
}
TEST(a_filter_that_comes_later_may_refuse_membarrier)
{
    check_child_succeeds("no_p_is_taken_once_membarrier_is_refused");
}

static void block_and_compute_undisturbed(void *arg)
{
    char c;
    (void)arg;
    do {
        SET(counter, gettid());
        SET(stage, BLOCKS);
        CHECK_EQ(read(wakes[0], &c, 1), 1);
        gs_preempt_disable();
        while (GET(stage) == BLOCKS)
            ADD(counted, 1);
        gs_preempt_enable();
    } while (!GET(stop));
}

/* It comes back beside the stopped world, and would not be stopped by a signal from its first call on. */
TEST(a_goroutine_without_p_that_disables_preemption_stops_with_the_world)
{
    int i, rounds = 10;
    SET(stop, 0);
    SET(stage, IS_SEEN);
    CHECK_EQ(pipe2(wakes, O_CLOEXEC), 0);
    go(block_and_compute_undisturbed, NULL);
    for (i = 0; i < rounds; i++) {
        long before;
        wait_until_it_has_lost_its_p();
        CHECK_EQ(gs_stop_the_world(), 0);
        come_back_beside_the_stopped_world();
        before = check_it_stands_still();
        CHECK_EQ(gs_start_the_world(), 0);
        NAP_UNTIL(GET(counted) > before);
        SET(stop, i == rounds - 1);
        SET(stage, IS_SEEN);
    }
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(close(wakes[0]), 0);
    CHECK_EQ(close(wakes[1]), 0);
}

static int running, most;

static void one_at_a_time(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 5; i++) {
        int64_t end = clock_now() + 3 * MS;
        int now = ADD(running, 1);
        if (now > GET(most))
            SET(most, now);
        while (clock_now() < end)
            ;
        nap(3 * MS);
        ADD(running, -1);
        gs_yield();
    }
}

TEST(in_cooperative_mode_only_calls_switch)
{
    int i;
    init_with(0, GS_CONFIG_COOPERATIVE);
    (void)gs_gomaxprocs(1);
    SET(most, 0);
    for (i = 0; i < 4; i++)
        go(one_at_a_time, NULL);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(GET(most), 1);
}

TEST(a_config_that_makes_no_sense_is_refused)
{
    gs_config c = GS_CONFIG_INIT;
    int bad[] = {-2, SIGKILL, SIGSTOP, SIGSEGV, 33, 100000};
    size_t i;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    for (i = 0; i < LENGTH(bad); i++) {
        c.preempt_signal = bad[i];
        CHECK_EQ(gs_init(&c), -EINVAL);
    }
    c.preempt_signal = 0;
    c.time_slice_ns = 99999;
    CHECK_EQ(gs_init(&c), -EINVAL);
    c.time_slice_ns = UINT64_MAX;
    CHECK_EQ(gs_init(&c), -EINVAL);
    c.time_slice_ns = 0;
    c.flags = 16;
    CHECK_EQ(gs_init(&c), -EINVAL);
    c.flags = 0;
    c.preempt_signal = -1;
    CHECK_EQ(gs_init(&c), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}
