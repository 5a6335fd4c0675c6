"""Queue pairs of QPIP and sockets of a kernel, as in sockets.c: sockets.py WHAT LINK ADDRESS PLACE.
What ends in "-async" does it with asyncio."""

import asyncio
import collections
import contextlib
import ipaddress
import sys

from landfall import verbs, verbs_asyncio

ROOMS, ROOM, TOTAL, DATAGRAMS, PATIENCE = 32, 16384, 400000, 100, 60
DEPTHS = {"send_depth": ROOMS, "receive_depth": ROOMS, "inlined": ROOM}
COMPLEMENT = bytes(0xff ^ byte for byte in range(256))


def question():
    return bytes(i * 2654435761 >> 24 & 0xff for i in range(TOTAL))


def answer(message):
    return bytes(message).translate(COMPLEMENT)


def host_and_port(place):
    host, port = place.rsplit(":", 1)
    return host.strip("[]"), int(port)


def one_of(done):
    """The next completion."""
    while True:
        for completion in done.wait(PATIENCE, most=1):
            return completion


class End:
    """An adapter, where its requests complete, and memory: rooms, and what is sent behind them."""

    def __init__(self, link, address):
        self.over = verbs.over_qpip(link, address)
        self.sent, self.came = self.over.completions(ROOMS), self.over.completions(ROOMS + 1)
        self.memory = self.over.region(ROOMS * ROOM + TOTAL)

    def room(self, number, length=ROOM):
        return self.memory.part(number * ROOM, length)

    def post_rooms(self, pair):
        pair.post_receives(verbs.Receive(number, [self.room(number)]) for number in range(ROOMS))


def echo(link, address, place):
    """A server: sends back what comes, until its client has sent all."""
    end = End(link, address)
    with end.over.listen(place) as listener:
        pair = listener.accept(end.sent, end.came, timeout=PATIENCE, stream=True, **DEPTHS)
        print(pair.remote, "is connected", file=sys.stderr)
        end.post_rooms(pair)
        sending = 0
        while (part := one_of(end.came)).status != verbs.FLUSHED:
            part.check()
            message = answer(end.memory.read(part.id * ROOM + part.offset, part.length))
            while sending == ROOMS:
                one_of(end.sent).check()
                sending -= 1
            if message:
                pair.post_inline(0, message)
                sending += 1
            if not part.stays:
                pair.post_receive(part.id, end.room(part.id))
        for _ in range(sending):
            one_of(end.sent).check()
        pair.check()
        pair.shutdown()
        pair.close()


