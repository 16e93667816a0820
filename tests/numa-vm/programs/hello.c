/*
 * The machine has what was asked for, and the library works there with a P for each CPU.
 * lab: LAB_NODES=0-3 LAB_CPUS=0-7
 * lab: machine=2/256,2/0,2/256,0/256 LAB_NODES=0-3 LAB_CPUS=0-5
 * lab: machine=2/256,2/0,2/256,0/256 offline=4-5 LAB_NODES=0-3 LAB_CPUS=0-3
 */
#include "lab.h"

static int node_has(const char *what, int node)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/%s", what);
    return set_from_file(path) >> node & 1;
}

static int distance(int from, int to)
{
    char path[64], line[256], *at = line;
    long d = 0;
    int i;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", from);
    read_line(path, line, sizeof line);
    for (i = 0; i <= to; i++)
        d = strtol(at, &at, 10);
    return (int)d;
}

TEST(the_nodes_are_those_that_were_asked_for)
{
    uint64_t nodes = set_from_env("LAB_NODES"), cpus = 0;
    int n;
    for (n = 0; n < 4; n++)
        if (nodes_online() >> n & 1) {
            printf("node %d: CPUs %#llx%s\n", n, (unsigned long long)cpus_of_node(n),
                   node_has("has_memory", n) ? "" : ", no memory");
            cpus |= cpus_of_node(n);
        }
    CHECK_EQ(nodes_online(), nodes);
    CHECK_EQ(cpus, set_from_env("LAB_CPUS"));
    CHECK_EQ(mask_of(0), cpus);
}

TEST(the_nodes_stand_in_a_ring)
{
    static const int by_steps[] = {10, 21, 31, 21};
    int from, to;
    for (from = 0; from < 4; from++)
        for (to = 0; to < 4; to++)
            CHECK_EQ(distance(from, to), by_steps[(to - from + 4) % 4]);
}

TEST(there_is_a_p_for_each_cpu)
{
    CHECK_EQ(gs_gomaxprocs(0), size_of_set(set_from_env("LAB_CPUS")));
}

TEST(all_ps_run_goroutines_at_the_same_time)
{
    gather_crowd(size_of_set(set_from_env("LAB_CPUS")));
    dismiss_crowd();
}

static gs_chan *squares;

static void square(void *arg)
{
    int64_t n = (int64_t)arg;
    send_int(squares, n * n);
}

GO_TEST(goroutines_and_channels_work)
{
    int64_t n, sum = 0;
    squares = chan_of_ints(0);
    for (n = 1; n <= 1000; n++)
        go(square, (void *)n);
    for (n = 1; n <= 1000; n++)
        sum += recv_int(squares);
    CHECK_EQ(sum, 333833500);
    free_chan(squares);
}
