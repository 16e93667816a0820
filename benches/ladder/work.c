/* The program around the workload: options, clock, the peak of memory. */
#define _GNU_SOURCE
#include "ladder.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void check_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    _Exit(1);
}

/* About a microsecond. What is computed must not be left out, but changes nothing. */
long leaf_work(long number)
{
    uint64_t x = (uint64_t)number + 1;
    for (int i = 0; i < 400; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    __asm__ volatile("" : : "r"(x));
    return number;
}

void sleep_1ms(void)
{
    struct timespec left = {.tv_nsec = 1000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static long number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > 1000000) {
        fprintf(stderr, "'%s' isn't a number from 1 to 1000000\n", text);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"tree", "blocking"};
    static const long counts[] = {20, 5};
    long procs = 1, trees = 0;

    for (int option; (option = getopt(argc, argv, "p:n:")) != -1;) {
        if (option == 'p')
            procs = number(optarg);
        else if (option == 'n')
            trees = number(optarg);
        else
            return 2;
    }
    const char *workload = optind + 1 == argc ? argv[optind] : "";
    for (int i = 0; i < 2; i++) {
        if (strcmp(workload, "list") == 0) {
            printf("%s %ld\n", names[i], counts[i]);
        } else if (strcmp(workload, names[i]) == 0) {
            struct rusage usage;
            trees = trees > 0 ? trees : counts[i];
            grow_trees((int)procs, 1, i == 1);
            double start = now();
            grow_trees((int)procs, trees, i == 1);
            printf("%s %.3f ns\n", names[i], (now() - start) / (double)(trees * TASKS));
            CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
            printf("%s.memory %ld KiB\n", names[i], usage.ru_maxrss);
            return 0;
        }
    }
    if (strcmp(workload, "list") == 0)
        return 0;
    fprintf(stderr, "usage: %s [-p PROCS] [-n TREES] tree|blocking|list\n", argv[0]);
    return 2;
}
