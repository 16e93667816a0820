/*
 * gs_leaks: goroutines that wait for what nothing refers to are found, and named by their functions;
 * none that something may still wake is reported. Each case is a process of its own, because leaked
 * goroutines stay.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define HIDE 0x5555555555555555UL
#define NOINLINE __attribute__((noinline, noclone))

static int begun, gone;
static char report[64 << 10];

/* Writes a report into `report`. Returns what gs_leaks does. */
static int leaks(void)
{
    int fd = memfd_create("leaks", MFD_CLOEXEC), n;
    ssize_t len;
    CHECK(fd >= 0);
    n = gs_leaks(fd);
    len = pread(fd, report, sizeof report - 1, 0);
    CHECK(len >= 0);
    report[len] = 0;
    CHECK_EQ(close(fd), 0);
    return n;
}

static void count_waiting(const gs_g_info *info, void *n)
{
    *(int *)n += info->state == GS_G_WAITING;
}

/* In a goroutine: until n goroutines have begun and m wait. */
static void until_waiting(int n, int m)
{
    int now;
    YIELD_UNTIL(GET(begun) == n);
    do {
        now = 0;
        CHECK_EQ(gs_sleep(1 * MS), 0);
        CHECK_EQ(gs_stop_the_world(), 0);
        CHECK_EQ(gs_foreach_g(count_waiting, &now), 0);
        CHECK_EQ(gs_start_the_world(), 0);
    } while (now < m);
}

static void *new_zeroed(size_t size)
{
    void *p = calloc(1, size);
    CHECK(p);
    return p;
}

/* Takes all memory that malloc has given out before and got back: blocks that come later are new memory, to which
 * no stale pointer in a freed block points. */
static void use_up_freed_memory(void)
{
    size_t size, i;
    for (size = 100000; size >= 24; size = size * 3 / 4)
        for (i = 0; i < 100; i++)
            memset(new_zeroed(size), 0, size);
}

/* ---- Leaked ones ---- */

