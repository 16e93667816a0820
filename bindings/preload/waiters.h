/* The table of waiters, keyed by the address they wait for. README.md has the protocols. */

#ifndef GOSCHED_PRELOAD_WAITERS_H
#define GOSCHED_PRELOAD_WAITERS_H

#include "base.h"

enum what { MUTEX, MUTEX_DELEGATE, COND, READER, WRITER, SEMAPHORE, FUTEX };

struct waiter {
    struct waiter *next, *prev;
    const void *addr;
    enum what what;
    uint32_t bits;     /* for a FUTEX: the wake-ups that it waits for */
    gs_g *g;           /* NULL: the waiter blocks its thread on `woken` */
    atomic_uint woken; /* 1: a waker has taken the waiter off the table */
    bool at_rest;
};

struct bucket {
    atomic_uint lock;
    atomic_uint waiting;
    struct waiter first; /* head of a ring; next is NULL before its first use */
} __attribute__((aligned(64)));

struct bucket *bucket_of(const void *addr);
/* Whether a waiter may be waiting for the address. Called after a locked instruction on the object. */
static inline bool has_waiters(const void *addr)
{
    return atomic_load_explicit(&bucket_of(addr)->waiting, memory_order_relaxed) != 0;
}
void bucket_lock(struct bucket *b);
bool bucket_try_lock(struct bucket *b);
void bucket_unlock(struct bucket *b);
/* Adds the waiter to the table. Called with the bucket locked. */
void enqueue(struct bucket *b, struct waiter *w, bool first_of_all);
void dequeue(struct bucket *b, struct waiter *w);
/*
 * Unlocks the bucket, which has the waiter, and waits until the waiter is woken: true. False: the deadline passed
 * first, and the waiter is off the table.
 */
bool park(struct bucket *b, struct waiter *w, gs_deadline deadline);
/* Wakes up to n waiters for the address, in order; returns how many. For a FUTEX: those that wait for one of the
   bits. */
unsigned wake_some(const void *addr, unsigned n, uint32_t bits);
static inline unsigned wake(const void *addr, unsigned n)
{
    return wake_some(addr, n, UINT32_MAX);
}
/* Wakes the waiters that can share the lock: the readers before the first writer, or the first writer. */
void wake_lockers(const void *addr);
/* Takes a waiter off the table and wakes it. Called with the bucket locked. */
void wake_waiter(struct bucket *b, struct waiter *w);
/* Waits in the kernel while the word has the value, until a wake-up or the deadline, or ends for no reason. futex_wake
 * wakes up to n such threads. The word is this process's alone. */
void futex_wait(const void *word, unsigned value, gs_deadline deadline);
void futex_wake(const void *word, int n);

#endif
