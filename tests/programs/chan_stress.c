/*
 * Channels and select under load: nothing is lost, nothing comes twice. Also run with the race-widening switches.
 * "chan_stress bubbles SEED RUNS" has each test in bubbles (tester.h), with less load.
 */
#include "tester.h"

/* What a test does n times under load. */
static int times(int n)
{
    return is_in_bubble() ? 1 + n / 400 : n;
}

/* ---- Many producers and consumers ---- */

#define PRODUCERS 8
#define EACH times(2000)

static gs_chan *pipe_chan;
static int64_t total;
static gs_waitgroup producing;

static void produce(void *arg)
{
    int64_t base = (intptr_t)arg * EACH, i;
    for (i = 0; i < EACH; i++)
        send_int(pipe_chan, base + i);
    CHECK_EQ(gs_waitgroup_done(&producing), 0);
}

static void consume(void *arg)
{
    int64_t sum = 0, v;
    (void)arg;
    while (gs_chan_recv(pipe_chan, &v, GS_FOREVER) == 0)
        sum += v;
    ADD(total, sum);
}

static void close_after_producers(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_waitgroup_wait(&producing, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_close(pipe_chan), 0);
}

static void pump(size_t cap, int consumers)
{
    gs_g *gs[16];
    intptr_t i;
    SET(total, 0);
    pipe_chan = chan_of_ints(cap);
    CHECK_EQ(gs_waitgroup_add(&producing, PRODUCERS), 0);
    for (i = 0; i < consumers; i++)
        gs[i] = go_ref(consume, NULL);
    for (i = 0; i < PRODUCERS; i++)
        go(produce, (void *)i);
    go(close_after_producers, NULL);
    for (i = 0; i < consumers; i++)
        join(gs[i]);
    CHECK_EQ(total, (int64_t)PRODUCERS * EACH * (PRODUCERS * EACH - 1) / 2);
    free_chan(pipe_chan);
}

GO_TEST(many_producers_and_consumers_add_up)
{
    pump(0, 1);
    pump(0, 8);
    pump(1, 3);
    pump(10, 8);
    pump(100000, 2);
}

/* Each value of one producer comes in order at one consumer: FIFO holds under load. */
static void count_up(void *arg)
{
    int64_t me = (intptr_t)arg, i;
    for (i = 0; i < EACH; i++)
        send_int(pipe_chan, me << 32 | i);
}

GO_TEST(the_values_of_each_producer_stay_in_order)
{
    size_t cap;
    for (cap = 0; cap < 20; cap += 9) {
        int64_t next[PRODUCERS] = {0};
        gs_g *gs[PRODUCERS];
        intptr_t i;
        pipe_chan = chan_of_ints(cap);
        for (i = 0; i < PRODUCERS; i++)
            gs[i] = go_ref(count_up, (void *)i);
        for (i = 0; i < PRODUCERS * EACH; i++) {
            int64_t v = recv_int(pipe_chan);
            CHECK_EQ(v & 0xffffffff, next[v >> 32]++);
        }
        for (i = 0; i < PRODUCERS; i++)
            join(gs[i]);
        free_chan(pipe_chan);
    }
}

/* ---- Go's TestSelectStress: four channels, plain and selecting partners on both sides ---- */

static gs_chan *four[4];

static void send_plainly(void *arg)
{
    int i;
    for (i = 0; i < EACH; i++)
        send_int(four[(intptr_t)arg], (intptr_t)arg);
}

static void receive_plainly(void *arg)
{
    int i;
    for (i = 0; i < EACH; i++)
        CHECK_EQ(recv_int(four[(intptr_t)arg]), (intptr_t)arg);
}

