/*
 * Streams: getline, fprintf and the rest of stdio. libc reads and writes the file of a stream within itself, where nothing
 * can park. So each call is looked at first:
 *
 *   - A call that finds in the stream's buffer what it reads, or room for what it writes, is libc's.
 *   - A call that has to read into the empty buffer waits until poll says that one read won't wait. Then it is libc's.
 *   - A call that may need more than that (the rest of a line that has come in part) is made by another thread.
 *
 * The lock of a stream belongs to the thread, and lets in every goroutine of that thread. So goroutines park without the lock,
 * except between flockfile and funlockfile, and in callbacks of fopencookie. Such a stream has a struct hold.
 */
#include "preload.h"

#include <stdio_ext.h>

/* glibc's flags of a stream, in addition to those that struct_FILE.h has. */
enum { UNBUFFERED = 0x2, IN_BACKUP = 0x100, LINE_BUFFERED = 0x200, WRITING = 0x800 };

/* glibc's lock of a stream. */
struct stream_lock {
    int word, count;
    void *owner; /* the thread: what pthread_self gives */
};

static bool lock_is_known; /* it is as described above */

static struct stream_lock *lock_of(FILE *f)
{
    return f->_lock;
}

void streams_start(void)
{
    real.flockfile(stderr);
    lock_is_known = lock_of(stderr)->word == 1 && lock_of(stderr)->owner == (void *)pthread_self();
    real.funlockfile(stderr);
}

/* Streams that a goroutine keeps from the others while it may park. */

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

void streams_in_child(void)
{
    memset(hold_buckets, 0, sizeof hold_buckets);
    atomic_store(&holds, 0);
}

/* The stream's hold, with the caller as one more user. NULL: there is none, and `makes` is false or there is no memory. */
static struct hold *enter(FILE *f, bool makes)
{
    if (!makes && atomic_load_explicit(&holds, memory_order_relaxed) == 0)
        return NULL;
    struct hold_bucket *b = hold_bucket(f);
    struct hold *h, *fresh = makes ? calloc(1, sizeof *fresh) : NULL; /* not with the lock held: malloc may be the program's */
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

/* With the bucket locked. */
static void take_off_the_list(struct hold_bucket *b, struct hold *h)
{
    struct hold **at = &b->first;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    h->is_listed = false;
    atomic_fetch_sub(&holds, 1);
}

static void leave(struct hold *h)
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

static bool is_held_by_caller(struct hold *h)
{
    return h != NULL && atomic_load_explicit(&h->by, memory_order_relaxed) == gs_self();
}

/* Waits until no other goroutine has it. */
static void take(struct hold *h)
{
    if (!is_held_by_caller(h)) {
        gs_cancel_disable();
        gs_mutex_lock(&h->mutex, GS_FOREVER);
        gs_cancel_enable();
        atomic_store_explicit(&h->by, gs_self(), memory_order_relaxed);
    }
    h->depth++;
}

static void give_back(struct hold *h)
{
    if (--h->depth == 0) {
        atomic_store_explicit(&h->by, NULL, memory_order_relaxed);
        gs_mutex_unlock(&h->mutex);
    }
    leave(h);
}

/* The calling goroutine, which holds the stream, may have come to another thread since the lock was taken. */
static void own_lock(FILE *f)
{
    if (lock_is_known)
        lock_of(f)->owner = (void *)pthread_self();
}

EXPORT void flockfile(FILE *f)
{
    COUNTED(flockfile);
    if (!TAKEN) {
        real.flockfile(f);
        return;
    }
    int before = errno;
    struct hold *h = enter(f, true);
    if (h != NULL) {
        if (is_held_by_caller(h))
            own_lock(f);
        take(h);
    }
    if (real.ftrylockfile(f) != 0) { /* a thread has it */
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
    struct hold *h = enter(f, true);
    if (is_held_by_caller(h)) {
        own_lock(f);
        h->depth++;
    } else if (h != NULL && gs_mutex_trylock(&h->mutex) != 0) {
        leave(h);
        h = NULL;
        busy = EBUSY;
    } else if (h != NULL) {
        atomic_store_explicit(&h->by, gs_self(), memory_order_relaxed);
        h->depth = 1;
    }
    if (busy == 0) {
        busy = real.ftrylockfile(f);
        if (busy != 0 && h != NULL)
            give_back(h);
    }
    errno = before;
    return busy;
}

EXPORT void funlockfile(FILE *f)
{
    int before = errno;
    struct hold *h = TAKEN ? enter(f, false) : NULL;
    bool holds_it = is_held_by_caller(h);
    if (holds_it)
        own_lock(f);
    real.funlockfile(f);
    if (h != NULL)
        leave(h);
    if (holds_it)
        give_back(h); /* what flockfile has entered */
    errno = before;
}

/* The callbacks may park, with the stream's lock held. */
EXPORT FILE *fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions)
{
    FILE *f = real.fopencookie(cookie, mode, functions);
    struct hold *h = f != NULL && gs_self ? enter(f, true) : NULL;
    if (h != NULL)
        h->has_callbacks = true;
    return f;
}

/* Before such a stream is closed: its address may be another stream's soon. */
static void forget_callbacks(FILE *f)
{
    struct hold *h = enter(f, false);
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
    leave(h);
}

/* One call */

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
    WAITS, /* only within this file: the caller waits, and looks again */
};

