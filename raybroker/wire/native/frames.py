"""The frames of the native protocol: what each is, and how it is written and read.

    length u32   of what follows, at most FRAME_BYTES_MAX (CONTROL_BYTES_MAX for what carries no messages)
    type   u8
    body

Frames that carry messages or acknowledgements are packed structs; control frames (CALL and its answers) are msgpack.
Functions with a frame's name write it.  What reads it is ``decoding.py``; when a connection is opened, and who may say
what, is ``connection.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from raybroker.model import failure
from raybroker.model.blocks.block import BLOCK_BYTES_MAX, Block
from raybroker.model.blocks.large_block import LargeBlock
from raybroker.model.blocks.record import Buffer
from raybroker.model.causes import FAILS
from raybroker.model.errors import ConfigError, ProtocolError

FRAME_BYTES_MAX: Final = BLOCK_BYTES_MAX + 64
"""Largest frame: the largest block and what stands before it."""
CONTROL_BYTES_MAX: Final = 1 << 20
"""Largest control frame."""

FRAME_HEAD: Final = struct.Struct("<IB")

CALL, REPLY, FAILED, SEND, SENT, REFUSED, DELIVER, ACK, ACKED = range(1, 10)
CREDIT, RELEASED, PROMOTED, PING, PONG, FLOW, EVENT = range(10, 17)
SEND_TX, SETTLE, BEGUN, EXTEND, DRAIN, DRAINED, READY, WITHDRAWN = range(17, 25)
SEND_LARGE, DELIVER_LARGE, RECALL, RECALLED, TAKEN, MARK, CHECKPOINT = range(25, 32)
SEND_TRACED, TRACED = range(32, 34)
MESSAGE_FRAMES: Final = frozenset((SEND, SEND_TX, DELIVER, SEND_LARGE, DELIVER_LARGE, SEND_TRACED))
"""Frames that carry messages, and may be large."""

OUTCOMES: Final = frozenset(("reject", "release", "unseen", "expired", *FAILS))
"""Outcomes of a delivery that is not acknowledged."""
REASON_CHARS_MAX: Final = failure.REASON_CHARS_MAX
"""A longer reason of an outcome is cut when it is sent."""
DELAY_MS_MAX: Final = (1 << 53) - 1
"""Longest delay that can be asked for: added to the time of day it stays within 64 bits."""

SEND_HEAD: Final = struct.Struct("<IQ")
SEND_TX_HEAD: Final = struct.Struct("<IQQ")
SEND_LARGE_HEAD: Final = struct.Struct("<IQQI")
DELIVER_LARGE_HEAD: Final = struct.Struct("<IQQIQ")
SENT_ROW: Final = struct.Struct("<IQI")
DELIVER_HEAD: Final = struct.Struct("<IQQI")
ACK_HEAD: Final = struct.Struct("<IQI")
BEGUN_BODY: Final = struct.Struct("<IQQ")
EXTEND_HEAD: Final = struct.Struct("<IQ")
RANGE: Final = struct.Struct("<QQ")
MARK_BODY: Final = struct.Struct("<IQQQ")
TRACED_BODY: Final = struct.Struct("<I9Q")
COLLECTED, ELSEWHERE = 1, 2
"""Events of a traced send: the garbage collector of the host ran meanwhile; it was committed in another thread."""
ACKED_BODY: Final = struct.Struct("<II")
CREDIT_BODY: Final = struct.Struct("<IQi")
DRAIN_BODY: Final = struct.Struct("<IQI")
READY_BODY: Final = struct.Struct("<IQ")
RELEASED_BODY: Final = struct.Struct("<IIQ")
HANDLE: Final = struct.Struct("<I")
NONCE: Final = struct.Struct("<Q")
_SENT_ONE: Final = struct.Struct("<IBIQI")
"""A whole frame: FRAME_HEAD and one SENT_ROW."""
_DELIVER_START: Final = struct.Struct("<IBIQQI")
"""FRAME_HEAD and DELIVER_HEAD."""
_ACKED_FRAME: Final = struct.Struct("<IBII")
"""A whole frame: FRAME_HEAD and ACKED_BODY."""
U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1


class CallFrame(NamedTuple):
    """A request: ``op`` with arguments; ``request`` is repeated in the answer."""

    request: int
    op: str
    args: dict[str, Any]


class ReplyFrame(NamedTuple):
    request: int
    result: Any


class FailedFrame(NamedTuple):
    """A request failed: an error code of model.errors and its text."""

    request: int
    code: str
    text: str


class SendFrame(NamedTuple):
    """A block for producer ``handle``; sequence numbers below ``floor`` will not be retried."""

    handle: int
    floor: int
    block: Block


class SendTxFrame(NamedTuple):
    """A Send as a part of transaction ``txn`` (1 … 2³² - 1) of this connection.

    Answered when something of it is refused; of the rest the end of the transaction tells.
    """

    handle: int
    floor: int
    txn: int
    block: Block


class SendTracedFrame(NamedTuple):
    """A Send whose way through the host is measured: Traced comes right before its Sent, unless it is refused."""

    handle: int
    floor: int
    block: Block


class TracedFrame(NamedTuple):
    """The times of the block of ``first_seq`` in its host, in nanoseconds of the monotonic clock there.

    clock         says which clock it is: the same number at the client means that it is the client's as well
    read_ns       the frame was read
    decided_ns    the destination had decided, and what it decided was handed to the committer
    commit_ns     its commit began, and ``committed_ns`` it was over; 0: nothing of it was stored
    sync_ns       the time that the sync of that commit took
    confirmed_ns  the confirmation was written
    events        what else happened meanwhile: COLLECTED, ELSEWHERE
    """

    handle: int
    first_seq: int
    clock: int
    read_ns: int
    decided_ns: int
    commit_ns: int
    committed_ns: int
    sync_ns: int
    confirmed_ns: int
    events: int


class SendLargeFrame(NamedTuple):
    """A Send or, with ``txn``, a SendTx of one message, whose body came ahead under the number ``body``."""

    handle: int
    floor: int
    txn: int
    body: int
    block: LargeBlock


class SentFrame(NamedTuple):
    """``messages`` from ``first_seq`` on are settled."""

    handle: int
    first_seq: int
    messages: int


class RefusedFrame(NamedTuple):
    """The answer of Sent, but the rows (start index, end index, code, text) of the block were not taken."""

    handle: int
    first_seq: int
    messages: int
    rows: list[tuple[int, int, str, str]]


class DeliverFrame(NamedTuple):
    """Messages for consumer ``handle``, tagged tag, tag + 1, …; ``attempt`` 1 is the first delivery."""

    handle: int
    epoch: int
    tag: int
    attempt: int
    block: Block


class DeliverLargeFrame(NamedTuple):
    """A delivery of one message, whose body is to be read by the number of its block, ``ordinal``."""

    handle: int
    epoch: int
    tag: int
    attempt: int
    ordinal: int
    block: LargeBlock


class AckFrame(NamedTuple):
    """Deliveries first … last of each range are acknowledged; request 0 wants no confirmation."""

    handle: int
    epoch: int
    request: int
    ranges: list[tuple[int, int]]


class SettleFrame(NamedTuple):
    """Deliveries first … last of each range have another outcome than being acknowledged; see OUTCOMES.

    ``delay_ms``: not to be delivered again before, -1 as the destination says. Answered by Acked unless request is 0.
    """

    handle: int
    epoch: int
    request: int
    outcome: str
    delay_ms: int
    reason: str
    ranges: list[tuple[int, int]]


class BegunFrame(NamedTuple):
    """The application got the deliveries up to ``tag``."""

    handle: int
    epoch: int
    tag: int


class TakenFrame(NamedTuple):
    """Nothing up to ``tag`` is in the buffer of a consumer any more that has a bound in bytes."""

    handle: int
    epoch: int
    tag: int


class ExtendFrame(NamedTuple):
    """The time in which deliveries first … last of each range have to be acknowledged begins again."""

    handle: int
    epoch: int
    ranges: list[tuple[int, int]]


class AckedFrame(NamedTuple):
    request: int
    unknown: int


class CreditFrame(NamedTuple):
    """The consumer asks for more; -1 is without limit. This ends drain mode."""

    handle: int
    epoch: int
    credit: int


class DrainFrame(NamedTuple):
    """The consumer is in drain mode from now on: it gets up to ``credit`` messages at once, and the rest is void.

    What it had been granted before is void as well. Answered by Drained, after the messages, unless nothing is void; a
    Drain of 0 always is.
    """

    handle: int
    epoch: int
    credit: int


class DrainedFrame(NamedTuple):
    """There is nothing more for the consumer, and ``unused`` of what it had been granted is void."""

    handle: int
    epoch: int
    unused: int


class ReadyFrame(NamedTuple):
    """Told once after each Drain, when the next one would bring something."""

    handle: int
    epoch: int


class WithdrawnFrame(NamedTuple):
    """Deliveries first … last of each range are void: an earlier message of their unit of order went back, or they were
    not acknowledged in time; then the consumer gets no more before it says something."""

    handle: int
    epoch: int
    ranges: list[tuple[int, int]]


class RecallFrame(NamedTuple):
    """A consumer that has said that it can is to give back what of deliveries first … last of each range the
    application has not begun. Answered by Recalled, also when that is nothing; until then the consumer gets no more."""

    handle: int
    epoch: int
    ranges: list[tuple[int, int]]


class RecalledFrame(NamedTuple):
    """The answer: these of the deliveries are given back, as if they had never been handed out."""

    handle: int
    epoch: int
    ranges: list[tuple[int, int]]


class MarkFrame(NamedTuple):
    """The delivery that begins with ``tag`` comes next, and has this fencing number."""

    handle: int
    epoch: int
    tag: int
    fence: int


class CheckpointFrame(NamedTuple):
    """The message with this tag comes next, and a consumer before has said this of how far it was."""

    handle: int
    epoch: int
    tag: int
    state: bytes


class ReleasedFrame(NamedTuple):
    handle: int
    request: int
    next_tag: int


class PromotedFrame(NamedTuple):
    handle: int


class PingFrame(NamedTuple):
    nonce: int


class PongFrame(NamedTuple):
    nonce: int


class FlowFrame(NamedTuple):
    """Stop (False) or go on (True) delivering on this connection."""

    go: bool


class EventFrame(NamedTuple):
    """The host tells of something nobody asked for: a name and its data."""

    name: str
    data: dict[str, Any]


Frame = (
    CallFrame
    | ReplyFrame
    | FailedFrame
    | SendFrame
    | SentFrame
    | RefusedFrame
    | DeliverFrame
    | AckFrame
    | AckedFrame
    | CreditFrame
    | ReleasedFrame
    | PromotedFrame
    | PingFrame
    | PongFrame
    | FlowFrame
    | EventFrame
    | SendTxFrame
    | SettleFrame
    | BegunFrame
    | ExtendFrame
    | DrainFrame
    | DrainedFrame
    | ReadyFrame
    | WithdrawnFrame
    | SendLargeFrame
    | DeliverLargeFrame
    | RecallFrame
    | RecalledFrame
    | TakenFrame
    | MarkFrame
    | CheckpointFrame
    | SendTracedFrame
    | TracedFrame
)


# ---- encoding ------------------------------------------------------------------------------------------------------


def _control(kind: int, value: Any) -> bytes:
    body: bytes = msgpack.packb(value, use_bin_type=True)
    if len(body) > CONTROL_BYTES_MAX:
        raise ProtocolError(f"a control frame of {len(body)} bytes; allowed are {CONTROL_BYTES_MAX} (1 MiB)")
    return FRAME_HEAD.pack(len(body) + 1, kind) + body


def call(request: int, op: str, args: dict[str, Any]) -> bytes:
    """Raises ConfigError for a request that is too long."""
    try:
        return _control(CALL, (request, op, args))
    except ProtocolError as error:
        raise ConfigError(
            f"the request {_asked(op, args)} is too long: {error}; give it less at a time, fewer rows or shorter values"
        ) from None


def _asked(op: str, args: dict[str, Any]) -> str:
    """What a request asks for: of one to a connection service its method, of an administrative one the verb."""
    method = args.get("method", op)
    return str(args["args"][0]) if method == "admin" and args.get("args") else str(method)


def reply(request: int, result: Any) -> bytes:
    return _control(REPLY, (request, result))


def failed(request: int, code: str, text: str) -> bytes:
    return _control(FAILED, (request, code, text))


def event(name: str, data: dict[str, Any]) -> bytes:
    return _control(EVENT, (name, data))


def send(handle: int, floor: int, block: Buffer) -> tuple[bytes, Buffer]:
    size = SEND_HEAD.size + memoryview(block).nbytes
    return FRAME_HEAD.pack(size + 1, SEND) + SEND_HEAD.pack(handle, floor), block


def send_traced(handle: int, floor: int, block: Buffer) -> tuple[bytes, Buffer]:
    size = SEND_HEAD.size + memoryview(block).nbytes
    return FRAME_HEAD.pack(size + 1, SEND_TRACED) + SEND_HEAD.pack(handle, floor), block


def traced(frame: TracedFrame) -> bytes:
    return FRAME_HEAD.pack(TRACED_BODY.size + 1, TRACED) + TRACED_BODY.pack(*frame)


def send_tx(handle: int, floor: int, txn: int, block: Buffer) -> tuple[bytes, Buffer]:
    size = SEND_TX_HEAD.size + memoryview(block).nbytes
    return FRAME_HEAD.pack(size + 1, SEND_TX) + SEND_TX_HEAD.pack(handle, floor, txn), block


def send_large(handle: int, floor: int, txn: int, body: int, front: Buffer) -> tuple[bytes, Buffer]:
    """``txn`` 0: in no transaction; ``front``: the block up to its body."""
    size = SEND_LARGE_HEAD.size + memoryview(front).nbytes
    return FRAME_HEAD.pack(size + 1, SEND_LARGE) + SEND_LARGE_HEAD.pack(handle, floor, txn, body), front


def sent(rows: Sequence[tuple[int, int, int]]) -> bytes:
    """Rows of (handle, first_seq, count)."""
    if len(rows) == 1:
        return _SENT_ONE.pack(SENT_ROW.size + 1, SENT, *rows[0])
    body = b"".join([SENT_ROW.pack(*row) for row in rows])
    return FRAME_HEAD.pack(len(body) + 1, SENT) + body


def refused(handle: int, first_seq: int, count: int, rows: Sequence[tuple[int, int, str, str]]) -> bytes:
    return _control(REFUSED, (handle, first_seq, count, list(rows)))


def deliver(handle: int, epoch: int, tag: int, attempt: int, block: Sequence[Buffer]) -> tuple[Buffer, ...]:
    size = DELIVER_HEAD.size
    for part in block:
        size += part.nbytes if isinstance(part, memoryview) else len(part)
    return (_DELIVER_START.pack(size + 1, DELIVER, handle, epoch, tag, attempt), *block)


def deliver_large(handle: int, epoch: int, tag: int, attempt: int, ordinal: int, front: Buffer) -> tuple[bytes, Buffer]:
    size = DELIVER_LARGE_HEAD.size + memoryview(front).nbytes
    head = DELIVER_LARGE_HEAD.pack(handle, epoch, tag, attempt, ordinal)
    return FRAME_HEAD.pack(size + 1, DELIVER_LARGE) + head, front


def ack(handle: int, epoch: int, request: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    body = b"".join([RANGE.pack(*r) for r in ranges])
    return FRAME_HEAD.pack(ACK_HEAD.size + len(body) + 1, ACK) + ACK_HEAD.pack(handle, epoch, request) + body


def settle(
    handle: int, epoch: int, request: int, outcome: str, delay_ms: int, reason: str, ranges: Sequence[tuple[int, int]]
) -> bytes:
    """``reason`` is cut to REASON_CHARS_MAX, and what is no character in it becomes a question mark."""
    reason = reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()
    return _control(SETTLE, (handle, epoch, request, outcome, delay_ms, reason, [list(r) for r in ranges]))


def begun(handle: int, epoch: int, tag: int) -> bytes:
    return FRAME_HEAD.pack(BEGUN_BODY.size + 1, BEGUN) + BEGUN_BODY.pack(handle, epoch, tag)


def taken(handle: int, epoch: int, tag: int) -> bytes:
    return FRAME_HEAD.pack(BEGUN_BODY.size + 1, TAKEN) + BEGUN_BODY.pack(handle, epoch, tag)


def extend(handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    return _ranges(EXTEND, handle, epoch, ranges)


def recall(handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    return _ranges(RECALL, handle, epoch, ranges)


def recalled(handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    return _ranges(RECALLED, handle, epoch, ranges)


def mark(handle: int, epoch: int, tag: int, fence: int) -> bytes:
    return FRAME_HEAD.pack(MARK_BODY.size + 1, MARK) + MARK_BODY.pack(handle, epoch, tag, fence)


def checkpoint(handle: int, epoch: int, tag: int, state: bytes) -> bytes:
    return FRAME_HEAD.pack(BEGUN_BODY.size + len(state) + 1, CHECKPOINT) + BEGUN_BODY.pack(handle, epoch, tag) + state


def _ranges(kind: int, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    body = b"".join([RANGE.pack(*r) for r in ranges])
    return FRAME_HEAD.pack(EXTEND_HEAD.size + len(body) + 1, kind) + EXTEND_HEAD.pack(handle, epoch) + body


def acked(request: int, unknown: int) -> bytes:
    """``unknown`` is cut to what the field holds: a peer may have named any number of deliveries."""
    return _ACKED_FRAME.pack(ACKED_BODY.size + 1, ACKED, request, min(unknown, U32_MAX))


def credit(handle: int, epoch: int, count: int) -> bytes:
    return FRAME_HEAD.pack(CREDIT_BODY.size + 1, CREDIT) + CREDIT_BODY.pack(handle, epoch, count)


def drain(handle: int, epoch: int, count: int) -> bytes:
    return FRAME_HEAD.pack(DRAIN_BODY.size + 1, DRAIN) + DRAIN_BODY.pack(handle, epoch, count)


def drained(handle: int, epoch: int, unused: int) -> bytes:
    return FRAME_HEAD.pack(DRAIN_BODY.size + 1, DRAINED) + DRAIN_BODY.pack(handle, epoch, unused)


def ready(handle: int, epoch: int) -> bytes:
    return FRAME_HEAD.pack(READY_BODY.size + 1, READY) + READY_BODY.pack(handle, epoch)


def withdrawn(handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    return _ranges(WITHDRAWN, handle, epoch, ranges)


def released(handle: int, request: int, next_tag: int) -> bytes:
    return FRAME_HEAD.pack(RELEASED_BODY.size + 1, RELEASED) + RELEASED_BODY.pack(handle, request, next_tag)


def promoted(handle: int) -> bytes:
    return FRAME_HEAD.pack(HANDLE.size + 1, PROMOTED) + HANDLE.pack(handle)


def ping(nonce: int) -> bytes:
    return FRAME_HEAD.pack(NONCE.size + 1, PING) + NONCE.pack(nonce)


def pong(nonce: int) -> bytes:
    return FRAME_HEAD.pack(NONCE.size + 1, PONG) + NONCE.pack(nonce)


def flow(go: bool) -> bytes:
    return FRAME_HEAD.pack(2, FLOW) + (b"\x01" if go else b"\x00")
