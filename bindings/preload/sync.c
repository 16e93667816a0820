/*
 * Mutexes, condition variables, read-write locks, semaphores and the rest of <pthread.h>, <semaphore.h> and
 * <threads.h>, for goroutines. README.md states the protocols, and why no wake-up is lost. This file implements them.
 */
#include "calls.h"
#include "parts.h"
#include "times.h"
#include "waiters.h"

#include <dlfcn.h>
#include <signal.h>

/* An owner: a number in place of a thread's id */

/*
 * Linux gives no thread an id above 2^22 (PID_MAX_LIMIT), so glibc on plain threads takes an owner with this bit
 * for another thread.
 */
#define IS_GOROUTINE 0x40000000

static gs_key owner_key;
static atomic_uint owners_lock;
/* Numbers below this are reused through a list of free ones, indexed by the number without the bit and ended by 0.
 * Memory is taken only as it is touched. */
enum { REUSED = 1 << 20 };
static uint32_t next_free[REUSED], first_free;
static uint32_t owners; /* the number of owners given out */

/* Gives the owner back at the goroutine's end. Allocates nothing: malloc may be the program's, and lock a mutex. */
static void give_owner_back(void *value)
{
    uint32_t mine = (uint32_t)(uintptr_t)value & ~IS_GOROUTINE;
    if (mine >= REUSED)
        return;
    spin_lock(&owners_lock);
    next_free[mine] = first_free;
    first_free = mine;
    spin_unlock(&owners_lock);
}

/* The goroutine's number as an owner, unique among living goroutines. */
static int self(void)
{
    uint32_t mine = (uint32_t)(uintptr_t)gs_getspecific(owner_key);
    if (LIKELY(mine != 0))
        return (int)mine;
    spin_lock(&owners_lock);
    mine = first_free;
    if (mine != 0)
        first_free = next_free[mine];
    else
        mine = ++owners;
    spin_unlock(&owners_lock);
    mine |= IS_GOROUTINE;
    gs_setspecific(owner_key, (void *)(uintptr_t)mine);
    return (int)mine;
}

void sync_start(void)
{
    gs_key_create(&owner_key, give_owner_back);
}

/* Mutexes */

/* The bits of __kind, in glibc since 2.4. */
enum {
    KIND_TYPE = 3,       /* PTHREAD_MUTEX_NORMAL and so on */
    KIND_OF_LIBC = 0xf0, /* robust, priority inheritance, priority protection, process-shared */
};

static inline struct __pthread_mutex_s *in(pthread_mutex_t *m)
{
    return &m->__data;
}

static inline int type_of(pthread_mutex_t *m)
{
    return __atomic_load_n(&in(m)->__kind, __ATOMIC_RELAXED) & KIND_TYPE;
}

/* Whether the mutex stays libc's: the kernel, another process or a thread's id has a part in it. */
static inline bool is_libc_s(pthread_mutex_t *m)
{
    return __atomic_load_n(&in(m)->__kind, __ATOMIC_RELAXED) & KIND_OF_LIBC;
}

