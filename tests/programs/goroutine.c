/* Goroutines: spawning, options, identity, yield and exit. */
#include "check.h"

static void count(void *n)
{
    ADD(*(long *)n, 1);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* ---- gs_spawn ---- */

static void check_arg(void *arg)
{
    CHECK_EQ(*(int *)arg, 42);
    *(int *)arg = 43;
}

GO_TEST(spawn_passes_the_argument)
{
    int arg = 42;
    join(go_ref(check_arg, &arg));
    CHECK_EQ(arg, 43);
}

static void check_null(void *arg)
{
    CHECK(arg == NULL);
}

GO_TEST(the_argument_may_be_NULL)
{
    join(go_ref(check_null, NULL));
}

GO_TEST(each_spawned_goroutine_runs_once)
{
    long n = 0;
    int i;
    for (i = 0; i < 5000; i++)
        go(count, &n);
    WAIT_UNTIL(GET(n) >= 5000);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(GET(n), 5000);
}

TEST(spawn_from_a_plain_thread)
{
    long n = 0;
    int i;
    for (i = 0; i < 1000; i++)
        go(count, &n);
    NAP_UNTIL(GET(n) == 1000);
}

static void *spawn_many(void *n)
{
    int i;
    for (i = 0; i < 500; i++)
        join(go_ref(count, n));
    return NULL;
}

TEST(spawn_from_several_threads_at_once)
{
    pthread_t t[6];
    long n = 0;
    int i;
    for (i = 0; i < 6; i++)
        t[i] = start_thread(spawn_many, &n);
    for (i = 0; i < 6; i++)
        join_thread(t[i]);
    CHECK_EQ(n, 3000);
}

struct tree {
    long *leaves;
    int depth;
};

static void grow(void *arg)
{
    struct tree *t = arg, left, right;
    gs_g *l, *r;
    if (t->depth == 0) {
        ADD(*t->leaves, 1);
        return;
    }
    left.leaves = right.leaves = t->leaves;
    left.depth = right.depth = t->depth - 1;
    l = go_ref(grow, &left);
    r = go_ref(grow, &right);
    join(l);
    join(r);
}

GO_TEST(a_tree_of_goroutines_that_join_each_other)
{
    long leaves = 0;
    struct tree t = {&leaves, 11};
    grow(&t);
    CHECK_EQ(leaves, 2048);
}

/* ---- gs_spawn_with ---- */

GO_TEST(options_and_reference_may_be_NULL)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    long n = 0;
    gs_g *g = NULL;
    CHECK_EQ(gs_spawn_with(count, &n, NULL, NULL), 0);
    CHECK_EQ(gs_spawn_with(count, &n, &o, NULL), 0);
    CHECK_EQ(gs_spawn_with(count, &n, NULL, &g), 0);
    join(g);
    WAIT_UNTIL(GET(n) == 3);
}

static void check_refused(const gs_spawn_opts *o)
{
    gs_g *untouched = (gs_g *)(uintptr_t)16, *g = untouched;
    size_t before = gs_num_goroutines();
    CHECK_EQ(gs_spawn_with(nothing, NULL, o, &g), -EINVAL);
    CHECK(g == untouched || g == NULL);
    CHECK_EQ(gs_spawn_with(nothing, NULL, o, NULL), -EINVAL);
    CHECK_EQ(gs_num_goroutines(), before);
}

GO_TEST(a_size_that_is_too_small_is_EINVAL)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    WAIT_UNTIL(gs_num_goroutines() == 1);
    o.size = 0;
    check_refused(&o);
    o.size = 1;
    check_refused(&o);
    o.size = sizeof(size_t);
    check_refused(&o);
}

struct larger_opts {
    gs_spawn_opts known;
    unsigned char later[64];
};

GO_TEST(bytes_set_past_the_known_struct_are_EINVAL)
{
    struct larger_opts o;
    gs_spawn_opts plain = GS_SPAWN_OPTS_INIT;
    size_t i;
    long n = 0;
    WAIT_UNTIL(gs_num_goroutines() == 1);
    memset(&o, 0, sizeof o);
    o.known = plain;
    o.known.size = sizeof o;
    for (i = 0; i < sizeof o.later; i += 21) {
        o.later[i] = 1;
        check_refused(&o.known);
        o.later[i] = 0;
    }
    join(go_opts(count, &n, &o.known));
    CHECK_EQ(n, 1);
}

/* The struct of the first release had 40 bytes, the last four of which were padding. */
GO_TEST(padding_of_the_first_release_may_hold_anything)
{
    gs_spawn_opts o;
    long n = 0;
    memset(&o, 0xff, sizeof o);
    o.size = 40;
    o.name = NULL;
    o.stack_size = 0;
    o.priority = GS_PRIO_NORMAL;
    o.node = -1;
    o.flags = 0;
    join(go_opts(count, &n, &o));
    CHECK_EQ(n, 1);
}

