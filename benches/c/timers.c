/* timers: many goroutines sleep ten times each, once for 1, 2, ... 10 ms in an order of their own. */
#include "bench.h"

#include <stdlib.h>
#include <sys/resource.h>

struct sleeper {
    int64_t index;
    gs_waitgroup *done;
};

static void sleep_ten_times(void *arg)
{
    struct sleeper *sleeper = arg;

    for (int64_t i = 0; i < 10; i++) {
        int64_t ms = 1 + (sleeper->index * 7 + i * 3) % 10;
        MUST(gs_sleep(ms * 1000000));
    }
    MUST(gs_waitgroup_done(sleeper->done));
}

static double cpu_seconds(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void timers(int64_t n)
{
    struct sleeper *sleepers = new_array(n, sizeof *sleepers);
    gs_waitgroup done = {0};

    double cpu = cpu_seconds();
    int64_t start = gs_now();
    MUST(gs_waitgroup_add(&done, n));
    for (int64_t i = 0; i < n; i++) {
        sleepers[i] = (struct sleeper){i, &done};
        MUST(gs_spawn(sleep_ten_times, &sleepers[i]));
    }
    MUST(gs_waitgroup_wait(&done, GS_FOREVER));
    report("timers", ms_since(start), "ms");
    report("timers.cpu", cpu_seconds() - cpu, "s");

    free(sleepers);
}
