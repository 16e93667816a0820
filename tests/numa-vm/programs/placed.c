/*
 * What is spawned for a node begins there: at once if the node is idle, and when its turn comes if it is
 * busy. Another node takes it only when the node leaves it waiting. On a machine that shares its CPUs with others both
 * CPUs of a node may stand still for 20 ms, and then another node rightly takes all that waits. So this machine's clock
 * counts instructions: what else this machine does doesn't matter.
 * seed: N11
 * lab: machine=counted:2/256,2/256,2/256,2/256
 */
#include "lab.h"

#define MANY 200
#define ROWS 10

static int begun_on[4];

static void note_node(void *arg)
{
    (void)arg;
    ADD(begun_on[gs_numa_node()], 1);
}

static gs_g *go_on(int node, gs_fn fn, void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.node = node;
    return go_opts(fn, arg, &opts);
}

static void forget(void)
{
    int n;
    for (n = 0; n < 4; n++)
        SET(begun_on[n], 0);
}

/* Each one is awaited, so the node is idle when the next one comes. */
GO_TEST(what_is_spawned_for_an_idle_node_begins_there)
{
    int node, i;
    for (node = 0; node < 4; node++) {
        forget();
        for (i = 0; i < MANY; i++)
            join(go_on(node, note_node, NULL));
        printf("for node %d: %d %d %d %d\n", node, begun_on[0], begun_on[1], begun_on[2], begun_on[3]);
        /* A thread of the node that loses its CPU on its way to sleep leaves one waiting. */
        CHECK_GE(begun_on[node], MANY - MANY / 20);
    }
}

/* One after the other, faster than the node's threads wake. The emulator runs one CPU at a time, so both CPUs of the node
 * may stand still for 20 ms on this clock, too: seldom, and then a single row goes elsewhere. */
GO_TEST(rows_of_goroutines_for_a_node_begin_there)
{
    gs_g *gs[MANY];
    int node = (gs_numa_node() + 1) % 4, row, i;
    forget();
    for (row = 0; row < ROWS; row++) {
        for (i = 0; i < MANY; i++)
            gs[i] = go_on(node, note_node, NULL);
        for (i = 0; i < MANY; i++)
            join(gs[i]);
        printf("after %d rows: %d of %d on the node\n", row + 1, begun_on[node], (row + 1) * MANY);
    }
    CHECK_GE(begun_on[node], ROWS * MANY / 2);
}

/* The node's P's are with goroutines that never give way: others help. */
static int stop;

static void compute(void *arg)
{
    ADD(*(int *)arg, 1);
    NAP_UNTIL(GET(stop));
}

GO_TEST(what_a_busy_node_leaves_waiting_begins_elsewhere)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int node = (gs_numa_node() + 1) % 4, computing = 0, i;
    gs_g *busy[2], *gs[MANY];
    forget();
    opts.node = node;
    opts.flags = GS_SPAWN_NOPREEMPT;
    for (i = 0; i < 2; i++)
        busy[i] = go_opts(compute, &computing, &opts);
    WAIT_UNTIL(GET(computing) == 2);
    for (i = 0; i < MANY; i++)
        gs[i] = go_on(node, note_node, NULL);
    for (i = 0; i < MANY; i++)
        join(gs[i]);
    CHECK_EQ(begun_on[node], 0);
    SET(stop, 1);
    for (i = 0; i < 2; i++)
        join(busy[i]);
}
