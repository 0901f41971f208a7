"""Messages of a sorted destination that wait for a consumer: a heap for each set of selectors that they match.

An entry of a heap stands for the messages of one block that have the same key: one entry for a block where the key is
coarse (a priority, a timestamp), one for each message where it is fine.  That costs about 0.3 KB a message, and log n
comparisons to put one in and to take it out; a destination without keys has a
:class:`~raybroker.core.delivery.backlog.Backlog`, which costs neither.

Headers are at hand when a block arrives, and not when it is found after a restart or comes back: its messages then wait
without a key until :meth:`SortedBacklog.sort_some`, or whoever wants the next message, has read some in each step.
Until all have a key nobody knows which is next, and nothing is handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.backlog import ANY, PAGE_RUNS, UNSORTED
from raybroker.core.delivery.run import PackedRuns, Run
from raybroker.core.delivery.selector_index import Contents
from raybroker.core.delivery.sort_order import Key, SortOrder
from raybroker.core.step import Step

KEYED_MAX: Final = 2_048
"""Messages that get their keys in one go."""

Entry = tuple[Key, int, int, int, int, int, int, int]
"""Key, order of arrival, message, block, messages (0: that one alone), attempts, failures, priority.

The first three are what entries are ordered by, and no two entries have all of them alike."""
Position = tuple[Key, int, int]


class SortedBacklog:
    """``count`` messages; ``heaps`` by signature. The interface is that of Backlog."""

    __slots__ = ("_contents", "_order", "_step", "_unkeyed", "count", "heaps")

    def __init__(self, order: SortOrder, step: Step) -> None:
        self.count = 0
        self.heaps: dict[int, list[Entry]] = {}
        self._order = order
        self._step = step
        self._contents = Contents(step.peek)
        self._unkeyed: deque[tuple[int, Run | PackedRuns]] = deque()

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def unfinished(self) -> bool:
        """Messages wait that have no key yet, or were not compared with the selectors."""
        return bool(self._unkeyed) or UNSORTED in self.heaps

    # ---- coming in -------------------------------------------------------------------------------------------------

    def append(self, run: Run, signature: int = 0) -> None:
        """A run waits, at the place that its keys give it."""
        self.count += run.mask.bit_count()
        if self._order.needs_headers:
            step = self._step
            content = step.arriving if run.ordinal == step.out.accepted else None
            if content is None:
                self._unkeyed.append((signature, run))
                return
            for key, mask in self._order.groups(run, content):
                self._push(key, run._replace(mask=mask), signature)
        else:
            self._push(self._order.key(run, None, 0), run, signature)

    def give_back(self, run: Run, signature: int = 0) -> None:
        """A run comes back to its place: among equal keys it is where it was."""
        self.append(run, signature)

    def append_alone(self, arrivals: Sequence[int], ordinals: Sequence[int], priority: int) -> None:
        """Runs of the first message of each of these blocks wait."""
        for at in range(0, len(arrivals), PAGE_RUNS):
            page = PackedRuns(arrivals[at : at + PAGE_RUNS], ordinals[at : at + PAGE_RUNS], priority)
            self._unkeyed.append((0, page))
        self.count += len(arrivals)

    def _push(self, key: Key, run: Run, signature: int) -> None:
        arrival, ordinal, mask, attempts, failures, priority = run
        alone = not mask & (mask - 1)
        if self._order.newest_first:
            arrival, index = -arrival, 1 - mask.bit_length()
        else:
            index = (mask & -mask).bit_length() - 1
        entry = key, arrival, index, ordinal, 0 if alone else mask, attempts, failures, priority
        heap = self.heaps.get(signature)
        if heap is None:
            self.heaps[signature] = [entry]
        else:
            heappush(heap, entry)

    def key_some(self, most: int = KEYED_MAX) -> bool:
        """Give up to about ``most`` messages their keys; True when all have one."""
        while self._unkeyed and most > 0:
            signature, waiting = self._unkeyed.popleft()
            for run in (waiting,) if isinstance(waiting, Run) else waiting:
                content = self._contents.content_of(run.ordinal) if self._order.needs_headers else None
                for key, mask in self._order.groups(run, content):
                    self._push(key, run._replace(mask=mask), signature)
                most -= run.mask.bit_count()
        return not self._unkeyed

    # ---- going out -------------------------------------------------------------------------------------------------

    def take_run(self, room: int, selector: int = ANY) -> Run | None:
        """The next run of at most ``room`` messages for a consumer with that selector; None when nothing is for it."""
        heap = self._next(selector)
        if heap is None:
            return None
        run = self._pop(heap, room, selector)
        taken, end = run.mask, run.mask.bit_length()
        while (room := room - run.mask.bit_count()) > 0 and not self._order.newest_first:
            heap = self._next(selector)
            if heap is None:
                break
            _, arrival, index, ordinal, _, attempts, failures, priority = heap[0]
            if index < end or (arrival, ordinal, attempts, failures, priority) != (*run[:2], *run[3:]):
                break
            run = self._pop(heap, room, selector)
            taken |= run.mask
            end = run.mask.bit_length()
        self.count -= taken.bit_count()
        return run._replace(mask=taken)

    def _next(self, selector: int) -> list[Entry] | None:
        """The heap with the next message for a consumer with that selector."""
        if self._unkeyed and not self.key_some():
            return None
        best: list[Entry] | None = None
        for signature, heap in self.heaps.items():
            wanted = selector == ANY or (signature != UNSORTED and signature >> selector & 1)
            if wanted and (best is None or heap[0] < best[0]):
                best = heap
        return best

    def _pop(self, heap: list[Entry], room: int, selector: int) -> Run:
        """Take up to ``room`` messages of the first entry, and none that comes behind another entry."""
        entry = heappop(heap)
        run = run_of(entry)
        signature = next(s for s, other in self.heaps.items() if other is heap)
        if not heap:
            del self.heaps[signature]
        if not entry[4]:
            return run
        if self._order.newest_first:
            mask = 1 << run.mask.bit_length() - 1
        else:
            following = self._next(selector)
            mask = run.mask
            if following is not None and following[0][:2] == entry[:2]:
                mask &= (1 << following[0][2]) - 1
            mask = pk.lowest(mask, room)
        if mask != run.mask:
            self._push(entry[0], run._replace(mask=run.mask & ~mask), signature)
        return run._replace(mask=mask)

    def first(self, selector: int = ANY) -> Run | None:
        """A run of which :meth:`take_run` would hand out the first message."""
        heap = self._next(selector)
        return run_of(heap[0]) if heap is not None else None

    def has_for(self, selector: int) -> bool:
        """Whether :meth:`take_run` would find something for a consumer with that selector."""
        return self._next(selector) is not None

    @property
    def keyed(self) -> bool:
        """Every message has its key."""
        return not self._unkeyed

    def position_of_next(self, selector: int) -> Position:
        """What the message is ordered by that :meth:`take_run` would begin with; there has to be one."""
        heap = self._next(selector)
        assert heap is not None
        return heap[0][:3]

    def position(self, run: Run) -> Position:
        """What the first message of a run is ordered by."""
        index = pk.first_of(run.mask)
        content = self._contents.content_of(run.ordinal) if self._order.needs_headers else None
        key = self._order.key(run, content, index)
        return (key, -run.arrival, -index) if self._order.newest_first else (key, run.arrival, index)

    # ---- taking out ------------------------------------------------------------------------------------------------

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> Run | None:
        """The run to discard first, as in Backlog. Looks at every message."""
        found = self.next_to_remove(lowest_priority=lowest_priority)
        if found is None:
            return None
        (run,) = self.remove({found.ordinal: pk.lowest(found.mask, room)})
        return run

    def next_to_remove(self, *, lowest_priority: bool) -> Run | None:
        """The run with which :meth:`take_to_remove` would begin. Looks at every message."""

        def rank(run: Run) -> tuple[int, int, int]:
            return run.priority if lowest_priority else 0, run.arrival, run.mask & -run.mask

        return min(self._all(), key=rank, default=None)

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take messages out, given as block → mask; returns those that were here. Looks at every message."""
        removed: list[Run] = []
        for signature, heap in list(self.heaps.items()):
            hit = [entry for entry in heap if entry[3] in chosen]
            if not hit:
                continue
            kept = [entry for entry in heap if entry[3] not in chosen]
            self.heaps[signature] = kept
            heapify(kept)
            for entry in hit:
                for rest in _divide(run_of(entry), chosen, removed):
                    self._push(entry[0], rest, signature)
            if not self.heaps[signature]:
                del self.heaps[signature]
        unkeyed, self._unkeyed = self._unkeyed, deque()
        for signature, waiting in unkeyed:
            if not _concerns(waiting, chosen):
                self._unkeyed.append((signature, waiting))
                continue
            for run in (waiting,) if isinstance(waiting, Run) else waiting:
                for rest in _divide(run, chosen, removed):
                    self._unkeyed.append((signature, rest))
        self.count -= sum(run.mask.bit_count() for run in removed)
        return removed

    def clear(self) -> list[Run]:
        """Take everything out; returns it in order."""
        runs = list(self.runs())
        self.heaps.clear()
        self._unkeyed.clear()
        self.count = 0
        return runs

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _all(self) -> Iterator[Run]:
        for heap in self.heaps.values():
            yield from map(run_of, heap)
        yield from self._without_key()

    def _without_key(self) -> Iterator[Run]:
        for _, waiting in self._unkeyed:
            yield from (waiting,) if isinstance(waiting, Run) else waiting

    def runs(self) -> Iterator[Run]:
        """All runs in order; those without a key come last."""
        yield from map(run_of, sorted(entry for heap in self.heaps.values() for entry in heap))
        yield from self._without_key()

    def tried(self) -> Iterator[Run]:
        """All runs that were handed out before, in no certain order."""
        return (run for run in self._all() if run.attempts or run.failures)

    def by_signature(self) -> Iterator[tuple[int, Iterator[Run]]]:
        """The runs that were compared with the selectors, by what they match."""
        for signature, heap in self.heaps.items():
            if signature != UNSORTED:
                yield signature, map(run_of, heap)

    # ---- selectors -------------------------------------------------------------------------------------------------

    def unsort(self) -> None:
        """The selectors have changed: everything has to be compared with them again."""
        entries = [entry for heap in self.heaps.values() for entry in heap]
        heapify(entries)
        self.heaps = {UNSORTED: entries} if entries else {}
        self._unkeyed = deque((UNSORTED, waiting) for _, waiting in self._unkeyed)

    def has_unsorted(self, priority: int) -> bool:
        return UNSORTED in self.heaps or any(signature == UNSORTED for signature, _ in self._unkeyed)

    def sort_some(self, most: int, classify: Callable[[Run], Iterable[tuple[int, int]]]) -> bool:
        """Find keys, and compare with the selectors, up to about ``most`` messages; True when some are left."""
        if not self.key_some(most):
            return True
        heap = self.heaps.get(UNSORTED)
        while heap and most > 0:
            entry = heappop(heap)
            run = run_of(entry)
            most -= run.mask.bit_count()
            for signature, mask in classify(run):
                self._push(entry[0], run._replace(mask=mask), signature)
        if heap is not None and not heap:
            del self.heaps[UNSORTED]
        return self.unfinished

    def check(self) -> None:
        """Raises AssertionError unless the heaps are heaps."""
        for heap in self.heaps.values():
            assert heap, "an empty heap is kept"
            for at in range(1, len(heap)):
                assert heap[(at - 1) // 2] < heap[at], f"{heap[at]} is out of order"


def _concerns(waiting: Run | PackedRuns, chosen: Mapping[int, int]) -> bool:
    return waiting.ordinal in chosen if isinstance(waiting, Run) else waiting.any_of(chosen)


def _divide(run: Run, chosen: Mapping[int, int], removed: list[Run]) -> Iterator[Run]:
    """What of a run stays; the rest is put to ``removed``."""
    gone = run.mask & chosen.get(run.ordinal, 0)
    if gone:
        removed.append(run._replace(mask=gone))
    if gone != run.mask:
        yield run._replace(mask=run.mask & ~gone)


def run_of(entry: Entry) -> Run:
    """The messages of an entry."""
    _, arrival, index, ordinal, mask, attempts, failures, priority = entry
    return Run(abs(arrival), ordinal, mask or 1 << abs(index), attempts, failures, priority)
