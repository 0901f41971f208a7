"""Reading the frames of ``frames.py``: the tables ``TO_HOST`` and ``TO_CLIENT`` say what reads each.

Whatever is malformed raises ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

import msgpack

from raybroker.model.block import Block
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import ProtocolError
from raybroker.wire.native import frames as wire
from raybroker.wire.native.frames import Frame

_HEADERS_BYTES_MAX: Final = MESSAGE_HEADERS_BYTES_MAX + 4_096
"""Of a message that is sent: what producers keep to, and what a dead message has on top when it is sent on."""


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
    if not 0 <= request <= wire.U32_MAX:
        raise ProtocolError(f"a CALL frame has the number {request}; it is 0 to {wire.U32_MAX}")
    return (wire.Call(request, op, args),)


def _reply(body: memoryview) -> Iterable[Frame]:
    request, result = _unpack(body, (int, object), "REPLY")
    return (wire.Reply(request, result),)


def _failed(body: memoryview) -> Iterable[Frame]:
    return (wire.Failed(*_unpack(body, (int, str, str), "FAILED")),)


def _event(body: memoryview) -> Iterable[Frame]:
    return (wire.Event(*_unpack(body, (str, dict), "EVENT")),)


def _block_sent(body: memoryview) -> Block:
    """A block as its producer made it; one with gaps would slip past the producer's numbers."""
    block = Block(body)
    block.check()
    if block.gaps:
        raise ProtocolError("a producer's block has gaps in its sequence numbers")
    if block.headers_bytes > _HEADERS_BYTES_MAX:
        largest = max(b - a for a, b in pairwise(block.header_offsets() or ()))
        if largest > _HEADERS_BYTES_MAX:
            raise ProtocolError(f"a message with headers of {largest} bytes; allowed are {_HEADERS_BYTES_MAX}")
    return block


