/* streams threads|goroutines: the functions of stdio on files that make them wait, and what they do while others use the stream. */
#include "say.h"

#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio_ext.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <wchar.h>

static char big[300000];

/* Two ends of a file that waits: what is written to the second comes out of the first. */
static void open_ends(const char *kind, int ends[2])
{
    if (strcmp(kind, "pipe") == 0) {
        HOLDS(pipe(ends) == 0);
    } else if (strcmp(kind, "socket pair") == 0) {
        HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    } else if (strcmp(kind, "connection") == 0) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof at;
        int listens = socket(AF_INET, SOCK_STREAM, 0);
        ends[1] = socket(AF_INET, SOCK_STREAM, 0);
        HOLDS(bind(listens, (struct sockaddr *)&at, n) == 0 && listen(listens, 1) == 0);
        HOLDS(getsockname(listens, (struct sockaddr *)&at, &n) == 0);
        HOLDS(connect(ends[1], (struct sockaddr *)&at, n) == 0);
        HOLDS((ends[0] = accept(listens, NULL, NULL)) >= 0);
        close(listens);
    } else {
        HOLDS(openpty(&ends[1], &ends[0], NULL, NULL, NULL) == 0);
        struct termios t;
        HOLDS(tcgetattr(ends[0], &t) == 0);
        t.c_lflag &= ~(unsigned)ECHO;
        HOLDS(tcsetattr(ends[0], TCSANOW, &t) == 0);
    }
}
static const char *const kinds[] = {"pipe", "socket pair", "connection", "terminal"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- Reading ---- */

/* Writes the parts, which the character | separates, one after the other. */
struct parts {
    int fd;
    const char *text;
    bool closes;
};

static void write_parts(void *arg)
{
    const struct parts *p = arg;
    const char *at = p->text;
    for (;;) {
        size_t n = strcspn(at, "|");
        soon();
        HOLDS(write(p->fd, at, n) == (ssize_t)n);
        if (at[n] == 0)
            break;
        at += n + 1;
    }
    if (p->closes)
        close(p->fd);
}

static FILE *f;         /* reads */
static int other_end;   /* writes what it reads */
static char text[1000];
static wchar_t wide[1000];

/* Says what the call gives while another task writes the parts. */
#define WHILE_COMES(pieces, call) \
    do { \
        struct parts p_ = {other_end, pieces, false}; \
        task t_; \
        begin(&t_, write_parts, &p_); \
        SAY(call); \
        end(&t_); \
    } while (0)

static long shown(const char *s)
{
    fprintf(says, "    \"%s\"\n", s);
    return (long)strlen(s);
}

static int scan(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vfscanf(f, format, args);
    va_end(args);
    return n;
}

int __uflow(FILE *);
int __underflow(FILE *);
char *__fgets_chk(char *, size_t, int, FILE *);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
wchar_t *__fgetws_chk(wchar_t *, size_t, int, FILE *);
int old_fscanf(FILE *, const char *, ...) __asm__("fscanf");

static void reading(void)
{
    for (int k = 0; k < KINDS; k++) {
        int ends[2], a = 0, b = 0;
        char *line = NULL, word[100];
        size_t room = 0;
        bool is_terminal = k == KINDS - 1;
        fprintf(says, "    %s\n", kinds[k]);
        open_ends(kinds[k], ends);
        other_end = ends[1];
        HOLDS((f = fdopen(ends[0], "r")) != NULL);
        WHILE_COMES("one\n", getline(&line, &room, f));
        SAY(shown(line));
        WHILE_COMES("two\nthree\n", getline(&line, &room, f));
        SAY(getline(&line, &room, f)); /* from the buffer */
        SAY(shown(line));
        WHILE_COMES("fo|ur|\n", getline(&line, &room, f));
        SAY(shown(line));
        WHILE_COMES("five:six|\n", getdelim(&line, &room, ':', f));
        WHILE_COMES("seven\n", getline(&line, &room, f));
        SAY(shown(line));
        free(line);
        SAY(getline(NULL, &room, f));
        WHILE_COMES("eight\n", fgets(text, sizeof text, f) == text);
        SAY(shown(text));
        WHILE_COMES("ni|ne\n", fgets(text, sizeof text, f) == text);
        SAY(shown(text));
        WHILE_COMES("a longer line\n", fgets(text, 5, f) == text);
        SAY(shown(text));
        SAY(fgets(text, 9, f) == text);
        SAY(fgets(text, 1, f) == text);
        SAY(__fgets_chk(text, sizeof text, 900, f) == text);
        SAY(shown(text));
        WHILE_COMES("ten\n", __fgets_chk(text, sizeof text, 900, f) == text);
        WHILE_COMES("eleven\n", fgets_unlocked(text, 900, f) == text);
        WHILE_COMES("ab\n", fgetc(f));
        SAY(getc(f));
        SAY(ungetc('x', f));
        SAY(ungetc('y', f));
        SAY(fgets(text, 3, f) == text);
        SAY(shown(text));
        SAY(fgetc(f));
        WHILE_COMES("cd\n", getc_unlocked(f));
        SAY(fgetc_unlocked(f));
        SAY(fgetc_unlocked(f));
        WHILE_COMES("ef\n", __underflow(f));
        SAY(__uflow(f));
        SAY(__uflow(f));
        SAY(__uflow(f));
        SAY(ungetc('g', f));
        WHILE_COMES("hi\n", fgets(text, 900, f) == text);
        SAY(shown(text));
        WHILE_COMES("12345678\n", fread(text, 2, 3, f));
        SAY(fread(text, 1, 3, f));
        WHILE_COMES("12\n|3456\n", fread(text, 4, 2, f));
        WHILE_COMES("12\n|345\n|67\n", __fread_chk(text, sizeof text, 1, 10, f));
        WHILE_COMES("1234\n", fread_unlocked(text, 1, 5, f));
        SAY(fread(text, 0, 5, f));
        WHILE_COMES("abc\n", getw(f));
        WHILE_COMES("12 34\n", fscanf(f, "%d%d", &a, &b));
        SAY(a * 100 + b);
        WHILE_COMES("\n|  56| 7\n", fscanf(f, "%d%d", &a, &b));
        SAY(a * 100 + b);
        WHILE_COMES("89 x\n", scan("%d%d", &a, &b));
        SAY(a);
        WHILE_COMES("word\n", old_fscanf(f, "%99s%99s", text, word));
        SAY(shown(word));
        SAY(getc(f));
        if (is_terminal) {
            WHILE_COMES("\4", getc(f)); /* the end of the file, once */
            SAY(feof(f) + 2 * ferror(f));
            clearerr(f);
            WHILE_COMES("\4", fread(text, 1, 900, f));
            clearerr(f);
            WHILE_COMES("again\n", fgets(text, 900, f) == text);
            SAY(shown(text));
        } else {
            struct parts last = {other_end, "the e|nd", true};
            task t;
            line = NULL;
            begin(&t, write_parts, &last);
            SAY(getline(&line, &room, f));
            end(&t);
            SAY(shown(line));
            SAY(feof(f) + 2 * ferror(f));
            SAY(getline(&line, &room, f));
            SAY(fgets(text, 900, f) == text);
            SAY(fread(text, 1, 900, f));
            SAY(fread(text, 1, sizeof big, f));
            SAY(getc(f));
            SAY(fscanf(f, "%d", &a));
            SAY(fgetwc(f) == WEOF);
            free(line);
            close(-1), other_end = -1;
        }
        SAY(fclose(f));
        if (is_terminal)
            close(other_end);
    }
}

static void buffers(void)
{
    for (int mode = 0; mode < 4; mode++) {
        int ends[2];
        char own[16], *line = NULL;
        size_t room = 0;
        fprintf(says, "    way %d\n", mode);
        open_ends("pipe", ends);
        other_end = ends[1];
        HOLDS((f = fdopen(ends[0], "r")) != NULL);
        switch (mode) {
        case 0: SAY(setvbuf(f, NULL, _IONBF, 0)); break;
        case 1: SAY(setvbuf(f, NULL, _IOLBF, 0)); break;
        case 2: SAY(setvbuf(f, own, _IOFBF, sizeof own)); break;
        case 3: setbuffer(f, own, sizeof own); break;
        }
        WHILE_COMES("a line that is longer than the buffer\n", getline(&line, &room, f));
        SAY(shown(line));
        WHILE_COMES("0123456789|0123456789|0123456789", fread(text, 1, 30, f));
        WHILE_COMES("0123456789|0123456789", fread(text, 1, 20, f));
        WHILE_COMES("xy", getc(f));
        SAY(getc(f));
        WHILE_COMES("a|b\n", fgets(text, 900, f) == text);
        SAY(shown(text));
        free(line);
        fclose(f), close(other_end);
    }
}

static void wide_reading(void)
{
    int ends[2], a = 0;
    locale_t utf8 = newlocale(LC_ALL_MASK, "C.UTF-8", NULL), before = uselocale(utf8);
    open_ends("pipe", ends);
    other_end = ends[1];
    HOLDS((f = fdopen(ends[0], "r")) != NULL);
    WHILE_COMES("\xc3|\xa4|o", (long)fgetwc(f));
    SAY(fwide(f, 0) > 0);
    WHILE_COMES("uv", (long)getwc(f));
    SAY((long)ungetwc(L'w', f));
    SAY((long)getwc_unlocked(f));
    WHILE_COMES("xyz\nmore|\n", fgetws(wide, 900, f) == wide);
    SAY(wcslen(wide));
    SAY(fgetws_unlocked(wide, 900, f) == wide);
    SAY(wcslen(wide));
    WHILE_COMES("a \xc3\xa4|\xc3\xb6\n", __fgetws_chk(wide, 1000, 900, f) == wide);
    SAY(wcslen(wide));
    WHILE_COMES("123 ", fwscanf(f, L"%d", &a));
    SAY(a);
    SAY(fgetc(f)); /* a byte of a stream of wide characters */
    close(other_end);
    SAY((long)fgetwc(f));
    SAY(fgetwc(f) == WEOF);
    SAY(feof(f));
    fclose(f);
    uselocale(before);
    freelocale(utf8);
}

/* The other end fails, or doesn't wait, or waits for a time. */
static void failures(void)
{
    struct linger reset = {1, 0};
    struct timeval ms20 = {0, 20000};
    char *line = NULL;
    size_t room = 0;
    int ends[2];
    for (int i = 0; i < 4; i++) {
        open_ends("connection", ends);
        HOLDS(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0 && close(ends[1]) == 0);
        f = fdopen(ends[0], "r");
        switch (i) {
        case 0: SAY(getline(&line, &room, f)); break;
        case 1: SAY(fgets(text, 900, f) == text); break;
        case 2: SAY(getc(f)); break;
        case 3: SAY(fread(text, 1, 4, f)); break;
        }
        SAY(feof(f) + 2 * ferror(f));
        SAY(getc(f)); /* the error was told once */
        SAY(feof(f) + 2 * ferror(f));
        fclose(f);
    }
    open_ends("socket pair", ends);
    f = fdopen(ends[0], "r");
    HOLDS(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &ms20, sizeof ms20) == 0);
    SAY(getline(&line, &room, f));
    SAY(feof(f) + 2 * ferror(f));
    clearerr(f);
    HOLDS(write(ends[1], "half", 4) == 4);
    SAY(fgets(text, 900, f) == text);
    clearerr(f);
    HOLDS(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    SAY(getc(f));
    SAY(ferror(f));
    clearerr(f);
    HOLDS(write(ends[1], "rest\n", 5) == 5);
    SAY(fgets(text, 900, f) == text);
    SAY(shown(text));
    SAY(fgets(text, 900, f) == text);
    HOLDS(fcntl(ends[0], F_SETFL, 0) == 0);
    SAY(fputs("x", f));
    SAY(ferror(f));
    fclose(f), close(ends[1]);
    open_ends("pipe", ends);
    f = fdopen(ends[1], "w");
    SAY(getc(f));
    SAY(fgets(text, 900, f) == text);
    SAY(getline(&line, &room, f));
    SAY(ferror(f));
    close(ends[0]);
    SAY(fputs("nobody reads this", f));
    SAY(fflush(f));
    SAY(fprintf(f, "%s", big + sizeof big - 1));
    SAY(fprintf(f, "%d", 7));
    SAY(fclose(f));
    free(line);
    /* Other files. */
    int e = eventfd(3, 0);
    f = fdopen(e, "r");
    SAY(fread(text, 8, 1, f));
    SAY(text[0]);
    fclose(f);
    f = fopen("/dev/zero", "r");
    SAY(fread(big, 1, sizeof big, f));
    SAY(getc(f));
    fclose(f);
    f = fopen("/dev/null", "r+");
    SAY(getc(f));
    SAY(fprintf(f, "%*d", 100000, 1));
    SAY(fclose(f));
    SAY(fclose(fopen("/etc/passwd", "r")));
    f = fmemopen(text, sizeof text, "w+");
    SAY(fprintf(f, "%d %s\n", 12, "memory"));
    rewind(f);
    SAY(getc(f));
    SAY(fgets(text + 500, 100, f) == text + 500);
    SAY(shown(text + 500));
    fclose(f);
    char *made = NULL;
    size_t n = 0;
    f = open_memstream(&made, &n);
    SAY(fprintf(f, "%*d\n", 1000, 5));
    SAY(putc('x', f));
    SAY(fclose(f));
    SAY(n);
    free(made);
}

/* ---- Writing ---- */

struct reader {
    int fd;
    long n;         /* what has come */
    unsigned sum;   /* of all bytes, by their places */
};

static void read_slowly(void *arg)
{
    struct reader *r = arg;
    static char in[50000];
    ssize_t n;
    while ((n = read(r->fd, in, sizeof in)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            r->sum = r->sum * 31 + (unsigned char)in[i];
        r->n += n;
        usleep(300);
    }
    HOLDS(n == 0 || errno == EIO); /* EIO: a terminal whose other end is closed */
}

void old_perror(const char *) __asm__("perror");
int __fprintf_chk(FILE *, int, const char *, ...);
int __dprintf_chk(int, int, const char *, ...);

static int print(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vfprintf(to, format, args);
    va_end(args);
    return n;
}

static void writing(void)
{
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = "abcdefghijklmnopqrstuvwxyz\n"[i * 7 % 27];
    for (int k = 0; k < KINDS - 1; k++)
        for (int mode = 0; mode < 3; mode++) {
            int ends[2], before;
            struct reader r = {0};
            task t;
            fprintf(says, "    %s, way %d\n", kinds[k], mode);
            open_ends(kinds[k], ends);
            r.fd = ends[0];
            begin(&t, read_slowly, &r);
            FILE *to = fdopen(ends[1], "w");
            HOLDS(to != NULL && setvbuf(to, NULL, mode == 0 ? _IOFBF : mode == 1 ? _IOLBF : _IONBF, mode == 2 ? 0 : 4096) == 0);
            SAY(fputs("some\ntext", to));
            SAY(fwrite(big, 1, sizeof big, to));
            SAY(fwrite(big, 1000, 200, to));
            SAY(fflush(to));
            SAY(fprintf(to, "%*d|%s|%n\n", 100000, 7, "text", &before));
            SAY(before);
            SAY(fprintf(to, "%.1500s", big));
            SAY(fprintf(to, "%s", ""));
            SAY(print(to, "%d%%\n", 12));
            SAY(__fprintf_chk(to, 1, "%*d", 70000, 8));
            SAY(fprintf(to, "%m\n"));
            big[90000] = 0;
            SAY(fputs(big, to));
            SAY(fputs_unlocked(big, to));
            big[90000] = 'x';
            SAY(fwrite_unlocked(big, 1, 100000, to));
            int failures = 0;
            for (int i = 0; i < 20000; i++)
                failures += (i % 2 ? fputc(i % 128, to) : putc(i % 128, to)) != i % 128;
            for (int i = 0; i < 20000; i++)
                failures += putc_unlocked(i % 100, to) != i % 100;
            SAY(failures);
            SAY(putw(0x01020304, to));
            SAY(dprintf(ends[1], "%*d", 100000, 9));
            SAY(__dprintf_chk(ends[1], 1, "%d", 10));
            SAY(ferror(to));
            SAY(fwrite(big, 1, 3000, to));
            SAY(fclose(to)); /* writes the rest */
            end(&t);
            SAY(r.n);
            SAY(r.sum);
            close(ends[0]);
        }
}

static void wide_writing(void)
{
    int ends[2];
    struct reader r = {0};
    locale_t utf8 = newlocale(LC_ALL_MASK, "C.UTF-8", NULL), before = uselocale(utf8);
    task t;
    open_ends("pipe", ends);
    r.fd = ends[0];
    begin(&t, read_slowly, &r);
    FILE *to = fdopen(ends[1], "w");
    SAY((long)fputwc(L'\u00e4', to));
    SAY(fwprintf(to, L"%*d %ls\n", 100000, 5, L"w\u00f6rter"));
    int failures = 0;
    for (int i = 0; i < 50; i++)
        failures += fputws(L"a line of wide characters\n", to) < 0;
    SAY(failures);
    SAY((long)putwc_unlocked(L'x', to));
    SAY(fputws_unlocked(L"y", to) >= 0);
    SAY(fputc('x', to)); /* a byte to a stream of wide characters */
    SAY(fclose(to));
    end(&t);
    SAY(r.n);
    SAY(r.sum);
    close(ends[0]);
    uselocale(before);
    freelocale(utf8);
}

static void answer(void *arg)
{
    int fd = *(int *)arg;
    char in[100];
    ssize_t n = 0, r;
    while (n == 0 || in[n - 1] != '\n') {
        HOLDS((r = read(fd, in + n, sizeof in - (size_t)n)) > 0);
        n += r;
    }
    HOLDS(write(fd, "answer\n", 7) == 7);
}

/* What was written goes out before the stream waits for the answer. */
static void talking(void)
{
    int ends[2];
    char *line = NULL;
    size_t room = 0;
    task t;
    open_ends("connection", ends);
    f = fdopen(ends[0], "r+");
    for (int i = 0; i < 6; i++) {
        begin(&t, answer, &ends[1]);
        SAY(fprintf(f, "question %d\n", i));
        switch (i) {
        case 0: SAY(getline(&line, &room, f)); break;
        case 1: SAY(fgets(text, 900, f) == text); break;
        case 2: SAY(fread(text, 1, 7, f)); break;
        case 3: SAY(fscanf(f, "%999s", text)); SAY(getc(f)); break;
        case 4:
            SAY(getc(f));
            SAY(fgets(text, 900, f) == text);
            break;
        case 5:
            SAY(getc_unlocked(f));
            SAY(fgets_unlocked(text, 900, f) == text);
            break;
        }
        end(&t);
    }
    free(line);
    /* One stream for each way, of one socket. */
    FILE *to = fdopen(dup(ends[0]), "w");
    begin(&t, answer, &ends[1]);
    SAY(fputs("to ", to));
    SAY(fprintf(to, "whom?\n"));
    SAY(fflush(to));
    SAY(fgets(text, 900, f) == text);
    end(&t);
    SAY(fclose(to) + fclose(f));
    close(ends[1]);
}

static void programs(void)
{
    FILE *p = popen("sleep 0.05; echo one; sleep 0.05; printf tw; sleep 0.05; echo o; exit 3", "r");
    HOLDS(p != NULL);
    SAY(fgets(text, 900, p) == text);
    SAY(shown(text));
    SAY(fgets(text, 900, p) == text);
    SAY(shown(text));
    SAY(fgets(text, 900, p) == text);
    SAY(pclose(p));
    HOLDS((p = popen("sleep 0.05; wc -c >/dev/null; exit 4", "w")) != NULL);
    SAY(fwrite(big, 1, sizeof big, p));
    SAY(pclose(p));
}

/* stdin and stdout. A question that stdout still has goes out before the answer is waited for. */
static void standard_streams(void)
{
    int in[2], out[2], keep_in = dup(0), keep_out = dup(1), n = 0;
    task t;
    char word[100];
    says = fdopen(dup(1), "w");
    HOLDS(fflush(stdout) == 0 && says != NULL);
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, in) == 0);
    out[0] = in[1], out[1] = dup(in[0]);
    HOLDS(dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1);
    setvbuf(stdout, NULL, _IOLBF, 4096);
    setvbuf(stdin, NULL, _IOLBF, 4096);
    for (int i = 0; i < 6; i++) {
        begin(&t, answer, &out[0]);
        SAY(printf("answer\nquestion?"));
        SAY(i % 2 ? putchar('\n') : puts(""));
        switch (i) {
        case 0: SAY(fgets(text, 900, stdin) == text); break;
        case 1: SAY(getchar()); SAY(fgets(text, 900, stdin) == text); break;
        case 2: SAY(scanf("%99s", word)); SAY(getchar()); break;
        case 3: SAY(getchar_unlocked()); SAY(fgets(text, 900, stdin) == text); break;
        case 4: SAY(getc(stdin)); SAY(fgets(text, 900, stdin) == text); break;
        case 5: SAY(fread(text, 1, 7, stdin)); break;
        }
        end(&t);
        n += recv(out[0], text, sizeof text, MSG_DONTWAIT) > 0;
    }
    HOLDS(dup2(keep_in, 0) == 0 && dup2(keep_out, 1) == 1);
    setvbuf(stdout, NULL, _IOFBF, 4096);
    close(keep_in), close(keep_out), close(in[0]), close(in[1]), close(out[1]);
    fclose(says);
    says = stdout;
}

