"""Finding one message by its id without going through the queue.

An id is a producer's number and a sequence number, and the messages of one producer are held in the order of those. So
blocks are looked at by halves, and where others sent in between, at the neighbours. What an administrator has moved or
imported is in any order: it is found when there are few blocks, or when it is among the first or last ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from raybroker.model.blocks.block import Block

LOOKED_AT_MAX: Final = 1_500
"""Blocks that are read for one message."""
LOOK_NS: Final = 30_000_000
"""So long it is looked for one message: meanwhile nothing else goes on at the host."""
SKIPPED_MAX: Final = 100_000
"""Numbers of blocks that are held no more which are passed over for one message."""
NEIGHBOURS: Final = 48
"""Blocks of others that are looked at beside one, before another place is tried."""
_ID: Final = re.compile(r"ID:([0-9a-f]{16})-(\d{1,20})", re.ASCII)


class IdParts(NamedTuple):
    producer: int
    seq: int


class Sought(NamedTuple):
    """``ordinal`` and ``at``, its index in that block, of the message; ``ordinal`` 0: it was not found.

    ``whole``: every block was looked at, so that it is not there.
    """

    ordinal: int
    at: int
    looked_at: int
    whole: bool


def parsed(message: str) -> IdParts | None:
    """The parts of a message id; None for a text that is none."""
    match = _ID.fullmatch(message)
    return IdParts(int(match[1], 16), int(match[2])) if match is not None else None


class Search:
    """One search among the blocks ``low`` … ``high``; ``read`` returns a block, ``held`` whether there is one."""

    def __init__(
        self,
        wanted: IdParts,
        held: Callable[[int], bool],
        read: Callable[[int], Block | None],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._wanted = wanted
        self._held = held
        self._read = read
        self._monotonic_ns = monotonic_ns
        self._until_ns = monotonic_ns() + LOOK_NS
        self._seen: set[int] = set()
        self._skipped = 0
        self._found: tuple[int, int] | None = None

    def run(self, low: int, high: int, count: int) -> Sought:
        """Look; ``count``: how many blocks there are."""
        self._halve(low, high)
        for ordinal in self._rest(low, high) if self._found is None else ():
            if self._found is not None or not self._compare_block(ordinal)[0]:
                break
        ordinal, index = self._found or (0, 0)
        return Sought(ordinal, index, len(self._seen), len(self._seen) >= count)

    def _halve(self, low: int, high: int) -> None:
        """Look by halves, as long as a block of the producer is found near the middle."""
        while low <= high and self._found is None:
            side = 0
            for ordinal in _around((low + high) // 2, low, high, NEIGHBOURS):
                going_on, side = self._compare_block(ordinal)
                if not going_on:
                    return
                if side:
                    low, high = (ordinal + 1, high) if side > 0 else (low, ordinal - 1)
                    break
            if not side:
                self._stride(low, high)
                return

    def _stride(self, low: int, high: int) -> None:
        """Nothing of the producer is near the middle: look here and there, and go on by halves from what is found."""
        step, left = (high - low) // 2, LOOKED_AT_MAX // 2
        while step >= NEIGHBOURS and left > 0:
            for ordinal in range(low + step // 2, high + 1, step):
                left -= 1
                going_on, side = self._compare_block(ordinal)
                if not going_on or self._found is not None or left <= 0:
                    return
                if side:
                    self._halve(
                        *(
                            (ordinal + 1, min(ordinal + step * 2, high))
                            if side > 0
                            else (max(low, ordinal - step * 2), ordinal - 1)
                        )
                    )
                    return
            step //= 2

    def _rest(self, low: int, high: int) -> Iterator[int]:
        """The newest and the oldest, in turn."""
        while low <= high:
            yield high
            if low != high:
                yield low
            low, high = low + 1, high - 1

    def _compare_block(self, ordinal: int) -> tuple[bool, int]:
        """Whether the search goes on, and where the message is from here: 1 later, -1 earlier, 0 not known."""
        if ordinal in self._seen:
            return True, 0
        if not self._held(ordinal):
            self._skipped += 1
            return self._skipped < SKIPPED_MAX, 0
        if len(self._seen) >= LOOKED_AT_MAX or self._monotonic_ns() > self._until_ns:
            return False, 0
        self._seen.add(ordinal)
        block = self._read(ordinal)
        if block is None or block.producer != self._wanted.producer:
            return True, 0
        seq = self._wanted.seq
        first, last = block.seq_of(0), block.seq_of(block.count - 1)
        if first <= seq <= last:
            index = next((i for i in range(block.count) if block.seq_of(i) == seq), None)
            if index is not None:
                self._found = ordinal, index
                return False, 0
        return True, 1 if last < seq else -1


def _around(middle: int, low: int, high: int, most: int) -> Iterator[int]:
    """A number and those beside it, the nearest first."""
    yield middle
    for distance in range(1, most + 1):
        if middle + distance <= high:
            yield middle + distance
        if middle - distance >= low:
            yield middle - distance
