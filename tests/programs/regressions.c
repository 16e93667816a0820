/*
 * What once went wrong, in the smallest form that shows it; each test says what it was.
 */
#include "check.h"

static void nothing(void *arg)
{
    (void)arg;
}

static void count(void *n)
{
    ADD(*(long *)n, 1);
}

/* The next goroutine with the same descriptor was taken to be locked already. */
static void end_locked(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
}

static void unlock_without_lock(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
}

GO_TEST(one_that_ends_locked_leaves_no_lock_behind)
{
    long n = 0;
    int i;
    for (i = 0; i < 20; i++)
        go(end_locked, NULL);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    for (i = 0; i < 200; i++)
        go(unlock_without_lock, NULL);
    for (i = 0; i < 20; i++)
        go(count, &n);
    WAIT_UNTIL(GET(n) == 20);
}

/* It crashed. */
static void end_in_system_call(void *n)
{
    CHECK_EQ(gs_entersyscall(), 0);
    CHECK_EQ(gs_entersyscall(), 0);
    ADD(*(long *)n, 1);
}

GO_TEST(one_may_end_in_a_system_call)
{
    long n = 0;
    int i;
    for (i = 0; i < 20; i++)
        go(i % 2 ? end_in_system_call : count, &n);
    WAIT_UNTIL(GET(n) == 20);
}

/* shutdown waited for a gs_run that waited for a thread that waited for the shutdown. */
static gs_chan *line;
static int stop;
static long runs;

static void receive_one(void *arg)
{
    (void)arg;
    (void)recv_int(line);
}

static void *run_again_and_again(void *arg)
{
    while (GET(runs) < 2000) {
        CHECK_EQ(gs_run(receive_one, NULL), 0);
        ADD(runs, 1);
    }
    SET(stop, 1);
    return arg;
}

static void *shut_down_again_and_again(void *arg)
{
    while (!GET(stop)) {
        int r = gs_shutdown(gs_after_ms(1));
        CHECK(r == 0 || r == -ETIMEDOUT);
    }
    return arg;
}

TEST(shutdown_does_not_stand_in_the_way_of_what_it_waits_for)
{
    pthread_t runner, shutter;
    int64_t v = 1;
    SET(stop, 0);
    line = chan_of_ints(0);
    runner = start_thread(run_again_and_again, NULL);
    shutter = start_thread(shut_down_again_and_again, NULL);
    while (!GET(stop))
        (void)gs_chan_send(line, &v, gs_after_ms(1));
    join_thread(runner);
    join_thread(shutter);
    free_chan(line);
}

/* They looked at a runtime that was being freed. Later they kept the shutdown from its end on a busy machine, by going
 * in and out while they waited for it. */
static void *look_again_and_again(void *arg)
{
    while (!GET(stop)) {
        ADD(*(long *)arg, 1);
        gs_timer *t = gs_timer_start(3600 * SEC, nothing, NULL);
        CHECK_LE(gs_num_goroutines(), 1000);
        CHECK_EQ(gs_timer_free(t), 0);
    }
    return arg;
}

TEST(calls_at_the_moment_of_a_shutdown_are_safe)
{
    pthread_t t[3];
    long looks[3] = {0};
    int i, k;
    SET(stop, 0);
    for (i = 0; i < 3; i++)
        t[i] = start_thread(look_again_and_again, &looks[i]);
    /* However often the runtime ends, all of them find one. */
    for (k = 0; k < 100 || GET(looks[0]) < 100 || GET(looks[1]) < 100 || GET(looks[2]) < 100; k++) {
        go(nothing, NULL);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    }
    SET(stop, 1);
    for (i = 0; i < 3; i++)
        join_thread(t[i]);
}

/* It waited without end. */
static void sleep_long(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(200 * MS), 0);
}

TEST(a_negative_deadline_of_shutdown_has_passed)
{
    go(sleep_long, NULL);
    CHECK_EQ(gs_shutdown(-2), -ETIMEDOUT);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* A writer that gave up just when it was to be let in took the place of the next one. */
static gs_rwmutex rw;
static int64_t deadline;

static void write_with_deadline(void *wg)
{
    if (gs_rwmutex_lock(&rw, deadline) == 0)
        CHECK_EQ(gs_rwmutex_unlock(&rw), 0);
    CHECK_EQ(gs_waitgroup_done(wg), 0);
}

static void write_at_last(void *wg)
{
    CHECK_EQ(gs_rwmutex_lock(&rw, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_unlock(&rw), 0);
    CHECK_EQ(gs_waitgroup_done(wg), 0);
}

GO_TEST(a_writer_that_gives_up_does_not_hide_the_next)
{
    gs_waitgroup wg = {0};
    int64_t end = clock_now() + 300 * MS, shift = 0;
    while (clock_now() < end) {
        CHECK_EQ(gs_rwmutex_rlock(&rw, GS_FOREVER), 0);
        CHECK_EQ(gs_waitgroup_add(&wg, 2), 0);
        deadline = gs_after_us(25);
        go(write_at_last, &wg);
        go(write_with_deadline, &wg);
        gs_yield();
        shift = (shift + 37) % 4000;
        while (clock_now() < deadline + shift - 2000)
            ;
        CHECK_EQ(gs_rwmutex_runlock(&rw), 0);
        CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    }
}

/* A pinned goroutine was lost when another one locked its thread and ended so. */
static long turns;

static void take_turns(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        gs_yield();
        ADD(turns, 1);
    }
}

static void lock_and_take_turns(void *arg)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
    take_turns(arg);
}

