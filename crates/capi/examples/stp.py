"""Both sides of a conversation over STP: stp.py WHAT WHERE KEY, as in stp.c. The tests of this
crate let it talk with programs in other languages; what ends in "-async" does it with asyncio."""

import array
import asyncio
import os
import struct
import sys
import threading
import time

from landfall import stp, stp_asyncio

COUNT, PATIENCE, PORT, LONG = 100, 60, 7, 300000


def options(key):
    if key == "plain":
        return {"patience": 2}
    return {"key": bytes([int(key)]) * 32, "encrypt_loopback": True, "patience": 2}


def tell(endpoint, where):
    with open(where + ".new", "w") as file:
        file.write(endpoint.address)
    os.rename(where + ".new", where)


def find(where):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with open(where) as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(0.005)
    raise AssertionError(f"{where} is not there")


def answer(message):
    return bytes(byte ^ 0xff for byte in message)


def question(i):
    length = LONG if i % 10 == 9 else i
    start = bytes((i + j) % 256 for j in range(256))
    return (start * (length // 256 + 1))[:length]


def as_buffer(i, message):
    """Each kind of what has the buffer protocol."""
    return [message, bytearray(message), memoryview(message), array.array("B", message)][i % 4]


def check_memory(region):
    assert region.read(0, 16) == struct.pack("<2Q", 5 * COUNT, 0x0807060504030201)


def serve(where, key):
    with stp.Endpoint("127.0.0.1:0", **options(key)) as endpoint, endpoint.listen(PORT) as listener:
        tell(endpoint, where)
        with listener.accept(PATIENCE) as connection, endpoint.region(4096) as region:
            connection.send(connection.share(region), PATIENCE)
            while True:
                try:
                    length = connection.next(PATIENCE)
                except stp.Closed:
                    break
                try:
                    connection.receive(PATIENCE, most=0)
                    assert length == 0
                    message, opaque = b"", None
                except stp.TooLong:
                    message, opaque = connection.receive_tagged(PATIENCE)
                assert len(message) == length
                opaque = 0 if opaque is None else opaque
                connection.send(answer(message), PATIENCE, opaque=opaque + 1)
            check_memory(region)


def ask(where, key):
    with stp.Endpoint("127.0.0.1:0", **options(key)) as endpoint:
        with endpoint.connect(find(where), PORT, PATIENCE) as connection:
            shared = connection.receive(PATIENCE)
            with connection.remote(shared, PATIENCE) as remote:
                for i in range(COUNT):
                    assert remote.fetch(0, stp.ADD, 5, timeout=PATIENCE) == 5 * i
                remote.put(8, bytes(range(1, 9)), PATIENCE)
                assert remote.get(8, 8, PATIENCE) == bytes(range(1, 9))
                into = array.array("H", [0] * 4)
                remote.get_into(8, into, PATIENCE)
                assert into.tobytes() == bytes(range(1, 9))
                refused(ValueError, connection.remote, b"short")
                refused(TypeError, remote.get_into, 8, b"constant")
                refused(stp.Error, remote.put, 4090, b"too far out")
                shared[0] ^= 0x55
                refused(stp.Refused, connection.remote, shared, PATIENCE)
            for i in range(COUNT):
                message = question(i)
                connection.send(as_buffer(i, message), PATIENCE, opaque=i)
                got, opaque = connection.receive_tagged(PATIENCE)
                assert (got, opaque) == (answer(message), i + 1), i


async def serve_in_tasks(where, key):
    async with stp_asyncio.Endpoint("127.0.0.1:0", **options(key)) as endpoint:
        listener = endpoint.listen(PORT)
        tell(endpoint, where)
        connection, region = await listener.accept(), endpoint.region(4096)
        await connection.send(connection.share(region))
        while True:
            try:
                message, opaque = await connection.receive_tagged()
            except stp.Closed:
                break
            await connection.send(answer(message), opaque + 1)
        check_memory(region)
        await connection.close()


async def ask_in_tasks(where, key):
    async with stp_asyncio.Endpoint("127.0.0.1:0", **options(key)) as endpoint:
        async with await endpoint.connect(find(where), PORT) as connection:
            remote = await connection.remote(await connection.receive())
            # Many at once: each sees the word once.
            adding = [remote.fetch(0, stp.ADD, 5) for _ in range(COUNT)]
            assert sorted(await asyncio.gather(*adding)) == list(range(0, 5 * COUNT, 5))
            await remote.put(8, bytes(range(1, 9)))
            assert await remote.get(8, 8) == bytes(range(1, 9))
            # What is given up in time loses nothing.
            try:
                await asyncio.wait_for(connection.receive(), 0.01)
                raise AssertionError("nothing was sent")
            except asyncio.TimeoutError:
                pass
            for i in range(COUNT):
                message = question(i)
                _, got = await asyncio.gather(connection.send(as_buffer(i, message), i),
                                              connection.receive_tagged())
                assert got == (answer(message), i + 1), i
            await remote.close()


def serve_async(where, key):
    asyncio.run(asyncio.wait_for(serve_in_tasks(where, key), PATIENCE))


def ask_async(where, key):
    asyncio.run(asyncio.wait_for(ask_in_tasks(where, key), PATIENCE))


def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error as why:
        assert str(why)
        return
    raise AssertionError(f"{call} {arguments} is taken")


def other_key(where, key):
    with stp.Endpoint("127.0.0.1:0", **options(key)) as endpoint:
        refused((stp.Lost, stp.TimedOut), endpoint.connect, find(where), PORT, PATIENCE)


def wait_for_nothing(where, key):
    """The other side is killed while a receive waits."""
    with stp.Endpoint("127.0.0.1:0", **options(key)) as endpoint:
        connection = endpoint.connect(find(where), PORT, PATIENCE)
        connection.send(b"ready", PATIENCE)
        refused(stp.Lost, connection.receive, PATIENCE)
        refused(stp.Lost, connection.send, b"anybody?", PATIENCE)


def mistakes(where, key):
    for address in ["", "nowhere", "203.0.113.9:1"]:
        refused(stp.Error, stp.Endpoint, address)
    refused(ValueError, stp.Endpoint, "127.0.0.1:0", b"short")
    refused(stp.Error, stp.Endpoint, "127.0.0.1:0", bytes(32), 1, True)
    one, two = [stp.Endpoint("127.0.0.1:0", **options(key)) for _ in range(2)]
    listener = one.listen(PORT)
    refused(stp.Error, one.listen, PORT)
    refused(stp.TimedOut, listener.accept, 0)
    refused(stp.Refused, two.connect, one.address, PORT + 1, PATIENCE)
    a, b = two.connect(one.address, PORT, PATIENCE), listener.accept(PATIENCE)
    refused(stp.TimedOut, b.send, b"nobody receives", 0.02)
    sending = a.begin_send(b"too long")
    refused(stp.TooLong, b.receive_into, bytearray(4), PATIENCE)
    b.refuse()
    refused(stp.TooLong, sending.value, PATIENCE)
    # What is given up is passed over.
    refused(stp.TimedOut, a.send, b"in vain", 0.02)
    sending = a.begin_send(b"after it")
    assert b.receive(PATIENCE) == b"after it"
    sending.value(PATIENCE)
    region = one.region(64)
    refused(stp.Error, one.region, 0)
    refused(stp.Error, region.write, 60, b"12345")
    refused(stp.Error, region.read, 64, 1)
    refused(stp.Error, b.share, region, 8)
    remote = a.remote(b.share(region, stp.GET), PATIENCE)
    refused(stp.Refused, remote.put, 0, b"1", PATIENCE)
    # A receive in another thread ends when its connection is closed, and nothing else does.
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(refused(stp.Error, b.receive)))
    waiting.start()
    while not b._users:
        time.sleep(0.001)
    b.close()
    waiting.join(PATIENCE)
    assert ended == [None]
    for handle in [one, two, listener, a, region, sending]:
        handle.close()
        handle.close()
    for call in [one.listen, two.fileno, listener.accept, a.receive, b.next, region.read]:
        refused((stp.Error, TypeError), call)
    refused(stp.Error, remote.get, 0, 1, PATIENCE)


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
