/* Start and stop: the default start, gs_init, gs_run, gs_shutdown, the clock and the error texts. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static long threads_at_load;

__attribute__((constructor(101))) static void count_threads_at_load(void)
{
    threads_at_load = count_threads();
}

static gs_config config(void)
{
    gs_config c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    return c;
}

static void stop(void)
{
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

static void set_flag(void *flag)
{
    SET(*(int *)flag, 1);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* First of all tests: later ones start the runtime. */
TEST(no_thread_is_started_at_load)
{
    CHECK_EQ(threads_at_load, 1);
    CHECK_EQ(count_threads(), 1);
}

TEST(shutdown_without_a_runtime_gives_0)
{
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_shutdown(GS_NOWAIT), 0);
    CHECK_EQ(gs_shutdown(1), 0);
    NAP_UNTIL(count_threads() == 1);
}

TEST(first_call_starts_the_runtime)
{
    int ran = 0;
    gs_g *g;
    stop();
    g = go_ref(set_flag, &ran);
    join(g);
    CHECK_EQ(GET(ran), 1);
}

TEST(second_init_is_EBUSY)
{
    gs_config c = config();
    stop();
    CHECK_EQ(gs_init(&c), 0);
    CHECK_EQ(gs_init(&c), -EBUSY);
    CHECK_EQ(gs_init(NULL), -EBUSY);
    stop();
}

TEST(init_after_a_default_start_is_EBUSY)
{
    gs_config c = config();
    int ran = 0;
    stop();
    join(go_ref(set_flag, &ran));
    CHECK_EQ(gs_init(&c), -EBUSY);
    stop();
    CHECK_EQ(gs_init(&c), 0);
    stop();
}

TEST(init_with_NULL_takes_the_defaults)
{
    stop();
    CHECK_EQ(gs_init(NULL), 0);
    CHECK_GE(gs_gomaxprocs(0), 1);
    stop();
}

static void check_refused(const gs_config *c)
{
    long threads = count_threads();
    CHECK_EQ(gs_init(c), -EINVAL);
    CHECK_LE(count_threads(), threads); /* an ended thread may have been listed for a moment */
}

/* Each bad config is refused, and the one after it is taken: nothing was half done. */
TEST(bad_config_is_EINVAL_and_starts_nothing)
{
    gs_config c = config();
    stop();
    c.size = 0;
    check_refused(&c);
    c.size = sizeof(size_t);
    check_refused(&c);
    c = config();
    c.flags = ~(uint32_t)0;
    check_refused(&c);
    c.flags = 0x40000000u;
    check_refused(&c);
    c = config();
    c.stack_size = ((size_t)1 << 30) + 1;
    check_refused(&c);
    c.stack_size = SIZE_MAX;
    check_refused(&c);
    c = config();
    c.topology = "no such topology";
    check_refused(&c);
    c.topology = "node:";
    check_refused(&c);
    c.topology = "node:999 core:99 pu:1"; /* hwloc would take minutes */
    CHECK_EQ(gs_init(&c), -EINVAL);
    c.topology = "node:0 core:2 pu:1";
    check_refused(&c);
    c = config();
    CHECK_EQ(gs_init(&c), 0);
    stop();
}

struct larger_config {
    gs_config known;
    unsigned char later[32];
};

/* Filters of system calls refuse a thread with other errors than the kernel. */
TEST(a_refused_thread_is_EAGAIN_and_starts_nothing)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {LENGTH(code), code};
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
        CHECK_EQ(gs_init(NULL), -EAGAIN);
        CHECK_EQ(gs_spawn(nothing, NULL), -EAGAIN);
        CHECK_EQ(gs_run(nothing, NULL), -EAGAIN);
        CHECK(gs_timer_start(0, nothing, NULL) == NULL);
        CHECK_EQ(gs_shutdown(GS_NOWAIT), 0);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

TEST(a_larger_config_is_taken_only_if_the_rest_is_zero)
{
    struct larger_config c;
    stop();
    memset(&c, 0, sizeof c);
    c.known.size = sizeof c;
    c.later[31] = 1;
    check_refused(&c.known);
    c.later[31] = 0;
    CHECK_EQ(gs_init(&c.known), 0);
    stop();
}

