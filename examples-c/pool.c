/*
 * pool: a fixed number of workers share a queue of jobs.
 *
 * main sends ranges of numbers into a channel, each worker finds the number with the longest
 * Collatz sequence in a range and sends it back (half n if it is even, else take 3n+1, until 1).
 * Closing the job channel tells the workers that no more come; when all have left, a goroutine
 * closes the result channel, which ends main's loop.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/pool.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o pool
 *   ./pool [WORKERS]     two for each P, if not said otherwise
 *
 * It prints:
 *
 *   100 jobs done
 *   the longest Collatz sequence below 1000000 starts at 837799 and has 525 terms
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gosched.h"

enum { LIMIT = 1000 * 1000, JOBS = 100, RANGE = LIMIT / JOBS };

typedef struct job { uint64_t from, to; } job;          /* the numbers from <= n < to */
typedef struct result { uint64_t start, terms; } result;

static gs_chan *jobs, *results; /* of job, of result: both go through the channel by value */
static gs_waitgroup working;
static long workers;

static void must(int r, const char *what)
{
    if (r < 0) {
        fprintf(stderr, "pool: %s: %s\n", what, gs_strerror(r));
        exit(1);
    }
}

static uint64_t collatz_terms(uint64_t n)
{
    uint64_t terms = 1;
    for (; n != 1; terms++)
        n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    return terms;
}

/* The longer sequence wins; of two equally long sequences the lower start. */
static result better(result a, result b)
{
    return b.terms > a.terms || (b.terms == a.terms && b.start < a.start) ? b : a;
}

static void work(void *arg)
{
    (void)arg;
    job j;
    while (gs_chan_recv(jobs, &j, GS_FOREVER) == 0) { /* -EPIPE: closed and drained */
        result best = {0, 0};
        for (uint64_t n = j.from; n < j.to; n++)
            best = better(best, (result){n, collatz_terms(n)});
        must(gs_chan_send(results, &best, GS_FOREVER), "send a result");
    }
    must(gs_waitgroup_done(&working), "done");
}

static void send_jobs(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < JOBS; i++) {
        job j = {i * RANGE, (i + 1) * RANGE};
        if (j.from == 0)
            j.from = 1;
        must(gs_chan_send(jobs, &j, GS_FOREVER), "send a job");
    }
    must(gs_chan_close(jobs), "close");
}

static void close_results(void *arg)
{
    (void)arg;
    must(gs_waitgroup_wait(&working, GS_FOREVER), "wait");
    must(gs_chan_close(results), "close");
}

static void go_main(void *arg)
{
    (void)arg;
    if (workers == 0)
        workers = 2 * gs_gomaxprocs(0);
    jobs = gs_chan_make(sizeof(job), 10);
    results = gs_chan_make(sizeof(result), 10);
    if (!jobs || !results) {
        fprintf(stderr, "pool: out of memory\n");
        exit(1);
    }
    must(gs_waitgroup_add(&working, workers), "add"); /* before they start: done() can't be first */
    for (long i = 0; i < workers; i++)
        must(gs_spawn(work, NULL), "spawn");
    must(gs_spawn(send_jobs, NULL), "spawn");
    must(gs_spawn(close_results, NULL), "spawn");

    result best = {0, 0}, r;
    int finished = 0;
    for (; gs_chan_recv(results, &r, GS_FOREVER) == 0; finished++)
        best = better(best, r);
    must(gs_chan_free(jobs), "free");
    must(gs_chan_free(results), "free");
    printf("%d jobs done\n", finished);
    printf("the longest Collatz sequence below %d starts at %llu and has %llu terms\n", LIMIT,
           (unsigned long long)best.start, (unsigned long long)best.terms);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        char *end;
        workers = strtol(argv[1], &end, 10);
        if (argc > 2 || end == argv[1] || *end != '\0' || workers < 1 || workers > 100 * 1000) {
            fprintf(stderr, "usage: pool [WORKERS]     WORKERS: 1 to 100000\n");
            return 2;
        }
    }
    must(gs_run(go_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown");
    return 0;
}
