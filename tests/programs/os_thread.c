/*
 * Goroutines that stay on one thread: gs_lock_os_thread and GS_SPAWN_PINNED.
 * seed: S9 (P and G are handed to the locked M when the G becomes runnable)
 */
#include "check.h"

#include <sys/prctl.h>

static void lock_thread(void)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
}

static void unlock_thread(void)
{
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void *do_nothing(void *arg)
{
    return arg;
}

/* Gives up the thread in one way or another. */
static gs_chan *meeting;

static void go_away(int i)
{
    int64_t v = i;
    gs_case c[2];
    switch (i % 6) {
    case 0:
        CHECK_EQ(gs_sleep(20 * US), 0);
        break;
    case 1:
        c[0] = send_case(meeting, &v);
        c[1] = recv_case(meeting, &v);
        (void)gs_select(c, 2, gs_after_us(50));
        break;
    case 2:
        gs_entersyscall();
        nap(20 * US);
        gs_exitsyscall();
        break;
    case 3:
        (void)gs_blocking(do_nothing, NULL);
        break;
    default:
        gs_yield();
    }
}

/* ---- Locking ---- */

#define LOCKERS 20

static pid_t locked_tids[LOCKERS];

static int is_locked_tid(pid_t tid)
{
    int i;
    for (i = 0; i < LOCKERS; i++)
        if (GET(locked_tids[i]) == tid)
            return 1;
    return 0;
}

static void stay_locked(void *slot)
{
    pid_t *mine = slot, tid;
    int i;
    lock_thread();
    tid = thread_id();
    CHECK(!is_locked_tid(tid)); /* no other goroutine runs on a locked thread */
    SET(*mine, tid);
    for (i = 0; i < 60; i++) {
        go_away(i);
        CHECK_EQ(thread_id(), tid);
    }
    SET(*mine, 0);
    unlock_thread();
    gs_yield();
}

static int stop;

static void be_nowhere_locked(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        CHECK(!is_locked_tid(thread_id()));
        gs_yield();
    }
}

GO_TEST(a_locked_goroutine_stays_on_its_thread_alone)
{
    gs_g *gs[LOCKERS], *others[8];
    int i;
    meeting = chan_of_ints(0);
    SET(stop, 0);
    for (i = 0; i < 8; i++)
        others[i] = go_ref(be_nowhere_locked, NULL);
    for (i = 0; i < LOCKERS; i++)
        gs[i] = go_ref(stay_locked, &locked_tids[i]);
    for (i = 0; i < LOCKERS; i++)
        join(gs[i]);
    SET(stop, 1);
    for (i = 0; i < 8; i++)
        join(others[i]);
    free_chan(meeting);
}

GO_TEST(locks_nest)
{
    pid_t tid;
    int i;
    meeting = chan_of_ints(0);
    for (i = 0; i < 10; i++)
        lock_thread();
    tid = thread_id();
    for (i = 0; i < 9; i++)
        unlock_thread();
    for (i = 0; i < 60; i++) {
        go_away(i);
        CHECK_EQ(thread_id(), tid); /* one lock is left */
    }
    unlock_thread();
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
    free_chan(meeting);
}

GO_TEST(a_surplus_unlock_is_EPERM_and_changes_nothing)
{
    pid_t tid;
    int i;
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
    lock_thread();
    tid = thread_id();
    for (i = 0; i < 20; i++) {
        gs_yield();
        CHECK_EQ(thread_id(), tid);
    }
    unlock_thread();
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
}

static void check_not_locked(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
}

GO_TEST(a_lock_is_not_inherited)
{
    lock_thread();
    join(go_ref(check_not_locked, NULL));
    unlock_thread();
}

TEST(on_a_plain_thread_they_do_no_harm)
{
    (void)gs_lock_os_thread();
    (void)gs_unlock_os_thread();
    (void)gs_unlock_os_thread();
    join(go_ref(check_not_locked, NULL));
}

/* ---- Locked goroutines that wait for each other ---- */

struct pair {
    gs_chan *there, *back;
};

static void locked_echo(void *arg)
{
    struct pair *p = arg;
    int64_t v;
    pid_t tid;
    lock_thread();
    tid = thread_id();
    while (gs_chan_recv(p->there, &v, GS_FOREVER) == 0) {
        CHECK_EQ(thread_id(), tid);
        send_int(p->back, v + 1);
    }
    unlock_thread();
}

static void locked_ping_pong(void)
{
    struct pair p = {chan_of_ints(0), chan_of_ints(0)};
    gs_g *g = go_ref(locked_echo, &p);
    int64_t i;
    lock_thread();
    for (i = 0; i < 300; i++) {
        send_int(p.there, i);
        CHECK_EQ(recv_int(p.back), i + 1);
    }
    unlock_thread();
    CHECK_EQ(gs_chan_close(p.there), 0);
    join(g);
    free_chan(p.there);
    free_chan(p.back);
}

