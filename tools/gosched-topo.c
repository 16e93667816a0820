/* gosched-topo: draws the machine as libgosched sees it: its NUMA nodes, their CPUs and P's, and how far they are from
 * each other. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <gosched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPUS = 8192, WIDTH = 60 };

static const char usage[] =
    "usage: gosched-topo [-p|--procs PROCS] [-t|--topology TOPOLOGY]\n"
    "Draws the machine as libgosched sees it: NUMA nodes with the CPUs that this process may use (see taskset(1)),\n"
    "the P's that run goroutines there, and in which order a P without work looks at other nodes.\n"
    "\n"
    "  -p PROCS      with this number of P's (default: as for any program; GOSCHED_PROCS, GOMAXPROCS)\n"
    "  -t TOPOLOGY   as if the machine were 'flat' or, in hwloc's notation, 'node:4 core:2 pu:1' (GOSCHED_TOPOLOGY)\n"
    "  -h, --help    this text\n"
    "\n"
    "Nodes have this process's numbers, in an order of its own; the system's number stands beside it. Memory and\n"
    "threads are bound to nodes unless there is one only, the topology is made up, or GOSCHED_BIND=0.\n";

/* "0-3,8" */
static void print_cpus(const unsigned char *set, char *out, size_t room)
{
    size_t used = 0;
    int c, first;
    out[0] = '\0';
    for (c = 0; c < CPUS; c++) {
        if (!(set[c / 8] >> c % 8 & 1))
            continue;
        for (first = c; c + 1 < CPUS && set[(c + 1) / 8] >> (c + 1) % 8 & 1; c++)
            continue;
        if (used < room)
            used += (size_t)snprintf(out + used, room - used, first == c ? "%s%d" : "%s%d-%d", used ? "," : "", first, c);
    }
}

/* The number that the system has for the node of a CPU; -1 if it doesn't say. */
static int system_node(const unsigned char *set)
{
    char path[64];
    int c, n;
    for (c = 0; c < CPUS && !(set[c / 8] >> c % 8 & 1); c++)
        continue;
    for (n = 0; n < 1024; n++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", c, n);
        if (access(path, F_OK) == 0)
            return n;
    }
    return -1;
}

static long memory_of(int system)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", system);
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    while (kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "Node %*d MemTotal: %ld", &kib) != 1)
            kib = -1;
    fclose(f);
    return kib;
}

static void print_row(const char *text)
{
    printf("  | %-*.*s |\n", WIDTH - 4, WIDTH - 4, text);
}

static void print_line(const char *title)
{
    int n = printf("  +-- %s ", title);
    for (; n < WIDTH + 1; n++)
        putchar('-');
    puts("+");
}

/* The other nodes, nearest first. */
static void print_others(int node, int nodes, char *out, size_t room)
{
    int order[nodes], n = 0, i, k;
    size_t used = 0;
    for (i = 0; i < nodes; i++) {
        if (i == node)
            continue;
        for (k = n++; k > 0 && gs_numa_distance(node, order[k - 1]) > gs_numa_distance(node, i); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    out[0] = '\0';
    for (i = 0; i < n && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%d", i ? ", then " : "steals from node ", order[i]);
}

static void draw(int made_up)
{
    int nodes = gs_numa_nodes(), node, other;
    gs_stats s = {.size = sizeof s};
    gs_stats_read(&s);
    printf("%s: %d NUMA node%s, %llu P%s\n\n", made_up ? "a machine that is made up" : "this machine", nodes,
           nodes == 1 ? "" : "s", (unsigned long long)s.procs, s.procs == 1 ? "" : "'s");
    for (node = 0; node < nodes; node++) {
        static unsigned char set[CPUS / 8];
        char text[512], cpus[256], title[64];
        int count = gs_numa_cpus(node, sizeof set, set), system = made_up ? -1 : system_node(set);
        long kib = made_up ? -1 : memory_of(system);
        s.size = sizeof s;
        gs_stats_node(node, &s);
        if (system >= 0)
            snprintf(title, sizeof title, "node %d (the system's %d)", node, system);
        else
            snprintf(title, sizeof title, "node %d", node);
        print_line(title);
        print_cpus(set, cpus, sizeof cpus);
        snprintf(text, sizeof text, "%d CPU%s: %s", count, count == 1 ? "" : "s", cpus);
        print_row(text);
        snprintf(text, sizeof text, "%llu P%s", (unsigned long long)s.procs, s.procs == 1 ? "" : "'s");
        print_row(text);
        if (kib >= 0) {
            snprintf(text, sizeof text, "%ld MiB of memory", kib / 1024);
            print_row(text);
        }
        if (nodes > 1) {
            print_others(node, nodes, text, sizeof text);
            print_row(text);
        }
        printf("  +");
        for (other = 0; other < WIDTH - 2; other++)
            putchar('-');
        puts("+");
    }
    if (nodes == 1)
        return;
    printf("\ndistances (10: the own memory)\n\n      ");
    for (node = 0; node < nodes; node++)
        printf("%5d", node);
    puts("");
    for (node = 0; node < nodes; node++) {
        printf("  %4d", node);
        for (other = 0; other < nodes; other++)
            printf("%5d", gs_numa_distance(node, other));
        puts("");
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"procs", required_argument, NULL, 'p'},
        {"topology", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    gs_config config = GS_CONFIG_INIT;
    char *end;
    long procs;
    int option, e;
    while ((option = getopt_long(argc, argv, "p:t:h", options, NULL)) != -1)
        switch (option) {
        case 'p':
            errno = 0;
            procs = strtol(optarg, &end, 10);
            if (errno || *end || end == optarg || procs < 1 || procs > GS_MAX_PROCS) {
                fprintf(stderr, "gosched-topo: '%s' is not a number of P's from 1 to %d\n", optarg, GS_MAX_PROCS);
                return 2;
            }
            config.gomaxprocs = (uint32_t)procs;
            break;
        case 't':
            config.topology = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    if (optind < argc) {
        fputs(usage, stderr);
        return 2;
    }
    if (!config.topology)
        config.topology = getenv("GOSCHED_TOPOLOGY");
    if ((e = gs_init(&config)) != 0) {
        fprintf(stderr, "gosched-topo: %s%s%s\n", config.topology ? config.topology : "", config.topology ? ": " : "",
                e == -EINVAL && config.topology ? "no such topology" : gs_strerror(e));
        return 1;
    }
    draw(config.topology && *config.topology && strcmp(config.topology, "flat") != 0);
    gs_shutdown(GS_FOREVER);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("gosched-topo");
        return 1;
    }
    return 0;
}