TEST(field_wins_over_environment)
{
    gs_config c = config();
    stop();
    c.gomaxprocs = 3;
    c.topology = "flat";
    CHECK_EQ(gs_init(&c), 0);
    CHECK_EQ(gs_gomaxprocs(0), 3);
    stop();
    c.gomaxprocs = 1;
    CHECK_EQ(gs_init(&c), 0);
    CHECK_EQ(gs_gomaxprocs(0), 1);
    stop();
}

static void set_or_unset(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static int procs_with(const char *gosched, const char *go)
{
    int n;
    stop();
    set_or_unset("GOSCHED_PROCS", gosched);
    set_or_unset("GOMAXPROCS", go);
    CHECK_EQ(gs_init(NULL), 0);
    n = gs_gomaxprocs(0);
    stop();
    return n;
}

TEST(environment_gives_the_number_of_procs)
{
    char *before = getenv("GOSCHED_PROCS");
    before = before ? strdup(before) : NULL;
    CHECK_EQ(procs_with("5", NULL), 5);
    CHECK_EQ(procs_with(NULL, "3"), 3);
    CHECK_EQ(procs_with("2", "7"), 2);
    set_or_unset("GOSCHED_PROCS", before);
    unsetenv("GOMAXPROCS");
    free(before);
}

/* Without field and environment: the CPUs in the affinity mask, or fewer by the cgroup's quota. */
TEST(default_procs_follow_the_affinity_mask)
{
    char *procs = getenv("GOSCHED_PROCS"), *topology = getenv("GOSCHED_TOPOLOGY");
    cpu_set_t all, one;
    int n, cpu = 0;
    procs = procs ? strdup(procs) : NULL;
    topology = topology ? strdup(topology) : NULL;
    unsetenv("GOSCHED_TOPOLOGY");
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    n = procs_with(NULL, NULL);
    CHECK_GE(n, 1);
    CHECK_LE(n, CPU_COUNT(&all));
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    n = procs_with(NULL, NULL);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    CHECK_EQ(n, 1);
    set_or_unset("GOSCHED_PROCS", procs);
    set_or_unset("GOSCHED_TOPOLOGY", topology);
    free(procs);
    free(topology);
}

/* ---- gs_run ---- */

static void check_self(void *flag)
{
    CHECK(gs_self() != NULL);
    CHECK(gs_id(gs_self()) != 0);
    SET(*(int *)flag, 1);
}

TEST(run_runs_the_function_as_a_goroutine)
{
    int ran = 0;
    CHECK(gs_self() == NULL);
    CHECK_EQ(gs_run(check_self, &ran), 0);
    CHECK_EQ(ran, 1);
    CHECK(gs_self() == NULL);
}

TEST(run_again_and_again)
{
    int i, ran;
    for (i = 0; i < 200; i++) {
        ran = 0;
        CHECK_EQ(gs_run(set_flag, &ran), 0);
        CHECK_EQ(ran, 1);
    }
}

static void run_inside(void *flag)
{
    CHECK_EQ(gs_run(nothing, NULL), -EBUSY);
    SET(*(int *)flag, 1);
}

TEST(run_inside_a_goroutine_is_EBUSY)
{
    int ran = 0;
    CHECK_EQ(gs_run(run_inside, &ran), 0);
    CHECK_EQ(ran, 1);
    ran = 0;
    join(go_ref(run_inside, &ran));
    CHECK_EQ(ran, 1);
}

static void exit_below(void)
{
    gs_exit();
    CHECK(!"gs_exit returned in a goroutine");
}

static void exit_soon(void *flag)
{
    SET(*(int *)flag, 1);
    gs_yield();
    exit_below();
}

TEST(exit_in_the_function_of_run_gives_0)
{
    int ran = 0;
    CHECK_EQ(gs_run(exit_soon, &ran), 0);
    CHECK_EQ(ran, 1);
}

static void wait_for_flag(void *flag)
{
    WAIT_UNTIL(GET(*(int *)flag));
}

static void leave_one_behind(void *flag)
{
    go(wait_for_flag, flag);
    gs_yield();
}

TEST(run_returns_though_other_goroutines_go_on)
{
    int flag = 0;
    stop();
    CHECK_EQ(gs_run(leave_one_behind, &flag), 0);
    CHECK_EQ(gs_num_goroutines(), 1);
    SET(flag, 1);
    stop();
}

struct pair {
    gs_chan *there, *back;
    int started;
};

static void answer(void *arg)
{
    struct pair *p = arg;
    int i;
    for (i = 0; i < 100; i++)
        send_int(p->back, recv_int(p->there) + 1);
}

static void ask(void *arg)
{
    struct pair *p = arg;
    int i;
    for (i = 0; i < 100; i++) {
        send_int(p->there, i);
        CHECK_EQ(recv_int(p->back), i + 1);
    }
}

static void *run_answer(void *arg)
{
    CHECK_EQ(gs_run(answer, arg), 0);
    return NULL;
}

static void *run_ask(void *arg)
{
    CHECK_EQ(gs_run(ask, arg), 0);
    return NULL;
}

TEST(several_threads_run_at_once)
{
    struct pair pairs[4];
    pthread_t threads[8];
    int i;
    for (i = 0; i < 4; i++) {
        pairs[i].there = chan_of_ints(0);
        pairs[i].back = chan_of_ints(0);
        threads[2 * i] = start_thread(run_answer, &pairs[i]);
        threads[2 * i + 1] = start_thread(run_ask, &pairs[i]);
    }
    for (i = 0; i < 8; i++)
        join_thread(threads[i]);
    for (i = 0; i < 4; i++) {
        free_chan(pairs[i].there);
        free_chan(pairs[i].back);
    }
}

/* ---- What threads inherit ---- */

#define BLOCKERS 6

static int blocking;

static void *block_with_others(void *arg)
{
    ADD(blocking, 1);
    NAP_UNTIL(GET(blocking) >= BLOCKERS);
    return arg;
}

static void block_thread(void *arg)
{
    (void)gs_blocking(block_with_others, arg);
}

/* Needs more threads than there are: each of the goroutines keeps one until all have begun. */
static void block_threads(void)
{
    gs_g *g[BLOCKERS];
    int i;
    SET(blocking, 0);
    for (i = 0; i < BLOCKERS; i++)
        g[i] = go_ref(block_thread, NULL);
    for (i = 0; i < BLOCKERS; i++)
        join(g[i]);
}

static void *call_modestly(void *arg)
{
    pid_t *tid = arg;
    *tid = thread_id();
    CHECK_EQ(setpriority(PRIO_PROCESS, (id_t)*tid, getpriority(PRIO_PROCESS, 0) + 1), 0);
    block_threads();
    return NULL;
}

static void check_niceness(int want, pid_t but)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL) {
        id_t tid = (id_t)atoi(e->d_name);
        int nice;
        if (e->d_name[0] == '.' || (pid_t)tid == but)
            continue;
        errno = 0;
        nice = getpriority(PRIO_PROCESS, tid);
        if (errno == 0)
            CHECK_EQ(nice, want);
    }
    closedir(dir);
}

