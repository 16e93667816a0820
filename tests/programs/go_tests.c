/* What Go's own tests (runtime, sync, time) check and no other program here does. GO_TESTS_LONG=1: more rounds. */
#include "check.h"

static int64_t rounds(int64_t n)
{
    return getenv("GO_TESTS_LONG") ? 20 * n : n;
}

/* ---- runtime/chan_test.go ---- */

static void receive_now(void *ch)
{
    int64_t v;
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT) == -EAGAIN, 0);
}

/* TestNonblockRecvRace: full, then closed, then drained, but at no time without something to receive. */
GO_TEST(a_channel_that_is_closed_while_it_is_full_is_ready_all_the_time)
{
    int64_t i;
    for (i = 0; i < rounds(2000); i++) {
        gs_chan *ch = chan_of_ints(1);
        gs_g *g;
        send_int(ch, 1);
        g = go_ref(receive_now, ch);
        CHECK_EQ(gs_chan_close(ch), 0);
        CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER) == -EAGAIN, 0);
        join(g);
        free_chan(ch);
    }
}

struct pair {
    gs_chan *one, *two, *done;
};

static void select_now(void *arg)
{
    struct pair *p = arg;
    int64_t v, w;
    gs_case cases[2] = {recv_case(p->one, &v), recv_case(p->two, &w)};
    send_int(p->done, gs_select(cases, 2, GS_NOWAIT));
}

static void one_of_two_is_ready(int close_second)
{
    int64_t i;
    struct pair p;
    p.done = chan_of_ints(1);
    for (i = 0; i < rounds(2000); i++) {
        gs_g *g;
        p.one = chan_of_ints(1);
        p.two = chan_of_ints(close_second ? 0 : 1);
        send_int(p.one, 1);
        g = go_ref(select_now, &p);
        if (close_second)
            CHECK_EQ(gs_chan_close(p.two), 0);
        else
            send_int(p.two, 1);
        (void)gs_chan_recv(p.one, NULL, GS_NOWAIT);
        CHECK_GE(recv_int(p.done), 0);
        join(g);
        free_chan(p.one);
        free_chan(p.two);
    }
    free_chan(p.done);
}

/* TestNonblockSelectRace, TestNonblockSelectRace2: the second is ready before the first no longer is. */
GO_TEST(a_select_that_does_not_wait_sees_all_channels_at_one_time)
{
    one_of_two_is_ready(0);
    one_of_two_is_ready(1);
}

/* TestSelectStress */
static gs_chan *stress[4];
static int64_t stress_n;

static void send_to_one(void *ch)
{
    int64_t i;
    for (i = 0; i < stress_n; i++)
        send_int(ch, 0);
}

static void receive_from_one(void *ch)
{
    int64_t i;
    for (i = 0; i < stress_n; i++)
        (void)recv_int(ch);
}

static void select_from_all(int op)
{
    int64_t i, v[4] = {0, 0, 0, 0}, n[4] = {0, 0, 0, 0};
    gs_case cases[4];
    for (i = 0; i < 4; i++)
        cases[i] = op == GS_SEND ? send_case(stress[3 - i], &v[i]) : recv_case(stress[i], &v[i]);
    for (i = 0; i < 4 * stress_n; i++) {
        int k = gs_select(cases, 4, GS_FOREVER);
        CHECK_GE(k, 0);
        CHECK_EQ(cases[k].result, 0);
        if (++n[k] == stress_n)
            cases[k].ch = NULL;
    }
}

static void send_to_all(void *arg)
{
    (void)arg;
    select_from_all(GS_SEND);
}

static void receive_from_all(void *arg)
{
    (void)arg;
    select_from_all(GS_RECV);
}

GO_TEST(selects_and_single_operations_on_four_channels_lose_nothing)
{
    static const size_t caps[4] = {0, 0, 2, 3};
    gs_g *g[10];
    int i;
    stress_n = rounds(5000);
    for (i = 0; i < 4; i++)
        stress[i] = chan_of_ints(caps[i]);
    for (i = 0; i < 4; i++) {
        g[2 * i] = go_ref(send_to_one, stress[i]);
        g[2 * i + 1] = go_ref(receive_from_one, stress[i]);
    }
    g[8] = go_ref(send_to_all, NULL);
    g[9] = go_ref(receive_from_all, NULL);
    for (i = 0; i < 10; i++)
        join(g[i]);
    for (i = 0; i < 4; i++) {
        CHECK_EQ(gs_chan_len(stress[i]), 0);
        free_chan(stress[i]);
    }
}

