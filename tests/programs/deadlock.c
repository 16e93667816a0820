/*
 * Deadlock: reported, and the process aborted, when nothing can ever wake a goroutine; no false alarm
 * while something can. seed: S8
 * Each case is a process of its own, because the watchdog of a hanging one is part of the answer.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/time.h>

static gs_chan *ch;

/* ---- Real ones: all is in gs_run on the only thread of the host ---- */

static void receive_for_ever(void *arg)
{
    (void)gs_chan_recv(ch, NULL, GS_FOREVER);
    (void)arg;
}

CHILD(receive_without_a_sender)
{
    ch = chan_of_ints(0);
    (void)gs_run(receive_for_ever, NULL);
}

static void select_nothing(void *arg)
{
    (void)gs_select(NULL, 0, GS_FOREVER);
    (void)arg;
}

CHILD(select_of_nothing)
{
    (void)gs_run(select_nothing, NULL);
}

static void lock_twice(void *arg)
{
    static gs_mutex m;
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    (void)gs_mutex_lock(&m, GS_FOREVER);
}

CHILD(a_mutex_locked_twice)
{
    (void)gs_run(lock_twice, NULL);
}

static void wait_for_done_that_never_comes(void *arg)
{
    static gs_waitgroup wg;
    (void)arg;
    CHECK_EQ(gs_waitgroup_add(&wg, 1), 0);
    (void)gs_waitgroup_wait(&wg, GS_FOREVER);
}

CHILD(a_waitgroup_without_done)
{
    (void)gs_run(wait_for_done_that_never_comes, NULL);
}

static void many_wait(void *arg)
{
    int i;
    for (i = 0; i < 100; i++)
        go(receive_for_ever, NULL);
    CHECK_EQ(gs_sleep(10 * MS), 0); /* a timer: no deadlock yet */
    receive_for_ever(arg);
}

CHILD(many_that_wait)
{
    ch = chan_of_ints(0);
    (void)gs_run(many_wait, NULL);
}

static void *return_at_once(void *arg)
{
    return arg;
}

static void wait_after_blocking(void *arg)
{
    (void)gs_blocking(return_at_once, NULL);
    gs_entersyscall();
    gs_exitsyscall();
    receive_for_ever(arg);
}

CHILD(a_wait_after_system_calls)
{
    ch = chan_of_ints(0);
    (void)gs_run(wait_after_blocking, NULL);
}

static int slow_file;

static void write_through(void *group)
{
    char block[4096] = "";
    int i;
    for (i = 0; i < 8; i++)
        CHECK_EQ(gs_pwrite(slow_file, block, sizeof block, i * 4096, GS_FOREVER), sizeof block);
    CHECK_EQ(gs_waitgroup_done(group), 0);
}

/* Whoever writes for these goroutines sleeps when they have done. */
static void wait_after_writes(void *arg)
{
    static gs_waitgroup writers;
    char name[] = "/tmp/gosched-deadlock-XXXXXX";
    int i;
    slow_file = mkostemp(name, O_DSYNC | O_CLOEXEC);
    CHECK_GE(slow_file, 0);
    CHECK_EQ(unlink(name), 0);
    CHECK_EQ(gs_waitgroup_add(&writers, 4), 0);
    for (i = 0; i < 4; i++)
        go(write_through, &writers);
    CHECK_EQ(gs_waitgroup_wait(&writers, GS_FOREVER), 0);
    receive_for_ever(arg);
}

CHILD(a_wait_after_writes_to_a_disk)
{
    ch = chan_of_ints(0);
    (void)gs_run(wait_after_writes, NULL);
}

static void receive_in_a_call(void *arg)
{
    gs_entersyscall();
    receive_for_ever(arg);
    gs_exitsyscall();
}

static void *receive_while_blocking(void *arg)
{
    receive_for_ever(arg);
    return NULL;
}

static void receive_in_gs_blocking(void *arg)
{
    (void)gs_blocking(receive_while_blocking, arg);
}

/* Its thread waits in this library, though it has announced another call. */
CHILD(waits_in_announced_calls)
{
    ch = chan_of_ints(0);
    go(receive_in_a_call, NULL);
    go(receive_in_gs_blocking, NULL);
    (void)gs_run(receive_for_ever, NULL);
}

static void *run_receiver(void *arg)
{
    (void)gs_run(receive_for_ever, NULL);
    return arg;
}

