/* What user-level tasks and the queue that they wait in know of each other. */
#ifndef FIBERS_H
#define FIBERS_H

#include "ladder.h"

enum { CACHE_LINE = 64 };

struct task {
    struct task *next, *before; /* in a queue */
    void *context;
    char *stack;
    task_fn *f;
    void *arg;
};

/* A queue: one_queue.c for one thread, shared_queue.c, stealing_queue.c. `worker` counts the threads from 0. */
void queue_open(int workers);
void queue_close(int workers);

/* A new task or a woken one. */
void queue_put(int worker, struct task *task);

/* A fiber that has yielded. */
void queue_put_last(int worker, struct task *task);

/* Waits for one; NULL: all have ended. */
struct task *queue_take(int worker);

/* The last task has ended. */
void queue_end(void);

#endif
