/*
 * What the lab's programs share besides check.h: lists of CPUs, nodes as Linux shows them, the masks
 * and names of threads.
 */
#ifndef LAB_H
#define LAB_H

#include "check.h"

#define MAX_CPUS 64

/* ---- Sets of CPUs or nodes: a bit for each ---- */

/* A list as in /sys and /proc: "0-2,5". */
static inline uint64_t parse_list(const char *list)
{
    uint64_t set = 0;
    while (*list && *list != '\n') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        CHECK(end != list);
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        CHECK(first <= last && last < MAX_CPUS);
        for (; first <= last; first++)
            set |= 1ULL << first;
        list = *end == ',' ? end + 1 : end;
    }
    return set;
}

static inline int size_of_set(uint64_t set)
{
    return __builtin_popcountll(set);
}

static inline int is_subset(uint64_t part, uint64_t whole)
{
    return (part & ~whole) == 0;
}

/* The set that the program's "lab:" line gives in a variable. */
static inline uint64_t set_from_env(const char *variable)
{
    const char *list = getenv(variable);
    if (!list)
        failed(__FILE__, __LINE__, "the lab: line doesn't set this variable", variable);
    return parse_list(list);
}

/* ---- The machine ---- */

static inline void read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        failed(__FILE__, __LINE__, "this can't be opened", path);
    if (!fgets(line, (int)size, f))
        line[0] = 0;
    fclose(f);
}

static inline uint64_t set_from_file(const char *path)
{
    char line[256];
    read_line(path, line, sizeof line);
    return parse_list(line);
}

static inline uint64_t nodes_online(void)
{
    return set_from_file("/sys/devices/system/node/online");
}

/* The online CPUs of a node. */
static inline uint64_t cpus_of_node(int node)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    return set_from_file(path);
}

/* The node that has all these CPUs; -1: no node has all. */
static inline int node_with(uint64_t cpus)
{
    uint64_t nodes = nodes_online();
    int n;
    for (n = 0; n < MAX_CPUS; n++)
        if ((nodes >> n & 1) && is_subset(cpus, cpus_of_node(n)))
            return n;
    return -1;
}

/* ---- Threads ---- */

/* The CPUs that a thread may run on; 0: no thread has this number any more. */
static inline uint64_t mask_of(pid_t tid)
{
    cpu_set_t cpus;
    uint64_t set = 0;
    int c;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(tid, sizeof cpus, &cpus) != 0)
        return 0;
    for (c = 0; c < MAX_CPUS; c++)
        if (CPU_ISSET(c, &cpus))
            set |= 1ULL << c;
    return set;
}

/* False: there is no such thread any more. */
static inline int set_mask(pid_t tid, uint64_t set)
{
    cpu_set_t cpus;
    int c;
    CPU_ZERO(&cpus);
    for (c = 0; c < MAX_CPUS; c++)
        if (set >> c & 1)
            CPU_SET(c, &cpus);
    return sched_setaffinity(tid, sizeof cpus, &cpus) == 0;
}

/* False: there is no such thread any more. */
static inline int name_of(pid_t tid, char name[32])
{
    char path[64];
    FILE *f;
    int has;
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)tid);
    f = fopen(path, "r");
    if (!f)
        return 0;
    has = fgets(name, 32, f) != NULL;
    fclose(f);
    if (has)
        name[strcspn(name, "\n")] = 0;
    return has;
}

/* The numbers of all threads of this process; gives how many. */
static inline int all_threads(pid_t *tids, int most)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    int n = 0;
    CHECK(d != NULL);
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.' && n < most)
            tids[n++] = (pid_t)atoi(e->d_name);
    closedir(d);
    return n;
}

/*
 * Moves each worker that runs to some CPU of its mask, as Linux may do at any moment: one that is not
 * bound to a node soon runs on another. The masks stay.
 */
static inline void move_workers(uint64_t *seed)
{
    pid_t tids[256];
    char name[32];
    int i, n = all_threads(tids, LENGTH(tids));
    for (i = 0; i < n; i++) {
        uint64_t mask = mask_of(tids[i]);
        int cpu = (int)(random_next(seed) % MAX_CPUS);
        if (!name_of(tids[i], name) || strcmp(name, "gosched") != 0 || node_with(mask) >= 0)
            continue;
        while (!(mask >> cpu & 1))
            cpu = (cpu + 1) % MAX_CPUS;
        (void)set_mask(tids[i], 1ULL << cpu);
        (void)set_mask(tids[i], mask);
    }
}

/* ---- A crowd: goroutines that keep all P's busy at the same time ---- */

static struct crowd {
    int size, here, leave;
    pid_t tids[MAX_CPUS]; /* the thread that each one is on */
    unsigned cpus[MAX_CPUS];
} crowd;

static void be_one_of_the_crowd(void *number)
{
    long i = (long)number;
    crowd.tids[i] = thread_id();
    CHECK_EQ(getcpu(&crowd.cpus[i], NULL), 0);
    ADD(crowd.here, 1);
    while (!GET(crowd.leave))
        ;
}

/*
 * Starts `size` goroutines that compute. When it returns each one is on a P, and on a thread, of its
 * own, and stays there until the crowd is dismissed.
 */
static inline void gather_crowd(int size)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    long i;
    CHECK(size <= MAX_CPUS);
    memset(&crowd, 0, sizeof crowd);
    crowd.size = size;
    opts.flags = GS_SPAWN_NOPREEMPT;
    for (i = 0; i < size; i++)
        CHECK_EQ(gs_spawn_with(be_one_of_the_crowd, (void *)i, &opts, NULL), 0);
    NAP_UNTIL(GET(crowd.here) == size);
}

static inline void dismiss_crowd(void)
{
    SET(crowd.leave, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

#endif
