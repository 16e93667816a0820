/*
 * Files and sockets. The flags of a file in the kernel are never changed, except for the instant of a connect. A call
 * that might block is tried with MSG_DONTWAIT or RWF_NOWAIT, and gs_poll_fd waits between two tries. Where the kernel
 * can't try without waiting, the call is made when poll says that it won't wait. If the call waits
 * nevertheless, other goroutines have the P.
 */
#include "preload.h"

#include <linux/major.h>
#include <sys/sysmacros.h>

/* /dev/kmsg, which waits for messages, among the devices of MEM_MAJOR. */
enum { KMSG_MINOR = 11 };

/* Goroutines that wait for a file, and close. */

/*
 * In libc a call that waits in read keeps the file: close frees the number, and the call goes on waiting for the file
 * that had it. So if goroutines wait for the file, close first gives the file another number. The goroutines go on
 * with that number, and the last of them closes it.
 */
struct moved {
    int fd;
    atomic_uint users;
};

struct file_waiter {
    struct file_waiter *next;
    int fd;
    struct moved *moved; /* set by the caller that closes the number */
};

enum { FILE_BUCKETS = 256 };
static struct file_bucket {
    atomic_uint lock;
    atomic_uint waiting;
    struct file_waiter *first;
} __attribute__((aligned(64))) file_buckets[FILE_BUCKETS];

static struct file_bucket *file_bucket(int fd)
{
    return &file_buckets[(unsigned)fd % FILE_BUCKETS];
}

static void begin_to_wait(struct file *f, struct file_waiter *w)
{
    struct file_bucket *b = file_bucket(f->fd);
    *w = (struct file_waiter){.fd = f->fd};
    spin_lock(&b->lock);
    w->next = b->first;
    b->first = w;
    atomic_fetch_add(&b->waiting, 1);
    spin_unlock(&b->lock);
}

/* Whether the number was closed meanwhile: then the file has another number now. */
static bool end_of_wait(struct file *f, struct file_waiter *w)
{
    struct file_bucket *b = file_bucket(w->fd);
    struct file_waiter **at;
    spin_lock(&b->lock);
    for (at = &b->first; *at != NULL && *at != w; at = &(*at)->next)
        ;
    if (*at != NULL) {
        *at = w->next;
        atomic_fetch_sub(&b->waiting, 1);
    }
    spin_unlock(&b->lock);
    if (w->moved == NULL)
        return false;
    leave_file(f);
    f->moved = w->moved;
    f->fd = w->moved->fd;
    return true;
}

/* As wait_for_file. With a buffer: receives into the buffer by gs_recv, and gives what gs_recv gives. */
static ssize_t wait_as_waiter(struct file *f, int events, const struct iovec *into, gs_deadline deadline)
{
    for (;;) {
        struct file_waiter w;
        begin_to_wait(f, &w);
        ssize_t r = into != NULL ? gs_recv(f->fd, into->iov_base, into->iov_len, 0, deadline)
                                 : gs_poll_fd(f->fd, events, deadline);
        if (!end_of_wait(f, &w) || (r != -ECANCELED && (r < 0 || into != NULL)))
            return r;
        /* The number was closed, or something has happened as well: try again. */
    }
}

int wait_for_file(struct file *f, int events, gs_deadline deadline, int *found)
{
    ssize_t r = wait_as_waiter(f, events, NULL, deadline);
    if (r < 0)
        return (int)-r;
    if (found != NULL)
        *found = (int)r;
    return 0;
}

/* The call is over: errno stays. */
void leave_file(struct file *f)
{
    if (LIKELY(f->moved == NULL))
        return;
    if (atomic_fetch_sub(&f->moved->users, 1) == 1) {
        int error = errno;
        real.close(f->moved->fd);
        free(f->moved);
        errno = error;
    }
    f->moved = NULL;
}

/* How many goroutines wait for the number; with the lock held. */
static unsigned waiters_of(const struct file_bucket *b, int fd)
{
    unsigned n = 0;
    for (const struct file_waiter *w = b->first; w != NULL; w = w->next)
        n += w->fd == fd;
    return n;
}

/* Whether goroutines wait for the number. If so, they wait for a duplicate from now on. */
static bool move_waiters(int fd)
{
    struct file_bucket *b = file_bucket(fd);
    struct file_waiter **at;
    spin_lock(&b->lock);
    unsigned n = waiters_of(b, fd);
    spin_unlock(&b->lock);
    if (n == 0)
        return false;
    struct moved *moved = malloc(sizeof *moved); /* not with the lock held: malloc may be the program's */
    spin_lock(&b->lock);
    n = waiters_of(b, fd);
    int to = moved && n > 0 ? real.fcntl64(fd, F_DUPFD_CLOEXEC, 0L) : -1;
    if (to >= 0) {
        moved->fd = to;
        atomic_init(&moved->users, n);
        for (at = &b->first; *at != NULL;) {
            struct file_waiter *w = *at;
            if (w->fd == fd) {
                w->moved = moved;
                *at = w->next;
                atomic_fetch_sub(&b->waiting, 1);
            } else {
                at = &w->next;
            }
        }
    } /* else no number or no memory: the waiters are told that the file is closed */
    spin_unlock(&b->lock);
    if (to < 0)
        free(moved);
    return n > 0;
}

static inline bool may_be_waited_for(int fd)
{
    return gs_self && fd >= 0 && atomic_load_explicit(&file_bucket(fd)->waiting, memory_order_relaxed) != 0;
}

atomic_int highest_closed = -1;

void note_closed(int fd)
{
    int highest = atomic_load_explicit(&highest_closed, memory_order_relaxed);
    while (fd > highest && !atomic_compare_exchange_weak(&highest_closed, &highest, fd))
        ;
}

/* Closes a file for which goroutines may wait. */
static int close_waited_for(int fd)
{
    if (!move_waiters(fd))
        return real.close(fd);
    int r = gs_close(fd);
    return r < 0 ? failed(-r) : r;
}

EXPORT int close(int fd)
{
    if (is_within(__builtin_return_address(0), &library) && is_librarys(__builtin_return_address(0)))
        return real.close(fd);
    int r = LIKELY(!may_be_waited_for(fd)) ? real.close(fd) : close_waited_for(fd);
    if (r == 0)
        note_closed(fd);
    return r;
}
ALIAS(__close, close);

EXPORT int dup2(int fd, int to)
{
    if (!LIKELY(!may_be_waited_for(to)) && fd != to && real.fcntl64(fd, F_GETFD, 0L) >= 0 && move_waiters(to))
        gs_close(to);
    return real.dup2(fd, to);
}
ALIAS(__dup2, dup2);

