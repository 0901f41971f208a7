"""New messages of a delivery queue that has units of order, before anybody looked which unit each belongs to.

Runs stand in the order in which the destination accepted their blocks.  Some of their messages may be *blocked*: they
have their place here and are elsewhere in the delivery queue, or not visible yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from raybroker.core.delivery.run import Run


class UnopenedBlocks:
    """``opened``: every block up to this one was opened. ``count``: messages that are not blocked."""

    __slots__ = ("blocked", "count", "mixed", "opened", "priority", "queue")

    def __init__(self, opened: int) -> None:
        self.opened = opened
        self.queue: deque[Run] = deque()
        self.blocked: dict[int, int] = {}
        self.count = 0
        self.mixed = False
        """What waits in the delivery queue has several priorities; else it has ``priority``."""
        self.priority = -1

    def __bool__(self) -> bool:
        return bool(self.queue)

    def add(self, run: Run) -> None:
        """Messages that can go; where they have their place already, they are blocked no longer."""
        placed = self.blocked.get(run.ordinal, 0) & run.mask
        if placed:
            self._lift(run.ordinal, placed)
        if run.mask != placed:
            self._put(run._replace(mask=run.mask & ~placed) if placed else run)
        self.count += run.mask.bit_count()

    def hold_place(self, run: Run) -> None:
        """Messages that cannot go get their place."""
        new = run.mask & ~self.blocked.get(run.ordinal, 0)
        if new:
            self.blocked[run.ordinal] = self.blocked.get(run.ordinal, 0) | new
            self._put(run._replace(mask=new))

    def _put(self, run: Run) -> None:
        """Almost always at the end."""
        queue, at = self.queue, len(self.queue)
        self.meet(run.priority)
        here = run.ordinal, run.mask & -run.mask
        while at and (queue[at - 1].ordinal, queue[at - 1].mask & -queue[at - 1].mask) > here:
            at -= 1
        queue.insert(at, run)

    def meet(self, priority: int) -> None:
        """Messages of that priority wait in the delivery queue."""
        if self.priority < 0:
            self.priority = priority
        self.mixed = self.mixed or priority != self.priority

    def _lift(self, ordinal: int, mask: int) -> None:
        self.blocked[ordinal] &= ~mask
        if not self.blocked[ordinal]:
            del self.blocked[ordinal]

    def drop_blocked(self, ordinal: int, mask: int) -> None:
        """Messages that were blocked are gone."""
        gone = self.blocked.get(ordinal, 0) & mask
        if gone:
            self._lift(ordinal, gone)
            self._without({ordinal: gone})

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        """Take out messages that can go, given as block → mask; returns those that were here."""
        removed = self._without({o: mask & ~self.blocked.get(o, 0) for o, mask in chosen.items() if o > self.opened})
        self.count -= sum(run.mask.bit_count() for run in removed)
        return removed

    def _without(self, chosen: Mapping[int, int]) -> list[Run]:
        if not any(run.ordinal in chosen for run in self.queue):
            return []
        removed = [run._replace(mask=run.mask & chosen.get(run.ordinal, 0)) for run in self.queue]
        kept = [run._replace(mask=run.mask & ~chosen.get(run.ordinal, 0)) for run in self.queue]
        self.queue = deque(run for run in kept if run.mask)
        return [run for run in removed if run.mask]

    def keep_only(self, reserved: Mapping[int, int]) -> None:
        """Drop everything but places of messages that are not visible yet."""
        kept = [run._replace(mask=run.mask & reserved.get(run.ordinal, 0)) for run in self.queue]
        self.queue = deque(run for run in kept if run.mask)
        self.blocked = {ordinal: mask for ordinal, mask in reserved.items() if ordinal > self.opened}
        self.count = 0

    def runs(self) -> Iterator[Run]:
        """Everything that can go."""
        for run in self.queue:
            blocked = self.blocked.get(run.ordinal, 0)
            if run.mask & ~blocked:
                yield run._replace(mask=run.mask & ~blocked) if blocked else run

    def open(self) -> tuple[list[Run], int]:
        """The runs of the first block are opened; returns them, and which of their messages are blocked."""
        first = self.queue.popleft()
        found = [first]
        while self.queue and self.queue[0].ordinal == first.ordinal:
            found.append(self.queue.popleft())
        self.opened = first.ordinal
        blocked = self.blocked.pop(first.ordinal, 0)
        self.count -= sum((run.mask & ~blocked).bit_count() for run in found)
        return found, blocked

    def begin_anew(self) -> None:
        """Nothing waits anywhere: whatever priority comes next is the only one."""
        self.mixed = False
        self.priority = -1
