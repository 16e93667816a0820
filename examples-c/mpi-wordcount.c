/*
 * mpi-wordcount: counts the words of all files under some directories, on several ranks of MPI.
 *
 * Each rank is a process with a runtime, and so P's, of its own. Rank 0 walks the directories and gives out
 * files; all ranks, rank 0 too, read and count them, and their tables are added up along a tree.
 *
 *     rank 0:     walk --paths--> give out
 *                                  ^ |   messages of MPI
 *     all ranks:              ask -+ +-> read --full--> count --> merge --> send to, or add from, other ranks
 *                                         ^               |
 *                                         +-----empty-----+
 *
 * Goroutines wait for messages as they wait for channels: they park. The readers of a rank ask independently of
 * each other, so a slow disk or a long file holds up one reader only.
 *
 *   mpicc -std=c11 -O2 -Iinclude -Ibindings/mpi examples-c/mpi-wordcount.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o mpi-wordcount
 *   mpirun -n 4 ./mpi-wordcount -n 3 /usr/share/doc
 */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gosched_mpi.h"
#include "words.h"

static const char help[] =
    "usage: mpirun -n RANKS mpi-wordcount [-n N | --all] [-j READERS] DIR...\n"
    "Counts the words in all regular files under each DIR, which all ranks must see alike.\n\n"
    "  -n N         print the N most frequent words (20)\n"
    "  -j READERS   read this many files at a time on each rank, 1 to 1000 (two for each P)\n"
    "      --all    print every word, as 'wordcount --all' does, and the totals to stderr\n"
    "  -h, --help   print this\n\n"
    "What a word is, and which files count: see 'wordcount --help'. The counts don't depend on RANKS. What\n"
    "can't be read is reported, with the rank, and the rest is counted.\n\n"
    "Exit status: 0; 1 if something could not be read or written; 2 for a wrong option. GOSCHED_PROCS sets the\n"
    "number of P's of each rank.\n";

enum { BLOCK = 64 * 1024, BATCH = 8 * 1024, PART = 4 * 1024 * 1024 };

/* Messages: ASK (an int: the reader) to rank 0, the answer WORK + reader (paths, each with its NUL; empty: there
 * are no more), and TABLE (records of a count, a hash and a word with its NUL; empty: the end). */
enum { ASK = 1, TABLE = 2, WORK = 10 };

typedef struct block { char *data; size_t len, cap; } block; /* whole words only */

static struct {
    int rank, ranks;
    char **dirs;
    long top, readers;
    bool all;
    gs_chan *paths;           /* rank 0, of char *: files to read; the receiver owns the string */
    gs_chan *full, *empty;    /* of block *: to be counted; to be filled */
    gs_waitgroup giving, reading, counting;
    table *tables;            /* one for each counter; the first is the sum in the end */
    uint64_t totals[4];       /* files, bytes, words, errors; atomic */
} app;

enum { FILES, BYTES, WORDS, ERRORS };

static void add(int what, uint64_t n) { __atomic_fetch_add(&app.totals[what], n, __ATOMIC_RELAXED); }

