/*
 * A crowd that runs the same blocking code as goroutines or as threads, for the client programs:
 * PROGRAM goroutines|threads CROWD CALLS ARGUMENTS...
 */
#ifndef CROWD_H
#define CROWD_H

#include "tasks.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdint.h>

static int crowd, calls;
static char **arguments; /* what follows CALLS */
static void (*body)(int i);

static inline double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline int threads_now(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    MUST(d != NULL, "no /proc");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* All are connected before the first one begins, and the clock starts then. */
static pthread_mutex_t crowd_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t crowd_cond = PTHREAD_COND_INITIALIZER;
static int there;
static double begun, crowd_ended, cpu_begun, cpu_ended; /* in s; of CPU: of this process */
static atomic_int most_threads;

static inline void meet(void)
{
    pthread_mutex_lock(&crowd_mutex);
    if (++there == crowd) {
        begun = seconds();
        cpu_begun = cpu_seconds();
        pthread_cond_broadcast(&crowd_cond);
    }
    while (there < crowd)
        pthread_cond_wait(&crowd_cond, &crowd_mutex);
    pthread_mutex_unlock(&crowd_mutex);
}

/* The last one to come here stops the clock. */
static inline void finish(void)
{
    pthread_mutex_lock(&crowd_mutex);
    crowd_ended = seconds();
    cpu_ended = cpu_seconds();
    pthread_mutex_unlock(&crowd_mutex);
}

static inline void note_threads(void)
{
    int now = threads_now(), most = atomic_load(&most_threads);
    while (now > most && !atomic_compare_exchange_weak(&most_threads, &most, now))
        ;
}

static inline void as_task(void *arg)
{
    body((int)(intptr_t)arg);
}

static inline void all(void *unused)
{
    task *t = calloc((size_t)crowd, sizeof *t);
    (void)unused;
    for (intptr_t i = 0; i < crowd; i++)
        begin(&t[i], as_task, (void *)i);
    for (int i = 0; i < crowd; i++)
        end(&t[i]);
    free(t);
}

/* The first task: `all`, or a function of the program's around it. */
static void (*around_all)(void *) = all;

static inline int run_crowd(int argc, char **argv, int at_least, void (*f)(int i))
{
    struct rlimit files;
    if (argc < 4 + at_least || (strcmp(argv[1], "goroutines") && strcmp(argv[1], "threads"))) {
        fprintf(stderr, "usage: %s goroutines|threads CROWD CALLS ARGUMENTS...\n", argv[0]);
        return 2;
    }
    crowd = atoi(argv[2]);
    calls = atoi(argv[3]);
    arguments = argv + 4;
    body = f;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    alarm(170); /* a hang */
    run_tasks(argv[1][0] == 't', 0, around_all);
    note_threads();
    printf("%d calls in %.3f s, %.3f s of CPU, %d threads\n", crowd * calls, crowd_ended - begun,
           cpu_ended - cpu_begun, atomic_load(&most_threads));
    return 0;
}

#endif
