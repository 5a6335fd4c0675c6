"""Queue pairs: requests that are posted, and complete.

    from landfall import verbs
    over = verbs.over_stp(endpoint)  # or over_node(node), over_qpip("packet:eth0", "10.0.0.2/24")
    done = over.completions()
    pair = over.connect("192.0.2.1:8181/7", done)
    room = over.region(4096)
    pair.post_receive(1, room.part(0, 1024))
    pair.post_inline(2, b"a question")
    for completion in done.wait():
        completion.check()

The same functions are for processes of one host (``over_node``), for hosts by STP
(``over_stp``), which reach memory of the other side, and for hosts by TCP (``over_qpip``),
which do not. ``landfall.verbs_asyncio`` awaits completions.

Handles may be used by several threads at once; completions of a queue are taken by one at a time.
"""

import contextlib
import ctypes
import ipaddress
import weakref
from typing import NamedTuple

from . import (_P, _S, _SIZE, _T, _U32, Closed, Error, Full, Lost, Refused, TimedOut,
               TooLong, _check, _declare, _fail, _lib, _timeout)
from ._memory import _INT, _U64, Part, Region, _Bytes, _key_of, _Posted, _Shared
from .stp import ADD, AND, COMPARE_SWAP, LOAD, OR, STORE, SWAP, XOR

__all__ = ["ADD", "AND", "COMPARE_SWAP", "Atomic", "Closed", "Completion", "Completions", "DONE",
           "Error", "FLUSHED", "Full", "GONE", "KEY", "LOAD", "LONGER", "Listener", "Lost",
           "MEMORY_GONE", "NO_ANSWER", "NotDone", "OR", "Pair", "Part", "READ", "RECEIVED",
           "REMOTE_ACCESS", "RdmaRead", "RdmaWrite", "Receive", "Refused", "Region", "SENT",
           "STORE", "SWAP", "Send", "SharedReceives", "TimedOut", "TooLong", "UNREACHABLE",
           "Verbs", "WRITE", "XOR", "over_node", "over_qpip", "over_stp"]

READ, WRITE = 1, 2
KEY = 32
SENT, RECEIVED = range(2)
DONE, LONGER, FLUSHED, GONE, NO_ANSWER, MEMORY_GONE, REMOTE_ACCESS, UNREACHABLE = range(8)
_SILENT, _IMMEDIATE, _CONTINUES, _STAYS = 1, 2, 4, 8
_STREAM = 1
_SEND, _WRITE, _READ, _ATOMIC = range(4)


class _Qpip(ctypes.Structure):
    _fields_ = [("link", _S), ("address", _S), ("gateway", _S), ("peer", _S), ("flags", _U32),
                ("reserved", _U32)]


class _Address(ctypes.Structure):
    _fields_ = [("ip", ctypes.c_ubyte * 16), ("port", ctypes.c_uint16),
                ("version", ctypes.c_ubyte), ("reserved", ctypes.c_ubyte)]

    @classmethod
    def of(cls, address):
        """Of a host and a port, as the module ``socket`` has them."""
        ip = ipaddress.ip_address(address[0])
        if not 0 <= address[1] < 65536:
            raise ValueError(f"{address[1]} is no port")
        return cls((ctypes.c_ubyte * 16)(*ip.packed), address[1], ip.version, 0)

    def pair(self):
        """Host and port; nothing where there is none."""
        if self.version == 0:
            return None
        packed = bytes(self.ip)[:4 if self.version == 4 else 16]
        return str(ipaddress.ip_address(packed)), self.port


class _Completion(ctypes.Structure):
    _fields_ = [("id", _U64), ("pair", _U64), ("operation", _U32), ("status", _U32),
                ("length", _U32), ("flags", _U32), ("immediate", _U32), ("offset", _U32),
                ("source", _Address)]


class _Options(ctypes.Structure):
    _fields_ = [("sends", _P), ("receives", _P), ("shared", _P), ("send_depth", _U32),
                ("receive_depth", _U32), ("inlined", _U32), ("flags", _U32)]


class _Part(ctypes.Structure):
    _fields_ = [("region", _P), ("at", _U64), ("length", _U64)]


