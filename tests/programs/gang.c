/*
 * Gangs: whatever the members do, all members and all other goroutines make progress. Beside goroutines that compute,
 * a gang exchanges more messages between two turns of those goroutines than the same goroutines would without a gang.
 * seed: R1 (co-scheduling after Ousterhout's matrix)
 */
#include "check.h"

static gs_g *join_gang(gs_gang *gang, gs_fn fn, void *arg)
{
    gs_g *g = NULL;
    CHECK_EQ(gs_gang_spawn(gang, fn, arg, NULL, &g), 0);
    CHECK(g != NULL);
    return g;
}

static gs_gang *new_gang(void)
{
    gs_gang *gang = gs_gang_create();
    CHECK(gang != NULL);
    return gang;
}

/* ---- Others that compute until they are told to stop, and count their turns ---- */

#define OTHERS 6

static int stop, last_turn;
static long turns[OTHERS];
static gs_g *others[OTHERS];

static void compute(void *arg)
{
    int i = (int)(intptr_t)arg;
    while (!GET(stop))
        if (__atomic_exchange_n(&last_turn, i, __ATOMIC_SEQ_CST) != i)
            ADD(turns[i], 1);
}

static void start_others(int n)
{
    int i;
    SET(stop, 0);
    memset(turns, 0, sizeof turns);
    for (i = 0; i < n; i++)
        others[i] = go_ref(compute, (void *)(intptr_t)i);
}

static void stop_others(int n)
{
    int i;
    SET(stop, 1);
    for (i = 0; i < n; i++)
        join(others[i]);
}

/* ---- A ring of members that pass messages on ---- */

#define MEMBERS 4

struct ring {
    gs_chan *ch[MEMBERS];
    long rounds;
    int ended;
};

struct place {
    struct ring *ring;
    int at;
};

static void exchange(void *arg)
{
    struct place *me = arg;
    struct ring *ring = me->ring;
    int64_t i;
    for (i = 0; i < ring->rounds; i++) {
        send_int(ring->ch[(me->at + 1) % MEMBERS], i);
        CHECK_EQ(recv_int(ring->ch[me->at]), i);
    }
    ADD(ring->ended, 1);
}

/* Spawned in a gang, or without one. */
static void run_ring(gs_gang *gang, long rounds)
{
    struct ring ring = {.rounds = rounds};
    struct place places[MEMBERS];
    gs_g *gs[MEMBERS];
    int i;
    for (i = 0; i < MEMBERS; i++)
        ring.ch[i] = chan_of_ints(1);
    for (i = 0; i < MEMBERS; i++) {
        places[i] = (struct place){&ring, i};
        gs[i] = gang ? join_gang(gang, exchange, &places[i]) : go_ref(exchange, &places[i]);
    }
    for (i = 0; i < MEMBERS; i++) {
        join(gs[i]);
        free_chan(ring.ch[i]);
    }
    CHECK_EQ(ring.ended, MEMBERS);
}

/* ---- Misuse ---- */

static void nothing(void *arg)
{
    (void)arg;
}

GO_TEST(what_is_wrong_is_EINVAL)
{
    gs_gang *gang = new_gang();
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *g = gs_self();
    CHECK_EQ(gs_gang_spawn(NULL, nothing, NULL, NULL, &g), -EINVAL);
    CHECK(g == NULL);
    g = gs_self();
    CHECK_EQ(gs_gang_spawn(gang, NULL, NULL, NULL, &g), -EINVAL);
    CHECK(g == NULL);
    o.priority = GS_PRIO_HIGH;
    CHECK_EQ(gs_gang_spawn(gang, nothing, NULL, &o, NULL), -EINVAL);
    o.priority = GS_PRIO_NORMAL;
    o.node = 0;
    CHECK_EQ(gs_gang_spawn(gang, nothing, NULL, &o, NULL), -EINVAL);
    o.node = -1;
    o.flags = 1u << 31;
    CHECK_EQ(gs_gang_spawn(gang, nothing, NULL, &o, NULL), -EINVAL);
    o.flags = 0;
    CHECK_EQ(gs_gang_spawn(gang, nothing, NULL, &o, NULL), 0);
    gs_gang_free(gang);
    gs_gang_free(NULL);
}

