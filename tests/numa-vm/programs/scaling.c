/*
 * What one operation takes, in instructions of all CPUs together, and how often goroutines are stolen, as P's are
 * added: the clock of this machine counts instructions.
 * seed: S3, S6
 * lab: machine=counted:2/256,2/256,2/256,2/256
 */
#include "lab.h"

enum { DEPTH = 14, YIELDERS = 64, YIELDS = 1000, PAIRS = 16, MESSAGES = 2000, LOCKERS = 16, LOCKS = 10000 };

static gs_waitgroup done;

static void one_is_done(void)
{
    CHECK_EQ(gs_waitgroup_done(&done), 0);
}

/* A tree: each spawns two and ends. */
static void branch(void *depth)
{
    if (depth) {
        go(branch, (void *)((intptr_t)depth - 1));
        go(branch, (void *)((intptr_t)depth - 1));
    }
    one_is_done();
}

static long tree(void)
{
    long n = (2L << DEPTH) - 1;
    CHECK_EQ(gs_waitgroup_add(&done, n), 0);
    go(branch, (void *)(intptr_t)DEPTH);
    return n;
}

/* Starts n goroutines that run fn; each will do its work `each` times. */
static long start_all(gs_fn fn, int n, long each)
{
    int i;
    CHECK_EQ(gs_waitgroup_add(&done, n), 0);
    for (i = 0; i < n; i++)
        go(fn, NULL);
    return n * each;
}

static void yield_often(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < YIELDS; i++)
        gs_yield();
    one_is_done();
}

static long yields(void)
{
    return start_all(yield_often, YIELDERS, YIELDS);
}

static void send_all(void *ch)
{
    int i;
    for (i = 0; i < MESSAGES; i++)
        send_int(ch, i);
    one_is_done();
}

static void receive_all(void *ch)
{
    int i;
    for (i = 0; i < MESSAGES; i++)
        CHECK_EQ(recv_int(ch), i);
    one_is_done();
}

static gs_chan *lines[PAIRS];

static long messages(void)
{
    int i;
    CHECK_EQ(gs_waitgroup_add(&done, 2 * PAIRS), 0);
    for (i = 0; i < PAIRS; i++) {
        go(send_all, lines[i]);
        go(receive_all, lines[i]);
    }
    return PAIRS * MESSAGES;
}

static gs_mutex mutex;
static long locked;

static void lock_often(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < LOCKS; i++) {
        CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
        locked++;
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    }
    one_is_done();
}

static long locks(void)
{
    return start_all(lock_often, LOCKERS, LOCKS);
}

static const struct {
    const char *name;
    long (*start)(void);
} workloads[] = {{"tree", tree}, {"yield", yields}, {"message", messages}, {"mutex", locks}};

static gs_stats stats(void)
{
    gs_stats s = {.size = sizeof s};
    CHECK_EQ(gs_stats_read(&s), 0);
    return s;
}

GO_TEST(few_goroutines_are_stolen_however_many_ps_there_are)
{
    size_t w, i;
    int procs;
    for (i = 0; i < PAIRS; i++)
        lines[i] = chan_of_ints(0);
    printf("P's  workload  instructions/operation  steals/goroutine\n");
    for (procs = 1; procs <= 8; procs *= 2) {
        CHECK_GE(gs_gomaxprocs(procs), 1);
        for (w = 0; w < LENGTH(workloads); w++) {
            gs_stats before, after;
            double instructions, steals, born;
            int64_t start;
            long n;
            /* What is used for the first time isn't counted. */
            (void)workloads[w].start();
            CHECK_EQ(gs_waitgroup_wait(&done, GS_FOREVER), 0);
            before = stats();
            start = clock_now();
            n = workloads[w].start();
            CHECK_EQ(gs_waitgroup_wait(&done, GS_FOREVER), 0);
            instructions = (double)(clock_now() - start) / (double)n;
            after = stats();
            steals = (double)(after.steals_near - before.steals_near) +
                     (double)(after.steals_remote_queue - before.steals_remote_queue) +
                     (double)(after.steals_remote_p - before.steals_remote_p);
            born = (double)(after.created - before.created);
            printf("%3d  %-8s  %22.0f  %16.3f\n", procs, workloads[w].name, instructions, steals / born);
            CHECK(procs > 1 || steals == 0);
            CHECK(steals <= born);
        }
    }
    for (i = 0; i < PAIRS; i++)
        free_chan(lines[i]);
    CHECK_EQ(locked, 4 * 2 * LOCKERS * LOCKS);
}
