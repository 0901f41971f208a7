"""Reading the frames of ``frames.py``: the tables ``TO_HOST`` and ``TO_CLIENT`` say what reads each.

Whatever is malformed raises ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

import msgpack

from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.bounds import MESSAGE_HEADERS_BYTES_MAX
from raybroker.model.errors import ProtocolError
from raybroker.wire.native import frames as wire
from raybroker.wire.native.frames import Frame

Decoder = Callable[[memoryview], Iterable[Frame]]
"""Reads the body of one type of frame."""

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


def _fixed(frame: Callable[..., Frame], layout: struct.Struct, what: str) -> Decoder:
    """Reads a frame that is one packed struct."""

    def decode(body: memoryview) -> Iterable[Frame]:
        if body.nbytes != layout.size:
            raise ProtocolError(f"a {what} frame of {body.nbytes} bytes; it has {layout.size}")
        return (frame(*layout.unpack(body)),)

    return decode


def _ranged(frame: Callable[..., Frame], head: struct.Struct, what: str) -> Decoder:
    """Reads a frame that is a packed head and ranges of deliveries."""

    def decode(body: memoryview) -> Iterable[Frame]:
        rest = body.nbytes - head.size
        if rest < 0 or rest % wire.RANGE.size:
            raise ProtocolError(f"{what} frame of {body.nbytes} bytes is not a head and ranges of {wire.RANGE.size}")
        rows: list[tuple[int, int]] = []
        for first, last in wire.RANGE.iter_unpack(body[head.size :]):
            if first > last:
                raise ProtocolError(f"{what} frame has a range that ends before it starts")
            rows.append((first, last))
        return (frame(*head.unpack_from(body), rows),)

    return decode


def _sending(
    frame: Callable[..., Frame], head: struct.Struct, what: str, block_of: Callable[[memoryview], Block] = Block
) -> Decoder:
    """Reads a frame that is a packed head and a block as its producer made it.

    A block with gaps would slip past the producer's numbers.
    """

    def decode(body: memoryview) -> Iterable[Frame]:
        if body.nbytes < head.size:
            raise ProtocolError(f"a {what} frame of {body.nbytes} bytes is too short")
        numbers = head.unpack_from(body)
        block = block_of(body[head.size :])
        block.check()
        if block.gaps:
            raise ProtocolError("a producer's block has gaps in its sequence numbers")
        if block.headers_bytes > _HEADERS_BYTES_MAX:
            largest = max(b - a for a, b in pairwise(block.header_offsets() or ()))
            if largest > _HEADERS_BYTES_MAX:
                raise ProtocolError(f"a message with headers of {largest} bytes; allowed are {_HEADERS_BYTES_MAX}")
        return (frame(*numbers, block),)

    return decode


def _send_tx(handle: int, floor: int, txn: int, block: Block) -> Frame:
    if not 1 <= txn <= wire.U32_MAX:
        raise ProtocolError(f"a SEND_TX frame names transaction {txn}; allowed are 1 to {wire.U32_MAX}")
    return wire.SendTxFrame(handle, floor, txn, block)


def _send_large(handle: int, floor: int, txn: int, body: int, block: LargeBlock) -> Frame:
    if txn > wire.U32_MAX:
        raise ProtocolError(f"a SEND_LARGE frame names transaction {txn}; allowed are 0 to {wire.U32_MAX}")
    return wire.SendLargeFrame(handle, floor, txn, body, block)


def _call(body: memoryview) -> Iterable[Frame]:
    request, op, args = _unpack(body, (int, str, dict), "CALL")
    if not 0 <= request <= wire.U32_MAX:
        raise ProtocolError(f"a CALL frame has the number {request}; it is 0 to {wire.U32_MAX}")
    return (wire.CallFrame(request, op, args),)


def _reply(body: memoryview) -> Iterable[Frame]:
    request, result = _unpack(body, (int, object), "REPLY")
    return (wire.ReplyFrame(request, result),)


def _failed(body: memoryview) -> Iterable[Frame]:
    return (wire.FailedFrame(*_unpack(body, (int, str, str), "FAILED")),)


def _event(body: memoryview) -> Iterable[Frame]:
    return (wire.EventFrame(*_unpack(body, (str, dict), "EVENT")),)


def _sent(body: memoryview) -> Iterable[Frame]:
    if body.nbytes % wire.SENT_ROW.size:
        raise ProtocolError(f"a SENT frame of {body.nbytes} bytes is not made of rows of {wire.SENT_ROW.size}")
    return [wire.SentFrame(*row) for row in wire.SENT_ROW.iter_unpack(body)]


def _refused(body: memoryview) -> Iterable[Frame]:
    handle, first, count, rows = _unpack(body, (int, int, int, list), "REFUSED")
    for row in rows:
        if not isinstance(row, list) or [type(v) for v in row] != [int, int, str, str]:
            raise ProtocolError("a REFUSED frame has a malformed row")
    return (wire.RefusedFrame(handle, first, count, [(a, b, code, text) for a, b, code, text in rows]),)


def _deliver(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < wire.DELIVER_HEAD.size:
        raise ProtocolError(f"a DELIVER frame of {body.nbytes} bytes is too short")
    block = Block(body[wire.DELIVER_HEAD.size :])
    block.check()
    handle, epoch, tag, attempt = wire.DELIVER_HEAD.unpack_from(body)
    return (wire.DeliverFrame(handle, epoch, tag, attempt, block),)


def _deliver_large(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < wire.DELIVER_LARGE_HEAD.size:
        raise ProtocolError(f"a DELIVER_LARGE frame of {body.nbytes} bytes is too short")
    block = LargeBlock.promised(body[wire.DELIVER_LARGE_HEAD.size :])
    block.check()
    handle, epoch, tag, attempt, ordinal = wire.DELIVER_LARGE_HEAD.unpack_from(body)
    return (wire.DeliverLargeFrame(handle, epoch, tag, attempt, ordinal, block),)


def _checkpoint(body: memoryview) -> Iterable[Frame]:
    if body.nbytes < wire.BEGUN_BODY.size:
        raise ProtocolError(f"a CHECKPOINT frame of {body.nbytes} bytes is too short")
    handle, epoch, tag = wire.BEGUN_BODY.unpack_from(body)
    return (wire.CheckpointFrame(handle, epoch, tag, bytes(body[wire.BEGUN_BODY.size :])),)


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
    return (wire.SettleFrame(handle, epoch, request, outcome, delay_ms, reason, [(a, b) for a, b in rows]),)


def _flow(body: memoryview) -> Iterable[Frame]:
    if body.nbytes != 1 or body[0] > 1:
        raise ProtocolError("a FLOW frame holds one byte, 0 or 1")
    return (wire.FlowFrame(body[0] == 1),)


Decoders = dict[int, Decoder]
"""Frame type → what reads its body."""

_EITHER: Final[Decoders] = {
    wire.PING: _fixed(wire.PingFrame, wire.NONCE, "PING"),
    wire.PONG: _fixed(wire.PongFrame, wire.NONCE, "PONG"),
}
TO_HOST: Final[Decoders] = {
    **_EITHER,
    wire.CALL: _call,
    wire.SEND: _sending(wire.SendFrame, wire.SEND_HEAD, "SEND"),
    wire.SEND_TRACED: _sending(wire.SendTracedFrame, wire.SEND_HEAD, "SEND_TRACED"),
    wire.SEND_TX: _sending(_send_tx, wire.SEND_TX_HEAD, "SEND_TX"),
    wire.SEND_LARGE: _sending(_send_large, wire.SEND_LARGE_HEAD, "SEND_LARGE", LargeBlock.promised),
    wire.ACK: _ranged(wire.AckFrame, wire.ACK_HEAD, "an ACK"),
    wire.SETTLE: _settle,
    wire.BEGUN: _fixed(wire.BegunFrame, wire.BEGUN_BODY, "BEGUN"),
    wire.TAKEN: _fixed(wire.TakenFrame, wire.BEGUN_BODY, "TAKEN"),
    wire.EXTEND: _ranged(wire.ExtendFrame, wire.EXTEND_HEAD, "an EXTEND"),
    wire.CREDIT: _fixed(wire.CreditFrame, wire.CREDIT_BODY, "CREDIT"),
    wire.FLOW: _flow,
    wire.DRAIN: _fixed(wire.DrainFrame, wire.DRAIN_BODY, "DRAIN"),
    wire.RECALLED: _ranged(wire.RecalledFrame, wire.EXTEND_HEAD, "a RECALLED"),
}
TO_CLIENT: Final[Decoders] = {
    **_EITHER,
    wire.REPLY: _reply,
    wire.FAILED: _failed,
    wire.SENT: _sent,
    wire.REFUSED: _refused,
    wire.TRACED: _fixed(wire.TracedFrame, wire.TRACED_BODY, "TRACED"),
    wire.DELIVER: _deliver,
    wire.DELIVER_LARGE: _deliver_large,
    wire.ACKED: _fixed(wire.AckedFrame, wire.ACKED_BODY, "ACKED"),
    wire.RELEASED: _fixed(wire.ReleasedFrame, wire.RELEASED_BODY, "RELEASED"),
    wire.PROMOTED: _fixed(wire.PromotedFrame, wire.HANDLE, "PROMOTED"),
    wire.EVENT: _event,
    wire.DRAINED: _fixed(wire.DrainedFrame, wire.DRAIN_BODY, "DRAINED"),
    wire.READY: _fixed(wire.ReadyFrame, wire.READY_BODY, "READY"),
    wire.WITHDRAWN: _ranged(wire.WithdrawnFrame, wire.EXTEND_HEAD, "a WITHDRAWN"),
    wire.CHECKPOINT: _checkpoint,
    wire.MARK: _fixed(wire.MarkFrame, wire.MARK_BODY, "MARK"),
    wire.RECALL: _ranged(wire.RecallFrame, wire.EXTEND_HEAD, "a RECALL"),
}
