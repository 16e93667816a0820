/* gosbench: libgosched's side of the benchmarks. benches/go is the other one: same workloads, options and output. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct workload {
    const char *name;
    workload_fn *run;
    int64_t count; /* default for -n */
    const char *unit_of_count;
    bool cold; /* measured without a warm-up */
};

static const struct workload workloads[] = {
    {"spawn_join", spawn_join, 1000000, "goroutines", false},
    {"spawn_batch", spawn_batch, 5000000, "goroutines", false},
    {"yield2", yield2, 10000000, "yields", false},
    {"yield1k", yield1k, 10000000, "yields", false},
    {"pingpong", pingpong, 3000000, "round trips", false},
    {"chan_buf", chan_buf, 20000000, "items", false},
    {"mpmc", mpmc, 20000000, "items", false},
    {"mutex", mutex, 40000000, "locks", false},
    {"rwmutex", rwmutex, 20000000, "locks of each kind", false},
    {"select", select4, 3000000, "items", false},
    {"skynet", skynet, 2, "trees of 1,000,000 leaves", false},
    {"ring", ring, 5000000, "hops", false},
    {"sieve", sieve, 2, "sieves to the 2000th prime", false},
    {"fib", fib27, 5, "times fib(27)", false},
    {"timers", timers, 100000, "goroutines", false},
    {"memory", memory, 1000000, "goroutines", true},
    {"syscalls", syscalls, 500, "sleeps for each of 4 goroutines", false},
    {"echo", echo, 100000, "requests for each number of connections", false},
    {"files", files, 400000, "reads and writes of each kind", false},
    {"timer", timer, 1000, "sleeps", false},
    {"preempt", preempt, 200, "sleeps", false},
    {"wake", wake, 2000, "wakes", false},
    {"writers", writers, 500, "bytes from each kind of writer", false},
    {"idle", idle, 3000, "ms", false},
    {"latency", latency, 200, "events for each kind of event and background", false},
    {"gang", gang, 3000, "ms for each part", true},
};
enum { WORKLOADS = sizeof workloads / sizeof workloads[0] };

enum { FIGURES = 256 };

static struct {
    const char *unit;
    char *name;
    double value;
} figures[FIGURES];
static size_t figure_count;

void report(const char *figure, double value, const char *unit)
{
    CHECK(figure_count < sizeof figures / sizeof figures[0]);
    figures[figure_count].name = strdup(figure);
    CHECK(figures[figure_count].name != NULL);
    figures[figure_count].value = value;
    figures[figure_count].unit = unit;
    figure_count++;
}

void report_ns_each(const char *figure, int64_t start, int64_t n)
{
    report(figure, (double)(gs_now() - start) / (double)n, "ns");
}

void report_all(const char *figure, int goroutines, gs_fn fn, void *arg, gs_waitgroup *done, int64_t n)
{
    int64_t start = gs_now();
    MUST(gs_waitgroup_add(done, goroutines));
    for (int i = 0; i < goroutines; i++)
        MUST(gs_spawn(fn, arg));
    MUST(gs_waitgroup_wait(done, GS_FOREVER));
    report_ns_each(figure, start, n);
}

double ms_since(int64_t start)
{
    return (double)(gs_now() - start) / 1e6;
}

int64_t share(int64_t n, int64_t parts)
{
    return n > parts ? n / parts : 1;
}

gs_chan *new_chan(size_t elem_size, size_t cap)
{
    gs_chan *ch = gs_chan_make(elem_size, cap);
    CHECK(ch != NULL);
    return ch;
}

void *new_array(int64_t n, size_t size)
{
    void *array = calloc((size_t)n, size);
    CHECK(array != NULL);
    return array;
}

void fail(const char *file, int line, const char *what, const char *why)
{
    fprintf(stderr, "gosbench: %s:%d: %s: %s\n", file, line, what, why);
    _Exit(1);
}

struct job {
    const struct workload *workload;
    int64_t n;
};

static void run(void *arg)
{
    const struct job *job = arg;

    if (!job->workload->cold) {
        job->workload->run(share(job->n, 10));
        figure_count = 0;
    }
    job->workload->run(job->n);
}

static void usage(FILE *out)
{
    fputs("Usage: gosbench [-p PROCS] [-n COUNT] WORKLOAD\n"
          "       gosbench list\n"
          "\n"
          "Runs a workload on libgosched and prints a line for each figure: name value unit.\n"
          "A tenth of COUNT is run first as a warm-up, except for memory.\n"
          "\n"
          "  -p PROCS  number of P's (default: the library's, one for each CPU)\n"
          "  -n COUNT  amount of work\n"
          "\n"
          "Workloads and what COUNT is by default:\n",
          out);
    for (int i = 0; i < WORKLOADS; i++)
        fprintf(out, "  %-12s %8lld %s\n", workloads[i].name, (long long)workloads[i].count,
                workloads[i].unit_of_count);
}

static _Noreturn void misuse(const char *message, const char *what)
{
    fprintf(stderr, "gosbench: %s%s; try gosbench -h\n", message, what);
    exit(2);
}

static int64_t positive(const char *text, int64_t max)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > max)
        misuse("not a number in range: ", text);
    return value;
}

static const struct workload *find(const char *name)
{
    for (int i = 0; i < WORKLOADS; i++)
        if (strcmp(workloads[i].name, name) == 0)
            return &workloads[i];
    misuse("no such workload: ", name);
}

int main(int argc, char **argv)
{
    gs_config config = {.size = sizeof config};
    struct job job = {0};
    int option;

    while ((option = getopt(argc, argv, "hp:n:")) != -1) {
        switch (option) {
        case 'p':
            config.gomaxprocs = (uint32_t)positive(optarg, 1024);
            break;
        case 'n':
            job.n = positive(optarg, INT64_C(1) << 40);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (optind + 1 != argc)
        misuse("one workload is needed", "");
    if (strcmp(argv[optind], "list") == 0) {
        for (int i = 0; i < WORKLOADS; i++)
            printf("%s %lld\n", workloads[i].name, (long long)workloads[i].count);
        return 0;
    }
    job.workload = find(argv[optind]);
    if (job.n == 0)
        job.n = job.workload->count;

    MUST(gs_init(&config));
    MUST(gs_run(run, &job));
    MUST(gs_shutdown(GS_FOREVER));
    for (size_t i = 0; i < figure_count; i++)
        printf("%s %.3f %s\n", figures[i].name, figures[i].value, figures[i].unit);
    return 0;
}
