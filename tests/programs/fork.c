/* fork: the child has a fresh, uninitialised runtime and the host's signal mask; the parent goes on. */
#include "check.h"

#include <link.h>

static void count(void *n)
{
    ADD(*(int *)n, 1);
}

struct job {
    gs_chan *ch;
    int sum;
};

static void produce(void *arg)
{
    struct job *j = arg;
    int i;
    for (i = 1; i <= 20; i++)
        send_int(j->ch, i);
    CHECK_EQ(gs_chan_close(j->ch), 0);
}

static void consume(void *arg)
{
    struct job *j = arg;
    int64_t v;
    while (gs_chan_recv(j->ch, &v, GS_FOREVER) == 0)
        j->sum += (int)v;
}

static void whole_job(void *arg)
{
    struct job *j = arg;
    gs_g *g;
    j->ch = chan_of_ints(0);
    g = go_ref(produce, j);
    consume(j);
    join(g);
    free_chan(j->ch);
    CHECK_EQ(gs_sleep(MS), 0);
}

/* A complete life of a runtime in the child. Does not return. */
static void live_in_child(void)
{
    struct job j = {NULL, 0};
    int n = 0;
    alarm(check_seconds());
    current_test = "in the child of fork";
    CHECK_EQ(count_threads(), 1);
    CHECK_EQ(gs_shutdown(GS_NOWAIT), 0); /* there is no runtime */
    CHECK_EQ(gs_init(NULL), 0);
    CHECK(gs_self() == NULL);
    CHECK_EQ(gs_num_goroutines(), 0);
    join(go_ref(count, &n));
    CHECK_EQ(n, 1);
    CHECK_EQ(gs_run(whole_job, &j), 0);
    CHECK_EQ(j.sum, 210);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    _exit(0);
}

static void check_exit(pid_t pid)
{
    int status;
    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static void fork_once(void)
{
    pid_t pid = fork();
    if (pid == 0)
        live_in_child();
    check_exit(pid);
}

/* ---- Something that keeps the parent's runtime busy, and is checked at the end ---- */

struct load {
    gs_chan *ring[8];
    int64_t turns[8];
    struct member {
        struct load *load;
        int i;
    } members[8];
    gs_mutex mutex;
    int stop;
    gs_g *gs[8];
};

static void run_ring(void *arg)
{
    struct member *m = arg;
    struct load *l = m->load;
    int64_t v;
    while (gs_chan_recv(l->ring[m->i], &v, GS_FOREVER) == 0) {
        CHECK_EQ(gs_mutex_lock(&l->mutex, GS_FOREVER), 0);
        l->turns[m->i] = v;
        CHECK_EQ(gs_mutex_unlock(&l->mutex), 0);
        free(malloc(100));
        if (v % 64 == 0)
            CHECK_EQ(gs_sleep(50 * US), 0);
        if (GET(l->stop) && m->i == 7)
            break;
        send_int(l->ring[(m->i + 1) % 8], v + 1);
    }
    if (m->i == 7)
        for (v = 0; v < 7; v++)
            CHECK_EQ(gs_chan_close(l->ring[v]), 0);
}

static void start_load(struct load *l)
{
    int i;
    memset(l, 0, sizeof *l);
    for (i = 0; i < 8; i++)
        l->ring[i] = chan_of_ints(1);
    for (i = 0; i < 8; i++) {
        l->members[i].load = l;
        l->members[i].i = i;
        l->gs[i] = go_ref(run_ring, &l->members[i]);
    }
    send_int(l->ring[0], 0);
}

static void stop_load(struct load *l)
{
    int i;
    SET(l->stop, 1);
    for (i = 7; i >= 0; i--)
        join(l->gs[i]);
    for (i = 0; i < 8; i++) {
        CHECK_EQ(l->turns[i] % 8, i);
        free_chan(l->ring[i]);
    }
}

/* ---- Tests ---- */

TEST(fork_before_the_runtime_starts)
{
    fork_once();
}

TEST(fork_from_the_main_thread)
{
    int n = 0;
    join(go_ref(count, &n));
    fork_once();
    join(go_ref(count, &n));
    CHECK_EQ(n, 2);
}

GO_TEST(fork_from_a_goroutine)
{
    int n = 0;
    fork_once();
    join(go_ref(count, &n));
    CHECK_EQ(n, 1);
}

static void fork_in_goroutine(void *arg)
{
    (void)arg;
    fork_once();
}

TEST(fork_from_a_goroutine_on_a_worker_thread)
{
    int i;
    for (i = 0; i < 5; i++)
        join(go_ref(fork_in_goroutine, NULL));
}

static void *fork_in_thread(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 10; i++)
        fork_once();
    return NULL;
}

