/* Channels between plain threads, and between plain threads and goroutines. */
#include "check.h"

#define EACH 1000

struct side {
    gs_chan *in, *out;
    int64_t sum;
};

static void send_all(void *arg)
{
    struct side *s = arg;
    int64_t i;
    for (i = 1; i <= EACH; i++)
        send_int(s->out, i);
}

static void receive_all(void *arg)
{
    struct side *s = arg;
    int64_t v, sum = 0;
    while (gs_chan_recv(s->in, &v, GS_FOREVER) == 0)
        sum += v;
    ADD(s->sum, sum);
}

static void *send_all_thread(void *arg)
{
    send_all(arg);
    return NULL;
}

static void *receive_all_thread(void *arg)
{
    receive_all(arg);
    return NULL;
}

/* Half of the senders and half of the receivers are threads, the others goroutines. */
static void mixed(size_t cap)
{
    gs_chan *ch = chan_of_ints(cap);
    struct side s = {ch, ch, 0};
    pthread_t senders[3], receivers[3];
    gs_g *gsenders[3], *greceivers[3];
    int i;
    for (i = 0; i < 3; i++) {
        receivers[i] = start_thread(receive_all_thread, &s);
        greceivers[i] = go_ref(receive_all, &s);
        senders[i] = start_thread(send_all_thread, &s);
        gsenders[i] = go_ref(send_all, &s);
    }
    for (i = 0; i < 3; i++) {
        join_thread(senders[i]);
        join(gsenders[i]);
    }
    CHECK_EQ(gs_chan_close(ch), 0);
    for (i = 0; i < 3; i++) {
        join_thread(receivers[i]);
        join(greceivers[i]);
    }
    CHECK_EQ(s.sum, 6LL * EACH * (EACH + 1) / 2);
    free_chan(ch);
}

TEST(threads_and_goroutines_share_a_channel)
{
    mixed(0);
    mixed(1);
    mixed(16);
}

TEST(threads_alone_use_a_channel)
{
    gs_chan *ch = chan_of_ints(0);
    struct side s = {ch, ch, 0};
    pthread_t senders[2], receivers[2];
    int i;
    for (i = 0; i < 2; i++) {
        receivers[i] = start_thread(receive_all_thread, &s);
        senders[i] = start_thread(send_all_thread, &s);
    }
    for (i = 0; i < 2; i++)
        join_thread(senders[i]);
    CHECK_EQ(gs_chan_close(ch), 0);
    for (i = 0; i < 2; i++)
        join_thread(receivers[i]);
    CHECK_EQ(s.sum, 2LL * EACH * (EACH + 1) / 2);
    free_chan(ch);
}

static void echo(void *arg)
{
    struct side *s = arg;
    int64_t v;
    while (gs_chan_recv(s->in, &v, GS_FOREVER) == 0)
        send_int(s->out, v + 1);
}

TEST(a_thread_and_a_goroutine_play_ping_pong)
{
    struct side s = {chan_of_ints(0), chan_of_ints(0), 0};
    gs_g *g = go_ref(echo, &s);
    int64_t i;
    for (i = 0; i < 2000; i++) {
        send_int(s.in, i);
        CHECK_EQ(recv_int(s.out), i + 1);
    }
    CHECK_EQ(gs_chan_close(s.in), 0);
    join(g);
    free_chan(s.in);
    free_chan(s.out);
}

/* ---- select on threads ---- */

static void *select_thread(void *arg)
{
    struct side *s = arg;
    int64_t v[2] = {0, 0}, sum = 0;
    int closed = 0;
    gs_case cases[2];
    cases[0] = recv_case(s->in, &v[0]);
    cases[1] = recv_case(s->out, &v[1]);
    while (closed < 2) {
        int k = gs_select(cases, 2, GS_FOREVER);
        CHECK(k == 0 || k == 1);
        sum += v[k];
        if (cases[k].result == -EPIPE) {
            cases[k].ch = NULL;
            closed++;
        }
    }
    ADD(s->sum, sum);
    return NULL;
}

static void send_on(void *ch)
{
    int64_t i;
    for (i = 1; i <= EACH; i++)
        send_int(ch, i);
    CHECK_EQ(gs_chan_close(ch), 0);
}

TEST(threads_select_from_two_goroutines)
{
    struct side s = {chan_of_ints(0), chan_of_ints(3), 0};
    pthread_t t[3];
    gs_g *a, *b;
    int i;
    for (i = 0; i < 3; i++)
        t[i] = start_thread(select_thread, &s);
    a = go_ref(send_on, s.in);
    b = go_ref(send_on, s.out);
    for (i = 0; i < 3; i++)
        join_thread(t[i]);
    join(a);
    join(b);
    CHECK_EQ(s.sum, 2LL * EACH * (EACH + 1) / 2);
    free_chan(s.in);
    free_chan(s.out);
}

/* ---- Deadlines on threads ---- */

struct counts {
    gs_chan *ch;
    int64_t sent, received;
    int stop;
};

static void *send_impatiently(void *arg)
{
    struct counts *c = arg;
    int64_t v = 1, i;
    for (i = 0; i < 500; i++)
        if (gs_chan_send(c->ch, &v, gs_after_us(i % 30)) == 0)
            ADD(c->sent, 1);
    return NULL;
}

