/*
 * Channels: waiters are served first in, first out, and a value goes straight to its receiver.
 * With one P and goroutines that are not preempted, who waits first is exact. seed: B4
 */
#include "check.h"

#define WAITERS 30

static gs_chan *ch;
static int waiting, finished;
static int64_t got[WAITERS];
static gs_g *gs[WAITERS];

static void with_one_p(gs_fn fn)
{
    int procs = gs_gomaxprocs(1);
    SET(waiting, 0);
    SET(finished, 0);
    join(go_steady(fn, NULL));
    gs_gomaxprocs(procs);
}

/* Starts goroutine number i and returns when it waits. */
static void start_waiter(gs_fn fn, int i)
{
    int before = GET(waiting);
    gs[i] = go_steady(fn, (void *)(intptr_t)i);
    WAIT_UNTIL(GET(waiting) == before + 1);
}

static void join_waiters(void)
{
    int i;
    for (i = 0; i < WAITERS; i++)
        join(gs[i]);
}

static void receive_mine(void *arg)
{
    ADD(waiting, 1);
    got[(intptr_t)arg] = recv_int(ch);
    ADD(finished, 1);
}

static void select_mine(void *arg)
{
    gs_chan *never = chan_of_ints(0);
    int64_t v;
    gs_case c[3];
    ADD(waiting, 1);
    c[0] = recv_case(never, &v);
    c[1] = recv_case(ch, &got[(intptr_t)arg]);
    c[2] = send_case(never, &v);
    CHECK_EQ(gs_select(c, 3, GS_FOREVER), 1);
    CHECK_EQ(c[1].result, 0);
    free_chan(never);
}

static void check_receivers(gs_fn odd, gs_fn even, size_t cap)
{
    int i;
    ch = chan_of_ints(cap);
    for (i = 0; i < WAITERS; i++)
        start_waiter(i % 2 ? odd : even, i);
    for (i = 0; i < WAITERS; i++)
        CHECK_EQ(try_send(ch, 100 + i), 0);
    join_waiters();
    for (i = 0; i < WAITERS; i++)
        CHECK_EQ(got[i], 100 + i);
    free_chan(ch);
}

static void receivers(void *arg)
{
    (void)arg;
    check_receivers(receive_mine, receive_mine, 0);
    check_receivers(receive_mine, receive_mine, 3);
}

GO_TEST(receivers_are_served_in_the_order_of_their_calls)
{
    with_one_p(receivers);
}

static void receivers_and_selects(void *arg)
{
    (void)arg;
    check_receivers(receive_mine, select_mine, 0);
    check_receivers(select_mine, select_mine, 2);
}

GO_TEST(selects_wait_in_the_same_line)
{
    with_one_p(receivers_and_selects);
}

static void send_mine(void *arg)
{
    ADD(waiting, 1);
    send_int(ch, (intptr_t)arg);
    ADD(finished, 1);
}

static void select_send_mine(void *arg)
{
    int64_t v = (intptr_t)arg;
    gs_case c = send_case(ch, &v);
    ADD(waiting, 1);
    CHECK_EQ(gs_select(&c, 1, GS_FOREVER), 0);
}

static void check_senders(gs_fn odd, gs_fn even, int cap)
{
    int i;
    ch = chan_of_ints((size_t)cap);
    for (i = 0; i < cap; i++)
        CHECK_EQ(try_send(ch, -cap + i), 0);
    for (i = 0; i < WAITERS; i++)
        start_waiter(i % 2 ? odd : even, i);
    for (i = -cap; i < WAITERS; i++) {
        CHECK_EQ(recv_int(ch), i);
        /* With senders waiting, one moves into the buffer as its head is taken. */
        if (i + cap < WAITERS - cap)
            CHECK_EQ(gs_chan_len(ch), cap);
    }
    join_waiters();
    free_chan(ch);
}

static void senders(void *arg)
{
    (void)arg;
    check_senders(send_mine, send_mine, 0);
    check_senders(send_mine, send_mine, 4);
    check_senders(select_send_mine, send_mine, 0);
    check_senders(select_send_mine, send_mine, 4);
}

GO_TEST(senders_are_served_in_the_order_of_their_calls)
{
    with_one_p(senders);
}

/* ---- Direct hand-over ---- */

static void hand_over_to_receiver(void *arg)
{
    int64_t v;
    size_t cap;
    (void)arg;
    for (cap = 0; cap < 3; cap++) {
        ch = chan_of_ints(cap);
        SET(finished, 0);
        start_waiter(receive_mine, 0);
        CHECK_EQ(try_send(ch, 42), 0);
        /* The receiver has it already, though it has not run: no other can take it. */
        CHECK_EQ(GET(finished), 0);
        CHECK_EQ(gs_chan_len(ch), 0);
        CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
        join(gs[0]);
        CHECK_EQ(got[0], 42);
        free_chan(ch);
    }
}

GO_TEST(a_value_goes_straight_to_the_waiting_receiver)
{
    with_one_p(hand_over_to_receiver);
}

