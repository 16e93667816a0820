/* Tasks that are goroutines, pinned to the threads of one group, or threads: for the programs that are run as both. */
#ifndef TASKS_H
#define TASKS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <gosched.h>

#define MUST(cond, ...) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "WRONG: %s:%d: %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            _exit(1); \
        } \
    } while (0)

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int as_threads;
static gs_workers *task_threads; /* those of the goroutines */

typedef struct task {
    void (*f)(void *);
    void *arg;
    pthread_t thread;
    gs_g *g;
} task;

static inline void *as_thread(void *arg)
{
    task *t = arg;
    t->f(t->arg);
    return NULL;
}

/* Starts f(arg); t stays until `end`. */
static inline void begin_as(task *t, int thread, void (*f)(void *), void *arg)
{
    *t = (task){.f = f, .arg = arg};
    if (thread) {
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 256 * 1024);
        MUST(pthread_create(&t->thread, &attr, as_thread, t) == 0, "no thread");
    } else {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        opts.flags = GS_SPAWN_PINNED; /* what is compiled for threads: README.md */
        opts.workers = task_threads;
        MUST(gs_spawn_with(f, arg, &opts, &t->g) == 0, "no goroutine");
    }
}

static inline void begin(task *t, void (*f)(void *), void *arg)
{
    begin_as(t, as_threads, f, arg);
}

/* Waits for its end. */
static inline void end(task *t)
{
    if (t->g == NULL) {
        pthread_join(t->thread, NULL);
    } else {
        gs_join(t->g, GS_FOREVER);
        gs_release(t->g);
    }
}

/* Calls f(id) in goroutines, with ids from 0 on, and in threads beside them, with ids from 100 on, and waits for all. */
static inline void run_mixed(void (*f)(void *), int goroutines, int threads)
{
    task all[goroutines + threads];
    for (int i = 0; i < goroutines; i++)
        begin_as(&all[i], 0, f, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++)
        begin_as(&all[goroutines + i], 1, f, (void *)(intptr_t)(100 + i));
    for (int i = 0; i < goroutines + threads; i++)
        end(&all[i]);
}

static void (*first_of_all)(void *);

static inline void run_first(void *arg)
{
    task t;
    begin(&t, first_of_all, arg);
    end(&t);
}

/* Runs f(NULL) as the first task, with n threads for goroutines; 0: as many as there are P's. */
static inline void run_tasks(int threads, int n, void (*f)(void *))
{
    as_threads = threads;
    first_of_all = f;
    if (threads) {
        run_first(NULL);
        return;
    }
    MUST(gs_init(NULL) >= 0, "gs_init");
    task_threads = gs_workers_create(n > 0 ? n : gs_gomaxprocs(0), 0);
    MUST(task_threads != NULL, "no group of threads");
    int err = gs_run(run_first, NULL);
    MUST(err == 0, "gs_run: %s", gs_strerror(err));
    MUST(gs_workers_free(task_threads) == 0, "gs_workers_free");
}

#endif
