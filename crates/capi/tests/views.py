"""Bytes of regions where they lie: what is seen, how long, and what is refused meanwhile."""

import concurrent.futures
import gc
import sys
import tempfile

import landfall
from landfall import stp, verbs


def refused(call, error=BufferError):
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was to be raised")


def lies_in_place(region):
    with region.view(10, 6) as seen:
        region.write(10, b"copied")
        assert seen == b"copied" and seen.readonly and seen.nbytes == 6
        refused(lambda: seen.__setitem__(0, 1), TypeError)
        with region.view(10, 6, write=True) as written:
            written[:] = b"placed"
        assert seen == b"placed" and region.read(10, 6) == b"placed"
    for at, length in [(-1, 2), (0, 0), (region.length, 1), (1, region.length)]:
        refused(lambda: region.view(at, length), ValueError)
    if sys.version_info >= (3, 12):
        with memoryview(region) as seen:
            assert seen.readonly and seen[10:16] == b"placed"


def outlives_its_region(over):
    region = over.region(4096)
    view = region.view(write=True)
    region.close()
    view[:4] = b"left"
    part = view[:4]
    del view
    gc.collect()
    assert part == b"left"
    refused(region.view, landfall.Error)


def joined(server, client, place, at):
    """Two queue pairs, with their completions."""
    came, sent = server.completions(), client.completions()
    listener = server.listen(place)
    # Over a node each waits for the other.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        asking = threads.submit(client.connect, at, sent, timeout=10)
        serves = listener.accept(came, timeout=10)
        return serves, came, asking.result(), sent


def guards_what_is_posted(server, client, place, at):
    serves, came, asks, sent = joined(server, client, place, at)
    room, out = server.region(4096), client.region(4096)
    # Where a message is to land there is no view, and the other way round.
    serves.post_receive(1, room.part(0, 64))
    refused(lambda: room.view(63, 1))
    refused(lambda: room.view(0, 64, write=True))
    with room.view(64) as behind:
        refused(lambda: serves.post_receive(2, room.part(0, 65)))
        refused(lambda: serves.post_receives([verbs.Receive(2, [room.part(64, 8)])]))
        assert behind.nbytes == 4096 - 64
    with out.view(0, 8, write=True) as message:
        message[:] = b"8 bytes."
        refused(lambda: asks.post_send(3, out.part(0, 8)))
    with out.view(0, 8) as message:
        # What is sent may be read.
        asks.post_send(4, out.part(0, 8))
        assert message == b"8 bytes."
        while not (done := came.wait(10)):
            pass
        assert [one.check().id for one in done] == [1]
    with room.view(0, 8, write=True) as message:
        assert message == b"8 bytes."
    while not (done := sent.wait(10)):
        pass
    assert [one.check().id for one in done] == [4]
    out.view(0, 8, write=True).release()
    # Refused requests use nothing.
    refused(lambda: asks.post_send(5, verbs.Part(out, 4090, 100)), landfall.Error)
    out.view(write=True).release()
    # A queue pair that is closed uses nothing any more.
    serves.post_receive(6, room.part(0, 64))
    refused(lambda: room.view(0, 1))
    serves.close()
    room.view(0, 64, write=True).release()


def guards_what_is_got():
    ends = [stp.Endpoint("127.0.0.1:0") for _ in range(2)]
    listener = ends[0].listen(7)
    asks = ends[1].connect(ends[0].address, 7, timeout=10)
    serves = listener.accept(10)
    shared, own = ends[0].region(1 << 20), ends[1].region(1 << 20)
    with shared.view(write=True) as there:
        there[:5] = b"there"
    lies_in_place(shared)
    shared.write(0, b"there")
    remote = asks.remote(serves.share(shared), timeout=10)
    with own.view(0, 5):
        refused(lambda: remote.begin_get(0, own, 0, 1 << 20))
    getting = remote.begin_get(0, own, 0, 1 << 20)
    refused(own.view)
    assert getting.value(10) == 1 << 20
    with own.view() as here:
        assert here[:5] == b"there"
    remote.begin_get(0, own, 0, 64).close()
    own.view(write=True).release()
    # A view is sent from, and received into, without a copy of its own.
    sending = asks.begin_send(own.view(0, 5))
    with shared.view(100, 5, write=True) as into:
        assert serves.receive_into(into, 10) == 5
    sending.value(10)
    assert shared.read(100, 5) == b"there"


def main():
    guards_what_is_got()
    ends = [stp.Endpoint("127.0.0.1:0") for _ in range(2)]
    over = [verbs.over_stp(end) for end in ends]
    guards_what_is_posted(*over, "7", f"{ends[0].address}/7")
    with tempfile.TemporaryDirectory() as folder:
        nodes = [landfall.Node(folder) for _ in range(2)]
        over += [verbs.over_node(node) for node in nodes]
        guards_what_is_posted(*over[2:], "views", "views")
        over.append(verbs.over_qpip("udp:127.0.0.1:0", "10.0.0.1/24"))
        for one in over:
            outlives_its_region(one)
            lies_in_place(one.region(4096))


main()