def _send(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < wire.SEND_HEAD.size:
        raise ProtocolError(f"a SEND frame of {body.nbytes} bytes is too short")
    handle, floor = wire.SEND_HEAD.unpack_from(body)
    return (wire.Send(handle, floor, _block_sent(body[wire.SEND_HEAD.size :])),)


def _send_tx(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < wire.SEND_TX_HEAD.size:
        raise ProtocolError(f"a SEND_TX frame of {body.nbytes} bytes is too short")
    handle, floor, txn = wire.SEND_TX_HEAD.unpack_from(body)
    if not 1 <= txn <= wire.U32_MAX:
        raise ProtocolError(f"a SEND_TX frame names transaction {txn}; allowed are 1 to {wire.U32_MAX}")
    return (wire.SendTx(handle, floor, txn, _block_sent(body[wire.SEND_TX_HEAD.size :])),)


def _sent(body: memoryview) -> Iterable[Frame]:
    if body.nbytes % wire.SENT_ROW.size:
        raise ProtocolError(f"a SENT frame of {body.nbytes} bytes is not made of rows of {wire.SENT_ROW.size}")
    return [wire.Sent(*row) for row in wire.SENT_ROW.iter_unpack(body)]


def _refused(body: memoryview) -> Iterable[Frame]:
    handle, first, count, rows = _unpack(body, (int, int, int, list), "REFUSED")
    for row in rows:
        if not isinstance(row, list) or [type(v) for v in row] != [int, int, str, str]:
            raise ProtocolError("a REFUSED frame has a malformed row")
    return (wire.Refused(handle, first, count, [(a, b, code, text) for a, b, code, text in rows]),)


def _deliver(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < wire.DELIVER_HEAD.size:
        raise ProtocolError(f"a DELIVER frame of {body.nbytes} bytes is too short")
    block = Block(body[wire.DELIVER_HEAD.size :])
    block.check()
    handle, epoch, tag, attempt = wire.DELIVER_HEAD.unpack_from(body)
    return (wire.Deliver(handle, epoch, tag, attempt, block),)


def _ranges(body: memoryview, head: struct.Struct, what: str) -> list[tuple[int, int]]:
    """The ranges behind the head of a frame."""
    rest = body.nbytes - head.size
    if rest < 0 or rest % wire.RANGE.size:
        raise ProtocolError(f"{what} frame of {body.nbytes} bytes is not a head and ranges of {wire.RANGE.size}")
    rows = [(a, b) for a, b in wire.RANGE.iter_unpack(body[head.size :])]
    if any(a > b for a, b in rows):
        raise ProtocolError(f"{what} frame has a range that ends before it starts")
    return rows


def _ack(body: memoryview) -> Iterable[Frame]:
    rows = _ranges(body, wire.ACK_HEAD, "an ACK")
    handle, epoch, request = wire.ACK_HEAD.unpack_from(body)
    return (wire.Ack(handle, epoch, request, rows),)


def _extend(body: memoryview) -> Iterable[Frame]:
    rows = _ranges(body, wire.EXTEND_HEAD, "an EXTEND")
    handle, epoch = wire.EXTEND_HEAD.unpack_from(body)
    return (wire.Extend(handle, epoch, rows),)


def _withdrawn(body: memoryview) -> Iterable[Frame]:
    rows = _ranges(body, wire.EXTEND_HEAD, "a WITHDRAWN")
    handle, epoch = wire.EXTEND_HEAD.unpack_from(body)
    return (wire.Withdrawn(handle, epoch, rows),)


def _settle(body: memoryview) -> Iterable[Frame]:
    handle, epoch, request, outcome, delay_ms, reason, rows = _unpack(
        body, (int, int, int, str, int, str, list), "SETTLE"
    )
    if not (0 <= handle <= wire.U32_MAX and 0 <= epoch <= wire.U64_MAX and 0 <= request <= wire.U32_MAX):
        raise ProtocolError("a SETTLE frame has a number that is out of bounds")
    if outcome not in wire.OUTCOMES:
        raise ProtocolError(f"a SETTLE frame has the unknown outcome {outcome[:40]!r}")
    if not -1 <= delay_ms <= wire.DELAY_MS_MAX:
        raise ProtocolError(f"a SETTLE frame has a delay of {delay_ms} ms; allowed are -1 to {wire.DELAY_MS_MAX}")
    if len(reason) > wire.REASON_CHARS_MAX:
        raise ProtocolError(f"a SETTLE frame has a reason of {len(reason)} characters")
    if any(not isinstance(row, list) or [type(v) for v in row] != [int, int] for row in rows):
        raise ProtocolError("a SETTLE frame has a malformed range")
    if any(not 0 <= first <= last <= wire.U64_MAX for first, last in rows):
        raise ProtocolError("a SETTLE frame has a range that is out of bounds or ends before it starts")
    return (wire.Settle(handle, epoch, request, outcome, delay_ms, reason, [(a, b) for a, b in rows]),)


def _begun(body: memoryview) -> Iterable[Frame]:
    return (wire.Begun(*_exactly(wire.BEGUN_BODY, body, "BEGUN")),)


def _acked(body: memoryview) -> Iterable[Frame]:
    return (wire.Acked(*_exactly(wire.ACKED_BODY, body, "ACKED")),)


def _credit(body: memoryview) -> Iterable[Frame]:
    return (wire.Credit(*_exactly(wire.CREDIT_BODY, body, "CREDIT")),)


def _drain(body: memoryview) -> Iterable[Frame]:
    return (wire.Drain(*_exactly(wire.DRAIN_BODY, body, "DRAIN")),)


def _drained(body: memoryview) -> Iterable[Frame]:
    return (wire.Drained(*_exactly(wire.DRAIN_BODY, body, "DRAINED")),)


def _ready(body: memoryview) -> Iterable[Frame]:
    return (wire.Ready(*_exactly(wire.READY_BODY, body, "READY")),)


def _released(body: memoryview) -> Iterable[Frame]:
    return (wire.Released(*_exactly(wire.RELEASED_BODY, body, "RELEASED")),)


def _promoted(body: memoryview) -> Iterable[Frame]:
    return (wire.Promoted(*_exactly(wire.HANDLE, body, "PROMOTED")),)


def _ping(body: memoryview) -> Iterable[Frame]:
    return (wire.Ping(*_exactly(wire.NONCE, body, "PING")),)


def _pong(body: memoryview) -> Iterable[Frame]:
    return (wire.Pong(*_exactly(wire.NONCE, body, "PONG")),)


def _flow(body: memoryview) -> Iterable[Frame]:
    if body.nbytes != 1 or body[0] > 1:
        raise ProtocolError("a FLOW frame holds one byte, 0 or 1")
    return (wire.Flow(body[0] == 1),)


Decoders = dict[int, Callable[[memoryview], Iterable[Frame]]]
"""Frame type → what reads its body."""

TO_HOST: Final[Decoders] = {
    wire.CALL: _call, wire.SEND: _send, wire.SEND_TX: _send_tx, wire.ACK: _ack, wire.SETTLE: _settle,
    wire.BEGUN: _begun, wire.EXTEND: _extend, wire.CREDIT: _credit, wire.PING: _ping, wire.PONG: _pong,
    wire.FLOW: _flow, wire.DRAIN: _drain,
}  # fmt: skip
TO_CLIENT: Final[Decoders] = {
    wire.REPLY: _reply, wire.FAILED: _failed, wire.SENT: _sent, wire.REFUSED: _refused, wire.DELIVER: _deliver,
    wire.ACKED: _acked, wire.RELEASED: _released, wire.PROMOTED: _promoted, wire.PING: _ping, wire.PONG: _pong,
    wire.EVENT: _event, wire.DRAINED: _drained, wire.READY: _ready,
    wire.WITHDRAWN: _withdrawn,
}  # fmt: skip
