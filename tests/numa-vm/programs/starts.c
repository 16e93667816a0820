/*
 * With libgosched-preload, threads and programs that a goroutine starts may use the CPUs that its thread could use if the
 * library didn't bind it to a node.
 * uses: preload
 * seed: N1
 */
#include "lab.h"

#include <fcntl.h>
#include <spawn.h>
#include <threads.h>

/* ---- What was started says which CPUs it may use: a thread itself, and as a program grep ---- */

#define PATTERN "^(SigBlk|Cpus_allowed_list):"
#define SHOW "grep -E '" PATTERN "' /proc/self/status"
static char *const show[] = {"grep", "-E", PATTERN, "/proc/self/status", NULL};

/* The CPUs. The program blocks no signals, nor must what it starts. */
static uint64_t set_in(const char *said)
{
    static const char begin[] = "SigBlk:\t0000000000000000\nCpus_allowed_list:\t";
    if (strncmp(said, begin, sizeof begin - 1) != 0)
        failed(__FILE__, __LINE__, "a program has said this of its signals and CPUs", said);
    return parse_list(said + sizeof begin - 1);
}

static uint64_t said_by_child(pid_t pid, const int ends[2])
{
    char said[256];
    size_t have = 0;
    ssize_t n;
    int status;
    CHECK_EQ(close(ends[1]), 0);
    while ((n = read(ends[0], said + have, sizeof said - 1 - have)) > 0)
        have += (size_t)n;
    CHECK_EQ(n, 0);
    CHECK_EQ(close(ends[0]), 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    said[have] = 0;
    return set_in(said);
}

/* ---- The ways to start something ---- */

static void *note_mask(void *mask)
{
    sigset_t set;
    int sig;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    for (sig = 1; sig < SIGRTMIN; sig++)
        CHECK(sigismember(&set, sig) != 1);
    *(uint64_t *)mask = mask_of(0);
    return NULL;
}

static int note_mask_in_thrd(void *mask)
{
    note_mask(mask);
    return 0;
}

static uint64_t by_pthread_create(void)
{
    uint64_t mask = 0;
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, note_mask, &mask), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    return mask;
}

static uint64_t by_thrd_create(void)
{
    uint64_t mask = 0;
    thrd_t t;
    CHECK_EQ(thrd_create(&t, note_mask_in_thrd, &mask), thrd_success);
    CHECK_EQ(thrd_join(t, NULL), thrd_success);
    return mask;
}

static uint64_t by_either_spawn(int looks_for_file)
{
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid;
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
    CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, ends[1], 1), 0);
    if (looks_for_file)
        CHECK_EQ(posix_spawnp(&pid, "grep", &actions, NULL, show, environ), 0);
    else
        CHECK_EQ(posix_spawn(&pid, "/bin/grep", &actions, NULL, show, environ), 0);
    CHECK_EQ(posix_spawn_file_actions_destroy(&actions), 0);
    return said_by_child(pid, ends);
}

static uint64_t by_posix_spawn(void)
{
    return by_either_spawn(0);
}

static uint64_t by_posix_spawnp(void)
{
    return by_either_spawn(1);
}

static uint64_t by_fork_and_exec(void)
{
    int ends[2];
    pid_t pid;
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_GE(pid = fork(), 0);
    if (pid == 0) {
        dup2(ends[1], 1);
        execv("/bin/grep", show);
        _exit(1);
    }
    return said_by_child(pid, ends);
}

static uint64_t by_vfork_and_exec(void)
{
    int ends[2];
    pid_t pid;
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_GE(pid = vfork(), 0);
    if (pid == 0) {
        dup2(ends[1], 1);
        execlp(show[0], show[0], show[1], show[2], show[3], (char *)NULL);
        _exit(1);
    }
    return said_by_child(pid, ends);
}

static uint64_t by_system(void)
{
    char said[256] = {0};
    FILE *f;
    CHECK_EQ(system(SHOW " >/tmp/said"), 0);
    f = fopen("/tmp/said", "r");
    CHECK(f != NULL);
    CHECK_GE(fread(said, 1, sizeof said - 1, f), 1);
    CHECK_EQ(fclose(f), 0);
    return set_in(said);
}

static uint64_t by_popen(void)
{
    char said[256] = {0};
    FILE *f = popen(SHOW, "r");
    CHECK(f != NULL);
    CHECK_GE(fread(said, 1, sizeof said - 1, f), 1);
    CHECK_EQ(pclose(f), 0);
    return set_in(said);
}

