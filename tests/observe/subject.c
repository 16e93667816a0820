/* What the tests of this folder look at: it does what the lines of its standard input say, and answers each with a
 * line. */
#define _GNU_SOURCE
#include <errno.h>
#include <gosched.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static gs_chan *never;
static atomic_bool calm;
static atomic_int busy;

static void wait_forever(void *arg)
{
    char c;
    (void)arg;
    (void)gs_chan_recv(never, &c, GS_FOREVER);
}

static void compute(void *arg)
{
    (void)arg;
    atomic_fetch_add(&busy, 1);
    while (!atomic_load(&calm))
        continue;
    atomic_fetch_sub(&busy, 1);
}

static void yield(void *arg)
{
    (void)arg;
    atomic_fetch_add(&busy, 1);
    while (!atomic_load(&calm))
        gs_yield();
    atomic_fetch_sub(&busy, 1);
}

static void *sleep_in_call(void *arg)
{
    (void)arg;
    while (!atomic_load(&calm))
        usleep(1000);
    return NULL;
}

static void call(void *arg)
{
    (void)arg;
    atomic_fetch_add(&busy, 1);
    (void)gs_blocking(sleep_in_call, NULL);
    atomic_fetch_sub(&busy, 1);
}

static void lock_thread(void *arg)
{
    (void)gs_lock_os_thread();
    wait_forever(arg);
}

static void spawn(gs_fn f, const char *name, int n)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.name = name;
    for (int i = 0; i < n; i++)
        if (gs_spawn_with(f, NULL, &opts, NULL) != 0)
            abort();
}

static void print_stats(void)
{
    gs_stats s = {.size = sizeof s};
    if (gs_stats_read(&s) != 0)
        abort();
#define PRINT(field) printf("%s\"" #field "\":%" PRIu64, before, s.field), before = ","
    const char *before = "{";
    PRINT(goroutines); PRINT(created); PRINT(ended); PRINT(procs); PRINT(idle_procs); PRINT(threads);
    PRINT(switches); PRINT(handoffs); PRINT(steals_near); PRINT(steals_remote_queue); PRINT(steals_remote_p);
    PRINT(stacks_sent_home); PRINT(migrations); PRINT(pages_moved); PRINT(runnable); PRINT(running);
    PRINT(in_calls); PRINT(waiting); PRINT(calls); PRINT(loans); PRINT(stack_bytes); PRINT(thread_limit_hits);
    PRINT(run_wait_ns); PRINT(lock_wait_ns); PRINT(stop_ns); PRINT(pause_ns);
    printf(",\"run_waits\":[");
    for (int i = 0; i < GS_RUN_WAITS; i++)
        printf("%s%" PRIu64, i ? "," : "", s.run_waits[i]);
    printf("]}\n");
}

/* How many sockets and eventfds the child of a fork has, and whether it can use the library and end. */
static void fork_child(void)
{
    pid_t child;
    int status = -1;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int sockets = 0;
        for (int fd = 3; fd < 4096; fd++) {
            char path[64], what[64] = "";
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            if (readlink(path, what, sizeof what - 1) > 0)
                sockets += strncmp(what, "socket:", 7) == 0 || strstr(what, "eventfd") != NULL;
        }
        printf("%d", sockets);
        exit(0); /* its exit handlers are the parent's */
    }
    waitpid(child, &status, 0);
    printf(" %d\n", status);
}

int main(int argc, char **argv)
{
    char line[256], what[32];
    never = gs_chan_make(1, 0);
    if (argc > 1 && strcmp(argv[1], "deadlock") == 0)
        return gs_run(wait_forever, NULL);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    while (fgets(line, sizeof line, stdin)) {
        int n = 0;
        if (sscanf(line, "%31s %d", what, &n) < 1)
            continue;
        if (strcmp(what, "init") == 0) {
            printf("%d\n", gs_init(NULL));
        } else if (strcmp(what, "stats") == 0) {
            print_stats();
        } else if (strcmp(what, "wait") == 0) {
            spawn(wait_forever, "waits \"long\"", n);
            printf("0\n");
        } else if (strcmp(what, "lock") == 0) {
            spawn(lock_thread, NULL, n);
            printf("0\n");
        } else if (strcmp(what, "compute") == 0 || strcmp(what, "yield") == 0 || strcmp(what, "call") == 0) {
            atomic_store(&calm, false);
            int before = atomic_load(&busy), more = n;
            spawn(*what == 'c' && what[1] == 'o' ? compute : *what == 'y' ? yield : call, what, n);
            while (atomic_load(&busy) < before + more)
                usleep(1000);
            printf("0\n");
        } else if (strcmp(what, "calm") == 0) {
            atomic_store(&calm, true);
            while (atomic_load(&busy) > 0)
                usleep(1000);
            printf("0\n");
        } else if (strcmp(what, "end") == 0) {
            (void)gs_chan_close(never);
            atomic_store(&calm, true);
            printf("%d\n", gs_shutdown(GS_FOREVER));
        } else if (strcmp(what, "fork") == 0) {
            fork_child();
        } else if (strcmp(what, "exit") == 0) {
            return 0;
        }
        fflush(stdout);
    }
    return 0;
}