EXPORT int dup3(int fd, int to, int flags)
{
    if (!LIKELY(!may_be_waited_for(to)) && fd != to && !(flags & ~O_CLOEXEC) && real.fcntl64(fd, F_GETFD, 0L) >= 0
        && move_waiters(to))
        gs_close(to);
    return real.dup3(fd, to, flags);
}

static void close_range_waited_for(unsigned from, unsigned to)
{
    if (!gs_self)
        return;
    int highest = highest_file();
    note_closed(highest >= 0 && (unsigned)highest > to ? (int)to : highest);
    for (unsigned i = 0; i < FILE_BUCKETS; i++) {
        struct file_bucket *b = &file_buckets[i];
        while (atomic_load_explicit(&b->waiting, memory_order_relaxed) != 0) {
            int found = -1;
            spin_lock(&b->lock);
            for (struct file_waiter *w = b->first; w != NULL && found < 0; w = w->next)
                if ((unsigned)w->fd >= from && (unsigned)w->fd <= to)
                    found = w->fd;
            spin_unlock(&b->lock);
            if (found < 0)
                break;
            if (move_waiters(found))
                gs_close(found);
        }
    }
}

EXPORT int close_range(unsigned from, unsigned to, int flags)
{
    if (from <= to && flags == 0)
        close_range_waited_for(from, to);
    return real.close_range(from, to, flags);
}

EXPORT void closefrom(int from)
{
    close_range_waited_for(from > 0 ? (unsigned)from : 0, UINT_MAX);
    real.closefrom(from);
}

/* Whether and how a call may wait. */

enum kind { UNKNOWN, SOCKET, DISK, OTHER };

/*
 * After a try that would have had to wait, because of the file's own flag or of ours: whether the call waits, and
 * until when. The file's flag is read once in each call, and never changed. `kind` may be known to be SOCKET.
 */
static enum how may_wait(int fd, int timeout_option, enum kind *kind, gs_deadline *deadline)
{
    struct timeval t;
    socklen_t size = sizeof t;
    struct stat st;
    int error = errno, flags = real.fcntl64(fd, F_GETFL, 0L);
    *deadline = GS_FOREVER;
    if (*kind == SOCKET && (flags & O_NONBLOCK)) {
        errno = error;
        return HOW_NOT;
    }
    if (getsockopt(fd, SOL_SOCKET, timeout_option, &t, &size) == 0) {
        *kind = SOCKET;
        if (t.tv_sec != 0 || t.tv_usec != 0)
            *deadline = after(t.tv_sec >= INT64_MAX / NS_PER_S ? INT64_MAX : t.tv_sec * NS_PER_S + t.tv_usec * 1000);
    } else if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode))) {
        *kind = DISK;
        errno = error;
        return HOW_KERNEL;
    } else {
        *kind = OTHER;
    }
    errno = error;
    if (flags < 0 || (flags & O_NONBLOCK))
        return HOW_NOT;
    return can_park() ? HOW_PARK : HOW_KERNEL;
}

/*
 * A call that fails this number of times after poll has said that the file is ready (on a local datagram socket whose
 * peer is full) is tried again after pauses of this length, in ns.
 */
enum { IN_VAIN = 8, PAUSE = 500 * 1000 };

struct waiting {
    struct file file;
    struct counts *tally;
    const struct iovec *into; /* of a plain read into one buffer, else NULL */
    ssize_t got;              /* the call's value when it is over */
    gs_deadline deadline;
    enum kind kind;
    int in_vain;
    bool begun;
    bool skips;     /* the first try: see expects_wait */
    bool by_kernel; /* the call was made as it is, and may have waited */
};

/*
 * For each number of a file: whether the last read waited and then got less than there was room for. Such a read has
 * left nothing, so the next read will mostly have to wait and doesn't try first. A hint, which may be about a former
 * file of that number.
 */
enum { HINTS = 1 << 16 };
static atomic_bool drained[HINTS];

static bool expects_wait(int fd)
{
    return (unsigned)fd < HINTS && atomic_load_explicit(&drained[fd], memory_order_relaxed);
}

static void expect_wait(int fd, bool yes)
{
    if ((unsigned)fd < HINTS)
        atomic_store_explicit(&drained[fd], yes, memory_order_relaxed);
}

/* A plain read from a socket that has to wait: gs_recv takes fewer system calls than a wait and a try. */
static enum how receive(struct waiting *w)
{
    ssize_t r = wait_as_waiter(&w->file, 0, w->into, w->deadline);
    if (r == -ETIMEDOUT && w->deadline != GS_FOREVER && gs_now() >= w->deadline) {
        /* SO_RCVTIMEO has passed. What came in time counts. */
        r = real.recv(w->file.fd, w->into->iov_base, w->into->iov_len, MSG_DONTWAIT);
        if (r < 0)
            r = -errno;
    }
    if (r == -EPERM || r == -EINVAL || r == -ENOMEM || r == -ENOTSOCK) {
        w->by_kernel = true;
        return HOW_KERNEL;
    }
    expect_wait(w->file.fd, r > 0 && (size_t)r < w->into->iov_len);
    w->got = r < 0 ? failed((int)-r) : r;
    return HOW_NOT;
}

/*
 * Whether the file is shut down for reading. Then a call that may wait ends at once, but tries of it go on to give
 * EAGAIN on some sockets: those for datagrams.
 */
static bool is_shut(int fd)
{
    struct pollfd one = {fd, POLLRDHUP, 0};
    return poll(&one, 1, 0) > 0 && (one.revents & POLLRDHUP);
}

/*
 * A try would have had to wait, as errno says: waits. HOW_PARK: the caller tries again. HOW_KERNEL: the caller makes the
 * call as it is. HOW_NOT: the call is over and has given `got`.
 */
static enum how wait_again(struct waiting *w, int events, int timeout_option)
{
    const int wanted = errno; /* what the call gives if the time is over */
    if (!w->begun) {
        enum how how = may_wait(w->file.fd, timeout_option, &w->kind, &w->deadline);
        if (w->skips && (how != HOW_PARK || w->kind != SOCKET)) {
            w->skips = false;
            expect_wait(w->file.fd, false);
            return HOW_PARK;
        }
        if (how != HOW_PARK) {
            w->by_kernel = how == HOW_KERNEL;
            return how;
        }
        w->begun = true;
    } else if ((events & POLLIN) && is_shut(w->file.fd)) {
        w->by_kernel = true;
        return HOW_KERNEL;
    } else if (++w->in_vain > IN_VAIN) {
        struct file_waiter pausing; /* close may come during the pause */
        begin_to_wait(&w->file, &pausing);
        int error = -gs_sleep(PAUSE);
        end_of_wait(&w->file, &pausing);
        if (error == ECANCELED) {
            errno = error;
            return HOW_NOT;
        }
    }
    if (debug)
        count_parked(w->tally);
    if (w->into != NULL && w->kind == SOCKET)
        return receive(w);
    int error = wait_for_file(&w->file, events, w->deadline, NULL);
    if (error == 0)
        return HOW_PARK;
    if (error == EPERM || error == EINVAL) {
        w->by_kernel = true;
        return HOW_KERNEL; /* poll can't wait for it */
    }
    errno = error == ETIMEDOUT ? wanted : error;
    return HOW_NOT;
}

