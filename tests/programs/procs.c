/*
 * GOMAXPROCS follows the affinity mask and the cgroup's quota, unless the host has chosen a number.
 */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

static cpu_set_t all;

/* Gives every thread of the process these CPUs, as `taskset -a -p` does. */
static void set_cpus(const cpu_set_t *cpus)
{
    DIR *threads = opendir("/proc/self/task");
    struct dirent *entry;
    CHECK(threads != NULL);
    while ((entry = readdir(threads)))
        if (entry->d_name[0] != '.')
            (void)sched_setaffinity(atoi(entry->d_name), sizeof *cpus, cpus);
    CHECK_EQ(closedir(threads), 0);
}

static void use_one_cpu(void)
{
    cpu_set_t one;
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    set_cpus(&one);
}

/* In a goroutine: while goroutines run, the library looks. */
static void until_procs(int n)
{
    YIELD_UNTIL(gs_gomaxprocs(0) == n);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Goroutines run for longer than the library waits from one look to the next. */
static void run_for_a_while(void)
{
    int64_t end = clock_now() + 3 * SEC;
    YIELD_UNTIL(clock_now() >= end);
}

/* On one CPU the number stays n, until the host asks for the default. Gives all CPUs back. */
static void check_stays(int n)
{
    use_one_cpu();
    run_for_a_while();
    CHECK_EQ(gs_gomaxprocs(0), n);
    CHECK_EQ(gs_set_default_gomaxprocs(), n);
    CHECK_EQ(gs_gomaxprocs(0), 1);
    set_cpus(&all);
}

static void follows(void *arg)
{
    int i, n = CPU_COUNT(&all);
    CHECK_EQ(gs_gomaxprocs(0), n);
    use_one_cpu();
    until_procs(1);
    set_cpus(&all);
    until_procs(n);
    for (i = 0; i < 100; i++)
        CHECK_EQ(gs_spawn(nothing, NULL), 0);
    /* A number that the host has chosen stays, even if it is the present one. */
    CHECK_EQ(gs_gomaxprocs(n), n);
    check_stays(n);
    until_procs(n);
    (void)arg;
}

static void stays(void *arg)
{
    int n = CPU_COUNT(&all);
    CHECK_EQ(gs_gomaxprocs(0), n);
    check_stays(n);
    /* The default was had once, and isn't followed. */
    run_for_a_while();
    CHECK_EQ(gs_gomaxprocs(0), 1);
    (void)arg;
}

static void keeps(void *arg)
{
    set_cpus(&all);
    run_for_a_while();
    CHECK_EQ(gs_gomaxprocs(0), 1);
    (void)arg;
}

static void find_cpus(void)
{
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
}

CHILD(mask)
{
    find_cpus();
    CHECK_EQ(gs_run(follows, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

CHILD(flag)
{
    gs_config config = GS_CONFIG_INIT;
    find_cpus();
    config.flags = GS_CONFIG_FIXED_PROCS;
    CHECK_EQ(gs_init(&config), 0);
    CHECK_EQ(gs_run(stays, NULL), 0);
}

CHILD(variable)
{
    find_cpus();
    CHECK_EQ(gs_run(stays, NULL), 0);
}

CHILD(chosen)
{
    find_cpus();
    CHECK_EQ(gs_run(keeps, NULL), 0);
}

/* Why GOMAXPROCS can't be followed here; NULL: it can. */
static const char *obstacle(void)
{
    CHECK_EQ(unsetenv("GOSCHED_PROCS"), 0);
    CHECK_EQ(unsetenv("GOMAXPROCS"), 0);
    CHECK_EQ(unsetenv("GOSCHED_TOPOLOGY"), 0);
    find_cpus();
    if (CPU_COUNT(&all) < 2)
        return "there is one CPU";
    return gs_gomaxprocs(0) == CPU_COUNT(&all) ? NULL : "a cgroup has a quota";
}

#define NEEDS_NO(reason)        \
    do {                        \
        const char *is_ = reason; \
        if (is_)                \
            SKIP(is_);          \
    } while (0)

TEST(the_affinity_mask_is_followed)
{
    NEEDS_NO(obstacle());
    check_child_succeeds("mask");
}

TEST(a_flag_turns_it_off)
{
    NEEDS_NO(obstacle());
    check_child_succeeds("flag");
}

TEST(a_variable_turns_it_off)
{
    char debug[256];
    const char *old = getenv("GOSCHED_DEBUG");
    NEEDS_NO(obstacle());
    snprintf(debug, sizeof debug, "%s,updatemaxprocs=0", old ? old : "");
    CHECK_EQ(setenv("GOSCHED_DEBUG", debug, 1), 0);
    check_child_succeeds("variable");
}

TEST(a_number_in_the_environment_stays)
{
    NEEDS_NO(obstacle());
    CHECK_EQ(setenv("GOSCHED_PROCS", "1", 1), 0);
    check_child_succeeds("chosen");
}

/* ---- A cgroup ---- */

#define GROUP "/sys/fs/cgroup/gosched-test-procs"

static void put(const char *file, const char *text)
{
    int fd = open(file, O_WRONLY);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    CHECK_EQ(close(fd), 0);
}

static void follows_quota(void *arg)
{
    int n = CPU_COUNT(&all);
    put(GROUP "/cpu.max", "100000 100000");
    until_procs(2);
    put(GROUP "/cpu.max", "max 100000");
    until_procs(n);
    (void)arg;
}

CHILD(quota)
{
    find_cpus();
    put(GROUP "/cgroup.procs", "0");
    CHECK_EQ(gs_run(follows_quota, NULL), 0);
}

TEST(the_quota_of_the_cgroup_is_followed)
{
    struct outcome out;
    NEEDS_NO(obstacle());
    if (CPU_COUNT(&all) < 3)
        SKIP("a quota lowers the number to 2 at least, and there are 2 CPUs");
    (void)rmdir(GROUP);
    if (mkdir(GROUP, 0755) != 0 || access(GROUP "/cpu.max", W_OK) != 0) {
        (void)rmdir(GROUP);
        SKIP("no cgroup with a quota can be made here");
    }
    run_child("quota", &out);
    CHECK_EQ(rmdir(GROUP), 0);
    if (out.status != 0)
        failed(__FILE__, __LINE__, "quota", out.text);
}
