/*
 * No goroutine starves: goroutines that hand over to each other, spawn each other or yield for ever leave
 * room for a third, however that one becomes runnable. Each test hangs when there is starvation.
 * seed: N5 (a pop from the other end once in a while), W1 (the global queue on 1 of 61 ticks)
 */
#include "check.h"

static int stop;

static void say_stop(void *arg)
{
    (void)arg;
    SET(stop, 1);
}

/* ---- Kinds of noise: each keeps every P busy until stop is set ---- */

struct pair {
    gs_chan *there, *back;
};

static void ping(void *arg)
{
    struct pair *p = arg;
    while (!GET(stop)) {
        send_int(p->there, 1);
        (void)recv_int(p->back);
    }
    CHECK_EQ(gs_chan_close(p->there), 0);
}

static void pong(void *arg)
{
    struct pair *p = arg;
    int64_t v;
    while (gs_chan_recv(p->there, &v, GS_FOREVER) == 0)
        send_int(p->back, v);
}

static void yield_for_ever(void *arg)
{
    (void)arg;
    YIELD_UNTIL(GET(stop));
}

/* Each one spawns the next and ends: the newest is always the first to run. */
static gs_waitgroup chains;

static void spawn_the_next(void *arg)
{
    if (GET(stop))
        CHECK_EQ(gs_waitgroup_done(&chains), 0);
    else
        go(spawn_the_next, arg);
}

static void sem_ping(void *arg)
{
    gs_sem *s = arg;
    while (!GET(stop)) {
        CHECK_EQ(gs_sem_release(&s[0], 1), 0);
        CHECK_EQ(gs_sem_acquire(&s[1], 1, GS_FOREVER), 0);
    }
    CHECK_EQ(gs_sem_release(&s[0], 2), 0);
}

static void sem_pong(void *arg)
{
    gs_sem *s = arg;
    do {
        CHECK_EQ(gs_sem_acquire(&s[0], 1, GS_FOREVER), 0);
        CHECK_EQ(gs_sem_release(&s[1], 1), 0);
    } while (!GET(stop));
    CHECK_EQ(gs_sem_release(&s[1], 1), 0); /* the other may have asked once more */
}

#define MAX_NOISE 32

struct noise {
    struct pair pairs[MAX_NOISE];
    gs_sem sems[MAX_NOISE][2];
    gs_g *gs[4 * MAX_NOISE];
    int n, pairs_made;
};

static void add_noise(struct noise *x, gs_fn fn, void *arg)
{
    x->gs[x->n++] = go_ref(fn, arg);
}

static void make_pairs(struct noise *x, int procs)
{
    int i;
    for (i = 0; i < procs; i++) {
        x->pairs[i].there = chan_of_ints(0);
        x->pairs[i].back = chan_of_ints(0);
        add_noise(x, ping, &x->pairs[i]);
        add_noise(x, pong, &x->pairs[i]);
    }
    x->pairs_made = procs;
}

static void make_yielders(struct noise *x, int procs)
{
    int i;
    for (i = 0; i < 2 * procs; i++)
        add_noise(x, yield_for_ever, NULL);
}

static void make_chains(struct noise *x, int procs)
{
    int i;
    (void)x;
    CHECK_EQ(gs_waitgroup_add(&chains, procs), 0);
    for (i = 0; i < procs; i++)
        go(spawn_the_next, NULL);
}

static void make_sem_pairs(struct noise *x, int procs)
{
    int i;
    for (i = 0; i < procs; i++) {
        CHECK_EQ(gs_sem_init(&x->sems[i][0], 0), 0);
        CHECK_EQ(gs_sem_init(&x->sems[i][1], 0), 0);
        add_noise(x, sem_ping, x->sems[i]);
        add_noise(x, sem_pong, x->sems[i]);
    }
}

static void sleep_for_ever(void *arg)
{
    (void)arg;
    while (!GET(stop))
        CHECK_EQ(gs_sleep(300 * US), 0);
}

/* The sleepers run before the pairs' turns are over, so turns start over before they have lasted long. */
static void make_pairs_beside_sleepers(struct noise *x, int procs)
{
    int i;
    make_pairs(x, procs);
    for (i = 0; i < procs; i++)
        add_noise(x, sleep_for_ever, NULL);
}

static void end_noise(struct noise *x)
{
    int i;
    for (i = 0; i < x->n; i++)
        join(x->gs[i]);
    for (i = 0; i < x->pairs_made; i++) {
        free_chan(x->pairs[i].there);
        free_chan(x->pairs[i].back);
    }
    CHECK_EQ(gs_waitgroup_wait(&chains, GS_FOREVER), 0);
}

/* ---- Ways in which the third becomes runnable ---- */

static gs_timer *timer;
static gs_chan *mailbox;
static pthread_t foreign;
static int has_foreign;

static void start_foreign(void *(*fn)(void *))
{
    foreign = start_thread(fn, NULL);
    has_foreign = 1;
}