/* The end of a line is the end of a question. */
static void answer_prompt(void *arg)
{
    char in[100];
    HOLDS(read(*(int *)arg, in, sizeof in) == 9); /* "question?" */
    HOLDS(write(*(int *)arg, "answer\n", 7) == 7);
}

static void prompts(void)
{
    int ends[2], keep_in = dup(0), keep_out = dup(1);
    task t;
    says = fdopen(dup(1), "w");
    HOLDS(fflush(stdout) == 0 && says != NULL && openpty(&ends[1], &ends[0], NULL, NULL, NULL) == 0);
    struct termios mode;
    HOLDS(tcgetattr(ends[0], &mode) == 0);
    mode.c_lflag &= ~(unsigned)ECHO;
    HOLDS(tcsetattr(ends[0], TCSANOW, &mode) == 0);
    FILE *in = fdopen(dup(ends[0]), "r"); /* has no buffer yet */
    HOLDS(dup2(ends[0], 1) == 1 && setvbuf(stdout, NULL, _IOLBF, 4096) == 0);
    for (int i = 0; i < 3; i++) {
        begin(&t, answer_prompt, &ends[1]);
        SAY(printf("question?"));
        SAY(fgets(text, 900, in) == text);
        SAY(shown(text));
        end(&t);
    }
    fclose(in);
    HOLDS(dup2(keep_out, 1) == 1 && setvbuf(stdout, NULL, _IOFBF, 4096) == 0);
    close(keep_in), close(keep_out), close(ends[0]), close(ends[1]);
    fclose(says);
    says = stdout;
}

