/* Reads and writes: read, write and their kin. */
#include "transfers.h"

#include "tries.h"

#include <linux/major.h>
#include <sys/sysmacros.h>

/* The minor number of /dev/kmsg, the device of MEM_MAJOR that waits: for messages. */
enum { KMSG_MINOR = 11 };

/*
 * Whether a try of a read may read less than the call, which never waits for others here. On a disk a try stops where
 * the file's contents aren't in memory; on /dev/zero and its kin where the kernel wants the processor or has a signal
 * for the thread.
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

/* Reads the rest, with the P given away, after a try that has read `done` bytes and stopped early. errno stays. */
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

/* readv of a goroutine. `ours`: the array is this library's, with one buffer, and can be read. */
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
 * A read of no bytes. The vectored call, the only one that can be tried, returns 0 at once for a total length of 0. But
 * read itself may do more with the file: fail with EINVAL, or wait for an event.
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

/* writev of a goroutine. `ours`: as for do_readv. */
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
            r = KERNEL(real.writev(w.file.fd, iov, n)); /* poll says that there is room for these bytes */
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
 * A write of no bytes, like read_nothing: write sends an empty datagram, and reports a socket that can't be written to.
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

/* libc's own, which call read and write within libc. */

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

/* At offset -1 these are readv and writev with flags. */

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