static void take_from_sender(void *arg)
{
    (void)arg;
    ch = chan_of_ints(1);
    SET(finished, 0);
    CHECK_EQ(try_send(ch, 1), 0);
    start_waiter(send_mine, 2);
    CHECK_EQ(recv_int(ch), 1);
    CHECK_EQ(gs_chan_len(ch), 1); /* the waiting sender's value took the place at once */
    CHECK_EQ(GET(finished), 0);
    CHECK_EQ(try_send(ch, 3), -EAGAIN);
    CHECK_EQ(recv_int(ch), 2);
    join(gs[2]);
    free_chan(ch);
}

GO_TEST(a_waiting_senders_value_takes_the_free_place_at_once)
{
    with_one_p(take_from_sender);
}

/* Closing serves all that wait, without disturbing those served before. */
static void receive_until_closed(void *arg)
{
    int64_t v = 77;
    int r;
    ADD(waiting, 1);
    r = gs_chan_recv(ch, &v, GS_FOREVER);
    got[(intptr_t)arg] = r == 0 ? v : r;
    CHECK(r == 0 || v == 0);
}

static void send_then_close(void *arg)
{
    int i;
    (void)arg;
    ch = chan_of_ints(0);
    for (i = 0; i < WAITERS; i++)
        start_waiter(receive_until_closed, i);
    for (i = 0; i < 10; i++)
        CHECK_EQ(try_send(ch, i), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    join_waiters();
    for (i = 0; i < WAITERS; i++)
        CHECK_EQ(got[i], i < 10 ? i : -EPIPE);
    free_chan(ch);
}

GO_TEST(close_wakes_those_that_were_not_served)
{
    with_one_p(send_then_close);
}

/* ---- Leaving the line ---- */

static void receive_impatiently(void *arg)
{
    int64_t v;
    ADD(waiting, 1);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(1)), -ETIMEDOUT);
    ADD(finished, 1);
    (void)arg;
}

static void some_time_out(void *arg)
{
    int i;
    (void)arg;
    ch = chan_of_ints(0);
    SET(finished, 0);
    for (i = 0; i < WAITERS; i++)
        start_waiter(i % 3 == 1 ? receive_impatiently : receive_mine, i);
    WAIT_UNTIL(GET(finished) == WAITERS / 3);
    for (i = 0; i < WAITERS; i++)
        if (i % 3 != 1)
            CHECK_EQ(try_send(ch, 100 + i), 0);
    CHECK_EQ(try_send(ch, 1), -EAGAIN);
    join_waiters();
    for (i = 0; i < WAITERS; i++)
        CHECK(i % 3 == 1 || got[i] == 100 + i);
    free_chan(ch);
}

GO_TEST(those_that_time_out_leave_the_line_in_order)
{
    with_one_p(some_time_out);
}

static void receive_until_cancelled(void *arg)
{
    int64_t v;
    ADD(waiting, 1);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), -ECANCELED);
    (void)arg;
}

static void some_are_cancelled(void *arg)
{
    int i;
    (void)arg;
    ch = chan_of_ints(0);
    for (i = 0; i < WAITERS; i++)
        start_waiter(i % 3 == 1 ? receive_until_cancelled : receive_mine, i);
    for (i = 1; i < WAITERS; i += 3) {
        CHECK_EQ(gs_cancel(gs[i]), 0);
        CHECK_EQ(gs_join(gs[i], GS_FOREVER), 0);
    }
    for (i = 0; i < WAITERS; i++)
        if (i % 3 != 1)
            CHECK_EQ(try_send(ch, 100 + i), 0);
    join_waiters();
    for (i = 0; i < WAITERS; i++)
        CHECK(i % 3 == 1 || got[i] == 100 + i);
    free_chan(ch);
}

GO_TEST(those_that_are_cancelled_leave_the_line_in_order)
{
    with_one_p(some_are_cancelled);
}

/* ---- A plain thread in the line ---- */

static pid_t tid;
static int64_t threads_value;

static void *receive_in_thread(void *arg)
{
    SET(tid, thread_id());
    threads_value = recv_int(ch);
    return arg;
}

static void *wait_for_thread(void *arg)
{
    wait_asleep(&tid);
    return arg;
}

static void thread_in_between(void *arg)
{
    pthread_t t;
    (void)arg;
    ch = chan_of_ints(0);
    SET(tid, 0);
    start_waiter(receive_mine, 0);
    t = start_thread(receive_in_thread, NULL);
    (void)gs_blocking(wait_for_thread, NULL);
    start_waiter(receive_mine, 1);
    CHECK_EQ(try_send(ch, 10), 0);
    CHECK_EQ(try_send(ch, 11), 0);
    CHECK_EQ(try_send(ch, 12), 0);
    join(gs[0]);
    join(gs[1]);
    go_join_thread(t);
    CHECK_EQ(got[0], 10);
    CHECK_EQ(threads_value, 11);
    CHECK_EQ(got[1], 12);
    free_chan(ch);
}

GO_TEST(a_plain_thread_waits_in_the_same_line)
{
    with_one_p(thread_in_between);
}
