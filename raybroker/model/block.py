"""The message block: what a producer packs, a store keeps and a consumer opens, byte for byte the same.

Why blocks: what a message costs is paid once for hundreds of them.  Attributes that a producer's messages share stand
once in a fixed head; lengths and kinds are columns; bodies are opaque and are never encoded again on the way through.
Headers (properties, correlation id, …) are a column of their own, so that they can be read without touching bodies.

    head            36 bytes, see ``_HEAD``
    body lengths    count × u32
    body kinds      count × u8, only with flag KINDS; otherwise the head's ``kind`` holds for all
    header lengths  count × u32, only with flag HEADERS
    headers         only with flag HEADERS
    bodies

All integers are little-endian.  What a kind or a header means is decided by whoever encodes content; here both are
opaque.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from raybroker.model.errors import ProtocolError
from raybroker.model.record import Buffer

BLOCK_MESSAGES_MAX: Final = 1024
"""Messages in one block: past a few hundred the shared cost is already small change."""
BLOCK_BYTES_TARGET: Final = 524288
"""A producer closes a block that has reached this many bytes; one larger message still travels alone."""
BLOCK_BYTES_MAX: Final = 80 << 20
"""Largest encoded block: the largest message (70 MiB by default, B-10) with head and headers."""

_VERSION: Final = 1
_SEQ_MAX: Final = (1 << 64) - 1
_HEAD: Final = struct.Struct("<BBBBIQQQII")
HEAD_BYTES: Final = _HEAD.size
_PERSISTENT: Final = 1
_HEADERS: Final = 2
_KINDS: Final = 4
_FLAGS_KNOWN: Final = _PERSISTENT | _HEADERS | _KINDS


class Block:
    """A read-only view of an encoded block; columns are decoded when first asked for.

    ``view`` is the whole encoding. ``count`` messages of producer ``producer`` have the sequence numbers
    ``first_seq … first_seq + count - 1``; ``timestamp_ms`` is when the block was opened.
    """

    __slots__ = (
        "_body_offset", "_flags", "_head_offsets", "_lengths", "_offsets", "bodies_bytes", "count", "first_seq",
        "headers_bytes", "kind", "priority", "producer", "timestamp_ms", "uniform", "view",
    )  # fmt: skip

    def __init__(self, data: Buffer) -> None:
        """Check the head and the sizes of all columns; raises ProtocolError for anything that does not add up."""
        view = memoryview(data)
        if view.nbytes < HEAD_BYTES:
            raise ProtocolError(f"a block of {view.nbytes} bytes is shorter than its head of {HEAD_BYTES} bytes")
        (version, self._flags, self.kind, self.priority, self.count, self.producer, self.first_seq, self.timestamp_ms,
         self.headers_bytes, self.bodies_bytes) = _HEAD.unpack_from(view)  # fmt: skip
        if version != _VERSION or self._flags & ~_FLAGS_KNOWN:
            raise ProtocolError(f"a block of version {version} with flags {self._flags:#x} is not understood")
        if not 1 <= self.count <= BLOCK_MESSAGES_MAX:
            raise ProtocolError(f"a block of {self.count} messages; allowed are 1 to {BLOCK_MESSAGES_MAX}")
        self.uniform = not self._flags & _KINDS
        """All messages have the kind ``kind``."""
        if self.first_seq + self.count > _SEQ_MAX:
            raise ProtocolError(f"{self.count} messages from sequence number {self.first_seq} on run past 64 bits")
        has_headers = bool(self._flags & _HEADERS)
        columns = self.count * (4 + (1 if self._flags & _KINDS else 0) + (4 if has_headers else 0))
        if not has_headers and self.headers_bytes:
            raise ProtocolError("a block without a header column declares header bytes")
        self._body_offset = HEAD_BYTES + columns + self.headers_bytes
        if view.nbytes != self._body_offset + self.bodies_bytes or view.nbytes > BLOCK_BYTES_MAX:
            raise ProtocolError(
                f"a block of {view.nbytes} bytes declares {self._body_offset + self.bodies_bytes} bytes"
                f" (at most {BLOCK_BYTES_MAX})"
            )
        self.view = view
        self._lengths: tuple[int, ...] | None = None
        self._offsets: list[int] | None = None
        self._head_offsets: list[int] | None = None

    @property
    def persistent(self) -> bool:
        return bool(self._flags & _PERSISTENT)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Body length of each message, bytes."""
        if self._lengths is None:
            lengths: tuple[int, ...] = struct.unpack_from(f"<{self.count}I", self.view, HEAD_BYTES)
            if sum(lengths) != self.bodies_bytes:
                raise ProtocolError(f"body lengths of a block add up to {sum(lengths)}, not {self.bodies_bytes}")
            self._lengths = lengths
        return self._lengths

    def offsets(self) -> list[int]:
        """Where each body starts in ``view``; one more entry at the end, so that ``[i], [i+1]`` bound body i."""
        if self._offsets is None:
            self._offsets = list(accumulate(self.lengths, initial=self._body_offset))
        return self._offsets

    def body(self, index: int) -> memoryview:
        offsets = self.offsets()
        return self.view[offsets[index] : offsets[index + 1]]

    def kind_of(self, index: int) -> int:
        if self._flags & _KINDS:
            return int(self.view[HEAD_BYTES + 4 * self.count + index])
        return int(self.kind)

    def kinds(self) -> bytes | None:
        """The column of kinds, or None when ``kind`` holds for all."""
        if not self._flags & _KINDS:
            return None
        start = HEAD_BYTES + 4 * self.count
        return bytes(self.view[start : start + self.count])

    def header_offsets(self) -> list[int] | None:
        """Where each header starts in ``view``, as :meth:`offsets`; None without a header column."""
        if not self._flags & _HEADERS:
            return None
        if self._head_offsets is None:
            at = HEAD_BYTES + self.count * (5 if self._flags & _KINDS else 4)
            lengths = struct.unpack_from(f"<{self.count}I", self.view, at)
            if sum(lengths) != self.headers_bytes:
                raise ProtocolError(f"header lengths of a block add up to {sum(lengths)}, not {self.headers_bytes}")
            self._head_offsets = list(accumulate(lengths, initial=at + 4 * self.count))
        return self._head_offsets

    def header(self, index: int) -> memoryview | None:
        """The encoded header of a message, or None when it has none."""
        offsets = self.header_offsets()
        if offsets is None or offsets[index] == offsets[index + 1]:
            return None
        return self.view[offsets[index] : offsets[index + 1]]

    def check(self) -> None:
        """Decode every column; raises ProtocolError.  After this no accessor raises."""
        if self._flags & _HEADERS:
            self.header_offsets()
        assert self.lengths is not None

    def part(self, start: int, end: int) -> tuple[Buffer, ...]:
        """The encoding of messages ``start … end - 1`` as a block of its own, as buffers to write one after another."""
        assert 0 <= start < end <= self.count
        if start == 0 and end == self.count:
            return (self.view,)
        view, count = self.view, end - start
        body_offsets = self.offsets()
        bodies = view[body_offsets[start] : body_offsets[end]]
        columns: list[Buffer] = [view[HEAD_BYTES + 4 * start : HEAD_BYTES + 4 * end]]
        at = HEAD_BYTES + 4 * self.count
        if self._flags & _KINDS:
            columns.append(view[at + start : at + end])
            at += self.count
        headers_bytes = 0
        head_offsets = self.header_offsets()
        if head_offsets is not None:
            columns.append(view[at + 4 * start : at + 4 * end])
            headers = view[head_offsets[start] : head_offsets[end]]
            headers_bytes = headers.nbytes
            columns.append(headers)
        head = _HEAD.pack(
            _VERSION, self._flags, self.kind, self.priority, count, self.producer, self.first_seq + start,
            self.timestamp_ms, headers_bytes, bodies.nbytes,
        )  # fmt: skip
        return (b"".join((head, *columns)), bodies)


