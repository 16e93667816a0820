/*
 * One call on a stream: whether this thread or another calls libc's function. streams.c says how that is decided.
 */

#ifndef GOSCHED_PRELOAD_STREAMS_H
#define GOSCHED_PRELOAD_STREAMS_H

#include "holds.h"

#include <stdio_ext.h>

struct call {
    FILE *f;
    struct counts *tally;
    struct hold *hold;
    bool locks;     /* the function locks the stream itself, not its caller */
    bool lends;     /* the goroutine has the lock by flockfile, and lends it to the thread that calls */
    bool locked;
    bool in_kernel; /* the P is given away meanwhile */
    bool announced;
};

enum where {
    HERE,  /* this thread calls libc's function: the stream may be locked meanwhile */
    THERE, /* another thread calls libc's function */
    ENDS,  /* the call has failed, and errno says why */
    WAITS, /* only within streams.c: the caller waits, and decides again */
};

/* Begins a call, until end_call. `locks`: the function locks the stream itself. The goroutine has the stream
   meanwhile. */
struct call begin_call(FILE *f, bool locks, struct counts *c);
/* Ends a call. errno stays. */
void end_call(struct call *c);

/* Tries to lock the stream, without waiting: another thread may have the lock in a read that waits. */
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
    /* A goroutine that isn't pinned may have moved to another thread. */
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

/* Calls libc's function on this thread. */
#define CALL_HERE(c, call) \
    __extension__({ \
        begin_here(c); \
        __typeof__(call) here_ = (call); \
        end_here(c); \
        here_; \
    })

/* wait_elsewhere, after unlocking the stream or lending its lock. */
long call_there(struct call *c, void (*f)(void), const long args[6]);
#define CALL_THERE(c, f, args) (__typeof__(f args))call_there(c, (void (*)(void))(f), (const long[6]){LONGS args})

struct output {
    size_t n;       /* bytes; NOT_KNOWN: not known */
    bool ends_line; /* the end of a line may be among the bytes */
    bool flushes;   /* the buffer is to be empty after the call */
};
#define NOT_KNOWN (SIZE_MAX / 2)

/* Whether the call writes nothing to a file, or fails. */
bool needs_no_write(FILE *f, const struct output *o);
/* Decides, after a wait if need be, where to make a call that writes. Called with the stream locked; after a wait it is
   unlocked. errno stays, unless the call ENDS. */
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

/* Writes out the buffer. Returns 0 or EOF, as fflush. */
int flush_stream(FILE *f, bool locks, struct counts *c);

enum need {
    ONE,   /* a byte */
    BYTES, /* n bytes */
    LINE,  /* n bytes, or the bytes up to `last` */
    ITEMS, /* only libc's function can tell */
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

/* Decides, after a wait if need be, where to make a call that reads. Called with the stream locked; after a wait it is
   unlocked. errno stays, unless the call ENDS. */
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

/* For calls that neither read nor write, and only need the lock. */
static inline enum where to_lock(struct call *c)
{
    return lock_stream(c) ? HERE : THERE;
}

#endif
