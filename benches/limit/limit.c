/* limitbench: what the machine needs for the least that a workload can't do without. Same options and output as the
 * benchmarks of the peers; compare says which limit stands behind which workload. */
#define _GNU_SOURCE
#include "../late.h"
#include "switch.h"

#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "limitbench: %s:%d: %s does not hold%s%s\n", file, line, what, errno ? ": " : "",
            errno ? strerror(errno) : "");
    _Exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(__FILE__, __LINE__, #condition))

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static bool silent; /* during the warm-up */

void report(const char *figure, double value, const char *unit)
{
    if (!silent)
        printf("%s %.3f %s\n", figure, value, unit);
}

static pthread_t start_thread(void *(*f)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, f, arg) == 0);
    return thread;
}

static void wait_for_thread(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

/* The CPUs that the process may use, before anything is pinned. */
static cpu_set_t all_cpus;

/* Binds the calling thread to one of them, counted from 0; does nothing if there are fewer. */
static void pin(int index)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all_cpus) && index-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
            return;
        }
    }
}

static void unpin(void)
{
    CHECK(sched_setaffinity(0, sizeof all_cpus, &all_cpus) == 0);
}

/* switch: two contexts switch to each other. */

static void *here, *there;
static int64_t switches;

static void switch_back(void *arg)
{
    (void)arg;
    for (;;) {
        switches++;
        switch_to(&there, here);
    }
}

static void context_switch(int64_t n, int procs)
{
    size_t size = 64 * 1024;
    char *stack = malloc(size);

    (void)procs;
    CHECK(stack != NULL);
    switches = 0;
    there = switch_prepare(stack + size, switch_back, NULL);
    int64_t start = now();
    for (int64_t i = 0; i < n / 2; i++)
        switch_to(&here, there);
    report("switch", (double)(now() - start) / (double)(n / 2 * 2), "ns");
    CHECK(switches == n / 2);
    free(stack);
}

/* cas: one thread counts by compare-and-swap; then two on two CPUs, each with as many. */

static struct {
    _Alignas(128) _Atomic int64_t count;
    _Alignas(128) int64_t each;
    pthread_barrier_t start;
} cell;

static void add_by_cas(int64_t n)
{
    int64_t seen = atomic_load_explicit(&cell.count, memory_order_relaxed);
    for (int64_t i = 0; i < n; i++, seen++)
        while (!atomic_compare_exchange_weak(&cell.count, &seen, seen + 1))
            ;
}

static void *add_beside(void *arg)
{
    (void)arg;
    pin(1);
    pthread_barrier_wait(&cell.start);
    add_by_cas(cell.each);
    return NULL;
}

static void cas(int64_t n, int procs)
{
    (void)procs;
    cell.count = 0;
    int64_t start = now();
    add_by_cas(n);
    report("cas", (double)(now() - start) / (double)n, "ns");
    CHECK(cell.count == n);

    if (CPU_COUNT(&all_cpus) < 2)
        return;
    cell.count = 0;
    cell.each = n / 4 + 1;
    CHECK(pthread_barrier_init(&cell.start, NULL, 2) == 0);
    pthread_t other = start_thread(add_beside, NULL);
    pin(0);
    pthread_barrier_wait(&cell.start);
    start = now();
    add_by_cas(cell.each);
    wait_for_thread(other);
    report("cas.contended", (double)(now() - start) / (double)(2 * cell.each), "ns");
    unpin();
    CHECK(cell.count == 2 * cell.each);
}

/* fault: the first touch of anonymous memory, page by page. */
static void fault(int64_t n, int procs)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (size_t)n * page;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)procs;
    CHECK(memory != MAP_FAILED);
    madvise(memory, size, MADV_NOHUGEPAGE); /* fails where there are none */
    int64_t start = now();
    for (size_t at = 0; at < size; at += page)
        memory[at] = 1;
    report("fault", (double)(now() - start) / (double)n, "ns");
    CHECK(munmap(memory, size) == 0);
}

/* wake: one thread wakes another that waits on a futex; futex: the same across CPUs. */

