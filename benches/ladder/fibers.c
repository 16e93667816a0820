/* Tasks with a stack each that switch in user space; which runs next and on which thread is the queue's affair. Each
 * thread has a loop on its own stack: a task that stops switches there, and what must be done once it is at rest (the
 * mailbox unlocked, the task queued or freed) is done by the loop. */
#define _GNU_SOURCE
#include "fibers.h"

#include "../limit/switch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { STACK = 16 * 1024 };

struct mailbox {
    atomic_flag locked;
    long values[CHILDREN];
    int count;
    struct task *waiting;
};

struct worker {
    int number;
    void *loop; /* context */
    struct task *running, *free;
    void (*then)(struct worker *worker, struct task *stopped);
    struct mailbox *box;
};

static _Thread_local struct worker *this_worker;
static _Atomic long alive;

/* A task may be on another thread after each switch: the address of a thread-local must be computed anew. */
static __attribute__((noinline, noclone)) struct worker *self(void)
{
    __asm__ volatile("");
    return this_worker;
}

static void stop_and(void (*then)(struct worker *worker, struct task *stopped))
{
    struct worker *worker = self();
    worker->then = then;
    switch_to(&worker->running->context, worker->loop);
}

static void put_last(struct worker *worker, struct task *stopped)
{
    queue_put_last(worker->number, stopped);
}

static void recycle(struct worker *worker, struct task *stopped)
{
    stopped->next = worker->free;
    worker->free = stopped;
    if (atomic_fetch_sub(&alive, 1) == 1)
        queue_end();
}

static void unlock(struct mailbox *box)
{
    atomic_flag_clear_explicit(&box->locked, memory_order_release);
}

static void unlock_box(struct worker *worker, struct task *stopped)
{
    (void)stopped;
    unlock(worker->box);
}

static void begin(void *arg)
{
    struct task *task = arg;
    task->f(task->arg);
    stop_and(recycle);
}

void spawn(task_fn *f, void *arg)
{
    struct worker *worker = self();
    struct task *task = worker->free;

    if (task != NULL) {
        worker->free = task->next;
    } else {
        task = malloc(sizeof *task);
        CHECK(task != NULL && (task->stack = malloc(STACK)) != NULL);
    }
    task->f = f;
    task->arg = arg;
    task->context = switch_prepare(task->stack + STACK, begin, task);
    atomic_fetch_add(&alive, 1);
    queue_put(worker->number, task);
}

void yield(void)
{
    stop_and(put_last);
}

void blocking_call(void)
{
    sleep_1ms(); /* and nothing else runs on this thread meanwhile */
}

struct mailbox *mailbox_new(void)
{
    struct mailbox *box = calloc(1, sizeof *box);
    CHECK(box != NULL);
    return box;
}

void mailbox_free(struct mailbox *box)
{
    free(box);
}

static void lock(struct mailbox *box)
{
    while (atomic_flag_test_and_set_explicit(&box->locked, memory_order_acquire))
        ;
}

void mailbox_send(struct mailbox *box, long value)
{
    lock(box);
    CHECK(box->count < CHILDREN);
    box->values[box->count++] = value;
    struct task *waiting = box->waiting;
    box->waiting = NULL;
    unlock(box);
    if (waiting != NULL)
        queue_put(self()->number, waiting);
}

long mailbox_receive(struct mailbox *box)
{
    lock(box);
    while (box->count == 0) {
        struct worker *worker = self();
        box->waiting = worker->running;
        worker->box = box;
        stop_and(unlock_box);
        lock(box);
    }
    long value = box->values[--box->count];
    unlock(box);
    return value;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct task *task;

    this_worker = worker;
    while ((task = queue_take(worker->number)) != NULL) {
        worker->running = task;
        switch_to(&worker->loop, task->context);
        worker->then(worker, task);
    }
    return NULL;
}

void run(int procs, task_fn *first, void *arg)
{
    struct worker *workers = calloc((size_t)procs, sizeof *workers);
    pthread_t *threads = calloc((size_t)procs, sizeof *threads);

    CHECK(workers != NULL && threads != NULL);
    queue_open(procs);
    for (int i = 0; i < procs; i++)
        workers[i].number = i;
    this_worker = &workers[0];
    spawn(first, arg);
    for (int i = 1; i < procs; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    work(&workers[0]);
    for (int i = 1; i < procs; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    queue_close(procs);
    for (int i = 0; i < procs; i++) {
        for (struct task *task = workers[i].free, *next; task != NULL; task = next) {
            next = task->next;
            free(task->stack);
            free(task);
        }
    }
    free(threads);
    free(workers);
}