static void receive_impatiently(void *arg)
{
    struct counts *c = arg;
    int64_t v, i;
    for (i = 0; !GET(c->stop); i++)
        if (gs_chan_recv(c->ch, &v, gs_after_us(i % 30)) == 0)
            ADD(c->received, 1);
}

TEST(deadlines_of_threads_lose_nothing)
{
    struct counts c = {chan_of_ints(0), 0, 0, 0};
    pthread_t t[3];
    gs_g *gs[3];
    int i;
    for (i = 0; i < 3; i++) {
        gs[i] = go_ref(receive_impatiently, &c);
        t[i] = start_thread(send_impatiently, &c);
    }
    for (i = 0; i < 3; i++)
        join_thread(t[i]);
    SET(c.stop, 1);
    for (i = 0; i < 3; i++)
        join(gs[i]);
    CHECK_EQ(c.sent, c.received);
    free_chan(c.ch);
}

/* ---- Threads that come and go ---- */

static void *send_one_and_leave(void *ch)
{
    send_int(ch, 1);
    return NULL;
}

GO_TEST(many_short_lived_threads_send_to_a_goroutine)
{
    gs_chan *ch = chan_of_ints(0);
    int i, round;
    for (round = 0; round < 20; round++) {
        pthread_t t[5];
        for (i = 0; i < 5; i++)
            t[i] = start_thread(send_one_and_leave, ch);
        for (i = 0; i < 5; i++)
            CHECK_EQ(recv_int(ch), 1);
        for (i = 0; i < 5; i++)
            go_join_thread(t[i]);
    }
    free_chan(ch);
}

static void *wait_for_close(void *ch)
{
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), -EPIPE);
    return NULL;
}

GO_TEST(close_wakes_many_threads)
{
    gs_chan *ch = chan_of_ints(0);
    pthread_t t[20];
    int i;
    for (i = 0; i < 20; i++)
        t[i] = start_thread(wait_for_close, ch);
    CHECK_EQ(gs_sleep(2 * MS), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    for (i = 0; i < 20; i++)
        go_join_thread(t[i]);
    free_chan(ch);
}

/* A goroutine's wait costs no P while a thread is slow to answer. seed: B2 */
static void *answer_slowly(void *arg)
{
    struct side *s = arg;
    (void)recv_int(s->in);
    nap(20 * MS);
    send_int(s->out, 1);
    return NULL;
}

static void ask(void *arg)
{
    struct side *s = arg;
    send_int(s->in, 1);
    CHECK_EQ(recv_int(s->out), 1);
    SET(s->sum, 1);
}

GO_TEST(others_run_while_a_goroutine_waits_for_a_thread)
{
    int procs = gs_gomaxprocs(1), turns = 0;
    struct side s = {chan_of_ints(0), chan_of_ints(0), 0};
    pthread_t t = start_thread(answer_slowly, &s);
    gs_g *g = go_ref(ask, &s);
    while (!GET(s.sum)) {
        gs_yield();
        turns++;
    }
    CHECK_GE(turns, 2);
    join(g);
    go_join_thread(t);
    free_chan(s.in);
    free_chan(s.out);
    gs_gomaxprocs(procs);
}

/* ---- A receive that does not wait, beside one that takes the place of a waiting sender's element ---- */

/* Enough bytes for the copies of an element to take long. */
#define HUGE_ELEM (4 << 20)

struct huge {
    gs_chan *ch;
    char *elem;
    pid_t tid;
    int begun, done;
};

static void *send_huge(void *arg)
{
    struct huge *h = arg;
    SET(h->tid, thread_id());
    CHECK_EQ(gs_chan_send(h->ch, h->elem, GS_FOREVER), 0);
    return NULL;
}

static void *receive_huge(void *arg)
{
    struct huge *h = arg;
    SET(h->begun, 1);
    CHECK_EQ(gs_chan_recv(h->ch, h->elem, GS_FOREVER), 0);
    SET(h->done, 1);
    return NULL;
}

/* One value is in the buffer, and a sender waits with another: there is one for each of two receivers. */
TEST(a_channel_with_a_waiting_sender_is_never_empty)
{
    char *elems = calloc(3, HUGE_ELEM);
    int i;
    for (i = 0; i < 20; i++) {
        gs_chan *ch = gs_chan_make(HUGE_ELEM, 1);
        struct huge s = {ch, elems, 0, 0, 0}, r = {ch, elems + HUGE_ELEM, 0, 0, 0};
        pthread_t sender, receiver;
        CHECK_EQ(gs_chan_send(ch, elems, GS_NOWAIT), 0);
        sender = start_thread(send_huge, &s);
        wait_asleep(&s.tid);
        receiver = start_thread(receive_huge, &r);
        if (i % 2) {
            while (!GET(r.begun))
                ;
        } else {
            while (!GET(r.done))
                CHECK_EQ(gs_chan_len(ch), 1);
        }
        CHECK_EQ(gs_chan_recv(ch, elems + 2 * (size_t)HUGE_ELEM, GS_NOWAIT), 0);
        join_thread(sender);
        join_thread(receiver);
        CHECK_EQ(gs_chan_len(ch), 0);
        free_chan(ch);
    }
    free(elems);
}
