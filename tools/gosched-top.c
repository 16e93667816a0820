/* gosched-top: shows what the scheduler of a running program does: its P's, queues and goroutines, and how often it
 * switches, steals and calls. It asks the program through the socket that GOSCHED_TOP switches on (src/observe/TOP.md
 * describes it), and needs no library. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: gosched-top [--once] [--json] [-d SECONDS] PID | PATH | @NAME\n"
    "Shows what the scheduler of a running program does: its P's and the goroutines that they run, its queues, what\n"
    "goroutines wait for, and how often they switch, steal and make calls.\n\n"
    "The program must have been started with GOSCHED_TOP in its environment: GOSCHED_TOP=1, then name it by its PID; or\n"
    "GOSCHED_TOP=PATH or @NAME, then by its PID or by that socket. %p in PATH stands for the process's number.\n\n"
    "  -d SECONDS    from one screen to the next (1); 0.1 to 3600\n"
    "  --once        print one screen and end\n"
    "  --json        print what the program answers, a line of JSON each time\n"
    "  -h, --help    print this\n\n"
    "q ends it, any other key asks at once. Exit status: 0; 1 if the program can't be asked; 2 for a wrong option.\n";

enum { PATIENCE_MS = 10000 }; /* for an answer */
enum { CLASSES = 20 };        /* of gs_stats.run_waits */

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- The terminal ---- */

static struct termios terminal_before;
static bool terminal_changed;

static void restore_terminal(void)
{
    static const char end[] = "\033[?25h\033[?1049l";
    if (!terminal_changed)
        return;
    terminal_changed = false;
    tcsetattr(0, TCSANOW, &terminal_before);
    if (write(1, end, sizeof end - 1) < 0)
        return;
}

static void on_end(int signal)
{
    restore_terminal();
    _exit(signal == SIGINT ? 0 : 128 + signal);
}

static void on_resize(int signal)
{
    (void)signal; /* it ends the wait in poll */
}

static void take_terminal(void)
{
    struct termios raw;
    if (tcgetattr(0, &terminal_before) != 0)
        return;
    raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    terminal_changed = true;
    tcsetattr(0, TCSANOW, &raw);
    printf("\033[?1049h\033[?25l");
    struct sigaction act = {.sa_handler = on_end};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    act.sa_handler = on_resize;
    sigaction(SIGWINCH, &act, NULL);
}

static void fail(const char *format, ...)
{
    va_list args;
    restore_terminal();
    fflush(stdout);
    fputs("gosched-top: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* ---- Reading JSON ---- */

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1])
            p++;
    return *p ? p + 1 : p;
}

/* Behind the value at p. */
static const char *skip_value(const char *p)
{
    int depth = 0;
    do {
        p = skip_space(p);
        if (*p == '"') {
            p = skip_string(p);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (*p == ',' || *p == ':') {
            p++;
        } else {
            p += strcspn(p, ",:]}\"[{ \t\r\n");
        }
    } while (depth > 0 && *p);
    return p;
}

/* The first member of an object or element of a list; NULL: there is none. */
static const char *first_in(const char *p)
{
    if (!p || (*p != '{' && *p != '['))
        return NULL;
    p = skip_space(p + 1);
    return *p == '}' || *p == ']' || !*p ? NULL : p;
}

/* The element behind the element at p, or the member behind the member whose value is at p. */
static const char *next_in(const char *p)
{
    p = skip_space(skip_value(p));
    return *p == ',' ? skip_space(p + 1) : NULL;
}

/* The value of the member whose name is at p. */
static const char *value_of(const char *p)
{
    p = skip_space(skip_string(p));
    return *p == ':' ? skip_space(p + 1) : NULL;
}

/* The value of an object's member; NULL: there is none. */
static const char *member(const char *object, const char *name)
{
    size_t length = strlen(name);
    for (const char *p = first_in(object); p && *p == '"';) {
        const char *value = value_of(p);
        if (!value)
            return NULL;
        if (strncmp(p + 1, name, length) == 0 && p[1 + length] == '"')
            return value;
        p = next_in(value);
    }
    return NULL;
}

static uint64_t number(const char *object, const char *name)
{
    const char *value = member(object, name);
    return value ? strtoull(value, NULL, 10) : 0;
}

/* The text of a string, for a terminal: without control characters. */
static void copy_string(const char *value, char *out, size_t room)
{
    size_t n = 0;
    if (value && *value == '"') {
        for (value++; *value && *value != '"' && n + 1 < room; value++) {
            char c = *value;
            if (c == '\\' && value[1]) {
                c = *++value;
                for (int i = 0; c == 'u' && i < 4 && value[1] && value[1] != '"'; i++)
                    value++;
                if (c == 'u')
                    c = '?';
            }
            out[n++] = (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
        }
    }
    out[n] = '\0';
}

/* ---- The program that is asked ---- */

typedef struct target {
    long pid; /* 0: not known yet */
    char name[32];
    int fd;
} target;

/* -1 and errno: it can't. */
static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    bool is_abstract = path[0] == '@';
    if (length + !is_abstract > sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, length);
    if (is_abstract)
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + !is_abstract);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, size) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static char *read_file(const char *path, size_t *length)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t room = 0, n = 0, got;
    if (!f)
        return NULL;
    do {
        if (room - n < 4096) {
            room = room * 2 + 8192;
            text = realloc(text, room);
            if (!text)
                fail("no memory");
        }
        got = fread(text + n, 1, room - n - 1, f);
        n += got;
    } while (got > 0);
    fclose(f);
    text[n] = '\0';
    *length = n;
    return text;
}

