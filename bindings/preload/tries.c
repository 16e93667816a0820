/*
 * Files and sockets. A file's flags in the kernel are never changed, except for the instant of a connect. A call that
 * might block is tried with MSG_DONTWAIT or RWF_NOWAIT, and gs_poll_fd waits between two tries. A call that can't be
 * tried without waiting is made when poll says that it won't wait. If it waits nevertheless, other goroutines have the
 * P.
 */
#include "tries.h"

#include "times.h"

enum how may_wait(int fd, int timeout_option, enum kind *kind, gs_deadline *deadline)
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
 * After IN_VAIN failed tries on a file that poll calls ready (a local datagram socket whose peer is full), PAUSE ns
 * pass before each further try.
 */
enum { IN_VAIN = 8, PAUSE = 500 * 1000 };


atomic_bool drained[HINTS];

static void expect_wait(int fd, bool yes)
{
    if ((unsigned)fd < HINTS)
        atomic_store_explicit(&drained[fd], yes, memory_order_relaxed);
}

/* Waits for a plain read from a socket by gs_recv, which takes fewer system calls than a wait and a try. */
static enum how receive(struct waiting *w)
{
    ssize_t r = wait_as_waiter(&w->file, 0, w->into, w->deadline);
    if (r == -ETIMEDOUT && w->deadline != GS_FOREVER && gs_now() >= w->deadline) {
        /* SO_RCVTIMEO has passed. Bytes that came in time count. */
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
 * Whether the file is shut down for reading. Then a call that may wait ends at once, but on datagram sockets tries of
 * it still give EAGAIN.
 */
static bool is_shut(int fd)
{
    struct pollfd one = {fd, POLLRDHUP, 0};
    return poll_now(&one) > 0 && (one.revents & POLLRDHUP);
}

enum how wait_again(struct waiting *w, int events, int timeout_option)
{
    const int wanted = errno; /* errno of the call when its time is over */
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

/*
 * How a read of a terminal waits. In non-canonical mode the terminal's settings say how long a read waits, and for how
 * many bytes. poll reports the terminal at VMIN bytes, or at one byte if VMIN is 0 or VTIME isn't. So poll can wait for
 * a read only if VMIN is 1. HOW_PARK: poll can wait; HOW_KERNEL: the read doesn't wait; HOW_NOT: only the read itself
 * can.
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
 * Whether the file is a FIFO that no process has open for writing, so that a read gives 0 at once. poll reports that
 * only if the FIFO has had a writer since it was opened. tee, which copies out of it, reports that without taking
 * anything.
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

enum how wait_first(struct waiting *w, int events, int option)
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
        return ONLY_CALL_WAITS; /* for as long as the socket's option says */
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

bool rest_waits(struct waiting *w, const struct iovec *iov, size_t n, ssize_t done)
{
    struct iovec rest[AT_ONCE];
    return done > 0 && !w->by_kernel && rest_of(iov, n, (size_t)done, rest) > 0
           && !(real.fcntl64(w->file.fd, F_GETFL, 0L) & O_NONBLOCK);
}

ssize_t send_rest(struct waiting *w, struct iovec *of, int parts, int flags)
{
    struct pollfd one = {w->file.fd, 0, 0};
    struct msghdr msg = {.msg_iov = of, .msg_iovlen = (size_t)parts};
    if (poll_now(&one) > 0 && (one.revents & POLLHUP))
        return failed(EPIPE);
    return real.sendmsg(w->file.fd, &msg, flags | MSG_NOSIGNAL);
}