static struct call begin_call(FILE *f, bool locks, struct counts *c)
{
    struct call call = {.f = f, .tally = c, .locks = locks};
    if (locks && (call.hold = enter(f, false)) != NULL) {
        int before = errno;
        call.lends = is_held_by_caller(call.hold);
        if (call.lends)
            own_lock(f);
        take(call.hold);
        errno = before;
    }
    return call;
}

/* Without waiting: another thread may have the lock in a read that waits. */
static bool lock_stream(struct call *c)
{
    if (!c->locks || (c->f->_flags & _IO_USER_LOCK))
        return true;
    c->locked = real.ftrylockfile(c->f) == 0;
    return c->locked;
}

static void unlock_stream(struct call *c)
{
    if (c->locked)
        real.funlockfile(c->f);
    c->locked = false;
}

static void end_call(struct call *c)
{
    unlock_stream(c);
    if (c->hold != NULL) {
        int error = errno;
        give_back(c->hold);
        errno = error;
    }
}

static void begin_here(struct call *c)
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

static void end_here(struct call *c)
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

struct loan {
    struct stream_lock *lock;
    void (*f)(void);
    const long *args;
};

static long call_with_lock(struct loan *loan)
{
    const long *a = loan->args;
    void *owner = loan->lock->owner;
    loan->lock->owner = (void *)pthread_self();
    long result = ((long (*)(long, long, long, long, long, long))loan->f)(a[0], a[1], a[2], a[3], a[4], a[5]);
    loan->lock->owner = owner;
    return result;
}

static long call_there(struct call *c, void (*f)(void), const long args[6])
{
    unlock_stream(c);
    if (!c->lends || !lock_is_known)
        return wait_elsewhere(f, args, c->tally);
    struct loan loan = {lock_of(c->f), f, args};
    return wait_elsewhere((void (*)(void))call_with_lock, (const long[6]){(long)&loan}, c->tally);
}
#define CALL_THERE(c, f, args) (__typeof__(f args))call_there(c, (void (*)(void))(f), (const long[6]){LONGS args})

/* gs_cancel has ended a wait: as if the read or the write had failed. errno says so already. */
static enum where fail(struct call *c)
{
    c->f->_flags |= _IO_ERR_SEEN;
    return ENDS;
}

/* Writing */

struct output {
    size_t n;       /* bytes; UNKNOWN: it can't be known */
    bool ends_line; /* there may be the end of a line among them */
    bool flushes;   /* the buffer is to be empty afterwards */
};
#define UNKNOWN (SIZE_MAX / 2)

/* Every file that poll calls ready for writing has room for this number of bytes. */
enum { ROOM = 256 };

/* For how many bytes the file has room if poll calls it ready. */
static size_t room_when_ready(int fd)
{
    struct stat st;
    int size = 0;
    socklen_t n = sizeof size;
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
        return PIPE_BUF;
    /* A socket is ready if at least a third of its buffer is free. The buffer's size counts what the kernel adds to each message. */
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &n) == 0)
        return (size_t)size / 8;
    return ROOM;
}

static bool fits(FILE *f, const struct output *o)
{
    if (o->flushes)
        return __fpending(f) == 0;
    if (o->n == 0)
        return true;
    if ((f->_flags & UNBUFFERED) || !(f->_flags & WRITING) || f->_mode > 0)
        return false;
    if (f->_flags & LINE_BUFFERED)
        return !o->ends_line && o->n <= (size_t)(f->_IO_buf_end - f->_IO_write_ptr);
    return f->_IO_write_ptr < f->_IO_write_end && o->n <= (size_t)(f->_IO_write_end - f->_IO_write_ptr);
}

/* Whether the call writes nothing to a file, or fails. */
static bool needs_no_write(FILE *f, const struct output *o)
{
    return f->_fileno < 0 || !__fwritable(f) || fits(f, o);
}

/* The stream is locked. */
static enum where look_to_write(struct call *c, const struct output *o, bool waited)
{
    FILE *f = c->f;
    if (needs_no_write(f, o))
        return HERE;
    size_t n = o->n + __fpending(f);
    if (n <= ROOM && is_ready(f->_fileno, POLLOUT))
        return HERE;
    c->in_kernel = true;
    if (never_waits(f->_fileno))
        return HERE;
    if (n > room_when_ready(f->_fileno))
        return waited ? THERE : WAITS;
    return is_ready(f->_fileno, POLLOUT) ? HERE : WAITS;
}

/* With the stream locked, which it isn't any more if this function has waited. errno stays, unless the call ENDS. */
__attribute__((noinline)) static enum where wait_to_write(struct call *c, const struct output *o)
{
    int before = errno;
    enum where where = look_to_write(c, o, false);
    while (where == WAITS) {
        unlock_stream(c);
        switch (wait_until_ready(c->f->_fileno, POLLOUT, c->tally)) {
        case READY: where = lock_stream(c) ? look_to_write(c, o, true) : THERE; break;
        case NEVER_WAITS:
        case ONLY_CALL_WAITS: where = THERE; break;
        case ENDED: return fail(c);
        }
    }
    errno = before;
    return where;
}

static inline enum where to_write(struct call *c, struct output o)
{
    if (!lock_stream(c))
        return THERE;
    return needs_no_write(c->f, &o) ? HERE : wait_to_write(c, &o);
}

static struct output some(size_t n, bool ends_line)
{
    return (struct output){.n = n, .ends_line = ends_line};
}

static struct output string(const char *s)
{
    return some(strlen(s), strchr(s, '\n') != NULL);
}

