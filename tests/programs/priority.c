/*
 * Order and priorities with one P, where they can be seen exactly.
 * seed: B3 (the goroutine created last runs first), S10 (idle goroutines), S11 (LIFO), B8 (priorities)
 */
#include "check.h"

static int order[64], ran;

static void note_order(void *arg)
{
    order[ADD(ran, 1) - 1] = (int)(intptr_t)arg;
}

static void *number(int i)
{
    return (void *)(intptr_t)i;
}

static void spawn_with_priority(gs_fn fn, void *arg, int priority)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.priority = priority;
    o.flags = GS_SPAWN_NOPREEMPT;
    CHECK_EQ(gs_spawn_with(fn, arg, &o, NULL), 0);
}

/* A steady goroutine with one P: nothing else runs until it waits. */
static void with_one_p(gs_fn fn)
{
    int procs = gs_gomaxprocs(1);
    SET(ran, 0);
    join(go_steady(fn, NULL));
    gs_gomaxprocs(procs);
}

/* ---- Order of creation ---- */

static gs_waitgroup wg;

static void note_and_finish(void *arg)
{
    note_order(arg);
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
}

static void create_two(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_waitgroup_add(&wg, 2), 0);
    go(note_and_finish, number(1));
    go(note_and_finish, number(2));
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(order[0], 2);
    CHECK_EQ(order[1], 1);
}

/* seed: B3 (the post's first program) */
GO_TEST(of_two_goroutines_the_one_created_last_runs_first)
{
    with_one_p(create_two);
}

