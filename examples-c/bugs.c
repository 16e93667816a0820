/*
 * Five bugs of concurrent code, each of which gs_test_explore finds: docs/testing.md.
 *
 *   bugs [NAME [RUNS]]    looks for a bug in RUNS runs (10,000); all of them by default
 *
 * Exit status 0: each was found.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef THREADS
#include "../benches/bugs/threads.h"
#else
#include <gosched.h>
#endif

#define MS 1000000

static struct {
    gs_mutex mutex, other;
    gs_cond changed;
    int ready, closed, money[2];
} all;

static void begin(void)
{
    memset(&all, 0, sizeof all);
}

static void go(gs_fn f, void *arg)
{
    if (gs_spawn(f, arg) != 0)
        abort();
}

static void lock(gs_mutex *m)
{
    if (gs_mutex_lock(m, GS_FOREVER) != 0)
        abort();
}

/* ---- A wake-up that is lost: the flag is read before the lock is taken ---- */

static void consume(void *arg)
{
    (void)arg;
    if (!all.ready) {
        lock(&all.mutex);
        gs_cond_wait(&all.changed, &all.mutex, GS_FOREVER);
        gs_mutex_unlock(&all.mutex);
    }
}

static void produce(void *arg)
{
    (void)arg;
    lock(&all.mutex);
    all.ready = 1;
    gs_cond_signal(&all.changed);
    gs_mutex_unlock(&all.mutex);
}

static void lost_wakeup(void *arg)
{
    (void)arg;
    begin();
    go(consume, NULL);
    go(produce, NULL);
}

/* ---- A double close: between the check and the close the lock is free ---- */

static void close_once(void *arg)
{
    int closed;
    (void)arg;
    lock(&all.mutex);
    closed = all.closed;
    gs_mutex_unlock(&all.mutex);
    if (closed)
        return;
    lock(&all.mutex);
    if (all.closed++ > 0)
        gs_test_fail("closed twice");
    gs_mutex_unlock(&all.mutex);
}

static void double_close(void *arg)
{
    (void)arg;
    begin();
    go(close_once, NULL);
    go(close_once, NULL);
}

/* ---- ABBA: two mutexes, taken in both orders ---- */

static void move(int from, gs_mutex *first, gs_mutex *second)
{
    lock(first);
    lock(second);
    all.money[from]--;
    all.money[!from]++;
    gs_mutex_unlock(second);
    gs_mutex_unlock(first);
}

static void there(void *arg)
{
    (void)arg;
    move(0, &all.mutex, &all.other);
}

static void back(void *arg)
{
    (void)arg;
    move(1, &all.other, &all.mutex);
}

static void abba(void *arg)
{
    (void)arg;
    begin();
    go(there, NULL);
    go(back, NULL);
}

/* ---- A forgotten cancel: the slower of two answers waits for a reader that has gone ---- */

static int answer; /* 0: there is room for an answer */

static void ask_server(void *arg)
{
    lock(&all.mutex);
    while (answer != 0)
        gs_cond_wait(&all.changed, &all.mutex, GS_FOREVER);
    answer = *(int *)arg;
    gs_cond_broadcast(&all.changed);
    gs_mutex_unlock(&all.mutex);
}

static void forgotten_cancel(void *arg)
{
    static int servers[3] = {1, 2, 3};
    int i, answers = 0;
    (void)arg;
    begin();
    answer = 0;
    for (i = 0; i < 3; i++)
        go(ask_server, &servers[i]);
    lock(&all.mutex);
    while (answers == 0) {
        while (answer == 0)
            gs_cond_wait(&all.changed, &all.mutex, GS_FOREVER);
        answers++;
        answer = 0;
        gs_cond_signal(&all.changed); /* and the third waits on */
    }
    gs_mutex_unlock(&all.mutex);
}

/* ---- A timeout race: the answer comes at the very moment at which the caller gives up ---- */

struct call {
    int done, is_over;
};

static void serve(void *arg)
{
    struct call *call = arg;
    gs_sleep(10 * MS);
    if (call->is_over)
        gs_test_fail("an answer to a call that is over");
    lock(&all.mutex);
    call->done = 1;
    gs_cond_signal(&all.changed);
    gs_mutex_unlock(&all.mutex);
}

static void timeout_race(void *arg)
{
    static struct call call;
    int64_t deadline = gs_after_ms(10);
    (void)arg;
    begin();
    memset(&call, 0, sizeof call);
    go(serve, &call);
    lock(&all.mutex);
    while (!call.done && gs_cond_wait(&all.changed, &all.mutex, deadline) == 0)
        ;
    gs_mutex_unlock(&all.mutex);
    call.is_over = 1; /* a call on the caller's stack would be gone */
}

static const struct {
    const char *name;
    gs_fn f;
} bugs[] = {
    {"lost_wakeup", lost_wakeup},           {"double_close", double_close}, {"abba", abba},
    {"forgotten_cancel", forgotten_cancel}, {"timeout_race", timeout_race},
};

int main(int argc, char **argv)
{
    uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;
    size_t i, found = 0, asked = 0;
    for (i = 0; i < sizeof bugs / sizeof bugs[0]; i++) {
        int64_t r;
        if (argc > 1 && strcmp(argv[1], bugs[i].name) != 0)
            continue;
        printf("%s\n", bugs[i].name);
        fflush(stdout);
        asked++;
        r = gs_test_explore(bugs[i].f, NULL, NULL, runs);
        found += r < 0;
    }
    return asked > 0 && found == asked ? 0 : 1;
}
