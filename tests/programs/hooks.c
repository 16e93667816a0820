/*
 * Hooks, as an interpreter with one lock for all its threads uses them: each goroutine of the
 * interpreter has a state, a thread that runs one has the lock and the state is the thread's current
 * one. The hooks pass lock and state on; the checks say that no goroutine runs without them.
 *
 *   hooks [TEST...]
 *   hooks SECONDS SEED   random mixtures
 */
#define main check_main
#include "check.h"
#undef main

/* ---- A stand-in for an interpreter ---- */

struct state {
    int id;
    /* The thread that it is current on; 0: none. */
    int current;
    long steps;
    int cleared;
    int deleted;
};

static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static int lock_owner;

static __thread struct {
    int has_lock;
    struct state *current;
    int started;
    gs_g *in; /* the goroutine that is in on this thread, native ones too */
} of_thread;

/* This thread's values. Not inlined, and not known to return the same address again: a goroutine may be on another
 * thread after a call, and compilers keep the address of a thread-local variable across calls. */
static __attribute__((noinline)) __typeof__(of_thread) *mine(void)
{
    __asm__ volatile("" : : : "memory");
    return &of_thread;
}

static long starts, stops, ins, outs, overs, over_calls, idles, goexits, deads, ticks, shutdowns;

/* Writes to what a lock of the interpreter guards would be a race here. */
static long guarded;

static void take_lock(void)
{
    if (mine()->has_lock)
        return;
    CHECK_EQ(pthread_mutex_lock(&big_lock), 0);
    SET(lock_owner, thread_id());
    mine()->has_lock = 1;
}

static void drop_lock(void)
{
    if (!mine()->has_lock)
        return;
    mine()->has_lock = 0;
    SET(lock_owner, 0);
    CHECK_EQ(pthread_mutex_unlock(&big_lock), 0);
}

static void make_current(struct state *s)
{
    CHECK(mine()->has_lock);
    if (mine()->current)
        SET(mine()->current->current, 0);
    mine()->current = s;
    if (s) {
        CHECK_EQ(GET(s->current), 0);
        SET(s->current, thread_id());
    }
}

static void on_start(void *ctx)
{
    CHECK(ctx == &guarded);
    CHECK(!mine()->started);
    mine()->started = 1;
    ADD(starts, 1);
}

static void on_stop(void *ctx)
{
    (void)ctx;
    CHECK(mine()->started);
    CHECK(!mine()->in);
    mine()->started = 0;
    drop_lock();
    ADD(stops, 1);
}

static void on_in(void *ctx, gs_g *g)
{
    struct state *s = gs_data(g);
    (void)ctx;
    CHECK(mine()->started);
    CHECK(!mine()->in);
    CHECK(!gs_self());
    mine()->in = g;
    ADD(ins, 1);
    if (s) {
        take_lock();
        make_current(s);
    } else {
        drop_lock();
    }
}

static void on_out(void *ctx, gs_g *g)
{
    struct state *s = gs_data(g);
    (void)ctx;
    CHECK(mine()->started);
    CHECK(mine()->in == g);
    mine()->in = NULL;
    ADD(outs, 1);
    if (s) {
        CHECK(mine()->current == s);
        make_current(NULL);
    }
}

static bool on_over(void *ctx, gs_g *from, gs_g *to)
{
    (void)ctx;
    ADD(over_calls, 1);
    CHECK(mine()->in == from);
    CHECK(from != to);
    if (!gs_data(from) || !gs_data(to))
        return false;
    CHECK(mine()->current == gs_data(from));
    make_current(gs_data(to));
    mine()->in = to;
    ADD(overs, 1);
    return true;
}

static void on_idle(void *ctx)
{
    (void)ctx;
    CHECK(mine()->started);
    CHECK(!mine()->in);
    CHECK(!mine()->current);
    drop_lock();
    ADD(idles, 1);
}

