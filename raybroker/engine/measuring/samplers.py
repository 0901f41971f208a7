"""Samplers, the parts of a host's meters: bounded in memory, and cheap enough for every block.

No part reads a clock or knows a destination.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from typing import Final

TIMES_MAX: Final = 512
"""Entries of one :class:`Times`."""
BUSIEST_MAX: Final = 64
BUSIEST_SHOWN: Final = 10
BUSIEST_SMALL: Final = 16
BUSIEST_EVERY: Final = 4
SAMPLE_EVERY: Final = 8
"""Of so many small batches of a busy host one is observed, and stands for all of them."""
SAMPLE_SMALL: Final = 2000
"""A batch of so many messages is always observed: what that costs is little for each of them."""
SAMPLE_FREE: Final = 400
"""So many small batches are observed in each second before only some are."""


class Sampling:
    """What the samples of one host have together: how many small batches may still be observed in this second.

    ``turn``: the state of a generator of random places, always the same one, so that simulations can be repeated.
    """

    __slots__ = ("free", "turn")

    def __init__(self) -> None:
        self.free = SAMPLE_FREE
        self.turn = 1

    def begin_second(self) -> None:
        """A second is over."""
        self.free = SAMPLE_FREE

    def place(self) -> int:
        """Return a place from 0 to SAMPLE_EVERY - 1, each as often."""
        self.turn = (self.turn * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        return (self.turn >> 16) % SAMPLE_EVERY


class SizeSample:
    """Which batches at one place are observed, and for how many each of them stands.

    While the host has few of them, every one.  Of many, small ones are taken in groups of SAMPLE_EVERY, one of which,
    at a random place, is observed and counts SAMPLE_EVERY times.  The smaller a batch's chance of being observed is,
    the more often it counts, so that histograms made of them lean to no side.
    """

    __slots__ = ("rest", "sampling", "skip", "weight")

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.skip = self.weight = 1
        """The next observed one is the skip-th from here, with this weight."""
        self.rest = 0
        """What is left of its group behind it."""

    def weigh(self, messages: int) -> int:
        """How often a batch of so many messages counts; 0: it is not observed."""
        if messages >= SAMPLE_SMALL:
            return 1
        self.skip -= 1
        if self.skip > 0:
            return 0
        weight, sampling = self.weight, self.sampling
        if sampling.free > 0:
            sampling.free -= 1
            self.skip, self.rest, self.weight = self.rest + 1, 0, 1
        else:
            place = sampling.place()
            self.skip, self.rest, self.weight = self.rest + place + 1, SAMPLE_EVERY - place - 1, SAMPLE_EVERY
        return weight


class Times:
    """The times when ascending numbers were reached, monotonic nanoseconds."""

    __slots__ = ("numbers", "times")

    def __init__(self, start_ns: int) -> None:
        self.numbers = [0]
        self.times = [start_ns]

    def add(self, number: int, at_ns: int) -> None:
        if len(self.numbers) >= TIMES_MAX:
            # The older half loses every second entry: what is long ago need not be known so well.
            half = len(self.numbers) // 2
            self.numbers[1:half] = self.numbers[1:half:2]
            self.times[1:half] = self.times[1:half:2]
        self.numbers.append(number)
        self.times.append(at_ns)

    def at(self, number: int) -> int:
        """Return when ``number`` was reached; when entries were thinned out, a time a little before."""
        return self.times[max(bisect_right(self.numbers, number) - 1, 0)]

    def drop_below(self, number: int) -> None:
        """Drop entries below ``number``."""
        gone = bisect_right(self.numbers, number) - 1
        if gone > 0:
            del self.numbers[:gone], self.times[:gone]


class Average:
    """The highest value of something, and its average over the time since it was made."""

    __slots__ = ("area", "peak", "since_ns", "start_ns", "value")

    def __init__(self, now_ns: int) -> None:
        self.start_ns = self.since_ns = now_ns
        self.value = self.peak = self.area = 0

    def set(self, value: int, now_ns: int) -> None:
        self.area += self.value * (now_ns - self.since_ns)
        self.since_ns = now_ns
        self.value = value
        self.peak = max(self.peak, value)

    def average(self, now_ns: int) -> int:
        """Rounded down, as the metrics messages have it."""
        passed = now_ns - self.start_ns
        return (self.area + self.value * (now_ns - self.since_ns)) // passed if passed > 0 else self.value


class Busiest:
    """The most frequent names (Space-Saving): at most BUSIEST_MAX are counted, and a new one takes the place and the
    count of the rarest, so that no frequent name is missed and none is undercounted."""

    __slots__ = ("counts", "turn")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.turn = 0

    def add(self, names: Sequence[str | None], weight: int = 1) -> None:
        """Count names of one block, ``weight`` times; of large blocks every fourth, and the names that come most."""
        if len(names) > BUSIEST_SMALL:
            self.turn += 1
            if self.turn % BUSIEST_EVERY:
                return
            weight *= BUSIEST_EVERY
        for name, count in Counter(names).most_common(BUSIEST_SMALL):
            if name is None:
                continue
            before = self.counts.get(name)
            if before is None and len(self.counts) >= BUSIEST_MAX:
                rarest = min(self.counts, key=self.counts.__getitem__)
                before = self.counts.pop(rarest)
            self.counts[name] = (before or 0) + count * weight

    def top(self) -> dict[str, int]:
        return dict(nlargest(BUSIEST_SHOWN, self.counts.items(), key=lambda item: item[1]))
