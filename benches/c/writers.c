/* writers: how long a goroutine that waits for a socket waits after a byte was written to it, by who writes. */
#include "../late.h"
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REST_NS = 2000000 /* between two bytes */ };

static int64_t count;
static int ends[2];
static _Atomic int64_t written_at;

static void rest(void)
{
    const struct timespec time = {.tv_nsec = REST_NS};
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    CHECK(error == 0 || error == EINTR);
}

static void write_byte(void)
{
    atomic_store(&written_at, gs_now());
    CHECK(write(ends[1], "x", 1) == 1);
}

static void announced(void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < count; i++) {
        gs_entersyscall();
        rest();
        MUST(gs_exitsyscall());
        gs_entersyscall();
        write_byte();
        MUST(gs_exitsyscall());
    }
}

static void announced_locked(void *arg)
{
    MUST(gs_lock_os_thread());
    announced(arg);
    MUST(gs_unlock_os_thread());
}

static void unannounced_locked(void *arg)
{
    (void)arg;
    MUST(gs_lock_os_thread());
    for (int64_t i = 0; i < count; i++) {
        gs_entersyscall();
        rest();
        MUST(gs_exitsyscall());
        write_byte();
    }
    MUST(gs_unlock_os_thread());
}

static void sleeper_locked(void *arg)
{
    (void)arg;
    MUST(gs_lock_os_thread());
    for (int64_t i = 0; i < count; i++) {
        MUST(gs_sleep(REST_NS));
        write_byte();
    }
    MUST(gs_unlock_os_thread());
}

static void *thread(void *arg)
{
    for (int64_t i = 0; i < count; i++) {
        rest();
        write_byte();
    }
    return arg;
}

/* Reads the bytes that a writer writes, a goroutine or, without `fn`, a plain thread. */
static void read_from(const char *name, gs_fn fn)
{
    int64_t *late = new_array(count, sizeof *late);
    char p50[64], p99[64], byte;
    gs_g *writer = NULL;
    pthread_t plain;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    if (fn)
        MUST(gs_spawn_with(fn, NULL, NULL, &writer));
    else
        CHECK(pthread_create(&plain, NULL, thread, NULL) == 0);
    for (int64_t i = 0; i < count; i++) {
        CHECK(gs_read(ends[0], &byte, 1, GS_FOREVER) == 1);
        late[i] = gs_now() - atomic_load(&written_at);
        CHECK(late[i] >= 0);
    }
    if (fn) {
        MUST(gs_join(writer, GS_FOREVER));
        gs_release(writer);
    } else {
        CHECK(pthread_join(plain, NULL) == 0);
    }
    MUST(gs_close(ends[0]));
    CHECK(close(ends[1]) == 0);
    snprintf(p50, sizeof p50, "writers.%s_p50", name);
    snprintf(p99, sizeof p99, "writers.%s_p99", name);
    report_late(late, count, p50, p99, 1e3, "us");
    free(late);
}

void writers(int64_t n)
{
    count = n;
    read_from("announced", announced);
    read_from("announced_locked", announced_locked);
    read_from("unannounced_locked", unannounced_locked);
    read_from("sleeper_locked", sleeper_locked);
    read_from("thread", NULL);
}
