"""Messages that wait for a consumer, as runs of blocks on shelves.

A shelf holds what has one priority and matches the same selectors, so that nobody ever walks past messages that are not
for him: a consumer looks at the heads of the shelves that are, takes the highest priority first and within it what came
first (B-21, B-22).  Without selectors and with one priority there is one shelf.

On a shelf, fresh messages come at the end and leave at the front; what a consumer gives back goes to its old place,
which is found by its ``place``, a number that grows with every arrival.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from typing import Final, NamedTuple

from raybroker.core import picks as pk

ANY: Final = -1
"""The consumer has no selector."""
UNSORTED: Final = -1
"""Signature of a shelf whose messages were not compared with the selectors yet."""


class Run(NamedTuple):
    """Messages ``picks`` of block ``ordinal``, of one priority, handed out ``attempts`` times before.

    place     order of arrival in the lane
    failures  how often handing them out ended in a failure
    """

    place: int
    ordinal: int
    picks: int
    attempts: int
    failures: int
    priority: int

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.picks.bit_count()


def position(run: Run) -> tuple[int, int]:
    """What runs are ordered by: by place, and within a block by the lowest message."""
    return run.place, run.picks & -run.picks


def _from_last(run: Run) -> tuple[int, int]:
    return -run.place, -(run.picks & -run.picks)


def _backwards(run: Run) -> int:
    return -run.place


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Runs of one block, joined where they match and cut where they overlap."""
    left: dict[tuple[int, ...], Run] = {}
    for run in runs:
        same = left.get(run[3:])
        left[run[3:]] = run if same is None else same._replace(picks=same.picks | run.picks)
    found: list[Run] = []
    while left:
        lows = sorted((run.picks & -run.picks, key) for key, run in left.items())
        first = left.pop(lows[0][1])
        here = first.picks & (lows[1][0] - 1) if len(lows) > 1 else first.picks
        found.append(first._replace(picks=here))
        if first.picks != here:
            left[lows[0][1]] = first._replace(picks=first.picks & ~here)
    return found


class Shelf:
    """``fresh``: never handed out, ascending. ``returned``: given back, descending: the next one is at the end."""

    __slots__ = ("fresh", "priority", "returned", "signature")

    def __init__(self, priority: int, signature: int) -> None:
        self.priority = priority
        self.signature = signature
        self.fresh: deque[Run] = deque()
        self.returned: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned)

    def head(self) -> Run:
        returned = self._returned_next()
        return self.returned[-1] if returned else self.fresh[0]

    def _returned_next(self) -> bool:
        if not self.returned:
            return False
        return not self.fresh or position(self.returned[-1]) < position(self.fresh[0])

    def give_back(self, run: Run) -> None:
        """Put a run back to its place, joined with the one after it where they match. Cheap from last to first."""
        returned = self.returned
        if returned:
            following = returned[-1]
            if run.place == following.place:
                if run.picks >= following.picks & -following.picks:
                    self._mix(run)
                    return
                if run[3:] == following[3:]:
                    returned[-1] = following._replace(picks=following.picks | run.picks)
                    return
            elif run.place > following.place:
                self._mix(run)
                return
        returned.append(run)

    def _mix(self, run: Run) -> None:
        """Put a run between others; where they are of one block, cut them so that its messages stay in order."""
        returned = self.returned
        low = bisect_left(returned, -run.place, key=_backwards)
        high = bisect_right(returned, -run.place, lo=low, key=_backwards)
        if low == high:
            returned.insert(low, run)
        else:
            returned[low:high] = reversed(in_order([run, *returned[low:high]]))

    def take(self, room: int) -> Run:
        """The next run of at most ``room`` messages."""
        run = self.head()
        stop = self.stop()
        taken = run.picks & (stop - 1) if stop else run.picks
        return self.take_of_head(taken if taken.bit_count() <= room else pk.lowest(taken, room))

    def stop(self) -> int:
        """The bit of the first message of the head's block that stands here behind the head's run, 0 for none."""
        fresh, returned = self.fresh, self.returned
        at = self._returned_next()
        place = (returned[-1] if at else fresh[0]).place
        second = returned[-2:-1] if at else returned[-1:]
        other = fresh[0] if at and fresh else fresh[1] if not at and len(fresh) > 1 else None
        bits = [run.picks & -run.picks for run in (*second, other) if run is not None and run.place == place]
        return min(bits, default=0)

    def take_of_head(self, picks: int) -> Run:
        """These messages of the head's run, which has them all."""
        from_returned = self._returned_next()
        run = self.returned.pop() if from_returned else self.fresh.popleft()
        if picks == run.picks:
            return run
        rest = run._replace(picks=run.picks & ~picks)
        if from_returned:
            self.returned.append(rest)
        else:
            self.fresh.appendleft(rest)
        return run._replace(picks=picks)

    def runs(self) -> Iterator[Run]:
        """All runs in order."""
        return merge(reversed(self.returned), self.fresh, key=position)


