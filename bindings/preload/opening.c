/* Opening files, and locks of files. */
#include "opening.h"

#include "calls.h"

/* Whether a mode is given, as fcntl.h's __OPEN_NEEDS_MODE. O_DIRECTORY is a part of __O_TMPFILE. */
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

/* FORTIFY_SOURCE calls these where no mode is given. */
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
