/* What tells users how the scheduler does: gs_stats_write, and the figures of gs_stats that it prints. */
#include "check.h"

#include <fcntl.h>

enum { ROOM = 1 << 18 };

/* Reads a file to its end, on a plain thread. */
struct reader {
    int fd;
    char *text;
    size_t length;
};

static void *read_to_end(void *arg)
{
    struct reader *r = arg;
    ssize_t n;
    while ((n = read(r->fd, r->text + r->length, ROOM - 1 - r->length)) > 0)
        r->length += (size_t)n;
    r->text[r->length] = '\0';
    return NULL;
}

/* The text of gs_stats_write, which the caller frees. */
static char *metrics(void)
{
    int ends[2];
    struct reader r = {.text = malloc(ROOM)};
    CHECK(r.text && pipe(ends) == 0);
    r.fd = ends[0];
    pthread_t thread = start_thread(read_to_end, &r);
    CHECK_EQ(gs_stats_write(ends[1]), 0);
    close(ends[1]);
    go_join_thread(thread);
    close(ends[0]);
    CHECK_GE(r.length, 6);
    CHECK(strcmp(r.text + r.length - 6, "# EOF\n") == 0);
    return r.text;
}

/* The sum of the samples whose lines begin with this name, whatever their labels. */
static double sum_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    double sum = 0;
    int found = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, length) != 0 || (line[length] != ' ' && line[length] != '{'))
            continue;
        const char *value = line[length] == ' ' ? line + length : strchr(line, '}') + 1;
        sum += strtod(value, NULL);
        found++;
    }
    if (!found)
        failed(__FILE__, __LINE__, "a metric is missing", name);
    return sum;
}

static gs_stats stats(void)
{
    gs_stats s = {.size = sizeof s};
    CHECK_EQ(gs_stats_read(&s), 0);
    return s;
}

static uint64_t sum(const uint64_t *classes)
{
    uint64_t all = 0;
    for (int i = 0; i < GS_RUN_WAITS; i++)
        all += classes[i];
    return all;
}

/* A metric is between two readings of its figure. */
static void check_between(const char *text, const char *name, uint64_t before, uint64_t after)
{
    double value = sum_of(text, name);
    if (value < (double)before || value > (double)after) {
        char values[160];
        snprintf(values, sizeof values, "%s: got %f, want %llu to %llu", name, value, (unsigned long long)before,
                 (unsigned long long)after);
        failed(__FILE__, __LINE__, "a metric is not its figure", values);
    }
}

TEST(without_a_runtime_the_metrics_are_0)
{
    gs_stats s = stats();
    CHECK_EQ(s.procs, 0);
    CHECK_EQ(gs_stats_write(-1), -EBADF);
    char *text = metrics();
    CHECK_EQ(sum_of(text, "go_goroutines"), 0);
    CHECK_EQ(sum_of(text, "go_sched_latencies_seconds_count"), 0);
    CHECK(strstr(text, "gosched_") == NULL);
    free(text);
}

static void wait_for_value(void *ch)
{
    CHECK_EQ(recv_int(ch), 1);
}

static void end_at_once(void *arg)
{
    (void)arg;
}

