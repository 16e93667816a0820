/*
 * A channel may be freed once the caller's own last call on it has returned, while the partner is still
 * leaving its call. Each round uses a channel of its own and frees it at the earliest moment.
 */
#include "check.h"

#define ROUNDS 3000

struct round {
    gs_chan *ch;
    int64_t v;
};

static void pause_a_little(int i)
{
    if (i % 3 == 0)
        gs_yield();
}

/* ---- The receiver frees ---- */

static void send_and_leave(void *arg)
{
    struct round *r = arg;
    gs_chan *ch = r->ch; /* the round is not looked at after the call either */
    int64_t v = r->v;
    CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
}

static void *send_in_thread(void *arg)
{
    send_and_leave(arg);
    return NULL;
}

GO_TEST(the_receiver_frees_while_the_sender_leaves)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        struct round r = {chan_of_ints((size_t)(i % 3)), i};
        gs_g *g = go_ref(send_and_leave, &r);
        pause_a_little(i);
        CHECK_EQ(recv_int(r.ch), i);
        free_chan(r.ch);
        join(g);
    }
}

/* ---- The sender frees ---- */

static void receive_and_leave(void *arg)
{
    gs_chan *ch = ((struct round *)arg)->ch;
    int64_t v = -1;
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
    CHECK_EQ(v, 5);
}

static void *receive_in_thread(void *arg)
{
    receive_and_leave(arg);
    return NULL;
}

GO_TEST(the_sender_frees_while_the_receiver_leaves)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        struct round r = {chan_of_ints(0), 5};
        gs_g *g = go_ref(receive_and_leave, &r);
        pause_a_little(i);
        send_int(r.ch, 5);
        free_chan(r.ch);
        join(g);
    }
}

/* ---- The one who hears of the close frees while the closer leaves ---- */

static void close_and_leave(void *arg)
{
    gs_chan *ch = ((struct round *)arg)->ch;
    CHECK_EQ(gs_chan_close(ch), 0);
}

GO_TEST(a_receiver_frees_while_the_closer_leaves)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        struct round r = {chan_of_ints((size_t)(i % 2)), 0};
        gs_g *g = go_ref(close_and_leave, &r);
        pause_a_little(i);
        CHECK_EQ(gs_chan_recv(r.ch, NULL, GS_FOREVER), -EPIPE);
        free_chan(r.ch);
        join(g);
    }
}

/* ---- The same with select ---- */

GO_TEST(a_select_frees_both_channels_while_the_sender_leaves)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        struct round r = {chan_of_ints(0), i};
        gs_chan *other = chan_of_ints(0);
        int64_t v = -1, w;
        gs_case cases[2];
        gs_g *g = go_ref(send_and_leave, &r);
        cases[0] = recv_case(other, &w);
        cases[1] = recv_case(r.ch, &v);
        pause_a_little(i);
        CHECK_EQ(gs_select(cases, 2, GS_FOREVER), 1);
        CHECK_EQ(v, i);
        free_chan(r.ch);
        free_chan(other);
        join(g);
    }
}

struct two {
    gs_chan *a, *b;
};

static void select_and_leave(void *arg)
{
    struct two *t = arg;
    int64_t v, w;
    gs_case cases[2];
    cases[0] = recv_case(t->a, &v);
    cases[1] = recv_case(t->b, &w);
    CHECK(gs_select(cases, 2, GS_FOREVER) >= 0);
}

/* Both channels belong to the select until its call has returned: only then may either be freed. */
GO_TEST(both_channels_are_freed_after_the_select_has_ended)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        struct two t = {chan_of_ints(0), chan_of_ints(0)};
        gs_g *g = go_ref(select_and_leave, &t);
        pause_a_little(i);
        send_int(i % 2 ? t.a : t.b, 1);
        join(g);
        free_chan(t.a);
        free_chan(t.b);
    }
}

/* ---- Plain threads ---- */

GO_TEST(a_goroutine_frees_while_a_thread_leaves)
{
    int i;
    for (i = 0; i < 200; i++) {
        struct round r = {chan_of_ints(0), i};
        pthread_t t = start_thread(send_in_thread, &r);
        CHECK_EQ(recv_int(r.ch), i);
        free_chan(r.ch);
        go_join_thread(t);
    }
    for (i = 0; i < 200; i++) {
        struct round r = {chan_of_ints(0), 5};
        pthread_t t = start_thread(receive_in_thread, &r);
        send_int(r.ch, 5);
        free_chan(r.ch);
        go_join_thread(t);
    }
}

TEST(a_thread_frees_while_a_goroutine_leaves)
{
    int i;
    for (i = 0; i < 500; i++) {
        struct round r = {chan_of_ints(0), i};
        gs_g *g = go_ref(send_and_leave, &r);
        CHECK_EQ(recv_int(r.ch), i);
        free_chan(r.ch);
        join(g);
    }
    for (i = 0; i < 500; i++) {
        struct round r = {chan_of_ints(0), 5};
        gs_g *g = go_ref(receive_and_leave, &r);
        send_int(r.ch, 5);
        free_chan(r.ch);
        join(g);
    }
}

/* ---- A channel that carries its own end, as a request's reply channel does ---- */

static gs_chan *requests;

static void serve(void *arg)
{
    struct round *r;
    (void)arg;
    while (gs_chan_recv(requests, &r, GS_FOREVER) == 0) {
        int64_t answer = r->v * 2;
        CHECK_EQ(gs_chan_send(r->ch, &answer, GS_FOREVER), 0);
    }
}

static void be_client(void *arg)
{
    int64_t i;
    (void)arg;
    for (i = 0; i < 300; i++) {
        struct round *r = malloc(sizeof *r);
        r->ch = chan_of_ints((size_t)(i % 2));
        r->v = i;
        CHECK_EQ(gs_chan_send(requests, &r, GS_FOREVER), 0);
        CHECK_EQ(recv_int(r->ch), 2 * i);
        free_chan(r->ch);
        free(r);
    }
}

GO_TEST(reply_channels_are_freed_by_the_client)
{
    gs_g *clients[10], *servers[3];
    int i;
    requests = gs_chan_make(sizeof(struct round *), 4);
    for (i = 0; i < 3; i++)
        servers[i] = go_ref(serve, NULL);
    for (i = 0; i < 10; i++)
        clients[i] = go_ref(be_client, NULL);
    for (i = 0; i < 10; i++)
        join(clients[i]);
    CHECK_EQ(gs_chan_close(requests), 0);
    for (i = 0; i < 3; i++)
        join(servers[i]);
    free_chan(requests);
}
