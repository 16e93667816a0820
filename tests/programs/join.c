/* gs_join: waiting for the end of a goroutine. */
#include "check.h"

static void nothing(void *arg)
{
    (void)arg;
}

static void wait_for(void *flag)
{
    WAIT_UNTIL(GET(*(int *)flag));
}

static void work_then_set(void *flag)
{
    int i;
    for (i = 0; i < 20; i++)
        gs_yield();
    CHECK_EQ(gs_sleep(2 * MS), 0);
    SET(*(int *)flag, 1);
}

GO_TEST(join_returns_after_the_end)
{
    int flag = 0;
    join(go_ref(work_then_set, &flag));
    CHECK_EQ(flag, 1);
}

GO_TEST(join_of_an_ended_goroutine_gives_0_at_once_any_number_of_times)
{
    gs_g *g = go_ref(nothing, NULL);
    int i;
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    for (i = 0; i < 5; i++) {
        CHECK_EQ(gs_join(g, GS_FOREVER), 0);
        CHECK_EQ(gs_join(g, GS_NOWAIT), 0);
        CHECK_EQ(gs_join(g, 1), 0); /* a passed deadline: what can be done at once is done */
        CHECK_EQ(gs_join(g, gs_after_ms(1)), 0);
    }
    gs_release(g);
}

GO_TEST(join_keeps_to_its_deadline)
{
    int flag = 0;
    gs_g *g = go_ref(wait_for, &flag);
    int64_t deadline = gs_after_ms(5);
    CHECK_EQ(gs_join(g, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_join(g, 1), -ETIMEDOUT);
    CHECK_EQ(gs_join(g, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    SET(flag, 1);
    join(g); /* the reference is still there */
}

static void join_self(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_join(gs_self(), GS_FOREVER), -EDEADLK);
    CHECK_EQ(gs_join(gs_self(), GS_NOWAIT), -EDEADLK);
    CHECK_EQ(gs_join(gs_self(), gs_after_ms(1)), -EDEADLK);
}

GO_TEST(join_of_oneself_is_EDEADLK)
{
    join_self(NULL);
    join(go_ref(join_self, NULL));
}

TEST(join_from_a_plain_thread)
{
    int i;
    for (i = 0; i < 10; i++) {
        int flag = 0;
        join(go_ref(work_then_set, &flag));
        CHECK_EQ(flag, 1);
    }
}

TEST(join_from_a_plain_thread_keeps_to_its_deadline)
{
    int flag = 0;
    gs_g *g = go_ref(wait_for, &flag);
    int64_t deadline = gs_after_ms(5);
    CHECK_EQ(gs_join(g, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_join(g, 1), -ETIMEDOUT);
    CHECK_EQ(gs_join(g, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    SET(flag, 1);
    join(g);
}

struct watched {
    gs_g *g;
    int flag;
    int joined;
};

static void end_when_told(void *arg)
{
    WAIT_UNTIL(GET(((struct watched *)arg)->flag));
}

static void join_it(void *arg)
{
    struct watched *w = arg;
    CHECK_EQ(gs_join(w->g, GS_FOREVER), 0);
    CHECK_EQ(GET(w->flag), 1);
    ADD(w->joined, 1);
}

static void *join_it_in_thread(void *arg)
{
    join_it(arg);
    return NULL;
}

GO_TEST(many_goroutines_and_threads_join_the_same)
{
    struct watched w = {NULL, 0, 0};
    pthread_t threads[4];
    gs_g *gs[20];
    int i;
    w.g = go_ref(end_when_told, &w);
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(join_it, &w);
    for (i = 0; i < 4; i++)
        threads[i] = start_thread(join_it_in_thread, &w);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    CHECK_EQ(GET(w.joined), 0);
    SET(w.flag, 1);
    for (i = 0; i < 20; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++)
        go_join_thread(threads[i]);
    CHECK_EQ(w.joined, 24);
    gs_release(w.g);
}

static void exit_at_once(void *arg)
{
    (void)arg;
    gs_exit();
}

GO_TEST(join_of_one_that_exits)
{
    join(go_ref(exit_at_once, NULL));
}

static void sleep_until_cancelled(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
}

GO_TEST(join_of_one_that_is_cancelled)
{
    gs_g *g = go_ref(sleep_until_cancelled, NULL);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

struct couple {
    gs_g *other;
    int step;
    int timed_out;
};

static void join_the_other(void *arg)
{
    struct couple *c = arg;
    WAIT_UNTIL(GET(c->step) >= 1);
    CHECK_EQ(gs_join(c->other, gs_after_ms(10)), -ETIMEDOUT);
    SET(c->timed_out, 1);
    WAIT_UNTIL(GET(c->step) == 2);
}

GO_TEST(two_that_join_each_other_time_out)
{
    struct couple a = {NULL, 0, 0}, b = {NULL, 0, 0};
    gs_g *ga = go_ref(join_the_other, &a), *gb = go_ref(join_the_other, &b);
    a.other = gb;
    b.other = ga;
    SET(a.step, 1);
    SET(b.step, 1);
    WAIT_UNTIL(GET(a.timed_out) && GET(b.timed_out));
    SET(a.step, 2);
    SET(b.step, 2);
    join(ga);
    join(gb);
}

/* The end of one and the deadline of the other meet: the answer is one of the two, and join works again. */
GO_TEST(end_and_deadline_race)
{
    int i;
    for (i = 0; i < 2000; i++) {
        gs_g *g = go_ref(nothing, NULL);
        int r = gs_join(g, gs_after_ns(i % 40 * 100));
        CHECK(r == 0 || r == -ETIMEDOUT);
        join(g);
    }
}

static void *spawn_and_join(void *arg)
{
    int i;
    for (i = 0; i < 1000; i++)
        join(go_ref(nothing, NULL));
    return arg;
}

TEST(spawn_and_join_from_several_threads)
{
    pthread_t t[4];
    int i;
    for (i = 0; i < 4; i++)
        t[i] = start_thread(spawn_and_join, NULL);
    for (i = 0; i < 4; i++)
        join_thread(t[i]);
}
