"""Shared memory between processes of one host: queues, publications and calls.

    import landfall
    node = landfall.Node("a-folder")
    for price in node.find_receiver("quotes", "{price:f64@0}8"):
        print(price)

Elements are described by a text that is the same in every language (see ``Layout``), or by a
dtype of numpy. Elements can be written and read where they lie: ``Sender.loan`` and
``Receiver.peek`` give memory without a copy, as a ``memoryview``, or as an array of numpy where
that is installed.

Memory that another process may write is not constant: copy out what has to stay as it was
checked.
"""

import ctypes
import ctypes.util
import os
import re
import struct
from pathlib import Path

__all__ = ["Client", "Closed", "Error", "Full", "Layout", "Lost", "Node", "Offer",
           "OtherLayout", "Publisher", "Receiver", "Refused", "Sender", "Server", "Subscriber",
           "TimedOut", "TooLong"]

_ABI = 4


def _library():
    """The library beside this file, where the wheel puts it, or that of the system."""
    names = [os.environ.get("LANDFALL_LIBRARY"), Path(__file__).parent / "liblandfall_c.so",
             ctypes.util.find_library("landfall_c")]
    for name in names:
        if name and (os.sep not in str(name) or Path(name).exists()):
            library = ctypes.CDLL(str(name))
            if library.lf_abi() != _ABI:
                raise ImportError(f"{name} has version {library.lf_abi()}, and {_ABI} is needed")
            return library
    raise ImportError("liblandfall_c.so is not installed: name it in LANDFALL_LIBRARY")


class _Queue(ctypes.Structure):
    _fields_ = [("element", ctypes.c_uint32), ("capacity", ctypes.c_uint32),
                ("batch", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("layout", ctypes.c_uint64)]


_lib = _library()
_P, _S, _T = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
_U32, _SIZE, _Q = ctypes.c_uint32, ctypes.c_size_t, ctypes.POINTER(_Queue)


def _declare(functions):
    """What C functions give and take."""
    for name, result, arguments in functions:
        function = getattr(_lib, name)
        function.restype, function.argtypes = result, arguments


_declare([
    ("lf_error", _S, []), ("lf_error_code", ctypes.c_int, []),
    ("lf_layout", ctypes.c_uint64, [_S]),
    ("lf_node_open", _P, [_S]), ("lf_node_close", None, [_P]),
    ("lf_offer_open", _P, [_P, _S]), ("lf_offer_close", None, [_P]),
    ("lf_accept_sender", _P, [_P, _P, _Q, _T]), ("lf_accept_receiver", _P, [_P, _P, _Q, _T]),
    ("lf_find_sender", _P, [_P, _S, _Q, _T]), ("lf_find_receiver", _P, [_P, _S, _Q, _T]),
    ("lf_put", ctypes.c_int, [_P, _P, _T]), ("lf_loan", _P, [_P, _T]),
    ("lf_publish", ctypes.c_int, [_P]), ("lf_flush", ctypes.c_int, [_P]),
    ("lf_drain", ctypes.c_int, [_P, _T]), ("lf_sender_close", None, [_P]),
    ("lf_get", ctypes.c_int, [_P, _P, _T]),
    ("lf_peek", _P, [_P, ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE), _T]),
    ("lf_release", ctypes.c_int, [_P, _SIZE]), ("lf_receiver_close", None, [_P]),
    ("lf_publisher_open", _P, [_P, _U32, _U32]),
    ("lf_accept_subscriber", ctypes.c_int, [_P, _P, _T]),
    ("lf_publish_bytes", ctypes.c_int, [_P, _S, _SIZE]), ("lf_publisher_close", None, [_P]),
    ("lf_find_publisher", _P, [_P, _S, _U32, _U32, _T]),
    ("lf_next", ctypes.c_int64, [_P, _P, _SIZE, ctypes.POINTER(ctypes.c_uint64), _T]),
    ("lf_subscriber_close", None, [_P]),
    ("lf_accept_client", _P, [_P, _P, _U32, _U32, _T]),
    ("lf_find_server", _P, [_P, _S, _U32, _U32, _T]),
    ("lf_call", ctypes.c_int64, [_P, _S, _SIZE, _P, _SIZE, _T]), ("lf_client_close", None, [_P]),
    ("lf_request", ctypes.c_int64, [_P, _P, _SIZE, _T]),
    ("lf_reply", ctypes.c_int, [_P, _S, _SIZE]), ("lf_server_close", None, [_P]),
])


