/* memory: what a parked goroutine costs, what one costs that has not run yet, and how long a crowd takes to appear. */
#include "bench.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct crowd {
    gs_chan *gate;
    gs_waitgroup ready, gone;
    _Atomic int64_t started;
};

static void park(void *arg)
{
    struct crowd *crowd = arg;

    atomic_fetch_add(&crowd->started, 1);
    MUST(gs_waitgroup_done(&crowd->ready));
    CHECK(gs_chan_recv(crowd->gate, NULL, GS_FOREVER) == -EPIPE);
    MUST(gs_waitgroup_done(&crowd->gone));
}

static void spawn_parked(struct crowd *crowd, int64_t n)
{
    MUST(gs_waitgroup_add(&crowd->ready, n));
    MUST(gs_waitgroup_add(&crowd->gone, n));
    for (int64_t i = 0; i < n; i++)
        MUST(gs_spawn(park, crowd));
}

/* The second number of /proc/self/statm is the resident pages. */
static double resident_bytes(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, text, sizeof text - 1);
    CHECK(length > 0);
    close(fd);
    text[length] = '\0';

    char *second;
    strtoll(text, &second, 10);
    return (double)strtoll(second, NULL, 10) * (double)sysconf(_SC_PAGESIZE);
}

/* With one P no other goroutine runs until this goroutine waits or its time slice ends; in that case a smaller batch is
 * tried. Earlier batches stay parked, so every batch needs fresh memory. */
static double unstarted_bytes_each(struct crowd *crowd, int64_t batch)
{
    int procs = MUST(gs_gomaxprocs(1));
    double bytes = -1;

    for (; bytes < 0 && batch > 0; batch /= 2) {
        gs_yield();
        int64_t started = atomic_load(&crowd->started);
        double before = resident_bytes();
        spawn_parked(crowd, batch);
        double after = resident_bytes();
        if (atomic_load(&crowd->started) == started)
            bytes = (after - before) / (double)batch;
        MUST(gs_waitgroup_wait(&crowd->ready, GS_FOREVER));
    }
    CHECK(bytes >= 0);
    MUST(gs_gomaxprocs(procs));
    return bytes;
}

void memory(int64_t n)
{
    struct crowd crowd = {.gate = new_chan(0, 0)};
    double unstarted = unstarted_bytes_each(&crowd, share(n, 100));

    double before = resident_bytes();
    int64_t start = gs_now();
    spawn_parked(&crowd, n);
    MUST(gs_waitgroup_wait(&crowd.ready, GS_FOREVER));
    double create = ms_since(start);
    report("memory", (resident_bytes() - before) / (double)n, "bytes");
    report("memory.create", create, "ms");
    report("memory.unstarted", unstarted, "bytes");

    MUST(gs_chan_close(crowd.gate));
    MUST(gs_waitgroup_wait(&crowd.gone, GS_FOREVER));
    MUST(gs_chan_free(crowd.gate));
}