NOINLINE static void leak_send(void *arg)
{
    int x = 1;
    gs_chan *c = chan_of_ints(0);
    ADD(begun, 1);
    (void)gs_chan_send(c, &x, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_recv(void *arg)
{
    gs_chan *c = chan_of_ints(4);
    ADD(begun, 1);
    (void)gs_chan_recv(c, NULL, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_select(void *arg)
{
    gs_case cases[2] = {{chan_of_ints(0), NULL, GS_RECV, 0}, {chan_of_ints(1), NULL, GS_RECV, 0}};
    ADD(begun, 1);
    (void)gs_select(cases, 2, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_mutex(void *arg)
{
    struct {
        int before[100];
        gs_mutex mutex;
    } *box = new_zeroed(sizeof *box);
    ADD(begun, 1);
    CHECK_EQ(gs_mutex_lock(&box->mutex, GS_FOREVER), 0);
    (void)gs_mutex_lock(&box->mutex, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_waitgroup(void *arg)
{
    gs_waitgroup *wg = new_zeroed(sizeof *wg);
    CHECK_EQ(gs_waitgroup_add(wg, 1), 0);
    ADD(begun, 1);
    (void)gs_waitgroup_wait(wg, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_cond(void *arg)
{
    /* On the stack, and no pointer to it is left. */
    gs_cond cond;
    gs_mutex mutex;
    memset(&cond, 0, sizeof cond);
    memset(&mutex, 0, sizeof mutex);
    ADD(begun, 1);
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    (void)gs_cond_wait(&cond, &mutex, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_sem(void *arg)
{
    gs_sem *sem = new_zeroed(sizeof *sem);
    ADD(begun, 1);
    (void)gs_sem_acquire(sem, 1, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_rwmutex(void *arg)
{
    gs_rwmutex *rw = new_zeroed(sizeof *rw);
    CHECK_EQ(gs_rwmutex_lock(rw, GS_FOREVER), 0);
    ADD(begun, 1);
    (void)gs_rwmutex_rlock(rw, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

static void never(void *arg)
{
    (void)arg;
}

NOINLINE static void leak_once(void *once)
{
    ADD(begun, 1);
    (void)gs_once_do(once, never, NULL);
    ADD(gone, 1);
}

NOINLINE static void leak_in_once(void *once)
{
    CHECK_EQ(gs_spawn(leak_once, once), 0);
    (void)gs_select(NULL, 0, GS_FOREVER);
    ADD(gone, 1);
}

NOINLINE static void leak_doer(void *arg)
{
    gs_once *once = new_zeroed(sizeof *once);
    ADD(begun, 1);
    (void)gs_once_do(once, leak_in_once, once);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_second_joiner(void *first)
{
    ADD(begun, 1);
    (void)gs_join(first, GS_FOREVER);
    ADD(gone, 1);
}

NOINLINE static void leak_first_joiner(void *arg)
{
    gs_g *me = gs_self(), *second;
    gs_retain(me);
    second = go_ref(leak_second_joiner, me);
    ADD(begun, 1);
    (void)gs_join(second, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

NOINLINE static void leak_at_end_of_chain(void *c)
{
    ADD(begun, 1);
    (void)gs_chan_recv(c, NULL, GS_FOREVER);
    ADD(gone, 1);
}

NOINLINE static void leak_with_channel_of_another(void *arg)
{
    gs_chan *mine = chan_of_ints(0), *other = chan_of_ints(0);
    CHECK_EQ(gs_spawn(leak_at_end_of_chain, other), 0);
    ADD(begun, 1);
    (void)gs_chan_recv(mine, NULL, GS_FOREVER);
    CHECK_EQ(gs_chan_close(other), 0);
    (void)arg;
}

static const gs_fn leakers[] = {
    leak_send, leak_recv, leak_select, leak_mutex, leak_waitgroup, leak_cond, leak_sem, leak_rwmutex,
    leak_doer, leak_first_joiner, leak_with_channel_of_another,
};
/* All that leak, by name. */
static const char *const names[] = {
    "leak_send", "leak_recv", "leak_select", "leak_mutex", "leak_waitgroup", "leak_cond", "leak_sem",
    "leak_rwmutex", "leak_once", "leak_in_once", "leak_first_joiner", "leak_second_joiner",
    "leak_at_end_of_chain", "leak_with_channel_of_another",
};

NOINLINE static void plant(void)
{
    size_t i;
    for (i = 0; i < LENGTH(leakers); i++)
        CHECK_EQ(gs_spawn(leakers[i], NULL), 0);
    until_waiting((int)LENGTH(names), (int)LENGTH(names));
}

/* Sanitizers and valgrind have lists of blocks, which refer to them, and a malloc whose blocks the
 * library doesn't know, as musl has. There only false reports count. */
static bool finds_all(void)
{
#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
    return false;
#else
    const char *preloaded = getenv("LD_PRELOAD");
    return !preloaded || !strstr(preloaded, "valgrind");
#endif
}

static void find_all(void *arg)
{
    size_t i;
    int n;
    (void)arg;
    plant();
    n = leaks();
    if (!finds_all()) {
        CHECK(n >= 0 && n <= (int)LENGTH(names));
        return;
    }
    for (i = 0; i < LENGTH(names); i++) {
        char call[80];
        snprintf(call, sizeof call, "\n%s()\n", names[i]);
        CHECK_HAS(report, call);
    }
    CHECK_EQ(n, (int)LENGTH(names));
    CHECK_HAS(report, "[chan send (leaked)");
    CHECK_HAS(report, "[join (leaked)");
    CHECK_HAS(report, "created by plant");
    CHECK_EQ(GET(gone), 0);
    /* What the first report has left in freed memory may hide some, but there are no others. */
    n = leaks();
    CHECK(n > 0 && n <= (int)LENGTH(names));
}

CHILD(planted)
{
    CHECK_EQ(gs_init(NULL), 0);
    use_up_freed_memory();
    CHECK_EQ(gs_run(find_all, NULL), 0);
    /* Of a plain thread. */
    CHECK(leaks() >= 0);
    _exit(0);
}

TEST(each_planted_leak_is_found_and_named)
{
    check_child_succeeds("planted");
}

/* ---- What the kernel has written for a handler that is over refers to nothing ---- */

static int is_preempted;

NOINLINE static void leak_after_preemption(void *arg)
{
    gs_chan *c = chan_of_ints(0);
    while (!GET(is_preempted))
        __asm__ volatile("" : : "r"(c));
    ADD(begun, 1);
    (void)gs_chan_recv(c, NULL, GS_FOREVER);
    ADD(gone, 1);
    (void)arg;
}

static void find_preempted(void *arg)
{
    CHECK_GE(gs_gomaxprocs(1), 1);
    CHECK_EQ(gs_spawn(leak_after_preemption, NULL), 0);
    CHECK_EQ(gs_sleep(1 * MS), 0);
    SET(is_preempted, 1);
    until_waiting(1, 1);
    if (finds_all()) {
        CHECK_EQ(leaks(), 1);
        CHECK_HAS(report, "\nleak_after_preemption()\n");
    }
    (void)arg;
}

CHILD(preempted)
{
    CHECK_EQ(gs_init(NULL), 0);
    use_up_freed_memory();
    CHECK_EQ(gs_run(find_preempted, NULL), 0);
    _exit(0);
}

TEST(registers_of_an_ended_preemption_hide_no_leak)
{
    check_child_succeeds("preempted");
}

/* ---- Many that are alike ---- */

enum { MANY = 10000 };

static void find_many(void *arg)
{
    char alike[80];
    int i, n;
    for (i = 0; i < MANY; i++)
        CHECK_EQ(gs_spawn(leak_recv, NULL), 0);
    until_waiting(MANY, MANY);
    /* A stale pointer may hide one or the other. */
    n = leaks();
    CHECK_GE(n, MANY - 19);
    CHECK_LE(n, MANY);
    snprintf(alike, sizeof alike, "\n%d goroutines wait as this one: ", n - 1);
    CHECK_HAS(report, alike);
    CHECK(strlen(report) < 4096);
    (void)arg;
}

CHILD(many)
{
    CHECK_EQ(gs_run(find_many, NULL), 0);
    _exit(0); /* The leaked goroutines stay. */
}

TEST(goroutines_that_are_alike_are_shown_once)
{
    if (finds_all())
        check_child_succeeds("many");
}

/* ---- Ones that aren't leaked ---- */

static gs_chan *volatile global;
static __thread gs_chan *volatile own_to_thread;
static int pipe_ends[2];
static int threads_ready, threads_end;

NOINLINE static void kept_recv(void *c)
{
    ADD(begun, 1);
    (void)gs_chan_recv(c, NULL, GS_FOREVER);
    ADD(gone, 1);
}

NOINLINE static void kept_with_deadline(void *arg)
{
    ADD(begun, 1);
    (void)gs_chan_recv(chan_of_ints(0), NULL, gs_after_ms(600000));
    (void)arg;
}

NOINLINE static void kept_by_file(void *arg)
{
    char c;
    ADD(begun, 1);
    (void)gs_read(pipe_ends[0], &c, 1, GS_FOREVER);
    (void)arg;
}

NOINLINE static void kept_by_timer(void *arg)
{
    gs_chan *c = gs_after(600 * SEC);
    ADD(begun, 1);
    (void)gs_chan_recv(c, NULL, GS_FOREVER);
    (void)arg;
}

NOINLINE static void kept_asleep(void *arg)
{
    ADD(begun, 1);
    (void)gs_sleep(600 * SEC);
    (void)arg;
}

/* Its own waitgroup is on its stack, and a goroutine that sleeps has the address. */
NOINLINE static void sleeps_with(void *wg)
{
    ADD(begun, 1);
    (void)gs_sleep(600 * SEC);
    (void)gs_waitgroup_done(wg);
}

NOINLINE static void kept_by_stack_of_another(void *arg)
{
    gs_waitgroup wg;
    memset(&wg, 0, sizeof wg);
    CHECK_EQ(gs_waitgroup_add(&wg, 1), 0);
    CHECK_EQ(gs_spawn(sleeps_with, &wg), 0);
    ADD(begun, 1);
    (void)gs_waitgroup_wait(&wg, GS_FOREVER);
    (void)arg;
}

/* Waits for a goroutine to which no pointer leads, but which will end. */
NOINLINE static void kept_by_join(void *arg)
{
    gs_g *g = go_ref(kept_asleep, NULL);
    ADD(begun, 1);
    (void)gs_join(g, GS_FOREVER);
    (void)arg;
}

NOINLINE static void kept_by_cancel(void *arg)
{
    ADD(begun, 1);
    (void)gs_chan_recv(chan_of_ints(0), NULL, GS_FOREVER);
    (void)arg;
}

/* A goroutine that waits for a mutex in a struct; the struct is known by its beginning. */
struct job {
    long number[20];
    gs_mutex mutex;
};

NOINLINE static void kept_by_struct(void *arg)
{
    struct job *job = arg;
    CHECK_EQ(gs_mutex_lock(&job->mutex, GS_FOREVER), 0);
    ADD(begun, 1);
    (void)gs_mutex_lock(&job->mutex, GS_FOREVER);
}

/* Makes a channel with a goroutine of this name that waits in it; returns it hidden. */
NOINLINE static unsigned long hidden_channel(const char *name)
{
    gs_chan *c = chan_of_ints(0);
    gs_spawn_opts opts = {.size = sizeof opts, .name = name};
    CHECK_EQ(gs_spawn_with(kept_recv, c, &opts, NULL), 0);
    return (unsigned long)c ^ HIDE;
}

static void *thread_with_variable(void *hidden)
{
    own_to_thread = (gs_chan *)((unsigned long)hidden ^ HIDE);
    ADD(threads_ready, 1);
    while (!GET(threads_end))
        usleep(1000);
    return own_to_thread;
}

static void *thread_with_stack(void *hidden)
{
    gs_chan *volatile local = (gs_chan *)((unsigned long)hidden ^ HIDE);
    ADD(threads_ready, 1);
    while (!GET(threads_end))
        usleep(1000);
    return local;
}

/* The channel is in r12 only, while the thread computes or is in a system call. */
static void *thread_with_register(void *hidden)
{
    static struct timespec ms = {0, 1000000};
    ADD(threads_ready, 1);
    __asm__ volatile(
        "mov %[hidden], %%r12\n\t"
        "movabs %[key], %%r13\n\t"
        "xor %%r13, %%r12\n\t"
        "1:\n\t"
        "mov $35, %%eax\n\t" /* nanosleep */
        "mov %[ms], %%rdi\n\t"
        "xor %%esi, %%esi\n\t"
        "syscall\n\t"
        "mov $1000000, %%ecx\n\t"
        "2:\n\t"
        "dec %%ecx\n\t"
        "jnz 2b\n\t"
        "cmpl $0, %[end]\n\t"
        "je 1b\n\t"
        :
        : [hidden] "r"(hidden), [key] "i"(HIDE), [ms] "r"(&ms), [end] "m"(threads_end)
        : "rax", "rcx", "rdi", "rsi", "r11", "r12", "r13", "memory", "cc");
    return NULL;
}

/* The same in a function of gs_blocking. */
static void *blocks_with_stack(void *hidden)
{
    return thread_with_stack(hidden);
}

static void *blocks_with_register(void *hidden)
{
    return thread_with_register(hidden);
}

static void in_blocking(void *hidden)
{
    (void)gs_blocking(blocks_with_stack, hidden);
}

static void in_blocking_with_register(void *hidden)
{
    (void)gs_blocking(blocks_with_register, hidden);
}

static void computes(void *hidden)
{
    (void)thread_with_register(hidden);
}

static void in_announced_call(void *hidden)
{
    CHECK_EQ(gs_entersyscall(), 0);
    (void)thread_with_register(hidden);
    CHECK_EQ(gs_exitsyscall(), 0);
}

/* Overwrites the part of the stack that has been used. */
NOINLINE static void clear_stack(void)
{
    volatile char junk[16 << 10];
    size_t i;
    for (i = 0; i < sizeof junk; i++)
        junk[i] = 0;
}

enum { KEPT_THREADS = 7 };

NOINLINE static void keep_all(pthread_t *threads, gs_g **cancellable, struct job **job, gs_chan **buffer)
{
    static void *(*const on_thread[])(void *) = {thread_with_variable, thread_with_stack, thread_with_register};
    static const char *const on_thread_names[] = {"thread variable", "stack", "register"};
    static const char *const in_goroutine_names[] = {"gs_blocking", "gs_blocking's register", "goroutine's register",
                                                     "register in a call"};
    static const gs_fn in_goroutine[] = {in_blocking, in_blocking_with_register, computes, in_announced_call};
    static const gs_fn others[] = {kept_with_deadline, kept_by_file, kept_by_timer, kept_asleep,
                                   kept_by_stack_of_another, kept_by_join};
    gs_chan *c, *volatile *lost;
    size_t i;
    for (i = 0; i < LENGTH(on_thread); i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, on_thread[i], (void *)hidden_channel(on_thread_names[i])), 0);
    for (i = 0; i < LENGTH(in_goroutine); i++)
        CHECK_EQ(gs_spawn(in_goroutine[i], (void *)hidden_channel(in_goroutine_names[i])), 0);
    global = (gs_chan *)(hidden_channel("global") ^ HIDE);
    for (i = 0; i < LENGTH(others); i++)
        CHECK_EQ(gs_spawn(others[i], NULL), 0);
    *cancellable = go_ref(kept_by_cancel, NULL);
    *job = new_zeroed(sizeof **job);
    CHECK_EQ(gs_spawn(kept_by_struct, *job), 0);
    /* In a block to which nothing refers. */
    lost = new_zeroed(100);
    lost[3] = (gs_chan *)(hidden_channel("lost block") ^ HIDE);
    /* In a channel's buffer. */
    *buffer = gs_chan_make(sizeof c, 1);
    c = (gs_chan *)(hidden_channel("buffer") ^ HIDE);
    CHECK_EQ(gs_chan_send(*buffer, &c, GS_FOREVER), 0);
}

static void find_none(void *arg)
{
    pthread_t threads[3];
    gs_g *cancellable;
    struct job *job;
    gs_chan *buffer;
    int i;
    (void)arg;
    CHECK_EQ(pipe(pipe_ends), 0);
    keep_all(threads, &cancellable, &job, &buffer);
    clear_stack();
    /* What waits in channels, and 10 more; two of those have another with them. */
    until_waiting(10 + 8 + 2, 10 + 8 + 2);
    YIELD_UNTIL(GET(threads_ready) == KEPT_THREADS);
    for (i = 0; i < 5; i++) {
        if (leaks() != 0)
            failed(__FILE__, __LINE__, "none is leaked", report);
        CHECK_EQ(gs_sleep(1 * MS), 0);
    }
    SET(threads_end, 1);
    for (i = 0; i < (int)LENGTH(threads); i++)
        join_thread(threads[i]);
    /* Used until here. */
    CHECK_EQ(gs_cancel(cancellable), 0);
    CHECK_EQ(gs_mutex_unlock(&job->mutex), 0);
    CHECK_EQ(gs_chan_len(buffer), 1);
}

CHILD(kept)
{
    CHECK_EQ(gs_run(find_none, NULL), 0);
    _exit(0); /* The leaked goroutines stay. */
}

TEST(goroutines_that_something_may_wake_are_not_reported)
{
    check_child_succeeds("kept");
}

static unsigned long hidden;
static int handler_runs, handler_may_end;

/* On the alternate signal stack that the library has given the thread. */
static void keep_on_signal_stack(int signal)
{
    gs_chan *volatile kept = (gs_chan *)(hidden ^ HIDE);
    (void)signal;
    SET(handler_runs, 1);
    while (!GET(handler_may_end))
        usleep(1000);
    __asm__ volatile("" : : "m"(kept));
}

/* The library's own threads block signals. */
static void *get_signal(void *arg)
{
    sigset_t one, before;
    CHECK_EQ(sigemptyset(&one), 0);
    CHECK_EQ(sigaddset(&one, SIGUSR1), 0);
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &one, &before), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    return arg;
}

static void get_signal_in_blocking(void *arg)
{
    CHECK(!gs_blocking(get_signal, arg));
}

static void find_none_beside_handler(void *arg)
{
    struct sigaction action = {.sa_handler = keep_on_signal_stack, .sa_flags = SA_ONSTACK};
    gs_g *g;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    hidden = hidden_channel("hidden");
    until_waiting(1, 1);
    clear_stack();
    g = go_ref(get_signal_in_blocking, NULL);
    WAIT_UNTIL(GET(handler_runs));
    CHECK_EQ(leaks(), 0);
    SET(handler_may_end, 1);
    join(g);
    (void)arg;
}

CHILD(kept_by_handler)
{
    CHECK_EQ(gs_run(find_none_beside_handler, NULL), 0);
    _exit(0);
}

TEST(what_a_handler_has_on_the_signal_stack_is_live)
{
    check_child_succeeds("kept_by_handler");
}

static void forget_global(void *arg)
{
    int n;
    (void)arg;
    global = (gs_chan *)(hidden_channel("global") ^ HIDE);
    until_waiting(1, 1);
    global = NULL;
    clear_stack();
    n = leaks();
    /* With several P's a thread's own stack may keep an old pointer, which hides the leak. */
    CHECK(n == 1 || (n == 0 && gs_gomaxprocs(0) > 1));
    if (n == 1)
        CHECK_HAS(report, "kept_recv()");
}

CHILD(forgotten)
{
    CHECK_EQ(gs_run(forget_global, NULL), 0);
    _exit(0); /* The leaked goroutines stay. */
}

TEST(a_goroutine_whose_last_pointer_is_overwritten_is_leaked)
{
    if (finds_all())
        check_child_succeeds("forgotten");
}

/* ---- Errors ---- */

static void try_errors(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_leaks(-1), -EBADF);
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_leaks(2), -EDEADLK);
    CHECK_EQ(gs_start_the_world(), 0);
}

GO_TEST(a_report_needs_a_file_and_a_world_that_runs)
{
    try_errors(NULL);
}

static void *blocks_signals(void *arg)
{
    sigset_t all;
    sigfillset(&all);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
    ADD(threads_ready, 1);
    while (!GET(threads_end))
        usleep(1000);
    return arg;
}

static void *counts(void *count)
{
    while (!GET(threads_end)) {
        usleep(1000);
        ADD(*(int *)count, 1);
    }
    return NULL;
}

static void count_in_goroutine(void *count)
{
    while (!GET(threads_end)) {
        CHECK_EQ(gs_sleep(1 * MS), 0);
        ADD(*(int *)count, 1);
    }
}

CHILD(blocked)
{
    static int by_thread, by_goroutine;
    pthread_t thread, other;
    CHECK_EQ(gs_init(NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, blocks_signals, NULL), 0);
    CHECK_EQ(pthread_create(&other, NULL, counts, &by_thread), 0);
    CHECK_EQ(gs_spawn(count_in_goroutine, &by_goroutine), 0);
    while (!GET(threads_ready) || !GET(by_thread) || !GET(by_goroutine))
        usleep(1000);
    SET(by_thread, 0);
    SET(by_goroutine, 0);
    CHECK_EQ(leaks(), -EBUSY);
    /* The others have not stood still all the time. */
    CHECK(GET(by_thread) > 20);
    CHECK(GET(by_goroutine) > 20);
    SET(threads_end, 1);
    join_thread(thread);
    join_thread(other);
    CHECK_EQ(leaks(), 0);
}

TEST(a_thread_whose_registers_cannot_be_read_is_an_error)
{
    check_child_succeeds("blocked");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int lock_is_held, waits_for_lock;

/* Has the lock for 100 ms of its own: while it stands still it counts nothing. */
static void *holds_lock(void *arg)
{
    int i;
    CHECK_EQ(pthread_mutex_lock(&lock), 0);
    SET(lock_is_held, 1);
    while (!GET(waits_for_lock))
        usleep(1000);
    for (i = 0; i < 100; i++)
        usleep(1000);
    CHECK_EQ(pthread_mutex_unlock(&lock), 0);
    return arg;
}

/* As the C library does where it starts and ends threads. */
static void *blocks_signals_and_waits(void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
    SET(waits_for_lock, 1);
    CHECK_EQ(pthread_mutex_lock(&lock), 0);
    CHECK_EQ(pthread_mutex_unlock(&lock), 0);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    return arg;
}

CHILD(locked)
{
    pthread_t holder, waiter;
    CHECK_EQ(gs_init(NULL), 0);
    CHECK_EQ(pthread_create(&holder, NULL, holds_lock, NULL), 0);
    while (!GET(lock_is_held))
        usleep(1000);
    CHECK_EQ(pthread_create(&waiter, NULL, blocks_signals_and_waits, NULL), 0);
    while (!GET(waits_for_lock))
        usleep(1000);
    CHECK_EQ(leaks(), 0);
    join_thread(holder);
    join_thread(waiter);
}

TEST(a_thread_that_blocks_signals_gets_the_lock_of_one_that_is_halted)
{
    check_child_succeeds("locked");
}

/* ---- At exit ---- */

static void leak_one_and_exit(void *arg)
{
    CHECK_EQ(gs_spawn(leak_send, arg), 0);
    until_waiting(1, 1);
    exit(7);
}

CHILD(exits)
{
    CHECK_EQ(gs_run(leak_one_and_exit, NULL), 0);
}

static void leak_one(void *arg)
{
    CHECK_EQ(gs_spawn(leak_send, arg), 0);
    until_waiting(1, 1);
}

CHILD(shuts_down)
{
    CHECK_EQ(gs_run(leak_one, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_NOWAIT), -EAGAIN);
    _exit(8);
}

static void check_report_of(const char *child, int status)
{
    struct outcome out;
    run_child(child, &out);
    CHECK(WIFEXITED(out.status));
    CHECK_EQ(WEXITSTATUS(out.status), status);
    CHECK_HAS(out.text, "leaked goroutines: 1\n");
    CHECK_HAS(out.text, "leak_send()");
}

TEST(a_report_is_written_at_exit_and_by_a_shutdown_that_gives_up)
{
    const char *debug = getenv("GOSCHED_DEBUG");
    char with[200];
    if (!finds_all())
        return;
    snprintf(with, sizeof with, "%s%sleaks=1", debug ? debug : "", debug ? "," : "");
    CHECK_EQ(setenv("GOSCHED_DEBUG", with, 1), 0);
    check_report_of("exits", 7);
    check_report_of("shuts_down", 8);
}

