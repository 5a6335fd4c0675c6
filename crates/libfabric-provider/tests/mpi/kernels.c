/* Small programs of the kinds that MPI is used for, each of which knows whether its result is
 * right: bodies that attract each other (a ring of messages), conjugate gradients (neighbours and
 * sums), a sort of integers (buckets of unequal length), a Fourier transform (transpositions).
 *
 *     mpirun -np 4 ... kernels
 */
#include <complex.h>
#include <math.h>
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

static void *room(size_t bytes)
{
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory)
        fail("there is no memory");
    return memory;
}

static double number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / (double)(1ull << 53);
}

/* Each rank has some bodies; a copy of them goes round the ring, and meets those of all others. */
static void bodies(void)
{
    enum { EACH = 96, STEPS = 5 };
    double *at = room(EACH * 3 * sizeof *at), *speed = room(EACH * 3 * sizeof *speed);
    double *passing = room(EACH * 3 * sizeof *passing), *force = room(EACH * 3 * sizeof *force);
    uint64_t state = 1000003u * (rank + 1);
    for (int i = 0; i < EACH * 3; i++)
        at[i] = number(&state);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int step = 0; step < STEPS; step++) {
        memset(force, 0, EACH * 3 * sizeof *force);
        memcpy(passing, at, EACH * 3 * sizeof *at);
        for (int hop = 0; hop < ranks; hop++) {
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++) {
                    double way[3], squared = 1e-3;
                    for (int k = 0; k < 3; k++) {
                        way[k] = passing[3 * j + k] - at[3 * i + k];
                        squared += way[k] * way[k];
                    }
                    for (int k = 0; k < 3; k++)
                        force[3 * i + k] += way[k] / (squared * sqrt(squared));
                }
            MPI_Sendrecv_replace(passing, EACH * 3, MPI_DOUBLE, next, hop, previous, hop,
                                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        /* What went round has come home. */
        if (memcmp(passing, at, EACH * 3 * sizeof *at) != 0)
            fail("bodies were changed on their way");
        for (int i = 0; i < EACH * 3; i++) {
            speed[i] += 1e-6 * force[i];
            at[i] += speed[i];
        }
    }
    double mine[3] = { 0 }, all[3];
    for (int i = 0; i < EACH * 3; i++)
        mine[i % 3] += speed[i];
    MPI_Allreduce(mine, all, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int k = 0; k < 3; k++)
        if (fabs(all[k]) > 1e-6)
            fail("bodies that attract each other alone have begun to move together");
    free(at), free(speed), free(passing), free(force);
}

