/*
 * Stacks: their size, their reuse, and the report when one overflows.
 * seed: B6 (up to 1 GiB reserved by choice, committed as touched)
 */
#include "check.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* Uses about `size` bytes of stack, half a KiB a frame, and touches all of it. */
static __attribute__((noinline)) size_t dive(size_t size)
{
    volatile unsigned char frame[512];
    size_t i;
    for (i = 0; i < sizeof frame; i += 64)
        frame[i] = (unsigned char)size;
    if (size <= sizeof frame)
        return frame[0] & 1;
    i = dive(size - sizeof frame);
    return i + (frame[64] & 1);
}

static void dive_once(void *size)
{
    (void)dive(*(size_t *)size);
}

static void dive_with_stack(size_t depth, size_t stack)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.stack_size = stack;
    join(go_opts(dive_once, &depth, &o));
}

GO_TEST(the_default_stack_holds_128_KiB)
{
    size_t size = 128 * KIB;
    dive_once(&size);
    join(go_ref(dive_once, &size));
}

GO_TEST(a_stack_of_64_MiB_can_be_used_to_its_end)
{
    dive_with_stack(40 * MIB, 64 * MIB);
}

GO_TEST(stacks_of_all_sizes_can_be_used)
{
    size_t size;
    for (size = 32 * KIB; size <= 16 * MIB; size *= 2)
        dive_with_stack(size / 2, size);
    dive_with_stack(600 * KIB, 1000 * KIB); /* not a power of two */
    dive_with_stack(20000, 65537);
}

/* Reserved by choice, committed as touched. */
GO_TEST(a_stack_of_1_GiB_costs_only_what_is_touched)
{
    long before = resident_kib();
    int i;
    for (i = 0; i < 4; i++)
        dive_with_stack(MIB, 1024 * MIB);
    CHECK_LE(resident_kib(), before + 64 * 1024);
}

static gs_chan *gate;
static int parked;

static void dive_and_park(void *size)
{
    (void)dive(*(size_t *)size);
    ADD(parked, 1);
    CHECK_EQ(gs_chan_recv(gate, NULL, GS_FOREVER), -EPIPE);
    (void)dive(*(size_t *)size);
}

GO_TEST(many_sizes_are_parked_at_the_same_time)
{
    static size_t depths[64];
    gs_g *gs[64];
    int i;
    gate = chan_of_ints(0);
    SET(parked, 0);
    for (i = 0; i < 64; i++) {
        gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
        o.stack_size = (64 * KIB) << (i % 6);
        depths[i] = o.stack_size / 2;
        gs[i] = go_opts(dive_and_park, &depths[i], &o);
    }
    WAIT_UNTIL(GET(parked) == 64);
    CHECK_EQ(gs_chan_close(gate), 0);
    for (i = 0; i < 64; i++)
        join(gs[i]);
    free_chan(gate);
}

GO_TEST(stacks_are_used_again)
{
    size_t size = 100 * KIB;
    long before;
    int i;
    for (i = 0; i < 100; i++)
        join(go_ref(dive_once, &size));
    before = resident_kib();
    for (i = 0; i < 3000; i++)
        join(go_ref(dive_once, &size));
    CHECK_LE(resident_kib(), before + 64 * 1024);
}

/* After a thousand deep stacks at once, what they held above a mark goes back to the system. */
GO_TEST(deep_stacks_give_their_pages_back)
{
    static size_t size = 100 * 1024;
    gs_g *gs[1000];
    long before = resident_kib();
    int i, round;
    gate = chan_of_ints(0);
    SET(parked, 0);
    for (i = 0; i < 1000; i++)
        gs[i] = go_ref(dive_and_park, &size);
    WAIT_UNTIL(GET(parked) == 1000);
    CHECK_GE(resident_kib(), before + 90 * 1000);
    CHECK_EQ(gs_chan_close(gate), 0);
    for (i = 0; i < 1000; i++)
        join(gs[i]);
    free_chan(gate);
    for (round = 0; round < 20 && resident_kib() > before + 80 * 1024; round++)
        CHECK_EQ(gs_sleep(50 * MS), 0);
    CHECK_LE(resident_kib(), before + 80 * 1024);
}

