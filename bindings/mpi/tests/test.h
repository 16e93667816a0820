/*
 * What the test programs share. Each runs under mpirun; all ranks run the same tests, one after the other.
 *
 *   TEST(name)   a goroutine on each rank, between two barriers
 *
 * The first failed check prints what it saw and aborts all ranks. A program that takes longer than
 * CHECK_SECONDS (100) is aborted too.
 */
#ifndef TEST_H
#define TEST_H

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "gosched_mpi.h"

#define MS 1000000LL
#define WORLD MPI_COMM_WORLD
#define LENGTH(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define GET(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define SET(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)
#define ADD(x, n) __atomic_add_fetch(&(x), (n), __ATOMIC_SEQ_CST)

static int rank, ranks;
static const char *now_running = "start";

static void fail(const char *file, int line, const char *what, long long got, long long want)
{
    char text[MPI_MAX_ERROR_STRING];
    fprintf(stderr, "FAIL rank %d, %s: %s:%d: %s is %lld (%s), not %lld\n", rank, now_running, file, line, what, got,
            gs_mpi_strerror((int)got, text), want);
    MPI_Abort(WORLD, 1);
    _exit(1);
}

#define CHECK_EQ(a, b)                                              \
    do {                                                            \
        long long got_ = (long long)(a), want_ = (long long)(b);    \
        if (got_ != want_)                                          \
            fail(__FILE__, __LINE__, #a, got_, want_);              \
    } while (0)
#define CHECK(a) CHECK_EQ(!!(a), 1)

/* The class of an error code of MPI; negative ones as they are. */
static inline int class_of(int err)
{
    int c = err;
    if (err > 0)
        MPI_Error_class(err, &c);
    return c;
}

struct test {
    const char *name;
    gs_fn fn;
    struct test *next;
};
static struct test *all_tests;
static struct test **last_test __attribute__((unused)) = &all_tests;

#define TEST(name)                                                                  \
    static void name(void *arg);                                                    \
    static struct test test_##name = {#name, name, NULL};                           \
    __attribute__((constructor)) static void add_##name(void)                       \
    {                                                                               \
        *last_test = &test_##name;                                                  \
        last_test = &test_##name.next;                                              \
    }                                                                               \
    static void name(void *arg __attribute__((unused)))

static inline gs_g *spawn(gs_fn f, void *arg)
{
    gs_g *g;
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    CHECK_EQ(gs_spawn_with(f, arg, &opts, &g), 0);
    return g;
}

static inline void join(gs_g *g)
{
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
}

/* Waits until the condition holds; the program's watchdog ends it otherwise. */
#define UNTIL(condition) \
    while (!(condition)) \
    gs_sleep(MS)

/* splitmix64 */
static inline uint64_t next_random(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int below(uint64_t *s, int n)
{
    return (int)(next_random(s) % (uint64_t)n);
}

static void *watch(void *arg)
{
    const char *limit = getenv("CHECK_SECONDS");
    (void)arg;
    sleep(limit ? (unsigned)atoi(limit) : 100);
    fprintf(stderr, "FAIL rank %d, %s: no end; its goroutines:\n", rank, now_running);
    gs_dump(2);
    MPI_Abort(WORLD, 1);
    _exit(1);
}

static inline void watchdog(void)
{
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, watch, NULL), 0);
    pthread_detach(t);
}

static void run_tests(void *arg)
{
    char **names = (char **)arg;
    for (struct test *t = all_tests; t != NULL; t = t->next) {
        bool chosen = names[0] == NULL;
        for (char **n = names; *n != NULL; n++)
            chosen = chosen || strcmp(*n, t->name) == 0;
        if (!chosen)
            continue;
        now_running = t->name;
        CHECK_EQ(gs_mpi_barrier(WORLD), 0);
        join(spawn(t->fn, NULL));
        CHECK_EQ(gs_mpi_barrier(WORLD), 0);
        if (rank == 0)
            printf("ok %s\n", t->name), fflush(stdout);
    }
}

static inline int test_main(int argc, char **argv)
{
    CHECK_EQ(gs_mpi_init(&argc, &argv), 0);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &ranks);
    watchdog();
    CHECK_EQ(gs_run(run_tests, argv + 1), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    return MPI_Finalize();
}

#endif