TEST(fork_from_a_foreign_thread_under_load)
{
    struct load l;
    start_load(&l);
    join_thread(start_thread(fork_in_thread, NULL));
    stop_load(&l);
}

TEST(fork_from_goroutines_and_threads_at_once)
{
    struct load l;
    gs_g *gs[3];
    pthread_t threads[2];
    int i;
    start_load(&l);
    for (i = 0; i < 3; i++)
        gs[i] = go_ref(fork_in_goroutine, NULL);
    for (i = 0; i < 2; i++)
        threads[i] = start_thread(fork_in_thread, NULL);
    for (i = 0; i < 3; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        join_thread(threads[i]);
    stop_load(&l);
}

static void *fork_and_return(void *pid)
{
    *(pid_t *)pid = fork();
    return NULL;
}

GO_TEST(fork_inside_gs_blocking)
{
    pid_t pid = -1;
    (void)gs_blocking(fork_and_return, &pid);
    if (pid == 0)
        _exit(0); /* the goroutine is back from gs_blocking in the child, or never gets here */
    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

TEST(child_of_a_child)
{
    pid_t pid = fork();
    if (pid == 0) {
        int n = 0;
        alarm(check_seconds());
        join(go_ref(count, &n));
        fork_once();
        join(go_ref(count, &n));
        _exit(n == 2 ? 0 : 1);
    }
    check_exit(pid);
}

static void wait_in(void *ch)
{
    int64_t v;
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), -EPIPE);
}

static void count_goroutine(const gs_g_info *info, void *n)
{
    (void)info;
    ADD(*(int *)n, 1);
}

static void release_and_spawn(void *of_parent)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *g;
    int seen = 0;
    gs_release(of_parent);
    g = go_ref(wait_in, ch);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_foreach_g(count_goroutine, &seen), 0);
    CHECK_EQ(gs_start_the_world(), 0);
    CHECK_EQ(seen, 2); /* the caller and g */
    CHECK_EQ(gs_chan_close(ch), 0);
    join(g);
    free_chan(ch);
}

/* A new goroutine had the parent's descriptor, which gs_foreach_g doesn't visit in the child. */
TEST(a_reference_of_the_parent_is_given_back_in_the_child)
{
    int n = 0;
    gs_g *g = go_ref(count, &n);
    pid_t pid;
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    nap(20 * MS); /* most likely the goroutine has given its own reference back by then */
    pid = fork();
    if (pid == 0) {
        alarm(check_seconds());
        CHECK_EQ(gs_run(release_and_spawn, g), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        _exit(0);
    }
    check_exit(pid);
    gs_release(g);
}

TEST(sync_objects_that_are_free_work_in_the_child)
{
    static gs_mutex m;
    static gs_waitgroup wg;
    pid_t pid;
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&m), 0);
    pid = fork();
    if (pid == 0) {
        alarm(check_seconds());
        CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
        CHECK_EQ(gs_mutex_unlock(&m), 0);
        CHECK_EQ(gs_waitgroup_add(&wg, 1), 0);
        CHECK_EQ(gs_waitgroup_done(&wg), 0);
        CHECK_EQ(gs_waitgroup_wait(&wg, GS_NOWAIT), 0);
        _exit(0);
    }
    check_exit(pid);
}