/* Whether a call could not be finished without waiting, as errno says. A connection that is opened by its first bytes
 * (TCP_FASTOPEN_CONNECT) says EINPROGRESS, and the bytes were not taken. */
static inline bool would_wait(int events)
{
    return errno == EAGAIN || ((events & POLLOUT) && errno == EINPROGRESS);
}

/* Makes `call`, which doesn't wait, until it succeeds or fails for good, and gives its value. `plain` is the call
 * without the flag that keeps it from waiting. */
#define UNTIL_DONE(type, w, events, option, call, plain) \
    __extension__({ \
        type done_; \
        int errno_ = errno; \
        for (;;) { \
            done_ = (w)->skips ? failed(EAGAIN) : (call); \
            if (LIKELY(done_ >= 0) || !would_wait(events)) \
                break; \
            enum how how_ = wait_again(w, events, option); \
            if (how_ == HOW_PARK) \
                continue; \
            if (how_ == HOW_KERNEL) \
                done_ = KERNEL(plain); \
            else \
                done_ = (type)(w)->got; \
            break; \
        } \
        if (done_ >= 0) \
            errno = errno_; /* as it was before the tries */ \
        done_; \
    })
#define WAITING(number) {.file = {.fd = (number)}, .tally = &counts, .got = -1}
/* Of a plain read into one buffer. */
#define READING(number, buffer) \
    {.file = {.fd = (number)}, .tally = &counts, .got = -1, .into = (buffer)->iov_len > 0 ? (buffer) : NULL, \
     .skips = (buffer)->iov_len > 0 && expects_wait(number)}

/* read and write */

/* The kernel takes no more in one call. */
#define MOST ((size_t)0x7ffff000)

/*
 * How a read of a terminal waits. Without lines the terminal itself says how long a read waits, and for how many bytes.
 * Poll says that a read can be made when there are VMIN bytes, or when there is one if VMIN is 0 or VTIME isn't. So
 * poll can wait for a read only if VMIN is 1. HOW_PARK: poll can wait; HOW_KERNEL: the read doesn't wait; HOW_NOT:
 * only the read itself can.
 */
static enum how of_terminal(int fd)
{
    struct termios t;
    int error = errno;
    bool lines = tcgetattr(fd, &t) != 0 || (t.c_lflag & ICANON); /* or it is no terminal */
    errno = error;
    if (lines || t.c_cc[VMIN] == 1)
        return HOW_PARK;
    return t.c_cc[VMIN] == 0 && t.c_cc[VTIME] == 0 ? HOW_KERNEL : HOW_NOT;
}

/*
 * Whether the file is a FIFO that no process has open for writing, so that a read gives 0 at once. Poll tells of that only if a
 * writer has been there since the FIFO was opened. The call that copies out of it (tee) tells, and takes nothing.
 */
static bool has_no_writer(int fd)
{
    struct stat st;
    struct pollfd one = {fd, POLLIN, 0};
    int error = errno, to[2];
    bool none = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && real.poll(&one, 1, 0) == 0 && pipe2(to, O_CLOEXEC) == 0;
    if (none) {
        none = real.tee(fd, to[1], 1, SPLICE_F_NONBLOCK) == 0;
        real.close(to[0]);
        real.close(to[1]);
    }
    errno = error;
    return none;
}

/*
 * For a file that can't be tried: poll waits, and the call follows. If the call has to wait nevertheless, other
 * goroutines have the P. HOW_NOT: no call is to be made, and errno says why. HOW_PARK, of a read: poll can't wait for
 * it, and the call may wait for long.
 */
static enum how wait_first(struct waiting *w, int events, int option)
{
    if (may_wait(w->file.fd, option, &w->kind, &w->deadline) != HOW_PARK || w->kind == SOCKET)
        return HOW_KERNEL;
    if ((events & POLLIN) && has_no_writer(w->file.fd))
        return HOW_KERNEL;
    enum how how = events & POLLIN ? of_terminal(w->file.fd) : HOW_PARK;
    if (how != HOW_PARK)
        return how == HOW_NOT ? HOW_PARK : HOW_KERNEL;
    if (debug)
        count_parked(w->tally);
    int error = wait_for_file(&w->file, events, w->deadline, NULL);
    if (error == 0 || error == EPERM || error == EINVAL)
        return HOW_KERNEL;
    errno = error;
    return HOW_NOT;
}

bool never_waits(int fd)
{
    struct stat st;
    int error = errno;
    bool disk = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode));
    bool never = disk || (real.fcntl64(fd, F_GETFL, 0L) & O_NONBLOCK);
    errno = error;
    return never;
}

bool is_ready(int fd, int events)
{
    struct pollfd one = {fd, (short)events, 0};
    return real.poll(&one, 1, 0) > 0;
}

enum ready wait_until_ready(int fd, int events, struct counts *c)
{
    struct waiting w = {.file = {.fd = fd}, .tally = c};
    bool reads = events & POLLIN;
    if (may_wait(fd, reads ? SO_RCVTIMEO : SO_SNDTIMEO, &w.kind, &w.deadline) != HOW_PARK)
        return NEVER_WAITS;
    if (w.deadline != GS_FOREVER)
        return ONLY_CALL_WAITS; /* for as long as the socket says */
    if (reads && w.kind != SOCKET) {
        if (has_no_writer(fd))
            return NEVER_WAITS;
        enum how how = of_terminal(fd);
        if (how != HOW_PARK)
            return how == HOW_KERNEL ? NEVER_WAITS : ONLY_CALL_WAITS;
    }
    if (debug)
        count_parked(c);
    int error = wait_for_file(&w.file, events, GS_FOREVER, NULL);
    leave_file(&w.file);
    errno = error;
    return error == 0 ? READY : error == ECANCELED ? ENDED : ONLY_CALL_WAITS;
}

/* What is left of some buffers after `done` bytes, at most as many as there is room for. */
enum { AT_ONCE = 64 };
static int rest_of(const struct iovec *iov, size_t n, size_t done, struct iovec rest[AT_ONCE])
{
    int k = 0;
    for (size_t i = 0; i < n && k < AT_ONCE; i++) {
        if (done >= iov[i].iov_len) {
            done -= iov[i].iov_len;
            continue;
        }
        rest[k++] = (struct iovec){(char *)iov[i].iov_base + done, iov[i].iov_len - done};
        done = 0;
    }
    return k;
}

