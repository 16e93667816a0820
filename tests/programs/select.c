/* gs_select: which case is chosen, what it leaves behind, deadlines, NULL channels, duplicates. */
#include "check.h"

/* ---- Choosing among ready cases ---- */

GO_TEST(one_ready_case_is_chosen)
{
    gs_chan *a = chan_of_ints(1), *b = chan_of_ints(1), *c = chan_of_ints(0);
    int64_t v = 0, w = 0, x = 5;
    gs_case cases[3];
    int i;
    for (i = 0; i < 100; i++) {
        cases[0] = recv_case(a, &v);
        cases[1] = recv_case(b, &w);
        cases[2] = send_case(c, &x);
        send_int(b, 10 + i);
        CHECK_EQ(gs_select(cases, 3, GS_FOREVER), 1);
        CHECK_EQ(cases[1].result, 0);
        CHECK_EQ(w, 10 + i);
        CHECK_EQ(v, 0);
    }
    free_chan(a);
    free_chan(b);
    free_chan(c);
}

GO_TEST(a_send_case_is_chosen_when_there_is_room)
{
    gs_chan *full = chan_of_ints(1), *room = chan_of_ints(1);
    int64_t v = 1, w = 2;
    gs_case cases[2];
    send_int(full, 0);
    cases[0] = send_case(full, &v);
    cases[1] = send_case(room, &w);
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), 1);
    CHECK_EQ(cases[1].result, 0);
    CHECK_EQ(recv_int(room), 2);
    CHECK_EQ(recv_int(full), 0);
    CHECK_EQ(gs_chan_len(full), 0);
    free_chan(full);
    free_chan(room);
}

static void choose_often(gs_case *cases, size_t n, int rounds, void (*refill)(int))
{
    int chosen[16] = {0}, i;
    size_t j;
    for (i = 0; i < rounds; i++) {
        int k = gs_select(cases, n, GS_FOREVER);
        CHECK(k >= 0 && (size_t)k < n);
        chosen[k]++;
        refill(k);
    }
    /* Ten standard deviations are far from what chance does. */
    for (j = 0; j < n; j++) {
        CHECK_GE(chosen[j], rounds / (int)n - 400);
        CHECK_LE(chosen[j], rounds / (int)n + 400);
    }
}

static gs_chan *chans[8];
static int64_t values[8];

static void make_chans(int n, size_t cap)
{
    int i;
    for (i = 0; i < n; i++)
        chans[i] = chan_of_ints(cap);
}

static void free_chans(int n)
{
    int i;
    for (i = 0; i < n; i++)
        free_chan(chans[i]);
}

static void refill_received(int k)
{
    send_int(chans[k], k);
}

GO_TEST(the_choice_among_receives_is_uniform)
{
    gs_case cases[4];
    int i;
    make_chans(4, 1);
    for (i = 0; i < 4; i++) {
        send_int(chans[i], i);
        cases[i] = recv_case(chans[i], &values[i]);
    }
    choose_often(cases, 4, 6000, refill_received);
    free_chans(4);
}

static void empty_sent(int k)
{
    (void)recv_int(chans[k]);
}

GO_TEST(the_choice_among_sends_is_uniform)
{
    gs_case cases[4];
    int i;
    make_chans(4, 1);
    for (i = 0; i < 4; i++)
        cases[i] = send_case(chans[i], &values[i]);
    choose_often(cases, 4, 6000, empty_sent);
    free_chans(4);
}

static void undo_mixed(int k)
{
    if (k % 2)
        send_int(chans[k], k);
    else
        (void)recv_int(chans[k]);
}

GO_TEST(the_choice_among_sends_and_receives_is_uniform)
{
    gs_case cases[8];
    int i;
    make_chans(8, 1);
    for (i = 0; i < 8; i++) {
        if (i % 2)
            send_int(chans[i], i);
        cases[i] = i % 2 ? recv_case(chans[i], &values[i]) : send_case(chans[i], &values[i]);
    }
    choose_often(cases, 8, 8000, undo_mixed);
    free_chans(8);
}

