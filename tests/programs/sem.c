/* gs_sem: weights, FIFO without overtaking, deadlines, misuse. */
#include "check.h"

static gs_sem sem;

static void acquire(int64_t n)
{
    CHECK_EQ(gs_sem_acquire(&sem, n, GS_FOREVER), 0);
}

static void release(int64_t n)
{
    CHECK_EQ(gs_sem_release(&sem, n), 0);
}

static void start_with(int64_t n)
{
    CHECK_EQ(gs_sem_init(&sem, n), 0);
}

/* The count is exactly n: n can be had, and no more. */
static void check_count(int64_t n)
{
    if (n > 0)
        CHECK_EQ(gs_sem_acquire(&sem, n, GS_NOWAIT), 0);
    CHECK_EQ(gs_sem_acquire(&sem, 1, GS_NOWAIT), -EAGAIN);
    if (n > 0)
        release(n);
}

static void check_basics(void)
{
    int64_t deadline;
    start_with(3);
    check_count(3);
    acquire(2);
    CHECK_EQ(gs_sem_acquire(&sem, 2, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_sem_acquire(&sem, 2, 1), -ETIMEDOUT);
    deadline = gs_after_ms(3);
    CHECK_EQ(gs_sem_acquire(&sem, 2, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(gs_sem_acquire(&sem, 1, 1), 0); /* at once, though the deadline has passed */
    check_count(0);
    release(5);
    check_count(5);
}

GO_TEST(it_counts)
{
    check_basics();
}

TEST(a_plain_thread_can_use_a_semaphore)
{
    check_basics();
}

GO_TEST(zero_bytes_are_a_semaphore_of_zero)
{
    memset(&sem, 0, sizeof sem);
    check_count(0);
    release(1);
    check_count(1);
}

GO_TEST(nonsense_counts_are_EINVAL_and_change_nothing)
{
    CHECK_EQ(gs_sem_init(&sem, -1), -EINVAL);
    start_with(2);
    CHECK_EQ(gs_sem_acquire(&sem, -1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sem_acquire(&sem, -1, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_sem_release(&sem, -1), -EINVAL);
    CHECK_EQ(gs_sem_release(&sem, INT64_MAX - 1), -EINVAL);
    check_count(2);
    CHECK_EQ(gs_sem_release(&sem, INT64_MAX - 2), 0);
    CHECK_EQ(gs_sem_release(&sem, 1), -EINVAL);
    check_count(INT64_MAX);
}

/* ---- Waiting in line ---- */

static int waiting;
static int64_t granted;

static void take_three(void *arg)
{
    (void)arg;
    ADD(waiting, 1);
    acquire(3);
    CHECK_EQ(ADD(granted, 3), 3); /* it is the first */
}

static void take_one(void *arg)
{
    (void)arg;
    ADD(waiting, 1);
    acquire(1);
    ADD(granted, 1);
}

/* With one P, a steady goroutine that has set `waiting` waits when it is seen. */
static gs_g *start_waiter(gs_fn fn)
{
    int before = GET(waiting);
    gs_g *g = go_steady(fn, NULL);
    WAIT_UNTIL(GET(waiting) == before + 1);
    return g;
}

static void set_up(int64_t n)
{
    start_with(n);
    SET(waiting, 0);
    SET(granted, 0);
}

static void no_overtaking(void *arg)
{
    gs_g *big, *small;
    (void)arg;
    set_up(1);
    big = start_waiter(take_three);
    /* One is free, but the large request is first in line. */
    CHECK_EQ(gs_sem_acquire(&sem, 1, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_sem_acquire(&sem, 1, gs_after_us(500)), -ETIMEDOUT);
    small = start_waiter(take_one);
    release(1);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(GET(granted), 0); /* two are free, three are wanted */
    release(1);
    join(big);
    CHECK_EQ(GET(granted), 3);
    release(1);
    join(small);
    check_count(0);
}

static void with_one_p(gs_fn fn)
{
    int procs = gs_gomaxprocs(1);
    join(go_steady(fn, NULL));
    gs_gomaxprocs(procs);
}

GO_TEST(a_large_request_is_not_overtaken)
{
    with_one_p(no_overtaking);
}

static void one_release_for_many(void *arg)
{
    gs_g *g[6];
    int i;
    (void)arg;
    set_up(0);
    for (i = 0; i < 6; i++)
        g[i] = start_waiter(take_one);
    release(4);
    for (i = 0; i < 4; i++)
        join(g[i]); /* the first four */
    CHECK_EQ(GET(granted), 4);
    CHECK_EQ(gs_join(g[4], GS_NOWAIT), -EAGAIN);
    release(2);
    join(g[4]);
    join(g[5]);
    check_count(0);
}

GO_TEST(a_release_serves_as_many_as_it_can_in_order)
{
    with_one_p(one_release_for_many);
}

/* ---- The first in line leaves ---- */

static void take_three_impatiently(void *arg)
{
    (void)arg;
    ADD(waiting, 1);
    CHECK_EQ(gs_sem_acquire(&sem, 3, gs_after_ms(20)), -ETIMEDOUT);
}

static void take_three_until_cancelled(void *arg)
{
    (void)arg;
    ADD(waiting, 1);
    CHECK_EQ(gs_sem_acquire(&sem, 3, GS_FOREVER), -ECANCELED);
}

static void first_times_out(void *arg)
{
    gs_g *big, *small;
    (void)arg;
    set_up(1);
    big = start_waiter(take_three_impatiently);
    small = start_waiter(take_one);
    join(small); /* served when the large request is gone: nothing is released meanwhile */
    join(big);
    CHECK_EQ(granted, 1);
    check_count(0);
}

GO_TEST(when_the_first_times_out_the_next_is_served)
{
    with_one_p(first_times_out);
}

static void first_is_cancelled(void *arg)
{
    gs_g *big, *small;
    (void)arg;
    set_up(2);
    big = start_waiter(take_three_until_cancelled);
    small = start_waiter(take_one);
    CHECK_EQ(GET(granted), 0);
    CHECK_EQ(gs_cancel(big), 0);
    join(small);
    join(big);
    CHECK_EQ(granted, 1);
    check_count(1);
}

GO_TEST(when_the_first_is_cancelled_the_next_is_served)
{
    with_one_p(first_is_cancelled);
}

static pid_t tid;

static void *take_three_in_thread(void *arg)
{
    SET(tid, thread_id());
    CHECK_EQ(gs_sem_acquire(&sem, 3, gs_after_ms(200)), -ETIMEDOUT);
    return arg;
}

/* A plain thread stands in the same line. */
TEST(when_a_thread_in_front_times_out_the_next_is_served)
{
    pthread_t t;
    gs_g *g;
    set_up(1);
    SET(tid, 0);
    t = start_thread(take_three_in_thread, NULL);
    wait_asleep(&tid);
    g = go_ref(take_one, NULL);
    join(g);
    join_thread(t);
    check_count(0);
}

/* ---- Under load ---- */

static int64_t in_use;

static void use(int64_t n)
{
    CHECK_LE(ADD(in_use, n), 10);
    gs_yield();
    CHECK_GE(ADD(in_use, -n), 0);
    release(n);
}

static void take_and_give(void *arg)
{
    uint64_t r = (uint64_t)(uintptr_t)arg * 77 + 1;
    int i;
    for (i = 0; i < 500; i++) {
        int64_t n = (int64_t)(random_next(&r) % 10) + 1;
        acquire(n);
        use(n);
    }
}

static void take_and_give_impatiently(void *arg)
{
    uint64_t r = (uint64_t)(uintptr_t)arg * 77 + 1;
    int i;
    for (i = 0; i < 500; i++) {
        int64_t n = (int64_t)(random_next(&r) % 10) + 1;
        int e = gs_sem_acquire(&sem, n, gs_after_us((int64_t)(random_next(&r) % 50)));
        CHECK(e == 0 || e == -ETIMEDOUT);
        if (e == 0)
            use(n);
    }
}

static void *take_and_give_in_thread(void *arg)
{
    take_and_give(arg);
    return NULL;
}

TEST(no_more_is_given_than_there_is)
{
    gs_g *gs[12];
    pthread_t t[2];
    intptr_t i;
    start_with(10);
    SET(in_use, 0);
    for (i = 0; i < 12; i++)
        gs[i] = go_ref(i % 3 ? take_and_give : take_and_give_impatiently, (void *)i);
    for (i = 0; i < 2; i++)
        t[i] = start_thread(take_and_give_in_thread, (void *)(100 + i));
    for (i = 0; i < 12; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        join_thread(t[i]);
    CHECK_EQ(in_use, 0);
    check_count(10);
}

/* As a signal between two: each release is seen. */
static gs_sem other;

static void answer(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 3000; i++) {
        acquire(1);
        CHECK_EQ(gs_sem_release(&other, 1), 0);
    }
}

static void *answer_in_thread(void *arg)
{
    answer(arg);
    return NULL;
}

static void ask(void)
{
    int i;
    for (i = 0; i < 3000; i++) {
        release(1);
        CHECK_EQ(gs_sem_acquire(&other, 1, GS_FOREVER), 0);
    }
}

GO_TEST(two_goroutines_signal_each_other)
{
    gs_g *g;
    start_with(0);
    CHECK_EQ(gs_sem_init(&other, 0), 0);
    g = go_ref(answer, NULL);
    ask();
    join(g);
    check_count(0);
}

GO_TEST(a_goroutine_and_a_thread_signal_each_other)
{
    pthread_t t;
    start_with(0);
    CHECK_EQ(gs_sem_init(&other, 0), 0);
    t = start_thread(answer_in_thread, NULL);
    ask();
    go_join_thread(t);
}

static void take_three_soon(void *deadline)
{
    ADD(waiting, 1);
    CHECK_EQ(gs_sem_acquire(&sem, 3, *(int64_t *)deadline), -ETIMEDOUT);
}

/* The large request has timed out, but its goroutine doesn't run. */
GO_TEST(a_request_that_times_out_and_does_not_run_holds_up_no_other_request)
{
    gs_g *big, *small;
    int64_t soon;
    set_up(2);
    soon = gs_after_ms(50);
    big = go_idle(take_three_soon, &soon);
    WAIT_UNTIL(GET(waiting) == 1);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    small = go_ref(take_one, NULL);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    start_busy_loops();
    join(small);
    CHECK_EQ(gs_sem_acquire(&sem, 1, GS_FOREVER), 0);
    end_busy_loops();
    join(big);
    check_count(0);
}
