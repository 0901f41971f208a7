"""Space that a leader has let go: hints for the other copies, whose journals learn of it no other way.

A copy that follows decides nothing and does not read what its log means, so it is told which blocks are dead.  A hint
names the entry at which the leader's log ended: the end of the block is in the log up to there, so a copy lets it go
once that entry is committed, and not before: until then another leader may still have the block.  A hint that is
lost costs space until there is a new link, when the leader says which of its blocks live, in parts: some of them at a
time, so that neither it nor the other copy is kept from what is urgent, however many blocks there are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from raybroker.copies.message_form import Freed, Living, Spans
from raybroker.store.locations import LAST_KEY, BlockKey

SPANS_MAX: Final = 4096
"""Spans of one message."""
HINTS_MAX: Final = 4096
"""Hints that wait for the log to come so far; the leader is asked for all of them anew where there are more."""


def spans_of(ordinals: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers, sorted, as first and last of those that follow each other."""
    found: list[tuple[int, int]] = []
    first = last = -1
    for ordinal in ordinals:
        if ordinal == last + 1 and first >= 0:
            last = ordinal
            continue
        if first >= 0:
            found.append((first, last))
        first = last = ordinal
    if first >= 0:
        found.append((first, last))
    return found


class FreedBlocks:
    """Blocks that the leader's journal has let go and others have not been told of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._freed: dict[int, list[int]] = {}

    def add(self, destination: int, ordinals: Sequence[int]) -> None:
        with self._lock:
            self._freed.setdefault(destination, []).extend(ordinals)

    def hints(self, index: int) -> list[Freed]:
        """Take what there is; ``index``: the log ends there."""
        with self._lock:
            freed, self._freed = self._freed, {}
        found: list[Freed] = []
        for destination, ordinals in freed.items():
            spans = spans_of(sorted(ordinals))
            parts = [spans[at : at + SPANS_MAX] for at in range(0, len(spans), SPANS_MAX)]
            found += [Freed(index, destination, tuple(part)) for part in parts]
        return found


def living(
    index: int, after: BlockKey, live: Mapping[int, Sequence[tuple[int, int]]], *, whole: bool
) -> Iterator[Living]:
    """Say which blocks behind ``after`` live at an entry, in parts that follow each other; ``whole``: behind those in
    ``live`` there are none, and the last part says so."""
    part, room = dict[int, Spans](), SPANS_MAX
    for destination, spans in live.items():
        at = 0
        while at < len(spans):
            some = part[destination] = tuple(spans[at : at + room])
            at, room = at + len(some), room - len(some)
            if not room:
                upto = (destination, some[-1][1])
                yield Living(index, after, upto, part)
                after, part, room = upto, {}, SPANS_MAX
    if whole:
        yield Living(index, after, LAST_KEY, part)
    elif part:
        destination = next(reversed(part))
        yield Living(index, after, (destination, part[destination][-1][1]), part)


def without(spans: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is in spans and not in others; both ascend, and neither has a number twice."""
    found: list[tuple[int, int]] = []
    rest = iter(others)
    other = next(rest, None)
    for first, last in spans:
        at = first
        while other is not None and other[0] <= last:
            if at < other[0]:
                found.append((at, other[0] - 1))
            at = max(at, other[1] + 1)
            if other[1] >= last:
                break  # It may be in the next span, too.
            other = next(rest, None)
        if at <= last:
            found.append((at, last))
    return found


class SpaceHints:
    """Blocks that a copy may let go once it is sure, in any thread.

    ``free`` lets blocks go; ``live`` says which in a stretch have come with the entries up to some index, by
    destination.
    """

    def __init__(
        self,
        free: Callable[[int, Iterable[int]], None],
        live: Callable[[int, BlockKey, BlockKey], Mapping[int, Sequence[tuple[int, int]]]],
    ) -> None:
        self._free = free
        self._live = live
        self._lock = threading.Lock()
        self._waiting: deque[Freed | Living] = deque()
        """What waits for the log to come so far."""
        self._unsure: deque[Freed] = deque()
        """What waits until that is committed: only then nobody will ask for the blocks."""

    def add(self, hint: Freed | Living, last: int, committed: int) -> bool:
        """Take a hint; ``last``: the log ends there.  False: there are too many, and none is known any more."""
        with self._lock:
            if len(self._waiting) + len(self._unsure) >= HINTS_MAX:
                self._waiting.clear()
                self._unsure.clear()
                return False
            self._waiting.append(hint)
        self.apply(last, committed)
        return True

    def add_own(self, hint: Freed) -> None:
        """Blocks that this copy's own host has let go, which are freed like others: it may lead no more."""
        with self._lock:
            self._unsure.append(hint)

    def clear(self) -> None:
        """The log is another one."""
        with self._lock:
            self._waiting.clear()
            self._unsure.clear()

    def apply(self, last: int, committed: int) -> None:
        """Carry out what may be, now that the log ends at ``last``, and is final up to ``committed``."""
        if not self._waiting and not self._unsure:
            return
        with self._lock:
            while self._waiting and self._waiting[0].index <= last:
                hint = self._waiting.popleft()
                if isinstance(hint, Freed):
                    self._unsure.append(hint)
                else:
                    self._unsure += self._dead(hint)
            while self._unsure and self._unsure[0].index <= committed:
                sure = self._unsure.popleft()
                for first, end in sure.spans:
                    self._free(sure.destination, range(first, end + 1))

    def _dead(self, hint: Living) -> list[Freed]:
        """The blocks here that the leader does not have any more."""
        found: list[Freed] = []
        for destination, spans in self._live(hint.index, hint.after, hint.upto).items():
            dead = without(spans, hint.spans.get(destination, ()))
            if dead:
                found.append(Freed(hint.index, destination, tuple(dead)))
        return found
