"""Messages that wait for a consumer, as runs of blocks on buckets.

A bucket holds the messages of one priority that match the same selectors, so that a consumer never walks past messages
that it does not want: it looks at the heads of the buckets that match, and takes the highest priority first, and within
it the oldest.  Without selectors and with one priority there is one bucket.

On a bucket, fresh messages come at the end and leave at the front; what a consumer gives back goes to its old place,
which is found by its ``arrival``, a number that grows with every arrival.

Of a long bucket only the front and the tail are objects: what is between is packed, see
:class:`~raybroker.core.delivery.run.PackedRuns`, and unpacked by ``PAGE_RUNS`` when its turn comes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby
from typing import Final

from raybroker.core.blocks import message_mask as pk
from raybroker.core.delivery.run import PackedRuns, Run, position
from raybroker.model.blocks.block import BLOCK_MESSAGES_MAX

ANY: Final = -1
"""The consumer has no selector."""
UNSORTED: Final = -1
"""Signature of a bucket whose messages were not compared with the selectors yet."""
PAGE_RUNS: Final = 256
"""Runs that are packed and unpacked together."""
TAIL_RUNS: Final = 768
"""Runs at the end of a bucket before the first of them are packed."""


def _from_last(run: Run) -> tuple[int, int]:
    return -run.arrival, -(run.mask & -run.mask)


def _arrival(run: Run) -> int:
    return run.arrival


def _backwards(run: Run) -> int:
    return -run.arrival


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Runs of one block, joined where they match and cut where they overlap."""
    left: dict[tuple[int, ...], Run] = {}
    for run in runs:
        same = left.get(run[3:])
        left[run[3:]] = run if same is None else same._replace(mask=same.mask | run.mask)
    found: list[Run] = []
    while left:
        lows = sorted((run.mask & -run.mask, key) for key, run in left.items())
        first = left.pop(lows[0][1])
        here = first.mask & (lows[1][0] - 1) if len(lows) > 1 else first.mask
        found.append(first._replace(mask=here))
        if first.mask != here:
            left[lows[0][1]] = first._replace(mask=first.mask & ~here)
    return found


