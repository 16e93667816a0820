/*
 * Bubbles: the same run again from a seed, a virtual clock, the shortest schedule that fails.
 */
#include "check.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

static gs_test_opts seeded(uint64_t seed)
{
    gs_test_opts o = {.size = sizeof o, .seed = seed, .flags = GS_TEST_QUIET};
    return o;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* What the goroutines of a run have done, in their order. */
static char steps[4096];
static size_t stepped;

static void step(char c)
{
    CHECK(stepped < sizeof steps - 1);
    steps[stepped] = c;
    steps[stepped + 1] = 0;
    __atomic_store_n(&stepped, stepped + 1, __ATOMIC_RELEASE);
}

static void begin(void)
{
    stepped = 0;
    steps[0] = 0;
}

/* ---- Arguments ---- */

TEST(bad_options_are_EINVAL)
{
    gs_test_opts o = {.size = sizeof o};
    CHECK_EQ(gs_test_run(NULL, NULL, NULL), -EINVAL);
    CHECK_EQ(gs_test_explore(NULL, NULL, NULL, 1), -EINVAL);
    CHECK_EQ(gs_test_explore(nothing, NULL, NULL, UINT64_MAX), -EINVAL);
    o.schedule = 3;
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .flags = 8};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = 8};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .replay = "1.2"};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .log = -1};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .report = -1};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .reserved = 1};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .net = {.loss = 1001}};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    o = (gs_test_opts){.size = sizeof o, .net = {.delay = -1}};
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
    CHECK_EQ(gs_test_run(nothing, NULL, NULL), 0);
    CHECK_EQ(gs_test_explore(nothing, NULL, NULL, 0), 0);
}

GO_TEST(a_goroutine_cannot_make_one)
{
    CHECK_EQ(gs_test_run(nothing, NULL, NULL), -EBUSY);
    CHECK_EQ(gs_test_explore(nothing, NULL, NULL, 5), -EBUSY);
    CHECK_EQ(gs_test_seed(), 0);
    gs_test_fail("outside of a bubble this does nothing");
}

static void again(void *arg)
{
    *(int *)arg = gs_test_run(nothing, NULL, NULL);
}

TEST(not_even_in_a_bubble)
{
    int r = 0;
    CHECK_EQ(gs_test_run(again, &r, NULL), 0);
    CHECK_EQ(r, -EBUSY);
}

/* ---- Time ---- */

static void sleep_an_hour(void *arg)
{
    int64_t *took = arg, before = gs_now();
    CHECK_EQ(gs_sleep(3600 * SEC), 0);
    *took = gs_now() - before;
}

TEST(an_hour_takes_exactly_an_hour_and_no_time)
{
    int64_t took = 0, before = clock_now();
    CHECK_EQ(gs_test_run(sleep_an_hour, &took, NULL), 0);
    CHECK_EQ(took, 3600 * SEC);
    CHECK(clock_now() - before < 60 * SEC);
}

static void *hours_of_another(void *arg)
{
    int i;
    for (i = 0; i < 100; i++)
        CHECK_EQ(gs_test_run(sleep_an_hour, arg, NULL), 0);
    return NULL;
}

/* Each bubble has its own clock, and the rest of the process the real one. */
TEST(bubbles_run_beside_each_other)
{
    pthread_t t[4];
    int64_t took[4], before = gs_now();
    int i;
    for (i = 0; i < 4; i++)
        t[i] = start_thread(hours_of_another, &took[i]);
    while (gs_now() - before < 20 * MS)
        CHECK_EQ(gs_sleep(MS), 0);
    for (i = 0; i < 4; i++) {
        join_thread(t[i]);
        CHECK_EQ(took[i], 3600 * SEC);
    }
    CHECK(gs_now() - before < 3600 * SEC);
}

static void deadlines(void *arg)
{
    gs_chan *ch = chan_of_ints(0);
    gs_mutex m = {0};
    gs_sem s = {0};
    int64_t v, t = gs_now();
    (void)arg;
    CHECK_EQ(gs_chan_recv(ch, &v, t + 5 * SEC), -ETIMEDOUT);
    CHECK_EQ(gs_now(), t + 5 * SEC);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_lock(&m, gs_after_ms(1500)), -ETIMEDOUT);
    CHECK_EQ(gs_now(), t + 6500 * MS);
    CHECK_EQ(gs_sem_acquire(&s, 1, gs_after_ms(500)), -ETIMEDOUT);
    CHECK_EQ(gs_now(), t + 7 * SEC);
    free_chan(ch);
}

TEST(deadlines_are_of_the_virtual_clock)
{
    CHECK_EQ(gs_test_run(deadlines, NULL, NULL), 0);
}

static void tick(void *arg)
{
    gs_chan *ticks = gs_ticker_start(10 * MS);
    int64_t at, t = gs_now();
    int i;
    (void)arg;
    for (i = 1; i <= 1000; i++) {
        CHECK_EQ(gs_chan_recv(ticks, &at, GS_FOREVER), 0);
        CHECK_EQ(at, t + i * 10 * MS);
    }
    CHECK_EQ(gs_ticker_stop(ticks), 0);
    free_chan(ticks);
}

TEST(a_ticker_ticks_to_the_nanosecond)
{
    CHECK_EQ(gs_test_run(tick, NULL, NULL), 0);
}

static void count_up(void *arg)
{
    ADD(*(int *)arg, 1);
}

static void leave_a_timer(void *arg)
{
    gs_timer *soon = gs_timer_start(SEC, count_up, arg), *never = gs_timer_start(100 * SEC, count_up, arg);
    CHECK(soon && never);
    CHECK_EQ(gs_sleep(2 * SEC), 0);
    CHECK_EQ(gs_timer_free(soon), 0);
}

TEST(a_timer_that_is_left_does_not_fire)
{
    int fired = 0;
    CHECK_EQ(gs_test_run(leave_a_timer, &fired, NULL), 0);
    CHECK_EQ(fired, 1);
}

/* ---- Order ---- */

static void three_steps(void *arg)
{
    int i;
    for (i = 0; i < 3; i++) {
        step(*(char *)arg);
        gs_yield();
    }
}

static void four_of_them(void *arg)
{
    static char names[] = "abcd";
    int i;
    (void)arg;
    for (i = 0; i < 4; i++)
        go(three_steps, &names[i]);
}

