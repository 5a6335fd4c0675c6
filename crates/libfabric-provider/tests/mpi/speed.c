/* How fast messages and collectives are: a line for each figure, its name and its value. Between
 * two ranks latency, bandwidth and message rate; among all of them an allreduce and an alltoall.
 * Each is measured `ROUNDS` times, and the median is told. `quick` as an argument: once, with few
 * repetitions, for a test. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, MANY = 64, LONG = 1 << 20 };

static int rank, ranks, rounds = ROUNDS, divisor = 1;
static char *out, *in;

static int compare(const void *a, const void *b)
{
    double one = *(const double *) a, two = *(const double *) b;
    return (one > two) - (one < two);
}

/* Microseconds that one repetition takes; the first tenth of them is not counted. */
static double time_of(void (*what)(int len), int len, int count)
{
    double took[ROUNDS];
    count = count / divisor + 1;
    for (int round = 0; round < rounds; round++) {
        for (int warm = 0; warm < count / 10 + 1; warm++)
            what(len);
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        for (int done = 0; done < count; done++)
            what(len);
        took[round] = (MPI_Wtime() - began) / count * 1e6;
    }
    qsort(took, rounds, sizeof *took, compare);
    return took[rounds / 2];
}

static void ping(int len)
{
    if (rank == 0)
        MPI_Send(out, len, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(in, len, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(out, len, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

/* Many messages at a time, and an answer to all of them. */
static void stream(int len)
{
    MPI_Request requests[MANY];
    int many = len > 4096 ? 16 : MANY;
    for (int at = 0; at < many; at++) {
        if (rank == 0)
            MPI_Isend(out, len, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[at]);
        else
            MPI_Irecv(in, len, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
    if (rank == 1)
        MPI_Send(out, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    else
        MPI_Recv(in, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void allreduce(int len)
{
    MPI_Allreduce(out, in, len / 8, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int len)
{
    MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
}

static void tell(const char *name, double value)
{
    if (rank == 0)
        printf("%s %.3f\n", name, value);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1 && strcmp(argv[1], "quick") == 0)
        rounds = 1, divisor = 100;
    out = calloc(ranks, LONG);
    in = calloc(ranks, LONG);
    if (ranks == 2) {
        tell("latency/8 (us)", time_of(ping, 8, 5000) / 2);
        tell("latency/65536 (us)", time_of(ping, 65536, 500) / 2);
        tell("bandwidth/1048576 (MB/s)", 16.0 * LONG / time_of(stream, LONG, 30));
        tell("rate/8 (thousand/s)", MANY / time_of(stream, 8, 1000) * 1e3);
    }
    tell("allreduce/8 (us)", time_of(allreduce, 8, 2000 / ranks));
    tell("allreduce/65536 (us)", time_of(allreduce, 65536, 400 / ranks));
    tell("alltoall/8 (us)", time_of(alltoall, 8, 2000 / ranks));
    tell("alltoall/16384 (us)", time_of(alltoall, 16384, 400 / ranks));
    int64_t sum = 0, mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (int64_t) ranks * (ranks + 1) / 2) {
        fprintf(stderr, "the sum of all ranks is %lld\n", (long long) sum);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0)
        printf("all is as it should be\n");
    MPI_Finalize();
    free(out);
    free(in);
    return 0;
}
