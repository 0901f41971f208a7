"""Sets of messages of one block as bit masks: bit i stands for message i.

A Python integer of at most BLOCK_MESSAGES_MAX bits makes "those that match", "those that have expired" and "those of
priority 7" one operation on a few machine words each, whether they lie side by side or not; so a block is handed out,
acknowledged and written down as a whole however its messages are mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, TypeVar

_BYTES_OF_LENGTH: Final = 2
_T = TypeVar("_T")


def span(start: int, end: int) -> int:
    """Messages start … end - 1."""
    return ((1 << (end - start)) - 1) << start


def first_of(picks: int) -> int:
    """Index of the first message; ``picks`` must not be empty."""
    return (picks & -picks).bit_length() - 1


def extent(picks: int) -> tuple[int, int] | None:
    """(start, end) when the messages lie side by side, else None."""
    low = (picks & -picks).bit_length() - 1
    run = picks >> low
    return (low, low + run.bit_length()) if not run & (run + 1) else None


def lowest(picks: int, count: int) -> int:
    """The first ``count`` (at least 1) messages of ``picks``, or all when there are fewer."""
    if picks.bit_count() <= count:
        return picks
    side_by_side = extent(picks)
    if side_by_side is not None:
        return span(side_by_side[0], side_by_side[0] + count)
    low, high = 0, picks.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        if (picks & ((1 << middle) - 1)).bit_count() >= count:
            high = middle
        else:
            low = middle
    return picks & ((1 << high) - 1)


def indexes(picks: int) -> list[int]:
    """The messages' indexes, ascending."""
    side_by_side = extent(picks) if picks else (0, 0)
    if side_by_side is not None:
        return list(range(*side_by_side))
    return [i for i, bit in enumerate(bin(picks)[:1:-1]) if bit == "1"]


_BITS: Final = bytes.maketrans(b"01", b"\0\1")


def chosen(items: Sequence[_T], picks: int) -> Iterator[_T]:
    """Those of a column that ``picks`` has."""
    side_by_side = extent(picks) if picks else (0, 0)
    if side_by_side is not None:
        return iter(items[side_by_side[0] : side_by_side[1]])
    return compress(items, f"{picks:b}"[::-1].encode().translate(_BITS))


def of_indexes(items: Iterable[int]) -> int:
    picks = 0
    for index in items:
        picks |= 1 << index
    return picks


def of_ranges(ranges: Iterable[tuple[int, int]]) -> int:
    """Messages of half-open ranges."""
    picks = 0
    for start, end in ranges:
        picks |= span(start, end)
    return picks


def runs_of(picks: int) -> Iterator[tuple[int, int]]:
    """The half-open ranges that ``picks`` is made of, ascending."""
    at = 0
    while picks:
        skip = (picks & -picks).bit_length() - 1
        picks >>= skip
        length = (~picks & (picks + 1)).bit_length() - 1
        yield at + skip, at + skip + length
        picks >>= length
        at += skip + length


def pack(picks: int) -> bytes:
    """Bytes that :func:`unpack` reads back: a length, then the mask, little-endian."""
    size = (picks.bit_length() + 7) // 8
    return size.to_bytes(_BYTES_OF_LENGTH, "little") + picks.to_bytes(size, "little")


def unpack(data: bytes, at: int) -> tuple[int, int]:
    """(picks, where the next thing starts)."""
    size = int.from_bytes(data[at : at + _BYTES_OF_LENGTH], "little")
    at += _BYTES_OF_LENGTH
    return int.from_bytes(data[at : at + size], "little"), at + size
