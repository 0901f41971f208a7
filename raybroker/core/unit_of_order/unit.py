"""A unit of order in a delivery queue: the session that has its messages, and the messages that wait behind them.

The messages of a unit are in the order in which the destination accepted them, also those of an open transaction: by
block and by index.  Those that a session has are the first ones, always.  What follows is either *behind*, ready to
go next, or *blocked*: it has its place and cannot go yet (an uncommitted send, a delivery time, a pause), and neither
can what comes after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Any

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.backlog import ANY, in_order
from raybroker.core.delivery.run import Run

Entry = tuple[int, int, int, tuple[int, int], "Unit"]
"""Place and lowest message of a unit's next run, a number, (priority, signature), the unit."""
_NOTHING: Any = ()
"""Shared by units without runs: units come and go by the thousand, and most never have any."""
_TRIM: int = 32
"""Runs that may have left a unit before its list is compacted."""


class UnitOwner:
    """An owner of units: a session, or a transaction that a restart found. ``units``: how many units it owns.

    ready          by (priority, signature) the units that have more for it, those with the earliest message first
    owner_batches  what waits for it as parts of blocks, in order; of each unit the last that there is
    """

    __slots__ = ("_number", "name", "owner_batches", "ready", "units")

    def __init__(self, name: str | int) -> None:
        self.name = name
        self.units = 0
        self.ready: dict[tuple[int, int], list[Entry]] = {}
        self.owner_batches: deque[Run] = deque()
        self._number = 0

    def add(self, unit: Unit, run: Run, signature: int) -> None:
        """``run`` is what the unit has next."""
        key, low = (run.priority, signature), run.mask & -run.mask
        listed = unit.listed
        if listed is not None and listed[0] == run.arrival and listed[1] == low and listed[3] == key:
            return
        self._number += 1
        entry = unit.listed = run.arrival, low, self._number, key, unit
        heappush(self.ready.setdefault(key, []), entry)

    def first(self, selector: int) -> Entry | None:
        """The unit to serve next to a consumer with that selector."""
        best: Entry | None = None
        empty = False
        for key, heap in self.ready.items():
            while heap and heap[0][4].listed is not heap[0]:
                heappop(heap)
            if not heap:
                empty = True
                continue
            for_him = selector == ANY or key[1] >> selector & 1
            if for_him and (best is None or (-key[0], *heap[0][:2]) < (-best[3][0], *best[:2])):
                best = heap[0]
        if empty:
            self.ready = {key: heap for key, heap in self.ready.items() if heap}
        return best

    def listed(self, selector: int) -> Iterator[Unit]:
        """All units that have more for a consumer with that selector, in no certain order."""
        for key, heap in self.ready.items():
            if selector == ANY or key[1] >> selector & 1:
                for entry in heap:
                    if entry[4].listed is entry:
                        yield entry[4]

    def pop(self, entry: Entry) -> None:
        """Take out what :meth:`first` has just returned."""
        heappop(self.ready[entry[3]])
        entry[4].listed = None


