/*
 * What embedders get: parking by hand, the stopped world.
 */
#include "check.h"
#include <ucontext.h>

static gs_mutex mutex;
static gs_g *parked;
static int commits;

static bool unlock_it(gs_g *g, void *arg)
{
    CHECK_EQ((long)arg, 5);
    parked = g;
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    ADD(commits, 1);
    return true;
}

static bool refuse(gs_g *g, void *arg)
{
    (void)g;
    ADD(*(int *)arg, 1);
    return false;
}

static void park_once(void *result)
{
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    SET(*(int *)result, gs_park(unlock_it, (void *)5, GS_FOREVER));
}

GO_TEST(a_parked_goroutine_is_woken_once)
{
    int result = 1, i;
    for (i = 0; i < 200; i++) {
        gs_g *g;
        SET(commits, 0);
        g = go_ref(park_once, &result);
        YIELD_UNTIL(GET(commits) == 1);
        CHECK(parked == g);
        /* It was at rest when commit unlocked it. */
        CHECK_EQ(gs_mutex_trylock(&mutex), 0);
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
        CHECK_EQ(gs_ready(g), 0);
        CHECK_EQ(gs_ready(g), -EINVAL);
        join(g);
        CHECK_EQ(result, 0);
        result = 1;
    }
}

GO_TEST(a_park_ends_at_its_deadline_or_at_once)
{
    int called = 0;
    CHECK_EQ(gs_park(NULL, NULL, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_park(NULL, NULL, 1), -ETIMEDOUT);
    CHECK_EQ(gs_park(refuse, &called, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(called, 0);
    CHECK_EQ(gs_park(refuse, &called, GS_FOREVER), 0);
    CHECK_EQ(gs_park(refuse, &called, gs_after_ms(60000)), 0);
    CHECK_EQ(called, 2);
}

static void park_and_count(void *n)
{
    CHECK_EQ(gs_park(NULL, NULL, GS_FOREVER), -ECANCELED);
    ADD(*(int *)n, 1);
}

GO_TEST(a_park_is_cancelled)
{
    int n = 0;
    gs_g *g = go_ref(park_and_count, &n);
    CHECK_EQ(gs_sleep(1 * MS), 0);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
    CHECK_EQ(n, 1);
}

static void wait_in_channel(void *ch)
{
    (void)recv_int(ch);
}

GO_TEST(who_is_not_in_a_park_is_not_woken)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = go_ref(wait_in_channel, ch);
    CHECK_EQ(gs_ready(NULL), -EINVAL);
    CHECK_EQ(gs_ready(gs_self()), -EINVAL);
    CHECK_EQ(gs_sleep(1 * MS), 0);
    CHECK_EQ(gs_ready(g), -EINVAL);
    send_int(ch, 1);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    CHECK_EQ(gs_ready(g), -EINVAL);
    gs_release(g);
    CHECK_EQ(gs_chan_free(ch), 0);
}

TEST(a_plain_thread_parks_too)
{
    int called = 0;
    CHECK_EQ(gs_park(NULL, NULL, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_park(NULL, NULL, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_park(refuse, &called, GS_FOREVER), 0);
    CHECK_EQ(called, 1);
}

/* ---- What commit is given ---- */

static gs_g *given;
static gs_chan *never;

static bool keep(gs_g *g, void *arg)
{
    (void)arg;
    SET(given, gs_retain(g));
    return true;
}

static void park_then_wait(void *arg)
{
    int64_t v;
    (void)arg;
    CHECK_EQ(gs_park(keep, NULL, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_recv(never, &v, GS_FOREVER), -ECANCELED);
}

static void live_briefly(void *n)
{
    CHECK_EQ(gs_sleep(1000), 0);
    ADD(*(int *)n, 1);
}

GO_TEST(who_commit_was_called_for_is_cancelled_later_and_no_other)
{
    int i, k, n;
    never = chan_of_ints(0);
    for (i = 0; i < 100; i++) {
        uint64_t id;
        SET(given, NULL);
        go(park_then_wait, NULL);
        YIELD_UNTIL(GET(given) != NULL);
        id = gs_id(given);
        WAIT_UNTIL(gs_ready(given) == 0);
        CHECK_EQ(gs_cancel(given), 0);
        CHECK_EQ(gs_join(given, GS_FOREVER), 0);
        /* It still names the goroutine that has ended, not one that begins now. */
        n = 0;
        for (k = 0; k < 10; k++)
            go(live_briefly, &n);
        CHECK_EQ(gs_cancel(given), 0);
        CHECK_EQ(gs_id(given), (long long)id);
        CHECK_EQ(gs_join(given, GS_NOWAIT), 0);
        WAIT_UNTIL(GET(n) == 10);
        gs_release(given);
    }
    free_chan(never);
}

/* ---- A commit that others don't wait for ---- */

static int went_on, in_commit, waker_is_done;

static bool wait_for_the_waker(gs_g *g, void *arg)
{
    int i;
    (void)arg;
    SET(given, g);
    SET(in_commit, 1);
    while (!GET(waker_is_done))
        ;
    /* The goroutine is at rest until commit has returned. */
    for (i = 0; i < 20000; i++)
        CHECK_EQ(GET(went_on), 0);
    SET(in_commit, 0);
    return true;
}

static void park_beside_a_waker(void *result)
{
    int64_t deadline = *(int *)result == 3 ? gs_after_ms(2) : GS_FOREVER;
    int r = gs_park(wait_for_the_waker, NULL, deadline);
    SET(went_on, 1);
    CHECK_EQ(GET(in_commit), 0);
    SET(*(int *)result, r);
}

static void *wake_at_once(void *how)
{
    NAP_UNTIL(GET(in_commit));
    CHECK_EQ(*(int *)how == 1 ? gs_ready(given) : gs_cancel(given), 0);
    CHECK_EQ(*(int *)how == 1 ? gs_ready(given) : -EINVAL, -EINVAL);
    SET(waker_is_done, 1);
    return NULL;
}

GO_TEST(a_goroutine_that_is_woken_during_its_commit_goes_on_after_it)
{
    int i, how;
    for (i = 0; i < 20; i++) {
        for (how = 1; how <= 2; how++) {
            int result = how;
            pthread_t t;
            gs_g *g;
            SET(went_on, 0);
            SET(in_commit, 0);
            SET(waker_is_done, 0);
            t = start_thread(wake_at_once, &how);
            g = go_ref(park_beside_a_waker, &result);
            join(g);
            go_join_thread(t);
            CHECK_EQ(result, how == 1 ? 0 : -ECANCELED);
        }
    }
}

static int stop;

/* It crashed: a commit that calls the library while its P is asked for something. */
static bool send_it(gs_g *g, void *ch)
{
    int64_t v = 1;
    (void)g;
    (void)gs_chan_send(ch, &v, GS_NOWAIT);
    return false;
}

static void park_again_and_again(void *ch)
{
    while (!GET(stop)) {
        int64_t v;
        CHECK_EQ(gs_park(send_it, ch, GS_FOREVER), 0);
        (void)gs_chan_recv(ch, &v, GS_NOWAIT);
    }
}

static void compute(void *arg)
{
    (void)arg;
    while (!GET(stop))
        ;
}

GO_TEST(a_commit_calls_the_library_beside_loops_that_are_preempted)
{
    gs_chan *ch = chan_of_ints(1);
    int i;
    SET(stop, 0);
    for (i = 0; i < 4; i++) {
        go(park_again_and_again, ch);
        go(compute, NULL);
    }
    for (i = 0; i < 100; i++)
        CHECK_EQ(gs_sleep(1 * MS), 0);
    SET(stop, 1);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    CHECK_EQ(gs_chan_free(ch), 0);
}

/* ---- The stopped world ---- */

static long turns[8];
static int fds[2];

static void spin(void *n)
{
    while (!GET(stop))
        ADD(turns[(long)n], 1);
}

static void call(void *n)
{
    while (!GET(stop)) {
        gs_yield();
        ADD(turns[(long)n], 1);
    }
}

static void sleep_again_and_again(void *n)
{
    while (!GET(stop)) {
        CHECK_EQ(gs_sleep(100 * US), 0);
        ADD(turns[(long)n], 1);
    }
}

/* Loses its P in each block, and runs all the same when it comes back. */
static void nap_and_spin(void *n)
{
    while (!GET(stop)) {
        int i;
        usleep(1500);
        for (i = 0; i < 1000000 && !GET(stop); i++)
            ADD(turns[(long)n], 1);
    }
}

static void block(void *arg)
{
    char c;
    (void)arg;
    CHECK_EQ(read(fds[0], &c, 1), 1);
}

static void sum_up(long *sum)
{
    int i;
    *sum = 0;
    for (i = 0; i < 8; i++)
        *sum += GET(turns[i]);
}

static void start_all(void)
{
    long i;
    SET(stop, 0);
    CHECK_EQ(pipe(fds), 0);
    for (i = 0; i < 4; i++)
        go(spin, (void *)i);
    go(call, (void *)4);
    go(call, (void *)5);
    go(sleep_again_and_again, (void *)6);
    go(nap_and_spin, (void *)7);
    go(block, NULL);
}

static void end_all(void)
{
    SET(stop, 1);
    CHECK_EQ(write(fds[1], "x", 1), 1);
}

static int seen, with_registers, outside, myself;

static void look(const gs_g_info *g, void *me)
{
    char *sp = g->sp, *lo = g->stack_lo, *hi = g->stack_hi;
    seen++;
    with_registers += g->regs != NULL;
    outside += g->stack_lo != NULL && (sp < lo || sp >= hi);
    CHECK_GE(g->state, GS_G_RUNNABLE);
    CHECK_LE(g->state, GS_G_SYSCALL);
    CHECK_GE(g->node, 0);
    if (g->id == *(uint64_t *)me && g->id != 0) {
        char here;
        myself++;
        CHECK_EQ(g->state, GS_G_RUNNING);
        CHECK(&here >= lo && &here < hi);
    }
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Nobody moves, though loops spin, others call and one is blocked in the kernel. */
static void stop_and_look(uint64_t me, int goroutines)
{
    int i;
    for (i = 0; i < 10; i++) {
        long before, later;
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_stop_the_world(), -EDEADLK);
        /* One that comes back from the kernel now is stopped soon. */
        do {
            sum_up(&before);
            nap(5 * MS);
            sum_up(&later);
        } while (before != later);
        seen = with_registers = outside = myself = 0;
        CHECK_EQ(gs_foreach_g(look, &me), 0);
        CHECK_EQ(seen, goroutines);
        CHECK_EQ(outside, 0);
        CHECK_EQ(myself, me != 0);
        CHECK_EQ(gs_foreach_g(NULL, NULL), -EINVAL);
        CHECK_EQ(gs_start_the_world(), 0);
        CHECK_EQ(gs_start_the_world(), -EPERM);
        if (me != 0)
            CHECK_EQ(gs_sleep(1 * MS), 0);
        else
            nap(1 * MS);
    }
}

GO_TEST(a_goroutine_stops_the_world)
{
    start_all();
    CHECK_EQ(gs_sleep(15 * MS), 0);
    stop_and_look(gs_id(gs_self()), 10);
    end_all();
    WAIT_UNTIL(gs_num_goroutines() == 1);
    close(fds[0]);
    close(fds[1]);
}

TEST(a_plain_thread_stops_the_world)
{
    start_all();
    nap(15 * MS);
    stop_and_look(0, 9);
    end_all();
    NAP_UNTIL(gs_num_goroutines() == 0);
    close(fds[0]);
    close(fds[1]);
}

GO_TEST(those_that_have_not_run_yet_are_seen_with_their_argument)
{
    uint64_t me = gs_id(gs_self());
    int i;
    for (i = 0; i < 10; i++)
        go(nothing, &i);
    CHECK_EQ(gs_stop_the_world(), 0);
    seen = outside = 0;
    CHECK_EQ(gs_foreach_g(look, &me), 0);
    CHECK_EQ(seen, (int)gs_num_goroutines());
    CHECK_EQ(outside, 0);
    CHECK_EQ(gs_start_the_world(), 0);
    WAIT_UNTIL(gs_num_goroutines() == 1);
}

static void stop_it(void *n)
{
    int i;
    for (i = 0; i < 50; i++) {
        CHECK_EQ(gs_stop_the_world(), 0);
        ++*(long *)n;
        CHECK_EQ(gs_start_the_world(), 0);
        gs_yield();
    }
}

GO_TEST(several_take_turns)
{
    long n = 0;
    int i;
    gs_g *g[4];
    for (i = 0; i < 4; i++)
        g[i] = go_ref(stop_it, &n);
    for (i = 0; i < 4; i++)
        join(g[i]);
    CHECK_EQ(n, 200);
}

GO_TEST(who_has_not_stopped_it_may_not_look)
{
    CHECK_EQ(gs_start_the_world(), -EPERM);
    CHECK_EQ(gs_foreach_g(look, NULL), -EPERM);
}

/* ---- What a collector must find: values that only a register holds, in every state ---- */

enum state { PARKS, ANNOUNCES, BLOCKS, COMPUTES, WAITS_IN_A_CALL, STATES };

enum { HOLDERS = 4 * STATES };

/* The values are kept inverted everywhere else. */
static struct holder {
    uintptr_t inverted;
    enum state state;
    int found;
} holders[HOLDERS];
static int pipe_of_holders[2], holding, let_go;
static gs_chan *chan_of_holders;

static uintptr_t value_of(const struct holder *h)
{
    return ~h->inverted;
}

static void call_and_park(void)
{
    int64_t none;
    CHECK_EQ(gs_chan_recv(chan_of_holders, &none, GS_FOREVER), -EPIPE);
}

static void wait_in_a_call(void)
{
    gs_entersyscall();
    call_and_park();
    gs_exitsyscall();
}

static void compute_in_register(void)
{
    while (!GET(let_go))
        ;
}

/* read(2) with the value in a register that a function must keep, and nowhere else. */
static __attribute__((noinline)) void read_with_value(uintptr_t inverted)
{
    char byte;
    long result = SYS_read;
    register uintptr_t value __asm__("r12") = inverted;
    __asm__ volatile("not %1\n\t"
                     "syscall\n\t"
                     "not %1"
                     : "+a"(result), "+r"(value)
                     : "D"(pipe_of_holders[0]), "S"(&byte), "d"(1L)
                     : "rcx", "r11", "memory", "cc");
    CHECK_EQ(result, 0);
}

/* Calls fn in the same way. rbx keeps the stack pointer. */
static __attribute__((noinline)) void call_with_value(uintptr_t inverted, void (*fn)(void))
{
    register uintptr_t value __asm__("r12") = inverted;
    __asm__ volatile("mov %%rsp, %%rbx\n\t"
                     "sub $128, %%rsp\n\t"
                     "and $-16, %%rsp\n\t"
                     "not %0\n\t"
                     "call *%1\n\t"
                     "not %0\n\t"
                     "mov %%rbx, %%rsp"
                     : "+r"(value), "+a"(fn)
                     :
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void hold(void *arg)
{
    struct holder *h = arg;
    uintptr_t inverted = h->inverted;
    ADD(holding, 1);
    switch (h->state) {
    case PARKS: call_with_value(inverted, call_and_park); break;
    case ANNOUNCES:
        gs_entersyscall();
        read_with_value(inverted);
        gs_exitsyscall();
        break;
    case BLOCKS: read_with_value(inverted); break;
    case COMPUTES: call_with_value(inverted, compute_in_register); break;
    default: call_with_value(inverted, wait_in_a_call); break;
    }
}

static void find_in(const uintptr_t *from, const uintptr_t *to)
{
    int i;
    for (; from < to; from++)
        for (i = 0; i < HOLDERS; i++)
            if (*from == value_of(&holders[i]))
                holders[i].found = 1;
}

static void find_values(const gs_g_info *g, void *me)
{
    if (g->id == *(uint64_t *)me && g->id != 0)
        return;
    find_in((void *)((uintptr_t)g->sp & ~(uintptr_t)7), g->stack_hi);
    if (g->regs) {
        const uintptr_t *regs = (const void *)((const ucontext_t *)g->regs)->uc_mcontext.gregs;
        find_in(regs, regs + NGREG);
    }
}

GO_TEST(a_value_that_only_a_register_holds_is_found_in_every_state)
{
    uint64_t me = gs_id(gs_self());
    gs_g *gs[HOLDERS];
    int round, i;
    CHECK_EQ(pipe(pipe_of_holders), 0);
    chan_of_holders = chan_of_ints(0);
    SET(let_go, 0);
    SET(holding, 0);
    for (i = 0; i < HOLDERS; i++) {
        holders[i].state = (enum state)(i % STATES);
        holders[i].inverted = ~(UINT64_C(0x5eed0000c0ffee00) + (uintptr_t)i * 2 + 1);
        gs[i] = go_ref(hold, &holders[i]);
    }
    WAIT_UNTIL(GET(holding) == HOLDERS);
    /* At first some have just begun, or are just leaving their P's. */
    for (round = 0; round < 12; round++) {
        CHECK_EQ(gs_stop_the_world(), 0);
        for (i = 0; i < HOLDERS; i++)
            holders[i].found = 0;
        CHECK_EQ(gs_foreach_g(find_values, &me), 0);
        CHECK_EQ(gs_start_the_world(), 0);
        for (i = 0; round > 5 && i < HOLDERS; i++)
            if (!holders[i].found)
                CHECK_EQ((int)holders[i].state, -1);
        CHECK_EQ(gs_sleep(MS), 0);
    }
    SET(let_go, 1);
    close(pipe_of_holders[1]);
    CHECK_EQ(gs_chan_close(chan_of_holders), 0);
    for (i = 0; i < HOLDERS; i++)
        join(gs[i]);
    CHECK_EQ(gs_chan_free(chan_of_holders), 0);
    close(pipe_of_holders[0]);
}
