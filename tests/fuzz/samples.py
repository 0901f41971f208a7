"""Strategies for every frame of the native protocol: the value, and the bytes that carry it."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from hypothesis import strategies as st

from raybroker.model.blocks.block import Block, encode_block
from raybroker.wire.native import frames as wire

U32, U64, I32_MIN, I32_MAX = (1 << 32) - 1, (1 << 64) - 1, -(1 << 31), (1 << 31) - 1


class Sample(NamedTuple):
    """``frame`` as it should come out (a Block as its bytes), and its encoding."""

    frame: tuple[str, tuple[Any, ...]]
    data: bytes


def shape(frame: wire.Frame) -> tuple[str, tuple[Any, ...]]:
    """A frame as something that compares: its name and fields, blocks as bytes, without large bodies."""
    return type(frame).__name__, tuple(bytes(v.front) if isinstance(v, Block) else v for v in frame)


u32 = st.integers(0, U32)
u64 = st.integers(0, U64)
words = st.text(max_size=12)
plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), U64),
        st.floats(allow_nan=False),
        words,
        st.binary(max_size=8),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
maps = st.dictionaries(words, plain, max_size=4)
rows = st.lists(st.tuples(st.integers(0, 1024), st.integers(0, 1024), words, words), max_size=4)
ranges = st.lists(st.tuples(u64, u64).map(lambda r: (min(r), max(r))), max_size=5)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    """Blocks as producers make them."""
    bodies = draw(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
    count = len(bodies)
    headers = draw(st.none() | st.lists(st.binary(max_size=9), min_size=count, max_size=count))
    priorities = draw(st.none() | st.lists(st.integers(0, 9), min_size=count, max_size=count))
    times = st.none() | st.lists(u64, min_size=count, max_size=count).map(lambda found: array("Q", found))
    return encode_block(
        bodies,
        producer=draw(u64),
        first_seq=draw(st.integers(0, U64 - 8)),
        timestamp_ms=draw(u64),
        persistent=draw(st.booleans()),
        kinds=draw(st.integers(0, 255)),
        headers=headers,
        priorities=None if priorities is None else bytes(priorities),
        expires=draw(times),
        deliver_at=draw(times),
    )


@st.composite
def picked(draw: st.DrawFn) -> bytes:
    """Blocks as hosts deliver them: some messages of a producer's block."""
    block = Block(draw(blocks()))
    return b"".join(block.pick(draw(st.integers(1, (1 << block.count) - 1))))


@st.composite
def fronts(draw: st.DrawFn) -> bytes:
    """What stands before the body of a large block."""
    return encode_block(
        [bytes(draw(st.integers(0, 99)))],
        producer=draw(u64),
        first_seq=draw(st.integers(0, U64 - 8)),
        timestamp_ms=draw(u64),
        persistent=draw(st.booleans()),
        kinds=draw(st.integers(0, 255)),
        headers=draw(st.none() | st.lists(st.binary(max_size=9), min_size=1, max_size=1)),
        front=True,
    )


def _sample(name: str, fields: tuple[Any, ...], data: bytes) -> Sample:
    return Sample((f"{name}Frame", fields), data)


def _joined(buffers: tuple[Any, ...]) -> bytes:
    return b"".join(buffers)


