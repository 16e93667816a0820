/* Mutexes and other meeting points: what is locked is alone. */
#include "chaos.h"

enum { MUTEXES = 8, UNITS = 5 };

/* The second half is for all, with deadlines; the first for those that are sure to run again soon. */
static gs_mutex mutexes[MUTEXES];
static atomic_int inside[MUTEXES];
static long counted[MUTEXES]; /* plain numbers: the mutex alone protects them */
static atomic_long entered[MUTEXES];
static gs_rwmutex rw;
static atomic_int readers, writers;
static long written[2]; /* always the same outside a writer */
static gs_sem sem;
static atomic_int taken;
static gs_cond cond;
static gs_mutex cond_mutex;
static atomic_bool cond_held;
static long tokens; /* guarded by cond_mutex: gs_cond_signal once for each */

static void op_mutex(struct actor *a)
{
    bool sure = a->priority >= GS_PRIO_NORMAL && a->depth == 0;
    int i = sure ? rnd(a, MUTEXES / 2) : MUTEXES / 2 + rnd(a, MUTEXES / 2);
    int r;
    if (one_in(a, 4))
        r = gs_mutex_trylock(&mutexes[i]);
    else
        r = gs_mutex_lock(&mutexes[i], sure && one_in(a, 2) ? GS_FOREVER : soon(a, 500));
    MUST_BE(r, 0, r == -EBUSY ? -EBUSY : -EAGAIN, -ETIMEDOUT, -ECANCELED);
    if (r != 0)
        return;
    if (atomic_fetch_add(&inside[i], 1) != 0)
        WRONG("mutex %d is held twice", i);
    counted[i]++;
    atomic_fetch_add(&entered[i], 1);
    if (one_in(a, 3))
        gs_yield();
    else if (one_in(a, 12))
        compute_for(50 * US);
    else if (one_in(a, 12))
        block_for(100 * US);
    atomic_fetch_sub(&inside[i], 1);
    MUST_BE(gs_mutex_unlock(&mutexes[i]), 0);
}

