/*
 * What the programs of this directory share: checks, the list of tests, a watchdog, small helpers.
 *
 *   TEST(name)     a test that runs on a plain thread
 *   GO_TEST(name)  a test that runs as a goroutine, under gs_run
 *   CHILD(name)    not a test: runs in a process of its own, started with run_child("name")
 *
 * A program runs all its tests, or those named on its command line, and prints "ok name" for each.
 * The first failed check prints what it saw and ends the process with 1; a test that takes longer
 * than CHECK_SECONDS (60) is aborted. The number of P's comes from GOSCHED_PROCS, so that one
 * program can be run with several.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gosched.h>

/* Lengths of time, in ns. */
#define US 1000LL
#define MS 1000000LL
#define SEC 1000000000LL

/* Sequentially consistent access to plain integers. */
#define GET(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define SET(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)
#define ADD(x, n) __atomic_add_fetch(&(x), (n), __ATOMIC_SEQ_CST)

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

enum test_kind { ON_A_THREAD, IN_A_GOROUTINE, IN_A_CHILD };

struct test {
    const char *name;
    void (*fn)(void);
    enum test_kind kind;
    struct test *next;
};

static struct test *all_tests;
static const char *current_test = "start";
/* Printed with a failure: what helps to see it again, for instance a random seed. */
static char check_note[128];

static inline void add_test(struct test *t)
{
    struct test **end = &all_tests;
    while (*end)
        end = &(*end)->next;
    *end = t;
}

#define TEST_OF_KIND(name, kind)                                             \
    static void name(void);                                                  \
    static struct test name##_test = {#name, name, kind, NULL};              \
    __attribute__((constructor)) static void name##_add(void)                \
    {                                                                        \
        add_test(&name##_test);                                              \
    }                                                                        \
    static void name(void)

#define TEST(name) TEST_OF_KIND(name, ON_A_THREAD)
#define GO_TEST(name) TEST_OF_KIND(name, IN_A_GOROUTINE)
#define CHILD(name) TEST_OF_KIND(name, IN_A_CHILD)

/* Not NULL in a bubble (tester.h): tells why the run has failed, and doesn't return. */
static void (*fail_in_bubble)(const char *why);

/* ---- Checks ---- */

static inline void failed(const char *file, int line, const char *what, const char *values)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s:%d: %s: %s%s%s%s%s\n", file, line, current_test, what,
                     values ? ": " : "", values ? values : "", check_note[0] ? "; " : "", check_note);
    if (n > (int)sizeof text - 1)
        n = (int)sizeof text - 1;
    if (fail_in_bubble)
        fail_in_bubble(text);
    if (write(2, text, (size_t)n) < 0)
        _exit(2);
    _exit(1);
}

static inline void check_eq(const char *file, int line, const char *what, long long got, long long want)
{
    char values[96];
    if (got == want)
        return;
    snprintf(values, sizeof values, "got %lld, want %lld", got, want);
    failed(file, line, what, values);
}

static inline void check_ge(const char *file, int line, const char *what, long long got, long long least)
{
    char values[96];
    if (got >= least)
        return;
    snprintf(values, sizeof values, "got %lld, want at least %lld", got, least);
    failed(file, line, what, values);
}

static inline void check_has(const char *file, int line, const char *text, const char *part)
{
    char what[160];
    if (strcasestr(text, part))
        return;
    snprintf(what, sizeof what, "no \"%s\" in this text", part);
    failed(file, line, what, text);
}

