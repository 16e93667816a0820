/*
 * A model of a server: each of 64 connections has a goroutine and 64 KiB of state, all of which it touches for each
 * request. Counts how many of these pages are on another node than the CPU that touches them, for four ways to
 * place the state that differ in one line. docs/numa.md has the table.
 */
#include "lab.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define CONNECTIONS 64
#define REQUESTS 4
#define STATE (64 << 10)
#define STATE_PAGES (STATE / PAGE)

enum placement { LOCAL, STRIPED, ONE_NODE, FIRST_TOUCH, PLACEMENTS };

static const char *const names[] = {
    "gs_numa_alloc, GS_NUMA_LOCAL, by the connection's goroutine",
    "gs_numa_alloc, GS_NUMA_STRIPE",
    "gs_numa_alloc, all on node 0",
    "malloc, touched first by the goroutine that accepts",
};

struct connection {
    int fd;
    char *state;
};

static enum placement placement;
static struct connection connections[CONNECTIONS];
static long pages, remote;
static int listener, begun, ended, rest;

/* The state is touched, and the pages that are elsewhere are counted. */
static void touch(char *state)
{
    long on[4];
    int i, here = node_here();
    for (i = 0; i < STATE_PAGES; i++)
        state[i * PAGE]++;
    CHECK_EQ(count_pages(state, STATE, on), STATE_PAGES);
    ADD(pages, STATE_PAGES);
    ADD(remote, STATE_PAGES - on[here]);
}

static void serve(void *arg)
{
    static const int policies[] = {GS_NUMA_LOCAL, GS_NUMA_STRIPE, 0};
    struct connection *c = arg;
    char byte;
    if (placement != FIRST_TOUCH)
        c->state = gs_numa_alloc(STATE, policies[placement]);
    CHECK(c->state != NULL);
    ADD(begun, 1);
    while (gs_read(c->fd, &byte, 1, GS_FOREVER) == 1) {
        touch(c->state);
        CHECK_EQ(gs_write(c->fd, &byte, 1, GS_FOREVER), 1);
    }
    CHECK_EQ(gs_close(c->fd), 0);
    if (placement != FIRST_TOUCH)
        gs_numa_free(c->state, STATE);
    else
        free(c->state);
    ADD(ended, 1);
}

static void accept_all(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &connections[i];
        c->fd = gs_accept(listener, NULL, NULL, GS_FOREVER);
        CHECK_GE(c->fd, 0);
        if (placement == FIRST_TOUCH) {
            CHECK_EQ(posix_memalign((void **)&c->state, PAGE, STATE), 0);
            memset(c->state, 0, STATE);
        }
        go(serve, c);
    }
}

static void ask_all(const int fds[CONNECTIONS])
{
    char byte = 'x';
    int i;
    for (i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(write(fds[i], &byte, 1), 1);
    for (i = 0; i < CONNECTIONS; i++)
        CHECK_EQ(read(fds[i], &byte, 1), 1);
}

/* The share of remote pages in percent. The clients are in this thread. */
static double run(enum placement how)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int fds[CONNECTIONS], i;
    placement = how;
    pages = remote = begun = ended = 0;
    listener = gs_tcp_listen("127.0.0.1", 0, 2 * CONNECTIONS);
    CHECK_GE(listener, 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    for (i = 0; i < CONNECTIONS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_GE(fds[i], 0);
        CHECK_EQ(connect(fds[i], (struct sockaddr *)&address, size), 0);
    }
    gs_release(go_ref(accept_all, NULL));
    NAP_UNTIL(GET(begun) == CONNECTIONS);
    /* gs_numa_alloc says where memory comes from, not who touches it first; one alone is much faster here. */
    for (i = 0; i < CONNECTIONS; i++)
        memset(connections[i].state, 1, STATE);
    for (i = 0; i < REQUESTS; i++)
        ask_all(fds);
    for (i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    NAP_UNTIL(GET(ended) == CONNECTIONS);
    CHECK_EQ(gs_close(listener), 0);
    CHECK_EQ(pages, CONNECTIONS * REQUESTS * STATE_PAGES);
    return 100.0 * (double)remote / (double)pages;
}

/* Something else that there is to do, on each P: one without work would steal. */
static void work(void *arg)
{
    (void)arg;
    while (!GET(rest)) {
        volatile int i;
        for (i = 0; i < 1000; i++)
            ;
        gs_yield();
    }
}

TEST(local_placement_makes_few_accesses_remote)
{
    double share[PLACEMENTS];
    int how, i;
    for (i = 0; i < 8; i++)
        gs_release(go_steady(work, NULL));
    for (i = 0; i < 4; i++)
        wait_until_idle(i, 0);
    for (how = 0; how < PLACEMENTS; how++)
        share[how] = run((enum placement)how);
    printf("remote accesses  where the state of a connection is\n");
    for (how = 0; how < PLACEMENTS; how++)
        printf("%13.1f %%  %s\n", share[how], names[how]);
    CHECK_LE(share[LOCAL], 10);
    CHECK_GE(share[STRIPED], 70);
    CHECK_LE(share[STRIPED], 80);
    CHECK_GE(share[ONE_NODE], 60);
    CHECK_GE(share[FIRST_TOUCH], 60);
    SET(rest, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}