static void on_goexit(void *ctx, gs_g *g)
{
    struct state *s = gs_data(g);
    (void)ctx;
    CHECK(gs_self() == g);
    ADD(goexits, 1);
    if (!s)
        return;
    CHECK(mine()->current == s);
    /* Destructors may park. */
    gs_yield();
    CHECK(mine()->current == s);
    CHECK_EQ(gs_sleep(50 * US), 0);
    CHECK(mine()->current == s);
    s->cleared = 1;
}

static void on_dead(void *ctx, gs_g *g)
{
    struct state *s = gs_data(g);
    (void)ctx;
    ADD(deads, 1);
    if (!s)
        return;
    CHECK(s->cleared);
    CHECK_EQ(GET(s->current), 0);
    SET(s->deleted, 1);
}

static void on_tick(void *ctx)
{
    (void)ctx;
    ADD(ticks, 1);
}

static void on_shutdown(void *ctx)
{
    (void)ctx;
    ADD(shutdowns, 1);
}

static gs_hooks all_hooks(void)
{
    gs_hooks h;
    memset(&h, 0, sizeof h);
    h.size = sizeof h;
    h.ctx = &guarded;
    h.thread_start = on_start;
    h.thread_stop = on_stop;
    h.switch_in = on_in;
    h.switch_out = on_out;
    h.switch_over = on_over;
    h.idle = on_idle;
    h.goexit = on_goexit;
    h.dead = on_dead;
    h.tick = on_tick;
    h.shutdown = on_shutdown;
    h.tick_every = 10;
    return h;
}

static void forget_counts(void)
{
    starts = stops = ins = outs = overs = over_calls = idles = goexits = deads = ticks = shutdowns = 0;
    guarded = 0;
}

/* A step of the interpreter: only where lock and state are the thread's. */
static void step(struct state *s)
{
    CHECK(mine()->current == s);
    CHECK_EQ(GET(s->current), thread_id());
    CHECK_EQ(GET(lock_owner), thread_id());
    guarded++;
    s->steps++;
}

/* The interpreter lets others go on while it waits outside of the library. */
static void wait_outside(struct state *s, int64_t ns)
{
    CHECK_EQ(gs_entersyscall(), 0);
    make_current(NULL);
    drop_lock();
    nap(ns);
    take_lock();
    make_current(s);
    CHECK_EQ(gs_exitsyscall(), 0);
}

struct job {
    struct state state;
    gs_mutex *mutex;
    gs_chan *ch;
    uint64_t random;
    int rounds;
    int kinds;
};

static void *call_blocking(void *s)
{
    /* Still in: the goroutine's state is the thread's. */
    step(s);
    return s;
}

static void interpret(void *arg)
{
    struct job *j = arg;
    struct state *s = &j->state;
    int64_t v;
    int i;
    CHECK(gs_data(gs_self()) == s);
    for (i = 0; i < j->rounds; i++) {
        step(s);
        switch (random_next(&j->random) % (uint64_t)j->kinds) {
        case 0:
            gs_yield();
            break;
        case 1:
            CHECK_EQ(gs_mutex_lock(j->mutex, GS_FOREVER), 0);
            step(s);
            gs_yield();
            step(s);
            CHECK_EQ(gs_mutex_unlock(j->mutex), 0);
            break;
        case 2:
            v = i;
            CHECK_EQ(gs_chan_send(j->ch, &v, GS_FOREVER), 0);
            step(s);
            CHECK_EQ(gs_chan_recv(j->ch, &v, GS_FOREVER), 0);
            break;
        case 3:
            CHECK_EQ(gs_sleep((int64_t)(random_next(&j->random) % 200) * US), 0);
            break;
        case 4:
            CHECK(gs_blocking(call_blocking, s) == s);
            break;
        case 5:
            wait_outside(s, 30 * US);
            break;
        default:
            CHECK_EQ(gs_lock_os_thread(), 0);
            gs_yield();
            step(s);
            CHECK_EQ(gs_unlock_os_thread(), 0);
            break;
        }
        step(s);
    }
}

