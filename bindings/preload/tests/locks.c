/*
 * locks SEED ROUNDS: goroutines and plain threads use the same mutexes, condition variables, read-write locks and
 * semaphores at random. What they guard is counted without atomics, so a lock that lets two in, a wake-up that is lost,
 * or an owner that is mixed up is found, or hangs.
 */
#include "tasks.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

enum { MUTEXES = 6, GOROUTINES = 24, THREADS = 6, ROOM = 3, PERMITS = 2 };

static struct {
    pthread_mutex_t m;
    int type;
    int inside;   /* tasks that hold it */
    long entered; /* guarded by it */
    atomic_long counted;
} mutexes[MUTEXES];

static pthread_rwlock_t rwlocks[2];
static atomic_int readers[2], writers[2];
static long written[2];
static atomic_long writes[2];

static sem_t sem;
static atomic_int permitted;

static pthread_mutex_t buffer_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int in_buffer;
static long put, taken;

static int rounds;
static unsigned seed;

static unsigned random_of(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*s >> 33);
}

/* In the middle of what a lock guards. */
static void linger(uint64_t *s)
{
    switch (random_of(s) % 16) {
    case 0: usleep(random_of(s) % 200); break;
    case 1: case 2: sched_yield(); break;
    case 3: if (gs_self() != NULL) gs_yield(); break;
    default: break;
    }
}

static struct timespec soon(uint64_t *s, clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += random_of(s) % 300000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static int lock_somehow(pthread_mutex_t *m, uint64_t *s)
{
    struct timespec t;
    switch (random_of(s) % 8) {
    case 0: return pthread_mutex_trylock(m);
    case 1: t = soon(s, CLOCK_REALTIME); return pthread_mutex_timedlock(m, &t);
    case 2: t = soon(s, CLOCK_MONOTONIC); return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t);
    default: return pthread_mutex_lock(m);
    }
}

static void use_mutex(uint64_t *s)
{
    int i = (int)(random_of(s) % MUTEXES), r = lock_somehow(&mutexes[i].m, s);
    if (r != 0) {
        MUST(r == EBUSY || r == ETIMEDOUT, "mutex %d: %s", i, strerror(r));
        return;
    }
    MUST(mutexes[i].inside++ == 0, "mutex %d lets two in", i);
    mutexes[i].entered++;
    atomic_fetch_add(&mutexes[i].counted, 1);
    linger(s);
    if (mutexes[i].type == PTHREAD_MUTEX_RECURSIVE) {
        MUST(lock_somehow(&mutexes[i].m, s) == 0, "recursive");
        linger(s);
        MUST(pthread_mutex_unlock(&mutexes[i].m) == 0, "recursive");
    } else if (mutexes[i].type == PTHREAD_MUTEX_ERRORCHECK) {
        MUST(pthread_mutex_lock(&mutexes[i].m) == EDEADLK, "the owner isn't known");
    }
    MUST(--mutexes[i].inside == 0, "mutex %d lets two in", i);
    MUST(pthread_mutex_unlock(&mutexes[i].m) == 0, "unlock");
    if (mutexes[i].type != PTHREAD_MUTEX_NORMAL)
        MUST(pthread_mutex_unlock(&mutexes[i].m) == EPERM, "unlocked by another than its owner");
}

static void use_rwlock(uint64_t *s)
{
    int i = (int)(random_of(s) % 2), r;
    struct timespec t;
    if (random_of(s) % 4 != 0) {
        switch (random_of(s) % 4) {
        case 0: r = pthread_rwlock_tryrdlock(&rwlocks[i]); break;
        case 1: t = soon(s, CLOCK_REALTIME); r = pthread_rwlock_timedrdlock(&rwlocks[i], &t); break;
        default: r = pthread_rwlock_rdlock(&rwlocks[i]);
        }
        if (r == EBUSY || r == ETIMEDOUT)
            return;
        MUST(r == 0, "%s", strerror(r));
        atomic_fetch_add(&readers[i], 1);
        MUST(atomic_load(&writers[i]) == 0, "a reader beside a writer");
        linger(s);
        atomic_fetch_sub(&readers[i], 1);
    } else {
        switch (random_of(s) % 4) {
        case 0: r = pthread_rwlock_trywrlock(&rwlocks[i]); break;
        case 1: t = soon(s, CLOCK_REALTIME); r = pthread_rwlock_timedwrlock(&rwlocks[i], &t); break;
        default: r = pthread_rwlock_wrlock(&rwlocks[i]);
        }
        if (r == EBUSY || r == ETIMEDOUT)
            return;
        MUST(r == 0, "%s", strerror(r));
        MUST(atomic_fetch_add(&writers[i], 1) == 0 && atomic_load(&readers[i]) == 0, "a writer beside another");
        written[i]++;
        atomic_fetch_add(&writes[i], 1);
        linger(s);
        atomic_fetch_sub(&writers[i], 1);
    }
    MUST(pthread_rwlock_unlock(&rwlocks[i]) == 0, "unlock");
}