TEST(a_seed_gives_one_order_and_many_give_many)
{
    char first[16], seen[60][16];
    int i, j, different = 0;
    for (i = 0; i < 60; i++) {
        gs_test_opts o = seeded(i + 1);
        begin();
        CHECK_EQ(gs_test_run(four_of_them, NULL, &o), 0);
        CHECK_EQ(stepped, 12);
        strcpy(first, steps);
        for (j = 0; j < 3; j++) {
            begin();
            CHECK_EQ(gs_test_run(four_of_them, NULL, &o), 0);
            CHECK_EQ(strcmp(first, steps), 0);
        }
        strcpy(seen[i], first);
        for (j = 0; j < i && strcmp(seen[j], first) != 0; j++)
            ;
        different += j == i;
    }
    CHECK_GE(different, 40);
}

TEST(round_robin_is_one_order)
{
    char first[16];
    gs_test_opts o = seeded(1);
    o.schedule = GS_TEST_ROUND_ROBIN;
    begin();
    CHECK_EQ(gs_test_run(four_of_them, NULL, &o), 0);
    strcpy(first, steps);
    o.seed = 2;
    begin();
    CHECK_EQ(gs_test_run(four_of_them, NULL, &o), 0);
    CHECK_EQ(strcmp(first, steps), 0);
}

static void tell_seed_and_ids(void *arg)
{
    uint64_t *seen = arg;
    gs_g *g = go_ref(nothing, NULL);
    seen[0] = gs_test_seed();
    seen[1] = gs_id(gs_self());
    seen[2] = gs_id(g);
    seen[3] = (uint64_t)gs_now();
    seen[4] = (uint64_t)gs_gomaxprocs(0);
    join(g);
}

TEST(ids_and_times_come_again)
{
    uint64_t seen[5], other[5];
    gs_test_opts o = seeded(77);
    CHECK_EQ(gs_test_run(tell_seed_and_ids, seen, &o), 0);
    CHECK_EQ(gs_test_run(tell_seed_and_ids, other, &o), 0);
    CHECK_EQ(memcmp(seen, other, sizeof seen), 0);
    CHECK_EQ(seen[0], 77);
    CHECK_EQ(seen[1], 1);
    CHECK_EQ(seen[2], 2);
    CHECK_EQ(seen[4], 1);
}

/* A select has a choice. */
static void choose(void *arg)
{
    gs_chan *a = chan_of_ints(1), *b = chan_of_ints(1);
    int64_t v;
    gs_case cases[2] = {recv_case(a, &v), recv_case(b, &v)};
    (void)arg;
    send_int(a, 1);
    send_int(b, 2);
    step((char)('0' + gs_select(cases, 2, GS_FOREVER)));
    free_chan(a);
    free_chan(b);
}

TEST(a_select_chooses_by_the_seed)
{
    int seen[2] = {0, 0}, i;
    for (i = 1; i <= 50; i++) {
        gs_test_opts o = seeded(i);
        begin();
        CHECK_EQ(gs_test_run(choose, NULL, &o), 0);
        seen[steps[0] - '0']++;
    }
    CHECK_GE(seen[0], 5);
    CHECK_GE(seen[1], 5);
}

/* ---- What goes wrong ---- */

static void wait_for_nobody(void *arg)
{
    gs_chan *ch = chan_of_ints(0);
    (void)arg;
    (void)recv_int(ch);
}

TEST(a_deadlock_is_an_error)
{
    gs_test_opts o = seeded(1);
    int i;
    for (i = 0; i < 100; i++) {
        CHECK_EQ(gs_test_run(wait_for_nobody, NULL, &o), -EDEADLK);
        CHECK_EQ(gs_test_run(nothing, NULL, &o), 0);
    }
}

/* Each kind of wait counts. */
static gs_mutex locked;
static gs_rwmutex held;
static gs_cond never;
static gs_sem none;
static gs_waitgroup one;
static gs_once once;

static void wait_for_a_mutex(void *arg)
{
    (void)arg;
    (void)gs_mutex_lock(&locked, GS_FOREVER);
}
static void wait_to_read(void *arg)
{
    (void)arg;
    (void)gs_rwmutex_rlock(&held, GS_FOREVER);
}
static void wait_for_a_cond(void *arg)
{
    gs_mutex m = {0};
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    (void)gs_cond_wait(&never, &m, GS_FOREVER);
}
static void wait_for_a_sem(void *arg)
{
    (void)arg;
    (void)gs_sem_acquire(&none, 1, GS_FOREVER);
}
static void wait_for_a_group(void *arg)
{
    (void)arg;
    (void)gs_waitgroup_wait(&one, GS_FOREVER);
}
static void wait_in_once(void *arg)
{
    (void)gs_once_do(&once, wait_for_a_group, arg);
}
static void wait_to_join(void *arg)
{
    gs_g *g = go_ref(wait_for_a_sem, arg);
    (void)gs_join(g, GS_FOREVER);
}
static void wait_in_a_select(void *arg)
{
    gs_chan *ch = chan_of_ints(0);
    int64_t v;
    gs_case c = recv_case(ch, &v);
    (void)arg;
    (void)gs_select(&c, 1, GS_FOREVER);
}
static void wait_for_a_datagram(void *arg)
{
    char b[10];
    int fd = gs_udp_bind("127.0.0.1", 99);
    (void)arg;
    CHECK_GE(fd, 0);
    (void)gs_recv(fd, b, sizeof b, 0, GS_FOREVER);
}

