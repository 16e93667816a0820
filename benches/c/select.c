/* select: one goroutine receives from four unbuffered channels, each with a sender of its own. */
#include "bench.h"

enum { CHANNELS = 4 };

struct source {
    gs_chan *out;
    int64_t items;
};

static void sender(void *arg)
{
    struct source source = *(struct source *)arg;

    for (int64_t i = 1; i <= source.items; i++)
        MUST(gs_chan_send(source.out, &i, GS_FOREVER));
}

void select4(int64_t n)
{
    struct source sources[CHANNELS];
    int64_t items[CHANNELS];
    gs_case cases[CHANNELS];
    int64_t each = share(n, CHANNELS), total = each * CHANNELS, sum = 0;

    int64_t start = gs_now();
    for (int i = 0; i < CHANNELS; i++) {
        sources[i] = (struct source){new_chan(sizeof(int64_t), 0), each};
        cases[i] = (gs_case){.ch = sources[i].out, .elem = &items[i], .op = GS_RECV};
        MUST(gs_spawn(sender, &sources[i]));
    }
    for (int64_t i = 0; i < total; i++)
        sum += items[MUST(gs_select(cases, CHANNELS, GS_FOREVER))];
    report_ns_each("select", start, total);

    CHECK(sum == CHANNELS * (each * (each + 1) / 2));
    for (int i = 0; i < CHANNELS; i++)
        MUST(gs_chan_free(sources[i].out));
}
