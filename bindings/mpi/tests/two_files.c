/* The part in C of two_files.cpp. */
#include "gosched_mpi.h"

int in_c(int *polls_are_shared);

int in_c(int *polls_are_shared)
{
    gs_mpi_stats stats;
    gs_mpi_stats_read(&stats);
    *polls_are_shared = stats.polls > 0;
    return gs_mpi_barrier(MPI_COMM_SELF);
}