/* The number that the process has in its own namespace. */
static long inner_pid(long pid)
{
    char path[64];
    size_t length;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    char *text = read_file(path, &length);
    char *line = text ? strstr(text, "\nNSpid:") : NULL;
    long inner = pid;
    if (line) {
        char *end = strchr(line + 1, '\n');
        if (end)
            *end = '\0';
        char *last = strrchr(line, '\t');
        if (last)
            inner = atol(last + 1);
    }
    free(text);
    return inner;
}

/* The value of GOSCHED_TOP with which the process has started, with %p replaced. False: it has none. */
static bool setting_of(long pid, char *out, size_t room)
{
    char path[64];
    size_t length;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    char *text = read_file(path, &length);
    bool found = false;
    for (char *p = text; p && p < text + length && !found; p += strlen(p) + 1) {
        if (strncmp(p, "GOSCHED_TOP=", 12) != 0)
            continue;
        size_t n = 0;
        const char *from = strcmp(p + 12, "1") == 0 ? "@gosched-%p" : p + 12;
        for (; *from && n + 24 < room; from++) {
            if (from[0] == '%' && from[1] == 'p') {
                n += (size_t)snprintf(out + n, room - n, "%ld", inner_pid(pid));
                from++;
            } else {
                out[n++] = *from;
            }
        }
        out[n] = '\0';
        found = n > 0 && strcmp(out, "0") != 0;
    }
    free(text);
    return found;
}

static void name_process(target *t)
{
    char path[64];
    size_t length;
    snprintf(path, sizeof path, "/proc/%ld/comm", t->pid);
    char *text = read_file(path, &length);
    snprintf(t->name, sizeof t->name, "%.*s", text ? (int)strcspn(text, "\n") : 1, text ? text : "?");
    free(text);
}

static void connect_to_pid(target *t)
{
    char setting[256], path[512];
    snprintf(path, sizeof path, "/proc/%ld", t->pid);
    if (access(path, F_OK) != 0)
        fail("there is no process %ld", t->pid);
    name_process(t);
    snprintf(path, sizeof path, "@gosched-%ld", t->pid);
    t->fd = connect_to(path);
    if (t->fd < 0 && setting_of(t->pid, setting, sizeof setting)) {
        /* The path is one of the process's, which may see another file system. */
        const char *from = setting[0] == '@' ? "" : setting[0] == '/' ? "root" : "cwd/";
        if (*from)
            snprintf(path, sizeof path, "/proc/%ld/%s%s", t->pid, from, setting);
        t->fd = connect_to(*from ? path : setting);
        if (t->fd < 0 && errno == ENAMETOOLONG)
            t->fd = connect_to(setting);
        if (t->fd < 0)
            fail("process %ld (%s) doesn't answer on %s: %s. Does it use libgosched, and has its runtime begun?", t->pid,
                 t->name, setting, strerror(errno));
    }
    if (t->fd < 0)
        fail("process %ld (%s) has no socket for viewers. Start it with GOSCHED_TOP=1 in its environment", t->pid, t->name);
}

