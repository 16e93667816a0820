/*
 * For the programs that call functions and say what each gave. The check compares what threads say without the library with
 * what goroutines say. All goroutines are pinned to one thread, and each wait is ended by another goroutine, or by a thread.
 * So a function that kept the thread would never return.
 */
#ifndef SAY_H
#define SAY_H

#include "tasks.h"

#include <stdbool.h>

static FILE *says;

/* Says what a call gave: its value, and errno, which a call that succeeds leaves as it was. */
#define SAY(call) \
    do { \
        errno = 77; \
        long value_ = (long)(call); \
        int errno_ = errno; \
        fprintf(says, "    %s: %ld%s%s\n", #call, value_, errno_ == 77 ? "" : ", errno ", errno_ == 77 ? "" : strerrorname_np(errno_)); \
        fflush(says); \
    } while (0)
/* Of functions that give an error number. */
#define SAY_ERROR(call) \
    do { \
        errno = 77; \
        int value_ = (call); \
        fprintf(says, "    %s: %s%s\n", #call, value_ ? strerrorname_np(value_) : "0", errno == 77 ? "" : ", and sets errno"); \
        fflush(says); \
    } while (0)
/* What must hold, whatever is printed. */
#define HOLDS(cond) MUST(cond, "errno %d", errno)

static char directory[] = "/tmp/preload-functions-XXXXXX";

static inline const char *in_directory(const char *name)
{
    static char paths[8][200];
    static int n;
    char *path = paths[n++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

/* Long enough that who waits has most likely begun to; nothing depends on it. */
static inline void soon(void)
{
    usleep(15000);
}

static inline struct timespec from_now(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

struct test {
    const char *name;
    void (*f)(void);
};
#define TEST(f) {#f, f}

static const struct test *all_tests;
static size_t how_many_tests;
static const char *only;

static inline void run_all(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < how_many_tests; i++) {
        if (only && strcmp(only, all_tests[i].name) != 0)
            continue;
        fprintf(says, "%s\n", all_tests[i].name);
        all_tests[i].f();
    }
}

/* The main function: PROGRAM goroutines|threads [TEST]. */
static inline int run_tests(int argc, char **argv, const struct test *tests, size_t n)
{
    if (argc < 2 || (strcmp(argv[1], "goroutines") && strcmp(argv[1], "threads"))) {
        fprintf(stderr, "usage: %s goroutines|threads [TEST]\n", argv[0]);
        return 2;
    }
    says = stdout;
    only = argv[2];
    all_tests = tests;
    how_many_tests = n;
    alarm(150); /* a hang */
    HOLDS(mkdtemp(directory) != NULL);
    run_tasks(argv[1][0] == 't', 1, run_all);
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command) != 0;
}

#endif
