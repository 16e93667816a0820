/*
 * What waiting costs: mpirun -n 2 target/mpi/cost [SECONDS]
 *
 * First the CPU time that a process takes while one goroutine, and then 1,000, wait for a message that doesn't come
 * (SECONDS each, 5). Then a message to the other rank and back: MPI_Send and MPI_Recv, which spin, in turn with
 * gs_mpi_send and gs_mpi_recv; the least and the median of 40 rounds of 500.
 */
#include <time.h>
#include <unistd.h>

#include "gosched_mpi.h"

enum { ROUNDS = 40, TRIPS = 500, CROWD = 1000 };

static int rank;
static double seconds = 5;

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void waits(void *arg)
{
    char x;
    gs_mpi_recv(&x, 1, MPI_CHAR, rank, (int)(intptr_t)arg, MPI_COMM_WORLD, MPI_STATUS_IGNORE, GS_FOREVER);
}

static void idle(int n)
{
    char x = 0;
    gs_mpi_stats before, after;
    for (int k = 0; k < n; k++)
        gs_spawn(waits, (void *)(intptr_t)k);
    gs_sleep(200000000);
    gs_mpi_stats_read(&before);
    double cpu = cpu_ms();
    int64_t start = gs_now();
    gs_sleep((gs_duration)(seconds * 1e9));
    gs_mpi_stats_read(&after);
    double took = (double)(gs_now() - start) / 1e9;
    printf("rank %d, %4d wait: %.2f ms CPU per second, %.0f polls per second\n", rank, n, (cpu_ms() - cpu) / took,
           (double)(after.polls - before.polls) / took);
    for (int k = 0; k < n; k++)
        gs_mpi_send(&x, 1, MPI_CHAR, rank, k, MPI_COMM_WORLD);
    while (gs_num_goroutines() > 1)
        gs_sleep(1000000);
}

static int64_t trips(bool parking)
{
    char x = 0;
    int64_t start = gs_now();
    for (int k = 0; k < TRIPS; k++) {
        for (int turn = 0; turn < 2; turn++) {
            if (turn == rank) {
                if (parking)
                    gs_mpi_send(&x, 1, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD);
                else
                    MPI_Send(&x, 1, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD);
            } else if (parking) {
                gs_mpi_recv(&x, 1, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, GS_FOREVER);
            } else {
                MPI_Recv(&x, 1, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    }
    return (gs_now() - start) / TRIPS;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void go_main(void *arg)
{
    int64_t plain[ROUNDS], parked[ROUNDS];
    (void)arg;
    idle(1);
    idle(CROWD);
    for (int k = 0; k < ROUNDS; k++) {
        gs_mpi_barrier(MPI_COMM_WORLD);
        plain[k] = trips(false);
        gs_mpi_barrier(MPI_COMM_WORLD);
        parked[k] = trips(true);
    }
    qsort(plain, ROUNDS, sizeof *plain, by_size);
    qsort(parked, ROUNDS, sizeof *parked, by_size);
    if (rank == 0)
        printf("there and back, ns: MPI_Send and MPI_Recv %lld (median %lld), gs_mpi_send and gs_mpi_recv %lld (median %lld)\n",
               (long long)plain[0], (long long)plain[ROUNDS / 2], (long long)parked[0], (long long)parked[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    int ranks = 0;
    if (gs_mpi_init(&argc, &argv) != 0)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1)
        seconds = atof(argv[1]);
    if (ranks != 2 || seconds <= 0) {
        fprintf(stderr, "usage: mpirun -n 2 cost [SECONDS]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    gs_run(go_main, NULL);
    gs_shutdown(GS_FOREVER);
    return MPI_Finalize();
}
