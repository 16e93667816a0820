/*
 * What embedders get: parking by hand, the stopped world.
 */
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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
    CHECK_EQ(gs_park(refuse, &called, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_park(refuse, &called, 1), -ETIMEDOUT);
    CHECK_EQ(called, 0);
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
        /* It still names the goroutine that has ended, not a goroutine that begins now. */
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

/* Loses its P in each block, and runs nevertheless when it comes back. */
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

/* No goroutine moves, though loops spin, others call and one is blocked in the kernel. */
static void stop_and_look(uint64_t me, int goroutines)
{
    int i;
    for (i = 0; i < 10; i++) {
        long before, later;
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_stop_the_world(), -EDEADLK);
        /* A goroutine that comes back from the kernel now is stopped soon. */
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

/* A goroutine that waits for a page, as for one on a disk, is in the middle of its own code: when the page comes it must
 * not go on while the world is stopped. */
static long counted;
static int flag;
static char *page;

static void touch_and_count(void *arg)
{
    (void)arg;
    CHECK_EQ(*(volatile char *)page, 0);
    while (GET(flag) == 0)
        ADD(counted, 1);
}

enum { PAGE = 4096 };

static struct uffdio_range of_page(void)
{
    struct uffdio_range range = {.start = (uintptr_t)page, .len = PAGE};
    return range;
}

/* A file that tells of faults in the page, which has no memory yet; -1: the system refuses. */
static int open_page_faults(void)
{
    const int user_mode_only = 1;
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register missing = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | user_mode_only);
    if (faults < 0)
        return -1;
    CHECK_EQ(ioctl(faults, UFFDIO_API, &api), 0);
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    missing.range = of_page();
    CHECK_EQ(ioctl(faults, UFFDIO_REGISTER, &missing), 0);
    return faults;
}

/* Stops the world while a goroutine waits for a page: before or after its P was taken. */
static void stop_in_a_page_fault(int faults, bool at_once)
{
    struct uffdio_zeropage zero = {.range = of_page()};
    struct uffd_msg message;
    gs_g *g;
    SET(flag, 0);
    SET(counted, 0);
    g = go_ref(touch_and_count, NULL);
    /* With one P: this goroutine runs again once the other has lost the P. */
    while (read(faults, &message, sizeof message) != sizeof message)
        gs_yield();
    CHECK_EQ(message.event, UFFD_EVENT_PAGEFAULT);
    if (!at_once)
        CHECK_EQ(gs_sleep(3 * MS), 0);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(ioctl(faults, UFFDIO_ZEROPAGE, &zero), 0);
    nap(10 * MS);
    CHECK_EQ(GET(counted), 0);
    CHECK_EQ(gs_start_the_world(), 0);
    WAIT_UNTIL(GET(counted) > 0);
    SET(flag, 1);
    join(g);
    close(faults);
    CHECK_EQ(munmap(page, PAGE), 0);
}

GO_TEST(one_in_a_page_fault_stops_with_the_world)
{
    int i;
    for (i = 0; i < 20; i++) {
        int faults = open_page_faults();
        if (faults < 0)
            SKIP("the system refuses userfaultfd");
        stop_in_a_page_fault(faults, i % 2);
    }
}

/* Computes for a while, in which it may lend its P, and blocks without saying so. */
static void compute_and_block(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        int64_t until = clock_now() + 1 * MS;
        while (clock_now() < until && !GET(stop))
            ADD(counted, 1);
        nap(1 * MS);
    }
}

/* The stopper, back from its sleep, has the P on loan from a goroutine that blocks. That goroutine must not go on for long
 * in the stopped world. */
