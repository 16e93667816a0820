/*
 * openmp threads|goroutines: regions, loops, tasks and locks of OpenMP that wait, in tasks that share a thread and wait for each
 * other. Compiled for libgomp and for libomp, as a program and as a library that a program loads (openmp_loader.c).
 */
#include "say.h"

#include <fenv.h>
#include <locale.h>
#include <omp.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { TASKS = 8, TEAM = 3 };

/*
 * Threads that stay for the next task, as those of goroutines do: libomp 14 may free memory twice when threads that have been in
 * regions end at the same time.
 */
static struct stays {
    pthread_t thread;
    sem_t go, done;
    bool exists;
    void (*f)(void *);
    void *arg;
    task task; /* of a goroutine */
} tasks[TASKS];

static void *stay(void *arg)
{
    struct stays *t = arg;
    for (;;) {
        sem_wait(&t->go);
        t->f(t->arg);
        sem_post(&t->done);
    }
    return NULL;
}

static void start(int i, void (*f)(void *), void *arg)
{
    struct stays *t = &tasks[i];
    if (!as_threads) {
        begin(&t->task, f, arg);
        return;
    }
    t->f = f;
    t->arg = arg;
    if (!t->exists) {
        HOLDS(sem_init(&t->go, 0, 0) == 0 && sem_init(&t->done, 0, 0) == 0);
        HOLDS(pthread_create(&t->thread, NULL, stay, t) == 0);
        t->exists = true;
    }
    sem_post(&t->go);
}

static void finish(int i)
{
    if (as_threads)
        sem_wait(&tasks[i].done);
    else
        end(&tasks[i].task);
}

/* Runs f(i) in tasks, and waits for all. */
static void in_tasks(void (*f)(void *), int n)
{
    for (long i = 0; i < n; i++)
        start((int)i, f, (void *)i);
    for (int i = 0; i < n; i++)
        finish(i);
}

/* ---- Regions ---- */

static atomic_long sum;

static void waits_in_region(void *arg)
{
    long n = 0, me = (long)arg;
#pragma omp parallel num_threads(TEAM) reduction(+ : n)
    {
        if (omp_get_thread_num() == me % TEAM)
            usleep(500);
        HOLDS(omp_get_num_threads() == TEAM && omp_in_parallel() && omp_get_level() == 1);
        n += omp_get_thread_num() + 1;
#pragma omp barrier
        usleep(100);
    }
    HOLDS(n == TEAM * (TEAM + 1) / 2);
    HOLDS(!omp_in_parallel() && omp_get_level() == 0 && omp_get_thread_num() == 0 && omp_get_num_threads() == 1);
    atomic_fetch_add(&sum, n);
}

static void regions(void)
{
    atomic_store(&sum, 0);
    for (int i = 0; i < 5; i++)
        in_tasks(waits_in_region, TASKS);
    SAY(atomic_load(&sum));
}

static int ends[2], back[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t posted;
static int waiting, told;

static void answers(void *arg)
{
    char byte;
    (void)arg;
    for (int i = 0; i < TEAM; i++) {
        HOLDS(read(ends[0], &byte, 1) == 1);
        HOLDS(write(back[1], &byte, 1) == 1);
    }
    pthread_mutex_lock(&mutex);
    while (waiting < TEAM)
        pthread_cond_wait(&changed, &mutex);
    told = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < TEAM; i++)
        sem_post(&posted);
}

/* Each thread of the team waits for another task. */
static void waits_for_a_task(void *arg)
{
    (void)arg;
#pragma omp parallel num_threads(TEAM)
    {
        char byte = 'x';
        HOLDS(write(ends[1], &byte, 1) == 1);
        HOLDS(read(back[0], &byte, 1) == 1 && byte == 'x');
        pthread_mutex_lock(&mutex);
        waiting++;
        pthread_cond_broadcast(&changed);
        while (!told)
            pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
        HOLDS(sem_wait(&posted) == 0);
        if (omp_get_thread_num() != 0)
            usleep(1000); /* the first waits at the end of the region */
    }
    told = 2;
}

