/*
 * Functions that glibc 2.28 has in no shared object, of the library's own, which others don't see:
 * glibc has gettid since 2.30, and the rest since 2.33 (before, each program had a part of them).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)
int stat(const char *restrict path, struct stat *restrict to)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0);
}
int lstat(const char *restrict path, struct stat *restrict to)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int fstat(int fd, struct stat *to)
{
    return (int)syscall(SYS_fstat, fd, to);
}
int fstatat(int dir, const char *restrict path, struct stat *restrict to, int flags)
{
    return (int)syscall(SYS_newfstatat, dir, path, to, flags);
}
/* For these CPUs both structures are one. */
int stat64(const char *restrict, struct stat64 *restrict) __attribute__((alias("stat")));
int lstat64(const char *restrict, struct stat64 *restrict) __attribute__((alias("lstat")));
int fstat64(int, struct stat64 *) __attribute__((alias("fstat")));

pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}