/* Timers and deadlines of an hour that are over before their time. */
static void do_nothing(void *arg)
{
    (void)arg;
}

static void wait_after_timers(void *arg)
{
    gs_timer *stopped = gs_timer_start(3600 * SEC, do_nothing, NULL);
    gs_timer *freed = gs_timer_start(3600 * SEC, do_nothing, NULL);
    gs_timer *sooner = gs_timer_start(3600 * SEC, do_nothing, NULL);
    CHECK_EQ(gs_timer_stop(stopped), 1);
    CHECK_EQ(gs_timer_free(freed), 0);
    CHECK_EQ(gs_timer_reset(sooner, MS), 1);
    free_chan(gs_after(3600 * SEC));
    receive_for_ever(arg);
}

CHILD(a_wait_after_stopped_timers)
{
    ch = chan_of_ints(0);
    (void)gs_run(wait_after_timers, NULL);
}

static void send_soon(void *arg)
{
    CHECK_EQ(gs_sleep(MS), 0);
    send_int(ch, 1);
    (void)arg;
}

static void wait_after_deadline(void *arg)
{
    int64_t v;
    go(send_soon, NULL);
    CHECK_EQ(gs_chan_recv(ch, &v, gs_after_ms(3600 * 1000)), 0);
    receive_for_ever(arg);
}

CHILD(a_wait_after_an_early_end)
{
    ch = chan_of_ints(0);
    (void)gs_run(wait_after_deadline, NULL);
}

/* The kernel lists the main thread until the process ends. */
CHILD(the_main_thread_has_ended)
{
    ch = chan_of_ints(0);
    start_thread(run_receiver, NULL);
    pthread_exit(NULL);
}

TEST(a_deadlock_is_reported_and_aborts)
{
    static const char *const cases[] = {"receive_without_a_sender", "select_of_nothing", "a_mutex_locked_twice",
                                        "a_waitgroup_without_done", "many_that_wait",    "a_wait_after_system_calls",
                                        "a_wait_after_writes_to_a_disk", "waits_in_announced_calls",
                                        "a_wait_after_stopped_timers", "a_wait_after_an_early_end",
                                        "the_main_thread_has_ended"};
    struct outcome out;
    size_t i;
    for (i = 0; i < LENGTH(cases); i++) {
        check_child_dies(cases[i], SIGABRT, &out);
        CHECK_HAS(out.text, "deadlock");
    }
}

/* ---- What the report says ---- */

static gs_mutex locked;
static gs_cond cond;
static gs_waitgroup group;
static gs_sem none;

static void send_for_ever(void *arg)
{
    int64_t v = 1;
    (void)gs_chan_send(ch, &v, GS_FOREVER);
    (void)arg;
}

static void lock_for_ever(void *arg)
{
    (void)gs_mutex_lock(&locked, GS_FOREVER);
    (void)arg;
}

static void wait_in_group(void *arg)
{
    (void)gs_waitgroup_wait(&group, GS_FOREVER);
    (void)arg;
}

static void acquire_for_ever(void *arg)
{
    (void)gs_sem_acquire(&none, 1, GS_FOREVER);
    (void)arg;
}

static void wait_in_cond(void *arg)
{
    static gs_mutex m;
    (void)gs_mutex_lock(&m, GS_FOREVER);
    (void)gs_cond_wait(&cond, &m, GS_FOREVER);
    (void)arg;
}

static void park_for_ever(void *arg)
{
    (void)gs_park(NULL, NULL, GS_FOREVER);
    (void)arg;
}

static void join_it(void *g)
{
    (void)gs_join(g, GS_FOREVER);
}

static void wait_in_every_way(void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_fn ways[] = {send_for_ever, lock_for_ever, wait_in_group, acquire_for_ever, wait_in_cond, park_for_ever};
    size_t i;
    ch = chan_of_ints(0);
    CHECK_EQ(gs_mutex_lock(&locked, GS_FOREVER), 0);
    CHECK_EQ(gs_waitgroup_add(&group, 1), 0);
    for (i = 0; i < LENGTH(ways); i++)
        go(ways[i], NULL);
    opts.name = "named\nin \"two\" lines";
    go(join_it, go_opts(select_nothing, NULL, &opts));
    CHECK_EQ(gs_sleep(5 * MS), 0);
    ch = chan_of_ints(0);
    receive_for_ever(arg);
}

