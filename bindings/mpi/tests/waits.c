/* Deadlines, cancelled goroutines, wrong input, plain threads, and what waiting costs. */
#include "test.h"

/* ---- Wrong input: MPI's own errors, and nothing else harmed ---- */

static void still_works(void)
{
    int out = rank + 1, in = 0;
    CHECK_EQ(gs_mpi_sendrecv(&out, 1, MPI_INT, rank, 1, &in, 1, MPI_INT, rank, 1, WORLD, MPI_STATUS_IGNORE), 0);
    CHECK_EQ(in, rank + 1);
}

TEST(wrong_arguments_give_errors_of_mpi)
{
    int x = 0, index;
    MPI_Status status;
    MPI_Message message;
    MPI_Request bad[2];
    char text[MPI_MAX_ERROR_STRING];
    CHECK_EQ(class_of(gs_mpi_send(&x, 1, MPI_INT, ranks, 1, WORLD)), MPI_ERR_RANK);
    CHECK_EQ(class_of(gs_mpi_send(&x, 1, MPI_INT, -77, 1, WORLD)), MPI_ERR_RANK);
    CHECK_EQ(class_of(gs_mpi_ssend(&x, 1, MPI_INT, 0, -5, WORLD)), MPI_ERR_TAG);
    CHECK_EQ(class_of(gs_mpi_send(&x, -1, MPI_INT, 0, 1, WORLD)), MPI_ERR_COUNT);
    CHECK_EQ(class_of(gs_mpi_send(&x, 1, MPI_DATATYPE_NULL, 0, 1, WORLD)), MPI_ERR_TYPE);
    CHECK_EQ(class_of(gs_mpi_send(&x, 1, MPI_INT, 0, 1, MPI_COMM_NULL)), MPI_ERR_COMM);
    CHECK_EQ(class_of(gs_mpi_recv(&x, 1, MPI_INT, ranks, 1, WORLD, &status, GS_FOREVER)), MPI_ERR_RANK);
    CHECK_EQ(class_of(gs_mpi_recv(&x, 1, MPI_INT, 0, 1, MPI_COMM_NULL, &status, GS_NOWAIT)), MPI_ERR_COMM);
    CHECK_EQ(class_of(gs_mpi_probe(ranks, 1, WORLD, &status, GS_FOREVER)), MPI_ERR_RANK);
    CHECK_EQ(class_of(gs_mpi_mprobe(0, 1, MPI_COMM_NULL, &message, &status, GS_FOREVER)), MPI_ERR_COMM);
    CHECK_EQ(class_of(gs_mpi_sendrecv(&x, 1, MPI_INT, ranks, 1, &x, 1, MPI_INT, 0, 1, WORLD, &status)), MPI_ERR_RANK);
    CHECK_EQ(class_of(gs_mpi_barrier(MPI_COMM_NULL)), MPI_ERR_COMM);
    CHECK_EQ(class_of(gs_mpi_bcast(&x, 1, MPI_INT, ranks, WORLD)), MPI_ERR_ROOT);
    CHECK_EQ(class_of(gs_mpi_allreduce(&x, &index, 1, MPI_INT, MPI_OP_NULL, WORLD)), MPI_ERR_OP);
    CHECK_EQ(class_of(gs_mpi_waitall(-1, bad, MPI_STATUSES_IGNORE, GS_FOREVER)), MPI_ERR_COUNT);
    CHECK(gs_mpi_waitany(2, NULL, &index, &status, GS_FOREVER) > 0);
    CHECK(strstr(gs_mpi_strerror(MPI_ERR_TRUNCATE, text), "TRUNCATE") != NULL);
    CHECK(strstr(gs_mpi_strerror(-EPERM, text), "gs_mpi_init") != NULL);
    CHECK(strstr(gs_mpi_strerror(-ETIMEDOUT, text), "deadline") != NULL);
    CHECK(strlen(gs_mpi_strerror(1 << 30, text)) > 0);
    still_works();
    CHECK_EQ(gs_mpi_barrier(WORLD), 0);
}

