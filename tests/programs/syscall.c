/*
 * System calls: gs_entersyscall, gs_entersyscallblock, gs_exitsyscall, gs_blocking.
 * seed: S7, B5 (the P is handed off), B2 (a system call costs no running P)
 */
#include "check.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int flag;

static void set_flag(void *arg)
{
    (void)arg;
    SET(flag, 1);
}

/* A blocking wait that only another goroutine can end, and that takes no call of the library. */
static void block_until_flag(void)
{
    NAP_UNTIL(GET(flag));
}

static int use_one_p(void)
{
    SET(flag, 0);
    return gs_gomaxprocs(1);
}

/* ---- With one P, another goroutine runs during the call ---- */

GO_TEST(another_runs_during_a_system_call)
{
    int procs = use_one_p();
    go(set_flag, NULL);
    gs_entersyscall();
    block_until_flag();
    gs_exitsyscall();
    gs_gomaxprocs(procs);
}

GO_TEST(another_runs_during_a_call_that_surely_blocks)
{
    int procs = use_one_p();
    go(set_flag, NULL);
    gs_entersyscallblock();
    block_until_flag();
    gs_exitsyscall();
    gs_gomaxprocs(procs);
}

static void *block_on_system_stack(void *arg)
{
    block_until_flag();
    return arg;
}

GO_TEST(another_runs_during_gs_blocking)
{
    int procs = use_one_p(), x;
    go(set_flag, NULL);
    CHECK(gs_blocking(block_on_system_stack, &x) == &x);
    gs_gomaxprocs(procs);
}

static void count_for_50_ms(void *turns)
{
    int64_t end = gs_after_ms(50);
    while (gs_now() < end) {
        ADD(*(int *)turns, 1);
        gs_yield();
    }
}

/* ---- A call blocks no goroutine that is pinned to the thread ---- */

enum announcement { CALL, CALL_THAT_SURELY_BLOCKS, BLOCKING, ANNOUNCEMENTS };

static int pinned_is_there, caller_begins;

/* Ends the call of the goroutine that has come to the same thread. */
static void end_the_call_pinned(void *arg)
{
    (void)arg;
    SET(pinned_is_there, 1);
    YIELD_UNTIL(GET(caller_begins));
    CHECK_EQ(gs_sleep(MS), 0);
    SET(flag, 1);
}

static void call_beside_a_pinned_one(void *arg)
{
    SET(caller_begins, 1);
    if (*(enum announcement *)arg == BLOCKING) {
        gs_blocking(block_on_system_stack, NULL);
        return;
    }
    if (*(enum announcement *)arg == CALL)
        gs_entersyscall();
    else
        gs_entersyscallblock();
    block_until_flag();
    CHECK_EQ(gs_exitsyscall(), 0);
}

GO_TEST(a_call_blocks_no_goroutine_that_is_pinned_to_the_thread)
{
    int procs = gs_gomaxprocs(1);
    gs_spawn_opts pinned = GS_SPAWN_OPTS_INIT;
    enum announcement a;
    pinned.flags = GS_SPAWN_PINNED;
    for (a = CALL; a < ANNOUNCEMENTS; a++) {
        gs_g *g;
        SET(flag, 0);
        SET(pinned_is_there, 0);
        SET(caller_begins, 0);
        g = go_opts(end_the_call_pinned, NULL, &pinned);
        YIELD_UNTIL(GET(pinned_is_there));
        join(go_ref(call_beside_a_pinned_one, &a));
        join(g);
    }
    gs_gomaxprocs(procs);
}

GO_TEST(another_has_many_turns_during_a_sleep_of_50_ms)
{
    int procs = use_one_p(), turns = 0;
    gs_g *g = go_ref(count_for_50_ms, &turns);
    gs_entersyscall();
    nap(50 * MS);
    gs_exitsyscall();
    join(g);
    CHECK_GE(turns, 10);
    gs_gomaxprocs(procs);
}

/* What became runnable before the call runs too, however it waits: queue, timer, channel. */
static void set_after_sleep(void *arg)
{
    CHECK_EQ(gs_sleep(MS), 0);
    set_flag(arg);
}

static gs_chan *ch;

static void set_after_receive(void *arg)
{
    (void)recv_int(ch);
    set_flag(arg);
}

static void *send_from_thread(void *arg)
{
    nap(2 * MS);
    send_int(ch, 1);
    return arg;
}

GO_TEST(a_sleeper_wakes_during_a_system_call)
{
    int procs = use_one_p();
    go(set_after_sleep, NULL);
    gs_yield();
    gs_entersyscall();
    block_until_flag();
    gs_exitsyscall();
    gs_gomaxprocs(procs);
}

