/*
 * A random tester of what is seldom used together: worker groups, threads that attach themselves, gangs beside locked
 * threads, selects over timers and channels that are closed meanwhile, goroutine-local values, dumps, forks, other
 * numbers of P's and threads, and one runtime after the other. Wrong input comes in between, and must give its error
 * and change nothing.
 *
 *   mixed                  a short run, with a seed that is printed when it fails
 *   mixed SECONDS SEED     a run of that length with this seed; which thread comes when is not part of it
 *
 * A run has rounds, each with threads that take steps; after a round every goroutine has run, and no thread and no
 * descriptor is left.
 *
 * Parts (tester.h): the kinds of steps, in the order of `kinds`.
 */
#include "tester.h"

#include <fcntl.h>

enum { THREADS = 4, STEPS = 8, MOST = 6 };

static uint64_t first_seed; /* 0: another one in each run */
static int seconds;         /* 0: a short run */

static int64_t spawned, ran; /* goroutines that were begun, and those that have run */
static int stoppers;         /* threads that have stopped the world: 0 or 1 */

static uint64_t below(uint64_t *seed, uint64_t n)
{
    return random_next(seed) % n;
}

static void *as_arg(uint64_t *seed)
{
    return (void *)(uintptr_t)(random_next(seed) | 1);
}

/* Spawns a goroutine that adds one to `ran`. */
static gs_g *begin(gs_fn f, void *arg, const gs_spawn_opts *opts)
{
    ADD(spawned, 1);
    return go_opts(f, arg, opts);
}

/* Options that must be refused. */
static void refuse(gs_gang *gang, gs_fn f, const gs_spawn_opts *opts)
{
    gs_g *g = (gs_g *)&stoppers;
    CHECK_EQ(gang ? gs_gang_spawn(gang, f, NULL, opts, &g) : gs_spawn_with(f, NULL, opts, &g), -EINVAL);
    CHECK(g == NULL);
}

static void never_run(void *arg)
{
    (void)arg;
    CHECK(!"a goroutine runs whose options were refused");
}

static void compute(uint64_t *seed)
{
    int64_t until = clock_now() + (int64_t)below(seed, below(seed, 8) ? 300 : 15000) * US;
    while (clock_now() < until)
        ;
}

static void *nap_blocking(void *ns)
{
    nap((int64_t)(uintptr_t)ns);
    return ns;
}

/* ---- Worker groups ---- */

struct member {
    uint64_t seed;
    gs_chan *hold; /* the member waits until it is closed; NULL: it doesn't */
};

static void stay(void *arg)
{
    struct member *m = arg;
    pid_t here = thread_id();
    if (m->hold)
        CHECK_EQ(gs_chan_recv(m->hold, NULL, GS_FOREVER), -EPIPE);
    for (int i = (int)below(&m->seed, 6); i >= 0; i--) {
        switch (below(&m->seed, 7)) {
        case 0:
            gs_yield();
            break;
        case 1:
            CHECK_EQ(gs_sleep((int64_t)below(&m->seed, 200) * US), 0);
            break;
        case 2:
            CHECK_EQ(gs_lock_os_thread(), 0);
            gs_yield();
            CHECK_EQ(gs_unlock_os_thread(), 0);
            break;
        case 3:
            CHECK_EQ(gs_entersyscall(), 0);
            nap((int64_t)below(&m->seed, 100) * US);
            CHECK_EQ(gs_exitsyscall(), 0);
            break;
        case 4: {
            void *ns = (void *)(uintptr_t)(below(&m->seed, 100) * US);
            CHECK(gs_blocking(nap_blocking, ns) == ns);
            break;
        }
        case 5:
            compute(&m->seed);
            break;
        default:
            nap((int64_t)below(&m->seed, 100) * US);
        }
        CHECK_EQ(thread_id(), here);
    }
    CHECK_EQ(gs_unlock_os_thread(), -EPERM);
    ADD(ran, 1);
}

static void wait_a_bit(void *arg)
{
    CHECK_EQ(gs_sleep(100 * US), 0);
    ADD(*(int64_t *)arg, 1);
}