static const struct way {
    const char *name;
    uint64_t (*start)(void);
    int elsewhere; /* another thread makes the call */
} ways[] = {
    {"pthread_create", by_pthread_create, 0},
    {"thrd_create", by_thrd_create, 0},
    {"posix_spawn", by_posix_spawn, 0},
    {"posix_spawnp", by_posix_spawnp, 0},
    {"fork and exec", by_fork_and_exec, 0},
    {"vfork and exec", by_vfork_and_exec, 0},
    {"system", by_system, 1},
    {"popen", by_popen, 1},
};

/* ---- The goroutine that starts it ---- */

/* With which the runtime starts, and the main thread comes to gs_run. */
#define HOST_MASK 0xff
static uint64_t main_mask = HOST_MASK;

static int is_main(void)
{
    return thread_id() == getpid();
}

/* For a goroutine that stays on its thread, which is bound to a node. */
static void check_is_bound(void)
{
    uint64_t mask, cpus, own = is_main() ? main_mask : HOST_MASK;
    gs_preempt_disable();
    mask = mask_of(0);
    cpus = cpus_of_node(system_node(gs_numa_node())) & own;
    gs_preempt_enable();
    CHECK(cpus != own);
    CHECK_EQ(mask, cpus ? cpus : own);
}

static void start_by_all_ways(uint64_t want)
{
    size_t i;
    for (i = 0; i < LENGTH(ways); i++) {
        int begins_on_main = is_main();
        uint64_t got = ways[i].start();
        printf("%s, on %s: %#llx\n", ways[i].name, begins_on_main ? "gs_run's thread" : "a thread of the library",
               (unsigned long long)got);
        CHECK_EQ(got, want);
    }
}

static void start_while_bound(void *arg)
{
    int round;
    (void)arg;
    for (round = 0; round < 2; round++) {
        check_is_bound();
        start_by_all_ways(is_main() ? main_mask : HOST_MASK);
        check_is_bound();
    }
}

static void *start_where_it_cannot_park(void *arg)
{
    (void)arg;
    start_by_all_ways(is_main() ? main_mask : HOST_MASK);
    return NULL;
}

static void start_in_blocking(void *arg)
{
    check_is_bound();
    gs_blocking(start_where_it_cannot_park, arg);
    check_is_bound();
}

/* The function of gs_run calls it in goroutines that are pinned, first to gs_run's thread, then to another one. */
static void call_in_pinned(gs_fn fn, uint32_t flags)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.flags = GS_SPAWN_PINNED;
    opts.workers = gs_workers_create(1, flags);
    CHECK(opts.workers != NULL);
    join(go_opts(fn, NULL, &opts));
    gs_workers_free(opts.workers);
}

static void on_main(gs_fn fn)
{
    call_in_pinned(fn, GS_WORKERS_RUNNER);
}

static void on_librarys_thread(gs_fn fn)
{
    call_in_pinned(fn, 0);
}

static void start_on_main(void *arg)
{
    CHECK(is_main());
    start_while_bound(arg);
}

static void start_on_librarys_thread(void *arg)
{
    CHECK(!is_main());
    start_while_bound(arg);
}

static void start_here_and_there(void *arg)
{
    (void)arg;
    on_main(start_on_main);
    on_librarys_thread(start_on_librarys_thread);
}

TEST(what_a_goroutine_starts_may_use_the_cpus_of_the_owner_of_its_thread)
{
    CHECK_EQ(gs_run(start_here_and_there, NULL), 0);
    CHECK(set_mask(0, main_mask = 0x36)); /* parts of three nodes */
    CHECK_EQ(gs_run(start_here_and_there, NULL), 0);
    CHECK_EQ(mask_of(0), 0x36);
}

static void start_in_blocking_here_and_there(void *arg)
{
    (void)arg;
    on_main(start_in_blocking);
    on_librarys_thread(start_in_blocking);
}

TEST(what_a_goroutine_starts_in_gs_blocking_is_not_bound_either)
{
    CHECK_EQ(gs_init(NULL), 0);
    CHECK(set_mask(0, main_mask = 0x36));
    CHECK_EQ(gs_run(start_in_blocking_here_and_there, NULL), 0);
}

static int has_begun, may_end;

static void stay(void *arg)
{
    (void)arg;
    CHECK(is_main());
    SET(has_begun, 1);
    while (!GET(may_end))
        CHECK_EQ(gs_sleep(MS), 0);
}

