/* Collectives on several communicators at the same time, each in a goroutine of its own, with checked results. */
#include "test.h"

enum { TEAM = 6, ROUNDS = 40, MOST = 300 };
#define TOP (64 * MOST)

struct member {
    MPI_Comm comm;
    int number;
    uint64_t s;
};

/* All ranks draw the same numbers, and so do the same operations. */
static void one_round(struct member *m, int me, int n, int *in, int *out)
{
    MPI_Comm comm = m->comm;
    int what = below(&m->s, 14), count = below(&m->s, MOST) + 1, root = below(&m->s, n);
    int base = (int)(next_random(&m->s) % 100000), counts[64], places[64];
    for (int r = 0, at = 0; r < n; r++) {
        counts[r] = (count + r * 7) % MOST;
        places[r] = at;
        at += counts[r];
    }
    for (int k = 0; k < n * MOST; k++) {
        in[k] = base + me * 1000003 + k;
        out[k] = -1;
    }
#define OF(r, k) (base + (r) * 1000003 + (k))
    switch (what) {
    case 0: CHECK_EQ(gs_mpi_barrier(comm), 0); break;
    case 1:
        CHECK_EQ(gs_mpi_bcast(in, count, MPI_INT, root, comm), 0);
        for (int k = 0; k < count; k++)
            CHECK_EQ(in[k], OF(root, k));
        break;
    case 2:
    case 3:
        if (what == 2)
            CHECK_EQ(gs_mpi_reduce(in, out, count, MPI_INT, MPI_MAX, root, comm), 0);
        else
            CHECK_EQ(gs_mpi_allreduce(in, out, count, MPI_INT, MPI_MAX, comm), 0);
        for (int k = 0; k < count && (what == 3 || me == root); k++)
            CHECK_EQ(out[k], OF(n - 1, k));
        break;
    case 4:
        CHECK_EQ(gs_mpi_gather(in, count, MPI_INT, out, count, MPI_INT, root, comm), 0);
        for (int r = 0; r < n && me == root; r++)
            for (int k = 0; k < count; k++)
                CHECK_EQ(out[r * count + k], OF(r, k));
        break;
    case 5:
        CHECK_EQ(gs_mpi_scatter(in, count, MPI_INT, out, count, MPI_INT, root, comm), 0);
        for (int k = 0; k < count; k++)
            CHECK_EQ(out[k], OF(root, me * count + k));
        break;
    case 6:
        CHECK_EQ(gs_mpi_allgather(in, count, MPI_INT, out, count, MPI_INT, comm), 0);
        for (int r = 0; r < n; r++)
            for (int k = 0; k < count; k++)
                CHECK_EQ(out[r * count + k], OF(r, k));
        break;
    case 7:
        CHECK_EQ(gs_mpi_alltoall(in, count, MPI_INT, out, count, MPI_INT, comm), 0);
        for (int r = 0; r < n; r++)
            for (int k = 0; k < count; k++)
                CHECK_EQ(out[r * count + k], OF(r, me * count + k));
        break;
    case 8:
    case 9:
        if (what == 8)
            CHECK_EQ(gs_mpi_gatherv(in, counts[me], MPI_INT, out, counts, places, MPI_INT, root, comm), 0);
        else
            CHECK_EQ(gs_mpi_allgatherv(in, counts[me], MPI_INT, out, counts, places, MPI_INT, comm), 0);
        for (int r = 0; r < n && (what == 9 || me == root); r++)
            for (int k = 0; k < counts[r]; k++)
                CHECK_EQ(out[places[r] + k], OF(r, k));
        break;
    case 10:
        CHECK_EQ(gs_mpi_scatterv(in, counts, places, MPI_INT, out, counts[me], MPI_INT, root, comm), 0);
        for (int k = 0; k < counts[me]; k++)
            CHECK_EQ(out[k], OF(root, places[me] + k));
        break;
    case 11: {
        /* rank r sends counts[q] ints to q */
        int from[64], at[64];
        for (int r = 0; r < n; r++) {
            from[r] = counts[me];
            at[r] = r * counts[me];
        }
        CHECK_EQ(gs_mpi_alltoallv(in, counts, places, MPI_INT, out, from, at, MPI_INT, comm), 0);
        for (int r = 0; r < n; r++)
            for (int k = 0; k < counts[me]; k++)
                CHECK_EQ(out[at[r] + k], OF(r, places[me] + k));
        break;
    }
    case 12:
        CHECK_EQ(gs_mpi_scan(in, out, count, MPI_INT, MPI_MIN, comm), 0);
        for (int k = 0; k < count; k++)
            CHECK_EQ(out[k], OF(0, k));
        break;
    default:
        CHECK_EQ(gs_mpi_reduce_scatter_block(in, out, count, MPI_INT, MPI_MIN, comm), 0);
        for (int k = 0; k < count; k++)
            CHECK_EQ(out[k], OF(0, me * count + k));
    }
#undef OF
}

static void takes_part(void *arg)
{
    struct member *m = (struct member *)arg;
    int me, n, *in = (int *)malloc(sizeof(int) * TOP), *out = (int *)malloc(sizeof(int) * TOP);
    CHECK(in != NULL && out != NULL);
    MPI_Comm_rank(m->comm, &me);
    MPI_Comm_size(m->comm, &n);
    for (int round = 0; round < ROUNDS; round++) {
        one_round(m, me, n, in, out);
        if (below(&m->s, 10) == me)
            gs_sleep(MS / 10);
    }
    free(in), free(out);
}

TEST(on_several_communicators_at_once)
{
    struct member members[TEAM];
    gs_g *all[TEAM];
    for (int k = 0; k < TEAM; k++) {
        if (k % 3 == 2)
            /* a part of the ranks, in another order; MPI has no nonblocking split */
            CHECK_EQ(MPI_Comm_split(WORLD, rank % 2, -rank, &members[k].comm), 0);
        else
            CHECK_EQ(gs_mpi_comm_dup(WORLD, &members[k].comm), 0);
        members[k].number = k;
        members[k].s = (uint64_t)k + 77;
    }
    for (int k = 0; k < TEAM; k++)
        all[k] = spawn(takes_part, &members[k]);
    for (int k = 0; k < TEAM; k++)
        join(all[k]);
    for (int k = 0; k < TEAM; k++)
        CHECK_EQ(MPI_Comm_free(&members[k].comm), 0);
}

/* A user-defined operation runs wherever MPI makes progress, usually in the progress goroutine. */
static void longest(void *in, void *inout, int *length, MPI_Datatype *type)
{
    volatile char stack[100000]; /* there is room for some */
    int *a = (int *)in, *b = (int *)inout;
    (void)type;
    stack[0] = stack[sizeof stack - 1] = 1;
    for (int k = 0; k < *length; k++)
        b[k] = a[k] > b[k] ? a[k] : b[k] + stack[0] - 1;
}

TEST(operation_of_the_program)
{
    MPI_Op op;
    int mine = rank + 5, most = 0;
    CHECK_EQ(MPI_Op_create(longest, 1, &op), 0);
    CHECK_EQ(gs_mpi_allreduce(&mine, &most, 1, MPI_INT, op, WORLD), 0);
    CHECK_EQ(most, ranks + 4);
    CHECK_EQ(MPI_Op_free(&op), 0);
}

TEST(in_place)
{
    int x = rank;
    CHECK_EQ(gs_mpi_allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, WORLD), 0);
    CHECK_EQ(x, ranks * (ranks - 1) / 2);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
