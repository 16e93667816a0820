/* gs_attach and gs_detach: threads whose own function is a goroutine; gs_uncancel. */
#include "check.h"

#define ATTACH() CHECK_EQ(gs_attach(0), 0)
#define DETACH() CHECK_EQ(gs_detach(), 0)

static void *thread_of;

static void note_thread(void *arg)
{
    (void)arg;
    SET(thread_of, (void *)pthread_self());
}

static void add_one(void *count)
{
    ADD(*(long *)count, 1);
}

static void send_squares(void *ch)
{
    for (int64_t i = 0; i < 100; i++) {
        int64_t v = i * i;
        CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
    }
    CHECK_EQ(gs_chan_close(ch), 0);
}

/* Waits of all kinds on the thread's own stack. */
static void wait_in_all_ways(void)
{
    void *thread = (void *)pthread_self();
    gs_chan *ch = gs_chan_make(sizeof(int64_t), 0);
    int64_t v, sum = 0;
    CHECK_EQ(gs_spawn(send_squares, ch), 0);
    while (gs_chan_recv(ch, &v, GS_FOREVER) == 0)
        sum += v;
    CHECK_EQ(sum, 328350);
    gs_chan_free(ch);
    for (int i = 0; i < 100; i++) {
        gs_yield();
        CHECK((void *)pthread_self() == thread);
    }
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_entersyscall(), 0);
    nap(2 * MS);
    CHECK_EQ(gs_exitsyscall(), 0);
    CHECK((void *)pthread_self() == thread);
}

TEST(a_thread_becomes_a_goroutine_and_back)
{
    for (int i = 0; i < 3; i++) {
        CHECK(!gs_self());
        errno = 77;
        ATTACH();
        CHECK_EQ(errno, 77);
        CHECK(gs_self());
        CHECK_EQ(gs_attach(0), -EBUSY);
        CHECK_EQ(gs_run(note_thread, NULL), -EBUSY);
        wait_in_all_ways();
        errno = 78;
        DETACH();
        CHECK_EQ(errno, 78);
        CHECK(!gs_self());
        CHECK_EQ(gs_run(note_thread, NULL), 0);
    }
}

TEST(what_cannot_be_attached_or_detached)
{
    CHECK_EQ(gs_attach(GS_SPAWN_PINNED), -EINVAL);
    CHECK_EQ(gs_attach(1u << 31), -EINVAL);
    CHECK(!gs_self());
    CHECK_EQ(gs_detach(), -EPERM);
}

GO_TEST(a_goroutine_is_not_detached)
{
    CHECK_EQ(gs_attach(0), -EBUSY);
    CHECK_EQ(gs_detach(), -EPERM);
    CHECK(gs_self());
}

static int depth_of(int n)
{
    volatile char frame[4096];
    frame[0] = (char)n;
    if (n == 0)
        return gs_yield(), 0;
    return depth_of(n - 1) + (frame[0] & 0);
}

TEST(it_has_the_whole_stack_of_its_thread)
{
    ATTACH();
    /* 4 MiB: more than a goroutine has. */
    CHECK_EQ(depth_of(1000), 0);
    DETACH();
}

static void *ping(void *arg)
{
    gs_chan **ch = arg;
    int64_t v;
    CHECK_EQ(gs_attach(GS_SPAWN_NOSIGNAL), 0);
    while (gs_chan_recv(ch[0], &v, GS_FOREVER) == 0) {
        v++;
        CHECK_EQ(gs_chan_send(ch[1], &v, GS_FOREVER), 0);
    }
    DETACH();
    return NULL;
}

TEST(several_threads_at_once)
{
    pthread_t threads[4];
    gs_chan *ch[4][2];
    ATTACH();
    for (size_t i = 0; i < LENGTH(threads); i++) {
        ch[i][0] = gs_chan_make(sizeof(int64_t), 0);
        ch[i][1] = gs_chan_make(sizeof(int64_t), 0);
        CHECK_EQ(pthread_create(&threads[i], NULL, ping, ch[i]), 0);
    }
    for (int64_t n = 0; n < 500; n++) {
        for (size_t i = 0; i < LENGTH(threads); i++) {
            int64_t v = n;
            CHECK_EQ(gs_chan_send(ch[i][0], &v, GS_FOREVER), 0);
        }
        for (size_t i = 0; i < LENGTH(threads); i++) {
            int64_t v = 0;
            CHECK_EQ(gs_chan_recv(ch[i][1], &v, GS_FOREVER), 0);
            CHECK_EQ(v, n + 1);
        }
    }
    for (size_t i = 0; i < LENGTH(threads); i++)
        CHECK_EQ(gs_chan_close(ch[i][0]), 0);
    DETACH();
    for (size_t i = 0; i < LENGTH(threads); i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        gs_chan_free(ch[i][0]);
        gs_chan_free(ch[i][1]);
    }
}

static int begun;

