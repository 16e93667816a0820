/*
 * A goroutine that was stolen to another node comes home through the poller: when its file is ready it runs
 * on the node where it first waited for that. It is never preempted: it would say where it is while it goes elsewhere.
 * seed: N6
 */
#include "lab.h"

#include <sys/socket.h>

#define TRIPS 6

static gs_chan *calls;
static int begun, reads, calls_taken, node, system_is;

static void note_where(void)
{
    SET(node, gs_numa_node());
    SET(system_is, node_here());
}

/* Waits for its file and for a call in turn. */
static void read_and_be_called(void *file)
{
    int fd = *(int *)file;
    int64_t call;
    char byte;
    SET(begun, 1);
    while (gs_read(fd, &byte, 1, GS_FOREVER) == 1) {
        note_where();
        ADD(reads, 1);
        if (gs_chan_recv(calls, &call, GS_FOREVER) != 0)
            return;
        note_where();
        ADD(calls_taken, 1);
    }
}

static void check_is_on(int want)
{
    CHECK_EQ(node, want);
    CHECK_EQ(system_is, system_node(want));
}

/* to_read is the goroutine's end of a pipe or socket, to_write the other. */
static void travel(int home, int away, int to_read, int to_write)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int trip, let_go = 1;
    begun = reads = calls_taken = 0;
    calls = chan_of_ints(0);
    gather_crowd(8);
    let_one_go(home);
    wait_until_idle(home, 1);
    opts.node = home;
    opts.flags = GS_SPAWN_NOPREEMPT;
    CHECK_EQ(gs_spawn_with(read_and_be_called, &to_read, &opts, NULL), 0);
    NAP_UNTIL(GET(begun)); /* so that it waits for the first byte here */
    for (trip = 1; trip <= TRIPS; trip++) {
        /* At home, while P's of both nodes are free. */
        wait_until_idle(home, trip > 1 ? 2 : 1);
        wait_until_idle(away, trip > 1 ? 1 : 0);
        CHECK_EQ(write(to_write, "x", 1), 1);
        NAP_UNTIL(GET(reads) == trip);
        check_is_on(home);
        /* Stolen: at home all P's are busy. It reads its file away from home. */
        wait_until_idle(home, trip > 1 ? 2 : 1);
        while (crowd.size - let_go < 8)
            add_to_crowd(-1);
        let_one_go(away);
        let_go++;
        wait_until_idle(away, 1);
        send_int(calls, 0);
        NAP_UNTIL(GET(calls_taken) == trip);
        check_is_on(away);
        wait_until_idle(away, 1);
        let_one_go(home);
        let_one_go(home);
        let_go += 2;
    }
    close(to_write);
    dismiss_crowd();
    close(to_read);
    free_chan(calls);
}

TEST(a_goroutine_comes_home_by_its_pipe)
{
    int near = node_at_distance(0, 21), far = node_at_distance(0, 31), fds[2];
    CHECK_EQ(pipe(fds), 0);
    travel(0, near, fds[0], fds[1]);
    CHECK_EQ(pipe(fds), 0);
    travel(0, far, fds[0], fds[1]);
}

TEST(a_goroutine_comes_home_by_its_socket)
{
    int fds[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    travel(3, node_at_distance(3, 31), fds[0], fds[1]);
}