static void waits_for_tasks(void)
{
    HOLDS(pipe(ends) == 0 && pipe(back) == 0 && sem_init(&posted, 0, 0) == 0);
    start(0, waits_for_a_task, NULL);
    soon();
    start(1, answers, NULL);
    finish(0), finish(1);
    SAY(told);
}

static int asked_for, has_locked;

/* Another task holds the mutex while it waits: the team's threads get it afterwards. */
static void holds_mutex(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&mutex);
    asked_for = 1;
    usleep(5000);
    pthread_mutex_unlock(&mutex);
}

static void locks_in_region(void *arg)
{
    (void)arg;
    while (!asked_for)
        usleep(100);
#pragma omp parallel num_threads(TEAM)
    {
        pthread_mutex_lock(&mutex);
        has_locked++;
        pthread_mutex_unlock(&mutex);
    }
}

static void mutexes(void)
{
    start(0, locks_in_region, NULL);
    start(1, holds_mutex, NULL);
    finish(0), finish(1);
    SAY(has_locked);
}

static void nests(void *arg)
{
    long inner = 0, outer = 0;
    (void)arg;
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2) reduction(+ : inner, outer)
    {
        outer += omp_get_num_threads();
#pragma omp parallel num_threads(2) reduction(+ : inner)
        {
            usleep(200);
            inner += omp_get_num_threads() + 10 * omp_get_level();
        }
    }
    atomic_fetch_add(&sum, inner * 1000 + outer);
    omp_set_max_active_levels(1);
#pragma omp parallel num_threads(2) reduction(+ : inner)
#pragma omp parallel num_threads(2) reduction(+ : inner)
    inner += 1;
    HOLDS(inner == 4 * 22 + 2);
}

static void nested(void)
{
    atomic_store(&sum, 0);
    in_tasks(nests, 3);
    SAY(atomic_load(&sum));
}

/* ---- What is in a region ---- */

static void constructs_of(void *arg)
{
    long n[14] = {0}, me = (long)arg, copied = 0, order = 0;
#pragma omp parallel num_threads(TEAM)
    {
        long private_copy = 0;
#pragma omp for schedule(static) reduction(+ : n[0])
        for (long i = 0; i < 30; i++)
            n[0] += i, usleep(i == 7 ? 300 : 0);
#pragma omp for schedule(dynamic, 2) reduction(+ : n[1])
        for (long i = 0; i < 30; i++)
            n[1] += i, usleep(20);
#pragma omp for schedule(guided) reduction(+ : n[2]) nowait
        for (long i = 0; i < 30; i++)
            n[2] += i, usleep(20);
#pragma omp for schedule(runtime) reduction(+ : n[3])
        for (unsigned long i = 0; i < 30; i++)
            n[3] += (long)i;
#pragma omp for ordered schedule(dynamic)
        for (long i = 0; i < 6; i++) {
            usleep((useconds_t)(6 - i) * 30);
#pragma omp ordered
            order = order * 10 + i;
        }
#pragma omp sections reduction(+ : n[4])
        {
#pragma omp section
            n[4] += 1, usleep(100);
#pragma omp section
            n[4] += 10, usleep(100);
#pragma omp section
            n[4] += 100, usleep(100);
        }
#pragma omp single
        n[5]++, usleep(100);
#pragma omp single copyprivate(private_copy)
        private_copy = 7, usleep(100);
#pragma omp atomic
        copied += private_copy;
#pragma omp master
        n[6]++, usleep(100);
#pragma omp critical
        n[7]++, usleep(100);
#pragma omp critical(named)
        n[8]++, usleep(100);
#pragma omp single
        {
            for (int i = 0; i < 10; i++) {
#pragma omp task shared(n)
                {
                    usleep(50);
#pragma omp atomic
                    n[9] += i;
                }
            }
#pragma omp taskwait
            HOLDS(n[9] == 45);
#pragma omp taskgroup
            {
#pragma omp task depend(out : n[10]) shared(n)
                n[10] = 1, usleep(100);
#pragma omp task depend(inout : n[10]) shared(n)
                n[10] = n[10] * 10 + 2;
            }
#pragma omp taskloop grainsize(3) shared(n)
            for (int i = 0; i < 20; i++) {
                usleep(20);
#pragma omp atomic
                n[11] += i;
            }
        }
    }
#pragma omp parallel for num_threads(TEAM) schedule(dynamic) reduction(+ : n[12])
    for (long i = 0; i < 30; i++)
        n[12] += i, usleep(i % 9 == 0 ? 100 : 0);
#pragma omp parallel sections num_threads(TEAM)
    {
#pragma omp section
        usleep(100);
#pragma omp section
        {
#pragma omp atomic
            n[13]++;
        }
    }
    static const long wanted[] = {435, 435, 435, 435, 111, 1, 1, TEAM, TEAM, 45, 12, 190, 435, 1};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        MUST(n[i] == wanted[i], "%zu: %ld", i, n[i]);
    HOLDS(copied == 7 * TEAM && order == 12345);
    atomic_fetch_add(&sum, me);
}

