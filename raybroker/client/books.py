"""What a consumer has handed out and the broker has not been told about, as rows of numbers.

A row is [first tag, last tag, serial of the first]: deliveries that were handed out one after the other.  Tags number
the deliveries of one attachment, serials what the whole session handed out, so "up to this message" can be said over
several consumers (R-08).
"""

from __future__ import annotations

Rows = list[list[int]]
Ranges = list[tuple[int, int]]


def cut(rows: Rows, up_to: int | None) -> tuple[Ranges, Rows]:
    """Split off what was handed out up to a serial, or everything: (ranges of tags, rows that are left)."""
    ranges: Ranges = []
    kept: Rows = []
    for first, last, serial in rows:
        end = last if up_to is None else min(last, first + up_to - serial)
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


def serial_of(rows: Rows, tag: int) -> int | None:
    """The serial of a delivery, or None when it is not in the rows."""
    for first, last, serial in rows:
        if first <= tag <= last:
            return serial + tag - first
    return None


def count(rows: Rows) -> int:
    return sum(last - first + 1 for first, last, _ in rows)
