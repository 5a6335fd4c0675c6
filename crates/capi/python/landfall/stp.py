"""Messages and memory between hosts, over the Scheduled Transfer Protocol (STP).

    from landfall import stp
    endpoint = stp.Endpoint("127.0.0.1:0", key=key)
    connection = endpoint.connect("127.0.0.1:8181", 7)
    connection.send(b"a question")
    print(connection.receive())

Whatever has the buffer protocol can be sent: bytes, bytearray, memoryview, arrays of numpy.
Calls that wait let other threads of Python go on. ``landfall.stp_asyncio`` has the same for
asyncio.

Handles may be used by several threads at once; messages are received by one at a time. What is
closed while other threads use it is gone when they are done; a connection is ended for them.
"""

import ctypes

from . import (_P, _S, _SIZE, _T, _U32, Closed, Error, Lost, Refused, TimedOut, TooLong, _check,
               _declare, _fail, _lib, _timeout)
from ._memory import _INT, _U64, Region, _Bytes, _key_of, _Shared

__all__ = ["ADD", "AND", "COMPARE_SWAP", "Closed", "Connection", "Endpoint", "Error", "FETCH",
           "GET", "KEY", "LOAD", "Listener", "Lost", "OR", "PUT", "Refused", "Region", "Remote",
           "STORE", "SWAP", "TimedOut", "TooLong", "XOR"]

GET, PUT, FETCH = 1, 2, 4
LOAD, STORE, SWAP, ADD, AND, OR, XOR, COMPARE_SWAP = range(8)
KEY = 13
_MOST = 1 << 24
_TIMED_OUT = -1


class _Config(ctypes.Structure):
    _fields_ = [("address", _S), ("key", _S), ("threads", _U32), ("flags", _U32),
                ("keep_alive", _U32), ("patience", _U32)]


_U16 = ctypes.c_uint16
_declare([
    ("lf_stp_open", _P, [ctypes.POINTER(_Config)]), ("lf_stp_close", None, [_P]),
    ("lf_stp_local", _T, [_P, _P, _SIZE]), ("lf_stp_descriptor", _INT, [_P]),
    ("lf_stp_listen", _P, [_P, _U16]), ("lf_stp_accept", _P, [_P, _T]),
    ("lf_stp_listener_close", None, [_P]), ("lf_stp_connect", _P, [_P, _S, _U16, _T]),
    ("lf_stp_connection_close", _INT, [_P, _T]), ("lf_stp_abort", _INT, [_P]),
    ("lf_stp_send", _INT, [_P, _P, _SIZE, _U32, _T]), ("lf_stp_next", _T, [_P, _T]),
    ("lf_stp_receive", _T, [_P, _P, _SIZE, ctypes.POINTER(_U32), _T]),
    ("lf_stp_refuse", _INT, [_P]),
    ("lf_stp_region_open", _P, [_P, _U64]),
    ("lf_stp_share", _INT, [_P, _P, _U64, _U64, _U32, _P]), ("lf_stp_withdraw", _INT, [_P, _S]),
    ("lf_stp_remote_open", _P, [_P, _S, _T]), ("lf_stp_remote_close", None, [_P]),
    ("lf_stp_put", _INT, [_P, _U64, _P, _SIZE, _T]),
    ("lf_stp_get", _INT, [_P, _U64, _P, _SIZE, _T]),
    ("lf_stp_fetch", _INT, [_P, _U64, _U32, _U32, _U64, _U64, ctypes.POINTER(_U64), _T]),
    ("lf_stp_begin_send", _P, [_P, _P, _SIZE, _U32]),
    ("lf_stp_begin_put", _P, [_P, _U64, _P, _SIZE]),
    ("lf_stp_begin_get", _P, [_P, _U64, _P, _U64, _U64]),
    ("lf_stp_begin_fetch", _P, [_P, _U64, _U32, _U32, _U64, _U64]),
    ("lf_stp_status", _INT, [_P, ctypes.POINTER(_U64), _T]),
    ("lf_stp_operation_close", None, [_P]),
])