static struct {
    _Atomic uint32_t rung; /* 1: there is something for the sleeper */
    _Atomic int64_t rung_at;
    int64_t count, period_ns;
    bool pinned;
} bell;

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

static void sleep_ns(int64_t ns)
{
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static void *ringer(void *arg)
{
    (void)arg;
    if (bell.pinned)
        pin(1);
    for (int64_t i = 0; i < bell.count; i++) {
        sleep_ns(bell.period_ns);
        atomic_store(&bell.rung_at, now());
        atomic_store(&bell.rung, 1);
        futex(&bell.rung, FUTEX_WAKE_PRIVATE, 1);
        while (atomic_load(&bell.rung) != 0)
            futex(&bell.rung, FUTEX_WAIT_PRIVATE, 1);
    }
    return NULL;
}

static void wake_by_futex(int64_t n, int64_t period_ns, bool pinned, const char *p50, const char *p99)
{
    int64_t *late = calloc((size_t)n, sizeof *late);

    CHECK(late != NULL);
    bell.count = n;
    bell.period_ns = period_ns;
    bell.pinned = pinned;
    pthread_t other = start_thread(ringer, NULL);
    if (pinned)
        pin(0);
    for (int64_t i = 0; i < n; i++) {
        while (atomic_load(&bell.rung) == 0)
            futex(&bell.rung, FUTEX_WAIT_PRIVATE, 0);
        late[i] = now() - atomic_load(&bell.rung_at);
        CHECK(late[i] >= 0);
        atomic_store(&bell.rung, 0);
        futex(&bell.rung, FUTEX_WAKE_PRIVATE, 1);
    }
    wait_for_thread(other);
    unpin();
    report_late(late, n, p50, p99, 1e3, "us");
    free(late);
}

static void wake(int64_t n, int procs)
{
    (void)procs;
    wake_by_futex(n, 500000, false, "wake.p50", "wake.p99");
}

static void futex_across(int64_t n, int procs)
{
    (void)procs;
    wake_by_futex(n, 500000, true, "futex.p50", "futex.p99");
}

/* timer, preempt: how late a thread wakes from nanosleep, alone or beside an endless loop on its CPU. */

static void lateness(int64_t n, int64_t ns, const char *p50, const char *p99, double unit_ns, const char *unit)
{
    int64_t *late = calloc((size_t)n, sizeof *late);

    CHECK(late != NULL);
    for (int64_t i = 0; i < n; i++) {
        int64_t due = now() + ns;
        sleep_ns(ns);
        late[i] = now() - due;
        CHECK(late[i] >= 0);
    }
    report_late(late, n, p50, p99, unit_ns, unit);
    free(late);
}

static void timer(int64_t n, int procs)
{
    (void)procs;
    lateness(n, 2000000, "timer.p50", "timer.p99", 1e3, "us");
}

static atomic_bool stop;

static void *endless(void *arg)
{
    volatile uint64_t *count = arg;

    pin(0);
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ++*count;
    return NULL;
}

static void preempt(int64_t n, int procs)
{
    uint64_t count = 0;

    (void)procs;
    atomic_store(&stop, false);
    pthread_t loop = start_thread(endless, &count);
    pin(0);
    lateness(n, 1000000, "preempt.p50", "preempt.p99", 1e6, "ms");
    atomic_store(&stop, true);
    wait_for_thread(loop);
    unpin();
    CHECK(count > 0);
}

/* latency: how late a thread runs after its event, beside nothing or beside an endless loop for each P: the cells of
 * benches/c/latency.c with threads in place of goroutines. What is left to the loops is a percentage of what they do
 * without events. */

enum { LATENCY_PERIOD_NS = 2000000 };

static struct {
    int64_t count;
    _Atomic int64_t *at; /* when each event happened */
    _Atomic uint32_t happened;
    int socket[2];
    sem_t sem;
} events;

static void nap(void)
{
    sleep_ns(LATENCY_PERIOD_NS);
}

static void *ring_all(void *arg)
{
    for (int64_t i = 0; i < events.count; i++) {
        nap();
        atomic_store(&events.at[i], now());
        atomic_fetch_add(&events.happened, 1);
        futex(&events.happened, FUTEX_WAKE_PRIVATE, 1);
    }
    return arg;
}

static void *write_all(void *arg)
{
    for (int64_t i = 0; i < events.count; i++) {
        nap();
        atomic_store(&events.at[i], now());
        CHECK(write(events.socket[1], "", 1) == 1);
    }
    return arg;
}

static void *post_all(void *arg)
{
    for (int64_t i = 0; i < events.count; i++) {
        nap();
        atomic_store(&events.at[i], now());
        CHECK(sem_post(&events.sem) == 0);
    }
    return arg;
}

static void wait_for_ring(int64_t i)
{
    while (atomic_load(&events.happened) == (uint32_t)i)
        futex(&events.happened, FUTEX_WAIT_PRIVATE, (uint32_t)i);
}

static void read_byte(int64_t i)
{
    char byte;
    (void)i;
    CHECK(read(events.socket[0], &byte, 1) == 1);
}

static void wait_for_post(int64_t i)
{
    (void)i;
    CHECK(sem_wait(&events.sem) == 0);
}

static const struct kind {
    const char *name;
    void *(*happen)(void *); /* on another thread; NULL: a timer */
    void (*wait)(int64_t i);
} kinds[] = {
    {"timer", NULL, NULL},
    {"channel", ring_all, wait_for_ring},
    {"socket", write_all, read_byte},
    {"semaphore", post_all, wait_for_post},
};

/* For the thread that waits for events: the kernel is to run it as soon as it wakes, as it is to run the library's
 * threads. Kernels before Linux 6.12 ignore the short turns. */
static void ask_for_speed(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0};

    CHECK(prctl(PR_SET_TIMERSLACK, 1) == 0);
    CHECK(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0);
    attributes.size = sizeof attributes;
    attributes.flags = 1; /* SCHED_FLAG_RESET_ON_FORK: the loops and sources are not to inherit it. */
    attributes.runtime = 100000;
    CHECK(syscall(SYS_sched_setattr, 0, &attributes, 0) == 0);
}