#define CHECK(cond) ((cond) ? (void)0 : failed(__FILE__, __LINE__, #cond, NULL))
#define CHECK_EQ(got, want) \
    check_eq(__FILE__, __LINE__, #got " == " #want, (long long)(got), (long long)(want))
#define CHECK_GE(got, least) \
    check_ge(__FILE__, __LINE__, #got " >= " #least, (long long)(got), (long long)(least))
#define CHECK_LE(got, most) \
    check_ge(__FILE__, __LINE__, #got " <= " #most " (negated)", -(long long)(got), -(long long)(most))
/* Both are strings; the second must occur in the first (upper and lower case are the same). */
#define CHECK_HAS(text, part) check_has(__FILE__, __LINE__, text, part)

/* A test that cannot run here says why. */
#define SKIP(reason)                                            \
    do {                                                        \
        printf("skip %s: %s\n", current_test, reason);          \
        return;                                                 \
    } while (0)

/* ---- Waiting ---- */

/* In a bubble both have its virtual time. */
static inline void nap(int64_t ns)
{
    struct timespec t = {(time_t)(ns / SEC), (long)(ns % SEC)};
    if (fail_in_bubble) {
        (void)gs_sleep(ns);
        return;
    }
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

/* In a goroutine: let time pass until cond holds. The watchdog is the limit. */
#define WAIT_UNTIL(cond)                \
    do {                                \
        while (!(cond))                 \
            (void)gs_sleep(200 * US);   \
    } while (0)
/* WAIT_UNTIL with gs_yield, which keeps the goroutine runnable. */
#define YIELD_UNTIL(cond)               \
    do {                                \
        while (!(cond))                 \
            gs_yield();                 \
    } while (0)
/* WAIT_UNTIL on a plain thread, without any call of the library. */
#define NAP_UNTIL(cond)                 \
    do {                                \
        while (!(cond))                 \
            nap(200 * US);              \
    } while (0)

static inline int64_t clock_now(void)
{
    struct timespec t;
    if (fail_in_bubble)
        return gs_now();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SEC + t.tv_nsec;
}

/* ---- Goroutines and threads ---- */

static inline void go(gs_fn fn, void *arg)
{
    CHECK_EQ(gs_spawn(fn, arg), 0);
}

static inline gs_g *go_ref(gs_fn fn, void *arg)
{
    gs_g *g = NULL;
    CHECK_EQ(gs_spawn_with(fn, arg, NULL, &g), 0);
    CHECK(g != NULL);
    return g;
}

static inline gs_g *go_opts(gs_fn fn, void *arg, const gs_spawn_opts *opts)
{
    gs_g *g = NULL;
    CHECK_EQ(gs_spawn_with(fn, arg, opts, &g), 0);
    CHECK(g != NULL);
    return g;
}

/* Not preempted: with one P whatever it does before it blocks is one step for the others. */
static inline gs_g *go_steady(gs_fn fn, void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.flags = GS_SPAWN_NOPREEMPT;
    return go_opts(fn, arg, &opts);
}

static inline void join(gs_g *g)
{
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
}

/* In a goroutine: until this other one waits in a call, however long it takes to get there. */
static inline void until_parked(const gs_g *g)
{
    gs_g_info info;
    do {
        CHECK_EQ(gs_sleep(200 * US), 0);
        CHECK_EQ(gs_g_info_read(g, &info, sizeof info), 0);
    } while (info.state != GS_G_WAITING);
}

static inline pthread_t start_thread(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, fn, arg), 0);
    return t;
}

static inline void join_thread(pthread_t t)
{
    CHECK_EQ(pthread_join(t, NULL), 0);
}

/* From a goroutine: waits for a plain thread without keeping a P. */
static inline void *join_thread_blocking(void *t)
{
    join_thread(*(pthread_t *)t);
    return NULL;
}

static inline void go_join_thread(pthread_t t)
{
    (void)gs_blocking(join_thread_blocking, &t);
}

static inline pid_t thread_id(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* Goroutines that keep every P busy: those of idle priority don't run meanwhile. From a goroutine. */
static int busy_loops, calm;

static inline void be_busy(void *arg)
{
    (void)arg;
    while (!GET(calm))
        gs_yield();
    ADD(busy_loops, -1);
}

static inline void start_busy_loops(void)
{
    int i, n = 2 * gs_gomaxprocs(0);
    SET(calm, 0);
    SET(busy_loops, n);
    for (i = 0; i < n; i++)
        go(be_busy, NULL);
}

static inline void end_busy_loops(void)
{
    SET(calm, 1);
    YIELD_UNTIL(GET(busy_loops) == 0);
}

static inline gs_g *go_idle(gs_fn fn, void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.priority = GS_PRIO_IDLE;
    return go_opts(fn, arg, &opts);
}

/* ---- Channels of int64_t, which most tests use ---- */

static inline gs_chan *chan_of_ints(size_t cap)
{
    gs_chan *ch = gs_chan_make(sizeof(int64_t), cap);
    CHECK(ch != NULL);
    return ch;
}

static inline void send_int(gs_chan *ch, int64_t v)
{
    CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
}

static inline int64_t recv_int(gs_chan *ch)
{
    int64_t v = -1;
    CHECK_EQ(gs_chan_recv(ch, &v, GS_FOREVER), 0);
    return v;
}

static inline int try_send(gs_chan *ch, int64_t v)
{
    return gs_chan_send(ch, &v, GS_NOWAIT);
}

static inline void free_chan(gs_chan *ch)
{
    CHECK_EQ(gs_chan_free(ch), 0);
}

static inline gs_case send_case(gs_chan *ch, int64_t *v)
{
    gs_case c = {ch, v, GS_SEND, 1};
    return c;
}

static inline gs_case recv_case(gs_chan *ch, int64_t *v)
{
    gs_case c = {ch, v, GS_RECV, 1};
    return c;
}

/* ---- What the process looks like ---- */

/* Whether an emulator runs the program (tools/aarch64). */
static inline int is_emulated(void)
{
    return getenv("GOSCHED_EMULATED") != NULL;
}

static inline long count_entries(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    long n = 0;
    CHECK(d != NULL);
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline long count_threads(void)
{
    return count_entries("/proc/self/task") - is_emulated(); /* qemu-user has a thread of its own */
}

/* How many threads of the process have this name. */
static inline long count_threads_named(const char *name)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *e;
    long n = 0;
    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL) {
        char path[300], comm[32] = "";
        FILE *f;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        if (e->d_name[0] == '.' || (f = fopen(path, "r")) == NULL)
            continue;
        if (fgets(comm, sizeof comm, f))
            comm[strcspn(comm, "\n")] = '\0';
        n += strcmp(comm, name) == 0;
        fclose(f);
    }
    closedir(dir);
    return n;
}

static inline long count_fds(void)
{
    return count_entries("/proc/self/fd");
}

static inline long count_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    long n = 0;
    int c;
    CHECK(f != NULL);
    while ((c = getc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

/* A figure in KiB out of a file like /proc/self/status; -1 if it isn't there. */
static inline long read_kib(const char *file, const char *field)
{
    FILE *f = fopen(file, "r");
    char line[256];
    long kib = -1;
    CHECK(f != NULL);
    while (kib < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = atol(line + strlen(field));
    fclose(f);
    return kib;
}

static inline long resident_kib(void)
{
    return read_kib("/proc/self/status", "VmRSS:");
}

/* The state letter of a thread of this process ('S': asleep), 0 when there is no such thread. */
static inline char thread_state(pid_t tid)
{
    char path[64], text[512], *end;
    FILE *f;
    size_t n;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

/* Waits until the plain thread *tid (set by itself) sleeps in the kernel, seen several times, or has ended. */
static inline void wait_asleep(pid_t *tid)
{
    int seen = 0;
    NAP_UNTIL(GET(*tid) != 0);
    while (seen < 5) {
        char state = thread_state(GET(*tid));
        if (state == 0)
            return;
        seen = state == 'S' ? seen + 1 : 0;
        nap(MS);
    }
}

/* Nodes of the synthetic topology in GOSCHED_TOPOLOGY, 0 when it doesn't say. */
static inline int nodes_in_topology(void)
{
    const char *t = getenv("GOSCHED_TOPOLOGY");
    if (t && strcmp(t, "flat") == 0)
        return 1;
    return t && strncmp(t, "node:", 5) == 0 ? atoi(t + 5) : 0;
}

/* ---- Random numbers (xorshift) ---- */

static inline uint64_t random_next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static inline uint64_t random_seed(void)
{
    const char *given = getenv("CHECK_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)clock_now() | 1;
    snprintf(check_note, sizeof check_note, "CHECK_SEED=%llu", (unsigned long long)seed);
    return seed;
}

/* ---- Processes ---- */

struct outcome {
    int status; /* as waitpid gives it */
    char text[16384]; /* what it wrote to stdout and stderr */
};

static inline void read_all(int fd, char *text, size_t size)
{
    size_t n = 0;
    for (;;) {
        char rest[512];
        ssize_t r = n + 1 < size ? read(fd, text + n, size - 1 - n) : read(fd, rest, sizeof rest);
        if (r <= 0)
            break;
        if (n + 1 < size)
            n += (size_t)r;
    }
    text[n] = 0;
}

/* Runs CHILD(name) of this program in a new process. To be called on a plain thread. */
static inline void run_child(const char *name, struct outcome *out)
{
    extern char **environ;
    posix_spawn_file_actions_t acts;
    posix_spawnattr_t attributes;
    sigset_t usual;
    char exe[] = "/proc/self/exe";
    char *argv[3];
    int fds[2];
    pid_t pid;
    argv[0] = exe;
    argv[1] = (char *)(uintptr_t)name;
    argv[2] = NULL;
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(posix_spawn_file_actions_init(&acts), 0);
    posix_spawn_file_actions_adddup2(&acts, fds[1], 1);
    posix_spawn_file_actions_adddup2(&acts, fds[1], 2);
    posix_spawn_file_actions_addclose(&acts, fds[0]);
    posix_spawn_file_actions_addclose(&acts, fds[1]);
    /* A shell has what it runs in the background ignore them. */
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGQUIT);
    CHECK_EQ(posix_spawnattr_init(&attributes), 0);
    CHECK_EQ(posix_spawnattr_setsigdefault(&attributes, &usual), 0);
    CHECK_EQ(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF), 0);
    CHECK_EQ(posix_spawn(&pid, exe, &acts, &attributes, argv, environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&acts);
    close(fds[1]);
    read_all(fds[0], out->text, sizeof out->text);
    close(fds[0]);
    CHECK_EQ(waitpid(pid, &out->status, 0), pid);
}

static inline void check_child_succeeds(const char *name)
{
    struct outcome out;
    run_child(name, &out);
    if (!WIFEXITED(out.status) || WEXITSTATUS(out.status) != 0)
        failed(__FILE__, __LINE__, name, out.text);
}

/* The child must die by the signal; its output is left in out. */
static inline void check_child_dies(const char *name, int sig, struct outcome *out)
{
    char values[128];
    run_child(name, out);
    if (WIFSIGNALED(out->status) && WTERMSIG(out->status) == sig)
        return;
    snprintf(values, sizeof values, "%s: should die by signal %d, wait status is 0x%x", name, sig, out->status);
    failed(__FILE__, __LINE__, values, out->text);
}

/* ---- Running the tests ---- */

/* Whether the environment's CHECK_WITHOUT has the name of the test: it can't be run here. */
static inline int is_left_out(const struct test *t)
{
    const char *names = getenv("CHECK_WITHOUT");
    size_t len = strlen(t->name);
    for (; names && (names = strstr(names, t->name)) != NULL; names += len)
        if (names[len] == ' ' || names[len] == '\0')
            return 1;
    return 0;
}

static inline unsigned check_seconds(void)
{
    const char *s = getenv("CHECK_SECONDS");
    return s ? (unsigned)atoi(s) : 60;
}

static inline void on_hang(int sig)
{
    const char *parts[] = {current_test, ": hung, aborted by the watchdog", check_note[0] ? "; " : "", check_note, "\n"};
    unsigned i;
    (void)sig;
    for (i = 0; i < sizeof parts / sizeof *parts; i++)
        if (write(2, parts[i], strlen(parts[i])) < 0)
            _exit(2);
    signal(SIGABRT, SIG_DFL);
    abort();
}

static inline void in_goroutine(void *t)
{
    ((struct test *)t)->fn();
}

static inline void run_test(struct test *t)
{
    current_test = t->name;
    check_note[0] = 0;
    alarm(check_seconds());
    if (t->kind == IN_A_GOROUTINE)
        CHECK_EQ(gs_run(in_goroutine, t), 0);
    else
        t->fn();
    printf("ok %s\n", t->name);
    fflush(stdout);
}

static inline int is_named(const struct test *t, int argc, char **argv)
{
    int i;
    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], t->name) == 0)
            return 1;
    return argc == 1 && t->kind != IN_A_CHILD;
}

/* The parent's alarm is not the child's, and nothing else would end a child that hangs. */
static inline void watch_child(void)
{
    alarm(check_seconds());
}

static inline void prepare(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGALRM, on_hang);
    CHECK_EQ(pthread_atfork(NULL, NULL, watch_child), 0);
}

/* Every test leaves a runtime that can be shut down: each goroutine it started has ended. */
static inline void finish(void)
{
    current_test = "shutdown at the end of the program";
    check_note[0] = 0;
    alarm(check_seconds());
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    alarm(0);
}

int main(int argc, char **argv)
{
    struct test *t;
    int ran = 0;
    prepare();
    for (t = all_tests; t; t = t->next) {
        if (!is_named(t, argc, argv))
            continue;
        ran++;
        if (is_left_out(t))
            printf("skip %s: CHECK_WITHOUT\n", t->name);
        else
            run_test(t);
    }
    if (ran == 0) {
        fprintf(stderr, "no such test; this program has:\n");
        for (t = all_tests; t; t = t->next)
            fprintf(stderr, "  %s\n", t->name);
        return 2;
    }
    finish();
    return 0;
}

#endif
