"""Both sides of a conversation over a queue pair: pairs.py WHAT CARRIER FOLDER, as in pairs.c. The
tests of this crate let it talk with programs in other languages; what ends in "-async" does it
with asyncio."""

import array
import asyncio
import contextlib
import os
import struct
import sys
import time

import landfall
from landfall import stp, verbs, verbs_asyncio

COUNT, PATIENCE, LONG = 100, 60, 300000


@contextlib.contextmanager
def carrier_of(carrier, folder, self, peer):
    """One end: the carrier is node, stp or qpip."""
    with contextlib.ExitStack() as opened:
        if carrier == "node":
            over = verbs.over_node(opened.enter_context(landfall.Node(folder)))
        elif carrier == "stp":
            endpoint = stp.Endpoint("127.0.0.1:0", keep_alive=0.2)
            over = verbs.over_stp(opened.enter_context(endpoint))
        else:
            over = verbs.over_qpip("udp:127.0.0.1:0", f"10.77.0.{self}/24", peer=peer or None)
        yield opened.enter_context(over)


PLACES = {"node": "pairs", "stp": "7", "qpip": "10.77.0.1:9000"}


def tell(over, folder):
    with open(f"{folder}/new", "w") as file:
        file.write(over.address)
    os.rename(f"{folder}/new", f"{folder}/address")


def find(carrier, folder):
    if carrier == "node":
        return "", PLACES[carrier]
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with open(f"{folder}/address") as file:
                address = file.read()
        except FileNotFoundError:
            time.sleep(0.005)
        else:
            return address, f"{address}/7" if carrier == "stp" else PLACES[carrier]
    raise AssertionError("nobody is there")