TEST(message_that_is_too_long)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    /* Both kinds: a message that is sent at once, and a large message, for which MPI asks the receiver first. */
    for (int n = 10; n <= 100000; n *= 10000) {
        int *out = (int *)calloc((size_t)n, sizeof(int)), *in = (int *)calloc((size_t)n, sizeof(int)), other;
        MPI_Request sent, got[2];
        MPI_Status s[2];
        MPI_Message message;
        CHECK(out != NULL && in != NULL);
        in[2] = 3;
        CHECK_EQ(MPI_Isend(out, n, MPI_INT, to, 9, WORLD, &sent), 0);
        CHECK_EQ(class_of(gs_mpi_recv(in, 2, MPI_INT, from, 9, WORLD, MPI_STATUS_IGNORE, GS_FOREVER)), MPI_ERR_TRUNCATE);
        /* Open MPI 4.1 writes a large message behind the buffer (bindings/mpi/README.md), so there is room. */
        if (n == 10)
            CHECK_EQ(in[2], 3);
        CHECK_EQ(gs_mpi_wait(&sent, MPI_STATUS_IGNORE, GS_FOREVER), 0);

        /* The receive is waiting when the message comes, and a good one beside it. Open MPI 4.1 doesn't report a
         * small message of a process to itself that is cut this way, so that one is for two ranks and more. */
        bool reported = n > 10 || ranks > 1;
        CHECK_EQ(MPI_Irecv(in, 2, MPI_INT, from, 10, WORLD, &got[0]), 0);
        CHECK_EQ(MPI_Irecv(&other, 1, MPI_INT, from, 11, WORLD, &got[1]), 0);
        CHECK_EQ(gs_mpi_waitall(2, got, s, gs_after_us(100)), -ETIMEDOUT);
        CHECK_EQ(gs_mpi_barrier(WORLD), 0);
        CHECK_EQ(MPI_Isend(out, reported ? n : 2, MPI_INT, to, 10, WORLD, &sent), 0);
        CHECK_EQ(gs_mpi_send(out, 1, MPI_INT, to, 11, WORLD), 0);
        CHECK_EQ(class_of(gs_mpi_waitall(2, got, s, GS_FOREVER)), reported ? MPI_ERR_IN_STATUS : MPI_SUCCESS);
        if (reported)
            CHECK_EQ(class_of(s[0].MPI_ERROR), MPI_ERR_TRUNCATE);
        CHECK_EQ(s[1].MPI_ERROR, MPI_SUCCESS);
        CHECK_EQ(s[1].MPI_TAG, 11);
        CHECK_EQ(gs_mpi_wait(&sent, MPI_STATUS_IGNORE, GS_FOREVER), 0);

        /* A request alone, which is waited for, or has completed before. */
        for (int before = 0; before < 2 && reported; before++) {
            int yes = 0;
            s[0].MPI_ERROR = MPI_SUCCESS;
            CHECK_EQ(MPI_Irecv(in, 2, MPI_INT, from, 13, WORLD, &got[0]), 0);
            CHECK_EQ(gs_mpi_barrier(WORLD), 0);
            CHECK_EQ(MPI_Isend(out, n, MPI_INT, to, 13, WORLD, &sent), 0);
            while (before && MPI_Request_get_status(got[0], &yes, MPI_STATUS_IGNORE) == MPI_SUCCESS && !yes)
                gs_yield();
            CHECK_EQ(class_of(gs_mpi_waitall(1, got, s, GS_FOREVER)), MPI_ERR_IN_STATUS);
            CHECK_EQ(class_of(s[0].MPI_ERROR), MPI_ERR_TRUNCATE);
            CHECK_EQ(gs_mpi_wait(&sent, MPI_STATUS_IGNORE, GS_FOREVER), 0);
        }

        CHECK_EQ(MPI_Isend(out, n, MPI_INT, to, 12, WORLD, &sent), 0);
        CHECK_EQ(gs_mpi_mprobe(from, 12, WORLD, &message, &s[0], GS_FOREVER), 0);
        CHECK_EQ(class_of(gs_mpi_mrecv(in, 2, MPI_INT, &message, &s[0])), MPI_ERR_TRUNCATE);
        CHECK_EQ(gs_mpi_wait(&sent, MPI_STATUS_IGNORE, GS_FOREVER), 0);
        free(out), free(in);
    }
    still_works();
    if (ranks == 1 && rank == 0)
        printf("skip, with one rank: a small message to itself that is cut, which Open MPI 4.1 doesn't report\n");
}