class Error(Exception):
    """What went wrong, and what to do about it."""


class TimedOut(Error):
    """The time is over."""


class Closed(Error):
    """The peer has ended it, and all was received."""


class Lost(Error):
    """The peer is gone, or has taken its memory away."""


class Refused(Lost):
    """The peer does not want it, or may not be reached."""


class TooLong(Error):
    """More bytes than there is room for."""


class Full(Error):
    """A queue is full: take completions, and post again."""


class OtherLayout(Error):
    """The peer takes the elements for something else."""


def _fail(code=None):
    kinds = {-1: TimedOut, -2: Closed, -3: Lost, -5: OtherLayout, -6: Refused, -7: TooLong,
             -10: Full}
    code = _lib.lf_error_code() if code is None else code
    raise kinds.get(code, Error)(_lib.lf_error().decode())


def _check(code):
    if code < 0:
        _fail(code)
    return code


def _pointer(address):
    if not address:
        _fail()
    return address


def _timeout(seconds):
    """In milliseconds; none: as long as the peer lives."""
    return -1 if seconds is None else max(0, round(seconds * 1000))


class Layout:
    """How an element lies in memory: from a text, or from a dtype of numpy.

    ``{price:f64@0,size:u32@8,venue:[u8;4]@12}16`` has three fields and sixteen bytes; a lone
    ``f64`` is a number. ``pack`` and ``unpack`` turn tuples (a lone number: itself) into bytes
    and back.
    """

    _CODES = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "u64": "Q",
              "i64": "q", "f32": "f", "f64": "d"}

    def __init__(self, layout):
        self.text = layout if isinstance(layout, str) else _text_of(layout)
        self.fingerprint = _lib.lf_layout(self.text.encode())
        self._fields, self.size = self._parse(self.text)
        self.is_record = self.text.startswith("{")

    def _parse(self, text):
        record = re.fullmatch(r"\{(.*)\}(\d+)", text)
        if record is None:
            name, count, size = self._kind(text)
            return [(name, count, 0)], size
        fields = []
        for field in re.findall(r"[^,]+", record[1]):
            match = re.fullmatch(r"\w+:(.+)@(\d+)", field)
            if match is None:
                raise ValueError(f"{field!r} is no field of a layout")
            name, count, size = self._kind(match[1])
            if int(match[2]) + size > int(record[2]):
                raise ValueError(f"{field!r} lies behind the end")
            fields.append((name, count, int(match[2])))
        return fields, int(record[2])

    def _kind(self, text):
        array = re.fullmatch(r"\[(\w+);(\d+)\]", text)
        name, count = (array[1], int(array[2])) if array else (text, None)
        if name not in self._CODES:
            raise ValueError(f"{name!r} is no number of a layout")
        return name, count, struct.calcsize("<" + self._CODES[name]) * (count or 1)

    def _format(self, name, count):
        code = self._CODES[name]
        if count is not None and name == "u8":
            return f"<{count}s"
        return f"<{1 if count is None else count}{code}"

    def pack(self, value):
        into = bytearray(self.size)
        for (name, count, at), part in zip(self._fields, value if self.is_record else (value,),
                                           strict=True):
            parts = part if count is not None and name != "u8" else (part,)
            struct.pack_into(self._format(name, count), into, at, *parts)
        return bytes(into)

    def unpack(self, element):
        parts = []
        for name, count, at in self._fields:
            found = struct.unpack_from(self._format(name, count), element, at)
            parts.append(found[0] if count is None or name == "u8" else found)
        return tuple(parts) if self.is_record else parts[0]

    def dtype(self):
        """The same as a dtype of numpy."""
        import numpy

        def one(name, count):
            kind = numpy.dtype("<" + self._CODES[name]) if name != "u8" else numpy.dtype("u1")
            return kind if count is None else (kind, (count,))

        if not self.is_record:
            name, count, _ = self._fields[0]
            return numpy.dtype(one(name, count))
        names = re.findall(r"(\w+):", self.text)
        return numpy.dtype({"names": names, "itemsize": self.size,
                            "formats": [one(name, count) for name, count, _ in self._fields],
                            "offsets": [at for _, _, at in self._fields]})


