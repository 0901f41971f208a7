"""Messages that wait for a consumer, in order, as runs of blocks.

Fresh messages come at the end and leave at the front.  What a consumer gives back goes to its old place, which is
always before every fresh message, because messages are handed out in order; so two sequences are enough and nothing is
ever searched in a long backlog.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import NamedTuple

from raybroker.core.notes import Part


class Run(NamedTuple):
    """Messages start … end - 1 of block ``ordinal``, handed out ``attempts`` times before."""

    ordinal: int
    start: int
    end: int
    attempts: int


def _from_last(run: Run) -> tuple[int, int]:
    return -run.ordinal, -run.start


class Backlog:
    """``fresh``: never handed out, ascending. ``returned``: handed out and given back, descending, so that the next
    one is at the end."""

    __slots__ = ("count", "fresh", "returned")

    def __init__(self) -> None:
        self.fresh: deque[Run] = deque()
        self.returned: list[Run] = []
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def append(self, run: Run) -> None:
        self.fresh.append(run)
        self.count += run.end - run.start

    def give_back(self, run: Run) -> None:
        """Put a run that was handed out back to its place, joined with the run after it where they match.

        Cheap when called from the last run to the first.
        """
        self.count += run.end - run.start
        returned = self.returned
        if not returned or run < returned[-1]:
            following = returned[-1] if returned else None
            if following and (run.ordinal, run.end, run.attempts) == (
                following.ordinal, following.start, following.attempts,
            ):  # fmt: skip
                returned[-1] = following._replace(start=run.start)
            else:
                returned.append(run)
            return
        insort(returned, run, key=_from_last)

    def take(self, room: int) -> Run:
        """The next run of at most ``room`` messages; the backlog must not be empty."""
        assert room > 0
        run = self.returned.pop() if self.returned else self.fresh.popleft()
        size = run.end - run.start
        if size > room:
            rest = run._replace(start=run.start + room)
            if run.attempts:
                self.returned.append(rest)
            else:
                self.fresh.appendleft(rest)
            run = run._replace(end=run.start + room)
            size = room
        self.count -= size
        return run

    def clear(self) -> list[Part]:
        """Take everything out; returns it in order."""
        runs = (*reversed(self.returned), *self.fresh)
        self.returned.clear()
        self.fresh.clear()
        self.count = 0
        return [Part(run.ordinal, run.start, run.end) for run in runs]
