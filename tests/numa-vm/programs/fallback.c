/*
 * An overflow is caught on a kernel without MADV_GUARD_INSTALL too, where a guard is a mapping.
 */
#include "lab.h"

#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static int kernel_has_guards(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int has;
    CHECK(page != MAP_FAILED);
    has = madvise(page, 4096, MADV_GUARD_INSTALL) == 0;
    munmap(page, 4096);
    return has;
}

static __attribute__((noinline)) size_t dive(size_t size)
{
    volatile char frame[512];
    size_t i;
    for (i = 0; i < sizeof frame; i += 64)
        frame[i] = (char)size;
    if (size <= sizeof frame)
        return frame[0] & 1;
    i = dive(size - sizeof frame);
    return i + (frame[64] & 1);
}

static void dive_once(void *size)
{
    (void)dive(*(size_t *)size);
}

static size_t for_ever = (size_t)1 << 40;
static size_t some = 100 * 1024;

CHILD(overflow_on_a_worker)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.name = "deep-diver";
    join(go_opts(dive_once, &for_ever, &opts));
}

CHILD(overflow_in_run)
{
    (void)gs_run(dive_once, &for_ever);
}

static gs_chan *gate;
static int parked;

static void dive_and_park(void *arg)
{
    (void)arg;
    (void)dive(some);
    ADD(parked, 1);
    (void)gs_chan_recv(gate, NULL, GS_FOREVER);
}

/* Each of some hundred stacks has its guard, with others above and below. */
CHILD(overflow_amid_others)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int i;
    gate = chan_of_ints(0);
    for (i = 0; i < 300; i++)
        go(dive_and_park, NULL);
    NAP_UNTIL(GET(parked) == 300);
    opts.name = "deep-diver";
    go_opts(dive_once, &for_ever, &opts);
    for (;;)
        nap(SEC);
}

static void check_overflow(const char *child, const char *name)
{
    struct outcome out;
    if (kernel_has_guards())
        SKIP("the kernel has MADV_GUARD_INSTALL");
    check_child_dies(child, SIGABRT, &out);
    printf("%s: %s\n", child, out.text);
    CHECK_HAS(out.text, "stack");
    if (name)
        CHECK_HAS(out.text, name);
}

TEST(an_overflow_on_a_worker_is_reported)
{
    check_overflow("overflow_on_a_worker", "deep-diver");
}

TEST(an_overflow_in_gs_run_is_reported)
{
    check_overflow("overflow_in_run", NULL);
}

TEST(an_overflow_amid_other_stacks_is_reported)
{
    check_overflow("overflow_amid_others", "deep-diver");
}
