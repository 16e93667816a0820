/*
 * Nodes as programs see them, memory by node, and the counters. On this machine, or on the synthetic machine that the test
 * is started with; what only a real machine with several nodes shows is in tests/numa-vm.
 * seed: N2 (P's by node), N7 (a burst is spread), N9, N10 (striped memory)
 */
#include "check.h"
#include <sys/mount.h>

static void see_nodes(void)
{
    int n = gs_numa_nodes(), a, b;
    CHECK_GE(n, 1);
    CHECK_GE(gs_numa_node(), 0);
    CHECK_LE(gs_numa_node(), n - 1);
    for (a = 0; a < n; a++) {
        CHECK_EQ(gs_numa_distance(a, a), 10);
        for (b = 0; b < n; b++)
            CHECK_GE(gs_numa_distance(a, b), 10);
    }
    CHECK_EQ(gs_numa_distance(0, n), -EINVAL);
    CHECK_EQ(gs_numa_distance(n, 0), -EINVAL);
    CHECK_EQ(gs_numa_distance(-1, 0), -EINVAL);
    CHECK_EQ(gs_numa_distance(0, GS_NUMA_STRIPE), -EINVAL);
}

TEST(each_cpu_is_on_one_node)
{
    unsigned char all[128] = {0}, one[128];
    int node, n = gs_numa_nodes(), sum = 0;
    size_t i;
    for (node = 0; node < n; node++) {
        int cpus = gs_numa_cpus(node, sizeof one, one), bits = 0;
        CHECK_GE(cpus, 1);
        CHECK_EQ(gs_numa_cpus(node, 0, NULL), cpus);
        for (i = 0; i < sizeof one; i++) {
            CHECK_EQ(all[i] & one[i], 0);
            all[i] |= one[i];
            bits += __builtin_popcount(one[i]);
        }
        CHECK_EQ(bits, cpus);
        sum += cpus;
    }
    CHECK_GE(sum, n);
    CHECK_EQ(gs_numa_cpus(n, sizeof one, one), -EINVAL);
    CHECK_EQ(gs_numa_cpus(-1, sizeof one, one), -EINVAL);
    CHECK_EQ(gs_numa_cpus(0, sizeof one, NULL), -EINVAL);
    CHECK_EQ(gs_numa_cpus(0, 0, one), -EINVAL);
}

GO_TEST(goroutines_see_the_nodes)
{
    see_nodes();
}

TEST(plain_threads_see_the_nodes)
{
    see_nodes();
}

static void fill_memory(void)
{
    static const size_t sizes[] = {1, 4095, 4096, 4097, 1 << 20, (5 << 20) + 1};
    int policies[4] = {GS_NUMA_LOCAL, GS_NUMA_STRIPE, 0, gs_numa_nodes() - 1};
    size_t i, k, s;
    for (i = 0; i < LENGTH(sizes); i++)
        for (k = 0; k < LENGTH(policies); k++) {
            unsigned char *p = gs_numa_alloc(sizes[i], policies[k]);
            CHECK(p != NULL);
            CHECK_EQ((uintptr_t)p % 4096, 0);
            for (s = 0; s < sizes[i]; s += 1000)
                CHECK_EQ(p[s], 0);
            memset(p, 0xa5, sizes[i]);
            gs_numa_free(p, sizes[i]);
        }
    gs_numa_free(NULL, 0);
    gs_numa_free(NULL, 4096);
    CHECK(gs_numa_alloc(0, GS_NUMA_LOCAL) == NULL);
    CHECK(gs_numa_alloc(4096, gs_numa_nodes()) == NULL);
    CHECK(gs_numa_alloc(4096, -3) == NULL);
    CHECK(gs_numa_alloc(4096, INT_MAX) == NULL);
    CHECK(gs_numa_alloc(SIZE_MAX, GS_NUMA_STRIPE) == NULL);
}

GO_TEST(memory_is_zeroed_and_begins_at_a_page)
{
    fill_memory();
}

TEST(plain_threads_have_memory_too)
{
    fill_memory();
}

/* ---- Goroutines by node ---- */

static int done, on_node[64];

static void note_node(void *arg)
{
    (void)arg;
    ADD(on_node[gs_numa_node()], 1);
    ADD(done, 1);
}

GO_TEST(a_goroutine_begins_on_the_node_that_was_asked_for)
{
    int n = gs_numa_nodes(), node;
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    for (node = 0; node < n; node++) {
        gs_stats before = {.size = sizeof before}, after = {.size = sizeof after};
        opts.node = node;
        CHECK_EQ(gs_stats_node(node, &before), 0);
        if (before.procs == 0)
            continue; /* whoever is asked for there runs on the nearest node that has some */
        SET(done, 0);
        gs_release(go_opts(note_node, NULL, &opts));
        WAIT_UNTIL(GET(done) == 1);
        CHECK_EQ(gs_stats_node(node, &after), 0);
        CHECK_EQ(after.procs, before.procs);
    }
}

/* ---- Counters ---- */

static void pass_by(void *arg)
{
    gs_yield();
    ADD(done, 1);
    (void)arg;
}

