/* Sleeping, timers, gs_after and tickers. Lower bounds only: never how late something may be. */
#include "check.h"
#include <dlfcn.h>

/* ---- Sleep ---- */

static void check_sleep(void)
{
    static const int64_t lengths[] = {1, 1000, 50 * US, MS, 3 * MS, 7777777};
    size_t i;
    for (i = 0; i < LENGTH(lengths); i++) {
        int64_t start = gs_now();
        CHECK_EQ(gs_sleep(lengths[i]), 0);
        CHECK_GE(gs_now(), start + lengths[i]);
    }
    CHECK_EQ(gs_sleep(0), 0);
    CHECK_EQ(gs_sleep(-1), 0);
    CHECK_EQ(gs_sleep(INT64_MIN), 0);
    CHECK_EQ(gs_sleep_until(GS_NOWAIT), 0);
    CHECK_EQ(gs_sleep_until(-2), 0);
    CHECK_EQ(gs_sleep_until(gs_now()), 0);
    {
        gs_deadline then = gs_after_ms(5);
        CHECK_EQ(gs_sleep_until(then), 0);
        CHECK_GE(gs_now(), then);
    }
}

GO_TEST(a_sleep_lasts_at_least_its_time)
{
    check_sleep();
}

TEST(a_sleep_of_a_plain_thread_lasts_at_least_its_time)
{
    check_sleep();
}

static void sleep_for_ever(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep_until(GS_FOREVER), -ECANCELED);
    CHECK_EQ(gs_sleep(INT64_MAX), -ECANCELED);
}

