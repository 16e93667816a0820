/* Channels: sending, receiving, capacity, kinds of elements, deadlines. seed: B4 (hchan) */
#include "check.h"

/* ---- Unbuffered ---- */

struct letter {
    gs_chan *ch;
    int done;
};

static void send_seven(void *arg)
{
    struct letter *l = arg;
    send_int(l->ch, 7);
    SET(l->done, 1);
}

static void receive_seven(void *arg)
{
    struct letter *l = arg;
    CHECK_EQ(recv_int(l->ch), 7);
    SET(l->done, 1);
}

GO_TEST(an_unbuffered_send_waits_for_a_receiver)
{
    struct letter l = {chan_of_ints(0), 0};
    gs_g *g = go_ref(send_seven, &l);
    CHECK_EQ(gs_sleep(2 * MS), 0);
    CHECK_EQ(GET(l.done), 0);
    CHECK_EQ(recv_int(l.ch), 7);
    join(g);
    free_chan(l.ch);
}

GO_TEST(a_receive_waits_for_a_sender)
{
    size_t cap;
    for (cap = 0; cap < 3; cap++) {
        struct letter l = {chan_of_ints(cap), 0};
        gs_g *g = go_ref(receive_seven, &l);
        CHECK_EQ(gs_sleep(MS), 0);
        CHECK_EQ(GET(l.done), 0);
        send_int(l.ch, 7);
        join(g);
        free_chan(l.ch);
    }
}

GO_TEST(an_unbuffered_channel_has_no_room)
{
    gs_chan *ch = chan_of_ints(0);
    int64_t v;
    CHECK_EQ(gs_chan_len(ch), 0);
    CHECK_EQ(gs_chan_cap(ch), 0);
    CHECK_EQ(try_send(ch, 1), -EAGAIN);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_chan_len(ch), 0);
    free_chan(ch);
}

/* ---- Buffered ---- */

GO_TEST(a_buffer_keeps_order_and_has_its_capacity)
{
    size_t cap;
    for (cap = 1; cap <= 10; cap++) {
        gs_chan *ch = chan_of_ints(cap);
        int64_t i, round, v;
        CHECK_EQ(gs_chan_cap(ch), cap);
        for (round = 0; round < 3; round++) { /* so that the ring wraps */
            for (i = 0; i < (int64_t)cap; i++) {
                CHECK_EQ(gs_chan_len(ch), i);
                CHECK_EQ(try_send(ch, 10 * round + i), 0);
            }
            CHECK_EQ(gs_chan_len(ch), cap);
            CHECK_EQ(try_send(ch, 99), -EAGAIN);
            CHECK_EQ(gs_chan_len(ch), cap);
            for (i = 0; i < (int64_t)cap; i++) {
                CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), 0);
                CHECK_EQ(v, 10 * round + i);
            }
            CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
            CHECK_EQ(gs_chan_len(ch), 0);
        }
        free_chan(ch);
    }
}

static void take_one_later(void *ch)
{
    int64_t v;
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
    CHECK_EQ(v, 5);
}

static void send_nine(void *ch)
{
    int64_t v = 9;
    CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
}

GO_TEST(put_and_take_neither_wait_nor_wake)
{
    gs_chan *ch = chan_of_ints(2), *unbuffered = chan_of_ints(0);
    int64_t v = 5;
    gs_g *g;
    CHECK_EQ(gs_chan_take(ch, &v), -EAGAIN);
    CHECK_EQ(gs_chan_put(unbuffered, &v), -EAGAIN);
    CHECK_EQ(gs_chan_take(unbuffered, &v), -EAGAIN);
    /* Its receiver would have to be woken. */
    g = go_ref(take_one_later, ch);
    until_parked(g);
    CHECK_EQ(gs_chan_put(ch, &v), -EAGAIN);
    CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
    for (v = 1; v <= 2; v++)
        CHECK_EQ(gs_chan_put(ch, &v), 0);
    CHECK_EQ(gs_chan_put(ch, &v), -EAGAIN);
    /* Its sender would have to be woken. */
    g = go_ref(send_nine, ch);
    until_parked(g);
    CHECK_EQ(gs_chan_take(ch, &v), -EAGAIN);
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
    CHECK_EQ(v, 1);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_put(ch, &v), -EPIPE);
    CHECK_EQ(gs_chan_take(ch, &v), 0);
    CHECK_EQ(v, 2);
    CHECK_EQ(gs_chan_take(ch, NULL), 0);
    CHECK_EQ(gs_chan_take(ch, &v), -EPIPE);
    CHECK_EQ(v, 0);
    free_chan(ch);
    free_chan(unbuffered);
}

