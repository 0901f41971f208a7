"""The consumers of a queue: who is active, who waits as a backup, who is next, and what each one holds.

Active consumers are served in turn, each as far as its window has room (D-17, F-22 … F-24): against a backlog the first
takes a full batch before the next gets any; without one, arrivals go round.  Backups get nothing until an active
consumer leaves, then the first registered is promoted (D-16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from raybroker.core.backlog import Run
from raybroker.core.window import Window
from raybroker.model.errors import ResourceAllocationError


class Delivery(NamedTuple):
    """Messages start … end - 1 of a block, tagged tag, tag + 1, …; ``attempts`` counts this delivery too."""

    tag: int
    ordinal: int
    start: int
    end: int
    attempts: int


class Consumer:
    """One attachment. ``unsettled`` is in order of tags."""

    __slots__ = ("active", "attachment", "held", "limit", "next_tag", "no_ack", "queued", "sent", "unsettled", "window")

    def __init__(self, attachment: int, window: Window, *, limit: int, no_ack: bool, held: bool) -> None:
        self.attachment = attachment
        self.window = window
        self.limit = limit
        self.no_ack = no_ack
        self.held = held
        self.active = False
        self.queued = False
        self.next_tag = 1
        self.sent = 0
        self.unsettled: deque[Delivery] = deque()

    def room(self) -> int:
        return self.window.room() if self.active and not self.held else 0

    def handed(self, run: Run) -> Delivery:
        """Count a run as sent to this consumer."""
        size = run.end - run.start
        delivery = Delivery(self.next_tag, run.ordinal, run.start, run.end, run.attempts + 1)
        self.next_tag += size
        self.sent += size
        self.window.sent(size)
        if self.no_ack:
            self.window.settled(size)
        else:
            self.unsettled.append(delivery)
        return delivery

    def settle(self, first: int, last: int) -> Iterator[Delivery]:
        """Take the deliveries tagged first … last out of what is unsettled; yields what was found."""
        unsettled = self.unsettled
        kept: list[Delivery] = []
        while unsettled and first <= last:
            item = unsettled[0]
            end_tag = item.tag + item.end - item.start
            if item.tag > last:
                break
            unsettled.popleft()
            if end_tag <= first:
                kept.append(item)
                continue
            skip = max(0, first - item.tag)
            size = min(end_tag, last + 1) - (item.tag + skip)
            if skip:
                kept.append(item._replace(end=item.start + skip))
            if item.start + skip + size < item.end:
                unsettled.appendleft(item._replace(tag=item.tag + skip + size, start=item.start + skip + size))
            yield item._replace(tag=item.tag + skip, start=item.start + skip, end=item.start + skip + size)
        unsettled.extendleft(reversed(kept))


class Consumers:
    """All consumers in order of registration, and the active ones with room in order of service."""

    __slots__ = ("by_attachment", "turn")

    def __init__(self) -> None:
        self.by_attachment: dict[int, Consumer] = {}
        self.turn: deque[Consumer] = deque()

    @property
    def active_count(self) -> int:
        return sum(c.active for c in self.by_attachment.values())

    @property
    def backup_count(self) -> int:
        return len(self.by_attachment) - self.active_count

    def attach(self, consumer: Consumer, *, active_max: int, backup_max: int, name: str) -> None:
        """Raises ResourceAllocationError when both active and backup places are taken (D-15)."""
        active = self.active_count
        consumer.active = active_max < 0 or active < active_max
        if not consumer.active and 0 <= backup_max <= len(self.by_attachment) - active:
            raise ResourceAllocationError(
                f"queue {name} has its {active_max} active and {backup_max} backup consumers; close one, or raise"
                f" maxNumActiveConsumers or maxNumBackupConsumers"
            )
        self.by_attachment[consumer.attachment] = consumer

    def detach(self, attachment: int) -> Consumer | None:
        consumer = self.by_attachment.pop(attachment, None)
        if consumer is not None:
            consumer.active = False
        return consumer

    def promote(self, active_max: int) -> list[Consumer]:
        """Make backups active while there is a place, first registered first (D-16)."""
        promoted = []
        vacant = len(self.by_attachment) if active_max < 0 else active_max - self.active_count
        for consumer in self.by_attachment.values():
            if vacant <= 0:
                break
            if not consumer.active:
                consumer.active = True
                promoted.append(consumer)
                vacant -= 1
        return promoted

    def offer(self, consumer: Consumer) -> None:
        """Give a consumer a turn if it has room and waits for none."""
        if not consumer.queued and consumer.room() > 0:
            consumer.queued = True
            self.turn.append(consumer)

    def next_with_room(self) -> Consumer | None:
        """The consumer whose turn it is; it keeps its turn until it has no room or :meth:`rotate` is called."""
        turn = self.turn
        while turn:
            if turn[0].room() > 0:
                return turn[0]
            turn.popleft().queued = False
        return None

    def rotate(self) -> None:
        """The next arrival goes to the next consumer."""
        self.turn.rotate(-1)
