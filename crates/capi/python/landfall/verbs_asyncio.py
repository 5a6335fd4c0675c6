"""``landfall.verbs`` for asyncio: completions are awaited.

    from landfall import verbs, verbs_asyncio
    over = verbs_asyncio.Verbs(verbs.over_stp(endpoint))
    pair = await over.connect("192.0.2.1:8181/7")
    answer = room.part(0, 1024)
    receiving = pair.receive(answer)
    await pair.send_bytes(b"a question")
    completion = await receiving

What is called is posted at once, in the order of the calls; what is awaited is its completion,
or ``verbs.NotDone``. A task that is cancelled does not take back what it has posted. All belongs
to the event loop in which it is opened.

Over QPIP there are streams of bytes (``connect(place, stream=True)``), whose other end may be any
socket of TCP, and datagrams (``bind``). What comes of a stream fills rooms:

    async for came in pair.fill(room.part(0, 4096)):
        print(room.read(came.offset, came.length))
"""

import asyncio
import collections
import itertools

from . import verbs
from .stp_asyncio import _Handle, _thread
from .verbs import Atomic, RdmaRead, RdmaWrite, Receive, Send

__all__ = ["Filling", "Listener", "Pair", "Verbs"]


class Verbs:
    """What carries queue pairs: of ``verbs.over_node``, ``over_stp`` or ``over_qpip``."""

    def __init__(self, over, capacity=1024):
        self.blocking, self._loop = over, asyncio.get_running_loop()
        self._done, self._waiting, self._ids = over.completions(capacity), {}, itertools.count(1)
        self._loop.add_reader(self._done.fileno(), self._look)

    def region(self, length, rights=verbs.READ | verbs.WRITE):
        return self.blocking.region(length, rights)

    def listen(self, place):
        return Listener(self, self.blocking.listen(place))

    async def connect(self, place, timeout=30, **options):
        pair = await _thread(lambda: self.blocking.connect(place, self._done, timeout=timeout,
                                                           **options))
        return Pair(self, pair, **options)

    def bind(self, place, **options):
        return Pair(self, self.blocking.bind(place, self._done, **options))

    async def close(self):
        if self._done is not None:
            self._loop.remove_reader(self._done.fileno())
            self._done.close()
            self._done = None
        waiting, self._waiting = self._waiting, {}
        for waits in waiting.values():
            waits.cancel()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    def _post(self, post, waits=None):
        """Posts something under a name of its own; what waits for its completion."""
        if self._done is None:
            raise verbs.Error("it is closed")
        name = next(self._ids)
        post(name)
        waits = self._waiting[name] = waits or self._loop.create_future()
        self._look()
        return waits

    def _look(self):
        while True:
            for completion in self._done.poll():
                find = self._waiting.get if completion.stays else self._waiting.pop
                waits = find(completion.id, None)
                if waits is None or waits.done():
                    continue
                if completion.status == verbs.DONE:
                    waits.set_result(completion)
                else:
                    waits.set_exception(verbs.NotDone(completion))
            if self._done.arm():
                return


class Filling:
    """A room of a stream: an asynchronous iterator of the completions that say what has come into
    it, until it is used up. It raises ``verbs.NotDone`` where the other side has sent all
    (``verbs.FLUSHED``), or is gone."""

    def __init__(self):
        self._came, self._wakes, self._is_over = collections.deque(), asyncio.Event(), False

    def __aiter__(self):
        return self

    async def __anext__(self):
        while not self._came:
            if self._is_over:
                raise StopAsyncIteration
            self._wakes.clear()
            await self._wakes.wait()
        came = self._came.popleft()
        if isinstance(came, BaseException):
            raise came
        return came

    # As a future has them: what completes is handed in.
    def done(self):
        return self._is_over

    def set_result(self, completion):
        self._came.append(completion)
        self._is_over = not completion.stays
        self._wakes.set()

    def set_exception(self, why):
        self._came.append(why)
        self._is_over = True
        self._wakes.set()

    def cancel(self):
        self.set_exception(asyncio.CancelledError())


class Listener(_Handle):
    async def accept(self, timeout=None, **options):
        """The next queue pair that has connected. It waits in a thread, a little at a time, so
        that nothing is left over where its task is cancelled."""
        end = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            try:
                pair = await _thread(lambda: self.blocking.accept(self.endpoint._done, timeout=0.05,
                                                                  **options))
                return Pair(self.endpoint, pair, **options)
            except verbs.TimedOut:
                if end is not None and asyncio.get_running_loop().time() >= end:
                    raise


class Pair(_Handle):
    """As ``landfall.verbs.Pair``; what is posted can be awaited."""

    def __init__(self, over, pair, stream=False, **_):
        super().__init__(over, pair)
        self._is_stream = stream

    @property
    def local(self):
        return self.blocking.local

    @property
    def remote(self):
        return self.blocking.remote

    def shutdown(self):
        self.blocking.shutdown()

    def send(self, *parts, immediate=None, to=None):
        return self._post(lambda id: self.blocking.post_all(
            [Send(id, parts, immediate, to=to)]))

    def send_bytes(self, message, to=None):
        """Sends a copy, of whatever has the buffer protocol, up to ``inlined`` bytes."""
        return self._post(lambda id: self.blocking.post_inline(id, message, to))

    def receive(self, *parts):
        if self._is_stream:
            raise verbs.Error("a stream fills rooms: use fill")
        return self._post(lambda id: self.blocking.post_receives([Receive(id, parts)]))

    def fill(self, *parts):
        """Posts room for a stream; post several, and the window does not close."""
        if not self._is_stream:
            raise verbs.Error("only a stream fills rooms: use receive")
        return self._post(lambda id: self.blocking.post_receives([Receive(id, parts)]), Filling())

    def write(self, key, at, *parts, immediate=None):
        return self._post(lambda id: self.blocking.post_all(
            [RdmaWrite(id, parts, key, at, immediate)]))

    def read(self, key, at, *parts):
        return self._post(lambda id: self.blocking.post_all([RdmaRead(id, parts, key, at)]))

    def atomic(self, key, at, part, function, operand=0, expected=0):
        return self._post(lambda id: self.blocking.post_all(
            [Atomic(id, [part], key, at, function, operand, expected)]))

    def share(self, region):
        return self.blocking.share(region)

    def withdraw(self, key):
        self.blocking.withdraw(key)

    def _post(self, post, waits=None):
        return self.endpoint._post(post, waits)