static target connect_to_target(const char *what)
{
    target t = {.fd = -1};
    char *end;
    long pid = strtol(what, &end, 10);
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    if (*what && !*end) {
        if (pid <= 0)
            fail("'%s' is no process", what);
        t.pid = pid;
        connect_to_pid(&t);
    } else if ((t.fd = connect_to(what)) < 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            fail("no program listens on %s. Start it with GOSCHED_TOP=%s in its environment", what, what);
        fail("%s: %s", what, strerror(errno));
    }
    getsockopt(t.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    if (t.pid && peer.pid && peer.pid != t.pid)
        fail("process %ld answers in place of process %ld", (long)peer.pid, t.pid);
    t.pid = peer.pid;
    name_process(&t);
    return t;
}

/* The answer: a line without its end, which the caller frees. NULL: the program has ended. */
static char *ask(target *t)
{
    size_t room = 1 << 14, n = 0;
    char *text = malloc(room);
    if (!text)
        fail("no memory");
    if (send(t->fd, "\n", 1, MSG_NOSIGNAL) != 1) {
        free(text);
        return NULL;
    }
    for (;;) {
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        int ready = poll(&p, 1, PATIENCE_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            fail("process %ld (%s) doesn't answer. Is it stopped?", t->pid, t->name);
        ssize_t got = recv(t->fd, text + n, room - n - 1, 0);
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            free(text);
            return NULL;
        }
        n += (size_t)got;
        text[n] = '\0';
        if (text[n - 1] == '\n') {
            text[n - 1] = '\0';
            return text;
        }
        if (room - n < 2 && !(text = realloc(text, room *= 2)))
            fail("no memory");
    }
}

/* ---- Where goroutines were spawned ---- */

/* Prints the file that has this address, and the offset in it: as gs_dump does. */
static void print_place(FILE *out, long pid, uint64_t address)
{
    static char *maps;
    static size_t length;
    for (int round = 0; round < 2; round++) {
        if (!maps || round > 0) {
            char path[64];
            free(maps);
            snprintf(path, sizeof path, "/proc/%ld/maps", pid);
            maps = read_file(path, &length);
        }
        uint64_t base = 0;
        const char *base_file = "";
        size_t base_length = 0;
        for (const char *line = maps; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
            uint64_t from, to;
            int at = 0;
            if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &from, &to, &at) < 2 || at == 0)
                continue;
            const char *file = line + at;
            size_t n = strcspn(file, "\n");
            if (n != base_length || strncmp(file, base_file, n) != 0) {
                base = from;
                base_file = file;
                base_length = n;
            }
            if (address >= from && address < to && n > 0 && file[0] == '/') {
                const char *slash = memrchr(file, '/', n), *name = slash + 1;
                fprintf(out, "%.*s+0x%" PRIx64, (int)(file + n - name), name, address - base);
                return;
            }
        }
    }
    fprintf(out, "0x%" PRIx64, address);
}

/* ---- The screen ---- */

