/*
 * Goroutines that reach every probe again and again, for tests/gdb/check. Ends after a minute.
 */
#include <gosched.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static volatile long work;
static int64_t end;

static void nothing(void *arg)
{
    (void)arg;
    work++;
}

static int goes_on(void)
{
    return gs_now() < end;
}

/* spawn, end, park and ready: a batch of goroutines, which other P's steal. */
static void spawner(void *arg)
{
    while (goes_on()) {
        for (int i = 0; i < 100; i++)
            gs_spawn(nothing, arg);
        gs_sleep(SECOND / 1000);
    }
}

static void receiver(void *arg)
{
    int value;
    while (gs_chan_recv(arg, &value, GS_FOREVER) == 0)
        work += value;
}

static void sender(void *arg)
{
    int value = 1;
    while (goes_on()) {
        gs_chan_send(arg, &value, GS_FOREVER);
        gs_yield();
    }
    gs_chan_close(arg);
}

/* More of them than P's. */
static void computer(void *arg)
{
    (void)arg;
    while (goes_on()) {
        for (int i = 0; i < 100000000; i++)
            work++;
    }
}

static void caller(void *arg)
{
    (void)arg;
    while (goes_on()) {
        gs_entersyscall();
        usleep(100);
        gs_exitsyscall();
        gs_yield();
    }
}

static void start(gs_fn f, void *arg)
{
    if (gs_spawn(f, arg) != 0)
        abort();
}

static void first(void *arg)
{
    struct gs_chan *channel = gs_chan_make(sizeof(int), 0);
    if (!channel)
        abort();
    end = gs_now() + 60 * SECOND;
    start(receiver, channel);
    start(sender, channel);
    for (int i = 0; i < 3; i++) {
        start(spawner, arg);
        start(caller, arg);
    }
    for (int i = 0; i < 6; i++)
        start(computer, arg);
    while (goes_on())
        gs_sleep(SECOND / 100);
}

int main(void)
{
    return gs_run(first, NULL);
}