static struct output items(FILE *f, const void *from, size_t size, size_t n)
{
    size_t bytes;
    if (__builtin_mul_overflow(size, n, &bytes) || bytes > UNKNOWN)
        bytes = UNKNOWN;
    return some(bytes, bytes < UNKNOWN && (f->_flags & LINE_BUFFERED) && memchr(from, '\n', bytes) != NULL);
}

static const struct output unknown = {.n = UNKNOWN, .ends_line = true}, flush = {.flushes = true};

static int flush_stream(FILE *f, bool locks, struct counts *c)
{
    struct call call = begin_call(f, locks, c);
    int value = EOF;
    switch (to_write(&call, flush)) {
    case HERE: value = CALL_HERE(&call, real.fflush_unlocked(f)); break;
    case THERE:
        value = locks ? CALL_THERE(&call, real.fflush, (f)) : CALL_THERE(&call, real.fflush_unlocked, (f));
        break;
    default: break;
    }
    end_call(&call);
    return value;
}

/* Reading */

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

/* The first of struct _IO_wide_data. */
struct wide_buffer {
    wchar_t *read_ptr, *read_end;
};

static size_t length(const char *from, const char *to)
{
    return to > from ? (size_t)(to - from) : 0;
}

/* Wide characters that have been read, and not been taken. */
static size_t wide_buffered(FILE *f)
{
    const struct wide_buffer *w = (const void *)f->_wide_data;
    return f->_mode > 0 && w->read_end > w->read_ptr ? (size_t)(w->read_end - w->read_ptr) : 0;
}

/* How much has been read, and not been taken. Behind what ungetc has put back there is the rest of the buffer. */
static size_t buffered(FILE *f)
{
    size_t n = length(f->_IO_read_ptr, f->_IO_read_end) + wide_buffered(f);
    return f->_flags & IN_BACKUP ? n + length(f->_IO_save_base, f->_IO_save_end) : n;
}

static bool has_enough(FILE *f, const struct input *in)
{
    size_t n = length(f->_IO_read_ptr, f->_IO_read_end);
    if (f->_mode > 0)
        n = 0;
    switch (in->need) {
    case ONE:
        if (buffered(f) > 0)
            return true;
        break;
    case BYTES:
        if (buffered(f) >= in->n)
            return true;
        if (in->n >= __fbufsize(f))
            return false; /* libc reads again, though it was at the end of the file */
        break;
    case LINE:
        if (n >= in->n || (n > 0 && memchr(f->_IO_read_ptr, in->last, n) != NULL))
            return true;
        break;
    case WIDE:
        if (wide_buffered(f) > 0)
            return true;
        break;
    case ITEMS: break;
    }
    return (f->_flags & _IO_EOF_SEEN) && buffered(f) == 0;
}

/* Reads once into the empty buffer. False: the read has failed. */
static bool fill(FILE *f)
{
    int failed_before = f->_flags & _IO_ERR_SEEN;
    f->_flags &= ~_IO_ERR_SEEN;
    bool failed = real.__underflow(f) == EOF && (f->_flags & _IO_ERR_SEEN);
    f->_flags |= failed_before;
    return !failed;
}

/* Whether a read from the stream flushes stdout, as libc does it for what may be a terminal. */
static bool flushes_stdout(FILE *f)
{
    return f != stdout && ((f->_flags & (UNBUFFERED | LINE_BUFFERED)) || f->_IO_buf_base == NULL)
           && (stdout->_flags & LINE_BUFFERED);
}

/* Whether no thread has stdout's lock. */
static bool stdout_is_free(void)
{
    if (real.ftrylockfile(stdout) != 0)
        return false;
    real.funlockfile(stdout);
    return true;
}

/* Whether the call reads nothing from a file, or fails. */
static bool needs_no_read(FILE *f, const struct input *in)
{
    return f->_fileno < 0 || !__freadable(f) || has_enough(f, in);
}

/* The stream is locked. */
static enum where look_to_read(struct call *c, const struct input *in)
{
    FILE *f = c->f;
    int there;
    if (needs_no_read(f, in))
        return HERE;
    bool known = in->need == BYTES && ioctl(f->_fileno, FIONREAD, &there) == 0 && there >= 0;
    if (known && there > 0 && buffered(f) + (size_t)there >= in->n)
        return HERE;
    if (buffered(f) > 0)
        return never_waits(f->_fileno) ? HERE : THERE;
    if (!is_ready(f->_fileno, POLLIN))
        return WAITS;
    if (flushes_stdout(f) && !stdout_is_free())
        return THERE;
    if (in->need == ONE || (known && there == 0)) /* the end of the file */
        return HERE;
    if (in->need == LINE && !fill(f))
        return ENDS;
    if (in->need == LINE && has_enough(f, in))
        return HERE;
    c->in_kernel = true;
    return never_waits(f->_fileno) ? HERE : THERE;
}

/* What the stream has to write goes out before a read waits: who reads it may have to answer. */
static bool has_to_write(FILE *f)
{
    return (f->_flags & WRITING) && __fpending(f) > 0;
}