CHILD(all_ways_to_wait)
{
    (void)gs_run(wait_in_every_way, NULL);
}

TEST(the_report_lists_who_waits_for_what_and_where_it_comes_from)
{
    struct outcome out;
    check_child_dies("all_ways_to_wait", SIGABRT, &out);
    CHECK_HAS(out.text, "waits to receive from a channel; spawned at ");
    CHECK_HAS(out.text, "waits to send to a channel");
    CHECK_HAS(out.text, "waits for a mutex");
    CHECK_HAS(out.text, "waits for a wait group");
    CHECK_HAS(out.text, "waits for a semaphore");
    CHECK_HAS(out.text, "waits for a condition");
    CHECK_HAS(out.text, "waits for gs_ready");
    CHECK_HAS(out.text, "waits for the end of a goroutine");
    /* A line break in a name breaks no line of the report. */
    CHECK_HAS(out.text, "\"named\\nin \\\"two\\\" lines\" waits in a select without channels");
    CHECK_HAS(out.text, "spawned at wait_in_every_way (");
    CHECK_HAS(out.text, "\n    gs_chan_recv (");
    CHECK_HAS(out.text, "\n    receive_for_ever (");
    CHECK_HAS(out.text, "/deadlock.c:");
    CHECK_HAS(out.text, "by goroutine 1");
    CHECK_HAS(out.text, "by a thread");
}

/* ---- A handler in place of it ---- */

static int calls;

static void note(void *ctx)
{
    CHECK(ctx == &calls);
    ADD(calls, 1);
}

static void receive_two(void *arg)
{
    CHECK_EQ(recv_int(ch), 7);
    CHECK_EQ(recv_int(ch), 8);
    (void)arg;
}

static void *run_it(void *arg)
{
    CHECK_EQ(gs_run(receive_two, NULL), 0);
    return arg;
}

CHILD(a_handler_is_told)
{
    int64_t v = 7;
    pthread_t t;
    int i;
    ch = chan_of_ints(0);
    CHECK_EQ(gs_set_deadlock_handler(note, &calls), 0);
    t = start_thread(run_it, NULL);
    for (i = 0; i < 2; i++, v++) {
        /* This thread could call in at any time, so it is none yet. */
        nap(50 * MS);
        CHECK_EQ(GET(calls), 0);
        CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
    }
    join_thread(t);
}

static void wake(void *ctx)
{
    int64_t v = 7 + (ADD(calls, 1) - 1);
    CHECK_EQ(gs_chan_send(ctx, &v, GS_NOWAIT), 0);
}

CHILD(a_handler_can_wake)
{
    ch = chan_of_ints(0);
    CHECK_EQ(gs_set_deadlock_handler(wake, ch), 0);
    CHECK_EQ(gs_run(receive_two, NULL), 0);
    CHECK_EQ(GET(calls), 2);
    CHECK_EQ(gs_set_deadlock_handler(NULL, NULL), 0);
}

static void count_reports(void *ctx)
{
    (void)ctx;
    CHECK_EQ(ADD(calls, 1), 1);
}

/* At its second call after the report, which leaves time for another report. */
static void leave_after_the_report(int sig)
{
    static int told;
    (void)sig;
    if (told)
        _exit(0);
    told = GET(calls) == 1;
}

/* The handler wakes no goroutine. So all goroutines still wait after the runtime has called it. */
CHILD(a_handler_is_told_once)
{
    struct itimerval often = {{0, 100000}, {0, 100000}};
    ch = chan_of_ints(0);
    CHECK_EQ(gs_set_deadlock_handler(count_reports, NULL), 0);
    signal(SIGALRM, leave_after_the_report);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    (void)gs_run(receive_for_ever, NULL);
}

TEST(a_handler_is_called_in_place_of_the_report)
{
    check_child_succeeds("a_handler_is_told");
    check_child_succeeds("a_handler_can_wake");
    check_child_succeeds("a_handler_is_told_once");
}

/* ---- Holds and the log ---- */

static void leave_by_signal(int sig)
{
    (void)sig;
    _exit(0);
}

