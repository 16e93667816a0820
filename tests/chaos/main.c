/* The chaos program: rounds, actors, the watchdog. README.md says how to use it. */
#include "chaos.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    GOROUTINES = 50, /* actors that live as long as a round */
    THREADS = 4,
    MAX_ACTORS = 4096,
    MAX_NAMES = 64,
};

atomic_bool ending;
bool in_bubble, memory_is_refused;
bool cooperative;
uint64_t seed;

static struct actor actors[MAX_ACTORS];
static atomic_uint next_actor;
static atomic_long steps;       /* operations done, by all: what the watchdog looks at */
static atomic_int round_number;
static atomic_bool between;     /* in the rounds' beginning or end, which has its own limits */
static _Atomic int64_t ending_since;
static int64_t deadline;        /* of the whole program */
static long patience = 20;      /* seconds without progress that are a failure */
static const char *program;
static char *only[MAX_NAMES], *without[MAX_NAMES];
static const struct op *lots[1024]; /* each operation as often as its weight */
static int lot_count;
static char config_text[200];

int64_t clock_now(void)
{
    struct timespec t;
    if (in_bubble)
        return gs_now();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SEC + t.tv_nsec;
}

void block_for(int64_t ns)
{
    struct timespec t = {(time_t)(ns / SEC), (long)(ns % SEC)};
    if (in_bubble)
        gs_preempt_now();
    else
        nanosleep(&t, NULL);
}

void compute_for(int64_t ns)
{
    int64_t end = clock_now() + ns;
    if (in_bubble)
        gs_preempt_now();
    while (clock_now() < end && !in_bubble)
        ;
}

void before_it_waits_again(struct actor *a)
{
    /* A bubble's clock stands still while a goroutine runs. */
    if (in_bubble)
        (void)gs_uncancel();
    else if (a->go)
        gs_yield();
    else
        block_for(100 * US);
}

/* ---- Failures ---- */