/* What a plain thread sets for itself, such as its nice value or its CPUs, concerns no thread of the library. */
TEST(threads_inherit_nothing_from_plain_threads_that_call)
{
    int want = getpriority(PRIO_PROCESS, 0);
    pid_t tid;
    if (want == 19)
        SKIP("the nice value is the highest already");
    stop();
    CHECK_EQ(gs_init(NULL), 0);
    join_thread(start_thread(call_modestly, &tid));
    check_niceness(want, tid);
}

/* ---- Several at once ---- */

static int gate, started_ok, ran_ok;

static void count_run(void *arg)
{
    (void)arg;
    ADD(ran_ok, 1);
}

static void *first_call(void *arg)
{
    gs_g *g;
    (void)arg;
    NAP_UNTIL(GET(gate));
    g = go_ref(count_run, NULL);
    join(g);
    return NULL;
}

static void *init_at_once(void *arg)
{
    int r;
    (void)arg;
    NAP_UNTIL(GET(gate));
    r = gs_init(NULL);
    CHECK(r == 0 || r == -EBUSY);
    if (r == 0)
        ADD(started_ok, 1);
    return NULL;
}

static void eight_threads(void *(*fn)(void *))
{
    pthread_t threads[8];
    int i;
    SET(gate, 0);
    for (i = 0; i < 8; i++)
        threads[i] = start_thread(fn, NULL);
    SET(gate, 1);
    for (i = 0; i < 8; i++)
        join_thread(threads[i]);
}