class Bucket:
    """``fresh``: never handed out, ascending. ``returned``: given back, descending: the next one is at the end.

    Fresh runs stand in ``fresh``, then in ``pages``, then in ``tail``, where new ones come; a page that could not be
    packed is a list.  Without pages the tail is ``fresh`` itself; with them ``fresh`` has at least two.
    """

    __slots__ = ("fresh", "pages", "priority", "returned", "signature", "tail")

    def __init__(self, priority: int, signature: int) -> None:
        self.priority = priority
        self.signature = signature
        self.fresh: deque[Run] = deque()
        self.pages: deque[PackedRuns | list[Run]] = deque()
        self.tail = self.fresh
        self.returned: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned)

    def push(self, run: Run) -> None:
        """A fresh run comes behind all others."""
        self.tail.append(run)
        if len(self.tail) > TAIL_RUNS:
            self.pack()

    def pack(self) -> None:
        """Make a page of the first runs of the tail, but for the front of the bucket."""
        if self.tail is self.fresh:
            self.fresh = deque([self.tail.popleft() for _ in range(max(PAGE_RUNS, 2))])
        page = [self.tail.popleft() for _ in range(PAGE_RUNS)]
        self.pages.append(PackedRuns.pack(page) or page)

    def push_pages(self, arrivals: Sequence[int], ordinals: Sequence[int]) -> None:
        """Fresh runs of the first message of each of these blocks come behind all others."""
        if len(arrivals) < PAGE_RUNS:
            for arrival, ordinal in zip(arrivals, ordinals, strict=True):
                self.push(Run(arrival, ordinal, 1, 0, 0, self.priority))
            return
        if self.tail is self.fresh:
            self.tail = deque()
        while self.tail:
            page = [self.tail.popleft() for _ in range(min(PAGE_RUNS, len(self.tail)))]
            self.pages.append(PackedRuns.pack(page) or page)
        for at in range(0, len(arrivals), PAGE_RUNS):
            end = at + PAGE_RUNS
            self.pages.append(PackedRuns(arrivals[at:end], ordinals[at:end], self.priority))
        self.refill()

    def refill(self) -> None:
        """Something was taken from the front: unpack the next page if the front is short."""
        while len(self.fresh) < 2 and self.tail is not self.fresh:
            if self.pages:
                self.fresh.extend(self.pages.popleft())
            else:
                self.fresh.extend(self.tail)
                self.tail = self.fresh

    def all_fresh(self) -> Iterator[Run]:
        """All fresh runs in order."""
        if self.tail is self.fresh:
            return iter(self.fresh)
        return chain(self.fresh, chain.from_iterable(self.pages), self.tail)

    def remove(self, chosen: Mapping[int, int], removed: list[Run]) -> None:
        """Take messages out, given as block → mask; those that were here are put to ``removed``."""
        whole = self.tail is self.fresh
        if any(run.ordinal in chosen for run in self.fresh):
            self.fresh = deque(_without(self.fresh, chosen, removed))
        if whole:
            self.tail = self.fresh
        else:
            self.pages = deque(page for page in (_page_without(p, chosen, removed) for p in self.pages) if page)
            self.tail = deque(_without(self.tail, chosen, removed))
            self.refill()
        if any(run.ordinal in chosen for run in self.returned):
            self.returned = list(_without(self.returned, chosen, removed))

    def take_near(self, chosen: Mapping[int, int], last: int, removed: list[Run]) -> None:
        """Take messages out, as :meth:`remove` does, of runs that came no later than ``last``; looks at those alone."""
        fresh, kept = self.fresh, list[Run]()
        while fresh and fresh[0].arrival <= last:
            kept += _without((fresh.popleft(),), chosen, removed)
            if len(fresh) < 2 and self.tail is not fresh:
                self.refill()
        fresh.extendleft(reversed(kept))
        if any(run.ordinal in chosen for run in self.returned):
            self.returned = list(_without(self.returned, chosen, removed))

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
            if run.arrival == following.arrival:
                if run.mask >= following.mask & -following.mask:
                    self._mix(run)
                    return
                if run[3:] == following[3:]:
                    returned[-1] = following._replace(mask=following.mask | run.mask)
                    return
            elif run.arrival > following.arrival:
                self._mix(run)
                return
        returned.append(run)

    def _mix(self, run: Run) -> None:
        """Put a run between others; where they are of one block, cut them so that its messages stay in order."""
        returned = self.returned
        low = bisect_left(returned, -run.arrival, key=_backwards)
        high = bisect_right(returned, -run.arrival, lo=low, key=_backwards)
        if low == high:
            returned.insert(low, run)
        else:
            returned[low:high] = reversed(in_order([run, *returned[low:high]]))

    def take_run(self, room: int) -> Run:
        """The next run of at most ``room`` messages."""
        fresh = self.fresh
        alone = not self.returned and (len(fresh) == 1 or fresh[1].arrival != fresh[0].arrival)
        if alone and fresh[0].mask.bit_count() <= room:
            run = fresh.popleft()
            if len(fresh) < 2 and self.tail is not fresh:
                self.refill()
            return run
        run = self.head()
        stop = self.stop()
        taken = run.mask & (stop - 1) if stop else run.mask
        return self.take_of_head(taken if taken.bit_count() <= room else pk.lowest(taken, room))

    def stop(self) -> int:
        """The bit of the first message of the head's block that stands here behind the head's run, 0 for none."""
        fresh, returned = self.fresh, self.returned
        at = self._returned_next()
        arrival = (returned[-1] if at else fresh[0]).arrival
        second = returned[-2:-1] if at else returned[-1:]
        other = fresh[0] if at and fresh else fresh[1] if not at and len(fresh) > 1 else None
        bits = [run.mask & -run.mask for run in (*second, other) if run is not None and run.arrival == arrival]
        return min(bits, default=0)

    def take_of_head(self, mask: int) -> Run:
        """Take these messages of the head's run, which has them all."""
        from_returned = self._returned_next()
        run = self.returned.pop() if from_returned else self.fresh.popleft()
        if mask != run.mask:
            rest = run._replace(mask=run.mask & ~mask)
            if from_returned:
                self.returned.append(rest)
            else:
                self.fresh.appendleft(rest)
            run = run._replace(mask=mask)
        if len(self.fresh) < 2 and self.tail is not self.fresh:
            self.refill()
        return run

    def runs(self) -> Iterator[Run]:
        """All runs in order."""
        return merge(reversed(self.returned), self.all_fresh(), key=position)

    @classmethod
    def joined(cls, priority: int, signature: int, buckets: Sequence[Bucket]) -> Bucket:
        """One bucket of that priority with what is in these, which are of one priority."""
        whole, same = cls(priority, signature), all(bucket.priority == priority for bucket in buckets)
        for run in merge(*(s.all_fresh() for s in buckets), key=position):
            if whole.tail and whole.tail[-1].arrival == run.arrival:
                whole.tail[-1] = whole.tail[-1]._replace(mask=run.mask | whole.tail[-1].mask)
            else:
                whole.push(run if same else run._replace(priority=priority))
        for run in merge(*(s.returned for s in buckets), key=_from_last):
            whole.give_back(run if same else run._replace(priority=priority))
        return whole


