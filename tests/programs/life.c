/*
 * A random tester of the runtime's life: several threads start, use and end it while others fork, change
 * the limits, stop the world, and come and go. What must hold is checked all the time.
 *
 *   life                   a short run, with a seed that is printed when it fails
 *   life SECONDS SEED      a run of that length with this seed; which thread comes when is not part of it
 *   LIFE_THREADS=1 life    with limits of threads from 1 on, and not from 40 on
 *
 * Parts (tester.h): the kinds of steps, in the order of `kinds`, and 7: threads that come and go.
 */
#include "tester.h"

static uint64_t first_seed; /* 0: another one in each run */
static int seconds;         /* 0: a short run */

static int64_t end_at;
static int64_t spawned, ran;      /* goroutines that were begun, and those that have run */
static int64_t values, destroyed; /* values set for `key`, and calls of its destructor */
static gs_key key;
static pthread_key_t thread_key;
static int stoppers;              /* threads that have stopped the world: 0 or 1 */
static uint32_t lowest_limit = 40; /* of threads; LIFE_THREADS */

static int more(void)
{
    return clock_now() < end_at;
}

static uint64_t below(uint64_t *seed, uint64_t n)
{
    return random_next(seed) % n;
}

static void destroy(void *value)
{
    CHECK(value == &values);
    ADD(destroyed, 1);
}

/* On threads of the library: it may be ending, or have ended. */
static void call_at_the_end_of_a_thread(void *value)
{
    CHECK(value == &thread_key);
    (void)gs_num_goroutines();
    CHECK_EQ(gs_mutex_trylock(&(gs_mutex){0}), 0);
}

/* ---- What goroutines do ---- */

static void *block(void *arg)
{
    nap((int64_t)(uintptr_t)arg);
    return NULL;
}

static void live(void *arg)
{
    uint64_t seed = (uintptr_t)arg * 0x9e3779b97f4a7c15u | 1;
    int64_t until;
    if (below(&seed, 4) == 0) {
        ADD(values, 1);
        CHECK_EQ(gs_setspecific(key, &values), 0);
    }
    switch (below(&seed, 8)) {
    case 0:
        (void)gs_sleep((int64_t)below(&seed, 300) * US);
        break;
    case 1:
        gs_yield();
        break;
    case 2:
        gs_lock_os_thread();
        CHECK_EQ(pthread_setspecific(thread_key, &thread_key), 0);
        (void)gs_sleep(50 * US);
        if (below(&seed, 2))
            CHECK_EQ(gs_unlock_os_thread(), 0); /* else its thread ends with it */
        break;
    case 3:
        gs_entersyscall();
        nap((int64_t)below(&seed, 200) * US);
        gs_exitsyscall();
        break;
    case 4:
        (void)gs_blocking(block, (void *)(uintptr_t)(below(&seed, 200) * US));
        break;
    case 5: /* computes and allocates: it may be stopped anywhere */
        for (until = clock_now() + (int64_t)below(&seed, 500) * US; clock_now() < until;)
            free(malloc(1 + below(&seed, 5000)));
        break;
    case 6:
        nap((int64_t)below(&seed, 200) * US); /* blocks without a word */
        break;
    default:
        break;
    }
    ADD(ran, 1);
}

static void begin(uint64_t *seed, gs_g **g)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    void *arg = (void *)(uintptr_t)random_next(seed);
    opts.priority = (int)below(seed, 4) - 2;
    opts.flags = below(seed, 4) == 0 ? GS_SPAWN_PINNED : 0;
    ADD(spawned, 1);
    CHECK_EQ(gs_spawn_with(live, arg, below(seed, 2) ? &opts : NULL, g), 0);
}

static void live_with_others(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    gs_g *gs[6];
    size_t i;
    ADD(spawned, 1);
    for (i = 0; i < LENGTH(gs); i++)
        begin(&seed, &gs[i]);
    for (i = 0; i < LENGTH(gs); i++) {
        if (below(&seed, 3) == 0)
            CHECK_EQ(gs_cancel(gs[i]), 0);
        if (below(&seed, 2))
            CHECK_EQ(gs_join(gs[i], GS_FOREVER), 0);
        gs_release(gs[i]);
    }
    ADD(ran, 1);
}

/* ---- What threads do ---- */

static void run_some(uint64_t *seed)
{
    CHECK_EQ(gs_run(live_with_others, (void *)(uintptr_t)random_next(seed)), 0);
}

static void spawn_some(uint64_t *seed)
{
    gs_g *g = NULL;
    int i, e;
    for (i = 0; i < 5; i++)
        begin(seed, NULL);
    begin(seed, &g);
    CHECK(gs_retain(g) == g);
    gs_release(g);
    e = gs_join(g, gs_after_us((int64_t)below(seed, 2000)));
    CHECK(e == 0 || e == -ETIMEDOUT);
    gs_release(g);
}