static inline bool try_word(pthread_mutex_t *m)
{
    int free = 0;
    return __atomic_compare_exchange_n(&in(m)->__lock, &free, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline int owner_of(pthread_mutex_t *m)
{
    return __atomic_load_n(&in(m)->__owner, __ATOMIC_RELAXED);
}

/* Makes `me` the owner, after the caller has locked the word. `again`: after a wait on a condition variable, during
 * which __nusers has counted the caller. */
static inline void own(pthread_mutex_t *m, int me, bool again)
{
    __atomic_store_n(&in(m)->__owner, me, __ATOMIC_RELAXED);
    if (type_of(m) == PTHREAD_MUTEX_RECURSIVE)
        in(m)->__count = 1;
    if (!again)
        in(m)->__nusers++;
}

struct word_wait {
    pthread_mutex_t *m;
    gs_deadline deadline;
    bool got;
};

static void *wait_in_kernel(void *arg)
{
    struct word_wait *w = arg;
    int *word = &in(w->m)->__lock;
    while (__atomic_exchange_n(word, 2, __ATOMIC_SEQ_CST) != 0) {
        if (w->deadline != GS_FOREVER && gs_now() >= w->deadline)
            return NULL;
        futex_wait(word, 2, w->deadline);
    }
    w->got = true;
    return NULL;
}

/*
 * Waits in the kernel for the word, in which 2 says that there are waiters, as libc's own waiters do. The thread waits,
 * with its P given to others. False: the deadline has passed.
 */
static bool wait_for_word(pthread_mutex_t *m, gs_deadline deadline, struct counts *c)
{
    struct word_wait w = {m, deadline, false};
    if (!call_elsewhere(wait_in_kernel, &w, c))
        wait_in_kernel(&w);
    return w.got;
}

static bool has_delegate(struct bucket *b, pthread_mutex_t *m)
{
    for (struct waiter *w = b->first.next; w != &b->first; w = w->next)
        if (w->addr == m && w->what == MUTEX_DELEGATE)
            return true;
    return false;
}

/* Locks a mutex that was not free. Returns 0 or ETIMEDOUT. */
static int lock_contended(pthread_mutex_t *m, int me, bool again, gs_deadline deadline, struct counts *c)
{
    struct bucket *b = bucket_of(m);
    bool woken = false;
    for (int i = 0; i < 40; i++) { /* an owner on another thread mostly holds it for an instant */
        if (__atomic_load_n(&in(m)->__lock, __ATOMIC_RELAXED) == 0 && try_word(m)) {
            own(m, me, again);
            return 0;
        }
        __builtin_ia32_pause();
    }
    if (!can_park()) {
        if (!wait_for_word(m, deadline, c))
            return ETIMEDOUT;
        own(m, me, again);
        return 0;
    }
    for (;;) {
        struct waiter w = {.addr = m, .what = MUTEX};
        bucket_lock(b);
        enqueue(b, &w, woken);
        if (try_word(m)) {
            own(m, me, again);
            dequeue(b, &w);
            bucket_unlock(b);
            return 0;
        }
        if ((owner_of(m) & IS_GOROUTINE) || has_delegate(b, m)) {
            if (debug)
                count_parked(c);
            bool had_been = woken;
            woken = park(b, &w, deadline);
            if (woken) {
                if (!try_word(m))
                    continue;
                own(m, me, again);
                return 0;
            }
            if (had_been)
                wake(m, 1);
            return ETIMEDOUT;
        }
        /* A thread has the mutex: one goroutine, the delegate, waits as a thread does, on behalf of all. */
        w.what = MUTEX_DELEGATE;
        bucket_unlock(b);
        bool got = wait_for_word(m, deadline, c);
        if (got)
            own(m, me, again); /* before the delegate's role ends */
        bucket_lock(b);
        dequeue(b, &w);
        bucket_unlock(b);
        if (got)
            return 0;
        wake(m, 1); /* the next waiter becomes the delegate, if one is still needed */
        return ETIMEDOUT;
    }
}

static int lock(pthread_mutex_t *m, bool again, gs_deadline deadline, struct counts *c)
{
    int me = self();
    switch (type_of(m)) {
    case PTHREAD_MUTEX_RECURSIVE:
        if (owner_of(m) == me) {
            if (in(m)->__count + 1 == 0)
                return EAGAIN;
            in(m)->__count++;
            return 0;
        }
        break;
    case PTHREAD_MUTEX_ERRORCHECK:
        if (owner_of(m) == me)
            return EDEADLK;
        break;
    }
    if (try_word(m)) {
        own(m, me, again);
        return 0;
    }
    return lock_contended(m, me, again, deadline, c);
}

/* Unlocks a mutex. `for_cond`: the caller is about to wait on a condition variable, and stays counted in __nusers. */
static int unlock(pthread_mutex_t *m, bool for_cond)
{
    switch (type_of(m)) {
    case PTHREAD_MUTEX_RECURSIVE:
        if (owner_of(m) != self())
            return EPERM;
        if (--in(m)->__count != 0)
            return 0;
        break;
    case PTHREAD_MUTEX_ERRORCHECK:
        if (owner_of(m) != self() || in(m)->__lock == 0)
            return EPERM;
        break;
    }
    __atomic_store_n(&in(m)->__owner, 0, __ATOMIC_RELAXED);
    if (!for_cond)
        in(m)->__nusers--;
    /* After the exchange another thread may lock the mutex, unlock it and free its memory. */
    if (__atomic_exchange_n(&in(m)->__lock, 0, __ATOMIC_SEQ_CST) > 1)
        futex_wake(&in(m)->__lock, 1);
    if (has_waiters(m))
        wake(m, 1);
    return 0;
}

EXPORT int pthread_mutex_lock(pthread_mutex_t *m)
{
    COUNTED(pthread_mutex_lock);
    if (!TAKEN)
        return real.pthread_mutex_lock(m);
    return is_libc_s(m) ? KERNEL(real.pthread_mutex_lock(m)) : lock(m, false, GS_FOREVER, &counts);
}

EXPORT int pthread_mutex_trylock(pthread_mutex_t *m)
{
    if (!TAKEN || is_libc_s(m))
        return real.pthread_mutex_trylock(m);
    int me = self();
    if (type_of(m) == PTHREAD_MUTEX_RECURSIVE && owner_of(m) == me) {
        if (in(m)->__count + 1 == 0)
            return EAGAIN;
        in(m)->__count++;
        return 0;
    }
    if (!try_word(m))
        return EBUSY;
    own(m, me, false);
    return 0;
}

static int lock_until(pthread_mutex_t *m, clockid_t clock, const struct timespec *t, struct counts *c)
{
    int error;
    if (LIKELY(is_time(t)))
        return lock(m, false, deadline_on(clock, t), c);
    /* Deadline 1 is long past: a free mutex is locked whatever the time says. */
    error = lock(m, false, 1, c);
    return error == ETIMEDOUT ? (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S ? EINVAL : ETIMEDOUT) : error;
}

EXPORT int pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *t)
{
    COUNTED(pthread_mutex_timedlock);
    if (!TAKEN)
        return real.pthread_mutex_timedlock(m, t);
    return is_libc_s(m) ? KERNEL(real.pthread_mutex_timedlock(m, t)) : lock_until(m, CLOCK_REALTIME, t, &counts);
}

EXPORT int pthread_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *t)
{
    COUNTED(pthread_mutex_clocklock);
    if (!TAKEN || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
        return real.pthread_mutex_clocklock(m, clock, t);
    return is_libc_s(m) ? KERNEL(real.pthread_mutex_clocklock(m, clock, t)) : lock_until(m, clock, t, &counts);
}

EXPORT int pthread_mutex_unlock(pthread_mutex_t *m)
{
    if (TAKEN && !is_libc_s(m))
        return unlock(m, false);
    int error = real.pthread_mutex_unlock(m);
    if (error == 0 && has_waiters(m))
        wake(m, 1);
    return error;
}

ALIAS(__pthread_mutex_lock, pthread_mutex_lock);
ALIAS(__pthread_mutex_trylock, pthread_mutex_trylock);
ALIAS(__pthread_mutex_unlock, pthread_mutex_unlock);

/* Condition variables */

enum { COND_SHARED = 1, COND_MONOTONIC = 2 }; /* of __wrefs, in glibc since 2.25 */

static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, gs_deadline deadline, struct counts *counts)
{
    struct bucket *b = bucket_of(c);
    struct waiter w = {.addr = c, .what = COND};
    bucket_lock(b);
    enqueue(b, &w, false);
    bucket_unlock(b);
    /* Whoever changes the awaited condition does so with the mutex locked, after this unlock, and so sees the
     * waiter. */
    int error = unlock(m, true);
    bucket_lock(b);
    if (error != 0) {
        if (!atomic_load(&w.woken))
            dequeue(b, &w);
        bucket_unlock(b);
        return error;
    }
    if (debug)
        count_parked(counts);
    bool woken = park(b, &w, deadline);
    error = lock(m, true, GS_FOREVER, counts);
    return error != 0 ? error : woken ? 0 : ETIMEDOUT;
}

