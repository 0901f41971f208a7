"""Space that a leader has let go: hints for the other copies, whose journals learn of it no other way.

A copy that follows decides nothing and does not read what its log means, so it is told which blocks are dead.  A hint
names the entry up to which the leader had committed: a copy whose log goes that far will never be asked for the block,
and its own recovery finds the block's end in the log.  A hint that is lost costs space until there is a new link, when
the leader says which of its blocks live, all of them, in parts.
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
        """Take what there is; ``index``: everything up to there is released."""
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
    """Hints that a copy has got.  ``free`` lets blocks go; ``live`` says which there are, by destination."""

    def __init__(
        self,
        free: Callable[[int, Iterable[int]], None],
        live: Callable[[], Mapping[int, Sequence[int]]],
    ) -> None:
        self._free = free
        self._live = live
        self._waiting: deque[Freed | Living] = deque()

    def add(self, hint: Freed | Living, last: int) -> bool:
        """Take a hint; ``last``: the log ends there.  False: there are too many, and none is known any more."""
        if len(self._waiting) >= HINTS_MAX:
            self._waiting.clear()
            return False
        self._waiting.append(hint)
        self.apply(last)
        return True

    def clear(self) -> None:
        """The log is another one."""
        self._waiting.clear()

    def apply(self, last: int) -> None:
        """Carry out what may be, now that the log ends at ``last``."""
        while self._waiting and self._waiting[0].index <= last:
            hint = self._waiting.popleft()
            if isinstance(hint, Freed):
                for first, end in hint.spans:
                    self._free(hint.destination, range(first, end + 1))
            elif hint.index == last:  # What came later is not in it.
                self._free_others(hint)

    def _free_others(self, hint: Living) -> None:
        for destination, ordinals in self._live().items():
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
                self._free(destination, dead)
