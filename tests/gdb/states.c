/*
 * Goroutines in every state that gdb shows, for tests/gdb/check: states [crash].
 *
 * With one P nothing changes once the goroutine `holder` runs, because it keeps its P. It prints
 * "ready" and its process's number, and computes for ever; with "crash" it aborts instead.
 */
#define _GNU_SOURCE
#include <gosched.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noipa))

static struct gs_chan *channel;
static gs_mutex mutex;
static int pair[2], fifo[2], crashes;
static volatile int computing, in_calls, done;
static volatile long work;

/* Each goroutine has two functions, and a variable that the test looks at. */
KEEP static void receive_deeper(int depth)
{
    int value;
    if (depth > 0)
        receive_deeper(depth - 1);
    else
        gs_chan_recv(channel, &value, GS_FOREVER);
    work++;
}

static void receiver(void *arg)
{
    (void)arg;
    volatile int marker = 4711;
    receive_deeper(3);
    work += marker;
}

KEEP static void lock_it(void)
{
    gs_mutex_lock(&mutex, GS_FOREVER);
    work++;
}

static void locker(void *arg)
{
    (void)arg;
    lock_it();
    work++;
}

static void sleeper(void *arg)
{
    (void)arg;
    gs_sleep(INT64_C(3600000000000));
    work++;
}

KEEP static void read_it(void)
{
    char byte;
    gs_read(pair[0], &byte, 1, GS_FOREVER);
    work++;
}

static void reader(void *arg)
{
    (void)arg;
    read_it();
    work++;
}

KEEP static void read_in_call(void)
{
    char byte;
    gs_entersyscallblock();
    in_calls++;
    if (read(fifo[0], &byte, 1) < 0)
        abort();
    gs_exitsyscall();
}

static void caller(void *arg)
{
    (void)arg;
    read_in_call();
    work++;
}

KEEP static void *block_it(void *arg)
{
    char byte;
    __atomic_add_fetch(&in_calls, 1, __ATOMIC_SEQ_CST);
    if (read(fifo[0], &byte, 1) < 0)
        abort();
    return arg;
}

static void blocker(void *arg)
{
    gs_blocking(block_it, arg);
    work++;
}

KEEP static void compute(void)
{
    __atomic_add_fetch(&computing, 1, __ATOMIC_SEQ_CST);
    while (!done)
        work++;
}

static void computer(void *arg)
{
    (void)arg;
    compute();
    work++;
}

static void unborn(void *arg)
{
    (void)arg;
    abort();
}

KEEP static void hold_it(void)
{
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    if (crashes)
        abort();
    while (!done)
        work++;
}

static void holder(void *arg)
{
    gs_spawn(unborn, arg);
    hold_it();
    work++;
}

KEEP static void attached_receive(void)
{
    int value;
    gs_chan_recv(channel, &value, GS_FOREVER);
    work++;
}

static void *attached(void *arg)
{
    if (gs_attach(0) != 0)
        abort();
    __atomic_add_fetch(&in_calls, 1, __ATOMIC_SEQ_CST);
    attached_receive();
    return arg;
}

static void spawn(gs_fn f, const char *name, uint32_t flags)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.name = name;
    opts.flags = flags;
    if (gs_spawn_with(f, NULL, &opts, NULL) != 0)
        abort();
}

static void first(void *arg)
{
    (void)arg;
    pthread_t thread;
    channel = gs_chan_make(sizeof(int), 0);
    if (!channel || gs_unix_pair(pair) != 0 || pipe(fifo) != 0)
        abort();
    gs_mutex_lock(&mutex, GS_FOREVER);
    spawn(receiver, "receiver", 0);
    spawn(locker, "locker", 0);
    spawn(sleeper, "sleeper", 0);
    spawn(reader, "reader", 0);
    spawn(caller, "caller", 0);
    spawn(blocker, "blocker", 0);
    if (pthread_create(&thread, NULL, attached, NULL) != 0)
        abort();
    while (in_calls < 3)
        gs_sleep(1000000);
    spawn(computer, "computer", 0);
    spawn(computer, "computer", 0);
    while (computing < 2)
        gs_sleep(1000000);
    /* The attached thread waits once this sleeps. */
    gs_sleep(20000000);
    spawn(holder, "holder", GS_SPAWN_NOPREEMPT);
    gs_sleep(INT64_C(3600000000000));
}

int main(int argc, char **argv)
{
    crashes = argc > 1 && strcmp(argv[1], "crash") == 0;
    /* For gdb where only a parent may trace. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return gs_run(first, NULL);
}