/* ---- All get on ---- */

GO_TEST(a_gang_alone)
{
    gs_gang *gang = new_gang();
    run_ring(gang, 2000);
    run_ring(gang, 1);
    gs_gang_free(gang);
}

TEST(a_gang_of_a_plain_thread)
{
    gs_gang *gang = new_gang();
    run_ring(gang, 100);
    gs_gang_free(gang);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    gang = new_gang();
    run_ring(gang, 100); /* in the next runtime */
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    run_ring(gang, 100);
    gs_gang_free(gang);
}

GO_TEST(a_gang_beside_others)
{
    gs_gang *gang = new_gang();
    int i;
    start_others(OTHERS);
    run_ring(gang, 3000);
    for (i = 0; i < OTHERS; i++)
        WAIT_UNTIL(GET(turns[i]) > 0);
    stop_others(OTHERS);
    gs_gang_free(gang);
}

/* Of three gangs at most one or two fit in side by side. */
static void one_gang(void *gang)
{
    run_ring(gang, 500);
}

GO_TEST(several_gangs_beside_others)
{
    gs_gang *gangs[3];
    gs_g *gs[3];
    size_t i;
    start_others(3);
    for (i = 0; i < LENGTH(gangs); i++) {
        gangs[i] = new_gang();
        gs[i] = go_ref(one_gang, gangs[i]);
    }
    for (i = 0; i < LENGTH(gangs); i++) {
        join(gs[i]);
        gs_gang_free(gangs[i]);
    }
    stop_others(3);
}

/* Members that never wait nor call anything, and others that do the same: each has its turns. */
#define STEPS 8

static long steps[STEPS];

static void step(void *at)
{
    while (!GET(stop))
        ADD(steps[(intptr_t)at], 1);
}

GO_TEST(members_that_only_compute_share_with_others_that_do)
{
    gs_gang *gang = new_gang();
    gs_g *gs[MEMBERS];
    long before;
    int i, round;
    memset(steps, 0, sizeof steps);
    start_others(OTHERS);
    for (i = 0; i < MEMBERS; i++)
        gs[i] = join_gang(gang, step, (void *)(intptr_t)i);
    gs_gang_free(gang); /* they stay a gang */
    for (round = 0; round < 2; round++) {
        for (i = 0; i < MEMBERS; i++) {
            before = GET(steps[i]);
            WAIT_UNTIL(GET(steps[i]) > before);
        }
        for (i = 0; i < OTHERS; i++) {
            before = GET(turns[i]);
            WAIT_UNTIL(GET(turns[i]) > before);
        }
    }
    stop_others(OTHERS);
    for (i = 0; i < MEMBERS; i++)
        join(gs[i]);
}

/* Members do everything that goroutines do. */
static gs_mutex mutex;
static int sum;

static void do_everything(void *arg)
{
    int64_t byte = 0;
    int fds[2], i;
    gs_g *g;
    (void)arg;
    CHECK_EQ(pipe(fds), 0);
    for (i = 0; i < 5; i++) {
        CHECK_EQ(gs_sleep(200 * US), 0);
        gs_yield();
        CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
        sum++;
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
        CHECK_EQ(gs_entersyscall(), 0);
        nap(300 * US);
        CHECK_EQ(gs_exitsyscall(), 0);
        gs_lock_os_thread();
        gs_yield();
        CHECK_EQ(gs_unlock_os_thread(), 0);
        g = go_ref(nothing, NULL);
        join(g);
        CHECK_EQ(write(fds[1], &byte, 1), 1);
        CHECK_EQ(gs_read(fds[0], &byte, 1, GS_FOREVER), 1);
    }
    nap(2 * MS); /* unannounced */
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
    if ((intptr_t)arg % 2)
        gs_exit();
}

