/* gs_waitgroup: counting, waiting, reuse, misuse. */
#include "check.h"

static gs_waitgroup zero; /* all bytes zero: valid */

static void done(void *wg)
{
    CHECK_EQ(gs_waitgroup_done(wg), 0);
}

static void check_basics(void)
{
    gs_waitgroup wg;
    int64_t deadline;
    memset(&wg, 0, sizeof wg);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0); /* at zero there is nothing to wait for */
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, 1), 0);
    CHECK_EQ(gs_waitgroup_add(&wg, 2), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_waitgroup_wait(&wg, 1), -ETIMEDOUT);
    deadline = gs_after_ms(3);
    CHECK_EQ(gs_waitgroup_wait(&wg, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), 0);
}

GO_TEST(it_counts_to_zero)
{
    check_basics();
}

TEST(a_plain_thread_can_use_a_waitgroup)
{
    check_basics();
}

GO_TEST(a_negative_count_is_EINVAL_and_changes_nothing)
{
    gs_waitgroup wg;
    memset(&wg, 0, sizeof wg);
    CHECK_EQ(gs_waitgroup_done(&wg), -EINVAL);
    CHECK_EQ(gs_waitgroup_add(&wg, -1), -EINVAL);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), 0);
    CHECK_EQ(gs_waitgroup_add(&wg, 3), 0);
    CHECK_EQ(gs_waitgroup_add(&wg, -4), -EINVAL);
    CHECK_EQ(gs_waitgroup_add(&wg, INT_MIN), -EINVAL);
    CHECK_EQ(gs_waitgroup_add(&wg, -2), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_waitgroup_add(&wg, 0), 0);
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), 0);
    CHECK_EQ(gs_waitgroup_done(&wg), -EINVAL);
}

GO_TEST(a_count_beyond_INT64_MAX_is_EINVAL_and_changes_nothing)
{
    gs_waitgroup wg;
    memset(&wg, 0, sizeof wg);
    CHECK_EQ(gs_waitgroup_add(&wg, INT64_MAX), 0);
    CHECK_EQ(gs_waitgroup_add(&wg, 1), -EINVAL);
    CHECK_EQ(gs_waitgroup_add(&wg, INT64_MAX), -EINVAL);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_waitgroup_add(&wg, -INT64_MAX), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), 0);
}

GO_TEST(it_waits_for_all)
{
    int round, i;
    for (round = 0; round < 200; round++) {
        CHECK_EQ(gs_waitgroup_add(&zero, 20), 0);
        for (i = 0; i < 20; i++)
            go(done, &zero);
        CHECK_EQ(gs_waitgroup_wait(&zero, GS_FOREVER), 0);
        CHECK_EQ(gs_waitgroup_wait(&zero, GS_NOWAIT), 0);
    }
}

/* What the workers wrote is seen after the wait. */
static int cells[100];

static void fill_cell(void *cell)
{
    *(int *)cell = 1;
    done(&zero);
}

GO_TEST(what_was_done_before_is_seen_after_the_wait)
{
    int round, i;
    for (round = 0; round < 50; round++) {
        memset(cells, 0, sizeof cells);
        CHECK_EQ(gs_waitgroup_add(&zero, 100), 0);
        for (i = 0; i < 100; i++)
            go(fill_cell, &cells[i]);
        CHECK_EQ(gs_waitgroup_wait(&zero, GS_FOREVER), 0);
        for (i = 0; i < 100; i++)
            CHECK_EQ(cells[i], 1);
    }
}

/* ---- Many waiters, threads among them ---- */

static int through;

static void wait_for_it(void *wg)
{
    CHECK_EQ(gs_waitgroup_wait(wg, GS_FOREVER), 0);
    ADD(through, 1);
}

static void *wait_in_thread(void *wg)
{
    wait_for_it(wg);
    return NULL;
}

static void *done_in_thread(void *wg)
{
    done(wg);
    return NULL;
}

