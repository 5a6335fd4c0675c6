"""Registered memory, and handles for several threads: of STP and of queue pairs."""

import ctypes
import threading
from typing import NamedTuple

from . import _P, _SIZE, _check, _declare, _Handle, _lib

_U64, _INT = ctypes.c_uint64, ctypes.c_int
_declare([
    ("lf_region_close", None, [_P]), ("lf_region_write", _INT, [_P, _U64, _P, _SIZE]),
    ("lf_region_read", _INT, [_P, _U64, _P, _SIZE]),
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


class Region(_Shared):
    """Registered memory, from where bytes are sent and where they land."""

    _close = staticmethod(_lib.lf_region_close)

    def __init__(self, address, endpoint, length=None):
        super().__init__(address, endpoint)
        self.length = length

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
