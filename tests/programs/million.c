/*
 * A million goroutines: parked ones with guarded stacks under the default vm.max_map_count, and
 * newborns that have not run yet. seed: B6, S11 (no G or stack until the first run)
 */
#include "check.h"

/* Bounds in bytes of resident memory for each goroutine. */
#define PARKED_BYTES 4710 /* 4.6 KiB: one touched stack page and the descriptor */
#define SPAWNED_BYTES 200

/* The kernel's default for vm.max_map_count; this program must stay well below it. */
#define DEFAULT_MAX_MAPS 65530

/* A million, or what fits into the memory that is free. */
static long how_many(long bytes_each)
{
    const char *given = getenv("CHECK_MILLION");
    long wanted = given ? atol(given) : 1000000;
    long fits = read_kib("/proc/meminfo", "MemAvailable:") / (bytes_each / 1024 + 1) / 5 * 4;
    if (fits >= wanted)
        return wanted;
    printf("skip part of %s: memory for %ld goroutines only\n", current_test, fits);
    return fits;
}

static void check_bytes_each(long kib_before, long kib_after, long n, long most)
{
    long each = (kib_after - kib_before) * 1024 / n;
    snprintf(check_note, sizeof check_note, "%ld goroutines, %ld KiB", n, kib_after - kib_before);
    if (is_emulated())
        printf("skip part of %s: the emulator's heap, with its records of pages, is part of the memory\n", current_test);
    else
        CHECK_LE(each, most);
    printf("   %ld goroutines, %ld bytes each\n", n, each);
}

static gs_chan *gate;
static long parked, ended;

static void park(void *arg)
{
    (void)arg;
    ADD(parked, 1);
    if (gs_chan_recv(gate, NULL, GS_FOREVER) == -EPIPE)
        ADD(ended, 1);
}

GO_TEST(a_million_parked_goroutines_fit_and_each_is_woken)
{
    long n = how_many(PARKED_BYTES + 1024), i, before;
    alarm(2 * check_seconds()); /* the kernel needs its time for all these pages */
    gate = chan_of_ints(0);
    before = resident_kib();
    for (i = 0; i < n; i++)
        go(park, NULL);
    WAIT_UNTIL(GET(parked) == n);
    CHECK_EQ(gs_sleep(20 * MS), 0); /* the last ones are on their way into the channel's line */
    check_bytes_each(before, resident_kib(), n, PARKED_BYTES);
    CHECK_LE(count_maps(), DEFAULT_MAX_MAPS - 1000);
    CHECK_EQ(gs_num_goroutines(), n + 1);
    CHECK_EQ(gs_chan_close(gate), 0);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    CHECK_EQ(ended, n);
    free_chan(gate);
}

/* The stacks are guarded: one more goroutine that overflows is still caught. */
static __attribute__((noinline)) long dive(long depth)
{
    volatile char frame[256];
    frame[0] = (char)depth;
    return depth == 0 ? frame[0] : dive(depth - 1) + frame[0];
}

static void overflow(void *arg)
{
    (void)arg;
    (void)dive(1L << 40);
}

static void overflow_among_many(void *arg)
{
    long n = 100000, i;
    (void)arg;
    gate = chan_of_ints(0);
    for (i = 0; i < n; i++)
        go(park, NULL);
    WAIT_UNTIL(GET(parked) == n);
    go(overflow, NULL);
    CHECK_EQ(gs_sleep(3600 * SEC), 0);
}

CHILD(an_overflow_among_many)
{
    (void)gs_run(overflow_among_many, NULL);
}

TEST(the_stacks_of_many_are_guarded)
{
    struct outcome out;
    check_child_dies("an_overflow_among_many", SIGABRT, &out);
    CHECK_HAS(out.text, "stack");
}

/* ---- Spawned, not yet run ---- */

static long ran;

static void note_run(void *arg)
{
    (void)arg;
    ADD(ran, 1);
}

static void spawn_all(void *arg)
{
    long n = how_many(1024), i, before = resident_kib();
    (void)arg;
    for (i = 0; i < n; i++)
        go(note_run, NULL);
    CHECK_EQ(GET(ran), 0);
    CHECK_EQ(gs_num_goroutines(), n + 2);
    check_bytes_each(before, resident_kib(), n, SPAWNED_BYTES);
    WAIT_UNTIL(GET(ran) == n);
}

static void spawn_all_with_one_p(void *arg)
{
    gs_gomaxprocs(1);
    join(go_steady(spawn_all, arg)); /* it is not preempted: none of them runs meanwhile */
}

/* In a process of its own: what the parked ones left behind would hide the cost. */
CHILD(spawn_a_million)
{
    CHECK_EQ(gs_run(spawn_all_with_one_p, NULL), 0);
}

TEST(a_million_spawned_goroutines_cost_little_until_they_run)
{
    static struct outcome out;
    run_child("spawn_a_million", &out);
    printf("%s", out.text);
    CHECK(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 0);
}
