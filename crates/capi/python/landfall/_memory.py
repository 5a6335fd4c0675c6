"""Registered memory, and handles for several threads: of STP and of queue pairs."""

import collections
import ctypes
import threading
import weakref
from typing import NamedTuple

from . import _P, _SIZE, _check, _declare, _fail, _Handle, _lib

_U64, _INT = ctypes.c_uint64, ctypes.c_int
_declare([
    ("lf_region_close", None, [_P]), ("lf_region_write", _INT, [_P, _U64, _P, _SIZE]),
    ("lf_region_read", _INT, [_P, _U64, _P, _SIZE]),
    ("lf_view_open", _P, [_P, _U64, _U64]), ("lf_view_bytes", _P, [_P]),
    ("lf_view_close", None, [_P]),
])


class _Bytes:
    """The bytes of whatever has the buffer protocol, where they lie if they are writable."""

    def __init__(self, buffer, writable=False):
        self._view = memoryview(buffer).cast("B") if memoryview(buffer).nbytes else None
        self.length = self._view.nbytes if self._view else 0
        if not self._view:
            self.address = None
        elif not self._view.readonly:
            self._from = (ctypes.c_char * self.length).from_buffer(self._view)
            self.address = ctypes.addressof(self._from)
        elif writable:
            raise TypeError("the buffer is read-only: give a bytearray, or a memoryview of one")
        else:
            # ctypes takes the address of bytes only.
            self._from = buffer if type(buffer) is bytes else bytes(self._view)
            self.address = ctypes.cast(ctypes.c_char_p(self._from), _P).value


def _key_of(key, length):
    key = bytes(key)
    if len(key) != length:
        raise ValueError(f"a key has {length} bytes, and this has {len(key)}")
    return key


class _Shared(_Handle):
    """A handle for several threads: the last of them that is within a call closes it."""

    def __init__(self, address, *keeps):
        self._lock, self._users, self._left = threading.Lock(), 0, None
        super().__init__(address, *keeps)

    @property
    def _endpoint(self):
        self._get()
        return self._keeps[0]

    def _call(self, function, *arguments):
        address = self._acquire()
        try:
            return function(address, *arguments)
        finally:
            self._release()

    def _acquire(self):
        """Its address, which stays open until it is released."""
        with self._lock:
            address = self._get()
            self._users += 1
        return address

    def _release(self):
        with self._lock:
            self._users -= 1
            left = self._left if self._users == 0 else None
            self._left = None if left else self._left
        if left:
            self._close(left)

    def close(self):
        with self._lock:
            address, self._address = self._address, None
            if address is not None and self._users:
                self._left = address
                self._end(address)
                address = None
        if address is not None:
            self._close(address)
        if self._left is None:
            self._keeps = ()

    @staticmethod
    def _end(address):
        """Ends the calls of other threads, where that can be."""


class _Use(NamedTuple):
    """What uses some bytes of a region: a view of the program, or a request that is under way."""

    at: int
    end: int
    is_view: bool
    # The program may write, or what arrives lands there.
    writes: bool

    def hinders(self, other):
        """May the two not be at the same time? Requests are their poster's matter."""
        writes = self.writes or other.writes
        return (writes and self.is_view != other.is_view
                and self.at < other.end and other.at < self.end)


class _Uses:
    """All uses of a region."""

    def __init__(self):
        # Objects may be collected, and views end with them, wherever a thread is.
        self._lock, self._listed, self._next = threading.RLock(), {}, 0

    def begin(self, use):
        with self._lock:
            for other in list(self._listed.values()):
                if use.hinders(other):
                    what = "a request that is under way" if use.is_view else "a view"
                    raise BufferError(f"{what} uses bytes {other.at} to {other.end}: "
                                      "end it first, or let a view read only")
            self._next += 1
            self._listed[self._next] = use
            return self._next

    def end(self, name):
        self._listed.pop(name, None)


class _Posted:
    """Requests of a queue that are not complete, with what they use: (uses, name) of each part."""

    def __init__(self):
        self._lock, self._listed = threading.Lock(), collections.deque()
        # Held by who posts: what is listed has the order of what is posted.
        self.order = threading.Lock()

    def add(self, id, used):
        with self._lock:
            self._listed.append((id, used))

    def withdraw(self, count):
        """The last of them were not posted after all."""
        with self._lock:
            gone = [self._listed.pop() for _ in range(min(count, len(self._listed)))]
        self._end(gone)

    def done(self, id, with_those_before):
        """This one is complete; what was sent before it is, too."""
        with self._lock:
            at = next((at for at, (known, _) in enumerate(self._listed) if known == id), None)
            if at is None:
                return
            first = 0 if with_those_before else at
            gone = [self._listed[nth] for nth in range(first, at + 1)]
            for _ in gone:
                del self._listed[first]
        self._end(gone)

    def clear(self):
        with self._lock:
            gone, self._listed = self._listed, collections.deque()
        self._end(gone)

    @staticmethod
    def _end(gone):
        for _, used in gone:
            for uses, name in used:
                uses.end(name)


def _view_ends(uses, name, view):
    uses.end(name)
    _lib.lf_view_close(view)


class Region(_Shared):
    """Registered memory, from where bytes are sent and where they land."""

    _close = staticmethod(_lib.lf_region_close)

    def __init__(self, address, endpoint, length=None):
        super().__init__(address, endpoint)
        self.length, self._uses = length, _Uses()

    def view(self, at=0, length=None, write=False):
        """The bytes where they lie, without a copy, as a memoryview: ``numpy.frombuffer`` and all
        that has the buffer protocol reads it. With ``write`` it may be written. It stays good when
        the region is closed.

        ``BufferError``: a request that is under way uses them. What it sends may be read
        meanwhile, and not written; where it receives there is no view. So is a request refused
        that would clash with a view: end that before (``release``, or ``with``). What was shared
        the other side may write at any moment."""
        length = self.length - at if length is None else length
        name = self._use(at, length, True, write)
        view = None
        try:
            view = self._call(_lib.lf_view_open, at, length) or _fail()
            bytes_there = (ctypes.c_ubyte * length).from_address(_lib.lf_view_bytes(view))
        except BaseException:
            self._uses.end(name)
            if view:
                _lib.lf_view_close(view)
            raise
        # It goes with the last memoryview of it.
        weakref.finalize(bytes_there, _view_ends, self._uses, name, view).atexit = False
        found = memoryview(bytes_there).cast("B")
        return found if write else found.toreadonly()

    # From Python 3.12 on: ``memoryview(region)``.
    def __buffer__(self, flags):
        return self.view(write=bool(flags & 1))

    def _use(self, at, length, is_view, writes):
        if at < 0 or length < 1 or self.length is not None and at + length > self.length:
            if is_view:
                raise ValueError("the region has no such part")
            # What is posted is checked by those who do it.
            length = max(length, 0)
        return self._uses.begin(_Use(at, at + length, is_view, writes))

    def write(self, at, data):
        data = _Bytes(data)
        _check(self._call(_lib.lf_region_write, at, data.address, data.length))

    def read(self, at, length):
        found = bytearray(length)
        self.read_into(at, found)
        return found

    def read_into(self, at, buffer):
        into = _Bytes(buffer, writable=True)
        _check(self._call(_lib.lf_region_read, at, into.address, into.length))

    def part(self, at=0, length=None):
        """Some of it, for requests of queue pairs; without a length all behind ``at``."""
        return Part(self, at, self.length - at if length is None else length)


class Part(NamedTuple):
    """Some bytes of a region."""

    region: Region
    at: int
    length: int
