/*
 * The memory of a stack is on the node of the CPU that first runs the goroutine. No goroutine is preempted: on a
 * machine that is busy with other things any may be, just after it has begun, and another node's P may then run it.
 * seed: N2
 * lab: GOSCHED_PREEMPT_SIGNAL=0
 */
#include "lab.h"

#define GOROUTINES 2000
#define DEPTH (24 * 1024)

static long ran_on[4], pages, local_pages;
static uint64_t cpus_of[4]; /* the CPUs of each node, by the system's numbers */

static void note_nodes(void)
{
    int n;
    for (n = 0; n < 4; n++)
        cpus_of[n] = cpus_of_node(n);
}

/*
 * Moves the calling thread to some CPU of its mask, as Linux may do at any moment, unless the thread is bound to a
 * node. The mask stays. No other thread could do that: this thread may bind itself to a node at any moment. Makes no
 * call of the library, which might let other goroutines run.
 */
static void move_thread(void)
{
    uint64_t mask = mask_of(0), seed = (uint64_t)clock_now() | 1;
    int n, cpu = (int)(random_next(&seed) % MAX_CPUS);
    for (n = 0; n < 4; n++)
        if (is_subset(mask, cpus_of[n]))
            return;
    while (!(mask >> cpu & 1))
        cpu = (cpu + 1) % MAX_CPUS;
    CHECK(set_mask(0, 1ULL << cpu));
    CHECK(set_mask(0, mask));
}

/* Looks at the first page of its stack and at some below it. */
static __attribute__((noinline)) void look_at_stack(void)
{
    enum { PAGES = DEPTH / 4096 };
    volatile char frame[DEPTH];
    void *at[PAGES + 1];
    int is_on[PAGES + 1], i, local = 0;
    unsigned node;
    move_thread();
    CHECK_EQ(getcpu(NULL, &node), 0);
    CHECK(node < LENGTH(ran_on));
    ADD(ran_on[node], 1);
    for (i = 0; i < PAGES; i++) {
        frame[i * 4096] = 1;
        at[i] = (void *)&frame[i * 4096];
    }
    at[PAGES] = &node;
    nodes_of_pages(at, is_on, LENGTH(at));
    for (i = 0; i <= PAGES; i++) {
        CHECK_GE(is_on[i], 0);
        local += is_on[i] == (int)node;
    }
    ADD(pages, PAGES + 1);
    ADD(local_pages, local);
}

static void forget_counts(void)
{
    memset(ran_on, 0, sizeof ran_on);
    pages = local_pages = 0;
}

static void check_counts(void)
{
    int n;
    for (n = 0; n < 4; n++)
        printf("node %d: %ld goroutines\n", n, ran_on[n]);
    printf("%ld of %ld pages are on the node that ran the goroutine\n", local_pages, pages);
    for (n = 0; n < 4; n++)
        CHECK_GE(ran_on[n], 1);
    CHECK_EQ(local_pages, pages);
}

/* ---- Spawners: one for each P, on a P of its own when it begins ---- */

static int spawners;

static void wait_for_spawners(void)
{
    int want = (GET(spawners) / 8 + 1) * 8;
    ADD(spawners, 1);
    while (GET(spawners) < want)
        ;
}

static void start_spawners(gs_fn spawner, gs_g *gs[8])
{
    int i;
    for (i = 0; i < 8; i++)
        gs[i] = go_steady(spawner, NULL);
}

static gs_chan *gate;
static int parked;

static void look_and_stay(void *arg)
{
    (void)arg;
    look_at_stack();
    ADD(parked, 1);
    CHECK_EQ(gs_chan_recv(gate, NULL, GS_FOREVER), -EPIPE);
}

static void spawn_those_that_stay(void *arg)
{
    int i;
    (void)arg;
    wait_for_spawners();
    for (i = 0; i < GOROUTINES / 8; i++)
        go(look_and_stay, NULL);
}

static void look_and_leave(void *all)
{
    look_at_stack();
    if (all)
        CHECK_EQ(gs_waitgroup_done(all), 0);
}

static void spawn_and_wait(void *arg)
{
    gs_waitgroup all;
    int i;
    (void)arg;
    wait_for_spawners();
    memset(&all, 0, sizeof all);
    CHECK_EQ(gs_waitgroup_add(&all, GOROUTINES / 8), 0);
    for (i = 0; i < GOROUTINES / 8; i++)
        go(look_and_leave, &all);
    CHECK_EQ(gs_waitgroup_wait(&all, GS_FOREVER), 0);
}

static void spawn_and_join(void *arg)
{
    gs_g *gs[GOROUTINES / 8];
    size_t i;
    (void)arg;
    wait_for_spawners();
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = go_ref(look_and_leave, NULL);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
}

/* ---- The tests: plain threads, because a thread in gs_run runs goroutines and isn't bound ---- */

/* All at the same time: no stack has been another's before. */
TEST(new_stacks_are_on_the_node_that_runs_their_goroutine)
{
    gs_g *gs[8];
    int i;
    note_nodes();
    gate = chan_of_ints(0);
    start_spawners(spawn_those_that_stay, gs);
    NAP_UNTIL(GET(parked) == GOROUTINES);
    CHECK_EQ(gs_chan_close(gate), 0);
    for (i = 0; i < 8; i++)
        join(gs[i]);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    free_chan(gate);
    check_counts();
}

/* One after the other: most have a stack that was another's before. */
static void use_stacks_again(gs_fn spawner)
{
    gs_g *gs[8];
    int i, round;
    note_nodes();
    for (round = 0; round < 8; round++) {
        if (round == 1)
            forget_counts(); /* of the new stacks */
        start_spawners(spawner, gs);
        for (i = 0; i < 8; i++)
            join(gs[i]);
    }
    check_counts();
}

TEST(stacks_that_are_used_again_are_on_the_node_that_runs_their_goroutine)
{
    use_stacks_again(spawn_and_wait);
}

/*
 * The spawners wait and go on elsewhere, so their stacks end on other nodes. Few stacks are in use at
 * the same time and the last freed is used first: a stack that stays there is used there again and again.
 */
TEST(stacks_of_goroutines_that_end_on_another_node_go_home)
{
    use_stacks_again(spawn_and_join);
}