GO_TEST(two_locked_goroutines_play_ping_pong)
{
    int procs;
    locked_ping_pong();
    procs = gs_gomaxprocs(1);
    locked_ping_pong();
    gs_gomaxprocs(procs);
}

/* Go's TestYieldLocked and TestBlockLocked. */
static void yield_locked(void *ch)
{
    int i;
    lock_thread();
    for (i = 0; i < 10; i++) {
        gs_yield();
        CHECK_EQ(gs_sleep(MS), 0);
    }
    send_int(ch, 1);
    unlock_thread();
}

GO_TEST(a_locked_goroutine_yields_and_sleeps)
{
    gs_chan *ch = chan_of_ints(0);
    go(yield_locked, ch);
    CHECK_EQ(recv_int(ch), 1);
    free_chan(ch);
}

static void feed_from_locked(void *ch)
{
    int64_t i;
    lock_thread();
    for (i = 0; i < 10; i++)
        send_int(ch, i);
    unlock_thread();
    CHECK_EQ(gs_chan_close(ch), 0);
}

GO_TEST(a_locked_goroutine_blocks_on_a_channel)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = go_ref(feed_from_locked, ch);
    int64_t i;
    for (i = 0; i < 10; i++)
        CHECK_EQ(recv_int(ch), i);
    CHECK_EQ(gs_chan_recv(ch, NULL, GS_FOREVER), -EPIPE);
    join(g);
    free_chan(ch);
}

static void *wake_from_thread(void *ch)
{
    nap(2 * MS);
    send_int(ch, 1);
    return NULL;
}

GO_TEST(a_foreign_thread_wakes_a_locked_goroutine)
{
    gs_chan *ch = chan_of_ints(0);
    pid_t tid;
    int i;
    lock_thread();
    tid = thread_id();
    for (i = 0; i < 10; i++) {
        pthread_t t = start_thread(wake_from_thread, ch);
        CHECK_EQ(recv_int(ch), 1);
        CHECK_EQ(thread_id(), tid);
        go_join_thread(t);
    }
    unlock_thread();
    free_chan(ch);
}

/* ---- Ending while locked ---- */

static pid_t ended_on;

static void end_locked(void *arg)
{
    (void)arg;
    lock_thread();
    lock_thread();
    SET(ended_on, thread_id());
}

static void exit_locked(void *arg)
{
    end_locked(arg);
    gs_exit();
}

/* Without gs_run all threads that run goroutines are the library's. */
static void check_thread_ends(gs_fn fn)
{
    int i;
    for (i = 0; i < 5; i++) {
        join(go_ref(fn, NULL));
        CHECK(ended_on != thread_id());
        NAP_UNTIL(thread_state(ended_on) == 0);
    }
}

TEST(a_goroutine_that_ends_locked_ends_its_thread)
{
    check_thread_ends(end_locked);
    check_thread_ends(exit_locked);
}

static void set_flag(void *flag)
{
    SET(*(int *)flag, 1);
}

TEST(work_goes_on_after_threads_have_ended)
{
    int i, flag;
    for (i = 0; i < 50; i++) {
        flag = 0;
        go(end_locked, NULL);
        join(go_ref(set_flag, &flag));
        CHECK_EQ(flag, 1);
    }
}

static pid_t caller;

static void run_and_end_locked(void *arg)
{
    end_locked(arg);
}

TEST(the_caller_of_run_survives_a_goroutine_that_ends_locked)
{
    int i;
    caller = thread_id();
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_run(run_and_end_locked, NULL), 0);
    CHECK_EQ(thread_id(), caller);
}

static void others_end_locked(void *arg)
{
    gs_g *gs[20];
    int i;
    (void)arg;
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(end_locked, NULL);
    for (i = 0; i < 20; i++)
        join(gs[i]);
}

TEST(the_caller_of_run_survives_others_that_end_locked)
{
    int i;
    for (i = 0; i < 5; i++)
        CHECK_EQ(gs_run(others_end_locked, NULL), 0);
}

/* ---- Pinned ---- */

static __thread int thread_local_value;
static gs_g *pinned(gs_fn fn, void *arg)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_PINNED;
    return go_opts(fn, arg, &o);
}

static void stay_pinned(void *arg)
{
    pid_t tid = thread_id();
    int *mine = &thread_local_value, i;
    (void)arg;
    for (i = 0; i < 60; i++) {
        go_away(i);
        CHECK_EQ(thread_id(), tid);
        CHECK(mine == &thread_local_value);
    }
}

