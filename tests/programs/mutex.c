/* gs_mutex: exclusion, misuse, deadlines, and Go's starvation mode. */
#include "check.h"

static gs_mutex zero; /* all bytes zero: valid */

static void lock(gs_mutex *m)
{
    CHECK_EQ(gs_mutex_lock(m, GS_FOREVER), 0);
}

static void unlock(gs_mutex *m)
{
    CHECK_EQ(gs_mutex_unlock(m), 0);
}

/* ---- One caller ---- */

static void check_basics(void)
{
    gs_mutex m;
    memset(&m, 0, sizeof m);
    lock(&m);
    CHECK_EQ(gs_mutex_trylock(&m), -EBUSY);
    unlock(&m);
    CHECK_EQ(gs_mutex_trylock(&m), 0);
    CHECK_EQ(gs_mutex_lock(&m, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_mutex_lock(&m, 1), -ETIMEDOUT);
    unlock(&m);
    CHECK_EQ(gs_mutex_lock(&m, GS_NOWAIT), 0);
    unlock(&m);
    CHECK_EQ(gs_mutex_lock(&m, 1), 0); /* at once, though the deadline has passed */
    unlock(&m);
}

GO_TEST(zero_bytes_are_an_unlocked_mutex)
{
    check_basics();
    lock(&zero);
    unlock(&zero);
}

TEST(a_plain_thread_can_use_a_mutex)
{
    check_basics();
}

GO_TEST(unlocking_an_unlocked_mutex_is_EPERM)
{
    gs_mutex m;
    memset(&m, 0, sizeof m);
    CHECK_EQ(gs_mutex_unlock(&m), -EPERM);
    lock(&m);
    unlock(&m);
    CHECK_EQ(gs_mutex_unlock(&m), -EPERM);
    CHECK_EQ(gs_mutex_unlock(&m), -EPERM);
    CHECK_EQ(gs_mutex_trylock(&m), 0); /* nothing was half done */
    CHECK_EQ(gs_mutex_trylock(&m), -EBUSY);
    unlock(&m);
}

static void unlock_it(void *m)
{
    unlock(m);
}

static void *unlock_in_thread(void *m)
{
    unlock(m);
    return NULL;
}

/* As in Go, a mutex isn't tied to a goroutine. */
GO_TEST(any_goroutine_or_thread_may_unlock)
{
    lock(&zero);
    join(go_ref(unlock_it, &zero));
    lock(&zero);
    go_join_thread(start_thread(unlock_in_thread, &zero));
    lock(&zero);
    unlock(&zero);
}

/* ---- Exclusion ---- */

struct counter {
    gs_mutex m;
    long n;
    int inside;
    int rounds;
};

static void enter(struct counter *c)
{
    CHECK_EQ(ADD(c->inside, 1), 1);
}

static void leave(struct counter *c)
{
    c->n++; /* not atomic: the mutex protects it */
    CHECK_EQ(ADD(c->inside, -1), 0);
}

static void count_up(void *arg)
{
    struct counter *c = arg;
    int i;
    for (i = 0; i < c->rounds; i++) {
        lock(&c->m);
        enter(c);
        if (i % 50 == 0)
            gs_yield();
        leave(c);
        unlock(&c->m);
    }
}

static void count_up_trying(void *arg)
{
    struct counter *c = arg;
    int i;
    for (i = 0; i < c->rounds; i++) {
        int r;
        while ((r = gs_mutex_trylock(&c->m)) != 0) {
            CHECK_EQ(r, -EBUSY);
            gs_yield();
        }
        enter(c);
        leave(c);
        unlock(&c->m);
    }
}

static void count_up_impatiently(void *arg)
{
    struct counter *c = arg;
    int i;
    for (i = 0; i < c->rounds; i++) {
        int r;
        while ((r = gs_mutex_lock(&c->m, gs_after_us(i % 20))) != 0) {
            CHECK_EQ(r, -ETIMEDOUT);
            gs_yield(); /* a deadline that has passed gives no other a turn */
        }
        enter(c);
        if (i % 20 == 0)
            gs_yield();
        leave(c);
        unlock(&c->m);
    }
}

static void *count_up_in_thread(void *arg)
{
    count_up(arg);
    return NULL;
}

static void *count_up_impatiently_in_thread(void *arg)
{
    count_up_impatiently(arg);
    return NULL;
}

static void exclude(gs_fn fn, int n, void *(*in_thread)(void *), int threads)
{
    static struct counter c;
    gs_g *gs[16];
    pthread_t t[4];
    int i;
    memset(&c, 0, sizeof c);
    c.rounds = 1000;
    for (i = 0; i < n; i++)
        gs[i] = go_ref(fn, &c);
    for (i = 0; i < threads; i++)
        t[i] = start_thread(in_thread, &c);
    for (i = 0; i < n; i++)
        join(gs[i]);
    for (i = 0; i < threads; i++)
        join_thread(t[i]);
    CHECK_EQ(c.n, (n + threads) * 1000);
    CHECK_EQ(gs_mutex_unlock(&c.m), -EPERM);
}

TEST(goroutines_exclude_each_other)
{
    exclude(count_up, 16, NULL, 0);
}

TEST(threads_exclude_each_other)
{
    exclude(NULL, 0, count_up_in_thread, 4);
}

TEST(goroutines_and_threads_exclude_each_other)
{
    exclude(count_up, 8, count_up_in_thread, 3);
}

TEST(trylock_excludes)
{
    exclude(count_up_trying, 6, count_up_in_thread, 1);
}

TEST(locking_with_deadlines_excludes)
{
    exclude(count_up_impatiently, 8, count_up_impatiently_in_thread, 2);
}

/* ---- Deadlines ---- */

static void check_deadline(void)
{
    int64_t deadline = gs_after_ms(3);
    CHECK_EQ(gs_mutex_lock(&zero, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(gs_mutex_lock(&zero, GS_NOWAIT), -EAGAIN);
}

GO_TEST(a_wait_ends_at_its_deadline)
{
    lock(&zero);
    check_deadline();
    unlock(&zero);
    lock(&zero); /* no waiter was left behind */
    unlock(&zero);
}

TEST(a_wait_of_a_plain_thread_ends_at_its_deadline)
{
    lock(&zero);
    check_deadline();
    unlock(&zero);
    lock(&zero);
    unlock(&zero);
}

static void time_out(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&zero, gs_after_ms(2)), -ETIMEDOUT);
}

GO_TEST(many_waiters_time_out_and_the_mutex_is_free_after_unlock)
{
    gs_g *gs[50];
    int i;
    lock(&zero);
    for (i = 0; i < 50; i++)
        gs[i] = go_ref(time_out, NULL);
    for (i = 0; i < 50; i++)
        join(gs[i]);
    CHECK_EQ(gs_mutex_trylock(&zero), -EBUSY);
    unlock(&zero);
    CHECK_EQ(gs_mutex_trylock(&zero), 0);
    unlock(&zero);
}

static void lock_then_unlock(void *done)
{
    lock(&zero);
    ADD(*(int *)done, 1);
    unlock(&zero);
}

GO_TEST(those_that_stay_get_it_after_others_have_timed_out)
{
    gs_g *gs[30];
    int i, done = 0;
    lock(&zero);
    for (i = 0; i < 30; i++)
        gs[i] = i % 2 ? go_ref(time_out, NULL) : go_ref(lock_then_unlock, &done);
    for (i = 1; i < 30; i += 2)
        join(gs[i]);
    CHECK_EQ(GET(done), 0);
    unlock(&zero);
    for (i = 0; i < 30; i += 2)
        join(gs[i]);
    CHECK_EQ(done, 15);
}

/* ---- Starvation mode: a waiter gets the mutex though another takes it all the time ---- */

static int stop;

static void hammer(void *m)
{
    while (!GET(stop)) {
        int64_t end = gs_now() + 100 * US;
        lock(m);
        while (gs_now() < end) /* keeps it, keeps the thread, and takes it again at once */
            ;
        unlock(m);
    }
}

static void *hammer_in_thread(void *m)
{
    hammer(m);
    return NULL;
}

static void get_it_ten_times(void *m)
{
    int i;
    for (i = 0; i < 10; i++) {
        CHECK_EQ(gs_sleep(100 * US), 0);
        lock(m);
        unlock(m);
    }
    SET(stop, 1);
}

static void *get_it_in_thread(void *m)
{
    get_it_ten_times(m);
    return NULL;
}

/* Go's TestMutexFairness. The hammer yields with one P, where it would keep the only thread. */
static void hammer_yielding(void *m)
{
    while (!GET(stop)) {
        lock(m);
        gs_yield();
        unlock(m);
    }
}

GO_TEST(a_waiting_goroutine_gets_the_mutex_from_one_that_hammers_it)
{
    gs_g *g;
    SET(stop, 0);
    g = go_ref(gs_gomaxprocs(0) > 1 ? hammer : hammer_yielding, &zero);
    join(go_ref(get_it_ten_times, &zero));
    join(g);
}

TEST(a_waiting_goroutine_gets_the_mutex_from_a_thread_that_hammers_it)
{
    pthread_t t;
    SET(stop, 0);
    t = start_thread(hammer_in_thread, &zero);
    join(go_ref(get_it_ten_times, &zero));
    join_thread(t);
}

TEST(a_waiting_thread_gets_the_mutex_from_a_goroutine_that_hammers_it)
{
    pthread_t t;
    gs_g *g;
    SET(stop, 0);
    g = go_ref(hammer, &zero);
    t = start_thread(get_it_in_thread, &zero);
    join_thread(t);
    join(g);
}

/* Several that wait long: each gets it, the mutex leaves starvation mode, and counting still works. */
TEST(the_mutex_works_after_starvation)
{
    pthread_t t;
    SET(stop, 0);
    t = start_thread(hammer_in_thread, &zero);
    join(go_ref(get_it_ten_times, &zero));
    join_thread(t);
    exclude(count_up, 8, count_up_in_thread, 1);
    lock(&zero);
    unlock(&zero);
}

/* A goroutine that waits for a mutex costs no P. seed: B2 */
static void count_turns(void *turns)
{
    int i;
    for (i = 0; i < 100; i++) {
        ADD(*(int *)turns, 1);
        gs_yield();
    }
}

GO_TEST(others_run_while_goroutines_wait_for_a_mutex)
{
    int procs = gs_gomaxprocs(1), done = 0, turns = 0, i;
    gs_g *gs[20];
    lock(&zero);
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(lock_then_unlock, &done);
    join(go_ref(count_turns, &turns));
    CHECK_EQ(turns, 100);
    CHECK_EQ(done, 0);
    unlock(&zero);
    for (i = 0; i < 20; i++)
        join(gs[i]);
    gs_gomaxprocs(procs);
}

/* ---- A waiter that has been woken and does not run ---- */

static int arrived, served;

static void lock_and_unlock(void *arg)
{
    (void)arg;
    ADD(arrived, 1);
    lock(&zero);
    ADD(served, 1);
    unlock(&zero);
}

/* Starts a waiter and lets it park. */
static gs_g *start_waiting(gs_g *(*start)(gs_fn, void *))
{
    int n = GET(arrived);
    gs_g *g = start(lock_and_unlock, NULL);
    WAIT_UNTIL(GET(arrived) == n + 1);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    return g;
}

GO_TEST(a_woken_waiter_of_idle_priority_does_not_keep_the_mutex_from_others)
{
    gs_g *idle, *other;
    SET(arrived, 0);
    SET(served, 0);
    lock(&zero);
    idle = start_waiting(go_idle);
    other = start_waiting(go_ref);
    start_busy_loops();
    unlock(&zero);
    join(other);
    end_busy_loops();
    join(idle);
    CHECK_EQ(served, 2);
}

static int first_served;

static void lock_and_note(void *number)
{
    lock(&zero);
    if (GET(first_served) == 0)
        SET(first_served, *(int *)number);
    unlock(&zero);
}

/* Unlocks the mutex, which wakes a waiter, and locks it again before that waiter runs, finds it locked and waits again. */
static void overtake_the_waiter(void)
{
    int i;
    gs_preempt_disable();
    unlock(&zero);
    CHECK_EQ(gs_mutex_trylock(&zero), 0);
    gs_preempt_enable();
    for (i = 0; i < 10; i++)
        gs_yield();
}

/* With one P the first waiter finds the mutex locked again when it runs. It has waited for longer than the second. */
GO_TEST(a_woken_waiter_that_loses_keeps_its_place)
{
    int procs = gs_gomaxprocs(1), numbers[] = {1, 2}, i;
    gs_g *gs[2];
    SET(first_served, 0);
    lock(&zero);
    for (i = 0; i < 2; i++) {
        gs[i] = go_steady(lock_and_note, &numbers[i]);
        until_parked(gs[i]);
    }
    overtake_the_waiter();
    unlock(&zero);
    for (i = 0; i < 2; i++)
        join(gs[i]);
    CHECK_EQ(first_served, 1);
    gs_gomaxprocs(procs);
}

/* A waiter that has waited for more than 1 ms and loses makes the mutex starving. */
GO_TEST(an_unlock_hands_a_starving_mutex_to_the_waiter)
{
    int procs = gs_gomaxprocs(1), number = 1;
    gs_g *g;
    lock(&zero);
    g = go_steady(lock_and_note, &number);
    until_parked(g);
    nap(5 * MS);
    overtake_the_waiter();
    gs_preempt_disable();
    unlock(&zero);
    CHECK_EQ(gs_mutex_trylock(&zero), -EBUSY);
    gs_preempt_enable();
    join(g);
    CHECK_EQ(gs_mutex_trylock(&zero), 0);
    unlock(&zero);
    gs_gomaxprocs(procs);
}

/* The first waiter is on its way, but does not come: there is one P, and it has another goroutine. */
GO_TEST(another_waiter_is_woken_if_the_first_is_slow_to_come)
{
    int procs = gs_gomaxprocs(1), number = 1, i;
    gs_g *gs[2];
    gs_g_info info;
    lock(&zero);
    for (i = 0; i < 2; i++) {
        gs[i] = go_steady(lock_and_note, &number);
        until_parked(gs[i]);
    }
    gs_preempt_disable();
    unlock(&zero);
    nap(5 * MS);
    CHECK_EQ(gs_g_info_read(gs[1], &info, sizeof info), 0);
    CHECK_EQ(info.state, GS_G_WAITING);
    for (i = 0; i < 100; i++) {
        CHECK_EQ(gs_mutex_trylock(&zero), 0);
        unlock(&zero);
    }
    CHECK_EQ(gs_g_info_read(gs[1], &info, sizeof info), 0);
    CHECK_EQ(info.state, GS_G_RUNNABLE);
    gs_preempt_enable();
    for (i = 0; i < 2; i++)
        join(gs[i]);
    gs_gomaxprocs(procs);
}

GO_TEST(who_comes_after_a_waiter_of_idle_priority_was_woken_gets_the_mutex)
{
    gs_g *idle, *other;
    int i;
    SET(arrived, 0);
    SET(served, 0);
    lock(&zero);
    idle = start_waiting(go_idle);
    start_busy_loops();
    unlock(&zero);
    lock(&zero);
    other = go_ref(lock_and_unlock, NULL);
    YIELD_UNTIL(GET(arrived) == 2);
    for (i = 0; i < 1000; i++)
        gs_yield();
    unlock(&zero);
    join(other);
    end_busy_loops();
    join(idle);
    CHECK_EQ(served, 2);
}

static gs_g *go_pinned(gs_fn fn, void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.flags = GS_SPAWN_PINNED;
    return go_opts(fn, arg, &opts);
}

static pid_t thread_of_waiter, thread_of_blocker;
static int pipe_to_blocker[2], blocks;

static void wait_pinned(void *arg)
{
    thread_of_waiter = thread_id();
    lock_and_unlock(arg);
}

static void *read_a_byte(void *arg)
{
    char byte;
    SET(blocks, 1);
    CHECK_EQ(read(pipe_to_blocker[0], &byte, 1), 1);
    return arg;
}

static void block_pinned(void *arg)
{
    (void)arg;
    thread_of_blocker = thread_id();
    gs_yield();
    if (thread_of_blocker == thread_of_waiter)
        (void)gs_blocking(read_a_byte, NULL);
    else
        SET(blocks, 1);
}

GO_TEST(a_woken_waiter_whose_thread_is_blocked_does_not_keep_the_mutex_from_others)
{
    gs_g *pinned, *blocker, *other;
    CHECK_EQ(pipe(pipe_to_blocker), 0);
    SET(arrived, 0);
    SET(served, 0);
    SET(blocks, 0);
    lock(&zero);
    pinned = go_pinned(wait_pinned, NULL);
    WAIT_UNTIL(GET(arrived) == 1);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    blocker = go_pinned(block_pinned, NULL);
    WAIT_UNTIL(GET(blocks));
    other = start_waiting(go_ref);
    unlock(&zero);
    join(other);
    CHECK_EQ(write(pipe_to_blocker[1], "", 1), 1);
    join(blocker);
    join(pinned);
    CHECK_EQ(served, 2);
    close(pipe_to_blocker[0]);
    close(pipe_to_blocker[1]);
}