static void select_on_all(int op)
{
    gs_case cases[4];
    int64_t v[4] = {0, 1, 2, 3};
    int left[4] = {EACH, EACH, EACH, EACH}, i, k;
    for (i = 0; i < 4; i++) {
        cases[i].ch = four[i];
        cases[i].elem = &v[i];
        cases[i].op = op;
    }
    for (i = 0; i < 4 * EACH; i++) {
        k = gs_select(cases, 4, GS_FOREVER);
        CHECK(k >= 0 && k < 4);
        CHECK_EQ(cases[k].result, 0);
        CHECK_EQ(v[k], k);
        if (--left[k] == 0)
            cases[k].ch = NULL; /* as in Go: a nil channel takes the case out */
    }
}

static void select_sends(void *arg)
{
    (void)arg;
    select_on_all(GS_SEND);
}

static void select_receives(void *arg)
{
    (void)arg;
    select_on_all(GS_RECV);
}

GO_TEST(plain_and_selecting_partners_on_four_channels)
{
    static const size_t caps[] = {0, 0, 2, 3};
    gs_g *gs[10];
    intptr_t i;
    for (i = 0; i < 4; i++)
        four[i] = chan_of_ints(caps[i]);
    for (i = 0; i < 4; i++) {
        gs[i] = go_ref(send_plainly, (void *)i);
        gs[4 + i] = go_ref(receive_plainly, (void *)i);
    }
    gs[8] = go_ref(select_sends, NULL);
    gs[9] = go_ref(select_receives, NULL);
    for (i = 0; i < 10; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++) {
        CHECK_EQ(gs_chan_len(four[i]), 0);
        free_chan(four[i]);
    }
}

/* ---- Go's TestNonblockSelectRace: a select sees all channels at one moment ---- */

static gs_chan *c1, *c2, *done;

static void one_must_be_ready(void *arg)
{
    int64_t v;
    gs_case cases[2];
    (void)arg;
    cases[0] = recv_case(c1, &v);
    cases[1] = recv_case(c2, &v);
    send_int(done, gs_select(cases, 2, GS_NOWAIT));
}

static void select_race(int close_second)
{
    int i;
    done = chan_of_ints(1);
    for (i = 0; i < times(2000); i++) {
        int64_t v;
        c1 = chan_of_ints(1);
        c2 = chan_of_ints(1);
        send_int(c1, 1);
        go(one_must_be_ready, NULL);
        if (close_second)
            CHECK_EQ(gs_chan_close(c2), 0);
        else
            send_int(c2, 1);
        (void)gs_chan_recv(c1, &v, GS_NOWAIT);
        CHECK(recv_int(done) >= 0);
        free_chan(c1);
        free_chan(c2);
    }
    free_chan(done);
}

GO_TEST(a_select_without_waiting_sees_one_moment)
{
    select_race(0);
    select_race(1);
}

/* ---- Deadlines against partners: a value is received exactly if it was sent ---- */

struct exchange {
    gs_chan *ch;
    int64_t sent, received, sum_sent, sum_received;
    int stop_senders;
};

static void send_impatiently(void *arg)
{
    struct exchange *x = arg;
    uint64_t r = (uint64_t)clock_now() | 1;
    int64_t v;
    for (v = 1; v <= times(1500); v++)
        if (gs_chan_send(x->ch, &v, gs_after_ns((int64_t)(random_next(&r) % 40000))) == 0) {
            ADD(x->sent, 1);
            ADD(x->sum_sent, v);
        }
}

static void take(struct exchange *x, int64_t v)
{
    ADD(x->received, 1);
    ADD(x->sum_received, v);
}

static void receive_impatiently(void *arg)
{
    struct exchange *x = arg;
    uint64_t r = (uint64_t)clock_now() | 1;
    int64_t v = 0;
    while (!GET(x->stop_senders))
        if (gs_chan_recv(x->ch, &v, gs_after_ns((int64_t)(random_next(&r) % 40000))) == 0)
            take(x, v);
}