GO_TEST(a_ring_that_is_never_empty_keeps_order)
{
    gs_chan *ch = chan_of_ints(7);
    int64_t in = 0, out = 0, v;
    uint64_t seed = random_seed();
    while (out < 5000) {
        if (random_next(&seed) % 2 && gs_chan_send(ch, &in, GS_NOWAIT) == 0)
            in++;
        else if (gs_chan_recv(ch, &v, GS_NOWAIT) == 0)
            CHECK_EQ(v, out++);
        CHECK_EQ(gs_chan_len(ch), in - out);
    }
    free_chan(ch);
}

static void send_hundred(void *arg)
{
    struct letter *l = arg;
    int64_t i;
    for (i = 0; i < 100; i++)
        send_int(l->ch, i);
    SET(l->done, 1);
}

GO_TEST(one_sender_and_one_receiver_keep_order)
{
    size_t cap;
    for (cap = 0; cap < 8; cap++) {
        struct letter l = {chan_of_ints(cap), 0};
        gs_g *g = go_ref(send_hundred, &l);
        int64_t i;
        for (i = 0; i < 100; i++)
            CHECK_EQ(recv_int(l.ch), i);
        join(g);
        free_chan(l.ch);
    }
}

GO_TEST(a_full_buffer_makes_the_sender_wait)
{
    struct letter l = {chan_of_ints(3), 0};
    gs_g *g = go_ref(send_hundred, &l);
    int i;
    WAIT_UNTIL(gs_chan_len(l.ch) == 3);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(GET(l.done), 0);
    CHECK_EQ(gs_chan_len(l.ch), 3);
    for (i = 0; i < 100; i++)
        CHECK_EQ(recv_int(l.ch), i);
    join(g);
    free_chan(l.ch);
}

/* ---- Elements ---- */

GO_TEST(elements_of_any_size_arrive_whole)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 24, 31, 64, 100, 1000, 4096, 70000};
    size_t i, j, cap;
    for (i = 0; i < LENGTH(sizes); i++)
        for (cap = 1; cap <= 3; cap++) {
            unsigned char *in = malloc(sizes[i]), *out = malloc(sizes[i] + 16);
            gs_chan *ch = gs_chan_make(sizes[i], cap);
            CHECK(ch != NULL);
            memset(out, 0xee, sizes[i] + 16);
            for (j = 0; j < sizes[i]; j++)
                in[j] = (unsigned char)(j * 7 + cap);
            CHECK_EQ(gs_chan_send(ch, in, GS_FOREVER), 0);
            CHECK_EQ(gs_chan_recv(ch, out + 8, GS_FOREVER), 0);
            CHECK_EQ(memcmp(in, out + 8, sizes[i]), 0);
            for (j = 0; j < 8; j++) /* no byte beside it is touched */
                CHECK(out[j] == 0xee && out[8 + sizes[i] + j] == 0xee);
            free_chan(ch);
            free(in);
            free(out);
        }
}

#define BIG 5000

static void send_big(void *ch)
{
    unsigned char in[BIG];
    memset(in, 0x5a, sizeof in);
    CHECK_EQ(gs_chan_send(ch, in, GS_FOREVER), 0);
    memset(in, 0, sizeof in);
}

GO_TEST(a_large_element_goes_straight_to_the_waiting_receiver)
{
    gs_chan *ch = gs_chan_make(BIG, 0);
    unsigned char out[BIG];
    int i, j;
    for (i = 0; i < 50; i++) {
        gs_g *g = go_ref(send_big, ch);
        if (i % 2)
            gs_yield();
        CHECK_EQ(gs_chan_recv(ch, out, GS_FOREVER), 0);
        for (j = 0; j < BIG; j++)
            CHECK_EQ(out[j], 0x5a);
        join(g);
    }
    free_chan(ch);
}

