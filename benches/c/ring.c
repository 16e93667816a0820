/* ring: a token goes round a thousand goroutines. */
#include "bench.h"

enum { GOROUTINES = 1000 };

struct member {
    gs_chan *in, *out;
    int64_t laps;
};

static void pass_on(void *arg)
{
    struct member member = *(struct member *)arg;
    int64_t token;

    for (int64_t i = 0; i < member.laps; i++) {
        MUST(gs_chan_recv(member.in, &token, GS_FOREVER));
        token++;
        MUST(gs_chan_send(member.out, &token, GS_FOREVER));
    }
}

void ring(int64_t n)
{
    struct member members[GOROUTINES];
    int64_t laps = share(n, GOROUTINES), token = 0;

    for (int i = 0; i < GOROUTINES; i++)
        members[i] = (struct member){.out = new_chan(sizeof(int64_t), 0), .laps = laps};
    for (int i = 0; i < GOROUTINES; i++)
        members[i].in = members[(i + GOROUTINES - 1) % GOROUTINES].out;

    /* This goroutine is member 0, which starts each lap. */
    int64_t start = gs_now();
    for (int i = 1; i < GOROUTINES; i++)
        MUST(gs_spawn(pass_on, &members[i]));
    for (int64_t i = 0; i < laps; i++) {
        token++;
        MUST(gs_chan_send(members[0].out, &token, GS_FOREVER));
        MUST(gs_chan_recv(members[0].in, &token, GS_FOREVER));
    }
    report_ns_each("ring", start, laps * GOROUTINES);

    CHECK(token == laps * GOROUTINES);
    for (int i = 0; i < GOROUTINES; i++)
        MUST(gs_chan_free(members[i].out));
}