static void create_twenty(void *arg)
{
    int i;
    (void)arg;
    CHECK_EQ(gs_waitgroup_add(&wg, 20), 0);
    for (i = 0; i < 20; i++)
        go(note_and_finish, number(i));
    CHECK_EQ(ran, 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(ran, 20);
    CHECK_EQ(order[0], 19);
}

/* seed: S11. Mostly LIFO: what is asserted is the first one, and that each runs. */
GO_TEST(of_many_the_one_created_last_runs_first)
{
    with_one_p(create_twenty);
}

static int64_t first_finished;

static void sleep_first(void *arg)
{
    CHECK_EQ(gs_sleep((intptr_t)arg * MS), 0);
    if (GET(ran) == 0)
        first_finished = gs_now();
    note_and_finish(arg);
}

static void create_sleepers(void *arg)
{
    int64_t second_due = gs_after_ms(300);
    (void)arg;
    CHECK_EQ(gs_waitgroup_add(&wg, 2), 0);
    go(sleep_first, number(1));
    go(sleep_first, number(300));
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    if (first_finished < second_due) /* else the machine stood still, and both were due */
        CHECK_EQ(order[0], 1);
    CHECK_EQ(ran, 2);
}

/* seed: B3 (the post's second program: one P, and still concurrent) */
GO_TEST(a_sleeping_goroutine_lets_the_other_go_first)
{
    with_one_p(create_sleepers);
}

/* ---- HIGH ---- */

static int place_of(int who)
{
    int i;
    for (i = 0; i < ran; i++)
        if (order[i] == who)
            return i;
    return INT_MAX;
}

static void high_among_normal(int before, int after)
{
    int i;
    CHECK_EQ(gs_waitgroup_add(&wg, before + 1 + after), 0);
    for (i = 0; i < before; i++)
        go(note_and_finish, number(i));
    spawn_with_priority(note_and_finish, number(99), GS_PRIO_HIGH);
    for (i = 0; i < after; i++)
        go(note_and_finish, number(i));
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_LE(place_of(99), 1); /* at most the goroutine in runnext goes before it */
}

static void high_first(void *arg)
{
    (void)arg;
    high_among_normal(0, 20);
}

static void high_between(void *arg)
{
    (void)arg;
    high_among_normal(10, 10);
}

static void high_last(void *arg)
{
    (void)arg;
    high_among_normal(20, 0);
}

GO_TEST(high_goes_before_all_but_runnext_wherever_it_is_spawned)
{
    with_one_p(high_first);
    with_one_p(high_between);
    with_one_p(high_last);
}

static gs_chan *gates[21];
static int waiting;

static void note_when_woken(void *arg)
{
    ADD(waiting, 1);
    (void)recv_int(gates[(intptr_t)arg]);
    note_and_finish(arg);
}

static void wake_all(void *arg)
{
    int i;
    (void)arg;
    SET(waiting, 0);
    CHECK_EQ(gs_waitgroup_add(&wg, 21), 0);
    for (i = 0; i <= 20; i++) {
        gates[i] = chan_of_ints(0);
        spawn_with_priority(note_when_woken, number(i), i == 10 ? GS_PRIO_HIGH : GS_PRIO_NORMAL);
    }
    WAIT_UNTIL(waiting == 21);
    for (i = 0; i <= 20; i++)
        CHECK_EQ(try_send(gates[i], 1), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_LE(place_of(10), 1);
    for (i = 0; i <= 20; i++)
        free_chan(gates[i]);
}

GO_TEST(a_woken_high_goroutine_goes_before_all_but_runnext)
{
    with_one_p(wake_all);
}

/* ---- IDLE ---- */

static int busy;

static void yield_often(void *arg)
{
    int i;
    for (i = 0; i < 300; i++)
        gs_yield();
    ADD(busy, -1);
    note_and_finish(arg);
}

static void run_when_idle(void *arg)
{
    CHECK_EQ(GET(busy), 0);
    note_and_finish(arg);
}

static void idle_among_busy(void *arg)
{
    int i;
    (void)arg;
    SET(busy, 10);
    CHECK_EQ(gs_waitgroup_add(&wg, 11), 0);
    for (i = 0; i < 5; i++)
        go(yield_often, number(i));
    spawn_with_priority(run_when_idle, number(99), GS_PRIO_IDLE);
    for (i = 5; i < 10; i++)
        go(yield_often, number(i));
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(place_of(99), 10);
}

/* seed: S10 */
GO_TEST(idle_waits_as_long_as_anything_else_is_runnable)
{
    with_one_p(idle_among_busy);
}

static void idle_when_woken(void *arg)
{
    ADD(waiting, 1);
    (void)recv_int(gates[0]);
    run_when_idle(arg);
}

static void wake_idle(void *arg)
{
    int i;
    (void)arg;
    SET(waiting, 0);
    gates[0] = chan_of_ints(0);
    CHECK_EQ(gs_waitgroup_add(&wg, 6), 0);
    spawn_with_priority(idle_when_woken, number(99), GS_PRIO_IDLE);
    WAIT_UNTIL(waiting == 1);
    SET(busy, 5);
    for (i = 0; i < 5; i++)
        go(yield_often, number(i));
    CHECK_EQ(try_send(gates[0], 1), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(place_of(99), 5);
    free_chan(gates[0]);
}

GO_TEST(a_woken_idle_goroutine_waits_too)
{
    with_one_p(wake_idle);
}

static void count_to(void *n)
{
    int i;
    for (i = 0; i < 100; i++) {
        gs_yield();
        ADD(*(int *)n, 1);
    }
}

GO_TEST(idle_goroutines_run_when_nothing_else_does)
{
    int n = 0, i;
    for (i = 0; i < 20; i++)
        spawn_with_priority(count_to, &n, GS_PRIO_IDLE);
    WAIT_UNTIL(GET(n) == 2000);
}

/* ---- LOW ---- */

static int stop;

static void yield_until_stopped(void *arg)
{
    (void)arg;
    YIELD_UNTIL(GET(stop));
}

static void stop_them(void *arg)
{
    (void)arg;
    SET(stop, 1);
}

static void starve(int priority)
{
    gs_g *gs[4];
    int i;
    SET(stop, 0);
    for (i = 0; i < 4; i++)
        gs[i] = go_ref(yield_until_stopped, NULL);
    spawn_with_priority(stop_them, NULL, priority);
    for (i = 0; i < 4; i++)
        join(gs[i]);
}

static void starve_low(void *arg)
{
    (void)arg;
    starve(GS_PRIO_LOW);
}

GO_TEST(low_is_not_starved_by_busy_normal_goroutines)
{
    with_one_p(starve_low);
    starve(GS_PRIO_LOW); /* with the P's given */
}

static void starve_normal(void *arg)
{
    (void)arg;
    starve(GS_PRIO_NORMAL);
}

GO_TEST(normal_is_not_starved_by_yielding_ones)
{
    with_one_p(starve_normal);
}

static void mixed(void *arg)
{
    static const int all[] = {GS_PRIO_HIGH, GS_PRIO_NORMAL, GS_PRIO_LOW, GS_PRIO_IDLE};
    int i;
    (void)arg;
    CHECK_EQ(gs_waitgroup_add(&wg, 60), 0);
    for (i = 0; i < 60; i++)
        spawn_with_priority(note_and_finish, number(i), all[i % 4]);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(ran, 60);
}

GO_TEST(goroutines_of_all_priorities_finish)
{
    with_one_p(mixed);
    SET(ran, 0);
    mixed(NULL);
}
