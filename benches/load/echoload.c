/* echoload: asks an echo server and measures it; the same program for each peer.
 *
 *   echoload PORT CONNECTIONS REQUESTS
 *
 * A closed loop: every connection sends 64 bytes, waits until they are back, checks them and sends the next. The
 * connections are shared out among threads, one for each CPU, with an epoll instance each. It prints the requests per
 * second, the 99th percentile of the time that one took, in us, and what the process that has started it, which is the
 * server, spent on a request: CPU time in us, and context switches. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64, EVENTS = 256 };

struct connection {
    int fd;
    int64_t left, sent_at;
    size_t got; /* of the answer */
    char out[MESSAGE], in[MESSAGE];
};

struct part {
    pthread_t thread;
    struct connection *connections;
    int64_t count;
    uint32_t *end; /* of the times that were taken, in ns */
};

static pthread_barrier_t ready;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "echoload: %s: %s\n", what, errno ? strerror(errno) : "wrong");
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The CPU time that the process has had, in us. */
static double cpu_time(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if ((errno = clock_getcpuclockid(pid, &clock)) != 0 || clock_gettime(clock, &t) != 0)
        fail("the server's CPU time");
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The context switches of the process's threads. */
static int64_t context_switches(pid_t pid)
{
    char path[300], line[200];
    long long n, sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        fail(path);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, task->d_name);
        FILE *status = task->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status && fgets(line, sizeof line, status))
            if (sscanf(line, "voluntary_ctxt_switches: %lld", &n) == 1 ||
                sscanf(line, "nonvoluntary_ctxt_switches: %lld", &n) == 1)
                sum += n;
        if (status)
            fclose(status);
    }
    closedir(tasks);
    return sum;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        fail("connect");
    return fd;
}

static void ask(struct connection *c)
{
    memcpy(c->out, &c->left, sizeof c->left);
    c->got = 0;
    c->sent_at = now();
    if (send(c->fd, c->out, MESSAGE, MSG_NOSIGNAL) != MESSAGE)
        fail("send");
}

/* Gives true when the connection has done its share. */
static bool take_answer(struct part *part, struct connection *c)
{
    errno = 0;
    ssize_t n = recv(c->fd, c->in + c->got, MESSAGE - c->got, MSG_DONTWAIT);
    if (n <= 0)
        fail("recv");
    c->got += (size_t)n;
    if (c->got < MESSAGE)
        return false;
    if (memcmp(c->in, c->out, MESSAGE) != 0)
        fail("the answer");
    int64_t took = now() - c->sent_at;
    *part->end++ = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    if (--c->left == 0)
        return true;
    ask(c);
    return false;
}

static void *run(void *arg)
{
    struct part *part = arg;
    struct epoll_event events[EVENTS];
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (poll < 0)
        fail("epoll_create1");
    for (int64_t i = 0; i < part->count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &part->connections[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, part->connections[i].fd, &event) != 0)
            fail("epoll_ctl");
    }
    pthread_barrier_wait(&ready);
    for (int64_t i = 0; i < part->count; i++)
        ask(&part->connections[i]);
    for (int64_t busy = part->count; busy > 0;) {
        int n = epoll_wait(poll, events, EVENTS, 30000);
        if (n == 0)
            errno = ETIMEDOUT;
        if (n <= 0 && errno != EINTR)
            fail("no answer");
        for (int i = 0; i < n; i++)
            busy -= take_answer(part, events[i].data.ptr);
    }
    close(poll);
    return NULL;
}

static int smaller_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int64_t positive(const char *text, int64_t most)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < 1 || n > most) {
        fprintf(stderr, "echoload: '%s' is not a number from 1 to %lld\n", text, (long long)most);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: echoload PORT CONNECTIONS REQUESTS\n");
        return 2;
    }
    uint16_t port = (uint16_t)positive(argv[1], 65535);
    int64_t count = positive(argv[2], 100000), each = positive(argv[3], INT64_C(1) << 30) / count;
    if (each == 0)
        each = 1;

    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    struct connection *connections = calloc((size_t)count, sizeof *connections);
    uint32_t *times = calloc((size_t)(count * each), sizeof *times);
    int64_t threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads > count)
        threads = count;
    struct part *parts = calloc((size_t)threads, sizeof *parts);
    if (!connections || !times || !parts)
        fail("memory");
    for (int64_t i = 0; i < count; i++) {
        connections[i].fd = connect_to(port);
        connections[i].left = each;
        memset(connections[i].out, 'a' + (int)(i % 26), MESSAGE);
    }

    pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
    for (int64_t t = 0, first = 0; t < threads; t++) {
        int64_t end = count * (t + 1) / threads;
        parts[t] = (struct part){.connections = connections + first, .count = end - first,
                                 .end = times + first * each};
        if ((errno = pthread_create(&parts[t].thread, NULL, run, &parts[t])) != 0)
            fail("pthread_create");
        first = end;
    }
    pthread_barrier_wait(&ready);
    pid_t server = getppid();
    double cpu = cpu_time(server);
    int64_t switches = context_switches(server), start = now();
    for (int64_t t = 0; t < threads; t++)
        pthread_join(parts[t].thread, NULL);
    double seconds = (double)(now() - start) / 1e9;
    cpu = cpu_time(server) - cpu;
    switches = context_switches(server) - switches;

    int64_t all = count * each;
    qsort(times, (size_t)all, sizeof *times, smaller_first);
    printf("%.3f %.3f %.3f %.4f\n", (double)all / seconds, times[all * 99 / 100] / 1e3, cpu / (double)all,
           (double)switches / (double)all);
    for (int64_t i = 0; i < count; i++)
        close(connections[i].fd);
    return 0;
}