/* The library sends ticks all the time, and a tick takes the locks of its timer and of its channel. */
TEST(the_child_frees_tickers_that_tick_at_the_moment_of_the_fork)
{
    gs_chan *tickers[20];
    size_t n;
    int i;
    for (n = 0; n < LENGTH(tickers); n++)
        CHECK((tickers[n] = gs_ticker_start(US)) != NULL);
    for (i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(check_seconds());
            for (n = 0; n < LENGTH(tickers); n++) {
                CHECK_EQ(gs_ticker_stop(tickers[n]), 0);
                free_chan(tickers[n]);
            }
            _exit(0);
        }
        check_exit(pid);
    }
    for (n = 0; n < LENGTH(tickers); n++)
        free_chan(tickers[n]);
}

static void yield_until_set(void *flag)
{
    while (!GET(*(int *)flag))
        gs_yield();
}

/* A goroutine that blocks loses its P, and another thread that runs the P fires its timers. */
static void fork_after_blocks(void *arg)
{
    gs_chan **tickers = arg;
    int i, n, done = 0;
    gs_g *g = go_ref(yield_until_set, &done);
    for (i = 0; i < 200; i++) {
        pid_t pid;
        nap(2 * MS);
        pid = fork();
        if (pid == 0) {
            alarm(check_seconds());
            for (n = 0; n < 20; n++) {
                CHECK_EQ(gs_ticker_stop(tickers[n]), 0);
                free_chan(tickers[n]);
            }
            _exit(0);
        }
        check_exit(pid);
    }
    SET(done, 1);
    join(g);
}

TEST(the_child_of_a_goroutine_without_p_frees_tickers_that_tick_at_the_moment_of_the_fork)
{
    gs_chan *tickers[20];
    size_t n;
    for (n = 0; n < LENGTH(tickers); n++)
        CHECK((tickers[n] = gs_ticker_start(US)) != NULL);
    CHECK_EQ(gs_run(fork_after_blocks, tickers), 0);
    for (n = 0; n < LENGTH(tickers); n++)
        free_chan(tickers[n]);
}

/* ---- The signal mask ---- */

static const int some_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM,
                                   SIGTERM, SIGCHLD, SIGURG, SIGPROF, SIGWINCH, SIGSEGV};

/* 0 if the calling thread's mask is the host's. */
static int compare_mask(const sigset_t *host)
{
    sigset_t now;
    size_t i;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (i = 0; i < LENGTH(some_signals); i++)
        if (sigismember(&now, some_signals[i]) != sigismember(host, some_signals[i]))
            return some_signals[i];
    return 0;
}

static void fork_and_compare(void *host)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(compare_mask(host));
    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0); /* else the first signal that differs */
}

TEST(the_child_has_the_mask_of_the_host)
{
    sigset_t block, before, host;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    pthread_sigmask(SIG_SETMASK, NULL, &host);
    CHECK_EQ(gs_init(NULL), 0);
    fork_and_compare(&host);
    join(go_ref(fork_and_compare, &host)); /* on a worker */
    CHECK_EQ(gs_run(fork_and_compare, &host), 0);
    CHECK_EQ(compare_mask(&host), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *compare_in_thread(void *host)
{
    fork_and_compare(host);
    return NULL;
}

TEST(a_foreign_thread_keeps_its_mask)
{
    sigset_t host;
    pthread_sigmask(SIG_SETMASK, NULL, &host);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_init(NULL), 0);
    CHECK_EQ(compare_mask(&host), 0);
    join_thread(start_thread(compare_in_thread, &host));
}

/* ---- fork waits for the locks of malloc, and others are stopped in the middle of malloc ---- */

static int churning, enough;

static void churn(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    while (!GET(enough)) {
        void *blocks[64];
        size_t i;
        for (i = 0; i < LENGTH(blocks); i++)
            blocks[i] = malloc(random_next(&seed) % 9000);
        for (i = 0; i < LENGTH(blocks); i++)
            free(blocks[i]);
    }
    ADD(churning, -1);
}

static void start_churning(void)
{
    uintptr_t i;
    SET(enough, 0);
    for (i = 1; i <= 8; i++) {
        ADD(churning, 1);
        go(churn, (void *)i);
    }
}

static void stop_churning(void)
{
    SET(enough, 1);
    NAP_UNTIL(GET(churning) == 0);
}

static void fork_some(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        check_exit(pid);
    }
}

