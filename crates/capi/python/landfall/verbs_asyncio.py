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
"""

import asyncio
import itertools

from . import verbs
from .stp_asyncio import _Handle, _thread
from .verbs import Atomic, RdmaRead, RdmaWrite, Receive, Send

__all__ = ["Listener", "Pair", "Verbs"]


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

    async def connect(self, place, timeout=30, **depths):
        pair = await _thread(lambda: self.blocking.connect(place, self._done, timeout=timeout,
                                                           **depths))
        return Pair(self, pair)

    async def close(self):
        if self._done is not None:
            self._loop.remove_reader(self._done.fileno())
            self._done.close()
            self._done = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    def _post(self, post):
        """Posts something under a name of its own: its completion."""
        if self._done is None:
            raise verbs.Error("it is closed")
        name = next(self._ids)
        post(name)
        future = self._waiting[name] = self._loop.create_future()
        self._look()
        return future

    def _look(self):
        while True:
            for completion in self._done.poll():
                future = self._waiting.pop(completion.id, None)
                if future is None or future.done():
                    continue
                if completion.status == verbs.DONE:
                    future.set_result(completion)
                else:
                    future.set_exception(verbs.NotDone(completion))
            if self._done.arm():
                return


class Listener(_Handle):
    async def accept(self, timeout=None, **depths):
        """The next queue pair that has connected. It waits in a thread, a little at a time, so
        that nothing is left over where its task is cancelled."""
        end = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            try:
                pair = await _thread(lambda: self.blocking.accept(self.endpoint._done, timeout=0.05,
                                                                  **depths))
                return Pair(self.endpoint, pair)
            except verbs.TimedOut:
                if end is not None and asyncio.get_running_loop().time() >= end:
                    raise


class Pair(_Handle):
    """As ``landfall.verbs.Pair``; what is posted can be awaited."""

    def send(self, *parts, immediate=None):
        return self._post(lambda id: self.blocking.post_all([Send(id, parts, immediate)]))

    def send_bytes(self, message):
        """Sends a copy, of whatever has the buffer protocol, up to ``inlined`` bytes."""
        return self._post(lambda id: self.blocking.post_inline(id, message))

    def receive(self, *parts):
        return self._post(lambda id: self.blocking.post_receives([Receive(id, parts)]))

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

    def _post(self, post):
        return self.endpoint._post(post)