static void roam(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        gs_yield();
        CHECK_EQ(gs_sleep(10 * US), 0);
    }
}

GO_TEST(a_pinned_goroutine_stays_on_the_thread_of_its_first_run)
{
    gs_g *gs[100], *others[8];
    int i;
    meeting = chan_of_ints(0);
    SET(stop, 0);
    for (i = 0; i < 8; i++)
        others[i] = go_ref(roam, NULL);
    for (i = 0; i < 100; i++)
        gs[i] = pinned(stay_pinned, NULL);
    for (i = 0; i < 100; i++)
        join(gs[i]);
    SET(stop, 1);
    for (i = 0; i < 8; i++)
        join(others[i]);
    free_chan(meeting);
}

TEST(pinned_goroutines_without_run)
{
    gs_g *gs[50];
    int i;
    meeting = chan_of_ints(0);
    for (i = 0; i < 50; i++)
        gs[i] = pinned(stay_pinned, NULL);
    for (i = 0; i < 50; i++)
        join(gs[i]);
    free_chan(meeting);
}

static void pinned_echo(void *arg)
{
    struct pair *p = arg;
    pid_t tid = thread_id();
    int64_t v;
    while (gs_chan_recv(p->there, &v, GS_FOREVER) == 0) {
        CHECK_EQ(thread_id(), tid);
        send_int(p->back, v + 1);
    }
}

static void pinned_asker(void *arg)
{
    struct pair *p = arg;
    pid_t tid = thread_id();
    int64_t i;
    for (i = 0; i < 500; i++) {
        send_int(p->there, i);
        CHECK_EQ(recv_int(p->back), i + 1);
        CHECK_EQ(thread_id(), tid);
    }
    CHECK_EQ(gs_chan_close(p->there), 0);
}

GO_TEST(pinned_goroutines_hand_over_to_each_other)
{
    struct pair p[4];
    gs_g *gs[8];
    int i;
    for (i = 0; i < 4; i++) {
        p[i].there = chan_of_ints(0);
        p[i].back = chan_of_ints(0);
        gs[2 * i] = pinned(pinned_echo, &p[i]);
        gs[2 * i + 1] = pinned(pinned_asker, &p[i]);
    }
    for (i = 0; i < 8; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++) {
        free_chan(p[i].there);
        free_chan(p[i].back);
    }
}

/* Pinned goroutines may share a thread; locking takes it for oneself. */
static void lock_while_pinned(void *arg)
{
    pid_t tid = thread_id();
    int i;
    (void)arg;
    for (i = 0; i < 20; i++) {
        lock_thread();
        gs_yield();
        CHECK_EQ(thread_id(), tid);
        unlock_thread();
        gs_yield();
        CHECK_EQ(thread_id(), tid);
    }
}

GO_TEST(a_pinned_goroutine_may_lock_its_thread)
{
    gs_g *gs[10];
    int i;
    for (i = 0; i < 10; i++)
        gs[i] = pinned(lock_while_pinned, NULL);
    for (i = 0; i < 10; i++)
        join(gs[i]);
}

static void end_at_once(void *n)
{
    ADD(*(long *)n, 1);
}

GO_TEST(many_short_pinned_goroutines_end)
{
    long n = 0;
    int i;
    for (i = 0; i < 2000; i++)
        gs_release(pinned(end_at_once, &n));
    WAIT_UNTIL(GET(n) == 2000);
}

/* Pinned goroutines of a thread that ends: those of gs_run's caller, when it has returned. */
static gs_chan *gate;
static int parked;

static void park_pinned(void *arg)
{
    pid_t tid = thread_id();
    (void)arg;
    ADD(parked, 1);
    CHECK_EQ(gs_chan_recv(gate, NULL, GS_FOREVER), -EPIPE);
    CHECK_EQ(thread_id(), tid);
}

static gs_g *left[10];

static void leave_pinned_behind(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 10; i++)
        left[i] = pinned(park_pinned, NULL);
    WAIT_UNTIL(GET(parked) == 10);
    for (i = 0; i < 10; i++)
        CHECK_EQ(gs_join(left[i], GS_NOWAIT), -EAGAIN);
}

static void finish_pinned(void *arg)
{
    int i;
    (void)arg;
    CHECK_EQ(gs_chan_close(gate), 0);
    for (i = 0; i < 10; i++)
        join(left[i]);
}

/* They run again when the thread is in gs_run again. */
TEST(pinned_goroutines_survive_the_return_of_run)
{
    gate = chan_of_ints(0);
    SET(parked, 0);
    CHECK_EQ(gs_run(leave_pinned_behind, NULL), 0);
    CHECK_EQ(gs_run(finish_pinned, NULL), 0);
    free_chan(gate);
}

