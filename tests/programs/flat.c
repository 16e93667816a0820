/*
 * What begins and ends while the runtime goes on leaves nothing behind: mappings, address space, threads and file
 * descriptors stay as many, however often it is done. Each kind of thing has a test. A test does it WARM_UP times,
 * looks at the process, does it MORE times, and looks again.
 *
 * flat SECONDS SEED does things of all kinds, in an order that SEED decides, for SECONDS: a tester (tools/soak).
 */
#include "tester.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { WARM_UP = 60, MORE = 240 };

/* More than this is growth: mappings, KiB of address space, KiB in memory, descriptors, threads. The C library keeps up
   to 40 MiB of stacks of threads that have ended, and the library maps 64 MiB for stacks of goroutines at once. */
enum { SLACK_MAPS = 24, SLACK_KIB = 128 << 10, SLACK_RESIDENT = 4 << 10, SLACK_FDS = 32, SLACK_THREADS = 8 };

struct size {
    long maps, kib, resident, fds, threads;
};

/* With an emulator nothing of memory: main says why. */
static struct size look(void)
{
    struct size s = {.fds = count_fds(), .threads = count_threads()};
    if (!is_emulated()) {
        s.maps = count_maps();
        s.kib = read_kib("/proc/self/status", "VmSize:");
        s.resident = resident_kib();
    }
    return s;
}

static void check_one(const char *kind, const char *what, long before, long after, long slack)
{
    char text[200];
    if (after <= before + slack)
        return;
    snprintf(text, sizeof text, "%s: %s: %ld, later %ld", kind, what, before, after);
    failed(__FILE__, __LINE__, "it grows", text);
}

static int has_grown(struct size before, struct size after)
{
    return after.maps > before.maps + SLACK_MAPS || after.kib > before.kib + SLACK_KIB ||
           after.resident > before.resident + SLACK_RESIDENT || after.fds > before.fds + SLACK_FDS ||
           after.threads > before.threads + SLACK_THREADS;
}

/* A thread that ends needs a CPU to do so, and is joined after that. */
static void check_flat(const char *kind, struct size before)
{
    struct size after = look();
    int i;
    for (i = 0; i < 200 && has_grown(before, after); i++) {
        CHECK_EQ(gs_sleep(100 * MS), 0);
        after = look();
    }
    check_one(kind, "mappings", before.maps, after.maps, SLACK_MAPS);
    check_one(kind, "KiB of address space", before.kib, after.kib, SLACK_KIB);
    check_one(kind, "KiB in memory", before.resident, after.resident, SLACK_RESIDENT);
    check_one(kind, "descriptors", before.fds, after.fds, SLACK_FDS);
    check_one(kind, "threads", before.threads, after.threads, SLACK_THREADS);
}

/* ---- What begins and ends ---- */

static void yield_once(void *arg)
{
    (void)arg;
    gs_yield();
}

static void end_locked(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_lock_os_thread(), 0);
    CHECK_EQ(gs_sleep(MS), 0);
}

static void threads_of_locked_goroutines(void)
{
    gs_g *g[10];
    size_t i;
    for (i = 0; i < LENGTH(g); i++)
        g[i] = go_ref(end_locked, NULL);
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
}

static int disk_file = -1;

static void sync_file(void *arg)
{
    char c = 'x';
    CHECK_EQ(pwrite(disk_file, &c, 1, (intptr_t)arg), 1);
    CHECK_EQ(gs_fsync(disk_file, GS_FOREVER), 0);
}

/* Threads for disk files, which leave when others are wanted at the limit of threads. */
static void threads_for_disk_files(void)
{
    gs_g *g[6];
    size_t i;
    int before = gs_set_max_threads(8);
    if (disk_file < 0) {
        char path[] = "flat.XXXXXX";
        disk_file = mkostemp(path, O_CLOEXEC);
        CHECK(disk_file >= 0);
        CHECK_EQ(unlink(path), 0);
    }
    for (i = 0; i < LENGTH(g); i++)
        g[i] = go_ref(sync_file, (void *)i);
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
    CHECK_EQ(gs_sleep(MS), 0);
    threads_of_locked_goroutines();
    gs_set_max_threads(before);
}

static gs_key key;

static void *call_from_thread(void *arg)
{
    CHECK_EQ(gs_setspecific(key, calloc(1, 10)), 0);
    go(yield_once, NULL);
    CHECK_EQ(gs_sleep(US), 0);
    return arg;
}

static void plain_threads(void)
{
    CHECK_EQ(gs_key_create(&key, free), 0);
    go_join_thread(start_thread(call_from_thread, NULL));
    CHECK_EQ(gs_key_delete(key), 0);
}

static void *run_in_thread(void *arg)
{
    CHECK_EQ(gs_run(yield_once, NULL), 0);
    return arg;
}

static void *attach_thread(void *arg)
{
    CHECK_EQ(gs_attach(0), 0);
    gs_yield();
    CHECK_EQ(gs_detach(), 0);
    return arg;
}