GO_TEST(a_receiver_wakes_during_a_system_call)
{
    int procs = use_one_p();
    pthread_t t;
    ch = chan_of_ints(0);
    go(set_after_receive, NULL);
    gs_yield();
    t = start_thread(send_from_thread, NULL);
    gs_entersyscall();
    block_until_flag();
    gs_exitsyscall();
    go_join_thread(t);
    free_chan(ch);
    gs_gomaxprocs(procs);
}

static void *spawn_from_thread(void *arg)
{
    nap(2 * MS);
    go(set_flag, NULL);
    return arg;
}

GO_TEST(one_spawned_by_a_thread_runs_during_a_system_call)
{
    int procs = use_one_p();
    pthread_t t = start_thread(spawn_from_thread, NULL);
    gs_entersyscall();
    block_until_flag();
    gs_exitsyscall();
    go_join_thread(t);
    gs_gomaxprocs(procs);
}

/* ---- Nesting ---- */

GO_TEST(calls_nest)
{
    int procs = use_one_p(), i;
    for (i = 0; i < 100; i++)
        gs_entersyscall();
    for (i = 0; i < 99; i++)
        gs_exitsyscall();
    go(set_flag, NULL);
    block_until_flag(); /* still inside: one exit is missing */
    gs_exitsyscall();
    SET(flag, 0);
    gs_entersyscallblock();
    gs_entersyscall();
    gs_exitsyscall();
    go(set_flag, NULL);
    block_until_flag();
    gs_exitsyscall();
    gs_yield();
    gs_gomaxprocs(procs);
}

GO_TEST(a_surplus_exit_is_EPERM_and_changes_nothing)
{
    CHECK_EQ(gs_exitsyscall(), -EPERM);
    CHECK_EQ(gs_entersyscall(), 0);
    CHECK_EQ(gs_exitsyscall(), 0);
    CHECK_EQ(gs_exitsyscall(), -EPERM);
    gs_yield();
    CHECK_EQ(gs_sleep(100 * US), 0);
}

TEST(on_a_plain_thread_they_do_no_harm)
{
    int i;
    for (i = 0; i < 3; i++) {
        (void)gs_entersyscall();
        (void)gs_exitsyscall();
        (void)gs_entersyscallblock();
        (void)gs_exitsyscall();
    }
    SET(flag, 0);
    join(go_ref(set_flag, NULL));
    CHECK_EQ(flag, 1);
}

/* Very short calls: the P is nearly always kept. What is checked is that nothing gets lost. */
static void many_short_calls(void *n)
{
    int i;
    for (i = 0; i < 2000; i++) {
        gs_entersyscall();
        (void)thread_id();
        gs_exitsyscall();
        if (i % 100 == 0)
            gs_yield();
    }
    ADD(*(int *)n, 1);
}

GO_TEST(many_short_calls_lose_nothing)
{
    gs_g *gs[16];
    int i, n = 0;
    for (i = 0; i < 16; i++)
        gs[i] = go_ref(many_short_calls, &n);
    for (i = 0; i < 16; i++)
        join(gs[i]);
    CHECK_EQ(n, 16);
}

/* ---- Many at once ---- */

static int inside;

static void wait_for_all_inside(int all)
{
    ADD(inside, 1);
    NAP_UNTIL(GET(inside) >= all); /* hangs unless all block at the same time */
}

static void meet_in_system_call(void *all)
{
    gs_entersyscall();
    wait_for_all_inside(*(int *)all);
    gs_exitsyscall();
}

static void meet_in_syscallblock(void *all)
{
    gs_entersyscallblock();
    wait_for_all_inside(*(int *)all);
    gs_exitsyscall();
}

static void *meet_on_system_stack(void *all)
{
    wait_for_all_inside(*(int *)all);
    return NULL;
}

static void meet_in_gs_blocking(void *all)
{
    (void)gs_blocking(meet_on_system_stack, all);
}

GO_TEST(any_number_may_block_at_once)
{
    static const gs_fn ways[] = {meet_in_system_call, meet_in_syscallblock, meet_in_gs_blocking};
    gs_g *gs[40];
    int all = 40, i;
    size_t w;
    for (w = 0; w < LENGTH(ways); w++) {
        SET(inside, 0);
        for (i = 0; i < all; i++)
            gs[i] = go_ref(ways[w], &all);
        for (i = 0; i < all; i++)
            join(gs[i]);
    }
}

/* Reader and writer goroutines that know only read(2) and write(2), with one P. */
struct pipes {
    int there[2], back[2];
};