GO_TEST(counters_of_nodes_add_up)
{
    gs_stats all = {.size = sizeof all}, sum = {0}, before = {.size = sizeof before};
    int i, n = gs_numa_nodes();
    CHECK_EQ(gs_stats_read(&before), 0);
    SET(done, 0);
    for (i = 0; i < 5000; i++)
        go(pass_by, NULL);
    WAIT_UNTIL(GET(done) == 5000);
    CHECK_EQ(gs_stats_read(&all), 0);
    CHECK_EQ(all.size, sizeof all);
    CHECK_GE(all.created - before.created, 5000);
    CHECK_GE(all.switches, before.switches);
    CHECK_GE(all.goroutines, 1);
    CHECK_EQ(all.procs, (uint64_t)gs_gomaxprocs(0));
    CHECK_GE(all.threads, 1);
    for (i = 0; i < n; i++) {
        gs_stats one = {.size = sizeof one};
        CHECK_EQ(gs_stats_node(i, &one), 0);
        sum.procs += one.procs;
        sum.created += one.created;
        CHECK_EQ(one.threads, 0);
        if (n == 1) {
            CHECK_EQ(one.steals_remote_queue + one.steals_remote_p, 0);
            CHECK_EQ(one.migrations + one.stacks_sent_home, 0);
        }
    }
    CHECK_EQ(sum.procs, all.procs);
    CHECK_GE(sum.created + 1000, all.created); /* gs_run's goroutines come from outside */
}

GO_TEST(steals_by_pair_add_up_to_those_by_kind)
{
    int i, k, n = gs_numa_nodes();
    SET(done, 0);
    for (i = 0; i < 5000; i++)
        go(pass_by, NULL);
    WAIT_UNTIL(GET(done) == 5000);
    for (i = 0; i < n; i++) {
        /* P's may look for work meanwhile; each counts a steal by its kind first. */
        gs_stats before = {.size = sizeof before}, after = {.size = sizeof after};
        uint64_t near, remote = 0, procs = (uint64_t)gs_gomaxprocs(0);
        CHECK_EQ(gs_stats_node(i, &before), 0);
        near = (uint64_t)gs_stats_steals(i, i);
        for (k = 0; k < n; k++) {
            CHECK_GE(gs_stats_steals(i, k), 0);
            if (k != i)
                remote += (uint64_t)gs_stats_steals(i, k);
        }
        CHECK_EQ(gs_stats_node(i, &after), 0);
        CHECK_GE(near + procs, before.steals_near);
        CHECK_LE(near, after.steals_near);
        CHECK_GE(remote + procs, before.steals_remote_queue + before.steals_remote_p);
        CHECK_LE(remote, after.steals_remote_queue + after.steals_remote_p);
    }
}

TEST(wrong_arguments_of_the_counters)
{
    struct {
        gs_stats s;
        uint64_t more[4];
    } large = {.s = {.size = sizeof large}, .more = {1, 2, 3, 4}};
    gs_stats s = {.size = sizeof s};
    CHECK_EQ(gs_stats_read(NULL), -EINVAL);
    CHECK_EQ(gs_stats_node(0, NULL), -EINVAL);
    s.size = 8;
    CHECK_EQ(gs_stats_read(&s), -EINVAL);
    s.size = 1 << 20;
    CHECK_EQ(gs_stats_read(&s), -EINVAL);
    s.size = sizeof s;
    (void)gs_numa_nodes(); /* now there is a runtime */
    CHECK_EQ(gs_stats_node(-1, &s), -EINVAL);
    CHECK_EQ(gs_stats_node(gs_numa_nodes(), &s), -EINVAL);
    CHECK_EQ(gs_stats_steals(-1, 0), -EINVAL);
    CHECK_EQ(gs_stats_steals(0, gs_numa_nodes()), -EINVAL);
    CHECK_GE(gs_stats_steals(0, 0), 0);
    /* A program that was built with a newer header: what the library doesn't know is 0. */
    CHECK_EQ(gs_stats_read(&large.s), 0);
    CHECK_EQ(large.s.size, sizeof large);
    CHECK_EQ(large.more[0] | large.more[1] | large.more[2] | large.more[3], 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_stats_read(&s), 0);
    CHECK_EQ(s.procs + s.threads + s.created, 0);
    CHECK_EQ(gs_stats_node(0, &s), -EINVAL);
    CHECK_EQ(gs_stats_steals(0, 0), -EINVAL);
}

/* As on a kernel without NUMA, and in a container that hides /sys. */
CHILD(a_machine_tells_no_nodes)
{
    int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
    CHECK_EQ(unsetenv("GOSCHED_TOPOLOGY"), 0);
    if (unshare(flags) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("none", "/sys/devices/system/node", "tmpfs", 0, NULL) != 0)
        return; /* not allowed here */
    CHECK_EQ(gs_numa_nodes(), 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}
TEST(a_machine_that_tells_no_nodes_has_one)
{
    check_child_succeeds("a_machine_tells_no_nodes");
}