GO_TEST(a_sleep_may_be_endless)
{
    gs_g *g = go_ref(sleep_for_ever, NULL);
    until_parked(g);
    CHECK_EQ(gs_join(g, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

static int asleep;

static void sleep_a_while(void *arg)
{
    (void)arg;
    ADD(asleep, 1);
    CHECK_EQ(gs_sleep(10 * MS), 0);
}

/* seed: B2 (a timer costs no running P) */
GO_TEST(others_run_while_goroutines_sleep)
{
    int procs = gs_gomaxprocs(1), i;
    gs_g *gs[50];
    SET(asleep, 0);
    for (i = 0; i < 50; i++)
        gs[i] = go_ref(sleep_a_while, NULL);
    YIELD_UNTIL(GET(asleep) == 50);
    for (i = 0; i < 50; i++)
        join(gs[i]);
    gs_gomaxprocs(procs);
}

/* ---- gs_timer_start ---- */

struct shot {
    int fired;
    int64_t at;
    uint64_t id;
};

static void fire(void *arg)
{
    struct shot *s = arg;
    SET(s->at, gs_now());
    SET(s->id, gs_id(gs_self()));
    ADD(s->fired, 1);
}

static gs_timer *start(int64_t ns, gs_fn fn, void *arg)
{
    gs_timer *t = gs_timer_start(ns, fn, arg);
    CHECK(t != NULL);
    return t;
}

static void free_timer(gs_timer *t)
{
    CHECK_EQ(gs_timer_free(t), 0);
}

GO_TEST(a_timer_fires_after_its_time_in_a_goroutine_of_its_own)
{
    struct shot s = {0, 0, 0};
    int64_t begin = gs_now();
    gs_timer *t = start(3 * MS, fire, &s);
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_GE(s.at, begin + 3 * MS);
    CHECK(s.id != 0 && s.id != gs_id(gs_self()));
    CHECK_EQ(gs_sleep(5 * MS), 0);
    CHECK_EQ(GET(s.fired), 1);
    free_timer(t);
}

GO_TEST(a_timer_of_zero_or_less_fires_at_once)
{
    static const int64_t none[] = {0, -1, INT64_MIN};
    size_t i;
    for (i = 0; i < LENGTH(none); i++) {
        struct shot s = {0, 0, 0};
        gs_timer *t = start(none[i], fire, &s);
        WAIT_UNTIL(GET(s.fired) == 1);
        CHECK_EQ(gs_timer_stop(t), 0);
        free_timer(t);
    }
}

GO_TEST(a_timer_without_a_function_is_NULL)
{
    CHECK(gs_timer_start(MS, NULL, NULL) == NULL);
    CHECK(gs_timer_start(0, NULL, NULL) == NULL);
}

static void keep_goroutine(void *g)
{
    SET(*(gs_g **)g, gs_retain(gs_self()));
}

/* What the goroutine's argument was is known as long as there is a reference, though the timer is gone and others have its
   memory. */
GO_TEST(a_goroutine_outlives_the_timer_that_has_made_it)
{
    enum { OTHERS = 8 };
    gs_timer *t, *others[OTHERS];
    gs_g *g = NULL;
    gs_g_info info;
    int i;
    t = start(0, keep_goroutine, &g);
    WAIT_UNTIL(GET(g) != NULL);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    free_timer(t);
    for (i = 0; i < OTHERS; i++)
        others[i] = start(3600 * SEC, fire, &others[i]);
    CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    CHECK_EQ(info.state, GS_G_ENDED);
    CHECK(info.arg == &g);
    gs_release(g);
    for (i = 0; i < OTHERS; i++)
        free_timer(others[i]);
}

static void block_in_timer(void *arg)
{
    CHECK_EQ(gs_sleep(MS), 0);
    send_int(arg, 5);
}

GO_TEST(the_function_of_a_timer_may_block)
{
    gs_chan *ch = chan_of_ints(0);
    gs_timer *t = start(MS, block_in_timer, ch);
    CHECK_EQ(recv_int(ch), 5);
    free_timer(t);
    free_chan(ch);
}

/* ---- Stop ---- */

static void must_not_fire(void *arg)
{
    (void)arg;
    CHECK(!"a stopped timer has fired");
}

GO_TEST(stop_gives_1_if_it_was_still_to_fire)
{
    gs_timer *t = start(3600 * SEC, must_not_fire, NULL);
    CHECK_EQ(gs_timer_stop(t), 1);
    CHECK_EQ(gs_timer_stop(t), 0);
    CHECK_EQ(gs_timer_stop(t), 0);
    free_timer(t);
}

GO_TEST(stop_gives_0_after_it_has_fired)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(MS, fire, &s);
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_EQ(gs_timer_stop(t), 0);
    free_timer(t);
}

GO_TEST(a_timer_that_is_freed_does_not_fire)
{
    static struct shot late[50];
    int in_time[50], i;
    for (i = 0; i < 50; i++)
        free_timer(start(3600 * SEC, must_not_fire, NULL));
    for (i = 0; i < 50; i++) {
        gs_timer *t = start(20 * MS, fire, &late[i]);
        in_time[i] = gs_timer_stop(t);
        free_timer(t);
    }
    CHECK_EQ(gs_sleep(30 * MS), 0);
    for (i = 0; i < 50; i++)
        WAIT_UNTIL(in_time[i] + GET(late[i].fired) == 1);
}

/* Either the stop was in time or the function runs, never both and never neither. */
GO_TEST(stop_and_firing_race)
{
    int i, in_time = 0, fired = 0;
    for (i = 0; i < 1500; i++) {
        struct shot s = {0, 0, 0};
        gs_timer *t = start(i % 30 * US, fire, &s);
        int r;
        if (i % 3)
            gs_yield();
        else
            CHECK_EQ(gs_sleep(i % 15 * US), 0);
        r = gs_timer_stop(t);
        CHECK(r == 0 || r == 1);
        if (r == 0)
            WAIT_UNTIL(GET(s.fired) == 1);
        in_time += r;
        fired += GET(s.fired);
        free_timer(t);
        CHECK_EQ(r + GET(s.fired), 1);
    }
    CHECK_EQ(in_time + fired, 1500);
}

/* ---- Reset ---- */

GO_TEST(reset_gives_1_while_it_is_still_to_fire)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(3600 * SEC, fire, &s);
    int64_t begin = gs_now();
    CHECK_EQ(gs_timer_reset(t, 3600 * SEC), 1);
    CHECK_EQ(gs_timer_reset(t, 3 * MS), 1);
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_GE(s.at, begin + 3 * MS);
    CHECK_EQ(gs_sleep(2 * MS), 0);
    CHECK_EQ(GET(s.fired), 1);
    free_timer(t);
}

GO_TEST(reset_makes_a_fired_timer_fire_again)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(0, fire, &s);
    int i;
    for (i = 1; i <= 20; i++) {
        WAIT_UNTIL(GET(s.fired) == i);
        CHECK_EQ(gs_timer_reset(t, i % 3 * 100 * US), 0);
    }
    WAIT_UNTIL(GET(s.fired) == 21);
    free_timer(t);
}

GO_TEST(reset_makes_a_stopped_timer_fire)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(3600 * SEC, fire, &s);
    CHECK_EQ(gs_timer_stop(t), 1);
    CHECK_EQ(gs_timer_reset(t, MS), 0);
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_EQ(gs_timer_stop(t), 0);
    free_timer(t);
}

GO_TEST(reset_to_a_negative_time_fires_at_once)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(3600 * SEC, fire, &s);
    CHECK_EQ(gs_timer_reset(t, -5), 1);
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_EQ(gs_timer_reset(t, INT64_MIN), 0);
    WAIT_UNTIL(GET(s.fired) == 2);
    free_timer(t);
}

GO_TEST(reset_to_a_later_time_puts_it_off)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(20 * MS, fire, &s);
    int64_t begin = gs_now();
    if (gs_timer_reset(t, 60 * MS) != 1)
        SKIP("the machine stood still for 20 ms");
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_GE(s.at, begin + 60 * MS);
    free_timer(t);
}

