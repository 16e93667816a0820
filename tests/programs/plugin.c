/*
 * Plugins in C++, loaded with RTLD_LOCAL by a program in C: a plugin that shares the C++ runtime, which comes
 * with it, and a plugin that is linked with a copy of its own. Both are cxx.cpp, and lie beside this program.
 */
#include "check.h"

#include <dlfcn.h>
#include <link.h>

#define SHARED "cxx_cpp_shared_fPIC"
#define OWN SHARED "_static_libstdc++"

struct plugin {
    gs_fn throw_and_switch;
    void (*call_in_catch_block)(void (*f)(void *), void *arg);
};

static void load(struct plugin *p, const char *name)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    void *h;
    CHECK(n > 0 && n < (ssize_t)sizeof path);
    while (path[n - 1] != '/')
        n--;
    snprintf(path + n, sizeof path - (size_t)n, "%s", name);
    h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h)
        failed(__FILE__, __LINE__, dlerror(), NULL);
    p->throw_and_switch = (gs_fn)(uintptr_t)dlsym(h, "throw_and_switch");
    p->call_in_catch_block = (void (*)(void (*)(void *), void *))(uintptr_t)dlsym(h, "call_in_catch_block");
    CHECK(p->throw_and_switch && p->call_in_catch_block);
}

static struct plugin shared, own;

static void yield(void *arg)
{
    (void)arg;
    gs_yield();
}

/* Before it has run there is a thread that has not seen any C++. */
static void warm_up(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 100; i++)
        join(go_ref(yield, NULL));
}

/* ---- Loaded before the start ---- */

CHILD(the_shared_one_before_the_start)
{
    load(&shared, SHARED);
    CHECK_EQ(gs_run(shared.throw_and_switch, NULL), 0);
}

CHILD(the_one_with_a_copy_before_the_start)
{
    load(&own, OWN);
    CHECK_EQ(gs_run(own.throw_and_switch, NULL), 0);
}

TEST(plugins_that_are_loaded_before_the_start)
{
    check_child_succeeds("the_shared_one_before_the_start");
    check_child_succeeds("the_one_with_a_copy_before_the_start");
}

/* ---- Loaded by a goroutine, and used at once ---- */

static void load_and_use(void *arg)
{
    struct plugin p;
    warm_up(NULL);
    load(&p, arg);
    p.throw_and_switch(NULL);
}

static void load_and_switch(void *arg)
{
    struct plugin p;
    warm_up(NULL);
    load(&p, arg);
    p.call_in_catch_block(yield, NULL);
    p.call_in_catch_block(warm_up, NULL);
}

static char shared_name[] = SHARED, own_name[] = OWN;

CHILD(the_shared_one_by_a_goroutine)
{
    CHECK_EQ(gs_run(load_and_use, shared_name), 0);
}

CHILD(the_one_with_a_copy_by_a_goroutine)
{
    CHECK_EQ(gs_run(load_and_use, own_name), 0);
}

CHILD(one_after_the_other_by_goroutines)
{
    CHECK_EQ(gs_run(load_and_switch, shared_name), 0);
    CHECK_EQ(gs_run(load_and_switch, own_name), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_run(load_and_use, own_name), 0);
    CHECK_EQ(gs_run(load_and_use, shared_name), 0);
}

TEST(plugins_that_goroutines_load_and_use_at_once)
{
    check_child_succeeds("the_shared_one_by_a_goroutine");
    check_child_succeeds("the_one_with_a_copy_by_a_goroutine");
    check_child_succeeds("one_after_the_other_by_goroutines");
}

/* ---- Both, one within the other ---- */

static void call_shared(void *arg)
{
    (void)arg;
    shared.call_in_catch_block(yield, NULL);
}

static void call_own_then_shared(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 20; i++)
        own.call_in_catch_block(call_shared, NULL);
}

static void *in_gs_blocking(void *arg)
{
    shared.call_in_catch_block(warm_up, NULL);
    return arg;
}

