/* spawn_join and spawn_batch: goroutines that do nothing, started by one and waited for. */
#include "bench.h"

static void empty(void *wg)
{
    MUST(gs_waitgroup_done(wg));
}

static void spawn_and_wait(int64_t n)
{
    gs_waitgroup wg = {0};

    MUST(gs_waitgroup_add(&wg, n));
    for (int64_t i = 0; i < n; i++)
        MUST(gs_spawn(empty, &wg));
    MUST(gs_waitgroup_wait(&wg, GS_FOREVER));
}

void spawn_join(int64_t n)
{
    int64_t start = gs_now();
    spawn_and_wait(n);
    report_ns_each("spawn_join", start, n);
}

void spawn_batch(int64_t n)
{
    enum { BATCH = 1000 };
    int64_t batches = share(n, BATCH);

    int64_t start = gs_now();
    for (int64_t i = 0; i < batches; i++)
        spawn_and_wait(BATCH);
    report_ns_each("spawn_batch", start, batches * BATCH);
}
