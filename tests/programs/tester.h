/*
 * What the random testers share, so that a failure can be made smaller. A tester has parts: bits of
 * CHECK_PARTS (default: all) that can be left out. CHECK_SIZE, in percent, makes smaller what a round has many of:
 * operations, goroutines, records. The choices that a seed makes stay the same otherwise. "tester parts"
 * prints how many parts there are. tools/shrink looks for the smallest values with which a run still fails.
 *
 * "tester bubbles SEED RUNS" plays that many runs in bubbles (gs_test_explore), each decided by its seed alone, and
 * shrinks the first that fails. CHECK_LOG is a file to which the events of all runs are appended.
 */
#ifndef TESTER_H
#define TESTER_H

#define main check_main
#include "check.h"
#undef main

static inline int has_part(int part)
{
    static uint64_t parts;
    uint64_t now = __atomic_load_n(&parts, __ATOMIC_RELAXED);
    if (now == 0) {
        const char *s = getenv("CHECK_PARTS");
        /* The highest bit: it has been read. */
        now = (s ? strtoull(s, NULL, 0) : ~0ull) | 1ull << 63;
        __atomic_store_n(&parts, now, __ATOMIC_RELAXED);
    }
    return (int)(now >> part & 1);
}

/* As many of n as CHECK_SIZE says, at least one. */
static inline int sized(int n)
{
    const char *s = getenv("CHECK_SIZE");
    int most = s ? n * atoi(s) / 100 : n;
    return most > 0 ? most : 1;
}

/* Whether the program was only asked for the number of its parts, which it has printed. */
static inline int asked_for_parts(int argc, char **argv, int parts)
{
    if (argc != 2 || strcmp(argv[1], "parts") != 0)
        return 0;
    printf("%d\n", parts);
    return 1;
}

/* ---- In bubbles ---- */

/* What a tester plays in bubbles. */
struct bubble_play {
    void (*play)(void *seed); /* one run, with fresh objects; seed: a uint64_t */
    gs_test_opts most;        /* the most steps, and the highest chances of faults; some seeds have lower ones */
    int cancels;              /* out of 1000: the highest chance of a cancel, for the seeds that may have one */
    int (*may_cancel)(uint64_t seed); /* NULL: all */
};

static inline int is_in_bubble(void)
{
    return fail_in_bubble != NULL;
}

static inline uint32_t up_to(uint64_t *s, uint32_t most)
{
    uint64_t r = random_next(s) >> 33;
    return r % 3 == 0 ? 0 : (uint32_t)(r / 3 % (most + 1));
}

/* The schedule of a seed, and its faults. */
static inline gs_test_opts opts_of(const struct bubble_play *b, uint64_t seed)
{
    gs_test_opts o = b->most;
    uint64_t s = (seed * 0x9e3779b97f4a7c15ull) | 1, schedule;
    uint32_t *const chances[] = {&o.net.loss, &o.net.duplicate, &o.net.cut, &o.net.reset, &o.net.refuse,
                                 &o.net.short_io, &o.no_memory};
    size_t i;
    for (i = 0; i < 8; i++)
        (void)random_next(&s);
    schedule = (random_next(&s) >> 33) % 8;
    o.size = sizeof o;
    o.seed = seed;
    o.schedule = schedule < 3 ? GS_TEST_RANDOM : schedule == 3 ? GS_TEST_ROUND_ROBIN : GS_TEST_PCT;
    o.depth = schedule < 4 ? 0 : (uint32_t)schedule - 2; /* 2 to 5 */
    o.net.delay = up_to(&s, (uint32_t)b->most.net.delay);
    o.net.jitter = up_to(&s, (uint32_t)b->most.net.jitter);
    for (i = 0; i < LENGTH(chances); i++)
        *chances[i] = up_to(&s, *chances[i]);
    o.cancel = up_to(&s, (uint32_t)b->cancels);
    if (b->may_cancel && !b->may_cancel(seed))
        o.cancel = 0;
    return o;
}

/* Does what "bubbles SEED RUNS" asks for. Returns the exit status; -1: the arguments ask for something else. */
static inline int play_in_bubbles(int argc, char **argv, const struct bubble_play *b)
{
    const char *path = getenv("CHECK_LOG");
    uint64_t seed, end;
    FILE *log = NULL;
    if (argc < 2 || strcmp(argv[1], "bubbles") != 0)
        return -1;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    end = seed + (argc > 3 ? strtoull(argv[3], NULL, 0) : 1000);
    prepare();
    if (path)
        CHECK((log = fopen(path, "a")) != NULL);
    current_test = "bubbles";
    fail_in_bubble = gs_test_fail;
    for (; seed < end; seed++) {
        gs_test_opts o = opts_of(b, seed);
        int64_t r;
        o.log = log ? fileno(log) : 0;
        alarm(check_seconds());
        r = log ? gs_test_run(b->play, &seed, &o) : gs_test_explore(b->play, &seed, &o, 1);
        if (r >= 0)
            continue;
        fprintf(stderr, "seed %llu fails: %s; schedule %u, depth %u, cancel %u; repeat with: %s bubbles %llu 1\n",
                (unsigned long long)seed, gs_strerror((int)r), o.schedule, o.depth, o.cancel, argv[0],
                (unsigned long long)seed);
        return 1;
    }
    if (log)
        fclose(log);
    printf("ok bubbles, up to seed %llu\n", (unsigned long long)end - 1);
    return 0;
}

#endif
