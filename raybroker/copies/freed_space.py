"""Space that a leader has let go: hints for the other copies, whose journals learn of it no other way.

A copy that follows decides nothing and does not read what its log means, so it is told which blocks are dead.  A hint
names the entry at which the leader's log ended: the end of the block is in the log up to there, so a copy lets it go
once that entry is committed, and not before: until then another leader may still have the block.  A hint that is
lost costs space until there is a new link, when the leader says which of its blocks live, in parts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from raybroker.copies.message_form import Freed, Living, Spans

SPANS_MAX: Final = 4096
"""Spans of one message."""
HINTS_MAX: Final = 4096
"""Hints that wait for the log to come so far; the leader is asked for all of them anew where there are more."""
LAST_KEY: Final = ((1 << 32) - 1, (1 << 64) - 1)


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


def living(index: int, live: Mapping[int, Sequence[int]]) -> Iterator[Living]:
    """Say which blocks live at an entry, in parts that follow each other over all blocks."""
    after, part, room = (0, 0), dict[int, Spans](), SPANS_MAX
    for destination in sorted(live):
        spans = spans_of(live[destination])
        while spans:
            some, spans = spans[:room], spans[room:]
            part[destination], room = tuple(some), room - len(some)
            if not room:
                upto = (destination, some[-1][1])
                yield Living(index, after, upto, part)
                after, part, room = upto, {}, SPANS_MAX
    yield Living(index, after, LAST_KEY, part)


class SpaceHints:
    """Blocks that a copy may let go once it is sure, in any thread.

    ``free`` lets blocks go; ``live`` says which have come with the entries up to some index, by destination.
    """

    def __init__(
        self,
        free: Callable[[int, Iterable[int]], None],
        live: Callable[[int], Mapping[int, Sequence[int]]],
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
        for destination, ordinals in self._live(hint.index).items():
            dead: list[int] = []
            spans = iter(hint.spans.get(destination, ()))
            span = next(spans, None)
            for ordinal in ordinals:
                if not hint.after < (destination, ordinal) <= hint.upto:
                    continue
                while span is not None and span[1] < ordinal:
                    span = next(spans, None)
                if span is None or ordinal < span[0]:
                    dead.append(ordinal)
            if dead:
                found.append(Freed(hint.index, destination, tuple(spans_of(dead))))
        return found