/*
 * Whether a try of a read may stop before the call would, which never waits for others. On a disk a try stops where
 * memory doesn't have the file's contents, and on /dev/zero and its kin where the kernel wants the processor or has a
 * signal for the thread.
 */
static bool may_stop_early(int fd)
{
    struct stat st;
    int error = errno;
    bool yes = fstat(fd, &st) == 0
               && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)
                   || (S_ISCHR(st.st_mode) && major(st.st_rdev) == MEM_MAJOR && minor(st.st_rdev) != KMSG_MINOR));
    errno = error;
    return yes;
}

/* A try has read `done` bytes. If it has stopped early, the rest is read with the P given away. errno stays. */
static ssize_t read_the_rest(struct waiting *w, const struct iovec *iov, size_t n, ssize_t done, struct counts *c)
{
#define counts (*c)
    struct iovec rest[AT_ONCE];
    int error = errno, k;
    if (w->kind != UNKNOWN || w->by_kernel || rest_of(iov, n, (size_t)done, rest) == 0 || !may_stop_early(w->file.fd))
        return done;
    while ((size_t)done < MOST && (k = rest_of(iov, n, (size_t)done, rest)) > 0) {
        ssize_t more = KERNEL(real.readv(w->file.fd, rest, k));
        if (more <= 0)
            break;
        done += more;
    }
    errno = error;
    return done;
#undef counts
}

/* `ours`: the array is this library's, with one buffer, and may be read. */
static ssize_t do_readv(int fd, const struct iovec *iov, int n, bool ours, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    int before = errno;
    if (ours)
        w = (struct waiting)READING(fd, iov);
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLIN, SO_RCVTIMEO, real.preadv64v2(w.file.fd, iov, n, -1, RWF_NOWAIT),
                           real.readv(w.file.fd, iov, n));
    if (r < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        enum how how = wait_first(&w, POLLIN, SO_RCVTIMEO);
        if (w.kind == SOCKET) { /* Linux before 6.4 */
            struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
            r = UNTIL_DONE(ssize_t, &w, POLLIN, SO_RCVTIMEO, real.recvmsg(w.file.fd, &msg, MSG_DONTWAIT),
                           real.readv(w.file.fd, iov, n));
        } else if (how == HOW_PARK) {
            r = ELSEWHERE(real.readv, (w.file.fd, iov, n));
        } else if (how == HOW_KERNEL) {
            r = KERNEL(real.readv(w.file.fd, iov, n));
        }
        if (r >= 0)
            errno = before;
    } else if (r > 0) {
        r = read_the_rest(&w, iov, (size_t)n, r, c);
    }
    leave_file(&w.file);
    return r;
#undef counts
}

static bool is_socket(int fd)
{
    struct stat st;
    int error = errno;
    bool yes = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    errno = error;
    return yes;
}

/*
 * A read of no bytes. The vectored call, which is the one that can be tried, gives 0 at once for a total length of 0.
 * But the file may have more to say to read: EINVAL, or an event to wait for.
 */
static ssize_t read_nothing(int fd, void *buf, struct counts *c)
{
#define counts (*c)
    return is_socket(fd) ? real.read(fd, buf, 0) : ELSEWHERE(real.read, (fd, buf, 0L));
#undef counts
}

static ssize_t do_read(int fd, void *buf, size_t n, struct counts *c)
{
    if (n == 0)
        return read_nothing(fd, buf, c);
    struct iovec iov = {buf, n < MOST ? n : MOST};
    return do_readv(fd, &iov, 1, true, c);
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
    COUNTED(read);
    if (!TAKEN)
        return real.read(fd, buf, n);
    return do_read(fd, buf, n, &counts);
}
ALIAS(__read, read);

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
    COUNTED(readv);
    return TAKEN ? do_readv(fd, iov, n, false, &counts) : real.readv(fd, iov, n);
}

EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
    COUNTED(read);
    if (n > room)
        __chk_fail();
    if (!TAKEN)
        return real.read(fd, buf, n);
    return do_read(fd, buf, n, &counts);
}

/* Whether a write that has taken `done` bytes goes on: a caller that has asked not to wait gets what could be written. */
static bool rest_waits(struct waiting *w, const struct iovec *iov, size_t n, ssize_t done)
{
    struct iovec rest[AT_ONCE];
    return done > 0 && !w->by_kernel && rest_of(iov, n, (size_t)done, rest) > 0
           && !(real.fcntl64(w->file.fd, F_GETFL, 0L) & O_NONBLOCK);
}

/*
 * After a write that was tried and has taken `done` bytes: the rest, as a call that waits would do it. What happens
 * to the rest shows in how much was written. errno stays.
 */
#define WRITE_THE_REST(w, iov, n, done, call, plain) \
    do { \
        int before_ = errno; \
        while ((done) > 0 && !(w)->by_kernel) { \
            struct iovec rest_[AT_ONCE]; \
            int k_ = rest_of(iov, n, (size_t)(done), rest_); \
            if (k_ == 0 || (size_t)(done) >= MOST) \
                break; \
            struct iovec *of = rest_; \
            int parts = k_; \
            ssize_t more_ = UNTIL_DONE(ssize_t, w, POLLOUT, SO_SNDTIMEO, call, plain); \
            if (more_ <= 0) \
                break; \
            (done) += more_; \
        } \
        errno = before_; \
    } while (0)

/*
 * The rest of what is sent to a socket. In the kernel a call that has sent something raises no SIGPIPE, and leaves the
 * socket's error to the next call. A send would take the error, so poll looks first whether the connection is there.
 * POLLERR doesn't tell: a message in the socket's error queue sets it too.
 */
static ssize_t send_rest(struct waiting *w, struct iovec *of, int parts, int flags)
{
    struct pollfd one = {w->file.fd, 0, 0};
    struct msghdr msg = {.msg_iov = of, .msg_iovlen = (size_t)parts};
    if (poll(&one, 1, 0) > 0 && (one.revents & POLLHUP))
        return failed(EPIPE);
    return real.sendmsg(w->file.fd, &msg, flags | MSG_NOSIGNAL);
}
#define SEND_THE_REST(w, iov, n, done, flags) \
    WRITE_THE_REST(w, iov, n, done, send_rest(w, of, parts, (flags) | MSG_DONTWAIT), send_rest(w, of, parts, flags))