/* Whether libc waits: for a condition variable that processes share, or a mutex that stays libc's. */
static bool cond_is_libc_s(pthread_cond_t *c, pthread_mutex_t *m)
{
    return (__atomic_load_n(&c->__data.__wrefs, __ATOMIC_RELAXED) & COND_SHARED) || is_libc_s(m);
}

static clockid_t clock_of(pthread_cond_t *c)
{
    return __atomic_load_n(&c->__data.__wrefs, __ATOMIC_RELAXED) & COND_MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

EXPORT int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    COUNTED(pthread_cond_wait);
    if (!TAKEN)
        return real.pthread_cond_wait(c, m);
    return cond_is_libc_s(c, m) ? KERNEL(real.pthread_cond_wait(c, m)) : cond_wait(c, m, GS_FOREVER, &counts);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
    COUNTED(pthread_cond_timedwait);
    if (!TAKEN)
        return real.pthread_cond_timedwait(c, m, t);
    if (cond_is_libc_s(c, m))
        return KERNEL(real.pthread_cond_timedwait(c, m, t));
    if (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S)
        return EINVAL;
    return cond_wait(c, m, deadline_on(clock_of(c), t), &counts);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *t)
{
    COUNTED(pthread_cond_clockwait);
    if (!TAKEN || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
        return real.pthread_cond_clockwait(c, m, clock, t);
    if (cond_is_libc_s(c, m))
        return KERNEL(real.pthread_cond_clockwait(c, m, clock, t));
    if (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S)
        return EINVAL;
    return cond_wait(c, m, deadline_on(clock, t), &counts);
}

EXPORT int pthread_cond_signal(pthread_cond_t *c)
{
    if (has_waiters(c) && wake(c, 1) == 1)
        return 0;
    return real.pthread_cond_signal(c);
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *c)
{
    if (has_waiters(c))
        wake(c, UINT_MAX);
    return real.pthread_cond_broadcast(c);
}

/* Read-write locks: glibc's own functions try to lock, and waiters are in the table */

enum { RWLOCK_PREFERS_WRITERS = PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP };

static bool rwlock_is_libc_s(pthread_rwlock_t *l)
{
    return l->__data.__shared != 0;
}

/* Whether a reader must queue behind goroutines that want to write, as on a lock that prefers writers. */
static bool behind_writers(pthread_rwlock_t *l)
{
    bool found = false;
    if (l->__data.__flags != RWLOCK_PREFERS_WRITERS || !has_waiters(l))
        return false;
    struct bucket *b = bucket_of(l);
    bucket_lock(b);
    for (struct waiter *w = b->first.next; w != &b->first && !found; w = w->next)
        found = w->addr == l && w->what == WRITER;
    bucket_unlock(b);
    return found;
}

static int try_rwlock(pthread_rwlock_t *l, enum what what, int me)
{
    if (what == READER)
        return real.pthread_rwlock_tryrdlock(l);
    int error = real.pthread_rwlock_trywrlock(l);
    if (error == 0)
        __atomic_store_n(&l->__data.__cur_writer, me, __ATOMIC_RELAXED); /* the goroutine in place of the thread */
    return error;
}

static int lock_rwlock(pthread_rwlock_t *l, enum what what, gs_deadline deadline, bool bad_time, struct counts *c)
{
    int me = self(), error;
    bool woken = false;
    if (__atomic_load_n(&l->__data.__cur_writer, __ATOMIC_RELAXED) == me)
        return EDEADLK;
    if (what == WRITER || !behind_writers(l)) {
        error = try_rwlock(l, what, me);
        if (error != EBUSY)
            return error;
    }
    if (bad_time)
        return EINVAL;
    for (;;) {
        struct bucket *b = bucket_of(l);
        struct waiter w = {.addr = l, .what = what};
        bucket_lock(b);
        enqueue(b, &w, woken);
        error = try_rwlock(l, what, me);
        if (error != EBUSY) {
            dequeue(b, &w);
            bucket_unlock(b);
            break;
        }
        if (debug)
            count_parked(c);
        bool had_been = woken;
        woken = park(b, &w, deadline);
        if (woken) {
            error = try_rwlock(l, what, me);
            if (error == EBUSY)
                continue;
            break;
        }
        if (had_been)
            wake_lockers(l);
        return ETIMEDOUT;
    }
    return error;
}

EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
    COUNTED(pthread_rwlock_rdlock);
    if (!TAKEN)
        return real.pthread_rwlock_rdlock(l);
    return rwlock_is_libc_s(l) ? KERNEL(real.pthread_rwlock_rdlock(l))
                               : lock_rwlock(l, READER, GS_FOREVER, false, &counts);
}

EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
    COUNTED(pthread_rwlock_wrlock);
    if (!TAKEN)
        return real.pthread_rwlock_wrlock(l);
    return rwlock_is_libc_s(l) ? KERNEL(real.pthread_rwlock_wrlock(l))
                               : lock_rwlock(l, WRITER, GS_FOREVER, false, &counts);
}

EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *l)
{
    if (!TAKEN || rwlock_is_libc_s(l))
        return real.pthread_rwlock_tryrdlock(l);
    return behind_writers(l) ? EBUSY : real.pthread_rwlock_tryrdlock(l);
}

EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *l)
{
    if (!TAKEN || rwlock_is_libc_s(l))
        return real.pthread_rwlock_trywrlock(l);
    return try_rwlock(l, WRITER, self());
}

static int rwlock_until(pthread_rwlock_t *l, enum what what, clockid_t clock, const struct timespec *t,
                        struct counts *c)
{
    /* glibc checks the time before trying, unlike for mutexes. */
    if (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S)
        return EINVAL;
    return lock_rwlock(l, what, deadline_on(clock, t), false, c);
}

#define TIMED_RWLOCK(name, what, params, args, clock_id) \
    EXPORT int name params \
    { \
        COUNTED(name); \
        if (!TAKEN || ((clock_id) != CLOCK_REALTIME && (clock_id) != CLOCK_MONOTONIC)) \
            return real.name args; \
        return rwlock_is_libc_s(l) ? KERNEL(real.name args) : rwlock_until(l, what, clock_id, t, &counts); \
    }