static void all_do_everything(const gs_spawn_opts *opts)
{
    gs_gang *gang = new_gang();
    gs_g *gs[12];
    size_t i;
    sum = 0;
    for (i = 0; i < LENGTH(gs); i++)
        CHECK_EQ(gs_gang_spawn(gang, do_everything, (void *)i, i % 3 ? NULL : opts, &gs[i]), 0);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
    gs_gang_free(gang);
    CHECK_EQ(sum, 5 * (int)LENGTH(gs));
}

GO_TEST(members_do_everything)
{
    start_others(2);
    all_do_everything(NULL);
    stop_others(2);
}

/* Not beside the others: a goroutine that never calls the library keeps its thread from those pinned to it. */
GO_TEST(members_may_be_pinned)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_PINNED;
    all_do_everything(&o);
}

/* P's come and go, and the world is stopped, in the middle of turns. */
GO_TEST(gangs_while_the_number_of_ps_changes)
{
    int procs = gs_gomaxprocs(0), i;
    gs_gang *gang = new_gang();
    gs_g *gs[3];
    start_others(4);
    for (i = 0; i < 3; i++)
        gs[i] = go_ref(one_gang, gang);
    for (i = 0; i < 30; i++) {
        CHECK_GE(gs_gomaxprocs(1 + i % 5), 1);
        CHECK_EQ(gs_sleep(MS), 0);
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_start_the_world(), 0);
    }
    for (i = 0; i < 3; i++)
        join(gs[i]);
    stop_others(4);
    gs_gomaxprocs(procs);
    gs_gang_free(gang);
}

static void wait_for_ever(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
}

GO_TEST(members_are_cancelled_like_others)
{
    gs_gang *gang = new_gang();
    gs_g *gs[8];
    size_t i;
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = join_gang(gang, wait_for_ever, NULL);
    gs_yield();
    for (i = 0; i < LENGTH(gs); i++)
        CHECK_EQ(gs_cancel(gs[i]), 0);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
    gs_gang_free(gang);
}

/* The memory of a gang is used again, maybe while a P still knows the old one. */
static void begin_gangs(void *arg)
{
    gs_g *gs[2];
    int i, k;
    (void)arg;
    for (i = 0; i < 200; i++) {
        gs_gang *gang = new_gang();
        for (k = 0; k < 2; k++)
            gs[k] = join_gang(gang, nothing, NULL);
        if (i % 2)
            gs_gang_free(gang);
        for (k = 0; k < 2; k++)
            join(gs[k]);
        if (i % 2 == 0)
            gs_gang_free(gang);
    }
}

GO_TEST(gangs_come_and_go)
{
    gs_g *gs[4];
    size_t i;
    start_others(2);
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = go_ref(begin_gangs, NULL);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
    stop_others(2);
}

static void add_to(void *count)
{
    ADD(*(int *)count, 1);
}

/* Each gang that ended was looked for among all others: the time grew with the square of their number. */
TEST(many_gangs_at_a_time)
{
    enum { GANGS = 50000 };
    int ran = 0;
    for (int i = 0; i < GANGS; i++) {
        gs_gang *gang = new_gang();
        for (int k = 0; k < 2; k++)
            CHECK_EQ(gs_gang_spawn(gang, add_to, &ran, NULL, NULL), 0);
        gs_gang_free(gang);
    }
    NAP_UNTIL(GET(ran) == 2 * GANGS);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- A member leaves its P without a decision there; a plain thread makes one ready ---- */

static void receive_two(void *ch)
{
    (void)recv_int(ch);
    (void)recv_int(ch);
}

static void receive_two_locked(void *ch)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
    receive_two(ch);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

/* Each time when all P's have long been idle. */
static void send_two_late(gs_chan *ch)
{
    nap(20 * MS);
    send_int(ch, 1);
    nap(20 * MS);
    send_int(ch, 2);
}

TEST(a_member_that_is_locked_to_its_thread_is_woken)
{
    gs_gang *gang = new_gang();
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = join_gang(gang, receive_two_locked, ch);
    send_two_late(ch);
    join(g);
    free_chan(ch);
    gs_gang_free(gang);
}

static void call_until_stopped(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_entersyscall(), 0);
    NAP_UNTIL(GET(stop));
    CHECK_EQ(gs_exitsyscall(), 0);
}