static ssize_t blocking_read(int fd, void *p, size_t n)
{
    ssize_t r;
    gs_entersyscall();
    r = read(fd, p, n);
    gs_exitsyscall();
    return r;
}

static ssize_t blocking_write(int fd, const void *p, size_t n)
{
    ssize_t r;
    gs_entersyscall();
    r = write(fd, p, n);
    gs_exitsyscall();
    return r;
}

static void echo(void *arg)
{
    struct pipes *p = arg;
    int v;
    while (blocking_read(p->there[0], &v, sizeof v) == sizeof v) {
        v++;
        CHECK_EQ(blocking_write(p->back[1], &v, sizeof v), sizeof v);
    }
}

GO_TEST(two_goroutines_talk_over_pipes_with_one_p)
{
    int procs = use_one_p(), i, v;
    struct pipes p;
    gs_g *g;
    CHECK_EQ(pipe(p.there), 0);
    CHECK_EQ(pipe(p.back), 0);
    g = go_ref(echo, &p);
    for (i = 0; i < 100; i++) {
        CHECK_EQ(blocking_write(p.there[1], &i, sizeof i), sizeof i);
        CHECK_EQ(blocking_read(p.back[0], &v, sizeof v), sizeof v);
        CHECK_EQ(v, i + 1);
    }
    close(p.there[1]);
    join(g);
    close(p.there[0]);
    close(p.back[0]);
    close(p.back[1]);
    gs_gomaxprocs(procs);
}

/* ---- gs_blocking ---- */

static __attribute__((noinline)) long deep(int frames)
{
    volatile char frame[4096];
    int i;
    for (i = 0; i < 4096; i += 512)
        frame[i] = (char)frames;
    return frames == 0 ? 0 : deep(frames - 1) + frame[0] - (char)frames + 1;
}

static void *use_3_MiB(void *frames)
{
    *(long *)frames = deep(750);
    return frames;
}

static void from_a_small_stack(void *arg)
{
    long frames = 0;
    CHECK(gs_blocking(use_3_MiB, &frames) == &frames);
    CHECK_EQ(frames, 750);
    (void)arg;
}

GO_TEST(gs_blocking_has_the_threads_large_stack)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *gs[10];
    int i;
    o.stack_size = 16384;
    from_a_small_stack(NULL);
    for (i = 0; i < 10; i++)
        gs[i] = go_opts(from_a_small_stack, NULL, &o);
    for (i = 0; i < 10; i++)
        join(gs[i]);
}

static void *give_back(void *arg)
{
    return arg;
}

GO_TEST(gs_blocking_gives_what_the_function_returns)
{
    int x, i;
    CHECK(gs_blocking(give_back, NULL) == NULL);
    CHECK(gs_blocking(NULL, &x) == NULL);
    for (i = 0; i < 1000; i++)
        CHECK(gs_blocking(give_back, &x) == &x);
}

TEST(gs_blocking_on_a_plain_thread_calls_the_function)
{
    int x;
    CHECK(gs_blocking(give_back, &x) == &x);
    CHECK(gs_blocking(NULL, &x) == NULL);
}

/* The thread counts as a plain one inside: whatever blocks there, blocks the thread, and others run. */
static gs_mutex m;

static void receive_and_answer(void *arg)
{
    (void)arg;
    send_int(ch, recv_int(ch) + 1);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_mutex_unlock(&m), 0);
}

static void *call_the_library(void *arg)
{
    gs_g *g;
    int64_t v = 0;
    gs_case c;
    ch = chan_of_ints(0);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    g = go_ref(receive_and_answer, NULL);
    send_int(ch, 41);
    c = recv_case(ch, &v);
    CHECK_EQ(gs_select(&c, 1, GS_FOREVER), 0);
    CHECK_EQ(v, 42);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0); /* waits for the goroutine's unlock */
    CHECK_EQ(gs_mutex_unlock(&m), 0);
    join(g);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(1)), -ETIMEDOUT);
    free_chan(ch);
    gs_yield();
    return arg;
}

GO_TEST(the_library_can_be_called_inside_gs_blocking)
{
    int procs = use_one_p(), x;
    CHECK(gs_blocking(call_the_library, &x) == &x);
    gs_gomaxprocs(procs);
    CHECK(gs_blocking(call_the_library, &x) == &x);
}

static void *check_self(void *id)
{
    CHECK_EQ(gs_id(gs_self()), *(uint64_t *)id);
    return NULL;
}

GO_TEST(self_is_the_goroutine_inside_gs_blocking)
{
    uint64_t id = gs_id(gs_self());
    (void)gs_blocking(check_self, &id);
}