/* The kernel lets the timeouts of other threads be 50 us late. */

static void note_slack(void *ns)
{
    *(int *)ns = prctl(PR_GET_TIMERSLACK);
}

TEST(timeouts_are_exact_on_a_borrowed_thread_and_as_before_afterwards)
{
    int before = prctl(PR_GET_TIMERSLACK), lent = 0;
    CHECK_EQ(prctl(PR_SET_TIMERSLACK, 123456UL), 0);
    CHECK_EQ(gs_run(note_slack, &lent), 0);
    CHECK_EQ(lent, 1);
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 123456);
    CHECK_EQ(prctl(PR_SET_TIMERSLACK, (unsigned long)before), 0);
}

/* ---- gs_own_threads ---- */

enum { MOST_THREADS = 2000 };

struct ids {
    int32_t id[MOST_THREADS];
    int n;
};

static bool has_id(const struct ids *ids, int32_t id)
{
    int i;
    for (i = 0; i < ids->n; i++)
        if (ids->id[i] == id)
            return true;
    return false;
}

static void list_all_threads(struct ids *all)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    CHECK(dir != NULL);
    for (all->n = 0; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.') {
            CHECK(all->n < MOST_THREADS);
            all->id[all->n++] = atoi(e->d_name);
        }
    closedir(dir);
}

static void list_own_threads(struct ids *own)
{
    own->n = gs_own_threads(own->id, MOST_THREADS);
    CHECK(own->n >= 0 && own->n <= MOST_THREADS);
}

/* Whether a thread has ended, or is about to: pthread_join doesn't wait until the kernel has forgotten the thread. */
static bool is_ending(int32_t id)
{
    enum { PF_EXITING = 4 };
    char path[64], text[512], *rest;
    unsigned flags = PF_EXITING;
    FILE *f;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)id);
    f = fopen(path, "r");
    if (f == NULL)
        return true;
    if (fgets(text, sizeof text, f) && (rest = strrchr(text, ')')) != NULL)
        CHECK_EQ(sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %u", &flags), 1);
    fclose(f);
    return (flags & PF_EXITING) != 0;
}

static void *blocks(void *arg)
{
    nap(1 * MS);
    return arg;
}

static void blocks_its_thread(void *arg)
{
    (void)arg;
    (void)gs_blocking(blocks, NULL);
}

/* Threads begin and end meanwhile: each is the program's, or the library's from its first moment to its last. */
TEST(the_library_tells_its_own_threads)
{
    static struct ids before, all, own;
    int round, i;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_own_threads(NULL, 0), 0);
    list_all_threads(&before);
    for (round = 0; round < 200; round++) {
        gs_g *gs[4];
        for (i = 0; i < 4; i++)
            gs[i] = go_ref(blocks_its_thread, NULL);
        list_all_threads(&all);
        list_own_threads(&own);
        for (i = 0; i < all.n; i++)
            if (!has_id(&before, all.id[i]) && !has_id(&own, all.id[i]))
                CHECK(is_ending(all.id[i]));
        for (i = 0; i < before.n; i++)
            CHECK(!has_id(&own, before.id[i]));
        for (i = 0; i < 4; i++)
            join(gs[i]);
        if (round % 10 == 9) {
            CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
            CHECK_EQ(gs_own_threads(own.id, 1), 0);
        }
    }
}

static void *note_thread(void *arg)
{
    *(int32_t *)arg = (int32_t)thread_id();
    WAIT_UNTIL(GET(parked) == 1);
    return NULL;
}

static void start_a_thread(void *arg)
{
    static int32_t id, one;
    static struct ids own;
    pthread_t thread;
    pid_t pid;
    int status;
    (void)arg;
    SET(parked, 0);
    CHECK_EQ(pthread_create(&thread, NULL, note_thread, &id), 0);
    WAIT_UNTIL(GET(id) != 0);
    list_own_threads(&own);
    CHECK(own.n >= 1 && !has_id(&own, id));
    CHECK_GE(gs_own_threads(&one, 1), 1);
    CHECK(one > 0 && one != id);
    CHECK_EQ(gs_own_threads(NULL, 1), -EINVAL);
    pid = fork();
    if (pid == 0)
        _exit(gs_own_threads(NULL, 0));
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    SET(parked, 1);
    go_join_thread(thread);
}

/* Such a thread inherits what it can from one of the library's. */
TEST(threads_that_goroutines_start_are_not_the_library_s)
{
    join(go_ref(start_a_thread, NULL));
}