static void be_native(void *arg)
{
    struct job *j = arg;
    int i;
    CHECK(!gs_data(gs_self()));
    for (i = 0; i < j->rounds; i++) {
        CHECK(!mine()->current);
        if (random_next(&j->random) % 2)
            gs_yield();
        else
            CHECK_EQ(gs_sleep(20 * US), 0);
        if (i % 16 == 0) {
            int64_t end = clock_now() + 100 * US;
            while (clock_now() < end)
                ;
        }
    }
}

/* Two goroutines on one thread hand over to each other: however busy the machine is, the thread switches over, and so
 * often that it ticks. On a busy machine all others may get by without: each on a P of its own, where it finds every
 * mutex free. */
enum { HAND_OVERS = 20 };

static void serve(void *ball)
{
    int i;
    for (i = 0; i < HAND_OVERS; i++)
        CHECK_EQ(gs_chan_send(ball, &i, GS_FOREVER), 0);
}

static void catch(void *ball)
{
    int v, i;
    for (i = 0; i < HAND_OVERS; i++) {
        CHECK_EQ(gs_chan_recv(ball, &v, GS_FOREVER), 0);
        CHECK_EQ(v, i);
    }
}

static void hand_over_on_one_thread(void)
{
    gs_workers *w = gs_workers_create(1, 0);
    gs_chan *ball = gs_chan_make(sizeof(int), 0);
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *server, *catcher;
    CHECK(w && ball);
    o.flags = GS_SPAWN_PINNED;
    o.workers = w;
    server = go_opts(serve, ball, &o);
    catcher = go_opts(catch, ball, &o);
    join(server);
    join(catcher);
    free_chan(ball);
    CHECK_EQ(gs_workers_free(w), 0);
}

/* Interpreted goroutines, pinned, beside native ones. */
static void mix(int interpreted, int natives, int rounds, int kinds, uint32_t flags, uint64_t seed)
{
    struct job *jobs = calloc((size_t)(interpreted + natives), sizeof *jobs);
    gs_g **gs = calloc((size_t)(interpreted + natives), sizeof *gs);
    gs_mutex m;
    gs_chan *ch = chan_of_ints(2);
    int i;
    memset(&m, 0, sizeof m);
    for (i = 0; i < interpreted + natives; i++) {
        gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
        struct job *j = &jobs[i];
        j->state.id = i + 1;
        j->mutex = &m;
        j->ch = ch;
        j->random = seed + (uint64_t)i * 7919 + 1;
        j->rounds = rounds;
        j->kinds = kinds;
        if (i < interpreted) {
            o.flags = flags;
            o.data = &j->state;
        }
        gs[i] = go_opts(i < interpreted ? interpret : be_native, j, &o);
    }
    for (i = 0; i < interpreted + natives; i++) {
        join(gs[i]);
        if (i < interpreted)
            CHECK(jobs[i].state.deleted);
    }
    free_chan(ch);
    free(jobs);
    free(gs);
}

struct mixed {
    int interpreted, natives, rounds, kinds;
    uint32_t flags;
    uint64_t seed;
};

/* How many goroutines `run_mixed` is and makes. */
static int goroutines_of(const struct mixed *m)
{
    return 1 + m->interpreted + m->natives + 2;
}

static void run_mixed(void *arg)
{
    struct mixed *m = arg;
    mix(m->interpreted, m->natives, m->rounds, m->kinds, m->flags, m->seed);
    hand_over_on_one_thread();
}

static void run_under_hooks(struct mixed m)
{
    gs_hooks h = all_hooks();
    forget_counts();
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_set_hooks(&h), 0);
    CHECK_EQ(gs_run(run_mixed, &m), 0);
    CHECK(!mine()->started);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    CHECK_EQ(starts, stops);
    CHECK_GE(starts, 1);
    CHECK_EQ(ins, outs);
    CHECK_EQ(goexits, goroutines_of(&m));
    CHECK_EQ(deads, goexits);
    CHECK_EQ(shutdowns, 1);
    CHECK_GE(idles, 1);
    CHECK_GE(ticks, 1);
    CHECK_EQ(GET(lock_owner), 0);
}