class _Work(ctypes.Structure):
    _fields_ = [("id", _U64), ("parts", ctypes.POINTER(_Part)), ("count", _U32),
                ("operation", _U32), ("flags", _U32), ("immediate", _U32), ("key", _S),
                ("at", _U64), ("operand", _U64), ("expected", _U64), ("function", _U32),
                ("reserved", _U32), ("to", ctypes.POINTER(_Address))]


class _Room(ctypes.Structure):
    _fields_ = [("id", _U64), ("parts", ctypes.POINTER(_Part)), ("count", _U32),
                ("reserved", _U32)]


_declare([
    ("lf_verbs_over_node", _P, [_P]), ("lf_verbs_over_stp", _P, [_P]),
    ("lf_verbs_over_qpip", _P, [ctypes.POINTER(_Qpip)]), ("lf_verbs_local", _T, [_P, _P, _SIZE]),
    ("lf_verbs_close", None, [_P]), ("lf_region_open", _P, [_P, _U64, _U32]),
    ("lf_completions_open", _P, [_P, _U32]), ("lf_completions_poll", _T, [_P, _P, _SIZE]),
    ("lf_completions_wait", _T, [_P, _P, _SIZE, _T]), ("lf_completions_arm", _INT, [_P, _U32]),
    ("lf_completions_descriptor", _INT, [_P]),
    ("lf_completions_ended", _INT, [_P, ctypes.POINTER(_U64), ctypes.POINTER(_INT)]),
    ("lf_completions_close", None, [_P]), ("lf_status_text", _S, [_U32]),
    ("lf_pair_listen", _P, [_P, _S]),
    ("lf_pair_accept", _P, [_P, ctypes.POINTER(_Options), _T]),
    ("lf_pair_listener_close", None, [_P]),
    ("lf_pair_connect", _P, [_P, _S, ctypes.POINTER(_Options), _T]),
    ("lf_pair_bind", _P, [_P, _S, ctypes.POINTER(_Options)]),
    ("lf_pair_local", _INT, [_P, ctypes.POINTER(_Address)]),
    ("lf_pair_remote", _INT, [_P, ctypes.POINTER(_Address)]), ("lf_pair_shutdown", _INT, [_P]),
    ("lf_pair_id", _U64, [_P]), ("lf_pair_state", _INT, [_P]), ("lf_pair_close", None, [_P]),
    ("lf_post_sends", _INT, [_P, ctypes.POINTER(_Work), _SIZE, ctypes.POINTER(_SIZE)]),
    ("lf_post_inline_to", _INT, [_P, _U64, _P, _SIZE, ctypes.POINTER(_Address)]),
    ("lf_post_receives", _INT, [_P, ctypes.POINTER(_Room), _SIZE, ctypes.POINTER(_SIZE)]),
    ("lf_shared_receives_open", _P, [_P, _P, _U32]),
    ("lf_shared_receives_post", _INT,
     [_P, ctypes.POINTER(_Room), _SIZE, ctypes.POINTER(_SIZE)]),
    ("lf_shared_receives_close", None, [_P]), ("lf_share", _INT, [_P, _P, _P]),
    ("lf_withdraw", _INT, [_P, _S]),
])


class NotDone(Error):
    """A request failed; ``completion`` says which and how."""

    def __init__(self, completion):
        super().__init__(completion.text)
        self.completion = completion


class Completion(NamedTuple):
    """What became of a request."""

    id: int
    pair: int
    operation: int
    status: int
    length: int
    immediate: int | None
    # Over QPIP: the message goes on in the next room. It says nothing of a stream.
    continues: bool
    # Of a stream: the room is not used up. It completes again with what follows.
    stays: bool = False
    # Of a stream: where in its room the bytes that came begin.
    offset: int = 0
    # Who has sent a datagram: host and port.
    source: tuple | None = None

    @property
    def text(self):
        """The status in words."""
        return _lib.lf_status_text(self.status).decode()

    def check(self):
        """Itself, if it is done well; otherwise it raises ``NotDone``."""
        if self.status != DONE:
            raise NotDone(self)
        return self


class Send(NamedTuple):
    """A message of these parts; a datagram goes to a host and a port."""

    id: int
    parts: list
    immediate: int | None = None
    silent: bool = False
    to: tuple | None = None
    operation = _SEND