/* With the stream locked, which it isn't any more if this function has waited. errno stays, unless the call ENDS. */
__attribute__((noinline)) static enum where wait_to_read(struct call *c, const struct input *in)
{
    FILE *f = c->f;
    int before = errno;
    if (has_to_write(f)) {
        unlock_stream(c);
        flush_stream(f, c->locks, c->tally);
        if (!lock_stream(c))
            return THERE;
    }
    enum where where = look_to_read(c, in);
    while (where == WAITS) {
        unlock_stream(c);
        if (flushes_stdout(f) && has_to_write(stdout))
            flush_stream(stdout, true, c->tally);
        switch (wait_until_ready(f->_fileno, POLLIN, c->tally)) {
        case READY: where = lock_stream(c) ? look_to_read(c, in) : THERE; break;
        case NEVER_WAITS:
            c->in_kernel = true;
            where = lock_stream(c) ? HERE : THERE;
            break;
        case ONLY_CALL_WAITS: where = THERE; break;
        case ENDED: return fail(c);
        }
    }
    if (where != ENDS)
        errno = before;
    return where;
}

static inline enum where to_read(struct call *c, struct input in)
{
    if (!lock_stream(c))
        return THERE;
    return needs_no_read(c->f, &in) ? HERE : wait_to_read(c, &in);
}

static struct input bytes(size_t size, size_t n)
{
    struct input in = {.need = BYTES};
    if (__builtin_mul_overflow(size, n, &in.n))
        in.n = SIZE_MAX;
    return in;
}

static struct input line(int n, int last)
{
    return (struct input){.need = LINE, .n = n > 0 ? (size_t)n - 1 : 0, .last = last};
}

static struct input a_line_of_any_length(int last)
{
    return (struct input){.need = LINE, .n = SIZE_MAX, .last = last};
}

static const struct input one = {.need = ONE}, some_items = {.need = ITEMS}, wide = {.need = WIDE};

/* Neither: the call only needs the lock. */
static enum where to_lock(struct call *c)
{
    return lock_stream(c) ? HERE : THERE;
}

/* The functions */

/*
 * `fn` with `args` is libc's function. `none` is the value of a call that fails, and `decision` says where the call is made.
 * The callers of some functions lock the stream.
 */
#define ON_STREAM(result, none, name, params, fn, args, file, locks, decision) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        if (!TAKEN) \
            return real.fn args; \
        struct call call = begin_call(file, locks, &counts), *c = &call; \
        result value = none; \
        switch (decision) { \
        case HERE: value = CALL_HERE(c, real.fn args); break; \
        case THERE: value = CALL_THERE(c, real.fn, args); break; \
        default: break; \
        } \
        end_call(c); \
        return value; \
    }
