/*
 * Threads that run goroutines stay on their node, those included that call gs_run; other threads of the host stay as they
 * are.
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

/* ---- The thread that calls gs_run ---- */

/* The mask with which the main thread comes to gs_run. */
static uint64_t main_mask;
static int on_main;

static void check_unbound_cpus(uint64_t want)
{
    uint64_t set;
    unsigned char too_small[1];
    CHECK_EQ(gs_numa_unbound_cpus(sizeof set, &set), size_of_set(want));
    CHECK_EQ(set, want);
    CHECK_EQ(gs_numa_unbound_cpus(0, NULL), size_of_set(want));
    CHECK_EQ(gs_numa_unbound_cpus(0, too_small), -EINVAL);
    CHECK_EQ(gs_numa_unbound_cpus(sizeof set, NULL), -EINVAL);
}

static void check_is_not_bound(void)
{
    uint64_t set = 7;
    CHECK_EQ(gs_numa_unbound_cpus(sizeof set, &set), 0);
    CHECK_EQ(set, 7);
}

/* A goroutine may move to another thread in calls of the library only. */
static void check_own_mask(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 300; i++) {
        uint64_t mask, cpus;
        gs_preempt_disable();
        mask = mask_of(0);
        cpus = cpus_of_node(system_node(gs_numa_node()));
        if (thread_id() == getpid()) {
            on_main++;
            CHECK_EQ(mask, cpus & main_mask ? cpus & main_mask : main_mask);
            check_unbound_cpus(main_mask);
        } else {
            CHECK_EQ(mask, cpus);
            check_unbound_cpus(0xff);
        }
        gs_preempt_enable();
        gs_yield();
    }
}

static void spread_and_check(void *arg)
{
    gs_g *gs[16];
    size_t i;
    (void)arg;
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = go_ref(check_own_mask, NULL);
    check_own_mask(NULL);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
}

TEST(a_thread_in_gs_run_is_bound_to_the_node_that_it_serves)
{
    main_mask = mask_of(0);
    CHECK_EQ(main_mask, 0xff);
    CHECK_EQ(gs_run(spread_and_check, NULL), 0);
    CHECK_EQ(mask_of(0), 0xff);
    check_is_not_bound();
    CHECK_GE(on_main, 1);
    CHECK(set_mask(0, main_mask = 0x36)); /* parts of three nodes */
    CHECK_EQ(gs_run(spread_and_check, NULL), 0);
    CHECK_EQ(mask_of(0), 0x36);
    CHECK(set_mask(0, main_mask = 0xff));
}

static void check_mask_of_child(uint64_t want)
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(mask_of(0) == want ? 0 : 1);
    CHECK_EQ(gs_waitpid(pid, &status, 0, GS_FOREVER), pid);
    CHECK_EQ(status, 0);
}

static void *note_mask(void *mask)
{
    *(uint64_t *)mask = mask_of(0);
    return NULL;
}

/* The root goroutine locks the thread that has called gs_run, any other goroutine a thread of the library. */
static void lock_and_check(void *arg)
{
    uint64_t mask_of_new = 0;
    (void)arg;
    check_mask_of_child(0xff);
    CHECK_EQ(gs_lock_os_thread(), 0);
    CHECK_EQ(mask_of(0), 0xff);
    check_is_not_bound();
    check_mask_of_child(0xff);
    join_thread(start_thread(note_mask, &mask_of_new));
    CHECK_EQ(mask_of_new, 0xff);
    CHECK_EQ(gs_sleep(2 * MS), 0);
    CHECK_EQ(mask_of(0), 0xff);
    CHECK_EQ(gs_unlock_os_thread(), 0);
    check_own_mask(NULL);
}

static void lock_here_and_there(void *arg)
{
    main_mask = 0xff;
    join(go_ref(lock_and_check, arg));
    lock_and_check(arg);
}

TEST(a_thread_that_a_goroutine_locks_has_the_mask_of_its_owner)
{
    CHECK_EQ(gs_run(lock_here_and_there, NULL), 0);
    CHECK_EQ(mask_of(0), 0xff);
}

static void set_mask_while_locked(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    while (thread_id() != getpid()) {
        CHECK_EQ(gs_unlock_os_thread(), 0);
        gs_yield();
        CHECK_EQ(gs_lock_os_thread(), 0);
    }
    CHECK(set_mask(0, 0x0f));
    gs_yield();
    CHECK_EQ(mask_of(0), 0x0f);
    CHECK_EQ(gs_unlock_os_thread(), 0);
    CHECK(is_subset(mask_of(0), 0x0f) || node_with(mask_of(0)) < 0);
}

TEST(a_mask_that_is_set_while_the_thread_is_locked_stays_the_owners)
{
    CHECK_EQ(gs_run(set_mask_while_locked, NULL), 0);
    CHECK_EQ(mask_of(0), 0x0f);
    CHECK(set_mask(0, 0xff));
}

static void check_main_mask(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 300; i++) {
        CHECK_EQ(mask_of(getpid()), 0xff);
        gs_preempt_disable();
        if (thread_id() == getpid())
            check_is_not_bound();
        gs_preempt_enable();
        gs_yield();
    }
}

static void spread_and_check_main(void *arg)
{
    gs_g *gs[16];
    size_t i;
    (void)arg;
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = go_ref(check_main_mask, NULL);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
}

TEST(a_thread_in_gs_run_keeps_its_mask_if_the_program_says_so)
{
    gs_config config = GS_CONFIG_INIT;
    config.flags = GS_CONFIG_KEEP_AFFINITY;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_init(&config), 0);
    CHECK_EQ(gs_run(spread_and_check_main, NULL), 0);
    check_workers(check_has_a_nodes_mask);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(setenv("GOSCHED_BIND", "0", 1), 0);
    CHECK_EQ(gs_run(spread_and_check_main, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(unsetenv("GOSCHED_BIND"), 0);
}

/* Nothing but the owner's code runs on such a thread. */
TEST(a_thread_in_gs_attach_keeps_its_mask)
{
    uint64_t mask_of_new = 0;
    CHECK_EQ(gs_attach(0), 0);
    spread_and_check_main(NULL);
    check_main_mask(NULL);
    check_mask_of_child(0xff);
    join_thread(start_thread(note_mask, &mask_of_new));
    CHECK_EQ(mask_of_new, 0xff);
    CHECK_EQ(gs_detach(), 0);
    CHECK_EQ(mask_of(0), 0xff);
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
