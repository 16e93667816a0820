/*
 * Streams: getline, fprintf and the rest of stdio. libc reads and writes a stream's file within its own code, where no
 * goroutine can park. So each call is classed first:
 *
 * - A call that finds its bytes, or room for them, in the stream's buffer is libc's. - A call that has to read into the
 *   empty buffer waits until poll says that one read won't wait. Then the call is libc's. - A call that may need more
 *   than that (the rest of a line that has come in part) is made by another thread.
 *
 * The lock of a stream belongs to the thread, and lets in every goroutine of that thread. So goroutines park without
 * the lock, except between flockfile and funlockfile, and in callbacks of fopencookie. Such a stream has a struct hold.
 */
#include "streams.h"

#include "tries.h"

struct call begin_call(FILE *f, bool locks, struct counts *c)
{
    struct call call = {.f = f, .tally = c, .locks = locks};
    if (locks && (call.hold = hold_enter(f, false)) != NULL) {
        int before = errno;
        call.lends = is_held_by_caller(call.hold);
        if (call.lends)
            own_lock(f);
        hold_take(call.hold);
        errno = before;
    }
    return call;
}

void end_call(struct call *c)
{
    unlock_stream(c);
    if (c->hold != NULL) {
        int error = errno;
        hold_give_back(c->hold);
        errno = error;
    }
}

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

long call_there(struct call *c, void (*f)(void), const long args[6])
{
    unlock_stream(c);
    if (!c->lends || !lock_is_known)
        return wait_elsewhere(f, args, c->tally);
    struct loan loan = {lock_of(c->f), f, args};
    return wait_elsewhere((void (*)(void))call_with_lock, (const long[6]){(long)&loan}, c->tally);
}

/* Ends a call whose wait gs_cancel has ended, as if the read or write had failed. errno is set already. */
static enum where fail(struct call *c)
{
    c->f->_flags |= _IO_ERR_SEEN;
    return ENDS;
}

/* Writing */

/* The bytes for which every file that poll calls ready for writing has room. */
enum { ROOM = 256 };

/* The number of bytes for which this file has room if poll calls it ready. */
static size_t room_when_ready(int fd)
{
    struct stat st;
    int size = 0;
    socklen_t n = sizeof size;
    if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
        return PIPE_BUF;
    /* A socket is ready if at least a third of its buffer is free. The kernel's overhead for each message counts
       too. */
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

bool needs_no_write(FILE *f, const struct output *o)
{
    return f->_fileno < 0 || !__fwritable(f) || fits(f, o);
}

/* Decides where to make a call that writes. Called with the stream locked. */
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

enum where wait_to_write(struct call *c, const struct output *o)
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

int flush_stream(FILE *f, bool locks, struct counts *c)
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

/* The first fields of struct _IO_wide_data. */
struct wide_buffer {
    wchar_t *read_ptr, *read_end;
};

static size_t length(const char *from, const char *to)
{
    return to > from ? (size_t)(to - from) : 0;
}

/* The number of wide characters read but not yet taken. */
static size_t wide_buffered(FILE *f)
{
    const struct wide_buffer *w = (const void *)f->_wide_data;
    return f->_mode > 0 && w->read_end > w->read_ptr ? (size_t)(w->read_end - w->read_ptr) : 0;
}

/* The number of bytes read but not yet taken. Behind the bytes that ungetc has put back comes the rest of the
   buffer. */
static size_t buffered(FILE *f)
{
    size_t n = length(f->_IO_read_ptr, f->_IO_read_end) + wide_buffered(f);
    return f->_flags & IN_BACKUP ? n + length(f->_IO_save_base, f->_IO_save_end) : n;
}

bool has_enough(FILE *f, const struct input *in)
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
            return false; /* libc reads again after the end of the file */
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

/* Whether a read from the stream flushes stdout, as libc does for a possible terminal. */
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

/* Decides where to make a call that reads. Called with the stream locked. */
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
    if (in->need == ONE || (known && there == 0)) /* or the end of the file */
        return HERE;
    if (in->need == LINE && !fill(f))
        return ENDS;
    if (in->need == LINE && has_enough(f, in))
        return HERE;
    c->in_kernel = true;
    return never_waits(f->_fileno) ? HERE : THERE;
}

/* Whether the stream has output to flush before a read waits: its reader may have to answer. */
static bool has_to_write(FILE *f)
{
    return (f->_flags & WRITING) && __fpending(f) > 0;
}

enum where wait_to_read(struct call *c, const struct input *in)
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
