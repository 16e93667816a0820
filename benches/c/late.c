/* timer, preempt, wake, idle: how late a sleeper wakes, alone or beside an endless loop, or whom a thread wakes that is
 * none of the library's; and what an idle runtime costs. */
#include "../late.h"
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* Sleeps n times and reports how late it woke. */
static void report_lateness(int64_t n, int64_t sleep_ns, const char *p50, const char *p99, double unit_ns, const char *unit)
{
    int64_t *late = new_array(n, sizeof *late);

    for (int64_t i = 0; i < n; i++) {
        int64_t due = gs_now() + sleep_ns;
        MUST(gs_sleep(sleep_ns));
        late[i] = gs_now() - due;
        CHECK(late[i] >= 0);
    }
    report_late(late, n, p50, p99, unit_ns, unit);
    free(late);
}

void timer(int64_t n)
{
    report_lateness(n, 2000000, "timer.p50", "timer.p99", 1e3, "us");
}

static atomic_bool stop;

static void endless(void *arg)
{
    volatile uint64_t *count = arg;

    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ++*count;
}

void preempt(int64_t n)
{
    uint64_t count = 0;
    gs_g *loop;
    int procs = MUST(gs_gomaxprocs(1));

    atomic_store(&stop, false);
    MUST(gs_spawn_with(endless, &count, NULL, &loop));
    report_lateness(n, 1000000, "preempt.p50", "preempt.p99", 1e6, "ms");
    atomic_store(&stop, true);
    MUST(gs_join(loop, GS_FOREVER));
    gs_release(loop);
    MUST(gs_gomaxprocs(procs));
    CHECK(count > 0);
}

struct bell {
    gs_chan *rung, *heard;
    int64_t rings;
};

/* A plain thread: says when it rings, waits until it has been heard, and lets all come to rest. */
static void *ringer(void *arg)
{
    struct bell *bell = arg;
    const struct timespec rest = {.tv_nsec = 500000};

    for (int64_t i = 0; i < bell->rings; i++) {
        CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL) == 0);
        int64_t now = gs_now();
        MUST(gs_chan_send(bell->rung, &now, GS_FOREVER));
        MUST(gs_chan_recv(bell->heard, NULL, GS_FOREVER));
    }
    return NULL;
}

void wake(int64_t n)
{
    struct bell bell = {new_chan(sizeof(int64_t), 1), new_chan(0, 1), n};
    int64_t *late = new_array(n, sizeof *late), rung;
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, ringer, &bell) == 0);
    for (int64_t i = 0; i < n; i++) {
        MUST(gs_chan_recv(bell.rung, &rung, GS_FOREVER));
        late[i] = gs_now() - rung;
        CHECK(late[i] >= 0);
        MUST(gs_chan_send(bell.heard, NULL, GS_FOREVER));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    report_late(late, n, "wake.p50", "wake.p99", 1e3, "us");
    free(late);
    MUST(gs_chan_free(bell.rung));
    MUST(gs_chan_free(bell.heard));
}

static double cpu_ms(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static void pass_by(void *arg)
{
    gs_yield();
    MUST(gs_waitgroup_done(arg));
}

void idle(int64_t n)
{
    gs_waitgroup passed = {0};

    /* So that all of the runtime has been awake before. */
    MUST(gs_waitgroup_add(&passed, 1000));
    for (int i = 0; i < 1000; i++)
        MUST(gs_spawn(pass_by, &passed));
    MUST(gs_waitgroup_wait(&passed, GS_FOREVER));

    double cpu = cpu_ms();
    int64_t start = gs_now();
    MUST(gs_sleep(n * 1000000));
    report("idle", (cpu_ms() - cpu) / ms_since(start) * 100, "%");
}