/* Solves a chain of springs, of which each rank has a part, and whose solution is known. */
static void gradients(void)
{
    enum { EACH = 200 };
    int size = EACH * ranks;
    double *x = room(EACH * sizeof *x), *r = room(EACH * sizeof *r), *q = room(EACH * sizeof *q);
    double *p = room((EACH + 2) * sizeof *p), *b = room(EACH * sizeof *b);
    int below = rank > 0 ? rank - 1 : MPI_PROC_NULL, above = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    /* The solution is 1, 2, 3, ...: so only the last one is pulled. */
    if (rank == ranks - 1)
        b[EACH - 1] = size + 1;
    double rho = 0, mine = 0;
    for (int i = 0; i < EACH; i++) {
        p[i + 1] = r[i] = b[i];
        mine += r[i] * r[i];
    }
    MPI_Allreduce(&mine, &rho, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int round = 0; round < 2 * size && rho > 1e-18; round++) {
        MPI_Sendrecv(&p[EACH], 1, MPI_DOUBLE, above, 0, &p[0], 1, MPI_DOUBLE, below, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&p[1], 1, MPI_DOUBLE, below, 1, &p[EACH + 1], 1, MPI_DOUBLE, above, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0)
            p[0] = 0;
        if (rank == ranks - 1)
            p[EACH + 1] = 0;
        double along = 0, all, next = 0;
        for (int i = 0; i < EACH; i++) {
            q[i] = 2 * p[i + 1] - p[i] - p[i + 2];
            along += q[i] * p[i + 1];
        }
        MPI_Allreduce(&along, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        double step = rho / all;
        mine = 0;
        for (int i = 0; i < EACH; i++) {
            x[i] += step * p[i + 1];
            r[i] -= step * q[i];
            mine += r[i] * r[i];
        }
        MPI_Allreduce(&mine, &next, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < EACH; i++)
            p[i + 1] = r[i] + next / rho * p[i + 1];
        rho = next;
    }
    for (int i = 0; i < EACH; i++)
        if (fabs(x[i] - (rank * EACH + i + 1)) > 1e-4 * size)
            fail("the solution is another one");
    free(x), free(r), free(q), free(p), free(b);
}

static int by_value(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Integers that crowd towards zero go to the rank of their bucket: some get much, some little. */
static void sort(void)
{
    enum { EACH = 20000 };
    uint32_t *keys = room(EACH * sizeof *keys);
    int *out = room(ranks * sizeof *out), *in = room(ranks * sizeof *in);
    int *from = room((ranks + 1) * sizeof *from), *to = room((ranks + 1) * sizeof *to);
    uint64_t state = 77 + rank, mine[2] = { EACH, 0 }, all[2], sorted[2] = { 0 };
    for (int i = 0; i < EACH; i++) {
        double half = number(&state) * number(&state);
        keys[i] = (uint32_t)(half * 4294967295.0);
        mine[1] += keys[i];
    }
    qsort(keys, EACH, sizeof *keys, by_value);
    for (int i = 0; i < EACH; i++)
        out[(uint64_t)keys[i] * ranks >> 32]++;
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    for (int other = 0; other < ranks; other++) {
        from[other + 1] = from[other] + out[other];
        to[other + 1] = to[other] + in[other];
    }
    uint32_t *got = room(to[ranks] * sizeof *got);
    MPI_Alltoallv(keys, out, from, MPI_UINT32_T, got, in, to, MPI_UINT32_T, MPI_COMM_WORLD);
    qsort(got, to[ranks], sizeof *got, by_value);
    for (int i = 0; i < to[ranks]; i++) {
        if ((int)((uint64_t)got[i] * ranks >> 32) != rank)
            fail("a key has come to the wrong rank");
        sorted[1] += got[i];
    }
    sorted[0] = to[ranks];
    uint64_t there[2];
    MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(sorted, there, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (memcmp(all, there, sizeof all) != 0)
        fail("keys were lost, or changed");
    free(keys), free(out), free(in), free(from), free(to), free(got);
}

/* In place, of a length that is a power of two; `way` is 1 forward and -1 back. */
static void transform(double complex *line, int length, int way)
{
    for (int i = 1, j = 0; i < length; i++) {
        int bit = length >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double complex other = line[i];
            line[i] = line[j], line[j] = other;
        }
    }
    for (int span = 2; span <= length; span <<= 1) {
        double complex turn = cexp(-way * 2 * M_PI * I / span);
        for (int first = 0; first < length; first += span) {
            double complex w = 1;
            for (int i = 0; i < span / 2; i++, w *= turn) {
                double complex even = line[first + i], odd = line[first + i + span / 2] * w;
                line[first + i] = even + odd;
                line[first + i + span / 2] = even - odd;
            }
        }
    }
}

/* Rows of a square become columns: each rank sends each other a part of its rows. */
static void transpose(double complex *rows, double complex *swap, int size)
{
    int each = size / ranks;
    for (int other = 0; other < ranks; other++)
        for (int i = 0; i < each; i++)
            memcpy(&swap[(other * each + i) * each], &rows[i * size + other * each],
                   each * sizeof *rows);
    double complex *came = room(each * size * sizeof *came);
    MPI_Alltoall(swap, each * each, MPI_C_DOUBLE_COMPLEX, came, each * each,
                 MPI_C_DOUBLE_COMPLEX, MPI_COMM_WORLD);
    for (int other = 0; other < ranks; other++)
        for (int i = 0; i < each; i++)
            for (int j = 0; j < each; j++)
                rows[j * size + other * each + i] = came[(other * each + i) * each + j];
    free(came);
}

static void fourier(void)
{
    int size = 64;
    while (size % ranks)
        size *= 2;
    if (size > 4096)
        return; /* No power of two has that many parts. */
    int each = size / ranks;
    double complex *rows = room(each * size * sizeof *rows), *swap = room(each * size * sizeof *swap);
    double complex *first = room(each * size * sizeof *first);
    uint64_t state = 5 + rank;
    double mine[2] = { 0 }, all[2];
    for (int i = 0; i < each * size; i++) {
        first[i] = rows[i] = number(&state) + I * number(&state);
        mine[0] += creal(rows[i] * conj(rows[i]));
    }
    for (int way = 1; way >= -1; way -= 2) {
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < each; i++)
                transform(&rows[i * size], size, way);
            transpose(rows, swap, size);
        }
        if (way == 1)
            for (int i = 0; i < each * size; i++)
                mine[1] += creal(rows[i] * conj(rows[i]));
    }
    MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double points = (double)size * size;
    if (fabs(all[1] / points / all[0] - 1) > 1e-9)
        fail("the transform has another energy");
    for (int i = 0; i < each * size; i++)
        if (cabs(rows[i] / points - first[i]) > 1e-9)
            fail("there and back it is not what it was");
    free(rows), free(swap), free(first);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bodies();
    gradients();
    sort();
    fourier();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("all is as it should be\n");
    MPI_Finalize();
    return 0;
}
