/*
 * Worker groups: goroutines that begin on one of a few threads and stay there.
 */
#include "check.h"

#include <semaphore.h>

enum { MANY = 200, MOST = 8 };

struct seen {
    pid_t threads[MOST + 1];
    int n;
    gs_mutex lock;
};

/* Notes the caller's thread. */
static void note_thread(struct seen *s)
{
    int i;
    CHECK_EQ(gs_mutex_lock(&s->lock, GS_FOREVER), 0);
    for (i = 0; i < s->n && s->threads[i] != thread_id(); i++)
        ;
    if (i == s->n) {
        CHECK(s->n <= MOST);
        s->threads[s->n++] = thread_id();
    }
    CHECK_EQ(gs_mutex_unlock(&s->lock), 0);
}

static int has_seen(const struct seen *s, pid_t thread)
{
    int i;
    for (i = 0; i < s->n; i++)
        if (s->threads[i] == thread)
            return 1;
    return 0;
}

static struct seen seen;

/* Stays on the thread on which it begins. */
static void stay(void *arg)
{
    pid_t here = thread_id();
    int i;
    (void)arg;
    note_thread(&seen);
    for (i = 0; i < 5; i++) {
        gs_yield();
        CHECK_EQ(thread_id(), here);
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(thread_id(), here);
    }
}

static gs_spawn_opts in_group(gs_workers *w)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_PINNED;
    o.workers = w;
    return o;
}

static void spawn_and_join(gs_workers *w, gs_fn fn, void *arg, int n)
{
    gs_spawn_opts o = in_group(w);
    gs_g **g = calloc((size_t)n, sizeof *g);
    int i;
    for (i = 0; i < n; i++)
        g[i] = go_opts(fn, arg, &o);
    for (i = 0; i < n; i++)
        join(g[i]);
    free(g);
}

GO_TEST(goroutines_of_a_group_stay_on_its_threads)
{
    int n;
    for (n = 1; n <= 4; n++) {
        gs_workers *w = gs_workers_create(n, 0);
        CHECK(w != NULL);
        memset(&seen, 0, sizeof seen);
        spawn_and_join(w, stay, NULL, MANY);
        CHECK_GE(n, seen.n);
        CHECK_GE(seen.n, 1);
        CHECK_EQ(gs_workers_free(w), 0);
    }
}

static void spawn_more(void *w)
{
    note_thread(&seen);
    spawn_and_join(w, stay, NULL, 10);
}

GO_TEST(members_spawn_members)
{
    gs_workers *w = gs_workers_create(2, 0);
    memset(&seen, 0, sizeof seen);
    spawn_and_join(w, spawn_more, w, 10);
    CHECK_GE(2, seen.n);
    CHECK_EQ(gs_workers_free(w), 0);
}

/* Another goroutine of the group has to begin before this one goes on. */
static void wait_for_another(void *ch)
{
    CHECK_EQ(recv_int(ch), 1);
}

static void wake_another(void *ch)
{
    send_int(ch, 1);
}

GO_TEST(one_that_waits_does_not_keep_the_next_from_beginning)
{
    gs_workers *w = gs_workers_create(1, 0);
    gs_spawn_opts o = in_group(w);
    gs_chan *ch = chan_of_ints(0);
    gs_g *a = go_opts(wait_for_another, ch, &o), *b = go_opts(wake_another, ch, &o);
    join(a);
    join(b);
    free_chan(ch);
    CHECK_EQ(gs_workers_free(w), 0);
}

static int begun;

static void begin_in_a_call(void *arg)
{
    (void)arg;
    ADD(begun, 1);
    CHECK_EQ(gs_entersyscall(), 0);
    while (GET(begun) < 3)
        nap(100 * US);
    CHECK_EQ(gs_exitsyscall(), 0);
}

/* Three threads: three goroutines in a call at the same time. */
GO_TEST(each_thread_of_a_group_is_used)
{
    gs_workers *w = gs_workers_create(3, 0);
    begun = 0;
    spawn_and_join(w, begin_in_a_call, NULL, 3);
    CHECK_EQ(gs_workers_free(w), 0);
}

static void compute(void *arg)
{
    volatile int i;
    (void)arg;
    note_thread(&seen);
    for (i = 0; i < 100000; i++)
        ;
    gs_yield();
}

