/* M:N with one queue for all threads, under one lock. First come, first served. */
#include "fibers.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct task *first, **end;
    int waiting;
    bool ended;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

void queue_open(int workers)
{
    (void)workers;
    queue.first = NULL;
    queue.end = &queue.first;
    queue.ended = false;
}

void queue_close(int workers)
{
    (void)workers;
    CHECK(queue.first == NULL);
}

void queue_put(int worker, struct task *task)
{
    (void)worker;
    task->next = NULL;
    pthread_mutex_lock(&queue.lock);
    *queue.end = task;
    queue.end = &task->next;
    if (queue.waiting > 0)
        pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

void queue_put_last(int worker, struct task *task)
{
    queue_put(worker, task);
}

struct task *queue_take(int worker)
{
    (void)worker;
    pthread_mutex_lock(&queue.lock);
    while (queue.first == NULL && !queue.ended) {
        queue.waiting++;
        pthread_cond_wait(&queue.filled, &queue.lock);
        queue.waiting--;
    }
    struct task *task = queue.first;
    if (task != NULL) {
        queue.first = task->next;
        if (queue.first == NULL)
            queue.end = &queue.first;
    }
    pthread_mutex_unlock(&queue.lock);
    return task;
}

void queue_end(void)
{
    pthread_mutex_lock(&queue.lock);
    queue.ended = true;
    pthread_cond_broadcast(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}