static void constructs(void)
{
    atomic_store(&sum, 0);
    for (int i = 0; i < 3; i++)
        in_tasks(constructs_of, 4);
    SAY(atomic_load(&sum));
}

static void other_loops(void *arg)
{
    long n = 0;
    (void)arg;
#pragma omp parallel for num_threads(2) schedule(static, 3) reduction(+ : n)
    for (long i = 0; i < 40; i++)
        n += i;
#pragma omp parallel for num_threads(2) schedule(guided) reduction(+ : n)
    for (long i = 0; i < 40; i++)
        n += i;
#pragma omp parallel for num_threads(2) schedule(monotonic : dynamic) reduction(+ : n)
    for (long i = 0; i < 40; i++)
        n += i, usleep(i == 3 ? 100 : 0);
#pragma omp parallel for num_threads(2) schedule(runtime) reduction(+ : n)
    for (long i = 0; i < 40; i++)
        n += i;
#pragma omp parallel for num_threads(2) schedule(nonmonotonic : dynamic) reduction(+ : n)
    for (unsigned long i = 0; i < 40; i++)
        n += (long)i;
#pragma omp parallel num_threads(2) if (n < 0) reduction(+ : n)
    {
        usleep(200);
        n += 1000 * omp_get_num_threads();
    }
#pragma omp parallel num_threads(2) if (n > 0) proc_bind(spread) reduction(+ : n)
    n += 10000 * omp_get_num_threads();
#ifndef LIBOMP /* libomp 14 hangs in a later region of the thread, without this library too */
#pragma omp teams num_teams(1) thread_limit(2)
#endif
#pragma omp parallel num_threads(2) reduction(+ : n)
    {
        usleep(100);
        n += 1000000;
    }
    atomic_fetch_add(&sum, n);
}

static void kinds_of_regions(void)
{
    atomic_store(&sum, 0);
    in_tasks(other_loops, 4);
    SAY(atomic_load(&sum));
}

/* A region that uses many variables. */
static void many_variables(void)
{
#define EIGHT(m) m##0, m##1, m##2, m##3, m##4, m##5, m##6, m##7
    long EIGHT(a) = 1, EIGHT(b) = 2, EIGHT(c) = 3, EIGHT(d) = 4;
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = 1;
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = 2;
    c0 = c1 = c2 = c3 = c4 = c5 = c6 = 3;
    d0 = d1 = d2 = d3 = d4 = d5 = d6 = 4;
#pragma omp parallel num_threads(1)
    {
        a0 += 1, a1 += 1, a2 += 1, a3 += 1, a4 += 1, a5 += 1, a6 += 1, a7 += 1;
        b0 += a0, b1 += a1, b2 += a2, b3 += a3, b4 += a4, b5 += a5, b6 += a6, b7 += a7;
        c0 += b0, c1 += b1, c2 += b2, c3 += b3, c4 += b4, c5 += b5, c6 += b6, c7 += b7;
        d0 += c0, d1 += c1, d2 += c2, d3 += c3, d4 += c4, d5 += c5, d6 += c6, d7 += c7;
    }
    SAY(d0 + d1 + d2 + d3 + d4 + d5 + d6 + d7);
    SAY(a0 * a7 + b1 * b6 + c2 * c5);
}

