/*
 * glib SEED ROUNDS: GLib's own locks, which wait by syscall: GMutex, GCond, GRecMutex, GRWLock, GOnce, GAsyncQueue and
 * GThreadPool, between goroutines of few threads and plain threads. What they guard is counted without atomics.
 */
#include "tasks.h"

#include <glib.h>
#include <sched.h>

enum { GOROUTINES = 40, THREADS = 4, ROOM = 3 };

static int rounds;
static unsigned seed;

static GMutex mutex, buffer_mutex;
static GRecMutex recursive;
static GRWLock rwlock;
static GCond not_empty, not_full;
static long entered, entered_again, written, in_buffer, put, taken, timed_out;
static gint all;
static GAsyncQueue *questions, *answers;

static void linger(GRand *r)
{
    switch (g_rand_int_range(r, 0, 16)) {
    case 0: g_usleep((gulong)g_rand_int_range(r, 0, 200)); break;
    case 1: case 2: sched_yield(); break;
    default: break;
    }
}

static gpointer made_once(gpointer arg)
{
    g_usleep(20000); /* the others come meanwhile */
    ++*(int *)arg;
    return arg;
}

static GOnce once = G_ONCE_INIT;
static gsize once_word;
static int times, init_times;

static void buffer_in(GRand *r)
{
    g_mutex_lock(&buffer_mutex);
    while (in_buffer == ROOM) {
        if (g_rand_boolean(r)) {
            g_cond_wait(&not_full, &buffer_mutex);
        } else if (!g_cond_wait_until(&not_full, &buffer_mutex, g_get_monotonic_time() + 300)) {
            timed_out++;
        }
    }
    in_buffer++, put++;
    g_cond_signal(&not_empty);
    g_mutex_unlock(&buffer_mutex);
}

static void buffer_out(void)
{
    g_mutex_lock(&buffer_mutex);
    while (in_buffer == 0)
        g_cond_wait(&not_empty, &buffer_mutex);
    in_buffer--, taken++;
    g_cond_broadcast(&not_full);
    g_mutex_unlock(&buffer_mutex);
}

static void work(void *arg)
{
    GRand *r = g_rand_new_with_seed(seed + GPOINTER_TO_UINT(arg));
    bool puts = GPOINTER_TO_UINT(arg) % 2;
    g_once(&once, made_once, &times);
    if (g_once_init_enter(&once_word)) {
        g_usleep(20000);
        init_times++;
        g_once_init_leave(&once_word, 1);
    }
    for (int i = 0; i < rounds; i++) {
        if (g_mutex_trylock(&mutex)) {
            entered++;
        } else {
            g_mutex_lock(&mutex);
            entered++;
            linger(r);
        }
        g_mutex_unlock(&mutex);
        if (i % 8 == 0) {
            g_rec_mutex_lock(&recursive);
            g_rec_mutex_lock(&recursive);
            entered_again++;
            linger(r);
            g_rec_mutex_unlock(&recursive);
            g_rec_mutex_unlock(&recursive);
            if (i % 16 == 0) {
                g_rw_lock_writer_lock(&rwlock);
                long before = written;
                linger(r);
                written = before + 1;
                g_rw_lock_writer_unlock(&rwlock);
            } else {
                g_rw_lock_reader_lock(&rwlock);
                long before = written;
                linger(r);
                MUST(written == before, "a writer came in");
                g_rw_lock_reader_unlock(&rwlock);
            }
            long *question = g_new(long, 1), *answer;
            *question = i;
            g_async_queue_push(questions, question);
            do
                answer = g_async_queue_timeout_pop(answers, 1000);
            while (answer == NULL);
            g_free(answer);
        }
        if (puts)
            buffer_in(r);
        else
            buffer_out();
        linger(r);
        g_atomic_int_inc(&all);
    }
    g_rand_free(r);
}

/* The threads of a pool of GLib's answer. */
static void answer(gpointer unused, gpointer unused_too)
{
    (void)unused, (void)unused_too;
    for (;;) {
        long *question = g_async_queue_pop(questions);
        if (*question < 0) {
            g_async_queue_push(questions, question);
            return;
        }
        g_async_queue_push(answers, question);
    }
}

static gpointer work_as_thread(gpointer arg)
{
    work(arg);
    return NULL;
}

static void run_all(void *unused)
{
    task t[GOROUTINES];
    GThread *threads[THREADS];
    GError *error = NULL;
    (void)unused;
    questions = g_async_queue_new();
    answers = g_async_queue_new();
    GThreadPool *pool = g_thread_pool_new(answer, NULL, 2, TRUE, &error);
    MUST(pool != NULL, "%s", error->message);
    for (int i = 0; i < 2; i++)
        g_thread_pool_push(pool, GINT_TO_POINTER(1), NULL);
    for (unsigned i = 0; i < THREADS; i++)
        threads[i] = g_thread_new("works", work_as_thread, GUINT_TO_POINTER(1000 + i));
    for (unsigned i = 0; i < GOROUTINES; i++)
        begin(&t[i], work, GUINT_TO_POINTER(i));
    for (int i = 0; i < GOROUTINES; i++)
        end(&t[i]);
    for (int i = 0; i < THREADS; i++)
        g_thread_join(threads[i]);
    long *stop = g_new(long, 1);
    *stop = -1;
    g_async_queue_push(questions, stop);
    g_thread_pool_free(pool, FALSE, TRUE);
    g_async_queue_unref(questions);
    g_async_queue_unref(answers);

    const long each = (long)rounds * (GOROUTINES + THREADS);
    MUST(entered == each && all == each, "entered %ld times, of %ld", entered, each);
    MUST(put == each / 2 && taken == put && in_buffer == 0, "put %ld, taken %ld", put, taken);
    MUST(entered_again == (rounds + 7) / 8 * (GOROUTINES + THREADS), "%ld", entered_again);
    MUST(times == 1 && init_times == 1, "made %d and %d times", times, init_times);
    gs_stats stats = {.size = sizeof stats};
    gs_stats_read(&stats);
    printf("%ld rounds, %ld waits timed out, %lld threads\n", each, timed_out, (long long)stats.threads);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s SEED ROUNDS\n", argv[0]);
        return 2;
    }
    seed = (unsigned)strtoul(argv[1], NULL, 0);
    rounds = atoi(argv[2]);
    alarm(150); /* a hang */
    run_tasks(0, 2, run_all);
    return 0;
}
