/* Reads and writes at an offset, copies from file to file, and functions that wait for disks or for libc's threads. */
#include "calls.h"
#include "tries.h"

/* Reads and writes at an offset, as on disks. Contents in memory are read at once. */

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

/* libc's threads read and write, and the caller waits for them within libc. */

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