def _text_of(dtype):
    """The text of a dtype of numpy."""
    import numpy

    dtype = numpy.dtype(dtype)
    if dtype.subdtype is not None:
        kind, (count,) = dtype.subdtype
        return f"[{_text_of(kind)};{count}]"
    if dtype.fields is None:
        if dtype.kind not in "uif" or dtype.byteorder == ">":
            raise ValueError(f"{dtype} is no number of a layout")
        return f"{dtype.kind}{8 * dtype.itemsize}"
    fields = ",".join(f"{name}:{_text_of(dtype.fields[name][0])}@{dtype.fields[name][1]}"
                      for name in dtype.names)
    return f"{{{fields}}}{dtype.itemsize}"


class _Handle:
    _close = None

    def __init__(self, address, *keeps):
        self._address, self._keeps = _pointer(address), keeps

    def _get(self):
        if self._address is None:
            raise Error("it is closed")
        return self._address

    def close(self):
        address, self._address = self._address, None
        if address is not None:
            self._close(address)
        self._keeps = ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_address", None) is not None:
            self.close()


class Node(_Handle):
    """A node in a folder, for processes of the same user."""

    _close = staticmethod(_lib.lf_node_close)

    def __init__(self, folder):
        super().__init__(_lib.lf_node_open(os.fsencode(folder)))

    def offer(self, name):
        """A name that this node offers until it is closed or the process ends."""
        return Offer(_lib.lf_offer_open(self._get(), name.encode()), self)

    def find_sender(self, name, layout, capacity=64, timeout=None, batch=1):
        return Sender(_queue(_lib.lf_find_sender, self, name.encode(), layout, capacity, batch,
                             timeout), self, Layout(layout))

    def find_receiver(self, name, layout, capacity=64, timeout=None, batch=1):
        return Receiver(_queue(_lib.lf_find_receiver, self, name.encode(), layout, capacity,
                               batch, timeout), self, Layout(layout))

    def publisher(self, most, slots):
        return Publisher(_lib.lf_publisher_open(self._get(), most, slots), self)

    def find_publisher(self, name, most, slots, timeout=None):
        address = _lib.lf_find_publisher(self._get(), name.encode(), most, slots,
                                         _timeout(timeout))
        return Subscriber(address, self, most)

    def find_server(self, name, request, reply, timeout=None):
        address = _lib.lf_find_server(self._get(), name.encode(), request, reply,
                                      _timeout(timeout))
        return Client(address, self, reply)


def _queue(call, node, other, layout, capacity, batch, timeout):
    layout = Layout(layout)
    queue = _Queue(layout.size, capacity, batch, 0, layout.fingerprint)
    return _pointer(call(node._get(), other, ctypes.byref(queue), _timeout(timeout)))


class Offer(_Handle):
    """A name that is offered: who finds it comes here."""

    _close = staticmethod(_lib.lf_offer_close)

    def _node(self):
        return self._keeps[0]

    def accept_sender(self, layout, capacity=64, timeout=None, batch=1):
        """A queue to the next who finds the name."""
        node = self._node()
        return Sender(_queue(_lib.lf_accept_sender, node, self._get(), layout, capacity, batch,
                             timeout), node, Layout(layout))

    def accept_receiver(self, layout, capacity=64, timeout=None, batch=1):
        """A queue from the next who finds the name."""
        node = self._node()
        return Receiver(_queue(_lib.lf_accept_receiver, node, self._get(), layout, capacity,
                               batch, timeout), node, Layout(layout))

    def accept_client(self, request, reply, timeout=None):
        node = self._node()
        address = _lib.lf_accept_client(node._get(), self._get(), request, reply,
                                        _timeout(timeout))
        return Server(address, node, request)