calls = st.tuples(u32, words, maps).map(lambda f: _sample("Call", f, wire.call(*f)))
replies = st.tuples(u32, plain).map(lambda f: _sample("Reply", f, wire.reply(*f)))
failures = st.tuples(u32, words, words).map(lambda f: _sample("Failed", f, wire.failed(*f)))
events = st.tuples(words, maps).map(lambda f: _sample("Event", f, wire.event(*f)))
sends = st.tuples(u32, u64, blocks()).map(lambda f: _sample("Send", f, _joined(wire.send(*f))))
sends_tx = st.tuples(u32, u64, st.integers(1, U32), blocks()).map(
    lambda f: _sample("SendTx", f, _joined(wire.send_tx(*f)))
)
sends_large = st.tuples(u32, u64, u32, u32, fronts()).map(
    lambda f: _sample("SendLarge", f, _joined(wire.send_large(*f)))
)
sends_traced = st.tuples(u32, u64, blocks()).map(lambda f: _sample("SendTraced", f, _joined(wire.send_traced(*f))))
traceds = st.tuples(u32, *[u64] * 9).map(lambda f: _sample("Traced", f, wire.traced(wire.TracedFrame(*f))))
sents = st.tuples(u32, u64, u32).map(lambda f: _sample("Sent", f, wire.sent([f])))
refusals = st.tuples(u32, u64, u32, rows).map(lambda f: _sample("Refused", f, wire.refused(*f)))
delivers = st.tuples(u32, u64, u64, u32, picked()).map(
    lambda f: _sample("Deliver", f, _joined(wire.deliver(*f[:4], (f[4],))))
)
delivers_large = st.tuples(u32, u64, u64, u32, u64, fronts()).map(
    lambda f: _sample("DeliverLarge", f, _joined(wire.deliver_large(*f)))
)
acks = st.tuples(u32, u64, u32, ranges).map(lambda f: _sample("Ack", f, wire.ack(*f)))
settles = st.tuples(
    u32, u64, u32, st.sampled_from(sorted(wire.OUTCOMES)), st.integers(-1, wire.DELAY_MS_MAX), words, ranges
).map(lambda f: _sample("Settle", f, wire.settle(*f)))
beguns = st.tuples(u32, u64, u64).map(lambda f: _sample("Begun", f, wire.begun(*f)))
takens = st.tuples(u32, u64, u64).map(lambda f: _sample("Taken", f, wire.taken(*f)))
extends = st.tuples(u32, u64, ranges).map(lambda f: _sample("Extend", f, wire.extend(*f)))
ackeds = st.tuples(u32, u32).map(lambda f: _sample("Acked", f, wire.acked(*f)))
credits_ = st.tuples(u32, u64, st.integers(I32_MIN, I32_MAX)).map(lambda f: _sample("Credit", f, wire.credit(*f)))
drains = st.tuples(u32, u64, u32).map(lambda f: _sample("Drain", f, wire.drain(*f)))
draineds = st.tuples(u32, u64, u32).map(lambda f: _sample("Drained", f, wire.drained(*f)))
withdrawns = st.tuples(u32, u64, ranges).map(lambda f: _sample("Withdrawn", f, wire.withdrawn(*f)))
recalls = st.tuples(u32, u64, ranges).map(lambda f: _sample("Recall", f, wire.recall(*f)))
marks = st.tuples(u32, u64, u64, u64).map(lambda f: _sample("Mark", f, wire.mark(*f)))
checkpoints = st.tuples(u32, u64, u64, st.binary(max_size=40)).map(
    lambda f: _sample("Checkpoint", f, wire.checkpoint(*f))
)
recalleds = st.tuples(u32, u64, ranges).map(lambda f: _sample("Recalled", f, wire.recalled(*f)))
readies = st.tuples(u32, u64).map(lambda f: _sample("Ready", f, wire.ready(*f)))
releaseds = st.tuples(u32, u32, u64).map(lambda f: _sample("Released", f, wire.released(*f)))
promoteds = u32.map(lambda handle: _sample("Promoted", (handle,), wire.promoted(handle)))
pings = u64.map(lambda nonce: _sample("Ping", (nonce,), wire.ping(nonce)))
pongs = u64.map(lambda nonce: _sample("Pong", (nonce,), wire.pong(nonce)))
flows = st.booleans().map(lambda go: _sample("Flow", (go,), wire.flow(go)))

