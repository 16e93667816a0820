/*
 * One call on a stream: whether libc's function is called here or by another thread. streams.c says how that is decided.
 */

#ifndef GOSCHED_PRELOAD_STREAMS_H
#define GOSCHED_PRELOAD_STREAMS_H

#include "holds.h"

#include <stdio_ext.h>

struct call {
    FILE *f;
    struct counts *tally;
    struct hold *hold;
    bool locks;     /* it is not one of the functions whose callers lock */
    bool lends;     /* the calling goroutine has the lock by flockfile: the thread that makes the call gets it on loan */
    bool locked;
    bool in_kernel; /* the P is given away meanwhile */
    bool announced;
};

enum where {
    HERE,  /* libc's function is to be called, on this thread: the stream may be locked meanwhile */
    THERE, /* the same on another thread */
    ENDS,  /* the call has failed, and errno says why */
    WAITS, /* only within streams.c: the caller waits, and looks again */
};

/* Around one call. `locks`: it is not one of the functions whose callers lock. The goroutine has the stream meanwhile. */
struct call begin_call(FILE *f, bool locks, struct counts *c);
/* errno stays. */
void end_call(struct call *c);

/* Without waiting: another thread may have the lock in a read that waits. */
static inline bool lock_stream(struct call *c)
{
    if (!c->locks || (c->f->_flags & _IO_USER_LOCK))
        return true;
    c->locked = real.ftrylockfile(c->f) == 0;
    return c->locked;
}

static inline void unlock_stream(struct call *c)
{
    if (c->locked)
        real.funlockfile(c->f);
    c->locked = false;
}

static inline void begin_here(struct call *c)
{
    c->announced = c->in_kernel && can_park();
    if (!c->announced)
        return;
    gs_entersyscall();
    /* A goroutine that isn't pinned may have been moved to another thread. */
    if (c->locked || c->lends)
        own_lock(c->f);
    if (debug)
        count_handed_off(c->tally);
}

static inline void end_here(struct call *c)
{
    if (c->announced)
        gs_exitsyscall(); /* leaves errno as it is */
}

/* libc's function on this thread. */
#define CALL_HERE(c, call) \
    __extension__({ \
        begin_here(c); \
        __typeof__(call) here_ = (call); \
        end_here(c); \
        here_; \
    })

/* As wait_elsewhere, with the stream unlocked before, or its lock on loan. */
long call_there(struct call *c, void (*f)(void), const long args[6]);
#define CALL_THERE(c, f, args) (__typeof__(f args))call_there(c, (void (*)(void))(f), (const long[6]){LONGS args})

struct output {
    size_t n;       /* bytes; NOT_KNOWN: it can't be known */
    bool ends_line; /* there may be the end of a line among them */
    bool flushes;   /* the buffer is to be empty afterwards */
};
#define NOT_KNOWN (SIZE_MAX / 2)

/* Whether the call writes nothing to a file, or fails. */
bool needs_no_write(FILE *f, const struct output *o);
/* With the stream locked, which it isn't any more if this function has waited. errno stays, unless the call ENDS. */
enum where wait_to_write(struct call *c, const struct output *o);

static inline enum where to_write(struct call *c, struct output o)
{
    if (!lock_stream(c))
        return THERE;
    return needs_no_write(c->f, &o) ? HERE : wait_to_write(c, &o);
}

static inline struct output some(size_t n, bool ends_line)
{
    return (struct output){.n = n, .ends_line = ends_line};
}

static inline struct output string(const char *s)
{
    return some(strlen(s), strchr(s, '\n') != NULL);
}

static const struct output unknown = {.n = NOT_KNOWN, .ends_line = true}, flush = {.flushes = true};

/* Writes what is in the buffer. 0 or EOF, as fflush. */
int flush_stream(FILE *f, bool locks, struct counts *c);

enum need {
    ONE,   /* a byte */
    BYTES, /* n bytes */
    LINE,  /* n bytes, or those up to `last` */
    ITEMS, /* only libc's function finds out */
    WIDE,  /* one wide character */
};

struct input {
    enum need need;
    size_t n;
    int last;
};

/* Whether the call finds what it needs in the stream's buffer, or is at the end of the file. */
bool has_enough(FILE *f, const struct input *in);
/* Whether the call reads nothing from a file, or fails. */
static inline bool needs_no_read(FILE *f, const struct input *in)
{
    return f->_fileno < 0 || !__freadable(f) || has_enough(f, in);
}

/* With the stream locked, which it isn't any more if this function has waited. errno stays, unless the call ENDS. */
enum where wait_to_read(struct call *c, const struct input *in);

static inline enum where to_read(struct call *c, struct input in)
{
    if (!lock_stream(c))
        return THERE;
    return needs_no_read(c->f, &in) ? HERE : wait_to_read(c, &in);
}

static inline struct input bytes(size_t size, size_t n)
{
    struct input in = {.need = BYTES};
    if (__builtin_mul_overflow(size, n, &in.n))
        in.n = SIZE_MAX;
    return in;
}

static inline struct input line(int n, int last)
{
    return (struct input){.need = LINE, .n = n > 0 ? (size_t)n - 1 : 0, .last = last};
}

static inline struct input a_line_of_any_length(int last)
{
    return (struct input){.need = LINE, .n = SIZE_MAX, .last = last};
}

static const struct input one = {.need = ONE}, some_items = {.need = ITEMS}, wide = {.need = WIDE};

/* Neither: the call only needs the lock. */
static inline enum where to_lock(struct call *c)
{
    return lock_stream(c) ? HERE : THERE;
}

#endif