def ask(link, address, place):
    """A client: sends all, says that this was all, and receives the answer in its place."""
    end, message, part = End(link, address), question(), TOTAL // 10
    pair = end.over.connect(place, end.sent, end.came, timeout=PATIENCE, stream=True, **DEPTHS)
    end.memory.write(ROOMS * ROOM, message)
    end.post_rooms(pair)
    pair.post_all(verbs.Send(i, [end.memory.part(ROOMS * ROOM + i * part, part)])
                  for i in range(TOTAL // part))
    pair.shutdown()
    refused(verbs.Closed, pair.post_inline, 0, b"late")
    came = 0
    while (done := one_of(end.came)).status != verbs.FLUSHED:
        # One room after the other, and each from where it was left on.
        assert done.check().id * ROOM + done.offset == came
        came += done.length
    assert came == TOTAL
    assert [one_of(end.sent).check().id for _ in range(TOTAL // part)] == list(range(TOTAL // part))
    assert end.memory.read(0, TOTAL) == answer(message)
    pair.close()


def any_of(place):
    return "0.0.0.0:0" if ipaddress.ip_address(host_and_port(place)[0]).version == 4 else "[::]:0"


def datagrams(link, address, place):
    end, server = End(link, address), host_and_port(place)
    pair = end.over.bind(any_of(place), end.sent, end.came, **DEPTHS)
    assert pair.local[1] != 0 and pair.remote is None
    for i in range(1, DATAGRAMS + 1):
        message = bytes([i]) * (i * 37 % 1400 + 1)
        pair.post_receive(1, end.room(1))
        if i % 2:
            end.memory.write(ROOMS * ROOM, message)
            pair.post_send(i, end.memory.part(ROOMS * ROOM, len(message)), to=server)
        else:
            pair.post_inline(i, message, server)
        sent, came = one_of(end.sent).check(), one_of(end.came).check()
        assert (sent.id, sent.source) == (i, None)
        assert (came.id, came.length, came.source) == (1, len(message), server)
        assert end.memory.read(ROOM, came.length) == answer(message)
    # One that is longer than its room is told of, and lost; the next one is not.
    pair.post_receive(2, end.room(2, 8))
    pair.post_receive(3, end.room(3, 64))
    for id, status in [(2, verbs.LONGER), (3, verbs.DONE)]:
        pair.post_inline(0, bytes(64), server)
        came = one_of(end.came)
        assert (came.id, came.status, came.length, came.source) == (id, status, 64, server)
    pair.close()


def refused(error, call, *arguments):
    try:
        call(*arguments)
    except error as why:
        assert str(why)
        return
    raise AssertionError(f"{call} {arguments} is taken")


async def stream_of(pair, memory):
    """What comes of a stream, until the other side has sent all."""
    filling = collections.deque()

    def fill(number):
        # Where both sides have sent all, which may be soon, nobody needs more room.
        with contextlib.suppress(verbs.Closed):
            filling.append((number, pair.fill(memory.part(number * ROOM, ROOM))))

    for number in range(ROOMS):
        fill(number)
    while filling:
        number, room = filling.popleft()
        try:
            async for came in room:
                yield memory.read(number * ROOM + came.offset, came.length)
        except verbs.NotDone as why:
            assert why.completion.status == verbs.FLUSHED, why
            return
        fill(number)


async def echo_in_tasks(over, place):
    pair = await over.listen(place).accept(stream=True, **DEPTHS)
    sending = collections.deque()
    async for message in stream_of(pair, over.region(ROOMS * ROOM)):
        if len(sending) == ROOMS:
            await sending.popleft()
        if message:
            sending.append(pair.send_bytes(answer(message)))
    await asyncio.gather(*sending)
    pair.shutdown()
    await pair.close()


async def ask_in_tasks(over, place):
    pair, message = await over.connect(place, stream=True, **DEPTHS), question()
    refused(verbs.Error, pair.receive)
    out = over.region(TOTAL)
    out.write(0, message)
    sending = pair.send(out.part())
    pair.shutdown()
    came = [part async for part in stream_of(pair, over.region(ROOMS * ROOM))]
    assert b"".join(came) == answer(message)
    assert (await sending).length == TOTAL
    await pair.close()


async def datagrams_in_tasks(over, place):
    pair, room, server = over.bind(any_of(place), **DEPTHS), over.region(1400), host_and_port(place)
    refused(verbs.Error, pair.fill, room.part())
    for i in range(1, DATAGRAMS + 1):
        message = bytes([i]) * (i * 37 % 1400 + 1)
        receiving = pair.receive(room.part())
        await pair.send_bytes(message, to=server)
        came = await receiving
        assert (came.source, room.read(0, came.length)) == (server, answer(message))
    await pair.close()


def in_tasks(run):
    async def opened(link, address, place):
        async with verbs_asyncio.Verbs(verbs.over_qpip(link, address)) as over:
            await asyncio.wait_for(run(over, place), PATIENCE)

    return lambda *arguments: asyncio.run(opened(*arguments))


if __name__ == "__main__":
    {"echo": echo, "ask": ask, "datagrams": datagrams, "echo-async": in_tasks(echo_in_tasks),
     "ask-async": in_tasks(ask_in_tasks),
     "datagrams-async": in_tasks(datagrams_in_tasks)}[sys.argv[1]](*sys.argv[2:])