TIMED_RWLOCK(pthread_rwlock_timedrdlock, READER, (pthread_rwlock_t *l, const struct timespec *t), (l, t), CLOCK_REALTIME)
TIMED_RWLOCK(pthread_rwlock_timedwrlock, WRITER, (pthread_rwlock_t *l, const struct timespec *t), (l, t), CLOCK_REALTIME)
TIMED_RWLOCK(pthread_rwlock_clockrdlock, READER, (pthread_rwlock_t *l, clockid_t clock, const struct timespec *t), (l, clock, t), clock)
TIMED_RWLOCK(pthread_rwlock_clockwrlock, WRITER, (pthread_rwlock_t *l, clockid_t clock, const struct timespec *t), (l, clock, t), clock)

EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *l)
{
    int error, writer;
    if (TAKEN && !rwlock_is_libc_s(l) && (writer = __atomic_load_n(&l->__data.__cur_writer, __ATOMIC_RELAXED)) != 0
        && writer == self()) {
        /* glibc compares the thread's id to tell whether the caller is the writer. The goroutine stays on the thread
         * meanwhile. */
        gs_preempt_disable();
        __atomic_store_n(&l->__data.__cur_writer, gettid(), __ATOMIC_RELAXED);
        error = real.pthread_rwlock_unlock(l);
        gs_preempt_enable();
    } else {
        error = real.pthread_rwlock_unlock(l);
    }
    if (error == 0 && has_waiters(l))
        wake_lockers(l);
    return error;
}

ALIAS(__pthread_rwlock_rdlock, pthread_rwlock_rdlock);
ALIAS(__pthread_rwlock_wrlock, pthread_rwlock_wrlock);
ALIAS(__pthread_rwlock_tryrdlock, pthread_rwlock_tryrdlock);
ALIAS(__pthread_rwlock_trywrlock, pthread_rwlock_trywrlock);
ALIAS(__pthread_rwlock_unlock, pthread_rwlock_unlock);

/* Semaphores */

/* Whether several processes use the semaphore: the word behind the count is not 0, in glibc since 2.1. */
static bool sem_is_libc_s(sem_t *s)
{
    return ((const int *)s)[2] != 0;
}

/*
 * A signal handler that calls sem_post may have interrupted any code, so it must use neither the table's lock nor
 * libgosched. Where signals can arrive, a thread therefore wakes the goroutines.
 */
