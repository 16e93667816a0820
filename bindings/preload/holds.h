/* Streams that a goroutine keeps from the others while it may park: see holds.c. */

#ifndef GOSCHED_PRELOAD_HOLDS_H
#define GOSCHED_PRELOAD_HOLDS_H

#include "calls.h"

/* glibc's flags of a stream, in addition to those that struct_FILE.h has. */
enum { UNBUFFERED = 0x2, IN_BACKUP = 0x100, LINE_BUFFERED = 0x200, WRITING = 0x800 };

/* glibc's lock of a stream. */
struct stream_lock {
    int word, count;
    void *owner; /* the thread: what pthread_self gives */
};
extern bool lock_is_known; /* it is as described above */

static inline struct stream_lock *lock_of(FILE *f)
{
    return f->_lock;
}

/* In a table by the stream's address, as long as there are users: goroutines that have it or wait for it. */
struct hold {
    struct hold *next;
    FILE *f;
    unsigned users;
    bool has_callbacks; /* of fopencookie: then the open stream is one of the users */
    bool is_listed;
    gs_mutex mutex;
    gs_g *_Atomic by; /* has the mutex */
    unsigned depth;   /* how many times */
};

/* The stream's hold, with the caller as one more user. NULL: there is none, and `makes` is false or there is no memory. */
struct hold *hold_enter(FILE *f, bool makes);
/* Waits until no other goroutine has it. */
void hold_take(struct hold *h);
/* After hold_take. The caller is no user any more. */
void hold_give_back(struct hold *h);
/* `h` may be NULL. */
static inline bool is_held_by_caller(struct hold *h)
{
    return h != NULL && atomic_load_explicit(&h->by, memory_order_relaxed) == gs_self();
}

/* The calling goroutine, which holds the stream, may have come to another thread since the lock was taken. */
static inline void own_lock(FILE *f)
{
    if (lock_is_known)
        lock_of(f)->owner = (void *)pthread_self();
}

/* Before a stream of fopencookie is closed: its address may be another stream's soon. */
void forget_callbacks(FILE *f);

#endif
