/*
 * Memory is where it was asked for: gs_numa_alloc on a node or spread over all, descriptors on the node where
 * their goroutine was spawned.
 * seed: N9, N10
 */
#include "lab.h"

#define SIZE (8 << 20)
#define PAGES (SIZE / PAGE)

/* The library has no say in which node has the last page of a few; but a node may lend one to another. */
#define SLACK 1

static void check_all_on(const void *p, size_t size, int node)
{
    long on[4];
    CHECK_EQ(count_pages(p, size, on), (long)(size / PAGE));
    CHECK_GE(on[system_node(node)], (long)(size / PAGE) - SLACK);
}

TEST(striped_memory_is_spread_evenly)
{
    static const size_t sizes[] = {SIZE, 64 * PAGE, 4 * PAGE};
    long on[4];
    size_t i;
    int n;
    for (i = 0; i < LENGTH(sizes); i++) {
        char *p = gs_numa_alloc(sizes[i], GS_NUMA_STRIPE);
        CHECK(p != NULL);
        CHECK_EQ(count_pages(p, sizes[i], on), 0);
        memset(p, 1, sizes[i]);
        CHECK_EQ(count_pages(p, sizes[i], on), (long)(sizes[i] / PAGE));
        printf("%zu pages: %ld %ld %ld %ld\n", sizes[i] / PAGE, on[0], on[1], on[2], on[3]);
        for (n = 0; n < 4; n++) {
            CHECK_GE(on[n], (long)(sizes[i] / PAGE / 4) - SLACK);
            CHECK_LE(on[n], (long)(sizes[i] / PAGE / 4) + SLACK);
        }
        gs_numa_free(p, sizes[i]);
    }
}

TEST(memory_by_node_is_on_that_node)
{
    int n;
    for (n = 0; n < 4; n++) {
        char *p = gs_numa_alloc(SIZE, n);
        CHECK(p != NULL);
        memset(p, 1, SIZE);
        check_all_on(p, SIZE, n);
        gs_numa_free(p, SIZE);
    }
}

/* A plain thread touches it, from wherever it is. */
static char *local[4];
static int local_made;

static void take_local(void *arg)
{
    int n = gs_numa_node();
    CHECK_EQ(n, (int)(intptr_t)arg);
    local[n] = gs_numa_alloc(SIZE, GS_NUMA_LOCAL);
    CHECK(local[n] != NULL);
    ADD(local_made, 1);
}

TEST(local_memory_is_on_the_callers_node)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int n;
    gather_crowd(8);
    for (n = 0; n < 4; n++) {
        let_one_go(n);
        wait_until_idle(n, 1);
        opts.node = n;
        CHECK_EQ(gs_spawn_with(take_local, (void *)(intptr_t)n, &opts, NULL), 0);
        NAP_UNTIL(GET(local_made) == n + 1);
        wait_until_idle(n, 1);
        add_to_crowd(n);
    }
    for (n = 0; n < 4; n++) {
        memset(local[n], 1, SIZE);
        check_all_on(local[n], SIZE, n);
        gs_numa_free(local[n], SIZE);
    }
    dismiss_crowd();
}

/* A plain thread's node is that of the CPU it is on. */
TEST(a_plain_threads_local_memory_is_on_its_node)
{
    int n;
    char *p;
    for (n = 0; n < 4; n++) {
        CHECK(set_mask(0, cpus_of_node(system_node(n))));
        CHECK_EQ(gs_numa_node(), n);
        p = gs_numa_alloc(SIZE, GS_NUMA_LOCAL);
        CHECK(p != NULL);
        CHECK(set_mask(0, cpus_of_node(system_node((n + 1) % 4))));
        memset(p, 1, SIZE);
        check_all_on(p, SIZE, n);
        gs_numa_free(p, SIZE);
    }
}

/* More in all than a node has, so that some would be elsewhere if anything stayed. */
TEST(freed_memory_is_given_back)
{
    const size_t size = 48 << 20;
    long maps = 0, kib = 0;
    int round;
    for (round = 0; round < 8; round++) {
        char *p = gs_numa_alloc(size, 1), *q = gs_numa_alloc(size / 4, GS_NUMA_STRIPE);
        size_t i;
        CHECK(p != NULL && q != NULL);
        for (i = 0; i < size; i += PAGE)
            p[i] = q[i / 4] = 1;
        check_all_on(p, size, 1);
        gs_numa_free(p, size);
        gs_numa_free(q, size / 4);
        if (round == 0) { /* with the runtime, which has been started */
            kib = resident_kib();
            maps = count_maps();
        }
        CHECK_LE(resident_kib(), kib + 2048);
        CHECK_LE(count_maps(), maps);
    }
}

/* ---- Descriptors ---- */

#define GOROUTINES 1500 /* several chunks of 64 KiB on each node, and more than a queue holds */

static int began, ended;

static void do_nothing(void *arg)
{
    (void)arg;
}

/* A plain thread spawns them, while no P runs any: no other thread has touched them. */
TEST(descriptors_are_on_the_node_that_the_goroutine_is_spawned_on)
{
    static gs_g *gs[4][GOROUTINES];
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int n, i;
    gather_crowd(8);
    for (n = 0; n < 4; n++) {
        long here = 0;
        opts.node = n;
        for (i = 0; i < GOROUTINES; i++)
            gs[n][i] = go_opts(do_nothing, NULL, &opts);
        for (i = 0; i < GOROUTINES; i++)
            here += node_of_page(gs[n][i]) == system_node(n);
        printf("node %d: %ld of %d\n", n, here, GOROUTINES);
        CHECK_EQ(here, GOROUTINES);
    }
    for (i = 0; i < crowd.size; i++)
        SET(crowd.leave[i], 1);
    for (n = 0; n < 4; n++)
        for (i = 0; i < GOROUTINES; i++)
            join(gs[n][i]);
    dismiss_crowd();
}

static gs_chan *gate;
static int there;

static void note_descriptor(void *arg)
{
    CHECK_EQ(gs_numa_node(), (int)(intptr_t)arg);
    ADD(there, node_of_page(gs_self()) == node_here());
    ADD(began, 1);
    CHECK_EQ(gs_chan_recv(gate, NULL, GS_FOREVER), -EPIPE);
    ADD(ended, 1);
}

static void spawn_on_own_node(void *arg)
{
    int i;
    CHECK_EQ(gs_numa_node(), (int)(intptr_t)arg);
    for (i = 0; i < GOROUTINES; i++)
        go(note_descriptor, arg);
}

/* Those of gs_spawn have one from their first run on. All at a time, so that each is a new one. */
TEST(descriptors_of_a_burst_are_on_the_node_that_runs_it)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int n;
    gate = chan_of_ints(0);
    gather_crowd(8);
    for (n = 0; n < 4; n++) {
        let_one_go(n);
        wait_until_idle(n, 1);
        opts.node = n;
        CHECK_EQ(gs_spawn_with(spawn_on_own_node, (void *)(intptr_t)n, &opts, NULL), 0);
        NAP_UNTIL(GET(began) == (n + 1) * GOROUTINES);
        CHECK_EQ(there, began);
        wait_until_idle(n, 1);
        add_to_crowd(n);
    }
    CHECK_EQ(gs_chan_close(gate), 0);
    for (n = 0; n < crowd.size; n++)
        SET(crowd.leave[n], 1);
    NAP_UNTIL(GET(ended) == began);
    dismiss_crowd();
    free_chan(gate);
}