static atomic_uint posts;     /* changes with each post that the serving thread must look at */
static atomic_uint asked[32]; /* bits: buckets, by number mod 1024, in which to wake a waiter */
static atomic_uint thread_state;

static void wake_for_posts(struct bucket *b)
{
    bucket_lock(b);
    for (struct waiter *w = b->first.next, *next; w != &b->first; w = next) {
        int value = 0;
        next = w->next;
        if (w->what == SEMAPHORE && sem_getvalue((sem_t *)w->addr, &value) == 0 && value > 0)
            wake_waiter(b, w);
    }
    bucket_unlock(b);
}

static void *serve_posts(void *unused)
{
    (void)unused;
    for (;;) {
        unsigned seen = atomic_load(&posts);
        for (unsigned i = 0; i < 32; i++) {
            unsigned bits = atomic_exchange(&asked[i], 0);
            for (; bits != 0; bits &= bits - 1)
                wake_for_posts(bucket_of(NULL) + (i * 32 + (unsigned)__builtin_ctz(bits)));
        }
        futex_wait(&posts, seen, GS_FOREVER);
    }
    return NULL;
}

/* Starts the serving thread, before the first goroutine parks. False: no thread can be had. */
static bool start_serving(void)
{
    enum { NONE, RUNS, STARTS };
    for (;;) {
        unsigned state = atomic_load_explicit(&thread_state, memory_order_acquire);
        if (LIKELY(state == RUNS))
            return true;
        if (state == STARTS) {
            gs_sleep(100 * 1000);
            continue;
        }
        if (!atomic_compare_exchange_strong(&thread_state, &state, STARTS))
            continue;
        pthread_t t;
        pthread_attr_t attr;
        sigset_t all, before;
        sigfillset(&all);
        real.pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attr, 64 * 1024);
        bool started = real.pthread_create(&t, &attr, serve_posts, NULL) == 0;
        pthread_attr_destroy(&attr);
        real.pthread_sigmask(SIG_SETMASK, &before, NULL);
        atomic_store_explicit(&thread_state, started ? RUNS : NONE, memory_order_release);
        return started;
    }
}

static bool signals_are_blocked(void)
{
    uint64_t blocked = 0;
    /* The signals that may have a handler: not KILL, STOP, glibc's own two, or the faults. */
    const uint64_t some = (UINT64_C(1) << (SIGINT - 1)) | (UINT64_C(1) << (SIGTERM - 1)) | (UINT64_C(1) << (SIGALRM - 1))
                          | (UINT64_C(1) << (SIGCHLD - 1)) | (UINT64_C(1) << (SIGUSR1 - 1)) | (UINT64_C(1) << (SIGUSR2 - 1));
    return raw_syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &blocked, sizeof blocked) == 0 && (blocked & some) == some;
}

/* sem_trywait that leaves errno as it is. */
static bool try_sem(sem_t *s)
{
    int before = errno;
    bool got = sem_trywait(s) == 0;
    errno = before;
    return got;
}

static int sem_wait_until(sem_t *s, gs_deadline deadline, struct counts *c)
{
    struct bucket *b = bucket_of(s);
    int result;
    if (!start_serving())
        return failed(EAGAIN);
    gs_hold(); /* a signal handler may post, so there is no deadlock */
    for (;;) {
        struct waiter w = {.addr = s, .what = SEMAPHORE};
        bucket_lock(b);
        enqueue(b, &w, false);
        if (try_sem(s)) {
            dequeue(b, &w);
            bucket_unlock(b);
            result = 0;
            break;
        }
        if (debug)
            count_parked(c);
        bool woken = park(b, &w, deadline);
        if (try_sem(s)) {
            result = 0;
            break;
        }
        if (!woken) {
            result = failed(ETIMEDOUT);
            break;
        }
    }
    gs_unhold();
    return result;
}

EXPORT int sem_wait(sem_t *s)
{
    COUNTED(sem_wait);
    if (!TAKEN)
        return real.sem_wait(s);
    if (try_sem(s))
        return 0;
    if (sem_is_libc_s(s) || !can_park())
        return ELSEWHERE(real.sem_wait, (s));
    return sem_wait_until(s, GS_FOREVER, &counts);
}

