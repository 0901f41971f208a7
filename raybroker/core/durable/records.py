"""Journal records of the core: how it writes down what it decided, and reads it again after a restart.

Records are small and come in great numbers, so they are packed; a snapshot is rare and holds the whole state of a
destination but for message bodies.  Both ends stand side by side, so that they do not drift
apart.

    block meta   what the block's messages share, then its columns, the transaction it waits for, and who it is owed to
    ACKED        delivery queue; spans of blocks that the delivery queue is done with, then masks of others; LEFT behind
                 them when no consumer has had them
    REFUSED      masks of a stored block that were never accepted
    DISPATCHED   delivery queue; spans of blocks handed out whole for the n-th time, then masks of others
    FAILED       delivery queue; masks that failed n times and wait until a time; behind them, where causes are counted
                 apart, the upper half of each count
    QUEUE        delivery queue; a subscription, encoded (topics)
    QUEUE_GONE    delivery queue
    STAGED       delivery queue; masks whose acknowledgement waits for a transaction, whose number follows
    DEDUP        deduplication ids with when they were taken, by the wall clock
    LIVE         delivery queue; spans of blocks that the delivery queue has something of (in snapshots, as the next
    two) OWED         delivery queue; what a topic's delivery queue is owed of blocks
    WAITING      spans of blocks that wait for a transaction, whose number follows; 0: they are not written yet
    TAKEN        spans of sequence numbers of a producer, whose number follows, that were taken and are in no block
    BURIED       masks whose death was told for all subscriptions of a topic
    COUNTED      lasting totals of the destination (in snapshots, and when they are set to zero)
    CHECKPOINT   delivery queue; the mask of one message, and behind it what its consumer said of how far it is
    VERSION      delivery queue; the published version of a queue with bounded staleness
    ATTRIBUTES   the destination's attributes, encoded by the engine
    GONE         the destination was destroyed

A row's messages are a mask behind its fixed part.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from raybroker.core.blocks import message_mask as pk
from raybroker.core.counters import LASTING
from raybroker.model.blocks.block import BLOCK_MESSAGES_MAX, PRIORITY_MAX

ACKED: Final = 1
REFUSED: Final = 2
DISPATCHED: Final = 3
ATTRIBUTES: Final = 4
GONE: Final = 5
FAILED: Final = 6
QUEUE: Final = 7
QUEUE_GONE: Final = 8
STAGED: Final = 9
DEDUP: Final = 10
LIVE: Final = 11
OWED: Final = 12
WAITING: Final = 13
BURIED: Final = 14
TAKEN: Final = 15
COUNTED: Final = 16
CHECKPOINT: Final = 17
VERSION: Final = 18

LEFT: Final = b"-"
"""Behind an ACKED record: what it settles left the destination otherwise than to a consumer, and is not counted out."""

SENT, MOVED, COMPOSED = range(3)
"""How a block came: from a producer, from another destination, or from parts that were counted when they came."""

REJECTED: Final = 0x7FFF_FFFF
"""As a number of failures: the consumer wants it never again."""

_HEAD: Final = struct.Struct("<BIII")
_SPAN: Final = struct.Struct("<QQI")
_PICK: Final = struct.Struct("<QIQ")
_BLOCK: Final = struct.Struct("<BBIQQ")
_PLAIN_BLOCK: Final = struct.Struct("<BBIQQI")
"""_BLOCK and one size."""
_ALONE: Final = struct.Struct("<BBIQQI")
"""A block meta with one size for all its messages, and nothing else."""
_NUMBER: Final = struct.Struct("<Q")
_CLAIM: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<H")
_DEDUP: Final = struct.Struct("<QH")
_COUNTS: Final = struct.Struct("<QBBI")
_COUNT: Final = struct.Struct("<BQ")
_CAME_SHIFT: Final = 6
"""Of the byte of a block's priority: the bits above say how it came."""
_PRIORITY_MASK: Final = (1 << _CAME_SHIFT) - 1
_PRIORITY_OF: Final = bytes([byte & _PRIORITY_MASK for byte in range(256)])
_UNIFORM_SIZES, _PRIORITIES, _EXPIRES, _DELIVER_AT, _TXN, _CLAIMS, _UNITS, _WORKS = (1 << i for i in range(8))

_VALUE_BITS: Final = 32
"""Of the value of a row; a count of failures may have more, see FAILED."""
_VALUE_MAX: Final = (1 << _VALUE_BITS) - 1

ROWS_MAX: Final = 4_096
"""Rows of one record: with the longest row it stays below a store's limit for records."""
UNITS_KEPT: Final = 8_192
"""Units of order whose encoded names are remembered."""

_A = TypeVar("_A")
_B = TypeVar("_B")


