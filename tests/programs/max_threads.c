/*
 * gs_set_max_threads: at the limit work waits, and the process is never aborted.
 * seed: B6 (10,000 threads by default, settable), S11 (throttled creation of threads)
 */
#include "check.h"

/* Threads beside the limited ones: the main thread, sysmon, the inspector and the template thread, which sysmon starts
 * when a goroutine computes for long (on a busy machine any may seem to), and a thread that is just ending. */
#define BESIDE 5

static long most_threads, done;

static void note_threads(void)
{
    long now = count_threads(), seen = GET(most_threads);
    while (now > seen &&
           !__atomic_compare_exchange_n(&most_threads, &seen, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

/* ---- Asking and setting ---- */

GO_TEST(it_gives_the_former_limit)
{
    int limit = gs_set_max_threads(0);
    if (!getenv("GOSCHED_MAX_THREADS"))
        CHECK_EQ(limit, 10000);
    CHECK_EQ(gs_set_max_threads(-1), limit);
    CHECK_EQ(gs_set_max_threads(INT_MIN), limit);
    CHECK_EQ(gs_set_max_threads(500), limit);
    CHECK_EQ(gs_set_max_threads(0), 500);
    CHECK_EQ(gs_set_max_threads(limit), 500);
    CHECK_EQ(gs_set_max_threads(0), limit);
}

TEST(a_plain_thread_can_set_it)
{
    int limit = gs_set_max_threads(700);
    CHECK_EQ(gs_set_max_threads(limit), 700);
}

TEST(the_config_sets_it)
{
    gs_config c;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.max_threads = 123;
    CHECK_EQ(gs_init(&c), 0);
    CHECK_EQ(gs_set_max_threads(0), 123);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- At the limit, each in a process of its own, so that no thread is there before ---- */

static void start_with_limit(unsigned limit)
{
    gs_config c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.max_threads = limit;
    CHECK_EQ(gs_init(&c), 0);
}

static void *block_a_while(void *arg)
{
    note_threads();
    nap(2 * MS);
    return arg;
}

static void block_in_gs_blocking(void *arg)
{
    (void)gs_blocking(block_a_while, arg);
    ADD(done, 1);
}

static void block_in_syscall(void *arg)
{
    gs_entersyscallblock();
    (void)block_a_while(arg);
    gs_exitsyscall();
    ADD(done, 1);
}

static void block_locked(void *arg)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
    note_threads();
    CHECK_EQ(gs_sleep(MS), 0);
    gs_yield();
    CHECK_EQ(gs_unlock_os_thread(), 0);
    ADD(done, 1);
    (void)arg;
}

static void forty_of(gs_fn fn)
{
    int i;
    start_with_limit(4);
    for (i = 0; i < 40; i++)
        go(fn, NULL);
    NAP_UNTIL(GET(done) == 40);
    CHECK_LE(GET(most_threads), 4 + BESIDE);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    _exit(0);
}

CHILD(forty_in_gs_blocking_with_four_threads)
{
    forty_of(block_in_gs_blocking);
}

CHILD(forty_in_system_calls_with_four_threads)
{
    forty_of(block_in_syscall);
}

CHILD(forty_locked_with_four_threads)
{
    forty_of(block_locked);
}

TEST(at_the_limit_work_waits)
{
    check_child_succeeds("forty_in_gs_blocking_with_four_threads");
    check_child_succeeds("forty_in_system_calls_with_four_threads");
    check_child_succeeds("forty_locked_with_four_threads");
}

/* One warning, however often the limit is met. */
TEST(at_the_limit_there_is_one_warning)
{
    struct outcome out;
    const char *p;
    int lines = 0;
    run_child("forty_in_gs_blocking_with_four_threads", &out);
    CHECK(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 0);
    for (p = out.text; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    if (lines > 1)
        failed(__FILE__, __LINE__, "more than one line", out.text);
}

/* The limit may be lower than what there is already, or than GOMAXPROCS. */
CHILD(a_limit_of_one)
{
    int i;
    start_with_limit(1);
    for (i = 0; i < 20; i++)
        go(block_in_gs_blocking, NULL);
    NAP_UNTIL(GET(done) == 20);
    _exit(0);
}

static void run_some(void *arg)
{
    gs_g *gs[20];
    int i;
    (void)arg;
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(block_in_gs_blocking, NULL);
    for (i = 0; i < 20; i++)
        join(gs[i]);
}

CHILD(a_limit_of_one_in_run)
{
    start_with_limit(1);
    CHECK_EQ(gs_run(run_some, NULL), 0);
    CHECK_EQ(done, 20);
    _exit(0);
}

CHILD(a_limit_that_comes_late)
{
    gs_g *gs[20];
    int i;
    start_with_limit(100);
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(block_in_gs_blocking, NULL);
    CHECK_EQ(gs_set_max_threads(3), 100);
    for (i = 0; i < 20; i++)
        join(gs[i]);
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(block_locked, NULL);
    for (i = 0; i < 20; i++)
        join(gs[i]);
    CHECK_EQ(done, 40);
    _exit(0);
}

TEST(a_very_low_limit_stops_nothing_for_good)
{
    check_child_succeeds("a_limit_of_one");
    check_child_succeeds("a_limit_of_one_in_run");
    check_child_succeeds("a_limit_that_comes_late");
}

/* Raising the limit lets what waits go on: these hold all threads until one more has come. */
static int here;

static void *wait_for_the_fifth(void *arg)
{
    ADD(here, 1);
    NAP_UNTIL(GET(here) >= 5);
    return arg;
}

static void hold_a_thread(void *arg)
{
    (void)gs_blocking(wait_for_the_fifth, arg);
    ADD(done, 1);
}

CHILD(a_limit_that_is_raised)
{
    int i;
    start_with_limit(3);
    for (i = 0; i < 5; i++)
        go(hold_a_thread, NULL);
    nap(20 * MS);
    CHECK_EQ(GET(done), 0);
    CHECK_EQ(gs_set_max_threads(50), 3);
    NAP_UNTIL(GET(done) == 5);
    _exit(0);
}

/* All three lock a thread of their own before any of them ends, and at first only one may. */
static void lock_beside_two_others(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    ADD(here, 1);
    WAIT_UNTIL(GET(here) == 3);
    CHECK_EQ(gs_unlock_os_thread(), 0);
    ADD(done, 1);
}

CHILD(a_limit_that_is_raised_for_those_that_lock)
{
    int i;
    start_with_limit(2);
    for (i = 0; i < 3; i++)
        go(lock_beside_two_others, NULL);
    NAP_UNTIL(GET(here) == 1);
    nap(20 * MS);
    CHECK_EQ(GET(here), 1);
    CHECK_EQ(gs_set_max_threads(50), 2);
    NAP_UNTIL(GET(done) == 3);
    _exit(0);
}

static void lock_and_sleep(void *arg)
{
    (void)arg;
    gs_lock_os_thread();
    CHECK_EQ(gs_sleep(MS), 0);
}

static void join_one_that_locks(void *arg)
{
    (void)arg;
    join(go_ref(lock_and_sleep, NULL));
}

/* A locked thread fires no timers: another one does, even if only one is allowed. */
TEST(the_only_thread_may_be_locked)
{
    gs_config cfg = GS_CONFIG_INIT;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    cfg.max_threads = 1;
    CHECK_EQ(gs_init(&cfg), 0);
    CHECK_EQ(gs_run(join_one_that_locks, NULL), 0);
    join_one_that_locks(NULL);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

static int call_pipe[2];

static void read_in_a_call(void *arg)
{
    char b;
    (void)arg;
    gs_entersyscall();
    CHECK_EQ(read(call_pipe[0], &b, 1), 1);
    gs_exitsyscall();
}

static void write_in_a_call(void *arg)
{
    (void)arg;
    gs_entersyscall();
    CHECK_EQ(write(call_pipe[1], "x", 1), 1);
    gs_exitsyscall();
}

static void join_both_ends(void *arg)
{
    gs_g *reader = go_ref(read_in_a_call, NULL);
    (void)arg;
    CHECK_EQ(gs_sleep(10 * MS), 0);
    join(go_ref(write_in_a_call, NULL));
    join(reader);
}

/* The only thread of the library's own waits in a call for what a goroutine on gs_run's thread is to do, in a call too. */
TEST(at_the_limit_a_call_begins_on_the_thread_of_gs_run)
{
    gs_config cfg = GS_CONFIG_INIT;
    int i;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    cfg.max_threads = 1;
    CHECK_EQ(gs_init(&cfg), 0);
    CHECK_EQ(pipe(call_pipe), 0);
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_run(join_both_ends, NULL), 0);
    close(call_pipe[0]);
    close(call_pipe[1]);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(raising_the_limit_lets_waiting_work_go_on)
{
    check_child_succeeds("a_limit_that_is_raised");
    check_child_succeeds("a_limit_that_is_raised_for_those_that_lock");
}