GO_TEST(a_lender_stops_with_the_world)
{
    int i;
    gs_g *g;
    SET(stop, 0);
    g = go_ref(compute_and_block, NULL);
    for (i = 0; i < 100; i++) {
        long before, later;
        CHECK_EQ(gs_sleep(1 * MS + i * 10 * US), 0);
        CHECK_EQ(gs_stop_the_world(), 0);
        do {
            before = GET(counted);
            nap(3 * MS);
            later = GET(counted);
        } while (before != later);
        CHECK_EQ(gs_start_the_world(), 0);
    }
    SET(stop, 1);
    join(g);
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

/* A collector stops the world in the middle of an allocation from its thread's lists: no other goroutine may run there
 * meanwhile, even if others stop the world too and the collector's goroutine has lost its P without knowing. */
static _Thread_local int in_use_here;

/* Not inlined, and not known to return the same address again: compilers keep the address of a thread-local variable
 * across calls. */
static __attribute__((noinline)) int *in_use(void)
{
    __asm__ volatile("" : : : "memory");
    return &in_use_here;
}

static void stop_in_the_middle(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 40; i++) {
        pid_t thread;
        /* Long enough for others to take the P; a goroutine that is preempted here stays on its thread. */
        CHECK_EQ(*in_use(), 0);
        thread = thread_id();
        ++*in_use();
        nap(i % 4 == 0 ? 5 * MS : 0);
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(thread_id(), thread);
        CHECK_EQ(gs_start_the_world(), 0);
        CHECK_EQ(thread_id(), thread);
        CHECK_EQ(*in_use(), 1);
        --*in_use();
        gs_yield();
    }
}

GO_TEST(a_stopper_stays_on_its_thread)
{
    gs_g *g[6];
    int i;
    for (i = 0; i < 6; i++) {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        /* Two are not stopped by the signal; pinned ones share threads with others. */
        opts.flags = i == 0 ? GS_SPAWN_NOSIGNAL : i < 4 ? GS_SPAWN_PINNED : 0;
        CHECK_EQ(gs_spawn_with(stop_in_the_middle, NULL, &opts, &g[i]), 0);
    }
    for (i = 0; i < 6; i++)
        join(g[i]);
}

/* The registers of a goroutine that is blocked in the kernel are shown, and other signals still reach its thread:
 * a collector of the host's may stop threads by a signal. */
static int signalled;
static pthread_t blocked_on;
static int is_blocked;

static void on_usr1(int sig)
{
    (void)sig;
    ADD(signalled, 1);
}

static void block_in_read(void *arg)
{
    char c;
    (void)arg;
    blocked_on = pthread_self();
    SET(is_blocked, 1);
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, arg, NULL), 0);
    while (read(fds[0], &c, 1) != 1)
        CHECK_EQ(errno, EINTR);
}

TEST(signals_reach_a_thread_that_shows_its_registers)
{
    struct sigaction action, before;
    sigset_t usr1;
    uint64_t no_id = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_usr1;
    action.sa_flags = SA_RESTART;
    CHECK_EQ(sigaction(SIGUSR1, &action, &before), 0);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    SET(is_blocked, 0);
    SET(signalled, 0);
    CHECK_EQ(pipe(fds), 0);
    go(block_in_read, &usr1);
    NAP_UNTIL(GET(is_blocked));
    nap(15 * MS);
    CHECK_EQ(gs_stop_the_world(), 0);
    seen = with_registers = outside = 0;
    CHECK_EQ(gs_foreach_g(look, &no_id), 0);
    CHECK_EQ(seen, 1);
    CHECK_EQ(pthread_kill(blocked_on, SIGUSR1), 0);
    NAP_UNTIL(GET(signalled) == 1);
    CHECK_EQ(gs_start_the_world(), 0);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    NAP_UNTIL(gs_num_goroutines() == 0);
    CHECK_EQ(sigaction(SIGUSR1, &before, NULL), 0);
    close(fds[0]);
    close(fds[1]);
}

/* In gs_blocking the caller is on its thread's stack, and its goroutine at rest on its own. */
static void *stop_in_blocking(void *me)
{
    CHECK_EQ(gs_stop_the_world(), 0);
    seen = outside = myself = 0;
    CHECK_EQ(gs_foreach_g(look, me), 0);
    CHECK_EQ(outside, 0);
    CHECK_EQ(gs_start_the_world(), 0);
    return me;
}