/* The goroutine that holds an arena may wait for a P in the signal handler. */
TEST(fork_while_goroutines_allocate)
{
    start_churning();
    fork_some(NULL);
    stop_churning();
}

/* With one P it is the goroutine that forks that has it. */
TEST(fork_in_a_goroutine_while_others_allocate)
{
    start_churning();
    join(go_ref(fork_some, NULL));
    stop_churning();
}

static int changing;

static void *change_procs(void *arg)
{
    int i;
    for (i = 0; GET(changing); i++) {
        gs_gomaxprocs(1 + i % 3);
        nap(200 * US);
    }
    return arg;
}

TEST(fork_while_goroutines_allocate_and_GOMAXPROCS_changes)
{
    pthread_t t;
    int procs = gs_gomaxprocs(0);
    start_churning();
    SET(changing, 1);
    t = start_thread(change_procs, NULL);
    fork_some(NULL);
    join(go_ref(fork_some, NULL));
    SET(changing, 0);
    join_thread(t);
    stop_churning();
    gs_gomaxprocs(procs);
}

/* What a goroutine does without calling the library. It is not joined. */
static int64_t steps;

static void compute(void *arg)
{
    (void)arg;
    while (!GET(enough))
        ADD(steps, 1);
    ADD(churning, -1);
}

static void *fork_in_stopped_world(void *pid)
{
    *(pid_t *)pid = fork();
    if (*(pid_t *)pid == 0)
        _exit(0);
    return NULL;
}

/* A fork lets nothing run in a stopped world: the one of another thread waits for the start. */
TEST(fork_while_the_world_is_stopped)
{
    pthread_t t;
    pid_t other = -1, own;
    int64_t before;
    int i;
    SET(enough, 0);
    for (i = 0; i < 4; i++) {
        ADD(churning, 1);
        go(compute, NULL);
    }
    NAP_UNTIL(GET(steps) > 0);
    CHECK_EQ(gs_stop_the_world(), 0);
    before = GET(steps);
    t = start_thread(fork_in_stopped_world, &other);
    nap(20 * MS);
    CHECK_EQ(GET(steps), before);
    CHECK_EQ(GET(other), -1);
    CHECK_EQ(gs_start_the_world(), 0);
    join_thread(t);
    check_exit(other);
    /* The thread that has stopped the world may fork. */
    CHECK_EQ(gs_stop_the_world(), 0);
    own = fork();
    if (own == 0)
        live_in_child();
    CHECK_EQ(gs_start_the_world(), 0);
    check_exit(own);
    stop_churning();
}

/* ---- Forks in the middle of a call ---- */

static volatile sig_atomic_t is_child;
static volatile pid_t forked;

static void fork_in_handler(int signal)
{
    int e = errno;
    pid_t pid = fork();
    (void)signal;
    if (pid == 0)
        is_child = 1;
    else
        forked = pid;
    errno = e;
}

static void *interrupt(void *thread)
{
    CHECK_EQ(pthread_kill(*(pthread_t *)thread, SIGUSR1), 0);
    return NULL;
}

