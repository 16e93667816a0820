/*
 * Ten mistakes, and what the library says about each: docs/mistakes.md.
 *
 *   mistakes NAME    makes one
 */
#define _POSIX_C_SOURCE 200809L
#include <gosched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Says what a call has returned, and why. */
static void told(const char *call, int r)
{
    printf("%s: %d: %s\n", call, r, gs_strerror(r));
}

static gs_g *go(gs_fn f, void *arg)
{
    gs_g *g = NULL;
    if (gs_spawn_with(f, arg, NULL, &g) != 0)
        abort();
    return g;
}

/* Gives it time to wait. */
static void let_it_wait(void)
{
    gs_sleep(20 * 1000 * 1000);
}

/* ---- never_closed ---- */

static void print_all(void *lines)
{
    const char *line;
    while (gs_chan_recv(lines, &line, GS_FOREVER) == 0)
        puts(line);
}

static void never_closed(void *arg)
{
    const char *line = "the only line";
    gs_chan *lines = gs_chan_make(sizeof line, 0);
    gs_g *printer = go(print_all, lines);
    (void)arg;
    gs_chan_send(lines, &line, GS_FOREVER);
    gs_join(printer, GS_FOREVER); /* which waits for the next line */
}

/* ---- deep_recursion ---- */

static int depth_of(int levels)
{
    char path[8192];
    int below = 0;
    snprintf(path, sizeof path, "level %d", levels);
    if (levels > 0)
        below = depth_of(levels - 1);
    return below + (path[0] == 'l');
}

static void deep_recursion(void *arg)
{
    (void)arg;
    printf("%d levels\n", depth_of(100)); /* 100 times 8 KiB */
}

/* ---- many_block ---- */

static void fetch(void *pages)
{
    nanosleep(&(struct timespec){0, 300 * 1000 * 1000}, NULL); /* as a client of a slow server would */
    gs_waitgroup_done(pages);
}

static void many_block(void *arg)
{
    static gs_waitgroup pages;
    (void)arg;
    gs_set_max_threads(4); /* 10,000 by default */
    gs_waitgroup_add(&pages, 8);
    for (int i = 0; i < 8; i++)
        gs_spawn(fetch, &pages);
    gs_waitgroup_wait(&pages, GS_FOREVER);
}

/* ---- length_of_time ---- */

static void length_of_time(void *arg)
{
    gs_chan *answers = gs_chan_make(sizeof(int), 0);
    int answer;
    (void)arg;
    told("gs_chan_recv", gs_chan_recv(answers, &answer, 2000000000)); /* "two seconds" */
    gs_chan_free(answers);
}

/* ---- unlocked_twice ---- */

static int add(gs_mutex *m, int *sum, int n)
{
    gs_mutex_lock(m, GS_FOREVER);
    if (n < 0)
        gs_mutex_unlock(m); /* and goes on, instead of returning */
    else
        *sum += n;
    return gs_mutex_unlock(m);
}

static void unlocked_twice(void *arg)
{
    static gs_mutex m;
    int sum = 0;
    (void)arg;
    told("gs_mutex_unlock", add(&m, &sum, -1));
}

/* ---- closed_twice ---- */

static void produce(void *results)
{
    gs_chan_close(results); /* "I have no more": but the other producer may have */
}

static void closed_twice(void *arg)
{
    gs_chan *results = gs_chan_make(sizeof(int), 4);
    gs_g *one = go(produce, results);
    int result = 1;
    (void)arg;
    gs_join(one, GS_FOREVER);
    told("gs_chan_send", gs_chan_send(results, &result, GS_FOREVER));
    told("gs_chan_close", gs_chan_close(results));
    gs_release(one);
    gs_chan_free(results);
}

/* ---- freed_in_use ---- */

static void freed_in_use(void *arg)
{
    gs_chan *lines = gs_chan_make(sizeof(const char *), 0);
    gs_g *printer = go(print_all, lines);
    (void)arg;
    let_it_wait();
    told("gs_chan_free", gs_chan_free(lines));
    gs_chan_close(lines); /* the printer ends */
    gs_join(printer, GS_FOREVER);
    gs_release(printer);
    told("gs_chan_free", gs_chan_free(lines));
}

/* ---- forgotten ---- */

static void ask(void *answers)
{
    int answer = 42;
    gs_chan_send(answers, &answer, GS_FOREVER);
}

static void forgotten(void *arg)
{
    gs_chan *answers = gs_chan_make(sizeof(int), 0);
    int answer = 0;
    (void)arg;
    for (int i = 0; i < 3; i++)
        gs_spawn(ask, answers);
    gs_chan_recv(answers, &answer, GS_FOREVER); /* the first will do */
    printf("%d\n", answer);
    let_it_wait();
}

/* ---- added_late ---- */

static gs_waitgroup jobs;
static int done;

static void job(void *arg)
{
    (void)arg;
    gs_waitgroup_add(&jobs, 1); /* after gs_waitgroup_wait, if it has bad luck */
    done++;
    gs_waitgroup_done(&jobs);
}

static void two_jobs(void *arg)
{
    (void)arg;
    memset(&jobs, 0, sizeof jobs);
    done = 0;
    gs_spawn(job, NULL);
    gs_spawn(job, NULL);
    gs_yield();
    gs_waitgroup_wait(&jobs, GS_FOREVER);
    if (done != 2)
        gs_test_fail("not all jobs are done");
}

/* ---- woken_by_a_handler ---- */

static gs_sem stop;

static void on_signal(int number)
{
    (void)number;
    gs_sem_release(&stop, 1); /* not async-signal-safe */
}

static void woken_by_a_handler(void *arg)
{
    (void)arg;
    signal(SIGTERM, on_signal);
    gs_sem_acquire(&stop, 1, GS_FOREVER);
    puts("The end.");
}

/* ---- Which one ---- */

static const struct {
    const char *name;
    gs_fn f;
} mistakes[] = {
    {"never_closed", never_closed},     {"deep_recursion", deep_recursion}, {"many_block", many_block},
    {"length_of_time", length_of_time}, {"unlocked_twice", unlocked_twice}, {"closed_twice", closed_twice},
    {"freed_in_use", freed_in_use},     {"forgotten", forgotten},           {"woken_by_a_handler", woken_by_a_handler},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* nothing is lost by abort(3) */
    if (argc == 2 && strcmp(argv[1], "added_late") == 0)
        return gs_test_explore(two_jobs, NULL, NULL, 1000) < 0;
    for (size_t i = 0; argc == 2 && i < sizeof mistakes / sizeof mistakes[0]; i++)
        if (strcmp(argv[1], mistakes[i].name) == 0)
            return gs_run(mistakes[i].f, NULL) < 0;
    fprintf(stderr, "usage: mistakes NAME\n");
    return 2;
}
