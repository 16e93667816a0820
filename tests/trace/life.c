/* life KIND FILE: does what its kind says, with a trace in FILE. For tests/trace/library. */
#include <gosched.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(what)                                                                       \
    do {                                                                                 \
        long is = (long)(what);                                                          \
        if (is != 0) {                                                                   \
            fprintf(stderr, "life.c:%d: %s is %ld\n", __LINE__, #what, is);             \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

static const char *path;
static gs_chan *ch;
static gs_waitgroup all;

static int out(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) {
        perror(name);
        exit(1);
    }
    return fd;
}

static void nap(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static void compute(long us)
{
    int64_t end = gs_now() + us * 1000;
    volatile long n = 0;
    while (gs_now() < end)
        n = n + 1;
}

static void *nap_there(void *us)
{
    nap((long)(intptr_t)us);
    return us;
}

static void worker(void *arg)
{
    long n = (long)(intptr_t)arg, i;
    int x = 0;
    for (i = 0; i < n; i++) {
        MUST(gs_chan_recv(ch, &x, GS_FOREVER));
        if (i % 8 == 0)
            gs_yield();
        if (i % 16 == 3)
            (void)gs_sleep(100000);
    }
    MUST(gs_waitgroup_done(&all));
}

static void send(long n)
{
    int x = 7;
    while (n-- > 0)
        MUST(gs_chan_send(ch, &x, GS_FOREVER));
}

static void workers(int count, long each)
{
    int i;
    MUST(gs_waitgroup_add(&all, count));
    for (i = 0; i < count; i++)
        MUST(gs_spawn(worker, (void *)(intptr_t)each));
}

/* ---- threads: plain threads spawn, wake and run goroutines; threads are attached ---- */

static void *plain(void *arg)
{
    int i, x = 1;
    (void)arg;
    for (i = 0; i < 5; i++) {
        workers(4, 20);
        send(80);
        nap(200);
    }
    MUST(gs_attach(0));
    workers(2, 10);
    send(20);
    compute(20000);
    MUST(gs_detach());
    workers(1, 1);
    MUST(gs_chan_send(ch, &x, GS_FOREVER));
    return NULL;
}

static void run_some(void *arg)
{
    (void)arg;
    workers(4, 20);
    send(80);
}

static void *runs(void *arg)
{
    MUST(gs_run(run_some, arg));
    return NULL;
}

static void threads(void)
{
    pthread_t t[6];
    int i;
    MUST(gs_trace_start(out(path)));
    for (i = 0; i < 6; i++)
        MUST(pthread_create(&t[i], NULL, i % 2 ? plain : runs, NULL));
    for (i = 0; i < 6; i++)
        MUST(pthread_join(t[i], NULL));
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    MUST(gs_trace_stop());
}

/* ---- calls: announced and not, with the P taken meanwhile ---- */

static void caller(void *arg)
{
    int i;
    for (i = 0; i < 40; i++) {
        MUST(gs_entersyscall());
        nap(i % 4 * 300);
        MUST(gs_exitsyscall());
        (void)gs_blocking(nap_there, (void *)(intptr_t)(i % 3 * 200));
        if (i % 10 == 0)
            nap(15000);
        if (i % 10 == 5)
            compute(12000);
        (void)gs_syscall(39);
    }
    (void)arg;
    MUST(gs_waitgroup_done(&all));
}

static void calls(void *arg)
{
    int i;
    (void)arg;
    MUST(gs_trace_start(out(path)));
    MUST(gs_waitgroup_add(&all, 12));
    for (i = 0; i < 12; i++)
        MUST(gs_spawn(caller, NULL));
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    MUST(gs_trace_stop());
}

/* ---- late: goroutines wait, compute and are in calls when the trace begins; several traces ---- */

static void late(void *arg)
{
    char name[4096];
    int i, x = 3;
    (void)arg;
    workers(100, 6);
    MUST(gs_waitgroup_add(&all, 4));
    for (i = 0; i < 4; i++)
        MUST(gs_spawn(caller, NULL));
    for (i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%d", path, i);
        compute(5000);
        MUST(gs_trace_start(out(name)));
        send(200);
        nap(3000);
        MUST(gs_trace_stop());
        compute(3000);
    }
    (void)x;
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
}

/* ---- fork: in the middle, with a trace of the child's own ---- */

static void forks(void *arg)
{
    char name[4096];
    int i, status;
    (void)arg;
    MUST(gs_trace_start(out(path)));
    for (i = 0; i < 3; i++) {
        pid_t pid;
        workers(10, 20);
        send(100);
        pid = fork();
        if (pid == 0) {
            snprintf(name, sizeof name, "%s.child%d", path, i);
            MUST(gs_trace_start(out(name)));
            memset(&all, 0, sizeof all);
            ch = gs_chan_make(sizeof(int), 0);
            MUST(gs_run(run_some, NULL));
            MUST(gs_waitgroup_wait(&all, GS_FOREVER));
            MUST(gs_trace_stop());
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0)
            exit(1);
        send(100);
    }
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    MUST(gs_trace_stop());
}

/* ---- again: the runtime ends and begins while the trace goes on ---- */

static void again(void)
{
    int i;
    MUST(gs_trace_start(out(path)));
    for (i = 0; i < 4; i++) {
        MUST(gs_run(run_some, NULL));
        MUST(gs_waitgroup_wait(&all, GS_FOREVER));
        MUST(gs_shutdown(GS_FOREVER));
    }
    MUST(gs_trace_stop());
}

/* ---- world: the world is stopped, from goroutines, over the end of a generation ---- */

static void world(void *arg)
{
    int i;
    (void)arg;
    MUST(gs_trace_start(out(path)));
    workers(20, 60);
    for (i = 0; i < 6; i++) {
        send(200);
        MUST(gs_stop_the_world());
        nap(i == 3 ? 1200000 : 1000);
        MUST(gs_start_the_world());
    }
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    MUST(gs_trace_stop());
}

/* ---- flight: the first generations are dropped; three or four are kept ---- */

static void flight(void *arg)
{
    int64_t end;
    (void)arg;
    MUST(gs_flight_start(2500000000));
    /* These wait in all generations that are written, and began before. */
    workers(50, 1);
    end = gs_now() + 4500000000LL;
    while (gs_now() < end) {
        workers(5, 20);
        send(100);
        gs_sleep(20000000);
    }
    MUST(gs_flight_write(out(path)));
    send(50);
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    MUST(gs_flight_stop());
}

/* ---- both: the flight recorder starts while a trace is written, and a trace while it keeps ---- */

static void both(void *arg)
{
    char flight[4096], second[4096];
    (void)arg;
    snprintf(flight, sizeof flight, "%s.flight", path);
    snprintf(second, sizeof second, "%s.second", path);
    MUST(gs_trace_start(out(path)));
    workers(20, 2000);
    send(10000);
    MUST(gs_flight_start(1000000000));
    send(10000);
    MUST(gs_flight_write(out(flight)));
    MUST(gs_trace_stop());
    send(10000);
    MUST(gs_trace_start(out(second)));
    send(10000);
    MUST(gs_flight_stop());
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    MUST(gs_trace_stop());
}

/* ---- sums: prints gs_stats of the time of the trace ---- */

static void named(void *arg)
{
    worker(arg);
}

static void sums(void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    (void)arg;
    MUST(gs_trace_start(out(path)));
    MUST(gs_stats_read(&before));
    workers(100, 50);
    opts.name = "the named one";
    MUST(gs_waitgroup_add(&all, 1));
    MUST(gs_spawn_with(named, (void *)50L, &opts, NULL));
    send(101 * 50);
    MUST(gs_waitgroup_wait(&all, GS_FOREVER));
    nap(20000);
    MUST(gs_stats_read(&after));
    MUST(gs_trace_stop());
    printf("created %lu\nended %lu\nswitches %lu\n", (unsigned long)(after.created - before.created),
           (unsigned long)(after.ended - before.ended), (unsigned long)(after.switches - before.switches));
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*in_goroutine)(void *); void (*on_thread)(void); } KINDS[] = {
        {"threads", NULL, threads}, {"calls", calls, NULL}, {"late", late, NULL}, {"fork", forks, NULL},
        {"again", NULL, again}, {"world", world, NULL}, {"flight", flight, NULL}, {"both", both, NULL},
        {"sums", sums, NULL},
    };
    size_t i;
    if (argc != 3)
        return 2;
    path = argv[2];
    ch = gs_chan_make(sizeof(int), 0);
    for (i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        if (strcmp(KINDS[i].name, argv[1]) != 0)
            continue;
        if (KINDS[i].on_thread)
            KINDS[i].on_thread();
        else
            MUST(gs_run(KINDS[i].in_goroutine, NULL));
        return 0;
    }
    return 2;
}
