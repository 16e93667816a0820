/*
 * Streams. libc reads the file of a stream within itself, and holds the stream's lock meanwhile. So a call that may
 * have to wait for a pipe, a socket or a terminal is made as it is, by another thread. What is in the stream's buffer
 * is taken at once.
 */
#include "preload.h"

#include <sys/stat.h>

/* Opening */

static bool opens_fifo(const char *path)
{
    struct stat st;
    int error = errno;
    bool yes = path != NULL && stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
    errno = error;
    return yes;
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
    COUNTED(fopen);
    return TAKEN && opens_fifo(path) ? ELSEWHERE(real.fopen64, (path, mode)) : real.fopen64(path, mode);
}
ALIAS(fopen, fopen64);

EXPORT FILE *freopen64(const char *path, const char *mode, FILE *f)
{
    COUNTED(freopen);
    return TAKEN && opens_fifo(path) ? ELSEWHERE(real.freopen64, (path, mode, f)) : real.freopen64(path, mode, f);
}
ALIAS(freopen, freopen64);

/* Reading */

/* glibc's lock of a stream, as it has been since 2.3. */
struct stream_lock {
    int word, count;
    void *owner; /* a thread */
};

/* Whether the caller's thread has the lock, by flockfile. Then no other thread can make the call. */
static bool has_lock(FILE *f)
{
    const struct stream_lock *lock = (const void *)f->_lock;
    return lock != NULL && __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == (void *)pthread_self();
}

static size_t in_buffer(const FILE *f)
{
    return f->_IO_read_ptr < f->_IO_read_end ? (size_t)(f->_IO_read_end - f->_IO_read_ptr) : 0;
}

enum { NO_END = -1, ANY_BYTE = -2 };

/* Whether the buffer has `n` bytes, or fewer that end with the byte `end`. */
static bool has_enough(FILE *f, size_t n, int end)
{
    size_t there = in_buffer(f);
    return there >= n || feof_unlocked(f)
           || (end >= 0 && there > 0 && memchr(f->_IO_read_ptr, end, there) != NULL);
}

/* Whether a read of the stream may wait for another process, thread or goroutine. errno stays. */
static bool may_wait(FILE *f, size_t n, int end)
{
    if (LIKELY(in_buffer(f) >= n) || has_lock(f))
        return false;
    if (ftrylockfile(f) != 0)
        return true; /* for the lock */
    bool enough = has_enough(f, n, end);
    funlockfile(f);
    if (enough)
        return false;
    struct stat st;
    int error = errno, fd = fileno(f);
    bool waits = fd >= 0 && fstat(fd, &st) == 0
                 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || (S_ISCHR(st.st_mode) && isatty(fd)));
    if (waits && end == ANY_BYTE) {
        struct pollfd one = {fd, POLLIN, 0};
        waits = real.poll(&one, 1, 0) == 0;
    }
    errno = error;
    return waits;
}

/* `n` and `end`: what ends the call; see has_enough. */
#define READS(result, name, params, args, stream, n, end) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        return TAKEN && may_wait(stream, n, end) ? ELSEWHERE(real.name, args) : real.name args; \
    }

READS(int, fgetc, (FILE *f), (f), f, 1, ANY_BYTE)
READS(int, getc, (FILE *f), (f), f, 1, ANY_BYTE)
READS(int, fgetc_unlocked, (FILE *f), (f), f, 1, ANY_BYTE)
READS(int, getc_unlocked, (FILE *f), (f), f, 1, ANY_BYTE)
ALIAS(_IO_getc, getc);
/* What the macros for these call when the buffer is empty. */
READS(int, __uflow, (FILE *f), (f), f, 1, ANY_BYTE)
READS(int, __underflow, (FILE *f), (f), f, 1, ANY_BYTE)

EXPORT int getchar(void)
{
    return TAKEN ? getc(stdin) : real.getc(stdin);
}

EXPORT int getchar_unlocked(void)
{
    return TAKEN ? getc_unlocked(stdin) : real.getc_unlocked(stdin);
}

