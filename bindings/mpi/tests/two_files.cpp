// A program of two files that include the header, in C and in C++: they share one state and one progress goroutine.
#include "gosched_mpi.h"

extern "C" int in_c(int *polls_are_shared);

static void go_main(void *arg)
{
    int out = 5, in = 0, shared = 0;
    gs_mpi_stats stats;
    int r;
    do { // until one has waited: a deadline may pass before that
        r = gs_mpi_recv(&in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE, gs_after_ms(1));
        gs_mpi_stats_read(&stats);
    } while (stats.polls == 0);
    bool right = r == -ETIMEDOUT;
    right = right && in_c(&shared) == 0 && shared;
    right = right && gs_mpi_sendrecv(&out, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE) == 0 && in == 5;
    std::printf(right ? "shared\n" : "FAIL\n");
    (void)arg;
}

int main(int argc, char **argv)
{
    if (gs_mpi_init(&argc, &argv) != 0 || gs_run(go_main, nullptr) != 0)
        return 1;
    return MPI_Finalize();
}
