/*
 * What a goroutine that accepts connections spawns goes to the nodes in turn, so all of them serve alike many. Nodes
 * that are idle help a node whose CPUs stand still; on this machine none does (placed.c says why).
 * seed: N7
 * lab: machine=counted:2/256,2/256,2/256,2/256
 */
#include "lab.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define CONNECTIONS 64
#define ROUNDS 5

static int listener, clients[CONNECTIONS];
static long queued_on[4], begun_on[4], ran_on[4];
static int accepted;

static struct sockaddr_in start_listening(void)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    listener = gs_tcp_listen("127.0.0.1", 0, 2 * CONNECTIONS);
    CHECK_GE(listener, 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    return address;
}

static int connect_one(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_GE(fd, 0);
    CHECK_EQ(connect(fd, (const struct sockaddr *)address, sizeof *address), 0);
    return fd;
}

/* Answers each byte with the node where it runs. */
static void serve(void *connection)
{
    int fd = (int)(intptr_t)connection;
    char byte;
    ADD(begun_on[gs_numa_node()], 1);
    while (gs_read(fd, &byte, 1, GS_FOREVER) == 1) {
        byte = (char)gs_numa_node();
        CHECK_EQ(gs_write(fd, &byte, 1, GS_FOREVER), 1);
    }
    CHECK_EQ(gs_close(fd), 0);
}

static void accept_all(void *arg)
{
    int i, n;
    (void)arg;
    for (i = 0; i < CONNECTIONS; i++) {
        int fd = gs_accept(listener, NULL, NULL, GS_FOREVER);
        CHECK_GE(fd, 0);
        go(serve, (void *)(intptr_t)fd);
    }
    for (n = 0; n < 4; n++)
        queued_on[n] = (long)stats_of(n).goroutines;
    SET(accepted, 1);
}

static void ask(int client)
{
    char byte = 'x';
    CHECK_EQ(write(client, &byte, 1), 1);
}

static void take_answer(int client)
{
    char byte;
    CHECK_EQ(read(client, &byte, 1), 1);
    CHECK_LE((unsigned char)byte, 3);
    ran_on[(int)byte]++;
}

/* Within 20 % of even; all connections, this number of times. */
static void check_even(const char *what, const long on[4], int times)
{
    long even = times * CONNECTIONS / 4;
    int n;
    printf("%s: %ld %ld %ld %ld\n", what, on[0], on[1], on[2], on[3]);
    CHECK_EQ(on[0] + on[1] + on[2] + on[3], 4 * even);
    for (n = 0; n < 4; n++) {
        CHECK_GE(5 * on[n], 4 * even);
        CHECK_LE(5 * on[n], 6 * even);
    }
}

static void hang_up(void)
{
    int i;
    for (i = 0; i < CONNECTIONS; i++)
        close(clients[i]);
    CHECK_EQ(gs_close(listener), 0);
}

/* All other P's are busy, so that nothing is taken until it is counted. */
TEST(connections_that_come_at_once_are_dealt_to_the_nodes_in_turn)
{
    struct sockaddr_in address = start_listening();
    int i;
    for (i = 0; i < CONNECTIONS; i++)
        clients[i] = connect_one(&address);
    gather_crowd(8);
    let_one_go(0);
    gs_release(go_steady(accept_all, NULL));
    NAP_UNTIL(GET(accepted));
    check_even("queued", queued_on, 1);
    for (i = 0; i < 4; i++)
        CHECK_EQ(queued_on[i], CONNECTIONS / 4);
    hang_up();
    dismiss_crowd();
}

/*
 * An M that looks for work takes what was spawned for another P. On this machine looking takes milliseconds, because the
 * instruction `pause` ends an emulated CPU's turn.
 */
static void wait_until_all_are_idle(void)
{
    int n;
    for (n = 0; n < 4; n++)
        wait_until_idle(n, 2);
}

/*
 * One after the other, with all nodes idle each time if `idle`; then all are asked at the same time, when an idle node
 * may help another.
 */
static void serve_all(int idle)
{
    struct sockaddr_in address = start_listening();
    int i, round;
    gs_release(go_ref(accept_all, NULL));
    for (i = 0; i < CONNECTIONS; i++) {
        if (idle)
            wait_until_all_are_idle();
        clients[i] = connect_one(&address);
        ask(clients[i]);
        take_answer(clients[i]);
    }
    check_even("begun", begun_on, 1);
    check_even("served one by one", ran_on, 1);
    memset(ran_on, 0, sizeof ran_on);
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < CONNECTIONS; i++)
            ask(clients[i]);
        for (i = 0; i < CONNECTIONS; i++)
            take_answer(clients[i]);
    }
    if (!idle)
        check_even("served at once", ran_on, ROUNDS);
    hang_up();
}

TEST(idle_nodes_serve_connections_alike)
{
    serve_all(1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

static int rest;

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

TEST(busy_nodes_serve_connections_alike)
{
    int i;
    for (i = 0; i < 8; i++)
        gs_release(go_steady(work, NULL));
    for (i = 0; i < 4; i++)
        wait_until_idle(i, 0);
    serve_all(0);
    SET(rest, 1);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}
