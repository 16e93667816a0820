/*
 * CPUs that go and come while the program runs: by hot-unplug, by a cpuset that shrinks. Goroutines go on, on what
 * is left, and the number of P's follows, until gs_gomaxprocs sets it.
 */
#include "lab.h"

#include <sys/stat.h>

#define GOROUTINES 16

static gs_chan *ball;
static long passes[GOROUTINES];
static int rest;
static uint64_t ran_on; /* CPUs */

/* Computes, hands something over and sleeps in turn, and notes where it is. */
static void keep_on(void *number)
{
    long i = (long)number;
    int64_t v;
    while (!GET(rest)) {
        volatile int k;
        unsigned cpu;
        for (k = 0; k < 8000; k++)
            ;
        CHECK_EQ(getcpu(&cpu, NULL), 0);
        __atomic_or_fetch(&ran_on, 1ULL << cpu, __ATOMIC_SEQ_CST);
        if (gs_chan_recv(ball, &v, GS_NOWAIT) != 0)
            send_int(ball, 1);
        if (ADD(passes[i], 1) % 32 == 0)
            CHECK_EQ(gs_sleep(200 * US), 0);
    }
}

static void start(int procs)
{
    long i;
    ball = chan_of_ints(GOROUTINES);
    for (i = 0; i < GOROUTINES; i++)
        go(keep_on, (void *)i);
    CHECK_EQ(gs_gomaxprocs(0), procs);
}

/* Each goroutine has passed by so often. */
static void let_pass(long times)
{
    long before[GOROUTINES];
    int i;
    for (i = 0; i < GOROUTINES; i++)
        before[i] = GET(passes[i]);
    for (i = 0; i < GOROUTINES; i++)
        NAP_UNTIL(GET(passes[i]) >= before[i] + times);
}

static void stop(void)
{
    SET(rest, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    free_chan(ball);
}

static void write_to(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        failed(__FILE__, __LINE__, "this can't be written", path);
}

static void switch_cpu(int cpu, const char *on)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/online", cpu);
    write_to(path, on);
}

/* Everything goes on, on some of these CPUs and no others. */
static void check_goes_on_within(uint64_t cpus)
{
    let_pass(1); /* an M that looked before, and notes that now */
    SET(ran_on, 0);
    let_pass(2);
    CHECK(is_subset(GET(ran_on), cpus));
}

/* On all of them. */
static void check_goes_on(uint64_t cpus)
{
    check_goes_on_within(cpus);
    NAP_UNTIL(is_subset(cpus, GET(ran_on)));
    CHECK_EQ(ran_on, cpus);
}

TEST(a_cpu_of_each_node_is_unplugged)
{
    int c;
    start(8);
    check_goes_on(0xff);
    for (c = 1; c < 8; c += 2)
        switch_cpu(c, "0");
    NAP_UNTIL(gs_gomaxprocs(0) == 4);
    check_goes_on(0x55);
    for (c = 1; c < 8; c += 2)
        switch_cpu(c, "1");
    NAP_UNTIL(gs_gomaxprocs(0) == 8);
    check_goes_on(0xff);
    stop();
}

/* Its threads are moved by Linux, which widens their masks. */
TEST(all_cpus_of_a_node_are_unplugged)
{
    start(8);
    check_goes_on(0xff);
    switch_cpu(4, "0");
    switch_cpu(5, "0");
    NAP_UNTIL(gs_gomaxprocs(0) == 6);
    check_goes_on(0xcf);
    CHECK_EQ(gs_gomaxprocs(6), 6);
    /* The P's keep their nodes: those whose node has no CPU left run wherever there is room, and so on the CPUs of the
     * node that has no P any more. */
    check_goes_on(0xcf);
    CHECK_EQ(gs_gomaxprocs(8), 6);
    switch_cpu(4, "1");
    switch_cpu(5, "1");
    check_goes_on(0xff);
    stop();
}

TEST(a_cpuset_shrinks_and_grows)
{
    static const char *const group = "/cgroup/unplug";
    if (mkdir(group, 0755) != 0)
        CHECK_EQ(errno, EEXIST); /* of an earlier run */
    write_to("/cgroup/unplug/cpuset.cpus", "0-7");
    write_to("/cgroup/unplug/cgroup.procs", "0");
    start(8);
    check_goes_on(0xff);
    write_to("/cgroup/unplug/cpuset.cpus", "1,6"); /* parts of two nodes */
    NAP_UNTIL(gs_gomaxprocs(0) == 2);
    check_goes_on(0x42);
    write_to("/cgroup/unplug/cpuset.cpus", "0-7");
    NAP_UNTIL(gs_gomaxprocs(0) == 8);
    check_goes_on(0xff);
    stop();
}

/* They count to a node that had CPUs. */
TEST(cpus_of_a_node_that_had_none_come)
{
    switch_cpu(6, "0");
    switch_cpu(7, "0");
    start(6);
    check_goes_on(0x3f);
    switch_cpu(6, "1");
    switch_cpu(7, "1");
    NAP_UNTIL(gs_gomaxprocs(0) == 8);
    check_goes_on(0xff);
    stop();
}
