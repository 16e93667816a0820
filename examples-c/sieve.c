/*
 * sieve: prime numbers from a chain of goroutines, the classic of Go's tutorials.
 *
 *   generate --2,3,4,5...--> filter 2 --3,5,7...--> filter 3 --5,7,11...--> filter 5 --> main
 *
 * Each prime that reaches main adds a filter that drops its multiples. At the end main closes the
 * channel that it reads from: a send on a closed channel gives -EPIPE (it is no crash, as it is in
 * Go), so each goroutine learns that its reader has gone, closes its own input, and leaves.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/sieve.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o sieve
 *   ./sieve [COUNT]     the first COUNT primes; 100, if not said otherwise
 *
 * It prints ten primes a line:
 *
 *   2 3 5 7 11 13 17 19 23 29
 *   31 37 41 43 47 53 59 61 67 71
 *   ...
 */
#include <stdio.h>
#include <stdlib.h>

#include "gosched.h"

typedef struct filter { gs_chan *in, *out; int prime; } filter;

static long count = 100;

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "sieve: %s: %s\n", what, gs_strerror(result));
        exit(1);
    }
}

static void *or_die(void *p)
{
    if (!p) {
        fprintf(stderr, "sieve: out of memory\n");
        exit(1);
    }
    return p;
}

static gs_chan *make_chan(void)
{
    return or_die(gs_chan_make(sizeof(int), 0));
}

/* Sends 2, 3, 4, ... until the other end is closed. A channel's sender frees it. */
static void generate(void *arg)
{
    gs_chan *out = arg;
    for (int n = 2; gs_chan_send(out, &n, GS_FOREVER) == 0; n++)
        ;
    must(gs_chan_free(out), "free");
}

/* Passes on what its prime doesn't divide, until the other end is closed. */
static void run_filter(void *arg)
{
    filter *f = arg;
    int n;
    do
        must(gs_chan_recv(f->in, &n, GS_FOREVER), "receive");
    while (n % f->prime == 0 || gs_chan_send(f->out, &n, GS_FOREVER) == 0);
    must(gs_chan_close(f->in), "close");
    must(gs_chan_free(f->out), "free");
    free(f);
}

static void go_main(void *arg)
{
    (void)arg;
    gs_chan *in = make_chan();
    must(gs_spawn(generate, in), "spawn");
    for (long i = 1; i <= count; i++) {
        int prime;
        must(gs_chan_recv(in, &prime, GS_FOREVER), "receive");
        printf("%d%c", prime, i % 10 == 0 || i == count ? '\n' : ' ');

        filter *f = or_die(malloc(sizeof *f));
        *f = (filter){in, make_chan(), prime};
        in = f->out;
        must(gs_spawn(run_filter, f), "spawn");
    }
    must(gs_chan_close(in), "close");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        char *end;
        count = strtol(argv[1], &end, 10);
        if (argc > 2 || end == argv[1] || *end != '\0' || count < 1 || count > 100 * 1000) {
            fprintf(stderr, "usage: sieve [COUNT]     COUNT: 1 to 100000\n");
            return 2;
        }
    }
    must(gs_run(go_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown"); /* waits for the filters that are still leaving */
    return 0;
}