TEST(each_kind_of_wait_counts)
{
    const gs_fn waits[] = {wait_for_a_mutex, wait_to_read, wait_for_a_cond, wait_for_a_sem, wait_for_a_group,
                           wait_in_once, wait_to_join, wait_in_a_select, wait_for_a_datagram};
    gs_test_opts o = seeded(1);
    size_t i;
    CHECK_EQ(gs_mutex_lock(&locked, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_lock(&held, GS_FOREVER), 0);
    CHECK_EQ(gs_waitgroup_add(&one, 1), 0);
    for (i = 0; i < LENGTH(waits); i++)
        CHECK_EQ(gs_test_run(waits[i], NULL, &o), -EDEADLK);
    /* They are given up: nothing wakes them, and the objects can be used on. */
    CHECK_EQ(gs_waitgroup_done(&one), 0);
    CHECK_EQ(gs_cond_broadcast(&never), 0);
}

static void run_for_ever(void *arg)
{
    (void)arg;
    for (;;)
        gs_yield();
}

TEST(a_run_without_an_end_is_ETIMEDOUT)
{
    gs_test_opts o = seeded(1);
    o.max_steps = 1000;
    CHECK_EQ(gs_test_run(run_for_ever, NULL, &o), -ETIMEDOUT);
}

static void fail_in_a_goroutine(void *arg)
{
    (void)arg;
    gs_test_fail("as it must");
    step('!');
}
static void fail(void *arg)
{
    go(fail_in_a_goroutine, arg);
    CHECK_EQ(gs_sleep(SEC), 0);
    step('!');
}

TEST(a_run_that_has_failed_ends_at_once)
{
    gs_test_opts o = seeded(1);
    begin();
    CHECK_EQ(gs_test_run(fail, NULL, &o), -EPROTO);
    CHECK_EQ(stepped, 0);
}

static int balance[2];

static int is_balanced(void *arg)
{
    (void)arg;
    return balance[0] + balance[1] != 100;
}
static void move_money(void *arg)
{
    gs_mutex *m = arg;
    CHECK_EQ(gs_mutex_lock(m, GS_FOREVER), 0);
    balance[0] -= 10;
    gs_yield();
    balance[1] += 10;
    CHECK_EQ(gs_mutex_unlock(m), 0);
}
static void move_some(void *arg)
{
    static gs_mutex m;
    memset(&m, 0, sizeof m);
    (void)arg;
    balance[0] = 100;
    balance[1] = 0;
    go(move_money, &m);
    go(move_money, &m);
}

TEST(the_check_sees_each_step)
{
    gs_test_opts o = seeded(1);
    balance[0] = 100;
    balance[1] = 0;
    CHECK_EQ(gs_test_run(move_some, NULL, &o), 0);
    o.check = is_balanced;
    CHECK_EQ(gs_test_run(move_some, NULL, &o), -EPROTO);
}

static void balance_again(void *arg)
{
    (void)arg;
    balance[0] = 100;
    balance[1] = 0;
    gs_yield();
}

TEST(the_check_does_not_see_what_an_earlier_run_has_left)
{
    gs_test_opts o = seeded(1);
    o.check = is_balanced;
    balance[0] = balance[1] = 0;
    CHECK_EQ(gs_test_run(balance_again, NULL, &o), 0);
    balance[0] = balance[1] = 0;
    CHECK_EQ(gs_test_explore(balance_again, NULL, &o, 3), 3);
}

/* ---- Faults ---- */

static int cancelled, refused;

static void wait_ten_times(void *arg)
{
    gs_chan *ch = arg;
    int64_t v;
    int i;
    for (i = 0; i < 10; i++) {
        int r = gs_chan_recv(ch, &v, gs_after_ms(1));
        CHECK(r == -ETIMEDOUT || r == -ECANCELED);
        cancelled += r == -ECANCELED;
    }
}

static void some_are_cancelled(void *arg)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = go_ref(wait_ten_times, ch);
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    (void)arg;
    CHECK_EQ(gs_spawn_with(nothing, NULL, &opts, NULL), 0);
    join(g);
    free_chan(ch);
}

TEST(calls_may_be_cancelled_by_the_seed)
{
    gs_test_opts o = seeded(1);
    cancelled = 0;
    CHECK_EQ(gs_test_explore(some_are_cancelled, NULL, &o, 100), 100);
    CHECK_EQ(cancelled, 0);
    o.cancel = 50;
    CHECK_EQ(gs_test_explore(some_are_cancelled, NULL, &o, 100), 100);
    CHECK_GE(cancelled, 10);
    o.cancel = 1001;
    CHECK_EQ(gs_test_run(nothing, NULL, &o), -EINVAL);
}

static void make_things(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 20; i++) {
        gs_chan *ch = gs_chan_make(8, 4);
        gs_timer *t = gs_timer_start(SEC, nothing, NULL);
        int r = gs_spawn(nothing, NULL);
        CHECK(r == 0 || r == -ENOMEM);
        refused += !ch + !t + (r != 0);
        if (ch)
            free_chan(ch);
        if (t)
            CHECK_EQ(gs_timer_free(t), 0);
    }
}

TEST(memory_may_be_refused_by_the_seed)
{
    gs_test_opts o = seeded(1);
    refused = 0;
    CHECK_EQ(gs_test_explore(make_things, NULL, &o, 100), 100);
    CHECK_EQ(refused, 0);
    o.no_memory = 100;
    CHECK_EQ(gs_test_explore(make_things, NULL, &o, 100), 100);
    CHECK_GE(refused, 100);
}

/* ---- What chaos in bubbles has found ---- */

static void count_goroutines(void *arg)
{
    CHECK_EQ(gs_num_goroutines(), 1);
    go(nothing, arg);
    go(nothing, arg);
    CHECK_LE(gs_num_goroutines(), 3);
    YIELD_UNTIL(gs_num_goroutines() == 1);
}

TEST(goroutines_are_counted_by_bubble)
{
    gs_test_opts o = seeded(1);
    CHECK_EQ(gs_test_explore(count_goroutines, NULL, &o, 20), 20);
}

static void sleep_a_second(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(SEC), 0);
}

static void look_at_a_sleeper(void *arg)
{
    gs_g *g = go_ref(sleep_a_second, arg);
    gs_g_info info;
    int64_t began = gs_now();
    until_parked(g);
    CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    CHECK(info.since >= began && info.since <= gs_now());
    join(g);
}

TEST(a_wait_begins_at_the_virtual_time)
{
    gs_test_opts o = seeded(1);
    CHECK_EQ(gs_test_explore(look_at_a_sleeper, NULL, &o, 20), 20);
}

static int has_come;

static void come(void *arg)
{
    (void)arg;
    gs_yield();
    has_come = 1;
}

static void yield_until_it_has_come(void *arg)
{
    has_come = 0;
    go(come, arg);
    YIELD_UNTIL(has_come);
}

TEST(who_yields_comes_last_whatever_the_schedule)
{
    uint32_t depth;
    for (depth = 1; depth <= 5; depth++) {
        gs_test_opts o = seeded(1);
        o.schedule = GS_TEST_PCT;
        o.depth = depth;
        o.max_steps = 1000;
        CHECK_EQ(gs_test_explore(yield_until_it_has_come, NULL, &o, 50), 50);
    }
}

static void send_numbers(void *arg)
{
    int fd = gs_tcp_connect("127.0.0.1", 99, GS_FOREVER);
    unsigned char i;
    (void)arg;
    CHECK_GE(fd, 0);
    for (i = 0; i < 50 && gs_write(fd, &i, 1, GS_FOREVER) == 1; i++)
        ;
    CHECK_EQ(gs_close(fd), 0);
}

static void receive_numbers(void *arg)
{
    int listener = gs_tcp_listen("127.0.0.1", 99, 0), fd;
    unsigned char v, i = 0;
    CHECK_GE(listener, 0);
    go(send_numbers, arg);
    fd = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(fd, 0);
    while (gs_read(fd, &v, 1, GS_FOREVER) == 1)
        CHECK_EQ(v, i++);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(gs_close(listener), 0);
}

TEST(nothing_comes_behind_a_reset)
{
    gs_test_opts o = seeded(1);
    o.net.reset = 100;
    CHECK_EQ(gs_test_explore(receive_numbers, NULL, &o, 200), 200);
}

