/* yield2 and yield1k: goroutines that yield to each other. */
#include "bench.h"

struct crowd {
    int64_t yields_each;
    gs_waitgroup done;
};

static void yielder(void *arg)
{
    struct crowd *crowd = arg;

    for (int64_t i = 0; i < crowd->yields_each; i++)
        gs_yield();
    MUST(gs_waitgroup_done(&crowd->done));
}

static void yield_among(const char *figure, int64_t goroutines, int64_t n)
{
    struct crowd crowd = {.yields_each = share(n, goroutines)};

    int64_t start = gs_now();
    MUST(gs_waitgroup_add(&crowd.done, goroutines));
    for (int64_t i = 0; i < goroutines; i++)
        MUST(gs_spawn(yielder, &crowd));
    MUST(gs_waitgroup_wait(&crowd.done, GS_FOREVER));
    report_ns_each(figure, start, crowd.yields_each * goroutines);
}

void yield2(int64_t n)
{
    yield_among("yield2", 2, n);
}

void yield1k(int64_t n)
{
    yield_among("yield1k", 1000, n);
}
