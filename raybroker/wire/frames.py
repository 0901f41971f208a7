"""The frames of the native protocol: what each is, and how it is written and read.

    length u32   of what follows, at most FRAME_BYTES_MAX (CONTROL_BYTES_MAX for what carries no messages)
    type   u8
    body

Frames that carry messages or acknowledgements are packed structs; control frames (CALL and its answers) are msgpack.
Functions with a frame's name write it; the tables ``TO_HOST`` and ``TO_CLIENT`` say what reads it, and whatever is
malformed raises ProtocolError.  When a connection is opened, and who may say what, is ``native.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from raybroker.model.block import BLOCK_BYTES_MAX, Block
from raybroker.model.errors import ProtocolError
from raybroker.model.record import Buffer

FRAME_BYTES_MAX: Final = BLOCK_BYTES_MAX + 64
"""Largest frame: the largest block and what stands before it."""
CONTROL_BYTES_MAX: Final = 1 << 20
"""Largest control frame."""

FRAME_HEAD: Final = struct.Struct("<IB")

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
_U32_MAX: Final = (1 << 32) - 1


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


def _control(kind: int, value: Any) -> bytes:
    body: bytes = msgpack.packb(value, use_bin_type=True)
    if len(body) > CONTROL_BYTES_MAX:
        raise ProtocolError(f"a control frame of {len(body)} bytes; allowed are {CONTROL_BYTES_MAX}")
    return FRAME_HEAD.pack(len(body) + 1, kind) + body


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
    return FRAME_HEAD.pack(size + 1, _SEND) + _SEND_HEAD.pack(handle, floor), block


def sent(rows: Sequence[tuple[int, int, int]]) -> bytes:
    """Rows of (handle, first_seq, count)."""
    body = b"".join([_SENT_ROW.pack(*row) for row in rows])
    return FRAME_HEAD.pack(len(body) + 1, _SENT) + body


def refused(handle: int, first_seq: int, count: int, rows: Sequence[tuple[int, int, str, str]]) -> bytes:
    return _control(_REFUSED, (handle, first_seq, count, list(rows)))


def deliver(handle: int, epoch: int, tag: int, attempt: int, block: Sequence[Buffer]) -> tuple[Buffer, ...]:
    size = _DELIVER_HEAD.size + sum(memoryview(b).nbytes for b in block)
    return (FRAME_HEAD.pack(size + 1, _DELIVER) + _DELIVER_HEAD.pack(handle, epoch, tag, attempt), *block)


def ack(handle: int, epoch: int, request: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    body = b"".join([_RANGE.pack(*r) for r in ranges])
    return FRAME_HEAD.pack(_ACK_HEAD.size + len(body) + 1, _ACK) + _ACK_HEAD.pack(handle, epoch, request) + body


def acked(request: int, unknown: int) -> bytes:
    """``unknown`` is cut to what the field holds: a peer may have named any number of deliveries."""
    return FRAME_HEAD.pack(_ACKED_BODY.size + 1, _ACKED) + _ACKED_BODY.pack(request, min(unknown, _U32_MAX))


def credit(handle: int, epoch: int, count: int) -> bytes:
    return FRAME_HEAD.pack(_CREDIT_BODY.size + 1, _CREDIT) + _CREDIT_BODY.pack(handle, epoch, count)


def released(handle: int, request: int, next_tag: int) -> bytes:
    return FRAME_HEAD.pack(_RELEASED_BODY.size + 1, _RELEASED) + _RELEASED_BODY.pack(handle, request, next_tag)


def promoted(handle: int) -> bytes:
    return FRAME_HEAD.pack(_HANDLE.size + 1, _PROMOTED) + _HANDLE.pack(handle)


def ping(nonce: int) -> bytes:
    return FRAME_HEAD.pack(_NONCE.size + 1, _PING) + _NONCE.pack(nonce)


def pong(nonce: int) -> bytes:
    return FRAME_HEAD.pack(_NONCE.size + 1, _PONG) + _NONCE.pack(nonce)


def flow(go: bool) -> bytes:
    return FRAME_HEAD.pack(2, _FLOW) + (b"\x01" if go else b"\x00")


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
    if not 0 <= request <= _U32_MAX:
        raise ProtocolError(f"a CALL frame has the number {request}; it is 0 to {_U32_MAX}")
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


Decoders = dict[int, Callable[[memoryview], Iterable[Frame]]]
"""Frame type → what reads its body."""

TO_HOST: Final[Decoders] = {
    _CALL: _call, _SEND: _send, _ACK: _ack, _CREDIT: _credit, _PING: _ping, _PONG: _pong, _FLOW: _flow,
}  # fmt: skip
TO_CLIENT: Final[Decoders] = {
    _REPLY: _reply, _FAILED: _failed, _SENT: _sent, _REFUSED: _refused, _DELIVER: _deliver, _ACKED: _acked,
    _RELEASED: _released, _PROMOTED: _promoted, _PING: _ping, _PONG: _pong, _EVENT: _event,
}  # fmt: skip
MESSAGE_FRAMES: Final = frozenset((_SEND, _DELIVER))
"""Frames that carry messages, and may be large."""