TEST(first_call_from_several_threads_at_once)
{
    int round;
    for (round = 0; round < 5; round++) {
        stop();
        ran_ok = 0;
        eight_threads(first_call);
        CHECK_EQ(ran_ok, 8);
    }
}

TEST(of_several_inits_at_once_one_succeeds)
{
    int round;
    for (round = 0; round < 5; round++) {
        stop();
        started_ok = 0;
        eight_threads(init_at_once);
        CHECK_EQ(started_ok, 1);
    }
    stop();
}

static void *shutdown_at_once(void *arg)
{
    (void)arg;
    NAP_UNTIL(GET(gate));
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    return NULL;
}

TEST(several_shutdowns_at_once_all_succeed)
{
    int round, ran = 0;
    for (round = 0; round < 5; round++) {
        join(go_ref(set_flag, &ran));
        eight_threads(shutdown_at_once);
    }
}

/* ---- gs_shutdown ---- */

static void sleep_then_count(void *n)
{
    CHECK_EQ(gs_sleep(30 * MS), 0);
    ADD(*(int *)n, 1);
}

TEST(shutdown_waits_for_the_goroutines)
{
    int n = 0, i;
    stop();
    for (i = 0; i < 50; i++)
        go(sleep_then_count, &n);
    stop();
    CHECK_EQ(n, 50);
}

static void spawn_more(void *n)
{
    if (ADD(*(int *)n, 1) < 500)
        go(spawn_more, n);
}

TEST(shutdown_waits_for_goroutines_spawned_meanwhile)
{
    int n = 0;
    stop();
    go(spawn_more, &n);
    stop();
    CHECK_EQ(n, 500);
}

static void receive_one(void *ch)
{
    CHECK_EQ(recv_int(ch), 7);
}

