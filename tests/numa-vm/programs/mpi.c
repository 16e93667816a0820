/*
 * An MPI job with a rank for each node. The runtime of each rank has the CPUs and the memory of one node, goroutines
 * of all ranks exchange messages, and mpi-wordcount finds what wordcount finds in one process.
 * uses: mpi
 */
#include "lab.h"

#include <gosched_mpi.h>

#define RANKS 4
#define ROUNDS 20

#define MPIRUN                                                                        \
    "mpirun --allow-run-as-root --mca plm isolated --mca btl self,vader --map-by ppr:1:numa --bind-to numa -n 4 "

/* ---- Ranks and nodes ---- */

static int rank, node, sum;
static gs_waitgroup done;

static void mpi(int result)
{
    char text[MPI_MAX_ERROR_STRING];
    if (result != 0)
        failed(__FILE__, __LINE__, "a call of MPI has failed", gs_mpi_strerror(result, text));
}

/* In a ring, each goroutine with its like in the other ranks. */
static void pass_on(void *arg)
{
    int tag = (int)(intptr_t)arg, round;
    for (round = 0; round < ROUNDS; round++) {
        int mine = rank, theirs = -1;
        mpi(gs_mpi_sendrecv(&mine, 1, MPI_INT, (rank + 1) % RANKS, tag, &theirs, 1, MPI_INT, (rank + RANKS - 1) % RANKS,
                            tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK_EQ(theirs, (rank + RANKS - 1) % RANKS);
        CHECK_EQ(node_here(), node);
        ADD(sum, 1);
    }
    CHECK_EQ(gs_waitgroup_done(&done), 0);
}

static void be_a_rank(void *arg)
{
    const size_t size = 64 * PAGE;
    const int goroutines = 8;
    int ranks, i, nodes, mine;
    long on[4];
    char *memory;
    (void)arg;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK_EQ(ranks, RANKS);

    CHECK_EQ(gs_numa_nodes(), 1);
    CHECK_EQ(gs_gomaxprocs(0), 2);
    node = system_node(0);
    CHECK_EQ(mask_of(0), cpus_of_node(node));
    mine = 1 << node;
    mpi(gs_mpi_allreduce(&mine, &nodes, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK_EQ(nodes, nodes_online());

    memory = gs_numa_alloc(size, GS_NUMA_LOCAL);
    CHECK(memory != NULL);
    memset(memory, 1, size);
    CHECK_EQ(count_pages(memory, size, on), 64);
    CHECK_EQ(on[node], 64);
    gs_numa_free(memory, size);

    CHECK_EQ(gs_waitgroup_add(&done, goroutines), 0);
    for (i = 0; i < goroutines; i++)
        go(pass_on, (void *)(intptr_t)i);
    CHECK_EQ(gs_waitgroup_wait(&done, GS_FOREVER), 0);
    CHECK_EQ(GET(sum), goroutines * ROUNDS);
    printf("rank %d of %d is on node %d\n", rank, ranks, node);
}

CHILD(rank_of_a_node)
{
    mpi(gs_mpi_init(NULL, NULL));
    CHECK_EQ(gs_run(be_a_rank, NULL), 0);
    CHECK_EQ(MPI_Finalize(), 0);
}

TEST(each_rank_has_a_node)
{
    must_run(MPIRUN "mpi rank_of_a_node");
}

/* ---- The main job ---- */

TEST(ranks_count_what_one_process_counts)
{
    must_run("wordcount --all /lab/text >one");
    must_run(MPIRUN "mpi-wordcount --all /lab/text >ranks");
    must_run("[ $(wc -l <one) -gt 1000 ] && cmp one ranks");
    must_run("rm one ranks");
}
