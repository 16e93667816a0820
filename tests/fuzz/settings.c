/*
 * Settings as text: the description of a machine (GOSCHED_TOPOLOGY), GOSCHED_DEBUG, and the numbers of the environment.
 * The input's lines are: the topology, GOSCHED_DEBUG, then NAME=VALUE with what follows GOSCHED_ of the name. A runtime
 * starts with them or refuses them; with a runtime all figures of the machine are in their ranges, and goroutines run.
 * A third line that begins with REPLAY= is a schedule of gs_test_run instead.
 */
#include "fuzz.h"

enum { LINES = 8, LINE = 256 };

static const char *const others[] = {"GOSCHED_PROCS", "GOSCHED_STACK_SIZE", "GOSCHED_MAX_THREADS", "GOSCHED_COOPERATIVE",
                                     "GOSCHED_BIND", "GOSCHED_PREEMPT_SIGNAL"};

static void count(void *arg)
{
    gs_yield();
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
}

static void run(void *arg)
{
    gs_g *g[4];
    for (int i = 0; i < 4; i++)
        CHECK(gs_spawn_with(count, arg, NULL, &g[i]) == 0);
    for (int i = 0; i < 4; i++) {
        CHECK(gs_join(g[i], GS_FOREVER) == 0);
        gs_release(g[i]);
    }
    int nodes = gs_numa_nodes();
    CHECK(nodes >= 1 && gs_numa_node() >= 0 && gs_numa_node() < nodes);
    CHECK(gs_gomaxprocs(0) >= 1 && gs_gomaxprocs(0) <= GS_MAX_PROCS);
    for (int a = 0; a < nodes && a < 16; a++) {
        for (int b = 0; b < nodes && b < 16; b++)
            CHECK(gs_numa_distance(a, b) > 0);
        gs_stats stats = {.size = sizeof stats};
        CHECK(gs_stats_node(a, &stats) == 0);
    }
    CHECK(gs_numa_distance(0, nodes) < 0);
}

static void yield(void *arg)
{
    (void)arg;
    CHECK(gs_spawn(count, arg) == 0);
    gs_yield();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char lines[LINES][LINE] = {{0}};
    size_t line = 0, at = 0;
    for (size_t i = 0; i < n && line < LINES; i++) {
        if (data[i] == '\n') {
            line++;
            at = 0;
        } else if (at + 1 < LINE && data[i] != '\0') {
            lines[line][at++] = (char)data[i];
        }
    }
    /* What prints all the time, or looks for leaks, would be most of the work. */
    if (strstr(lines[1], "schedtrace") || strstr(lines[1], "leaks"))
        return 0;
    if (strncmp(lines[2], "REPLAY=", 7) == 0) {
        int n = 0;
        gs_test_opts opts = {.size = sizeof opts, .replay = lines[2] + 7, .flags = GS_TEST_QUIET};
        int err = gs_test_run(yield, &n, &opts);
        if (err == 0 ? n != 1 : err != -EINVAL)
            FAIL("gs_test_run: %d (%s), %d goroutines", err, gs_strerror(err), n);
        CHECK(gs_shutdown(GS_FOREVER) == 0); /* gs_test_run has started a runtime, or none */
        return 0;
    }
    CHECK(setenv("GOSCHED_DEBUG", lines[1], 1) == 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(unsetenv(others[i]) == 0);
    for (line = 2; line < LINES; line++) {
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            const char *name = others[i] + strlen("GOSCHED_");
            size_t length = strlen(name);
            if (strncmp(lines[line], name, length) == 0 && lines[line][length] == '=')
                CHECK(setenv(others[i], lines[line] + length + 1, 1) == 0);
        }
    }
    gs_config config = GS_CONFIG_INIT;
    config.topology = lines[0];
    int err = gs_init(&config);
    if (err == -EINVAL)
        return 0;
    if (err != 0)
        FAIL("gs_init: %d (%s)", err, gs_strerror(err));
    int counted = 0;
    err = gs_run(run, &counted);
    if (err != 0 || counted != 4)
        FAIL("gs_run: %d (%s), %d goroutines", err, gs_strerror(err), counted);
    err = gs_shutdown(gs_after_ms(10 * 1000));
    if (err != 0)
        FAIL("gs_shutdown: %d (%s)", err, gs_strerror(err));
    return 0;
}
