/* The functions of stdio, built on streams.h. */
#include "streams.h"

#include "numbers.h"
#include "opening.h"
#include "transfers.h"

#include <wchar.h>

static struct output items(FILE *f, const void *from, size_t size, size_t n)
{
    size_t bytes;
    if (__builtin_mul_overflow(size, n, &bytes) || bytes > NOT_KNOWN)
        bytes = NOT_KNOWN;
    return some(bytes, bytes < NOT_KNOWN && (f->_flags & LINE_BUFFERED) && memchr(from, '\n', bytes) != NULL);
}

/*
 * Defines a function of a stream. `fn` with `args` is libc's function, `none` the value of a failed call, and
 * `decision` says where to make the call. `locks` is false for functions whose callers lock the stream.
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
/* Functions that a compiler calls after it has inlined getc and its kin. */
ON_STREAM(int, EOF, __uflow, (FILE *f), __uflow, (f), f, false, to_read(c, one))
ON_STREAM(int, EOF, __underflow, (FILE *f), __underflow, (f), f, false, to_read(c, one))
ON_STREAM(int, EOF, ungetc, (int ch, FILE *f), ungetc, (ch, f), f, true, to_lock(c))

char *gets(char *buf); /* in no header since C11 */
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

/* Defines a function of scanf's kin, by libc's function that takes a va_list. */
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
/* The headers redirect the plain names to the functions of C99: here those get other names, as GNU's functions. */
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
/* The function that a compiler calls after it has inlined putc_unlocked, if the buffer is full. */
ON_STREAM(int, EOF, __overflow, (FILE *f, int ch), __overflow, (f, ch), f, false, to_write(c, some(1, true)))
ON_STREAM(int, EOF, puts, (const char *s), puts, (s), stdout, true, to_write(c, some(strlen(s) + 1, true)))
ON_STREAM(int, EOF, fputs, (const char *s, FILE *f), fputs, (s, f), f, true, to_write(c, string(s)))
ON_STREAM(int, EOF, fputs_unlocked, (const char *s, FILE *f), fputs_unlocked, (s, f), f, false, to_write(c, string(s)))
ON_STREAM(size_t, 0, fwrite, (const void *buf, size_t size, size_t n, FILE *f), fwrite, (buf, size, n, f), f, true,
    to_write(c, items(f, buf, size, n)))
ON_STREAM(size_t, 0, fwrite_unlocked, (const void *buf, size_t size, size_t n, FILE *f), fwrite_unlocked, (buf, size, n, f), f,
    false, to_write(c, items(f, buf, size, n)))

/*
 * printf: the length of the output is known only when the text is made. So the text is made here, and written as by
 * fwrite. `flag` is the argument of FORTIFY_SOURCE's functions; -1: none.
 */
int __vsnprintf_chk(char *buf, size_t n, int flag, size_t room, const char *format, va_list args); /* glibc's */

struct made {
    char *text; /* NULL: there is no memory */
    int n;      /* the length; below 0: the text can't be made */
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

/* Defines a function with `...` and one with a va_list, both with the stream `to` and `flag`. `taken`: what goroutines
   do; `plain`: libc's function. */
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
    return f != NULL ? flush_stream(f, true, &counts) : ELSEWHERE(real.fflush, (f)); /* all streams, each locked */
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

/* Functions that flush the stream's output first. */
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

/* For fclose: flushes the output. The stream's file is closed, which ends the lock too. */
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