static void nothing_to_do(int k)
{
    (void)k;
}

GO_TEST(the_choice_among_closed_channels_is_uniform)
{
    gs_case cases[5];
    int i;
    make_chans(5, 0);
    for (i = 0; i < 5; i++) {
        CHECK_EQ(gs_chan_close(chans[i]), 0);
        cases[i] = i == 2 ? send_case(chans[i], &values[i]) : recv_case(chans[i], &values[i]);
    }
    choose_often(cases, 5, 6000, nothing_to_do);
    free_chans(5);
}

GO_TEST(the_choice_among_duplicates_is_uniform)
{
    gs_case cases[4];
    int i, chosen[4] = {0};
    make_chans(1, 1);
    for (i = 0; i < 4; i++)
        cases[i] = recv_case(chans[0], &values[i]);
    for (i = 0; i < 6000; i++) {
        int k;
        send_int(chans[0], i);
        k = gs_select(cases, 4, GS_FOREVER);
        CHECK(k >= 0 && k < 4);
        CHECK_EQ(values[k], i);
        chosen[k]++;
    }
    for (i = 0; i < 4; i++)
        CHECK_GE(chosen[i], 1100);
    free_chans(1);
}

/* Go's TestPseudoRandomSend. */
static void receive_after_a_while(void *counts)
{
    int i;
    for (i = 0; i < 2000; i++) {
        gs_yield();
        ((int *)counts)[recv_int(chans[0])]++;
    }
}

GO_TEST(the_choice_among_duplicates_of_a_waiting_select_is_uniform)
{
    int64_t zero = 0, one = 1;
    int counts[2] = {0, 0}, i;
    gs_g *g;
    make_chans(1, 0);
    g = go_ref(receive_after_a_while, counts);
    for (i = 0; i < 2000; i++) {
        gs_case cases[2] = {send_case(chans[0], &zero), send_case(chans[0], &one)};
        CHECK_GE(gs_select(cases, 2, GS_FOREVER), 0);
    }
    join(g);
    CHECK_GE(counts[0], 700);
    CHECK_GE(counts[1], 700);
    free_chans(1);
}

/* Go's TestSelectFairness: two always ready, two never. */
static void feed(void *ch)
{
    int64_t v = 1;
    while (gs_chan_send(ch, &v, GS_FOREVER) == 0)
        ;
}

GO_TEST(two_busy_senders_are_heard_alike)
{
    gs_g *g[2];
    gs_case cases[4];
    int i, heard[4] = {0}, trials = 5000;
    make_chans(4, 0);
    for (i = 0; i < 2; i++) {
        free_chan(chans[i]);
        chans[i] = chan_of_ints((size_t)trials + 1);
        g[i] = go_ref(feed, chans[i]);
    }
    for (i = 0; i < 2; i++)
        WAIT_UNTIL(gs_chan_len(chans[i]) == (size_t)trials + 1);
    for (i = 0; i < 4; i++)
        cases[i] = recv_case(chans[i], &values[i]);
    for (i = 0; i < trials; i++)
        heard[gs_select(cases, 4, GS_FOREVER)]++;
    CHECK_EQ(heard[0] + heard[1], trials);
    CHECK_GE(heard[0], trials / 2 - 400);
    CHECK_GE(heard[1], trials / 2 - 400);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(gs_chan_close(chans[i]), 0);
        join(g[i]);
    }
    free_chans(4);
}

/* ---- Waiting ---- */

struct sending {
    gs_chan *ch;
    int64_t v;
};

static void send_later(void *arg)
{
    struct sending *s = arg;
    CHECK_EQ(gs_sleep(500 * US), 0);
    send_int(s->ch, s->v);
}