/* ---- Locks ---- */

static FILE *shared;
static int order;

static void print_at_once(void *arg)
{
    soon();
    HOLDS(fprintf(shared, "from the other %d\n", *(int *)arg) > 0);
    HOLDS(fputs("a line\n", shared) >= 0 && putc('\n', shared) == '\n');
    order = order * 10 + *(int *)arg;
}

static void try_lock(void *arg)
{
    soon();
    *(int *)arg = ftrylockfile(shared);
    if (*(int *)arg == 0)
        funlockfile(shared);
}

static void lock_and_print(void *arg)
{
    soon();
    flockfile(shared);
    order = order * 10 + *(int *)arg;
    HOLDS(fputs("under the lock ", shared) >= 0);
    usleep(2000);
    HOLDS(fputs("still\n", shared) >= 0);
    funlockfile(shared);
}

/* What one task prints between flockfile and funlockfile stays together. */
static void locked_writing(void)
{
    int ids[] = {1, 2, 3, 4}, busy = 0, ends[2];
    const char *path = in_directory("locked");
    task t[4];
    HOLDS((shared = fopen(path, "w+")) != NULL);
    flockfile(shared);
    begin(&t[0], print_at_once, &ids[0]);
    begin(&t[1], try_lock, &busy);
    SAY(fprintf(shared, "%s ", "first"));
    usleep(60000);
    SAY(fputs("second ", shared));
    flockfile(shared);
    SAY(ftrylockfile(shared));
    funlockfile(shared);
    funlockfile(shared);
    SAY(putc_unlocked('3', shared));
    SAY(putc_unlocked('\n', shared));
    end(&t[1]);
    SAY(order);
    SAY(busy != 0);
    funlockfile(shared);
    end(&t[0]);
    try_lock(&busy);
    SAY(busy);
    for (int i = 1; i < 4; i++)
        begin(&t[i], lock_and_print, &ids[i]);
    for (int i = 1; i < 4; i++)
        end(&t[i]);
    rewind(shared);
    while (fgets(text, sizeof text, shared))
        SAY(shown(text));
    SAY(fclose(shared));
    /* Reading between flockfile and funlockfile, where another thread may make the call. */
    open_ends("pipe", ends);
    other_end = ends[1];
    HOLDS((f = shared = fdopen(ends[0], "r")) != NULL);
    int a = 0, b = 0;
    char *line = NULL;
    size_t room = 0;
    flockfile(f);
    begin(&t[0], try_lock, &busy);
    WHILE_COMES("1| 2\n", fscanf(f, "%d%d", &a, &b));
    SAY(a * 10 + b);
    WHILE_COMES("|a| line\n", getc_unlocked(f));
    WHILE_COMES("|a| line\n", getline(&line, &room, f));
    WHILE_COMES("part|s\n", fread(text, 1, 9, f));
    SAY(fgets(text, 900, f) == text);
    end(&t[0]);
    SAY(busy != 0);
    funlockfile(f);
    free(line);
    fclose(f), close(other_end);
}

