/*
 * sleepers: the second program of the post "Go Scheduler", in C.
 *
 * Two goroutines on one P, as in alphabet.c, but now they sleep. A sleeping goroutine gives up the P, so
 * the other one runs: concurrency without parallelism.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/sleepers.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o sleepers
 *   ./sleepers            with the post's sleeps: 12 seconds in all
 *   ./sleepers --fast     20 times as fast
 *   ./sleepers 0.5        a second of the post lasts half a second
 *
 * It prints, whatever the scale:
 *
 *   Starting Goroutines
 *   Waiting To Finish
 *   a b c d e f g h i j k l m n o p q r s t u v w x y z                      at once
 *   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26     after 5 s
 *   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26
 *   a b c d e f g h i j k l m n o p q r s t u v w x y z                      after 10 s
 *   a b c d e f g h i j k l m n o p q r s t u v w x y z
 *   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26     after 12 s
 *
 *   Terminating Program
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gosched.h"

static gs_waitgroup wg;
static double scale = 1.0; /* how long a second of the post lasts here */

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "sleepers: %s: %s\n", what, gs_strerror(result));
        exit(1);
    }
}

static void sleep_seconds(double seconds)
{
    fflush(stdout); /* so that a reader at the other end of a pipe sees the rows as they come */
    must(gs_sleep((int64_t)(seconds * scale * 1e9)), "sleep");
}

static void letters(void *arg)
{
    (void)arg;
    for (int count = 0; count < 3; count++) {
        if (count == 1)
            sleep_seconds(10);
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
        if (count == 0)
            sleep_seconds(5);
        if (count == 2)
            sleep_seconds(7);
        for (int n = 1; n <= 26; n++)
            printf("%d ", n);
        printf("\n");
    }
    must(gs_waitgroup_done(&wg), "done");
}

static void go_main(void *arg)
{
    (void)arg;
    must(gs_gomaxprocs(1), "GOMAXPROCS");
    must(gs_waitgroup_add(&wg, 2), "add");

    printf("Starting Goroutines\n");
    must(gs_spawn(letters, NULL), "spawn");
    must(gs_spawn(numbers, NULL), "spawn");

    printf("Waiting To Finish\n");
    must(gs_waitgroup_wait(&wg, GS_FOREVER), "wait");
    printf("\nTerminating Program\n");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--fast") == 0) {
        scale = 0.05;
    } else if (argc > 1) {
        char *end;
        scale = strtod(argv[1], &end);
        if (argc > 2 || end == argv[1] || *end != '\0' || !(scale >= 0 && scale <= 1000)) {
            fprintf(stderr, "usage: sleepers [--fast | SCALE]     SCALE: 0 to 1000\n");
            return 2;
        }
    }
    must(gs_run(go_main, NULL), "run");
    must(gs_shutdown(GS_FOREVER), "shutdown");
    return 0;
}