class Backlog:
    """``count`` messages on ``buckets``, which are by (priority, signature); an empty bucket is taken away.

    ``compares``: also for consumers without a selector messages have to be compared before they go.
    """

    __slots__ = ("_last", "buckets", "compares", "count")

    def __init__(self) -> None:
        self.buckets: dict[tuple[int, int], Bucket] = {}
        self.count = 0
        self.compares = False
        self._last: Bucket | None = None
        """Where the last run was put; most go there again. It is kept when it is empty, and then it is in no one's way:
        not one of ``buckets``."""

    def __bool__(self) -> bool:
        return self.count > 0

    def bucket(self, priority: int, signature: int) -> Bucket:
        last = self._last
        if last is not None and last.priority == priority and last.signature == signature:
            if not last:
                self.buckets[priority, signature] = last
            return last
        bucket = self.buckets.get((priority, signature))
        if bucket is None:
            bucket = self.buckets[priority, signature] = Bucket(priority, signature)
        self._last = bucket
        return bucket

    def append(self, run: Run, signature: int = 0) -> None:
        """A run has arrived; its place is beyond all others."""
        last, priority = self._last, run.priority
        if last is None or last.priority != priority or last.signature != signature:
            last = self.bucket(priority, signature)
        elif not last.fresh and not last.returned:
            self.buckets[priority, signature] = last
        tail = last.tail
        tail.append(run)
        if len(tail) > TAIL_RUNS:
            last.pack()
        self.count += run.mask.bit_count()

    def give_back(self, run: Run, signature: int = 0) -> None:
        """A run comes back to its place."""
        self.bucket(run.priority, signature).give_back(run)
        self.count += run.mask.bit_count()

    def take_run(self, room: int, selector: int = ANY) -> Run | None:
        """The next run of at most ``room`` messages for a consumer with that selector; None when nothing is for it."""
        buckets = self.buckets
        if len(buckets) == 1 and selector == ANY and not self.compares:
            (bucket,) = buckets.values()
            run = bucket.take_run(room)
            self.count -= run.mask.bit_count()
            if not bucket.fresh and not bucket.returned:
                self.buckets.clear()
            return run
        for_him = self._for(selector)
        return self._take_first(for_him, room) if for_him else None

    def take_of(self, buckets: list[Bucket], room: int) -> Run:
        """The next run of at most ``room`` messages of these buckets, which are of one priority."""
        if len(buckets) > 1:
            return self._take_first(buckets, room)
        run = buckets[0].take_run(room)
        self.count -= run.mask.bit_count()
        if not buckets[0]:
            self._drop(buckets[0])
        return run

    def _matching(self, selector: int) -> list[Bucket]:
        """The buckets that a consumer with that selector may have something of."""
        if selector == ANY:
            return [s for s in self.buckets.values() if s.signature != UNSORTED or not self.compares]
        return [s for s in self.buckets.values() if s.signature != UNSORTED and s.signature >> selector & 1]

    def _for(self, selector: int) -> list[Bucket]:
        """The buckets with the highest priority that there is for a consumer with that selector."""
        for_him = self._matching(selector)
        if len(for_him) < 2:
            return for_him
        highest = max(s.priority for s in for_him)
        return [s for s in for_him if s.priority == highest]

    def first(self, selector: int = ANY) -> Run | None:
        """The run with which :meth:`take_run` would begin."""
        heads = [bucket.head() for bucket in self._for(selector)]
        return min(heads, key=position) if heads else None

    def has_for(self, selector: int) -> bool:
        """Whether :meth:`take_run` would find something for a consumer with that selector."""
        if selector == ANY and not self.compares:
            return bool(self.buckets)
        return bool(self._matching(selector))

    def _take_first(self, buckets: list[Bucket], room: int) -> Run:
        """The next messages of these buckets: of one block, alike, and before everything else on them."""
        heads = [bucket.head() for bucket in buckets]
        first = min(heads, key=position)
        alike, stops = [], []
        for bucket, head in zip(buckets, heads, strict=True):
            if head.arrival != first.arrival:
                continue
            if head[3:] == first[3:]:
                alike.append((bucket, head))
                stops.append(bucket.stop())
            else:
                stops.append(head.mask & -head.mask)
        taken = 0
        for _, head in alike:
            taken |= head.mask
        stop = min((bit for bit in stops if bit), default=0)
        if stop:
            taken &= stop - 1
        taken = pk.lowest(taken, room)
        for bucket, head in alike:
            if head.mask & taken:
                bucket.take_of_head(head.mask & taken)
                if not bucket:
                    self._drop(bucket)
        self.count -= taken.bit_count()
        return first._replace(mask=taken)

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> Run | None:
        """The run to discard first: the oldest, or the oldest of the lowest priority."""
        candidates = self._to_remove(lowest_priority)
        return self._take_first(candidates, room) if candidates else None

    def next_to_remove(self, *, lowest_priority: bool) -> Run | None:
        """The run with which :meth:`take_to_remove` would begin."""
        return min((bucket.head() for bucket in self._to_remove(lowest_priority)), key=position, default=None)

    def _to_remove(self, lowest_priority: bool) -> list[Bucket]:
        if lowest_priority and self.buckets:
            lowest = min(bucket.priority for bucket in self.buckets.values())
            return [bucket for bucket in self.buckets.values() if bucket.priority == lowest]
        return list(self.buckets.values())

    def _drop(self, bucket: Bucket) -> None:
        del self.buckets[bucket.priority, bucket.signature]

    def runs(self) -> Iterator[Run]:
        """All runs: the highest priority first, in order within it."""
        for priority in sorted({bucket.priority for bucket in self.buckets.values()}, reverse=True):
            buckets = [bucket.runs() for bucket in self.buckets.values() if bucket.priority == priority]
            yield from merge(*buckets, key=position)

    def append_alone(self, arrivals: Sequence[int], ordinals: Sequence[int], priority: int) -> None:
        """Runs of the first message of each of these blocks have arrived; their places are beyond all others."""
        bucket = self.bucket(priority, 0)
        bucket.push_pages(arrivals, ordinals)
        self.buckets[priority, 0] = bucket
        self.count += len(arrivals)

    def tried(self) -> Iterator[Run]:
        """All runs that were handed out before, in no certain order."""
        for bucket in self.buckets.values():
            pages = [page for page in bucket.pages if not isinstance(page, PackedRuns)]
            for run in chain(bucket.returned, bucket.fresh, *pages, bucket.tail):
                if run.attempts or run.failures:
                    yield run

    def clear(self) -> list[Run]:
        """Take everything out; returns it in order."""
        runs = list(self.runs())
        self.buckets.clear()
        self._last = None
        self.count = 0
        return runs

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take messages out, given as block → mask; returns those that were here. Looks at every run once."""
        removed: list[Run] = []
        for bucket in list(self.buckets.values()):
            bucket.remove(chosen, removed)
            if not bucket:
                self._drop(bucket)
        self.count -= sum(run.mask.bit_count() for run in removed)
        return removed

    def take_near(self, chosen: Mapping[int, int], last: int) -> None:
        """Take messages out, given as block → mask, all of which wait and came no later than ``last``."""
        removed: list[Run] = []
        for bucket in list(self.buckets.values()):
            bucket.take_near(chosen, last, removed)
            if not bucket:
                self._drop(bucket)
        self.count -= sum(run.mask.bit_count() for run in removed)

    def waiting_for(self, selector: int = ANY) -> Iterator[Run]:
        """All messages for a consumer with that selector: the highest priority first, in order within it."""
        buckets = self._matching(selector)
        for priority in sorted({bucket.priority for bucket in buckets}, reverse=True):
            runs = merge(*(bucket.runs() for bucket in buckets if bucket.priority == priority), key=position)
            for _, same in groupby(runs, key=_arrival):
                some = list(same)
                yield from some if len(some) == 1 else in_order(some)

    def take_bucket(self, bucket: Bucket) -> list[Run]:
        """Take out all of a bucket; returns it in order."""
        self._drop(bucket)
        if self._last is bucket:
            self._last = None
        runs = list(bucket.runs())
        self.count -= sum([run.mask.bit_count() for run in runs])
        return runs

    def join(self, priority: int, signature: int, buckets: Sequence[Bucket]) -> None:
        """Make one bucket of that priority of these, which are of one priority."""
        there = self.buckets.get((priority, signature))
        whole = Bucket.joined(priority, signature, [*buckets, there] if there is not None else buckets)
        for bucket in buckets:
            self._drop(bucket)
        self._last = None
        self.buckets[priority, signature] = whole

    def by_signature(self) -> Iterator[tuple[int, Iterator[Run]]]:
        """The runs that were compared with the selectors, by what they match."""
        for bucket in self.buckets.values():
            if bucket.signature != UNSORTED:
                yield bucket.signature, bucket.runs()

    # ---- selectors -------------------------------------------------------------------------------------------------

    def unsort(self) -> None:
        """The selectors have changed: everything has to be compared with them again."""
        by_priority: dict[int, list[Bucket]] = {}
        for bucket in self.buckets.values():
            by_priority.setdefault(bucket.priority, []).append(bucket)
        self.buckets = {}
        self._last = None
        for priority, buckets in by_priority.items():
            self.buckets[priority, UNSORTED] = Bucket.joined(priority, UNSORTED, buckets)

    def has_unsorted(self, priority: int) -> bool:
        return (priority, UNSORTED) in self.buckets

    def sort_some(self, most: int, classify: Callable[[Run], Iterable[tuple[int, int]]]) -> bool:
        """Compare about ``most`` messages with the selectors; True when some are left unsorted.

        A run is not divided, so that the headers of its block are decoded once: the last one may go beyond ``most``.
        """
        for priority in sorted((p for p, signature in self.buckets if signature == UNSORTED), reverse=True):
            whole = self.buckets[priority, UNSORTED]
            while most > 0 and whole:
                given_back = whole._returned_next()
                run = whole.take_run(BLOCK_MESSAGES_MAX)
                size = run.mask.bit_count()
                most -= size
                self.count -= size
                for signature, mask in classify(run):
                    part = run._replace(mask=mask)
                    if given_back:
                        self.give_back(part, signature)
                    else:
                        self.append(part, signature)
            if whole:
                return True
            self._drop(whole)
        return False


def _page_without(
    page: PackedRuns | list[Run], chosen: Mapping[int, int], removed: list[Run]
) -> PackedRuns | list[Run]:
    return list(_without(page, chosen, removed)) if not isinstance(page, PackedRuns) or page.any_of(chosen) else page


def _without(runs: Iterable[Run], chosen: Mapping[int, int], removed: list[Run]) -> Iterator[Run]:
    for run in runs:
        gone = run.mask & chosen.get(run.ordinal, 0)
        if not gone:
            yield run
            continue
        removed.append(run._replace(mask=gone))
        if gone != run.mask:
            yield run._replace(mask=run.mask & ~gone)
