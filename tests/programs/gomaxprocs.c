/*
 * gs_gomaxprocs: exactly that many P's, and changes under load that lose nothing.
 * seed: S1 (a change of GOMAXPROCS stops and starts the world; a shrink moves queues and timers)
 */
#include "check.h"

#include <sys/socket.h>

static void count(void *n)
{
    ADD(*(long *)n, 1);
}

/* ---- Asking and setting ---- */

static void check_setting(void)
{
    int procs = gs_gomaxprocs(0), n;
    CHECK_GE(procs, 1);
    CHECK_EQ(gs_gomaxprocs(-1), procs);
    CHECK_EQ(gs_gomaxprocs(INT_MIN), procs);
    CHECK_EQ(gs_gomaxprocs(3), procs);
    CHECK_EQ(gs_gomaxprocs(0), 3);
    for (n = 1; n <= 20; n++) {
        CHECK_EQ(gs_gomaxprocs(n), n == 1 ? 3 : n - 1);
        CHECK_EQ(gs_gomaxprocs(n), n); /* the same again changes nothing */
    }
    CHECK_EQ(gs_gomaxprocs(procs), 20);
    CHECK_EQ(gs_gomaxprocs(0), procs);
}

GO_TEST(it_gives_the_former_value)
{
    check_setting();
}

TEST(a_plain_thread_can_set_it)
{
    check_setting();
}

TEST(the_environment_sets_it)
{
    const char *s = getenv("GOSCHED_PROCS");
    if (!s)
        SKIP("GOSCHED_PROCS is not set");
    CHECK_EQ(gs_gomaxprocs(0), atoi(s));
}

/* Go's TestBigGOMAXPROCS: a number that is too large is refused, or cut, but does no harm. */
GO_TEST(a_number_that_is_too_large_does_no_harm)
{
    int procs = gs_gomaxprocs(0), r = gs_gomaxprocs(INT_MAX);
    long n = 0;
    int i;
    CHECK(r == -EINVAL || r == procs);
    CHECK_GE(gs_gomaxprocs(0), 1);
    for (i = 0; i < 100; i++)
        go(count, &n);
    WAIT_UNTIL(GET(n) == 100);
    gs_gomaxprocs(procs);
    CHECK_EQ(gs_gomaxprocs(0), procs);
}

/* ---- No more than that many at the same time ---- */

static int running, most;

static void note_running(void *arg)
{
    int now = ADD(running, 1), seen = GET(most);
    int64_t end = clock_now() + 30 * US;
    while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    while (clock_now() < end) /* no call of the library: the goroutine keeps its P */
        ;
    ADD(running, -1);
    (void)arg;
}

GO_TEST(no_more_run_than_there_are_ps)
{
    int procs = gs_gomaxprocs(0), n, i;
    gs_g *gs[300];
    for (n = 1; n <= 4; n++) {
        CHECK_GE(gs_gomaxprocs(n), 1);
        SET(running, 0);
        SET(most, 0);
        for (i = 0; i < 300; i++)
            gs[i] = go_steady(note_running, NULL);
        for (i = 0; i < 300; i++)
            join(gs[i]);
        CHECK_LE(GET(most), n);
        CHECK_GE(GET(most), 1);
    }
    gs_gomaxprocs(procs);
}

/* As many as there are P's do run in parallel after a change: each waits for all others. */
static int arrived;

static void meet(void *all)
{
    ADD(arrived, 1);
    while (GET(arrived) < *(int *)all)
        sched_yield();
}

GO_TEST(all_ps_work_after_a_change)
{
    static const int sizes[] = {2, 5, 3, 8, 1, 4};
    int procs = gs_gomaxprocs(0), i;
    gs_g *gs[8];
    size_t s;
    for (s = 0; s < LENGTH(sizes); s++) {
        int all = sizes[s];
        gs_gomaxprocs(all);
        SET(arrived, 0);
        for (i = 0; i < all - 1; i++)
            gs[i] = go_steady(meet, &all);
        meet(&all);
        for (i = 0; i < all - 1; i++)
            join(gs[i]);
    }
    gs_gomaxprocs(procs);
}

/* ---- A shrink loses nothing ---- */

GO_TEST(queued_goroutines_survive_a_shrink)
{
    int procs = gs_gomaxprocs(8), round, i;
    for (round = 0; round < 20; round++) {
        long n = 0;
        for (i = 0; i < 1000; i++)
            go(count, &n);
        gs_gomaxprocs(1 + round % 2);
        for (i = 0; i < 1000; i++)
            go(count, &n);
        gs_gomaxprocs(8);
        WAIT_UNTIL(GET(n) == 2000);
    }
    gs_gomaxprocs(procs);
}

static void sleep_then_count(void *n)
{
    CHECK_EQ(gs_sleep(10 * MS), 0);
    ADD(*(long *)n, 1);
}

static long fired;

static void start_a_timer(void *slot)
{
    *(gs_timer **)slot = gs_timer_start(10 * MS, count, &fired);
    CHECK(*(gs_timer **)slot != NULL);
}

