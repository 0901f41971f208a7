"""The prefetch buffer: blocks that came, and which of their messages were handed out and not acknowledged.

The hot path of every ``receive`` is here: a few operations under a lock and no call to anybody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Protocol

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.consumer.acknowledging import unacknowledged_ranges
from raybroker.client.consumer.acknowledging.handed_out import HandedOut
from raybroker.client.consumer.acknowledging.returned_deliveries import WITHDRAWN, ReturnedDeliveries
from raybroker.client.consumer.message import Message, MessageSession, ReceivedDelivery, Receiver
from raybroker.client.consumer.notifier import Notifier
from raybroker.client.consumer.prefetch.credit_pool import Share
from raybroker.client.consumer.prefetch.flow_control import BatchFlow, CreditFlow, PrefetchFlow
from raybroker.client.consumer.prefetch.taken_bytes import TakenBytes
from raybroker.model.blocks.block import Block
from raybroker.model.errors import BrokerError


class ConsumerSession(MessageSession, Protocol):
    """What a consumer needs of its session. ``owner`` names it to all hosts."""

    mode: str
    owner: str
    handed: HandedOut

    @property
    def connection(self) -> ConnectionCore: ...

    def handed_out(self, count: int, /) -> int:
        """``count`` messages leave a buffer; returns the serial of the first, in the order of the whole session."""
        ...

    def wake_listeners(self) -> None:
        """Something has come for a listener; with the lock of the buffer held."""
        ...

    def lost_some(self, why: str, /) -> None:
        """What was handed out and is not acknowledged went back."""
        ...

    def flush_lazily(self) -> None:
        """Acknowledge without asking for a confirmation."""
        ...

    def keep(self, consumer: Any, /) -> None:
        """It is about to be opened."""
        ...

    async def stage(self, consumer: Any, /) -> None:
        """It is about to be closed: a transaction keeps what it has consumed."""
        ...

    def forget_consumer(self, consumer: Any, /) -> None:
        """It is closed."""
        ...


class Watched(ReceivedDelivery):
    """A delivery that is looked at message by message: some may expire or are void, or it is not the first attempt."""

    __slots__ = ("expires", "void")

    def __init__(self, block: Block, consumer: Receiver, epoch: int, tag: int, attempt: int) -> None:
        super().__init__(block, consumer, epoch, tag, attempt)
        self.expires: array[int] | None = None
        self.void: frozenset[int] = frozenset()
        """Messages of it that were taken back (:meth:`PrefetchBuffer.withdraw`)."""


class PrefetchBuffer(ABC):
    """What a consumer is to the application's threads; the methods that send are the consumer's own."""

    name: str
    unpickles: bool
    message_bytes_max: int

    def __init__(
        self,
        session: ConsumerSession,
        flow: CreditFlow | PrefetchFlow | BatchFlow | Share,
        notifier: Notifier[PrefetchBuffer],
    ) -> None:
        self.session = session
        self._handed = session.handed
        self.epoch = 0
        self.closed = False
        self._connection = session.connection
        self._notifier = notifier
        self._lock = notifier.lock
        self._deliveries: deque[ReceivedDelivery] = deque()
        self._at = 0
        """How many messages of the first delivery are handed out."""
        self._flow = flow
        self._share = flow if isinstance(flow, Share) else None
        """Its part of a credit pool, which alone counts what was settled."""
        self._listed = False
        """It is in the list of filled ones."""
        self._all_flow = session.connection.channels.flow
        """Of all consumers of the connection."""
        self._failure: BrokerError | None = None
        self.consumed: unacknowledged_ranges.Rows = []
        """Handed out and not acknowledged, ascending."""
        self.returned = ReturnedDeliveries()
        """What was handed out and went back unsettled."""
        self.owing = -1
        """Credit to ask for once the application waits again, since an ack deadline has passed; -1: none has."""
        self._taken: TakenBytes | None = None
        """Its host is told of what has left the buffer; None: there is no bound in bytes."""
        session.connection.handles.buffers.add(self)
        self._settlements = 0
        """How often something was taken out of what is unacknowledged to be settled; with the lock held."""
        self._told = 0
        """Of how many of these the host has been told, or cannot be; on the IO loop."""
        self._settled_up_to = 0
        """Last tag that was settled here; what a commit that failed gives back had been handed out."""

    @property
    def failed(self) -> bool:
        """It has ended without being closed."""
        return self._failure is not None

    def take_messages(self, most: int) -> list[Message]:
        """Up to ``most`` messages from the buffer, without waiting."""
        found: list[Message] = []
        if not self._connection.started or self._handed.holds_back:
            return found
        with self._lock:
            deliveries = self._deliveries
            while deliveries and len(found) < most:
                delivery, start = deliveries[0], self._at
                end = min(start + most - len(found), delivery.block.count)
                if type(delivery) is Watched:
                    found.extend([Message(delivery, index) for index in self._hand_out_unexpired(delivery, start, end)])
                else:
                    found.extend([Message(delivery, index) for index in range(start, end)])
                    self._hand_out(delivery, start, end)
            if not found and self._failure is not None:
                raise self._failure
        return found

    def take_one(self) -> Message | None:
        """The next message of the buffer, or None; the hot path of ``receive``."""
        if not self._connection.started or self._handed.holds_back:
            return None
        with self._lock:
            deliveries = self._deliveries
            if not deliveries:
                if self._failure is not None:
                    raise self._failure
                return None
            delivery, index = deliveries[0], self._at
            if type(delivery) is Watched:
                return self._look_for_one()
            self._hand_out(delivery, index, index + 1)
        return Message(delivery, index)

    def _look_for_one(self) -> Message | None:
        """:meth:`take_one` when the first delivery is watched; with the lock held."""
        while self._deliveries:
            delivery, index = self._deliveries[0], self._at
            if type(delivery) is not Watched:
                self._hand_out(delivery, index, index + 1)
                return Message(delivery, index)
            if self._hand_out_unexpired(delivery, index, index + 1):
                return Message(delivery, index)
        return None

    def _hand_out(self, delivery: ReceivedDelivery, start: int, end: int) -> None:
        """Messages start … end - 1 of the first delivery are handed out: note them, and ask for more in time."""
        if end == delivery.block.count:
            self._deliveries.popleft()
            self._at = 0
            if self._taken is not None:
                self._gone(self._taken, delivery.block)
        else:
            self._at = end
        count = end - start
        ask = self._flow.consumed(count)
        if ask:
            self._connection.io.post(self._send_credit, ask, self.epoch)
        handed = self._handed
        if handed.keeps_track:
            last = delivery.tag + end - 1
            first = last - count + 1
            serial = self.session.handed_out(count)
            consumed = self.consumed
            row = consumed[-1] if consumed else None
            if row is not None and row[1] + 1 == first and serial - row[2] == first - row[0]:
                row[1] = last
            else:
                if row is None:
                    handed.owing[self] = None
                consumed.append([first, last, serial])
        if self._all_flow.counts_buffered:
            self._all_flow.handed_out(count)

    def _hand_out_unexpired(self, delivery: Watched, start: int, end: int) -> list[int]:
        """Hand out those of start … end - 1 that have not expired; settles the others as expired."""
        expires, alive = delivery.expires, list(range(start, end))
        if expires is not None:
            now_ms = self._connection.clock.now_ms()
            alive = [index for index in alive if not 0 < expires[index] <= now_ms]
        if delivery.void:
            alive = [index for index in alive if index not in delivery.void]
        at = start
        for first, last in unacknowledged_ranges.ranges_of(alive):
            if first > at:
                self._drop(delivery, at, first)
            self._hand_out(delivery, first, last + 1)
            at = last + 1
        if at < end:
            self._drop(delivery, at, end)
        if alive and delivery.attempt > 1 and self._handed.keeps_track:
            self._connection.io.post(self._send_begun, delivery.tag + alive[-1], self.epoch)
        return alive

    def _drop(self, delivery: Watched, start: int, end: int) -> None:
        """Messages start … end - 1 of the first delivery are void, or have expired."""
        if end == delivery.block.count:
            self._deliveries.popleft()
            self._at = 0
            if self._taken is not None:
                self._gone(self._taken, delivery.block)
        else:
            self._at = end
        tags = range(delivery.tag + start, delivery.tag + end)
        if delivery.void:
            tags_left = [tag for tag in tags if tag - delivery.tag not in delivery.void]
            ranges = unacknowledged_ranges.ranges_of(tags_left)
        else:
            ranges = [(tags[0], tags[-1])]
        count = unacknowledged_ranges.size(ranges)
        if not count:
            return
        ask = self._flow.dropped(count)
        if ask:
            self._connection.io.post(self._send_credit, ask, self.epoch)
        if self._handed.keeps_track:
            if self._share is not None:
                self._share.settled(count)
            self._connection.io.post(self._send_outcome, self.epoch, ranges, "expired", -1, "", None)
        self._all_flow.handed_out(count)

    def withdraw(self, ranges: unacknowledged_ranges.Ranges, why: str = WITHDRAWN) -> int:
        """The broker takes deliveries back before they are settled: what is here of them is void.

        Returns how many messages to ask for.
        """
        with self._lock:
            waiting = len(self._take_out(ranges))
            self.returned.add(self.epoch, unacknowledged_ranges.common(self.consumed, ranges), why)
            self._handed.uncovered.add(self, self.name, self.epoch, self.consumed, ranges, why)
            held = unacknowledged_ranges.cut_ranges(self.consumed, ranges)
            ask = self._flow.dropped(waiting) if waiting else 0
            if self._share is not None:
                self._share.settled(waiting + held)
            if waiting and self._notifier.has_waiters:
                self.poll()
        self._all_flow.handed_out(waiting)
        return ask

    def give_up(self, ranges: unacknowledged_ranges.Ranges) -> tuple[unacknowledged_ranges.Ranges, int]:
        """The broker would have these back: what is here of them is void, and the application will not get it.

        Returns which these are, and how many messages to ask for instead.
        """
        with self._lock:
            tags = sorted(self._take_out(ranges))
            ask = self._flow.dropped(len(tags)) if tags else 0
            if self._share is not None:
                self._share.settled(len(tags))
            if tags and self._notifier.has_waiters:
                self.poll()
        self._all_flow.handed_out(len(tags))
        return unacknowledged_ranges.ranges_of(tags), ask

    def _take_out(self, ranges: unacknowledged_ranges.Ranges) -> list[int]:
        """Void what is here of these deliveries; returns their tags. With the lock held."""
        tags: list[int] = []
        for index, delivery in reversed(list(enumerate(self._deliveries))):
            start = self._at if index == 0 else 0
            before = delivery.void if isinstance(delivery, Watched) else frozenset()
            void = unacknowledged_ranges.within(ranges, delivery.tag, start, delivery.block.count) - before
            if void:
                tags += [delivery.tag + one for one in void]
                self._void(index, delivery, start, before | void)
        return tags

    def _void(self, index: int, delivery: ReceivedDelivery, start: int, void: frozenset[int]) -> None:
        """These messages of a delivery are void; without any that is not, the delivery goes."""
        if all(one in void for one in range(start, delivery.block.count)):
            del self._deliveries[index]
            if index == 0:
                self._at = 0
            if self._taken is not None:
                self._gone(self._taken, delivery.block)
            return
        watched = Watched(delivery.block, delivery.consumer, delivery.epoch, delivery.tag, delivery.attempt)
        watched.expires = delivery.expires if isinstance(delivery, Watched) else None
        watched.void = void
        if hasattr(delivery, "fence"):
            watched.fence = delivery.fence
        if hasattr(delivery, "states"):
            watched.states = delivery.states
        self._deliveries[index] = watched

    def _gone(self, taken: TakenBytes, block: Block) -> None:
        """All of a delivery has left the buffer; with the lock held."""
        if taken.gone(block.bodies_bytes):
            tag = self._deliveries[0].tag - 1 if self._deliveries else taken.last
            self._connection.io.post(self._send_taken, tag, self.epoch)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something is in the buffer, or the consumer has ended; False when the time is over."""
        return self._notifier.wait(self.has_something, self.poll, timeout_s, self._connection.io.served)

    def arrival_future(self) -> Future[None]:
        """Done when :meth:`wait` would return True."""
        return self._notifier.future(self.has_something, self.poll)

    def has_something(self) -> bool:
        """Called with the lock held."""
        if self._failure is not None or self.closed:
            return True
        flow = self._flow
        here = flow.here > 0 if isinstance(flow, BatchFlow) else bool(self._deliveries)
        return here and self._connection.started and not self._handed.holds_back

    def unlisted(self) -> bool:
        """Take it off the list if it is empty; called with the lock held, for the first one of the list."""
        if self._deliveries:
            return False
        self._listed = False
        self._notifier.filled.popleft()
        return True

    @property
    def between_deliveries(self) -> bool:
        """All of one delivery was handed out and nothing of the next one."""
        return self._at == 0

    @property
    def buffered(self) -> int:
        """Messages here that were not handed out."""
        return self._flow.buffered

    def settle_consumed(self, up_to: int | None) -> tuple[int, unacknowledged_ranges.Ranges]:
        """What was consumed, up to a serial if one is given, is unacknowledged no more: (epoch, ranges of its tags)."""
        with self._lock:
            if up_to is None:
                ranges, self.consumed = [(first, last) for first, last, _ in self.consumed], []
            else:
                ranges, self.consumed = unacknowledged_ranges.cut(self.consumed, up_to)
            if not self.consumed:
                self._handed.owing.pop(self, None)
            if ranges:
                self._settlements += 1
                self._settled_up_to = max(last for _, last in ranges)
                if self._share is not None:
                    self._share.settled(unacknowledged_ranges.size(ranges))
            return self.epoch, ranges

    def settle_all_but(self, kept: Collection[int]) -> tuple[int, unacknowledged_ranges.Ranges]:
        """What was consumed is unacknowledged no more, but for what has these tags: (epoch, ranges of the others)."""
        with self._lock:
            rows = [[tag, tag, serial] for tag in sorted(kept) if (serial := self.serial_at(tag)) is not None]
            unacknowledged_ranges.cut_ranges(self.consumed, unacknowledged_ranges.ranges_of(row[0] for row in rows))
            ranges = [(first, last) for first, last, _ in self.consumed]
            self.consumed = rows
            if not rows:
                self._handed.owing.pop(self, None)
            if ranges:
                self._settlements += 1
                self._settled_up_to = max(last for _, last in ranges)
                if self._share is not None:
                    self._share.settled(unacknowledged_ranges.size(ranges))
            return self.epoch, ranges

    def serial_at(self, tag: int) -> int | None:
        """The serial of the unacknowledged message with a tag; with the lock held."""
        return unacknowledged_ranges.serial_of(self.consumed, tag)

    def settle_one(self, message: Message) -> unacknowledged_ranges.Ranges:
        """Take one message out of what is unacknowledged; empty when it was not there."""
        with self._lock:
            if message._delivery.epoch == self.epoch and unacknowledged_ranges.cut_one(self.consumed, message.tag):
                self._settlements += 1
                if self._share is not None:
                    self._share.settled(1)
                return [(message.tag, message.tag)]
        return []

    def settle_some(self, epoch: int, tags: Collection[int]) -> unacknowledged_ranges.Ranges:
        """Take messages of one attachment out of what is unacknowledged: the ranges of those that were there."""
        with self._lock:
            if epoch != self.epoch:
                return []
            wanted = unacknowledged_ranges.ranges_of(sorted(set(tags)))
            ranges = unacknowledged_ranges.cut_some(self.consumed, wanted)
            if ranges:
                self._settlements += 1
                if self._share is not None:
                    self._share.settled(unacknowledged_ranges.size(ranges))
            return ranges

    def why_returned(self, message: Message) -> str | None:
        """Why a message that was received here went back unsettled; None when it did not."""
        with self._lock:
            return self.returned.why(message._delivery.epoch, message.tag)

    def went_back(self, epoch: int, ranges: unacknowledged_ranges.Ranges, why: str) -> None:
        """Messages that were taken out of what is unacknowledged were not settled after all."""
        with self._lock:
            self.returned.add(epoch, ranges, why)

    def serial_of(self, message: Message) -> int | None:
        """The serial of a message that is unacknowledged, or None."""
        with self._lock:
            if message._delivery.epoch == self.epoch:
                return unacknowledged_ranges.serial_of(self.consumed, message.tag)
        return None

    def poll(self) -> None:
        """Somebody waits: with a limit of 0 that is when to ask. Called with the lock held."""
        self.answer_deadline()
        wanted = self._flow.wanted()
        if wanted:
            self._connection.io.post(self._send_credit, wanted, self.epoch)

    def answer_deadline(self) -> None:
        """The application asks for more after an ack deadline has passed; called with the lock held."""
        if self.owing >= 0:
            self._connection.io.post(self._send_answer, self.owing, self.epoch)
            self.owing = -1

    def drop_buffer(self) -> list[unacknowledged_ranges.Ranges]:
        """Empty the buffer; returns what was in it as ranges of tags, a list for each delivery. With the lock held."""
        found = []
        for delivery in self._deliveries:
            start, self._at = self._at, 0
            void = delivery.void if isinstance(delivery, Watched) else frozenset()
            left = (delivery.tag + index for index in range(start, delivery.block.count) if index not in void)
            found.append(unacknowledged_ranges.ranges_of(left))
        self._deliveries.clear()
        return found

    def _drop_all(self, why: str) -> None:
        """Empty the buffer, and what is unacknowledged; the flow is told by whoever knows what comes next."""
        self._deliveries.clear()
        self._at = 0
        self.returned.add(self.epoch, self.consumed, why)
        self._handed.uncovered.add(self, self.name, self.epoch, self.consumed, None, why)
        self.consumed.clear()
        self.owing = -1
        if self._taken is not None:
            self._taken.restart()

    @abstractmethod
    def _send_credit(self, credit: int, epoch: int) -> None: ...

    @abstractmethod
    def _send_answer(self, credit: int, epoch: int) -> None: ...

    @abstractmethod
    def _send_taken(self, tag: int, epoch: int) -> None: ...

    @abstractmethod
    def _send_begun(self, tag: int, epoch: int) -> None: ...

    @abstractmethod
    def _send_outcome(
        self,
        epoch: int,
        ranges: unacknowledged_ranges.Ranges,
        outcome: str,
        delay_ms: int,
        reason: str,
        confirmed: Future[int] | None,
    ) -> None: ...
