/* echo: a TCP server that sends back what it gets, a goroutine for each connection; load/echoload asks it. */
#define _GNU_SOURCE
#include "bench.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int listener;
static gs_waitgroup connections;

static void echo_back(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char block[4096];
    ssize_t n;

    while ((n = gs_read(fd, block, sizeof block, GS_FOREVER)) > 0)
        for (ssize_t sent = 0; sent < n;)
            sent += MUST((int)gs_write(fd, block + sent, (size_t)(n - sent), GS_FOREVER));
    CHECK(n == 0);
    MUST(gs_close(fd));
    MUST(gs_waitgroup_done(&connections));
}

static void accept_all(void *arg)
{
    int fd;

    (void)arg;
    while ((fd = gs_accept(listener, NULL, NULL, GS_FOREVER)) != -ECANCELED) {
        MUST(fd);
        MUST(gs_waitgroup_add(&connections, 1));
        MUST(gs_spawn(echo_back, (void *)(intptr_t)fd));
    }
}

static void *wait_for(void *arg)
{
    int status;
    CHECK(waitpid(*(pid_t *)arg, &status, 0) >= 0);
    CHECK(status == 0);
    return NULL;
}

/* Runs echoload, which is beside this program, and reports what it measures. */
static void load(int port, int connection_count, int64_t n)
{
    char path[4096], text[3][24], answer[100] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    CHECK(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "echoload");
    snprintf(text[0], sizeof text[0], "%d", port);
    snprintf(text[1], sizeof text[1], "%d", connection_count);
    snprintf(text[2], sizeof text[2], "%lld", (long long)n);
    char *argv[] = {path, text[0], text[1], text[2], NULL}, *environment[] = {NULL};

    /* Threads of the library have all signals blocked; its children need not. */
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    sigset_t none;
    int pipe_ends[2];
    pid_t pid;
    CHECK(pipe2(pipe_ends, O_CLOEXEC) == 0);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pipe_ends[1], STDOUT_FILENO);
    CHECK(posix_spawn(&pid, path, &files, &attributes, argv, environment) == 0);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    CHECK(close(pipe_ends[1]) == 0);

    size_t got = 0;
    for (int more; (more = MUST((int)gs_read(pipe_ends[0], answer + got, sizeof answer - 1 - got, GS_FOREVER))) > 0;)
        got += (size_t)more;
    MUST(gs_close(pipe_ends[0]));
    gs_blocking(wait_for, &pid);

    static const char *const names[][2] = {{"rate", "req/s"}, {"p99", "us"}, {"cpu", "us"}, {"switches", "switches"}};
    const char *at = answer;
    for (int i = 0, used; i < 4; i++, at += used) {
        double figure;
        CHECK(sscanf(at, "%lf%n", &figure, &used) == 1);
        snprintf(text[0], sizeof text[0], "echo.%s_%d", names[i][0], connection_count);
        report(text[0], figure, names[i][1]);
    }
}

void echo(int64_t n)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    struct rlimit limit;
    gs_g *acceptor;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max; /* as Go's runtime does */
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    listener = MUST(gs_tcp_listen("127.0.0.1", 0, 0));
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    int port = ntohs(address.sin_port);
    MUST(gs_spawn_with(accept_all, NULL, NULL, &acceptor));

    load(port, 1, n);
    load(port, 100, n);
    load(port, 1000, n);

    MUST(gs_waitgroup_wait(&connections, GS_FOREVER));
    MUST(gs_cancel(acceptor));
    MUST(gs_join(acceptor, GS_FOREVER));
    gs_release(acceptor);
    MUST(gs_close(listener));
}
