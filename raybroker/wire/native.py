"""The native protocol: frames over a reliable byte stream, the same at both ends.

A connection opens with a *preface* of fixed length: a magic word and a token. The listening side compares the token in
constant time before it looks at anything else; until then it keeps at most the preface's length and answers nothing.
After that both sides exchange frames:

    length u32   of what follows, at most ``frame_bytes_max``
    type   u8
    body

Frames that carry messages or acknowledgements are packed structs; control frames (CALL and its answers) are msgpack.
:class:`Native` is the machine: ``receive_data`` → events, the module's functions → bytes.  Whatever the peer sends,
only ProtocolError or SecurityError leaves it, and after either the machine is closed for good.

    state      input                 next
    PREFACE    right token           OPEN       (listening side)
    PREFACE    anything else         CLOSED     SecurityError
    OPEN       a frame               OPEN
    OPEN       a malformed frame     CLOSED     ProtocolError
    CLOSED     anything              CLOSED     dropped
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from raybroker.model.block import BLOCK_BYTES_MAX, Block
from raybroker.model.errors import ProtocolError, SecurityError
from raybroker.model.record import Buffer

MAGIC: Final = b"RBK\x01"
TOKEN_BYTES: Final = 32
PREFACE_BYTES: Final = len(MAGIC) + TOKEN_BYTES
FRAME_BYTES_MAX: Final = BLOCK_BYTES_MAX + 64
"""Largest frame: the largest block and what stands before it."""
CONTROL_BYTES_MAX: Final = 1 << 20
"""Largest control frame."""

_FRAME: Final = struct.Struct("<IB")
FRAME_HEAD_BYTES: Final = _FRAME.size

_CALL, _REPLY, _FAILED, _SEND, _SENT, _REFUSED, _DELIVER, _ACK, _ACKED = range(1, 10)
_CREDIT, _RELEASED, _PROMOTED, _PING, _PONG, _FLOW, _EVENT = range(10, 17)

_SEND_HEAD: Final = struct.Struct("<IQ")
_SENT_ROW: Final = struct.Struct("<IQI")
_DELIVER_HEAD: Final = struct.Struct("<IQQI")
_ACK_HEAD: Final = struct.Struct("<IQI")
_RANGE: Final = struct.Struct("<QQ")
_ACKED_BODY: Final = struct.Struct("<II")
_CREDIT_BODY: Final = struct.Struct("<IQi")
_RELEASED_BODY: Final = struct.Struct("<IIQ")
_HANDLE: Final = struct.Struct("<I")
_NONCE: Final = struct.Struct("<Q")


class Call(NamedTuple):
    """A request: ``op`` with arguments; ``request`` is repeated in the answer."""

    request: int
    op: str
    args: dict[str, Any]


class Reply(NamedTuple):
    request: int
    result: Any


class Failed(NamedTuple):
    """A request failed: an error code of model.errors and its text."""

    request: int
    code: str
    text: str


class Send(NamedTuple):
    """A block for producer ``handle``; sequence numbers below ``floor`` will not be retried."""

    handle: int
    floor: int
    block: Block


class Sent(NamedTuple):
    """``messages`` from ``first_seq`` on are settled."""

    handle: int
    first_seq: int
    messages: int


class Refused(NamedTuple):
    """Like Sent, but the rows (start index, end index, code, text) of the block were not taken."""

    handle: int
    first_seq: int
    messages: int
    rows: list[tuple[int, int, str, str]]


class Deliver(NamedTuple):
    """Messages for consumer ``handle``, tagged tag, tag + 1, …; ``attempt`` 1 is the first delivery."""

    handle: int
    epoch: int
    tag: int
    attempt: int
    block: Block


class Ack(NamedTuple):
    """Deliveries first … last of each range are acknowledged; request 0 wants no confirmation."""

    handle: int
    epoch: int
    request: int
    ranges: list[tuple[int, int]]


class Acked(NamedTuple):
    request: int
    unknown: int


class Credit(NamedTuple):
    """The consumer asks for more; -1 is without limit."""

    handle: int
    epoch: int
    credit: int


class Released(NamedTuple):
    handle: int
    request: int
    next_tag: int


class Promoted(NamedTuple):
    handle: int


class Ping(NamedTuple):
    nonce: int


class Pong(NamedTuple):
    nonce: int


class Flow(NamedTuple):
    """Stop (False) or go on (True) delivering on this connection."""

    go: bool


class Event(NamedTuple):
    """The host tells of something nobody asked for: a name and its data."""

    name: str
    data: dict[str, Any]


Frame = (
    Call | Reply | Failed | Send | Sent | Refused | Deliver | Ack | Acked | Credit | Released | Promoted | Ping | Pong
    | Flow | Event
)  # fmt: skip


# ---- encoding ------------------------------------------------------------------------------------------------------


def preface(token: bytes) -> bytes:
    assert len(token) == TOKEN_BYTES
    return MAGIC + token


def _control(kind: int, value: Any) -> bytes:
    body: bytes = msgpack.packb(value, use_bin_type=True)
    if len(body) > CONTROL_BYTES_MAX:
        raise ProtocolError(f"a control frame of {len(body)} bytes; allowed are {CONTROL_BYTES_MAX}")
    return _FRAME.pack(len(body) + 1, kind) + body


def call(request: int, op: str, args: dict[str, Any]) -> bytes:
    return _control(_CALL, (request, op, args))


def reply(request: int, result: Any) -> bytes:
    return _control(_REPLY, (request, result))


def failed(request: int, code: str, text: str) -> bytes:
    return _control(_FAILED, (request, code, text))


def event(name: str, data: dict[str, Any]) -> bytes:
    return _control(_EVENT, (name, data))


def send(handle: int, floor: int, block: Buffer) -> tuple[bytes, Buffer]:
    size = _SEND_HEAD.size + memoryview(block).nbytes
    return _FRAME.pack(size + 1, _SEND) + _SEND_HEAD.pack(handle, floor), block


def sent(rows: Sequence[tuple[int, int, int]]) -> bytes:
    """Rows of (handle, first_seq, count)."""
    body = b"".join([_SENT_ROW.pack(*row) for row in rows])
    return _FRAME.pack(len(body) + 1, _SENT) + body


def refused(handle: int, first_seq: int, count: int, rows: Sequence[tuple[int, int, str, str]]) -> bytes:
    return _control(_REFUSED, (handle, first_seq, count, list(rows)))


def deliver(handle: int, epoch: int, tag: int, attempt: int, block: Sequence[Buffer]) -> tuple[Buffer, ...]:
    size = _DELIVER_HEAD.size + sum(memoryview(b).nbytes for b in block)
    return (_FRAME.pack(size + 1, _DELIVER) + _DELIVER_HEAD.pack(handle, epoch, tag, attempt), *block)


def ack(handle: int, epoch: int, request: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    body = b"".join([_RANGE.pack(*r) for r in ranges])
    return _FRAME.pack(_ACK_HEAD.size + len(body) + 1, _ACK) + _ACK_HEAD.pack(handle, epoch, request) + body


def acked(request: int, unknown: int) -> bytes:
    return _FRAME.pack(_ACKED_BODY.size + 1, _ACKED) + _ACKED_BODY.pack(request, unknown)


def credit(handle: int, epoch: int, count: int) -> bytes:
    return _FRAME.pack(_CREDIT_BODY.size + 1, _CREDIT) + _CREDIT_BODY.pack(handle, epoch, count)


def released(handle: int, request: int, next_tag: int) -> bytes:
    return _FRAME.pack(_RELEASED_BODY.size + 1, _RELEASED) + _RELEASED_BODY.pack(handle, request, next_tag)


def promoted(handle: int) -> bytes:
    return _FRAME.pack(_HANDLE.size + 1, _PROMOTED) + _HANDLE.pack(handle)


def ping(nonce: int) -> bytes:
    return _FRAME.pack(_NONCE.size + 1, _PING) + _NONCE.pack(nonce)


def pong(nonce: int) -> bytes:
    return _FRAME.pack(_NONCE.size + 1, _PONG) + _NONCE.pack(nonce)


def flow(go: bool) -> bytes:
    return _FRAME.pack(2, _FLOW) + (b"\x01" if go else b"\x00")


# ---- decoding ------------------------------------------------------------------------------------------------------


def _unpack(body: memoryview, shape: tuple[type, ...], what: str) -> list[Any]:
    try:
        value = msgpack.unpackb(body, raw=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a {what} frame does not decode: {error}") from None
    except RecursionError:
        raise ProtocolError(f"a {what} frame is nested too deeply") from None
    if not isinstance(value, list) or len(value) != len(shape):
        raise ProtocolError(f"a {what} frame does not have {len(shape)} fields")
    for item, kind in zip(value, shape, strict=True):
        if not isinstance(item, kind) or (kind is int and isinstance(item, bool)):
            raise ProtocolError(f"a {what} frame has a {type(item).__name__} where a {kind.__name__} belongs")
    return value


def _exactly(layout: struct.Struct, body: memoryview, what: str) -> tuple[int, ...]:
    if body.nbytes != layout.size:
        raise ProtocolError(f"a {what} frame of {body.nbytes} bytes; it has {layout.size}")
    return layout.unpack(body)


def _call(body: memoryview) -> Iterable[Frame]:
    request, op, args = _unpack(body, (int, str, dict), "CALL")
    return (Call(request, op, args),)


def _reply(body: memoryview) -> Iterable[Frame]:
    request, result = _unpack(body, (int, object), "REPLY")
    return (Reply(request, result),)


def _failed(body: memoryview) -> Iterable[Frame]:
    return (Failed(*_unpack(body, (int, str, str), "FAILED")),)


def _event(body: memoryview) -> Iterable[Frame]:
    return (Event(*_unpack(body, (str, dict), "EVENT")),)


def _send(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < _SEND_HEAD.size:
        raise ProtocolError(f"a SEND frame of {body.nbytes} bytes is too short")
    handle, floor = _SEND_HEAD.unpack_from(body)
    block = Block(body[_SEND_HEAD.size :])
    block.check()
    return (Send(handle, floor, block),)


def _sent(body: memoryview) -> Iterable[Frame]:
    if body.nbytes % _SENT_ROW.size:
        raise ProtocolError(f"a SENT frame of {body.nbytes} bytes is not made of rows of {_SENT_ROW.size}")
    return [Sent(*row) for row in _SENT_ROW.iter_unpack(body)]


def _refused(body: memoryview) -> Iterable[Frame]:
    handle, first, count, rows = _unpack(body, (int, int, int, list), "REFUSED")
    for row in rows:
        if not isinstance(row, list) or [type(v) for v in row] != [int, int, str, str]:
            raise ProtocolError("a REFUSED frame has a malformed row")
    return (Refused(handle, first, count, [(a, b, code, text) for a, b, code, text in rows]),)


def _deliver(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < _DELIVER_HEAD.size:
        raise ProtocolError(f"a DELIVER frame of {body.nbytes} bytes is too short")
    block = Block(body[_DELIVER_HEAD.size :])
    block.check()
    handle, epoch, tag, attempt = _DELIVER_HEAD.unpack_from(body)
    return (Deliver(handle, epoch, tag, attempt, block),)


def _ack(body: memoryview) -> Iterable[Frame]:
    rest = body.nbytes - _ACK_HEAD.size
    if rest < 0 or rest % _RANGE.size:
        raise ProtocolError(f"an ACK frame of {body.nbytes} bytes is not a head and ranges of {_RANGE.size}")
    rows = [(a, b) for a, b in _RANGE.iter_unpack(body[_ACK_HEAD.size :])]
    if any(a > b for a, b in rows):
        raise ProtocolError("an ACK frame has a range that ends before it starts")
    handle, epoch, request = _ACK_HEAD.unpack_from(body)
    return (Ack(handle, epoch, request, rows),)


def _acked(body: memoryview) -> Iterable[Frame]:
    return (Acked(*_exactly(_ACKED_BODY, body, "ACKED")),)


def _credit(body: memoryview) -> Iterable[Frame]:
    return (Credit(*_exactly(_CREDIT_BODY, body, "CREDIT")),)


def _released(body: memoryview) -> Iterable[Frame]:
    return (Released(*_exactly(_RELEASED_BODY, body, "RELEASED")),)


def _promoted(body: memoryview) -> Iterable[Frame]:
    return (Promoted(*_exactly(_HANDLE, body, "PROMOTED")),)


def _ping(body: memoryview) -> Iterable[Frame]:
    return (Ping(*_exactly(_NONCE, body, "PING")),)


def _pong(body: memoryview) -> Iterable[Frame]:
    return (Pong(*_exactly(_NONCE, body, "PONG")),)


def _flow(body: memoryview) -> Iterable[Frame]:
    if body.nbytes != 1 or body[0] > 1:
        raise ProtocolError("a FLOW frame holds one byte, 0 or 1")
    return (Flow(body[0] == 1),)


_TO_HOST: Final[dict[int, Callable[[memoryview], Iterable[Frame]]]] = {
    _CALL: _call, _SEND: _send, _ACK: _ack, _CREDIT: _credit, _PING: _ping, _PONG: _pong, _FLOW: _flow,
}  # fmt: skip
_TO_CLIENT: Final[dict[int, Callable[[memoryview], Iterable[Frame]]]] = {
    _REPLY: _reply, _FAILED: _failed, _SENT: _sent, _REFUSED: _refused, _DELIVER: _deliver, _ACKED: _acked,
    _RELEASED: _released, _PROMOTED: _promoted, _PING: _ping, _PONG: _pong, _EVENT: _event,
}  # fmt: skip
_LARGE: Final = frozenset((_SEND, _DELIVER))


class Native:
    """One end of a connection. ``token``: what the peer must show (listening side), or None (connecting side).

    After a failed token or a malformed frame :attr:`closed` is True and further data is dropped.
    """

    __slots__ = ("_awaits_preface", "_chunks", "_decoders", "_need", "_size", "_token", "closed", "frame_bytes_max")

    def __init__(self, *, token: bytes | None, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._token = token
        self._awaits_preface = token is not None
        self._decoders = _TO_CLIENT if token is None else _TO_HOST
        self._chunks: list[bytes] = []
        self._size = 0
        self._need = PREFACE_BYTES if self._awaits_preface else FRAME_HEAD_BYTES
        self.closed = False
        self.frame_bytes_max = frame_bytes_max

    @property
    def authenticated(self) -> bool:
        """True once the peer's token was right; a connecting side has nothing to check."""
        return not self._awaits_preface and not self.closed

    def receive_data(self, data: bytes) -> list[Frame]:
        """Take what came; returns the frames it completed. Raises SecurityError or ProtocolError and is then closed.

        Frames of messages are views into ``data`` where one piece held them whole, so ``data`` must not change.
        """
        if self.closed:
            return []
        try:
            return self._receive(data)
        except (ProtocolError, SecurityError):
            self.closed = True
            self._chunks.clear()
            raise

    def _receive(self, data: bytes) -> list[Frame]:
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        frames: list[Frame] = []
        at, size = 0, len(data)
        if self._awaits_preface:
            at = self._check_preface(data)
            if at == 0:
                return frames
        view = memoryview(data)
        while size - at >= FRAME_HEAD_BYTES:
            length, kind = _FRAME.unpack_from(data, at)
            decoder = self._decoders.get(kind)
            if decoder is None:
                raise ProtocolError(f"a frame of unknown type {kind}")
            most = self.frame_bytes_max if kind in _LARGE else CONTROL_BYTES_MAX
            if not 1 <= length <= most:
                raise ProtocolError(f"a frame declares {length} bytes; allowed are 1 to {most}")
            end = at + 4 + length
            if end > size:
                self._need = end - at
                break
            frames.extend(decoder(view[at + FRAME_HEAD_BYTES : end]))
            at = end
        else:
            self._need = FRAME_HEAD_BYTES
        if at < size:
            self._chunks.append(data[at:] if at else data)
        self._size = size - at
        return frames

    def _check_preface(self, data: bytes) -> int:
        """Bytes of a right preface, or 0 while it is incomplete."""
        assert self._token is not None
        if len(data) < PREFACE_BYTES:
            self._chunks.append(data)
            self._size = len(data)
            return 0
        if not hmac.compare_digest(data[:PREFACE_BYTES], preface(self._token)):
            raise SecurityError("the connection did not show the cluster's token")
        self._awaits_preface = False
        return PREFACE_BYTES
