"""Messages of a delivery queue that are not to be seen before a time: not born yet, or failed and resting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from raybroker.core.delivery.run import Run


class Delayed:
    """``count`` messages; those due first come first, and in order of arrival among those due at one time."""

    __slots__ = ("_heap", "_number", "count")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Run]] = []
        self._number = 0
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def add(self, due_ms: int, run: Run) -> None:
        self._number += 1
        heappush(self._heap, (due_ms, self._number, run))
        self.count += run.mask.bit_count()

    def due(self, now_ms: int) -> Iterator[Run]:
        """Take out what is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            run = heappop(self._heap)[2]
            self.count -= run.mask.bit_count()
            yield run

    def runs(self) -> Iterator[tuple[int, Run]]:
        """(time, run), in order."""
        return ((due_ms, run) for due_ms, _, run in sorted(self._heap))

    def clear(self) -> list[Run]:
        runs = [run for _, run in self.runs()]
        self._heap.clear()
        self.count = 0
        return runs

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take messages out, given as block → mask; returns those that were here."""
        removed: list[Run] = []
        kept: list[tuple[int, int, Run]] = []
        for due_ms, number, run in self._heap:
            gone = run.mask & chosen.get(run.ordinal, 0)
            if gone:
                removed.append(run._replace(mask=gone))
            if gone != run.mask:
                kept.append((due_ms, number, run._replace(mask=run.mask & ~gone) if gone else run))
        if removed:
            heapify(kept)
            self._heap = kept
            self.count -= sum(run.mask.bit_count() for run in removed)
        return removed