class RdmaWrite(NamedTuple):
    """Writes to memory of the other side, from ``at`` on. An immediate uses up a receive there."""

    id: int
    parts: list
    key: bytes
    at: int = 0
    immediate: int | None = None
    silent: bool = False
    operation = _WRITE


class RdmaRead(NamedTuple):
    """Reads memory of the other side."""

    id: int
    parts: list
    key: bytes
    at: int = 0
    silent: bool = False
    operation = _READ


class Atomic(NamedTuple):
    """Changes a word of eight bytes over there in one step; what it held before goes into
    ``parts``, which is one of eight bytes."""

    id: int
    parts: list
    key: bytes
    at: int
    function: int
    operand: int = 0
    expected: int = 0
    silent: bool = False
    operation = _ATOMIC


class Receive(NamedTuple):
    """Room for a message."""

    id: int
    parts: list


def _parts(parts, used, uses, lands):
    """The parts for C; their regions stay open until ``used`` is closed. ``uses`` has what they
    use until they are complete."""
    listed = (_Part * len(parts))()
    for place, part in zip(listed, parts):
        place.region = part.region._acquire()
        used.callback(part.region._release)
        uses.append((part.region._uses, part.region._use(part.at, part.length, False, lands)))
        place.at, place.length = part.at, part.length
    return listed


def _work(place, one, used, uses):
    immediate = getattr(one, "immediate", None)
    place.id, place.count, place.operation = one.id, len(one.parts), one.operation
    place.parts = _parts(one.parts, used, uses, one.operation in (_READ, _ATOMIC))
    place.flags = (_SILENT if one.silent else 0) | (0 if immediate is None else _IMMEDIATE)
    place.immediate = immediate or 0
    to = getattr(one, "to", None)
    if to is not None:
        place.to = ctypes.pointer(_Address.of(to))
    if one.operation != _SEND:
        # A string of C would end at its first zero: the buffer is held beside it.
        key = ctypes.create_string_buffer(_key_of(one.key, KEY), KEY)
        used.callback(lambda: key)
        place.key, place.at = ctypes.cast(key, _S), one.at
    if one.operation == _ATOMIC:
        place.function, place.operand, place.expected = one.function, one.operand, one.expected


def _room(place, one, used, uses):
    place.id, place.count = one.id, len(one.parts)
    place.parts = _parts(one.parts, used, uses, True)


def _post(handle, function, kind, write, requests, under_way):
    requests = list(requests)
    listed, posted, noted = (kind * len(requests))(), _SIZE(), 0
    with under_way.order:
        try:
            with contextlib.ExitStack() as used:
                for place, one in zip(listed, requests):
                    uses = []
                    # Before it is posted: it may be complete at once.
                    under_way.add(one.id, uses)
                    noted += 1
                    write(place, one, used, uses)
                code = handle._call(function, listed, len(requests), ctypes.byref(posted))
        finally:
            under_way.withdraw(noted - posted.value)
    if code < 0:
        try:
            _fail(code)
        except Error as why:
            why.posted = posted.value
            raise
    return posted.value


def over_node(node):
    """Queue pairs between processes of one host, of a ``landfall.Node``."""
    return Verbs(_lib.lf_verbs_over_node(node._get()) or _fail(), node)


def over_stp(endpoint):
    """Queue pairs between hosts, of a ``landfall.stp.Endpoint``."""
    return Verbs(endpoint._call(_lib.lf_verbs_over_stp) or _fail(), endpoint)


def over_qpip(link, address, gateway=None, peer=None):
    """Queue pairs between hosts by TCP, over an adapter of its own: ``link`` is
    ``"packet:eth0"``, ``"xdp:eth0"`` or ``"tap:NAME"``, which need privileges, or frames within
    UDP, ``"udp:192.0.2.1:4791"``, to ``peer``."""
    gateway, peer = [None if text is None else text.encode() for text in (gateway, peer)]
    config = _Qpip(link.encode(), address.encode(), gateway, peer, 0, 0)
    return Verbs(_lib.lf_verbs_over_qpip(ctypes.byref(config)) or _fail())


