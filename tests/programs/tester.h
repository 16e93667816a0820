/*
 * What the random testers share, so that a failure can be made smaller. A tester has parts: bits of
 * CHECK_PARTS (default: all) that can be left out. CHECK_SIZE, in percent, makes smaller what a round has many of:
 * operations, goroutines, records. The choices that a seed makes stay the same otherwise. "tester parts"
 * prints how many parts there are. tools/shrink looks for the smallest values with which a run still fails.
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

#endif