def question(i):
    length = LONG if i % 10 == 9 else i + 1
    return bytes((i + j) % 256 for j in range(256)) * (length // 256) + \
        bytes((i + j) % 256 for j in range(length % 256))


def answer(message):
    return bytes(byte ^ 0xff for byte in message)


def as_buffer(i, message):
    """Each kind of what has the buffer protocol."""
    return [message, bytearray(message), memoryview(message), array.array("B", message)][i % 4]


def check_memory(region):
    assert region.read(0, 16) == struct.pack("<2Q", 5 * COUNT, 0x0807060504030201)


def one_of(done):
    """The next completion."""
    while True:
        for completion in done.wait(PATIENCE, most=1):
            return completion


def serve(carrier, folder):
    with carrier_of(carrier, folder, 1, None) as over, over.listen(PLACES[carrier]) as listener:
        tell(over, folder)
        done, room, shared = over.completions(), over.region(5 * LONG), over.region(4096)
        pair = listener.accept(done, timeout=PATIENCE)
        pair.post_receives(verbs.Receive(piece, [room.part(piece * LONG, LONG)])
                           for piece in range(1, 5))
        if carrier != "qpip":
            pair.post_inline(100, pair.share(shared))
        while True:
            completion = one_of(done)
            if completion.status in (verbs.FLUSHED, verbs.GONE):
                break
            completion.check()
            if completion.operation != verbs.RECEIVED:
                continue
            assert completion.pair == pair.id
            piece = room.part(completion.id * LONG, LONG)
            message = bytearray(completion.length)
            room.read_into(piece.at, message)
            room.write(0, answer(message))
            pair.post_receive(completion.id, piece)
            pair.post_send(100, room.part(0, completion.length),
                           immediate=completion.immediate + 1)
        if carrier != "qpip":
            check_memory(shared)
        pair.close()


def use_memory(pair, done, room, key):
    for i in range(COUNT):
        pair.post_all([verbs.Atomic(i, [room.part(0, 8)], key, 0, verbs.ADD, 5)])
        assert one_of(done).check().id == i
        assert room.read(0, 8) == struct.pack("<Q", 5 * i)
    room.write(8, bytes(range(1, 9)))
    # In one list: the read finds what the write has put there, and tells of both.
    pair.post_all([verbs.RdmaWrite(1, [room.part(8, 8)], key, 8, silent=True),
                   verbs.RdmaRead(2, [room.part(16, 8)], key, 8)])
    assert one_of(done).check().id == 2
    assert room.read(16, 8) == bytes(range(1, 9))


def ask(carrier, folder):
    address, place = find(carrier, folder)
    with carrier_of(carrier, folder, 2, address) as over:
        done, room = over.completions(), over.region(2 * LONG)
        pair = over.connect(place, done, timeout=PATIENCE)
        if carrier != "qpip":
            pair.post_receive(0, room.part(0, verbs.KEY))
            one_of(done).check()
            use_memory(pair, done, room, room.read(0, verbs.KEY))
        for i in range(COUNT):
            message = question(i)
            room.write(0, as_buffer(i, message))
            pair.post_receive(i, room.part(LONG, LONG))
            half = len(message) // 2
            parts = [room.part(0, half), room.part(half, len(message) - half)]
            pair.post_send(i, *parts[half == 0:], immediate=i, silent=True)
            completion = one_of(done).check()
            assert (completion.id, completion.immediate) == (i, i + 1)
            assert room.read(LONG, completion.length) == answer(message), i
        pair.close()


def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error as why:
        assert str(why)
        return why
    raise AssertionError(f"{call} {arguments} is taken")


def be_left(carrier, folder):
    """The other side is killed while room is posted: misuse.c does that."""
    address, place = find(carrier, folder)
    with carrier_of(carrier, folder, 2, address) as over:
        done, room = over.completions(), over.region(64)
        pair = over.connect(place, done, timeout=PATIENCE)
        pair.post_receive(1, room.part(0, 8))
        pair.post_inline(2, b"ready")
        while (completion := one_of(done)).status == verbs.DONE:
            assert completion.id == 2
        why = refused(verbs.NotDone, completion.check)
        assert why.completion is completion
        while done.ended() is None:
            done.wait(PATIENCE)
        refused(verbs.Lost, pair.check)
        refused(verbs.Closed, pair.post_inline, 3, b"late")


def mistakes(carrier, folder):
    """What is refused, and how a queue pair ends."""
    with carrier_of(carrier, folder, 1, None) as a, carrier_of(carrier, folder, 2, None) as b:
        listener, sent, came = a.listen(PLACES[carrier]), b.completions(), a.completions()
        shared = a.shared_receives(came, 4)
        pair = b.connect(f"{a.address}/7", sent, send_depth=2, inlined=16, timeout=PATIENCE)
        other = listener.accept(came, shared=shared, timeout=PATIENCE)
        room, out, closed = a.region(64), b.region(64), b.region(64)
        closed.close()
        for length, rights in [(0, 3), (64, 0), (64, 4)]:
            refused(verbs.Error, a.region, length, rights)
        refused(verbs.Error, a.completions, 0)
        refused(verbs.Error, a.listen, "a name")
        refused(verbs.TimedOut, listener.accept, came, None, None, 0)
        refused(verbs.Error, pair.post_send, 1, out.part(60, 5))
        refused(verbs.Error, pair.post_send, 1, closed.part(0, 1))
        refused(verbs.TooLong, pair.post_inline, 1, bytes(17))
        refused(verbs.Error, other.post_receive, 1, room.part())
        refused(ValueError, pair.post_all, [verbs.RdmaRead(1, [out.part()], b"short")])
        refused(TypeError, room.read_into, 0, b"constant")
        refused(verbs.TimedOut, sent.wait, 0)
        # There is no room yet: the queue is full, and says how far it came.
        message = [out.part(0, 8)]
        full = refused(verbs.Full, pair.post_all, [verbs.Send(i, message) for i in range(3)])
        assert full.posted == 2
        shared.post_all(verbs.Receive(i, [room.part(8 * i, 8)]) for i in range(2))
        assert [one_of(sent).check().id for _ in range(2)] == [0, 1]
        assert {one_of(came).check().pair for _ in range(2)} == {other.id}
        # What was withdrawn is not reached, and that ends the queue pair.
        key = other.share(room)
        other.withdraw(key)
        refused(verbs.Error, other.withdraw, key)
        pair.post_all([verbs.RdmaWrite(7, message, key)])
        why = refused(verbs.NotDone, one_of(sent).check)
        assert (why.completion.id, why.completion.status) == (7, verbs.REMOTE_ACCESS)
        while (end := sent.ended()) is None:
            sent.wait(PATIENCE)
        assert end == (pair.id, -3) and sent.ended() is None
        refused(verbs.Lost, pair.check)
        refused(verbs.Closed, pair.post_inline, 1, b"late")
        for handle in [pair, other, listener, sent, came, shared, room, out]:
            handle.close()
            handle.close()
        for call in [pair.check, sent.poll, listener.accept, room.read]:
            refused((verbs.Error, TypeError), call)


async def serve_in_tasks(carrier, folder):
    with carrier_of(carrier, folder, 1, None) as blocking:
        async with verbs_asyncio.Verbs(blocking) as over:
            listener = over.listen(PLACES[carrier])
            tell(blocking, folder)
            pair = await listener.accept()
            shared = over.region(4096)
            if carrier != "qpip":
                await pair.send_bytes(pair.share(shared))

            async def answer_from(at, room):
                """Each task has a room of its own."""
                with contextlib.suppress(verbs.NotDone, verbs.Closed):
                    while True:
                        came = await pair.receive(room.part(at, LONG))
                        room.write(at, answer(room.read(at, came.length)))
                        await pair.send(room.part(at, came.length), immediate=came.immediate + 1)

            room = over.region(2 * LONG)
            await asyncio.gather(answer_from(0, room), answer_from(LONG, room))
            if carrier != "qpip":
                check_memory(shared)
            await pair.close()


async def ask_in_tasks(carrier, folder):
    address, place = find(carrier, folder)
    with carrier_of(carrier, folder, 2, address) as blocking:
        async with verbs_asyncio.Verbs(blocking) as over:
            room = over.region(2 * LONG)
            pair = await over.connect(place)
            if carrier != "qpip":
                await pair.receive(room.part(0, verbs.KEY))
                key = room.read(0, verbs.KEY)
                # Many at once: each sees the word once.
                adding = [pair.atomic(key, 0, room.part(8 * i, 8), verbs.ADD, 5)
                          for i in range(COUNT)]
                await asyncio.gather(*adding)
                seen = struct.unpack(f"<{COUNT}Q", room.read(0, 8 * COUNT))
                assert sorted(seen) == list(range(0, 5 * COUNT, 5))
                room.write(0, bytes(range(1, 9)))
                await pair.write(key, 8, room.part(0, 8))
                await pair.read(key, 8, room.part(8, 8))
                assert room.read(8, 8) == bytes(range(1, 9))
            for i in range(COUNT):
                message = question(i)
                room.write(0, as_buffer(i, message))
                receiving = pair.receive(room.part(LONG, LONG))
                await pair.send(room.part(0, len(message)), immediate=i)
                completion = await receiving
                assert completion.immediate == i + 1
                assert room.read(LONG, completion.length) == answer(message), i
            await pair.close()


def serve_async(carrier, folder):
    asyncio.run(asyncio.wait_for(serve_in_tasks(carrier, folder), PATIENCE))


def ask_async(carrier, folder):
    asyncio.run(asyncio.wait_for(ask_in_tasks(carrier, folder), PATIENCE))


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