/* As a deadline that moves on with each request. */
GO_TEST(a_timer_that_is_put_off_again_and_again_fires_once)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(3600 * SEC, fire, &s);
    int64_t last = 0;
    int i;
    CHECK_EQ(gs_timer_reset(t, 5 * MS), 1);
    for (i = 0; i < 2000 && GET(s.fired) == 0; i++) {
        last = gs_now();
        if (gs_timer_reset(t, 5 * MS) != 1)
            SKIP("the machine stood still for 5 ms");
        if (i % 100 == 0)
            CHECK_EQ(gs_sleep(1 * MS), 0);
    }
    WAIT_UNTIL(GET(s.fired) == 1);
    CHECK_GE(s.at, last + 5 * MS);
    CHECK_EQ(gs_sleep(10 * MS), 0);
    CHECK_EQ(GET(s.fired), 1);
    /* Put off, and then sooner again, at once, or not at all. */
    CHECK_EQ(gs_timer_reset(t, 1800 * SEC), 0);
    CHECK_EQ(gs_timer_reset(t, 3600 * SEC), 1);
    CHECK_EQ(gs_timer_reset(t, 1 * MS), 1);
    WAIT_UNTIL(GET(s.fired) == 2);
    CHECK_EQ(gs_timer_reset(t, 1800 * SEC), 0);
    CHECK_EQ(gs_timer_reset(t, 3600 * SEC), 1);
    CHECK_EQ(gs_timer_reset(t, 0), 1);
    WAIT_UNTIL(GET(s.fired) == 3);
    CHECK_EQ(gs_timer_reset(t, 2 * MS), 0);
    if (gs_timer_reset(t, 3 * MS) != 1 || gs_timer_stop(t) != 1)
        SKIP("the machine stood still for 3 ms");
    CHECK_EQ(gs_sleep(10 * MS), 0);
    CHECK_EQ(GET(s.fired), 3);
    free_timer(t);
}

/* Its entry is gone with the first runtime. */
TEST(a_timer_of_a_former_runtime_is_put_off)
{
    struct shot s = {0, 0, 0};
    gs_timer *t = start(3600 * SEC, fire, &s);
    CHECK_EQ(gs_timer_reset(t, 3601 * SEC), 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_init(NULL), 0);
    CHECK_GE(gs_timer_reset(t, 3602 * SEC), 0);
    CHECK_GE(gs_timer_reset(t, 1 * MS), 0);
    NAP_UNTIL(GET(s.fired) == 1);
    free_timer(t);
}

/* To a time at which the entry of the former runtime would have done. */
TEST(a_timer_of_a_former_runtime_fires_after_it_was_put_off)
{
    int i;
    for (i = 0; i < 5; i++) {
        struct shot s = {0, 0, 0};
        gs_timer *t = start(10 * MS, fire, &s);
        int before;
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        before = GET(s.fired); /* 1, if the machine stood still */
        CHECK_EQ(gs_init(NULL), 0);
        CHECK_GE(gs_timer_reset(t, 20 * MS), 0);
        NAP_UNTIL(GET(s.fired) == before + 1);
        free_timer(t);
    }
}

/* A thread of the scheduler sleeps until the later one is due. */
TEST(a_timer_that_is_due_before_all_others_wakes_the_scheduler)
{
    int i;
    for (i = 0; i < 3; i++) {
        struct shot s = {0, 0, 0};
        gs_timer *late, *soon;
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        late = start(3600 * SEC, must_not_fire, NULL);
        nap(50 * MS); /* all sleep by now, sysmon too */
        soon = start(MS, fire, &s);
        NAP_UNTIL(GET(s.fired) == 1);
        CHECK_EQ(gs_timer_stop(late), 1);
        free_timer(soon);
        free_timer(late);
    }
}

/* ---- From inside its own function ---- */

struct self_timer {
    gs_timer *t;
    int ready, count, result;
};

static void stop_itself(void *arg)
{
    struct self_timer *s = arg;
    WAIT_UNTIL(GET(s->ready));
    s->result = gs_timer_stop(s->t);
    ADD(s->count, 1);
}

GO_TEST(stop_inside_its_function_gives_0)
{
    struct self_timer s = {NULL, 0, 0, -1};
    s.t = start(0, stop_itself, &s);
    SET(s.ready, 1);
    WAIT_UNTIL(GET(s.count) == 1);
    CHECK_EQ(s.result, 0);
    free_timer(s.t);
}

static void start_itself_again(void *arg)
{
    struct self_timer *s = arg;
    WAIT_UNTIL(GET(s->ready));
    if (GET(s->count) < 19)
        CHECK_EQ(gs_timer_reset(s->t, 100 * US), 0);
    ADD(s->count, 1);
}

GO_TEST(reset_inside_its_function_makes_it_periodic)
{
    struct self_timer s = {NULL, 0, 0, -1};
    s.t = start(0, start_itself_again, &s);
    SET(s.ready, 1);
    WAIT_UNTIL(GET(s.count) == 20);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(GET(s.count), 20);
    free_timer(s.t);
}

/* ---- gs_timer_stop_wait ---- */

/* What the function of a timer uses, freed as soon as it doesn't run any more. */
struct used {
    gs_timer *t;
    int may_end, running, runs, again, by_exit, result;
};

