/* pingpong, chan_buf and mpmc: what a channel operation costs. */
#include "bench.h"

#include <stdatomic.h>

struct table {
    gs_chan *ping, *pong;
};

static void ponger(void *arg)
{
    struct table table = *(struct table *)arg;
    int64_t ball;
    int result;

    while ((result = gs_chan_recv(table.ping, &ball, GS_FOREVER)) == 0) {
        ball++;
        MUST(gs_chan_send(table.pong, &ball, GS_FOREVER));
    }
    CHECK(result == -EPIPE);
    MUST(gs_chan_close(table.pong));
}

void pingpong(int64_t n)
{
    struct table table = {new_chan(sizeof(int64_t), 0), new_chan(sizeof(int64_t), 0)};
    int64_t ball = 0;

    MUST(gs_spawn(ponger, &table));
    int64_t start = gs_now();
    for (int64_t i = 0; i < n; i++) {
        MUST(gs_chan_send(table.ping, &ball, GS_FOREVER));
        MUST(gs_chan_recv(table.pong, &ball, GS_FOREVER));
    }
    report_ns_each("pingpong", start, n);

    CHECK(ball == n);
    MUST(gs_chan_close(table.ping));
    CHECK(gs_chan_recv(table.pong, NULL, GS_FOREVER) == -EPIPE);
    MUST(gs_chan_free(table.ping));
    MUST(gs_chan_free(table.pong));
}

/* Producers send 1, 2, ... items_each; consumers add up until the channel is closed. */
struct line {
    gs_chan *items;
    int64_t items_each;
    gs_waitgroup producers, consumers;
    _Atomic int64_t sum;
};

static void producer(void *arg)
{
    struct line *line = arg;

    for (int64_t i = 1; i <= line->items_each; i++)
        MUST(gs_chan_send(line->items, &i, GS_FOREVER));
    MUST(gs_waitgroup_done(&line->producers));
}

static void consumer(void *arg)
{
    struct line *line = arg;
    int64_t item, sum = 0;
    int result;

    while ((result = gs_chan_recv(line->items, &item, GS_FOREVER)) == 0)
        sum += item;
    CHECK(result == -EPIPE);
    atomic_fetch_add(&line->sum, sum);
    MUST(gs_waitgroup_done(&line->consumers));
}

static void produce_and_consume(const char *figure, int64_t on_each_side, size_t cap, int64_t n)
{
    struct line line = {.items = new_chan(sizeof(int64_t), cap), .items_each = share(n, on_each_side)};

    int64_t start = gs_now();
    MUST(gs_waitgroup_add(&line.producers, on_each_side));
    MUST(gs_waitgroup_add(&line.consumers, on_each_side));
    for (int64_t i = 0; i < on_each_side; i++) {
        MUST(gs_spawn(producer, &line));
        MUST(gs_spawn(consumer, &line));
    }
    MUST(gs_waitgroup_wait(&line.producers, GS_FOREVER));
    MUST(gs_chan_close(line.items));
    MUST(gs_waitgroup_wait(&line.consumers, GS_FOREVER));
    report_ns_each(figure, start, line.items_each * on_each_side);

    CHECK(line.sum == on_each_side * (line.items_each * (line.items_each + 1) / 2));
    MUST(gs_chan_free(line.items));
}

void chan_buf(int64_t n)
{
    produce_and_consume("chan_buf", 1, 1024, n);
}

void mpmc(int64_t n)
{
    produce_and_consume("mpmc", 4, 128, n);
}