class PartKey(NamedTuple):
    """What a message is in a unit of work: its number there, from 1 on, and whether it is the last."""

    unit: str
    number: int
    end: bool


class PartColumn(NamedTuple):
    """The parts of units of work among the messages of a block, which came at ``at_ms``: a measured time, but in a
    record, where all times are those of the wall clock."""

    at_ms: int
    keys: tuple[PartKey | None, ...]

    def later(self, by_ms: int) -> PartColumn:
        """Return the column as of another clock, which is ahead by so much."""
        return self._replace(at_ms=self.at_ms + by_ms)


Sizes = int | array  # type: ignore[type-arg]  # array has no argument at run time
"""Body sizes of a block: one for all, or one for each message."""


class Span(NamedTuple):
    """Whole blocks first … last; ``value`` is a count of attempts where the record has one, else 0."""

    first: int
    last: int
    value: int = 0


class RecordRow(NamedTuple):
    """Messages ``mask`` of block ``ordinal``; ``value`` counts attempts or failures, ``until_ms`` is a time of
    the wall clock or 0."""

    ordinal: int
    mask: int
    value: int = 0
    until_ms: int = 0


class JournalRecord(NamedTuple):
    """A decoded record. ``rest``: the number of the transaction in STAGED, else what the kind says."""

    kind: int
    queue: int
    spans: list[Span]
    rows: list[RecordRow]
    rest: bytes = b""


class Counts(NamedTuple):
    """Lasting totals by name; ``base``: as they were when they were set to zero, at ``since_ms``; ``waiting``: prepared
    transactions, whose messages are not among them."""

    since_ms: int
    totals: dict[str, int]
    base: dict[str, int]
    waiting: tuple[int, ...] = ()


class BlockMeta(NamedTuple):
    """``txn``: not to be delivered before this transaction commits; ``claims``: delivery queue → masks, None for all
    of it; ``came``: SENT, MOVED or COMPOSED."""

    messages: int
    producer: int
    first_seq: int
    sizes: Sizes
    priority: int = 4
    priorities: bytes | None = None
    expires: array[int] | None = None
    deliver_at: array[int] | None = None
    txn: int = 0
    claims: dict[int, int | None] | None = None
    units: tuple[str | None, ...] | None = None
    works: PartColumn | None = None
    came: int = SENT


def pack_sizes(sizes: Sequence[int]) -> Sizes:
    """The smallest form of a column of sizes."""
    first = sizes[0]
    if sizes.count(first) == len(sizes):
        return first
    return array("I", sizes)


def encode_block_meta(meta: BlockMeta) -> bytes:
    (count, producer, first_seq, sizes, priority, priorities, expires, deliver_at, txn, claims, units, works, came) = (
        meta
    )
    flags = 0
    out = [b""]
    if isinstance(sizes, int):
        flags = _UNIFORM_SIZES
        out.append(sizes.to_bytes(4, "little"))
    else:
        out.append(sizes.tobytes())
    if priorities is not None:
        flags |= _PRIORITIES
        out.append(priorities)
    for flag, column in ((_EXPIRES, expires), (_DELIVER_AT, deliver_at)):
        if column is not None:
            flags |= flag
            uniform = column.count(column[0]) == count
            out.append(bytes((uniform,)) + (column[:1] if uniform else column).tobytes())
    if txn:
        flags |= _TXN
        out.append(_NUMBER.pack(txn))
    if claims is not None:
        flags |= _CLAIMS
        out.append(_CLAIM.pack(len(claims)))
        out.extend(_CLAIM.pack(queue) + pk.pack(mask or 0) for queue, mask in claims.items())
    if works is not None:
        flags |= _WORKS
        data = json.dumps(works, separators=(",", ":")).encode()
        out.append(_CLAIM.pack(len(data)) + data)
    if units is not None:
        flags |= _UNITS
        out.append(_encode_units(units))
    out[0] = _BLOCK.pack(flags, priority | came << _CAME_SHIFT, count, producer, first_seq)
    return b"".join(out)


def encode_plain_meta(count: int, producer: int, first_seq: int, size: int) -> bytes:
    """What :func:`encode_block_meta` writes of a block with nothing but a size that all its messages have."""
    return _PLAIN_BLOCK.pack(_UNIFORM_SIZES, 4, count, producer, first_seq, size)