EXPORT int sem_timedwait(sem_t *s, const struct timespec *t)
{
    COUNTED(sem_timedwait);
    if (!TAKEN)
        return real.sem_timedwait(s, t);
    if (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S)
        return failed(EINVAL);
    if (try_sem(s))
        return 0;
    if (sem_is_libc_s(s) || !can_park())
        return ELSEWHERE(real.sem_timedwait, (s, t));
    return sem_wait_until(s, deadline_on(CLOCK_REALTIME, t), &counts);
}

EXPORT int sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *t)
{
    COUNTED(sem_clockwait);
    if (!TAKEN || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC))
        return real.sem_clockwait(s, clock, t);
    if (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S)
        return failed(EINVAL);
    if (try_sem(s))
        return 0;
    if (sem_is_libc_s(s) || !can_park())
        return ELSEWHERE(real.sem_clockwait, (s, clock, t));
    return sem_wait_until(s, deadline_on(clock, t), &counts);
}

EXPORT int sem_post(sem_t *s)
{
    int result = real.sem_post(s);
    if (!LIKELY(result == 0 && has_waiters(s)))
        return result;
    int error = errno;
    if (gs_self() != NULL && signals_are_blocked()) {
        wake(s, 1);
    } else {
        unsigned n = (unsigned)(bucket_of(s) - bucket_of(NULL));
        atomic_fetch_or(&asked[n / 32], 1u << n % 32);
        atomic_fetch_add(&posts, 1);
        futex_wake(&posts, 1);
    }
    errno = error;
    return result;
}

/* Once */

/*
 * glibc's word: bit 0 is set while a thread runs the function, bit 1 once the function has returned. The bits above
 * hold a number that changes with each fork, so that the child runs an interrupted function again.
 */
enum { ONCE_RUNS = 1, ONCE_DONE = 2 };
static pthread_once_t once_probe;
static atomic_int once_runs_word; /* the word while a function runs in this process */

static void look_at_probe(void)
{
    atomic_store(&once_runs_word, __atomic_load_n(&once_probe, __ATOMIC_RELAXED));
}

struct once_call {
    pthread_once_t *word;
    bool returned;
};

/* Runs also when an exception leaves the function: then the next caller calls the function again. */
static void end_once_call(struct once_call *c)
{
    __atomic_store_n(c->word, c->returned ? ONCE_DONE : 0, __ATOMIC_RELEASE);
    futex_wake(c->word, INT_MAX);
}

/*
 * By these variables of the thread libstdc++'s std::call_once tells the function that it gives to pthread_once what to
 * call. While a goroutine waits, others on its thread may change them.
 */
static void **cpp_variable(int i)
{
    static const char *const names[] = {"_ZSt15__once_callable", "_ZSt11__once_call"};
    return dlsym(RTLD_DEFAULT, names[i]);
}

static int once(pthread_once_t *word, void (*f)(void))
{
    int now, runs;
    bool waited = false;
    void *of_cpp[2] = {NULL, NULL};
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) & ONCE_DONE)
        return 0;
    if (atomic_load(&once_runs_word) == 0)
        real.pthread_once(&once_probe, look_at_probe);
    while ((runs = atomic_load(&once_runs_word)) == 0)
        gs_sleep(100 * 1000);
    for (;;) {
        now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (now & ONCE_DONE)
            return 0;
        if (now == runs) {
            for (int i = 0; i < 2 && !waited; i++) {
                void **variable = cpp_variable(i);
                of_cpp[i] = variable != NULL ? *variable : NULL;
            }
            waited = true;
            /* Sleeps without blocking the thread, to which the goroutine that runs the function may be pinned. */
            gs_cancel_disable();
            gs_sleep(200 * 1000);
            gs_cancel_enable();
        } else if (__atomic_compare_exchange_n(word, &now, runs, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            struct once_call call __attribute__((cleanup(end_once_call))) = {.word = word};
            for (int i = 0; i < 2 && waited; i++) {
                void **variable = cpp_variable(i);
                if (variable != NULL)
                    *variable = of_cpp[i];
            }
            f();
            call.returned = true;
            return 0;
        }
    }
}