/* `ours`: as of do_readv. */
static ssize_t do_writev(int fd, const struct iovec *iov, int n, bool ours, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    int before = errno;
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO, real.pwritev64v2(w.file.fd, iov, n, -1, RWF_NOWAIT),
                           real.writev(w.file.fd, iov, n));
    if (r > 0) {
        if (!rest_waits(&w, iov, (size_t)n, r))
            ;
        else if (is_socket(w.file.fd))
            SEND_THE_REST(&w, iov, (size_t)n, r, 0);
        else
            WRITE_THE_REST(&w, iov, (size_t)n, r, real.pwritev64v2(w.file.fd, of, parts, -1, RWF_NOWAIT),
                           real.writev(w.file.fd, of, parts));
    } else if (r < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        enum how how = wait_first(&w, POLLOUT, SO_SNDTIMEO);
        if (w.kind == SOCKET) { /* Linux before 6.4 */
            struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
            r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO, real.sendmsg(w.file.fd, &msg, MSG_DONTWAIT),
                           real.writev(w.file.fd, iov, n));
            if (rest_waits(&w, iov, (size_t)n, r))
                SEND_THE_REST(&w, iov, (size_t)n, r, 0);
        } else if (how == HOW_KERNEL && ours && iov->iov_len <= PIPE_BUF) {
            r = KERNEL(real.writev(w.file.fd, iov, n)); /* poll says that there is room for this many bytes */
        } else if (how == HOW_KERNEL) {
            r = ELSEWHERE(real.writev, (w.file.fd, iov, n));
        }
        if (r >= 0)
            errno = before;
    }
    leave_file(&w.file);
    return r;
#undef counts
}

/*
 * A write of no bytes, as of read_nothing: it sends an empty datagram, and tells of a socket that can't be written to.
 * The kernel ends a record of a SOCK_SEQPACKET at each write.
 */
static ssize_t write_nothing(int fd, const void *buf, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    int type = 0, before = errno;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
        errno = before;
        return KERNEL(real.write(fd, buf, 0));
    }
    int flags = MSG_DONTWAIT | (type == SOCK_SEQPACKET ? MSG_EOR : 0);
    w.kind = SOCKET;
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO, real.sendto(w.file.fd, buf, 0, flags, NULL, 0),
                           real.write(w.file.fd, buf, 0));
    leave_file(&w.file);
    return r;
#undef counts
}

ssize_t do_write(int fd, const void *buf, size_t n, struct counts *c)
{
    if (n == 0)
        return write_nothing(fd, buf, c);
    struct iovec iov = {(void *)buf, n < MOST ? n : MOST};
    return do_writev(fd, &iov, 1, true, c);
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
    COUNTED(write);
    return TAKEN ? do_write(fd, buf, n, &counts) : real.write(fd, buf, n);
}
ALIAS(__write, write);

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
    COUNTED(writev);
    return TAKEN ? do_writev(fd, iov, n, false, &counts) : real.writev(fd, iov, n);
}

/* As libc's, which call read and write within libc. */

EXPORT int eventfd_read(int fd, eventfd_t *value)
{
    COUNTED(eventfd_read);
    if (!TAKEN)
        return real.eventfd_read(fd, value);
    return do_read(fd, value, sizeof *value, &counts) == sizeof *value ? 0 : -1;
}

EXPORT int eventfd_write(int fd, eventfd_t value)
{
    COUNTED(eventfd_write);
    if (!TAKEN)
        return real.eventfd_write(fd, value);
    const struct iovec iov = {&value, sizeof value};
    return do_writev(fd, &iov, 1, true, &counts) == sizeof value ? 0 : -1;
}

/* At an offset: disks. What is in memory is read at once. */

EXPORT ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    COUNTED(pread);
    if (!TAKEN || at < 0)
        return real.pread64(fd, buf, n, at);
    struct iovec iov = {buf, n < MOST ? n : MOST};
    int before = errno;
    ssize_t r = n > 0 ? real.preadv64v2(fd, &iov, 1, at, RWF_NOWAIT) : -1;
    if (r == (ssize_t)iov.iov_len)
        return r;
    errno = before;
    return KERNEL(real.pread64(fd, buf, n, at));
}
ALIAS(pread, pread64);
ALIAS(__pread64, pread64);

EXPORT ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room)
{
    if (n > room)
        __chk_fail();
    return TAKEN ? pread64(fd, buf, n, at) : real.pread64(fd, buf, n, at);
}
ALIAS(__pread_chk, __pread64_chk);

EXPORT ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at)
{
    COUNTED(pwrite);
    return TAKEN ? KERNEL(real.pwrite64(fd, buf, n, at)) : real.pwrite64(fd, buf, n, at);
}
ALIAS(pwrite, pwrite64);
ALIAS(__pwrite64, pwrite64);

IN_KERNEL(ssize_t, preadv64, (int fd, const struct iovec *iov, int n, off64_t at), (fd, iov, n, at))
ALIAS(preadv, preadv64);
IN_KERNEL(ssize_t, pwritev64, (int fd, const struct iovec *iov, int n, off64_t at), (fd, iov, n, at))
ALIAS(pwritev, pwritev64);

/* At -1 these are readv and writev, with flags. */

EXPORT ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags)
{
    COUNTED(preadv2);
    if (!TAKEN || (flags & RWF_NOWAIT))
        return real.preadv64v2(fd, iov, n, at, flags);
    if (at == -1)
        return flags == 0 ? do_readv(fd, iov, n, false, &counts) : ELSEWHERE(real.preadv64v2, (fd, iov, n, at, flags));
    return KERNEL(real.preadv64v2(fd, iov, n, at, flags));
}
ALIAS(preadv2, preadv64v2);

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags)
{
    COUNTED(pwritev2);
    if (!TAKEN || (flags & RWF_NOWAIT))
        return real.pwritev64v2(fd, iov, n, at, flags);
    if (at == -1)
        return flags == 0 ? do_writev(fd, iov, n, false, &counts) : ELSEWHERE(real.pwritev64v2, (fd, iov, n, at, flags));
    return KERNEL(real.pwritev64v2(fd, iov, n, at, flags));
}
ALIAS(pwritev2, pwritev64v2);
WAITS_ELSEWHERE(ssize_t, sendfile64, (int out, int in, off64_t *at, size_t n), (out, in, at, n))
ALIAS(sendfile, sendfile64);
WAITS_ELSEWHERE(ssize_t, splice, (int in, off64_t *at, int out, off64_t *to, size_t n, unsigned flags), (in, at, out, to, n, flags))
WAITS_ELSEWHERE(ssize_t, tee, (int in, int out, size_t n, unsigned flags), (in, out, n, flags))
WAITS_ELSEWHERE(ssize_t, vmsplice, (int fd, const struct iovec *iov, size_t n, unsigned flags), (fd, iov, n, flags))
IN_KERNEL(ssize_t, copy_file_range, (int in, off64_t *at, int out, off64_t *to, size_t n, unsigned flags), (in, at, out, to, n, flags))
IN_KERNEL(int, fsync, (int fd), (fd))
IN_KERNEL(int, fdatasync, (int fd), (fd))
IN_KERNEL(int, syncfs, (int fd), (fd))
IN_KERNEL(int, msync, (void *at, size_t n, int flags), (at, n, flags))
IN_KERNEL(int, sync_file_range, (int fd, off64_t at, off64_t n, unsigned flags), (fd, at, n, flags))
WAITS_ELSEWHERE(int, tcdrain, (int fd), (fd))