/* MPI leaves the MPI_ERROR of a status to the program, unless a function fills in several statuses. */
static void keeps_its_own_error(void *arg)
{
    int k = (int)(intptr_t)arg, in[2] = {0, 0}, from = (rank + ranks - 1) % ranks;
    int want = k < 2 || ranks == 1 ? 0 : MPI_ERR_TRUNCATE;
    MPI_Status s;
    MPI_Request r;
    memset(&s, 0, sizeof s);
    s.MPI_ERROR = 4711;
    if (k % 2 == 0) {
        CHECK_EQ(class_of(gs_mpi_recv(in, 1, MPI_INT, from, 40 + k, WORLD, &s, GS_FOREVER)), want);
    } else {
        CHECK_EQ(MPI_Irecv(in, 1, MPI_INT, from, 40 + k, WORLD, &r), 0);
        CHECK_EQ(class_of(gs_mpi_wait(&r, &s, GS_FOREVER)), want);
    }
    CHECK_EQ(s.MPI_ERROR, 4711);
    CHECK_EQ(s.MPI_SOURCE, from);
    CHECK_EQ(s.MPI_TAG, 40 + k);
}

TEST(status_of_one_request_keeps_its_error)
{
    int out[2] = {1, 2};
    gs_mpi_stats stats;
    gs_g *all[4];
    for (int k = 0; k < LENGTH(all); k++)
        all[k] = spawn(keeps_its_own_error, (void *)(intptr_t)k);
    do {
        gs_sleep(MS);
        gs_mpi_stats_read(&stats);
    } while (!stats.running); /* a receive waits, and the progress goroutine tests its request */
    CHECK_EQ(gs_mpi_barrier(WORLD), 0);
    for (int k = 0; k < LENGTH(all); k++)
        CHECK_EQ(gs_mpi_send(out, k < 2 || ranks == 1 ? 1 : 2, MPI_INT, (rank + 1) % ranks, 40 + k, WORLD), 0);
    for (int k = 0; k < LENGTH(all); k++)
        join(all[k]);
}

/* ---- Deadlines and gs_cancel ---- */

