"""Sets of integers as sorted, disjoint, half-open ranges: the shape of sequence numbers and of settled messages.

Such a set is almost always one range, so a plain list is the fastest structure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Ranges = list[tuple[int, int]]


def add(ranges: Ranges, start: int, end: int) -> None:
    """Put ``start … end - 1`` into the set."""
    if start >= end:
        return
    if ranges and ranges[-1][1] == start:
        ranges[-1] = (ranges[-1][0], end)
        return
    if not ranges or ranges[-1][1] < start:
        ranges.append((start, end))
        return
    low = bisect_left(ranges, start, key=lambda r: r[1])
    high = bisect_right(ranges, end, key=lambda r: r[0])
    if low < high:
        start = min(start, ranges[low][0])
        end = max(end, ranges[high - 1][1])
    ranges[low:high] = [(start, end)]


def has(ranges: Ranges, number: int) -> bool:
    """Whether it is in the set."""
    at = bisect_right(ranges, number, key=lambda r: r[1])
    return at < len(ranges) and ranges[at][0] <= number


def missing(ranges: Ranges, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of ``start … end - 1`` that are not in the set, ascending."""
    at = start
    passed = bisect_right(ranges, start, key=lambda r: r[1]) if len(ranges) > 1 else 0
    for index in range(passed, len(ranges)):
        low, high = ranges[index]
        if low >= end:
            break
        if at < low:
            yield at, low
        at = max(at, high)
    if at < end:
        yield at, end


def drop_below(ranges: Ranges, floor: int) -> None:
    """Forget everything under ``floor``."""
    if ranges and ranges[0][1] <= floor:
        del ranges[: bisect_right(ranges, floor, key=lambda r: r[1])]
    if ranges and ranges[0][0] < floor:
        ranges[0] = (floor, ranges[0][1])


def total(ranges: Ranges) -> int:
    """How many integers are in the set."""
    return sum(end - start for start, end in ranges)
