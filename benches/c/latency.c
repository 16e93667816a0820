/* latency: how long a goroutine waits for the P after an event, while other goroutines use the P's. For each kind of
 * background and of event: n events, one every 2 ms, from a plain thread or a timer. */
#include "../late.h"
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PERIOD_NS = 2000000, /* between two events */
    TURN_NS = 10000,     /* that a goroutine of `yields` computes between two yields */
};

/* Background: 2 x P goroutines of one kind, until `over`. */

static atomic_bool over;

static bool is_over(void)
{
    return atomic_load_explicit(&over, memory_order_relaxed);
}

static void nap(long ns)
{
    const struct timespec time = {.tv_nsec = ns};
    /* A signal may end it early: the preemption of a goroutine that was about to call this. */
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    CHECK(error == 0 || error == EINTR);
}

static void announced_nap(long ns)
{
    gs_entersyscall();
    nap(ns);
    MUST(gs_exitsyscall());
}

/* Counts its rounds, so that a loop tells how much CPU time it had. */
static void loop(void *arg)
{
    atomic_uint_fast64_t *count = arg;
    uint64_t mine = 0;

    while (!is_over())
        atomic_store_explicit(count, ++mine, memory_order_relaxed);
}

static void yields(void *arg)
{
    (void)arg;
    while (!is_over()) {
        for (int64_t end = gs_now() + TURN_NS; gs_now() < end;)
            ;
        gs_yield();
    }
}

static void calls_of_5_ms(void *arg)
{
    (void)arg;
    while (!is_over())
        announced_nap(5000000);
}

static void calls_of_50_us(void *arg)
{
    (void)arg;
    while (!is_over())
        announced_nap(50000);
}

static void locked(void *arg)
{
    (void)arg;
    MUST(gs_lock_os_thread());
    while (!is_over())
        announced_nap(2000000);
    MUST(gs_unlock_os_thread());
}

static void plain_naps(void *arg)
{
    (void)arg;
    while (!is_over())
        nap(5000000);
}

static void *nap_on_thread(void *arg)
{
    nap(5000000);
    return arg;
}

static void naps_in_gs_blocking(void *arg)
{
    (void)arg;
    while (!is_over())
        gs_blocking(nap_on_thread, NULL);
}

/* Each goroutine is one side of a pair: it takes the ball from one channel and sends it on the other. */
static void plays(void *arg)
{
    gs_chan **pair = arg;

    while (gs_chan_recv(pair[0], NULL, GS_FOREVER) == 0)
        if (gs_chan_send(pair[1], NULL, GS_FOREVER) < 0)
            break;
}

static const struct background {
    const char *name;
    gs_fn run; /* NULL: no goroutines */
} backgrounds[] = {
    {"nothing", NULL},         {"loops", loop},           {"yields", yields},
    {"calls5ms", calls_of_5_ms}, {"calls50us", calls_of_50_us}, {"locked", locked},
    {"plain", plain_naps},     {"blocking", naps_in_gs_blocking}, {"pingpong", plays},
};

/* Events */

struct source {
    int64_t events;
    int64_t *at; /* when each happened */
    atomic_int_fast64_t happened;
    gs_chan *ch;
    int socket[2];
    gs_sem sem;
};

static void *send_all(void *arg)
{
    struct source *s = arg;

    for (int64_t i = 0; i < s->events; i++) {
        nap(PERIOD_NS);
        s->at[i] = gs_now();
        MUST(gs_chan_send(s->ch, NULL, GS_FOREVER));
    }
    return NULL;
}

static void *write_all(void *arg)
{
    struct source *s = arg;

    for (int64_t i = 0; i < s->events; i++) {
        nap(PERIOD_NS);
        s->at[i] = gs_now();
        CHECK(write(s->socket[1], "", 1) == 1);
    }
    return NULL;
}

static void *release_all(void *arg)
{
    struct source *s = arg;

    for (int64_t i = 0; i < s->events; i++) {
        nap(PERIOD_NS);
        s->at[i] = gs_now();
        MUST(gs_sem_release(&s->sem, 1));
    }
    return NULL;
}

static void receive(struct source *s)
{
    MUST(gs_chan_recv(s->ch, NULL, GS_FOREVER));
}

static void read_one(struct source *s)
{
    char byte;
    CHECK(gs_read(s->socket[0], &byte, 1, GS_FOREVER) == 1);
}

static void acquire(struct source *s)
{
    MUST(gs_sem_acquire(&s->sem, 1, GS_FOREVER));
}

static const struct event {
    const char *name;
    void *(*happen)(void *source); /* on a plain thread; NULL: a timer */
    void (*wait)(struct source *);
} events[] = {
    {"timer", NULL, NULL},
    {"channel", send_all, receive},
    {"socket", write_all, read_one},
    {"semaphore", release_all, acquire},
};

