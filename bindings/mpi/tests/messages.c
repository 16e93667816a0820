/* Messages between many goroutines of all ranks, in every way that MPI has to send and to receive. */
#include "test.h"

enum { MESSAGES = 600, TEAM = 8, LARGEST = 40000, WINDOW = 5 };

/* The plan of all messages, the same on each rank. Message i has tag i. A sender and a receiver work through theirs
 * in the order of i, so the message with the least i that isn't through can always go on. */
struct message {
    int from, sender, to, receiver, length; /* length: in ints */
};

static struct message plan[MESSAGES];
static uint64_t seed = 1;

static void make_plan(void)
{
    uint64_t s = seed;
    for (int i = 0; i < MESSAGES; i++) {
        static const int sizes[] = {0, 1, 10, 1000, LARGEST};
        plan[i].from = below(&s, ranks);
        plan[i].to = below(&s, ranks);
        plan[i].sender = below(&s, TEAM);
        plan[i].receiver = below(&s, TEAM);
        int largest = sizes[below(&s, LENGTH(sizes))];
        plan[i].length = largest == 0 ? 0 : below(&s, largest) + 1;
    }
}

static int value(int i, int k)
{
    return (int)((unsigned)i * 2654435761u + (unsigned)k);
}

static int *filled(int i)
{
    int *buf = (int *)malloc(sizeof(int) * (size_t)(plan[i].length + 1));
    CHECK(buf != NULL);
    for (int k = 0; k < plan[i].length; k++)
        buf[k] = value(i, k);
    return buf;
}

static void check_content(int i, const int *buf, const MPI_Status *status)
{
    int n;
    CHECK_EQ(status->MPI_SOURCE, plan[i].from);
    CHECK_EQ(status->MPI_TAG, i);
    CHECK_EQ(MPI_Get_count(status, MPI_INT, &n), 0);
    CHECK_EQ(n, plan[i].length);
    for (int k = 0; k < n; k++)
        if (buf[k] != value(i, k))
            CHECK_EQ(buf[k], value(i, k));
}

static void sends(void *arg)
{
    int me = (int)(intptr_t)arg, held = 0, indices[WINDOW], done;
    uint64_t s = seed + 1000 + (uint64_t)me;
    MPI_Request requests[WINDOW];
    MPI_Status statuses[WINDOW];
    int *bufs[WINDOW];

    for (int i = 0; i <= MESSAGES; i++) {
        bool mine = i < MESSAGES && plan[i].from == rank && plan[i].sender == me;
        int way = below(&s, 4);
        /* Before a send that waits for its receiver all earlier ones must be through, else two could wait for
         * each other; and at the end. */
        if (held > 0 && (i == MESSAGES || (mine && (way == 0 || held == WINDOW)))) {
            if (below(&s, 2) == 0) {
                CHECK_EQ(gs_mpi_waitall(held, requests, MPI_STATUSES_IGNORE, GS_FOREVER), 0);
            } else {
                do
                    CHECK_EQ(gs_mpi_waitsome(held, requests, &done, indices, statuses, GS_FOREVER), 0);
                while (done != MPI_UNDEFINED);
            }
            for (int k = 0; k < held; k++)
                free(bufs[k]);
            held = 0;
        }
        if (!mine)
            continue;
        int *buf = filled(i);
        if (way == 0) {
            CHECK_EQ(gs_mpi_ssend(buf, plan[i].length, MPI_INT, plan[i].to, i, WORLD), 0);
            free(buf);
        } else if (way == 1 && held == 0) {
            CHECK_EQ(gs_mpi_send(buf, plan[i].length, MPI_INT, plan[i].to, i, WORLD), 0);
            free(buf);
        } else {
            bufs[held] = buf;
            CHECK_EQ(MPI_Isend(buf, plan[i].length, MPI_INT, plan[i].to, i, WORLD, &requests[held]), 0);
            held++;
        }
    }
}

