/* Closing channels: what senders, receivers and selects get, and that all who wait are woken. */
#include "check.h"

GO_TEST(send_to_a_closed_channel_is_EPIPE)
{
    size_t cap;
    for (cap = 0; cap < 3; cap++) {
        gs_chan *ch = chan_of_ints(cap);
        int64_t v = 1;
        CHECK_EQ(gs_chan_close(ch), 0);
        CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), -EPIPE);
        CHECK_EQ(gs_chan_send(ch, &v, GS_NOWAIT), -EPIPE);
        CHECK_EQ(gs_chan_send(ch, &v, gs_after_ms(1)), -EPIPE);
        CHECK_EQ(gs_chan_len(ch), 0);
        CHECK_EQ(gs_chan_cap(ch), cap);
        free_chan(ch);
    }
}

GO_TEST(receive_from_a_closed_channel_drains_it_then_zeroes)
{
    gs_chan *ch = chan_of_ints(3);
    int64_t v;
    int i;
    send_int(ch, 1);
    send_int(ch, 2);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_len(ch), 2);
    CHECK_EQ(recv_int(ch), 1);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), 0);
    CHECK_EQ(v, 2);
    for (i = 0; i < 3; i++) {
        v = 99;
        CHECK_EQ(gs_chan_recv(ch, &v, i == 0 ? GS_FOREVER : i == 1 ? GS_NOWAIT : 1), -EPIPE);
        CHECK_EQ(v, 0);
    }
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), -EPIPE);
    free_chan(ch);
}

GO_TEST(every_byte_of_the_element_is_zeroed)
{
    gs_chan *ch = gs_chan_make(37, 0);
    unsigned char out[39];
    int i;
    memset(out, 0xee, sizeof out);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_recv(ch, out + 1, GS_FOREVER), -EPIPE);
    CHECK(out[0] == 0xee && out[38] == 0xee);
    for (i = 1; i <= 37; i++)
        CHECK_EQ(out[i], 0);
    free_chan(ch);
}

GO_TEST(closing_twice_is_EPIPE)
{
    gs_chan *ch = chan_of_ints(0);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_close(ch), -EPIPE);
    CHECK_EQ(gs_chan_close(ch), -EPIPE);
    free_chan(ch);
}

/* ---- Closing while many wait ---- */

#define WAITERS 200

static gs_chan *ch, *other;
static int waiting, woken;

static void receiver(void *arg)
{
    int64_t v = 99;
    (void)arg;
    ADD(waiting, 1);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), -EPIPE);
    CHECK_EQ(v, 0);
    ADD(woken, 1);
}

static void sender(void *arg)
{
    int64_t v = 1;
    (void)arg;
    ADD(waiting, 1);
    CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), -EPIPE);
    ADD(woken, 1);
}

static void selecting_receiver(void *arg)
{
    int64_t v = 99, w = 98;
    gs_case c[2];
    (void)arg;
    c[0] = recv_case(other, &w);
    c[1] = recv_case(ch, &v);
    ADD(waiting, 1);
    CHECK_EQ(gs_select(c, 2, GS_FOREVER), 1);
    CHECK_EQ(c[1].result, -EPIPE);
    CHECK_EQ(v, 0);
    CHECK_EQ(w, 98);
    ADD(woken, 1);
}

static void selecting_sender(void *arg)
{
    int64_t v = 1, w = 2;
    gs_case c[2];
    (void)arg;
    c[0] = send_case(ch, &v);
    c[1] = send_case(other, &w);
    ADD(waiting, 1);
    CHECK_EQ(gs_select(c, 2, GS_FOREVER), 0);
    CHECK_EQ(c[0].result, -EPIPE);
    ADD(woken, 1);
}

static void *receiver_thread(void *arg)
{
    receiver(arg);
    return NULL;
}

static void *sender_thread(void *arg)
{
    sender(arg);
    return NULL;
}

static void close_on(gs_fn even, gs_fn odd, void *(*in_thread)(void *))
{
    gs_g *gs[WAITERS];
    pthread_t t[4];
    int i;
    SET(waiting, 0);
    SET(woken, 0);
    ch = chan_of_ints(0);
    other = chan_of_ints(0);
    for (i = 0; i < WAITERS; i++)
        gs[i] = go_ref(i % 2 ? odd : even, NULL);
    for (i = 0; i < 4; i++)
        t[i] = start_thread(in_thread, NULL);
    WAIT_UNTIL(GET(waiting) == WAITERS + 4);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    for (i = 0; i < WAITERS; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++)
        go_join_thread(t[i]);
    CHECK_EQ(woken, WAITERS + 4);
    free_chan(ch);
    free_chan(other); /* a select that was served elsewhere waits here no more */
}