TEST(a_member_is_woken_while_another_is_in_a_system_call)
{
    int procs = gs_gomaxprocs(1);
    gs_gang *gang = new_gang();
    gs_chan *ch = chan_of_ints(0);
    gs_g *receiver = join_gang(gang, receive_two, ch), *caller;
    SET(stop, 0);
    nap(20 * MS);
    caller = join_gang(gang, call_until_stopped, NULL);
    nap(20 * MS);
    send_two_late(ch);
    join(receiver);
    SET(stop, 1);
    join(caller);
    free_chan(ch);
    gs_gang_free(gang);
    gs_gomaxprocs(procs);
}

/* ---- Members are ready, and P's idle that are not the gang's ---- */

TEST(a_gang_that_has_grown_in_its_turn_runs_on_idle_ps)
{
    int procs = gs_gomaxprocs(4);
    gs_gang *gang = new_gang();
    gs_chan *ch = chan_of_ints(0);
    gs_g *receiver = join_gang(gang, receive_two, ch), *computes;
    SET(stop, 0);
    nap(20 * MS);
    memset(steps, 0, sizeof steps);
    computes = join_gang(gang, step, (void *)0);
    NAP_UNTIL(GET(steps[0]) > 0);
    send_two_late(ch);
    join(receiver);
    SET(stop, 1);
    join(computes);
    free_chan(ch);
    gs_gang_free(gang);
    gs_gomaxprocs(procs);
}

TEST(a_member_does_not_wait_for_one_that_never_gives_way_if_a_p_is_idle)
{
    int procs = gs_gomaxprocs(2), i;
    gs_gang *gang = new_gang();
    gs_chan *ch = chan_of_ints(0);
    gs_g *receiver, *computes;
    for (i = 0; i < 8; i++) {
        SET(stop, 0);
        receiver = join_gang(gang, receive_two, ch);
        nap(20 * MS);
        computes = go_steady(compute, (void *)0);
        send_two_late(ch);
        join(receiver);
        SET(stop, 1);
        join(computes);
    }
    free_chan(ch);
    gs_gang_free(gang);
    gs_gomaxprocs(procs);
}

/* ---- Every goroutine has a turn beside a gang that always has members to run ---- */

static void yield_on(void *at)
{
    while (!GET(stop)) {
        ADD(steps[(intptr_t)at], 1);
        gs_yield();
    }
}

static void wait_for_steps(int from, int to)
{
    long before;
    int i;
    for (i = from; i < to; i++) {
        before = GET(steps[i]);
        NAP_UNTIL(GET(steps[i]) > before);
    }
}

static int others_stop;

static void step_of_another(void *at)
{
    while (!GET(others_stop))
        ADD(steps[(intptr_t)at], 1);
}

/* It has all of the P's as its columns, which it gets only in a turn that begins when it is whole. */
static void begin_whole_gang(gs_gang *gang, gs_g **gs, int n, gs_fn fn)
{
    gs_g *computes[2];
    int i;
    memset(steps, 0, sizeof steps);
    SET(stop, 0);
    SET(others_stop, 0);
    for (i = 0; i < 2; i++)
        computes[i] = go_ref(step_of_another, (void *)(intptr_t)(STEPS - 1 - i));
    for (i = 0; i < n; i++)
        gs[i] = join_gang(gang, fn, (void *)(intptr_t)i);
    for (i = 0; i < 3; i++) {
        wait_for_steps(0, n);
        wait_for_steps(STEPS - 2, STEPS);
    }
    SET(others_stop, 1);
    for (i = 0; i < 2; i++)
        join(computes[i]);
    nap(50 * MS);
}

static void end_gang(gs_gang *gang, gs_g **gs, int n)
{
    int i;
    SET(stop, 1);
    for (i = 0; i < n; i++)
        join(gs[i]);
    gs_gang_free(gang);
}

