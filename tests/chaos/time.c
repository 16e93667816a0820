/* Timers and tickers: each fires as often as it says. */
#include "chaos.h"

static atomic_long due, fired; /* times that a timer was to fire and wasn't stopped */

static void on_time(void *arg)
{
    MUST(arg == &fired);
    atomic_fetch_add(&fired, 1);
}

static void op_timer(struct actor *a)
{
    int64_t after = (rnd(a, 2000) - 100) * US;
    gs_timer *t = POINTER_AGAIN(gs_timer_start(after, on_time, &fired));
    int r;
    MUST(t != NULL);
    atomic_fetch_add(&due, 1);
    if (one_in(a, 2))
        gs_yield();
    for (int n = rnd(a, 3); n > 0; n--) {
        int64_t later = (rnd(a, 1000) - 50) * US;
        MUST_BE(r = (int)AGAIN(gs_timer_reset(t, later)), 0, 1);
        if (r == 0)
            atomic_fetch_add(&due, 1);
    }
    if (one_in(a, 3))
        (void)gs_sleep(rnd(a, 1000) * US);
    MUST_BE(r = gs_timer_stop(t), 0, 1);
    atomic_fetch_sub(&due, r);
    MUST_BE(gs_timer_stop(t), 0);
    if (one_in(a, 3)) {
        int64_t until = a->go && one_in(a, 2) ? GS_FOREVER : soon(a, 500);
        MUST_BE(gs_timer_stop_wait(t, until), 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    }
    if (one_in(a, 4)) {
        MUST_BE(AGAIN(gs_timer_reset(t, -1)), 0);
        atomic_fetch_add(&due, 1);
        atomic_fetch_sub(&due, gs_timer_stop(t));
    }
    MUST_BE(gs_timer_free(t), 0);
}

static void op_after(struct actor *a)
{
    int64_t start = gs_now(), ns = (rnd(a, 1000) - 20) * US, t = 0;
    gs_chan *c = POINTER_AGAIN(gs_after(ns));
    int r;
    MUST(c != NULL && gs_chan_cap(c) == 1);
    r = gs_chan_recv(c, &t, soon(a, 1500));
    MUST_BE(r, 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    if (r == 0 && (t < start + ns || t > gs_now()))
        WRONG("gs_after(%lld) gives a time %lld ns after the call", (long long)ns, (long long)(t - start));
    if (one_in(a, 2))
        MUST_BE(gs_ticker_stop(c), 0);
    MUST_BE(gs_chan_free(c), 0);
}

static void op_ticker(struct actor *a)
{
    int64_t last = 0, t = 0;
    int64_t every = (1 + rnd(a, 500)) * US;
    gs_chan *c = POINTER_AGAIN(gs_ticker_start(every));
    MUST(c != NULL);
    for (int n = rnd(a, 5); n > 0; n--) {
        int r = gs_chan_recv(c, &t, gs_after_us(rnd(a, 800)));
        MUST_BE(r, 0, -ETIMEDOUT, -ECANCELED);
        if (r == 0 && t <= last)
            WRONG("a tick is %lld ns before the one before", (long long)(last - t));
        if (r == 0)
            last = t;
    }
    if (one_in(a, 2))
        MUST_BE(gs_ticker_stop(c), 0);
    MUST_BE(gs_chan_free(c), 0);
    MUST(gs_ticker_start(0) == NULL);
}

void time_begin(void)
{
    due = fired = 0;
}

void time_end(void)
{
    while (atomic_load(&fired) < atomic_load(&due))
        gs_sleep(MS);
    gs_sleep(5 * MS);
    if (fired != due)
        WRONG("timers were due %ld times and fired %ld times", due, fired);
}

const struct op ops_time[] = {
    {"timer", op_timer, 3, 0},
    {"after", op_after, 2, 0},
    {"ticker", op_ticker, 2, 0},
    {NULL, NULL, 0, 0},
};
