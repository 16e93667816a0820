/*
 * The calls that examples-c/bugs.c makes, with threads: what it takes to find the bugs without a bubble.
 */
#ifndef THREADS_H
#define THREADS_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int64_t gs_deadline;
typedef void (*gs_fn)(void *);
typedef struct { pthread_mutex_t m; } gs_mutex; /* zero is unlocked, with glibc */
typedef struct { pthread_cond_t c; } gs_cond;
#define GS_FOREVER (-1)

static uint64_t this_run;
static int has_failed;
static pthread_t threads[8];
static int started;

static inline int64_t gs_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline gs_deadline gs_after_ms(int64_t ms) { return gs_now() + ms * 1000000; }
static inline int gs_sleep(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    return nanosleep(&t, NULL);
}
static inline int gs_mutex_lock(gs_mutex *m, gs_deadline d) { (void)d; return pthread_mutex_lock(&m->m); }
static inline int gs_mutex_unlock(gs_mutex *m) { return pthread_mutex_unlock(&m->m); }
static inline int gs_cond_signal(gs_cond *c) { return pthread_cond_signal(&c->c); }
static inline int gs_cond_broadcast(gs_cond *c) { return pthread_cond_broadcast(&c->c); }
static inline int gs_cond_wait(gs_cond *c, gs_mutex *m, gs_deadline d)
{
    struct timespec t = {d / 1000000000, d % 1000000000};
    if (d < 0)
        return pthread_cond_wait(&c->c, &m->m);
    return -pthread_cond_timedwait(&c->c, &m->m, &t);
}

struct start { gs_fn f; void *arg; };
static inline void *begin_thread(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    s.f(s.arg);
    return NULL;
}
static inline int gs_spawn(gs_fn f, void *arg)
{
    struct start *s = malloc(sizeof *s);
    s->f = f;
    s->arg = arg;
    return -pthread_create(&threads[started++], NULL, begin_thread, s);
}
static inline void gs_test_fail(const char *why)
{
    (void)why;
    __atomic_store_n(&has_failed, 1, __ATOMIC_SEQ_CST);
}
/* A second without an end is a deadlock. */
static inline void on_alarm(int sig)
{
    (void)sig;
    printf("  hangs in run %llu\n", (unsigned long long)this_run);
    fflush(stdout);
    _exit(0);
}
static inline int64_t gs_test_explore(gs_fn f, void *arg, const void *opts, uint64_t runs)
{
    (void)opts;
    signal(SIGALRM, on_alarm);
    for (this_run = 1; this_run <= runs; this_run++) {
        int i;
        alarm(2);
        started = has_failed = 0;
        f(arg);
        for (i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
        if (has_failed) {
            printf("  fails in run %llu\n", (unsigned long long)this_run);
            return -1;
        }
    }
    printf("  not found in %llu runs\n", (unsigned long long)runs);
    return (int64_t)runs;
}

#endif