static void select_impatiently(void *arg)
{
    struct exchange *x = arg;
    gs_chan *never = chan_of_ints(0);
    uint64_t r = (uint64_t)clock_now() | 1;
    int64_t v = 0, w;
    gs_case cases[3];
    cases[0] = recv_case(never, &w);
    cases[1] = recv_case(x->ch, &v);
    cases[2] = recv_case(x->ch, &v);
    while (!GET(x->stop_senders))
        if (gs_select(cases, 3, gs_after_ns((int64_t)(random_next(&r) % 40000))) > 0)
            take(x, v);
    free_chan(never);
}

static void exchange_with(size_t cap)
{
    struct exchange x;
    gs_g *senders[4], *receivers[4];
    int64_t v;
    int i;
    memset(&x, 0, sizeof x);
    x.ch = chan_of_ints(cap);
    for (i = 0; i < 4; i++) {
        senders[i] = go_ref(send_impatiently, &x);
        receivers[i] = go_ref(i % 2 ? select_impatiently : receive_impatiently, &x);
    }
    for (i = 0; i < 4; i++)
        join(senders[i]);
    SET(x.stop_senders, 1);
    for (i = 0; i < 4; i++)
        join(receivers[i]);
    while (gs_chan_recv(x.ch, &v, GS_NOWAIT) == 0)
        take(&x, v);
    CHECK_EQ(x.received, x.sent);
    CHECK_EQ(x.sum_received, x.sum_sent);
    free_chan(x.ch);
}

GO_TEST(deadlines_lose_and_double_nothing)
{
    exchange_with(0);
    exchange_with(1);
    exchange_with(5);
}

/* ---- Close against select, again and again ---- */

static gs_chan *round_chan, *side_chan;
static int got_value, got_close;

static void select_once(void *arg)
{
    int64_t v = 99, w = 1;
    gs_case cases[3];
    int k;
    (void)arg;
    cases[0] = recv_case(side_chan, &w);
    cases[1] = recv_case(round_chan, &v);
    cases[2] = recv_case(side_chan, &w);
    k = gs_select(cases, 3, GS_FOREVER);
    CHECK_EQ(k, 1);
    if (cases[1].result == 0)
        ADD(got_value, 1);
    else
        ADD(got_close, 1);
    CHECK_EQ(v, cases[1].result == 0 ? 5 : 0);
}

static void send_once(void *sent)
{
    int64_t v = 5;
    int r = gs_chan_send(round_chan, &v, GS_FOREVER);
    CHECK(r == 0 || r == -EPIPE);
    if (r == 0)
        ADD(*(int *)sent, 1);
}

GO_TEST(close_against_select_and_send)
{
    int round, i;
    for (round = 0; round < times(400); round++) {
        gs_g *gs[6];
        int sent = 0;
        SET(got_value, 0);
        SET(got_close, 0);
        round_chan = chan_of_ints(0);
        side_chan = chan_of_ints(0);
        for (i = 0; i < 6; i++)
            gs[i] = go_ref(i < 4 ? select_once : send_once, &sent);
        for (i = 0; i < round % 5; i++)
            gs_yield();
        CHECK_EQ(gs_chan_close(round_chan), 0);
        for (i = 0; i < 6; i++)
            join(gs[i]);
        CHECK_EQ(got_value, sent);
        CHECK_EQ(got_value + got_close, 4);
        free_chan(round_chan);
        free_chan(side_chan);
    }
}

/* ---- A ring of tokens, and Go's pseudo-random order ---- */

struct station {
    gs_chan *in, *out;
    int64_t passed;
};

static void pass_tokens(void *arg)
{
    struct station *s = arg;
    int64_t v;
    while ((v = recv_int(s->in)) > 0) {
        s->passed++;
        send_int(s->out, v - 1);
    }
    (void)gs_chan_send(s->out, &v, GS_NOWAIT); /* a zero tells the next that the end has come */
}

