/* Chaos in bubbles (gs_test_explore): short rounds that a seed decides, so that each can be had again. */
#include "chaos.h"

#include <fcntl.h>

gs_test_net net_faults;

/* What a seed says of its round. */
struct conditions {
    gs_test_opts opts;
    int actors, operations; /* of each actor */
};

static struct actor dice; /* no actor: random numbers of the round */

static uint32_t one_of(const uint32_t *values, int n)
{
    return values[rnd(&dice, n)];
}

static struct conditions conditions_of(uint64_t of_seed)
{
    static const uint32_t cancels[] = {0, 0, 5, 50}, refusals[] = {0, 0, 5, 100};
    static const uint32_t seldom[] = {0, 2, 10}, often[] = {0, 20, 200};
    static const int64_t jitters[] = {0, 0, 50 * US, 30 * MS};
    struct conditions c = {.opts = {.size = sizeof c.opts, .seed = of_seed, .max_steps = 20000}};
    gs_test_opts *o = &c.opts;
    int schedule;
    dice.rng = of_seed * 0x9e3779b97f4a7c15ULL + 99;
    rnd32(&dice), rnd32(&dice);
    schedule = rnd(&dice, 8);
    o->schedule = schedule < 3 ? GS_TEST_RANDOM : schedule == 3 ? GS_TEST_ROUND_ROBIN : GS_TEST_PCT;
    o->depth = (uint32_t)(schedule < 4 ? 0 : schedule - 2); /* 2 to 5 */
    o->check = one_in(&dice, 4) ? sync_check : NULL;
    o->flags = one_in(&dice, 16) || getenv("CHAOS_STRICT") ? GS_TEST_STRICT : 0;
    o->cancel = one_of(cancels, LENGTH(cancels));
    o->no_memory = one_of(refusals, LENGTH(refusals));
    o->net.delay = one_in(&dice, 3) ? rnd(&dice, 5000) * US : 0;
    o->net.jitter = jitters[rnd(&dice, LENGTH(jitters))];
    if (one_in(&dice, 2)) {
        o->net.loss = one_of(often, LENGTH(often));
        o->net.duplicate = one_of(often, LENGTH(often));
        o->net.cut = one_of(seldom, LENGTH(seldom));
        o->net.reset = one_of(seldom, LENGTH(seldom));
        o->net.refuse = one_of(often, LENGTH(often));
        o->net.short_io = one_of(often, LENGTH(often));
    }
    c.actors = 1 + rnd(&dice, 8);
    c.operations = 1 + rnd(&dice, 12);
    return c;
}

static void say_conditions(const struct conditions *c)
{
    const gs_test_opts *o = &c->opts;
    fprintf(stderr, "chaos: seed %llu: schedule %u, depth %u, %d actors with %d operations each, cancel %u, no_memory %u\n"
            "  net: delay %lld, jitter %lld, loss %u, duplicate %u, cut %u, reset %u, refuse %u, short_io %u\n",
            (unsigned long long)o->seed, o->schedule, o->depth, c->actors, c->operations, o->cancel, o->no_memory,
            (long long)o->net.delay, (long long)o->net.jitter, o->net.loss, o->net.duplicate, o->net.cut, o->net.reset,
            o->net.refuse, o->net.short_io);
}

void until_it_waits(const gs_g *g)
{
    gs_g_info info;
    do {
        gs_yield();
        MUST_BE(gs_g_info_read(g, &info, sizeof info), 0);
    } while (info.state != GS_G_WAITING && info.state != GS_G_ENDED);
}

static void bubble_body(void *conditions)
{
    const struct conditions *c = conditions;
    struct actor *a;
    int64_t pause = MS;
    forget_actors();
    sched_begin(), sync_begin(), chan_begin(), time_begin(), calls_begin(), files_begin(), net_begin();
    for (int i = 0; i < c->actors; i++) {
        gs_g *g = NULL;
        MUST((a = new_actor(true, 0, (uint64_t)i)) != NULL);
        a->steps = c->operations;
        MUST_BE(AGAIN(gs_spawn_with(actor_body, a, NULL, i % 3 ? &g : NULL)), 0);
        gs_release(g);
    }
    /* This one, and the one that accepts connections. */
    for (; gs_num_goroutines() > 2; pause += pause / 4)
        (void)gs_sleep(pause);
    net_end(), files_end(), calls_end(), time_end(), chan_end(), sync_end(), sched_end();
}

/* CHAOS_LOG: a file to which the events of all rounds are appended. */
static int open_log(void)
{
    const char *path = getenv("CHAOS_LOG");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : 0;
    if (fd >= 0)
        return fd;
    fprintf(stderr, "chaos: CHAOS_LOG=%s: %s\n", path, strerror(errno));
    exit(2);
}

static void say_how_to_repeat(uint64_t at)
{
    fprintf(stderr, "chaos: repeat with:");
    for (const char *const *v = (const char *const[]){"GOSCHED_DEBUG", "CHAOS_ONLY", "CHAOS_WITHOUT", NULL}; *v; v++)
        if (getenv(*v))
            fprintf(stderr, " %s='%s'", *v, getenv(*v));
    fprintf(stderr, " chaos --bubble %llu 1, and with GOSCHED_TEST=replay=... for the shortest schedule\n",
            (unsigned long long)at);
}

int run_in_bubbles(uint64_t first, uint64_t runs)
{
    int log = open_log();
    for (uint64_t at = first; at < first + runs; at++) {
        struct conditions c = conditions_of(at);
        int64_t r;
        seed = at;
        net_faults = c.opts.net;
        memory_is_refused = c.opts.no_memory > 0;
        c.opts.log = log;
        /* Said before, because a crash ends the process in gs_test_explore. */
        if (runs == 1)
            say_conditions(&c);
        r = log ? gs_test_run(bubble_body, &c, &c.opts) : gs_test_explore(bubble_body, &c, &c.opts, 1);
        if (r >= 0)
            continue;
        fprintf(stderr, "chaos: WRONG: seed %llu gives %lld (%s)\n", (unsigned long long)at, (long long)r,
                gs_strerror((int)r));
        say_conditions(&c);
        say_who_is_left();
        say_how_to_repeat(at);
        return 1;
    }
    printf("ok chaos --bubble: seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)(first + runs - 1));
    return 0;
}
