/* What MPI programs do, with every byte checked: a ring, collectives, long messages both ways,
 * receives from anybody:
 *
 *     mpirun -np 2 ... exchange [windows]
 *
 * and memory windows, which Open MPI 4.1 has within a host only. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void ring(void)
{
    int token = 0, next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 50; round++) {
        if (rank == 0) {
            token++;
            MPI_Send(&token, 1, MPI_INT, next, round, MPI_COMM_WORLD);
            MPI_Recv(&token, 1, MPI_INT, previous, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&token, 1, MPI_INT, previous, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            token++;
            MPI_Send(&token, 1, MPI_INT, next, round, MPI_COMM_WORLD);
        }
    }
    if (rank == 0 && token != 50 * ranks)
        fail("the token has another number");
}

static void collectives(void)
{
    enum { MOST = 1 << 16 };
    double *mine = malloc(MOST * sizeof *mine), *all = malloc(MOST * sizeof *all);
    for (int count = 1; count <= MOST; count *= 16) {
        for (int at = 0; at < count; at++)
            mine[at] = rank + at;
        MPI_Allreduce(mine, all, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < count; at++)
            if (all[at] != ranks * (ranks - 1) / 2.0 + (double)ranks * at)
                fail("a sum is wrong");
    }
    for (int each = 1; each <= MOST / ranks; each *= 8) {
        int *out = malloc(sizeof *out * each * ranks), *in = malloc(sizeof *in * each * ranks);
        for (int at = 0; at < each * ranks; at++)
            out[at] = rank * 1000003 + at;
        MPI_Alltoall(out, each, MPI_INT, in, each, MPI_INT, MPI_COMM_WORLD);
        for (int from = 0; from < ranks; from++)
            for (int at = 0; at < each; at++)
                if (in[from * each + at] != from * 1000003 + rank * each + at)
                    fail("an exchange is wrong");
        free(out);
        free(in);
    }
    MPI_Bcast(mine, MOST, MPI_DOUBLE, ranks - 1, MPI_COMM_WORLD);
    for (int at = 0; at < MOST; at++)
        if (mine[at] != ranks - 1 + at)
            fail("what was broadcast is wrong");
    MPI_Barrier(MPI_COMM_WORLD);
    free(mine);
    free(all);
}

/* Both ways at once, of many lengths, and of layouts with holes. */
static void lengths(void)
{
    static const size_t all[] = { 0, 1, 4095, 4097, 16384, 16385, 100001, 1 << 20, (5 << 20) + 3 };
    int other = rank ^ 1;
    if (other >= ranks)
        return;
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        size_t len = all[at];
        uint8_t *out = malloc(len + 1), *in = malloc(len + 1);
        for (size_t byte = 0; byte < len; byte++)
            out[byte] = (uint8_t)(byte * 7 + rank + at);
        memset(in, 0xaa, len + 1);
        MPI_Request requests[2];
        MPI_Status statuses[2];
        int got;
        MPI_Irecv(in, (int)len + 1, MPI_BYTE, other, (int)at, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, (int)len, MPI_BYTE, other, (int)at, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, statuses);
        MPI_Get_count(&statuses[0], MPI_BYTE, &got);
        if ((size_t)got != len || in[len] != 0xaa)
            fail("a message has another length");
        for (size_t byte = 0; byte < len; byte++)
            if (in[byte] != (uint8_t)(byte * 7 + other + at))
                fail("a message has other bytes");
        free(out);
        free(in);
    }
}

static void anybody(void)
{
    enum { EACH = 200 };
    if (rank == 0) {
        int *next = calloc(ranks, sizeof *next);
        for (int at = 0; at < EACH * (ranks - 1); at++) {
            int value;
            MPI_Status status;
            if (at % 3 == 0) {
                MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
                MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
            } else {
                MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            }
            if (value != next[status.MPI_SOURCE]++ || status.MPI_TAG != value)
                fail("messages of one rank have lost their order");
        }
        free(next);
    } else {
        for (int value = 0; value < EACH; value++)
            MPI_Send(&value, 1, MPI_INT, 0, value, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void synchronous(void)
{
    int value = rank, got = -1, next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    MPI_Request request;
    MPI_Irecv(&got, 1, MPI_INT, previous, 3, MPI_COMM_WORLD, &request);
    MPI_Ssend(&value, 1, MPI_INT, next, 3, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (got != previous)
        fail("another rank's value");
}

static void windows(void)
{
    int *memory;
    MPI_Win window;
    MPI_Win_allocate(ranks * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    memset(memory, 0, ranks * sizeof(int));
    MPI_Win_fence(0, window);
    for (int to = 0; to < ranks; to++)
        MPI_Put(&rank, 1, MPI_INT, to, rank, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int from = 0; from < ranks; from++)
        if (memory[from] != from)
            fail("what was put is not there");
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    ring();
    collectives();
    lengths();
    anybody();
    synchronous();
    if (argc > 1 && strcmp(argv[1], "windows") == 0)
        windows();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: all is as it should be\n", ranks);
    MPI_Finalize();
    return 0;
}