GO_TEST(tokens_go_round_a_ring)
{
    enum { N = 50 };
    static struct station ring[N];
    gs_chan *ch[N];
    gs_g *gs[N];
    int i;
    int64_t passed = 0;
    for (i = 0; i < N; i++)
        ch[i] = chan_of_ints(2);
    for (i = 0; i < N; i++) {
        ring[i].in = ch[i];
        ring[i].out = ch[(i + 1) % N];
        ring[i].passed = 0;
        gs[i] = go_ref(pass_tokens, &ring[i]);
    }
    send_int(ch[0], times(10000));
    for (i = 0; i < N; i++)
        join(gs[i]);
    for (i = 0; i < N; i++) {
        passed += ring[i].passed;
        free_chan(ch[i]);
    }
    CHECK_EQ(passed, times(10000));
}

static void select_zero_or_one(void *arg)
{
    gs_chan *ch = arg;
    int64_t zero = 0, one = 1;
    gs_case cases[2];
    int i;
    for (i = 0; i < times(1000); i++) {
        cases[0] = send_case(ch, &zero);
        cases[1] = send_case(ch, &one);
        CHECK(gs_select(cases, 2, GS_FOREVER) >= 0);
    }
}

GO_TEST(a_select_that_waits_with_equal_cases_chooses_both)
{
    size_t cap;
    for (cap = 0; cap <= 1; cap++) {
        gs_chan *ch = chan_of_ints(cap);
        gs_g *g = go_ref(select_zero_or_one, ch);
        int i, ones = 0;
        for (i = 0; i < times(1000); i++) {
            if (i % 3 == 0)
                gs_yield(); /* so that the sender waits now and then */
            ones += recv_int(ch) == 1;
        }
        join(g);
        CHECK(is_in_bubble() || (ones >= 100 && 1000 - ones >= 100));
        free_chan(ch);
    }
}

/* Go's TestMultiConsumer: work passes through several goroutines and each piece comes out once. */
static gs_chan *work, *result;

static void work_on(void *arg)
{
    int64_t v;
    (void)arg;
    while (gs_chan_recv(work, &v, GS_FOREVER) == 0) {
        if (v % 37 == 0)
            gs_yield();
        send_int(result, v + 1);
    }
    CHECK_EQ(gs_waitgroup_done(&producing), 0);
}

static void give_work(void *arg)
{
    int64_t v;
    (void)arg;
    for (v = 0; v < times(10000); v++)
        send_int(work, v);
    CHECK_EQ(gs_chan_close(work), 0);
    CHECK_EQ(gs_waitgroup_wait(&producing, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_close(result), 0);
}

GO_TEST(each_piece_of_work_comes_out_once)
{
    static char seen[10001];
    int64_t v;
    int i, n = 0;
    gs_g *g;
    memset(seen, 0, sizeof seen);
    work = chan_of_ints(23);
    result = chan_of_ints(11);
    CHECK_EQ(gs_waitgroup_add(&producing, 23), 0);
    for (i = 0; i < 23; i++)
        go(work_on, NULL);
    g = go_ref(give_work, NULL);
    while (gs_chan_recv(result, &v, GS_FOREVER) == 0) {
        CHECK(v >= 1 && v <= times(10000) && !seen[v]);
        seen[v] = 1;
        n++;
    }
    CHECK_EQ(n, times(10000));
    join(g);
    free_chan(work);
    free_chan(result);
}

/* One of the tests, as the seed says. */
static void play(void *seed)
{
    uint64_t left = *(uint64_t *)seed;
    struct test *t = all_tests;
    memset(&producing, 0, sizeof producing);
    for (; left % 16 > 0; left--)
        t = t->next ? t->next : all_tests;
    t->fn();
}

int main(int argc, char **argv)
{
    static const struct bubble_play bubble = {.play = play, .most = {.max_steps = 200000}};
    int status = play_in_bubbles(argc, argv, &bubble);
    return status >= 0 ? status : check_main(argc, argv);
}
