/* What the workloads share: the table's entry, the report, and checks that end the program. */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <gosched.h>
#include <stdbool.h>
#include <stdint.h>

/* A workload runs on a goroutine, does its work n times (what one is, the table in main.c says), checks the result
 * and reports its figures. */
typedef void workload_fn(int64_t n);

workload_fn spawn_join, spawn_batch, yield2, yield1k, pingpong, chan_buf, mpmc, mutex, rwmutex, select4, skynet, ring, sieve,
    fib27, timers, memory, syscalls, echo, files, timer, preempt, wake, writers, idle, latency, gang;

/* A figure is named after its workload; a second one has a suffix: "timers.cpu". */
void report(const char *figure, double value, const char *unit);
void report_ns_each(const char *figure, int64_t start, int64_t n);
double ms_since(int64_t start);

/* Runs fn(arg) on a number of goroutines until each has counted down `done`, and reports the time for each of n. */
void report_all(const char *figure, int goroutines, gs_fn fn, void *arg, gs_waitgroup *done, int64_t n);

/* n spread over several goroutines, at least 1 for each. */
int64_t share(int64_t n, int64_t parts);

gs_chan *new_chan(size_t elem_size, size_t cap);
void *new_array(int64_t n, size_t size);

_Noreturn void fail(const char *file, int line, const char *what, const char *why);

/* Gives the call's result, or ends the program if that is an error. */
#define MUST(call) must((call), __FILE__, __LINE__, #call)
#define CHECK(condition) ((condition) ? (void)0 : fail(__FILE__, __LINE__, #condition, "does not hold"))

static inline int must(int result, const char *file, int line, const char *call)
{
    if (__builtin_expect(result < 0, 0))
        fail(file, line, call, gs_strerror(result));
    return result;
}

#endif