#define NO_VALUE_ON_STREAM(name, params, args, file, decision) \
    static int name##_here params \
    { \
        real.name args; \
        return 0; \
    } \
    EXPORT void name params \
    { \
        COUNTED(name); \
        if (!TAKEN) { \
            real.name args; \
            return; \
        } \
        struct call call = begin_call(file, true, &counts), *c = &call; \
        switch (decision) { \
        case HERE: (void)CALL_HERE(c, name##_here args); break; \
        case THERE: (void)CALL_THERE(c, name##_here, args); break; \
        default: break; \
        } \
        end_call(c); \
    }

ON_STREAM(int, EOF, fgetc, (FILE *f), fgetc, (f), f, true, to_read(c, one))
ON_STREAM(int, EOF, getc, (FILE *f), getc, (f), f, true, to_read(c, one))
ALIAS(_IO_getc, getc);
ON_STREAM(int, EOF, getchar, (void), getc, (stdin), stdin, true, to_read(c, one))
ON_STREAM(int, EOF, getw, (FILE *f), getw, (f), f, true, to_read(c, bytes(sizeof(int), 1)))
ON_STREAM(int, EOF, getc_unlocked, (FILE *f), getc_unlocked, (f), f, false, to_read(c, one))
ALIAS(fgetc_unlocked, getc_unlocked);
ON_STREAM(int, EOF, getchar_unlocked, (void), getc_unlocked, (stdin), stdin, false, to_read(c, one))
/* What these are where a compiler inlines them. */
ON_STREAM(int, EOF, __uflow, (FILE *f), __uflow, (f), f, false, to_read(c, one))
ON_STREAM(int, EOF, __underflow, (FILE *f), __underflow, (f), f, false, to_read(c, one))
ON_STREAM(int, EOF, ungetc, (int ch, FILE *f), ungetc, (ch, f), f, true, to_lock(c))

char *gets(char *buf); /* in no header any more */
ON_STREAM(char *, NULL, gets, (char *buf), gets, (buf), stdin, true, to_read(c, a_line_of_any_length('\n')))
ON_STREAM(char *, NULL, __gets_chk, (char *buf, size_t room), __gets_chk, (buf, room), stdin, true,
    to_read(c, a_line_of_any_length('\n')))
ON_STREAM(char *, NULL, fgets, (char *buf, int n, FILE *f), fgets, (buf, n, f), f, true, to_read(c, line(n, '\n')))
ON_STREAM(char *, NULL, fgets_unlocked, (char *buf, int n, FILE *f), fgets_unlocked, (buf, n, f), f, false,
    to_read(c, line(n, '\n')))
ON_STREAM(char *, NULL, __fgets_chk, (char *buf, size_t room, int n, FILE *f), __fgets_chk, (buf, room, n, f), f, true,
    to_read(c, line(n, '\n')))
ON_STREAM(char *, NULL, __fgets_unlocked_chk, (char *buf, size_t room, int n, FILE *f), __fgets_unlocked_chk,
    (buf, room, n, f), f, false, to_read(c, line(n, '\n')))
ON_STREAM(ssize_t, -1, getline, (char **to, size_t *room, FILE *f), getline, (to, room, f), f, true,
    to_read(c, a_line_of_any_length('\n')))
ON_STREAM(ssize_t, -1, getdelim, (char **to, size_t *room, int last, FILE *f), getdelim, (to, room, last, f), f, true,
    to_read(c, a_line_of_any_length(last)))
ALIAS(__getdelim, getdelim);
ON_STREAM(size_t, 0, fread, (void *buf, size_t size, size_t n, FILE *f), fread, (buf, size, n, f), f, true,
    to_read(c, bytes(size, n)))
ON_STREAM(size_t, 0, fread_unlocked, (void *buf, size_t size, size_t n, FILE *f), fread_unlocked, (buf, size, n, f), f, false,
    to_read(c, bytes(size, n)))
ON_STREAM(size_t, 0, __fread_chk, (void *buf, size_t room, size_t size, size_t n, FILE *f), __fread_chk,
    (buf, room, size, n, f), f, true, to_read(c, bytes(size, n)))
ON_STREAM(size_t, 0, __fread_unlocked_chk, (void *buf, size_t room, size_t size, size_t n, FILE *f), __fread_unlocked_chk,
    (buf, room, size, n, f), f, false, to_read(c, bytes(size, n)))


static struct counts scans = {.name = "fscanf"};

/* scanf, by the function that takes a va_list. */
#define SCANS(type, libcs, v, plain, from_stdin, v_from_stdin) \
    static int scan_by_##libcs(FILE *f, const type *format, va_list args) \
    { \
        struct call call = begin_call(f, true, &scans), *c = &call; \
        int n = EOF; \
        switch (to_read(c, some_items)) { \
        case HERE: n = CALL_HERE(c, real.libcs(f, format, args)); break; \
        case THERE: n = CALL_THERE(c, real.libcs, (f, format, args)); break; \
        default: break; \
        } \
        end_call(c); \
        return n; \
    } \
    EXPORT int v(FILE *f, const type *format, va_list args) \
    { \
        return TAKEN ? scan_by_##libcs(f, format, args) : real.libcs(f, format, args); \
    } \
    EXPORT int plain(FILE *f, const type *format, ...) \
    { \
        va_list args; \
        va_start(args, format); \
        int n = TAKEN ? scan_by_##libcs(f, format, args) : real.libcs(f, format, args); \
        va_end(args); \
        return n; \
    } \
    EXPORT int from_stdin(const type *format, ...) \
    { \
        va_list args; \
        va_start(args, format); \
        int n = TAKEN ? scan_by_##libcs(stdin, format, args) : real.libcs(stdin, format, args); \
        va_end(args); \
        return n; \
    } \
    EXPORT int v_from_stdin(const type *format, va_list args) \
    { \
        return TAKEN ? scan_by_##libcs(stdin, format, args) : real.libcs(stdin, format, args); \
    }
/* The headers give the plain names to the functions of C99: here they get others, as the functions of GNU. */
#define NAMED(result, here, name, params) EXPORT result here params __asm__(#name)
NAMED(int, gnu_vfscanf, vfscanf, (FILE *f, const char *format, va_list args));
NAMED(int, gnu_fscanf, fscanf, (FILE *f, const char *format, ...));
NAMED(int, gnu_scanf, scanf, (const char *format, ...));
NAMED(int, gnu_vscanf, vscanf, (const char *format, va_list args));
NAMED(int, gnu_vfwscanf, vfwscanf, (FILE *f, const wchar_t *format, va_list args));
NAMED(int, gnu_fwscanf, fwscanf, (FILE *f, const wchar_t *format, ...));
NAMED(int, gnu_wscanf, wscanf, (const wchar_t *format, ...));
NAMED(int, gnu_vwscanf, vwscanf, (const wchar_t *format, va_list args));
SCANS(char, vfscanf, gnu_vfscanf, gnu_fscanf, gnu_scanf, gnu_vscanf)
SCANS(char, __isoc99_vfscanf, __isoc99_vfscanf, __isoc99_fscanf, __isoc99_scanf, __isoc99_vscanf)
SCANS(char, __isoc23_vfscanf, __isoc23_vfscanf, __isoc23_fscanf, __isoc23_scanf, __isoc23_vscanf)
SCANS(wchar_t, vfwscanf, gnu_vfwscanf, gnu_fwscanf, gnu_wscanf, gnu_vwscanf)
SCANS(wchar_t, __isoc99_vfwscanf, __isoc99_vfwscanf, __isoc99_fwscanf, __isoc99_wscanf, __isoc99_vwscanf)
SCANS(wchar_t, __isoc23_vfwscanf, __isoc23_vfwscanf, __isoc23_fwscanf, __isoc23_wscanf, __isoc23_vwscanf)

ON_STREAM(int, EOF, fputc, (int ch, FILE *f), fputc, (ch, f), f, true, to_write(c, some(1, ch == '\n')))
ON_STREAM(int, EOF, putc, (int ch, FILE *f), putc, (ch, f), f, true, to_write(c, some(1, ch == '\n')))
ALIAS(_IO_putc, putc);
ON_STREAM(int, EOF, putchar, (int ch), putc, (ch, stdout), stdout, true, to_write(c, some(1, ch == '\n')))
ON_STREAM(int, EOF, putw, (int w, FILE *f), putw, (w, f), f, true, to_write(c, some(sizeof w, true)))
ON_STREAM(int, EOF, putc_unlocked, (int ch, FILE *f), putc_unlocked, (ch, f), f, false, to_write(c, some(1, ch == '\n')))
ALIAS(fputc_unlocked, putc_unlocked);
ON_STREAM(int, EOF, putchar_unlocked, (int ch), putc_unlocked, (ch, stdout), stdout, false, to_write(c, some(1, ch == '\n')))
/* What putc_unlocked is where a compiler inlines it, if the buffer is full. */
ON_STREAM(int, EOF, __overflow, (FILE *f, int ch), __overflow, (f, ch), f, false, to_write(c, some(1, true)))
ON_STREAM(int, EOF, puts, (const char *s), puts, (s), stdout, true, to_write(c, some(strlen(s) + 1, true)))
ON_STREAM(int, EOF, fputs, (const char *s, FILE *f), fputs, (s, f), f, true, to_write(c, string(s)))
ON_STREAM(int, EOF, fputs_unlocked, (const char *s, FILE *f), fputs_unlocked, (s, f), f, false, to_write(c, string(s)))
ON_STREAM(size_t, 0, fwrite, (const void *buf, size_t size, size_t n, FILE *f), fwrite, (buf, size, n, f), f, true,
    to_write(c, items(f, buf, size, n)))
ON_STREAM(size_t, 0, fwrite_unlocked, (const void *buf, size_t size, size_t n, FILE *f), fwrite_unlocked, (buf, size, n, f), f,
    false, to_write(c, items(f, buf, size, n)))

/*
 * printf: how much is written shows only when it has been made. So it is made here, and written as fwrite does.
 * `flag` is that of the functions of FORTIFY_SOURCE; -1: none.
 */
int __vsnprintf_chk(char *buf, size_t n, int flag, size_t room, const char *format, va_list args); /* glibc's */

struct made {
    char *text; /* NULL: there is no memory */
    int n;      /* how much; below 0: it can't be made */
    char small[512];
};

static void make_text(struct made *m, int flag, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    m->text = m->small;
    m->n = flag < 0 ? vsnprintf(m->small, sizeof m->small, format, again)
                    : __vsnprintf_chk(m->small, sizeof m->small, flag, sizeof m->small, format, again);
    va_end(again);
    if (m->n < (int)sizeof m->small)
        return;
    size_t room = (size_t)m->n + 1;
    m->text = malloc(room);
    if (m->text == NULL)
        return;
    va_copy(again, args);
    m->n = flag < 0 ? vsnprintf(m->text, room, format, again) : __vsnprintf_chk(m->text, room, flag, room, format, again);
    va_end(again);
}

static void free_text(struct made *m)
{
    int error = errno;
    if (m->text != m->small)
        free(m->text);
    errno = error;
}

static int print_in_libc(FILE *f, int flag, const char *format, va_list args)
{
    return flag < 0 ? real.vfprintf(f, format, args) : real.__vfprintf_chk(f, flag, format, args);
}

static int do_print(FILE *f, int flag, const char *format, va_list args, struct counts *tally)
{
    struct made m;
    int before = errno;
    make_text(&m, flag, format, args);
    errno = before;
    struct call call = begin_call(f, true, tally), *c = &call;
    int done = -1;
    if (m.text != NULL && m.n > 0) {
        size_t n = (size_t)m.n, written = 0;
        switch (to_write(c, items(f, m.text, 1, n))) {
        case HERE: written = CALL_HERE(c, real.fwrite(m.text, 1, n, f)); break;
        case THERE: written = CALL_THERE(c, real.fwrite, (m.text, 1, n, f)); break;
        default: break;
        }
        done = written == n ? m.n : -1;
    } else {
        switch (to_write(c, m.n == 0 ? some(0, false) : unknown)) {
        case HERE: done = CALL_HERE(c, print_in_libc(f, flag, format, args)); break;
        case THERE: done = CALL_THERE(c, print_in_libc, (f, flag, format, args)); break;
        default: break;
        }
    }
    end_call(c);
    free_text(&m);
    return done;
}

/* A function with `...`, and the one with a va_list: what goroutines do, what libc does, both to `to` and with `flag`. */
#define PRINTS(taken, plain, name, v_name, params, v_params, to, flag) \
    EXPORT int name params \
    { \
        COUNTED(name); \
        va_list args; \
        va_start(args, format); \
        int n = TAKEN ? taken(to, flag, format, args, &counts) : plain(to, flag, format, args); \
        va_end(args); \
        return n; \
    } \
    EXPORT int v_name v_params \
    { \
        COUNTED(name); \
        return TAKEN ? taken(to, flag, format, args, &counts) : plain(to, flag, format, args); \
    }
#define TEXTS(...) PRINTS(do_print, print_in_libc, __VA_ARGS__)
TEXTS(fprintf, vfprintf, (FILE *f, const char *format, ...), (FILE *f, const char *format, va_list args), f, -1)
TEXTS(printf, vprintf, (const char *format, ...), (const char *format, va_list args), stdout, -1)
TEXTS(__fprintf_chk, __vfprintf_chk, (FILE *f, int flag, const char *format, ...),
    (FILE *f, int flag, const char *format, va_list args), f, flag)
TEXTS(__printf_chk, __vprintf_chk, (int flag, const char *format, ...), (int flag, const char *format, va_list args), stdout, flag)

static int dprint_in_libc(int fd, int flag, const char *format, va_list args)
{
    return flag < 0 ? real.vdprintf(fd, format, args) : real.__vdprintf_chk(fd, flag, format, args);
}

static int do_dprint(int fd, int flag, const char *format, va_list args, struct counts *c)
{
#define counts (*c)
    struct made m;
    int before = errno;
    make_text(&m, flag, format, args);
    errno = before;
    if (m.text == NULL || m.n <= 0)
        return ELSEWHERE(dprint_in_libc, (fd, flag, format, args));
    int done = 0;
    while (done < m.n) {
        ssize_t n = do_write(fd, m.text + done, (size_t)(m.n - done), c);
        if (n < 0)
            break;
        done += (int)n;
    }
    free_text(&m);
    return done == m.n ? done : -1;
#undef counts
}

#define TEXTS_TO_FILES(...) PRINTS(do_dprint, dprint_in_libc, __VA_ARGS__)
TEXTS_TO_FILES(dprintf, vdprintf, (int fd, const char *format, ...), (int fd, const char *format, va_list args), fd, -1)
TEXTS_TO_FILES(__dprintf_chk, __vdprintf_chk, (int fd, int flag, const char *format, ...),
    (int fd, int flag, const char *format, va_list args), fd, flag)

NO_VALUE_ON_STREAM(perror, (const char *s), (s), stderr, to_write(c, unknown))

EXPORT int fflush(FILE *f)
{
    COUNTED(fflush);
    if (!TAKEN)
        return real.fflush(f);
    return f != NULL ? flush_stream(f, true, &counts) : ELSEWHERE(real.fflush, (f)); /* all streams, with the lock of each */
}

EXPORT int fflush_unlocked(FILE *f)
{
    COUNTED(fflush_unlocked);
    if (!TAKEN)
        return real.fflush_unlocked(f);
    return f != NULL ? flush_stream(f, false, &counts) : ELSEWHERE(real.fflush_unlocked, (f));
}

EXPORT void _flushlbf(void)
{
    COUNTED(_flushlbf);
    if (TAKEN)
        wait_elsewhere(real._flushlbf, (const long[6]){0}, &counts);
    else
        real._flushlbf();
}

EXPORT int fcloseall(void)
{
    COUNTED(fcloseall);
    return TAKEN ? (int)wait_elsewhere((void (*)(void))real.fcloseall, (const long[6]){0}, &counts) : real.fcloseall();
}

/* What is written goes out first. */
ON_STREAM(int, -1, fseek, (FILE *f, long at, int from), fseek, (f, at, from), f, true, to_write(c, flush))
ON_STREAM(int, -1, fseeko64, (FILE *f, off64_t at, int from), fseeko64, (f, at, from), f, true, to_write(c, flush))
ALIAS(fseeko, fseeko64);
ON_STREAM(int, -1, fsetpos64, (FILE *f, const fpos64_t *at), fsetpos64, (f, at), f, true, to_write(c, flush))
EXPORT extern __typeof__(fsetpos) fsetpos __attribute__((alias("fsetpos64")));
NO_VALUE_ON_STREAM(rewind, (FILE *f), (f), f, to_write(c, flush))
ON_STREAM(int, EOF, setvbuf, (FILE *f, char *buf, int mode, size_t n), setvbuf, (f, buf, mode, n), f, true, to_write(c, flush))
NO_VALUE_ON_STREAM(setbuffer, (FILE *f, char *buf, size_t n), (f, buf, n), f, to_write(c, flush))
NO_VALUE_ON_STREAM(setbuf, (FILE *f, char *buf), (f, buf), f, to_write(c, flush))
NO_VALUE_ON_STREAM(setlinebuf, (FILE *f), (f), f, to_write(c, flush))

ON_STREAM(long, -1, ftell, (FILE *f), ftell, (f), f, true, to_lock(c))
ON_STREAM(off64_t, -1, ftello64, (FILE *f), ftello64, (f), f, true, to_lock(c))
ALIAS(ftello, ftello64);
ON_STREAM(int, -1, fgetpos64, (FILE *f, fpos64_t *at), fgetpos64, (f, at), f, true, to_lock(c))
EXPORT extern __typeof__(fgetpos) fgetpos __attribute__((alias("fgetpos64")));
ON_STREAM(int, 0, feof, (FILE *f), feof, (f), f, true, to_lock(c))
ON_STREAM(int, 0, ferror, (FILE *f), ferror, (f), f, true, to_lock(c))
NO_VALUE_ON_STREAM(clearerr, (FILE *f), (f), f, to_lock(c))
ON_STREAM(int, 0, fwide, (FILE *f, int mode), fwide, (f, mode), f, true, to_lock(c))

/* Wide characters: where libc may have to read or write, another thread does it. */
ON_STREAM(wint_t, WEOF, fgetwc, (FILE *f), fgetwc, (f), f, true, to_read(c, wide))
ALIAS(getwc, fgetwc);
ON_STREAM(wint_t, WEOF, getwchar, (void), fgetwc, (stdin), stdin, true, to_read(c, wide))
ON_STREAM(wint_t, WEOF, fgetwc_unlocked, (FILE *f), fgetwc_unlocked, (f), f, false, to_read(c, wide))
ALIAS(getwc_unlocked, fgetwc_unlocked);
ON_STREAM(wint_t, WEOF, getwchar_unlocked, (void), fgetwc_unlocked, (stdin), stdin, false, to_read(c, wide))
ON_STREAM(wint_t, WEOF, ungetwc, (wint_t ch, FILE *f), ungetwc, (ch, f), f, true, to_lock(c))
ON_STREAM(wchar_t *, NULL, fgetws, (wchar_t *buf, int n, FILE *f), fgetws, (buf, n, f), f, true, to_read(c, some_items))
ON_STREAM(wchar_t *, NULL, fgetws_unlocked, (wchar_t *buf, int n, FILE *f), fgetws_unlocked, (buf, n, f), f, false,
    to_read(c, some_items))
ON_STREAM(wchar_t *, NULL, __fgetws_chk, (wchar_t *buf, size_t room, int n, FILE *f), __fgetws_chk, (buf, room, n, f), f, true,
    to_read(c, some_items))
ON_STREAM(wchar_t *, NULL, __fgetws_unlocked_chk, (wchar_t *buf, size_t room, int n, FILE *f), __fgetws_unlocked_chk,
    (buf, room, n, f), f, false, to_read(c, some_items))
ON_STREAM(wint_t, WEOF, fputwc, (wchar_t ch, FILE *f), fputwc, (ch, f), f, true, to_write(c, unknown))
ALIAS(putwc, fputwc);
ON_STREAM(wint_t, WEOF, putwchar, (wchar_t ch), fputwc, (ch, stdout), stdout, true, to_write(c, unknown))
ON_STREAM(wint_t, WEOF, fputwc_unlocked, (wchar_t ch, FILE *f), fputwc_unlocked, (ch, f), f, false, to_write(c, unknown))
ALIAS(putwc_unlocked, fputwc_unlocked);
ON_STREAM(wint_t, WEOF, putwchar_unlocked, (wchar_t ch), fputwc_unlocked, (ch, stdout), stdout, false, to_write(c, unknown))
ON_STREAM(int, EOF, fputws, (const wchar_t *s, FILE *f), fputws, (s, f), f, true, to_write(c, unknown))
ON_STREAM(int, EOF, fputws_unlocked, (const wchar_t *s, FILE *f), fputws_unlocked, (s, f), f, false, to_write(c, unknown))

static int wide_print_in_libc(FILE *f, int flag, const wchar_t *format, va_list args)
{
    return flag < 0 ? real.vfwprintf(f, format, args) : real.__vfwprintf_chk(f, flag, format, args);
}

static int do_wide_print(FILE *f, int flag, const wchar_t *format, va_list args, struct counts *tally)
{
    struct call call = begin_call(f, true, tally), *c = &call;
    int done = -1;
    switch (to_write(c, unknown)) {
    case HERE: done = CALL_HERE(c, wide_print_in_libc(f, flag, format, args)); break;
    case THERE: done = CALL_THERE(c, wide_print_in_libc, (f, flag, format, args)); break;
    default: break;
    }
    end_call(c);
    return done;
}
#define WIDE_TEXTS(...) PRINTS(do_wide_print, wide_print_in_libc, __VA_ARGS__)
WIDE_TEXTS(fwprintf, vfwprintf, (FILE *f, const wchar_t *format, ...), (FILE *f, const wchar_t *format, va_list args), f, -1)
WIDE_TEXTS(wprintf, vwprintf, (const wchar_t *format, ...), (const wchar_t *format, va_list args), stdout, -1)
WIDE_TEXTS(__fwprintf_chk, __vfwprintf_chk, (FILE *f, int flag, const wchar_t *format, ...),
    (FILE *f, int flag, const wchar_t *format, va_list args), f, flag)
WIDE_TEXTS(__wprintf_chk, __vwprintf_chk, (int flag, const wchar_t *format, ...),
    (int flag, const wchar_t *format, va_list args), stdout, flag)

/* Opening and closing */

EXPORT FILE *fopen64(const char *path, const char *mode)
{
    COUNTED(fopen);
    return TAKEN && is_fifo(AT_FDCWD, path, 0) ? ELSEWHERE(real.fopen64, (path, mode)) : real.fopen64(path, mode);
}
ALIAS(fopen, fopen64);

/* What is written goes out, and the stream's file is closed, which is the end of the lock too. */
static enum where to_close(struct call *c)
{
    enum where where = to_write(c, flush);
    unlock_stream(c);
    c->in_kernel = true;
    return where == HERE ? HERE : THERE;
}

EXPORT FILE *freopen64(const char *path, const char *mode, FILE *f)
{
    COUNTED(freopen);
    if (!TAKEN)
        return real.freopen64(path, mode, f);
    struct call call = begin_call(f, true, &counts), *c = &call;
    enum where where = to_close(c);
    if (path != NULL && is_fifo(AT_FDCWD, path, 0))
        where = THERE;
    FILE *opened = where == HERE ? CALL_HERE(c, real.freopen64(path, mode, f)) : CALL_THERE(c, real.freopen64, (path, mode, f));
    end_call(c);
    return opened;
}
ALIAS(freopen, freopen64);

EXPORT int fclose(FILE *f)
{
    COUNTED(fclose);
    int fd = gs_self ? f->_fileno : -1, r;
    if (!TAKEN) {
        forget_callbacks(f);
        r = real.fclose(f);
    } else {
        struct call call = begin_call(f, true, &counts), *c = &call;
        enum where where = to_close(c);
        forget_callbacks(f);
        r = where == HERE ? CALL_HERE(c, real.fclose(f)) : CALL_THERE(c, real.fclose, (f));
        end_call(c);
    }
    note_closed(fd);
    return r;
}