static void use(void *arg)
{
    struct used *u = arg;
    ADD(u->running, 1);
    while (!GET(u->may_end))
        (void)gs_sleep(50 * US);
    if (u->again > 0) {
        u->again--;
        CHECK_EQ(gs_timer_reset(u->t, u->again % 4 ? 20 * US : 3600 * SEC), 0);
    }
    ADD(u->runs, 1);
    ADD(u->running, -1);
    if (u->by_exit)
        gs_exit();
}

GO_TEST(stop_wait_gives_1_if_it_was_still_to_fire)
{
    struct used u = {NULL, 0, 0, 0, 0, 0, 0};
    u.t = start(3600 * SEC, use, &u);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_NOWAIT), 1);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_NOWAIT), 0);
    CHECK_EQ(gs_timer_stop_wait(u.t, 1), 0);
    CHECK_EQ(gs_timer_stop_wait(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(u.runs, 0);
    free_timer(u.t);
}

static void let_end(void *arg)
{
    SET(((struct used *)arg)->may_end, 1);
}

/* It was to fire when the call began; by the time its function has ended it is stopped. */
GO_TEST(stop_wait_gives_1_after_a_wait_if_it_was_still_to_fire_before)
{
    struct used u = {NULL, 0, 0, 0, 0, 0, 0};
    gs_g *g;
    u.t = start(0, use, &u);
    WAIT_UNTIL(GET(u.running) == 1);
    CHECK_EQ(gs_timer_reset(u.t, 3600 * SEC), 0);
    g = go_ref(let_end, &u);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_FOREVER), 1);
    CHECK_EQ(u.runs, 1);
    join(g);
    free_timer(u.t);
}

static void *let_end_soon(void *arg)
{
    nap(2 * MS);
    SET(((struct used *)arg)->may_end, 1);
    return NULL;
}

static void check_stop_wait(int by_exit)
{
    struct used u = {NULL, 0, 0, 0, 0, 0, 0};
    pthread_t t;
    u.by_exit = by_exit;
    u.t = start(0, use, &u);
    NAP_UNTIL(GET(u.running) == 1);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_timer_stop_wait(u.t, gs_after_ms(1)), -ETIMEDOUT);
    t = start_thread(let_end_soon, &u);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_FOREVER), 0);
    CHECK_EQ(GET(u.running), 0);
    CHECK_EQ(GET(u.runs), 1);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_NOWAIT), 0);
    CHECK_EQ(gs_timer_reset(u.t, 3600 * SEC), 0);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_FOREVER), 1);
    free_timer(u.t);
    if (gs_self())
        go_join_thread(t);
    else
        join_thread(t);
}

GO_TEST(stop_wait_returns_when_the_function_has_ended)
{
    int procs = gs_gomaxprocs(0);
    if (procs == 1)
        gs_gomaxprocs(2); /* this one naps until the function runs */
    check_stop_wait(0);
    check_stop_wait(1); /* in whatever way */
    gs_gomaxprocs(procs);
}

TEST(stop_wait_works_on_a_plain_thread)
{
    check_stop_wait(0);
    check_stop_wait(1);
}

static void *stop_wait_in_blocking(void *t)
{
    return (void *)(intptr_t)gs_timer_stop_wait(t, GS_FOREVER);
}

static void stop_wait_itself(void *arg)
{
    struct self_timer *s = arg;
    WAIT_UNTIL(GET(s->ready));
    s->result = gs_timer_stop_wait(s->t, GS_FOREVER);
    CHECK_EQ((intptr_t)gs_blocking(stop_wait_in_blocking, s->t), -EDEADLK);
    CHECK_EQ(gs_timer_reset(s->t, 3600 * SEC), 0);
    CHECK_EQ(gs_timer_stop_wait(s->t, GS_NOWAIT), -EDEADLK);
    CHECK_EQ(gs_timer_reset(s->t, 3600 * SEC), 1); /* it was not stopped */
    ADD(s->count, 1);
}

GO_TEST(a_timer_does_not_wait_for_its_own_function)
{
    struct self_timer s = {NULL, 0, 0, 0};
    s.t = start(0, stop_wait_itself, &s);
    SET(s.ready, 1);
    WAIT_UNTIL(GET(s.count) == 1);
    CHECK_EQ(s.result, -EDEADLK);
    CHECK_EQ(gs_timer_stop_wait(s.t, GS_FOREVER), 1);
    free_timer(s.t);
}

/* Starts of the function's own are stopped too. */
GO_TEST(stop_wait_ends_a_timer_that_starts_itself_again)
{
    int i;
    for (i = 0; i < 100; i++) {
        struct used *u = calloc(1, sizeof *u);
        int r;
        CHECK(u != NULL);
        u->again = 1 << 30;
        u->may_end = 1;
        u->t = start(3600 * SEC, use, u); /* its function uses this */
        CHECK_EQ(gs_timer_reset(u->t, 50 * US), 1);
        CHECK_EQ(gs_sleep((int64_t)(i % 20) * 20 * US), 0);
        r = gs_timer_stop_wait(u->t, GS_FOREVER);
        CHECK(r == 0 || r == 1);
        CHECK_EQ(GET(u->running), 0);
        free_timer(u->t);
        memset(u, 0xff, sizeof *u);
        free(u);
    }
}

