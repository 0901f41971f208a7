"""The columns of a message block: where each stands, and how head and columns are put together.

``block.py`` describes the format; this is its arithmetic.  Columns are named by their flag in the head; 0 is the body
lengths, which every block has.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Sequence
from typing import Final, Literal

from raybroker.model.blocks.record import Buffer

VERSION: Final = 2
SEQ_MAX: Final = (1 << 64) - 1
HEAD: Final = struct.Struct("<BBBBIQQQII")
_LONE: Final = struct.Struct("<BBBBIQQQIII")
"""HEAD, and the length of one message."""
PERSISTENT: Final = 1
HEADERS: Final = 2
KINDS: Final = 4
PRIORITIES: Final = 8
EXPIRES: Final = 16
DELIVER_AT: Final = 32
SEQS: Final = 64
FLAGS_KNOWN: Final = 127
Code = Literal["B", "I", "Q"]
"""Types of columns, as ``array`` and ``memoryview`` name them."""
COLUMNS: Final[tuple[tuple[int, Code], ...]] = (
    (KINDS, "B"),
    (PRIORITIES, "B"),
    (EXPIRES, "Q"),
    (DELIVER_AT, "Q"),
    (SEQS, "I"),
    (HEADERS, "I"),
)
"""Flag and type of each column that may be there, in the order in which they follow the body lengths."""


def _layout(flags: int) -> dict[int, tuple[int, int, Code]]:
    """Flag → (bytes a message takes in the columns before, bytes in this one, its type); 0 is the body lengths."""
    columns: dict[int, tuple[int, int, Code]] = {0: (0, 4, "I")}
    at = 4
    for flag, code in COLUMNS:
        if flags & flag:
            width = array(code).itemsize
            columns[flag] = at, width, code
            at += width
    return columns


LAYOUTS: Final = tuple(_layout(flags) for flags in range(FLAGS_KNOWN + 1))
WIDTHS: Final = tuple(sum(width for _, width, _ in layout.values()) for layout in LAYOUTS)
"""Flags → bytes that a message takes in all columns together."""


def encode_prefix(
    columns: dict[int, Buffer],
    headers: Sequence[Buffer],
    persistent: bool,
    kind: int,
    priority: int,
    producer: int,
    first_seq: int,
    timestamp_ms: int,
    bodies_bytes: int,
) -> bytes:
    """Head, columns and headers of a block; ``columns`` are by flag, in any order, the body lengths under 0."""
    flags = PERSISTENT if persistent else 0
    parts: list[Buffer] = [b"", columns[0]]
    if len(columns) > 1:
        for flag, _ in COLUMNS:
            column = columns.get(flag)
            if column is not None:
                flags |= flag
                parts.append(column)
        parts.extend(headers)
    parts[0] = HEAD.pack(
        VERSION,
        flags,
        kind,
        priority,
        len(columns[0]) // 4,
        producer,
        first_seq,
        timestamp_ms,
        sum(map(len, headers)),
        bodies_bytes,
    )
    return b"".join(parts)


def encode_lone_prefix(
    size: int, persistent: bool, kind: int, priority: int, producer: int, first_seq: int, timestamp_ms: int
) -> bytes:
    """What :func:`encode_prefix` gives for a block of one message of ``size`` bytes that has no column but its length,
    as nearly all have that are sent one by one."""
    flags = PERSISTENT if persistent else 0
    return _LONE.pack(VERSION, flags, kind, priority, 1, producer, first_seq, timestamp_ms, 0, size, size)


_BITS: Final = bytes.maketrans(b"01", b"\0\1")
RUNS: Final = re.compile(rb"\x01+").finditer
"""The runs of 1 in what :func:`selectors` returns."""
ITEMS_PER_SLICE: Final = 4
"""Taking a slice costs about as much as looking at so many items one by one."""


def selectors(mask: int) -> bytes:
    """A byte for each message up to the last of ``mask``: 1 when it is one of them, else 0."""
    return f"{mask:b}"[::-1].encode().translate(_BITS)


def _swapped(column: array[int]) -> array[int]:
    column = column[:]
    column.byteswap()
    return column


_IS_LITTLE: Final = struct.pack("=I", 1) == struct.pack("<I", 1)


def native(column: array[int]) -> array[int]:
    """A column that was read as it is encoded, as numbers."""
    return column if _IS_LITTLE else _swapped(column)


def little(column: array[int]) -> bytes:
    return (column if _IS_LITTLE else _swapped(column)).tobytes()