#define LINE_OF(n) (size_t)((n) > 1 ? (n) - 1 : 0)
READS(char *, fgets, (char *s, int n, FILE *f), (s, n, f), f, LINE_OF(n), '\n')
READS(char *, fgets_unlocked, (char *s, int n, FILE *f), (s, n, f), f, LINE_OF(n), '\n')
READS(char *, __fgets_chk, (char *s, size_t room, int n, FILE *f), (s, room, n, f), f, LINE_OF(n), '\n')
READS(char *, __fgets_unlocked_chk, (char *s, size_t room, int n, FILE *f), (s, room, n, f), f, LINE_OF(n), '\n')
READS(ssize_t, getline, (char **s, size_t *n, FILE *f), (s, n, f), f, SIZE_MAX, '\n')
READS(ssize_t, getdelim, (char **s, size_t *n, int end, FILE *f), (s, n, end, f), f, SIZE_MAX, (unsigned char)end)
ALIAS(__getdelim, getdelim);

#define BYTES_OF(size, n) ((n) > SIZE_MAX / 2 / ((size) + 1) ? SIZE_MAX : (size) * (n))
READS(size_t, fread, (void *s, size_t size, size_t n, FILE *f), (s, size, n, f), f, BYTES_OF(size, n), NO_END)
READS(size_t, fread_unlocked, (void *s, size_t size, size_t n, FILE *f), (s, size, n, f), f, BYTES_OF(size, n), NO_END)
READS(size_t, __fread_chk, (void *s, size_t room, size_t size, size_t n, FILE *f), (s, room, size, n, f), f, BYTES_OF(size, n), NO_END)
READS(size_t, __fread_unlocked_chk, (void *s, size_t room, size_t size, size_t n, FILE *f), (s, room, size, n, f), f, BYTES_OF(size, n), NO_END)

/*
 * The header gives some of these the names of others, by the standard that the program is compiled for. So here they
 * have names of their own. How many bytes a format takes is not known before.
 */
#define SCANS(name, params, args, stream) \
    EXPORT int scan_##name params __asm__(#name); \
    int scan_##name params \
    { \
        COUNTED(name); \
        return TAKEN && may_wait(stream, SIZE_MAX, NO_END) ? ELSEWHERE(real.name, args) : real.name args; \
    }
SCANS(vfscanf, (FILE *f, const char *format, va_list list), (f, format, list), f)
SCANS(__isoc99_vfscanf, (FILE *f, const char *format, va_list list), (f, format, list), f)
SCANS(__isoc23_vfscanf, (FILE *f, const char *format, va_list list), (f, format, list), f)
SCANS(vscanf, (const char *format, va_list list), (format, list), stdin)
SCANS(__isoc99_vscanf, (const char *format, va_list list), (format, list), stdin)
SCANS(__isoc23_vscanf, (const char *format, va_list list), (format, list), stdin)

/* As libc's, which call those above within libc. */
#define SCANS_ARGUMENTS(name, params, of, args) \
    EXPORT int scan_##name params __asm__(#name); \
    int scan_##name params \
    { \
        va_list list; \
        va_start(list, format); \
        int r = TAKEN ? scan_##of args : real.of args; \
        va_end(list); \
        return r; \
    }
SCANS_ARGUMENTS(fscanf, (FILE *f, const char *format, ...), vfscanf, (f, format, list))
SCANS_ARGUMENTS(__isoc99_fscanf, (FILE *f, const char *format, ...), __isoc99_vfscanf, (f, format, list))
SCANS_ARGUMENTS(__isoc23_fscanf, (FILE *f, const char *format, ...), __isoc23_vfscanf, (f, format, list))
SCANS_ARGUMENTS(scanf, (const char *format, ...), vscanf, (format, list))
SCANS_ARGUMENTS(__isoc99_scanf, (const char *format, ...), __isoc99_vscanf, (format, list))
SCANS_ARGUMENTS(__isoc23_scanf, (const char *format, ...), __isoc23_vscanf, (format, list))
