"""A run: messages of one block that are alike and wait together; and many runs of one message each, as columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from raybroker.model.blocks.block import PRIORITY_MAX

LEVELS: Final = PRIORITY_MAX + 1
"""Priorities of messages; in a delivery queue those that go behind all others have one that is so much lower."""


class Run(NamedTuple):
    """Messages ``mask`` of block ``ordinal``, of one priority, handed out ``attempts`` times before.

    arrival   order of arrival in the delivery queue
    failures  how often handing them out ended in a failure
    """

    arrival: int
    ordinal: int
    mask: int
    attempts: int
    failures: int
    priority: int

    @property
    def count(self) -> int:  # type: ignore[override]  # a tuple has a method of this name
        return self.mask.bit_count()


def own_priority(priority: int) -> int:
    """The priority that messages were sent with."""
    return priority % LEVELS


def behind_all(priority: int) -> int:
    """The priority of messages that go behind all others, and among themselves by the one that they were sent with."""
    return own_priority(priority) - LEVELS


def position(run: Run) -> tuple[int, int]:
    """What runs are ordered by: by arrival, and within a block by the lowest message."""
    return run.arrival, run.mask & -run.mask


class PackedRuns:
    """Runs of the first message of their blocks, of one priority, never handed out, in order.

    ``arrivals`` and ``ordinals``: ranges, where the runs came one after the other, or columns.
    """

    __slots__ = ("arrivals", "ordinals", "priority")

    def __init__(self, arrivals: Sequence[int], ordinals: Sequence[int], priority: int) -> None:
        self.arrivals = _column(arrivals)
        self.ordinals = _column(ordinals)
        self.priority = priority

    @classmethod
    def pack(cls, runs: Sequence[Run]) -> Self | None:
        """The runs packed; None if any is of more or other messages than the first, or was handed out before."""
        priority = runs[0].priority
        if any(run[2:] != (1, 0, 0, priority) for run in runs):
            return None
        return cls([run.arrival for run in runs], [run.ordinal for run in runs], priority)

    def __len__(self) -> int:
        return len(self.arrivals)

    def __iter__(self) -> Iterator[Run]:
        priority = self.priority
        for arrival, ordinal in zip(self.arrivals, self.ordinals, strict=True):
            yield Run(arrival, ordinal, 1, 0, 0, priority)

    def any_of(self, chosen: Mapping[int, int]) -> bool:
        """Whether a run is of one of these blocks."""
        if isinstance(self.ordinals, range) and len(chosen) < len(self.ordinals):
            return any(ordinal in self.ordinals for ordinal in chosen)
        return any(ordinal in chosen for ordinal in self.ordinals)


def _column(numbers: Sequence[int]) -> range | array[int]:
    if isinstance(numbers, range):
        return numbers
    found = array("Q", numbers)
    whole = range(found[0], found[0] + len(found))
    return whole if found[-1] == whole[-1] and found == array("Q", whole) else found