static void wait_too(void *arg)
{
    struct used *u = arg;
    int r = gs_timer_stop_wait(u->t, GS_FOREVER);
    CHECK(r == 0 || r == 1);
    CHECK_EQ(GET(u->running), 0);
}

static void give_up_soon(void *arg)
{
    struct used *u = arg;
    int r = gs_timer_stop_wait(u->t, gs_after_us(100));
    CHECK(r == 0 || r == 1 || r == -ETIMEDOUT);
}

GO_TEST(several_wait_for_one_timer)
{
    int i, k;
    for (i = 0; i < 50; i++) {
        struct used u = {NULL, 0, 0, 0, 0, 0, 0};
        gs_g *g[6];
        u.t = start(0, use, &u);
        if (i % 2)
            WAIT_UNTIL(GET(u.running) == 1);
        for (k = 0; k < 6; k++)
            g[k] = go_ref(k % 3 == 2 ? give_up_soon : wait_too, &u);
        CHECK_EQ(gs_sleep((int64_t)(i % 5) * 50 * US), 0);
        SET(u.may_end, 1);
        for (k = 0; k < 6; k++)
            join(g[k]);
        CHECK_EQ(gs_timer_stop_wait(u.t, GS_FOREVER), 0);
        free_timer(u.t);
    }
}

static void wait_cancelled(void *arg)
{
    struct used *u = arg;
    u->result = gs_timer_stop_wait(u->t, GS_FOREVER);
}

GO_TEST(a_wait_for_a_timer_can_be_cancelled)
{
    struct used u = {NULL, 0, 0, 0, 0, 0, 0};
    gs_g *g;
    u.t = start(0, use, &u);
    WAIT_UNTIL(GET(u.running) == 1);
    g = go_ref(wait_cancelled, &u);
    CHECK_EQ(gs_sleep(200 * US), 0);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
    CHECK_EQ(u.result, -ECANCELED);
    SET(u.may_end, 1);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_FOREVER), 0);
    free_timer(u.t);
}

/* In the child of a fork the function doesn't run. */
TEST(a_child_does_not_wait_for_the_function_of_a_timer_of_its_parent)
{
    struct used u = {NULL, 0, 0, 0, 0, 0, 0};
    int status;
    pid_t pid;
    u.t = start(0, use, &u);
    NAP_UNTIL(GET(u.running) == 1);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        if (gs_timer_stop_wait(u.t, GS_FOREVER) != 0)
            _exit(1);
        CHECK_EQ(gs_sleep(MS), 0);
        _exit(gs_timer_stop_wait(u.t, GS_FOREVER) == 0 && gs_timer_reset(u.t, 3600 * SEC) == 0 &&
                      gs_timer_stop_wait(u.t, GS_FOREVER) == 1 ? 0 : 2);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    /* The child's own call is the only one that counts there. */
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        SET(u.may_end, 1);
        CHECK_EQ(gs_timer_reset(u.t, 0), 0);
        NAP_UNTIL(GET(u.runs) == 1);
        _exit(gs_timer_stop_wait(u.t, GS_FOREVER) == 0 ? 0 : 3);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    SET(u.may_end, 1);
    CHECK_EQ(gs_timer_stop_wait(u.t, GS_FOREVER), 0);
    free_timer(u.t);
}

static void free_itself(void *arg)
{
    struct self_timer *s = arg;
    WAIT_UNTIL(GET(s->ready));
    free_timer(s->t);
    ADD(s->count, 1);
}

GO_TEST(a_timer_may_be_freed_by_its_function)
{
    int i;
    for (i = 0; i < 100; i++) {
        struct self_timer s = {NULL, 0, 0, 0};
        s.t = start(i % 2 * 10 * US, free_itself, &s);
        SET(s.ready, 1);
        WAIT_UNTIL(GET(s.count) == 1);
    }
}

/* ---- Order ---- */

GO_TEST(timers_started_in_any_order_fire_at_their_times)
{
    static const int order[] = {3, 0, 4, 1, 2};
    struct shot shots[5];
    gs_timer *t[5];
    int64_t begin = gs_now();
    int i;
    memset(shots, 0, sizeof shots);
    for (i = 0; i < 5; i++)
        t[order[i]] = start((1 + 7 * order[i]) * MS, fire, &shots[order[i]]);
    for (i = 0; i < 5; i++) {
        WAIT_UNTIL(GET(shots[i].fired) == 1);
        CHECK_GE(shots[i].at, begin + (1 + 7 * i) * MS);
        free_timer(t[i]);
    }
}

static gs_waitgroup wg;

static void sleep_in_steps(void *arg)
{
    int me = (int)(intptr_t)arg, i;
    for (i = 0; i < 40; i++) {
        int64_t ns = (i * 7 + me) % 11 * 100 * US, begin = gs_now();
        CHECK_EQ(gs_sleep(ns), 0);
        CHECK_GE(gs_now(), begin + ns);
    }
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
}