class Sender(_Handle):
    """Puts elements in."""

    _close = staticmethod(_lib.lf_sender_close)

    def __init__(self, address, node, layout):
        super().__init__(address, node)
        self.layout = layout

    def put(self, value, timeout=None):
        """Copies an element in."""
        _check(_lib.lf_put(self._get(), self.layout.pack(value), _timeout(timeout)))

    def loan(self, timeout=None):
        """The place of the next element, where it will be read; ``publish`` puts it in."""
        address = _pointer(_lib.lf_loan(self._get(), _timeout(timeout)))
        return memoryview((ctypes.c_char * self.layout.size).from_address(address)).cast("B")

    def loan_array(self, timeout=None):
        """The same as an array of numpy with one element."""
        import numpy

        return numpy.frombuffer(self.loan(timeout), dtype=self.layout.dtype(), count=1)

    def publish(self):
        """Puts the loaned element in, and tells the receiver."""
        _check(_lib.lf_publish(self._get()))

    def flush(self):
        _check(_lib.lf_flush(self._get()))

    def drain(self, timeout=None):
        """Waits until all was taken out."""
        _check(_lib.lf_drain(self._get(), _timeout(timeout)))


class Receiver(_Handle):
    """Takes elements out; iterating gives one after the other, to the end."""

    _close = staticmethod(_lib.lf_receiver_close)

    def __init__(self, address, node, layout):
        super().__init__(address, node)
        self.layout = layout

    def get(self, timeout=None):
        into = ctypes.create_string_buffer(self.layout.size)
        _check(_lib.lf_get(self._get(), into, _timeout(timeout)))
        return self.layout.unpack(into.raw)

    def __iter__(self):
        while True:
            try:
                yield self.get()
            except Closed:
                return

    def _peek(self, timeout):
        count, stride = _SIZE(), _SIZE()
        address = _lib.lf_peek(self._get(), ctypes.byref(count), ctypes.byref(stride),
                               _timeout(timeout))
        return _pointer(address), count.value, stride.value

    def peek(self, timeout=None):
        """Elements where they lie, as memory; ``release`` takes them out."""
        address, count, stride = self._peek(timeout)
        there = memoryview((ctypes.c_char * (count * stride)).from_address(address)).cast("B")
        return [there[at * stride:at * stride + self.layout.size] for at in range(count)]

    def peek_array(self, timeout=None):
        """The same as an array of numpy over that memory."""
        import numpy

        address, count, stride = self._peek(timeout)
        there = (ctypes.c_char * (count * stride)).from_address(address)
        return numpy.ndarray(count, self.layout.dtype(), there, strides=(stride,))

    def release(self, count):
        _check(_lib.lf_release(self._get(), count))


class Publisher(_Handle):
    _close = staticmethod(_lib.lf_publisher_close)

    def accept(self, offer, timeout=None):
        """The next who finds the name becomes a subscriber."""
        _check(_lib.lf_accept_subscriber(self._get(), offer._get(), _timeout(timeout)))

    def publish(self, what):
        """Publishes bytes; to how many subscribers."""
        return _check(_lib.lf_publish_bytes(self._get(), what, len(what)))


class Subscriber(_Handle):
    _close = staticmethod(_lib.lf_subscriber_close)

    def __init__(self, address, node, most):
        super().__init__(address, node)
        self._into = ctypes.create_string_buffer(max(1, most))

    def next(self, timeout=None):
        """The next publication, and how many were overwritten before it."""
        missed = ctypes.c_uint64()
        length = _check(_lib.lf_next(self._get(), self._into, len(self._into),
                                     ctypes.byref(missed), _timeout(timeout)))
        return self._into.raw[:length], missed.value


class Client(_Handle):
    _close = staticmethod(_lib.lf_client_close)

    def __init__(self, address, node, reply):
        super().__init__(address, node)
        self._into = ctypes.create_string_buffer(max(1, reply))

    def call(self, request, timeout=None):
        length = _check(_lib.lf_call(self._get(), request, len(request), self._into,
                                     len(self._into), _timeout(timeout)))
        return self._into.raw[:length]


class Server(_Handle):
    _close = staticmethod(_lib.lf_server_close)

    def __init__(self, address, node, request):
        super().__init__(address, node)
        self._into = ctypes.create_string_buffer(max(1, request))

    def request(self, timeout=None):
        """The next request; ``reply`` answers it."""
        length = _check(_lib.lf_request(self._get(), self._into, len(self._into),
                                        _timeout(timeout)))
        return self._into.raw[:length]

    def reply(self, reply):
        _check(_lib.lf_reply(self._get(), reply, len(reply)))