def _key(key):
    return _key_of(key, KEY)


class _Operation(_Shared):
    """Something under way."""

    _close = staticmethod(_lib.lf_stp_operation_close)
    # The uses of a region, and its own name there.
    _used = None

    def value(self, timeout=None):
        value = _U64()
        code = self._call(_lib.lf_stp_status, ctypes.byref(value), _timeout(timeout))
        if code != _TIMED_OUT:
            self._is_over()
        _check(code)
        return value.value

    def close(self):
        super().close()
        self._is_over()

    def _is_over(self):
        used, self._used = self._used, None
        if used:
            used[0].end(used[1])


class Endpoint(_Shared):
    """One end: give both sides the same ``key`` of 32 random bytes, or none, and they prove who
    they are by identities of their users. What stays on the host is plain unless
    ``encrypt_loopback`` is set; with ``plaintext`` all is. A peer that is silent for
    ``keep_alive`` seconds is asked whether it lives, and one that is silent for about ``patience``
    seconds counts as gone (half a minute, unless it is said)."""

    def __init__(self, address="0.0.0.0:0", key=None, threads=1, plaintext=False,
                 encrypt_loopback=False, keep_alive=None, patience=None):
        if key is not None and len(bytes(key)) != 32:
            raise ValueError("a key has 32 random bytes: os.urandom(32)")
        # A structure of C would end at its first zero.
        held = ctypes.create_string_buffer(bytes(key), 32) if key is not None else None
        flags = (1 if plaintext else 0) | (2 if encrypt_loopback else 0)
        keep_alive, patience = (0 if seconds is None else max(1, int(seconds * 1000))
                                for seconds in (keep_alive, patience))
        config = _Config(address.encode(), ctypes.cast(held, _S) if held else None, threads, flags,
                         keep_alive, patience)
        super().__init__(_lib.lf_stp_open(ctypes.byref(config)) or _fail())

    _close = staticmethod(_lib.lf_stp_close)

    @property
    def address(self):
        """Where peers reach it."""
        text = ctypes.create_string_buffer(64)
        _check(self._call(_lib.lf_stp_local, text, len(text)))
        return text.value.decode()

    def fileno(self):
        """A descriptor that becomes readable when what was tried with a timeout of 0 may be
        there: read its eight bytes first, and try again."""
        return _check(self._call(_lib.lf_stp_descriptor))

    def listen(self, port):
        """Lets connections come in at a port of STP."""
        return Listener(self._call(_lib.lf_stp_listen, port) or _fail(), self)

    def connect(self, peer, port, timeout=None):
        """Connects to ``"HOST:PORT"``, where ``PORT`` is of UDP, and to a port of STP there."""
        found = self._call(_lib.lf_stp_connect, peer.encode(), port, _timeout(timeout))
        return Connection(found or _fail(), self)

    def region(self, length):
        """Memory that can be shared, all zero."""
        return Region(self._call(_lib.lf_stp_region_open, length) or _fail(), self, length)


class Listener(_Shared):
    _close = staticmethod(_lib.lf_stp_listener_close)

    def accept(self, timeout=None):
        return Connection(self._call(_lib.lf_stp_accept, _timeout(timeout)) or _fail(),
                          self._endpoint)