GO_TEST(many_sleepers_each_sleep_their_time)
{
    intptr_t i;
    CHECK_EQ(gs_waitgroup_add(&wg, 8), 0);
    for (i = 0; i < 8; i++)
        go(sleep_in_steps, (void *)i);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
}

/* ---- Thousands ---- */

#define MANY 4000

static gs_timer *timers[MANY];
static struct shot shots[MANY];

static void check_many(int stop_every)
{
    int i, stopped = 0, fired = 0;
    uint64_t r = random_seed();
    memset(shots, 0, sizeof shots);
    for (i = 0; i < MANY; i++)
        timers[i] = start((int64_t)(random_next(&r) % (50 * MS)), fire, &shots[i]);
    for (i = 0; i < MANY; i += stop_every)
        stopped += gs_timer_stop(timers[i]);
    for (i = 0; i < MANY; i++)
        if (i % stop_every)
            WAIT_UNTIL(GET(shots[i].fired) == 1);
    CHECK_EQ(gs_sleep(60 * MS), 0);
    for (i = 0; i < MANY; i++) {
        fired += GET(shots[i].fired);
        free_timer(timers[i]);
    }
    CHECK_EQ(fired + stopped, MANY);
}

GO_TEST(thousands_of_timers_each_fire_once_or_are_stopped)
{
    check_many(MANY);
    check_many(2);
}

static void *many_from_a_thread(void *arg)
{
    int me = (int)(intptr_t)arg, i;
    for (i = me; i < MANY; i += 4)
        timers[i] = start(i % 100 * 100 * US, fire, &shots[i]);
    for (i = me; i < MANY; i += 4) {
        NAP_UNTIL(GET(shots[i].fired) == 1);
        CHECK_EQ(gs_timer_stop(timers[i]), 0);
        free_timer(timers[i]);
    }
    return NULL;
}

TEST(threads_start_timers)
{
    pthread_t t[4];
    intptr_t i;
    memset(shots, 0, sizeof shots);
    for (i = 0; i < 4; i++)
        t[i] = start_thread(many_from_a_thread, (void *)i);
    for (i = 0; i < 4; i++)
        join_thread(t[i]);
}

/* Stopped and reset by one while they fire on another. */
static void disturb(void *arg)
{
    uint64_t r = (uint64_t)(uintptr_t)arg + 1;
    int i;
    for (i = 0; i < 2000; i++) {
        gs_timer *t = timers[random_next(&r) % 20];
        if (random_next(&r) % 2)
            CHECK_GE(gs_timer_stop(t), 0);
        else
            CHECK_GE(gs_timer_reset(t, (int64_t)(random_next(&r) % 50000)), 0);
        if (i % 20 == 0)
            gs_yield();
    }
}

GO_TEST(timers_are_stopped_and_reset_by_many_at_once)
{
    gs_g *gs[6];
    intptr_t i;
    memset(shots, 0, sizeof shots);
    for (i = 0; i < 20; i++)
        timers[i] = start(50 * US, fire, &shots[i]);
    for (i = 0; i < 6; i++)
        gs[i] = go_ref(disturb, (void *)i);
    for (i = 0; i < 6; i++)
        join(gs[i]);
    for (i = 0; i < 20; i++) {
        (void)gs_timer_stop(timers[i]);
        CHECK_EQ(gs_timer_reset(timers[i], 3600 * SEC), 0);
        CHECK_EQ(gs_timer_stop(timers[i]), 1);
        free_timer(timers[i]);
    }
    WAIT_UNTIL(gs_num_goroutines() == 1); /* those that fired last */
}

/* A timer that was stopped stays in the heap of its P until enough others there were stopped too. */
GO_TEST(timers_that_were_stopped_leave_no_memory_behind)
{
    const int warm = 1000, n = 200000;
    long before = 0;
    int i;
    for (i = 0; i < warm + n; i++) {
        if (i == warm)
            before = resident_kib();
        free_timer(start(3600 * SEC, fire, NULL));
    }
    CHECK_LE(resident_kib(), before + 16 * 1024);
}

/* ---- gs_after ---- */

static void check_after(int64_t ns)
{
    int64_t begin = gs_now(), v = 0;
    gs_chan *ch = gs_after(ns);
    CHECK(ch != NULL);
    CHECK_EQ(gs_chan_cap(ch), 1);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
    CHECK_GE(v, begin + (ns > 0 ? ns : 0));
    CHECK_GE(gs_now(), v);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    free_chan(ch);
}

static void check_afters(void)
{
    check_after(2 * MS);
    check_after(1);
    check_after(0);
    check_after(-1);
    check_after(INT64_MIN);
}

GO_TEST(after_gives_the_time_once)
{
    check_afters();
}

TEST(after_works_on_a_plain_thread)
{
    check_afters();
}