static void borrowed_threads(void)
{
    go_join_thread(start_thread(run_in_thread, NULL));
    go_join_thread(start_thread(attach_thread, NULL));
}

static void worker_groups(void)
{
    gs_workers *w = gs_workers_create(2, 0);
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g[4];
    size_t i;
    CHECK(w != NULL);
    opts.flags = GS_SPAWN_PINNED;
    opts.workers = w;
    for (i = 0; i < LENGTH(g); i++)
        g[i] = go_opts(yield_once, NULL, &opts);
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
    while (gs_workers_free(w) == -EBUSY)
        CHECK_EQ(gs_sleep(100 * US), 0);
}

static void goroutines_with_stacks(void)
{
    static const size_t sizes[] = {0, 1, 100 << 10, 16 << 20};
    static const int priorities[] = {GS_PRIO_HIGH, GS_PRIO_NORMAL, GS_PRIO_LOW, GS_PRIO_IDLE};
    gs_g *g[LENGTH(sizes)];
    size_t i;
    for (i = 0; i < LENGTH(g); i++) {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        opts.stack_size = sizes[i];
        opts.name = "of any size";
        opts.priority = priorities[i];
        g[i] = go_opts(yield_once, NULL, &opts);
    }
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
}

static gs_waitgroup all;

static void be_done(void *arg)
{
    yield_once(arg);
    CHECK_EQ(gs_waitgroup_done(&all), 0);
}

/* Their descriptors are free at once. */
static void goroutines_without_references(void)
{
    static const uint32_t with[] = {0, GS_SPAWN_PINNED, GS_SPAWN_NOPREEMPT, GS_SPAWN_NOSIGNAL};
    int i, n = 40;
    CHECK_EQ(gs_waitgroup_add(&all, n), 0);
    for (i = 0; i < n; i++) {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        opts.flags = with[(size_t)i % LENGTH(with)];
        opts.node = i % 3 == 0 ? gs_numa_nodes() - 1 : -1;
        CHECK_EQ(gs_spawn_with(be_done, NULL, &opts, NULL), 0);
    }
    CHECK_EQ(gs_waitgroup_wait(&all, GS_FOREVER), 0);
}

static int to_begin;

static void begin(void *arg)
{
    (void)arg;
    ADD(to_begin, -1);
}

/* The spawner keeps its P, so other P's run them, and P's of other nodes. */
static void goroutines_for_other_nodes(void)
{
    int i, n = 1500, alone = gs_gomaxprocs(0) == 1;
    SET(to_begin, n);
    for (i = 0; i < n; i++)
        go(begin, NULL);
    while (GET(to_begin) > 0)
        if (alone)
            gs_yield();
}