/* Threads of libc read and write, and a caller waits for these within libc. */

WAITS_ELSEWHERE(int, aio_suspend, (const struct aiocb *const list[], int n, const struct timespec *t), (list, n, t))

EXPORT int aio_suspend64(const struct aiocb64 *const list[], int n, const struct timespec *t)
{
    return aio_suspend((const struct aiocb *const *)list, n, t);
}

EXPORT int lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *told)
{
    COUNTED(lio_listio);
    return mode == LIO_WAIT && TAKEN ? ELSEWHERE(real.lio_listio, (mode, list, n, told)) : real.lio_listio(mode, list, n, told);
}

EXPORT int lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *told)
{
    return lio_listio(mode, (struct aiocb *const *)list, n, told);
}

EXPORT void sync(void)
{
    COUNTED(sync);
    if (TAKEN)
        (void)KERNEL((real.sync(), 0));
    else
        real.sync();
}

/* Sockets */

/* Of receives for urgent data and for errors, which don't wait: EAGAIN says that there are none. Sockets that have no such
 * things ignore the flag for errors, and may wait. */
enum { NOT_FOR_DATA = MSG_OOB | MSG_ERRQUEUE };

/*
 * The next part of a receive of all, for a socket of the Internet; 0: the call ends with what it has. After its first bytes the
 * kernel's call ends at urgent data, and leaves the connection's error to the next call. A receive that finds no bytes
 * would take the error.
 */
static ssize_t receive_more(int fd, void *at, size_t n, int flags)
{
    struct pollfd one = {fd, POLLRDHUP, 0};
    int marked = 0, there = 0;
    bool ended = poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP)); /* nothing comes after what is there */
    if (ioctl(fd, SIOCATMARK, &marked) == 0 && marked)
        return 0;
    if (ioctl(fd, FIONREAD, &there) == 0 && there == 0)
        return ended ? 0 : failed(EAGAIN);
    return real.recvfrom(fd, at, n, flags | MSG_DONTWAIT, NULL, NULL);
}

static ssize_t do_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len,
                           struct counts *c)
{
#define counts (*c)
    const struct iovec buffer = {buf, n};
    struct waiting w = WAITING(fd);
    int before = errno;
    if (flags & NOT_FOR_DATA)
        return KERNEL(real.recvfrom(fd, buf, n, flags, from, len));
    if (flags == 0 && from == NULL)
        w = (struct waiting)READING(fd, &buffer);
    if (!w.skips)
        w.kind = SOCKET; /* what it is if it would have to wait */
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLIN, SO_RCVTIMEO,
                           real.recvfrom(w.file.fd, buf, n, flags | MSG_DONTWAIT, from, len),
                           real.recvfrom(w.file.fd, buf, n, flags, from, len));
    if (LIKELY(!(flags & MSG_WAITALL)) || r <= 0 || (size_t)r >= n || w.by_kernel) {
        leave_file(&w.file);
        return r;
    }
    /* All of it is asked for. Datagrams and what is behind the stream's end don't become more. */
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    getsockopt(w.file.fd, SOL_SOCKET, SO_TYPE, &type, &size);
    getsockopt(w.file.fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    bool internet = domain == AF_INET || domain == AF_INET6;
    if (type == SOCK_STREAM && (flags & MSG_PEEK))
        r = ELSEWHERE(real.recv, (w.file.fd, buf, n, flags)); /* has taken nothing */
    while (type == SOCK_STREAM && !(flags & MSG_PEEK) && (size_t)r < n && !w.by_kernel) {
        /* With MSG_TRUNC nothing is written to the buffer. */
        char *at = flags & MSG_TRUNC ? buf : (char *)buf + r;
        ssize_t more = UNTIL_DONE(ssize_t, &w, internet ? POLLIN | POLLPRI : POLLIN, SO_RCVTIMEO,
                                  internet ? receive_more(w.file.fd, at, n - (size_t)r, flags)
                                           : real.recvfrom(w.file.fd, at, n - (size_t)r, flags | MSG_DONTWAIT, NULL, NULL),
                                  real.recvfrom(w.file.fd, at, n - (size_t)r, flags, NULL, NULL));
        if (more <= 0)
            break;
        r += more;
    }
    if (r >= 0)
        errno = before; /* the last try may have failed */
    leave_file(&w.file);
    return r;
#undef counts
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
    COUNTED(recvfrom);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvfrom(fd, buf, n, flags, from, len);
    return do_recvfrom(fd, buf, n, flags, from, len, &counts);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags, struct sockaddr *from, socklen_t *len)
{
    COUNTED(recvfrom);
    if (n > room)
        __chk_fail();
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvfrom(fd, buf, n, flags, from, len);
    return do_recvfrom(fd, buf, n, flags, from, len, &counts);
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    COUNTED(recv);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recv(fd, buf, n, flags);
    return do_recvfrom(fd, buf, n, flags, NULL, NULL, &counts);
}

EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
    COUNTED(recv);
    if (n > room)
        __chk_fail();
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recv(fd, buf, n, flags);
    return do_recvfrom(fd, buf, n, flags, NULL, NULL, &counts);
}

static ssize_t do_recvmsg(int fd, struct msghdr *msg, int flags, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    ssize_t r;
    if (flags & NOT_FOR_DATA) {
        r = KERNEL(real.recvmsg(fd, msg, flags));
    } else if (flags & MSG_WAITALL) {
        /* Of several buffers and with control data: the kernel collects them. */
        r = ELSEWHERE(real.recvmsg, (fd, msg, flags));
    } else {
        r = UNTIL_DONE(ssize_t, &w, POLLIN, SO_RCVTIMEO, real.recvmsg(w.file.fd, msg, flags | MSG_DONTWAIT),
                       real.recvmsg(w.file.fd, msg, flags));
    }
    leave_file(&w.file);
    return r;
#undef counts
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    COUNTED(recvmsg);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvmsg(fd, msg, flags);
    return do_recvmsg(fd, msg, flags, &counts);
}

EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *t)
{
    COUNTED(recvmmsg);
    struct waiting w = WAITING(fd);
    int r;
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvmmsg(fd, msgs, n, flags, t);
    if (flags & NOT_FOR_DATA)
        return KERNEL(real.recvmmsg(fd, msgs, n, flags, t));
    if (t == NULL && ((flags & MSG_WAITFORONE) || n <= 1)) {
        r = UNTIL_DONE(int, &w, POLLIN, SO_RCVTIMEO, real.recvmmsg(w.file.fd, msgs, n, flags | MSG_DONTWAIT, NULL),
                       real.recvmmsg(w.file.fd, msgs, n, flags, NULL));
        leave_file(&w.file);
        return r;
    }
    return ELSEWHERE(real.recvmmsg, (fd, msgs, n, flags, t)); /* waits for all of them, in its own way */
}

static ssize_t do_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len,
                         struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    const struct iovec iov = {(void *)buf, n};
    w.kind = SOCKET;
    if (flags & MSG_FASTOPEN) /* waits for the connection, and then for room */
        return ELSEWHERE(real.sendto, (fd, buf, n, flags, to, len));
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO,
                           real.sendto(w.file.fd, buf, n, flags | MSG_DONTWAIT, to, len),
                           real.sendto(w.file.fd, buf, n, flags, to, len));
    if (rest_waits(&w, &iov, 1, r))
        SEND_THE_REST(&w, &iov, 1, r, flags);
    leave_file(&w.file);
    return r;
#undef counts
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    COUNTED(send);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.send(fd, buf, n, flags);
    return do_sendto(fd, buf, n, flags, NULL, 0, &counts);
}
ALIAS(__send, send);

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
    COUNTED(sendto);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.sendto(fd, buf, n, flags, to, len);
    return do_sendto(fd, buf, n, flags, to, len, &counts);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    COUNTED(sendmsg);
    struct waiting w = WAITING(fd);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.sendmsg(fd, msg, flags);
    if (flags & MSG_FASTOPEN)
        return ELSEWHERE(real.sendmsg, (fd, msg, flags));
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO, real.sendmsg(w.file.fd, msg, flags | MSG_DONTWAIT),
                           real.sendmsg(w.file.fd, msg, flags));
    if (r > 0 && rest_waits(&w, msg->msg_iov, msg->msg_iovlen, r)) /* what was sent with it has gone with the first bytes */
        SEND_THE_REST(&w, msg->msg_iov, msg->msg_iovlen, r, flags);
    leave_file(&w.file);
    return r;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.sendmmsg(fd, msgs, n, flags);
    /* One after the other, as the kernel does; an error after the first is told by the next call. */
    unsigned sent = 0;
    for (; sent < n && sent < IOV_MAX; sent++) {
        ssize_t r = sendmsg(fd, &msgs[sent].msg_hdr, flags);
        if (r < 0)
            return sent > 0 ? (int)sent : -1;
        msgs[sent].msg_len = (unsigned)r;
    }
    return (int)sent;
}

/*
 * connect: the socket is non-blocking for the instant of the system call. No other call on a socket that is not
 * connected can notice that, except a call that asks for the flag. poll waits, and a second connect tells how the
 * first has ended.
 */
static int connect_at_once(int fd, const struct sockaddr *to, socklen_t len)
{
    int yes = 1, no = 0;
    if (ioctl(fd, FIONBIO, &yes) != 0)
        return real.connect(fd, to, len);
    int r = real.connect(fd, to, len), error = errno;
    ioctl(fd, FIONBIO, &no);
    errno = error;
    return r;
}

EXPORT int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    COUNTED(connect);
    if (!TAKEN)
        return real.connect(fd, to, len);
    struct waiting w = WAITING(fd);
    int before = errno, r;
    switch (may_wait(fd, SO_SNDTIMEO, &w.kind, &w.deadline)) {
    case HOW_NOT: return real.connect(fd, to, len);
    case HOW_KERNEL: return KERNEL(real.connect(fd, to, len));
    case HOW_PARK: break;
    }
    if (w.kind != SOCKET)
        return real.connect(fd, to, len);
    r = connect_at_once(fd, to, len);
    if (r != 0 && errno == EAGAIN) { /* a local socket whose queue is full: poll doesn't say when it has room */
        errno = before;
        return ELSEWHERE(real.connect, (fd, to, len));
    }
    int first = errno;
    while (r != 0 && (errno == EINPROGRESS || errno == EALREADY)) {
        PARKS;
        int error = wait_for_file(&w.file, POLLOUT, w.deadline, NULL);
        if (error != 0) {
            errno = error == ETIMEDOUT ? first : error; /* as of a socket with SO_SNDTIMEO */
            break;
        }
        r = connect_at_once(w.file.fd, to, len);
        if (r != 0 && errno == EISCONN)
            r = 0;
    }
    leave_file(&w.file);
    if (r == 0)
        errno = before;
    return r;
}
ALIAS(__connect, connect);

/*
 * accept can't be tried without a flag of the file, which others may use too. So goroutines that accept on one socket
 * take turns. The goroutine whose turn it is waits for poll, and no other goroutine takes its connection. The socket's
 * inode tells sockets apart: a number may be closed, and used again, while a goroutine still waits for the socket that had it.
 */
struct turn {
    struct turn *next;
    ino_t inode;
    unsigned users;
    gs_mutex mutex;
};

enum { TURN_BUCKETS = 64 };
static struct turn_bucket {
    atomic_uint lock;
    struct turn *first;
} turns[TURN_BUCKETS];

/* The socket's turn, which the caller waits for by its mutex. NULL: there is no memory, or it is no file. */
static struct turn *enter_turn(int fd)
{
    struct stat st;
    struct turn *t, *fresh = calloc(1, sizeof *fresh); /* not with the lock held: malloc may be the program's */
    if (fresh == NULL || fstat(fd, &st) != 0) {
        free(fresh);
        return NULL;
    }
    struct turn_bucket *b = &turns[st.st_ino % TURN_BUCKETS];
    spin_lock(&b->lock);
    for (t = b->first; t != NULL && t->inode != st.st_ino; t = t->next)
        ;
    if (t == NULL) {
        t = fresh;
        fresh = NULL;
        t->inode = st.st_ino;
        t->next = b->first;
        b->first = t;
    }
    t->users++;
    spin_unlock(&b->lock);
    free(fresh);
    return t;
}

static void leave_turn(struct turn *t)
{
    struct turn_bucket *b = &turns[t->inode % TURN_BUCKETS];
    struct turn **at;
    spin_lock(&b->lock);
    if (--t->users > 0) {
        t = NULL;
    } else {
        for (at = &b->first; *at != t; at = &(*at)->next)
            ;
        *at = t->next;
    }
    spin_unlock(&b->lock);
    free(t);
}