TEST(all_waiters_are_released)
{
    gs_g *gs[50];
    pthread_t t[4];
    int i;
    SET(through, 0);
    CHECK_EQ(gs_waitgroup_add(&zero, 2), 0);
    for (i = 0; i < 50; i++)
        gs[i] = go_ref(wait_for_it, &zero);
    for (i = 0; i < 4; i++)
        t[i] = start_thread(wait_in_thread, &zero);
    done(&zero);
    nap(2 * MS);
    CHECK_EQ(GET(through), 0);
    join_thread(start_thread(done_in_thread, &zero));
    for (i = 0; i < 50; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++)
        join_thread(t[i]);
    CHECK_EQ(through, 54);
}

TEST(threads_and_goroutines_finish_it_together)
{
    int round, i;
    for (round = 0; round < 30; round++) {
        pthread_t t[3];
        CHECK_EQ(gs_waitgroup_add(&zero, 6), 0);
        for (i = 0; i < 3; i++) {
            go(done, &zero);
            t[i] = start_thread(done_in_thread, &zero);
        }
        CHECK_EQ(gs_waitgroup_wait(&zero, GS_FOREVER), 0);
        for (i = 0; i < 3; i++)
            join_thread(t[i]);
    }
}

/* ---- Reuse: a barrier made of two waitgroups, taken in turn ---- */

#define PARTIES 8

static gs_waitgroup stages[200];
static int stage_of[PARTIES];

static void walk_stages(void *arg)
{
    int *mine = arg, s, i;
    for (s = 0; s < (int)LENGTH(stages); s++) {
        SET(*mine, s);
        done(&stages[s]);
        CHECK_EQ(gs_waitgroup_wait(&stages[s], GS_FOREVER), 0);
        for (i = 0; i < PARTIES; i++) /* all have come as far as this */
            CHECK_GE(GET(stage_of[i]), s);
    }
}

GO_TEST(parties_meet_at_each_stage)
{
    gs_g *gs[PARTIES];
    size_t s;
    int i;
    for (s = 0; s < LENGTH(stages); s++)
        CHECK_EQ(gs_waitgroup_add(&stages[s], PARTIES), 0);
    for (i = 0; i < PARTIES; i++)
        gs[i] = go_ref(walk_stages, &stage_of[i]);
    for (i = 0; i < PARTIES; i++)
        join(gs[i]);
}

/* The wait returns as soon as the count was zero, even if it is used again at once. */
static void done_then_reuse(void *wg)
{
    done(wg);
}

GO_TEST(it_can_be_used_again_at_once)
{
    gs_waitgroup wg;
    int i;
    memset(&wg, 0, sizeof wg);
    for (i = 0; i < 3000; i++) {
        CHECK_EQ(gs_waitgroup_add(&wg, 1), 0);
        go(done_then_reuse, &wg);
        CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    }
}

/* ---- Deadlines ---- */

static void wait_impatiently(void *wg)
{
    CHECK_EQ(gs_waitgroup_wait(wg, gs_after_ms(2)), -ETIMEDOUT);
}

GO_TEST(waiters_that_time_out_do_not_disturb_the_others)
{
    gs_g *gs[40];
    int i;
    SET(through, 0);
    CHECK_EQ(gs_waitgroup_add(&zero, 1), 0);
    for (i = 0; i < 40; i++)
        gs[i] = go_ref(i % 2 ? wait_impatiently : wait_for_it, &zero);
    for (i = 1; i < 40; i += 2)
        join(gs[i]);
    CHECK_EQ(GET(through), 0);
    done(&zero);
    for (i = 0; i < 40; i += 2)
        join(gs[i]);
    CHECK_EQ(through, 20);
}

GO_TEST(deadline_and_done_race)
{
    int i;
    for (i = 0; i < 2000; i++) {
        int r;
        CHECK_EQ(gs_waitgroup_add(&zero, 1), 0);
        go(done, &zero);
        r = gs_waitgroup_wait(&zero, gs_after_ns(i % 50 * 100));
        CHECK(r == 0 || r == -ETIMEDOUT);
        CHECK_EQ(gs_waitgroup_wait(&zero, GS_FOREVER), 0);
    }
}
