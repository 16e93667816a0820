/* Programs of their own, because each ends MPI: life CASE. What each must print is in bindings/mpi/check. */
#include "test.h"

static int ended, waiting;

/* ---- finalize: MPI_Finalize while goroutines wait ---- */

static void waits_at_the_end(void *arg)
{
    int kind = (int)(intptr_t)arg, x = 0, index;
    MPI_Status s;
    MPI_Message message;
    MPI_Request r[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (kind >= 3)
        CHECK_EQ(MPI_Irecv(&x, 1, MPI_INT, rank, 1, WORLD, &r[0]), 0);
    ADD(waiting, 1);
    switch (kind) {
    case 0: CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, rank, 1, WORLD, &s, GS_FOREVER), -ESHUTDOWN); break;
    case 1: CHECK_EQ(gs_mpi_probe(rank, 1, WORLD, &s, gs_after_ms(100000)), -ESHUTDOWN); break;
    case 2: CHECK_EQ(gs_mpi_mprobe(rank, 1, WORLD, &message, &s, GS_FOREVER), -ESHUTDOWN); break;
    case 3: CHECK_EQ(gs_mpi_wait(&r[0], &s, GS_FOREVER), -ESHUTDOWN); break;
    case 4: CHECK_EQ(gs_mpi_waitany(2, r, &index, &s, GS_FOREVER), -ESHUTDOWN); break;
    default: CHECK_EQ(gs_mpi_waitall(2, r, MPI_STATUSES_IGNORE, GS_FOREVER), -ESHUTDOWN);
    }
    CHECK_EQ(gs_mpi_send(&x, 1, MPI_INT, rank, 1, WORLD), -ESHUTDOWN);
    CHECK_EQ(gs_mpi_barrier(WORLD), -ESHUTDOWN);
    ADD(ended, 1);
}

static void finalize(void *arg)
{
    char text[MPI_MAX_ERROR_STRING];
    gs_g *all[18];
    for (int k = 0; k < LENGTH(all); k++)
        all[k] = spawn(waits_at_the_end, (void *)(intptr_t)(k % 6));
    UNTIL(GET(waiting) == LENGTH(all));
    gs_sleep(5 * MS);
    CHECK_EQ(MPI_Finalize(), 0); /* by a goroutine */
    for (int k = 0; k < LENGTH(all); k++)
        join(all[k]);
    CHECK_EQ(ended, LENGTH(all));
    printf("%s; %s\n", gs_mpi_strerror(-ESHUTDOWN, text), gs_mpi_strerror(15, text));
    (void)arg;
}

/* ---- late: MPI_Finalize while a send waits for its receiver ---- */

static void sends_late(void *arg)
{
    int x = 7;
    CHECK_EQ(gs_mpi_ssend(&x, 1, MPI_INT, ranks - 1, 2, WORLD), 0);
    ADD(ended, 1);
    (void)arg;
}

static void *receives_late(void *arg)
{
    int x = 0;
    usleep(1500 * 1000);
    CHECK_EQ(MPI_Recv(&x, 1, MPI_INT, 0, 2, WORLD, MPI_STATUS_IGNORE), 0);
    CHECK_EQ(x, 7);
    return arg;
}

static void late(void *arg)
{
    pthread_t t;
    if (rank == ranks - 1)
        CHECK_EQ(pthread_create(&t, NULL, receives_late, NULL), 0);
    if (rank == 0) {
        gs_g *g = spawn(sends_late, NULL);
        gs_mpi_stats stats;
        do {
            gs_sleep(MS);
            gs_mpi_stats_read(&stats);
        } while (!stats.running); /* the send waits */
        CHECK_EQ(MPI_Finalize(), 0);
        join(g);
        printf("sent: %d\n", ended);
    }
    if (rank == ranks - 1) {
        CHECK_EQ(gs_entersyscallblock(), 0);
        pthread_join(t, NULL);
        CHECK_EQ(gs_exitsyscall(), 0);
    }
    if (rank != 0)
        CHECK_EQ(MPI_Finalize(), 0);
    (void)arg;
}