static void *nest(void *depth)
{
    int *d = depth;
    if (--*d > 0)
        CHECK(gs_blocking(nest, depth) == depth);
    return depth;
}

GO_TEST(gs_blocking_nests)
{
    int depth = 10;
    CHECK(gs_blocking(nest, &depth) == &depth);
    CHECK_EQ(depth, 0);
}

static void *syscall_inside(void *arg)
{
    gs_entersyscall();
    nap(MS);
    gs_exitsyscall();
    return arg;
}

GO_TEST(gs_blocking_and_system_calls_mix)
{
    int x;
    CHECK(gs_blocking(syscall_inside, &x) == &x);
    gs_entersyscall();
    CHECK(gs_blocking(give_back, &x) == &x);
    gs_exitsyscall();
    gs_yield();
}

/* Calls inside a system call: spawning, sending, and blocking like a plain thread. */
static void answer_once(void *arg)
{
    (void)arg;
    send_int(ch, recv_int(ch) + 1);
}

GO_TEST(the_library_can_be_called_inside_a_system_call)
{
    int procs = use_one_p();
    gs_g *g;
    ch = chan_of_ints(0);
    gs_entersyscall();
    g = go_ref(answer_once, NULL);
    send_int(ch, 1);
    CHECK_EQ(recv_int(ch), 2);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_exitsyscall();
    gs_release(g);
    free_chan(ch);
    gs_yield();
    gs_gomaxprocs(procs);
}

static void *do_blocking_work(void *sum)
{
    nap(100 * US);
    ADD(*(long *)sum, 1);
    return NULL;
}

static void work_blockingly(void *sum)
{
    int i;
    for (i = 0; i < 20; i++) {
        (void)gs_blocking(do_blocking_work, sum);
        gs_yield();
    }
}

GO_TEST(a_hundred_goroutines_use_gs_blocking)
{
    gs_g *gs[100];
    long sum = 0;
    int i;
    for (i = 0; i < 100; i++)
        gs[i] = go_ref(work_blockingly, &sum);
    for (i = 0; i < 100; i++)
        join(gs[i]);
    CHECK_EQ(sum, 2000);
}

/* A call that lasts is no reason to hang at its end, when all P's are busy again. */
static int stop;

static void keep_busy(void *arg)
{
    (void)arg;
    YIELD_UNTIL(GET(stop));
}

GO_TEST(a_goroutine_gets_a_p_again_after_a_long_call)
{
    int procs = gs_gomaxprocs(0), i, round;
    gs_g *gs[32];
    SET(stop, 0);
    if (procs > 16)
        SKIP("more than 16 P's");
    for (i = 0; i < 2 * procs; i++)
        gs[i] = go_ref(keep_busy, NULL);
    for (round = 0; round < 20; round++) {
        gs_entersyscall();
        nap(round % 3 * MS);
        gs_exitsyscall();
        gs_entersyscallblock();
        gs_exitsyscall();
        (void)gs_blocking(give_back, NULL);
    }
    SET(stop, 1);
    for (i = 0; i < 2 * procs; i++)
        join(gs[i]);
}

/* ---- A crowd of callers: the P's pass from one call to the next all the time ---- */

enum { CALLERS = 200, CALLS = 60 };

static struct {
    int ends[CALLERS][2];
    int wrong;
} crowd;

/* Sends each byte back at once, on a thread of its own. */
static void *echo_all(void *arg)
{
    int open = CALLERS, i;
    struct pollfd fds[CALLERS];
    for (i = 0; i < CALLERS; i++)
        fds[i] = (struct pollfd){crowd.ends[i][1], POLLIN, 0};
    while (open > 0) {
        CHECK(poll(fds, CALLERS, -1) > 0);
        for (i = 0; i < CALLERS; i++) {
            char bytes[16];
            ssize_t n;
            if (!fds[i].revents)
                continue;
            n = read(fds[i].fd, bytes, sizeof bytes);
            if (n > 0) {
                CHECK_EQ(write(fds[i].fd, bytes, (size_t)n), n);
            } else {
                fds[i].fd = -1;
                open--;
            }
        }
    }
    return arg;
}

static void call_echo(void *arg)
{
    int fd = *(int *)arg, i;
    for (i = 0; i < CALLS; i++) {
        char sent = (char)(i + 1), got = 0;
        ssize_t written, had;
        gs_entersyscall();
        written = write(fd, &sent, 1);
        gs_exitsyscall();
        gs_entersyscall();
        had = read(fd, &got, 1);
        gs_exitsyscall();
        if (written != 1 || had != 1 || got != sent)
            ADD(crowd.wrong, 1);
    }
    close(fd);
}

