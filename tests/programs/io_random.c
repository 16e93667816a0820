/*
 * A random tester of descriptors with a model of what must hold. Several rounds run at the same time, each with a pair of
 * files of its own, so that a number that one round frees is taken by another round at once. Readers, writers and pollers are
 * goroutines and plain threads.
 *
 *   - Each record arrives once, at a reader of the pair into which it was written, and none is missing at the end.
 *   - After the last writer has closed its end all readers see the end.
 *   - A call ends with -ETIMEDOUT only after its deadline, and with -ECANCELED only after a cancel or a close.
 *   - A poll gives only what was asked for, or an error.
 *   - An open descriptor stays its owner's until the owner closes it, and closing it gives 0.
 *   - No call waits for ever: the watchdog.
 *
 * As a test it runs for a moment. "io_random SECONDS SEED" runs for that long, for tools/soak. "io_random bubbles SEED
 * RUNS" has rounds with few records in bubbles (tester.h), with sockets of the network in memory, which is slow and loses.
 * Parts (tester.h): who runs (0 and 1: a goroutine each with rounds, 2: a goroutine that opens and closes, 3: a thread
 * with rounds, 4: a thread that opens and closes), 5: GOMAXPROCS changes, 6: readers are cancelled, 7: files are closed
 * under readers, 8: pollers.
 */
#include "tester.h"
#include "io.h"
#include <ctype.h>
#include <sys/mman.h>

static int64_t run_for = 300 * MS;
static int64_t end_at;
static long rounds_done;

static int below(uint64_t *s, int n)
{
    return (int)(random_next(s) >> 33) % n;
}

/* ---- Actors: goroutines or plain threads ---- */

struct actor {
    void (*fn)(struct actor *);
    struct pair *pair;
    uint64_t seed;
    int is_thread;
    int is_cancelled; /* may be */
    gs_g *g;
    pthread_t thread;
};

static void act(void *a)
{
    struct actor *actor = a;
    actor->fn(actor);
}

static void *act_on_thread(void *a)
{
    act(a);
    return NULL;
}

static void start(struct actor *a, void (*fn)(struct actor *), struct pair *pair, uint64_t *seed)
{
    memset(a, 0, sizeof *a);
    a->fn = fn;
    a->pair = pair;
    a->seed = random_next(seed) | 1;
    a->is_thread = below(seed, 5) == 0 && !is_in_bubble();
    if (a->is_thread)
        a->thread = start_thread(act_on_thread, a);
    else
        a->g = go_ref(act, a);
}

static void finish_actor(struct actor *a)
{
    if (a->is_thread)
        go_join_thread(a->thread);
    else
        join(a->g);
}

/* ---- Pairs ---- */

