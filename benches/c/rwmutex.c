/* rwmutex: eight goroutines read a value under one lock; then each in ten steps counts it up. */
#include "bench.h"

enum { GOROUTINES = 8, STEPS_A_WRITE = 10 };

struct record {
    gs_rwmutex lock;
    int64_t value;
    int64_t steps_each;
    gs_waitgroup done;
};

static int64_t look(struct record *record)
{
    MUST(gs_rwmutex_rlock(&record->lock, GS_FOREVER));
    int64_t value = record->value;
    MUST(gs_rwmutex_runlock(&record->lock));
    return value;
}

static void only_read(void *arg)
{
    struct record *record = arg;

    for (int64_t i = 0; i < record->steps_each; i++)
        CHECK(look(record) == 0);
    MUST(gs_waitgroup_done(&record->done));
}

static void read_and_write(void *arg)
{
    struct record *record = arg;
    int64_t last = 0;

    for (int64_t i = 0; i < record->steps_each; i++) {
        if (i % STEPS_A_WRITE == 0) {
            MUST(gs_rwmutex_lock(&record->lock, GS_FOREVER));
            record->value++;
            MUST(gs_rwmutex_unlock(&record->lock));
        } else {
            int64_t value = look(record);
            CHECK(value >= last);
            last = value;
        }
    }
    MUST(gs_waitgroup_done(&record->done));
}

static void let_all(const char *figure, gs_fn fn, struct record *record)
{
    int64_t start = gs_now();
    MUST(gs_waitgroup_add(&record->done, GOROUTINES));
    for (int i = 0; i < GOROUTINES; i++)
        MUST(gs_spawn(fn, record));
    MUST(gs_waitgroup_wait(&record->done, GS_FOREVER));
    report_ns_each(figure, start, record->steps_each * GOROUTINES);
}

void rwmutex(int64_t n)
{
    struct record record = {.steps_each = share(n, GOROUTINES * STEPS_A_WRITE) * STEPS_A_WRITE};

    let_all("rwmutex.read", only_read, &record);
    let_all("rwmutex.mixed", read_and_write, &record);
    CHECK(record.value == record.steps_each / STEPS_A_WRITE * GOROUTINES);
}