class Backlog:
    """``count`` messages on ``shelves``, which are by (priority, signature); an empty shelf is taken away."""

    __slots__ = ("_last", "count", "shelves")

    def __init__(self) -> None:
        self.shelves: dict[tuple[int, int], Shelf] = {}
        self.count = 0
        self._last: Shelf | None = None
        """Where the last run was put; most go there again."""

    def __bool__(self) -> bool:
        return self.count > 0

    def shelf(self, priority: int, signature: int) -> Shelf:
        last = self._last
        if last is not None and last.priority == priority and last.signature == signature:
            return last
        shelf = self.shelves.get((priority, signature))
        if shelf is None:
            shelf = self.shelves[priority, signature] = Shelf(priority, signature)
        self._last = shelf
        return shelf

    def append(self, run: Run, signature: int = 0) -> None:
        """A run has arrived; its place is beyond all others."""
        self.shelf(run.priority, signature).fresh.append(run)
        self.count += run.picks.bit_count()

    def give_back(self, run: Run, signature: int = 0) -> None:
        """A run comes back to its place."""
        self.shelf(run.priority, signature).give_back(run)
        self.count += run.picks.bit_count()

    def take(self, room: int, selector: int = ANY) -> Run | None:
        """The next run of at most ``room`` messages for a consumer with that selector; None when nothing is for it."""
        shelves = self.shelves
        if len(shelves) == 1 and selector == ANY:
            (shelf,) = shelves.values()
            run = shelf.take(room)
            self.count -= run.picks.bit_count()
            if not shelf:
                self._drop(shelf)
            return run
        for_him = self._for(selector)
        return self._take_first(for_him, room) if for_him else None

    def _for(self, selector: int) -> list[Shelf]:
        """The shelves with the highest priority that there is for a consumer with that selector."""
        for_him = [
            s for s in self.shelves.values()
            if selector == ANY or (s.signature != UNSORTED and s.signature >> selector & 1)
        ]  # fmt: skip
        if len(for_him) < 2:
            return for_him
        highest = max(s.priority for s in for_him)
        return [s for s in for_him if s.priority == highest]

    def first(self, selector: int = ANY) -> Run | None:
        """The run with which :meth:`take` would begin."""
        heads = [shelf.head() for shelf in self._for(selector)]
        return min(heads, key=position) if heads else None

    def has_for(self, selector: int) -> bool:
        """Whether :meth:`take` would find something for a consumer with that selector."""
        if selector == ANY:
            return bool(self.shelves)
        return any(s.signature != UNSORTED and s.signature >> selector & 1 for s in self.shelves.values())

    def _take_first(self, shelves: list[Shelf], room: int) -> Run:
        """The next messages of these shelves: of one block, alike, and before everything else on them."""
        heads = [shelf.head() for shelf in shelves]
        first = min(heads, key=position)
        alike, stops = [], []
        for shelf, head in zip(shelves, heads, strict=True):
            if head.place != first.place:
                continue
            if head[3:] == first[3:]:
                alike.append((shelf, head))
                stops.append(shelf.stop())
            else:
                stops.append(head.picks & -head.picks)
        taken = 0
        for _, head in alike:
            taken |= head.picks
        stop = min((bit for bit in stops if bit), default=0)
        if stop:
            taken &= stop - 1
        taken = pk.lowest(taken, room)
        for shelf, head in alike:
            if head.picks & taken:
                shelf.take_of_head(head.picks & taken)
                if not shelf:
                    self._drop(shelf)
        self.count -= taken.bit_count()
        return first._replace(picks=taken)

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> Run | None:
        """The run to discard first: the oldest (D-11), or the oldest of the lowest priority (D-12)."""
        if not self.shelves:
            return None
        if lowest_priority:
            lowest = min(shelf.priority for shelf in self.shelves.values())
            candidates = [shelf for shelf in self.shelves.values() if shelf.priority == lowest]
        else:
            candidates = list(self.shelves.values())
        return self._take_first(candidates, room)

    def _drop(self, shelf: Shelf) -> None:
        del self.shelves[shelf.priority, shelf.signature]
        if self._last is shelf:
            self._last = None

    def runs(self) -> Iterator[Run]:
        """All runs: the highest priority first, in order within it."""
        for priority in sorted({shelf.priority for shelf in self.shelves.values()}, reverse=True):
            shelves = [shelf.runs() for shelf in self.shelves.values() if shelf.priority == priority]
            yield from merge(*shelves, key=position)

    def clear(self) -> list[Run]:
        """Take everything out; returns it in order."""
        runs = list(self.runs())
        self.shelves.clear()
        self._last = None
        self.count = 0
        return runs

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take messages out, given as block → picks; returns those that were here. Looks at every run once."""
        removed: list[Run] = []
        for shelf in list(self.shelves.values()):
            if any(run.ordinal in chosen for run in shelf.fresh):
                shelf.fresh = deque(_without(shelf.fresh, chosen, removed))
            if any(run.ordinal in chosen for run in shelf.returned):
                shelf.returned = list(_without(shelf.returned, chosen, removed))
            if not shelf:
                self._drop(shelf)
        self.count -= sum(run.picks.bit_count() for run in removed)
        return removed

    # ---- selectors -------------------------------------------------------------------------------------------------

    def unsort(self) -> None:
        """The selectors have changed: everything has to be compared with them again."""
        by_priority: dict[int, list[Shelf]] = {}
        for shelf in self.shelves.values():
            by_priority.setdefault(shelf.priority, []).append(shelf)
        self.shelves = {}
        self._last = None
        for priority, shelves in by_priority.items():
            whole = Shelf(priority, UNSORTED)
            for run in merge(*(s.fresh for s in shelves), key=position):
                if whole.fresh and whole.fresh[-1].place == run.place:
                    whole.fresh[-1] = run._replace(picks=run.picks | whole.fresh[-1].picks)
                else:
                    whole.fresh.append(run)
            for run in merge(*(s.returned for s in shelves), key=_from_last):
                whole.give_back(run)
            self.shelves[priority, UNSORTED] = whole

    def has_unsorted(self, priority: int) -> bool:
        return (priority, UNSORTED) in self.shelves

    def sort_some(self, most: int, classify: Callable[[Run], Iterable[tuple[int, int]]]) -> bool:
        """Compare up to about ``most`` messages with the selectors; True when some are left unsorted."""
        for priority in sorted((p for p, signature in self.shelves if signature == UNSORTED), reverse=True):
            whole = self.shelves[priority, UNSORTED]
            while most > 0 and whole:
                given_back = whole._returned_next()
                run = whole.take(most)
                size = run.picks.bit_count()
                most -= size
                self.count -= size
                for signature, picks in classify(run):
                    part = run._replace(picks=picks)
                    if given_back:
                        self.give_back(part, signature)
                    else:
                        self.append(part, signature)
            if whole:
                return True
            self._drop(whole)
        return False


def _without(runs: Iterable[Run], chosen: Mapping[int, int], removed: list[Run]) -> Iterator[Run]:
    for run in runs:
        gone = run.picks & chosen.get(run.ordinal, 0)
        if not gone:
            yield run
            continue
        removed.append(run._replace(picks=gone))
        if gone != run.picks:
            yield run._replace(picks=run.picks & ~gone)