static void make_a_gang(void *arg)
{
    gs_gang *gang = gs_gang_create();
    (void)arg;
    if (gang)
        gs_gang_free(gang);
    make_things(NULL);
}

/* The library keeps descriptors, stacks and gangs for the next who needs one. */
TEST(what_a_former_run_left_decides_no_refusal)
{
    gs_test_opts o = seeded(1);
    o.no_memory = 100;
    o.flags |= GS_TEST_STRICT;
    CHECK_EQ(gs_test_explore(make_a_gang, NULL, &o, 100), 100);
}

static void *keep_the_runtime_awake(void *arg)
{
    while (!GET(*(int *)arg)) {
        CHECK_EQ(gs_spawn(nothing, NULL), 0);
        nap(100 * US);
    }
    return NULL;
}

static void yield_often(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 20000; i++)
        gs_yield();
}

static void two_yield_often(void *arg)
{
    go(yield_often, arg);
    yield_often(arg);
}

/* Neither goroutines outside nor sysmon, which looks at requests to P's, change the steps of a run. */
TEST(a_busy_runtime_beside_a_bubble_changes_nothing)
{
    gs_test_opts o = seeded(1);
    int end = 0;
    pthread_t t = start_thread(keep_the_runtime_awake, &end);
    o.flags |= GS_TEST_STRICT;
    CHECK_EQ(gs_test_explore(two_yield_often, NULL, &o, 10), 10);
    SET(end, 1);
    join_thread(t);
}

/* ---- Others ---- */

static gs_chan *shared;

static void *send_from_a_thread(void *arg)
{
    int64_t v = 1;
    (void)arg;
    nap(20 * MS);
    (void)gs_chan_send(shared, &v, gs_after_ms(100));
    return NULL;
}
static void wait_for_a_thread(void *arg)
{
    int64_t v;
    int fds[2];
    char b;
    (void)arg;
    /* A real file, so that the bubble waits for the world outside. */
    CHECK_EQ(pipe(fds), 0);
    go(nothing, NULL);
    gs_case c = recv_case(shared, &v);
    (void)gs_select(&c, 1, gs_after_ms(1));
    *(pthread_t *)arg = start_thread(send_from_a_thread, NULL);
    gs_spawn((gs_fn)(void *)gs_yield, NULL);
    (void)gs_read(fds[0], &b, 1, gs_after_ms(1));
    (void)gs_chan_recv(shared, &v, GS_FOREVER);
}

TEST(a_thread_outside_is_no_partner)
{
    gs_test_opts o = seeded(1);
    pthread_t t;
    int r;
    shared = chan_of_ints(0);
    r = gs_test_run(wait_for_a_thread, &t, &o);
    if (r != -EPERM)
        CHECK_EQ(r, -EDEADLK);
    join_thread(t);
}

/* With one P: an attached thread that has it passes on goroutines that may not begin on it, and while there is no
 * thread for them they wait aside. */
static void three_yield(void *arg)
{
    int i;
    for (i = 0; i < 2; i++)
        gs_spawn((gs_fn)(void *)gs_yield, NULL);
    gs_yield();
    (void)arg;
}
static void *explore_in_a_thread(void *over)
{
    CHECK_EQ(gs_test_explore(three_yield, NULL, NULL, 100), 100);
    gs_waitgroup_done(over);
    return NULL;
}
static void wait_for_a_bubble(void *arg)
{
    gs_waitgroup over = {0};
    pthread_t t;
    gs_waitgroup_add(&over, 1);
    gs_preempt_disable();
    t = start_thread(explore_in_a_thread, &over);
    gs_preempt_enable();
    CHECK_EQ(gs_waitgroup_wait(&over, GS_FOREVER), 0);
    join_thread(t);
    (void)arg;
}

CHILD(bubbles_beside_an_attached_thread)
{
    enum { BUBBLES = 8, ROUNDS = 30 };
    gs_g *gs[BUBBLES];
    int round, i, e = gs_attach(0);
    if (e == -ENOSYS)
        SKIP("a sanitizer knows no attached threads");
    CHECK_EQ(e, 0);
    CHECK(gs_gomaxprocs(1) > 0);
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < BUBBLES; i++)
            gs[i] = go_ref(wait_for_a_bubble, NULL);
        for (i = 0; i < BUBBLES; i++)
            join(gs[i]);
    }
    CHECK_EQ(gs_detach(), 0);
}

TEST(goroutines_that_wait_aside_do_not_come_into_bubbles)
{
    check_child_succeeds("bubbles_beside_an_attached_thread");
}

/* The thread of a bubble is an M meanwhile; those outside wait for what it does afterwards. */
static void stay_for_long(void *arg)
{
    (void)arg;
    nap(300 * MS);
}
static void *stay_in_a_bubble(void *over)
{
    CHECK_EQ(gs_test_run(stay_for_long, NULL, NULL), 0);
    gs_waitgroup_done(over);
    return NULL;
}
static void wait_outside(void *over)
{
    CHECK_EQ(gs_waitgroup_wait(over, GS_FOREVER), 0);
}

TEST(whom_the_thread_of_a_bubble_wakes_later_is_not_in_a_deadlock)
{
    gs_waitgroup over = {0};
    gs_g *g;
    pthread_t t;
    CHECK_EQ(gs_waitgroup_add(&over, 1), 0);
    t = start_thread(stay_in_a_bubble, &over);
    g = go_ref(wait_outside, &over);
    join(g);
    join_thread(t);
}

static void wake_an_outsider(void *arg)
{
    int64_t v = 1;
    (void)gs_chan_send(arg, &v, GS_FOREVER);
    for (;;)
        gs_yield();
}
static void receive_outside(void *arg)
{
    (void)recv_int(arg);
}

TEST(a_goroutine_outside_is_no_partner)
{
    gs_test_opts o = seeded(1);
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = go_ref(receive_outside, ch);
    gs_g_info info;
    do {
        nap(MS);
        CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    } while (info.state != GS_G_WAITING);
    o.max_steps = 10000;
    CHECK_EQ(gs_test_run(wake_an_outsider, ch, &o), -EPERM);
    join(g);
    free_chan(ch);
}