/* The handler returns in the child, too: the thread ends the call there that it had begun in the parent's runtime. */
TEST(fork_in_a_signal_handler_in_the_middle_of_a_call)
{
    struct sigaction fork_there, before;
    pthread_t me = pthread_self();
    int i, n = 0;
#ifndef __GLIBC__
    SKIP("musl's fork waits for locks that the interrupted function may hold");
#endif
    memset(&fork_there, 0, sizeof fork_there);
    fork_there.sa_handler = fork_in_handler;
    join(go_ref(count, &n));
    CHECK_EQ(sigaction(SIGUSR1, &fork_there, &before), 0);
    for (i = 0; i < 20; i++) {
        pthread_t t;
        forked = 0;
        t = start_thread(interrupt, &me);
        while (forked == 0 && !is_child)
            (void)gs_num_goroutines();
        if (is_child)
            live_in_child();
        join_thread(t);
        check_exit(forked);
    }
    CHECK_EQ(sigaction(SIGUSR1, &before, NULL), 0);
}

static int forked_in_hooks;

static void fork_in_thread_stop(void *ctx)
{
    pid_t pid = fork();
    (void)ctx;
    if (pid == 0)
        _exit(0);
    check_exit(pid);
    ADD(forked_in_hooks, 1);
}

/* The hook returns in the child, and so does gs_shutdown. */
static void fork_in_shutdown(void *pid)
{
    *(pid_t *)pid = fork();
}

TEST(fork_in_the_hooks_of_the_end)
{
    gs_hooks hooks;
    pid_t pid = -1;
    int n = 0;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    hooks.ctx = &pid;
    hooks.thread_stop = fork_in_thread_stop;
    hooks.shutdown = fork_in_shutdown;
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    join(go_ref(count, &n));
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_set_hooks(NULL), 0);
    if (pid == 0)
        live_in_child();
    check_exit(pid);
    CHECK_GE(GET(forked_in_hooks), 1);
    CHECK_EQ(n, 1);
}

/* ---- fork beside the first call, in a process that has not called the library yet ---- */

static int started;

static void *first_call(void *arg)
{
    SET(started, 1);
    (void)gs_init(NULL);
    return arg;
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Each in a process that has not used the library: forks at another moment of gs_init. */
static void fork_beside_init(int i)
{
    pid_t pid;
    int64_t until;
    alarm(check_seconds());
    start_thread(first_call, NULL);
    while (!GET(started))
        ;
    for (until = clock_now() + i * 20 * US; clock_now() < until;)
        ;
    pid = fork();
    if (pid == 0) {
        alarm(check_seconds());
        CHECK_EQ(gs_run(nothing, NULL), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        _exit(0);
    }
    check_exit(pid);
    _exit(0);
}

CHILD(forks_beside_the_first_call)
{
    int i;
    for (i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0)
            fork_beside_init(i);
        check_exit(pid);
    }
}

/* ---- Forks while another thread has the loader's lock ---- */

static int stop_looking;

static int look_at_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)info;
    (void)size;
    (void)ctx;
    return 0;
}

/* As a thread that throws C++ exceptions, or loads plugins. */
static void *keep_loader_busy(void *arg)
{
    while (!GET(stop_looking))
        dl_iterate_phdr(look_at_object, NULL);
    return arg;
}

static void fork_beside_a_busy_loader(int forks)
{
    pthread_t t;
    int i;
    stop_looking = 0;
    t = start_thread(keep_loader_busy, NULL);
    for (i = 0; i < forks; i++)
        fork_once();
    SET(stop_looking, 1);
    join_thread(t);
}

/* In some children the lock is never free again. They find what the parent had found. */
TEST(the_child_needs_no_lock_of_the_loader)
{
    int n = 0;
    join(go_ref(count, &n));
    fork_beside_a_busy_loader(30);
}

/* And if that is nothing they find out that the lock is stuck. */
TEST(the_child_of_a_process_without_a_runtime_needs_no_lock_of_the_loader)
{
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    fork_beside_a_busy_loader(5);
}

TEST(fork_beside_the_first_call)
{
#ifndef __GLIBC__
    /* The list of threads, and the texts of dlerror(3): a thread that ends locks both in the other order. */
    SKIP("fork of musl before 1.2.4 may wait for ever for a thread that ends");
#endif
    check_child_succeeds("forks_beside_the_first_call");
}
