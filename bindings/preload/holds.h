/* Streams that a goroutine keeps from others while it may park: see holds.c. */

#ifndef GOSCHED_PRELOAD_HOLDS_H
#define GOSCHED_PRELOAD_HOLDS_H

#include "calls.h"

/* glibc's flags of a stream that struct_FILE.h lacks. */
enum { UNBUFFERED = 0x2, IN_BACKUP = 0x100, LINE_BUFFERED = 0x200, WRITING = 0x800 };

/* glibc's lock of a stream. */
struct stream_lock {
    int word, count;
    void *owner; /* the thread, as pthread_self's value */
};
extern bool lock_is_known; /* glibc's lock is as described above */

static inline struct stream_lock *lock_of(FILE *f)
{
    return f->_lock;
}

/* An entry of a stream in a table by address, kept while goroutines have the stream or wait for it. */
struct hold {
    struct hold *next;
    FILE *f;
    unsigned users;
    bool has_callbacks; /* from fopencookie: then the open stream is one of the users */
    bool is_listed;
    gs_mutex mutex;
    gs_g *_Atomic by; /* the goroutine that has the mutex */
    unsigned depth;   /* how many times it has the mutex */
};

/* Returns the stream's hold, with the caller as one more user. NULL: there is none, and `makes` is false or there is no
   memory. */
struct hold *hold_enter(FILE *f, bool makes);
/* Waits until no other goroutine has the stream, and takes it. */
void hold_take(struct hold *h);
/* Gives the stream back after hold_take. The caller is a user no more. */
void hold_give_back(struct hold *h);
/* Whether the caller has the stream. `h` may be NULL. */
static inline bool is_held_by_caller(struct hold *h)
{
    return h != NULL && atomic_load_explicit(&h->by, memory_order_relaxed) == gs_self();
}

/* Makes the calling thread the lock's owner: the goroutine that holds the stream may have changed threads since it took
   the lock. */
static inline void own_lock(FILE *f)
{
    if (lock_is_known)
        lock_of(f)->owner = (void *)pthread_self();
}

/* Forgets a stream of fopencookie before it is closed: its address may soon be another stream's. */
void forget_callbacks(FILE *f);

#endif