EXPORT int pthread_once(pthread_once_t *word, void (*f)(void))
{
    return TAKEN ? once(word, f) : real.pthread_once(word, f);
}
ALIAS(__pthread_once, pthread_once);

EXPORT void call_once(once_flag *flag, void (*f)(void))
{
    if (TAKEN)
        once((pthread_once_t *)flag, f);
    else
        real.call_once(flag, f);
}

/* <threads.h>: the same objects with other error numbers */

static int as_thrd(int error)
{
    switch (error) {
    case 0: return thrd_success;
    case ENOMEM: return thrd_nomem;
    case ETIMEDOUT: return thrd_timedout;
    case EBUSY: return thrd_busy;
    default: return thrd_error;
    }
}

EXPORT int mtx_lock(mtx_t *m)
{
    COUNTED(mtx_lock);
    return TAKEN ? as_thrd(lock((pthread_mutex_t *)m, false, GS_FOREVER, &counts)) : real.mtx_lock(m);
}

EXPORT int mtx_trylock(mtx_t *m)
{
    return TAKEN ? as_thrd(pthread_mutex_trylock((pthread_mutex_t *)m)) : real.mtx_trylock(m);
}

EXPORT int mtx_timedlock(mtx_t *m, const struct timespec *t)
{
    COUNTED(mtx_timedlock);
    return TAKEN ? as_thrd(lock_until((pthread_mutex_t *)m, CLOCK_REALTIME, t, &counts)) : real.mtx_timedlock(m, t);
}

EXPORT int mtx_unlock(mtx_t *m)
{
    if (TAKEN)
        return as_thrd(unlock((pthread_mutex_t *)m, false));
    int error = real.mtx_unlock(m);
    if (error == thrd_success && has_waiters(m))
        wake(m, 1);
    return error;
}

EXPORT int cnd_wait(cnd_t *c, mtx_t *m)
{
    COUNTED(cnd_wait);
    return TAKEN ? as_thrd(cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m, GS_FOREVER, &counts))
                 : real.cnd_wait(c, m);
}

EXPORT int cnd_timedwait(cnd_t *c, mtx_t *m, const struct timespec *t)
{
    COUNTED(cnd_timedwait);
    if (!TAKEN)
        return real.cnd_timedwait(c, m, t);
    if (t->tv_nsec < 0 || t->tv_nsec >= NS_PER_S)
        return thrd_error;
    return as_thrd(cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m, deadline_on(CLOCK_REALTIME, t), &counts));
}

EXPORT int cnd_signal(cnd_t *c)
{
    if (has_waiters(c) && wake(c, 1) == 1)
        return thrd_success;
    return real.cnd_signal(c);
}

EXPORT int cnd_broadcast(cnd_t *c)
{
    if (has_waiters(c))
        wake(c, UINT_MAX);
    return real.cnd_broadcast(c);
}

/* Threads and barriers: the kernel waits, on another thread */

/* Defines a join. A join of the caller's own thread gives EDEADLK, which it wouldn't on another thread. */
#define JOINS(name, params, args) \
    EXPORT int name params \
    { \
        COUNTED(name); \
        return TAKEN && t != pthread_self() ? ELSEWHERE(real.name, args) : real.name args; \
    }
JOINS(pthread_join, (pthread_t t, void **result), (t, result))
JOINS(pthread_timedjoin_np, (pthread_t t, void **result, const struct timespec *until), (t, result, until))
JOINS(pthread_clockjoin_np, (pthread_t t, void **result, clockid_t clock, const struct timespec *until), (t, result, clock, until))
JOINS(thrd_join, (thrd_t t, int *result), (t, result))
WAITS_ELSEWHERE(int, pthread_barrier_wait, (pthread_barrier_t *b), (b))

void sync_in_child(void)
{
    atomic_store(&owners_lock, 0);
    atomic_store(&posts, 0);
    atomic_store(&thread_state, 0);
    for (int i = 0; i < 32; i++)
        atomic_store(&asked[i], 0);
    /* The word while a function runs differs in this process. */
    once_probe = PTHREAD_ONCE_INIT;
    atomic_store(&once_runs_word, 0);
}