static void make_packets(int fds[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
}

static void make_connected(int fds[2])
{
    struct sockaddr_in a;
    int listener;
    make_user_sockets(&listener, &fds[0], &a);
    CHECK_EQ(gs_connect(fds[0], (struct sockaddr *)&a, sizeof a, GS_FOREVER), 0);
    fds[1] = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(fds[1], 0);
    CHECK_EQ(gs_close(listener), 0);
}

/* The pairs of a bubble, whose sockets have no getsockname(2). */
static void make_unix_in_memory(int fds[2])
{
    CHECK_EQ(gs_unix_pair(fds), 0);
}

static uint16_t last_port;

static void make_tcp_in_memory(int fds[2])
{
    uint16_t port = ++last_port;
    int listener = gs_tcp_listen("127.0.0.1", port, 0);
    CHECK_GE(listener, 0);
    fds[0] = gs_tcp_connect("127.0.0.1", port, GS_FOREVER);
    CHECK_GE(fds[0], 0);
    fds[1] = gs_accept(listener, NULL, NULL, GS_FOREVER);
    CHECK_GE(fds[1], 0);
    CHECK_EQ(gs_close(listener), 0);
}

static const struct {
    const char *name;
    make_fn make;
    int is_socket;
} kinds[] = {
    {"local socket in memory", make_unix_in_memory, 1}, {"tcp in memory", make_tcp_in_memory, 1},
    {"pipe", make_pipe, 0},          {"local socket", make_pair, 1}, {"local packets", make_packets, 1},
    {"tcp of the library", make_tcp, 1}, {"tcp of the user", make_connected, 1},
};

enum { IN_MEMORY = 2 }; /* how many kinds are for bubbles; no others are */

enum { MOST = 400, READERS = 4, WRITERS = 3, POLLERS = 3 };

struct pair {
    int kind;
    uint32_t id;
    int fds[2]; /* read from, written to */
    int records, writers;
    int next, writers_left, got, ended;
    int may_close; /* the end that is read from, under the readers */
    int is_closing;
    int end_seen;
    unsigned char seen[MOST];
};

/* Files are opened under it, as one of many; who closes under readers has it alone: one of them may be late, and would
   meet the next file with its number. */
static gs_rwmutex opening;

static int64_t some_deadline(uint64_t *s)
{
    switch (below(s, 6)) {
    case 0:
        return GS_NOWAIT;
    case 1:
        return gs_after_us(below(s, 100));
    case 2:
        return gs_after_us(below(s, 3000));
    case 3:
        return gs_now() - 1;
    default:
        return GS_FOREVER;
    }
}

static void check_soft(const struct actor *a, int64_t deadline, long r)
{
    if (r == -EAGAIN)
        CHECK_EQ(deadline, GS_NOWAIT);
    else if (r == -ETIMEDOUT)
        CHECK(deadline >= 0 && gs_now() >= deadline);
    else if (r == -ECANCELED)
        CHECK(GET(a->is_cancelled) || GET(a->pair->is_closing));
    else
        CHECK_EQ(r, -ETIMEDOUT);
}

static void read_records(struct actor *a)
{
    struct pair *p = a->pair;
    while (!GET(p->is_closing)) {
        uint32_t record = 0;
        struct iovec halves[2] = {{&record, 2}, {(char *)&record + 2, 2}};
        int64_t deadline = some_deadline(&a->seed);
        ssize_t r;
        switch (below(&a->seed, 3)) {
        case 0:
            r = gs_readv(p->fds[0], halves, 2, deadline);
            break;
        case 1:
            if (kinds[p->kind].is_socket) {
                r = gs_recv(p->fds[0], &record, sizeof record, 0, deadline);
                break;
            }
            /* fall through */
        default:
            r = gs_read(p->fds[0], &record, sizeof record, deadline);
        }
        if (r == sizeof record) {
            CHECK_EQ(record >> 16, p->id);
            CHECK((int)(record & 0xffff) < p->records);
            CHECK_EQ(ADD(p->seen[record & 0xffff], 1), 1);
            ADD(p->got, 1);
        } else if (r == 0) {
            CHECK_EQ(GET(p->writers_left), 0);
            ADD(p->ended, 1);
            return;
        } else if (GET(p->is_closing)) {
            /* late: any error */
            CHECK_LE(r, -1);
            return;
        } else {
            check_soft(a, deadline, r);
            if (r == -ECANCELED)
                return;
            if (below(&a->seed, 4) == 0)
                gs_yield();
        }
    }
}

/* The last one closes the end. */
static void write_records(struct actor *a)
{
    struct pair *p = a->pair;
    int n;
    while ((n = ADD(p->next, 1) - 1) < p->records) {
        uint32_t record = p->id << 16 | (uint32_t)n;
        for (;;) {
            int64_t deadline = some_deadline(&a->seed);
            ssize_t r = kinds[p->kind].is_socket && below(&a->seed, 2)
                            ? gs_send(p->fds[1], &record, sizeof record, 0, deadline)
                            : gs_write(p->fds[1], &record, sizeof record, deadline);
            if (r == sizeof record)
                break;
            if (GET(p->is_closing) && (r == -EPIPE || r == -ECONNRESET))
                goto out;
            check_soft(a, deadline, r);
        }
        if (below(&a->seed, 16) == 0)
            (void)gs_sleep(below(&a->seed, 300) * US);
    }
out:
    if (ADD(p->writers_left, -1) == 0) {
        /* it has no waiter: either way */
        if (below(&a->seed, 2) || is_in_bubble())
            CHECK_EQ(gs_close(p->fds[1]), 0);
        else
            CHECK_EQ(close(p->fds[1]), 0);
    }
}

static void poll_it(struct actor *a)
{
    static const int wanted[] = {POLLIN, POLLRDHUP, POLLPRI, 0, POLLIN | POLLRDHUP, POLLOUT};
    struct pair *p = a->pair;
    while (!GET(p->end_seen) && !GET(p->is_closing)) {
        int events = wanted[below(&a->seed, LENGTH(wanted))];
        /* These come at the end in any case, and it is closed only when all pollers have gone. */
        int comes = (events & POLLIN) && !p->may_close;
        int64_t deadline = comes && below(&a->seed, 4) == 0 ? GS_FOREVER : gs_after_us(below(&a->seed, 2000));
        int r = gs_poll_fd(p->fds[0], events, deadline);
        if (GET(p->is_closing))
            return;
        if (r > 0)
            CHECK_EQ(r & ~(events | POLLERR | POLLHUP), 0);
        else
            check_soft(a, deadline, r);
        if (r & POLLHUP)
            return;
        (void)gs_sleep(below(&a->seed, 200) * US);
    }
}

static uint32_t ids;

static void one_round(uint64_t *s)
{
    struct actor readers[READERS], writers[WRITERS], pollers[POLLERS];
    struct pair *p = calloc(1, sizeof *p);
    int n_readers, n_pollers, i, live = 0;
    CHECK(p != NULL);
    p->kind = is_in_bubble() ? below(s, IN_MEMORY) : IN_MEMORY + below(s, LENGTH(kinds) - IN_MEMORY);
    p->id = ADD(ids, 1) & 0xffff;
    p->records = sized(1 + below(s, is_in_bubble() ? MOST / 20 : MOST));
    p->writers = sized(1 + below(s, WRITERS));
    p->writers_left = p->writers;
    n_readers = sized(1 + below(s, READERS));
    n_pollers = below(s, POLLERS + 1);
    n_pollers = has_part(8) && n_pollers > 0 ? sized(n_pollers) : 0;
    p->may_close = below(s, 4) == 0 && has_part(7);
    CHECK_EQ(gs_rwmutex_rlock(&opening, GS_FOREVER), 0);
    kinds[p->kind].make(p->fds);
    gs_rwmutex_runlock(&opening);
    for (i = 0; i < n_pollers; i++)
        start(&pollers[i], poll_it, p, s);
    for (i = 0; i < n_readers; i++)
        start(&readers[i], read_records, p, s);
    for (i = 0; i < p->writers; i++)
        start(&writers[i], write_records, p, s);
    /* the first one reads to the end */
    for (i = 1; i < n_readers; i++)
        if (!readers[i].is_thread && below(s, 3) == 0 && has_part(6)) {
            (void)gs_sleep(below(s, 500) * US);
            SET(readers[i].is_cancelled, 1);
            CHECK_EQ(gs_cancel(readers[i].g), 0);
        } else {
            live++;
        }
    if (p->may_close) {
        (void)gs_sleep(below(s, 1000) * US);
        CHECK_EQ(gs_rwmutex_lock(&opening, GS_FOREVER), 0);
        SET(p->is_closing, 1);
        CHECK_EQ(gs_close(p->fds[0]), 0);
    }
    for (i = 0; i < n_readers; i++)
        finish_actor(&readers[i]);
    SET(p->end_seen, 1);
    for (i = 0; i < n_pollers; i++)
        finish_actor(&pollers[i]);
    for (i = 0; i < p->writers; i++)
        finish_actor(&writers[i]);
    if (p->may_close) {
        gs_rwmutex_unlock(&opening);
    } else {
        CHECK_EQ(p->got, p->records);
        CHECK_GE(p->ended, 1 + live);
        if (below(s, 2) || is_in_bubble())
            CHECK_EQ(gs_close(p->fds[0]), 0);
        else
            CHECK_EQ(close(p->fds[0]), 0);
    }
    ADD(rounds_done, 1);
    free(p);
}

/* ---- Numbers that come and go ---- */

static int open_something(uint64_t *s)
{
    switch (below(s, 3)) {
    case 0:
        return eventfd(1, EFD_CLOEXEC);
    case 1:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    default:
        return memfd_create("random", MFD_CLOEXEC);
    }
}

static void churn(uint64_t *s)
{
    struct stat before, after;
    uint64_t n = 0;
    int fd;
    CHECK_EQ(gs_rwmutex_rlock(&opening, GS_FOREVER), 0);
    fd = open_something(s);
    gs_rwmutex_runlock(&opening);
    CHECK_GE(fd, 0);
    CHECK_EQ(fstat(fd, &before), 0);
    if (below(s, 2)) {
        ssize_t r = gs_read(fd, &n, sizeof n, gs_after_us(below(s, 200)));
        CHECK(r == 0 || r == sizeof n || r == -EINVAL || r == -ETIMEDOUT || r == -ENOTCONN);
        CHECK(r != sizeof n || n == 1);
    }
    gs_yield();
    CHECK_EQ(fstat(fd, &after), 0);
    CHECK_EQ(before.st_ino, after.st_ino);
    CHECK_EQ(before.st_dev, after.st_dev);
    if (below(s, 3))
        CHECK_EQ(gs_close(fd), 0);
    else
        CHECK_EQ(close(fd), 0);
}

/* ---- All together ---- */

static uint64_t seeds[5];

static void many_rounds(void *seed)
{
    while (gs_now() < GET(end_at)) {
        if (run_for > SEC)
            alarm(check_seconds());
        one_round(seed);
    }
}

static void *many_rounds_on_thread(void *seed)
{
    many_rounds(seed);
    return NULL;
}

static void much_churn(void *seed)
{
    while (gs_now() < GET(end_at))
        churn(seed);
}

static void *much_churn_on_thread(void *seed)
{
    much_churn(seed);
    return NULL;
}

GO_TEST(what_holds_of_descriptors_at_random)
{
    uint64_t seed = random_seed();
    pthread_t t[2];
    gs_g *g[3];
    int i, procs = gs_gomaxprocs(0);
    for (i = 0; i < (int)LENGTH(seeds); i++)
        seeds[i] = random_next(&seed) | 1;
    SET(end_at, gs_now() + run_for);
    for (i = 0; i < 3; i++)
        if (has_part(i))
            g[i] = go_ref(i < 2 ? many_rounds : much_churn, &seeds[i]);
    for (i = 0; i < 2; i++)
        if (has_part(3 + i))
            t[i] = start_thread(i ? much_churn_on_thread : many_rounds_on_thread, &seeds[3 + i]);
    while (gs_now() < GET(end_at)) {
        CHECK_EQ(gs_sleep(20 * MS), 0);
        if (below(&seed, 8) == 0 && has_part(5))
            (void)gs_gomaxprocs(1 + below(&seed, 9));
    }
    for (i = 0; i < 3; i++)
        if (has_part(i))
            join(g[i]);
    for (i = 0; i < 2; i++)
        if (has_part(3 + i))
            go_join_thread(t[i]);
    (void)gs_gomaxprocs(procs);
    if (run_for > SEC)
        printf("io_random: %ld rounds, %s\n", GET(rounds_done), check_note);
}

/* ---- In bubbles ---- */

static void one_in_a_bubble(void *seed)
{
    one_round(seed);
}

static void play(void *of_seed)
{
    uint64_t seed = (*(uint64_t *)of_seed * 0x9e3779b97f4a7c15ull) | 1;
    gs_g *g[3];
    int i, n;
    for (i = 0; i < 8; i++)
        (void)random_next(&seed);
    memset(&opening, 0, sizeof opening);
    ids = last_port = 0;
    n = 1 + below(&seed, LENGTH(g));
    for (i = 0; i < n; i++)
        seeds[i] = random_next(&seed) | 1;
    for (i = 0; i < n; i++)
        g[i] = go_ref(one_in_a_bubble, &seeds[i]);
    for (i = 0; i < n; i++)
        join(g[i]);
}

int main(int argc, char **argv)
{
    static const struct bubble_play bubble = {
        .play = play, .most = {.max_steps = 200000, .net = {.delay = 3 * MS, .jitter = 20 * MS, .loss = 100}}};
    int status = play_in_bubbles(argc, argv, &bubble);
    if (status >= 0)
        return status;
    if (asked_for_parts(argc, argv, 9))
        return 0;
    if (argc > 1 && isdigit((unsigned char)argv[1][0])) {
        run_for = atoi(argv[1]) * SEC;
        if (argc > 2)
            setenv("CHECK_SEED", argv[2], 1);
        argv[1] = NULL;
        argc = 1;
    }
    return check_main(argc, argv);
}