/* ---- single, serialized: MPI was initialised with too little; none: not at all ---- */

static void without(void *arg)
{
    int want = (int)(intptr_t)arg, x = 0;
    MPI_Request r = MPI_REQUEST_NULL;
    char text[MPI_MAX_ERROR_STRING];
    CHECK_EQ(gs_mpi_send(&x, 1, MPI_INT, 0, 1, WORLD), want);
    CHECK_EQ(gs_mpi_recv(&x, 1, MPI_INT, 0, 1, WORLD, MPI_STATUS_IGNORE, GS_FOREVER), want);
    CHECK_EQ(gs_mpi_barrier(WORLD), want);
    CHECK_EQ(gs_mpi_wait(&r, MPI_STATUS_IGNORE, GS_FOREVER), want);
    printf("%s\n", gs_mpi_strerror(want, text));
}

/* ---- die: a rank dies while the others wait for it ---- */

static void dies(void *arg)
{
    int x = 0;
    CHECK_EQ(gs_mpi_barrier(WORLD), 0);
    if (rank == ranks - 1) {
        gs_sleep(20 * MS);
        raise(SIGKILL);
    }
    gs_mpi_recv(&x, 1, MPI_INT, ranks - 1, 1, WORLD, MPI_STATUS_IGNORE, GS_FOREVER);
    printf("not reached\n");
    (void)arg;
}

/* ---- goes_on: the same where mpirun lets the others live; they go on without it ---- */

static void goes_on(void *arg)
{
    int x = 0, sum = 0;
    MPI_Comm living;
    CHECK_EQ(MPI_Comm_split(WORLD, rank == ranks - 1, rank, &living), 0);
    CHECK_EQ(gs_mpi_barrier(WORLD), 0);
    if (rank == ranks - 1)
        raise(SIGKILL);
    int r = gs_mpi_recv(&x, 1, MPI_INT, ranks - 1, 1, WORLD, MPI_STATUS_IGNORE, gs_after_ms(300));
    CHECK(r == -ETIMEDOUT || r > 0);
    for (int k = 0; k < 20; k++) {
        CHECK_EQ(gs_mpi_allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, living), 0);
        CHECK_EQ(sum, (ranks - 1) * (ranks - 2) / 2);
    }
    printf("rank %d went on\n", rank);
    fflush(stdout);
    _exit(0); /* MPI_Finalize would wait for all ranks */
    (void)arg;
}

int main(int argc, char **argv)
{
    int level, r;
    const char *what = argc > 1 ? argv[1] : "";
    now_running = what;
    if (strcmp(what, "none") == 0)
        return gs_run(without, (void *)(intptr_t)-EPERM);
    if (strcmp(what, "single") == 0 || strcmp(what, "serialized") == 0) {
        MPI_Init_thread(&argc, &argv, what[1] == 'i' ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED, &level);
        if (level >= MPI_THREAD_MULTIPLE) {
            printf("skip: this MPI always gives MPI_THREAD_MULTIPLE\n");
            return MPI_Finalize();
        }
        CHECK_EQ(gs_mpi_init(&argc, &argv), -ENOTSUP);
        CHECK_EQ(gs_run(without, (void *)(intptr_t)-ENOTSUP), 0);
        return MPI_Finalize();
    }
    CHECK_EQ(gs_mpi_init(&argc, &argv), 0);
    CHECK_EQ(gs_mpi_init(NULL, NULL), 0); /* a second time */
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &ranks);
    watchdog();
    r = strcmp(what, "finalize") == 0  ? gs_run(finalize, NULL)
        : strcmp(what, "late") == 0    ? gs_run(late, NULL)
        : strcmp(what, "die") == 0     ? gs_run(dies, NULL)
        : strcmp(what, "goes_on") == 0 ? gs_run(goes_on, NULL)
                                       : -EINVAL;
    CHECK_EQ(r, 0);
    return gs_shutdown(GS_FOREVER);
}
