/* N:1: one thread, and so neither locks nor atomic operations. First come, first served. */
#include "fibers.h"

static struct task *first, **end;

void queue_open(int workers)
{
    CHECK(workers == 1);
    first = NULL;
    end = &first;
}

void queue_close(int workers)
{
    (void)workers;
    CHECK(first == NULL);
}

void queue_put(int worker, struct task *task)
{
    (void)worker;
    task->next = NULL;
    *end = task;
    end = &task->next;
}

void queue_put_last(int worker, struct task *task)
{
    queue_put(worker, task);
}

struct task *queue_take(int worker)
{
    struct task *task = first;

    (void)worker;
    if (task != NULL) {
        first = task->next;
        if (first == NULL)
            end = &first;
    }
    return task; /* with one thread nothing can come while the queue is empty */
}

void queue_end(void)
{
}