class Connection(_Shared):
    @staticmethod
    def _close(address):
        # What is under way has this long; afterwards it is ended.
        _lib.lf_stp_connection_close(address, 5000)

    _end = staticmethod(_lib.lf_stp_abort)

    def abort(self):
        """Ends it now, with all that is under way; the other side is told."""
        _check(self._call(_lib.lf_stp_abort))

    def begin_send(self, message, opaque=0):
        message = _Bytes(message)
        return _Operation(self._call(_lib.lf_stp_begin_send, message.address, message.length,
                                     opaque) or _fail(), self._endpoint)

    def send(self, message, timeout=None, opaque=0):
        """Sends a message, and waits until the other side has received it."""
        message = _Bytes(message)
        _check(self._call(_lib.lf_stp_send, message.address, message.length, opaque,
                                _timeout(timeout)))

    def next(self, timeout=None):
        """How long the next message is. It stays the next one."""
        return _check(self._call(_lib.lf_stp_next, _timeout(timeout)))

    def receive(self, timeout=None, most=_MOST):
        """The next message, as a bytearray. One that is longer than ``most`` stays: receive it
        with more, or refuse it."""
        return self.receive_tagged(timeout, most)[0]

    def receive_tagged(self, timeout=None, most=_MOST):
        """The next message, and the number (``opaque``) that its sender said."""
        while True:
            message = bytearray(min(self.next(timeout), most))
            try:
                length, opaque = self._receive(message, timeout)
            except TooLong:
                # What was the next one may have been given up, and another one has come.
                if self.next(0) > most:
                    raise
            else:
                return message[:length] if length < len(message) else message, opaque

    def receive_into(self, buffer, timeout=None):
        """Receives into a bytearray, a memoryview or the like: how many bytes came."""
        return self._receive(buffer, timeout)[0]

    def _receive(self, buffer, timeout):
        into, opaque = _Bytes(buffer, writable=True), _U32()
        length = _check(self._call(_lib.lf_stp_receive, into.address, into.length,
                                            ctypes.byref(opaque), _timeout(timeout)))
        return length, opaque.value

    def refuse(self):
        """Refuses the next message; its sender is told."""
        _check(self._call(_lib.lf_stp_refuse))

    def share(self, region, rights=GET | PUT | FETCH, at=0, length=None):
        """Lets the other side use a region: the key for it, to be sent."""
        key = ctypes.create_string_buffer(KEY)
        length = region.length - at if length is None else length
        if at < 0 or length < 0:
            raise ValueError("the region has no such part")
        _check(self._call(lambda connection: region._call(
            lambda region: _lib.lf_stp_share(connection, region, at, length, rights, key))))
        return key.raw

    def withdraw(self, key):
        _check(self._call(_lib.lf_stp_withdraw, _key(key)))

    def remote(self, key, timeout=None):
        """The memory of a key that the other side has sent."""
        found = self._call(_lib.lf_stp_remote_open, _key(key), _timeout(timeout))
        return Remote(found or _fail(), self._endpoint)


class Remote(_Shared):
    """Memory of the other side."""

    _close = staticmethod(_lib.lf_stp_remote_close)

    def put(self, at, data, timeout=None):
        data = _Bytes(data)
        _check(self._call(_lib.lf_stp_put, at, data.address, data.length, _timeout(timeout)))

    def get(self, at, length, timeout=None):
        found = bytearray(length)
        self.get_into(at, found, timeout)
        return found

    def begin_put(self, at, data):
        data = _Bytes(data)
        return _Operation(self._call(_lib.lf_stp_begin_put, at, data.address, data.length)
                          or _fail(), self._endpoint)

    def begin_get(self, at, region, region_at, length):
        """Gets into a region, from ``region_at`` on."""
        name = region._use(region_at, length, False, True)
        try:
            begun = _Operation(self._call(lambda remote: region._call(
                lambda there: _lib.lf_stp_begin_get(remote, at, there, region_at, length)))
                or _fail(), self._endpoint)
        except BaseException:
            region._uses.end(name)
            raise
        begun._used = region._uses, name
        return begun

    def begin_fetch(self, at, function, operand=0, expected=0, width=8):
        return _Operation(self._call(_lib.lf_stp_begin_fetch, at, width, function, operand,
                                     expected) or _fail(), self._endpoint)

    def get_into(self, at, buffer, timeout=None):
        into = _Bytes(buffer, writable=True)
        _check(self._call(_lib.lf_stp_get, at, into.address, into.length, _timeout(timeout)))

    def fetch(self, at, function, operand=0, expected=0, width=8, timeout=None):
        """Changes a word in one step: what it held before."""
        old = _U64()
        _check(self._call(_lib.lf_stp_fetch, at, width, function, operand, expected,
                                 ctypes.byref(old), _timeout(timeout)))
        return old.value
