"""Block split: the places where a run of bodies is cut into blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

from raybroker.model.blocks.block import BLOCK_BYTES_TARGET


def by_bytes(bodies: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield where to cut a run of bodies, so that no block grows past its target size: (start, end) of each piece."""
    ends = list(accumulate(map(len, bodies)))
    start = before = 0
    while ends[-1] - before > BLOCK_BYTES_TARGET and start < len(bodies) - 1:
        end = max(bisect_right(ends, before + BLOCK_BYTES_TARGET, start), start + 1)
        yield start, end
        start, before = end, ends[end - 1]
    if start < len(bodies):
        yield start, len(bodies)


def pieces(bodies: list[bytes], most: Callable[[], int]) -> Iterator[tuple[int, int]]:
    """Do what :func:`by_bytes` does, with at most ``most()`` bodies a piece, which is asked for each; 0 for any
    number."""
    for start, end in by_bytes(bodies):
        at = start
        while at < end:
            step = most() or end - at
            yield at, min(at + step, end)
            at += step