void files_in_child(void)
{
    memset(file_buckets, 0, sizeof file_buckets);
    memset(turns, 0, sizeof turns);
}

static int do_accept(int fd, struct sockaddr *from, socklen_t *len, int flags, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    int before = errno, r = -1, error;
    switch (may_wait(fd, SO_RCVTIMEO, &w.kind, &w.deadline)) {
    case HOW_NOT: return real.accept4(fd, from, len, flags);
    case HOW_KERNEL: return KERNEL(real.accept4(fd, from, len, flags));
    case HOW_PARK: break;
    }
    if (w.kind != SOCKET || (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)))
        return real.accept4(fd, from, len, flags);
    struct turn *turn = enter_turn(fd);
    if (turn == NULL)
        return KERNEL(real.accept4(fd, from, len, flags));
    struct file_waiter for_turn; /* close may come before the turn does */
    begin_to_wait(&w.file, &for_turn);
    error = -gs_mutex_lock(&turn->mutex, w.deadline);
    end_of_wait(&w.file, &for_turn);
    if (error == 0) {
        struct pollfd ready = {.fd = w.file.fd, .events = POLLIN};
        if (poll(&ready, 1, 0) == 0) {
            int listens = 1;
            socklen_t size = sizeof listens;
            getsockopt(w.file.fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
            if (listens) {
                PARKS;
                error = wait_for_file(&w.file, POLLIN, w.deadline, NULL);
            }
        }
        if (error == 0)
            r = KERNEL(real.accept4(w.file.fd, from, len, flags));
        int after = errno;
        gs_mutex_unlock(&turn->mutex);
        errno = after;
    }
    int after = errno;
    leave_turn(turn);
    errno = after;
    if (error != 0)
        errno = error == ETIMEDOUT ? EAGAIN : error;
    leave_file(&w.file);
    if (r >= 0)
        errno = before;
    return r;
#undef counts
}

EXPORT int accept(int fd, struct sockaddr *from, socklen_t *len)
{
    COUNTED(accept);
    return TAKEN ? do_accept(fd, from, len, 0, &counts) : real.accept(fd, from, len);
}

EXPORT int accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    COUNTED(accept4);
    return TAKEN ? do_accept(fd, from, len, flags, &counts) : real.accept4(fd, from, len, flags);
}

/* Opening, and locks */

/* As fcntl.h's __OPEN_NEEDS_MODE: O_DIRECTORY is a part of __O_TMPFILE. */
static bool needs_mode(int flags)
{
    return (flags & O_CREAT) || (flags & __O_TMPFILE) == __O_TMPFILE;
}

#define MODE(after) \
    long mode = 0; \
    if (needs_mode(flags)) { \
        va_list list_; \
        va_start(list_, after); \
        mode = va_arg(list_, mode_t); \
        va_end(list_); \
    }

bool is_fifo(int dir, const char *path, int flags)
{
    struct stat st;
    int error = errno;
    bool yes = !(flags & (O_NONBLOCK | O_PATH)) && fstatat(dir, path, &st, 0) == 0 && S_ISFIFO(st.st_mode);
    errno = error;
    return yes;
}

static int do_openat(int dir, const char *path, int flags, long mode, struct counts *c)
{
#define counts (*c)
    return is_fifo(dir, path, flags) ? ELSEWHERE(real.openat64, (dir, path, flags, mode))
                                     : KERNEL(real.openat64(dir, path, flags, mode));
#undef counts
}

EXPORT int open64(const char *path, int flags, ...)
{
    COUNTED(open);
    MODE(flags);
    return TAKEN ? do_openat(AT_FDCWD, path, flags, mode, &counts) : real.open64(path, flags, mode);
}
ALIAS(open, open64);
ALIAS(__open, open64);
ALIAS(__open64, open64);

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
    COUNTED(openat);
    MODE(flags);
    return TAKEN ? do_openat(dir, path, flags, mode, &counts) : real.openat64(dir, path, flags, mode);
}
ALIAS(openat, openat64);

/* With FORTIFY_SOURCE, where no mode is given. */
EXPORT int __open64_2(const char *path, int flags)
{
    COUNTED(open);
    if (needs_mode(flags))
        __chk_fail();
    return TAKEN ? do_openat(AT_FDCWD, path, flags, 0, &counts) : real.open64(path, flags, 0L);
}
ALIAS(__open_2, __open64_2);

EXPORT int __openat64_2(int dir, const char *path, int flags)
{
    COUNTED(openat);
    if (needs_mode(flags))
        __chk_fail();
    return TAKEN ? do_openat(dir, path, flags, 0, &counts) : real.openat64(dir, path, flags, 0L);
}
ALIAS(__openat_2, __openat64_2);

EXPORT int creat64(const char *path, mode_t mode)
{
    COUNTED(creat);
    const int flags = O_CREAT | O_WRONLY | O_TRUNC;
    return TAKEN ? do_openat(AT_FDCWD, path, flags, (long)mode, &counts) : real.open64(path, flags, (long)mode);
}
ALIAS(creat, creat64);

EXPORT int fcntl64(int fd, int cmd, ...)
{
    COUNTED(fcntl);
    va_list list;
    va_start(list, cmd);
    long arg = va_arg(list, long);
    va_end(list);
    if ((cmd != F_SETLKW && cmd != F_OFD_SETLKW) || !TAKEN)
        return real.fcntl64(fd, cmd, arg);
    int before = errno, r = real.fcntl64(fd, cmd == F_SETLKW ? F_SETLK : F_OFD_SETLK, arg);
    if (r == 0 || (errno != EAGAIN && errno != EACCES))
        return r;
    errno = before;
    return ELSEWHERE(real.fcntl64, (fd, cmd, arg));
}
ALIAS(fcntl, fcntl64);
ALIAS(__fcntl, fcntl64);

EXPORT int lockf64(int fd, int op, off64_t n)
{
    COUNTED(lockf);
    return op == F_LOCK && TAKEN ? ELSEWHERE(real.lockf64, (fd, op, n)) : real.lockf64(fd, op, n);
}
ALIAS(lockf, lockf64);

EXPORT int flock(int fd, int op)
{
    COUNTED(flock);
    if ((op & LOCK_NB) || !TAKEN)
        return real.flock(fd, op);
    int before = errno, r = real.flock(fd, op | LOCK_NB);
    if (r == 0 || errno != EWOULDBLOCK)
        return r;
    errno = before;
    return ELSEWHERE(real.flock, (fd, op));
}