GO_TEST(the_world_is_stopped_in_gs_blocking)
{
    uint64_t no_id = UINT64_MAX;
    CHECK(gs_blocking(stop_in_blocking, &no_id) == &no_id);
    CHECK_GE(seen, 1);
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

/* ---- What is known of a goroutine ---- */

static struct {
    gs_chan *ch;
    gs_mutex m, cm;
    gs_rwmutex rw;
    gs_cond c;
    gs_waitgroup wg;
    gs_sem sem;
    int fds[2];
    gs_g *joined;
} at;

static void wait_recv(void *a) { int64_t v; (void)a; (void)gs_chan_recv(at.ch, &v, GS_FOREVER); }
static void wait_send(void *a) { int64_t v = 0; (void)a; (void)gs_chan_send(at.ch, &v, GS_FOREVER); }
static void wait_select(void *a)
{
    int64_t v;
    gs_case c = recv_case(at.ch, &v);
    (void)a;
    (void)gs_select(&c, 1, GS_FOREVER);
}
static void wait_nothing(void *a) { (void)a; (void)gs_select(NULL, 0, GS_FOREVER); }
static void wait_mutex(void *a) { (void)a; (void)gs_mutex_lock(&at.m, GS_FOREVER); }
static void wait_rlock(void *a) { (void)a; (void)gs_rwmutex_rlock(&at.rw, GS_FOREVER); }
static void wait_wlock(void *a) { (void)a; (void)gs_rwmutex_lock(&at.rw, GS_FOREVER); }
static void wait_wg(void *a) { (void)a; (void)gs_waitgroup_wait(&at.wg, GS_FOREVER); }
static void wait_sem(void *a) { (void)a; (void)gs_sem_acquire(&at.sem, 1, GS_FOREVER); }
static void wait_join(void *a) { (void)a; (void)gs_join(at.joined, GS_FOREVER); }
static void wait_sleep(void *a) { (void)a; (void)gs_sleep(3600 * SEC); }
static void wait_file(void *a) { char c; (void)a; (void)gs_read(at.fds[0], &c, 1, GS_FOREVER); }
static void wait_park(void *a) { (void)a; (void)gs_park(NULL, NULL, GS_FOREVER); }
static void wait_cond(void *a)
{
    (void)a;
    CHECK_EQ(gs_mutex_lock(&at.cm, GS_FOREVER), 0);
    (void)gs_cond_wait(&at.c, &at.cm, GS_FOREVER);
    CHECK_EQ(gs_mutex_unlock(&at.cm), 0);
}

static const struct {
    gs_fn fn;
    const char *reason;
} waits[] = {
    {wait_recv, "chan receive"}, {wait_select, "select"},         {wait_nothing, "select (no cases)"},
    {wait_mutex, "sync.Mutex.Lock"}, {wait_rlock, "sync.RWMutex.RLock"}, {wait_wlock, "sync.RWMutex.Lock"},
    {wait_cond, "sync.Cond.Wait"}, {wait_wg, "sync.WaitGroup.Wait"}, {wait_sem, "semacquire"},
    {wait_join, "join"},         {wait_sleep, "sleep"},           {wait_file, "IO wait"},
    {wait_park, "gs_park"},
};

static gs_g_info info_of(const gs_g *g)
{
    gs_g_info info;
    memset(&info, 0xaa, sizeof info);
    CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    return info;
}

static gs_g *go_named(gs_fn fn, const char *name)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.name = name;
    return go_opts(fn, NULL, &opts);
}