GO_TEST(a_crowd_of_callers_loses_no_p)
{
    gs_g *gs[CALLERS];
    pthread_t echo;
    int i;
    for (i = 0; i < CALLERS; i++)
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, crowd.ends[i]), 0);
    CHECK_EQ(pthread_create(&echo, NULL, echo_all, NULL), 0);
    for (i = 0; i < CALLERS; i++)
        gs[i] = go_ref(call_echo, &crowd.ends[i][0]);
    for (i = 0; i < CALLERS; i++)
        join(gs[i]);
    gs_entersyscall();
    pthread_join(echo, NULL);
    gs_exitsyscall();
    for (i = 0; i < CALLERS; i++)
        close(crowd.ends[i][1]);
    CHECK_EQ(crowd.wrong, 0);
}

/* ---- Goroutines go from call to call without a P ---- */

static void keep_the_p(void *arg)
{
    (void)arg;
    gs_preempt_disable();
    SET(flag, 1);
    while (GET(flag) == 1)
        ;
    gs_preempt_enable();
}

/* The only P is busy until the goroutine that is back from its call has run. */
GO_TEST(one_goes_from_call_to_call_beside_one_that_keeps_the_only_p)
{
    int before = use_one_p(), i;
    gs_g *other = go_ref(keep_the_p, NULL);
    gs_entersyscall();
    block_until_flag();
    for (i = 0; i < 100; i++) {
        gs_exitsyscall();
        /* In the user's code. */
        gs_entersyscall();
        CHECK_EQ(GET(flag), 1);
    }
    gs_exitsyscall();
    SET(flag, 2);
    join(other);
    gs_gomaxprocs(before);
}

enum { GOERS = 32 };

static struct {
    long stretches;
    char line[56];
} goers[GOERS];

static gs_chan *unused;

/* Sometimes calls a function that needs no P before its next call. */
static void go_from_call_to_call(void *arg)
{
    long *stretches = arg;
    int calls, i;
    for (calls = 0; !GET(stop); calls++) {
        gs_entersyscall();
        nap(20 * US);
        gs_exitsyscall();
        ADD(*stretches, 1);
        for (i = 0; calls % 2 && i < 100; i++) {
            char element;
            CHECK_EQ(gs_chan_take(unused, &element), -EAGAIN);
            ADD(*stretches, 1);
        }
    }
}

static void fork_from_call_to_call(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        pid_t child;
        int status;
        gs_entersyscall();
        nap(20 * US);
        gs_exitsyscall();
        child = fork();
        if (child == 0)
            _exit(0);
        CHECK(child > 0);
        gs_entersyscall();
        CHECK_EQ(waitpid(child, &status, 0), child);
        gs_exitsyscall();
    }
}

static long all_stretches(void)
{
    long sum = 0;
    int i;
    for (i = 0; i < GOERS; i++)
        sum += GET(goers[i].stretches);
    return sum;
}

/* Stops the world a number of times beside goroutines that go from call to call. With forks: beside one that forks, too.
   Then a goroutine may be in a page fault when the world is stopped, for memory that it shares with a child. */
static void stop_beside_goers(int stops, int with_forks)
{
    gs_g *gs[GOERS], *busy[2], *forks = NULL;
    int i;
    SET(stop, 0);
    unused = gs_chan_make(1, 0);
    CHECK(unused != NULL);
    for (i = 0; i < 2; i++)
        busy[i] = go_ref(keep_busy, NULL);
    if (with_forks)
        forks = go_ref(fork_from_call_to_call, NULL);
    for (i = 0; i < GOERS; i++)
        gs[i] = go_ref(go_from_call_to_call, &goers[i].stretches);
    for (i = 0; i < stops; i++) {
        long before;
        gs_entersyscall();
        nap(MS / 2);
        gs_exitsyscall();
        CHECK_EQ(gs_stop_the_world(), 0);
        before = all_stretches();
        nap(MS);
        CHECK_EQ(all_stretches(), before);
        CHECK_EQ(gs_start_the_world(), 0);
    }
    CHECK(all_stretches() > 0);
    SET(stop, 1);
    for (i = 0; i < GOERS; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        join(busy[i]);
    if (with_forks)
        join(forks);
    gs_chan_free(unused);
}

GO_TEST(those_that_go_from_call_to_call_stop_with_the_world)
{
    stop_beside_goers(100, 0);
}

GO_TEST(the_world_stops_beside_forks_and_goroutines_without_a_p)
{
    stop_beside_goers(100, 1);
}