static void use_group(uint64_t *seed)
{
    struct member members[MOST];
    gs_g *gs[MOST];
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_chan *hold = below(seed, 3) == 0 ? gs_chan_make(0, 0) : NULL;
    int n = 1 + (int)below(seed, 3), many = 1 + (int)below(seed, MOST), i;
    uint32_t flags = (uint32_t)below(seed, 3);
    /* No thread of the library's own begins a member. */
    int by_runners = flags == GS_WORKERS_RUNNERS || (flags == GS_WORKERS_RUNNER && n == 1);
    gs_workers *w;
    CHECK(gs_workers_create((int)below(seed, 2) - 1, 0) == NULL);
    CHECK(gs_workers_create(GS_MAX_PROCS + 1, 0) == NULL);
    CHECK(gs_workers_create(n, 8) == NULL);
    w = gs_workers_create(n, flags);
    CHECK(w != NULL);
    opts.workers = w;
    refuse(NULL, never_run, &opts); /* not pinned */
    opts.flags = GS_SPAWN_PINNED;
    opts.priority = below(seed, 2) ? GS_PRIO_HIGH : GS_PRIO_IDLE;
    refuse(NULL, never_run, &opts);
    opts.priority = GS_PRIO_NORMAL;
    opts.node = 0;
    refuse(NULL, never_run, &opts);
    opts.node = -1;
    for (i = 0; i < many; i++) {
        opts.flags = GS_SPAWN_PINNED | (below(seed, 2) ? GS_SPAWN_NOSIGNAL : 0);
        members[i] = (struct member){random_next(seed) | 1, hold};
        gs[i] = begin(stay, &members[i], &opts);
    }
    if (hold) {
        CHECK_EQ(gs_workers_free(w), -EBUSY);
        CHECK_EQ(gs_join(gs[0], GS_NOWAIT), -EAGAIN);
        CHECK_EQ(gs_chan_close(hold), 0);
    }
    if (by_runners && !gs_self()) { /* an attached thread is one that the group waits for */
        /* Each of these runs may join another thread's group, which waits longer. */
        int64_t runs = 0, tries = 0;
        for (i = 0; i < many; i++)
            while (gs_join(gs[i], GS_NOWAIT) != 0) {
                CHECK_EQ(gs_run(wait_a_bit, &runs), 0);
                CHECK_EQ(runs, ++tries);
            }
    }
    for (i = 0; i < many; i++)
        join(gs[i]);
    CHECK_EQ(gs_workers_free(w), 0);
    if (hold)
        free_chan(hold);
}

/* ---- Gangs beside locked threads ---- */

struct ring {
    gs_chan *chans[3];
    int n;    /* members, and channels */
    int next; /* the number that the next member takes */
    int laps;
};

/* Passes a token on; the first one counts the laps. */
static void pass_on(void *arg)
{
    struct ring *r = arg;
    int me = ADD(r->next, 1) - 1;
    gs_chan *in = r->chans[me], *out = r->chans[(me + 1) % r->n];
    for (int lap = 0; lap < r->laps; lap++) {
        if (me == 0)
            send_int(out, lap);
        CHECK_EQ(recv_int(in), lap);
        if (me != 0)
            send_int(out, lap);
    }
    ADD(ran, 1);
}