TEST(shutdown_that_times_out_tears_nothing_down)
{
    gs_chan *ch;
    int ran = 0;
    int64_t deadline;
    stop();
    ch = chan_of_ints(0);
    go(receive_one, ch);
    deadline = gs_after_ms(20);
    CHECK_EQ(gs_shutdown(deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    CHECK_EQ(gs_shutdown(GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_shutdown(1), -ETIMEDOUT);
    CHECK_EQ(gs_num_goroutines(), 1);
    join(go_ref(set_flag, &ran));
    CHECK_EQ(ran, 1);
    CHECK_EQ(gs_run(check_self, &ran), 0);
    CHECK_EQ(gs_init(NULL), -EBUSY);
    send_int(ch, 7);
    free_chan(ch);
    stop();
}

static void shutdown_inside(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_shutdown(GS_FOREVER), -EDEADLK);
    CHECK_EQ(gs_shutdown(gs_after_ms(5)), -EDEADLK);
}

TEST(shutdown_inside_a_goroutine_is_EDEADLK)
{
    int ran = 0;
    CHECK_EQ(gs_run(shutdown_inside, NULL), 0);
    join(go_ref(set_flag, &ran));
    CHECK_EQ(ran, 1);
}

TEST(init_again_after_shutdown_with_other_values)
{
    static const unsigned procs[] = {1, 4, 2, 9, 1};
    gs_config c = config();
    size_t i;
    stop();
    for (i = 0; i < LENGTH(procs); i++) {
        c.gomaxprocs = procs[i];
        c.topology = i % 2 ? "node:2 core:2 pu:1" : "flat";
        CHECK_EQ(gs_init(&c), 0);
        CHECK_EQ(gs_gomaxprocs(0), procs[i]);
        stop();
    }
}

static void never(void *arg)
{
    (void)arg;
    CHECK(!"a timer of one hour has fired");
}

TEST(shutdown_does_not_wait_for_a_timer_that_has_not_fired)
{
    stop();
    CHECK(gs_timer_start(3600 * SEC, never, NULL) != NULL);
    CHECK(gs_after(3600 * SEC) != NULL);
    stop();
}

TEST(no_thread_is_left_after_shutdown)
{
    int n = 0, i;
    for (i = 0; i < 20; i++)
        go(sleep_then_count, &n);
    stop();
    CHECK_EQ(n, 20);
    NAP_UNTIL(count_threads() == 1); /* an ended thread may be listed for a moment */
}

static void small_job(void *arg)
{
    gs_chan *ch = chan_of_ints(1);
    int i;
    (void)arg;
    for (i = 0; i < 20; i++)
        go(count_run, NULL);
    go(receive_one, ch);
    send_int(ch, 7);
    CHECK_EQ(gs_sleep(50 * US), 0);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    free_chan(ch);
}

static void cycles(int n)
{
    int i;
    for (i = 0; i < n; i++) {
        CHECK_EQ(gs_init(NULL), 0);
        CHECK_EQ(gs_run(small_job, NULL), 0);
        stop();
    }
    NAP_UNTIL(count_threads() == 1);
}

/* Blocks its thread unannounced, with others that want its P, until sysmon asks the inspector. */
static void block_until_inspected(void *arg)
{
    int64_t *more = arg;
    NAP_UNTIL(count_threads_named("gosched-look") == 1);
    nap(*more);
}

static int inspected;

static void want_a_p(void *arg)
{
    (void)arg;
    while (!GET(inspected))
        gs_yield();
}

static void wait_for_blocked(void *g)
{
    join(g);
    SET(inspected, 1);
}

/* While sysmon and the world's stoppers ask it about threads that block and run on. */
TEST(the_inspector_ends_with_the_runtime)
{
    long threads, fds;
    int i;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    threads = count_threads();
    fds = count_fds();
    for (i = 0; i < 30; i++) {
        int64_t more[3];
        gs_config config = {0};
        size_t k;
        config.size = sizeof config;
        config.gomaxprocs = 1 + (uint32_t)i % 3;
        SET(inspected, 0);
        CHECK_EQ(gs_init(&config), 0);
        for (k = 0; k < 4; k++)
            go(want_a_p, NULL);
        for (k = 0; k < LENGTH(more); k++) {
            more[k] = (int64_t)(i * 3 + (int)k) * 37 * US;
            if (k == 0)
                go(wait_for_blocked, go_ref(block_until_inspected, &more[k]));
            else
                go(block_until_inspected, &more[k]);
        }
        if (i % 2) {
            CHECK_EQ(gs_stop_the_world(), 0);
            CHECK_EQ(gs_start_the_world(), 0);
        }
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        NAP_UNTIL(count_threads() <= threads); /* an ended thread may be listed for a moment */
        CHECK_EQ(count_fds(), fds);
    }
}

static void *hold_the_world(void *let_go)
{
    CHECK_EQ(gs_stop_the_world(), 0);
    SET(*(int *)let_go, 1);
    NAP_UNTIL(GET(*(int *)let_go) == 2);
    CHECK_EQ(gs_start_the_world(), 0);
    return NULL;
}

static void *shut_down(void *arg)
{
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    return arg;
}

/* What could only end once the world goes on fails at once for its stopper, and at the deadline for others. */
TEST(no_shutdown_waits_for_a_stopped_world_longer_than_asked_to)
{
    int state = 0, ran = 0;
    pthread_t t, other;
    CHECK_EQ(gs_init(NULL), 0);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), -EDEADLK);
    CHECK_EQ(gs_shutdown(GS_NOWAIT), -EDEADLK);
    CHECK_EQ(gs_gomaxprocs(3), -EDEADLK);
    CHECK_GE(gs_gomaxprocs(0), 1);
    CHECK_EQ(gs_run(set_flag, &ran), -EDEADLK);
    CHECK_EQ(ran, 0);
    CHECK_EQ(gs_attach(0), -EDEADLK);
    CHECK_EQ(gs_start_the_world(), 0);
    t = start_thread(hold_the_world, &state);
    NAP_UNTIL(GET(state) == 1);
    CHECK_EQ(gs_shutdown(GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_shutdown(gs_after_ms(20)), -ETIMEDOUT);
    other = start_thread(shut_down, NULL); /* waits until the world is started */
    for (int i = 0; i < 20; i++)
        CHECK_EQ(gs_shutdown(gs_after_ms(1)), -ETIMEDOUT);
    SET(state, 2);
    join_thread(t);
    join_thread(other);
    CHECK_EQ(gs_run(set_flag, &ran), 0);
    CHECK_EQ(ran, 1);
    stop();
}

TEST(many_cycles_leak_no_thread_map_or_fd)
{
    long maps, fds;
    stop();
    cycles(10);
    maps = count_maps();
    fds = count_fds();
    cycles(50);
    CHECK_LE(count_maps(), maps + 20);
    CHECK_EQ(count_fds(), fds);
}

/* ---- The clock, deadlines, error texts, versions ---- */

/* ---- Destructors of pthread_setspecific's values run while a thread of the library ends ---- */

static pthread_key_t of_threads;
static int destroyed;
static gs_mutex used_at_the_end;

static void return_now(void *arg)
{
    (void)arg;
}

static void call_the_library(void *arg)
{
    CHECK_EQ(gs_mutex_lock(&used_at_the_end, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&used_at_the_end), 0);
    (void)gs_num_goroutines();
    (void)gs_numa_nodes();
    CHECK_EQ(gs_spawn(return_now, arg), 0); /* starts another runtime, if there is none */
    CHECK_EQ(gs_sleep(MS), 0);
    ADD(destroyed, 1);
}

static void leave_a_value(void *arg)
{
    CHECK_EQ(pthread_setspecific(of_threads, &destroyed), 0);
    if (arg)
        gs_lock_os_thread(); /* ends with its thread */
    gs_yield();
}

static void leave_values(void *arg)
{
    gs_g *gs[4];
    int i;
    for (i = 0; i < 4; i++)
        gs[i] = go_ref(leave_a_value, arg);
    for (i = 0; i < 4; i++)
        join(gs[i]);
}

TEST(destructors_of_thread_specific_values_may_call_the_library)
{
    int i;
    CHECK_EQ(pthread_key_create(&of_threads, call_the_library), 0);
    for (i = 0; i < 10; i++) {
        int before = GET(destroyed);
        join(go_ref(leave_values, i % 2 ? &destroyed : NULL));
        while (gs_shutdown(GS_FOREVER) != 0 || count_threads() > 1)
            ;
        CHECK(GET(destroyed) > before);
    }
    CHECK_EQ(pthread_key_delete(of_threads), 0);
}

/* ---- pthread_cancel of a plain thread that wakes and waits ---- */

static void *lock_and_spawn(void *arg)
{
    for (;;) {
        if (gs_mutex_lock(&used_at_the_end, gs_after_ms(5)) == 0)
            (void)gs_mutex_unlock(&used_at_the_end);
        CHECK_EQ(gs_spawn(return_now, arg), 0);
        pthread_testcancel();
    }
    return NULL;
}

TEST(a_cancelled_thread_leaves_nothing_behind)
{
    int i;
    for (i = 0; i < 20; i++) {
        pthread_t t = start_thread(lock_and_spawn, NULL);
        nap(MS + i * 100 * US);
        CHECK_EQ(pthread_cancel(t), 0);
        join_thread(t);
    }
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- References to goroutines of a runtime that has ended, or ends just now ---- */

static gs_g *ended[2];
static int handed_out, given_back;

/* Gives back one of each pair, as soon as both threads may. */
static void *release_one_of_each(void *which)
{
    int i;
    for (i = 1; i <= 100; i++) {
        while (GET(handed_out) < i)
            sched_yield();
        gs_release(ended[which != NULL]);
        ADD(given_back, 1);
    }
    return NULL;
}

/* Memory that the last reference keeps is not unmapped while the other one is given back. */
TEST(the_last_references_are_given_back_by_two_threads_at_once)
{
    pthread_t threads[2];
    int i;
    handed_out = given_back = 0;
    threads[0] = start_thread(release_one_of_each, NULL);
    threads[1] = start_thread(release_one_of_each, &ended);
    for (i = 1; i <= 100; i++) {
        ended[0] = go_ref(return_now, NULL);
        ended[1] = go_ref(return_now, NULL);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        SET(handed_out, i);
        while (GET(given_back) < 2 * i)
            sched_yield();
    }
    join_thread(threads[0]);
    join_thread(threads[1]);
}

static int rounds, releasing;

static void *spawn_and_release(void *arg)
{
    while (GET(releasing)) {
        gs_g *gs[8];
        int i;
        for (i = 0; i < 8; i++)
            gs[i] = go_ref(return_now, NULL);
        for (i = 0; i < 8; i++)
            CHECK_EQ(gs_join(gs[i], GS_FOREVER), 0);
        for (i = 0; i < 8; i++)
            gs_release(gs[i]);
        ADD(rounds, 1);
    }
    return arg;
}

TEST(references_are_given_back_while_the_runtime_ends)
{
    pthread_t threads[3];
    int i;
    rounds = 0;
    SET(releasing, 1);
    for (i = 0; i < 3; i++)
        threads[i] = start_thread(spawn_and_release, NULL);
    while (GET(rounds) < 150)
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    SET(releasing, 0);
    for (i = 0; i < 3; i++)
        join_thread(threads[i]);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(now_is_CLOCK_MONOTONIC)
{
    int i;
    for (i = 0; i < 1000; i++) {
        int64_t before = clock_now(), now = gs_now(), after = clock_now();
        CHECK_GE(now, before);
        CHECK_GE(after, now);
    }
}

TEST(after_gives_a_deadline_from_now)
{
    int64_t before = clock_now(), deadline = gs_after_ms(1000);
    CHECK_GE(clock_now() + SEC, deadline);
    CHECK_GE(gs_after_ns(5), before + 5);
    CHECK_GE(gs_after_us(5), before + 5 * US);
    CHECK_GE(gs_after_ms(5), before + 5 * MS);
    CHECK_GE(gs_after_ns(0), before);
}

TEST(after_saturates_and_is_never_below_1)
{
    CHECK_EQ(gs_after_ns(INT64_MAX), INT64_MAX);
    CHECK_EQ(gs_after_us(INT64_MAX), INT64_MAX);
    CHECK_EQ(gs_after_ms(INT64_MAX), INT64_MAX);
    CHECK_EQ(gs_after_us(INT64_MAX / 1000), INT64_MAX);
    CHECK_EQ(gs_after_ms(INT64_MAX / 1000000), INT64_MAX);
    CHECK_EQ(gs_after_ns(INT64_MIN), 1);
    CHECK_EQ(gs_after_us(INT64_MIN), 1);
    CHECK_EQ(gs_after_ms(INT64_MIN), 1);
    CHECK_EQ(gs_after_ns(-clock_now() - SEC), 1);
    CHECK_GE(gs_after_ns(-1), 1);
}

TEST(strerror_gives_a_static_text_for_any_int)
{
    static const int some[] = {0, -EINVAL, -EBUSY, -EAGAIN, -ETIMEDOUT, -ECANCELED, -EPIPE, -EPERM, -EDEADLK,
                               EINVAL, INT_MIN, INT_MAX, -1, 1, -4095, -123456789, 123456789};
    size_t i;
    int e;
    for (i = 0; i < LENGTH(some); i++) {
        const char *s = gs_strerror(some[i]);
        CHECK(s != NULL && strlen(s) > 0);
        CHECK(s == gs_strerror(some[i]));
    }
    for (e = -300; e <= 300; e++)
        CHECK(gs_strerror(e) != NULL && gs_strerror(e)[0] != 0);
    CHECK(strcmp(gs_strerror(-EINVAL), gs_strerror(-EBUSY)) != 0);
    CHECK(strcmp(gs_strerror(-ETIMEDOUT), gs_strerror(-EAGAIN)) != 0);
}

TEST(strerror_explains_each_error_that_the_header_names)
{
    static const int named[] = {EADDRINUSE, EAGAIN, EBADF, EBUSY, ECANCELED, ECHILD, ECONNABORTED, ECONNREFUSED, EDEADLK,
                                EFAULT, EINTR, EINVAL, ELIBACC, EMFILE, ENAMETOOLONG, ENFILE, ENOENT, ENOMEM, ENOSYS,
                                ENOTSOCK, EPERM, EPIPE, ETIMEDOUT};
    const char *of_system = gs_strerror(-4000);
    for (size_t i = 0; i < LENGTH(named); i++)
        CHECK(strcmp(gs_strerror(-named[i]), of_system) != 0);
}

TEST(versions_are_there)
{
    CHECK(gs_version() != NULL && gs_version()[0] != 0);
    CHECK_EQ(gs_abi_version(), 1);
}
