/* paths: does one of the hot paths COUNT times, with one P, so that its instructions can be counted. */
#include <gosched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long count, done;

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "paths: %s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

static void end(void *arg)
{
    (void)arg;
    done++;
}

/* Spawned one by one, each begun and ended before the next. */
static void spawn(void *arg)
{
    (void)arg;
    for (long i = 0; i < count; i++) {
        CHECK(gs_spawn(end, NULL) == 0);
        gs_yield();
    }
}

/* Spawned a hundred at a time. */
static void spawn_batch(void *arg)
{
    (void)arg;
    for (long i = 0; i < count; i++) {
        CHECK(gs_spawn(end, NULL) == 0);
        if (i % 100 == 99)
            gs_yield();
    }
}

static void yields(void *arg)
{
    (void)arg;
    for (long i = 0; i < count / 2; i++)
        gs_yield();
    done += count / 2;
}

/* Two that yield to each other. */
static void yield(void *arg)
{
    CHECK(gs_spawn(yields, NULL) == 0);
    yields(arg);
}

static gs_chan *ch, *back;

static void receive(void *arg)
{
    long value;
    (void)arg;
    for (long i = 0; i < count; i++)
        CHECK(gs_chan_recv(ch, &value, GS_FOREVER) == 0 && value == i);
    done += count;
}

/* A value over an unbuffered channel: one of the two parks, one is woken. */
static void channel(void *arg)
{
    (void)arg;
    ch = gs_chan_make(sizeof(long), 0);
    CHECK(ch != NULL && gs_spawn(receive, NULL) == 0);
    for (long i = 0; i < count; i++)
        CHECK(gs_chan_send(ch, &i, GS_FOREVER) == 0);
    while (done < count)
        gs_yield();
    CHECK(gs_chan_free(ch) == 0);
}

/* A value through a buffer: no goroutine parks. */
static void buffer(void *arg)
{
    long value;
    (void)arg;
    ch = gs_chan_make(sizeof(long), 1);
    for (; done < count; done++) {
        CHECK(gs_chan_send(ch, &done, GS_FOREVER) == 0);
        CHECK(gs_chan_recv(ch, &value, GS_FOREVER) == 0 && value == done);
    }
    CHECK(gs_chan_free(ch) == 0);
}

static void answer(void *arg)
{
    long value;
    (void)arg;
    while (gs_chan_recv(ch, &value, GS_FOREVER) == 0)
        CHECK(gs_chan_send(back, &value, GS_FOREVER) == 0);
}

/* There and back over two unbuffered channels, and a select that receives. */
static void select_two(void *arg)
{
    long value;
    (void)arg;
    ch = gs_chan_make(sizeof(long), 0);
    back = gs_chan_make(sizeof(long), 0);
    gs_chan *never = gs_chan_make(sizeof(long), 0);
    CHECK(ch != NULL && back != NULL && never != NULL && gs_spawn(answer, NULL) == 0);
    for (; done < count; done++) {
        CHECK(gs_chan_send(ch, &done, GS_FOREVER) == 0);
        gs_case cases[] = {{never, &value, GS_RECV, 0}, {back, &value, GS_RECV, 0}};
        CHECK(gs_select(cases, 2, GS_FOREVER) == 1 && value == done);
    }
    CHECK(gs_chan_close(ch) == 0);
    gs_yield();
    CHECK(gs_chan_free(ch) == 0 && gs_chan_free(back) == 0 && gs_chan_free(never) == 0);
}

/* Without contention. */
static void mutex(void *arg)
{
    static gs_mutex m;
    (void)arg;
    for (; done < count; done++)
        CHECK(gs_mutex_lock(&m, GS_FOREVER) == 0 && gs_mutex_unlock(&m) == 0);
}

/* For reading, then for writing, without contention. */
static void rwmutex(void *arg)
{
    static gs_rwmutex rw;
    (void)arg;
    for (; done < count; done++) {
        CHECK(gs_rwmutex_rlock(&rw, GS_FOREVER) == 0 && gs_rwmutex_runlock(&rw) == 0);
        CHECK(gs_rwmutex_lock(&rw, GS_FOREVER) == 0 && gs_rwmutex_unlock(&rw) == 0);
    }
}

static gs_mutex wanted;
static gs_waitgroup waiting;

static void want(void *arg)
{
    (void)arg;
    CHECK(gs_mutex_lock(&wanted, GS_FOREVER) == 0 && gs_mutex_unlock(&wanted) == 0);
    CHECK(gs_waitgroup_done(&waiting) == 0);
}

/* One waiter has been woken and has not run yet, and others wait: enough of them, as an unlock in 32 wakes another. */
static void mutex_busy(void *arg)
{
    long waiters = count / 32 + 2;
    (void)arg;
    CHECK(gs_mutex_lock(&wanted, GS_FOREVER) == 0 && gs_waitgroup_add(&waiting, waiters) == 0);
    for (long i = 0; i < waiters; i++)
        CHECK(gs_spawn(want, NULL) == 0);
    gs_yield();
    CHECK(gs_mutex_unlock(&wanted) == 0);
    for (long i = 0; i < count; i++)
        CHECK(gs_mutex_lock(&wanted, GS_FOREVER) == 0 && gs_mutex_unlock(&wanted) == 0);
    CHECK(gs_waitgroup_wait(&waiting, GS_FOREVER) == 0);
    done = count;
}

static void syscalls(void *arg)
{
    (void)arg;
    for (; done < count; done++)
        CHECK(gs_entersyscall() == 0 && gs_exitsyscall() == 0);
}

static void nothing(void *arg)
{
    (void)arg;
    done = count;
}

static const struct {
    const char *name;
    gs_fn run;
} paths[] = {{"spawn", spawn},   {"spawn_batch", spawn_batch}, {"yield", yield},
             {"channel", channel}, {"buffer", buffer},         {"select", select_two},
             {"mutex", mutex},   {"rwmutex", rwmutex},       {"mutex_busy", mutex_busy},
             {"syscall", syscalls}, {"nothing", nothing}};

int main(int argc, char **argv)
{
    /* The goroutines are not disturbed: the slice is as long as can be. */
    gs_config config = {.size = sizeof config, .gomaxprocs = 1, .time_slice_ns = UINT64_C(3600000000000)};
    size_t i = 0, n = sizeof paths / sizeof paths[0];

    while (argc == 3 && i < n && strcmp(argv[1], paths[i].name) != 0)
        i++;
    if (argc != 3 || i == n || (count = atol(argv[2])) <= 0 || count % 200 != 0) {
        fputs("Usage: paths PATH COUNT   (COUNT: a multiple of 200)\nPaths:", stderr);
        for (i = 0; i < n; i++)
            fprintf(stderr, " %s", paths[i].name);
        fputs("\n", stderr);
        return 2;
    }
    CHECK(gs_init(&config) == 0);
    CHECK(gs_run(paths[i].run, NULL) == 0);
    CHECK(gs_shutdown(GS_FOREVER) == 0);
    CHECK(done == count);
    return 0;
}