GO_TEST(the_metrics_are_the_statistics)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *waiting[10];
    for (size_t i = 0; i < LENGTH(waiting); i++)
        waiting[i] = go_ref(wait_for_value, ch);
    for (int i = 0; i < 1000; i++)
        go(end_at_once, NULL);
    for (size_t i = 0; i < LENGTH(waiting); i++)
        until_parked(waiting[i]);
    WAIT_UNTIL(gs_num_goroutines() == 1 + LENGTH(waiting));

    gs_stats a = stats();
    char *text = metrics();
    gs_stats b = stats();
    check_between(text, "go_goroutines", a.goroutines, b.goroutines);
    check_between(text, "go_sched_goroutines_goroutines", a.goroutines, b.goroutines);
    check_between(text, "go_sched_goroutines_created_goroutines_total", a.created, b.created);
    check_between(text, "go_sched_gomaxprocs_threads", a.procs, b.procs);
    check_between(text, "go_sched_threads_total_threads", a.threads, b.threads);
    check_between(text, "go_threads", a.threads, b.threads);
    check_between(text, "gosched_switches_total", a.switches, b.switches);
    check_between(text, "gosched_goroutines_ended_total", a.ended, b.ended);
    check_between(text, "gosched_procs", a.procs, b.procs);
    check_between(text, "gosched_handoffs_total", a.handoffs, b.handoffs);
    check_between(text, "gosched_loans_total", a.loans, b.loans);
    check_between(text, "gosched_stack_reserved_bytes", a.stack_bytes, b.stack_bytes);
    CHECK_GE(a.stack_bytes, LENGTH(waiting) * 1024);
    double calls = sum_of(text, "gosched_calls_total") + sum_of(text, "gosched_calls_without_p_total");
    CHECK_GE(calls, a.calls);
    CHECK_LE(calls, b.calls);
    check_between(text, "go_sched_latencies_seconds_count", sum(a.run_waits), sum(b.run_waits));
    double waited = sum_of(text, "go_sched_latencies_seconds_sum");
    CHECK(waited > (double)a.run_wait_ns / 1e9 - 1e-9 && waited < (double)b.run_wait_ns / 1e9 + 1e-9);
    /* The waiting goroutines wait, and this one ran or was in its call. */
    CHECK_EQ(sum_of(text, "go_sched_goroutines_waiting_goroutines"), LENGTH(waiting));
    free(text);

    for (size_t i = 0; i < LENGTH(waiting); i++)
        send_int(ch, 1);
    for (size_t i = 0; i < LENGTH(waiting); i++)
        join(waiting[i]);
    free_chan(ch);
}

GO_TEST(a_histogram_is_cumulative)
{
    char *text = metrics();
    double last = 0, bound = 0;
    int buckets = 0;
    static const char name[] = "\ngo_sched_latencies_seconds_bucket{le=\"";
    for (const char *p = text; (p = strstr(p, name)) != NULL; buckets++) {
        p += sizeof name - 1;
        char *end;
        double le = strtod(p, &end), n = strtod(strchr(p, '}') + 1, NULL);
        CHECK(le > bound && n >= last);
        bound = le;
        last = n;
    }
    CHECK_EQ(buckets, GS_RUN_WAITS);
    CHECK_EQ(last, sum_of(text, "go_sched_latencies_seconds_count"));
    free(text);
}

static int in_call, leave_call;

static void *stay(void *arg)
{
    (void)arg;
    SET(in_call, 1);
    NAP_UNTIL(GET(leave_call));
    return NULL;
}

static void call(void *arg)
{
    (void)arg;
    (void)gs_blocking(stay, NULL);
}

GO_TEST(a_goroutine_in_a_call_is_counted_there)
{
    SET(in_call, 0);
    SET(leave_call, 0);
    gs_stats before = stats();
    gs_g *g = go_ref(call, NULL);
    WAIT_UNTIL(GET(in_call));
    gs_stats s = stats();
    CHECK_EQ(s.in_calls, 1);
    CHECK_EQ(s.running, 1);
    CHECK_EQ(s.waiting, 0);
    CHECK_GE(s.calls, before.calls + 1);
    SET(leave_call, 1);
    join(g);
}

GO_TEST(stops_of_the_world_are_counted)
{
    gs_stats before = stats();
    CHECK_EQ(gs_stop_the_world(), 0);
    nap(2 * MS);
    CHECK_EQ(gs_start_the_world(), 0);
    gs_stats after = stats();
    CHECK_EQ(sum(after.stops), sum(before.stops) + 1);
    CHECK_EQ(sum(after.pauses), sum(before.pauses) + 1);
    CHECK_GE(after.pause_ns, before.pause_ns + 2 * MS);
    CHECK_GE(after.pause_ns, after.stop_ns);
}

