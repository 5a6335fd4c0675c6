/* Latency and bandwidth between two ranks: half of a round trip, and one message after another
 * there and back. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static const struct { int len, count; } rows[] = { { 8, 5000 }, { 4096, 3000 }, { 65536, 500 }, { 1 << 20, 100 } };
    int rank;
    char *bytes = calloc(1, 1 << 20);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        int len = rows[row].len, count = rows[row].count;
        double begun = 0;
        for (int round = -count / 10; round < count; round++) {
            if (round == 0)
                begun = MPI_Wtime();
            if (rank == 0)
                MPI_Send(bytes, len, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(bytes, len, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(bytes, len, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
        double each = (MPI_Wtime() - begun) / count / 2;
        if (rank == 0)
            printf("%8d bytes: %9.2f us, %8.1f MB/s\n", len, each * 1e6, len / each / 1e6);
    }
    MPI_Finalize();
    free(bytes);
    return 0;
}
