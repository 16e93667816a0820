/*
 * wordcount: counts the words of all files under some directories, in parallel.
 *
 * It shows a pipeline of goroutines over channels with blocking system calls in it:
 *
 *     walk --paths--> read --full--> count --> merge, sort, print
 *                      ^               |
 *                      +-----empty-----+
 *
 * Readers (-j) use plain open(2) and read(2) between gs_entersyscall and gs_exitsyscall: while the
 * disk is slow, other goroutines have the P. Counters, one for each P, count into hash tables of
 * their own, without locks. Blocks go back to the readers, so memory is bounded.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/wordcount.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o wordcount
 *   ./wordcount -n 3 /usr/share/doc
 *
 * It prints (one machine's numbers; on a terminal there is a progress line, too):
 *
 *        count  word
 *       523727  a
 *       326673  p
 *       317159  c
 *
 *   4172 files, 111518237 bytes, 17140163 words, 116677 distinct, 0.665 s
 */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gosched.h"
#include "words.h" /* the hash table: table_count, table_merge, table_sort */

static const char help[] =
    "usage: wordcount [-n N | --all] [-j READERS] DIR...\n"
    "Counts the words in all regular files under each DIR.\n\n"
    "  -n N         print the N most frequent words (20)\n"
    "  -j READERS   read this many files at a time, 1 to 10000 (two for each P)\n"
    "      --all    print every word, as 'sort | uniq -c | sort -k1,1nr -k2' would,\n"
    "               and the totals to stderr\n"
    "  -h, --help   print this\n\n"
    "A word is a run of the letters A to Z, made lower case: what\n"
    "tr -cs 'A-Za-z' '\\n' | tr A-Z a-z leaves of a file, empty lines apart. It ends with its\n"
    "file. Binary files count as well. Symbolic links below DIR are not followed. What can't be\n"
    "read is reported, and the rest is counted. SIGINT: prints what has been counted so far.\n\n"
    "Exit status: 0; 1 if something could not be read or written; 2 for a wrong option; 130 if\n"
    "interrupted. GOSCHED_PROCS sets the number of P's, and so of counters.\n";

enum { BLOCK = 64 * 1024 };

/* Text on its way from a reader to a counter: whole words only. */
typedef struct block { char *data; size_t len, cap; } block;

static struct {
    char **dirs;              /* the command line */
    long top, readers;
    bool all, progress;
    gs_chan *paths;           /* of char *: files to read; the receiver owns the string */
    gs_chan *full, *empty;    /* of block *: to be counted; to be filled */
    gs_chan *finished;        /* closed at the end, for the progress line */
    gs_waitgroup reading, counting, showing;
    table *tables;            /* one for each counter; the first is the sum in the end */
    atomic_bool stop;         /* set by SIGINT */
    atomic_uint_fast64_t files, bytes, words, errors;
} app;

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "wordcount: %s: %s\n", what, gs_strerror(result));
        exit(1);
    }
}

static void unreadable(const char *path, int err)
{
    app.errors++;
    fprintf(stderr, "%swordcount: %s: %s\n", app.progress ? "\r\033[K" : "", path, strerror(-err));
}

/* Blocking system calls; each gives a negative errno value for an error. While one lasts, another
 * thread may take the P; after gs_exitsyscall the goroutine may be on another thread, which has an
 * errno of its own. So errno is read before it, and none of these is inlined: a compiler may
 * compute errno's address only once in a function. */
#define SYSCALL static __attribute__((noinline))

SYSCALL int sys_open(const char *path, int flags)
{
    gs_entersyscall();
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    int result = fd < 0 ? -errno : fd;
    gs_exitsyscall();
    return result;
}

SYSCALL ssize_t sys_read(int fd, void *buf, size_t n)
{
    gs_entersyscall();
    ssize_t got = read(fd, buf, n);
    ssize_t result = got < 0 ? -errno : got;
    gs_exitsyscall();
    return result;
}