static void wait_for_events(const struct kind *kind, int64_t *late, int64_t n)
{
    events.count = n;
    atomic_store(&events.happened, 0);
    CHECK((events.at = calloc((size_t)n, sizeof *events.at)) != NULL);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, events.socket) == 0 && sem_init(&events.sem, 0, 0) == 0);
    pthread_t source = kind->happen != NULL ? start_thread(kind->happen, NULL) : pthread_self();
    for (int64_t i = 0; i < n; i++) {
        if (kind->happen == NULL) {
            atomic_store(&events.at[i], now() + LATENCY_PERIOD_NS);
            nap();
        } else {
            kind->wait(i);
        }
        late[i] = now() - atomic_load(&events.at[i]);
        CHECK(late[i] >= 0);
    }
    if (kind->happen != NULL)
        wait_for_thread(source);
    CHECK(close(events.socket[0]) == 0 && close(events.socket[1]) == 0 && sem_destroy(&events.sem) == 0);
    free(events.at);
}

static void *loop_anywhere(void *arg)
{
    atomic_uint_fast64_t *count = arg;
    uint64_t mine = 0;

    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        atomic_store_explicit(count, ++mine, memory_order_relaxed);
    return NULL;
}

static double rounds_of(atomic_uint_fast64_t *counts, int loops)
{
    double rounds = 0;
    for (int i = 0; i < loops; i++)
        rounds += (double)atomic_load_explicit(&counts[8 * i], memory_order_relaxed);
    return rounds;
}

/* Rounds of all loops in a second, beside n events of a kind (NULL: as long without any). */
static double rounds_a_second(atomic_uint_fast64_t *counts, int loops, const struct kind *kind, int64_t *late, int64_t n)
{
    int64_t began = now();
    double rounds = rounds_of(counts, loops);

    if (kind != NULL)
        wait_for_events(kind, late, n);
    else
        sleep_ns(n * LATENCY_PERIOD_NS);
    return (rounds_of(counts, loops) - rounds) * 1e9 / (double)(now() - began);
}

