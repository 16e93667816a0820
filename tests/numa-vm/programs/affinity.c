/*
 * Threads of the library stay on their node; threads of the host stay as they are.
 * seed: N1
 */
#include "lab.h"

static void check_workers(void (*check)(pid_t tid, uint64_t mask))
{
    pid_t tids[256];
    char name[32];
    int i, k, n, found = 0;
    gather_crowd(8);
    n = all_threads(tids, LENGTH(tids));
    for (i = 0; i < n; i++) {
        CHECK(name_of(tids[i], name));
        printf("thread %d, %s: mask %#llx\n", (int)tids[i], name, (unsigned long long)mask_of(tids[i]));
    }
    for (k = 0; k < 8; k++)
        for (i = 0; i < n; i++)
            if (tids[i] == crowd.tids[k]) {
                CHECK(name_of(tids[i], name));
                CHECK(strcmp(name, "gosched") == 0);
                check(tids[i], mask_of(tids[i]));
                found++;
            }
    CHECK_EQ(found, 8);
    dismiss_crowd();
}

static int on_node[4];

static void check_has_a_nodes_mask(pid_t tid, uint64_t mask)
{
    int node = node_with(mask);
    (void)tid;
    CHECK_GE(node, 0);
    CHECK_EQ(mask, cpus_of_node(node));
    on_node[node]++;
}

TEST(a_worker_may_run_on_all_cpus_of_one_node_and_no_others)
{
    check_workers(check_has_a_nodes_mask);
}

TEST(with_a_p_for_each_cpu_two_workers_are_busy_on_each_node_of_two)
{
    int n;
    check_workers(check_has_a_nodes_mask);
    for (n = 0; n < 4; n++)
        CHECK_EQ(on_node[n], 2);
}

static uint64_t main_mask;

static void check_main_mask(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 1000; i++) {
        CHECK_EQ(mask_of(getpid()), main_mask);
        gs_yield();
    }
}

static void spread_and_check(void *arg)
{
    gs_g *gs[16];
    size_t i;
    (void)arg;
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = go_ref(check_main_mask, NULL);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
}

TEST(the_thread_that_calls_gs_run_keeps_its_mask)
{
    main_mask = mask_of(0);
    CHECK_EQ(main_mask, 0xff);
    CHECK_EQ(gs_run(spread_and_check, NULL), 0);
    CHECK_EQ(mask_of(0), 0xff);
    CHECK(set_mask(0, main_mask = 0x36)); /* parts of three nodes */
    CHECK_EQ(gs_run(spread_and_check, NULL), 0);
    CHECK_EQ(mask_of(0), 0x36);
}

/* From its first call on a thread of the host has a mask of one CPU. */
static void *call_from_one_cpu(void *arg)
{
    (void)arg;
    CHECK(set_mask(0, 1 << 5));
    gather_crowd(8);
    CHECK_EQ(mask_of(0), 1 << 5);
    return NULL;
}

/* Linux gives a new thread the mask of the thread that starts it. */
TEST(threads_started_by_a_call_from_a_bound_thread_are_not_bound_like_it)
{
    int k;
    CHECK_EQ(gs_gomaxprocs(0), 8);
    join_thread(start_thread(call_from_one_cpu, NULL));
    for (k = 0; k < 8; k++)
        CHECK(mask_of(crowd.tids[k]) != 1 << 5);
    dismiss_crowd();
}
