"""Removal: which messages go while a destination holds too many (REMOVE_OLDEST, REMOVE_LOW_PRIORITY).

The oldest goes, or the oldest of the lowest priority, wherever it is, with one exception: what an application has got
is in its hands, counts for the limits until it is settled, and stays.  A message that waits is discarded at once.  One
that lies with a consumer, which has not begun it, is asked back (``delivery.sharing``) and discarded when it comes;
until then it counts as gone, and so does all else that the same consumer may give back, since it is asked for that
next.  So a destination holds for a moment up to twice its limit rather than throw away what is newer.  Of a topic's
message every copy goes; where an application has one in hand, it counts as gone with the others.

A consumer that cannot give anything back gets no more than its part of half of ``maxNumMsgs`` (``Consumers.bound``):
then what makes room is the oldest of the other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from raybroker.core.blocks import message_mask as pk
from raybroker.core.blocks.block_entry import BlockEntry
from raybroker.core.delivery import sharing
from raybroker.core.delivery.consumers import Consumer, Delivery
from raybroker.core.delivery.delayed import Age, age_of
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.run import Run


class Holder(Protocol):
    """A consumer that can be asked."""

    @property
    def count(self) -> int:
        """Messages that it may give back."""

    def first(self) -> Run | None:
        """What of these goes first, without what was chosen already."""

    def choose(self, ordinal: int, mask: int) -> int:
        """Ask for these messages as far as it has them; returns which these are."""

    def request_chosen(self, *, bytes_count: bool) -> None:
        """Ask for what was chosen. ``bytes_count``: there is a limit on bytes."""


class _InOrder:
    """The usual one: it got its messages in the order in which they go, from one queue. Looks at no more than goes."""

    def __init__(self, queue: DeliveryQueue, consumer: Consumer) -> None:
        self._queue = queue
        self._consumer = consumer
        self._known = sharing.known_begun(consumer)
        self._items = (item for item in consumer.unsettled if item.tag + item.count - 1 > self._known)
        self._next = next(self._items, None)
        self._chosen: list[tuple[int, int]] = []
        self._at = 0

    @property
    def count(self) -> int:
        return self._consumer.have

    def first(self) -> Run | None:
        item = self._next
        if item is None:
            return None
        self._at = max(item.tag, self._known + 1)
        return item.run._replace(mask=item.run.mask & ~pk.lowest(item.run.mask, self._at - item.tag))

    def choose(self, ordinal: int, mask: int) -> int:
        item = self._next
        assert item is not None
        last = self._at + mask.bit_count() - 1
        self._chosen.append((self._at, last))
        self._known = last
        if last == item.tag + item.count - 1:
            self._next = next(self._items, None)
        return mask

    def request_chosen(self, *, bytes_count: bool) -> None:
        if self._chosen:
            ranges = sharing.joined(self._chosen)
            sharing.ask(self._queue, self._consumer, ranges, bytes_count=bytes_count)


class _Holder:
    """Any other one. ``has``: block → what it may give back; ``chosen``: what it is asked for."""

    def __init__(self, queue: DeliveryQueue, consumer: Consumer, *, by_priority: bool) -> None:
        self.queue = queue
        self.consumer = consumer
        self.items = sharing.recallable(consumer)
        self.has: dict[int, int] = {}
        for item in self.items:
            self.has[item.run.ordinal] = self.has.get(item.run.ordinal, 0) | item.run.mask
        self.chosen: dict[int, int] = {}
        self._left = sorted(self.items, key=lambda item: age_of(item.run, by_priority=by_priority), reverse=True)

    @property
    def count(self) -> int:
        return len(self.items)

    def first(self) -> Run | None:
        while self._left:
            run = self._left[-1].run
            mask = run.mask & ~self.chosen.get(run.ordinal, 0)
            if mask:
                return run._replace(mask=mask)
            self._left.pop()
        return None

    def choose(self, ordinal: int, mask: int) -> int:
        mask &= self.has.get(ordinal, 0)
        if mask:
            self.chosen[ordinal] = self.chosen.get(ordinal, 0) | mask
        return mask

    def request_chosen(self, *, bytes_count: bool) -> None:
        if self.chosen:
            tags = [tag for item in self.items for tag in _tags(item, self.chosen.get(item.run.ordinal, 0))]
            ranges = sharing.joined((tag, tag) for tag in tags)
            sharing.ask(self.queue, self.consumer, ranges, bytes_count=bytes_count)


def _tags(item: Delivery, chosen: int) -> Iterable[int]:
    if not item.run.mask & chosen:
        return ()
    if not item.run.mask & ~chosen:
        return range(item.tag, item.tag + item.count)
    return [tag for tag, index in enumerate(pk.indexes(item.run.mask), item.tag) if chosen >> index & 1]


class Removal:
    """One search for what goes, in all delivery queues of a destination. ``messages`` and ``nbytes`` count as gone."""

    def __init__(
        self, queues: Mapping[int, DeliveryQueue], held: Mapping[int, BlockEntry], *, by_priority: bool
    ) -> None:
        self.messages = self.nbytes = 0
        self._queues = queues
        self._held = held
        self._by_priority = by_priority
        self._several = len(queues) > 1
        self._gone: dict[int, int] = {}
        self._holders: dict[int, list[Holder]] = {}
        for queue in queues.values():
            self._count_asked(queue)
            self._holders[queue.number] = [
                self._holder(queue, consumer)
                for consumer in queue.consumers.by_attachment.values()
                if consumer.have and consumer.recalls and consumer.recall is None
            ]

    def _holder(self, queue: DeliveryQueue, consumer: Consumer) -> Holder:
        if consumer.in_order and not (self._several or self._by_priority):
            return _InOrder(queue, consumer)
        return _Holder(queue, consumer, by_priority=self._by_priority)

    def _count_asked(self, queue: DeliveryQueue) -> None:
        """What consumers were asked for before counts as gone, and copies of what a topic has removed elsewhere."""
        if not self._several:
            for consumer, recall in queue.consumers.recalling.items():
                self.messages += min(recall.messages, consumer.have)
                self.nbytes += recall.nbytes if consumer.have else 0
            return
        for consumer in queue.consumers.by_attachment.values():
            for item in sharing.recallable(consumer) if consumer.recall is not None else ():
                self._goes(item.run.ordinal, item.run.mask)
            for item in consumer.unsettled:
                told = item.run.mask & self._held[item.run.ordinal].told_dead
                if told:
                    self._goes(item.run.ordinal, told)

    def removable(self, queue: DeliveryQueue) -> int:
        """How many messages could go from here."""
        return queue.removable + sum(holder.count for holder in self._holders[queue.number])

    def recalls(self, queue: DeliveryQueue, waiting: Run | None, room: int) -> bool:
        """Ask for up to ``room`` messages that lie with a consumer and go before the first that waits; False when there
        are none."""
        found: tuple[Age, Holder, Run] | None = None
        for holder in self._holders[queue.number]:
            run = holder.first()
            if run is not None and (found is None or self._age(run) < found[0]):
                found = self._age(run), holder, run
        if found is None or (waiting is not None and self._age(waiting) < found[0]):
            return False
        holder, run = found[1:]
        mask = pk.lowest(run.mask, room)
        self._goes(run.ordinal, holder.choose(run.ordinal, mask))
        self._recall_copies(queue, run.ordinal, mask)
        return True

    def _recall_copies(self, queue: DeliveryQueue, ordinal: int, mask: int) -> None:
        """Ask the consumers of other subscriptions for messages that go from this one."""
        for number, holders in self._holders.items() if self._several else ():
            for holder in holders if number != queue.number else ():
                self._goes(ordinal, holder.choose(ordinal, mask))

    def discarded(self, queue: DeliveryQueue, run: Run) -> None:
        """Messages were discarded, from every subscription of a topic in which they waited: ask for the other copies;
        those that cannot come back count as gone too."""
        if not self._several or run.ordinal not in self._held:
            return
        self._recall_copies(queue, run.ordinal, run.mask)
        for other in self._queues.values():
            left = other.owed(run.ordinal) & ~other.dead_letters.masks.get(run.ordinal, 0)
            self._goes(run.ordinal, run.mask & left)

    def request_chosen(self, *, bytes_count: bool) -> None:
        """Ask for what was chosen. ``bytes_count``: there is a limit on bytes."""
        for holders in self._holders.values():
            for holder in holders:
                holder.request_chosen(bytes_count=bytes_count)

    def _age(self, run: Run) -> Age:
        return age_of(run, by_priority=self._by_priority)

    def _goes(self, ordinal: int, mask: int) -> None:
        if self._several:
            mask &= ~self._gone.get(ordinal, 0)
            self._gone[ordinal] = self._gone.get(ordinal, 0) | mask
        if mask:
            self.messages += mask.bit_count()
            self.nbytes += self._held[ordinal].bytes_of(mask)
