/*
 * A stack follows its goroutine: after eight runs in a row on another node its pages are moved there, just
 * before the ninth. With GOSCHED_BIND=0 they stay where they are.
 * seed: N9
 * lab:
 * lab: GOSCHED_BIND=0
 */
#include "lab.h"

#define RUNS 8 /* REMOTE_RUNS in src/sched/core/schedule.rs */
#define PAGES 12

static int binds(void)
{
    return getenv("GOSCHED_BIND") == NULL;
}

/* ---- The traveller: looks at its stack each time it is woken ---- */

static gs_chan *calls;

static struct look {
    int count;
    int node, system;      /* where it ran: the library's number, the system's */
    int page[PAGES];       /* where its stack is: the system's numbers */
    int deeper[PAGES];     /* and the pages below, when it has been there */
    int dive;              /* it is to go there */
} look;

static __attribute__((noinline)) void look_below(void)
{
    volatile unsigned char frame[2 * PAGES * PAGE];
    int i;
    for (i = 0; i < PAGES; i++) {
        frame[i * PAGE] = 1;
        look.deeper[i] = node_of_page((const void *)&frame[i * PAGE]);
    }
}

static void travel(void *arg)
{
    volatile unsigned char frame[PAGES * PAGE];
    volatile unsigned char *const was_at = frame;
    void *at[PAGES];
    size_t i;
    int64_t call;
    (void)arg;
    for (i = 0; i < sizeof frame; i++)
        frame[i] = (unsigned char)(i * 7 + i / PAGE);
    do {
        look.node = gs_numa_node();
        look.system = node_here();
        for (i = 0; i < PAGES; i++)
            at[i] = (void *)(uintptr_t)&frame[i * PAGE];
        nodes_of_pages(at, look.page, PAGES);
        if (look.dive)
            look_below();
        CHECK(frame == was_at);
        for (i = 0; i < sizeof frame; i += 61)
            CHECK_EQ(frame[i], (unsigned char)(i * 7 + i / PAGE));
        ADD(look.count, 1);
    } while (gs_chan_recv(calls, &call, GS_FOREVER) == 0);
}

/* All its pages are on the node; unbound: where they were first. */
static void check_pages_on(int node)
{
    static int first[PAGES];
    int i;
    if (look.count == 1)
        memcpy(first, look.page, sizeof first);
    for (i = 0; i < PAGES; i++)
        printf("%d%s", look.page[i], i < PAGES - 1 ? " " : "\n");
    for (i = 0; i < PAGES; i++)
        CHECK_EQ(look.page[i], binds() ? system_node(node) : first[i]);
}

/* It has looked so often, on this node, and is parked again. */
static void check_ran_on(int node, int count)
{
    NAP_UNTIL(GET(look.count) == count);
    CHECK_EQ(look.node, node);
    if (binds())
        CHECK_EQ(look.system, system_node(node));
    wait_until_idle(node, 1);
}

static void call_it(void)
{
    send_int(calls, 0);
}

/* The traveller is on a and parked; only one P of a is free. */
static void begin_on(int a)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    memset(&look, 0, sizeof look);
    calls = chan_of_ints(0);
    gather_crowd(8);
    let_one_go(a);
    wait_until_idle(a, 1);
    opts.node = a;
    opts.flags = GS_SPAWN_NOPREEMPT; /* a run that is interrupted counts as two */
    CHECK_EQ(gs_spawn_with(travel, NULL, &opts, NULL), 0);
    check_ran_on(a, 1);
    check_pages_on(a);
}

/* From here on only one P of `to` is free, and no P of `from`. */
static void free_p_moves(int from, int to)
{
    add_to_crowd(from);
    let_one_go(to);
    wait_until_idle(to, 1);
}

/* Runs so often on a node while the stack is on another, from the first run there on. */
static void run_remotely(int on, int stack_on, int times)
{
    int i;
    for (i = 0; i < times; i++) {
        int before = look.count;
        call_it();
        check_ran_on(on, before + 1);
        check_pages_on(stack_on);
    }
}

static void end_it(void)
{
    CHECK_EQ(gs_chan_close(calls), 0);
    dismiss_crowd();
    free_chan(calls);
}