TEST(the_default_size_can_be_configured)
{
    gs_config c;
    size_t size = 1536 * KIB;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.stack_size = 2 * MIB;
    CHECK_EQ(gs_init(&c), 0);
    join(go_ref(dive_once, &size));
    CHECK_EQ(gs_run(dive_once, &size), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(a_small_default_size_is_raised_to_what_works)
{
    gs_config c;
    size_t size = KIB;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.stack_size = 1;
    CHECK_EQ(gs_init(&c), 0);
    join(go_ref(dive_once, &size));
    CHECK_EQ(gs_run(dive_once, &size), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- Overflow ---- */

static size_t for_ever = (size_t)1 << 40;

static void overflow_with_name(const char *name, size_t stack)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.name = name;
    o.stack_size = stack;
    join(go_opts(dive_once, &for_ever, &o));
}

CHILD(overflow_on_a_worker)
{
    char name[] = "deep-diver";
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    o.name = name;
    o.stack_size = 64 * KIB;
    g = go_opts(dive_once, &for_ever, &o);
    memset(name, 'x', sizeof name - 1); /* the name was copied */
    join(g);
}

CHILD(overflow_in_run)
{
    (void)gs_run(dive_once, &for_ever);
}

CHILD(overflow_of_a_large_stack)
{
    overflow_with_name("large-diver", 8 * MIB);
}

static void use_some_stacks(void *arg)
{
    size_t size = 50 * KIB;
    int i;
    (void)arg;
    for (i = 0; i < 200; i++)
        join(go_ref(dive_once, &size));
    overflow_with_name("second-hand", 0);
}

CHILD(overflow_of_a_stack_that_was_used_before)
{
    (void)gs_run(use_some_stacks, NULL);
}

static void check_report(const char *child, const char *name)
{
    struct outcome out;
    check_child_dies(child, SIGABRT, &out);
    CHECK_HAS(out.text, "stack overflow");
    /* The functions have names. */
    CHECK_HAS(out.text, " [running]:\n");
    CHECK_HAS(out.text, "()\n\t");
    CHECK_HAS(out.text, "/stacks.c:");
    CHECK_HAS(out.text, "\ncreated by ");
    if (name)
        CHECK_HAS(out.text, name);
}

TEST(an_overflow_is_reported_with_the_name_and_aborts)
{
    check_report("overflow_on_a_worker", "deep-diver");
    check_report("overflow_in_run", NULL);
    check_report("overflow_of_a_large_stack", "large-diver");
    check_report("overflow_of_a_stack_that_was_used_before", "second-hand");
}

/* ---- Other faults are the host's ---- */

static volatile int *nowhere;

static void fault(void *arg)
{
    (void)arg;
    *nowhere = 1;
}

static void host_handler(int sig, siginfo_t *info, void *context)
{
    (void)context;
    _exit(sig == SIGSEGV && info->si_addr == NULL ? 42 : 43);
}

CHILD(fault_with_a_handler_of_the_host)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = host_handler;
    sa.sa_flags = SA_SIGINFO;
    CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
    join(go_ref(fault, NULL));
}

CHILD(fault_in_run_with_a_handler_of_the_host)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = host_handler;
    sa.sa_flags = SA_SIGINFO;
    CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
    (void)gs_run(fault, NULL);
}

CHILD(fault_without_a_handler)
{
    join(go_ref(fault, NULL));
}

TEST(a_fault_elsewhere_goes_to_the_host)
{
    struct outcome out;
    run_child("fault_with_a_handler_of_the_host", &out);
    CHECK(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 42);
    run_child("fault_in_run_with_a_handler_of_the_host", &out);
    CHECK(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 42);
    check_child_dies("fault_without_a_handler", SIGSEGV, &out);
}

/* ---- No address space is left for stacks ---- */

enum { CROWD = 4000 };

static gs_chan *crowd_waits;
static int crowd_began;

static void wait_in_crowd(void *arg)
{
    int64_t none;
    (void)arg;
    ADD(crowd_began, 1);
    CHECK_EQ(gs_chan_recv(crowd_waits, &none, GS_FOREVER), -EPIPE);
}

static void other_end_of_pair(void *arg)
{
    gs_chan *ch = arg;
    int64_t n;
    while (gs_chan_recv(ch, &n, GS_FOREVER) == 0)
        ;
}

/* As much as is in use now, and some for fewer stacks than there are to be. */
static void limit_address_space(size_t more)
{
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL);
    CHECK_EQ(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    limit.rlim_cur = limit.rlim_max = pages * (unsigned long)getpagesize() + more;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Goroutines that have a stack go on at full speed: if a newborn that finds none kept the P for a
 * millisecond, this test would take minutes. Newborns wait aside, and all of them run as stacks come free. */
static void crowd_without_stacks(void *arg)
{
    gs_chan *pair = chan_of_ints(0);
    int procs = gs_gomaxprocs(1), i;
    (void)arg;
    limit_address_space((size_t)300 << 20);
    crowd_waits = chan_of_ints(0);
    go(other_end_of_pair, pair);
    for (i = 0; i < CROWD; i++)
        go(wait_in_crowd, NULL);
    for (i = 0; i < 300000; i++) {
        send_int(pair, i);
        gs_yield();
    }
    CHECK(GET(crowd_began) < CROWD);
    gs_gomaxprocs(procs);
    CHECK_EQ(gs_chan_close(crowd_waits), 0);
    YIELD_UNTIL(GET(crowd_began) == CROWD);
    CHECK_EQ(gs_chan_close(pair), 0);
}

CHILD(a_crowd_without_stacks)
{
    CHECK_EQ(gs_run(crowd_without_stacks, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(without_stacks_newborns_wait_and_the_others_go_on)
{
    check_child_succeeds("a_crowd_without_stacks");
}