static void call_gs_blocking(void *arg)
{
    (void)gs_blocking(in_gs_blocking, arg);
}

static void use_both(void *arg)
{
    gs_g *gs[40];
    int i;
    for (i = 0; i < 40; i++)
        gs[i] = go_ref(call_own_then_shared, arg);
    own.call_in_catch_block(own.throw_and_switch, arg);
    own.call_in_catch_block(shared.throw_and_switch, arg);
    own.call_in_catch_block(call_gs_blocking, arg);
    for (i = 0; i < 40; i++)
        join(gs[i]);
}

CHILD(both_at_once)
{
    load(&shared, SHARED);
    load(&own, OWN);
    CHECK_EQ(gs_run(use_both, NULL), 0);
}

static void load_both(void *arg)
{
    warm_up(arg);
    load(&own, OWN);
    own.call_in_catch_block(warm_up, NULL);
    load(&shared, SHARED);
    use_both(arg);
}

CHILD(both_by_a_goroutine)
{
    CHECK_EQ(gs_run(load_both, NULL), 0);
}

static void run_in_goroutine(void *arg)
{
    CHECK_EQ(gs_run(use_both, arg), 0);
}

CHILD(the_callers_exceptions_of_both)
{
    load(&shared, SHARED);
    load(&own, OWN);
    own.call_in_catch_block(run_in_goroutine, NULL);
    shared.call_in_catch_block(run_in_goroutine, NULL);
}

TEST(plugins_that_call_each_other_in_catch_blocks)
{
    check_child_succeeds("both_at_once");
    check_child_succeeds("both_by_a_goroutine");
    check_child_succeeds("the_callers_exceptions_of_both");
}

/* ---- Many load and use at the same time ---- */

static void load_and_yield(void *arg)
{
    struct plugin p;
    intptr_t i = (intptr_t)arg;
    if (i % 3 == 0)
        warm_up(NULL);
    load(&p, i % 2 ? SHARED : OWN);
    p.call_in_catch_block(i % 5 ? yield : warm_up, NULL);
}

static void load_many_times(void *arg)
{
    gs_g *gs[30];
    intptr_t i;
    (void)arg;
    for (i = 0; i < 30; i++)
        gs[i] = go_ref(load_and_yield, (void *)i);
    for (i = 0; i < 30; i++)
        join(gs[i]);
}

CHILD(load_side_by_side)
{
    CHECK_EQ(gs_run(load_many_times, NULL), 0);
}

TEST(goroutines_that_load_plugins_side_by_side)
{
    check_child_succeeds("load_side_by_side");
}

/* ---- A goroutine that is preempted while it has the loader's lock ---- */

static int begun, done;

static int compute_with_the_lock(struct dl_phdr_info *info, size_t size, void *arg)
{
    volatile int i;
    (void)info;
    (void)size;
    (void)arg;
    ADD(begun, 1);
    for (i = 0; i < 200000; i++)
        ;
    return 0;
}

static void hold_the_lock(void *arg)
{
    while (!GET(done))
        CHECK_EQ(dl_iterate_phdr(compute_with_the_lock, arg), 0);
}

static void load_beside_holders(void *arg)
{
    gs_g *holders[3];
    int i;
    for (i = 0; i < 3; i++)
        holders[i] = go_ref(hold_the_lock, NULL);
    while (GET(begun) < 20)
        gs_yield();
    load_and_switch(arg);
    SET(done, 1);
    for (i = 0; i < 3; i++)
        join(holders[i]);
}

CHILD(load_beside_goroutines_that_hold_the_lock)
{
    gs_config c = GS_CONFIG_INIT;
    c.time_slice_ns = 100 * US;
    CHECK_EQ(gs_init(&c), 0);
    CHECK_EQ(gs_run(load_beside_holders, own_name), 0);
}

TEST(a_preempted_goroutine_may_have_the_loaders_lock)
{
    check_child_succeeds("load_beside_goroutines_that_hold_the_lock");
}
