/* syscalls: four goroutines in blocking system calls beside two that compute. */
#include "bench.h"

#include <stdatomic.h>
#include <time.h>

enum { SLEEPERS = 4, COMPUTERS = 2 };

struct office {
    int64_t sleeps_each;
    gs_waitgroup sleepers, computers;
    atomic_bool stop;
    _Atomic int64_t steps;
    _Atomic uint64_t sink;
};

static void blocking_ms(void)
{
    struct timespec left = {.tv_nsec = 1000000};

    MUST(gs_entersyscall());
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
    MUST(gs_exitsyscall());
}

static void sleeper(void *arg)
{
    struct office *office = arg;

    for (int64_t i = 0; i < office->sleeps_each; i++)
        blocking_ms();
    MUST(gs_waitgroup_done(&office->sleepers));
}

/* A step of computing, some tens of us. */
static uint64_t step(uint64_t x)
{
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static void computer(void *arg)
{
    struct office *office = arg;
    int64_t steps = 0;
    uint64_t x = 1;

    for (; !atomic_load(&office->stop); steps++) {
        x = step(x);
    }
    atomic_fetch_add(&office->steps, steps);
    atomic_fetch_xor(&office->sink, x);
    MUST(gs_waitgroup_done(&office->computers));
}

/* How many steps a core does in a ms when nothing disturbs it: the best of ten stretches of 10 ms. */
static double undisturbed_steps_per_ms(struct office *office)
{
    double best = 0;

    for (int i = 0; i < 10; i++) {
        int64_t start = gs_now(), steps = 0;
        uint64_t x = 1;
        for (; ms_since(start) < 10; steps++)
            x = step(x);
        double rate = (double)steps / ms_since(start);
        if (rate > best)
            best = rate;
        atomic_fetch_xor(&office->sink, x);
    }
    return best;
}

void syscalls(int64_t n)
{
    struct office office = {.sleeps_each = n};
    double whole_core = undisturbed_steps_per_ms(&office);

    int64_t start = gs_now();
    MUST(gs_waitgroup_add(&office.computers, COMPUTERS));
    MUST(gs_waitgroup_add(&office.sleepers, SLEEPERS));
    for (int i = 0; i < COMPUTERS; i++)
        MUST(gs_spawn(computer, &office));
    for (int i = 0; i < SLEEPERS; i++)
        MUST(gs_spawn(sleeper, &office));
    MUST(gs_waitgroup_wait(&office.sleepers, GS_FOREVER));
    double ms = ms_since(start);
    atomic_store(&office.stop, true);
    MUST(gs_waitgroup_wait(&office.computers, GS_FOREVER));
    double computing_ms = ms_since(start);

    report("syscalls", ms, "ms");
    report("syscalls.compute", (double)office.steps / whole_core / computing_ms, "cores");
}