static void sleep_and_add(void *count)
{
    CHECK((void *)pthread_self() == GET(thread_of));
    ADD(begun, 1);
    CHECK_EQ(gs_sleep(20 * MS), 0);
    CHECK((void *)pthread_self() == GET(thread_of));
    add_one(count);
}

TEST(its_thread_is_the_runner_of_a_group)
{
    long ended = 0;
    struct gs_workers *workers = gs_workers_create(1, GS_WORKERS_RUNNER);
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    CHECK(workers);
    opts.flags = GS_SPAWN_PINNED | GS_SPAWN_NOSIGNAL;
    opts.workers = workers;
    SET(thread_of, (void *)pthread_self());
    ATTACH();
    for (int i = 0; i < 50; i++)
        CHECK_EQ(gs_spawn_with(sleep_and_add, &ended, &opts, NULL), 0);
    /* Not before they have ended, which are bound to this thread once they have begun. */
    WAIT_UNTIL(GET(begun) == 50);
    DETACH();
    CHECK_EQ(GET(ended), 50);
    CHECK_EQ(gs_workers_free(workers), 0);
}

/* Threads of a group that all attach. */
static struct attached {
    pthread_t thread;
    gs_sem *end;
    pthread_t self; /* as the thread itself says: it may run before its creator has the name */
    int is_there;
} members[3];

static void *attach_until(void *arg)
{
    struct attached *member = arg;
    SET(member->self, pthread_self());
    CHECK_EQ(gs_attach(GS_SPAWN_NOSIGNAL), 0);
    SET(member->is_there, 1);
    CHECK_EQ(gs_sem_acquire(member->end, 1, GS_FOREVER), 0);
    DETACH();
    return NULL;
}

static long begun_on[LENGTH(members)];

/* Begins and stays on one of them, also beside a call that holds another thread up. */
static void stay_on_member(void *both)
{
    pthread_t here = pthread_self();
    size_t i;
    for (i = 0; i < LENGTH(members) && !pthread_equal(GET(members[i].self), here); i++)
        ;
    CHECK(i < LENGTH(members));
    ADD(begun_on[i], 1);
    for (int n = 0; n < 5; n++) {
        gs_yield();
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK(pthread_equal(pthread_self(), here));
    }
    add_one(both);
}

static void hold_thread_up(void *flag)
{
    CHECK_EQ(gs_entersyscall(), 0);
    while (!GET(*(int *)flag))
        nap(100 * US);
    CHECK_EQ(gs_exitsyscall(), 0);
}

/* Each waits until all of them are there: they run at the same time. */
static void meet_attached(void *count)
{
    ADD(*(int *)count, 1);
    CHECK_EQ(gs_entersyscall(), 0);
    while (GET(*(int *)count) < (int)LENGTH(members))
        nap(100 * US);
    CHECK_EQ(gs_exitsyscall(), 0);
}

TEST(a_group_of_attached_threads)
{
    gs_workers *workers = gs_workers_create(LENGTH(members), GS_WORKERS_RUNNERS);
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_sem end;
    long ended = 0, all = 0;
    int met = 0, stop = 0;
    gs_g *g[LENGTH(members)];
    CHECK(workers);
    CHECK_EQ(gs_sem_init(&end, 0), 0);
    opts.flags = GS_SPAWN_PINNED | GS_SPAWN_NOSIGNAL;
    opts.workers = workers;
    /* There is no thread for these yet. */
    for (int i = 0; i < 100; i++)
        CHECK_EQ(gs_spawn_with(stay_on_member, &ended, &opts, NULL), 0);
    nap(2 * MS);
    CHECK_EQ(GET(ended), 0);
    for (size_t i = 0; i < LENGTH(members); i++) {
        members[i].end = &end;
        CHECK_EQ(pthread_create(&members[i].thread, NULL, attach_until, &members[i]), 0);
        while (!GET(members[i].is_there))
            nap(100 * US);
    }
    /* Calls that block a thread run elsewhere. */
    for (int i = 0; i < 10; i++)
        CHECK_EQ(gs_spawn(hold_thread_up, &stop), 0);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(gs_spawn_with(stay_on_member, &ended, &opts, NULL), 0);
    while (GET(ended) < 200)
        nap(MS);
    for (size_t i = 0; i < LENGTH(members); i++)
        all += GET(begun_on[i]);
    CHECK_EQ(all, 200);
    for (size_t i = 0; i < LENGTH(members); i++)
        CHECK_EQ(gs_spawn_with(meet_attached, &met, &opts, &g[i]), 0);
    for (size_t i = 0; i < LENGTH(members); i++) {
        CHECK_EQ(gs_join(g[i], GS_FOREVER), 0);
        gs_release(g[i]);
    }
    SET(stop, 1);
    CHECK_EQ(gs_sem_release(&end, LENGTH(members)), 0);
    for (size_t i = 0; i < LENGTH(members); i++)
        CHECK_EQ(pthread_join(members[i].thread, NULL), 0);
    CHECK_EQ(gs_workers_free(workers), 0);
}

static void spin_until(void *flag)
{
    while (!GET(*(int *)flag))
        ;
}