/* TestPseudoRandomSend */
static void receive_hundred(void *arg)
{
    struct {
        gs_chan *ch;
        int64_t ones;
    } *r = arg;
    int i;
    for (i = 0; i < 100; i++) {
        gs_yield();
        r->ones += recv_int(r->ch);
    }
}

GO_TEST(a_select_sends_either_of_two_values_to_one_channel)
{
    size_t cap;
    for (cap = 0; cap <= 100; cap += 100) {
        struct {
            gs_chan *ch;
            int64_t ones;
        } r = {chan_of_ints(cap), 0};
        int64_t zero = 0, one = 1;
        gs_g *g = go_ref(receive_hundred, &r);
        int i;
        for (i = 0; i < 100; i++) {
            gs_case cases[2] = {send_case(r.ch, &one), send_case(r.ch, &zero)};
            CHECK_GE(gs_select(cases, 2, GS_FOREVER), 0);
        }
        join(g);
        CHECK_GE(r.ones, 11);
        CHECK_LE(r.ones, 89);
        free_chan(r.ch);
    }
}

/* ---- sync/cond_test.go ---- */

static struct {
    gs_mutex m;
    gs_cond c;
    gs_chan *ch;
    int done;
} steal;

static void wait_first(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&steal.m, GS_FOREVER), 0);
    send_int(steal.ch, 0);
    CHECK_EQ(gs_cond_wait(&steal.c, &steal.m, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&steal.m), 0);
    send_int(steal.ch, 0);
}

static void broadcast(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_cond_broadcast(&steal.c), 0);
}

static void wait_second(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&steal.m, GS_FOREVER), 0);
    while (!steal.done)
        CHECK_EQ(gs_cond_wait(&steal.c, &steal.m, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&steal.m), 0);
}

/* TestCondSignalStealing */
GO_TEST(a_later_waiter_does_not_take_the_wake_up_of_an_earlier_one)
{
    int64_t i;
    for (i = 0; i < rounds(500); i++) {
        gs_g *g[3];
        int k;
        memset(&steal, 0, sizeof steal);
        steal.ch = chan_of_ints(0);
        g[0] = go_ref(wait_first, NULL);
        (void)recv_int(steal.ch);
        CHECK_EQ(gs_mutex_lock(&steal.m, GS_FOREVER), 0);
        CHECK_EQ(gs_mutex_unlock(&steal.m), 0);
        g[1] = go_ref(broadcast, NULL);
        g[2] = go_ref(wait_second, NULL);
        (void)recv_int(steal.ch);
        CHECK_EQ(gs_mutex_lock(&steal.m, GS_FOREVER), 0);
        steal.done = 1;
        CHECK_EQ(gs_mutex_unlock(&steal.m), 0);
        CHECK_EQ(gs_cond_broadcast(&steal.c), 0);
        for (k = 0; k < 3; k++)
            join(g[k]);
        free_chan(steal.ch);
    }
}

/* TestCondSignalGenerations */
static struct {
    gs_mutex m;
    gs_cond c;
    gs_chan *running, *awake;
} gen;

static void wait_in_turn(void *id)
{
    CHECK_EQ(gs_mutex_lock(&gen.m, GS_FOREVER), 0);
    send_int(gen.running, 1);
    CHECK_EQ(gs_cond_wait(&gen.c, &gen.m, GS_FOREVER), 0);
    send_int(gen.awake, (intptr_t)id);
    CHECK_EQ(gs_mutex_unlock(&gen.m), 0);
}

GO_TEST(each_signal_wakes_the_one_that_has_waited_longest)
{
    intptr_t i;
    gen.running = chan_of_ints(100);
    gen.awake = chan_of_ints(100);
    for (i = 0; i < 100; i++) {
        go(wait_in_turn, (void *)i);
        if (i > 0)
            CHECK_EQ(recv_int(gen.awake), i - 1);
        (void)recv_int(gen.running);
        CHECK_EQ(gs_mutex_lock(&gen.m, GS_FOREVER), 0);
        CHECK_EQ(gs_cond_signal(&gen.c), 0);
        CHECK_EQ(gs_mutex_unlock(&gen.m), 0);
    }
    CHECK_EQ(recv_int(gen.awake), 99);
    while (gs_num_goroutines() > 1)
        gs_yield();
    free_chan(gen.running);
    free_chan(gen.awake);
}