TEST(deadlines)
{
    int x = 0, index, done, indices[2];
    MPI_Status s[2];
    MPI_Message message;
    MPI_Request r[2];
    CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, 20, WORLD, s, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, 20, WORLD, s, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, 20, WORLD, s, 1), -ETIMEDOUT); /* long passed */
    CHECK_EQ(gs_mpi_probe(rank, 20, WORLD, s, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_mpi_probe(rank, 20, WORLD, s, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_mpi_mprobe(rank, 20, WORLD, &message, s, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(MPI_Irecv(&x, 1, MPI_INT, rank, 20, WORLD, &r[0]), 0);
    r[1] = MPI_REQUEST_NULL;
    CHECK_EQ(gs_mpi_wait(&r[0], s, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_mpi_wait(&r[0], s, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_mpi_waitall(2, r, s, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_mpi_waitany(2, r, &index, s, gs_after_ms(2)), -ETIMEDOUT);
    CHECK_EQ(gs_mpi_waitsome(2, r, &done, indices, s, gs_after_ms(2)), -ETIMEDOUT);
    /* the request is active as before */
    int seven = 7;
    CHECK_EQ(gs_mpi_send(&seven, 1, MPI_INT, rank, 20, WORLD), 0);
    CHECK_EQ(gs_mpi_waitany(2, r, &index, s, GS_FOREVER), 0);
    CHECK_EQ(index, 0);
    CHECK_EQ(x, 7);
    /* what is there is taken, whatever the deadline */
    CHECK_EQ(gs_mpi_send(&seven, 1, MPI_INT, rank, 21, WORLD), 0);
    CHECK_EQ(gs_mpi_probe(rank, 21, WORLD, s, GS_FOREVER), 0);
    x = 0;
    CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, 21, WORLD, s, 1), 0);
    CHECK_EQ(x, 7);
    /* a receive that the program takes back itself */
    CHECK_EQ(MPI_Irecv(&x, 1, MPI_INT, rank, 22, WORLD, &r[0]), 0);
    CHECK_EQ(gs_mpi_wait(&r[0], s, gs_after_ms(1)), -ETIMEDOUT);
    CHECK_EQ(MPI_Cancel(&r[0]), 0);
    CHECK_EQ(gs_mpi_wait(&r[0], s, GS_FOREVER), 0);
    CHECK_EQ(MPI_Test_cancelled(s, &done), 0);
    CHECK(done);
}

enum { VICTIMS = 30, TAG = 30 };
static int waiting;

static void waits_to_be_cancelled(void *arg)
{
    int kind = (int)(intptr_t)arg % 4, x = 0, index;
    MPI_Status s;
    MPI_Message message;
    MPI_Request r = MPI_REQUEST_NULL;
    if (kind == 3)
        CHECK_EQ(MPI_Irecv(&x, 1, MPI_INT, rank, TAG + 1, WORLD, &r), 0);
    ADD(waiting, 1);
    switch (kind) {
    case 0: CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, TAG, WORLD, &s, GS_FOREVER), -ECANCELED); break;
    case 1: CHECK_EQ(gs_mpi_probe(rank, TAG, WORLD, &s, GS_FOREVER), -ECANCELED); break;
    case 2: CHECK_EQ(gs_mpi_mprobe(rank, TAG, WORLD, &message, &s, GS_FOREVER), -ECANCELED); break;
    default:
        CHECK_EQ(gs_mpi_waitany(1, &r, &index, &s, GS_FOREVER), -ECANCELED);
        CHECK_EQ(gs_mpi_wait(&r, &s, GS_FOREVER), -ECANCELED);
        CHECK_EQ(MPI_Cancel(&r), 0);
        CHECK_EQ(gs_cancel_disable(), 0);
        CHECK_EQ(gs_mpi_wait(&r, &s, GS_FOREVER), 0);
        CHECK_EQ(gs_cancel_enable(), 0);
    }
    /* A cancelled goroutine can still send: the send is done at once, or finished because it can't be taken back. */
    CHECK_EQ(gs_mpi_sendrecv(&kind, 1, MPI_INT, rank, TAG + 2, &x, 1, MPI_INT, rank, TAG + 2, WORLD, &s), 0);
}

TEST(cancelled_goroutines_take_no_message)
{
    gs_g *all[VICTIMS];
    int out = 42, in = 0;
    waiting = 0;
    for (int k = 0; k < VICTIMS; k++)
        all[k] = spawn(waits_to_be_cancelled, (void *)(intptr_t)k);
    UNTIL(GET(waiting) == VICTIMS);
    for (int k = 0; k < VICTIMS; k++)
        CHECK_EQ(gs_cancel(all[k]), 0);
    for (int k = 0; k < VICTIMS; k++)
        join(all[k]);
    CHECK_EQ(gs_mpi_send(&out, 1, MPI_INT, rank, TAG, WORLD), 0);
    CHECK_EQ(gs_mpi_recv(&in, 1, MPI_INT, rank, TAG, WORLD, MPI_STATUS_IGNORE, GS_FOREVER), 0);
    CHECK_EQ(in, 42);
}

/* A receive is given up just when its message comes, again and again: each message is received once. The sender calls
 * gs_mpi_send, and then MPI_Isend itself, which may match the message with a receive on the sender's thread. */
enum { RACES = 300, LARGE = 20000 };
static bool sends_itself;

static void sends_at_odd_times(void *arg)
{
    uint64_t s = 5;
    int *buf = (int *)calloc(LARGE, sizeof(int));
    CHECK(buf != NULL);
    for (int k = 0; k < RACES; k++) {
        int n = k % (sends_itself ? 2 : 10) ? 1 : LARGE, to = sends_itself ? rank : (rank + 1) % ranks;
        MPI_Request request;
        gs_sleep(below(&s, 100000));
        buf[0] = k;
        if (sends_itself) {
            CHECK_EQ(MPI_Isend(buf, n, MPI_INT, to, 40, WORLD, &request), 0);
            CHECK_EQ(gs_mpi_wait(&request, MPI_STATUS_IGNORE, GS_FOREVER), 0);
        } else {
            CHECK_EQ(gs_mpi_send(buf, n, MPI_INT, to, 40, WORLD), 0);
        }
    }
    free(buf);
    (void)arg;
}

static int next_expected;

static void receives_impatiently(void *arg)
{
    uint64_t s = 6;
    int *buf = (int *)calloc(LARGE, sizeof(int));
    CHECK(buf != NULL);
    while (GET(next_expected) < RACES) {
        gs_deadline deadline = gs_after_us(below(&s, 100));
        if (below(&s, 20) == 0)
            deadline = sends_itself ? gs_after_ms(1000000) : GS_FOREVER;
        int r = gs_mpi_recv(buf, LARGE, MPI_INT, MPI_ANY_SOURCE, 40, WORLD, MPI_STATUS_IGNORE, deadline);
        if (r == -ECANCELED)
            break; /* another goroutine goes on */
        if (r == 0) {
            CHECK_EQ(buf[0], next_expected);
            ADD(next_expected, 1);
        } else {
            CHECK_EQ(r, -ETIMEDOUT);
        }
    }
    free(buf);
    (void)arg;
}

static void give_up_receives(bool itself)
{
    sends_itself = itself;
    next_expected = 0;
    gs_g *sender = spawn(sends_at_odd_times, NULL);
    while (GET(next_expected) < RACES) {
        gs_g *receiver = spawn(receives_impatiently, NULL);
        gs_sleep(3 * MS);
        CHECK_EQ(gs_cancel(receiver), 0);
        join(receiver);
    }
    join(sender);
    CHECK_EQ(next_expected, RACES);
}

TEST(no_message_is_lost_where_a_receive_is_given_up)
{
    give_up_receives(false);
}

TEST(no_message_that_mpi_isend_sends_is_lost_where_a_receive_is_given_up)
{
    give_up_receives(true);
}

/* ---- A wait that is given up while its first request completes ---- */

enum { IMPATIENT = 6000 };
static int over;

/* Each wait that is given up makes the progress goroutine look through all that wait. */
static void gives_up_for_ever(void *arg)
{
    int in;
    (void)arg;
    while (!GET(over))
        CHECK_EQ(gs_mpi_recv(&in, 1, MPI_INT, rank, 31, WORLD, MPI_STATUS_IGNORE, gs_after_us(5)), -ETIMEDOUT);
}

static int asked;

static void answers_about_when_the_wait_ends(void *arg)
{
    uint64_t s = 7;
    (void)arg;
    for (int k = 1; k <= IMPATIENT; k++) {
        while (GET(asked) < k)
            gs_yield();
        for (int64_t until = gs_now() + 5000 + below(&s, 60000); gs_now() < until;)
            gs_yield();
        CHECK_EQ(gs_mpi_send(&k, 1, MPI_INT, rank, 32, WORLD), 0);
    }
}

TEST(waitall_returns_0_only_when_all_have_completed)
{
    gs_g *others[] = {spawn(gives_up_for_ever, NULL), spawn(answers_about_when_the_wait_ends, NULL)};
    for (int k = 1; k <= IMPATIENT; k++) {
        int got[2] = {0, 0}, n;
        MPI_Request r[2];
        CHECK_EQ(MPI_Irecv(&got[0], 1, MPI_INT, rank, 32, WORLD, &r[0]), 0);
        CHECK_EQ(MPI_Irecv(&got[1], 1, MPI_INT, rank, 33, WORLD, &r[1]), 0);
        SET(asked, k);
        while (r[0] != MPI_REQUEST_NULL) {
            n = gs_mpi_waitall(2, r, MPI_STATUSES_IGNORE, gs_after_us(20));
            CHECK_EQ(n, -ETIMEDOUT);
            CHECK(r[1] != MPI_REQUEST_NULL);
        }
        CHECK_EQ(got[0], k);
        CHECK_EQ(gs_mpi_send(&k, 1, MPI_INT, rank, 33, WORLD), 0);
        CHECK_EQ(gs_mpi_waitall(2, r, MPI_STATUSES_IGNORE, GS_FOREVER), 0);
        CHECK_EQ(got[1], k);
    }
    SET(over, 1);
    for (int k = 0; k < LENGTH(others); k++)
        join(others[k]);
}

/* ---- Plain threads ---- */

static void *on_a_thread(void *arg)
{
    int out = 1000 + rank, in = 0, tag = 50 + (int)(intptr_t)arg;
    for (int k = 0; k < 20; k++) {
        CHECK_EQ(gs_mpi_recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, tag + 500, WORLD, MPI_STATUS_IGNORE, gs_after_us(50)), -ETIMEDOUT);
        CHECK_EQ(gs_mpi_sendrecv(&out, 1, MPI_INT, (rank + 1) % ranks, tag, &in, 1, MPI_INT, (rank + ranks - 1) % ranks,
                                 tag, WORLD, MPI_STATUS_IGNORE), 0);
        CHECK_EQ(in, 1000 + (rank + ranks - 1) % ranks);
    }
    return NULL;
}

TEST(plain_threads)
{
    pthread_t t[3];
    for (int k = 0; k < LENGTH(t); k++)
        CHECK_EQ(pthread_create(&t[k], NULL, on_a_thread, (void *)(intptr_t)k), 0);
    for (int k = 0; k < LENGTH(t); k++) {
        CHECK_EQ(gs_entersyscallblock(), 0);
        CHECK_EQ(pthread_join(t[k], NULL), 0);
        CHECK_EQ(gs_exitsyscall(), 0);
    }
}

/* ---- What waiting costs ---- */

enum { CROWD = 500, CROWD_TAG = 2000 };

static void waits_in_a_crowd(void *arg)
{
    int x = -1, k = (int)(intptr_t)arg;
    ADD(waiting, 1);
    CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, CROWD_TAG + k, WORLD, MPI_STATUS_IGNORE, GS_FOREVER), 0);
    CHECK_EQ(x, k);
}