enum { READERS = 6, LINES = 40 };

static void read_lines(void *arg)
{
    int *sum = arg;
    char line[100];
    for (int i = 0; i < LINES; i++) {
        int n, again;
        HOLDS(fgets(line, sizeof line, shared) == line);
        HOLDS(sscanf(line, "line %d and %d\n", &n, &again) == 2 && n == again);
        *sum += n;
    }
}

static void write_lines(int fd)
{
    for (int i = 0; i < READERS * LINES; i++) {
        char line[100];
        int n = snprintf(line, sizeof line, "line %d and %d\n", i, i), part = i % (n - 1);
        HOLDS(write(fd, line, (size_t)part) == part);
        if (i % 5 == 0)
            usleep(500);
        HOLDS(write(fd, line + part, (size_t)(n - part)) == n - part);
    }
}

/* Each line goes to one reader, in one piece. */
static void many_readers(void)
{
    int ends[2], sums[READERS] = {0}, sum = 0;
    task t[READERS];
    open_ends("socket pair", ends);
    HOLDS((shared = fdopen(ends[0], "r")) != NULL);
    for (int i = 0; i < READERS; i++)
        begin(&t[i], read_lines, &sums[i]);
    soon();
    write_lines(ends[1]);
    for (int i = 0; i < READERS; i++) {
        end(&t[i]);
        sum += sums[i];
    }
    SAY(sum);
    fclose(shared), close(ends[1]);
}