static gs_mutex mutex;
static gs_rwmutex rwmutex;

static void lock_mutex(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
}

static void lock_to_read(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_rwmutex_rlock(&rwmutex, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_runlock(&rwmutex), 0);
}

static void lock_to_write(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_rwmutex_lock(&rwmutex, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_unlock(&rwmutex), 0);
}

GO_TEST(waits_for_locks_are_counted)
{
    static const gs_fn lockers[] = {lock_mutex, lock_to_read, lock_to_write};
    for (size_t i = 0; i < LENGTH(lockers); i++) {
        gs_stats before = stats();
        CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
        CHECK_EQ(gs_rwmutex_lock(&rwmutex, GS_FOREVER), 0);
        gs_g *g = go_ref(lockers[i], NULL);
        until_parked(g);
        CHECK_EQ(gs_sleep(30 * MS), 0);
        CHECK_EQ(gs_rwmutex_unlock(&rwmutex), 0);
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
        join(g);
        CHECK_GE(stats().lock_wait_ns, before.lock_wait_ns + 1);
    }
}

GO_TEST(a_pipe_without_a_reader_is_an_error)
{
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    close(ends[0]);
    CHECK_EQ(gs_stats_write(ends[1]), -EPIPE);
    close(ends[1]);
    CHECK_EQ(gs_stats_write(-1), -EBADF);
}

static void write_metrics(void *fd)
{
    CHECK_EQ(gs_stats_write((int)(intptr_t)fd), 0);
    close((int)(intptr_t)fd);
}

/* With one P too: the writer's pipe is full until another goroutine reads it. */
GO_TEST(a_goroutine_reads_what_another_writes)
{
    int ends[2];
    char text[512];
    size_t all = 0;
    ssize_t n;
    CHECK_EQ(pipe(ends), 0);
    CHECK_GE(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    go(write_metrics, (void *)(intptr_t)ends[1]);
    while ((n = gs_read(ends[0], text, sizeof text, GS_FOREVER)) > 0)
        all += (size_t)n;
    CHECK_EQ(n, 0);
    CHECK_GE(all, 8192);
    close(ends[0]);
}

static void *on_a_thread(void *arg)
{
    *(char **)arg = metrics();
    return NULL;
}

GO_TEST(a_plain_thread_writes_them_too)
{
    char *text = NULL;
    go_join_thread(start_thread(on_a_thread, &text));
    CHECK_GE(sum_of(text, "go_goroutines"), 1);
    free(text);
}

static int done;

static void count_and_check(void *arg)
{
    char *last = metrics();
    static const char *const counters[] = {"go_sched_goroutines_created_goroutines_total", "gosched_switches_total",
                                           "gosched_calls_total", "gosched_steals_total",
                                           "go_sched_latencies_seconds_count", "go_sync_mutex_wait_total_seconds_total"};
    (void)arg;
    while (!GET(done)) {
        char *now = metrics();
        for (size_t i = 0; i < LENGTH(counters); i++)
            CHECK(sum_of(now, counters[i]) >= sum_of(last, counters[i]));
        free(last);
        last = now;
    }
    free(last);
}

static void work(void *arg)
{
    for (int i = 0; i < 200; i++) {
        lock_mutex(arg);
        go(end_at_once, NULL);
        gs_yield();
        CHECK_EQ(gs_sleep(US), 0);
    }
}

GO_TEST(counters_only_grow)
{
    gs_g *workers[8];
    SET(done, 0);
    gs_g *checker = go_ref(count_and_check, NULL);
    for (size_t i = 0; i < LENGTH(workers); i++)
        workers[i] = go_ref(work, NULL);
    for (size_t i = 0; i < LENGTH(workers); i++)
        join(workers[i]);
    SET(done, 1);
    join(checker);
}
