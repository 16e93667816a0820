/*
 * Structs that begin with their size: each size from that of the first release on is good, what is
 * missing means its default, and what the library doesn't know must not be set.
 */
#include "check.h"

/* Their sizes in the first release. They stay here as they are. */
enum { FIRST_CONFIG = 48, FIRST_SPAWN_OPTS = 40, FIRST_STATS = 120 };

/* The largest size that makes sense. */
enum { MOST = 4096 };

/* A struct and what a newer program's may have behind it. */
union config {
    gs_config known;
    unsigned char bytes[MOST + 1];
};

union opts {
    gs_spawn_opts known;
    unsigned char bytes[MOST + 1];
};

union stats {
    gs_stats known;
    unsigned char bytes[MOST + 1];
};

static int init_with(size_t size, size_t set)
{
    static union config c;
    int r;
    memset(&c, 0, sizeof c);
    c.known.size = size;
    if (set)
        c.bytes[set] = 1;
    r = gs_init(&c.known);
    if (r == 0)
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    return r;
}

TEST(config)
{
    size_t size;
    CHECK_EQ(init_with(0, 0), -EINVAL);
    CHECK_EQ(init_with(FIRST_CONFIG - 1, 0), -EINVAL);
    for (size = FIRST_CONFIG; size <= sizeof(gs_config) + 16; size += 4)
        CHECK_EQ(init_with(size, 0), 0);
    CHECK_EQ(init_with(MOST, 0), 0);
    CHECK_EQ(init_with(MOST + 1, 0), -EINVAL);
    CHECK_EQ(init_with(MOST, sizeof(gs_config)), -EINVAL);
    CHECK_EQ(init_with(MOST, MOST - 1), -EINVAL);
    /* Behind the caller's struct the memory is not the library's. */
    CHECK_EQ(init_with(FIRST_CONFIG, FIRST_CONFIG), 0);
}

static void count_one(void *times)
{
    ++*(int *)times;
}

static int spawn_with(size_t size, size_t set)
{
    static union opts o;
    gs_g *g;
    int r, times = 0;
    memset(&o, 0, sizeof o);
    o.known.size = size;
    o.known.node = -1;
    if (set)
        o.bytes[set] = 1;
    r = gs_spawn_with(count_one, &times, &o.known, &g);
    CHECK((r == 0) == (g != NULL));
    if (r == 0)
        join(g);
    CHECK_EQ(times, r == 0);
    return r;
}

GO_TEST(spawn_opts)
{
    size_t size;
    CHECK_EQ(spawn_with(0, 0), -EINVAL);
    CHECK_EQ(spawn_with(FIRST_SPAWN_OPTS - 1, 0), -EINVAL);
    for (size = FIRST_SPAWN_OPTS; size <= sizeof(gs_spawn_opts) + 16; size += 4)
        CHECK_EQ(spawn_with(size, 0), 0);
    CHECK_EQ(spawn_with(MOST, 0), 0);
    CHECK_EQ(spawn_with(MOST + 1, 0), -EINVAL);
    CHECK_EQ(spawn_with(MOST, sizeof(gs_spawn_opts)), -EINVAL);
    CHECK_EQ(spawn_with(MOST, MOST - 1), -EINVAL);
    CHECK_EQ(spawn_with(FIRST_SPAWN_OPTS, FIRST_SPAWN_OPTS), 0);
}

/* In the first release it was padding, in which a program leaves anything. */
GO_TEST(reserved)
{
    CHECK_EQ(spawn_with(FIRST_SPAWN_OPTS, offsetof(gs_spawn_opts, reserved)), 0);
    CHECK_EQ(spawn_with(FIRST_SPAWN_OPTS + 8, offsetof(gs_spawn_opts, reserved)), -EINVAL);
}

GO_TEST(stats)
{
    static union stats s;
    size_t size, i;
    for (size = 0; size < FIRST_STATS; size += 8) {
        memset(&s, 0xee, sizeof s);
        s.known.size = size;
        CHECK_EQ(gs_stats_read(&s.known), -EINVAL);
        CHECK_EQ(gs_stats_node(0, &s.known), -EINVAL);
        CHECK_EQ(s.bytes[sizeof(size_t)], 0xee);
    }
    for (size = FIRST_STATS; size <= MOST; size += 8) {
        memset(&s, 0xee, sizeof s);
        s.known.size = size;
        CHECK_EQ(gs_stats_read(&s.known), 0);
        CHECK_EQ(s.known.size, size);
        CHECK_EQ(s.known.goroutines, 1);
        CHECK_GE(s.known.procs, 1);
        for (i = sizeof(gs_stats); i < MOST; i++)
            CHECK_EQ(s.bytes[i], i < size ? 0 : 0xee);
    }
    s.known.size = MOST + 1;
    CHECK_EQ(gs_stats_read(&s.known), -EINVAL);
}
