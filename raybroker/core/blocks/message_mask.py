"""Sets of messages of one block as bit masks: bit i stands for message i.

A Python integer of at most BLOCK_MESSAGES_MAX bits makes "those that match", "those that have expired" and "those of
priority 7" one operation on a few machine words each, whether they lie side by side or not; so a block is handed out,
acknowledged and written down as a whole however its messages are mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from itertools import count as numbers
from typing import Final, TypeVar

from raybroker.model.blocks.columns import selectors

_BYTES_OF_LENGTH: Final = 2
_T = TypeVar("_T")


def span(start: int, end: int) -> int:
    """Messages start … end - 1."""
    return ((1 << (end - start)) - 1) << start


def first_of(mask: int) -> int:
    """Index of the first message; ``mask`` must not be empty."""
    return (mask & -mask).bit_length() - 1


def extent(mask: int) -> tuple[int, int] | None:
    """(start, end) when the messages lie side by side, else None."""
    low = (mask & -mask).bit_length() - 1
    run = mask >> low
    return (low, low + run.bit_length()) if not run & (run + 1) else None


def lowest(mask: int, count: int) -> int:
    """The first ``count`` (at least 1) messages of ``mask``, or all when there are fewer."""
    if mask.bit_count() <= count:
        return mask
    side_by_side = extent(mask)
    if side_by_side is not None:
        return span(side_by_side[0], side_by_side[0] + count)
    low, high = 0, mask.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        if (mask & ((1 << middle) - 1)).bit_count() >= count:
            high = middle
        else:
            low = middle
    return mask & ((1 << high) - 1)


def indexes(mask: int) -> list[int]:
    """The messages' indexes, ascending."""
    side_by_side = extent(mask) if mask else (0, 0)
    if side_by_side is not None:
        return list(range(*side_by_side))
    return list(compress(numbers(), selectors(mask)))


_ZEROS: Final = b"0" * 256


def of_value(column: bytes, value: int) -> int:
    """Messages for which the column has that value."""
    return int(column[::-1].translate(_ZEROS[:value] + b"1" + _ZEROS[value + 1 :]), 2)


def chosen(items: Sequence[_T], mask: int) -> Iterator[_T]:
    """Return the values of a column that ``mask`` has."""
    side_by_side = extent(mask) if mask else (0, 0)
    if side_by_side is not None:
        return iter(items[side_by_side[0] : side_by_side[1]])
    return compress(items, selectors(mask))


def of_indexes(items: Iterable[int]) -> int:
    mask = 0
    for index in items:
        mask |= 1 << index
    return mask


def of_ranges(ranges: Iterable[tuple[int, int]]) -> int:
    """Messages of half-open ranges."""
    mask = 0
    for start, end in ranges:
        mask |= span(start, end)
    return mask


def runs_of(mask: int) -> Iterator[tuple[int, int]]:
    """The half-open ranges that ``mask`` is made of, ascending."""
    at = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        length = (~mask & (mask + 1)).bit_length() - 1
        yield at + skip, at + skip + length
        mask >>= length
        at += skip + length


def pack(mask: int) -> bytes:
    """Bytes that :func:`unpack` reads back: a length, then the mask, little-endian."""
    size = (mask.bit_length() + 7) // 8
    return size.to_bytes(_BYTES_OF_LENGTH, "little") + mask.to_bytes(size, "little")


def unpack(data: bytes, at: int) -> tuple[int, int]:
    """(masks, where the next thing starts)."""
    size = int.from_bytes(data[at : at + _BYTES_OF_LENGTH], "little")
    at += _BYTES_OF_LENGTH
    return int.from_bytes(data[at : at + size], "little"), at + size