/* As pass_on, on a thread of its own. */
static void pass_on_locked(void *arg)
{
    pid_t here;
    CHECK_EQ(gs_lock_os_thread(), 0);
    here = thread_id();
    pass_on(arg);
    CHECK_EQ(thread_id(), here);
    if (((struct ring *)arg)->laps % 2) /* else the thread ends with it */
        CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void use_gang(uint64_t *seed)
{
    struct ring rings[2];
    gs_g *gs[6];
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_gang *gang = gs_gang_create();
    int i, k, many = 0;
    CHECK(gang != NULL);
    refuse(gang, NULL, NULL);
    opts.priority = GS_PRIO_LOW;
    refuse(gang, never_run, &opts);
    opts.priority = GS_PRIO_NORMAL;
    opts.node = 0;
    refuse(gang, never_run, &opts);
    opts.node = -1;
    for (k = 0; k < 2; k++) {
        rings[k] = (struct ring){.n = 2 + (int)below(seed, 2), .laps = 1 + (int)below(seed, 40)};
        for (i = 0; i < rings[k].n; i++)
            rings[k].chans[i] = chan_of_ints(below(seed, 2));
        for (i = 0; i < rings[k].n; i++) {
            opts.flags = below(seed, 4) == 0 ? GS_SPAWN_NOSIGNAL : 0;
            ADD(spawned, 1);
            if (k == 0)
                CHECK_EQ(gs_gang_spawn(gang, pass_on, &rings[k], &opts, &gs[many++]), 0);
            else
                CHECK_EQ(gs_spawn_with(pass_on_locked, &rings[k], &opts, &gs[many++]), 0);
        }
    }
    gs_gang_free(gang);
    for (i = 0; i < many; i++)
        join(gs[i]);
    for (k = 0; k < 2; k++)
        for (i = 0; i < rings[k].n; i++)
            free_chan(rings[k].chans[i]);
}

/* ---- Selects and timers ---- */

static void stay_until_closed(void *hold)
{
    CHECK_EQ(gs_chan_recv(hold, NULL, GS_FOREVER), -EPIPE);
    ADD(ran, 1);
}

/* Until it is let go, no gs_shutdown of another thread ends the runtime, and drops timers that have not fired. */
struct keeper {
    gs_chan *hold;
    gs_g *g;
};

static struct keeper keep_runtime(void)
{
    struct keeper k = {gs_chan_make(0, 0), NULL};
    CHECK(k.hold != NULL);
    k.g = begin(stay_until_closed, k.hold, NULL);
    return k;
}

static void let_go(struct keeper k)
{
    CHECK_EQ(gs_chan_close(k.hold), 0);
    join(k.g);
    free_chan(k.hold);
}

struct source {
    gs_chan *ch;
    uint64_t seed;
    int n; /* values before it closes the channel */
};

static void send_and_close(void *arg)
{
    struct source *s = arg;
    for (int i = 0; i < s->n; i++) {
        if (below(&s->seed, 2))
            (void)gs_sleep((int64_t)below(&s->seed, 100) * US);
        send_int(s->ch, i);
    }
    CHECK_EQ(gs_chan_close(s->ch), 0);
    CHECK_EQ(gs_chan_close(s->ch), -EPIPE);
    ADD(ran, 1);
}

static void select_to_the_end(uint64_t *seed)
{
    struct source s = {chan_of_ints(below(seed, 3)), random_next(seed) | 1, (int)below(seed, 8)};
    struct keeper keeper = keep_runtime();
    gs_chan *full = chan_of_ints(1);
    gs_chan *after = gs_after((int64_t)below(seed, 400) * US);
    gs_chan *ticks = gs_ticker_start(1 + (int64_t)below(seed, 300) * US);
    int64_t v[5] = {0}, last = 0;
    int next = 0, fired = 0, closed = 0, i;
    gs_g *g = begin(send_and_close, &s, NULL);
    CHECK(after && ticks);
    send_int(full, 7);
    while (!closed || !fired) {
        gs_case c[] = {recv_case(s.ch, &v[0]), recv_case(after, &v[1]), send_case(full, &v[2]),
                       recv_case(NULL, &v[3]), recv_case(ticks, &v[4]), recv_case(s.ch, &v[0])};
        gs_case wrong[] = {recv_case(s.ch, &v[0]), recv_case(s.ch, &v[0])};
        if (below(seed, 4) == 0) {
            wrong[1].op = (int)below(seed, 2) * 3;
            CHECK_EQ(gs_select(wrong, 2, GS_FOREVER), -EINVAL);
            wrong[1] = send_case(s.ch, NULL);
            CHECK_EQ(gs_select(wrong, 2, GS_FOREVER), -EINVAL);
            CHECK(wrong[0].result == 1 && wrong[1].result == 1);
            CHECK_EQ(gs_select(NULL, 1, GS_FOREVER), -EINVAL);
        }
        i = gs_select(c, LENGTH(c), below(seed, 2) ? GS_FOREVER : gs_after_us((int64_t)below(seed, 200)));
        if (i == -ETIMEDOUT)
            continue;
        for (int k = 0; k < (int)LENGTH(c); k++)
            CHECK(k == i || c[k].result == 1);
        if (i == 0 || i == 5) {
            CHECK_EQ(c[i].result, next < s.n ? 0 : -EPIPE);
            CHECK_EQ(v[0], next < s.n ? next++ : 0);
            closed = c[i].result != 0;
        } else if (i == 1) {
            CHECK_EQ(c[i].result, 0);
            CHECK_EQ(++fired, 1);
        } else {
            CHECK_EQ(i, 4);
            CHECK_EQ(c[i].result, 0);
            CHECK(v[4] > last && v[4] <= gs_now());
            last = v[4];
        }
    }
    {
        gs_case c[] = {send_case(s.ch, &v[0]), recv_case(s.ch, &v[1]), recv_case(NULL, &v[2])};
        CHECK_LE(i = gs_select(c, 3, GS_NOWAIT), 1);
        CHECK_GE(i, 0);
        CHECK_EQ(c[i].result, -EPIPE);
    }
    CHECK_EQ(gs_ticker_stop(s.ch), -EINVAL);
    if (below(seed, 2))
        CHECK_EQ(gs_ticker_stop(ticks), 0);
    join(g);
    free_chan(s.ch);
    free_chan(full);
    free_chan(after);
    free_chan(ticks);
    let_go(keeper);
}

/* ---- The rest ---- */

static void count_call(void *calls)
{
    gs_yield();
    ADD(*(int64_t *)calls, 1);
}

/* Starts, stops and resets a timer; its function has run once for each start that was not taken back. */
static void use_timer(uint64_t *seed)
{
    int64_t calls = 0, due = 1;
    struct keeper keeper = keep_runtime();
    gs_timer *t = gs_timer_start((int64_t)below(seed, 200) * US, count_call, &calls);
    int e;
    CHECK(t != NULL);
    for (int i = (int)below(seed, 6); i > 0; i--) {
        if (below(seed, 2)) {
            e = gs_timer_reset(t, (int64_t)below(seed, 200) * US);
            due += 1 - e;
        } else {
            e = gs_timer_stop(t);
            due -= e;
        }
        CHECK(e == 0 || e == 1);
        if (below(seed, 3) == 0)
            compute(seed);
    }
    e = gs_timer_stop_wait(t, GS_FOREVER);
    CHECK(e == 0 || e == 1);
    CHECK_EQ(GET(calls), due - e);
    CHECK_EQ(gs_timer_stop_wait(t, GS_NOWAIT), 0);
    CHECK_EQ(gs_timer_free(t), 0);
    let_go(keeper);
}

static void compute_here(uint64_t *seed)
{
    compute(seed);
    gs_preempt_check();
}

static void change_limits(uint64_t *seed)
{
    CHECK_EQ(gs_gomaxprocs(GS_MAX_PROCS + 1), -EINVAL);
    CHECK_EQ(gs_gomaxprocs(INT_MAX), -EINVAL);
    CHECK_GE(gs_gomaxprocs(-1), 1);
    CHECK_GE(gs_gomaxprocs(1 + (int)below(seed, 9)), 1);
    CHECK_GE(gs_set_max_threads(-1), 1);
    CHECK_GE(gs_set_max_threads(below(seed, 2) ? 10000 : 60 + (int)below(seed, 20)), 1);
}

static void count_one(const gs_g_info *info, void *count)
{
    CHECK(info->state >= GS_G_RUNNABLE && info->state <= GS_G_SYSCALL);
    ++*(int *)count;
}

static void stop_world(uint64_t *seed)
{
    int n = 0, self = gs_self() != NULL;
    (void)seed;
    CHECK_EQ(gs_foreach_g(count_one, &n), -EPERM);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(ADD(stoppers, 1), 1);
    CHECK_EQ(gs_stop_the_world(), -EDEADLK);
    CHECK_EQ(gs_foreach_g(NULL, NULL), -EINVAL);
    CHECK_EQ(gs_foreach_g(count_one, &n), 0);
    CHECK_GE(n, self);
    CHECK_EQ(ADD(stoppers, -1), 0);
    CHECK_EQ(gs_start_the_world(), 0);
    CHECK_EQ(gs_start_the_world(), -EPERM);
}

static void wait_named(void *hold)
{
    CHECK_EQ(gs_data(gs_self()) == hold, 1);
    stay_until_closed(hold);
}

/* What shows the state of all goroutines, in any state of them. */
static void look_around(uint64_t *seed)
{
    gs_chan *hold = gs_chan_make(0, 0);
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_stats stats = {.size = sizeof stats};
    gs_g_info info;
    gs_g *g;
    char name[8];
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(hold && fd >= 0);
    opts.name = "one that waits";
    opts.data = hold;
    opts.flags = below(seed, 2) ? GS_SPAWN_PINNED : 0;
    g = begin(wait_named, hold, &opts);
    CHECK_EQ(gs_dump(fd), 0);
    CHECK_EQ(gs_dump(-1), -EBADF);
    CHECK_EQ(gs_stats_read(&stats), 0);
    CHECK_GE(stats.goroutines, 1);
    CHECK_EQ(gs_stats_node(0, &stats), 0);
    CHECK_EQ(gs_stats_node(-1, &stats), -EINVAL);
    stats.size = 1;
    CHECK_EQ(gs_stats_read(&stats), -EINVAL);
    CHECK_EQ(gs_stats_read(NULL), -EINVAL);
    CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    CHECK(info.state >= GS_G_RUNNABLE && info.state <= GS_G_SYSCALL);
    CHECK(strcmp(info.name, opts.name) == 0);
    CHECK_EQ(gs_g_info_read(g, &info, 1), -EINVAL);
    CHECK_EQ(gs_g_info_read(NULL, &info, sizeof info), -EINVAL);
    CHECK_EQ(gs_name(g, name, sizeof name), strlen(opts.name));
    CHECK(strcmp(name, "one tha") == 0);
    CHECK_EQ(gs_name(g, NULL, 1), -EINVAL);
    CHECK_GE(gs_num_goroutines(), 1);
    CHECK_EQ(gs_chan_close(hold), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    CHECK_EQ(info.state, GS_G_ENDED);
    gs_release(g);
    free_chan(hold);
    CHECK_EQ(close(fd), 0);
}

static int64_t destroyed;
static gs_key key;

/* Waits, and sets its value again, once. */
static void destroy(void *rounds)
{
    CHECK_EQ(gs_sleep(20 * US), 0);
    if (--*(int *)rounds > 0)
        CHECK_EQ(gs_setspecific(key, rounds), 0);
    else
        ADD(destroyed, 1);
}

static void have_value(void *rounds)
{
    CHECK_EQ(gs_setspecific(key, rounds), 0);
    CHECK(gs_getspecific(key) == rounds);
    CHECK_EQ(gs_setspecific(0, rounds), -EINVAL);
    ADD(ran, 1);
}

static void use_values(uint64_t *seed)
{
    int rounds[3], before = (int)GET(destroyed), i;
    gs_g *gs[3];
    gs_key other;
    CHECK_EQ(gs_key_create(NULL, destroy), -EINVAL);
    CHECK_EQ(gs_key_create(&other, NULL), 0);
    for (i = 0; i < 3; i++) {
        rounds[i] = 1 + (int)below(seed, 3);
        gs[i] = begin(have_value, &rounds[i], NULL);
    }
    for (i = 0; i < 3; i++)
        join(gs[i]);
    for (i = 0; i < 3; i++)
        CHECK_EQ(rounds[i], 0);
    CHECK_GE(GET(destroyed), before + 3);
    CHECK(gs_getspecific(other) == NULL);
    CHECK_EQ(gs_key_delete(other), 0);
}

static void give_wrong_input(uint64_t *seed)
{
    gs_config cfg = GS_CONFIG_INIT;
    int e;
    switch (below(seed, 6)) {
    case 0:
        cfg.size = 1;
        break;
    case 1:
        cfg.flags = 1u << 20;
        break;
    case 2:
        cfg.gomaxprocs = GS_MAX_PROCS + 1;
        break;
    case 3:
        cfg.topology = "three nodes";
        break;
    case 4:
        cfg.time_slice_ns = 5;
        break;
    default:
        cfg.preempt_signal = SIGKILL;
    }
    e = gs_init(&cfg);
    CHECK(e == -EINVAL || e == -EBUSY);
    CHECK_EQ(gs_run(NULL, NULL), -EINVAL);
    CHECK_EQ(gs_spawn(NULL, NULL), -EINVAL);
    refuse(NULL, NULL, NULL);
    CHECK_EQ(gs_gang_spawn(NULL, never_run, NULL, NULL, NULL), -EINVAL);
    CHECK_EQ(gs_workers_free(NULL), 0);
    gs_gang_free(NULL);
    CHECK_EQ(gs_join(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_join(gs_self(), GS_FOREVER), gs_self() ? -EDEADLK : -EINVAL);
    CHECK_EQ(gs_cancel(NULL), -EINVAL);
    CHECK_EQ(gs_ready(NULL), -EINVAL);
    if (gs_self())
        CHECK_EQ(gs_exitsyscall(), -EPERM);
    CHECK_EQ(gs_timer_stop(NULL), -EINVAL);
    CHECK(gs_timer_start(0, NULL, NULL) == NULL);
    CHECK(gs_ticker_start(0) == NULL);
    CHECK(gs_getspecific(0) == NULL);
}

static int forks; /* how deep: a child of a child forks no more */

static void one_step(uint64_t *seed, int attached);

static void attach(uint64_t *seed)
{
    CHECK_EQ(gs_detach(), -EPERM);
    CHECK_EQ(gs_attach(GS_SPAWN_PINNED), -EINVAL);
    CHECK(gs_self() == NULL);
    CHECK_EQ(gs_attach(below(seed, 2) ? GS_SPAWN_NOSIGNAL : 0), 0);
    CHECK(gs_self() != NULL);
    CHECK_EQ(gs_attach(0), -EBUSY);
    CHECK_EQ(gs_run(never_run, NULL), -EBUSY);
    CHECK_EQ(gs_shutdown(GS_FOREVER), -EDEADLK);
    for (int i = (int)below(seed, 4); i > 0; i--)
        one_step(seed, 1);
    CHECK_EQ(gs_detach(), 0);
    CHECK(gs_self() == NULL);
}

static void start_anew(uint64_t *seed)
{
    const int64_t deadlines[] = {GS_NOWAIT, gs_after_us(200), gs_after_ms(20)};
    gs_config cfg = GS_CONFIG_INIT;
    int e = gs_shutdown(deadlines[below(seed, LENGTH(deadlines))]);
    CHECK(e == 0 || e == -EAGAIN || e == -ETIMEDOUT);
    cfg.gomaxprocs = below(seed, 2) ? 1 + (uint32_t)below(seed, 4) : 0;
    cfg.flags = below(seed, 4) == 0 ? GS_CONFIG_COOPERATIVE : 0;
    cfg.time_slice_ns = below(seed, 2) ? 0 : 200 * US;
    e = gs_init(&cfg);
    CHECK(e == 0 || e == -EBUSY);
}

static void fork_one(uint64_t *seed)
{
    int status = -1;
    pid_t pid;
    fflush(stdout);
    pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        alarm(check_seconds());
        current_test = "in the child of fork";
        forks++;
        SET(stoppers, 0);
        CHECK(gs_self() == NULL);
        if (below(seed, 2))
            CHECK_EQ(gs_shutdown(GS_NOWAIT), 0);
        SET(ran, 0);
        SET(spawned, 0);
        one_step(seed, 0);
        attach(seed);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        CHECK_EQ(ran, spawned);
        _exit(0);
    }
    CHECK_EQ(gs_waitpid(pid, &status, 0, GS_FOREVER), pid);
    CHECK_EQ(status, 0);
}

/* The first line is also for a thread that has attached itself. */
static void (*const kinds[])(uint64_t *) = {
    fork_one, use_group, use_gang, select_to_the_end, use_timer, use_values, compute_here, change_limits, stop_world, look_around,
    give_wrong_input, attach, start_anew};
enum { FORK = 0, FOR_GOROUTINES = 11 };

static void one_step(uint64_t *seed, int attached)
{
    uint64_t kind = below(seed, attached ? FOR_GOROUTINES : LENGTH(kinds));
    /* An emulator's child of a fork may hang: FORKS in tests/programs.rs. */
    if (!has_part((int)kind) || (kind == FORK && (forks > 1 || is_emulated()))) {
        sched_yield();
        return;
    }
    kinds[kind](seed);
}

static void *act(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    for (int i = sized(STEPS); i > 0; i--)
        one_step(&seed, 0);
    return NULL;
}

TEST(what_is_seldom_used_together)
{
    uint64_t seed = first_seed ? first_seed : (uint64_t)clock_now() | 1;
    int64_t end_at = clock_now() + (seconds ? seconds * SEC : SEC);
    long fds;
    snprintf(check_note, sizeof check_note, "seed %llu", (unsigned long long)seed);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    if (is_emulated())
        printf("skip part of %s: an emulator's child of a fork may hang\n", current_test);
    CHECK_EQ(gs_key_create(&key, destroy), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    fds = count_fds();
    if (seconds)
        alarm((unsigned)seconds + check_seconds());
    do {
        pthread_t threads[THREADS];
        int i, n = sized(THREADS);
        for (i = 0; i < n; i++)
            threads[i] = start_thread(act, as_arg(&seed));
        for (i = 0; i < n; i++)
            join_thread(threads[i]);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        CHECK_EQ(GET(ran), GET(spawned));
        CHECK_EQ(gs_num_goroutines(), 0);
        NAP_UNTIL(count_threads() == 1); /* an ended thread may be listed for a moment */
        CHECK_EQ(count_fds(), fds);
    } while (clock_now() < end_at);
    CHECK_EQ(gs_key_delete(key), 0);
}

int main(int argc, char **argv)
{
    if (asked_for_parts(argc, argv, LENGTH(kinds)))
        return 0;
    if (argc > 1 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        seconds = atoi(argv[1]);
        first_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
        argc = 1;
    }
    return check_main(argc, argv);
}