def count_of(head: Buffer) -> int:
    """How many messages the block has whose encoding starts with ``head``."""
    return int(_HEAD.unpack_from(head)[4])


def encode_block(
    bodies: Sequence[bytes],
    *,
    producer: int,
    first_seq: int,
    timestamp_ms: int,
    persistent: bool,
    kinds: int | bytes,
    headers: Sequence[bytes] | None = None,
    priority: int = 4,
) -> bytes:
    """Encode 1 to BLOCK_MESSAGES_MAX messages. ``kinds`` is one kind for all, or one byte for each message."""
    count = len(bodies)
    assert 1 <= count <= BLOCK_MESSAGES_MAX
    flags = _PERSISTENT if persistent else 0
    lengths = array("I", map(len, bodies))
    parts: list[bytes] = [b"", _little(lengths)]
    kind = kinds if isinstance(kinds, int) else 0
    if not isinstance(kinds, int):
        assert len(kinds) == count
        flags |= _KINDS
        parts.append(kinds)
    headers_bytes = 0
    if headers is not None:
        assert len(headers) == count
        flags |= _HEADERS
        header_lengths = array("I", map(len, headers))
        headers_bytes = sum(header_lengths)
        parts.append(_little(header_lengths))
        parts.extend(headers)
    parts[0] = _HEAD.pack(
        _VERSION, flags, kind, priority, count, producer, first_seq, timestamp_ms, headers_bytes, sum(lengths)
    )
    parts.extend(bodies)
    return b"".join(parts)


def _little(column: array[int]) -> bytes:
    assert column.itemsize == 4
    if struct.pack("=I", 1) != struct.pack("<I", 1):
        column = array("I", column)
        column.byteswap()
    return column.tobytes()