static void receives(void *arg)
{
    int me = (int)(intptr_t)arg, n, posted = 0;
    uint64_t s = seed + 2000 + (uint64_t)me;
    MPI_Request requests[WINDOW];
    int *bufs[WINDOW], which[WINDOW];
    int *buf = (int *)malloc(sizeof(int) * (LARGEST + 1));
    CHECK(buf != NULL);

    for (int i = 0; i < MESSAGES; i++) {
        MPI_Status status;
        MPI_Message message;
        if (plan[i].to != rank || plan[i].receiver != me)
            continue;
        switch (below(&s, 5)) {
        case 0:
            CHECK_EQ(gs_mpi_recv(buf, LARGEST, MPI_INT, plan[i].from, i, WORLD, &status, GS_FOREVER), 0);
            break;
        case 1: /* not lost, however often the receive is given up */
            while ((n = gs_mpi_recv(buf, LARGEST, MPI_INT, MPI_ANY_SOURCE, i, WORLD, &status,
                                    below(&s, 3) == 0 ? GS_NOWAIT : gs_after_us(below(&s, 300)))) != 0) {
                CHECK(n == -ETIMEDOUT || n == -EAGAIN);
                gs_yield();
            }
            break;
        case 2:
            CHECK_EQ(gs_mpi_mprobe(MPI_ANY_SOURCE, i, WORLD, &message, &status, GS_FOREVER), 0);
            CHECK_EQ(MPI_Get_count(&status, MPI_INT, &n), 0);
            CHECK_EQ(n, plan[i].length);
            CHECK_EQ(gs_mpi_mrecv(buf, n, MPI_INT, &message, &status), 0);
            break;
        case 3:
            CHECK_EQ(gs_mpi_probe(plan[i].from, i, WORLD, &status, GS_FOREVER), 0);
            CHECK_EQ(gs_mpi_recv(buf, plan[i].length, MPI_INT, status.MPI_SOURCE, i, WORLD, &status, GS_FOREVER), 0);
            break;
        default: /* posted, and waited for later */
            bufs[posted] = (int *)malloc(sizeof(int) * (LARGEST + 1));
            CHECK(bufs[posted] != NULL);
            which[posted] = i;
            CHECK_EQ(MPI_Irecv(bufs[posted], LARGEST, MPI_INT, plan[i].from, i, WORLD, &requests[posted]), 0);
            if (++posted < WINDOW)
                continue;
            for (; posted > 0; posted--) {
                int k;
                while ((n = gs_mpi_waitany(WINDOW, requests, &k, &status, gs_after_us(500))) == -ETIMEDOUT)
                    ;
                CHECK_EQ(n, 0);
                CHECK(k >= 0 && k < WINDOW);
                CHECK(requests[k] == MPI_REQUEST_NULL);
                check_content(which[k], bufs[k], &status);
                free(bufs[k]);
            }
            continue;
        }
        check_content(i, buf, &status);
    }
    if (posted > 0) {
        MPI_Status statuses[WINDOW];
        while ((n = gs_mpi_waitall(posted, requests, statuses, gs_after_ms(2))) == -ETIMEDOUT) {
            /* the statuses of those that have completed are gone with the next call: check them here */
            for (int k = 0; k < posted; k++)
                if (requests[k] == MPI_REQUEST_NULL && bufs[k] != NULL) {
                    check_content(which[k], bufs[k], &statuses[k]);
                    free(bufs[k]);
                    bufs[k] = NULL;
                }
        }
        CHECK_EQ(n, 0);
        for (int k = 0; k < posted; k++)
            if (bufs[k] != NULL) {
                check_content(which[k], bufs[k], &statuses[k]);
                free(bufs[k]);
            }
    }
    free(buf);
}

TEST(random_mixtures_arrive_whole_and_in_place)
{
    for (int round = 0; round < 3; round++) {
        gs_g *all[2 * TEAM];
        make_plan();
        for (int k = 0; k < TEAM; k++) {
            all[2 * k] = spawn(receives, (void *)(intptr_t)k);
            all[2 * k + 1] = spawn(sends, (void *)(intptr_t)k);
        }
        for (int k = 0; k < LENGTH(all); k++)
            join(all[k]);
        CHECK_EQ(gs_mpi_barrier(WORLD), 0);
        seed++;
    }
}

/* ---- Every message to one of many receivers, once ---- */

enum { LETTERS = 200, READERS = 10, POST = 7, LAST = 8 };
static int seen[64 * LETTERS], seen_in_all;

static void reads(void *arg)
{
    bool matched = arg != NULL;
    for (;;) {
        MPI_Message message;
        MPI_Status status;
        int got = -1, n;
        if (matched) {
            CHECK_EQ(gs_mpi_mprobe(MPI_ANY_SOURCE, POST, WORLD, &message, &status, GS_FOREVER), 0);
            CHECK_EQ(gs_mpi_mrecv(&got, 1, MPI_INT, &message, &status), 0);
        } else {
            CHECK_EQ(gs_mpi_recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, POST, WORLD, &status, GS_FOREVER), 0);
        }
        MPI_Get_count(&status, MPI_INT, &n);
        if (n == 0)
            return; /* the end */
        CHECK(got >= 0 && got < ranks * LETTERS);
        CHECK_EQ(got / LETTERS, status.MPI_SOURCE);
        ADD(seen[got], 1);
        ADD(seen_in_all, 1);
    }
}

static void writes(void *arg)
{
    int what = rank * LETTERS + (int)(intptr_t)arg;
    CHECK_EQ(gs_mpi_send(&what, 1, MPI_INT, 0, POST, WORLD), 0);
}