GO_TEST(elements_of_size_zero_are_counted)
{
    gs_chan *ch = gs_chan_make(0, 3);
    char c = 'x';
    CHECK(ch != NULL);
    CHECK_EQ(gs_chan_send(ch, NULL, GS_NOWAIT), 0);
    CHECK_EQ(gs_chan_send(ch, &c, GS_NOWAIT), 0);
    CHECK_EQ(gs_chan_send(ch, NULL, GS_NOWAIT), 0);
    CHECK_EQ(gs_chan_send(ch, NULL, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_chan_len(ch), 3);
    CHECK_EQ(gs_chan_recv(ch, &c, GS_NOWAIT), 0);
    CHECK_EQ(c, 'x'); /* there is nothing to write */
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_NOWAIT), 0);
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_NOWAIT), 0);
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_NOWAIT), -EAGAIN);
    free_chan(ch);
}

static void send_nothing(void *ch)
{
    int i;
    for (i = 0; i < 100; i++)
        CHECK_EQ(gs_chan_send(ch, NULL, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
}

GO_TEST(elements_of_size_zero_can_be_handed_over)
{
    gs_chan *ch = gs_chan_make(0, 0);
    int n = 0;
    gs_g *g = go_ref(send_nothing, ch);
    while (gs_chan_recv(ch, NULL, GS_FOREVER) == 0)
        n++;
    CHECK_EQ(n, 100);
    join(g);
    free_chan(ch);
}

GO_TEST(a_receive_without_a_place_discards_the_value)
{
    gs_chan *ch = chan_of_ints(4);
    int64_t i;
    for (i = 0; i < 4; i++)
        send_int(ch, i);
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), 0);
    CHECK_EQ(recv_int(ch), 1);
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_NOWAIT), 0);
    CHECK_EQ(recv_int(ch), 3);
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_NOWAIT), -EAGAIN);
    free_chan(ch);
}

static void discard_one(void *ch)
{
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), 0);
}

GO_TEST(a_waiting_receive_without_a_place_discards_the_value)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = go_ref(discard_one, ch);
    until_parked(g);
    send_int(ch, 5);
    join(g);
    free_chan(ch);
}

/* ---- Making and freeing ---- */

GO_TEST(a_channel_that_cannot_be_made_is_NULL)
{
    CHECK(gs_chan_make(8, SIZE_MAX) == NULL);
    CHECK(gs_chan_make(SIZE_MAX, 8) == NULL);
    CHECK(gs_chan_make(SIZE_MAX, SIZE_MAX) == NULL);
    CHECK(gs_chan_make((size_t)1 << 33, (size_t)1 << 31) == NULL);
    CHECK(gs_chan_make(8, SIZE_MAX / 8) == NULL);
}

GO_TEST(a_channel_may_be_freed_with_values_in_it)
{
    int i;
    for (i = 0; i < 100; i++) {
        gs_chan *ch = chan_of_ints(10);
        send_int(ch, 1);
        send_int(ch, 2);
        free_chan(ch);
    }
}

static void wait_then_receive(void *arg)
{
    struct letter *l = arg;
    SET(l->done, 1);
    CHECK_EQ(recv_int(l->ch), 7);
}

static void wait_then_send(void *arg)
{
    struct letter *l = arg;
    SET(l->done, 1);
    send_int(l->ch, 7);
}

static void wait_then_select(void *arg)
{
    struct letter *l = arg;
    int64_t v = 0;
    gs_case c = recv_case(l->ch, &v);
    SET(l->done, 1);
    CHECK_EQ(gs_select(&c, 1, GS_FOREVER), 0);
    CHECK_EQ(v, 7);
}

