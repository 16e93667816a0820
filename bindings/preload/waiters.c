/*
 * The table of waiters by address: goroutines, and the threads of goroutines that can't park. README.md has the
 * protocols; this file says which thread takes a waiter out of the table. A waiter is on its owner's stack. A waker
 * does all its work on the waiter with the bucket's lock held, gs_ready included. So a waiter whose deadline has passed
 * takes the lock, and sees in `woken` whether it was also woken. After that no other thread touches it.
 */
#include "waiters.h"
#include "parts.h"
#include "times.h"

#include <linux/futex.h>

enum { BUCKETS = 1024 };
static struct bucket buckets[BUCKETS];

struct bucket *bucket_of(const void *addr)
{
    /* Fibonacci hashing: objects are mostly 40 or 48 bytes apart. */
    return &buckets[((uintptr_t)addr >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> 54];
}

/*
 * Tries to lock the bucket. The goroutine that holds the lock is not preempted, so spinning waiters wait only for an
 * instant. gs_ready, which is called with the lock held, doesn't switch.
 */
bool bucket_try_lock(struct bucket *b)
{
    unsigned free = 0;
    gs_preempt_disable();
    if (atomic_load_explicit(&b->lock, memory_order_relaxed) == 0
        && atomic_compare_exchange_strong_explicit(&b->lock, &free, 1, memory_order_acquire, memory_order_relaxed)) {
        if (b->first.next == NULL)
            b->first.next = b->first.prev = &b->first;
        return true;
    }
    gs_preempt_enable();
    return false;
}

void bucket_lock(struct bucket *b)
{
    for (unsigned i = 1; !bucket_try_lock(b); i++) {
        if (i % 64 == 0)
            spin();
        else
            __builtin_ia32_pause();
    }
}

void bucket_unlock(struct bucket *b)
{
    atomic_store_explicit(&b->lock, 0, memory_order_release);
    gs_preempt_enable();
}

void enqueue(struct bucket *b, struct waiter *w, bool first_of_all)
{
    struct waiter *next = first_of_all ? b->first.next : &b->first;
    w->next = next;
    w->prev = next->prev;
    next->prev->next = w;
    next->prev = w;
    /* A locked instruction: README.md says what it orders. */
    atomic_fetch_add(&b->waiting, 1);
}

void dequeue(struct bucket *b, struct waiter *w)
{
    w->prev->next = w->next;
    w->next->prev = w->prev;
    atomic_fetch_sub_explicit(&b->waiting, 1, memory_order_relaxed);
}

void futex_wait(const void *word, unsigned value, gs_deadline deadline)
{
    struct timespec until = {.tv_sec = deadline / NS_PER_S, .tv_nsec = deadline % NS_PER_S};
    raw_syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline == GS_FOREVER ? NULL : &until, NULL,
                FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(const void *word, int n)
{
    raw_syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

struct parking {
    struct bucket *bucket;
    struct waiter *waiter;
};

/* Unlocks the bucket. Called on another stack: the goroutine is at rest, and may be woken. */
static bool unlock_at_rest(gs_g *g, void *arg)
{
    struct parking *p = arg;
    if (g == NULL)
        return false; /* the caller is no goroutine that can park */
    p->waiter->g = g;
    p->waiter->at_rest = true;
    /* Not bucket_unlock: this context has not disabled preemption. */
    atomic_store_explicit(&p->bucket->lock, 0, memory_order_release);
    return true;
}

bool park(struct bucket *b, struct waiter *w, gs_deadline deadline)
{
    struct parking parking = {b, w};
    bool in_time = true;
    gs_cancel_disable();
    while (atomic_load(&w->woken) == 0 && in_time) {
        w->g = NULL;
        w->at_rest = false;
        int r = gs_park(unlock_at_rest, &parking, deadline);
        if (w->at_rest) {
            gs_preempt_enable();
        } else if (r == -EAGAIN || r == -ETIMEDOUT) {
            in_time = false;
            break; /* the word is still locked */
        } else {
            /* The thread waits: during a system call, or if there is no memory for the deadline. */
            bucket_unlock(b);
            while (atomic_load(&w->woken) == 0 && (deadline == GS_FOREVER || gs_now() < deadline))
                futex_wait(&w->woken, 0, deadline);
            r = -ETIMEDOUT;
        }
        bucket_lock(b);
        in_time = r == 0;
    }
    gs_cancel_enable();
    bool woken = atomic_load(&w->woken) != 0;
    if (!woken)
        dequeue(b, w);
    bucket_unlock(b);
    return woken;
}

void wake_waiter(struct bucket *b, struct waiter *w)
{
    gs_g *g = w->g;
    dequeue(b, w);
    atomic_store(&w->woken, 1);
    if (g != NULL)
        gs_ready(g);
    else
        futex_wake(&w->woken, INT_MAX);
}

unsigned wake_some(const void *addr, unsigned n, uint32_t bits)
{
    struct bucket *b = bucket_of(addr);
    unsigned woken = 0;
    bucket_lock(b);
    for (struct waiter *w = b->first.next, *next; w != &b->first && woken < n; w = next) {
        next = w->next;
        bool wanted = w->what == FUTEX ? (w->bits & bits) != 0 : w->what != MUTEX_DELEGATE;
        if (w->addr == addr && wanted) {
            wake_waiter(b, w);
            woken++;
        }
    }
    bucket_unlock(b);
    return woken;
}

void wake_lockers(const void *addr)
{
    struct bucket *b = bucket_of(addr);
    bool reader = false;
    bucket_lock(b);
    for (struct waiter *w = b->first.next, *next; w != &b->first; w = next) {
        next = w->next;
        if (w->addr != addr)
            continue;
        if (w->what == WRITER && reader)
            break;
        reader = w->what == READER;
        wake_waiter(b, w);
        if (!reader)
            break;
    }
    bucket_unlock(b);
}

void waiters_in_child(void)
{
    memset(buckets, 0, sizeof buckets);
}