GO_TEST(close_wakes_every_receiver)
{
    close_on(receiver, receiver, receiver_thread);
}

GO_TEST(close_wakes_every_sender)
{
    close_on(sender, sender, sender_thread);
}

GO_TEST(close_wakes_every_select)
{
    close_on(selecting_receiver, selecting_receiver, receiver_thread);
    close_on(selecting_sender, selecting_sender, sender_thread);
}

GO_TEST(close_wakes_receivers_and_selects_together)
{
    close_on(receiver, selecting_receiver, receiver_thread);
    close_on(sender, selecting_sender, sender_thread);
}

static void blocked_sender(void *arg)
{
    int64_t v = (intptr_t)arg;
    int r;
    ADD(waiting, 1);
    r = gs_chan_send(ch, &v, GS_FOREVER);
    CHECK(r == 0 || r == -EPIPE);
    if (r == 0)
        ADD(woken, 1);
}

/* A sender that waits at the close gets -EPIPE and its value is not delivered. */
GO_TEST(values_of_waiting_senders_are_dropped_by_close)
{
    gs_g *gs[20];
    int64_t v;
    intptr_t i;
    int received = 0;
    SET(waiting, 0);
    SET(woken, 0);
    ch = chan_of_ints(5);
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(blocked_sender, (void *)i);
    WAIT_UNTIL(GET(woken) == 5 && GET(waiting) == 20);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    while (gs_chan_recv(ch, &v, GS_FOREVER) == 0)
        received++;
    CHECK_EQ(received, 5);
    for (i = 0; i < 20; i++)
        join(gs[i]);
    CHECK_EQ(woken, 5);
    free_chan(ch);
}

/* ---- Races ---- */

static int closed_ok;

static void try_close(void *arg)
{
    int r = gs_chan_close(ch);
    (void)arg;
    CHECK(r == 0 || r == -EPIPE);
    if (r == 0)
        ADD(closed_ok, 1);
}

GO_TEST(of_many_closers_one_succeeds)
{
    gs_g *gs[8];
    int round, i;
    for (round = 0; round < 200; round++) {
        SET(closed_ok, 0);
        ch = chan_of_ints(0);
        for (i = 0; i < 8; i++)
            gs[i] = go_ref(try_close, NULL);
        for (i = 0; i < 8; i++)
            join(gs[i]);
        CHECK_EQ(closed_ok, 1);
        free_chan(ch);
    }
}

static long sent, received;

static void send_until_closed(void *arg)
{
    int64_t v = 1;
    (void)arg;
    while (gs_chan_send(ch, &v, GS_FOREVER) == 0)
        ADD(sent, 1);
}

static void receive_until_closed(void *arg)
{
    int64_t v;
    (void)arg;
    while (gs_chan_recv(ch, &v, GS_FOREVER) == 0)
        ADD(received, v);
}

GO_TEST(what_was_sent_before_the_close_is_received)
{
    gs_g *gs[8];
    int round, i;
    for (round = 0; round < 60; round++) {
        SET(sent, 0);
        SET(received, 0);
        ch = chan_of_ints((size_t)(round % 4));
        for (i = 0; i < 8; i++)
            gs[i] = go_ref(i % 2 ? send_until_closed : receive_until_closed, NULL);
        CHECK_EQ(gs_sleep(round % 5 * 50 * US), 0);
        CHECK_EQ(gs_chan_close(ch), 0);
        for (i = 0; i < 8; i++)
            join(gs[i]);
        CHECK_EQ(sent, received);
        free_chan(ch);
    }
}

/* A value in the buffer is there for a receiver that does not wait, whether the channel is closed or not. */
static void must_find_it(void *arg)
{
    int64_t v = 0;
    CHECK_EQ(gs_chan_recv(arg, &v, GS_NOWAIT), 0);
    CHECK_EQ(v, 1);
}

GO_TEST(a_receive_without_waiting_sees_the_buffer_before_the_close)
{
    int i;
    for (i = 0; i < 1000; i++) {
        gs_chan *c = chan_of_ints(1);
        gs_g *g;
        send_int(c, 1);
        g = go_ref(must_find_it, c);
        CHECK_EQ(gs_chan_close(c), 0);
        join(g);
        free_chan(c);
    }
}