/* Not fork(2): the handlers that it runs may need what is stuck. */
static void backtrace_of_all_threads(void)
{
    extern char **environ;
    char pid[16];
    char *argv[] = {"gdb", "-q", "-batch", "-nx", "-p", pid, "-ex", "set pagination off",
                    "-ex", "thread apply all bt 14", NULL};
    posix_spawn_file_actions_t acts;
    pid_t child;
    int status;
    if (getenv("CHAOS_NO_GDB"))
        return;
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    posix_spawn_file_actions_init(&acts);
    posix_spawn_file_actions_addopen(&acts, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&acts, 2, 1);
    /* Fewer threads come and go, which gdb can't follow while it attaches to each. */
    signal(SIGUSR1, SIG_IGN);
    atomic_store(&ending, true);
    for (int tries = 0; tries < 5; tries++) {
        if (posix_spawnp(&child, "gdb", &acts, NULL, argv, environ) != 0) {
            fprintf(stderr, "chaos: no backtraces: gdb is not installed\n");
            return;
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (status == 0)
            return;
    }
}

static void say_how_to_repeat(void)
{
    fprintf(stderr, "chaos: round %d, %s\nchaos: repeat with:", atomic_load(&round_number), config_text);
    for (const char *const *v = (const char *const[]){"GOSCHED_PROCS", "GOSCHED_TOPOLOGY", "GOSCHED_DEBUG",
                                                      "CHAOS_ONLY", "CHAOS_WITHOUT", "CHAOS_ROUND", NULL}; *v; v++)
        if (getenv(*v))
            fprintf(stderr, " %s='%s'", *v, getenv(*v));
    fprintf(stderr, " %s 60 %llu\n", program, (unsigned long long)seed);
}

static int by_time(const void *x, const void *y)
{
    int64_t tx = atomic_load(&(*(struct actor *const *)x)->since), ty = atomic_load(&(*(struct actor *const *)y)->since);
    return (tx > ty) - (tx < ty);
}

/* Those first that have been at it for longest. */
static void say_who_does_what(void)
{
    static struct actor *used[MAX_ACTORS];
    int64_t now = clock_now();
    int n = 0;
    /* Hundreds of low priority may have waited for their turn since they were spawned. */
    for (int i = 0; i < MAX_ACTORS; i++)
        if (atomic_load(&actors[i].used) && (actors[i].priority >= GS_PRIO_NORMAL || atomic_load(&actors[i].done) > 0))
            used[n++] = &actors[i];
    qsort(used, (size_t)n, sizeof used[0], by_time);
    fprintf(stderr, "  %d actors, without those of low priority that have not begun:\n", n);
    for (int i = 0; i < n && i < 80; i++) {
        struct actor *a = used[i];
        fprintf(stderr, "  %.3f s in %s: actor %ld, %s%s%s%s%s, priority %d, depth %d, %ld done\n",
                (double)(now - atomic_load(&a->since)) / 1e9, a->op ? a->op : "nothing", (long)(a - actors),
                a->go ? "goroutine" : "thread", a->pinned ? ", pinned" : "", a->locked ? ", locked" : "",
                a->steady ? ", not preempted" : "", a->runner ? ", of gs_run" : "", a->priority, a->depth,
                atomic_load(&a->done));
    }
}

/* After a bubble that has failed. */
void say_who_is_left(void)
{
    for (unsigned i = 0; i < MAX_ACTORS && i < next_actor; i++)
        if (actors[i].used)
            fprintf(stderr, "  actor %u was in %s, %ld done\n", i, actors[i].op ? actors[i].op : "nothing", (long)actors[i].done);
}

static atomic_flag failing = ATOMIC_FLAG_INIT;

_Noreturn void wrong(const char *file, int line, const char *format, ...)
{
    va_list args;
    if (in_bubble) {
        char text[400];
        int n = snprintf(text, sizeof text, "%s:%d: ", file, line);
        va_start(args, format);
        vsnprintf(text + n, sizeof text - (size_t)n, format, args);
        va_end(args);
        gs_test_fail(text);
        fprintf(stderr, "chaos: WRONG: %s\n", text); /* not on a goroutine */
        abort();
    }
    if (atomic_flag_test_and_set(&failing))
        for (;;)
            pause();
    fprintf(stderr, "chaos: WRONG: %s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    say_how_to_repeat();
    say_who_does_what();
    backtrace_of_all_threads();
    signal(SIGABRT, SIG_DFL);
    abort();
}

void must_be(const char *file, int line, const char *what, long got, const long *allowed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got == allowed[i] || (got == -ENOMEM && memory_is_refused && (allowed[i] == -ETIMEDOUT || allowed[i] == -ECANCELED)))
            return;
    wrong(file, line, "%s gives %ld (%s)", what, got, got < 0 ? gs_strerror((int)got) : "a count");
}

/* A crash shows where every thread was. The library passes on to this handler what isn't its own. */
static void on_crash(int sig)
{
    if (!atomic_flag_test_and_set(&failing)) {
        fprintf(stderr, "chaos: WRONG: died by signal %d\n", sig);
        say_how_to_repeat();
        backtrace_of_all_threads();
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

/* ---- The watchdog ---- */

static long states[8];

static void visit_stuck(const gs_g_info *info, void *ctx)
{
    (void)ctx;
    states[info->state & 7]++;
    if (info->state == GS_G_RUNNABLE && states[GS_G_RUNNABLE] <= 12)
        fprintf(stderr, "  runnable, but not run: goroutine %llu, node %d, actor %ld, stack %p to %p, sp %p, regs %p\n",
                (unsigned long long)info->id, info->node,
                is_actor(info->arg) ? (long)((struct actor *)info->arg - actors) : -1L,
                info->stack_lo, info->stack_hi, info->sp, info->regs);
}

static void *look_at_goroutines(void *arg)
{
    atomic_bool *looked = arg;
    gs_stats s = {.size = sizeof s};
    gs_stats_read(&s);
    fprintf(stderr, "  goroutines %llu, P's %llu, idle %llu, threads %llu\n", (unsigned long long)s.goroutines,
            (unsigned long long)s.procs, (unsigned long long)s.idle_procs, (unsigned long long)s.threads);
    if (gs_stop_the_world() == 0 && gs_foreach_g(visit_stuck, NULL) == 0)
        fprintf(stderr, "  %ld runnable, %ld running, %ld waiting, %ld in system calls\n", states[GS_G_RUNNABLE],
                states[GS_G_RUNNING], states[GS_G_WAITING], states[GS_G_SYSCALL]);
    atomic_store(looked, true);
    return NULL;
}

static _Noreturn void report_stuck(const char *what)
{
    static atomic_bool looked;
    pthread_t t;
    if (atomic_flag_test_and_set(&failing))
        for (;;)
            pause();
    fprintf(stderr, "chaos: WRONG: %s\n", what);
    say_how_to_repeat();
    say_who_does_what();
    backtrace_of_all_threads();
    pthread_create(&t, NULL, look_at_goroutines, &looked);
    for (int i = 0; i < 50 && !atomic_load(&looked); i++)
        usleep(100000);
    if (!atomic_load(&looked))
        fprintf(stderr, "  the world can't be stopped\n");
    signal(SIGABRT, SIG_DFL);
    abort();
}

static void *watch(void *arg)
{
    long last = -1;
    int64_t moved = clock_now();
    (void)arg;
    leave_signals_to_others();
    for (;;) {
        int64_t now, since = atomic_load(&ending_since);
        usleep(500000);
        now = clock_now();
        if (atomic_load(&steps) != last || atomic_load(&between)) {
            last = atomic_load(&steps);
            moved = now;
        }
        if (now - moved > patience * SEC)
            report_stuck("no operation has ended for a while");
        if (since != 0 && now - since > 2 * patience * SEC)
            report_stuck("the round doesn't end");
        /* Others run, but one doesn't. Low priorities may starve. */
        for (int i = 0; i < MAX_ACTORS; i++)
            if (atomic_load(&actors[i].used) && actors[i].priority >= GS_PRIO_NORMAL &&
                (since = atomic_load(&actors[i].since)) != 0 && now - since > 2 * patience * SEC)
                report_stuck("an actor has been in one operation for too long");
    }
    return NULL;
}

/* ---- Which operations ---- */

static void split(char *text, char **names)
{
    int n = 0;
    for (char *name = text ? strtok(strdup(text), ", ") : NULL; name && n < MAX_NAMES - 1; name = strtok(NULL, ", "))
        names[n++] = name;
}

static bool is_in(char **names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

bool enabled(const char *name)
{
    return (!only[0] || is_in(only, name)) && !is_in(without, name);
}

static const struct op *const tables[] = {ops_sched, ops_sync, ops_chan, ops_time, ops_calls, ops_files, ops_host, ops_net};

/* Properties of actors and of rounds that can be left out like operations. */
static const char *const features[] = {"pinned", "steady", "priorities", "nodes", "stacks", "cancel",
                                       "threads", "configs", "signals", "restart", "locked_end"};

static bool is_a_name(const char *name)
{
    for (size_t i = 0; i < LENGTH(features); i++)
        if (strcmp(features[i], name) == 0)
            return true;
    for (size_t t = 0; t < LENGTH(tables); t++)
        for (const struct op *o = tables[t]; o->name; o++)
            if (strcmp(o->name, name) == 0)
                return true;
    return false;
}

static bool is_possible(const struct op *table, const struct op *o)
{
    return in_bubble ? !(o->limits & (REAL | THREAD_ONLY)) : table != ops_net;
}

void choose_operations(void)
{
    split(getenv("CHAOS_ONLY"), only);
    split(getenv("CHAOS_WITHOUT"), without);
    for (int k = 0; k < 2; k++)
        for (char **name = k ? only : without; *name; name++)
            if (!is_a_name(*name)) {
                fprintf(stderr, "chaos: there is no operation or property '%s'; --list shows all\n", *name);
                exit(2);
            }
    for (size_t t = 0; t < LENGTH(tables); t++)
        for (const struct op *o = tables[t]; o->name; o++)
            for (int i = 0; enabled(o->name) && is_possible(tables[t], o) && i < o->weight && lot_count < (int)LENGTH(lots); i++)
                lots[lot_count++] = o;
    if (lot_count == 0) {
        fprintf(stderr, "chaos: no operation is left\n");
        exit(2);
    }
}

/* ---- Actors ---- */

struct actor *new_actor(bool go, int depth, uint64_t rng)
{
    for (int tries = 0; tries < MAX_ACTORS; tries++) {
        struct actor *a = &actors[atomic_fetch_add(&next_actor, 1) % MAX_ACTORS];
        bool used = false;
        if (!atomic_compare_exchange_strong(&a->used, &used, true))
            continue;
        a->rng = rng * 0x9e3779b97f4a7c15ULL + seed;
        rnd32(a);
        a->go = go;
        a->pinned = a->locked = a->runner = a->nopreempt = false;
        a->steady = go && cooperative;
        a->priority = GS_PRIO_NORMAL;
        a->depth = depth;
        a->steps = 0;
        a->tid = 0;
        a->magic = 0x5ca1ab1e00000000ULL ^ ((uint64_t)(a - actors) << 20) ^ (uint64_t)rnd32(a) << 24;
        a->op = "its beginning";
        a->done = 0;
        atomic_store(&a->since, clock_now());
        return a;
    }
    return NULL;
}

void free_actor(struct actor *a)
{
    atomic_store(&a->since, 0); /* the next one isn't judged by it before it begins */
    atomic_store(&a->used, false);
}

/* Those that a bubble may have given up. */
void forget_actors(void)
{
    for (unsigned i = 0; i < MAX_ACTORS && i < next_actor; i++)
        memset(&actors[i], 0, sizeof actors[i]);
    next_actor = 0;
    ending = false;
}

bool is_actor(const void *p)
{
    return (uintptr_t)p >= (uintptr_t)actors && (uintptr_t)p < (uintptr_t)(actors + MAX_ACTORS);
}

static bool allowed(const struct actor *a, const struct op *o, int depth)
{
    return !((a->nopreempt && !(o->limits & NO_LOCKS)) || (o->limits & GO_ONLY && !a->go) || (o->limits & THREAD_ONLY && a->go) ||
             (o->limits & SHALLOW && depth > 1) || (o->limits & YIELDS_P && a->steady) ||
             (o->limits & NOT_LOCKED && a->locked) || (o->limits & NOT_IDLE && a->priority <= GS_PRIO_LOW));
}

void one_operation(struct actor *a, int depth)
{
    const struct op *o = lots[rnd(a, lot_count)];
    const char *outer = a->op;
    if (!allowed(a, o, depth))
        o = &ops_sched[0]; /* yield */
    atomic_store(&a->op, o->name);
    atomic_store(&a->since, clock_now());
    o->f(a);
    if (a->pinned) {
        pid_t tid = (pid_t)syscall(SYS_gettid);
        if (a->tid && a->tid != tid)
            WRONG("a pinned goroutine was on thread %d, and is on %d after %s", a->tid, tid, o->name);
        a->tid = tid;
    }
    atomic_store(&a->op, outer);
    atomic_fetch_add(&a->done, 1);
    atomic_fetch_add(&steps, 1);
}

void act_as(struct actor *a)
{
    volatile uint64_t on_stack = a->magic; /* what calls_stop_the_world looks for */
    int left = a->steps;
    atomic_store(&a->live, true);
    while (!atomic_load(&ending) && (a->steps == 0 || left-- > 0)) {
        one_operation(a, a->depth);
        if (!a->go && one_in(a, 4))
            block_for(100 * US);
    }
    if (on_stack != a->magic)
        WRONG("an actor's stack has changed");
    atomic_store(&a->live, false);
    free_actor(a);
}

void actor_body(void *actor)
{
    act_as(actor);
}

static void *actor_thread(void *actor)
{
    take_signals();
    act_as(actor);
    return NULL;
}

void short_life(void *arg)
{
    struct actor *a = new_actor(true, 2, (uint64_t)(uintptr_t)arg);
    if (!a)
        return;
    a->steps = 1 + rnd(a, 6);
    act_as(a);
}

/* ---- Rounds ---- */

static long entries(const char *path)
{
    DIR *d = opendir(path);
    long n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void say_open_files(void)
{
    char link[64], to[200];
    for (int fd = 3; fd < 2000; fd++) {
        ssize_t n;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if ((n = readlink(link, to, sizeof to)) > 0)
            fprintf(stderr, "  file %d: %.*s\n", fd, (int)n, to);
    }
}

static long count_of_actors(void)
{
    long n = 0;
    for (unsigned i = 0; i < MAX_ACTORS && i < next_actor; i++)
        n += atomic_load(&actors[i].used);
    return n;
}

static void on_deadlock(void *ctx)
{
    (void)ctx;
    WRONG("a deadlock is reported, though the first goroutine sleeps");
}

struct round {
    struct actor *dice;
    int64_t end;
};

static void round_body(void *arg)
{
    struct round *round = arg;
    pthread_t t[THREADS];
    struct actor *a;
    int threads = enabled("threads") ? THREADS : 0;
    gs_set_deadlock_handler(on_deadlock, NULL);
    sched_begin(), sync_begin(), chan_begin(), time_begin(), calls_begin(), files_begin();
    for (int i = 0; i < GOROUTINES; i++) {
        gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
        MUST((a = new_actor(true, 0, rnd32(round->dice))) != NULL);
        if (enabled("pinned") && one_in(a, 8)) {
            o.flags |= GS_SPAWN_PINNED;
            a->pinned = true;
        }
        MUST_BE(gs_spawn_with(actor_body, a, &o, NULL), 0);
    }
    for (int i = 0; i < threads; i++) {
        MUST((a = new_actor(false, 0, rnd32(round->dice))) != NULL);
        MUST(pthread_create(&t[i], NULL, actor_thread, a) == 0);
    }
    atomic_store(&between, false);
    while (clock_now() < round->end)
        gs_sleep(10 * MS);
    atomic_store(&ending_since, clock_now());
    atomic_store(&ending, true);
    while (count_of_actors() > 0)
        gs_sleep(5 * MS);
    gs_entersyscall();
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    gs_exitsyscall();
    files_end(), calls_end(), time_end(), chan_end(), sync_end(), sched_end();
}

static void random_config(struct actor *dice, gs_config *cfg)
{
    static const size_t stacks[] = {0, 0, 0, 64 << 10, 1 << 20};
    static const uint64_t slices[] = {0, 0, 100 * US, MS, 50 * MS};
    if (enabled("configs")) {
        cfg->stack_size = stacks[rnd(dice, LENGTH(stacks))];
        cfg->time_slice_ns = slices[rnd(dice, LENGTH(slices))];
        cfg->flags = (one_in(dice, 8) ? GS_CONFIG_COOPERATIVE : 0) | (one_in(dice, 4) ? GS_CONFIG_UNBOUND : 0)
            | (one_in(dice, 4) ? GS_CONFIG_KEEP_AFFINITY : 0);
        cfg->preempt_signal = one_in(dice, 6) ? SIGUSR2 : 0;
    }
    cooperative = cfg->flags & GS_CONFIG_COOPERATIVE;
    snprintf(config_text, sizeof config_text, "stack_size %zu, time_slice %llu ns, flags %u, signal %d",
             cfg->stack_size, (unsigned long long)cfg->time_slice_ns, cfg->flags, cfg->preempt_signal);
}

static void one_round(struct actor *dice, int64_t length)
{
    gs_config cfg = GS_CONFIG_INIT;
    struct round round = {dice, clock_now() + length};
    bool restart = enabled("restart");
    long fds, left;
    int r;
    atomic_store(&between, true);
    atomic_store(&ending, false);
    atomic_fetch_add(&round_number, 1);
    fds = entries("/proc/self/fd");
    random_config(dice, &cfg);
    if (atomic_load(&round_number) == 1 || restart)
        MUST_BE(gs_init(&cfg), 0);
    MUST_BE(gs_run(round_body, &round), 0);
    atomic_store(&ending_since, 0);
    if (!restart)
        return;
    r = gs_shutdown(gs_after_ms(patience * 1000));
    if (r != 0)
        report_stuck("gs_shutdown fails: goroutines have not ended");
    /* The threads that the round has used leave the process a little after they have said so. */
    for (int i = 0; i < 100 && entries("/proc/self/fd") != fds; i++)
        usleep(10000);
    left = entries("/proc/self/fd");
    if (left != fds) {
        say_open_files();
        WRONG("%ld files were open before the round, and %ld after it", fds - 3, left - 3);
    }
}

static void list(void)
{
    printf("operations:");
    for (size_t t = 0; t < LENGTH(tables); t++)
        for (const struct op *o = tables[t]; o->name; o++)
            printf(" %s", o->name);
    printf("\nproperties of actors and rounds:");
    for (size_t i = 0; i < LENGTH(features); i++)
        printf(" %s", features[i]);
    printf("\n");
}

/* CHAOS_TRACE: a file for a trace of all rounds, beside which the flight recorder runs. */
static bool begin_trace(void)
{
    const char *path = getenv("CHAOS_TRACE");
    int e, fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (!path)
        return false;
    e = fd < 0 ? -errno : gs_trace_start(fd);
    if (e == 0)
        e = gs_flight_start(SEC);
    if (e != 0)
        WRONG("no trace in %s: %s", path, gs_strerror(e));
    return true;
}

static void end_trace(void)
{
    int e, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if ((e = gs_flight_write(null)) != 0 || (e = gs_flight_stop()) != 0 || (e = gs_trace_stop()) != 0)
        WRONG("the trace has failed: %s", gs_strerror(e));
    close(null);
}

int main(int argc, char **argv)
{
    bool is_traced;
    struct rlimit none = {0, 0};
    struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_NODEFER | SA_ONSTACK};
    static struct actor dice; /* no actor: the rounds' random numbers */
    pthread_t t;
    int64_t length;
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        list();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--bubble") == 0) {
        signal(SIGPIPE, SIG_IGN);
        in_bubble = true;
        choose_operations();
        return run_in_bubbles(argc > 2 ? strtoull(argv[2], NULL, 0) : 1, argc > 3 ? strtoull(argv[3], NULL, 0) : 1000);
    }
    if (argc > 1 && argv[1][0] == '-') {
        fprintf(stderr, "usage: %s [SECONDS [SEED]], --bubble [SEED [RUNS]], or --list\n", program);
        return 2;
    }
    deadline = clock_now() + (int64_t)((argc > 1 ? atof(argv[1]) : 4) * 1e9);
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)clock_now() % 1000000007;
    if (getenv("CHAOS_PATIENCE"))
        patience = atol(getenv("CHAOS_PATIENCE"));
    choose_operations();
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGSEGV, &crash, NULL);
    sigaction(SIGBUS, &crash, NULL);
    sigaction(SIGILL, &crash, NULL);
    sigaction(SIGABRT, &crash, NULL);
    pthread_create(&t, NULL, watch, NULL);
    dice.rng = seed;
    is_traced = begin_trace();
    host_start();
    length = getenv("CHAOS_ROUND") ? (int64_t)(atof(getenv("CHAOS_ROUND")) * 1e9) : 2 * SEC;
    while (clock_now() < deadline) {
        int64_t left = deadline - clock_now();
        one_round(&dice, left < length ? left : length);
    }
    host_stop();
    if (is_traced)
        end_trace();
    printf("ok chaos: seed %llu, %d rounds, %ld operations\n", (unsigned long long)seed, atomic_load(&round_number),
           atomic_load(&steps));
    return 0;
}
