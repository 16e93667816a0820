/*
 * ring: a token goes round a ring of goroutines.
 *
 * Each goroutine receives from its left channel and sends the token, one larger, to its right one.
 * Only one of them can run at any time: what this measures is how fast a goroutine wakes the next.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/ring.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o ring
 *   ./ring [GOROUTINES [ROUNDS]]     1000 and 100, if not said otherwise
 *
 * It prints (and the time on stderr):
 *
 *   1000 goroutines, 100 rounds: the token was passed on 100000 times
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gosched.h"

typedef struct member { gs_chan *left, *right; } member;

static long goroutines = 1000, rounds = 100;

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "ring: %s: %s\n", what, gs_strerror(result));
        exit(1);
    }
}

/* Passes the token on until the left channel is closed, then closes the right one: the end of the
 * ring travels round like the token. */
static void pass_on(void *arg)
{
    const member *self = arg;
    int64_t token;
    while (gs_chan_recv(self->left, &token, GS_FOREVER) == 0) {
        token++;
        must(gs_chan_send(self->right, &token, GS_FOREVER), "send");
    }
    must(gs_chan_close(self->right), "close");
}

static void go_main(void *arg)
{
    (void)arg;
    size_t n = (size_t)goroutines;
    gs_chan **link = calloc(n + 1, sizeof *link);
    member *members = calloc(n, sizeof *members);
    for (size_t i = 0; link && i <= n; i++)
        if (!(link[i] = gs_chan_make(sizeof(int64_t), 0)))
            link = NULL;
    if (!link || !members) {
        fprintf(stderr, "ring: out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        members[i] = (member){link[i], link[i + 1]};
        must(gs_spawn(pass_on, &members[i]), "spawn");
    }

    /* main closes the ring: it takes the token from the last link and puts it into the first. */
    int64_t token = 0, start = gs_now();
    for (long round = 0; round < rounds; round++) {
        must(gs_chan_send(link[0], &token, GS_FOREVER), "send");
        must(gs_chan_recv(link[n], &token, GS_FOREVER), "receive");
    }
    double seconds = (double)(gs_now() - start) / 1e9;

    must(gs_chan_close(link[0]), "close");
    while (gs_chan_recv(link[n], NULL, GS_FOREVER) == 0) /* -EPIPE once the last member has left */
        ;
    for (size_t i = 0; i <= n; i++)
        must(gs_chan_free(link[i]), "free");
    free(link);
    free(members);

    printf("%ld goroutines, %ld rounds: the token was passed on %lld times\n", goroutines, rounds,
           (long long)token);
    if (token > 0)
        fprintf(stderr, "%.3f s, %.0f ns for each hand-over\n", seconds,
                seconds * 1e9 / (double)token);
}

static long positive(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > 10 * 1000 * 1000) {
        fprintf(stderr, "usage: ring [GOROUTINES [ROUNDS]]     each from 1 to 10000000\n");
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        goroutines = positive(argv[1]);
    if (argc > 2)
        rounds = positive(argv[argc > 3 ? 0 : 2]); /* a third argument: the usage line */
    must(gs_run(go_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown");
    return 0;
}