static void shut_down(uint64_t *seed)
{
    const int64_t deadlines[] = {GS_NOWAIT, gs_after_us(200), gs_after_ms(20)};
    int e = gs_shutdown(deadlines[below(seed, LENGTH(deadlines))]);
    CHECK(e == 0 || e == -EAGAIN || e == -ETIMEDOUT);
}

static void start(uint64_t *seed)
{
    gs_config cfg = GS_CONFIG_INIT;
    int e;
    cfg.gomaxprocs = 1 + (uint32_t)below(seed, 4);
    cfg.max_threads = below(seed, 3) ? 0 : lowest_limit + (uint32_t)below(seed, 20);
    e = gs_init(&cfg);
    CHECK(e == 0 || e == -EBUSY);
}

static void change_limits(uint64_t *seed)
{
    CHECK_GE(gs_gomaxprocs((int)below(seed, 5)), 1);
    CHECK_GE(gs_set_max_threads(below(seed, 2) ? 10000 : (int)(lowest_limit + below(seed, 20))), 1);
}

static void stop_world(uint64_t *seed)
{
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(ADD(stoppers, 1), 1);
    CHECK_EQ(gs_stop_the_world(), -EDEADLK);
    CHECK_EQ(ADD(stoppers, -1), 0);
    CHECK_EQ(gs_start_the_world(), 0);
    CHECK_EQ(gs_start_the_world(), -EPERM);
    (void)seed;
}

static void do_nothing(void *arg)
{
    *(int *)arg += 1;
}

static void fork_one(uint64_t *seed)
{
    int status, n = 0;
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        alarm(check_seconds());
        current_test = "in the child of fork";
        if (below(seed, 2))
            CHECK_EQ(gs_shutdown(GS_NOWAIT), 0);
        CHECK_EQ(gs_run(do_nothing, &n), 0);
        CHECK_EQ(n, 1);
        CHECK_EQ(gs_num_goroutines(), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void (*const kinds[])(uint64_t *) = {run_some, spawn_some, shut_down, start, change_limits, stop_world, fork_one};

static void do_one(uint64_t *seed, uint64_t kind)
{
    if (has_part((int)kind))
        kinds[kind](seed);
    else
        sched_yield();
}

static void *short_life(void *seed)
{
    uint64_t own = (uintptr_t)seed | 1;
    do_one(&own, below(&own, 2));
    CHECK_EQ(gs_setspecific(key, &values), 0);
    ADD(values, 1);
    return NULL;
}

/* Comes back to one kind again and again, and to others now and then. */
static void *act(void *arg)
{
    uint64_t seed = (uintptr_t)arg | 1;
    uint64_t favourite = below(&seed, LENGTH(kinds));
    while (more()) {
        if (below(&seed, 20) == 0 && has_part(7))
            join_thread(start_thread(short_life, (void *)(uintptr_t)random_next(&seed)));
        do_one(&seed, below(&seed, 3) ? favourite : below(&seed, LENGTH(kinds)));
    }
    return NULL;
}

TEST(any_order_of_starts_stops_and_forks)
{
    uint64_t seed = first_seed ? first_seed : (uint64_t)clock_now() | 1;
    pthread_t threads[5];
    long fds = count_fds();
    int i, n = sized(LENGTH(threads));
    if (getenv("LIFE_THREADS"))
        lowest_limit = (uint32_t)atoi(getenv("LIFE_THREADS"));
    snprintf(check_note, sizeof check_note, "seed %llu", (unsigned long long)seed);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_key_create(&key, destroy), 0);
    CHECK_EQ(pthread_key_create(&thread_key, call_at_the_end_of_a_thread), 0);
    if (seconds)
        alarm((unsigned)seconds + check_seconds());
    end_at = clock_now() + (seconds ? seconds * SEC : SEC);
    for (i = 0; i < n; i++)
        threads[i] = start_thread(act, (void *)(uintptr_t)random_next(&seed));
    for (i = 0; i < n; i++)
        join_thread(threads[i]);
    while (gs_shutdown(GS_FOREVER) != 0 || gs_num_goroutines() != 0)
        ;
    CHECK_EQ(GET(ran), GET(spawned));
    CHECK_EQ(GET(destroyed), GET(values));
    NAP_UNTIL(count_threads() == 1); /* an ended thread may be listed for a moment */
    CHECK_EQ(count_fds(), fds);
    CHECK_EQ(gs_key_delete(key), 0);
}

int main(int argc, char **argv)
{
    if (asked_for_parts(argc, argv, LENGTH(kinds) + 1))
        return 0;
    if (argc > 1 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        seconds = atoi(argv[1]);
        first_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
        argc = 1;
    }
    return check_main(argc, argv);
}