enum { PYTHON = GS_SPAWN_PINNED | GS_SPAWN_NOSIGNAL };

TEST(an_interpreter_with_one_lock_and_pinned_goroutines)
{
    struct mixed m = {20, 10, 60, 7, PYTHON, 1};
    run_under_hooks(m);
    CHECK_GE(over_calls, 1);
}

TEST(an_interpreter_whose_goroutines_migrate)
{
    struct mixed m = {20, 10, 60, 6, GS_SPAWN_NOSIGNAL, 2};
    run_under_hooks(m);
}

TEST(an_interpreter_alone)
{
    struct mixed m = {10, 0, 200, 3, PYTHON, 3};
    run_under_hooks(m);
}

TEST(no_goroutine_of_the_interpreter)
{
    struct mixed m = {0, 20, 50, 1, 0, 4};
    run_under_hooks(m);
    CHECK_EQ(overs, 0);
}

static void set_within(void *arg)
{
    gs_hooks h = all_hooks();
    struct mixed *m = arg;
    /* The thread changes over at the next switch. */
    CHECK_EQ(gs_set_hooks(&h), 0);
    mix(m->interpreted, m->natives, m->rounds, m->kinds, m->flags, m->seed);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    gs_yield();
}

TEST(hooks_come_and_go_while_goroutines_run)
{
    struct mixed m = {0, 10, 20, 1, 0, 5};
    int i;
    forget_counts();
    for (i = 0; i < 20; i++)
        CHECK_EQ(gs_run(set_within, &m), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(starts, stops);
    CHECK_EQ(ins, outs);
    CHECK_GE(ins, 1);
}

static int turns, turns_end;

static void take_turns(void *arg)
{
    (void)arg;
    while (!GET(turns_end)) {
        ADD(turns, 1);
        gs_yield();
    }
}

static void *set_in_a_call(void *hooks)
{
    CHECK_EQ(gs_set_hooks(hooks), 0);
    return NULL;
}

static void set_while_the_world_is_stopped(void *arg)
{
    gs_hooks h = all_hooks();
    gs_g *g[4];
    int i, before;
    (void)arg;
    SET(turns_end, 0);
    for (i = 0; i < 4; i++)
        g[i] = go_ref(take_turns, NULL);
    for (i = 0; i < 20; i++) {
        CHECK_EQ(gs_stop_the_world(), 0);
        before = GET(turns);
        (void)gs_blocking(set_in_a_call, i % 2 == 0 ? &h : NULL);
        CHECK_EQ(GET(turns), before);
        CHECK_EQ(gs_start_the_world(), 0);
        /* The thread changes over at the next switch. */
        gs_yield();
        CHECK_GE(GET(ins), 1);
        gs_yield();
    }
    SET(turns_end, 1);
    for (i = 0; i < 4; i++)
        join(g[i]);
}

TEST(hooks_change_while_the_world_is_stopped)
{
    forget_counts();
    CHECK_EQ(gs_run(set_while_the_world_is_stopped, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(starts, stops);
    CHECK_EQ(ins, outs);
}

/* ---- Hooks that call the library while the runtime is about to end ---- */

static int hooks_that_call, shuts_down;
static __thread int calls_in_stop;

static void do_nothing(void *arg)
{
    (void)arg;
}

/* The main thread is in gs_shutdown by the time of the call, or soon. */
static void call_late(void)
{
    ADD(hooks_that_call, 1);
    NAP_UNTIL(GET(shuts_down));
    nap(20 * MS);
    CHECK_EQ(gs_spawn(do_nothing, NULL), 0);
    (void)gs_num_goroutines();
}

static void call_in_start(void *ctx)
{
    (void)ctx;
    call_late();
}

static void call_in_stop(void *ctx)
{
    if (GET(*(int *)ctx) || calls_in_stop)
        call_late();
}

static void shut_down_during_calls(void)
{
    int i;
    /* A thread that was about to sleep changes over when it next has a goroutine to run. */
    for (i = 1; GET(hooks_that_call) == 0; i++) {
        nap(MS);
        if (i % 200 == 0)
            CHECK_EQ(gs_spawn(do_nothing, NULL), 0);
    }
    SET(shuts_down, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

static void *wait_for_a_thread(void *ran)
{
    NAP_UNTIL(GET(*(int *)ran));
    return NULL;
}

static void note_run(void *ran)
{
    SET(*(int *)ran, 1);
}

/* Afterwards there is a thread of the library's own. */
static void make_a_thread(void *arg)
{
    int ran = 0;
    (void)arg;
    go(note_run, &ran);
    (void)gs_blocking(wait_for_a_thread, &ran);
}

static void begin_calls(gs_hooks *h, int *all_stops)
{
    memset(h, 0, sizeof *h);
    h->size = sizeof *h;
    h->ctx = all_stops;
    SET(*all_stops, 0);
    SET(hooks_that_call, 0);
    SET(shuts_down, 0);
}

TEST(shutdown_waits_for_a_thread_start_that_calls_the_library)
{
    static int all_stops;
    gs_hooks h;
    begin_calls(&h, &all_stops);
    CHECK_EQ(gs_run(make_a_thread, NULL), 0);
    h.thread_start = call_in_start;
    CHECK_EQ(gs_set_hooks(&h), 0);
    shut_down_during_calls();
    CHECK_EQ(gs_set_hooks(NULL), 0);
}

static int first_starts;

static void hold_up_the_first(void *ran)
{
    if (ADD(first_starts, 1) == 1)
        NAP_UNTIL(GET(*(int *)ran));
}

/* A thread that was idle, and is woken for new hooks, keeps no other thread from being made. With one P a second thread
 * would wait as the first does, so none is made. */
TEST(a_thread_is_made_while_another_is_held_up_in_thread_start)
{
    int ran = 0;
    gs_hooks h;
    memset(&h, 0, sizeof h);
    h.size = sizeof h;
    h.ctx = &ran;
    h.thread_start = hold_up_the_first;
    SET(first_starts, 0);
    CHECK_EQ(gs_run(make_a_thread, NULL), 0);
    if (gs_gomaxprocs(0) > 1) {
        CHECK_EQ(gs_set_hooks(&h), 0);
        NAP_UNTIL(GET(first_starts) > 0);
        CHECK_EQ(gs_spawn(note_run, &ran), 0);
        NAP_UNTIL(GET(ran));
        CHECK_EQ(gs_set_hooks(NULL), 0);
    }
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(shutdown_waits_for_a_thread_stop_that_calls_the_library)
{
    static int all_stops;
    gs_hooks h;
    begin_calls(&h, &all_stops);
    h.thread_stop = call_in_stop;
    CHECK_EQ(gs_set_hooks(&h), 0);
    CHECK_EQ(gs_run(make_a_thread, NULL), 0);
    SET(all_stops, 1);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    shut_down_during_calls();
}

static void *run_and_call_in_stop(void *arg)
{
    (void)arg;
    calls_in_stop = 1;
    CHECK_EQ(gs_run(do_nothing, NULL), 0);
    return NULL;
}

TEST(shutdown_waits_for_the_thread_stop_of_a_thread_that_leaves_gs_run)
{
    static int all_stops;
    gs_hooks h;
    pthread_t t;
    begin_calls(&h, &all_stops);
    h.thread_stop = call_in_stop;
    CHECK_EQ(gs_set_hooks(&h), 0);
    t = start_thread(run_and_call_in_stop, NULL);
    shut_down_during_calls();
    join_thread(t);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(bad_hooks)
{
    gs_hooks h = all_hooks();
    h.size = 8;
    CHECK_EQ(gs_set_hooks(&h), -EINVAL);
    h.size = sizeof h;
    h.reserved = 1;
    CHECK_EQ(gs_set_hooks(&h), -EINVAL);
    CHECK(!gs_data(NULL));
    CHECK_EQ(gs_set_data(NULL, &h), -EINVAL);
    CHECK_EQ(gs_set_hooks(NULL), 0);
}

static int in_child;

static void on_fork_child(void *ctx)
{
    CHECK(ctx == &guarded);
    in_child++;
}

static void fork_one(void *arg)
{
    int status;
    pid_t child;
    (void)arg;
    gs_yield();
    child = fork();
    if (child == 0)
        _exit(in_child == 1 && gs_set_hooks(NULL) == 0 ? 0 : 1);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(in_child, 0);
}

TEST(a_child_of_a_fork_is_told)
{
    gs_hooks h;
    memset(&h, 0, sizeof h);
    h.size = sizeof h;
    h.ctx = &guarded;
    h.fork_child = on_fork_child;
    CHECK_EQ(gs_set_hooks(&h), 0);
    CHECK_EQ(gs_run(fork_one, NULL), 0);
    CHECK_EQ(gs_set_hooks(NULL), 0);
}

static pid_t forks_in_start;
static int status_of_child = -1;

static void fork_in_start(void *ctx)
{
    pid_t child;
    (void)ctx;
    if (getpid() != forks_in_start || GET(status_of_child) != -1)
        return;
    child = fork();
    if (child != 0) {
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        SET(status_of_child, status);
    }
}

/* The thread has left the runtime in the child, where it can only end the process. */
TEST(a_hook_that_returns_in_the_child_of_its_fork_ends_the_child)
{
    gs_hooks h;
    memset(&h, 0, sizeof h);
    h.size = sizeof h;
    forks_in_start = getpid();
    h.thread_start = fork_in_start;
    CHECK_EQ(gs_set_hooks(&h), 0);
    CHECK_EQ(gs_run(do_nothing, NULL), 0);
    CHECK_EQ(status_of_child, 0);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- Words of goroutines ---- */

static void look_at_data(void *arg)
{
    CHECK(gs_data(gs_self()) == arg);
    CHECK_EQ(gs_set_data(gs_self(), &guarded), 0);
    gs_yield();
    CHECK(gs_data(gs_self()) == &guarded);
}

static void look_at_none(void *arg)
{
    (void)arg;
    CHECK(!gs_data(gs_self()));
}

/* The hook waits for a lock that a goroutine has which was preempted. Each new thread that gets its P waits there too: the
 * goroutine must get one, and not thread after thread be made. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static int start_is_slow;

static void start_with_lock(void *ctx)
{
    (void)ctx;
    if (GET(start_is_slow)) {
        CHECK_EQ(pthread_mutex_lock(&start_lock), 0);
        CHECK_EQ(pthread_mutex_unlock(&start_lock), 0);
    }
}

static void compute_with_lock(void *arg)
{
    int64_t until;
    (void)arg;
    CHECK_EQ(pthread_mutex_lock(&start_lock), 0);
    SET(start_is_slow, 1);
    for (until = gs_now() + 60 * MS; gs_now() < until;)
        ;
    CHECK_EQ(pthread_mutex_unlock(&start_lock), 0);
}

static void compute_and_block(void *arg)
{
    int64_t until;
    (void)arg;
    for (until = gs_now() + 30 * MS; gs_now() < until;)
        ;
    nap(5 * MS);
}

static void run_with_lock(void *arg)
{
    gs_stats stats = {.size = sizeof stats};
    gs_g *g[9];
    int i, round;
    (void)arg;
    for (round = 0; round < 5; round++) {
        for (i = 0; i < 9; i++)
            g[i] = go_ref(i == 4 ? compute_with_lock : compute_and_block, NULL);
        for (i = 0; i < 9; i++)
            join(g[i]);
    }
    CHECK_EQ(gs_stats_read(&stats), 0);
    CHECK_LE(stats.threads, 100);
}

TEST(a_preempted_goroutine_has_what_new_threads_wait_for)
{
    gs_hooks hooks = {0};
    hooks.size = sizeof hooks;
    hooks.thread_start = start_with_lock;
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    CHECK_EQ(gs_run(run_with_lock, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    SET(start_is_slow, 0);
}

/* A thread in gs_run loses its P in switch_in, and the hooks are gone when it has one again. The goroutine that was to
   come in belonged to the thread meanwhile, and gs_run would not return if it still did. */
static int blocks_once, may_go_on, steps_ended;
static pid_t borrowed_thread;

static void block_once(void *ctx, gs_g *g)
{
    (void)ctx;
    if (gs_data(g) || thread_id() != borrowed_thread || __atomic_exchange_n(&blocks_once, 1, __ATOMIC_SEQ_CST))
        return;
    while (!GET(may_go_on))
        usleep(50);
}

static void step_often(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 200; i++)
        gs_yield();
    ADD(steps_ended, 1);
}

static void remove_hooks_meanwhile(void *arg)
{
    int64_t end = gs_now() + 50 * MS;
    int i;
    while (!GET(blocks_once) && gs_now() < end)
        gs_yield();
    CHECK_EQ(gs_set_hooks(NULL), 0);
    for (i = 0; i < 20; i++)
        gs_yield();
    SET(may_go_on, 1);
    step_often(arg);
}

static void lose_the_p_in_a_hook(void *arg)
{
    enum { STEPPERS = 8 };
    gs_hooks hooks = {0};
    gs_spawn_opts remover = GS_SPAWN_OPTS_INIT;
    int i;
    (void)arg;
    hooks.size = sizeof hooks;
    hooks.switch_in = block_once;
    remover.data = &may_go_on; /* not this one */
    for (i = 0; i < STEPPERS; i++)
        go(step_often, NULL);
    CHECK_EQ(gs_spawn_with(remove_hooks_meanwhile, NULL, &remover, NULL), 0);
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    for (i = 0; i < 50; i++)
        gs_yield();
    WAIT_UNTIL(GET(steps_ended) == STEPPERS + 1);
}

TEST(a_thread_that_has_lost_its_p_in_a_hook_goes_back)
{
    int i;
    borrowed_thread = thread_id();
    for (i = 0; i < 30; i++) {
        SET(blocks_once, 0);
        SET(may_go_on, 0);
        SET(steps_ended, 0);
        CHECK_EQ(gs_run(lose_the_p_in_a_hook, NULL), 0);
    }
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

GO_TEST(the_word_of_a_goroutine_is_its_own)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *g[20];
    int i;
    for (i = 0; i < 20; i++) {
        o.data = &g[i];
        g[i] = go_opts(look_at_data, &g[i], &o);
    }
    for (i = 0; i < 20; i++) {
        CHECK_EQ(gs_join(g[i], GS_FOREVER), 0);
        CHECK(gs_data(g[i]) == &guarded);
        gs_release(g[i]);
    }
    /* Whose descriptors have been used before. */
    for (i = 0; i < 20; i++)
        go(look_at_none, NULL);
    for (i = 0; i < 20; i++)
        join(go_ref(look_at_none, NULL));
}

int main(int argc, char **argv)
{
    signal(SIGALRM, on_hang);
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        int64_t end = clock_now() + atoi(argv[1]) * SEC;
        uint64_t seed = strtoull(argv[2], NULL, 0), r = seed + 1;
        printf("seed %llu\n", (unsigned long long)seed);
        while (clock_now() < end) {
            struct mixed m;
            alarm(60);
            m.interpreted = (int)(random_next(&r) % 40);
            m.natives = (int)(random_next(&r) % 20);
            m.rounds = (int)(random_next(&r) % 100);
            m.flags = random_next(&r) % 2 ? PYTHON : GS_SPAWN_NOSIGNAL;
            m.kinds = 1 + (int)(random_next(&r) % (m.flags == PYTHON ? 7 : 6));
            m.seed = r;
            gs_hooks h = all_hooks();
            forget_counts();
            CHECK_EQ(gs_set_hooks(&h), 0);
            CHECK_EQ(gs_run(run_mixed, &m), 0);
            CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
            CHECK_EQ(gs_set_hooks(NULL), 0);
            CHECK_EQ(starts, stops);
            CHECK_EQ(ins, outs);
            CHECK_EQ(deads, goroutines_of(&m));
        }
        return 0;
    }
    return check_main(argc, argv);
}
