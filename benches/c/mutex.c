/* mutex: eight goroutines count under one lock. */
#include "bench.h"

enum { GOROUTINES = 8 };

struct counter {
    gs_mutex lock;
    int64_t value;
    int64_t steps_each;
    gs_waitgroup done;
};

static void count(void *arg)
{
    struct counter *counter = arg;

    for (int64_t i = 0; i < counter->steps_each; i++) {
        MUST(gs_mutex_lock(&counter->lock, GS_FOREVER));
        counter->value++;
        MUST(gs_mutex_unlock(&counter->lock));
    }
    MUST(gs_waitgroup_done(&counter->done));
}

void mutex(int64_t n)
{
    struct counter counter = {.steps_each = share(n, GOROUTINES)};
    int64_t steps = counter.steps_each * GOROUTINES;

    report_all("mutex", GOROUTINES, count, &counter, &counter.done, steps);
    CHECK(counter.value == steps);
}