/* They yield all the time, and the goroutines of the group begin nevertheless. */
GO_TEST(others_that_are_busy_do_not_keep_a_group_waiting)
{
    gs_workers *w = gs_workers_create(1, 0);
    start_busy_loops();
    memset(&seen, 0, sizeof seen);
    spawn_and_join(w, compute, NULL, 50);
    CHECK_EQ(seen.n, 1);
    end_busy_loops();
    CHECK_EQ(gs_workers_free(w), 0);
}

/* ---- The thread of gs_run ---- */

static gs_workers *of_runner;
static pid_t runner;

static void is_on_runner(void *arg)
{
    (void)arg;
    CHECK_EQ(thread_id(), runner);
    gs_yield();
    CHECK_EQ(thread_id(), runner);
    CHECK_EQ(gs_sleep(200 * US), 0);
    CHECK_EQ(thread_id(), runner);
}

static void spawn_on_runner(void *arg)
{
    (void)arg;
    spawn_and_join(of_runner, is_on_runner, NULL, 50);
}

TEST(the_thread_of_gs_run_can_be_the_only_one)
{
    int i;
    of_runner = gs_workers_create(1, GS_WORKERS_RUNNER);
    CHECK(of_runner != NULL);
    runner = thread_id();
    for (i = 0; i < 3; i++)
        CHECK_EQ(gs_run(spawn_on_runner, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    /* The next runtime. */
    CHECK_EQ(gs_run(spawn_on_runner, NULL), 0);
    CHECK_EQ(gs_workers_free(of_runner), 0);
}

static void make_group_within(void *arg)
{
    (void)arg;
    of_runner = gs_workers_create(1, GS_WORKERS_RUNNER);
    spawn_and_join(of_runner, is_on_runner, NULL, 20);
    CHECK_EQ(gs_workers_free(of_runner), 0);
}

TEST(a_group_can_be_made_within_gs_run)
{
    runner = thread_id();
    CHECK_EQ(gs_run(make_group_within, NULL), 0);
}

static void note_one(void *arg)
{
    (void)arg;
    note_thread(&seen);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Goroutines that wait for a thread in gs_run begin when one comes. */
TEST(goroutines_wait_for_the_thread_of_gs_run)
{
    gs_spawn_opts o;
    gs_g *g[10];
    int i;
    of_runner = gs_workers_create(1, GS_WORKERS_RUNNER);
    o = in_group(of_runner);
    memset(&seen, 0, sizeof seen);
    for (i = 0; i < 10; i++)
        g[i] = go_opts(note_one, NULL, &o);
    nap(5 * MS);
    CHECK_EQ(seen.n, 0);
    CHECK_EQ(gs_join(g[0], gs_after_ms(1)), -ETIMEDOUT);
    CHECK_EQ(gs_workers_free(of_runner), -EBUSY);
    while (gs_join(g[9], GS_NOWAIT) != 0)
        CHECK_EQ(gs_run(nothing, NULL), 0);
    for (i = 0; i < 10; i++) {
        while (gs_join(g[i], GS_NOWAIT) != 0)
            CHECK_EQ(gs_run(nothing, NULL), 0);
        gs_release(g[i]);
    }
    CHECK_EQ(seen.n, 1);
    CHECK(has_seen(&seen, thread_id()));
    CHECK_EQ(gs_workers_free(of_runner), 0);
}

/* A group that has no goroutines, and was made first, doesn't keep the thread from a group that has some. */
TEST(a_thread_of_gs_run_joins_the_group_that_needs_it)
{
    gs_workers *idle = gs_workers_create(1, GS_WORKERS_RUNNER), *w;
    gs_spawn_opts o;
    gs_g *g;
    CHECK(idle != NULL);
    CHECK_EQ(gs_run(nothing, NULL), 0);
    w = gs_workers_create(2, GS_WORKERS_RUNNERS);
    CHECK(w != NULL);
    o = in_group(w);
    memset(&seen, 0, sizeof seen);
    g = go_opts(note_one, NULL, &o);
    while (gs_join(g, GS_NOWAIT) != 0)
        CHECK_EQ(gs_run(nothing, NULL), 0);
    gs_release(g);
    CHECK_EQ(seen.n, 1);
    CHECK(has_seen(&seen, thread_id()));
    CHECK_EQ(gs_workers_free(w), 0);
    CHECK_EQ(gs_workers_free(idle), 0);
}

/* For a goroutine of one group, to run one of another. */
static void spawn_into(void *w)
{
    CHECK_EQ(thread_id(), runner);
    spawn_and_join(w, is_on_runner, NULL, 20);
}

/* The only thread in gs_run is the member of each group of such threads: whichever is used first, whichever is freed
 * first, and while goroutines of one group wait for those of another. */
static void use_many_groups(void *arg)
{
    gs_workers *w[3];
    int i, order;
    (void)arg;
    runner = thread_id();
    for (order = 0; order < 3; order++) {
        for (i = 0; i < 3; i++) {
            w[i] = gs_workers_create(i == 2 ? 2 : 1, i == 2 ? GS_WORKERS_RUNNERS : GS_WORKERS_RUNNER);
            CHECK(w[i] != NULL);
        }
        for (i = 2; i >= 0; i--)
            spawn_and_join(w[i], is_on_runner, NULL, 20);
        for (i = 0; i < 3; i++)
            spawn_and_join(w[i], spawn_into, w[(i + 1) % 3], 5);
        for (i = 0; i < 3; i++) {
            CHECK_EQ(gs_workers_free(w[(i + order) % 3]), 0);
            if (i < 2)
                spawn_and_join(w[(i + order + 1) % 3], is_on_runner, NULL, 20);
        }
    }
}

TEST(the_thread_of_gs_run_is_in_each_group)
{
    CHECK_EQ(gs_run(use_many_groups, NULL), 0);
    CHECK_EQ(gs_attach(0), 0);
    use_many_groups(NULL);
    CHECK_EQ(gs_detach(), 0);
}

/* Goroutines of more than one group wait for a thread in gs_run. */
TEST(a_thread_of_gs_run_joins_all_groups_that_need_it)
{
    gs_workers *w[3];
    gs_g *g[3];
    gs_spawn_opts o;
    int i;
    memset(&seen, 0, sizeof seen);
    for (i = 0; i < 3; i++) {
        w[i] = gs_workers_create(1, GS_WORKERS_RUNNER);
        CHECK(w[i] != NULL);
        o = in_group(w[i]);
        g[i] = go_opts(note_one, NULL, &o);
    }
    CHECK_EQ(gs_attach(0), 0);
    for (i = 2; i >= 0; i--) {
        CHECK_EQ(gs_join(g[i], GS_FOREVER), 0);
        gs_release(g[i]);
    }
    CHECK_EQ(gs_detach(), 0);
    CHECK_EQ(seen.n, 1);
    CHECK(has_seen(&seen, thread_id()));
    for (i = 0; i < 3; i++)
        CHECK_EQ(gs_workers_free(w[i]), 0);
}

/* A group of the parent's doesn't keep the only thread of the child from a group of the child's own. */
TEST(the_child_of_a_fork_can_have_groups_of_its_own)
{
    int status;
    pid_t pid;
    runner = thread_id();
    of_runner = gs_workers_create(1, GS_WORKERS_RUNNER);
    CHECK(of_runner != NULL);
    CHECK_EQ(gs_run(spawn_on_runner, NULL), 0);
    fflush(stdout);
    pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        gs_workers *of_parent = of_runner;
        alarm(check_seconds());
        runner = thread_id();
        for (int i = 0; i < 2; i++) {
            of_runner = gs_workers_create(1, GS_WORKERS_RUNNER);
            CHECK(of_runner != NULL);
            CHECK_EQ(gs_run(spawn_on_runner, NULL), 0);
            CHECK_EQ(gs_workers_free(of_runner), 0);
        }
        of_runner = of_parent;
        CHECK_EQ(gs_run(spawn_on_runner, NULL), 0);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(gs_workers_free(of_runner), 0);
}

static void spawn_on_both(void *w)
{
    memset(&seen, 0, sizeof seen);
    spawn_and_join(w, stay, NULL, MANY);
    CHECK_GE(2, seen.n);
}

TEST(the_thread_of_gs_run_beside_another)
{
    gs_workers *w = gs_workers_create(2, GS_WORKERS_RUNNER);
    CHECK_EQ(gs_run(spawn_on_both, w), 0);
    CHECK_EQ(gs_workers_free(w), 0);
}

/* ---- Members that lock their thread or end it ---- */

static void lock_and_stay(void *arg)
{
    pid_t here = thread_id();
    (void)arg;
    note_thread(&seen);
    CHECK_EQ(gs_lock_os_thread(), 0);
    CHECK_EQ(gs_sleep(100 * US), 0);
    CHECK_EQ(thread_id(), here);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

GO_TEST(members_may_lock_their_thread)
{
    gs_workers *w = gs_workers_create(2, 0);
    memset(&seen, 0, sizeof seen);
    spawn_and_join(w, lock_and_stay, NULL, 30);
    CHECK_GE(2, seen.n);
    CHECK_EQ(gs_workers_free(w), 0);
}

static void end_locked(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    gs_yield();
}

/* A thread that ends leaves its place to another. */
GO_TEST(a_thread_that_ends_leaves_its_place)
{
    gs_workers *w = gs_workers_create(2, 0);
    spawn_and_join(w, end_locked, NULL, 30);
    CHECK_EQ(gs_workers_free(w), 0);
}

TEST(bad_groups)
{
    gs_spawn_opts o;
    gs_g *g = NULL;
    gs_workers *w;
    CHECK(gs_workers_create(0, 0) == NULL);
    CHECK(gs_workers_create(-1, 0) == NULL);
    CHECK(gs_workers_create(GS_MAX_PROCS + 1, 0) == NULL);
    CHECK(gs_workers_create(1, 4) == NULL);
    CHECK(gs_workers_create(1, GS_WORKERS_RUNNER | GS_WORKERS_RUNNERS) == NULL);
    CHECK_EQ(gs_workers_free(NULL), 0);
    w = gs_workers_create(1, 0);
    CHECK(w != NULL);
    o = in_group(w);
    o.flags = 0;
    CHECK_EQ(gs_spawn_with(nothing, NULL, &o, &g), -EINVAL);
    o = in_group(w);
    o.node = 0;
    CHECK_EQ(gs_spawn_with(nothing, NULL, &o, &g), -EINVAL);
    o = in_group((gs_workers *)&o);
    CHECK_EQ(gs_spawn_with(nothing, NULL, &o, &g), -EINVAL);
    CHECK_EQ(gs_workers_free(w), 0);
}

static void fork_one(void *arg)
{
    int status;
    pid_t child;
    (void)arg;
    child = fork();
    if (child == 0) {
        gs_spawn_opts o = in_group(of_runner);
        gs_g *g;
        CHECK_EQ(gs_spawn_with(note_one, NULL, &o, &g), 0);
        _exit(gs_join(g, gs_after_ms(20000)) == 0 && gs_workers_free(of_runner) == 0 ? 0 : 1);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

TEST(a_group_in_the_child_of_a_fork)
{
    of_runner = gs_workers_create(2, 0);
    memset(&seen, 0, sizeof seen);
    CHECK_EQ(gs_run(spawn_on_both, of_runner), 0);
    memset(&seen, 0, sizeof seen);
    CHECK_EQ(gs_run(fork_one, NULL), 0);
    CHECK_EQ(gs_workers_free(of_runner), 0);
}

/* ---- Freed while the runtime ends ---- */

static struct {
    gs_workers *groups[10];
    sem_t ends, freed;
} ending;

static void *free_groups(void *arg)
{
    CHECK_EQ(sem_wait(&ending.ends), 0);
    for (unsigned i = 0; i < LENGTH(ending.groups); i++)
        CHECK_EQ(gs_workers_free(ending.groups[i]), 0);
    CHECK_EQ(sem_post(&ending.freed), 0);
    return arg;
}

static void let_free_groups(void *ctx)
{
    (void)ctx;
    CHECK_EQ(sem_post(&ending.ends), 0);
    CHECK_EQ(sem_wait(&ending.freed), 0);
}

static void nap_in_group(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(100 * US), 0);
}

static void use_groups(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < LENGTH(ending.groups); i++)
        spawn_and_join(ending.groups[i], nap_in_group, NULL, 4);
}

/* The threads of the groups are there still, and look at their groups before they end. */
TEST(groups_are_freed_while_the_runtime_ends)
{
    gs_hooks hooks = {.size = sizeof hooks, .shutdown = let_free_groups};
    CHECK_EQ(sem_init(&ending.ends, 0, 0), 0);
    CHECK_EQ(sem_init(&ending.freed, 0, 0), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread = start_thread(free_groups, NULL);
        for (unsigned k = 0; k < LENGTH(ending.groups); k++)
            CHECK((ending.groups[k] = gs_workers_create(2, 0)) != NULL);
        CHECK_EQ(gs_run(use_groups, NULL), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        join_thread(thread);
    }
    CHECK_EQ(gs_set_hooks(NULL), 0);
}

/* ---- Locked threads ---- */

struct lockers {
    int locked;
    gs_waitgroup end;
};

static void keep_a_thread(void *arg)
{
    struct lockers *l = arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    ADD(l->locked, 1);
    CHECK_EQ(gs_waitgroup_wait(&l->end, GS_FOREVER), 0);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void lock_and_unlock(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    gs_yield();
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

/* As many of the library's threads are locked as may be; that of gs_run isn't one of them. */
GO_TEST(who_is_pinned_to_the_thread_of_gs_run_locks_it_without_waiting)
{
    gs_workers *w = gs_workers_create(1, GS_WORKERS_RUNNER);
    int former = gs_set_max_threads(3);
    struct lockers l;
    gs_g *g[2];
    int i;
    memset(&l, 0, sizeof l);
    CHECK(w != NULL);
    CHECK_EQ(gs_waitgroup_add(&l.end, 1), 0);
    for (i = 0; i < 2; i++)
        g[i] = go_ref(keep_a_thread, &l);
    WAIT_UNTIL(GET(l.locked) == 2);
    spawn_and_join(w, lock_and_unlock, NULL, 3);
    CHECK_EQ(gs_waitgroup_done(&l.end), 0);
    for (i = 0; i < 2; i++)
        join(g[i]);
    CHECK_EQ(gs_set_max_threads(former), 3);
    CHECK_EQ(gs_workers_free(w), 0);
}

/* A goroutine of a group answers whatever comes, on the thread of gs_run. */
struct echo {
    gs_chan *asked, *answered;
};

static void answer(void *arg)
{
    struct echo *e = arg;
    int64_t v;
    while (gs_chan_recv(e->asked, &v, GS_FOREVER) == 0) {
        v = thread_id();
        CHECK_EQ(gs_chan_send(e->answered, &v, GS_FOREVER), 0);
    }
}

static pid_t ask(struct echo *e)
{
    int64_t v = 0;
    CHECK_EQ(gs_chan_send(e->asked, &v, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_recv(e->answered, &v, GS_FOREVER), 0);
    return (pid_t)v;
}

static void lock_where_another_is_pinned(void *arg)
{
    gs_workers *w = arg;
    struct echo e = {chan_of_ints(0), chan_of_ints(0)};
    gs_spawn_opts o = in_group(w);
    pid_t own = thread_id();
    gs_g *g = go_opts(answer, &e, &o);
    int i;
    for (i = 0; i < 5; i++) {
        do
            CHECK_EQ(ask(&e), own);
        while (thread_id() != own);
        CHECK_EQ(gs_lock_os_thread(), 0);
        CHECK_EQ(thread_id(), own);
        CHECK_EQ(ask(&e), own);
        CHECK_EQ(thread_id(), own);
        CHECK_EQ(gs_unlock_os_thread(), 0);
    }
    CHECK_EQ(gs_chan_close(e.asked), 0);
    join(g);
    free_chan(e.asked);
    free_chan(e.answered);
}

static void lock_a_while(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    CHECK_EQ(gs_sleep(100 * US), 0);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void lock_many(void *arg)
{
    gs_g *gs[10];
    size_t i;
    (void)arg;
    for (i = 0; i < LENGTH(gs); i++)
        gs[i] = go_ref(lock_a_while, NULL);
    for (i = 0; i < LENGTH(gs); i++)
        join(gs[i]);
}

/* When the function of gs_run locked its thread, it moved to a thread of the library's, and the library didn't count that
 * thread as locked. At the function's end it counted one locked thread less, and with none before, no other goroutine
 * could lock a thread any more. */
TEST(the_function_of_run_locks_its_thread_where_another_is_pinned)
{
    gs_config cfg = GS_CONFIG_INIT;
    gs_workers *w = gs_workers_create(1, GS_WORKERS_RUNNER);
    CHECK(w);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    cfg.max_threads = 3;
    CHECK_EQ(gs_init(&cfg), 0);
    CHECK_EQ(gs_run(lock_where_another_is_pinned, w), 0);
    CHECK_EQ(gs_run(lock_many, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_workers_free(w), 0);
}

static void do_nothing(void *arg)
{
    (void)arg;
}

/* With a limit of one thread, and no thread in gs_run, a goroutine of a group never began: the only thread looked for
 * another thread to make a member, again and again. */
TEST(the_only_thread_joins_a_group)
{
    gs_config cfg = GS_CONFIG_INIT;
    gs_workers *w = gs_workers_create(1, 0);
    gs_spawn_opts o;
    CHECK(w);
    o = in_group(w);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    cfg.max_threads = 1;
    CHECK_EQ(gs_init(&cfg), 0);
    join(go_opts(do_nothing, NULL, &o));
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_workers_free(w), 0);
}

/* Goroutines that run while a member is in a call. */
enum { ALL = 20 };

struct held_up {
    gs_sem wake;
    int parked, in_call, called, ran;
};

static void park_on_member(void *arg)
{
    struct held_up *h = arg;
    SET(h->parked, 1);
    CHECK_EQ(gs_sem_acquire(&h->wake, 1, GS_FOREVER), 0);
}

static void call_until_all_ran(void *arg)
{
    struct held_up *h = arg;
    CHECK_EQ(gs_entersyscall(), 0);
    SET(h->in_call, 1);
    NAP_UNTIL(GET(h->ran) == ALL);
    CHECK_EQ(gs_exitsyscall(), 0);
    SET(h->called, 1);
}

/* Never without work. */
static void yield_until_all_ran(void *arg)
{
    struct held_up *h = arg;
    while (GET(h->ran) < ALL)
        gs_yield();
}

static void count_run(void *arg)
{
    ADD(((struct held_up *)arg)->ran, 1);
}

static void lock_and_park(void *arg)
{
    CHECK_EQ(gs_lock_os_thread(), 0);
    park_on_member(arg);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void count_all(struct held_up *h, gs_spawn_opts *o)
{
    for (int i = 0; i < ALL; i++)
        CHECK_EQ(gs_spawn_with(count_run, h, o, NULL), 0);
}

/* One member is in a call that lasts until others of the group have begun; the other sleeps, locked to a pinned goroutine
 * that is parked. */
TEST(a_locked_member_begins_what_waits_for_one_in_a_call)
{
    gs_workers *w = gs_workers_create(2, 0);
    struct held_up h = {0};
    gs_spawn_opts o = in_group(w);
    gs_g *g[2];
    CHECK(w);
    CHECK_EQ(gs_sem_init(&h.wake, 0), 0);
    g[0] = go_opts(call_until_all_ran, &h, &o);
    NAP_UNTIL(GET(h.in_call));
    g[1] = go_opts(lock_and_park, &h, &o);
    NAP_UNTIL(GET(h.parked));
    count_all(&h, &o);
    join(g[0]);
    CHECK_EQ(gs_sem_release(&h.wake, 1), 0);
    join(g[1]);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_workers_free(w), 0);
}

/* One member is in a call that lasts until others of the group have begun, with a goroutine behind it that is pinned
 * there; the other member always has something to do. */
TEST(a_member_in_a_call_keeps_no_goroutine_from_beginning)
{
    gs_workers *w = gs_workers_create(2, 0);
    struct held_up h = {0};
    gs_spawn_opts o = in_group(w);
    gs_g *g[3];
    CHECK(w);
    CHECK_EQ(gs_sem_init(&h.wake, 0), 0);
    g[0] = go_opts(park_on_member, &h, &o);
    NAP_UNTIL(GET(h.parked));
    g[1] = go_opts(call_until_all_ran, &h, &o);
    NAP_UNTIL(GET(h.in_call));
    g[2] = go_opts(yield_until_all_ran, &h, &o);
    CHECK_EQ(gs_sem_release(&h.wake, 1), 0);
    nap(MS);
    count_all(&h, &o);
    for (int i = 0; i < 3; i++)
        join(g[i]);
    CHECK_EQ(GET(h.called), 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_workers_free(w), 0);
}

struct elsewhere {
    gs_workers *w;
    int made, leave, left;
};

static void *attach_and_make_a_group(void *arg)
{
    struct elsewhere *e = arg;
    CHECK_EQ(gs_attach(0), 0);
    CHECK((e->w = gs_workers_create(1, GS_WORKERS_RUNNER)) != NULL);
    SET(e->made, 1);
    WAIT_UNTIL(GET(e->leave));
    CHECK_EQ(gs_detach(), 0);
    SET(e->left, 1);
    return NULL;
}

static void note_own_thread(void *arg)
{
    SET(*(pid_t *)arg, thread_id());
}

/* The member of the group leaves while another thread is in gs_run: that joins. The goroutines waited for the next one. */
TEST(another_thread_takes_the_place_of_the_thread_of_gs_run)
{
    struct elsewhere e = {NULL, 0, 0, 0};
    pthread_t t = start_thread(attach_and_make_a_group, &e);
    gs_spawn_opts o;
    pid_t ran = 0;
    NAP_UNTIL(GET(e.made));
    CHECK_EQ(gs_attach(0), 0);
    SET(e.leave, 1);
    WAIT_UNTIL(GET(e.left));
    o = in_group(e.w);
    join(go_opts(note_own_thread, &ran, &o));
    CHECK_EQ(GET(ran), thread_id());
    CHECK_EQ(gs_detach(), 0);
    join_thread(t);
    CHECK_EQ(gs_workers_free(e.w), 0);
}

/* A thread that leaves is replaced in all of its groups by a thread that stays. */
TEST(a_thread_that_stays_takes_all_places_of_the_thread_that_leaves)
{
    struct elsewhere e = {NULL, 0, 0, 0};
    pthread_t t = start_thread(attach_and_make_a_group, &e);
    gs_workers *w[3];
    int i;
    NAP_UNTIL(GET(e.made));
    CHECK_EQ(gs_attach(0), 0);
    runner = thread_id();
    for (i = 0; i < 3; i++) {
        w[i] = gs_workers_create(1, GS_WORKERS_RUNNER);
        CHECK(w[i] != NULL);
        memset(&seen, 0, sizeof seen);
        spawn_and_join(w[i], note_one, NULL, 5);
        CHECK_EQ(seen.n, 1);
    }
    SET(e.leave, 1);
    WAIT_UNTIL(GET(e.left));
    for (i = 0; i < 3; i++)
        spawn_and_join(w[i], is_on_runner, NULL, 20);
    spawn_and_join(e.w, is_on_runner, NULL, 20);
    CHECK_EQ(gs_detach(), 0);
    join_thread(t);
    for (i = 0; i < 3; i++)
        CHECK_EQ(gs_workers_free(w[i]), 0);
    CHECK_EQ(gs_workers_free(e.w), 0);
}

struct hogs {
    int begun, stop;
};

/* Computes, and calls nothing of the library. */
static void hog(void *arg)
{
    struct hogs *h = arg;
    ADD(h->begun, 1);
    while (!GET(h->stop))
        ;
}

static void stop_later(void *arg)
{
    struct hogs *h = arg;
    int n = gs_gomaxprocs(0);
    /* Some of these timers are those of the P's that compute. */
    while (GET(h->begun) < n)
        CHECK_EQ(gs_sleep(MS), 0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(gs_sleep(100 * US), 0);
    SET(h->stop, 1);
}

/* Beside the goroutines that compute this one keeps the last P from being idle. */
static void turn(void *arg)
{
    struct hogs *h = arg;
    while (!GET(h->stop))
        gs_yield();
}

GO_TEST(members_that_compute_keep_no_others_waiting)
{
    int i, n = gs_gomaxprocs(0);
    gs_workers *w = gs_workers_create(n, 0);
    gs_spawn_opts o = in_group(w);
    gs_g *g[MOST + 2];
    for (int fewer = 0; fewer < 2 && fewer < n; fewer++) {
        struct hogs h = {fewer, 0};
        CHECK(w != NULL && n <= MOST);
        o.flags |= GS_SPAWN_NOSIGNAL;
        g[0] = go_ref(stop_later, &h);
        g[1] = go_ref(turn, &h);
        for (i = 0; i < n - fewer; i++)
            CHECK_EQ(gs_spawn_with(hog, &h, &o, &g[2 + i]), 0);
        for (i = 0; i < n - fewer + 2; i++)
            join(g[i]);
    }
    CHECK_EQ(gs_workers_free(w), 0);
}

struct counted {
    long n;
    int stop;
};

/* Computes for several time slices between two calls of the library, and counts all the time. */
static void count_on(void *arg)
{
    struct counted *c = arg;
    while (!GET(c->stop)) {
        int64_t end = clock_now() + 30 * MS;
        while (clock_now() < end)
            ADD(c->n, 1);
        gs_yield();
    }
}

/* A goroutine that has lost its P counted on while the world was stopped. */
GO_TEST(members_that_compute_stand_while_the_world_does)
{
    gs_workers *w = gs_workers_create(2, 0);
    gs_spawn_opts o = in_group(w);
    struct counted c[2] = {{0, 0}, {0, 0}};
    gs_g *g[2];
    o.flags |= GS_SPAWN_NOSIGNAL;
    for (int i = 0; i < 2; i++)
        g[i] = go_opts(count_on, &c[i], &o);
    for (int i = 0; i < 2; i++)
        WAIT_UNTIL(GET(c[i].n) > 0);
    for (int round = 0; round < 10; round++) {
        long before[2];
        CHECK_EQ(gs_sleep(15 * MS), 0);
        CHECK_EQ(gs_stop_the_world(), 0);
        for (int i = 0; i < 2; i++)
            before[i] = GET(c[i].n);
        nap(5 * MS);
        for (int i = 0; i < 2; i++)
            CHECK_EQ(GET(c[i].n), before[i]);
        CHECK_EQ(gs_start_the_world(), 0);
    }
    for (int i = 0; i < 2; i++)
        SET(c[i].stop, 1);
    for (int i = 0; i < 2; i++)
        join(g[i]);
    CHECK_EQ(gs_workers_free(w), 0);
}

struct looks {
    int begun, stop;
};

/* Calls the library only where the word says so, as interpreters do. */
static void look_at_the_word(void *arg)
{
    struct looks *l = arg;
    const uint32_t *word = gs_preempt_flag();
    SET(l->begun, 1);
    while (!GET(l->stop))
        if (GET(*word))
            gs_preempt_check();
}

static void sleep_some(void *arg)
{
    struct looks *l = arg;
    while (!GET(l->begun))
        CHECK_EQ(gs_sleep(MS), 0);
    for (int i = 0; i < 30; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    SET(l->stop, 1);
}

/* The word said nothing to a goroutine that had lost its P, and the others of its thread waited for ever. */
GO_TEST(members_without_a_p_see_the_word)
{
    gs_workers *w = gs_workers_create(1, 0);
    gs_spawn_opts o = in_group(w);
    gs_g *g[2];
    o.flags |= GS_SPAWN_NOSIGNAL;
    for (int round = 0; round < 5; round++) {
        struct looks l = {0, 0};
        CHECK(w != NULL);
        g[0] = go_opts(sleep_some, &l, &o);
        g[1] = go_opts(look_at_the_word, &l, &o);
        join(g[0]);
        join(g[1]);
    }
    CHECK_EQ(gs_workers_free(w), 0);
}

/* A goroutine that isn't pinned makes a call on a member's thread. */
struct caller {
    gs_chan *c;
    int how, in;
    pid_t member;
};

static void *receive_there(void *arg)
{
    struct caller *k = arg;
    int v = 0;
    SET(k->in, 1);
    CHECK_EQ(gs_chan_recv(k->c, &v, GS_FOREVER), 0);
    CHECK_EQ(v, 7);
    return NULL;
}

static void call_on_the_members_thread(void *arg)
{
    struct caller *k = arg;
    for (int i = 0; i < 20000 && thread_id() != k->member; i++)
        gs_yield();
    switch (k->how) {
    case 0:
        gs_blocking(receive_there, k);
        break;
    case 1:
        gs_entersyscall();
        receive_there(k);
        CHECK_EQ(gs_exitsyscall(), 0);
        break;
    case 2:
        gs_entersyscallblock();
        receive_there(k);
        CHECK_EQ(gs_exitsyscall(), 0);
        break;
    default:
        gs_lock_os_thread();
        gs_blocking(receive_there, k);
        gs_unlock_os_thread();
    }
}

static void note_member(void *arg)
{
    ((struct caller *)arg)->member = thread_id();
}

static void send_seven(void *arg)
{
    int v = 7;
    CHECK_EQ(gs_chan_send(((struct caller *)arg)->c, &v, GS_FOREVER), 0);
}

/* A call on the thread of a group without goroutines kept the thread: the next goroutine of the group, for which the
 * caller waited, never began. */
GO_TEST(a_call_leaves_the_thread_of_a_group)
{
    gs_workers *w = gs_workers_create(1, 0);
    gs_spawn_opts o = in_group(w);
    struct caller k = {gs_chan_make(sizeof(int), 0), 0, 0, 0};
    gs_spawn_opts plain = GS_SPAWN_OPTS_INIT;
    CHECK(w != NULL && k.c != NULL);
    for (int round = 0; round < 40; round++) {
        gs_g *caller;
        join(go_opts(note_member, &k, &o));
        k.how = round % 4;
        SET(k.in, 0);
        caller = go_opts(call_on_the_members_thread, &k, &plain);
        while (!GET(k.in))
            CHECK_EQ(gs_sleep(100 * US), 0);
        join(go_opts(send_seven, &k, &o));
        join(caller);
    }
    gs_chan_free(k.c);
    CHECK_EQ(gs_workers_free(w), 0);
}
