/*
 * Stream locks that goroutines keep while they may park: flockfile and its kin, and streams of fopencookie. The lock of
 * a stream belongs to the thread, and lets in every goroutine of that thread.
 */
#include "holds.h"

#include "parts.h"

bool lock_is_known;

void holds_start(void)
{
    real.flockfile(stderr);
    lock_is_known = lock_of(stderr)->word == 1 && lock_of(stderr)->owner == (void *)pthread_self();
    real.funlockfile(stderr);
}

enum { HOLD_BUCKETS = 64 };
static struct hold_bucket {
    atomic_uint lock;
    struct hold *first;
} hold_buckets[HOLD_BUCKETS];
static atomic_uint holds; /* in the table: mostly none */

static struct hold_bucket *hold_bucket(const FILE *f)
{
    return &hold_buckets[((uintptr_t)f >> 4) % HOLD_BUCKETS];
}

void holds_in_child(void)
{
    memset(hold_buckets, 0, sizeof hold_buckets);
    atomic_store(&holds, 0);
}

struct hold *hold_enter(FILE *f, bool makes)
{
    if (!makes && atomic_load_explicit(&holds, memory_order_relaxed) == 0)
        return NULL;
    struct hold_bucket *b = hold_bucket(f);
    struct hold *h, *fresh = makes ? calloc(1, sizeof *fresh) : NULL; /* before the lock: malloc may be the program's */
    spin_lock(&b->lock);
    for (h = b->first; h != NULL && h->f != f; h = h->next)
        ;
    if (h == NULL && fresh != NULL) {
        h = fresh;
        fresh = NULL;
        *h = (struct hold){.next = b->first, .f = f, .is_listed = true};
        b->first = h;
        atomic_fetch_add(&holds, 1);
    }
    if (h != NULL)
        h->users++;
    spin_unlock(&b->lock);
    free(fresh);
    return h;
}

/* Called with the bucket locked. */
static void take_off_the_list(struct hold_bucket *b, struct hold *h)
{
    struct hold **at = &b->first;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    h->is_listed = false;
    atomic_fetch_sub(&holds, 1);
}

static void hold_leave(struct hold *h)
{
    struct hold_bucket *b = hold_bucket(h->f);
    spin_lock(&b->lock);
    bool last = --h->users == 0;
    if (last && h->is_listed)
        take_off_the_list(b, h);
    spin_unlock(&b->lock);
    if (last)
        free(h);
}

void hold_take(struct hold *h)
{
    if (!is_held_by_caller(h)) {
        gs_cancel_disable();
        gs_mutex_lock(&h->mutex, GS_FOREVER);
        gs_cancel_enable();
        atomic_store_explicit(&h->by, gs_self(), memory_order_relaxed);
    }
    h->depth++;
}

void hold_give_back(struct hold *h)
{
    if (--h->depth == 0) {
        atomic_store_explicit(&h->by, NULL, memory_order_relaxed);
        gs_mutex_unlock(&h->mutex);
    }
    hold_leave(h);
}

EXPORT void flockfile(FILE *f)
{
    COUNTED(flockfile);
    if (!TAKEN) {
        real.flockfile(f);
        return;
    }
    int before = errno;
    struct hold *h = hold_enter(f, true);
    if (h != NULL) {
        if (is_held_by_caller(h))
            own_lock(f);
        hold_take(h);
    }
    if (real.ftrylockfile(f) != 0) { /* a thread has the lock */
        wait_elsewhere((void (*)(void))real.flockfile, (const long[6]){(long)f}, &counts);
        own_lock(f);
    }
    errno = before;
}

EXPORT int ftrylockfile(FILE *f)
{
    if (!TAKEN)
        return real.ftrylockfile(f);
    int before = errno, busy = 0;
    struct hold *h = hold_enter(f, true);
    if (is_held_by_caller(h)) {
        own_lock(f);
        h->depth++;
    } else if (h != NULL && gs_mutex_trylock(&h->mutex) != 0) {
        hold_leave(h);
        h = NULL;
        busy = EBUSY;
    } else if (h != NULL) {
        atomic_store_explicit(&h->by, gs_self(), memory_order_relaxed);
        h->depth = 1;
    }
    if (busy == 0) {
        busy = real.ftrylockfile(f);
        if (busy != 0 && h != NULL)
            hold_give_back(h);
    }
    errno = before;
    return busy;
}

EXPORT void funlockfile(FILE *f)
{
    int before = errno;
    struct hold *h = TAKEN ? hold_enter(f, false) : NULL;
    bool holds_it = is_held_by_caller(h);
    if (holds_it)
        own_lock(f);
    real.funlockfile(f);
    if (h != NULL)
        hold_leave(h);
    if (holds_it)
        hold_give_back(h); /* ends the hold_enter of flockfile */
    errno = before;
}

/* Its callbacks may park with the stream's lock held. */
EXPORT FILE *fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions)
{
    FILE *f = real.fopencookie(cookie, mode, functions);
    struct hold *h = f != NULL && gs_self ? hold_enter(f, true) : NULL;
    if (h != NULL)
        h->has_callbacks = true;
    return f;
}

void forget_callbacks(FILE *f)
{
    struct hold *h = hold_enter(f, false);
    if (h == NULL)
        return;
    struct hold_bucket *b = hold_bucket(f);
    spin_lock(&b->lock);
    if (h->has_callbacks) {
        h->has_callbacks = false;
        h->users--;
        take_off_the_list(b, h);
    }
    spin_unlock(&b->lock);
    hold_leave(h);
}