GO_TEST(an_after_may_be_freed_before_it_fires)
{
    int i;
    for (i = 0; i < 300; i++) {
        gs_chan *ch = gs_after(i % 2 ? i * US : 3600 * SEC);
        CHECK(ch != NULL);
        if (i % 3 == 0)
            gs_yield();
        free_chan(ch);
    }
    CHECK_EQ(gs_sleep(MS), 0);
}

GO_TEST(a_select_with_after_is_a_timeout)
{
    int64_t v, w, begin = gs_now();
    gs_chan *never = chan_of_ints(0), *ch = gs_after(2 * MS);
    gs_case cases[2];
    cases[0] = recv_case(never, &v);
    cases[1] = recv_case(ch, &w);
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), 1);
    CHECK_EQ(cases[1].result, 0);
    CHECK_GE(w, begin + 2 * MS);
    free_chan(never);
    free_chan(ch);
}

/* ---- Tickers ---- */

GO_TEST(a_ticker_of_zero_or_less_is_NULL)
{
    CHECK(gs_ticker_start(0) == NULL);
    CHECK(gs_ticker_start(-1) == NULL);
    CHECK(gs_ticker_start(INT64_MIN) == NULL);
}

static void check_ticks(gs_chan *ch, int64_t begin, int64_t ns)
{
    int64_t last = begin, v;
    int i;
    for (i = 1; i <= 10; i++) {
        CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
        CHECK_GE(v, begin + i * ns); /* a tick is never early */
        CHECK_GE(v, last);
        CHECK_GE(gs_now(), v);
        last = v;
    }
}

GO_TEST(a_ticker_ticks)
{
    int64_t begin = gs_now();
    gs_chan *ch = gs_ticker_start(MS);
    CHECK(ch != NULL);
    CHECK_EQ(gs_chan_cap(ch), 1);
    check_ticks(ch, begin, MS);
    CHECK_EQ(gs_ticker_stop(ch), 0);
    free_chan(ch);
}

TEST(a_plain_thread_hears_a_ticker)
{
    int64_t begin = gs_now();
    gs_chan *ch = gs_ticker_start(MS);
    check_ticks(ch, begin, MS);
    CHECK_EQ(gs_ticker_stop(ch), 0);
    free_chan(ch);
}

GO_TEST(late_ticks_are_dropped)
{
    int64_t v, begin = gs_now();
    gs_chan *ch = gs_ticker_start(MS);
    CHECK_EQ(gs_sleep(30 * MS), 0);
    WAIT_UNTIL(gs_chan_len(ch) == 1);
    CHECK_EQ(gs_ticker_stop(ch), 0);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), 0); /* one is there, not thirty */
    CHECK_GE(v, begin);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    free_chan(ch);
}

GO_TEST(a_ticker_goes_on_after_ticks_were_dropped)
{
    gs_chan *ch = gs_ticker_start(MS);
    int i;
    CHECK_EQ(gs_sleep(10 * MS), 0);
    for (i = 0; i < 5; i++)
        CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), 0);
    CHECK_EQ(gs_ticker_stop(ch), 0);
    free_chan(ch);
}

#define RHYTHM (4 * MS)

static struct {
    gs_chan *ch;
    int64_t before, after; /* it has begun in between */
    int done;
} rhythm;

static void check_rhythm(void *arg)
{
    int64_t last, v;
    int i;
    (void)arg;
    CHECK_EQ(gs_chan_recv(rhythm.ch, &last, GS_FOREVER), 0);
    for (i = 0; i < 10; i++, last = v) {
        CHECK_EQ(gs_chan_recv(rhythm.ch, &v, GS_FOREVER), 0);
        CHECK_GE(v, rhythm.before + ((last - rhythm.after) / RHYTHM + 1) * RHYTHM);
    }
    SET(rhythm.done, 1);
}

/* Nor are they made up for: the next tick after a late one comes at the next time of the old rhythm. */
GO_TEST(a_ticker_keeps_its_rhythm_after_ticks_were_late)
{
    int procs = gs_gomaxprocs(1);
    int64_t until;
    gs_g *g;
    rhythm.before = gs_now();
    rhythm.ch = gs_ticker_start(RHYTHM);
    rhythm.after = gs_now();
    CHECK(rhythm.ch != NULL);
    g = go_ref(check_rhythm, NULL);
    while (!GET(rhythm.done)) {
        CHECK_EQ(gs_sleep(MS), 0);
        gs_preempt_disable();
        for (until = gs_now() + 3 * RHYTHM; gs_now() < until;)
            ;
        gs_preempt_enable();
    }
    join(g);
    free_chan(rhythm.ch);
    gs_gomaxprocs(procs);
}

GO_TEST(a_ticker_sends_nothing_on_a_closed_channel)
{
    gs_chan *ch = gs_ticker_start(100 * US);
    int64_t v;
    int r;
    CHECK(ch != NULL);
    CHECK_EQ(gs_chan_close(ch), 0);
    while ((r = gs_chan_recv(ch, &v, GS_NOWAIT)) == 0) /* a tick that came before */
        ;
    CHECK_EQ(r, -EPIPE);
    CHECK_EQ(gs_sleep(3 * MS), 0);
    CHECK_EQ(gs_chan_len(ch), 0);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EPIPE);
    free_chan(ch);
}