/* Gives the next entry (NULL at the end) and its type: DT_DIR, DT_REG or something else. */
SYSCALL int sys_readdir(DIR *dir, struct dirent **entry, int *type)
{
    struct stat st;
    gs_entersyscall();
    errno = 0;
    *entry = readdir(dir);
    int result = -errno;
    *type = *entry ? (*entry)->d_type : DT_UNKNOWN;
    if (*entry && *type == DT_UNKNOWN && /* not every file system tells */
        fstatat(dirfd(dir), (*entry)->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        *type = (int)IFTODT(st.st_mode);
    gs_exitsyscall();
    return result;
}

/* walk: sends the path of every regular file under the directories. */
typedef struct pending { struct pending *next; char *path; } pending; /* directories to walk */

static void push(pending **list, char *path)
{
    pending *p = or_die(malloc(sizeof *p));
    *p = (pending){*list, path};
    *list = p;
}

static char *join(const char *dir, const char *name)
{
    char *path = or_die(malloc(strlen(dir) + strlen(name) + 2));
    sprintf(path, "%s/%s", dir, name);
    return path;
}

static void walk_dir(const char *path, pending **todo)
{
    int fd = sys_open(path, O_DIRECTORY), type, err = 0;
    if (fd < 0) {
        unreadable(path, fd);
        return;
    }
    DIR *dir = or_die(fdopendir(fd));
    struct dirent *entry;
    while (!app.stop && (err = sys_readdir(dir, &entry, &type)) == 0 && entry) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *child = join(path, entry->d_name);
        if (type == DT_DIR)
            push(todo, child);
        else if (type == DT_REG)
            must(gs_chan_send(app.paths, &child, GS_FOREVER), "send a path");
        else
            free(child);
    }
    if (err < 0)
        unreadable(path, err);
    closedir(dir);
}

static void walk(void *arg)
{
    (void)arg;
    for (char **dir = app.dirs; *dir; dir++) {
        pending *todo = NULL, *p;
        for (push(&todo, or_die(strdup(*dir))); (p = todo) != NULL; free(p)) {
            todo = p->next;
            if (!app.stop)
                walk_dir(p->path, &todo);
            free(p->path);
        }
    }
    must(gs_chan_close(app.paths), "close paths");
}

/* read: fills blocks with the files' text, cut between words. */
static void resize(block *b, size_t cap)
{
    b->data = or_die(realloc(b->data, cap));
    b->cap = cap;
}

static block *take_empty(void)
{
    block *b;
    must(gs_chan_recv(app.empty, &b, GS_FOREVER), "take a block");
    b->len = 0;
    return b;
}

/* Sends the full block b and gives one to go on with, which begins with the word that b's end cuts
 * in two. A block that is one word from end to end grows instead. */
static block *next_block(block *b)
{
    size_t begun = 0;
    while (begun < b->len && is_letter(b->data[b->len - 1 - begun]))
        begun++;
    if (begun == b->len) {
        resize(b, 2 * b->cap);
        return b;
    }
    block *next = take_empty();
    if (next->cap < 2 * begun)
        resize(next, 2 * begun);
    b->len -= begun;
    memcpy(next->data, b->data + b->len, begun);
    next->len = begun;
    must(gs_chan_send(app.full, &b, GS_FOREVER), "send a block");
    return next;
}

static void read_file(const char *path)
{
    int fd = sys_open(path, O_NOFOLLOW);
    if (fd < 0) {
        unreadable(path, fd);
        return;
    }
    block *b = take_empty();
    ssize_t n = 0;
    while (!app.stop && (n = sys_read(fd, b->data + b->len, b->cap - b->len)) > 0) {
        app.bytes += (uint64_t)n;
        b->len += (size_t)n;
        if (b->len == b->cap)
            b = next_block(b);
    }
    must(gs_chan_send(app.full, &b, GS_FOREVER), "send a block");
    if (n < 0)
        unreadable(path, (int)n);
    else
        app.files++;
    close(fd);
}

static void read_files(void *arg)
{
    (void)arg;
    char *path;
    while (gs_chan_recv(app.paths, &path, GS_FOREVER) == 0) { /* -EPIPE: closed and drained */
        if (!app.stop)
            read_file(path);
        free(path);
    }
    must(gs_waitgroup_done(&app.reading), "done");
}

/* count: a table of its own for each. */
static void count_blocks(void *arg)
{
    table *t = arg;
    block *b;
    while (gs_chan_recv(app.full, &b, GS_FOREVER) == 0) {
        app.words += table_count(t, b->data, b->len);
        if (b->cap != BLOCK)
            resize(b, BLOCK);
        must(gs_chan_send(app.empty, &b, GS_FOREVER), "give a block back");
    }
    must(gs_waitgroup_done(&app.counting), "done");
}

/* A line on the terminal ten times a second, until `finished` is closed. */
static void show_progress(void *arg)
{
    (void)arg;
    while (gs_chan_recv(app.finished, NULL, gs_after_ms(100)) == -ETIMEDOUT)
        fprintf(stderr, "\r\033[K%" PRIu64 " files, %" PRIu64 " MB, %" PRIu64 " words",
                (uint64_t)app.files, (uint64_t)app.bytes / 1000000, (uint64_t)app.words);
    fprintf(stderr, "\r\033[K");
    must(gs_waitgroup_done(&app.showing), "done");
}

/* The main goroutine: builds the pipeline, waits for its parts from left to right, merges. */
static void go_main(void *arg)
{
    (void)arg;
    long counters = gs_gomaxprocs(0);
    if (app.readers == 0)
        app.readers = 2 * counters;

    /* A reader holds two blocks at most; with more blocks than readers one can always go on. */
    size_t blocks = 2 * (size_t)(app.readers + counters);
    app.paths = or_die(gs_chan_make(sizeof(char *), 256));
    app.full = or_die(gs_chan_make(sizeof(block *), blocks));
    app.empty = or_die(gs_chan_make(sizeof(block *), blocks));
    app.finished = or_die(gs_chan_make(0, 0));
    app.tables = or_die(calloc((size_t)counters, sizeof *app.tables));
    for (size_t i = 0; i < blocks; i++) {
        block *b = or_die(calloc(1, sizeof *b));
        resize(b, BLOCK);
        must(gs_chan_send(app.empty, &b, GS_FOREVER), "send a block");
    }

    must(gs_waitgroup_add(&app.reading, app.readers), "add");
    must(gs_waitgroup_add(&app.counting, counters), "add");
    must(gs_waitgroup_add(&app.showing, app.progress), "add");
    must(gs_spawn(walk, NULL), "spawn");
    for (long i = 0; i < app.readers; i++)
        must(gs_spawn(read_files, NULL), "spawn");
    for (long i = 0; i < counters; i++)
        must(gs_spawn(count_blocks, &app.tables[i]), "spawn");
    if (app.progress)
        must(gs_spawn(show_progress, NULL), "spawn");

    must(gs_waitgroup_wait(&app.reading, GS_FOREVER), "wait"); /* ends when walk closes paths */
    must(gs_chan_close(app.full), "close full");
    must(gs_waitgroup_wait(&app.counting, GS_FOREVER), "wait");
    must(gs_chan_close(app.finished), "close finished");
    must(gs_waitgroup_wait(&app.showing, GS_FOREVER), "wait");

    for (long i = 1; i < counters; i++)
        table_merge(&app.tables[0], &app.tables[i]);
    table_sort(&app.tables[0]);
    for (block *b; gs_chan_recv(app.empty, &b, GS_NOWAIT) == 0; free(b))
        free(b->data);
    gs_chan *made[] = {app.paths, app.full, app.empty, app.finished};
    for (size_t i = 0; i < 4; i++)
        must(gs_chan_free(made[i]), "free a channel");
}

static void print_results(const table *t, double seconds)
{
    size_t lines = app.all || t->used < (size_t)app.top ? t->used : (size_t)app.top;
    if (!app.all)
        printf("%10s  word\n", "count");
    for (const word *w = t->slots; w < t->slots + lines; w++)
        printf(app.all ? "%7" PRIu64 " %s\n" : "%10" PRIu64 "  %s\n", w->count, w->text);
    fprintf(app.all ? stderr : stdout,
            "%s%" PRIu64 " files, %" PRIu64 " bytes, %" PRIu64 " words, %zu distinct, %.3f s%s\n",
            app.all ? "" : "\n", (uint64_t)app.files, (uint64_t)app.bytes, (uint64_t)app.words,
            t->used, seconds, app.stop ? " (interrupted)" : "");
}

static void on_interrupt(int sig)
{
    (void)sig;
    app.stop = true; /* walker and readers look at it; a second SIGINT ends the program at once */
}

static long number(char option, long least, long most)
{
    char *end;
    errno = 0;
    long n = strtol(optarg, &end, 10);
    if (errno != 0 || end == optarg || *end != '\0' || n < least || n > most) {
        fprintf(stderr, "wordcount: -%c takes a number from %ld to %ld, not '%s'\n", option, least,
                most, optarg);
        exit(2);
    }
    return n;
}

static void parse(int argc, char **argv)
{
    static const struct option longs[] = {
        {"all", no_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    app.top = 20;
    for (int c; (c = getopt_long(argc, argv, "n:j:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'n': app.top = number('n', 0, 1000 * 1000 * 1000); break;
        case 'j': app.readers = number('j', 1, 10000); break;
        case 'a': app.all = true; break;
        case 'h': fputs(help, stdout); exit(0);
        default: fprintf(stderr, "Try 'wordcount --help'.\n"); exit(2);
        }
    }
    if (optind == argc) {
        fprintf(stderr, "wordcount: no directory given\nTry 'wordcount --help'.\n");
        exit(2);
    }
    app.dirs = argv + optind;
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    app.progress = isatty(STDERR_FILENO);
    struct sigaction interrupt = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigaction(SIGINT, &interrupt, NULL);

    int64_t start = gs_now();
    must(gs_run(go_main, NULL), "run");
    print_results(&app.tables[0], (double)(gs_now() - start) / 1e9);
    table_free(&app.tables[0]);
    free(app.tables);
    must(gs_shutdown(GS_FOREVER), "shutdown");
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("wordcount: standard output");
        return 1;
    }
    return app.stop ? 130 : app.errors > 0;
}
