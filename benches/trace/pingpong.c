/* pingpong MODE ROUNDS [FILE]: two goroutines and two unbuffered channels. MODE: off, trace, flight. Prints ns for a round
   trip, and the bytes of the trace for it. */
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

static void pong(void *arg)
{
    long i;
    int v;
    (void)arg;
    for (i = 0; i < rounds; i++) {
        (void)gs_chan_recv(there, &v, GS_FOREVER);
        (void)gs_chan_send(back, &v, GS_FOREVER);
    }
}

static void ping(void *arg)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0666), v = 1;
    struct stat size;
    int64_t time;
    long i;
    (void)arg;
    there = gs_chan_make(sizeof v, 0);
    back = gs_chan_make(sizeof v, 0);
    if (fd < 0 || (strcmp(mode, "trace") == 0 && gs_trace_start(fd) != 0) ||
        (strcmp(mode, "flight") == 0 && gs_flight_start(1000000000) != 0))
        exit(1);
    if (gs_spawn(pong, NULL) != 0)
        exit(1);
    time = gs_now();
    for (i = 0; i < rounds; i++) {
        (void)gs_chan_send(there, &v, GS_FOREVER);
        (void)gs_chan_recv(back, &v, GS_FOREVER);
    }
    time = gs_now() - time;
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
    return gs_run(ping, NULL) != 0;
}