/* What needs other threads elsewhere works on the one thread here. */
static void *answer(void *arg)
{
    return (char *)arg + 1;
}
static void pinned(void *arg)
{
    gs_lock_os_thread();
    *(pid_t *)arg = thread_id();
    gs_yield();
    CHECK_EQ(*(pid_t *)arg, thread_id());
    CHECK_EQ(gs_unlock_os_thread(), 0);
}
static void all_on_one_thread(void *arg)
{
    char b[2];
    int fds[2], fd;
    pid_t tid[3];
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g[3];
    int i;
    (void)arg;
    CHECK(gs_blocking(answer, b) == b + 1);
    CHECK_EQ(gs_entersyscall(), 0);
    CHECK_EQ(gs_exitsyscall(), 0);
    CHECK_EQ(gs_entersyscallblock(), 0);
    CHECK_EQ(gs_exitsyscall(), 0);
    opts.flags = GS_SPAWN_PINNED;
    opts.priority = GS_PRIO_NORMAL;
    for (i = 0; i < 3; i++)
        g[i] = go_opts(pinned, &tid[i], &opts);
    for (i = 0; i < 3; i++)
        join(g[i]);
    CHECK(tid[0] == tid[1] && tid[1] == tid[2] && tid[0] == thread_id());
    opts.flags = 0;
    opts.priority = GS_PRIO_IDLE;
    join(go_opts(nothing, NULL, &opts));
    fd = gs_open("/proc/self/comm", 0, 0, GS_FOREVER);
    CHECK_GE(fd, 0);
    CHECK_EQ(gs_pread(fd, b, 1, 0, GS_FOREVER), 1);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
    CHECK_EQ(gs_read(fds[0], b, 1, GS_FOREVER), 1);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
    CHECK_EQ(gs_leaks(2), -EPERM);
}

TEST(what_needs_threads_works_on_one)
{
    gs_test_opts o = seeded(1);
    int i;
    for (i = 1; i <= 20; i++) {
        o.seed = i;
        CHECK_EQ(gs_test_run(all_on_one_thread, NULL, &o), 0);
    }
}

/* ---- Exploring ---- */

static gs_mutex mutex;
static gs_cond cond;
static int is_ready;

static void consume(void *arg)
{
    (void)arg;
    if (!is_ready) { /* without the lock */
        CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
        CHECK_EQ(gs_cond_wait(&cond, &mutex, GS_FOREVER), 0);
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    }
}
static void produce(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    is_ready = 1;
    CHECK_EQ(gs_cond_signal(&cond), 0);
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
}
static void lost_wake_up(void *arg)
{
    (void)arg;
    memset(&mutex, 0, sizeof mutex);
    memset(&cond, 0, sizeof cond);
    is_ready = 0;
    go(consume, NULL);
    go(produce, NULL);
}
CHILD(finds_it)
{
    printf("%lld\n", (long long)gs_test_explore(lost_wake_up, NULL, NULL, 1000));
}

static int is_closed;
static void close_it(void *arg)
{
    int was;
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    was = is_closed;
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    if (was)
        return;
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    if (is_closed)
        abort();
    is_closed = 1;
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
}
static void crash_in_one_order(void *arg)
{
    (void)arg;
    memset(&mutex, 0, sizeof mutex);
    is_closed = 0;
    go(close_it, NULL);
    go(close_it, NULL);
}

CHILD(asserts)
{
    (void)gs_test_explore(crash_in_one_order, NULL, NULL, 1000);
}

TEST(the_shortest_schedule_is_told_and_can_be_had_again)
{
    static struct outcome out;
    char *at, script[64];
    gs_test_opts o = seeded(1);
    int i;
    run_child("finds_it", &out);
    CHECK_EQ(WEXITSTATUS(out.status), 0);
    CHECK_HAS(out.text, "-35\n");
    CHECK_HAS(out.text, "all goroutines are asleep - deadlock!");
    CHECK_HAS(out.text, "has 1 choice, and");
    CHECK_HAS(out.text, "gives way to goroutine 3, new, with produce (");
    CHECK_HAS(out.text, "goroutine 2 waits for a condition");
    at = strstr(out.text, "GOSCHED_TEST=replay=");
    CHECK(at != NULL);
    CHECK_EQ(sscanf(at, "GOSCHED_TEST=replay=%63s", script), 1);
    o.replay = script;
    for (i = 0; i < 100; i++)
        CHECK_EQ(gs_test_run(lost_wake_up, NULL, &o), -EDEADLK);
    o.replay = "";
    CHECK_EQ(gs_test_run(lost_wake_up, NULL, &o), 0);
}

TEST(a_crash_is_shrunk_too_and_then_ends_the_process)
{
    static struct outcome out;
    check_child_dies("asserts", SIGABRT, &out);
    CHECK_HAS(out.text, "crashes by SIGABRT");
    CHECK_HAS(out.text, "close_it (");
    CHECK_HAS(out.text, "GOSCHED_TEST=replay=");
}

CHILD(asserts_at_once)
{
    gs_test_opts o = {.size = sizeof o, .flags = GS_TEST_CRASH};
    (void)gs_test_explore(crash_in_one_order, NULL, &o, 1000);
}

TEST(a_crash_ends_the_process_if_that_is_wanted)
{
    static struct outcome out;
    check_child_dies("asserts_at_once", SIGABRT, &out);
    CHECK_HAS(out.text, "the process ends; to have it again: GOSCHED_TEST=seed=");
    CHECK(strstr(out.text, "crashes by") == NULL);
}

/* A file without a name. */
static int temporary_file(void)
{
    char path[] = "/tmp/gosched-bubble-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(unlink(path), 0);
    return fd;
}

/* Closes the file, and returns what is in it. */
static const char *contents(int fd)
{
    static char text[16384];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    CHECK(n >= 0);
    text[n] = 0;
    CHECK_EQ(close(fd), 0);
    return text;
}

TEST(a_report_goes_to_a_file)
{
    gs_test_opts o = {.size = sizeof o, .report = temporary_file()};
    const char *text;
    CHECK_EQ(gs_test_explore(lost_wake_up, NULL, &o, 10000), -EDEADLK);
    text = contents(o.report);
    CHECK_HAS(text, "fails; now for the shortest schedule\n");
    CHECK_HAS(text, "has 1 choice, and");
    CHECK_HAS(text, "GOSCHED_TEST=replay=");
}

/* ---- What the seed does not decide ---- */

/* Runs with GS_TEST_STRICT, and checks the result and that the report has the text. */
static void check_strict(gs_fn f, int64_t want, const char *part)
{
    gs_test_opts o = {.size = sizeof o, .flags = GS_TEST_STRICT};
    const char *text;
    o.report = temporary_file();
    CHECK_EQ(gs_test_run(f, NULL, &o), want < 0 ? want : 0);
    text = contents(o.report);
    if (part)
        CHECK_HAS(text, part);
    else
        CHECK_EQ(text[0], 0);
    o.report = temporary_file();
    CHECK_EQ(gs_test_explore(f, NULL, &o, 3), want < 0 ? want : 3);
    text = contents(o.report);
    if (part)
        CHECK_HAS(text, part);
    else
        CHECK_EQ(text[0], 0);
}

