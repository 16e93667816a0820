/*
 * Goroutines that are bound to a thread: pinned goroutines beside a goroutine which locks the thread, and threads
 * that gs_run borrows and gives back. seed: S9
 */
#include "check.h"

static gs_g *go_pinned(gs_fn fn, void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.flags = GS_SPAWN_PINNED;
    return go_opts(fn, arg, &opts);
}

/* ---- A pinned goroutine locks its thread and waits for another goroutine that is pinned there ---- */

static gs_mutex mutex;
static int in_it;

static void hold_and_yield(void *arg)
{
    pid_t thread = thread_id();
    int i;
    (void)arg;
    for (i = 0; i < 5; i++) {
        CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
        CHECK_EQ(ADD(in_it, 1), 1);
        gs_yield();
        ADD(in_it, -1);
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
        gs_yield();
        CHECK_EQ(thread_id(), thread);
    }
}

static void lock_thread_and_hold(void *arg)
{
    pid_t thread = thread_id();
    gs_yield();
    gs_lock_os_thread();
    CHECK_EQ(thread_id(), thread);
    hold_and_yield(arg);
    gs_unlock_os_thread();
    CHECK_EQ(thread_id(), thread);
}

GO_TEST(pinned_goroutines_run_while_one_that_locked_their_thread_waits)
{
    gs_g *gs[24];
    int round, i;
    for (round = 0; round < 10; round++) {
        for (i = 0; i < 24; i++)
            gs[i] = go_pinned(i % 4 == 0 ? lock_thread_and_hold : hold_and_yield, NULL);
        for (i = 0; i < 24; i++)
            join(gs[i]);
    }
}

/* With one P, so that all of them meet on few threads, beside others that want the P. */
static int stop;

static void keep_yielding(void *arg)
{
    (void)arg;
    YIELD_UNTIL(GET(stop));
}

GO_TEST(pinned_goroutines_and_a_locked_one_share_a_p_with_others)
{
    int procs = gs_gomaxprocs(1), i;
    gs_g *gs[24], *others[3];
    SET(stop, 0);
    for (i = 0; i < 3; i++)
        others[i] = go_ref(keep_yielding, NULL);
    for (i = 0; i < 24; i++)
        gs[i] = go_pinned(i % 3 == 0 ? lock_thread_and_hold : hold_and_yield, NULL);
    for (i = 0; i < 24; i++)
        join(gs[i]);
    SET(stop, 1);
    for (i = 0; i < 3; i++)
        join(others[i]);
    gs_gomaxprocs(procs);
}

/* Those that have the P for themselves leave it to the others now and then. */
static void yield_until_stopped(void *arg)
{
    gs_lock_os_thread();
    keep_yielding(arg);
    gs_unlock_os_thread();
}

static void set_stop(void *arg)
{
    (void)arg;
    SET(stop, 1);
}

GO_TEST(locked_and_pinned_goroutines_that_yield_keep_no_goroutine_waiting)
{
    int procs = gs_gomaxprocs(1), i;
    gs_g *gs[6];
    SET(stop, 0);
    for (i = 0; i < 6; i++)
        gs[i] = go_pinned(i < 2 ? yield_until_stopped : keep_yielding, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    go(set_stop, NULL);
    for (i = 0; i < 6; i++)
        join(gs[i]);
    gs_gomaxprocs(procs);
}

/* ---- What is bound to a thread outlives gs_run ---- */

static int began, moved;

static void sleep_and_look(pid_t thread)
{
    ADD(began, 1);
    CHECK_EQ(gs_sleep(3 * MS), 0);
    if (thread_id() != thread)
        SET(moved, 1);
}

static void sleep_pinned(void *arg)
{
    (void)arg;
    sleep_and_look(thread_id());
}

static void sleep_locked(void *arg)
{
    (void)arg;
    gs_lock_os_thread();
    sleep_and_look(thread_id());
}

static gs_g *bound[2];

static void leave_two_behind(void *arg)
{
    (void)arg;
    bound[0] = go_pinned(sleep_pinned, NULL);
    bound[1] = go_ref(sleep_locked, NULL);
    while (GET(began) < 2)
        (void)gs_sleep(100 * US);
}

static void leave_two_behind_in_run(int max_threads)
{
    gs_config config = GS_CONFIG_INIT;
    config.max_threads = (uint32_t)max_threads;
    SET(began, 0);
    SET(moved, 0);
    CHECK_EQ(gs_init(&config), 0);
    CHECK_EQ(gs_run(leave_two_behind, NULL), 0);
    join(bound[0]);
    join(bound[1]);
    CHECK_EQ(moved, 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

CHILD(bound_goroutines_with_one_thread)
{
    leave_two_behind_in_run(1);
}

CHILD(bound_goroutines_with_two_threads)
{
    leave_two_behind_in_run(2);
}

static void *fork_until_stopped(void *arg)
{
    while (!GET(stop)) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child > 0)
            CHECK_EQ(waitpid(child, NULL, 0), child);
    }
    return arg;
}

/* No thread can be made while another forks: it must not be the borrowed one then. */
CHILD(bound_goroutines_while_another_thread_forks)
{
    pthread_t forks;
    int i;
    SET(stop, 0);
    forks = start_thread(fork_until_stopped, NULL);
    for (i = 0; i < 60; i++)
        leave_two_behind_in_run(0);
    SET(stop, 1);
    join_thread(forks);
}

TEST(what_is_bound_to_a_thread_outlives_gs_run)
{
    check_child_succeeds("bound_goroutines_with_one_thread");
    check_child_succeeds("bound_goroutines_with_two_threads");
}

TEST(what_is_bound_to_a_thread_outlives_gs_run_beside_forks)
{
    check_child_succeeds("bound_goroutines_while_another_thread_forks");
}

/* Several threads lend themselves, each with all kinds of goroutines, below every limit. */
static void *block_for_a_moment(void *arg)
{
    nap(300 * US);
    return arg;
}

static void block_in_gs_blocking(void *arg)
{
    (void)gs_blocking(block_for_a_moment, arg);
}

static void run_all_kinds(void *arg)
{
    gs_g *gs[4];
    int i;
    (void)arg;
    gs_lock_os_thread();
    gs[0] = go_pinned(sleep_pinned, NULL);
    gs[1] = go_ref(sleep_locked, NULL);
    gs[2] = go_ref(block_in_gs_blocking, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    gs_unlock_os_thread();
    gs[3] = go_pinned(sleep_pinned, NULL);
    for (i = 0; i < 4; i++)
        join(gs[i]);
}

static void *lend_thread(void *arg)
{
    int i;
    for (i = 0; i < 8; i++)
        CHECK_EQ(gs_run(run_all_kinds, NULL), 0);
    return arg;
}

CHILD(four_borrowed_threads_with_a_limit_of_three)
{
    gs_config config = GS_CONFIG_INIT;
    pthread_t threads[4];
    int i;
    config.max_threads = 3;
    CHECK_EQ(gs_init(&config), 0);
    for (i = 0; i < 4; i++)
        threads[i] = start_thread(lend_thread, NULL);
    for (i = 0; i < 4; i++)
        join_thread(threads[i]);
    CHECK_EQ(moved, 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(borrowed_threads_do_not_count_against_the_limit)
{
    check_child_succeeds("four_borrowed_threads_with_a_limit_of_three");
}