def decode_block_meta(meta: bytes) -> BlockMeta:
    """Reads what :func:`encode_block_meta` wrote; raises struct.error or ValueError for other bytes."""
    flags, priority, count, producer, first_seq = _BLOCK.unpack_from(meta)
    came, priority = priority >> _CAME_SHIFT, priority & _PRIORITY_MASK
    at = _BLOCK.size
    sizes: Sizes
    if flags & _UNIFORM_SIZES:
        sizes = int.from_bytes(meta[at : at + 4], "little")
        at += 4
    else:
        sizes = array("I", meta[at : at + 4 * count])
        at += 4 * count
    priorities = None
    if flags & _PRIORITIES:
        priorities = meta[at : at + count]
        at += count
    times: list[array[int] | None] = [None, None]
    for index, flag in enumerate((_EXPIRES, _DELIVER_AT)):
        if flags & flag:
            uniform = meta[at]
            size = 8 * (1 if uniform else count)
            column = array("Q", meta[at + 1 : at + 1 + size])
            times[index] = column * count if uniform else column
            at += 1 + size
    txn = 0
    if flags & _TXN:
        (txn,) = _NUMBER.unpack_from(meta, at)
        at += _NUMBER.size
    claims: dict[int, int | None] | None = None
    if flags & _CLAIMS:
        claims = {}
        (queues,) = _CLAIM.unpack_from(meta, at)
        at += _CLAIM.size
        for _ in range(queues):
            (queue,) = _CLAIM.unpack_from(meta, at)
            mask, at = pk.unpack(meta, at + _CLAIM.size)
            claims[queue] = mask or None
    works = None
    if flags & _WORKS:
        (size,) = _CLAIM.unpack_from(meta, at)
        at += _CLAIM.size
        works = _decode_works(meta[at : at + size])
        at += size
    units = _decode_units(meta, at, count) if flags & _UNITS else None
    return BlockMeta(
        count, producer, first_seq, sizes, priority, priorities, times[0], times[1], txn, claims, units, works, came
    )


def decode_alone(metas: bytes, count: int) -> tuple[array[int], bytes, bytes] | None:
    """Sizes, priorities and how they came of ``count`` block metas, one behind the other; None unless every block is
    one message of which nothing else is to be said but who sent it. How they came is b"" when all were sent."""
    if len(metas) != count * _ALONE.size:
        return None
    heads = [metas[at :: _ALONE.size] for at in range(6)]
    if any(heads[at].count(byte) != count for at, byte in ((0, _UNIFORM_SIZES), (2, 1), (3, 0), (4, 0), (5, 0))):
        return None
    priorities, came = heads[1], b""
    if max(priorities) > PRIORITY_MAX:
        came = bytes([byte >> _CAME_SHIFT for byte in priorities])
        priorities = priorities.translate(_PRIORITY_OF)
        if max(priorities) > PRIORITY_MAX:
            return None
    raw = bytearray(4 * count)
    for at in range(4):
        raw[at::4] = metas[_BLOCK.size + at :: _ALONE.size]
    sizes = array("I", bytes(raw))
    if sys.byteorder == "big":
        sizes.byteswap()
    return sizes, priorities, came


def senders_of(metas: bytes) -> Iterator[tuple[int, int]]:
    """(producer, sequence number) of each message, of metas that :func:`decode_alone` reads."""
    for _, _, _, producer, seq, _ in _ALONE.iter_unpack(metas):
        yield producer, seq


def _decode_works(data: bytes) -> PartColumn:
    at_ms, keys = json.loads(data)
    return PartColumn(at_ms, tuple([None if key is None else PartKey(*key) for key in keys]))


def _encode_units(units: tuple[str | None, ...]) -> bytes:
    """The different names, then for each message which it is: 0 for none."""
    names: dict[Any, None] = dict.fromkeys(units)
    names.pop(None, None)
    different = len(names)
    try:
        table = b"".join(map(_encoded.__getitem__, names))
    except KeyError:
        table = b"".join(map(_encode_unit, names))
    if different == len(units) > 255:
        return _LENGTH.pack(different) + table + _IN_TURN[: 2 * different]
    numbers: dict[str | None, int] = {None: 0, **dict(zip(names, range(1, different + 1), strict=True))}
    column = map(numbers.__getitem__, units)
    return _LENGTH.pack(different) + table + (bytes(column) if different < 256 else array("H", column).tobytes())


_encoded: Final[dict[str, bytes]] = {}
"""Units whose names were encoded lately."""
_IN_TURN: Final = array("H", range(1, BLOCK_MESSAGES_MAX + 1)).tobytes()
"""The column of a block in which every message has another unit."""


def _encode_unit(name: str) -> bytes:
    data = name.encode("utf-8", "surrogatepass")
    if len(_encoded) >= UNITS_KEPT:
        _encoded.clear()
    found = _encoded[name] = _LENGTH.pack(len(data)) + data
    return found