static void measure_latency(const char *background, int loops, const struct kind *kind, int64_t n)
{
    /* A cache line for each. */
    atomic_uint_fast64_t *counts = calloc(8 * (size_t)loops + 1, sizeof *counts);
    pthread_t *threads = calloc((size_t)loops + 1, sizeof *threads);
    int64_t *late = calloc((size_t)n, sizeof *late);
    double alone = 0, beside;
    char p50[64], p99[64], other[64];

    CHECK(counts != NULL && threads != NULL && late != NULL);
    atomic_store(&stop, false);
    for (int i = 0; i < loops; i++)
        threads[i] = start_thread(loop_anywhere, &counts[8 * i]);
    if (loops > 0)
        alone = rounds_a_second(counts, loops, NULL, NULL, n / 2 + 1);
    beside = rounds_a_second(counts, loops, kind, late, n);
    if (loops > 0)
        alone = (alone + rounds_a_second(counts, loops, NULL, NULL, n / 2 + 1)) / 2;
    atomic_store(&stop, true);
    for (int i = 0; i < loops; i++)
        wait_for_thread(threads[i]);

    snprintf(p50, sizeof p50, "latency.%s_%s_p50", background, kind->name);
    snprintf(p99, sizeof p99, "latency.%s_%s_p99", background, kind->name);
    report_late(late, n, p50, p99, 1e3, "us");
    snprintf(other, sizeof other, "latency.%s_%s_max", background, kind->name);
    report(other, (double)late[n - 1] / 1e3, "us");
    if (loops > 0) {
        snprintf(other, sizeof other, "latency.%s_%s_share", background, kind->name);
        report(other, 100 * beside / alone, "%");
    }
    free(counts);
    free(threads);
    free(late);
}

static void latency(int64_t n, int procs)
{
    ask_for_speed();
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        measure_latency("nothing", 0, &kinds[i], n);
        measure_latency("loops", procs, &kinds[i], n);
    }
}

/* echo: a thread and an epoll instance for each P; the first one also accepts and deals the connections out. */

static struct {
    int listener, threads;
    int *polls;
} server;

static void *serve(void *arg)
{
    struct epoll_event events[256];
    int poll = *(int *)arg, next = 0;
    char block[4096];

    for (;;) {
        int n = epoll_wait(poll, events, 256, -1);
        CHECK(n >= 0 || errno == EINTR);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == server.listener) {
                struct epoll_event event = {.events = EPOLLIN};
                int one = 1;
                event.data.fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                CHECK(event.data.fd >= 0);
                CHECK(setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
                CHECK(epoll_ctl(server.polls[next++ % server.threads], EPOLL_CTL_ADD, event.data.fd, &event) == 0);
                continue;
            }
            ssize_t got = recv(fd, block, sizeof block, 0);
            if (got == 0) {
                /* close alone isn't enough while a child that popen has forked still has a copy. */
                CHECK(epoll_ctl(poll, EPOLL_CTL_DEL, fd, NULL) == 0);
                CHECK(close(fd) == 0);
            } else {
                CHECK(got > 0 && send(fd, block, (size_t)got, MSG_NOSIGNAL) == got);
            }
        }
    }
    return NULL;
}

/* Runs echoload, which is beside this program, and reports what it measures. */
static void load(int port, int connection_count, int64_t n)
{
    static const char *const names[][2] = {{"rate", "req/s"}, {"p99", "us"}, {"cpu", "us"}, {"switches", "switches"}};
    char command[4096] = "", *name, figure[32];
    double value;

    /* exec: its parent is this program, not the shell. */
    memcpy(command, "exec '", 6);
    CHECK(readlink("/proc/self/exe", command + 6, 3000) > 0);
    name = strrchr(command, '/') + 1;
    sprintf(name, "echoload' %d %d %lld", port, connection_count, (long long)n);
    FILE *answer = popen(command, "re");
    CHECK(answer != NULL);
    for (int i = 0; i < 4; i++) {
        CHECK(fscanf(answer, "%lf", &value) == 1);
        snprintf(figure, sizeof figure, "echo.%s_%d", names[i][0], connection_count);
        report(figure, value, names[i][1]);
    }
    CHECK(pclose(answer) == 0);
}