/* A thread waits in a read, and has the lock. */
static void *read_in_thread(void *arg)
{
    HOLDS(fgets(arg, 100, shared) == arg);
    return NULL;
}

static void beside_a_thread(void)
{
    int ends[2];
    char line[100];
    pthread_t thread;
    task t;
    for (int i = 0; i < 4; i++) {
        open_ends("pipe", ends);
        struct parts p = {ends[1], "the first\n|the second\n", false};
        HOLDS((shared = fdopen(ends[0], "r")) != NULL);
        HOLDS(pthread_create(&thread, NULL, read_in_thread, line) == 0);
        soon();
        begin(&t, write_parts, &p);
        switch (i) {
        case 0: SAY(fgets(text, 900, shared) == text); break;
        case 1: SAY(feof(shared) + ferror(shared)); break;
        case 2: flockfile(shared); funlockfile(shared); break;
        case 3: SAY(getc(shared)); break;
        }
        end(&t);
        pthread_join(thread, NULL);
        fclose(shared), close(ends[1]);
    }
}

/* ---- Callbacks that wait ---- */

static ssize_t read_cookie(void *cookie, char *buf, size_t n)
{
    usleep(300);
    return read(*(int *)cookie, buf, n < 7 ? n : 7);
}

static ssize_t write_cookie(void *cookie, const char *buf, size_t n)
{
    for (size_t done = 0, part; done < n; done += part) {
        part = n - done < 90 ? n - done : 90;
        usleep(300);
        HOLDS(write(*(int *)cookie, buf + done, part) == (ssize_t)part);
    }
    return (ssize_t)n;
}