static void free_while_it_waits(gs_fn fn, int sends)
{
    struct letter l = {chan_of_ints(0), 0};
    gs_g *g = go_steady(fn, &l);
    WAIT_UNTIL(GET(l.done));
    CHECK_EQ(gs_chan_free(l.ch), -EBUSY);
    CHECK_EQ(gs_chan_free(l.ch), -EBUSY);
    if (sends) /* nothing was half done: it still works */
        CHECK_EQ(recv_int(l.ch), 7);
    else
        send_int(l.ch, 7);
    free_chan(l.ch); /* the other may not have run yet, but it waits no more */
    join(g);
}

GO_TEST(free_is_EBUSY_while_someone_waits)
{
    int procs = gs_gomaxprocs(1);
    free_while_it_waits(wait_then_receive, 0);
    free_while_it_waits(wait_then_send, 1);
    free_while_it_waits(wait_then_select, 0);
    gs_gomaxprocs(procs);
}

/* ---- Deadlines ---- */

static void check_deadlines(gs_chan *full, gs_chan *empty)
{
    int64_t v = 1, deadline;
    CHECK_EQ(gs_chan_recv(empty, &v, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_chan_recv(empty, &v, 1), -ETIMEDOUT);
    CHECK_EQ(gs_chan_recv(empty, &v, gs_now() - 1), -ETIMEDOUT);
    deadline = gs_after_ms(3);
    CHECK_EQ(gs_chan_recv(empty, &v, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(gs_chan_send(full, &v, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_chan_send(full, &v, 1), -ETIMEDOUT);
    deadline = gs_after_ms(3);
    CHECK_EQ(gs_chan_send(full, &v, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
}

static void check_all_deadlines(void)
{
    gs_chan *full = chan_of_ints(1), *empty = chan_of_ints(1), *unbuffered = chan_of_ints(0);
    send_int(full, 1);
    check_deadlines(full, empty);
    check_deadlines(unbuffered, unbuffered);
    CHECK_EQ(gs_chan_len(full), 1);
    free_chan(full);
    free_chan(empty);
    free_chan(unbuffered); /* no waiter was left behind */
}

GO_TEST(a_wait_ends_at_its_deadline)
{
    check_all_deadlines();
}

TEST(a_wait_of_a_plain_thread_ends_at_its_deadline)
{
    check_all_deadlines();
}

GO_TEST(what_can_be_done_at_once_is_done_after_the_deadline)
{
    gs_chan *ch = chan_of_ints(1);
    int64_t v = 3, w = 0;
    CHECK_EQ(gs_chan_send(ch, &v, 1), 0);
    CHECK_EQ(gs_chan_recv(ch, &w, 1), 0);
    CHECK_EQ(w, 3);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_recv(ch, &w, 1), -EPIPE);
    CHECK_EQ(gs_chan_send(ch, &v, 1), -EPIPE);
    CHECK_EQ(gs_chan_recv(ch, &w, GS_NOWAIT), -EPIPE);
    free_chan(ch);
}

GO_TEST(a_waiter_that_timed_out_is_gone)
{
    gs_chan *ch = chan_of_ints(0);
    int64_t v = 1;
    int i;
    for (i = 0; i < 50; i++) {
        CHECK_EQ(gs_chan_recv(ch, &v, gs_after_us(20)), -ETIMEDOUT);
        CHECK_EQ(try_send(ch, 1), -EAGAIN);
        CHECK_EQ(gs_chan_send(ch, &v, gs_after_us(20)), -ETIMEDOUT);
        CHECK_EQ(gs_chan_recv(ch, &v, GS_NOWAIT), -EAGAIN);
    }
    free_chan(ch);
}

GO_TEST(a_deadline_far_away_does_not_matter)
{
    struct letter l = {chan_of_ints(0), 0};
    gs_g *g = go_ref(send_seven, &l);
    int64_t v = 0;
    CHECK_EQ(gs_chan_recv(l.ch, &v, INT64_MAX), 0);
    CHECK_EQ(v, 7);
    join(g);
    g = go_ref(send_seven, &l);
    CHECK_EQ(gs_chan_recv(l.ch, &v, gs_after_ms(3600000)), 0);
    join(g);
    free_chan(l.ch);
}