/* ---- What belongs to the caller ---- */

static pthread_key_t key;
static int key_destroyed;

static void destroy(void *value)
{
    HOLDS(*(int *)value == 6);
    key_destroyed++;
}

static int own_threads, in_region;

static void uses_own(void *arg)
{
    static int value;
    locale_t locale = newlocale(LC_ALL_MASK, "C.UTF-8", NULL), before = uselocale(locale);
    (void)arg;
    value = 5;
    pthread_setspecific(key, &value);
    HOLDS(fesetround(FE_DOWNWARD) == 0);
    omp_set_num_threads(2);
    omp_set_schedule(omp_sched_dynamic, 7);
    omp_set_dynamic(0);
    errno = 77;
#pragma omp parallel
    {
        omp_sched_t kind;
        int chunk;
        omp_get_schedule(&kind, &chunk);
        HOLDS(kind == omp_sched_dynamic && chunk == 7 && omp_get_num_threads() == 2);
        if (omp_get_thread_num() == 0) {
            HOLDS(errno == 77);
            HOLDS(pthread_getspecific(key) == &value);
            HOLDS(fegetround() == FE_DOWNWARD && uselocale(NULL) == locale);
            errno = 78;
            value = 6;
            usleep(500);
            in_region = pthread_setspecific(key, &value) == 0;
        }
    }
    HOLDS(errno == 78 && fegetround() == FE_DOWNWARD);
    HOLDS(pthread_getspecific(key) == &value);
    fesetround(FE_TONEAREST);
    own_threads = omp_get_max_threads();
    uselocale(before);
    freelocale(locale);
}

static int max_threads;

static void uses_others(void *arg)
{
    int n = 0;
    (void)arg;
#pragma omp parallel reduction(+ : n)
    n += 1;
    HOLDS(n == max_threads && pthread_getspecific(key) == NULL && fegetround() == FE_TONEAREST);
}

static void belongings(void)
{
    task t;
    max_threads = omp_get_max_threads();
    HOLDS(pthread_key_create(&key, destroy) == 0);
    begin(&t, uses_own, NULL);
    end(&t);
    SAY(own_threads * 10 + in_region);
    SAY(key_destroyed);
    omp_set_num_threads(max_threads); /* the setting is that of the goroutines' thread */
    begin(&t, uses_others, NULL);
    end(&t);
    pthread_key_delete(key);
}

/* ---- Outside of regions ---- */

static void loops_alone(void *arg)
{
    long me = (long)arg, n = 0, m = 0, k = 0;
    for (int round = 0; round < 3; round++) {
#pragma omp for schedule(dynamic, 1)
        for (long i = 0; i < 20 + me; i++)
            n += i, usleep(20);
#pragma omp for schedule(guided)
        for (unsigned long i = 0; i < 10; i++)
            k += (long)i, usleep(20);
#pragma omp sections
        {
#pragma omp section
            m += 1, usleep(100);
#pragma omp section
            m += 10, usleep(100);
        }
#pragma omp single copyprivate(m)
        m += 100, usleep(100);
        usleep(100);
    }
    MUST(n == 3 * (20 + me) * (19 + me) / 2 && m == 333 && k == 135, "%ld %ld %ld", n, m, k);
    atomic_fetch_add(&sum, n);
}