GO_TEST(nonsense_options_are_EINVAL)
{
    gs_spawn_opts init = GS_SPAWN_OPTS_INIT, o = init;
    static const int nodes[] = {-2, -100, INT_MIN, INT_MAX, 4096};
    static const int priorities[] = {100, -100, INT_MAX, INT_MIN};
    static const uint32_t flags[] = {0x80000000u, 0x40000000u, ~(uint32_t)0};
    size_t i;
    WAIT_UNTIL(gs_num_goroutines() == 1);
    for (i = 0; i < LENGTH(nodes); i++, o = init) {
        o.node = nodes[i];
        check_refused(&o);
    }
    for (i = 0; i < LENGTH(priorities); i++, o = init) {
        o.priority = priorities[i];
        check_refused(&o);
    }
    for (i = 0; i < LENGTH(flags); i++, o = init) {
        o.flags = flags[i];
        check_refused(&o);
    }
    o.stack_size = ((size_t)1 << 30) + 1;
    check_refused(&o);
    o.stack_size = SIZE_MAX;
    check_refused(&o);
}

GO_TEST(no_function_is_EINVAL)
{
    gs_g *g = NULL;
    CHECK_EQ(gs_spawn(NULL, NULL), -EINVAL);
    CHECK_EQ(gs_spawn_with(NULL, NULL, NULL, NULL), -EINVAL);
    CHECK_EQ(gs_spawn_with(NULL, NULL, NULL, &g), -EINVAL);
    CHECK(g == NULL);
}

GO_TEST(every_node_of_the_topology_can_be_asked_for)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    long n = 0;
    int nodes = nodes_in_topology(), i;
    for (i = 0; i < nodes; i++) {
        o.node = i;
        join(go_opts(count, &n, &o));
    }
    CHECK_EQ(n, nodes);
    if (nodes > 0) {
        WAIT_UNTIL(gs_num_goroutines() == 1);
        o.node = nodes;
        check_refused(&o);
    }
    o.node = 0;
    join(go_opts(count, &n, &o));
}

GO_TEST(every_priority_and_flag_is_taken)
{
    static const int priorities[] = {GS_PRIO_HIGH, GS_PRIO_NORMAL, GS_PRIO_LOW, GS_PRIO_IDLE};
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    long n = 0;
    size_t i;
    uint32_t f;
    CHECK_EQ(GS_PRIO_NORMAL, 0);
    CHECK((GS_SPAWN_PINNED & GS_SPAWN_NOPREEMPT) == 0);
    for (i = 0; i < LENGTH(priorities); i++)
        for (f = 0; f < 4; f++) {
            o.priority = priorities[i];
            o.flags = (f & 1 ? GS_SPAWN_PINNED : 0) | (f & 2 ? GS_SPAWN_NOPREEMPT : 0);
            join(go_opts(count, &n, &o));
        }
    CHECK_EQ(n, 16);
}

static void use_stdio(void *n)
{
    char text[64];
    snprintf(text, sizeof text, "%d %s", 12345, "some text");
    CHECK(strcmp(text, "12345 some text") == 0);
    ADD(*(long *)n, 1);
}

GO_TEST(a_small_stack_is_raised_to_what_works)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    long n = 0;
    size_t size;
    for (size = 1; size <= 16384; size *= 4) {
        o.stack_size = size;
        join(go_opts(use_stdio, &n, &o));
    }
    CHECK_EQ(n, 8);
}

/* What the options point to belongs to the caller and may go once the call has returned. */
GO_TEST(options_are_copied)
{
    gs_spawn_opts *o = malloc(sizeof *o), init = GS_SPAWN_OPTS_INIT;
    char *name = strdup("a name that is gone before the goroutine runs");
    long n = 0;
    gs_g *g = NULL;
    *o = init;
    o->name = name;
    CHECK_EQ(gs_spawn_with(count, &n, o, &g), 0);
    memset(name, '?', strlen(name));
    free(name);
    memset(o, 0xff, sizeof *o);
    free(o);
    join(g);
    CHECK_EQ(n, 1);
}

GO_TEST(names_may_be_empty_or_long)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    static char name[100000];
    long n = 0;
    o.name = "";
    join(go_opts(count, &n, &o));
    memset(name, 'x', sizeof name - 1);
    o.name = name;
    join(go_opts(count, &n, &o));
    CHECK_EQ(n, 2);
}

/* ---- References ---- */

GO_TEST(a_reference_may_be_released_at_any_time)
{
    long n = 0;
    int i;
    for (i = 0; i < 5000; i++) {
        gs_g *g = go_ref(count, &n);
        if (i % 3 == 0)
            gs_yield();
        gs_release(g);
    }
    WAIT_UNTIL(GET(n) == 5000);
}

GO_TEST(retain_gives_a_further_reference)
{
    long n = 0;
    gs_g *g = go_ref(count, &n);
    uint64_t id = gs_id(g);
    CHECK(gs_retain(g) == g);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
    CHECK_EQ(gs_id(g), id); /* the second reference keeps it */
    CHECK_EQ(gs_join(g, GS_NOWAIT), 0);
    gs_release(g);
}

static gs_g *left_behind;

static void leave_reference(void *arg)
{
    (void)arg;
    left_behind = gs_retain(gs_self());
}

