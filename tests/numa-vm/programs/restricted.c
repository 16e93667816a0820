/*
 * A process that may use a part of the machine uses just that: CPUs, and memory. So it does on a machine where
 * nodes have no memory or no CPUs.
 * lab: taskset=0-2 LAB_CPUS=0-2 LAB_MEMS=0-1
 * lab: taskset=1,4,6-7 LAB_CPUS=1,4,6-7 LAB_MEMS=0,2-3
 * lab: cpuset=0-2 mems=0-1 LAB_CPUS=0-2 LAB_MEMS=0-1
 * lab: cpuset=2-7 taskset=0-4 LAB_CPUS=2-4 LAB_MEMS=1-2
 * lab: offline=3,5 LAB_CPUS=0-2,4,6-7 LAB_MEMS=0-3
 * lab: offline=2-3 taskset=1-4 LAB_CPUS=1,4 LAB_MEMS=0,2
 * lab: cpuset=0-5 mems=1 LAB_CPUS=0-5 LAB_MEMS=1
 * lab: cpuset=2-3 mems=2-3 LAB_CPUS=2-3 LAB_MEMS=2-3
 * lab: machine=2/256,2/0,2/256,0/256 taskset=1-3 LAB_CPUS=1-3 LAB_MEMS=0,2-3
 * lab: machine=2/256,2/0,2/256,0/256 taskset=2-3 LAB_CPUS=2-3 LAB_MEMS=0,2-3
 * lab: machine=2/256,2/0,2/256,0/256 cpuset=1-4 mems=3 LAB_CPUS=1-4 LAB_MEMS=3
 */
#include "lab.h"

static uint64_t allowed;

TEST(there_is_a_p_for_each_allowed_cpu)
{
    allowed = set_from_env("LAB_CPUS");
    CHECK_EQ(mask_of(0), allowed);
    CHECK_EQ(gs_gomaxprocs(0), size_of_set(allowed));
}

TEST(no_thread_may_run_elsewhere)
{
    pid_t tids[256];
    int i, n;
    allowed = set_from_env("LAB_CPUS");
    gather_crowd(size_of_set(allowed));
    n = all_threads(tids, LENGTH(tids));
    CHECK_GE(n, crowd.size + 1);
    for (i = 0; i < n; i++) {
        uint64_t mask = mask_of(tids[i]);
        if (!is_subset(mask, allowed))
            printf("thread %d: mask %#llx\n", (int)tids[i], (unsigned long long)mask);
        CHECK(is_subset(mask, allowed));
    }
    for (i = 0; i < crowd.size; i++)
        CHECK(allowed >> crowd.cpus[i] & 1);
    dismiss_crowd();
}

static gs_chan *numbers;

static void send_numbers(void *arg)
{
    unsigned cpu;
    int64_t n;
    (void)arg;
    for (n = 1; n <= 100; n++) {
        send_int(numbers, n);
        CHECK_EQ(getcpu(&cpu, NULL), 0);
        CHECK(allowed >> cpu & 1);
    }
}

GO_TEST(goroutines_and_channels_work_there)
{
    int64_t sum = 0;
    int i;
    allowed = set_from_env("LAB_CPUS");
    numbers = chan_of_ints(4);
    for (i = 0; i < 50; i++)
        go(send_numbers, NULL);
    for (i = 0; i < 50 * 100; i++)
        sum += recv_int(numbers);
    CHECK_EQ(sum, 50 * 5050);
    free_chan(numbers);
}

/* ---- Memory ---- */

#define GOROUTINES 200
#define DEPTH 4

static gs_chan *gate;
static int parked;
static uint64_t stacks_on; /* nodes, by the system's numbers */

static void note_page(const void *at)
{
    int node = node_of_page(at);
    CHECK_GE(node, 0);
    __atomic_or_fetch(&stacks_on, 1ULL << node, __ATOMIC_SEQ_CST);
}

static void note_stack(void *arg)
{
    volatile char frame[DEPTH * PAGE];
    int i;
    (void)arg;
    for (i = 0; i < DEPTH; i++) {
        frame[i * PAGE] = 1;
        note_page((const void *)&frame[i * PAGE]);
    }
    note_page(gs_self());
    ADD(parked, 1);
    CHECK_EQ(gs_chan_recv(gate, NULL, GS_FOREVER), -EPIPE);
}

TEST(memory_comes_from_the_nodes_that_may_be_used)
{
    uint64_t mems = set_from_env("LAB_MEMS");
    const size_t size = 64 * PAGE;
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int i, n, policy, nodes = gs_numa_nodes();
    gate = chan_of_ints(0);
    for (i = 0; i < GOROUTINES; i++) {
        opts.node = i % nodes;
        CHECK_EQ(gs_spawn_with(note_stack, NULL, &opts, NULL), 0);
    }
    NAP_UNTIL(GET(parked) == GOROUTINES);
    printf("stacks and descriptors are on %#llx\n", (unsigned long long)stacks_on);
    CHECK(is_subset(stacks_on, mems));
    for (policy = GS_NUMA_STRIPE; policy < nodes; policy++) {
        char *p = gs_numa_alloc(size, policy);
        long on[4];
        CHECK(p != NULL);
        memset(p, 1, size);
        CHECK_EQ(count_pages(p, size, on), (long)(size / PAGE));
        for (n = 0; n < 4; n++)
            CHECK(on[n] == 0 || (mems >> n & 1));
        gs_numa_free(p, size);
    }
    CHECK_EQ(gs_chan_close(gate), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    free_chan(gate);
}
