"""The message block: what a producer packs, a store keeps and a consumer opens, byte for byte the same.

Why blocks: what a message costs is paid once for hundreds of them.  Attributes that a producer's messages share stand
once in a fixed head; lengths, kinds and whatever differs from message to message are columns; bodies are opaque and
are never encoded again on the way through.  Headers (properties, correlation id, …) are a column of their own, so that
they can be read without touching bodies.

    head            40 bytes, see ``columns.HEAD``
    body lengths    count × u32
    body kinds      count × u8, only with flag KINDS; otherwise the head's ``kind`` holds for all
    priorities      count × u8, only with flag PRIORITIES; otherwise the head's ``priority`` holds for all
    expiries        count × u64, only with flag EXPIRES: milliseconds since 1970, 0 never; otherwise none expires
    delivery times  count × u64, only with flag DELIVER_AT: milliseconds since 1970, 0 at once; otherwise all at once
    numbers         count × u32, only with flag SEQS: how far each message's sequence number lies past ``first_seq``,
                    ascending from 0; otherwise they follow each other
    header lengths  count × u32, only with flag HEADERS
    headers         only with flag HEADERS
    bodies

All integers are little-endian.  What a kind or a header means is decided by whoever encodes content; here both are
opaque.  A set of messages of one block is an int used as a bit mask: bit i is message i.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, compress, pairwise
from operator import itemgetter, sub
from typing import Final

from raybroker.model.blocks.columns import (
    DELIVER_AT,
    EXPIRES,
    FLAGS_KNOWN,
    HEAD,
    HEADERS,
    ITEMS_PER_SLICE,
    KINDS,
    LAYOUTS,
    PERSISTENT,
    PRIORITIES,
    RUNS,
    SEQ_MAX,
    SEQS,
    VERSION,
    WIDTHS,
    encode_lone_prefix,
    encode_prefix,
    little,
    native,
    selectors,
)
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ProtocolError

BLOCK_MESSAGES_MAX: Final = 1024
"""Messages in one block: past a few hundred the shared cost is already small change."""
BLOCK_BYTES_TARGET: Final = 524288
"""A producer closes a block that has reached this many bytes; one larger message still travels alone."""
BLOCK_BYTES_MAX: Final = 80 << 20
"""Largest encoded block that travels whole: the largest message (70 MiB by default) with head and headers."""
LONE_BYTES_MAX: Final = (2 << 30) + (1 << 20)
"""Largest block of one message, whose body travels in pieces or by reference: REFERENCE_BYTES_MAX with the rest."""
PRIORITY_MAX: Final = 9
HEAD_BYTES: Final = HEAD.size

MOSTLY_ALONE: Final = 2
"""Messages that are picked lie in more runs than this part of their number: then each is taken by itself."""

_NUMBERS: Final = tuple(range(BLOCK_MESSAGES_MAX))
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")


class Block:
    """A read-only view of an encoded block; columns are decoded when first asked for.

    ``view`` is the whole encoding, of ``nbytes`` bytes, and ``front`` what has everything but bodies, at least.
    ``count`` messages of producer ``producer`` have the sequence numbers
    ``first_seq … first_seq + count - 1`` unless the block has ``gaps`` (see :meth:`seq_of`); ``timestamp_ms`` is when
    the block was opened.
    """

    __slots__ = (
        "_body_offset",
        "_flags",
        "_head_offsets",
        "_lengths",
        "_offsets",
        "bodies_bytes",
        "count",
        "first_seq",
        "front",
        "gaps",
        "headers_bytes",
        "kind",
        "nbytes",
        "persistent",
        "plain",
        "priority",
        "producer",
        "timestamp_ms",
        "uniform",
    )

    def __init__(self, data: Buffer, elsewhere_bytes: int = 0) -> None:
        """Check the head and the sizes of all columns; raises ProtocolError for anything that does not add up.

        ``elsewhere_bytes``: so much of the encoding is not in ``data``, see :mod:`raybroker.model.blocks.large_block`.
        """
        view = memoryview(data)
        if view.nbytes < HEAD_BYTES:
            raise ProtocolError(f"a block of {view.nbytes} bytes is shorter than its head of {HEAD_BYTES} bytes")
        head: tuple[int, ...] = HEAD.unpack_from(view)
        (
            version,
            flags,
            self.kind,
            self.priority,
            self.count,
            self.producer,
            self.first_seq,
            self.timestamp_ms,
            self.headers_bytes,
            self.bodies_bytes,
        ) = head
        if version != VERSION or flags > FLAGS_KNOWN:
            raise ProtocolError(f"a block of version {version} with flags {flags:#x} is not understood")
        if not 1 <= self.count <= BLOCK_MESSAGES_MAX:
            raise ProtocolError(f"a block of {self.count} messages; allowed are 1 to {BLOCK_MESSAGES_MAX}")
        self._flags = flags
        self.gaps = flags & SEQS != 0
        """The messages' sequence numbers need not follow each other: they were picked out of a larger block."""
        self.uniform = not flags & KINDS
        """All messages have the kind ``kind``."""
        self.persistent = flags & PERSISTENT != 0
        self.plain = self.priority == 4 and not flags & (PRIORITIES | EXPIRES | DELIVER_AT)
        """All messages have the usual priority, none expires and none is delivered later."""
        if self.first_seq + self.count > SEQ_MAX:
            raise ProtocolError(f"{self.count} messages from sequence number {self.first_seq} on run past 64 bits")
        if self.headers_bytes and not flags & HEADERS:
            raise ProtocolError("a block without a header column declares header bytes")
        self._body_offset = HEAD_BYTES + self.count * WIDTHS[flags] + self.headers_bytes
        nbytes = self.nbytes = view.nbytes + elsewhere_bytes
        if nbytes != self._body_offset + self.bodies_bytes or (
            nbytes > BLOCK_BYTES_MAX and (self.count > 1 or nbytes > LONE_BYTES_MAX)
        ):
            raise ProtocolError(
                f"a block of {nbytes} bytes declares {self._body_offset + self.bodies_bytes} bytes"
                f" (at most {LONE_BYTES_MAX if self.count == 1 else BLOCK_BYTES_MAX})"
            )
        self.front = view
        self._lengths: tuple[int, ...] | None = None
        self._offsets: list[int] | None = None
        self._head_offsets: list[int] | None = None

    @property
    def view(self) -> memoryview:
        return self.front

    @property
    def lengths(self) -> tuple[int, ...]:
        """Body length of each message, bytes."""
        if self._lengths is None:
            lengths: tuple[int, ...]
            if self.count == 1:
                lengths = _U32.unpack_from(self.front, HEAD_BYTES)
            else:
                lengths = struct.unpack_from(f"<{self.count}I", self.front, HEAD_BYTES)
            if sum(lengths) != self.bodies_bytes:
                raise ProtocolError(f"body lengths of a block add up to {sum(lengths)}, not {self.bodies_bytes}")
            self._lengths = lengths
        return self._lengths

    def offsets(self) -> list[int]:
        """Start of each body in ``view``; one more entry at the end, so that ``[i], [i+1]`` bound body i."""
        if self._offsets is None:
            self._offsets = list(accumulate(self.lengths, initial=self._body_offset))
        return self._offsets

    def body(self, index: int) -> memoryview:
        offsets = self.offsets()
        return self.view[offsets[index] : offsets[index + 1]]

    def _column(self, flag: int) -> memoryview:
        """A column that is there, as it is encoded."""
        before, width, _ = LAYOUTS[self._flags][flag]
        start = HEAD_BYTES + before * self.count
        return self.front[start : start + width * self.count]

    def _place(self, flag: int, index: int) -> int:
        """Position of the value of a message in a column that is there."""
        before, width, _ = LAYOUTS[self._flags][flag]
        return HEAD_BYTES + before * self.count + width * index

    def kind_of(self, index: int) -> int:
        return self.front[self._place(KINDS, index)] if self._flags & KINDS else self.kind

    def kinds(self) -> bytes | None:
        """The column of kinds, or None when ``kind`` holds for all."""
        return self._bytes(KINDS)

    def priority_of(self, index: int) -> int:
        return self.front[self._place(PRIORITIES, index)] if self._flags & PRIORITIES else self.priority

    def priorities(self) -> bytes | None:
        """The column of priorities, or None when ``priority`` holds for all."""
        return self._bytes(PRIORITIES)

    def expires_of(self, index: int) -> int:
        """Expiration of a message, milliseconds since 1970; 0 never."""
        return self._u64(EXPIRES, index)

    def expires(self) -> array[int] | None:
        """Return :meth:`expires_of` of all messages, or None when none expires."""
        return self._u64s(EXPIRES)

    def deliver_at_of(self, index: int) -> int:
        """The earliest time a message may be delivered, milliseconds since 1970; 0 at once."""
        return self._u64(DELIVER_AT, index)

    def deliver_at(self) -> array[int] | None:
        """Return :meth:`deliver_at_of` of all messages, or None when none has to wait."""
        return self._u64s(DELIVER_AT)

    def _u64(self, flag: int, index: int) -> int:
        return int(_U64.unpack_from(self.front, self._place(flag, index))[0]) if self._flags & flag else 0

    def _u64s(self, flag: int) -> array[int] | None:
        return native(array("Q", bytes(self._column(flag)))) if self._flags & flag else None

    def _bytes(self, flag: int) -> bytes | None:
        return bytes(self._column(flag)) if self._flags & flag else None

    def seq_of(self, index: int) -> int:
        """The sequence number of a message."""
        if self._flags & SEQS:
            index = _U32.unpack_from(self.front, self._place(SEQS, index))[0]
        return self.first_seq + index

    def header_offsets(self) -> list[int] | None:
        """Start of each header in ``view``, as :meth:`offsets`; None without a header column."""
        if not self._flags & HEADERS:
            return None
        if self._head_offsets is None:
            at = self._place(HEADERS, 0)
            lengths = struct.unpack_from(f"<{self.count}I", self.front, at)
            if sum(lengths) != self.headers_bytes:
                raise ProtocolError(f"header lengths of a block add up to {sum(lengths)}, not {self.headers_bytes}")
            self._head_offsets = list(accumulate(lengths, initial=at + 4 * self.count))
        return self._head_offsets

    def header_lengths(self) -> list[int]:
        """Encoded header of each message, bytes; 0 for none."""
        offsets = self.header_offsets()
        return [0] * self.count if offsets is None else list(map(sub, offsets[1:], offsets))

    def header(self, index: int) -> memoryview | None:
        """The encoded header of a message, or None when it has none."""
        offsets = self.header_offsets()
        if offsets is None or offsets[index] == offsets[index + 1]:
            return None
        return self.front[offsets[index] : offsets[index + 1]]

    def check(self) -> None:
        """Decode every column; raises ProtocolError.  After this no accessor raises."""
        flags = self._flags
        if flags & HEADERS:
            self.header_offsets()
        if self._lengths is None:
            assert self.lengths
        priority = max(self.priorities() or (0,)) if flags & PRIORITIES else self.priority
        if priority > PRIORITY_MAX:
            raise ProtocolError(f"a message of priority {priority}; allowed are 0 to {PRIORITY_MAX}")
        if flags & SEQS:
            steps = struct.unpack_from(f"<{self.count}I", self.front, self._place(SEQS, 0))
            if steps[0] or any(a >= b for a, b in pairwise(steps)):
                raise ProtocolError("the sequence numbers of a block do not ascend from its first one")
            if self.first_seq + steps[-1] >= SEQ_MAX:
                raise ProtocolError(f"the sequence numbers of a block from {self.first_seq} on run past 64 bits")

    def part(self, start: int, end: int) -> tuple[Buffer, ...]:
        """The encoding of messages ``start … end - 1`` as a block of its own, as buffers to write one after another."""
        assert 0 <= start < end <= self.count
        if start == 0 and end == self.count:
            return (self.view,)
        view, count = self.view, self.count
        body_offsets = self.offsets()
        bodies = view[body_offsets[start] : body_offsets[end]]
        columns: dict[int, Buffer] = {}
        for flag, (before, width, _) in LAYOUTS[self._flags].items():
            at = HEAD_BYTES + before * count
            columns[flag] = view[at + width * start : at + width * end]
        head_offsets = self.header_offsets()
        headers = () if head_offsets is None else (view[head_offsets[start] : head_offsets[end]],)
        first_seq = self.first_seq + start
        if self._flags & SEQS:
            first_seq = self._rebase(columns)
        return (self._prefix(columns, headers, first_seq, bodies.nbytes), bodies)

    def pick(self, mask: int) -> tuple[Buffer, ...]:
        """The encoding of the messages whose bit is set, at least one, as buffers to write one after another.

        Messages that lie side by side are a :meth:`part`, whose bodies are not copied; others are gathered.
        """
        assert 0 < mask < 1 << self.count
        end = mask.bit_length()
        low = mask & -mask
        if mask + low == 1 << end:
            return self.part(low.bit_length() - 1, end)
        if (mask & ~(mask << 1)).bit_count() * MOSTLY_ALONE > mask.bit_count():
            return self._pick_each(list(compress(_NUMBERS, selectors(mask))))
        view, count = self.view, self.count
        chosen = selectors(mask)
        runs = [match.span() for match in RUNS(chosen)]
        in_slices = len(runs) * ITEMS_PER_SLICE < count
        columns: dict[int, Buffer] = {}
        for flag, (before, width, code) in LAYOUTS[self._flags].items():
            at = HEAD_BYTES + before * count
            if in_slices:
                columns[flag] = b"".join([view[at + width * a : at + width * b] for a, b in runs])
            else:
                columns[flag] = array(code, compress(view[at : at + width * count].cast(code), chosen)).tobytes()
        if not self._flags & SEQS:
            columns[SEQS] = little(array("I", [i for a, b in runs for i in range(a, b)]))
        first_seq = self._rebase(columns)
        head_offsets = self.header_offsets()
        headers = [] if head_offsets is None else [view[head_offsets[a] : head_offsets[b]] for a, b in runs]
        offsets = self.offsets()
        bodies = b"".join([view[offsets[a] : offsets[b]] for a, b in runs])
        return (self._prefix(columns, headers, first_seq, len(bodies)), bodies)

    def _pick_each(self, rows: list[int]) -> tuple[Buffer, ...]:
        """:meth:`pick` of at least two messages of which most lie alone: what it costs depends on them, not on the
        block."""
        chosen = itemgetter(*rows)
        columns: dict[int, Buffer] = {0: little(array("I", chosen(self.lengths)))}
        for flag, (_, _, code) in LAYOUTS[self._flags].items():
            if flag:
                columns[flag] = array(code, chosen(self._column(flag).cast(code))).tobytes()
        if self._flags & SEQS:
            first_seq = self._rebase(columns)
        else:
            first_seq = self.first_seq + rows[0]
            columns[SEQS] = little(array("I", [row - rows[0] for row in rows]))
        heads = self.header_offsets()
        headers: Sequence[Buffer] = () if heads is None else (b"".join(self._bounded_by(heads, chosen)),)
        bodies = b"".join(self._bounded_by(self.offsets(), chosen))
        return (self._prefix(columns, headers, first_seq, len(bodies)), bodies)

    def _bounded_by(self, offsets: list[int], chosen: Callable[[list[int]], tuple[int, ...]]) -> Iterator[memoryview]:
        """Some of the pieces that ``offsets`` bound."""
        return map(self.front.__getitem__, map(slice, chosen(offsets), chosen(offsets[1:])))

    def with_overrides(
        self,
        *,
        now_ms: int,
        priority: int | None = None,
        persistent: bool | None = None,
        ttl_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> Block:
        """Return the same messages with what a destination says instead of their producer.

        Times are relative to ``now_ms``, milliseconds; ``ttl_ms`` 0: none expires, ``delay_ms`` 0: none waits.
        """
        columns = self._columns()
        if priority is not None:
            columns.pop(PRIORITIES, None)
        for flag, span_ms in ((EXPIRES, ttl_ms), (DELIVER_AT, delay_ms)):
            if span_ms:
                columns[flag] = _U64.pack(now_ms + span_ms) * self.count
            elif span_ms is not None:
                columns.pop(flag, None)
        return self._changed(columns, self._headers(), priority, persistent)

    def with_headers(self, headers: Sequence[Buffer]) -> Block:
        """Return the same messages with other encoded headers, one for each."""
        assert len(headers) == self.count
        columns = self._columns()
        columns.pop(HEADERS, None)
        if any(headers):
            columns[HEADERS] = little(array("I", map(len, headers)))
        return self._changed(columns, headers)

    def _columns(self) -> dict[int, Buffer]:
        return {flag: self._column(flag) for flag in LAYOUTS[self._flags]}

    def _headers(self) -> tuple[memoryview, ...]:
        offsets = self.header_offsets()
        return () if offsets is None else (self.front[offsets[0] : offsets[-1]],)

    def _changed(
        self,
        columns: dict[int, Buffer],
        headers: Sequence[Buffer],
        priority: int | None = None,
        persistent: bool | None = None,
    ) -> Block:
        prefix = self._prefix(columns, headers, self.first_seq, self.bodies_bytes, priority, persistent)
        return Block(b"".join((prefix, self.view[self._body_offset :])))

    def _rebase(self, columns: dict[int, Buffer]) -> int:
        """Count the numbers of ``columns`` from the first message on, whose number is returned."""
        steps = native(array("I", bytes(columns[SEQS])))
        first = steps[0]
        if steps[-1] - first == len(steps) - 1:
            del columns[SEQS]
        elif first:
            columns[SEQS] = little(array("I", [step - first for step in steps]))
        return self.first_seq + first

    def _prefix(
        self,
        columns: dict[int, Buffer],
        headers: Sequence[Buffer],
        first_seq: int,
        bodies_bytes: int,
        priority: int | None = None,
        persistent: bool | None = None,
    ) -> bytes:
        """Everything that stands before the bodies; what is not given is as in this block."""
        keeps = self.persistent if persistent is None else persistent
        return encode_prefix(
            columns,
            headers,
            keeps,
            self.kind,
            self.priority if priority is None else priority,
            self.producer,
            first_seq,
            self.timestamp_ms,
            bodies_bytes,
        )


def count_of(head: Buffer) -> int:
    """The number of messages in the block whose encoding starts with ``head``."""
    return int(HEAD.unpack_from(head)[4])


def headers_bytes_of(head: Buffer) -> int:
    """Bytes of all headers in the block whose encoding starts with ``head``."""
    return int(HEAD.unpack_from(head)[8])


def encode_block(
    bodies: Sequence[Buffer],
    *,
    producer: int,
    first_seq: int,
    timestamp_ms: int,
    persistent: bool,
    kinds: int | bytes,
    headers: Sequence[bytes] | None = None,
    priority: int = 4,
    priorities: bytes | None = None,
    expires: array[int] | None = None,
    deliver_at: array[int] | None = None,
    front: bool = False,
) -> bytes:
    """Encode 1 to BLOCK_MESSAGES_MAX messages. ``kinds`` is one kind for all, or one byte for each message.

    Columns that say for every message what holds anyway are left out; ``expires`` and ``deliver_at`` are of type "Q".
    ``front``: only what stands before the bodies.
    """
    count = len(bodies)
    assert 1 <= count <= BLOCK_MESSAGES_MAX
    if count == 1 and type(kinds) is int and not (headers or priorities or expires or deliver_at):
        prefix = encode_lone_prefix(len(bodies[0]), persistent, kinds, priority, producer, first_seq, timestamp_ms)
        return prefix if front else b"".join((prefix, bodies[0]))
    lengths = array("I", map(len, bodies))
    columns: dict[int, Buffer] = {0: little(lengths)}
    kind = kinds if isinstance(kinds, int) else 0
    if not isinstance(kinds, int):
        assert len(kinds) == count
        columns[KINDS] = kinds
    if priorities is not None:
        assert len(priorities) == count
        priority = priorities[0]
        if priorities.count(priority) < count:
            columns[PRIORITIES] = priorities
    for flag, times in ((EXPIRES, expires), (DELIVER_AT, deliver_at)):
        if times is not None:
            assert len(times) == count
            if any(times):
                columns[flag] = little(times)
    if headers is not None:
        assert len(headers) == count
        columns[HEADERS] = little(array("I", map(len, headers)))
    prefix = encode_prefix(
        columns, headers or (), persistent, kind, priority, producer, first_seq, timestamp_ms, sum(lengths)
    )
    return prefix if front else b"".join((prefix, *bodies))