static void op_rwmutex(struct actor *a)
{
    if (one_in(a, 3)) {
        int r = gs_rwmutex_lock(&rw, soon(a, 2000));
        MUST_BE(r, 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        if (r != 0)
            return;
        if (atomic_fetch_add(&writers, 1) != 0 || readers != 0)
            WRONG("a writer isn't alone: %d writers, %d readers", writers, readers);
        written[0]++;
        if (one_in(a, 4))
            gs_yield();
        written[1]++;
        atomic_fetch_sub(&writers, 1);
        MUST_BE(gs_rwmutex_unlock(&rw), 0);
    } else {
        int r = gs_rwmutex_rlock(&rw, soon(a, 2000));
        MUST_BE(r, 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        if (r != 0)
            return;
        atomic_fetch_add(&readers, 1);
        if (writers != 0 || written[0] != written[1])
            WRONG("a reader is beside a writer");
        if (one_in(a, 2))
            gs_yield();
        atomic_fetch_sub(&readers, 1);
        MUST_BE(gs_rwmutex_runlock(&rw), 0);
    }
}

static void op_sem(struct actor *a)
{
    int n = 1 + rnd(a, 3);
    int r = gs_sem_acquire(&sem, n, soon(a, 1000));
    MUST_BE(r, 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    if (r != 0)
        return;
    if (atomic_fetch_add(&taken, n) + n > UNITS)
        WRONG("%d units of %d are taken", taken, UNITS);
    if (one_in(a, 2))
        gs_yield();
    atomic_fetch_sub(&taken, n);
    MUST_BE(gs_sem_release(&sem, n), 0);
}

/* A token is taken by one waiter; the mutex is held after each wait, whatever it gives. */
static void op_cond(struct actor *a)
{
    int r = gs_mutex_lock(&cond_mutex, gs_after_ms(20));
    MUST_BE(r, 0, -ETIMEDOUT, -ECANCELED);
    if (r != 0)
        return;
    MUST(!atomic_exchange(&cond_held, true));
    if (one_in(a, 2)) {
        int64_t deadline = gs_after_us(rnd(a, 1000));
        r = 0;
        while (tokens == 0 && r == 0) {
            atomic_store(&cond_held, false);
            r = gs_cond_wait(&cond, &cond_mutex, deadline);
            MUST_BE(r, 0, -ETIMEDOUT, -ECANCELED);
            MUST(!atomic_exchange(&cond_held, true));
        }
        if (tokens > 0)
            tokens--;
    } else {
        tokens++;
        MUST_BE(one_in(a, 3) ? gs_cond_broadcast(&cond) : gs_cond_signal(&cond), 0);
    }
    atomic_store(&cond_held, false);
    MUST_BE(gs_mutex_unlock(&cond_mutex), 0);
}

struct crowd {
    gs_waitgroup wg;
    atomic_int came;
};

static void comes(void *arg)
{
    struct crowd *c = arg;
    gs_yield();
    atomic_fetch_add(&c->came, 1);
    MUST_BE(gs_waitgroup_done(&c->wg), 0);
}

static void op_waitgroup(struct actor *a)
{
    struct crowd c;
    int n = rnd(a, 4), r;
    memset(&c, 0, sizeof c);
    MUST_BE(gs_waitgroup_add(&c.wg, n), 0);
    for (int i = 0; i < n; i++)
        MUST_BE(AGAIN(gs_spawn(comes, &c)), 0);
    (void)gs_waitgroup_wait(&c.wg, soon(a, 100));
    while ((r = gs_waitgroup_wait(&c.wg, GS_FOREVER)) == -ECANCELED)
        before_it_waits_again(a);
    MUST_BE(r, 0);
    MUST_BE(c.came, n);
}

struct first {
    gs_once once;
    gs_waitgroup wg;
    int done;
};

static void does_once(void *arg)
{
    struct first *f = arg;
    gs_yield();
    f->done++;
}

static void tries_once(void *arg)
{
    struct first *f = arg;
    MUST_BE(gs_once_do(&f->once, does_once, f), 0);
    MUST_BE(f->done, 1);
    MUST_BE(gs_waitgroup_done(&f->wg), 0);
}

static void op_once(struct actor *a)
{
    struct first f;
    int n = rnd(a, 3), r;
    memset(&f, 0, sizeof f);
    MUST_BE(gs_waitgroup_add(&f.wg, n), 0);
    for (int i = 0; i < n; i++)
        MUST_BE(AGAIN(gs_spawn(tries_once, &f)), 0);
    MUST_BE(r = gs_once_do(&f.once, does_once, &f), 0, -ECANCELED);
    if (r == 0)
        MUST_BE(f.done, 1);
    while (gs_waitgroup_wait(&f.wg, GS_FOREVER) == -ECANCELED)
        before_it_waits_again(a);
}

int sync_check(void *unused)
{
    (void)unused;
    for (int i = 0; i < MUTEXES; i++)
        if (inside[i] > 1)
            return 1;
    return writers > 1 || (writers == 1 && readers > 0) || taken > UNITS;
}

/* What a bubble that has ended early left. */
static void forget_holders(void)
{
    memset(mutexes, 0, sizeof mutexes);
    memset(inside, 0, sizeof inside);
    memset(&rw, 0, sizeof rw);
    readers = writers = taken = 0;
    written[0] = written[1] = 0;
    memset(&cond, 0, sizeof cond);
    memset(&cond_mutex, 0, sizeof cond_mutex);
    cond_held = false;
}

void sync_begin(void)
{
    if (in_bubble)
        forget_holders();
    for (int i = 0; i < MUTEXES; i++)
        counted[i] = 0, entered[i] = 0;
    memset(&sem, 0, sizeof sem);
    MUST_BE(gs_sem_init(&sem, UNITS), 0);
    tokens = 0;
}

void sync_end(void)
{
    for (int i = 0; i < MUTEXES; i++) {
        MUST_BE(gs_mutex_trylock(&mutexes[i]), 0);
        MUST_BE(gs_mutex_unlock(&mutexes[i]), 0);
        if (counted[i] != entered[i])
            WRONG("mutex %d: counted %ld, entered %ld", i, counted[i], (long)entered[i]);
    }
    MUST_BE(gs_rwmutex_lock(&rw, GS_NOWAIT), 0);
    MUST_BE(gs_rwmutex_unlock(&rw), 0);
    MUST_BE(gs_sem_acquire(&sem, UNITS, GS_NOWAIT), 0);
    MUST_BE(gs_mutex_trylock(&cond_mutex), 0);
    MUST_BE(gs_mutex_unlock(&cond_mutex), 0);
}

const struct op ops_sync[] = {
    {"mutex", op_mutex, 6, NO_LOCKS},
    {"rwmutex", op_rwmutex, 4, NO_LOCKS},
    {"sem", op_sem, 3, NO_LOCKS},
    {"cond", op_cond, 4, NO_LOCKS},
    {"waitgroup", op_waitgroup, 2, SHALLOW | NOT_IDLE},
    {"once", op_once, 2, SHALLOW | NOT_IDLE},
    {NULL, NULL, 0, 0},
};