static int closed_cookies;

static int close_cookie(void *cookie)
{
    usleep(300);
    closed_cookies++;
    return close(*(int *)cookie);
}

static void write_to_shared(void *arg)
{
    for (int i = 0; i < 30; i++) {
        HOLDS(fprintf(shared, "task %d writes %d\n", *(int *)arg, i) > 0);
        HOLDS(i % 3 || fflush(shared) == 0);
    }
}

static void callbacks(void)
{
    static const cookie_io_functions_t functions = {read_cookie, write_cookie, NULL, close_cookie};
    int ends[2], sums[READERS] = {0}, sum = 0, ids[] = {0, 1, 2}, next[] = {0, 0, 0};
    task t[READERS];
    open_ends("socket pair", ends);
    HOLDS((shared = fopencookie(&ends[0], "r", functions)) != NULL);
    for (int i = 0; i < READERS; i++)
        begin(&t[i], read_lines, &sums[i]);
    write_lines(ends[1]);
    for (int i = 0; i < READERS; i++) {
        end(&t[i]);
        sum += sums[i];
    }
    SAY(sum);
    SAY(fclose(shared));
    close(ends[1]);
    open_ends("socket pair", ends);
    HOLDS((shared = fopencookie(&ends[1], "w", functions)) != NULL);
    for (int i = 0; i < 3; i++)
        begin(&t[i], write_to_shared, &ids[i]);
    for (int i = 0; i < 3; i++)
        end(&t[i]);
    SAY(fclose(shared));
    SAY(closed_cookies);
    FILE *in = fdopen(ends[0], "r");
    while (fgets(text, sizeof text, in)) {
        int id, n;
        HOLDS(sscanf(text, "task %d writes %d\n", &id, &n) == 2 && next[id] == n);
        next[id]++;
    }
    SAY(next[0] + next[1] + next[2]);
    fclose(in);
}