/* All goroutines wait and no thread could wake one; a signal handler ends the wait. */
CHILD(held)
{
    struct itimerval soon = {{0, 0}, {0, 400000}};
    ch = chan_of_ints(0);
    CHECK_EQ(gs_hold(), 0);
    CHECK_EQ(gs_hold(), 0);
    CHECK_EQ(gs_unhold(), 0);
    signal(SIGALRM, leave_by_signal);
    CHECK_EQ(setitimer(ITIMER_REAL, &soon, NULL), 0);
    (void)gs_run(receive_for_ever, NULL);
}

static void *run_receiver_held(void *arg)
{
    (void)gs_run(receive_for_ever, NULL);
    return arg;
}

CHILD(held_no_more)
{
    ch = chan_of_ints(0);
    CHECK_EQ(gs_hold(), 0);
    (void)start_thread(run_receiver_held, NULL);
    nap(100 * MS);
    CHECK_EQ(gs_unhold(), 0);
    CHECK_EQ(gs_unhold(), -EPERM);
    pthread_exit(NULL);
}

TEST(a_hold_says_that_something_outside_can_wake)
{
    struct outcome out;
    check_child_succeeds("held");
    check_child_dies("held_no_more", SIGABRT, &out);
    CHECK_HAS(out.text, "all goroutines are asleep");
}

static void log_line(void *ctx, const char *line)
{
    CHECK(strchr(line, '\n') == NULL);
    fprintf(stderr, "<%s: %s>\n", (const char *)ctx, line);
}

CHILD(report_to_the_log)
{
    ch = chan_of_ints(0);
    CHECK_EQ(gs_set_log(log_line, "log"), 0);
    (void)gs_run(receive_for_ever, NULL);
}

TEST(what_the_library_says_goes_to_the_log)
{
    struct outcome out;
    check_child_dies("report_to_the_log", SIGABRT, &out);
    CHECK_HAS(out.text, "<log: gosched: all goroutines are asleep - deadlock!>");
    CHECK_HAS(out.text, "<log:   goroutine ");
}

/* ---- False ones ---- */

static void *send_later(void *arg)
{
    nap(80 * MS);
    send_int(ch, 1);
    return arg;
}

static void receive_one(void *arg)
{
    (void)arg;
    CHECK_EQ(recv_int(ch), 1);
}

CHILD(a_thread_of_the_host_sends_later)
{
    pthread_t t;
    ch = chan_of_ints(0);
    t = start_thread(send_later, NULL);
    CHECK_EQ(gs_run(receive_one, NULL), 0);
    join_thread(t);
    free_chan(ch);
}

CHILD(the_main_thread_sends_later)
{
    gs_g *g;
    ch = chan_of_ints(0);
    g = go_ref(receive_one, NULL);
    (void)send_later(NULL);
    join(g);
    free_chan(ch);
}

static void sleep_long(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(80 * MS), 0);
}

CHILD(all_sleep)
{
    CHECK_EQ(gs_run(sleep_long, NULL), 0);
}

static void sleep_longest(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(INT64_MAX), 0);
}

static void end_well(int sig)
{
    (void)sig;
    _exit(0);
}

/* A time in 292 years, not never. The signal ends the process: a thread that ran would be no deadlock. */
CHILD(one_sleeps_for_the_longest_time)
{
    struct itimerval in_half_a_second = {{0, 0}, {0, 500000}};
    CHECK_EQ(signal(SIGALRM, end_well) != SIG_ERR, 1);
    CHECK_EQ(setitimer(ITIMER_REAL, &in_half_a_second, NULL), 0);
    CHECK_EQ(gs_run(sleep_longest, NULL), 0);
}

/* With a channel for what f waits for. */
static void run_to_its_end(gs_fn f)
{
    ch = chan_of_ints(0);
    CHECK_EQ(gs_run(f, NULL), 0);
    free_chan(ch);
}

static void wait_with_deadline(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_chan_recv(ch, NULL, gs_after_ms(80)), -ETIMEDOUT);
}

CHILD(a_wait_has_a_deadline)
{
    run_to_its_end(wait_with_deadline);
}

static void send_one(void *arg)
{
    (void)arg;
    send_int(ch, 1);
}

static void wait_for_timer(void *arg)
{
    gs_timer *t = gs_timer_start(80 * MS, send_one, NULL);
    receive_one(arg);
    CHECK_EQ(gs_timer_free(t), 0);
}

CHILD(a_timer_will_fire)
{
    run_to_its_end(wait_for_timer);
}