static void receive_later(void *arg)
{
    struct sending *s = arg;
    CHECK_EQ(gs_sleep(500 * US), 0);
    CHECK_EQ(recv_int(s->ch), s->v);
}

GO_TEST(a_waiting_select_takes_what_comes_first)
{
    gs_case cases[4];
    int k, i;
    for (k = 0; k < 8; k++) {
        struct sending s;
        gs_g *g;
        make_chans(4, (size_t)(k / 4));
        for (i = 0; i < 4; i++)
            cases[i] = recv_case(chans[i], &values[i]);
        s.ch = chans[k % 4];
        s.v = 100 + k;
        g = go_ref(send_later, &s);
        CHECK_EQ(gs_select(cases, 4, GS_FOREVER), k % 4);
        CHECK_EQ(cases[k % 4].result, 0);
        CHECK_EQ(values[k % 4], 100 + k);
        join(g);
        for (i = 0; i < 4; i++) /* it waits nowhere any more */
            if (k < 4)
                CHECK_EQ(try_send(chans[i], 1), -EAGAIN);
        free_chans(4);
    }
}

GO_TEST(a_waiting_select_sends_to_who_comes_first)
{
    gs_case cases[4];
    int k, i;
    for (k = 0; k < 4; k++) {
        struct sending s;
        gs_g *g;
        make_chans(4, 0);
        for (i = 0; i < 4; i++) {
            values[i] = 1000 + i;
            cases[i] = send_case(chans[i], &values[i]);
        }
        s.ch = chans[k];
        s.v = 1000 + k;
        g = go_ref(receive_later, &s);
        CHECK_EQ(gs_select(cases, 4, GS_FOREVER), k);
        join(g);
        for (i = 0; i < 4; i++)
            CHECK_EQ(gs_chan_recv(chans[i], NULL, GS_NOWAIT), -EAGAIN);
        free_chans(4);
    }
}

static void close_later(void *ch)
{
    CHECK_EQ(gs_sleep(500 * US), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
}

GO_TEST(a_waiting_select_hears_of_a_close)
{
    gs_case cases[2];
    gs_g *g;
    make_chans(2, 0);
    values[0] = values[1] = 99;
    cases[0] = recv_case(chans[0], &values[0]);
    cases[1] = recv_case(chans[1], &values[1]);
    g = go_ref(close_later, chans[1]);
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), 1);
    CHECK_EQ(cases[1].result, -EPIPE);
    CHECK_EQ(values[1], 0);
    CHECK_EQ(values[0], 99);
    join(g);
    free_chans(2);
}

GO_TEST(a_closed_channel_is_ready)
{
    gs_case cases[2];
    make_chans(2, 1);
    CHECK_EQ(gs_chan_close(chans[1]), 0);
    values[1] = 99;
    cases[0] = recv_case(chans[0], &values[0]);
    cases[1] = recv_case(chans[1], &values[1]);
    CHECK_EQ(gs_select(cases, 2, GS_NOWAIT), 1);
    CHECK_EQ(cases[1].result, -EPIPE);
    CHECK_EQ(values[1], 0);
    cases[1] = send_case(chans[1], &values[1]);
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), 1);
    CHECK_EQ(cases[1].result, -EPIPE);
    free_chans(2);
}