static void use_semaphore(uint64_t *s)
{
    struct timespec t = soon(s, CLOCK_REALTIME);
    int r = random_of(s) % 3 == 0 ? sem_timedwait(&sem, &t) : sem_wait(&sem);
    if (r != 0) {
        MUST(errno == ETIMEDOUT, "sem_timedwait: %s", strerror(errno));
        return;
    }
    MUST(atomic_fetch_add(&permitted, 1) < PERMITS, "too many pass the semaphore");
    linger(s);
    atomic_fetch_sub(&permitted, 1);
    MUST(sem_post(&sem) == 0, "sem_post");
}

/* Each task puts in as much as it takes out, so all end. */
static void put_and_take(uint64_t *s)
{
    pthread_mutex_lock(&buffer_mutex);
    while (in_buffer == ROOM)
        pthread_cond_wait(&not_full, &buffer_mutex);
    in_buffer++;
    put++;
    if (random_of(s) % 4 == 0)
        pthread_cond_broadcast(&not_empty);
    else
        pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&buffer_mutex);
    linger(s);
    pthread_mutex_lock(&buffer_mutex);
    while (in_buffer == 0) {
        struct timespec t = soon(s, CLOCK_REALTIME);
        int r = random_of(s) % 2 ? pthread_cond_timedwait(&not_empty, &buffer_mutex, &t)
                                 : pthread_cond_wait(&not_empty, &buffer_mutex);
        MUST(r == 0 || r == ETIMEDOUT, "%s", strerror(r));
    }
    in_buffer--;
    taken++;
    MUST(in_buffer >= 0 && in_buffer < ROOM && put - taken == in_buffer, "%d in the buffer", in_buffer);
    pthread_cond_signal(&not_full);
    pthread_mutex_unlock(&buffer_mutex);
}

static void be_one_of_many(void *arg)
{
    uint64_t s = ((uint64_t)seed << 32) + (uintptr_t)arg;
    for (int i = 0; i < rounds; i++) {
        switch (random_of(&s) % 4) {
        case 0: use_rwlock(&s); break;
        case 1: use_semaphore(&s); break;
        case 2: put_and_take(&s); break;
        default: use_mutex(&s);
        }
    }
}

static void all(void *unused)
{
    (void)unused;
    run_mixed(be_one_of_many, GOROUTINES, THREADS);
}

int main(int argc, char **argv)
{
    const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    long sum = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: %s SEED ROUNDS\n", argv[0]);
        return 2;
    }
    seed = (unsigned)atoi(argv[1]);
    rounds = atoi(argv[2]);
    alarm(150); /* a hang */
    for (int i = 0; i < MUTEXES; i++) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, mutexes[i].type = types[i % 3]);
        pthread_mutex_init(&mutexes[i].m, &attr);
    }
    for (int i = 0; i < 2; i++) {
        pthread_rwlockattr_t attr;
        pthread_rwlockattr_init(&attr);
        pthread_rwlockattr_setkind_np(&attr, i ? PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP : PTHREAD_RWLOCK_PREFER_READER_NP);
        pthread_rwlock_init(&rwlocks[i], &attr);
    }
    sem_init(&sem, 0, PERMITS);
    run_tasks(0, 0, all);
    for (int i = 0; i < MUTEXES; i++) {
        MUST(mutexes[i].entered == atomic_load(&mutexes[i].counted), "mutex %d", i);
        sum += mutexes[i].entered;
    }
    for (int i = 0; i < 2; i++)
        MUST(written[i] == atomic_load(&writes[i]), "rwlock %d", i);
    MUST(put == taken && in_buffer == 0, "%d left in the buffer", in_buffer);
    printf("%ld times locked, %ld put and taken\n", sum, put);
    return 0;
}
