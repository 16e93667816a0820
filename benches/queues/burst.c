/*
 * The memory that a burst of goroutines leaves behind: `burst N` spawns N that wait in a channel, ends them, and prints the
 * resident memory of the process in KiB before, while all wait, and 5 to 30 s after the end.
 *
 * cc -std=gnu11 -O2 -Iinclude benches/queues/burst.c -o burst -Ltarget/release -lgosched -Wl,-rpath,$PWD/target/release
 */
#include <gosched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SECOND = 1000000000, PAUSE = 5, PAUSES = 6 };

static gs_chan *gate, *ended;

static long resident(void)
{
    long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &size, &pages) != 2)
        perror("burst: /proc/self/statm");
    if (f != NULL)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void wait_and_end(void *arg)
{
    (void)arg;
    int none;
    gs_chan_recv(gate, &none, GS_FOREVER);
    gs_chan_send(ended, &none, GS_FOREVER);
}

static void go_main(void *arg)
{
    long n = *(long *)arg;
    int none;
    gate = gs_chan_make(sizeof none, 0);
    ended = gs_chan_make(sizeof none, 1024);
    printf("before %ld", resident());
    for (long i = 0; i < n; i++)
        gs_spawn(wait_and_end, NULL);
    gs_sleep(3LL * SECOND);
    printf(", waiting %ld", resident());
    gs_chan_close(gate);
    for (long i = 0; i < n; i++)
        gs_chan_recv(ended, &none, GS_FOREVER);
    for (int i = 1; i <= PAUSES; i++) {
        gs_sleep((gs_duration)PAUSE * SECOND);
        printf(", after %d s %ld", i * PAUSE, resident());
    }
    printf("\n");
    gs_chan_free(gate);
    gs_chan_free(ended);
}

int main(int argc, char **argv)
{
    long n = argc == 2 ? atol(argv[1]) : 0;
    if (n <= 0) {
        fprintf(stderr, "usage: burst N (goroutines)\n");
        return 2;
    }
    int err = gs_run(go_main, &n);
    if (err < 0)
        fprintf(stderr, "burst: %s\n", gs_strerror(err));
    return err < 0;
}