GO_TEST(timers_and_sleepers_survive_a_shrink)
{
    gs_timer *timers[200];
    gs_g *starters[200];
    gs_chan *after[20];
    int procs = gs_gomaxprocs(8), i;
    long slept = 0;
    SET(fired, 0);
    for (i = 0; i < 200; i++) {
        starters[i] = go_ref(start_a_timer, &timers[i]); /* so that they are spread over the P's */
        go(sleep_then_count, &slept);
    }
    for (i = 0; i < 20; i++)
        after[i] = gs_after(10 * MS);
    for (i = 0; i < 200; i++)
        join(starters[i]);
    gs_gomaxprocs(1);
    WAIT_UNTIL(GET(fired) == 200 && GET(slept) == 200);
    for (i = 0; i < 20; i++) {
        CHECK_EQ(gs_chan_recv(after[i], NULL, GS_FOREVER), 0);
        free_chan(after[i]);
    }
    for (i = 0; i < 200; i++)
        CHECK_EQ(gs_timer_free(timers[i]), 0);
    gs_gomaxprocs(procs);
}

/* The P that stays has timers of its own, some that are due much later. A plain thread's timers go to any P. */
TEST(timers_of_all_ps_fire_in_time_after_a_shrink)
{
    gs_timer *timers[400];
    int procs = gs_gomaxprocs(8), i;
    SET(fired, 0);
    for (i = 0; i < 400; i++)
        CHECK((timers[i] = gs_timer_start(i % 2 ? 3600 * SEC : 50 * MS, count, &fired)) != NULL);
    gs_gomaxprocs(1);
    NAP_UNTIL(GET(fired) == 200);
    for (i = 0; i < 400; i++)
        CHECK_EQ(gs_timer_free(timers[i]), 0);
    gs_gomaxprocs(procs);
}

GO_TEST(a_ticker_survives_changes)
{
    int procs = gs_gomaxprocs(0), i;
    gs_chan *ch = gs_ticker_start(MS);
    for (i = 0; i < 20; i++) {
        gs_gomaxprocs(1 + i % 5);
        CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), 0);
    }
    free_chan(ch);
    gs_gomaxprocs(procs);
}

/* ---- Changes under a load of every kind ---- */

static int stop;
static long turns[8];
static gs_mutex mutex;
static long guarded;

static void load_yield(long *n)
{
    gs_yield();
    ADD(*n, 1);
}

static void load_sleep(long *n)
{
    CHECK_EQ(gs_sleep(50 * US), 0);
    ADD(*n, 1);
}

static void load_mutex(long *n)
{
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    guarded++;
    gs_yield();
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    ADD(*n, 1);
}

static void load_syscall(long *n)
{
    gs_entersyscall();
    nap(50 * US);
    gs_exitsyscall();
    ADD(*n, 1);
}

static void *nap_shortly(void *arg)
{
    nap(50 * US);
    return arg;
}

static void load_blocking(long *n)
{
    (void)gs_blocking(nap_shortly, NULL);
    ADD(*n, 1);
}

static void load_locked(long *n)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
    gs_yield();
    CHECK_EQ(gs_unlock_os_thread(), 0);
    ADD(*n, 1);
}

static void load_spawn(long *n)
{
    join(go_ref(count, n));
}

static void load_pinned(long *n)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_PINNED;
    join(go_opts(count, n, &o));
}

static void (*const loads[])(long *) = {load_yield,    load_sleep,  load_mutex, load_syscall,
                                        load_blocking, load_locked, load_spawn, load_pinned};

static void work(void *arg)
{
    int kind = (int)(intptr_t)arg % (int)LENGTH(loads);
    while (!GET(stop))
        loads[kind](&turns[kind]);
}

struct pump {
    gs_chan *ch;
    long sent, received;
};

static void pump_in(void *arg)
{
    struct pump *p = arg;
    while (!GET(stop)) {
        send_int(p->ch, 1);
        ADD(p->sent, 1);
    }
}

static void pump_out(void *arg)
{
    struct pump *p = arg;
    int64_t v;
    while (gs_chan_recv(p->ch, &v, GS_FOREVER) == 0)
        ADD(p->received, v);
}

static void change(int times)
{
    static const int sizes[] = {1, 2, 8, 3, 1, 16, 2, 5};
    int i;
    for (i = 0; i < times; i++) {
        CHECK_GE(gs_gomaxprocs(sizes[i % LENGTH(sizes)]), 1);
        if (i % 3 == 0)
            CHECK_EQ(gs_sleep(200 * US), 0);
    }
}

static void change_many_times(void *arg)
{
    (void)arg;
    change(60);
}

static void change_some_times(void *arg)
{
    (void)arg;
    change(12);
}

static void *change_in_thread(void *arg)
{
    change_some_times(arg);
    return NULL;
}