static void timers_and_channels(void)
{
    gs_timer *t = gs_timer_start(MS, yield_once, NULL);
    gs_chan *ticks = gs_ticker_start(100 * US), *after = gs_after(50 * US), *ch = gs_chan_make(100, 50);
    char elem[100];
    CHECK(t && ticks && after && ch);
    CHECK_EQ(gs_chan_recv(ticks, NULL, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_recv(after, NULL, GS_FOREVER), 0);
    CHECK_EQ(gs_ticker_stop(ticks), 0);
    memset(elem, 1, sizeof elem);
    CHECK_EQ(gs_chan_send(ch, elem, GS_FOREVER), 0);
    CHECK_EQ(gs_timer_free(t), 0);
    free_chan(ticks);
    free_chan(after);
    free_chan(ch);
}

static void write_byte(void *arg)
{
    CHECK_EQ(gs_write((int)(intptr_t)arg, "x", 1, GS_FOREVER), 1);
}

static void read_from(int fd)
{
    char c;
    CHECK_EQ(gs_read(fd, &c, 1, GS_FOREVER), 1);
}

static void files(void)
{
    int fds[2], server, client, peer;
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    go(write_byte, (void *)(intptr_t)fds[1]);
    read_from(fds[0]);
    CHECK_EQ(gs_close(fds[0]), 0);
    CHECK_EQ(gs_close(fds[1]), 0);
    server = gs_tcp_listen("127.0.0.1", 0, 4);
    CHECK(server >= 0);
    CHECK_EQ(getsockname(server, (struct sockaddr *)&a, &n), 0);
    client = gs_tcp_connect("127.0.0.1", ntohs(a.sin_port), GS_FOREVER);
    peer = gs_accept(server, NULL, NULL, GS_FOREVER);
    CHECK(client >= 0 && peer >= 0);
    go(write_byte, (void *)(intptr_t)client);
    read_from(peer);
    CHECK_EQ(gs_close(client), 0);
    CHECK_EQ(gs_close(peer), 0);
    CHECK_EQ(gs_close(server), 0);
}

static void names(void)
{
    struct addrinfo *found = NULL;
    CHECK_EQ(gs_getaddrinfo("localhost", "80", NULL, &found, GS_FOREVER), 0);
    freeaddrinfo(found);
    /* Left to its thread. */
    if (gs_getaddrinfo("localhost", "81", NULL, &found, gs_after_us(20)) == 0)
        freeaddrinfo(found);
}

static void processors(void)
{
    int n = gs_gomaxprocs(0);
    gs_gomaxprocs(n + 3);
    go(yield_once, NULL);
    gs_yield();
    gs_gomaxprocs(1);
    gs_gomaxprocs(n);
}

static void children(void)
{
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(gs_run(yield_once, NULL) == 0 ? 0 : 1);
    CHECK_EQ(gs_waitpid(pid, &status, 0, GS_FOREVER), pid);
    CHECK_EQ(status, 0);
}

static void worlds(void)
{
    CHECK_EQ(gs_stop_the_world(), 0);
    CHECK_EQ(gs_start_the_world(), 0);
}

static void *nap_briefly(void *arg)
{
    nap(MS);
    return arg;
}

static void nap_unannounced(void *arg)
{
    nap(2 * MS);
    CHECK_EQ(gs_entersyscall(), 0);
    nap(MS);
    CHECK_EQ(gs_exitsyscall(), 0);
    gs_blocking(nap_briefly, arg);
}

static void calls(void)
{
    gs_g *g[4];
    size_t i;
    for (i = 0; i < LENGTH(g); i++)
        g[i] = go_ref(nap_unannounced, NULL);
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
}

static void gangs(void)
{
    gs_gang *gang = gs_gang_create();
    gs_g *g[2];
    size_t i;
    CHECK(gang != NULL);
    for (i = 0; i < LENGTH(g); i++)
        CHECK_EQ(gs_gang_spawn(gang, yield_once, NULL, NULL, &g[i]), 0);
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
    gs_gang_free(gang);
}

static void memory_of_nodes(void)
{
    void *p = gs_numa_alloc(1 << 20, GS_NUMA_STRIPE);
    CHECK(p != NULL);
    memset(p, 1, 1 << 20);
    gs_numa_free(p, 1 << 20);
}

static const struct {
    const char *name;
    void (*act)(void);
} kinds[] = {
    {"threads_of_locked_goroutines", threads_of_locked_goroutines},
    {"threads_for_disk_files", threads_for_disk_files},
    {"plain_threads", plain_threads},
    {"borrowed_threads", borrowed_threads},
    {"worker_groups", worker_groups},
    {"goroutines_with_stacks", goroutines_with_stacks},
    {"goroutines_without_references", goroutines_without_references},
    {"goroutines_for_other_nodes", goroutines_for_other_nodes},
    {"timers_and_channels", timers_and_channels},
    {"files", files},
    {"names", names},
    {"processors", processors},
    {"children", children},
    {"worlds", worlds},
    {"calls", calls},
    {"gangs", gangs},
    {"memory_of_nodes", memory_of_nodes},
};

/* Does a kind of thing again and again, and looks whether anything is left. */
static void check_kind(int kind)
{
    struct size before;
    int i;
    if (!has_part(kind))
        return;
    for (i = 0; i < sized(WARM_UP); i++)
        kinds[kind].act();
    before = look();
    for (i = 0; i < sized(MORE); i++)
        kinds[kind].act();
    check_flat(kinds[kind].name, before);
}

GO_TEST(nothing_is_left_of_what_has_ended)
{
    int kind;
    for (kind = 0; kind < (int)LENGTH(kinds); kind++)
        check_kind(kind);
}

static int64_t run_for;

/* Kinds in any order, for a long time. The first part of it is the warm-up. */
GO_TEST(nothing_is_left_of_a_mixture)
{
    uint64_t seed = random_seed();
    int64_t begin = gs_now(), warm = begin + run_for / 3, end = begin + run_for;
    struct size before = look();
    int is_warm = 0;
    while (gs_now() < end) {
        int kind = (int)(random_next(&seed) % LENGTH(kinds));
        if (has_part(kind))
            kinds[kind].act();
        if (!is_warm && gs_now() >= warm) {
            is_warm = 1;
            before = look();
        }
    }
    if (is_warm)
        check_flat("a mixture", before);
}

int main(int argc, char **argv)
{
    char mixture[] = "nothing_is_left_of_a_mixture";
#ifdef M_ARENA_MAX
    /* glibc's arena has 64 MiB of address space, and threads get up to eight for each processor. */
    CHECK(mallopt(M_ARENA_MAX, 1));
#endif
    if (asked_for_parts(argc, argv, LENGTH(kinds)))
        return 0;
    if (argc > 1 && isdigit((unsigned char)argv[1][0])) {
        run_for = atoi(argv[1]) * SEC;
        if (argc > 2)
            setenv("CHECK_SEED", argv[2], 1);
        argv[1] = mixture;
        argc = 2;
    }
    if (is_emulated())
        puts("skip part of all tests: the emulator's heap, with its records of pages and threads, is part of the memory, "
             "and without MADV_GUARD_INSTALL the guards of cached stacks are mappings");
    return check_main(argc, argv);
}
