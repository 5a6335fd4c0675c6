"""What programs in Python do with MPI: objects, arrays of bytes, collectives, requests.

    mpirun -np 3 ... python3 objects.py
"""

from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size

# Objects, pickled: a dictionary goes round, and everybody adds to it.
if rank == 0:
    world.send({"seen": [0]}, dest=1 % ranks, tag=1)
    seen = world.recv(source=ranks - 1, tag=1)["seen"]
    assert seen == list(range(ranks)), seen
else:
    told = world.recv(source=rank - 1, tag=1)
    told["seen"].append(rank)
    world.send(told, dest=(rank + 1) % ranks, tag=1)
assert world.allgather((rank, "x" * rank)) == [(each, "x" * each) for each in range(ranks)]
assert world.bcast(list(range(100_000)) if rank == 0 else None)[-1] == 99_999

# Buffers: short and long, some of which are received before they come.
for tag, length in enumerate((1, 1000, 1_000_000)):
    mine, theirs = array("d", [rank] * length), array("d", [-1] * length)
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    receiving = world.Irecv(theirs, source=left, tag=tag)
    sending = world.Isend(mine, dest=right, tag=tag)
    MPI.Request.Waitall([receiving, sending])
    assert theirs[0] == theirs[-1] == left
    total = array("d", [0] * length)
    world.Allreduce(mine, total, op=MPI.SUM)
    assert set(total) == {ranks * (ranks - 1) / 2}

# Whoever has something says so; nobody knows beforehand how much.
if rank == 0:
    lengths = set()
    for _ in range(ranks - 1):
        status = MPI.Status()
        world.Probe(MPI.ANY_SOURCE, 7, status)
        came = bytearray(status.Get_count(MPI.BYTE))
        world.Recv(came, source=status.source, tag=7)
        assert came == bytes([status.source]) * len(came)
        lengths.add(len(came))
    assert lengths == {each * 10_000 for each in range(1, ranks)}, lengths
else:
    world.Send(bytes([rank]) * (rank * 10_000), dest=0, tag=7)

world.Barrier()
if rank == 0:
    print("all is as it should be")