/* ---- sync/mutex_test.go: TestMutexFairness ---- */

static gs_mutex fair;
static int fair_stop;

static void hold_most_of_the_time(void *arg)
{
    (void)arg;
    while (!GET(fair_stop)) {
        CHECK_EQ(gs_mutex_lock(&fair, GS_FOREVER), 0);
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(gs_mutex_unlock(&fair), 0);
    }
}

GO_TEST(a_mutex_that_is_held_most_of_the_time_can_be_had)
{
    gs_g *g;
    int i;
    SET(fair_stop, 0);
    g = go_ref(hold_most_of_the_time, NULL);
    for (i = 0; i < 10; i++) {
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(gs_mutex_lock(&fair, GS_FOREVER), 0);
        CHECK_EQ(gs_mutex_unlock(&fair), 0);
    }
    SET(fair_stop, 1);
    join(g);
}

/* ---- time/sleep_test.go ---- */

static void send_fired(void *ch)
{
    send_int(ch, 1);
}

/* TestTimerModifiedEarlier */
GO_TEST(a_timer_that_is_moved_to_the_past_fires)
{
    gs_chan *ch = chan_of_ints(1);
    int64_t i;
    for (i = 0; i < rounds(500); i++) {
        gs_timer *t = gs_timer_start(3600 * SEC, send_fired, ch);
        int64_t j, v;
        CHECK(t != NULL);
        for (j = 0; j < 10; j++) {
            if (gs_timer_stop(t) == 0)
                (void)recv_int(ch);
            CHECK_EQ(gs_timer_reset(t, -1000 * SEC), 0);
        }
        CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(30000)), 0);
        CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_timer_free(t), 0);
    }
    free_chan(ch);
}

/* TestAdjustTimers */
GO_TEST(timers_in_any_state_can_be_reset_and_stopped)
{
    enum { N = 100 };
    gs_timer *timers[N];
    gs_chan *fired[N];
    int states[N] = {0}, left[N], n = N, i;
    uint64_t s = random_seed();
    for (i = 0; i < N; i++) {
        left[i] = i;
        fired[i] = chan_of_ints(1);
    }
    while (n > 0) {
        int at = (int)(random_next(&s) % (uint64_t)n);
        i = left[at];
        switch (states[i]++) {
        case 0:
            timers[i] = gs_timer_start(0, send_fired, fired[i]);
            CHECK(timers[i] != NULL);
            break;
        case 1:
        case 9:
            (void)recv_int(fired[i]);
            break;
        case 2:
        case 4:
        case 6:
            CHECK_EQ(gs_timer_reset(timers[i], 60 * SEC * (1 + states[i] % 3)), 0);
            break;
        case 3:
        case 5:
        case 7:
            CHECK_EQ(gs_timer_stop(timers[i]), 1);
            break;
        case 8:
            CHECK_EQ(gs_timer_reset(timers[i], 0), 0);
            break;
        default:
            left[at] = left[--n];
        }
    }
    for (i = 0; i < N; i++) {
        CHECK_EQ(gs_timer_free(timers[i]), 0);
        free_chan(fired[i]);
    }
}

/* TestStopResult, TestResetResult: who is told that a timer had fired can wait for what it does. */
struct two_timers {
    int resets;
    gs_waitgroup *wg;
};

