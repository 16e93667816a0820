/*
 * gang: 4 goroutines in a ring exchange messages beside 64 that compute without a break, once as a gang and once not.
 * COUNT is how long each takes, in ms. The others' share is what they computed beside the gang, of what they compute
 * when they are alone for as long.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { MEMBERS = 4, OTHERS = 64 };

static atomic_bool members_stop, others_stop;

struct other {
    _Alignas(128) atomic_long done;
};

struct member {
    _Alignas(128) gs_chan *in, *out;
    int64_t exchanges;
};

static void compute(void *arg)
{
    struct other *self = arg;
    while (!atomic_load_explicit(&others_stop, memory_order_relaxed)) {
        for (volatile int i = 0; i < 1000; i++)
            ;
        atomic_store_explicit(&self->done, self->done + 1, memory_order_relaxed);
    }
}

/* The first one to stop closes its channel, and the others see that one by one. */
static void exchange(void *arg)
{
    struct member *self = arg;
    int64_t value = 0;
    while (!members_stop && gs_chan_send(self->out, &value, GS_FOREVER) == 0 &&
           gs_chan_recv(self->in, &value, GS_FOREVER) == 0)
        self->exchanges++;
    (void)gs_chan_close(self->out);
    (void)gs_chan_close(self->in);
}

static long done_by(struct other *others)
{
    long sum = 0;
    for (int i = 0; i < OTHERS; i++)
        sum += others[i].done;
    return sum;
}

/* Gives us for an exchange; *others_did is what the others did meanwhile. */
static double exchange_beside_others(gs_gang *gang, int64_t ms, struct other *others, double *others_did)
{
    struct member members[MEMBERS] = {0};
    gs_chan *ring[MEMBERS];
    gs_g *gs[MEMBERS];
    int64_t exchanges = 0;

    for (int i = 0; i < MEMBERS; i++)
        ring[i] = new_chan(sizeof(int64_t), 1);
    members_stop = false;
    long before = done_by(others);
    int64_t start = gs_now();
    for (int i = 0; i < MEMBERS; i++) {
        members[i].in = ring[i];
        members[i].out = ring[(i + 1) % MEMBERS];
        MUST(gang ? gs_gang_spawn(gang, exchange, &members[i], NULL, &gs[i])
                  : gs_spawn_with(exchange, &members[i], NULL, &gs[i]));
    }
    MUST(gs_sleep(ms * 1000000));
    double took = ms_since(start);
    *others_did = (double)(done_by(others) - before) / took;
    for (int i = 0; i < MEMBERS; i++)
        exchanges += members[i].exchanges;
    members_stop = true;
    for (int i = 0; i < MEMBERS; i++) {
        MUST(gs_join(gs[i], GS_FOREVER));
        gs_release(gs[i]);
    }
    for (int i = 0; i < MEMBERS; i++)
        MUST(gs_chan_free(ring[i]));
    CHECK(exchanges >= MEMBERS);
    return took * 1e3 * MEMBERS / (double)exchanges;
}

void gang(int64_t ms)
{
    struct other *others = new_array(OTHERS, sizeof *others);
    gs_gang *gang = gs_gang_create();
    gs_g *gs[OTHERS];
    double beside, alone;

    others_stop = false;
    for (int i = 0; i < OTHERS; i++)
        MUST(gs_spawn_with(compute, &others[i], NULL, &gs[i]));
    MUST(gs_sleep(ms * 1000000));
    long before = done_by(others);
    int64_t start = gs_now();
    MUST(gs_sleep(ms * 1000000));
    alone = (double)(done_by(others) - before) / ms_since(start);
    report("gang.none", exchange_beside_others(NULL, ms, others, &beside), "us");
    report("gang", exchange_beside_others(gang, ms, others, &beside), "us");
    report("gang.others", 100 * beside / alone, "%");
    others_stop = true;
    for (int i = 0; i < OTHERS; i++) {
        MUST(gs_join(gs[i], GS_FOREVER));
        gs_release(gs[i]);
    }
    gs_gang_free(gang);
    free(others);
}