static void echo(int64_t n, int procs)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;

    if (server.threads == 0) {
        struct rlimit limit;
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = limit.rlim_max;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(bind(server.listener, (struct sockaddr *)&address, size) == 0 && listen(server.listener, 4096) == 0);
        server.polls = calloc((size_t)procs, sizeof *server.polls);
        CHECK(server.polls != NULL);
        for (int i = 0; i < procs; i++)
            CHECK((server.polls[i] = epoll_create1(EPOLL_CLOEXEC)) >= 0);
        server.threads = procs;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = server.listener};
        CHECK(epoll_ctl(server.polls[0], EPOLL_CTL_ADD, server.listener, &event) == 0);
        for (int i = 0; i < procs; i++)
            pthread_detach(start_thread(serve, &server.polls[i]));
    }
    CHECK(getsockname(server.listener, (struct sockaddr *)&address, &size) == 0);
    int port = ntohs(address.sin_port);
    load(port, 1, n);
    load(port, 100, n);
    load(port, 1000, n);
}

static const struct workload {
    const char *name;
    void (*run)(int64_t n, int procs);
    int64_t count; /* default for -n */
    const char *unit_of_count;
} workloads[] = {
    {"switch", context_switch, 50000000, "switches"},
    {"cas", cas, 50000000, "compare-and-swaps"},
    {"fault", fault, 100000, "pages"},
    {"futex", futex_across, 2000, "wakes"},
    {"echo", echo, 100000, "requests for each number of connections"},
    {"timer", timer, 1000, "sleeps"},
    {"preempt", preempt, 200, "sleeps"},
    {"wake", wake, 2000, "wakes"},
    {"latency", latency, 200, "events of each kind"},
};
enum { WORKLOADS = sizeof workloads / sizeof workloads[0] };

static void usage(FILE *out)
{
    fputs("Usage: limitbench [-p PROCS] [-n COUNT] WORKLOAD\n"
          "       limitbench list\n"
          "\n"
          "Measures a limit of the machine and prints a line for each figure: name value unit.\n"
          "A tenth of COUNT is run first as a warm-up.\n"
          "\n"
          "  -p PROCS  threads of the echo server, loops of latency (default: 1); the others use as many as they need\n"
          "  -n COUNT  amount of work\n"
          "\n"
          "Workloads and what COUNT is by default:\n",
          out);
    for (int i = 0; i < WORKLOADS; i++)
        fprintf(out, "  %-12s %8lld %s\n", workloads[i].name, (long long)workloads[i].count, workloads[i].unit_of_count);
}

static _Noreturn void misuse(const char *what)
{
    fprintf(stderr, "limitbench: %s; try limitbench -h\n", what);
    exit(2);
}

static int64_t number(const char *text, int64_t most)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < 1 || n > most)
        misuse("a number is out of range");
    return n;
}

int main(int argc, char **argv)
{
    int64_t n = 0;
    int procs = 1;

    for (int option; (option = getopt(argc, argv, "p:n:h")) != -1;) {
        switch (option) {
        case 'p':
            procs = (int)number(optarg, 1024);
            break;
        case 'n':
            n = number(optarg, INT64_C(1) << 40);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            return 2;
        }
    }
    if (optind + 1 != argc)
        misuse("one workload is needed");
    errno = 0;
    CHECK(sched_getaffinity(0, sizeof all_cpus, &all_cpus) == 0);
    for (int i = 0; i < WORKLOADS; i++) {
        if (strcmp(argv[optind], "list") == 0) {
            printf("%s %lld\n", workloads[i].name, (long long)workloads[i].count);
        } else if (strcmp(argv[optind], workloads[i].name) == 0) {
            n = n > 0 ? n : workloads[i].count;
            silent = true;
            workloads[i].run(n > 20 ? n / 10 : 2, procs);
            silent = false;
            workloads[i].run(n, procs);
            fflush(stdout);
            _Exit(0); /* the server's threads still run */
        }
    }
    if (strcmp(argv[optind], "list") == 0)
        return 0;
    misuse("no such workload");
}
