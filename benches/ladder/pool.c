/* A thread pool: procs threads take jobs from one queue and do each to its end. A job can't wait, so the workload is
 * cut into jobs where it waited: a leaf is two, because it yields, and what a node does with its children's messages
 * is done by the job that brings the last one. */
#include "ladder.h"

#include <pthread.h>
#include <stdatomic.h>

struct job {
    void (*f)(struct job *job);
    struct job *next;
    struct job *parent;
    long number, size;
    atomic_long sum;
    atomic_int missing; /* messages from children */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct job *first, **end;
    int waiting;
    bool closed;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &queue.first, 0, false};

static bool leaves_block;
static long trees_left;

static void submit(struct job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&queue.lock);
    *queue.end = job;
    queue.end = &job->next;
    if (queue.waiting > 0)
        pthread_cond_signal(&queue.filled);
    pthread_mutex_unlock(&queue.lock);
}

static void *work(void *arg)
{
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        struct job *job = queue.first;
        if (job != NULL) {
            queue.first = job->next;
            if (queue.first == NULL)
                queue.end = &queue.first;
            pthread_mutex_unlock(&queue.lock);
            job->f(job);
            pthread_mutex_lock(&queue.lock);
        } else if (queue.closed) {
            break;
        } else {
            queue.waiting++;
            pthread_cond_wait(&queue.filled, &queue.lock);
            queue.waiting--;
        }
    }
    pthread_mutex_unlock(&queue.lock);
    return arg;
}

static void grow(struct job *node);

static void start(struct job *parent, long number, long size)
{
    struct job *job = malloc(sizeof *job);
    CHECK(job != NULL);
    *job = (struct job){grow, NULL, parent, number, size, 0, CHILDREN};
    submit(job);
}

/* A job's message to its parent, and from there up as long as it is the last one. */
static void finish(struct job *job, long value)
{
    for (;;) {
        struct job *parent = job->parent;
        free(job);
        if (parent == NULL) {
            CHECK(value == (long)LEAVES * (LEAVES - 1) / 2);
            if (--trees_left > 0) {
                start(NULL, 0, LEAVES);
                return;
            }
            pthread_mutex_lock(&queue.lock);
            queue.closed = true;
            pthread_cond_broadcast(&queue.filled);
            pthread_mutex_unlock(&queue.lock);
            return;
        }
        atomic_fetch_add(&parent->sum, value);
        if (atomic_fetch_sub(&parent->missing, 1) != 1)
            return;
        job = parent;
        value = atomic_load(&parent->sum);
    }
}

static void after_yield(struct job *leaf)
{
    if (leaves_block && leaf->number % BLOCKING == 0)
        sleep_1ms();
    finish(leaf, leaf->number);
}

static void grow(struct job *node)
{
    if (node->size == 1) {
        leaf_work(node->number);
        node->f = after_yield;
        submit(node);
        return;
    }
    long number = node->number, size = node->size / CHILDREN;
    for (int i = 0; i < CHILDREN; i++) /* after the last one the node may be gone */
        start(node, number + i * size, size);
}

void grow_trees(int procs, long trees, bool blocking)
{
    pthread_t *threads = calloc((size_t)procs, sizeof *threads);

    CHECK(threads != NULL);
    leaves_block = blocking;
    trees_left = trees;
    queue.closed = false;
    start(NULL, 0, LEAVES);
    for (int i = 1; i < procs; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    work(NULL);
    for (int i = 1; i < procs; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    free(threads);
}