static void wait_for_events(const struct event *event, int64_t *late, int64_t n)
{
    struct source s = {.events = n, .at = new_array(n, sizeof *s.at), .ch = new_chan(0, (size_t)n)};
    pthread_t thread;

    MUST(gs_sem_init(&s.sem, 0));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s.socket) == 0);
    if (event->happen != NULL)
        CHECK(pthread_create(&thread, NULL, event->happen, &s) == 0);
    for (int64_t i = 0; i < n; i++) {
        if (event->happen == NULL) {
            s.at[i] = gs_now() + PERIOD_NS;
            MUST(gs_sleep(PERIOD_NS));
        } else {
            event->wait(&s);
        }
        late[i] = gs_now() - s.at[i];
        CHECK(late[i] >= 0);
    }
    if (event->happen != NULL)
        CHECK(pthread_join(thread, NULL) == 0);
    MUST(gs_close(s.socket[0]));
    CHECK(close(s.socket[1]) == 0);
    MUST(gs_chan_free(s.ch));
    free(s.at);
}

/* Waits for n events, or sleeps as long without one; gives how many rounds all loops made in a second meanwhile. */
static double rounds_a_second(atomic_uint_fast64_t *counts, int loops, const struct event *event, int64_t *late,
                              int64_t n)
{
    int64_t began = gs_now(), rounds = 0;

    for (int i = 0; i < loops; i++)
        rounds -= (int64_t)atomic_load_explicit(&counts[8 * i], memory_order_relaxed);
    if (event == NULL)
        MUST(gs_sleep(n * PERIOD_NS));
    else
        wait_for_events(event, late, n);
    for (int i = 0; i < loops; i++)
        rounds += (int64_t)atomic_load_explicit(&counts[8 * i], memory_order_relaxed);
    return (double)rounds * 1e9 / (double)(gs_now() - began);
}

static void measure(const struct background *background, const struct event *event, int64_t n)
{
    int procs = MUST(gs_gomaxprocs(0)), goroutines = background->run ? 2 * procs : 0;
    gs_g **gs = new_array(goroutines + 1, sizeof(gs_g *));
    gs_chan **pairs = new_array(2 * (int64_t)goroutines + 1, sizeof(gs_chan *));
    /* A cache line for each. */
    atomic_uint_fast64_t *counts = new_array(8 * (int64_t)goroutines + 1, sizeof *counts);
    int64_t *late = new_array(n, sizeof *late);
    bool plays_ball = background->run == plays;
    double alone = 0, beside = 0; /* the loops' rounds in a second */
    char p50[64], p99[64], max[64];

    atomic_store(&over, false);
    for (int i = 0; i < goroutines; i++) {
        void *arg = &counts[8 * i];
        if (plays_ball) {
            /* Two goroutines for two channels, which they use the other way round. */
            int even = i & ~1;
            if (i == even)
                for (int j = 0; j < 2; j++)
                    pairs[2 * even + j] = pairs[2 * even + 3 - j] = new_chan(0, 0);
            arg = &pairs[2 * i];
        }
        MUST(gs_spawn_with(background->run, arg, NULL, &gs[i]));
    }
    for (int i = 0; plays_ball && i < goroutines; i += 2)
        MUST(gs_chan_send(pairs[2 * i], NULL, GS_FOREVER));

    if (background->run == loop)
        alone = rounds_a_second(counts, goroutines, NULL, NULL, n / 2 + 1);
    beside = rounds_a_second(counts, goroutines, event, late, n);
    if (background->run == loop)
        alone = (alone + rounds_a_second(counts, goroutines, NULL, NULL, n / 2 + 1)) / 2;

    atomic_store(&over, true);
    for (int i = 0; plays_ball && i < goroutines; i += 2)
        for (int j = 0; j < 2; j++)
            MUST(gs_chan_close(pairs[2 * i + j]));
    for (int i = 0; i < goroutines; i++) {
        MUST(gs_join(gs[i], GS_FOREVER));
        gs_release(gs[i]);
    }
    for (int i = 0; plays_ball && i < goroutines; i += 2)
        for (int j = 0; j < 2; j++)
            MUST(gs_chan_free(pairs[2 * i + j]));

    snprintf(p50, sizeof p50, "latency.%s_%s_p50", background->name, event->name);
    snprintf(p99, sizeof p99, "latency.%s_%s_p99", background->name, event->name);
    snprintf(max, sizeof max, "latency.%s_%s_max", background->name, event->name);
    report_late(late, n, p50, p99, 1e3, "us");
    report(max, (double)late[n - 1] / 1e3, "us");
    if (background->run == loop) {
        snprintf(max, sizeof max, "latency.%s_%s_share", background->name, event->name);
        report(max, 100 * beside / alone, "%");
    }
    free(gs);
    free(pairs);
    free(counts);
    free(late);
}

/* Which cells: GOSBENCH_LATENCY is a word that their names, BACKGROUND_EVENT, contain; all if it isn't set. */
void latency(int64_t n)
{
    const char *only = getenv("GOSBENCH_LATENCY");

    for (size_t b = 0; b < sizeof backgrounds / sizeof backgrounds[0]; b++)
        for (size_t e = 0; e < sizeof events / sizeof events[0]; e++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%s", backgrounds[b].name, events[e].name);
            if (only == NULL || strstr(name, only) != NULL)
                measure(&backgrounds[b], &events[e], n);
        }
}
