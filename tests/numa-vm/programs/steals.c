/*
 * A P without work looks at its own node first, then at the others from near to far: of each the queue, then
 * the P's. gs_stats_steals shows it. A goroutine that is preempted before it takes its turn would take it late.
 * seed: N4
 * lab: GOSCHED_PREEMPT_SIGNAL=0
 */
#include "lab.h"

#define EACH 20

/* ---- One thief, and work in all places ---- */

enum place { OWN_P, NEAR_QUEUE, NEAR_P, FAR_QUEUE, FAR_P, PLACES };

static int turns, turn_of[PLACES * EACH];

static void take_a_turn(void *place)
{
    turn_of[ADD(turns, 1) - 1] = (int)(intptr_t)place;
}

/* Each keeps a P busy; when it is told to, it puts work into the queue of that, and when it is let go it ends. */
static struct keeper {
    int node, place, leave;
} keepers[8];
static int here, loaded;

static void keep_p(void *arg)
{
    struct keeper *k = arg;
    int i;
    k->node = gs_numa_node();
    ADD(here, 1);
    NAP_UNTIL(GET(k->place) >= 0 || GET(k->leave));
    if (k->place >= 0) {
        for (i = 0; i < EACH; i++)
            go(take_a_turn, (void *)(intptr_t)k->place);
        ADD(loaded, 1);
    }
    NAP_UNTIL(GET(k->leave));
}

static void keep_all_ps(void)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    size_t i;
    here = loaded = 0;
    opts.flags = GS_SPAWN_NOPREEMPT;
    for (i = 0; i < LENGTH(keepers); i++) {
        keepers[i] = (struct keeper){.place = -1};
        CHECK_EQ(gs_spawn_with(keep_p, &keepers[i], &opts, NULL), 0);
    }
    NAP_UNTIL(GET(here) == 8);
}

/* One of those that have no work to keep. */
static struct keeper *keeper_on(int node)
{
    size_t i;
    for (i = 0; i < LENGTH(keepers); i++)
        if (keepers[i].node == node && keepers[i].place < 0)
            return &keepers[i];
    failed(__FILE__, __LINE__, "both P's of this node have work", NULL);
    return NULL;
}

static void load_p_of(int node, enum place place)
{
    int before = GET(loaded);
    SET(keeper_on(node)->place, place);
    NAP_UNTIL(GET(loaded) == before + 1);
}

static void load_queue_of(int node, enum place place)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int i;
    opts.node = node;
    for (i = 0; i < EACH; i++)
        CHECK_EQ(gs_spawn_with(take_a_turn, (void *)(intptr_t)place, &opts, NULL), 0);
}

static void read_steals(int64_t steals[4][4])
{
    int node, from;
    for (node = 0; node < 4; node++)
        for (from = 0; from < 4; from++)
            steals[node][from] = gs_stats_steals(node, from);
}

static void check_thief(int thief)
{
    int near = node_at_distance(thief, 21), far = node_at_distance(thief, 31), i, from;
    int64_t before[4][4], after[4][4];
    gs_stats then, now;
    memset(turn_of, 0, sizeof turn_of);
    turns = 0;
    keep_all_ps();
    /* The far ones first, so that it isn't the order in which the work came. */
    load_p_of(far, FAR_P);
    load_queue_of(far, FAR_QUEUE);
    load_p_of(near, NEAR_P);
    load_queue_of(near, NEAR_QUEUE);
    load_p_of(thief, OWN_P);
    CHECK_EQ(turns, 0);
    read_steals(before);
    then = stats_of(thief);
    /* What was spawned for a node is left to it for 5 ms at most. */
    nap(20 * MS);
    SET(keeper_on(thief)->leave, 1);
    NAP_UNTIL(GET(turns) == PLACES * EACH);
    for (i = 0; i < PLACES * EACH; i++)
        CHECK_EQ(turn_of[i], i / EACH);
    read_steals(after);
    now = stats_of(thief);
    for (i = 0; i < 4; i++)
        for (from = 0; from < 4; from++) {
            int64_t steals = after[i][from] - before[i][from];
            if (i == thief && (from == thief || from == near || from == far))
                CHECK_GE(steals, 1);
            else
                CHECK_EQ(steals, 0);
        }
    CHECK_EQ(now.steals_near - then.steals_near, after[thief][thief] - before[thief][thief]);
    CHECK_GE(now.steals_remote_queue - then.steals_remote_queue, 2);
    CHECK_GE(now.steals_remote_p - then.steals_remote_p, 2);
    for (i = 0; i < 8; i++)
        SET(keepers[i].leave, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(a_thief_goes_from_its_own_node_to_the_nearest_and_further)
{
    int thief;
    for (thief = 0; thief < 4; thief++)
        check_thief(thief);
}

/* ---- Thieves on all nodes, and all work on one ---- */

#define TASKS 4000

static int done, counted;

/* When some have been done, all P's stop until the steals have been read. */
static void compute(void *arg)
{
    volatile int i;
    (void)arg;
    for (i = 0; i < 3000; i++)
        ;
    if (ADD(done, 1) >= TASKS / 8)
        NAP_UNTIL(GET(counted));
}

/*
 * As long as the queue of the source is not empty, those beside it never get to the node behind it, which is
 * further from them, and the source's own P's steal nothing.
 */
TEST(with_all_work_on_one_node_steals_follow_the_distances)
{
    int source = 0, far = node_at_distance(source, 31), a, b;
    int64_t before[4][4], steals[4][4], stolen = 0;
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gather_crowd(8);
    read_steals(before);
    opts.node = source;
    opts.flags = GS_SPAWN_NOPREEMPT;
    for (a = 0; a < TASKS; a++)
        CHECK_EQ(gs_spawn_with(compute, NULL, &opts, NULL), 0);
    for (a = 0; a < 8; a++)
        SET(crowd.leave[a], 1);
    NAP_UNTIL(GET(done) == TASKS / 8 + 7);
    read_steals(steals);
    for (a = 0; a < 4; a++)
        for (b = 0; b < 4; b++)
            steals[a][b] -= before[a][b];
    /* More than its P's can have in their own queues. */
    CHECK_GE(stats_of(source).goroutines, 1200);
    SET(counted, 1);
    printf("steals by row from column; all work is on node %d, node %d is opposite\n", source, far);
    for (a = 0; a < 4; a++)
        printf("node %d: %5d %5d %5d %5d\n", a, (int)steals[a][0], (int)steals[a][1], (int)steals[a][2],
               (int)steals[a][3]);
    for (a = 0; a < 4; a++) {
        if (a == source || a == far)
            continue;
        CHECK_EQ(steals[source][a], 0);
        stolen += steals[a][source] + steals[a][far];
        for (b = 0; b < 4; b++)
            if (gs_numa_distance(a, b) == 31)
                CHECK_EQ(steals[a][b], 0);
    }
    CHECK_EQ(steals[source][far], 0);
    CHECK_GE(stolen, 1);
    NAP_UNTIL(GET(done) == TASKS);
    dismiss_crowd();
}