TO_HOST = {
    "CallFrame": calls,
    "SendFrame": sends,
    "SendTxFrame": sends_tx,
    "AckFrame": acks,
    "SettleFrame": settles,
    "BegunFrame": beguns,
    "ExtendFrame": extends,
    "CreditFrame": credits_,
    "PingFrame": pings,
    "PongFrame": pongs,
    "FlowFrame": flows,
    "DrainFrame": drains,
    "SendLargeFrame": sends_large,
    "RecalledFrame": recalleds,
    "TakenFrame": takens,
    "SendTracedFrame": sends_traced,
}
TO_CLIENT = {
    "ReplyFrame": replies,
    "FailedFrame": failures,
    "EventFrame": events,
    "SentFrame": sents,
    "RefusedFrame": refusals,
    "TracedFrame": traceds,
    "DeliverFrame": delivers,
    "AckedFrame": ackeds,
    "ReleasedFrame": releaseds,
    "PromotedFrame": promoteds,
    "PingFrame": pings,
    "PongFrame": pongs,
    "DrainedFrame": draineds,
    "ReadyFrame": readies,
    "WithdrawnFrame": withdrawns,
    "DeliverLargeFrame": delivers_large,
    "RecallFrame": recalls,
    "MarkFrame": marks,
    "CheckpointFrame": checkpoints,
}
to_host = st.one_of(*TO_HOST.values())
to_client = st.one_of(*TO_CLIENT.values())


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes in pieces of any size, also empty ones."""
    points = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *points], [*points, len(data)], strict=True)]


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[Sample]) -> bytes:
    """Real frames with some bytes changed, removed, repeated or put in."""
    data = bytearray(b"".join(s.data for s in draw(st.lists(source, min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        what = draw(st.sampled_from(("flip", "cut", "repeat", "insert", "length")))
        if what == "flip" and data:
            data[at] ^= draw(st.integers(1, 255))
        elif what == "cut":
            del data[at : at + draw(st.integers(1, 12))]
        elif what == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 12))]
        elif what == "insert":
            data[at:at] = draw(st.binary(max_size=12))
        elif what == "length" and len(data) >= 4:
            data[:4] = draw(st.integers(0, U32)).to_bytes(4, "little")
    return bytes(data)


# ---- frames that are well formed and mean harm -----------------------------------------------------------------------

_OPS = (
    "hello",
    "open_producer",
    "open_consumer",
    "close_producer",
    "close_consumer",
    "release",
    "start",
    "stop",
    "open_browser",
    "browse",
    "close_browser",
    "txn_begin",
    "txn_stage",
    "txn_commit",
    "txn_prepare",
    "txn_decide",
    "txn_rollback",
    "txn_outcome",
    "txn_forget",
    "txn_recover",
    "x",
)
_NUMBERS = st.sampled_from((-1, 0, 1, 2, 3, 7, 1 << 31, 1 << 32, U64, float("inf"), float("nan"), 1.5, True))
_HANDLES = st.integers(0, 3)
_WORDS = (
    "orders",
    "nowhere",
    "credit",
    "prefetch",
    "queue",
    "topic",
    "a = 1",
    "a = ",
    "",
    None,
    bytes(16),
    b"",
    [[1, (1 << 40) + 3, [[1, 2]]]],
    {"name": "s", "durable": True, "shared": False},
    {"name": 1},
)
_VALUES = st.one_of(_NUMBERS, st.sampled_from(_WORDS), plain)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(
        (
            "handle",
            "name",
            "type",
            "producer",
            "flow",
            "limit",
            "no_ack",
            "no_local",
            "selector",
            "subscription",
            "lease_ms",
            "epoch",
            "credit",
            "started",
            "flow_count",
            "connection",
            "consumed",
            "delay_ms",
            "max",
            "txn",
            "key",
            "acks",
            "commit",
            "coordinator",
            "generation",
            "drain",
            "owner",
            "home",
            "consumer",
        )
    ),
    _VALUES,
    max_size=8,
)
_EPOCH = (1 << 40) + 3
"""The consumer that is opened first in a rig."""
_EPOCHS = st.sampled_from((0, 1, _EPOCH - 1, _EPOCH, _EPOCH + 1, U64))
_TAGS = st.sampled_from((0, 1, 2, 3, 4, 1 << 40, U64))
_RANGES = st.lists(st.tuples(_TAGS, _TAGS).map(lambda r: (min(r), max(r))), max_size=4)
_SEQS = st.sampled_from((0, 1, 2, 4, 1000, 1 << 63, U64 - 4))


def _block(producer: int, first: int, bodies: list[bytes], persistent: bool, expires: int, deliver_at: int) -> bytes:
    return encode_block(
        bodies,
        producer=producer,
        first_seq=first,
        timestamp_ms=0,
        persistent=persistent,
        kinds=0,
        priorities=bytes(i % 10 for i in range(len(bodies))),
        expires=array("Q", [expires] * len(bodies)),
        deliver_at=array("Q", [deliver_at] * len(bodies)),
        headers=[b"\x81\xa1d\xa1x"] * len(bodies),
    )


_TIMES = st.sampled_from((0, 0, 1, 1 << 41, U64))
_blocks = st.builds(
    _block,
    st.sampled_from((7, 8)),
    _SEQS,
    st.lists(st.binary(max_size=5), min_size=1, max_size=4),
    st.booleans(),
    _TIMES,
    _TIMES,
)
_TXNS = st.sampled_from((1, 2, U32))
hostile = st.one_of(
    st.builds(wire.call, st.sampled_from((0, 1, U32)), st.sampled_from(_OPS), _ARGUMENTS),
    st.builds(lambda *f: _joined(wire.send(*f)), _HANDLES, _SEQS, _blocks),
    st.builds(lambda *f: _joined(wire.send_tx(*f)), _HANDLES, _SEQS, _TXNS, _blocks),
    st.builds(wire.ack, _HANDLES, _EPOCHS, st.sampled_from((0, 1, U32)), _RANGES),
    st.builds(
        wire.settle,
        _HANDLES,
        _EPOCHS,
        st.sampled_from((0, 1, U32)),
        st.sampled_from(sorted(wire.OUTCOMES)),
        st.sampled_from((-1, 0, 1, wire.DELAY_MS_MAX)),
        st.sampled_from(("", "no")),
        _RANGES,
    ),
    st.builds(wire.begun, _HANDLES, _EPOCHS, _TAGS),
    st.builds(wire.taken, _HANDLES, _EPOCHS, _TAGS),
    st.builds(wire.extend, _HANDLES, _EPOCHS, _RANGES),
    st.builds(wire.credit, _HANDLES, _EPOCHS, st.sampled_from((I32_MIN, -1, 0, 1, 2, I32_MAX))),
    st.builds(wire.drain, _HANDLES, _EPOCHS, st.sampled_from((0, 1, 2, I32_MAX, U32))),
    st.builds(wire.flow, st.booleans()),
    st.builds(wire.ping, u64),
)
