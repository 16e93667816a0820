/* 1:1: a thread of the kernel for each task. The number of processors is that of the CPUs they may use. */
#define _GNU_SOURCE
#include "ladder.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct start {
    task_fn *f;
    void *arg;
};

static atomic_long alive;
static pthread_attr_t attributes;

static void *begin(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    start.f(start.arg);
    atomic_fetch_sub(&alive, 1);
    return NULL;
}

void spawn(task_fn *f, void *arg)
{
    struct start *start = malloc(sizeof *start);
    pthread_t thread;

    CHECK(start != NULL);
    *start = (struct start){f, arg};
    atomic_fetch_add(&alive, 1);
    CHECK(pthread_create(&thread, &attributes, begin, start) == 0);
}

void yield(void)
{
    sched_yield();
}

void blocking_call(void)
{
    sleep_1ms();
}

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    long values[CHILDREN];
    int count;
};

struct mailbox *mailbox_new(void)
{
    struct mailbox *box = malloc(sizeof *box);
    CHECK(box != NULL);
    *box = (struct mailbox){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0};
    return box;
}

void mailbox_free(struct mailbox *box)
{
    pthread_cond_destroy(&box->filled);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

void mailbox_send(struct mailbox *box, long value)
{
    pthread_mutex_lock(&box->lock);
    CHECK(box->count < CHILDREN);
    box->values[box->count++] = value;
    pthread_cond_signal(&box->filled);
    pthread_mutex_unlock(&box->lock);
}

long mailbox_receive(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    while (box->count == 0)
        pthread_cond_wait(&box->filled, &box->lock);
    long value = box->values[--box->count];
    pthread_mutex_unlock(&box->lock);
    return value;
}

void run(int procs, task_fn *first, void *arg)
{
    cpu_set_t all, some;

    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&some);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < procs; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &some);
    CHECK(sched_setaffinity(0, sizeof some, &some) == 0);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 64 * 1024);

    first(arg);
    while (atomic_load(&alive) > 0)
        sched_yield();
    pthread_attr_destroy(&attributes);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}