static void be_good(void *arg)
{
    begin();
    four_of_them(arg);
    CHECK_EQ(gs_sleep(3600 * SEC), 0);
}

TEST(a_run_that_its_seed_decides_is_good_when_it_is_strict)
{
    check_strict(be_good, 0, NULL);
}

static void read_a_clock(void *arg)
{
    struct timespec t;
    (void)arg;
    CHECK_EQ(gs_sleep(SEC), 0);
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
}
static void read_another_clock(void *arg)
{
    struct timeval t;
    (void)arg;
    CHECK_EQ(gettimeofday(&t, NULL), 0);
}
static void read_the_time(void *arg)
{
    (void)arg;
    CHECK(time(NULL) > 0);
}
static void get_random_bytes(void *arg)
{
    char bytes[8];
    (void)arg;
    CHECK_EQ(getrandom(bytes, sizeof bytes, 0), sizeof bytes);
}
static void *do_nothing_on_a_thread(void *arg)
{
    return arg;
}
static void start_and_join(void *arg)
{
    (void)arg;
    join_thread(start_thread(do_nothing_on_a_thread, NULL));
}

/* The goroutine may be another than the first, and may have ended. */
static void by_another(void *arg)
{
    (void)arg;
    go(read_the_time, NULL);
    gs_yield();
}

TEST(clocks_random_numbers_and_threads_are_named)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the sanitizer's functions of these names are in the program itself");
#endif
    check_strict(read_a_clock, -EPERM,
                 "goroutine 1 reads the system's clock (clock_gettime)\n    in read_a_clock (");
    check_strict(read_another_clock, -EPERM, "(gettimeofday)\n    in read_another_clock (");
    check_strict(read_the_time, -EPERM, "(time)\n    in read_the_time (");
    check_strict(get_random_bytes, -EPERM,
                 "gets random bytes of the kernel (getrandom)\n    in get_random_bytes (");
    check_strict(start_and_join, -EPERM, "starts a thread (pthread_create)\n    in start_thread");
    check_strict(start_and_join, -EPERM, ", called by start_and_join (");
    check_strict(by_another, -EPERM, "goroutine 2 reads the system's clock (time)");
}

static void block(void *arg)
{
    struct timespec t = {.tv_nsec = 20 * MS};
    (void)arg;
    CHECK_EQ(nanosleep(&t, NULL), 0);
    gs_yield();
}
static void block_and_end(void *arg)
{
    struct timespec t = {.tv_nsec = 20 * MS};
    (void)arg;
    CHECK_EQ(nanosleep(&t, NULL), 0);
}

/* The run is good all the same. */
TEST(a_goroutine_that_blocks_the_thread_is_named)
{
    check_strict(block, 0, "goroutine 1 blocks the thread for ");
    check_strict(block, 0, "\n    in block (");
    check_strict(block_and_end, 0, "goroutine 1 blocks the thread for ");
}

static int kept;
static void keep_state(void *arg)
{
    (void)arg;
    kept++;
    if (kept % 2 == 0)
        CHECK_EQ(gs_sleep(SEC), 0);
    gs_yield();
}
static void keep_more_state(void *arg)
{
    (void)arg;
    kept++;
    if (kept % 2 == 1)
        CHECK_EQ(gs_sleep(SEC), 0);
}

TEST(state_that_is_kept_between_runs_is_found)
{
    kept = 0;
    check_strict(keep_state, -EPERM, "goroutine 1: a second run differs: first ");
    kept = 0;
    check_strict(keep_state, -EPERM, "\n    in keep_state (");
    kept = 0;
    check_strict(keep_more_state, -EPERM, "goroutine 1: a second run differs: first ");
}

static void fail_by_the_clock(void *arg)
{
    struct timespec t;
    (void)arg;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    gs_test_fail("it is late");
}

/* A run that fails is looked at without GS_TEST_STRICT, too. */
TEST(a_failure_that_is_explained_names_them)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the sanitizer's functions of these names are in the program itself");
#endif
    gs_test_opts o = {.size = sizeof o, .report = temporary_file()};
    const char *text;
    CHECK_EQ(gs_test_explore(fail_by_the_clock, NULL, &o, 10), -EPROTO);
    text = contents(o.report);
    CHECK_HAS(text, "run 1 of 10: it is late\n");
    CHECK_HAS(text, "reads the system's clock (clock_gettime)\n    in fail_by_the_clock (");
}

TEST(each_schedule_finds_it)
{
    gs_test_opts o = seeded(1);
    CHECK_EQ(gs_test_explore(lost_wake_up, NULL, &o, 1000), -EDEADLK);
    o.schedule = GS_TEST_PCT;
    o.depth = 2;
    CHECK_EQ(gs_test_explore(lost_wake_up, NULL, &o, 1000), -EDEADLK);
}

/* ---- The log ---- */

static size_t log_of_run(gs_fn f, uint64_t seed, int result, char *text, size_t room)
{
    gs_test_opts o = seeded(seed);
    ssize_t n;
    o.log = temporary_file();
    CHECK_EQ(gs_test_run(f, NULL, &o), result);
    n = pread(o.log, text, room - 1, 0);
    CHECK(n > 0);
    text[n] = 0;
    CHECK_EQ(close(o.log), 0);
    return (size_t)n;
}

static size_t log_of(uint64_t seed, char *text, size_t room)
{
    return log_of_run(four_of_them, seed, 0, text, room);
}

TEST(the_log_comes_again_byte_for_byte)
{
    static char first[16384], second[16384], other[16384];
    size_t n;
    begin();
    n = log_of(5, first, sizeof first);
    begin();
    CHECK_EQ(log_of(5, second, sizeof second), n);
    CHECK_EQ(memcmp(first, second, n), 0);
    begin();
    (void)log_of(6, other, sizeof other);
    CHECK(strcmp(first, other) != 0);
    CHECK_HAS(first, "1.000000000 0 goroutine 0 spawns goroutine 1: four_of_them\n");
    CHECK_HAS(first, " goroutine 1 spawns goroutine 5: three_steps\n");
    CHECK_HAS(first, " goroutine 5 ends\n");
}

TEST(the_log_says_where_a_run_that_fails_stops)
{
    static char text[16384];
    begin();
    (void)log_of_run(fail, 1, -EPROTO, text, sizeof text);
    CHECK_HAS(text, " goroutine 2 stops\n");
}

/* ---- Sockets by the calls of the system ---- */

static void close_soon(void *fd)
{
    gs_sleep(MS);
    CHECK_EQ(gs_shutdown_fd(*(int *)fd, SHUT_RDWR), 0);
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_in name;
    socklen_t size = sizeof name;
    CHECK_EQ(gs_getsockname(fd, (struct sockaddr *)&name, &size), 0);
    CHECK_EQ(size, sizeof name);
    CHECK_EQ(name.sin_family, AF_INET);
    CHECK(name.sin_port != 0);
    return name.sin_port;
}