GO_TEST(a_goroutine_can_give_away_a_reference_to_itself)
{
    gs_g *g = go_ref(leave_reference, NULL);
    uint64_t id = gs_id(g);
    join(g);
    CHECK_EQ(gs_id(left_behind), id);
    join(left_behind);
}

/* ---- Identity ---- */

#define MANY_IDS 2000
static uint64_t ids[MANY_IDS];

static void note_id(void *slot)
{
    *(uint64_t *)slot = gs_id(gs_self());
    gs_yield();
    CHECK_EQ(gs_id(gs_self()), *(uint64_t *)slot);
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

GO_TEST(ids_are_unique_and_not_0)
{
    static gs_g *gs[MANY_IDS];
    int i;
    for (i = 0; i < MANY_IDS; i++)
        gs[i] = go_ref(note_id, &ids[i]);
    for (i = 0; i < MANY_IDS; i++) {
        uint64_t id = gs_id(gs[i]);
        join(gs[i]);
        CHECK_EQ(ids[i], id);
    }
    qsort(ids, MANY_IDS, sizeof ids[0], compare_ids);
    CHECK(ids[0] != 0);
    for (i = 1; i < MANY_IDS; i++)
        CHECK(ids[i] != ids[i - 1]);
}

static void check_same_self(void *arg)
{
    gs_g *self = gs_self();
    int i;
    (void)arg;
    CHECK(self != NULL);
    for (i = 0; i < 50; i++) {
        if (i % 10 == 0)
            CHECK_EQ(gs_sleep(100 * US), 0);
        else
            gs_yield();
        CHECK(gs_self() == self);
    }
}

GO_TEST(self_is_the_same_wherever_it_runs)
{
    gs_g *gs[50];
    int i;
    for (i = 0; i < 50; i++)
        gs[i] = go_ref(check_same_self, NULL);
    for (i = 0; i < 50; i++)
        join(gs[i]);
}

static void *check_no_self(void *arg)
{
    CHECK(gs_self() == NULL);
    gs_yield(); /* nothing to give away */
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK(gs_self() == NULL);
    return arg;
}

TEST(a_plain_thread_has_no_self)
{
    CHECK(gs_self() == NULL);
    CHECK_EQ(gs_id(gs_self()), 0);
    join_thread(start_thread(check_no_self, NULL));
}

TEST(NULL_has_no_id)
{
    CHECK_EQ(gs_id(NULL), 0);
    CHECK(gs_retain(NULL) == NULL);
    gs_release(NULL);
}

static void wait_for(void *flag)
{
    WAIT_UNTIL(GET(*(int *)flag));
}

GO_TEST(num_goroutines_counts_those_that_have_not_run_yet)
{
    int flag = 0, i, procs = gs_gomaxprocs(1);
    WAIT_UNTIL(gs_num_goroutines() == 1); /* the function of gs_run */
    for (i = 1; i <= 100; i++) {
        go(wait_for, &flag);
        CHECK_EQ(gs_num_goroutines(), 1 + i);
    }
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_num_goroutines(), 101);
    SET(flag, 1);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    gs_gomaxprocs(procs);
}

/* ---- gs_exit and gs_yield ---- */

static int deep_exit(int depth)
{
    if (depth < 0)
        return 0; /* never: gs_exit does not return */
    if (depth == 0)
        gs_exit();
    return deep_exit(depth - 1) + 1;
}

static void exit_deep_down(void *n)
{
    ADD(*(long *)n, 1);
    (void)deep_exit(50);
    ADD(*(long *)n, 1000000);
}

GO_TEST(exit_ends_the_goroutine_from_any_depth)
{
    long n = 0;
    int i;
    for (i = 0; i < 200; i++)
        join(go_ref(exit_deep_down, &n));
    CHECK_EQ(n, 200);
}

static void count_yields(void *n)
{
    int i;
    for (i = 0; i < 100; i++) {
        gs_yield();
        ADD(*(long *)n, 1);
    }
}

GO_TEST(yield_lets_the_others_run)
{
    gs_g *gs[20];
    long n = 0;
    int i;
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(count_yields, &n);
    YIELD_UNTIL(GET(n) == 2000);
    for (i = 0; i < 20; i++)
        join(gs[i]);
}

GO_TEST(yield_alone_comes_back)
{
    int i;
    for (i = 0; i < 10000; i++)
        gs_yield();
}

/* With two P's or more, goroutines run in parallel: each waits for all others without a call. */
static int arrived;

static void meet(void *all)
{
    ADD(arrived, 1);
    while (GET(arrived) < *(int *)all)
        sched_yield();
}

/* seed: S6 (a spawn starts an idle P) */
GO_TEST(as_many_run_in_parallel_as_there_are_ps)
{
    int all = gs_gomaxprocs(0), round, i;
    gs_g *gs[64];
    if (all > 64)
        SKIP("more than 64 P's");
    for (round = 0; round < 20; round++) {
        arrived = 0;
        for (i = 0; i < all - 1; i++)
            gs[i] = go_steady(meet, &all);
        meet(&all);
        for (i = 0; i < all - 1; i++)
            join(gs[i]);
    }
}