static void under_load(gs_fn changes)
{
    int procs = gs_gomaxprocs(0);
    struct pump p = {chan_of_ints(2), 0, 0};
    gs_g *workers[24], *in[3], *out[3];
    long before[8];
    intptr_t i;
    SET(stop, 0);
    for (i = 0; i < 24; i++)
        workers[i] = go_ref(work, (void *)i);
    for (i = 0; i < 3; i++) {
        in[i] = go_ref(pump_in, &p);
        out[i] = go_ref(pump_out, &p);
    }
    changes(NULL);
    for (i = 0; i < 8; i++)
        before[i] = GET(turns[i]);
    for (i = 0; i < 8; i++) /* every kind of work goes on */
        WAIT_UNTIL(GET(turns[i]) > before[i]);
    SET(stop, 1);
    for (i = 0; i < 24; i++)
        join(workers[i]);
    for (i = 0; i < 3; i++)
        join(in[i]);
    CHECK_EQ(gs_chan_close(p.ch), 0);
    for (i = 0; i < 3; i++)
        join(out[i]);
    CHECK_EQ(p.sent, p.received);
    CHECK_EQ(guarded, turns[2]);
    free_chan(p.ch);
    gs_gomaxprocs(procs);
}

GO_TEST(changes_under_load_lose_nothing)
{
    under_load(change_many_times);
}

static void change_by_many(void *arg)
{
    gs_g *gs[3];
    pthread_t t[2];
    int i;
    for (i = 0; i < 3; i++)
        gs[i] = go_ref(change_some_times, arg);
    for (i = 0; i < 2; i++)
        t[i] = start_thread(change_in_thread, NULL);
    for (i = 0; i < 3; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        go_join_thread(t[i]);
}

/* Go's TestStopTheWorldDeadlock: several change it at once, goroutines and threads. */
GO_TEST(several_change_it_at_once)
{
    under_load(change_by_many);
}

/* ---- The caller's own situation ---- */

GO_TEST(a_locked_goroutine_may_change_it)
{
    int procs = gs_gomaxprocs(0);
    pid_t tid;
    int i;
    CHECK_EQ(gs_lock_os_thread(), 0);
    tid = thread_id();
    for (i = 0; i < 20; i++) {
        gs_gomaxprocs(1 + i % 4);
        CHECK_EQ(thread_id(), tid);
        gs_yield();
    }
    CHECK_EQ(gs_unlock_os_thread(), 0);
    gs_gomaxprocs(procs);
}

static int in_syscall;

static void be_in_syscall(void *arg)
{
    (void)arg;
    gs_entersyscall();
    ADD(in_syscall, 1);
    NAP_UNTIL(GET(in_syscall) < 0);
    gs_exitsyscall();
    ADD(fired, 1);
}

GO_TEST(goroutines_in_system_calls_do_not_hold_it_up)
{
    int procs = gs_gomaxprocs(4), i;
    SET(in_syscall, 0);
    SET(fired, 0);
    for (i = 0; i < 6; i++)
        go(be_in_syscall, NULL);
    WAIT_UNTIL(GET(in_syscall) == 6);
    for (i = 0; i < 10; i++)
        CHECK_GE(gs_gomaxprocs(1 + i % 4), 1);
    gs_gomaxprocs(1);
    SET(in_syscall, -1000);
    WAIT_UNTIL(GET(fired) == 6);
    gs_gomaxprocs(procs);
}

/* ---- Files of a P that is no more ---- */

static int ends[2], got, wrote, spinning, enough;

static void read_one(void *arg)
{
    char c;
    (void)arg;
    CHECK_EQ(gs_read(ends[0], &c, 1, GS_FOREVER), 1);
    SET(got, 1);
}

static void write_one(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_write(ends[0], "x", 1, GS_FOREVER), 1);
    SET(wrote, 1);
}

static void yield_on(void *arg)
{
    (void)arg;
    ADD(spinning, 1);
    while (!GET(enough))
        gs_yield();
    ADD(spinning, -1);
}

/* The file moves with the goroutine that writes; the goroutine that waited to read before is not left behind. */
TEST(who_waits_for_a_file_outlives_its_p)
{
    static char block[65536];
    int trial, k;
    for (trial = 0; trial < 4; trial++) {
        gs_gomaxprocs(8);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        SET(got, 0);
        SET(wrote, 0);
        SET(enough, 0);
        for (k = 0; k < 8; k++)
            go(yield_on, NULL);
        nap(MS);
        go(read_one, NULL);
        nap(20 * MS);
        SET(enough, 1);
        NAP_UNTIL(GET(spinning) == 0);
        gs_gomaxprocs(1);
        while (send(ends[0], block, sizeof block, MSG_DONTWAIT) > 0)
            continue;
        while (send(ends[0], block, 1, MSG_DONTWAIT) > 0)
            continue;
        go(write_one, NULL);
        nap(10 * MS);
        while (recv(ends[1], block, sizeof block, MSG_DONTWAIT) > 0)
            continue;
        NAP_UNTIL(GET(wrote));
        CHECK_EQ(write(ends[1], "y", 1), 1);
        NAP_UNTIL(GET(got));
        CHECK_EQ(gs_close(ends[0]), 0);
        CHECK_EQ(gs_close(ends[1]), 0);
    }
}