static int number_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof value;
    CHECK_EQ(gs_getsockopt(fd, level, name, &value, &size), 0);
    CHECK_EQ(size, sizeof value);
    return value;
}

static int bind_to(int fd, uint32_t host, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(host)};
    return gs_bind(fd, (struct sockaddr *)&at, sizeof at);
}

static int connect_to(int fd, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return gs_connect(fd, (struct sockaddr *)&to, sizeof to, GS_FOREVER);
}

/* The same in a bubble and with the kernel. */
static void use_sockets(void *arg)
{
    struct sockaddr_storage name;
    struct linger at_once = {1, 0};
    socklen_t size = sizeof name;
    char b[10];
    int listener = gs_socket(AF_INET, SOCK_STREAM, 0), client = gs_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int other = gs_socket(AF_INET, SOCK_STREAM, 0), server, pair[2], on = 1;
    uint16_t port;
    (void)arg;
    CHECK(listener >= 0 && client >= 0 && other >= 0);
    CHECK_EQ(gs_getsockname(client, (struct sockaddr *)&name, &size), 0);
    CHECK(size == sizeof(struct sockaddr_in) && ((struct sockaddr_in *)&name)->sin_port == 0);
    CHECK_EQ(gs_getpeername(client, (struct sockaddr *)&name, &size), -ENOTCONN);
    CHECK_EQ(gs_shutdown_fd(other, SHUT_RD), -ENOTCONN);
    CHECK_EQ(gs_shutdown_fd(other, 7), -EINVAL);
    CHECK_EQ(gs_setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    CHECK_EQ(number_option(listener, SOL_SOCKET, SO_REUSEADDR), 1);
    CHECK_EQ(number_option(listener, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    CHECK_EQ(number_option(listener, SOL_SOCKET, SO_DOMAIN), AF_INET);
    CHECK_EQ(number_option(listener, SOL_SOCKET, SO_ACCEPTCONN), 0);
    CHECK_EQ(bind_to(listener, 0x08080808, 0), -EADDRNOTAVAIL);
    CHECK_EQ(bind_to(listener, INADDR_LOOPBACK, 0), 0);
    port = bound_port(listener);
    CHECK_EQ(bind_to(listener, INADDR_LOOPBACK, 0), -EINVAL);
    CHECK_EQ(gs_accept(listener, NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_listen(listener, 10), 0);
    CHECK_EQ(number_option(listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
    CHECK_EQ(bind_to(other, INADDR_ANY, port), -EADDRINUSE);

    CHECK_EQ(connect_to(client, port), 0);
    CHECK_GE(server = gs_accept(listener, NULL, NULL, GS_FOREVER), 0);
    CHECK_EQ(bound_port(server), port);
    size = sizeof name;
    CHECK_EQ(gs_getpeername(server, (struct sockaddr *)&name, &size), 0);
    CHECK_EQ(((struct sockaddr_in *)&name)->sin_port, bound_port(client));
    CHECK_EQ(((struct sockaddr_in *)&name)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(number_option(server, SOL_SOCKET, SO_REUSEADDR), 1); /* from the listener */

    /* One direction ends, the other goes on. */
    CHECK_EQ(gs_send(client, "hello", 5, 0, GS_FOREVER), 5);
    CHECK_EQ(gs_shutdown_fd(client, SHUT_WR), 0);
    CHECK_EQ(gs_send(client, "x", 1, 0, GS_FOREVER), -EPIPE);
    CHECK_EQ(gs_recv(server, b, sizeof b, 0, GS_FOREVER), 5);
    CHECK_EQ(gs_recv(server, b, sizeof b, 0, GS_FOREVER), 0);
    CHECK_EQ(gs_send(server, "you", 3, 0, GS_FOREVER), 3);
    CHECK_EQ(gs_recv(client, b, sizeof b, 0, GS_FOREVER), 3);

    /* A close that resets. */
    CHECK_EQ(gs_setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    CHECK_EQ(gs_close(server), 0);
    CHECK_EQ(gs_recv(client, b, sizeof b, 0, GS_FOREVER), -ECONNRESET);
    CHECK_EQ(number_option(client, SOL_SOCKET, SO_ERROR), 0);
    CHECK_EQ(gs_close(client), 0);

    /* A listener that is shut down: accepting ends, and nothing answers any more. */
    CHECK_EQ(gs_spawn(close_soon, &listener), 0);
    CHECK_EQ(gs_accept(listener, NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(connect_to(other, port), -ECONNREFUSED);
    CHECK_EQ(gs_close(other), 0);
    CHECK_EQ(gs_close(listener), 0);

    /* A reader that is shut down. */
    CHECK_EQ(gs_unix_pair(pair), 0);
    CHECK_EQ(gs_spawn(close_soon, &pair[0]), 0);
    CHECK_EQ(gs_recv(pair[0], b, sizeof b, 0, GS_FOREVER), 0);
    CHECK_EQ(gs_send(pair[1], "x", 1, 0, GS_FOREVER), -EPIPE);
    size = sizeof name;
    CHECK_EQ(gs_getpeername(pair[0], (struct sockaddr *)&name, &size), 0);
    CHECK(name.ss_family == AF_UNIX && size == 2);
    CHECK_EQ(gs_close(pair[0]), 0);
    CHECK_EQ(gs_close(pair[1]), 0);

    /* Bad arguments. */
    CHECK_EQ(gs_socket(AF_INET, 77, 0), -EINVAL);
    CHECK_EQ(gs_bind(-1, NULL, 0), -EINVAL);
    CHECK_EQ(gs_listen(-1, 0), -EBADF);
    CHECK_EQ(gs_shutdown_fd(-1, SHUT_WR), -EBADF);
    CHECK_EQ(gs_getsockname(-1, (struct sockaddr *)&name, &size), -EBADF);
    CHECK_EQ(gs_getsockname(-1, NULL, &size), -EINVAL);
    CHECK_EQ(gs_getpeername(-1, (struct sockaddr *)&name, NULL), -EINVAL);
    CHECK_EQ(gs_getsockopt(-1, SOL_SOCKET, SO_ERROR, NULL, &size), -EINVAL);
    CHECK_EQ(gs_setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, NULL, 0), -EINVAL);
}

GO_TEST(sockets_of_the_kernel)
{
    use_sockets(NULL);
}

TEST(sockets_of_a_bubble_do_the_same)
{
    CHECK_EQ(gs_test_explore(use_sockets, NULL, NULL, 200), 200);
}

static void one_family_each(void *arg)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(80)}, name;
    socklen_t size = sizeof name;
    int six = gs_socket(AF_INET6, SOCK_STREAM, 0), four = gs_socket(AF_INET, SOCK_STREAM, 0), on = 1, fd;
    (void)arg;
    CHECK_EQ(gs_setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
    CHECK_EQ(gs_bind(four, (struct sockaddr *)&at, sizeof at), -EAFNOSUPPORT);
    CHECK_EQ(gs_bind(six, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(gs_listen(six, 1), 0);
    CHECK_EQ(gs_tcp_connect("127.0.0.1", 80, GS_FOREVER), -ECONNREFUSED);
    CHECK_EQ(bind_to(four, INADDR_ANY, htons(80)), 0);
    CHECK_EQ(gs_listen(four, 1), 0);
    CHECK_GE(fd = gs_tcp_connect("127.0.0.1", 80, GS_FOREVER), 0);
    CHECK_GE(gs_accept(four, (struct sockaddr *)&name, &size, GS_NOWAIT), 0);
    CHECK_EQ(gs_close(fd), 0);
    CHECK_GE(gs_tcp_connect("::1", 80, GS_FOREVER), 0);
    size = sizeof name;
    CHECK_GE(gs_accept(six, (struct sockaddr *)&name, &size, GS_NOWAIT), 0);
    CHECK_EQ(name.sin6_family, AF_INET6);
}

static void receive_nothing(void *fd)
{
    char byte;
    CHECK_EQ(gs_recv(*(int *)fd, &byte, 1, 0, GS_FOREVER), 0);
}
static void shut_down_a_socket_without_a_peer(void *arg)
{
    int fd = gs_udp_bind("127.0.0.1", 0);
    gs_g *g;
    (void)arg;
    CHECK(fd >= 0);
    g = go_ref(receive_nothing, &fd);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_shutdown_fd(fd, SHUT_RDWR), -ENOTCONN);
    join(g);
    CHECK_EQ(gs_close(fd), 0);
}

/* Linux says that there is no peer, and ends the waits. */
TEST(a_shutdown_ends_waits_for_datagrams)
{
    CHECK_EQ(gs_run(shut_down_a_socket_without_a_peer, NULL), 0);
    CHECK_EQ(gs_test_run(shut_down_a_socket_without_a_peer, NULL, NULL), 0);
}

TEST(a_port_may_be_a_listeners_of_each_family)
{
    CHECK_EQ(gs_test_run(one_family_each, NULL, NULL), 0);
}

static void send_to_a_path(void *arg)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/bubble"}, from;
    socklen_t size = sizeof from;
    int a = gs_socket(AF_UNIX, SOCK_DGRAM, 0), b = gs_socket(AF_UNIX, SOCK_DGRAM, 0);
    char bytes[10];
    (void)arg;
    CHECK_EQ(gs_bind(a, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(gs_sendto(b, "x", 1, 0, (struct sockaddr *)&at, sizeof at, GS_FOREVER), 1);
    CHECK_EQ(gs_recvfrom(a, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size, GS_FOREVER), 1);
    CHECK_EQ(size, 0);
    size = sizeof from;
    CHECK_EQ(gs_getsockname(a, (struct sockaddr *)&from, &size), 0);
    CHECK_EQ(size, offsetof(struct sockaddr_un, sun_path) + sizeof "/bubble");
    CHECK_EQ(strcmp(from.sun_path, "/bubble"), 0);
}

TEST(a_unix_socket_needs_no_file_system)
{
    CHECK_EQ(gs_test_run(send_to_a_path, NULL, NULL), 0);
}

/* ---- The environment ---- */

CHILD(run_four)
{
    gs_test_opts o = {.size = sizeof o};
    begin();
    printf("%d %s\n", gs_test_run(four_of_them, NULL, &o), steps);
}

TEST(the_environment_chooses_the_seed)
{
    static struct outcome a, b;
    setenv("GOSCHED_TEST", "seed=9", 1);
    run_child("run_four", &a);
    run_child("run_four", &b);
    CHECK_EQ(strcmp(a.text, b.text), 0);
    CHECK_EQ(strncmp(a.text, "0 ", 2), 0);
    setenv("GOSCHED_TEST", "sed=9", 1);
    run_child("run_four", &a);
    CHECK_HAS(a.text, "-22 ");
    CHECK_HAS(a.text, "gosched: GOSCHED_TEST=sed=9: it may be seed=NUMBER, seed=random or replay=STRING\n");
    unsetenv("GOSCHED_TEST");
}

/* ---- The whole program by a seed ---- */

CHILD(four_in_a_run)
{
    begin();
    CHECK_EQ(gs_run(four_of_them, NULL), 0);
    while (__atomic_load_n(&stepped, __ATOMIC_ACQUIRE) < 12)
        nap(MS);
    printf("%s\n", steps);
}
CHILD(four_in_a_run_that_fails)
{
    CHECK_EQ(gs_run(nothing, NULL), 0);
    exit(3);
}
CHILD(four_in_a_run_that_aborts)
{
    signal(SIGABRT, SIG_DFL);
    CHECK_EQ(gs_run(nothing, NULL), 0);
    abort();
}

TEST(a_seed_orders_a_whole_program)
{
    static struct outcome first, next;
    int i, different = 0;
    setenv("GOSCHED_DEBUG", "seed=5", 1);
    run_child("four_in_a_run", &first);
    for (i = 0; i < 5; i++) {
        run_child("four_in_a_run", &next);
        CHECK_EQ(strcmp(first.text, next.text), 0);
    }
    for (i = 0; i < 10; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "seed=%d", 100 + i);
        setenv("GOSCHED_DEBUG", seed, 1);
        run_child("four_in_a_run", &next);
        different += strcmp(first.text, next.text) != 0;
    }
    CHECK_GE(different, 5);
    unsetenv("GOSCHED_DEBUG");
}

TEST(a_random_seed_is_told_when_the_program_fails)
{
    struct outcome out;
    setenv("GOSCHED_DEBUG", "seed=random", 1);
    run_child("four_in_a_run", &out);
    CHECK(strstr(out.text, "seed=") == NULL);
    run_child("four_in_a_run_that_fails", &out);
    CHECK_EQ(WEXITSTATUS(out.status), 3);
#ifdef __GLIBC__ /* others have no on_exit(3), which tells the status */
    CHECK_HAS(out.text, "GOSCHED_DEBUG=seed=");
#endif
    run_child("four_in_a_run_that_aborts", &out);
    CHECK(WIFSIGNALED(out.status));
    CHECK_HAS(out.text, "GOSCHED_DEBUG=seed=");
    unsetenv("GOSCHED_DEBUG");
}