static void wait_for_one_of_several(void *arg)
{
    gs_timer *stopped = gs_timer_start(3600 * SEC, do_nothing, NULL);
    CHECK_EQ(gs_timer_stop(stopped), 1);
    wait_for_timer(arg);
    CHECK_EQ(gs_timer_free(stopped), 0);
}

CHILD(one_of_several_timers_will_fire)
{
    run_to_its_end(wait_for_one_of_several);
}

static void send_after_system_call(void *arg)
{
    gs_entersyscall();
    nap(80 * MS);
    gs_exitsyscall();
    send_one(arg);
}

static void wait_for_system_call(void *arg)
{
    go(send_after_system_call, NULL);
    receive_one(arg);
}

CHILD(one_is_in_a_system_call)
{
    run_to_its_end(wait_for_system_call);
}

static void send_after_blocking(void *arg)
{
    (void)arg;
    (void)gs_blocking(send_later, NULL);
}

static void wait_for_blocking(void *arg)
{
    go(send_after_blocking, NULL);
    receive_one(arg);
}

CHILD(one_is_in_gs_blocking)
{
    run_to_its_end(wait_for_blocking);
}

static void nothing(void *arg)
{
    (void)arg;
}

CHILD(nothing_is_there_at_all)
{
    CHECK_EQ(gs_run(nothing, NULL), 0);
    nap(80 * MS);
    CHECK_EQ(gs_run(nothing, NULL), 0);
}

/* gs_run has returned: the main thread may still wake the waiter. */
static void leave_a_waiter(void *arg)
{
    go(receive_one, arg);
    CHECK_EQ(gs_sleep(MS), 0);
}

CHILD(run_has_returned_and_one_waits)
{
    ch = chan_of_ints(0);
    CHECK_EQ(gs_run(leave_a_waiter, NULL), 0);
    (void)send_later(NULL);
}

/* A process may end while goroutines wait. */
CHILD(exit_while_one_waits)
{
    ch = chan_of_ints(0);
    CHECK_EQ(gs_run(leave_a_waiter, NULL), 0);
    exit(0);
}

/*
 * A thread that has been woken may be long in coming, here because of a signal handler: it is not
 * blocked any more, and wakes others when it comes.
 */
static gs_sem wakes_thread;
static int in_handler;

static void be_slow(int sig)
{
    (void)sig;
    SET(in_handler, 1);
    nap(400 * MS);
}

static void *sleep_then_send(void *arg)
{
    CHECK_EQ(gs_sem_acquire(&wakes_thread, 1, GS_FOREVER), 0);
    send_int(ch, 1);
    return arg;
}

static void wake_a_slow_thread(void *thread)
{
    CHECK_EQ(gs_sleep(50 * MS), 0); /* it waits by now */
    CHECK_EQ(pthread_kill(*(pthread_t *)thread, SIGUSR1), 0);
    WAIT_UNTIL(GET(in_handler));
    CHECK_EQ(gs_sem_release(&wakes_thread, 1), 0);
    CHECK_EQ(recv_int(ch), 1);
}

CHILD(a_woken_thread_is_slow)
{
    struct sigaction sa = {0};
    pthread_t t;
    sa.sa_handler = be_slow;
    sa.sa_flags = SA_RESTART;
    CHECK_EQ(sigaction(SIGUSR1, &sa, NULL), 0);
    ch = chan_of_ints(0);
    t = start_thread(sleep_then_send, NULL);
    CHECK_EQ(gs_run(wake_a_slow_thread, &t), 0);
    join_thread(t);
    free_chan(ch);
}

TEST(there_is_no_false_alarm)
{
    static const char *const cases[] = {"a_thread_of_the_host_sends_later",
                                        "the_main_thread_sends_later",
                                        "all_sleep",
                                        "one_sleeps_for_the_longest_time",
                                        "a_wait_has_a_deadline",
                                        "a_timer_will_fire",
                                        "one_of_several_timers_will_fire",
                                        "one_is_in_a_system_call",
                                        "one_is_in_gs_blocking",
                                        "nothing_is_there_at_all",
                                        "run_has_returned_and_one_waits",
                                        "exit_while_one_waits",
                                        "a_woken_thread_is_slow"};
    size_t i;
    for (i = 0; i < LENGTH(cases); i++)
        check_child_succeeds(cases[i]);
}