/* Ends all ranks: without this one the others would wait for ever. */
static void die(const char *what, const char *why)
{
    fprintf(stderr, "mpi-wordcount: rank %d: %s: %s\n", app.rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void must(int result, const char *what)
{
    if (result < 0)
        die(what, gs_strerror(result));
}

static void mpi(int result, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    if (result != 0)
        die(what, gs_mpi_strerror(result, text));
}

static void unreadable(const char *path, int err)
{
    add(ERRORS, 1);
    fprintf(stderr, "mpi-wordcount: rank %d: %s: %s\n", app.rank, path, strerror(-err));
}

/* ---- Rank 0: walk and give out ---- */

typedef struct pending { struct pending *next; char *path; } pending; /* directories to walk */

static void push(pending **list, char *path)
{
    pending *p = or_die(malloc(sizeof *p));
    *p = (pending){*list, path};
    *list = p;
}

/* Plain system calls: where one takes long the library gives the P to another thread after some ms. */
static void walk_dir(const char *path, pending **todo)
{
    struct dirent *entry;
    struct stat st;
    DIR *dir = opendir(path);
    if (!dir) {
        unreadable(path, -errno);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *child = or_die(malloc(strlen(path) + strlen(entry->d_name) + 2));
        sprintf(child, "%s/%s", path, entry->d_name);
        int type = entry->d_type;
        if (type == DT_UNKNOWN && lstat(child, &st) == 0) /* not every file system tells */
            type = (int)IFTODT(st.st_mode);
        if (type == DT_DIR)
            push(todo, child);
        else if (type == DT_REG)
            must(gs_chan_send(app.paths, &child, GS_FOREVER), "send a path");
        else
            free(child);
    }
    closedir(dir);
}

static void walk(void *arg)
{
    (void)arg;
    for (char **dir = app.dirs; *dir; dir++) {
        pending *todo = NULL, *p;
        for (push(&todo, or_die(strdup(*dir))); (p = todo) != NULL; free(p)) {
            todo = p->next;
            walk_dir(p->path, &todo);
            free(p->path);
        }
    }
    must(gs_chan_close(app.paths), "close paths");
}

/* Answers each reader of each rank until all have been told that there is no more. */
static void give_out(void *arg)
{
    char batch[BATCH], *path = NULL;
    (void)arg;
    for (long left = app.ranks * app.readers; left > 0;) {
        int reader;
        size_t len = 0;
        MPI_Status status;
        mpi(gs_mpi_recv(&reader, 1, MPI_INT, MPI_ANY_SOURCE, ASK, MPI_COMM_WORLD, &status, GS_FOREVER), "receive");
        /* One path is waited for; more that are there are taken too, as long as there is room. */
        if (path == NULL && gs_chan_recv(app.paths, &path, GS_FOREVER) < 0)
            path = NULL; /* closed and drained */
        while (path != NULL && (len == 0 || len + strlen(path) < BATCH)) {
            if (strlen(path) >= BATCH) {
                unreadable(path, -ENAMETOOLONG);
            } else {
                memcpy(batch + len, path, strlen(path) + 1);
                len += strlen(path) + 1;
            }
            free(path);
            path = NULL;
            if (gs_chan_recv(app.paths, &path, len == 0 ? GS_FOREVER : GS_NOWAIT) < 0)
                path = NULL;
        }
        left -= len == 0;
        mpi(gs_mpi_send(batch, (int)len, MPI_CHAR, status.MPI_SOURCE, WORK + reader, MPI_COMM_WORLD), "send");
    }
    must(gs_waitgroup_done(&app.giving), "done");
}

/* ---- All ranks: ask, read, count ---- */

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

/* Sends the full block b and gives one to go on with, which begins with the word that b's end cuts in two. A block
 * that is one word from end to end grows instead. */
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
    int fd = gs_open(path, O_RDONLY | O_NOFOLLOW, 0, GS_FOREVER);
    if (fd < 0) {
        unreadable(path, fd);
        return;
    }
    block *b = take_empty();
    ssize_t n;
    while ((n = gs_read(fd, b->data + b->len, b->cap - b->len, GS_FOREVER)) > 0) {
        add(BYTES, (uint64_t)n);
        b->len += (size_t)n;
        if (b->len == b->cap)
            b = next_block(b);
    }
    must(gs_chan_send(app.full, &b, GS_FOREVER), "send a block");
    if (n < 0)
        unreadable(path, (int)n);
    else
        add(FILES, 1);
    gs_close(fd);
}

static void read_files(void *arg)
{
    int me = (int)(intptr_t)arg, len;
    char batch[BATCH];
    for (;;) {
        MPI_Status status;
        mpi(gs_mpi_sendrecv(&me, 1, MPI_INT, 0, ASK, batch, BATCH, MPI_CHAR, 0, WORK + me, MPI_COMM_WORLD, &status),
            "ask for files");
        MPI_Get_count(&status, MPI_CHAR, &len);
        if (len == 0)
            break;
        for (char *path = batch; path < batch + len; path += strlen(path) + 1)
            read_file(path);
    }
    must(gs_waitgroup_done(&app.reading), "done");
}

static void count_blocks(void *arg)
{
    table *t = arg;
    block *b;
    while (gs_chan_recv(app.full, &b, GS_FOREVER) == 0) {
        add(WORDS, table_count(t, b->data, b->len));
        if (b->cap != BLOCK)
            resize(b, BLOCK);
        must(gs_chan_send(app.empty, &b, GS_FOREVER), "give a block back");
    }
    must(gs_waitgroup_done(&app.counting), "done");
}

/* ---- The sum over all ranks ---- */

/* Sends the table in parts of PART bytes, or more for a word that is longer. */
static void send_table(table *t, int to)
{
    size_t cap = PART, len = 0;
    char *part = or_die(malloc(cap));
    for (size_t i = 0; i < t->size; i++) {
        word *w = &t->slots[i];
        if (!w->text)
            continue;
        size_t more = sizeof w->count + sizeof w->hash + strlen(w->text) + 1;
        if (len > 0 && len + more > PART) {
            mpi(gs_mpi_send(part, (int)len, MPI_BYTE, to, TABLE, MPI_COMM_WORLD), "send a table");
            len = 0;
        }
        if (more > INT_MAX)
            die("send a table", "a word of over 2 GB");
        if (len + more > cap)
            part = or_die(realloc(part, cap = len + more));
        memcpy(part + len, &w->count, sizeof w->count);
        memcpy(part + len + sizeof w->count, &w->hash, sizeof w->hash);
        memcpy(part + len + sizeof w->count + sizeof w->hash, w->text, strlen(w->text) + 1);
        len += more;
        free(w->text);
    }
    mpi(gs_mpi_send(part, (int)len, MPI_BYTE, to, TABLE, MPI_COMM_WORLD), "send a table");
    if (len > 0)
        mpi(gs_mpi_send(part, 0, MPI_BYTE, to, TABLE, MPI_COMM_WORLD), "send a table");
    free(part);
    free(t->slots);
    *t = (table){0};
}

static void add_table(table *t, int from)
{
    for (;;) {
        MPI_Message message;
        MPI_Status status;
        int len;
        mpi(gs_mpi_mprobe(from, TABLE, MPI_COMM_WORLD, &message, &status, GS_FOREVER), "probe");
        MPI_Get_count(&status, MPI_BYTE, &len);
        char *part = or_die(malloc((size_t)len + 1));
        mpi(gs_mpi_mrecv(part, len, MPI_BYTE, &message, &status), "receive a table");
        for (char *p = part; p < part + len;) {
            uint64_t count, hash;
            memcpy(&count, p, sizeof count);
            memcpy(&hash, p + sizeof count, sizeof hash);
            p += sizeof count + sizeof hash;
            size_t n = strlen(p);
            table_reserve(t);
            word *w = table_find(t, p, n, hash);
            if (!w->text) {
                *w = (word){or_die(strndup(p, n)), hash, 0};
                t->used++;
            }
            w->count += count;
            p += n + 1;
        }
        free(part);
        if (len == 0)
            return;
    }
}

/* Along a tree: in each round half of the ranks that are left send to the other half. */
static void add_up(void)
{
    for (int step = 1; step < app.ranks; step *= 2) {
        if (app.rank & step) {
            send_table(&app.tables[0], app.rank - step);
            break;
        }
        if (app.rank + step < app.ranks)
            add_table(&app.tables[0], app.rank + step);
    }
    uint64_t sums[4];
    mpi(gs_mpi_allreduce(app.totals, sums, 4, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD), "add up");
    memcpy(app.totals, sums, sizeof sums);
}

static void go_main(void *arg)
{
    long counters = gs_gomaxprocs(0), most = app.readers;
    (void)arg;
    if (app.readers == 0)
        most = 2 * counters;
    /* The ranks may have different numbers of P's; rank 0 counts on the same number of readers on each. */
    mpi(gs_mpi_allreduce(&most, &app.readers, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD), "agree on readers");

    /* A reader holds two blocks at most; with more blocks than readers one can always go on. */
    size_t blocks = 2 * (size_t)(app.readers + counters);
    app.full = or_die(gs_chan_make(sizeof(block *), blocks));
    app.empty = or_die(gs_chan_make(sizeof(block *), blocks));
    app.tables = or_die(calloc((size_t)counters, sizeof *app.tables));
    for (size_t i = 0; i < blocks; i++) {
        block *b = or_die(calloc(1, sizeof *b));
        resize(b, BLOCK);
        must(gs_chan_send(app.empty, &b, GS_FOREVER), "send a block");
    }
    if (app.rank == 0) {
        app.paths = or_die(gs_chan_make(sizeof(char *), 1024));
        must(gs_waitgroup_add(&app.giving, 1), "add");
        must(gs_spawn(walk, NULL), "spawn");
        must(gs_spawn(give_out, NULL), "spawn");
    }
    must(gs_waitgroup_add(&app.reading, app.readers), "add");
    must(gs_waitgroup_add(&app.counting, counters), "add");
    for (long i = 0; i < app.readers; i++)
        must(gs_spawn(read_files, (void *)(intptr_t)i), "spawn");
    for (long i = 0; i < counters; i++)
        must(gs_spawn(count_blocks, &app.tables[i]), "spawn");

    must(gs_waitgroup_wait(&app.giving, GS_FOREVER), "wait");
    must(gs_waitgroup_wait(&app.reading, GS_FOREVER), "wait");
    must(gs_chan_close(app.full), "close full");
    must(gs_waitgroup_wait(&app.counting, GS_FOREVER), "wait");

    for (long i = 1; i < counters; i++)
        table_merge(&app.tables[0], &app.tables[i]);
    add_up();
    if (app.rank == 0)
        table_sort(&app.tables[0]);
    for (block *b; gs_chan_recv(app.empty, &b, GS_NOWAIT) == 0; free(b))
        free(b->data);
    must(gs_chan_free(app.full), "free a channel");
    must(gs_chan_free(app.empty), "free a channel");
    if (app.paths)
        must(gs_chan_free(app.paths), "free a channel");
}

static void print_results(const table *t, double seconds)
{
    size_t lines = app.all || t->used < (size_t)app.top ? t->used : (size_t)app.top;
    if (!app.all)
        printf("%10s  word\n", "count");
    for (const word *w = t->slots; w < t->slots + lines; w++)
        printf(app.all ? "%7" PRIu64 " %s\n" : "%10" PRIu64 "  %s\n", w->count, w->text);
    fprintf(app.all ? stderr : stdout,
            "%s%" PRIu64 " files, %" PRIu64 " bytes, %" PRIu64 " words, %zu distinct, %d ranks, %.3f s\n",
            app.all ? "" : "\n", app.totals[FILES], app.totals[BYTES], app.totals[WORDS], t->used, app.ranks, seconds);
}

/* Ends all ranks with the same status; rank 0 says why. */
static void leave(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (app.rank == 0)
        vfprintf(status == 0 ? stdout : stderr, format, args);
    va_end(args);
    MPI_Finalize();
    exit(status);
}

static long number(char option, long least, long most)
{
    char *end;
    errno = 0;
    long n = strtol(optarg, &end, 10);
    if (errno != 0 || end == optarg || *end != '\0' || n < least || n > most)
        leave(2, "mpi-wordcount: -%c takes a number from %ld to %ld, not '%s'\n", option, least, most, optarg);
    return n;
}

static void parse(int argc, char **argv)
{
    static const struct option longs[] = {
        {"all", no_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    app.top = 20;
    opterr = app.rank == 0;
    for (int c; (c = getopt_long(argc, argv, "n:j:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'n': app.top = number('n', 0, 1000 * 1000 * 1000); break;
        case 'j': app.readers = number('j', 1, 1000); break;
        case 'a': app.all = true; break;
        case 'h': leave(0, "%s", help); break;
        default: leave(2, "Try 'mpi-wordcount --help'.\n");
        }
    }
    if (optind == argc)
        leave(2, "mpi-wordcount: no directory given\nTry 'mpi-wordcount --help'.\n");
    app.dirs = argv + optind;
}

int main(int argc, char **argv)
{
    char text[MPI_MAX_ERROR_STRING];
    int err = gs_mpi_init(&argc, &argv);
    if (err != 0) {
        fprintf(stderr, "mpi-wordcount: %s\n", gs_mpi_strerror(err, text));
        return 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &app.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &app.ranks);
    parse(argc, argv);

    int64_t start = gs_now();
    must(gs_run(go_main, NULL), "run");
    if (app.rank == 0) {
        print_results(&app.tables[0], (double)(gs_now() - start) / 1e9);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            perror("mpi-wordcount: standard output");
            app.totals[ERRORS]++;
        }
    }
    table_free(&app.tables[0]);
    free(app.tables);
    must(gs_shutdown(GS_FOREVER), "shutdown");
    MPI_Finalize();
    /* Rank 0's status is the program's: mpirun ends the others where a rank fails. */
    return app.rank == 0 && app.totals[ERRORS] > 0;
}
