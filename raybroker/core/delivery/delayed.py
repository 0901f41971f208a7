"""Messages of a delivery queue that are not to be seen before a time: not born yet, or failed and resting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.run import Run

# A place in both heaps: [time, number, run], and None for the run once that is gone. Times and numbers alone decide.
Entry = list[Any]
Age = tuple[int, int, int]


class Delayed:
    """``count`` messages; those due first come first, and in order of arrival among those due at one time.

    Times are measured ones.  A failed message rests for a while; an unborn one, which nobody has had, waits for a time
    of the wall clock, and is due sooner or later when that is set.

    ``_ages`` has the same entries by what is discarded first; it is made when that is asked for the first time.
    ``_of`` has them by block: its entry, or where a block has several runs those by number.
    """

    __slots__ = ("_ages", "_by_priority", "_heap", "_live", "_number", "_of", "count")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._ages: list[tuple[Age, int, Entry]] | None = None
        self._of: dict[int, Entry | dict[int, Entry]] = {}
        self._by_priority = False
        self._number = 0
        self._live = 0
        """Entries that have their run yet."""
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self.count)

    @property
    def next_ms(self) -> int | None:
        while self._heap and self._heap[0][2] is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def add(self, due_ms: int, run: Run) -> None:
        self._number += 1
        entry: Entry = [due_ms, self._number, run]
        heappush(self._heap, entry)
        if self._ages is not None:
            heappush(self._ages, (age_of(run, by_priority=self._by_priority), self._number, entry))
        known = self._of.setdefault(run.ordinal, entry)
        if isinstance(known, dict):
            known[self._number] = entry
        elif known is not entry:
            self._of[run.ordinal] = {known[1]: known, self._number: entry}
        self._live += 1
        self.count += run.mask.bit_count()

    def put_off_births(self, by_ms: int) -> None:
        """The wall clock was set: what is not born yet is due so much later."""
        for entry in self._heap:
            if entry[2] is not None and not entry[2].attempts:
                entry[0] += by_ms
        heapify(self._heap)

    def due(self, now_ms: int) -> Iterator[Run]:
        """Take out what is due."""
        while self._heap and (self._heap[0][2] is None or self._heap[0][0] <= now_ms):
            entry = heappop(self._heap)
            if entry[2] is not None:
                yield self._take_run(entry, entry[2].mask)

    def runs(self) -> Iterator[tuple[int, Run]]:
        """(time, run), in order."""
        return ((due_ms, run) for due_ms, _, run in sorted(self._heap) if run is not None)

    def find(self, ordinal: int, bit: int) -> tuple[int, Run] | None:
        """Return when a message is due, and its run; None when it is not here. Looks at the runs of its block."""
        known = self._of.get(ordinal, {})
        for due_ms, _, run in known.values() if isinstance(known, dict) else (known,):
            if run.mask & bit:
                return due_ms, run
        return None

    def clear(self) -> list[Run]:
        runs = [run for _, run in self.runs()]
        self._heap.clear()
        self._of.clear()
        self._ages = None
        self._live = self.count = 0
        return runs

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take messages out, given as block → mask; returns those that were here."""
        removed: list[Run] = []
        for entry in self._heap:
            run = entry[2]
            gone = run.mask & chosen.get(run.ordinal, 0) if run is not None else 0
            if gone:
                removed.append(self._take_run(entry, gone))
        self._compact()
        return removed

    # ---- what is discarded first

    def oldest(self, *, by_priority: bool) -> Run | None:
        """What came first, of the lowest priority if that counts."""
        if not self.count:
            return None
        if self._ages is None or self._by_priority != by_priority:
            self._by_priority = by_priority
            live = [entry for entry in self._heap if entry[2] is not None]
            self._ages = [(age_of(entry[2], by_priority=by_priority), entry[1], entry) for entry in live]
            heapify(self._ages)
        while True:
            age, number, entry = self._ages[0]
            run: Run | None = entry[2]
            if run is not None and age_of(run, by_priority=by_priority) == age:
                return run
            heappop(self._ages)
            if run is not None:  # Some of its messages are gone, and it is as old as the first of the others.
                heappush(self._ages, (age_of(run, by_priority=by_priority), number, entry))

    def take_oldest(self, room: int) -> Run:
        """Take out up to ``room`` messages of the run that :meth:`oldest` has just found."""
        assert self._ages is not None
        entry = self._ages[0][2]
        found = self._take_run(entry, pk.lowest(entry[2].mask, room))
        self._compact()
        return found

    def _take_run(self, entry: Entry, mask: int) -> Run:
        """Take messages of an entry out of it."""
        run: Run = entry[2]
        self.count -= mask.bit_count()
        if mask == run.mask:
            entry[2] = None
            self._live -= 1
            known = self._of[run.ordinal]
            if isinstance(known, dict) and len(known) > 1:
                del known[entry[1]]
            else:
                del self._of[run.ordinal]
            return run
        entry[2] = run._replace(mask=run.mask & ~mask)
        return run._replace(mask=mask)

    def _compact(self) -> None:
        """Entries without runs do not pile up until their time comes."""
        if len(self._heap) > 2 * self._live:
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapify(self._heap)
        if self._ages is not None and len(self._ages) > 2 * self._live:
            self._ages = None


def age_of(run: Run, *, by_priority: bool) -> Age:
    """What of messages that are with nobody is discarded first has the least."""
    return run.priority if by_priority else 0, run.ordinal, run.mask & -run.mask
