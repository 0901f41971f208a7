"""Unacknowledged deliveries: what a consumer has handed out and not acknowledged, as rows of numbers.

A row is [first tag, last tag, serial of the first]: deliveries that were handed out one after the other.  Tags number
the deliveries of one attachment, serials what the whole session handed out, so "up to this message" can be said over
several consumers.
"""

from __future__ import annotations

from collections.abc import Iterable

Rows = list[list[int]]
Ranges = list[tuple[int, int]]


def cut(rows: Rows, up_to: int) -> tuple[Ranges, Rows]:
    """Split off what was handed out up to a serial: (ranges of tags, rows that are left)."""
    ranges: Ranges = []
    kept: Rows = []
    for first, last, serial in rows:
        end = min(last, first + up_to - serial)
        if end >= first:
            ranges.append((first, end))
        if end < last:
            start = max(end + 1, first)
            kept.append([start, last, serial + start - first])
    return ranges, kept


def cut_one(rows: Rows, tag: int) -> bool:
    """Take one delivery out of the rows; False when it is not in them."""
    for index, (first, last, serial) in enumerate(rows):
        if first <= tag <= last:
            pieces = []
            if first < tag:
                pieces.append([first, tag - 1, serial])
            if tag < last:
                pieces.append([tag + 1, last, serial + tag + 1 - first])
            rows[index : index + 1] = pieces
            return True
    return False


def cut_some(rows: Rows, ranges: Ranges) -> Ranges:
    """Take deliveries out of the rows, which ascend as the ranges do; returns the ranges of those that were in them."""
    found: Ranges = []
    kept: Rows = []
    at, count = 0, len(ranges)
    for first, last, serial in rows:
        start = first
        while at < count and ranges[at][0] <= last:
            end = min(ranges[at][1], last)
            if end >= start:
                begin = max(ranges[at][0], start)
                if start < begin:
                    kept.append([start, begin - 1, serial + start - first])
                found.append((begin, end))
                start = end + 1
            if ranges[at][1] > last:
                break
            at += 1
        if start <= last:
            kept.append([start, last, serial + start - first])
    if found:
        rows[:] = kept
    return found


def serial_of(rows: Rows, tag: int) -> int | None:
    """The serial of a delivery, or None when it is not in the rows."""
    for first, last, serial in rows:
        if first <= tag <= last:
            return serial + tag - first
    return None


def count(rows: Rows) -> int:
    return sum(last - first + 1 for first, last, _ in rows)


def size(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def ranges_of(tags: Iterable[int]) -> Ranges:
    """Ascending tags as ranges."""
    ranges: Ranges = []
    for tag in tags:
        if ranges and ranges[-1][1] + 1 == tag:
            ranges[-1] = (ranges[-1][0], tag)
        else:
            ranges.append((tag, tag))
    return ranges


def within(ranges: Ranges, tag: int, start: int, end: int) -> frozenset[int]:
    """Which messages of a delivery whose first one has ``tag`` are in the ranges, of start … end - 1."""
    found: set[int] = set()
    for first, last in ranges:
        found.update(range(max(first - tag, start), min(last - tag + 1, end)))
    return frozenset(found)


def common(rows: Rows, ranges: Ranges) -> Ranges:
    """The deliveries that are in the rows and in the ranges."""
    found = [(max(first, row[0]), min(last, row[1])) for first, last in ranges for row in rows]
    return [(first, last) for first, last in found if first <= last]


def cut_ranges(rows: Rows, ranges: Ranges) -> int:
    """Take deliveries out of the rows; returns how many were in them."""
    before = count(rows)
    for first, last in ranges:
        pieces: Rows = []
        for row in rows:
            start, end, serial = row
            if end < first or last < start:
                pieces.append(row)
                continue
            if start < first:
                pieces.append([start, first - 1, serial])
            if last < end:
                pieces.append([last + 1, end, serial + last + 1 - start])
        rows[:] = pieces
    return before - count(rows)