static void stop_the_other(void *arg)
{
    struct two_timers *a = arg;
    int j;
    for (j = 0; j < 10; j++) {
        gs_chan *ch[2] = {chan_of_ints(2), chan_of_ints(2)};
        gs_timer *t[2] = {gs_timer_start(MS, send_fired, ch[0]), gs_timer_start(MS, send_fired, ch[1])};
        int64_t v;
        gs_case cases[2] = {recv_case(ch[0], &v), recv_case(ch[1], &v)};
        int k, other;
        CHECK(t[0] != NULL && t[1] != NULL);
        k = gs_select(cases, 2, GS_FOREVER);
        CHECK_GE(k, 0);
        other = 1 - k;
        if ((a->resets ? gs_timer_reset(t[other], 3600 * SEC) : gs_timer_stop(t[other])) == 0)
            (void)recv_int(ch[other]);
        for (k = 0; k < 2; k++) {
            CHECK_EQ(gs_chan_recv(ch[k], &v, GS_NOWAIT), -EAGAIN);
            CHECK_EQ(gs_timer_stop_wait(t[k], GS_FOREVER), a->resets && k == other);
            CHECK_EQ(gs_timer_free(t[k]), 0);
            free_chan(ch[k]);
        }
    }
    CHECK_EQ(gs_waitgroup_done(a->wg), 0);
}

GO_TEST(what_stop_and_reset_say_of_a_timer_is_true)
{
    int resets, i;
    for (resets = 0; resets < 2; resets++) {
        gs_waitgroup wg = {{0}};
        struct two_timers a = {resets, &wg};
        CHECK_EQ(gs_waitgroup_add(&wg, 200), 0);
        for (i = 0; i < 200; i++)
            go(stop_the_other, &a);
        CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    }
    while (gs_num_goroutines() > 1)
        gs_yield();
}

/* TestAfterFuncStarvation, TestTimerFairness: with one P too. */
static int starve_stop;

static void set_starve_stop(void *arg)
{
    (void)arg;
    SET(starve_stop, 1);
}

static void send_till_stopped(void *ch)
{
    while (!GET(starve_stop))
        send_int(ch, 1);
    CHECK_EQ(gs_chan_close(ch), 0);
}

static void receive_till_closed(void *ch)
{
    while (gs_chan_recv(ch, NULL, GS_FOREVER) == 0)
        ;
}

GO_TEST(two_that_always_have_work_do_not_keep_a_timer_from_running)
{
    int i;
    for (i = 0; i < 20; i++) {
        gs_chan *ch = chan_of_ints(1);
        gs_timer *t;
        gs_g *a, *b;
        SET(starve_stop, 0);
        a = go_ref(send_till_stopped, ch);
        b = go_ref(receive_till_closed, ch);
        t = gs_timer_start(US, set_starve_stop, NULL);
        CHECK(t != NULL);
        join(a);
        join(b);
        CHECK_EQ(gs_timer_stop_wait(t, GS_FOREVER), 0);
        CHECK_EQ(gs_timer_free(t), 0);
        free_chan(ch);
    }
}

/* TestTimerFairness2 */
static void exchange_until_timeout(void *ch)
{
    gs_chan *timer = gs_after(20 * MS);
    int64_t v = 1, w, t;
    CHECK(timer != NULL);
    for (;;) {
        gs_case cases[3] = {send_case(ch, &v), recv_case(ch, &w), recv_case(timer, &t)};
        int k;
        gs_entersyscall();
        gs_exitsyscall();
        k = gs_select(cases, 3, GS_FOREVER);
        CHECK_GE(k, 0);
        if (k == 2)
            break;
    }
    free_chan(timer);
}

GO_TEST(two_that_exchange_values_hear_their_timers)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *a = go_ref(exchange_until_timeout, ch), *b = go_ref(exchange_until_timeout, ch);
    join(a);
    join(b);
    free_chan(ch);
}

/* TestSleepZeroDeadlock, TestOverflowSleep */
GO_TEST(sleeps_of_no_time_and_timers_of_the_longest_time)
{
    gs_chan *ch = chan_of_ints(1), *after = gs_after(INT64_MAX);
    gs_timer *t = gs_timer_start(INT64_MAX, send_fired, ch);
    int i;
    CHECK(after != NULL && t != NULL);
    for (i = 0; i < 100; i++)
        CHECK_EQ(gs_sleep(0), 0);
    CHECK_EQ(gs_sleep(INT64_MIN), 0);
    CHECK_EQ(gs_chan_recv(after, NULL, gs_after_ms(5)), -ETIMEDOUT);
    CHECK_EQ(gs_timer_reset(t, INT64_MAX), 1);
    CHECK_EQ(gs_timer_reset(t, INT64_MIN), 1);
    CHECK_EQ(recv_int(ch), 1);
    CHECK_EQ(gs_timer_free(t), 0);
    free_chan(after);
    free_chan(ch);
}