/* ---- Disks ---- */

static void disks(void)
{
    const char *path = in_directory("disk");
    fpos_t at;
    int n = 0;
    FILE *d = fopen(path, "w+");
    HOLDS(d != NULL);
    for (int i = 0; i < 5000; i++)
        n += fprintf(d, "line %d\n", i);
    SAY(n);
    SAY(ftell(d));
    SAY(fseek(d, 0, SEEK_SET));
    n = 0;
    while (fgets(text, 900, d))
        n++;
    SAY(n);
    SAY(feof(d));
    rewind(d);
    SAY(fscanf(d, "line %d", &n));
    SAY(fgetpos(d, &at));
    SAY(fseeko(d, 1000, SEEK_SET));
    SAY(ftello(d));
    SAY(fputs("xx", d));
    SAY(fsetpos(d, &at));
    SAY(getc(d));
    SAY(fread(big, 1, sizeof big, d));
    SAY(fflush(d));
    SAY(freopen(path, "a", d) == d);
    SAY(fprintf(d, "%*d", 10000, 3));
    SAY(fflush(NULL));
    SAY(fclose(d));
    HOLDS((d = fopen(path, "rm")) != NULL);
    SAY(getc(d));
    SAY(fgets(text, 900, d) == text);
    SAY(fclose(d));
    SAY(fopen("/nowhere/at/all", "r") == NULL);
}

/* ---- What threads can't be asked for ---- */

static atomic_int cancelled;