GO_TEST(pinned_and_locked_goroutines_do_not_share_a_thread)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *pinned, *other;
    int i;
    for (i = 0; i < 20; i++) {
        SET(stop, 0);
        o.flags = GS_SPAWN_PINNED;
        pinned = go_opts(take_turns, NULL, &o);
        go(take_turns, NULL);
        other = go_ref(lock_and_take_turns, NULL);
        CHECK_EQ(gs_sleep(MS), 0);
        SET(stop, 1);
        join(other);
        join(pinned);
    }
}

/* The choice of select leaned to some cases, on plain threads most. */
static void choose(void)
{
    enum { CASES = 3, ROUNDS = 30000 };
    gs_chan *ch[CASES];
    gs_case cases[CASES];
    long chosen[CASES] = {0};
    int64_t v = 0;
    int i, k;
    for (i = 0; i < CASES; i++) {
        ch[i] = chan_of_ints(1);
        send_int(ch[i], 1);
    }
    for (k = 0; k < ROUNDS; k++) {
        for (i = 0; i < CASES; i++)
            cases[i] = recv_case(ch[i], &v);
        i = gs_select(cases, CASES, GS_FOREVER);
        CHECK(i >= 0 && i < CASES);
        chosen[i]++;
        send_int(ch[i], 1);
    }
    for (i = 0; i < CASES; i++) { /* seven standard deviations */
        CHECK_GE(chosen[i], ROUNDS / CASES - 600);
        CHECK_LE(chosen[i], ROUNDS / CASES + 600);
        free_chan(ch[i]);
    }
}

GO_TEST(select_is_fair_in_a_goroutine)
{
    choose();
}

TEST(select_is_fair_on_a_plain_thread)
{
    choose();
}

/* The child found the table of keys locked by a thread that it didn't have. */
static gs_key key;

static void *set_values(void *arg)
{
    while (!GET(stop))
        CHECK_EQ(gs_setspecific(key, arg), 0);
    return arg;
}

static void wait_for_child(pid_t child)
{
    int status = 0;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(a_fork_leaves_no_lock_behind)
{
    pthread_t t;
    int i;
#ifndef __GLIBC__
    /* The thread may be about to register its destructors with musl for the first time. */
    SKIP("fork of musl leaves the lock of pthread_key_create(3) as it is, in the child for ever");
#endif
    SET(stop, 0);
    CHECK_EQ(gs_key_create(&key, NULL), 0);
    t = start_thread(set_values, &key);
    for (i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(gs_setspecific(key, &i) == 0 && gs_getspecific(key) == &i ? 7 : 1);
        wait_for_child(child);
    }
    SET(stop, 1);
    join_thread(t);
    CHECK_EQ(gs_key_delete(key), 0);
}

/* The child crashed when the function returned there. */
static void *fork_here(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)fork();
}

GO_TEST(a_child_may_return_from_gs_blocking)
{
    pid_t child = (pid_t)(intptr_t)gs_blocking(fork_here, NULL);
    if (child == 0)
        _exit(gs_self() == NULL ? 7 : 1);
    wait_for_child(child);
}

/* A failing allocation and gs_run changed errno. */
static void set_errno(void *arg)
{
    (void)arg;
    errno = EXDEV;
}

TEST(errno_stays_as_it_was)
{
    errno = 77;
    CHECK(gs_chan_make(1 << 30, 1L << 15) == NULL);
    CHECK_EQ(errno, 77);
    CHECK_EQ(gs_run(set_errno, NULL), 0);
    CHECK_EQ(errno, 77);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_run(set_errno, NULL), 0);
    CHECK_EQ(errno, 77);
}

/* Only the thread that gs_run gave back slept until timers were due. */
static void sleep_20_ms(void *slept)
{
    CHECK_EQ(gs_sleep(20 * MS), 0);
    ADD(*(long *)slept, 1);
}

static void start_sleepers(void *slept)
{
    int i;
    for (i = 0; i < 10; i++)
        go(sleep_20_ms, slept);
    CHECK_EQ(gs_sleep(1 * MS), 0);
}

TEST(sleepers_wake_up_after_gs_run_has_ended)
{
    int round;
    for (round = 0; round < 30; round++) {
        long slept = 0;
        CHECK_EQ(gs_run(start_sleepers, &slept), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        CHECK_EQ(slept, 10);
    }
}

/* A select that had been served on one channel came back to the other, which was free by then. */
struct two { gs_chan *data, *done; gs_sem *ended; };

static void wait_for_either(void *arg)
{
    struct two *two = arg;
    int64_t v, nothing_much;
    gs_case cases[] = {recv_case(two->data, &v), recv_case(two->done, &nothing_much)};
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), 0);
    CHECK_EQ(gs_sem_release(two->ended, 1), 0);
}

GO_TEST(a_channel_is_not_free_while_a_select_is_leaving_it)
{
    gs_sem ended;
    int i;
    CHECK_EQ(gs_sem_init(&ended, 0), 0);
    for (i = 0; i < 2000; i++) {
        struct two two = {chan_of_ints(0), chan_of_ints(0), &ended};
        int r;
        go(wait_for_either, &two);
        send_int(two.data, 1);
        CHECK_EQ(gs_chan_close(two.done), 0);
        while ((r = gs_chan_free(two.done)) == -EBUSY)
            gs_yield();
        CHECK_EQ(r, 0);
        two.done = NULL;
        CHECK_EQ(gs_sem_acquire(&ended, 1, GS_FOREVER), 0);
        free_chan(two.data);
    }
}