TEST(waiting_goroutines_hold_no_p_and_an_idle_process_sleeps)
{
    gs_g *all[CROWD];
    gs_stats stats;
    gs_mpi_stats before, after;
    stats.size = sizeof stats;
    waiting = 0;
    for (int k = 0; k < CROWD; k++)
        all[k] = spawn(waits_in_a_crowd, (void *)(intptr_t)k);
    UNTIL(GET(waiting) == CROWD);

    /* All P's but this goroutine's have nothing to do. */
    do {
        gs_sleep(20 * MS);
        CHECK_EQ(gs_stats_read(&stats), 0);
    } while (stats.idle_procs + 1 < stats.procs);
    CHECK(stats.threads < stats.procs + 20);

    /* One poll in GS_MPI_SLEEP_MAX_NS, and no more. Some are more while it falls asleep. */
    gs_mpi_stats_read(&before);
    int64_t start = gs_now();
    gs_sleep(200 * MS);
    gs_mpi_stats_read(&after);
    int64_t polls = (int64_t)(after.polls - before.polls), most = (gs_now() - start) / GS_MPI_SLEEP_MAX_NS + 100;
    CHECK(after.running);
    if (polls > most)
        CHECK_EQ(polls, most);

    for (int k = 0; k < CROWD; k++)
        CHECK_EQ(gs_mpi_send(&k, 1, MPI_INT, rank, CROWD_TAG + k, WORLD), 0);
    for (int k = 0; k < CROWD; k++)
        join(all[k]);

    /* Nothing waits: the progress goroutine has ended, and the next wait starts another one. */
    do
        gs_mpi_stats_read(&before);
    while (before.running && gs_sleep(MS) == 0);
    do {
        CHECK_EQ(gs_mpi_recv(&waiting, 1, MPI_INT, rank, CROWD_TAG, WORLD, MPI_STATUS_IGNORE, gs_after_ms(1)), -ETIMEDOUT);
        gs_mpi_stats_read(&after);
    } while (after.started == before.started); /* without a start if the deadline had passed before it could wait */
}

static void computes(void *arg)
{
    volatile uint64_t *x = (volatile uint64_t *)arg;
    while (GET(waiting) != -1)
        ++*x;
}

TEST(messages_come_while_goroutines_compute)
{
    uint64_t work[16];
    gs_g *busy[16];
    int procs = gs_gomaxprocs(0), in = 0;
    waiting = 0;
    for (int k = 0; k < procs && k < 16; k++)
        busy[k] = spawn(computes, &work[k]);
    for (int k = 0; k < 3; k++)
        CHECK_EQ(gs_mpi_sendrecv(&k, 1, MPI_INT, (rank + 1) % ranks, 60, &in, 1, MPI_INT, (rank + ranks - 1) % ranks, 60,
                                 WORLD, MPI_STATUS_IGNORE), 0);
    CHECK_EQ(in, 2);
    SET(waiting, -1);
    for (int k = 0; k < procs && k < 16; k++)
        join(busy[k]);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
