/* gs_once: the function runs once, and every caller returns after it has. */
#include "check.h"

static int ran, finished;

static void slow(void *arg)
{
    CHECK_EQ(ADD(ran, 1), 1);
    gs_yield();
    CHECK_EQ(gs_sleep(MS), 0);
    SET(finished, 1);
    (void)arg;
}

static void do_once(void *once)
{
    CHECK_EQ(gs_once_do(once, slow, NULL), 0);
    CHECK_EQ(GET(finished), 1);
}

static void *do_once_in_thread(void *once)
{
    do_once(once);
    return NULL;
}

static void reset(gs_once *o)
{
    memset(o, 0, sizeof *o);
    SET(ran, 0);
    SET(finished, 0);
}

GO_TEST(it_runs_once)
{
    gs_once o;
    int i;
    reset(&o);
    for (i = 0; i < 10; i++)
        do_once(&o);
    CHECK_EQ(ran, 1);
}

GO_TEST(all_callers_return_after_it_has_run)
{
    int round, i;
    for (round = 0; round < 20; round++) {
        gs_g *gs[100];
        gs_once o;
        reset(&o);
        for (i = 0; i < 100; i++)
            gs[i] = go_ref(do_once, &o);
        for (i = 0; i < 100; i++)
            join(gs[i]);
        CHECK_EQ(ran, 1);
    }
}

TEST(threads_and_goroutines_share_a_once)
{
    int round, i;
    for (round = 0; round < 10; round++) {
        gs_g *gs[10];
        pthread_t t[4];
        gs_once o;
        reset(&o);
        for (i = 0; i < 4; i++)
            t[i] = start_thread(do_once_in_thread, &o);
        for (i = 0; i < 10; i++)
            gs[i] = go_ref(do_once, &o);
        for (i = 0; i < 10; i++)
            join(gs[i]);
        for (i = 0; i < 4; i++)
            join_thread(t[i]);
        CHECK_EQ(ran, 1);
    }
}

TEST(a_plain_thread_can_use_a_once)
{
    gs_once o;
    reset(&o);
    do_once(&o);
    do_once(&o);
    CHECK_EQ(ran, 1);
}

static void set_arg(void *arg)
{
    *(int *)arg = 5;
}

GO_TEST(the_argument_is_passed)
{
    gs_once o;
    int x = 0;
    reset(&o);
    CHECK_EQ(gs_once_do(&o, set_arg, &x), 0);
    CHECK_EQ(x, 5);
    x = 0;
    CHECK_EQ(gs_once_do(&o, set_arg, &x), 0);
    CHECK_EQ(x, 0);
}

GO_TEST(no_function_is_EINVAL_and_does_not_use_it_up)
{
    gs_once o;
    reset(&o);
    CHECK_EQ(gs_once_do(&o, NULL, NULL), -EINVAL);
    do_once(&o);
    CHECK_EQ(ran, 1);
    CHECK_EQ(gs_once_do(&o, NULL, NULL), -EINVAL);
}

static void nest(void *inner)
{
    do_once(inner);
}

GO_TEST(one_once_may_run_inside_another)
{
    gs_once outer, inner;
    reset(&outer);
    reset(&inner);
    CHECK_EQ(gs_once_do(&outer, nest, &inner), 0);
    CHECK_EQ(gs_once_do(&outer, nest, &inner), 0);
    CHECK_EQ(ran, 1);
}

static void do_the_same_again(void *o)
{
    ADD(ran, 1);
    CHECK_EQ(gs_once_do(o, slow, NULL), -EDEADLK);
}

GO_TEST(calling_it_from_its_own_function_is_EDEADLK)
{
    gs_once o;
    reset(&o);
    CHECK_EQ(gs_once_do(&o, do_the_same_again, &o), 0);
    CHECK_EQ(ran, 1);
    CHECK_EQ(gs_once_do(&o, slow, NULL), 0);
    CHECK_EQ(ran, 1);
}

/* The goroutine that runs it may be cancelled; the others do not suffer. */
static void quick(void *arg)
{
    (void)arg;
    ADD(ran, 1);
}

static void run_cancelled(void *o)
{
    CHECK_EQ(gs_cancel(gs_self()), 0);
    CHECK_EQ(gs_once_do(o, quick, NULL), 0);
}

GO_TEST(a_cancelled_goroutine_can_run_it)
{
    gs_once o;
    reset(&o);
    join(go_ref(run_cancelled, &o));
    CHECK_EQ(gs_once_do(&o, quick, NULL), 0);
    CHECK_EQ(ran, 1);
}
