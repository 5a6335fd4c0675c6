/* The second rank is killed in the middle of an exchange; the others wait for it. */
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char bytes[1 << 20];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < 1000000; round++) {
        if (rank == 1 && round == 20)
            kill(getpid(), SIGKILL);
        int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
        MPI_Sendrecv_replace(bytes, sizeof bytes, MPI_CHAR, next, 0, previous, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