class Verbs(_Shared):
    """What carries queue pairs."""

    _close = staticmethod(_lib.lf_verbs_close)

    @property
    def address(self):
        """Where UDP reaches it; of a node nothing."""
        text = ctypes.create_string_buffer(64)
        _check(self._call(_lib.lf_verbs_local, text, len(text)))
        return text.value.decode()

    def region(self, length, rights=READ | WRITE):
        """Registered memory, all zero; the rights are the other side's."""
        return Region(self._call(_lib.lf_region_open, length, rights) or _fail(), self, length)

    def completions(self, capacity=256):
        """A completion queue with this many places."""
        return Completions(self._call(_lib.lf_completions_open, capacity) or _fail(), self)

    def shared_receives(self, completions, depth=256):
        """Room that many queue pairs share."""
        opened = self._call(lambda verbs: completions._call(
            lambda queue: _lib.lf_shared_receives_open(verbs, queue, depth)))
        return SharedReceives(opened or _fail(), self, completions)

    def listen(self, place):
        """Lets queue pairs connect: at a name of a node, at a port of STP (``"7"``), at an
        address of QPIP with a port (``"10.0.0.2:9000"``)."""
        return Listener(self._call(_lib.lf_pair_listen, str(place).encode()) or _fail(), self)

    def connect(self, place, sends, receives=None, shared=None, timeout=None, **options):
        """Connects to such a place; of STP it is ``"HOST:PORT/7"``, where ``PORT`` is of UDP. With
        ``stream``, over QPIP, it is a stream of bytes, and the other end any socket of TCP."""
        pair = _opened(lambda options: self._call(
            _lib.lf_pair_connect, place.encode(), options, _timeout(timeout)),
            sends, receives, shared, **options)
        return Pair(pair, self, sends, receives, shared)

    def bind(self, place, sends, receives=None, shared=None, **options):
        """Datagrams, over QPIP: bound to an address and a port, where 0 is any that is free."""
        pair = _opened(lambda options: self._call(_lib.lf_pair_bind, place.encode(), options),
                       sends, receives, shared, **options)
        return Pair(pair, self, sends, receives, shared)


def _opened(call, sends, receives, shared, send_depth=0, receive_depth=0, inlined=0, stream=False):
    with_room = shared._call if shared is not None else lambda call: call(None)
    receives = sends if receives is None else receives
    return sends._call(lambda sends: receives._call(lambda receives: with_room(
        lambda shared: call(ctypes.byref(_Options(
            sends, receives, shared, send_depth, receive_depth, inlined,
            _STREAM if stream else 0)))))) or _fail()


class Listener(_Shared):
    _close = staticmethod(_lib.lf_pair_listener_close)

    def accept(self, sends, receives=None, shared=None, timeout=None, **options):
        """The next queue pair that has connected. What it sends and receives completes in these
        queues; ``send_depth``, ``receive_depth`` and ``inlined`` are its bounds. ``stream`` as of
        ``Verbs.connect``."""
        pair = _opened(lambda options: self._call(
            _lib.lf_pair_accept, options, _timeout(timeout)), sends, receives, shared, **options)
        return Pair(pair, self._keeps[0], sends, receives, shared)


class Completions(_Shared):
    """What became of requests."""

    _close = staticmethod(_lib.lf_completions_close)

    def __init__(self, address, *keeps):
        # What is under way, by the queue pair and the operation of its completions.
        self._under_way = weakref.WeakValueDictionary()
        super().__init__(address, *keeps)

    def _take(self, function, most, *arguments):
        into = (_Completion * most)()
        found = _check(self._call(function, into, most, *arguments))
        for one in into[:found]:
            under_way = self._under_way.get((one.pair, one.operation))
            if under_way is not None and not one.flags & _STAYS:
                under_way.done(one.id, one.operation == SENT)
        return [Completion(one.id, one.pair, one.operation, one.status, one.length,
                           one.immediate if one.flags & _IMMEDIATE else None,
                           bool(one.flags & _CONTINUES), bool(one.flags & _STAYS), one.offset,
                           one.source.pair())
                for one in into[:found]]

    def poll(self, most=16):
        """What is there, as a list."""
        return self._take(_lib.lf_completions_poll, most)

    def wait(self, timeout=None, most=16):
        """The same, once there is something. An empty list: a queue pair has ended."""
        return self._take(_lib.lf_completions_wait, most, _timeout(timeout))

    def arm(self, messages=False):
        """Before sleeping at ``fileno()``. False: there is something already. With ``messages``
        it wakes for what was received and what failed."""
        return bool(_check(self._call(_lib.lf_completions_arm, int(messages))))

    def fileno(self):
        """Readable when something completes after ``arm``: do not read it, poll."""
        return _check(self._call(_lib.lf_completions_descriptor))

    def ended(self):
        """The next queue pair that has ended: its number and its state, or nothing."""
        pair, state = _U64(), _INT()
        found = _check(self._call(_lib.lf_completions_ended, ctypes.byref(pair),
                                  ctypes.byref(state)))
        return (pair.value, state.value) if found else None


