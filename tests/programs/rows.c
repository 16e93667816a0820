/*
 * Decisions of the scheduler that a program can see.
 * seed: S5 (goroutines stay where they are), S11 (threads are made with restraint), S12 (one P needs
 * one thread), N8 (a receiver before a sender)
 */
#include "check.h"

static gs_chan *ping, *pong;

static void count(void *n)
{
    ADD(*(long *)n, 1);
}

/* seed: S5 */

static void answer(void *rounds)
{
    long i;
    for (i = 0; i < *(long *)rounds; i++)
        send_int(pong, recv_int(ping));
}

GO_TEST(two_that_talk_stay_on_one_thread_as_a_rule)
{
    long rounds = 20000, i, moves = 0;
    gs_g *other;
    pid_t at;
    if (getenv("GOSCHED_DEBUG"))
        SKIP("GOSCHED_DEBUG makes goroutines move");
    ping = chan_of_ints(0);
    pong = chan_of_ints(0);
    other = go_ref(answer, &rounds);
    at = thread_id();
    for (i = 0; i < rounds; i++) {
        send_int(ping, i);
        CHECK_EQ(recv_int(pong), i);
        if (thread_id() != at) {
            at = thread_id();
            moves++;
        }
    }
    join(other);
    CHECK_LE(moves, rounds / 10);
    free_chan(ping);
    free_chan(pong);
}

/* seed: S11 */

/* The caller's, sysmon, and those that run goroutines. On a busy machine, where any P may stand still, there
 * are others that look after them. */
static long threads_of_the_scheduler(void)
{
    return 2 + count_threads_named("gosched");
}

GO_TEST(much_work_takes_few_threads)
{
    long n = 0, i;
    int procs = gs_gomaxprocs(0);
    for (i = 0; i < 100000; i++) {
        go(count, &n);
        if (i % 100 == 0)
            gs_yield();
    }
    WAIT_UNTIL(GET(n) == 100000);
    CHECK_LE(threads_of_the_scheduler(), 2 * procs + 3); /* with the caller's, sysmon, and one on its way */
}

/* seed: S12 */

static void use_everything(void *arg)
{
    long n = 0, i;
    gs_mutex m = {0};
    gs_chan *ch = chan_of_ints(1);
    for (i = 0; i < 1000; i++) {
        go(count, &n);
        gs_yield();
        CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
        CHECK_EQ(gs_mutex_unlock(&m), 0);
        send_int(ch, i);
        CHECK_EQ(recv_int(ch), i);
    }
    CHECK_EQ(gs_sleep(2 * MS), 0);
    WAIT_UNTIL(GET(n) == 1000);
    free_chan(ch);
    *(long *)arg = threads_of_the_scheduler();
}

CHILD(count_threads_of_one_p)
{
    long threads = 0;
    CHECK_EQ(setenv("GOSCHED_PROCS", "1", 1), 0);
    CHECK_EQ(gs_run(use_everything, &threads), 0);
    CHECK_EQ(threads, 2); /* the caller's, which runs everything, and sysmon */
}

TEST(one_p_needs_one_thread)
{
    check_child_succeeds("count_threads_of_one_p");
}

/* seed: N8 */

static char order[3];

static void note(char who)
{
    order[order[0] != 0] = who;
}

static void receive(void *ch)
{
    (void)recv_int(ch);
    note('r');
}

static void send(void *ch)
{
    send_int(ch, 1);
    note('s');
}

static int receiver_ran_first(int receiver_first)
{
    gs_chan *in = chan_of_ints(0), *out = chan_of_ints(0);
    gs_g *receiver = go_steady(receive, in), *sender = go_steady(send, out);
    gs_yield();
    gs_yield(); /* both wait */
    memset(order, 0, sizeof order);
    if (receiver_first)
        send_int(in, 1);
    CHECK_EQ(recv_int(out), 1);
    if (!receiver_first)
        send_int(in, 1);
    join(receiver);
    join(sender);
    CHECK_EQ(strlen(order), 2);
    free_chan(in);
    free_chan(out);
    return order[0] == 'r';
}

/* Now and then another queue has its turn, so that no goroutine starves: not each time. */
static void wake_in_either_order(void *arg)
{
    int i, firsts = 0;
    (void)arg;
    for (i = 0; i < 200; i++)
        firsts += receiver_ran_first(i % 2);
    CHECK_GE(firsts, 150);
}

GO_TEST(a_receiver_runs_before_a_sender)
{
    int procs = gs_gomaxprocs(1);
    if (getenv("GOSCHED_DEBUG"))
        SKIP("GOSCHED_DEBUG changes the order");
    join(go_steady(wake_in_either_order, NULL)); /* not preempted between the two */
    gs_gomaxprocs(procs);
}