static void call_stay(void *arg)
{
    (void)arg;
    on_main(stay);
}

/* This goroutine leaves gs_run's thread to the pinned one before announced calls. */
static void start_while_not_pinned(void *arg)
{
    gs_g *other = go_ref(call_stay, NULL);
    int round;
    size_t i;
    (void)arg;
    while (!GET(has_begun))
        gs_yield();
    for (round = 0; round < 10; round++)
        for (i = 0; i < LENGTH(ways); i++)
            if (!ways[i].elsewhere) {
                gs_yield();
                CHECK_EQ(ways[i].start(), HOST_MASK);
            }
    SET(may_end, 1);
    join(other);
}

TEST(a_goroutine_that_is_not_pinned_may_move_meanwhile)
{
    CHECK_EQ(gs_run(start_while_not_pinned, NULL), 0);
}

/* ---- exec without a fork ---- */

static void exec_while_bound(void *arg)
{
    (void)arg;
    check_is_bound();
    CHECK_EQ(execv("/bin/no such program", show), -1);
    CHECK_EQ(errno, ENOENT);
    check_is_bound();
    execve("/bin/grep", show, environ);
    failed(__FILE__, __LINE__, "exec has failed", NULL);
}

static void exec_on_main(void *arg)
{
    (void)arg;
    on_main(exec_while_bound);
}

static void exec_on_librarys_thread(void *arg)
{
    (void)arg;
    on_librarys_thread(exec_while_bound);
}

TEST(a_goroutine_that_becomes_a_program_has_the_cpus_of_the_owner_of_its_thread)
{
    const gs_fn fns[] = {exec_on_main, exec_on_librarys_thread};
    const uint64_t wanted[] = {0x36, HOST_MASK};
    size_t i;
    for (i = 0; i < LENGTH(fns); i++) {
        int ends[2];
        pid_t pid;
        CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
        CHECK_GE(pid = fork(), 0);
        if (pid == 0) {
            CHECK_EQ(dup2(ends[1], 1), 1);
            CHECK_EQ(gs_init(NULL), 0);
            CHECK(set_mask(0, main_mask = 0x36));
            CHECK_EQ(gs_run(fns[i], NULL), 0);
            _exit(1);
        }
        CHECK_EQ(said_by_child(pid, ends), wanted[i]);
    }
}

/* ---- CPUs that the program has set itself ---- */

static void *note_mask_when_told(void *arg)
{
    static uint64_t mask;
    NAP_UNTIL(GET(*(int *)arg));
    mask = mask_of(0);
    return &mask;
}

static void start_threads_with_masks(void *arg)
{
    pthread_attr_t attr;
    pthread_t t;
    cpu_set_t cpus;
    uint64_t mask = 0;
    void *result;
    int told = 0;
    (void)arg;
    check_is_bound();
    CPU_ZERO(&cpus);
    CPU_SET(3, &cpus);
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setaffinity_np(&attr, sizeof cpus, &cpus), 0);
    CHECK_EQ(pthread_create(&t, &attr, note_mask, &mask), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK_EQ(mask, 1 << 3);
    CHECK_EQ(pthread_attr_destroy(&attr), 0);
    check_is_bound();
    CHECK_EQ(pthread_create(&t, NULL, note_mask_when_told, &told), 0);
    CHECK_EQ(pthread_setaffinity_np(t, sizeof cpus, &cpus), 0);
    SET(told, 1);
    CHECK_EQ(pthread_join(t, &result), 0);
    CHECK_EQ(*(uint64_t *)result, 1 << 3);
}

static void start_threads_here_and_there(void *arg)
{
    (void)arg;
    on_main(start_threads_with_masks);
    on_librarys_thread(start_threads_with_masks);
}

TEST(cpus_that_a_program_gives_a_thread_stay)
{
    CHECK_EQ(gs_run(start_threads_here_and_there, NULL), 0);
}

static void start_while_locked(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    CHECK(set_mask(0, 0x1c));
    start_by_all_ways(0x1c);
    CHECK_EQ(mask_of(0), 0x1c);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void lock_here_and_there(void *arg)
{
    (void)arg;
    on_main(start_while_locked);
    on_librarys_thread(start_while_locked);
}

TEST(what_is_started_while_a_goroutine_locks_its_thread_inherits_the_threads_cpus)
{
    CHECK_EQ(gs_run(lock_here_and_there, NULL), 0);
}
