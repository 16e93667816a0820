/* M:N distributed: a queue for each thread. The owner takes what it has put last, which is still in its cache and keeps
 * the tree narrow; a thread without work steals what was put first, the largest part of the tree. Now and then the
 * owner takes the first one too, so that a task that has yielded gets its turn. */
#define _GNU_SOURCE
#include "fibers.h"

#include <pthread.h>
#include <stdatomic.h>

struct queue {
    _Alignas(CACHE_LINE) atomic_flag locked;
    struct task ends; /* .next is the first one, .before the last one */
    _Atomic long count;
    unsigned taken;
};

static struct queue *queues;
static int queue_count;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    _Atomic int sleeping; /* and not woken yet */
    int woken;
    bool ended;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

void queue_open(int workers)
{
    queues = aligned_alloc(CACHE_LINE, (size_t)workers * sizeof *queues);
    CHECK(queues != NULL);
    queue_count = workers;
    for (int i = 0; i < workers; i++) {
        queues[i] = (struct queue){.locked = ATOMIC_FLAG_INIT};
        queues[i].ends.next = queues[i].ends.before = &queues[i].ends;
    }
    idle.ended = false;
}

void queue_close(int workers)
{
    for (int i = 0; i < workers; i++)
        CHECK(queues[i].count == 0);
    free(queues);
}

static void lock(struct queue *queue)
{
    while (atomic_flag_test_and_set_explicit(&queue->locked, memory_order_acquire))
        ;
}

static void unlock(struct queue *queue)
{
    atomic_flag_clear_explicit(&queue->locked, memory_order_release);
}

static void insert(struct queue *queue, struct task *task, bool first)
{
    lock(queue);
    struct task *before = first ? queue->ends.next : &queue->ends;
    task->next = before;
    task->before = before->before;
    task->before->next = task;
    before->before = task;
    atomic_fetch_add(&queue->count, 1);
    unlock(queue);

    /* Who goes to sleep says so before it looks at the queues for the last time. One is woken for each task. */
    if (atomic_load(&idle.sleeping) > 0) {
        pthread_mutex_lock(&idle.lock);
        if (idle.sleeping > 0) {
            idle.sleeping--;
            idle.woken++;
            pthread_cond_signal(&idle.filled);
        }
        pthread_mutex_unlock(&idle.lock);
    }
}

void queue_put(int worker, struct task *task)
{
    insert(&queues[worker], task, false);
}

void queue_put_last(int worker, struct task *task)
{
    insert(&queues[worker], task, true);
}

static struct task *take_from(struct queue *queue, bool first)
{
    if (atomic_load(&queue->count) == 0)
        return NULL;
    lock(queue);
    struct task *task = first ? queue->ends.next : queue->ends.before;
    if (task == &queue->ends) {
        task = NULL;
    } else {
        task->before->next = task->next;
        task->next->before = task->before;
        atomic_fetch_sub(&queue->count, 1);
    }
    unlock(queue);
    return task;
}

static struct task *take_or_steal(int worker)
{
    struct queue *own = &queues[worker];
    struct task *task = take_from(own, ++own->taken % 61 == 0);

    for (int i = 1; task == NULL && i < queue_count; i++)
        task = take_from(&queues[(worker + i) % queue_count], true);
    return task;
}

struct task *queue_take(int worker)
{
    for (;;) {
        struct task *task;
        for (int i = 0; i < 100; i++)
            if ((task = take_or_steal(worker)) != NULL)
                return task;
        pthread_mutex_lock(&idle.lock);
        idle.sleeping++;
        task = take_or_steal(worker);
        if (task == NULL)
            while (idle.woken == 0 && !idle.ended)
                pthread_cond_wait(&idle.filled, &idle.lock);
        if (task == NULL && idle.woken > 0)
            idle.woken--;
        else
            idle.sleeping--;
        bool ended = idle.ended;
        pthread_mutex_unlock(&idle.lock);
        if (task != NULL || ended)
            return task;
    }
}

void queue_end(void)
{
    pthread_mutex_lock(&idle.lock);
    idle.ended = true;
    pthread_cond_broadcast(&idle.filled);
    pthread_mutex_unlock(&idle.lock);
}
