/* pingpong MODE ROUNDS [FILE]: two goroutines and two unbuffered channels. MODE: off, trace, flight. Prints ns for a round
   trip, and the bytes of the trace for it. The flight recorder is measured once it keeps as much as it will. */
#include <gosched.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gs_chan *there, *back;
static long rounds;
static const char *mode, *file;

#define SECOND INT64_C(1000000000)

static void pong(void *arg)
{
    long i, n = *(long *)arg;
    int v;
    for (i = 0; i < n; i++) {
        (void)gs_chan_recv(there, &v, GS_FOREVER);
        (void)gs_chan_send(back, &v, GS_FOREVER);
    }
}

/* Plays n rounds; returns the time that they take, in ns. */
static int64_t play(long n)
{
    int64_t begin = gs_now();
    long i;
    int v = 1;
    if (gs_spawn(pong, &n) != 0)
        exit(1);
    for (i = 0; i < n; i++) {
        (void)gs_chan_send(there, &v, GS_FOREVER);
        (void)gs_chan_recv(back, &v, GS_FOREVER);
    }
    return gs_now() - begin;
}

static void run(void *arg)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    struct stat size;
    int64_t begin = gs_now(), time;
    (void)arg;
    there = gs_chan_make(sizeof(int), 0);
    back = gs_chan_make(sizeof(int), 0);
    if (fd < 0 || (strcmp(mode, "trace") == 0 && gs_trace_start(fd) != 0) ||
        (strcmp(mode, "flight") == 0 && gs_flight_start(SECOND) != 0))
        exit(1);
    while (strcmp(mode, "flight") == 0 && gs_now() - begin < 2 * SECOND)
        (void)play(10000);
    time = play(rounds);
    if (strcmp(mode, "trace") == 0)
        (void)gs_trace_stop();
    if (strcmp(mode, "flight") == 0)
        (void)gs_flight_stop();
    (void)fstat(fd, &size);
    printf("%.1f %.1f\n", (double)time / (double)rounds, (double)size.st_size / (double)rounds);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    mode = argv[1];
    rounds = atol(argv[2]);
    file = argc > 3 ? argv[3] : "/dev/null";
    return gs_run(run, NULL) != 0;
}