def _decode_units(data: bytes, at: int, count: int) -> tuple[str | None, ...]:
    (different,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    names: list[str | None] = [None]
    for _ in range(different):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        names.append(data[at : at + size].decode("utf-8", "surrogatepass"))
        at += size
    column = data[at : at + count] if different < 256 else array("H", data[at : at + 2 * count])
    if len(column) != count:
        raise ValueError("the units of a block are cut off")
    return tuple([names[number] for number in column])


def in_records(first: Sequence[_A], second: Sequence[_B]) -> Iterator[tuple[Sequence[_A], Sequence[_B]]]:
    """Cut two columns of rows into as many records as they need; none for no rows."""
    for at in range(0, max(len(first), len(second)), ROWS_MAX):
        yield first[at : at + ROWS_MAX], second[at : at + ROWS_MAX]


def encode(
    kind: int, queue: int, spans: Sequence[Span] = (), rows: Sequence[RecordRow] = (), rest: bytes = b""
) -> bytes:
    """One record."""
    if kind == FAILED and any(row.value > _VALUE_MAX for row in rows):
        rest = struct.pack(f"<{len(rows)}Q", *[row.value >> _VALUE_BITS for row in rows])
        rows = [row._replace(value=row.value & _VALUE_MAX) for row in rows]
    out = [_HEAD.pack(kind, queue, len(spans), len(rows))]
    if spans:
        out.extend([_SPAN.pack(*s) for s in spans])
    if rows:
        out.extend([_PICK.pack(ordinal, value, until) + pk.pack(mask) for ordinal, mask, value, until in rows])
    out.append(rest)
    return b"".join(out)


def decode(record: bytes) -> JournalRecord:
    """Reads what :func:`encode` wrote; raises struct.error for other bytes."""
    kind, queue, span_count, row_count = _HEAD.unpack_from(record)
    at = _HEAD.size
    spans = []
    for _ in range(span_count):
        spans.append(Span(*_SPAN.unpack_from(record, at)))
        at += _SPAN.size
    rows = []
    for _ in range(row_count):
        ordinal, value, until_ms = _PICK.unpack_from(record, at)
        mask, at = pk.unpack(record, at + _PICK.size)
        rows.append(RecordRow(ordinal, mask, value, until_ms))
    rest = record[at:]
    if kind == FAILED and rest:
        rows = [
            row._replace(value=row.value | upper << _VALUE_BITS)
            for row, upper in zip(rows, struct.unpack(f"<{len(rows)}Q", rest), strict=True)
        ]
        rest = b""
    return JournalRecord(kind, queue, spans, rows, rest)


def encode_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def decode_number(data: bytes) -> int:
    (number,) = _NUMBER.unpack(data)
    return int(number)


def encode_dedup(ids: Sequence[tuple[str, int]]) -> bytes:
    """(id, when it was taken in milliseconds) as the rest of a record."""
    texts = [(text.encode(), at_ms) for text, at_ms in ids]
    return b"".join(_DEDUP.pack(at_ms, len(text)) + text for text, at_ms in texts)


def dedup_records(ids: Sequence[tuple[str, int]]) -> Iterator[bytes]:
    """DEDUP records."""
    for some, _ in in_records(ids, ()):
        yield encode(DEDUP, 0, (), (), encode_dedup(some))


def decode_dedup(data: bytes) -> list[tuple[str, int]]:
    found, at = [], 0
    while at < len(data):
        at_ms, size = _DEDUP.unpack_from(data, at)
        at += _DEDUP.size
        found.append((data[at : at + size].decode(), at_ms))
        at += size
    return found


def encode_counts(counts: Counts) -> bytes:
    """A COUNTED record."""
    totals, base = (
        [(LASTING.index(name), n) for name, n in rows.items() if n] for rows in (counts.totals, counts.base)
    )
    rest = _COUNTS.pack(counts.since_ms, len(totals), len(base), len(counts.waiting))
    rest += b"".join([_COUNT.pack(*row) for row in (*totals, *base)]) + b"".join(map(_NUMBER.pack, counts.waiting))
    return encode(COUNTED, 0, (), (), rest)


def decode_counts(rest: bytes) -> Counts:
    """Read the rest of a COUNTED record; a total that this release does not know is passed over."""
    since_ms, totals, base, waiting = _COUNTS.unpack_from(rest)
    at, end = _COUNTS.size, _COUNTS.size + (totals + base) * _COUNT.size
    rows = [(LASTING[place], n) if place < len(LASTING) else ("", n) for place, n in _COUNT.iter_unpack(rest[at:end])]
    numbers = tuple([number for (number,) in _NUMBER.iter_unpack(rest[end : end + waiting * _NUMBER.size])])
    named = [{name: n for name, n in some if name} for some in (rows[:totals], rows[totals:])]
    return Counts(since_ms, named[0], named[1], numbers)


def kind_of(record: bytes) -> int:
    return record[0]