GO_TEST(a_stopped_ticker_is_silent_but_not_closed)
{
    gs_chan *ch = gs_ticker_start(MS);
    int64_t v;
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
    CHECK_EQ(gs_ticker_stop(ch), 0);
    (void)gs_chan_recv(ch, &v, GS_NOWAIT); /* a tick that came before the stop */
    CHECK_EQ(gs_sleep(5 * MS), 0);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(3)), -ETIMEDOUT);
    free_chan(ch);
}

GO_TEST(a_running_ticker_may_be_freed)
{
    int i;
    for (i = 0; i < 100; i++) {
        gs_chan *ch = gs_ticker_start((1 + i % 7) * 10 * US);
        CHECK(ch != NULL);
        if (i % 2)
            CHECK_EQ(gs_sleep(i % 5 * 20 * US), 0);
        free_chan(ch);
    }
    CHECK_EQ(gs_sleep(MS), 0);
}

GO_TEST(stopping_what_is_no_ticker_is_EINVAL)
{
    gs_chan *ch = chan_of_ints(1);
    CHECK_EQ(gs_ticker_stop(ch), -EINVAL);
    CHECK_EQ(gs_ticker_stop(NULL), -EINVAL);
    free_chan(ch);
}

/* ---- A thread is made without a lock ---- */

/* ThreadSanitizer knows only threads that its own pthread_create has made. */
#ifndef __SANITIZE_THREAD__
static int (*real_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static gs_timer *timer_in_use;
/* Of the thread that starts the timer: the library's own threads make threads too, even later. */
static __thread int stops_the_timer;

static void *stop_the_timer(void *arg)
{
    (void)gs_timer_stop(timer_in_use);
    return arg;
}

/* In place of the C library's: lets another thread use the timer before a thread is made. */
int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*f)(void *), void *arg)
{
    *(void **)&real_pthread_create = dlsym(RTLD_NEXT, "pthread_create");
    if (stops_the_timer) {
        pthread_t other;
        CHECK_EQ(real_pthread_create(&other, NULL, stop_the_timer, NULL), 0);
        join_thread(other);
    }
    return real_pthread_create(t, attr, f, arg);
}

TEST(a_timer_may_be_used_while_its_start_makes_a_thread)
{
    int i;
    timer_in_use = gs_timer_start(3600 * SEC, fire, NULL);
    CHECK_EQ(gs_timer_stop(timer_in_use), 1);
    for (i = 0; i < 5; i++) {
        /* Without threads: the caller that starts the timer makes a thread that waits for it. */
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        stops_the_timer = 1;
        (void)gs_timer_reset(timer_in_use, 3600 * SEC);
        stops_the_timer = 0;
        (void)gs_timer_stop(timer_in_use);
    }
    CHECK_EQ(gs_timer_free(timer_in_use), 0);
}
#endif

/* ---- The end of the runtime ---- */

static int calls_begun, calls_over;

static void wait_in_call(void *arg)
{
    (void)arg;
    ADD(calls_begun, 1);
    CHECK_EQ(gs_sleep(200 * MS), 0);
    ADD(calls_over, 1);
}

static void end_slowly(void *ctx)
{
    (void)ctx;
    nap(100 * MS);
}

/* The function began while the hook ran, and was left in the middle when the threads ended. */
TEST(a_timer_calls_no_function_while_the_runtime_ends)
{
    gs_hooks hooks = {.size = sizeof hooks, .shutdown = end_slowly};
    gs_timer *t;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    t = gs_timer_start(0, wait_in_call, NULL);
    CHECK(t != NULL);
    NAP_UNTIL(GET(calls_over) == 1); /* there is a thread, with these hooks */
    CHECK_EQ(gs_timer_reset(t, 20 * MS), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(GET(calls_begun), GET(calls_over));
    CHECK_EQ(gs_set_hooks(NULL), 0);
    CHECK_EQ(gs_timer_free(t), 0);
}

/* ---- How long goroutines wait to run ---- */

static uint64_t waits_measured(void)
{
    gs_stats s = {.size = sizeof s};
    uint64_t sum = 0;
    int i;
    CHECK_EQ(gs_stats_read(&s), 0);
    for (i = 0; i < GS_RUN_WAITS; i++)
        sum += s.run_waits[i];
    return sum;
}

GO_TEST(the_waits_of_goroutines_that_single_timers_wake_are_measured)
{
    uint64_t before = waits_measured();
    int i;
    for (i = 0; i < 16; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    CHECK_GE(waits_measured() - before, 16);
}

GO_TEST(an_older_gs_stats_is_filled_in_without_them)
{
    gs_stats s;
    memset(&s, 0x55, sizeof s);
    s.size = offsetof(gs_stats, run_waits);
    CHECK_EQ(gs_stats_read(&s), 0);
    CHECK_GE(s.procs, 1);
    CHECK_EQ(s.run_waits[0], 0x5555555555555555);
}