class Unit:
    """``held`` messages are with ``owner``, ``staged`` of them acknowledged in transaction ``txn``.

    head     (block, message) that is on a bucket, where any consumer may take it; only while no session has the unit
    runs     behind, ascending; no messages of another unit
    batched  messages in owner batches of its owner, behind all ``runs``; then nothing of it is blocked or staged
    blocked  (block, index) of blocked messages, ascending
    listed   its entry in what is ready for its owner
    """

    __slots__ = (
        "_first",
        "batched",
        "blocked",
        "head",
        "held",
        "listed",
        "name",
        "owner",
        "runs",
        "since_ms",
        "staged",
        "txn",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: UnitOwner | None = None
        self.since_ms = 0
        """When it got its owner, measured."""
        self.held = 0
        self.staged = 0
        self.txn = 0
        self.head: tuple[int, int] | None = None
        self.runs: list[Run] = _NOTHING
        self.batched = 0
        self.blocked: list[tuple[int, int]] = _NOTHING
        self.listed: Entry | None = None
        self._first = 0

    def waiting(self) -> list[Run]:
        return self.runs[self._first :]

    def next(self) -> Run | None:
        """The first run behind, blocked or not."""
        return self.runs[self._first] if self.runs else None

    def front(self) -> Run | None:
        """What could go next: the first run behind, up to the first message that is blocked."""
        if not self.runs:
            return None
        run = self.runs[self._first]
        if self.blocked:
            ordinal, index = self.blocked[0]
            if ordinal < run.ordinal:
                return None
            if ordinal == run.ordinal:
                mask = run.mask & ((1 << index) - 1)
                return run._replace(mask=mask) if mask else None
        return run

    def overtaken(self) -> bool:
        """Whether the head is no longer the first message of the unit."""
        assert self.head is not None
        run = self.next()
        if run is not None and (run.ordinal, run.mask & -run.mask) < self.head:
            return True
        return bool(self.blocked) and (self.blocked[0][0], 1 << self.blocked[0][1]) < self.head

    def insert(self, run: Run) -> None:
        """Insert messages at their place."""
        runs = self.runs
        if not runs:
            self.runs = [run]
        elif runs[-1].ordinal < run.ordinal:
            runs.append(run)
        elif run.ordinal < runs[self._first].ordinal:
            if self._first:
                self._first -= 1
                runs[self._first] = run
            else:
                runs.insert(0, run)
        else:
            low = bisect_left(runs, run.ordinal, self._first, key=_ordinal)
            high = bisect_right(runs, run.ordinal, low, key=_ordinal)
            runs[low:high] = in_order([run, *runs[low:high]]) if low < high else [run]

    def remove_first(self, mask: int) -> None:
        """These messages of the first run leave."""
        runs, first = self.runs, self._first
        arrival, ordinal, rest, attempts, failures, priority = runs[first]
        rest &= ~mask
        if rest:
            runs[first] = Run(arrival, ordinal, rest, attempts, failures, priority)
            return
        self._first = first + 1
        if self._first == len(runs):
            self.runs = _NOTHING
            self._first = 0
        elif self._first > _TRIM and self._first * 2 > len(runs):
            del runs[: self._first]
            self._first = 0

    def remove(self, ordinal: int, mask: int) -> list[Run]:
        """Remove those of a block's messages that wait in the unit; returns them."""
        runs = self.runs
        low = bisect_left(runs, ordinal, self._first, key=_ordinal)
        high = bisect_right(runs, ordinal, low, key=_ordinal)
        removed = [run._replace(mask=run.mask & mask) for run in runs[low:high] if run.mask & mask]
        if removed:
            kept = [run._replace(mask=run.mask & ~mask) for run in runs[low:high] if run.mask & ~mask]
            runs[low:high] = kept
            if self._first == len(runs):
                self.runs = _NOTHING
                self._first = 0
        return removed

    def clear(self, reserved: Mapping[int, int]) -> None:
        """Remove everything that waits but the places in ``reserved``, whose messages are not visible yet."""
        self.runs = _NOTHING
        self._first = self.batched = 0
        self.head = self.listed = None
        self.blocked = [(ordinal, index) for ordinal, index in self.blocked if reserved.get(ordinal, 0) >> index & 1]

    def hold_place(self, ordinal: int, index: int) -> None:
        if not self.blocked:
            self.blocked = [(ordinal, index)]
            return
        at = bisect_left(self.blocked, (ordinal, index))
        if at == len(self.blocked) or self.blocked[at] != (ordinal, index):
            insort(self.blocked, (ordinal, index))

    def unblock(self, ordinal: int, index: int) -> bool:
        """A message is blocked no longer; False when it was not."""
        at = bisect_left(self.blocked, (ordinal, index))
        if at < len(self.blocked) and self.blocked[at] == (ordinal, index):
            del self.blocked[at]
            return True
        return False


def _ordinal(run: Run) -> int:
    return run.ordinal


def by_unit(names: tuple[str | None, ...] | None, mask: int) -> dict[str, int]:
    """Messages of a block by their units, of which ``names`` is the column."""
    found: dict[str, int] = {}
    if names is None:
        return found
    for index in pk.indexes(mask):
        name = names[index]
        if name is not None:
            found[name] = found.get(name, 0) | 1 << index
    return found