TEST(those_of_low_priority_run_now_and_then)
{
    int procs = gs_gomaxprocs(2);
    gs_gang *gang = new_gang();
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *gs[4], *low;
    begin_whole_gang(gang, gs, LENGTH(gs), yield_on);
    o.priority = GS_PRIO_LOW;
    low = go_opts(yield_on, (void *)4, &o);
    wait_for_steps(0, 5);
    wait_for_steps(0, 5);
    end_gang(gang, gs, LENGTH(gs));
    join(low);
    gs_gomaxprocs(procs);
}

static void echo(void *arg)
{
    gs_chan **ch = arg;
    int64_t v;
    do {
        v = recv_int(ch[0]);
        send_int(ch[1], v);
    } while (v >= 0);
}

TEST(members_that_are_pinned_have_their_turns)
{
    int procs = gs_gomaxprocs(2), i;
    gs_gang *gang = new_gang();
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_chan *ch[4][2];
    gs_g *gs[4], *pinned[4];
    o.flags = GS_SPAWN_PINNED;
    for (i = 0; i < 4; i++) {
        ch[i][0] = chan_of_ints(1);
        ch[i][1] = chan_of_ints(1);
        CHECK_EQ(gs_gang_spawn(gang, echo, ch[i], &o, &pinned[i]), 0);
    }
    begin_whole_gang(gang, gs, LENGTH(gs), yield_on);
    for (i = 0; i < 204; i++) {
        send_int(ch[i % 4][0], i < 200 ? i : -1);
        CHECK_EQ(recv_int(ch[i % 4][1]), i < 200 ? i : -1);
    }
    end_gang(gang, gs, LENGTH(gs));
    for (i = 0; i < 4; i++) {
        join(pinned[i]);
        free_chan(ch[i][0]);
        free_chan(ch[i][1]);
    }
    gs_gomaxprocs(procs);
}

TEST(members_that_only_compute_share_a_p)
{
    int procs = gs_gomaxprocs(1), i;
    gs_gang *gang = new_gang();
    gs_g *gs[4];
    SET(stop, 0);
    memset(steps, 0, sizeof steps);
    for (i = 0; i < 4; i++)
        gs[i] = join_gang(gang, step, (void *)(intptr_t)i);
    for (i = 0; i < 3; i++)
        wait_for_steps(0, 4);
    end_gang(gang, gs, LENGTH(gs));
    gs_gomaxprocs(procs);
}

/* Two gangs that fit in side by side, a gang that only fits in alone, and others. */
TEST(a_wide_gang_has_its_turn_beside_narrow_ones)
{
    int procs = gs_gomaxprocs(2), i;
    gs_gang *gangs[3];
    gs_g *gs[6];
    SET(stop, 0);
    memset(steps, 0, sizeof steps);
    for (i = 0; i < 3; i++)
        gangs[i] = new_gang();
    for (i = 0; i < 2; i++)
        gs[i] = go_ref(step, (void *)(intptr_t)i);
    for (i = 2; i < 6; i++)
        gs[i] = join_gang(gangs[i < 4 ? i - 2 : 2], step, (void *)(intptr_t)i);
    for (i = 0; i < 3; i++)
        wait_for_steps(0, 6);
    SET(stop, 1);
    for (i = 0; i < 6; i++)
        join(gs[i]);
    for (i = 0; i < 3; i++)
        gs_gang_free(gangs[i]);
    gs_gomaxprocs(procs);
}