static void be_cancelled(void *arg)
{
    char *line = NULL;
    size_t room = 0;
    FILE *in = arg;
    errno = 0;
    HOLDS(getline(&line, &room, in) == -1 && errno == ECANCELED && ferror(in) && !feof(in));
    clearerr(in);
    HOLDS(getc(in) == EOF && errno == ECANCELED);
    free(line);
    atomic_fetch_add(&cancelled, 1);
}

enum { CROWD = 300 };

static void wait_for_line(void *arg)
{
    char line[100];
    HOLDS(fgets(line, sizeof line, arg) == line && strcmp(line, "now\n") == 0);
}

static void unpinned(void *arg)
{
    FILE *in = arg;
    char line[100];
    for (int i = 0; i < 20; i++) {
        flockfile(in);
        HOLDS(fgets(line, sizeof line, in) == line);
        usleep(100);
        int c = getc(in);
        HOLDS(c != EOF && fgets(line, sizeof line, in) == line);
        funlockfile(in);
    }
}

/* Each call may move the goroutine to another thread, while the stream is locked. */
static void on_disk_unpinned(void *arg)
{
    char *line = NULL;
    size_t room = 0;
    for (int i = 0; i < 50; i++) {
        int n = 0;
        FILE *f = tmpfile();
        HOLDS(f != NULL && setvbuf(f, NULL, i % 2 ? _IOFBF : _IONBF, 0) == 0);
        for (int k = 0; k < 10; k++)
            HOLDS(fprintf(f, "%d %s\n", k, (const char *)arg) > 2);
        HOLDS(fflush(f) == 0 && fseek(f, 0, SEEK_SET) == 0 && fscanf(f, "%d", &n) == 1 && n == 0);
        HOLDS(getline(&line, &room, f) > 1);
        flockfile(f);
        HOLDS(getline(&line, &room, f) > 2 && line[0] == '1');
        HOLDS(fseek(f, 0, SEEK_END) == 0);
        funlockfile(f);
        HOLDS(fclose(f) == 0);
    }
    free(line);
}

static void *read_in_blocking(void *arg)
{
    HOLDS(fgets(text, sizeof text, arg) == text);
    return NULL;
}

static void goroutines(void)
{
    int ends[2];
    task t;
    if (as_threads)
        return;
    open_ends("pipe", ends);
    FILE *in = fdopen(ends[0], "r");
    begin(&t, be_cancelled, in);
    soon();
    HOLDS(gs_cancel(t.g) == 0);
    end(&t);
    HOLDS(cancelled == 1);
    /* Who waits takes no thread. */
    static FILE *each[CROWD];
    static int to[CROWD];
    static task all[CROWD];
    for (int i = 0; i < CROWD; i++) {
        int p[2];
        HOLDS(pipe(p) == 0 && (each[i] = fdopen(p[0], "r")) != NULL);
        to[i] = p[1];
        begin(&all[i], wait_for_line, each[i]);
    }
    soon();
    gs_stats stats = {.size = sizeof stats};
    HOLDS(gs_stats_read(&stats) == 0 && stats.threads < 50);
    for (int i = 0; i < CROWD; i++)
        HOLDS(write(to[i], "now\n", 4) == 4);
    for (int i = 0; i < CROWD; i++) {
        end(&all[i]);
        fclose(each[i]), close(to[i]);
    }
    HOLDS(gs_stats_read(&stats) == 0 && stats.threads < 50);
    /* Goroutines that aren't pinned, and come to another thread with the lock. */
    gs_g *g[2];
    for (int i = 0; i < 2; i++)
        HOLDS(gs_spawn_with(unpinned, in, NULL, &g[i]) == 0);
    for (int i = 0; i < 80; i++) {
        HOLDS(write(ends[1], "a line\n", 7) == 7);
        usleep(200);
    }
    for (int i = 0; i < 2; i++) {
        gs_join(g[i], GS_FOREVER);
        gs_release(g[i]);
    }
    for (int i = 0; i < 2; i++)
        HOLDS(gs_spawn_with(on_disk_unpinned, "disk", NULL, &g[i]) == 0);
    for (int i = 0; i < 2; i++) {
        gs_join(g[i], GS_FOREVER);
        gs_release(g[i]);
    }
    HOLDS(write(ends[1], "blocking\n", 9) == 9);
    gs_blocking(read_in_blocking, in);
    HOLDS(strcmp(text, "blocking\n") == 0);
    fclose(in), close(ends[1]);
}

static const struct test tests[] = {
    TEST(reading), TEST(buffers), TEST(wide_reading), TEST(failures), TEST(writing), TEST(wide_writing), TEST(talking),
    TEST(programs), TEST(standard_streams), TEST(prompts), TEST(locked_writing), TEST(many_readers), TEST(beside_a_thread),
    TEST(callbacks), TEST(disks), TEST(goroutines),
};

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    return run_tests(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