class SharedReceives(_Shared):
    _close = staticmethod(_lib.lf_shared_receives_close)

    def __init__(self, address, verbs, completions):
        self._posted = _Posted()
        super().__init__(address, verbs, completions)

    def post_all(self, receives):
        """Posts a list of ``Receive``."""
        return _post(self, _lib.lf_shared_receives_post, _Room, _room, receives, self._posted)

    def close(self):
        super().close()
        self._posted.clear()

    def post(self, id, *parts):
        self.post_all([Receive(id, parts)])


class Pair(_Shared):
    """Two queues of requests. Closed, what is under way is cancelled."""

    _close = staticmethod(_lib.lf_pair_close)
    # Lists of what is under way that end with it.
    _own = ()

    def __init__(self, address, verbs, sends, receives, shared):
        super().__init__(address, verbs, sends, receives, shared)
        self._sent = _Posted()
        self._received = _Posted() if shared is None else shared._posted
        where = (receives or sends) if shared is None else shared._keeps[1]
        sends._under_way[self.id, SENT] = self._sent
        where._under_way[self.id, RECEIVED] = self._received
        self._own = [self._sent] + ([self._received] if shared is None else [])

    def close(self):
        super().close()
        # What was under way is cancelled.
        for posted in self._own:
            posted.clear()

    @property
    def id(self):
        """What completions call it."""
        return self._call(_lib.lf_pair_id)

    def check(self):
        """Raises ``Closed`` or ``Lost`` if it is not connected any more."""
        _check(self._call(_lib.lf_pair_state))

    def post_all(self, requests):
        """Posts a list of ``Send``, ``RdmaWrite``, ``RdmaRead`` and ``Atomic``, in its order.
        An error has ``posted``: how many are."""
        return _post(self, _lib.lf_post_sends, _Work, _work, requests, self._sent)

    @property
    def local(self):
        """What it is bound or connected to here, over QPIP: host and port."""
        return self._end(_lib.lf_pair_local)

    @property
    def remote(self):
        """Who is connected to it, over QPIP."""
        return self._end(_lib.lf_pair_remote)

    def _end(self, function):
        address = _Address()
        _check(self._call(function, ctypes.byref(address)))
        return address.pair()

    def shutdown(self):
        """Behind what was posted nothing more is sent, over QPIP. What the other side still sends
        is received."""
        _check(self._call(_lib.lf_pair_shutdown))

    def post_send(self, id, *parts, immediate=None, silent=False, to=None):
        """Posts a message. A silent one completes only if it fails."""
        self.post_all([Send(id, parts, immediate, silent, to)])

    def post_inline(self, id, message, to=None):
        """Posts a message whose bytes are copied now, of whatever has the buffer protocol."""
        message = _Bytes(message)
        to = None if to is None else ctypes.byref(_Address.of(to))
        _check(self._call(_lib.lf_post_inline_to, id, message.address, message.length, to))

    def post_receive(self, id, *parts):
        """Posts room for a message."""
        self.post_receives([Receive(id, parts)])

    def post_receives(self, receives):
        """Posts a list of ``Receive``."""
        return _post(self, _lib.lf_post_receives, _Room, _room, receives, self._received)

    def share(self, region):
        """Lets the other side use a region, as far as its rights go: the key, to be sent."""
        key = ctypes.create_string_buffer(KEY)
        _check(self._call(lambda pair: region._call(
            lambda region: _lib.lf_share(pair, region, key))))
        return key.raw

    def withdraw(self, key):
        """Ends that."""
        _check(self._call(_lib.lf_withdraw, _key_of(key, KEY)))