static void end_third(void)
{
    if (has_foreign)
        go_join_thread(foreign);
    if (timer)
        CHECK_EQ(gs_timer_free(timer), 0);
    if (mailbox)
        free_chan(mailbox);
    has_foreign = 0;
    timer = NULL;
    mailbox = NULL;
}

static void third_is_spawned(void)
{
    go(say_stop, NULL);
}

static void yield_then_stop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 100; i++)
        gs_yield();
    SET(stop, 1);
}

static void third_yields(void)
{
    go(yield_then_stop, NULL);
}

static void sleep_then_stop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 5; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    SET(stop, 1);
}

static void third_sleeps(void)
{
    go(sleep_then_stop, NULL);
}

static void third_is_a_timer(void)
{
    timer = gs_timer_start(2 * MS, say_stop, NULL);
    CHECK(timer != NULL);
}

static void syscall_then_stop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 5; i++) {
        gs_entersyscall();
        nap(MS);
        gs_exitsyscall();
    }
    SET(stop, 1);
}

static void third_is_in_system_calls(void)
{
    go(syscall_then_stop, NULL);
}

static void *block_shortly(void *arg)
{
    nap(MS);
    return arg;
}

static void block_then_stop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 5; i++)
        (void)gs_blocking(block_shortly, NULL);
    SET(stop, 1);
}

static void third_uses_gs_blocking(void)
{
    go(block_then_stop, NULL);
}

static void *spawn_stop(void *arg)
{
    nap(2 * MS);
    go(say_stop, arg);
    return NULL;
}

static void third_is_spawned_by_a_foreign_thread(void)
{
    start_foreign(spawn_stop);
}

static void receive_then_stop(void *arg)
{
    (void)arg;
    (void)recv_int(mailbox);
    (void)recv_int(mailbox);
    SET(stop, 1);
}

static void *send_two(void *arg)
{
    send_int(mailbox, 1);
    send_int(mailbox, 2);
    return arg;
}

static void third_hears_from_a_foreign_thread(void)
{
    mailbox = chan_of_ints(0);
    go(receive_then_stop, NULL);
    start_foreign(send_two);
}

static void locked_then_stop(void *arg)
{
    int i;
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    for (i = 0; i < 20; i++)
        gs_yield();
    CHECK_EQ(gs_unlock_os_thread(), 0);
    SET(stop, 1);
}

static void third_is_locked_to_its_thread(void)
{
    go(locked_then_stop, NULL);
}

static void third_is_pinned(void)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_PINNED;
    CHECK_EQ(gs_spawn_with(yield_then_stop, NULL, &o, NULL), 0);
}

static void third_is_low(void)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.priority = GS_PRIO_LOW;
    CHECK_EQ(gs_spawn_with(yield_then_stop, NULL, &o, NULL), 0);
}

static void (*const thirds[])(void) = {
    third_is_spawned,
    third_yields,
    third_sleeps,
    third_is_a_timer,
    third_is_in_system_calls,
    third_uses_gs_blocking,
    third_is_spawned_by_a_foreign_thread,
    third_hears_from_a_foreign_thread,
    third_is_locked_to_its_thread,
    third_is_pinned,
    third_is_low,
};

static void against(void (*make)(struct noise *, int))
{
    int procs = gs_gomaxprocs(0);
    size_t i;
    CHECK_LE(procs, MAX_NOISE);
    for (i = 0; i < LENGTH(thirds); i++) {
        static struct noise x;
        memset(&x, 0, sizeof x);
        SET(stop, 0);
        snprintf(check_note, sizeof check_note, "third number %zu", i);
        thirds[i]();
        make(&x, procs);
        end_noise(&x);
        end_third();
    }
    check_note[0] = 0;
}

GO_TEST(ping_pong_over_channels_starves_no_third)
{
    against(make_pairs);
}

GO_TEST(ping_pong_that_sleepers_interrupt_starves_no_third)
{
    against(make_pairs_beside_sleepers);
}

GO_TEST(ping_pong_over_semaphores_starves_no_third)
{
    against(make_sem_pairs);
}

GO_TEST(yielding_goroutines_starve_no_third)
{
    against(make_yielders);
}

GO_TEST(a_chain_of_spawns_starves_no_third)
{
    against(make_chains);
}

/* ---- Progress of many ---- */

#define RUNNERS 100

static int turns[RUNNERS], first_done;

static void take_turns(void *arg)
{
    int *mine = arg, i;
    for (i = 0; i < 200; i++) {
        ADD(*mine, 1);
        gs_yield();
    }
    if (ADD(first_done, 1) > 1)
        return;
    for (i = 0; i < RUNNERS; i++)
        CHECK_GE(GET(turns[i]), 1); /* when the first has had 200 turns, each has had one */
}

