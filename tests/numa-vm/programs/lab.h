/*
 * What the lab's programs share besides check.h: lists of CPUs, nodes as Linux and as the library show
 * them, the masks and names of threads, where pages are, goroutines that keep P's busy, commands.
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

/* ---- Nodes by the library's numbers, which differ from the system's ---- */

/* The system's number of one of the library's nodes. */
static inline int system_node(int node)
{
    unsigned char set[MAX_CPUS / 8];
    uint64_t cpus = 0;
    size_t i;
    CHECK_GE(gs_numa_cpus(node, sizeof set, set), 1);
    for (i = 0; i < sizeof set; i++)
        cpus |= (uint64_t)set[i] << (8 * i);
    return node_with(cpus);
}

/* A node that is so far away; on a ring there are two neighbours, and this is the first. */
static inline int node_at_distance(int node, int distance)
{
    int n, nodes = gs_numa_nodes();
    for (n = 0; n < nodes; n++)
        if (gs_numa_distance(node, n) == distance)
            return n;
    failed(__FILE__, __LINE__, "there is no node at this distance", NULL);
    return -1;
}

/* The system's number of the node that the caller is on. */
static inline int node_here(void)
{
    unsigned node;
    CHECK_EQ(getcpu(NULL, &node), 0);
    return (int)node;
}

static inline gs_stats stats_of(int node)
{
    gs_stats s = {.size = sizeof s};
    CHECK_EQ(gs_stats_node(node, &s), 0);
    return s;
}

/* What runs there has parked then, and no M looks for work from there. */
static inline void wait_until_idle(int node, uint64_t ps)
{
    NAP_UNTIL(stats_of(node).idle_procs == ps);
}

/* ---- Pages ---- */

#define PAGE 4096

/* The nodes that have these pages, by the system's numbers; -ENOENT: never touched. */
static inline void nodes_of_pages(void *const *at, int *nodes, size_t count)
{
    /* Without a list of nodes it moves nothing and says where they are. */
    CHECK_EQ(syscall(SYS_move_pages, 0, count, at, NULL, nodes, 0), 0);
}

static inline int node_of_page(const void *at)
{
    void *page = (void *)(uintptr_t)at;
    int node;
    nodes_of_pages(&page, &node, 1);
    return node;
}

/* How many pages of a range each node has; gives how many there are on all. */
static inline long count_pages(const void *start, size_t size, long on[4])
{
    void *at[64];
    int nodes[LENGTH(at)];
    size_t i, n, done, pages = (size + PAGE - 1) / PAGE;
    long sum = 0;
    memset(on, 0, 4 * sizeof on[0]);
    for (done = 0; done < pages; done += n) {
        n = pages - done < LENGTH(at) ? pages - done : LENGTH(at);
        for (i = 0; i < n; i++)
            at[i] = (char *)(uintptr_t)start + (done + i) * PAGE;
        nodes_of_pages(at, nodes, n);
        for (i = 0; i < n; i++)
            if (nodes[i] >= 0) {
                on[nodes[i]]++;
                sum++;
            }
    }
    return sum;
}

/* ---- A crowd: goroutines that each keep a P busy, so that only the others are free ---- */

static struct crowd {
    int size, here;
    pid_t tids[MAX_CPUS]; /* the thread that each one is on */
    unsigned cpus[MAX_CPUS];
    int nodes[MAX_CPUS]; /* the library's number */
    int leave[MAX_CPUS];
} crowd;

static inline void be_one_of_the_crowd(void *number)
{
    long i = (long)number;
    crowd.tids[i] = thread_id();
    crowd.nodes[i] = gs_numa_node();
    CHECK_EQ(getcpu(&crowd.cpus[i], NULL), 0);
    ADD(crowd.here, 1);
    NAP_UNTIL(GET(crowd.leave[i])); /* keeps its P, and leaves the emulator's CPU to others */
}

/* One more; node -1 is any. Returns when it has a P of its own, on which it stays until it is let go. */
static inline int add_to_crowd(int node)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    long i = crowd.size++;
    CHECK(crowd.size <= MAX_CPUS);
    opts.flags = GS_SPAWN_NOPREEMPT;
    opts.node = node;
    CHECK_EQ(gs_spawn_with(be_one_of_the_crowd, (void *)i, &opts, NULL), 0);
    NAP_UNTIL(GET(crowd.here) == crowd.size);
    CHECK(node < 0 || crowd.nodes[i] == node);
    return (int)i;
}

/* Goroutines at once. */
static inline void gather_crowd(int size)
{
    memset(&crowd, 0, sizeof crowd);
    while (crowd.size < size)
        add_to_crowd(-1);
}

/* Lets one go that is on this node. */
static inline void let_one_go(int node)
{
    int i;
    for (i = 0; i < crowd.size; i++)
        if (crowd.nodes[i] == node && !crowd.leave[i]) {
            SET(crowd.leave[i], 1);
            return;
        }
    failed(__FILE__, __LINE__, "no goroutine of the crowd is on this node", NULL);
}

static inline void dismiss_crowd(void)
{
    int i;
    for (i = 0; i < crowd.size; i++)
        SET(crowd.leave[i], 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

/* ---- Commands ---- */

static inline void must_run(const char *command)
{
    int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        failed(__FILE__, __LINE__, "this has failed", command);
}

#endif