GO_TEST(a_receive_case_may_discard)
{
    gs_case cases[1];
    make_chans(1, 1);
    send_int(chans[0], 5);
    cases[0] = recv_case(chans[0], NULL);
    CHECK_EQ(gs_select(cases, 1, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_len(chans[0]), 0);
    free_chans(1);
}

/* ---- Deadlines, NULL channels, no cases ---- */

static void check_deadlines(void)
{
    gs_case cases[3];
    int64_t deadline = gs_after_ms(3);
    make_chans(2, 0);
    cases[0] = recv_case(chans[0], &values[0]);
    cases[1] = send_case(chans[1], &values[1]);
    cases[2] = recv_case(NULL, &values[2]);
    CHECK_EQ(gs_select(cases, 3, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_select(cases, 3, 1), -ETIMEDOUT);
    CHECK_EQ(gs_select(cases, 3, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(try_send(chans[0], 1), -EAGAIN); /* no waiter was left behind */
    CHECK_EQ(gs_chan_recv(chans[1], &values[2], GS_NOWAIT), -EAGAIN);
    free_chans(2);
}

GO_TEST(a_select_ends_at_its_deadline)
{
    check_deadlines();
}

TEST(a_select_of_a_plain_thread_ends_at_its_deadline)
{
    check_deadlines();
}

GO_TEST(a_ready_case_is_chosen_after_the_deadline)
{
    gs_case c;
    make_chans(1, 1);
    c = send_case(chans[0], &values[0]);
    CHECK_EQ(gs_select(&c, 1, 1), 0);
    c = recv_case(chans[0], &values[0]);
    CHECK_EQ(gs_select(&c, 1, 1), 0);
    free_chans(1);
}

GO_TEST(a_NULL_channel_is_never_ready)
{
    gs_case cases[3];
    int i;
    make_chans(1, 1);
    for (i = 0; i < 50; i++) {
        cases[0] = recv_case(NULL, &values[0]);
        cases[1] = send_case(chans[0], &values[1]);
        cases[2] = send_case(NULL, &values[2]);
        CHECK_EQ(gs_select(cases, 3, GS_FOREVER), 1);
        (void)recv_int(chans[0]);
    }
    cases[1].ch = NULL;
    CHECK_EQ(gs_select(cases, 3, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_select(cases, 3, 1), -ETIMEDOUT);
    CHECK_EQ(gs_select(cases, 3, gs_after_us(300)), -ETIMEDOUT);
    free_chans(1);
}

static void select_nothing(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_select(NULL, 0, GS_FOREVER), -ECANCELED);
}

GO_TEST(a_select_of_nothing_waits_for_ever)
{
    gs_g *g = go_ref(select_nothing, NULL);
    int64_t deadline = gs_after_ms(2);
    CHECK_EQ(gs_select(NULL, 0, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_select(NULL, 0, 1), -ETIMEDOUT);
    CHECK_EQ(gs_select(NULL, 0, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(gs_join(g, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

/* ---- Bad cases ---- */

GO_TEST(a_bad_case_is_EINVAL_and_nothing_is_done)
{
    gs_case cases[2];
    make_chans(2, 1);
    cases[0] = send_case(chans[0], &values[0]);
    cases[1] = send_case(chans[1], NULL);
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), -EINVAL);
    cases[1] = recv_case(chans[1], &values[1]);
    cases[1].op = 12345;
    CHECK_EQ(gs_select(cases, 2, GS_FOREVER), -EINVAL);
    cases[1].op = -1;
    CHECK_EQ(gs_select(cases, 2, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_select(NULL, 1, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_chan_len(chans[0]), 0);
    CHECK_EQ(gs_chan_len(chans[1]), 0);
    free_chans(2);
}

/* ---- One channel in several cases ---- */

GO_TEST(a_select_does_not_meet_itself)
{
    gs_case cases[2];
    make_chans(1, 0);
    cases[0] = send_case(chans[0], &values[0]);
    cases[1] = recv_case(chans[0], &values[1]);
    CHECK_EQ(gs_select(cases, 2, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_select(cases, 2, gs_after_us(500)), -ETIMEDOUT);
    free_chans(1);
}

struct self_select {
    gs_chan *ch;
    int64_t me;
    int unbuffered;
};

static void select_both_ways(void *arg)
{
    struct self_select *s = arg;
    int i;
    for (i = 0; i < 1000; i++) {
        int64_t in = -1, out = s->me;
        gs_case cases[2];
        int receives = s->me == 0 || i % 2 == 0;
        cases[!receives] = send_case(s->ch, &out);
        cases[receives] = recv_case(s->ch, &in);
        CHECK(gs_select(cases, 2, GS_FOREVER) >= 0);
        CHECK(!(s->unbuffered && in == s->me)); /* a value of its own came back */
    }
}

/* Go's TestSelfSelect. Both make the same number of moves, so on an unbuffered channel none is left over. */
GO_TEST(two_selects_that_send_and_receive_on_one_channel)
{
    size_t cap;
    for (cap = 0; cap <= 10; cap += 10) {
        gs_chan *ch = chan_of_ints(cap);
        struct self_select s[2] = {{ch, 0, cap == 0}, {ch, 1, cap == 0}};
        gs_g *a = go_ref(select_both_ways, &s[0]), *b = go_ref(select_both_ways, &s[1]);
        join(a);
        join(b);
        free_chan(ch);
    }
}

GO_TEST(a_waiting_select_with_duplicates_is_woken_once)
{
    gs_case cases[4];
    int i, j;
    for (i = 0; i < 50; i++) {
        struct sending s;
        gs_g *g;
        int k;
        make_chans(1, 0);
        for (j = 0; j < 4; j++) {
            values[j] = -1;
            cases[j] = recv_case(chans[0], &values[j]);
        }
        s.ch = chans[0];
        s.v = i;
        g = go_ref(send_later, &s);
        k = gs_select(cases, 4, GS_FOREVER);
        CHECK(k >= 0 && k < 4);
        for (j = 0; j < 4; j++)
            CHECK_EQ(values[j], j == k ? i : -1);
        CHECK_EQ(try_send(chans[0], 1), -EAGAIN);
        join(g);
        free_chans(1);
    }
}

/* Go's TestSelectDuplicateChannel: waiting twice on one channel must not lose the third waiter. */
static int reached;

static void wait_twice(void *arg)
{
    gs_chan **c = arg;
    gs_case cases[3];
    int64_t v;
    cases[0] = recv_case(c[0], &v);
    cases[1] = recv_case(c[0], &v);
    cases[2] = recv_case(c[1], &v);
    ADD(reached, 1);
    CHECK_EQ(gs_select(cases, 3, GS_FOREVER), 2);
}

static void wait_once(void *ch)
{
    ADD(reached, 1);
    CHECK_EQ(recv_int(ch), 8);
}

GO_TEST(leaving_two_places_in_a_line_keeps_the_third)
{
    int procs = gs_gomaxprocs(1);
    gs_g *a, *b;
    make_chans(2, 0);
    SET(reached, 0);
    a = go_steady(wait_twice, chans);
    WAIT_UNTIL(GET(reached) == 1);
    b = go_steady(wait_once, chans[0]);
    WAIT_UNTIL(GET(reached) == 2);
    send_int(chans[1], 7); /* wakes the first, which leaves the line of chans[0] */
    join(a);
    CHECK_EQ(try_send(chans[0], 8), 0);
    join(b);
    free_chans(2);
    gs_gomaxprocs(procs);
}

/* ---- Many cases ---- */

GO_TEST(a_select_of_three_hundred_cases)
{
    enum { N = 300 };
    static gs_chan *many[N];
    static gs_case cases[N];
    static int64_t vs[N];
    int i, round;
    for (i = 0; i < N; i++) {
        many[i] = chan_of_ints(0);
        cases[i] = recv_case(many[i], &vs[i]);
    }
    for (round = 0; round < 20; round++) {
        struct sending s;
        gs_g *g;
        s.ch = many[round * 13 % N];
        s.v = round;
        g = go_ref(send_later, &s);
        CHECK_EQ(gs_select(cases, N, GS_FOREVER), round * 13 % N);
        CHECK_EQ(vs[round * 13 % N], round);
        join(g);
    }
    for (i = 0; i < N; i++)
        free_chan(many[i]);
}
