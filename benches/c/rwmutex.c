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

void rwmutex(int64_t n)
{
    struct record record = {.steps_each = share(n, GOROUTINES * STEPS_A_WRITE) * STEPS_A_WRITE};
    int64_t steps = record.steps_each * GOROUTINES;

    report_all("rwmutex.read", GOROUTINES, only_read, &record, &record.done, steps);
    report_all("rwmutex.mixed", GOROUTINES, read_and_write, &record, &record.done, steps);
    CHECK(record.value == record.steps_each / STEPS_A_WRITE * GOROUTINES);
}