static void end_wait(gs_g *g)
{
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

GO_TEST(what_a_goroutine_waits_for_is_known)
{
    int64_t start = gs_now();
    size_t i;
    memset(&at, 0, sizeof at);
    at.ch = chan_of_ints(0);
    at.joined = go_ref(wait_sleep, NULL);
    CHECK_EQ(pipe(at.fds), 0);
    CHECK_EQ(gs_mutex_lock(&at.m, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_lock(&at.rw, GS_FOREVER), 0);
    CHECK_EQ(gs_waitgroup_add(&at.wg, 1), 0);
    CHECK_EQ(gs_sem_init(&at.sem, 0), 0);
    for (i = 0; i < LENGTH(waits); i++) {
        gs_g *g = go_named(waits[i].fn, waits[i].reason);
        gs_g_info info;
        const char *from = (const char *)(uintptr_t)go_opts, *place;
        WAIT_UNTIL(info_of(g).state == GS_G_WAITING);
        info = info_of(g);
        snprintf(check_note, sizeof check_note, "%s: %s", waits[i].reason, info.wait_reason);
        CHECK_EQ(strcmp(info.wait_reason, waits[i].reason), 0);
        CHECK_EQ(strcmp(info.name, waits[i].reason), 0);
        CHECK_EQ(info.id, gs_id(g));
        CHECK_EQ(info.creator, gs_id(gs_self()));
        CHECK(info.spawned_at != NULL && from != NULL);
        place = info.spawned_at;
        CHECK(labs((long)(place - from)) < 1 << 20); /* somewhere in this program */
        CHECK(info.since > 0 && info.since <= gs_now());
        CHECK(info.since > start - 10 * SEC);
        CHECK(info.stack_lo == NULL && info.stack_hi == NULL && info.sp == NULL && info.regs == NULL);
        CHECK_GE(info.node, 0);
        end_wait(g);
    }
    check_note[0] = 0;
    end_wait(at.joined);
    free_chan(at.ch);
    at.ch = chan_of_ints(0);
    {
        gs_g *g = go_ref(wait_send, NULL);
        WAIT_UNTIL(info_of(g).state == GS_G_WAITING);
        CHECK_EQ(strcmp(info_of(g).wait_reason, "chan send"), 0);
        CHECK(info_of(g).name == NULL);
        end_wait(g);
    }
    free_chan(at.ch);
    close(at.fds[0]);
    close(at.fds[1]);
}

static void block_in_a_call(void *from)
{
    char c;
    CHECK_EQ(gs_entersyscall(), 0);
    CHECK_EQ(read(*(int *)from, &c, 1), 1);
    CHECK_EQ(gs_exitsyscall(), 0);
}

GO_TEST(who_runs_is_in_a_call_or_has_ended_is_known)
{
    int p[2];
    gs_g *g;
    gs_g_info info = info_of(gs_self());
    CHECK_EQ(info.state, GS_G_RUNNING);
    CHECK(info.wait_reason == NULL && info.since == 0 && info.creator == 0);
    CHECK_EQ(info.id, gs_id(gs_self()));
    CHECK_EQ(pipe(p), 0);
    g = go_ref(block_in_a_call, p);
    WAIT_UNTIL(info_of(g).state == GS_G_SYSCALL);
    CHECK(info_of(g).wait_reason == NULL && info_of(g).since > 0);
    CHECK(info_of(g).arg == (void *)p);
    CHECK_EQ(write(p[1], "x", 1), 1);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    CHECK_EQ(info_of(g).state, GS_G_ENDED);
    gs_release(g);
    close(p[0]);
    close(p[1]);
}

/* The clock of `since` stands while all sleep, and must not be found so by who runs next. */
GO_TEST(since_when_one_waits_is_known_after_all_have_slept)
{
    int tries = 0;
    int64_t before, since;
    do {
        gs_g *g;
        CHECK_EQ(gs_sleep(10 * MS), 0);
        before = gs_now();
        CHECK_EQ(gs_sleep(100 * MS), 0);
        g = go_ref(wait_park, NULL);
        YIELD_UNTIL(info_of(g).state == GS_G_WAITING);
        since = info_of(g).since;
        CHECK_LE(since, gs_now());
        end_wait(g);
    } while (since < before && ++tries < 20);
    CHECK_GE(since, before);
}

static int named_seen, unborn_seen;

static void look_at_names(const gs_g_info *g, void *arg)
{
    (void)arg;
    named_seen += g->name && strcmp(g->name, "named") == 0 && g->state == GS_G_WAITING && g->since > 0 &&
                  strcmp(g->wait_reason, "sleep") == 0;
    unborn_seen += g->stack_lo == NULL && g->spawned_at != NULL && g->arg == (void *)&unborn_seen;
    CHECK((g->wait_reason != NULL) == (g->state == GS_G_WAITING));
}

GO_TEST(names_and_reasons_are_seen_in_the_stopped_world)
{
    gs_g *g = go_named(wait_sleep, "named");
    int i;
    WAIT_UNTIL(info_of(g).state == GS_G_WAITING);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_start_the_world(), 0);
    for (i = 0; i < 5; i++)
        go(nothing, &unborn_seen);
    CHECK_EQ(gs_stop_the_world(), 0);
    named_seen = unborn_seen = 0;
    CHECK_EQ(gs_foreach_g(look_at_names, NULL), 0);
    CHECK_EQ(gs_start_the_world(), 0);
    CHECK_EQ(named_seen, 1);
    if (gs_gomaxprocs(0) == 1)
        CHECK_EQ(unborn_seen, 5);
    end_wait(g);
}

static void read_infos(gs_g *g)
{
    struct {
        gs_g_info info;
        char more[32];
    } longer;
    char name[8];
    size_t i;
    CHECK_EQ(gs_g_info_read(NULL, &longer.info, sizeof longer.info), -EINVAL);
    CHECK_EQ(gs_g_info_read(g, NULL, sizeof longer.info), -EINVAL);
    memset(&longer, 0x77, sizeof longer);
    CHECK_EQ(gs_g_info_read(g, &longer.info, 88), -EINVAL);
    CHECK_EQ(gs_g_info_read(g, &longer.info, SIZE_MAX), -EINVAL);
    CHECK_EQ(longer.info.id, 0x7777777777777777);
    CHECK_EQ(gs_g_info_read(g, &longer.info, sizeof longer), 0);
    CHECK_EQ(longer.info.id, gs_id(g));
    for (i = 0; i < sizeof longer.more; i++)
        CHECK_EQ(longer.more[i], 0);
    CHECK_EQ(gs_name(g, name, sizeof name), 10);
    CHECK_EQ(strcmp(name, "a name "), 0);
    CHECK_EQ(gs_name(g, NULL, 0), 10);
    memset(name, 'x', sizeof name);
    CHECK_EQ(gs_name(g, name, 1), 10);
    CHECK(name[0] == 0 && name[1] == 'x');
    CHECK_EQ(gs_name(g, NULL, 1), -EINVAL);
    CHECK_EQ(gs_name(NULL, name, 1), -EINVAL);
}

TEST(a_name_and_what_is_known_are_read_on_a_plain_thread)
{
    gs_g *g = go_named(nothing, "a name too"), *other = go_ref(nothing, NULL);
    char name[8] = "x";
    read_infos(g);
    CHECK_EQ(info_of(g).creator, 0);
    CHECK_EQ(gs_name(other, name, sizeof name), 0);
    CHECK_EQ(name[0], 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    CHECK_EQ(gs_join(other, GS_FOREVER), 0);
    gs_release(other);
    read_infos(g);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    read_infos(g); /* the reference keeps it */
    CHECK_EQ(info_of(g).state, GS_G_ENDED);
    gs_release(g);
}

/* ---- What a collector must find: a value on the stack and a value that only a register holds, in every state ---- */

enum state {
    RECEIVES, SELECTS, LOCKS, SLEEPS, WAITS_FOR_A_FILE, PARKS, IS_PINNED, HAS_LOCKED_ITS_THREAD, YIELDS, ANNOUNCES,
    BLOCKS, IS_IN_GS_BLOCKING, COMPUTES, WAITS_IN_A_CALL, STATES
};

/* NEW ones have not run, most of them, when they are looked at, and so have only their arguments. */
enum { HOLDERS = 2 * STATES, NEW = 8 };

/* The values are kept inverted everywhere else. */
static struct holder {
    uintptr_t inverted, on_stack;
    enum state state;
    int found, found_on_stack;
} holders[HOLDERS];
static int pipe_of_holders[2], pipe_to_wait_for[2], holding, let_go, found_new[NEW];
static gs_chan *chan_of_holders;
static gs_mutex mutex_of_holders;

static uintptr_t value_of(const struct holder *h)
{
    return ~h->inverted;
}

static uintptr_t new_value(int i)
{
    return 0x5eed0001c0ffee01 + (uintptr_t)i * 2;
}

static void receive(void)
{
    int64_t none;
    CHECK_EQ(gs_chan_recv(chan_of_holders, &none, GS_FOREVER), -EPIPE);
}

static void select_one(void)
{
    int64_t none;
    gs_case c[2];
    c[0] = recv_case(NULL, &none);
    c[1] = recv_case(chan_of_holders, &none);
    CHECK_EQ(gs_select(c, 2, GS_FOREVER), 1);
}

static void lock(void)
{
    CHECK_EQ(gs_mutex_lock(&mutex_of_holders, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&mutex_of_holders), 0);
}

static void sleep_until_cancelled(void)
{
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
}

static void wait_for_a_file(void)
{
    char byte;
    CHECK_EQ(gs_read(pipe_to_wait_for[0], &byte, 1, GS_FOREVER), 0);
}

static void park_until_cancelled(void)
{
    CHECK_EQ(gs_park(NULL, NULL, GS_FOREVER), -ECANCELED);
}

static void lock_thread(void)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
    receive();
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void yield_in_register(void)
{
    YIELD_UNTIL(GET(let_go));
}

static void *read_in_blocking(void *arg)
{
    char byte;
    CHECK_EQ(read(pipe_of_holders[0], &byte, 1), 0);
    return arg;
}

static void call_gs_blocking(void)
{
    CHECK(gs_blocking(read_in_blocking, NULL) == NULL);
}

static void wait_in_a_call(void)
{
    gs_entersyscall();
    receive();
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
#if defined(__aarch64__)
    register uintptr_t value __asm__("x20") = inverted;
    register long number __asm__("x8") = SYS_read, third __asm__("x2") = 1;
    register long result __asm__("x0") = pipe_of_holders[0];
    register char *second __asm__("x1") = &byte;
    __asm__ volatile("mvn %1, %1\n\t"
                     "svc #0\n\t"
                     "mvn %1, %1"
                     : "+r"(result), "+r"(value)
                     : "r"(number), "r"(second), "r"(third)
                     : "memory", "cc");
#else
    long result = SYS_read;
    register uintptr_t value __asm__("r12") = inverted;
    __asm__ volatile("not %1\n\t"
                     "syscall\n\t"
                     "not %1"
                     : "+a"(result), "+r"(value)
                     : "D"(pipe_of_holders[0]), "S"(&byte), "d"(1L)
                     : "rcx", "r11", "memory", "cc");
#endif
    CHECK_EQ(result, 0);
}

/* Calls fn in the same way. On x86-64 rbx keeps the stack pointer. */
static __attribute__((noinline)) void call_with_value(uintptr_t inverted, void (*fn)(void))
{
#if defined(__aarch64__)
    register uintptr_t value __asm__("x20") = inverted;
    __asm__ volatile("mvn %0, %0\n\t"
                     "blr %1\n\t"
                     "mvn %0, %0"
                     : "+r"(value)
                     : "r"(fn)
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
                       "x16", "x17", "x18", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19",
                       "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc");
#else
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
#endif
}

static void (*const in_state[STATES])(void) = {
    [RECEIVES] = receive,
    [SELECTS] = select_one,
    [LOCKS] = lock,
    [SLEEPS] = sleep_until_cancelled,
    [WAITS_FOR_A_FILE] = wait_for_a_file,
    [PARKS] = park_until_cancelled,
    [IS_PINNED] = receive,
    [HAS_LOCKED_ITS_THREAD] = lock_thread,
    [YIELDS] = yield_in_register,
    [IS_IN_GS_BLOCKING] = call_gs_blocking,
    [COMPUTES] = compute_in_register,
    [WAITS_IN_A_CALL] = wait_in_a_call,
};

static void hold(void *arg)
{
    struct holder *h = arg;
    uintptr_t inverted = h->inverted;
    volatile uintptr_t kept = ~h->on_stack;
    ADD(holding, 1);
    if (h->state == ANNOUNCES) {
        gs_entersyscall();
        read_with_value(inverted);
        gs_exitsyscall();
    } else if (h->state == BLOCKS) {
        read_with_value(inverted);
    } else {
        call_with_value(inverted, in_state[h->state]);
    }
    CHECK_EQ(kept, ~h->on_stack);
    kept = 0;
}

static void hold_its_argument(void *value)
{
    (void)value;
    receive();
}

static void find_in(const uintptr_t *from, const uintptr_t *to)
{
    int i;
    for (; from < to; from++)
        for (i = 0; i < HOLDERS; i++) {
            holders[i].found |= *from == value_of(&holders[i]);
            holders[i].found_on_stack |= *from == ~holders[i].on_stack;
        }
}

static void find_values(const gs_g_info *g, void *me)
{
    if (g->id == *(uint64_t *)me && g->id != 0)
        return;
    for (int i = 0; i < NEW; i++)
        found_new[i] |= g->arg == (void *)new_value(i);
    find_in((void *)((uintptr_t)g->sp & ~(uintptr_t)7), g->stack_hi);
    if (g->regs) {
        const mcontext_t *context = &((const ucontext_t *)g->regs)->uc_mcontext;
#if defined(__aarch64__)
        const uintptr_t *regs = (const void *)context->regs;
        find_in(regs, regs + 31);
#else
        const uintptr_t *regs = (const void *)context->gregs;
        find_in(regs, regs + NGREG);
#endif
    }
}

GO_TEST(values_on_the_stack_and_in_a_register_are_found_in_every_state)
{
    uint64_t me = gs_id(gs_self());
    gs_g *gs[HOLDERS], *new_ones[NEW];
    int round, i;
    CHECK_EQ(pipe(pipe_of_holders), 0);
    CHECK_EQ(pipe(pipe_to_wait_for), 0);
    chan_of_holders = chan_of_ints(0);
    memset(&mutex_of_holders, 0, sizeof mutex_of_holders);
    CHECK_EQ(gs_mutex_lock(&mutex_of_holders, GS_FOREVER), 0);
    SET(let_go, 0);
    SET(holding, 0);
    for (i = 0; i < HOLDERS; i++) {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        holders[i].state = (enum state)(i % STATES);
        holders[i].inverted = ~(UINT64_C(0x5eed0000c0ffee00) + (uintptr_t)i * 2 + 1);
        holders[i].on_stack = ~(UINT64_C(0x5eed0002c0ffee00) + (uintptr_t)i * 2 + 1);
        opts.flags = holders[i].state == IS_PINNED ? GS_SPAWN_PINNED : 0;
        gs[i] = go_opts(hold, &holders[i], &opts);
    }
    WAIT_UNTIL(GET(holding) == HOLDERS);
    /* At first some have just begun, or are just leaving their P's. */
    for (round = 0; round < 12; round++) {
        if (round == 6)
            for (i = 0; i < NEW; i++) {
                new_ones[i] = NULL;
                if (i % 2)
                    new_ones[i] = go_ref(hold_its_argument, (void *)new_value(i));
                else
                    go(hold_its_argument, (void *)new_value(i));
            }
        CHECK_EQ(gs_stop_the_world(), 0);
        for (i = 0; i < HOLDERS; i++)
            holders[i].found = holders[i].found_on_stack = 0;
        memset(found_new, 0, sizeof found_new);
        CHECK_EQ(gs_foreach_g(find_values, &me), 0);
        CHECK_EQ(gs_start_the_world(), 0);
        for (i = 0; round > 5 && i < HOLDERS; i++) {
            snprintf(check_note, sizeof check_note, "state %d", (int)holders[i].state);
            CHECK(holders[i].found);
            CHECK(holders[i].found_on_stack);
        }
        for (i = 0; round > 5 && i < NEW; i++)
            CHECK(found_new[i]);
        CHECK_EQ(gs_sleep(MS), 0);
    }
    check_note[0] = 0;
    SET(let_go, 1);
    close(pipe_of_holders[1]);
    close(pipe_to_wait_for[1]);
    CHECK_EQ(gs_mutex_unlock(&mutex_of_holders), 0);
    CHECK_EQ(gs_chan_close(chan_of_holders), 0);
    for (i = 0; i < HOLDERS; i++) {
        if (holders[i].state == SLEEPS || holders[i].state == PARKS)
            CHECK_EQ(gs_cancel(gs[i]), 0);
        join(gs[i]);
    }
    for (i = 1; i < NEW; i += 2)
        join(new_ones[i]);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    CHECK_EQ(gs_chan_free(chan_of_holders), 0);
    close(pipe_of_holders[0]);
    close(pipe_to_wait_for[0]);
}

static void *nothing_there(void *arg)
{
    return arg;
}

struct stopper {
    int how, stopped;
};

static struct stopper calls_in_a_stop;

/* Stops the world and makes calls meanwhile, which end although no other goroutine runs. */
static void stop_and_call(void *arg)
{
    struct stopper *s = arg;
    for (int i = 0; i < 200; i++) {
        int p[2];
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(ADD(s->stopped, 1), 1);
        switch (GET(s->how)) {
        case 0:
            gs_entersyscall();
            nap(i % 10 ? 0 : 200 * US);
            CHECK_EQ(gs_exitsyscall(), 0);
            break;
        case 1:
            CHECK(gs_blocking(nothing_there, s) == s);
            break;
        case 2:
            CHECK_EQ(pipe(p), 0);
            CHECK_EQ(gs_close(p[0]), 0);
            CHECK_EQ(gs_close(p[1]), 0);
            break;
        default:
            gs_entersyscallblock();
            CHECK_EQ(gs_exitsyscall(), 0);
        }
        CHECK_EQ(ADD(s->stopped, -1), 0);
        CHECK_EQ(gs_start_the_world(), 0);
        if (i % 50 == 0)
            gs_yield();
    }
}

/* Comes back from calls of its own meanwhile, and must not get the stopper's P. */
static void call_beside_a_stopper(void *arg)
{
    struct stopper *s = arg;
    while (GET(s->how) >= 0) {
        gs_entersyscall();
        nap(50 * US);
        CHECK_EQ(gs_exitsyscall(), 0);
        gs_yield();
    }
}

/* The stopper left its thread, if `gs_run` had lent that, or its P, and waited for ever for another. */
GO_TEST(a_stopper_of_the_world_makes_calls)
{
    gs_g *callers[2], *stoppers[2];
    struct stopper *s = &calls_in_a_stop;
    for (int i = 0; i < 2; i++)
        callers[i] = go_steady(call_beside_a_stopper, s);
    for (int how = 0; how < 4; how++) {
        SET(s->how, how);
        for (int i = 0; i < 2; i++)
            stoppers[i] = go_steady(stop_and_call, s);
        for (int i = 0; i < 2; i++)
            join(stoppers[i]);
    }
    SET(s->how, -1);
    for (int i = 0; i < 2; i++)
        join(callers[i]);
}

/* The world is started within the call. */
GO_TEST(a_call_of_the_stopper_outlasts_the_stop)
{
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(gs_stop_the_world(), 0);
        gs_entersyscall();
        CHECK_EQ(gs_start_the_world(), 0);
        nap(i % 10 ? 0 : 200 * US);
        CHECK_EQ(gs_exitsyscall(), 0);
        gs_yield();
    }
}
