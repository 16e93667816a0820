/*
 * alphabet: the first program of the post "Go Scheduler", in C.
 *
 * Two goroutines on one P. Both are created before either runs. When main waits, the one created
 * last runs first, because it is the P's `runnext`; neither blocks, so each runs to its end.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/alphabet.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o alphabet
 *   ./alphabet
 *
 * It prints:
 *
 *   Starting Goroutines
 *   Waiting To Finish
 *   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26     (three times)
 *   a b c d e f g h i j k l m n o p q r s t u v w x y z                      (three times)
 *
 *   Terminating Program
 */
#include <stdio.h>
#include <stdlib.h>

#include "gosched.h"

static gs_waitgroup wg; /* all bytes zero: ready for use */

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "alphabet: %s: %s\n", what, gs_strerror(result));
        exit(1);
    }
}

static void letters(void *arg)
{
    (void)arg;
    for (int count = 0; count < 3; count++) {
        for (char ch = 'a'; ch < 'a' + 26; ch++)
            printf("%c ", ch);
        printf("\n");
    }
    must(gs_waitgroup_done(&wg), "done");
}

static void numbers(void *arg)
{
    (void)arg;
    for (int count = 0; count < 3; count++) {
        for (int n = 1; n <= 26; n++)
            printf("%d ", n);
        printf("\n");
    }
    must(gs_waitgroup_done(&wg), "done");
}

static void go_main(void *arg)
{
    (void)arg;
    must(gs_gomaxprocs(1), "GOMAXPROCS"); /* one P for the scheduler to use */
    must(gs_waitgroup_add(&wg, 2), "add");

    printf("Starting Goroutines\n");
    must(gs_spawn(letters, NULL), "spawn");
    must(gs_spawn(numbers, NULL), "spawn");

    printf("Waiting To Finish\n");
    must(gs_waitgroup_wait(&wg, GS_FOREVER), "wait");
    printf("\nTerminating Program\n");
}

int main(void)
{
    must(gs_run(go_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown");
    return 0;
}