TEST(any_of_many_receivers_gets_each_message_once)
{
    gs_g *readers[READERS], *writers[LETTERS];
    memset(seen, 0, sizeof seen);
    seen_in_all = 0;
    for (int k = 0; rank == 0 && k < READERS; k++)
        readers[k] = spawn(reads, k % 2 ? &seen : NULL);
    for (int k = 0; k < LETTERS; k++)
        writers[k] = spawn(writes, (void *)(intptr_t)k);
    for (int k = 0; k < LETTERS; k++)
        join(writers[k]);
    if (rank == 0) {
        UNTIL(GET(seen_in_all) == ranks * LETTERS);
        for (int k = 0; k < READERS; k++)
            CHECK_EQ(gs_mpi_send(NULL, 0, MPI_INT, 0, POST, WORLD), 0);
        for (int k = 0; k < READERS; k++)
            join(readers[k]);
        for (int k = 0; k < ranks * LETTERS; k++)
            CHECK_EQ(seen[k], 1);
    }
}

TEST(sendrecv_in_a_ring)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, n = 30000;
    int *out = (int *)calloc((size_t)n, sizeof(int)), *in = (int *)calloc((size_t)n, sizeof(int));
    CHECK(out != NULL && in != NULL);
    out[n - 1] = rank;
    for (int hop = 1; hop <= ranks; hop++) {
        MPI_Status status;
        CHECK_EQ(gs_mpi_sendrecv(out, n, MPI_INT, next, hop, in, n, MPI_INT, before, hop, WORLD, &status), 0);
        CHECK_EQ(status.MPI_SOURCE, before);
        int *swap = out;
        out = in, in = swap;
    }
    CHECK_EQ(out[n - 1], rank); /* all around */
    free(out), free(in);
}

TEST(persistent_and_null_requests)
{
    MPI_Request r[4];
    MPI_Status s[4];
    int in = 0, out = 0, index, done, indices[4];
    for (int k = 0; k < 4; k++)
        r[k] = MPI_REQUEST_NULL;
    CHECK_EQ(gs_mpi_wait(&r[0], &s[0], GS_FOREVER), 0);
    CHECK_EQ(s[0].MPI_SOURCE, MPI_ANY_SOURCE);
    CHECK_EQ(gs_mpi_waitall(4, r, s, GS_FOREVER), 0);
    CHECK_EQ(gs_mpi_waitall(0, NULL, MPI_STATUSES_IGNORE, GS_FOREVER), 0);
    CHECK_EQ(gs_mpi_waitany(4, r, &index, &s[0], GS_FOREVER), 0);
    CHECK_EQ(index, MPI_UNDEFINED);
    CHECK_EQ(gs_mpi_waitsome(4, r, &done, indices, s, GS_FOREVER), 0);
    CHECK_EQ(done, MPI_UNDEFINED);

    CHECK_EQ(MPI_Recv_init(&in, 1, MPI_INT, rank, 3, WORLD, &r[1]), 0);
    CHECK_EQ(MPI_Send_init(&out, 1, MPI_INT, rank, 3, WORLD, &r[2]), 0);
    CHECK_EQ(gs_mpi_waitall(4, r, s, GS_FOREVER), 0); /* not started: nothing to wait for */
    for (int k = 1; k < 100; k++) {
        out = k;
        CHECK_EQ(MPI_Start(&r[1]), 0);
        CHECK_EQ(gs_mpi_wait(&r[1], &s[1], gs_after_us(100)), -ETIMEDOUT);
        CHECK_EQ(MPI_Start(&r[2]), 0);
        CHECK_EQ(gs_mpi_waitall(4, r, s, GS_FOREVER), 0);
        CHECK_EQ(in, k);
        CHECK(r[1] != MPI_REQUEST_NULL && r[2] != MPI_REQUEST_NULL && r[0] == MPI_REQUEST_NULL);
        /* one active, one not: the inactive one isn't waited for */
        CHECK_EQ(MPI_Start(&r[1]), 0);
        CHECK_EQ(gs_mpi_waitall(4, r, s, gs_after_us(100)), -ETIMEDOUT);
        CHECK_EQ(MPI_Start(&r[2]), 0);
        CHECK_EQ(gs_mpi_waitall(4, r, s, GS_FOREVER), 0);
    }
    CHECK_EQ(MPI_Request_free(&r[1]), 0);
    CHECK_EQ(MPI_Request_free(&r[2]), 0);
}

int main(int argc, char **argv)
{
    if (getenv("SEED") != NULL)
        seed = strtoull(getenv("SEED"), NULL, 0);
    return test_main(argc, argv);
}
