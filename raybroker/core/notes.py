"""How the core writes down what it decided, and reads it again after a restart.

Notes are small and come in great numbers, so they are packed structs; a snapshot is rare and holds a destination's
whole state but for message bodies.  Both ends stand here side by side: what is written and read in two files drifts
apart.

    block meta   flags, count, producer, first sequence number, then one size for all bodies or one for each
    ACKED        spans of whole blocks, then parts (ordinal, start, end) of others
    REFUSED      parts of a stored block that were never accepted
    DISPATCHED   how far fresh messages were handed out, then (ordinal, start, end, attempts) of returned ones
    ATTRIBUTES   the destination's attributes, encoded by the engine
    GONE         the destination was destroyed
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

ACKED: Final = 1
REFUSED: Final = 2
DISPATCHED: Final = 3
ATTRIBUTES: Final = 4
GONE: Final = 5

_BLOCK: Final = struct.Struct("<BIQQ")
_HEAD: Final = struct.Struct("<BII")
_SPAN: Final = struct.Struct("<QQ")
_PART: Final = struct.Struct("<QII")
_TRIED: Final = struct.Struct("<QIII")
_MARK: Final = struct.Struct("<QI")

ROWS_MAX: Final = 16_384
"""Rows of one note: with the longest row it stays far below a store's limit for notes."""

_A = TypeVar("_A")
_B = TypeVar("_B")

Sizes = int | array  # type: ignore[type-arg]
"""Body sizes of a block: one for all, or one for each message."""


class Part(NamedTuple):
    """Messages start … end - 1 of block ``ordinal``."""

    ordinal: int
    start: int
    end: int


class Tried(NamedTuple):
    """Messages start … end - 1 of block ``ordinal`` were handed out ``attempts`` times."""

    ordinal: int
    start: int
    end: int
    attempts: int


class BlockMeta(NamedTuple):
    messages: int
    producer: int
    first_seq: int
    sizes: Sizes


def pack_sizes(sizes: Sequence[int]) -> Sizes:
    """The smallest form of a column of sizes."""
    first = sizes[0]
    if sizes.count(first) == len(sizes):
        return first
    return array("I", sizes)


def encode_block_meta(count: int, producer: int, first_seq: int, sizes: Sizes) -> bytes:
    uniform = isinstance(sizes, int)
    column = array("I", (sizes,)) if isinstance(sizes, int) else sizes
    return _BLOCK.pack(1 if uniform else 0, count, producer, first_seq) + column.tobytes()


def decode_block_meta(meta: bytes) -> BlockMeta:
    uniform, count, producer, first_seq = _BLOCK.unpack_from(meta)
    column = array("I")
    column.frombytes(meta[_BLOCK.size :])
    return BlockMeta(count, producer, first_seq, column[0] if uniform else column)


def in_notes(first: Sequence[_A], second: Sequence[_B]) -> Iterator[tuple[Sequence[_A], Sequence[_B]]]:
    """Cut two columns of rows into as many notes as they need; none for no rows."""
    for at in range(0, max(len(first), len(second)), ROWS_MAX):
        yield first[at : at + ROWS_MAX], second[at : at + ROWS_MAX]


def encode_acked(spans: Sequence[tuple[int, int]], parts: Sequence[Part]) -> bytes:
    """``spans`` are (first, last) ordinals of blocks settled whole; ``parts`` the rest."""
    out = [_HEAD.pack(ACKED, len(spans), len(parts))]
    out.extend(_SPAN.pack(*span) for span in spans)
    out.extend(_PART.pack(*part) for part in parts)
    return b"".join(out)


def encode_refused(parts: Sequence[Part]) -> bytes:
    return b"".join((_HEAD.pack(REFUSED, 0, len(parts)), *(_PART.pack(*part) for part in parts)))


def encode_dispatched(mark: tuple[int, int] | None, tried: Sequence[Tried]) -> bytes:
    """``mark``: every fresh message before index mark[1] of block mark[0] has been handed out once."""
    out = [_HEAD.pack(DISPATCHED, 1 if mark else 0, len(tried))]
    if mark:
        out.append(_MARK.pack(*mark))
    out.extend(_TRIED.pack(*row) for row in tried)
    return b"".join(out)


def encode_attributes(data: bytes) -> bytes:
    return _HEAD.pack(ATTRIBUTES, 0, 0) + data


def encode_gone() -> bytes:
    return _HEAD.pack(GONE, 0, 0)


def kind_of(note: bytes) -> int:
    return note[0]


def attributes_of(note: bytes) -> bytes:
    return note[_HEAD.size :]


def decode_acked(note: bytes) -> tuple[list[tuple[int, int]], list[Part]]:
    _, spans, parts = _HEAD.unpack_from(note)
    at = _HEAD.size
    middle = at + spans * _SPAN.size
    found = [(a, b) for a, b in _SPAN.iter_unpack(note[at:middle])]
    return found, [Part(*row) for row in _PART.iter_unpack(note[middle : middle + parts * _PART.size])]


def decode_refused(note: bytes) -> list[Part]:
    return [Part(*row) for row in _PART.iter_unpack(note[_HEAD.size :])]


def decode_dispatched(note: bytes) -> tuple[tuple[int, int] | None, list[Tried]]:
    _, marked, _ = _HEAD.unpack_from(note)
    at = _HEAD.size
    mark = None
    if marked:
        mark = _MARK.unpack_from(note, at)
        at += _MARK.size
    return mark, [Tried(*row) for row in _TRIED.iter_unpack(note[at:])]


class Cursor:
    """Reads a snapshot piece by piece."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def row(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return found

    def rows(self, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        (count,) = self.row(COUNT)
        for _ in range(count):
            yield self.row(layout)


COUNT: Final = struct.Struct("<I")
SPAN: Final = _SPAN
PART: Final = _PART
TRIED: Final = _TRIED
MARK: Final = _MARK


def table(layout: struct.Struct, rows: Sequence[tuple[int, ...]]) -> bytes:
    """A counted table, as :meth:`Cursor.rows` reads it."""
    return COUNT.pack(len(rows)) + b"".join(layout.pack(*row) for row in rows)