/* 1234567 as 1,234,567. */
static const char *grouped(uint64_t n)
{
    static char texts[16][32];
    static unsigned turn;
    char digits[24], *out = texts[turn++ % 16], *to = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

/* What is compared with the screen before: NULL if there is none, and then with the start. */
static const char *before;
static double seconds;

static uint64_t rate(const char *now, const char *then, const char *name)
{
    uint64_t grown = number(now, name) - (then ? number(then, name) : 0);
    if (strcmp(name, "decisions") == 0)
        grown = (uint32_t)grown; /* it has 32 bits */
    return (uint64_t)((double)grown / seconds + 0.5);
}

/* "2^n us", such that this part of the counted times is shorter. */
static void print_percentile(FILE *out, const uint64_t *classes, uint64_t all, double part)
{
    uint64_t sum = 0;
    int i = 0;
    while (i < CLASSES - 1 && (double)(sum += classes[i]) < (double)all * part)
        i++;
    uint64_t us = 1ull << i;
    if (i == CLASSES - 1)
        fprintf(out, "more than %d ms", (1 << (CLASSES - 2)) / 1000);
    else if (us < 1000)
        fprintf(out, "less than %" PRIu64 " us", us);
    else
        fprintf(out, "less than %.3g ms", (double)us / 1000);
}

static void print_waits_to_run(FILE *out, const char *now, const char *then)
{
    uint64_t classes[CLASSES] = {0}, all = 0;
    const char *p = first_in(member(now, "run_waits")), *q = first_in(member(then, "run_waits"));
    for (int i = 0; i < CLASSES && p; i++, p = next_in(p), q = q ? next_in(q) : NULL) {
        classes[i] = strtoull(p, NULL, 10) - (q ? strtoull(q, NULL, 10) : 0);
        all += classes[i];
    }
    fprintf(out, "Waits to run: ");
    if (all == 0) {
        fprintf(out, "none measured\n");
        return;
    }
    fprintf(out, "half ");
    print_percentile(out, classes, all, 0.5);
    fprintf(out, ", 99 %% ");
    print_percentile(out, classes, all, 0.99);
    fprintf(out, " (%s measured)\n", grouped(all));
}

typedef struct wait { uint64_t n; char why[40]; } wait;

static int more_first(const void *a, const void *b)
{
    uint64_t x = ((const wait *)a)->n, y = ((const wait *)b)->n;
    return (x < y) - (x > y);
}

static void print_reasons(FILE *out, const char *now)
{
    wait waits[64];
    size_t n = 0;
    for (const char *p = first_in(member(now, "waits")); p && *p == '"' && n < 64;) {
        const char *value = value_of(p);
        if (!value)
            break;
        copy_string(p, waits[n].why, sizeof waits[n].why);
        waits[n++].n = strtoull(value, NULL, 10);
        p = next_in(value);
    }
    qsort(waits, n, sizeof *waits, more_first);
    fprintf(out, "Waiting for: ");
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%s %s", i ? ", " : "", waits[i].why, grouped(waits[i].n));
    fprintf(out, n ? "\n" : "nothing\n");
}

static void print_nodes(FILE *out, const char *now)
{
    fprintf(out, "\nNODE    P's  idle  queued  running  idle threads    calls/s  stolen from node/s\n");
    const char *old = first_in(member(before, "nodes"));
    for (const char *n = first_in(member(now, "nodes")); n; n = next_in(n), old = old ? next_in(old) : NULL) {
        fprintf(out, "%4" PRIu64 " %6" PRIu64 " %5" PRIu64 " %7" PRIu64 " %8" PRIu64 " %13" PRIu64 " %10s ",
                number(n, "node"), number(n, "procs"), number(n, "idle_procs"), number(n, "queued"), number(n, "running"),
                number(n, "idle_threads"), grouped(rate(n, old, "calls")));
        const char *q = first_in(member(old, "steals_from"));
        int from = 0;
        for (const char *p = first_in(member(n, "steals_from")); p; p = next_in(p), q = q ? next_in(q) : NULL, from++) {
            uint64_t grown = strtoull(p, NULL, 10) - (q ? strtoull(q, NULL, 10) : 0);
            fprintf(out, " %d: %s", from, grouped((uint64_t)((double)grown / seconds + 0.5)));
        }
        fputc('\n', out);
    }
}

static void print_ps(FILE *out, const target *t, const char *now)
{
    fprintf(out, "\n   P node state    next private shared inbox timers  decisions/s    calls/s  goroutine\n");
    const char *old = first_in(member(before, "ps"));
    for (const char *p = first_in(member(now, "ps")); p; p = next_in(p), old = old ? next_in(old) : NULL) {
        char status[16], name[80], place[32];
        const char *g = member(p, "g");
        copy_string(member(p, "status"), status, sizeof status);
        const char *lent = member(p, "on_loan");
        fprintf(out, "%4" PRIu64 " %4" PRIu64 " %-8s %4" PRIu64 " %7" PRIu64 " %6" PRIu64 " %5" PRIu64 " %6" PRIu64 " %12s %10s  ",
                number(p, "p"), number(p, "node"), lent && *lent == 't' ? "on loan" : status, number(p, "runnext"),
                number(p, "private"), number(p, "shared"), number(p, "inbox"), number(p, "timers"),
                grouped(rate(p, old, "decisions")), grouped(rate(p, old, "calls")));
        if (g && *g != 'n') {
            copy_string(member(p, "name"), name, sizeof name);
            copy_string(member(p, "spawned_at"), place, sizeof place);
            fprintf(out, "%" PRIu64 "%s%s, spawned at ", number(p, "g"), *name ? " " : "", name);
            print_place(out, t->pid, strtoull(place, NULL, 16));
        } else {
            fputc('-', out);
        }
        fputc('\n', out);
    }
}

static void print_screen(FILE *out, const target *t, const char *now)
{
    const char *s = member(now, "stats"), *old = member(before, "stats");
    char version[32];
    uint64_t up = number(now, "uptime_ns") / 1000000000;
    size_t nodes = 0;
    for (const char *n = first_in(member(now, "nodes")); n; n = next_in(n))
        nodes++;
    uint64_t since = before ? number(before, "now_ns") : number(now, "now_ns") - number(now, "uptime_ns");
    seconds = (double)(number(now, "now_ns") - since) / 1e9;
    if (seconds < 0.001)
        seconds = 0.001;
    copy_string(member(now, "version"), version, sizeof version);
    fprintf(out, "%s (%ld)  up %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 "  libgosched %s\n", t->name, t->pid, up / 3600,
            up / 60 % 60, up % 60, version);
    fprintf(out, "P's: %" PRIu64 ", %" PRIu64 " idle, on %zu node%s; threads: %s; stacks: %s MiB reserved\n",
            number(s, "procs"), number(s, "idle_procs"), nodes, nodes == 1 ? "" : "s", grouped(number(s, "threads")),
            grouped(number(s, "stack_bytes") >> 20));
    fprintf(out, "Goroutines: %s; running %s, ready %s, in calls %s, waiting %s\n", grouped(number(s, "goroutines")),
            grouped(number(s, "running")), grouped(number(s, "runnable")), grouped(number(s, "in_calls")),
            grouped(number(s, "waiting")));
    print_reasons(out, now);
    fprintf(out, "Per second%s: switches %s, spawned %s, calls %s, steals %s near %s far, hand-offs %s, loans %s\n",
            before ? "" : " since the start", grouped(rate(s, old, "switches")), grouped(rate(s, old, "created")),
            grouped(rate(s, old, "calls")), grouped(rate(s, old, "steals_near")),
            grouped(rate(s, old, "steals_remote_queue") + rate(s, old, "steals_remote_p")),
            grouped(rate(s, old, "handoffs")), grouped(rate(s, old, "loans")));
    print_waits_to_run(out, s, old);
    if (nodes > 1)
        print_nodes(out, now);
    print_ps(out, t, now);
}

/* Shows as much of the text as fits, from the upper left corner on. */
static void show_text(const char *text)
{
    struct winsize size;
    bool known = ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
    unsigned rows = known ? size.ws_row : 24, columns = known ? size.ws_col : 80;
    printf("\033[H");
    for (unsigned row = 0; row < rows && *text; row++) {
        if (row > 0)
            printf("\r\n");
        size_t line = strcspn(text, "\n"), n = 0;
        /* The bytes that continue a character of UTF-8 take no column. */
        for (unsigned column = 0; n < line; n++)
            if (((unsigned char)text[n] & 0xc0) != 0x80 && column++ == columns)
                break;
        printf("%.*s\033[K", (int)n, text);
        text += line + (text[line] == '\n');
    }
    printf("\033[J");
    fflush(stdout);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits for the next screen. text: is shown again when the terminal's size changes. False: the user has had enough. */
static bool wait_for_next(double delay, bool has_keys, const char *text)
{
    int64_t end = now_ms() + (int64_t)(delay * 1000), left;
    while ((left = end - now_ms()) > 0) {
        struct pollfd keys = {.fd = has_keys ? 0 : -1, .events = POLLIN};
        int ready = poll(&keys, 1, (int)left);
        char key;
        if (ready < 0 && errno == EINTR && text)
            show_text(text);
        if (ready <= 0)
            continue;
        if (read(0, &key, 1) != 1)
            has_keys = false; /* the end of the input */
        else
            return key != 'q' && key != 'Q';
    }
    return true;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"once", no_argument, NULL, 'o'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"delay", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool once = false, json = false;
    double delay = 1;
    char *end;
    int option;
    while ((option = getopt_long(argc, argv, "d:h", options, NULL)) != -1) {
        switch (option) {
        case 'o': once = true; break;
        case 'j': json = true; break;
        case 'd':
            delay = strtod(optarg, &end);
            if (*end || !(delay >= 0.1 && delay <= 3600)) {
                fprintf(stderr, "gosched-top: -d %s: from 0.1 to 3600 seconds\n", optarg);
                return 2;
            }
            break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (optind != argc - 1) {
        fputs(usage, stderr);
        return 2;
    }
    target t = connect_to_target(argv[optind]);
    bool on_terminal = !once && !json && isatty(1);
    bool has_keys = on_terminal && isatty(0);
    if (on_terminal)
        take_terminal();
    char *old = NULL;
    for (;;) {
        char *now = ask(&t), *text = NULL;
        size_t length;
        if (!now) {
            if (!old)
                fail("process %ld (%s) gives no answer: only its own user and root may look into it", t.pid, t.name);
            restore_terminal();
            printf("gosched-top: process %ld (%s) has ended\n", t.pid, t.name);
            return 0;
        }
        if (number(now, "gosched_top") != 1)
            fail("process %ld (%s) answers in a form that this gosched-top doesn't know; install the newer one", t.pid,
                 t.name);
        before = old;
        if (json) {
            puts(now);
        } else {
            FILE *out = open_memstream(&text, &length);
            if (!out)
                fail("no memory");
            print_screen(out, &t, now);
            fclose(out);
            if (on_terminal)
                show_text(text);
            else
                fputs(text, stdout);
        }
        if (fflush(stdout) != 0)
            fail("standard output: %s", strerror(errno));
        free(old);
        old = now;
        bool goes_on = !once && wait_for_next(delay, has_keys, on_terminal ? text : NULL);
        free(text);
        if (!goes_on)
            break;
    }
    restore_terminal();
    return 0;
}