static void run_runners(void *arg)
{
    gs_g *gs[RUNNERS];
    int i;
    (void)arg;
    SET(first_done, 0);
    for (i = 0; i < RUNNERS; i++)
        SET(turns[i], 0);
    for (i = 0; i < RUNNERS; i++)
        gs[i] = go_ref(take_turns, &turns[i]);
    for (i = 0; i < RUNNERS; i++)
        join(gs[i]);
}

GO_TEST(yield_serves_many_in_turn)
{
    int procs = gs_gomaxprocs(1);
    join(go_steady(run_runners, NULL));
    gs_gomaxprocs(procs);
}

/* A goroutine that waits for a lock gets it though others take it again and again. */
static gs_mutex hot;

static void take_hot(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        CHECK_EQ(gs_mutex_lock(&hot, GS_FOREVER), 0);
        gs_yield();
        CHECK_EQ(gs_mutex_unlock(&hot), 0);
    }
}

static void take_hot_ten_times(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 10; i++) {
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(gs_mutex_lock(&hot, GS_FOREVER), 0);
        CHECK_EQ(gs_mutex_unlock(&hot), 0);
    }
    SET(stop, 1);
}

GO_TEST(a_hot_mutex_starves_no_goroutine)
{
    gs_g *gs[8];
    int i;
    SET(stop, 0);
    for (i = 0; i < 8; i++)
        gs[i] = go_ref(take_hot, NULL);
    join(go_ref(take_hot_ten_times, NULL));
    for (i = 0; i < 8; i++)
        join(gs[i]);
}

/* ---- A P that was quick doesn't keep its goroutines for itself once it isn't quick any more ---- */

enum { SENDERS = 4, ITEMS = 20000 };
static gs_chan *lines[SENDERS];
static int inside, wanted;

/* Until there are two that compute at the same time, none of which gives its P up. */
static void compute_together(void)
{
    gs_preempt_disable();
    ADD(inside, 1);
    while (GET(inside) < wanted)
        continue;
    gs_preempt_enable();
}

static void send_many(void *arg)
{
    int i;
    for (i = 0; i < ITEMS; i++)
        send_int(*(gs_chan **)arg, i);
    compute_together();
}

GO_TEST(goroutines_that_were_quick_spread_once_they_compute)
{
    gs_g *gs[SENDERS];
    gs_case cases[SENDERS];
    int64_t items[SENDERS];
    int i, round;
    for (round = 0; round < 5; round++) {
        SET(inside, 0);
        wanted = gs_gomaxprocs(0) > 1 ? 2 : 1;
        for (i = 0; i < SENDERS; i++) {
            lines[i] = chan_of_ints(0);
            cases[i] = (gs_case){.ch = lines[i], .elem = &items[i], .op = GS_RECV};
            gs[i] = go_ref(send_many, &lines[i]);
        }
        for (i = 0; i < SENDERS * ITEMS; i++)
            CHECK_GE(gs_select(cases, SENDERS, GS_FOREVER), 0);
        for (i = 0; i < SENDERS; i++) {
            join(gs[i]);
            free_chan(lines[i]);
        }
    }
}

/* ---- Two pairs hand over to each other; one computes 1000 times longer between its messages ---- */

/* Go allows as much (TestPingPongHog): threads of other programs take part of either pair's time. */
enum { FACTOR = 20 };

struct player {
    gs_chan *ball;
    int64_t rounds; /* of computing, between two messages */
    int64_t *made;  /* by the pair */
};

static int over;

static void play(void *arg)
{
    struct player *p = arg;
    while (gs_chan_recv(p->ball, NULL, GS_FOREVER) == 0 && !GET(over)) {
        int64_t i;
        for (i = 0; i < p->rounds; i++)
            __atomic_store_n(p->made, *p->made + 1, __ATOMIC_RELAXED);
        if (gs_chan_send(p->ball, NULL, GS_FOREVER) < 0)
            break;
    }
    (void)gs_chan_close(p->ball);
}

GO_TEST(pairs_share_the_time_though_one_computes_longer_between_messages)
{
    int64_t hog = 0, light = 0, waited = 0;
    struct player players[] = {{gs_chan_make(0, 0), 1000000, &hog}, {gs_chan_make(0, 0), 1000, &light}};
    gs_g *gs[4];
    int i;
    over = 0;
    for (i = 0; i < 4; i++)
        gs[i] = go_ref(play, &players[i / 2]);
    for (i = 0; i < 2; i++)
        CHECK_EQ(gs_chan_send(players[i].ball, NULL, GS_FOREVER), 0);
    /* Until both have had many turns. */
    while (GET(hog) + GET(light) < 400 * 1000000) {
        gs_sleep(10 * MS);
        waited++;
    }
    CHECK_GE(waited, 1);
    CHECK_LE(GET(hog) / FACTOR, GET(light));
    CHECK_LE(GET(light) / FACTOR, GET(hog));
    SET(over, 1);
    for (i = 0; i < 4; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        free_chan(players[i].ball);
}