static void check_moves(int node, uint64_t migrations)
{
    gs_stats s = stats_of(node);
    uint64_t most = migrations * 60; /* the pages of a stack of 240 KiB */
    CHECK_EQ(s.migrations, binds() ? migrations : 0);
    CHECK_GE(s.pages_moved, binds() ? migrations * PAGES : 0);
    CHECK_LE(s.pages_moved, binds() ? most : 0);
}

/* ---- The tests ---- */

TEST(a_stack_follows_after_eight_runs_in_a_row)
{
    int a = 0, b = node_at_distance(a, 31), n, i;
    begin_on(a);
    free_p_moves(a, b);
    run_remotely(b, a, RUNS);
    for (n = 0; n < 4; n++)
        check_moves(n, 0);
    for (i = 0; i < 3 * RUNS; i++)
        run_remotely(b, b, 1);
    for (n = 0; n < 4; n++)
        check_moves(n, n == b);
    end_it();
}

TEST(a_stack_goes_back_when_its_goroutine_does)
{
    int a = 1, b = node_at_distance(a, 21);
    begin_on(a);
    free_p_moves(a, b);
    run_remotely(b, a, RUNS);
    run_remotely(b, b, 2);
    free_p_moves(b, a);
    run_remotely(a, b, RUNS);
    run_remotely(a, a, 2);
    check_moves(a, 1);
    check_moves(b, 1);
    end_it();
}

TEST(runs_that_are_not_in_a_row_move_nothing)
{
    int a = 2, b = node_at_distance(a, 21), i, n;
    begin_on(a);
    for (i = 0; i < 3; i++) {
        free_p_moves(a, b);
        run_remotely(b, a, RUNS - 1);
        free_p_moves(b, a);
        run_remotely(a, a, 1);
    }
    for (n = 0; n < 4; n++)
        check_moves(n, 0);
    end_it();
}

TEST(memory_touched_after_a_migration_is_on_the_new_node)
{
    int a = 0, b = node_at_distance(a, 31), i;
    if (!binds())
        SKIP("without binding memory is wherever it is first touched");
    begin_on(a);
    free_p_moves(a, b);
    run_remotely(b, a, RUNS);
    look.dive = 1;
    run_remotely(b, b, 1);
    for (i = 0; i < PAGES; i++)
        CHECK_EQ(look.deeper[i], system_node(b));
    end_it();
}

/* ---- Two that wake each other: there is always one to switch to directly ---- */

static gs_chan *ball[2];
static int both_here;

struct player {
    long number;
    int page[PAGES];
};

static void play(void *arg)
{
    struct player *me = arg;
    volatile unsigned char frame[PAGES * PAGE];
    int64_t v;
    int i;
    for (i = 0; i < PAGES; i++)
        frame[i * PAGE] = 1;
    ADD(both_here, 1);
    while (gs_chan_recv(ball[me->number], &v, GS_FOREVER) == 0) {
        for (i = 0; i < PAGES; i++)
            me->page[i] = node_of_page((const void *)&frame[i * PAGE]);
        if (v == 100) {
            ADD(both_here, 1);
            CHECK_EQ(gs_chan_recv(ball[me->number], &v, GS_FOREVER), -EPIPE);
            return;
        }
        send_int(ball[1 - me->number], v + 1);
    }
}

TEST(stacks_of_two_that_wake_each_other_follow_too)
{
    static struct player players[2] = {{.number = 0}, {.number = 1}};
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int a = 3, b = node_at_distance(a, 31), i, k;
    gather_crowd(8);
    let_one_go(a);
    wait_until_idle(a, 1);
    opts.node = a;
    for (k = 0; k < 2; k++) {
        ball[k] = chan_of_ints(0);
        CHECK_EQ(gs_spawn_with(play, &players[k], &opts, NULL), 0);
    }
    NAP_UNTIL(GET(both_here) == 2);
    wait_until_idle(a, 1);
    free_p_moves(a, b);
    send_int(ball[0], 0);
    NAP_UNTIL(GET(both_here) == 3);
    CHECK_EQ(stats_of(b).migrations, binds() ? 2 : 0);
    for (k = 0; binds() && k < 2; k++)
        for (i = 0; i < PAGES; i++)
            CHECK_EQ(players[k].page[i], system_node(b));
    for (k = 0; k < 2; k++)
        CHECK_EQ(gs_chan_close(ball[k]), 0);
    dismiss_crowd();
    for (k = 0; k < 2; k++)
        free_chan(ball[k]);
}
