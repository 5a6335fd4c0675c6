//! Programs in C, Open MPI and MPICH, against libfabric as it is installed, with this provider and
//! with another one. What a machine lacks is skipped, and the skip says so.

mod cases;
mod headers;
mod mpi;
mod mpich;
mod qpip;
mod rails;
mod readme;
mod tools;
mod versions;
