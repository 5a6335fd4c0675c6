"""Fragments of IPv4 and IPv6 in, packets out, for tools that read captures.

    from landfall import reassembly
    with reassembly.Reassembler(reassembly.ETHERNET) as joins:
        for now, frame in frames:
            packet = joins.offer(frame, now)

What overlaps, or is not plainly one packet cut into fragments, is dropped; memory is bounded, in
all and for each source.
"""

import ctypes
import threading
import time
from typing import NamedTuple

from . import _P, _SIZE, _T, _U32, Refused, _check, _declare, _fail, _Handle, _lib
from ._memory import _INT, _U64, _Bytes

__all__ = ["Counts", "Dropped", "ETHERNET", "IP", "Reassembler"]

ETHERNET, IP = 0, 1


class _Config(ctypes.Structure):
    _fields_ = [("link", _U32), ("packets", _U32), ("bytes", _U64), ("lifetime", _U32),
                ("reserved", _U32)]


class _Counts(ctypes.Structure):
    _fields_ = [(name, _U64) for name in ("offered", "packets", "dropped", "expired", "waiting",
                                          "memory")]


_declare([
    ("lf_reassembler_open", _P, [ctypes.POINTER(_Config)]),
    ("lf_reassemble", _T, [_P, _U64, _P, _SIZE, ctypes.POINTER(_P)]),
    ("lf_reassembler_expire", _INT, [_P, _U64]),
    ("lf_reassembler_counts", _INT, [_P, ctypes.POINTER(_Counts)]),
    ("lf_reassembler_dropped", ctypes.c_char_p, [_P, _U32, ctypes.POINTER(_U64)]),
    ("lf_reassembler_close", None, [_P]),
])


class Dropped(Refused):
    """A frame was dropped; the text says why."""


class Counts(NamedTuple):
    """What became of all frames so far, and what waits now."""

    offered: int
    packets: int
    dropped: int
    expired: int
    waiting: int
    memory: int


def _nanoseconds(now):
    return time.monotonic_ns() if now is None else round(now * 1_000_000_000)


class Reassembler(_Handle):
    """Joins fragments. The most packets and bytes that wait, of which one source has a sixteenth,
    and how many seconds they wait: as usual, 16,384, 64 MiB and 30."""

    _close = staticmethod(_lib.lf_reassembler_close)

    def __init__(self, link=ETHERNET, packets=0, bytes=0, lifetime=None):
        lifetime = 0 if lifetime is None else max(1, round(lifetime * 1000))
        config = _Config(link, packets, bytes, lifetime, 0)
        self._lock = threading.RLock()
        super().__init__(_lib.lf_reassembler_open(ctypes.byref(config)) or _fail())

    def close(self):
        with self._lock:
            super().close()

    def offer(self, frame, now=None):
        """Takes a frame that came at ``now``, in seconds. It gives what is to be looked at: the
        frame itself where it is no fragment, the packet that is complete with it, headers first,
        as bytes, or nothing, if others are missing. ``Dropped`` says why it was dropped."""
        held, packet = _Bytes(frame), _P()
        with self._lock:
            length = _lib.lf_reassemble(self._get(), _nanoseconds(now), held.address, held.length,
                                        ctypes.byref(packet))
            if length == -6:
                raise Dropped(_lib.lf_error().decode())
            if _check(length) == 0:
                return None
            # Without fragments it is the address that was given.
            if packet.value == held.address:
                return frame
            return ctypes.string_at(packet.value, length)

    def expire(self, now=None):
        """Forgets what was not complete in time, for times in which no frame comes."""
        with self._lock:
            _check(_lib.lf_reassembler_expire(self._get(), _nanoseconds(now)))

    @property
    def counts(self):
        counts = _Counts()
        with self._lock:
            _check(_lib.lf_reassembler_counts(self._get(), ctypes.byref(counts)))
        return Counts(*(getattr(counts, name) for name, _ in _Counts._fields_))

    @property
    def dropped(self):
        """How many frames were dropped, by why."""
        found, count = {}, _U64()
        with self._lock:
            while (why := _lib.lf_reassembler_dropped(self._get(), len(found),
                                                      ctypes.byref(count))) is not None:
                found[why.decode()] = count.value
        return found
