/*
 * The library as a plugin: loaded with dlopen, it starts no thread; dlclose never unmaps it.
 * This program is not linked with the library, so it uses no function of check.h that calls it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <gosched.h>

#define CHECK(cond)                                                    \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            _exit(1);                                                  \
        }                                                              \
    } while (0)

static int (*spawn)(gs_fn, void *);
static int (*run)(gs_fn, void *);
static int (*sleep_ns)(int64_t);
static int (*shutdown_runtime)(int64_t);
static const uint32_t *(*preempt_flag)(void);
static void (*preempt_check)(void);
static int ran;
static volatile int stop;

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;
    CHECK(d != NULL);
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n - (getenv("GOSCHED_EMULATED") != NULL); /* qemu-user has a thread of its own */
}

static void *load(void)
{
    void *lib = dlopen("libgosched.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(lib != NULL);
    spawn = (int (*)(gs_fn, void *))(uintptr_t)dlsym(lib, "gs_spawn");
    run = (int (*)(gs_fn, void *))(uintptr_t)dlsym(lib, "gs_run");
    sleep_ns = (int (*)(int64_t))(uintptr_t)dlsym(lib, "gs_sleep");
    shutdown_runtime = (int (*)(int64_t))(uintptr_t)dlsym(lib, "gs_shutdown");
    preempt_flag = (const uint32_t *(*)(void))(uintptr_t)dlsym(lib, "gs_preempt_flag");
    preempt_check = (void (*)(void))(uintptr_t)dlsym(lib, "gs_preempt_check");
    CHECK(spawn && run && sleep_ns && shutdown_runtime && preempt_flag && preempt_check);
    return lib;
}

static void count_after_sleep(void *arg)
{
    (void)arg;
    CHECK(sleep_ns(20 * 1000 * 1000) == 0);
    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
}

/* The way that the header's comment describes. With one P in cooperative mode nothing else would run. */
static void compute(void *arg)
{
    const volatile uint32_t *flag = preempt_flag();
    (void)arg;
    CHECK(preempt_flag() == flag);
    while (!stop)
        if (*flag != 0)
            preempt_check();
}

static void end_it(void *arg)
{
    (void)arg;
    stop = 1;
}

static void check_flag(void *arg)
{
    stop = 0;
    CHECK(spawn(end_it, arg) == 0);
    compute(arg);
}

static void spawn_ten(void *arg)
{
    int i;
    for (i = 0; i < 10; i++)
        CHECK(spawn(count_after_sleep, arg) == 0);
    CHECK(sleep_ns(1000 * 1000) == 0);
}

int main(void)
{
    void *lib;
    int round;
    alarm(60);
    setenv("GOSCHED_COOPERATIVE", "1", 1);
    for (round = 1; round <= 3; round++) {
        lib = load();
        CHECK(count_threads() == 1);
        CHECK(run(check_flag, NULL) == 0);
        CHECK(run(spawn_ten, NULL) == 0);
        CHECK(dlclose(lib) == 0); /* the goroutines still sleep, on code that must stay */
        CHECK(shutdown_runtime(GS_FOREVER) == 0);
        CHECK(ran == 10 * round);
        while (count_threads() > 1) {
            struct timespec ms = {0, 1000000};
            nanosleep(&ms, NULL);
        }
    }
    printf("ok loaded_and_closed_as_a_plugin\n");
    return 0;
}
