"""``landfall.stp`` for asyncio.

    from landfall import stp_asyncio
    endpoint = stp_asyncio.Endpoint("127.0.0.1:0", key=key)
    connection = await endpoint.connect("127.0.0.1:8181", 7)
    await connection.send(b"a question")
    print(await connection.receive())

A send whose task is cancelled is not sent any more, and a receive loses nothing. An endpoint
belongs to the event loop in which it is first waited with.
"""

import asyncio
import os

from . import stp
from .stp import FETCH, GET, PUT, TimedOut, TooLong

__all__ = ["Connection", "Endpoint", "Listener", "Remote"]


class Endpoint:
    """As ``landfall.stp.Endpoint``."""

    def __init__(self, *arguments, **options):
        self.blocking = stp.Endpoint(*arguments, **options)
        self._loop, self._waiting = None, []

    @property
    def address(self):
        return self.blocking.address

    def region(self, length):
        return self.blocking.region(length)

    def listen(self, port):
        return Listener(self, self.blocking.listen(port))

    async def connect(self, peer, port, timeout=None):
        return Connection(self, await _thread(self.blocking.connect, peer, port, timeout))

    async def close(self):
        if self._loop is not None:
            self._loop.remove_reader(self.blocking.fileno())
            self._loop = None
        await _thread(self.blocking.close)
        self._wake()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    def _ring(self):
        try:
            os.read(self.blocking.fileno(), 8)
        except BlockingIOError:
            return
        self._wake()

    def _wake(self):
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _until(self, attempt):
        """Tries it whenever something has happened, until it does not say that it is not yet."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise RuntimeError("the endpoint belongs to another event loop")
            loop.add_reader(self.blocking.fileno(), self._ring)
            self._loop = loop
        while True:
            try:
                return attempt()
            except TimedOut:
                # No other task runs before the future is there: no ring is missed.
                future = loop.create_future()
            self._waiting.append(future)
            await future

    async def _over(self, operation):
        """The value of an operation; it is cancelled with its task."""
        with operation:
            return await self._until(lambda: operation.value(0))


async def _thread(call, *arguments):
    """For what takes a few seconds at most."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


class _Handle:
    def __init__(self, endpoint, blocking):
        self.endpoint, self.blocking = endpoint, blocking

    async def close(self):
        await _thread(self.blocking.close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()


class Listener(_Handle):
    async def accept(self):
        accepted = await self.endpoint._until(lambda: self.blocking.accept(0))
        return Connection(self.endpoint, accepted)


class Connection(_Handle):
    """As ``landfall.stp.Connection``."""

    async def send(self, message, opaque=0):
        await self.endpoint._over(self.blocking.begin_send(message, opaque))

    async def next(self):
        return await self.endpoint._until(lambda: self.blocking.next(0))

    async def receive(self, most=stp._MOST):
        return (await self.receive_tagged(most))[0]

    async def receive_tagged(self, most=stp._MOST):
        while True:
            message = bytearray(min(await self.next(), most))
            try:
                length, opaque = await self._receive(message)
            except TooLong:
                # What was the next one may have been given up, and another one has come.
                if self.blocking.next(0) > most:
                    raise
            else:
                return message[:length] if length < len(message) else message, opaque

    async def receive_into(self, buffer):
        return (await self._receive(buffer))[0]

    async def _receive(self, buffer):
        return await self.endpoint._until(lambda: self.blocking._receive(buffer, 0))

    def refuse(self):
        self.blocking.refuse()

    def abort(self):
        self.blocking.abort()

    def share(self, region, rights=GET | PUT | FETCH, at=0, length=None):
        return self.blocking.share(region, rights, at, length)

    def withdraw(self, key):
        self.blocking.withdraw(key)

    async def remote(self, key, timeout=30):
        return Remote(self.endpoint, await _thread(self.blocking.remote, key, timeout))


class Remote(_Handle):
    """As ``landfall.stp.Remote``."""

    async def put(self, at, data):
        await self.endpoint._over(self.blocking.begin_put(at, data))

    async def get(self, at, length):
        if length == 0:
            return bytearray()
        with self.endpoint.region(length) as region:
            await self.endpoint._over(self.blocking.begin_get(at, region, 0, length))
            return region.read(0, length)

    async def fetch(self, at, function, operand=0, expected=0, width=8):
        begun = self.blocking.begin_fetch(at, function, operand, expected, width)
        return await self.endpoint._over(begun)