TEST(hogs_beside_it_are_preempted)
{
    static int stop;
    ATTACH();
    for (int i = 0; i < 9; i++)
        CHECK_EQ(gs_spawn(spin_until, &stop), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    SET(stop, 1);
    DETACH();
}

static int destroyed;

static void destroy(void *value)
{
    CHECK(value == &destroyed);
    CHECK_EQ(gs_sleep(MS), 0);
    ADD(destroyed, 1);
}

TEST(its_values_are_destroyed)
{
    gs_key key;
    CHECK_EQ(gs_key_create(&key, destroy), 0);
    ATTACH();
    CHECK_EQ(gs_setspecific(key, &destroyed), 0);
    DETACH();
    CHECK_EQ(GET(destroyed), 1);
    CHECK_EQ(gs_key_delete(key), 0);
}

TEST(the_child_of_a_fork_is_not_attached)
{
    int status;
    pid_t child;
    ATTACH();
    CHECK_EQ(gs_sleep(MS), 0);
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(!gs_self());
        CHECK_EQ(gs_detach(), -EPERM);
        ATTACH();
        wait_in_all_ways();
        DETACH();
        _exit(0);
    }
    CHECK(gs_self());
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    DETACH();
}

CHILD(exit_when_attached)
{
    ATTACH();
    CHECK_EQ(gs_spawn(spin_until, &(int){0}), 0);
    CHECK_EQ(gs_sleep(MS), 0);
    exit(0);
}

TEST(a_program_ends_when_attached)
{
    check_child_succeeds("exit_when_attached");
}

CHILD(goexit_when_attached)
{
    ATTACH();
    gs_exit();
}

TEST(goexit_has_nowhere_to_go)
{
    struct rlimit none = {0, 0};
    struct outcome out;
    CHECK_EQ(setrlimit(RLIMIT_CORE, &none), 0);
    check_child_dies("goexit_when_attached", SIGABRT, &out);
    CHECK(strstr(out.text, "gs_attach"));
}

/* The collector's view: what is on the thread's stack is found. */
struct search {
    gs_g *g;
    uintptr_t magic;
    int found;
};

static void search_stack(const gs_g_info *info, void *ctx)
{
    struct search *s = ctx;
    if (info->id != gs_id(s->g))
        return;
    CHECK(info->sp && (char *)info->sp >= (char *)info->stack_lo);
    for (const uintptr_t *at = info->sp; (const void *)(at + 1) <= info->stack_hi; at++)
        s->found += *at == s->magic;
}

static void stop_and_search(void *arg)
{
    struct search *s = arg;
    CHECK_EQ(gs_sleep(5 * MS), 0);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_foreach_g(search_stack, s), 0);
    CHECK_EQ(gs_start_the_world(), 0);
}

TEST(its_stack_is_shown_to_collectors)
{
    volatile uintptr_t word[1];
    static struct search s;
    gs_g *g;
    /* The complement: the word itself shall be nowhere else. */
    s.magic = ~(uintptr_t)0x1234567887654321;
    ATTACH();
    s.g = gs_self();
    word[0] = ~(uintptr_t)0x1234567887654321;
    CHECK_EQ(gs_spawn_with(stop_and_search, &s, NULL, &g), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    CHECK(s.found >= 1);
    CHECK(word[0] == s.magic);
    gs_release(g);
    DETACH();
}

/* ---- gs_uncancel ---- */

static void count_cancels(void *arg)
{
    long *cancels = arg;
    for (;;) {
        int r = gs_sleep(10 * SEC);
        CHECK_EQ(r, -ECANCELED);
        CHECK_EQ(gs_cancelled(), 1);
        CHECK_EQ(gs_uncancel(), 1);
        CHECK_EQ(gs_uncancel(), 0);
        CHECK_EQ(gs_cancelled(), 0);
        CHECK_EQ(gs_sleep(US), 0);
        if (ADD(*cancels, 1) == 5)
            return;
    }
}

GO_TEST(a_cancel_is_taken_back)
{
    long cancels = 0;
    gs_g *g;
    CHECK_EQ(gs_uncancel(), 0);
    CHECK_EQ(gs_spawn_with(count_cancels, &cancels, NULL, &g), 0);
    for (long i = 0; i < 5; i++) {
        CHECK_EQ(gs_cancel(g), 0);
        while (GET(cancels) == i)
            CHECK_EQ(gs_sleep(100 * US), 0);
    }
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
}

TEST(plain_threads_are_not_cancelled)
{
    CHECK_EQ(gs_uncancel(), 0);
}

static void *detach_there(void *arg)
{
    CHECK_EQ(gs_detach(), -EPERM);
    return arg;
}

/* Within gs_blocking the thread has no P, and gs_detach used one. */
TEST(a_thread_is_not_detached_within_gs_blocking)
{
    CHECK_EQ(gs_attach(0), 0);
    CHECK(gs_blocking(detach_there, &errno) == &errno);
    gs_entersyscall();
    DETACH();
}