static void tasks_alone(void *arg)
{
    long me = (long)arg, n = 0;
    for (int round = 0; round < 3; round++) {
        usleep(100);
#pragma omp task shared(n)
        {
            usleep(200);
            n += me;
#pragma omp task shared(n)
            usleep(100), n += 10;
        }
#pragma omp taskwait
#pragma omp task if (0) shared(n)
        usleep(100), n += 100;
#pragma omp taskloop shared(n)
        for (int i = 0; i < 5; i++)
            n += 1000, usleep(20);
    }
    MUST(n == 3 * (me + 5110), "%ld", n);
    atomic_fetch_add(&sum, n);
}

static void alone(void)
{
    atomic_store(&sum, 0);
    in_tasks(loops_alone, 4);
    SAY(atomic_load(&sum));
    in_tasks(tasks_alone, 4);
    SAY(atomic_load(&sum));
}

/* What only one may be in at a time. */
struct room {
    int inside, entered;
};
static struct room in_critical, with_lock;
static omp_lock_t lock;

static void enter(struct room *r)
{
    HOLDS(r->inside++ == 0);
    r->entered++;
    usleep(100);
    HOLDS(--r->inside == 0);
}

static void takes_locks(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
#pragma omp critical
        enter(&in_critical);
#pragma omp critical(second)
        {
            usleep(50);
        }
    }
#pragma omp parallel num_threads(2)
    {
#pragma omp critical
        enter(&in_critical);
    }
    for (int i = 0; i < 10; i++) {
        omp_set_lock(&lock);
        enter(&with_lock);
        omp_unset_lock(&lock);
    }
}

static void locks(void)
{
    omp_init_lock(&lock);
    in_tasks(takes_locks, 4);
    SAY(in_critical.entered);
    SAY(with_lock.entered);
    omp_set_lock(&lock);
    SAY(omp_test_lock(&lock));
    omp_unset_lock(&lock);
    SAY(omp_test_lock(&lock));
    omp_unset_lock(&lock);
    omp_destroy_lock(&lock);
}

/* ---- Goroutines of other kinds ---- */

static void *region_in_blocking(void *arg)
{
    constructs_of(arg);
    return NULL;
}

static void blocks(void *arg)
{
    gs_blocking(region_in_blocking, arg);
}

static void announces(void *arg)
{
    gs_entersyscall();
    waits_in_region(arg);
    gs_exitsyscall();
}

static void computes(void *arg)
{
    long n = 0;
    (void)arg;
    /* Longer than a time slice: the first thread of the team could be preempted. */
#pragma omp parallel for num_threads(2) reduction(+ : n) schedule(static, 1000)
    for (long i = 0; i < 30000000; i++)
        n += i & 1;
    HOLDS(n == 15000000);
}

static void goroutines(void)
{
    if (as_threads)
        return;
    void (*fs[])(void *) = {
        waits_in_region, constructs_of, computes, blocks, announces,
#ifndef __clang__ /* compiled code keeps the thread's number */
        loops_alone, tasks_alone,
#endif
    };
    for (size_t k = 0; k < sizeof fs / sizeof fs[0]; k++) {
        gs_g *g[4];
        for (long i = 0; i < 4; i++)
            HOLDS(gs_spawn_with(fs[k], (void *)i, NULL, &g[i]) == 0); /* not pinned */
        for (int i = 0; i < 4; i++) {
            gs_join(g[i], GS_FOREVER);
            gs_release(g[i]);
        }
    }
    in_tasks(blocks, 3);
    in_tasks(announces, 3);
    in_tasks(computes, 3);
}

static const struct test tests[] = {
    TEST(regions), TEST(waits_for_tasks), TEST(mutexes), TEST(nested), TEST(constructs), TEST(kinds_of_regions),
    TEST(many_variables), TEST(belongings), TEST(alone), TEST(locks), TEST(goroutines),
};

int main(int argc, char **argv)
{
    return run_tests(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