/* The P that goes has a gang's turn. */
TEST(a_p_that_comes_back_belongs_to_no_gang)
{
    int procs = gs_gomaxprocs(2), i;
    gs_gang *gang = new_gang(), *next = new_gang();
    gs_g *gs[4], *others_too[4];
    begin_whole_gang(gang, gs, LENGTH(gs), yield_on);
    CHECK_EQ(gs_gomaxprocs(1), 2);
    end_gang(gang, gs, LENGTH(gs));
    CHECK_EQ(gs_gomaxprocs(2), 1);
    SET(stop, 0);
    memset(steps, 0, sizeof steps);
    for (i = 0; i < 4; i++)
        others_too[i] = go_ref(step, (void *)(intptr_t)i);
    wait_for_steps(0, 4);
    for (i = 0; i < 4; i++)
        gs[i] = join_gang(next, yield_on, (void *)(intptr_t)(4 + i));
    for (i = 0; i < 3; i++)
        wait_for_steps(0, STEPS);
    end_gang(next, gs, LENGTH(gs));
    for (i = 0; i < 4; i++)
        join(others_too[i]);
    gs_gomaxprocs(procs);
}

/* ---- No thread is left: a goroutine that waits in the signal handler goes on where it is ---- */

static void start_with(unsigned procs, unsigned threads)
{
    gs_config c = GS_CONFIG_INIT;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    c.gomaxprocs = procs;
    c.max_threads = threads;
    CHECK_EQ(gs_init(&c), 0);
    SET(stop, 0);
    memset(steps, 0, sizeof steps);
}

TEST(with_few_threads_members_and_others_that_compute_have_their_turns)
{
    gs_gang *gang = new_gang();
    gs_g *gs[4];
    int i;
    start_with(1, 4);
    for (i = 0; i < 2; i++)
        gs[i] = go_ref(step, (void *)(intptr_t)i);
    for (i = 2; i < 4; i++)
        gs[i] = join_gang(gang, step, (void *)(intptr_t)i);
    for (i = 0; i < 3; i++)
        wait_for_steps(0, 4);
    end_gang(gang, gs, LENGTH(gs));
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* The handler of its thread has the registers of another goroutine. */
TEST(a_pinned_member_is_not_taken_for_the_one_in_the_handler_of_its_thread)
{
    gs_gang *gang = new_gang();
    gs_chan *ch = chan_of_ints(0);
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *gs[2], *pinned = NULL;
    int i;
    start_with(1, 2);
    o.flags = GS_SPAWN_PINNED;
    CHECK_EQ(gs_gang_spawn(gang, receive_two, ch, &o, &pinned), 0);
    nap(20 * MS);
    for (i = 0; i < 2; i++)
        gs[i] = join_gang(gang, step, (void *)(intptr_t)i);
    for (i = 0; i < 3; i++)
        wait_for_steps(0, 2);
    send_int(ch, 1);
    for (i = 0; i < 10; i++)
        wait_for_steps(0, 2);
    end_gang(gang, gs, LENGTH(gs));
    send_int(ch, 2);
    join(pinned);
    free_chan(ch);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- fork ---- */

TEST(a_gang_of_the_parent_is_a_new_one_in_the_child)
{
    gs_gang *gang = new_gang();
    gs_g *gs[8];
    int status;
    size_t i;
    pid_t pid;
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = join_gang(gang, wait_for_ever, NULL);
    pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        alarm(check_seconds());
        run_ring(gang, 100);
        gs_gang_free(gang);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        _exit(0);
    }
    for (i = 0; i < LENGTH(gs); i++) {
        CHECK_EQ(gs_cancel(gs[i]), 0);
        join(gs[i]);
    }
    run_ring(gang, 100);
    gs_gang_free(gang);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

/* ---- What it is for ---- */

static long turns_during_a_ring(gs_gang *gang)
{
    long all = 0;
    int i;
    start_others(4);
    run_ring(gang, 1000);
    for (i = 0; i < 4; i++)
        all += GET(turns[i]);
    stop_others(4);
    return all;
}

/* Without a gang one of the others is let in after some fifty messages. */
GO_TEST(between_the_messages_of_a_gang_others_have_fewer_turns)
{
    int procs = gs_gomaxprocs(1);
    gs_gang *gang = new_gang();
    long with, without;
    without = turns_during_a_ring(NULL);
    with = turns_during_a_ring(gang);
    printf("%ld turns of others during 1000 rounds, without a gang %ld\n", with, without);
    CHECK_LE(with, without - 1);
    gs_gang_free(gang);
    gs_gomaxprocs(procs);
}
